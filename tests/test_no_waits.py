"""No training step waits for a GPU, shown without one on torch's fake tensors.

They have shapes, types and devices and no values, so that whatever reads a value
raises. The backward pass alone needs a device: gradients are made up.
"""

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sk_mice._base import moco_options
from sk_mice._engine.format import as_tensor, infer_format
from sk_mice._engine.model import ContrastiveMixture
from sk_mice._engine.neighbors import Neighbors
from sk_mice._engine.samples import Samples
from sk_mice._engine.trainer import Trainer
from sk_mice._engine.views import ImageViews, VectorViews
from sk_mice.augmentation import ImageAugmentation, VectorAugmentation
from sk_mice.backbones import MLP, SmallResNet, feature_count

N, K, D, B, V = 24, 3, 16, 8, 37
CUDA = torch.device("cuda", 0)


class Waited(Exception):
    """What a step must not do."""


class Watch(TorchDispatchMode):
    """Raises where values move between the CPU and the device, which would wait.

    `seen` has the operations, with the types of their first tensors.
    """

    def __init__(self):
        super().__init__()
        self.seen = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        leaves = tree_leaves((args, kwargs, result))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if len({tensor.device.type for tensor in tensors}) > 1:
            raise Waited(f"{func} moves values between the CPU and the device")
        if tensors:
            self.seen.setdefault(str(func), set()).add(tensors[0].dtype)
        return result


WAITS = (Waited, DataDependentOutputException, DynamicOutputShapeException)


@pytest.fixture
def fake(monkeypatch):
    """A mode with a fake device, on which gradients are made up."""
    mode = FakeTensorMode(allow_non_fake_inputs=False)
    try:
        with mode:
            torch.zeros(1, device=CUDA).copy_(torch.ones(1, device=CUDA))
    except RuntimeError:
        pytest.skip("this release of torch needs a driver to copy fake tensors")

    def backward(loss):
        assert loss.requires_grad
        for weight in weights:
            if weight.requires_grad:
                weight.grad = torch.zeros_like(weight)

    def to_device(tensor, device):  # pinned memory, which is not waited for
        return torch.empty(tensor.shape, dtype=tensor.dtype, device=device)

    def autocast(*args, _made=torch.autocast, **options):
        with pytest.MonkeyPatch.context() as patch:
            for asked in ("is_available", "is_bf16_supported"):
                patch.setattr(torch.cuda, asked, lambda *_, **__: True)
            return _made(*args, **options)

    weights = []
    mode.learn = lambda module: weights.extend(module.parameters())
    monkeypatch.setattr(torch.Tensor, "backward", backward)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**40, 2**40))
    monkeypatch.setattr(torch, "autocast", autocast)
    monkeypatch.setattr(Trainer, "_can_replay", lambda self: False)
    for name in ("batches", "neighbors", "samples"):
        monkeypatch.setattr(f"sk_mice._engine.{name}.to_device", to_device)
    return mode


SHAPES = {
    "grey": (N, 8, 8),
    "colour": (N, 20, 20, 3),
    "vectors": (N, 6),
}


def make_samples(mode, kind, dtype):
    X = np.random.default_rng(0).integers(0, 256, SHAPES[kind]).astype(dtype)
    fmt = infer_format(X)

    def fake_tensor(array):
        return mode.from_tensor(as_tensor(array))

    with mode, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sk_mice._engine.samples.as_tensor", fake_tensor)
        samples = Samples(X, fmt, CUDA)
    assert samples.place == samples.resident.device == CUDA
    return samples


def move(model):
    """Put fake tensors of the device in the place of parameters and buffers."""
    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for name, old in tensors.items():
                if old is None:
                    continue
                new = torch.empty_strided(old.shape, old.stride(), dtype=old.dtype)
                if isinstance(old, nn.Parameter):
                    new = nn.Parameter(new, requires_grad=old.requires_grad)
                tensors[name] = new


def make_trainer(
    mode,
    *,
    kind="grey",
    dtype=np.uint8,
    augmentation="moco",
    neighbors=False,
    moco=False,
    held=False,
    precision=torch.float32,
    embedding_dim=D,
    **options,
):
    samples = make_samples(mode, kind, dtype)
    fmt = samples.format
    if augmentation is not None:
        augmentation = VectorAugmentation()
        if fmt.is_image:
            augmentation = ImageAugmentation(
                colors="simclr", flip=True, crop_scale=(0.2, 1.0), affine=(10.0, 10.0)
            )
    with mode:
        views = VectorViews(fmt.shape, augmentation)
        if fmt.is_image:
            known = {"mean": fmt.mean, "std": fmt.std, "device": CUDA}
            views = ImageViews(fmt.shape, augmentation, **known)
    spec = SmallResNet(4, blocks=(1,)) if fmt.is_image else MLP(8)
    network = spec.build(views.out_shape)
    parts = {"n_experts": K, "omega": torch.zeros(K, embedding_dim), "kappa": 1.0}
    model = ContrastiveMixture(
        network,
        feature_count(network, views.out_shape),
        embedding_dim=embedding_dim,
        queue_size=V,
        queue_dtype=precision,
        tau=1.0,
        description=spec,
        **(moco_options() if moco else parts | options),
    ).to(memory_format=torch.channels_last)
    with mode, CUDA:
        move(model)
        mode.learn(model)
        table = torch.zeros(N, 2, dtype=torch.long)
        trainer = Trainer(
            model,
            views=views,
            # There is none of the device, and nothing is drawn.
            generator=torch.Generator("cpu"),
            order_generator=torch.Generator("cpu"),
            lr=0.1,
            n_epochs=2,
            batch_size=B,
            neighbors=Neighbors(table) if neighbors else None,
            held_labels=torch.zeros(N, dtype=torch.long) if held else None,
            held_epochs=int(held),
            autocast_dtype=None if precision == torch.float32 else precision,
        )
    return trainer, samples


def train(trainer, samples, mode):
    """Train for an epoch, watched; returns the operations."""
    with mode:
        trainer.begin(samples)
        trainer.notify("on_epoch_begin", dataset_train=samples)
        batches = trainer.get_iterator(samples, training=True)
        with Watch() as watch:
            trainer.run_single_epoch(batches, True, "train", trainer.train_step)
    assert trainer.step_ == N / B
    return watch.seen


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dtype": np.float64},
        {"kind": "colour"},
        {"kind": "vectors"},
        {"augmentation": None},
        {"shared_head": True},
        {"gate_view": False},
        {"gate_view": False, "shared_head": True, "held": True},
        {"class_level": False},
        {"kappa": float("inf")},
        {"held": True},
        {"neighbors": True},
        {"moco": True, "kind": "colour"},
        {"precision": torch.bfloat16, "shared_head": True},
        {"precision": torch.bfloat16, "embedding_dim": 264},  # by no kernel of torch
    ],
    ids=str,
)
def test_no_step_waits_for_the_device(fake, options):
    train(*make_trainer(fake, **options), fake)


@pytest.mark.parametrize(
    ("precision", "kernel"),
    [
        (torch.float32, "aten._scaled_dot_product_efficient_attention.default"),
        (torch.bfloat16, "aten._scaled_dot_product_flash_attention.default"),
    ],
)
@pytest.mark.parametrize("dim", [D, 13])
def test_kernels_that_take_no_odd_length_are_used_for_every_length(
    fake, precision, kernel, dim
):
    assert V % 8
    options = {"embedding_dim": dim, "precision": precision}
    seen = train(*make_trainer(fake, **options), fake)
    assert seen[kernel] == {precision}
    assert precision in seen["aten.convolution.default"]


def test_images_of_floats_and_vectors_are_kept_as_batches_need_them(fake):
    for kind, dtype, kept in (
        ("colour", np.uint8, torch.uint8),
        ("colour", np.float64, torch.float32),
        ("vectors", np.uint8, torch.float32),
    ):
        samples = make_samples(fake, kind, dtype)
        with fake:
            batch = samples[torch.zeros(4, dtype=torch.long, device=CUDA)]
        assert samples.resident.dtype == kept
        assert samples.resident.nbytes == samples._resident_bytes()
        assert batch.shape == (4, *samples.format.shape)


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x.sum().item(),
        lambda x: float(x.mean()),
        lambda x: bool(x.isfinite().all()),
        lambda x: x.tolist(),
        lambda x: x.cpu(),
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: x * torch.ones(x.shape, device="cpu").to(x.device),
        lambda x: x * torch.tensor(2.0, device=x.device),
        lambda x: x[torch.zeros(2, dtype=torch.long, device="cpu")],
    ],
)
def test_whatever_waits_is_found(fake, wait):
    class Waits(Trainer):
        def after_step(self, v):
            super().after_step(v)
            wait(v)

    trainer, samples = make_trainer(fake)
    trainer.__class__ = Waits
    with pytest.raises(WAITS):
        train(trainer, samples, fake)
