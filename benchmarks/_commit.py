"""The version of the code that results are measured with."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Results are no code: a run of several benchmarks writes them between its commands.
CODE = ("sk_mice", "benchmarks", ":!benchmarks/results")


def commit(root=ROOT) -> str:
    """The short name of the commit in `root`, with "+" if its code has been changed.

    "unknown" outside a checkout.
    """
    try:
        # A folder above may be a repository of something else.
        top = _git(root, "rev-parse", "--show-toplevel")
        if Path(top).resolve() != Path(root).resolve():
            return "unknown"
        name = _git(root, "rev-parse", "--short", "HEAD")
        changed = _git(root, "status", "--porcelain", "--", *CODE)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return name + "+" * bool(changed)


def _git(root, *words):
    done = subprocess.run(
        ["git", *words], cwd=root, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
