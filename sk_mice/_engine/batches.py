"""The shuffled batches of an epoch, of which each process gets its rows."""

from itertools import tee
from typing import NamedTuple

import torch
from torch import Tensor

from .distributed import Part
from .samples import to_device


class Batch(NamedTuple):
    """The samples of a step.

    If several processes share a fit, they are those of this process. Only `x` has all
    rows of the batch if views of a sample depend on other samples.
    """

    x: Tensor
    indices: Tensor
    n_samples: int  # of the whole batch
    part: Part | None = None  # None in a fit of one process


class Batches:
    """Iterates over the shuffled batches of an epoch of a trainer, each time a new one.

    With neighbors, a neighbor replaces the sample in each view. Indices are on the
    device of the batches.
    """

    def __init__(self, trainer, samples, neighbors):
        self.trainer, self.samples, self.neighbors = trainer, samples, neighbors

    def __iter__(self):
        trainer, samples = self.trainer, self.samples
        batches = samples.shuffled_indices(trainer.batch_size, trainer.order_generator)
        batches, ahead = tee(batches)  # samples may be read ahead
        read = samples.read(map(self._to_read, ahead))
        for x, indices in zip(read, batches, strict=True):
            n, own = len(indices), trainer.group.rows(len(indices))
            indices = to_device(indices[own], samples.device)
            yield Batch(x, indices, n, self._part(own, n))

    def _to_read(self, indices: Tensor) -> Tensor:
        """Indices of the samples from which this process makes the views of a batch."""
        trainer, rows = self.trainer, slice(None)
        if not trainer.views.mixes:
            rows = trainer.group.rows(len(indices))
        if self.neighbors is None:
            return indices[rows]
        n_views, generator = trainer.module_.n_views, trainer.order_generator
        return self.neighbors.draw(indices, n_views, generator, rows)

    def _part(self, own: slice, n: int) -> Part | None:
        if self.trainer.group.size == 1:
            return None
        # With neighbors, x holds a row for each view of each sample.
        n_copies = 1 if self.neighbors is None else self.trainer.module_.n_views
        rows = torch.arange(n_copies * n).view(n_copies, n)[:, own].flatten()
        return Part(to_device(rows, self.samples.device), n_copies * n)
