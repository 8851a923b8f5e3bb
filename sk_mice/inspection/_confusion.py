"""Classes and clusters after the best matching."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import _num_samples

from .._words import count
from ..metrics import _matching
from ._drawing import (
    AS_IT_IS,
    clusters_of,
    estimator_and_samples,
    in_short,
    one_each,
    panels,
    pyplot,
    room,
)

MOST_CELLS = 20  # classes or clusters, up to which counts are written
SMALLEST_TEXT, LARGEST_TEXT = 4, 10  # points of names; some are left out below
LETTER = 0.08  # inches of a letter of a name, for which the figure has room


@dataclass(eq=False, repr=False)
class MatchedConfusionDisplay:
    """Counts of classes and clusters, the best match of each class on the diagonal.

    The title has the ACC, the share of samples on the diagonal. Classes without a
    cluster, or clusters without a class, come last. Create it with `from_estimator` or
    `from_predictions`.

    Parameters
    ----------
    confusion_matrix : ndarray of shape (n_classes, n_clusters)
        Counts, in the order of the names.
    classes : list of n_classes names
    clusters : list of n_clusters names

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    See Also
    --------
    sk_mice.metrics.clustering_accuracy_score : The ACC.
    sk_mice.metrics.match_labels : Clusters by the names of their classes.

    Examples
    --------
    >>> from sk_mice.inspection import MatchedConfusionDisplay
    >>> display = MatchedConfusionDisplay.from_predictions(
    ...     ["cat", "cat", "dog", "dog", "dog"], [1, 1, 0, 0, 1]
    ... )
    >>> display.confusion_matrix
    array([[2, 0],
           [1, 2]])
    >>> display.ax_.get_title()
    'ACC 0.800: 5 samples, 2 clusters, 2 classes'
    """

    confusion_matrix: np.ndarray
    _: KW_ONLY
    classes: list
    clusters: list

    @classmethod
    def from_estimator(cls, estimator, X, y, *, ax=None, cmap: Any = "Blues") -> Self:
        """Compare the clusters that an estimator predicts with classes.

        Parameters
        ----------
        estimator : object
            Fitted, with `predict`, or with `labels_` if X holds the samples of its fit.
        X : array-like of N samples, or list of N paths
            As the estimator takes them.
        y : array-like of shape (N,)
            Classes.
        ax : matplotlib Axes, default=None
            Where to draw; a new figure if None.
        cmap : str or Colormap, default="Blues"
            Colours of the shares of a class, from 0 to the largest. Choose a map whose
            luminance rises or falls throughout.

        Returns
        -------
        MatchedConfusionDisplay

        Raises
        ------
        ValueError, TypeError
            If `y` and X differ in length, or if the estimator cannot predict.
        """
        pyplot()  # raises ImportError before any work
        estimator, X = estimator_and_samples(estimator, X)
        y = one_each(y, _num_samples(X), "y")
        return cls.from_predictions(y, clusters_of(estimator, X), ax=ax, cmap=cmap)

    @classmethod
    def from_predictions(cls, y_true, y_pred, *, ax=None, cmap: Any = "Blues") -> Self:
        """Compare given clusters with classes.

        Parameters
        ----------
        y_true, y_pred : array-like of shape (N,)
            Classes and clusters. Samples whose class is None or NaN do not count.
        ax, cmap
            As in `from_estimator`.

        Returns
        -------
        MatchedConfusionDisplay

        Raises
        ------
        ValueError
            If the two differ in length, or there is no class.
        """
        pyplot()  # raises ImportError before any work
        classes, clusters, _, counts, (rows, columns) = _matching(y_true, y_pred)
        rows = [*rows, *np.setdiff1d(np.arange(len(classes)), rows)]
        columns = [*columns, *np.setdiff1d(np.arange(len(clusters)), columns)]
        display = cls(
            counts[np.ix_(rows, columns)],
            classes=classes[rows].tolist(),
            clusters=clusters[columns].tolist(),
        )
        return display.plot(ax, cmap=cmap)

    def plot(self, ax=None, *, cmap: Any = "Blues") -> Self:
        """Draw the matrix; the counts are written for up to 20 classes and clusters.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure if None.
        cmap : str or Colormap, default="Blues"
            As in `from_estimator`.

        Returns
        -------
        self
        """
        counts = self.confusion_matrix
        shares = counts / counts.sum(axis=1, keepdims=True)
        classes = [in_short(name) for name in self.classes]
        clusters = [in_short(name) for name in self.clusters]
        beside, below = (LETTER * max(map(len, own)) for own in (classes, clusters))
        height, width = np.clip(0.5 * np.array(counts.shape), 3.5, 14)
        size = width + 1.5 + beside, height + 0.5 + below
        self.figure_, (ax,) = panels(ax, 1, size)
        self.ax_ = ax
        is_long = max(counts.shape) > 2 * min(counts.shape)  # squares would be tiny
        aspect = "auto" if is_long else "equal"
        image = ax.imshow(shares, cmap=cmap, vmin=0, vmax=shares.max(), aspect=aspect)
        ax.figure.colorbar(image, ax=ax, label="share of the class", shrink=0.8)
        acc = np.trace(counts) / counts.sum()
        n = len(classes)
        of = f"{count(counts.sum(), 'sample')}, {count(len(clusters), 'cluster')}"
        of += f", {n:,} {'class' if n == 1 else 'classes'}"
        ax.set(xlabel="cluster", ylabel="class", title=f"ACC {acc:.3f}: {of}")
        turned = {"rotation": 90} if max(map(len, clusters)) > 2 else {}
        axes = (ax.yaxis, classes, AS_IT_IS), (ax.xaxis, clusters, AS_IT_IS | turned)
        # The longest names alone, so that the layout leaves room for them.
        for axis, names, style in axes:
            axis.set_ticks([0], [max(names, key=len)], size=LARGEST_TEXT, **style)
        cells = room(ax) / counts.shape
        for (axis, names, style), side in zip(axes, cells, strict=True):
            points = min(LARGEST_TEXT, 0.65 * side)
            step = math.ceil(SMALLEST_TEXT / points)
            style = style | {"size": max(points, SMALLEST_TEXT)}
            axis.set_ticks(range(0, len(names), step), names[::step], **style)
        if max(counts.shape) <= MOST_CELLS:
            letters = len(str(counts.max()))
            size = min(9, 0.75 * cells[0], 1.3 * cells[1] / letters)
            for place in np.argwhere(counts):
                _write(ax, image, place, counts, shares, size)
        return self


def _write(ax, image, place, counts, shares, size):
    """Write a count in black or white, whichever its cell makes legible."""
    i, j = place
    luminance = image.cmap(image.norm(shares[i, j]))[:3] @ np.array([0.2, 0.7, 0.1])
    colour = "black" if luminance > 0.5 else "white"
    style = {"ha": "center", "va": "center", "size": size, "color": colour}
    ax.text(j, i, f"{counts[i, j]}", **style)
