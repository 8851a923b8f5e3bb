"""A fit that was cut off goes on as if it never had been."""

import copy
import errno
import math
import multiprocessing
import os
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from joblib import parallel_config
from shared import RaiseAt, assert_same_state, no_space, short_fits, state_of, tiny
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from skorch.callbacks import Callback, EarlyStopping

from sk_mice import MiCEClustering, MoCo, _checkpoint
from sk_mice._checkpoint import Checkpoint, SaveProgress
from sk_mice._engine.distributed import ALONE
from sk_mice._engine.storage import write
from sk_mice.ablations import PaperMiCE
from sk_mice.backbones import SmallResNet

pytestmark = short_fits

IMAGES = load_digits(n_class=4).images[:80]


@pytest.fixture(scope="module", autouse=True)
def half_of_the_epochs_for_moco():
    """Of eight, four; the rounds of EM have three and one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MiCEClustering, "_init_share", 0.5)
        patch.setattr(_checkpoint, "LEAST_PAUSE", 0)  # a file after every epoch
        yield


def mice(**options):
    of_the_paper = options.keys() - MiCEClustering().get_params().keys()
    cls = PaperMiCE if of_the_paper else MiCEClustering
    return tiny(cls, **{"batch_size": 40, "max_epochs": 8} | options)


def moco(**options):
    return tiny(MoCo, **{"batch_size": 40, "max_epochs": 4} | options)


class Cut(Exception):
    """Stands for whatever ends a process."""


def cut_off(estimator, epoch):
    cut = clone(estimator).set_params(callbacks=[RaiseAt(epoch, Cut)])
    with pytest.raises(Cut):
        cut.fit(IMAGES)


def assert_same(one, other):
    assert_same_state(one._model, state_of(other._model))
    for first, second in zip(one.history_, other.history_, strict=True):
        assert first | {"seconds": 0} == second | {"seconds": 0}
    for name in ("labels_", "init_labels_", "elbo_", "cluster_sizes_", "stability_"):
        if hasattr(one, name):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


CASES = {
    "two stages": lambda: mice(),
    "random": lambda: mice(init="random", max_epochs=4),
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
    ("two stages", 1),  # the other epochs: test_a_fit_may_be_cut_off_many_times
    *(("random", epoch) for epoch in (1, 3)),
    *(("restarts", epoch) for epoch in (3, 4, 8)),
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
    cut_off(estimator, epoch)
    assert_same(estimator.fit(IMAGES), whole(name))


def test_a_fit_may_be_cut_off_many_times(whole, tmp_path):
    estimator = mice(checkpoint=tmp_path)
    for _ in range(7):
        cut_off(estimator, 2)  # each time one epoch further
    assert_same(estimator.fit(IMAGES), whole("two stages"))


class Note(Callback):
    """Records what is data, and what is not."""

    def on_epoch_end(self, net, **kwargs):
        net.history.record("found", {"a": 1.5})
        net.history.record("seen", {1, 2})


def test_what_callbacks_record_is_kept_if_it_is_data(tmp_path):
    noted = moco(checkpoint=tmp_path, callbacks=[Note()]).fit(IMAGES)
    assert [row["found"] for row in noted.history_] == 4 * [{"a": 1.5}]
    assert not any("seen" in row for row in noted.history_)
    again = moco(checkpoint=tmp_path, callbacks=[Note()]).fit(IMAGES)
    assert_same(again, noted)


class HalveTau(Callback):
    """In the fourth epoch alone."""

    def on_epoch_begin(self, net, **kwargs):
        if len(net.history) == 4:
            net.module_.tau /= 2


@pytest.mark.parametrize("n_init", [1, 2])
def test_temperatures_that_a_callback_changes_are_kept(tmp_path, n_init):
    estimator = mice(init="random", n_init=n_init, max_epochs=6, callbacks=[HalveTau()])
    expected = clone(estimator).fit(IMAGES)
    assert expected._model.tau == expected.tau / 2
    estimator.set_params(checkpoint=tmp_path)
    cut = clone(estimator).set_params(callbacks=[HalveTau(), RaiseAt(6, Cut)])
    with pytest.raises(Cut):
        cut.fit(IMAGES)
    for _ in range(2):  # goes on, and reads what is complete
        found = clone(estimator).fit(IMAGES)
        assert found._model.tau == expected.tau / 2
        assert_same(found, expected)


def test_a_finished_fit_returns_at_once(tmp_path, monkeypatch, capsys):
    estimator = mice(checkpoint=tmp_path, n_init=2, max_epochs=3, init="random")
    first = clone(estimator).fit(IMAGES)
    monkeypatch.setattr(
        MiCEClustering, "_run_stage", lambda *a: pytest.fail("it trained")
    )
    again = clone(estimator).set_params(verbose=1).fit(IMAGES)
    assert_same(again, first)
    said = capsys.readouterr()
    assert "goes on after 6 epochs" in said.err
    assert said.out == ""
    np.testing.assert_array_equal(again.predict(IMAGES), first.labels_)


def test_given_labels_are_part_of_the_fit(tmp_path):
    labels = np.arange(len(IMAGES)) % 3
    estimator = mice(checkpoint=tmp_path, max_epochs=3, init=labels)
    expected = mice(max_epochs=3, init=labels).fit(IMAGES)
    cut_off(estimator, 2)
    assert_same(clone(estimator).fit(IMAGES), expected)
    estimator.set_params(init="two-stage").fit(IMAGES)
    assert {row["stage"] for row in estimator.history_} == {"moco", "em"}


def test_a_warm_start_goes_on_too(whole, tmp_path):
    first = whole("two stages")
    change = {"warm_start": True, "lr": 0.01, "max_epochs": 3}
    expected = copy.deepcopy(first).set_params(**change).fit(IMAGES)
    estimator = copy.deepcopy(first).set_params(checkpoint=tmp_path, **change)
    with pytest.raises(Cut):
        copy.deepcopy(estimator).set_params(callbacks=[RaiseAt(3, Cut)]).fit(IMAGES)
    assert_same(estimator.fit(IMAGES), expected)


def test_seeds_that_were_drawn_are_kept(tmp_path):
    estimator = mice(
        checkpoint=tmp_path, random_state=None, max_epochs=3, init="random"
    )
    cut_off(estimator, 3)
    first = clone(estimator).fit(IMAGES)
    assert_same(clone(estimator).fit(IMAGES), first)


def test_clones_in_a_search_share_a_folder(tmp_path):
    estimator = mice(checkpoint=tmp_path, max_epochs=2, init="random")
    search = GridSearchCV(estimator, {"tau": [0.5, 1.0]}, cv=2, n_jobs=2)
    with parallel_config("threading"):
        search.fit(IMAGES)
    assert len(list(tmp_path.glob("*[!s].safetensors"))) == 5  # 2 x 2 folds and all
    assert search.best_estimator_.n_iter_ == 2


def test_files_take_a_small_part_of_the_time_also_by_a_coarse_clock(monkeypatch):
    monkeypatch.setattr(_checkpoint, "LEAST_PAUSE", 20)
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)  # as in 16 ms of Windows
    now, saved = [5.0], []
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def save(run, trainer):
        now[0] += 0.5
        saved.append(now[0])

    progress = SaveProgress(SimpleNamespace(save=save), None, ALONE)
    net = SimpleNamespace(history=[{}], max_epochs=99, stop_requested=lambda: False)
    for _ in range(30):
        now[0] += 1
        progress.on_epoch_end(net)
    assert saved == [6.5, 17.0, 27.5]  # each takes 0.5, and pauses of 10 follow
    net.max_epochs = 1  # it was the last one
    progress.on_epoch_end(net)
    assert len(saved) == 4
    net.max_epochs, net.stop_requested = 99, lambda: True  # it became the last one
    progress.on_epoch_end(net)
    assert len(saved) == 5


# ---------------------------------------------------------------- whose progress it is


def files(folder):
    (latest,) = folder.glob("*[!s].safetensors")
    (previous,) = folder.glob("*.previous.safetensors")
    return latest, previous


def test_a_file_of_another_fit_is_not_used(whole, tmp_path):
    other = mice(checkpoint=tmp_path, tau=0.5)
    cut_off(other, 3)
    path, previous = files(tmp_path)
    estimator = mice(checkpoint=tmp_path / "own")
    cut_off(estimator, 4)
    ours, before = files(tmp_path / "own")
    ours.write_bytes(path.read_bytes())
    with pytest.warns(UserWarning, match="belongs to another fit: its `tau` differ"):
        assert_same(clone(estimator).fit(IMAGES), whole("two stages"))
    for mine in (ours, before):
        mine.write_bytes(previous.read_bytes())
    with (
        pytest.warns(UserWarning, match="belongs to another fit"),
        pytest.raises(ValueError, match=r"No checkpoint of this fit"),
    ):
        clone(estimator).fit(IMAGES)


def fit_into(folder, name, start):
    """Fit, as soon as the other process is about to."""
    _checkpoint.LEAST_PAUSE = 0  # also in a new process
    model = mice(checkpoint=folder / "runs", max_epochs=6, init="random")
    start.wait(300)
    (folder / name).write_text(repr(model.fit(IMAGES).elbo_))


@pytest.mark.filterwarnings("ignore:Skipped:UserWarning")
def test_equal_fits_share_a_folder(tmp_path):
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(2)
    other = context.Process(target=fit_into, args=(tmp_path, "other", start))
    other.start()
    fit_into(tmp_path, "this", start)
    other.join()
    assert other.exitcode == 0
    assert (tmp_path / "this").read_text() == (tmp_path / "other").read_text()
    again = mice(checkpoint=tmp_path / "runs", max_epochs=6, init="random").fit(IMAGES)
    assert (tmp_path / "this").read_text() == repr(again.elbo_)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_equal_fits_in_threads_share_a_folder(tmp_path):
    estimator = mice(max_epochs=4, init="random")
    expected = clone(estimator).fit(IMAGES)
    estimator.set_params(checkpoint=tmp_path)
    with ThreadPoolExecutor(4) as pool:
        models = list(pool.map(lambda _: clone(estimator).fit(IMAGES), range(4)))
    for model in models:
        assert_same(model, expected)


# ------------------------------------------------------------------- what goes wrong


def test_a_damaged_file_is_passed_over_for_the_one_before(whole, tmp_path):
    estimator = mice(checkpoint=tmp_path)
    cut_off(estimator, 4)
    latest, _ = files(tmp_path)
    content = bytearray(latest.read_bytes())
    content[len(content) // 2] ^= 1
    latest.write_bytes(content)
    with (
        patch.object(os, "fsync", no_space),  # the one before outlives this, too
        pytest.warns(UserWarning, match="Skipped"),
        pytest.raises(OSError, match="No space"),
    ):
        clone(estimator).fit(IMAGES)
    with pytest.warns(UserWarning, match=r"Skipped a checkpoint.*damaged"):
        assert_same(estimator.fit(IMAGES), whole("two stages"))


def test_files_that_are_both_damaged_are_named_and_can_be_removed(whole, tmp_path):
    estimator = CASES["random"]().set_params(checkpoint=tmp_path)
    cut_off(estimator, 3)
    for path in files(tmp_path):
        path.write_bytes(path.read_bytes()[:100])
    for path in files(tmp_path):
        with (
            pytest.warns(UserWarning, match="Skipped"),
            pytest.raises(ValueError, match=f"start anew, remove .*{path.name}'"),
        ):
            clone(estimator).fit(IMAGES)
    for path in files(tmp_path):
        path.unlink()
    assert_same(estimator.fit(IMAGES), whole("random"))


def test_a_fit_that_another_kind_of_device_began_is_named(tmp_path, monkeypatch):
    read = Checkpoint._read

    def of_a_gpu(checkpoint, path):
        progress = read(checkpoint, path)
        assert progress["device"] == "cpu"
        return progress | {"device": "cuda"}

    begun = moco(checkpoint=tmp_path, backbone=SmallResNet(4, blocks=(1,)))
    cut_off(begun, 2)
    whole = moco(checkpoint=tmp_path, backbone="auto").fit(IMAGES)
    monkeypatch.setattr(Checkpoint, "_read", of_a_gpu)
    for estimator in (begun, clone(whole)):  # of other draws, of another network
        with pytest.raises(ValueError, match=r"begun on a cuda .* on a cpu device"):
            estimator.fit(IMAGES)
    monkeypatch.undo()
    begun.fit(IMAGES)
    monkeypatch.setattr(Checkpoint, "_read", of_a_gpu)
    assert_same(clone(begun).fit(IMAGES), begun)  # which is complete


def test_a_file_of_an_earlier_version_is_not_used(tmp_path):
    checkpoint = Checkpoint(tmp_path, {"class": "MoCo"})
    assert checkpoint.load() is None
    tensors = {"x": torch.zeros(1)}
    write(checkpoint.path, tensors, {"fit": {}}, kind="checkpoint", version=2)
    with (
        pytest.warns(UserWarning, match=r"Skipped.*earlier version of sk_mice"),
        pytest.raises(ValueError, match=r"No checkpoint of this fit can be read"),
    ):
        checkpoint.load()
    checkpoint.save({"epoch": 3, "weights": torch.ones(2)})
    assert checkpoint.load()["weights"].tolist() == [1, 1]


def test_a_crash_between_two_renames_costs_one_epoch(whole, tmp_path):
    estimator = mice(checkpoint=tmp_path)
    cut_off(estimator, 4)
    files(tmp_path)[0].unlink()
    assert_same(estimator.fit(IMAGES), whole("two stages"))


@pytest.mark.parametrize("on_windows", [False, True])
def test_a_folder_that_cannot_be_made(tmp_path, monkeypatch, on_windows):
    def not_found(folder, **options):
        raise FileNotFoundError(errno.ENOENT, "The system cannot find the path", folder)

    (tmp_path / "file").touch()
    if on_windows:
        monkeypatch.setattr(os, "makedirs", not_found)
    for folder in (tmp_path / "file", tmp_path / "file" / "runs"):
        with pytest.raises(NotADirectoryError, match="`checkpoint` must be a folder"):
            mice(checkpoint=folder).fit(IMAGES)
    if on_windows:  # as of a drive that is not there
        with pytest.raises(FileNotFoundError, match="cannot find the path"):
            mice(checkpoint=tmp_path / "runs").fit(IMAGES)


def test_a_folder_that_takes_no_files_is_refused_before_the_work(tmp_path, monkeypatch):
    def refuse(dir):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(dir / "x"))

    whole = mice(checkpoint=tmp_path).fit(IMAGES)
    monkeypatch.setattr(_checkpoint.tempfile, "TemporaryFile", refuse)
    words = "`checkpoint` must be a folder for new files: Permission"
    fresh = mice(checkpoint=tmp_path, random_state=7)
    with pytest.raises(PermissionError, match=words) as caught:
        fresh.fit(IMAGES)
    assert caught.value.filename == str(tmp_path)
    assert not hasattr(fresh, "n_iter_")
    # A complete fit is only read.
    again = mice(checkpoint=tmp_path).fit(IMAGES)
    np.testing.assert_array_equal(again.labels_, whole.labels_)


def test_a_network_whose_state_no_file_can_hold_is_refused_before_the_work(tmp_path):
    class Counting(torch.nn.Linear):
        def get_extra_state(self):
            return {1: 2}

        def set_extra_state(self, state):
            pass

    rows = IMAGES.reshape(len(IMAGES), -1)
    fresh = mice(backbone=Counting(rows.shape[1], 8), checkpoint=tmp_path)
    with pytest.raises(
        ValueError, match=r"keep only tensors; '_extra_state' is not one"
    ):
        fresh.fit(rows)


class Vanish(Callback):
    """Removes a folder at the end of an epoch."""

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
    estimator = mice(checkpoint=tmp_path, init="random")
    write, count = os.fsync, []

    def full(handle):
        count.append(handle)
        (write if len(count) <= 6 else no_space)(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device.*safetensors"):
        estimator.fit(IMAGES)
    assert 0 < estimator.n_iter_ < 8
    monkeypatch.undo()
    np.testing.assert_array_equal(estimator.labels_, estimator.predict(IMAGES))
    assert not list(tmp_path.glob(".*"))  # no temporary file
    assert_same(estimator.fit(IMAGES), mice(init="random").fit(IMAGES))


def test_a_fit_that_a_callback_has_ended_is_named(tmp_path):
    ends = EarlyStopping(patience=1, threshold=10)
    ended = mice(checkpoint=tmp_path, init="random", callbacks=[ends]).fit(IMAGES)
    assert ended.n_iter_ < 8
    with pytest.warns(
        UserWarning, match=r"ended by one of its .* after \d of 8 epochs"
    ):
        mice(checkpoint=tmp_path, init="random").fit(IMAGES)


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
            process.kill()
            kills += 1
        output = process.communicate()[0]
        if output:  # it came to its end: compare, and begin again
            assert output == expected
            for path in folder.iterdir():
                path.unlink()
    assert start(folder).communicate()[0] == expected
