"""What must hold on a GPU as it does on a CPU."""

import pickle
from functools import partial

import numpy as np
import pytest
import torch
from shared import plain_log_partition, short_fits
from sklearn.datasets import load_digits
from skorch.callbacks import Callback
from torch.nn import functional as F

from sk_mice import MiCEClustering, MoCo, load, save
from sk_mice._engine.graphs import Replayed
from sk_mice._engine.objective import expert_log_prob
from sk_mice._engine.storage import read
from sk_mice._engine.trainer import Trainer
from sk_mice._persistence import _KIND
from sk_mice.ablations import PaperMiCE

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    short_fits,
    # What torch says of its own means to find waits.
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype"),
]
IMAGES = load_digits(n_class=4).images[:160]


def test_fused_partition_agrees_with_the_plain_one():
    torch.manual_seed(0)
    f, v = F.normalize(torch.randn(2, 32, 5, 16, device="cuda"), dim=-1)
    queue = F.normalize(torch.randn(5000, 5, 16, device="cuda"), dim=-1)
    f.requires_grad_()
    results = []
    for partition in ({}, {"partition": plain_log_partition}):
        value = expert_log_prob(f, v, None, queue, 0.5, **partition)
        results.append((value, torch.autograd.grad(value.sum(), f)[0]))
    torch.testing.assert_close(*results, rtol=1e-3, atol=1e-4)


def test_partition_over_a_bfloat16_queue_is_close():
    torch.manual_seed(0)
    f, v = F.normalize(torch.randn(2, 250, 5, 128, device="cuda"), dim=-1)
    queue = F.normalize(torch.randn(5000, 5, 128, device="cuda"), dim=-1)
    f.requires_grad_()
    results = []
    for given in (queue, queue.bfloat16()):
        value = expert_log_prob(f, v, None, given, 1.0)
        results.append((value, torch.autograd.grad(value.sum(), f)[0]))
    (exact, exact_gradient), (half, half_gradient) = results
    torch.testing.assert_close(half, exact, rtol=0, atol=2e-3)
    error = (half_gradient - exact_gradient).norm() / exact_gradient.norm()
    assert error < 0.01


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_fit_and_predict(precision):
    mice = MiCEClustering(
        4, device="cuda", precision=precision, max_epochs=8, random_state=0
    ).fit(IMAGES)
    assert mice.device_.type == "cuda"
    np.testing.assert_array_equal(mice.labels_, mice.predict(IMAGES))
    assert np.isfinite(mice.predict_proba(IMAGES)).all()


class Unwaited(Callback):
    """Makes every wait for the device an error, from an epoch's second step on."""

    n_steps = 0

    def on_batch_end(self, net, **kwargs):
        last = net.step_ == net.n_steps_
        torch.cuda.set_sync_debug_mode("default" if last else "error")
        self.n_steps += not last


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("estimator", "X", "options"),
    [
        (MiCEClustering, IMAGES, {}),
        (MiCEClustering, IMAGES.astype(np.uint8), {"augmentation": "simclr"}),
        (MiCEClustering, IMAGES.reshape(160, -1), {"n_neighbors": 3}),
        (PaperMiCE, IMAGES, {"queue_size": 133, "embedding_dim": 20}),
        (PaperMiCE, IMAGES, {"gate_view": "student", "init": "random"}),
    ],
)
def test_no_step_waits_for_the_device(estimator, X, options, precision):
    watch = Unwaited()
    options = {"device": "cuda", "precision": precision, "callbacks": [watch]} | options
    try:
        estimator(4, batch_size=32, max_epochs=4, random_state=0, **options).fit(X)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert watch.n_steps == 4 * 4


class Cools(Callback):
    """Changes a temperature, which a graph has written down."""

    def on_epoch_begin(self, net, **kwargs):
        net.module_.tau = 1.0 - 0.1 * len(net.history)


@pytest.mark.parametrize(
    ("estimator", "options"),
    [
        (MoCo, {}),
        (MoCo, {"callbacks": [Cools()]}),
        (MoCo, {"freeze": "all but last"}),
        (partial(MiCEClustering, 4), {"init": np.arange(157) % 4}),  # held at first
        (partial(PaperMiCE, 4), {"init": "random", "queue_size": 133}),
    ],
)
def test_graphs_learn_what_the_steps_learn_that_they_replay(
    estimator, options, monkeypatch
):
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    X = IMAGES[:157]  # batches of 32 and 31
    options = {"device": "cuda", "precision": "float32", "lr": 1e-3} | options
    elbos, captured, counts = [], [], []
    capture = Replayed._capture

    def watched(self, *given):
        captured.append(given)
        return capture(self, *given)

    monkeypatch.setattr(Replayed, "_capture", watched)
    for replays in (True, False):
        if not replays:
            monkeypatch.setattr(Trainer, "_can_replay", lambda self: False)
        model = estimator(batch_size=32, max_epochs=4, random_state=0, **options)
        elbos.append([row["elbo"] for row in model.fit(X).history_])
        counts.append(len(captured))
    assert counts[0] == counts[1] >= 2  # none came in the second fit
    np.testing.assert_allclose(*elbos, rtol=1e-3)


def test_global_generators_are_left_alone():
    torch.cuda.manual_seed(3)
    before = torch.cuda.get_rng_state()
    MiCEClustering(4, device="cuda", max_epochs=2, random_state=0).fit(IMAGES)
    assert torch.equal(torch.cuda.get_rng_state(), before)


def test_a_pickle_holds_no_cuda_tensor():
    mice = MiCEClustering(4, device="cuda", max_epochs=2, random_state=0).fit(IMAGES)
    loaded = pickle.loads(pickle.dumps(mice))
    assert loaded.device_.type == "cpu"
    np.testing.assert_allclose(
        loaded.predict_proba(IMAGES), mice.predict_proba(IMAGES), atol=1e-3
    )


def test_a_saved_model_is_on_the_cpu(tmp_path):
    # "auto" is another backbone on a GPU, and has to be the same one when loaded.
    mice = MiCEClustering(4, device="cuda", max_epochs=2, random_state=0).fit(IMAGES)
    save(mice, tmp_path / "mice")
    _, document = read(tmp_path / "mice", **_KIND)
    assert document["network"]["backbone"]["class"] == "ResNet"
    loaded = load(tmp_path / "mice")
    assert loaded.device_.type == "cpu"
    np.testing.assert_allclose(
        loaded.predict_proba(IMAGES), mice.predict_proba(IMAGES), atol=1e-3
    )


def test_data_that_does_not_fit_is_moved_batch_by_batch(monkeypatch):
    monkeypatch.setattr("sk_mice._engine.samples.RESIDENT_SHARE", 0.0)
    MiCEClustering(4, device="cuda", max_epochs=2, random_state=0).fit(IMAGES)
