"""`load_image_folder(..., out=...)`: images in a file, decoded once."""

import ntpath
import os
import threading
import warnings
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
from PIL import Image
from shared import no_space, recorded
from systems import needs_links, needs_locks, needs_proc
from windows import refuse_files_in_use

from sk_mice._engine import maps
from sk_mice.datasets import _decoding, _file, load_image_folder

N = 7
RNG = np.random.default_rng(0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(_file, "ROWS_OF_ENTRY", 2)
    folder = tmp_path / "photos"
    for i in range(N):
        write(folder / f"{'ab'[i % 2]}/{i}.png")
    return folder


def write(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = RNG.integers(0, 256, (9, 9, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def decoded(monkeypatch):
    """The names of the files that are decoded, one after the other."""

    def name(self, row, path):
        return os.path.basename(path)

    return recorded(monkeypatch, _decoding.Decoder, "into", name)


def load(folder, size=9, **options):
    out = folder.parent / "images.npy"
    return load_image_folder(folder, size, out=out, n_jobs=1, **options)


def listing(folder):
    return sorted(os.listdir(folder.parent))


COMPLETE = ["images.npy", "images.npy.files", "photos"]


def assert_as_decoded(X, folder, size=9, **options):
    """These are the images of the folder, which are decoded once more."""
    assert np.array_equal(X, load_image_folder(folder, size, **options)[0])


def test_file_holds_what_an_array_would(folder):
    expected = load_image_folder(folder, 9)
    found = load(folder)
    assert isinstance(found[0], np.memmap)
    assert not found[0].flags.writeable
    for one, other in zip(expected, found, strict=True):
        assert np.array_equal(one, other)
    assert np.array_equal(np.load(folder.parent / "images.npy"), expected[0])
    assert listing(folder) == COMPLETE


def test_second_call_decodes_nothing(folder, decoded):
    load(folder)
    assert len(decoded) == N
    X, *_ = load(folder)
    assert len(decoded) == N
    assert_as_decoded(X, folder)


@needs_links
def test_a_link_stays(folder):
    out = folder.parent / "images.npy"
    out.symlink_to(folder.parent / "elsewhere.npy")
    X, *_ = load(folder)
    assert out.is_symlink()
    assert np.array_equal(np.load(out), X)


@pytest.mark.parametrize(
    ("change", "n"),
    [
        (lambda folder: write(folder / "a/0.png"), N),
        (lambda folder: write(folder / "a/new.png"), N + 1),
        (lambda folder: (folder / "a/0.png").unlink(), N - 1),
        (lambda folder: (folder / "a/0.png").rename(folder / "b/0.png"), N),
        (lambda folder: (folder.parent / "images.npy").write_bytes(b""), N),
        (lambda folder: (folder.parent / "images.npy").unlink(), N),
        (lambda folder: (folder.parent / "images.npy.files").write_text("{"), N),
    ],
    ids=["changed", "added", "removed", "moved", "emptied", "lost", "journal"],
)
def test_changes_are_noticed(folder, decoded, change, n):
    load(folder)
    decoded.clear()
    change(folder)
    X, *_ = load(folder)
    assert len(decoded) == n
    assert_as_decoded(X, folder)


@pytest.mark.parametrize(
    "options",
    [
        {"size": 8},
        {"gray": True},
        {"resize": "stretch"},
        {"background": "black"},
        {"white": 4095},
    ],
    ids=" ".join,
)
def test_other_settings_are_other_images(folder, decoded, options):
    load(folder)
    for _ in range(2):  # the second time they are there
        X, *_ = load(folder, **options)
        assert len(decoded) == 2 * N
    assert_as_decoded(X, folder, **options)


def interrupt(folder, after):
    into, n = _decoding.Decoder.into, iter(range(N))

    def stops(self, row, path):
        if next(n) == after:
            raise KeyboardInterrupt
        return into(self, row, path)

    with (
        patch.object(_decoding.Decoder, "into", stops),
        pytest.raises(KeyboardInterrupt),
    ):
        load(folder)


def cut_journal(folder):
    journal = folder.parent / "images.npy.files"
    journal.write_text(journal.read_text()[:-5])


def cut_part(size, folder):
    os.truncate(folder.parent / "images.npy.part", size)


@pytest.mark.parametrize(
    ("change", "n"),
    [
        (lambda folder: None, N - 5),  # two entries of two rows, and one row
        (cut_journal, N - 4),  # without the last entry, of one row
        *((partial(cut_part, size), N) for size in (0, 20, 200)),
        (lambda folder: write(folder / "a/0.png"), N - 5 + 1),
    ],
    ids=["nothing", "journal", "no part", "header", "values", "image"],
)
def test_only_what_is_whole_is_believed_after_an_interruption(
    folder, decoded, change, n
):
    interrupt(folder, after=5)
    assert listing(folder) == ["images.npy.files", "images.npy.part", "photos"]
    change(folder)
    decoded.clear()
    X, *_ = load(folder)
    assert len(decoded) == n
    assert_as_decoded(X, folder)


def test_bad_file_is_left_out_and_stays_so(folder, decoded):
    (folder / "a/2.png").write_bytes(b"no image")
    for _ in range(2):
        with pytest.warns(UserWarning, match=r"(?s)left out: 1.*a/2\.png"):
            X, y, _, files = load(folder, on_error="warn")
        assert len(X) == len(y) == len(files) == N - 1
        assert len(decoded) == N
    with pytest.warns(UserWarning, match="are left out"):
        assert_as_decoded(X, folder, on_error="warn")
    assert listing(folder) == COMPLETE


@needs_proc
@pytest.mark.parametrize("n_bad", [0, 1])
def test_windows_renames_the_file_too(folder, monkeypatch, n_bad):
    if n_bad:
        (folder / "a/2.png").write_bytes(b"no image")
    refuse_files_in_use(monkeypatch)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        X, *_ = load(folder, on_error="warn")
    assert len(X) == N - n_bad
    assert len(caught) == n_bad
    assert listing(folder) == COMPLETE


def test_dark_images_are_warned_of(folder):
    for path in folder.glob("*/*.png"):
        Image.fromarray(np.full((9, 9), 1000, np.uint16)).save(path)
    with pytest.warns(UserWarning, match="nearly black"):
        load(folder, gray=True)
    load(folder, gray=True)


def test_mended_file_is_the_only_one_decoded_again(folder, decoded):
    (folder / "a/2.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"a/2\.png"):
        load(folder)
    write(folder / "a/2.png")
    decoded.clear()
    X, *_ = load(folder)
    assert decoded == ["2.png"]
    assert_as_decoded(X, folder)


def test_no_image_is_an_error_and_no_file(folder):
    for path in folder.glob("*/*"):
        path.write_bytes(b"no image")
    with (
        pytest.raises(ValueError, match="there are none"),
        pytest.warns(UserWarning, match="are left out"),
    ):
        load(folder, on_error="warn")
    assert "images.npy" not in listing(folder)


def test_full_disk_is_found_before_the_work(folder, decoded, monkeypatch):
    monkeypatch.setattr(maps.os, "posix_fallocate", no_space, raising=False)
    with pytest.raises(OSError, match=r"No space.*images\.npy\.part"):
        load(folder)
    assert not decoded
    assert "images.npy.part" not in listing(folder)


@needs_locks
def test_two_at_a_time_decode_once(folder, decoded):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(load(folder)[0])) for _ in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(decoded) == N
    assert np.array_equal(*found)


def test_file_may_be_in_the_folder(folder, decoded):
    expected = load_image_folder(folder, 9)
    decoded.clear()
    for _ in range(2):
        found = load_image_folder(folder, 9, out=folder / "a" / "images.npy")
        assert np.array_equal(found[0], expected[0])
        assert found[3].tolist() == expected[3].tolist()
    assert len(decoded) == N


def test_file_may_be_on_another_drive():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "path", ntpath)
        patch.setattr(os, "sep", ntpath.sep)
        assert _file.files_of(r"D:\images.npy", r"C:\photos") == set()
        below = _file.files_of(r"C:\photos\a\images.npy", r"C:\photos")
        assert ("a", "images.npy.part") in below


@pytest.mark.parametrize("name", ["images.npy", "images.npy.files", "images.npy.part"])
def test_files_of_the_user_are_not_replaced(folder, decoded, name):
    mine = folder.parent / name
    mine.write_text("mine")
    with pytest.raises(FileExistsError, match=rf"no earlier call.*{name}'"):
        load(folder)
    assert mine.read_text() == "mine"
    assert not decoded


@pytest.mark.parametrize("size", [9, 8])
def test_a_result_in_whose_place_is_a_file_of_the_user_stays(folder, decoded, size):
    load(folder)
    decoded.clear()
    np.save(folder.parent / "images.npy", np.arange(5))
    with pytest.raises(FileExistsError, match=r"differs in size.*npy'"):
        load(folder, size)
    assert np.array_equal(np.load(folder.parent / "images.npy"), np.arange(5))
    assert not decoded


@pytest.mark.parametrize(
    ("out", "error", "words"),
    [
        ("images.txt", ValueError, '`out` must end in ".npy"'),
        ("nowhere/images.npy", FileNotFoundError, "`out` must be .*No such folder"),
        ("photos", IsADirectoryError, "`out` must be .*Is a directory"),
    ],
)
def test_other_names_are_refused(folder, out, error, words):
    with pytest.raises(error, match=words):
        load_image_folder(folder, 9, out=folder.parent / out)


def test_images_that_are_read_after_an_interruption_are_warned_of(tmp_path):
    folder = tmp_path / "folder"
    dark = np.full((8, 8), 300, np.uint16)
    folder.mkdir()
    for i in range(N):
        Image.fromarray(dark).save(folder / f"{i}.tif")
    interrupt(folder, after=2)
    with pytest.warns(UserWarning, match="16 bits"):
        load(folder)
