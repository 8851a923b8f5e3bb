"""Clusters that training leaves empty: their prototypes move to samples."""

import numpy as np
import torch

from ._engine.inference import Inference, gathered


@torch.no_grad()
def fill_empty_clusters(model, task) -> tuple[np.ndarray, int]:
    """Infer all samples, and move prototypes while fewer clusters become empty.

    The model's expert prototypes change in place. Returns the log-joint at the end,
    (N, K), and the number of clusters that were empty at first.
    """
    inference, mu = Inference(model), model.expert_prototypes
    best = task.infer(inference, "joint")
    n_first = fewest = _n_empty(best)
    if fewest and mu is not None:
        kept = mu.clone()
        while fewest:
            _move_prototypes(model, task, inference, best)
            joint = task.infer(inference, "joint")
            n_empty = _n_empty(joint)
            if n_empty >= fewest:
                break
            best, fewest, kept = joint, n_empty, mu.clone()
        mu.copy_(kept)
        task.group.broadcast(mu)
    return best, n_first


def _n_empty(joint) -> int:
    return joint.shape[1] - len(np.unique(joint.argmax(axis=1)))


def _move_prototypes(model, task, inference, joint) -> None:
    """Move the prototypes of empty clusters to samples, as k-means does.

    Each moves to the sample that then comes nearest to it.
    """
    labels = joint.argmax(axis=1)
    sizes = np.bincount(labels, minlength=joint.shape[1])
    empty = np.flatnonzero(sizes == 0)
    mu = model.prototypes()[empty]

    def cosines():
        for (v,) in inference.batches(task.samples, task.views, "teacher"):
            shared = model.shared_head
            yield [v[:, 0] @ mu.T if shared else (v[:, empty] * mu).sum(dim=2)]

    (cosine,) = gathered(cosines(), len(joint))
    # By how many nats a cluster is less likely than the sample's own, once it is at
    # the sample, where its positive logit grows to 1 / tau.
    behind = ((cosine - 1) / model.tau).numpy() - joint[:, empty]
    behind += joint.max(axis=1, keepdims=True)
    for k, column in zip(empty, behind.T, strict=True):
        column[sizes[labels] < 2] = np.inf
        i = int(column.argmin())
        sizes[labels[i]] -= 1
        labels[i], sizes[k] = k, 1
        sample = task.views.plain(task.samples[torch.tensor([i])])
        v = inference(sample, "teacher")[0][0, 0 if model.shared_head else k]
        if v.any():
            model.expert_prototypes[k] = v
