"""Stability, and the choice of the number of clusters."""

import errno
import os
import pickle
import signal
import warnings
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
import torch
from joblib import parallel_config
from scipy.sparse import csr_array
from shared import recorded, short_fits, tiny
from sklearn.base import BaseEstimator, ClusterMixin, clone
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.datasets import load_digits, load_wine, make_blobs
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sk_mice.model_selection
from sk_mice import MiCEClustering, SphericalKMeans
from sk_mice.model_selection import choose_n_clusters, stability


@pytest.fixture(scope="module")
def blobs():
    """Four directions that are far apart, sorted by cluster."""
    X, y = make_blobs(120, 5, centers=9 * np.eye(5)[:4], random_state=0)
    return X[np.argsort(y)]


class Lottery(ClusterMixin, BaseEstimator):
    """Clusters drawn anew at each fit: nothing is found again."""

    def __init__(self, n_clusters=3, random_state=None):
        self.n_clusters = n_clusters
        self.random_state = random_state

    def fit(self, X, y=None):
        rng = np.random.default_rng(self.random_state)
        self.cluster_of_ = rng.integers(self.n_clusters, size=1000)
        return self

    def predict(self, X):
        return self.cluster_of_[(abs(X[:, 0]) * 1e6).astype(int) % 1000]


class Recorder(KMeans):
    """Keeps what each fit is given."""

    fits = []

    def fit(self, X, y=None):
        self.fits.append((len(X), self.n_clusters, self.random_state))
        return super().fit(X)


class Remembers(KMeans):
    """Keeps the samples of its fit."""

    def fit(self, X, y=None):
        self.seen_ = {*map(tuple, X)}
        return super().fit(X)


class Refuses(KMeans):
    def fit(self, X, y=None):
        raise AssertionError("a fit before all is checked")


# ------------------------------------------------------------------ stability


def test_stability_is_the_agreement_of_models_of_two_halves(blobs, monkeypatch):
    def size(first, second):
        return len(first)

    seen = recorded(monkeypatch, sk_mice.model_selection, "adjusted_rand_score", size)
    values = stability(KMeans(4, n_init=5), blobs[:-1], n_repeats=3, random_state=0)
    np.testing.assert_array_equal(values, np.ones(3))
    assert seen == [59, 60] * 3  # symmetric
    assert stability(KMeans(9), blobs, n_repeats=3, random_state=0).mean() < 0.9


def test_halves_are_fitted_from_seeds_of_their_own(blobs, monkeypatch):
    monkeypatch.setattr(Recorder, "fits", [])
    stability(Recorder(3, random_state=0), blobs, n_repeats=4, random_state=0)
    assert [n for n, _, _ in Recorder.fits] == [60] * 8
    assert len({seed for _, _, seed in Recorder.fits}) == 8
    for given in (None, 0):  # with the same seed a lottery would agree
        values = stability(Lottery(random_state=given), blobs, random_state=0)
        assert abs(values.mean()) < 0.1


def test_stability_is_repeatable_and_changes_nothing(blobs):
    pipeline = make_pipeline(PCA(3, random_state=0), Lottery())
    before = str(pipeline.get_params())
    first, second, other = (
        stability(pipeline, blobs, n_repeats=3, random_state=seed) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()
    assert str(pipeline.get_params()) == before
    assert not hasattr(pipeline[0], "components_")


def test_one_cluster_is_not_stable(blobs):
    # Any two models agree on it.
    np.testing.assert_array_equal(stability(KMeans(1), blobs, n_repeats=2), [0, 0])


def test_containers(blobs):
    options = {"n_repeats": 2, "random_state": 0}
    expected = stability(KMeans(3, n_init=1), blobs, **options)
    for X in (blobs.tolist(), pd.DataFrame(blobs), csr_array(blobs)):
        values = stability(KMeans(3, n_init=1), X, **options)
        np.testing.assert_allclose(values, expected)


# ------------------------------------------------------------------ the choice


@pytest.mark.parametrize("clusterer", [SphericalKMeans(), KMeans(n_init=5)])
def test_wine_sorted_by_class_has_three_clusters(clusterer):
    X, y = load_wine(return_X_y=True)
    assert (np.diff(y) >= 0).all()
    pipeline = make_pipeline(StandardScaler(), clusterer)
    choice = choose_n_clusters(pipeline, X, range(2, 7), random_state=0)
    assert choice.n_clusters == 3
    assert choice.table[1]["stability_mean"] > 0.8


@pytest.mark.parametrize("clusterer", [SphericalKMeans(), KMeans(n_init=2)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_there_are_no_more_clusters_than_different_samples(clusterer):
    X = np.eye(4)[np.random.default_rng(0).integers(0, 4, 300)]
    choice = choose_n_clusters(clusterer, X, range(2, 9), n_repeats=3, random_state=0)
    assert choice.n_clusters == 4
    assert [row["stability_mean"] for row in choice.table[3:]] == [0.0] * 4


def test_table_has_the_stability_of_each_candidate(blobs):
    options = {"n_repeats": 3, "random_state": 0}
    kmeans = KMeans(n_init=2)
    choice = choose_n_clusters(kmeans, blobs, (k for k in (6, 4, 2, 4)), **options)
    assert [row["n_clusters"] for row in choice.table] == [2, 4, 6]
    for row in choice.table:
        values = stability(
            clone(kmeans).set_params(n_clusters=row["n_clusters"]), blobs, **options
        )
        assert row["stability_mean"] == pytest.approx(values.mean())
        assert row["stability_std"] == pytest.approx(values.std(ddof=1))
        assert -1 <= row["silhouette_mean"] <= 1
    assert choice.n_clusters == 4
    frame = pd.DataFrame(choice.table)
    assert frame.loc[frame["silhouette_mean"].idxmax(), "n_clusters"] == 4
    assert kmeans.n_clusters == 8
    assert not hasattr(kmeans, "labels_")


def test_silhouettes_are_of_the_half_that_a_model_has_not_seen(blobs, monkeypatch):
    n_seen = []

    def scored(model, half):
        n_seen.append(len(model.seen_ & {*map(tuple, half)}))
        return 0.0

    monkeypatch.setattr(sk_mice.model_selection, "silhouette_scorer", scored)
    choose_n_clusters(Remembers(n_init=1), blobs, [2], n_repeats=2, random_state=0)
    assert n_seen == [0, 0, 0, 0]


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_several_processes_find_the_same(blobs, backend, capsys):
    options = {"candidates": [2, 4], "n_repeats": 3, "random_state": 0}
    kmeans = KMeans(n_init=2)
    with parallel_config(backend):
        found = choose_n_clusters(kmeans, blobs, n_jobs=2, verbose=1, **options)
    assert found == choose_n_clusters(kmeans, blobs, **options)
    assert "| 12/12 fits" in capsys.readouterr().err


class Warns(KMeans):
    def fit(self, X, y=None):
        warnings.warn("few samples", ConvergenceWarning, stacklevel=2)
        return super().fit(X)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_warnings_of_processes_are_warnings_here(blobs, n_jobs, capfd):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")  # joblib's, of a busy machine
        warnings.simplefilter("always", ConvergenceWarning)
        choose_n_clusters(Warns(), blobs, [2, 4], n_repeats=2, n_jobs=n_jobs)
    assert [str(warning.message) for warning in caught] == 8 * ["few samples"]
    assert n_jobs == 1 or {warning.filename for warning in caught} == {__file__}
    assert not capfd.readouterr().err


def test_a_full_folder_for_temporary_files_is_named(blobs, monkeypatch):
    def full(*args, **kwargs):
        raise pickle.PicklingError("no task") from OSError(os.strerror(errno.ENOSPC))

    monkeypatch.setattr(sk_mice.model_selection, "Parallel", lambda *a, **k: full)
    with pytest.raises(OSError, match="JOBLIB_TEMP_FOLDER"):
        choose_n_clusters(KMeans(), blobs, [2], n_jobs=2)


def test_processes_share_one_copy_of_the_samples(tmp_path, monkeypatch):
    monkeypatch.setenv("JOBLIB_TEMP_FOLDER", str(tmp_path))
    X = np.random.default_rng(0).standard_normal((20000, 16))
    kept = []

    class Bar(sk_mice.model_selection.tqdm):
        def update(self, n):
            kept.append(sum(file.stat().st_size for file in tmp_path.rglob("*.pkl")))

    monkeypatch.setattr(sk_mice.model_selection, "tqdm", Bar)
    kmeans = KMeans(n_init=1, max_iter=2)
    options = {"n_repeats": 6, "n_jobs": 2, "verbose": 1, "random_state": 0}
    choose_n_clusters(kmeans, X, [2], **options)
    assert X.nbytes <= max(kept) < 1.1 * X.nbytes


def test_rule_is_the_largest_within_a_standard_error_of_the_best():
    # The best mean is 0.9, its standard error 0.1 / sqrt(2) / sqrt(2) = 0.05.
    values = np.array([[0.5, 0.5], [0.85, 0.95], [0.86, 0.86], [0.84, 0.84]])
    choice = sk_mice.model_selection._choose([2, 3, 4, 5], values, values)
    assert choice.threshold == pytest.approx(0.85)
    assert choice.n_clusters == 4


@short_fits
def test_mice_on_images_shows_every_fit_and_the_time_left(capsys):
    X = load_digits(n_class=2).images[:64, ..., None]
    mice = tiny(max_epochs=1, batch_size=32)
    choice = choose_n_clusters(mice, X, [2, 3], n_repeats=2, random_state=0, verbose=1)
    assert choice.n_clusters in (2, 3)
    bar = capsys.readouterr().err
    assert "| 0/8 fits [00:00, ? left]" in bar
    assert "| 8/8 fits" in bar
    stability(mice, X, n_repeats=2, random_state=0, verbose=1)
    bar = capsys.readouterr().err
    assert "| 0/4 fits [00:00, ? left]" in bar
    assert "| 4/4 fits" in bar
    stability(KMeans(), X[:, :, 0, 0], n_repeats=2)
    choose_n_clusters(KMeans(), X[:, :, 0, 0], [2], n_repeats=2)
    assert capsys.readouterr().err == ""


class PressesCtrlC(KMeans):
    """Presses Ctrl-C in one of its fits, and goes on as MiCEClustering does."""

    fits, at = 0, 0

    def fit(self, X, y=None):
        type(self).fits += 1
        with suppress(KeyboardInterrupt):
            if self.fits == self.at:
                signal.raise_signal(signal.SIGINT)
        return super().fit(X)


@pytest.fixture
def presses(monkeypatch):
    monkeypatch.setattr(PressesCtrlC, "fits", 0)

    def at(fit):
        monkeypatch.setattr(PressesCtrlC, "at", fit)
        return PressesCtrlC(random_state=0)

    yield at
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_after_ctrl_c_the_whole_splits_count(blobs, presses):
    options = {"candidates": [2, 4], "random_state": 0}
    with pytest.warns(ConvergenceWarning, match="that of 2 of 9 random splits"):
        # Four fits a split: the second fit of the third one.
        choice = choose_n_clusters(presses(10), blobs, n_repeats=9, **options)
    assert PressesCtrlC.fits == 10
    whole = choose_n_clusters(KMeans(random_state=0), blobs, n_repeats=2, **options)
    assert choice == whole
    with pytest.raises(KeyboardInterrupt):
        choose_n_clusters(presses(17), blobs, n_repeats=9, **options)
    assert PressesCtrlC.fits == 17


def test_after_ctrl_c_stability_has_the_values_so_far(blobs, presses):
    with pytest.warns(ConvergenceWarning, match="that of 1 of 9 random splits"):
        values = stability(presses(3), blobs, n_repeats=9, random_state=0)
    np.testing.assert_array_equal(
        values, stability(KMeans(random_state=0), blobs, n_repeats=1, random_state=0)
    )
    with pytest.raises(KeyboardInterrupt):
        stability(presses(4), blobs, n_repeats=9)


@pytest.fixture(scope="module")
def choice(blobs):
    kmeans, options = KMeans(n_init=5), {"n_repeats": 3, "random_state": 0}
    return choose_n_clusters(kmeans, blobs, [3, 4, 6], **options)


def test_a_choice_in_words(choice):
    text = repr(choice)
    assert text.startswith(
        "4 clusters: the largest candidate whose stability is within"
    )
    assert [line.split()[0] for line in text.splitlines()[-3:]] == ["3", "4", "6"]
    assert text.count("<- choice") == 1


def test_words_of_a_choice_that_is_in_doubt(blobs):
    options = {"n_repeats": 3, "random_state": 0}
    at_the_edge = choose_n_clusters(KMeans(n_init=5), blobs, [3, 4], **options)
    assert repr(at_the_edge).endswith("This is the largest candidate: try larger ones.")
    with pytest.warns(ConvergenceWarning, match="distinct clusters"):
        none = choose_n_clusters(KMeans(), np.ones((60, 4)), [2, 3], n_repeats=2)
    assert repr(none).endswith(
        "No candidate gives clusters that are found again reliably."
    )
    for value, end in ((0.49, "found again reliably."), (0.51, "try larger ones.")):
        values = np.full((2, 2), value)
        found = sk_mice.model_selection._choose([2, 3], values, values)
        assert repr(found).endswith(end)


def test_a_choice_is_drawn(choice):
    plt = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")
    _, ax = plt.subplots()
    assert choice.plot(ax) is ax
    handles, labels = ax.get_legend_handles_labels()
    drawn = dict(zip(labels, handles, strict=True))
    ring = drawn["choice: 4 clusters"].get_offsets().tolist()
    assert ring == [[4, choice.table[1]["stability_mean"]]]
    for measure in ("stability", "silhouette"):
        bars = drawn[measure][2][0].get_segments()
        errors = [row[f"{measure}_std"] / np.sqrt(3) for row in choice.table]
        np.testing.assert_allclose([np.ptp(bar[:, 1]) / 2 for bar in bars], errors)
    assert choice.plot() is not ax
    with pytest.raises(ValueError, match=r"`ax` must be a matplotlib Axes; got 3"):
        choice.plot(3)


def test_four_samples_have_one_candidate():
    choice = choose_n_clusters(KMeans(), np.eye(4), [2], n_repeats=2, random_state=0)
    assert choice.n_clusters == 2


# ------------------------------------------------------------------ refusals


def test_what_is_refused_before_the_first_fit(blobs):
    refusing = make_pipeline(PCA(2), Refuses())
    for candidates in (5, [], [1, 3], [3, 61], [2.0], [True, 3], ["3"], [None]):
        with pytest.raises(
            ValueError, match=r"candidates.*from 2 to n_samples / 2 = 60"
        ):
            choose_n_clusters(refusing, blobs, candidates)
    for options in (
        {"n_repeats": 1},
        {"n_repeats": True},
        {"random_state": "0"},
        {"n_jobs": "2"},
    ):
        with pytest.raises(ValueError, match=next(iter(options))):
            choose_n_clusters(refusing, blobs, [3], **options)
    for n_samples in (0, 3):
        with pytest.raises(ValueError, match=f"at least 4 samples.*got {n_samples}"):
            choose_n_clusters(refusing, blobs[:n_samples], [2])
        with pytest.raises(ValueError, match=f"at least 4 samples.*got {n_samples}"):
            stability(refusing, blobs[:n_samples])
    with pytest.raises(ValueError, match="n_repeats"):
        stability(refusing, blobs, n_repeats=0)


def test_estimators_that_are_refused(blobs):
    for estimator in (GaussianMixture(), make_pipeline(KMeans(), GaussianMixture())):
        with pytest.raises(ValueError, match=r"`n_clusters`; got GaussianMixture\("):
            choose_n_clusters(estimator, blobs, [3])
    for function in (stability, choose_n_clusters):
        more = ([3],) if function is choose_n_clusters else ()
        with pytest.raises(ValueError, match="'fit' and 'predict'"):
            function(AgglomerativeClustering(), blobs, *more)
        with pytest.raises(TypeError, match="instance"):
            function(KMeans, blobs, *more)


def test_pipelines_may_be_nested(blobs):
    nested = make_pipeline(PCA(4), make_pipeline(StandardScaler(), KMeans(n_init=5)))
    choice = choose_n_clusters(nested, blobs, [3, 4, 6], n_repeats=3, random_state=0)
    assert choice.n_clusters == 4


def test_samples_of_a_dataset():
    X = torch.from_numpy(load_digits().images[:60])
    mice = MiCEClustering(2, max_epochs=8, random_state=0)
    dataset = torch.utils.data.TensorDataset(X, torch.zeros(60))
    values = stability(mice, dataset, n_repeats=1, random_state=0)
    expected = stability(mice, X.numpy(), n_repeats=1, random_state=0)
    assert np.array_equal(values, expected)
