"""`sk-mice choose-k`."""

import errno
import json
import os
import signal
from types import SimpleNamespace

import numpy as np
import torch
from PIL import Image

from sk_mice import MiCEClustering
from sk_mice._cli import choosing
from sk_mice._cli.terminal import Progress
from sk_mice._task import _check_finite

from .calls import NETWORK, refused, run


def refused_last(capsys, *arguments):
    assert run(*arguments) == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_choose_k_prints_a_table_and_a_sentence_and_draws(photos, tmp_path, capsys):
    plot = tmp_path / "plot.png"
    numbers = ("--from", 2, "--to", 2, "--repeats", 2)
    options = ("--epochs", 1, "--image-size", 8, "--out", plot)
    assert run("choose-k", photos, *numbers, *options) == 0
    stdout, stderr = capsys.readouterr()
    assert "1 epoch of 10 images makes fewer than 1,000 steps" in stderr
    assert "--epochs 1000 takes longer and makes enough." in stderr
    with Image.open(plot) as picture:
        assert picture.format == "PNG"
    sentence = stdout.splitlines()[-2]
    assert sentence.startswith("Take ")
    assert stdout.splitlines()[0].split() == ["clusters", "stability", "silhouette"]
    assert run("choose-k", photos, *numbers, *options) == 2  # the plot exists
    assert "--to" in refused_last(capsys, "choose-k", photos, "--from", 5, "--to", 4)
    dim = ("--background", "dim")
    assert "got 'dim'" in refused_last(capsys, "choose-k", photos, *dim)
    assert "at least 1, or -1; got 0" in refused_last(
        capsys, "choose-k", photos, "--jobs", 0
    )
    among = photos / "plot.png"  # where the next command would take it for an image
    assert "lies in" in refused_last(capsys, "choose-k", photos, "--out", among)
    assert (
        run("choose-k", photos, *numbers, *NETWORK, "--out", plot, "--overwrite") == 0
    )
    assert capsys.readouterr().out.splitlines()[-2].startswith("Take ")


def test_choose_k_prints_one_object(photos, tmp_path, capsys):
    plot = tmp_path / "plot.png"
    numbers = ("--from", 2, "--to", 3, "--repeats", 2)
    assert run("choose-k", photos, *numbers, *NETWORK, "--out", plot, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["clusters"] in (2, 3)
    assert found["sentence"].startswith(f"Take {found['clusters']} clusters")
    assert found["plot"] == str(plot)
    assert [row["n_clusters"] for row in found["table"]] == [2, 3]
    assert {"stability_mean", "silhouette_mean"} < found["table"][0].keys()


def test_a_plot_that_cannot_be_written_leaves_the_table(
    photos, tmp_path, monkeypatch, capsys
):
    plot = tmp_path / "plot.png"

    def write(path, parts):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(choosing, "write_atomically", write)
    numbers = ("--to", 2, "--repeats", 2)
    assert run("choose-k", photos, *numbers, *NETWORK, "--out", plot, "--json") == 1
    stdout, stderr = capsys.readouterr()
    assert json.loads(stdout)["clusters"] == 2
    assert stderr.endswith(f"{str(plot)!r}: No space left on device\n")


def test_a_fit_goes_into_the_folder_of_the_plot(photos, tmp_path, monkeypatch):
    (tmp_path / "result").mkdir()
    monkeypatch.chdir(tmp_path / "result")
    quick = ("--image-size", 8, "--epochs", 1)
    numbers = ("--from", 2, "--to", 2, "--repeats", 2)
    assert run("choose-k", photos, *numbers, *quick) == 0
    assert run("fit", photos, "--clusters", 2, *quick, "--out", ".") == 0


def test_options_reach_what_choose_k_compares(photos, tmp_path, monkeypatch):
    asked = []

    def choose(*args, **options):
        asked.append((*args, options))
        raise ValueError("enough")

    monkeypatch.setattr(choosing, "choose_n_clusters", choose)
    command = ("choose-k", photos, "--out", tmp_path / "plot.png", "-q")
    numbers = ("--from", 3, "--to", 4, "--repeats", 2, "--seed", 7)
    options = ("--epochs", 5, "--device", "cpu", "--image-size", 8, "--jobs", -1)
    assert run(*command, *numbers, *options) == 1
    ((mice, X, candidates, others),) = asked
    assert (mice.max_epochs, mice.device, X.shape) == (5, "cpu", (20, 8, 8, 3))
    assert [*candidates] == [3, 4]
    assert others == {"n_repeats": 2, "n_jobs": -1, "random_state": 7, "verbose": 0}


def test_a_choice_that_is_not_found_again_asks_for_no_larger_numbers():
    rows = [{"n_clusters": k, "stability_mean": 0.01 * k} for k in (2, 3, 4)]
    words = choosing.in_words(SimpleNamespace(n_clusters=4, table=rows))
    assert words.endswith("no number gives clusters that are found again reliably.")


def test_a_choice_below_the_best_says_so():
    rows = [{"n_clusters": k, "stability_mean": 0.1 * (9 - k)} for k in (2, 3)]
    words = choosing.in_words(SimpleNamespace(n_clusters=3, table=rows))
    assert "0.60, is within a standard error of the best, 0.70 at 2" in words
    assert words.endswith("It is also the largest one tried: raise --to.")
    words = choosing.in_words(SimpleNamespace(n_clusters=2, table=rows[:1]))
    assert words.endswith("the most reproducible (stability 0.70).")


def test_ctrl_c_leaves_the_choice_of_the_whole_splits(
    photos, tmp_path, monkeypatch, capsys
):
    plot, fit, fits = tmp_path / "plot.png", MiCEClustering.fit, []

    def pressed(self, X):
        fits.append(self)
        if len(fits) == 6:
            signal.raise_signal(signal.SIGINT)
        return fit(self, X)

    monkeypatch.setattr(MiCEClustering, "fit", pressed)
    numbers = ("--from", 2, "--to", 2, "--repeats", 9, "--epochs", 1)
    assert run("choose-k", photos, *numbers, "--image-size", 8, "--out", plot) == 130
    stdout, stderr = capsys.readouterr()
    assert "Take 2 clusters, " in stdout
    assert stderr.splitlines()[-1] == "Stopped after 2 of 9 splits."
    assert plot.exists()
    fits.clear()
    numbers = ("--from", 2, "--to", 9, "--repeats", 9, "--epochs", 1)
    plot = tmp_path / "other.png"
    assert run("choose-k", photos, *numbers, "--image-size", 8, "--out", plot) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "sk-mice: stopped"
    assert not plot.exists()


def test_a_plot_needs_the_name_of_a_png_file(photos, tmp_path, capsys):
    for name in (f"{tmp_path / 'new'}/", tmp_path / "plot.pdf"):
        said = refused(capsys, 2, "choose-k", photos, "--out", name)
        assert "--out: it must name a .png file; got " in said
    for command in (("choose-k", photos), ("choose-k", photos, "--overwrite")):
        said = refused(capsys, 2, *command, "--out", tmp_path)
        assert said.endswith("is a folder; name a file in it")
    assert not [*tmp_path.iterdir()]


def test_too_many_clusters_are_refused_before_features(
    photos, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(choosing, "fitted_network", lambda *args: 1 / 0)
    network = ("--features", "efficientnet-lite0", "--out", tmp_path / "plot.png")
    last = refused_last(capsys, "choose-k", photos, *network, "--to", 11)
    assert "--to: it must be at most half the number of images, 10; got 11" in last


def test_warnings_leave_the_line_of_the_bar_and_name_options(
    photos, tmp_path, monkeypatch, capsys
):
    def warn(self, X):
        self.cluster_sizes_ = np.array([0, len(X)])
        self._warn_of_empty_clusters(0)
        _check_finite(torch.tensor(torch.nan))

    monkeypatch.setattr(MiCEClustering, "fit", warn)
    monkeypatch.setattr(Progress, "verbose", 1)
    options = ("--image-size", 8, "--to", 3, "--out", tmp_path / "plot.png")
    assert run("choose-k", photos, *options) == 1
    stderr = capsys.readouterr().err
    lines = [line for part in stderr.splitlines() for line in part.split("\r")]
    warned = "sk-mice: warning: Empty clusters: 1 of 2. Try fewer clusters, a longer "
    (line,) = [line for line in lines if line.startswith(warned)]
    assert "--epochs" in line
    assert "--seed" in line
    assert lines[-1].startswith("sk-mice: error: ")
    assert "--seed" in lines[-1]
    assert "`lr`" not in stderr
    assert "init`" not in stderr
