"""Thumbnails of images, many in one picture."""

import base64
import io
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from PIL import Image, features
from torch import Tensor
from torch.nn.functional import interpolate

from .._engine.dataset import rows_of
from .._engine.format import (
    SampleFormat,
    as_tensor,
    known_layout,
    layout,
    with_range,
)
from ..datasets import _paths

COLUMNS = 16  # thumbnails in a row of a sheet
PER_SHEET = COLUMNS * 16
LARGE, SMALL = 192, 64  # pixels of the longer side of thumbnails, by their number
PIXELS = 25e6  # of all thumbnails together
LOSSLESS_SIDE = 16  # up to here, pixels can be seen one by one
QUALITIES = (85, 70, 50, 30, 10, 1)
BUDGET = 18e6  # bytes of all sheets; as text they are a third longer
AT_ONCE = 64  # samples that are read and resized


@dataclass
class Pictures:
    """Images of all samples, or of those `shown` (sorted), and how X holds them."""

    X: Any
    fmt: SampleFormat
    shown: np.ndarray | None = None

    @cached_property
    def _rows(self):
        return rows_of(self.X)

    def shrunk(self, samples, size):
        """Yield some at a time, with all channels: (B, C, H, W) in [0, 1]."""
        rows = samples if self.shown is None else np.searchsorted(self.shown, samples)
        for part in np.split(rows, range(AT_ONCE, len(rows), AT_ONCE)):
            images = self.fmt.as_batch(as_tensor(self._rows[part])).clip(0, 1)
            if images.shape[2:] != size:
                images = interpolate(images, size, mode="bilinear", antialias=True)
            yield images

    def thumbnails(self, samples, size) -> np.ndarray:
        """Pixels of 8 bits (n, H, W, 1 or 3)."""
        parts = (255 * as_drawn(images) for images in self.shrunk(samples, size))
        pixels = [part.round().clip(0, 255).byte().movedim(1, -1) for part in parts]
        return torch.cat(pixels).numpy()


def pictures_of(estimator, X) -> Pictures | None:
    """The images in X; None if it holds vectors, or its shape leaves this open."""
    fmt = getattr(estimator, "_format", None)
    if fmt is None:
        image_shape = getattr(estimator, "image_shape", None)
        if image_shape is None and not known_layout(getattr(X, "shape", ())):
            return None
        X = rows_of(X)
        fmt = with_range(layout(X.shape, image_shape), X)
    return Pictures(X, fmt) if fmt.is_image else None


def pictures_in(files, shown) -> Pictures:
    """The images shown, as squares of pixels no larger than they are drawn."""
    paths = [files[i] for i in shown]
    X = _paths.pictures(paths, max(SMALL, side_of_files(paths)))
    return Pictures(X, with_range(layout(X.shape), X), shown)


def _longer_side(n_samples) -> int:
    return int(np.clip((PIXELS / n_samples) ** 0.5, SMALL, LARGE))


def side_of_files(paths) -> int:
    """Pixels of a side of their thumbnails, no more than most of them have."""
    longest = _longer_side(len(paths))
    if longest == SMALL:  # the files need not be opened to know it
        return SMALL
    shorter = np.min(_paths.sizes(paths, n_jobs=-1), axis=1)
    return min(longest, int(np.median(shorter)))


def draw_sheets(pictures: Pictures, groups, rng) -> tuple[list[str], dict]:
    """Draw samples in sheets, as base64, and say where each of them is, for JSON.

    A sheet has up to `PER_SHEET` thumbnails, row by row in `COLUMNS`, of one group.
    """
    n_samples = sum(map(len, groups))
    _, height, width = pictures.fmt.shape
    scale = min(1.0, _longer_side(n_samples) / max(height, width))
    size = max(1, round(height * scale)), max(1, round(width * scale))
    members = [
        group[start : start + PER_SHEET]
        for group in groups
        for start in range(0, len(group), PER_SHEET)
    ]
    kind = "webp" if features.check("webp") else "jpeg"
    options = {"format": kind, **_options(pictures, groups, size, kind, rng)}
    sheets = [_encoded(_sheet(pictures, rows, size), options) for rows in members]
    places = {
        "width": size[1],  # of a thumbnail, in pixels
        "height": size[0],
        "columns": COLUMNS,
        "members": [rows.tolist() for rows in members],
        "type": f"image/{kind}",
    }
    return [base64.b64encode(sheet).decode() for sheet in sheets], places


def _options(pictures, groups, size, kind, rng) -> dict:
    """The best quality with which all sheets keep to the budget, by a sample."""
    if max(size) <= LOSSLESS_SIDE and kind == "webp":
        return {"lossless": True}
    rows = np.concatenate(groups)
    tried = np.sort(rng.permutation(rows)[:PER_SHEET])
    sheet = _sheet(pictures, tried, size)
    for quality in QUALITIES:
        n_bytes = len(_encoded(sheet, {"format": kind, "quality": quality}))
        if n_bytes / len(tried) * len(rows) <= BUDGET:
            break
    return {"quality": quality}


def _sheet(pictures, rows, size) -> Image.Image:
    pixels = pictures.thumbnails(rows, size)
    n_rows, (height, width) = -(-len(pixels) // COLUMNS), size
    n_channels = pixels.shape[-1]
    cells = np.zeros((n_rows * COLUMNS, height, width, n_channels), np.uint8)
    cells[: len(pixels)] = pixels
    cells = cells.reshape(n_rows, COLUMNS, height, width, n_channels).swapaxes(1, 2)
    sheet = cells.reshape(n_rows * height, COLUMNS * width, n_channels)
    return Image.fromarray(sheet[..., 0] if n_channels == 1 else sheet)


def as_drawn(images: Tensor) -> Tensor:
    """Images (B, C, H, W) as grey, or as red, green and blue: their first channels."""
    if images.shape[1] == 2:
        return torch.cat([images, torch.zeros_like(images[:, :1])], dim=1)
    return images[:, :3]


def _encoded(sheet: Image.Image, options: dict) -> bytes:
    file = io.BytesIO()
    sheet.save(file, **options)
    return file.getvalue()
