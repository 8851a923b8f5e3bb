"""`sk-mice predict` and `sk-mice report`: a result, used."""

import json
import re

from PIL import Image
from systems import needs_locks

from sk_mice._cli import fitting
from sk_mice._cli.results import ResultFolder
from sk_mice._engine.inference import Inference

from .calls import FIT, HARD, draw_page, refused, run


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
    over, calls = Inference.over, []

    def counted(self, samples, views, *wanted):
        calls.append(wanted)
        return over(self, samples, views, *wanted)

    monkeypatch.setattr(Inference, "over", counted)
    assert run("predict", fitted, photos, "-q", "--out", tmp_path / "new.csv") == 0
    assert calls == [*10 * [("label",)], ("joint", "gating")]


def test_a_warning_is_shown_once(fitted, tmp_path, capsys):
    for value in (100, 101):  # far nearer to each other than those of the fit
        Image.new("RGB", (8, 8), 3 * (value,)).save(tmp_path / f"{value}.png")
    assert run("predict", fitted, tmp_path, "-q") == 0
    assert capsys.readouterr().err.count("the samples are at another scale") == 1


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
