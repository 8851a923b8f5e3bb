"""Every bad input that was tried, and what it gets: the rows of docs/bad_input.md.

`python tests/test_bad_input.py` writes the tables after a change of the rows.
"""

import ast
import math
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from scipy import sparse

from sk_mice import MiCEClustering, MoCo, SphericalKMeans
from sk_mice._constraints import Count, Number
from sk_mice._contrastive import ContrastiveEstimator

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "bad_input.md"
MARK = "<!-- tables: tests/test_bad_input.py -->"
RNG = np.random.default_rng(0)
IMAGES = RNG.random((12, 8, 8))
VECTORS = RNG.random((12, 6))
HUGE = 10**400  # no float can hold it
DATES = np.arange(72).reshape(12, 6).astype("M8[D]")
MASKED = np.ma.masked_greater(VECTORS, 0.9)


@dataclass(frozen=True)
class Row:
    """One line of a table, and how it is shown."""

    heading: str
    given: str  # in Markdown
    gets: str
    shown_by: str
    call: Callable | None = None  # must be refused
    error: type = ValueError
    message: str = ""  # a part of the error's


def refused(heading, given, call, message, error=ValueError):
    key = re.sub(r"\W+", "-", given).strip("-")
    gets = f"`{error.__name__}`: {message}"
    test = f"test_bad_input.py::test_refused[{key}]"
    return Row(heading, given, gets, test, call, error, message)


def seen(heading, given, gets, shown_by):
    return Row(heading, given, gets, shown_by)


# ------------------------------------------------------------------ parameters of MiCE


def fit(X=IMAGES, *, estimator=MiCEClustering, fit_params=None, **parameters):
    clusters = {} if estimator is MoCo else {"n_clusters": 2}
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


class Forward(torch.nn.Module):
    """A module that does what a function does, and can say in which mode it is."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x.flatten(1), self.training)


def fails_in_training(x, training):
    if training:
        raise KeyError("noise")
    return x


PARAMETERS = "Parameters of MiCEClustering and MoCo"


def wrong(given, message, error=ValueError, X=IMAGES, **parameters):
    return refused(PARAMETERS, given, fit(X, **parameters), message, error)


def out_of_range(name, value, rule):
    """scikit-learn's sentence for a value that the constraints exclude."""
    message = f"The '{name}' parameter of MiCEClustering must be {rule}"
    return wrong(f"`{name}={value!r}`", message, **{name: value})


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
        "`backbone` that is no module, as `5`",
        "`backbone` must be a name, an nn.Module or a factory that returns one; got "
        "int.",
        TypeError,
        backbone=5,
    ),
    wrong(
        "`backbone` that is a factory of no module",
        "`backbone` must be a name, an nn.Module or a factory that returns one",
        TypeError,
        backbone=dict,
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
        "`backbone`='resnet18' takes images, but X holds vectors of 6 features",
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
        "are for `backbone`='resnet-small-100000'.",
        backbone="resnet-small-100000",
    ),
    wrong(
        "`backbone` of a width that no tensor can have",
        "`backbone` must have weights that can be counted; got 'resnet-small-9999",
        backbone="resnet-small-" + "9" * 50,
    ),
    wrong(
        "`embedding_dim` that has no room in memory",
        "3 heads from 128 features to `embedding_dim`=1000000000.",
        embedding_dim=10**9,
    ),
    seen(
        PARAMETERS,
        "X of so many features, or a queue, that the model has no room in memory",
        "`ValueError`: The model must fit into the memory of the cpu device",
        "test_bad_input.py::test_models_without_room",
    ),
    seen(
        PARAMETERS,
        "`True` for a number",
        "`ValueError`: The parameter must be ...",
        "test_bad_input.py::test_a_boolean_is_no_number",
    ),
    seen(
        PARAMETERS,
        "10^400 for a number",
        "`ValueError` that names the parameter",
        "test_bad_input.py::test_numbers_that_no_float_can_hold",
    ),
    out_of_range("embedding_dim", 0, "an int in the range [1, 2147483647]"),
    wrong(
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
    out_of_range("gating_prototypes", "random", "a str among"),
    out_of_range("train_gating_prototypes", "yes", "an instance of 'bool'"),
    out_of_range("expert_prototypes", "none", "a str among"),
    out_of_range("expert_heads", "one", "a str among"),
    wrong(
        "`train_gating_prototypes` with an infinite `kappa`",
        "`train_gating_prototypes` must be False if `kappa` is infinite",
        train_gating_prototypes=True,
        kappa=math.inf,
    ),
    wrong(
        '`expert_heads="shared"` without `expert_prototypes`',
        '`expert_heads` must be "own" if `expert_prototypes` is None',
        expert_heads="shared",
        expert_prototypes=None,
    ),
    out_of_range("queue_size", 0, "an int in the range [1, inf)"),
    out_of_range("teacher_momentum", 1.0, "a float in the range [0.0, 1.0)"),
    wrong(
        "`augmentation` of an unknown name",
        "`augmentation` must be one of 'moco', 'simclr', 'randaugment', a callable or "
        "None; got 'mixup'.",
        augmentation="mixup",
    ),
    wrong(
        '`augmentation="randaugment"` for vectors',
        "'randaugment' is defined for images only",
        X=VECTORS,
        augmentation="randaugment",
    ),
    wrong(
        "`augmentation` that returns no tensor",
        "`augmentation` must return a floating-point tensor; got int.",
        TypeError,
        augmentation=lambda stack, generator: 5,
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
    out_of_range("flip", "yes", "an instance of 'bool'"),
    wrong(
        "`crop_scale=(0, 2)`",
        "`crop_scale` must be 'auto' or (low, high) with 0 < low <= high <= 1",
        crop_scale=(0, 2),
    ),
    wrong(
        "`crop_scale=(0.9, 0.1)`",
        "`crop_scale` must be 'auto' or (low, high) with 0 < low <= high <= 1",
        crop_scale=(0.9, 0.1),
    ),
    wrong(
        "`affine` of a string",
        "`affine` must be 'auto' or (rotation, shear) in degrees",
        affine="12",
    ),
    wrong(
        "`crop_scale` that can be read but once",
        "`crop_scale` must be 'auto' or (low, high)",
        crop_scale=iter((0.2, 1)),
    ),
    wrong(
        "`schedule` that can be read but once",
        "`schedule` must be one of cosine, step, constant",
        schedule=iter([0.5]),
    ),
    wrong(
        "`affine=(0, 60)`",
        "`affine` must be 'auto' or (rotation, shear) in degrees, from 0 to 180 and",
        affine=(0, 60),
    ),
    out_of_range("init", "k-means", "a str among"),
    out_of_range("init_share", 1, "a float in the range (0.0, 1.0)"),
    out_of_range("n_init", 0, "an int in the range [1, 1000000]"),
    out_of_range("max_epochs", 0, "an int in the range [1, 2147483647]"),
    out_of_range("batch_size", 1, "an int in the range [2, inf)"),
    out_of_range("lr", 0, "a float in the range (0.0, 1000000.0]"),
    out_of_range("lr", 1e30, "a float in the range (0.0, 1000000.0]"),
    out_of_range("weight_decay", -1, "a float in the range [0.0, 1000000.0]"),
    wrong(
        "`schedule` of an unknown name",
        "`schedule` must be one of cosine, step, constant",
        schedule="linear",
    ),
    wrong(
        "`schedule=[2.0]`",
        "milestones between 0 and 1 as shares of the run",
        schedule=[2.0],
    ),
    wrong(
        "`schedule` that maps to negative factors, NaN or no number",
        "`schedule` must map progress from 0 to 1 to factors of 0 and more",
        schedule=lambda progress: -1.0,
    ),
    out_of_range("warmup", 1, "a float in the range [0.0, 1.0)"),
    wrong(
        "`image_shape` that does not fit the rows",
        "`image_shape`=(9, 9) needs rows of 81 values; got X of shape (12, 6).",
        X=VECTORS,
        image_shape=(9, 9),
    ),
    wrong(
        "`image_shape=(0, 6)`",
        "`image_shape` must be (H, W) or (H, W, C) with C of 1, 3 or 4; got (0, 6).",
        X=VECTORS,
        image_shape=(0, 6),
    ),
    wrong(
        "`image_shape` for images that have a shape",
        "`image_shape` is for X of shape (N, features)",
        image_shape=(8, 8),
    ),
    out_of_range("layout", "NCHW", "a str among"),
    wrong(
        "`layout` that contradicts the shape",
        'got shape (12, 8, 8, 3) with `layout`="channels_first"',
        X=RNG.random((12, 8, 8, 3)),
        layout="channels_first",
    ),
    wrong(
        "`value_range=(1, 0)`",
        "`value_range` must be (low, high) with low < high; got (1, 0).",
        value_range=(1, 0),
    ),
    wrong(
        "`value_range` that X leaves",
        "X must lie within `value_range`=(0, 0.5); got values from",
        value_range=(0, 0.5),
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
    out_of_range("precision", "float16", "a str among"),
    wrong(
        "`callbacks` that are none",
        "`callbacks` must be skorch callbacks; got 'lr'.",
        TypeError,
        callbacks=["lr"],
    ),
    out_of_range("warm_start", "yes", "an instance of 'bool'"),
    out_of_range("verbose", -1, "an int in the range [0, inf)"),
    out_of_range("random_state", -1, "an int in the range [0, 4294967295]"),
    seen(
        PARAMETERS,
        "`warm_start` with another `n_clusters` or `embedding_dim`",
        "`ValueError`: must be those of the fitted model",
        "test_mice.py::test_a_warm_start_keeps_the_shape_of_the_model",
    ),
    seen(
        PARAMETERS,
        "`warm_start` with other `expert_heads`, or prototypes that are not there",
        "`ValueError`: must be as in the fit that `warm_start` goes on from",
        "test_ablations.py::test_a_warm_start_keeps_the_parts_that_there_are",
    ),
    seen(
        PARAMETERS,
        "a learning rate at which training diverges",
        "`FloatingPointError` with the epoch and what to try; the estimator is fitted "
        "as at the end of the last whole epoch",
        "test_mice.py::test_a_fit_that_diverges_leaves_the_last_finite_state",
    ),
    seen(
        PARAMETERS,
        "any of these, drawn at random",
        "fits without a NaN, or `ValueError` or `TypeError` before training",
        "test_any_input.py::test_mice",
    ),
]

# ---------------------------------------------------------------------------------- X

OF_X = "X of MiCEClustering and MoCo"


def bad_X(given, X, message, error=ValueError, **parameters):
    return refused(OF_X, given, fit(X, **parameters), message, error)


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
    bad_X("one dimension", VECTORS[0], "Expected 2D array, got 1D array instead"),
    bad_X(
        "five dimensions",
        np.zeros((9, 8, 8, 3, 1)),
        "X must have shape (N, H, W), (N, H, W, C), (N, C, H, W) or (N, features)",
    ),
    bad_X(
        "two channels",
        np.zeros((9, 8, 8, 2)),
        "X must have 1, 3 or 4 channels, in the last or the second dimension",
    ),
    bad_X(
        "channels that could be first and last",
        np.zeros((9, 3, 8, 3)),
        "can be read as (N, H, W, C) and as (N, C, H, W); set `layout`",
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
    bad_X("complex numbers", VECTORS + 1j, "Complex data not supported"),
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
    seen(
        OF_X,
        "images of Pillow of one size, tensors in a list or of bfloat16, or that need "
        "their gradient, masked arrays without a masked value",
        "fits; the tensors are left alone",
        "test_bad_input.py::test_what_holds_plain_numbers_fits",
    ),
    seen(
        OF_X,
        "a constant",
        "fits, with one warning of empty clusters",
        "test_mice.py::test_a_constant_gets_one_warning_which_is_ours",
    ),
    seen(
        OF_X,
        "another scale at prediction than in `fit`",
        "`UserWarning`: X has values from ... to ..., and `fit` saw values from ...",
        "test_mice.py::test_images_at_another_scale_are_warned_of",
    ),
    seen(
        OF_X,
        "values at prediction that cannot be computed with",
        "`ValueError`: X must hold values within 1e+12 times the range",
        "test_mice.py::test_values_that_cannot_be_computed_with",
    ),
    seen(
        OF_X,
        "NaN at prediction",
        "`ValueError`: Input X contains NaN in sample 3; 2 of 160 samples",
        "test_mice.py::test_a_sample_with_nan_at_prediction",
    ),
    seen(
        OF_X,
        "one image at prediction",
        "`ValueError`: ... got one. X[None] is an array of one sample.",
        "test_mice.py::test_one_image_at_prediction",
    ),
    seen(
        OF_X,
        "the shape of `fit` with or without a channel, or flattened, at prediction",
        "the same predictions",
        "test_mice.py::test_shapes_of_the_same_values_in_the_same_order",
    ),
    seen(
        OF_X,
        "constant or duplicate images, images of one colour each, float16, values of "
        "1e30, at temperatures of 0.01 and 100",
        "fits without a NaN, perhaps with a warning of empty clusters",
        "test_any_input.py::test_no_nan_at_extreme_temperatures",
    ),
    seen(
        OF_X,
        "an odd number of vectors with `batch_size=2`",
        "fits; one batch holds three",
        "test_mice.py::test_no_batch_holds_one_sample",
    ),
    seen(
        OF_X,
        "another shape at prediction than in `fit`",
        "`ValueError`: X must hold samples of shape (8, 8), as in `fit`",
        "test_mice.py::test_another_shape_at_prediction",
    ),
    seen(
        OF_X,
        "other column names at prediction",
        "`ValueError`: feature names should match",
        "test_mice.py::test_set_output_and_feature_names",
    ),
    seen(
        OF_X,
        "anything before `fit`",
        "`NotFittedError`",
        "test_mice.py::test_not_fitted",
    ),
    seen(
        OF_X,
        "bad X for an estimator that is fitted",
        "the error above, and the earlier fit stays",
        "test_mice.py::test_a_fit_that_fails_leaves_the_estimator_as_it_was",
    ),
    seen(
        OF_X,
        "any shape, type and layout in memory, drawn at random",
        "fits without a NaN, or `ValueError` or `TypeError` before training",
        "test_any_input.py::test_mice",
    ),
]

# --------------------------------------------------------------------------- y, labels

OF_Y = "y and labels"


def bad_labels(given, labels, message):
    call = fit(VECTORS, fit_params={"init_labels": labels})
    return refused(OF_Y, f"`init_labels`: {given}", call, message)


NEEDED = "`init_labels` must be 12 integers from 0 to n_clusters - 1 = 1; got "
Y_ROWS = [
    seen(
        OF_Y,
        "any `y` at all for `fit`",
        "ignored",
        "test_bad_input.py::test_y_is_ignored",
    ),
    bad_labels("too few", [0, 1], NEEDED + "2 of int64."),
    bad_labels("none", [], NEEDED + "0 of float64."),
    bad_labels("too large", [2] * 12, NEEDED + "12 of int64 from 2 to 2."),
    bad_labels("negative", [-1] * 12, NEEDED + "12 of int64 from -1 to -1."),
    bad_labels("floats", [0.5] * 12, NEEDED + "12 of float64."),
    bad_labels("strings", ["a"] * 12, NEEDED + "12 of <U1."),
    bad_labels(
        "masked", np.ma.masked_equal([0] * 6 + [1] * 6, 1), "6 of them are mask"
    ),
    seen(
        OF_Y,
        "`init_labels`: durations",
        "`TypeError`: must hold numbers, not dates",
        "test_bad_input.py::test_durations_are_no_labels",
    ),
    bad_labels("two dimensions", np.zeros((12, 2)), "should be a 1d array"),
    seen(
        OF_Y,
        "classes and labels of different lengths, for a score",
        "`ValueError`",
        "test_metrics.py::test_errors",
    ),
]

# ------------------------------------------------------------------- spherical k-means

OF_KMEANS = "SphericalKMeans"


def bad_kmeans(given, message, X=VECTORS, weight=None, error=ValueError, **parameters):
    call = fit(
        X,
        estimator=SphericalKMeans,
        fit_params={"sample_weight": weight},
        **parameters,
    )
    return refused(OF_KMEANS, given, call, message, error)


KMEANS_ROWS = [
    bad_kmeans("k-means: `n_clusters=0`", "'n_clusters' parameter", n_clusters=0),
    bad_kmeans(
        "k-means: fewer rows than clusters",
        "`n_clusters` must be at most the number of rows of X; got n_clusters=13",
        n_clusters=13,
    ),
    bad_kmeans("k-means: `init` of an unknown name", "'init' parameter", init="far"),
    bad_kmeans("k-means: `tol=-1`", "'tol' parameter", tol=-1),
    bad_kmeans("k-means: NaN", "Input X contains NaN.", X=VECTORS * math.nan),
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
        weight=MASKED[:, 0] if MASKED.mask[:, 0].any() else MASKED.min(axis=1),
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
    bad_kmeans(
        "k-means: a negative weight",
        "`sample_weight` must not be negative; got -1.",
        weight=[-1] + [1] * 11,
    ),
    bad_kmeans(
        "k-means: all weights zero",
        "`sample_weight` must have a positive entry; all are zero.",
        weight=[0] * 12,
    ),
    bad_kmeans("k-means: weights of another number", "sample_weight", weight=[1, 2]),
    seen(
        OF_KMEANS,
        "k-means: first centres of a wrong shape, or with a zero row",
        "`ValueError`",
        "test_spherical_kmeans.py::test_wrong_parameters",
    ),
    seen(
        OF_KMEANS,
        "k-means: rows of zeros",
        "label 0, cost 1, and one warning that counts them",
        "test_spherical_kmeans.py::test_zero_rows_cost_one_and_warn_once",
    ),
    seen(
        OF_KMEANS,
        "k-means: fewer directions than clusters",
        "`ConvergenceWarning`",
        "test_spherical_kmeans.py::test_more_clusters_than_directions",
    ),
    seen(
        OF_KMEANS,
        "k-means: rows whose squares overflow or underflow",
        "the same clusters as for rows of unit length",
        "test_spherical_kmeans.py::test_rows_whose_squares_over_or_underflow",
    ),
]

# ----------------------------------------------------------------------- image folders

OF_FOLDERS = "Image folders"
LISTED = 'listed: `ValueError`, or one warning with `on_error="warn"`'


def file(given, gets, test):
    return seen(OF_FOLDERS, given, gets, f"test_image_folder.py::{test}")


FOLDER_ROWS = [
    file("an empty file", f"{LISTED}; is empty", "test_bad_files[empty]"),
    file("text", f"{LISTED}; is no image", "test_bad_files[text]"),
    file("an archive", f"{LISTED}; is no image", "test_bad_files[zip]"),
    file(
        "PNG, JPEG, GIF, BMP, TIFF, WebP and PPM files truncated at any length",
        f"{LISTED}, unless all pixels are there",
        "test_no_truncation_goes_unnoticed",
    ),
    file(
        "files with any bytes changed",
        "decoded, or listed; never another exception",
        "test_no_damage_crashes",
    ),
    file("an image without pixels", f"{LISTED}", "test_bad_files[zero-pixel]"),
    file(
        "a decompression bomb",
        f"{LISTED}; has more pixels than PIL.Image.MAX_IMAGE_PIXELS",
        "test_bad_files[bomb]",
    ),
    file(
        "an image that takes more than 1 GiB to decode",
        f"{LISTED}; takes ... bytes to decode",
        "test_without_pillows_limit_that_of_bytes_stays",
    ),
    file(
        "a header of gigabytes",
        f"{LISTED}; has a header of more than ... bytes",
        "test_a_header_of_gigabytes_is_not_read",
    ),
    file(
        "large images in several threads",
        "decoded one after the other, in 1 GiB",
        "test_bombs_in_four_threads_stay_in_the_bound",
    ),
    file(
        "EPS, in a file of its own or inside another",
        f"{LISTED}; no program is started",
        "test_postscript_is_listed_and_no_program_started",
    ),
    file(
        "ICO, PCX, PDF and other formats that are not read",
        f"{LISTED}; is no image of a format that is read",
        "test_other_formats_are_listed",
    ),
    file(
        "broken metadata",
        "decoded, without a warning, whatever the filters of warnings",
        "test_broken_metadata_warn_of_nothing_whatever_the_filters",
    ),
    file(
        "floats beyond [0, 1], or NaN",
        f"{LISTED}; has values from ... where white is 1",
        "test_bad_files[HDR]",
    ),
    file("an animation", "its first frame", "test_first_frame_of_an_animation"),
    file("CMYK", "converted to RGB", "test_cmyk"),
    file("16 bits", "scaled to 8", "test_sixteen_bits_are_scaled"),
    file("a palette", "converted to RGB", "test_palette"),
    file(
        "a palette with a transparent colour",
        "shows `background`",
        "test_palette_with_transparency",
    ),
    file("an alpha channel", "shows `background`", "test_alpha_shows_the_background"),
    file("a rotation in the EXIF data", "turned upright", "test_exif_rotation"),
    file(
        "broken EXIF data",
        "decoded, not turned",
        "test_broken_exif_leaves_the_image_as_it_is",
    ),
    file("one pixel by 3,000", "resized", "test_extreme_proportions"),
    file(
        "links to nothing, to each other, to the folder they lie in",
        LISTED,
        "test_dangling_and_circular_links",
    ),
    file(
        "a file or folder that several links lead to",
        "read once, by the path without links or the first",
        "test_a_path_without_links_comes_first_and_then_the_first",
    ),
    file(
        "hard links",
        "each a file of its own",
        "test_hard_links_are_files_of_their_own",
    ),
    file(
        "more than 10,000,000 files and folders",
        "`ValueError`: `path` must hold at most ...",
        "test_more_entries_than_are_looked_at",
    ),
    file("a pipe", f"{LISTED}; not waited for", "test_a_pipe_is_not_waited_for"),
    file(
        "files and folders without permission",
        LISTED,
        "test_unreadable_files_and_folders",
    ),
    file(
        "a file that vanishes meanwhile", LISTED, "test_a_file_that_vanishes_is_listed"
    ),
    file(
        "names in any encoding, with line breaks or signs of formats",
        "kept as they are, and shown escaped",
        "test_names_in_any_encoding",
    ),
    file(
        "an ending that belies the format",
        "decoded by content",
        "test_the_name_says_nothing_about_the_format",
    ),
    file("hidden files", "not looked at", "test_hidden_files_are_not_looked_at"),
    file(
        "hundreds of bad files",
        "one warning that counts and lists all of them",
        "test_all_are_counted_and_listed_in_one_warning",
    ),
    file(
        "a folder without an image",
        "`ValueError`: `path` must hold images",
        "test_a_folder_without_images",
    ),
    file(
        "a path that is not there, or a file",
        "`FileNotFoundError`, `NotADirectoryError`",
        "test_a_path_that_is_no_folder",
    ),
    file(
        "an `image_size` of zero, more than 4,096, a float or three numbers",
        "`ValueError` that names the parameter",
        "test_parameters_are_checked",
    ),
    file(
        "more images of `image_size` than the memory holds",
        "`ValueError`: `image_size`=... needs ... bytes; nothing is allocated",
        "test_an_array_larger_than_the_memory_is_an_error_at_once",
    ),
]

# ------------------------------------------------------------------ the paper's data

OF_DATA = "The paper's data sets"


def data(given, gets, test):
    return seen(OF_DATA, given, gets, f"test_paper_sets.py::{test}")


DATA_ROWS = [
    data(
        "files that are not there",
        "`FileNotFoundError` with the folder and the two ways to get them",
        "test_missing_files_are_named",
    ),
    data(
        "other files than the published",
        "`ValueError`: ... must hold CIFAR10 as it was published",
        "test_other_files_than_the_published_are_refused",
    ),
    data(
        "fewer images or classes than the paper has",
        "`ValueError`: ... must have 60,000 images in 10 classes",
        "test_less_than_the_paper_has_is_an_error",
    ),
    data(
        "ImageNet without some of the dogs",
        "`FileNotFoundError` that names their synsets",
        "test_missing_dogs_are_named_or_left_out",
    ),
]

# ------------------------------------------------------------------------- saved files

OF_FILES = "Saved files"
CANNOT = "`ValueError`: ... cannot be loaded: "


def saved(given, gets, test, module="test_persistence.py"):
    return seen(OF_FILES, given, gets, f"{module}::{test}")


FILE_ROWS = [
    saved(
        "a file cut short",
        CANNOT + "...",
        "test_truncated_at_500_lengths",
        "test_storage.py",
    ),
    saved(
        "a changed byte anywhere",
        CANNOT + "...",
        "test_2000_flipped_bytes",
        "test_storage.py",
    ),
    saved(
        "bytes before or after",
        CANNOT + "...",
        "test_bytes_at_the_end_or_the_beginning",
        "test_storage.py",
    ),
    saved(
        "an empty file, text, zeros, another safetensors file",
        CANNOT + "it was not written by sk_mice, or is no safetensors file",
        "test_other_kinds_of_file",
        "test_storage.py",
    ),
    saved(
        "a pickle",
        CANNOT + "it is no safetensors file",
        "test_a_pickle_is_not_run",
        "test_storage.py",
    ),
    saved(
        "an earlier or a later format version",
        CANNOT + "it has format version 4",
        "test_other_versions_and_other_kinds_of_ours",
        "test_storage.py",
    ),
    saved(
        "a header that claims a terabyte",
        CANNOT + "...; nothing is allocated",
        "test_headers_that_claim_more_than_the_file_has",
        "test_storage.py",
    ),
    saved(
        "a file of a terabyte",
        CANNOT + "...; it is not read",
        "test_what_is_too_long_is_not_read",
        "test_storage.py",
    ),
    saved("any header", CANNOT + "...", "test_any_header", "test_storage.py"),
    saved("any document", CANNOT + "...", "test_any_document"),
    saved(
        "any change of the document, with a new checksum",
        CANNOT + "..., or it does no harm",
        "test_any_change_of_a_document_is_refused_or_does_no_harm",
    ),
    saved(
        "tensors of wrong names, shapes or types, with a new checksum",
        CANNOT + "its 'model.queue' must be ...; it is ...",
        "test_wrong_tensors",
    ),
    saved(
        "labels outside the clusters, sizes that are not theirs",
        CANNOT + "its `labels_` must be integers from 0 to K - 1",
        "test_wrong_tensors",
    ),
    saved(
        "an unknown class, parameter, attribute or backbone",
        CANNOT + "...",
        "test_wrong_documents",
    ),
    saved(
        "images of 10^18 pixels",
        CANNOT + "..., or a model that takes no other images; nothing is allocated",
        "test_claims_of_huge_images_take_no_memory",
    ),
    saved(
        "a name that comes twice in the header",
        CANNOT + "it was not written by sk_mice, or is damaged",
        "test_every_byte_of_the_header_counts",
        "test_storage.py",
    ),
    saved(
        "no `backbone`, where the file cannot name it, or one that does not fit",
        CANNOT + "...",
        "test_a_backbone_that_does_not_fit",
    ),
    saved(
        "a path that is not there, or a folder",
        "`FileNotFoundError`, `IsADirectoryError`",
        "test_a_file_that_is_not_there",
        "test_storage.py",
    ),
    saved(
        "to save: an estimator that is not fitted, or none of ours",
        "`NotFittedError`, `TypeError`; no file is written",
        "test_what_cannot_be_saved_leaves_no_file",
    ),
    saved(
        "to save: callables, callbacks, a RandomState",
        "one warning that names them; the file has their defaults",
        "test_what_cannot_be_stored_is_named",
    ),
    saved(
        "to save: on a full disk, or in a folder that vanished",
        "`OSError` with the path; the earlier file stays",
        "test_a_full_disk_is_an_error_with_the_path",
        "test_storage.py",
    ),
]

# ------------------------------------------------------------------------- checkpoints

CHECKPOINTS = "Checkpoints"
FITTED = "; the estimator is fitted as at the last whole epoch"


def kept(given, gets, test, module="test_checkpoint.py"):
    return seen(CHECKPOINTS, given, gets, f"{module}::{test}")


CHECKPOINT_ROWS = [
    refused(CHECKPOINTS, "`checkpoint=3`", fit(checkpoint=3), "'checkpoint' parameter"),
    refused(
        CHECKPOINTS,
        "`checkpoint_every=0`",
        fit(checkpoint_every=0),
        "'checkpoint_every' parameter",
    ),
    kept(
        "a folder that cannot be made",
        "`OSError` that names it",
        "test_a_folder_that_cannot_be_made",
    ),
    kept(
        "a folder that vanishes",
        "`OSError` that names the file" + FITTED,
        "test_a_folder_that_vanishes_costs_nothing_but_the_rest",
    ),
    kept(
        "a full disk",
        "`OSError` that names the file" + FITTED,
        "test_a_full_disk_costs_nothing_but_the_rest",
    ),
    kept(
        "a damaged file",
        "a warning, and the file before it; `ValueError` if that is damaged, too",
        "test_a_damaged_file_is_passed_over_for_the_one_before",
    ),
    kept(
        "no latest file, as after a crash between two renames",
        "the file before it",
        "test_a_crash_between_two_renames_costs_one_epoch",
    ),
    kept(
        "SIGKILL at any moment",
        "the next fit arrives at the same model, bit for bit",
        "test_killed_at_twenty_moments",
    ),
    kept(
        "Ctrl-C",
        "`ConvergenceWarning`" + FITTED,
        "test_ctrl_c_leaves_the_last_whole_epoch",
        "test_interruption.py",
    ),
]

ROWS = [*OF_MICE, *X_ROWS, *Y_ROWS, *KMEANS_ROWS]
ROWS += [*FOLDER_ROWS, *DATA_ROWS, *FILE_ROWS, *CHECKPOINT_ROWS]
CALLS = [row for row in ROWS if row.call]


def key(row):
    return row.shown_by.split("[")[1].rstrip("]")


@pytest.mark.parametrize("row", CALLS, ids=key)
def test_refused(row, monkeypatch):
    monkeypatch.setattr(
        ContrastiveEstimator, "_train", lambda *a, **k: pytest.fail("training began")
    )
    with pytest.raises(row.error) as caught:
        row.call()
    assert row.message in str(caught.value)


NUMBERS = {
    name: rules
    for name, rules in MiCEClustering._parameter_constraints.items()
    if isinstance(rules, list)
    and any(isinstance(rule, Count | Number) for rule in rules)
}
PAIRS = ["value_range", "affine", "crop_scale", "schedule"]


@pytest.mark.parametrize("name", NUMBERS)
def test_a_boolean_is_no_number(name):
    with pytest.raises(ValueError, match=f"The '{name}' parameter"):
        fit(**{name: True})()


def test_a_boolean_is_no_number_in_a_pair():
    for name in PAIRS:
        with pytest.raises(ValueError, match=f"`{name}`"):
            fit(**{name: (False, True)})()
    with pytest.raises(ValueError, match="`image_shape` must be"):
        fit(VECTORS, image_shape=(True, 6))()


@pytest.mark.parametrize(
    "name", ["tau", "kappa", "teacher_momentum", "lr", "weight_decay", "warmup"]
)
def test_numbers_that_no_float_can_hold(name):
    for value in (HUGE, -HUGE, Fraction(HUGE)):
        with pytest.raises(ValueError, match=f"The '{name}' parameter"):
            fit(**{name: value})()


@pytest.mark.parametrize("name", ["max_epochs", "n_init", "embedding_dim"])
def test_counts_that_no_fit_can_reach(name):
    with pytest.raises(ValueError, match=f"The '{name}' parameter"):
        fit(**{name: HUGE})()


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_that_no_float_can_hold(name):
    with pytest.raises(ValueError, match=f"`{name}` must"):
        fit(**{name: (0, HUGE)})()
    with pytest.raises(ValueError, match="`schedule` must map"):
        fit(schedule=lambda progress: HUGE)()


@pytest.mark.parametrize("name", ["queue_size", "batch_size", "n_neighbors"])
def test_counts_of_any_size_mean_all(name):
    fit(VECTORS, max_epochs=1, random_state=0, **{name: HUGE})()


@pytest.mark.parametrize("estimator", [MiCEClustering, MoCo])
def test_models_without_room(estimator, monkeypatch):
    monkeypatch.setattr("sk_mice._engine.size.available_memory", lambda device: 10**8)
    options = {"estimator": estimator}
    wide = np.zeros((8, 20_000), np.float32)
    message = "The model must fit into the memory of the cpu device, 0.1 GB; it needs "
    with pytest.raises(ValueError, match=message + ".*`backbone`='auto' for 20000 fea"):
        fit(wide, **options)()
    with pytest.raises(ValueError, match=message + ".*for the queue of 2000 samples"):
        fit(np.zeros((2000, 3)), embedding_dim=20_000, **options)()


def test_durations_are_no_labels():
    labels = np.zeros(12, "m8[s]")
    with pytest.raises(TypeError, match="`init_labels` must hold numbers, not dates"):
        fit(VECTORS, fit_params={"init_labels": labels})()


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
    kept = {name: value.clone() for name, value in module.state_dict().items()}
    state = torch.get_rng_state()
    with pytest.raises(ValueError, match="`backbone` must return finite features"):
        fit(VECTORS, backbone=module)()
    assert torch.equal(state, torch.get_rng_state())
    for name, value in module.state_dict().items():
        assert torch.equal(value, kept[name])
    assert all(weight.grad is None for weight in module.parameters())


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_y_is_ignored():
    for y in (None, "anything", [1], object()):
        estimator = MiCEClustering(2, max_epochs=1, random_state=0).fit(VECTORS, y)
        assert estimator.labels_.shape == (12,)


# ------------------------------------------------------------- the rows and their page


def tables():
    parts = []
    for heading, rows in groupby(ROWS, key=lambda row: row.heading):
        parts += [f"## {heading}", "", "| given | what it gets | shown by |"]
        parts += ["|---|---|---|"]
        for row in rows:
            cells = (row.given, row.gets, f"`{row.shown_by}`")
            parts.append("| " + " | ".join(c.replace("|", r"\|") for c in cells) + " |")
        parts.append("")
    return "\n".join(parts)


def test_the_page_has_these_rows():
    _, shown = PAGE.read_text(encoding="utf-8").split(MARK + "\n\n")
    assert shown == tables(), "run `python tests/test_bad_input.py`"
    assert len(ROWS) >= 60


def test_no_row_comes_twice():
    assert len({row.given for row in ROWS}) == len(ROWS)
    assert len(set(map(key, CALLS))) == len(CALLS)


def names_of_tests(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in tree.body:  # tests that are assigned, as hypothesis allows
        if isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if hasattr(target, "id")}
    return found


@pytest.mark.parametrize("path", sorted({row.shown_by.split("::")[0] for row in ROWS}))
def test_what_shows_a_row_is_there(path):
    known = names_of_tests(ROOT / "tests" / path)
    for row in ROWS:
        module, name = row.shown_by.split("::")
        if module == path:
            assert name.split("[")[0] in known, row.given


if __name__ == "__main__":
    text, _ = PAGE.read_text(encoding="utf-8").split(MARK)
    PAGE.write_text(f"{text}{MARK}\n\n{tables()}", encoding="utf-8")
