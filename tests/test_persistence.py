"""Saved models: what comes back, and what is refused."""

import builtins
import copy
import json
import math
import os
import pickle
import re
import shutil
import struct
from functools import cache, partial
from itertools import cycle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import shared
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors import safe_open
from shared import KEEP, json_values, quoted, refused, same_generators
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch.callbacks import Callback
from torch import nn
from torchvision.models import resnet18

import sk_mice
from sk_mice import (
    ClassificationEM,
    MiCEClustering,
    MoCo,
    NeighborMixture,
    SphericalKMeans,
    _persistence,
)
from sk_mice._engine import storage
from sk_mice._engine.storage import read, write
from sk_mice.ablations import PaperMiCE
from sk_mice.augmentation import ImageAugmentation
from sk_mice.backbones import Pretrained, SmallResNet
from sk_mice.features import PretrainedFeatures

# The fits here are too short to separate anything: a cluster may well be empty.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
IMAGES = load_digits(n_class=3).images[:60]
ROWS = IMAGES.reshape(60, -1)
DATA = Path(__file__).parent / "data"
KIND = _persistence._KIND
tiny = partial(shared.tiny, init="random", max_epochs=1)


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


FITS = {
    "two stages": lambda: tiny(init="two-stage", max_epochs=2).fit(IMAGES),
    "restarts": lambda: tiny(n_init=2).fit(IMAGES),
    "uniform gate": lambda: tiny(kappa=math.inf).fit(IMAGES),
    "vectors": lambda: tiny(backbone="auto").fit(ROWS),
    "few features": lambda: tiny(backbone="mlp").fit(ROWS[:, 20:25]),
    "flattened": lambda: tiny(image_shape=tuple(np.array([8, 8]))).fit(ROWS),
    "channels": lambda: tiny(image_shape=(16, 2, 2)).fit(ROWS),
    "channels last": lambda: tiny(image_shape=tuple(np.array([4, 4, 4]))).fit(ROWS),
    "auto": lambda: tiny(backbone="auto").fit(IMAGES),
    "parameters of many types": lambda: tiny(
        PaperMiCE,
        tau=np.float32(0.7),
        batch_size=np.int64(9),
        device=torch.device("cpu"),
        augmentation=ImageAugmentation(flip=np.bool_(False), crop_scale=(0.5, 1.0)),
        schedule=[0.5],
    ).fit(IMAGES),
    "labels": lambda: tiny(init=np.arange(60) % 3).fit(IMAGES),
    "a clusterer": lambda: tiny(init=SphericalKMeans(), max_epochs=2).fit(IMAGES),
    "classification EM": lambda: ClassificationEM(3, random_state=0).fit(ROWS),
    "centred": lambda: ClassificationEM(3, center=True, random_state=0).fit(ROWS),
    "neighbours": lambda: NeighborMixture(3, max_epochs=2, random_state=0).fit(ROWS),
    "neighbours, not centred": lambda: NeighborMixture(
        3, center=False, max_epochs=2, random_state=0
    ).fit(ROWS),
    "own backbone": lambda: tiny(backbone=Encoder).fit(IMAGES),
    "moco": lambda: shared.tiny(MoCo).fit(IMAGES),
    "kmeans": lambda: SphericalKMeans(3, random_state=0).fit(ROWS),
    "kmeans, float32": lambda: SphericalKMeans(3).fit(ROWS.astype(np.float32)),
    "kmeans, array": lambda: SphericalKMeans(3, init=ROWS[:3]).fit(ROWS),
    "kmeans, batches": lambda: SphericalKMeans(3).partial_fit(ROWS).partial_fit(ROWS),
}


@cache
def _fitted(name):
    return FITS[name]()


def fitted(name):
    return copy.deepcopy(_fitted(name))


@pytest.fixture
def mice():
    return fitted("two stages")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def reloaded(model, path):
    """What comes back of a model that is saved."""
    sk_mice.save(model, path)
    return sk_mice.load(path)


def outputs(model, X):
    names = ("predict", "predict_proba", "transform", "score")
    return {n: getattr(model, n)(X) for n in names if hasattr(model, n)}


def assert_predict_alike(one, other):
    found, expected = (model.predict_proba(IMAGES) for model in (one, other))
    np.testing.assert_array_equal(found, expected)


def fitting(model):
    """Samples of the values and shape that a model's format has."""
    if isinstance(model, ClassificationEM | NeighborMixture | SphericalKMeans):
        return ROWS
    fmt = model._format
    noise = np.random.default_rng(0).random((20, *fmt.input_shape))
    if fmt.is_image:
        return fmt.low + (fmt.high - fmt.low) * noise
    return np.array(fmt.mean) + np.array(fmt.std) * (noise - 0.5)


def assert_same_value(a, b, name):
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype, name
        np.testing.assert_array_equal(a, b, err_msg=name)
    elif hasattr(a, "get_params"):
        assert type(a) is type(b), name
        assert_same_value(a.get_params(), b.get_params(), name)
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), name
        for key in a:
            assert_same_value(a[key], b[key], f"{name}.{key}")
    else:
        assert type(a) is type(b) or isinstance(a, np.generic), name
        assert a == b, name


# ---------------------------------------------------------------------- what comes back


@pytest.mark.parametrize("kind", sorted(FITS.keys() - {"own backbone"}))
def test_round_trip(path, kind):
    model = fitted(kind)
    loaded = reloaded(model, path)
    assert type(loaded) is type(model)
    X = fitting(model)
    expected = outputs(model, X)
    for name, value in outputs(loaded, X).items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)
    assert vars(loaded).keys() == vars(model).keys()
    for name, value in vars(model).items():
        if name not in ("_model", "_inference", "backbone"):
            assert_same_value(value, vars(loaded)[name], name)


def test_a_loaded_model_is_as_good_as_the_first(mice, path):
    loaded = reloaded(mice, path)
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
    loaded = reloaded(changed, path)
    assert loaded.get_params() == changed.get_params()
    assert_predict_alike(loaded, mice)


def test_a_backbone_that_is_set_after_the_fit_is_not_that_of_the_model(path):
    model = tiny().fit(IMAGES)
    model.set_params(backbone__width=8)
    loaded = reloaded(model, path)
    assert loaded.backbone.width == 8
    assert_predict_alike(loaded, model)
    for fitted_model in (model, loaded):
        with pytest.raises(ValueError, match="`backbone` must be as in the fit"):
            fitted_model.set_params(warm_start=True).fit(IMAGES)


def test_a_pretrained_backbone_that_is_set_after_the_fit(path):
    images = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), np.uint8)
    backbone = Pretrained(image_size=32)
    model = shared.tiny(MoCo, backbone=backbone, freeze=-1).fit(images)
    for later in (Pretrained(image_size=64), "auto"):
        model.set_params(backbone=later)
        loaded = reloaded(model, path)
        assert repr(loaded.backbone) == repr(later)
        np.testing.assert_allclose(
            loaded.transform(images), model.transform(images), atol=1e-6
        )


def test_backbones_that_are_invalid_or_changed_in_place(path):
    backbone = SmallResNet(4, blocks=[1, 1])
    model = tiny(backbone=backbone).fit(IMAGES)
    backbone.blocks[0] = 2
    sk_mice.save(model, path)
    assert_predict_alike(sk_mice.load(path), model)
    with pytest.raises(ValueError, match="'width' parameter of SmallResNet"):
        sk_mice.save(model.set_params(backbone__width=-3), path)


def test_bad_parameters_wait_for_no_other_process(mice, path, monkeypatch):
    def wait(self):
        pytest.fail("it waits")

    monkeypatch.setattr(MiCEClustering, "_open_group", wait)
    with pytest.raises(ValueError, match="'tau' parameter"):
        sk_mice.save(mice.set_params(tau=-1.0), path)


def test_a_queue_in_bfloat16(mice, path):
    mice._model.queue = mice._model.queue.to(torch.bfloat16)
    queue = reloaded(mice, path)._model.queue
    assert queue.dtype == torch.bfloat16
    assert torch.equal(queue, mice._model.queue)


def test_feature_names_and_set_output(path):
    X = pd.DataFrame(ROWS, columns=[f"pixel {k} \udcff" for k in range(64)])
    model = tiny(backbone="mlp").set_output(transform="pandas").fit(X)
    loaded = reloaded(model, path)
    assert list(loaded.feature_names_in_) == list(X.columns)
    pd.testing.assert_frame_equal(loaded.transform(X), model.transform(X))
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(X.rename(columns={"pixel 0 \udcff": "other"}))


def test_generators_are_left_alone(mice, path):
    with same_generators():
        reloaded(mice, path)


def test_a_path_may_be_a_string_and_have_any_name(mice, tmp_path):
    name = str(tmp_path / "Ünï \n code")
    sk_mice.save(mice, name)
    sk_mice.load(name)


def test_the_file_is_a_safetensors_file_with_json_in_it(mice, path):
    sk_mice.save(mice, path)
    with safe_open(path, "pt") as file:
        head = json.loads(file.metadata()["sk_mice"])
        document = json.loads(bytes(file.get_tensor("document").tolist()))
        queue = file.get_tensor("model.queue")
    assert torch.equal(queue, mice._model.queue)
    assert (head["kind"], head["version"]) == ("model", 4)
    assert document["class"] == "MiCEClustering"
    assert torch.__version__.startswith(document["versions"]["torch"])
    assert document["parameters"]["tau"] == 1.0


def test_the_same_model_gives_the_same_bytes(mice, tmp_path):
    for name in "ab":
        sk_mice.save(mice, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


# ----------------------------------------------------------- what is no data, or nearly


def test_a_backbone_of_ones_own_is_given_to_load(path):
    for own in (Encoder(), Encoder):
        model = tiny(backbone=own).fit(IMAGES)
        sk_mice.save(model, path)
        for backbone in (Encoder(), Encoder, model.backbone_):
            loaded = sk_mice.load(path, backbone)
            assert loaded.backbone is backbone
            assert_predict_alike(loaded, model)
            encoder = loaded._model.student.backbone
            assert encoder is not backbone
            assert encoder.conv.weight is encoder.again.weight


def test_a_backbone_that_does_not_fit(path):
    sk_mice.save(fitted("own backbone"), path)
    for backbone, reason in (
        (None, "its `backbone` was a module or a callable, which the file"),
        (Encoder(width=5), "its 'student.* must be float32 of shape .*; it is float32"),
        (SmallResNet(4), "its 'student.backbone.* must be nothing; it is"),
        (nn.Linear(3, 4), "`backbone` must map"),
        (Encoder().double(), "`backbone` must map"),
        (lambda: None, "`backbone` must be a name, .* or a factory"),
        ("resnet-small", "its 'student.backbone"),
    ):
        with pytest.raises(ValueError, match=reason) as caught:
            sk_mice.load(path, backbone)
        assert repr(str(path)) in str(caught.value)
    for kind in ("two stages", "kmeans"):
        sk_mice.save(fitted(kind), path)
        with pytest.raises(ValueError, match="it needs no `backbone`"):
            sk_mice.load(path, Encoder())


def test_what_cannot_be_stored_is_named(path):
    defaults = MiCEClustering().get_params()
    for parameters in (
        {"random_state": np.random.RandomState(0)},
        {"augmentation": lambda stack, generator: stack},
        {"callbacks": [Callback()]},
    ):
        model = tiny(**parameters).fit(IMAGES)
        listed = ", the ".join(f"parameter `{name}`" for name in parameters)
        with pytest.warns(UserWarning, match=f"cannot hold the {listed}: ") as caught:
            sk_mice.save(model, path)
        assert caught[0].filename == __file__
        loaded = sk_mice.load(path)
        for name in parameters:
            assert getattr(loaded, name) == defaults[name]
        assert_predict_alike(loaded, model)


def test_a_callable_start_of_kmeans_is_named(path):
    def first_rows(X, n_clusters, random_state):
        return X[:n_clusters]

    model = SphericalKMeans(3, init=first_rows).fit(ROWS)
    with pytest.warns(UserWarning, match="parameter `init`"):
        sk_mice.save(model, path)
    assert sk_mice.load(path).init == "k-means++"


class Darker(BaseEstimator):
    """An augmentation with parameters; stands for the classes that files know."""

    _parameter_constraints: dict = {"factor": [float]}

    def __init__(self, factor=0.5):
        self.factor = factor

    def __call__(self, stack, generator):
        return self.factor * stack


def test_objects_of_known_classes_are_parameters(path, monkeypatch):
    model = tiny(augmentation=Darker(0.75)).fit(IMAGES)
    assert model.augmentation_ is model.augmentation
    with pytest.warns(UserWarning, match="parameter `augmentation`"):
        sk_mice.save(model, path)
    monkeypatch.setitem(_persistence.PARAMETER_CLASSES, "Darker", Darker)
    loaded = reloaded(model, path)
    assert loaded.get_params()["augmentation__factor"] == 0.75
    tensors, document = parts_of(path)
    stored = document["parameters"]["augmentation"]
    assert stored == {"class": "Darker", "parameters": {"dict": {"factor": 0.75}}}
    for change, reason in (
        ({"class": "Callback"}, "unexpected content, KeyError"),
        ({"parameters": {"dict": {"factor": "1"}}}, "'factor' parameter of Darker"),
        ({"parameters": {"dict": {"power": 1.0}}}, "unexpected content, TypeError"),
        ({"parameters": 5}, "unexpected content, TypeError"),
    ):
        document["parameters"]["augmentation"] = stored | change
        made(path, tensors, document)
        assert reason in refused(path)


def test_attributes_of_others_are_named(mice, path):
    mice.note = "mine"
    with pytest.warns(UserWarning, match="cannot hold the attribute `note`"):
        sk_mice.save(mice, path)
    assert not hasattr(sk_mice.load(path), "note")


def test_what_cannot_be_saved_leaves_no_file(mice, path, monkeypatch):
    class Sub(MiCEClustering):
        pass

    class Odd(Encoder):
        def get_extra_state(self):
            return {"code": print}

        def set_extra_state(self, state):
            pass

    for model in (Sub(), object(), nn.Linear(1, 1)):
        with pytest.raises(TypeError, match=r"`model` must be a MiCE.* or a Pipeline"):
            sk_mice.save(model, path)
    for cls in (MiCEClustering, MoCo, SphericalKMeans):
        with pytest.raises(NotFittedError):
            sk_mice.save(cls(), path)
    with pytest.raises(ValueError, match="'tau' parameter"):
        sk_mice.save(copy.deepcopy(mice).set_params(tau=-1), path)
    with pytest.raises(ValueError, match="`backbone` must keep tensors only"):
        sk_mice.save(tiny(backbone=Odd).fit(IMAGES), path)
    with pytest.raises(FileNotFoundError, match="vanished"):
        sk_mice.save(mice, path.parent / "vanished" / "x")
    for place in ("queue", "gating_prototypes", "student.experts.weight"):
        broken = copy.deepcopy(mice)
        with torch.no_grad():
            broken._model.state_dict()[place].fill_(math.nan)
        with pytest.raises(ValueError, match=f"`model` cannot be saved: .*{place}"):
            sk_mice.save(broken, path)
    mice.history_ = [{"note": {1, 2}}]
    with pytest.raises(ValueError, match="its `history_` must hold data"):
        sk_mice.save(mice, path)
    mice.history_ = [{"note": "x" * 5_000_000}]
    with monkeypatch.context() as patch:
        patch.setattr(storage, "LARGEST_DOCUMENT", 4_000_000)
        too_long = r"cannot be written: .*at most 4000000 bytes"
        with pytest.raises(ValueError, match=too_long):
            sk_mice.save(mice, path)
    with pytest.raises(ValueError, match=f"{quoted(path)} cannot be written: "):
        sk_mice.save(fitted("moco").set_params(n_neighbors=10**5000), path)
    for kind in (torch.complex128, torch.float8_e5m2):
        backbone = Encoder()
        backbone.register_buffer("extra", torch.zeros(1, dtype=kind))
        with pytest.raises(ValueError, match=r"cannot be (written|saved): "):
            sk_mice.save(tiny(backbone=backbone).fit(IMAGES), path)
    assert os.listdir(path.parent) == []


@pytest.mark.parametrize(
    ("name", "large"),
    [
        ("classification EM", "components_"),
        ("centred", "axes_"),
        ("neighbours", "gating_prototypes_"),
    ],
)
def test_clusterers_of_vectors_that_cannot_predict_are_refused(name, large, path):
    for attribute, value in vars(fitted(name)).items():
        if not attribute.endswith("_") or not isinstance(value, np.ndarray):
            continue
        broken = fitted(name)
        setattr(broken, attribute, value[:0])
        with pytest.raises(ValueError, match="`model` cannot be saved: its "):
            sk_mice.save(broken, path)
    broken = fitted(name)
    values = getattr(broken, large)
    values[...] = np.copysign(1e308, values)
    with pytest.raises(ValueError, match="saved: its attributes must give finite prob"):
        sk_mice.save(broken, path)


def test_a_file_chooses_no_folder(path, tmp_path):
    folder = tmp_path / "chosen"
    sk_mice.save(tiny(checkpoint=folder).fit(IMAGES), path)
    tensors, document = parts_of(path)
    assert "checkpoint" not in document["parameters"]
    for value in (str(folder), 5):
        made(path, tensors, changed(document, "parameters/checkpoint", value))
        assert sk_mice.load(path).checkpoint is None


# ------------------------------------------------------ pipelines, pretrained networks


@cache
def _pipeline():
    features = PretrainedFeatures(image_size=32, batch_size=30)
    return make_pipeline(features, tiny(backbone="mlp", n_neighbors=2)).fit(IMAGES)


@pytest.fixture
def pipeline():
    return copy.deepcopy(_pipeline())


def test_a_pipeline_comes_back_without_the_weights_of_its_network(pipeline, path):
    loaded = reloaded(pipeline, path)
    assert loaded.named_steps.keys() == pipeline.named_steps.keys()
    assert_predict_alike(loaded, pipeline)
    for mine, other in zip(loaded, pipeline, strict=True):
        assert repr(mine) == repr(other)
        assert vars(mine).keys() - {"_placed"} == vars(other).keys() - {"_placed"}
    sk_mice.save(pipeline[0], path)
    assert path.stat().st_size < 10_000
    features = sk_mice.load(path)
    assert features.n_features_in_ == 64
    np.testing.assert_array_equal(
        features.transform(IMAGES), pipeline[0].transform(IMAGES)
    )


def test_a_pipeline_of_files_comes_back(path, tmp_path):
    files = [tmp_path / f"{i}.png" for i in range(8)]
    for i, file in enumerate(files):
        Image.new("RGB", (9, 9), (30 * i, 0, 0)).save(file)
    features = PretrainedFeatures(image_size=32, out=tmp_path / "features.npy")
    pipeline = make_pipeline(features, ClassificationEM(2, random_state=0)).fit(files)
    loaded = reloaded(pipeline, path)
    assert loaded[0].out is None  # a file could choose what is written
    np.testing.assert_array_equal(loaded.predict(files), pipeline[-1].labels_)


@pytest.mark.parametrize(
    ("device", "n_gpus", "loaded"),
    [("cuda", 0, "cpu"), ("cuda:0", 0, "cpu"), ("cpu", 0, "cpu"), ("auto", 0, "auto")],
)
def test_features_of_a_gpu_that_is_not_here_are_those_of_the_cpu(
    path, monkeypatch, device, n_gpus, loaded
):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)
    features = PretrainedFeatures(image_size=32).fit(IMAGES)
    want = features.transform(IMAGES)
    found = reloaded(features.set_params(device=device), path)
    assert found.device == loaded
    np.testing.assert_array_equal(found.transform(IMAGES), want)


def test_a_backbone_is_given_to_the_step_that_needs_it(path):
    own = make_pipeline(shared.tiny(MoCo, backbone=Encoder), SphericalKMeans(2)).fit(
        IMAGES
    )
    sk_mice.save(own, path)
    with pytest.raises(ValueError, match="its `backbone` was a module or a callable"):
        sk_mice.load(path)
    loaded = sk_mice.load(path, Encoder)
    np.testing.assert_array_equal(loaded.predict(IMAGES), own.predict(IMAGES))
    with pytest.raises(ValueError, match="it needs no `weights`"):
        sk_mice.load(path, Encoder, weights=path)


def test_weights_of_a_network_are_looked_for_and_compared(path, tmp_path):
    files = [tmp_path / name for name in ("a.pth", "b.pth", "gone.pth")]
    for file in files[:2]:
        torch.save(resnet18().state_dict(), file)
    shutil.copy(files[0], files[2])
    features = PretrainedFeatures("resnet18", weights=files[2], image_size=32)
    want = features.fit_transform(IMAGES[:3])
    sk_mice.save(features, path)
    np.testing.assert_array_equal(sk_mice.load(path).transform(IMAGES[:3]), want)
    files[2].unlink()
    with pytest.raises(
        FileNotFoundError, match=r"`weights` must name a file.*gone\.pth"
    ):
        sk_mice.load(path)
    loaded = sk_mice.load(path, weights=files[0])
    np.testing.assert_array_equal(loaded.transform(IMAGES[:3]), want)
    with pytest.raises(ValueError, match="must be those of the fit, with the SHA-256"):
        sk_mice.load(path, weights=files[1])


def test_pipelines_that_cannot_be_saved(pipeline, path):
    scaled = make_pipeline(StandardScaler(), SphericalKMeans(2)).fit(ROWS)
    with pytest.raises(
        TypeError, match="step 'standardscaler' of `model` must be a Mi"
    ):
        sk_mice.save(scaled, path)
    module = nn.Flatten()
    module.transforms = nn.Identity()
    own = make_pipeline(PretrainedFeatures(module), SphericalKMeans(2)).fit(IMAGES)
    with pytest.raises(TypeError, match=r"`network` of step 'pretrain.* be a name"):
        sk_mice.save(own, path)
    with pytest.raises(NotFittedError):
        sk_mice.save(clone(pipeline), path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        ("names", ["a", "a"], "names of steps must be different"),
        ("names", [["a"], "b"], "names of steps|unhashable"),
        ("names", ["a"], "zip"),
        ("steps", [], "tensors must all be in use"),
        ("steps/0/class", "Pipeline", "KeyError"),
        ("steps/0/class", "MoCo", "parameters must not include"),
        (
            "steps/0/parameters/network",
            "print",
            "`network` must be the name of a network",
        ),
        ("steps/0/parameters/network", 3, "'network' parameter"),
        ("steps/0/attributes/weights_sha256_", "0", "those found here have"),
        ("steps/0/attributes/n_features_out_", 5, "`n_features_out_` must be that of"),
        ("steps/0/attributes/image_size_", 10**6, "`image_size_` must be from 1 to"),
        ("steps/0/attributes/_from_files", None, "`_from_files` must be a bool"),
        ("steps/0/format/shape", {"tuple": [64]}, "format must"),
    ],
)
def test_wrong_pipelines(pipeline, path, place, value, reason):
    sk_mice.save(pipeline, path)
    tensors, document = parts_of(path)
    made(path, tensors, changed(document, place, value))
    assert re.search(reason, refused(path))


# ------------------------------------------ files with a valid checksum, made by others


def parts_of(path):
    return read(path, **KIND)


def made(path, tensors, document):
    write(path, tensors, document, **KIND)


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    path = tmp_path_factory.mktemp("valid") / "mice"
    sk_mice.save(_fitted("two stages"), path)
    content = parts_of(path)
    return lambda: copy.deepcopy(content)  # Hypothesis prints what it is given


def changed(document, place, value):
    *way, last = place.split("/")
    part = document
    for step in way:
        part = part[int(step) if step.isdigit() else step]
    part[last] = value
    return document


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
        tensors, document = valid()
        changed(document, "format/shape", {"tuple": [1, side, side]})
        changed(document, "format/input_shape", {"tuple": [side, side]})
        changed(document, "attributes/n_features_in_", side**2)
        made(path, tensors, document)
        try:
            loaded = sk_mice.load(path)
        except ValueError:
            continue
        with pytest.raises(ValueError, match="must hold samples of shape"):
            loaded.predict(IMAGES)


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


def test_no_code_is_run(mice, path, monkeypatch):
    sk_mice.save(mice, path)

    def never(*args, **kwargs):
        raise AssertionError("code was run")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, never)
    monkeypatch.setattr(torch, "load", never)
    monkeypatch.setattr(builtins, "eval", never)
    sk_mice.load(path)


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
    sk_mice.save(_fitted(request.param), path)
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


# --------------------------------------------------------------------- what grows large


def header_bytes(path):
    with path.open("rb") as file:
        return struct.unpack("<Q", file.read(8))[0]


@pytest.mark.parametrize(
    ("n_epochs", "n_clusters"),
    [(10_000, 100), pytest.param(10_000, 1000, marks=pytest.mark.slow)],
)
def test_a_long_history_comes_back(path, n_epochs, n_clusters):
    model = fitted("moco")
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
    names = [f"feature {k} \ud83d" * (k % 3) + f"{k}" for k in range(20_000)]
    X = pd.DataFrame(np.random.default_rng(0).random((4, 20_000)), columns=names)
    model = shared.tiny(MoCo, backbone="mlp").fit(X)
    sk_mice.save(model, path)
    assert header_bytes(path) < 20_000
    loaded = sk_mice.load(path)
    assert list(loaded.feature_names_in_) == names
    np.testing.assert_array_equal(loaded.transform(X), model.transform(X))


# ------------------------------------------------------- files that were written before


PAST = {
    "mice": (lambda: tiny(max_epochs=70, batch_size=16), IMAGES),
    "moco": (lambda: shared.tiny(MoCo), IMAGES),
    "kmeans": (lambda: SphericalKMeans(3, random_state=0), ROWS),
}


def write_data():
    """Make the files of the present format: `python tests/test_persistence.py`."""
    DATA.mkdir(exist_ok=True)
    expected, version = {}, KIND["version"]
    for name, (make, X) in PAST.items():
        model = make().fit(X)
        sk_mice.save(model, DATA / f"{name}-{version}.safetensors")
        for method, value in outputs(model, X).items():
            expected[f"{name}.{method}"] = value
    np.savez_compressed(DATA / f"expected-{version}.npz", **expected)


@pytest.mark.parametrize("name", PAST)
def test_files_that_were_written_before_are_read(name):
    version = KIND["version"]
    path = DATA / f"{name}-{version}.safetensors"
    assert path.stat().st_size < 100_000
    model = sk_mice.load(path)
    expected = np.load(DATA / f"expected-{version}.npz")
    for method, value in outputs(model, PAST[name][1]).items():
        np.testing.assert_allclose(
            value, expected[f"{name}.{method}"], rtol=1e-3, atol=1e-4, err_msg=method
        )
    assert model.get_params()["random_state"] == 0


@pytest.mark.parametrize(
    ("name", "version"), [("kmeans", 1), ("mice", 2), ("kmeans", 3)]
)
def test_files_of_earlier_formats_are_refused_in_words(name, version):
    reason = refused(DATA / f"{name}-{version}.safetensors")
    assert "was written by an earlier version of sk_mice" in reason
    assert f"format version {version}, and this one reads 4; fit anew" in reason


if __name__ == "__main__":
    write_data()
