"""Scores of clusters with and without known classes, and scorers for searches.

The scorers ``acc_scorer``, ``nmi_scorer`` and ``ari_scorer`` are called as
``scorer(estimator, X, y)`` and compare ``estimator.predict(X)`` with the classes ``y``.
`SCORERS` holds them by name. The NMI is the mutual information divided by the mean of
the two entropies (``average_method="arithmetic"`` in scikit-learn). Samples whose
class is missing (None, NaN or NaT) do not count. `silhouette_scorer` is called in the
same way and needs no classes. Shuffle the folds of a search, because many data sets are
sorted by class, and scikit-learn's default for clusterers does not. All scorers warn if
the samples to score fall into other clusters than those of the fit, which shows such
folds without classes:

>>> from sklearn.datasets import load_iris
>>> from sklearn.model_selection import GridSearchCV, KFold
>>> from sk_mice import SphericalKMeans
>>> from sk_mice.metrics import SCORERS
>>> X, y = load_iris(return_X_y=True)
>>> search = GridSearchCV(
...     SphericalKMeans(random_state=0),
...     {"n_clusters": [2, 3, 4]},
...     scoring=SCORERS,
...     refit="acc",
...     cv=KFold(5, shuffle=True, random_state=0),
... )
>>> search.fit(X, y).best_params_
{'n_clusters': 3}
"""

import math
from contextlib import suppress

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.stats import chi2_contingency
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics._scorer import _Scorer
from sklearn.preprocessing import normalize
from sklearn.utils import (
    check_array,
    check_consistent_length,
    column_or_1d,
    gen_batches,
)
from sklearn.utils.extmath import row_norms, safe_sparse_dot

from ._check_rows import rows_in_memory
from ._cosine_kmeans import rescaled
from ._engine.arrays import plain_array, stored_once
from ._engine.warn import warn_user
from ._pipelines import last_step, last_with_input

__all__ = [
    "SCORERS",
    "acc_scorer",
    "ari_scorer",
    "clustering_accuracy_score",
    "match_labels",
    "nmi_scorer",
    "silhouette_scorer",
]

ROWS = 4096  # silhouettes that are computed at a time
# Cosine distances up to this are rounding errors, for a million rows and fewer.
ROUNDING = 1e-12


def clustering_accuracy_score(y_true, y_pred) -> float:
    """Accuracy of clusters under the best one-to-one matching with classes.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Classes: numbers, strings or, in an array, any hashable objects. None, NaN, NaT
        and masked values are missing classes, whose samples do not count.
    y_pred : array-like of shape (n_samples,)
        Clusters, likewise. Their type may differ from that of the classes.

    Returns
    -------
    accuracy : float
        Share of the samples whose cluster is matched with their class. It is above 0,
        and 1 only if the clusters are the classes.

    Raises
    ------
    ValueError
        If the arguments are not one-dimensional or differ in length, or there is no
        class.

    See Also
    --------
    match_labels : The matching itself.

    Notes
    -----
    The matching maximises the number of agreeing samples (the Hungarian method [1]_).
    Samples in clusters without a class count as wrong, and so do samples of classes
    without a cluster. Both splitting a class and merging two classes therefore lower
    the accuracy.

    References
    ----------
    .. [1] Kuhn, "The Hungarian Method for the Assignment Problem", Naval Research
       Logistics Quarterly 2, 1955.

    Examples
    --------
    >>> from sk_mice.metrics import clustering_accuracy_score
    >>> clustering_accuracy_score(["cat", "cat", "dog", "dog"], [1, 1, 0, 0])
    1.0
    >>> clustering_accuracy_score([0, 0, 1, 1], [5, 5, 6, 7])
    0.75
    """
    *_, counts, matched = _matching(y_true, y_pred)
    return float(counts[matched].sum() / counts.sum())


def match_labels(y_true, y_pred) -> np.ndarray:
    """Rename clusters to the classes that they match best, one to one.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Classes: numbers, strings or, in an array, any hashable objects. None, NaN, NaT
        and masked values are missing classes; numbers alongside None count as objects.
    y_pred : array-like of shape (n_samples,)
        Clusters, likewise. Their type may differ from that of the classes.

    Returns
    -------
    labels : ndarray of shape (n_samples,)
        For each sample the class that its cluster is matched with, under the matching
        of `clustering_accuracy_score`. That score is the share of samples for which
        this label equals `y_true`, among those with a class.

        If there are more clusters than classes, each cluster without a class gets a new
        name: the largest class + 1, + 2, ... if the classes are numbers or dates, and
        ``"unmatched <cluster>"`` otherwise. (The new numbers and the classes are Python
        integers if no numeric type holds both.) If there are fewer clusters than
        classes, some classes do not occur.

    Raises
    ------
    ValueError
        If the arguments are not one-dimensional or differ in length, or there is no
        class.

    Examples
    --------
    >>> from sk_mice.metrics import match_labels
    >>> match_labels(["cat", "cat", "dog", "dog"], [1, 1, 0, 0]).tolist()
    ['cat', 'cat', 'dog', 'dog']
    >>> match_labels([0, 0, 0, 1, 1], [5, 5, 7, 6, 6]).tolist()
    [0, 0, 2, 1, 1]
    """
    classes, clusters, codes, _, (rows, columns) = _matching(y_true, y_pred)
    unmatched = np.setdiff1d(np.arange(len(clusters)), columns)
    # Positions in: the classes, then the names of the clusters left over.
    position = np.empty(len(clusters), dtype=np.intp)
    position[columns] = rows
    position[unmatched] = len(classes) + np.arange(len(unmatched))
    if len(unmatched):
        classes = _with_new_names(classes, clusters[unmatched])
    return classes[position][codes]


def _matching(y_true, y_pred):
    """Classes, clusters, codes of the latter, counts of each pair, the best pairs."""
    y_true = column_or_1d(_as_array(y_true))
    y_pred = column_or_1d(_as_array(y_pred))
    check_consistent_length(y_true, y_pred)
    (classes, class_codes), (clusters, codes) = _encode_classes(y_true), _encode(y_pred)
    shape, known = (len(classes), len(clusters)), class_codes >= 0
    pairs = np.ravel_multi_index((class_codes[known], codes[known]), shape)
    counts = np.bincount(pairs, minlength=math.prod(shape)).reshape(shape)
    matched = linear_sum_assignment(counts, maximize=True)
    return classes, clusters, codes, counts, matched


def _encode_classes(y, name="`y_true`"):
    """As `_encode`, with code -1 where a class is missing."""
    known = ~_is_missing(y)
    if not known.any():
        raise ValueError(
            f"{name} must have the class of at least one sample; got none, of "
            f"{len(y)} samples."
        )
    codes = np.full(len(y), -1)
    classes, codes[known] = _encode(y[known])
    return classes, codes


def _is_missing(y):
    """Whether each value of an array is None, NaN or NaT."""
    if y.dtype.kind in "fmM":
        return np.isnan(y)
    if y.dtype != object:
        return np.zeros(len(y), bool)
    return np.fromiter(map(_is_none_or_nan, y), bool, len(y))


def _is_none_or_nan(value):
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas' NA is neither equal to anything nor unequal
        return True


def _as_array(y):
    """An array that keeps each value's type: 1 and "1" stay two labels."""
    # A tensor may need its gradient, or have a type that NumPy lacks.
    array = np.asarray(plain_array(y, "y") if hasattr(y, "requires_grad") else y)
    if np.ma.is_masked(y):
        array = array.astype(object)
        array[np.ma.getmaskarray(y)] = None
        return array
    if array.dtype.kind == "T":  # NumPy's strings of any length, of which some may miss
        return array.astype(object)
    if array.ndim != 1 or hasattr(y, "dtype"):
        return array
    if array.dtype.kind == "U" and not all(isinstance(value, str) for value in y):
        return _object_array(y)
    if array.dtype.kind == "f":  # which rounds large integers beside other numbers
        size = abs(array.astype(float))
        if ((size >= 2**53) & (size < math.inf)).any():
            return _object_array(y)
    return array


def _encode(y):
    """Distinct values of `y`, and for each sample the position of its own."""
    if y.dtype.kind in "biufmM":
        return np.unique(y, return_inverse=True)
    # A dict is quicker than sorting all strings or objects, and needs no order. If they
    # have one, the distinct ones are sorted, so that ties do not depend on that of y.
    if y.dtype == object:  # NaN does not equal itself
        y = np.where(_is_missing(y), None, y)
    values = y.tolist()
    distinct = list(dict.fromkeys(values))
    with suppress(TypeError):
        distinct.sort()
    codes = dict(zip(distinct, range(len(distinct)), strict=True))
    codes = np.fromiter(map(codes.__getitem__, values), np.intp, len(values))
    return _object_array(distinct) if y.dtype == object else np.array(distinct), codes


def _object_array(values):
    array = np.empty(len(values), dtype=object)
    array[:] = values  # np.array(values) would take tuples apart
    return array


def _with_new_names(classes, clusters):
    """Append to the classes a name for each cluster that is none of them."""
    if classes.dtype.kind in "mM":
        unit = np.diff(classes[:1]).dtype
        steps = np.arange(1, len(clusters) + 1).astype(unit)
        return np.append(classes, classes.max() + steps)
    names = classes.tolist()
    if classes.dtype.kind not in "biuf":
        known = set(names)
        for cluster in clusters:
            name = f"unmatched {cluster}"
            while name in known:
                name = f"_{name}"
            names.append(name)
            known.add(name)
        return np.array(names) if classes.dtype.kind == "U" else _object_array(names)
    largest = max(filter(math.isfinite, names), default=0)
    if abs(largest) >= 2**52:  # a float to which 1 may add nothing
        largest = int(largest)
    names = _object_array([*names, *(largest + 1 + i for i in range(len(clusters)))])
    # In the type of the classes where it holds them, else in a wider one if any does.
    for dtype in classes.dtype, np.result_type(classes, np.int64):
        with suppress(OverflowError), np.errstate(over="ignore"):
            typed = names.astype(dtype)
            if typed.tolist() == names.tolist():
                return typed
    return names


# -------------------------------------------------------------------------- scorers

# A fold is unlike the samples of the fit if more than this share of it would have to
# change its cluster, and chance has less than this probability.
UNLIKE, CHANCE = 0.25, 1e-6


def _warn_of_fold(estimator, clusters):
    """Warn if samples to score are in other clusters than those of the fit."""
    last, _ = last_step(estimator)
    fitted = getattr(last, "labels_", None)
    if fitted is None or hasattr(last, "n_steps_") or not len(clusters):
        return  # after `partial_fit`, they are those of a batch
    names = np.unique(np.concatenate([fitted, clusters]))
    counts = [np.searchsorted(names, part) for part in (fitted, clusters)]
    counts = np.array([np.bincount(part, minlength=len(names)) for part in counts])
    shares = counts / counts.sum(axis=1, keepdims=True)
    unlike = np.abs(shares[0] - shares[1]).sum() / 2
    if unlike > UNLIKE and chi2_contingency(counts).pvalue < CHANCE:
        warn_user(
            f"{unlike:.0%} of the samples to score would have to change their cluster "
            "for the clusters to have the sizes that they have in the fit. If these "
            "samples are a fold, X is probably sorted by class: shuffle the folds, as "
            "by `cv=KFold(shuffle=True)`."
        )


class ClusterScorer(_Scorer):
    """A scorer that warns if a fold seems to hold whole classes out."""

    def _score(self, method_caller, estimator, X, y_true, **kwargs):
        _, codes = _encode_classes(column_or_1d(_as_array(y_true)), "y")
        known = codes >= 0

        def predictions(*args, **options):
            clusters = method_caller(*args, **options)
            _warn_of_fold(estimator, clusters)
            check_consistent_length(clusters, codes)
            return clusters[known]

        return super()._score(predictions, estimator, X, codes[known], **kwargs)


acc_scorer = ClusterScorer(clustering_accuracy_score, 1, {})
nmi_scorer = ClusterScorer(normalized_mutual_info_score, 1, {})
ari_scorer = ClusterScorer(adjusted_rand_score, 1, {})

SCORERS = {"acc": acc_scorer, "nmi": nmi_scorer, "ari": ari_scorer}
"""Scorers by name, as ``cross_validate`` and ``GridSearchCV(scoring=...)`` take."""


_SCORES = {
    "ACC": (
        clustering_accuracy_score,
        "accuracy under the best matching of clusters with classes",
    ),
    "NMI": (normalized_mutual_info_score, "normalised mutual information"),
    "ARI": (adjusted_rand_score, "adjusted Rand index"),
}


def _scores_in_words(y_true, y_pred):
    """Name, value and meaning of each score with known classes."""
    return [
        (name, float(score(y_true, y_pred)), meaning)
        for name, (score, meaning) in _SCORES.items()
    ]


# ------------------------------------------------------------------ without classes


def silhouette_scorer(estimator, X, y=None) -> float:
    """Mean silhouette [1]_ of an estimator's clusters, by cosine distance.

    A scorer that needs no classes: ``GridSearchCV(..., scoring=silhouette_scorer)``.

    Parameters
    ----------
    estimator : object
        A fitted estimator, or a Pipeline that ends in one. `predict` gives the clusters
        and `transform` the embeddings. If there is no `transform`, or if it gives
        distances to `cluster_centers_`, the input of the estimator takes the place of
        embeddings.
    X : array-like
        Samples, as `predict` takes them.
    y : Ignored
        Present for API consistency by convention.

    Returns
    -------
    score : float
        From -1 to 1, large for dense and separated clusters. It is -1 if all samples
        are in one cluster, so that a search does not choose this. A cluster of one
        sample counts as 0.

    See Also
    --------
    sk_mice.model_selection.stability : Whether the clusters are found again.
    sk_mice.model_selection.choose_n_clusters : Both, for several numbers of clusters.

    Notes
    -----
    Models with different temperatures or networks have different embedding spaces,
    whose silhouettes are hard to compare.

    The mean cosine distance of a unit vector to a cluster is one minus its product with
    the mean of the cluster. Time and memory therefore grow with the number of samples
    and not, as for other distances, with the number of pairs.

    References
    ----------
    .. [1] Rousseeuw, "Silhouettes: a Graphical Aid to the Interpretation and
       Validation of Cluster Analysis", Journal of Computational and Applied
       Mathematics 20, 1987.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sk_mice import SphericalKMeans
    >>> from sk_mice.metrics import silhouette_scorer
    >>> X = load_iris().data
    >>> for n_clusters in 2, 3:
    ...     skm = SphericalKMeans(n_clusters, random_state=0).fit(X)
    ...     print(f"{silhouette_scorer(skm, X):.2f}")
    0.96
    0.75
    """
    last, X = last_with_input(estimator, X)
    labels = last.predict(X)
    _warn_of_fold(last, labels)
    clusters, codes = np.unique(labels, return_inverse=True)
    if len(clusters) < 2:
        return -1.0
    return float(_cosine_silhouettes(_space_of(last, X), codes).mean())


def _space_of(last, X):
    """The embeddings of X by a last step, or X itself."""
    if hasattr(last, "cluster_centers_") or not hasattr(last, "transform"):
        return X
    return last.transform(X)


def _cosine_silhouettes(X, codes):
    """Silhouette of each row by cosine distance, for codes from 0 on of two or more."""
    X = check_array(rows_in_memory(X), accept_sparse="csr", dtype=np.float64)
    X = stored_once(X)
    X = rescaled(X, np.ones(X.shape[0], dtype=bool))  # a copy, unless all are zero
    X = normalize(X, copy=False)
    n = X.shape[0]
    members = csr_array((np.ones(n), (codes, np.arange(n))))  # (K, N)
    sums, sizes = (members @ X).T, np.bincount(codes)
    parts = [
        _silhouettes_of(X[rows], codes[rows], sums, sizes)
        for rows in gen_batches(n, ROWS)
    ]
    return np.concatenate(parts)


def _silhouettes_of(X, codes, sums, sizes):
    """Silhouettes of some rows, from sums (D, K) and sizes (K,) of all clusters."""
    rows = np.arange(X.shape[0])
    # (N, K): sums of the distances to all members, with that of a row to itself, which
    # is not 0 for a zero row.
    totals = sizes - safe_sparse_dot(X, sums, dense_output=True)
    to_itself = 1 - row_norms(X, squared=True)
    own = (totals[rows, codes] - to_itself) / np.maximum(sizes[codes] - 1, 1)
    totals /= sizes
    totals[rows, codes] = np.inf
    other = totals.min(axis=1)
    largest = np.maximum(own, other)
    # 0 if it is alone in its cluster, or all rows have one direction.
    none = (sizes[codes] == 1) | (largest <= ROUNDING)
    return np.where(none, 0, (other - own) / np.where(none, 1, largest)).clip(-1, 1)
