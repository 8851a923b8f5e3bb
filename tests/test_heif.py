"""Photographs of phones, with pillow-heif."""

import io
import sys

import numpy as np
import pytest
from PIL import Image

from sk_mice.datasets import load_image_folder

pillow_heif = pytest.importorskip("pillow_heif", reason="the extra `heif` is missing")


def heic(pixels, **options):
    buffer = io.BytesIO()
    pillow_heif.from_pillow(Image.fromarray(pixels)).save(buffer, **options)
    return buffer.getvalue()


@pytest.fixture
def corner():
    """Which way up it is can be told from any two pixels."""
    pixels = np.zeros((64, 64, 3), np.uint8)
    pixels[:32, :32] = (255, 0, 0)
    return pixels


def test_a_heic_file_is_read_by_what_is_in_it(tmp_path, corner):
    (tmp_path / "photo.jpg").write_bytes(heic(corner, quality=90))
    X, *_ = load_image_folder(tmp_path, 64)
    assert X.shape == (1, 64, 64, 3)
    assert np.abs(X[0].astype(int) - corner).mean() < 4


def test_a_photograph_on_its_side_is_turned_once(tmp_path, corner):
    exif = Image.Exif()
    exif[0x0112] = 6  # the top is at the right
    (tmp_path / "photo.heic").write_bytes(heic(corner, quality=90, exif=exif.tobytes()))
    X, *_ = load_image_folder(tmp_path, 8)
    red = np.argwhere(X[0, :, :, 0] > 200)
    assert red.min(axis=0).tolist() == [0, 4]


def test_a_damaged_file_is_left_out(tmp_path, corner):
    content = heic(corner)
    (tmp_path / "whole.heic").write_bytes(content)
    (tmp_path / "half.heic").write_bytes(content[: len(content) // 2])
    with pytest.warns(UserWarning, match=r"half\.heic"):
        *_, files = load_image_folder(tmp_path, 8, on_error="warn")
    assert files.tolist() == ["whole.heic"]


def test_without_pillow_heif_an_error_names_the_extra(tmp_path, corner, monkeypatch):
    (tmp_path / "photo.heic").write_bytes(heic(corner))
    Image.init()
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.delitem(Image.OPEN, "HEIF", raising=False)
    with pytest.raises(ValueError, match=r'pip install "sk-mice\[heif\]"'):
        load_image_folder(tmp_path, 8)
