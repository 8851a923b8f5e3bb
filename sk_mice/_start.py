"""The partition from which EM starts: from a clusterer of features, or given."""

import numpy as np
import torch
from sklearn.base import clone

from ._classification_em import StartingPartition
from ._engine import objective
from ._engine.ambient import OwnDraws, spawn_seed
from ._engine.arrays import plain_array
from ._engine.inference import Inference, gathered
from ._pipelines import last_step, names_of_seeds

SETTLING_STEPS = 30  # batch norm averages with a weight of a tenth per batch
LARGEST_PART = 2**24  # features that are clustered of an X larger than memory


def checked_labels(labels, n_samples, n_clusters, name="The labels of `init`"):
    """Labels of a partition as int64, or ValueError."""
    labels = np.asarray(plain_array(labels, name))
    right = labels.shape in {(n_samples,), (n_samples, 1)}
    right = right and np.issubdtype(labels.dtype, np.integer)
    if not (right and labels.min() >= 0 and labels.max() < n_clusters):
        span = f" from {labels.min()} to {labels.max()}" if right else ""
        raise ValueError(
            f"{name} must be {n_samples} integers from 0 to n_clusters - 1 = "
            f"{n_clusters - 1}; got {labels.dtype} of shape {labels.shape}{span}."
        )
    return labels.ravel().astype(np.int64)


def try_clusterer(init, run, task) -> None:
    """Cluster untrained features, so that a clusterer that fails does so early."""
    _cluster(_clusterer(init, run), run, task, Inference(run.model))


def start_at_partition(init, run, task) -> None:
    """Set a model and the labels of its run to a partition of its features.

    Features separate classes better than embeddings, which are trained to tell samples
    apart and drop other information.
    """
    task.bar.say("clustering of the features")
    clusterer, inference = _clusterer(init, run), Inference(run.model)
    features, labels = _cluster(clusterer, run, task, inference)
    if _takes_a_part(clusterer, task):
        clusterer = task.group.from_first(lambda: clusterer)
        pairs = _assigned(clusterer, run, task, inference)
    else:
        run.labels = labels
        pairs = _with_labels(labels, task, inference)
    _set_partition(run, task, labels, features, pairs)


def start_at_labels(init, run, task) -> None:
    """Set an untrained model and the labels of its run to labels of the samples."""
    n_samples, n_clusters = len(task.samples), run.model.n_experts
    run.labels = checked_labels(init, n_samples, n_clusters, "`init`")
    _settle(run, task)
    inference = Inference(run.model)
    features = task.infer(inference, "features")
    pairs = _with_labels(run.labels, task, inference)
    _set_partition(run, task, run.labels, features, pairs)


def _clusterer(init, run):
    """The clusterer that `init` stands for, with the number of clusters and a seed."""
    clusterer = StartingPartition() if isinstance(init, str) else clone(init)
    seed = spawn_seed(run.seed, "partition", run.stage)
    known = dict.fromkeys(names_of_seeds(clusterer), seed)
    _, prefix = last_step(clusterer)
    for name in ("n_clusters", "n_components"):
        if prefix + name in clusterer.get_params():
            known[prefix + name] = run.model.n_experts
            break
    return clusterer.set_params(**known)


@torch.no_grad()
def _settle(run, task) -> None:
    """Set the batch-norm statistics of an untrained model by random batches."""
    model = run.model
    generator = torch.Generator().manual_seed(spawn_seed(run.seed, "settle"))
    model.train()
    with OwnDraws(spawn_seed(run.seed, "settle, networks")):
        for _ in range(SETTLING_STEPS):
            order = task.samples.shuffled_indices(task.batch_size, generator)
            x = task.views.plain(task.samples[next(iter(order))])
            model.embed(x.expand(model.n_views, *x.shape))
    model.eval()


def _takes_a_part(clusterer, task) -> bool:
    """Whether a part of an X larger than memory is clustered, and the rest assigned."""
    return task.samples.is_large and hasattr(clusterer, "predict")


def _cluster(clusterer, run, task, inference) -> tuple[np.ndarray, np.ndarray]:
    """Features of all samples, or of a part of them, and their labels."""
    if _takes_a_part(clusterer, task):
        features = _features_of_part(run, task, inference)
    else:
        features = task.infer(inference, "features")
    labels = task.group.from_first(lambda: clusterer.fit_predict(features))
    return features, checked_labels(labels, len(features), run.model.n_experts)


def _features_of_part(run, task, inference) -> np.ndarray:
    n = LARGEST_PART // run.model.student.experts.in_features
    generator = torch.Generator().manual_seed(spawn_seed(run.seed, "part"))
    rows = torch.randperm(len(task.samples), generator=generator)[:n].sort().values
    parts = task.infer_batches(inference, "features", rows=rows)
    (features,) = gathered(parts, len(rows))
    return features.numpy()


def _with_labels(labels, task, inference):
    """Yield batches of the teacher's embeddings of the samples, and of their labels."""
    labels = torch.from_numpy(labels).to(task.device)
    rows, start = task.group.rows(len(labels)), 0
    labels = labels[rows]
    for (v,) in task.infer_batches(inference, "teacher", rows=rows):
        yield v, labels[start : start + len(v)]
        start += len(v)


def _assigned(clusterer, run, task, inference):
    """Yield batches of the teacher's embeddings, and of labels by a fitted clusterer.

    After the last batch, the labels of the run are those of all samples.
    """
    n, start = len(task.samples), 0
    rows = task.group.rows(n)
    # At once: small pieces between batches would keep memory from being used again.
    found = torch.empty(rows.stop - rows.start, dtype=torch.int64)
    for f, v in task.infer_batches(inference, "features", "teacher", rows=rows):
        labels = clusterer.predict(f.cpu().numpy())
        labels = checked_labels(labels, len(f), run.model.n_experts)
        found[start : start + len(f)] = torch.from_numpy(labels)
        yield v, found[start : start + len(f)].to(v.device)
        start += len(f)
    run.labels = task.group.gather(found, n, between_steps=True).numpy()


def _set_partition(run, task, labels, features, pairs) -> None:
    """Set prototypes and gate to labels of samples with these features.

    The prototypes are those of all samples, from batches of the teacher's embeddings
    and of labels: all embeddings at a time would be N x H x D.
    """
    size = run.model.n_experts, run.model.embedding_dim
    sums = torch.zeros(size, dtype=torch.float32, device=task.device)
    for v, own in pairs:
        sums += objective.class_sums(v, own, run.model.n_experts)
    task.group.sum(sums)
    tensors = (torch.from_numpy(a).to(task.device) for a in (labels, features))
    run.model.set_partition(*tensors, sums)
