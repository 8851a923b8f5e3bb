"""`sk-mice predict` and `sk-mice report`: a result, used."""

import json
import re

import pytest
from PIL import Image
from shared import recorded
from systems import needs_locks

from sk_mice._cli import fitting, naming
from sk_mice._cli.results import ResultFolder
from sk_mice._engine.inference import Inference

from .calls import FIT, HARD, draw_page, refused, run, table, write_table


def test_predict_repeats_the_table_on_stdout_and_in_a_file(
    photos, fitted, tmp_path, capsysbinary
):
    assert run("predict", fitted, photos, "-q") == 0
    stdout = capsysbinary.readouterr().out
    assert stdout == (fitted / "clusters.csv").read_bytes()
    assert HARD[2].encode(errors="surrogateescape") in stdout
    out = tmp_path / "new.csv"
    assert run("predict", fitted, photos, "-q", "--out", out) == 0
    assert out.read_bytes() == stdout
    assert run("predict", fitted, photos, "-q", "--out", out) == 2
    assert run("predict", fitted, photos, "-q", "--out", out, "--overwrite") == 0


def test_names_survive_json(photos, fitted, capsys):
    assert run("predict", fitted, photos, "-q", "--json") == 0
    stdout = capsys.readouterr().out
    assert stdout.isascii()
    files = [row["file"] for row in json.loads(stdout)["images"]]
    assert set(HARD) < set(files)


def test_clusters_views_and_posterior_are_asked_for_once(
    photos, fitted, monkeypatch, tmp_path
):
    def wanted(self, samples, views, *names):
        return names

    calls = recorded(monkeypatch, Inference, "over", wanted)
    assert run("predict", fitted, photos, "-q", "--out", tmp_path / "new.csv") == 0
    assert calls == [*10 * [("label",)], ("joint", "gating")]


def test_a_warning_is_shown_once(fitted, tmp_path, capsys):
    for value in (100, 101):  # far nearer to each other than those of the fit
        Image.new("RGB", (8, 8), 3 * (value,)).save(tmp_path / f"{value}.png")
    assert run("predict", fitted, tmp_path, "-q") == 0
    assert capsys.readouterr().err.count("the samples are on a different scale") == 1


@needs_locks
def test_report_leaves_a_folder_alone_that_a_fit_writes(photos, result, capsys):
    page = (result / "report.html").read_bytes()
    with ResultFolder(result, "--out").held():
        said = refused(capsys, 2, "report", result, photos, "-q")
    assert said.endswith("is in use: another run is writing to it")
    assert (result / "report.html").read_bytes() == page


def test_the_page_of_a_fit_is_that_of_report_and_names_no_folder(
    photos, tmp_path, monkeypatch, capsys, out
):
    monkeypatch.setattr(fitting, "draw_page", draw_page)
    texts = []
    for command in (("fit", photos, *FIT, "--out", out, "-q"), ("report", out, photos)):
        assert run(*command) == 0
        said = capsys.readouterr().out
        text = (out / "report.html").read_text(encoding="utf-8")
        assert str(tmp_path) not in text
        texts.append(text.replace(re.search("'nonce-([^']*)'", text)[1], ""))
    assert said == f"{out / 'report.html'}\n"
    assert texts[0] == texts[1]


@pytest.fixture
def corrected(fitted, tmp_path):
    """A function that writes the table that the page downloads after corrections."""

    def write(change):
        header = ["file", "cluster", "name", "agreement", "original_cluster"]
        rows = []
        for row in table(fitted / "clusters.csv"):
            k = int(row["cluster"])
            into, name = change(len(rows), k)
            rows.append([row["file"], into, name, 1.0, k])
        return write_table(tmp_path / "corrected.csv", header, rows)

    return write


def test_predict_uses_the_names_of_a_corrected_table(
    photos, fitted, corrected, tmp_path, capsys
):
    # The first image was moved to a new cluster, which no other image can be in.
    names = {0: "cats, dogs", 1: "Cluster 1", 2: "Cluster 2"}
    path = corrected(lambda i, k: (k, names[k]) if i else (2, names[2]))
    out = tmp_path / "new.csv"
    assert run("predict", fitted, photos, "--names", path, "--out", out, "-q") == 0
    before, after = table(fitted / "clusters.csv"), table(out)
    assert [row.pop("name") for row in after] == [
        names[int(row["cluster"])] for row in before
    ]
    assert after == before
    # `sort` gives the folders these names.
    path = corrected(lambda i, k: (k, "zero" if k == 0 else "one"))
    again = ("predict", fitted, photos, "--names", path, "--out", out, "--overwrite")
    assert run(*again, "-q") == 0
    assert run("sort", out, photos, "--copy-to", tmp_path / "sorted", "-q") == 0
    assert {folder.name for folder in (tmp_path / "sorted").iterdir()} == {
        "zero",
        "one",
    }
    assert run(*again[:-3], "--json", "-q") == 0
    rows = json.loads(capsys.readouterr().out)["images"]
    assert [row["name"] for row in rows] == [row["name"] for row in table(out)]


def test_predict_merges_clusters_as_a_corrected_table_does(
    photos, fitted, corrected, tmp_path
):
    path = corrected(lambda i, k: (1, "all"))
    out = tmp_path / "new.csv"
    assert run("predict", fitted, photos, "--names", path, "--out", out, "-q") == 0
    for row in table(out):
        assert (row["cluster"], row["name"], row["second_cluster"]) == ("1", "all", "")
        assert float(row["agreement"]) == 1
    # All images of a cluster were moved to one that was made by hand.
    path = corrected(lambda i, k: (9 * k, "made" if k else "Cluster 0"))
    again = ("predict", fitted, photos, "--names", path, "--out", out, "--overwrite")
    assert run(*again, "-q") == 0
    for row, before in zip(table(out), table(fitted / "clusters.csv"), strict=True):
        for column in ("cluster", "second_cluster"):
            number = before[column] and str(9 * int(before[column]))
            assert row.pop(column) == number
            del before[column]
        assert row.pop("name") in ("made", "Cluster 0")
        assert row == before


def test_names_of_another_table_are_refused_with_backslashes_too(tmp_path):
    result = ResultFolder(tmp_path, "RESULT")
    result.table.write_text("file,cluster\na/b.png,0\n")
    for file in ("a/b.png", "a\\b.png"):
        naming._check_same({file: "0"}, "names.csv", result)
        with pytest.raises(ValueError, match="must be a table of this result"):
            naming._check_same({file: "1"}, "names.csv", result)


def test_names_of_another_table_are_refused(photos, fitted, corrected, capsys):
    def error(path):
        return refused(capsys, 1, "predict", fitted, photos, "--names", path, "-q")

    of_the_fit = error(fitted / "clusters.csv")
    assert "`file` and `original_cluster`; got" in of_the_fit
    assert of_the_fit.endswith("Download CSV of the report saves such a table.")
    path = corrected(lambda i, k: (k, "Füße"))
    path.write_bytes(path.read_bytes().replace("ü".encode(), b"\xfc"))
    assert "must be UTF-8, which spreadsheets call CSV UTF-8" in error(path)
    path = corrected(lambda i, k: (k, "a"))
    text = path.read_bytes()
    path.write_bytes(text.replace(b",0\n", b",7\n"))
    assert "an original cluster from 0 to 1; got '0' and '7'" in error(path)
    for old, new in ((b",0\n", b",8\n"), (b",1\n", b",0\n"), (b",8\n", b",1\n")):
        text = text.replace(old, new)
    path.write_bytes(text)
    assert "20 of 20 images have other clusters" in error(path)
