"""EM, step by step and epoch by epoch."""

import math
import types
from itertools import pairwise

import numpy as np
import pytest
import torch
from shared import assert_same_state, callback, raising, samples_of, state_of
from skorch.callbacks import Callback
from torch import nn

from sk_mice._engine import objective
from sk_mice._engine.graphs import MOST, Replayed
from sk_mice._engine.model import ContrastiveMixture, gating_prototypes
from sk_mice._engine.trainer import Trainer
from sk_mice._engine.views import VectorViews
from sk_mice.augmentation import VectorAugmentation
from sk_mice.backbones import MLP

N, K, D, F = 40, 3, 8, 6


@pytest.fixture
def samples():
    X = np.random.default_rng(0).standard_normal((N, F))
    return samples_of(X)


def constant(progress):
    return 1.0


def make_trainer(cls=Trainer, **options):
    torch.manual_seed(0)
    model = ContrastiveMixture(
        MLP(16).build((F,)),
        16,
        n_experts=K,
        embedding_dim=D,
        queue_size=32,
        omega=gating_prototypes(K, D),
        tau=1.0,
        kappa=1.0,
    )
    defaults = {"lr": 0.1, "schedule": constant, "n_epochs": 2, "batch_size": 16}
    return cls(
        model,
        views=VectorViews((F,), VectorAugmentation()),
        generator=torch.Generator().manual_seed(0),
        order_generator=torch.Generator().manual_seed(0),
        **(defaults | options),
    )


def trained(samples, *args, **options):
    """The model after a training."""
    return make_trainer(*args, **options).begin(samples).train().module_


def test_history_says_what_an_epoch_did(samples):
    trainer = make_trainer(n_epochs=3)
    trainer.begin(samples).train()
    rows = trainer.history_rows()
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert row["elbo"] < 0
        assert 1 / K <= row["confidence"] <= 1
        assert sum(row["posterior_counts"]) == N * K
        assert len(row["posterior_counts"]) == 10
        assert sum(row["cluster_sizes"]) == N
        assert len(row["cluster_sizes"]) == K
        assert 0 <= row["changed"] <= 1
        assert row["lr"] == 0.1
        assert row["seconds"] > 0
    assert rows[0]["changed"] == 1  # from no label at all


def test_the_best_loss_is_the_least_of_all_epochs(samples):
    trainer = make_trainer().begin(samples)
    for elbo in (-3.0, -1.0, -2.0, -1.5, -1.0, -0.5):
        trainer.history.new_epoch()
        trainer._record({"elbo": elbo})
    is_best = [True, True, False, False, False, True]
    assert trainer.history[:, "valid_loss_best"] == is_best


def test_prototypes_are_replaced_at_the_end_of_an_epoch_and_their_momentum_reset(
    samples,
):
    seen = []

    class Watch(Callback):
        def on_epoch_end(self, net, **kwargs):
            mu = net.module_.expert_prototypes
            sums = net.statistics_.class_sums
            expected = objective.prototype_update(sums, mu.detach())
            torch.testing.assert_close(mu.detach(), expected)
            buffer = net.optimizer_.state[mu]["momentum_buffer"]
            seen.append(buffer.abs().sum().item())

    trained(samples, callbacks=[Watch()])
    assert seen == [0.0, 0.0]


def test_the_teacher_and_fixed_prototypes_do_not_learn_by_gradient(samples):
    trainer = make_trainer(teacher_momentum=1.0 - 1e-12)
    omega = trainer.module.gating_prototypes.clone()
    before = [p.clone() for p in trainer.module.teacher.parameters()]
    module = trainer.begin(samples).train().module_
    for parameter, was in zip(module.teacher.parameters(), before, strict=True):
        torch.testing.assert_close(parameter, was)
        assert parameter.grad is None
    assert torch.equal(module.gating_prototypes, omega)


def test_responsibilities_are_held_at_first(samples):
    held = torch.arange(N) % K
    used = []

    class Watched(Trainer):
        def responsibilities(self, indices):
            q = super().responsibilities(indices)
            used.append(q is not None and torch.equal(q.argmax(1), held[indices]))
            return q

    options = {"held_labels": held, "held_epochs": 2, "n_epochs": 3}
    trained(samples, Watched, **options)
    assert used == [True] * 6 + [False] * 3


def test_held_labels_are_those_that_the_first_epoch_changes(samples):
    held = torch.arange(N) % K
    trainer = make_trainer(held_labels=held, held_epochs=1, n_epochs=1)
    (row,) = trainer.begin(samples).train().history_rows()
    changed = (trainer.statistics_.labels != held).float().mean().item()
    assert row["changed"] == changed < 1


def test_learning_rate_follows_progress(samples):
    rates = []

    class Watch(Callback):
        def on_batch_end(self, net, **kwargs):
            rates.append(net.optimizer_.param_groups[0]["lr"])

    def rising(progress):
        return 1 + progress

    options = {"lr": 1e-3, "schedule": rising, "callbacks": [Watch()]}
    trained(samples, **options)
    np.testing.assert_allclose(rates, [1e-3 * (1 + step / 6) for step in range(6)])


def test_steps_are_those_of_sgd_with_momentum_and_weight_decay(samples):
    steps = []

    class Watch(Callback):
        def on_grad_computed(self, net, **kwargs):
            weight = net.module_.student.gate.weight
            steps.append((weight.detach().clone(), weight.grad.clone()))

    options = {"lr": 0.2, "weight_decay": 0.1, "callbacks": [Watch()]}
    trained(samples, **options)
    velocity = 0.0
    for (weight, gradient), (after, _) in pairwise(steps):
        velocity = 0.9 * velocity + gradient + 0.1 * weight
        torch.testing.assert_close(after, weight - 0.2 * velocity)


@pytest.mark.parametrize("sick", ["rate", "weight"])
def test_a_model_that_diverges_goes_back_to_the_last_whole_epoch(samples, sick):
    # Whether the loss shows it, or only the weights after the last step do.
    states = []

    class Watch(Callback):
        def on_epoch_end(self, net, **kwargs):
            states.append(state_of(net.module_))

        def on_batch_end(self, net, **kwargs):
            if sick == "weight" and (len(net.history), net.step_) == (3, net.n_steps_):
                net.module_.student.gate.bias.data[0] = float("nan")

    def schedule(progress):
        return 1.0 if sick == "weight" or progress < 0.5 else 1e31

    trainer = make_trainer(n_epochs=4, schedule=schedule, callbacks=[Watch()])
    with pytest.raises(FloatingPointError, match="in epoch 3 of this stage"):
        trainer.begin(samples).train()
    trainer.rewind()
    assert [row["epoch"] for row in trainer.history_rows()] == [1, 2]
    assert len(states) == 2
    assert_same_state(trainer.module_, states[-1])


def test_networks_train_whatever_mode_they_come_in(samples):
    modes = []

    def note(net):
        modes.append(net.module_.training and net.module_.teacher.training)

    own = callback(on_train_begin=lambda net: net.module_.eval(), on_batch_end=note)
    trained(samples, callbacks=[own])
    assert modes
    assert all(modes)


def test_queue_begins_with_embeddings_of_the_samples(samples):
    class Watch(Callback):
        def on_train_begin(self, net, **kwargs):
            self.queue = net.module_.queue.clone()

    watch = Watch()
    trainer = make_trainer(fill_queue=True, callbacks=[watch])
    noise = trainer.module.queue.clone()
    untrained = trainer.module.teacher.experts.weight.clone()
    trainer.begin(samples).train()
    assert not (watch.queue == noise).any()
    torch.testing.assert_close(watch.queue.norm(dim=-1), torch.ones(32, K))
    # Embeddings of an untrained network have much in common, noise has not.
    assert watch.queue[:, 0].mean(0).norm() > 2 * noise[:, 0].mean(0).norm()
    assert not torch.equal(untrained, trainer.module_.teacher.experts.weight)


# ------------------------------------------------------------------- CUDA graphs


@pytest.fixture
def captured(monkeypatch):
    """Graphs without a GPU, which call the function anew; what they were made for."""
    seen = []

    def capture(self, views, q=None):
        seen.append((views.shape[1], q is not None, self.model.tau))
        inputs = [views.clone(), q if q is None else q.clone()]
        outputs, gradients = [], []

        def replay():
            outputs[:] = self.function(*inputs)
            weights = self.model.parameters()
            gradients[:] = [(w, w.grad) for w in weights if w.grad is not None]
            self.model.zero_grad()

        given = inputs if q is not None else inputs[:1]
        return types.SimpleNamespace(replay=replay), given, outputs, gradients

    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(Replayed, "_capture", capture)
    monkeypatch.setattr(Trainer, "_can_replay", lambda self: True)
    return seen


def test_graphs_learn_what_the_steps_learn(samples, captured, monkeypatch):
    options = {"held_labels": torch.arange(N) % K, "held_epochs": 1}
    replayed = trained(samples, **options)
    sizes_and_held = [(14, True), (13, True), (14, False), (13, False)]
    assert captured == [(*seen, 1.0) for seen in sizes_and_held]
    monkeypatch.setattr(Trainer, "_can_replay", lambda self: False)
    assert_same_state(replayed, state_of(trained(samples, **options)))


def test_there_are_new_graphs_for_what_changes(samples, captured):
    class Changes(Callback):
        def on_epoch_begin(self, net, **kwargs):
            if len(net.history) == 2:
                net.module_.tau = 0.5
            if len(net.history) == 3:
                net.module_.student.backbone.append(nn.Identity())
            if len(net.history) == 4:
                weight = net.module_.student.gate.weight
                weight.data = weight.data.clone()

    options = {"batch_size": 20, "n_epochs": 5, "callbacks": [Changes()]}
    trained(samples, **options)
    assert captured == [(20, False, 1.0), *[(20, False, 0.5)] * 3]


def test_weights_outside_of_a_graph_have_no_gradients(monkeypatch):
    model = nn.ParameterList([torch.zeros(1), torch.zeros(1)])
    model.tau = model.kappa = 1.0

    def capture(self, views):
        weights = [*model][: 1 if math.isinf(model.kappa) else 2]
        gradients = [(weight, torch.ones(1)) for weight in weights]
        return types.SimpleNamespace(replay=lambda: None), (views,), (), gradients

    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(Replayed, "_capture", capture)
    replayed = Replayed(None, model)
    for kappa in 1.0, math.inf, 1.0:
        model.kappa = kappa
        replayed(torch.zeros(1), None)
        assert model[0].grad is not None
        assert (model[1].grad is None) == math.isinf(kappa)


def test_graphs_are_few(samples, captured):
    class Cools(Callback):
        def on_batch_begin(self, net, **kwargs):
            net.module_.tau *= 0.99

    options = {"batch_size": 8, "n_epochs": 3, "callbacks": [Cools()]}
    trainer = make_trainer(**options).begin(samples).train()
    assert len(captured) == MOST < trainer.n_steps_ * 3


def test_a_fit_goes_on_where_capturing_fails(samples, captured, monkeypatch):
    fails = raising(RuntimeError, "operation not permitted\n  a stack trace")
    monkeypatch.setattr(Replayed, "_capture", fails)
    with pytest.warns(UserWarning, match=r"without CUDA graphs.*not permitted$"):
        slow = trained(samples)
    monkeypatch.setattr(Trainer, "_can_replay", lambda self: False)
    assert_same_state(slow, state_of(trained(samples)))
