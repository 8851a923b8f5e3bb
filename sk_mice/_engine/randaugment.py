"""The operations SCAN draws from, on batches of images on the device.

SCAN (Van Gansbeke et al., ECCV 2020) follows RandAugment (Cubuk et al., CVPR Workshops
2020): every image draws four of fourteen operations with replacement, each with a
strength of its own, and ends with a cutout. SCAN runs them one image at a time in
Pillow. Here a round of draws is one pass over the operations: the images that drew an
operation are gathered, changed together and put back, and all that move pixels share
one affine map per image. Gathering asks the device how many images drew what, so unlike
the other augmentations this one waits for it.

Pillow rounds to 8 bits after each operation and we do not; equalize and posterize,
which are defined on 8 bits, round on entry. A fourth channel (alpha, infrared) follows
the geometry and the cutout only.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, avg_pool2d, grid_sample

from .colours import LUMA

N_OPERATIONS = 4


def luma(images):
    """Luma of (N, C, H, W), shape (N, 1, H, W); grey is its own luma."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.unbind(1)
    return (LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue)[:, None]


def identity(images, strength):
    """Leave the images as they are."""
    return images


def autocontrast(images, strength):
    """Stretch every channel to [0, 1]; a constant channel stays."""
    low = images.amin((2, 3), keepdim=True)
    span = images.amax((2, 3), keepdim=True) - low
    constant = span == 0
    stretched = (images - low) / torch.where(constant, 1.0, span)
    return torch.where(constant, images, stretched)


def equalize(images, strength):
    """Flatten every channel's histogram of 256 bins, by Pillow's integer rule.

    The rule moves one level per (pixels outside the brightest bin) // 255 pixels, so
    where that is zero, as in most images of 16 x 16, it leaves a channel as it is.
    """
    levels = _to_8_bits(images).flatten(2).long()  # (N, C, H * W)
    histogram = levels.new_zeros(*levels.shape[:2], 256)
    histogram.scatter_add_(2, levels, torch.ones_like(levels))
    brightest = histogram.gather(2, levels.amax(2, keepdim=True))
    step = (levels.shape[2] - brightest) // 255
    below = histogram.cumsum(2) - histogram
    table = (below + step // 2) // step.clamp(min=1)
    equalized = table.clamp_(max=255).gather(2, levels).float() / 255
    unchanged = (step == 0)[..., None]
    return torch.where(unchanged, images, equalized.view_as(images))


def solarize(images, strength):
    """Invert what is at or above the threshold `strength`."""
    return torch.where(images >= strength, 1 - images, images)


def posterize(images, strength):
    """Keep the leading floor(strength) of 8 bits."""
    step = 2 ** (8 - strength.floor())
    return torch.floor(_to_8_bits(images) / step) * step / 255


def colour(images, strength):
    """Scale chroma by `strength`: at 0 the image is grey."""
    return torch.lerp(luma(images).expand_as(images), images, strength)


def contrast(images, strength):
    """Scale the distance from the image's mean luma by `strength`."""
    mean = luma(images).mean((2, 3), keepdim=True)
    return torch.lerp(mean.expand_as(images), images, strength)


def brightness(images, strength):
    """Scale the image by `strength`."""
    return images * strength


def sharpness(images, strength):
    """Blend in Pillow's 3 x 3 smoothing by 1 - strength; the border stays."""
    core = images[..., 1:-1, 1:-1]
    # Weights (1 1 1, 1 5 1, 1 1 1) / 13 are nine means and four centres.
    smooth = (9 * avg_pool2d(images, 3, stride=1) + 4 * core) / 13
    sharpened = images.clone()
    sharpened[..., 1:-1, 1:-1] = torch.lerp(smooth, core, strength)
    return sharpened


def _to_8_bits(images):
    return torch.round(images * 255)


# What each operation does to pixels, and the range SCAN draws its strength from.
# Solarize's 0 to 256 is in units of 255 here, posterize counts bits.
PIXEL_OPERATIONS = {
    "identity": (identity, 0.0, 1.0),
    "autocontrast": (autocontrast, 0.0, 1.0),
    "equalize": (equalize, 0.0, 1.0),
    "solarize": (solarize, 0.0, 256 / 255),
    "colour": (colour, 0.05, 0.95),
    "contrast": (contrast, 0.05, 0.95),
    "brightness": (brightness, 0.05, 0.95),
    "sharpness": (sharpness, 0.05, 0.95),
    "posterize": (posterize, 4.0, 8.0),
}
# Degrees counter-clockwise, slopes, and shares of the side.
GEOMETRIC_OPERATIONS = {
    "rotate": (-30.0, 30.0),
    "shear_x": (-0.1, 0.1),
    "shear_y": (-0.1, 0.1),
    "translate_x": (-0.1, 0.1),
    "translate_y": (-0.1, 0.1),
}


def warp(images, rotate, shear_x, shear_y, translate_x, translate_y):
    """Move every image by one affine map, nearest pixel, black outside, as Pillow does.

    Rotation is about the centre and shear about the top left corner. Where an image has
    several non-zero arguments their linear parts add, which is no composition: a round
    of draws has one per image.

    Parameters
    ----------
    images : Tensor of shape (N, C, H, W)
    rotate, shear_x, shear_y, translate_x, translate_y : Tensor of shape (N,)
        In the units of `GEOMETRIC_OPERATIONS`; a positive shift looks to the right or
        below, so the content moves left or up.

    Returns
    -------
    Tensor of shape (N, C, H, W)
    """
    height, width = images.shape[2:]
    radians = torch.deg2rad(rotate)
    cos, sin = torch.cos(radians), torch.sin(radians)
    # Where an output pixel looks, in pixels from the centre, then in half sides.
    tall = height / width
    right = (cos, (shear_x - sin) * tall, shear_x * tall + 2 * translate_x)
    down = ((shear_y + sin) / tall, cos, shear_y / tall + 2 * translate_y)
    theta = torch.stack((torch.stack(right, 1), torch.stack(down, 1)), 1)  # (N, 2, 3)
    grid = affine_grid(theta, images.shape, align_corners=False)
    return grid_sample(images, grid, mode="nearest", align_corners=False)


def cutout(images, draws, fill):
    """Cover a square at a random place with the mean colour.

    As in SCAN the side is uniform in 1 .. half the shorter side of the image, an odd
    one loses a pixel, and the part that sticks out is lost.

    Parameters
    ----------
    images : Tensor of shape (N, C, H, W)
    draws : Tensor of shape (3, N)
        Uniform in [0, 1): side, top, left.
    fill : Tensor of shape (C, 1, 1)

    Returns
    -------
    Tensor of shape (N, C, H, W)
    """
    height, width = images.shape[2:]
    reach = torch.floor(1 + draws[0] * (min(height, width) // 2)) // 2
    rows = _interval(draws[1], reach, height)
    columns = _interval(draws[2], reach, width)
    hole = rows[:, None, :, None] & columns[:, None, None, :]
    return torch.where(hole, fill, images)


def _interval(draws, reach, size):
    """Mask (N, size) of the pixels from centre - reach to centre + reach - 1."""
    centre = torch.floor(draws * size)
    offset = torch.arange(size, device=draws.device) - centre[:, None]
    return (offset >= -reach[:, None]) & (offset < reach[:, None])


def randaugment(images, fill, generator):
    """Four random operations and a cutout, drawn for every image.

    Parameters
    ----------
    images : float32 Tensor of shape (N, C, H, W)
        Values in [0, 1], sides of at least 3 pixels. C of 1, 3 or 4; colour has no
        meaning for grey images and is not drawn for them.
    fill : Tensor of shape (C, 1, 1)
        What cutout leaves.
    generator : torch.Generator

    Returns
    -------
    Tensor of shape (N, C, H, W), in [0, 1]
    """
    names, low, high = _table(images.shape[1], images.device)
    n_draws = 2 * N_OPERATIONS + 3
    size = (n_draws, len(images))
    on = {"generator": generator, "device": images.device}
    draws = torch.rand(size, dtype=torch.float32, **on)
    choices = (draws[:N_OPERATIONS] * len(names)).long()
    strengths = torch.lerp(low[choices], high[choices], draws[N_OPERATIONS:-3])
    images = images.clone()
    for choice, strength in zip(choices, strengths, strict=True):
        _apply_round(images, names, choice, strength)
    return cutout(images, draws[-3:], fill)


def _table(n_channels: int, device) -> tuple[list[str], Tensor, Tensor]:
    """Names and ranges of the operations that mean something for these images."""
    ranges = {name: row[1:] for name, row in PIXEL_OPERATIONS.items()}
    ranges |= GEOMETRIC_OPERATIONS
    if n_channels == 1:
        del ranges["colour"]
    bounds = list(ranges.values())
    bounds = torch.tensor(bounds, dtype=torch.float32, device=device)
    low, high = bounds.unbind(1)
    return list(ranges), low, high


def _apply_round(images, names, choice, strength):
    """Apply to every image, in place, the operation it chose."""
    for index, name in enumerate(names):
        chosen = torch.nonzero(choice == index).squeeze(1)
        if name in PIXEL_OPERATIONS and name != "identity" and len(chosen):
            operation = PIXEL_OPERATIONS[name][0]
            amount = strength[chosen][:, None, None, None]
            images[chosen, :3] = operation(images[chosen, :3], amount)
    moves = torch.stack(
        [
            torch.where(choice == names.index(name), strength, 0.0)
            for name in GEOMETRIC_OPERATIONS
        ]
    )
    chosen = torch.nonzero(moves.any(0)).squeeze(1)
    if len(chosen):
        images[chosen] = warp(images[chosen], *moves[:, chosen])
