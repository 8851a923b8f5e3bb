"""The paper's tables and figures run, here at the scale that shows just that."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
from shared import raising, short_fits

from sk_mice import MiCEClustering, MoCo

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

pytestmark = short_fits


@pytest.fixture
def paper(monkeypatch):
    """Imports a module of benchmarks/paper, which leaves the tests' threads alone."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.syspath_prepend(BENCHMARKS / "paper")
    monkeypatch.setattr(importlib.import_module("_study"), "limit_threads", lambda n: 0)
    return importlib.import_module


def smoke(module, folder, *options):
    """The rows of results, as they were written."""
    module.main(["--scale", "smoke", "--out", str(folder), *options])
    name = f"{Path(module.__file__).stem}_smoke_digits.json"
    kept = json.loads((folder / name).read_text(encoding="utf-8"))
    script = Path(module.__file__).relative_to(BENCHMARKS.parent).as_posix()
    assert kept["command"].startswith(f"python {script} --scale smoke")
    assert (kept["scale"], kept["data"], kept["n"]) == ("smoke", "digits", 60)
    return kept["results"]


def test_table_1(paper, tmp_path, capsys):
    rows = smoke(paper("table1"), tmp_path, "--seeds", "0", "1")
    names = ["MoCo, spherical k-means", "MiCE", "MiCE, two-stage start (ours)"]
    assert list(rows) == names
    for row in rows.values():
        assert [run["seed"] for run in row] == [0, 1]
        assert row[0].keys() >= {"nmi", "acc", "ari", "epochs", "seconds"}
        assert row[0]["epochs"] == 3
    table = capsys.readouterr().out.split("scale smoke")[-1]
    assert all(name in table for name in names)
    assert "the paper" not in table  # has no such data


def test_table_3(paper, tmp_path):
    module = paper("table3")
    rows = smoke(module, tmp_path)
    assert list(rows) == list(module.ABLATIONS)
    assert rows.keys() == paper("literature").TABLE_3.keys()
    elbos = {row[0]["elbo"] for row in rows.values()}
    assert len(elbos) == len(rows)  # no two are the same model


def test_some_rows_of_a_table(paper, tmp_path):
    rows = smoke(paper("table3"), tmp_path, "--rows", "A5", "(b)")
    assert list(rows) == ["(4) A5", "(b) no gradient update"]


def test_a_tag_keeps_earlier_results(paper, tmp_path):
    options = ["--scale", "smoke", "--out", str(tmp_path), "--rows", "A5"]
    paper("table3").main([*options, "--tag", "once-more"])
    (path,) = tmp_path.iterdir()
    assert path.name == "table3_smoke_digits_once_more.json"


def test_comparison_with_scan(paper, tmp_path):
    rows = smoke(paper("scan"), tmp_path)
    assert list(rows) == [
        "MiCE",
        "MiCE pre-training + MiCE",
        "MiCE pre-training + MiCE (RA)",
        "MiCE pre-training + MiCE (SimCLR)",
    ]
    assert rows.keys() <= paper("literature").SCAN.keys()


def test_embeddings(paper, tmp_path):
    rows = smoke(paper("embeddings"), tmp_path)
    for name in ("MiCE", "MoCo"):
        assert [row["epoch"] for row in rows[name]] == [1, 2, 3]
    assert (tmp_path / "embeddings_smoke_digits_seed0.png").stat().st_size > 10_000


def test_posterior(paper, tmp_path):
    (row,) = smoke(paper("posterior"), tmp_path)["MiCE"]
    for when in ("first", "last"):
        assert len(row[when]) == 10
        assert sum(row[when]) == pytest.approx(1)
    assert sum(row["sizes"]) == 60
    assert (tmp_path / "posterior_smoke_digits_seed0.png").stat().st_size > 5000


def test_similarity_of_prototypes(paper, tmp_path):
    (row,) = smoke(paper("prototypes"), tmp_path)["MiCE"]
    assert 0 < row["mean_cosine"] < row["largest_cosine"] <= 1


def test_training_time(paper, tmp_path, capsys):
    rows = smoke(paper("training_time"), tmp_path)
    assert list(rows) == ["MoCo", "MiCE", "passes"]
    assert all(row["epoch_seconds"] > 0 for (row,) in rows.values())
    assert "with passes 13.1 of MiCE" in capsys.readouterr().out


def test_a_table_goes_on_from_its_checkpoints(paper, tmp_path, monkeypatch):
    options = ("--rows", "MiCE", "--checkpoint", str(tmp_path / "progress"))
    first = smoke(paper("table1"), tmp_path, *options)
    was_done = raising(AssertionError, "was done")
    monkeypatch.setattr(MiCEClustering, "_train", was_done)
    again = smoke(paper("table1"), tmp_path, *options)
    assert again["MiCE"][0]["acc"] == first["MiCE"][0]["acc"]


# ----------------------------------------------------------------- what is not run here


@pytest.mark.parametrize("name", ["paper", "gpu-30min", "cpu-minutes", "smoke"])
def test_settings_of_every_scale_are_valid(paper, name):
    module = paper("_study")
    for data, source in module.SCALES[name].sources.items():
        images = np.zeros((1, 8, 8))
        task = module.Task(data, images, np.zeros(1, int), source, {"verbose": 0})
        mice, moco = task.mice(0), task.moco(0)
        mice._validate_params()
        moco._validate_params()
        assert mice.init == "random"  # the paper's, unless a row says otherwise
        ours, theirs = mice.get_params(deep=False), moco.get_params(deep=False)
        shared = ours.keys() & theirs.keys()
        assert all(ours[name] == theirs[name] for name in shared)
        assert isinstance(moco, MoCo)


def test_scales_have_their_own_data(paper, capsys):
    module = paper("table1")
    with pytest.raises(SystemExit):
        module.main(["--scale", "smoke", "--data", "cifar10"])
    assert "smoke has digits; got cifar10" in capsys.readouterr().err
    for scale in ("gpu-30min", "paper"):
        with pytest.raises(SystemExit):
            module.main(["--scale", scale])
        assert "needs --path" in capsys.readouterr().err
    by_default = {"paper": ["cifar10"], "cpu-minutes": ["digits", "fashion-mnist"]}
    for scale, sets in by_default.items():
        argv = ["--scale", scale, "--path", "data"]
        this = paper("_study").study("A", "a", argv, paper_sets=sets[:1])
        assert this.options.data == sets


def test_a_table_of_the_paper_is_about_its_data(paper):
    argv = ["--scale", "paper", "--path", "data"]
    this = paper("_study").study("About", __file__, argv)
    assert this.options.data == ["cifar10", "cifar100-20", "stl10", "imagenet-dog"]
    this = paper("_study").study("About", __file__, argv, paper_sets=["cifar100-20"])
    assert this.options.data == ["cifar100-20"]


def test_literature_is_read_right(paper):
    table = paper("literature").TABLE_1
    assert table["cifar10"]["MiCE(mean)"] == {"nmi": 73.5, "acc": 83.4, "ari": 69.5}
    assert table["imagenet-dog"]["PICA"] == {"nmi": 35.2, "acc": 35.2, "ari": 20.1}
    assert table["stl10"]["IIC"] == {"nmi": None, "acc": 49.9, "ari": None}
    assert {len(methods) for methods in table.values()} == {22}


def test_the_papers_figures_stand_below_ours(paper, tmp_path, capsys):
    module = paper("_study")
    options = ["--path", "data", "--out", str(tmp_path)]
    this = module.study("A", __file__, ["--scale", "paper", *options])
    row = {"nmi": 0.5, "acc": 0.25, "ari": 0.125}
    this.results["cifar10"] = {"MiCE": [row, row | {"acc": 0.75}]}
    source = module.SCALES["paper"].sources["cifar10"]
    task = module.Task("cifar10", np.zeros(2), np.zeros(2), source, {})
    this.print_table(task, paper("literature").TABLE_1["cifar10"])
    ours, *_, best = capsys.readouterr().out.strip().splitlines()[2:]
    ours, best = " ".join(ours.split()), " ".join(best.split())
    assert ours == "MiCE 50.0 0.0 50.0 50.0 35.4 75.0 12.5 0.0 12.5 2"
    assert best == "the paper: MiCE(best) 73.7 83.5 69.8"
