"""What displays share: panels, colours, room, names, checks, a choice of samples."""

import numpy as np
from sklearn.utils.validation import _num_samples

from .._engine.dataset import samples_of
from .._pipelines import chosen, first_step, last_step
from ..datasets._paths import as_paths
from ..metrics import _as_array

LONGEST_NAME = 28  # letters of a class or cluster in a picture
# Dollars in names are not the beginning of a formula.
AS_IT_IS: dict = {"parse_math": False}


def pyplot():
    """matplotlib.pyplot, or an ImportError that names the extra."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            'The displays need matplotlib: pip install "sk-mice[plot]".'
        ) from error
    return plt


def panels(ax, n, size, **options):
    """Return n Axes: those given, or of a new figure; `options` are of `subplots`."""
    plt = pyplot()
    if ax is None:
        figure, axes = plt.subplots(figsize=size, layout="constrained", **options)
        return figure, np.atleast_1d(axes)
    axes = np.atleast_1d(np.asarray(ax, dtype=object))
    if axes.shape != (n,) or not all(isinstance(one, plt.Axes) for one in axes):
        what = "a matplotlib Axes" if n == 1 else f"{n} matplotlib Axes in a list"
        raise ValueError(f"`ax` must be {what}; got {ax!r}.")
    return axes[0].figure, axes


def shades(ax, n, cmap):
    """N colours of a map, the strongest first, all of which can be seen on `ax`.

    One end of the map is left out: of viridis, yellow on white and blue on black.
    """
    is_dark = np.mean(background(ax)) < 0.5
    ends = (1, 0.45) if is_dark else (0, 0.85)
    return pyplot().get_cmap(cmap)(np.linspace(*ends, n))


def background(ax):
    """The colour behind what is drawn into Axes, which may be transparent."""
    from matplotlib.colors import to_rgba

    colour = np.ones(3)
    for patch in (ax.get_figure(root=True).patch, ax.figure.patch, ax.patch):
        *own, alpha = to_rgba(patch.get_facecolor())
        colour = alpha * np.array(own) + (1 - alpha) * colour
    return tuple(colour)


def room(ax):
    """Height and width of Axes, in points, after the layout of their figure."""
    ax.get_figure(root=True).draw_without_rendering()
    box = ax.get_window_extent()
    return np.array([box.height, box.width]) * 72 / ax.figure.dpi


def as_text(name) -> str:
    """A name as text; integers are floats where a class is missing."""
    is_whole = isinstance(name, float | np.floating) and name.is_integer()
    return str(int(name) if is_whole else name)


def in_short(name):
    """A name on one line, of which the ends are kept if it is long."""
    name = " ".join(as_text(name).split())
    if len(name) <= LONGEST_NAME:
        return name
    half = LONGEST_NAME // 2
    return f"{name[:half].rstrip()}…{name[1 - half :].lstrip()}"


def one_each(values, n, name):
    """Values of shape (n,), one for each sample; None stays None."""
    if values is None:
        return None
    values = _as_array(values)
    if values.shape == (n, 1):  # a column of a table
        values = values.ravel()
    if values.shape != (n,):
        raise ValueError(
            f"`{name}` must have a value for each of the {n} samples; got shape "
            f"{values.shape}."
        )
    return values


def fair_sample(codes, n, rng, *, evenly=False):
    """Sorted indices of n of the samples at random, or of all that there are.

    `codes` are their groups, integers from 0 on. The choice is in proportion to the
    sizes of the groups, or as even as these allow; with room, each group is there.
    """
    order = rng.permutation(len(codes))
    ranks = places_in_groups(codes[order])
    if not evenly:
        ranks = ranks / np.bincount(codes)[codes[order]]
    return np.sort(order[np.argsort(ranks, kind="stable")[:n]])


def places_in_groups(codes):
    """For each sample, how many of its group come before it."""
    by_group, sizes = np.argsort(codes, kind="stable"), np.bincount(codes)
    places = np.empty(len(codes), np.int64)
    places[by_group] = np.arange(len(codes)) - np.repeat(sizes.cumsum() - sizes, sizes)
    return places


def paths_or_samples(X):
    """X as a list of the paths of image files, or as an array."""
    paths = as_paths(X)
    return samples_of(X) if paths is None else paths


def estimator_and_samples(estimator, X) -> tuple:
    """The estimator, or the choice of a search; and X, as paths if it reads files."""
    estimator = chosen(estimator)
    first = first_step(estimator)
    if getattr(first, "_from_files", False):
        return estimator, paths_or_samples(X)
    if first is estimator or type(first).__module__.startswith("sk_mice."):
        return estimator, samples_of(X)
    return estimator, _of_others(X)


def _of_others(X):
    """X for the first step of a Pipeline: samples, or texts and tables."""
    try:
        return samples_of(X)
    except (TypeError, ValueError):
        return _as_array(X) if isinstance(X, list | tuple) else X


def clusters_of(estimator, X, *, needed=True):
    """Clusters that an estimator predicts, or has found if X is that of its fit.

    Without either, it is a TypeError, or None if they are not needed.
    """
    if hasattr(estimator, "predict"):
        return estimator.predict(X)
    labels = getattr(last_step(estimator)[0], "labels_", None)
    if labels is not None and len(labels) == _num_samples(X):
        return labels
    if needed:
        raise TypeError(
            "`estimator` must have `predict`, or `labels_` of the samples in X; got "
            f"{estimator!r}."
        )
    return None
