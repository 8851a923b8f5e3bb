"""How X is stored: layout, range of values, statistics."""

import math
from dataclasses import dataclass, field, replace
from numbers import Integral

import numpy as np
import torch
from torch import Tensor

from .arrays import chunks, extremes

CHANNELS = (1, 3, 4)  # numbers of channels that need no `image_shape`
LEAST_SIDE = 16  # below it, (N, H, 3) are narrow grey images, and not one in colour
LARGEST = 1e140  # absolute value in X


@dataclass(frozen=True)
class SampleFormat:
    """How one sample of X is stored, and how it becomes a network's input.

    Images become (B, C, H, W), scaled to [0, 1]. Vectors become (B, F), standardised
    feature by feature.
    """

    input_shape: tuple[int, ...]  # X.shape[1:]
    shape: tuple[int, ...]  # (C, H, W) or (F,)
    channels_first: bool = False
    low: float = 0.0
    high: float = 1.0
    mean: tuple[float, ...] = field(default=(), repr=False)  # per channel or feature
    std: tuple[float, ...] = field(default=(), repr=False)
    # Extremes of X in `fit`, of all values of images or of each feature; () if they are
    # not known.
    seen_low: tuple[float, ...] = field(default=(), repr=False)
    seen_high: tuple[float, ...] = field(default=(), repr=False)

    @property
    def is_image(self) -> bool:
        return len(self.shape) == 3

    def unstandardised(self) -> "SampleFormat":
        """The same format, for networks that standardise images themselves."""
        n = self.shape[0]
        return replace(self, mean=n * (0.0,), std=n * (1.0,))

    def as_batch(self, values: Tensor) -> Tensor:
        """Stored values (B, *input_shape) as float32 (B, C, H, W) or (B, F)."""
        if not self.is_image:
            mean = torch.tensor(self.mean, dtype=torch.float64, device=values.device)
            std = torch.tensor(self.std, dtype=torch.float64, device=values.device)
            return ((values - mean) / std).float()
        channels, height, width = self.shape
        if self.channels_first:
            values = values.reshape(-1, channels, height, width)
        else:
            values = values.reshape(-1, height, width, channels).movedim(-1, 1)
        # 8 bits are exact in float32; other values may need float64.
        values = values.float() if values.dtype == torch.uint8 else values.double()
        return ((values - self.low) / (self.high - self.low)).float()


def infer_format(X, image_shape=None) -> SampleFormat:
    """Read the format of X from its shape and values.

    The values of black and white are 0 and 255 for 8 bits, False and True for booleans,
    0 and 1, or 0 and 255, where the largest value lies in the upper half of that range,
    and else the smallest and largest value of X.

    Parameters
    ----------
    X : ndarray of shape (N, H, W), (N, H, W, C), (N, C, H, W) or (N, F)
        May be a memory map, which is read in pieces.
    image_shape : tuple (H, W), (H, W, C) or (C, H, W), optional
        Takes the rows of a two-dimensional X for flattened images, and images of any
        number of channels.

    Returns
    -------
    SampleFormat

    Raises
    ------
    ValueError
        If a value is not finite, or the shape fits no image layout or more than one.
    """
    fmt = layout(X.shape, image_shape)
    lows, highs = extremes(X, by_feature=not fmt.is_image)
    minimum, maximum = float(lows.min()), float(highs.max())
    if max(abs(minimum), abs(maximum)) > LARGEST:
        raise ValueError(
            f"X must hold values up to {LARGEST:g} in size, so that their squares can "
            f"be summed; got values from {minimum:g} to {maximum:g}."
        )
    if fmt.is_image:
        low, high = _value_range(X.dtype, minimum, maximum)
        fmt = replace(fmt, low=low, high=high)
    mean, std = _statistics(X, fmt)
    return replace(
        fmt,
        mean=tuple(mean),
        std=tuple(std),
        seen_low=tuple(lows.tolist()),
        seen_high=tuple(highs.tolist()),
    )


def layout(x_shape, image_shape=None) -> SampleFormat:
    """The format of an X of this shape, as far as it does not depend on values.

    ValueError as of `infer_format`.
    """
    if 0 in x_shape:
        raise ValueError(f"X must hold samples with values; got shape {x_shape}.")
    shape, channels_first = _sample_shape(x_shape, image_shape)
    return SampleFormat(tuple(x_shape[1:]), shape, channels_first)


def _sample_shape(x_shape, image_shape):
    """Shape (C, H, W) or (F,) of a sample, and whether its channels come first."""
    if image_shape is not None:
        return _given_shape(x_shape, image_shape)
    if len(x_shape) == 2:
        return (x_shape[1],), False
    if len(x_shape) == 3:
        if not known_layout(x_shape):
            raise ValueError(
                f"X of shape {x_shape} looks like one image, (H, W, C): X[None] holds "
                f"it as a sample. If it holds {x_shape[0]} grey images, set "
                f"`image_shape`={x_shape[1:]}."
            )
        return (1, *x_shape[1:]), True
    if len(x_shape) != 4:
        raise ValueError(
            "X must have shape (N, H, W), (N, H, W, C), (N, C, H, W) or (N, features); "
            f"got {x_shape}."
        )
    shape = x_shape[1:]
    if not known_layout(x_shape):
        if shape[0] in CHANNELS:
            raise ValueError(
                f"X of shape {x_shape} can be read as (N, H, W, C) and as (N, C, H, W)."
                f" Set `image_shape`={shape} for the former, and give "
                "X.transpose(0, 2, 3, 1) in the latter case."
            )
        how = ""
        if _channels_come_last(shape) is not None:
            how = f" For another number of channels, set `image_shape`={shape}."
        raise ValueError(
            "X must have 1, 3 or 4 channels, in the last or the second dimension; got "
            f"shape {x_shape}.{how}"
        )
    return _channels_in_front(shape, shape[2] in CHANNELS)


def known_layout(x_shape) -> bool:
    """Whether the shape of X alone says that it holds images, and how."""
    if len(x_shape) == 3:
        return x_shape[2] not in (3, 4) or min(x_shape[:2]) < LEAST_SIDE
    if len(x_shape) != 4:
        return False
    return (x_shape[1] in CHANNELS) != (x_shape[3] in CHANNELS)


def _given_shape(x_shape, image_shape):
    shape = tuple(image_shape) if np.iterable(image_shape) else (image_shape,)
    whole = all(isinstance(n, Integral) and not isinstance(n, bool) for n in shape)
    valid = whole and len(shape) in (2, 3) and min(shape) >= 1
    if valid and len(shape) == 3:
        valid = _channels_come_last(shape) is not None
    if not valid:
        raise ValueError(
            "`image_shape` must be (H, W), (H, W, C) or (C, H, W), where C is 1, 3 or "
            f"4, or differs from H and W; got {image_shape!r}."
        )
    shape = tuple(map(int, shape))  # without integers of NumPy
    if x_shape[1:] != shape and (len(x_shape) != 2 or x_shape[1] != math.prod(shape)):
        raise ValueError(
            f"`image_shape`={shape} needs X of shape {(x_shape[0], *shape)}, or rows "
            f"of {math.prod(shape)} values; got X of shape {x_shape}."
        )
    if len(shape) == 2:
        return (1, *shape), True
    return _channels_in_front(shape, _channels_come_last(shape))


def _channels_come_last(shape) -> bool | None:
    """Whether a shape is (H, W, C), not (C, H, W); None if it may be either.

    In a square image, C is the size that differs from the other two. Otherwise the last
    size is C if it is 1, 3 or 4, or else the first if that is. If neither is, C is the
    smaller of the two.
    """
    first, middle, last = shape
    if (first == middle) != (middle == last):
        return first == middle
    if last in CHANNELS or first in CHANNELS:
        return last in CHANNELS
    return None if first == last else last < first


def _channels_in_front(shape, last):
    """(C, H, W) for either layout, and whether X is read as (C, H, W)."""
    if last:
        return (shape[2], *shape[:2]), shape[2] == 1
    return tuple(shape), True


def with_range(fmt: SampleFormat, X) -> SampleFormat:
    """A layout with the values of black and white in X: enough to draw images.

    Those of 8 bits need not be read.
    """
    minimum = maximum = 0.0
    if X.dtype not in (np.bool_, np.uint8):
        lows, highs = extremes(X, by_feature=False)
        minimum, maximum = float(lows.min()), float(highs.max())
    low, high = _value_range(X.dtype, minimum, maximum)
    return replace(fmt, low=low, high=high)


def _value_range(dtype, minimum, maximum):
    if dtype == np.bool_:
        return 0.0, 1.0
    if dtype == np.uint8:
        return 0.0, 255.0
    # Use one of the two usual ranges if it fits, and the range of X otherwise.
    for usual in (1.0, 255.0):
        if minimum >= 0 and usual / 2 < maximum <= usual:
            return 0.0, usual
    if minimum == maximum:
        return minimum, minimum + max(1.0, abs(minimum))
    return minimum, maximum


def _statistics(X, fmt):
    """Mean and standard deviation per channel of [0, 1] images, or per feature."""
    if fmt.is_image:
        axes = (0, 2, 3)
        parts = (fmt.as_batch(as_tensor(part)).double().numpy() for part in chunks(X))
    else:
        axes = (0,)
        parts = (part.astype(np.float64) for part in chunks(X))
    count, mean, squares = 0, 0.0, 0.0
    for part in parts:  # merged as in Chan, Golub and LeVeque (1983): no cancellation
        n = part.size // part.shape[1]
        part_mean = part.mean(axis=axes)
        delta = part_mean - mean
        squares += part.var(axis=axes) * n
        squares += delta**2 * (count * n / (count + n))
        mean += delta * (n / (count + n))
        count += n
    std = np.sqrt(squares / count)
    # A constant feature is not scaled, as this would enlarge the rounding error.
    noise = 1e-12 * np.abs(mean)
    std = np.where(std > noise, std, np.maximum(noise, 1.0))
    return mean.tolist(), std.tolist()


def as_tensor(array) -> Tensor:
    """An array as a tensor, in a type that torch computes with."""
    if array.dtype not in (np.uint8, np.float32, np.float64):
        array = array.astype(np.float64 if array.dtype.itemsize > 2 else np.float32)
    if not array.flags.writeable:
        array = array.copy()
    return torch.from_numpy(np.ascontiguousarray(array))
