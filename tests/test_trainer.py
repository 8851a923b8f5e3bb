"""EM, step by step and epoch by epoch."""

import copy

import numpy as np
import pytest
import torch
from skorch.callbacks import Callback

import sk_mice._engine.trainer
from sk_mice._engine import objective
from sk_mice._engine.backbones import MLP
from sk_mice._engine.model import ContrastiveMixture, gating_prototypes
from sk_mice._engine.samples import Samples, infer_format
from sk_mice._engine.trainer import EpochStatistics, Trainer
from sk_mice._engine.views import make_views

N, K, D, F = 40, 3, 8, 6


@pytest.fixture
def samples():
    X = np.random.default_rng(0).standard_normal((N, F))
    return Samples(X, infer_format(X), torch.device("cpu"))


def make_trainer(samples, **options):
    torch.manual_seed(0)
    model = ContrastiveMixture(
        MLP(F, width=16),
        (F,),
        n_experts=K,
        embedding_dim=D,
        queue_size=32,
        omega=gating_prototypes("auto", K, D),
        tau=1.0,
        kappa=1.0,
    )
    options = {"rate": lambda progress: 0.1, "n_epochs": 2, "batch_size": 16} | options
    return Trainer(
        model,
        views=make_views((F,), mean=[0.0] * F, std=[1.0] * F),
        generator=torch.Generator().manual_seed(0),
        order_generator=torch.Generator().manual_seed(0),
        **options,
    )


def test_history_says_what_an_epoch_did(samples):
    trainer = make_trainer(samples, n_epochs=3)
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


def test_statistics_add_up_an_epoch():
    statistics = EpochStatistics(7, K, D, "cpu")
    joint = torch.randn(7, K)
    v = torch.nn.functional.normalize(torch.randn(7, K, D), dim=-1)
    for indices in torch.arange(7).split(3):
        part = joint[indices]
        statistics.add(indices, part, objective.elbo(part).mean(), v[indices])
    q = objective.posterior(joint)
    labels = q.argmax(1)
    summary = statistics.summary()
    assert summary["elbo"] == pytest.approx(objective.elbo(joint).mean().item())
    assert summary["confidence"] == pytest.approx(q.max(1).values.mean().item())
    counts, _ = np.histogram(q.numpy(), bins=10, range=(0, 1))
    assert summary["posterior_counts"] == counts.tolist()
    assert summary["cluster_sizes"] == np.bincount(labels, minlength=K).tolist()
    for k in range(K):
        torch.testing.assert_close(statistics.class_sums[k], v[labels == k, k].sum(0))


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

    make_trainer(samples, callbacks=[Watch()]).begin(samples).train()
    assert seen == [0.0, 0.0]


class EveryStep(Callback):
    """Keeps copies of both sets of prototypes."""

    def __init__(self):
        self.mu, self.omega = [], []

    def on_batch_end(self, net, **kwargs):
        self.mu.append(net.module_.expert_prototypes.detach().clone())
        self.omega.append(net.module_.gating_prototypes.detach().clone())


def test_analytical_update_alone_leaves_prototypes_to_the_epochs_end(samples):
    steps = EveryStep()  # three an epoch
    trainer = (
        make_trainer(samples, prototype_update="analytical", callbacks=[steps])
        .begin(samples)
        .train()
    )
    assert torch.equal(steps.mu[0], steps.mu[2])
    assert not torch.equal(steps.mu[2], steps.mu[3])
    assert torch.equal(steps.mu[3], steps.mu[5])
    mu = trainer.module_.expert_prototypes.detach()
    sums = trainer.statistics_.class_sums
    torch.testing.assert_close(mu, objective.prototype_update(sums, mu))


def test_gradient_alone_goes_on_over_the_epochs_end(samples):
    steps, at_end = EveryStep(), []

    class Watch(Callback):
        def on_epoch_end(self, net, **kwargs):
            mu = net.module_.expert_prototypes
            at_end.append(mu.detach().clone())
            assert net.optimizer_.state[mu]["momentum_buffer"].abs().sum() > 0

    callbacks = [steps, Watch()]
    options = {"prototype_update": "gradient", "callbacks": callbacks}
    make_trainer(samples, **options).begin(samples).train()
    assert torch.equal(at_end[0], steps.mu[2])
    assert torch.equal(at_end[1], steps.mu[5])
    assert not torch.equal(steps.mu[0], steps.mu[1])


def test_passes_train_the_prototypes_and_nothing_else(samples, monkeypatch):
    before, elbos = [], []

    class Watch(EveryStep):
        def on_batch_end(self, net, **kwargs):
            if net.step_ == net.n_steps_:
                before.append(
                    {k: v.clone() for k, v in net.module_.state_dict().items()}
                )

    def watched(mu, batches, loss, **sgd):
        elbos.append(-torch.stack([loss(batch) for batch in batches]).mean().item())
        n_passes = until_settled(mu, batches, loss, **sgd)
        elbos.append(-torch.stack([loss(batch) for batch in batches]).mean().item())
        return n_passes

    until_settled = sk_mice._engine.trainer.until_settled
    monkeypatch.setattr("sk_mice._engine.trainer.until_settled", watched)
    options = {"n_epochs": 1, "prototype_update": "passes", "callbacks": [Watch()]}
    trainer = make_trainer(samples, **options).begin(samples).train()
    for name, value in trainer.module_.state_dict().items():
        assert torch.equal(value, before[0][name]) == (name != "expert_prototypes")
    assert elbos[1] > elbos[0]
    assert 1 <= trainer.history_rows()[0]["prototype_passes"] <= 20
    assert all(p.grad is None for p in trainer.module_.teacher.parameters())


def test_counts_go_beyond_what_float32_can_count():
    n_samples, n_experts = 4096, 4097
    statistics = EpochStatistics(n_samples, n_experts, 1, "cpu")
    joint = torch.zeros(n_samples, n_experts)
    v = torch.ones(n_samples, n_experts, 1)
    for _ in range(2):
        statistics.add(torch.arange(n_samples), joint, torch.zeros(()), v)
    assert n_samples * n_experts > 2**24
    assert statistics.summary()["posterior_counts"][0] == 2 * n_samples * n_experts


def test_gating_prototypes_are_fixed_unless_they_are_to_be_trained(samples):
    for trained in (False, True):
        steps = EveryStep()
        options = {"train_gating_prototypes": trained, "callbacks": [steps]}
        make_trainer(samples, **options).begin(samples).train()
        assert torch.equal(steps.omega[0], steps.omega[-1]) != trained
        for omega in steps.omega:
            torch.testing.assert_close(omega.norm(dim=1), torch.ones(K))


def test_teacher_is_not_in_the_optimizer(samples):
    trainer = make_trainer(samples).begin(samples).train()
    module = trainer.module_
    held = {id(p) for group in trainer.optimizer_.param_groups for p in group["params"]}
    student = {id(p) for p in module.student.parameters()}
    assert held == student | {id(module.expert_prototypes)}


def test_responsibilities_are_held_at_first(samples):
    held = torch.arange(N) % K
    trainer = make_trainer(samples, held_labels=held, held_epochs=2, n_epochs=3)
    used = []
    loss = trainer.get_loss

    def spy(y_pred, y_true, **kwargs):
        joint = y_pred[0].detach()
        value = loss(y_pred, y_true, **kwargs)
        one_hot = torch.nn.functional.one_hot(held[y_true], K).float()
        bound = -objective.elbo(joint, one_hot).mean()
        used.append(torch.isclose(value.detach(), bound).item())
        return value

    trainer.get_loss = spy
    trainer.begin(samples).train()
    assert used == [True] * 6 + [False] * 3


def test_learning_rate_follows_progress(samples):
    rates = []

    class Watch(Callback):
        def on_batch_end(self, net, **kwargs):
            rates.append(net.optimizer_.param_groups[0]["lr"])

    def rate(progress):
        return 1e-3 * (1 + progress)

    make_trainer(samples, rate=rate, callbacks=[Watch()]).begin(samples).train()
    np.testing.assert_allclose(rates, [rate(step / 6) for step in range(6)])


def test_training_is_a_function_of_the_generators(samples):
    global_state = torch.get_rng_state()

    def trained():
        trainer = make_trainer(samples)
        torch.manual_seed(99)  # whatever the global generator does
        trainer.begin(samples).train()
        return trainer.module_.state_dict()

    first, second = trained(), trained()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
    torch.set_rng_state(global_state)


def test_a_loss_that_is_not_finite_stops_training(samples):
    trainer = make_trainer(samples, rate=lambda progress: 1e30)
    with pytest.raises(FloatingPointError, match=r"epoch 1 .* lower `lr`"):
        trainer.begin(samples).train()


@pytest.mark.parametrize("sick", ["rate", "weight"])
def test_a_model_that_diverges_goes_back_to_the_last_whole_epoch(samples, sick):
    # Whether the loss shows it, or only the weights after the last step do.
    states = []

    class Watch(Callback):
        def on_epoch_end(self, net, **kwargs):
            state = net.module_.state_dict().items()
            states.append({name: value.clone() for name, value in state})

        def on_batch_end(self, net, **kwargs):
            if sick == "weight" and (len(net.history), net.step_) == (3, net.n_steps_):
                net.module_.student.gate.bias.data[0] = float("nan")

    def rate(progress):
        return 0.1 if sick == "weight" or progress < 0.5 else 1e30

    trainer = make_trainer(samples, n_epochs=4, rate=rate, callbacks=[Watch()])
    with pytest.raises(FloatingPointError, match="in epoch 3 of this stage"):
        trainer.begin(samples).train()
    trainer.rewind()
    assert [row["epoch"] for row in trainer.history_rows()] == [1, 2]
    assert len(states) == 2
    assert same(trainer.module_.state_dict(), states[-1])


def test_networks_train_whatever_mode_they_come_in(samples):
    modes = []

    class Watch(Callback):
        def on_train_begin(self, net, **kwargs):
            net.module_.eval()

        def on_batch_end(self, net, **kwargs):
            modes.append(net.module_.training and net.module_.teacher.training)

    make_trainer(samples, callbacks=[Watch()]).begin(samples).train()
    assert modes
    assert all(modes)


def test_queue_begins_with_embeddings_of_the_samples(samples):
    class Watch(Callback):
        def on_train_begin(self, net, **kwargs):
            self.queue = net.module_.queue.clone()

    watch = Watch()
    trainer = make_trainer(samples, fill_queue=True, callbacks=[watch])
    noise = trainer.module.queue.clone()
    untrained = trainer.module.teacher.experts.weight.clone()
    trainer.begin(samples).train()
    assert not (watch.queue == noise).any()
    torch.testing.assert_close(watch.queue.norm(dim=-1), torch.ones(32, K))
    # Embeddings of an untrained network have much in common, noise has not.
    assert watch.queue[:, 0].mean(0).norm() > 2 * noise[:, 0].mean(0).norm()
    assert not torch.equal(untrained, trainer.module_.teacher.experts.weight)


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("update", ["both", "analytical", "gradient", "passes"])
@pytest.mark.parametrize("epoch", [1, 2])
def test_a_run_goes_on_from_its_state_as_if_never_left(samples, epoch, update):
    class Keep(Callback):
        def on_epoch_end(self, net, **kwargs):
            if len(net.history) == epoch:
                self.state = copy.deepcopy(net.state())

    keep = Keep()
    options = {"n_epochs": 3, "fill_queue": True, "rate": lambda p: 0.1 * (1 - p)}
    options |= {"prototype_update": update, "train_gating_prototypes": True}
    whole = make_trainer(samples, callbacks=[keep], **options).begin(samples).train()
    rest = make_trainer(samples, **options).begin(samples, keep.state).train()
    assert same(whole.module_.state_dict(), rest.module_.state_dict())
    for one, other in zip(whole.history_rows(), rest.history_rows(), strict=True):
        assert one | {"seconds": 0} == other | {"seconds": 0}


class StopAt(Callback):
    """Raises in the second batch of an epoch, as Ctrl-C would."""

    def __init__(self, epoch):
        self.epoch = epoch

    def on_epoch_begin(self, net, **kwargs):
        self.module = {k: v.clone() for k, v in net.module_.state_dict().items()}

    def on_batch_end(self, net, **kwargs):
        if len(net.history) == self.epoch and net.step_ == 2:
            raise KeyboardInterrupt


@pytest.mark.parametrize("epoch", [1, 3])
def test_an_interrupted_run_goes_back_to_its_last_whole_epoch(samples, epoch):
    stop = StopAt(epoch)
    trainer = make_trainer(samples, n_epochs=4, callbacks=[stop])
    with pytest.raises(KeyboardInterrupt):
        trainer.begin(samples).train()
    trainer.rewind()
    assert len(trainer.history) == epoch - 1
    assert same(trainer.module_.state_dict(), stop.module)


def test_a_callback_may_end_a_run_between_epochs(samples):
    class Enough(Callback):
        def on_epoch_end(self, net, **kwargs):
            raise KeyboardInterrupt

    trainer = make_trainer(samples, callbacks=[Enough()]).begin(samples).train()
    assert len(trainer.history) == 1
