"""Whatever comes, `fit` fits without a NaN or refuses before training.

Hypothesis draws shapes, types, layouts in memory and parameters, most of them valid.
"""

import math
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from PIL import Image

from sk_mice import MiCEClustering, MoCo, SphericalKMeans

SIDES = st.integers(1, 8)
CHANNELS = st.sampled_from([1, 3, 4])
ROWS = st.tuples(st.integers(2, 20), st.integers(1, 9))
SHAPES = st.one_of(
    ROWS,
    st.tuples(st.integers(2, 12), SIDES, SIDES),
    st.tuples(st.integers(2, 9), SIDES, SIDES, CHANNELS),
    st.tuples(st.integers(2, 9), CHANNELS, SIDES, SIDES),
)
ANY_SHAPE = st.lists(st.integers(0, 6), max_size=5).map(tuple)
NUMBERS = ["f2", "f4", "f8", "g", ">f8", "?", "u1", "i1", "u2", ">i2", "i8", "u8", "O"]
NO_NUMBERS = ["c8", "U3", "S3", "M8[s]", "m8[s]", "V4"]
SCALES = [0, 1, 1, 1, -1, 255, 6e4, 1e-8, 1e30, -1e30, 1e-300, 1e139, 1e-323]
PATTERNS = ["noise", "constant", "duplicates", "one apart", "two values"]
LAYOUTS = ["C", "F", "strided", "reversed", "read-only", "list", "torch", "broadcast"]
ODD_LAYOUTS = [
    *("masked", "partly masked", "list of tensors", "conjugate", "negative", "sparse"),
    *("nested", "meta", "bfloat16", "objects", "huge objects", "paths", "Pillow"),
    *("data frame", "numbers and text", "one sample"),
]
HUGE = 10**400  # no float can hold it


def rarely(strategy, otherwise, one_in=8):
    # Not at an end of the range, which hypothesis likes to draw.
    return st.integers(0, one_in).flatmap(lambda n: strategy if n == 5 else otherwise)


@st.composite
def arrays(draw, shapes=SHAPES):
    """X of any shape, type, scale, pattern and layout; now and then invalid."""
    shape = draw(rarely(ANY_SHAPE, shapes))
    pattern = draw(st.sampled_from(PATTERNS))
    X = np.asarray(np.random.default_rng(draw(st.integers(0, 9))).random(shape))
    if pattern == "constant":
        X[...] = 0.3
    elif pattern == "duplicates" and X.ndim:
        X = np.repeat(X[:1], len(X), axis=0)
    elif pattern == "one apart" and X.ndim:
        X = np.concatenate([X[:1], np.repeat(X[1:2], max(0, len(X) - 1), axis=0)])
    elif pattern == "two values":
        X = np.asarray(X.round())
    X = np.asarray(X * draw(st.sampled_from(SCALES)))
    odd = draw(rarely(st.sampled_from([math.nan, math.inf, 1e300]), st.none()))
    if odd is not None and X.size:
        X[np.unravel_index(draw(st.integers(0, X.size - 1)), shape)] = odd
    dtype = draw(rarely(st.sampled_from(NO_NUMBERS), st.sampled_from(NUMBERS)))
    with np.errstate(all="ignore"), suppress(OverflowError, ValueError, TypeError):
        X = X.astype(dtype)
    odd_layouts = st.sampled_from(ODD_LAYOUTS)
    return laid_out(X, draw(rarely(odd_layouts, st.sampled_from(LAYOUTS), one_in=6)))


def laid_out(X, layout):
    if layout == "F":
        return np.asfortranarray(X)
    if layout == "strided" and X.ndim:
        return np.repeat(X, 2, axis=-1)[..., ::2]
    if layout == "reversed" and X.ndim:
        return X[::-1]
    if layout == "read-only":
        X.setflags(write=False)
    if layout == "list":
        return X.tolist()
    if layout == "torch" and X.dtype in (np.float32, np.float64):
        return torch.from_numpy(X.copy()).requires_grad_(X.dtype == np.float32)
    if layout == "broadcast" and X.ndim and len(X):
        return np.broadcast_to(X[:1], (5, *X.shape[1:]))
    if layout in ODD_LAYOUTS and X.ndim and len(X):
        return oddly_laid_out(X, layout)
    return X


def oddly_laid_out(X, layout):
    if layout == "objects":
        return X.astype(object)
    if layout == "huge objects":
        X = X.astype(object)
        X.flat[:1] = HUGE
        return X
    if layout == "paths":
        return [f"{i}.png" for i in range(len(X))]
    if layout == "one sample":
        return X[0]
    if layout == "numbers and text":
        return [*X.tolist(), "text"]
    if layout == "data frame":
        return pd.DataFrame(X.reshape(len(X), -1))
    if layout.endswith("masked"):
        return np.ma.array(
            X, mask=np.arange(X.size).reshape(X.shape) == 3 * len(layout)
        )
    X = np.random.default_rng(0).random(X.shape)
    if layout == "Pillow":
        images = np.uint8(255 * X.reshape(len(X), len(X[0].flat), 1)[:, :, 0])
        return [Image.fromarray(image[None]) for image in images if len(image)]
    return odd_tensor(torch.tensor(X, dtype=torch.float32), layout)


def odd_tensor(X, layout):
    if layout == "list of tensors":
        return list(X.requires_grad_())
    if layout == "conjugate":
        return torch.complex(X, X).conj()
    if layout == "negative":
        return torch._neg_view(X)
    if layout == "sparse":
        return X.to_sparse()
    if layout == "nested":
        return torch.nested.nested_tensor(list(X), layout=torch.jagged)
    return X.to("meta") if layout == "meta" else X.bfloat16()


def half(stack, generator):
    return stack * 0.5


def noise(stack, generator):
    draws = torch.rand(stack.shape, generator=generator)
    return (stack + draws) / 2


class Odd(torch.nn.Module):
    """A module that flattens, and has a mind of its own in training mode."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        x = x.flatten(1)
        return self.function(x) if self.training else x


ODD_MODULES = [
    Odd(lambda x: x.long()),
    Odd(lambda x: x.double()),
    Odd(lambda x: x[:, :0]),
    Odd(lambda x: x[0]),
    Odd(lambda x: x * math.nan),
    Odd(lambda x: {}["missing"]),
    Odd(lambda x: None),
    torch.nn.Linear(3, 2, device="meta"),
]

# Of each parameter, values that are right (perhaps only for some X) and wrong.
VALUES = {
    "n_clusters": ([1, 2, 3, 4, np.int64(2)], [0, 100, 2.0]),
    "backbone": (
        ["auto", "resnet-small-1", torch.nn.Flatten()],
        [torch.nn.ReLU, "resnet-small-100000", *ODD_MODULES],
    ),
    "embedding_dim": ([1, 2, 3, 5], [0, 10**9]),
    "tau": ([1, 0.01, 100, 1e-3, 1e300, np.float32(0.3)], [0, 1e-9, math.inf]),
    "kappa": ([1, 0.01, 100, 1e-3, 1e300, math.inf], [0, 1e-9, -math.inf]),
    "gating_prototypes": (["auto", "simplex", "repelled", "uniform"], []),
    "train_gating_prototypes": ([True, False], []),
    "expert_prototypes": (["both", "analytical", "gradient", "passes", None], []),
    "expert_heads": (["own", "shared"], []),
    "queue_size": ([1, 2, 5, 10**9], [0]),
    "teacher_momentum": ([0, 0.5, 0.999], [1.0]),
    "augmentation": (
        ["moco", "simclr", None, half, noise],
        [lambda s, g: s[:1], lambda s, g: 5, lambda s, g: s * math.nan, lambda s: s],
    ),
    "n_neighbors": ([0, 1, 3, 10**9], [1.0]),
    "flip": (["auto", True, False, np.bool_(True)], []),
    "crop_scale": (
        ["auto", (0.2, 1), (1e-9, 1e-9), [1, 1]],
        [(0, 1), (1, 0.5), "01", (0, HUGE)],
    ),
    "affine": (
        ["auto", (0, 0), (180, 45.0), [1, 0]],
        [(-1, 0), (0, 90), 5, "12", (HUGE, 0)],
    ),
    "init": (["two-stage", "random"], []),
    "init_share": ([0.01, 0.5, 0.99], [0, 1]),
    "n_init": ([1, 2], [0]),
    "max_epochs": ([1, 2], [0]),
    "batch_size": ([2, 3, 7, 10**9], [1]),
    "lr": ([1e-300, 0.01, 1, 10.0], [0, 1e7]),
    "weight_decay": ([0, 1e-4, 0.1], [1e7]),
    "schedule": (
        ["cosine", "step", "constant", [0.5], (0.9, 0.1), math.sqrt],
        [lambda p: -1.0, lambda p: "x", lambda: 1, lambda p: HUGE, [2], [HUGE]],
    ),
    "warmup": ([0, 0.5, 0.999], [1]),
    "image_shape": (
        [None, (2, 3), [3, 3], (1, 1, 3)],
        [(0, 4), (2.0, 2), (HUGE, 1), (True, 3)],
    ),
    "layout": (["auto", "channels_last", "channels_first"], []),
    "value_range": (
        ["auto", (0, 1), [0, 255], (-1e308, 1e308)],
        [(1, 0), (1, 2, 3), (0, HUGE)],
    ),
    "device": (["auto", "cpu", torch.device("cpu")], ["cuda:7", "meta"]),
    "precision": (["auto", "float32", "bfloat16"], []),
    "callbacks": ([None, [], ()], [[1], ["x"], [None]]),
    "warm_start": ([True, False], []),
    "random_state": ([0, 2**32 - 1, np.random.RandomState(0)], []),
}
NONSENSE = ["nonsense", -1, math.nan, [], object(), b"bytes", -HUGE]
TRUE_OR_HUGE = {
    name: [True, HUGE] for name in ("tau", "teacher_momentum", "init_share", "warmup")
}
TRUE_OR_HUGE |= {name: [True, HUGE] for name in ("lr", "weight_decay", "max_epochs")}
TRUE_OR_HUGE |= {"kappa": [True, HUGE], "n_init": [True, HUGE], "n_clusters": [True]}
TINY = {
    "n_clusters": 2,
    "embedding_dim": 3,
    "max_epochs": 1,
    "batch_size": 8,
    "backbone": None,  # the smallest that fits X
    "random_state": 0,
}
LABELS = st.lists(st.integers(-1, 2), max_size=20) | st.just("labels")


@st.composite
def parameters(draw, cls):
    known = sorted(VALUES.keys() & cls().get_params().keys())
    drawn = {name: TINY[name] for name in TINY if name in known}
    for name in draw(st.lists(st.sampled_from(known), unique=True, max_size=6)):
        right, wrong = VALUES[name]
        wrong = st.sampled_from([*wrong, *NONSENSE, *TRUE_OR_HUGE.get(name, [])])
        drawn[name] = draw(rarely(wrong, st.sampled_from(right), one_in=16))
    return drawn


def dimensions(X):
    if isinstance(X, list) and X:
        return 1 + dimensions(X[0])
    return getattr(X, "ndim", 0)


def with_backbone(drawn, X):
    if drawn["backbone"] is not None:
        return drawn
    images = dimensions(X) > 2 or drawn.get("image_shape")
    return drawn | {"backbone": "resnet-small-1" if images else "mlp"}


def holds_nan(value):
    """Whether a NaN or an infinity is anywhere in a fitted attribute."""
    if isinstance(value, dict):
        return any(map(holds_nan, value.values()))
    if isinstance(value, list | tuple):
        return any(map(holds_nan, value))
    if isinstance(value, torch.nn.Module):
        return any(map(holds_nan, value.state_dict().values()))
    if isinstance(value, torch.Tensor):
        return not value.double().isfinite().all()
    if isinstance(value, float | np.ndarray):
        value = np.asarray(value)
        return value.dtype.kind == "f" and not np.isfinite(value).all()
    return False


def fits_or_refuses(estimator, X, **fit_params):
    """What came of it, in a word; anything but the two is an error."""
    began = []
    if hasattr(estimator, "_train"):
        train = estimator._train
        estimator._train = lambda *args, **kw: began.append(1) or train(*args, **kw)
    try:
        estimator.fit(X, **fit_params)
    except (ValueError, TypeError) as error:
        if began:
            raise AssertionError("training had begun") from error
        return type(error).__name__
    finally:
        vars(estimator).pop("_train", None)
    fitted = vars(estimator).keys() - estimator.get_params().keys()
    assert not [name for name in fitted if holds_nan(vars(estimator)[name])]
    for method in METHODS:
        if hasattr(estimator, method):
            assert not holds_nan(getattr(estimator, method)(X)), method
    return "fitted"


def predicts_or_refuses(estimator, X):
    """Whatever comes after a fit, what is said of it is finite, or it is refused."""
    for method in METHODS:
        if hasattr(estimator, method):
            with suppress(ValueError, TypeError):
                assert not holds_nan(getattr(estimator, method)(X)), method


METHODS = ("predict_proba", "transform", "predict", "score")


def examples(n):
    return settings(
        max_examples=n,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def quietly(function):
    """Empty clusters and zero rows are warned of, and are no surprise here."""
    return pytest.mark.filterwarnings(
        "ignore::sklearn.exceptions.ConvergenceWarning",
        "ignore:.* rows of X are zero:UserWarning",
        "ignore:X has values from:UserWarning",
        "ignore:X does not have valid feature names:UserWarning",
    )(function)


def check_mice(drawn, X, labels):
    estimator = MiCEClustering(**with_backbone(drawn, X))
    event(fits_or_refuses(estimator, X, init_labels=labels))


MICE = given(parameters(MiCEClustering), arrays(), rarely(LABELS, st.none()))
test_mice = quietly(examples(200)(MICE(check_mice)))
test_mice_long = pytest.mark.slow(quietly(examples(2000)(MICE(check_mice))))


@quietly
@examples(60)
@given(parameters(MoCo), arrays())
def test_moco(drawn, X):
    event(fits_or_refuses(MoCo(**with_backbone(drawn, X)), X))


@pytest.fixture(scope="module")
def fitted():
    """Estimators by the shape of what they were fitted to."""
    rng = np.random.default_rng(0)
    found = []
    for shape in [(12, 5, 4), (12, 5, 4, 3), (12, 4)]:
        for cls in (MiCEClustering, MoCo):
            options = {k: v for k, v in TINY.items() if k in cls().get_params()}
            X = rng.random(shape)
            found.append(cls(**with_backbone(options, X)).fit(X))
    return [*found, SphericalKMeans(2, random_state=0).fit(rng.random((12, 4)))]


LIKE_THE_FIT = st.tuples(
    st.integers(1, 9),
    st.sampled_from([(5, 4), (5, 4, 1), (20,), (5, 4, 3), (4,), (60,)]),
).map(lambda pair: (pair[0], *pair[1]))
PREDICTION = given(arrays(rarely(SHAPES, LIKE_THE_FIT)))


def check_prediction(fitted, X):
    for estimator in fitted:
        predicts_or_refuses(estimator, X)


test_prediction = quietly(examples(60)(PREDICTION(check_prediction)))


@quietly
@pytest.mark.slow
@examples(2000)
@PREDICTION
def test_prediction_long(fitted, X):
    check_prediction(fitted, X)


def some(*right, wrong=()):
    return rarely(st.sampled_from([*wrong, *NONSENSE]), st.sampled_from(right))


@quietly
@examples(300)
@given(
    arrays(ROWS),
    some(1, 2, 3, wrong=[0, 100]),
    some("k-means++", "random", np.eye(3), np.eye(2, 9), wrong=[np.zeros((2, 2))]),
    some("auto", 1, 2, wrong=[0]),
    some(0, 1e-4, 1e300, wrong=[True, HUGE]),
    rarely(st.lists(st.sampled_from([0, 1, 1e-300, 1e300, -1, math.nan])), st.none()),
)
def test_spherical_kmeans(X, n_clusters, init, n_init, tol, weight):
    estimator = SphericalKMeans(
        n_clusters, init=init, n_init=n_init, tol=tol, max_iter=5, random_state=0
    )
    event(fits_or_refuses(estimator, X, sample_weight=weight))


# -------------------------------------------------------------------- numerical guards

RNG = np.random.default_rng(0)
NOISE = RNG.random((24, 9, 9))
EXTREME = {
    "constant": np.full((24, 9, 9), 0.3),
    "duplicates": np.repeat(NOISE[:1], 24, axis=0),
    "two distinct": np.repeat(NOISE[:2], 12, axis=0),
    "one colour each": np.broadcast_to(RNG.random((24, 1, 1, 3)), (24, 9, 9, 3)),
    "float16": NOISE.astype(np.float16),
    "largest float16": np.full((24, 9, 9), 65504, np.float16),
    "1e30": NOISE * 1e30,
    "1e30 and -1e30": (NOISE - 0.5) * 1e30,
    "one outlier": np.where(np.arange(24 * 81).reshape(24, 9, 9) == 5, 1e30, NOISE),
    "vectors of 1e30": (NOISE[:, 0] - 0.5) * 1e30,
    "vectors of float16": NOISE[:, 0].astype(np.float16),
    "constant vectors": np.full((24, 9), 7.0),
    "duplicate vectors": np.repeat(NOISE[:1, 0], 24, axis=0),
}


@quietly
@pytest.mark.parametrize("kind", EXTREME)
@pytest.mark.parametrize("kappa", [0.01, 100])
@pytest.mark.parametrize("tau", [0.01, 100])
def test_no_nan_at_extreme_temperatures(tau, kappa, kind):
    X = EXTREME[kind]
    options = TINY | {"batch_size": 16, "max_epochs": 6, "tau": tau, "kappa": kappa}
    estimator = MiCEClustering(**with_backbone(options, X))
    assert fits_or_refuses(estimator, X) == "fitted"
