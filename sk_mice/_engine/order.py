"""The order of an epoch for X in a file: random, but read in whole blocks.

A block consists of adjacent rows. The blocks are put in a random order and divided into
windows, and the rows of each window are shuffled. So each block is read once, as a
whole.
"""

import torch
from torch import Tensor


def windows(n: int, block: int, window: int, generator: torch.Generator):
    """The windows of one epoch: tensors with the indices of rows, in training order.

    Each of the n rows comes once. A block has `block` rows, and a window `window`.
    """
    # Blocks begin at other rows in each epoch, so that no rows always stay together.
    shift = int(torch.randint(block, (), generator=generator))
    starts = torch.randperm(-(-(n + shift) // block), generator=generator) * block
    rows = (starts[:, None] - shift + torch.arange(block)).flatten()
    rows = rows[(rows >= 0) & (rows < n)]
    return tuple(
        part[torch.randperm(len(part), generator=generator)]
        for part in rows.split(window)
    )


def blocks_of(rows: Tensor) -> list[tuple[int, int]]:
    """The runs of adjacent rows, each by its first row and the one after its last."""
    rows = rows.sort().values
    runs = rows.tensor_split((rows.diff() > 1).nonzero().flatten() + 1)
    return [(int(run[0]), int(run[-1]) + 1) for run in runs]
