"""Where predictions are written: memory, an array of the user's, or a new file."""

import os
from contextlib import contextmanager

import numpy as np

from ._engine.maps import check_path, new_map

__all__ = ["check_output", "opened"]


def check_output(out, shape, dtype) -> None:
    """Raise TypeError, ValueError or OSError unless predictions can go there."""
    if out is None:
        return
    if isinstance(out, str | os.PathLike):
        check_path(out, "`out`")
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


@contextmanager
def opened(out, shape, dtype):
    """The array that predictions are written to; a file appears once it is whole."""
    if out is None:
        yield np.empty(shape, dtype)
    elif isinstance(out, np.ndarray):
        yield out
    else:
        with new_map(out, shape, dtype) as array:
            yield array
