"""The mixture whose experts predict neighbours: its objective, its start, odd sets."""

import copy
import math
import warnings
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
from shared import default_dtype, raising, same_generators
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from sk_mice import ClassificationEM, NeighborMixture, _neighbor_mixture
from sk_mice._engine import neighbor_gate
from sk_mice._engine.neighbor_gate import NeighborGate, evidence, train
from sk_mice.metrics import clustering_accuracy_score

DIGITS, CLASSES = load_digits(return_X_y=True)


def mixture(n_clusters=3, **parameters):
    return NeighborMixture(
        n_clusters, **{"max_epochs": 3, "random_state": 0, **parameters}
    )


@parametrize_with_checks([mixture(), mixture(center=False)])
@pytest.mark.filterwarnings("ignore:Empty clusters")  # rows in a plane
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


# ----------------------------------------------------------------------- the objective


def test_evidence_is_the_elbo_at_the_posterior():
    rng = torch.Generator().manual_seed(0)
    x, y = (torch.rand(5, 3, generator=rng, dtype=torch.float64) for _ in range(2))
    x, y = x / x.sum(dim=1, keepdim=True), y / y.sum(dim=1, keepdim=True)
    shares = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    found = evidence(x.log(), y.log(), shares.log())
    terms = x * y / shares  # prior times likelihood, up to p(y)
    torch.testing.assert_close(found, terms.sum(dim=1).log())
    q = terms / terms.sum(dim=1, keepdim=True)
    elbo = (q * (x.log() + (y / shares).log() - q.log())).sum(dim=1)
    torch.testing.assert_close(found, elbo)


def test_experts_are_distributions_over_rows():
    """p(y | x, k) sums to 1 over the rows, if p_k is the mean of pi_k."""
    pi = torch.rand(50, 4, generator=torch.Generator().manual_seed(0)).softmax(dim=1)
    pair = (pi[:1].log().expand(50, -1), pi.log(), pi.mean(dim=0).log())
    torch.testing.assert_close(evidence(*pair).exp().mean(), torch.tensor(1.0))


def test_elbo_of_separate_clusters_is_the_logarithm_of_their_number():
    x, y = make_blobs(300, 6, centers=4, cluster_std=0.1, random_state=0)
    fitted = mixture(4, max_epochs=30).fit(x)
    assert adjusted_rand_score(y, fitted.labels_) == 1
    assert fitted.elbo_ == pytest.approx(math.log(4), abs=0.05)


def test_em_raises_the_evidence_and_tells_of_each_epoch():
    x, _ = make_blobs(400, 6, centers=4, cluster_std=3.0, random_state=0)
    rows = torch.from_numpy(np.float32(x))
    labels = torch.from_numpy(ClassificationEM(4, random_state=0).fit_predict(x))
    nearest = torch.cdist(rows, rows).topk(6, largest=False).indices[:, 1:]
    calls = []

    def elbo_after(n_epochs):
        torch.manual_seed(0)
        gate = NeighborGate(6, 4, kappa=0.1)
        generator = torch.Generator().manual_seed(0)
        done = partial(calls.append, n_epochs)
        return train(gate, rows, labels, nearest, n_epochs, generator, done)

    first, last = elbo_after(1), elbo_after(40)
    assert last[1] > first[1] + 0.1
    assert len(calls) == (10 + 1) + (10 + 40)
    assert not any(p.requires_grad for p in last[0].parameters())


def test_epochs_take_steps_on_the_evidence_of_pairs_with_the_teacher(monkeypatch):
    for name, value in {"LABEL_EPOCHS": 0, "LEAST_STEPS": 1, "LR": 0.01}.items():
        monkeypatch.setattr(neighbor_gate, name, value)
    torch.manual_seed(0)
    gate = NeighborGate(5, 3, kappa=0.5)
    plain, mean = copy.deepcopy(gate), copy.deepcopy(gate).requires_grad_(False)
    rows, labels = torch.randn(20, 5), torch.arange(20) % 3
    nearest = torch.arange(20).roll(1)[:, None]
    found, elbo = train(gate, rows, labels, nearest, 3, torch.Generator(), int)

    optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=1e-4)
    shares = torch.bincount(labels) / 20
    for _ in range(3):
        x, y, x_mean, y_mean = (
            pi(some).exp() for pi in (plain, mean) for some in (rows, rows.roll(1, 0))
        )
        shares = 0.9 * shares + 0.1 * (x_mean + y_mean).mean(dim=0) / 2
        both = torch.stack([x * y_mean, y * x_mean]) / shares
        expected = both.sum(dim=2).log().mean()
        optimizer.zero_grad()
        (-expected).backward()
        optimizer.step()
        for average, value in zip(mean.parameters(), plain.parameters(), strict=True):
            average.mul_(0.996).add_(0.004 * value.detach())
    assert elbo == pytest.approx(expected.item(), rel=1e-5)
    torch.testing.assert_close(found(rows), mean(rows), rtol=1e-5, atol=1e-5)


def test_each_neighbour_of_a_row_is_drawn(monkeypatch):
    monkeypatch.setattr(neighbor_gate, "LABEL_EPOCHS", 0)
    pairs = set()

    class Seen(NeighborGate):
        def forward(self, rows):
            pairs.update(map(tuple, rows.int().view(2, -1).T.tolist()))
            return super().forward(rows)

    own = torch.arange(20)
    nearest = torch.stack([own.roll(k) for k in (1, 2, 3)], dim=1)
    rows, gate = own[:, None].float(), Seen(1, 2, kappa=1.0)
    train(gate, rows, own % 2, nearest, 30, torch.Generator(), int)
    assert pairs == {(i, j) for i in range(20) for j in nearest[i].tolist()}


# ---------------------------------------------------------------------- the estimator


def test_neighbours_improve_the_partition_of_digits():
    fitted = NeighborMixture(10, center=False, random_state=0).fit(DIGITS)
    start, end = (
        clustering_accuracy_score(CLASSES, labels)
        for labels in (fitted.init_labels_, fitted.labels_)
    )
    assert end > start + 0.01
    assert fitted.neighbors_recall_ == 1
    assert fitted.n_iter_ == 50


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("center", [True, False])
def test_predictions_are_those_of_the_attributes(dtype, center):
    x = DIGITS[:500].astype(dtype) + 3
    fitted = mixture(5, center=center, kappa=0.2).fit(x)
    np.testing.assert_array_equal(fitted.labels_, fitted.predict(x))
    assert fitted.labels_.dtype == np.int64
    rows = (x - fitted.origin_) @ fitted.axes_.T if center else x
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    hidden = np.maximum(rows @ fitted.hidden_weights_.T + fitted.hidden_bias_, 0)
    embeddings = hidden @ fitted.embedding_weights_.T + fitted.embedding_bias_
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    odds = np.exp(embeddings @ fitted.gating_prototypes_.T)
    shares = fitted.predict_proba(x)
    assert shares.dtype == dtype
    np.testing.assert_allclose(shares, odds / odds.sum(1, keepdims=True), atol=1e-4)
    lengths = np.linalg.norm(fitted.gating_prototypes_, axis=1)
    np.testing.assert_allclose(lengths, 1 / 0.2, rtol=1e-5)
    fitted.set_params(center=not center, kappa=3.0)  # of the next fit
    np.testing.assert_array_equal(fitted.predict_proba(x), shares)


def test_a_fit_without_centre_leaves_no_axes():
    x = DIGITS[:100]
    fitted = mixture().fit(x)
    assert fitted.axes_.shape[1] == 64
    assert not hasattr(fitted.set_params(center=False).fit(x), "axes_")


def test_the_same_seed_gives_the_same_clusters_whatever_is_global():
    x = DIGITS[:300]
    first = mixture().fit(x)
    torch.manual_seed(7)
    with same_generators(), default_dtype(torch.float64), torch.inference_mode():
        again = clone(first).fit(x)
    np.testing.assert_array_equal(first.predict_proba(x), again.predict_proba(x))
    other = mixture(random_state=1).fit(x)
    assert not np.array_equal(first.predict_proba(x), other.predict_proba(x))


def test_progress_is_shown_if_asked_for(capsys):
    mixture(verbose=1).fit(DIGITS[:60])
    assert "13/13" in capsys.readouterr().err
    mixture().fit(DIGITS[:60])
    assert capsys.readouterr() == ("", "")


def test_missed_neighbours_are_told(monkeypatch):
    def half(rows, n_neighbors, seed):
        return np.zeros((len(rows), n_neighbors), np.int64), n_neighbors / 8

    monkeypatch.setattr(_neighbor_mixture, "nearest_neighbors", half)
    with pytest.warns(UserWarning, match="found 50% of the nearest"):
        assert mixture(n_neighbors=4).fit(DIGITS[:60]).neighbors_recall_ == 0.5


# ------------------------------------------------------------------------ odd sets


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("scale", [0, 1e-30, 1, 1e30])
@pytest.mark.parametrize("n", [1, 2, 3, 9])
def test_few_rows_of_any_size(n, scale, center):
    x = scale * np.random.default_rng(0).standard_normal((n, 4))
    for dtype in (np.float32, np.float64):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fitted = mixture(min(n, 2), center=center).fit(x.astype(dtype))
        assert all(w.category is ConvergenceWarning for w in caught), caught
        assert np.isfinite(fitted.predict_proba(x)).all()
        assert np.isfinite(fitted.elbo_)


def test_rows_that_are_alike_whatever_their_mean_rounds_to():
    for row in np.random.default_rng(0).normal(size=(10, 3)):
        with pytest.warns(ConvergenceWarning):
            mixture = NeighborMixture(2, max_epochs=1).fit(np.tile(row, (100, 1)))
        assert len(set(mixture.labels_)) == 1


@pytest.mark.parametrize("kappa", [0.1, 1e-3])  # with which empty clusters get 0
def test_repeated_rows_have_fewer_clusters(kappa):
    x = np.repeat(DIGITS[:2], 20, axis=0)
    with pytest.warns(ConvergenceWarning, match="Empty clusters.*repeated"):
        fitted = mixture(4, kappa=kappa).fit(x)
    labels = fitted.labels_
    assert np.isfinite(fitted.elbo_)
    assert (labels[:20] == labels[0]).all()
    assert (labels[20:] == labels[20]).all()


@pytest.mark.parametrize("kappa", [1e-3, 1e9, 1e39, Fraction(1, 10)])
@pytest.mark.parametrize("scale", [1, 1e-310])
@pytest.mark.parametrize("center", [True, False])
def test_extreme_temperatures_and_scales(kappa, scale, center):
    x = scale * DIGITS[:60]
    with np.errstate(all="raise"):
        fitted = mixture(kappa=kappa, center=center).fit(x)
        assert np.isfinite(fitted.predict_proba(x)).all()
    assert len(set(fitted.labels_)) > 1


def test_a_failed_fit_changes_nothing(monkeypatch):
    fitted = mixture().fit(DIGITS[:60])
    before = fitted.predict_proba(DIGITS[:60])
    monkeypatch.setattr(_neighbor_mixture, "train", raising(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        fitted.set_params(center=False).fit(DIGITS[:100])
    np.testing.assert_array_equal(fitted.predict_proba(DIGITS[:60]), before)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_clusters": 61}, "`n_clusters` must be at most the number of rows of X"),
        ({"n_neighbors": 0}, "'n_neighbors' parameter .* must be an int in the range"),
        ({"kappa": 0}, "'kappa' parameter"),
        ({"max_epochs": True}, "'max_epochs' parameter"),
        ({"center": "yes"}, "'center' parameter"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        mixture(**{"n_clusters": 3, **parameters}).fit(DIGITS[:60])
