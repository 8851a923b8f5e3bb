"""The examples run, here for an epoch or two on a part of their images."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from sk_mice.backbones import NAMED, SmallResNet

EXAMPLES = Path(__file__).parents[1] / "examples"
# A few epochs are too few to keep every cluster in use.
pytestmark = pytest.mark.filterwarnings(
    "ignore:(Empty clusters|Clusters left empty):UserWarning"
)


@pytest.fixture(autouse=True)
def small_network(monkeypatch):
    monkeypatch.setitem(NAMED, "resnet-small", SmallResNet(4, blocks=(1, 1)))


def assert_picture(path):
    import matplotlib.pyplot as plt

    image = plt.imread(path)
    assert min(image.shape[:2]) > 300
    assert np.ptp(image) > 0


def run(name, folder, quicker):
    """The names of an example, in which texts are replaced by others."""
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    for slow, quick in quicker.items():
        assert slow in text
        text = text.replace(slow, quick)
    script = folder / name  # an example writes beside itself
    script.write_text(text, encoding="utf-8")
    return runpy.run_path(str(script))


def test_digits(tmp_path, capsys):
    quicker = {
        "load_digits()\n": "load_digits()\nX, y = X[:300], y[:300]\n",
        "max_epochs=60": "max_epochs=2",
        "n_init=20": "n_init=2",
        "n_points=1000": "n_points=50",
    }
    names = run("plot_digits.py", tmp_path, quicker)
    assert names["mice"].n_iter_ == 2
    picture = tmp_path / "output" / "digits.png"
    assert_picture(picture)
    printed = capsys.readouterr().out
    header, *rows, time, views, drawn, last = printed.splitlines()
    assert header.split() == ["ACC", "NMI", "ARI"]
    assert [row[:20].strip() for row in rows] == list(names["partitions"])
    scores = np.array([row[20:].split() for row in rows], dtype=float)
    assert (scores > 0).all()
    assert (scores <= 1).all()
    assert time.startswith("Both fits took ")
    # As the prose has it, digits are tilted and not mirrored.
    assert "affine=(10.0, 10.0)" in views
    assert "flip=False" in views
    assert str(picture) in drawn
    page = tmp_path / "output" / "digits.html"
    assert str(page) in last
    assert "Handwritten digits" in page.read_text(encoding="utf-8")


def test_search(tmp_path, capsys):
    quicker = {
        "y[y < 5]\n": "y[y < 5]\nX, y = X[:120], y[:120]\n",
        "[0.3, 0.5, 1.0]": "[0.3, 1.0]",
        "max_epochs=15": "max_epochs=1",
        "n_jobs=2": "n_jobs=1",  # starting workers takes seconds
    }
    names = run("plot_search.py", tmp_path, quicker)
    search = names["search"]
    assert search.best_estimator_.labels_.shape == (120,)
    assert_picture(tmp_path / "output" / "search.png")
    # As the prose has it, the ELBO picks a small temperature, trained or not.
    elbo = search.cv_results_["mean_test_elbo"]
    assert search.cv_results_["params"][elbo.argmax()]["tau"] == 0.3
    best, drawn = capsys.readouterr().out.splitlines()
    assert f"{search.best_score_:.3f}" in best
    assert "search.png" in drawn
    # Rows of a heat map are values of kappa, columns those of tau.
    corner = names["axes"][0].texts[1]
    assert corner.get_position() == (1, 0)
    (shown,) = (
        results["mean_test_acc"][i]
        for results in [search.cv_results_]
        for i, setting in enumerate(results["params"])
        if setting == {"kappa": 0.3, "tau": 1.0}
    )
    assert corner.get_text() == f"{shown:.2f}"


def test_photographs(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("PHOTOGRAPHS", raising=False)
    quicker = {
        "n_images = 2000": "n_images = 40",
        "verbose=1": "image_size=32",
        "n_shown = 14": "n_shown = 4",
    }
    names = run("plot_photographs.py", tmp_path, quicker)
    assert names["features"].shape == (40, 1280)
    assert_picture(tmp_path / "output" / "photographs.png")
    printed = capsys.readouterr().out
    assert "40 images, 2 classes" in printed
    assert "Purity" in printed


FEW = {
    "X, y, _ = load_digits()\n": "X, y, _ = load_digits()\nX, y = X[:200], y[:200]\n"
}
SHORT = {'max_epochs": 20': 'max_epochs": 1'}


def test_outliers(tmp_path, capsys):
    quicker = {
        "X, _, _ = load_digits()\n": "X = load_digits()[0][:400]\n",
        'max_epochs": 40': 'max_epochs": 1',
    }
    names = run("plot_outliers.py", tmp_path, quicker)
    assert_picture(tmp_path / "output" / "outliers.png")
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["fitted", "to", "clean", "new"]
    assert [row.split()[0] for row in rows[:4]] == list(names["scores"])


def test_choosing_k(tmp_path):
    quicker = {"range(2, 9)": "[3, 4]"}
    names = run("plot_choose_k.py", tmp_path, quicker)
    assert_picture(tmp_path / "output" / "choose_k.png")
    assert names["wine"].n_clusters == 3
    assert names["evenly"].n_clusters == 4  # as the prose has it


def test_vectors(tmp_path, capsys):
    quicker = {
        "return_X_y=True)\n": "return_X_y=True)\nX, y = X[:200], y[:200]\n",
        'max_epochs": 60': 'max_epochs": 1',
        "n_points=800": "n_points=50",
    }
    names = run("plot_vectors.py", tmp_path, quicker)
    assert_picture(tmp_path / "output" / "vectors.png")
    rows = capsys.readouterr().out.splitlines()[:4]
    assert [row[:18].strip() for row in rows] == list(names["clusterers"])


def test_baseline(tmp_path):
    quicker = FEW | SHORT | {"range(3)": "range(2)"}
    names = run("plot_baseline.py", tmp_path, quicker)
    assert_picture(tmp_path / "output" / "baseline.png")
    assert {len(values) for values in names["accuracies"].values()} == {2}


def test_backbone(tmp_path, capsys):
    quicker = FEW | SHORT | {'max_epochs": 10': 'max_epochs": 1'}
    names = run("plot_backbone.py", tmp_path, quicker)
    assert_picture(tmp_path / "output" / "backbone.png")
    assert "torch.Size([2, 128])" in capsys.readouterr().out
    assert names["again"].n_clusters == 8


def test_displays(tmp_path):
    quicker = FEW | {"max_epochs=40": "max_epochs=3", "n_points=800": "n_points=50"}
    names = run("plot_displays.py", tmp_path, quicker)
    for name in names["shown"]:
        assert_picture(tmp_path / "output" / f"displays_{name}.png")


def test_every_example_has_a_test():
    tested = Path(__file__).read_text(encoding="utf-8")
    # `tests/test_checkpoint.py` kills fits; `make docs` runs the example.
    longer = {"plot_resume.py"}
    there = {path.name for path in EXAMPLES.glob("plot_*.py")}
    assert {name for name in there - longer if f'"{name}"' not in tested} == set()
