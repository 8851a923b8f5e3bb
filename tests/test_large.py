"""Fits of X that counts as larger than memory, against those of X in memory."""

import numpy as np
import pytest
from shared import mapped_as_large
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from sk_mice import MiCEClustering, _start
from sk_mice._engine import inference
from sk_mice.datasets import load_digits


@pytest.fixture
def X(tmp_path, monkeypatch):
    """A file of 300 images of three digits, sorted, that counts as large."""
    X, y, _ = load_digits()
    few = np.sort(np.flatnonzero(y < 3)[:300])
    few = few[np.argsort(y[few], kind="stable")]
    return mapped_as_large(X[few], tmp_path, monkeypatch, 100 * X[0].nbytes)


def fitted(X, **parameters):
    parameters = {"max_epochs": 6, "batch_size": 64, "device": "cpu"} | parameters
    return MiCEClustering(3, random_state=0, **parameters).fit(X)


class Watched(KMeans):
    """KMeans that notes what it gets; not in its parameters, as it is cloned."""

    seen: list = []

    def fit_predict(self, X, y=None):
        self.seen.append(("fit_predict", len(X)))
        return super().fit(X).labels_

    def predict(self, X):
        self.seen.append(("predict", len(X)))
        return super().predict(X)


def test_partition_is_that_of_a_part_and_predictions(X, monkeypatch):
    Watched.seen.clear()
    monkeypatch.setattr(_start, "LARGEST_PART", 128 * 100)
    mice = fitted(X, init=Watched(n_init=3), backbone="mlp", image_shape=(8, 8))
    parts = {n for name, n in Watched.seen if name == "fit_predict"}
    n_predicted = sum(n for name, n in Watched.seen if name == "predict")
    assert len(parts) == 1
    assert max(parts) < 300
    assert n_predicted % 300 == 0
    assert np.array_equal(mice.labels_, mice.predict(X))


def test_clusters_are_found_in_a_sorted_file(tmp_path, monkeypatch):
    X, y = make_blobs(600, 10, centers=3, random_state=0)
    order = np.argsort(y, kind="stable")
    file = mapped_as_large(X[order], tmp_path, monkeypatch, 100 * X[0].nbytes)
    monkeypatch.setattr(_start, "LARGEST_PART", 256 * 150)  # 150 rows
    monkeypatch.setattr(inference, "LARGEST_BATCH", 100)
    for values in (file, X[order]):
        mice = fitted(values, max_epochs=20)
        for labels in (mice.init_labels_, mice.labels_):
            assert adjusted_rand_score(y[order], labels) > 0.95
