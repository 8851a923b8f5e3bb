"""X as it is stored: layout, range of values, statistics, batches."""

import math
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from numbers import Integral

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from .arrays import chunks, extremes
from .maps import mapped_file, will_need
from .order import blocks_of, windows

__all__ = [
    "SampleFormat",
    "Samples",
    "batches_per_epoch",
    "infer_format",
    "to_device",
]

CHANNELS = (1, 3, 4)
RESIDENT_SHARE = 0.5  # largest share of the device's free memory for X
LARGEST = 1e140
# Bytes that are read from a file in one go, and among which its rows are shuffled.
BLOCK, WINDOW = 2**20, 2**30
FEW_VALUES = 2**20  # of which the statistics of a large X are sums at a time
BATCHES_AHEAD = 2  # that a thread gathers for a GPU


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
    # Extremes of X in `fit`: of all values of images, of each feature; () is unknown.
    seen_low: tuple[float, ...] = field(default=(), repr=False)
    seen_high: tuple[float, ...] = field(default=(), repr=False)

    def __post_init__(self):
        """Check the extremes, which may come from a file."""
        n_seen = 1 if self.is_image else self.shape[0]
        figures = (*self.seen_low, *self.seen_high)
        if figures and not (
            len(self.seen_low) == len(self.seen_high) == n_seen
            and all(type(v) is float and math.isfinite(v) for v in figures)
        ):
            raise ValueError("its format must have the extremes of X, if any.")

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
        # Eight bits are exact in float32; other values may be of any size.
        values = values.float() if values.dtype == torch.uint8 else values.double()
        return ((values - self.low) / (self.high - self.low)).float()


def is_large(X) -> bool:
    """Whether X may be larger than memory: what grows with it has to be small."""
    stored = mapped_file(X) is not None or not isinstance(X, np.ndarray)
    return stored and X.nbytes > WINDOW


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
        Takes the rows of a two-dimensional X for flattened images.

    Returns
    -------
    SampleFormat

    Raises
    ------
    ValueError
        If a value is not finite, or the shape fits no image layout or more than one.
    """
    if 0 in X.shape:
        raise ValueError(f"X must hold samples with values; got shape {X.shape}.")
    shape, channels_first = _sample_shape(X.shape, image_shape)
    is_image = len(shape) == 3
    lows, highs = map(np.atleast_1d, extremes(X, axis=None if is_image else 0))
    minimum, maximum = float(lows.min()), float(highs.max())
    if max(abs(minimum), abs(maximum)) > LARGEST:
        raise ValueError(
            f"X must hold values up to {LARGEST:g} in size, so that their squares can "
            f"be summed; got values from {minimum:g} to {maximum:g}."
        )
    low, high = _value_range(X.dtype, minimum, maximum) if is_image else (0.0, 1.0)
    fmt = SampleFormat(tuple(X.shape[1:]), shape, channels_first, low, high)
    mean, std = _statistics(X, fmt)
    return replace(
        fmt,
        mean=tuple(mean),
        std=tuple(std),
        seen_low=tuple(lows.tolist()),
        seen_high=tuple(highs.tolist()),
    )


def _sample_shape(x_shape, image_shape):
    """Shape (C, H, W) or (F,) of a sample, and whether its channels come first."""
    if image_shape is not None:
        return _given_shape(x_shape, image_shape)
    if len(x_shape) == 2:
        return (x_shape[1],), False
    if len(x_shape) == 3:
        return (1, *x_shape[1:]), True
    if len(x_shape) != 4:
        raise ValueError(
            "X must have shape (N, H, W), (N, H, W, C), (N, C, H, W) or (N, features); "
            f"got {x_shape}."
        )
    last, first = x_shape[3] in CHANNELS, x_shape[1] in CHANNELS
    if last and first:
        raise ValueError(
            f"X of shape {x_shape} can be read as (N, H, W, C) and as (N, C, H, W). "
            f"Set `image_shape`={x_shape[1:]} for the former, and give "
            "X.transpose(0, 2, 3, 1) in the latter case."
        )
    if not (last or first):
        raise ValueError(
            "X must have 1, 3 or 4 channels, in the last or the second dimension; got "
            f"shape {x_shape}."
        )
    return _channels_in_front(x_shape[1:])


def _given_shape(x_shape, image_shape):
    shape = tuple(image_shape)
    whole = all(isinstance(n, Integral) and not isinstance(n, bool) for n in shape)
    valid = whole and len(shape) in (2, 3) and min(shape) >= 1
    if valid and len(shape) == 3:
        valid = shape[2] in CHANNELS or shape[0] in CHANNELS
    if not valid:
        raise ValueError(
            "`image_shape` must be (H, W), (H, W, C) or (C, H, W) with C of 1, 3 or 4; "
            f"got {shape}."
        )
    if x_shape[1:] != shape and (len(x_shape) != 2 or x_shape[1] != math.prod(shape)):
        raise ValueError(
            f"`image_shape`={shape} needs X of shape {(x_shape[0], *shape)}, or rows "
            f"of {math.prod(shape)} values; got X of shape {x_shape}."
        )
    return ((1, *shape), True) if len(shape) == 2 else _channels_in_front(shape)


def _channels_in_front(shape):
    """(C, H, W) for either layout, and whether it is (C, H, W)."""
    if shape[2] in CHANNELS:
        return (shape[2], *shape[:2]), shape[2] == 1
    return tuple(shape), True


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
    pieces = chunks(X, FEW_VALUES) if is_large(X) else chunks(X)
    if fmt.is_image:
        axes = (0, 2, 3)
        parts = (fmt.as_batch(_tensor(part)).double().numpy() for part in pieces)
    else:
        axes = (0,)
        parts = (part.astype(np.float64) for part in pieces)
    count, mean, squares = 0, 0.0, 0.0
    for part in parts:  # merged as in Chan, Golub and LeVeque (1983): no cancellation
        n = part.size // part.shape[1]
        part_mean = part.mean(axis=axes)
        delta = part_mean - mean
        squares = (
            squares + part.var(axis=axes) * n + delta**2 * (count * n / (count + n))
        )
        mean = mean + delta * (n / (count + n))
        count += n
    std = np.sqrt(squares / count)
    # A constant has no information: do not enlarge the rounding error of its mean.
    noise = 1e-12 * np.abs(mean)
    std = np.where(std > noise, std, np.maximum(noise, 1.0))
    return mean.tolist(), std.tolist()


def _tensor(array) -> Tensor:
    """An array as a tensor, in a type that torch computes with."""
    if array.dtype not in (np.uint8, np.float32, np.float64):
        array = array.astype(np.float64 if array.dtype.itemsize > 2 else np.float32)
    if not (array.flags.writeable and array.dtype.isnative):
        array = array.astype(array.dtype.newbyteorder("="))
    return torch.from_numpy(np.ascontiguousarray(array))


class Samples(Dataset):
    """The samples of X, delivered in batches of indices.

    On a CPU, and if X is larger than half of the free memory of a GPU, X stays where it
    is (also on disk, as a memory map), and each batch is gathered from it. Otherwise X
    moves to the device once, images of 8 bits as they are, and all else as batches need
    it. An X in a file of more than 1 GiB is shuffled in windows of that size.

    Parameters
    ----------
    X : ndarray or DatasetRows
    fmt : SampleFormat
    device : torch.device

    Attributes
    ----------
    place : torch.device
        Where X is, and so the indices of its samples.
    """

    def __init__(self, X, fmt: SampleFormat, device: torch.device):
        self.X = X
        self.format = fmt
        self.device = device
        self.resident = None
        if device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(device)
            if self._resident_bytes() <= RESIDENT_SHARE * free:
                self.resident = self._moved()
        self.place = torch.device("cpu") if self.resident is None else device

    @property
    def _has_eight_bits(self) -> bool:
        """Whether X is resident as it is stored, in a quarter of the memory."""
        return self.format.is_image and self.X.dtype == np.uint8

    def _resident_bytes(self) -> int:
        n_bytes = 1 if self._has_eight_bits else 4
        return n_bytes * len(self) * math.prod(self.format.shape)

    def _moved(self) -> Tensor:
        if self._has_eight_bits:
            return _tensor(self.X[:]).to(self.device)
        size = (len(self), *self.format.shape)
        resident = torch.empty(size, dtype=torch.float32, device=self.device)
        start = 0
        for part in chunks(self.X):
            batch = self.format.as_batch(_tensor(part).to(self.device))
            resident[start : start + len(part)] = batch
            start += len(part)
        return resident

    def __len__(self):
        return len(self.X)

    def __getitem__(self, indices: Tensor) -> Tensor:
        """Samples (B, C, H, W) in [0, 1] or standardised (B, F), on the device."""
        if self.resident is None:
            return self._moved_batch(self._gathered(indices))
        values = self.resident[indices]
        return self.format.as_batch(values) if self._has_eight_bits else values

    def _gathered(self, indices: Tensor) -> Tensor:
        """Stored values that are not resident, in memory a GPU can read from."""
        # The gather makes a fresh array, so a read-only X is never shared.
        values = _tensor(self.X[indices.numpy()])
        return values.pin_memory() if self.device.type == "cuda" else values

    def _moved_batch(self, values: Tensor) -> Tensor:
        values = values.to(self.device, non_blocking=True)
        if not self.is_large or self.device.type != "cpu":
            return self.format.as_batch(values)
        # In float64, a whole batch takes six times the memory.
        n = max(1, FEW_VALUES // values[0].numel())
        return torch.cat([self.format.as_batch(part) for part in values.split(n)])

    def read(self, batches):
        """Yield the samples of each batch of indices.

        What is not resident on a GPU is gathered ahead by a thread.
        """
        if self.resident is not None or self.device.type == "cpu":
            yield from map(self.__getitem__, batches)
            return
        ahead = deque()
        with ThreadPoolExecutor(1) as reader:
            for indices in batches:
                ahead.append(reader.submit(self._gathered, indices))
                if len(ahead) > BATCHES_AHEAD:
                    yield self._moved_batch(ahead.popleft().result())
            while ahead:
                yield self._moved_batch(ahead.popleft().result())

    def in_order(self, batch_size: int, rows=slice(None)):
        """All samples, or those of some rows, batch by batch, in the order of X."""
        order = torch.arange(len(self), device=self.place)[rows]
        yield from self.read(order.split(batch_size))

    def shuffled_indices(self, batch_size: int, generator: torch.Generator):
        """The batches of one epoch as the indices of their samples, where X is."""
        n = batches_per_epoch(len(self), batch_size)
        large = self.resident is None and self.is_large
        if large and mapped_file(self.X) is not None:
            return self._shuffled_in_windows(n, generator)
        order = torch.randperm(len(self), generator=generator)
        order = to_device(order, self.place)  # once, as each time takes as long
        return order.tensor_split(n)

    @property
    def is_large(self) -> bool:
        return is_large(self.X)

    def _shuffled_in_windows(self, n_batches: int, generator):
        """Yield batches; the system reads one window ahead."""
        n_bytes = self.X.nbytes / len(self)
        block, window = (max(1, round(size / n_bytes)) for size in (BLOCK, WINDOW))
        parts = windows(len(self), block, window, generator)
        done, hinted, ahead = 0, 0, list(parts)
        for batch in torch.cat(parts).tensor_split(n_batches):
            # Not before the second batch, as some take but one.
            while done and ahead and hinted < done + window:
                for start, stop in blocks_of(ahead[0]):
                    will_need(self.X, start, stop)
                hinted += len(ahead.pop(0))
            yield batch
            done += len(batch)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device, without waiting until a GPU has done what it has to do."""
    if device.type == "cuda" and not tensor.is_cuda:
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def batches_per_epoch(n_samples: int, batch_size: int) -> int:
    """Number of batches, which have equal sizes to within one.

    None holds a single sample, which batch normalisation cannot take: with a
    `batch_size` of 2 and an odd number of samples one holds three.
    """
    return min(-(-n_samples // batch_size), n_samples // 2)
