"""`sk-mice fit`: what it writes, what it refuses, and how long it trains."""

import inspect
import json
import os
import re
import sys
from unittest.mock import patch

import numpy as np
import pytest
import torch
from PIL import Image
from shared import raising
from systems import needs_locks

from sk_mice import MiCEClustering, load
from sk_mice._cli import commands, fitting, images
from sk_mice._engine.distributed import Group
from sk_mice._words import as_shown
from sk_mice.datasets import _decoding

from .calls import (
    FILES,
    FIT,
    FIT_FEATURES,
    HARD,
    NAMES,
    NETWORK,
    last_line,
    refused,
    run,
    run_of,
    table,
    write_image,
)


def test_fit_writes_a_table_a_model_a_page_and_what_it_was(photos, capsys, pages, out):
    options = ("--seed", 3, "--device", "cpu")
    assert run("fit", photos, *FIT, "--out", out, *options) == 0
    assert {path.name for path in out.iterdir()} == FILES
    rows = table(out / "clusters.csv")
    columns = ["file", "cluster", "agreement", "second_cluster", "margin"]
    assert [*rows[0]] == columns
    files = [row["file"] for row in rows]
    assert set(files) == {*NAMES[1:], *HARD, "below/deep.png"}
    ((reading, X, names),) = pages
    assert names == files
    model = load(out / "model.safetensors")
    assert (model.random_state, model.device, model.verbose) == (3, "cpu", 0)
    labels = [int(row["cluster"]) for row in rows]
    np.testing.assert_array_equal(model.predict(X), labels)
    shares = model.agreement(X)
    np.testing.assert_allclose(
        [float(row["agreement"]) for row in rows],
        shares[np.arange(len(rows)), labels],
        atol=1e-3,
    )
    np.testing.assert_array_equal(reading.labels, labels)
    for row in rows:
        assert row["second_cluster"] == str(1 - int(row["cluster"]))
        margin = 2 * float(row["agreement"]) - 1
        assert float(row["margin"]) == pytest.approx(margin, abs=1e-3)
    known = run_of(out)
    assert known["finished"]
    assert known["parameters"]["seed"] == 3
    assert known["max_epochs"] == known["results"]["epochs"] == 2
    assert known["versions"].keys() >= {"sk_mice", "torch", "pillow"}
    means = [row["agreement"] for row in known["results"]["clusters"]]
    np.testing.assert_allclose(means, reading.means, atol=1e-6)
    stdout, stderr = capsys.readouterr()
    assert f"{len(rows)} images in 2 clusters (2 epochs" in stdout
    for k, mean in enumerate(as_shown(reading.means)):
        assert re.search(rf"^ +{k} .* {mean:.2f}$", stdout, re.MULTILINE)
    assert "2 left out" in stderr
    assert "'broken.png'" in stderr
    assert "'notes.txt'" in stderr
    assert "elbo" not in stderr.lower()
    assert "%|" not in stderr  # a log has a line a minute


def test_every_option_decides_a_fit_or_says_how_it_goes():
    how = {"photos", "out", "copy_to", "link_to", "resume", "overwrite"}
    how |= {"quiet", "as_json"}
    options = inspect.signature(commands.fit).parameters.keys()
    assert options == {*how, *commands.OF_A_FIT}


@pytest.mark.parametrize(("options", "size"), [((), 160), (("--image-size", 32), 32)])
def test_what_is_left_to_the_program_is_kept(photos, out, monkeypatch, options, size):
    monkeypatch.setattr(fitting, "resolve_device", lambda device: f"that of {device}")
    options = ("--features", "efficientnet-lite0", *options)
    assert run("fit", photos, "--clusters", 2, *options, "--out", out, "-q") == 0
    known = run_of(out)
    assert known["features"]["image_size"] == size
    assert known["results"]["device"] == "that of auto"


def test_images_without_an_upper_side_are_seen_at_any_angle(photos, out):
    assert run("fit", photos, *FIT, "--out", out, "--rotate", "-q") == 0
    augmentation = load(out / "model.safetensors").augmentation_
    assert (augmentation.flip, augmentation.affine) == (True, (180, 0))
    assert run_of(out)["parameters"]["rotate"]


def test_images_without_colours_are_grey(fitted, tmp_path, pages, capsys, out):
    rng = np.random.default_rng(0)
    (tmp_path / "grey").mkdir()
    for k in range(20):
        grey = rng.integers(0, 256, (8, 8), np.uint8)
        stored = grey if k % 2 else np.stack([grey] * 3, axis=-1)
        Image.fromarray(stored).save(tmp_path / "grey" / f"{k:02}.png")
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


ON_PIXELS_AND_FEATURES = pytest.mark.parametrize(
    "fit", [FIT, FIT_FEATURES], ids=["pixels", "features"]
)


def write_images(folder, ending, images):
    folder.mkdir()
    for k, pixels in enumerate(images):
        Image.fromarray(pixels).save(folder / f"{k:02}{ending}")


@pytest.mark.filterwarnings("error:No value of the images with 16 bits")
@ON_PIXELS_AND_FEATURES
def test_white_of_images_with_12_bits(fit, tmp_path, pages, capsys):
    rng, folder = np.random.default_rng(0), tmp_path / "scans"
    write_images(folder, ".tif", rng.integers(0, 4096, (12, 8, 8), np.uint16))
    out = ("--out", tmp_path / "result")
    assert run("fit", folder, *fit, *out, "--white", "4095") == 0
    assert run("report", out[1], folder) == 0
    assert run("predict", out[1], folder, "-q") == 0
    assert [X.max() > 250 for _, X, _ in pages] == [True, True]
    assert run("fit", folder, *out, "--resume", "--white", "9") == 2
    assert "--white: it was 4095 in the run" in capsys.readouterr().err


@ON_PIXELS_AND_FEATURES
def test_white_drawings_need_a_background(fit, tmp_path, pages, capsys):
    rng, folder = np.random.default_rng(0), tmp_path / "icons"
    shapes = 255 * rng.integers(0, 2, (12, 8, 8), np.uint8)
    write_images(folder, ".png", np.stack([shapes] * 4, axis=-1))
    command, out = ("fit", folder, *fit, "--out"), tmp_path / "result"
    assert run(*command, out) == 0
    said = capsys.readouterr().err
    hidden = f": 12; one is {str(folder / '00.png')!r}. Fit with another --background"
    assert f"{hidden}, such as black.\n" in said
    assert said.count("transparent pixels") == 1
    assert run(*command, out, "--background", "black", "--overwrite") == 0
    assert run("report", out, folder) == 0
    assert run("predict", out, folder, "-q") == 0
    assert [X.min() for _, X, _ in pages] == [255, 0, 0]
    captured = capsys.readouterr()
    assert "transparent pixels" not in captured.err
    assert captured.out.endswith((out / "clusters.csv").read_text())
    assert run("fit", folder, "--out", out, "--resume", "--background", "red") == 2
    assert "--background: it was black in the run" in capsys.readouterr().err


@ON_PIXELS_AND_FEATURES
def test_stretched_images_are_seen_to_their_ends(fit, tmp_path, pages, capsys):
    rng, folder = np.random.default_rng(0), tmp_path / "wide"
    images = rng.integers(0, 99, (12, 8, 32), np.uint8)
    images[:, :, :4] = 255
    write_images(folder, ".png", images)
    command, out = ("fit", folder, *fit, "--out"), tmp_path / "result"
    assert run(*command, out) == 0
    assert run(*command, out, "--resize", "stretch", "--overwrite") == 0
    assert run("report", out, folder) == 0
    assert run("predict", out, folder, "-q") == 0
    assert [X.max() > 150 for _, X, _ in pages] == [False, True, True]
    assert capsys.readouterr().out.endswith((out / "clusters.csv").read_text())
    assert run("fit", folder, "--out", out, "--resume", "--resize", "crop") == 2
    assert "--resize: it was stretch in the run" in capsys.readouterr().err
    assert run(*command, out, "--resize", "pad") == 2
    said = capsys.readouterr().err
    assert "value for '--resize': 'pad' is not one of 'crop', 'stretch'." in said


def test_few_images_get_more_epochs_by_default(photos, out, monkeypatch):
    epochs = [fitting.enough_epochs(n) for n in (2, 400, 1024, 1025)]
    assert epochs == [1000, 500, 250, 200]
    monkeypatch.setitem(fitting.DEFAULTS, "epochs", 2)
    monkeypatch.setattr(fitting, "STEPS", 3)
    short = ("--clusters", 2, "--image-size", 8, "--out", out, "-q")
    assert run("fit", photos, *short) == 0
    known = run_of(out)
    assert known["parameters"]["epochs"] == known["max_epochs"] == 3
    assert run("fit", photos, *short, "--epochs", 1, "--overwrite") == 0
    assert run_of(out)["max_epochs"] == 1
    assert run("fit", photos, *short, *NETWORK[:2], "--overwrite") == 0
    assert run_of(out)["max_epochs"] is None


@ON_PIXELS_AND_FEATURES
def test_few_images_are_larger_on_the_page(fit, tmp_path, pages, monkeypatch):
    folder, out = tmp_path / "large", tmp_path / "result"
    rng = np.random.default_rng(0)
    write_images(folder, ".png", rng.integers(0, 256, (12, 100, 150), np.uint8))
    command = ("fit", folder, *fit, "-q", "--overwrite", "--out")
    judged = fitting.judged
    assert run(*command, out) == 0
    assert run("report", out, folder, "-q") == 0

    def judged_as_one_goes(*args):
        (folder / "05.png").unlink()
        return judged(*args)

    def judged_as_memory_gets_short(*args):
        context.setattr(_decoding, "available_memory", lambda: 1000)
        return judged(*args)

    for changed in judged_as_one_goes, judged_as_memory_gets_short:
        with monkeypatch.context() as context:
            context.setattr(fitting, "judged", changed)
            assert run(*command, out) == 0
    monkeypatch.setattr(images, "FEW", 10)
    assert run(*command, out) == 0
    n_rows = [len(X) for _, X, _ in pages]
    assert n_rows == [12, 12, 12, 11, 11]
    large, again, gone, short, many = [X.shape[1] for _, X, _ in pages]
    assert large == again == 100
    assert gone == short == many < 100


def test_minutes_become_epochs_that_hold(photos, tmp_path, monkeypatch, capsys, out):
    short = ["--clusters", "2", "--image-size", "8", "--out", out]
    monkeypatch.setattr(fitting, "epochs_within", lambda *args: 2)
    with patch.object(fitting, "_write", lambda *args: 1 / 0):
        assert run("fit", photos, *short, "--minutes", 0.05) == 1
    assert "2 epochs fit into 0.05 min" in capsys.readouterr().err
    monkeypatch.setattr(fitting, "epochs_within", lambda *args: 0)
    assert run("fit", photos, *short[:-1], tmp_path / "one", "--minutes", 0.05) == 0
    assert (
        "An epoch takes more than 0.05 min: training one epoch"
        in capsys.readouterr().err
    )
    monkeypatch.setattr(fitting, "epochs_within", lambda *args: 1 / 0)
    assert run("fit", photos, *short, "--minutes", 0.05, "--resume") == 0
    assert run_of(out)["results"]["epochs"] == 2


def test_the_probe_grows_with_the_time(monkeypatch):
    X = np.random.default_rng(0).normal(size=(60, 4))
    mice = MiCEClustering(2, random_state=0)
    assert fitting.epochs_within(mice, X, 0, Group()) == 0
    assert fitting.epochs_within(mice, X, 600, Group()) > 100
    assert not hasattr(mice, "labels_")
    monkeypatch.setattr(fitting, "PROBE_SAMPLES", 1)  # fewer than there are clusters
    assert fitting.epochs_within(mice, X, 0, Group()) == 0


def test_the_probe_does_not_warn_of_its_own_clusters(recwarn):
    X = np.repeat(np.eye(2), 30, axis=0)  # two samples, 30 times each
    fitting.epochs_within(MiCEClustering(8, random_state=0), X, 600, Group())
    assert not recwarn.list


# -------------------------------------------------------------- refused before the work


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
        (["--clusters", "2", "--background", "dim"], "--background: it must be"),
        (["--clusters", "2", "--unequal"], "--unequal: it needs --features"),
        (
            ["--clusters", "2", "--rotate", "--features", "efficientnet-lite0"],
            "--rotate: it contradicts --features",
        ),
    ],
)
def test_wrong_options_are_named(photos, out, capsys, arguments, words):
    arguments = ["fit", photos, "--out", out, *arguments]
    if "30" in arguments:  # comes after the images are read, which says more
        assert run(*arguments) == 2
        assert words in last_line(capsys)
    else:
        assert words in refused(capsys, 2, *arguments)
    assert not out.exists()


def test_a_length_of_training_is_refused_where_nothing_trains(photos, tmp_path, capsys):
    network = ("--features", "efficientnet-lite0")
    out = ("--clusters", 2, "--out", tmp_path / "result")
    for length in ("--epochs", "--minutes"):
        line = refused(capsys, 2, "fit", photos, *network, *out, length, 2)
        assert f"{length}: it contradicts --features" in line
    plot = ("--out", tmp_path / "plot.png", "--epochs", 2)
    assert "--epochs" in refused(capsys, 2, "choose-k", photos, *network, *plot)
    assert not [*tmp_path.iterdir()]


def test_wrong_folders_are_named(photos, fitted, tmp_path, capsys, out):
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


def test_where_nothing_can_be_written_is_said_before_the_work(
    photos, fitted, tmp_path, capsys, monkeypatch
):
    (tmp_path / "file").touch()
    none = tmp_path / "none" / "out"
    line = refused(capsys, 2, "predict", fitted, photos, "--out", none)
    assert f"No such folder; got {str(none)!r}" in line
    for command in (("predict", fitted, photos), ("choose-k", photos)):
        line = refused(capsys, 2, *command, "--out", tmp_path, "--overwrite")
        assert f"--out: {str(tmp_path)!r} is a folder; name a file in it" in line
    fit = ["fit", photos, *FIT, "--out", none]
    for command in (fit[:-1], ("choose-k", photos, "--out")):
        line = refused(capsys, 2, *command, tmp_path / "file" / "out" / "new.png")
        assert f"--out: {str(tmp_path / 'file')!r} is not a folder" in line
    # The system lets root write everywhere.
    shut = tmp_path / "shut"
    shut.mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: path != str(shut))
    for option in ("--out", "--copy-to", "--link-to"):
        line = refused(capsys, 2, *fit, option, shut / "new")
        assert f"{option}: {str(shut)!r} must be writable" in line
    assert {path.name for path in tmp_path.iterdir()} == {"file", "shut"}


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


SIMILAR = {"parameters": {}, "max_epochs": 9, "images": {}, "finished": False}


@pytest.mark.parametrize(
    "content",
    [
        *("{}", "[]", "null", '{"finished": true}', "{"),
        json.dumps(SIMILAR | {"versions": {"other": "1.0"}}),
        json.dumps(SIMILAR | {"versions": {"sk_mice": "1.0"}, "finished": True}),
    ],
)
def test_a_run_of_something_else_is_left_alone(photos, capsys, content, out):
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


@needs_locks
@pytest.mark.parametrize("way", [[], ["--resume"], ["--overwrite"]])
def test_one_run_at_a_time_writes_to_a_folder(photos, out, monkeypatch, way):
    train, codes = fitting._train, []

    def meanwhile(*args):
        codes.append(run("fit", photos, *FIT, "--out", out, "-q", *way))
        return train(*args)

    monkeypatch.setattr(fitting, "_train", meanwhile)
    assert run("fit", photos, *FIT, "--out", out, "-q") == 0
    assert codes == [2]
    assert len(table(out / "clusters.csv")) == 20


# ------------------------------------------------------------------------------- errors


def test_what_fails_names_the_option_and_leaves_nothing(
    photos, tmp_path, monkeypatch, capsys, out
):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run("fit", empty, *FIT, "--out", out) == 1
    assert repr(str(empty)) in last_line(capsys)
    fail = raising(ValueError, "`max_epochs` must be another")
    monkeypatch.setattr(MiCEClustering, "fit", fail)
    assert run("fit", photos, *FIT, "--out", out) == 1
    assert "--epochs must be another" in last_line(capsys)
    assert not out.exists()


def test_an_empty_folder_of_the_users_stays(photos, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    monkeypatch.setattr(fitting, "read_images", lambda *args: 1 / 0)
    for name in ("mine", "ours"):
        assert run("fit", photos, *FIT, "--out", tmp_path / name, "-q") == 1
    assert os.listdir(tmp_path) == ["mine"]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    ],
    ids=["python", "cpu", "gpu"],
)
def test_too_little_memory_is_no_bug(photos, out, monkeypatch, capsys, error):
    def fail(*args):
        raise error

    monkeypatch.setattr(fitting, "read_images", fail)
    said = refused(capsys, 1, "fit", photos, *FIT, "--out", out)
    assert said == f"sk-mice: error: Not enough memory. {error}".rstrip()


def test_images_that_are_too_many_are_refused(photos, out, monkeypatch, capsys):
    monkeypatch.setattr(_decoding, "available_memory", lambda: 1000)
    said = refused(capsys, 1, "fit", photos, *FIT, "--out", out, "-q")
    assert "Try fewer images, or without --features a smaller --image-size" in said


def test_a_bug_is_one_line_too_unless_it_is_traced(photos, out, monkeypatch, capsys):
    fail = raising(KeyError, "nobody\nknows")
    monkeypatch.setattr(fitting, "read_images", fail)
    arguments = ["fit", photos, *FIT, "--out", out]
    assert "SK_MICE_TRACEBACK" in refused(capsys, 1, *arguments)
    monkeypatch.setenv("SK_MICE_TRACEBACK", "1")
    with pytest.raises(KeyError):
        run(*arguments)
