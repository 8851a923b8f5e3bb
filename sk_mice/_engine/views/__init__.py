"""Random views of whole batches, made on the device from an explicit generator."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .images import ImageViews
from .vectors import VectorViews

__all__ = ["make_views"]

MIN_SIDE = 16


def make_views(
    shape: tuple[int, ...],
    *,
    mean: Sequence[float] | Tensor,
    std: Sequence[float] | Tensor,
    augmentation=None,
) -> ImageViews | VectorViews:
    """Make the function that turns a batch into random views.

    Parameters
    ----------
    shape : (C, H, W) or (D,)
        Shape of one sample: an image of 1, 3 or 4 channels, or a vector.
    mean, std : sequence or Tensor of shape (C,) or (D,)
        Statistics per channel (of images scaled to [0, 1]) or feature, used to
        normalise. A standard deviation of zero counts as one.
    augmentation : object, callable or None
        For images an object with `colours` ("moco", "simclr" or None), `flip` (bool),
        `crop_scale` (low, high) and `affine` (rotation, shear), for vectors one with
        `noise` and `replacement`; see `sk_mice.augmentation`. A callable is called as
        `augmentation(stack, generator)` with all views of a batch, (V * B, C, H, W)
        in [0, 1] or (V * B, D), and what it returns is resized and normalised.
        None repeats the plain sample.

    Returns
    -------
    ImageViews or VectorViews

    Examples
    --------
    >>> import torch
    >>> views = make_views((1, 8, 8), mean=[0.3], std=[0.4])
    >>> batch = torch.rand(5, 1, 8, 8)
    >>> views(batch, 3, torch.Generator().manual_seed(0)).shape
    torch.Size([3, 5, 1, 16, 16])
    """
    shape = tuple(int(side) for side in shape)
    _check_shape(shape)
    mean = _statistics(mean, "mean", shape)
    std = _statistics(std, "std", shape)
    std = torch.where(std == 0, 1.0, std)
    if len(shape) == 1:
        return VectorViews(shape, mean, std, augmentation)
    out_shape = (shape[0], *(max(side, MIN_SIDE) for side in shape[1:]))
    return ImageViews(shape, out_shape, mean, std, augmentation)


def _check_shape(shape):
    image = len(shape) == 3 and shape[0] in (1, 3, 4)
    if not (image or len(shape) == 1) or min(shape) < 1:
        raise ValueError(
            "`shape` must be (C, H, W) with C of 1, 3 or 4, or (n_features,), all "
            f"positive; got {shape}."
        )


def _statistics(values, name, shape):
    values = torch.as_tensor(values, dtype=torch.float32).detach().cpu()
    if values.shape != shape[:1]:
        raise ValueError(
            f"`{name}` must hold one value per channel or feature, {shape[0]} in all; "
            f"got shape {tuple(values.shape)}."
        )
    return values
