"""What the processes of a job of torchrun do, for `test_distributed.py`.

    torchrun --nproc-per-node 2 distributed_job.py FOLDER CASE ...

Each process writes what a case returns into a file of the folder.
"""

import contextlib
import hashlib
import io
import os
import pickle
import signal
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from skorch.callbacks import Callback
from torch import nn

from sk_mice import MiCEClustering, MoCo
from sk_mice.ablations import PaperMiCE
from sk_mice.backbones import SmallResNet

RANK = int(os.environ.get("RANK", 0))
DIGITS, CLASSES = load_digits(n_class=4, return_X_y=True)
# 110 samples in batches of 37, 37 and 36: two processes have 19 and 18 of a batch.
IMAGES, CLASSES = DIGITS[:110].reshape(-1, 8, 8), CLASSES[:110]
N_STEPS = 21


def network(*more):
    """A network without batch norm, with weights that are the same everywhere."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), *more, nn.Flatten()),
        nn.Linear(4 * 7 * 7, 16),
    )


def network_of_vectors():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 16), nn.ReLU())


SMALL = {
    "embedding_dim": 8,
    "batch_size": 37,
    "max_epochs": N_STEPS // 3,
    "queue_size": 64,
    "precision": "float32",
    "random_state": 0,
}


def mice(**options):
    return MiCEClustering(4, **{"backbone": network()} | SMALL | options)


def digest(estimator):
    """Hash of the state of the model."""
    state = estimator._model.state_dict()
    parts = [value.flatten().view(torch.uint8).numpy() for value in state.values()]
    return hashlib.sha256(np.concatenate(parts).tobytes()).hexdigest()


def result(estimator):
    """What a test compares."""
    estimator._model.requires_grad_(False)
    found = {
        "state": {k: v.numpy() for k, v in estimator._model.state_dict().items()},
        "digest": digest(estimator),
        "n_iter": estimator.n_iter_,
        "elbo": [row["elbo"] for row in estimator.history_],
        "seconds": [row["seconds"] for row in estimator.history_],
    }
    if hasattr(estimator, "labels_"):
        found["labels"] = estimator.labels_
        found["sizes"] = [row["cluster_sizes"] for row in estimator.history_]
        # Not the counts themselves, as rounding may move a value to another bin.
        found["counted"] = [sum(row["posterior_counts"]) for row in estimator.history_]
    return found


# ------------------------------------------------------------------- the same as alone


def moco():
    return MoCo(backbone=network(), **SMALL).fit(IMAGES)


def moco_with_neighbors():
    return MoCo(backbone=network(), n_neighbors=4, **SMALL).fit(IMAGES)


def random_start():
    return mice(init="random", expert_heads="own").fit(IMAGES)


def given_start():
    return mice(init=CLASSES, augmentation="simclr").fit(IMAGES)


def vectors():
    options = {"augmentation": None, "n_neighbors": 3, "init": "random"}
    return mice(backbone=network_of_vectors(), **options).fit(DIGITS[:110])


def corrupted_vectors():
    return MoCo(backbone=network_of_vectors(), **SMALL).fit(DIGITS[:110])


def own_views():
    def jitter(stack, generator):
        return stack * torch.rand(len(stack), 1, 1, 1, generator=generator)

    return mice(init="random", augmentation=jitter).fit(IMAGES)


def passes():
    options = {"backbone": network(), "init": "random"} | SMALL | {"max_epochs": 2}
    return PaperMiCE(4, expert_prototypes="passes", **options).fit(IMAGES)


ALIKE = [
    moco,
    moco_with_neighbors,
    random_start,
    given_start,
    vectors,
    corrupted_vectors,
    own_views,
    passes,
]

# ---------------------------------------------------------------- the same in all ranks


def two_stage():
    """The default: batch norm, and a partition by the first process."""
    backbone = SmallResNet(4, blocks=(1, 1)).build((1, 16, 16))
    estimator = mice(backbone=backbone, n_init=2, max_epochs=6).fit(IMAGES)
    assert (estimator.labels_ == estimator.predict(IMAGES)).all()
    return estimator


def dropout():
    """Processes draw from generators of their own, and still have the same batches."""
    estimator = mice(backbone=network(nn.Dropout(0.5)), init="random")
    before = torch.get_rng_state()
    estimator.fit(IMAGES)
    assert torch.equal(torch.get_rng_state(), before)
    return estimator


def unused_weights():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = network(), nn.Linear(2, 2)

        def forward(self, x):
            return self.used(x)

    torch.manual_seed(0)
    return MoCo(backbone=Network(), **SMALL).fit(IMAGES)


class Signal(Callback):
    """Ctrl-C for one process, in a batch of the fourth epoch."""

    def on_batch_end(self, net, **kwargs):
        if RANK == 1 and len(net.history) == 4 and net.step_ == 1:
            os.kill(os.getpid(), signal.SIGINT)


def ctrl_c():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator = mice(init="random", callbacks=[Signal()]).fit(IMAGES)
    said = [str(warning.message) for warning in caught]
    estimator.said = [words for words in said if "interrupted" in words]
    return estimator


def kept(folder):
    return mice(init="random", checkpoint=folder)


class Stop(Callback):
    """Ends the fit in the fourth epoch."""

    def on_batch_end(self, net, **kwargs):
        if len(net.history) == 4:
            raise ZeroDivisionError


def stopped():
    """Leaves a checkpoint of the first epochs."""
    folder = Path(sys.argv[1], "checkpoint")
    try:
        kept(folder).set_params(callbacks=[Stop()]).fit(IMAGES)
    except ZeroDivisionError:
        return len(list(folder.iterdir()))


def resumed():
    return kept(Path(sys.argv[1], "checkpoint")).fit(IMAGES)


class End(Callback):
    """The last process ends, or hangs, in the fourth epoch of its first life."""

    def __init__(self, how):
        self.how = how

    def on_batch_end(self, net, **kwargs):
        last = int(os.environ.get("WORLD_SIZE", 1)) - 1
        again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
        if last == RANK and len(net.history) == 4 and not again:
            os.kill(os.getpid(), self.how)


def killed():
    return _kept_until(signal.SIGKILL)


def hangs():
    return _kept_until(signal.SIGSTOP)


def _kept_until(how):
    folder = Path(sys.argv[1], "checkpoint")
    estimator = kept(folder).set_params(callbacks=[End(how)])
    try:
        return estimator.fit(IMAGES)
    except RuntimeError as error:
        return str(error)


# --------------------------------------------------------------------- what is refused


def said_of(estimator, X=IMAGES):
    try:
        estimator.fit(X)
    except ValueError as error:
        return str(error)


def refused():
    other = RANK == 1
    holes = IMAGES.copy()
    holes[3, 0, 0] = np.nan if other else 0
    return {
        "X": said_of(mice(), IMAGES[other:]),
        "values": said_of(mice(), IMAGES + other),
        "lr": said_of(mice(lr=0.1 + RANK, tau=0.5 + RANK)),
        "backbone": said_of(mice(backbone=SmallResNet(4 + 4 * RANK))),
        "invalid X": said_of(mice(), holes),
        "invalid lr": said_of(mice(lr=-1 if other else 0.1)),
        "small batches": said_of(mice(batch_size=3)),
    }


def command():
    """`sk-mice fit`, with a stand-in for the page."""
    from sk_mice._cli import fitting
    from sk_mice.cli import main

    fitting.draw_page = lambda reading, model, pictures, path, **more: path.touch()
    photos, out = Path(sys.argv[1], "photos"), Path(sys.argv[1], "result")
    options = "--clusters", "2", "--epochs", "3", "--image-size", "8"
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(["fit", str(photos), "--out", str(out), *options])
    return code, said.getvalue()


def alone():
    """Processes that do not share a fit may have different ones."""
    return mice(distributed=False, init="random", random_state=RANK).fit(IMAGES)


if __name__ == "__main__":
    folder, *names = sys.argv[1:]
    for name in names:
        found = globals()[name]()
        if isinstance(found, MoCo | MiCEClustering):
            said = getattr(found, "said", None)
            found = result(found) | {"said": said}
        Path(folder, f"{name}-{RANK}").write_bytes(pickle.dumps(found))
