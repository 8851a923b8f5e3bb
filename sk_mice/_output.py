"""Where predictions are written: memory, an array of the user's, or a new file."""

import os

import numpy as np

from ._engine.arrays import fill
from ._engine.maps import check_out, write_rows


def check_output(out, shape, dtype) -> None:
    """Raise TypeError, ValueError or OSError unless predictions can go there."""
    if out is None:
        return
    if isinstance(out, str | os.PathLike):
        check_out(out)
        return
    if not isinstance(out, np.ndarray):
        raise TypeError(
            "`out` must be an array, or the path of a .npy file; got "
            f"{type(out).__name__}."
        )
    if (out.shape, out.dtype) != (shape, dtype):
        raise ValueError(
            f"`out` must have shape {shape} and type {np.dtype(dtype)}; got "
            f"{out.shape} and {out.dtype}."
        )
    if not out.flags.writeable:
        raise ValueError("`out` must be writeable; got an array that is read-only.")


def filled(out, shape, dtype, parts) -> np.ndarray:
    """The array with the rows of parts; a file appears once it is whole."""
    if isinstance(out, str | os.PathLike):
        write_rows(out, shape, dtype, parts)
        return np.load(out, mmap_mode="r+")
    array = np.empty(shape, dtype) if out is None else out
    fill(array, parts)
    return array
