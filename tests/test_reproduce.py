"""Rows of the results are run again, here by commands that take no time."""

import importlib
import json
import shlex
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Adds its value to a log, fails where a file says so, and writes what it is asked to.
SCRIPT = """
import argparse, json, pathlib, sys
parser = argparse.ArgumentParser()
parser.add_argument("value")
parser.add_argument("--json", type=pathlib.Path)
parser.add_argument("--out", type=pathlib.Path)
parser.add_argument("--checkpoint", type=pathlib.Path)
parser.add_argument("--folder", type=pathlib.Path)
parser.add_argument("--path", type=pathlib.Path)
options = parser.parse_args()
here = pathlib.Path(__file__).parent
with (here / "log").open("a") as log:
    log.write(options.value)
if options.out:
    options.checkpoint.mkdir(exist_ok=True)
    (options.checkpoint / options.value).touch()
    (options.out / "drawn.png").touch()
    options.json = options.out / f"{options.value}.json"
if options.folder:  # has run before, and goes on
    options.value += "again" * options.folder.exists()
    options.folder.mkdir(exist_ok=True)
options.json.write_text(json.dumps({"results": options.value}))
if (here / "broken").exists() and options.value in (here / "broken").read_text():
    sys.exit(3)
"""


@pytest.fixture
def reproduce(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("reproduce")


@pytest.fixture
def again(reproduce, tmp_path):
    """Runs rows a, b and c (of benchmarks/paper) and d, whose data has to be given."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = shlex.quote(str(script))
    rows = (
        reproduce.Row("a.json", f"{command} a", 6),
        reproduce.Row("b.json", f"{command} b", 60),
        reproduce.Row("paper/c.json", f"{command} c", 12),
        reproduce.Row("d.json", f"{command} d --path {reproduce.ARCHIVE}", 1),
    )

    def main(*argv):
        results, work = tmp_path / "results", tmp_path / "work"
        reproduce.main(list(argv), rows=rows, results=results, work=work)

    return main


def log(folder):
    """What was run since this was last asked."""
    path = folder / "log"
    ran = path.read_text() if path.exists() else ""
    path.unlink(missing_ok=True)
    return ran


def test_every_row_runs_once(again, tmp_path, capsys):
    again("--list")
    assert log(tmp_path) == ""
    shown = capsys.readouterr().out
    assert "3 of 4 rows to run: about 78 min" in shown
    assert "needs --cifar10-jpeg" in shown
    again()
    assert log(tmp_path) == "abc"
    for file in ("a.json", "b.json", "paper/c.json"):
        kept = json.loads((tmp_path / "results" / file).read_text())
        assert kept["results"] == Path(file).stem
    assert (tmp_path / "results" / "paper" / "drawn.png").exists()
    capsys.readouterr()
    again()
    assert log(tmp_path) == ""
    assert "0 of 4 rows to run" in capsys.readouterr().out
    again("--again", "--only", "a")
    assert log(tmp_path) == "a"
    again("--cifar10-jpeg", str(tmp_path / "given.tar.xz"))
    assert log(tmp_path) == "d"


def test_a_row_that_fails_is_told_of_and_run_again(again, tmp_path):
    earlier = tmp_path / "results" / "b.json"
    earlier.parent.mkdir()
    earlier.write_text("earlier")
    (tmp_path / "broken").write_text("b")
    with pytest.raises(SystemExit, match=r"failed:\n  b: exit code 3") as stopped:
        again()
    assert stopped.value.code != 0
    assert log(tmp_path) == "abc"
    assert earlier.read_text() == "earlier"  # it had been writing another
    (tmp_path / "broken").unlink()
    again()
    assert log(tmp_path) == "b"
    assert json.loads(earlier.read_text()) == {"results": "b"}


def test_only_and_hours_choose_rows(again, tmp_path, capsys):
    again("--hours", "0.5")
    assert log(tmp_path) == "ac"  # 6 and 12 minutes; b takes 60
    assert "no time" in capsys.readouterr().out
    again("--only", "[bd]")
    assert log(tmp_path) == "b"
    with pytest.raises(SystemExit):
        again("--only", "a", "nothing")
    assert (
        "must name rows, as --list shows them; got nothing" in capsys.readouterr().err
    )


def test_time_that_earlier_rows_took_is_counted(again, tmp_path, capsys, monkeypatch):
    clock = iter([0, 0, 25 * 60])  # start, before a, before c
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    again("--only", "a", "c", "--hours", "0.5")
    assert log(tmp_path) == "a"
    assert "no time was left for c" in capsys.readouterr().out


def test_other_code_or_another_command_is_run_anew(again, tmp_path):
    again("--only", "a", "c")
    state = tmp_path / "work" / "done.json"
    kept = json.loads(state.read_text())
    assert kept["rows"].keys() == {"a", "c"}
    log(tmp_path)
    state.write_text(json.dumps(kept | {"rows": {"a": "another", "c": "another"}}))
    again("--only", "a")
    assert log(tmp_path) == "a"
    state.write_text(json.dumps(kept | {"code": "another"}))
    again("--only", "a", "c")
    assert log(tmp_path) == "ac"


# ------------------------------------------------------------------ the rows themselves


def test_every_file_of_results_has_one_row(reproduce):
    """But for those of gpu.py."""
    files = sorted(
        path.relative_to(reproduce.RESULTS).as_posix()
        for path in reproduce.RESULTS.rglob("*.json")
        if not path.name.startswith("gpu_")
    )
    assert sorted(row.file for row in reproduce.ROWS) == files
    assert len({row.name for row in reproduce.ROWS}) == len(files)


def test_commands_are_those_that_were_recorded(reproduce):
    """But for the seeds, their order, and the precision of another machine."""
    for row in reproduce.ROWS:
        kept = json.loads((reproduce.RESULTS / row.file).read_text(encoding="utf-8"))
        recorded = shlex.split(kept["command"])
        words = shlex.split(row.command)
        assert recorded[1] == words[0], row.name
        assert (ROOT / words[0]).is_file()
        assert set(words) - set(recorded) <= {"--precision", "float32"}, row.name


def test_hours_go_on_from_their_checkpoints(reproduce, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = f"{shlex.quote(str(tmp_path / 'script.py'))} hours"
    rows = (reproduce.Row("hours_of_a_fit.json", command, 200),)
    results, work = tmp_path / "results", tmp_path / "work"
    (tmp_path / "broken").write_text("hours")
    with pytest.raises(SystemExit, match="exit code 3"):
        reproduce.main([], rows=rows, results=results, work=work)
    (tmp_path / "broken").unlink()
    for argv, value in (([], "hoursagain"), (["--again"], "hours")):
        reproduce.main(argv, rows=rows, results=results, work=work)
        kept = json.loads((results / "hours_of_a_fit.json").read_text())
        assert kept == {"results": value}
        assert list(results.iterdir()) == [results / "hours_of_a_fit.json"]
