"""The command line: what it writes, says and refuses, and what is left after Ctrl-C."""

import csv
import dataclasses
import errno
import functools
import io
import json
import ntpath
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import PureWindowsPath
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from skorch.callbacks import Callback
from systems import needs_full_device, needs_links, needs_locks

from sk_mice import MiCEClustering, cli, load
from sk_mice._cli import choosing, fitting, images, results, sorting, tables
from sk_mice._cli.terminal import Progress, put
from sk_mice._engine.distributed import Group
from sk_mice._engine.inference import Inference
from sk_mice._task import _check_finite
from sk_mice.cli import main
from sk_mice.inspection._reading import OF_NEIGHBORS, OF_VIEWS, Reading

draw_page = fitting.draw_page
NAMES = [f"{k:02}.png" for k in range(17)]
# A line break, quotes and a comma, and a byte that is no UTF-8, as far as names may.
HARD = ["two\nlines.png", 'a "quoted", b.png', "caf\udce9.png"]
if sys.platform == "darwin":
    HARD[2] = "café.png"
if sys.platform == "win32":
    HARD = ["two  lines.png", "a 'quoted', b.png", "café.png"]
FILES = {"clusters.csv", "model.safetensors", "report.html", "run.json"}
FIT = ("--clusters", "2", "--epochs", "2", "--image-size", "8")
NETWORK = ("--features", "efficientnet-lite0", "--image-size", 32)
FIT_FEATURES = (*NETWORK, "--clusters", "2")


def write_image(path, rng):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(path, "PNG")


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


@pytest.fixture(autouse=True)
def pages(monkeypatch):
    """Stands in for the report, which has tests of its own; the calls it got."""
    calls = []

    def draw_page(reading, model, X, fmt, path, *, names, rng):
        calls.append((reading, X, names))
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


def run(*arguments):
    return main([*map(str, arguments)])


def run_of(folder):
    """What a result says of its fit."""
    return json.loads((folder / "run.json").read_text())


def table(path):
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    return list(csv.DictReader(text.splitlines(keepends=True)))


def assert_same_result(one, two):
    assert (one / "clusters.csv").read_bytes() == (two / "clusters.csv").read_bytes()
    one, two = (load_file(folder / "model.safetensors") for folder in (one, two))
    assert one.keys() == two.keys()
    del one["document"], two["document"]  # the history has the seconds of epochs
    assert [name for name in one if not one[name].equal(two[name])] == []


def refused(capsys, code, *arguments):
    """The one line on stderr with which a command ends."""
    assert run(*arguments) == code
    out, err = capsys.readouterr()
    assert not out
    (line,) = err.splitlines()
    assert line.startswith("sk-mice: error: ")
    return line


# ------------------------------------------------------------------------------- fit


def test_fit_writes_a_table_a_model_a_page_and_what_it_was(
    photos, tmp_path, capsys, pages
):
    out = tmp_path / "result"
    options = ("--seed", 3, "--device", "cpu")
    assert run("fit", photos, *FIT, "--out", out, *options) == 0
    assert {path.name for path in out.iterdir()} == FILES
    rows = table(out / "clusters.csv")
    assert [*rows[0]] == tables.HEADER
    files = [row["file"] for row in rows]
    assert set(files) == {*NAMES[1:], *HARD, "below/deep.png"}
    ((reading, X, names),) = pages
    assert names == files
    model = load(out / "model.safetensors")
    assert (model.random_state, model.device) == (3, "cpu")
    labels = [int(row["cluster"]) for row in rows]
    np.testing.assert_array_equal(model.predict(X), labels)
    shares = model.agreement(X)
    np.testing.assert_allclose(
        [float(row["confidence"]) for row in rows],
        shares[np.arange(len(rows)), labels],
        atol=1e-3,
    )
    np.testing.assert_array_equal(reading.labels, labels)
    for row in rows:
        assert row["second_cluster"] == str(1 - int(row["cluster"]))
        margin = 2 * float(row["confidence"]) - 1
        assert float(row["margin"]) == pytest.approx(margin, abs=1e-3)
    known = run_of(out)
    assert known["finished"]
    assert known["parameters"]["seed"] == 3
    assert known["max_epochs"] == known["results"]["epochs"] == 2
    stdout, stderr = capsys.readouterr()
    assert f"{len(rows)} images in 2 clusters (2 epochs" in stdout
    assert "2 left out" in stderr
    assert "'broken.png'" in stderr
    assert "'notes.txt'" in stderr
    assert "elbo" not in stderr.lower()


@needs_links
def test_files_are_sorted_by_cluster_and_json_is_one_object(photos, tmp_path, capsys):
    out, copies, links = (tmp_path / name for name in ("result", "copies", "links"))
    sort = ("--copy-to", copies, "--link-to", links)
    assert run("fit", photos, *FIT, "--out", out, *sort, "--json", "--quiet") == 0
    for row in table(out / "clusters.csv"):
        inner = os.path.join(f"cluster-{row['cluster']}", row["file"])
        content = (photos / row["file"]).read_bytes()
        assert (copies / inner).read_bytes() == content
        assert not (copies / inner).is_symlink()
        assert (links / inner).read_bytes() == content
        assert (links / inner).is_symlink()
    stdout, stderr = capsys.readouterr()
    facts = json.loads(stdout)
    assert facts["images"] == sum(row["images"] for row in facts["clusters"]) == 20
    assert facts["left_out"] == ["broken.png", "notes.txt"]
    assert facts["table"] == str(out / "clusters.csv")
    assert all(line.startswith(("sk-mice: ", "  ")) for line in stderr.splitlines())


def test_features_are_computed_once_and_kept_in_the_model(
    photos, tmp_path, monkeypatch, capsysbinary
):
    from sk_mice.features import PretrainedFeatures

    monkeypatch.setattr(fitting, "draw_page", draw_page)
    calls, transform = [], PretrainedFeatures._transform

    def counted(network, X, keep=None):
        calls.append(X)
        return transform(network, X, keep)

    monkeypatch.setattr(PretrainedFeatures, "_transform", counted)
    out = tmp_path / "result"
    short = ("--clusters", 2, "--out", out, "-q")
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "judged", lambda *args: 1 / 0)
        assert run("fit", photos, *NETWORK, *short) == 1
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
    assert run("report", out, photos, "-q") == 0
    assert (out / "report.html").exists()
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
        assert float(row["confidence"]) == pytest.approx(share, abs=1e-3)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_features_go_on_from_the_last_whole_batch(
    photos, tmp_path, monkeypatch, capsys, error
):
    from sk_mice.features import PretrainedFeatures

    rows, n_seen = PretrainedFeatures._rows, []

    def few(self, batches, *args):
        for number, features in enumerate(rows(self, batches, *args)):
            n_seen.append(len(features))
            if number == 1:
                raise error
            yield features

    monkeypatch.setattr("sk_mice.features.PIXELS", {"cpu": 6 * 32**2})
    whole, out = tmp_path / "whole", tmp_path / "result"
    assert run("fit", photos, *FIT_FEATURES, "--out", whole) == 0
    with monkeypatch.context() as patch:
        patch.setattr(PretrainedFeatures, "_rows", few)
        assert run("fit", photos, *FIT_FEATURES, "--out", out) in (1, 130)
        capsys.readouterr()
        kept = out / "checkpoint" / "features.float32"
        with open(kept, "ab") as file:
            file.write(b"of a row that a crash cut off")
        assert run("fit", photos, "--out", out, "--resume") in (1, 130)
    assert "Those of 6 images are there" in capsys.readouterr().err
    assert n_seen == [6, 6, 6, 6]
    assert run("fit", photos, "--out", out, "--resume", "-q") == 0
    assert_same_result(out, whole)


@pytest.mark.parametrize(
    ("look", "what_to_do"),
    [
        (1, "Run the command again."),  # the network looks at the sizes
        (2, "Once they are there again, --resume goes on; --overwrite begins anew."),
    ],
)
def test_images_that_vanish_during_the_features_are_named(
    photos, tmp_path, monkeypatch, capsys, look, what_to_do
):
    moving = shutil.copytree(photos, tmp_path / "moving")
    paths_of = images.paths_of
    monkeypatch.setattr(images, "paths_of", lambda *args: gone(paths_of(*args)))
    n_asked = []

    def gone(paths):
        n_asked.append(len(paths))
        if len(n_asked) == look:
            os.unlink(paths[3])
        return paths

    out = tmp_path / "result"
    assert run("fit", moving, *FIT_FEATURES, "--out", out, "-q") == 1
    error = capsys.readouterr().err
    assert f"have changed since they were read. {what_to_do} 1 of" in error


def test_features_go_on_once_a_drive_is_there_again(
    photos, tmp_path, monkeypatch, capsys
):
    paths_of = images.paths_of

    def unplugged(*args):
        there = paths_of(*args)
        return [*there[:4], *(f"{path} of the drive" for path in there[4:])]

    monkeypatch.setattr("sk_mice.features.PIXELS", {"cpu": 4 * 32**2})
    out = tmp_path / "result"
    with monkeypatch.context() as patch:
        patch.setattr("sk_mice.features.sizes", lambda paths, n_jobs: [(8, 8)])
        patch.setattr(images, "paths_of", unplugged)
        assert run("fit", photos, *FIT_FEATURES, "--out", out, "-q") == 1
    assert "--resume goes on" in capsys.readouterr().err
    assert run("fit", photos, "--out", out, "--resume") == 0
    assert "Those of 4 images are there" in capsys.readouterr().err


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


def test_a_full_disk_is_named_by_its_file(photos, tmp_path, monkeypatch, capsys):
    class Full(io.FileIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open_full(path, mode):
        return io.BufferedRandom(Full(path, "a+"))

    monkeypatch.setattr(images, "open", open_full, raising=False)
    assert run("fit", photos, *FIT_FEATURES, "--out", tmp_path / "result", "-q") == 1
    assert "features.float32': No space left" in capsys.readouterr().err


def test_a_file_of_features_has_one_row_an_image(photos, tmp_path, monkeypatch):
    whole, out = tmp_path / "whole", tmp_path / "result"
    assert run("fit", photos, *FIT_FEATURES, "--out", whole, "-q") == 0
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "judged", lambda *args: 1 / 0)
        assert run("fit", photos, *FIT_FEATURES, "--out", out, "-q") == 1
    kept = out / "checkpoint" / "features.float32"
    size = kept.stat().st_size
    resume = ("fit", photos, "--out", out, "--resume", "-q")
    with open(kept, "ab") as file:
        file.write(bytes(size))  # too long, and nobody knows what of it is right
    assert run(*resume) == 0
    assert_same_result(out, whole)


def test_features_of_kinds_of_unlike_sizes(photos, tmp_path, monkeypatch, capsys):
    asked = []

    def choose(clusterer, *args, **kwargs):
        asked.append(clusterer)
        raise ValueError("enough")

    network = (*NETWORK, "--unequal")
    out = ("--out", tmp_path / "result", "-q")
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "judged", lambda *args: 1 / 0)
        assert run("fit", photos, *network, *out, "--clusters", 2) == 1
    assert run("fit", photos, *out, "--resume", "--unequal") == 0
    assert not load(tmp_path / "result" / "model.safetensors")[-1].center
    monkeypatch.setattr(choosing, "choose_n_clusters", choose)
    plot = ("--out", tmp_path / "plot.png", "-q")
    for options, center in ((network, False), (network[:-1], True)):
        assert run("choose-k", photos, *options, *plot) == 1
        assert "enough" in capsys.readouterr().err
        assert asked.pop().center == center


def test_rows_of_the_table():
    reading = Reading(
        *(np.array([0, 1]), np.array([0.6, 1.0]), np.array([2, -1])),
        *(np.array([0.2, 0.0]), np.array([1, 0]), np.zeros((2, 1)), 3, "words"),
    )
    rows = tables.rows_of(["a", "b"], reading)
    assert rows == [["a", 0, 0.6, 2, 0.4], ["b", 1, 1.0, None, 1.0]]
    share = np.array([0.4, 0.1], dtype=np.float32)
    tied = dataclasses.replace(reading, confidence=share, second_share=share)
    assert [str(row[-1]) for row in tables.rows_of(["a", "b"], tied)] == ["0.0", "0.0"]


@pytest.mark.parametrize(("meaning", "sure"), [(OF_NEIGHBORS, None), (OF_VIEWS, 1.0)])
def test_a_single_image_has_no_neighbours(meaning, sure):
    reading = Reading(
        *(np.array([2]), np.array([1.0]), np.array([-1]), np.array([0.0])),
        *(np.array([0]), np.zeros((1, 1)), 3, meaning),
    )
    assert tables.rows_of(["a"], reading) == [["a", 2, sure, None, sure]]


def test_clusters_views_and_posterior_are_asked_for_once(
    photos, fitted, monkeypatch, tmp_path
):
    over, calls = Inference.over, []

    def counted(self, samples, views, *wanted):
        calls.append(wanted)
        return over(self, samples, views, *wanted)

    monkeypatch.setattr(Inference, "over", counted)
    assert run("predict", fitted, photos, "-q", "--out", tmp_path / "new.csv") == 0
    assert calls == [*10 * [("label",)], ("joint", "gating")]


# --------------------------------------------------------------- refused before a fit


def test_a_length_of_training_is_refused_where_nothing_trains(photos, tmp_path, capsys):
    network = ("--features", "efficientnet-lite0")
    out = ("--clusters", 2, "--out", tmp_path / "result")
    for length in ("--epochs", "--minutes"):
        line = refused(capsys, 2, "fit", photos, *network, *out, length, 2)
        assert f"{length}: it contradicts --features" in line
    plot = ("--out", tmp_path / "plot.png", "--epochs", 2)
    assert "--epochs" in refused(capsys, 2, "choose-k", photos, *network, *plot)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--clusters", "1"], "--clusters"),
        (["--clusters", "many"], "--clusters"),
        ([], "--clusters"),
        (["--clusters", "30"], "at most the number of images, 20; got 30"),
        (["--clusters", "2", "--epochs", "2", "--minutes", "1"], "--minutes"),
        (["--clusters", "2", "--no-such-option"], "--no-such-option"),
        (["--clusters", "2", "--device", "fax"], "--device: it must name"),
        (["--clusters", "2", "--features", "no"], "--features: it must be"),
        (["--clusters", "2", "--unequal"], "--unequal: it needs --features"),
    ],
)
def test_wrong_options_are_named(photos, tmp_path, capsys, arguments, words):
    arguments = ["fit", photos, "--out", tmp_path / "result", *arguments]
    if "30" in arguments:  # comes after the images are read, which says more
        assert run(*arguments) == 2
        assert words in capsys.readouterr().err.splitlines()[-1]
    else:
        assert words in refused(capsys, 2, *arguments)
    assert not (tmp_path / "result").exists()


def test_wrong_folders_are_named(photos, fitted, tmp_path, capsys):
    out = tmp_path / "result"
    line = refused(capsys, 2, "fit", tmp_path / "none", *FIT, "--out", out)
    assert repr(str(tmp_path / "none")) in line
    assert "--resume" in refused(capsys, 2, "fit", photos, *FIT, "--out", fitted)
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("mine")
    assert "--out" in refused(capsys, 2, "fit", photos, *FIT, "--out", full)
    for option in ("--copy-to", "--link-to"):
        line = refused(capsys, 2, "fit", photos, *FIT, "--out", out, option, full)
        assert option in line
        assert repr(str(full)) in line
    inner = photos / "result"
    assert "--out" in refused(capsys, 2, "fit", photos, *FIT, "--out", inner)
    assert "RESULT" in refused(capsys, 2, "predict", full, photos)
    assert not out.exists()


def test_what_fails_names_the_option_and_leaves_nothing(
    photos, tmp_path, monkeypatch, capsys
):
    out = tmp_path / "result"
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run("fit", empty, *FIT, "--out", out) == 1
    assert repr(str(empty)) in capsys.readouterr().err.splitlines()[-1]

    def fail(*args):
        raise ValueError("`max_epochs` must be another")

    monkeypatch.setattr(MiCEClustering, "fit", fail)
    assert run("fit", photos, *FIT, "--out", out) == 1
    assert "--epochs must be another" in capsys.readouterr().err.splitlines()[-1]
    assert not out.exists()


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    ],
    ids=["python", "cpu", "gpu"],
)
def test_too_little_memory_is_no_bug(photos, tmp_path, monkeypatch, capsys, error):
    def fail(*args):
        raise error

    monkeypatch.setattr(fitting, "read_images", fail)
    said = refused(capsys, 1, "fit", photos, *FIT, "--out", tmp_path / "result")
    assert said == f"sk-mice: error: Not enough memory. {error}".rstrip()


def test_a_bug_is_one_line_too_unless_it_is_traced(
    photos, tmp_path, monkeypatch, capsys
):
    def fail(*args):
        raise KeyError("nobody\nknows")

    monkeypatch.setattr(fitting, "read_images", fail)
    arguments = ["fit", photos, *FIT, "--out", tmp_path / "result"]
    assert "SK_MICE_TRACEBACK" in refused(capsys, 1, *arguments)
    monkeypatch.setenv("SK_MICE_TRACEBACK", "1")
    with pytest.raises(KeyError):
        run(*arguments)


# ------------------------------------------------------------------- resume, overwrite


class Stop(Exception):
    """Kills a fit."""


def test_a_killed_fit_goes_on_and_ends_as_if_never_killed(
    photos, fitted, tmp_path, monkeypatch, capsys
):
    out = tmp_path / "result"

    def killed(*args):
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(MiCEClustering, "_train", killed)  # after the first stage
        assert run("fit", photos, *FIT, "--out", out, "-q") == 1
    assert [*(out / "checkpoint").iterdir()]
    assert not json.loads((out / "checkpoint" / "run.json").read_text())["finished"]
    capsys.readouterr()
    again = ["fit", photos, "--out", out, "--resume"]
    for option, other in (("--clusters", 3), ("--seed", 5), ("--image-size", 16)):
        line = refused(capsys, 2, *again, option, other)
        assert option in line
        assert f"got {other}" in line
    assert run(*again, *FIT, "-q") == 0
    assert_same_result(out, fitted)
    assert not (out / "checkpoint").exists()
    capsys.readouterr()
    assert run(*again, "--copy-to", tmp_path / "copies") == 0  # complete: says so again
    assert "20 images in 2 clusters" in capsys.readouterr().out
    assert len([*(tmp_path / "copies").glob("cluster-*/**/*.png")]) == 20


def test_resume_refuses_other_images(photos, result, tmp_path, capsys):
    run_ = run_of(result) | {"finished": False}
    (result / "run.json").write_text(json.dumps(run_))
    fewer = shutil.copytree(photos, tmp_path / "fewer")
    (fewer / NAMES[3]).unlink()
    assert run("fit", fewer, "--out", result, "--resume", "-q") == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert "PHOTOS" in last
    assert "(19)" in last


def test_a_complete_result_sorts_no_other_images(photos, result, tmp_path, capsys):
    moved = shutil.copytree(photos, tmp_path / "moved")
    sorting = "--resume", "-q", "--copy-to"
    assert run("fit", moved, "--out", result, *sorting, tmp_path / "one") == 0
    one, other = (next(moved.rglob(name)) for name in NAMES[1:3])
    shutil.copy(one, other)  # another image of that name
    assert run("fit", moved, "--out", result, *sorting, tmp_path / "other") == 2
    assert "PHOTOS" in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "other").exists()


def test_images_that_came_after_a_complete_fit_are_named(
    photos, result, tmp_path, capsys
):
    own = shutil.copytree(photos, tmp_path / "photos")
    run_ = run_of(result)
    run_["images"]["folder"] = str(own.resolve())
    (result / "run.json").write_text(json.dumps(run_))
    again = "fit", own, "--out", result, "--resume", "-q"
    assert run(*again) == 0
    assert not capsys.readouterr().err
    (own / "below" / "deep.png").rename(own / "below" / HARD[0])
    assert run(*again, "--copy-to", tmp_path / "sorted") == 0
    new, gone = capsys.readouterr().err.splitlines()
    assert f"1 file of {str(own)!r} is not in {str(result / 'clusters.csv')!r}" in new
    assert repr("below/" + HARD[0]) in new
    assert "sk-mice predict" in new
    assert "'below/deep.png'" in gone


@pytest.mark.parametrize(
    "gone",
    [["report.html"], ["model.safetensors"], ["model.safetensors", "report.html"]],
)
def test_what_is_gone_from_a_complete_result_is_named(photos, result, capsys, gone):
    again = ("fit", photos, "--out", result, "--resume")
    assert run(*again) == 0
    assert "warning" not in capsys.readouterr().err
    for name in gone:
        (result / name).unlink()
    assert run(*again) == 0
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "warn" in line)
    for name in ("report.html", "model.safetensors"):
        assert (repr(str(result / name)) in line) == (name in gone)
    helps = "--overwrite" if "model.safetensors" in gone else "`sk-mice report`"
    assert f"no longer there. {helps}" in line


def test_a_table_that_is_gone_can_be_written_again(photos, result, tmp_path, capsys):
    table = result / "clusters.csv"
    before = tables.read_column(table, ["cluster"])
    table.unlink()
    again = ("fit", photos, "--out", result, "--resume", "-q")
    assert "`sk-mice predict`" in refused(capsys, 1, *again)
    assert run("predict", result, photos, "--out", table, "-q") == 0
    assert tables.read_column(table, ["cluster"]) == before
    assert run(*again, "--copy-to", tmp_path / "sorted") == 0


def test_a_table_without_rows_cannot_be_sorted_by(photos, result, tmp_path, capsys):
    (result / "clusters.csv").write_text("file,cluster\n")
    into = ("--resume", "-q", "--copy-to", tmp_path / "sorted")
    line = refused(capsys, 1, "fit", photos, "--out", result, *into)
    assert "must have a row for each image" in line


def test_resume_begins_where_there_is_nothing(photos, fitted, tmp_path):
    assert run("fit", photos, *FIT, "--out", tmp_path / "new", "--resume", "-q") == 0
    assert_same_result(tmp_path / "new", fitted)


def test_overwrite_replaces_a_result(photos, result):
    other = ["fit", photos, *FIT, "--out", result, "--seed", 1, "-q"]
    assert run(*other, "--overwrite", "--resume") == 2
    assert run(*other, "--overwrite") == 0
    assert run_of(result)["parameters"]["seed"] == 1


def test_a_result_stays_until_the_next_one_is_there(
    photos, fitted, result, tmp_path, monkeypatch, capsys
):
    other = ["fit", photos, *FIT, "--out", result, "--seed", 1, "-q"]
    with monkeypatch.context() as patch:
        patch.setattr(MiCEClustering, "fit", press_ctrl_c)
        assert run(*other, "--overwrite") == 130
    last = capsys.readouterr().err.splitlines()[-1]
    advice = "The same command with --resume in place of --overwrite goes on."
    assert last == f"Stopped. {advice}"
    for name in FILES:
        assert (result / name).read_bytes() == (fitted / name).read_bytes()
    assert run("predict", result, photos, "-q", "--out", tmp_path / "new.csv") == 0
    assert run(*other) == 2  # the run that can go on is not replaced by chance
    assert run(*other, "--resume") == 0
    assert run_of(result)["parameters"]["seed"] == 1
    assert not (result / "checkpoint").exists()

    def fail(*args):
        raise ValueError("no")

    monkeypatch.setattr(MiCEClustering, "fit", fail)
    assert run("fit", photos, *FIT, "--out", result, "--overwrite", "-q") == 1
    assert run_of(result)["parameters"]["seed"] == 1
    assert not (result / "checkpoint").exists()


def test_a_page_of_an_earlier_fit_is_not_left_beside_a_new_table(
    photos, result, monkeypatch
):
    other = ["fit", photos, *FIT, "--out", result, "--seed", 1, "-q"]
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "draw_page", press_ctrl_c)
        assert run(*other, "--overwrite") == 130
    assert (result / "clusters.csv").exists()
    assert not (result / "report.html").exists()
    assert run(*other, "--resume") == 0
    assert (result / "report.html").exists()


def test_ctrl_c_does_not_replace_a_whole_result(
    photos, fitted, result, monkeypatch, capsys
):
    other = ["fit", photos, *FIT, "--out", result, "--seed", 1, "-q"]
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "estimator", interrupted)
        assert run(*other, "--overwrite") == 130
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == (
        "Stopped after 1 of 2 epochs. The earlier result stays. The same command with "
        "--resume in place of --overwrite goes on."
    )
    for name in FILES:
        assert (result / name).read_bytes() == (fitted / name).read_bytes()
    assert run(*other, "--resume") == 0
    assert run_of(result)["parameters"]["seed"] == 1


@needs_locks
@pytest.mark.parametrize("way", [[], ["--resume"], ["--overwrite"]])
def test_one_run_at_a_time_writes_to_a_folder(photos, tmp_path, monkeypatch, way):
    out, train, codes = tmp_path / "result", fitting._train, []

    def meanwhile(*args):
        codes.append(run("fit", photos, *FIT, "--out", out, "-q", *way))
        return train(*args)

    monkeypatch.setattr(fitting, "_train", meanwhile)
    assert run("fit", photos, *FIT, "--out", out, "-q") == 0
    assert codes == [2]
    assert len(table(out / "clusters.csv")) == 20


def test_what_cannot_be_written_is_found_before_the_work(
    photos, result, tmp_path, capsys, monkeypatch
):
    (result / "report.html").chmod(0o444)
    fit, report = ("fit", photos, *FIT, "--out"), ("report", result, photos)
    for command in ((*fit, result, "--overwrite"), report):
        line = refused(capsys, 1, *command, "-q")
        assert "report.html" in line
        assert "read-only" in line
    (result / "report.html").chmod(0o644)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    new = tmp_path / "new"
    for command in ((*fit, new), report):
        line = refused(capsys, 1, *command, "-q")
        assert "needs Jinja2" in line
    assert not new.exists()


def test_an_empty_folder_of_the_users_stays(photos, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    monkeypatch.setattr(fitting, "read_images", lambda *args: 1 / 0)
    for name in ("mine", "ours"):
        assert run("fit", photos, *FIT, "--out", tmp_path / name, "-q") == 1
    assert os.listdir(tmp_path) == ["mine"]


def test_a_folder_that_has_moved_goes_on_and_names_its_files(
    photos, fitted, tmp_path, monkeypatch, capsys
):
    out, moved = tmp_path / "result", tmp_path / "moved"
    with monkeypatch.context() as patch:
        patch.setattr(MiCEClustering, "_train", press_ctrl_c)
        assert run("fit", photos, *FIT, "--out", out, "-q") == 130
    out.rename(moved)
    again = ["fit", photos, "--resume", "--json", "--out"]
    assert run(*again, moved) == 0
    assert_same_result(moved, fitted)
    moved.rename(out)
    capsys.readouterr()
    assert run(*again, out) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["table"] == str(out / "clusters.csv")
    assert facts["model"] == str(out / "model.safetensors")
    assert facts["report"] == str(out / "report.html")


@pytest.mark.parametrize("content", ["{}", "[]", "null", '{"finished": true}', "{"])
def test_a_run_of_something_else_is_left_alone(photos, tmp_path, capsys, content):
    out = tmp_path / "theirs"
    out.mkdir()
    (out / "run.json").write_text(content)
    (out / "model.safetensors").touch()
    words = f"{str(out)!r} holds no run of sk-mice; {str(out / 'run.json')!r}"
    for way in ([], ["--resume"], ["--overwrite"]):
        assert words in refused(capsys, 2, "fit", photos, *FIT, "--out", out, *way)
    for command in ("predict", "report"):
        line = refused(capsys, 2, command, out, photos)
        assert f"RESULT: {words}" in line
    assert (out / "run.json").read_text() == content


def test_minutes_become_epochs_that_hold(photos, tmp_path, monkeypatch, capsys):
    out = tmp_path / "result"
    short = ["--clusters", "2", "--image-size", "8", "--out", out]
    monkeypatch.setattr(fitting, "epochs_within", lambda *args: 2)
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "_write", lambda *args: 1 / 0)
        assert run("fit", photos, *short, "--minutes", 0.05) == 1
    assert "2 epochs fit into 0.05 min" in capsys.readouterr().err
    monkeypatch.setattr(fitting, "epochs_within", lambda *args: 0)
    assert run("fit", photos, *short[:-1], tmp_path / "one", "--minutes", 0.05) == 0
    assert "An epoch takes more than 0.05 min: training one" in capsys.readouterr().err
    monkeypatch.setattr(fitting, "epochs_within", lambda *args: 1 / 0)
    assert run("fit", photos, *short, "--minutes", 0.05, "--resume") == 0
    assert run_of(out)["results"]["epochs"] == 2


def test_the_probe_grows_with_the_time():
    X = np.random.default_rng(0).normal(size=(60, 4))
    mice = MiCEClustering(2, random_state=0)
    assert fitting.epochs_within(mice, X, 0, Group()) == 0
    assert fitting.epochs_within(mice, X, 600, Group()) > 100
    assert not hasattr(mice, "labels_")


def press_ctrl_c(*args, **kwargs):
    raise KeyboardInterrupt


class PressCtrlC(Callback):
    """Ctrl-C at the end of the first epoch."""

    def on_epoch_end(self, net, **kwargs):
        signal.raise_signal(signal.SIGINT)


def interrupted(*args, estimator=fitting.estimator):
    """The estimator of a fit, which Ctrl-C ends after its first epoch."""
    return estimator(*args).set_params(callbacks=[PressCtrlC()])


def test_ctrl_c_leaves_clusters_and_a_fit_that_goes_on(
    photos, fitted, tmp_path, monkeypatch, capsys
):
    out, copies = tmp_path / "result", tmp_path / "copies"
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "estimator", interrupted)
        command = ["fit", photos, *FIT, "--out", out, "--copy-to", copies]
        assert run(*command, "--json") == 130
    stdout, stderr = capsys.readouterr()
    assert not json.loads(stdout)["complete"]
    last = "Stopped after 1 of 2 epochs. The same command with --resume goes on."
    assert stderr.splitlines()[-1] == last
    assert len(table(out / "clusters.csv")) == 20
    assert not copies.exists()
    assert run(*command, "--resume") == 0
    assert_same_result(out, fitted)
    assert len([*copies.rglob("*.png")]) == 20


def test_ctrl_c_before_the_first_epoch_leaves_a_fit_to_begin(
    photos, tmp_path, monkeypatch, capsys
):
    out = tmp_path / "result"

    monkeypatch.setattr(fitting, "epochs_within", press_ctrl_c)
    command = ["fit", photos, "--clusters", 2, "--minutes", 1, "--out", out]
    assert run(*command) == 130
    assert "--resume" in capsys.readouterr().err.splitlines()[-1]
    monkeypatch.setattr(fitting, "epochs_within", lambda *args: 1)
    assert run(*command, "--resume") == 0
    monkeypatch.setattr(fitting, "read_images", press_ctrl_c)
    assert run("fit", photos, *FIT, "--out", tmp_path / "other") == 130
    assert capsys.readouterr().err.splitlines()[-1] == "sk-mice: stopped"


# ------------------------------------------------------------------------------- sort


@pytest.mark.parametrize(
    "option", ["--copy-to", pytest.param("--link-to", marks=needs_links)]
)
def test_a_sort_that_is_interrupted_goes_on(
    photos, fitted, tmp_path, monkeypatch, capsys, option
):
    out, into = tmp_path / "result", tmp_path / "sorted"
    command = ["fit", photos, *FIT, "--out", out, option, into]
    name = "_link" if option == "--link-to" else "_copy"
    place, placed = getattr(sorting, name), []

    def interrupted(source, target):
        placed.append(target)
        if len(placed) > 5:
            raise KeyboardInterrupt
        place(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(sorting, name, interrupted)
        assert run(*command) == 130
    stdout, stderr = capsys.readouterr()
    assert "20 images in 2 clusters" in stdout
    assert stderr.splitlines()[-1] == (
        "Stopped before all images were sorted. The same command with --resume goes on."
    )
    assert_same_result(out, fitted)
    assert len([*into.rglob("*.png")]) == 5
    if option == "--copy-to":  # killed within a file, which lost its last bytes
        os.truncate(placed[4], os.path.getsize(placed[4]) - 9)
    assert run(*command, "--resume") == 0
    assert_sorted(into, out, photos)
    assert run(*command, "--resume") == 0  # there is nothing left to do
    assert_sorted(into, out, photos)


@pytest.mark.parametrize(
    "row", [b'"a.png",cats', b'"a.png",2', b'"a.png",-1', b'"b/../../x",0', b'"/x",0']
)
def test_a_table_that_was_changed_is_not_sorted(photos, result, tmp_path, capsys, row):
    with open(result / "clusters.csv", "ab") as file:
        file.write(row + b",1.0,1,1.0\n")
    into = ("--resume", "-q", "--copy-to", tmp_path / "sorted")
    line = refused(capsys, 1, "fit", photos, "--out", result, *into)
    assert "must be as the fit has written it" in line
    assert not (tmp_path / "sorted").exists()


def test_a_table_does_not_leave_the_folder_on_windows(tmp_path, monkeypatch):
    monkeypatch.setattr(sorting, "PurePath", PureWindowsPath)
    for name in (r"..\x", r"a\..\..\x", "C:x", r"C:\x", r"\x", "/x", r"\\host\a\x"):
        path = write_table(tmp_path / "table.csv", ["file", "cluster"], [[name, 0]])
        with pytest.raises(ValueError, match="a file below the folder of images"):
            sorting.read_clusters(path, 2)
    path = write_table(tmp_path / "table.csv", ["file", "cluster"], [["a/b..c", 0]])
    assert sorting.read_clusters(path, 2) == (["a/b..c"], [0])


def assert_sorted(into, out, photos):
    rows = table(out / "clusters.csv")
    for row in rows:
        inner = os.path.join(f"cluster-{row['cluster']}", row["file"])
        assert (into / inner).read_bytes() == (photos / row["file"]).read_bytes()
    assert len([path for path in into.rglob("*") if not path.is_dir()]) == len(rows)


@needs_links
def test_a_sort_that_goes_on_overwrites_no_other_file(photos, result, tmp_path, capsys):
    into = tmp_path / "sorted"
    row = table(result / "clusters.csv")[0]
    made = into / f"cluster-{row['cluster']}" / row["file"]
    command = ["fit", photos, "--out", result, "--resume", "-q", "--copy-to", into]
    made.parent.mkdir(parents=True)
    for content in (b"mine", (photos / row["file"]).read_bytes() + b"mine"):
        made.write_bytes(content)
        assert repr(str(made)) in refused(capsys, 1, *command)
        assert made.read_bytes() == content
    made.unlink()
    made.symlink_to(photos / row["file"])
    assert repr(str(made)) in refused(capsys, 1, *command)
    made.unlink()
    (into / "mine.txt").touch()
    line = refused(capsys, 2, *command)
    assert "--copy-to" in line
    assert "'mine.txt'" in line
    (into / "mine.txt").unlink()
    assert run(*command) == 0
    assert_sorted(into, result, photos)
    command[-2] = "--link-to"
    assert run(*command) == 1


def test_what_a_system_keeps_in_folders_is_in_nobodys_way(photos, fitted, tmp_path):
    out, into = tmp_path / "result", tmp_path / "sorted"
    command = ["fit", photos, *FIT, "--out", out, "-q", "--copy-to", into]
    for folder in (out, into):
        folder.mkdir()
        (folder / ".DS_Store").touch()
        (folder / "Thumbs.db").touch()
    assert run(*command) == 0
    assert_same_result(out, fitted)
    assert len([*into.glob("cluster-*/**/*.png")]) == 20
    (into / "cluster-0" / ".DS_Store").touch()
    assert run(*command, "--resume") == 0
    assert (into / "Thumbs.db").exists()


@needs_links
def test_a_link_to_the_image_by_another_path_is_as_good(photos, result, tmp_path):
    into = tmp_path / "sorted"
    command = ["fit", photos, "--out", result, "--resume", "-q", "--link-to", into]
    assert run(*command) == 0
    row = table(result / "clusters.csv")[0]
    made = into / f"cluster-{row['cluster']}" / row["file"]
    made.unlink()
    made.symlink_to(os.path.relpath(photos / row["file"], made.parent))
    assert run(*command) == 0
    assert_sorted(into, result, photos)
    made.unlink()
    made.symlink_to(photos / "notes.txt")
    assert run(*command) == 1


def test_links_that_cannot_be_made_are_refused_before_the_fit(
    photos, tmp_path, monkeypatch, capsys
):
    def forbid(source, target):
        raise OSError(errno.EPERM, "A required privilege is not held", source)

    monkeypatch.setattr(os, "symlink", forbid)
    links = ["--link-to", tmp_path / "new" / "links"]
    line = refused(capsys, 2, "fit", photos, *FIT, "--out", tmp_path / "out", *links)
    assert "--link-to: no links can be made in " in line
    assert "A required privilege is not held; --copy-to makes copies" in line
    assert not os.listdir(tmp_path)


@needs_links
def test_photos_that_are_gone_are_named_and_the_rest_is_sorted(
    photos, tmp_path, monkeypatch, capsys
):
    copied = shutil.copytree(photos, tmp_path / "photos")
    out, copies, links = (tmp_path / name for name in ("result", "copies", "links"))
    fit, gone = MiCEClustering.fit, [HARD[0], NAMES[3]]

    def lose(self, X):
        for name in gone:
            (copied / name).unlink()
        return fit(self, X)

    monkeypatch.setattr(MiCEClustering, "fit", lose)
    command = ["fit", copied, *FIT, "--out", out, "--copy-to", copies]
    assert run(*command, "--link-to", links, "-q") == 0
    warned = capsys.readouterr().err.splitlines()[-1]
    assert warned.startswith("sk-mice: warning: 2 images cannot be sorted")
    assert repr(HARD[0]) in warned
    assert repr(NAMES[3]) in warned
    assert run_of(out)["finished"]
    for folder in (copies, links):
        assert len([*folder.rglob("*.png")]) == 18
    assert run(*command, "--resume", "-q") == 0


def test_a_photo_that_may_not_be_read_is_not_called_gone(
    photos, result, tmp_path, monkeypatch, capsys
):
    def forbid(source, target):
        raise PermissionError(errno.EACCES, "Permission denied", source)

    monkeypatch.setattr("sk_mice._cli.sorting._copy", forbid)
    command = ["fit", photos, "--out", result, "--resume", "-q"]
    line = refused(capsys, 1, *command, "--copy-to", tmp_path / "sorted")
    assert "Permission denied" in line


def test_a_full_disk_names_the_file(photos, result, tmp_path, monkeypatch, capsys):
    into = tmp_path / "sorted"

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    command = ["fit", photos, "--out", result, "--resume", "-q", "--copy-to", into]
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfileobj", full)
        line = refused(capsys, 1, *command)
    assert repr(str(into))[:-1] in line
    assert "No space left on device" in line
    assert run(*command) == 0


@needs_links
@pytest.mark.parametrize(
    ("copy_to", "link_to", "option"),
    [
        ("a", "a", "--link-to"),
        ("a", "a/b", "--link-to"),
        ("a/b", "link-to-a", "--link-to"),
        ("out", None, "--copy-to"),
        (None, "out", "--link-to"),
        (None, ".", "--link-to"),
        ("out/checkpoint/a", None, "--copy-to"),
        (None, "out/clusters.csv", "--link-to"),
    ],
)
def test_folders_that_lie_in_each_other_are_refused_before_the_fit(
    photos, tmp_path, capsys, copy_to, link_to, option
):
    (tmp_path / "link-to-a").symlink_to(tmp_path / "a")
    sort = []
    if copy_to is not None:
        sort += ["--copy-to", tmp_path / copy_to]
    if link_to is not None:
        sort += ["--link-to", tmp_path / link_to]
    out = tmp_path / "out"
    line = refused(capsys, 2, "fit", photos, *FIT, "--out", out, *sort)
    assert f"{option}: " in line
    assert [path.name for path in tmp_path.iterdir()] == ["link-to-a"]


def test_folders_of_windows_are_told_apart(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(os, "path", ntpath)
        patch.setattr(results, "Path", PureWindowsPath)
        assert not results.lies_in(r"D:\photos\result", r"C:\photos")
        assert not results.lies_in(r"C:\photos-result", r"C:\photos")
        assert results.lies_in(r"C:\Photos\result", r"C:\photos")
        assert results.lies_in(r"C:\photos", r"C:\photos")


def test_a_drive_that_is_not_there_is_refused(monkeypatch):
    asked = []

    def lexists(path):
        asked.append(path)
        assert len(asked) < 9
        return False

    monkeypatch.setattr(os.path, "lexists", lexists)
    monkeypatch.setattr(os.path, "isdir", lexists)
    with pytest.raises(results.BadParameter, match="is not a folder"):
        results.check_folder("/a/b", "--out")


def test_images_may_be_sorted_into_the_folder_of_the_result(photos, tmp_path):
    out = tmp_path / "out"
    command = ["fit", photos, *FIT, "--out", out, "-q", "--copy-to", out / "sorted"]
    assert run(*command) == 0
    assert_sorted(out / "sorted", out, photos)


@pytest.mark.parametrize("swallowed", [(), KeyboardInterrupt])
def test_ctrl_c_within_imports_is_said(
    photos, tmp_path, monkeypatch, capsys, swallowed
):
    def press(*args, **kwargs):
        with suppress(swallowed):  # as of C extensions
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(fitting, "Request", press)
    assert run("fit", photos, *FIT, "--out", tmp_path / "result") == 130
    assert capsys.readouterr().err == "sk-mice: stopped\n"


# --------------------------------------------------------------- predict, report, score


def test_images_without_colours_are_grey(fitted, tmp_path, pages, capsys):
    rng = np.random.default_rng(0)
    (tmp_path / "grey").mkdir()
    for k in range(20):
        grey = rng.integers(0, 256, (8, 8), np.uint8)
        stored = grey if k % 2 else np.stack([grey] * 3, axis=-1)
        Image.fromarray(stored).save(tmp_path / "grey" / f"{k:02}.png")
    out = tmp_path / "result"
    assert run("fit", tmp_path / "grey", *FIT, "--out", out) == 0
    assert "20 grey images of 8 x 8" in capsys.readouterr().err
    # The model decides how images are read later.
    write_image(tmp_path / "grey" / "colours.png", rng)
    assert run("predict", out, tmp_path / "grey", "--out", tmp_path / "new.csv") == 0
    assert "21 grey images of 8 x 8" in capsys.readouterr().err
    new, old = table(tmp_path / "new.csv"), table(out / "clusters.csv")
    assert [row["cluster"] for row in new[:20]] == [row["cluster"] for row in old]
    assert run("report", fitted, tmp_path / "grey") == 0
    assert [X.shape for _, X, _ in pages] == [(20, 8, 8), (21, 8, 8, 3)]


@pytest.mark.filterwarnings("error:No value of the images with 16 bits")
@pytest.mark.parametrize("options", [(), ("--features", "efficientnet-lite0")])
def test_white_of_images_with_12_bits(options, tmp_path, pages, capsys):
    rng, folder = np.random.default_rng(0), tmp_path / "scans"
    folder.mkdir()
    for k in range(12):
        grey = rng.integers(0, 4096, (8, 8), np.uint16)
        Image.fromarray(grey).save(folder / f"{k:02}.tif")
    fit = FIT if not options else ("--clusters", "2", "--image-size", "32")
    out = ("--out", tmp_path / "result")
    assert run("fit", folder, *fit, *options, *out, "--white", "4095") == 0
    assert run("report", out[1], folder) == 0
    assert run("predict", out[1], folder, "-q") == 0
    assert [X.max() > 250 for _, X, _ in pages] == [True, True]
    assert run("fit", folder, *out, "--resume", "--white", "9") == 2
    assert "--white: it was 4095 in the run" in capsys.readouterr().err


def test_predict_repeats_the_table_on_stdout_and_in_a_file(
    photos, fitted, tmp_path, capsysbinary
):
    assert run("predict", fitted, photos, "-q") == 0
    stdout = capsysbinary.readouterr().out
    assert stdout == (fitted / "clusters.csv").read_bytes()
    assert b"caf\xe9.png" in stdout
    out = tmp_path / "new.csv"
    assert run("predict", fitted, photos, "-q", "--out", out) == 0
    assert out.read_bytes() == stdout
    assert run("predict", fitted, photos, "-q", "--out", out) == 2
    assert run("predict", fitted, photos, "-q", "--out", out, "--overwrite") == 0


def test_names_survive_json(photos, fitted, capsys):
    assert run("predict", fitted, photos, "-q", "--json") == 0
    stdout = capsys.readouterr().out
    assert stdout.isascii()
    files = [row["file"] for row in json.loads(stdout)["images"]]
    assert set(HARD) < set(files)


def test_report_writes_the_page_again(photos, fitted, capsys, pages):
    assert run("report", fitted, photos) == 0
    ((reading, X, names),) = pages
    assert len(X) == len(names) == len(reading.labels) == 20
    assert capsys.readouterr().out == f"{fitted / 'report.html'}\n"


def test_the_page_of_a_fit_is_that_of_report_and_names_no_folder(
    photos, tmp_path, monkeypatch
):
    monkeypatch.setattr(fitting, "draw_page", draw_page)
    out, texts = tmp_path / "result", []
    for command in (("fit", photos, *FIT, "--out", out), ("report", out, photos)):
        assert run(*command, "--quiet") == 0
        text = (out / "report.html").read_text(encoding="utf-8")
        assert str(tmp_path) not in text
        texts.append(text.replace(re.search("'nonce-([^']*)'", text)[1], ""))
    assert texts[0] == texts[1]


def write_table(path, header, rows):
    path.write_bytes(tables.as_csv(rows, header))
    return path


def test_score_joins_by_file_and_names_what_is_missing(tmp_path, capsys):
    rows = [[name, k // 2, 1.0, 1, 1.0] for k, name in enumerate("abcdef")]
    rows += [[HARD[0], 0, 1.0, 1, 1.0]]
    clusters = write_table(tmp_path / "clusters.csv", tables.HEADER, rows)
    truth = [[HARD[0], "cat"], ["f", "dog"], ["e", "dog"], ["d", "cat"], ["c", "cat"]]
    truth += [["b", "cat"], [HARD[2], "cat"]]
    truth = write_table(tmp_path / "truth.csv", ["file", "class"], truth)
    assert run("score", clusters, truth, "--json") == 0
    stdout, stderr = capsys.readouterr()
    facts = json.loads(stdout)
    assert facts["files"] == 6
    assert facts["ACC"] == pytest.approx(4 / 6)
    first, *_, last = facts["matching"]
    assert first["files"] == 2
    assert last == {"cluster": "2", "class": "dog", "files": 2, "of_the_class": 2}
    assert sum(row["class"] is None for row in facts["matching"]) == 1
    assert "'a'" in stderr
    assert repr(HARD[2]) in stderr
    assert run("score", clusters, truth) == 0
    assert "ACC  0.667" in capsys.readouterr().out


def test_score_takes_names_as_macs_windows_or_spreadsheets_write_them(tmp_path, capsys):
    rows = [["e\u0301", 0], ["\u00fc", 0], ["u\u0308", 1], ["a/b/n", 1]]
    clusters = write_table(tmp_path / "clusters.csv", ["file", "cluster"], rows)
    rows = [["\u00e9", "a"], ["\u00fc", "a"], ["u\u0308", "b"], ["a\\b\\n", "b"]]
    truth = write_table(tmp_path / "truth.csv", ["file", "class"], rows)
    assert run("score", clusters, truth, "--json") == 0
    stdout, stderr = capsys.readouterr()
    facts = json.loads(stdout)
    assert (facts["files"], facts["ACC"], stderr) == (4, 1, "")


def test_score_shows_what_is_not_printed_as_escapes(tmp_path, capsys):
    path = tmp_path / "clusters.csv"
    write_table(path, ["file", "cluster"], [["a", "x\n\x1b[31m"], ["b", "é"]])
    assert run("score", path, path) == 0
    out = capsys.readouterr().out
    assert r"x\n\x1b[31m        1" in out
    assert "é" in out
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"name,class\na,b\n", "`file`"),
        (b"", "`file`"),
        (b"file,class\na,b,c\n", "row 2 has 3"),
        (b"file,class\na,b\na,c\n", "'a' twice"),
        (b"file,class\nz,b\n", "no file in common"),
        (b'file,class\n"a,b\n', "truth.csv"),
    ],
)
def test_score_names_the_table_that_is_wrong(tmp_path, capsys, content, words):
    clusters = write_table(tmp_path / "clusters.csv", ["file", "cluster"], [["a", 1]])
    (tmp_path / "truth.csv").write_bytes(content)
    assert run("score", clusters, tmp_path / "truth.csv") == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert words in last
    assert "truth.csv" in last


@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_score_takes_what_spreadsheets_write(tmp_path, start, end):
    rows = [f"{start}file;class", "a;x", '"b;c";y', ";", ""]
    path = tmp_path / "truth.csv"
    path.write_text(end.join(rows), encoding="utf-8", newline="")
    assert tables.read_column(path, ["class"]) == {"a": "x", "b;c": "y"}


def test_score_takes_what_is_not_utf_8_on_windows_too(tmp_path, monkeypatch):
    path = tmp_path / "truth.csv"
    path.write_bytes("file;class\na;Käfer\n".encode("cp1252"))
    strict = functools.partial(bytes.decode, errors="surrogatepass")
    monkeypatch.setattr(os, "fsdecode", strict)
    assert tables.read_column(path, ["class"]) == {"a": "K\udce4fer"}


def test_score_leaves_out_rows_without_a_class(tmp_path, capsys):
    rows = [[name, k // 2] for k, name in enumerate("abcdef")]
    header = ["file", "cluster"]
    clusters = write_table(tmp_path / "clusters.csv", header, [*rows, ["g", ""]])
    classes = ["cat", "cat", "dog", "", "dog", " ", "cat"]
    pairs = [[*pair] for pair in zip("abcdefg", classes, strict=True)]
    truth = write_table(tmp_path / "truth.csv", ["file", "class"], pairs)
    assert run("score", clusters, truth, "--json") == 0
    stdout, stderr = capsys.readouterr()
    facts = json.loads(stdout)
    assert facts["files"] == 4
    assert facts["ACC"] == 0.75
    assert stderr.splitlines() == [
        f"sk-mice: warning: 1 file of {str(clusters)!r} has no cluster and does not "
        "count",
        f"sk-mice: warning: 2 files of {str(truth)!r} have no class and do not count",
    ]
    pairs = [[name, ""] for name in "abcdef"]
    truth = write_table(tmp_path / "truth.csv", ["file", "class"], pairs)
    assert run("score", clusters, truth) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert "no file in common that has a cluster and a class" in last


# ----------------------------------------------------------------------------- choose-k


def test_choose_k_prints_a_table_and_a_sentence_and_draws(photos, tmp_path, capsys):
    plot = tmp_path / "plot.png"
    numbers = ("--from", 2, "--to", 2, "--repeats", 2)
    options = ("--epochs", 1, "--image-size", 8, "--out", plot)
    assert run("choose-k", photos, *numbers, *options) == 0
    stdout = capsys.readouterr().out
    with Image.open(plot) as picture:
        assert picture.format == "PNG"
    sentence = stdout.splitlines()[-2]
    assert sentence.startswith("Take ")
    assert stdout.splitlines()[0].split() == ["clusters", "stability", "silhouette"]
    assert run("choose-k", photos, *numbers, *options) == 2  # the plot exists
    assert "--to" in refused_last(capsys, "choose-k", photos, "--from", 5, "--to", 4)
    among = photos / "plot.png"  # where the next command would take it for an image
    assert "lies in" in refused_last(capsys, "choose-k", photos, "--out", among)
    assert (
        run("choose-k", photos, *numbers, *NETWORK, "--out", plot, "--overwrite") == 0
    )
    assert capsys.readouterr().out.splitlines()[-2].startswith("Take ")


def test_options_reach_what_choose_k_compares(photos, tmp_path, monkeypatch):
    asked = []

    def choose(*args, **options):
        asked.append((*args, options))
        raise ValueError("enough")

    monkeypatch.setattr(choosing, "choose_n_clusters", choose)
    command = ("choose-k", photos, "--out", tmp_path / "plot.png", "-q")
    numbers = ("--from", 3, "--to", 4, "--repeats", 2, "--seed", 7)
    options = ("--epochs", 5, "--device", "cpu", "--image-size", 8)
    assert run(*command, *numbers, *options) == 1
    ((mice, X, candidates, others),) = asked
    assert (mice.max_epochs, mice.device, X.shape) == (5, "cpu", (20, 8, 8, 3))
    assert [*candidates] == [3, 4]
    assert others == {"n_repeats": 2, "random_state": 7, "verbose": 0}


def test_ctrl_c_leaves_the_choice_of_the_whole_splits(
    photos, tmp_path, monkeypatch, capsys
):
    plot, fit, fits = tmp_path / "plot.png", MiCEClustering.fit, []

    def pressed(self, X):
        fits.append(self)
        if len(fits) == 6:
            signal.raise_signal(signal.SIGINT)
        return fit(self, X)

    monkeypatch.setattr(MiCEClustering, "fit", pressed)
    numbers = ("--from", 2, "--to", 2, "--repeats", 9, "--epochs", 1)
    assert run("choose-k", photos, *numbers, "--image-size", 8, "--out", plot) == 130
    stdout, stderr = capsys.readouterr()
    assert "Take 2 clusters, " in stdout
    assert stderr.splitlines()[-1] == "Stopped after 2 of 9 splits."
    assert plot.exists()
    fits.clear()
    numbers = ("--from", 2, "--to", 9, "--repeats", 9, "--epochs", 1)
    plot = tmp_path / "other.png"
    assert run("choose-k", photos, *numbers, "--image-size", 8, "--out", plot) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "sk-mice: stopped"
    assert not plot.exists()


def test_too_many_clusters_are_refused_before_features(
    photos, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(choosing, "fitted_network", lambda *args: 1 / 0)
    network = ("--features", "efficientnet-lite0", "--out", tmp_path / "plot.png")
    last = refused_last(capsys, "choose-k", photos, *network, "--to", 11)
    assert "--to: it must be at most half the number of images, 10; got 11" in last


def test_warnings_leave_the_line_of_the_bar_and_name_options(
    photos, tmp_path, monkeypatch, capsys
):
    def warn(self, X):
        self.cluster_sizes_ = np.array([0, len(X)])
        self._warn_of_empty_clusters(0)
        _check_finite(torch.tensor(torch.nan))

    monkeypatch.setattr(MiCEClustering, "fit", warn)
    monkeypatch.setattr(Progress, "verbose", 1)
    options = ("--image-size", 8, "--to", 3, "--out", tmp_path / "plot.png")
    assert run("choose-k", photos, *options) == 1
    stderr = capsys.readouterr().err
    lines = [line for part in stderr.splitlines() for line in part.split("\r")]
    warned = "sk-mice: warning: Empty clusters: 1 of 2. Try fewer clusters, a longer "
    (line,) = [line for line in lines if line.startswith(warned)]
    assert "--epochs" in line
    assert "--seed" in line
    assert lines[-1].startswith("sk-mice: error: ")
    assert "--seed" in lines[-1]
    assert "`lr`" not in stderr
    assert "init`" not in stderr


def refused_last(capsys, *arguments):
    assert run(*arguments) == 2
    return capsys.readouterr().err.splitlines()[-1]


# --------------------------------------------------------------------------- the shell


def test_help_has_examples(capsys):
    for command in ("fit", "predict", "report", "score", "choose-k"):
        assert run(command, "--help") == 0
        assert f"  sk-mice {command} " in capsys.readouterr().out
    assert run("--version") == 0


@pytest.mark.parametrize(
    ("command", "epochs"),
    [("fit", fitting.DEFAULTS["epochs"]), ("choose-k", choosing.EPOCHS)],
)
def test_help_has_the_defaults(capsys, command, epochs):
    assert run(command, "--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    defaults = fitting.DEFAULTS | {"epochs": epochs, "white": images.WHITE}
    for option in ("image-size", "epochs", "seed", "white"):
        said = re.search(rf"--{option} .*?\[default: (\d+)", text)
        assert int(said[1]) == defaults[option.replace("-", "_")], option


def test_the_command_alone_prints_its_help(capsys):
    assert run() == 0
    out, err = capsys.readouterr()
    assert out.startswith("Usage: sk-mice ")
    assert len(out.splitlines()) > 20
    assert not err


def test_where_nothing_can_be_written_is_said_before_the_work(
    photos, fitted, tmp_path, capsys, monkeypatch
):
    (tmp_path / "file").touch()
    none = tmp_path / "none" / "out"
    for command in (("predict", fitted, photos), ("choose-k", photos)):
        line = refused(capsys, 2, *command, "--out", none)
        assert f"No such folder; got {str(none)!r}" in line
        line = refused(capsys, 2, *command, "--out", tmp_path, "--overwrite")
        assert f"Is a directory; got {str(tmp_path)!r}" in line
    fit = ["fit", photos, *FIT, "--out", none]
    line = refused(capsys, 2, *fit[:-1], tmp_path / "file" / "out")
    assert f"--out: {str(tmp_path / 'file')!r} is not a folder" in line
    # The system lets root write everywhere.
    shut = tmp_path / "shut"
    shut.mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: path != str(shut))
    for option in ("--out", "--copy-to", "--link-to"):
        line = refused(capsys, 2, *fit, option, shut / "new")
        assert f"{option}: {str(shut)!r} must be writable" in line
    assert {path.name for path in tmp_path.iterdir()} == {"file", "shut"}


def test_what_libraries_print_is_not_in_the_table(
    photos, tmp_path, monkeypatch, capsysbinary
):
    from sk_mice.features import PretrainedFeatures

    transform = PretrainedFeatures.transform

    def printing(network, X):
        print("Downloading: much")
        return transform(network, X)

    out = tmp_path / "result"
    assert run("fit", photos, "--clusters", 2, "--out", out, *NETWORK, "-q") == 0
    monkeypatch.setattr(PretrainedFeatures, "transform", printing)
    assert run("predict", out, photos, "-q") == 0
    stdout, stderr = capsysbinary.readouterr()
    assert stdout == (out / "clusters.csv").read_bytes()
    assert b"Downloading: much" in stderr


def test_weights_that_cannot_be_had_say_what_to_do(
    photos, tmp_path, monkeypatch, capsys
):
    import torch

    def fail(url, file, *args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr(torch.hub, "download_url_to_file", fail)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    out = ("--clusters", 2, "--out", tmp_path / "result", "-q", "--features")
    assert run("fit", photos, *out, "resnet18") == 1
    stdout, stderr = capsys.readouterr()
    assert not stdout
    last = stderr.splitlines()[-1]
    assert f"into the folder {str(tmp_path / 'hub' / 'checkpoints')!r}" in last
    assert last.endswith("or name a file with them by `weights` in Python.")
    assert not (tmp_path / "result").exists()


def shell(*arguments, **variables):
    environment = os.environ | variables
    command = [sys.executable, "-m", "sk_mice", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_the_module_is_the_command_and_shells_complete_it():
    done = shell("--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: sk-mice ")
    words = {"COMP_WORDS": "sk-mice cho", "COMP_CWORD": "1"}
    done = shell(_SK_MICE_COMPLETE="complete_bash", **words)
    assert done.stdout.split() == ["choose-k"]


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    rows = [[f"{k}.png", k % 9] for k in range(20000)]
    path = write_table(tmp_path / "clusters.csv", ["file", "cluster"], rows)
    command = [sys.executable, "-m", "sk_mice", "score", path, path, "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_a_reader_that_goes_away_on_windows(monkeypatch):
    def invalid():
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys.stdout, "flush", invalid)
    with pytest.raises(OSError, match="cannot be written: Invalid argument"):
        put("text")
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(BrokenPipeError):
        put("text")


UNWRITTEN = "sk-mice: error: The output cannot be written: "


@needs_full_device
def test_an_output_that_does_not_fit_is_said(tmp_path):
    path = write_table(tmp_path / "clusters.csv", ["file", "cluster"], [["a", 0]])
    command = [sys.executable, "-m", "sk_mice", "score", path, path]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.stderr == f"{UNWRITTEN}No space left on device.\n"
    assert done.returncode == 1


def test_an_output_that_cannot_be_written_is_said(tmp_path, monkeypatch, capsys):
    path = write_table(tmp_path / "clusters.csv", ["file", "cluster"], [["a", 0]])
    with monkeypatch.context() as patch:  # as after `>&-`
        patch.setattr(sys, "stdout", None)
        assert run("score", path, path) == 1
        assert run("score", path, tmp_path / "none.csv") == 2
    assert capsys.readouterr().err.splitlines()[0] == f"{UNWRITTEN}it is closed."
    with monkeypatch.context() as patch:  # nor do errors go to stdout after `2>&-`
        patch.setattr(sys, "stderr", None)
        assert run("score", path, tmp_path / "none.csv") == 2
    assert not capsys.readouterr().out


@needs_full_device
@pytest.mark.parametrize("target", ["/dev/full", "&-", " >(true)"])
def test_messages_that_cannot_be_written_end_no_work(target, tmp_path):
    header = ["file", "cluster"]
    path = write_table(tmp_path / "clusters.csv", header, [["a", 0], ["b", ""]])
    inner = f"{sys.executable} -m sk_mice score {path} {path} 2>{target}"
    done = subprocess.run(["bash", "-c", inner], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("1 file\n")
    assert not done.stderr


def test_a_warning_is_shown_once(fitted, tmp_path, capsys):
    for value in (100, 101):  # far nearer to each other than those of the fit
        Image.new("RGB", (8, 8), 3 * (value,)).save(tmp_path / f"{value}.png")
    assert run("predict", fitted, tmp_path, "-q") == 0
    assert capsys.readouterr().err.count("the samples are at another scale") == 1


def test_a_long_list_in_a_warning_is_shortened(capsys):
    cli._show_warning(UserWarning("\n  ".join(["Left out:", *map(str, range(3000))])))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "sk-mice: warning: Left out:"
    assert lines[-1] == "and 2980 more"
    assert len(lines) == 22


def test_a_choice_that_is_not_found_again_asks_for_no_larger_numbers():
    rows = [{"n_clusters": k, "stability_mean": 0.01 * k} for k in (2, 3, 4)]
    words = choosing.in_words(SimpleNamespace(n_clusters=4, table=rows))
    assert words.endswith("no number gives clusters that are found again reliably.")


def test_a_choice_below_the_best_says_so():
    rows = [{"n_clusters": k, "stability_mean": 0.1 * (9 - k)} for k in (2, 3)]
    words = choosing.in_words(SimpleNamespace(n_clusters=3, table=rows))
    assert "0.60, is within a standard error of the best, 0.70 at 2" in words
    assert words.endswith("It is also the largest one tried: raise --to.")
    words = choosing.in_words(SimpleNamespace(n_clusters=2, table=rows[:1]))
    assert words.endswith("the most reproducible (stability 0.70).")
