"""Folders full of surprises; every file is written here."""

import io
import os
import re
import struct
import threading
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile, PngImagePlugin

from sk_mice import _image_folder
from sk_mice.datasets import load_image_folder

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (12, 16, 3)).astype(np.uint8)
PICTURE = Image.fromarray(PIXELS)
SIZE = (12, 16)  # nothing is resampled
ORIENTATION = 0x0112
# One photograph of a corner: which way up it is can be told from any two pixels.
CORNER = np.zeros((16, 16, 3), np.uint8)
CORNER[:8, :8] = (255, 0, 0)


def encoded(image=PICTURE, format="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def load_one(folder, content, **options):
    write(folder, {"one": content})
    X, *_ = load_image_folder(folder, options.pop("size", SIZE), **options)
    assert len(X) == 1
    return X[0]


def left_out(folder, *names, size=SIZE):
    """What the one warning says of these files, which must be all it lists."""
    write(folder, {"good.png": encoded()})
    with pytest.warns(UserWarning, match="is left out") as caught:
        X, _, _, files = load_image_folder(folder, size, on_error="warn")
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert len(X) == len(files)
    assert "good.png" in files
    first, *lines = str(caught[0].message).splitlines()
    assert first.startswith(f"{len(names)} of what is in ")
    reasons = dict(line.strip().split(": ", 1) for line in lines)
    assert list(reasons) == [repr(name) for name in names]
    with pytest.raises(ValueError, match=r"on_error=.warn. leaves it out"):
        load_image_folder(folder, size)
    return list(reasons.values())


# ------------------------------------------------------------------ what is returned


def test_folders_are_classes_and_the_order_is_that_of_the_parts(tmp_path):
    names = ["b/2.png", "b/1.png", "a b/deep/er/x.png", "a/z.png", "top.png"]
    write(tmp_path, {name: encoded() for name in names})
    X, y, classes, files = load_image_folder(tmp_path, SIZE)
    # "a b" would split "a" if whole paths were sorted: " " comes before "/".
    expected = ["a/z.png", "a b/deep/er/x.png", "b/1.png", "b/2.png", "top.png"]
    assert files.tolist() == expected
    assert (X.dtype, y.dtype, files.dtype) == (np.uint8, np.int64, object)
    assert classes == ["a", "a b", "b"]
    assert y.tolist() == [0, 1, 2, 2, -1]
    assert files[y == 2].tolist() == ["b/1.png", "b/2.png"]
    np.testing.assert_array_equal(X, np.broadcast_to(PIXELS, X.shape))


def test_rows_belong_to_their_files_whatever_the_threads_do(tmp_path):
    contents = {f"{k:03}.png": np.full((3, 3), k, np.uint8) for k in range(200)}
    write(tmp_path, {n: encoded(Image.fromarray(a)) for n, a in contents.items()})
    write(tmp_path, {"050.png": b"broken"})
    with pytest.warns(UserWarning, match=r"'050.png': is no image"):
        X, _, _, files = load_image_folder(tmp_path, 3, on_error="warn", n_jobs=8)
    assert "050.png" not in files
    assert len(X) == 199
    for row, name in zip(X, files, strict=True):
        assert (row == int(name[:3])).all()
    with pytest.warns(UserWarning, match="left out"):
        again, *_ = load_image_folder(tmp_path, 3, on_error="warn", n_jobs=1)
    np.testing.assert_array_equal(X, again)


@pytest.mark.parametrize("size", [8, np.int64(8), (8, 8), [8, 8]])
def test_image_size(tmp_path, size):
    assert load_one(tmp_path, encoded(), size=size).shape == (8, 8, 3)


def test_height_comes_first(tmp_path):
    assert load_one(tmp_path, encoded(), size=(10, 20)).shape == (10, 20, 3)
    assert load_one(tmp_path, encoded(), size=(10, 20), grey=True).shape == (10, 20)


def test_grey(tmp_path):
    grey = load_one(tmp_path, encoded(), grey=True)
    np.testing.assert_array_equal(grey, np.asarray(PICTURE.convert("L")))


def test_crop_keeps_proportions_and_stretch_keeps_all(tmp_path):
    wide = np.zeros((8, 32, 3), np.uint8)
    wide[:, 12:20] = 255  # in the middle third: the crop holds this and its surround
    cropped = load_one(tmp_path, encoded(Image.fromarray(wide)), size=8)
    np.testing.assert_array_equal(cropped, wide[:, 12:20])
    stretched = load_one(
        tmp_path, encoded(Image.fromarray(wide)), size=8, resize="stretch"
    )
    assert stretched[:, 0].max() == 0
    assert stretched[:, 4].min() > 200


@pytest.mark.parametrize("shape", [(1, 3000), (3000, 1), (1, 1)])
@pytest.mark.parametrize("resize", ["crop", "stretch"])
def test_extreme_proportions(tmp_path, shape, resize):
    image = Image.fromarray(np.full((*shape, 3), 7, np.uint8))
    assert (load_one(tmp_path, encoded(image), size=5, resize=resize) == 7).all()


def test_a_photograph_is_decoded_at_a_fraction_of_its_size(tmp_path, monkeypatch):
    sizes = []

    def spy(image, colour):
        sizes.append(image.size)
        return image

    monkeypatch.setattr(_image_folder, "_on_background", spy)
    ramp = np.linspace(0, 255, 1600).astype(np.uint8)
    photo = Image.fromarray(np.broadcast_to(ramp, (1600, 1600)).copy())
    write(tmp_path, {"one": encoded(photo, "JPEG")})
    X, *_ = load_image_folder(tmp_path, 20, grey=True)
    assert sizes == [(200, 200)]
    expected = np.asarray(photo.resize((20, 20)))
    np.testing.assert_allclose(X[0].astype(int), expected, atol=3)


def test_progress_bar(tmp_path, capsys):
    write(tmp_path, {f"{k}.png": encoded() for k in range(3)})
    load_image_folder(tmp_path, 4)
    assert capsys.readouterr().err == ""
    load_image_folder(tmp_path, 4, verbose=1)
    assert "3/3" in capsys.readouterr().err


# ------------------------------------------------------------- decoded as they should


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format", ["PNG", "JPEG"])
def test_exif_rotation(tmp_path, orientation, format):
    # As cameras do: the pixels lie as the sensor saw them, the tag says what to undo.
    undo = {
        1: None,
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }[orientation]
    image = Image.fromarray(CORNER)
    stored = image if undo is None else image.transpose(undo)
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    loaded = load_one(tmp_path, encoded(stored, format, exif=exif), size=16)
    assert loaded[2, 2, 0] > 200
    assert loaded[[2, 13, 13], [13, 2, 13], 0].max() < 60


def test_broken_exif_leaves_the_image_as_it_is(tmp_path):
    content = encoded(exif=b"Exif\0\0no TIFF header")
    np.testing.assert_array_equal(load_one(tmp_path, content), PIXELS)


def test_cmyk(tmp_path):
    red = Image.new("CMYK", (16, 12), (0, 255, 255, 0))
    for format in ("JPEG", "TIFF"):
        loaded = load_one(tmp_path, encoded(red, format))
        np.testing.assert_allclose(loaded[0, 0].astype(int), (255, 0, 0), atol=4)


def test_palette(tmp_path):
    few = PICTURE.quantize(16)
    np.testing.assert_array_equal(
        load_one(tmp_path, encoded(few)), np.asarray(few.convert("RGB"))
    )


@pytest.mark.parametrize("format", ["PNG", "GIF"])
@pytest.mark.parametrize(
    ("background", "colour"),
    [("white", (255, 255, 255)), ("black", (0, 0, 0)), ("#102030", (16, 32, 48))],
)
def test_palette_with_transparency(tmp_path, format, background, colour):
    image = Image.new("P", (16, 12), 1)
    image.putpalette([0, 255, 0, 255, 0, 0])
    image.paste(0, (0, 0, 8, 12))
    content = encoded(image, format, transparency=0)
    loaded = load_one(tmp_path, content, background=background)
    np.testing.assert_array_equal(loaded[0, 0], colour)
    np.testing.assert_array_equal(loaded[0, 15], (255, 0, 0))


def test_alpha_shows_the_background(tmp_path):
    image = Image.new("RGBA", (16, 12), (200, 100, 0, 255))
    image.paste((200, 100, 0, 0), (0, 0, 4, 12))  # colours hide under full transparency
    image.paste((200, 100, 0, 128), (4, 0, 8, 12))
    loaded = load_one(tmp_path, encoded(image))
    np.testing.assert_array_equal(loaded[0, 0], 255)
    np.testing.assert_allclose(loaded[0, 5].astype(int), (227, 177, 127), atol=1)
    np.testing.assert_array_equal(loaded[0, 15], (200, 100, 0))


def test_grey_with_alpha(tmp_path):
    image = Image.new("LA", (16, 12), (50, 255))
    image.paste((50, 0), (0, 0, 8, 12))
    loaded = load_one(tmp_path, encoded(image), grey=True)
    assert (loaded[0, 0], loaded[0, 15]) == (255, 50)


def test_one_transparent_colour(tmp_path):
    image = Image.new("RGB", (16, 12), (1, 2, 3))
    loaded = load_one(tmp_path, encoded(image, transparency=(1, 2, 3)))
    assert (loaded == 255).all()


@pytest.mark.parametrize("format", ["PNG", "TIFF", "PPM"])
def test_sixteen_bits_are_scaled(tmp_path, format):
    values = np.linspace(0, 65535, 12 * 16).reshape(12, 16).astype(np.uint16)
    if format == "PPM":  # not every Pillow writes it
        content = b"P5 16 12 65535\n" + values.astype(">u2").tobytes()
    else:
        content = encoded(Image.fromarray(values), format)
    loaded = load_one(tmp_path, content, grey=True)
    np.testing.assert_array_equal(loaded, np.rint(values / 65535 * 255))


def test_twelve_of_sixteen_bits(tmp_path):
    values = np.linspace(0, 4095, 12 * 16).reshape(12, 16).astype(np.uint16)
    content = encoded(Image.fromarray(values), "TIFF")
    loaded = load_one(tmp_path, content, grey=True, white=4095)
    np.testing.assert_array_equal(loaded, np.rint(values / 4095 * 255))
    with pytest.raises(ValueError, match=r"from 0 to 4095, where white is 4094"):
        load_one(tmp_path, content, white=4094)
    with pytest.raises(ValueError, match="'white' parameter of load_image_folder"):
        load_one(tmp_path, content, white=0)


def test_sixteen_bits_turned_by_exif(tmp_path):
    values = np.zeros((16, 16), np.uint16)
    values[:8, :8] = 65535
    exif = Image.Exif()
    exif[ORIENTATION] = 3
    content = encoded(Image.fromarray(values), exif=exif)
    loaded = load_one(tmp_path, content, size=16, grey=True)
    assert (loaded[0, 0], loaded[15, 15]) == (0, 255)


def test_floats_from_black_to_white(tmp_path):
    values = np.linspace(0, 1, 12 * 16, dtype=np.float32).reshape(12, 16)
    content = encoded(Image.fromarray(values), "TIFF")
    loaded = load_one(tmp_path, content, grey=True)
    np.testing.assert_array_equal(loaded, np.rint(values * 255))


def test_one_bit(tmp_path):
    image = Image.fromarray(PIXELS[..., 0] > 127)
    loaded = load_one(tmp_path, encoded(image), grey=True)
    np.testing.assert_array_equal(loaded, (PIXELS[..., 0] > 127) * 255)


@pytest.mark.parametrize("format", ["GIF", "PNG", "WEBP", "TIFF"])
def test_first_frame_of_an_animation(tmp_path, format):
    frames = [Image.new("RGB", (16, 12), colour) for colour in ("red", "blue")]
    options = {"lossless": True} if format == "WEBP" else {}
    content = encoded(
        frames[0], format, save_all=True, append_images=frames[1:], **options
    )
    np.testing.assert_array_equal(load_one(tmp_path, content)[0, 0], (255, 0, 0))


def test_the_name_says_nothing_about_the_format(tmp_path):
    write(tmp_path, {"jpeg.png": encoded(format="JPEG"), "none": encoded()})
    assert len(load_image_folder(tmp_path, 4)[0]) == 2


@pytest.mark.parametrize(
    "name", ["Ünïcode 漢字.png", "new\nline.png", "\udcff\udcfe latin.png", "-rf", "%s"]
)
def test_names_in_any_encoding(tmp_path, name):
    try:
        write(tmp_path, {name: encoded()})
    except (OSError, ValueError):
        pytest.skip("this file system takes no such name")
    _, _, _, files = load_image_folder(tmp_path, 4)
    assert files.tolist() == [name]
    assert (tmp_path / files[0]).is_file()  # the name opens the file
    write(tmp_path, {name: b"broken"})
    (reason,) = left_out(tmp_path, *[name])
    assert reason == "is no image that Pillow knows"
    # The message can be printed where the name cannot.
    with pytest.raises(ValueError, match="Pillow knows") as caught:
        load_image_folder(tmp_path, 4)
    str(caught.value).encode("utf-8")


def test_links_are_followed(tmp_path):
    write(tmp_path / "elsewhere", {"x.png": encoded()})
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "class").symlink_to(tmp_path / "elsewhere")
    (folder / "single.png").symlink_to(tmp_path / "elsewhere" / "x.png")
    _, y, names, files = load_image_folder(folder, 4)
    assert files.tolist() == ["class/x.png", "single.png"]
    assert (y.tolist(), names) == ([0, -1], ["class"])


def test_hidden_files_are_not_looked_at(tmp_path):
    hidden = {".DS_Store": b"1", "a/._1.png": b"2", ".thumbs/1.png": encoded()}
    write(tmp_path, hidden | {"a/1.png": encoded()})
    assert load_image_folder(tmp_path, 4)[3].tolist() == ["a/1.png"]


# ----------------------------------------------------------------- left out or refused


def png_of_size(width, height):
    """A PNG file that claims a size and holds next to no pixels."""
    buffer = io.BytesIO()
    buffer.write(b"\x89PNG\r\n\x1a\n")
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    PngImagePlugin.putchunk(buffer, b"IHDR", header)
    PngImagePlugin.putchunk(buffer, b"IDAT", b"\x78\x9c\x03\0\0\0\0\x01")
    PngImagePlugin.putchunk(buffer, b"IEND", b"")
    return buffer.getvalue()


BAD = {
    "empty": (b"", r"is empty"),
    "text": (b"some,table\n1,2\n", r"is no image that Pillow knows"),
    "zip": (b"PK\3\4" + bytes(100), r"is no image that Pillow knows"),
    "signature alone": (encoded()[:8], r"is no image that Pillow knows|truncated"),
    "truncated PNG": (encoded()[:-100], r"truncated"),
    "truncated JPEG": (encoded(format="JPEG")[:-100], r"truncated"),
    "truncated GIF": (encoded(format="GIF")[:-20], r"truncated"),
    "zero-pixel": (png_of_size(0, 5), r"pixels|is no image"),
    "zero-pixel GIF": (b"GIF89a" + bytes(20), r"pixels|is no image|no image"),
    "bomb": (png_of_size(30_000, 30_000), r"decompression bomb"),
    "small bomb": (png_of_size(10_000, 10_000), r"decompression bomb"),
    "EPS": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", r"is no image"),
    "HDR": (
        encoded(Image.fromarray(np.full((4, 4), 7.5, np.float32)), "TIFF"),
        r"has values from 7.5 to 7.5, where white is 1",
    ),
    "NaN": (
        encoded(Image.fromarray(np.full((4, 4), np.nan, np.float32)), "TIFF"),
        r"has values from nan to nan",
    ),
    "32 bits": (
        encoded(Image.fromarray(np.full((4, 4), 70_000, np.int32)), "TIFF"),
        r"has values from 70000 to 70000, where white is 65535",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_files(tmp_path, kind):
    content, reason = BAD[kind]
    write(tmp_path, {"bad": content})
    (said,) = left_out(tmp_path, "bad")
    assert re.search(reason, said), said


def test_all_are_counted_and_listed_in_one_warning(tmp_path):
    names = [f"{k:03}" for k in range(50)]
    write(tmp_path, dict.fromkeys(names, b"broken"))
    left_out(tmp_path, *names)
    # An error stops the loading anyway, and need not fill the screen.
    with pytest.raises(ValueError, match="and 30 more"):
        load_image_folder(tmp_path, 4)


@pytest.mark.parametrize("format", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"])
def test_no_truncation_goes_unnoticed(tmp_path, format):
    whole = encoded(format=format)
    lengths = range(0, len(whole), max(1, len(whole) // 40))
    write(tmp_path, {f"{n:06}": whole[:n] for n in lengths})
    write(tmp_path, {"whole": whole})
    with pytest.warns(UserWarning, match="of what is in"):
        X, _, _, files = load_image_folder(tmp_path, 4, on_error="warn")
    # What lacks only the mark of its end has all its pixels.
    assert len(files) <= 2
    assert files[-1] == "whole"
    np.testing.assert_array_equal(X, np.broadcast_to(X[-1], X.shape))


@settings(max_examples=200, deadline=None)
@given(
    content=st.sampled_from(
        [encoded(format=f) for f in ("PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP")]
    ),
    flips=st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(1, 255)), min_size=1, max_size=8
    ),
)
def test_no_damage_crashes(tmp_path_factory, content, flips):
    damaged = bytearray(content)
    for place, change in flips:
        damaged[place % len(damaged)] ^= change
    folder = tmp_path_factory.mktemp("flips")
    write(folder, {"bad": bytes(damaged), "good.png": encoded()})
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "1 of what is in")
        _, _, _, files = load_image_folder(folder, 4, on_error="warn", n_jobs=1)
    assert "good.png" in files


def test_dangling_and_circular_links(tmp_path):
    (tmp_path / "nowhere.png").symlink_to(tmp_path / "nothing")
    (tmp_path / "one").symlink_to(tmp_path / "two")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    write(tmp_path, {"class/x.png": encoded()})
    (tmp_path / "class" / "up").symlink_to(tmp_path)
    reasons = left_out(tmp_path, "class/up", "nowhere.png", "one", "two")
    assert reasons[0] == "links to a folder that it lies in"
    assert reasons[1] == "links to nothing"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert left_out(tmp_path, "pipe") == ["is no regular file"]


def test_unreadable_files_and_folders(tmp_path, monkeypatch):
    # Not by chmod: the superuser, who may run the tests, reads everything.
    write(tmp_path, {"folder/x.png": encoded(), "secret.png": encoded()})
    scandir = os.scandir

    def refuse_file(path, *args):
        if "secret" in str(path):
            raise PermissionError(13, "Permission denied")
        return open(path, *args)

    def refuse_folder(path):
        if str(path).endswith("folder"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(_image_folder, "open", refuse_file, raising=False)
    monkeypatch.setattr(_image_folder.os, "scandir", refuse_folder)
    reasons = left_out(tmp_path, "folder", "secret.png")
    assert reasons == ["Permission denied", "Permission denied"]


def test_a_file_that_vanishes_is_listed(tmp_path, monkeypatch):
    found = _image_folder._find_files

    def more(root):
        files, problems = found(root)
        return sorted([*files, ("gone.png",)]), problems

    monkeypatch.setattr(_image_folder, "_find_files", more)
    assert left_out(tmp_path, "gone.png") == ["No such file or directory"]


@pytest.mark.filterwarnings("ignore:1 of what is in:UserWarning")
@pytest.mark.parametrize("content", [{}, {"notes.txt": b"nothing to see"}])
def test_a_folder_without_images(tmp_path, content):
    write(tmp_path, content)
    with pytest.raises(ValueError, match=r"`path` must hold images.*none in"):
        load_image_folder(tmp_path, 4, on_error="warn")


def test_a_path_that_is_no_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load_image_folder(tmp_path / "nowhere", 4)
    write(tmp_path, {"file": encoded()})
    with pytest.raises(NotADirectoryError, match="file"):
        load_image_folder(str(tmp_path / "file"), 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": 0}, "'image_size' parameter"),
        ({"image_size": 2.5}, "'image_size' parameter"),
        ({"image_size": (4, 0)}, r"`image_size` must be .* got \(4, 0\)"),
        ({"image_size": (4, 4, 3)}, r"`image_size` must be .* got \(4, 4, 3\)"),
        ({"grey": "yes"}, "'grey' parameter"),
        ({"resize": "pad"}, "'resize' parameter"),
        ({"background": "ultraviolet"}, "`background` must be .* 'ultraviolet'"),
        ({"on_error": "ignore"}, "'on_error' parameter"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_parameters_are_checked(tmp_path, options, message):
    write(tmp_path, {"x.png": encoded()})
    with pytest.raises(ValueError, match=message):
        load_image_folder(tmp_path, **({"image_size": 4} | options))


@pytest.mark.skipif(
    not os.path.isdir("/proc/self/fd"), reason="this system does not list open files"
)
def test_nothing_is_left_behind(tmp_path):
    write(tmp_path, {"bad": b"broken", "worse.png": encoded()[:-100]})
    before = set(threading.enumerate()), set(os.listdir("/proc/self/fd"))
    left_out(tmp_path, "bad", "worse.png")
    for thread in set(threading.enumerate()) - before[0]:
        thread.join(10)  # told to stop, which takes a worker of a pool a moment
        assert not thread.is_alive()
    assert set(os.listdir("/proc/self/fd")) == before[1]
    assert not ImageFile.LOAD_TRUNCATED_IMAGES
