"""What a clusterer says of samples, and what to doubt."""

import numpy as np
import pytest
from scipy.sparse import coo_array
from sklearn.cluster import AgglomerativeClustering, Birch, KMeans

from sk_mice import ClassificationEM, NeighborMixture, SphericalKMeans
from sk_mice.inspection import _reading


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


@pytest.mark.parametrize("kind", [bool, np.int8, np.int64, np.float16, object])
def test_any_type_of_vectors_has_directions(kind):
    X = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 1], [-100, 5, 0]]).astype(kind)
    rows = _reading._unit_rows(X)
    assert rows.dtype == np.float32
    expected = X.astype(float)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.allclose(rows, expected, atol=1e-6)


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


# ---------------------------------------------------------------------------- doubts


def reading(labels, confidence, n_clusters, second=-1, second_share=0.0):
    n = len(labels)
    return _reading.Reading(
        np.array(labels),
        np.broadcast_to(np.float64(confidence), n),
        np.broadcast_to(second, n),
        np.broadcast_to(second_share, n),
        np.arange(n),
        np.eye(n),
        n_clusters,
        _reading.OF_VIEWS,
        coo_array((n, n_clusters)),
    )


def test_nothing_to_doubt():
    assert _reading.doubts(reading([0] * 10 + [1] * 10, 1.0, 2)) == []


def test_doubts_are_sentences_about_clusters():
    labels = np.repeat([0, 1, 2, 3, 4], [400, 50, 50, 5, 40])
    confidence = np.where(labels == 2, 0.5, 1.0)
    second = np.select([labels == 1, labels == 4], [4, 1], -1)
    share = np.where(second >= 0, 0.3, 0)
    found = _reading.doubts(reading(labels, confidence, 6, second, share))
    assert [(doubt.sentence.split(":")[0], doubt.clusters) for doubt in found] == [
        ("Empty", [(5, "", "", None)]),
        ("Small", [(3, "5 images", "", None)]),
        ("Large", [(0, "400 images", "", None)]),
        ("Unsure", [(2, "50%", "", None)]),
        ("Shared members", [(1, "90 images", "between", 4)]),
    ]


def test_the_most_doubtful_clusters_come_first():
    labels = np.repeat(np.arange(4), 10)
    confidence = np.repeat([0.6, 0.9, 0.2, 0.5], 10)
    (doubt,) = _reading.doubts(reading(labels, confidence, 4))
    assert [chip.cluster for chip in doubt.clusters] == [2, 3, 0]
    labels = np.repeat(np.arange(12), [50, 60, *10 * [4]])
    (doubt,) = _reading.doubts(reading(labels, 1.0, 12))
    assert [chip.cluster for chip in doubt.clusters] == [1, 0]


def test_clusters_that_share_members_are_paired():
    labels, second = np.repeat(np.arange(4), 10), np.full(40, -1)
    second[0:3], second[10:15] = 1, 0  # more of 1 are near 0 than the other way round
    second[20:24] = 3
    second[3] = 2  # one image is not enough
    second[30:33] = 4  # which is empty
    empty, pairs = _reading.doubts(reading(labels, 1.0, 5, second, 0.2))
    assert empty.kind == "empty"
    assert pairs.clusters == [
        (1, "8 images", "between", 0),
        (2, "4 images", "between", 3),
    ]
    assert pairs.sentence.endswith(
        "at least 20% of the views are in the other cluster."
    )
    assert len(_reading.doubts(reading(labels, 1.0, 5, second, 0.19))) == 1


def test_a_cluster_of_one_image_has_no_agreement():
    labels = np.repeat([0, 1, 2], [20, 19, 1])
    shares = np.eye(3)[np.minimum(labels, 1)]
    args = shares, shares, np.eye(40)
    found = _reading.from_shares(labels, *args, _reading.OF_NEIGHBORS)
    assert [doubt.clusters for doubt in _reading.doubts(found)] == [
        [(2, "1 image", "", None)]
    ]
    assert (found.second[-1], found.second_share[-1]) == (1, 1)


def test_clusters_of_several_classes_are_doubted():
    labels = np.repeat([0, 1], 10)
    codes = np.array([0] * 7 + [-1] * 3 + [0] * 3 + [1] * 7)
    (doubt,) = _reading.doubts(reading(labels, 1.0, 2), codes=codes)
    assert doubt.sentence.startswith("Several classes: fewer than 80%")
    assert doubt.clusters == [(1, "70%", "other", None)]


def test_pairs_that_are_left_out_are_counted():
    pairs = np.array([[0, k] for k in range(1, 121)])
    (few,) = _reading.doubt_of_duplicates("images", pairs[:100])
    same = "101 images are nearly the same as another one at 16 x 16 pixels"
    assert few.sentence == f"{same}."
    (many,) = _reading.doubt_of_duplicates("images", pairs)
    assert many.sentence.endswith("at 16 x 16 pixels; the first 100 of 120 pairs.")
    assert few.pairs == many.pairs == pairs[:100].tolist()


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
