"""Where a fit runs: the device, its precision, and whether a model fits its memory."""

import multiprocessing
import re

import torch

from ._engine.format import SampleFormat
from ._engine.warn import warn_user
from ._memory import available_memory


def resolve_device(device, local_rank: int | None = None) -> torch.device:
    """Turn `device` into an available torch.device; "auto" prefers CUDA.

    If several processes share a fit, `local_rank` is the rank of this one on its
    machine, and the number of its GPU unless `device` has a number. Worker processes of
    joblib use the GPUs in turn, with a warning where several may share one. Raises
    ValueError if the device is not there, or does not support float64.
    """
    n_gpus = torch.cuda.device_count()
    if isinstance(device, str) and device == "auto":
        if not n_gpus:
            return torch.device("cpu")
        worker = _worker_number() if local_rank is None else local_rank
        if worker is None:
            return torch.device("cuda")
        if worker >= n_gpus:
            several = "`n_jobs`" if local_rank is None else "`--nproc-per-node`"
            warn_user(
                f'`device`="auto" gives process {worker + 1} the GPU {worker % n_gpus} '
                f"of {n_gpus}. Processes that use one GPU at a time share its memory: "
                f"start at most as many as there are GPUs ({several}), or name the "
                "device."
            )
        return torch.device("cuda", worker % n_gpus)
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise ValueError(
            f'`device` must name a torch device; got {device!r}. Use "auto", "cpu" '
            'or "cuda".'
        ) from error
    if found.type == "mps":
        raise ValueError(
            '`device` must support float64, which Apple\'s "mps" does not; use "cpu".'
        )
    if not is_here(found):
        names = "cpu, cuda" if n_gpus else "cpu"
        raise ValueError(
            f'`device` must be available on this machine ({names}); got "{device}".'
        )
    if found.type == "cuda" and found.index is None and local_rank is not None:
        return torch.device("cuda", local_rank % n_gpus)
    return found


def is_here(device: torch.device) -> bool:
    """Whether this machine has a device: a CPU, or a GPU of that number."""
    there = {"cpu": 1, "cuda": torch.cuda.device_count()}
    # torch turns a number above 127 into a negative one.
    return 0 <= (device.index or 0) < there.get(device.type, 0)


def is_worker() -> bool:
    """Whether this process is a worker of joblib, or of a pool."""
    return _worker_number() is not None


def _worker_number() -> int | None:
    """Number of this worker process of joblib, from 0; None outside of workers.

    A worker that replaces another gets the next number.
    """
    name = multiprocessing.current_process().name
    kinds = "LokyProcess|SpawnPoolWorker|ForkPoolWorker|ForkServerPoolWorker"
    number = re.fullmatch(rf"(?:{kinds})-(?:\d+:)*(\d+)", name)
    return int(number[1]) - 1 if number else None


def resolve_precision(
    precision: str, device: torch.device, fmt: SampleFormat
) -> torch.dtype | None:
    """Autocast type of the networks; None is float32."""
    if precision == "auto":
        if device.type == "cuda":
            fast = torch.cuda.get_device_capability(device) >= (8, 0)
        else:  # the small networks for vectors gain nothing
            fast = fmt.is_image and device.type == "cpu" and cpu_has_bfloat16()
        precision = "bfloat16" if fast else "float32"
    return torch.bfloat16 if precision == "bfloat16" else None


def cpu_has_bfloat16() -> bool:
    # Not every release of torch has both.
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, bool)() for name in checks)


# ------------------------------------------------------------- whether a model fits

FLOAT = 4  # bytes
# Numbers of copies at the peak of a fit, as measured. Of the weights there are student
# and teacher, their copies at the end of an epoch, gradients, momentum and temporary
# values of a step. The queue is copied as well. While MoCo trains, the mixture waits.
WEIGHTS, QUEUES, WAITING = 10, 3, 3


def check_size(
    n_weights, n_features, name, *, n_heads, queue_shape, queue_dtype, two_stage, device
) -> None:
    """Raise ValueError if the weights and the queue of a model exceed the memory.

    The backbone has a name for the message, its weights and its features; the experts
    and the gate have heads; the queue has shape (V, H, D). The activations of batches,
    which need memory as well, are not counted.
    """
    size, n_expert_heads, dim = queue_shape
    n_bytes = FLOAT * (WEIGHTS + WAITING * two_stage)
    parts = {
        f"`backbone`={name}": n_bytes * n_weights,
        f"{n_heads} heads from {n_features} features to `embedding_dim`={dim}": (
            n_bytes * n_heads * dim * (n_features + 1)
        ),
        f"the queue of {size} samples (`queue_size`) for {n_expert_heads} head(s) of "
        f"`embedding_dim`={dim}": (
            QUEUES * size * n_expert_heads * dim * queue_dtype.itemsize
        ),
    }
    needed = sum(parts.values())
    if device.type == "cuda":  # all of its memory, because torch keeps freed memory
        there = torch.cuda.mem_get_info(device)[1]
    else:
        there = available_memory()
    if there is not None and needed > there:
        largest = max(parts, key=parts.get)
        raise ValueError(
            f"The model must fit into the memory of the {device.type} device, "
            f"{there / 1e9:.1f} GB; it needs {needed / 1e9:.1f} GB, of which "
            f"{parts[largest] / 1e9:.1f} GB are for {largest}."
        )
