"""X as a sequence; at prediction, shapes, values and scales like those of the fit."""

import copy
import math
from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from shared import BecomesArray, short_fits, tiny
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline

from sk_mice import MiCEClustering
from sk_mice._engine.arrays import as_array

pytestmark = short_fits
RNG = np.random.default_rng(0)
IMAGES = load_digits(n_class=4).images[:96]
METHODS = ["predict", "predict_proba", "predict_log_proba", "transform"]
METHODS += ["score", "score_samples"]


@pytest.fixture(scope="module")
def fitted():
    return tiny().fit(IMAGES)


@pytest.mark.parametrize("X", [range(4), deque([[1, 2], [3, 4]]), deque(IMAGES)])
def test_other_sequences_are_read_as_lists_are(X):
    np.testing.assert_array_equal(as_array(X), list(X))


@pytest.mark.parametrize(
    "X",
    [IMAGES[:, :7], IMAGES.reshape(96, -1)[:, :63], IMAGES[..., None].repeat(3, -1)],
)
@pytest.mark.parametrize("method", METHODS)
def test_another_shape_at_prediction(fitted, method, X):
    with pytest.raises(ValueError, match=r"X must hold samples of shape \(8, 8\)"):
        getattr(fitted, method)(X)


@pytest.mark.parametrize(
    "X",
    [
        *(IMAGES[..., None], IMAGES[:, None], IMAGES.reshape(96, -1), list(IMAGES)),
        BecomesArray(IMAGES),
    ],
)
def test_another_shape_of_the_same_images_at_prediction(fitted, X):
    np.testing.assert_array_equal(fitted.predict_proba(X), fitted.predict_proba(IMAGES))


@pytest.mark.parametrize(
    ("shape", "image_shape", "others"),
    [
        ((9, 8, 7, 3), None, [(9, 168)]),
        ((9, 3, 8, 7), None, [(9, 168)]),
        ((9, 8, 7, 1), None, [(9, 8, 7), (9, 1, 8, 7), (9, 56)]),
        ((9, 168), (8, 7, 3), [(9, 8, 7, 3)]),
        ((9, 168), (3, 8, 7), [(9, 3, 8, 7)]),
        ((9, 4, 7, 3), (4, 7, 3), [(9, 84)]),
    ],
)
def test_shapes_of_the_same_values_in_the_same_order(shape, image_shape, others):
    X = RNG.random(shape)
    options = {"image_shape": image_shape, "max_epochs": 1, "init": "random"}
    estimator = tiny(n_clusters=2, **options).fit(X)
    for other in others:
        np.testing.assert_array_equal(
            estimator.transform(X.reshape(other)), estimator.transform(X)
        )
    with pytest.raises(ValueError, match="X must hold samples of shape"):
        estimator.predict(X.reshape(9, -1, 2, 2))


@pytest.mark.parametrize("method", METHODS)
def test_one_image_at_prediction(fitted, method):
    message = r"X must hold samples of shape \(8, 8\).*got one.*X\[None\]"
    with pytest.raises(ValueError, match=message):
        getattr(fitted, method)(IMAGES[0])
    with pytest.raises(ValueError, match=r"(?s)Reshape your data.*X\[None\]"):
        getattr(fitted, method)(IMAGES[0].ravel())


# ------------------------------------------------------------------------------- scale

BYTES = IMAGES * (255 / 16)
TABLE = RNG.normal(size=(60, 6)) * [1, 10, 100, 1e3, 1, 0] + [0, 5, 1e3, -1e3, 9, 7]


@pytest.fixture(scope="module")
def fitted_to_bytes():
    return tiny().fit(BYTES)


@pytest.fixture(scope="module")
def fitted_to_vectors():
    return tiny(backbone="auto").fit(TABLE)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [1 / 255, 1 / 16, 3])
def test_images_at_another_scale_are_warned_of(fitted_to_bytes, method, scale):
    message = rf"X has values from 0 to {255 * scale:g}, and `fit` saw .* 0 to 255:"
    with pytest.warns(UserWarning, match=message) as caught:
        getattr(fitted_to_bytes, method)(BYTES * scale)
    assert caught[0].filename == __file__


def test_images_within_a_fifteenth_of_the_range_are_warned_of(fitted_to_bytes):
    with pytest.warns(UserWarning, match=r"X has values from 100 to 115"):
        fitted_to_bytes.predict(100 + BYTES // 16)


def test_a_pipeline_warns_where_the_user_calls_it(fitted_to_bytes):
    pipeline = Pipeline([("mice", fitted_to_bytes)])
    with pytest.warns(UserWarning, match="X has values from") as caught:
        pipeline.predict(BYTES / 255)
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "X",
    [
        BYTES * 0.1,
        BYTES + 100,
        BYTES[:1],
        BYTES[:5] * 0,
        np.full((3, 8, 8), 250.0),
        np.where(np.arange(8) < 1, 1e3, BYTES[:9]) * (np.arange(9) < 7)[:, None, None],
    ],
    ids=["darker", "brighter", "one", "black", "blank", "a few outliers"],
)
def test_images_like_those_of_the_fit_get_no_warning(fitted_to_bytes, X):
    fitted_to_bytes.predict(X)


@pytest.mark.parametrize("scale", [1 / 255, 255, -255])
def test_vectors_at_another_scale_are_warned_of(fitted_to_vectors, scale):
    message = r"X has values from .* in feature \d, and `fit` saw values from"
    with pytest.warns(UserWarning, match=message):
        fitted_to_vectors.predict(TABLE * scale)


@pytest.mark.parametrize("X", [TABLE[:1], TABLE[:9], TABLE * 1.1])
def test_vectors_like_those_of_the_fit_get_no_warning(fitted_to_vectors, X):
    fitted_to_vectors.predict(X)


def test_a_warm_start_at_another_scale_is_warned_of(fitted_to_bytes):
    estimator = copy.deepcopy(fitted_to_bytes).set_params(warm_start=True)
    with pytest.warns(UserWarning, match="X has values from 0 to 1") as caught:
        estimator.fit(BYTES / 255)
    assert caught[0].filename == __file__


def test_without_a_known_scale_there_is_no_warning(fitted_to_bytes):
    estimator = copy.deepcopy(fitted_to_bytes)
    estimator._format = replace(estimator._format, seen_low=(), seen_high=())
    estimator.predict(BYTES / 255)


@pytest.mark.parametrize("name", ["fitted_to_bytes", "fitted_to_vectors"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [1e39, -1e39, 1e300])
def test_values_that_cannot_be_computed_with(name, method, scale, request):
    X = TABLE if "vectors" in name else BYTES
    estimator = request.getfixturevalue(name)
    with pytest.raises(ValueError, match=r"X must hold values within 1e\+12 times"):
        getattr(estimator, method)(X * scale)


@pytest.mark.parametrize("method", METHODS)
def test_a_sample_with_nan_at_prediction(fitted, method):
    X = IMAGES.copy()
    X[[3, 5], 2, 2] = math.nan
    with pytest.raises(ValueError, match=r"contains NaN in sample 3; 2 of 96 samples"):
        getattr(fitted, method)(X)


@pytest.mark.parametrize(
    "name", ["predict", "predict_proba", "transform", "score", "backbone_"]
)
def test_not_fitted(name):
    with pytest.raises(NotFittedError):
        getattr(MiCEClustering(), name)(IMAGES)
