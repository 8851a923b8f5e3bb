"""Random views of whole batches, made on the device from an explicit generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..arrays import floats
from .geometry import is_small_and_grey
from .images import RECIPES, ImageViews
from .vectors import VectorViews

__all__ = ["NO_TILT", "check_affine", "make_views"]

MIN_SIDE = 16
NO_TILT = (0.0, 0.0)


def make_views(
    shape: Sequence[int],
    *,
    mean: Sequence[float] | Tensor,
    std: Sequence[float] | Tensor,
    augmentation: str | Callable | None = "moco",
    flip: bool = True,
    crop_scale: str | tuple[float, float] = "auto",
    affine: tuple[float, float] = NO_TILT,
) -> ImageViews | VectorViews:
    """Make the function that turns a batch into random views.

    Parameters
    ----------
    shape : (C, H, W) or (D,)
        Shape of one sample: an image of 1, 3 or 4 channels, or a vector.
    mean, std : sequence or Tensor of shape (C,) or (D,)
        Statistics per channel (of images scaled to [0, 1]) or feature, used to
        normalise. A standard deviation of zero counts as one.
    augmentation : {"moco", "simclr"}, callable or None
        "moco" is the paper's: a random resized crop, grayscale, colour jitter and a
        flip. "simclr" has stronger jitter and blur. Vectors get Gaussian noise and
        values of other samples (0.1 standard deviations and a fifth of the features;
        0.2 and two fifths for "simclr"). A callable is called as
        `augmentation(stack, generator)` with all views of a batch, (V * B, C, H, W)
        in [0, 1] or (V * B, D), and what it returns is resized and normalised.
        None repeats the plain sample.
    flip : bool
        Whether images are mirrored left to right with probability one half.
    crop_scale : "auto" or (low, high)
        Range of a crop's share of the image's area. "auto" is the paper's (0.2, 1),
        and (0.5, 1) for grey images up to 32 pixels, which lose their shape under
        harder crops.
    affine : (rotation, shear)
        In degrees, at most 180 and at most 45. A view is turned, and sheared along its
        rows, by angles that are uniform between minus and plus that.

    Returns
    -------
    ImageViews or VectorViews

    References
    ----------
    He et al., Momentum contrast for unsupervised visual representation learning,
    CVPR 2020. Chen et al., A simple framework for contrastive learning of visual
    representations, ICML 2020. Bahri et al., SCARF: self-supervised contrastive
    learning using random feature corruption, ICLR 2022.

    Examples
    --------
    >>> import torch
    >>> views = make_views((1, 8, 8), mean=[0.3], std=[0.4], flip=False)
    >>> batch = torch.rand(5, 1, 8, 8)
    >>> views(batch, 3, torch.Generator().manual_seed(0)).shape
    torch.Size([3, 5, 1, 16, 16])
    """
    shape = tuple(int(side) for side in shape)
    _check_shape(shape)
    _check_augmentation(augmentation)
    mean = _statistics(mean, "mean", shape)
    std = _statistics(std, "std", shape)
    std = torch.where(std == 0, 1.0, std)
    if len(shape) == 1:
        return VectorViews(shape, mean, std, augmentation)
    out_shape = (shape[0], *(max(side, MIN_SIDE) for side in shape[1:]))
    geometry = flip, _crop_scale(crop_scale, shape), check_affine(affine)
    return ImageViews(shape, out_shape, mean, std, augmentation, *geometry)


def _check_shape(shape):
    image = len(shape) == 3 and shape[0] in (1, 3, 4)
    if not (image or len(shape) == 1) or min(shape) < 1:
        raise ValueError(
            "`shape` must be (C, H, W) with C of 1, 3 or 4, or (n_features,), all "
            f"positive; got {shape}."
        )


def _check_augmentation(augmentation):
    if augmentation is None or callable(augmentation):
        return
    if not isinstance(augmentation, str) or augmentation not in RECIPES:
        names = ", ".join(repr(name) for name in RECIPES)
        raise ValueError(
            f"`augmentation` must be one of {names}, a callable or None; "
            f"got {augmentation!r}."
        )


def _statistics(values, name, shape):
    values = torch.as_tensor(values, dtype=torch.float32).detach().cpu()
    if values.shape != shape[:1]:
        raise ValueError(
            f"`{name}` must hold one value per channel or feature, {shape[0]} in all; "
            f"got shape {tuple(values.shape)}."
        )
    return values


def _crop_scale(crop_scale, shape):
    if isinstance(crop_scale, str) and crop_scale == "auto":
        return (0.5, 1.0) if is_small_and_grey(shape) else (0.2, 1.0)
    try:
        low, high = floats(crop_scale)
        valid = 0 < low <= high <= 1
    except (TypeError, ValueError):
        valid = False
    if not valid:
        raise ValueError(
            "`crop_scale` must be 'auto' or (low, high) with 0 < low <= high <= 1; "
            f"got {crop_scale!r}."
        )
    return low, high


def check_affine(affine) -> tuple[float, float]:
    """Rotation and shear as floats.

    Raises
    ------
    ValueError
        If they are anything else than two angles within their limits.
    """
    try:
        rotation, shear = floats(affine)
        valid = 0 <= rotation <= 180 and 0 <= shear <= 45
    except (TypeError, ValueError):
        valid = False
    if not valid:
        raise ValueError(
            "`affine` must be 'auto' or (rotation, shear) in degrees, from 0 to 180 "
            f"and from 0 to 45; got {affine!r}."
        )
    return rotation, shear
