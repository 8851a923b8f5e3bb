"""Device and precision of a fit: what "auto" means on this machine."""

import multiprocessing
import re
import warnings

import torch

from ._engine.data import SampleFormat


def resolve_device(device) -> torch.device:
    """Turn `device` into an available torch.device; "auto" prefers CUDA.

    Worker processes of joblib use the GPUs in turn.

    Raises
    ------
    ValueError
        If there is no such device, or one without float64.

    Warns
    -----
    UserWarning
        If several workers share a GPU with "auto".
    """
    n_gpus = torch.cuda.device_count()
    if isinstance(device, str) and device == "auto":
        if not n_gpus:
            return torch.device("cpu")
        worker = _worker_number()
        if worker is None:
            return torch.device("cuda")
        if worker >= n_gpus:
            warnings.warn(
                f'`device`="auto" lets several workers share the {n_gpus} GPUs of this '
                "machine, and their memory. Use at most as many workers (`n_jobs`), or "
                "name the device.",
                stacklevel=2,
            )
        return torch.device("cuda", worker % n_gpus)
    try:
        device = torch.device(device)
    except RuntimeError as error:
        raise ValueError(
            f"`device` must name a torch device; got {device!r}."
        ) from error
    if device.type == "mps":
        raise ValueError(
            '`device` must have float64, which Apple\'s "mps" has not; use "cpu".'
        )
    there = {"cpu": 1, "cuda": n_gpus}
    if (device.index or 0) >= there.get(device.type, 0):
        names = ", ".join(name for name, count in there.items() if count)
        raise ValueError(
            f'`device` must be available on this machine ({names}); got "{device}".'
        )
    return device


def _worker_number() -> int | None:
    """Number of this worker process of joblib, from 0; None outside of workers."""
    name = multiprocessing.current_process().name
    number = re.fullmatch(r"(?:LokyProcess|SpawnPoolWorker|ForkPoolWorker)-(\d+)", name)
    return int(number[1]) - 1 if number else None


def resolve_precision(
    precision: str, device: torch.device, fmt: SampleFormat
) -> torch.dtype | None:
    """Autocast type of the networks; None is float32."""
    if precision == "auto":
        if device.type == "cuda":
            fast = torch.cuda.get_device_capability(device) >= (8, 0)
        else:  # the small networks for vectors gain nothing
            fast = fmt.is_image and device.type == "cpu" and _cpu_has_bfloat16()
        precision = "bfloat16" if fast else "float32"
    return torch.bfloat16 if precision == "bfloat16" else None


def _cpu_has_bfloat16() -> bool:
    # Not every release of torch has both.
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, bool)() for name in checks)
