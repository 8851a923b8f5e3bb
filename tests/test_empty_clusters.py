"""Prototypes of empty clusters move to samples."""

from dataclasses import fields

import numpy as np
import pytest
import torch
from shared import samples_of
from torch import nn

from sk_mice._empty_clusters import fill_empty_clusters
from sk_mice._engine.distributed import ALONE
from sk_mice._engine.inference import Inference
from sk_mice._engine.model import ContrastiveMixture, gating_prototypes
from sk_mice._engine.views import VectorViews
from sk_mice._task import Task

F, K, D, TAU = 5, 6, 8, 0.3


def task_of(X):
    others = {field.name: None for field in fields(Task)}
    known = {"group": ALONE, "samples": samples_of(X), "views": VectorViews((F,), None)}
    return Task(**others | known)


def mixture(kappa=1.0, **options):
    """Untrained; the smaller kappa, the more its gate prefers the first clusters."""
    omega = gating_prototypes(K, D)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = ContrastiveMixture(
            nn.Linear(F, 16),
            16,
            n_experts=K,
            embedding_dim=D,
            queue_size=32,
            omega=omega,
            tau=TAU,
            kappa=kappa,
            **options,
        )
        model.student.gate.weight.zero_()
        model.student.gate.bias.copy_(omega[:3].sum(dim=0))
    return model.eval().requires_grad_(False)


def teacher_of(model, task):
    """Teacher's embeddings of all samples for all experts, (N, K, D)."""
    v = torch.from_numpy(task.infer(Inference(model), "teacher"))
    return v.expand(-1, K, -1)


def joint_of(model, task):
    return task.infer(Inference(model), "joint")


def n_empty(joint):
    return K - len(set(joint.argmax(axis=1)))


@pytest.mark.parametrize(
    ("n", "kappa", "shared_head"),
    [(K, 1, True), (K, 1, False), (60, 0.5, True), (60, 1, False)],
)
def test_empty_clusters_get_samples_that_others_can_spare(n, kappa, shared_head):
    X = np.random.default_rng(0).standard_normal((n, F))
    model, task = mixture(kappa, shared_head=shared_head), task_of(X)
    before, joint = model.expert_prototypes.clone(), joint_of(model, task)
    labels = joint.argmax(axis=1)
    sizes = np.bincount(labels, minlength=K)
    found, n_first = fill_empty_clusters(model, task)
    np.testing.assert_array_equal(found, joint_of(model, task))
    assert n_first == n_empty(joint) > n_empty(found)

    (moved,) = np.nonzero((model.expert_prototypes != before).any(dim=1).numpy())
    np.testing.assert_array_equal(moved, np.flatnonzero(sizes == 0))
    v = teacher_of(model, task)[:, moved]
    distances = (v - model.expert_prototypes[moved]).norm(dim=2)  # (N, moved)
    assert distances.amin(dim=0).max() < 1e-5
    chosen = distances.argmin(dim=0)
    sizes -= np.bincount(labels[chosen], minlength=K)
    assert sizes[labels].min() >= 1

    # The first alone would have its sample, too.
    k, i = moved[0], chosen[0]
    model.expert_prototypes.copy_(before)
    model.expert_prototypes[k] = v[i, 0]
    assert joint_of(model, task)[i].argmax() == k


def test_prototypes_stay_where_moving_them_fills_no_cluster():
    model, task = mixture(), task_of(np.zeros((10, F)))
    before, joint = model.expert_prototypes.clone(), joint_of(model, task)
    found, n_first = fill_empty_clusters(model, task)
    assert n_first == K - 1
    np.testing.assert_array_equal(found, joint)
    assert torch.equal(model.expert_prototypes, before)


def test_empty_clusters_without_prototypes_are_counted():
    X = np.random.default_rng(0).standard_normal((20, F))
    model, task = mixture(0.1, class_level=False), task_of(X)
    found, n_first = fill_empty_clusters(model, task)
    assert n_first == n_empty(found) >= 3
