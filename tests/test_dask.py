"""Dask: searches and predictions on two workers, as the guide has them."""

import os
import re
import warnings
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold
from systems import needs_clear_refs

from sk_mice import MiCEClustering
from sk_mice.backbones import MLP

da = pytest.importorskip("dask.array", reason="needs dask and distributed")
dask = pytest.importorskip("dask", reason="needs dask and distributed")
distributed = pytest.importorskip("distributed", reason="needs dask and distributed")

GUIDE = Path(__file__).parents[1] / "docs" / "user_guide" / "scaling.md"
ROW = np.random.default_rng(0).random((200, 6), np.float32)
ROW[::2] += 2
MICE = MiCEClustering(
    2,
    backbone="mlp",
    embedding_dim=8,
    queue_size=64,
    init=np.arange(100) % 2,
    max_epochs=2,
    lr=1e-3,
    device="cpu",
    random_state=0,
)


@pytest.fixture(scope="module")
def client():
    with warnings.catch_warnings():
        # Not ours, and other ones in each release.
        warnings.simplefilter("ignore")
        with (
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=None
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client


@pytest.fixture(scope="module")
def mice():
    return clone(MICE).fit(ROW[:100])


def process_id(block=None):
    return os.getpid()


def test_search_on_workers_is_the_search_here(client):
    search = GridSearchCV(
        clone(MICE).set_params(init="random"),
        {"tau": [0.5, 1.0]},
        cv=KFold(2, shuffle=True, random_state=0),
        refit=False,
    )
    here = clone(search).fit(ROW)
    with joblib.parallel_config(backend="dask", scatter=[ROW]):
        there = clone(search).fit(ROW)
    scores = (found.cv_results_["mean_test_score"] for found in (here, there))
    # The workers may have another number of threads.
    np.testing.assert_allclose(*scores, rtol=1e-3)
    assert len(set(client.run(process_id).values()) - {os.getpid()}) == 2


def guide(mice, X):
    """What the guide's code for predictions defines, run by the client that is open."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S)
    code = next(code for code in blocks if "import dask.array" in code)
    names = {"X": X, "search": type("Search", (), {"best_estimator_": mice})}
    exec(code, names)
    code = next(code for code in blocks if "embeddings = " in code)
    exec(code, names)
    return names


def test_the_guide_predicts_what_the_model_does(client, mice):
    X = np.concatenate([ROW] * 50)
    names = guide(mice, X)
    assert np.array_equal(names["labels"], mice.predict(X))
    np.testing.assert_allclose(
        names["embeddings"].compute(), mice.transform(X), rtol=1e-4, atol=1e-6
    )


def forget_peak():
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def memory(name):
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])


@needs_clear_refs
@pytest.mark.parametrize("n", [50_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_rows_stream_through_the_workers(client, n):
    X = da.random.default_rng(0).random((n, 64), np.float32, chunks=(10_000, 64))
    some = X[:100].compute()
    model = clone(MICE).set_params(backbone=MLP(8)).fit(some)
    X[:20_000].map_blocks(model.predict, drop_axis=1, dtype=np.int64).compute()
    client.run(forget_peak)
    before = client.run(memory, "VmRSS")
    counts = X.map_blocks(
        lambda block, model: np.bincount(model.predict(block), minlength=2)[None],
        model=dask.delayed(model),
        dtype=np.int64,
        meta=np.empty((0, 0), np.int64),
    ).sum(axis=0)
    assert counts.compute().sum() == n
    peaks = client.run(memory, "VmHWM")
    # A block has 2.5 MB, and all of X up to 256 MB.
    assert all(peaks[worker] < before[worker] + 100e6 for worker in peaks)
