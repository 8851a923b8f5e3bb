"""The pages of results say what the JSON files say."""

import importlib
import json
import random
import re
import shutil
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def module(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("results_page")


@pytest.fixture
def copied(module, tmp_path, monkeypatch):
    """The results and the pages in a folder of their own."""
    shutil.copytree(module.files.RESULTS, tmp_path / "results")
    shutil.copy(module.README, tmp_path / "README.md")
    monkeypatch.setattr(module.files, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(module, "README", tmp_path / "README.md")
    return tmp_path


def test_pages_are_those_of_the_files(module):
    module.main(["--check"])
    for page in module.pages().values():
        assert len(page.splitlines()) <= 200


def test_check_tells_of_other_pages_and_writes_none(module, copied):
    pages = (copied / "results" / name for name in module.PAGES)
    for path in (*pages, module.README):
        text = path.read_text(encoding="utf-8")
        changed = re.sub(r"\b0(\.\d{3})\b", r"1\1", text, count=1)
        assert changed != text
        path.write_text(changed, encoding="utf-8")
        with pytest.raises(SystemExit, match=re.escape(str(path))):
            module.main(["--check"])
        assert path.read_text(encoding="utf-8") == changed
        module.main([])
        assert path.read_text(encoding="utf-8") == text


def others(value, rng):
    """The same results with random figures; seeds, epochs and sizes are integers."""
    if isinstance(value, dict):
        return {name: others(item, rng) for name, item in value.items()}
    if isinstance(value, list):
        return [others(item, rng) for item in value]
    return rng.random() if isinstance(value, float) else value


def test_the_page_shows_every_file(module, copied):
    before = module.pages()
    files = sorted(copied.rglob("*.json"))
    assert len(files) > 30
    for path in files:
        text = path.read_text(encoding="utf-8")
        kept = json.loads(text)
        rng = random.Random(path.stem)  # other files do not change these figures
        kept["results"] = others(kept["results"], rng)
        path.write_text(json.dumps(kept), encoding="utf-8")
        assert module.pages() != before, path.name
        path.write_text(text, encoding="utf-8")
    assert module.pages() == before


def test_every_row_has_a_commit(module):
    for path in module.files.RESULTS.rglob("*.json"):
        kept = json.loads(path.read_text(encoding="utf-8"))
        methods = kept["results"] if isinstance(kept["results"], dict) else {}
        assert kept.get("commits", {}).keys() <= methods.keys()
        for method in methods or [None]:
            commit = module.files.commit(kept, method)
            assert re.fullmatch(r"[0-9a-f]{7,}\+?|unknown", commit)


def test_links_lead_to_files_and_every_figure_is_linked(module):
    text = "".join(module.pages().values())
    links = set(re.findall(r"\]\(([^)#]+)\)", text))
    results = module.files.RESULTS
    assert all((results / link).is_file() for link in links)
    figures = results.rglob("*.png")
    assert {path.relative_to(results).as_posix() for path in figures} <= links


def test_cells_are_mean_deviation_and_worst(module):
    values = [0.9, 0.6, 0.75]
    rows = [{"seed": seed, "acc": acc} for seed, acc in enumerate(values)]
    cell = module.tables.over_seeds(rows, "acc")
    mean, deviation, worst = map(float, re.findall(r"[\d.]+", cell))
    assert mean == pytest.approx(statistics.mean(values), abs=5e-4)
    assert deviation == pytest.approx(statistics.stdev(values), abs=5e-4)
    assert worst == 0.6
    assert module.tables.over_seeds(rows[:1], "acc") == "0.900"
    assert module.tables.over_seeds([], "acc") == ""


def test_seeds_are_compared_with_themselves(module):
    ours = [{"seed": seed, "acc": acc} for seed, acc in ((2, 0.5), (0, 0.9), (1, 0.7))]
    others = [{"seed": seed, "acc": acc} for seed, acc in ((0, 0.8), (1, 0.7), (3, 0))]
    assert module.tables.wins(ours, others) == (1, 2)  # level is not above
    above = [row | {"acc": 1} for row in others]
    assert module.paper.verdict([(above, others)]) == ("yes", "above on 3 of 3 seeds")
    assert module.paper.verdict([(others, above)])[0] == "no"
    some = [(above, others), (others, above[:1])]
    assert module.paper.verdict(some) == ("not clearly", "above on 3 of 4 seeds")


def test_commands_are_shown_without_where_files_go(module):
    run = "python a.py --checkpoint ck --rows MiCE '(' --out out --seeds 0 --verbose"
    command = module.files.command
    assert command({"command": run}) == "`python a.py --rows MiCE '(' --seeds 0`"
    assert command({"command": "python b.py --json"}) == "`python b.py`"


def test_what_files_of_the_paper_say_of_themselves_is_on_their_page():
    results = ROOT / "benchmarks" / "results"
    page = (results / "paper.md").read_text(encoding="utf-8")
    for path in (results / "paper").glob("*.json"):
        note = json.loads(path.read_text(encoding="utf-8")).get("note", "")
        for sentence in re.split(r"(?<=\.) ", note):
            assert sentence in page


def test_fits_are_compared_with_those_of_every_commit(module):
    same_fits = importlib.import_module("same_fits")
    commits = same_fits.commits_of(module.files.RESULTS)
    assert module.files.read("same_fits")["results"].keys() >= {*commits}
