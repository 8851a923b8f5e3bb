"""Arrays in .npy files: mapped, and written row by row."""

import errno
import io
import math
import mmap
import os
import shutil
from pathlib import Path

import numpy as np
from numpy.lib.format import dtype_to_descr, open_memmap, write_array_header_1_0

from .files import check_writable, errors_name, replacement


def mapped_file(X) -> mmap.mmap | None:
    """The file that X is a memory map of, or None if X is in memory."""
    while isinstance(X, np.ndarray):
        X = X.base
    return X if isinstance(X, mmap.mmap) else None


def will_need(X, start: int, stop: int) -> None:
    """Hint to the system that rows of a memory map will be read soon."""
    file, pages = mapped_file(X), mmap.PAGESIZE
    if file is None or not X.flags.c_contiguous or not hasattr(mmap, "MADV_WILLNEED"):
        return
    origin = np.frombuffer(file, np.uint8).ctypes.data
    first = X[start:stop].ctypes.data - origin
    aligned = first - first % pages
    n_bytes = X[start:stop].nbytes + first - aligned
    file.madvise(mmap.MADV_WILLNEED, aligned, n_bytes)


def check_out(out) -> Path:
    """A path where a .npy file can be written; else ValueError or OSError."""
    path = Path(check_writable(out, "`out`"))
    if path.suffix != ".npy":
        raise ValueError(f'`out` must end in ".npy"; got {str(path)!r}.')
    return path


def create(path, shape, dtype) -> np.memmap:
    """A new .npy file as a memory map; OSError if the disk has no room for it.

    Its space is reserved, as writing to a map of a full disk would end the process.
    """
    with errors_name(path):
        open(path, "wb").close()
        try:
            with open(path, "wb") as file:
                _begin(file, shape, dtype)
        except OSError:
            os.unlink(path)
            raise
    return open_memmap(path, mode="r+")


def header(shape, dtype) -> bytes:
    """The header of a .npy file, after which the values follow row by row."""
    file = io.BytesIO()
    facts = {"descr": dtype_to_descr(np.dtype(dtype)), "fortran_order": False}
    write_array_header_1_0(file, {**facts, "shape": shape})
    return file.getvalue()


def _begin(file, shape, dtype) -> None:
    """Write the header of an array, and reserve the space of its values."""
    file.write(header(shape, dtype))
    size = file.tell() + math.prod(shape) * np.dtype(dtype).itemsize
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
        return
    if shutil.disk_usage(file.name).free < size:  # macOS reserves nothing
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    file.truncate(size)


def reopened(path, shape, dtype) -> np.memmap | None:
    """A writable map of a file that `create` made; None if it is not complete."""
    try:
        X = open_memmap(path, mode="r")  # "r+" would extend a file that was cut off
        is_whole = (X.shape, X.dtype) == (shape, dtype)
        return open_memmap(path, mode="r+") if is_whole else None
    except Exception:  # a damaged header raises anything
        return None


def write_rows(path, shape, dtype, parts) -> None:
    """Write the rows of parts to a .npy file, which gets its name once it is complete.

    It is not mapped, as Windows neither renames nor removes mapped files.
    """
    with replacement(path) as file:
        with errors_name(path):
            _begin(file, shape, dtype)
        for part in parts:
            rows = np.ascontiguousarray(part, dtype)
            with errors_name(path):
                file.write(rows.data)
