"""X in a file that is larger than memory, or counts as larger."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from shared import mapped_as_large
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score
from systems import needs_proc

from sk_mice import MiCEClustering, _start
from sk_mice._engine import inference
from sk_mice.datasets import load_digits


@pytest.fixture
def X(tmp_path, monkeypatch):
    """A file of 300 images of three digits, sorted, that counts as large."""
    X, y, _ = load_digits()
    few = np.sort(np.flatnonzero(y < 3)[:300])
    few = few[np.argsort(y[few], kind="stable")]
    return mapped_as_large(X[few], tmp_path, monkeypatch, 100 * X[0].nbytes)


def fitted(X, **parameters):
    parameters = {"max_epochs": 6, "batch_size": 64, "device": "cpu"} | parameters
    return MiCEClustering(3, random_state=0, **parameters).fit(X)


class Watched(KMeans):
    """KMeans that notes what it gets; not in its parameters, as it is cloned."""

    seen: list = []

    def fit_predict(self, X, y=None):
        self.seen.append(("fit_predict", len(X)))
        return super().fit(X).labels_

    def predict(self, X):
        self.seen.append(("predict", len(X)))
        return super().predict(X)


def test_partition_is_that_of_a_part_and_predictions(X, monkeypatch):
    Watched.seen.clear()
    monkeypatch.setattr(_start, "LARGEST_PART", 128 * 100)
    mice = fitted(X, init=Watched(n_init=3), backbone="mlp", image_shape=(8, 8))
    parts = {n for name, n in Watched.seen if name == "fit_predict"}
    n_predicted = sum(n for name, n in Watched.seen if name == "predict")
    assert len(parts) == 1
    assert max(parts) < 300
    assert n_predicted % 300 == 0
    assert np.array_equal(mice.labels_, mice.predict(X))


def test_clusters_are_found_in_a_sorted_file(tmp_path, monkeypatch):
    X, y = make_blobs(600, 10, centers=3, random_state=0)
    order = np.argsort(y, kind="stable")
    file = mapped_as_large(X[order], tmp_path, monkeypatch, 100 * X[0].nbytes)
    monkeypatch.setattr(_start, "LARGEST_PART", 256 * 150)  # 150 rows
    monkeypatch.setattr(inference, "LARGEST_BATCH", 100)
    for values in (file, X[order]):
        mice = fitted(values, max_epochs=20)
        for labels in (mice.init_labels_, mice.labels_):
            assert adjusted_rand_score(y[order], labels) > 0.95


# -------------------------------------------------------------- a file of gigabytes

# Rows of 48 KB; 250,000 of them are 12 GB.
N_ROWS = int(os.environ.get("SK_MICE_ROWS", 250_000))
SHAPE = (3, 64, 64)
ALLOWED = 10**9  # bytes beside the file, of which torch takes some 350 MB
CODE = """
import json, sys, threading, time
import numpy as np, torch
from torch import nn
from sk_mice import MiCEClustering

def anonymous():
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * int(next(l for l in lines if l.startswith("RssAnon")).split()[1])

peak, done = 0, threading.Event()
def watch():
    global peak
    while not done.wait(0.01):
        peak = max(peak, anonymous())

def measured(function, *args, **kwargs):
    global peak
    peak, start = 0, time.perf_counter()
    function(*args, **kwargs)
    report = {"peak": peak, "seconds": time.perf_counter() - start}
    print(function.__name__, json.dumps(report), file=sys.stderr, flush=True)
    return peak

threading.Thread(target=watch, daemon=True).start()
X = np.load(sys.argv[1], mmap_mode="r")
network = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.LazyLinear(256), nn.ReLU())
network(torch.zeros(2, *X.shape[1:]))
mice = MiCEClustering(
    10, backbone=network, embedding_dim=32, augmentation=None, max_epochs=2,
    batch_size=256, lr=0.01, device="cpu", random_state=0, **json.loads(sys.argv[2]),
)
found = {
    name: measured(getattr(mice, name), X, **options)
    for name, options in {
        "fit": {}, "predict": {}, "predict_proba": {"out": sys.argv[1] + ".out.npy"}
    }.items()
}
done.set()
print(json.dumps(found))
"""


def write_rows(path, n):
    """A file of n rows with ten kinds of images, sorted by kind."""
    X = np.lib.format.open_memmap(path, "w+", np.float32, (n, *SHAPE))
    draw = np.random.default_rng(0)
    kinds = draw.random((10, 3, 8, 8), np.float32).repeat(8, axis=2).repeat(8, axis=3)
    noise = draw.random((256, *SHAPE), np.float32)
    for start in range(0, n, 256):
        rows = np.arange(start, min(start + 256, n))
        X[rows] = (
            0.7 * kinds[rows * 10 // n] + 0.3 * draw.permutation(noise)[: len(rows)]
        )
    X.flush()


@pytest.fixture
def file(tmp_path):
    needed = 4 * N_ROWS * int(np.prod(SHAPE))
    if shutil.disk_usage(tmp_path).free < 1.2 * needed:
        pytest.skip(f"the disk has no room for a file of {needed:,} bytes")
    path = tmp_path / "X.npy"
    write_rows(path, N_ROWS)
    yield path
    for made in tmp_path.iterdir():  # pytest keeps the folders of three runs
        made.unlink()


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("options", [{}, {"n_neighbors": 5}], ids=str)
def test_memory_does_not_grow_with_the_file(file, options):
    command = [sys.executable, "-c", CODE, str(file), json.dumps(options)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    peaks = json.loads(done.stdout)
    assert max(peaks.values()) < ALLOWED, peaks
