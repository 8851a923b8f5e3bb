"""The partition that EM starts from."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from sk_mice import _partition
from sk_mice._partition import partition, whitened


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
