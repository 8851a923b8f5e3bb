"""An image file as a row of an array, in memory that all threads share out."""

import ctypes
import os
import stat
from contextlib import suppress
from itertools import product
from math import ceil
from operator import mul
from threading import Condition

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from ._image_opening import (
    ImageError,
    ImageFile,
    open_image,
    orientation,
)

PIECE = 512  # side of the pieces that are converted one after the other
TILE_WIDTH, TILE_LENGTH = 322, 323  # tags of TIFF
# Bytes that a decoder takes for a pixel, beside those of the image: planes of 32 bits,
# frames, strips, copies.
WORKING = {
    "AVIF": 20,
    "JPEG2000": 20,
    "WEBP": 16,
    "PPM": 12,
    "TIFF": 4,
    "BMP": 3,
    "GIF": 2,
}
TURNED_BY = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
ON_THE_SIDE = (5, 6, 7, 8)


class _Memory:
    """Bytes that threads take, wait for, and give back."""

    def __init__(self, total):
        self.total = total
        self.free = total
        self.changed = Condition()

    def take(self, needed):
        if needed > self.total:
            raise ImageError(
                f"takes {needed:,} bytes to decode, where {self.total:,} are allowed"
            )
        with self.changed:
            self.changed.wait_for(lambda: needed <= self.free)
            self.free -= needed

    def give_back(self, taken):
        if taken > LARGE:
            _trim()
        with self.changed:
            self.free += taken
            self.changed.notify_all()


DECODING = _Memory(2**30)  # of all threads of this process
LARGE = 2**26


def _trim():
    """Hand free memory to the system; glibc would keep that of each thread."""
    with suppress(AttributeError, OSError, TypeError):  # it is not glibc's
        ctypes.CDLL(None).malloc_trim(0)


class Decoder:
    """How files become the rows of X."""

    def __init__(self, size, grey, resize, background, white):
        Image.init()  # all formats, before threads would do it
        self.size = size
        self.mode = "L" if grey else "RGB"
        self.crop = resize == "crop"
        self.background = background
        self.white = white

    def into(self, row, path):
        """Decode a file into a row; returns why that is impossible, or None."""
        taken = []
        try:
            return self._tried(row, path, taken)
        finally:  # when the image is freed, and the frames of an error, too
            DECODING.give_back(sum(taken))

    def _tried(self, row, path, taken):
        try:
            _check_file(path)
            with ImageFile(path) as file, open_image(file) as image:
                _check_pixels(image.size)
                needed = self._bytes(image, file.length)
                DECODING.take(needed)
                taken.append(needed)
                file.in_header = False
                row[:] = self._decode(image)
        except ImageError as error:
            return str(error)
        except UnidentifiedImageError:
            return "is no image of a format that is read"
        except OSError as error:
            return error.strerror or str(error)
        # Damaged files make Pillow's decoders raise anything.
        except Exception as error:
            return f"{type(error).__name__}: {error}".rstrip(": ")
        return None

    def _bytes(self, image, length):
        """Bytes that decoding may take; a JPEG file is set to a part of its size."""
        needed = _of_decoder(image, length)
        # A JPEG file can be decoded at a fraction of its size, which is quicker;
        # twice the size wanted leaves the resampling something to do.
        side = 2 * max(self.size)
        image.draft(None, (side, side))
        pixels = image.width * image.height
        needed += pixels * WORKING.get(image.format, 0)
        needed += _of_image(image.size, image.mode)
        # Converted, and the pieces it is converted in.
        needed += _of_image(image.size, self.mode) + 64 * min(pixels, PIECE**2)
        # Resized along one side, along both, and the weights for either.
        longest = max(self._seen(image.size))
        needed += _of_image((max(self.size), longest), self.mode)
        needed += 12 * self.size[0] * self.size[1] + 80 * longest
        return needed

    def _seen(self, size):
        """Width and height of the part of an image that X shows."""
        if not self.crop:
            return size
        # The image may be on its side, where the sides of X change places.
        ratio = max(self.size) / min(self.size)
        return tuple(min(side, ceil(ratio * min(size)) + 2) for side in size)

    def _decode(self, image):
        image.load()
        turn = orientation(image)
        image = self._converted(image)
        size = self.size[::-1] if turn in ON_THE_SIDE else self.size
        image = ImageOps.fit(image, size) if self.crop else image.resize(size)
        return image.transpose(TURNED_BY[turn]) if turn in TURNED_BY else image

    def _converted(self, image):
        """In the mode of X; piece by piece, as some steps take many bytes a pixel."""
        if image.mode == self.mode and not image.has_transparency_data:
            return image
        white = _white(image, self.white)
        whole = Image.new(self.mode, image.size)
        for box in _boxes(image.size):
            piece = image.crop(box)
            if white is not None:
                piece = _eight_bits(piece, white)
            piece = _on_background(piece, self.background)
            whole.paste(piece.convert(self.mode), box)
        return whole


def _check_file(path):
    if os.path.islink(path) and not os.path.exists(path):
        raise ImageError("links to nothing")
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):  # reading a pipe would wait for ever
        raise ImageError("is no regular file")
    if status.st_size == 0:
        raise ImageError("is empty")


def _check_pixels(size):
    if 0 in size:
        raise ImageError("has no pixels")
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and size[0] * size[1] > limit:
        raise ImageError(
            f"has {size[0] * size[1]:,} pixels, more than PIL.Image.MAX_IMAGE_PIXELS="
            f"{limit}; it may be a decompression bomb"
        )


# ------------------------------------------------------------------------------ memory


def _of_image(size, mode):
    """Bytes of an image as Pillow stores it: a pointer for each row, and its pixels."""
    pixel = 1 if mode in ("1", "L", "P") else 2 if mode.startswith("I;16") else 4
    return size[1] * (size[0] * pixel + 16)


def _of_decoder(image, length):
    """Bytes that do not become less if the image is decoded at a fraction."""
    pixels = image.width * image.height
    if image.format == "TIFF":  # read by tiles, which may be larger than the image
        tile = image.tag_v2.get(TILE_WIDTH, 0) * image.tag_v2.get(TILE_LENGTH, 0)
        return 8 * max(pixels, tile)
    if image.format == "JPEG":  # coefficients of 16 bits, if there are several scans
        _, vertical, horizontal, _ = zip(*image.layer, strict=True)
        full = max(vertical) * max(horizontal) or 1
        return length + 2 * pixels * sum(map(mul, vertical, horizontal)) // full
    return length


def _boxes(size):
    starts = product(range(0, size[0], PIECE), range(0, size[1], PIECE))
    return [(x, y, min(x + PIECE, size[0]), min(y + PIECE, size[1])) for x, y in starts]


# -------------------------------------------------------------------- to 8 bits, opaque


def _white(image, white):
    """Value of white where values have to be scaled, else None."""
    if image.mode not in ("I", "F") and not image.mode.startswith("I;"):
        return None
    white = 1 if image.mode == "F" else white
    pieces = (np.asarray(image.crop(box)) for box in _boxes(image.size))
    lows, highs = zip(*((p.min(), p.max()) for p in pieces), strict=True)
    low, high = np.min(lows), np.max(highs)
    if not (low >= 0 and high <= white):  # false for NaN
        raise ImageError(f"has values from {low:g} to {high:g}, where white is {white}")
    return white


def _eight_bits(image, white):
    """Pillow would clip what exceeds 255 instead of scaling it."""
    values = np.asarray(image)
    return Image.fromarray(np.rint(values / white * 255).astype(np.uint8))


def _on_background(image, colour):
    if not image.has_transparency_data:
        return image
    image = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, colour), image)
