"""Warnings point at the user's line, whatever stands between it and us."""

import linecache

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from torch import nn

from sk_mice import MiCEClustering, SphericalKMeans
from sk_mice.features import PretrainedFeatures

X = np.repeat(np.eye(3), 8, axis=0)  # of four clusters, one finds no rows
IMAGES = np.random.RandomState(0).uniform(0, 9, size=(4, 8, 8))
CALLS = {
    "fit": lambda kmeans: kmeans.fit(X),
    "fit_predict": lambda kmeans: kmeans.fit_predict(X),
    "fit_transform": lambda kmeans: kmeans.fit_transform(X),
    "pipeline": lambda kmeans: make_pipeline(Normalizer(), kmeans).fit(X),
    "search": lambda kmeans: GridSearchCV(kmeans, {}, cv=KFold(2, shuffle=True)).fit(X),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_fit_warns_at_the_line_that_asks_for_it(name):
    with pytest.warns(ConvergenceWarning, match="distinct clusters") as caught:
        CALLS[name](SphericalKMeans(4, n_init=1, random_state=0))
    for warning in caught:
        assert warning.filename == __file__
        assert f'"{name}": lambda' in linecache.getline(__file__, warning.lineno)


@pytest.fixture(scope="module")
def mice():
    rng = np.random.RandomState(0)
    table = rng.normal(size=(60, 4)) + 9 * (np.arange(60) % 2)[:, None]
    mice = MiCEClustering(2, init="random", max_epochs=1, random_state=0)
    return mice.fit(table), table


@pytest.mark.parametrize("method", ["predict", "agreement", "transform", "pipeline"])
def test_a_prediction_warns_at_the_line_that_asks_for_it(mice, method):
    model, table = mice
    call = getattr(model, method, make_pipeline(model).predict)
    with pytest.warns(UserWarning, match="X has values from") as caught:
        call(table * 100)  # the line
    (warning,) = caught
    assert warning.filename == __file__
    assert "# the line" in linecache.getline(__file__, warning.lineno)


def test_features_warn_at_the_line_that_asks_for_them():
    network = nn.Flatten()
    network.transforms = lambda images: images
    features = PretrainedFeatures(network, device="cpu").fit(IMAGES)
    with pytest.warns(UserWarning, match="X has values from") as caught:
        features.transform(IMAGES * 100)  # the line
    (warning,) = caught
    assert warning.filename == __file__
    assert "# the line" in linecache.getline(__file__, warning.lineno)
