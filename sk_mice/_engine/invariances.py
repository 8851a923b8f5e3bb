"""Whether mirrored or tilted images could be images of the set.

In a set that holds an image as likely as its mirror image, it is even odds which of the
two lies nearer to the other images. Mirrored digits lie farther away than digits.

In a set whose images lean one way or the other, as handwriting does, an image comes
nearer to the one that is nearest to it if it is tilted a little. Clothes hang straight.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from .geometry import sampling_grid
from .samples import Samples

N_COMPARED = 1000  # images at most, a random choice
SIDE = 32  # larger images are averaged to it
LARGEST_SHARE = 0.6  # nearer as they are, where one half is expected
SHEARS = (-20, -15, -10, -5, 5, 10, 15, 20)  # degrees
# Of the distance: clothes (Fashion-MNIST) gain 1%, handwritten digits 2 to 5%.
SMALLEST_GAIN = 0.015


def mirror_images_look_alike(samples: Samples) -> bool:
    """Whether mirror images, left to right, look like the images.

    Not if significantly more than half of the images lie nearer to the others as they
    are than mirrored: more than 60%, and for fewer than 100 images more by two standard
    deviations.
    """
    images = _some(samples)
    limit = max(LARGEST_SHARE, 0.5 + 1 / math.sqrt(len(images)))
    return share_nearer_as_it_is(images) <= limit


def images_lean(samples: Samples) -> bool:
    """Whether shearing brings images nearer to their nearest by more than 1.5%."""
    return gain_of_leaning(_some(samples)) > SMALLEST_GAIN


def share_nearer_as_it_is(images: Tensor) -> float:
    """Share of images (N, C, H, W) that lie nearer to another than when mirrored.

    They are compared pixel by pixel. Ties, as of symmetrical images, count as half.
    """
    mean = images.mean(dim=0)
    images = images - (mean + mean.flip(-1)) / 2  # smaller values are rounded less
    rows, flipped = images.flatten(1), images.flip(-1).flatten(1)
    as_it_is, mirrored = _distances(rows, rows), _distances(flipped, rows)
    as_it_is, mirrored = as_it_is.amin(dim=1), mirrored.amin(dim=1)
    tied = torch.isclose(as_it_is, mirrored, rtol=1e-4)
    return torch.where(tied, 0.5, (as_it_is < mirrored).float()).mean().item()


def gain_of_leaning(images: Tensor) -> float:
    """By how much shearing brings images (N, C, H, W) nearer to their nearest.

    The best of some shears along the rows, as a share of the distance without, in the
    mean of all images; 0 where none comes nearer.
    """
    # Enlarged before and averaged after, an image that is not sheared is as soft as one
    # that is; else the softer would lie nearer to all others.
    large = F.interpolate(images, scale_factor=2, mode="bilinear")
    rows = F.avg_pool2d(large, 2).flatten(1)
    distance, nearest = _distances(rows, rows).min(dim=1)
    best = distance
    for degrees in SHEARS:
        sheared = F.avg_pool2d(_sheared(large, math.radians(degrees)), 2).flatten(1)
        best = torch.minimum(best, (sheared - rows[nearest]).norm(dim=1))
    gain = 1 - best / distance
    return torch.where(distance > 0, gain, 0.0).mean().item()


def _some(samples: Samples) -> Tensor:
    """A random choice of the images, averaged to at most 32 x 32."""
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randperm(len(samples), generator=generator)[:N_COMPARED]
    return torch.cat([_shrunk(samples[some]) for some in chosen.split(64)])


def _shrunk(images: Tensor) -> Tensor:
    """Averaged in a way that mirroring does not change."""
    size = [min(side, SIDE) for side in images.shape[2:]]
    return F.adaptive_avg_pool2d(images.float(), size)


def _sheared(images: Tensor, angle: float) -> Tensor:
    size = images.shape[2:]
    zeros = images.new_zeros(len(images))
    box = zeros, zeros, zeros + size[0], zeros + size[1]
    grid = sampling_grid(*box, size, size, tilt=(zeros, zeros + angle))
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


def _distances(rows: Tensor, images: Tensor) -> Tensor:
    """Distances of each row to each of the images, except to its own."""
    return torch.cdist(rows, images).fill_diagonal_(math.inf)
