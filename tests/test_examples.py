"""The examples run; here for two epochs, as they stand in `make demo`."""

import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest

from sk_mice import MiCEClustering

EXAMPLES = Path(__file__).parents[1] / "examples"


# Two epochs are too few to keep every cluster in use.
@pytest.mark.filterwarnings("ignore:.*clusters are empty:UserWarning")
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
    image = plt.imread(picture)
    assert min(image.shape[:2]) > 500
    assert np.ptp(image) > 0
    printed = capsys.readouterr().out
    header, *rows, last = printed.splitlines()
    assert header.split() == ["ACC", "NMI", "ARI", "seconds"]
    assert [row[:20].strip() for row in rows] == list(names["methods"])
    scores = np.array([row[20:].split() for row in rows], dtype=float)
    assert (scores[:, :3] > 0).all()
    assert (scores[:, :3] <= 1).all()
    assert str(picture) in last
