"""What test files share: small fits, samples, spies, callbacks, formulas, files."""

import errno
import pickle
import random
import re
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.base import BaseEstimator
from skorch.callbacks import Callback

import sk_mice
from sk_mice import MiCEClustering
from sk_mice._engine.format import infer_format
from sk_mice._engine.samples import Samples
from sk_mice.backbones import SmallResNet

# A mark: in fits of a few epochs, a cluster may well be empty.
short_fits = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def tiny(cls=MiCEClustering, **options):
    """An estimator that fits some small images in a moment."""
    defaults = {
        "backbone": SmallResNet(4, blocks=(1, 1)),
        "embedding_dim": 8,
        "max_epochs": 2,
        "random_state": 0,
    }
    if issubclass(cls, MiCEClustering):
        defaults["n_clusters"] = 3
    return cls(**(defaults | options))


def samples_of(X):
    """X as samples, on the CPU."""
    return Samples(X, infer_format(X), torch.device("cpu"))


def half_mirrored(images):
    """A set that is as likely to hold an image as its mirror image."""
    mirrored = np.random.RandomState(0).rand(len(images)) < 0.5
    return np.where(mirrored[:, None, None], images[:, :, ::-1], images)


def mapped_as_large(X, folder, monkeypatch, n_bytes):
    """X in a file, where files of more than so many bytes count as large."""
    sizes = {"LARGE": n_bytes, "WINDOW": n_bytes, "BLOCK": n_bytes // 10}
    for name, size in sizes.items():
        monkeypatch.setattr(f"sk_mice._engine.samples.{name}", size)
    np.save(folder / "X.npy", X)
    return np.load(folder / "X.npy", mmap_mode="r")


def state_of(module):
    """A copy of the state of a module, which later changes leave alone."""
    return {name: value.clone() for name, value in module.state_dict().items()}


def assert_same_state(module, state):
    assert module.state_dict().keys() == state.keys()
    for name, value in module.state_dict().items():
        assert torch.equal(value, state[name]), name


def quoted(path):
    """A pattern for a path as messages show it."""
    return re.escape(repr(str(path)))


def refused(path):
    """Why a file is not loaded."""
    with pytest.raises(ValueError, match="cannot be loaded: ") as caught:
        sk_mice.load(path)
    assert repr(str(path)) in str(caught.value)
    return str(caught.value).split("cannot be loaded: ")[1]


# A fixture of a file, which is written anew in every example.
KEEP = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def json_values(leaves, names):
    """Values of JSON: these leaves, in lists and in dicts with some of these names."""
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(names) | st.text(max_size=10), inner, max_size=4
            )
        ),
        max_leaves=12,
    )


def raising(error, *args):
    """A function that raises an error of these arguments, whatever it is given."""

    def fail(*_, **__):
        raise error(*args)

    return fail


no_space = raising(OSError, errno.ENOSPC, "No space left on device")


def recorded(monkeypatch, owner, name, what=lambda *args: args):
    """A list of what a function is given in later calls, which it answers as before."""
    calls, function = [], getattr(owner, name)

    def record(*args, **options):
        calls.append(what(*args))
        return function(*args, **options)

    monkeypatch.setattr(owner, name, record)
    return calls


class Forward(torch.nn.Module):
    """A network that does what a function of (rows, whether it trains) does."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x.flatten(1), self.training)


class BecomesArray:
    """Samples that are no array until NumPy asks for one."""

    def __init__(self, X):
        self.X = X

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.X, dtype)

    def __len__(self):
        return len(self.X)


class Labels(BaseEstimator):
    """A clusterer that says the same whatever it is given, or two labels in turn."""

    def __init__(self, labels=None):
        self.labels = labels

    def fit_predict(self, X):
        return np.arange(len(X)) % 2 if self.labels is None else self.labels


def callback(**methods):
    """A callback of skorch with these methods, each a function of the net."""
    bodies = {
        name: lambda self, net, do=do, **kwargs: do(net) for name, do in methods.items()
    }
    return type("Own", (Callback,), bodies)()


class RaiseAt(Callback):
    """Raises an error in the second batch of an epoch, counted over all stages."""

    def __init__(self, epoch, error=KeyboardInterrupt):
        self.epoch, self.error = epoch, error
        self.count = 0

    def on_epoch_begin(self, net, **kwargs):
        self.count += 1
        self.batches = 0

    def on_batch_end(self, net, **kwargs):
        self.batches += 1
        if self.count == self.epoch and self.batches == 2:
            raise self.error


def _generators():
    states = torch.get_rng_state().tolist(), np.random.get_state(), random.getstate()
    return pickle.dumps(states)


@contextmanager
def same_generators():
    """What must not draw from a global generator."""
    before = _generators()
    yield
    assert _generators() == before


@contextmanager
def default_dtype(dtype):
    """Another type of floats as torch's default."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def info_nce(f, v, queue, tau):
    """Log-probability of the positive, (B,), for f and v (B, D) and a queue (V, D)."""
    logits = torch.cat([(f * v).sum(1, keepdim=True), f @ queue.T], dim=1) / tau
    return logits.log_softmax(dim=1)[:, 0]


def plain_log_partition(x, positive, queue):
    """`log_partition` as the paper writes it, which holds B x K x V."""
    queue = queue.to(x.dtype).expand(-1, x.shape[1], -1)
    negative = torch.einsum("bkd,vkd->bkv", x, queue)
    return torch.cat([positive.unsqueeze(-1), negative], dim=-1).logsumexp(dim=-1)


class Averages(torch.nn.Module):
    """A network whose features are known, and which counts the images it has seen."""

    transforms = torch.nn.Identity()
    n_seen = 0

    def forward(self, x):
        self.n_seen += len(x)
        return torch.nn.functional.adaptive_avg_pool2d(x, 2).flatten(1)


def red_and_blue_files(folder, n=24):
    """Files of images, red and blue ones in turn, each darker than the next."""
    colours = np.array([[255, 40, 0], [0, 40, 255]])
    files = [folder / f"{i:02}.png" for i in range(n)]
    for i, file in enumerate(files):
        image = np.broadcast_to(colours[i % 2] * (i + 30) // (n + 30), (20, 30, 3))
        Image.fromarray(image.astype(np.uint8)).save(file)
    return files
