"""Memory: whether a model fits, and what a step on a CPU frees for the next one."""

import ctypes
import os
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import torch

__all__ = ["available_memory", "check_size", "kept_memory"]

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


# ------------------------------------------------------------- whether a model fits

FLOAT = 4  # bytes
# Number of copies at the peak of a fit, as measured. Of weights: student and teacher,
# their copies at the ends of epochs, gradients, momentum, temporary values of a step.
# The queue is copied, too, and during MoCo the mixture waits.
WEIGHTS, QUEUES, WAITING = 10, 3, 3
# Limits of a container, in both versions of Linux's control groups.
_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")


def check_size(
    n_weights, n_features, name, *, n_heads, queue_shape, queue_dtype, two_stage, device
) -> None:
    """Raise ValueError if the weights and the queue of a model exceed the memory.

    The activations of batches, which need memory as well, are not counted.

    Parameters
    ----------
    n_weights, n_features : int
        Those of the backbone.
    name : str
        The backbone's, for the message.
    n_heads : int
        Number of heads of the experts and the gate.
    queue_shape : tuple (V, H, D)
        With H heads of the experts.
    queue_dtype : torch.dtype
    two_stage : bool
    device : torch.device
    """
    size, n_queues, dim = queue_shape
    n_bytes = FLOAT * (WEIGHTS + WAITING * two_stage)
    parts = {
        f"`backbone`={name}": n_bytes * n_weights,
        f"{n_heads} heads from {n_features} features to `embedding_dim`={dim}": (
            n_bytes * n_heads * dim * (n_features + 1)
        ),
        f"the queue of {size} samples (`queue_size`), {n_queues} heads and "
        f"`embedding_dim`={dim}": (
            QUEUES * size * n_queues * dim * queue_dtype.itemsize
        ),
    }
    needed, there = sum(parts.values()), available_memory(device)
    if there is not None and needed > there:
        largest = max(parts, key=parts.get)
        raise ValueError(
            f"The model must fit into the memory of the {device.type} device, "
            f"{there / 1e9:.1f} GB; it needs {needed / 1e9:.1f} GB, of which "
            f"{parts[largest] / 1e9:.1f} GB are for {largest}."
        )


def available_memory(device) -> int | None:
    """Bytes that are available for a model, or None if this is unknown.

    For a GPU this is all of its memory, because torch keeps freed memory. For a CPU it
    is the available memory of the system, and at most the limit of a container.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    limits = [_figure(Path("/sys/fs/cgroup", name)) for name in _LIMITS]
    return min(filter(None, [*limits, _of_the_system()]), default=None)


def _of_the_system():
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        return 1024 * (kilobytes["MemAvailable"] + kilobytes["SwapFree"])
    except (OSError, LookupError, ValueError):  # no Linux
        names = getattr(os, "sysconf_names", ())
        if not {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= set(names):
            return None
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _figure(path):
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # not there, or "max"
        return None
