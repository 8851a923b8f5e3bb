"""Checks of X for clusterers of rows, dense or sparse."""

from contextlib import contextmanager

import numpy as np
from sklearn.utils.validation import validate_data

from ._engine.arrays import plain_array, stored_once
from ._engine.dataset import DatasetRows, from_dataset


def check_rows(estimator, X, *, reset=False, accept_sparse=False):
    """X as floats; where a fit begins (`reset`), with a row for each cluster."""
    X = from_dataset(X)
    if isinstance(X, DatasetRows):
        X = X[:]
    with fitting_floats("X"):
        X = validate_data(
            estimator,
            plain_array(X, "X"),
            reset=reset,
            accept_sparse=accept_sparse,
            dtype=[np.float64, np.float32],
            order="C",
        )
    if reset and X.shape[0] < estimator.n_clusters:
        raise ValueError(
            "`n_clusters` must be at most the number of rows of X; got "
            f"n_clusters={estimator.n_clusters} and n_samples={X.shape[0]}."
        )
    return stored_once(X)


@contextmanager
def fitting_floats(name):
    """Refuse integers beyond any float in a sentence that names their array."""
    try:
        # scikit-learn looks for infinities in a sum, which may be inf - inf.
        with np.errstate(invalid="ignore"):
            yield
    except OverflowError as error:
        raise ValueError(
            f"{name} must hold numbers that fit into floats; {error}."
        ) from error
