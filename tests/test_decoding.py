"""Pixels of image files: as they should be, or a reason why not, in bounded memory."""

import json
import os
import re
import struct
import subprocess
import sys
import warnings
import zlib
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from image_files import (
    NO_IMAGE,
    PICTURE,
    PIXELS,
    RNG,
    SIZE,
    chunks,
    encoded,
    left_out,
    load_one,
    png,
    tiff,
    with_chunks,
    write,
)
from PIL import Image, PngImagePlugin
from shared import quoted, recorded
from systems import child, forks, needs_proc

from sk_mice.datasets import _decoding, load_image_folder
from sk_mice.datasets._decoding import Decoder
from sk_mice.datasets._paths import pictures
from sk_mice.features import PretrainedFeatures

ORIENTATION = 0x0112
# One photograph of a corner: which way up it is can be told from any two pixels.
CORNER = np.zeros((16, 16, 3), np.uint8)
CORNER[:8, :8] = (255, 0, 0)


def turned(orientation):
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return exif


# --------------------------------------------------------------- decoded as they should


# As cameras do: the pixels lie as the sensor saw them, the tag says what to undo.
UNDO = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def as_stored(image, orientation, format="PNG"):
    turn = UNDO[orientation]
    stored = image if turn is None else image.transpose(turn)
    return encoded(stored, format, exif=turned(orientation))


def test_exif_rotation(tmp_path):
    image = Image.fromarray(CORNER)
    formats = ["PNG", "JPEG", "TIFF", "WEBP"]
    Image.init()
    if "AVIF" in Image.SAVE:  # of Pillow 11.3 and later
        formats.append("AVIF")
    for orientation, format in product(UNDO, formats):
        loaded = load_one(tmp_path, as_stored(image, orientation, format), 16)
        assert loaded[2, 2, 0] > 200, (orientation, format)
        assert loaded[[2, 13, 13], [13, 2, 13], 0].max() < 60


def test_broken_exif_leaves_the_image_as_it_is(tmp_path):
    contents = [encoded(exif=b"Exif\0\0no TIFF header")]
    for key in ("exif", "xmp", "Raw profile type exif"):
        text = PngImagePlugin.PngInfo()
        text.add_itxt(key, "\nexif\n   3\nno hex\n")
        contents.append(encoded(pnginfo=text))
    for content in contents:
        np.testing.assert_array_equal(load_one(tmp_path, content), PIXELS)


def test_an_image_on_its_side_is_cropped_when_it_is_upright(tmp_path):
    ramps = np.meshgrid(np.linspace(0, 255, 40), np.linspace(255, 0, 24))
    upright = Image.fromarray(np.dstack([*ramps, ramps[0]]).astype(np.uint8))
    write(tmp_path, {f"{turn}.png": as_stored(upright, turn) for turn in UNDO})
    for size, resize in product([(16, 8), (8, 16), (16, 16)], ["crop", "stretch"]):
        X, *_ = load_image_folder(tmp_path, size, resize=resize)
        np.testing.assert_allclose(X[1:] - X[:1].astype(int), 0, atol=2)
        assert len(X) == len(UNDO)


def test_rotations_elsewhere_than_in_exif_data(tmp_path):
    xmp = '<rdf:Description tiff:Orientation="3"/>'
    of_xmp, of_exif = PngImagePlugin.PngInfo(), PngImagePlugin.PngInfo()
    of_xmp.add_itxt("XML:com.adobe.xmp", xmp)
    profile = f"\nexif\n   3\n{turned(3).tobytes().hex()}\n"  # as ImageMagick does
    of_exif.add_text("Raw profile type exif", profile)
    for content in (
        encoded(CORNER, pnginfo=of_xmp),
        encoded(CORNER, pnginfo=of_exif),
        encoded(CORNER, "WEBP", xmp=xmp.encode()),
        encoded(CORNER, "TIFF", tiffinfo={700: xmp.encode()}),
        encoded(CORNER, "JPEG", exif=b"Exif\0\0" + turned(3).tobytes()),
        encoded(np.uint16(257) * CORNER[..., 0], exif=turned(3)),
    ):
        loaded = load_one(tmp_path, content, 16)
        assert loaded[13, 13, 0] > 200
        assert loaded[2, 2, 0] < 60


BLACK, WHITE = (0, 128, 128), (255, 128, 128)  # in the mode LAB


def halves(left, right, mode="RGB"):
    image = Image.new(mode, (16, 12), right)
    image.paste(left, (0, 0, 8, 12))
    return image


def test_palettes_alpha_and_cmyk_become_rgb(tmp_path):
    indexed = halves(0, 1, "P")
    indexed.putpalette([0, 255, 0, 255, 0, 0])
    red, white, blue = (255, 0, 0), (255, 255, 255), (16, 32, 48)
    cmyk = Image.new("CMYK", (16, 12), (0, 255, 255, 0))
    on_blue = {"background": "#102030"}
    black_and_white = zlib.compress(12 * (b"\0" + 16 * b"\0" + 16 * b"\xff"))
    transparent = chunks((b"tRNS", b"\0\0"))  # black, which Pillow 10.1 cannot write
    of_16_bits = png(16, 12, 16, 0, black_and_white, transparent)
    for content, left, right, options in [
        (encoded(cmyk, "JPEG"), red, red, {}),
        (encoded(cmyk, "TIFF"), red, red, {}),
        (encoded(halves(BLACK, WHITE, "LAB"), "TIFF"), 3 * [0], 3 * [255], {}),
        (encoded(halves(BLACK, WHITE, "LAB"), "TIFF"), 0, 255, {"gray": True}),
        (encoded(indexed), (0, 255, 0), red, {}),
        (encoded(indexed, transparency=0), white, red, {}),
        (encoded(indexed, transparency=0), blue, red, on_blue),
        (encoded(indexed, "GIF", transparency=0), white, red, {}),
        # Colours hide under full transparency.
        (encoded(halves((*red, 0), (*red, 255), "RGBA")), white, red, {}),
        (encoded(halves((*red, 0), (*red, 128), "RGBA")), blue, (136, 16, 24), on_blue),
        (encoded(halves((50, 0), (50, 255), "LA")), 255, 50, {"gray": True}),
        (encoded(halves(blue, red), transparency=blue), white, red, {}),
        (of_16_bits, blue, white, on_blue),
    ]:
        loaded = load_one(tmp_path, content, **options).astype(int)
        np.testing.assert_allclose(loaded[[0, 0], [0, 15]], [left, right], atol=4)


def test_grey_values_are_scaled_to_8_bits(tmp_path):
    ramp = np.linspace(0, 1, 12 * 16).reshape(12, 16)
    wide, twelve = (np.uint16(ramp * white) for white in (65535, 4095))
    ppm = b"P5 16 12 65535\n" + wide.astype(">u2").tobytes()
    for content, expected, options in [
        (encoded(), np.asarray(PICTURE.convert("L")), {}),
        (encoded(wide), wide / 65535 * 255, {}),
        (encoded(wide, "TIFF"), wide / 65535 * 255, {}),
        (ppm, wide / 65535 * 255, {}),
        (encoded(twelve, "TIFF"), twelve / 4095 * 255, {"white": 4095}),
        (encoded(twelve), twelve / 4095 * 255, {"white": 4095}),
        (encoded(np.float32(ramp), "TIFF"), np.float32(ramp) * 255, {}),
        (encoded(ramp > 0.5), 255 * (ramp > 0.5), {}),
    ]:
        loaded = load_one(tmp_path, content, gray=True, **options)
        np.testing.assert_array_equal(loaded, np.rint(expected))
    with pytest.raises(ValueError, match=r"from 0 to 4095, where white is 4094"):
        load_one(tmp_path, encoded(twelve, "TIFF"), white=4094)


def test_images_of_few_of_16_bits_are_said_to_be_dark(tmp_path):
    twelve = np.uint16(np.linspace(0, 4000, 12 * 16)).reshape(12, 16)
    content = encoded(twelve, "TIFF")
    with pytest.warns(
        UserWarning, match=r"1 of 1 image .* above 4000.*`white`.*4095\.$"
    ):
        assert load_one(tmp_path, content, gray=True).max() == 16
    assert load_one(tmp_path, content, gray=True, white=4095).max() == 249
    features, files = PretrainedFeatures(image_size=32), [tmp_path / "one"]
    with pytest.warns(UserWarning, match=r"with 16 bits have no value above"):
        dark = features.fit_transform(files)
    bright = features.set_params(white=4095).fit_transform(files)
    assert np.abs(bright - dark).max() > 0.1
    # Pictures to look at need no such parameter.
    assert pictures(files, 16).max() > 240


def test_one_bright_image_does_not_hide_that_the_others_are_dark(tmp_path):
    twelve = np.uint16(np.linspace(0, 4000, 12 * 16)).reshape(12, 16)
    for name, factor in {"a.tif": 1, "b.tif": 0.9, "hot.tif": 16}.items():
        values = (twelve * factor).astype(np.uint16)
        write(tmp_path, {name: encoded(values, "TIFF")})
    said = r"2 of 3 images .* above 4000.*to 4095\. Images with larger values are then"
    with pytest.warns(UserWarning, match=said):
        load_image_folder(tmp_path, SIZE, gray=True)
    (tmp_path / "b.tif").unlink()
    load_image_folder(tmp_path, SIZE, gray=True)  # half of them are as they should be


def drawing(colour, mode="RGBA"):
    """A square on transparent pixels, under which other colours hide."""
    image = Image.fromarray(np.dstack([PIXELS, np.zeros((12, 16), np.uint8)]))
    image.paste(Image.new("RGBA", (5, 4), colour), (6, 5))
    return image.convert(mode)


def assert_said_once(words, folder):
    """Whichever way the files of a folder are read, one warning says this."""
    files = sorted(folder.iterdir())
    for read in (
        lambda: load_image_folder(folder, SIZE),
        lambda: load_image_folder(folder, SIZE, gray=True),
        lambda: PretrainedFeatures(image_size=32).fit_transform(files),
    ):
        with pytest.warns(UserWarning, match=words) as caught:
            read()
        assert len(caught) == 1


def test_drawings_in_the_colour_of_the_background_are_said(tmp_path):
    indexed = halves(0, 1, "P")
    indexed.putpalette([0, 255, 0, 255, 255, 255])
    write(
        tmp_path,
        {
            "a.png": encoded(drawing("red")),
            "b.png": encoded(drawing("white")),
            "c.png": encoded(drawing("#f8f4fa", "LA")),
            "d.webp": encoded(drawing("white"), "WEBP", lossless=True),
            "e.gif": encoded(indexed, "GIF", transparency=0),
            # On no background there would be something to see.
            "f.png": encoded(drawing((0, 0, 0, 0))),
            "g.png": encoded(Image.new("RGBA", (16, 12), "white")),
            "h.png": encoded(Image.new("RGBA", (16, 12), (255, 255, 255, 128))),
            "i.png": encoded(Image.new("RGB", (16, 12), "white")),
        },
    )
    files = sorted(tmp_path.iterdir())
    said = f": 4; one is {quoted(tmp_path / 'b.png')}.*`background`, such as black"
    assert_said_once(said, tmp_path)
    X, *_ = load_image_folder(tmp_path, SIZE, background="black")
    assert np.ptp(X, axis=(1, 2, 3)).astype(bool).tolist() == [True] * 5 + [False] * 4
    PretrainedFeatures(image_size=32, background="black").fit_transform(files)
    # Pictures to look at need no such parameter.
    assert (np.ptp(pictures(files, 16), axis=(1, 2, 3)) > 90)[:5].all()


def test_a_drawing_in_any_part_of_an_image_is_seen(tmp_path):
    image = Image.new("RGBA", (700, 1100), (0, 0, 0, 0))
    image.paste("black", (100, 100, 200, 200))
    large = encoded(image, compress_level=1)
    with pytest.warns(UserWarning, match=r": 1; one .*`background`, such as white"):
        load_one(tmp_path, large, background="#080808")
    image.paste("red", (600, 1000, 650, 1050))
    load_one(tmp_path, encoded(image, compress_level=1), background="#080808")


RED, BLUE = (Image.new("RGB", (16, 12), colour) for colour in ("red", "blue"))


def test_pages_of_a_stack_that_are_not_read_are_said(tmp_path):
    stacks = {"a.tif": [], "b.tif": [BLUE], "c.tif": [BLUE, BLUE]}
    for name, pages in stacks.items():
        content = encoded(RED, "TIFF", save_all=True, append_images=pages)
        write(tmp_path, {name: content})
    said = f"first page is read: 2; one is {quoted(tmp_path / 'b.tif')}"
    assert_said_once(said, tmp_path)
    with pytest.warns(UserWarning, match=said):
        X, *_ = load_image_folder(tmp_path, SIZE)
    assert (X == (255, 0, 0)).all()


def test_raw_files_of_cameras_are_not_read_as_their_preview(tmp_path):
    for name, is_preview in {"a.tif": 0, "b.nef": 1}.items():
        write(tmp_path, {name: encoded(format="TIFF", tiffinfo={254: is_preview})})
    with pytest.raises(ValueError, match=r"b\.nef.* small preview .* as JPEG"):
        load_image_folder(tmp_path, SIZE)
    with pytest.warns(UserWarning, match=r"b\.nef.* small preview"):
        X, *_ = load_image_folder(tmp_path, SIZE, on_error="warn")
    assert len(X) == 1


def test_channels_that_are_not_read_are_said(tmp_path):
    for name, mode in {"a.tif": "RGBA", "b.tif": "RGBX", "c.tif": "RGBX"}.items():
        image = Image.frombytes(mode, (16, 12), RNG.bytes(4 * 16 * 12))
        write(tmp_path, {name: encoded(image, "TIFF")})
    first = tmp_path / "b.tif"
    assert_said_once(f"are read without these: 2; one is {quoted(first)}", tmp_path)
    for name in ("b.tif", "c.tif"):
        (tmp_path / name).unlink()
    load_image_folder(tmp_path, SIZE)


def test_packed_values_of_12_bits_have_their_own_white(tmp_path):
    values = RNG.integers(0, 4096, (12, 16))
    first, second = values[:, ::2], values[:, 1::2]
    packed = [first >> 4, (first & 15) << 4 | second >> 8, second & 255]
    stored = np.stack(packed, axis=-1).astype(np.uint8).tobytes()
    entries = [(256, 16), (257, 12), (258, 12), (259, 1), (262, 1), (273, 4096)]
    content = tiff([*entries, (277, 1), (278, 12), (279, len(stored))], stored)
    expected = np.rint(values / 4095 * 255)
    for options in {}, {"white": 4095}:
        loaded = load_one(tmp_path, content, gray=True, **options)
        np.testing.assert_array_equal(loaded, expected)


def test_colours_of_16_bits_have_no_other_white(tmp_path):
    values = np.full((12, 1 + 16 * 3 * 2), 128, np.uint8)  # a filter, then a row
    values[:, 0] = 0
    content = png(16, 12, 16, 2, zlib.compress(values.tobytes()))
    assert load_one(tmp_path, content).tolist() == np.full((12, 16, 3), 128).tolist()
    with pytest.raises(ValueError, match=r"has 16-bit colours, and `white` is for"):
        load_one(tmp_path, content, white=4095)


def test_colours_of_few_of_16_bits_are_said_to_be_dark(tmp_path):
    values = RNG.integers(0, 4096, (12, 16, 3)).astype(np.uint16)
    write(tmp_path, {"dark.tif": in_planes(values)})
    with pytest.warns(UserWarning, match=r"1 of 1 image with colours .* above 15 once"):
        load_image_folder(tmp_path, SIZE)
    write(tmp_path, {"bright.tif": in_planes(16 * values)})
    load_image_folder(tmp_path, SIZE)  # half of them are as they should be


def test_zeros_of_tiff_files_may_be_white(tmp_path):
    values = RNG.integers(0, 65536, (12, 16)).astype(np.uint16)
    kinds = [(np.uint8, 255, 1), (np.uint16, 65535, 1), (np.float32, 1, 3)]
    for dtype, white, sample in kinds:
        stored = (values.astype(np.float64) / 65535 * white).astype(dtype)
        entries = [(256, 16), (257, 12), (258, 8 * stored.itemsize), (259, 1)]
        entries += [(262, 0), (273, 4096), (277, 1), (278, 12), (279, stored.nbytes)]
        content = tiff([*entries, (339, sample)], stored.tobytes())
        loaded = load_one(tmp_path, content, gray=True)
        expected = 255 - np.rint(stored / white * 255)
        np.testing.assert_array_equal(loaded, expected)


def in_planes(values, order="<", packed=False):
    """A TIFF file with a plane for each channel of 16 bits, in strips of five rows."""
    pack = zlib.compress if packed else bytes
    strips = [
        pack(values[y : y + 5, :, k].astype(f"{order}u2").tobytes())
        for k in range(values.shape[2])
        for y in range(0, len(values), 5)
    ]
    height, width, n_channels = values.shape
    sizes = [len(strip) for strip in strips]
    starts = 300 + np.cumsum([0, *sizes[:-1]])
    tags = [
        *((256, [width]), (257, [height]), (258, n_channels * [16])),
        (259, [8 if packed else 1]),
        *((262, [2 if n_channels > 1 else 1]), (273, starts), (277, [n_channels])),
        *((278, [5]), (279, sizes), (284, [2])),
    ]
    place, entries, outside = 8 + 2 + 12 * len(tags) + 4, b"", b""
    for tag, numbers in tags:
        packed = struct.pack(f"{order}{len(numbers)}H", *numbers)
        if len(packed) > 4:
            at = struct.pack(f"{order}L", place + len(outside))
            packed, outside = at, outside + packed
        entry = struct.pack(f"{order}HHL", tag, 3, len(numbers))
        entries += entry + packed.ljust(4, b"\0")
    header = b"II" if order == "<" else b"MM"
    header += struct.pack(f"{order}HLH", 42, 8, len(tags)) + entries + bytes(4)
    return (header + outside).ljust(300, b"\0") + b"".join(strips)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("order", "<>")
def test_planes_of_16_bits(tmp_path, order, packed):
    values = RNG.integers(0, 65536, (12, 16, 3)).astype(np.uint16)
    coloured, grey = (in_planes(v, order, packed) for v in (values, values[..., :1]))
    loaded = load_one(tmp_path, coloured)
    np.testing.assert_array_equal(loaded, values >> 8)
    with pytest.raises(ValueError, match=r"has 16-bit colours, and `white` is for"):
        load_one(tmp_path, coloured, white=4095)
    loaded = load_one(tmp_path, grey, gray=True)
    np.testing.assert_array_equal(loaded, np.rint(values[..., 0] / 65535 * 255))


def test_images_converted_piece_by_piece_are_as_if_converted_at_once(tmp_path):
    size = (700, 1100)
    image = Image.fromarray(RNG.integers(0, 256, (*size, 4)).astype(np.uint8))
    opaque = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    loaded = load_one(tmp_path, encoded(image, compress_level=1), size)
    np.testing.assert_array_equal(loaded, np.asarray(opaque)[..., :3])
    values = RNG.integers(0, 65536, size).astype(np.uint16)
    loaded = load_one(tmp_path, encoded(values, compress_level=1), size, gray=True)
    np.testing.assert_array_equal(loaded, np.rint(values / 65535 * 255))


def test_first_frame_of_an_animation(tmp_path):
    for format in ("GIF", "PNG", "WEBP"):
        options = {"lossless": True} if format == "WEBP" else {}
        content = encoded(RED, format, save_all=True, append_images=[BLUE], **options)
        np.testing.assert_array_equal(load_one(tmp_path, content)[0, 0], (255, 0, 0))


# ------------------------------------------------------------------------ damaged files


BAD = {
    "empty": (b"", r"is empty"),
    "text": (b"some,table\n1,2\n", NO_IMAGE),
    "zip": (b"PK\3\4" + bytes(100), NO_IMAGE),
    "signature alone": (encoded()[:8], r"is not an image of a format|truncated"),
    "truncated PNG": (encoded()[:-100], r"truncated"),
    "truncated JPEG": (encoded(format="JPEG")[:-100], r"truncated"),
    "truncated GIF": (encoded(format="GIF")[:-20], r"truncated"),
    "zero-pixel": (png(0, 5), r"pixels|is not an image"),
    "zero-pixel GIF": (b"GIF89a" + bytes(20), r"pixels|is not an image|no image"),
    "bomb": (png(30_000, 30_000), r"decompression bomb"),
    "small bomb": (png(10_000, 10_000), r"decompression bomb"),
    "HDR": (
        encoded(np.full((4, 4), 7.5, np.float32), "TIFF"),
        r"has floats from 7.5 to 7.5, where white is 1; scale them to 0..1, or save",
    ),
    "NaN": (
        encoded(np.pad(np.float32([[np.nan]]), ((599, 0), (1099, 0))), "TIFF"),
        r"has floats from nan to nan",
    ),
    "two channels": (
        in_planes(np.zeros((12, 16, 2), np.uint16)),
        r"is a TIFF image whose pixels .* not read; save it as grey or RGB",
    ),
    "seven channels": (
        in_planes(np.zeros((12, 16, 7), np.uint16)),
        r"is a TIFF image whose pixels .* not read; .* an array may have more channels",
    ),
    "32 bits": (
        encoded(np.full((4, 4), 70_000, np.int32), "TIFF"),
        r"has values from 70000 to 70000, where white is 65535",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_files(tmp_path, kind, caplog):
    content, reason = BAD[kind]
    write(tmp_path, {"bad": content})
    (said,) = left_out(tmp_path, "bad")
    assert re.search(reason, said), said
    assert not caplog.records  # it is said once, and not by Pillow for each file


@pytest.mark.parametrize("format", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"])
def test_no_truncation_goes_unnoticed(tmp_path, format):
    whole = encoded(format=format)
    lengths = range(0, len(whole), max(1, len(whole) // 40))
    write(tmp_path, {f"{n:06}": whole[:n] for n in lengths} | {"whole": whole})
    with pytest.warns(UserWarning, match="are left out"):
        X, *_, files = load_image_folder(tmp_path, 4, on_error="warn")
    # What lacks only the mark of its end has all its pixels.
    assert len(files) <= 2
    assert files[-1] == "whole"
    np.testing.assert_array_equal(X, np.broadcast_to(X[-1], X.shape))


@settings(max_examples=100, deadline=None)
@given(
    content=st.sampled_from(
        [encoded(format=f) for f in ("PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP")]
    ),
    flips=st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(1, 255)), min_size=1, max_size=8
    ),
)
@pytest.mark.filterwarnings("ignore:Files or folders in:UserWarning")
def test_no_damage_crashes(tmp_path_factory, content, flips):
    damaged = bytearray(content)
    for place, change in flips:
        damaged[place % len(damaged)] ^= change
    folder = tmp_path_factory.mktemp("flips")
    write(folder, {"bad": bytes(damaged), "good.png": encoded()})
    *_, files = load_image_folder(folder, 4, on_error="warn", n_jobs=1)
    assert "good.png" in files


# ------------------------------------- broken metadata, and bombs, whatever the filters


def with_tag(tag, kind, count, value):
    """A TIFF image with one more tag, behind the others."""
    content = encoded(PIXELS[..., 0], "TIFF")
    (start,) = struct.unpack_from("<I", content, 4)
    (number,) = struct.unpack_from("<H", content, start)
    end = start + 2 + 12 * number
    entries = content[start + 2 : end] + struct.pack("<HHII", tag, kind, count, value)
    header = content[:4] + struct.pack("<I", len(content)) + content[8:]
    return header + struct.pack("<H", number + 1) + entries + bytes(4)


TRUNCATED_EXIF = b"Exif\0\0II*\0\x08\0\0\0\x09\0" + bytes(9)
FAR_EXIF = b"Exif\0\0II*\0\x08\0\0\0\x01\0" + struct.pack(
    "<HHIII", 0x010F, 2, 10**6, 10**6, 0
)


def malformed_mpo():
    jpeg = encoded(format="JPEG")
    segment = b"MPF\0II*\0\xff\xff\xff\xff" + bytes(8)
    return jpeg[:2] + struct.pack(">HH", 0xFFE2, len(segment) + 2) + segment + jpeg[2:]


BROKEN_METADATA = {
    "JPEG, EXIF cut": encoded(format="JPEG", exif=TRUNCATED_EXIF),
    "JPEG, EXIF beyond the end": encoded(format="JPEG", exif=FAR_EXIF),
    "PNG, EXIF cut": encoded(exif=TRUNCATED_EXIF),
    "WebP, EXIF beyond the end": encoded(format="WEBP", exif=FAR_EXIF),
    "PNG, no frames": with_chunks([(b"acTL", struct.pack(">II", 0, 0))]),
    "MPO": malformed_mpo(),
    "TIFF, text beyond the end": with_tag(65000, 2, 10**6, 10**6),
    "TIFF, two sizes": with_tag(277, 3, 2, 0x10001),
    "TIFF, EXIF beyond the end": with_tag(34665, 4, 1, 10**6),
}


def test_broken_metadata_warn_of_nothing_whatever_the_filters(tmp_path):
    write(tmp_path, BROKEN_METADATA)
    for action in ("always", "error"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter(action)
            X, *_ = load_image_folder(tmp_path, 4)
        assert len(X) == len(BROKEN_METADATA)
        assert caught == []


def gif_beyond_its_canvas(side, control=b""):
    """A GIF file of one pixel with a far larger first frame."""
    content = bytearray(encoded(Image.new("L", (1, 1)), "GIF"))
    frame = content.index(b",\0\0\0\0\x01\0\x01\0")
    content[frame + 5 : frame + 9] = struct.pack("<HH", side, side)
    return bytes(content[:frame] + control + content[frame:])


def test_a_bomb_is_left_out_whatever_the_filters(tmp_path):
    bombs = {"1": png(10_000, 10_000), "2": gif_beyond_its_canvas(10_000)}
    write(tmp_path, bombs | {"good.png": encoded()})
    message = r"(?s)'1': has 100,000,000 pixels, more than PIL.*'2': has 100,000,000"
    for action in ("ignore", "always", "error"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter(action)
            with pytest.raises(ValueError, match=message):
                load_image_folder(tmp_path, 4)
        assert caught == []


# ------------------------------------------------------------------------------- memory


def test_the_limit_of_pixels_is_pillows(tmp_path, monkeypatch):
    write(tmp_path, {"x.png": encoded()})
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 12 * 16)
    load_image_folder(tmp_path, 4)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 12 * 16 - 1)
    with pytest.raises(ValueError, match=r"has 192 pixels, more than PIL.*=191;"):
        load_image_folder(tmp_path, 4)


def test_without_pillows_limit_that_of_bytes_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    write(tmp_path, {"bomb.png": png(30_000, 30_000)})
    (reason,) = left_out(tmp_path, "bomb.png")
    assert re.fullmatch(
        r"takes [\d,]+ bytes to decode, where [\d,]+ are allowed", reason
    )


def test_files_take_turns_at_the_memory_that_each_needs(tmp_path, monkeypatch):
    write(tmp_path, {f"{k}.png": encoded() for k in range(5)})

    def load(allowed):
        monkeypatch.setattr(_decoding, "DECODING", _decoding._Memory(allowed, allowed))
        return load_image_folder(tmp_path, 4, n_jobs=2)

    with pytest.raises(ValueError, match=r"bytes to decode, where 0 are") as raised:
        load(0)
    (needed,) = set(re.findall(r"takes ([\d,]+) bytes", str(raised.value)))
    needed = int(needed.replace(",", ""))
    assert len(load(needed)[0]) == 5
    with pytest.raises(ValueError, match=f"takes {needed:,} bytes to decode"):
        load(needed - 1)


def test_what_needs_more_than_all_threads_may_take_is_decoded_alone(
    tmp_path, monkeypatch
):
    write(tmp_path, {f"{k}.png": encoded() for k in range(8)})
    memory = _decoding._Memory(1000, 2**30)
    monkeypatch.setattr(_decoding, "DECODING", memory)
    left = recorded(monkeypatch, Decoder, "_decode", lambda *_: memory.free)
    X, *_ = load_image_folder(tmp_path, SIZE, n_jobs=4)
    assert (X == PIXELS).all()
    (free,) = {*left}  # the same each time, so there was no other
    assert free < 0
    assert memory.free == 1000


@forks
def test_the_child_of_a_fork_does_not_wait_for_what_the_parent_decodes():
    memory = _decoding.DECODING
    memory.take(memory.most)
    process = child(lambda: memory.take(memory.most))
    process.join(30)
    memory.give_back(memory.most)
    assert process.exitcode == 0


def test_tiff_files_that_are_not_compressed_need_less_memory(tmp_path, monkeypatch):
    needed = []

    class Memory(_decoding._Memory):
        def take(self, n_bytes):
            needed.append(n_bytes)

    monkeypatch.setattr(_decoding, "DECODING", Memory(0, 0))
    for compression in ("raw", "tiff_lzw"):
        content = encoded(format="TIFF", compression=compression)
        load_one(tmp_path, content.ljust(2**14, b"\0"))
    plain, packed = needed
    assert packed - plain == 8 * PIXELS[..., 0].size  # a strip may be the whole image


# Of each folder: bytes that loading it takes, number of images, and the error.
PEAKS = """
import json, sys
from sk_mice.datasets import load_image_folder

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if "VmHWM" in line) * 1024

def load(folder, size, resize):
    try:
        return len(load_image_folder(folder, size, resize=resize, n_jobs=4)[0]), ""
    except ValueError as error:
        return 0, str(error)

small, resize, *folders = sys.argv[1:]
load(small, 8, resize)
before, found = peak(), {}
for folder in folders:
    number, error = load(folder, 64, resize)
    found[folder.split("/")[-1]] = peak() - before, number, error
print(json.dumps(found))
"""
MARGIN = 2**27  # for the interpreter, threads and what the system keeps


def peaks(folder, cases, resize="crop"):
    """Bytes, images and the error of each case, by name, in a process of their own."""
    write(folder, {"small/x.png": encoded()})
    for name, files in cases.items():
        write(folder / name, files)
    folders = [folder / name for name in ("small", *cases)]
    done = subprocess.run(
        [sys.executable, "-c", PEAKS, folders[0], resize, *folders[1:]],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def flat_png(width, height, depth=8, colours=0):
    """A PNG image of zeros, written row by row."""
    row = bytes(1 + width * depth * {0: 1, 2: 3, 6: 4}[colours] // 8)
    pack = zlib.compressobj(1)
    rows = max(1, 2**24 // len(row))
    data = [pack.compress(row * min(rows, height - y)) for y in range(0, height, rows)]
    return png(width, height, depth, colours, b"".join(data) + pack.flush())


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize(("depth", "colours"), [(16, 0), (8, 6), (16, 6)])
def test_bombs_in_four_threads_stay_in_the_bound(tmp_path, depth, colours):
    bomb = flat_png(9000, 9000, depth, colours)
    cases = {"bombs": {f"{k}.png": bomb for k in range(4)}}
    peak, number, _ = peaks(tmp_path, cases)["bombs"]
    assert number == 4
    assert peak < 2**30 + MARGIN


@needs_proc
@pytest.mark.slow
def test_a_line_of_pixels_takes_no_memory_beyond_the_bound(tmp_path):
    cases = {"line": {"x.png": flat_png(1, 8_000_000)}}
    peak, number, reason = peaks(tmp_path, cases, "stretch")["line"]
    assert (number, peak < MARGIN) == (0, True)
    assert "bytes to decode" in reason
    peak, number, _ = peaks(tmp_path, cases, "crop")["line"]
    assert (number, peak < 2 * MARGIN) == (1, True)


def test_a_scan_over_and_over_takes_no_time(tmp_path):
    """Each takes as long as the image is large, however few bytes it has."""
    content = encoded(format="JPEG", progressive=True)
    end = content.rindex(b"\xff\xda")
    scan = content[end:-2]
    few = content[:-2] + 400 * scan + content[-2:]
    load_one(tmp_path, few)  # is read
    load_one(tmp_path, content + 501 * b"\xff\xda")  # and so is one before a film
    many = content[:-2] + 500 * scan + content[-2:]
    write(tmp_path, {"one": many})
    assert left_out(tmp_path, "one") == ["has more than 500 scans"]
    # Files that are not progressive may have one for each colour.
    content = encoded(format="JPEG")
    scan = content[content.rindex(b"\xff\xda") : -2]
    write(tmp_path, {"one": content[:-2] + 501 * scan + content[-2:]})
    assert left_out(tmp_path, "one") == ["has more than 500 scans"]


def tile_of(side):
    """A TIFF image of 16 x 16 in one large tile."""
    data = zlib.compress(bytes(side * side), 1)
    entries = [(256, 16), (257, 16), (258, 8), (259, 8), (262, 1), (277, 1)]
    entries += [(322, side), (323, side), (324, 4096), (325, len(data))]
    return tiff(entries, data)


def strips(number):
    """A TIFF image of as many strips of one pixel."""
    entries = [(256, 1), (257, number), (258, 8), (259, 1), (262, 1)]
    entries += [(273, number, 4096), (277, 1), (278, 1)]
    return tiff(entries, bytes(4 * number))


def repeated_tag(number, size):
    """A TIFF file whose many tags are all the same bytes."""
    tags = (struct.pack("<HHII", 30_000 + k, 2, size, 8) for k in range(number))
    sizes = (struct.pack("<HHII", tag, 4, 1, 1) for tag in (256, 257))
    table = struct.pack("<H", number + 2) + b"".join([*sizes, *tags]) + bytes(4)
    return b"II*\0" + struct.pack("<I", size + 8) + bytes(size) + table


def packed_texts():
    text = zlib.compress(("a" * (2**20 - 4) + "\U0001f600").encode())
    texts = (f"text {k}".encode() + b"\0\1\0\0\0" + text for k in range(40))
    return with_chunks((b"iTXt", text) for text in texts)


def animation_on_a_large_canvas():
    content = encoded(RED, "WEBP", save_all=True, append_images=[BLUE])
    side = struct.pack("<I", 16_383 - 1)[:3]
    return content[:24] + side + side + content[30:]


@needs_proc
def test_bombs_take_no_memory(tmp_path):
    bomb = repeated_tag(5000, 2**20)
    cleared = b"!\xf9\x04" + bytes([2 << 2, 0, 0, 0, 0])  # the frame, after it
    cases = {
        # Files, the number that can be read, and what the error says.
        "tile": ([tile_of(16_384)], 0, "bytes to decode"),
        "strips": ([strips(2_000_000)], 0, "has a tag of more than 524,288 bytes"),
        "texts": (4 * [packed_texts()], 4, ""),
        "frame": ([gif_beyond_its_canvas(32_000, cleared)], 0, "1,024,000,000 pixels"),
        "canvas": (4 * [animation_on_a_large_canvas()], 0, "decompression bomb"),
        "tags": ([encoded(exif=b"Exif\0\0" + bomb)], 1, ""),
        "tags of TIFF": ([bomb], 0, ""),
        # Four gigabytes, of which the most are a hole that is not written.
        "header": (4 * [encoded()[:33] + b"\x7f\xff\xff\xffabCd"], 0, "has a header"),
    }
    for name in (f"header/{k}" for k in range(4)):
        write(tmp_path, {name: cases["header"][0][0]})
        os.truncate(tmp_path / name, 2**32)
    files = {
        name: {f"{k}": content for k, content in enumerate(contents)}
        for name, (contents, _, _) in cases.items()
    }
    found = peaks(tmp_path, files | {"header": {}})
    for name, (contents, number, error) in cases.items():
        peak, read, said = found[name]
        assert read == number, name
        assert said.count(error) >= (len(contents) if error else 0), said
        large = name == "header" or name.startswith("tags")
        assert peak < (2 if large else 1) * MARGIN, name
