"""Arrays in files: memory maps of .npy files, read and made."""

import mmap
import os
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap

from .files import check_writable, naming, replacement

__all__ = ["check_path", "create", "mapped_file", "new_map", "reopened", "will_need"]


def mapped_file(X) -> mmap.mmap | None:
    """The file whose values X shows, or None if X is in memory."""
    while isinstance(X, np.ndarray):
        X = X.base
    return X if isinstance(X, mmap.mmap) else None


def will_need(X, start: int, stop: int) -> None:
    """Let the system begin to read rows of a memory map; no more than a hint."""
    file, pages = mapped_file(X), mmap.PAGESIZE
    if file is None or not X.flags.c_contiguous or not hasattr(mmap, "MADV_WILLNEED"):
        return
    origin = np.frombuffer(file, np.uint8).ctypes.data
    first = X[start:stop].ctypes.data - origin
    aligned = first - first % pages
    n_bytes = X[start:stop].nbytes + first - aligned
    file.madvise(mmap.MADV_WILLNEED, aligned, n_bytes)


def check_path(path, name: str) -> Path:
    """The path of a .npy file that can be made; ValueError or OSError if it cannot."""
    path = Path(check_writable(path, name))
    if path.suffix != ".npy":
        raise ValueError(f'{name} must end in ".npy"; got {str(path)!r}.')
    return path


def create(path, shape, dtype) -> np.memmap:
    """A new .npy file whose place on the disk is reserved, as a memory map.

    A map that finds the disk full ends the process.
    """
    X = open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    if hasattr(os, "posix_fallocate"):
        with open(path, "r+b") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, os.path.getsize(path))
            except OSError as error:
                os.unlink(path)
                raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    return X


def reopened(path, shape, dtype) -> np.memmap | None:
    """A map of a file that `create` made, to go on with; None if it is not whole."""
    try:
        X = open_memmap(path, mode="r")  # "r+" would fill up a file that was cut off
        is_whole = (X.shape, X.dtype) == (shape, dtype)
        return open_memmap(path, mode="r+") if is_whole else None
    except Exception:  # a damaged header raises anything
        return None


@contextmanager
def new_map(path, shape, dtype):
    """A memory map to be filled; the file has its name once that is done."""
    with replacement(path) as file:
        with naming(path):
            X = create(file.name, shape, dtype)
        yield X
        X.flush()
    X.filename = Path(path).resolve()  # where joblib's workers look for it
