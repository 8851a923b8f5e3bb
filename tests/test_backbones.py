"""Encoders by name, and the user's own."""

import numpy as np
import pytest
import torch
from shared import assert_same_state, state_of
from sklearn.model_selection import GridSearchCV
from torch import nn

import sk_mice
from sk_mice import MiCEClustering, MoCo
from sk_mice.backbones import (
    MLP,
    NAMED,
    ResNet,
    SmallResNet,
    _Subsample,
    build_backbone,
    feature_count,
    resolve_backbone,
)

CPU = torch.device("cpu")


def build(backbone, shape):
    return build_backbone(resolve_backbone(backbone, shape, CPU), shape)


@pytest.mark.parametrize(
    ("backbone", "shape", "features"),
    [
        ("mlp", (7,), 256),
        ("mlp", (1, 16, 16), 256),
        (MLP(8, n_layers=3), (5,), 8),
        ("resnet-small", (1, 28, 28), 128),
        ("resnet-small", (4, 20, 33), 128),
        (SmallResNet(8), (1, 20, 20), 64),
        (SmallResNet(max_pool=True), (1, 28, 28), 128),
        (SmallResNet(8, max_pool=True), (3, 96, 96), 64),
        (SmallResNet(8, blocks=(1, 2)), (1, 20, 20), 16),
        (ResNet(34, max_pool=True), (3, 32, 32), 512),
        (ResNet(np.int64(18)), (1, 16, 16), 512),
        ("resnet18", (3, 32, 32), 512),
        ("resnet34", (1, 32, 32), 512),
        ("resnet50", (3, 32, 32), 2048),
        ("resnet18", (4, 96, 96), 512),
    ],
)
def test_backbones_map_samples_to_features(backbone, shape, features):
    assert feature_count(build(backbone, shape), shape) == features


def test_stem_follows_the_image_size():
    small = build("resnet18", (3, 64, 64))
    assert (small.conv1.kernel_size, small.conv1.stride) == ((3, 3), (1, 1))
    assert isinstance(small.maxpool, nn.Identity)
    kept = build(ResNet(18, max_pool=True), (3, 64, 64))
    assert isinstance(kept.maxpool, nn.MaxPool2d)
    large = build("resnet18", (3, 96, 96))
    assert (large.conv1.kernel_size, large.conv1.stride) == ((7, 7), (2, 2))
    assert isinstance(large.maxpool, nn.MaxPool2d)


@pytest.mark.parametrize(
    ("max_pool", "size", "first_stage"),
    [
        (False, 96, 96),
        (True, 28, 14),
        (True, 64, 32),
        (True, 96, 24),
    ],
)
def test_max_pooling_makes_images_smaller_before_the_first_stage(
    max_pool, size, first_stage
):
    net = build(SmallResNet(max_pool=max_pool), (1, size, size))
    blocks = [module for module in net.layers if type(module) is type(net.layers[-1])]
    seen = []
    blocks[0].register_forward_hook(lambda module, args, out: seen.append(out.shape))
    net(torch.zeros(2, 1, size, size))
    assert seen[0][2:] == (first_stage, first_stage)


def test_auto_follows_input_and_device():
    for shape, device, name in (
        ((5,), "cpu", "mlp"),
        ((5,), "cuda", "mlp"),
        ((1, 16, 16), "cpu", "resnet-small"),
        ((3, 32, 32), "cuda", "resnet18"),
    ):
        assert resolve_backbone("auto", shape, torch.device(device)) is NAMED[name]


def test_a_module_is_copied_with_its_weights():
    mine = SmallResNet(4).build((1, 16, 16))
    copied = build(mine, (1, 16, 16))
    assert copied is not mine
    for a, b in zip(mine.parameters(), copied.parameters(), strict=True):
        assert torch.equal(a, b)
        assert a.data_ptr() != b.data_ptr()


def test_what_a_factory_returns_is_not_trained():
    net = torch.nn.Linear(6, 8)
    before = state_of(net)
    X = np.random.default_rng(0).standard_normal((60, 6))
    mice = MiCEClustering(3, backbone=lambda: net, n_init=2, max_epochs=2).fit(X)
    assert (mice.labels_ == mice.predict(X)).all()
    assert_same_state(net, before)


class Flat(MLP):
    def build(self, shape):
        return nn.Flatten()


def test_a_backbone_of_one_s_own_may_have_no_weights():
    X = np.random.default_rng(0).standard_normal((60, 6))
    mice = MiCEClustering(3, backbone=Flat(), max_epochs=2).fit(X)
    assert (mice.labels_ == mice.predict(X)).all()


class Convolution(nn.Module):
    """A network as people write them: it may scale in place, and flatten by `view`."""

    def __init__(self, *, in_place=False, view=False):
        super().__init__()
        self.in_place, self.view = in_place, view
        self.convolution, self.last = nn.Conv2d(1, 4, 3), nn.Linear(4 * 14 * 14, 8)

    def forward(self, x):
        x = x.mul_(2).add_(1) if self.in_place else x * 2 + 1
        x = self.convolution(x).relu()
        return self.last(x.view(len(x), -1) if self.view else x.flatten(1))


SMALL = {"max_epochs": 2, "batch_size": 20, "queue_size": 20, "random_state": 0}


@pytest.mark.filterwarnings("ignore:Empty clusters")
def test_own_networks_may_write_on_what_they_get():
    X = np.random.default_rng(0).random((40, 16, 16), dtype=np.float32)
    careful, in_place = Convolution(), Convolution(in_place=True)
    in_place.load_state_dict(careful.state_dict())
    one, other = (MiCEClustering(3, backbone=n, **SMALL) for n in (careful, in_place))
    np.testing.assert_array_equal(*(m.fit(X).predict_proba(X) for m in (one, other)))


@pytest.mark.filterwarnings("ignore:Empty clusters")
def test_own_networks_may_view_what_a_convolution_returns(tmp_path):
    X = np.random.default_rng(0).random((40, 16, 16), dtype=np.float32)
    mice = MiCEClustering(3, backbone=Convolution(view=True), **SMALL).fit(X)
    np.testing.assert_array_equal(mice.predict(X), mice.labels_)
    sk_mice.save(mice, tmp_path / "model")
    loaded = sk_mice.load(tmp_path / "model", backbone=Convolution(view=True))
    np.testing.assert_array_equal(loaded.predict_proba(X), mice.predict_proba(X))


class Masked(nn.Module):
    """A network with a mask of attention, whose values are not finite."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 16, dropout=0, batch_first=True)
        mask = nn.Transformer.generate_square_subsequent_mask(16)
        self.register_buffer("mask", mask)

    def forward(self, x):
        return self.layer(x[:, 0], src_mask=self.mask).mean(1)


def test_a_mask_is_no_sign_of_divergence(tmp_path):
    X = np.random.default_rng(0).random((40, 16, 16), dtype=np.float32)
    moco = MoCo(backbone=Masked(), **SMALL).fit(X)
    sk_mice.save(moco, tmp_path / "model")
    loaded = sk_mice.load(tmp_path / "model", backbone=Masked)
    np.testing.assert_array_equal(loaded.transform(X), moco.transform(X))


def test_a_factory_is_called():
    assert isinstance(build(nn.Flatten, (1, 16, 16)), nn.Flatten)


def test_a_search_can_set_the_parts_of_a_network():
    grid = {"backbone__width": [2, 4], "backbone__max_pool": [True]}
    moco = MoCo(backbone="resnet-small", max_epochs=1)
    search = GridSearchCV(moco, grid, cv=2)
    X = np.random.default_rng(0).random((20, 16, 16))
    found = search.fit(X).best_estimator_
    assert found.backbone.max_pool is True
    assert found.backbone_.layers[0].out_channels == found.backbone.width
    assert moco.backbone == "resnet-small"
    assert NAMED["resnet-small"].width == 16


@pytest.mark.parametrize(
    "memory_format", [torch.contiguous_format, torch.channels_last]
)
@pytest.mark.parametrize(("size", "stride"), [(8, 2), (7, 2), (7, 3), (1, 2)])
def test_a_subsample_is_a_slice_whose_gradient_keeps_the_format(
    size, stride, memory_format
):
    x = torch.randn(2, 3, size, size + 1, dtype=torch.double)
    x = x.contiguous(memory_format=memory_format).requires_grad_()
    some = _Subsample.apply(x, stride)
    torch.testing.assert_close(some, x[:, :, ::stride, ::stride], rtol=0, atol=0)
    (gradient,) = torch.autograd.grad(some.square().sum(), x)
    (expected,) = torch.autograd.grad(x[:, :, ::stride, ::stride].square().sum(), x)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=0)
    assert some.is_contiguous(memory_format=memory_format)
    assert gradient.is_contiguous(memory_format=memory_format)


def test_narrow_networks_train_on_several_threads():
    # Strided 1x1 convolutions of few channels corrupt memory in the backward pass of
    # torch 2.15 on a CPU: the process would crash here or soon after.
    n_threads = torch.get_num_threads()
    torch.set_num_threads(max(2, n_threads))
    try:
        net = SmallResNet(4).build((1, 16, 16)).to(memory_format=torch.channels_last)
        for _ in range(8):
            net(torch.rand(27, 1, 16, 16)).square().mean().backward()
    finally:
        torch.set_num_threads(n_threads)


def test_a_module_is_probed_where_it_lies():
    # On "meta" there are shapes and no values.
    module = MLP().build((5,)).to("meta")
    with torch.device("cpu"):
        assert feature_count(module, (5,)) == 256
    with torch.device("meta"):
        assert feature_count(nn.Flatten(), (1, 4, 4)) == 16
