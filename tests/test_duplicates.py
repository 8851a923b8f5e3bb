"""Images that are nearly the same."""

import numpy as np
import pytest
from PIL import Image
from report_page import data_of
from shared import short_fits, tiny

from sk_mice import SphericalKMeans
from sk_mice._engine.format import infer_format
from sk_mice.inspection import _report, write_report
from sk_mice.inspection._doubts import doubt_of_duplicates
from sk_mice.inspection._duplicates import near_duplicates
from sk_mice.inspection._thumbnails import Pictures


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, (30, 20, 24, 3), np.uint8)


def pairs_of(images, image_shape=None):
    """The pairs that are found if each of 30 images is compared with all others."""
    rows, fmt = np.arange(30), infer_format(images, image_shape)
    others = np.array([np.delete(rows, i) for i in rows])
    return near_duplicates(Pictures(images, fmt), rows, others).tolist()


def test_pairs_of_nearly_the_same_pixels(images):
    images[7] = images[3]
    images[20] = np.clip(images[5].astype(int) + 4, 0, 255)  # a little brighter
    images[21] = np.clip(images[6].astype(int) + 7, 0, 255)  # too much
    images[9] = 255 - images[8]
    assert pairs_of(images) == [[3, 7], [5, 20]]


def test_dim_images_are_not_the_same_because_they_are_dim():
    rng = np.random.default_rng(0)
    shapes = rng.random((30, 4, 4)).repeat(4, axis=1).repeat(4, axis=2)
    images = np.uint8(12 * shapes + rng.random(shapes.shape))
    images[20] = np.clip(images[5].astype(int) + rng.integers(-1, 2, (16, 16)), 0, 255)
    images[7] = images[8] = 3  # without any contrast
    images[8, :8] = 4
    assert pairs_of(images) == [[5, 20], [7, 8]]


def test_images_of_little_contrast_differ_by_little():
    images = np.uint8(100 + 40 * np.random.default_rng(0).random((30, 16, 16)))
    images[20], images[21] = images[5] + 2, images[6] + 4  # a quarter of 11.5 is 2.9
    assert pairs_of(images) == [[5, 20]]


def test_all_channels_are_compared():
    rng = np.random.default_rng(0)
    images = rng.random((30, 5, 16, 16))
    images[:, :3] = images[0, :3]  # those that are drawn
    images[7] = images[3]
    assert pairs_of(images, (5, 16, 16)) == [[3, 7]]


def test_a_hot_pixel_does_not_make_images_the_same():
    images = np.random.default_rng(0).integers(0, 300, (30, 16, 16), np.uint16)
    images[0, 0, 0] = 65535
    images[7] = images[3]
    assert pairs_of(images) == [[3, 7]]


def test_only_nearest_neighbours_that_are_shown_are_compared(images):
    images[7] = images[3]
    pictures = Pictures(images, infer_format(images, None))
    rows = np.array([3, 7, 9])
    found = near_duplicates(pictures, rows, np.array([[9], [3], [3]]))
    assert found.tolist() == [[3, 7]]
    assert near_duplicates(pictures, rows, np.array([[9], [9], [3]])).shape == (0, 2)


def test_pairs_of_one_series_leave_room_for_others():
    series = [[i, j] for i in range(20) for j in range(i + 1, 20)]
    others = [[30, 31], [30, 32], [40, 41]]
    (doubt,) = doubt_of_duplicates("images", np.array(series + others))
    assert doubt.sentence.startswith("25 images are")
    assert doubt.sentence.endswith("; the first 100 of 193 pairs found.")
    assert doubt.pairs[:5] == [[0, 1], [30, 31], [40, 41], [0, 2], [30, 32]]
    assert doubt.pairs[5:] == series[2:97]
    assert doubt.groups == [[30, 31, 32], [40, 41]]  # the series has no copies


def test_the_original_is_the_first_of_its_group(tmp_path):
    """The largest file; without files, that with the shortest name."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (3, 4, 4), np.uint8).repeat(8, 1).repeat(8, 2)
    images = [*images] * 2
    X = np.tile(rng.random((3, 4)), (2, 1))
    model = SphericalKMeans(2).fit(X)
    names, sides = ("a (2)", "b", "c", "a", "b 2", "c2"), (32, 32, 32, 32, 64, 16)
    files = [tmp_path / f"{name}.bmp" for name in names]  # bytes as pixels
    for file, image, side in zip(files, images, sides, strict=True):
        Image.fromarray(image).resize((side, side)).save(file)
    path, shown = tmp_path / "report.html", np.stack(images)
    write_report(model, X, path, images=[*map(str, files)])
    assert data_of(path)["copies"] == [[3, 0], [4, 1], [2, 5]]
    write_report(model, X, path, images=shown, names=files)
    assert data_of(path)["copies"] == [[3, 0], [1, 4], [2, 5]]
    write_report(model, X, path, images=shown)
    assert data_of(path)["copies"] == [[0, 3], [1, 4], [2, 5]]


@short_fits
def test_the_report_names_them(tmp_path, images, monkeypatch):
    images[7] = images[3]
    model = tiny(n_clusters=2).fit(images)
    names = [f"{number}.png" for number in range(30)]
    path = tmp_path / "report.html"
    write_report(model, images, path, names=names)
    text = path.read_text(encoding="utf-8")
    assert "2 images are nearly the same as another one at 16 x 16 pixels." in text
    assert "3.png, 7.png" in text
    monkeypatch.setattr(_report, "MOST_SHOWN", 29)  # all but one, which is another
    write_report(model, images, path, names=names)
    text = path.read_text(encoding="utf-8")
    assert "2 of the 29 images shown are nearly the same as another one at" in text
    images[7] = 255 - images[3]
    write_report(model, images, path, names=names)
    assert "nearly the same" not in path.read_text(encoding="utf-8")
