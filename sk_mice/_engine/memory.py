"""Memory that a step of training frees is there for the next, on a CPU."""

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
    """Let the process keep, meanwhile, what it frees.

    glibc gives large blocks back to the system as they are freed, and the system hands
    them out again zeroed, page by page, at a page fault each. A step of training frees
    hundreds of megabytes and asks for them again.

    At the end what is free is given back. Without effect where memory is not glibc's,
    where the environment has settings of its own for it, or if the device is no CPU.
    May be nested, and used by several threads; but only blocks of the main thread, and
    of others up to 64 MiB, are kept.

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
    """The C library, if it is glibc and nobody has set its thresholds."""
    set_already = "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "") or any(
        name.startswith("MALLOC_") and name.endswith("_") for name in os.environ
    )
    if sys.platform != "linux" or set_already:
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") else None
