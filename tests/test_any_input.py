"""Whatever comes, `fit` fits without a NaN or refuses before training.

Hypothesis draws shapes, types, layouts in memory and parameters, most of them valid.
"""

import math
from contextlib import suppress
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from PIL import Image
from shared import Forward, Labels
from sklearn.cluster import KMeans
from skorch.callbacks import Callback

from sk_mice import MiCEClustering, MoCo, SphericalKMeans
from sk_mice.ablations import PaperMiCE, PaperMoCo
from sk_mice.augmentation import ImageAugmentation, VectorAugmentation
from sk_mice.backbones import MLP, ResNet, SmallResNet

SIDES = st.integers(1, 8)
CHANNELS = st.sampled_from([1, 2, 3, 4])
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


def odd_module(function):
    """A module that flattens, and has a mind of its own in training mode."""
    return Forward(lambda x, training: function(x) if training else x)


ODD_MODULES = [
    odd_module(lambda x: x.long()),
    odd_module(lambda x: x.double()),
    odd_module(lambda x: x[:, :0]),
    odd_module(lambda x: x[0]),
    odd_module(lambda x: x * math.nan),
    odd_module(lambda x: {}["missing"]),
    odd_module(lambda x: None),
    torch.nn.Linear(3, 2, device="meta"),
]

# Of each parameter, values that are right (perhaps only for some X) and wrong. Objects
# among them have parameters of their own, which are drawn as well.
VALUES = {
    "n_clusters": ([1, 2, 3, 4, np.int64(2)], [0, 100, 2.0, True]),
    "backbone": (
        ["auto", "mlp", SmallResNet(1), MLP(3), torch.nn.Flatten()],
        ["vgg", torch.nn.ReLU, SmallResNet, SmallResNet(100000), *ODD_MODULES],
    ),
    "freeze": ([None, "all but last", 1, np.int64(-2)], [0, "last", 10**9, 1.0, True]),
    "embedding_dim": ([1, 2, 3, 5], [0, 10**9]),
    "tau": ([1, 0.01, 100, 1e-3, 1e300, np.float32(0.3)], [0, 1e-9, math.inf]),
    "kappa": ([1, 0.01, 100, 1e-3, 1e300, math.inf], [0, 1e-9, -math.inf]),
    "expert_heads": (["own", "shared"], []),
    "queue_size": ([1, 2, 5, 10**9], [0]),
    "augmentation": (
        [
            "moco",
            "simclr",
            None,
            half,
            noise,
            ImageAugmentation(),
            VectorAugmentation(),
        ],
        [
            *(
                lambda s, g: s[:1],
                lambda s, g: 5,
                lambda s, g: s * math.nan,
                lambda s: s,
            ),
            ImageAugmentation,
        ],
    ),
    "n_neighbors": ([0, 1, 3, 10**9], [1.0]),
    "init": (
        ["two-stage", "random", KMeans(n_init=1), Labels(), "labels"],
        [KMeans, KMeans(max_iter=0), Labels(["a"] * 5), Labels([9] * 5), [0, -1]],
    ),
    "n_init": ([1, 2], [0]),
    "max_epochs": ([1, 2], [0]),
    "batch_size": ([2, 3, 7, 10**9], [1]),
    "lr": ([1e-300, 0.01, 1, 10.0], [0, 1e7]),
    "weight_decay": ([0, 1e-4, 0.1], [1e7]),
    "image_shape": (
        [None, (2, 3), [3, 3], (1, 1, 3), (3, 1, 2), "of X"],
        [(0, 4), (2.0, 2), (HUGE, 1), (True, 3)],
    ),
    "device": (["auto", "cpu", torch.device("cpu")], ["cuda:7", "meta", "mps"]),
    "precision": (["auto", "float32", "bfloat16"], []),
    "callbacks": ([None, [], (), [Callback], [("mine", Callback())]], [[1], [None]]),
    "checkpoint": ([None, "folder"], [3]),
    "distributed": ([True, False], []),
    "warm_start": ([True, False], []),
    "verbose": ([0, False], []),
    "random_state": ([0, 2**32 - 1, np.random.RandomState(0)], []),
}
OF_PAPER = {
    "gating_prototypes": (["auto", "simplex", "repelled", "uniform"], []),
    "train_gating_prototypes": ([True, False], []),
    "expert_prototypes": (["both", "analytical", "gradient", "passes", None], []),
    "gate_view": (["own", "student"], []),
    "n_rounds": ([1, 2, 10**9], [0]),
    "schedule": (
        ["cosine", "step", "constant", [0.5], (0.9, 0.1), math.sqrt],
        [lambda p: -1.0, lambda p: "x", lambda: 1, lambda p: HUGE, [2], [HUGE]],
    ),
    "warmup": ([0, 0.5, 0.999], [1]),
    "teacher_momentum": ([None, 0, 0.5, 0.999], [1.0]),
}
PARTS = {
    ImageAugmentation: {
        "colors": (["moco", "simclr", None], []),
        "flip": (["auto", True, False, np.bool_(True)], []),
        "crop_scale": (
            ["auto", (0.2, 1), (1e-9, 1e-9), [1, 1]],
            [(0, 1), (1, 0.5), "01", (0, HUGE)],
        ),
        "affine": (
            ["auto", (0, 0), (180, 45.0), [1, 0]],
            [(-1, 0), (0, 90), 5, "12", (HUGE, 0)],
        ),
    },
    VectorAugmentation: {
        "noise": ([0, 0.1, 1e6, np.float32(0.3)], [1e7, True, HUGE]),
        "replacement": ([0, 0.5, 1], [2, True, HUGE]),
    },
    SmallResNet: {
        "width": ([1, 2, np.int64(3)], [0, 2.0, 10**5]),
        "blocks": ([(1,), [1, 2], (1, 1, 1)], [(), (0,), (1,) * 60, [HUGE], 2]),
        "max_pool": ([True, False], []),
    },
    MLP: {"width": ([1, 2, 5], [0, 2.0, 10**9]), "n_layers": ([1, 3], [0, 10**9])},
    ResNet: {"depth": ([], [19, "18"]), "max_pool": ([], [None])},  # too slow to train
}
NONSENSE = ["nonsense", -1, math.nan, [], object(), b"bytes", -HUGE]
REAL = {"tau", "kappa", "lr", "weight_decay", "warmup", "teacher_momentum"}
TRUE_OR_HUGE = REAL | {"max_epochs", "n_init"}
TINY = {
    "n_clusters": 2,
    "embedding_dim": 3,
    "max_epochs": 1,
    "batch_size": 8,
    "backbone": None,  # the smallest that fits X
    "init": "random",
    "random_state": 0,
}


def value_of(draw, name, right, wrong):
    """A value, most often right; if an object, with parts drawn for it."""
    odd = [*wrong, *NONSENSE, *([True, HUGE] if name in TRUE_OR_HUGE else [])]
    value = draw(rarely(st.sampled_from(odd), st.sampled_from(right), one_in=16))
    if type(value) in PARTS:
        parts = values(draw, PARTS[type(value)], 2)
        value = type(value)(**value.get_params() | parts)
    return value


def values(draw, table, most):
    names = st.lists(st.sampled_from(sorted(table)), unique=True, max_size=most)
    return {name: value_of(draw, name, *table[name]) for name in draw(names)}


@st.composite
def estimators(draw, *classes):
    """A class, and parameters of it, perhaps still to be suited to X."""
    cls = draw(st.sampled_from(classes))
    table = {**VALUES, **OF_PAPER}
    table = {name: table[name] for name in table if name in cls().get_params()}
    tiny = {name: value for name, value in TINY.items() if name in table}
    return cls, tiny | values(draw, table, 6)


def dimensions(X):
    if isinstance(X, list) and X:
        return 1 + dimensions(X[0])
    return getattr(X, "ndim", 0)


def suited(drawn, X, folder=None):
    """Parameters with what depends on X, and with a folder in place of any name."""
    drawn = dict(drawn)
    if is_word(drawn.get("image_shape"), "of X"):
        whole = isinstance(X, np.ndarray) and X.ndim in (3, 4)
        drawn["image_shape"] = X.shape[1:] if whole else None
    if is_word(drawn.get("init"), "labels"):
        drawn["init"] = np.zeros(len(X) if dimensions(X) else 0, int)
    if isinstance(drawn.get("checkpoint"), str):
        drawn["checkpoint"] = folder
    if drawn["backbone"] is None:
        images = dimensions(X) > 2 or drawn.get("image_shape")
        drawn["backbone"] = SmallResNet(1, blocks=(1,)) if images else MLP(8)
    return drawn


def is_word(value, word):
    return isinstance(value, str) and value == word


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
    if hasattr(estimator, "_run_stage"):
        run = estimator._run_stage
        estimator._run_stage = lambda *args, **kw: began.append(1) or run(*args, **kw)
    try:
        estimator.fit(X, **fit_params)
    except (ValueError, TypeError) as error:
        if began:
            raise AssertionError("training had begun") from error
        return type(error).__name__
    finally:
        vars(estimator).pop("_run_stage", None)
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


METHODS = ("predict_log_proba", "transform", "predict", "score_samples", "score")


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


def check_fit(drawn, X):
    cls, drawn = drawn
    with TemporaryDirectory() as folder:
        estimator = cls(**suited(drawn, X, folder))
        outcome = fits_or_refuses(estimator, X)
        event(f"{cls.__name__}: {outcome}")
        if outcome == "fitted" and estimator.warm_start:
            assert fits_or_refuses(estimator, X) == "fitted"


MICE = given(estimators(MiCEClustering, PaperMiCE), arrays())
MOCO = given(estimators(MoCo, PaperMoCo), arrays())
test_mice = quietly(examples(100)(MICE(check_fit)))
test_mice_long = pytest.mark.slow(quietly(examples(2000)(MICE(check_fit))))
test_moco = quietly(examples(30)(MOCO(check_fit)))


def test_every_parameter_is_drawn():
    assert VALUES.keys() == MiCEClustering().get_params().keys()
    assert VALUES.keys() | OF_PAPER.keys() == PaperMiCE().get_params().keys()
    for cls, table in PARTS.items():
        assert table.keys() == cls().get_params().keys()


@pytest.fixture(scope="module")
def fitted():
    """Estimators by the shape of what they were fitted to."""
    rng = np.random.default_rng(0)
    found = []
    for shape in [(12, 5, 4), (12, 5, 4, 3), (12, 4)]:
        for cls in (MiCEClustering, MoCo):
            options = {k: v for k, v in TINY.items() if k in cls().get_params()}
            X = rng.random(shape)
            found.append(cls(**suited(options, X)).fit(X))
    return [*found, SphericalKMeans(2, random_state=0).fit(rng.random((12, 4)))]


LIKE_THE_FIT = st.tuples(
    st.integers(1, 9),
    st.sampled_from([(5, 4), (5, 4, 1), (20,), (5, 4, 3), (4,), (60,)]),
).map(lambda pair: (pair[0], *pair[1]))
PREDICTION = given(arrays(rarely(SHAPES, LIKE_THE_FIT)))


def check_prediction(fitted, X):
    for estimator in fitted:
        predicts_or_refuses(estimator, X)


test_prediction = quietly(examples(40)(PREDICTION(check_prediction)))


@quietly
@pytest.mark.slow
@examples(2000)
@PREDICTION
def test_prediction_long(fitted, X):
    check_prediction(fitted, X)


def some(*right, wrong=()):
    return rarely(st.sampled_from([*wrong, *NONSENSE]), st.sampled_from(right))


@quietly
@examples(150)
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
def test_no_nan_at_extreme_temperatures(kind):
    X = EXTREME[kind]
    for tau, kappa in [(0.01, 0.01), (0.01, 100), (100, 0.01)]:
        options = {"init": "two-stage", "batch_size": 16, "max_epochs": 3}
        options = TINY | options | {"tau": tau, "kappa": kappa}
        estimator = MiCEClustering(**suited(options, X))
        assert fits_or_refuses(estimator, X) == "fitted", (tau, kappa)
