"""Directions of rows: from the origin, or from their mean along principal axes."""

import numpy as np
from sklearn.decomposition import PCA
from sklearn.utils import gen_batches

from ._blas import one_blas_thread

AXES = 64  # enough axes for what distinguishes the features of a network
EXACT_FEATURES = 2048  # up to which the components are exact
BLOCK, COLUMNS = 4096, 64  # that are computed at a time


@np.errstate(under="ignore")
def directions(X):
    """Rows at unit length, also where their squares over- or underflow."""
    peaks = np.abs(X).max(axis=1, keepdims=True)
    rows = X / np.where(peaks > 0, peaks, 1)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 0.5)


def by_blocks(function, rows, dtype):
    """Results of a function of rows as one array, computed block by block."""
    found = None
    for block in gen_batches(len(rows), BLOCK):
        part = function(rows[block])
        if found is None:
            found = np.empty((len(rows), *part.shape[1:]), dtype)
        found[block] = part
    return found


def mean_variance(rows):
    """Mean of the variances of the columns, in little more memory than the rows."""
    columns = gen_batches(rows.shape[1], COLUMNS)
    return np.concatenate([rows[:, some].var(axis=0) for some in columns]).mean()


def principal(rows, most, random_state):
    """PCA of the rows with at most so many components."""
    n, n_features = rows.shape
    # The last of randomized components depend on the seed, and are correlated.
    solver = "auto"
    if n_features <= EXACT_FEATURES:  # the covariance of few rows takes longer
        solver = "full" if n < n_features / 2 else "covariance_eigh"
    pca = PCA(
        min(most, *rows.shape),
        svd_solver=solver,
        iterated_power=10,
        random_state=random_state,
    )
    with one_blas_thread():
        return pca.fit(rows)


class Centered:
    """An estimator with a parameter `center`, and what a fit keeps of it."""

    def _fit_axes(self, X, most, random_state):
        """Find origin and axes of the directions, if they are centred."""
        for name in ("origin_", "axes_"):  # an earlier fit may have left them
            vars(self).pop(name, None)
        if not self.center:
            return
        scale = np.abs(X).max() or 1
        rows = X / scale
        origin = rows.mean(axis=0, dtype=np.float64).astype(X.dtype)
        rows -= origin
        eps = np.finfo(X.dtype).eps
        axes = np.zeros((1, X.shape[1]), dtype=X.dtype)
        if mean_variance(rows) > eps**2:  # otherwise all rows are alike
            pca = principal(rows, max(AXES, most), random_state)
            shares = pca.explained_variance_ratio_
            axes = pca.components_[shares > 10 * eps * shares[0]]
        self.origin_, self.axes_ = origin * scale, np.ascontiguousarray(axes)

    @np.errstate(under="ignore")
    def _centered(self, X):
        """X, or its rows along the axes, from the origin, if the fit was centred."""
        if not hasattr(self, "axes_"):
            return X

        def along_axes(rows):
            halves = rows / 2 - self.origin_ / 2  # halves do not overflow
            return directions(halves) @ self.axes_.T

        return by_blocks(along_axes, X, X.dtype)
