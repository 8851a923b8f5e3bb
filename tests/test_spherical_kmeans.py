"""SphericalKMeans as its users meet it."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from shared import same_generators
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, normalize
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_limits

from sk_mice import SphericalKMeans
from sk_mice._assignment import Assignment
from sk_mice._cosine_kmeans import (
    UnitRows,
    distinct_rows,
    first_centers,
)

both_dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])
dense_and_sparse = pytest.mark.parametrize("as_given", [np.asarray, sparse.csr_array])
both_starts = pytest.mark.parametrize("init", ["k-means++", "random"])


def directions(n_samples, n_features, n_clusters, noise=0.7, seed=0):
    """Rows of many norms around K directions, and the cluster of each."""
    rng = np.random.default_rng(seed)
    centers = normalize(rng.standard_normal((n_clusters, n_features)))
    labels = rng.integers(n_clusters, size=n_samples)
    X = rng.standard_normal((n_samples, n_features)) * noise / np.sqrt(n_features)
    return (X + centers[labels]) * rng.lognormal(size=(n_samples, 1)), labels


def sparse_rows(n_samples=80, n_features=30, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_samples, n_features))
    X[rng.uniform(size=X.shape) < 0.8] = 0
    X[:, 0] = 0.1  # no zero rows
    return sparse.csr_array(X.astype(dtype))


def one_iteration(X, centers, weight=None):
    """The textbook's two steps, as in equation 13 of the paper."""
    V = normalize(X)
    weight = np.ones(len(V)) if weight is None else weight
    labels = (V @ centers.T).argmax(axis=1)
    new = centers.copy()
    for k in range(len(centers)):
        if (labels == k).any():
            mu = weight[labels == k] @ V[labels == k]
            new[k] = mu / np.linalg.norm(mu)
    return new


def inertia(X, centers, weight=None):
    costs = 1 - (normalize(X) @ normalize(centers).T).max(axis=1)
    return costs.sum() if weight is None else costs @ weight


# --- scikit-learn's checks -------------------------------------------------------


# Some checks have fewer distinct rows than clusters, and some have zero rows.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.* rows of X are zero:UserWarning")
@parametrize_with_checks([SphericalKMeans(), SphericalKMeans(3, init="random")])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# --- the algorithm ---------------------------------------------------------------


@both_dtypes
def test_one_iteration_is_equation_13(dtype):
    """Theorem 4: the expert prototypes' update is this iteration."""
    X, _ = directions(300, 12, 5)
    X = X.astype(dtype)
    weight = np.random.default_rng(1).uniform(0.1, 3, size=300)
    start = normalize(X[:5])
    model = SphericalKMeans(5, init=start, max_iter=1).fit(X, sample_weight=weight)
    expected = one_iteration(X, start, weight)
    np.testing.assert_allclose(model.cluster_centers_, expected, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 9), st.integers(0, 10**6), st.booleans())
def test_objective_never_rises(n_clusters, seed, weighted):
    X, _ = directions(60, 4, 3, noise=2, seed=seed)
    rng = np.random.default_rng(seed)
    weight = rng.uniform(0, 2, size=60) if weighted else None
    start = rng.standard_normal((n_clusters, 4))
    objective = inertia(X, start, weight)
    for max_iter in range(1, 8):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = SphericalKMeans(n_clusters, init=start, max_iter=max_iter, tol=0)
            model.fit(X, sample_weight=weight)
        expected = inertia(X, model.cluster_centers_, weight)
        assert model.inertia_ == pytest.approx(expected, abs=1e-9)
        assert model.inertia_ <= objective + 1e-9
        objective = model.inertia_


@both_dtypes
def test_solution_is_a_fixed_point_with_unit_norm_centers(dtype):
    X, _ = directions(2000, 16, 10)
    X = X.astype(dtype)
    model = SphericalKMeans(10, tol=0, random_state=0).fit(X)
    centers = model.cluster_centers_
    assert centers.dtype == dtype
    assert model.n_iter_ < model.max_iter
    np.testing.assert_allclose(np.linalg.norm(centers, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(one_iteration(X, centers), centers, atol=1e-5)
    np.testing.assert_array_equal(model.labels_, model.predict(X))
    assert model.inertia_ == pytest.approx(inertia(X, centers), rel=1e-5)


def test_finds_directions_that_euclidean_k_means_does_not():
    X, y = directions(500, 8, 4, noise=0.4)
    X *= np.random.default_rng(0).lognormal(sigma=2, size=(500, 1))
    labels = SphericalKMeans(4, random_state=0).fit_predict(X)
    assert adjusted_rand_score(y, labels) > 0.95
    assert adjusted_rand_score(y, KMeans(4, random_state=0).fit_predict(X)) < 0.5


def test_row_scaling_changes_nothing():
    X, _ = directions(200, 6, 4)
    powers = 2.0 ** np.random.default_rng(0).integers(-9, 9, size=(200, 1))
    model = SphericalKMeans(4, init=X[:4]).fit(X)
    scaled = clone(model).fit(X * powers)
    np.testing.assert_array_equal(model.labels_, scaled.labels_)
    np.testing.assert_allclose(model.cluster_centers_, scaled.cluster_centers_)
    np.testing.assert_allclose(model.transform(X), scaled.transform(X * powers))


@dense_and_sparse
@both_dtypes
def test_rows_whose_squares_over_or_underflow(as_given, dtype):
    X, _ = directions(40, 3, 2, noise=0.3)
    huge = np.finfo(dtype).max / 1e3
    extreme = X.copy()
    extreme[::3] *= huge / abs(extreme[::3]).max()
    extreme[1::3] /= huge / abs(extreme[1::3]).max()
    extreme[2::3] *= np.sqrt(np.finfo(dtype).tiny) / 100  # squares lose digits
    X, extreme = X.astype(dtype), as_given(extreme.astype(dtype))
    usual = SphericalKMeans(2, init=np.eye(3)[:2]).fit(X)
    model = clone(usual).fit(extreme)
    np.testing.assert_array_equal(model.labels_, usual.labels_)
    distances = model.transform(extreme)
    np.testing.assert_allclose(distances, usual.transform(X), atol=1e-5)


def test_skipping_rows_changes_nothing():
    X, _ = directions(3000, 8, 6, noise=0.5)
    rows = UnitRows(X)
    assignment = Assignment(rows)
    rng = np.random.default_rng(0)
    centers = normalize(X[:6])
    skipped = 0
    for _ in range(40):
        labels = assignment.update(centers)
        if assignment.nearest is not None:
            active = assignment.nearest >= assignment.others
            skipped += np.count_nonzero(~active)
        np.testing.assert_array_equal(labels, rows.nearest(centers)[0])
        # All centres go on moving a little.
        step = 1e-5 * rng.standard_normal(centers.shape)
        centers = normalize(one_iteration(X, centers) + step)
    assert skipped > 10_000


def test_centers_that_stopped_take_no_products():
    X, _ = directions(3000, 8, 6, noise=0.5)
    rows = UnitRows(X)
    assignment = Assignment(rows)
    assignment._open_share = lambda *args: 1  # no bounds
    rng = np.random.default_rng(0)
    centers = normalize(X[:300])
    calls = []
    original = rows.nearest
    rows.nearest = lambda *args: calls.append(args) or original(*args)
    for n_moved in [300, 300, 200, 40, 0, 1, 224, 225, 3]:
        centers = centers.copy()
        step = rng.standard_normal((n_moved, 8))
        if n_moved:
            centers[:n_moved] = normalize(centers[:n_moved] + 0.2 * step)
        calls.clear()
        before, labels = assignment.labels, assignment.update(centers)
        np.testing.assert_array_equal(labels, original(centers)[0])
        np.testing.assert_allclose(assignment.cosines, original(centers)[1])
        assert assignment.complete == (n_moved > 224)
        sizes = [len(found) for found, *_ in calls[:1]]
        assert sizes == ([] if n_moved == 0 else [n_moved if n_moved < 225 else 300])
        # Then all products for rows whose own centre has moved away.
        for _, again in calls[1:]:
            assert (before[again] < n_moved).all()


def test_bounds_hold_when_centers_jump():
    X, _ = directions(500, 5, 3)
    rows = UnitRows(X)
    assignment = Assignment(rows)
    rng = np.random.default_rng(0)
    centers = normalize(X[:7])
    for step in [0, 0, 0, 0, 1e-3, 0.3, 0, 0, 0, 2, 1e-6, 0, 0, 0.01, 0]:
        centers = normalize(centers + step * rng.standard_normal(centers.shape))
        before = assignment.labels, assignment.labels.copy()
        labels = assignment.update(centers)
        np.testing.assert_array_equal(labels, rows.nearest(centers)[0])
        np.testing.assert_array_equal(*before)  # what was returned is not written to


def test_bounds_hold_when_all_centers_turn_alike_and_one_jumps():
    def on_circle(angles):
        return np.stack((np.cos(angles), np.sin(angles)), axis=1)

    rows = UnitRows(on_circle(np.linspace(0, 2 * np.pi, 5000)))
    assignment = Assignment(rows)
    angles, has_bounds = np.array([0.3, 1.9]), []
    for turn in [*[(0.005, 0.005)] * 30, (0, 2)]:
        angles = angles + turn
        centers = on_circle(angles)
        labels = assignment.update(centers)
        np.testing.assert_array_equal(labels, rows.nearest(centers)[0])
        has_bounds.append(assignment.nearest is not None)
    assert has_bounds[-2:] == [True, False]


@pytest.mark.parametrize("n_clusters", [2, 128, 129])  # by either kind of argmax
@both_dtypes
def test_the_first_of_equally_near_centers(n_clusters, dtype):
    rng = np.random.default_rng(0)
    X = rng.integers(-1, 2, (500, 4)).astype(dtype)
    centers = rng.integers(-1, 2, (n_clusters, 4)).astype(float)
    products = X @ centers.T  # exact, and many of them are equal
    labels, cosines, seconds = UnitRows(X).nearest(centers, runner_up=True)
    np.testing.assert_array_equal(labels, products.argmax(axis=1))
    assert cosines.dtype == seconds.dtype == dtype
    products /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1)
    products = np.sort(products)
    np.testing.assert_allclose(cosines, products[:, -1], rtol=1e-6)
    np.testing.assert_allclose(seconds, products[:, -2], rtol=1e-6)


@pytest.mark.parametrize("n_clusters", [3, 300])
def test_threads_and_blocks_change_nothing_but_rounding(n_clusters):
    X, _ = directions(20_000, 12, 3, noise=0.3)
    model = SphericalKMeans(n_clusters, init=X[:n_clusters], max_iter=5)
    many = clone(model).fit(X)
    with threadpool_limits(1):
        one = clone(model).fit(X)
    assert one.inertia_ == pytest.approx(many.inertia_, rel=1e-6)
    np.testing.assert_allclose(one.cluster_centers_, many.cluster_centers_, atol=1e-9)


def test_labels_are_int64():
    model = SphericalKMeans(2, random_state=0)
    for fit in model.fit, model.partial_fit:
        assert fit(np.eye(3)).labels_.dtype == np.int64
    assert model.predict(np.eye(3)).dtype == np.int64


# --- sample weights --------------------------------------------------------------


@both_starts
@dense_and_sparse
@both_dtypes
def test_weights_are_repetitions_in_any_order(init, as_given, dtype):
    X, _ = directions(70, 9, 4, noise=1)
    X = X.astype(dtype)
    rng = np.random.default_rng(0)
    weight = rng.integers(0, 4, size=70)
    order = rng.permutation(weight.sum())
    repeated = np.repeat(X, weight, axis=0)[order]
    model = SphericalKMeans(6, init=init, random_state=3)
    weighted = clone(model).fit(as_given(X), sample_weight=weight)
    repeated = clone(model).fit(as_given(repeated))
    np.testing.assert_allclose(
        weighted.cluster_centers_, repeated.cluster_centers_, atol=1e-5
    )
    assert weighted.inertia_ == pytest.approx(repeated.inertia_, rel=1e-5)
    np.testing.assert_array_equal(weighted.predict(X), repeated.predict(X))


@both_starts
@pytest.mark.parametrize("scale", [1e-100, 1e-50, 1e37, 1e39, 1e100])
def test_the_scale_of_weights_changes_nothing(init, scale):
    X, _ = directions(300, 9, 4, noise=1)
    weight = np.random.default_rng(0).uniform(size=300)
    model = SphericalKMeans(4, init=init, n_init=2, random_state=0)
    for rows in (X.astype(np.float32), sparse.csr_array(X.astype(np.float32)), X):
        plain = clone(model).fit(rows, sample_weight=weight)
        scaled = clone(model).fit(rows, sample_weight=scale * weight)
        np.testing.assert_array_equal(scaled.labels_, plain.labels_)
        assert scaled.inertia_ / scale == pytest.approx(plain.inertia_)


def test_score_is_minus_the_weighted_inertia():
    X, _ = directions(100, 5, 3)
    weight = np.random.default_rng(0).uniform(size=100)
    model = SphericalKMeans(3, random_state=0).fit(X, sample_weight=weight)
    assert model.score(X, sample_weight=weight) == pytest.approx(-model.inertia_)
    assert model.score(X) == pytest.approx(-inertia(X, model.cluster_centers_))


def test_fit_predict_and_fit_transform_are_fit_and_predict_or_transform():
    X, _ = directions(100, 5, 3)
    weight = np.random.default_rng(0).uniform(size=100)
    model = SphericalKMeans(3, random_state=0).fit(X, sample_weight=weight)
    labels = clone(model).fit_predict(X, sample_weight=weight)
    np.testing.assert_array_equal(labels, model.predict(X))
    distances = clone(model).fit_transform(X, sample_weight=weight)
    np.testing.assert_array_equal(distances, model.transform(X))


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1, -1, 1, 1], "`sample_weight` must not be negative; got -1"),
        ([0, 0, 0, 0], "`sample_weight` must have a positive entry"),
        ([None] * 4, "sample_weight contains NaN"),
        ([""] * 4, "`sample_weight` must hold numbers; got <U1"),
        ([1, 1, 1, 1e150], r"largest `sample_weight` must be .* to 1e\+140.*1e\+150"),
        ([1, 1], "shape"),
    ],
)
@pytest.mark.parametrize("method", ["fit", "partial_fit", "fit_predict", "score"])
def test_wrong_weights(weight, message, method):
    model = SphericalKMeans(2).fit(np.eye(4))
    with pytest.raises(ValueError, match=message):
        getattr(model, method)(np.eye(4), sample_weight=weight)


# --- dense and sparse ------------------------------------------------------------


@pytest.mark.parametrize("init", ["k-means++", "random", "array", "callable"])
@both_dtypes
@pytest.mark.parametrize("container", [sparse.csr_array, sparse.csr_matrix])
def test_sparse_equals_dense(init, dtype, container):
    X = container(sparse_rows(dtype=dtype))
    dense = X.toarray()
    choices = {
        "array": dense[:5],
        "callable": lambda X, n_clusters, random_state: X[-n_clusters:],
    }
    model = SphericalKMeans(5, init=choices.get(init, init), n_init=2, random_state=0)
    on_sparse, on_dense = clone(model).fit(X), clone(model).fit(dense)
    np.testing.assert_array_equal(on_sparse.labels_, on_dense.labels_)
    assert on_sparse.n_iter_ == on_dense.n_iter_
    assert on_sparse.cluster_centers_.dtype == dtype
    np.testing.assert_allclose(
        on_sparse.cluster_centers_, on_dense.cluster_centers_, atol=1e-5
    )
    np.testing.assert_allclose(
        on_sparse.transform(X), on_dense.transform(dense), atol=1e-5
    )
    np.testing.assert_array_equal(on_sparse.predict(dense), on_sparse.predict(X))
    assert on_sparse.score(X) == pytest.approx(on_sparse.score(dense), rel=1e-5)
    in_batches, expected = (
        clone(model).partial_fit(rows[:40]).partial_fit(rows[40:])
        for rows in (X, dense)
    )
    np.testing.assert_allclose(
        in_batches.cluster_centers_, expected.cluster_centers_, atol=1e-5
    )


def test_sparse_formats_and_long_indices():
    X = sparse_rows()
    expected = SphericalKMeans(4, random_state=0).fit_predict(X)
    wide = X.copy()
    wide.indices = wide.indices.astype(np.int64)
    wide.indptr = wide.indptr.astype(np.int64)
    for other in [X.tocsc(), X.tocoo(), wide]:
        labels = SphericalKMeans(4, random_state=0).fit_predict(other)
        np.testing.assert_array_equal(labels, expected)


def test_entries_that_are_stored_twice_are_added_up():
    X = sparse_rows()
    twice = sparse.csr_array(
        (np.repeat(X.data / 2, 2), np.repeat(X.indices, 2), 2 * X.indptr), X.shape
    )
    known, other = (SphericalKMeans(3, random_state=0).fit(rows) for rows in (X, twice))
    assert other.inertia_ == pytest.approx(known.inertia_)
    assert np.array_equal(other.labels_, known.labels_)
    assert other.transform(twice) == pytest.approx(known.transform(X))
    assert twice.nnz == 2 * X.nnz  # X is left as it is


def test_sparse_is_not_densified():
    rng = np.random.default_rng(0)
    rows, columns = np.repeat(np.arange(3000), 10), rng.integers(2**20, size=30_000)
    shape = (3000, 2**20)  # dense, 25 GB
    X = sparse.csr_array((rng.random(30_000), (rows, columns)), shape)
    model = SphericalKMeans(2, max_iter=2, random_state=0).fit(X)
    assert model.cluster_centers_.shape == (2, 2**20)


@dense_and_sparse
def test_sums_of_many_rows_keep_their_digits(as_given):
    X = as_given(np.full((2**17, 2), [0.9, 0.1], np.float32))
    centers = SphericalKMeans(1, random_state=0).fit(X).cluster_centers_
    np.testing.assert_allclose(centers, normalize([[0.9, 0.1]]), rtol=1e-4)


@pytest.mark.parametrize("copy_x", [True, False])
@pytest.mark.parametrize("as_given", [np.array, sparse.csr_array])
def test_data_are_not_written_to(copy_x, as_given):
    X, _ = directions(50, 4, 3)
    X[3] *= 1e300
    given = as_given(X)
    model = SphericalKMeans(3, copy_x=copy_x, random_state=0).fit(given)
    model.partial_fit(given).transform(given)
    after = given.toarray() if sparse.issparse(given) else given
    np.testing.assert_array_equal(after, X)


# --- degenerate data -------------------------------------------------------------


@dense_and_sparse
def test_zero_rows_cost_one_and_warn_once(as_given):
    X, _ = directions(60, 5, 3)
    X[1] *= 1e-200  # its square is zero, too
    model = SphericalKMeans(3, random_state=0)
    without = clone(model).fit(X)
    with_zeros = as_given(np.insert(X, [0, 30, 60], 0, axis=0))
    with pytest.warns(UserWarning, match="3 of 63 rows of X are zero") as record:
        model.fit(with_zeros)
    assert len(record) == 1
    assert record[0].filename == __file__
    assert model.inertia_ == pytest.approx(without.inertia_ + 3)
    np.testing.assert_allclose(model.cluster_centers_, without.cluster_centers_)
    zeros = as_given(np.zeros((2, 5)))
    np.testing.assert_array_equal(model.transform(zeros), np.ones((2, 3)))
    np.testing.assert_array_equal(model.predict(zeros), [0, 0])
    assert model.score(zeros) == -2


@dense_and_sparse
def test_zero_rows_do_not_cost_a_copy(as_given):
    X = as_given(np.insert(np.eye(3), 1, 0, axis=0))
    assert UnitRows(X).X is X


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.filterwarnings("error")
def test_a_warning_taken_for_an_error_costs_no_fit(method):
    model = SphericalKMeans(2, random_state=0)
    X = np.insert(np.eye(2), 1, 0, axis=0)
    with pytest.raises(UserWarning, match="1 of 3 rows"):
        getattr(model, method)(X)
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_nothing_but_zero_rows():
    with (
        pytest.warns(UserWarning, match="4 of 4 rows"),
        pytest.warns(ConvergenceWarning, match=r"distinct clusters \(1\)"),
    ):
        model = SphericalKMeans(2).fit(np.zeros((4, 3)))
    np.testing.assert_array_equal(np.linalg.norm(model.cluster_centers_, axis=1), 1)
    assert model.inertia_ == 4


@dense_and_sparse
def test_empty_clusters_take_the_farthest_rows(as_given):
    X = np.array([[1, 0, 0], [9, 1, 0], [9, 0, 1], [0, 5, 0], [0, 0, 7], [1, 0, 0.1]])
    start = np.array([[1, 0, 0], [-1, 0, 0], [-1, -1, 0]])
    model = SphericalKMeans(3, init=start).fit(as_given(X))
    labels = model.labels_
    assert len({labels[0], labels[3], labels[4]}) == 3
    assert labels[0] == labels[1] == labels[2] == labels[5]


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_clusters_without_weight_take_rows_that_have_one(method):
    X = np.array([[1, 0, 0], [9, 1, 0], [0, 0, 1], [0, 1, 0], [0, 0, 0]])
    start = np.array([[-1, -1, -1], [1, 0, 0]])  # the first gets the zero row alone
    model = SphericalKMeans(2, init=start, max_iter=2)
    with pytest.warns(UserWarning, match="1 of 5 rows of X are zero"):
        getattr(model, method)(X, sample_weight=[1, 1, 0, 1, 1])
    np.testing.assert_array_equal(model.cluster_centers_[0], [0, 1, 0])


@both_starts
@pytest.mark.parametrize("longest", [1, 12])
def test_more_clusters_than_directions(init, longest):
    X = np.repeat(np.eye(3), 4, axis=0) * np.linspace(1, longest, 12)[:, np.newaxis]
    with pytest.warns(
        ConvergenceWarning, match=r"\(3\) found smaller than .* \(5\)"
    ) as record:
        model = SphericalKMeans(5, init=init, random_state=0).fit(X)
    assert record[0].filename == __file__
    assert model.inertia_ == 0
    assert np.isfinite(model.cluster_centers_).all()


@pytest.mark.parametrize("n", [2, 3])  # rows, of which three cancel but for rounding
def test_rows_that_cancel_leave_the_center_in_place(n):
    angles = 2 * np.pi * np.arange(n) / n
    X = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    model = SphericalKMeans(1, init=[[0.6, 0.8]]).fit(X)
    np.testing.assert_array_equal(model.cluster_centers_, [[0.6, 0.8]])
    assert model.inertia_ == pytest.approx(n)


def test_one_cluster_is_the_mean_direction():
    X, _ = directions(50, 4, 2)
    model = SphericalKMeans(1).fit(X)
    resultant = normalize(X).sum(axis=0)
    length = np.linalg.norm(resultant)
    np.testing.assert_allclose(model.cluster_centers_[0], resultant / length)
    assert model.inertia_ == pytest.approx(50 - length)


# --- seeding and stopping --------------------------------------------------------


@dense_and_sparse
@both_dtypes
def test_equal_rows_are_recognised(as_given, dtype):
    rng = np.random.default_rng(0)
    # Small integers, whose bits end in zeros, and both zeros.
    distinct = np.array([[i, j, -0.0] for i in range(1, 40) for j in range(40)])
    pick = rng.permutation(np.r_[np.arange(len(distinct)), rng.integers(1560, size=99)])
    X = distinct[pick].astype(dtype)
    X[::2, 2] = 0.0
    weight = rng.uniform(1, 2, size=len(X))
    rows = UnitRows(as_given(X), weight)
    index, mass = distinct_rows(rows, np.random.RandomState(0))
    assert len(index) == len(distinct)
    np.testing.assert_allclose(
        mass, np.bincount(pick, weights=weight)[pick[index]], rtol=1e-12
    )


def test_k_means_plus_plus_finds_separate_clusters():
    X, y = directions(400, 30, 20, noise=0.1)
    for seed in range(5):
        model = SphericalKMeans(20, max_iter=1, random_state=seed).fit(X)
        assert adjusted_rand_score(y, model.labels_) == 1


@both_starts
def test_first_centers_are_drawn_by_weight(init):
    X, _ = directions(100, 5, 3)
    weight = np.ones(100)
    weight[[7, 70]] = 1e9
    rows = UnitRows(X, weight)
    centers = first_centers(rows, init, 2, np.random.RandomState(0))
    np.testing.assert_allclose(np.sort(centers, 0), np.sort(normalize(X[[7, 70]]), 0))


def test_best_of_several_starts_is_kept():
    X, _ = directions(200, 5, 8, noise=1)
    few = SphericalKMeans(8, init="random", n_init=1, random_state=0).fit(X)
    many = SphericalKMeans(8, init="random", n_init=20, random_state=0).fit(X)
    assert many.inertia_ < few.inertia_


def test_the_first_of_starts_that_find_the_same_clusters_is_kept():
    X, _ = directions(200, 3, 4, noise=0.2)  # inertias differ in the last digits
    first = SphericalKMeans(4, n_init=1, random_state=0).fit(X)
    several = SphericalKMeans(4, n_init=20, random_state=0).fit(X)
    assert several.inertia_ == pytest.approx(first.inertia_)
    np.testing.assert_array_equal(several.labels_, first.labels_)


@pytest.mark.parametrize(
    ("init", "n_init", "expected"),
    [
        ("random", "auto", 10),
        ("k-means++", "auto", 1),
        ("k-means++", 3, 3),
        (lambda X, n_clusters, random_state: X[:n_clusters], "auto", 10),
        (np.eye(4)[:3], "auto", 1),
        (np.eye(4)[:3], 7, 1),
    ],
)
def test_number_of_starts(init, n_init, expected, capsys):
    X, _ = directions(50, 4, 3)
    SphericalKMeans(3, init=init, n_init=n_init, verbose=1, random_state=0).fit(X)
    assert capsys.readouterr().out.count("Stopped at iteration") == expected


def test_verbose_prints_the_inertia_of_each_iteration(capsys):
    X, _ = directions(300, 6, 4, noise=1.5)
    start = X[:6]
    model = SphericalKMeans(6, init=start, verbose=1, tol=0).fit(X)
    lines = capsys.readouterr().out.splitlines()
    printed = [float(line.split()[-1].rstrip(".")) for line in lines[:-1]]
    assert printed == sorted(printed, reverse=True)
    assert printed[-1] == pytest.approx(model.inertia_, rel=1e-5)
    assert lines[-1] == f"Stopped at iteration {model.n_iter_}: no label changes."


def test_tolerance_and_max_iter_stop_early(capsys):
    X, _ = directions(2000, 6, 4, noise=2)
    exact = SphericalKMeans(6, init=X[:6], tol=0).fit(X)
    loose = SphericalKMeans(6, init=X[:6], tol=0.1, verbose=1).fit(X)
    assert "less than the tolerance" in capsys.readouterr().out
    short = SphericalKMeans(6, init=X[:6], max_iter=2, verbose=1).fit(X)
    assert "`max_iter` is reached" in capsys.readouterr().out
    assert loose.n_iter_ < exact.n_iter_
    assert short.n_iter_ == 2
    for model in [loose, short]:
        assert model.inertia_ > exact.inertia_
        np.testing.assert_array_equal(model.labels_, model.predict(X))


def test_tolerance_is_relative_to_the_variance_of_unit_rows():
    X = normalize(directions(2000, 6, 4, noise=2)[0]) + 1
    weight = np.full(2000, 0.1)
    model = SphericalKMeans(6, init=X[:6], tol=0.01).fit(X, sample_weight=weight)
    centers = []
    for max_iter in range(model.n_iter_ - 2, model.n_iter_ + 1):
        run = clone(model).set_params(tol=0, max_iter=max_iter)
        centers.append(run.fit(X, sample_weight=weight).cluster_centers_)
    before, last = np.square(np.diff(centers, axis=0)).sum(axis=(1, 2))
    assert last <= 0.01 * normalize(X).var(axis=0).mean() < before


def test_random_state():
    X, _ = directions(300, 6, 8, noise=2)
    with same_generators():
        fits = [SphericalKMeans(8, random_state=s).fit(X).inertia_ for s in (0, 0, 1)]
    assert fits[0] == fits[1] != fits[2]


# --- mini-batches ----------------------------------------------------------------


def test_partial_fit_keeps_the_directions_of_all_sums():
    X, _ = directions(400, 6, 4)
    batches = np.split(X, 8)
    start = normalize(X[:4])
    model = SphericalKMeans(4, init=start)
    sums, centers = np.zeros((4, 6)), start
    for batch in batches:
        model.partial_fit(batch)
        V = normalize(batch)
        np.add.at(sums, (V @ centers.T).argmax(axis=1), V)
        centers = normalize(sums)
        np.testing.assert_allclose(model.cluster_centers_, centers)
        np.testing.assert_array_equal(model.labels_, model.predict(batch))
    assert model.n_steps_ == 8
    assert model.inertia_ == pytest.approx(-model.score(batches[-1]))


def test_partial_fit_finds_nearly_the_clusters_of_fit():
    X, y = directions(2000, 16, 5, noise=0.5)
    model = SphericalKMeans(5, random_state=0)
    for batch in np.split(X, 10):
        model.partial_fit(batch)
    assert adjusted_rand_score(y, model.predict(X)) > 0.95
    assert -model.score(X) < 1.05 * clone(model).fit(X).inertia_


def test_partial_fit_continues_a_fit():
    X, _ = directions(2000, 16, 5, noise=0.5)
    model = SphericalKMeans(5, random_state=0).fit(X)
    before = model.cluster_centers_.copy()
    model.partial_fit(X[:20])  # 20 rows hardly move what 2000 have settled
    assert 0 < abs(model.cluster_centers_ - before).max() < 0.02
    assert model.n_steps_ == 1
    assert not hasattr(model.fit(X), "n_steps_")


def test_partial_fit_relocates_clusters_that_never_had_a_row():
    X = np.array([[1, 0, 0], [9, 1, 0], [0, 0, 7], [0, 1, 8]])
    start = np.array([[1, 0, 0], [-1, -1, 0]])
    model = SphericalKMeans(2, init=start).partial_fit(X)
    assert model.cluster_centers_[1] @ [0, 0, 1] > 0.9


@both_dtypes
def test_partial_fit_relocates_clusters_that_have_lost_their_rows(dtype):
    rng = np.random.default_rng(0)
    X = np.repeat(rng.standard_normal((6, 6)).astype(dtype), 50, axis=0)
    model = SphericalKMeans(8, init=rng.standard_normal((8, 6)))
    with pytest.warns(ConvergenceWarning):
        model.fit(X[:255])  # the last direction has few rows
    is_empty = np.bincount(model.labels_, minlength=8) == 0
    row = rng.standard_normal((1, 6)).astype(dtype)
    assert is_empty[model.partial_fit(row).labels_[0]]


def test_partial_fit_keeps_clusters_that_a_batch_lacks():
    model = SphericalKMeans(2, init=np.eye(2)).partial_fit(np.eye(2))
    model.partial_fit([[9, 1], [9, -1], [9, 2]])
    np.testing.assert_array_equal(model.cluster_centers_[1], [0, 1])


def test_partial_fit_errors():
    with pytest.raises(ValueError, match="n_clusters=8 and n_samples=3"):
        SphericalKMeans().partial_fit(np.eye(3))
    model = SphericalKMeans(2).partial_fit(np.eye(3))
    model.partial_fit(np.eye(3)[:1])  # later batches may be small
    with pytest.raises(ValueError, match="2 features"):
        model.partial_fit(np.eye(2))


def test_partial_fit_keeps_the_number_of_clusters():
    X = np.random.default_rng(0).standard_normal((20, 4))
    model = SphericalKMeans(3, random_state=0).fit(X).set_params(n_clusters=5)
    with pytest.raises(ValueError, match=r"`n_clusters` must be 3, as before.* got 5"):
        model.partial_fit(X)
    assert model.set_params(n_clusters=3).partial_fit(X).n_steps_ == 1


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_a_fit_that_fails_changes_nothing(method):
    model = SphericalKMeans(2, init=np.eye(3)[:2])
    with pytest.raises(ValueError, match="init"):
        getattr(model, method)(np.eye(4))
    assert not hasattr(model, "n_features_in_")
    labels = model.fit(np.eye(3)).labels_
    with pytest.raises(ValueError, match="init"):
        model.fit(np.eye(4))
    np.testing.assert_array_equal(model.predict(np.eye(3)), labels)


# --- the estimator ---------------------------------------------------------------


@both_dtypes
@dense_and_sparse
def test_transform_is_cosine_distance(dtype, as_given):
    X, _ = directions(50, 6, 3)
    X = X.astype(dtype)
    model = SphericalKMeans(3, random_state=0).fit(as_given(X))
    distances = model.transform(as_given(X))
    expected = 1 - normalize(X) @ model.cluster_centers_.T
    assert distances.dtype == dtype
    assert distances.min() >= 0
    np.testing.assert_allclose(distances, expected, atol=1e-6)
    np.testing.assert_array_equal(distances.argmin(axis=1), model.labels_)


@both_dtypes
def test_rounding_leaves_distances_in_their_range(dtype):
    X = np.random.default_rng(0).standard_normal((40, 7)).astype(dtype)
    model = SphericalKMeans(40, init=X).fit(X)  # each row is its own centre
    distances = model.transform(np.vstack([X, -X]))
    assert distances.min() >= 0
    assert distances.max() <= 2
    assert model.inertia_ >= 0


def test_feature_names_and_pandas_output():
    X, _ = directions(30, 4, 3)
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = SphericalKMeans(3, random_state=0).set_output(transform="pandas")
    out = model.fit_transform(frame)
    names = ["sphericalkmeans0", "sphericalkmeans1", "sphericalkmeans2"]
    assert out.columns.tolist() == names
    assert model.get_feature_names_out().tolist() == names
    assert model.feature_names_in_.tolist() == list("abcd")


def test_pipeline_search_and_pickle():
    X, _ = directions(90, 5, 3)
    pipeline = make_pipeline(FunctionTransformer(), SphericalKMeans(random_state=0))
    grid = {"sphericalkmeans__n_clusters": [2, 3, 4]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(X)
    assert search.best_score_ < 0
    loaded = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(loaded.predict(X), search.predict(X))


@pytest.mark.parametrize("method", ["predict", "transform", "score"])
def test_unfitted(method):
    with pytest.raises(NotFittedError):
        getattr(SphericalKMeans(), method)(np.eye(3))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_clusters": 0}, "The 'n_clusters' parameter"),
        ({"init": "best"}, "The 'init' parameter"),
        ({"n_init": 0}, "The 'n_init' parameter"),
        ({"max_iter": 0}, "The 'max_iter' parameter"),
        ({"tol": -1}, "The 'tol' parameter"),
        ({"copy_x": "no"}, "The 'copy_x' parameter"),
        ({"n_clusters": 9}, "`n_clusters` must be at most the number of rows"),
        ({"init": np.eye(3)}, r"`init` must give centres of shape \(2, 4\)"),
        ({"init": np.eye(4)[:2] - np.eye(4)[0]}, "got zero in row 0"),
        ({"init": [[1, 0, 0, np.nan], [0, 1, 0, 0]]}, "init contains NaN"),
        (
            {"init": lambda X, n_clusters, random_state: X[:1]},
            r"`init` must give centres of shape \(2, 4\)",
        ),
    ],
)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_wrong_parameters(params, message, method):
    X, _ = directions(8, 4, 2)
    model = SphericalKMeans(**{"n_clusters": 2, **params})
    with pytest.raises(ValueError, match=message):
        getattr(model, method)(X)


def test_a_tensor_that_needs_its_gradient():
    X = torch.eye(3, requires_grad=True)
    assert SphericalKMeans(3, random_state=0).fit(X).labels_.shape == (3,)


def test_infinities_that_cancel_are_refused_without_a_warning():
    with pytest.raises(ValueError, match="infinity"):
        SphericalKMeans(1).fit([[np.inf], [-np.inf]])
