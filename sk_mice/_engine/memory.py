"""Keep the memory that a training step frees for the next step, on a CPU."""

import ctypes
import os
import sys
import threading
from contextlib import contextmanager

import torch

__all__ = ["kept_memory"]

# Parameters of mallopt(3), with the values at which glibc's own adjustment ends.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
THRESHOLD, MMAP_MAX = 32 * 2**20, 65536

_lock = threading.Lock()
_n_users = 0


@contextmanager
def kept_memory(device: torch.device):
    """Let the process keep the memory that it frees, while the context lasts.

    glibc returns large blocks to the system when they are freed. The system then hands
    them out zeroed, with a page fault for each page. A training step frees hundreds of
    megabytes and requests them again.

    At the end, free memory is returned. There is no effect without glibc, if the
    environment has settings for its memory, or on other devices than a CPU. Contexts
    may be nested and used by several threads, but only blocks of the main thread, and
    those of other threads up to 64 MiB, are kept.

    Parameters
    ----------
    device : torch.device
        Where the steps run.
    """
    libc = _glibc() if device.type == "cpu" else None
    if libc is None:
        yield
        return
    _enter(libc)
    try:
        yield
    finally:
        _leave(libc)


def _enter(libc):
    global _n_users
    with _lock:
        _n_users += 1
        if _n_users == 1:
            libc.mallopt(M_MMAP_MAX, 0)  # no block of its own for large requests
            libc.mallopt(M_TRIM_THRESHOLD, -1)  # never trim


def _leave(libc):
    global _n_users
    with _lock:
        _n_users -= 1
        if _n_users == 0:
            libc.mallopt(M_MMAP_MAX, MMAP_MAX)
            libc.mallopt(M_MMAP_THRESHOLD, THRESHOLD)
            libc.mallopt(M_TRIM_THRESHOLD, 2 * THRESHOLD)
            libc.malloc_trim(0)


def _glibc():
    """The C library, if it is glibc and the environment does not configure it."""
    set_already = "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "") or any(
        name.startswith("MALLOC_") and name.endswith("_") for name in os.environ
    )
    if sys.platform != "linux" or set_already:
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") else None
