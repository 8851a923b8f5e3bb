"""Backbones: networks that turn a batch of samples into features (B, F).

`MLP`, `SmallResNet`, `ResNet` and `Pretrained` describe networks by parameters, which a
search can set as in ``backbone__width``. `build` makes the module. The `backbone` of an
estimator can also be a short name, a module, or a factory of modules.
"""

import copy
import math
import os
from itertools import chain
from numbers import Integral
from typing import Any

import torch
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Options, StrOptions
from torch import Tensor, nn
from torch.nn import functional as F

from ._constraints import LARGEST_COUNT, Count, check_call
from ._engine.ambient import OwnDraws
from ._fitting import plain_numbers
from ._pretrained import EndToEnd, at_a_size, check_channels, find_network

__all__ = ["MLP", "Pretrained", "ResNet", "SmallResNet"]

CIFAR_STEM_UP_TO = 64  # pixels; for larger images the stem is that for ImageNet
LARGEST_SIDE = 1024  # pixels, of the input of a pretrained network
LARGEST_DEPTH = 1000  # layers, or blocks: more take minutes to count


# ------------------------------------------------------------------------ descriptions


class Backbone(BaseEstimator):
    """A network, described by its parameters."""

    def build(self, shape) -> nn.Module:
        """Make the network, with the weights that training starts from.

        Parameters
        ----------
        shape : tuple (C, H, W) or (F,)
            Shape of one view.

        Returns
        -------
        nn.Module
            Maps (B, *shape) to (B, F).

        Raises
        ------
        ValueError
            If a parameter is invalid, or the network does not take such samples.
        ImportError, OSError, TypeError
            As :meth:`sk_mice.features.PretrainedFeatures.fit`, if it is pretrained.
        """
        self._validate_params()
        with plain_numbers(self):
            return self._build(tuple(shape))

    def _refuse_vectors(self, shape) -> None:
        if len(shape) != 3:
            raise ValueError(
                f"`backbone`={self} takes images, but X holds vectors of {shape[0]} "
                'features; use "mlp", or set `image_shape`.'
            )


class MLP(Backbone):
    """Hidden layers with batch normalisation, for vectors.

    Parameters
    ----------
    width : int, default=256
        Units of each layer.
    n_layers : int, default=2
        Number of hidden layers.

    Examples
    --------
    >>> from sk_mice.backbones import MLP
    >>> sum(p.numel() for p in MLP(width=32).build((10,)).parameters())
    1472
    """

    _parameter_constraints: dict = {
        "width": [Count(1, LARGEST_COUNT)],
        "n_layers": [Count(1, LARGEST_DEPTH)],
    }

    def __init__(self, width=256, *, n_layers=2) -> None:
        self.width = width
        self.n_layers = n_layers

    def _build(self, shape):
        layers, n_in = [nn.Flatten()], math.prod(shape)
        for _ in range(self.n_layers):
            layers += [
                nn.Linear(n_in, self.width, bias=False),
                nn.BatchNorm1d(self.width),
                nn.ReLU(inplace=True),
            ]
            n_in = self.width
        return nn.Sequential(*layers)


class SmallResNet(Backbone):
    """A residual network for small images and CPUs.

    The stages consist of basic blocks (He et al., 2016). They have 1, 2, 4, ... times
    `width` channels, at the full, half, quarter, ... of the size after the stem. The
    stem keeps the size of the image, or with `max_pool` reduces it to a half (to a
    quarter above 64 pixels).

    Parameters
    ----------
    width : int, default=16
        Channels of the first stage.
    blocks : sequence of int, default=(1, 1, 1, 1)
        Blocks of each stage.
    max_pool : bool, default=False
        Whether the stem halves the image by max-pooling (and, above 64 pixels, once
        more by a stride). For small images, training then takes about half of the time,
        which leaves a short fit more epochs.

    Examples
    --------
    >>> from sk_mice import MiCEClustering
    >>> from sk_mice.backbones import SmallResNet
    >>> mice = MiCEClustering(10, backbone=SmallResNet(width=32))
    >>> mice.set_params(backbone__max_pool=True).backbone
    SmallResNet(max_pool=True, width=32)
    """

    _parameter_constraints: dict = {
        "width": [Count(1, LARGEST_COUNT)],
        "blocks": [tuple, list],
        "max_pool": ["boolean"],
    }

    def __init__(self, width=16, *, blocks: Any = (1, 1, 1, 1), max_pool=False) -> None:
        self.width = width
        self.blocks = blocks
        self.max_pool = max_pool

    def _build(self, shape):
        self._refuse_vectors(shape)
        valid = Count(1, LARGEST_DEPTH).is_satisfied_by
        if not (all(map(valid, self.blocks)) and 0 < sum(self.blocks) <= LARGEST_DEPTH):
            raise ValueError(
                f"`blocks` of SmallResNet must be integers from 1 to {LARGEST_DEPTH}, "
                f"one for each stage, whose sum is at most {LARGEST_DEPTH}; got "
                f"{self.blocks!r}."
            )
        reduction = 1
        if self.max_pool:
            reduction = 2 if max(shape[1:]) <= CIFAR_STEM_UP_TO else 4
        return _SmallResNet(shape[0], self.width, self.blocks, reduction)


class ResNet(Backbone):
    """The residual networks of He et al. (2016), from torchvision.

    For images up to 64 pixels, the stem is that of the paper's appendix: a 3 x 3
    convolution without stride. Weights are random.

    Parameters
    ----------
    depth : {18, 34, 50}, default=18
        Number of layers.
    max_pool : bool, default=False
        Whether the stem for images up to 64 pixels has max-pooling, which halves them.
        The stem for larger images always has it.

    Examples
    --------
    >>> from sk_mice.backbones import ResNet
    >>> ResNet(34).build((3, 32, 32)).layer1[0].conv1.kernel_size
    (3, 3)
    """

    _parameter_constraints: dict = {
        "depth": [Options(Integral, {18, 34, 50})],
        "max_pool": ["boolean"],
    }

    def __init__(self, depth=18, *, max_pool=False) -> None:
        self.depth = depth
        self.max_pool = max_pool

    def _build(self, shape):
        self._refuse_vectors(shape)
        # Imported here, as torchvision takes longer to import than this package.
        from torchvision import models

        channels, *sides = shape
        net = getattr(models, f"resnet{self.depth}")(weights=None)
        net.fc = nn.Identity()
        if max(sides) <= CIFAR_STEM_UP_TO:
            net.conv1 = nn.Conv2d(channels, 64, 3, 1, 1, bias=False)
            if not self.max_pool:
                net.maxpool = nn.Identity()
        elif channels != 3:
            net.conv1 = nn.Conv2d(channels, 64, 7, 2, 3, bias=False)
        return net


class Pretrained(Backbone):
    """A network that has been trained on other images, as the start of training.

    It comes with its own preprocessing: it gets views as images with values from 0 to
    1, which are not standardised, scales them to `image_size`, and normalises them in
    the same way as its training images. Grey images get three equal channels; a fourth
    channel is left out. Its classifier is taken off, and maps of features are averaged
    over their pixels.

    Parameters
    ----------
    network : str or nn.Module, default="efficientnet-lite0"
        See :class:`sk_mice.features.PretrainedFeatures`.
    weights : str or path-like, default=None
        See :class:`sk_mice.features.PretrainedFeatures`.
    image_size : int or "auto", default="auto"
        Side of the network's input in pixels; time and memory grow with its square.
        "auto" is chosen as in :class:`sk_mice.features.PretrainedFeatures`, by the
        size of the views.

    See Also
    --------
    sk_mice.features.PretrainedFeatures : The same networks without training.

    Examples
    --------
    Only the last of the network's 18 blocks is trained:

    >>> from sk_mice import MiCEClustering
    >>> from sk_mice.backbones import Pretrained
    >>> network = Pretrained("efficientnet-lite0", image_size=64)
    >>> mice = MiCEClustering(10, backbone=network, freeze="all but last", lr=0.03)
    >>> mice.set_params(backbone__image_size=96).backbone
    Pretrained(image_size=96)
    """

    _parameter_constraints: dict = {
        "network": [str, nn.Module],
        "weights": [str, os.PathLike, None],
        "image_size": [Count(1, LARGEST_SIDE), StrOptions({"auto"})],
    }

    def __init__(
        self,
        network: Any = "efficientnet-lite0",
        *,
        weights=None,
        image_size: Any = "auto",
    ) -> None:
        self.network = network
        self.weights = weights
        self.image_size = image_size

    def _build(self, shape, filled=True):
        """The network, or with `filled` False one without weights, for a file's."""
        self._refuse_vectors(shape)
        check_channels(shape[0])
        source = find_network(self.network, self.weights if filled else None)

        def make(size):
            module = EndToEnd(source.build(size, filled=filled))
            feature_count(module, shape)
            return module

        return at_a_size(self.image_size, source.own_size, min(shape[1:]), make)


# Networks that follow from their parameters alone, also in a file. They take images of
# any size, and the biases of a batch norm are their last weights.
OURS = MLP, ResNet, SmallResNet
NAMED = {
    "mlp": MLP(),
    "resnet-small": SmallResNet(),
    "resnet18": ResNet(18),
    "resnet34": ResNet(34),
    "resnet50": ResNet(50),
}


# ------------------------------------------------------------ an estimator's backbone


def resolve_backbone(backbone, shape, device):
    """An estimator's `backbone` as an object, a module or a factory.

    A pretrained network becomes a module. To be called within `OwnDraws`. "auto" is
    "mlp" for vectors, "resnet-small" for images on a CPU, "resnet18" for images on an
    accelerator. Raises ValueError or TypeError for anything else.
    """
    if isinstance(backbone, str):
        if backbone == "auto":
            of_images = "resnet-small" if device.type == "cpu" else "resnet18"
            backbone = of_images if len(shape) == 3 else "mlp"
        if backbone not in NAMED:
            names = ", ".join(f'"{name}"' for name in ("auto", *NAMED))
            raise ValueError(
                f"`backbone` must be {names}, an object of `sk_mice.backbones`, a "
                f"module or a factory of one; got {backbone!r}."
            )
        return NAMED[backbone]
    if isinstance(backbone, Pretrained):
        return backbone.build(shape)  # a fit trains copies of it
    if isinstance(backbone, Backbone | nn.Module):
        return own_copy(backbone)
    if callable(backbone):
        check_call(backbone, "`backbone` must be a factory without arguments", 0)
        return backbone
    raise TypeError(_no_backbone(backbone))


def own_copy(value):
    """A copy of a `Backbone`, which shares its modules; any other value as it is.

    Later changes of the parameters do not reach the copy.
    """
    if not isinstance(value, Backbone):
        return value
    own = copy.copy(value)
    for name, part in vars(own).items():
        if isinstance(part, list):
            setattr(own, name, [*part])
    return own


def takes_pixels(backbone) -> bool:
    """Whether a backbone wants images from 0 to 1, and standardises them itself."""
    return isinstance(backbone, Pretrained | EndToEnd)


def build_backbone(resolved, shape) -> nn.Module:
    """The module of a resolved backbone; a module is copied, a factory called."""
    if isinstance(resolved, Backbone):
        return resolved.build(shape)
    if isinstance(resolved, nn.Module):
        return _copied(resolved)
    module = resolved()
    if not isinstance(module, nn.Module):
        raise TypeError(_no_backbone(module))
    try:  # it may be the same module each time
        return copy.deepcopy(module)
    except Exception:  # modules that cannot be copied need a factory
        return module


def weight_count(resolved, shape) -> tuple[int, int]:
    """Numbers of weights and of features F, without allocating memory for them.

    Where the user's own network does not tell them, they are 0 and 1. To be called
    within `OwnDraws`. Raises ValueError if a parameter is invalid, or there are too
    many weights for any tensor.
    """
    if isinstance(resolved, nn.Module):  # layers that are lazy have no size yet
        sized = (p for p in resolved.parameters() if not nn.parameter.is_lazy(p))
        return sum(weight.numel() for weight in sized), 1
    if not isinstance(resolved, Backbone):
        return 0, 1
    resolved._validate_params()  # not below: its error is a TypeError, too
    try:
        with torch.device("meta"):
            weights = list(resolved.build(shape).parameters())
    except (OverflowError, RuntimeError, TypeError) as error:
        raise ValueError(
            f"`backbone` must have weights that can be counted; got {resolved!r}."
        ) from error
    # Ours end with the biases of a batch norm, one for each feature.
    n_features = weights[-1].numel() if weights else 1
    return sum(weight.numel() for weight in weights), n_features


def _no_backbone(got) -> str:
    return (
        "`backbone` must be a name, an object of `sk_mice.backbones`, an nn.Module or "
        f"a factory that returns one; got {type(got).__name__}."
    )


def _copied(module: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(module)
    except Exception as error:  # attributes of the module may raise anything
        raise ValueError(
            "`backbone` must be a module that can be copied; copying "
            f"{type(module).__name__} raised {type(error).__name__}: {error}"
        ) from error


def feature_count(backbone: nn.Module, shape) -> int:
    """F of a backbone that maps (B, *shape) to (B, F), or ValueError."""
    was_training = backbone.training
    backbone.eval()  # a probe must not touch batch-norm statistics
    with torch.no_grad(), _device(backbone):  # where `forward` makes tensors
        features = _probed(backbone, torch.zeros(2, *shape, dtype=torch.float32))
    backbone.train(was_training)
    return features.shape[1]


def check_training(backbone: nn.Module, shape) -> None:
    """Raise ValueError unless a copy of a user's own backbone can be trained."""
    device, name = _device(backbone), type(backbone).__name__
    if device.type == "meta":
        raise ValueError(
            "`backbone` must have weights; those on the meta device have no values."
        )
    copied = _copied(backbone).train()
    if not all(weight.is_leaf for weight in copied.parameters()):
        raise ValueError(
            "`backbone` must have copies that can be trained, which modules of "
            f"torch.jit do not; got {name}."
        )
    cuda = [device] if device.type == "cuda" else []  # dropout draws from its generator
    forward, backward = OwnDraws(0), OwnDraws(0)
    with torch.random.fork_rng(cuda, enabled=bool(cuda)), torch.enable_grad(), forward:
        x = torch.randn(2, *shape, dtype=torch.float32)
        features = _probed(copied, x.to(device), backward=backward)
    if backward.drew:
        raise ValueError(
            f"`backbone` must draw no random numbers in its backward pass; {name} does."
            " Under torch.utils.checkpoint, dropout would drop other values there than "
            "in the forward pass."
        )
    if not features.isfinite().all():
        raise ValueError(
            f"`backbone` must return finite features; {name} does not in training mode."
        )


def check_state(module: nn.Module) -> None:
    """Raise ValueError unless the state of a user's backbone is tensors only.

    The module is the backbone, or a model that has it.
    """
    for name, value in module.state_dict().items():
        if not isinstance(value, Tensor):
            raise ValueError(f"`backbone` must keep only tensors; {name!r} is not one.")


def own_format(backbone: nn.Module, shape) -> torch.memory_format:
    """The memory format that a user's own network takes.

    Channels-last is faster, unless the network has a `view` after a convolution, which
    fails there.
    """
    if len(shape) < 3:
        return torch.contiguous_format
    copied = _copied(backbone).to(memory_format=torch.channels_last).eval()
    try:
        with torch.no_grad(), _device(backbone):
            x = torch.zeros(2, *shape, dtype=torch.float32)
            copied(x.contiguous(memory_format=torch.channels_last))
    except RuntimeError:
        return torch.contiguous_format
    return torch.channels_last


def _device(module) -> torch.device:
    tensors = chain(module.parameters(), module.buffers())
    return next((tensor.device for tensor in tensors), torch.device("cpu"))


def _probed(module, x, *, backward=None) -> Tensor:
    """Features of a batch, or ValueError; `backward` is a backward pass's context."""
    name = type(module).__name__
    needed = f"`backbone` must map (B, {', '.join(map(str, x.shape[1:]))}) to (B, F)"
    mode = "in training mode " if module.training else ""
    try:
        features = module(x)
        if backward and isinstance(features, Tensor) and features.requires_grad:
            with backward:
                features.sum().backward()
    except Exception as error:  # the user's code may raise anything
        raise ValueError(
            f"{needed}; {name} {mode}raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(features, Tensor):
        got: object = type(features)
    elif features.ndim != 2 or len(features) != len(x) or not features.shape[1]:
        got = tuple(features.shape)
    elif features.dtype != torch.float32:
        got, needed = features.dtype, f"{needed} in float32"
    else:
        return features
    raise ValueError(f"{needed}; {name} {mode}returned {got} for B={len(x)}.")


# ----------------------------------------------------------------------------- modules


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


class _SmallResNet(nn.Module):
    # `reduction`, 1, 2 or 4, is the factor by which the stem makes images smaller: 2 by
    # max-pooling, 4 by a convolution with a stride as well.
    def __init__(self, channels: int, width: int, blocks, reduction: int):
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
