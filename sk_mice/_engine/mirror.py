"""Whether the mirror image of an image could be one of the set.

In a set that holds an image as likely as its mirror image, it is even odds which of the
two lies nearer to the other images. Mirrored digits lie farther away than digits.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from .samples import Samples

__all__ = ["could_be_mirrored", "share_nearer_as_it_is"]

N_COMPARED = 1000  # images at most, a random choice
SIDE = 32  # to which larger images are averaged
LARGEST_SHARE = 0.6  # nearer as they are, where one half is expected


def could_be_mirrored(samples: Samples) -> bool:
    """Whether mirror images, left to right, look like the images.

    Parameters
    ----------
    samples : Samples
        Images.

    Returns
    -------
    bool
        False if significantly more than half of the images lie nearer to the others as
        they are than mirrored: more than 60%, and for fewer than 100 images more by two
        standard deviations.
    """
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randperm(len(samples), generator=generator)[:N_COMPARED]
    images = torch.cat([_shrunk(samples[some]) for some in chosen.split(64)])
    limit = max(LARGEST_SHARE, 0.5 + 1 / math.sqrt(len(images)))
    return share_nearer_as_it_is(images) <= limit


def _shrunk(images: Tensor) -> Tensor:
    """Images averaged to at most 32 x 32, in a way that mirroring does not change."""
    size = [min(side, SIDE) for side in images.shape[2:]]
    return F.adaptive_avg_pool2d(images.float(), size)


def share_nearer_as_it_is(images: Tensor) -> float:
    """Share of images nearer to the nearest other as they are than mirrored.

    Parameters
    ----------
    images : Tensor of shape (N, C, H, W)
        N >= 2. Compared pixel by pixel.

    Returns
    -------
    float
        Ties, as of symmetrical images, count as half.
    """
    mean = images.mean(dim=0)
    images = images - (mean + mean.flip(-1)) / 2  # so that rounding takes less
    rows, flipped = images.flatten(1), images.flip(-1).flatten(1)
    as_it_is, mirrored = _nearest(rows, rows), _nearest(flipped, rows)
    tied = torch.isclose(as_it_is, mirrored, rtol=1e-4)
    return torch.where(tied, 0.5, (as_it_is < mirrored).float()).mean().item()


def _nearest(rows: Tensor, images: Tensor) -> Tensor:
    """Distance of each row to the nearest of the images but its own."""
    return torch.cdist(rows, images).fill_diagonal_(math.inf).amin(dim=1)
