"""Gaussian blur, of another width for every image, as two batched products.

Shapes: N images, C channels, H and W height and width.
"""

import torch
from torch.nn.functional import threshold


def blur_matrix(sigma, size):
    """Gaussian blur along one axis: Toeplitz, rows normalised at the borders too.

    Parameters
    ----------
    sigma : Tensor of shape (N,)
        Standard deviation in pixels; zero gives the identity.
    size : int

    Returns
    -------
    Tensor of shape (N, size, size)
    """
    pixels = torch.arange(size, device=sigma.device)
    # Beyond 1e4 neighbours already weigh exp(-1e4) = 0, and infinity times 0 is nan.
    precision = (0.5 / sigma**2).clamp_(max=1e4)
    kernel = torch.exp(-precision[:, None] * pixels**2)  # (N, size), by distance
    kernel = threshold(kernel, 1e-12, 0.0)  # arithmetic on subnormal numbers is slow
    weights = kernel[:, (pixels[:, None] - pixels).abs()]
    return weights.div_(weights.sum(-1, keepdim=True))


def blur(images, sigma):
    """Blur every image by a Gaussian of its own; a fourth channel is left alone.

    Parameters
    ----------
    images : Tensor of shape (N, C, H, W)
    sigma : Tensor of shape (N,)
        Standard deviation in pixels; zero leaves the image as it is.

    Returns
    -------
    Tensor of shape (N, C, H, W)
    """
    blurred = _blur_last(images[:, :3], sigma).transpose(2, 3)
    blurred = _blur_last(blurred, sigma).transpose(2, 3)
    if images.shape[1] <= 3:
        return blurred
    return torch.cat((blurred, images[:, 3:]), dim=1)


def _blur_last(images, sigma):
    lines = images.flatten(1, 2)  # (N, C * H, W)
    matrix = blur_matrix(sigma, lines.shape[2])
    return torch.bmm(lines, matrix.mT).view(images.shape)
