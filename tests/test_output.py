"""`out` of predictions: same values as without it, and errors before the work."""

import os
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from joblib import Parallel, delayed, parallel_config
from shared import no_space
from sklearn.datasets import load_digits
from systems import needs_open_files_replaced, needs_proc
from windows import refuse_files_in_use

from sk_mice import MiCEClustering, MoCo
from sk_mice._engine import inference, maps

METHODS = ["predict", "predict_proba", "transform"]


@pytest.fixture(scope="module")
def X():
    return load_digits().images[:100]


@pytest.fixture(scope="module")
def mice(X):
    options = {"init": np.arange(100) % 3, "max_epochs": 1, "lr": 1e-3}
    return MiCEClustering(3, **options, random_state=0).fit(X)


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(inference, "LARGEST_BATCH", 32)


@pytest.mark.parametrize("name", METHODS)
def test_array_is_filled_and_returned(mice, X, name, small_batches):
    expected = getattr(mice, name)(X)
    out = np.zeros_like(expected)
    assert getattr(mice, name)(X, out=out) is out
    assert np.array_equal(out, expected)


@pytest.mark.parametrize("name", METHODS)
def test_classes_that_are_passed_by_mistake_are_not_written_over(mice, X, name):
    with pytest.raises(TypeError, match="positional argument"):
        getattr(mice, name)(X, np.zeros_like(getattr(mice, name)(X)))


@pytest.mark.parametrize("name", METHODS)
def test_path_becomes_a_file(mice, X, name, tmp_path, small_batches):
    path = tmp_path / "out.npy"
    found = getattr(mice, name)(X, out=path)
    assert isinstance(found, np.memmap)
    assert np.array_equal(found, getattr(mice, name)(X))
    assert np.array_equal(np.load(path), found)
    assert os.listdir(tmp_path) == ["out.npy"]


@needs_proc
@pytest.mark.parametrize("name", METHODS)
def test_windows_renames_the_file_too(mice, X, name, tmp_path, monkeypatch):
    refuse_files_in_use(monkeypatch)
    found = getattr(mice, name)(X, out=tmp_path / "out.npy")
    assert np.array_equal(found, getattr(mice, name)(X))


def test_workers_of_joblib_find_the_file(mice, X, tmp_path):
    posterior = mice.predict_proba(X, out=tmp_path / "out.npy")
    with parallel_config(max_nbytes=0):
        sums = Parallel(2)(delayed(np.sum)(rows) for rows in (posterior, posterior[:9]))
    assert sums == pytest.approx([100, 9], rel=1e-5)


def test_moco_writes_too(X, tmp_path):
    moco = MoCo(max_epochs=1, random_state=0).fit(X)
    found = moco.transform(X, out=str(tmp_path / "out.npy"))
    assert np.array_equal(found, moco.transform(X))


@needs_open_files_replaced
def test_file_of_the_samples_may_be_replaced(mice, X, tmp_path):
    path = tmp_path / "X.npy"
    np.save(path, X)
    mice.transform(np.load(path, mmap_mode="r"), out=path)
    assert np.array_equal(np.load(path), mice.transform(X))


read_only = np.empty(100, np.int64)
read_only.flags.writeable = False


@pytest.mark.parametrize(
    ("out", "error", "words"),
    [
        (np.empty(99, np.int64), ValueError, r"`out` .* \(100,\) .* got \(99,\)"),
        (np.empty(100), ValueError, "type int64; got .* float64"),
        (read_only, ValueError, "`out` must be writeable"),
        ([0] * 100, TypeError, "got list"),
        ("out.txt", ValueError, '`out` must end in ".npy"; got'),
        ("nowhere/out.npy", FileNotFoundError, "`out` must be .*: No such folder"),
        ("folder.npy", IsADirectoryError, "`out` must be .*: Is a directory"),
    ],
)
def test_what_cannot_be_written_to_is_refused(
    mice, X, monkeypatch, tmp_path, out, error, words
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.npy").mkdir()
    monkeypatch.setattr(mice, "_inference", None)  # it is not reached
    with pytest.raises(error, match=words):
        mice.predict(X, out=out)


@pytest.mark.parametrize("on_windows", [False, pytest.param(True, marks=needs_proc)])
def test_failure_leaves_no_file(mice, X, tmp_path, monkeypatch, on_windows):
    batches = mice._inference.batches

    def fails(*args):
        yield next(batches(*args))
        raise MemoryError

    monkeypatch.setattr(mice._inference, "batches", fails, raising=True)
    if on_windows:
        refuse_files_in_use(monkeypatch)
    with pytest.raises(MemoryError):
        mice.predict(X, out=tmp_path / "out.npy")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("reserves", [True, False])
def test_full_disk_is_an_error_that_names_the_file(tmp_path, monkeypatch, reserves):
    if reserves:
        monkeypatch.setattr(maps.os, "posix_fallocate", no_space, raising=False)
    else:  # as on macOS
        monkeypatch.delattr(maps.os, "posix_fallocate", raising=False)
        monkeypatch.setattr(
            maps.shutil, "disk_usage", lambda path: SimpleNamespace(free=100)
        )
    for make in (maps.create, partial(maps.write_rows, parts=map(no_space, "a"))):
        with pytest.raises(OSError, match=r"No space.*out\.npy"):
            make(tmp_path / "out.npy", (3,), "float32")
        assert not os.listdir(tmp_path)


def test_a_file_is_made_where_no_place_can_be_reserved(tmp_path, monkeypatch):
    monkeypatch.delattr(maps.os, "posix_fallocate", raising=False)
    made = maps.create(tmp_path / "a.npy", (3, 2), np.float32)
    made[:] = rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    made.flush()
    maps.write_rows(tmp_path / "b.npy", (3, 2), np.float32, [rows[:1], rows[1:]])
    for name in ("a.npy", "b.npy"):
        assert np.array_equal(np.load(tmp_path / name), rows)
