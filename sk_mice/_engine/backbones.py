"""Encoders: what turns a batch of samples into features (B, F)."""

import copy
import math
import re
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = [
    "BACKBONES",
    "MLP",
    "SmallResNet",
    "backbone_name",
    "build_backbone",
    "check_training",
    "feature_count",
]

CIFAR_STEM_UP_TO = 64  # pixels; above, the stem halves images once more, as ImageNet's


class MLP(nn.Module):
    """Two hidden layers with batch normalisation, for vectors.

    Parameters
    ----------
    in_features : int
    width : int, default=256
    """

    def __init__(self, in_features: int, width: int = 256):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(in_features, width, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(inplace=True),
            nn.Linear(width, width, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class _Subsample(torch.autograd.Function):
    """Every stride-th pixel, x[:, :, ::stride, ::stride], in the memory format of x.

    So is its gradient. That of a slice has the same values but is contiguous, and sums
    and products of it with channels-last tensors are slow.
    """

    @staticmethod
    def forward(ctx, x, stride):
        channels_last = x.is_contiguous(memory_format=torch.channels_last)
        ctx.format = torch.channels_last if channels_last else torch.contiguous_format
        ctx.shape, ctx.stride = x.shape, stride
        return x[:, :, ::stride, ::stride].contiguous(memory_format=ctx.format)

    @staticmethod
    def backward(ctx, grad):
        like = {"dtype": grad.dtype, "device": grad.device}
        whole = torch.empty(ctx.shape, memory_format=ctx.format, **like).zero_()
        whole[:, :, :: ctx.stride, :: ctx.stride] = grad
        return whole, None


class _BasicBlock(nn.Module):
    def __init__(self, c_in: int, c_out: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.stride = stride
        self.shortcut = None
        if stride != 1 or c_in != c_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(c_in, c_out, 1, bias=False), nn.BatchNorm2d(c_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        if self.shortcut is not None:
            # The stride of the 1x1 convolution. Left to the convolution, its backward
            # pass corrupts memory in torch 2.15 on a CPU (channels-last, fewer than 16
            # channels, more than one thread).
            shortcut = self.shortcut(_Subsample.apply(x, self.stride))
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(x)).add_(shortcut), inplace=True)


class SmallResNet(nn.Module):
    """A residual network for small images and CPUs.

    Four stages of basic blocks (He et al., 2016) of 1, 2, 4 and 8 times `width`
    channels, at full, half, quarter and eighth of the size that the stem leaves.

    Parameters
    ----------
    channels : int
        C of the images.
    width : int, default=16
        Channels of the first stage.
    blocks : sequence of int, default=(1, 1, 1, 1)
        Blocks of each stage.
    reduction : {1, 2, 4}, default=1
        By how much the stem makes the image smaller: 2 is done by max-pooling, 4 by a
        convolution with a stride before it.
    """

    def __init__(
        self, channels: int, width: int = 16, blocks=(1, 1, 1, 1), reduction: int = 1
    ):
        super().__init__()
        layers = [
            nn.Conv2d(channels, width, 3, max(1, reduction // 2), 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
        ]
        if reduction > 1:
            layers.append(nn.MaxPool2d(3, 2, 1))
        c_in = width
        for stage, n_blocks in enumerate(blocks):
            for block in range(n_blocks):
                c_out = width * 2**stage
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(_BasicBlock(c_in, c_out, stride))
                c_in = c_out
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).mean(dim=(2, 3))


def _torchvision_resnet(name: str, shape, max_pool: bool) -> nn.Module:
    # Imported when used: torchvision takes longer to import than all of ours.
    from torchvision import models

    channels, height, width = shape
    net = getattr(models, name)(weights=None)
    net.fc = nn.Identity()
    if max(height, width) <= CIFAR_STEM_UP_TO:
        net.conv1 = nn.Conv2d(channels, 64, 3, 1, 1, bias=False)
        if not max_pool:
            net.maxpool = nn.Identity()
    elif channels != 3:
        net.conv1 = nn.Conv2d(channels, 64, 7, 2, 3, bias=False)
    return net


# Each name with what it takes after a hyphen.
BACKBONES = {
    "mlp": None,
    "resnet-small": 'its width, 16 by default, and "maxpool"',
    "resnet18": '"maxpool"',
    "resnet34": '"maxpool"',
    "resnet50": '"maxpool"',
}
_NAME = re.compile(
    r"mlp|((?P<small>resnet-small)(-(?P<width>[1-9]\d*))?|(?P<resnet>resnet(18|34|50)))"
    r"(?P<max_pool>-maxpool)?"
)


def build_backbone(backbone, shape, *, device) -> nn.Module:
    """A backbone by name, or the user's own.

    Parameters
    ----------
    backbone : str, nn.Module or callable
        "auto", a name, a module (copied, its weights are the start) or a factory
        without arguments. The names are "mlp", "resnet-small" or "resnet-small-W" with
        W channels in the first stage, and "resnet18", "resnet34" and "resnet50". The
        stem for images up to 64 pixels comes without max-pooling as in the paper's
        appendix, with it in "resnet-small-maxpool", "resnet18-maxpool" and so on.
    shape : tuple (C, H, W) or (F,)
        Shape of one view.
    device : torch.device
        "auto" takes "mlp" for vectors, "resnet-small" for images on a CPU, "resnet18"
        for images on an accelerator.

    Returns
    -------
    nn.Module
        Maps (B, *shape) to (B, F).

    Raises
    ------
    ValueError, TypeError
        If `backbone` is unknown or does not fit the samples.
    """
    if isinstance(backbone, nn.Module):
        return _copied(backbone)
    if not isinstance(backbone, str):
        return _from_factory(backbone)
    backbone = backbone_name(backbone, shape, device=device)
    name = _NAME.fullmatch(backbone)
    if name is None:
        names = ", ".join(
            f'"{known}"' + (f" (-{option})" if option else "")
            for known, option in BACKBONES.items()
        )
        raise ValueError(
            f'`backbone` must be "auto", {names}, a module or a factory of one; got '
            f"{backbone!r}."
        )
    if backbone == "mlp":
        return nn.Sequential(nn.Flatten(), MLP(math.prod(shape)))
    if len(shape) != 3:
        raise ValueError(
            f"`backbone`={backbone!r} takes images, but X holds vectors of "
            f'{shape[0]} features; use "mlp", or set `image_shape`.'
        )
    if name["small"]:
        reduction = 1
        if name["max_pool"]:
            reduction = 2 if max(shape[1:]) <= CIFAR_STEM_UP_TO else 4
        width = int(name["width"] or 16)
        return SmallResNet(shape[0], width=width, reduction=reduction)
    return _torchvision_resnet(name["resnet"], shape, bool(name["max_pool"]))


def backbone_name(backbone, shape, *, device) -> str | None:
    """The name of what `build_backbone` builds; None of the user's own."""
    if not isinstance(backbone, str):
        return None
    if backbone != "auto":
        return backbone
    if len(shape) != 3:
        return "mlp"
    return "resnet-small" if device.type == "cpu" else "resnet18"


def _from_factory(factory) -> nn.Module:
    module = factory() if callable(factory) else None
    if not isinstance(module, nn.Module):
        got = type(factory if module is None else module).__name__
        raise TypeError(
            "`backbone` must be a name, an nn.Module or a factory that returns one; "
            f"got {got}."
        )
    return module


def _copied(module: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(module)
    except Exception as error:  # of whatever the module keeps
        raise ValueError(
            "`backbone` must be a module that can be copied; copying "
            f"{type(module).__name__} raised {type(error).__name__}: {error}"
        ) from error


def feature_count(backbone: nn.Module, shape) -> int:
    """F of a backbone that maps (B, *shape) to (B, F).

    Raises
    ------
    ValueError
        If it does not.
    """
    was_training = backbone.training
    backbone.eval()  # a probe must not touch batch-norm statistics
    with torch.no_grad(), _device(backbone):  # also what the module makes lies there
        features = _probed(backbone, torch.zeros(2, *shape, dtype=torch.float32))
    backbone.train(was_training)
    return features.shape[1]


def check_training(backbone: nn.Module, shape) -> None:
    """Raise ValueError unless a user's own backbone can be trained.

    It is tried on a copy, whose draws are its own: to be called within `OwnDraws`.
    """
    device = _device(backbone)
    if device.type == "meta":
        raise ValueError("`backbone` must have weights; those on meta have no values.")
    copied = _copied(backbone).train()
    x = torch.randn(2, *shape, dtype=torch.float32)
    cuda = [device] if device.type == "cuda" else []  # whose dropout has one generator
    with torch.random.fork_rng(cuda, enabled=bool(cuda)), torch.enable_grad():
        features = _probed(copied, x.to(device), backward=True)
    if not features.isfinite().all():
        raise ValueError(
            "`backbone` must return finite features; "
            f"{type(backbone).__name__} does not in training mode."
        )


def _device(module) -> torch.device:
    tensors = chain(module.parameters(), module.buffers())
    return next((tensor.device for tensor in tensors), torch.device("cpu"))


def _probed(module, x, *, backward=False) -> Tensor:
    """What a module makes of a batch, and perhaps the way back; as it has to be."""
    name = type(module).__name__
    needed = f"`backbone` must map (B, {', '.join(map(str, x.shape[1:]))}) to (B, F)"
    mode = "in training mode " if module.training else ""
    try:
        features = module(x)
        if backward and isinstance(features, Tensor) and features.requires_grad:
            features.sum().backward()
    except Exception as error:  # the user's code may raise anything
        raise ValueError(
            f"{needed}; {name} {mode}raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(features, Tensor):
        got = type(features)
    elif features.ndim != 2 or len(features) != len(x) or not features.shape[1]:
        got = tuple(features.shape)
    elif features.dtype != torch.float32:
        got, needed = features.dtype, f"{needed} in float32"
    else:
        return features
    raise ValueError(f"{needed}; {name} {mode}returned {got} for B={len(x)}.")
