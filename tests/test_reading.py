"""What a clusterer says of samples, and what to doubt."""

import numpy as np
import pytest
from report_page import data_of
from scipy.sparse import csr_array
from sklearn.cluster import (
    DBSCAN,
    AffinityPropagation,
    AgglomerativeClustering,
    Birch,
    KMeans,
)
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sk_mice import ClassificationEM, NeighborMixture, SphericalKMeans
from sk_mice._engine.nearest import nearest_neighbors
from sk_mice.inspection import _reading, _report, write_report


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e200])
def test_values_beyond_float32_have_neighbours(scale):
    rng = np.random.default_rng(0)
    X = np.repeat(np.eye(3, 5), 20, axis=0) + 0.01 * rng.random((60, 5))
    kmeans = SphericalKMeans(3, random_state=0).fit(X)
    usual = _reading.read(kmeans, X)
    assert usual.confidence.tolist() == [1.0] * 60
    reading = _reading.read(kmeans, scale * X)
    assert np.allclose(reading.embeddings, usual.embeddings)
    assert np.array_equal(reading.confidence, usual.confidence)


def test_neighbours_are_searched_once_for_a_page(tmp_path, monkeypatch):
    X = np.random.default_rng(0).random((70, 5))
    kmeans = SphericalKMeans(3, random_state=0).fit(X)
    searched, pages = [], [tmp_path / "all.html", tmp_path / "some.html"]

    def counted(rows, n_neighbors):
        searched.append(len(rows))
        return nearest_neighbors(rows, n_neighbors)

    for module in (_reading, _report):
        monkeypatch.setattr(module, "nearest_neighbors", counted)
    write_report(kmeans, X, pages[0])
    assert searched == [70]
    directions = X / np.linalg.norm(X, axis=1, keepdims=True)
    expected, _ = nearest_neighbors(directions.astype(np.float32), 12)
    assert data_of(pages[0])["nearest"] == expected.tolist()
    monkeypatch.setattr(_report, "MOST_SHOWN", 30)
    write_report(kmeans, X, pages[1])
    assert searched == [70, 70, 30]  # those on the page


@pytest.mark.parametrize("kind", [bool, np.int8, np.int64, np.float16, object])
def test_any_type_of_vectors_has_directions(kind):
    X = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 1], [-100, 5, 0]]).astype(kind)
    rows = _reading._unit_rows(X)
    assert rows.dtype == np.float32
    expected = X.astype(float)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.allclose(rows, expected, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-200, 1, 1e200])
@pytest.mark.parametrize("kind", [bool, np.int8, np.float32, np.float64, object])
def test_any_type_of_vectors_has_distances(kind, scale):
    X = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 1], [-100, 5, 0]]).astype(kind)
    if np.dtype(kind).itemsize == 8:
        X = X * scale
    rows = _reading._in_range(X)
    assert rows.dtype == np.float32
    wide = X.astype(float)
    assert np.allclose(rows, (wide - wide.min(0)) / np.ptp(wide, axis=0).max())
    assert not _reading._in_range(X[:1]).any()


@pytest.mark.parametrize(
    "model",
    [
        ClassificationEM(3, random_state=0),
        NeighborMixture(3, max_epochs=1, random_state=0),
        SphericalKMeans(3, random_state=0),
        KMeans(3, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_next_number_of_clusters_is_not_that_of_vectors(model):
    X = np.repeat(np.eye(3, 5), 10, axis=0) + 0.01 * np.arange(150).reshape(30, 5)
    later = model.fit(X).set_params(n_clusters=5)
    reading = _reading.read(later, X)
    assert reading.n_clusters == 3
    assert (reading.sizes > 0).all()


@pytest.mark.parametrize("n_clusters", [None, AgglomerativeClustering(3)])
def test_a_clusterer_without_a_number_of_clusters_has_a_report(n_clusters):
    X = np.repeat(np.eye(3, 5), 10, axis=0)
    birch = Birch(n_clusters=n_clusters).fit(X)
    assert _reading.read(birch, X).n_clusters == 3


@pytest.mark.parametrize("eps", [0.1, 1e-9])
def test_what_a_clusterer_leaves_out_is_the_last_cluster(eps):
    X = np.repeat(np.eye(3, 5), 10, axis=0)
    X[-1], X[:2] = -1, [[-2, 1, 0, 0, 0], [0, 3, -1, 0, 0]]
    X += 1e-6 * np.arange(30)[:, None]
    dbscan = DBSCAN(eps=eps).fit(X)
    reading, left_out = _reading.read(dbscan, X), dbscan.labels_ == -1
    assert reading.noise == dbscan.labels_.max() + 1 == reading.n_clusters - 1
    assert (reading.labels[left_out] == reading.noise).all()
    assert np.array_equal(reading.labels[~left_out], dbscan.labels_[~left_out])
    assert reading.sizes.sum() == 30


def test_what_a_clusterer_leaves_out_of_sparse_rows_is_a_cluster():
    X = csr_array(np.repeat(np.eye(3), [10, 10, 3], axis=0))
    dbscan = DBSCAN(min_samples=5).fit(X)
    assert _reading.read(dbscan, X).sizes.tolist() == [10, 10, 3]
    with pytest.raises(ValueError, match=r"the 23 samples of `fit`.*got 20"):
        _reading.read(dbscan, X[:20])


def test_centres_may_be_sparse():
    X = csr_array(np.repeat(np.eye(3), [10, 10, 3], axis=0))
    found = AffinityPropagation(random_state=0).fit(X)
    assert np.array_equal(_reading.read(found, X).sizes, np.bincount(found.labels_))


@pytest.mark.parametrize(
    ("clusterer", "is_by_cosine"),
    [
        (DBSCAN(eps=2), False),
        (GaussianMixture(2, random_state=0), False),
        (make_pipeline(StandardScaler(), KMeans(2, random_state=0)), False),
        (DBSCAN(metric="cosine"), True),
        (ClassificationEM(2, random_state=0), True),
    ],
)
def test_neighbours_are_those_that_the_clusterer_finds_alike(clusterer, is_by_cosine):
    rows = np.arange(60)
    is_long, side = rows % 2, rows // 30
    X = np.array([[1, 0.9], [0.9, 1]])[side] * (1 + 8 * is_long + rows / 60)[:, None]
    reading = _reading.read(clusterer.fit(X), X)
    group = side if is_by_cosine else is_long
    assert (group[reading.nearest] == group[:, None]).all()
    expected = _reading.BY_COSINE if is_by_cosine else _reading.BY_DISTANCE
    assert reading.nearness == expected


@pytest.mark.parametrize("mixture", [GaussianMixture, BayesianGaussianMixture])
def test_a_gaussian_mixture_has_a_report(mixture, tmp_path):
    X = np.repeat(np.eye(3, 5), 10, axis=0) + 0.01 * np.arange(150).reshape(30, 5)
    pipeline = make_pipeline(StandardScaler(), mixture(n_components=3)).fit(X)
    write_report(pipeline, X, tmp_path / "report.html")
    assert data_of(tmp_path / "report.html")["labels"] == pipeline.predict(X).tolist()


def test_the_posterior_tells_second_clusters_with_equal_shares_apart():
    shares = np.array([[1.0, 0, 0], [0.6, 0.4, 0]])
    posterior = np.array([[0.5, 0.2, 0.3], [0.3, 0.1, 0.6]])
    second, share = _reading._second(shares, posterior, np.array([0, 0]))
    assert second.tolist() == [2, 1]
    assert share.tolist() == [0, 0.4]


def test_the_posterior_orders_samples_of_equal_confidence():
    shares = np.array([[1.0, 0.0], [1.0, 0.0], [0.5, 0.5], [1.0, 0.0]])
    posterior = np.array([[0.7, 0.3], [0.9, 0.1], [1.0, 0.0], [0.8, 0.2]])
    args = shares, posterior, np.eye(4), _reading.OF_VIEWS
    found = _reading.from_shares(np.zeros(4, np.int64), *args)
    assert found.order.tolist() == [1, 3, 0, 2]


def test_a_sample_that_never_leaves_its_cluster_has_no_second():
    shares = np.array([[0.0, 1.0, 0.0]])
    second, share = _reading._second(shares, shares, np.array([1]))
    assert second.tolist() == [-1]
    assert share.tolist() == [0]


def test_shares_in_merged_clusters_are_added():
    shares = np.array(
        [[0.5, 0.3, 0.2, 0], [0.2, 0.4, 0.4, 0], [0, 0, 1.0, 0], [0.1, 0.3, 0, 0.6]]
    )
    labels = np.array([0, 1, 2, 3])
    before = _reading.from_shares(labels, shares, shares, np.eye(4), _reading.OF_VIEWS)
    merged = _reading.merged(before, np.array([0, 0, 2, 1]))
    assert merged.labels.tolist() == [0, 0, 2, 1]
    assert np.allclose(merged.confidence, [0.8, 0.6, 1, 0.6])
    assert merged.second.tolist() == [2, 2, -1, 0]
    assert np.allclose(merged.second_share, [0.2, 0.4, 0, 0.4])
    same = _reading.merged(before, np.arange(4))
    for name in ("labels", "confidence", "second", "second_share", "order"):
        assert np.array_equal(getattr(same, name), getattr(before, name)), name
