"""Files with a valid checksum that no fit has written: refused, or of no harm."""

import copy
import math
from itertools import cycle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from saved_models import (
    IMAGES,
    changed,
    fitted,
    fitted_once,
    fitting,
    made,
    outputs,
    parts_of,
)
from shared import KEEP, json_values, refused, short_fits

import sk_mice
from sk_mice._engine import storage

pytestmark = short_fits


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    path = tmp_path_factory.mktemp("valid") / "mice"
    sk_mice.save(fitted_once("two stages"), path)
    content = parts_of(path)
    return lambda: copy.deepcopy(content)  # Hypothesis prints what it is given


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype)


def labels(value, *shape):
    return torch.full(shape or (60,), value)


def test_wrong_tensors(path, valid):
    for change in (
        {"model.queue": None},
        {"model.extra": zeros(1)},
        {"extra": zeros(1)},
        {"attributes.labels_": None},
        {"attributes.labels_": labels(3)},
        {"attributes.labels_": labels(-1)},
        {"attributes.labels_": zeros(60)},
        {"attributes.labels_": labels(0, 6, 10)},
        {"attributes.labels_": labels(0, 0)},
        {
            "attributes.labels_": labels(0),
            "attributes.cluster_sizes_": torch.tensor([0, 60, 0]),
        },
        {"attributes.init_labels_": labels(3)},
        {"attributes.init_labels_": labels(0, 59)},
        {"attributes.cluster_sizes_": labels(0, 4)},
        {"model.queue": zeros(60, 24)},
        {"model.queue": zeros(0, 3, 8)},
        {"model.queue": zeros(10**15, 3, 0)},
        {"model.queue": zeros(60, 4, 8)},
        {"model.queue": zeros(60, 3, 8, dtype=torch.float64)},
        {"model.queue": zeros(60, 3, 8, dtype=torch.int32)},
        {"model.expert_prototypes": zeros(3, 9)},
        {"model.student.gate.weight": zeros(8, 8, dtype=torch.float64)},
        {"model.student.gate.weight": zeros(8, 9)},
        {"model.gating_prototypes": None},
    ):
        tensors, document = valid()
        for name, tensor in change.items():
            assert name in tensors or "extra" in name
            tensors[name] = tensor
        kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        made(path, kept, document)
        refused(path)


HUGE = 10**400  # more than a float holds


def described(name="SmallResNet", **parameters):
    return {"class": name, "parameters": {"dict": parameters}}


SAMPLE = "format must be that of a sample"
STATISTICS = "format must have the statistics"
UNEXPECTED = "unexpected content"
WRONG = [
    ("class", "MoCo", "must"),
    ("class", "SphericalKMeans", "must"),
    ("class", "os.system", "unexpected content, KeyError"),
    ("class", ["MoCo"], "unexpected content, TypeError"),
    ("parameters", None, UNEXPECTED),
    ("parameters/newer", 1, "its parameters must not include newer"),
    *(("parameters/tau", v, "'tau' parameter") for v in (-1, 1e-300, {"float": "nan"})),
    ("parameters/kappa", 1e-300, "'kappa' parameter"),
    ("parameters/tau", {"code": "1"}, "unexpected content, KeyError"),
    ("parameters/tau", {}, "not enough values"),
    ("parameters/device", {"device": "abacus"}, UNEXPECTED),
    ("parameters/backbone", None, "pass it to `load`"),
    ("parameters/image_shape", {"tuple": 5}, UNEXPECTED),
    ("parameters/augmentation", "mixup", "`augmentation` must be"),
    ("parameters/backbone", "vgg", "`backbone` must be"),
    ("attributes", {}, "its tensors must all be in use"),
    ("attributes/predict", 1, "must not include predict"),
    ("attributes/__class__", 1, "must not include __class__"),
    *(("attributes/elbo_", v, "`elbo_`") for v in ("good", {"float": "nan"}, True)),
    *(("attributes/neighbors_recall_", v, "from 0 to 1") for v in (1.5, True, "1")),
    *(("attributes/n_iter_", v, "`n_iter_`") for v in (True, -1, HUGE)),
    ("attributes/n_features_in_", HUGE, "`n_features_in_`"),
    ("attributes/labels_", {"array": "nothing"}, "unexpected content, KeyError"),
    ("attributes/feature_names_in_", {"strings": ["a"]}, "one for each feature"),
    *(("attributes/history_", v, "`history_`") for v in (["epoch"], {"dict": {}})),
    ("attributes/augmentation_", {"tuple": [1.0]}, "`augmentation_`"),
    ("attributes/augmentation_", described(), "`augmentation_`"),
    ("attributes/_sklearn_output_config", {"dict": {"transform": "a"}}, "set_output"),
    ("attributes/_sklearn_output_config", {"dict": {"fit": "pandas"}}, "set_output"),
    ("attributes/_fitted_with", {"dict": {"verbose": 1}}, "not include verbose"),
    ("format", {}, UNEXPECTED),
    ("format/shape", {"tuple": [1, 8, 9]}, SAMPLE),
    ("format/shape", {"tuple": [1, 8, 8, 1]}, SAMPLE),
    ("format/shape", {"tuple": [1, -8, -8]}, SAMPLE),
    # A number of times a string: as long as one likes.
    ("format/shape", {"tuple": ["x", 10**18, 1]}, SAMPLE),
    ("format/input_shape", {"tuple": [[1], 10**18]}, SAMPLE),
    ("format/channels_first", 1, SAMPLE),
    *(("format/mean", {"tuple": v}, STATISTICS) for v in ([], [1e308], ["0"])),
    ("format/mean", {"tuple": [HUGE]}, UNEXPECTED),
    *(("format/std", {"tuple": [v]}, STATISTICS) for v in (0.0, 1e308, True)),
    ("format/std", {"tuple": [{"float": "nan"}]}, STATISTICS),
    ("format/std", {"tuple": [1e-42]}, "infer finite values"),
    *(("format/low", v, STATISTICS) for v in (False, {"float": "-inf"})),
    *(("format/high", v, STATISTICS) for v in (-1.0, {"float": "inf"})),
    *(("format/seen_low", {"tuple": v}, "extremes of X") for v in ([0], [0.0, 1.0])),
    *(
        (f"network/{name}", v, f"'{name}' parameter")
        for name in ("tau", "kappa")
        for v in (0, "1", -1, None, True, HUGE, 1e-300, {"float": "nan"})
    ),
    ("network/tau", {"float": "inf"}, "'tau' parameter"),
    ("network/backbone", described(width=2), "'student.backbone"),
    ("network/backbone", described(width=99999999), "weights that can be counted"),
    ("network/backbone", described(width=10**30), "'width' parameter"),
    ("network/backbone", described(blocks=10**6), "'blocks' parameter"),
    ("network/backbone", described(depth=18), UNEXPECTED),
    ("network/backbone", described("MLP"), "'student.backbone"),
    ("network/backbone", described("VGG"), UNEXPECTED),
    *(("network/backbone", v, "backbone that is known") for v in ("mlp", 5)),
    ("network", {}, UNEXPECTED),
]


def test_wrong_documents(path, valid):
    for place, value, reason in WRONG:
        tensors, document = valid()
        made(path, tensors, changed(document, place, value))
        assert reason in refused(path), (place, value)
    tensors, document = valid()  # finite, but their difference is not
    changed(document, "format/low", -1e308)
    made(path, tensors, changed(document, "format/high", 1e308))
    assert STATISTICS in refused(path)


def test_claims_of_huge_images_take_no_memory(path, valid):
    # Shapes of images leave no mark in the weights of a convolutional network.
    for side in (10**5, 10**9):
        tensors, document = of_size(valid, side)
        made(path, tensors, document)
        try:
            loaded = sk_mice.load(path)
        except ValueError:
            continue
        with pytest.raises(ValueError, match="must hold samples of shape"):
            loaded.predict(IMAGES)
    tensors, document = of_size(valid, 10**6)
    network = {"class": "Pretrained", "parameters": {"dict": {}}}
    changed(document, "parameters/backbone", network)
    changed(document, "attributes/_fitted_with/dict/backbone", network)
    made(path, tensors, changed(document, "network/backbone", None))
    assert "layers.0.weight' must be nothing" in refused(path)  # tensors are compared


def test_claims_of_many_channels_take_no_memory(path, valid):
    tensors, document = valid()
    n = 10**5  # an n x n matrix has 40 GB
    changed(document, "format/shape", {"tuple": [n, 1, 1]})
    changed(document, "format/input_shape", {"tuple": [n, 1, 1]})
    changed(document, "attributes/n_features_in_", n)
    for name, value in (("mean", 0.5), ("std", 0.25)):
        changed(document, f"format/{name}", {"tuple": n * [value]})
    made(path, tensors, document)
    assert "'student.backbone" in refused(path)


def of_size(valid, side):
    tensors, document = valid()
    changed(document, "format/shape", {"tuple": [1, side, side]})
    changed(document, "format/input_shape", {"tuple": [side, side]})
    return tensors, changed(document, "attributes/n_features_in_", side**2)


JSON = json_values(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["__metadata__", "sk_mice", "model", "F32", "mlp", "inf"]),
    ["class", "parameters", "dict", "list", "tuple", "array"],
)


@settings(KEEP, max_examples=50)
@given(document=st.dictionaries(st.sampled_from(["class", "a"]), JSON, max_size=3))
def test_any_document(path, document):
    made(path, {"x": zeros(1)}, document)
    refused(path)


def places(document, prefix=""):
    found = []
    for name, value in document.items():
        found.append(prefix + name)
        if isinstance(value, dict):
            found += places(value, f"{prefix}{name}/")
    return found


@settings(KEEP, max_examples=40)
@given(data=st.data())
def test_any_change_of_a_document_is_refused_or_does_no_harm(path, valid, data):
    tensors, document = valid()
    place = data.draw(st.sampled_from(places(document)))
    made(path, tensors, changed(document, place, data.draw(JSON)))
    try:
        loaded = sk_mice.load(path)
    except ValueError:
        return
    assert loaded.predict_proba(IMAGES[:5]).shape == (5, 3)


def test_deep_documents(path, valid, monkeypatch):
    to_json = storage._to_json
    for deep in (300, 480, 900, 50_000):
        value = b"[" * deep + b"]" * deep
        monkeypatch.setattr(
            storage, "_to_json", lambda v, to=value: to_json(v).replace(b'"HERE"', to)
        )
        tensors, document = valid()
        made(path, tensors, changed(document, "attributes/history_", "HERE"))
        refused(path)


# ------------------------------------------------------- values that no fit arrives at


def test_weights_that_give_nothing_finite(path, valid):
    figures = cycle([math.nan, math.inf, -math.inf])
    for name in (
        "model.queue",
        "model.gating_prototypes",
        "model.student.experts.weight",
        "model.student.gate.bias",
        "model.teacher.backbone.layers.0.weight",
        "model.student.backbone.layers.1.running_var",
        "model.student.backbone.layers.1.running_mean",
    ):
        tensors, document = valid()
        tensors[name].view(-1)[-1] = next(figures)
        made(path, tensors, document)
        assert "must be finite" in refused(path)


def test_tensors_that_no_fit_arrives_at(path, valid):
    layer = "model.student.backbone.layers.1"
    for name, value, reason in (
        ("model.queue", 2.0, "queue must be unit vectors"),
        ("model.gating_prototypes", 1.0, "prototypes must be unit vectors"),
        ("model.queue_index", 60, "'queue_index' must lie in the queue"),
        ("model.queue_index", -1, "'queue_index' must lie in the queue"),
        (f"{layer}.num_batches_tracked", -1, "must be a count"),
        (f"{layer}.running_var", -1.0, "not be negative"),
        ("model.teacher.backbone.layers.0.weight", 3e38, "infer finite values"),
    ):
        tensors, document = valid()
        tensors[name].fill_(value)
        made(path, tensors, document)
        assert reason in refused(path)


def test_clusters_that_no_fit_arrives_at(path):
    sk_mice.save(fitted("kmeans"), path)
    tensors, document = parts_of(path)
    for name, value in (
        ("cluster_centers_", torch.full((3, 64), math.nan)),
        ("cluster_centers_", torch.ones(3, 64)),
        ("cluster_centers_", torch.eye(3, 64, dtype=torch.float16)),
        ("cluster_centers_", torch.eye(3, 63)),
        ("cluster_centers_", torch.eye(3, 64)[0]),
        ("_sums", torch.full((3, 64), math.inf)),
        ("_sums", torch.ones(4, 64)),
        ("labels_", torch.full((60,), 3)),
    ):
        made(path, tensors | {f"attributes.{name}": value}, document)
        assert f"`{name}`" in refused(path)


EXTREMES = [
    *(0, -1, 1, 2**31, 2**63, 10**30, HUGE, -HUGE, True, None, "", "1", [], {}),
    *(5e-324, 1e-300, 1e-30, 1e-4, 0.5, -0.5, 1e30, 3e38, 1e39, 1e140, 1e300, -1e300),
    *({"float": text} for text in ("nan", "inf", "-inf", "1e-310", "x")),
    *({"tuple": [v, v]} for v in (0, 1e300, "1")),
    *({"array": "attributes.labels_"}, {"list": "model.queue"}, {"lines": "a"}),
    {"class": "SphericalKMeans", "parameters": {"dict": {}}},
]


def leaves(part, prefix=()):
    """The way to each value of a document, and to what holds it."""
    found = [prefix] if prefix else []
    steps = part.items() if isinstance(part, dict) else enumerate(part)
    for step, value in steps:
        inner = (*prefix, step)
        found += leaves(value, inner) if isinstance(value, dict | list) else [inner]
    return found


def put_extreme(tensors, document, in_document, place, value, where):
    """Change a document or one of its tensors anywhere."""
    if in_document:
        ways = leaves(document)
        *way, last = ways[place % len(ways)]
        for step in way:
            document = document[step]
        document[last] = copy.deepcopy(EXTREMES[value % len(EXTREMES)])
        return
    tensor = tensors[sorted(tensors)[place % len(tensors)]].view(-1)
    limits = torch.finfo if tensor.is_floating_point() else torch.iinfo
    values = [0, 1, -1, limits(tensor.dtype).max, limits(tensor.dtype).min]
    if tensor.is_floating_point():
        values += [math.nan, math.inf, 1e-30, 1e10, 1e20, -1e30]
    tensor[where] = values[value % len(values)]


CHANGE = st.tuples(
    st.booleans(),
    st.integers(0, 999),
    st.integers(0, 99),
    st.sampled_from([slice(None), slice(0, 1), slice(-1, None)]),
)


@pytest.fixture(
    scope="module",
    params=["two stages", "few features", "uniform gate", "moco", "kmeans"],
)
def kind(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("kinds") / "model"
    sk_mice.save(fitted_once(request.param), path)
    content = parts_of(path)
    return lambda: (path, *copy.deepcopy(content))  # Hypothesis prints what it is given


def refused_or_finite(kind, changes):
    path, tensors, document = kind()
    for change in changes:
        put_extreme(tensors, document, *change)
    made(path, tensors, document)
    reason = None
    try:
        loaded = sk_mice.load(path)
    except ValueError as error:
        reason = str(error)
    if reason is not None:
        assert f"{str(path)!r} cannot be loaded: " in reason
        return
    for name, value in outputs(loaded, fitting(loaded)).items():
        assert np.isfinite(value).all(), name
    sk_mice.save(loaded, path)


# A crafted file may claim that `fit` saw other values, of which predictions warn.
@pytest.mark.filterwarnings("ignore:X has values:UserWarning")
@settings(KEEP, max_examples=10)
@given(changes=st.lists(CHANGE, min_size=1, max_size=2))
def test_extreme_values_are_refused_or_predictions_are_finite(kind, changes):
    refused_or_finite(kind, changes)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:X has values:UserWarning")
@settings(KEEP, max_examples=500)
@given(changes=st.lists(CHANGE, min_size=1, max_size=2))
def test_many_extreme_values_are_refused_or_predictions_are_finite(kind, changes):
    refused_or_finite(kind, changes)
