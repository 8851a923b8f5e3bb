"""Files as images of Pillow's: which formats are read, and how.

Some of Pillow's plugins start programs, or take files that hold images of any other
format. They are not used. Others read as many bytes as a header asks for, keep data
that no image needs, or warn. Subclasses below replace them and do none of this. (A
thread cannot silence its own warnings, as their filters are those of all threads.)
"""

import io
import os
import re
import struct
from contextlib import suppress
from logging import CRITICAL, Logger
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

from .._engine.forks import in_each_child

# TGA comes last, as it has no signature.
FORMATS = ["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "AVIF"]
FORMATS += ["HEIF", "JPEG2000", "PPM", "TGA"]
ORIENTATION, BITS, PLANES = 0x0112, 258, 284  # tags of TIFF
HEADER_BYTES = 2**26  # most bytes before the pixels of a file
SMALL_HEADER = 2**22
MOST_SCANS = 500  # of a JPEG file: usual files have some ten
SCAN = re.compile(rb"\xff\xda\0[\x08\x0a\x0c\x0e]")  # mark and length of its header


def _begin():
    global LARGE_HEADER
    LARGE_HEADER = Lock()  # held by the one open file with such a header


_begin()
# In the child of a fork, no thread of the parent closes such a file.
in_each_child(_begin)


class ImageError(Exception):
    """A file cannot be read as an image. The message goes on after its name."""


class File(io.BufferedReader):
    """A file of whose header at most `HEADER_BYTES` are read.

    They are counted as often as they are read, as plugins may do so many times.
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
        try:
            super().close()
        finally:  # also if its drive was lost, as others wait for the lock
            if self.alone:
                self.alone = False
                LARGE_HEADER.release()


def find_formats():
    """Register the formats of Pillow, and HEIF if pillow-heif is installed."""
    Image.init()
    if "HEIF" not in Image.OPEN:
        with suppress(ImportError):
            import pillow_heif

            pillow_heif.register_heif_opener()


# What Pillow says of a TIFF file whose header it has understood.
UNKNOWN_PIXELS = {
    "Invalid value for samples per pixel",  # more than six
    "unknown pixel mode",
    "unknown data organization",
    "string index out of range",  # more planes than channels
}
OTHER_TIFF = (
    "is a TIFF image whose pixels are of a kind that is not read; save it as grey or "
    "RGB of 8 or 16 bits, or as grey floats of 32 bits (in Python, an array may have "
    "more channels)"
)


def opened(file):
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
        # Errors that plugins raise for files of another format.
        except (SyntaxError, IndexError, TypeError, struct.error) as error:
            if name == "TIFF" and accepted and str(error) in UNKNOWN_PIXELS:
                raise ImageError(OTHER_TIFF) from error
    if prefix[4:11] in (b"ftyphei", b"ftypmif") and "HEIF" not in Image.OPEN:
        raise ImageError('is a HEIC image, which `pip install "sk-mice[heif]"` reads')
    raise UnidentifiedImageError


def check_scans(image, file) -> None:
    """Refuse a JPEG file of so many scans that it would take hours.

    A scan of a few bytes may go over all pixels. The bytes that begin it are not in
    the data of another scan, and hardly ever in a film that a phone puts at the end.
    """
    if image.format != "JPEG":
        return
    n_scans, last = 0, b""
    while data := file.read(2**16):
        n_scans += len(SCAN.findall(last + data))
        last = (last + data)[-3:]
    if n_scans > MOST_SCANS:
        raise ImageError(f"has more than {MOST_SCANS} scans")


def orientation(image):
    """The orientation of a loaded image in its EXIF data; 1 is upright.

    Pillow would read all of these data, and warn if they are broken.
    """
    if image.format == "TIFF":  # Pillow turns it as it loads it
        return 1
    exif = image.info.get("exif")
    if not exif:  # in PNG files by ImageMagick
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


# ---------------------------------------------------------------------------- plugins
# They neither warn nor keep data that no image needs. `_decoding` checks the number of
# pixels.


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
    "logger": Logger("quiet", CRITICAL + 1),
    "Image": SimpleNamespace(
        **vars(Image) | {"Exif": _Exif, "_decompression_bomb_check": _nothing}
    ),
}


def _quiet(cls, **names):
    """A subclass whose methods have other objects for some global names."""
    methods = {}
    for name, method in vars(cls).items():
        if isinstance(method, FunctionType):
            scope = method.__globals__ | _QUIET | names
            settings = name, method.__defaults__, method.__closure__
            methods[name] = FunctionType(method.__code__, scope, *settings)
            methods[name].__kwdefaults__ = method.__kwdefaults__
    return type(cls)(cls.__name__, (cls,), methods)


class _Jpeg(JpegImagePlugin.JpegImageFile):
    """A JPEG file, or the first frame of an MPO file."""

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
    # Without this, Pillow prepares the second frame when it opens the first.
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
