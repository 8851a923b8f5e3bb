"""Positives from mutual nearest neighbours."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from shared import mapped_as_large, samples_of
from sklearn.datasets import load_digits, make_blobs

from sk_mice import MiCEClustering, MoCo
from sk_mice._engine import neighbors
from sk_mice._engine.neighbors import (
    Neighbors,
    comparable_rows,
    find_neighbors,
    mutual_neighbors,
)
from sk_mice.metrics import clustering_accuracy_score


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def brute_force(rows, n_neighbors):
    """Each row's mutual neighbours, nearest first, as the definition reads."""
    distances = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    np.fill_diagonal(distances, np.inf)
    nearest = np.argsort(distances, axis=1)[:, :n_neighbors]
    return [[j for j in nearest[i] if i in nearest[j]] for i in range(len(rows))]


@given(
    n=st.integers(2, 30),
    n_neighbors=st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_mutual_neighbors_are_those_of_the_definition(n, n_neighbors, seed):
    rows = unit(np.random.RandomState(seed).normal(size=(n, 3)))
    table = mutual_neighbors(rows, n_neighbors)[0]
    assert table.shape == (n, min(n_neighbors, n - 1))
    assert table.dtype == np.int64
    for i, expected in enumerate(brute_force(rows, table.shape[1])):
        expected = expected or [i]
        assert table[i].tolist() == np.resize(expected, table.shape[1]).tolist()


def test_a_sample_apart_from_all_others_stands_alone():
    rows = np.r_[np.eye(3), -np.ones((1, 3)) / np.sqrt(3)] + np.zeros((4, 3))
    rows[1] = unit([[1.0, 0.1, 0.0]])
    rows[2] = unit([[1.0, 0.0, 0.1]])
    table, _ = mutual_neighbors(rows, 2)
    assert table[3].tolist() == [3, 3]
    assert set(table[0]) == {1, 2}


def test_a_sample_in_place_of_what_an_index_missed_is_no_neighbor(monkeypatch):
    found = np.array([[1, 0], [0, 1], [2, 2]])
    monkeypatch.setattr(neighbors, "nearest_neighbors", lambda *args: (found, 0.5))
    table, _ = mutual_neighbors(np.empty((3, 1)), 2)
    assert table.tolist() == [[1, 1], [0, 0], [2, 2]]


def test_neighbors_of_vectors_are_found_at_the_scale_that_they_have():
    X = np.random.RandomState(0).normal(size=(50, 4)) * [1e3, 1e3, 1e-3, 0]
    found = find_neighbors(samples_of(X), 5).table.numpy()
    np.testing.assert_array_equal(found, mutual_neighbors(unit(X - X.mean(0)), 5)[0])


@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_values_of_any_size_have_neighbors(scale):
    X = np.random.RandomState(0).normal(size=(50, 4))
    plain = find_neighbors(samples_of(X), 5).table
    assert torch.equal(find_neighbors(samples_of(X * scale), 5).table, plain)


def test_neighbors_of_images_are_found_by_their_pixels():
    X = load_digits().images[:60]
    found = find_neighbors(samples_of(X), 5).table.numpy()
    rows = X.reshape(60, -1)
    expected, _ = mutual_neighbors(unit(rows - rows.mean(0)), 5)
    assert (found == expected).mean() > 0.99  # but for ties


def test_many_pale_images_are_centred():
    signs = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]], np.float32)
    X = 0.9 + 0.001 * np.tile(signs[:, None], (2**15, 1, 1))
    np.testing.assert_allclose(
        comparable_rows(samples_of(X))[:4], unit(signs), atol=0.01
    )


def test_constant_samples_have_neighbors():
    table = find_neighbors(samples_of(np.ones((6, 3))), 2).table
    assert table.shape == (6, 2)


@pytest.mark.parametrize("image", [True, False])
def test_neighbors_of_what_is_larger_than_memory(image, tmp_path, monkeypatch):
    # 20 independent features, in 100 values of different scale.
    mixing = np.random.RandomState(1).normal(size=(20, 100)) * np.geomspace(0.1, 1, 100)
    X = np.random.RandomState(0).normal(size=(300, 20)) @ mixing
    if image:
        X = X.reshape(-1, 10, 10)
    monkeypatch.setattr(neighbors, "N_COMPONENTS", 20)
    monkeypatch.setattr(neighbors, "N_OF_COMPONENTS", 100)
    file = samples_of(mapped_as_large(X, tmp_path, monkeypatch, 1000))
    assert comparable_rows(file).shape == (300, 20)
    found, plain = (find_neighbors(each, 5).table for each in (file, samples_of(X)))
    assert (found == plain).float().mean() > 0.97


def test_few_samples_that_are_larger_than_memory(tmp_path, monkeypatch):
    X = np.random.RandomState(0).normal(size=(30, 100))
    file = samples_of(mapped_as_large(X, tmp_path, monkeypatch, 1000))
    found, plain = (find_neighbors(each, 5).table for each in (file, samples_of(X)))
    assert torch.equal(found, plain)


def test_draws_are_neighbors_view_by_view():
    table = torch.stack([torch.arange(10), torch.arange(10).flip(0)], dim=1)
    indices = torch.tensor([3, 0, 7, 3])
    drawn = Neighbors(table).draw(indices, 50, torch.Generator().manual_seed(0))
    found = drawn.unflatten(0, (50, 4))
    for column, index in zip(found.T, indices, strict=True):
        assert set(column.tolist()) == set(table[index].tolist())


@pytest.mark.parametrize("make", [MiCEClustering, MoCo])
def test_all_that_is_trained_on_is_a_neighbor(make):
    X = np.random.RandomState(0).normal(size=(12, 4)).astype(np.float32)
    table = find_neighbors(samples_of(X), 3).table.numpy()
    plain = samples_of(X)[torch.arange(12)]
    seen = []

    def record(stack, generator):
        seen.append((stack[:, None] == plain).all(dim=2).int().argmax(dim=1))
        return stack

    parameters = {"n_clusters": 2, "init": "random"} if make is MiCEClustering else {}
    estimator = make(
        augmentation=record,
        n_neighbors=3,
        batch_size=12,
        max_epochs=3,
        random_state=0,
        **parameters,
    ).fit(X)
    n_views = estimator._model.n_views
    steps = [stack for stack in seen if len(stack) == 12 * n_views]
    assert len(steps) == 3
    for stack in steps:
        # The order of the batch is not known; a sample is what all its rows agree on.
        owners = [
            {i for i in range(12) if set(rows) <= set(table[i])}
            for rows in stack.view(n_views, 12).T.tolist()
        ]
        assert all(owners)


def test_clusters_without_an_augmentation():
    X, y = make_blobs(300, 20, centers=4, cluster_std=2.0, random_state=0)
    mice = MiCEClustering(
        4,
        augmentation=None,
        n_neighbors=10,
        batch_size=64,
        max_epochs=20,
        random_state=0,
    )
    assert clustering_accuracy_score(y, mice.fit_predict(X)) > 0.95
