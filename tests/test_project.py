"""What is written in two places is the same in both."""

import re
import tomllib
from pathlib import Path

import sk_mice

ROOT = Path(__file__).parents[1]


def test_citation_names_the_version():
    lines = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert f"version: {sk_mice.__version__}" in lines


def pyproject():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def readme():
    return (ROOT / "README.md").read_text(encoding="utf-8")


def test_links_of_the_readme_lead_to_files():
    links = re.findall(r"\]\(([^)]+)\)", readme())
    inner = [link for link in links if not link.startswith("https://")]
    assert len(inner) > 5
    assert [link for link in inner if not (ROOT / link).exists()] == []


def test_on_a_package_index_all_links_are_absolute():
    text = readme()
    hook = pyproject()["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    for rule in hook["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links
    assert all(link.startswith("https://") for link in links)
    assert "The user guide:" in text
