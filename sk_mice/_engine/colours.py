"""Colours and blur: brightness, contrast, saturation and hue are one affine map.

Shapes: B batch, V views, N = B * V, C channels, H and W height and width.
"""

import math

import torch
from torch.nn.functional import threshold

LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601, what Pillow and torchvision call grey
WITH_COLOURS = (3, 4)  # channels: red, green and blue, and in a fourth no colour


def colour_basis(n_channels):
    """Four matrices (4, C, C) that span every luma-preserving colour map used here.

    They are the projection on the grey axis along chroma, the projection on chroma, the
    quarter turn of chroma that advances hue, and the identity of a fourth channel
    (alpha, infrared), which is left alone. Images with another number of channels than
    3 or 4 have no chroma: all their channels change alike.
    """
    basis = torch.zeros(4, n_channels, n_channels, dtype=torch.float64)
    if n_channels not in WITH_COLOURS:
        basis[0] = torch.eye(n_channels, dtype=basis.dtype)
        return basis
    sine = math.sqrt(3) / 2  # sine of 120 degrees
    # Luma and two chroma axes in which the primaries lie as far apart, as hues do.
    to_chroma = torch.tensor(
        [LUMA, (1.0, -0.5, -0.5), (0.0, sine, -sine)], dtype=torch.float64
    )
    quarter_turn = torch.zeros(3, 3, dtype=torch.float64)
    quarter_turn[2, 1], quarter_turn[1, 2] = 1.0, -1.0
    basis[0, :3, :3] = to_chroma[0]
    basis[1, :3, :3] = torch.eye(3, dtype=torch.float64) - basis[0, :3, :3]
    basis[2, :3, :3] = torch.linalg.inv(to_chroma) @ quarter_turn @ to_chroma
    basis[3, 3:, 3:] = 1.0
    return basis


def luma_weights(n_channels):
    """The weights (C,) of the channels in luma: equal ones if they are not colours."""
    if n_channels not in WITH_COLOURS:
        return torch.full((n_channels,), 1 / n_channels, dtype=torch.float32)
    return torch.tensor((*LUMA, 0.0)[:n_channels], dtype=torch.float32)


def colour_map(basis, brightness, contrast, saturation, hue):
    """One matrix (N, C, C) per image from factors of shape (N,).

    Brightness b scales the pixel, contrast c scales its distance from the image's mean
    luma m, saturation s scales chroma, and hue h turns chroma by 2 pi h about the grey
    axis with luma kept (torchvision shifts the hue of HSV, which keeps the largest
    channel instead). Apart from clamping the four commute, so their order is not drawn:
    x -> M x + b (1 - c) m with M = b c (grey + s cos(2 pi h) chroma + s sin(2 pi h)
    turned chroma). Grayscale is s = 0. This is M; `lift` adds the rest.
    """
    gain = brightness * contrast
    angle = 2 * math.pi * hue
    chroma = gain * saturation
    cosine, sine = chroma * torch.cos(angle), chroma * torch.sin(angle)
    coefficients = torch.stack((gain, cosine, sine, torch.ones_like(gain)), dim=1)
    return (coefficients @ basis.flatten(1)).unflatten(1, basis.shape[1:])


def map_colours(batch, matrix):
    """V copies of every image, (B * V, C, H, W), each mapped by its own matrix.

    The batch is (B, C, H, W), the matrices are (B * V, C, C); the V views of a sample
    lie together.
    """
    n_samples, n_channels, height, width = batch.shape
    matrix = matrix.view(n_samples, -1, n_channels)  # (B, V * C, C)
    stack = torch.bmm(matrix, batch.flatten(2))
    return stack.view(-1, n_channels, height, width)


def lift(images, contrast, luma):
    """Add to images (N, C, H, W), in place, what contrast c takes off their mean luma.

    An image with luma m becomes b c m on average under `colour_map`'s matrix, and what
    is missing, b (1 - c) m, is (1 - c) / c times that. The contrasts (N,) are positive.
    A channel without a weight of luma (C,), as the last of four, is not lifted. The
    result is not clamped.
    """
    offset = (1 / contrast - 1) * (images.mean((2, 3)) @ luma)
    offset = offset[:, None] * (luma > 0)  # (N, C)
    return images.add_(offset[:, :, None, None])


def blur(images, sigma):
    """Blur every image (N, C, H, W) by a Gaussian of its own width (N,), in pixels.

    Zero leaves an image as it is. The last of four channels is left alone.
    """
    n_blurred = 3 if images.shape[1] == 4 else images.shape[1]
    blurred = _blur_last(images[:, :n_blurred], sigma).transpose(2, 3)
    blurred = _blur_last(blurred, sigma).transpose(2, 3)
    if n_blurred == images.shape[1]:
        return blurred
    return torch.cat((blurred, images[:, n_blurred:]), dim=1)


def _blur_last(images, sigma):
    lines = images.flatten(1, 2)  # (N, C * H, W)
    matrix = blur_matrix(sigma, lines.shape[2])
    return torch.bmm(lines, matrix.mT).view(images.shape)


def blur_matrix(sigma, size):
    """Gaussian blur along one axis, (N, size, size), from widths (N,) in pixels.

    Toeplitz, with rows normalised at the borders too; zero gives the identity.
    """
    pixels = torch.arange(size, device=sigma.device)
    # Beyond 1e4 neighbours already weigh exp(-1e4) = 0, and infinity times 0 is nan.
    precision = (0.5 / sigma**2).clamp_(max=1e4)
    kernel = torch.exp(-precision[:, None] * pixels**2)  # (N, size), by distance
    kernel = threshold(kernel, 1e-12, 0.0)  # arithmetic on subnormal numbers is slow
    weights = kernel[:, (pixels[:, None] - pixels).abs()]
    return weights.div_(weights.sum(-1, keepdim=True))
