"""Results say which version of the code they were measured with."""

import importlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from systems import needs

pytestmark = needs(shutil.which("git"), "git")

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with code and results, and `commit` of it."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)  # which may sign commits
    for file in ("sk_mice/a.py", "benchmarks/b.py", "benchmarks/results/c.json", "d"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("1")
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "first"],
    ):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path, importlib.import_module("_commit").commit


def test_commit_is_marked_where_code_has_changed(checkout):
    root, commit = checkout
    head = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=root, text=True)
    clean = commit(root)
    assert len(clean) >= 4
    assert head.startswith(clean)
    (root / "d").write_text("2")
    (root / "benchmarks" / "results" / "c.json").write_text("2")
    assert commit(root) == clean
    (root / "sk_mice" / "a.py").write_text("2")
    assert commit(root) == clean + "+"
    (root / "sk_mice" / "a.py").write_text("1")
    assert commit(root) == clean
    (root / "benchmarks" / "new.py").write_text("1")
    assert commit(root) == clean + "+"


def test_commit_is_unknown_outside_a_checkout(checkout):
    root, commit = checkout
    assert commit(root / "benchmarks") == "unknown"  # a part of another repository
    assert commit(root / "nowhere") == "unknown"
