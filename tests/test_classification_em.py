"""Classification EM: the components, the partition it begins at, and its steps."""

import tracemalloc
import warnings

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from shared import recorded
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from sk_mice import ClassificationEM, _classification_em, _directions
from sk_mice._classification_em import (
    _assign,
    _best_of_runs,
    _criterion,
    _fitted,
    _unwhitened,
)
from sk_mice._directions import directions


# The checks have rows in a plane, or few of them.
@pytest.mark.filterwarnings("ignore:Empty clusters")
@parametrize_with_checks([ClassificationEM(3), ClassificationEM(3, center=True)])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


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


def components(x, n_clusters, **parameters):
    """Whitened components, and those at their own variance."""
    cem = ClassificationEM(n_clusters, **parameters)
    scales = cem._fit_components(x, np.random.RandomState(0))
    white = cem._whiten(x)
    return white, _unwhitened(white, cem.mean_, cem.components_, scales)


def fit_predict(x, n_clusters, **parameters):
    return ClassificationEM(n_clusters, random_state=0, **parameters).fit_predict(x)


# --------------------------------------------------------------------------- the whole


@pytest.mark.parametrize(
    ("sizes", "noise", "long", "whitened_is_right"),
    [
        ([300, 150, 75, 40, 20], 0.15, 0.0, False),
        ([400] + [25] * 9, 0.1, 0.0, False),
        ([100] * 5, 0.15, 1.0, True),
    ],
    ids=["of unlike size", "one large", "long"],
)
def test_the_better_partition_is_kept(sizes, noise, long, whitened_is_right):
    x, y = clusters(sizes, noise=noise, long=long)
    k = len(sizes)
    found = {}
    for is_white, rows in zip((True, False), components(x, k), strict=True):
        run = _best_of_runs(rows, k, 100, [slice(None)], np.random.RandomState(1))
        found[is_white] = adjusted_rand_score(y, run.labels)
    assert found[whitened_is_right] > 0.98
    assert found[not whitened_is_right] < 0.7
    assert adjusted_rand_score(y, fit_predict(x, k)) > 0.98


def test_proposals_compete_only_with_less_inertia(monkeypatch):
    x, y = clusters([300, 150, 75, 40, 20], noise=0.15)
    monkeypatch.setattr(_classification_em, "BETTER", 0)
    assert adjusted_rand_score(y, fit_predict(x, 5, n_init=20)) < 0.9


def test_labels_are_predictions_bit_for_bit():
    x, _ = clusters([3000, 1500, 1000], noise=0.5)  # in more than one block
    for dtype in (np.float32, np.float64):
        for center, max_iter in ((False, 1), (False, 3), (True, 3)):
            X = x.astype(dtype)
            cem = ClassificationEM(3, n_init=2, max_iter=max_iter, random_state=0)
            cem.set_params(center=center).fit(X)
            np.testing.assert_array_equal(cem.labels_, cem.predict(X))
            in_columns = np.asfortranarray(X)
            np.testing.assert_array_equal(cem.labels_, cem.predict(in_columns))
            assert cem.labels_.dtype == np.int64
            for name in ("means_", "covariance_", "weights_", "components_", "mean_"):
                assert getattr(cem, name).dtype == dtype, name


def test_predictions_are_those_of_gaussians_with_one_covariance():
    x, _ = clusters([300, 150, 75], noise=0.4)
    cem = ClassificationEM(3, n_init=5, random_state=0).fit(x.astype(np.float64))
    rows = x / np.linalg.norm(x, axis=1, keepdims=True)
    rows = (rows - cem.mean_) @ cem.components_.T
    joint = [
        np.log(share) + multivariate_normal(mean, cem.covariance_).logpdf(rows)
        for share, mean in zip(cem.weights_, cem.means_, strict=True)
    ]
    np.testing.assert_array_equal(cem.predict(x), np.argmax(joint, axis=0))
    shares = np.exp(joint - logsumexp(joint, axis=0)).T
    np.testing.assert_allclose(cem.predict_proba(x), shares, atol=1e-5)
    assert cem.weights_.sum() == pytest.approx(1)


def test_the_same_seed_gives_the_same_clusters_and_refits_alike():
    x, _ = clusters([60, 60, 60], noise=0.4)
    cem = ClassificationEM(3, n_init=5, random_state=0)
    first = cem.fit(x).labels_
    np.testing.assert_array_equal(clone(cem).fit(x).labels_, first)
    np.testing.assert_array_equal(cem.fit(x).labels_, first)


def test_centred_directions_do_not_depend_on_the_origin():
    x, y = clusters([100] * 4, noise=0.15)
    x = x.astype(np.float64) - x.mean(axis=0)
    x *= np.exp(np.random.default_rng(1).standard_normal((len(x), 1)))
    far = x + 5  # nearly parallel, as positive features are
    assert adjusted_rand_score(y, fit_predict(far, 4)) < 0.9
    cem = ClassificationEM(4, center=True, random_state=0).fit(far)
    assert adjusted_rand_score(y, cem.labels_) > 0.99
    elsewhere = fit_predict(3 * x - 1, 4, center=True)
    assert adjusted_rand_score(elsewhere, cem.labels_) > 0.99
    # What whitens is what the attributes say.
    rows = (far - cem.origin_) @ cem.axes_.T
    assert rows.shape == (400, 24)  # all features, being fewer than 64
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    white = (rows - cem.mean_) @ cem.components_.T
    np.testing.assert_allclose(white, cem._rows(far), atol=1e-9)


@pytest.mark.parametrize(
    ("n_clusters", "n_components", "n_axes"),
    [(4, "auto", 64), (4, 5, 64), (30, "auto", 90), (4, 70, 70), (4, 500, 100)],
)
def test_number_of_axes_of_centred_rows(n_clusters, n_components, n_axes):
    x = np.random.default_rng(0).standard_normal((120, 100))
    cem = ClassificationEM(n_clusters, center=True, n_components=n_components, n_init=2)
    assert cem.fit(x).axes_.shape == (n_axes, 100)


def test_a_fit_without_centre_leaves_no_axes():
    x, _ = clusters([60, 60], noise=0.3)
    cem = ClassificationEM(2, center=True, random_state=0).fit(x)
    labels = cem.set_params(center=False).predict(x)  # still that of the fit
    np.testing.assert_array_equal(labels, cem.labels_)
    np.testing.assert_array_equal(cem.fit(x).labels_, fit_predict(x, 2))
    assert not hasattr(cem, "axes_")
    assert not hasattr(cem, "origin_")


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_only_directions_matter(scale):
    x = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)
    lengths = np.linspace(0.5, 2, 50, dtype=np.float32)[:, None]
    found, _ = components(x * lengths * np.float32(scale), 2)
    np.testing.assert_allclose(found, components(x, 2)[0], atol=1e-4)
    centred = ClassificationEM(2, center=True, random_state=0)
    labels = centred.fit_predict(x * np.float32(scale))
    assert adjusted_rand_score(labels, clone(centred).fit_predict(x)) > 0.9


def test_a_large_set_is_clustered_as_a_small_one(monkeypatch):
    X, y = make_blobs(600, 8, centers=5, cluster_std=0.5, random_state=0)
    assert adjusted_rand_score(y, fit_predict(X, 5, n_init=20)) == 1
    monkeypatch.setattr(_classification_em, "ROWS_OF_RUN", 150)
    assert adjusted_rand_score(y, fit_predict(X, 5, n_init=20)) == 1


def test_a_large_set_with_clusters_of_unlike_size(monkeypatch):
    x, y = clusters([300, 150, 75, 40, 20], noise=0.15)
    monkeypatch.setattr(_classification_em, "ROWS_OF_RUN", 400)
    assert adjusted_rand_score(y, fit_predict(x, 5, n_init=50)) > 0.95


@pytest.mark.parametrize(
    ("n_init", "expected"),
    [
        (1, [1, 1]),
        (7, [2, 2, 1, 1, 1, 5, 2]),
        ("auto", [1, 1, 1, 1, 1, 5, 2]),  # as many for each draw
    ],
)
def test_a_large_set_has_as_many_runs_as_asked_for(n_init, expected, monkeypatch):
    monkeypatch.setattr(_classification_em, "ROWS_OF_RUN", 150)
    monkeypatch.setattr(_classification_em, "MOST_RUNS", 7)  # of "auto"

    def number(rows, n_clusters, n, random_state):
        return n

    n_runs = recorded(monkeypatch, _classification_em, "_kmeans", number)
    x, _ = clusters([100] * 3, noise=0.1)
    fit_predict(x, 3, n_init=n_init)
    assert n_runs == expected


# ------------------------------------------------------------------------ odd sets


@pytest.mark.filterwarnings("ignore:Empty clusters")
def test_rows_that_are_all_alike():
    for shape in ((5, 4), (2, 128), (7, 1), (2, 2)):
        for value in (0, 1, 0.3):
            for dtype in (np.float32, np.float64):
                x = np.full(shape, value, dtype=dtype)
                cem = ClassificationEM(2).fit(x)
                assert len(set(cem.labels_)) == 1
                assert cem.components_.shape == (1, shape[1])
                cem.set_params(center=True).fit(x)
                assert len(set(cem.labels_)) == 1
                assert cem.axes_.shape == (1, shape[1])


@pytest.mark.filterwarnings("ignore:Empty clusters")
@pytest.mark.parametrize("center", [False, True])
def test_rows_that_are_alike_whatever_their_mean_rounds_to(center):
    for row in np.random.default_rng(0).normal(size=(30, 3)):
        cem = ClassificationEM(2, center=center).fit(np.tile(row, (100, 1)))
        assert len(set(cem.labels_)) == 1


def test_one_cluster_and_as_many_as_rows():
    x, _ = clusters([7, 6], noise=0.3)
    assert set(fit_predict(x, 1)) == {0}
    assert sorted(fit_predict(x, len(x))) == list(range(len(x)))
    assert set(fit_predict(x[:1], 1)) == {0}
    assert set(fit_predict(x[:1], 1, center=True)) == {0}
    # Of rows that are repeated there may be fewer clusters, never more.
    twice = np.repeat(x, 2, axis=0)
    for k in (13, 20, 26):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            labels = fit_predict(twice, k)
        n_empty = k - len(set(labels))
        said = [f"Empty clusters: {n_empty} of {k}"] if n_empty else []
        assert [str(w.message).partition(".")[0] for w in caught] == said
        assert {w.category for w in caught} <= {ConvergenceWarning}
        assert 1 < len(set(labels)) <= 13
        np.testing.assert_array_equal(labels[::2], labels[1::2])


def test_zero_rows_are_clustered_without_a_warning():
    x, _ = clusters([20, 20], noise=0.1)
    x[3] = x[21] = 0
    assert set(fit_predict(x, 2)) <= {0, 1}


def test_opposite_rows():
    x = np.repeat([[1.0, 0.0], [-1.0, 0.0]], 10, axis=0).astype(np.float32)
    assert adjusted_rand_score(np.repeat([0, 1], 10), fit_predict(x, 2)) == 1
    assert set(fit_predict(x, 1)) == {0}


# ------------------------------------------------------------------------- components


def test_whitened_components_have_equal_variance_and_no_noise():
    rng = np.random.default_rng(0)
    scales = np.array([100.0, 10.0, 5.0, 1e-3])
    x = rng.standard_normal((500, 4)) * scales
    x[:, 3] += 10_000  # which makes directions nearly what the first three are
    rotation, _ = np.linalg.qr(rng.standard_normal((4, 4)))
    rows, _ = components((x @ rotation).astype(np.float32), 5)
    # The first alone holds 98.8 percent of the variance, the first two 99.8.
    assert rows.shape == (500, 2)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.cov(rows.T), np.eye(2), atol=0.01)
    noise = rng.standard_normal((500, 64))
    assert components(noise, 3)[0].shape == (500, 9)
    assert components(noise, 3, n_components=5)[0].shape == (500, 5)
    assert components(noise[:20], 3, n_components=64)[0].shape == (20, 19)


@pytest.mark.parametrize(("n", "n_components"), [(60, 8), (6, 5)])
def test_plain_components_keep_the_angles_between_rows(n, n_components, monkeypatch):
    monkeypatch.setattr(_classification_em, "VARIANCE", 1 - 1e-12)
    x = np.random.default_rng(0).random((n, 8))  # far from the origin
    _, plain = components(x, 3)
    assert plain.shape == (n, n_components + 1)
    u = directions(x)
    np.testing.assert_allclose(plain @ plain.T, u @ u.T, atol=1e-9)


def test_many_features_are_projected_as_few(monkeypatch):
    x, _ = clusters([100] * 4, noise=0.3)
    expected = fit_predict(x, 4, n_init=10)
    monkeypatch.setattr(_directions, "EXACT_FEATURES", 8)
    found = fit_predict(x, 4, n_init=10)
    assert adjusted_rand_score(expected, found) > 0.98


# --------------------------------------------------------------------------- restarts


def test_number_of_runs_follows_the_cost():
    def n_runs(n, n_clusters, n_components, n_init="auto"):
        # Without memory, however large.
        rows = np.broadcast_to(np.float32(0), (n, n_components))
        return ClassificationEM(n_clusters, n_init=n_init)._n_runs(rows)

    assert n_runs(1797, 10, 30) == n_runs(20_000, 10, 30) == 100
    assert n_runs(300, 10, 30) == 60
    assert n_runs(20, 2, 6) == 4
    assert n_runs(4096, 1000, 87) == 7
    assert n_runs(1, 1, 1) == n_runs(20_000, 1000, 128) == 2
    assert n_runs(20_000, 1000, 128, n_init=50) == 50


@pytest.mark.parametrize("good", [0, 1, 2])
def test_the_draw_that_serves_all_rows_best_is_kept(good):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 50)
    rows = np.repeat(np.eye(4), 50, axis=0) + 0.05 * rng.standard_normal((200, 4))
    # What two of them know has no row of three clusters.
    draws = [np.arange(50)] * 3
    draws[good] = np.arange(0, 200, 4)
    run = _best_of_runs(rows, 4, 30, draws, np.random.RandomState(0))
    assert adjusted_rand_score(y, run.labels) == 1


# ------------------------------------------------------------------------------ steps


def test_criterion_is_that_of_gaussians_with_one_covariance():
    x, y = clusters([9000, 3000, 1000], noise=0.1)
    rows, _ = components(x, 3)
    drawn = np.random.default_rng(0).integers(3, size=len(y))

    def minus_twice_log_likelihood(labels):
        shares = np.bincount(labels) / len(labels)
        means = np.stack([rows[labels == k].mean(axis=0) for k in range(3)])
        deviations = rows - means[labels]
        covariance = deviations.T @ deviations / len(rows)
        densities = multivariate_normal(cov=covariance).logpdf(deviations)
        return -2 * (densities + np.log(shares[labels])).mean()

    expected = minus_twice_log_likelihood(drawn) - minus_twice_log_likelihood(y)
    found = _criterion(rows, drawn) - _criterion(rows, y)
    assert expected > 3
    assert found == pytest.approx(expected, rel=0.05)  # but for a ridge


def test_what_the_covariance_of_few_rows_has_in_addition():
    rows = np.random.RandomState(0).normal(size=(6, 3))
    _, covariance, _ = _fitted(rows, np.zeros(6, int), 1)
    expected = np.cov(rows.T, bias=True) + 3 / (6 + 3) * np.eye(3)
    np.testing.assert_allclose(covariance, expected)


def test_steps_make_rows_likelier_and_find_the_clusters():
    x, y = clusters([200] * 5, noise=0.15, long=1.0)
    rows, _ = components(x, 5)
    mixed = np.random.default_rng(1).random(len(y)) < 0.5
    labels = np.where(mixed, np.random.default_rng(2).integers(5, size=len(y)), y)
    start = labels
    values = [_criterion(rows, labels)]
    for _ in range(3):
        labels = _assign(rows, *_fitted(rows, labels, 5))
        values.append(_criterion(rows, labels))
    assert (np.diff(values) <= 1e-6).all()
    assert adjusted_rand_score(y, labels) > 0.98
    cem = ClassificationEM(5)
    cem._climb(rows, start)
    np.testing.assert_array_equal(cem.labels_, labels)
    assert cem.n_iter_ <= 3


def test_steps_end_where_nothing_changes_and_before_a_cluster_is_empty():
    rng = np.random.default_rng(0)
    ends = set()
    for _ in range(100):
        rows = rng.standard_normal((12, 2))
        labels = np.arange(12) % 4
        one = ClassificationEM(4, max_iter=1)
        one._climb(rows, labels)
        cem = ClassificationEM(4, max_iter=50)
        cem._climb(rows, labels)
        n_first, n_last = len(set(one.labels_)), len(set(cem.labels_))
        assert n_last >= n_first
        parameters = _fitted(rows, cem.labels_, 4)
        n_next = len(np.unique(_assign(rows, *parameters)))
        settled = np.array_equal(_assign(rows, *parameters), cem.labels_)
        assert settled or n_next < n_last
        ends.add(settled)
    assert ends == {True, False}


def test_an_empty_cluster_gets_no_row():
    rows = np.random.default_rng(0).standard_normal((20, 3))
    parameters = _fitted(rows, np.arange(20) % 2 * 2, 4)
    assert list(parameters[2]) == [0.5, 0, 0.5, 0]
    assert set(_assign(rows, *parameters)) <= {0, 2}


@pytest.mark.parametrize("center", [False, True])
def test_a_fit_takes_one_copy_of_the_rows(center):
    X = np.random.default_rng(0).random((20_000, 256), np.float32)
    tracemalloc.start()
    try:
        ClassificationEM(2, n_components=2, n_init=1, center=center).fit(X)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.8 * X.nbytes


def test_bad_input_is_refused_in_a_sentence():
    X = np.random.default_rng(0).random((12, 6))
    for parameters, rows, error, message in [
        ({"n_clusters": 13}, X, ValueError, "n_clusters=13 and n_samples=12"),
        ({"n_clusters": 0}, X, ValueError, "'n_clusters' parameter"),
        ({"n_init": 0}, X, ValueError, "'n_init' parameter"),
        ({"n_init": True}, X, ValueError, "'n_init' parameter"),
        ({"n_components": "all"}, X, ValueError, "'n_components' parameter"),
        ({"max_iter": 0}, X, ValueError, "'max_iter' parameter"),
        ({"center": "yes"}, X, ValueError, "'center' parameter"),
        ({}, X * np.nan, ValueError, "Input X contains NaN"),
        ({}, X + np.inf, ValueError, "Input X contains infinity"),
        ({}, X.reshape(12, 2, 3), ValueError, r"vectors.* got \(12, 2, 3\)"),
        ({}, np.full((9, 5), 10**400), ValueError, "must hold numbers that fit into"),
        ({}, X.astype("M8[D]"), TypeError, "X must hold numbers, not dates"),
        ({}, np.ma.masked_greater(X, 0.9), ValueError, "X must have all its values"),
    ]:
        with pytest.raises(error, match=message):
            ClassificationEM(**({"n_clusters": 2} | parameters)).fit(rows)
