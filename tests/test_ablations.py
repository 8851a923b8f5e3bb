"""The paper's ablations (Table 3) and learning rates, alone and together."""

import math
import pickle
import signal
from functools import cache
from itertools import combinations

import numpy as np
import pytest
import torch
from shared import RaiseAt, callback, short_fits, state_of
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from skorch.callbacks import Callback

import sk_mice
from sk_mice import MiCEClustering, MoCo, ablations
from sk_mice.ablations import AblationTrainer, PaperMiCE, PaperMoCo, make_schedule

pytestmark = short_fits
X = np.random.default_rng(0).standard_normal((40, 6))
ABLATIONS = {
    "A3": {"kappa": math.inf},
    "A4": {"expert_heads": "shared"},
    "A5": {"expert_prototypes": None},
    "no analytical update": {"expert_prototypes": "gradient"},
    "no gradient update": {"expert_prototypes": "analytical"},
    "passes": {"expert_prototypes": "passes"},
    "uniform omega": {"gating_prototypes": "uniform"},
    "learned omega": {"train_gating_prototypes": True},
}
SENSELESS = [{"A4", "A5"}, {"A3", "learned omega"}]
ALONE = [pytest.param(options, id=name) for name, options in ABLATIONS.items()]


SMALL = {"embedding_dim": 8, "batch_size": 16, "max_epochs": 4}


def tiny(**options):
    return PaperMiCE(**({"n_clusters": 3, "random_state": 0} | SMALL | options))


def pairs():
    """All that do not set the same parameter."""
    for one, other in combinations(ABLATIONS, 2):
        if not ABLATIONS[one].keys() & ABLATIONS[other].keys():
            yield one, other


@cache
def plain_elbo(init):
    return tiny(init=init).fit(X).elbo_


@pytest.mark.parametrize("init", ["random", "two-stage"])
@pytest.mark.parametrize("options", ALONE)
def test_alone(options, init):
    mice = tiny(init=init, **options).fit(X)
    assert mice.elbo_ != plain_elbo(init)  # it does something
    np.testing.assert_array_equal(mice.labels_, mice.predict(X))
    np.testing.assert_allclose(mice.predict_proba(X).sum(axis=1), 1, rtol=1e-5)
    assert mice.transform(X).shape == (40, 8)
    norms = np.linalg.norm(mice.gating_prototypes_, axis=1)
    np.testing.assert_allclose(norms, 1, rtol=1e-5)


@pytest.mark.parametrize(("one", "other"), list(pairs()))
def test_in_pairs(one, other):
    mice = tiny(max_epochs=1, init="random", **ABLATIONS[one], **ABLATIONS[other])
    if {one, other} in SENSELESS:
        with pytest.raises(ValueError, match="must be"):
            mice.fit(X)
        return
    np.testing.assert_array_equal(mice.fit(X).labels_, mice.predict(X))


def test_all_that_is_learned_is_in_the_model():
    own = tiny(max_epochs=1).fit(X)
    shared = tiny(max_epochs=1, expert_heads="shared").fit(X)
    weights = [m._model.student.experts.weight.shape for m in (own, shared)]
    assert weights == [(24, 256), (8, 256)]
    assert tiny(max_epochs=1, expert_prototypes=None).fit(X).expert_prototypes_ is None
    passes = tiny(max_epochs=1, init="random", expert_prototypes="passes").fit(X)
    assert [1 <= row["prototype_passes"] <= 20 for row in passes.history_] == [True]


def test_of_a_single_cluster_all_may_be_left_out():
    mice = tiny(expert_heads="shared", expert_prototypes=None, max_epochs=1)
    assert set(mice.set_params(n_clusters=1).fit(X).labels_) == {0}


@pytest.mark.parametrize("options", ALONE)
def test_files_and_pickles_hold_it(tmp_path, options):
    mice = tiny(max_epochs=2, **options).fit(X)
    sk_mice.save(mice, tmp_path / "mice")
    for again in (sk_mice.load(tmp_path / "mice"), pickle.loads(pickle.dumps(mice))):
        np.testing.assert_array_equal(again.predict_proba(X), mice.predict_proba(X))
        if mice.expert_prototypes is not None:
            np.testing.assert_array_equal(
                again.expert_prototypes_, mice.expert_prototypes_
            )
        np.testing.assert_array_equal(again.gating_prototypes_, mice.gating_prototypes_)
        again.set_params(warm_start=True, max_epochs=1).fit(X)
        np.testing.assert_array_equal(again.labels_, again.predict(X))


@pytest.mark.parametrize("options", ALONE)
def test_a_fit_that_was_cut_off_goes_on(tmp_path, options):
    options = {"init": "random", "max_epochs": 3, **options}
    whole = tiny(**options).fit(X)
    cut = RaiseAt(3, MemoryError)  # as if the machine had gone
    with pytest.raises(MemoryError):
        tiny(checkpoint=tmp_path, callbacks=[cut], **options).fit(X)
    rest = tiny(checkpoint=tmp_path, **options).fit(X)
    np.testing.assert_array_equal(rest.predict_proba(X), whole.predict_proba(X))
    assert rest.elbo_ == whole.elbo_


@pytest.mark.parametrize(
    "change", [{"expert_heads": "shared"}, {"expert_prototypes": None}]
)
def test_a_warm_start_keeps_the_parts_that_there_are(change):
    mice = tiny(max_epochs=1).fit(X).set_params(warm_start=True, **change)
    with pytest.raises(ValueError, match="must be as in the fit"):
        mice.fit(X)


def test_a_warm_start_may_learn_otherwise():
    mice = tiny(max_epochs=2).fit(X)
    mu, omega = mice.expert_prototypes_, mice.gating_prototypes_
    learning = {"expert_prototypes": "gradient", "train_gating_prototypes": True}
    mice.set_params(warm_start=True, **learning).fit(X)
    assert not np.array_equal(mu, mice.expert_prototypes_)
    assert not np.array_equal(omega, mice.gating_prototypes_)
    omega = mice.gating_prototypes_
    mice.set_params(train_gating_prototypes=False).fit(X)
    np.testing.assert_array_equal(omega, mice.gating_prototypes_)


def test_parameters_are_those_of_the_estimator_and_more():
    mice = PaperMiCE(5, tau=0.5, schedule="step")
    own = {"gating_prototypes", "train_gating_prototypes", "expert_prototypes"}
    own |= {"gate_view", "n_rounds", "schedule", "warmup", "teacher_momentum"}
    assert mice.get_params().keys() - MiCEClustering().get_params().keys() == own
    again = clone(mice).set_params(augmentation__flip=True)
    assert (again.n_clusters, again.tau, again.schedule) == (5, 0.5, "step")
    assert again.augmentation.flip is True
    assert "tau=0.5" in repr(mice)
    with pytest.raises(TypeError, match="colour"):
        PaperMiCE(colour=1)


class WithBeta(PaperMiCE):
    def __init__(self, n_clusters=8, *, beta=1.0, **parameters):
        super().__init__(n_clusters, **parameters)
        self.beta = beta


def test_a_subclass_has_all_parameters():
    given = {
        "beta": 2.0,
        "schedule": "step",
        "expert_prototypes": "gradient",
        "lr": 1.0,
    }
    mice = clone(WithBeta(5, **given))
    assert given.items() <= mice.get_params().items()
    assert mice.get_params().keys() == PaperMiCE().get_params().keys() | {"beta"}
    assert eval(repr(mice)).get_params() == mice.get_params()
    assert repr(PaperMiCE(3)) == "PaperMiCE(n_clusters=3)"
    with pytest.raises(ValueError, match="'expert_prototypes' parameter of WithBeta"):
        WithBeta(3, expert_prototypes="nonsense").fit(X)


@pytest.mark.parametrize("base", [MiCEClustering, MoCo, PaperMoCo])
def test_a_subclass_of_each_estimator_has_all_parameters(base):
    class WithGamma(base):
        def __init__(self, *, gamma=1.0, **parameters):
            super().__init__(**parameters)
            self.gamma = gamma

    variant = clone(WithGamma(gamma=2.0, lr=0.1, max_epochs=3))
    assert variant.get_params().keys() == base().get_params().keys() | {"gamma"}
    assert (variant.gamma, variant.lr, variant.max_epochs) == (2.0, 0.1, 3)


def test_a_schedule_is_checked_at_every_step():
    def schedule(progress):
        return torch.tensor(-1.0 if 0.3 < progress < 0.4 else 1.0)

    with pytest.raises(ValueError, match=r"`schedule` must .* at 0.3\d* it gave -1"):
        tiny(schedule=schedule, init="random", max_epochs=10).fit(X)
    fitted = tiny(schedule=lambda progress: torch.tensor(0.5), warmup=0).fit(X)
    assert type(fitted.history_[-1]["lr"]) is float


def test_prototypes_are_copies():
    fitted = tiny().fit(X)
    before = fitted.predict_proba(X)
    fitted.gating_prototypes_[:] = 0
    fitted.expert_prototypes_[:] = 0
    np.testing.assert_array_equal(fitted.predict_proba(X), before)


def test_without_changes_it_is_the_estimator():
    plain = MiCEClustering(3, expert_heads="own", random_state=0, **SMALL).fit(X)
    mice = tiny().fit(X)
    np.testing.assert_array_equal(plain.predict_proba(X), mice.predict_proba(X))


# ------------------------------------------------------------------- the prototypes


class EveryStep(Callback):
    """Keeps copies of both sets of prototypes, and all else at an epoch's last step."""

    def __init__(self):
        self.mu, self.omega, self.others, self.at_end = [], [], [], []

    def on_batch_end(self, net, **kwargs):
        module = net.module_
        self.mu.append(module.expert_prototypes.detach().clone())
        self.omega.append(module.gating_prototypes.detach().clone())
        if net.step_ == net.n_steps_:
            self.others.append(state_of(module))

    def on_epoch_end(self, net, **kwargs):
        self.at_end.append(net.module_.expert_prototypes.detach().clone())


def watched(**options):
    """The steps of one epoch of EM, three an epoch, from a random start."""
    steps = EveryStep()
    options = {"init": "random", "max_epochs": 2, "callbacks": [steps], **options}
    return steps, tiny(**options).fit(X)


def test_analytical_update_alone_leaves_prototypes_to_the_epochs_end():
    steps, _ = watched(expert_prototypes="analytical")
    assert torch.equal(steps.mu[0], steps.mu[2])
    assert not torch.equal(steps.mu[2], steps.mu[3])
    assert torch.equal(steps.mu[3], steps.mu[5])


def test_gradient_alone_goes_on_over_the_epochs_end():
    steps, _ = watched(expert_prototypes="gradient")
    assert torch.equal(steps.at_end[0], steps.mu[2])
    assert torch.equal(steps.at_end[1], steps.mu[5])
    assert not torch.equal(steps.mu[0], steps.mu[1])


def test_passes_train_the_prototypes_and_nothing_else():
    steps, mice = watched(expert_prototypes="passes", max_epochs=1)
    for name, value in mice._model.state_dict().items():
        if name != "queue":  # rounded at the end of a fit
            same = torch.equal(value, steps.others[0][name])
            assert same == (name != "expert_prototypes")
    assert 1 <= mice.history_[0]["prototype_passes"] <= 20


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, None),
        ({"SETTLED_ROWS": 10.0}, 1),
        ({"SETTLED_ROWS": 0.0, "SETTLED_LOSS": 1e9}, 2),
        ({"SETTLED_ROWS": 0.0, "SETTLED_LOSS": 0.0}, 20),
    ],
)
def test_passes_end_where_prototypes_or_objective_settle(limits, expected, monkeypatch):
    for name, value in limits.items():
        monkeypatch.setattr(ablations, name, value)
    _, mice = watched(expert_prototypes="passes", max_epochs=1)
    n_passes = mice.history_[0]["prototype_passes"]
    assert n_passes == expected if expected else 1 <= n_passes <= 20


def test_ctrl_c_ends_the_passes_before_their_next_batch(monkeypatch):
    of_batch, n_batches = AblationTrainer._loss, []

    def pressed(trainer, batch):
        if len(trainer.history) == 2:
            n_batches.append(len(batch.indices))
            signal.raise_signal(signal.SIGINT)
        return of_batch(trainer, batch)

    monkeypatch.setattr(AblationTrainer, "_loss", pressed)
    mice = tiny(init="random", expert_prototypes="passes", max_epochs=4)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        mice.fit(X)
    assert (mice.n_iter_, len(n_batches)) == (1, 1)


def test_gating_prototypes_are_fixed_unless_they_are_to_be_trained():
    for trained in (False, True):
        steps, _ = watched(train_gating_prototypes=trained)
        assert torch.equal(steps.omega[0], steps.omega[-1]) != trained
        for omega in steps.omega:
            torch.testing.assert_close(omega.norm(dim=1), torch.ones(3))


# --------------------------------------------------------------------- learning rates


def test_step_has_the_papers_milestones():
    factor = make_schedule("step", warmup=0)
    epochs = {0: 1, 479: 1, 480: 0.1, 639: 0.1, 640: 0.01, 799: 0.01, 800: 0.001}
    for epoch, expected in epochs.items():
        assert factor(epoch / 1000) == pytest.approx(expected)


def test_given_milestones_and_callables():
    factor = make_schedule([0.5, 0.75], warmup=0)
    assert [factor(p) for p in (0.4, 0.6, 0.8)] == pytest.approx([1, 0.1, 0.01])
    assert make_schedule(math.sqrt, warmup=0)(0.25) == 0.5


@pytest.mark.parametrize("schedule", ["cosine", "step", "constant", [0.5], math.cos])
def test_warmup_rises_and_never_rests_at_zero(schedule):
    factor = make_schedule(schedule, warmup=0.1)
    rises = [factor(p) for p in (0, 0.03, 0.06, 0.089)]
    assert rises == sorted(rises)
    assert 0 < rises[0] < 0.11
    assert factor(0.2) == make_schedule(schedule, warmup=0)(0.2)


def test_an_error_of_a_schedule_is_its_own():
    with pytest.raises(ZeroDivisionError):
        PaperMoCo(schedule=lambda progress: 1 / 0).fit(X)


def test_em_takes_a_third_of_the_rate_after_a_first_stage_alone():
    options = {"schedule": "constant", "warmup": 0, "lr": 0.03, "max_epochs": 3}
    rates = [row["lr"] for row in tiny(**options).fit(X).history_]
    assert rates == pytest.approx([0.03, 0.03, 0.01])
    rates = [row["lr"] for row in tiny(**options, init="random").fit(X).history_]
    assert rates == pytest.approx([0.03] * 3)


def test_the_teachers_momentum():
    seen = []
    watch = callback(on_train_begin=lambda net: seen.append(net.teacher_momentum))
    for given, expected in ((None, 0.99), (0.5, 0.5)):
        seen.clear()
        tiny(teacher_momentum=given, callbacks=[watch], max_epochs=1).fit(X)
        assert set(seen) == {expected}
