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
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import shared
import torch
from PIL import Image
from safetensors import safe_open
from saved_models import (
    FITS,
    IMAGES,
    KIND,
    ROWS,
    Encoder,
    changed,
    fitted,
    fitting,
    made,
    outputs,
    parts_of,
    tiny,
)
from shared import quoted, raising, refused, same_generators, short_fits
from sklearn.base import BaseEstimator, clone
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
    SphericalKMeans,
    _persistence,
    augmentation,
    backbones,
)
from sk_mice._engine import storage
from sk_mice.backbones import MLP, Pretrained, SmallResNet
from sk_mice.features import PretrainedFeatures

pytestmark = short_fits
DATA = Path(__file__).parent / "data"


@pytest.fixture
def mice():
    return fitted("two stages")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.fixture
def no_file(path):
    """A path where nothing is left after the test."""
    yield path
    assert not os.listdir(path.parent)


def reloaded(model, path):
    """What comes back of a model that is saved."""
    sk_mice.save(model, path)
    return sk_mice.load(path)


def assert_predict_alike(one, other):
    found, expected = (model.predict_proba(IMAGES) for model in (one, other))
    np.testing.assert_array_equal(found, expected)


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
    sk_mice.save(pickle.loads(pickle.dumps(loaded)), again)
    assert again.read_bytes() == path.read_bytes()
    trained = [
        copy.deepcopy(model).set_params(warm_start=True).fit(IMAGES)
        for model in (mice, loaded)
    ]
    np.testing.assert_array_equal(*(model.transform(IMAGES) for model in trained))


def test_parameters_that_are_set_after_the_fit_change_no_prediction(mice, path):
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
    model = shared.tiny(MoCo, backbone=backbone, freeze=-1, max_epochs=1).fit(images)
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


class Wider(SmallResNet):
    """What it builds is not known: here a ReLU between convolution and batch norm."""

    def build(self, shape):
        network = super().build(shape)
        first = next(m for m in network.modules() if isinstance(m, nn.Conv2d))
        first.register_forward_hook(lambda layer, inputs, x: x.relu())
        return network


def test_a_backbone_of_a_class_of_the_users_own_is_given_again(path):
    model = tiny(backbone=Wider(4)).fit(IMAGES)
    with pytest.raises(ValueError, match="pass it to `load` as `backbone`"):
        reloaded(model, path)
    assert_predict_alike(sk_mice.load(path, Wider(4)), model)


def test_labels_in_a_column_of_a_table_are_kept(path):
    labels = pd.Series(np.arange(len(IMAGES)) % 3)
    model = tiny(init=labels).fit(IMAGES)
    np.testing.assert_array_equal(reloaded(model, path).init, labels)


def test_a_name_of_numpys_type_is_kept(path):
    model = tiny(init=np.str_("random"), backbone=np.str_("resnet-small")).fit(IMAGES)
    again = reloaded(model, path)
    assert (again.init, again.backbone) == ("random", "resnet-small")


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
    line_break = "" if os.name == "nt" else "\n"  # which Windows refuses
    name = str(tmp_path / f"Ünï {line_break} code")
    sk_mice.save(mice, name)
    sk_mice.load(name)


def test_the_file_is_a_safetensors_file_with_json_in_it(mice, path):
    sk_mice.save(mice, path)
    with safe_open(path, "pt") as file:
        head = json.loads(file.metadata()["sk_mice"])
        document = json.loads(bytes(file.get_tensor("document").tolist()))
        queue = file.get_tensor("model.queue")
    assert torch.equal(queue, mice._model.queue)
    assert (head["kind"], head["version"]) == ("model", 5)
    assert document["class"] == "MiCEClustering"
    assert torch.__version__.startswith(document["versions"]["torch"])
    assert document["parameters"]["tau"] == 1.0


# ----------------------------------------------------- backbones, what cannot be stored


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


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        (tiny, "random_state", np.random.RandomState(0)),
        (tiny, "augmentation", lambda stack, generator: stack),
        (tiny, "callbacks", [Callback()]),
        (SphericalKMeans, "init", lambda X, n_clusters, random_state: X[:n_clusters]),
    ],
)
def test_what_cannot_be_stored_is_named(path, make, name, value):
    model = make(n_clusters=3, **{name: value})
    X = ROWS if make is SphericalKMeans else IMAGES
    model.fit(X)
    words = f"cannot hold the parameter `{name}`: "
    with pytest.warns(UserWarning, match=words) as caught:
        sk_mice.save(model, path)
    assert caught[0].filename == __file__
    loaded = sk_mice.load(path)
    assert getattr(loaded, name) == type(model)().get_params()[name]
    np.testing.assert_array_equal(loaded.predict(X), model.labels_)


class Darker(BaseEstimator):
    """An augmentation with parameters; stands for the classes that files know."""

    _parameter_constraints: dict = {"factor": [float]}

    def __init__(self, factor=0.5):
        self.factor = factor

    def __call__(self, stack, generator):
        return self.factor * stack


@pytest.mark.parametrize("module", [augmentation, backbones])
def test_a_file_may_hold_objects_of_every_class(module):
    for name in module.__all__:
        assert _persistence.PARAMETER_CLASSES[name] is getattr(module, name)


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


def test_attributes_that_are_not_ours_are_named(mice, path):
    mice.note = "mine"
    with pytest.warns(UserWarning, match="cannot hold the attribute `note`"):
        sk_mice.save(mice, path)
    assert not hasattr(sk_mice.load(path), "note")


def test_what_is_no_fitted_model_of_ours_is_not_saved(no_file):
    class Sub(MiCEClustering):
        pass

    for model in (Sub(), object(), nn.Linear(1, 1)):
        with pytest.raises(TypeError, match=r"`model` must be a MiCE.* or a Pipeline"):
            sk_mice.save(model, no_file)
    for cls in (MiCEClustering, MoCo, SphericalKMeans):
        with pytest.raises(NotFittedError):
            sk_mice.save(cls(), no_file)


def test_bad_parameters_are_not_saved_and_wait_for_no_other_process(
    mice, no_file, monkeypatch
):
    monkeypatch.setattr(
        MiCEClustering, "_open_group", lambda self: pytest.fail("it waits")
    )
    with pytest.raises(ValueError, match="'tau' parameter"):
        sk_mice.save(mice.set_params(tau=-1.0), no_file)


def test_a_backbone_with_a_state_that_is_no_tensor_is_not_saved(no_file):
    class Odd(Encoder):
        def get_extra_state(self):
            return {"code": print}

        def set_extra_state(self, state):
            pass

    with pytest.raises(ValueError, match="`backbone` must keep only tensors"):
        sk_mice.save(tiny(backbone=Odd).fit(IMAGES), no_file)


@pytest.mark.parametrize("kind", [torch.complex128, torch.float8_e5m2])
def test_a_backbone_with_tensors_that_no_file_can_hold_is_not_saved(no_file, kind):
    backbone = Encoder()
    backbone.register_buffer("extra", torch.zeros(1, dtype=kind))
    with pytest.raises(ValueError, match=r"cannot be (written|saved): "):
        sk_mice.save(tiny(backbone=backbone).fit(IMAGES), no_file)


def test_a_folder_that_is_not_there_is_not_made(mice, no_file):
    with pytest.raises(FileNotFoundError, match="vanished"):
        sk_mice.save(mice, no_file.parent / "vanished" / "x")


@pytest.mark.parametrize(
    "place", ["queue", "gating_prototypes", "student.experts.weight"]
)
def test_a_model_that_is_not_finite_is_not_saved(mice, no_file, place):
    with torch.no_grad():
        mice._model.state_dict()[place].fill_(math.nan)
    with pytest.raises(ValueError, match=f"`model` cannot be saved: .*{place}"):
        sk_mice.save(mice, no_file)


def test_a_history_that_no_file_can_hold_is_not_saved(mice, no_file, monkeypatch):
    mice.history_ = [{"note": {1, 2}}]
    with pytest.raises(ValueError, match="its `history_` must hold data"):
        sk_mice.save(mice, no_file)
    mice.history_ = [{"note": "x" * 5_000_000}]
    monkeypatch.setattr(storage, "LARGEST_DOCUMENT", 4_000_000)
    with pytest.raises(ValueError, match=r"cannot be written: .*at most 4000000 bytes"):
        sk_mice.save(mice, no_file)


def test_a_number_of_too_many_digits_is_not_saved(no_file):
    with pytest.raises(ValueError, match=f"{quoted(no_file)} cannot be written: "):
        sk_mice.save(fitted("moco").set_params(n_neighbors=10**5000), no_file)


@pytest.mark.parametrize(
    ("name", "large"),
    [
        ("classification EM", "components_"),
        ("centred", "axes_"),
        ("neighbours", "gating_prototypes_"),
    ],
)
def test_clusterers_of_vectors_that_cannot_predict_are_not_saved(name, large, path):
    for attribute, value in vars(fitted(name)).items():
        if attribute.endswith("_") and isinstance(value, np.ndarray):
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


def test_no_code_is_run(mice, path, monkeypatch):
    sk_mice.save(mice, path)
    never = raising(AssertionError, "code was run")
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, never)
    monkeypatch.setattr(torch, "load", never)
    monkeypatch.setattr(builtins, "eval", never)
    sk_mice.load(path)


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
    features = PretrainedFeatures(
        image_size=32, background="black", out=tmp_path / "features.npy"
    )
    pipeline = make_pipeline(features, ClassificationEM(2, random_state=0)).fit(files)
    loaded = reloaded(pipeline, path)
    assert loaded[0].out is None  # a file could choose what is written
    assert loaded[0].background == "black"
    np.testing.assert_array_equal(loaded.predict(files), pipeline[-1].labels_)


def test_a_parameter_that_came_later_has_its_default(pipeline, path):
    sk_mice.save(pipeline, path)
    tensors, document = parts_of(path)
    del document["steps"][0]["parameters"]["background"]
    made(path, tensors, document)
    assert sk_mice.load(path)[0].background == "white"


@pytest.mark.parametrize(
    ("device", "loaded"),
    [("cuda", "cpu"), ("cuda:0", "cpu"), ("cpu", "cpu"), ("auto", "auto")],
)
def test_features_of_a_gpu_that_is_not_here_are_those_of_the_cpu(
    path, monkeypatch, device, loaded
):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    features = PretrainedFeatures(image_size=32)
    want = features.fit_transform(IMAGES[:6])
    found = reloaded(features.set_params(device=device), path)
    assert found.device == loaded
    np.testing.assert_array_equal(found.transform(IMAGES[:6]), want)


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


def test_pipelines_that_cannot_be_saved(pipeline, no_file):
    scaled = make_pipeline(StandardScaler(), SphericalKMeans(2)).fit(ROWS)
    with pytest.raises(
        TypeError, match="step 'standardscaler' of `model` must be a Mi"
    ):
        sk_mice.save(scaled, no_file)
    module = nn.Flatten()
    module.transforms = nn.Identity()
    own = make_pipeline(PretrainedFeatures(module), SphericalKMeans(2)).fit(IMAGES)
    with pytest.raises(TypeError, match=r"`network` of step 'pretrain.* be a name"):
        sk_mice.save(own, no_file)
    with pytest.raises(NotFittedError):
        sk_mice.save(clone(pipeline), no_file)


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
    model = shared.tiny(MoCo, backbone=MLP(4)).fit(X)
    sk_mice.save(model, path)
    assert header_bytes(path) < 20_000
    loaded = sk_mice.load(path)
    assert list(loaded.feature_names_in_) == names
    np.testing.assert_array_equal(loaded.transform(X), model.transform(X))


# ------------------------------------------------------- files that were written before


SINGLE = {"precision": "float32"}  # the same on every machine
PAST = {
    "mice": (lambda: tiny(max_epochs=70, batch_size=16, **SINGLE), IMAGES),
    "moco": (lambda: shared.tiny(MoCo, **SINGLE), IMAGES),
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
    ("name", "version"), [("kmeans", 1), ("mice", 2), ("kmeans", 3), ("kmeans", 4)]
)
def test_files_of_earlier_formats_are_refused_in_words(name, version):
    reason = refused(DATA / f"{name}-{version}.safetensors")
    assert "was written by an earlier version of sk_mice" in reason
    assert f"format version {version}, and this one reads 5; fit anew" in reason


if __name__ == "__main__":
    write_data()
