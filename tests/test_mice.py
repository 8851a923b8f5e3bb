"""MiCEClustering as its users meet it."""

import copy
import math
import pickle
import random
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from shared import (
    Labels,
    assert_same_state,
    callback,
    same_generators,
    short_fits,
    state_of,
)
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from skorch.callbacks import Callback, Checkpoint, EpochScoring, PrintLog

from sk_mice import MiCEClustering, MoCo, load, save
from sk_mice.ablations import PaperMiCE, PaperMoCo
from sk_mice.backbones import SmallResNet
from sk_mice.metrics import clustering_accuracy_score

pytestmark = short_fits
RNG = np.random.default_rng(0)
DIGITS = load_digits(n_class=4)
IMAGES, CLASSES = DIGITS.images[:96], DIGITS.target[:96]
# Built once: all fits begin with the same weights.
torch.manual_seed(0)
BACKBONE = SmallResNet(8, blocks=(1, 1)).build((1, 16, 16))


def tiny(n_clusters=4, **options):
    """An estimator that fits in a moment."""
    defaults = {
        "backbone": BACKBONE,
        "embedding_dim": 16,
        "max_epochs": 4,
        "batch_size": 32,
        "random_state": 0,
    }
    return MiCEClustering(n_clusters, **(defaults | options))


def tiny_vectors(n_clusters=3, **options):
    return tiny(n_clusters, **({"backbone": "auto", "max_epochs": 10} | options))


@pytest.fixture(scope="module")
def fitted():
    return tiny().fit(IMAGES)


# ------------------------------------------------------------------- scikit-learn


@parametrize_with_checks([MiCEClustering(max_epochs=8)])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_clone_and_fit_leave_the_users_backbone_alone():
    mine = SmallResNet(4, blocks=(1, 1)).build((1, 16, 16)).train()
    before = state_of(mine)
    estimator = tiny(backbone=mine)
    clone(estimator).fit(IMAGES)
    estimator.fit(IMAGES)
    assert estimator.backbone is mine
    assert_same_state(mine, before)
    after = state_of(estimator.backbone_)
    assert not all(value.equal(before[name]) for name, value in after.items())


def test_backbone_can_be_passed_on(fitted):
    moco = MoCo(backbone=fitted.backbone_, max_epochs=1, random_state=0)
    moco.fit(IMAGES)
    assert type(moco.backbone_) is type(fitted.backbone_)
    again = tiny(backbone=moco.backbone_, init="random", max_epochs=1)
    again.set_params(lr=1e-12, weight_decay=0.0).fit(IMAGES)
    for a, b in zip(
        again.backbone_.parameters(), moco.backbone_.parameters(), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_pipeline_with_flattened_rows(fitted):
    rows = IMAGES.reshape(len(IMAGES), -1)
    flat = tiny(image_shape=(8, 8)).fit(rows)
    np.testing.assert_array_equal(flat.labels_, fitted.labels_)
    pipeline = make_pipeline(
        FunctionTransformer(lambda X: X.reshape(len(X), -1)), tiny(image_shape=(8, 8))
    ).fit(IMAGES)
    np.testing.assert_array_equal(pipeline.predict(IMAGES), fitted.labels_)
    np.testing.assert_allclose(
        pipeline.predict_proba(IMAGES), fitted.predict_proba(IMAGES)
    )


def test_set_output_and_feature_names(fitted):
    names = fitted.get_feature_names_out()
    assert names[0] == "miceclustering0"
    assert len(names) == 16
    frame = clone(fitted).set_output(transform="pandas").fit(IMAGES).transform(IMAGES)
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == list(names)
    X = pd.DataFrame(RNG.random((30, 4)), columns=list("abcd"))
    estimator = tiny_vectors(max_epochs=1, init="random").fit(X)
    assert list(estimator.feature_names_in_) == list("abcd")
    with pytest.raises(ValueError, match="feature names"):
        estimator.predict(X.rename(columns={"a": "z"}))


# ------------------------------------------------------------------------ fitting


def test_fitted_attributes(fitted):
    assert fitted.labels_.shape == (96,)
    np.testing.assert_array_equal(fitted.labels_, fitted.predict(IMAGES))
    assert fitted.n_iter_ == 4
    assert fitted.n_features_in_ == 64
    assert fitted.device_ == torch.device("cpu")
    assert fitted.cluster_sizes_.sum() == 96
    np.testing.assert_array_equal(
        fitted.cluster_sizes_, np.bincount(fitted.labels_, minlength=4)
    )
    assert fitted.elbo_ == pytest.approx(fitted.score(IMAGES))
    for prototypes in (fitted.gating_prototypes_, fitted.expert_prototypes_):
        assert prototypes.shape == (4, 16)
        np.testing.assert_allclose(np.linalg.norm(prototypes, axis=1), 1, rtol=1e-5)
    assert fitted.init_labels_.shape == (96,)
    assert not hasattr(fitted, "stability_")
    assert [row["stage"] for row in fitted.history_] == ["moco"] * 3 + ["em"]


def test_outputs(fitted):
    q = fitted.predict_proba(IMAGES)
    assert q.shape == (96, 4)
    assert q.dtype == np.float32
    np.testing.assert_allclose(q.sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(q.argmax(1), fitted.labels_)
    np.testing.assert_allclose(np.exp(fitted.predict_log_proba(IMAGES)), q, rtol=1e-5)
    elbo = fitted.score_samples(IMAGES)
    assert elbo.shape == (96,)
    assert elbo.mean() == pytest.approx(fitted.score(IMAGES))
    g = fitted.transform(IMAGES)
    assert g.shape == (96, 16)
    assert g.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(g, axis=1), 1, rtol=1e-5)


def test_prediction_changes_nothing_and_ignores_order_and_batches(fitted, monkeypatch):
    before, keys = state_of(fitted._model), set(vars(fitted))
    q, g = fitted.predict_proba(IMAGES), fitted.transform(IMAGES)
    order = RNG.permutation(len(IMAGES))
    np.testing.assert_allclose(
        fitted.predict_proba(IMAGES[order]), q[order], rtol=1e-4, atol=1e-6
    )
    monkeypatch.setattr("sk_mice._engine.inference.LARGEST_BATCH", 7)
    np.testing.assert_allclose(fitted.predict_proba(IMAGES), q, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(fitted.transform(IMAGES), g, rtol=1e-4, atol=1e-5)
    fitted.score(IMAGES)
    assert_same_state(fitted._model, before)
    assert set(vars(fitted)) == keys
    assert not fitted._model.training


def test_the_order_of_vectors_changes_no_bit():
    X = 3 * np.random.RandomState(0).uniform(size=(40, 5))
    model = MiCEClustering(2, max_epochs=8, random_state=0).fit(X)
    expected = model.predict_proba(X)
    for seed in range(50):
        order = np.random.RandomState(seed).permutation(len(X))
        np.testing.assert_array_equal(model.predict_proba(X[order]), expected[order])


def test_the_start_does_not_depend_on_what_a_batch_holds(monkeypatch):
    """Images sorted by class come in batches of one class."""
    seen = []

    class Recorded(KMeans):
        def fit_predict(self, X, y=None):
            seen.append(X)
            return super().fit_predict(X)

    tiny(init=Recorded()).fit(IMAGES)
    n_rounds = len(seen)
    monkeypatch.setattr("sk_mice._engine.inference.LARGEST_BATCH", 7)
    tiny(init=Recorded()).fit(IMAGES)
    np.testing.assert_allclose(seen[0], seen[n_rounds], rtol=1e-3, atol=1e-5)


def test_two_fits_agree_bit_for_bit_and_touch_no_global_generator(fitted):
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    with same_generators():
        again = tiny().fit(IMAGES)
    assert_same_state(again._model, state_of(fitted._model))
    other = tiny(random_state=1).fit(IMAGES)
    assert not np.array_equal(other.transform(IMAGES), fitted.transform(IMAGES))


@pytest.mark.parametrize("init", ["random", "two-stage"])
def test_one_epoch_is_one_of_em(init):
    estimator = tiny(init=init, max_epochs=1).fit(IMAGES)
    assert [row["stage"] for row in estimator.history_] == ["em"]


def test_restarts_keep_the_best_and_say_how_far_they_agree():
    estimator = tiny(n_init=3, init="random", max_epochs=2).fit(IMAGES)
    assert -1 <= estimator.stability_ <= 1
    assert estimator.n_iter_ == 2
    assert estimator.elbo_ == pytest.approx(estimator.score(IMAGES))
    single = tiny(init="random", max_epochs=2).fit(IMAGES)
    assert estimator.elbo_ >= single.elbo_
    estimator.set_params(n_init=1).fit(IMAGES)
    assert not hasattr(estimator, "stability_")


def test_given_labels_are_the_start():
    # At larger rates so small a network forgets them with some seeds.
    estimator = tiny(max_epochs=40, lr=0.03, init=CLASSES).fit(IMAGES)
    assert {row["stage"] for row in estimator.history_} == {"em"}
    np.testing.assert_array_equal(estimator.init_labels_, CLASSES)
    # The model learns the partition that it is given, by its names.
    assert (estimator.labels_ == CLASSES).mean() > 0.5


def test_a_clusterer_may_find_the_start():
    without_a_number = Labels(CLASSES)  # of clusters, as density-based clusterers
    for clusterer in (KMeans(), GaussianMixture(), without_a_number):
        estimator = tiny(init=clusterer).fit(IMAGES)
        assert set(estimator.init_labels_) == set(range(4))
        assert not hasattr(clusterer, "labels_")
    np.testing.assert_array_equal(estimator.init_labels_, CLASSES)


def test_a_pipeline_as_start_is_told_the_clusters_and_a_seed():
    init = make_pipeline(StandardScaler(), KMeans(n_clusters=7))
    fits = []
    for seed in range(2):
        np.random.seed(seed)
        fits.append(tiny(init=init).fit(IMAGES))
    assert len(np.unique(fits[0].init_labels_)) == 4
    assert_same_state(fits[0]._model, state_of(fits[1]._model))
    assert init[-1].n_clusters == 7


def test_warm_start_goes_on_with_everything(fitted):
    estimator = copy.deepcopy(fitted)
    before = state_of(estimator._model)
    estimator.set_params(warm_start=True, lr=1e-12, weight_decay=0.0, max_epochs=2)
    estimator.fit(IMAGES)
    assert [row["stage"] for row in estimator.history_] == ["em", "em"]
    after = state_of(estimator._model)
    for name, value in before.items():
        if name.startswith("student") and name.endswith(("weight", "bias")):
            torch.testing.assert_close(value, after[name], atol=1e-6, rtol=0)
    assert not torch.equal(before["queue"], after["queue"])
    estimator.set_params(tau=0.5, augmentation="simclr").fit(IMAGES)
    assert estimator.augmentation_.colors == "simclr"
    assert estimator._model.tau == 0.5
    with pytest.raises(ValueError, match=r"samples of shape \(8, 8\).*got \(9, 8\)"):
        estimator.fit(np.zeros((20, 9, 8)))


both_precisions = pytest.mark.parametrize("precision", ["float32", "bfloat16"])


@both_precisions
def test_the_queue_has_the_precision_of_the_networks(precision):
    estimator = tiny(precision=precision, init="random", max_epochs=2).fit(IMAGES)
    assert estimator._model.queue.dtype == getattr(torch, precision)
    assert estimator.predict_proba(IMAGES).dtype == np.float32
    np.testing.assert_array_equal(estimator.labels_, estimator.predict(IMAGES))


@both_precisions
def test_a_warm_start_takes_another_precision(precision):
    other = {"float32": "bfloat16", "bfloat16": "float32"}[precision]
    estimator = tiny(precision=other, init="random", max_epochs=1).fit(IMAGES)
    estimator.set_params(warm_start=True, precision=precision).fit(IMAGES)
    assert estimator._model.queue.dtype == getattr(torch, precision)
    again = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_array_equal(estimator.labels_, again.predict(IMAGES))


def test_parts_of_short_names_can_be_set():
    estimator = MiCEClustering(augmentation="simclr", backbone="resnet-small")
    estimator.set_params(augmentation__flip=False, backbone__width=4)
    augmentation = estimator.augmentation
    assert (augmentation.colors, augmentation.flip) == ("simclr", False)
    assert estimator.backbone.width == 4
    vectors = MiCEClustering(augmentation="moco").set_params(augmentation__noise=0.5)
    assert vectors.augmentation.noise == 0.5
    again = MiCEClustering().set_params(augmentation="simclr", augmentation__flip=True)
    assert (again.augmentation.colors, again.augmentation.flip) == ("simclr", True)


def test_setting_parts_of_a_short_name_leaves_the_name_as_it_is():
    MiCEClustering().set_params(augmentation__colors=None)
    assert tiny(max_epochs=1).fit(IMAGES).augmentation_.colors == "moco"


def test_parts_that_no_short_name_or_no_one_of_them_has_are_refused():
    with pytest.raises(ValueError, match=r"='moco' has no .*__width`; .*__colors"):
        MiCEClustering().set_params(augmentation__width=3)
    with pytest.raises(ValueError, match=r"together; it has .*__flip.*; or .*__noise"):
        MiCEClustering().set_params(augmentation__flip=True, augmentation__noise=0.3)
    with pytest.raises(ValueError, match="as BaseEstimator has them, or one of 'mlp'"):
        MiCEClustering().set_params(backbone__width=3)


@pytest.mark.parametrize(
    ("own", "part", "message"),
    [
        (
            {"augmentation": None},
            "augmentation__flip",
            ", or one of 'moco', .*; got None",
        ),
        ({"backbone": abs}, "backbone__width", ", or one of 'mlp', .*; got <built-in"),
        ({"init": "two-stage"}, "init__n_init", "; got 'two-stage'"),
        ({"init": np.zeros(99)}, "init__n_init", r"; got array\("),
    ],
)
def test_what_has_no_parameters_is_named(own, part, message):
    with pytest.raises(
        ValueError, match=f"`{part}`: .* must be an object .* them{message}"
    ):
        MiCEClustering(**own).set_params(**{part: 3})


def test_converged_says_whether_labels_still_change(fitted):
    assert fitted.converged_ == (fitted.history_[-1]["changed"] <= 0.01)
    assert isinstance(fitted.converged_, bool)
    assert tiny(1).fit(IMAGES).converged_ is True  # there is no other cluster
    assert tiny(init="random", max_epochs=1).fit(IMAGES).converged_ is False


def test_callbacks_and_progress_bar(capsys):
    epochs = []
    count = callback(on_epoch_end=lambda net: epochs.append(net.history[-1, "elbo"]))
    estimator = tiny(callbacks=[count], verbose=1).fit(IMAGES)
    assert epochs == [row["elbo"] for row in estimator.history_]
    shown = capsys.readouterr().err
    assert "4/4" in shown
    for stage in ("learning features", "clustering of the features", "clustering: "):
        assert stage in shown
    assert "labels of all samples" in shown
    assert "of training left" in shown


def test_a_callback_reads_the_clusters_of_each_epoch():
    seen = []

    def acc(net, X, y=None):
        return clustering_accuracy_score(CLASSES, net.labels_)

    scoring = EpochScoring(acc, on_train=True, use_caching=False)
    # Labels are a copy, which the next epoch leaves alone.
    watch = callback(on_epoch_end=lambda net: seen.append(net.labels_))
    mice = tiny(init="random", callbacks=[scoring, watch]).fit(IMAGES)
    assert len(seen) == 4
    for row, labels in zip(mice.history_, seen, strict=True):
        assert np.bincount(labels, minlength=4).tolist() == row["cluster_sizes"]
        assert row["acc"] == clustering_accuracy_score(CLASSES, labels)


def test_a_program_without_stderr_shows_no_progress(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", None)  # as of one with windows
    options = {"verbose": 1, "checkpoint": tmp_path}
    first, again = (tiny(**options).fit(IMAGES) for _ in range(2))  # one from the file
    np.testing.assert_array_equal(first.labels_, again.labels_)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("verbose", [0, 1])
def test_callbacks_print_if_verbose(capsys, verbose):
    tiny(callbacks=[PrintLog()], verbose=verbose, max_epochs=1).fit(IMAGES)
    out, err = capsys.readouterr()
    assert ("train_loss" in out) == bool(verbose)
    assert verbose or not out + err


def test_a_scoring_of_the_training_is_recorded():
    def score(net, X, y=None):
        return 0.5

    scoring = EpochScoring(score, on_train=True, use_caching=False)
    fitted = tiny(callbacks=[scoring], init="random").fit(IMAGES)
    assert [row["score"] for row in fitted.history_] == [0.5] * fitted.n_iter_


def test_callbacks_that_monitor_the_best_loss(tmp_path):
    best = Checkpoint(dirname=tmp_path)  # by "valid_loss_best"
    tiny(init="random", callbacks=[best], max_epochs=2).fit(IMAGES)
    assert (tmp_path / "params.pt").exists()


def test_more_clusters_than_a_simplex_has_room_for():
    estimator = tiny(20, embedding_dim=8, max_epochs=2).fit(IMAGES)
    assert estimator.gating_prototypes_.shape == (20, 8)


def test_empty_clusters_are_counted_and_keep_their_prototypes():
    X = np.zeros((30, 8, 8))
    with pytest.warns(ConvergenceWarning, match=r"Empty clusters: . of 4. Try"):
        estimator = tiny(init="random", max_epochs=2).fit(X)
    norms = np.linalg.norm(estimator.expert_prototypes_, axis=1)
    np.testing.assert_allclose(norms, 1, rtol=1e-5)


class FailsFarAway(torch.nn.Module):
    """A network that cannot compute with large values."""

    def forward(self, x):
        return torch.where(x.abs().amax(dim=1, keepdim=True) > 50, torch.nan, x)


@pytest.mark.parametrize("heads", ["own", "shared"])
def test_what_a_network_cannot_compute_with_gets_no_label(heads):
    X = RNG.standard_normal((40, 5))
    model = tiny_vectors(backbone=FailsFarAway(), expert_heads=heads).fit(X)
    far = X * np.where(np.arange(40) == 7, 1000, 1)[:, None]
    calls = (model.predict, model.predict_proba, model.transform, model.agreement)
    for call in calls:
        call(X)
        with pytest.raises(ValueError, match="can compute with"):
            call(far)


@pytest.mark.parametrize("heads", ["own", "shared"])
def test_clusters_that_training_leaves_empty_get_a_sample(heads):
    X = np.random.default_rng(0).standard_normal((90, 6)).astype(np.float32)
    few = {"init": "random", "max_epochs": 2, "batch_size": 30, "random_state": 0}
    estimator = PaperMiCE(20, expert_heads=heads, **few)
    with pytest.warns(
        ConvergenceWarning, match=r"left empty, moved to samples: .* of 20"
    ):
        estimator.fit(X)
    assert estimator.cluster_sizes_.min() > 0
    np.testing.assert_array_equal(estimator.predict(X), estimator.labels_)


def test_prototypes_move_at_a_tau_that_float32_does_not_hold():
    X = np.zeros((2, 1), dtype=np.float16)
    few = {"init": "random", "max_epochs": 1, "batch_size": 2, "random_state": 0}
    with pytest.warns(ConvergenceWarning, match="Empty clusters|left empty"):
        mice = MiCEClustering(2, tau=1e300, embedding_dim=3, **few).fit(X)
    assert np.isfinite(mice.predict_proba(X)).all()


# -------------------------------------------------------------------- fits that fail


def too_fast_at_last(progress):
    return 1.0 if progress < 0.7 else 1e30


DIVERGING = {"schedule": too_fast_at_last, "warmup": 0.0, "precision": "float32"}


def of_the_paper(cls=PaperMiCE, **options):
    """`tiny` as a class of `ablations`, which alone has `schedule`."""
    known = cls().get_params()
    given = tiny().get_params() | options
    return cls(**{name: value for name, value in given.items() if name in known})


def assert_fitted(estimator):
    np.testing.assert_array_equal(estimator.labels_, estimator.predict(IMAGES))
    assert estimator.elbo_ == pytest.approx(estimator.score(IMAGES))
    assert np.isfinite(estimator.predict_proba(IMAGES)).all()
    for value in state_of(estimator._model).values():
        assert value.isfinite().all()


@pytest.mark.parametrize("cls", [PaperMiCE, PaperMoCo])
def test_a_fit_that_diverges_leaves_the_last_finite_state(cls):
    estimator = of_the_paper(cls, init="random", max_epochs=10, **DIVERGING)
    with pytest.raises(FloatingPointError, match=r"in epoch 8 .* Try a lower `lr`"):
        estimator.fit(IMAGES)
    assert estimator.n_iter_ == len(estimator.history_) == 7
    assert np.isfinite([row["elbo"] for row in estimator.history_]).all()
    assert np.isfinite(estimator.transform(IMAGES)).all()
    if cls is PaperMiCE:
        assert_fitted(estimator)


def test_a_restart_that_diverges_costs_no_other():
    rates = iter([1.0] * 3 + [1e-3] * 10**4)  # `fit` checks `schedule` at three places
    started = []

    class Watch(Callback):
        def on_train_begin(self, net, **kwargs):
            started.append(net)
            if len(started) == 3:  # the first stage of the second restart
                net.module_.student.experts.weight.data.fill_(math.nan)

    options = {"callbacks": [Watch()], "schedule": lambda p: next(rates)}
    estimator = of_the_paper(n_init=3, **options)
    with pytest.raises(FloatingPointError, match="in epoch 1 of this stage"):
        estimator.fit(IMAGES)
    assert estimator.n_iter_ == 4
    assert_fitted(estimator)


@pytest.mark.parametrize("init", ["random", "two-stage"])
def test_before_a_whole_epoch_there_is_no_model(init):
    estimator = of_the_paper(init=init, lr=1e6, schedule=lambda progress: 1e30)
    before = set(vars(estimator))
    with pytest.raises(FloatingPointError, match="in epoch 1"):
        estimator.fit(IMAGES)
    assert set(vars(estimator)) == before
    with pytest.raises(NotFittedError):
        estimator.predict(IMAGES)


class Poison(Callback):
    def on_batch_begin(self, net, **kwargs):
        net.module_.student.experts.weight.data.fill_(math.nan)


@pytest.mark.parametrize("warm_start", [False, True])
@pytest.mark.parametrize(
    ("parameters", "X"),
    [
        ({}, np.full((9, 8, 8), np.nan)),
        ({}, RNG.random((20, 5, 5))),  # with another value range and mean
        ({"callbacks": [Poison()]}, 16 * RNG.random((20, 8, 8))),
        ({"callbacks": [1]}, 16 * RNG.random((20, 8, 8))),
    ],
    ids=["NaN", "another shape", "diverges", "wrong"],
)
def test_a_fit_that_fails_leaves_the_estimator_as_it_was(
    fitted, parameters, X, warm_start
):
    estimator = copy.deepcopy(fitted)
    estimator.set_params(**parameters, warm_start=warm_start)
    if len(X) == 20 and not parameters and not warm_start:
        estimator.set_params(n_clusters=21)
    q, kept = fitted.predict_proba(IMAGES), set(vars(estimator))
    state = state_of(estimator._model)
    with pytest.raises((TypeError, ValueError, FloatingPointError)):
        estimator.fit(X)
    assert set(vars(estimator)) == kept
    np.testing.assert_array_equal(estimator.predict_proba(IMAGES), q)
    assert_same_state(estimator._model, state)


def test_a_warning_taken_for_an_error_costs_no_fit():
    estimator = tiny(init="random", max_epochs=2)
    X = np.zeros((30, 8, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        with pytest.raises(ConvergenceWarning, match="Empty clusters"):
            estimator.fit(X)
    assert estimator.predict(X).shape == (30,)


@pytest.mark.parametrize("shape", [(24, 9, 9), (24, 9, 9, 3), (24, 6)])
def test_a_constant_gets_one_warning_which_is_ours(shape):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tiny_vectors(4, max_epochs=4).fit(np.full(shape, 0.3))
    assert [str(warning.message)[:25] for warning in caught] == [
        "Empty clusters: 3 of 4. T"
    ]
    assert caught[0].filename == __file__


# ------------------------------------------------------------------- kinds of input


def test_one_cluster():
    estimator = tiny(1).fit(IMAGES)
    assert (estimator.labels_ == 0).all()
    np.testing.assert_allclose(estimator.predict_proba(IMAGES), 1)


def test_blobs_are_found():
    X, y = make_blobs(300, 8, centers=3, random_state=0)
    estimator = tiny_vectors(max_epochs=30).fit(X)
    assert clustering_accuracy_score(y, estimator.labels_) > 0.95


# ----------------------------------------------------------------------- bad input


@pytest.mark.parametrize("callbacks", [[1], ["lr"], [None], [("name", 5)], [dict]])
def test_callbacks_are_checked(callbacks):
    with pytest.raises(TypeError, match=r"`callbacks` must be skorch callbacks; got"):
        tiny(callbacks=callbacks).fit(IMAGES)


def test_a_warm_start_keeps_the_shape_of_the_model(fitted):
    estimator = copy.deepcopy(fitted).set_params(warm_start=True)
    with pytest.raises(ValueError, match=r"`n_clusters` must be as in .* 4; got 5"):
        estimator.set_params(n_clusters=5).fit(IMAGES)
    with pytest.raises(ValueError, match=r"`embedding_dim` must be as in .* 16; got 8"):
        estimator.set_params(n_clusters=4, embedding_dim=8).fit(IMAGES)
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        estimator.set_params(embedding_dim=16).fit(IMAGES[:1])


def test_a_warm_start_takes_an_equal_backbone():
    fitted = tiny(backbone=SmallResNet(4, blocks=[1, 1]), max_epochs=1).fit(IMAGES)
    fitted.set_params(warm_start=True, backbone=SmallResNet(4, blocks=(1, 1)))
    fitted.fit(IMAGES)
    with pytest.raises(ValueError, match="`backbone` must be as in the fit"):
        fitted.set_params(backbone__blocks=(1, 2)).fit(IMAGES)


# ------------------------------------------------------------------- agreement


def test_agreement_counts_the_clusters_of_random_views():
    model = tiny(init=CLASSES).fit(IMAGES)  # of several clusters
    with same_generators():
        shares = model.agreement(IMAGES, n_views=np.int64(4))
    assert shares.shape == (len(IMAGES), 4)
    assert shares.dtype == np.float32
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    np.testing.assert_array_equal(shares * 4 % 1, 0)
    np.testing.assert_array_equal(model.agreement(IMAGES, n_views=4), shares)
    other = model.agreement(IMAGES, n_views=4, random_state=1)
    assert (other != shares).any()


def test_parameters_for_the_next_fit_change_no_answer(fitted):
    later = copy.deepcopy(fitted).set_params(n_clusters=2)
    assert np.array_equal(later.agreement(IMAGES), fitted.agreement(IMAGES))


def test_agreement_of_what_has_no_random_views_is_that_of_neighbors():
    rows = IMAGES.reshape(len(IMAGES), -1)
    for X, more in ((rows, {"backbone": "mlp"}), (IMAGES, {"augmentation": None})):
        model = tiny(init="random", **more).fit(X)
        nearest = NearestNeighbors(n_neighbors=3, metric="cosine").fit(
            rows - rows.mean(axis=0)
        )
        table = nearest.kneighbors(return_distance=False)
        shares = model.agreement(X, n_views=3)
        own = (model.labels_[table] == model.labels_[:, None]).mean(axis=1)
        found = shares[np.arange(len(X)), model.labels_]
        assert (np.abs(found - own) < 1e-6).mean() > 0.95  # a few are as near
        assert model.agreement(X[:3], n_views=9).shape == (3, 4)
        np.testing.assert_array_equal(
            model.agreement(X[:1]).argmax(axis=1), model.predict(X[:1])
        )


def test_agreement_refuses(fitted):
    with pytest.raises(NotFittedError):
        tiny().agreement(IMAGES)
    for n_views in (0, 1.5, True):
        with pytest.raises(ValueError, match=r"'n_views' parameter of .*agreement"):
            fitted.agreement(IMAGES, n_views=n_views)


def test_agreement_needs_the_augmentation_that_a_file_does_not_hold(tmp_path):
    def brighter(stack, generator):
        return stack + 0.1 * torch.rand(len(stack), 1, 1, 1)

    network = SmallResNet(4, blocks=(1, 1))
    model = tiny(augmentation=brighter, backbone=network, init="random").fit(IMAGES)
    shares = model.agreement(IMAGES)
    with pytest.warns(UserWarning, match="cannot hold the parameter `augmentation`"):
        save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    with pytest.raises(ValueError, match="`agreement` needs the `augmentation`"):
        again.agreement(IMAGES)
    again.augmentation_ = brighter
    np.testing.assert_array_equal(again.agreement(IMAGES), shares)
