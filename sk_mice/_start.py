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
    """Cluster untrained features: a clusterer that fails does so before training."""
    clusterer, inference = _clusterer(init, run), Inference(run.model)
    if _takes_a_part(clusterer, task):
        features = _features_of_part(run, task, inference)
    else:
        features = task.infer(inference, "features")
    _partition(clusterer, features, run, task)


def start_at_partition(init, run, task) -> None:
    """Set a model and the labels of its run to a partition of its features.

    Features separate classes better than embeddings, which are trained to tell samples
    apart and drop other information.
    """
    task.bar.say("clustering of the features")
    clusterer, inference = _clusterer(init, run), Inference(run.model)
    if _takes_a_part(clusterer, task):
        _start_at_part(clusterer, run, task, inference)
        return
    features = task.infer(inference, "features")
    run.labels = _partition(clusterer, features, run, task)
    _start_at(run, task, inference, features)


def start_at_labels(init, run, task) -> None:
    """Set an untrained model and the labels of its run to labels of the samples."""
    n_samples, n_clusters = len(task.samples), run.model.n_experts
    run.labels = checked_labels(init, n_samples, n_clusters, "`init`")
    _settle(run, task)
    inference = Inference(run.model)
    _start_at(run, task, inference, task.infer(inference, "features"))


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


def _partition(clusterer, features, run, task) -> np.ndarray:
    """Labels of samples with these features."""
    labels = task.group.from_first(lambda: clusterer.fit_predict(features))
    return checked_labels(labels, len(features), run.model.n_experts)


def _start_at(run, task, inference, features) -> None:
    """Set prototypes and gate to the labels of samples with these features."""
    labels = torch.from_numpy(run.labels).to(task.device)
    rows = task.group.rows(len(labels))
    parts = labels[rows].split(inference.batch_size(task.samples, task.views))
    embeddings = (v for (v,) in task.infer_batches(inference, "teacher", rows=rows))
    sums = _sums_of_clusters(zip(embeddings, parts, strict=True), run, task)
    features = torch.from_numpy(features).to(task.device)
    run.model.set_partition(labels, features, sums)


def _sums_of_clusters(pairs, run, task) -> torch.Tensor:
    """Sums (K, D) of the teacher's embeddings, from batches of these and of labels.

    All embeddings at a time would be N x H x D.
    """
    size = run.model.n_experts, run.model.embedding_dim
    sums = torch.zeros(size, dtype=torch.float32, device=task.device)
    for v, labels in pairs:
        sums += objective.class_sums(v, labels, run.model.n_experts)
    task.group.sum(sums)
    return sums


# -------------------------------------------------------------- X larger than memory


def _takes_a_part(clusterer, task) -> bool:
    return task.samples.is_large and hasattr(clusterer, "predict")


def _start_at_part(clusterer, run, task, inference) -> None:
    """Cluster a part of the samples, and assign the others batch by batch."""
    features = _features_of_part(run, task, inference)
    labels, clusterer = task.group.from_first(
        lambda: (clusterer.fit_predict(features), clusterer)
    )
    labels = checked_labels(labels, len(features), run.model.n_experts)
    n = len(task.samples)
    rows = task.group.rows(n)
    # At once: small pieces between batches would keep memory from being used again.
    found = torch.empty(len(range(n)[rows]), dtype=torch.int64)

    def assigned():
        start = 0
        for f, v in task.infer_batches(inference, "features", "teacher", rows=rows):
            known = clusterer.predict(f.cpu().numpy())
            known = checked_labels(known, len(f), run.model.n_experts)
            found[start : start + len(f)] = torch.from_numpy(known)
            yield v, found[start : start + len(f)].to(v.device)
            start += len(f)

    sums = _sums_of_clusters(assigned(), run, task)
    run.labels = task.group.gather(found, n, between_steps=True).numpy()
    tensors = (torch.from_numpy(a).to(task.device) for a in (labels, features))
    run.model.set_partition(*tensors, sums)


def _features_of_part(run, task, inference) -> np.ndarray:
    n = LARGEST_PART // run.model.student.experts.in_features
    generator = torch.Generator().manual_seed(spawn_seed(run.seed, "part"))
    rows = torch.randperm(len(task.samples), generator=generator)[:n].sort().values
    parts = task.infer_batches(inference, "features", rows=rows)
    (features,) = gathered(parts, len(rows))
    return features.numpy()
