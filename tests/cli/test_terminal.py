"""The shell: help, completion, pipes, and messages that cannot be written."""

import errno
import io
import os
import re
import shlex
import subprocess
import sys
from unittest.mock import patch

import pytest
from shared import raising
from systems import forks, needs_full_device
from tqdm import std, tqdm

from sk_mice import cli
from sk_mice._cli import choosing, fitting, images, tables, terminal
from sk_mice._cli.terminal import put

from .calls import FIT, refused, run, write_table


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
    assert re.search(r"--background COLOUR .*?\[default: white\]", text)


def test_the_command_alone_prints_its_help(capsys):
    assert run() == 0
    out, err = capsys.readouterr()
    assert out.startswith("Usage: sk-mice ")
    assert len(out.splitlines()) > 20
    assert not err


def test_a_name_with_spaces_needs_quotation_marks(capsys, tmp_path):
    line = refused(capsys, 2, "fit", tmp_path, "photos", *FIT, "--out", "result")
    assert "(names with spaces need quotation marks): (photos)" in line


def test_an_argument_from_a_variable_that_is_not_set_is_refused(capsys, tmp_path):
    out = tmp_path / "result"
    for arguments in (["", "--out", out], [tmp_path, "--out="]):
        line = refused(capsys, 2, "fit", *FIT, *arguments)
        assert "an argument is empty" in line
    assert not out.exists()


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


# ------------------------------------------------------------------------------- output


def test_a_log_has_a_line_for_each_step_of_progress(
    photos, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(terminal, "SECONDS_BETWEEN_LINES", 0)
    out = ["--out", tmp_path / "result", "--copy-to", tmp_path / "sorted"]
    assert run("fit", photos, *FIT, *out) == 0
    err = capsys.readouterr().err
    assert "\r" not in err
    lines = err.splitlines()
    assert "" not in lines
    bars = [line for line in lines if "%|" in line]
    for words in (
        "reading images: 100%|",
        "learning features: ",
        "2/2 epochs [",
        "sorting: 100%|",
    ):
        assert any(words in line for line in bars), words
    assert len(lines) > len(bars)


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
    invalid = raising(OSError, errno.EINVAL, "Invalid argument")
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


def test_letters_that_the_output_does_not_have_are_escaped(monkeypatch):
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stdout)
    put("caf\xe9 caf\udce9")
    assert stdout.buffer.getvalue().strip() == rb"caf\xe9 caf\udce9"


def test_an_output_that_cannot_be_written_is_said(tmp_path, capsys):
    path = write_table(tmp_path / "clusters.csv", ["file", "cluster"], [["a", 0]])
    with patch.object(sys, "stdout", None):  # as after `>&-`
        assert run("score", path, path) == 1
        assert run("score", path, tmp_path / "none.csv") == 2
    assert capsys.readouterr().err.splitlines()[0] == f"{UNWRITTEN}it is closed."
    with patch.object(sys, "stderr", None):  # nor do errors go to stdout after `2>&-`
        assert run("score", path, tmp_path / "none.csv") == 2
    assert not capsys.readouterr().out


def test_a_current_folder_that_is_gone_is_said(tmp_path, monkeypatch, capsys):
    path = write_table(tmp_path / "clusters.csv", ["file", "cluster"], [["a", 0]])
    getcwd = raising(FileNotFoundError, errno.ENOENT, os.strerror(errno.ENOENT))
    monkeypatch.setattr(os, "getcwd", getcwd)
    line = refused(capsys, 1, "sort", path, tmp_path, "--copy-to", "sorted")
    assert "The current folder is no longer there" in line


@forks
def test_a_current_folder_that_is_gone_is_said_before_torch_is_imported(tmp_path):
    (tmp_path / "gone").mkdir()
    command = [sys.executable, "-m", "sk_mice", "predict", str(tmp_path), str(tmp_path)]
    inner = f"rmdir ../gone; {shlex.join(command)}"
    done = subprocess.run(
        ["sh", "-c", inner], cwd=tmp_path / "gone", capture_output=True, text=True
    )
    assert "The current folder is no longer there" in done.stderr
    assert done.returncode == 1


def test_a_limit_of_threads_is_said(tmp_path, monkeypatch, capsys):
    path = write_table(tmp_path / "clusters.csv", ["file", "cluster"], [["a", 0]])
    start = raising(RuntimeError, "can't start new thread")
    monkeypatch.setattr(tables, "read_column", start)
    line = refused(capsys, 1, "score", path, path)
    assert "start no more threads: raise its limit" in line
    assert "a bug?" not in line


@needs_full_device
@pytest.mark.parametrize("target", ["/dev/full", "&-", " >(true)"])
def test_messages_that_cannot_be_written_end_no_work(target, tmp_path):
    header = ["file", "cluster"]
    path = write_table(tmp_path / "clusters.csv", header, [["a", 0], ["b", ""]])
    command = [sys.executable, "-m", "sk_mice", "score", str(path), str(path)]
    inner = f"{shlex.join(command)} 2>{target}"
    done = subprocess.run(["bash", "-c", inner], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("1 file\n")
    assert not done.stderr


def test_a_message_takes_no_lock_between_processes(capsys, monkeypatch):
    monkeypatch.delattr(tqdm, "_lock", raising=False)
    monkeypatch.setattr(std, "TqdmDefaultWriteLock", raising(MemoryError))
    cli._say("Not enough memory")
    assert capsys.readouterr().err == "sk-mice: Not enough memory\n"


def test_a_long_list_in_a_warning_is_shortened(capsys):
    cli._show_warning("\n  ".join(["Left out:", *map(str, range(3000))]))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "sk-mice: warning: Left out:"
    assert lines[-1] == "and 2980 more"
    assert len(lines) == 22
