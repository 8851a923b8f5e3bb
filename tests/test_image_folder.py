"""Folders full of surprises; every file is written here."""

import os
import threading
import tracemalloc
import warnings
from itertools import pairwise, product

import numpy as np
import pytest
from image_files import NO_IMAGE, PIXELS, SIZE, encoded, left_out, load_one, write
from PIL import Image, ImageFile
from shared import recorded
from systems import NOT_THERE, needs_links, needs_pipes, needs_proc

from sk_mice import datasets
from sk_mice.datasets import _decoding, load_image_folder

# --------------------------------------------------------------------- what is returned


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
    np.testing.assert_array_equal(X, np.broadcast_to(PIXELS, X.shape))


def test_rows_belong_to_their_files_whatever_the_threads_do(tmp_path):
    contents = {f"{k:03}.png": np.full((3, 3), k, np.uint8) for k in range(200)}
    write(tmp_path, {name: encoded(a) for name, a in contents.items()})
    write(tmp_path, {"050.png": b"broken"})
    for n_jobs in (8, 1):
        with pytest.warns(UserWarning, match=r"'050.png': is not an image"):
            X, *_, files = load_image_folder(
                tmp_path, 3, on_error="warn", n_jobs=n_jobs
            )
        assert files.tolist() == sorted(contents.keys() - {"050.png"})
        for row, name in zip(X, files, strict=True):
            assert (row == int(name[:3])).all()


def test_image_size_is_height_and_width(tmp_path):
    for size in (8, np.int64(8), (8, 8), [8, 8]):
        assert load_one(tmp_path, encoded(), size).shape == (8, 8, 3)
    assert load_one(tmp_path, encoded(), (10, 20)).shape == (10, 20, 3)
    assert load_one(tmp_path, encoded(), (10, 20), gray=True).shape == (10, 20)


def test_crop_keeps_proportions_and_stretch_keeps_all(tmp_path):
    wide = np.zeros((8, 32, 3), np.uint8)
    wide[:, 12:20] = 255  # in the middle third: the crop holds this and its surround
    cropped = load_one(tmp_path, encoded(wide), 8)
    np.testing.assert_array_equal(cropped, wide[:, 12:20])
    stretched = load_one(tmp_path, encoded(wide), 8, resize="stretch")
    assert stretched[:, 0].max() == 0
    assert stretched[:, 4].min() > 200


def test_extreme_proportions(tmp_path):
    for shape, resize in product([(1, 3000), (3000, 1), (1, 1)], ["crop", "stretch"]):
        image = np.full((*shape, 3), 7, np.uint8)
        assert (load_one(tmp_path, encoded(image), 5, resize=resize) == 7).all()


@pytest.mark.parametrize(("size", "decoded"), [(20, 200), (150, 400), (700, 1600)])
def test_a_photograph_is_decoded_at_a_fraction_of_its_size(
    size, decoded, tmp_path, monkeypatch
):
    ramp = np.linspace(0, 255, 1600).astype(np.uint8)
    photo = Image.fromarray(np.broadcast_to(ramp, (1600, 1600)).copy())
    sizes = recorded(monkeypatch, Image.Image, "resize", lambda image, *_: image.size)
    loaded = load_one(tmp_path, encoded(photo, "JPEG"), size, gray=True)
    assert sizes == [(decoded, decoded)]  # twice the size or more, where there is more
    expected = np.asarray(photo.resize((size, size)))
    np.testing.assert_allclose(loaded.astype(int), expected, atol=3)


def test_progress_bar(tmp_path, capsys):
    write(tmp_path, {f"{k}.png": encoded() for k in range(3)})
    load_image_folder(tmp_path, 4)
    assert capsys.readouterr().err == ""
    load_image_folder(tmp_path, 4, verbose=1)
    assert "3/3" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["Ünïcode 漢字.png", "new\nline.png", "\udcff\udcfe latin.png", "-rf", "%s"]
)
def test_names_in_any_encoding(tmp_path, name):
    try:
        write(tmp_path, {name: encoded()})
    except (OSError, ValueError):
        pytest.skip("this file system takes no such name")
    *_, files = load_image_folder(tmp_path, 4)
    assert files.tolist() == [name]
    assert (tmp_path / files[0]).is_file()  # the name opens the file
    write(tmp_path, {name: b"broken"})
    assert left_out(tmp_path, name) == [NO_IMAGE]
    # The message can be printed where the name cannot.
    with pytest.raises(ValueError, match="is not an image") as caught:
        load_image_folder(tmp_path, 4)
    str(caught.value).encode("utf-8")


def test_the_name_says_nothing_about_the_format(tmp_path):
    write(tmp_path, {"jpeg.png": encoded(format="JPEG"), "none": encoded()})
    assert len(load_image_folder(tmp_path, 4)[0]) == 2


# -------------------------------------------------------------------------- which files


def test_hidden_files_are_not_looked_at(tmp_path):
    hidden = {".DS_Store": b"1", "a/._1.png": b"2", ".thumbs/1.png": encoded()}
    hidden |= {"Thumbs.db": b"3", "a/Desktop.ini": b"4", "$RECYCLE.BIN/$1.png": b"5"}
    hidden |= {"System Volume Information/1": b"6"}
    hidden |= {"a/@eaDir/1.png/SYNOPHOTO_THUMB_XL.jpg": encoded()}
    hidden |= {"#recycle/1.png": encoded(), "@Recycle/1.png": encoded()}
    if os.name == "posix":
        hidden |= {"Icon\r": b""}
    write(tmp_path, hidden | {"a/1.png": encoded()})
    assert load_image_folder(tmp_path, 4)[3].tolist() == ["a/1.png"]


@needs_links
def test_dangling_and_circular_links(tmp_path):
    for name, target in {"1": "nothing", "2": "nothing", "3": "4", "4": "3"}.items():
        (tmp_path / name).symlink_to(tmp_path / target)
    write(tmp_path, {"class/x.png": encoded()})
    (tmp_path / "class" / "up").symlink_to(tmp_path)
    reasons = left_out(tmp_path, "1", "2", "3", "4", "class/up")
    assert reasons[:2] == 2 * ["links to nothing"]
    assert reasons[4] == "links to a folder that it lies in"


@needs_links
def test_two_folders_of_links_each_count_an_image_once(tmp_path):
    # A path may lead through 40 links on Linux, and through 32 on a Mac.
    chain = [tmp_path / "chain" / f"{k:02}" for k in range(31)]
    write(tmp_path, {"chain/30/x.png": encoded()})
    for folder, following in pairwise(chain):
        folder.mkdir()
        (folder / "a").symlink_to(following)
        (folder / "b").symlink_to(following)
    assert load_image_folder(tmp_path / "chain", 4)[3].tolist() == ["30/x.png"]
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "class").symlink_to(chain[0])
    _, y, names, files = load_image_folder(tmp_path / "root", 4)
    assert files.tolist() == ["class/" + "a/" * 30 + "x.png"]
    assert (y.tolist(), names) == ([0], ["class"])


@needs_links
def test_folders_that_link_to_each_other_count_an_image_once(tmp_path):
    names = [f"{k}" for k in range(8)]
    real = tmp_path / "real"
    write(real, {f"{name}/x.png": encoded() for name in names})
    for name in names:
        for other in set(names) - {name}:
            (real / name / f"to {other}").symlink_to(real / other)
    X, y, classes, _ = load_image_folder(real, 4)
    assert (len(X), y.tolist(), classes) == (8, list(range(8)), names)
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "class").symlink_to(real / "0")
    with pytest.warns(UserWarning, match="are left out") as caught:
        X, _, classes, _ = load_image_folder(tmp_path / "root", 4, on_error="warn")
    assert (len(X), classes) == (8, ["class"])
    lines = str(caught[0].message).splitlines()[1:]
    assert len(lines) <= 8 * 7  # no more than there are links
    assert all("links to a folder that it lies in" in line for line in lines)


@needs_links
def test_a_path_without_links_comes_first_and_then_the_first(tmp_path):
    write(tmp_path, {"root/b/x.png": encoded(), "elsewhere/y.png": encoded()})
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    (root / "a").symlink_to(root / "b")  # before "b", but a link
    (root / "a.png").symlink_to(root / "b" / "x.png")
    for name in ("d", "c", "e"):
        (root / name).symlink_to(elsewhere)
    (root / "f.png").symlink_to(elsewhere / "y.png")
    _, y, names, files = load_image_folder(root, 4)
    assert files.tolist() == ["b/x.png", "c/y.png"]
    assert (y.tolist(), names) == ([0, 1], ["b", "c"])
    (root / "0.png").symlink_to(root / "f.png")  # a link to a link
    assert load_image_folder(root, 4)[3].tolist() == ["0.png", "b/x.png"]


def test_hard_links_are_files_of_their_own(tmp_path):
    write(tmp_path, {"real/x.png": encoded()})
    os.link(tmp_path / "real" / "x.png", tmp_path / "real" / "y.png")
    assert load_image_folder(tmp_path / "real", 4)[3].tolist() == ["x.png", "y.png"]


@needs_links
def test_a_link_to_a_folder_above_path(tmp_path):
    write(tmp_path, {"root/x.png": encoded(), "beside/y.png": encoded()})
    (tmp_path / "root" / "up").symlink_to(tmp_path)
    with pytest.warns(UserWarning, match=r"'up/root': links to a folder that it lies"):
        files = load_image_folder(tmp_path / "root", 4, on_error="warn")[3]
    assert files.tolist() == ["up/beside/y.png", "x.png"]


def test_more_entries_than_are_looked_at(tmp_path, monkeypatch):
    write(tmp_path, {f"{k % 2}/{k}.png": encoded() for k in range(6)})
    monkeypatch.setattr(datasets, "MOST_ENTRIES", 8)
    assert len(load_image_folder(tmp_path, 4)[0]) == 6
    monkeypatch.setattr(datasets, "MOST_ENTRIES", 7)
    with pytest.raises(ValueError, match=r"`path` must hold at most 7 files and fold"):
        load_image_folder(tmp_path, 4)


@needs_pipes
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert left_out(tmp_path, "pipe") == ["is not a regular file"]


def test_unreadable_files_and_folders(tmp_path, monkeypatch):
    # Not by chmod: the superuser, who may run the tests, reads everything.
    write(tmp_path, {"folder/x.png": encoded(), "secret.png": encoded()})
    scandir = os.scandir

    class RefusedFile(_decoding.File):
        def __init__(self, path):
            if "secret" in str(path):
                raise PermissionError(13, "Permission denied")
            super().__init__(path)

    def refuse_folder(path):
        if str(path).endswith("folder"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(_decoding, "File", RefusedFile)
    monkeypatch.setattr(os, "scandir", refuse_folder)
    reasons = left_out(tmp_path, "folder", "secret.png")
    assert reasons == ["Permission denied", "Permission denied"]


def test_a_file_that_vanishes_is_listed(tmp_path, monkeypatch):
    found = datasets.find_files

    def more(root):
        files, problems = found(root)
        return sorted([*files, ("gone.png",)]), problems

    monkeypatch.setattr(datasets, "find_files", more)
    assert left_out(tmp_path, "gone.png") == [NOT_THERE]


@pytest.mark.filterwarnings("ignore:Files or folders in:UserWarning")
def test_a_folder_without_images(tmp_path):
    for content in ({}, {"notes.txt": b"nothing to see"}):
        write(tmp_path, content)
        with pytest.raises(ValueError, match=r"`path` must hold images.*none in"):
            load_image_folder(tmp_path, 4, on_error="warn")


def test_a_path_that_is_no_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load_image_folder(tmp_path / "nowhere", 4)
    write(tmp_path, {"file": encoded()})
    with pytest.raises(NotADirectoryError, match="file"):
        load_image_folder(str(tmp_path / "file"), 4)


def test_parameters_are_checked(tmp_path):
    write(tmp_path, {"x.png": encoded()})
    for options, message in [
        ({"image_size": 0}, "'image_size' parameter"),
        ({"image_size": 2.5}, "'image_size' parameter"),
        ({"image_size": True}, "'image_size' parameter"),
        ({"image_size": (4, True)}, r"`image_size` must be .* got \(4, True\)"),
        ({"white": True}, "'white' parameter"),
        ({"image_size": (4, 0)}, r"`image_size` must be .* got \(4, 0\)"),
        ({"image_size": (4, 4, 3)}, r"`image_size` must be .* got \(4, 4, 3\)"),
        ({"image_size": 10**9}, r"'image_size' parameter .* \[1, 4096\]"),
        ({"image_size": (4, 4097)}, r"`image_size` must be .*4096.* got \(4, 4097\)"),
        ({"gray": "yes"}, "'gray' parameter"),
        ({"resize": "pad"}, "'resize' parameter"),
        ({"background": "ultraviolet"}, "`background` must be .* 'ultraviolet'"),
        ({"white": 0}, "'white' parameter"),
        ({"on_error": "ignore"}, "'on_error' parameter"),
        ({"n_jobs": 0}, "n_jobs"),
    ]:
        with pytest.raises(ValueError, match=message):
            load_image_folder(tmp_path, **({"image_size": 4} | options))


def test_an_array_larger_than_the_memory_is_an_error_at_once(tmp_path, monkeypatch):
    write(tmp_path, {f"{k}.png": encoded() for k in range(3)})
    monkeypatch.setattr("sk_mice.datasets._decoding.available_memory", lambda: 1000)
    message = r"`image_size`=\(600, 700\) and 3 files need 3,780,000 bytes, more than"
    with pytest.raises(ValueError, match=message):
        load_image_folder(tmp_path, (600, 700))


def test_leaving_out_a_file_takes_no_second_array(tmp_path):
    images = {f"{k}.png": encoded(PIXELS + np.uint8(k)) for k in range(9)}
    write(tmp_path, images | {"4.png": b"broken"})
    with pytest.warns(UserWarning, match="left out: 1"):
        X, _, _, files = load_image_folder(tmp_path, SIZE, on_error="warn")
    tracemalloc.start()
    with pytest.warns(UserWarning, match="left out: 1"):
        large, *_ = load_image_folder(tmp_path, 512, on_error="warn", n_jobs=1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for image, file in zip(X, files, strict=True):
        np.testing.assert_array_equal(image, PIXELS + np.uint8(file[0]))
    assert len(X) == len(large) == 8
    assert peak < 1.5 * large.nbytes


@needs_proc
def test_nothing_is_left_behind(tmp_path):
    write(tmp_path, {"bad": b"broken", "worse.png": encoded()[:-100]})
    before = set(threading.enumerate()), set(os.listdir("/proc/self/fd"))
    left_out(tmp_path, "bad", "worse.png")
    for thread in set(threading.enumerate()) - before[0]:
        thread.join(10)  # told to stop, which takes a worker of a pool a moment
        assert not thread.is_alive()
    assert set(os.listdir("/proc/self/fd")) == before[1]
    assert not ImageFile.LOAD_TRUNCATED_IMAGES


# ----------------------------------------------------------------------------- warnings


def test_all_are_counted_and_listed_in_one_warning(tmp_path):
    names = [f"{k:03}" for k in range(50)]
    write(tmp_path, dict.fromkeys(names, b"broken"))
    left_out(tmp_path, *names)
    # An error stops the loading anyway, and need not fill the screen.
    with pytest.raises(ValueError, match="and 30 more"):
        load_image_folder(tmp_path, 4)


def test_the_filters_of_the_process_are_never_touched(tmp_path):
    write(tmp_path, {f"{k}.png": encoded() for k in range(50)})
    before, seen = warnings.filters, list(warnings.filters)
    calls = [
        threading.Thread(target=load_image_folder, args=(tmp_path, 4)) for _ in range(4)
    ]
    for call in calls:
        call.start()
    while any(call.is_alive() for call in calls):
        assert warnings.filters is before
    assert warnings.filters == seen
