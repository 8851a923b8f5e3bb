"""Bad input is refused before training, with a sentence that says why."""

import math
import re
import threading
import warnings
from datetime import date
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from PIL import Image
from scipy import sparse
from shared import (
    BecomesArray,
    Forward,
    Labels,
    assert_same_state,
    same_generators,
    short_fits,
    state_of,
)
from sklearn import config_context
from sklearn.base import clone
from sklearn.cluster import DBSCAN, KMeans
from skorch.callbacks import BatchScoring, EpochScoring, LRScheduler
from torch.utils.checkpoint import checkpoint

from sk_mice import (
    ClassificationEM,
    MiCEClustering,
    MoCo,
    NeighborMixture,
    SphericalKMeans,
)
from sk_mice._base import ContrastiveEstimator
from sk_mice._constraints import Count, Number
from sk_mice.ablations import PaperMiCE, PaperMoCo
from sk_mice.augmentation import ImageAugmentation, VectorAugmentation
from sk_mice.backbones import MLP, ResNet, SmallResNet
from sk_mice.datasets._paths import as_paths

RNG = np.random.default_rng(0)
IMAGES = RNG.random((12, 8, 8))
VECTORS = RNG.random((12, 6))
HUGE = 10**400  # no float can hold it
DATES = np.arange(72).reshape(12, 6).astype("M8[D]")
DAYS = pl.Series("day", DATES[:, 0])
TABLE = pd.DataFrame(VECTORS)
MASKED = np.ma.masked_greater(VECTORS, 0.9)


def fit(X=IMAGES, *, estimator=MiCEClustering, sample_weight=None, **parameters):
    clusters = {} if issubclass(estimator, MoCo) else {"n_clusters": 2}
    weights = {} if sample_weight is None else {"sample_weight": sample_weight}
    return estimator(**(clusters | parameters)).fit(X, **weights)


def refuses(message, error=ValueError, **options):
    """Check that a fit is refused, and that this is a part of the message."""
    with pytest.raises(error, match=re.escape(message)):
        fit(**options)


@pytest.fixture
def no_training(monkeypatch):
    monkeypatch.setattr(
        ContrastiveEstimator, "_run_stage", lambda *a, **k: pytest.fail("too late")
    )


# ------------------------------------------------- values that the constraints exclude

# Objects that are a parameter of a fit: samples that they take, and the parameter.
PARTS = {
    SmallResNet: (IMAGES, "backbone"),
    ResNet: (IMAGES, "backbone"),
    MLP: (VECTORS, "backbone"),
    ImageAugmentation: (IMAGES, "augmentation"),
    VectorAugmentation: (VECTORS, "augmentation"),
}


def options_of(cls, **parameters):
    """What `fit` gets for parameters of an estimator, or of one of its parts."""
    if cls not in PARTS:
        return {"estimator": cls} | parameters
    X, name = PARTS[cls]
    return {"X": X, name: cls(**parameters)}


COUNT = "an int in the range [1, inf)"
INT32 = "an int in the range [1, 2147483647]"
TEMPERATURE = "a float in the range [0.001, inf)"
BOOL = "an instance of 'bool'"
# Where a parameter is, values that are excluded, and scikit-learn's words for that.
EXCLUDED = [
    (MiCEClustering, "n_clusters", [0, 2.5, "ten"], COUNT),
    (MiCEClustering, "embedding_dim", [0], INT32),
    (MiCEClustering, "tau", [0, 1e-9, math.inf, math.nan], TEMPERATURE),
    (MiCEClustering, "kappa", [-1], "a float in the range [0.001, inf]"),
    (MiCEClustering, "queue_size", [0], COUNT),
    (MiCEClustering, "n_neighbors", [-1], "an int in the range [0, inf)"),
    (MiCEClustering, "init", ["k-means", None], "a str among"),
    (MiCEClustering, "n_init", [0], "an int in the range [1, 1000000]"),
    (MiCEClustering, "max_epochs", [0], INT32),
    (MiCEClustering, "batch_size", [1], "an int in the range [2, inf)"),
    (MiCEClustering, "lr", [0, 1e30], "a float in the range (0.0, 1000000.0]"),
    (MiCEClustering, "weight_decay", [-1], "a float in the range [0.0, 1000000.0]"),
    (MiCEClustering, "image_shape", ["23"], "an instance of 'tuple'"),
    (MiCEClustering, "device", [0], "an instance of 'str'"),
    (MiCEClustering, "precision", ["float16"], "a str among"),
    (MiCEClustering, "callbacks", [5], "an instance of 'list'"),
    (MiCEClustering, "checkpoint", [3], "an instance of 'str'"),
    (MiCEClustering, "distributed", ["auto"], BOOL),
    (MiCEClustering, "warm_start", ["yes"], BOOL),
    (MiCEClustering, "verbose", [-1], "an int in the range [0, inf)"),
    (MiCEClustering, "random_state", [-1], "an int in the range [0, 4294967295]"),
    (PaperMiCE, "gating_prototypes", ["random"], "a str among"),
    (PaperMiCE, "train_gating_prototypes", ["yes"], BOOL),
    (PaperMiCE, "expert_prototypes", ["none"], "a str among"),
    (PaperMiCE, "expert_heads", ["one"], "a str among"),
    (PaperMiCE, "n_rounds", [0], COUNT),
    (PaperMiCE, "teacher_momentum", [1.0], "a float in the range [0.0, 1.0)"),
    (PaperMiCE, "warmup", [1], "a float in the range [0.0, 1.0)"),
    (SphericalKMeans, "tol", [HUGE], ""),
    (SphericalKMeans, "max_iter", [True], ""),
    (SmallResNet, "width", [0, 1.5], INT32),
    (SmallResNet, "blocks", ["11"], "an instance of 'tuple'"),
    (SmallResNet, "max_pool", ["no"], BOOL),
    (ResNet, "depth", [19], "a int among {18, 34, 50}"),
    (ResNet, "max_pool", [1], BOOL),
    (MLP, "width", [0], INT32),
    (MLP, "n_layers", [0, 10**6], "an int in the range [1, 1000]"),
    (ImageAugmentation, "colors", ["rgb"], "a str among"),
    (ImageAugmentation, "flip", ["yes"], BOOL),
    (VectorAugmentation, "noise", [-1, math.nan], "a float in the range [0.0"),
    (VectorAugmentation, "replacement", [1.5], "a float in the range [0.0"),
]


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("cls", "name", "value", "rule"),
    [(*where, value, rule) for *where, values, rule in EXCLUDED for value in values],
)
def test_values_that_constraints_exclude(cls, name, value, rule):
    message = f"The '{name}' parameter of {cls.__name__} must be {rule}"
    refuses(message, **options_of(cls, **{name: value}))


# --------------------------------------------------- what has a sentence of its own


def row(message, error=ValueError, **options):
    """A fit that is refused, and a part of the message, which is its name, too."""
    return pytest.param(message, error, options, id=re.sub(r"\W+", "-", message))


def rows(name, table, error=ValueError, **options):
    """Rows of one parameter: values, each with its message, or what "must" be."""
    said = name if name == "X" else f"`{name}`"
    return [
        row(
            f"{said} {message}" if message.startswith("must") else message,
            error,
            **{name: value},
            **options,
        )
        for value, message in table
    ]


def tensor(kind):
    """Tensors that numpy cannot read as they are, made where they are needed."""
    values = torch.tensor(VECTORS)
    if kind == "quantized":
        # torch warns that they will be removed, once in a process.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.quantize_per_tensor(values.float(), 0.1, 0, torch.quint8)
    if kind == "nested":
        return torch.nested.nested_tensor([values[0], values[1]], layout=torch.jagged)
    return {
        "sparse": values.to_sparse(),
        "meta": values.to("meta"),
        "conjugate": torch.complex(values, values).conj(),
        "requires_grad": values.requires_grad_(),
        "negative": torch._neg_view(values),
        "bfloat16": values.bfloat16(),
    }[kind]


def fails_in_training(x, training):
    if training:
        raise KeyError("noise")
    return x


NO_GRADIENT = torch.nn.Sequential(
    torch.nn.Flatten(),
    torch.nn.Linear(256, 4),
    Forward(lambda x, training: x.square() * x.clamp_(0)),
)
MAP = "must map (B, 1, 16, 16) to (B, F)"
FLOATS = f"{MAP} in float32; Forward returned"
COUNTED = "must have weights that can be counted; got SmallResNet"
BLOCKS = "`blocks` of SmallResNet must be integers from 1 to 1000, one for each"
NETWORKS = [
    ("vgg", 'must be "auto", "mlp", "resnet-small"'),
    ("resnet-small-32", "a factory of one; got 'resnet-small-32'."),
    (torch.nn.Linear(3, 4), f"{MAP}; Linear raised RuntimeError"),
    (torch.nn.Conv2d(1, 2, 3), f"{MAP}; Conv2d returned"),
    (Forward(lambda x, training: x[:, :0]), f"{MAP}; Forward returned (2, 0)"),
    (Forward(lambda x, training: x.long()), f"{FLOATS} torch.int64 for B=2."),
    (Forward(lambda x, training: x.double()), f"{FLOATS} torch.float64 for B=2."),
    (Forward(fails_in_training), "Forward in training mode raised KeyError: 'noise'"),
    (
        Forward(lambda x, training: x[0] if training else x),
        f"{MAP}; Forward in training mode returned (256,)",
    ),
    (NO_GRADIENT, "in training mode raised RuntimeError: one of the variables needed"),
    (Forward(lambda x, training: x.sqrt()), "must return finite features; Forward"),
    (Forward(i for i in ()), "must be a module that can be copied"),
    (SmallResNet(100000), "are for `backbone`=SmallResNet(width=100000)."),
    (SmallResNet(2**31 - 1), f"{COUNTED}(width=2147"),
    (SmallResNet(blocks=(1,) * 60), f"{COUNTED}(blocks="),
    *(
        (SmallResNet(blocks=blocks), BLOCKS)
        for blocks in [(), (0,), (1.0,), [10**6], [HUGE]]
    ),
]


class Locked(torch.nn.Linear):
    def __init__(self):
        super().__init__(6, 4)
        self.lock = threading.Lock()


def scripted():
    with warnings.catch_warnings():  # torch says that it will be removed
        warnings.simplefilter("ignore")
        return torch.jit.script(torch.nn.Linear(6, 4))


def drops_out_twice(x, training):
    dropout = torch.nn.functional.dropout
    x = x.clone().requires_grad_(training)
    return checkpoint(dropout, x, 0.5, training, use_reentrant=False)


NETWORKS_OF_VECTORS = [
    ("resnet18", "`backbone`=ResNet() takes images, but X holds vectors of 6"),
    (torch.nn.Linear(6, 4).double(), "must map (B, 6) to (B, F); Linear raised"),
    (
        torch.nn.Linear(6, 4, device="meta"),
        "must have weights; those on the meta device",
    ),
    (Locked, "must be a module that can be copied; copying Locked raised TypeError"),
    (scripted, "must have copies that can be trained, which modules of torch.jit"),
    (Forward(drops_out_twice), "must draw no random numbers in its backward pass"),
]
ONE_OF = (
    "must be a name, an object of `sk_mice.backbones`, an nn.Module or a factory that "
    "returns one; got"
)
NO_NETWORKS = [
    (5, f"{ONE_OF} int."),
    (dict, f"{ONE_OF} dict."),
    (SmallResNet, f"{ONE_OF} SmallResNet."),
    (
        lambda channels: torch.nn.Flatten(),
        "must be a factory without arguments; missing a required argument",
    ),
]

MOCO = (
    "must be 'moco', 'simclr', an object of `sk_mice.augmentation`, a callable or "
    "None; got"
)
OF_IMAGES = (
    "must be ImageAugmentation, a name, a callable or None for images; got "
    "VectorAugmentation()."
)
OF_VECTORS = (
    "must be VectorAugmentation, a name, a callable or None for vectors; got "
    "ImageAugmentation()."
)
CROP = "`crop_scale` must be 'auto' or (low, high) with 0 < low <= high <= 1; got"
AFFINE = (
    "`affine` must be 'auto' or (rotation, shear) in degrees, from 0 to 180 and from 0 "
    "to 45; got"
)
VIEWS = [
    ("mixup", f"{MOCO} 'mixup'."),
    (VectorAugmentation(), OF_IMAGES),
    (lambda stack, generator: stack[:1], "must return a tensor with the batch"),
    (lambda stack, generator: stack * math.nan, "must return finite values."),
    (ImageAugmentation(crop_scale=iter((0.2, 1))), CROP),
    *(
        (ImageAugmentation(crop_scale=scale), f"{CROP} {scale!r}.")
        for scale in [(0, 2), (0.0, 1), (0.9, 0.5), (0.9, 1.5), (math.nan, 1), 0.5, "1"]
    ),
    *(
        (ImageAugmentation(affine=pair), f"{AFFINE} {pair!r}.")
        for pair in [(181, 0), (-1, 0), (0, 46), 15, "12"]
    ),
]
VIEWS_OF_VECTORS = [(ImageAugmentation(), OF_VECTORS)]
NO_VIEWS = [
    (5, f"{MOCO} 5."),
    (ImageAugmentation, f"{MOCO} <class 'sk_mice.augmentation.ImageAugmentation'>."),
    (lambda stack, generator: 5, "must return a floating-point tensor; got int."),
    (
        lambda images: images,
        "must be called as augmentation(images, generator); too many positional",
    ),
]

MILESTONES = (
    'must be "cosine", "step", "constant", milestones between 0 and 1 as shares of a '
    "stage, or a callable of progress; got"
)
FACTORS = "must map progress from 0 to 1 to factors of 0 and more; at"
SCHEDULES = [
    (iter([0.5]), MILESTONES),  # which can be read but once
    *(
        (schedule, f"{MILESTONES} {schedule!r}.")
        for schedule in ["linear", 0.5, None, [], [0.5, 1.5], ["a"], [HUGE]]
    ),
    (lambda progress: -1.0, f"{FACTORS} 0 it gave -1.0."),
    (lambda progress: math.nan, f"{FACTORS} 0 it gave nan."),
    (lambda progress: math.inf, f"{FACTORS} 0 it gave inf."),
    (lambda progress: "fast", FACTORS),
    (lambda progress: None, FACTORS),
    (lambda progress: 0.5 - progress, FACTORS),  # turns negative on the way
    (lambda progress: -1.0 if 0.2 < progress < 0.4 else 1.0, FACTORS),
    (lambda: 1.0, FACTORS),
]

SHAPE = "must be (H, W), (H, W, C) or (C, H, W), where C is 1, 3"
SHAPES_OF_VECTORS = [
    ((9, 9), "`image_shape`=(9, 9) needs X of shape (12, 9, 9), or rows of 81 values"),
    ((0, 6), f"{SHAPE} or 4, or differs from H and W; got (0, 6)."),
    *(
        (shape, SHAPE)
        for shape in [(), (6,), (2.0, 3), (-2, -3), ("6", "1"), (2, 3, 1, 1), (2, 3, 2)]
    ),
]
SHAPES_OF_IMAGES = [
    (
        (4, 16),
        "`image_shape`=(4, 16) needs X of shape (12, 4, 16), or rows of 64 values; "
        "got X of shape (12, 8, 8).",
    ),
]
SHAPES_OF_COLOURS = [
    (
        (3, 8, 8),
        "`image_shape`=(3, 8, 8) needs X of shape (12, 3, 8, 8), or rows of 192 values",
    ),
    ((8, 8), "`image_shape`=(8, 8) needs X of shape (12, 8, 8), or rows of 64 values"),
]

CALLBACKS = [
    (LRScheduler(), "an LRScheduler: every step sets the rate by `lr`"),
    *(
        (callback, f"{type(callback).__name__} as it is: it needs samples")
        for callback in (
            EpochScoring(lambda net, X, y=None: 0.0),
            EpochScoring("accuracy", on_train=True, use_caching=False),
            BatchScoring("accuracy", on_train=True, use_caching=False),
        )
    ),
]

DEVICES = [
    ("abacus", "must name a torch device; got 'abacus'. Use "),
    ("cuda:99", "must be available on this machine (cpu"),
    ("mps", 'must support float64, which Apple\'s "mps" does not; use "cpu".'),
]

PARAMETERS = [
    row("`n_clusters` must be at most n_samples = 12; got 13.", n_clusters=13),
    row(
        "2 heads from 128 features to `embedding_dim`=1000000000.", embedding_dim=10**9
    ),
    row("The 'max_iter' parameter of KMeans must be", init=KMeans(max_iter=0)),
    row("`init` must be a clusterer, not its class; got", TypeError, init=KMeans),
    row(
        "`embedding_dim` must be at least n_clusters - 1 = 8",
        estimator=PaperMiCE,
        n_clusters=9,
        embedding_dim=4,
        gating_prototypes="simplex",
    ),
    row(
        "`train_gating_prototypes` must be False if `kappa` is infinite",
        estimator=PaperMiCE,
        train_gating_prototypes=True,
        kappa=math.inf,
    ),
    row(
        '`expert_heads` must be "own" if `expert_prototypes` is None',
        estimator=PaperMiCE,
        expert_heads="shared",
        expert_prototypes=None,
    ),
    *rows("backbone", NETWORKS),
    *rows("backbone", NETWORKS_OF_VECTORS, X=VECTORS),
    *rows("backbone", NO_NETWORKS, TypeError),
    *rows("augmentation", VIEWS),
    *rows("augmentation", VIEWS_OF_VECTORS, X=VECTORS),
    *rows("augmentation", NO_VIEWS, TypeError),
    *rows("schedule", SCHEDULES, estimator=PaperMiCE),
    *rows("image_shape", SHAPES_OF_VECTORS, X=VECTORS),
    *rows("image_shape", SHAPES_OF_IMAGES),
    *rows("image_shape", SHAPES_OF_COLOURS, X=RNG.random((12, 8, 8, 3))),
    *rows("device", DEVICES),
    *(
        row(f"`callbacks` must not hold {message}", callbacks=[callback])
        for callback, message in CALLBACKS
    ),
]

N_MASKED = MASKED.mask.sum()
ONE_SHAPE = "must hold samples of one shape; got"
CHANNELS = (
    "must have 1, 3 or 4 channels, in the last or the second dimension; got shape "
    "(9, 8, 8, 2). For another number of channels, set `image_shape`=(8, 8, 2)."
)
BOTH = (
    "can be read as (N, H, W, C) and as (N, C, H, W). Set `image_shape`=(3, 8, 3) for "
    "the former"
)
BAD_X = [
    (
        np.where(np.arange(12)[:, None, None] < 10, IMAGES, math.nan),
        "Input X contains NaN in sample 10; 2 of 12 samples have values that are not",
    ),
    (np.full((9, 5), math.nan), "Input X contains NaN in sample 0"),
    (np.full((9, 8, 8), math.inf), "Input X contains infinity"),
    ([[1, None]] * 9, "Input X contains NaN in"),
    (np.full((9, 5), HUGE), "must hold numbers that fit into floats; int too large"),
    (IMAGES * 1e200, "must hold values up to 1e+140"),
    (np.zeros((20, 16, 3)), "(20, 16, 3) looks like one image, (H, W, C): X[None] ho"),
    (IMAGES[:0], "0 sample(s)"),
    (IMAGES[:1], "while a minimum of 2 is required"),
    (np.zeros((9, 0)), "0 feature(s)"),
    (np.zeros((9, 0, 8)), "must hold samples with"),
    (5, "Expected 2D array, got scalar array instead"),
    (None, "Expected 2D array, got scalar array instead"),
    (VECTORS[0], "Expected 2D array, got 1D array instead"),
    (np.zeros((9, 8, 8, 3, 1)), "must have shape (N, H, W), (N, H, W, C)"),
    (np.zeros((9, 8, 8, 2)), CHANNELS),
    (np.zeros((9, 7, 8, 7)), "the second dimension; got shape (9, 7, 8, 7)."),
    (np.zeros((9, 3, 8, 3)), BOTH),
    ([[1, 2], [3]], f"{ONE_SHAPE} (2,) in sample 0 and (1,) in sample 1."),
    ([np.zeros((8, 8)), np.zeros((9, 9))], f"{ONE_SHAPE} (8, 8) in sample 0"),
    ((IMAGES, np.zeros(12)), "(12,) in sample 1. These look like samples and their"),
    ([["a", "b"]] * 9, "dtype='numeric' is not compatible"),
    (TABLE.assign(id="u1"), "must hold numbers; got 'u1' in column 'id'. Leave"),
    (TABLE.assign(kind=pd.Categorical(["a"] * 12)), "got 'a' in column 'kind'."),
    (TABLE.assign(vector=[*VECTORS]), "got vectors in column 'vector'. np.stack(fra"),
    (TABLE.assign(day=[date(2026, 1, 1)] * 12), "got datetime.date(2026, 1, 1) in"),
    (pl.DataFrame({"kind": ["a"] * 12}), "got 'a' in column 'kind'."),
    (pl.DataFrame({"vector": [*VECTORS]}), "got vectors in column 'vector'."),
    (VECTORS + 1j, "X must hold real numbers, such as magnitudes; got complex128."),
    (tensor("conjugate"), "Complex data not supported"),
    (MASKED, f"must have all its values; got a masked array, and {N_MASKED} of"),
    (list(MASKED), "must have all its values; got a masked array"),
    ([], "must hold samples; got an empty list."),
    ([Image.new("RGB", (8, 8)), Image.new("RGB", (9, 8))], f"{ONE_SHAPE} (8, 8, 3) in"),
    ([Image.new("P", (8, 8))] * 3, 'mode "P". image.convert("RGB") has RGB values.'),
]
NO_PATHS = "must hold numbers, not paths; got"
NO_X = [
    ({"X": IMAGES}, "must be an array, a list of arrays, or a dataset of torch; got"),
    (iter(IMAGES), "must be an array, a list of"),
    (DATES, "must hold numbers, not dates; got datetime64[D]."),
    (DATES - DATES[0], "must hold numbers, not dates"),
    (DAYS, "must hold numbers, not dates; got datetime64[D]."),
    (DAYS.to_frame("day"), "not dates; got datetime64[D] in column 'day'."),
    (TABLE.assign(day=pd.Timestamp(2026, 1, 1)), "] in column 'day'."),
    (TABLE.assign(day=pd.Timestamp(2026, 1, 1, tz="UTC")), "UTC] in column 'day'."),
    (pl.LazyFrame({"a": [1.0] * 12}), "got a LazyFrame. X.collect() has them."),
    (sparse.csr_array(VECTORS), "Sparse data was passed for X"),
    *(
        (tensor(kind), f"must be dense and hold plain numbers; got a {kind} tensor.")
        for kind in ("meta", "sparse", "nested", "quantized")
    ),
    ("photos", f"{NO_PATHS} 'photos'. `sk_mice.datasets.load_image_folder` reads"),
    (Path("photos"), f"{NO_PATHS} 'photos'."),
    (["a.png"] * 9, f"{NO_PATHS} 'a.png'."),
    ([Path("a.png")] * 9, NO_PATHS),
    (np.array(["a.png"] * 9), NO_PATHS),
    (
        Image.fromarray(np.uint8(255 * IMAGES[0])),
        "must hold samples; got one image. np.asarray(image)[None] is an array",
    ),
]

NEEDED = "must be 12 integers from 0 to n_clusters - 1 = 1; got"
LABELS = [
    ([0, 1], f"{NEEDED} int64 of shape (2,)."),
    ([], f"{NEEDED} float64 of shape (0,)."),
    ([2] * 12, f"{NEEDED} int64 of shape (12,) from 2 to 2."),
    ([-1] * 12, f"{NEEDED} int64 of shape (12,) from -1 to -1."),
    ([0.5] * 12, f"{NEEDED} float64 of shape (12,)."),
    ([True] * 12, f"{NEEDED} bool of shape (12,)."),
    (["a"] * 12, f"{NEEDED} <U1 of shape (12,)."),
    ([None] * 12, f"{NEEDED} object of shape (12,)."),
    ([2**70] * 12, f"{NEEDED} object of shape (12,)."),
    ({}, f"{NEEDED} object of shape ()."),
    (np.zeros((12, 2), int), f"{NEEDED} int64 of shape (12, 2)."),
    (np.ma.masked_equal([0] * 6 + [1] * 6, 1), "must have all its values"),
]
NO_LABELS = [(np.zeros(12, "m8[s]"), "must hold numbers, not dates")]
# A clusterer that takes all for noise.
NOISE = [
    (
        DBSCAN(eps=1e-9),
        f"The labels of `init` {NEEDED} int64 of shape (12,) from -1 to -1.",
    ),
]


def found(labels):
    """The same labels, by a clusterer."""
    return [(Labels(y), message) for y, message in labels]


START = [
    *rows("init", LABELS + found(LABELS) + NOISE, X=VECTORS),
    *rows("init", NO_LABELS + found(NO_LABELS), TypeError, X=VECTORS),
]

BAD_ROWS = [
    (VECTORS * math.nan, "Input X contains NaN in sample 0"),
    (MASKED, "must have all its values"),
    (np.full((9, 5), HUGE), "must hold numbers that fit into floats"),
    (IMAGES, "must hold vectors, in an array of shape (N, features); got (12, 8, 8)."),
]
NO_ROWS = [
    (DATES, "must hold numbers, not dates; got datetime64[D]."),
    (pd.DataFrame(DATES.astype("M8[s]")), "must hold numbers, not dates"),
    (DATES - DATES[0], "must hold numbers, not dates"),
    (DAYS, "must hold numbers, not dates; got datetime64[D]."),
    (DAYS.to_frame("day"), "not dates; got datetime64[D] in column 'day'."),
    (TABLE.assign(day=pd.Timestamp(2026, 1, 1)), "] in column 'day'."),
    (pl.LazyFrame({"a": [1.0] * 12}), "got a LazyFrame. X.collect() has them."),
    (tensor("nested"), "must be dense and hold plain numbers; got a nested tensor."),
]
WEIGHTS = [
    (np.ma.masked_equal([0] + [1] * 11, 0), "must have all its values"),
    ([HUGE] * 12, "must hold numbers that fit into floats"),
]
NO_WEIGHTS = [((DATES - DATES[0])[:, 0], "must hold numbers, not dates")]
CENTRES = [([[HUGE] * 6] * 2, "must hold numbers that fit into floats")]
NO_CENTRES = [(DATES[:2], "must hold numbers, not dates")]
KMEANS = {"estimator": SphericalKMeans}
OF_KMEANS = [
    *rows("X", BAD_ROWS, **KMEANS),
    *rows("X", NO_ROWS, TypeError, **KMEANS),
    *rows("sample_weight", WEIGHTS, X=VECTORS, **KMEANS),
    *rows("sample_weight", NO_WEIGHTS, TypeError, X=VECTORS, **KMEANS),
    *rows("init", CENTRES, X=VECTORS, **KMEANS),
    *rows("init", NO_CENTRES, TypeError, X=VECTORS, **KMEANS),
]


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("message", "error", "options"),
    [*PARAMETERS, *rows("X", BAD_X), *rows("X", NO_X, TypeError), *START, *OF_KMEANS],
)
def test_refused(message, error, options):
    refuses(message, error, **options)


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("estimator", [MoCo, PaperMoCo])
def test_moco_refuses_what_mice_does(estimator):
    for parameters, X, message in [
        ({"tau": 0}, IMAGES, f"The 'tau' parameter of {estimator.__name__} must be"),
        ({"backbone": SmallResNet(0)}, IMAGES, "The 'width' parameter of SmallResNet"),
        ({"augmentation": ImageAugmentation()}, VECTORS, "must be VectorAugmentation"),
        ({"image_shape": (9, 9)}, VECTORS, "`image_shape`=(9, 9) needs X of"),
        ({"device": "mps"}, VECTORS, "`device` must support float64"),
        ({}, IMAGES[:1], "while a minimum of 2 is required"),
    ]:
        refuses(message, X=X, estimator=estimator, **parameters)
    if estimator is PaperMoCo:
        refuses("`schedule` must be", estimator=estimator, schedule="linear")
        refuses("The 'warmup' parameter", estimator=estimator, warmup=1)


CLUSTERERS_OF_VECTORS = (ClassificationEM, NeighborMixture, SphericalKMeans)


@pytest.mark.parametrize("estimator", CLUSTERERS_OF_VECTORS)
@pytest.mark.parametrize("as_what", [np.asarray, pd.DataFrame, torch.from_numpy])
def test_rows_of_vectors_that_are_not_finite_are_named(estimator, as_what):
    X = np.random.default_rng(0).random((12, 5))
    fitted = estimator(2, random_state=0).fit(X)
    odd = X.copy()
    odd[[7, 10], 3] = np.nan, np.inf
    for call in (clone(fitted).fit, fitted.predict):
        with pytest.raises(ValueError, match="NaN in sample 7; 2 of 12 samples have"):
            call(as_what(odd))
    with pytest.raises(ValueError, match="infinity in sample 0; 1 of 2 samples have"):
        fitted.predict(odd[[10, 0]])
    missing = pd.DataFrame(X).convert_dtypes()
    missing.iloc[7, 3] = pd.NA
    with pytest.raises(ValueError, match="NaN in sample 7; 1 of 12 samples have"):
        clone(fitted).fit(missing)


def test_sparse_rows_that_are_not_finite_are_named():
    odd = sparse.csr_array(np.eye(5) + np.diag([np.inf, np.nan], 3))
    with pytest.raises(ValueError, match="infinity in sample 0; 2 of 5 samples have"):
        SphericalKMeans(2).fit(odd)
    values = [1e308, -1e308, 1e308, -1e308]  # two for each place; their sum is 0
    odd = sparse.csr_array((values, [0, 1, 0, 1], [0, 4]))
    with pytest.raises(ValueError, match="infinity in sample 0; 1 of 1 samples have"):
        SphericalKMeans(1).fit(odd)


@pytest.mark.parametrize("estimator", CLUSTERERS_OF_VECTORS)
def test_rows_that_are_assumed_to_be_finite_are_checked_all_the_same(estimator):
    X = np.random.default_rng(0).random((12, 5))
    fitted = estimator(2, random_state=0).fit(X)
    X[7, 3] = np.nan
    calls = [clone(fitted).fit, fitted.predict]
    if estimator is SphericalKMeans:
        calls += [clone(fitted).partial_fit, fitted.transform, fitted.score]
    with config_context(assume_finite=True):
        for call in calls:
            with pytest.raises(ValueError, match="NaN in sample 7; 1 of 12 samples"):
                call(X)


# --------------------------------------------------------------------- kinds of values


def numbers_of(cls):
    return [
        name
        for name, rules in cls._parameter_constraints.items()
        if isinstance(rules, list)
        and any(isinstance(rule, Count | Number) for rule in rules)
    ]


PAIRS = ["crop_scale", "affine"]


def test_a_boolean_is_no_number():
    for cls in (PaperMiCE, SmallResNet, MLP, VectorAugmentation):
        for name in numbers_of(cls):
            message = f"The '{name}' parameter of {cls.__name__} must be"
            refuses(message, **options_of(cls, **{name: True}))
    for name in PAIRS:
        augmentation = ImageAugmentation(**{name: (False, True)})
        refuses(f"`{name}` must", augmentation=augmentation)
    refuses("`schedule` must be", estimator=PaperMiCE, schedule=(False, True))
    refuses("`blocks` of SmallResNet must be", backbone=SmallResNet(blocks=(True,)))
    refuses("whose sum is at most 1000", backbone=SmallResNet(blocks=(1000, 1)))
    refuses("`image_shape` must be", X=VECTORS, image_shape=(True, 6))


def test_numbers_that_no_float_can_hold():
    names = ["tau", "kappa", "teacher_momentum", "lr", "weight_decay", "warmup"]
    for name in names:
        for value in (HUGE, -HUGE, Fraction(HUGE)):
            wanted = f"The '{name}' parameter"
            refuses(wanted, estimator=PaperMiCE, **{name: value})
    for name in numbers_of(VectorAugmentation):
        options = options_of(VectorAugmentation, **{name: HUGE})
        refuses(f"The '{name}' parameter", **options)
    for name in PAIRS:
        refuses(f"`{name}` must", augmentation=ImageAugmentation(**{name: (0, HUGE)}))
    refuses("`schedule` must be", estimator=PaperMiCE, schedule=(0, HUGE))
    refuses("`schedule` must map", estimator=PaperMiCE, schedule=lambda p: HUGE)


def test_counts_that_no_fit_can_reach():
    for name in ["max_epochs", "n_init", "embedding_dim"]:
        refuses(f"The '{name}' parameter", **{name: HUGE})
    for cls in (SmallResNet, MLP):
        for name in numbers_of(cls):
            refuses(f"The '{name}' parameter", backbone=cls(**{name: HUGE}))


def test_counts_of_any_size_mean_all():
    counts = dict.fromkeys(
        ["queue_size", "batch_size", "n_neighbors", "n_rounds"], HUGE
    )
    fit(VECTORS, estimator=PaperMiCE, max_epochs=1, random_state=0, **counts)


SMALL = {
    "n_clusters": 3,
    "embedding_dim": 100,
    "queue_size": 100,
    "batch_size": 6,
    "n_neighbors": 2,
    "max_epochs": 1,
}


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int16, np.uint64])
def test_numbers_of_numpy_do_not_overflow(kind):
    X = RNG.random((120, 6))
    backbone = MLP(kind(100))
    given = {name: kind(value) for name, value in SMALL.items()}
    fits = [
        MiCEClustering(**numbers, lr=1e-3, random_state=0, backbone=network).fit(X)
        for numbers, network in ((given, backbone), (SMALL, MLP(100)))
    ]
    np.testing.assert_array_equal(fits[0].labels_, fits[1].labels_)
    assert fits[0].n_clusters is given["n_clusters"]
    assert isinstance(backbone.width, kind)
    for cls in CLUSTERERS_OF_VECTORS:
        found = cls(kind(3), random_state=0).fit(X)
        np.testing.assert_array_equal(found.predict(X), found.labels_)


@pytest.mark.parametrize("estimator", [MiCEClustering, MoCo])
def test_models_without_room(estimator, monkeypatch):
    monkeypatch.setattr("sk_mice._device.available_memory", lambda: 10**8)
    options = {"estimator": estimator}
    wide = np.zeros((8, 20_000), np.float32)
    message = "The model must fit into the memory of the cpu device, 0.1 GB; it needs "
    with pytest.raises(ValueError, match=message + r".*`backbone`=MLP\(\) for 20000 f"):
        fit(wide, **options)
    with pytest.raises(ValueError, match=message + ".*for the queue of 3000 samples"):
        fit(np.zeros((3000, 3)), embedding_dim=20_000, **options)


def test_a_second_model_needs_room_only_in_two_stages(monkeypatch):
    monkeypatch.setattr("sk_mice._device.available_memory", lambda: 1)
    wide = np.zeros((8, 20_000), np.float32)
    for init, size in (("random", "0.2"), ("two-stage", "0.3")):
        with pytest.raises(ValueError, match=f"it needs {size} GB"):
            fit(wide, init=init)


@pytest.mark.parametrize(
    "X",
    [
        [Image.fromarray(np.uint8(255 * image)) for image in IMAGES],
        [torch.tensor(row, requires_grad=True) for row in VECTORS],
        [[torch.tensor(v, requires_grad=True) for v in row] for row in VECTORS],
        tensor("bfloat16"),
        tensor("negative"),
        tensor("requires_grad"),
        np.ma.masked_greater(VECTORS, 2),
        pd.DataFrame(VECTORS),
        BecomesArray(IMAGES),
    ],
    ids=lambda X: f"{type(X).__name__}",
)
@short_fits
def test_what_holds_plain_numbers_fits(X):
    estimator = MiCEClustering(2, max_epochs=1, random_state=0).fit(X)
    assert estimator.predict(X).shape == (12,)


def test_trying_a_module_leaves_it_and_the_generators_alone():
    module = torch.nn.Sequential(
        torch.nn.BatchNorm1d(6),
        torch.nn.Dropout(0.5),
        Forward(lambda x, training: x.sqrt()),
    )
    kept = state_of(module)
    with same_generators():
        refuses("finite features", X=VECTORS, backbone=module, random_state=0)
    assert_same_state(module, kept)
    assert all(weight.grad is None for weight in module.parameters())


@short_fits
def test_y_is_ignored():
    for y in (None, "anything", [1], object()):
        estimator = MiCEClustering(2, max_epochs=1, random_state=0).fit(VECTORS, y)
        assert estimator.labels_.shape == (12,)


def test_columns_of_polars_hold_paths():
    files = ["a.png", "b/c.png"]
    for dtype in (pl.String, pl.Categorical):
        assert as_paths(pl.Series(files, dtype=dtype)) == files
    assert as_paths(pl.Series([1.0, 2.0])) is None
