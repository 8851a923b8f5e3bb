"""A partition of a backbone's features, from which EM starts."""

import numpy as np

from ._spherical_kmeans import SphericalKMeans

RESTARTS = 100  # of k-means: among whitened features many optima are nearly as good
RESTART_ROWS = 20_000  # at most, or so, of those that the restarts see
VARIANCE = 0.99  # of the features, kept by whitening
COMPONENTS_PER_CLUSTER = 3  # kept at most


def partition(features: np.ndarray, n_clusters: int, seed: int) -> np.ndarray:
    """Cluster features, whitened, by spherical k-means.

    Parameters
    ----------
    features : ndarray of shape (N, F)
    n_clusters : int
        K, at most N.
    seed : int

    Returns
    -------
    int64 ndarray of shape (N,)
        With values from 0 to K - 1.
    """
    return best_of_restarts(whitened(features, n_clusters), n_clusters, seed)


def best_of_restarts(rows: np.ndarray, n_clusters: int, seed: int) -> np.ndarray:
    """Labels, int64, of the best of many runs of spherical k-means.

    Of a large set, the restarts see a random choice of rows: the best centres for these
    then start k-means on all.
    """
    n_some = max(RESTART_ROWS, 20 * n_clusters)
    some = rows
    if n_some < len(rows):
        chosen = np.random.RandomState(seed).permutation(len(rows))[:n_some]
        some = rows[chosen]
    kmeans = SphericalKMeans(n_clusters, n_init=RESTARTS, random_state=seed).fit(some)
    if some is not rows:
        centers = kmeans.cluster_centers_
        kmeans = SphericalKMeans(n_clusters, init=centers, n_init=1).fit(rows)
    return kmeans.labels_.astype(np.int64)


def whitened(features: np.ndarray, n_clusters: int) -> np.ndarray:
    """Leading principal components of features' directions, at equal variance.

    A few directions hold most of the variance of what contrast has learned, and say
    little of the classes; the last ones are noise. Kept are those that hold 99% of the
    variance, at most three for each cluster.

    Parameters
    ----------
    features : ndarray of shape (N, F)
    n_clusters : int

    Returns
    -------
    ndarray of shape (N, n_components)
        With no row of zeros.
    """
    limits = np.finfo(features.dtype)
    x = features.astype(np.float64)  # in which the squares of float32 have room
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), limits.tiny)
    x -= x.mean(axis=0)
    variances, directions = np.linalg.eigh(x.T @ x / len(x))
    variances, directions = variances[::-1], directions[:, ::-1]  # largest first
    if variances[0] <= limits.eps**2:  # all samples have the same direction
        return np.full((len(x), 1), limits.eps, dtype=features.dtype)
    held = np.cumsum(variances) / variances.sum()
    n_kept = 1 + int(np.searchsorted(held, VARIANCE))
    n_kept = min(n_kept, COMPONENTS_PER_CLUSTER * n_clusters)
    rows = x @ (directions[:, :n_kept] / np.sqrt(variances[:n_kept]))
    return rows.astype(features.dtype) + limits.eps
