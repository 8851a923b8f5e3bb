"""A fit that was cut off goes on as if it never had been."""

import copy
import math
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from skorch.callbacks import Callback

from sk_mice import MiCEClustering, MoCo
from sk_mice._checkpoint import fingerprint

# The fits here are too short to separate anything: a cluster may well be empty.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

IMAGES = load_digits(n_class=4).images[:120]
OPTIONS = {
    "backbone": "resnet-small-4",
    "embedding_dim": 8,
    "batch_size": 40,
    "flip": False,
    "random_state": 0,
}


def mice(**options):
    defaults = {"max_epochs": 8, "init_share": 0.5, "n_rounds": 2}
    return MiCEClustering(3, **OPTIONS | defaults | options)


def moco(**options):
    return MoCo(**OPTIONS | {"max_epochs": 4} | options)


class Cut(Exception):
    """Stands for whatever ends a process."""


class CutAt(Callback):
    """Ends a fit in the second batch of an epoch, counted over everything."""

    def __init__(self, epoch):
        self.epoch, self.count = epoch, 0

    def on_epoch_begin(self, net, **kwargs):
        self.count += 1
        self.batches = 0

    def on_batch_end(self, net, **kwargs):
        self.batches += 1
        if self.count == self.epoch and self.batches == 2:
            raise Cut


def cut_off(estimator, X, epoch, **fit_params):
    with pytest.raises(Cut):
        clone(estimator).set_params(callbacks=[CutAt(epoch)]).fit(X, **fit_params)


def assert_same(one, other):
    states = one._model.state_dict(), other._model.state_dict()
    assert states[0].keys() == states[1].keys()
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name]), name
    for first, second in zip(one.history_, other.history_, strict=True):
        assert first | {"seconds": 0} == second | {"seconds": 0}
    for name in ("labels_", "init_labels_", "elbo_", "cluster_sizes_", "stability_"):
        if hasattr(one, name):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


CASES = {
    "two stages": lambda: mice(),
    "random": lambda: mice(init="random", max_epochs=4),
    "every other epoch": lambda: mice(checkpoint_every=2),
    "restarts": lambda: mice(n_init=3, max_epochs=3),
    "uniform gate, no momentum of the teacher": lambda: mice(
        kappa=math.inf, teacher_momentum=0.0, max_epochs=4
    ),
    "neighbors, and passes over the prototypes": lambda: mice(
        n_neighbors=3, expert_prototypes="passes", max_epochs=4
    ),
    "MoCo": lambda: moco(),
}
CUTS = [
    *(("two stages", epoch) for epoch in range(1, 9)),
    *(("random", epoch) for epoch in (1, 3)),
    *(("every other epoch", epoch) for epoch in (2, 4, 7)),
    *(("restarts", epoch) for epoch in (3, 4, 5, 8)),
    ("uniform gate, no momentum of the teacher", 3),
    ("neighbors, and passes over the prototypes", 2),
    *(("MoCo", epoch) for epoch in (1, 4)),
]


@pytest.fixture(scope="module")
def whole():
    """Each case's fit, never cut off and without checkpoints."""
    fits = {}

    def fit(name):
        if name not in fits:
            fits[name] = CASES[name]().fit(IMAGES)
        return fits[name]

    return fit


@pytest.mark.parametrize(("name", "epoch"), CUTS)
def test_a_fit_goes_on_bit_for_bit(name, epoch, whole, tmp_path):
    estimator = CASES[name]().set_params(checkpoint=tmp_path)
    cut_off(estimator, IMAGES, epoch)
    assert_same(estimator.fit(IMAGES), whole(name))


def test_a_fit_may_be_cut_off_many_times(whole, tmp_path):
    estimator = mice(checkpoint=tmp_path)
    for _ in range(7):
        cut_off(estimator, IMAGES, 2)  # each time one epoch further
    assert_same(estimator.fit(IMAGES), whole("two stages"))


def test_a_finished_fit_returns_at_once(whole, tmp_path, monkeypatch, capsys):
    estimator = mice(checkpoint=tmp_path, n_init=2, max_epochs=3)
    first = clone(estimator).fit(IMAGES)
    monkeypatch.setattr(MiCEClustering, "_run", lambda *a: pytest.fail("it trained"))
    again = clone(estimator).set_params(verbose=1).fit(IMAGES)
    assert_same(again, first)
    assert "goes on after 6 epochs" in capsys.readouterr().out
    np.testing.assert_array_equal(again.predict(IMAGES), first.labels_)


def test_given_labels_are_part_of_the_fit(tmp_path):
    labels = np.arange(len(IMAGES)) % 3
    estimator = mice(checkpoint=tmp_path, max_epochs=3)
    expected = mice(max_epochs=3).fit(IMAGES, init_labels=labels)
    cut_off(estimator, IMAGES, 2, init_labels=labels)
    assert_same(clone(estimator).fit(IMAGES, init_labels=labels), expected)
    estimator.fit(IMAGES)
    assert {row["stage"] for row in estimator.history_} == {"moco", "em"}


def test_a_warm_start_goes_on_too(whole, tmp_path):
    first = whole("two stages")
    change = {"warm_start": True, "lr": 0.01, "max_epochs": 3}
    expected = copy.deepcopy(first).set_params(**change).fit(IMAGES)
    estimator = copy.deepcopy(first).set_params(checkpoint=tmp_path, **change)
    with pytest.raises(Cut):
        copy.deepcopy(estimator).set_params(callbacks=[CutAt(3)]).fit(IMAGES)
    assert_same(estimator.fit(IMAGES), expected)


def test_seeds_that_were_drawn_are_kept(tmp_path):
    estimator = mice(checkpoint=tmp_path, random_state=None, max_epochs=3)
    cut_off(estimator, IMAGES, 3)
    first = clone(estimator).fit(IMAGES)
    assert_same(clone(estimator).fit(IMAGES), first)


def test_clones_in_a_search_share_a_folder(tmp_path):
    search = GridSearchCV(
        mice(checkpoint=tmp_path, max_epochs=2), {"tau": [0.5, 1.0]}, cv=2, n_jobs=2
    ).fit(IMAGES)
    assert len(list(tmp_path.glob("*[!s].safetensors"))) == 5  # 2 x 2 folds and all
    assert search.best_estimator_.n_iter_ == 2


def test_names_tell_fits_apart_and_nothing_else():
    def name(X=IMAGES, *more, **options):
        return fingerprint(mice(**options), X, *more)

    same = [
        name(),
        name(verbose=1, callbacks=[CutAt(1)], checkpoint_every=5),
        name(np.asfortranarray(IMAGES)),
        name(random_state=np.int64(0)),
    ]
    assert len(set(same)) == 1
    generator = np.random.RandomState
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(256, 8))
    other = copy.deepcopy(module)
    other[1].bias.data += 1e-3
    changed = IMAGES.copy()
    changed[-1, -1, -1] += 1
    others = [
        *(name(tau=0.5), name(max_epochs=9), name(random_state=1)),
        *(name(random_state=generator(s)) for s in (0, 1)),
        *(name(backbone=m) for m in (module, other)),
        *(name(augmentation=a) for a in (None, np.abs, np.sin)),
        *(name(changed), name(IMAGES[:-1]), name(IMAGES.astype(np.float32))),
        *(name(IMAGES, np.zeros(120)), name(IMAGES, np.ones(120))),
    ]
    assert len({*same, *others}) == 1 + len(others)


# ------------------------------------------------------------------- what goes wrong


def files(folder):
    (latest,) = folder.glob("*[!s].safetensors")
    (previous,) = folder.glob("*.previous.safetensors")
    return latest, previous


def test_a_damaged_file_is_passed_over_for_the_one_before(whole, tmp_path):
    estimator = mice(checkpoint=tmp_path)
    cut_off(estimator, IMAGES, 4)
    latest, _ = files(tmp_path)
    content = bytearray(latest.read_bytes())
    content[len(content) // 2] ^= 1
    latest.write_bytes(content)
    with pytest.warns(UserWarning, match=r"Passed over a checkpoint.*damaged"):
        assert_same(clone(estimator).fit(IMAGES), whole("two stages"))
    for path in files(tmp_path):
        path.write_bytes(content[:100])
    with (
        pytest.warns(UserWarning, match="Passed over"),
        pytest.raises(ValueError, match=r"No checkpoint.*can be read; remove"),
    ):
        clone(estimator).fit(IMAGES)


def test_a_crash_between_two_renames_costs_one_epoch(whole, tmp_path):
    estimator = mice(checkpoint=tmp_path)
    cut_off(estimator, IMAGES, 4)
    files(tmp_path)[0].unlink()
    assert_same(estimator.fit(IMAGES), whole("two stages"))


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        mice(checkpoint=tmp_path / "file" / "runs").fit(IMAGES)


class Vanish(Callback):
    """Puts a file in the place of a folder at the end of an epoch."""

    def __init__(self, folder, epoch):
        self.folder, self.epoch = folder, epoch

    def on_epoch_end(self, net, **kwargs):
        if len(net.history) == self.epoch:
            for path in self.folder.iterdir():
                path.unlink()
            self.folder.rmdir()


def test_a_folder_that_vanishes_costs_nothing_but_the_rest(tmp_path):
    folder = tmp_path / "runs"
    estimator = mice(checkpoint=folder, callbacks=[Vanish(folder, 3)])
    with pytest.raises(OSError, match="runs"):
        estimator.fit(IMAGES)
    assert estimator.n_iter_ == 3
    np.testing.assert_array_equal(estimator.labels_, estimator.predict(IMAGES))


def test_a_full_disk_costs_nothing_but_the_rest(tmp_path, monkeypatch):
    estimator = mice(checkpoint=tmp_path)
    write, count = os.fsync, []

    def full(handle):
        count.append(handle)
        if len(count) > 6:
            raise OSError(28, "No space left on device")
        write(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device.*safetensors"):
        estimator.fit(IMAGES)
    assert 0 < estimator.n_iter_ < 8
    monkeypatch.undo()
    np.testing.assert_array_equal(estimator.labels_, estimator.predict(IMAGES))
    assert not list(tmp_path.glob(".*"))  # no temporary file
    assert_same(estimator.fit(IMAGES), mice().fit(IMAGES))


# ----------------------------------------------------------------------- really killed

SCRIPT = textwrap.dedent(
    """
    import sys
    import torch
    torch.set_num_threads(1)
    sys.path.insert(0, {tests!r})
    from test_checkpoint import IMAGES, mice
    import warnings
    warnings.simplefilter("ignore")
    print("ready", flush=True)
    model = mice(checkpoint={folder!r}, n_init=2).fit(IMAGES)
    import hashlib
    sha = hashlib.sha256()
    for name, value in model._model.state_dict().items():
        sha.update(name.encode() + value.float().contiguous().numpy().tobytes())
    print(sha.hexdigest(), model.elbo_)
    """
)


def start(folder):
    script = SCRIPT.format(tests=os.path.dirname(__file__), folder=str(folder))
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline().strip() == "ready"
    return process


@pytest.mark.slow
def test_killed_at_twenty_moments(tmp_path):
    began = time.perf_counter()
    expected = start(tmp_path / "whole").communicate()[0]
    seconds = time.perf_counter() - began
    assert len(expected.split()) == 2
    rng = np.random.default_rng(0)
    kills, folder, n_attempts = 0, tmp_path / "killed", 0
    while kills < 20:
        process = start(folder)
        n_attempts += 1
        assert n_attempts < 200
        # Half of the time as soon as a file is being written.
        writing = rng.random() < 0.5
        deadline = time.perf_counter() + rng.uniform(0, seconds / 4)
        while process.poll() is None and time.perf_counter() < deadline:
            if writing and list(folder.glob(".sk_mice-*")):
                break
            time.sleep(0.001)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        output = process.communicate()[0]
        if output:  # it came to its end: compare, and begin again
            assert output == expected
            for path in folder.iterdir():
                path.unlink()
    assert start(folder).communicate()[0] == expected
