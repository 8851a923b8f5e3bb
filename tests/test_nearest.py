"""Nearest neighbours, exact and by an index."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import euclidean_distances
from sklearn.preprocessing import normalize
from systems import needs_resource, peak_memory
from threadpoolctl import threadpool_limits

from sk_mice import MiCEClustering, MoCo
from sk_mice._engine import nearest
from sk_mice._engine.nearest import nearest_neighbors, shares_of_neighbors

ROOT = Path(__file__).parents[1]


@pytest.fixture
def indexed(monkeypatch):
    """An index for small data, too."""
    monkeypatch.setattr(nearest, "MOST_EXACT", 200)
    monkeypatch.setattr(nearest, "_SAMPLE", 100)


def blobs(n, n_features=16):
    rows, _ = make_blobs(n, n_features, centers=20, cluster_std=3.0, random_state=0)
    return normalize(rows).astype(np.float32)


def brute_force(rows, n_neighbors):
    distances = euclidean_distances(rows.astype(np.float64))
    np.fill_diagonal(distances, np.inf)
    return np.argsort(distances, axis=1, kind="stable")[:, :n_neighbors]


def share(found, true):
    return np.mean([np.isin(t, f).mean() for t, f in zip(true, found, strict=True)])


@pytest.mark.parametrize("n_features", [3, 40])  # by a tree, and by all pairs
def test_exact_neighbors_do_not_depend_on_the_blocks(n_features, monkeypatch):
    rows = blobs(300, n_features)
    whole, recall = nearest_neighbors(rows, 7)
    np.testing.assert_array_equal(whole, brute_force(rows, 7))
    assert recall == 1.0
    monkeypatch.setattr(nearest, "_BLOCK_OPERATIONS", 20 * rows.size)
    np.testing.assert_array_equal(nearest_neighbors(rows, 7)[0], whole)


def test_equal_rows_are_no_neighbors_of_themselves():
    found, _ = nearest_neighbors(np.ones((40, 2)), 3)
    assert found.shape == (40, 3)
    assert not (found == np.arange(40)[:, None]).any()


@pytest.mark.usefixtures("indexed")
def test_index_finds_what_it_says():
    rows = blobs(3000)
    found, recall = nearest_neighbors(rows, 10)
    assert found.shape == (3000, 10)
    assert found.dtype == np.int64
    assert not (found == np.arange(3000)[:, None]).any()  # all lists have enough
    true = brute_force(rows, 10)
    assert recall > 0.9
    assert abs(share(found, true) - recall) < 0.02
    # In the order of the distances.
    distances = np.linalg.norm(rows[found] - rows[:, None], axis=2)
    assert (np.diff(distances, axis=1) >= -1e-3).all()


@pytest.mark.usefixtures("indexed")
def test_index_repeats_itself_on_any_number_of_threads():
    rows = blobs(2000)
    with threadpool_limits(1):
        first = nearest_neighbors(rows, 5, seed=3)
    with threadpool_limits(2):
        second = nearest_neighbors(rows, 5, seed=3)
    np.testing.assert_array_equal(first[0], second[0])
    assert first[1] == second[1]


@pytest.mark.usefixtures("indexed")
@pytest.mark.parametrize("n_neighbors", [1, 300])
def test_index_finds_few_and_many(n_neighbors):
    found, recall = nearest_neighbors(blobs(400), n_neighbors)
    assert found.shape == (400, n_neighbors)
    assert recall > 0.9


@pytest.mark.usefixtures("indexed")
def test_any_of_equal_rows_are_neighbors_that_were_found():
    rows = blobs(50)[np.random.default_rng(0).integers(50, size=3000)]
    found, recall = nearest_neighbors(rows, 5)
    assert np.array_equal(rows[found], np.repeat(rows[:, None], 5, axis=1))
    assert recall == 1


@pytest.mark.usefixtures("indexed")
def test_equal_rows_have_neighbors_in_an_index():
    found, _ = nearest_neighbors(np.ones((300, 4), np.float32), 3)
    assert found.shape == (300, 3)


@pytest.mark.usefixtures("indexed")
def test_rows_whose_lists_are_short_stand_for_what_was_not_found(monkeypatch):
    monkeypatch.setattr(nearest, "_MOST_LISTS", 1)
    rows = np.random.RandomState(0).normal(size=(500, 4)).astype(np.float32)
    found, recall = nearest_neighbors(rows, 100)
    assert (found == np.arange(500)[:, None]).any()
    true = brute_force(rows, 100)
    assert recall < 0.5
    assert abs(share(found, true) - recall) < 0.03


@pytest.mark.usefixtures("indexed")
@pytest.mark.parametrize("make", [MiCEClustering, MoCo])
def test_recall_is_an_attribute(make, monkeypatch):
    X = np.random.RandomState(0).normal(size=(500, 4)).astype(np.float32)
    init = {"n_clusters": 2, "init": "random"} if make is MiCEClustering else {}
    estimator = make(max_epochs=1, batch_size=250, random_state=0, **init)
    assert estimator.fit(X).neighbors_recall_ is None
    assert estimator.set_params(n_neighbors=3).fit(X[:100]).neighbors_recall_ == 1.0
    assert 0.9 < estimator.fit(X).neighbors_recall_ <= 1.0
    monkeypatch.setattr(nearest, "_MOST_LISTS", 1)
    monkeypatch.setattr(nearest, "POOR_RECALL", 1.0)
    with pytest.warns(UserWarning, match="index found .* of the nearest") as caught:
        estimator.fit(X)
    assert caught[0].filename == __file__


@pytest.mark.usefixtures("indexed")
def test_agreement_of_many_vectors_uses_the_index(monkeypatch):
    X = blobs(500, 8)
    mice = MiCEClustering(2, init="random", max_epochs=1, random_state=0).fit(X)
    by_index = mice.agreement(X)
    monkeypatch.setattr(nearest, "MOST_EXACT", 1000)
    assert np.abs(by_index - mice.agreement(X)).mean() < 0.05


def test_without_faiss_a_long_search_says_so(indexed, monkeypatch):
    rows = blobs(300)
    monkeypatch.setitem(sys.modules, "faiss", None)
    found, recall = nearest_neighbors(rows, 5)  # short
    np.testing.assert_array_equal(found, brute_force(rows, 5))
    assert recall == 1.0
    # The first of three blocks took 100 seconds.
    clock = SimpleNamespace(perf_counter=iter([0, 100]).__next__)
    monkeypatch.setattr(nearest, "time", clock)
    monkeypatch.setattr(nearest, "_BLOCK_OPERATIONS", 200 * rows.size)
    with pytest.warns(UserWarning, match=r"about 5 minutes.*sk-mice\[neighbors\]"):
        nearest_neighbors(rows, 5)


@needs_resource
@pytest.mark.slow
def test_a_million_rows_take_less_than_ten_minutes_and_four_gigabytes(tmp_path):
    code = (
        "import sys; sys.path.insert(0, 'benchmarks'); import neighbors_scale as b; "
        f"b.main(['--n', '1000000', '--json', {str(tmp_path / 'found.json')!r}])"
    )
    start = time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True)
    assert time.perf_counter() - start < 600
    assert peak_memory(children=True) < 4e9


@pytest.mark.parametrize("n_samples", [1, 3, 4])
def test_a_few_samples_have_the_neighbors_that_there_are(n_samples):
    found, recall = nearest_neighbors(np.eye(n_samples), 10)
    assert found.shape == (n_samples, n_samples - 1)
    assert recall == 1
    shares = shares_of_neighbors(np.zeros(n_samples, int), found, 3)
    np.testing.assert_array_equal(shares, np.eye(3)[np.zeros(n_samples, int)])


def test_small_clusters_ask_no_more_than_their_own():
    rows = np.repeat(np.eye(5), 6, axis=0)
    rows += 0.01 * np.random.RandomState(0).rand(30, 5)
    labels = np.repeat(np.arange(5), 6)
    nearest, _ = nearest_neighbors(rows, 10)
    shares = shares_of_neighbors(labels, nearest, 5)
    np.testing.assert_array_equal(shares, np.eye(5)[labels])
    labels[0] = 5  # alone: the nearest one is in another cluster
    shares = shares_of_neighbors(labels, nearest, 6)
    assert shares[0].tolist() == [1, 0, 0, 0, 0, 0]
    assert set(shares[1:6, 0].tolist()) <= {0.75, 1}  # four are asked
    assert set(shares[1:6].sum(axis=1).tolist()) == {1}


def test_shares_of_neighbours_are_shares():
    labels = np.arange(40) % 2
    rows = np.random.RandomState(0).rand(40, 3)
    nearest, _ = nearest_neighbors(rows, 10)
    shares = shares_of_neighbors(np.zeros(40, int), nearest, 2)
    np.testing.assert_array_equal(shares, np.tile([1, 0], (40, 1)))
    shares = shares_of_neighbors(labels, nearest, 2)
    np.testing.assert_allclose(10 * shares, (10 * shares).round(), atol=1e-5)
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-6)
