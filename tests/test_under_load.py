"""Threads, forks, hundreds of fits: nothing changes, hangs, grows or is left behind.

What needs a process of its own is a function below, started by name:
`python tests/test_under_load.py fork`.
"""

import copy
import hashlib
import multiprocessing
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from shared import default_dtype, same_generators, short_fits, tiny
from skorch.callbacks import Callback
from systems import needs_proc

import sk_mice
from sk_mice import MoCo, NeighborMixture, SphericalKMeans
from sk_mice._engine import trainer
from sk_mice.ablations import PaperMiCE
from sk_mice.backbones import ResNet

IMAGES = np.random.default_rng(0).random((80, 12, 12))
ROWS = IMAGES.reshape(80, -1)
COLOURS = np.random.default_rng(0).random((80, 12, 12, 3))
PROC = Path("/proc/self")


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


# -------------------------------------------------------------------------- at once


@short_fits
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


class Restless(torch.nn.Module):
    """A network that draws when it is made, and dropout when it trains."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(256, 16), torch.nn.Dropout(0.5)
        )
        self.register_buffer("noise", torch.rand(16) + torch.randn(16).abs())

    def forward(self, x):
        return self.layers(x) * self.noise


def jitter(stack, generator):
    """An augmentation that draws without the generator that it is given."""
    return stack + 0.1 * torch.rand(len(stack), 1, 1, 1) * torch.rand_like(stack)


FITS = {
    "mice": lambda: tiny(),
    "random": lambda: tiny(PaperMiCE, init="random", gating_prototypes="uniform"),
    "own network": lambda: tiny(backbone=Restless),
    "own views": lambda: tiny(augmentation=jitter),
    "vectors": lambda: tiny(backbone="mlp"),
    "moco": lambda: tiny(MoCo),
}


@short_fits
@pytest.mark.parametrize("kind", FITS)
def test_threads_fit_as_one_does(kind):
    X = ROWS if kind == "vectors" else IMAGES
    expected = digest(FITS[kind](), X)
    start = threading.Barrier(4)

    def work(turn):
        start.wait()
        return digest(FITS[kind](), X)

    with same_generators(), ThreadPoolExecutor(4) as pool:
        assert set(pool.map(work, range(4))) == {expected}


@short_fits
def test_streams_of_random_numbers_are_independent():
    seeds = []

    class Note(Callback):
        def on_train_begin(self, net, **kwargs):
            seeds.append(net.generator.initial_seed())
            seeds.append(net.order_generator.initial_seed())

    tiny(n_init=2, max_epochs=20, callbacks=[Note()]).fit(IMAGES)
    assert len(seeds) == 2 * 3 * 2  # restarts, MoCo and two rounds of EM, generators
    assert len(set(seeds)) == len(seeds)


# ------------------------------------------------------------ settings of the process


@contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def default_device():
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


SETTINGS = {
    "float64": lambda: default_dtype(torch.float64),
    "bfloat16": lambda: default_dtype(torch.bfloat16),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "inference mode": torch.inference_mode,
    "no grad": torch.no_grad,
    "device": lambda: torch.device("meta"),
    "default device": default_device,
    "numpy errors": lambda: np.errstate(all="raise"),
    "deterministic": deterministic,
}
RANDOM = {"init": "random"}
KINDS = {
    "images": {},
    "simclr": {"augmentation": "simclr"} | RANDOM,
    "vectors": {"backbone": "mlp", "n_neighbors": 3, "expert_prototypes": "passes"}
    | {"cls": PaperMiCE}
    | RANDOM,
    "resnet18": {"backbone": ResNet(18, max_pool=True), "max_epochs": 1} | RANDOM,
}


@pytest.fixture(scope="module")
def plain():
    """Digests of fits, and agreements, under the usual settings."""
    return {}


@short_fits
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        *((kind, name) for kind in KINDS if kind != "resnet18" for name in SETTINGS),
        # Slow: for what torchvision's own code makes of a dtype and of a device.
        *(("resnet18", name) for name in ("float64", "autocast", "device")),
    ],
)
def test_settings_of_the_process_change_nothing(kind, settings, plain):
    own = {"simclr": COLOURS, "vectors": ROWS, "resnet18": IMAGES[:24]}
    X = own.get(kind, IMAGES)

    def found():
        model = tiny(**KINDS[kind])
        return digest(model, X), model.agreement(X, n_views=2).tolist()

    if kind not in plain:
        plain[kind] = found()
    with SETTINGS[settings]():
        assert found() == plain[kind]


MORE = {"warm_start": True, "max_epochs": 1}


@pytest.fixture(scope="module", params=[None, Restless])
def model_and_more(request):
    """A model, its network if it is the user's, and the digest of a longer fit."""
    own = {"backbone": request.param} if request.param else {}
    model = tiny(precision="float32", **own).fit(IMAGES)
    more = copy.deepcopy(model).set_params(**MORE)
    return model, request.param, digest(more, IMAGES)


@short_fits
@pytest.mark.parametrize("settings", SETTINGS)
def test_settings_of_the_process_change_no_copy(settings, model_and_more, tmp_path):
    model, own, expected = model_and_more
    with SETTINGS[settings]():
        sk_mice.save(model, tmp_path / "model")
        copies = [
            *(copy.deepcopy(model), pickle.loads(pickle.dumps(model))),
            sk_mice.load(tmp_path / "model", own),
        ]
        for read in copies:
            np.testing.assert_array_equal(
                read.predict_proba(IMAGES), model.predict_proba(IMAGES)
            )
    of_the_file = copies[-1]._model.parameters()
    assert not any(weight.is_inference() for weight in of_the_file)
    for read in copies:
        assert digest(read.set_params(**MORE), IMAGES) == expected


class Kept(Callback):
    """Bytes that are kept of the last epoch, and of the queue itself."""

    def on_epoch_end(self, net, **kwargs):
        self.bytes_ = sum(tensor.nbytes for tensor in net.last_epoch_)
        self.of_queue_ = net.module_.queue.nbytes


def test_a_large_queue_is_not_held_twice(monkeypatch):
    found = []
    for limit in (0, 2**40):
        monkeypatch.setattr(trainer, "LARGEST_KEPT_QUEUE", limit)
        found.append(Kept())
        tiny(MoCo, callbacks=[found[-1]]).fit(IMAGES)
    once, twice = found
    assert once.bytes_ + once.of_queue_ == twice.bytes_


# ------------------------------------------------------------------ other processes


def hashes():
    images = [digest(estimator, IMAGES) for estimator in (tiny(), tiny(MoCo))]
    return [*images, digest(tiny(backbone="mlp"), ROWS)]


def predict_and_fit(model, X, results):
    results.put((model.predict_proba(X), hashes()))


def other_processes():
    """A new process predicts and fits as this one does, bit for bit; a forked one can.

    The child of a fork has one thread, which adds in another order than two.
    """
    # Whatever the machine's own choice: pickles hold a queue in float32 by other means.
    model = tiny(precision="float32").fit(IMAGES)
    expected = hashes()
    assert len(set(expected)) == 3
    for method in multiprocessing.get_all_start_methods():
        if method == "forkserver":
            continue
        context = multiprocessing.get_context(method)
        results = context.Queue()
        args = model, IMAGES, results
        child = context.Process(target=predict_and_fit, args=args, daemon=True)
        child.start()
        loaded, refitted = results.get(timeout=300)  # raises if the child hangs
        child.join(60)
        assert child.exitcode == 0
        np.testing.assert_allclose(loaded, model.predict_proba(IMAGES), atol=1e-5)
        if method == "fork":
            fork_with_a_large_model(context)
        else:
            assert refitted == expected


def copy_and_store(models, X, results):
    labels = []
    for model in models:
        copies = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
        with tempfile.TemporaryDirectory() as folder:
            sk_mice.save(model, f"{folder}/model")
            copies += (sk_mice.load(f"{folder}/model"),)
        labels += [one.predict(X) for one in copies]
    results.put([len(some) for some in labels])


def fork_with_a_large_model(context):
    """A forked process copies, saves and loads."""
    # So large that torch spreads what is done with its queue over its threads.
    X = np.random.default_rng(0).random((2000, ROWS.shape[1]))
    more = {"n_clusters": 10, "backbone": "mlp", "precision": "float32"}
    more |= {"expert_heads": "own", "embedding_dim": 16, "init": "random"}
    models = tiny(**more).fit(X), SphericalKMeans(3).fit(X)
    assert models[0]._model.queue.numel() > 2**18
    results = context.Queue()
    args = models, ROWS, results
    context.Process(target=copy_and_store, args=args, daemon=True).start()
    assert results.get(timeout=100) == [80] * 6  # raises if the child hangs


def test_models_work_in_other_processes():
    fresh("other_processes")


# --------------------------------------------------------------- what is left behind


def resident_bytes():
    return int((PROC / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth(n_fits):
    """Bytes that the process has grown by in these fits, after the first ones."""
    before = None
    for fit in range(10 + int(n_fits)):
        if fit == 10:  # by now all libraries are loaded and all pools are made
            before = resident_bytes()
        model = tiny(random_state=fit, init="random", max_epochs=1).fit(IMAGES[:24])
        model.predict_proba(IMAGES[:24])
    print(resident_bytes() - before)


@needs_proc
@pytest.mark.slow
def test_fits_do_not_grow_memory():
    assert int(fresh("growth", 200, threads="1")) < 50e6


def leftovers(folder):
    """Threads, open files and files that one round of everything leaves behind."""
    os.chdir(folder)
    tempfile.tempdir = folder

    def everything():
        for estimator in (tiny(verbose=1), tiny(MoCo), tiny(init="random")):
            sk_mice.save(estimator.fit(IMAGES[:24]), "model")
            sk_mice.load("model").transform(IMAGES)
        own = tiny(MoCo, backbone=torch.nn.Flatten).fit(IMAGES[:24])
        sk_mice.save(own, "model")
        sk_mice.load("model", backbone=own.backbone).transform(IMAGES)
        for vectors in (SphericalKMeans(3), NeighborMixture(3, max_epochs=1)):
            sk_mice.save(vectors.fit(ROWS), "model")
            sk_mice.load("model").predict(ROWS)
        failing = tiny(PaperMiCE, lr=1e6, schedule=lambda progress: 1e30)
        with suppress(FloatingPointError):
            failing.fit(IMAGES[:24])
        with suppress(ValueError):
            tiny().fit(IMAGES * np.nan)
        with suppress(OSError):
            sk_mice.save(tiny().fit(IMAGES[:24]), "nowhere/model")

    def state():
        return (
            {thread.name for thread in threading.enumerate()},
            len(os.listdir("/proc/self/fd")),
            len(os.listdir("/proc/self/task")),
            sorted(os.listdir(folder)),
        )

    threads = {thread.name for thread in threading.enumerate()}
    everything()  # loads libraries, and starts torch's threads
    assert "torch._dynamo" not in sys.modules  # takes seconds to import
    # The program can still choose how it starts processes.
    assert multiprocessing.get_start_method(allow_none=True) is None
    first, size = state(), resident_bytes()
    assert first[0] == threads, first
    for _ in range(2):
        everything()
    assert state() == first, (first, state())
    assert resident_bytes() - size < 40e6  # in 16 fits
    assert first[-1] == ["model"], first


@needs_proc
def test_nothing_is_left_behind(tmp_path):
    fresh("leftovers", tmp_path, threads="1")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    globals()[sys.argv[1]](*sys.argv[2:])
