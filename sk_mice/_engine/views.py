"""Random views of whole batches, made on the device from an explicit generator.

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
H' and W' as handed out, D features of a vector.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import grid_sample, interpolate

from .arrays import floats
from .blur import blur
from .colours import LUMA, colour_basis, colour_map, lift, map_colours
from .geometry import crop_boxes, sampling_grid

MIN_SIDE = 16
NO_TILT = (0.0, 0.0)


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


_RECIPES = {
    "moco": _Recipe(0.4, 0.4, 0.4, 0.4, grayscale_p=0.2),
    "simclr": _Recipe(0.8, 0.8, 0.8, 0.2, jitter_p=0.8, grayscale_p=0.2, blur_p=0.5),
}
_VECTOR_RECIPES = {"moco": (0.1, 0.2), "simclr": (0.2, 0.4)}  # noise, replacement


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
    augmentation : str, callable or None
    flip : bool
    crop_scale : (float, float)
    affine : (float, float)
    """

    shape: tuple[int, int, int]
    out_shape: tuple[int, int, int]
    mean: Tensor
    std: Tensor
    augmentation: str | Callable | None
    flip: bool
    crop_scale: tuple[float, float]
    affine: tuple[float, float]
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
            return _repeat(self.plain(batch), n_views)
        if callable(self.augmentation):
            stack = batch.repeat(n_views, 1, 1, 1)  # a copy that may be written on
            stack = _called(self.augmentation, stack, generator)
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
        recipe = _RECIPES[self.augmentation]
        *_, basis, luma = self._on(batch.device)
        n_images = len(batch) * n_views
        draws = _uniform((13, n_images), generator, batch.device)
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
        if not any(self.affine):
            return None
        draws = _uniform((2, n_images), generator, device)
        rotation, shear = (math.radians(degrees) for degrees in self.affine)
        swing = 2 * draws - 1  # in [-1, 1)
        return torch.stack((rotation * swing[0], shear * swing[1]))

    def _grid(self, draws, tilt):
        """Turn (5, N) draws into the sampling grid of random crops and flips."""
        shape, out_shape = self.shape[1:], self.out_shape[1:]
        box = crop_boxes(draws[:4], shape, self.crop_scale)
        mirrored = draws[4] < 0.5 if self.flip else None
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


@dataclass(eq=False)
class VectorViews:
    """Random views of batches of feature vectors; see `make_views`.

    Parameters
    ----------
    out_shape : (int,)
        Number of features.
    mean, std : Tensor of shape (D,)
    augmentation : {"moco", "simclr"}, callable or None
    """

    out_shape: tuple[int]
    mean: Tensor
    std: Tensor
    augmentation: str | Callable | None
    _constants: dict = field(default_factory=dict, init=False, repr=False)

    __getstate__ = ImageViews.__getstate__

    @torch.no_grad()
    def __call__(self, batch, n_views, generator):
        """Make independent random views of every sample.

        Parameters
        ----------
        batch : float32 Tensor of shape (B, D)
        n_views : int
        generator : torch.Generator
            On the batch's device; the only source of randomness.

        Returns
        -------
        float32 Tensor of shape (n_views, B, D)
            Standardised.
        """
        if self.augmentation is None:
            return _repeat(self.plain(batch), n_views)
        if callable(self.augmentation):
            stack = batch.repeat(n_views, 1)
            stack = _called(self.augmentation, stack, generator)
            return self.plain(stack).unflatten(0, (n_views, -1))
        noise, replaced = _VECTOR_RECIPES[self.augmentation]
        views = corrupt(self.plain(batch), n_views, replaced, generator)
        draws = torch.empty_like(views).normal_(0.0, noise, generator=generator)
        return views.add_(draws)

    @torch.no_grad()
    def plain(self, batch):
        """Standardise (B, D), without draws: what networks see at prediction."""
        if batch.device not in self._constants:
            pair = (self.mean.to(batch.device), self.std.to(batch.device))
            self._constants[batch.device] = pair
        mean, std = self._constants[batch.device]
        return (batch - mean) / std


def corrupt(batch, n_views, probability, generator):
    """Replace features by the same feature of other random samples of the batch.

    Every entry draws its own donor, which samples the features' marginals as SCARF
    does (Bahri et al., ICLR 2022). A batch of one has no donor and stays as it is.

    Parameters
    ----------
    batch : Tensor of shape (B, D)
    n_views : int
    probability : float
    generator : torch.Generator

    Returns
    -------
    Tensor of shape (n_views, B, D)
    """
    n_samples, n_features = batch.shape
    size = (n_views, n_samples, n_features)
    device = batch.device
    offset = torch.randint(
        1, max(n_samples, 2), size, generator=generator, device=device
    )
    donor = (torch.arange(n_samples, device=device)[:, None] + offset) % n_samples
    values = batch.gather(0, donor.flatten(0, 1)).view(size)
    return torch.where(_uniform(size, generator, device) < probability, values, batch)


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
    if not isinstance(augmentation, str) or augmentation not in _RECIPES:
        names = ", ".join(repr(name) for name in _RECIPES)
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


def is_small_and_grey(shape) -> bool:
    """Whether images of shape (C, H, W) are, as those of single characters."""
    return shape[0] == 1 and max(shape[1:]) <= 32


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


def _called(augmentation, stack, generator):
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


def _uniform(size, generator, device):
    return torch.rand(size, generator=generator, dtype=torch.float32, device=device)


def _resize(images, size):
    if images.shape[2:] == size:
        return images
    return interpolate(images, size=size, mode="bilinear", align_corners=False)


def _repeat(plain, n_views):
    """Copy (B, ...) to (n_views, B, ...), keeping a channels-last layout."""
    if plain.ndim == 2:
        return plain.repeat(n_views, 1, 1)
    return plain.permute(0, 2, 3, 1).repeat(n_views, 1, 1, 1, 1).permute(0, 1, 4, 2, 3)
