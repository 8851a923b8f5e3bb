"""Each row's nearest others: exact, or for very many rows by an index.

The index keeps rows in lists, each around one of the centres of a k-means, and looks
for a row's neighbours in the lists whose centres are nearest (Jegou, Douze and Schmid,
Product quantization for nearest neighbor search, 2011, without the quantization). How
many lists is decided by the recall on a sample of rows.
"""

import importlib.util
import math
import time
import warnings

import numpy as np
from sklearn.neighbors import NearestNeighbors

from .warn import warn_user

MOST_EXACT = 50_000  # rows; for more, the index finds the neighbours
GOOD_RECALL = 0.95  # recall at which the index looks into no more lists
POOR_RECALL = 0.9
_MOST_LISTS = 128  # most lists that are looked into
_SAMPLE = 400  # rows on which the recall is measured
_BLOCK_OPERATIONS = 4e10  # Ctrl-C waits for a block: about half a second
_LONG = 60  # seconds; a longer search is announced


def nearest_neighbors(
    rows: np.ndarray, n_neighbors: int, seed: int = 0
) -> tuple[np.ndarray, float]:
    """Each row's nearest others, and which share of them was found.

    Up to 50,000 rows, and without faiss, the search is exact and its time grows as N^2.

    Parameters
    ----------
    rows : ndarray of shape (N, F)
    n_neighbors : int
        M; at most N - 1 are found.
    seed : int, default=0
        Of the index and of the sample of rows that its recall is measured on.

    Returns
    -------
    nearest : int64 ndarray of shape (N, M)
        Nearest first. The row itself stands where the index found too few.
    recall : float
        Share of the true neighbours among those found; 1.0 of an exact search. That of
        the index is an estimate from 400 rows.

    Warns
    -----
    UserWarning
        If a search takes more than a minute because faiss is not installed.
    """
    n_neighbors = min(n_neighbors, len(rows) - 1)
    many = len(rows) > MOST_EXACT
    if many and importlib.util.find_spec("faiss") is not None:
        return _by_index(rows, n_neighbors, seed)
    return _exact(rows, n_neighbors, announced=many), 1.0


def warn_of_recall(recall: float) -> None:
    """Warn if many neighbours were missed."""
    if recall < POOR_RECALL:
        warn_user(
            f"The index found {recall:.0%} of the nearest neighbours. Fewer dimensions "
            "may help, for example the first 64 principal components of X."
        )


def shares_of_neighbors(labels, nearest, n_clusters: int):
    """Shares (N, K) of the clusters among neighbours (N, M) of samples, float32.

    In a cluster of n samples, only the n - 1 nearest count, and at least one: others
    are in other clusters, however far away these are. If there is only one sample, it
    is its own neighbour.
    """
    found = labels[nearest].T if nearest.shape[1] else labels[None]
    asked = (np.bincount(labels)[labels] - 1).clip(1, len(found))
    counts = np.zeros((len(labels), n_clusters), np.float32)
    for place, theirs in enumerate(found):
        counts[np.arange(len(labels)), theirs] += place < asked
    return counts / asked.astype(np.float32)[:, None]


# --------------------------------------------------------------------------- exact


def _exact(rows, n_neighbors, announced):
    search = NearestNeighbors().fit(rows)
    # How long a block takes hardly depends on the algorithm.
    size = math.ceil(_BLOCK_OPERATIONS / (2 * rows.size))
    nearest = np.empty((len(rows), n_neighbors), np.int64)
    start = time.perf_counter()
    for own in np.split(np.arange(len(rows)), range(size, len(rows), size)):
        nearest[own] = _others(search, rows, own, n_neighbors)
        if announced and own[0] == 0:
            _announce((time.perf_counter() - start) * len(rows) / len(own))
    return nearest


def _others(search, rows, own, n_neighbors):
    """The nearest of these rows, without themselves."""
    found = search.kneighbors(rows[own], n_neighbors + 1, return_distance=False)
    return _without(found, own)


def _without(found, own):
    """Leave each row itself out of what was found, or else the farthest."""
    kept = found != own[:, None]
    kept[kept.all(axis=1), -1] = False
    return found[kept].reshape(len(found), -1)


def _announce(seconds: float) -> None:
    if seconds > _LONG:
        warn_user(
            f"The exact search for neighbours takes about {seconds / 60:.0f} minutes. "
            'With faiss it is faster: pip install "sk-mice[neighbors]".'
        )


# ------------------------------------------------------------------------ the index


def _by_index(rows, n_neighbors, seed):
    rows = np.ascontiguousarray(rows, dtype=np.float32)
    rng = np.random.RandomState(seed)
    tried, judged = np.split(rng.permutation(len(rows))[: 2 * _SAMPLE], 2)
    search = NearestNeighbors(algorithm="brute").fit(rows)
    truth = _others(search, rows, tried, n_neighbors)
    index = _build(rows, rng.randint(2**31 - 1))
    while True:
        found = _look_up(index, rows, tried, n_neighbors)
        recall = _recall(rows, tried, found, truth)
        if recall >= GOOD_RECALL or index.nprobe >= _MOST_LISTS:
            break
        index.nprobe *= 2
    nearest = np.empty((len(rows), n_neighbors), np.int64)
    # Rows of one list look into much the same lists, which then stay in the cache.
    _, lists = index.quantizer.search(rows, 1)
    order = np.argsort(lists[:, 0], kind="stable")
    for own in np.array_split(order, math.ceil(len(rows) / 4096)):
        nearest[own] = _look_up(index, rows, own, n_neighbors)
    truth = _others(search, rows, judged, n_neighbors)
    return nearest, _recall(rows, judged, nearest[judged], truth)


def _build(rows, seed):
    with warnings.catch_warnings():
        # The types of SWIG warn. Raised as an error, that would end the process.
        warnings.simplefilter("ignore", DeprecationWarning)
        import faiss

    n_lists = round(2 * math.sqrt(len(rows)))
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(rows.shape[1]), rows.shape[1], n_lists)
    index.cp.seed = seed
    index.cp.max_points_per_centroid = 64
    index.train(rows)
    index.add(rows)
    index.nprobe = 1
    return index


def _look_up(index, rows, own, n_neighbors):
    _, found = index.search(rows[own], n_neighbors + 1)
    found = _without(found, own)
    return np.where(found < 0, own[:, None], found)


def _recall(rows, own, found, truth) -> float:
    """Share of neighbours that are as near as the true ones: of equal rows, any are."""
    shares = []
    for i, near, true in zip(own, found, truth, strict=True):
        farthest = np.linalg.norm(rows[true] - rows[i], axis=1).max()
        distances = np.linalg.norm(rows[near] - rows[i], axis=1)
        is_near = (near != i) & (distances <= farthest * (1 + 1e-6))
        shares.append(is_near.mean())
    return float(np.mean(shares))
