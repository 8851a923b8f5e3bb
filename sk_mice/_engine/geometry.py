"""Where a view looks: random boxes, and the grid that crops, mirrors, turns and shears.

A grid is put together from rows and columns of positions, one or two of each per view.

Shapes: N views, H and W height and width of the image, H' and W' of the result.
"""

import math

import torch


def crop_boxes(draws, shape, scale):
    """Random boxes inside the image: top, left, height and width, each (N,), in pixels.

    The area is uniform in `scale` (as a share of the image's), the aspect log-uniform
    in [3/4, 4/3] and the position uniform. A box that would stick out keeps its area
    and takes the nearest aspect that fits, where torchvision draws both again; so areas
    stay uniform. The draws (4, N), uniform in [0, 1), are those of area, aspect, top
    and left; `shape` is (H, W).
    """
    image_height, image_width = shape
    low, high = scale
    area = low + (high - low) * draws[0]
    # Relative to the image's own aspect, so that the full image has exactly 1.
    aspect = torch.exp((2 * draws[1] - 1) * math.log(4 / 3))
    aspect = aspect * (image_height / image_width)
    aspect = torch.minimum(torch.maximum(aspect, area), 1 / area)
    height = image_height * torch.sqrt(area / aspect)
    width = image_width * torch.sqrt(area * aspect)
    top = draws[2] * (image_height - height)
    left = draws[3] * (image_width - width)
    return top, left, height, width


def sampling_grid(top, left, height, width, shape, out_shape, mirrored=None, tilt=None):
    """Where `grid_sample` looks to resize boxes of an image to a common size.

    Parameters
    ----------
    top, left, height, width : Tensor of shape (N,)
        Boxes in pixels of the image.
    shape, out_shape : (int, int)
        (H, W) and (H', W').
    mirrored : bool Tensor of shape (N,), optional
        Where true the box is read from right to left.
    tilt : pair of Tensor of shape (N,), optional
        Angles in radians: the box is sheared along its rows by the second, then turned
        about its centre by the first.

    Returns
    -------
    Tensor of shape (N, H', W', 2)
        For `align_corners=False`: x, then y, from -1 to 1 between the image's edges.
    """
    x_by_column, y_by_row = width / shape[1], height / shape[0]
    if mirrored is not None:
        x_by_column = torch.where(mirrored, -x_by_column, x_by_column)
    x, y = (2 * left + width) / shape[1] - 1, (2 * top + height) / shape[0] - 1
    columns, rows = _pixels(out_shape[1], x), _pixels(out_shape[0], x)
    if tilt is None:
        x = _line(x, x_by_column, columns)[:, None, :]
        y = _line(y, y_by_row, rows)[:, :, None]
    else:
        cosine, sine, slant = tilt[0].cos(), tilt[0].sin(), tilt[1].tan()
        aspect = shape[1] / shape[0]  # turns units of a row into those of a column
        x_by_row = (cosine * slant - sine) * y_by_row / aspect
        y_by_column = sine * x_by_column * aspect
        y_by_row = (cosine + sine * slant) * y_by_row
        x = _line(x, cosine * x_by_column, columns)[:, None, :]
        x = x + (x_by_row[:, None] * rows)[:, :, None]
        y = _line(y, y_by_row, rows)[:, :, None]
        y = y + (y_by_column[:, None] * columns)[:, None, :]
    grid = x.new_empty(len(x), *out_shape, 2)
    grid[..., 0], grid[..., 1] = x, y
    return grid


def _pixels(size, like):
    """Centres of pixels laid over [-1, 1], in another tensor's type and place."""
    pixels = torch.arange(size, dtype=like.dtype, device=like.device)
    return (2 * pixels + 1) / size - 1


def _line(centre, slope, pixels):
    """The same laid over [centre - slope, centre + slope], of shape (N, size)."""
    return torch.addcmul(centre[:, None], slope[:, None], pixels)
