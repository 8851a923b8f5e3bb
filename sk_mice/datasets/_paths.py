"""X as paths of image files: which X are paths, and the images in the files."""

import os
from collections.abc import Iterator, MappingView, Set
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from joblib import effective_n_jobs

from .._words import shortened
from ._decoding import WHITE, Decoder, size_of

TEXT = ("O", "S", "U", "T")  # kinds of arrays that may hold paths
TEXT_OF_POLARS = ("String", "Categorical")  # names of types


class NotImagesError(ValueError):
    """For files that cannot be read as images."""


def as_paths(X):
    """X as a list of paths, or None if it holds anything else."""
    if isinstance(X, str | os.PathLike):
        raise TypeError(
            f"X must hold paths; got one, {os.fspath(X)!r}. Pass a list of files, as "
            "from sorted(pathlib.Path(folder).rglob('*.jpg'))."
        )
    if isinstance(X, Iterator | Set | MappingView):
        raise TypeError(
            f"X must hold images or paths; got a {type(X).__name__}. Make a list of it."
        )
    if _kind(X) in TEXT and X.ndim == 1:
        X = X.tolist()
    dtype = str(getattr(X, "dtype", ""))
    if hasattr(X, "to_list") and dtype.startswith(TEXT_OF_POLARS):
        X = X.to_list()
    if not isinstance(X, list | tuple):
        _check_no_table(X)
        return None
    if not X:
        raise ValueError("X must hold images or paths; got an empty list.")
    if isinstance(X[0], bytes):
        raise TypeError(
            f"X must hold paths as strings; got bytes, {X[0]!r}. os.fsdecode makes "
            "strings of them."
        )
    are_paths = [isinstance(x, str | os.PathLike) for x in X]
    if not any(are_paths):
        return None
    if not all(are_paths):
        i = are_paths.index(False)
        raise TypeError(
            "X must hold paths, each a string or path-like; got a "
            f"{type(X[i]).__name__} in sample {i}."
        )
    return [os.fspath(path) for path in X]


def _check_no_table(X):
    """Refuse paths in a data frame or in an array of several dimensions."""
    columns = getattr(X, "dtypes", None)
    columns = columns if np.iterable(columns) else [X]
    if not any(_kind(column) in TEXT for column in columns):
        return
    first = np.asarray(X[:1]).ravel()
    if any(isinstance(value, str | os.PathLike) for value in first):
        raise TypeError(
            "X must hold paths in one dimension, as a column of a data frame does; got "
            f"shape {X.shape}."
        )


def _kind(values):
    """The kind of a NumPy type, or of an array."""
    return getattr(getattr(values, "dtype", values), "kind", None)


def sizes(paths, n_jobs):
    """Width and height of each file; ValueError that lists those that are no images."""
    with ThreadPoolExecutor(effective_n_jobs(n_jobs)) as pool:
        found = list(pool.map(size_of, paths))
    refuse(unreadable(paths, (reason for _, reason in found)))
    return [size for size, _ in found]


def pictures(paths, side, **options):
    """Images (N, side, side, 3), uint8, to look at; `options` are those of `Decoder`.

    Without options, images are brighter if they use few of their 16 bits, and on grey
    if drawings cannot be seen on white. ValueError lists the files that are no images.
    """
    X, problems, decoder = _decoded(paths, side, **options)
    refuse(problems)
    if options:
        return X
    white, background = decoder.white_in_use, "grey" if decoder.hidden else "white"
    if (white, background) != (WHITE, "white"):
        seen, problems, _ = _decoded(paths, side, white=white, background=background)
        if not problems:  # none has colours of 16 bits
            return seen
    return X


def _decoded(paths, side, **options):
    """Images, the paths that cannot be read with the reasons, and the decoder."""
    decoder = Decoder(side, **options)
    X = decoder.empty(len(paths))
    with ThreadPoolExecutor(effective_n_jobs(-1)) as pool:
        problems = unreadable(paths, pool.map(decoder.into, X, paths))
    return X, problems, decoder


def unreadable(paths, reasons):
    """Pairs of a path and why it cannot be read, of the paths with such a reason."""
    pairs = zip(paths, reasons, strict=True)
    return [(path, reason) for path, reason in pairs if reason is not None]


def refuse(problems) -> None:
    """One error for all paths that cannot be read."""
    if problems:
        lines = shortened([f"{path!r}: {reason}" for path, reason in problems])
        what = f"{len(problems)} of the files cannot be read as an image."
        raise NotImagesError("\n  ".join([what, *lines]))
