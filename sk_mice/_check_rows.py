"""Checks of X for clusterers of rows, dense or sparse."""

from contextlib import contextmanager

import numpy as np
from scipy import sparse
from sklearn import config_context
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from ._engine.arrays import refuse_infinite, stored_once
from ._engine.dataset import DatasetRows, samples_of


def check_rows(estimator, X, *, reset=False, accept_sparse=False):
    """X as floats: for a fit (`reset`), or for an estimator that is fitted."""
    if not reset:
        check_is_fitted(estimator)
    X = rows_in_memory(X)
    if getattr(X, "ndim", 0) > 2:
        raise ValueError(
            f"X must hold vectors, in an array of shape (N, features); got {X.shape}. "
            "PretrainedFeatures and MoCo make vectors of images."
        )
    # A row that is not finite has a label beyond the clusters, and sums by label write
    # there, into memory of others.
    checked = config_context(assume_finite=False)
    with checked, fitting_floats("X"), _naming_rows(X):
        X = validate_data(
            estimator,
            X,
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


def rows_in_memory(X):
    """X in a form that scikit-learn can check; all samples of a dataset."""
    X = samples_of(X)
    return X[:] if isinstance(X, DatasetRows) else X


@contextmanager
def _naming_rows(X):
    """Say which rows have values that are not finite, if that is what is wrong."""
    try:
        yield
    except ValueError as error:
        if not str(error).startswith("Input X contains"):
            raise
        floats = [np.float64, np.float32]
        rows = check_array(X, accept_sparse=True, dtype=floats, ensure_all_finite=False)
        if sparse.issparse(rows):
            rows = abs(rows).max(axis=1).toarray().reshape(-1, 1)  # has what they have
        refuse_infinite(rows)
        raise


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
