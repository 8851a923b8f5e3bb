"""Photographs, and the result of a fit to them."""

import shutil
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
import torch

from sk_mice import NeighborMixture
from sk_mice._cli import fitting

from .calls import FIT, HARD, NAMES, run, write_image


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Twenty images, one of them in a subfolder, and two files that are none."""
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for name in NAMES + HARD:
        write_image(folder / name, rng)
    (folder / NAMES[0]).rename(folder / "broken.png")
    (folder / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (folder / "notes.txt").write_text("no image")
    write_image(folder / "below" / "deep.png", rng)
    return folder


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Fits of one seed are equal only with one number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", autouse=True)
def one_epoch_for_features():
    """Of the clusterer of features, whose 50 would take most of these tests."""
    short = partial(NeighborMixture, max_epochs=1)
    with patch.object(fitting, "NeighborMixture", short):
        yield


@pytest.fixture(autouse=True)
def pages(monkeypatch):
    """Stands in for the report, which has tests of its own; the calls it got."""
    calls = []

    def draw_page(reading, model, pictures, path, *, names, files, folder, rng):
        calls.append((reading, pictures.X, names))
        path.write_text("a page")

    monkeypatch.setattr(fitting, "draw_page", draw_page)
    return calls


@pytest.fixture(scope="module")
def fitted(photos, tmp_path_factory):
    """The result of a fit, which no test changes."""
    out = tmp_path_factory.mktemp("fitted") / "result"
    assert run("fit", photos, *FIT, "--out", out, "--quiet") == 0
    return out


@pytest.fixture
def result(fitted, tmp_path):
    """A copy of that result, to change."""
    return shutil.copytree(fitted, tmp_path / "result")


@pytest.fixture
def resume(photos, result):
    """The command that goes on with that result, which is complete."""
    return ("fit", photos, "--out", result, "--resume", "-q")


@pytest.fixture
def out(tmp_path):
    """A folder for a result, which is not there yet."""
    return tmp_path / "out"
