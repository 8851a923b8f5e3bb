"""X as paths of image files: what they are, and the images that they hold."""

import os
from concurrent.futures import ThreadPoolExecutor

from joblib import effective_n_jobs

from .._words import shortened
from ._decoding import WHITE, Decoder, size_of


class NotImagesError(ValueError):
    """For files that cannot be read as images."""


def as_paths(X):
    """X as a list of paths, or None if it holds anything else."""
    if isinstance(X, str | os.PathLike):
        raise TypeError(
            f"X must hold paths; got one, {os.fspath(X)!r}. Pass a list of files, as "
            "from sorted(pathlib.Path(folder).rglob('*.jpg'))."
        )
    kind = getattr(getattr(X, "dtype", None), "kind", None)
    if kind in ("O", "S", "U", "T") and X.ndim == 1:
        X = X.tolist()
    if not isinstance(X, list | tuple):
        return None
    if not X:
        raise ValueError("X must hold images or paths; got an empty list.")
    if isinstance(X[0], bytes):
        raise TypeError(
            f"X must hold paths as strings; got bytes, {X[0]!r}. os.fsdecode makes "
            "strings of them."
        )
    if not isinstance(X[0], str | os.PathLike):
        return None
    odd = next((x for x in X if not isinstance(x, str | os.PathLike)), None)
    if odd is not None:
        raise TypeError(
            "X must hold paths, each a string or path-like; got a "
            f"{type(odd).__name__}."
        )
    return [os.fspath(path) for path in X]


def sizes(paths, n_jobs):
    """Width and height of each file; ValueError that lists what is no image."""
    with ThreadPoolExecutor(effective_n_jobs(n_jobs)) as pool:
        found = list(pool.map(size_of, paths))
    refuse(named(paths, (reason for _, reason in found)))
    return [size for size, _ in found]


def pictures(paths, side):
    """Images (N, side, side, 3), uint8, to look at.

    They are as bright as the bits in use allow, if these are few of 16. ValueError that
    lists what is no image.
    """
    X, problems, white = _decoded(paths, side, WHITE)
    refuse(problems)
    if white != WHITE:
        brighter, problems, _ = _decoded(paths, side, white)
        if not problems:  # none has colours of 16 bits
            return brighter
    return X


def _decoded(paths, side, white):
    """Images, the paths that cannot be read with the reasons, and white in use."""
    decoder = Decoder(side, False, "crop", "white", white)
    X = decoder.empty(len(paths))
    with ThreadPoolExecutor(effective_n_jobs(-1)) as pool:
        problems = named(paths, pool.map(decoder.into, X, paths))
    return X, problems, decoder.white_in_use


def named(paths, reasons):
    """The paths that have a reason not to be read, with it."""
    pairs = zip(paths, reasons, strict=True)
    return [(path, reason) for path, reason in pairs if reason is not None]


def refuse(problems) -> None:
    """One error for all paths that cannot be read."""
    if problems:
        lines = shortened([f"{path!r}: {reason}" for path, reason in problems])
        listing = "\n  ".join(["", *lines])
        raise NotImagesError(
            f"{len(problems)} of the files in X cannot be read as an image.{listing}"
        )
