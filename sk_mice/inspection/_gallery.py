"""A gallery: a row of images for each cluster."""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from PIL import Image
from scipy.sparse import issparse
from sklearn.utils._param_validation import validate_params

from .._constraints import Count
from .._engine.dataset import rows_of
from .._pipelines import first_step, last_with_input
from .._words import count
from ..datasets._paths import pictures
from ..metrics import _encode, _encode_classes
from ._drawing import (
    AS_IT_IS,
    clusters_of,
    estimator_and_samples,
    in_short,
    one_each,
    panels,
    paths_or_samples,
    pyplot,
    room,
)

MOST_ROWS = 25  # below each other
THUMBNAIL = 96  # pixels of the longer side
CELL = 0.5  # inches of a row
WIDEST = 3  # times the height of a row
TEXT = 8  # points of the text beside a row, at most
LETTER, LINE = 0.58, 1.25  # width of a letter and height of a line, in font sizes
TITLE = 3.2  # inches
FRAME = "#d55e00"  # vermilion, which colour-blind eyes tell from grey and blue


@dataclass(kw_only=True, eq=False, repr=False)
class ClusterGalleryDisplay:
    """A row of images for each cluster, the surest first.

    Create it with `from_estimator` or `from_predictions`.

    Parameters
    ----------
    images : list of K ndarrays of shape (n, H, W, C)
        The images shown of each cluster, in [0, 1], C of 1 (grey) or 3.
    indices : list of K ndarrays of shape (n,)
        Their places in X.
    clusters : ndarray of shape (K,)
        Names of the clusters, sorted.
    sizes : ndarray of shape (K,)
        Number of samples in each.
    n_samples : int
        N.
    confidence : ndarray of shape (K,), default=None
        Mean confidence of the samples in each cluster.
    majority : list of K classes, default=None
        The most frequent class in each cluster; None where none is known.
    purity : ndarray of shape (K,), default=None
        The share of that class in the cluster.
    is_other : list of K ndarrays of bool of shape (n,), default=None
        Whether each image that is shown is of a class other than the majority.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    See Also
    --------
    EmbeddingDisplay : The clusters on a map.

    Examples
    --------
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_digits
    >>> from sk_mice.inspection import ClusterGalleryDisplay
    >>> X, y = load_digits(n_class=3, return_X_y=True)
    >>> kmeans = KMeans(3, random_state=0).fit(X)
    >>> display = ClusterGalleryDisplay.from_estimator(kmeans, X, y, image_shape=(8, 8))
    >>> int(display.sizes.sum()), sorted(display.majority)
    (537, [0, 1, 2])
    """

    images: list
    indices: list
    clusters: np.ndarray
    sizes: np.ndarray
    n_samples: int
    confidence: np.ndarray | None = None
    majority: list | None = None
    purity: np.ndarray | None = None
    is_other: list | None = None

    @classmethod
    @validate_params({"n_images": [Count(1)]}, prefer_skip_nested_validation=True)
    def from_estimator(
        cls,
        estimator,
        X,
        y=None,
        *,
        n_images=10,
        image_shape=None,
        ax=None,
        cmap: Any = "gray",
    ) -> Self:
        """Show the clusters that an estimator predicts.

        The largest value of `predict_proba` sorts the images, as it ranks them best.
        The confidence that is written is the mean of `agreement` in the own cluster,
        which is on a scale that can be read. If an estimator has only one of the two
        methods, it serves both purposes; without either, images come in the order of X.

        Parameters
        ----------
        estimator : object
            Fitted, with `predict`, or with `labels_` if X holds the samples of its fit.
        X : array-like of N samples, or list of N paths
            Images in a layout that `MiCEClustering` takes, or flattened ones; also
            image files, for a pipeline that begins with
            :class:`~sk_mice.features.PretrainedFeatures`.
        y : array-like of shape (N,), default=None
            Classes, which are written beside the clusters.
        n_images : int, default=10
            Images in a row, at most.
        image_shape : tuple (H, W), (H, W, C) or (C, H, W), default=None
            Shape of flattened images, and of images with a number of channels other
            than 1, 3 or 4; that of the estimator, or of the first step of a Pipeline,
            if None. It has no effect on files.
        ax : matplotlib Axes, default=None
            Where to draw; a new figure if None.
        cmap : str or Colormap, default="gray"
            Colours of images with one channel. "gray_r" is black on white.

        Returns
        -------
        ClusterGalleryDisplay

        Raises
        ------
        ValueError, TypeError
            If X holds no images, if `y` is not of its length, or if the estimator
            cannot predict.
        """
        pyplot()  # raises ImportError before any work
        estimator, X = estimator_and_samples(estimator, X)
        _check_images(X)
        y = one_each(y, len(X), "y")
        if image_shape is None:
            image_shape = _own_shape(estimator, X)
        if not isinstance(X, list):
            _layout(X, image_shape)  # refuses vectors before any long work
        last, given = last_with_input(estimator, X)
        y_pred = clusters_of(last, given)
        confidence = rank_by = None
        if hasattr(last, "predict_proba"):
            confidence = rank_by = last.predict_proba(given).max(axis=1)
        if hasattr(last, "agreement"):
            confidence = last.agreement(given)[np.arange(len(X)), y_pred]
        return cls.from_predictions(
            X,
            y_pred,
            y_true=y,
            confidence=confidence,
            rank_by=rank_by,
            n_images=n_images,
            image_shape=image_shape,
            ax=ax,
            cmap=cmap,
        )

    @classmethod
    @validate_params({"n_images": [Count(1)]}, prefer_skip_nested_validation=True)
    def from_predictions(
        cls,
        X,
        y_pred,
        *,
        y_true=None,
        confidence=None,
        rank_by=None,
        n_images=10,
        image_shape=None,
        ax=None,
        cmap: Any = "gray",
    ) -> Self:
        """Show given clusters.

        Parameters
        ----------
        X : array-like of N samples
            As in `from_estimator`.
        y_pred : array-like of shape (N,)
            Clusters.
        y_true : array-like of shape (N,), default=None
            Classes; None and NaN are missing ones.
        confidence : array-like of shape (N,), default=None
            Confidence of each sample, whose mean is written beside its cluster.
        rank_by : array-like of shape (N,), default=None
            Values by which the images are sorted, the largest first; `confidence` if
            None.
        n_images, image_shape, ax, cmap
            As in `from_estimator`.

        Returns
        -------
        ClusterGalleryDisplay

        Raises
        ------
        ValueError
            As in `from_estimator`.
        """
        pyplot()  # raises ImportError before any work
        X = paths_or_samples(X)
        _check_images(X)
        n = len(X)
        clusters, codes = _encode(one_each(y_pred, n, "y_pred"))
        y_true = one_each(y_true, n, "y_true")
        confidence = one_each(confidence, n, "confidence")
        rank_by = one_each(rank_by, n, "rank_by")
        if rank_by is None:
            rank_by = np.zeros(n) if confidence is None else confidence
        order = np.argsort(-np.asarray(rank_by, float), kind="stable")
        members = [order[codes[order] == k] for k in range(len(clusters))]
        indices = [own[:n_images] for own in members]
        display = cls(
            images=_images(X, indices, image_shape),
            indices=indices,
            clusters=clusters,
            sizes=np.bincount(codes),
            n_samples=n,
        )
        if confidence is not None:
            display.confidence = np.array([confidence[own].mean() for own in members])
        if y_true is not None:
            display._compare(y_true, members)
        return display.plot(ax, cmap=cmap)

    def _compare(self, y_true, members):
        """Note the majority of each cluster, and which images are of other classes."""
        classes, codes = _encode_classes(y_true)
        known = [codes[own][codes[own] >= 0] for own in members]
        counts = np.array([np.bincount(own, minlength=len(classes)) for own in known])
        largest, sizes, names = counts.argmax(1), counts.sum(1), classes.tolist()
        pairs = zip(largest, sizes, strict=True)
        self.majority = [names[i] if n else None for i, n in pairs]
        self.purity = counts.max(axis=1) / np.maximum(1, sizes)
        pairs = zip(self.indices, largest, strict=True)
        self.is_other = [
            (codes[shown] >= 0) & (codes[shown] != i) for shown, i in pairs
        ]

    def plot(self, ax=None, *, cmap: Any = "gray") -> Self:
        """Draw the rows, in several columns if there are many.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure if None.
        cmap : str or Colormap, default="gray"
            Of images with one channel.

        Returns
        -------
        self
        """
        n_columns = math.ceil(len(self.clusters) / MOST_ROWS)
        n_rows = math.ceil(len(self.clusters) / n_columns)
        n_shown = max(map(len, self.images))
        words = [self._words(k) for k in range(len(self.clusters))]
        cells = [[_thumbnail(image, cmap) for image in row] for row in self.images]
        height, width = cells[0][0].shape[:2]
        # In units of a row: an image with the gap around it.
        gap = max(1, round(height / 16))
        step = (width + 2 * gap) / (height + 2 * gap)
        tall = min(1, WIDEST / step)  # images that are very wide are lower than a row
        step *= tall
        images = n_shown * step + 0.3
        column = _width(words) * TEXT / 72 + CELL * images
        size = (max(TITLE, n_columns * column + 0.2), CELL * (n_rows + 1.3))
        self.figure_, (ax,) = panels(ax, 1, size)
        self.ax_ = ax
        ax.set_axis_off()
        ax.set_title(self._title(), size=10)
        points, rows = _text_size(room(ax) / (n_rows, n_columns), words, images)
        label = rows + 0.3
        column = label + n_shown * step
        for k, row in enumerate(cells):
            c, r = divmod(k, n_rows)
            left, top = c * column + label, r + (1 - tall) / 2
            extent = (left, left + len(row) * step, top + tall, top)
            ax.imshow(_strip(row, gap), extent=extent)
            style = {"ha": "right", "va": "center", "size": points} | AS_IT_IS
            text = "\n".join(words[k])
            ax.text(left - 0.15, r + 0.5, text, linespacing=1.1, **style)
            if self.is_other is not None:
                for i in np.flatnonzero(self.is_other[k]):
                    _frame(ax, left + i * step, top, step, tall)
        xlim, ylim = (0, n_columns * column + 0.05), (n_rows + 0.05, -0.05)
        ax.set(xlim=xlim, ylim=ylim, aspect="equal")
        return self

    def _words(self, k):
        name = in_short(self.clusters[k])
        lines = [f"cluster {name}: {count(self.sizes[k], 'image')}"]
        if self.confidence is not None:
            lines.append(f"confidence {self.confidence[k]:.2f}")
        if self.majority is not None and self.majority[k] is not None:
            lines.append(f"mostly {in_short(self.majority[k])} ({self.purity[k]:.0%})")
        return lines

    def _title(self):
        of = count(self.n_samples, "image")
        title = f"{count(len(self.clusters), 'cluster')} of {of}"
        if self.is_other is not None and np.concatenate(self.is_other).any():
            title += "\nframed: not of the most frequent class"
        return title


def _images(X, indices, image_shape):
    """Images (n, H, W, C) in [0, 1] at each of some arrays of indices."""
    from .._engine.format import as_tensor, with_range
    from ._thumbnails import as_drawn

    every = np.concatenate(indices)
    if isinstance(X, list):
        X = pictures([X[i] for i in every], THUMBNAIL)
        image_shape, every = None, np.arange(len(X))
    rows = rows_of(X)
    # The range of all of X, as those chosen may all be dark. Refuses NaN and infinity.
    fmt = with_range(_layout(X, image_shape), rows)
    drawn = as_drawn(fmt.as_batch(as_tensor(rows[every])))
    values = drawn.movedim(1, -1).numpy()
    return np.split(values, np.cumsum([len(own) for own in indices])[:-1])


def _layout(X, image_shape):
    """How X holds images; ValueError if it holds vectors."""
    from .._engine.format import layout

    fmt = layout(np.shape(X), image_shape)
    if not fmt.is_image:
        raise ValueError(
            "`X` must hold images of shape (N, H, W), (N, H, W, C) or (N, C, H, W), or "
            f"flattened ones, with `image_shape`; got shape {np.shape(X)}."
        )
    return fmt


def _own_shape(estimator, X):
    """The `image_shape` of the first step; None if X has another, and needs none.

    Of grey images, X may have a dimension of channels that the fit had not.
    """
    from .._engine.format import known_layout

    shape, x_shape = getattr(first_step(estimator), "image_shape", None), np.shape(X)
    is_own = np.array_equal(x_shape[1:], shape)
    return shape if is_own or not known_layout(x_shape) else None


def _check_images(X):
    """Refuse X without samples, and sparse ones."""
    if issparse(X):
        raise ValueError(
            f"`X` must hold images; got a sparse matrix of shape {X.shape}."
        )
    if len(X) == 0:
        raise ValueError("`X` must hold images; got none.")


def _thumbnail(image, cmap):
    """An image (H, W, C) in [0, 1] as small RGBA pixels."""
    if image.shape[2] == 1:
        image = pyplot().get_cmap(cmap)(image[..., 0])
    small = Image.fromarray((255 * image).round().astype(np.uint8)).convert("RGBA")
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    return np.asarray(small)


def _strip(pixels, gap):
    """Images side by side, each with a transparent gap around it."""
    margins = ((gap, gap), (gap, gap), (0, 0))
    return np.concatenate([np.pad(image, margins) for image in pixels], axis=1)


def _width(words):
    """The width of lines of text, in sizes of the text."""
    return LETTER * max(len(line) for lines in words for line in lines)


def _text_size(room, words, images):
    """Points of text beside rows, and its width in heights of a row.

    `room` is the height and width of a row, in points, and `images` the width of its
    images in heights of it. Text is smaller if its lines do not fit into a row.
    """
    height, width = room
    lines, letters = LINE * max(map(len, words)), _width(words)
    row = max((width - letters * TEXT) / images, width / (letters / lines + images))
    row = min(height, row)
    points = min(TEXT, row / lines)
    return points, letters * points / row


def _frame(ax, x, y, width, height):
    from matplotlib.patches import Rectangle

    style = {"fill": False, "color": FRAME, "linewidth": 1.5}
    ax.add_patch(Rectangle((x, y), width, height, **style))
