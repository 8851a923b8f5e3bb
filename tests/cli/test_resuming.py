"""`--resume` and `--overwrite`, after Ctrl-C, a kill, or a whole fit."""

import errno
import json
import shutil
import signal
from contextlib import suppress
from unittest.mock import patch

import pytest
from shared import raising
from systems import needs_links

from sk_mice import MiCEClustering
from sk_mice._cli import fitting, results, tables

from .calls import (
    FILES,
    FIT,
    HARD,
    NAMES,
    assert_same_files,
    assert_same_result,
    interrupted,
    last_line,
    press_ctrl_c,
    refused,
    run,
    run_of,
    table,
)


class Stop(Exception):
    """Kills a fit."""


killed = raising(Stop)


def fit_of_another_seed(photos, out):
    return ["fit", photos, *FIT, "--out", out, "--seed", 1, "-q"]


@pytest.fixture
def other(photos, result):
    """A fit into the folder of a result, which is of another seed."""
    return fit_of_another_seed(photos, result)


def test_a_killed_fit_goes_on_and_ends_as_if_never_killed(
    photos, fitted, tmp_path, capsys, out
):
    with patch.object(MiCEClustering, "_train", killed):  # after the first stage
        assert run("fit", photos, *FIT, "--out", out, "-q") == 1
    assert [*(out / "checkpoint").iterdir()]
    assert not run_of(out / "checkpoint")["finished"]
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


def test_ctrl_c_leaves_clusters_and_a_fit_that_goes_on(
    photos, fitted, tmp_path, capsys, out
):
    copies = tmp_path / "copies"
    with patch.object(fitting, "estimator", interrupted):
        command = ["fit", photos, *FIT, "--out", out, "--copy-to", copies]
        assert run(*command, "--json") == 130
    stdout, stderr = capsys.readouterr()
    assert not json.loads(stdout)["complete"]
    last = "Stopped after 1 of 2 epochs. The same command with --resume goes on."
    assert stderr.splitlines()[-1] == last
    assert len(table(out / "clusters.csv")) == 20
    assert not copies.exists()
    assert run(*command, "--resume") == 0
    assert " s since --resume)" in capsys.readouterr().out
    assert_same_result(out, fitted)
    assert len([*copies.rglob("*.png")]) == 20


def test_ctrl_c_before_the_first_epoch_leaves_a_fit_to_begin(
    photos, tmp_path, monkeypatch, capsys, out
):
    monkeypatch.setattr(fitting, "epochs_within", press_ctrl_c)
    command = ["fit", photos, "--clusters", 2, "--minutes", 1, "--out", out]
    assert run(*command) == 130
    assert "--resume" in last_line(capsys)
    monkeypatch.setattr(fitting, "epochs_within", lambda *args: 1)
    assert run(*command, "--resume") == 0
    monkeypatch.setattr(fitting, "read_images", press_ctrl_c)
    assert run("fit", photos, *FIT, "--out", tmp_path / "other") == 130
    assert last_line(capsys) == "sk-mice: stopped"


@pytest.mark.parametrize("swallowed", [(), KeyboardInterrupt])
def test_ctrl_c_within_imports_is_said(photos, out, monkeypatch, capsys, swallowed):
    def press(*args, **kwargs):
        with suppress(swallowed):  # as of C extensions
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(fitting, "Request", press)
    assert run("fit", photos, *FIT, "--out", out) == 130
    assert capsys.readouterr().err == "sk-mice: stopped\n"


def test_a_folder_that_has_moved_goes_on_and_names_its_files(
    photos, fitted, tmp_path, capsys, out
):
    moved = tmp_path / "moved"
    with patch.object(MiCEClustering, "_train", press_ctrl_c):
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


def test_resume_begins_where_there_is_nothing(photos, fitted, out):
    assert run("fit", photos, *FIT, "--out", out, "--resume", "-q") == 0
    assert_same_result(out, fitted)


def test_resume_without_a_run_needs_the_number_of_clusters(photos, tmp_path, capsys):
    last = refused(capsys, 2, "fit", photos, "--out", tmp_path / "new", "--resume")
    assert "--clusters: no number is given, and " in last
    assert "new' holds no run to go on with" in last


# -------------------------------------------------------------------- a complete result


def test_resume_refuses_other_images(photos, result, tmp_path, capsys):
    unfinished = run_of(result) | {"finished": False}
    (result / "run.json").write_text(json.dumps(unfinished))
    fewer = shutil.copytree(photos, tmp_path / "fewer")
    (fewer / NAMES[3]).unlink()
    assert run("fit", fewer, "--out", result, "--resume", "-q") == 2
    last = last_line(capsys)
    assert "PHOTOS" in last
    assert "(19)" in last


def test_a_complete_result_sorts_no_other_images(photos, result, tmp_path, capsys):
    moved = shutil.copytree(photos, tmp_path / "moved")
    sorting = "--resume", "-q", "--copy-to"
    assert run("fit", moved, "--out", result, *sorting, tmp_path / "one") == 0
    one, other = (next(moved.rglob(name)) for name in NAMES[1:3])
    shutil.copy(one, other)  # another image of that name
    assert run("fit", moved, "--out", result, *sorting, tmp_path / "other") == 2
    assert "PHOTOS" in last_line(capsys)
    assert not (tmp_path / "other").exists()


def test_images_that_came_after_a_complete_fit_are_named(
    photos, result, tmp_path, capsys
):
    own = shutil.copytree(photos, tmp_path / "photos")
    known = run_of(result)
    known["images"]["folder"] = str(own.resolve())
    (result / "run.json").write_text(json.dumps(known))
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


def test_a_table_that_is_gone_can_be_written_again(
    photos, result, resume, tmp_path, capsys
):
    table = result / "clusters.csv"
    before = tables.read_column(table, ["cluster"])
    table.unlink()
    assert "`sk-mice predict`" in refused(capsys, 1, *resume)
    assert run("predict", result, photos, "--out", table, "-q") == 0
    assert tables.read_column(table, ["cluster"]) == before
    assert run(*resume, "--copy-to", tmp_path / "sorted") == 0


def test_a_table_without_rows_cannot_be_sorted_by(result, resume, tmp_path, capsys):
    (result / "clusters.csv").write_text("file,cluster\n")
    line = refused(capsys, 1, *resume, "--copy-to", tmp_path / "sorted")
    assert "must have a row for each image" in line


# ---------------------------------------------------------------------------- overwrite


def test_overwrite_replaces_a_result(other, result):
    assert run(*other, "--overwrite", "--resume") == 2
    assert run(*other, "--overwrite") == 0
    assert run_of(result)["parameters"]["seed"] == 1


GOES_ON = "The same command with --resume in place of --overwrite goes on."


@pytest.mark.parametrize(
    ("place", "press", "said"),
    [
        ((MiCEClustering, "fit"), press_ctrl_c, "Stopped."),
        (
            (fitting, "estimator"),
            interrupted,
            "Stopped after 1 of 2 epochs. The earlier result stays.",
        ),
    ],
    ids=["before an epoch", "after an epoch"],
)
def test_a_result_stays_until_the_next_one_is_whole(
    photos, fitted, result, other, tmp_path, capsys, place, press, said
):
    with patch.object(*place, press):
        assert run(*other, "--overwrite") == 130
    assert last_line(capsys) == f"{said} {GOES_ON}"
    assert_same_files(result, fitted)
    assert run("predict", result, photos, "-q", "--out", tmp_path / "new.csv") == 0
    assert run(*other) == 2  # the run that can go on is not replaced by chance
    assert run(*other, "--resume") == 0
    assert run_of(result)["parameters"]["seed"] == 1
    assert not (result / "checkpoint").exists()


def test_a_result_stays_if_the_next_fit_fails(fitted, result, other, monkeypatch):
    monkeypatch.setattr(MiCEClustering, "fit", raising(ValueError, "no"))
    assert run(*other, "--overwrite") == 1
    assert_same_files(result, fitted)
    assert not (result / "checkpoint").exists()


def test_an_error_after_the_training_says_how_to_go_on(other, capsys):
    full = raising(OSError, errno.ENOSPC, "No space left on device", "clusters.csv")
    with patch.object(fitting, "write_atomically", full):
        assert run(*other, "--overwrite") == 1
    error = "sk-mice: error: 'clusters.csv': No space left on device."
    assert last_line(capsys) == f"{error} {GOES_ON}"
    assert run(*other, "--resume") == 0


@pytest.mark.parametrize("how", ["a kill", "an error"])
@pytest.mark.parametrize("n", range(4))
def test_a_result_is_replaced_as_a_whole(photos, result, other, tmp_path, how, n):
    move, left = results.move, iter(range(4))

    def ends(*paths):
        if next(left) == n:
            raise KeyboardInterrupt if how == "a kill" else PermissionError
        move(*paths)

    with patch.object(results, "move", ends):
        assert run(*other, "--overwrite") == (130 if how == "a kill" else 1)
    fitted_next = shutil.copytree(result, tmp_path / "fitted next")
    assert run(*fit_of_another_seed(photos, fitted_next)) == 2  # it holds a result
    for out in (result, fitted_next):
        new = tmp_path / f"{out.name}.csv"
        assert run("predict", out, photos, "-q", "--out", new) == 0
        assert run_of(out)["parameters"]["seed"] == 1
        assert new.read_bytes() == (out / "clusters.csv").read_bytes()
        assert run(*fit_of_another_seed(photos, out), "--resume") == 0
        assert {path.name for path in out.iterdir()} == FILES


def test_a_new_result_waits_for_a_page_that_is_read_only(
    photos, result, other, tmp_path, capsys
):
    before = {name: (result / name).read_bytes() for name in FILES}
    assert run(*other, "--overwrite") == 0
    for name, content in before.items():  # as if the command was killed in between
        place = result / "checkpoint" / ("result.json" if name == "run.json" else name)
        place.parent.mkdir(exist_ok=True)
        (result / name).rename(place)
        (result / name).write_bytes(content)
    (result / "report.html").chmod(0o444)
    capsys.readouterr()
    predict = ["predict", result, photos, "-q", "--out", tmp_path / "new.csv"]
    assert "read-only" in refused(capsys, 1, *predict)
    assert (result / "clusters.csv").read_bytes() == before["clusters.csv"]
    (result / "report.html").chmod(0o644)
    assert run(*predict) == 0
    assert run_of(result)["parameters"]["seed"] == 1


def test_a_folder_of_another_program_is_none_of_ours(photos, result, tmp_path):
    (result / "checkpoint").mkdir()
    (result / "checkpoint" / "result.json").write_text("{}")
    (result / "checkpoint" / "clusters.csv").write_text("theirs")
    assert run("predict", result, photos, "-q", "--out", tmp_path / "new.csv") == 0
    assert (result / "checkpoint" / "clusters.csv").read_text() == "theirs"


@needs_links
def test_links_in_the_folder_of_a_result_are_not_written_through(
    photos, result, other, tmp_path, capsys
):
    """Whoever made the folder may have linked its files to those of the user."""
    mine = tmp_path / "mine" / "letter.txt"
    mine.parent.mkdir()
    mine.write_text("dear")
    predict = ["predict", result, photos, "-q", "--out", tmp_path / "new.csv"]
    report, fit = ["report", result, photos, "-q"], [*other, "--overwrite"]
    begun = result / "checkpoint" / "features.npy"
    waiting = result / "checkpoint" / "result.json"
    for link, to, command in (
        (result / "report.html", mine, report),
        (result / "report.html", mine, predict),
        (result / "checkpoint", mine.parent, fit),
        (begun, mine, fit),
    ):
        if command is predict:  # it installs what an interrupted fit has left
            waiting.parent.mkdir()
            shutil.copy(result / "run.json", waiting)
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(to)
        line = refused(capsys, 2, *command)
        assert f"{str(result)!r} must not hold the link {str(link)!r}" in line
        assert mine.read_text() == "dear"
        link.unlink()
        shutil.rmtree(result / "checkpoint", ignore_errors=True)
    for name in FILES - {"report.html"}:  # what is only read may be a link
        (result / name).rename(tmp_path / name)
        (result / name).symlink_to(tmp_path / name)
    (result / "checkpoint").symlink_to(mine.parent)
    assert run(*predict) == 0
    assert run(*report) == 0


def test_a_run_that_is_killed_as_it_begins_blocks_nothing(photos, out):
    checkpoint = out / "checkpoint"
    checkpoint.mkdir(parents=True)
    (checkpoint / ".sk_mice-0.tmp").touch()
    assert run("fit", photos, *FIT, "--out", out, "-q") == 0
    (out / "run.json").unlink()
    for name in ("notes.txt", ".env"):
        checkpoint.mkdir()
        (checkpoint / name).touch()
        assert run("fit", photos, *FIT, "--out", out, "-q") == 2
        shutil.rmtree(checkpoint)


def test_a_kill_as_files_of_an_unfinished_run_are_removed_blocks_nothing(photos, out):
    command = ["fit", photos, *FIT, "--out", out, "-q"]
    with patch.object(MiCEClustering, "_train", killed):
        assert run(*command) == 1
    with patch.object(shutil, "rmtree", killed):
        assert run(*command, "--overwrite") == 1
    assert run(*command, "--resume") == 0


def test_a_folder_that_windows_does_not_remove_is_used_again(
    photos, result, monkeypatch
):
    monkeypatch.setattr(shutil, "rmtree", lambda *args, **options: None)
    (result / "checkpoint").mkdir()
    (result / "checkpoint" / "features.npy").write_bytes(b"of another fit")
    assert run("fit", photos, *FIT, "--out", result, "--overwrite", "-q") == 0
    assert not (result / "checkpoint" / "features.npy").exists()


def test_a_result_stays_until_the_page_of_the_next_is_drawn(fitted, result, other):
    with patch.object(fitting, "draw_page", press_ctrl_c):
        assert run(*other, "--overwrite") == 130
    assert_same_files(result, fitted)
    assert run(*other, "--resume") == 0
    assert run_of(result)["parameters"]["seed"] == 1
    assert {path.name for path in result.iterdir()} == FILES
