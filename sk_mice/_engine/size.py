"""Whether a model fits into memory, checked before it is built."""

import os
from pathlib import Path

import torch

__all__ = ["available_memory", "check_size"]

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
    queue_shape : tuple (V, K, D)
    queue_dtype : torch.dtype
    two_stage : bool
    device : torch.device
    """
    size, n_experts, dim = queue_shape
    n_bytes = FLOAT * (WEIGHTS + WAITING * two_stage)
    parts = {
        f"`backbone`={name}": n_bytes * n_weights,
        f"{n_heads} heads from {n_features} features to `embedding_dim`={dim}": (
            n_bytes * n_heads * dim * (n_features + 1)
        ),
        f"the queue of {size} samples (`queue_size`), {n_experts} experts and "
        f"`embedding_dim`={dim}": (
            QUEUES * size * n_experts * dim * queue_dtype.itemsize
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
