"""A file as a row of X: the formats that are read, and within bounded memory.

Some of Pillow's plugins start programs, or take files that hold images of any other
format. They are not used. Others read as many bytes as a header asks for, keep data
that no image needs, or warn. Subclasses further below replace them and do none of this.
(Filters of warnings are those of all threads: a thread cannot silence its own.)
"""

import ctypes
import io
import math
import os
import re
import stat
import struct
from contextlib import ExitStack, suppress
from itertools import product
from numbers import Integral
from threading import Condition, Lock
from types import FunctionType, SimpleNamespace

import numpy as np
from PIL import (
    GifImagePlugin,
    Image,
    ImageColor,
    ImageOps,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    UnidentifiedImageError,
)

from .._constraints import Count
from .._engine.warn import warn_user
from .._memory import available_memory
from .._words import count

LONGEST_SIDE = 4096
PIECE = 512  # side of the pieces that are converted one after the other
# TGA comes last, as it has no signature.
FORMATS = ["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "AVIF"]
FORMATS += ["HEIF", "JPEG2000", "PPM", "TGA"]
# Bytes that a decoder takes for a pixel, beside those of the image: planes of 32 bits,
# frames, strips, copies.
WORKING = {"AVIF": 20, "HEIF": 20, "JPEG2000": 20, "WEBP": 16, "PPM": 12}
WORKING |= {"TIFF": 4, "BMP": 3, "GIF": 2}
ORIENTATION, TILE_WIDTH, TILE_LENGTH = 0x0112, 322, 323  # tags of TIFF
BITS, PHOTOMETRIC, PLANES = 258, 262, 284
WHITE = 2**16 - 1
DARK = 1 / 8  # of white, if no value of 16 bits in any file exceeds it


class ImageError(Exception):
    """A file cannot be read as an image; why, in words that follow its name."""


class Decoder:
    """How files become the rows of X; the parameters are `load_image_folder`'s.

    But for `smooth`: small images are enlarged bilinearly.
    """

    def __init__(self, image_size, grey, resize, background, white=WHITE, smooth=False):
        _find_formats()  # before threads would do it
        height, width = _height_and_width(image_size)
        self.size = width, height
        self.mode = "L" if grey else "RGB"
        self.crop = resize == "crop"
        self.background = _colour(background)
        self.white = white
        self.smooth = smooth
        self.tops: list[int] = []  # largest value of each file with values of 16 bits
        self._lock = Lock()

    def shape(self, n_images):
        """The shape of X."""
        width, height = self.size
        return (n_images, height, width, *(() if self.mode == "L" else (3,)))

    def empty(self, n_images):
        """An array for the images, if the memory is free."""
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
        """What decides the values of X, beside the files."""
        return {
            "size": list(self.size),
            "mode": self.mode,
            "crop": self.crop,
            "background": list(self.background),
            "white": int(self.white),
        }

    def into(self, row, path):
        """Decode a file into a row; returns why that is impossible, or None."""
        with ExitStack() as at_the_end:  # the image is freed, and an error's frames
            _, reason = _tried(self._fill, row, path, at_the_end)
            return reason

    def _fill(self, row, path, at_the_end):
        _check_file(path)
        with _File(path) as file, _opened(file) as image:
            _check_pixels(image.size)
            if self.white != WHITE:
                _check_bits(image)
            needed = self._bytes(image, file.length)
            DECODING.take(needed)
            at_the_end.callback(DECODING.give_back, needed)
            file.in_header = False
            row[:] = self._decode(image)

    def _bytes(self, image, length):
        """Bytes that decoding may take; a JPEG file is set to a part of its size."""
        needed, pixels = length, math.prod(image.size)
        if image.format == "TIFF":  # read by tiles, which may be larger than the image
            tile = image.tag_v2.get(TILE_WIDTH, 0) * image.tag_v2.get(TILE_LENGTH, 0)
            needed += 8 * max(pixels, tile)
        elif image.format == "JPEG":  # coefficients of 16 bits, if of several scans
            needed += 2 * len(image.layer) * pixels
            # It can be decoded at a fraction of its size, which is quicker; twice the
            # size wanted leaves the resampling something to do.
            image.draft(None, 2 * (2 * max(self.size),))
            pixels = math.prod(image.size)
        needed += WORKING.get(image.format, 0) * pixels
        # The image, and the same converted, in pieces.
        needed += 2 * _of_image(image.size) + 64 * min(pixels, PIECE**2)
        # Resized along one side, along both, and the weights for either.
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

    def _decode(self, image):
        image.load()
        turn = _orientation(image)
        image = self._converted(image)
        size = self.size[::-1] if 5 <= turn <= 8 else self.size  # on its side
        is_small = any(a < b for a, b in zip(image.size, size, strict=True))
        smoothly = self.smooth and is_small
        method = Image.Resampling.BILINEAR if smoothly else Image.Resampling.BICUBIC
        if self.crop:
            image = ImageOps.fit(image, size, method)
        else:
            image = image.resize(size, method)
        image.info.clear()  # so that Pillow reads no EXIF data but these
        image.getexif()[ORIENTATION] = turn
        return ImageOps.exif_transpose(image)

    def _converted(self, image):
        """In the mode of X; piece by piece, as some steps take many bytes a pixel."""
        if image.mode == self.mode and not image.has_transparency_data:
            return image
        white = self._white(image)
        # Pillow inverts such values of 8 bits itself.
        inverted = white is not None and _is_white_zero(image)
        whole = Image.new(self.mode, image.size)
        for box in _boxes(image.size):
            piece = image.crop(box)
            if white is not None:  # Pillow would clip what exceeds 255
                piece = _in_eight_bits(piece, white)
            if inverted:
                piece = ImageOps.invert(piece)
            if piece.has_transparency_data:
                piece = piece.convert("RGBA")
                ground = Image.new("RGBA", piece.size, self.background)
                piece = Image.alpha_composite(ground, piece)
            if piece.mode == "LAB":  # from which Pillow knows no other way
                piece = piece.convert("RGB")
            whole.paste(piece.convert(self.mode), box)
        return whole

    def _white(self, image):
        """Value of white where values have to be scaled, else None."""
        if image.mode not in ("I", "F") and not image.mode.startswith("I;"):
            return None
        floats = image.mode == "F"
        white = 1 if floats else min(self.white, _white_of_header(image))
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
            with self._lock:
                self.tops.append(int(high))
        return white

    @property
    def _dark(self) -> list[int]:
        """The largest values of files that are too dark to have all bits in use."""
        return [top for top in self.tops if top < DARK * self.white]

    @property
    def white_in_use(self) -> int:
        """White of fewer bits, if all files with 16 bits are too dark to have those."""
        dark = self._dark
        if len(dark) < len(self.tops):
            return self.white
        return _white_above(max(dark, default=0)) or self.white

    def warn_if_dark(self) -> None:
        """Warn if most files of 16 bits are read as if they had them, and do not."""
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


def _white_above(value: int) -> int:
    """The largest value of as many bits."""
    return 2 ** value.bit_length() - 1


def _in_eight_bits(image, white):
    """Grey values of more bits; the one that stands for transparent stays so."""
    values = np.asarray(image)
    eight = Image.fromarray(np.rint(values / white * 255).astype(np.uint8))
    clear = image.info.get("transparency")
    if isinstance(clear, int):
        eight.putalpha(Image.fromarray(np.uint8(255) * (values != clear)))
    return eight


def _white_of_header(image) -> int:
    """White of a TIFF file that packs values of 12 bits, as its header says."""
    packed = image.format == "TIFF" and max(image.tag_v2.get(BITS, (1,))) == 12
    return 2**12 - 1 if packed else WHITE


def _is_white_zero(image):
    """Whether a file says that its zeros are white, as some scanners of gels do."""
    return image.format == "TIFF" and image.tag_v2.get(PHOTOMETRIC) == 0


def size_of(path):
    """Width and height of an image file as its header has them, or None; and why."""
    _find_formats()
    return _tried(_read_size, path)


def _read_size(path):
    _check_file(path)
    with _File(path) as file, _opened(file) as image:
        _check_pixels(image.size)
        return image.size


def _tried(function, *args):
    """What a function makes of a file, or None; and why it cannot be read, or None."""
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


def _colour(background):
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
        raise ImageError("is no regular file")
    if status.st_size == 0:
        raise ImageError("is empty")


def _check_pixels(size):
    pixels, limit = math.prod(size), Image.MAX_IMAGE_PIXELS
    if pixels == 0:
        raise ImageError("has no pixels")
    if limit is not None and pixels > limit:
        raise ImageError(
            f"has {pixels:,} pixels, more than PIL.Image.MAX_IMAGE_PIXELS={limit}; it "
            "may be a decompression bomb"
        )


def _boxes(size):
    starts = product(range(0, size[0], PIECE), range(0, size[1], PIECE))
    return [(x, y, min(x + PIECE, size[0]), min(y + PIECE, size[1])) for x, y in starts]


def _check_bits(image):
    """Refuse values of 16 bits of which Pillow reads the upper 8, whatever is white."""
    raw_mode = image.tile[0][3] if image.tile else ""
    raw_mode = raw_mode[0] if isinstance(raw_mode, tuple) else raw_mode
    if re.search(";16[BLN]", str(raw_mode)) and not image.mode.startswith("I"):
        raise ImageError(
            "has colours of 16 bits, and `white` is for grey values; save it with 8"
        )


# ------------------------------------------------------------------------------ memory


class _Memory:
    """Bytes that threads take, wait for, and give back."""

    def __init__(self, total):
        self.total = self.free = total
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
        if taken > LARGE:  # glibc would keep what each thread has freed
            with suppress(AttributeError, OSError, TypeError):  # it is not glibc's
                ctypes.CDLL(None).malloc_trim(0)
        with self.changed:
            self.free += taken
            self.changed.notify_all()


DECODING = _Memory(2**30)  # of all threads of this process
LARGE = 2**26


def _of_image(size):
    """Bytes of an image in Pillow, at most: a pointer for each row, and its pixels."""
    return size[1] * (4 * size[0] + 16)


# ----------------------------------------------------------------------------- opening

HEADER_BYTES = 2**26  # that a file may have before its pixels
SMALL_HEADER = 2**22
LARGE_HEADER = Lock()  # held by the one open file with such a header


class _File(io.BufferedReader):
    """A file of whose header no more is read than `HEADER_BYTES`.

    Plugins may read the same bytes many times.
    """

    def __init__(self, path):
        super().__init__(io.FileIO(path))
        self.length = os.fstat(self.fileno()).st_size
        self.in_header, self.header, self.alone = True, 0, False

    def read(self, size=-1):
        most = HEADER_BYTES + 1
        size = most if size is None or size < 0 else min(size, most)
        if not self.in_header:
            return super().read(size)
        if not self.alone and self.header + min(size, self.length) > SMALL_HEADER:
            LARGE_HEADER.acquire()
            self.alone = True
        data = super().read(size)
        self.header += len(data)
        if self.header > HEADER_BYTES:
            raise ImageError(f"has a header of more than {HEADER_BYTES:,} bytes")
        return data

    def close(self):
        super().close()
        if self.alone:
            self.alone = False
            LARGE_HEADER.release()


def _find_formats():
    """Pillow's own, and HEIF, if pillow-heif is installed."""
    Image.init()
    if "HEIF" not in Image.OPEN:
        with suppress(ImportError):
            import pillow_heif

            pillow_heif.register_heif_opener()


# What Pillow says of a TIFF file whose header it has understood.
UNKNOWN_PIXELS = {
    "unknown pixel mode",
    "unknown data organization",
    "string index out of range",  # it has more planes than channels
}
OTHER_TIFF = (
    "is a TIFF image whose pixels are of a kind that is not read; save it as grey or "
    "RGB of 8 or 16 bits, or as grey floats of 32 bits"
)


def _opened(file):
    """The first image of a file, with its size and mode, not yet decoded."""
    prefix = file.read(16)
    for name in FORMATS:
        if name not in Image.OPEN:
            continue
        plugin, accepts = Image.OPEN[name]
        try:
            accepted = accepts is None or accepts(prefix)
            if isinstance(accepted, str):  # this build of Pillow lacks the format
                raise ImageError(accepted)
            if accepted:
                file.seek(0)
                return PLUGINS.get(name, plugin)(file)
        # What a plugin raises for a file of another format.
        except (SyntaxError, IndexError, TypeError, struct.error) as error:
            if name == "TIFF" and accepted and str(error) in UNKNOWN_PIXELS:
                raise ImageError(OTHER_TIFF) from error
    if prefix[4:11] in (b"ftyphei", b"ftypmif") and "HEIF" not in Image.OPEN:
        raise ImageError('is a HEIC image, which `pip install "sk-mice[heif]"` reads')
    raise UnidentifiedImageError


def _orientation(image):
    """How a loaded image has to be turned, as EXIF data say it; 1 is upright.

    Pillow would read all EXIF data for this, and warn if they are broken.
    """
    if image.format == "TIFF":  # which Pillow turns as it loads it
        return 1
    exif = image.info.get("exif")
    if not exif:  # as ImageMagick writes it into a PNG file
        lines = image.info.get("Raw profile type exif", "").split("\n")
        with suppress(ValueError):
            exif = bytes.fromhex("".join(lines[3:]))
    return _of_exif(exif) or _of_xmp(image.info)


def _of_exif(exif):
    try:
        exif = re.sub(rb"^(?:Exif\0\0)+", b"", exif)
        order = {b"II": "<", b"MM": ">"}[exif[:2]]
        (start,) = struct.unpack_from(order + "L", exif, 4)
        (count,) = struct.unpack_from(order + "H", exif, start)
        for entry in range(start + 2, start + 2 + 12 * count, 12):
            tag, _, _, value = struct.unpack_from(order + "HHLH", exif, entry)
            if tag == ORIENTATION:
                return value
    except (KeyError, TypeError, struct.error):  # broken, or the text of a PNG file
        pass
    return None


def _of_xmp(info):
    xmp = info.get("XML:com.adobe.xmp") or info.get("xmp") or b""
    xmp = xmp.encode(errors="replace") if isinstance(xmp, str) else xmp
    match = re.search(rb'tiff:Orientation(?:="|>)([0-9])', xmp)
    return int(match[1]) if match else 1


# ------------------------------------------------------- plugins that neither warn nor
# take memory for what no image needs; the number of pixels is checked in one place.


class _Exif(Image.Exif):
    """EXIF data of which only the orientation is read."""

    def load(self, data):
        value = _of_exif(data)
        if value is not None:
            self[ORIENTATION] = value


def _nothing(*args, **kwargs):
    pass


_QUIET = {
    "warnings": SimpleNamespace(warn=_nothing),
    "Image": SimpleNamespace(
        **vars(Image) | {"Exif": _Exif, "_decompression_bomb_check": _nothing}
    ),
}


def _quiet(cls, **names):
    """A subclass with the same methods, for which some global names mean another."""
    methods = {}
    for name, method in vars(cls).items():
        if isinstance(method, FunctionType):
            scope = method.__globals__ | _QUIET | names
            settings = name, method.__defaults__, method.__closure__
            methods[name] = FunctionType(method.__code__, scope, *settings)
            methods[name].__kwdefaults__ = method.__kwdefaults__
    return type(cls)(cls.__name__, (cls,), methods)


class _Jpeg(JpegImagePlugin.JpegImageFile):
    """Also the first frame of an MPO file."""

    def getexif(self):  # asked for the resolution when the file is opened
        return Image.Exif()


class _Tags(_quiet(TiffImagePlugin.ImageFileDirectory_v2)):
    LONGEST = 2**19  # bytes of numbers, which become objects of many times that
    BYTES = (1, 2, 7)  # types that stay as they are

    def __getitem__(self, tag):
        long = len(self._tagdata.get(tag, b"")) > self.LONGEST
        if long and self.tagtype[tag] not in self.BYTES:
            raise ImageError(f"has a tag of more than {self.LONGEST:,} bytes")
        return super().__getitem__(tag)


class _Tiff(_quiet(TiffImagePlugin.TiffImageFile, ImageFileDirectory_v2=_Tags)):
    def getexif(self):  # asked how to turn the image when it is loaded
        exif = Image.Exif()
        exif[ORIENTATION] = self.tag_v2.get(ORIENTATION) or _of_xmp(self.info)
        return exif

    def _setup(self):
        super()._setup()
        # Of planes that are not compressed, Pillow takes each byte for a value.
        if self.tag_v2.get(PLANES) == 2 and max(self.tag_v2.get(BITS, (1,))) == 16:
            order = ";16B" if self.tag_v2.prefix == b"MM" else ";16L"
            grey = self.mode if self.mode.startswith("I;16") else None
            self.tile = [_of_plane(tile, order, grey) for tile in self.tile]


def _of_plane(tile, order, grey):
    """A tile with the raw mode of 16 bits in place of a single letter."""
    mode, *rest = tile[3]
    if len(mode) > 1:
        return tile
    args = grey or mode + order, *rest
    # A plain tuple in earlier versions of Pillow.
    return tile._replace(args=args) if hasattr(tile, "_replace") else (*tile[:3], args)


class _PngStream(_quiet(PngImagePlugin.PngStream)):
    KEPT = {"exif", "Raw profile type exif", "XML:com.adobe.xmp"}

    def check_text_memory(self, chunklen):  # called after each text
        super().check_text_memory(chunklen)
        # A text may be packed to a thousandth, and Pillow would keep all of them.
        for key in set(self.im_text) - self.KEPT:
            del self.im_text[key]
            self.im_info.pop(key, None)


class _Gif(_quiet(GifImagePlugin.GifImageFile)):
    # Pillow would prepare the second frame when it opens the first.
    disposal_method = property(lambda self: 0, _nothing)


PLUGINS = {
    "JPEG": _Jpeg,
    "PNG": _quiet(PngImagePlugin.PngImageFile, PngStream=_PngStream),
    "TIFF": _Tiff,
    "GIF": _Gif,
}
with suppress(ImportError):  # before Pillow 11.3
    from PIL import AvifImagePlugin

    PLUGINS["AVIF"] = _quiet(AvifImagePlugin.AvifImageFile)
