"""Bad input is refused before training, with a sentence that says why."""

import math
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from scipy import sparse
from shared import Forward, Labels, assert_same_state, state_of
from sklearn.base import clone
from sklearn.cluster import DBSCAN, KMeans
from skorch.callbacks import BatchScoring, EpochScoring, LRScheduler

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

RNG = np.random.default_rng(0)
IMAGES = RNG.random((12, 8, 8))
VECTORS = RNG.random((12, 6))
HUGE = 10**400  # no float can hold it
DATES = np.arange(72).reshape(12, 6).astype("M8[D]")
MASKED = np.ma.masked_greater(VECTORS, 0.9)


@dataclass(frozen=True)
class Row:
    """A call that must be refused, and how."""

    given: str
    call: Callable
    message: str  # a part of the error's
    error: type = ValueError


# ------------------------------------------------------------------ parameters of MiCE


def fit(X=IMAGES, *, estimator=MiCEClustering, fit_params=None, **parameters):
    clusters = {} if issubclass(estimator, MoCo) else {"n_clusters": 2}
    estimator = estimator(**(clusters | parameters))
    return lambda: estimator.fit(X, **(fit_params or {}))


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


def wrong(given, message, error=ValueError, X=IMAGES, **parameters):
    return Row(given, fit(X, **parameters), message, error)


def out_of_range(name, value, rule, estimator=MiCEClustering):
    """scikit-learn's sentence for a value that the constraints exclude."""
    message = f"The '{name}' parameter of {estimator.__name__} must be {rule}"
    given = f"`{name}={value!r}`"
    return wrong(given, message, estimator=estimator, **{name: value})


def part_out_of_range(parameter, part, rule, *, X=IMAGES):
    """The same of a parameter that is an object, whose own parameter is excluded."""
    name, *_ = re.findall(r"(\w+)=", repr(part))
    message = f"The '{name}' parameter of {type(part).__name__} must be {rule}"
    return wrong(f"`{parameter}={part!r}`", message, X=X, **{parameter: part})


def of_images(given, message, **parameters):
    """Parameters of `ImageAugmentation` that it refuses."""
    return wrong(given, message, augmentation=ImageAugmentation(**parameters))


def of_paper(given, message, **parameters):
    return wrong(given, message, estimator=PaperMiCE, **parameters)


OF_MICE = [
    out_of_range("n_clusters", 0, "an int in the range [1, inf)"),
    out_of_range("n_clusters", 2.5, "an int in the range [1, inf)"),
    out_of_range("n_clusters", "ten", "an int in the range [1, inf)"),
    wrong(
        "`n_clusters` above the number of samples",
        "`n_clusters` must be at most n_samples = 12; got 13.",
        n_clusters=13,
    ),
    wrong(
        "`backbone` of an unknown name",
        '`backbone` must be "auto", "mlp", "resnet-small"',
        backbone="vgg",
    ),
    wrong(
        "`backbone` of a name that says a width",
        "a factory of one; got 'resnet-small-32'.",
        backbone="resnet-small-32",
    ),
    wrong(
        "`backbone` that is no module, as `5`",
        "`backbone` must be a name, an object of `sk_mice.backbones`, an nn.Module or "
        "a factory that returns one; got int.",
        TypeError,
        backbone=5,
    ),
    wrong(
        "`backbone` that is a factory of no module",
        "an nn.Module or a factory that returns one; got dict.",
        TypeError,
        backbone=dict,
    ),
    wrong(
        "`backbone` that is a class of `sk_mice.backbones`",
        "an nn.Module or a factory that returns one; got SmallResNet.",
        TypeError,
        backbone=SmallResNet,
    ),
    part_out_of_range(
        "backbone", SmallResNet(0), "an int in the range [1, 2147483647]"
    ),
    part_out_of_range("backbone", SmallResNet(1.5), "an int in the range"),
    part_out_of_range("backbone", SmallResNet(blocks="11"), "an instance of 'tuple'"),
    part_out_of_range("backbone", SmallResNet(max_pool="no"), "an instance of 'bool'"),
    part_out_of_range("backbone", ResNet(19), "a int among {18, 34, 50}"),
    part_out_of_range("backbone", ResNet(max_pool=1), "an instance of 'bool'"),
    part_out_of_range(
        "backbone", MLP(0), "an int in the range [1, 2147483647]", X=VECTORS
    ),
    part_out_of_range("backbone", MLP(n_layers=0), "an int in the range [1, 1000]"),
    part_out_of_range("backbone", MLP(n_layers=10**6), "an int in the range [1, 1000]"),
    *(
        wrong(
            f"`backbone={SmallResNet(blocks=blocks)}`",
            "`blocks` of SmallResNet must be integers from 1 to 1000, one for each",
            backbone=SmallResNet(blocks=blocks),
        )
        for blocks in [(), (0,), (1.0,), [10**6], [HUGE]]
    ),
    wrong(
        "`backbone` that does not take the samples",
        "`backbone` must map (B, 1, 16, 16) to (B, F); Linear raised RuntimeError",
        backbone=torch.nn.Linear(3, 4),
    ),
    wrong(
        "`backbone` that returns maps, not vectors",
        "`backbone` must map (B, 1, 16, 16) to (B, F); Conv2d returned",
        backbone=torch.nn.Conv2d(1, 2, 3),
    ),
    wrong(
        "`backbone` in another precision",
        "`backbone` must map (B, 6) to (B, F); Linear raised",
        X=VECTORS,
        backbone=torch.nn.Linear(6, 4).double(),
    ),
    wrong(
        "`backbone` for images, and vectors",
        "`backbone`=ResNet() takes images, but X holds vectors of 6 features",
        X=VECTORS,
        backbone="resnet18",
    ),
    wrong(
        "`backbone` that returns integers",
        "to (B, F) in float32; Forward returned torch.int64 for B=2.",
        backbone=Forward(lambda x, training: x.long()),
    ),
    wrong(
        "`backbone` that returns float64",
        "to (B, F) in float32; Forward returned torch.float64 for B=2.",
        backbone=Forward(lambda x, training: x.double()),
    ),
    wrong(
        "`backbone` that returns no feature",
        "`backbone` must map (B, 1, 16, 16) to (B, F); Forward returned (2, 0)",
        backbone=Forward(lambda x, training: x[:, :0]),
    ),
    wrong(
        "`backbone` that fails in training mode",
        "Forward in training mode raised KeyError: 'noise'",
        backbone=Forward(fails_in_training),
    ),
    wrong(
        "`backbone` that returns another shape in training mode",
        "Forward in training mode returned (256,) for B=2.",
        backbone=Forward(lambda x, training: x[0] if training else x),
    ),
    wrong(
        "`backbone` that returns NaN",
        "`backbone` must return finite features; Forward does not",
        backbone=Forward(lambda x, training: x.sqrt()),
    ),
    wrong(
        "`backbone` whose gradient cannot be computed",
        "in training mode raised RuntimeError: one of the variables needed",
        backbone=torch.nn.Sequential(
            torch.nn.Flatten(),
            torch.nn.Linear(256, 4),
            Forward(lambda x, training: x.square() * x.clamp_(0)),
        ),
    ),
    wrong(
        "`backbone` without values, on the meta device",
        "`backbone` must have weights; those on meta have no values.",
        X=VECTORS,
        backbone=torch.nn.Linear(6, 4, device="meta"),
    ),
    wrong(
        "`backbone` that cannot be copied",
        "`backbone` must be a module that can be copied",
        backbone=Forward(i for i in ()),
    ),
    wrong(
        "`backbone` that has no room in memory",
        "are for `backbone`=SmallResNet(width=100000).",
        backbone=SmallResNet(100000),
    ),
    wrong(
        "`backbone` of a width that no tensor can have",
        "`backbone` must have weights that can be counted; got SmallResNet(width=2147",
        backbone=SmallResNet(2**31 - 1),
    ),
    wrong(
        "`backbone` of more stages than any tensor can have",
        "`backbone` must have weights that can be counted; got SmallResNet(blocks=",
        backbone=SmallResNet(blocks=(1,) * 60),
    ),
    wrong(
        "`embedding_dim` that has no room in memory",
        "2 heads from 128 features to `embedding_dim`=1000000000.",
        embedding_dim=10**9,
    ),
    out_of_range("embedding_dim", 0, "an int in the range [1, 2147483647]"),
    of_paper(
        "`embedding_dim` too small for simplex centres",
        "`embedding_dim` must be at least n_clusters - 1 = 8",
        n_clusters=9,
        embedding_dim=4,
        gating_prototypes="simplex",
    ),
    out_of_range("tau", 0, "a float in the range [0.001, inf)"),
    out_of_range("tau", 1e-9, "a float in the range [0.001, inf)"),
    out_of_range("tau", math.inf, "a float in the range [0.001, inf)"),
    out_of_range("tau", math.nan, "a float in the range [0.001, inf)"),
    out_of_range("kappa", -1, "a float in the range [0.001, inf]"),
    out_of_range("gating_prototypes", "random", "a str among", PaperMiCE),
    out_of_range("train_gating_prototypes", "yes", "an instance of 'bool'", PaperMiCE),
    out_of_range("expert_prototypes", "none", "a str among", PaperMiCE),
    out_of_range("expert_heads", "one", "a str among", PaperMiCE),
    out_of_range("n_rounds", 0, "an int in the range [1, inf)", PaperMiCE),
    of_paper(
        "`train_gating_prototypes` with an infinite `kappa`",
        "`train_gating_prototypes` must be False if `kappa` is infinite",
        train_gating_prototypes=True,
        kappa=math.inf,
    ),
    of_paper(
        '`expert_heads="shared"` without `expert_prototypes`',
        '`expert_heads` must be "own" if `expert_prototypes` is None',
        expert_heads="shared",
        expert_prototypes=None,
    ),
    out_of_range("queue_size", 0, "an int in the range [1, inf)"),
    out_of_range("teacher_momentum", 1.0, "a float in the range [0.0, 1.0)", PaperMiCE),
    wrong(
        "`augmentation` of an unknown name",
        "`augmentation` must be 'moco', 'simclr', an object of `sk_mice.augmentation`, "
        "a callable or None; got 'mixup'.",
        augmentation="mixup",
    ),
    wrong(
        "`augmentation` that is nothing of these, as `5`",
        "`augmentation` must be 'moco', 'simclr', an object of `sk_mice.augmentation`, "
        "a callable or None; got 5.",
        TypeError,
        augmentation=5,
    ),
    wrong(
        "`augmentation` that is a class, not an object",
        "a callable or None; got <class 'sk_mice.augmentation.ImageAugmentation'>.",
        TypeError,
        augmentation=ImageAugmentation,
    ),
    wrong(
        "`augmentation` of images, for vectors",
        "`augmentation` must be VectorAugmentation, a name, a callable or None for "
        "vectors; got ImageAugmentation().",
        X=VECTORS,
        augmentation=ImageAugmentation(),
    ),
    wrong(
        "`augmentation` of vectors, for images",
        "`augmentation` must be ImageAugmentation, a name, a callable or None for "
        "images; got VectorAugmentation().",
        augmentation=VectorAugmentation(),
    ),
    part_out_of_range("augmentation", ImageAugmentation(colours="rgb"), "a str among"),
    part_out_of_range(
        "augmentation", ImageAugmentation(flip="yes"), "an instance of 'b"
    ),
    *(
        part_out_of_range("augmentation", part, "a float in the range [0.0", X=VECTORS)
        for part in [
            VectorAugmentation(noise=-1),
            VectorAugmentation(noise=math.nan),
            VectorAugmentation(replacement=1.5),
        ]
    ),
    wrong(
        "`augmentation` that returns no tensor",
        "`augmentation` must return a floating-point tensor; got int.",
        TypeError,
        augmentation=lambda stack, generator: 5,
    ),
    wrong(
        "`augmentation` of another signature",
        "`augmentation` must be called as augmentation(images, generator); too many "
        "positional arguments.",
        TypeError,
        augmentation=lambda images: images,
    ),
    wrong(
        "`backbone` that needs an argument",
        "`backbone` must be a factory without arguments; missing a required argument",
        TypeError,
        backbone=lambda channels: torch.nn.Flatten(),
    ),
    wrong(
        "`augmentation` that loses samples",
        "`augmentation` must return a tensor with the batch and channels it was given",
        augmentation=lambda stack, generator: stack[:1],
    ),
    wrong(
        "`augmentation` that returns NaN",
        "`augmentation` must return finite values.",
        augmentation=lambda stack, generator: stack * math.nan,
    ),
    out_of_range("n_neighbors", -1, "an int in the range [0, inf)"),
    of_images(
        "`crop_scale=(0, 2)`",
        "`crop_scale` must be 'auto' or (low, high) with 0 < low <= high <= 1",
        crop_scale=(0, 2),
    ),
    of_images(
        "`affine` of a string",
        "`affine` must be 'auto' or (rotation, shear) in degrees",
        affine="12",
    ),
    of_images(
        "`crop_scale` that can be read but once",
        "`crop_scale` must be 'auto' or (low, high)",
        crop_scale=iter((0.2, 1)),
    ),
    of_paper(
        "`schedule` that can be read but once",
        '`schedule` must be "cosine", "step", "constant", milestones',
        schedule=iter([0.5]),
    ),
    of_images(
        "`affine=(0, 60)`",
        "`affine` must be 'auto' or (rotation, shear) in degrees, from 0 to 180 and",
        affine=(0, 60),
    ),
    out_of_range("init", "k-means", "a str among"),
    out_of_range("init", None, "a str among"),
    wrong(
        "`init` that is a clusterer's class",
        "`init` must be a clusterer, not its class; got <class 'sklearn.cluster.",
        TypeError,
        init=KMeans,
    ),
    wrong(
        "`init` that is a clusterer with a bad parameter",
        "The 'max_iter' parameter of KMeans must be",
        init=KMeans(max_iter=0),
    ),
    out_of_range("n_init", 0, "an int in the range [1, 1000000]"),
    out_of_range("max_epochs", 0, "an int in the range [1, 2147483647]"),
    out_of_range("batch_size", 1, "an int in the range [2, inf)"),
    out_of_range("lr", 0, "a float in the range (0.0, 1000000.0]"),
    out_of_range("lr", 1e30, "a float in the range (0.0, 1000000.0]"),
    out_of_range("weight_decay", -1, "a float in the range [0.0, 1000000.0]"),
    of_paper(
        "`schedule` of an unknown name",
        '`schedule` must be "cosine", "step", "constant", milestones',
        schedule="linear",
    ),
    of_paper(
        "`schedule=[2.0]`",
        "milestones between 0 and 1 as shares of a stage",
        schedule=[2.0],
    ),
    of_paper(
        "`schedule` that maps to negative factors, NaN or no number",
        "`schedule` must map progress from 0 to 1 to factors of 0 and more; at 0 it "
        "gave -1.0.",
        schedule=lambda progress: -1.0,
    ),
    out_of_range("warmup", 1, "a float in the range [0.0, 1.0)", PaperMiCE),
    wrong(
        "`image_shape` that does not fit the rows",
        "`image_shape`=(9, 9) needs X of shape (12, 9, 9), or rows of 81 values; got X "
        "of shape (12, 6).",
        X=VECTORS,
        image_shape=(9, 9),
    ),
    wrong(
        "`image_shape=(0, 6)`",
        "`image_shape` must be (H, W), (H, W, C) or (C, H, W), where C is 1, 3 or 4, "
        "or differs from H and W; got (0, 6).",
        X=VECTORS,
        image_shape=(0, 6),
    ),
    *(
        wrong(
            f"`image_shape={shape}`",
            "`image_shape` must be (H, W), (H, W, C) or (C, H, W), where C is 1, 3",
            X=VECTORS,
            image_shape=shape,
        )
        for shape in [(), (6,), (2.0, 3), (-2, -3), ("6", "1"), (2, 3, 1, 1), (2, 3, 2)]
    ),
    out_of_range("image_shape", "23", "an instance of 'tuple'"),
    wrong(
        "`image_shape` that contradicts images' own",
        "`image_shape`=(4, 16) needs X of shape (12, 4, 16), or rows of 64 values; got "
        "X of shape (12, 8, 8).",
        image_shape=(4, 16),
    ),
    wrong(
        "`image_shape` with another place of the channels than in X",
        "`image_shape`=(3, 8, 8) needs X of shape (12, 3, 8, 8), or rows of 192 values",
        X=RNG.random((12, 8, 8, 3)),
        image_shape=(3, 8, 8),
    ),
    wrong(
        "`image_shape` that leaves the channels out",
        "`image_shape`=(8, 8) needs X of shape (12, 8, 8), or rows of 64 values",
        X=RNG.random((12, 8, 8, 3)),
        image_shape=(8, 8),
    ),
    wrong(
        "`device` of an unknown name",
        "`device` must name a torch device; got 'abacus'.",
        device="abacus",
    ),
    wrong(
        "`device` that is not there",
        "`device` must be available on this machine (cpu",
        device="cuda:99",
    ),
    wrong(
        "`device` without float64",
        '`device` must support float64, which Apple\'s "mps" does not; use "cpu".',
        device="mps",
    ),
    out_of_range("device", 0, "an instance of 'str'"),
    out_of_range("precision", "float16", "a str among"),
    wrong(
        "`callbacks` without effect",
        "`callbacks` must not hold an LRScheduler: every step sets the rate by `lr` "
        "and the schedule of the fit.",
        callbacks=[LRScheduler()],
    ),
    *(
        wrong(
            f"`callbacks` with {type(callback).__name__}, {callback.on_train}",
            f"`callbacks` must not hold {type(callback).__name__} as it is: it needs "
            "samples held out, or a y.",
            callbacks=[callback],
        )
        for callback in (
            EpochScoring(lambda net, X, y=None: 0.0),
            EpochScoring("accuracy", on_train=True, use_caching=False),
            BatchScoring("accuracy", on_train=True, use_caching=False),
        )
    ),
    out_of_range("callbacks", 5, "an instance of 'list'"),
    out_of_range("checkpoint", 3, "an instance of 'str'"),
    out_of_range("distributed", "auto", "an instance of 'bool'"),
    out_of_range("warm_start", "yes", "an instance of 'bool'"),
    out_of_range("verbose", -1, "an int in the range [0, inf)"),
    out_of_range("random_state", -1, "an int in the range [0, 4294967295]"),
]

# ---------------------------------------------------------------------------------- X


def bad_X(given, X, message, error=ValueError, **parameters):
    return Row(given, fit(X, **parameters), message, error)


X_ROWS = [
    bad_X(
        "NaN in images",
        np.where(np.arange(12)[:, None, None] < 10, IMAGES, math.nan),
        "Input X contains NaN in sample 10; 2 of 12 samples have values that are not",
    ),
    bad_X("NaN in vectors", np.full((9, 5), math.nan), "Input X contains NaN in samp"),
    bad_X("infinity", np.full((9, 8, 8), math.inf), "Input X contains infinity"),
    bad_X("`None` among the numbers", [[1, None]] * 9, "Input X contains NaN in"),
    bad_X(
        "integers beyond any float",
        np.full((9, 5), HUGE),
        "X must hold numbers that fit into floats; int too large to convert to float.",
    ),
    bad_X("values above 1e140", IMAGES * 1e200, "X must hold values up to 1e+140"),
    bad_X("no sample", IMAGES[:0], "0 sample(s)"),
    bad_X("one sample", IMAGES[:1], "while a minimum of 2 is required"),
    bad_X("no feature", np.zeros((9, 0)), "0 feature(s)"),
    bad_X("images without pixels", np.zeros((9, 0, 8)), "X must hold samples with"),
    bad_X("a number", 5, "Expected 2D array, got scalar array instead"),
    bad_X("`None`", None, "Expected 2D array, got scalar array instead"),
    bad_X(
        "a dict",
        {"X": IMAGES},
        "X must be an array, a list of arrays, or a dataset of torch; got dict.",
        TypeError,
    ),
    bad_X("a generator", iter(IMAGES), "X must be an array, a list of", TypeError),
    bad_X("one dimension", VECTORS[0], "Expected 2D array, got 1D array instead"),
    bad_X(
        "five dimensions",
        np.zeros((9, 8, 8, 3, 1)),
        "X must have shape (N, H, W), (N, H, W, C), (N, C, H, W) or (N, features)",
    ),
    bad_X(
        "two channels",
        np.zeros((9, 8, 8, 2)),
        "X must have 1, 3 or 4 channels, in the last or the second dimension; got "
        "shape (9, 8, 8, 2). For another number of channels, set `image_shape`=(8, 8, "
        "2).",
    ),
    bad_X(
        "seven channels, eight rows and seven columns",
        np.zeros((9, 7, 8, 7)),
        "the second dimension; got shape (9, 7, 8, 7).",
    ),
    bad_X(
        "channels that could be first and last",
        np.zeros((9, 3, 8, 3)),
        "can be read as (N, H, W, C) and as (N, C, H, W). Set `image_shape`=(3, 8, 3) "
        "for the former",
    ),
    bad_X(
        "rows of different lengths",
        [[1, 2], [3]],
        "X must hold samples of one shape; got (2,) in sample 0 and (1,) in sample 1.",
    ),
    bad_X(
        "images of different sizes",
        [np.zeros((8, 8)), np.zeros((9, 9))],
        "X must hold samples of one shape; got (8, 8) in sample 0 and (9, 9) in",
    ),
    bad_X("strings", [["a", "b"]] * 9, "dtype='numeric' is not compatible"),
    bad_X(
        "complex numbers",
        VECTORS + 1j,
        "Complex data not supported: X must hold real numbers, such as "
        "magnitudes; got complex128.",
    ),
    bad_X(
        "dates",
        np.full((9, 2), np.datetime64("2020-01-01")),
        "X must hold numbers, not dates; got datetime64[D].",
        TypeError,
    ),
    bad_X(
        "a sparse matrix",
        sparse.csr_array(VECTORS),
        "Sparse data was passed for X, but dense data is required",
        TypeError,
    ),
    bad_X(
        "a tensor without memory",
        torch.empty(9, 5, device="meta"),
        "X must be dense and hold plain numbers; got a meta tensor.",
        TypeError,
    ),
    bad_X(
        "a sparse tensor",
        tensor("sparse"),
        "X must be dense and hold plain numbers; got a sparse tensor.",
        TypeError,
    ),
    bad_X(
        "a nested tensor",
        tensor("nested"),
        "X must be dense and hold plain numbers; got a nested tensor.",
        TypeError,
    ),
    bad_X(
        "a quantized tensor",
        tensor("quantized"),
        "X must be dense and hold plain numbers; got a quantized tensor.",
        TypeError,
    ),
    bad_X("a conjugate tensor", tensor("conjugate"), "Complex data not supported"),
    bad_X("durations", DATES - DATES[0], "X must hold numbers, not dates", TypeError),
    bad_X(
        "a masked array with masked values",
        MASKED,
        f"X must have all its values; got a masked array, and {MASKED.mask.sum()} of",
    ),
    bad_X(
        "a list of masked arrays",
        list(MASKED),
        "X must have all its values; got a masked array",
    ),
    bad_X(
        "a path",
        "photos",
        "X must hold numbers, not paths; got 'photos'. "
        "`sk_mice.datasets.load_image_folder` reads",
        TypeError,
    ),
    bad_X("a `Path`", Path("photos"), "not paths; got 'photos'.", TypeError),
    bad_X("a list of paths", ["a.png"] * 9, "not paths; got 'a.png'.", TypeError),
    bad_X("a list of `Path`s", [Path("a.png")] * 9, "not paths; got", TypeError),
    bad_X("an array of paths", np.array(["a.png"] * 9), "not paths; got", TypeError),
    bad_X(
        "one image of Pillow",
        Image.fromarray(np.uint8(255 * IMAGES[0])),
        "X must hold samples; got one image. np.asarray(image)[None] is an array",
        TypeError,
    ),
    bad_X(
        "images of Pillow of different sizes",
        [Image.new("RGB", (8, 8)), Image.new("RGB", (9, 8))],
        "X must hold samples of one shape; got (8, 8, 3) in sample 0 and (8, 9, 3)",
    ),
    bad_X(
        "images of Pillow with a palette",
        [Image.new("P", (8, 8))] * 3,
        'got an image of mode "P". image.convert("RGB") is one of RGB.',
    ),
]

# ------------------------------------------------------------------------------ labels

NEEDED = "`init` must be 12 integers from 0 to n_clusters - 1 = 1; got "
BAD_LABELS = {
    "too few": ([0, 1], NEEDED + "int64 of shape (2,)."),
    "none": ([], NEEDED + "float64 of shape (0,)."),
    "too large": ([2] * 12, NEEDED + "int64 of shape (12,) from 2 to 2."),
    "negative": ([-1] * 12, NEEDED + "int64 of shape (12,) from -1 to -1."),
    "floats": ([0.5] * 12, NEEDED + "float64 of shape (12,)."),
    "booleans": ([True] * 12, NEEDED + "bool of shape (12,)."),
    "strings": (["a"] * 12, NEEDED + "<U1 of shape (12,)."),
    "objects": ([None] * 12, NEEDED + "object of shape (12,)."),
    "beyond 64 bits": ([2**70] * 12, NEEDED + "object of shape (12,)."),
    "a dict": ({}, NEEDED + "object of shape ()."),
    "masked": (
        np.ma.masked_equal([0] * 6 + [1] * 6, 1),
        "`init` must have all its val",
    ),
    "two dimensions": (np.zeros((12, 2), int), NEEDED + "int64 of shape (12, 2)."),
    "durations": (np.zeros(12, "m8[s]"), "`init` must hold numbers, not dates"),
}
LABEL_ROWS = [
    Row(f"labels of `init`{of}, {given}", fit(VECTORS, init=init), message, error)
    for given, (labels, message) in BAD_LABELS.items()
    for of, init in (("", labels), ("'s clusterer", Labels(labels)))
    for error in [TypeError if "dates" in message else ValueError]
] + [
    wrong(
        "`init` that is a clusterer which takes all for noise",
        f"The labels of {NEEDED}int64 of shape (12,) from -1 to -1.",
        init=DBSCAN(eps=1e-9),
    )
]

# ------------------------------------------------------------------- spherical k-means


def bad_kmeans(given, message, X=VECTORS, weight=None, error=ValueError, **parameters):
    call = fit(
        X,
        estimator=SphericalKMeans,
        fit_params={"sample_weight": weight},
        **parameters,
    )
    return Row(given, call, message, error)


KMEANS_ROWS = [
    bad_kmeans(
        "k-means: NaN", "Input X contains NaN in sample 0", X=VECTORS * math.nan
    ),
    bad_kmeans(
        "k-means: dates", "not dates; got datetime64[D].", DATES, error=TypeError
    ),
    bad_kmeans(
        "k-means: a data frame of dates",
        "X must hold numbers, not dates; got datetime64",
        pd.DataFrame(DATES.astype("M8[s]")),
        error=TypeError,
    ),
    bad_kmeans("k-means: durations", "not dates", DATES - DATES[0], error=TypeError),
    bad_kmeans("k-means: masked values", "X must have all its values; got a", MASKED),
    bad_kmeans(
        "k-means: integers beyond any float",
        "X must hold numbers that fit into floats",
        np.full((9, 5), HUGE),
    ),
    bad_kmeans(
        "k-means: a nested tensor",
        "X must be dense and hold plain numbers; got a nested tensor.",
        tensor("nested"),
        error=TypeError,
    ),
    bad_kmeans("k-means: `tol` of 10^400", "'tol' parameter", tol=HUGE),
    bad_kmeans("k-means: `max_iter=True`", "'max_iter' parameter", max_iter=True),
    bad_kmeans(
        "k-means: masked weights",
        "`sample_weight` must have all its values; got a masked array",
        weight=np.ma.masked_equal([0] + [1] * 11, 0),
    ),
    bad_kmeans(
        "k-means: weights of durations",
        "`sample_weight` must hold numbers, not dates",
        weight=(DATES - DATES[0])[:, 0],
        error=TypeError,
    ),
    bad_kmeans(
        "k-means: weights beyond any float",
        "`sample_weight` must hold numbers that fit into floats",
        weight=[HUGE] * 12,
    ),
    bad_kmeans(
        "k-means: first centres of dates",
        "`init` must hold numbers, not dates",
        init=DATES[:2],
        error=TypeError,
    ),
    bad_kmeans(
        "k-means: first centres beyond any float",
        "`init` must hold numbers that fit into floats",
        init=[[HUGE] * 6] * 2,
    ),
    bad_kmeans("k-means: images", "Found array with dim 3", X=IMAGES),
]

ROWS = [*OF_MICE, *X_ROWS, *LABEL_ROWS, *KMEANS_ROWS]


def key(row):
    return re.sub(r"\W+", "-", row.given).strip("-")


@pytest.mark.parametrize("row", ROWS, ids=key)
def test_refused(row, monkeypatch):
    monkeypatch.setattr(
        ContrastiveEstimator, "_run_stage", lambda *a, **k: pytest.fail("too late")
    )
    with pytest.raises(row.error) as caught:
        row.call()
    assert row.message in str(caught.value)


# --------------------------------------------------------------------- kinds of values


def numbers_of(cls):
    return [
        name
        for name, rules in cls._parameter_constraints.items()
        if isinstance(rules, list)
        and any(isinstance(rule, Count | Number) for rule in rules)
    ]


def refuses(message, X=IMAGES, **parameters):
    with pytest.raises(ValueError, match=message):
        fit(X, **parameters)()


PARTS = {
    SmallResNet: (IMAGES, "backbone"),
    MLP: (VECTORS, "backbone"),
    VectorAugmentation: (VECTORS, "augmentation"),
}
PAIRS = ["crop_scale", "affine"]


def test_a_boolean_is_no_number():
    for name in numbers_of(PaperMiCE):
        refuses(f"The '{name}' parameter", estimator=PaperMiCE, **{name: True})
    for cls, (X, parameter) in PARTS.items():
        for name in numbers_of(cls):
            part = cls(**{name: True})
            refuses(f"The '{name}' parameter of {cls.__name__}", X, **{parameter: part})
    for name in PAIRS:
        augmentation = ImageAugmentation(**{name: (False, True)})
        refuses(f"`{name}` must", augmentation=augmentation)
    refuses("`schedule` must be", estimator=PaperMiCE, schedule=(False, True))
    refuses("`blocks` of SmallResNet must be", backbone=SmallResNet(blocks=(True,)))
    refuses("`image_shape` must be", VECTORS, image_shape=(True, 6))


def test_numbers_that_no_float_can_hold():
    names = ["tau", "kappa", "teacher_momentum", "lr", "weight_decay", "warmup"]
    for name in names:
        for value in (HUGE, -HUGE, Fraction(HUGE)):
            wanted = f"The '{name}' parameter"
            refuses(wanted, estimator=PaperMiCE, **{name: value})
    for name in numbers_of(VectorAugmentation):
        augmentation = VectorAugmentation(**{name: HUGE})
        refuses(f"The '{name}' parameter", VECTORS, augmentation=augmentation)
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
    fit(VECTORS, estimator=PaperMiCE, max_epochs=1, random_state=0, **counts)()


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
    for cls in (SphericalKMeans, ClassificationEM, NeighborMixture):
        found = cls(kind(3), random_state=0).fit(X)
        np.testing.assert_array_equal(found.predict(X), found.labels_)


@pytest.mark.parametrize("estimator", [MiCEClustering, MoCo])
def test_models_without_room(estimator, monkeypatch):
    monkeypatch.setattr("sk_mice._device.available_memory", lambda device: 10**8)
    options = {"estimator": estimator}
    wide = np.zeros((8, 20_000), np.float32)
    message = "The model must fit into the memory of the cpu device, 0.1 GB; it needs "
    with pytest.raises(ValueError, match=message + r".*`backbone`=MLP\(\) for 20000 f"):
        fit(wide, **options)()
    with pytest.raises(ValueError, match=message + ".*for the queue of 3000 samples"):
        fit(np.zeros((3000, 3)), embedding_dim=20_000, **options)()


def test_a_second_model_needs_room_only_in_two_stages(monkeypatch):
    monkeypatch.setattr("sk_mice._device.available_memory", lambda device: 1)
    wide = np.zeros((8, 20_000), np.float32)
    for init, size in (("random", "0.2"), ("two-stage", "0.3")):
        with pytest.raises(ValueError, match=f"it needs {size} GB"):
            fit(wide, init=init)()


@pytest.mark.parametrize("estimator", [MoCo, PaperMoCo])
def test_moco_refuses_what_mice_does(estimator, monkeypatch):
    monkeypatch.setattr(estimator, "_run_stage", lambda *a: pytest.fail("too late"))
    for parameters, X, message in [
        ({"tau": 0}, IMAGES, f"The 'tau' parameter of {estimator.__name__} must be"),
        ({"backbone": SmallResNet(0)}, IMAGES, "The 'width' parameter of SmallResNet"),
        ({"augmentation": ImageAugmentation()}, VECTORS, "must be VectorAugmentation"),
        ({"image_shape": (9, 9)}, VECTORS, "`image_shape`=.* needs X of shape"),
        ({"device": "mps"}, VECTORS, "`device` must support float64"),
        ({}, IMAGES[:1], "while a minimum of 2 is required"),
    ]:
        refuses(message, X, estimator=estimator, **parameters)
    if estimator is PaperMoCo:
        refuses("`schedule` must be", estimator=estimator, schedule="linear")
        refuses("The 'warmup' parameter", estimator=estimator, warmup=1)


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
    ],
    ids=lambda X: f"{type(X).__name__}",
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
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
    state = torch.get_rng_state()
    with pytest.raises(ValueError, match="`backbone` must return finite features"):
        fit(VECTORS, backbone=module)()
    assert torch.equal(state, torch.get_rng_state())
    assert_same_state(module, kept)
    assert all(weight.grad is None for weight in module.parameters())


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_y_is_ignored():
    for y in (None, "anything", [1], object()):
        estimator = MiCEClustering(2, max_epochs=1, random_state=0).fit(VECTORS, y)
        assert estimator.labels_.shape == (12,)


def test_no_row_comes_twice():
    assert len(set(map(key, ROWS))) == len(ROWS)


@pytest.mark.parametrize(
    "estimator", [ClassificationEM, NeighborMixture, SphericalKMeans]
)
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
