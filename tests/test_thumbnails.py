"""Thumbnails: how large they are, and what of an image they show."""

import numpy as np
import pytest
from PIL import Image
from shared import recorded
from sklearn.cluster import KMeans

from sk_mice._engine import format
from sk_mice._engine.format import infer_format
from sk_mice.inspection import _thumbnails


def test_sheets_keep_to_their_budget(monkeypatch):
    rng = np.random.RandomState(0)
    X = rng.randint(0, 256, (60, 80, 40, 3), dtype=np.uint8)
    pictures = _thumbnails.pictures_of(KMeans(), X)
    groups = [np.arange(40), np.arange(40, 60)]
    sizes = []
    for budget in (1e9, 1e5):
        monkeypatch.setattr(_thumbnails, "BUDGET", budget)
        sheets, places = _thumbnails.draw_sheets(pictures, groups, rng)
        assert (places["width"], places["height"]) == (40, 80)
        sizes.append(sum(map(len, sheets)))
    assert sizes[1] < 1e5 * 4 / 3 < sizes[0]


def test_of_8_bits_no_image_is_read_for_the_format(monkeypatch):
    read = recorded(monkeypatch, format, "extremes", len)
    X = np.zeros((50, 20, 24, 3), np.uint8)
    fmt = _thumbnails.pictures_of(KMeans(), X).fmt
    assert (fmt.shape, fmt.low, fmt.high) == ((3, 20, 24), 0, 255)
    X = np.linspace(0, 4095, X.size).reshape(X.shape)  # the last image has the white
    fmt = _thumbnails.pictures_of(KMeans(), X).fmt
    assert (fmt.shape, fmt.low, fmt.high) == ((3, 20, 24), 0, 4095)
    assert read == [50]


def test_thumbnails_are_larger_where_they_are_few_and_the_files_allow(tmp_path):
    small, large = tmp_path / "small.png", tmp_path / "large.png"
    Image.new("L", (40, 30)).save(small)
    Image.new("L", (200, 300)).save(large)
    for paths, side in (
        ([large] * 5, _thumbnails.LARGE),
        ([large] * 2500, 100),
        ([small] * 5, _thumbnails.SMALL),
    ):
        shown = np.arange(len(paths))
        assert _thumbnails.pictures_in(paths, shown).X.shape[1] == side


@pytest.mark.parametrize("n_channels", [1, 2, 3, 4, 5])
def test_the_first_three_channels_are_drawn(n_channels):
    X = np.random.default_rng(0).integers(0, 256, (2, 6, 6, n_channels), np.uint8)
    pictures = _thumbnails.Pictures(X, infer_format(X, X.shape[1:]))
    pixels = pictures.thumbnails(np.arange(len(X)), (6, 6))
    assert pixels.shape == (2, 6, 6, 1 if n_channels == 1 else 3)
    n_drawn = min(n_channels, 3)
    np.testing.assert_array_equal(pixels[..., :n_drawn], X[..., :n_drawn])
    assert not pixels[..., n_drawn:].any()
