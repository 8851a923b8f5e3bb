"""Encoders by name, and the user's own."""

import copy

import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from torch import nn

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
    before = copy.deepcopy(net.state_dict())
    X = np.random.default_rng(0).standard_normal((60, 6))
    mice = MiCEClustering(3, backbone=lambda: net, n_init=2, max_epochs=2).fit(X)
    assert (mice.labels_ == mice.predict(X)).all()
    for name, weight in net.state_dict().items():
        assert torch.equal(weight, before[name])


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


def test_a_backbone_without_parameters_is_probed():
    assert feature_count(nn.Flatten(), (1, 4, 4)) == 16


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
