"""X on the device, or on its way to it, and its batches."""

import math
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from .arrays import chunks, fill
from .format import SampleFormat, as_tensor
from .maps import mapped_file, will_need
from .order import blocks_of, windows
from .threads import begun_ahead

LARGE = 2**30  # bytes; a larger X in a file is read piece by piece
RESIDENT_SHARE = 0.5  # largest share of a GPU's free memory for X
# Bytes of X in a file: read at a time, and shuffled at a time.
BLOCK, WINDOW = 2**20, 2**30
FEW_VALUES = 2**20  # of an X larger than memory, converted at a time
BATCHES_AHEAD = 2  # batches that a thread gathers ahead for a GPU


class Samples(Dataset):
    """The samples of X, an array or `DatasetRows`, delivered in batches of indices.

    On a CPU, and if X is larger than half of the free memory of a GPU, X stays where it
    is (also on disk, as a memory map), and each batch is gathered from it. Otherwise X
    is moved to the device once: images of 8 bits as they are, anything else in the form
    of batches. An X in a file of more than 1 GiB is shuffled in windows of that size.

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
            return as_tensor(self.X[:]).to(self.device)
        size = (len(self), *self.format.shape)
        resident = torch.empty(size, dtype=torch.float32, device=self.device)
        stored = (as_tensor(part).to(self.device) for part in chunks(self.X))
        fill(resident, map(self.format.as_batch, stored))
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
        values = as_tensor(self.X[indices.numpy()])
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
        with ThreadPoolExecutor(1) as reader:
            tasks = (reader.submit(self._gathered, indices) for indices in batches)
            gathered = map(Future.result, begun_ahead(tasks, BATCHES_AHEAD))
            yield from map(self._moved_batch, gathered)

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
        """Whether X may be larger than memory: what grows with it has to be small."""
        stored = mapped_file(self.X) is not None or not isinstance(self.X, np.ndarray)
        return stored and self.X.nbytes > LARGE

    def _shuffled_in_windows(self, n_batches: int, generator):
        """Yield batches; the system reads one window ahead."""
        n_bytes = self.X.nbytes / len(self)
        block, window = (max(1, round(size / n_bytes)) for size in (BLOCK, WINDOW))
        parts = windows(len(self), block, window, generator)
        done, hinted, ahead = 0, 0, list(parts)
        for batch in torch.cat(parts).tensor_split(n_batches):
            # Not before the second batch, as a probe of a fit takes only one.
            while done and ahead and hinted < done + window:
                for start, stop in blocks_of(ahead[0]):
                    will_need(self.X, start, stop)
                hinted += len(ahead.pop(0))
            yield batch
            done += len(batch)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device, without waiting for the queued work of a GPU."""
    if device.type == "cuda" and not tensor.is_cuda:
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def batches_per_epoch(n_samples: int, batch_size: int) -> int:
    """Number of batches, which have equal sizes to within one.

    None holds a single sample, which batch normalisation cannot take: with a
    `batch_size` of 2 and an odd number of samples one holds three.
    """
    return min(-(-n_samples // batch_size), n_samples // 2)
