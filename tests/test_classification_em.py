"""The partition that EM starts from."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sk_mice._partition import (
    REFINEMENTS,
    best_of_restarts,
    directions,
    partition,
    refined,
    unlikeliness,
    whitened,
)
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from sk_mice import _partition


def clusters(sizes, *, noise, long=0.0, seed=0):
    """Round clusters around random directions, or long ones that are parallel."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(sizes)), sizes)
    means = rng.standard_normal((len(sizes), 24))
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    axis = rng.standard_normal(24)
    axis /= np.linalg.norm(axis)
    x = means[y] + means.mean(axis=0) + noise * rng.standard_normal((len(y), 24))
    x += long * np.outer(rng.standard_normal(len(y)), axis)
    return x.astype(np.float32), y


@pytest.mark.parametrize(
    ("sizes", "noise", "long", "whitened_is_right"),
    [
        ([300, 150, 75, 40, 20], 0.15, 0.0, False),
        ([500] + [15] * 9, 0.1, 0.0, False),
        ([100] * 5, 0.15, 1.0, True),
    ],
    ids=["of unlike size", "one large", "long"],
)
def test_the_better_partition_is_kept(sizes, noise, long, whitened_is_right):
    x, y = clusters(sizes, noise=noise, long=long)
    k = len(sizes)
    score = {
        is_white: adjusted_rand_score(y, best_of_restarts(rows, k, random_state=0))
        for is_white, rows in ((True, whitened(x, k)), (False, directions(x)))
    }
    assert score[whitened_is_right] > 0.98
    assert score[not whitened_is_right] < 0.7
    assert adjusted_rand_score(y, partition(x, k, seed=0)) > 0.98


def test_proposals_compete_only_with_less_inertia(monkeypatch):
    x, y = clusters([300, 150, 75, 40, 20], noise=0.15)
    assert adjusted_rand_score(y, partition(x, 5, seed=0)) > 0.98
    monkeypatch.setattr(_partition, "BETTER", 0)
    assert adjusted_rand_score(y, partition(x, 5, seed=0)) < 0.7  # the whitened one


def test_unlikeliness_is_that_of_gaussians_with_one_covariance():
    x, y = clusters([9000, 3000, 1000], noise=0.1)
    rows = whitened(x, 3)
    drawn = np.random.default_rng(0).integers(3, size=len(y))

    def minus_twice_log_likelihood(labels):
        shares = np.bincount(labels) / len(labels)
        means = np.stack([rows[labels == k].mean(axis=0) for k in range(3)])
        deviations = rows - means[labels]
        covariance = deviations.T @ deviations / len(rows)
        densities = multivariate_normal(cov=covariance).logpdf(deviations)
        return -2 * (densities + np.log(shares[labels])).mean()

    expected = minus_twice_log_likelihood(drawn) - minus_twice_log_likelihood(y)
    found = unlikeliness(rows, drawn) - unlikeliness(rows, y)
    assert expected > 3
    assert found == pytest.approx(expected, rel=0.05)  # but for a ridge


def test_refining_makes_rows_likelier_and_finds_the_clusters():
    x, y = clusters([200] * 5, noise=0.15, long=1.0)
    rows = whitened(x, 5)
    mixed = np.random.default_rng(1).random(len(y)) < 0.5
    start = np.where(mixed, np.random.default_rng(2).integers(5, size=len(y)), y)
    values, labels = [unlikeliness(rows, start)], start
    for _ in range(REFINEMENTS):
        labels = refined(rows, labels, n_steps=1)
        values.append(unlikeliness(rows, labels))
    assert (np.diff(values) <= 1e-6).all()
    assert adjusted_rand_score(y, labels) > 0.98
    np.testing.assert_array_equal(refined(rows, start), labels)


@pytest.mark.parametrize("sizes", [[3, 3, 3], [4, 1, 1]])
def test_refining_keeps_every_cluster(sizes):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), sizes)
    for _ in range(50):
        x = rng.standard_normal((len(labels), 5)).astype(np.float32)
        assert len(np.unique(refined(whitened(x, 3), labels))) == 3
    alike = np.ones((len(labels), 5), dtype=np.float32)
    assert len(refined(whitened(alike, 3), labels)) == len(labels)


def test_samples_without_features_are_clustered_without_a_warning():
    x, _ = clusters([20, 20], noise=0.1)
    x[3] = x[21] = 0
    assert set(partition(x, 2, seed=0)) == {0, 1}


def test_whitened_features_have_equal_variance_and_no_noise():
    rng = np.random.default_rng(0)
    scales = np.array([100.0, 10.0, 5.0, 1e-3])
    x = rng.standard_normal((500, 4)) * scales
    x[:, 3] += 10_000  # which makes directions nearly what the first three are
    rotation, _ = np.linalg.qr(rng.standard_normal((4, 4)))
    rows = whitened((x @ rotation).astype(np.float32), 5)
    # The first alone holds 98.8 percent of the variance, the first two 99.8.
    assert rows.shape == (500, 2)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.cov(rows.T), np.eye(2), atol=0.01)
    assert whitened(rng.standard_normal((500, 64)), 3).shape == (500, 9)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_only_directions_matter(scale):
    x = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)
    lengths = np.linspace(0.5, 2, 50, dtype=np.float32)[:, None]
    rows = whitened(x * lengths * np.float32(scale), 2)
    np.testing.assert_allclose(rows, whitened(x, 2), atol=1e-4)


@pytest.mark.parametrize("shape", [(5, 4), (2, 128), (7, 1)])
@pytest.mark.parametrize("value", [0, 1])
def test_samples_that_are_all_alike(shape, value):
    rows = whitened(np.full(shape, value, dtype=np.float32), 2)
    assert rows.shape == (len(rows), 1)
    assert (rows != 0).all()


def test_a_large_set_is_clustered_as_a_small_one(monkeypatch):
    X, y = make_blobs(600, 8, centers=5, cluster_std=0.5, random_state=0)
    whole = partition(X.astype(np.float32), 5, seed=0)
    assert adjusted_rand_score(y, whole) == 1
    monkeypatch.setattr(_partition, "RESTART_ROWS", 150)
    by_choice = partition(X.astype(np.float32), 5, seed=0)
    assert by_choice.shape == (600,)
    assert by_choice.dtype == np.int64
    assert adjusted_rand_score(y, by_choice) == 1


@pytest.mark.parametrize("good", [0, 1, 2])
def test_the_draw_that_serves_all_rows_best_is_kept(monkeypatch, good):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 50)
    rows = np.repeat(np.eye(4), 50, axis=0) + 0.05 * rng.standard_normal((200, 4))
    # What two of them know has no row of three clusters.
    draws = [np.arange(50)] * 3
    draws[good] = np.arange(0, 200, 4)
    monkeypatch.setattr(_partition, "_draws", lambda *_: draws)
    labels = best_of_restarts(rows, 4, random_state=0)
    assert adjusted_rand_score(y, labels) == 1


def test_opposite_samples():
    x = np.repeat([[1.0, 0.0], [-1.0, 0.0]], 10, axis=0).astype(np.float32)
    assert adjusted_rand_score(np.repeat([0, 1], 10), partition(x, 2, seed=0)) == 1
    assert (partition(x, 1, seed=0) == 0).all()
