"""Image files opened by Pillow: in ordinary formats only, and without its warnings.

An open image has its size and mode; its pixels are decoded by `load`.
"""

import io
import os
import re
import struct
from threading import Lock
from types import FunctionType, SimpleNamespace

from PIL import (
    GifImagePlugin,
    Image,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    UnidentifiedImageError,
)

try:
    from PIL import AvifImagePlugin
except ImportError:  # before Pillow 11.3
    AvifImagePlugin = None

# Their plugins start no program and open no other file, and no image inside an image.
# TGA comes last, as it has no signature.
FORMATS = (
    "JPEG",
    "PNG",
    "GIF",
    "BMP",
    "TIFF",
    "WEBP",
    "AVIF",
    "JPEG2000",
    "PPM",
    "TGA",
)
HEADER_BYTES = 2**26  # that a file may have before its pixels
SMALL_HEADER = 2**22
LARGE_HEADER = Lock()
LONGEST_TAG = 2**19  # of numbers in a TIFF file, in bytes
BYTES = (1, 2, 7)  # types of tags that stay as they are
ORIENTATION = 0x0112
TEXTS = {"exif", "Raw profile type exif", "XML:com.adobe.xmp"}  # that may hold it


class ImageError(Exception):
    """A file cannot be read as an image; why, in words that follow its name."""


def open_image(file):
    """The first image of an `ImageFile`, not yet decoded."""
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
                return WITHOUT_WARNINGS.get(name, plugin)(file)
        # What a plugin raises for a file of another format.
        except (SyntaxError, IndexError, TypeError, struct.error):
            continue
    raise UnidentifiedImageError


class ImageFile(io.BufferedReader):
    """A file of whose header no more is read than `HEADER_BYTES`.

    Some plugins read as much as a header asks for, and the same bytes many times. Of
    the files with large headers one is open at a time.
    """

    def __init__(self, path):
        super().__init__(io.FileIO(path))
        self.length = os.fstat(self.fileno()).st_size
        self.in_header = True
        self.header = 0
        self.alone = False

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


def orientation(image):
    """How a loaded image has to be turned, as EXIF data say it; 1 is upright.

    Pillow would read all EXIF data for this, and warn if they are broken.
    """
    if image.format == "TIFF":  # which Pillow turns as it loads it
        return 1
    info = image.info
    exif = info.get("exif") or _of_raw_profile(info.get("Raw profile type exif", ""))
    return _of_exif(exif) or _of_xmp(info)


def _of_raw_profile(text):
    """EXIF data as ImageMagick writes them into a PNG file."""
    try:
        return bytes.fromhex("".join(text.split("\n")[3:]))
    except ValueError:  # broken, which the image need not be
        return b""


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


# ---------------------------------------------------------- Pillow without its warnings

# Whether a warning is shown, or is an error, is up to filters that all threads share.
# So these plugins warn of nothing, and no filter is changed. Broken metadata play no
# part here, and the number of pixels is checked for all formats alike.


class _Exif(Image.Exif):
    """EXIF data of which only the orientation is read."""

    def load(self, data):
        value = _of_exif(data)
        if value is not None:
            self[ORIENTATION] = value


_IMAGE = SimpleNamespace(
    **vars(Image) | {"Exif": _Exif, "_decompression_bomb_check": lambda *_, **__: None}
)
_NAMES = {"warnings": SimpleNamespace(warn=lambda *_, **__: None), "Image": _IMAGE}


def _without_warnings(cls, **names):
    """A subclass with the same methods, for which some global names mean another."""

    def method(function):
        scope = function.__globals__ | _NAMES | names
        copy = FunctionType(
            function.__code__,
            scope,
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )
        copy.__kwdefaults__ = function.__kwdefaults__
        return copy

    own = vars(cls).items()
    methods = {n: method(f) for n, f in own if isinstance(f, FunctionType)}
    return type(cls)(cls.__name__, (cls,), methods)


class _Jpeg(JpegImagePlugin.JpegImageFile):
    """Also the first frame of an MPO file."""

    def getexif(self):  # asked for the resolution when the file is opened
        return Image.Exif()


class _Tags(_without_warnings(TiffImagePlugin.ImageFileDirectory_v2)):
    def __getitem__(self, tag):
        # Numbers and pieces become objects, of many times the bytes.
        long = len(self._tagdata.get(tag, b"")) > LONGEST_TAG
        if long and self.tagtype[tag] not in BYTES:
            raise ImageError(f"has a tag of more than {LONGEST_TAG:,} bytes")
        return super().__getitem__(tag)


class _Tiff(
    _without_warnings(TiffImagePlugin.TiffImageFile, ImageFileDirectory_v2=_Tags)
):
    def getexif(self):  # asked how to turn the image when it is loaded
        exif = Image.Exif()
        exif[ORIENTATION] = self.tag_v2.get(ORIENTATION) or _of_xmp(self.info)
        return exif


class _PngStream(_without_warnings(PngImagePlugin.PngStream)):
    def check_text_memory(self, chunklen):  # called after each text
        super().check_text_memory(chunklen)
        # A text may be packed to a thousandth, and Pillow would keep all of them.
        for key in set(self.im_text) - TEXTS:
            del self.im_text[key]
            self.im_info.pop(key, None)


class _Gif(_without_warnings(GifImagePlugin.GifImageFile)):
    # Pillow would prepare the second frame when it opens the first.
    disposal_method = property(lambda self: 0, lambda self, value: None)


WITHOUT_WARNINGS = {
    "JPEG": _Jpeg,
    "PNG": _without_warnings(PngImagePlugin.PngImageFile, PngStream=_PngStream),
    "TIFF": _Tiff,
    "GIF": _Gif,
}
if AvifImagePlugin is not None:
    WITHOUT_WARNINGS["AVIF"] = _without_warnings(AvifImagePlugin.AvifImageFile)
