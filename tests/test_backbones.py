"""Encoders by name, and the user's own."""

import pytest
import torch
from torch import nn

from sk_mice._engine.backbones import (
from sk_mice.backbones import SmallResNet
    BACKBONES,
    MLP,
    SmallResNet,
    _Subsample,
    backbone_name,
    build_backbone,
    feature_count,
)

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "shape", "features"),
    [
        ("mlp", (7,), 256),
        ("mlp", (1, 16, 16), 256),
        ("resnet-small", (1, 28, 28), 128),
        ("resnet-small", (4, 20, 33), 128),
        (SmallResNet(8), (1, 20, 20), 64),
        ("resnet-small-maxpool", (1, 28, 28), 128),
        (SmallResNet(8, max_pool=True), (3, 96, 96), 64),
        ("resnet34-maxpool", (3, 32, 32), 512),
        ("resnet18", (3, 32, 32), 512),
        ("resnet34", (1, 32, 32), 512),
        ("resnet50", (3, 32, 32), 2048),
        ("resnet18", (4, 96, 96), 512),
    ],
)
def test_named_backbones_map_samples_to_features(name, shape, features):
    assert feature_count(build_backbone(name, shape, device=CPU), shape) == features


def test_stem_follows_the_image_size():
    small = build_backbone("resnet18", (3, 64, 64), device=CPU)
    assert (small.conv1.kernel_size, small.conv1.stride) == ((3, 3), (1, 1))
    assert isinstance(small.maxpool, nn.Identity)
    kept = build_backbone("resnet18-maxpool", (3, 64, 64), device=CPU)
    assert isinstance(kept.maxpool, nn.MaxPool2d)
    large = build_backbone("resnet18", (3, 96, 96), device=CPU)
    assert (large.conv1.kernel_size, large.conv1.stride) == ((7, 7), (2, 2))
    assert isinstance(large.maxpool, nn.MaxPool2d)


@pytest.mark.parametrize(
    ("name", "size", "first_stage"),
    [
        ("resnet-small", 96, 96),
        ("resnet-small-maxpool", 28, 14),
        ("resnet-small-maxpool", 64, 32),
        ("resnet-small-maxpool", 96, 24),
    ],
)
def test_max_pooling_makes_images_smaller_before_the_first_stage(
    name, size, first_stage
):
    net = build_backbone(name, (1, size, size), device=CPU)
    blocks = [module for module in net.layers if type(module) is type(net.layers[-1])]
    seen = []
    blocks[0].register_forward_hook(lambda module, args, out: seen.append(out.shape))
    net(torch.zeros(2, 1, size, size))
    assert seen[0][2:] == (first_stage, first_stage)


@pytest.mark.parametrize(
    ("shape", "device", "kind"),
    [
        ((5,), "cpu", "Sequential"),
        ((1, 16, 16), "cpu", "SmallResNet"),
        ((3, 32, 32), "cuda", "ResNet"),
    ],
)
def test_auto_follows_input_and_device(shape, device, kind):
    backbone = build_backbone("auto", shape, device=torch.device(device))
    assert type(backbone).__name__ == kind


def test_a_module_is_copied_with_its_weights():
    mine = SmallResNet(1, width=4)
    copied = build_backbone(mine, (1, 16, 16), device=CPU)
    assert copied is not mine
    for a, b in zip(mine.parameters(), copied.parameters(), strict=True):
        assert torch.equal(a, b)
        assert a.data_ptr() != b.data_ptr()


def test_a_factory_is_called():
    assert isinstance(
        build_backbone(lambda: SmallResNet(1, width=4), (1, 16, 16), device=CPU),
        SmallResNet,
    )


def test_a_backbone_without_parameters_is_probed():
    assert feature_count(nn.Flatten(), (1, 4, 4)) == 16


@pytest.mark.parametrize(
    ("backbone", "shape", "error", "message"),
    [
        (
            "resnet99",
            (3, 32, 32),
            ValueError,
            r"`backbone` must be \"auto\".*'resnet99'",
        ),
        ("resnet18", (12,), ValueError, r"takes images, but X holds vectors of 12"),
        (7, (12,), TypeError, r"`backbone` must be a name.*got int"),
        (lambda: "x", (12,), TypeError, r"`backbone` must be a name.*got str"),
    ],
)
def test_refusals(backbone, shape, error, message):
    with pytest.raises(error, match=message):
        build_backbone(backbone, shape, device=CPU)


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
        net = SmallResNet(1, width=4).to(memory_format=torch.channels_last)
        for _ in range(20):
            net(torch.rand(27, 1, 16, 16)).square().mean().backward()
    finally:
        torch.set_num_threads(n_threads)


def test_every_listed_name_is_built():
    for name in BACKBONES:
        assert isinstance(build_backbone(name, (3, 32, 32), device=CPU), nn.Module)


@pytest.mark.parametrize(
    ("backbone", "shape", "device", "name"),
    [
        ("auto", (5,), "cuda", "mlp"),
        ("auto", (1, 16, 16), "cpu", "resnet-small"),
        ("auto", (1, 16, 16), "cuda", "resnet18"),
        ("resnet34-maxpool", (1, 16, 16), "cpu", "resnet34-maxpool"),
        (nn.Linear(1, 1), (1,), "cpu", None),
        (MLP, (1,), "cpu", None),
    ],
)
def test_the_name_says_what_was_built(backbone, shape, device, name):
    assert backbone_name(backbone, shape, device=torch.device(device)) == name


def test_a_module_is_probed_where_it_lies():
    # On "meta" there are shapes and no values.
    module = MLP(5).to("meta")
    with torch.device("cpu"):
        assert feature_count(module, (5,)) == 256
    with torch.device("meta"):
        assert feature_count(nn.Flatten(), (1, 4, 4)) == 16
