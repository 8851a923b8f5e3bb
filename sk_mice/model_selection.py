"""The number of clusters, chosen by stability.

>>> from sklearn.cluster import KMeans
>>> from sklearn.datasets import load_wine
>>> from sklearn.pipeline import make_pipeline
>>> from sklearn.preprocessing import StandardScaler
>>> from sk_mice.model_selection import choose_n_clusters
>>> X = load_wine().data
>>> kmeans = make_pipeline(StandardScaler(), KMeans(n_init=5))
>>> choose_n_clusters(kmeans, X, range(2, 7), random_state=0).n_clusters
3
"""

import errno
import os
import pickle
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, validate_params
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _num_samples

from ._constraints import Count
from ._engine.dataset import from_dataset
from ._engine.warn import warn_user
from ._interruption import ended_by_ctrl_c
from ._pipelines import last_step, names_of_seeds
from ._progress_bar import tqdm
from .metrics import silhouette_scorer

__all__ = ["NClustersChoice", "choose_n_clusters", "stability"]

LEAST_SAMPLES = 4  # two for each half
WEAK = 0.5  # a stability below which a choice says little
_CONSTRAINTS = {
    "estimator": [HasMethods(["fit", "predict"])],
    "random_state": ["random_state"],
    "n_jobs": [Integral, None],
    "verbose": ["verbose"],
}


@validate_params(
    _CONSTRAINTS | {"n_repeats": [Count(1)]}, prefer_skip_nested_validation=False
)
def stability(
    estimator, X, *, n_repeats=20, random_state=None, n_jobs=None, verbose=0
) -> np.ndarray:
    """Agreement of the clusters that are found in random halves of the samples.

    The samples are split into two halves at random, a clone of the estimator is fitted
    to each, and both models cluster both halves [1]_. The stability is the adjusted
    Rand index of the two models' partitions, averaged over the two halves.

    Parameters
    ----------
    estimator : object
        Clusterer with `fit` and `predict`, or a Pipeline that ends in one. Clones of it
        are fitted.
    X : array-like of shape (n_samples, ...)
        Samples, as `fit` takes them; at least 4.
    n_repeats : int, default=20
        Number of random splits. Each costs two fits to half of the samples.
    random_state : int, RandomState instance or None, default=None
        Determines the splits and every parameter of the estimator whose name ends in
        `random_state`, also in the steps of a Pipeline; an int makes the results
        reproducible.
    n_jobs : int, default=None
        Number of processes, each with its share of the cores: -1 stands for one on
        each core, None for 1 unless in a `joblib.parallel_config`.
    verbose : int, default=0
        1 shows a progress bar over all fits and, after the first two, the time left.

    Returns
    -------
    values : ndarray of shape (n_repeats,)
        The stability in each split: 1 if both models find the same clusters, about 0
        if they agree only by chance. A half in which either model has only one cluster
        counts as 0, because any two models agree on that. So does a half in which the
        model that was fitted to it leaves clusters empty. After Ctrl-C, the values are
        those of the splits before it, with a ConvergenceWarning.

    Raises
    ------
    KeyboardInterrupt
        If Ctrl-C comes in the first split.
    OSError
        If there is no room for X in the folder for temporary files, from which the
        processes of `n_jobs` read it.
    ValueError
        If X has too few samples or a parameter is out of its range.

    See Also
    --------
    choose_n_clusters : Stability for each of several numbers of clusters.
    sk_mice.metrics.silhouette_scorer : Whether clusters are dense and apart.

    Notes
    -----
    Lange et al. [1]_ count the samples on which the partitions differ under the best
    matching of their clusters, and divide by the count for random labels. The adjusted
    Rand index is already corrected for chance and needs no matching.

    Stable clusters need not be the classes that you have in mind: a few large clusters
    are often more stable.

    References
    ----------
    .. [1] Lange, Roth, Braun and Buhmann, "Stability-Based Validation of Clustering
       Solutions", Neural Computation 16, 2004.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sk_mice import SphericalKMeans
    >>> from sk_mice.model_selection import stability
    >>> X = load_iris().data
    >>> for n_clusters in 2, 3, 8:
    ...     values = stability(SphericalKMeans(n_clusters), X, random_state=0)
    ...     print(f"{values.mean():.1f}")
    1.0
    0.9
    0.5
    """
    X = from_dataset(X)
    _check_n_samples(X)
    splits = _random_splits(n_repeats, random_state)
    scores = [_agreement]
    measured = _measured([estimator], X, splits, scores, n_jobs, verbose, least=1)
    return measured[:, 0, 0]


@validate_params(
    _CONSTRAINTS | {"n_repeats": [Count(2)]}, prefer_skip_nested_validation=False
)
def choose_n_clusters(
    estimator,
    X,
    candidates,
    *,
    n_repeats=20,
    random_state=None,
    n_jobs=None,
    verbose=0,
) -> "NClustersChoice":
    """Choose the number of clusters by stability, without classes.

    The choice is the largest candidate whose mean `stability`, over several random
    splits of the samples into halves, is within one standard error of the best one.

    Parameters
    ----------
    estimator : object
        Clusterer with `fit`, `predict` and a parameter `n_clusters`, such as
        `MiCEClustering`, `SphericalKMeans` or scikit-learn's `KMeans`, or a Pipeline
        that ends in one. Clones of it are fitted.
    X : array-like of shape (n_samples, ...)
        Samples, as `fit` takes them, in any order.
    candidates : iterable of int
        Numbers of clusters to compare, from 2 to half the number of samples.
    n_repeats : int, default=20
        Number of random splits, at least 2; all candidates have the same ones. The
        cost is ``2 * n_repeats * len(candidates)`` fits to half of the samples.
    random_state : int, RandomState instance or None, default=None
        Determines the splits and every parameter of the estimator whose name ends in
        `random_state`, also in the steps of a Pipeline; an int makes the results
        reproducible.
    n_jobs : int, default=None
        Number of processes, each with its share of the cores: -1 stands for one on
        each core, None for 1 unless in a `joblib.parallel_config`.
    verbose : int, default=0
        1 shows a progress bar over all fits and, after the first two, the time left.

    Returns
    -------
    choice : NClustersChoice
        Its `n_clusters` is the chosen number: fit the final model with it to all
        samples. Printing the object shows the measurements, which `table` holds and
        `plot` draws. After Ctrl-C, the choice is by the splits before it, with a
        ConvergenceWarning.

    Raises
    ------
    KeyboardInterrupt
        If Ctrl-C comes in the first two splits.
    OSError
        If there is no room for X in the folder for temporary files, from which the
        processes of `n_jobs` read it.
    ValueError
        Before the first fit: if `estimator` has no parameter `n_clusters`, a candidate
        is not an integer or out of range, X has too few samples, or another parameter
        is out of its range.

    See Also
    --------
    stability : The measure, for one estimator.
    sk_mice.metrics.silhouette_scorer : The silhouette in the table.

    Notes
    -----
    The rule is that of Tibshirani and Walther [1]_, who take the largest number above a
    fixed value of their own measure of stability. The standard error is as in the
    selection of a model by cross-validation [2]_; as the repeats share samples, it is
    somewhat too small. Several numbers may be stable, since clusters that are clearly
    apart merge in the same way in each half. The largest of these numbers says the
    most. A fit that leaves clusters empty, such as one of more clusters than there are
    different samples, counts as an agreement of 0 in its half.

    The silhouette is that of each model's clusters of the half that it was not fitted
    to. It does not influence the choice, because for MiCE it prefers few clusters.

    The candidates are compared with each other, which does not tell whether there are
    any clusters: k-means finds much the same four quarters of a uniform square each
    time. A single cluster cannot be a candidate.

    References
    ----------
    .. [1] Tibshirani and Walther, "Cluster Validation by Prediction Strength", Journal
       of Computational and Graphical Statistics 14, 2005.
    .. [2] Breiman, Friedman, Olshen and Stone, "Classification and Regression Trees",
       1984, section 3.4.3.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from sk_mice import SphericalKMeans
    >>> from sk_mice.model_selection import choose_n_clusters
    >>> centers = [[9, 0, 0], [0, 9, 0], [0, 0, 9]]
    >>> X, _ = make_blobs(200, centers=centers, random_state=0)
    >>> choose_n_clusters(SphericalKMeans(), X, [2, 3, 4, 5], random_state=0)
    3 clusters: the largest candidate whose stability is within one standard
    error of the best (1.00 at 3 clusters). Mean ± standard deviation over 20 splits:
    n_clusters    stability     silhouette
             2    0.21 ± 0.29    0.63 ± 0.02
             3    1.00 ± 0.00    0.97 ± 0.00   <- choice
             4    0.81 ± 0.08    0.78 ± 0.02
             5    0.62 ± 0.10    0.61 ± 0.05
    """
    X = from_dataset(X)
    name = _name_of_n_clusters(estimator)
    candidates = _check_candidates(candidates, _check_n_samples(X))
    estimators = [clone(estimator).set_params(**{name: k}) for k in candidates]
    splits = _random_splits(n_repeats, random_state)
    scores = [_agreement, _silhouette]
    measured = _measured(estimators, X, splits, scores, n_jobs, verbose, least=2)
    return _choose(candidates, *measured.T)


@dataclass(frozen=True, repr=False)
class NClustersChoice:
    """The result of `choose_n_clusters`: measurements and choice.

    Attributes
    ----------
    n_clusters : int
        The largest candidate whose mean stability is at least `threshold`.
    table : list of dict
        A row for each candidate, by size: `n_clusters`, and the mean and the standard
        deviation over the repeats, in `stability_mean`, `stability_std`,
        `silhouette_mean` and `silhouette_std`. ``pandas.DataFrame(choice.table)`` is a
        data frame.
    threshold : float
        The best mean stability less its standard error.
    n_repeats : int
        Number of random splits.

    See Also
    --------
    choose_n_clusters : Returns it, and explains how the number is chosen.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sk_mice import SphericalKMeans
    >>> from sk_mice.model_selection import choose_n_clusters
    >>> X = load_iris().data
    >>> choice = choose_n_clusters(SphericalKMeans(), X, [2, 3, 4], random_state=0)
    >>> skm = SphericalKMeans(choice.n_clusters, random_state=0).fit(X)
    >>> [row["n_clusters"] for row in choice.table]
    [2, 3, 4]
    >>> choice.plot().get_xlabel()
    'number of clusters'
    """

    n_clusters: int
    table: list
    threshold: float
    n_repeats: int

    def plot(self, ax=None) -> Any:
        """Draw stability and silhouette over the number of clusters.

        Error bars are standard errors of the mean. The dashed line is the threshold.
        The choice, in a ring, is the largest number that reaches it.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure if None.

        Returns
        -------
        ax : matplotlib Axes
        """
        from .inspection._drawing import panels

        _, (ax,) = panels(ax, 1, None)
        numbers = [row["n_clusters"] for row in self.table]
        styles: dict[str, dict] = {
            "silhouette": {"color": "0.6", "marker": "s", "markersize": 4},
            "stability": {"color": "C0", "marker": "o"},
        }
        for measure, style in styles.items():
            means = [row[f"{measure}_mean"] for row in self.table]
            errors = [row[f"{measure}_std"] for row in self.table]
            errors = np.array(errors) / np.sqrt(self.n_repeats)
            ax.errorbar(numbers, means, errors, label=measure, capsize=3, **style)
        k = self.n_clusters
        (height,) = [r["stability_mean"] for r in self.table if r["n_clusters"] == k]
        ring = {"s": 200, "facecolors": "none", "edgecolors": "C3", "linewidths": 2}
        ax.scatter(k, height, label=f"choice: {k} clusters", zorder=3, **ring)
        dashed = {"color": "C0", "linestyle": "--", "linewidth": 1}
        label = "best stability less its standard error"
        ax.axhline(self.threshold, label=label, **dashed)
        ylabel = f"mean over {self.n_repeats} random splits"
        ax.set(xlabel="number of clusters", ylabel=ylabel)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.grid(alpha=0.3)
        ax.legend()
        return ax

    def __repr__(self):
        best = max(self.table, key=lambda row: row["stability_mean"])
        lines = [
            f"{self.n_clusters} clusters: the largest candidate whose stability is "
            "within one standard",
            f"error of the best ({best['stability_mean']:.2f} at "
            f"{best['n_clusters']} clusters). Mean ± standard deviation over "
            f"{self.n_repeats} splits:",
            "n_clusters    stability     silhouette",
        ]
        for row in self.table:
            chosen = "<- choice" if row["n_clusters"] == self.n_clusters else ""
            cells = (
                f"{row[f'{name}_mean']:5.2f} ± {row[f'{name}_std']:.2f}"
                for name in ("stability", "silhouette")
            )
            line = "   ".join([f"{row['n_clusters']:10}", *cells, chosen])
            lines.append(line.rstrip())
        if best["stability_mean"] < WEAK:
            lines.append("No candidate gives clusters that are found again reliably.")
        elif self.n_clusters == self.table[-1]["n_clusters"]:
            lines.append("This is the largest candidate: try larger ones.")
        return "\n".join(lines)


def _choose(candidates, stabilities, silhouettes):
    """Apply the rule to measurements of shape (n_candidates, n_repeats)."""
    columns = {"n_clusters": candidates}
    for name, values in {"stability": stabilities, "silhouette": silhouettes}.items():
        columns[f"{name}_mean"] = values.mean(axis=1).tolist()
        columns[f"{name}_std"] = values.std(axis=1, ddof=1).tolist()
    rows = zip(*columns.values(), strict=True)
    table = [dict(zip(columns, row, strict=True)) for row in rows]
    n_repeats = stabilities.shape[1]
    best = max(table, key=lambda row: row["stability_mean"])
    threshold = best["stability_mean"] - best["stability_std"] / np.sqrt(n_repeats)
    n_clusters = max(
        row["n_clusters"] for row in table if row["stability_mean"] >= threshold
    )
    return NClustersChoice(n_clusters, table, float(threshold), n_repeats)


def _random_splits(n_repeats, random_state) -> list[list[int]]:
    """For each repeat, the seed of its split and those of two fits."""
    rng = check_random_state(random_state)
    return [rng.randint(2**31 - 1, size=3).tolist() for _ in range(n_repeats)]


def _measured(estimators, X, splits, scores, n_jobs, verbose, *, least):
    """Scores of each estimator in each split, (n_splits, n_estimators, n_scores).

    After Ctrl-C those of the whole splits; KeyboardInterrupt if there are fewer than
    `least`.
    """
    # Splits outside: the mean time of a fit is soon that over all estimators. Processes
    # get X, of which joblib keeps one copy, and not halves: it would keep all of them.
    tasks = (
        delayed(_measure_anywhere)(os.getpid(), estimator, X, split, scores)
        for split in splits
        for estimator in estimators
    )
    found, n_whole = [], len(splits)
    bar = tqdm(
        total=2 * len(splits) * len(estimators),
        disable=not verbose,
        smoothing=0,
        bar_format="{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} fits "
        "[{elapsed}, {remaining} left]",
    )
    try:
        with bar, _room_for_samples():
            for values, warned in Parallel(n_jobs, return_as="generator")(tasks):
                found.append(values)
                bar.update(2)
                for text, category in warned:
                    warn_user(text, category)
    except KeyboardInterrupt:
        n_whole = len(found) // len(estimators)
        if n_whole < least:
            raise
        warn_user(
            f"Interrupted: the result is that of {n_whole} of {len(splits)} random "
            "splits.",
            ConvergenceWarning,
        )
    whole = found[: n_whole * len(estimators)]
    return np.reshape(whole, (n_whole, len(estimators), len(scores)))


@contextmanager
def _room_for_samples():
    """Say it if the samples that processes share fill the disk: joblib does not."""
    try:
        yield
    except pickle.PicklingError as error:
        if os.strerror(errno.ENOSPC) not in str(error.__cause__):
            raise
        raise OSError(
            "The folder for temporary files has no room for X, which processes share. "
            "JOBLIB_TEMP_FOLDER names another one; with `n_jobs` 1, none is needed."
        ) from error


def _measure_anywhere(pid, *task):
    """What `_measure` returns, and the warnings of a process other than `pid`.

    There, Python prints them, with lines of libraries, and no caller can catch them.
    """
    if os.getpid() == pid:
        return _measure(*task), []
    with warnings.catch_warnings(record=True) as caught:
        values = _measure(*task)
    return values, [(str(warning.message), warning.category) for warning in caught]


def _measure(estimator, X, split, scores):
    """Scores of two clones, each fitted to a random half with a seed of its own."""
    of_halves, *seeds = split
    halves = train_test_split(X, train_size=0.5, random_state=of_halves)
    models = []
    with ended_by_ctrl_c():
        for half, seed in zip(halves, seeds, strict=True):
            model, rng = clone(estimator), np.random.RandomState(seed)
            new = {name: rng.randint(2**31 - 1) for name in names_of_seeds(model)}
            models.append(model.set_params(**new).fit(half))
        return [score(models, halves) for score in scores]


def _agreement(models, halves):
    """Adjusted Rand index of two models' clusters, mean over two halves.

    It is 0 if a model leaves clusters of its own half empty: any larger number of
    clusters would be as reproducible.
    """
    values = []
    for i, half in enumerate(halves):
        partitions = [model.predict(half) for model in models]
        found = [len(np.unique(labels)) for labels in partitions]
        is_whole = min(found) > 1 and found[i] >= _n_asked(models[i])
        values.append(adjusted_rand_score(*partitions) if is_whole else 0.0)
    return np.mean(values)


def _n_asked(model) -> int:
    """How many clusters a model was asked for; 0 if it chose the number itself."""
    n_clusters = getattr(last_step(model)[0], "n_clusters", 0)
    return int(n_clusters) if isinstance(n_clusters, Integral) else 0


def _silhouette(models, halves):
    """Silhouette of each model's clusters of the half it has not seen, mean of both."""
    unseen = zip(models, halves[::-1], strict=True)
    return np.mean([silhouette_scorer(model, half) for model, half in unseen])


def _name_of_n_clusters(estimator):
    """Name of the parameter `n_clusters` of an estimator, or of its last step's."""
    last, prefix = last_step(estimator)
    name = f"{prefix}n_clusters"
    if name not in clone(estimator).get_params():
        raise ValueError(
            "`estimator`, or the last step of a Pipeline, must have a parameter "
            f"`n_clusters`; got {last!r}."
        )
    return name


def _check_n_samples(X):
    """Return the number of samples; refuse fewer than two for each half."""
    n_samples = _num_samples(X)
    if n_samples < LEAST_SAMPLES:
        raise ValueError(
            f"`X` must have at least {LEAST_SAMPLES} samples, two for each half; got "
            f"{n_samples}."
        )
    return n_samples


def _check_candidates(candidates, n_samples):
    """Return the candidates as sorted ints, each once."""
    most = n_samples // 2
    rule = f"`candidates` must be integers from 2 to n_samples / 2 = {most}"
    try:
        values = list(candidates)
    except TypeError:
        raise ValueError(f"{rule}, in a list; got {candidates!r}.") from None
    if not values:
        raise ValueError(f"{rule}; got none.")
    for value in values:
        if not Count(2, most).is_satisfied_by(value):
            raise ValueError(f"{rule}; got {value!r}.")
    return sorted({int(value) for value in values})
