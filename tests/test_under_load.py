"""Threads, forks, hundreds of fits: nothing changes, hangs, grows or is left behind.

What needs a process of its own is a function below, started by name:
`python tests/test_under_load.py fork`.
"""

import hashlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

import sk_mice
from sk_mice import MiCEClustering, MoCo, SphericalKMeans

IMAGES = np.random.default_rng(0).random((80, 12, 12))
ROWS = IMAGES.reshape(80, -1)
PROC = Path("/proc/self")


def tiny(cls=MiCEClustering, **options):
    defaults = {
        "backbone": "resnet-small-4",
        "max_epochs": 2,
        "embedding_dim": 8,
        "flip": False,
        "random_state": 0,
    }
    if cls is MiCEClustering:
        defaults["n_clusters"] = 3
    return cls(**(defaults | options))


def fresh(name, *args, threads="2", timeout=500):
    """Run a function of this file in a new process, with threads of its own."""
    done = subprocess.run(
        [sys.executable, __file__, name, *map(str, args)],
        env={**os.environ, "OMP_NUM_THREADS": threads, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# -------------------------------------------------------------------------- at once


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("make", "method", "X"),
    [
        (tiny, "predict_proba", IMAGES),
        (tiny, "predict", IMAGES),
        (lambda: tiny(MoCo), "transform", IMAGES),
        (lambda: SphericalKMeans(3, random_state=0), "transform", ROWS),
    ],
    ids=["mice", "mice-labels", "moco", "kmeans"],
)
def test_eight_threads_get_what_one_gets(make, method, X):
    model = make().fit(X)
    parts = [X[start : start + 30] for start in range(0, 50, 5)]
    expected = [getattr(model, method)(part) for part in parts]
    start = threading.Barrier(8)

    def work(turn):
        start.wait()
        return [getattr(model, method)(part) for part in parts]

    with ThreadPoolExecutor(8) as pool:
        for results in pool.map(work, range(8)):
            for ours, theirs in zip(results, expected, strict=True):
                np.testing.assert_array_equal(ours, theirs)


# ------------------------------------------------------------------ other processes


def predict_and_fit(model, X, results):
    results.put((model.predict_proba(X), tiny().fit(X).predict_proba(X)))


def other_process(method):
    # Whatever the machine's own choice: pickles hold a queue in float32 by other means.
    model = tiny(queue_precision="float32").fit(IMAGES)
    context = multiprocessing.get_context(method)
    results = context.Queue()
    args = model, IMAGES, results
    child = context.Process(target=predict_and_fit, args=args, daemon=True)
    child.start()
    loaded, refitted = results.get(timeout=300)  # raises if the child hangs
    child.join(60)
    assert child.exitcode == 0
    # One thread adds in another order than two.
    np.testing.assert_allclose(loaded, model.predict_proba(IMAGES), atol=1e-5)
    assert np.isfinite(refitted).all()


@pytest.mark.parametrize(
    "method", [m for m in multiprocessing.get_all_start_methods() if m != "forkserver"]
)
def test_a_fitted_model_works_in_another_process(method):
    fresh("other_process", method)


def digest(estimator, X):
    """A hash of all that a fit gives but the time that it took."""
    model = estimator.fit(X)
    found = hashlib.sha256()
    for name, value in model._model.state_dict().items():
        found.update(name.encode())
        found.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    for row in model.history_:
        found.update(repr({k: v for k, v in row.items() if k != "seconds"}).encode())
    found.update(model.transform(X).tobytes())
    return found.hexdigest()


def hashes():
    print(digest(tiny(), IMAGES), digest(tiny(backbone="mlp"), ROWS))
    print(digest(tiny(MoCo), IMAGES))


def test_two_processes_give_the_same_bytes():
    first, second = fresh("hashes"), fresh("hashes")
    assert first == second
    assert len(set(first.split())) == 3


# --------------------------------------------------------------- what is left behind


def resident_bytes():
    return int((PROC / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth(n_fits):
    """Bytes that the process has grown by in these fits, after the first ones."""
    before = None
    for fit in range(10 + int(n_fits)):
        if fit == 10:  # by now all libraries are loaded and all pools are made
            before = resident_bytes()
        model = tiny(random_state=fit).fit(IMAGES)
        model.predict_proba(IMAGES)
    print(resident_bytes() - before)


needs_proc = pytest.mark.skipif(
    not (PROC / "statm").exists(), reason="this system has no /proc"
)


@needs_proc
@pytest.mark.parametrize("n_fits", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_fits_do_not_grow_memory(n_fits):
    assert int(fresh("growth", n_fits, threads="1")) < 50e6


def leftovers(folder):
    """Threads, open files and files that one round of everything leaves behind."""
    os.chdir(folder)
    tempfile.tempdir = folder

    def everything():
        for estimator in (tiny(verbose=1), tiny(MoCo), tiny(init="random")):
            sk_mice.save(estimator.fit(IMAGES), "model")
            sk_mice.load("model").transform(IMAGES)
        sk_mice.save(SphericalKMeans(3).fit(ROWS), "model")
        sk_mice.load("model").predict(ROWS)
        failing = tiny(lr=1e6, schedule=lambda progress: 1e30)
        with suppress(FloatingPointError):
            failing.fit(IMAGES)
        with suppress(ValueError):
            tiny().fit(IMAGES * np.nan)
        with suppress(OSError):
            sk_mice.save(tiny().fit(IMAGES), "nowhere/model")

    def state():
        return (
            {thread.name for thread in threading.enumerate()},
            len(os.listdir("/proc/self/fd")),
            len(os.listdir("/proc/self/task")),
            sorted(os.listdir(folder)),
        )

    threads = {thread.name for thread in threading.enumerate()}
    everything()  # loads libraries, and starts torch's threads
    first = state()
    assert first[0] == threads, first
    for _ in range(2):
        everything()
    assert state() == first, (first, state())
    assert first[-1] == ["model"], first


@needs_proc
def test_nothing_is_left_behind(tmp_path):
    fresh("leftovers", tmp_path, threads="1")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    globals()[sys.argv[1]](*sys.argv[2:])
