"""A map of embeddings in two dimensions."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.manifold import TSNE
from sklearn.utils import check_array, check_random_state
from sklearn.utils._param_validation import HasMethods, StrOptions, validate_params
from sklearn.utils.validation import _num_samples

from .._constraints import Count
from .._engine.arrays import as_array
from .._pipelines import last_with_input
from ..metrics import _encode, _encode_classes, _space_of
from ._drawing import (
    AS_IT_IS,
    background,
    clusters_of,
    estimator_and_samples,
    fair_sample,
    in_short,
    one_each,
    panels,
    pyplot,
    room,
    shades,
)

MARKERS = "os^DvPX<"
UNKNOWN = "0.8"  # grey, of samples whose class is missing
NAMES = 0.15  # share of the map that names may cover
SMALLEST_TEXT, LARGEST_TEXT = 5, 12  # points of names
N_TRIED = 300  # places of a name, from its own on
FAR = 1e12  # t-SNE needs largest values below this, and above its inverse
_CONSTRAINTS = {
    "n_points": [Count(3)],
    "reducer": [HasMethods(["fit_transform"]), None],
    "random_state": ["random_state"],
    "color_by": [StrOptions({"cluster", "class"}), None],
}


@dataclass(kw_only=True, eq=False, repr=False)
class EmbeddingDisplay:
    """A map of embeddings in two dimensions, by cluster or by class.

    Every group has its name on the map, its own colour, in order of luminance, and
    a marker, so that the map can be read in grey. Create it with `from_estimator` or
    `from_predictions`.

    Parameters
    ----------
    points : ndarray of shape (n, 2)
        Places of the samples that are shown.
    indices : ndarray of shape (n,)
        Their places in X.
    n_samples : int
        N, of which the n are a sample.
    y_pred, y_true : ndarrays of shape (n,), default=None
        Their clusters and classes, at least one of them.
    reducer_name : str, default="t-SNE"
        The method that found the points, for the title.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    See Also
    --------
    ClusterGalleryDisplay : What is in the clusters.

    Notes
    -----
    t-SNE keeps neighbours together. The sizes of groups on the map, and the distances
    between them, mean little.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sk_mice import SphericalKMeans
    >>> from sk_mice.inspection import EmbeddingDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> skm = SphericalKMeans(3, random_state=0).fit(X)
    >>> display = EmbeddingDisplay.from_estimator(skm, X, y, n_points=60)
    >>> display.points.shape
    (60, 2)
    >>> display.plot(color_by="class").ax_.get_title()
    't-SNE of 60 of 150 samples, by class'
    """

    points: np.ndarray
    indices: np.ndarray
    n_samples: int
    y_pred: np.ndarray | None = None
    y_true: np.ndarray | None = None
    reducer_name: str = "t-SNE"

    @classmethod
    @validate_params(_CONSTRAINTS, prefer_skip_nested_validation=True)
    def from_estimator(
        cls,
        estimator,
        X,
        y=None,
        *,
        n_points=2000,
        reducer=None,
        random_state: Any = 0,
        color_by=None,
        ax=None,
        cmap: Any = "viridis",
    ) -> Self:
        """Map the embeddings of an estimator.

        Parameters
        ----------
        estimator : object
            Fitted. `transform` gives the embeddings; without it, or if it gives
            distances to `cluster_centers_`, the input of the estimator is mapped.
            `predict` gives the clusters, or `labels_` if X is that of its fit.
        X : array-like of N samples, or list of N paths
            As the estimator takes them.
        y : array-like of shape (N,), default=None
            Classes; needed if the estimator has no clusters.
        n_points : int, default=2000
            Largest number of samples on the map. They are chosen at random from each
            cluster (from each class if there are no clusters) in proportion to its
            size, and at least one from each if there is room for all clusters.
        reducer : transformer, default=None
            Maps embeddings to two dimensions by `fit_transform`; it is cloned. None is
            t-SNE with a perplexity of 30, or (n - 1) / 3 for n < 91 points. Embeddings
            in two dimensions are drawn as they are.
        random_state : int, RandomState or None, default=0
            Determines the choice of samples, and t-SNE.
        color_by : {"cluster", "class"}, default=None
            What a group is; None is clusters if there are any, and classes otherwise.
        ax : matplotlib Axes, default=None
            Where to draw; a new figure if None.
        cmap : str or Colormap, default="viridis"
            Colours of the groups. Choose a map whose luminance rises or falls
            throughout. On white, the last 15% are not used, because yellow is faint
            there.

        Returns
        -------
        EmbeddingDisplay

        Raises
        ------
        ValueError
            If there are no groups, or not those of `color_by`; if `y` and X differ in
            length; or if all embeddings are equal.
        """
        pyplot()  # raises ImportError before any work
        estimator, X = estimator_and_samples(estimator, X)
        y = one_each(y, _num_samples(X), "y")
        estimator, X = last_with_input(estimator, X)
        clusters = clusters_of(estimator, X, needed=False)
        _check_groups(color_by, clusters, y)
        return cls.from_predictions(
            _space_of(estimator, X),
            clusters,
            y_true=y,
            n_points=n_points,
            reducer=reducer,
            random_state=random_state,
            color_by=color_by,
            ax=ax,
            cmap=cmap,
        )

    @classmethod
    @validate_params(_CONSTRAINTS, prefer_skip_nested_validation=True)
    def from_predictions(
        cls,
        X,
        y_pred=None,
        *,
        y_true=None,
        n_points=2000,
        reducer=None,
        random_state: Any = 0,
        color_by=None,
        ax=None,
        cmap: Any = "viridis",
    ) -> Self:
        """Map given embeddings.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Embeddings, D of at least 2.
        y_pred, y_true : array-like of shape (N,), default=None
            Clusters and classes, at least one of them. Classes may be missing: None or
            NaN.
        n_points, reducer, random_state, color_by, ax, cmap
            As in `from_estimator`.

        Returns
        -------
        EmbeddingDisplay

        Raises
        ------
        ValueError
            As in `from_estimator`.
        """
        pyplot()  # raises ImportError before any work
        X = check_array(as_array(X), accept_sparse="csr", ensure_min_features=2)
        n_samples = X.shape[0]
        y_pred = one_each(y_pred, n_samples, "y_pred")
        y_true = one_each(y_true, n_samples, "y_true")
        _check_groups(color_by, y_pred, y_true)
        rng = check_random_state(random_state)
        _, codes = _encode_classes(y_true) if y_pred is None else _encode(y_pred)
        indices = fair_sample(codes - codes.min(), n_points, rng)
        chosen = X[indices].toarray() if issparse(X) else X[indices]
        if chosen.dtype not in (np.float32, np.float64):
            chosen = chosen.astype(np.float64)
        points, reducer_name = _in_the_plane(chosen, reducer, rng)
        display = cls(
            points=points,
            indices=indices,
            n_samples=n_samples,
            y_pred=None if y_pred is None else y_pred[indices],
            y_true=None if y_true is None else y_true[indices],
            reducer_name=reducer_name,
        )
        return display.plot(ax, color_by=color_by, cmap=cmap)

    def plot(self, ax=None, *, color_by=None, cmap: Any = "viridis") -> Self:
        """Draw the map.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure if None.
        color_by : {"cluster", "class"}, default=None
            What a group is: clusters if None and there are any.
        cmap : str or Colormap, default="viridis"
            As in `from_estimator`.

        Returns
        -------
        self
        """
        by = _check_groups(color_by, self.y_pred, self.y_true)
        if by == "cluster":
            groups, codes = _encode(self.y_pred)
        else:
            groups, codes = _encode_classes(self.y_true)
        self.figure_, (ax,) = panels(ax, 1, (7, 7))
        self.ax_ = ax
        size = np.clip(20_000 / len(self.points), 6, 30)
        if (codes < 0).any():
            ax.scatter(*self.points[codes < 0].T, s=size, color=UNKNOWN, linewidths=0)
        for k, colour in enumerate(shades(ax, len(groups), cmap)):
            marker = MARKERS[k % len(MARKERS)]
            own = self.points[codes == k]
            ax.scatter(*own.T, s=size, color=colour, marker=marker, linewidths=0)
        of = "" if len(codes) == self.n_samples else f" of {self.n_samples:,}"
        title = f"{self.reducer_name} of {len(codes):,}{of} samples, by {by}"
        low, high = self.points.min(axis=0), self.points.max(axis=0)
        middle, half = (low + high) / 2, 0.53 * (high - low).max() or 1
        xlim, ylim = zip(middle - half, middle + half, strict=True)
        ax.set(xticks=[], yticks=[], title=title, xlim=xlim, ylim=ylim, aspect="equal")
        places = [_midmost(self.points[codes == k]) for k in range(len(groups))]
        _write_names(ax, groups, places, np.bincount(codes[codes >= 0]))
        return self


def _check_groups(color_by, clusters, classes):
    """Return "cluster" or "class", or raise ValueError if there are none of them."""
    groups = {"cluster": clusters, "class": classes}
    known = [name for name, values in groups.items() if values is not None]
    if not known:
        raise ValueError(
            "A map needs clusters or classes (`y`, `y_true`); got neither."
        )
    if color_by is None:
        return known[0]
    if color_by not in known:
        raise ValueError(f"`color_by` must be one of {known} here; got {color_by!r}.")
    return color_by


def _in_the_plane(X, reducer, rng):
    """Points (n, 2), and the name of what found them."""
    if X.shape[1] == 2 and reducer is None:
        return X, "Map"
    if not np.ptp(X, axis=0).any():
        raise ValueError(
            f"A map needs embeddings that differ; got {len(X)} equal ones."
        )
    if reducer is None:
        perplexity = min(30, (len(X) - 1) / 3)
        seed = rng.randint(2**31 - 1)
        peak = np.abs(X).max()
        if not 1 / FAR < peak < FAR:
            X = X / peak  # squares beyond float32 end t-SNE, or the process
        tsne = TSNE(perplexity=perplexity, init="pca", random_state=seed)
        # `set_output` may give a data frame.
        return np.asarray(tsne.fit_transform(X)), "t-SNE"
    points = np.asarray(clone(reducer).fit_transform(X))
    if points.shape != (len(X), 2):
        raise ValueError(
            f"`reducer` must give points of shape {(len(X), 2)}; got {points.shape}."
        )
    return points, type(reducer).__name__.replace("TSNE", "t-SNE")


def _midmost(points):
    """The point nearest to the median, where the points of another group may be."""
    distances = np.hypot(*(points - np.median(points, axis=0)).T)
    return points[distances.argmin()]


def _write_names(ax, names, places, sizes):
    """Write names at their places, or as near as no other name is.

    The names of large groups come first. A line leads from a name to its place.
    """
    from matplotlib.patheffects import withStroke

    names = [in_short(name) for name in names]
    fitting = np.sqrt(NAMES * np.prod(room(ax)) / max(sum(map(len, names)), 1))
    style = AS_IT_IS | {
        "size": np.clip(fitting, SMALLEST_TEXT, LARGEST_TEXT),
        "weight": "bold",
        "ha": "center",
        "va": "center",
        "path_effects": [withStroke(linewidth=2.5, foreground=background(ax))],
        "textcoords": "offset points",
        "arrowprops": {"arrowstyle": "-", "linewidth": 0.8, "shrinkA": 0, "shrinkB": 0},
    }
    frame, taken = ax.get_window_extent().extents, np.empty((0, 4))
    turns = np.arange(N_TRIED)
    spiral = np.sqrt(turns)[:, None] * np.c_[np.cos(2.4 * turns), np.sin(2.4 * turns)]
    for k in np.argsort(-sizes, kind="stable"):
        text = ax.annotate(names[k], places[k], (0, 0), **style)
        text.set_in_layout(False)
        box = text.get_window_extent().extents
        tried = spiral * (box[3] - box[1]) / 2
        boxes = box + np.c_[tried, tried]
        reach = np.r_[boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)]
        near = taken[_overlap(reach, taken)]
        hits = _overlap(boxes[:, None], near).sum(axis=1)
        hits += ((boxes[:, :2] < frame[:2]) | (boxes[:, 2:] > frame[2:])).any(axis=1)
        best = hits.argmin()
        taken = np.r_[taken, boxes[[best]]]
        text.set_position(tried[best] * 72 / ax.figure.dpi)
        text.arrow_patch.set_visible(best > 0)


def _overlap(some, others):
    """Whether boxes overlap, (..., 4) of left, bottom, right and top."""
    apart = (some[..., :2] >= others[..., 2:]) | (others[..., :2] >= some[..., 2:])
    return ~apart.any(axis=-1)
