"""Files of images, good and damaged ones, and what is said of those left out."""

import io
import struct

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from sk_mice.datasets import load_image_folder

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (12, 16, 3)).astype(np.uint8)
PICTURE = Image.fromarray(PIXELS)
SIZE = (12, 16)  # nothing is resampled
NO_IMAGE = "is not an image of a format that is read"


def encoded(image=PICTURE, format="PNG", **options):
    image = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def load_one(folder, content, size=SIZE, **options):
    write(folder, {"one": content})
    X, *_ = load_image_folder(folder, size, **options)
    assert len(X) == 1
    return X[0]


def left_out(folder, *names, size=SIZE):
    """What the one warning says of these files, which must be all it lists."""
    write(folder, {"good.png": encoded()})
    with pytest.warns(UserWarning, match="are left out") as caught:
        X, _, _, files = load_image_folder(folder, size, on_error="warn")
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert len(X) == len(files)
    assert "good.png" in files
    first, *lines = str(caught[0].message).splitlines()
    assert first.endswith(f" are left out: {len(names)}.")
    reasons = dict(line.strip().split(": ", 1) for line in lines)
    assert list(reasons) == [repr(name) for name in names]
    with pytest.raises(ValueError, match=r"on_error=.warn. leaves them out"):
        load_image_folder(folder, size)
    return list(reasons.values())


def chunks(*pairs):
    buffer = io.BytesIO()
    for name, data in pairs:
        PngImagePlugin.putchunk(buffer, name, data)
    return buffer.getvalue()


def png(width, height, depth=8, colours=0, data=b"\x78\x9c\x03\0\0\0\0\x01", more=b""):
    """A PNG file, by default one that claims a size and holds next to no pixels."""
    header = struct.pack(">IIBBBBB", width, height, depth, colours, 0, 0, 0)
    start, end = chunks((b"IHDR", header)), chunks((b"IDAT", data), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + start + more + end


def with_chunks(pairs):
    """The picture as a PNG file with more chunks."""
    return encoded()[:33] + chunks(*pairs) + encoded()[33:]


def tiff(entries, data):
    """A TIFF image of these entries, each (tag, value) or (tag, count, place)."""
    entries = [(entry[0], 4, *(1, *entry[1:])[-2:]) for entry in entries]
    tags = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    header = b"II*\0" + struct.pack("<IH", 8, len(entries)) + tags + bytes(4)
    return header.ljust(4096, b"\0") + data
