"""A page to browse clusters: one file of HTML that needs no connection."""

import base64
import gzip
import hashlib
import importlib
import os
import re
from functools import cache
from numbers import Real
from secrets import token_urlsafe
from typing import Any
from urllib.parse import quote

import numpy as np
from sklearn import config_context
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.validation import _num_samples

from .._engine.arrays import plain_array
from .._engine.files import check_writable, write_atomically
from .._engine.nearest import nearest_neighbors
from .._pipelines import first_step, last_step
from .._show_versions import LIBRARIES, versions
from .._words import count, duration
from ..datasets._names import NO_FOLDER
from ..metrics import _as_array, _encode_classes, _scores_in_words
from ._doubts import LIMITS, doubt_of_duplicates, doubts
from ._drawing import as_text, estimator_and_samples, fair_sample, paths_or_samples
from ._duplicates import largest_first, near_duplicates
from ._reading import N_NEAREST, check_model, is_mice, read
from ._thumbnails import draw_sheets, pictures_in, pictures_of

MOST_SHOWN = 10_000  # samples with a thumbnail
MOST_ON_MAP = 3_000  # t-SNE of more takes minutes
FEWEST_FOR_TSNE = 50
OF_IMAGES = ("torchvision", "pillow")  # libraries on which pictures depend
LEAST_SHARE = 0.03  # smaller shares of other clusters are not in the page


def write_report(
    model,
    X,
    path,
    *,
    names=None,
    images=None,
    y=None,
    confidence=None,
    title=None,
    random_state: Any = 0,
) -> str:
    """Write a page of HTML to browse the clusters of images, or of vectors.

    The page is one file that opens in a browser without an internet connection. It says
    which clusters to doubt, and shows the images of each cluster from the most to the
    least certain, those between two clusters, the images nearest to any image, a map of
    the embeddings, and the training. On the page, clusters can be renamed and merged,
    and samples can be moved to another cluster. It then offers the corrected clusters
    as a CSV file, which this page, or a later one of the same clusters, can open.

    Parameters
    ----------
    model : clusterer or Pipeline
        A fitted clusterer of this package or of scikit-learn, also a `GaussianMixture`,
        or a pipeline whose last step is one. Samples that it labels -1, as HDBSCAN
        does, are in the last cluster, which is named Noise.
    X : array-like, or list of paths
        Samples as `model` takes them, usually those of its fit. They may be paths of
        image files, for a pipeline that begins with
        :class:`~sk_mice.features.PretrainedFeatures`. Images have thumbnails; vectors
        are listed by name, unless there are `images` of them.
    path : str or path-like
        The file to write, for example "report.html". A file of that name is replaced.
    names : sequence of N str or path-like, default=None
        Names of the files, in the order of X. They may hold any characters. None takes
        the paths if X or `images` holds paths, whose files the page can then open, and
        numbers other samples from 0.
    images : array-like of N images, or list of N paths, default=None
        What is shown of each sample. For the features of any network, these are the
        images or files from which the features were computed. None shows X.
    y : array-like of shape (N,), default=None
        Known classes, numbers or strings; None and NaN are missing classes. The page
        then has scores, the most frequent class of each cluster, and marks on the
        images that are not of this class.
    confidence : array-like of shape (N,) or (N, K), default=None
        How sure each sample is of its cluster, from 0 to 1; or the shares of its views
        or neighbours in each cluster, as `MiCEClustering.agreement` returns them. None
        calls `agreement`. For a clusterer without it, the confidence is the share of
        the ten nearest neighbours that are in the same cluster; a cluster of fewer than
        eleven samples has fewer neighbours to count. Neighbours are nearest by cosine
        for the clusterers of this package and those whose `metric` is "cosine", and by
        Euclidean distance for others.
    title : str, default=None
        The heading of the page.
    random_state : int, RandomState instance or None, default=0
        Determines the random views of the confidence, the samples shown and the map.

    Returns
    -------
    str
        The path of the file.

    Raises
    ------
    ImportError
        If Jinja2 or Plotly are missing: ``pip install "sk-mice[report]"``.
    OSError
        If `path` is a folder or cannot be written. Nothing has been computed then.
    NotFittedError, TypeError, ValueError
        If `model` is not fitted or is not a clusterer, or another argument is invalid.

    Notes
    -----
    The confidence is agreement and not accuracy: a cluster that mixes two kinds of
    images can be steady.

    If there are more than 10,000 samples, 10,000 of them are shown, drawn as evenly
    from all clusters as their sizes allow. The CSV file has all samples. The map shows
    at most 3,000 of them, placed by t-SNE, or by PCA if they are fewer than 50, and the
    numbers of the 300 largest clusters.

    The CSV file is UTF-8 with the columns file (or sample), cluster, name, agreement
    (confidence, if `confidence` has one value a sample) and original_cluster. Samples
    that were moved have the agreement 1. Names with commas, quotes or line breaks are
    quoted. A name that is not UTF-8, which Python holds with surrogates
    (:func:`os.fsdecode`), is written as its original bytes; ``open(path,
    encoding="utf-8", errors="surrogateescape", newline="")`` reads it.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from sk_mice import MiCEClustering
    >>> from sk_mice.datasets import load_digits
    >>> from sk_mice.inspection import write_report
    >>> X, y, names = load_digits()
    >>> few = np.flatnonzero(y < 3)[:90]
    >>> mice = MiCEClustering(3, max_epochs=8, random_state=0).fit(X[few])
    >>> with TemporaryDirectory() as folder:
    ...     path = write_report(mice, X[few], Path(folder, "report.html"), y=y[few])
    ...     text = Path(path).read_text(encoding="utf-8")
    >>> text[:15]
    '<!doctype html>'
    """
    check_libraries()
    path = check_writable(path)
    check_model(model)
    model, X = estimator_and_samples(model, X)
    pictures = _check_images(images, X, model)
    folder = None
    files = next((part for part in (pictures, X) if isinstance(part, list)), None)
    if files and names is None:
        names, folder = files, from_page(path, os.curdir)
    n_samples = _num_samples(X)
    names = _check_names(names, n_samples)
    classes = _check_classes(y, n_samples)
    confidence = _check_confidence(confidence, n_samples)
    if title is not None and not isinstance(title, str):
        raise TypeError(f"`title` must be a string; got {title!r}.")
    rng = check_random_state(random_state)
    reading = read(model, X, confidence, rng.randint(2**31 - 1))
    return draw_page(
        reading,
        model,
        pictures,
        path,
        names=names,
        files=files,
        folder=folder,
        classes=classes,
        title=title,
        rng=rng,
    )


def draw_page(
    reading,
    model,
    pictures,
    path,
    *,
    names,
    rng,
    files=None,
    folder=None,
    classes=None,
    title=None,
) -> str:
    """Write the page of what a model has said of samples.

    `pictures` may also be a list of files, or None without images. `files` are the
    paths of the samples, if they are known; `folder` is where `names` are files, as a
    URL from the page. `classes` are their names, and which of them each sample has, -1
    if that is missing.
    """
    shown = fair_sample(reading.labels, MOST_SHOWN, rng, evenly=True)
    if isinstance(pictures, list):
        pictures = pictures_in(pictures, shown)
    one = "sample" if pictures is None else "image"
    noun = f"{one}s"
    data = _samples(reading, names, shown) | {
        "noun": noun,
        "measure": reading.measure,
        "of_neighbors": reading.is_of_neighbors,
        "map": _map(reading, shown, rng),
        "history": _history(last_step(model)[0]),
        "limits": LIMITS,
        "titled": title is not None,
        "no_folder": NO_FOLDER,
        "folder": folder,
        "separator": os.sep,
    }
    codes, scores = None, []
    if classes is not None:
        class_names, codes = classes
        data |= {"classes": class_names, "y": codes.tolist()}
        known = codes >= 0
        scores = _scores_in_words(codes[known], reading.labels[known])
    doubted = doubts(reading, noun, codes)
    sheets: list[str] = []
    if pictures is not None:
        sheets, data["thumbs"] = draw_sheets(pictures, _groups(reading, shown), rng)
        pairs = near_duplicates(pictures, shown, np.array(data["nearest"]))
        n_compared = len(shown) if len(shown) < len(reading.labels) else None
        doubted += doubt_of_duplicates(noun, pairs, n_compared)
        groups = [group for doubt in doubted for group in doubt.groups]
        data["copies"] = [largest_first(group, names, files) for group in groups]
    n_samples, n_clusters = len(reading.labels), reading.n_clusters
    page = _template().render(
        title=title or f"{count(n_samples, one)} in {count(n_clusters, 'cluster')}",
        noun=noun,
        one=one,
        count=count,
        reading=reading,
        measure=reading.measure,
        doubts=doubted,
        scores=scores,
        duration=duration(sum(row.get("seconds", 0) for row in data["history"])),
        n_epochs=len(data["history"]),
        n_shown=len(shown),
        steps=_parameters(model),
        versions=versions("sk_mice", "Python", *LIBRARIES, *OF_IMAGES).items(),
        data=data,
        sheets=sheets,
        plotly=_packed_plotly(),
        nonce=token_urlsafe(16),
    )
    write_atomically(path, [page.encode(errors="xmlcharrefreplace")])
    return path


# ------------------------------------------------------------------------- checks


def check_libraries() -> None:
    """ImportError if a library is missing that the page needs."""
    try:
        importlib.import_module("jinja2")
        _packed_plotly()
    except ImportError as error:
        raise ImportError(
            "`write_report` needs Jinja2 and Plotly: "
            f'pip install "sk-mice[report]" ({error}).'
        ) from error


def _template():
    from jinja2 import Environment, PackageLoader

    loader = PackageLoader("sk_mice.inspection", "templates")
    environment = Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("report.html")


@cache
def _packed_plotly() -> str:
    """Plotly's code, which the page unpacks when it draws: 2 MB in place of 5."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


def _check_length(values, n_samples, name, one):
    """Refuse values that are not one for each sample."""
    if len(values) != n_samples:
        raise ValueError(
            f"{name} must have {one} for each of {n_samples} samples; got "
            f"{len(values)}."
        )


def _check_names(names, n_samples):
    if names is None:
        return None
    if isinstance(names, str | bytes | os.PathLike) or not np.iterable(names):
        raise TypeError(f"`names` must be a sequence of names; got {names!r}.")
    names = list(names)
    _check_length(names, n_samples, "`names`", "a name")
    for name in names:
        if not isinstance(name, str | bytes | os.PathLike):
            raise TypeError(f"`names` must hold strings or paths; got {name!r}.")
    # Without NumPy's type of strings, as the page's key is made from their repr.
    return [str(os.fsdecode(name)) for name in names]


def _check_images(images, X, model):
    """`Pictures` of the samples, a list of files, or None for vectors."""
    if images is None:
        return X if isinstance(X, list) else pictures_of(first_step(model), X)
    try:
        images = paths_or_samples(images)
        shown = images if isinstance(images, list) else pictures_of(None, images)
    except (TypeError, ValueError) as error:
        raise type(error)(re.sub(r"\bX\b", "`images`", str(error), count=1)) from error
    _check_length(images, _num_samples(X), "`images`", "an image")
    if shown is None:
        raise ValueError(
            "`images` must hold paths, or images of shape (N, H, W) or (N, H, W, C); "
            f"got shape {np.shape(images)}."
        )
    return shown


def from_page(path, folder) -> str | None:
    """A folder as a URL from a page; None if no relative path leads there."""
    try:
        there = os.path.relpath(folder, os.path.dirname(os.path.abspath(path)))
    except ValueError:  # on another drive of Windows
        return None
    return quote(os.fsencode(there.replace(os.sep, "/")))


def _check_classes(y, n_samples):
    """Names of the classes, and the code of each sample; None if there are none."""
    if y is None:
        return None
    y = column_or_1d(_as_array(y))
    _check_length(y, n_samples, "y", "a class")
    classes, codes = _encode_classes(y, "y")
    return [as_text(name) for name in classes.tolist()], codes


def _check_confidence(confidence, n_samples):
    if confidence is None:
        return None
    values = np.asarray(plain_array(confidence, "`confidence`"))
    if values.ndim not in (1, 2) or len(values) != n_samples:
        raise ValueError(
            f"`confidence` must have shape ({n_samples},) or ({n_samples}, K); got "
            f"{values.shape}."
        )
    if values.dtype.kind not in "biuf" or not ((values >= 0) & (values <= 1)).all():
        raise ValueError("`confidence` must hold numbers from 0 to 1.")
    return values.astype(np.float64)


# ------------------------------------------------------------- what the page is given


def _samples(reading, names, shown) -> dict:
    """Everything about samples, as JSON."""
    nearest = reading.nearest
    if nearest is None or len(shown) < len(nearest):
        nearest, _ = nearest_neighbors(reading.embeddings[shown], N_NEAREST)
    labels = reading.labels.tolist()
    identity = repr((names, reading.n_clusters, labels))
    return {
        "key": hashlib.sha256(identity.encode(errors="replace")).hexdigest()[:16],
        "n_clusters": reading.n_clusters,
        "noise": reading.noise,
        "names": names,
        "labels": labels,
        "confidence": _rounded(reading.confidence, 3),
        "second": reading.second.tolist(),
        "second_share": _rounded(reading.second_share, 3),
        "others": _others(reading.others),
        "order": reading.order.tolist(),
        "shown": shown.tolist(),
        "nearest": shown[nearest].tolist(),
    }


def _others(shares) -> dict[int, list]:
    """Other clusters of the samples, with their shares, where these are large."""
    found: dict[int, list] = {}
    kept = shares.data >= LEAST_SHARE
    places = shares.row[kept].tolist(), shares.col[kept].tolist()
    for i, k, share in zip(*places, _rounded(shares.data[kept], 4), strict=True):
        found.setdefault(i, []).append([k, share])
    return found


def _rounded(values, digits) -> list:
    return np.round(values.astype(np.float64), digits).tolist()


def _groups(reading, shown):
    """The samples shown of each cluster, most certain first."""
    order = reading.order[np.isin(reading.order, shown)]
    return [order[reading.labels[order] == k] for k in range(reading.n_clusters)]


def _map(reading, shown, rng) -> dict:
    """Samples in two dimensions, of those shown."""
    rows = shown[fair_sample(reading.labels[shown], MOST_ON_MAP, rng, evenly=True)]
    embeddings = reading.embeddings[rows]
    if len(rows) < FEWEST_FOR_TSNE or embeddings.shape[1] < 2:
        method, places = "PCA", _principal(embeddings, 2)
    else:
        # The first components keep what t-SNE needs and make it faster.
        few = _principal(embeddings, min(32, embeddings.shape[1]))
        method = "t-SNE"
        # Starting positions of zeros, as of one point repeated, stay there.
        start = "pca" if np.ptp(few, axis=0)[:2].all() else "random"
        tsne = TSNE(init=start, max_iter=500, random_state=rng, perplexity=15)
        places = tsne.set_output(transform="default").fit_transform(few)
    low, extent = places.min(axis=0), np.ptp(places, axis=0).max() or 1.0
    places = _rounded((places - low) / extent * 1000, 1)
    return {"method": method, "rows": rows.tolist(), "places": places}


def _principal(rows, n):
    n_found = min(n, *rows.shape)
    pca = PCA(n_found, random_state=0).set_output(transform="default")
    with np.errstate(invalid="ignore"):  # without variance, its shares are 0 / 0
        found = pca.fit_transform(rows)
    return np.pad(found, ((0, 0), (0, n - n_found)))


def _history(clusterer) -> list[dict]:
    numbers = ("elbo", "confidence", "changed", "seconds")  # no texts with markup
    kinds = {"stage": str, **dict.fromkeys(numbers, Real)}
    rows = clusterer.history_ if is_mice(clusterer) else []
    return [
        {k: v for k, v in row.items() if k in kinds and isinstance(v, kinds[k])}
        for row in rows
    ]


def _parameters(model) -> list[tuple[str, list[tuple[str, str]]]]:
    """Each step as written with what differs from the defaults, and all parameters."""
    steps = model.steps if isinstance(model, Pipeline) else [("", model)]
    written = []
    with config_context(print_changed_only=True):
        for _, step in steps:  # one may be "passthrough"
            known = step.get_params(deep=False) if hasattr(step, "get_params") else {}
            rows = [(name, repr(value)) for name, value in sorted(known.items())]
            written.append((repr(step), rows))
    return written
