"""Checks of X for clusterers of rows, dense or sparse."""

from contextlib import contextmanager

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted, validate_data

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
    with fitting_floats("X"):
        X = validate_data(
            estimator,
            X,
            reset=reset,
            accept_sparse=accept_sparse,
            dtype=[np.float64, np.float32],
            order="C",
            ensure_all_finite=False,
        )
    X = stored_once(X)
    _check_finite(X)
    if reset and X.shape[0] < estimator.n_clusters:
        raise ValueError(
            "`n_clusters` must be at most the number of rows of X; got "
            f"n_clusters={estimator.n_clusters} and n_samples={X.shape[0]}."
        )
    return X


def rows_in_memory(X):
    """X in a form that scikit-learn can check; all samples of a dataset."""
    X = samples_of(X)
    return X[:] if isinstance(X, DatasetRows) else X


def _check_finite(X) -> None:
    """Refuse values that are not finite, in words that name their rows.

    Such a row has a label beyond the clusters, and sums by label write there, into
    memory of others.
    """
    is_sparse = sparse.issparse(X)
    with np.errstate(invalid="ignore", over="ignore"):
        total = (X.data if is_sparse else X).sum()
    if not np.isfinite(total):  # that of finite values may be infinite, too
        refuse_infinite(abs(X).max(axis=1).toarray() if is_sparse else X)


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
