"""What is written in two places is the same in both."""

import ast
import re
import sys
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
    # Words of a link stay, with an address or without.
    assert re.search(r"The user guide(\]\(https://\S+\))?:", text)


def test_the_workflow_calls_targets_of_the_makefile():
    text = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    commands = re.findall(r"- run: (.*)", text)
    targets = re.findall(
        r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M
    )
    assert len(commands) == 4
    for command in commands:
        assert re.fullmatch(r"make ([a-z-]+)( [A-Z_]+=\w+)*", command)[1] in targets
    # Those of the classifiers, and of the lower bound, are tested.
    tested = set(re.findall(r'"(3\.\d+)"', text))
    supported = {
        words[1].split()[-1]
        for words in (line.split(" :: Python :: ") for line in classifiers())
        if len(words) > 1 and "." in words[1]
    }
    assert supported <= tested


def classifiers():
    return pyproject()["project"]["classifiers"]


def imported_libraries():
    """Each library that a file of ours imports, at any place in it."""
    for path in (ROOT / "sk_mice").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from (alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                yield node.module.split(".")[0]


def test_what_is_imported_is_declared():
    project = pyproject()["project"]
    lines = sum(project["optional-dependencies"].values(), project["dependencies"])
    declared = {re.match(r"[\w-]+", line)[0].replace("-", "_") for line in lines}
    called = {"PIL": "pillow", "faiss": "faiss_cpu", "sklearn": "scikit_learn"}
    libraries = set(imported_libraries()) - sys.stdlib_module_names
    assert {called.get(name, name) for name in libraries} - declared == {
        "timm"  # for networks that users name
    }
