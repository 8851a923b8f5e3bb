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
H' and W' as handed out, D features of vectors.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import grid_sample, interpolate

from .colours import blur, colour_basis, colour_map, lift, luma_weights, map_colours
from .geometry import crop_boxes, sampling_grid

MIN_SIDE = 16  # pixels; views of images are not smaller


class _Views:
    def __init__(self, shape, augmentation):
        self.shape = self.out_shape = tuple(map(int, shape))
        self.augmentation = augmentation

    @torch.no_grad()
    def __call__(self, batch, n_views, generator, part=None):
        """Make independent random views of every sample.

        Parameters
        ----------
        batch : float32 Tensor of shape (B, C, H, W) or (B, D)
            Images have values in [0, 1].
        n_views : int
        generator : torch.Generator
            On the batch's device; the only source of randomness.
        part : Part, default=None
            The rows of a larger batch whose views are made, with the same draws as for
            all of it. `batch` has all rows if `mixes`, else those of the part.

        Returns
        -------
        float32 Tensor of shape (n_views, B, C, H', W') or (n_views, B, D)
            Normalised; images are channels-last once the first two dimensions are
            flattened.
        """
        if self.augmentation is None:
            plain = self.plain(batch).movedim(1, -1)  # channels-last stays so
            return plain.repeat(n_views, *[1] * plain.ndim).movedim(-1, 2)
        if callable(self.augmentation):
            stack = batch.repeat(n_views, *[1] * len(self.shape))  # may be written on
            stack = _called(self.augmentation, stack, generator)
            views = self.plain(stack).unflatten(0, (n_views, -1))
        else:
            views = self._random(batch, n_views, generator, part)
        return views[:, part.rows] if part is not None and self.mixes else views

    @property
    def mixes(self) -> bool:
        """Whether views of a sample depend on the other samples of the batch."""
        return callable(self.augmentation)


class OneRandomView:
    """A random view of each sample in place of the plain one, for inference.

    The generator is on the device of the batches.
    """

    def __init__(self, views, generator):
        self.views, self.generator = views, generator
        self.out_shape = views.out_shape

    def plain(self, batch):
        return self.views(batch, 1, self.generator)[0]


class VectorViews(_Views):
    """Random views of batches of vectors, which are standardised already.

    Parameters
    ----------
    shape : (D,)
    augmentation : VectorAugmentation, callable or None
        A callable is called as `augmentation(stack, generator)` with all views of a
        batch, (V * B, D). None repeats the plain sample.
    """

    def plain(self, batch):
        """(B, D) without draws: what networks see at prediction."""
        return batch

    @property
    def mixes(self) -> bool:
        return self.augmentation is not None  # it may take values of other samples

    def _random(self, batch, n_views, generator, part):
        noise, share = self.augmentation.noise, self.augmentation.replacement
        views = corrupt(batch, n_views, share, generator)
        draws = torch.empty_like(views).normal_(0.0, noise, generator=generator)
        return views.add_(draws)


def corrupt(batch, n_views, probability, generator):
    """Replace features by those of other samples of the batch: (V, B, D) from (B, D).

    Every entry draws its own donor, which samples the features' marginals as SCARF
    does (Bahri et al., ICLR 2022). A batch of one has no donor and stays as it is.
    """
    n_samples, n_features = batch.shape
    size, device = (n_views, n_samples, n_features), batch.device
    offset = torch.randint(
        1, max(n_samples, 2), size, generator=generator, device=device
    )
    donor = (torch.arange(n_samples, device=device)[:, None] + offset) % n_samples
    values = batch.gather(0, donor.flatten(0, 1)).view(size)
    return torch.where(_uniform(size, generator, device) < probability, values, batch)


@dataclass(frozen=True)
class _Colours:
    """How far, and how often, a value of `colors` changes views of images."""

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0
    jitter_p: float = 1.0
    grayscale_p: float = 0.0
    blur_p: float = 0.0

    def factors(self, draws):
        """Brightness, contrast, saturation and hue of every image from (6, N) draws."""
        strength = (draws[0] < self.jitter_p).to(draws.dtype)
        swing = strength * (2 * draws[1:5] - 1)  # (4, N) in [-1, 1)
        saturation = 1 + self.saturation * swing[2]
        return (
            1 + self.brightness * swing[0],
            1 + self.contrast * swing[1],
            torch.where(draws[5] < self.grayscale_p, 0.0, saturation),
            self.hue * swing[3],
        )


COLOURS = {
    "moco": _Colours(0.4, 0.4, 0.4, 0.4, grayscale_p=0.2),
    "simclr": _Colours(0.8, 0.8, 0.8, 0.2, jitter_p=0.8, grayscale_p=0.2, blur_p=0.5),
    None: _Colours(),
}


class ImageViews(_Views):
    """Random views of batches of images.

    Parameters
    ----------
    shape : (C, H, W)
        Shape of an image.
    augmentation : ImageAugmentation, callable or None
        Without "auto". A callable is called as `augmentation(stack, generator)` with
        all views of a batch, (V * B, C, H, W) in [0, 1], and what it returns is resized
        and normalised. None repeats the plain sample.
    mean, std : sequence or Tensor of shape (C,)
        Statistics of the images in [0, 1], used to normalise.
    device : torch.device or str, default="cpu"
        That of the batches.
    """

    def __init__(self, shape, augmentation, *, mean, std, device="cpu"):
        super().__init__(shape, augmentation)
        self.out_shape = (self.shape[0], *(max(n, MIN_SIDE) for n in self.shape[1:]))
        mean, std = (torch.as_tensor(v, dtype=torch.float32) for v in (mean, std))
        std = torch.where(std == 0, 1.0, std)  # float32 may round a small one to 0
        # Here, so that no step copies from the host.
        self.mean, self.std = (v[:, None, None].to(device) for v in (mean, std))
        if augmentation is not None and not callable(augmentation):
            # Not for plain samples: of C channels, these are 4 C^2 numbers.
            self.basis = colour_basis(self.shape[0]).float().to(device)
            self.luma = luma_weights(self.shape[0]).to(device)

    @torch.no_grad()
    def plain(self, batch):
        """Resize and normalise, without draws: what networks see at prediction.

        Turns (B, C, H, W) in [0, 1] into (B, C, H', W'), channels-last.
        """
        size = self.out_shape[1:]
        if batch.shape[2:] != size:
            batch = interpolate(batch, size=size, mode="bilinear", align_corners=False)
        images = (batch - self.mean).div_(self.std)
        return images.contiguous(memory_format=torch.channels_last)

    def _random(self, batch, n_views, generator, part):
        images = self._augmented(batch, n_views, generator, part)
        images = images.sub_(self.mean).div_(self.std)
        images = images.unflatten(0, (len(batch), n_views))
        images = images.permute(1, 0, 3, 4, 2).contiguous()  # (V, B, H', W', C)
        return images.permute(0, 1, 4, 2, 3)

    def _augmented(self, batch, n_views, generator, part):
        """(B, C, H, W) -> (B * V, C, H', W') in [0, 1], views of a sample together."""
        colours = COLOURS[self.augmentation.colors]

        def draw(n_rows):
            n = len(batch) if part is None else part.n
            draws = _uniform((n_rows, n, n_views), generator, batch.device)
            return (draws if part is None else draws[:, part.rows]).flatten(1)

        place, tint, width = draw(13).split((5, 6, 2))
        factors = colours.factors(tint)
        stack = map_colours(batch, colour_map(self.basis, *factors))
        tilt = None
        if any(self.augmentation.affine):  # without it, nothing is drawn
            swings = 2 * draw(2) - 1
            angles = map(math.radians, self.augmentation.affine)
            tilt = [angle * swing for angle, swing in zip(angles, swings, strict=True)]
        grid = self._grid(place, tilt)
        images = grid_sample(stack, grid, padding_mode="border", align_corners=False)
        images = lift(images, factors[1], self.luma).clamp_(0, 1)
        if colours.blur_p:
            images = blur(images, self._blur_sigma(width, colours.blur_p))
        return images

    def _grid(self, draws, tilt):
        """The sampling grid of random crops and flips from (5, N) draws."""
        shape, out_shape = self.shape[1:], self.out_shape[1:]
        *place, mirror = draws
        box = crop_boxes(place, shape, self.augmentation.crop_scale)
        mirrored = mirror < 0.5 if self.augmentation.flip else None
        return sampling_grid(*box, shape, out_shape, mirrored, tilt)

    def _blur_sigma(self, draws, probability):
        """Blur widths in pixels from (2, N) draws, zero where there is no blur.

        SimCLR draws them from U(0.1, 2) for images of 224 pixels; scaled by the shorter
        side, the same share of the image is blurred. Little of it is left at 32
        pixels, in keeping with SimCLR, which leaves blur out for CIFAR-10.
        """
        sigma = (0.1 + 1.9 * draws[0]) * (min(self.out_shape[1:]) / 224)
        return torch.where(draws[1] < probability, sigma, 0.0)


def _called(augmentation, stack, generator):
    """Call a user's augmentation and refuse what the networks could not take."""
    expected, device = stack.shape, stack.device
    result = augmentation(stack, generator)
    if not isinstance(result, Tensor) or not result.is_floating_point():
        came = result.dtype if isinstance(result, Tensor) else type(result).__name__
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
