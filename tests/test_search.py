"""Searches over the estimators, alone and in pipelines, in one process and in two."""

from functools import partial

import joblib
import numpy as np
import pandas as pd
import pytest
import shared
import torch
from joblib.externals.loky import get_reusable_executor
from sklearn.datasets import load_digits
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from threadpoolctl import threadpool_info, threadpool_limits

from sk_mice import MoCo, SphericalKMeans
from sk_mice.metrics import SCORERS, silhouette_scorer

pytestmark = shared.short_fits
DIGITS = load_digits(n_class=3)
X, Y = DIGITS.images[:90, ..., None], DIGITS.target[:90]  # four-dimensional
TEMPERATURES = {"tau": [0.5, 1.0], "kappa": [0.5, 1.0]}
tiny = partial(shared.tiny, init="random")


def search_over(estimator, grid, cls=GridSearchCV, **options):
    defaults = {"scoring": SCORERS, "refit": "acc", "cv": 2, "error_score": "raise"}
    return cls(estimator, grid, **(defaults | options))


def assert_same_scores(one, two):
    for name in SCORERS:
        scores = f"mean_test_{name}"
        np.testing.assert_array_equal(one.cv_results_[scores], two.cv_results_[scores])


def flatten(images):
    return images.reshape(len(images), -1)


@pytest.fixture(scope="module")
def mapped(tmp_path_factory):
    path = tmp_path_factory.mktemp("search") / "X"
    joblib.dump(X, path)
    array = joblib.load(path, mmap_mode="r")
    assert not array.flags.writeable
    return array


@pytest.fixture
def share():
    """The threads of each of two jobs, which this process has, too."""
    before, share = torch.get_num_threads(), max(1, joblib.cpu_count() // 2)
    torch.set_num_threads(share)
    with threadpool_limits(share):
        yield share
    torch.set_num_threads(before)


def threads(estimator, X, y):
    """The most threads of any library in this process, once torch has trained."""
    return max(
        torch.get_num_threads(), *(pool["num_threads"] for pool in threadpool_info())
    )


def test_two_jobs_score_as_one_does_and_share_the_cores(mapped, share, monkeypatch):
    one = search_over(tiny(), TEMPERATURES).fit(X, Y)
    # Torch takes all cores unless told otherwise. joblib tells it by OMP_NUM_THREADS in
    # the environment of new workers, where the user has not set it.
    get_reusable_executor().shutdown(wait=True)
    for library in ("OMP", "MKL", "OPENBLAS"):
        monkeypatch.delenv(f"{library}_NUM_THREADS", raising=False)
    scoring = SCORERS | {"threads": threads}
    two = search_over(tiny(), TEMPERATURES, scoring=scoring, n_jobs=2).fit(mapped, Y)
    assert set(two.cv_results_["mean_test_threads"]) == {share}
    assert one.best_params_.keys() == {"tau", "kappa"}
    assert two.best_params_ == one.best_params_
    assert_same_scores(one, two)
    np.testing.assert_array_equal(
        one.best_estimator_.labels_, two.best_estimator_.labels_
    )


def test_epochs_as_the_resource_of_successive_halving():
    search = search_over(
        tiny(),
        TEMPERATURES,
        HalvingGridSearchCV,
        scoring="adjusted_rand_score",
        refit=True,
        resource="max_epochs",
        min_resources=1,
        max_resources=4,
        factor=2,
    ).fit(X, Y)
    assert search.n_resources_ == [1, 2, 4]
    assert search.n_candidates_ == [4, 2, 1]
    assert search.best_estimator_.max_epochs == 4
    assert search.best_estimator_.n_iter_ == 4


def test_a_pipeline_that_yields_rows():
    pipeline = make_pipeline(FunctionTransformer(flatten), tiny(image_shape=(8, 8, 1)))
    rows = search_over(pipeline, {"miceclustering__tau": [0.5, 1.0]}).fit(X, Y)
    images = search_over(tiny(), {"tau": [0.5, 1.0]}).fit(X, Y)
    assert_same_scores(rows, images)


def test_pandas_frames_between_the_steps_of_a_searched_pipeline():
    pipeline = make_pipeline(
        tiny(image_shape=(8, 8)), SphericalKMeans(3, random_state=0)
    ).set_output(transform="pandas")
    frame = pd.DataFrame(flatten(X)).rename(columns=str)
    search = search_over(
        pipeline,
        {"miceclustering__kappa": [0.5, 1.0]},
        scoring=SCORERS | {"silhouette": silhouette_scorer},
    ).fit(frame, Y)
    best = search.best_estimator_
    assert list(best.feature_names_in_) == list(frame.columns)
    embeddings = best[0].transform(frame)
    assert isinstance(embeddings, pd.DataFrame)
    assert embeddings.columns[0] == "miceclustering0"
    assert list(best[1].feature_names_in_) == list(embeddings.columns)


def test_the_two_stage_baseline_is_searched_like_any_pipeline():
    baseline = make_pipeline(
        shared.tiny(MoCo, max_epochs=1), SphericalKMeans(3, random_state=0)
    )
    search = search_over(
        baseline,
        {"moco__tau": [0.2, 1.0], "sphericalkmeans__n_clusters": [2, 3]},
        RandomizedSearchCV,
        n_iter=3,
        random_state=0,
    ).fit(X, Y)
    assert 0 < search.best_score_ <= 1
