"""Random views of whole batches of images.

The augmentation passage of the paper (MiCE, appendix "Experiment settings") asks for
a random resized crop, grayscale, colour jitter and a horizontal flip, as in MoCo. Here
every view of every sample has draws of its own, but no operation loops over samples:

- Brightness, contrast, saturation and hue are affine in the pixel, so they are composed
  into one C x C matrix and one offset per view. One batched product of the matrices
  with the batch makes the stack of all views; colours come before the crop because
  both are linear, so nothing is copied only to repeat the batch.
- One `grid_sample` over the stack crops, resizes, mirrors, turns and shears.

Draws come first and are applied afterwards, so nothing waits for the device.

Shapes: B batch, V views, N = B * V, C channels, H and W height and width as handed in,
H' and W' as handed out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import grid_sample, interpolate

from .colours import LUMA, blur, colour_basis, colour_map, lift, map_colours
from .geometry import crop_boxes, sampling_grid


@dataclass(frozen=True)
class _Recipe:
    """Strengths and probabilities of one published augmentation of images."""

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0
    jitter_p: float = 1.0
    grayscale_p: float = 0.0
    blur_p: float = 0.0


RECIPES = {
    "moco": _Recipe(0.4, 0.4, 0.4, 0.4, grayscale_p=0.2),
    "simclr": _Recipe(0.8, 0.8, 0.8, 0.2, jitter_p=0.8, grayscale_p=0.2, blur_p=0.5),
    None: _Recipe(),
}


def _jitter(draws, recipe):
    """Brightness, contrast, saturation and hue of every image from (6, N) draws."""
    strength = (draws[0] < recipe.jitter_p).to(draws.dtype)
    swing = strength * (2 * draws[1:5] - 1)  # (4, N) in [-1, 1)
    saturation = 1 + recipe.saturation * swing[2]
    return (
        1 + recipe.brightness * swing[0],
        1 + recipe.contrast * swing[1],
        torch.where(draws[5] < recipe.grayscale_p, 0.0, saturation),
        recipe.hue * swing[3],
    )


@dataclass(eq=False)
class ImageViews:
    """Random views of image batches; see `make_views`.

    Parameters
    ----------
    shape : (int, int, int)
        Channels, height and width of the images handed in.
    out_shape : (int, int, int)
        The same of the views: no side is below 16 pixels.
    mean, std : Tensor of shape (C,)
        Statistics of images scaled to [0, 1].
    augmentation : object, callable or None
    """

    shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    mean: Tensor
    std: Tensor
    augmentation: object
    _constants: dict = field(default_factory=dict, init=False, repr=False)

    def __getstate__(self):
        # Tensors of another device would not load where that device is missing.
        return {**self.__dict__, "_constants": {}}

    @torch.no_grad()
    def __call__(self, batch, n_views, generator):
        """Make independent random views of every sample.

        Parameters
        ----------
        batch : float32 Tensor of shape (B, C, H, W)
            Values in [0, 1].
        n_views : int
        generator : torch.Generator
            On the batch's device; the only source of randomness.

        Returns
        -------
        float32 Tensor of shape (n_views, B, C, H', W')
            Normalised; the first two dimensions flattened it is channels-last.
        """
        if self.augmentation is None:
            plain = self.plain(batch).permute(0, 2, 3, 1)  # channels-last stays so
            return plain.repeat(n_views, 1, 1, 1, 1).permute(0, 1, 4, 2, 3)
        if callable(self.augmentation):
            stack = batch.repeat(n_views, 1, 1, 1)  # a copy that may be written on
            stack = called(self.augmentation, stack, generator)
            return self.plain(stack).unflatten(0, (n_views, -1))
        # Under a caller's autocast the products would run in bfloat16.
        with torch.autocast(batch.device.type, enabled=False):
            images = self._augment(batch, n_views, generator)
        mean, std = self._on(batch.device)[:2]
        images = images.sub_(mean).div_(std).unflatten(0, (len(batch), n_views))
        images = images.permute(1, 0, 3, 4, 2).contiguous()  # (V, B, H', W', C)
        return images.permute(0, 1, 4, 2, 3)

    @torch.no_grad()
    def plain(self, batch):
        """Resize and normalise, without draws: what networks see at prediction.

        Parameters
        ----------
        batch : float32 Tensor of shape (B, C, H, W)

        Returns
        -------
        float32 Tensor of shape (B, C, H', W'), channels-last
        """
        mean, std = self._on(batch.device)[:2]
        images = (_resize(batch, self.out_shape[1:]) - mean).div_(std)
        return images.contiguous(memory_format=torch.channels_last)

    def _augment(self, batch, n_views, generator):
        """(B, C, H, W) -> (B * V, C, H', W') in [0, 1], views of a sample together."""
        recipe = RECIPES[self.augmentation.colours]
        *_, basis, luma = self._on(batch.device)
        n_images = len(batch) * n_views
        draws = uniform((13, n_images), generator, batch.device)
        factors = _jitter(draws[5:11], recipe)
        stack = map_colours(batch, colour_map(basis, *factors))
        tilt = self._tilt(n_images, generator, batch.device)
        grid = self._grid(draws[:5], tilt)
        images = grid_sample(stack, grid, padding_mode="border", align_corners=False)
        images = lift(images, factors[1], luma).clamp_(0, 1)
        if recipe.blur_p:
            images = blur(images, self._blur_sigma(draws[11:], recipe))
        return images

    def _tilt(self, n_images, generator, device):
        """Angles (2, N) of rotation and shear in radians; None where both are 0."""
        if not any(self.augmentation.affine):
            return None
        draws = uniform((2, n_images), generator, device)
        rotation, shear = (
            math.radians(degrees) for degrees in self.augmentation.affine
        )
        swing = 2 * draws - 1  # in [-1, 1)
        return torch.stack((rotation * swing[0], shear * swing[1]))

    def _grid(self, draws, tilt):
        """Turn (5, N) draws into the sampling grid of random crops and flips."""
        shape, out_shape = self.shape[1:], self.out_shape[1:]
        box = crop_boxes(draws[:4], shape, self.augmentation.crop_scale)
        mirrored = draws[4] < 0.5 if self.augmentation.flip else None
        return sampling_grid(*box, shape, out_shape, mirrored, tilt)

    def _blur_sigma(self, draws, recipe):
        """Turn (2, N) draws into blur widths in pixels, zero where there is no blur.

        SimCLR draws them from U(0.1, 2) for images of 224 pixels; scaled by the shorter
        side, the same share of the image is blurred. Little of it is left at 32
        pixels, in keeping with SimCLR, which leaves blur out for CIFAR-10.
        """
        sigma = (0.1 + 1.9 * draws[0]) * (min(self.out_shape[1:]) / 224)
        return torch.where(draws[1] < recipe.blur_p, sigma, 0.0)

    def _on(self, device):
        """Constants on a device, kept there so that no step copies from the host."""
        if device not in self._constants:
            n_channels = self.shape[0]
            luma = {1: (1.0,), 3: LUMA, 4: (*LUMA, 0.0)}[n_channels]
            luma = torch.tensor(luma, dtype=torch.float32)
            basis = colour_basis(n_channels).float()
            mean, std = self.mean[:, None, None], self.std[:, None, None]
            self._constants[device] = [x.to(device) for x in (mean, std, basis, luma)]
        return self._constants[device]


def called(augmentation, stack, generator):
    """Call a user's augmentation and refuse what the networks could not take."""
    expected, device = stack.shape, stack.device
    result = augmentation(stack, generator)
    if not isinstance(result, Tensor) or not result.is_floating_point():
        came = getattr(result, "dtype", type(result).__name__)
        raise TypeError(
            f"`augmentation` must return a floating-point tensor; got {came}."
        )
    same = result.ndim == len(expected) and result.shape[:2] == expected[:2]
    if not same or result.device != device:
        raise ValueError(
            "`augmentation` must return a tensor with the batch and channels it was "
            f"given, {tuple(expected)} on {device}; got {tuple(result.shape)} on "
            f"{result.device}."
        )
    return result.float()


def uniform(size, generator, device):
    return torch.rand(size, generator=generator, dtype=torch.float32, device=device)


def _resize(images, size):
    if images.shape[2:] == size:
        return images
    return interpolate(images, size=size, mode="bilinear", align_corners=False)
