"""Scores, the matching of labels, scorers."""

import itertools
import math
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, csr_matrix
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine, make_blobs
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import (
    adjusted_rand_score,
    normalized_mutual_info_score,
    silhouette_samples,
    silhouette_score,
)
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from sk_mice import SphericalKMeans, metrics
from sk_mice.metrics import (
    SCORERS,
    acc_scorer,
    ari_scorer,
    clustering_accuracy_score,
    match_labels,
    nmi_scorer,
    silhouette_scorer,
)
from sk_mice.metrics import _cosine_silhouettes as cosine_silhouettes

labels = st.integers(0, 4)
label_pairs = st.lists(st.tuples(labels, labels), min_size=1, max_size=40)


def brute_force_accuracy(y_true, y_pred):
    """Try every one-to-one matching, with enough names for all to be matched."""
    best = 0
    for names in itertools.permutations(range(5)):
        renamed = [names[cluster] for cluster in y_pred]
        best = max(best, np.mean(np.equal(renamed, y_true)))
    return best


@given(label_pairs)
def test_accuracy_is_the_best_over_all_matchings(pairs):
    y_true, y_pred = zip(*pairs, strict=True)
    accuracy = clustering_accuracy_score(y_true, y_pred)
    assert accuracy == pytest.approx(brute_force_accuracy(y_true, y_pred))


@given(label_pairs)
def test_matched_labels_are_a_renaming_that_reaches_the_accuracy(pairs):
    y_true, y_pred = map(np.array, zip(*pairs, strict=True))
    matched = match_labels(y_true, y_pred)
    assert np.mean(matched == y_true) == clustering_accuracy_score(y_true, y_pred)
    # One to one: the pairs (old name, new name) are as many as names on each side.
    renamings = set(zip(y_pred, matched, strict=True))
    assert len(renamings) == len(set(y_pred)) == len(set(matched))


@given(label_pairs, st.permutations(range(5)))
def test_accuracy_does_not_depend_on_names_or_order(pairs, names):
    y_true, y_pred = zip(*pairs, strict=True)
    accuracy = clustering_accuracy_score(y_true, y_pred)
    renamed = [f"cluster {names[label]}" for label in y_pred]
    assert clustering_accuracy_score(y_true, renamed) == accuracy
    assert clustering_accuracy_score(y_true[::-1], y_pred[::-1]) == accuracy
    assert clustering_accuracy_score(y_pred, y_true) == accuracy
    assert clustering_accuracy_score(y_true, y_true) == 1


def letters(y):
    return ["xy"[label] for label in y]


@pytest.mark.parametrize(
    "convert",
    [
        list,
        tuple,
        np.array,
        pd.Series,
        lambda y: np.array(y, dtype=np.uint8),
        lambda y: np.array(y, dtype=float),
        lambda y: np.array(y, dtype=bool),
        lambda y: np.array(y, dtype=object),
        letters,
        lambda y: np.array(letters(y)),
        lambda y: np.array([b"xy"[label : label + 1] for label in y]),
        lambda y: np.array(letters(y), dtype=object),
        lambda y: pd.Series(letters(y)),
        lambda y: pd.Series(letters(y), dtype="category"),
        lambda y: [[frozenset(), "x"][label] for label in y],
        lambda y: [[1, "1"][label] for label in y],
        lambda y: [[1, "x"][label] for label in y],
        lambda y: np.array(letters(y), np.dtypes.StringDType()),
        lambda y: torch.tensor(y, dtype=torch.bfloat16, requires_grad=True),
    ],
)
def test_label_types(convert):
    y_true, y_pred = [0, 0, 1, 1, 1], [1, 1, 0, 0, 1]
    assert clustering_accuracy_score(convert(y_true), y_pred) == 0.8
    assert clustering_accuracy_score(y_true, convert(y_pred)) == 0.8
    matched = match_labels(convert(y_true), convert(y_pred))
    assert matched.tolist() == list(convert([0, 0, 1, 1, 0]))


@pytest.mark.parametrize("y", [[[1], [2], [1]], [["cat"], ["dog"], ["cat"]]])
def test_labels_may_be_a_column(y):
    assert clustering_accuracy_score(y, y) == 1


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (np.array(["a", "b"]), ["a", "b", "unmatched 2"]),
        (np.array(["a", "unmatched 2"]), ["a", "unmatched 2", "_unmatched 2"]),
        (np.array([0, 3]), [0, 3, 4]),
        (np.array([0.5, 2.0]), [0.5, 2.0, 3.0]),
        (np.array([False, True]), [0, 1, 2]),
        (np.array([7, 255], dtype=np.uint8), [7, 255, 256]),
        (np.array([-1, 2**63 - 1]), [-1, 2**63 - 1, 2**63]),
        (np.array([7, 2**64 - 1], dtype=np.uint64), [7, 2**64 - 1, 2**64]),
        (np.array([0.5, 2.0**53]), [0.5, 2**53, 2**53 + 1]),
        (np.array([0.5, np.inf]), [0.5, np.inf, 1.5]),
        (np.array([-np.inf, np.inf]), [-np.inf, np.inf, 1]),
    ],
)
def test_clusters_left_over_get_names_that_are_no_class(classes, expected):
    codes = [0, 0, 1, 1, 0]
    matched = match_labels(classes[codes], [0, 0, 1, 1, 2])
    assert matched.tolist() == [expected[code] for code in [0, 0, 1, 1, 2]]


def test_clusters_that_are_written_alike_stay_apart():
    y_pred = np.array([7, 1, "1"], object)
    for name, others in [
        ("a", ["_unmatched 1", "unmatched 1"]),
        ("unmatched 1", ["__unmatched 1", "_unmatched 1"]),
    ]:
        matched = match_labels([name, name, name], y_pred)
        assert sorted(matched) == sorted([name, *others])


@pytest.mark.parametrize("other", [5, math.nan])
def test_large_numbers_in_a_list_stay_apart(other):
    classes = [2**63 + 1, 2**63 + 2, other]  # an array of floats would round them
    assert clustering_accuracy_score(classes, [0, 1, 2]) == 1
    assert match_labels(classes, [0, 1, 2]).tolist()[:2] == classes[:2]
    assert clustering_accuracy_score([0, 1, 2], classes) == 1
    assert clustering_accuracy_score([np.float16(1), np.float16(2)], [0, 1]) == 1


def test_dtype_of_the_classes_is_kept():
    classes = np.array([0, 0, 0, 1, 1], dtype=np.uint8)
    assert match_labels(classes, [5, 5, 6, 7, 7]).dtype == np.uint8
    assert match_labels(classes.astype(np.float32), [0, 0, 0, 1, 1]).dtype == "float32"


DATES = np.array(["2020-01-01", "2020-01-02"])


@pytest.mark.parametrize(
    "classes",
    [
        np.array([b"a", b"b"]),
        DATES.astype("datetime64[D]"),
        DATES.astype("datetime64[ns]"),
        DATES.astype("datetime64[ns]") - np.datetime64("2020-01-01"),
        pd.Series(DATES.astype("datetime64[ns]")),
        DATES.astype("datetime64[s]").astype(object),
    ],
)
def test_matched_labels_can_be_compared_with_the_classes(classes):
    y_true, y_pred = np.repeat(classes, [2, 3]), [5, 5, 6, 6, 7]
    matched = match_labels(y_true, y_pred)
    assert (matched == y_true).tolist() == [True, True, True, True, False]
    assert len(set(matched)) == 3


def test_every_cluster_without_a_class_has_its_own_name():
    matched = match_labels(["a", "a", "a", "a"], [7, 5, 5, 6])
    assert matched.tolist() == ["unmatched 7", "a", "a", "unmatched 6"]
    assert match_labels([3, 3, 3, 3], [7, 5, 5, 6]).tolist() == [5, 3, 3, 4]


def test_missing_clusters_are_one_cluster():
    dates = np.array(["NaT", "NaT", "2020"], "datetime64[D]")
    objects = np.array([float("nan"), float("nan"), 1.0], object)
    for y_pred in [dates, objects, objects.astype(float)]:
        assert clustering_accuracy_score([0, 0, 1], y_pred) == 1
        assert match_labels([0, 0, 1], y_pred).tolist() == [0, 0, 1]


def test_a_million_labels():
    rng = np.random.default_rng(0)
    y_true = rng.integers(100, size=1_000_000)
    y_pred = (y_true + 1) % 100
    y_pred[:250_000] = 100
    expected = np.mean(y_pred == (y_true + 1) % 100)
    assert clustering_accuracy_score(y_true, y_pred) == pytest.approx(expected)
    assert np.mean(match_labels(y_true, y_pred) == y_true) == pytest.approx(expected)


MISSING = {
    "NaN": [0, math.nan, 1, 1, math.nan],
    "None": ["cat", None, "dog", "dog", None],
    "NaN among strings": ["cat", math.nan, "dog", "dog", math.nan],
    "dates": np.array([1, "NaT", 2, 2, "NaT"], "datetime64[ns]"),
    "nullable": pd.array([0, None, 1, 1, None], dtype="Int64"),
    "masked": np.ma.array([0, 1, 1, 1, 0], mask=[0, 1, 0, 0, 1]),
    "strings": pd.Series(["cat", None, "dog", "dog", None], dtype="string"),
    "categories": pd.Series(["cat", None, "dog", "dog", None], dtype="category"),
    "NumPy's strings": np.array(
        ["cat", None, "dog", "dog", None], np.dtypes.StringDType(na_object=None)
    ),
}


@pytest.mark.parametrize("y_true", MISSING.values(), ids=MISSING)
def test_samples_without_a_class_do_not_count(y_true):
    y_pred, X = [5, 5, 6, 6, 7], np.arange(5)[:, np.newaxis]
    assert clustering_accuracy_score(y_true, y_pred) == 1
    matched = match_labels(y_true, y_pred)
    assert list(matched[[0, 2]]) == [y_true[0], y_true[2]]
    assert matched[1] == matched[0]
    assert matched[4] not in matched[:4]
    fitted = KMeans(3, init=[[0.5], [2.5], [4.0]], n_init=1).fit(X)
    for scorer in SCORERS.values():
        assert scorer(fitted, X, y_true) == 1


@pytest.mark.parametrize("scorer", SCORERS.values(), ids=SCORERS)
def test_scorers_take_classes_of_several_types(scorer):
    X = np.arange(4)[:, np.newaxis]
    fitted = KMeans(2, init=[[0.5], [2.5]], n_init=1).fit(X)
    assert scorer(fitted, X, [1, 1, "a", None]) == 1


@pytest.mark.parametrize("scorer", SCORERS.values(), ids=SCORERS)
def test_scorers_need_a_class_and_one_for_each_sample(scorer):
    fitted = KMeans(1).fit(np.zeros((2, 1)))
    with pytest.raises(ValueError, match="y must have the class of at least one"):
        scorer(fitted, np.zeros((2, 1)), [None, None])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        scorer(fitted, np.zeros((2, 1)), [0, 1, 1])


@pytest.mark.parametrize("function", [clustering_accuracy_score, match_labels])
@pytest.mark.parametrize(
    ("y_true", "y_pred", "message"),
    [
        ([], [], "class of at least one sample; got none, of 0 samples"),
        ([None, None], [0, 1], "class of at least one sample; got none, of 2 samples"),
        ([0, 1], [0], "inconsistent numbers of samples"),
        ([[0, 1], [1, 0]], [0, 1], "should be a 1d array"),
        (None, [0, 1], "1d array"),
    ],
)
def test_labels_that_are_refused(function, y_true, y_pred, message):
    with pytest.raises(ValueError, match=message):
        function(y_true, y_pred)


class SignClusterer(ClusterMixin, BaseEstimator):
    """Labels by the first feature alone."""

    def __init__(self, offset=0):
        self.offset = offset

    def fit(self, X, y=None):
        self.is_fitted_ = True
        return self

    def predict(self, X):
        return np.where(X[:, 0] > self.offset, "above", "below")


@pytest.fixture
def signs():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 1))
    return X, (X[:, 0] + 0.3 * rng.standard_normal(60) > 0).astype(int)


def test_scorers_call_predict_on_what_they_are_given(signs):
    X, y = signs
    model = SignClusterer().fit(X[:30])
    y_pred = model.predict(X[30:])
    expected = {
        "acc": clustering_accuracy_score(y[30:], y_pred),
        "nmi": normalized_mutual_info_score(y[30:], y_pred),
        "ari": adjusted_rand_score(y[30:], y_pred),
    }
    scores = {name: score(model, X[30:], y[30:]) for name, score in SCORERS.items()}
    assert scores == expected
    assert list(SCORERS.values()) == [acc_scorer, nmi_scorer, ari_scorer]


def test_scorers_in_cross_validation_and_search(signs):
    X, y = signs
    scores = cross_validate(SignClusterer(), X, y, scoring=SCORERS, cv=3)
    assert {"test_acc", "test_nmi", "test_ari"} <= scores.keys()
    search = GridSearchCV(
        SignClusterer(), {"offset": [0, 2]}, scoring=SCORERS, refit="acc", cv=3
    ).fit(X, y)
    assert search.best_params_ == {"offset": 0}
    assert search.best_score_ == pytest.approx(scores["test_acc"].mean())


def test_scorers_can_be_pickled(signs):
    X, y = signs
    model = SignClusterer().fit(X)
    for scorer in SCORERS.values():
        assert pickle.loads(pickle.dumps(scorer))(model, X, y) == scorer(model, X, y)


@pytest.mark.parametrize("scoring", [SCORERS, silhouette_scorer])
def test_folds_that_hold_classes_out_are_told_without_labels(scoring):
    X, y = load_wine(return_X_y=True)  # sorted by class
    pipeline = make_pipeline(StandardScaler(), SphericalKMeans(3, random_state=0))
    with pytest.warns(UserWarning, match=r"shuffle the folds, as by `cv=KFold"):
        cross_validate(pipeline, X, y, cv=2, scoring=scoring)
    for seed in range(5):  # warnings are errors here
        folds = KFold(2, shuffle=True, random_state=seed)
        cross_validate(pipeline, X, y, cv=folds, scoring=scoring)


def test_the_warning_of_a_fold_says_how_much_it_differs():
    X = np.repeat(np.eye(2), 500, axis=0)
    model = SphericalKMeans(2, random_state=0).fit(X)
    for score in (acc_scorer, silhouette_scorer):
        for n, share in ((500, "50%"), (658, "26%")):
            with pytest.warns(UserWarning, match=f"{share} of the samples"):
                score(model, X[:n], np.zeros(n))
        score(model, X[:676], np.zeros(676))  # 24%, too little for a warning


def test_scores_are_not_compared_with_the_last_batch_of_partial_fit():
    X, y = np.repeat(np.eye(3), 300, axis=0), np.repeat(range(3), 300)
    skm = SphericalKMeans(3, init=np.eye(3))
    for batch in np.split(X, 9):
        skm.partial_fit(batch)
    assert acc_scorer(skm, X, y) == 1


def test_few_samples_of_one_class_get_no_warning():
    X = np.repeat(np.eye(2), 50, axis=0)
    model = SphericalKMeans(2, random_state=0).fit(X)
    assert acc_scorer(model, X[:4], np.zeros(4)) == 1


# ------------------------------------------------------------------ without classes


@pytest.fixture(scope="module")
def blobs():
    """Four directions that are far apart, at any distance from the origin."""
    X, y = make_blobs(120, 5, centers=5 * np.eye(5)[:4], random_state=0)
    return X * np.random.default_rng(0).uniform(1, 9, (len(X), 1)), y


class Embedder(ClusterMixin, BaseEstimator):
    """Clusters known beforehand; `transform` gives what silhouettes are taken of."""

    def __init__(self, labels, embeddings):
        self.labels = labels
        self.embeddings = embeddings

    def predict(self, X):
        return self.labels

    def transform(self, X):
        return self.embeddings


@pytest.mark.parametrize("container", [np.asarray, csr_matrix, csr_array])
def test_silhouettes_by_means_are_those_by_all_pairs(blobs, container, monkeypatch):
    monkeypatch.setattr(metrics, "ROWS", 50)
    X, y = blobs[0].copy(), blobs[1].copy()
    X[:3] = 0  # at a distance of 1 from every other row
    X[3:5] = X[5]
    y[7] = 4  # alone
    np.testing.assert_allclose(
        cosine_silhouettes(container(X), y),
        silhouette_samples(X, y, metric="cosine"),
        atol=1e-12,
    )


@pytest.mark.parametrize("container", [np.asarray, pd.DataFrame, np.float32])
def test_silhouette_is_of_the_embeddings(blobs, container):
    X, y = blobs
    names = np.array(["a", "b", "c", "d"])[y]
    score = silhouette_scorer(Embedder(names, container(X)), np.zeros((120, 2, 2, 1)))
    expected = silhouette_score(X, y, metric="cosine")
    assert score == pytest.approx(expected, rel=1e-4)
    assert type(score) is float


@pytest.mark.parametrize("cls", [SphericalKMeans, KMeans])
def test_silhouette_of_k_means_is_of_its_input(blobs, cls):
    # Its own `transform` gives distances to centres: another space with every K.
    X, _ = blobs
    model = cls(4, random_state=0).fit(X)
    expected = silhouette_score(X, model.labels_, metric="cosine")
    assert silhouette_scorer(model, X) == pytest.approx(expected)
    alone = make_pipeline(cls(4, random_state=0)).fit(X)
    assert silhouette_scorer(alone, X) == pytest.approx(expected)
    pipeline = make_pipeline(PCA(2), cls(4, random_state=0)).fit(X)
    expected = silhouette_score(
        pipeline[0].transform(X), pipeline[-1].labels_, metric="cosine"
    )
    assert silhouette_scorer(pipeline, X) == pytest.approx(expected)


@pytest.mark.parametrize("container", [np.asarray, csr_array])
@pytest.mark.parametrize("unit", [1e-300, 1e-16, 1e160])
def test_silhouette_does_not_depend_on_the_unit(blobs, unit, container):
    X, y = blobs
    expected = silhouette_score(X, y, metric="cosine")
    score = silhouette_scorer(Embedder(y, container(X * unit)), X)
    assert score == pytest.approx(expected)


@pytest.mark.parametrize("cls", [SphericalKMeans, KMeans])
def test_silhouette_of_a_search_is_that_of_its_choice(blobs, cls):
    X, _ = blobs
    search = GridSearchCV(cls(random_state=0), {"n_clusters": [3]}).fit(X)
    expected = silhouette_scorer(search.best_estimator_, X)
    assert silhouette_scorer(search, X) == expected
    within = make_pipeline(StandardScaler(with_std=False), search).fit(X)
    plain = make_pipeline(*within[:-1], within[-1].best_estimator_)
    assert silhouette_scorer(within, X) == silhouette_scorer(plain, X)


def test_silhouette_where_it_has_no_meaning(blobs):
    X, _ = blobs
    one = np.zeros(len(X), dtype=int)
    assert silhouette_scorer(Embedder(one, X), X) == -1  # worse than any partition
    assert silhouette_scorer(Embedder(np.arange(len(X)), X), X) == 0
    halves = one.copy()
    halves[::2] = 1
    assert silhouette_scorer(Embedder(halves, np.ones((len(X), 3))), X) == 0


def test_silhouettes_of_equal_rows_are_no_rounding_errors():
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    same = rng.random((30, 1)) * rng.random(7)  # one direction
    np.testing.assert_array_equal(cosine_silhouettes(same, y), 0)
    pure = rng.random((3, 7))[y]  # one direction for each cluster
    assert cosine_silhouettes(pure, y).max() <= 1
    assert cosine_silhouettes(pure, y).min() == pytest.approx(1)


def test_silhouettes_of_nearly_parallel_rows():
    y = np.arange(30) % 3
    rows = np.c_[np.ones(30), 1e-3 * y + 1e-5 * np.random.default_rng(0).random(30)]
    assert cosine_silhouettes(rows, y).min() > 0.99


def test_silhouette_takes_no_pairs():
    # The distances of all pairs would be 320 GB.
    rng = np.random.default_rng(0)
    y = rng.integers(10, size=200_000)
    X = np.eye(10, 16)[y] + 0.1 * rng.standard_normal((len(y), 16))
    assert silhouette_scorer(Embedder(y, X), X) > 0.8


def test_searches_find_the_number_of_clusters_by_silhouette(blobs):
    X, y = blobs
    folds = KFold(2, shuffle=True, random_state=0)
    search = GridSearchCV(
        SphericalKMeans(n_init=5, random_state=0),
        {"n_clusters": [1, 3, 4, 6]},
        scoring=silhouette_scorer,
        cv=folds,
        error_score="raise",
    ).fit(X)
    assert search.best_params_ == {"n_clusters": 4}
    both = SCORERS | {"unseen": pickle.loads(pickle.dumps(silhouette_scorer))}
    scores = cross_validate(
        search.best_estimator_, X, y, scoring=both, cv=folds, error_score="raise"
    )
    assert scores["test_unseen"].mean() == pytest.approx(search.best_score_)


def test_silhouettes_in_a_pipeline_within_a_pipeline():
    X = load_wine().data
    steps = StandardScaler(), PCA(3), SphericalKMeans(3, random_state=0)
    flat = make_pipeline(*steps).fit(X)
    nested = make_pipeline(steps[0], make_pipeline(*steps[1:])).fit(X)
    assert silhouette_scorer(nested, X) == pytest.approx(silhouette_scorer(flat, X))


def test_silhouettes_of_what_is_frozen():
    X = load_wine().data
    model = make_pipeline(StandardScaler(), KMeans(3, random_state=0)).fit(X)
    steps = [FrozenEstimator(step) for _, step in model.steps]
    search = GridSearchCV(model, {"kmeans__n_clusters": [3]}).fit(X)
    for frozen in model, make_pipeline(*steps), search:
        score = silhouette_scorer(FrozenEstimator(frozen), X)
        assert score == pytest.approx(silhouette_scorer(model, X))


def test_the_steps_before_the_last_run_once(blobs):
    calls = []
    first = FunctionTransformer(lambda X: calls.append(1) or X)
    pipeline = make_pipeline(first, SphericalKMeans(3, random_state=0)).fit(blobs[0])
    calls.clear()
    silhouette_scorer(pipeline, blobs[0])
    assert len(calls) == 1


def test_silhouettes_of_tensors(blobs):
    X, _ = blobs
    model = SphericalKMeans(3, random_state=0).fit(X)
    tensor = torch.tensor(X, requires_grad=True)
    assert silhouette_scorer(model, tensor) == silhouette_scorer(model, X)


def test_silhouettes_of_entries_that_are_stored_twice():
    X = csr_matrix(load_wine().data[::10])
    arrays = np.repeat(X.data / 2, 2), np.repeat(X.indices, 2), 2 * X.indptr
    codes = np.arange(X.shape[0]) % 3
    twice = cosine_silhouettes(csr_matrix(arrays, X.shape), codes)
    assert twice == pytest.approx(cosine_silhouettes(X, codes))
