"""A partition of a backbone's features, from which EM starts."""

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse import csr_array
from sklearn.metrics import pairwise_distances_argmin

from ._spherical_kmeans import SphericalKMeans

RESTARTS = 100  # of k-means: among whitened features many optima are nearly as good
RESTART_ROWS = 20_000  # at most, or so, of those that the restarts see
VARIANCE = 0.99  # of the features, kept by whitening
COMPONENTS_PER_CLUSTER = 3  # kept at most
REFINEMENTS = 100  # at most; tens are usual


def partition(features: np.ndarray, n_clusters: int, seed: int) -> np.ndarray:
    """Cluster features so that they scatter little within clusters.

    Spherical k-means proposes two partitions: of whitened features, the better one if
    classes are of like size, and of features as they are, where they are not and
    whitening would have it cut the large ones into pieces. The one whose scatter within
    clusters has the smaller determinant, a criterion that no linear map of the features
    changes [1]_, is kept and refined by that criterion.

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

    References
    ----------
    .. [1] H. P. Friedman and J. Rubin, "On some invariant criteria for grouping data",
       Journal of the American Statistical Association 62 (1967), 1159-1178.
    """
    rows = whitened(features, n_clusters)
    proposed = [
        best_of_restarts(x, n_clusters, seed) for x in (rows, directions(features))
    ]
    return refined(rows, min(proposed, key=lambda labels: log_scatter(rows, labels)))


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


def directions(features: np.ndarray) -> np.ndarray:
    """Features (N, F) at unit length; those without any direction share one."""
    limits = np.finfo(features.dtype)
    x = features.astype(np.float64)  # in which the squares of float32 have room
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), limits.tiny)
    return x.astype(features.dtype) + limits.eps


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
    x = directions(features).astype(np.float64)
    x -= x.mean(axis=0)
    variances, axes = np.linalg.eigh(x.T @ x / len(x))
    variances, axes = variances[::-1], axes[:, ::-1]  # largest first
    if variances[0] <= limits.eps**2:  # all samples have the same direction
        return np.full((len(x), 1), limits.eps, dtype=features.dtype)
    held = np.cumsum(variances) / variances.sum()
    n_kept = 1 + int(np.searchsorted(held, VARIANCE))
    n_kept = min(n_kept, COMPONENTS_PER_CLUSTER * n_clusters)
    rows = x @ (axes[:, :n_kept] / np.sqrt(variances[:n_kept]))
    return rows.astype(features.dtype) + limits.eps


def log_scatter(rows: np.ndarray, labels: np.ndarray) -> float:
    """Logarithm of the determinant of the scatter within clusters, up to a constant."""
    _, factor = _within(rows, labels)
    return 2 * float(np.log(np.diag(factor)).sum())


def refined(rows: np.ndarray, labels: np.ndarray, n_steps=REFINEMENTS) -> np.ndarray:
    """Reassign rows until the determinant of the scatter within clusters is least.

    Every row goes to the nearest mean in the metric of the present scatter, in which
    clusters are round in the mean: the determinant cannot grow, as its logarithm is
    concave.

    Parameters
    ----------
    rows : ndarray of shape (N, F)
        Whitened.
    labels : int ndarray of shape (N,)
        Where to begin.
    n_steps : int, default=REFINEMENTS
        At most.

    Returns
    -------
    int64 ndarray of shape (N,)
        A local minimum, in which no cluster is empty that was not.
    """
    labels = np.unique(labels, return_inverse=True)[1]
    for _ in range(n_steps):
        means, factor = _within(rows, labels)
        to_round = solve_triangular(factor, np.eye(len(factor)), lower=True).T
        to_round = to_round.astype(rows.dtype)
        nearest = pairwise_distances_argmin(rows @ to_round, means @ to_round)
        if (nearest == labels).all() or len(np.unique(nearest)) < len(means):
            break
        labels = nearest
    return labels.astype(np.int64)


def _within(rows, labels):
    """Means of the clusters, and the Cholesky factor of the scatter within them."""
    n, n_features = rows.shape
    indicators = csr_array((np.ones(n, rows.dtype), (labels, np.arange(n))))
    counts = indicators.sum(axis=1)[:, None]
    means = (indicators @ rows) / np.maximum(counts, 1)
    deviations = rows - means[labels]
    scatter = (deviations.T @ deviations).astype(np.float64) / n
    # Of few rows some directions would have no scatter at all, by chance.
    ridge = n_features / (n + n_features)
    return means, np.linalg.cholesky(scatter + ridge * np.eye(n_features))
