"""Networks made ready for predictions say what they said before."""

import itertools
import math

import numpy as np
import pytest
import torch
from shared import assert_same_state, state_of
from torch import nn

from sk_mice._engine import inference
from sk_mice._engine.format import infer_format
from sk_mice._engine.inference import (
    SMALLEST_PIECE,
    Inference,
    folded,
    in_pieces,
    queue_moments,
)
from sk_mice._engine.model import ContrastiveMixture, gating_prototypes
from sk_mice._engine.samples import Samples
from sk_mice._engine.views import VectorViews
from sk_mice.backbones import MLP, ResNet, SmallResNet


def trained(description, shape):
    """A backbone whose batch norms have something to say."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        backbone = description.build(shape)
        for module in backbone.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.normal_(module.bias)
        with torch.no_grad():
            backbone(torch.randn(16, *shape))  # statistics
    return backbone.eval()


@pytest.mark.parametrize(
    ("description", "shape"),
    [
        (SmallResNet(4), (1, 16, 16)),
        (ResNet(18), (3, 32, 32)),
        (ResNet(18, max_pool=True), (4, 32, 32)),
        (ResNet(50), (3, 80, 80)),
        (MLP(), (7,)),
    ],
)
def test_folded_networks_make_the_same_features_without_batch_norm(description, shape):
    backbone = trained(description, shape)
    before = state_of(backbone)
    ready = folded(backbone)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in ready.modules())
    x = torch.randn(5, *shape)
    with torch.no_grad():
        torch.testing.assert_close(ready(x), backbone(x), rtol=1e-4, atol=1e-4)
    assert_same_state(backbone, before)


@pytest.mark.parametrize("n", [1, SMALLEST_PIECE, 2 * SMALLEST_PIECE + 1])
@pytest.mark.parametrize("shape", [(3, 40, 40), (2,)])
def test_pieces_are_put_together_in_order(n, shape):
    x = torch.randn(n, *shape)
    calls = []

    def network(piece):
        calls.append(len(piece))
        return piece.flatten(1)

    assert torch.equal(in_pieces(network, x), x.flatten(1))
    assert max(calls) <= max(SMALLEST_PIECE, n if shape == (2,) else 0)


def mixture(n_experts, tau, kappa=1.0, **changes):
    """Untrained; the smaller kappa, the surer is the gate."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        backbone, dim = nn.Linear(5, 24), 16
        model = ContrastiveMixture(
            backbone,
            24,
            n_experts=n_experts,
            embedding_dim=dim,
            queue_size=300,
            omega=gating_prototypes(n_experts, dim),
            tau=tau,
            kappa=kappa,
            **changes,
        )
    return model.eval()


CHANGES = (
    {},
    {"class_level": False},
    {"shared_head": True},
    {"queue_dtype": torch.bfloat16},
)


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_labels_are_those_of_the_log_joint(changes):
    for tau, kappa in itertools.product([0.001, 0.1, 1.0], [1.0, 0.05, math.inf]):
        model = mixture(4, tau, kappa, **changes)
        x = torch.randn(200, 5, generator=torch.Generator().manual_seed(1))
        moments = queue_moments(model.queue)
        joint, labels = Inference(model)(x, "joint", "label", moments=moments)
        assert torch.equal(labels, joint.argmax(dim=1)), (tau, kappa)
        (labels,) = Inference(model)(x, "label")
        assert torch.equal(labels, joint.argmax(dim=1)), (tau, kappa)


@pytest.mark.parametrize("tau", [1.0, 0.2, 0.07])
def test_bounds_decide_only_what_bfloat16_cannot_round_away(tau):
    model = mixture(8, tau, queue_dtype=torch.bfloat16)
    draws = torch.Generator().manual_seed(0)
    axis = torch.randn(16, generator=draws)

    def near_one_axis(*shape):
        rows = torch.randn(*shape, generator=draws) / 10 + axis
        return nn.functional.normalize(rows, dim=-1)

    with torch.no_grad():
        model.queue.copy_(near_one_axis(*model.queue.shape))
        model.expert_prototypes.copy_(near_one_axis(8, 16))
        f, v, g = *(near_one_axis(3000, 8, 16) for _ in "fv"), near_one_axis(3000, 16)
        ready = Inference(model)
        labels = ready._labels(f, v, g, queue_moments(model.queue))
        assert torch.equal(labels, ready._joint(f, v, g).argmax(dim=1))


def test_one_expert_has_all_samples():
    model = mixture(1, 1.0)
    moments = queue_moments(model.queue)
    (labels,) = Inference(model)(torch.randn(40, 5), "label", moments=moments)
    assert labels.tolist() == [0] * 40


def test_bounds_spare_most_samples_the_queue(monkeypatch):
    model, summed = mixture(4, 1.0, 0.05), []
    log_joint = model.log_joint

    def counted(f, *args):
        if len(args) == 2:  # no other partition function than that of the queue
            summed.append(len(f))
        return log_joint(f, *args)

    monkeypatch.setattr(model, "log_joint", counted)
    x = torch.randn(1000, 5, generator=torch.Generator().manual_seed(1))
    Inference(model)(x, "label", moments=queue_moments(model.queue))
    assert sum(summed) < 100


def test_labels_one_by_one_spare_the_queue_as_well(monkeypatch):
    def counted(queue):
        made.append(queue_moments(queue))
        return made[-1]

    monkeypatch.setattr(inference, "queue_moments", counted)
    X = np.random.default_rng(1).standard_normal((100, 5))
    fmt, views = infer_format(X), VectorViews((5,), None)
    ready, made = Inference(mixture(4, 1.0, 0.05)), []

    def over(x, wanted):
        return ready.over(Samples(x, fmt, torch.device("cpu")), views, wanted)[0]

    labels = over(X, "joint").argmax(axis=1)
    found = [over(x, "label") for x in np.split(X, 100)]
    np.testing.assert_array_equal(np.concatenate(found), labels)
    assert len(set(labels)) == 4
    assert len(made) == 1


def test_what_is_not_finite_has_no_label():
    model = mixture(4, 1.0)
    x = torch.randn(40, 5)
    x[3] = math.nan
    moments = queue_moments(model.queue)
    joint, labels = Inference(model)(x, "joint", "label", moments=moments)
    found = joint.argmax(dim=1)
    found[3] = -1
    assert torch.equal(labels, found)
    (plain,) = Inference(model)(x, "label")
    assert torch.equal(plain, found)
