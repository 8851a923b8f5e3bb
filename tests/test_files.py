"""Saved models: what comes back, and what is refused."""

import builtins
import copy
import json
import math
import os
import pickle
import socket
import struct
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from sk_mice._engine.backbones import SmallResNet
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from skorch.callbacks import Callback
from torch import nn

import sk_mice
from sk_mice import ClassificationEM, MiCEClustering, MoCo, SphericalKMeans, _files
from sk_mice._engine.container import read_container, write_container

# The fits here are too short to separate anything: a cluster may well be empty.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
IMAGES = load_digits(n_class=3).images[:60]
ROWS = IMAGES.reshape(60, -1)
DATA = Path(__file__).parent / "data"


def tiny(cls=MiCEClustering, **options):
    defaults = {
        "backbone": "resnet-small-1",
        "embedding_dim": 8,
        "max_epochs": 2,
        "flip": False,
        "random_state": 0,
    }
    if cls is MiCEClustering:
        defaults["n_clusters"] = 3
    return cls(**(defaults | options))


FITS = {
    "mice": lambda: tiny().fit(IMAGES),
    "mice, random start, restarts": lambda: tiny(init="random", n_init=2).fit(IMAGES),
    "mice, uniform gate": lambda: tiny(kappa=math.inf).fit(IMAGES),
    "mice, vectors": lambda: tiny(backbone="auto").fit(ROWS),
    "mice, flattened": lambda: tiny(image_shape=(8, 8)).fit(ROWS),
    "mice, flattened, NumPy's sides": lambda: tiny(
        image_shape=tuple(np.array([8, 8]))
    ).fit(ROWS),
    "mice, auto": lambda: tiny(backbone="auto").fit(IMAGES),
    "mice, tuples": lambda: tiny(crop_scale=(0.5, 1.0), schedule=[0.5]).fit(IMAGES),
    "mice, torch.device": lambda: tiny(device=torch.device("cpu")).fit(IMAGES),
    "mice, NumPy's numbers": lambda: tiny(
        tau=np.float32(0.7), batch_size=np.int64(9), flip=np.bool_(False)
    ).fit(IMAGES),
    "moco": lambda: tiny(MoCo).fit(IMAGES),
    "kmeans": lambda: SphericalKMeans(3, random_state=0).fit(ROWS),
    "kmeans, float32": lambda: SphericalKMeans(3).fit(ROWS.astype(np.float32)),
    "kmeans, array": lambda: SphericalKMeans(3, init=ROWS[:3]).fit(ROWS),
    "kmeans, batches": lambda: SphericalKMeans(3).partial_fit(ROWS).partial_fit(ROWS),
    "classification EM": lambda: ClassificationEM(3, random_state=0).fit(ROWS),
    "classification EM, float32": lambda: ClassificationEM(3).fit(
        ROWS.astype(np.float32)
    ),
}


@pytest.fixture(scope="module")
def mice():
    return FITS["mice"]()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def outputs(model, X):
    names = ("predict", "predict_proba", "transform", "score")
    return {n: getattr(model, n)(X) for n in names if hasattr(model, n)}


def assert_same_value(a, b, name):
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype, name
        np.testing.assert_array_equal(a, b, err_msg=name)
    else:
        assert type(a) is type(b) or isinstance(a, np.generic), name
        assert a == b, name


# ---------------------------------------------------------------------- what comes back


@pytest.mark.parametrize("kind", FITS)
def test_round_trip(path, kind):
    model = FITS[kind]()
    X = IMAGES if getattr(model, "_format", None) and model._format.is_image else ROWS
    X = ROWS if getattr(model, "image_shape", None) else X
    sk_mice.save(model, path)
    loaded = sk_mice.load(path)
    assert type(loaded) is type(model)
    expected = outputs(model, X)
    for name, value in outputs(loaded, X).items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)
    assert vars(loaded).keys() == vars(model).keys()
    for name, value in vars(model).items():
        if name not in ("_model", "backbone"):
            assert_same_value(value, vars(loaded)[name], name)


def test_a_loaded_model_is_as_good_as_the_first(mice, path):
    sk_mice.save(mice, path)
    loaded = sk_mice.load(path)
    assert not loaded._model.training
    needing = {n for n, p in mice._model.named_parameters() if p.requires_grad}
    ours = {n for n, p in loaded._model.named_parameters() if p.requires_grad}
    assert ours == needing
    # It can be cloned, saved and pickled, and goes on with training as the first does.
    clone(loaded)
    again = path.with_name("again")
    sk_mice.save(loaded, again)
    assert again.read_bytes() == path.read_bytes()
    pickled = pickle.loads(pickle.dumps(loaded))
    sk_mice.save(pickled, again)  # without `init_labels_`, which pickles leave out
    np.testing.assert_array_equal(sk_mice.load(again).labels_, pickled.labels_)
    trained = [
        copy.deepcopy(model).set_params(warm_start=True).fit(IMAGES)
        for model in (mice, loaded)
    ]
    np.testing.assert_array_equal(*(model.transform(IMAGES) for model in trained))


def test_the_model_counts_not_the_parameters_of_now(mice, path):
    # The parameters may have been changed since the fit, for another one.
    changed = copy.deepcopy(mice).set_params(
        backbone="resnet18", tau=3.0, n_clusters=5, embedding_dim=77, queue_size=5
    )
    sk_mice.save(changed, path)
    loaded = sk_mice.load(path)
    assert loaded.get_params() == changed.get_params()
    np.testing.assert_array_equal(
        loaded.predict_proba(IMAGES), mice.predict_proba(IMAGES)
    )


def test_a_queue_in_bfloat16(mice, path):
    half = copy.deepcopy(mice)
    half._model.queue = half._model.queue.to(torch.bfloat16)
    sk_mice.save(half, path)
    queue = sk_mice.load(path)._model.queue
    assert queue.dtype == torch.bfloat16
    assert torch.equal(queue, half._model.queue)


def test_feature_names_and_set_output(path):
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    X = pd.DataFrame(ROWS, columns=[f"pixel {k} \udcff" for k in range(64)])
    model = tiny(backbone="mlp").set_output(transform="pandas").fit(X)
    sk_mice.save(model, path)
    loaded = sk_mice.load(path)
    assert list(loaded.feature_names_in_) == list(X.columns)
    pd.testing.assert_frame_equal(loaded.transform(X), model.transform(X))
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(X.rename(columns={"pixel 0 \udcff": "other"}))


def test_generators_are_left_alone(mice, path):
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    sk_mice.save(mice, path)
    sk_mice.load(path)
    assert torch.equal(torch.get_rng_state(), before[0])
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])


def test_a_path_may_be_a_string_and_have_any_name(mice, tmp_path):
    name = str(tmp_path / "Ünï \n code")
    sk_mice.save(mice, name)
    sk_mice.load(name)


def test_the_file_is_a_safetensors_file_with_json_in_it(mice, path):
    sk_mice.save(mice, path)
    with safe_open(path, "pt") as file:
        document = json.loads(file.metadata()["sk_mice"])
        queue = file.get_tensor("model.queue")
    assert torch.equal(queue, mice._model.queue)
    assert (document["kind"], document["version"]) == ("model", 2)
    assert document["class"] == "MiCEClustering"
    assert document["versions"]["torch"] == torch.__version__
    assert document["parameters"]["tau"] == 1.0


def test_the_same_model_gives_the_same_bytes(mice, tmp_path):
    for name in "ab":
        sk_mice.save(mice, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


# --------------------------------------------------------------------- what is no data


class Encoder(nn.Module):
    """A user's own, with all that a module may have."""

    def __init__(self, width=4):
        super().__init__()
        self.conv = nn.Conv2d(1, width, 3)
        self.again = self.conv  # shared
        self.norm = nn.BatchNorm2d(width)
        self.register_buffer("scale", torch.full((), 0.5), persistent=False)

    def forward(self, x):
        ramp = torch.linspace(0, 1, x.shape[-1])  # lies where torch thinks right
        return self.norm(self.conv(x * self.scale + ramp)).mean(dim=(2, 3))


@pytest.mark.parametrize("given", [Encoder(), Encoder], ids=["module", "factory"])
def test_a_backbone_of_ones_own_is_given_to_load(path, given):
    model = tiny(backbone=given).fit(IMAGES)
    sk_mice.save(model, path)
    for backbone in (Encoder(), Encoder, model.backbone_):
        loaded = sk_mice.load(path, backbone)
        assert loaded.backbone is backbone
        np.testing.assert_array_equal(
            loaded.predict_proba(IMAGES), model.predict_proba(IMAGES)
        )
        encoder = loaded._model.student.backbone
        assert encoder is not backbone
        assert encoder.conv.weight is encoder.again.weight


@pytest.mark.parametrize(
    ("backbone", "reason"),
    [
        (None, "its `backbone` was a module or a callable; give such a one"),
        (Encoder(width=5), "its 'student.* is float32 of shape .* needed"),
        (SmallResNet(1, width=4), "its 'student.backbone.* is .* nothing is needed"),
        (nn.Linear(3, 4), "`backbone` must map"),
        (Encoder().double(), "`backbone` must map"),
        (lambda: None, "`backbone` must be a name, an nn.Module or a factory"),
        ("resnet-small", "its 'student.backbone"),
    ],
    ids=["none", "width", "names", "shape", "type", "factory", "name"],
)
def test_a_backbone_that_does_not_fit(path, backbone, reason):
    sk_mice.save(tiny(backbone=Encoder).fit(IMAGES), path)
    with pytest.raises(ValueError, match=reason) as caught:
        sk_mice.load(path, backbone)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("kind", ["mice", "kmeans"])
def test_no_backbone_is_taken_that_is_not_needed(path, kind):
    sk_mice.save(FITS[kind](), path)
    with pytest.raises(ValueError, match="it needs no `backbone`"):
        sk_mice.load(path, Encoder())


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        ({"random_state": np.random.RandomState(0)}, ["random_state"]),
        ({"augmentation": lambda stack, generator: stack}, ["augmentation"]),
        ({"schedule": lambda progress: 1.0}, ["schedule"]),
        ({"callbacks": [Callback()]}, ["callbacks"]),
        (
            {"schedule": lambda progress: 1.0, "callbacks": [Callback()]},
            ["callbacks", "schedule"],
        ),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_stored_is_named(path, parameters, names):
    model = tiny(**parameters).fit(IMAGES)
    listed = ", the ".join(f"parameter `{name}`" for name in names)
    with pytest.warns(UserWarning, match=f"cannot hold the {listed}: ") as caught:
        sk_mice.save(model, path)
    assert caught[0].filename == __file__
    loaded = sk_mice.load(path)
    defaults = MiCEClustering().get_params()
    for name in parameters:
        assert getattr(loaded, name) == defaults[name]
    np.testing.assert_array_equal(
        loaded.predict_proba(IMAGES), model.predict_proba(IMAGES)
    )


def test_a_callable_start_of_kmeans_is_named(path):
    def first_rows(X, n_clusters, random_state):
        return X[:n_clusters]

    model = SphericalKMeans(3, init=first_rows).fit(ROWS)
    with pytest.warns(UserWarning, match="parameter `init`"):
        sk_mice.save(model, path)
    assert sk_mice.load(path).init == "k-means++"


def test_attributes_of_others_are_named(mice, path):
    model = copy.deepcopy(mice)
    model.note = "mine"
    with pytest.warns(UserWarning, match="cannot hold the attribute `note`"):
        sk_mice.save(model, path)
    assert not hasattr(sk_mice.load(path), "note")


def test_what_cannot_be_saved_leaves_no_file(mice, path):
    class Sub(MiCEClustering):
        pass

    class Odd(Encoder):
        def get_extra_state(self):
            return {"code": print}

        def set_extra_state(self, state):
            pass

    for model in (Sub().fit(ROWS[:20]), object(), nn.Linear(1, 1)):
        with pytest.raises(TypeError, match=r"`model` must be a MiCE.* or Classific"):
            sk_mice.save(model, path)
    for cls in (ClassificationEM, MiCEClustering, MoCo, SphericalKMeans):
        with pytest.raises(NotFittedError):
            sk_mice.save(cls(), path)
    with pytest.raises(ValueError, match="'tau' parameter"):
        sk_mice.save(copy.deepcopy(mice).set_params(tau=-1), path)
    with pytest.raises(ValueError, match="`backbone` must keep tensors only"):
        sk_mice.save(tiny(backbone=Odd).fit(IMAGES), path)
    with pytest.raises(FileNotFoundError, match="vanished"):
        sk_mice.save(mice, path.parent / "vanished" / "x")
    assert os.listdir(path.parent) == []


# ------------------------------------------------------------------------ no other file


@pytest.fixture(scope="module")
def content(mice, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "mice"
    sk_mice.save(mice, path)
    return path.read_bytes()


def refused(path, content):
    path.write_bytes(content)
    with pytest.raises(ValueError, match="cannot be loaded: ") as caught:
        sk_mice.load(path)
    assert str(path) in str(caught.value)
    return str(caught.value).split("cannot be loaded: ")[1]


def test_truncated_at_500_lengths(path, content):
    lengths = {*range(100), *np.linspace(0, len(content) - 1, 600).astype(int).tolist()}
    lengths = sorted(lengths, key=lambda n: (n >= 100, n % 7, n))[:500]
    assert len(set(lengths)) == 500
    for length in lengths:
        refused(path, content[:length])


def test_2000_flipped_bytes(path, content):
    rng = np.random.default_rng(0)
    header = 8 + struct.unpack("<Q", content[:8])[0]
    # All of the first bytes, half of the rest in the header and half in the tensors.
    places = [*range(100), *rng.integers(100, header, 950)]
    places += rng.integers(header, len(content), 950).tolist()
    assert len(places) == 2000
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= int(rng.integers(1, 256))
        refused(path, damaged)


def test_bytes_at_the_end_or_the_beginning(path, content):
    refused(path, content + b"\0")
    refused(path, b"\0" + content)
    refused(path, content + content)


@pytest.mark.parametrize(
    "other",
    [
        b"",
        b"\0" * 8,
        b"\0" * 1000,
        b"\xff" * 1000,
        b"just some text that is long enough",
        pickle.dumps(SphericalKMeans()),
        safetensors.torch.save({"x": torch.zeros(3)}),
        safetensors.torch.save({"x": torch.zeros(3)}, {"sk_mice": "{}"}),
        safetensors.torch.save({"x": torch.zeros(3)}, {"sk_mice": "[]"}),
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 10**8) + b"{}",
        struct.pack("<Q", 40_000) + b"[" * 40_000,
        struct.pack("<Q", 40_000) + b'{"__metadata__":' * 2500,
    ],
    ids=lambda value: str(value[:24]),
)
def test_other_kinds_of_file(path, other):
    refused(path, other)


def test_a_pickle_is_not_run(path):
    path.write_bytes(pickle.dumps(builtins.print))
    with pytest.raises(ValueError, match="no safetensors file"):
        sk_mice.load(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        sk_mice.load(tmp_path / "nothing")
    with pytest.raises(IsADirectoryError):
        sk_mice.load(tmp_path)


def test_versions_to_come_and_other_kinds_of_ours(path):
    write_container(path, {}, {}, kind="model", version=3)
    assert "has format version 3, and this" in refused(path, path.read_bytes())
    for version in (0, -1, True, "1", None, 1.0):
        write_container(path, {}, {}, kind="model", version=version)
        assert "has format version" in refused(path, path.read_bytes())
    write_container(path, {}, {}, kind="checkpoint", version=1)
    assert "no model but a 'checkpoint'" in refused(path, path.read_bytes())


# ------------------------------------------ files with a valid checksum, made by others


def parts_of(path):
    return read_container(path, kind="model", version=_files.FORMAT_VERSION)


@pytest.fixture(scope="module")
def valid(mice, tmp_path_factory):
    path = tmp_path_factory.mktemp("valid") / "mice"
    sk_mice.save(mice, path)
    return parts_of(path)


def made(path, tensors, document):
    write_container(path, tensors, document, kind="model", version=2)
    return path


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype)


CHANGES = {
    "a tensor less": {"model.queue": None},
    "a tensor more": {"model.extra": zeros(1)},
    "an array more": {"extra": zeros(1)},
    "labels missing": {"attribute.labels_": None},
    "labels too large": {"attribute.labels_": zeros(60, dtype=torch.int64) + 3},
    "labels negative": {"attribute.labels_": zeros(60, dtype=torch.int64) - 1},
    "labels as floats": {"attribute.labels_": zeros(60)},
    "labels of two dimensions": {"attribute.labels_": zeros(6, 10, dtype=torch.int64)},
    "no labels": {"attribute.labels_": zeros(0, dtype=torch.int64)},
    "other labels": {
        "attribute.labels_": zeros(60, dtype=torch.int64),
        "attribute.cluster_sizes_": torch.tensor([0, 60, 0]),
    },
    "start too large": {"attribute.init_labels_": zeros(60, dtype=torch.int64) + 3},
    "sizes": {"attribute.cluster_sizes_": zeros(4, dtype=torch.int64)},
    "queue of two dimensions": {"model.queue": zeros(60, 24)},
    "empty queue": {"model.queue": zeros(0, 3, 8)},
    "queue without end": {"model.queue": zeros(10**15, 3, 0)},
    "queue of other clusters": {"model.queue": zeros(60, 4, 8)},
    "queue in float64": {"model.queue": zeros(60, 3, 8, dtype=torch.float64)},
    "queue of integers": {"model.queue": zeros(60, 3, 8, dtype=torch.int32)},
    "prototypes": {"model.expert_prototypes": zeros(3, 9)},
    "weights in float64": {
        "model.student.gate.weight": zeros(8, 8, dtype=torch.float64)
    },
    "gate too wide": {"model.student.gate.weight": zeros(8, 9)},
    "no gate": {"model.gating_prototypes": None},
}


@pytest.mark.parametrize("change", CHANGES)
def test_wrong_tensors(path, valid, change):
    tensors, document = copy.deepcopy(valid)
    for name, tensor in CHANGES[change].items():
        if tensor is None:
            del tensors[name]
        else:
            tensors[name] = tensor
    made(path, tensors, document)
    refused(path, path.read_bytes())


def changed(document, place, value):
    *way, last = place.split("/")
    part = document
    for step in way:
        part = part[step]
    part[last] = value
    return document


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        ("class", "MoCo", "must"),
        ("class", "SphericalKMeans", "must"),
        ("class", "os.system", "unexpected content, KeyError"),
        ("class", ["MoCo"], "unexpected content, TypeError"),
        ("parameters", None, "unexpected content"),
        ("parameters/newer", 1, "its parameters must not include newer"),
        ("parameters/tau", -1, "'tau' parameter"),
        ("parameters/tau", {"float": "nan"}, "'tau' parameter"),
        ("parameters/tau", {"code": "1"}, "unexpected content, KeyError"),
        ("parameters/tau", {}, "not enough values"),
        ("parameters/device", {"device": "abacus"}, "unexpected content"),
        ("parameters/backbone", None, "give such a one"),
        ("parameters/crop_scale", {"tuple": 5}, "unexpected content"),
        ("parameters/augmentation", "mixup", "`augmentation` must be"),
        ("attributes", {}, "its tensors must all be in use"),
        ("attributes/predict", 1, "must not include predict"),
        ("attributes/__class__", 1, "must not include __class__"),
        ("attributes/elbo_", "good", "not include such a `elbo_`"),
        ("attributes/n_iter_", True, "not include such a `n_iter_`"),
        ("attributes/labels_", {"array": "nothing"}, "unexpected content, KeyError"),
        ("attributes/feature_names_in_", {"strings": ["a"]}, "one for each feature"),
        ("format", {}, "unexpected content"),
        ("format/shape", {"tuple": [1, 8, 9]}, "format must be that of a sample"),
        ("format/shape", {"tuple": [2, 8, 4]}, "format must be that of a sample"),
        ("format/shape", {"tuple": [1, -8, -8]}, "format must be that of a sample"),
        # A number of times a string: as long as one likes.
        (
            "format/shape",
            {"tuple": ["x", 10**18, 1]},
            "format must be that of a sample",
        ),
        ("format/input_shape", {"tuple": [[1], 10**18]}, "must be that of a sample"),
        ("format/mean", {"tuple": []}, "statistics"),
        ("format/std", {"tuple": [0.0]}, "statistics"),
        ("format/std", {"tuple": [{"float": "nan"}]}, "statistics"),
        ("format/high", -1.0, "statistics"),
        ("network/tau", 0, "'tau' parameter"),
        ("network/tau", {"float": "inf"}, "'tau' parameter"),
        ("network/kappa", {"float": "nan"}, "'kappa' parameter"),
        ("network/tau", "1", "'tau' parameter"),
        ("network/backbone", "resnet-small-2", "'student.backbone"),
        ("network/backbone", "resnet-small-99999999", "unexpected content"),
        ("network/backbone", "resnet-small-" + "9" * 30, "unexpected content"),
        ("network/backbone", "mlp", "'student.backbone"),
        ("network/backbone", "vgg", "`backbone` must be"),
        ("network/backbone", 5, "`backbone` must be a name"),
        ("network/backbone", "auto", "unexpected content"),
        ("network", {}, "unexpected content"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_wrong_documents(path, valid, place, value, reason):
    tensors, document = copy.deepcopy(valid)
    made(path, tensors, changed(document, place, value))
    assert reason in refused(path, path.read_bytes())


@pytest.mark.parametrize(
    ("shape", "features"), [([1, 10**5, 10**5], 10**10), ([1, 10**9, 10**9], 10**18)]
)
def test_claims_of_huge_images_take_no_memory(path, valid, shape, features):
    # Shapes of images leave no mark in the weights of a convolutional network.
    tensors, document = copy.deepcopy(valid)
    for place, value in (
        ("format/shape", {"tuple": shape}),
        ("format/input_shape", {"tuple": shape[1:]}),
        ("attributes/n_features_in_", features),
    ):
        changed(document, place, value)
    made(path, tensors, document)
    try:
        loaded = sk_mice.load(path)
    except ValueError:
        return
    with pytest.raises(ValueError, match="must hold samples of shape"):
        loaded.predict(IMAGES)


def test_headers_that_claim_more_than_the_file_has(path, content):
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    header["model.queue"]["shape"] = [10**12, 3, 8]
    header["model.queue"]["data_offsets"][1] = 10**12 * 96
    text = json.dumps(header).encode()
    refused(path, struct.pack("<Q", len(text)) + text + content[8 + length :])


def test_a_name_that_comes_twice(path, content):
    length = struct.unpack("<Q", content[:8])[0]
    text = content[8 : 8 + length].rstrip()
    twice = text[:-1] + b',"__metadata__":{}}'
    reason = refused(
        path, struct.pack("<Q", len(twice)) + twice + content[8 + length :]
    )
    assert "damaged" in reason


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["__metadata__", "sk_mice", "model", "F32", "mlp", "inf"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["__metadata__", "dtype", "shape", "data_offsets", "tuple"])
            | st.text(max_size=10),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
KEEP = settings(
    max_examples=300,
    deadline=None,
    # The file is written anew in every example.
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@KEEP
@given(header=st.binary(max_size=200) | JSON.map(lambda v: json.dumps(v).encode()))
@pytest.mark.parametrize("data", [b"", bytes(64)])
def test_any_header(path, header, data):
    refused(path, struct.pack("<Q", len(header)) + header + data)


@KEEP
@given(document=JSON)
def test_any_document(path, document):
    metadata = {"sk_mice": json.dumps(document)}
    refused(path, safetensors.torch.save({"x": zeros(1)}, metadata))


def places(document, prefix=""):
    found = []
    for name, value in document.items():
        found.append(prefix + name)
        if isinstance(value, dict):
            found += places(value, f"{prefix}{name}/")
    return found


@KEEP
@given(data=st.data())
def test_any_change_of_a_document_is_refused_or_does_no_harm(path, valid, data):
    tensors, document = valid[0], copy.deepcopy(valid[1])
    place = data.draw(st.sampled_from(places(document)))
    value = data.draw(JSON.filter(is_json))
    made(path, tensors, changed(document, place, value))
    try:
        loaded = sk_mice.load(path)
    except ValueError:
        return
    assert loaded.predict_proba(IMAGES).shape == (60, 3)


def is_json(value):
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


def test_no_code_is_run(mice, path, monkeypatch):
    sk_mice.save(mice, path)

    def never(*args, **kwargs):
        raise AssertionError("code was run")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, never)
    monkeypatch.setattr(torch, "load", never)
    monkeypatch.setattr(builtins, "eval", never)
    sk_mice.load(path)


def test_nothing_is_read_before_a_header_that_cannot_be(path):
    # A terabyte by its size: reading it would end the process.
    with path.open("wb") as file:
        file.write(b"\xff" * 8)
        file.truncate(2**40)
    with pytest.raises(ValueError, match="no safetensors file"):
        sk_mice.load(path)


# ------------------------------------------------------- values that no fit arrives at

HUGE = 10**400  # more than a float holds


def resigned(path, valid, **tensors):
    """A file with some of its tensors replaced."""
    content = copy.deepcopy(valid)
    for name, tensor in tensors.items():
        content[0][name] = tensor
    return made(path, *content)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *((f"network/{name}", v) for name in ("tau", "kappa") for v in (HUGE, 1e-300)),
        *((f"network/{name}", v) for name in ("tau", "kappa") for v in ("1", -1, None)),
        ("network/tau", {"float": "inf"}),
        ("parameters/tau", 1e-300),
        ("parameters/kappa", 1e-300),
        ("attributes/elbo_", {"float": "nan"}),
        ("attributes/n_iter_", -1),
        ("attributes/n_iter_", HUGE),
        ("attributes/n_features_in_", HUGE),
        ("attributes/history_", ["epoch"]),
        ("attributes/affine_", {"tuple": [1.0]}),
        ("attributes/affine_", {"tuple": [{"float": "nan"}, 0.0]}),
        ("attributes/affine_", {"tuple": [1e300, 0.0]}),
        ("attributes/_sklearn_output_config", {"dict": {"transform": "abacus"}}),
        ("attributes/_sklearn_output_config", {"dict": {"fit": "pandas"}}),
        ("format/mean", {"tuple": [1e308]}),
        ("format/mean", {"tuple": [HUGE]}),
        ("format/mean", {"tuple": ["0"]}),
        ("format/std", {"tuple": [1e-42]}),
        ("format/std", {"tuple": [1e308]}),
        ("format/low", -1e308),
        ("format/low", {"float": "-inf"}),
        ("format/high", 1e308 * 2),
        ("format/channels_first", 1),
        ("format/low", False),
        ("format/std", {"tuple": [True]}),
        ("network/tau", True),
    ],
    ids=lambda value: str(value)[:40],
)
def test_figures_that_no_fit_arrives_at(path, valid, place, value):
    if value == math.inf:
        value = {"float": "inf"}
    tensors, document = copy.deepcopy(valid)
    if place == "format/low" and value == -1e308:
        changed(document, "format/high", 1e308)
    made(path, tensors, changed(document, place, value))
    refused(path, path.read_bytes())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("means_", np.zeros((3, 2))),
        ("covariance_", -np.eye(9)),
        ("covariance_", np.triu(np.ones((9, 9)))),
        ("weights_", np.array([1.0, 1.0, -1.0])),
        ("weights_", np.ones(3)),
        ("mean_", np.full(64, np.nan)),
        ("components_", np.zeros((9, 64), dtype=np.int64)),
        ("labels_", np.full(len(ROWS), 3)),
    ],
)
def test_gaussians_that_no_fit_arrives_at(path, name, value):
    model = FITS["classification EM"]()
    assert model.components_.shape == (9, 64)
    setattr(model, name, value)
    with pytest.raises(ValueError, match="`model` cannot be saved: its"):
        sk_mice.save(model, path)


@pytest.mark.parametrize("figure", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "name",
    [
        "model.queue",
        "model.gating_prototypes",
        "model.student.experts.weight",
        "model.student.gate.bias",
        "model.teacher.backbone.layers.0.weight",
        "model.student.backbone.layers.1.running_var",
        "model.student.backbone.layers.1.running_mean",
    ],
)
def test_weights_that_give_nothing_finite(path, valid, name, figure):
    tensor = valid[0][name].clone()
    tensor.view(-1)[-1] = figure
    refused(path, resigned(path, valid, **{name: tensor}).read_bytes())


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("model.queue", 2.0, "queue must hold unit vectors"),
        ("model.gating_prototypes", 1.0, "prototypes must hold unit vectors"),
        ("model.queue_index", 60, "'queue_index' must lie in the queue"),
        ("model.queue_index", -1, "'queue_index' must lie in the queue"),
        (
            "model.student.backbone.layers.1.num_batches_tracked",
            -1,
            "must be a count",
        ),
        ("model.student.backbone.layers.1.running_var", -1.0, "not be negative"),
        ("model.teacher.backbone.layers.0.weight", 3e38, "infer finite values"),
    ],
)
def test_tensors_that_no_fit_arrives_at(path, valid, name, value, reason):
    tensor = torch.full_like(valid[0][name], value)
    assert reason in refused(path, resigned(path, valid, **{name: tensor}).read_bytes())


@pytest.mark.parametrize(
    "change",
    [
        {"attribute.cluster_centers_": torch.full((3, 64), math.nan)},
        {"attribute.cluster_centers_": torch.ones(3, 64)},
        {"attribute.cluster_centers_": torch.eye(3, 64, dtype=torch.float16)},
        {"attribute._sums": torch.full((3, 64), math.inf)},
        {"attribute.labels_": torch.full((60,), 3)},
    ],
)
def test_clusters_that_no_fit_arrives_at(path, change):
    sk_mice.save(FITS["kmeans"](), path)
    refused(path, resigned(path, parts_of(path), **change).read_bytes())


@pytest.mark.parametrize(
    "place", ["queue", "gating_prototypes", "student.experts.weight"]
)
def test_what_could_not_be_loaded_is_not_saved(mice, path, place):
    broken = copy.deepcopy(mice)
    with torch.no_grad():
        broken._model.state_dict()[place].fill_(math.nan)
    with pytest.raises(ValueError, match=f"`model` cannot be saved: .*{place}"):
        sk_mice.save(broken, path)
    assert not path.exists()


@pytest.mark.parametrize("deep", [300, 480, 900, 50_000])
def test_deep_documents(path, valid, deep):
    value = "[" * deep + "]" * deep
    tensors, document = copy.deepcopy(valid)
    changed(document, "attributes/history_", "HERE")
    made(path, tensors, document)
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = content[8 : 8 + length].replace(rb"\"HERE\"", value.encode())
    refused(path, struct.pack("<Q", len(header)) + header + content[8 + length :])


EXTREMES = [
    *(0, -1, 1, 2**31, 2**63, 10**30, HUGE, -HUGE, True, None, "", "1", [], {}),
    *(5e-324, 1e-300, 1e-30, 1e-4, 0.5, -0.5, 1e30, 3e38, 1e39, 1e140, 1e300, -1e300),
    *({"float": text} for text in ("nan", "inf", "-inf", "1e-310", "x")),
    *({"tuple": [v, v]} for v in (0, 1e300, "1")),
    *({"array": "attribute.labels_"}, {"list": "model.queue"}, {"texts": ["a", "b"]}),
]
KINDS = {
    "images": lambda: tiny().fit(IMAGES),
    "vectors": lambda: tiny(backbone="mlp").fit(ROWS[:, 20:25]),
    "uniform gate": lambda: tiny(kappa=math.inf).fit(IMAGES),
    "moco": lambda: tiny(MoCo).fit(IMAGES),
    "kmeans": FITS["kmeans"],
}


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


def fitting(model):
    """Samples of the values and shape that a model's format has."""
    if isinstance(model, SphericalKMeans):
        return ROWS
    fmt = model._format
    noise = np.random.default_rng(0).random((20, *fmt.input_shape))
    if fmt.is_image:
        return fmt.low + (fmt.high - fmt.low) * noise
    return np.array(fmt.mean) + np.array(fmt.std) * (noise - 0.5)


@pytest.fixture(scope="module", params=KINDS)
def kind(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("kinds") / "model"
    sk_mice.save(KINDS[request.param](), path)
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


@settings(KEEP, max_examples=15)
@given(changes=st.lists(CHANGE, min_size=1, max_size=2))
def test_extreme_values_are_refused_or_predictions_are_finite(kind, changes):
    refused_or_finite(kind, changes)


@pytest.mark.slow
@settings(KEEP, max_examples=500)
@given(changes=st.lists(CHANGE, min_size=1, max_size=2))
def test_many_extreme_values_are_refused_or_predictions_are_finite(kind, changes):
    refused_or_finite(kind, changes)


def test_a_file_chooses_no_folder(path, tmp_path):
    folder = tmp_path / "chosen"
    model = tiny(checkpoint=folder).fit(IMAGES)
    sk_mice.save(model, path)
    tensors, document = parts_of(path)
    assert document["parameters"]["checkpoint"] is None
    for value in (str(folder), 5):
        made(path, tensors, changed(document, "parameters/checkpoint", value))
        assert sk_mice.load(path).checkpoint is None


# ------------------------------------------------------------------------ what it costs


def peak(path, code):
    """Bytes by which the memory of a fresh process grows at most in some code."""
    script = (
        "import resource, sys, warnings; import sk_mice\n"
        "from sk_mice import _files\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"sk_mice.load({str(DATA / 'kmeans-1.safetensors')!r})\n"
        "before = peak()\n"
        f"path = {str(path)!r}\n{code}\n"
        "print(1024 * (peak() - before))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


REFUSED = """
try:
    sk_mice.load(path)
except ValueError as error:
    assert path in str(error)
else:
    raise SystemExit("loaded")
"""


def test_long_headers_are_not_read(path):
    text = b"[" + b"{}," * 13_000_000 + b"{}]"
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    assert peak(path, REFUSED) < 10e6


@pytest.mark.slow
def test_the_longest_header_takes_little_memory(path):
    text = b'{"__metadata__":[' + b"{}," * 1_300_000 + b"{}]}"
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    assert peak(path, REFUSED) < 200e6


def test_a_file_that_is_longer_than_its_header_says_is_not_read(path, content):
    path.write_bytes(content)
    os.truncate(path, 2**40)
    assert peak(path, REFUSED) < 10e6


@pytest.mark.slow
def test_a_file_is_read_once(path):
    centers = torch.eye(2, 10_000_000)
    tensors, document = {}, {}
    sk_mice.save(SphericalKMeans(2, random_state=0).fit(np.eye(2, 5)), path)
    tensors, document = parts_of(path)
    changed(document, "attributes/n_features_in_", 10_000_000)
    tensors["attribute.cluster_centers_"] = centers
    tensors["attribute._sums"] = centers.clone()
    made(path, tensors, document)
    size = path.stat().st_size
    assert size > 150e6
    del tensors, centers
    assert peak(path, "sk_mice.load(path)") < 1.5 * size


def header_bytes(path):
    with path.open("rb") as file:
        return struct.unpack("<Q", file.read(8))[0]


@pytest.mark.parametrize(
    ("n_epochs", "n_clusters"),
    [(10_000, 100), pytest.param(10_000, 1000, marks=pytest.mark.slow)],
)
def test_a_long_history_comes_back(mice, path, n_epochs, n_clusters):
    model = copy.deepcopy(mice)
    rng = np.random.default_rng(0)
    row = {"stage": "em", "lr": None, "posterior_counts": list(range(10))}
    model.history_ = [
        row
        | {"epoch": i, "elbo": float(rng.normal()), "warm": i % 2 == 0}
        | {"cluster_sizes": rng.integers(9000, size=1 + (i > 20) * n_clusters).tolist()}
        for i in range(n_epochs)
    ]
    sk_mice.save(model, path)
    assert header_bytes(path) < 300_000
    history = sk_mice.load(path).history_
    assert history == model.history_
    for ours, theirs in zip(history, model.history_, strict=True):
        assert list(ours) == list(theirs)
        assert [*map(type, ours.values())] == [*map(type, theirs.values())]


def test_many_features_and_their_names_come_back(path):
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    names = [f"feature {k} \ud83d" * (k % 3) + f"{k}" for k in range(20_000)]
    X = pd.DataFrame(np.random.default_rng(0).random((4, 20_000)), columns=names)
    model = tiny(MoCo, backbone="mlp", max_epochs=1).fit(X)
    sk_mice.save(model, path)
    assert header_bytes(path) < 20_000
    loaded = sk_mice.load(path)
    assert list(loaded.feature_names_in_) == names
    np.testing.assert_array_equal(loaded.transform(X), model.transform(X))


@pytest.mark.parametrize(
    "values",
    [
        [2**63] * 100,
        [1, 2.0] * 100,
        [True, 1] * 100,
        [math.nan, -0.0, math.inf] * 100,
        ["", "a", "\ud83d", "\ude00", "\0"] * 100,
        [[1, 2]] * 100,
        [[1], [1, 2]] * 100,
        [[]] * 100,
        [None] * 100,
        [{"a": 1}, {"a": 1.5, "b": [2]}] * 100,
        [{}] * 100,
    ],
    ids=lambda values: str(values)[:30],
)
def test_long_lists_come_back(mice, path, values):
    model = copy.deepcopy(mice)
    model.history_ = [{"values": values, "values_": values, "tuple": tuple(values)}]
    sk_mice.save(model, path)
    assert repr(sk_mice.load(path).history_) == repr(model.history_)


def test_a_header_that_could_not_be_read_is_not_written(mice, path):
    model = copy.deepcopy(mice)
    model.history_ = [{"note": "x" * 5_000_000}]
    with pytest.raises(ValueError, match=r"cannot be written: .*at most 4000000 bytes"):
        sk_mice.save(model, path)
    assert not path.exists()


def test_what_has_no_form_in_a_file_is_refused(mice, path):
    model = copy.deepcopy(mice).set_params(n_rounds=10**5000)
    with pytest.raises(ValueError, match=f"{path}' cannot be written: "):
        sk_mice.save(model, path)
    for kind in (torch.complex128, torch.float8_e5m2):
        backbone = Encoder()
        backbone.register_buffer("extra", torch.zeros(1, dtype=kind))
        with pytest.raises(ValueError, match=r"cannot be (written|saved): "):
            sk_mice.save(tiny(backbone=backbone, max_epochs=1).fit(IMAGES), path)
    assert not path.exists()


# ----------------------------------------------------------------------------- paths


@pytest.mark.parametrize("path", [0, 99, True, b"model", None, 1.5])
def test_only_paths_are_paths(mice, path):
    with pytest.raises(TypeError, match="`path` must be a string or path-like; got"):
        sk_mice.save(mice, path)
    with pytest.raises(TypeError, match="`path` must be a string or path-like; got"):
        sk_mice.load(path)
    os.fstat(0)  # was not taken for a file, and closed


def test_no_null_character_in_a_path(mice):
    for call in (lambda: sk_mice.save(mice, "a\0b"), lambda: sk_mice.load("a\0b")):
        with pytest.raises(ValueError, match="`path` must not hold a null character"):
            call()


def test_only_regular_files_are_read_and_replaced(mice, tmp_path):
    fifo, name = tmp_path / "fifo", str(tmp_path / "socket")
    os.mkfifo(fifo)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        for path in (fifo, name, "/dev/zero"):
            for call in (sk_mice.load, lambda path: sk_mice.save(mice, path)):
                with pytest.raises(OSError, match=f"Not a regular file.*{path}"):
                    call(path)
    assert fifo.is_fifo()
    with pytest.raises(IsADirectoryError, match=str(tmp_path)):
        sk_mice.save(mice, tmp_path)


def test_a_file_keeps_its_mode_and_a_read_only_one_its_content(mice, path):
    path.write_bytes(b"mine")
    path.chmod(0o400)
    with pytest.raises(PermissionError, match=str(path)):
        sk_mice.save(mice, path)
    assert path.read_bytes() == b"mine"
    path.chmod(0o600)
    sk_mice.save(mice, path)
    assert path.stat().st_mode & 0o777 == 0o600
    sk_mice.load(path)


# ---------------------------------------------------------------- settings around them


@contextmanager
def default_type():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def default_device():
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


AMBIENT = {
    "float64": default_type,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "half": lambda: torch.autocast("cpu", torch.float16),
    "inference": torch.inference_mode,
    "no gradients": torch.no_grad,
    "meta": lambda: torch.device("meta"),
    "default device": default_device,
}


@pytest.mark.parametrize("around", AMBIENT)
@pytest.mark.parametrize(
    "backbone",
    [
        *("resnet-small-1", "mlp", Encoder),
        pytest.param("resnet18", marks=pytest.mark.slow),
    ],
)
def test_settings_around_load_and_save_change_nothing(path, around, backbone):
    X = ROWS if backbone == "mlp" else IMAGES[:20]
    model = tiny(backbone=backbone, max_epochs=1).fit(X)
    sk_mice.save(model, path)
    again = path.with_name("again")
    given = backbone if backbone is Encoder else None
    with AMBIENT[around]():
        before = torch.get_default_dtype(), torch.get_default_device()
        sk_mice.save(model, again)
        loaded = sk_mice.load(path, given)
        assert (torch.get_default_dtype(), torch.get_default_device()) == before
    assert again.read_bytes() == path.read_bytes()
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    for name, parameter in loaded._model.named_parameters():
        assert parameter.is_leaf, name
        assert not parameter.is_inference(), name
        assert parameter.device.type == "cpu", name
        assert parameter.dtype == torch.float32, name
    trained = [
        copy.deepcopy(m).set_params(warm_start=True).fit(X) for m in (model, loaded)
    ]
    np.testing.assert_array_equal(*(m.transform(X) for m in trained))


FORK = """
import multiprocessing, os, sys, warnings
import numpy as np
import sk_mice
warnings.simplefilter("ignore")
X = np.random.default_rng(0).random((40, 12, 12))
mice = sk_mice.MiCEClustering(3, backbone="resnet-small-4", max_epochs=1).fit(X)
kmeans = sk_mice.SphericalKMeans(3).fit(X.reshape(40, -1))

def work():
    for model in (mice, kmeans):
        sk_mice.save(model, sys.argv[1])
        sk_mice.load(sys.argv[1])

child = multiprocessing.get_context("fork").Process(target=work, daemon=True)
child.start()
child.join(60)
assert child.exitcode == 0, child.exitcode
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_the_child_of_a_fork_saves_and_loads(path):
    done = subprocess.run(
        [sys.executable, "-c", FORK, str(path)],
        env={**os.environ, "OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr


# ------------------------------------------------------------------ formats of the past


def write_data():
    """Make the files of the present format: `python tests/test_files.py`."""
    DATA.mkdir(exist_ok=True)
    expected = {}
    for name, (make, X) in PAST.items():
        model = make().fit(X)
        sk_mice.save(model, DATA / f"{name}-{_files.FORMAT_VERSION}.safetensors")
        for method, value in outputs(model, X).items():
            expected[f"{name}.{method}"] = value
    np.savez_compressed(DATA / f"expected-{_files.FORMAT_VERSION}.npz", **expected)


PAST = {
    "mice": (lambda: tiny(max_epochs=70, batch_size=16, crop_scale=(0.5, 1)), IMAGES),
    "moco": (lambda: tiny(MoCo), IMAGES),
    "kmeans": (lambda: SphericalKMeans(3, random_state=0), ROWS),
}


@pytest.mark.parametrize("version", range(1, _files.FORMAT_VERSION + 1))
@pytest.mark.parametrize("name", PAST)
def test_files_of_every_format_version_are_read(name, version):
    path = DATA / f"{name}-{version}.safetensors"
    assert path.stat().st_size < 100_000
    model = sk_mice.load(path)
    expected = np.load(DATA / f"expected-{version}.npz")
    for method, value in outputs(model, PAST[name][1]).items():
        np.testing.assert_allclose(
            value, expected[f"{name}.{method}"], rtol=1e-3, atol=1e-4, err_msg=method
        )
    assert model.get_params()["random_state"] == 0


if __name__ == "__main__":
    write_data()
