"""Parameters against the machine: what is not data, checked, and what "auto" means."""

import torch
from sklearn.utils import check_random_state
from skorch.callbacks import Callback

from ._engine.samples import SampleFormat, Samples


def check_callbacks(callbacks) -> None:
    """Raise TypeError unless each is a skorch callback, with a name or without."""
    for item in callbacks or ():
        named = isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)
        callback = item[1] if named else item
        kind = callback if isinstance(callback, type) else type(callback)
        if not issubclass(kind, Callback):
            raise TypeError(f"`callbacks` must be skorch callbacks; got {item!r}.")


def check_views(views, samples: Samples) -> None:
    """Call a user's augmentation before training, which may last hours, does."""
    generator = torch.Generator(samples.device).manual_seed(0)
    if not views(samples[torch.arange(2)], 2, generator).isfinite().all():
        raise ValueError("`augmentation` must return finite values.")


def resolve_device(device) -> torch.device:
    """Turn `device` into a torch.device that is there; "auto" prefers CUDA."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(device)
    except RuntimeError as error:
        raise ValueError(
            f"`device` must name a torch device; got {device!r}."
        ) from error
    there = {"cpu": 1, "cuda": torch.cuda.device_count()}
    if (device.index or 0) >= there.get(device.type, 0):
        names = ", ".join(name for name, count in there.items() if count)
        raise ValueError(
            f'`device` must be available on this machine ({names}); got "{device}".'
        )
    return device


def resolve_precision(
    precision: str, device: torch.device, fmt: SampleFormat
) -> torch.dtype | None:
    """Autocast type of the networks; "auto" is bfloat16 where the hardware has it."""
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


def draw_seeds(random_state, n: int) -> list[int]:
    """Seeds of independent runs."""
    return check_random_state(random_state).randint(2**31 - 1, size=n).tolist()
