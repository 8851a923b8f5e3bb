"""A file as a row of X, within bounded memory."""

import ctypes
import math
import os
import re
import stat
from contextlib import ExitStack, suppress
from itertools import product
from numbers import Integral
from threading import Condition

import numpy as np
from PIL import Image, ImageColor, ImageOps, UnidentifiedImageError

from .._constraints import Count
from .._engine.forks import in_each_child
from .._engine.warn import warn_user
from .._memory import available_memory
from .._words import count
from ._opening import (
    BITS,
    ORIENTATION,
    File,
    ImageError,
    check_scans,
    find_formats,
    opened,
    orientation,
)

LONGEST_SIDE = 4096
PIECE = 512  # side of the pieces that are converted one after the other
# Bytes for each pixel that a decoder takes beside the image: planes of 32 bits, frames,
# strips, copies.
WORKING = {"AVIF": 20, "HEIF": 20, "JPEG2000": 20, "WEBP": 16, "PPM": 12}
WORKING |= {"TIFF": 4, "BMP": 3, "GIF": 2}
# Tags of TIFF.
PHOTOMETRIC, TILE_WIDTH, TILE_LENGTH, EXTRA_SAMPLES = 262, 322, 323, 338
SUBFILE_TYPE, PREVIEWS = 254, (1, 3)
WHITE = 2**16 - 1
DARK = 1 / 8  # share of white; an image with no larger value is nearly black
FAINT = 16  # of 255; a drawing that differs less from the background cannot be seen


class Decoder:
    """How files become the rows of X, by the parameters of `load_image_folder`.

    With `smooth`, small images are enlarged bilinearly.
    """

    def __init__(
        self,
        image_size,
        *,
        gray=False,
        resize="crop",
        background="white",
        white=WHITE,
        smooth=False,
    ) -> None:
        find_formats()  # here, and not in several threads at once
        height, width = _height_and_width(image_size)
        self.size = width, height
        self.mode = "L" if gray else "RGB"
        self.crop = resize == "crop"
        self.background = colour(background)
        self.white = white
        self.smooth = smooth
        self.tops: list[int] = []  # largest value of each file with values of 16 bits
        self.colour_tops: list[int] = []  # in X, of each file with colours of 16 bits
        self.of_more: list[str] = []  # files with channels that are not read
        self.hidden: list[str] = []  # files whose drawings have the background's colour
        self.stacks: list[str] = []  # files with pages that are not read

    def shape(self, n_images):
        """The shape of X."""
        width, height = self.size
        return (n_images, height, width, *(() if self.mode == "L" else (3,)))

    def empty(self, n_images):
        """An array for the images; ValueError if the memory does not suffice."""
        shape = self.shape(n_images)
        there = available_memory()
        if there is not None and math.prod(shape) > there:
            raise ValueError(
                f"`image_size`={shape[1:3]} and {n_images:,} files need "
                f"{math.prod(shape):,} bytes, more than are free. With `out`, "
                "the images are in a file."
            )
        return np.empty(shape, np.uint8)

    def settings(self):
        """The parameters that decide the values of X, besides the files."""
        return {
            "size": list(self.size),
            "mode": self.mode,
            "crop": self.crop,
            "background": list(self.background),
            "white": int(self.white),
        }

    def into(self, row, path, smaller=None):
        """Decode a file into a row; returns why that is impossible, or None.

        `smaller` (H, W, 3) gets the same image, at a size up to that of the row.
        """
        # The bytes are given back when the image and the error's traceback are freed.
        with ExitStack() as at_the_end:
            _, reason = _tried(self._fill, row, path, smaller, at_the_end)
            return reason

    def _fill(self, row, path, smaller, at_the_end):
        _check_file(path)
        with File(path) as file, opened(file) as image:
            _check_pixels(image.size)
            if _tag(image, SUBFILE_TYPE) in PREVIEWS:
                raise ImageError(
                    "begins with a small preview of an image, as raw files of cameras "
                    "do; export it as JPEG"
                )
            has_deep_colours = _has_deep_colours(image)
            if has_deep_colours and self.white != WHITE:
                raise ImageError(
                    "has 16-bit colours, and `white` is for grey values; save it with "
                    "8 bits"
                )
            needed = self._bytes(image, file.length)
            DECODING.take(needed)
            at_the_end.callback(DECODING.give_back, needed)
            file.in_header = False
            check_scans(image, file)
            if 0 in _tag(image, EXTRA_SAMPLES, ()):  # 0 is a channel of any meaning
                self.of_more.append(path)
            if image.format == "TIFF" and image.is_animated:
                self.stacks.append(path)
            self._decode(image, path, row, smaller)
            if has_deep_colours:
                self.colour_tops.append(int(row.max()))

    def _bytes(self, image, length):
        """Bytes that decoding may take; has a JPEG file decoded at a smaller size."""
        needed, pixels = length, math.prod(image.size)
        if getattr(image, "use_load_libtiff", False):
            # Read by strips or tiles, which may be as large as the image, or larger.
            tile = image.tag_v2.get(TILE_WIDTH, 0) * image.tag_v2.get(TILE_LENGTH, 0)
            needed += 8 * max(pixels, tile)
        elif image.format == "JPEG":  # coefficients of 16 bits, if of several scans
            needed += 2 * len(image.layer) * pixels
            # It can be decoded at a fraction of its size, which is faster. Twice the
            # wanted size is enough for good resampling.
            image.draft(None, 2 * (2 * max(self.size),))
            pixels = math.prod(image.size)
        needed += WORKING.get(image.format, 0) * pixels
        # The image, and the same converted, in pieces.
        needed += 2 * _of_image(image.size) + 64 * min(pixels, PIECE**2)
        # The image resized along one side, along both, and the weights of resampling.
        longest = max(self._seen(image.size))
        needed += _of_image((max(self.size), longest))
        return needed + 12 * math.prod(self.size) + 80 * longest

    def _seen(self, size):
        """Width and height of the part of an image that X shows."""
        if not self.crop:
            return size
        # The image may be on its side, where the sides of X change places.
        ratio = max(self.size) / min(self.size)
        return tuple(min(side, math.ceil(ratio * min(size)) + 2) for side in size)

    def _decode(self, image, path, row, smaller):
        image.load()
        turn = orientation(image)
        image = self._converted(image, path)
        row[:] = self._resized(image, turn, self.size, self.smooth)
        if smaller is not None:
            smaller[:] = self._resized(image, turn, smaller.shape[1::-1])

    def _resized(self, image, turn, size, smooth=False):
        """An image upright, with this width and height."""
        size = size[::-1] if 5 <= turn <= 8 else size  # on its side
        is_small = any(a < b for a, b in zip(image.size, size, strict=True))
        smoothly = smooth and is_small
        method = Image.Resampling.BILINEAR if smoothly else Image.Resampling.BICUBIC
        if self.crop:
            image = ImageOps.fit(image, size, method)
        else:
            image = image.resize(size, method)
        image.info.clear()  # Pillow would read its EXIF data, too
        image.getexif()[ORIENTATION] = turn
        return ImageOps.exif_transpose(image)

    def _converted(self, image, path):
        """An image in the mode of X, converted in pieces to save memory."""
        if image.mode == self.mode and not image.has_transparency_data:
            return image
        white = self._white(image)
        # Some scanners write 0 for white. Pillow inverts these only if they are 8 bits.
        inverted = white is not None and _tag(image, PHOTOMETRIC) == 0
        whole = Image.new(self.mode, image.size)
        alphas, hidden = [], True
        for box in _boxes(image.size):
            piece = image.crop(box)
            if white is not None:  # Pillow would clip what exceeds 255
                piece = _in_eight_bits(piece, white)
            if inverted:
                piece = ImageOps.invert(piece)
            if piece.has_transparency_data:
                piece = piece.convert("RGBA")
                alpha = piece.getchannel("A")
                ground = Image.new("RGBA", piece.size, self.background)
                piece = Image.alpha_composite(ground, piece)
                if hidden:  # so far; of most images, only the first piece is looked at
                    alphas += alpha.getextrema()
                    hidden = self._hides(piece)
            if piece.mode == "LAB":  # Pillow converts it to RGB alone
                piece = piece.convert("RGB")
            whole.paste(piece.convert(self.mode), box)
        # An image that is equally transparent everywhere has no drawing.
        if hidden and alphas and max(alphas) - min(alphas) >= FAINT:
            self.hidden.append(path)
        return whole

    def _hides(self, piece):
        """Whether all pixels have nearly the colour of the background."""
        off = np.subtract(piece.getextrema()[:3], np.reshape(self.background, (3, 1)))
        return np.abs(off).max() < FAINT

    def _white(self, image):
        """The value of white if values have to be scaled to 8 bits, else None."""
        if image.mode not in ("I", "F") and not image.mode.startswith("I;"):
            return None
        floats = image.mode == "F"
        white = 1
        if not floats:  # TIFF files may pack values of 12 bits
            packed = max(_tag(image, BITS, (1,))) == 12
            white = min(self.white, 2**12 - 1 if packed else WHITE)
        pieces = (np.asarray(image.crop(box)) for box in _boxes(image.size))
        lows, highs = zip(*((p.min(), p.max()) for p in pieces), strict=True)
        low, high = np.min(lows), np.max(highs)
        if not (low >= 0 and high <= white):  # false for NaN
            values = "floats" if floats else "values"
            advice = "; scale them to 0..1, or save whole numbers of 16 bits"
            raise ImageError(
                f"has {values} from {low:g} to {high:g}, where white is {white}"
                f"{advice if floats else ''}"
            )
        if not floats and white == self.white:
            self.tops.append(int(high))
        return white

    @property
    def _dark(self) -> list[int]:
        """The largest values of files so dark that they seem to use fewer bits."""
        return [top for top in self.tops if top < DARK * self.white]

    @property
    def white_in_use(self) -> int:
        """`white`, or a smaller one if all files with 16 bits seem to use fewer."""
        dark = self._dark
        if len(dark) < len(self.tops):
            return self.white
        return _white_above(max(dark, default=0)) or self.white

    def warn(self) -> None:
        """Warn of images that may not have been read as they were meant."""
        self._warn_if_dark()
        self._warn_if_colours_are_dark()
        if self.of_more:
            n, one = len(self.of_more), os.fspath(min(self.of_more))
            warn_user(
                "Images with channels besides colours and transparency, such as near "
                f"infrared or masks, are read without these: {n:,}; one is {one!r}."
                " In Python, an array may have any number of channels."
            )
        if self.hidden:
            n, one = len(self.hidden), os.fspath(min(self.hidden))
            other = "black" if sum(self.background) > 3 * 127 else "white"
            warn_user(
                "Images with transparent pixels are nearly one colour as they are read,"
                f" as are white drawings on white: {n:,}; one is {one!r}. Read them "
                f"with another `background`, such as {other}."
            )
        if self.stacks:
            n, one = len(self.stacks), os.fspath(min(self.stacks))
            warn_user(
                f"Of TIFF files with several pages, only the first page is read: {n:,};"
                f" one is {one!r}. To cluster all pages, write each to a file of its "
                "own, or read them into an array in Python."
            )

    def _warn_if_dark(self) -> None:
        """Warn if most files of 16 bits seem to use fewer of them."""
        dark = self._dark
        white = _white_above(max(dark, default=0))
        if not white or 2 * len(dark) <= len(self.tops):
            return
        rest = ""
        if len(dark) < len(self.tops):
            rest = " Images with larger values are then no longer read."
        warn_user(
            f"{len(dark):,} of {count(len(self.tops), 'image')} with 16 bits have no "
            f"value above {max(dark)}, where white is {self.white}: they are nearly "
            "black. If fewer bits are in use, set `white`, or --white of `sk-mice "
            f"fit`, to {white}.{rest}"
        )

    def _warn_if_colours_are_dark(self) -> None:
        """Warn if most files with colours of 16 bits seem to use fewer bits."""
        dark = [top for top in self.colour_tops if top < DARK * 255]
        if 2 * len(dark) > len(self.colour_tops):
            warn_user(
                f"{len(dark):,} of {count(len(self.colour_tops), 'image')} with "
                f"colours of 16 bits have no value above {max(dark)} once these are 8 "
                "bits, where white is 255: they are nearly black. If fewer bits are "
                "in use, scale the values and save the images with 8 bits, or read "
                "them into an array in Python."
            )


def _white_above(value: int) -> int:
    """The largest number with as many bits as a value."""
    return 2 ** value.bit_length() - 1


def _in_eight_bits(image, white):
    """An image of more bits in 8 bits; its transparent pixels stay transparent."""
    values = np.asarray(image)
    eight = Image.fromarray(np.rint(values / white * 255).astype(np.uint8))
    clear = image.info.get("transparency")
    if isinstance(clear, int):
        eight.putalpha(Image.fromarray(np.uint8(255) * (values != clear)))
    return eight


def _tag(image, number, default=None):
    """A tag of a TIFF file; the default if it has none, or for other files."""
    return image.tag_v2.get(number, default) if image.format == "TIFF" else default


def size_of(path):
    """Width and height in the header of an image file, or None and the reason."""
    find_formats()
    return _tried(_read_size, path)


def _read_size(path):
    _check_file(path)
    with File(path) as file, opened(file) as image:
        _check_pixels(image.size)
        return image.size


def _tried(function, *args):
    """The result of a function and None, or None and why a file cannot be read."""
    try:
        return function(*args), None
    except ImageError as error:
        return None, str(error)
    except UnidentifiedImageError:
        return None, "is not an image of a format that is read"
    except OSError as error:
        return None, error.strerror or str(error)
    # Damaged files make Pillow's decoders raise anything.
    except Exception as error:
        return None, f"{type(error).__name__}: {error}".rstrip(": ")


def _height_and_width(image_size):
    sides = 2 * (image_size,) if isinstance(image_size, Integral) else image_size
    is_side = Count(1, LONGEST_SIDE).is_satisfied_by
    if not (len(sides) == 2 and all(map(is_side, sides))):
        raise ValueError(
            f"`image_size` must be an integer from 1 to {LONGEST_SIDE} or a pair "
            f"(H, W) of them; got {image_size!r}."
        )
    return tuple(map(int, sides))


def colour(background) -> tuple[int, ...]:
    """Red, green and blue of a colour; ValueError if it is none."""
    try:
        return ImageColor.getrgb(background)[:3]
    except ValueError as error:
        raise ValueError(
            f'`background` must be the name of a colour or "#rrggbb"; got '
            f"{background!r}."
        ) from error


def _check_file(path):
    if os.path.islink(path) and not os.path.exists(path):
        raise ImageError("links to nothing")
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):  # reading a pipe would wait for ever
        raise ImageError("is not a regular file")
    if status.st_size == 0:
        raise ImageError("is empty")


def _check_pixels(size):
    pixels, limit = math.prod(size), Image.MAX_IMAGE_PIXELS
    if limit is not None and pixels > limit:
        raise ImageError(
            f"has {pixels:,} pixels, more than PIL.Image.MAX_IMAGE_PIXELS={limit}; it "
            "may be a decompression bomb"
        )


def _boxes(size):
    starts = product(range(0, size[0], PIECE), range(0, size[1], PIECE))
    return [(x, y, min(x + PIECE, size[0]), min(y + PIECE, size[1])) for x, y in starts]


def _has_deep_colours(image) -> bool:
    """Whether an image has colours of 16 bits, of which Pillow reads the upper 8."""
    raw_mode = image.tile[0][3] if image.tile else ""
    raw_mode = raw_mode[0] if isinstance(raw_mode, tuple) else raw_mode
    is_deep = re.search(";16[BLN]", str(raw_mode)) is not None
    return is_deep and not image.mode.startswith("I")


# ------------------------------------------------------------------------------ memory


class _Memory:
    """Bytes of memory that threads take, wait for, and give back.

    A thread that needs more than `total`, up to `most`, waits until no other has any.
    """

    def __init__(self, total, most):
        self.total, self.most = total, most
        self.begin()

    def begin(self):
        """Forget what has been taken."""
        self.free, self.changed = self.total, Condition()

    def take(self, needed):
        if needed > self.most:
            raise ImageError(
                f"takes {needed:,} bytes to decode, where {self.most:,} are allowed"
            )
        with self.changed:
            self.changed.wait_for(lambda: min(needed, self.total) <= self.free)
            self.free -= needed

    def give_back(self, taken):
        if taken > LARGE:  # glibc would keep what each thread has freed
            with suppress(AttributeError, OSError, TypeError):  # another C library
                ctypes.CDLL(None).malloc_trim(0)
        with self.changed:
            self.free += taken
            self.changed.notify_all()


DECODING = _Memory(2**30, 2**31)  # all threads of this process share it
in_each_child(DECODING.begin)  # where nobody gives back what the parent's have
LARGE = 2**26


def _of_image(size):
    """Bytes of an image in Pillow, at most: a pointer for each row, and its pixels."""
    return size[1] * (4 * size[0] + 16)
