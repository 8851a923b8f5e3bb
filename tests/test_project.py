"""What is written in two places is the same in both."""

from pathlib import Path

import sk_mice

ROOT = Path(__file__).parents[1]


def test_citation_names_the_version():
    lines = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert f"version: {sk_mice.__version__}" in lines
