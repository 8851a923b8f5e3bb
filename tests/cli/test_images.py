"""`--features`: files of images as rows of a pretrained network, kept on the way."""

import errno
import io
import json
import os
import shutil
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest
import torch
from PIL import Image
from shared import raising, recorded

from sk_mice import load
from sk_mice._cli import choosing, fitting, images
from sk_mice.datasets._decoding import Decoder
from sk_mice.datasets._opening import ORIENTATION

from .calls import (
    CHOOSE,
    FIT,
    FIT_FEATURES,
    HARD,
    NAMES,
    NETWORK,
    assert_same_result,
    cut_off,
    draw_page,
    last_line,
    run,
    run_of,
    table,
)


def test_features_are_computed_once_and_kept_in_the_model(
    photos, monkeypatch, capsysbinary, out
):
    from sk_mice.features import PretrainedFeatures

    monkeypatch.setattr(fitting, "draw_page", draw_page)
    calls = recorded(monkeypatch, PretrainedFeatures, "_computing", lambda _, X, *__: X)
    short = ("--clusters", 2, "--out", out, "-q")
    cut_off("fit", photos, *NETWORK, *short)
    assert run("fit", photos, *NETWORK, *short, "--resume") == 0
    (paths,) = calls
    known = run_of(out)
    assert known["finished"]
    assert known["results"]["epochs"] is None
    assert "(0 epochs" not in capsysbinary.readouterr().out.decode()
    assert str(photos / HARD[0]) in paths
    assert (out / "report.html").read_bytes().startswith(b"<!doctype html>")
    assert run("predict", out, photos, "-q") == 0
    assert capsysbinary.readouterr().out == (out / "clusters.csv").read_bytes()
    page = (out / "report.html").read_bytes()
    assert b"the share of its 10 nearest neighbours, those most like it, that" in page
    (out / "report.html").unlink()
    assert run("report", out, photos) == 0
    assert b"verbose=1" not in (out / "report.html").read_bytes()
    assert len(calls) == 1
    model = load(out / "model.safetensors")
    assert model[0].image_size_ == 32
    assert model[-1].center
    features = model[0].transform(paths)
    labels = model[-1].predict(features)
    units = features / np.linalg.norm(features, axis=1, keepdims=True)
    cosines = units @ units.T - 2 * np.eye(len(units))
    nearest = np.argsort(-cosines, axis=1)[:, :10]
    for row, label, others in zip(
        table(out / "clusters.csv"), labels, labels[nearest], strict=True
    ):
        assert int(row["cluster"]) == label
        n_others = np.sum(labels == label) - 1
        share = np.mean(others[: max(n_others, 1)] == label)
        assert float(row["agreement"]) == pytest.approx(share, abs=1e-3)


def test_files_are_decoded_once_for_features_and_page(
    tmp_path, monkeypatch, pages, out
):
    folder, rng = tmp_path / "large", np.random.default_rng(0)
    folder.mkdir()
    turned = Image.Exif()
    turned[ORIENTATION] = 6
    for i in range(12):  # those of 50 pixels are smaller than on the page
        image = Image.fromarray(rng.integers(0, 256, (50 + 40 * i, 700, 3), np.uint8))
        image.save(folder / f"{i:02}.jpg", exif=turned if i % 3 else Image.Exif())
    decoded = recorded(monkeypatch, Decoder, "_decode")
    fit = ("fit", folder, "--clusters", 2, "--features", "efficientnet-lite0")
    assert run(*fit, "--out", out, "-q") == 0
    assert len(decoded) == 2 * 12  # at first for X
    assert run("report", out, folder, "-q") == 0
    (_, X, _), (_, again, _) = pages
    assert X.shape[1:] == (192, 192, 3)
    np.testing.assert_array_equal(X, again)


@pytest.fixture
def in_the_second_batch(monkeypatch):
    """Features end with an error in the second batch of six; the sizes of batches."""
    from sk_mice.features import PretrainedFeatures

    rows, n_seen = PretrainedFeatures._rows, []
    monkeypatch.setattr("sk_mice.features.PIXELS", {"cpu": 6 * 32**2})

    @contextmanager
    def by(error):
        def few(self, batches, *args):
            for number, features in enumerate(rows(self, batches, *args)):
                n_seen.append(len(features))
                if number == 1:
                    raise error
                yield features

        with patch.object(PretrainedFeatures, "_rows", few):
            yield n_seen

    return by


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_features_go_on_from_the_last_whole_batch(
    photos, tmp_path, capsys, in_the_second_batch, error
):
    whole, out = tmp_path / "whole", tmp_path / "result"
    with in_the_second_batch(error) as n_seen:
        assert run("fit", photos, *FIT_FEATURES, "--out", out) in (1, 130)
        capsys.readouterr()
        kept = out / "checkpoint" / "features.npy"
        with open(kept, "ab") as file:
            file.write(b"of a row that a crash cut off")
        assert run("fit", photos, "--out", out, "--resume") in (1, 130)
    assert "The features of 6 images are already there" in capsys.readouterr().err
    assert n_seen == [6, 6, 6, 6]
    assert run("fit", photos, "--out", out, "--resume", "-q") == 0
    assert run("fit", photos, *FIT_FEATURES, "--out", whole) == 0
    assert_same_result(out, whole)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_choose_k_goes_on_from_the_last_whole_batch(
    photos, out, capsys, in_the_second_batch, error
):
    command = ("choose-k", photos, *CHOOSE, "--out", out / "plot.png")
    for _ in range(2):
        with in_the_second_batch(error):
            assert run(*command) in (1, 130)
        assert "The same command goes on." in capsys.readouterr().err
    assert run(*command) == 0
    assert "The features of 12 images are already there" in capsys.readouterr().err
    assert run("fit", photos, *FIT_FEATURES, "--out", out) == 0
    assert "The features are read from" in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_part_of_the_features_of_other_images_is_of_no_use(
    photos, tmp_path, capsys, in_the_second_batch, out, error
):
    own = shutil.copytree(photos, tmp_path / "photos")
    choose = ("choose-k", own, *CHOOSE, "--out", out / "plot.png")
    fit = ("fit", own, *FIT_FEATURES, "--out", out)
    for gone, again in zip(NAMES[1:3], (fit, choose), strict=True):
        with in_the_second_batch(error):
            assert run(*choose) in (1, 130)
        (own / gone).unlink()
        assert run(*again) == 0
        assert "are already there" not in capsys.readouterr().err
        n_rows = len(np.load(out / "features.npy"))
        shutil.rmtree(out)
    assert n_rows == 18


def test_features_of_other_weights_are_not_mixed(photos, capsys, out):
    cut_off("fit", photos, *FIT_FEATURES, "--out", out, "-q")
    started = out / "checkpoint" / "run.json"
    known = json.loads(started.read_text())
    known["features"]["weights"] = "0"  # as those of an earlier version of a package
    started.write_text(json.dumps(known))
    capsys.readouterr()
    assert run("fit", photos, "--out", out, "--resume", "-q") == 2
    said = "--features: the weights of efficientnet-lite0 are not those of"
    assert said in last_line(capsys)
    assert run("fit", photos, *FIT_FEATURES, "--out", out, "--overwrite", "-q") == 0


def test_a_file_of_features_has_one_row_an_image(photos, tmp_path):
    whole, out = tmp_path / "whole", tmp_path / "result"
    assert run("fit", photos, *FIT_FEATURES, "--out", whole, "-q") == 0
    cut_off("fit", photos, *FIT_FEATURES, "--out", out, "-q")
    kept = out / "checkpoint" / "features.npy"
    size = kept.stat().st_size
    resume = ("fit", photos, "--out", out, "--resume", "-q")
    with open(kept, "ab") as file:
        file.write(bytes(size))  # too long, and nobody knows what of it is right
    assert run(*resume) == 0
    assert_same_result(out, whole)


@pytest.mark.parametrize(
    ("look", "what_to_do"),
    [
        (1, "Run the command again."),  # the network looks at the sizes
        (2, "Once they are there again, --resume goes on; --overwrite begins anew."),
    ],
)
def test_images_that_vanish_during_the_features_are_named(
    photos, tmp_path, monkeypatch, capsys, look, what_to_do, out
):
    moving = shutil.copytree(photos, tmp_path / "moving")
    paths = images.Images.paths
    monkeypatch.setattr(images.Images, "paths", lambda *args: gone(paths(*args)))
    n_asked = []

    def gone(paths):
        n_asked.append(len(paths))
        if len(n_asked) == look:
            os.unlink(paths[3])
        return paths

    assert run("fit", moving, *FIT_FEATURES, "--out", out, "-q") == 1
    error = capsys.readouterr().err
    assert f"have changed since they were read. {what_to_do} 1 of" in error


def test_features_go_on_once_a_drive_is_there_again(photos, out, monkeypatch, capsys):
    paths = images.Images.paths

    def unplugged(*args):
        there = paths(*args)
        return [*there[:4], *(f"{path} of the drive" for path in there[4:])]

    monkeypatch.setattr("sk_mice.features.PIXELS", {"cpu": 4 * 32**2})
    with (
        patch("sk_mice.features.sizes", lambda paths, n_jobs: [(8, 8)]),
        patch.object(images.Images, "paths", unplugged),
    ):
        assert run("fit", photos, *FIT_FEATURES, "--out", out, "-q") == 1
    error = capsys.readouterr().err
    assert "--resume goes on" in error
    assert len(error.partition("read as an image. ")[2].split("; ")) == 16
    assert run("fit", photos, "--out", out, "--resume") == 0
    assert "The features of 4 images are already there" in capsys.readouterr().err


def test_a_file_that_comes_while_images_are_read_is_not_left_out(
    photos, tmp_path, monkeypatch, capsys
):
    own = shutil.copytree(photos, tmp_path / "photos")
    load_image_folder = images.load_image_folder

    def slowly(*args, **options):
        loaded = load_image_folder(*args, **options)
        shutil.copy(own / NAMES[1], own / "late.png")
        return loaded

    monkeypatch.setattr(images, "load_image_folder", slowly)
    again = "fit", own, *FIT, "--out", tmp_path / "result", "-q"
    assert run(*again) == 0
    left_out = run_of(tmp_path / "result")["results"]["left_out"]
    assert left_out == ["broken.png", "notes.txt"]
    capsys.readouterr()
    assert run(*again, "--resume") == 0
    assert "'late.png'" in capsys.readouterr().err


def test_a_full_disk_is_named_by_its_file(photos, out, monkeypatch, capsys):
    class Full(io.FileIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open_full(path, mode):
        return io.BufferedRandom(Full(path, "a+"))

    monkeypatch.setattr(images, "open", open_full, raising=False)
    assert run("fit", photos, *FIT_FEATURES, "--out", out, "-q") == 1
    assert "features.npy': No space left" in capsys.readouterr().err


def test_features_of_kinds_of_unlike_sizes(photos, tmp_path, monkeypatch, capsys):
    asked = []

    def choose(clusterer, *args, **kwargs):
        asked.append(clusterer)
        raise ValueError("enough")

    network = (*NETWORK, "--unequal")
    out = ("--out", tmp_path / "result", "-q")
    cut_off("fit", photos, *network, *out, "--clusters", 2)
    assert run("fit", photos, *out, "--resume", "--unequal") == 0
    assert not load(tmp_path / "result" / "model.safetensors")[-1].center
    monkeypatch.setattr(choosing, "choose_n_clusters", choose)
    plot = ("--out", tmp_path / "plot.png", "-q")
    for options, center in ((network, False), (network[:-1], True)):
        assert run("choose-k", photos, *options, *plot) == 1
        assert "enough" in capsys.readouterr().err
        assert asked.pop().center == center


def test_what_libraries_print_is_not_in_the_table(
    photos, monkeypatch, capsysbinary, out
):
    from sk_mice.features import PretrainedFeatures

    transform = PretrainedFeatures.transform

    def printing(network, X):
        print("Downloading: much")
        return transform(network, X)

    assert run("fit", photos, "--clusters", 2, "--out", out, *NETWORK, "-q") == 0
    monkeypatch.setattr(PretrainedFeatures, "transform", printing)
    (out / "features.npy").unlink()
    assert run("predict", out, photos, "-q") == 0
    stdout, stderr = capsysbinary.readouterr()
    assert stdout == (out / "clusters.csv").read_bytes()
    assert b"Downloading: much" in stderr


def test_weights_that_cannot_be_had_say_what_to_do(
    photos, tmp_path, monkeypatch, capsys
):
    offline = raising(OSError, "no network")
    monkeypatch.setattr(torch.hub, "download_url_to_file", offline)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    out = ("--clusters", 2, "--out", tmp_path / "result", "-q", "--features")
    assert run("fit", photos, *out, "resnet18") == 1
    stdout, stderr = capsys.readouterr()
    assert not stdout
    last = stderr.splitlines()[-1]
    assert f"into the folder {str(tmp_path / 'hub' / 'checkpoints')!r}" in last
    assert last.endswith("or name a file with them by `weights` in Python.")
    assert not (tmp_path / "result").exists()
