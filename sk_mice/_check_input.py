"""Checks of X: for a fit, and at prediction against the fit."""

import math
from contextlib import contextmanager

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from ._engine.arrays import chunks, extremes
from ._engine.dataset import DatasetRows, samples_of
from ._engine.format import SampleFormat
from ._engine.warn import warn_user

# Values farther away than this many ranges of the fit overflow float32 in a network.
FARTHEST = 1e12
# Samples are on a different scale than those of the fit if their values span less than
# this share of its range, as values of 8 bits do in a range of 12 bits. Of vectors,
# this is the distance from zero, and there must be at least so many values.
NARROW, LEAST_VALUES = 1 / 15, 100
# They are also on a different scale if this share of the values lies outside of the
# range by more than this share of it.
OUTSIDE_SHARE, OUTSIDE_BY = 1 / 10, 1 / 2
ONE_SAMPLE = "X[None] is an array of one sample."
SHAPES = (
    "Images have shape (N, H, W), (N, H, W, C) or (N, C, H, W), vectors (N, features)."
)


def check_samples(estimator, X, least=2):
    """X for a fit: at least `least` samples, in an array of two or more dimensions.

    Sets `n_features_in_` and, if the columns of X have names, `feature_names_in_`.
    Raises TypeError or ValueError if X is anything else. Whether its values are finite
    is left to `infer_format`, which has to read them anyway.
    """
    return _checked(estimator, samples_of(X), reset=True, least=least)


def check_samples_like(estimator, X, fmt: SampleFormat, least=1):
    """At least `least` samples, as an array of finite numbers in the format of a fit.

    Raises TypeError or ValueError if X is anything else, has samples of another shape,
    or values that are too large to compute with. Warns if X is on a different scale
    than that of the fit.
    """
    X = check_shape_like(estimator, X, fmt, least)
    check_values_like(X, fmt)
    return X


def check_shape_like(estimator, X, fmt: SampleFormat, least=1):
    """X as `check_samples_like` returns it; its values are not read."""
    X = samples_of(X)
    shape = getattr(X, "shape", ())
    fits = _shapes_like(fmt)
    if len(shape) > 1 and shape[1:] not in fits:
        if shape in fits:
            raise ValueError(
                f"X must hold samples of shape {shape}, as in `fit`; got one. "
                f"{ONE_SAMPLE}"
            )
        # scikit-learn compares the numbers of features of tables.
        is_table = len(shape) == 2 and not isinstance(X, DatasetRows)
        if not is_table or len(fmt.input_shape) > 1:
            raise ValueError(
                f"X must hold samples of shape {fmt.input_shape}, as in `fit`; got "
                f"{shape[1:]}."
            )
    return _checked(estimator, X, reset=False, least=least)


def _shapes_like(fmt) -> set:
    """Shapes of samples whose values are in the same order as in the fit."""
    shapes = {fmt.input_shape}
    if fmt.is_image:
        channels, *sides = fmt.shape
        last, first = (*sides, channels), (channels, *sides)
        shapes |= {(math.prod(fmt.shape),), first if fmt.channels_first else last}
        if channels == 1:
            shapes |= {tuple(sides), first, last}
    return shapes


def _checked(estimator, X, *, reset: bool, least: int):
    # `extremes` says which samples are not finite.
    options = {"ensure_min_samples": least, "ensure_all_finite": False}
    if isinstance(X, DatasetRows):
        if len(X) < least:
            raise ValueError(f"X must hold at least {least} samples; got {len(X)}.")
    else:
        with _sentences_of_ours(X, SHAPES if reset else ONE_SAMPLE):
            if getattr(X, "ndim", 0) <= 2:
                return validate_data(estimator, X, reset=reset, **options)
            names = {"input_name": "X", "estimator": estimator}
            X = check_array(X, allow_nd=True, **names, **options)
    if reset:
        estimator.n_features_in_ = math.prod(X.shape[1:])
        vars(estimator).pop("feature_names_in_", None)  # of an earlier fit
    return X


@contextmanager
def _sentences_of_ours(X, what_to_do):
    """Add advice to scikit-learn's errors, and replace those of conversions."""
    try:
        yield
    except (OverflowError, RuntimeError) as error:
        message = f"X must hold numbers that fit into floats; {error}."
        raise ValueError(message) from error
    except ValueError as error:
        if getattr(X, "ndim", 0) != 1:
            raise
        raise ValueError(f"{error}\n{what_to_do}") from error


# ------------------------------------------------------------------------------- scale


def check_values_like(X, fmt: SampleFormat) -> None:
    """Refuse values too far from those of the fit; warn if the scale is another."""
    low, high = extremes(X, by_feature=not fmt.is_image)
    _check_distance(low, high, fmt)
    seen = np.array([fmt.seen_low, fmt.seen_high])
    spans = seen[1] - seen[0] if seen.size else np.zeros(1)
    if not spans.any():  # the range is not known, or X was constant
        return
    n_values = X.size if fmt.is_image else len(X) * np.count_nonzero(spans)
    few = n_values < LEAST_VALUES and not fmt.is_image
    measure = None if few else _narrowness(low, high, seen, fmt.is_image)
    if measure is None:
        measure = _excess(X, low, high, seen, n_values)
    if measure is not None:
        i = int(np.argmax(measure))
        where = "" if fmt.is_image else f" in feature {i}"
        warn_user(
            f"X has values from {low[i]:g} to {high[i]:g}{where}, and `fit` saw values "
            f"from {seen[0, i]:g} to {seen[1, i]:g}: the samples are on a different "
            "scale or of another kind, and predictions for them may mean nothing."
        )


def _check_distance(low, high, fmt):
    center, scale = np.array(fmt.low), np.array(fmt.high - fmt.low)
    if not fmt.is_image:
        center, scale = np.array(fmt.mean), np.array(fmt.std)
    with np.errstate(over="ignore"):
        distance = np.maximum(abs(low - center), abs(high - center)) / scale
    i = int(distance.argmax())
    if not distance[i] <= FARTHEST:
        raise ValueError(
            f"X must hold values within {FARTHEST:g} times the range that `fit` saw, "
            "so that they can be computed with; got values from "
            f"{low[i]:g} to {high[i]:g}."
        )


def _excess(X, low, high, seen, n_values):
    """How far X lies outside the range of the fit; None if a few values do, or none."""
    spans = seen[1] - seen[0]
    varied = spans > 0
    margin = np.where(varied, OUTSIDE_BY * spans, np.inf)
    least, most = seen[0] - margin, seen[1] + margin
    if not ((low < least) | (high > most)).any():
        return None
    n_outside = sum(
        np.count_nonzero((part < least) | (part > most)) for part in chunks(X)
    )
    if n_outside < OUTSIDE_SHARE * n_values:
        return None
    beyond = np.maximum(seen[0] - low, high - seen[1])
    with np.errstate(over="ignore"):  # a span may be tiny
        return np.divide(beyond, spans, out=np.full(len(spans), -np.inf), where=varied)


def _narrowness(low, high, seen, is_image):
    """The ranges of the fit if X spans less than a fifteenth of each, else None."""
    spans = seen[1] - seen[0]
    # The distance from zero is also known of a single vector.
    extent = high - low if is_image else np.maximum(abs(low), abs(high))
    narrow = extent <= NARROW * spans
    one_value = low.min() == high.max()  # such as black images
    return spans if narrow[spans > 0].all() and not one_value else None
