"""What an epoch adds up."""

import numpy as np
import pytest
import torch

from sk_mice._engine import objective
from sk_mice._engine.statistics import EpochStatistics

K, D = 3, 8


def test_statistics_add_up_an_epoch():
    statistics = EpochStatistics(7, K, D, "cpu")
    joint = torch.randn(7, K)
    joint[0, 0] = 200.0  # a posterior of exactly one
    joint[:, K - 1] = -20.0  # an empty cluster
    v = torch.nn.functional.normalize(torch.randn(7, K, D), dim=-1)
    for _ in range(2):  # the second epoch begins anew
        statistics.reset()
        for indices in torch.arange(7).split(3):
            part = joint[indices]
            statistics.add(indices, part, objective.elbo(part).mean(), v[indices])
    q = objective.posterior(joint)
    labels = q.argmax(1)
    summary = statistics.summary()
    assert summary["elbo"] == pytest.approx(objective.elbo(joint).mean().item())
    assert summary["confidence"] == pytest.approx(q.max(1).values.mean().item())
    assert summary["changed"] == 0
    counts, _ = np.histogram(q.numpy(), bins=10, range=(0, 1))
    assert summary["posterior_counts"] == counts.tolist()
    assert summary["cluster_sizes"] == np.bincount(labels, minlength=K).tolist()
    for k in range(K):
        torch.testing.assert_close(statistics.class_sums[k], v[labels == k, k].sum(0))


def test_sums_go_beyond_what_float32_can_hold():
    n_samples, n_experts = 4096, 4097
    statistics = EpochStatistics(n_samples, n_experts, 1, "cpu")
    joint = torch.zeros(n_samples, n_experts)
    v = torch.ones(n_samples, n_experts, 1)
    for elbo in (1e8, 1.0):
        statistics.add(torch.arange(n_samples), joint, torch.tensor(elbo), v)
    assert n_samples * n_experts > 2**24
    summary = statistics.summary()
    assert summary["posterior_counts"][0] == 2 * n_samples * n_experts
    assert summary["elbo"] == 1e8 + 1
