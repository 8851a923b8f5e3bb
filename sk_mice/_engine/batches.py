"""The batches of an epoch: shuffled, with neighbors, and for each process its rows."""

from itertools import tee
from typing import NamedTuple

import torch
from torch import Tensor

from .distributed import Part
from .samples import to_device


class Batch(NamedTuple):
    """Samples of a step: x (of all rows, if the views mix them) and their numbers.

    Of a fit in several processes, `indices` and `part` are of this process's rows.
    """

    x: Tensor
    indices: Tensor
    n_samples: int  # of the whole batch
    part: Part | None = None


class Batches:
    """Iterates over the shuffled batches of an epoch of a trainer, each time a new one.

    With neighbors, a neighbor replaces the sample in each view. Indices are on the
    device of the batches.
    """

    def __init__(self, trainer, samples, neighbors):
        self.trainer, self.samples, self.neighbors = trainer, samples, neighbors

    def __iter__(self):
        order = self.trainer.batch_size, self.trainer.order_generator
        batches, read = tee(self.samples.shuffled_indices(*order))
        read = self.samples.read(map(self._read, read))
        for x, indices in zip(read, batches, strict=True):
            n, own = len(indices), self.trainer.group.rows(len(indices))
            indices = to_device(indices[own], self.samples.device)
            yield Batch(x, indices, n, self._part(own, n))

    def _read(self, indices: Tensor) -> Tensor:
        """The samples from which this process makes the views of a batch."""
        trainer = self.trainer
        own = trainer.group.rows(len(indices))
        read = slice(None) if trainer.views.mixes else own
        if self.neighbors is None:
            return indices[read]
        n_views, generator = trainer.module_.n_views, trainer.order_generator
        return self.neighbors.draw(indices, n_views, generator, read)

    def _part(self, own: slice, n: int) -> Part | None:
        if self.trainer.group.size == 1:
            return None
        # With neighbors, x holds a row for each view of each sample.
        n_copies = 1 if self.neighbors is None else self.trainer.module_.n_views
        rows = torch.arange(n_copies * n).view(n_copies, n)[:, own].flatten()
        return Part(to_device(rows, self.samples.device), n_copies * n)
