"""The paper's ablations (Table 3) as parameters, alone and together."""

import math
import pickle
from itertools import combinations

import numpy as np
import pytest
from skorch.callbacks import Callback

import sk_mice
from sk_mice import MiCEClustering

# The fits here are too short to separate anything: a cluster may well be empty.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
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


def tiny(**options):
    defaults = {"embedding_dim": 8, "batch_size": 16, "max_epochs": 4}
    return MiCEClustering(3, random_state=0, **(defaults | options))


def pairs():
    """All that do not set the same parameter."""
    for one, other in combinations(ABLATIONS, 2):
        if not ABLATIONS[one].keys() & ABLATIONS[other].keys():
            yield one, other


@pytest.mark.parametrize("init", ["random", "two-stage"])
@pytest.mark.parametrize("options", ALONE)
def test_alone(options, init):
    plain, mice = tiny(init=init).fit(X), tiny(init=init, **options).fit(X)
    assert mice.elbo_ != plain.elbo_  # it does something
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


class Cut(Callback):
    def __init__(self, epoch):
        self.epoch = epoch

    def on_batch_begin(self, net, **kwargs):
        if len(net.history) == self.epoch:
            raise MemoryError  # as if the machine had gone


@pytest.mark.parametrize("options", ALONE)
def test_a_fit_that_was_cut_off_goes_on(tmp_path, options):
    options = {"init": "random", "max_epochs": 3, **options}
    whole = tiny(**options).fit(X)
    with pytest.raises(MemoryError):
        tiny(checkpoint=tmp_path, callbacks=[Cut(3)], **options).fit(X)
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
