"""The examples run as they stand, here for an epoch or two."""

import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest

from sk_mice import MiCEClustering

EXAMPLES = Path(__file__).parents[1] / "examples"


# A few epochs are too few to keep every cluster in use.
pytestmark = pytest.mark.filterwarnings("ignore:.*clusters are empty:UserWarning")


def assert_picture(path):
    import matplotlib.pyplot as plt

    image = plt.imread(path)
    assert min(image.shape[:2]) > 500
    assert np.ptp(image) > 0


def test_digits(tmp_path, monkeypatch, capsys):
    import matplotlib.pyplot as plt

    # An example writes beside itself, so a copy of it writes into tmp_path.
    script = shutil.copy(EXAMPLES / "plot_digits.py", tmp_path)
    monkeypatch.setitem(MiCEClustering.__init__.__kwdefaults__, "max_epochs", 2)
    try:
        names = runpy.run_path(script)
    finally:
        plt.close("all")

    assert (names["mice"].n_iter_, names["moco"].n_iter_) == (2, 2)
    picture = tmp_path / "output" / "digits.png"
    assert_picture(picture)
    printed = capsys.readouterr().out
    header, *rows, last = printed.splitlines()
    assert header.split() == ["ACC", "NMI", "ARI", "seconds"]
    assert [row[:20].strip() for row in rows] == list(names["methods"])
    scores = np.array([row[20:].split() for row in rows], dtype=float)
    assert (scores[:, :3] > 0).all()
    assert (scores[:, :3] <= 1).all()
    assert str(picture) in last


def test_search(tmp_path, capsys):
    import matplotlib.pyplot as plt

    text = (EXAMPLES / "plot_search.py").read_text(encoding="utf-8")
    quicker = {
        "y[y < 5]\n": "y[y < 5]\nX, y = X[:120], y[:120]\n",
        "max_epochs=20": "max_epochs=1",
        "n_jobs=2": "n_jobs=1",  # starting workers takes seconds
    }
    for slow, quick in quicker.items():
        assert slow in text
        text = text.replace(slow, quick)
    script = tmp_path / "plot_search.py"
    script.write_text(text, encoding="utf-8")
    try:
        names = runpy.run_path(str(script))
    finally:
        plt.close("all")

    search = names["search"]
    assert search.best_estimator_.labels_.shape == (120,)
    assert_picture(tmp_path / "output" / "search.png")
    # As the prose has it, the ELBO picks a small temperature, trained or not.
    elbo = search.cv_results_["mean_test_elbo"]
    assert search.cv_results_["params"][elbo.argmax()]["tau"] == 0.3
    assert f"{search.best_score_:.3f}" in capsys.readouterr().out
