"""The order of an epoch for X in a file: random, and kind to disks.

Rows that lie beside one another form blocks. Blocks in a random order fill a window
after the other, and the rows of a window are shuffled. So a disk reads whole blocks,
and each of them once.
"""

import torch
from torch import Tensor


def windows(n: int, block: int, window: int, generator: torch.Generator):
    """The windows of one epoch, as the indices of their rows in the order of training.

    They are tensors, in which each of n rows comes once. A block has `block` rows, a
    window has `window`.
    """
    # Blocks begin elsewhere in each epoch, so that none of their rows stay together.
    shift = int(torch.randint(block, (), generator=generator))
    starts = torch.randperm(-(-(n + shift) // block), generator=generator) * block
    rows = (starts[:, None] - shift + torch.arange(block)).flatten()
    rows = rows[(rows >= 0) & (rows < n)]
    return tuple(
        part[torch.randperm(len(part), generator=generator)]
        for part in rows.split(window)
    )


def blocks_of(rows: Tensor) -> list[tuple[int, int]]:
    """Where the runs of adjacent rows begin and end, in ascending order."""
    rows = rows.sort().values
    runs = rows.tensor_split((rows.diff() > 1).nonzero().flatten() + 1)
    return [(int(run[0]), int(run[-1]) + 1) for run in runs]
