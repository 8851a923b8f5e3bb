"""A partition of a backbone's features, from which EM starts."""

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse import csr_array
from scipy.special import entr
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils import check_random_state

from ._spherical_kmeans import SphericalKMeans

RESTARTS = 100  # of k-means: among whitened features many optima are nearly as good
PROPOSALS = 20  # of features as they are, which share as many restarts
BETTER = 0.999  # inertia of a proposal, at most, to that of the whitened one's optimum
RESTART_ROWS = 20_000  # at most, or so, of those that the restarts see
DRAWS = 5  # of rows of a large set, which share the restarts
VARIANCE = 0.99  # of the features, kept by whitening
COMPONENTS_PER_CLUSTER = 3  # kept at most
REFINEMENTS = 3  # at most: what is likeliest of all is not best


def partition(features: np.ndarray, n_clusters: int, seed: int) -> np.ndarray:
    """Cluster features, whether or not classes are of like size.

    Spherical k-means proposes partitions: one of whitened features, where inertia is a
    good guide if classes are of like size, and several of features as they are, for
    where they are not and whitening would have it cut the large ones into pieces. Of
    the latter those compete that have less inertia than the first one leads to among
    features as they are. The likeliest, were the clusters Gaussian with one covariance
    [1]_, is kept and refined a little by the same criterion.

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
    .. [1] M. J. Symons, "Clustering criteria and multivariate normal mixtures",
       Biometrics 37 (1981), 35-43.
    """
    rng = np.random.RandomState(seed)
    white, plain = whitened(features, n_clusters), directions(features)
    labels = best_of_restarts(white, n_clusters, rng)
    some = _draws(len(features), n_clusters, rng)[0]
    some_white, some_plain = white[some], plain[some]
    level = _nearest_optimum(some_plain, labels[some]).inertia_

    least = unlikeliness(some_white, labels[some])
    kept = None
    for _ in range(PROPOSALS):
        kmeans = _restarted(some_plain, n_clusters, RESTARTS // PROPOSALS, rng)
        value = unlikeliness(some_white, kmeans.labels_)
        if kmeans.inertia_ < BETTER * level and value < least:
            least, kept = value, kmeans
    if kept is not None:
        labels = _continued(kept, plain).labels_
    return refined(white, labels)


def best_of_restarts(rows: np.ndarray, n_clusters: int, random_state) -> np.ndarray:
    """Labels, int64, of the best of many runs of spherical k-means.

    Of a large set, the restarts see random choices of rows: the best centres for each
    of these start k-means on all, and the least inertia on all decides.
    """
    rng = check_random_state(random_state)
    draws = _draws(len(rows), n_clusters, rng)
    runs = []
    for some in draws:
        kmeans = _restarted(rows[some], n_clusters, RESTARTS // len(draws), rng)
        runs.append(_continued(kmeans, rows))
    best = min(runs, key=lambda kmeans: kmeans.inertia_)
    return best.labels_.astype(np.int64)


def _draws(n, n_clusters, rng):
    """What selects the rows that restarts see; all of a set that is not large."""
    n_some = max(RESTART_ROWS, 20 * n_clusters)
    if n <= n_some:
        return [slice(None)]
    return [rng.permutation(n)[:n_some] for _ in range(DRAWS)]


def _restarted(rows, n_clusters, n_runs, random_state):
    kmeans = SphericalKMeans(n_clusters, n_init=n_runs, random_state=random_state)
    return _quietly(kmeans, rows)


def _continued(kmeans, rows):
    """k-means of all rows, from centres that were fitted to some or all."""
    if len(kmeans.labels_) < len(rows):
        centers = kmeans.cluster_centers_
        kmeans = SphericalKMeans(len(centers), init=centers, n_init=1)
        _quietly(kmeans, rows)
    return kmeans


def _nearest_optimum(rows, labels):
    """k-means of rows, from clusters of the same rows."""
    labels = np.unique(labels, return_inverse=True)[1]
    centers = _sums(rows, labels)
    kmeans = SphericalKMeans(len(centers), init=centers, n_init=1)
    return _quietly(kmeans, rows)


def _quietly(kmeans, rows):
    """Without warnings, as whoever fits MiCE knows nothing of these clusters."""
    kmeans._cluster(rows, np.ones(len(rows)))
    return kmeans


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


def unlikeliness(rows: np.ndarray, labels: np.ndarray) -> float:
    """How badly clusters, as Gaussians with one covariance, tell of rows and labels.

    The logarithm of the determinant of the scatter within clusters, and twice the
    entropy of their shares: minus twice the logarithm of the likelihood of one row and
    its label, up to a constant. The determinant alone is the criterion of Friedman and
    Rubin (1967), which favours clusters of like size.
    """
    _, factor, shares = _fitted(rows, labels)
    log_determinant = 2 * np.log(np.diag(factor)).sum()
    return float(log_determinant + 2 * entr(shares).sum())


def refined(rows: np.ndarray, labels: np.ndarray, n_steps=REFINEMENTS) -> np.ndarray:
    """Reassign rows, a few times, so that they become likelier.

    Every row goes to the cluster from which, with its present mean and share and the
    present scatter of all, it is most likely: classification EM, in which
    `unlikeliness` cannot grow.

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
        In which no cluster is empty that was not.
    """
    labels = np.unique(labels, return_inverse=True)[1]
    for _ in range(n_steps):
        means, factor, shares = _fitted(rows, labels)
        to_round = solve_triangular(factor, np.eye(len(factor)), lower=True).T
        to_round = to_round.astype(rows.dtype)
        # One coordinate more, so that distances count the shares, too.
        points = np.pad(rows @ to_round, ((0, 0), (0, 1)))
        centers = np.column_stack([means @ to_round, np.sqrt(-2 * np.log(shares))])
        nearest = pairwise_distances_argmin(points, centers.astype(rows.dtype))
        if (nearest == labels).all() or len(np.unique(nearest)) < len(means):
            break
        labels = nearest
    return labels.astype(np.int64)


def _fitted(rows, labels):
    """Means of clusters, Cholesky factor of the scatter within, and their shares."""
    n, n_features = rows.shape
    counts = np.bincount(labels)
    means = _sums(rows, labels) / np.maximum(counts, 1)[:, None].astype(rows.dtype)
    deviations = rows - means[labels]
    scatter = (deviations.T @ deviations).astype(np.float64) / n
    # Of few rows some directions would have no scatter at all, by chance.
    ridge = n_features / (n + n_features)
    factor = np.linalg.cholesky(scatter + ridge * np.eye(n_features))
    return means, factor, counts / n


def _sums(rows, labels):
    """Of the rows of each cluster."""
    n = len(rows)
    return csr_array((np.ones(n, rows.dtype), (labels, np.arange(n)))) @ rows
