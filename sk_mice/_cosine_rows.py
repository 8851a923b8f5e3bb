"""Rows compared by cosine: products, sums and duplicates, a block at a time."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache

import numpy as np
from scipy import sparse
from sklearn.utils.extmath import row_norms
from threadpoolctl import ThreadpoolController

# Scores of one block, in numbers: small enough to stay in the cache of a core
# between the product that writes them and the argmax that reads them.
_BLOCK_SCORES = 2**19
# Below this many multiplications a second thread costs more than it brings.
_PARALLEL_PRODUCTS = 2**23


@contextmanager
def unit_rows(X, n_clusters):
    """Yield `UnitRows(X)` that work on as many threads as BLAS has.

    Each thread gets a BLAS of one thread, so that the argmax and the sums run in
    parallel too, and not the products alone.
    """
    controller = _thread_controller().select(user_api="blas")
    n_threads = max((info["num_threads"] for info in controller.info()), default=1)
    n_values = X.nnz if sparse.issparse(X) else X.size
    if n_threads == 1 or n_values * n_clusters < _PARALLEL_PRODUCTS:
        yield UnitRows(X)
        return
    with controller.limit(limits=1), ThreadPoolExecutor(n_threads) as pool:
        yield UnitRows(X, pool.map)


@cache
def _thread_controller():
    return ThreadpoolController()  # looks through all loaded libraries: 10 ms


class UnitRows:
    """The rows of X scaled to unit norm, without a scaled copy of X.

    For every row the best centre is the same with and without the scaling, so
    only what leaves these methods is scaled: cosines and sums.

    Parameters
    ----------
    X : {ndarray, CSR matrix} of shape (N, D)
        Rows of any norm. Zero rows have cosine 0 with everything and add nothing.
    map : callable
        What applies a function to all blocks of rows, in turn or in parallel.
    """

    def __init__(self, X, map=map):
        norms = row_norms(X)
        odd = ~np.isfinite(norms) | (norms < np.sqrt(np.finfo(X.dtype).tiny))
        if odd.any():  # a square over- or underflows, or the row is zero
            X = _rescaled(X, odd)
            norms = row_norms(X)
        self.X = X
        self.map = map
        self.nonzero = norms > 0
        self.scale = np.zeros(X.shape[0], dtype=X.dtype)  # 1 / norm, or 0
        np.divide(1, norms, out=self.scale, where=self.nonzero)

    @property
    def shape(self):
        return self.X.shape

    @property
    def dtype(self):
        return self.X.dtype

    @property
    def rounding(self):
        """How far a computed cosine may be off."""
        return 4 * np.sqrt(self.shape[1]) * np.finfo(self.dtype).eps

    def dense(self, index):
        """Rows as an array of shape (len(index), D)."""
        rows = self.X[index]
        rows = rows.toarray() if sparse.issparse(rows) else rows
        return rows * self.scale[index, np.newaxis]

    def cosines(self, centers):
        """Cosines with all centres, of shape (N, K)."""
        columns = self._columns(centers)
        cosines = np.empty((self.shape[0], len(centers)), dtype=self.dtype)

        def fill(block):
            cosines[block] = _take(self.X, block) @ columns
            cosines[block] *= self.scale[block, np.newaxis]

        list(self.map(fill, _score_blocks(*cosines.shape)))
        return cosines

    def nearest(self, centers, index=None, runner_up=False):
        """Nearest centre of each row, or of the rows in `index`.

        Returns
        -------
        labels : ndarray of shape (n,), int32
        cosines : ndarray of shape (n,)
            Cosine with that centre.
        seconds : ndarray of shape (n,)
            Cosine with the second nearest; only with `runner_up`.
        """
        columns = self._columns(centers)
        n_rows = self.shape[0] if index is None else len(index)
        labels = np.empty(n_rows, dtype=np.int32)
        cosines = np.empty(n_rows, dtype=self.dtype)
        seconds = np.empty(n_rows if runner_up else 0, dtype=self.dtype)

        def assign(block):
            rows = block if index is None else index[block]
            scale = self.scale[rows]
            scores = _take(self.X, rows) @ columns
            winners = labels[block] = scores.argmax(axis=1)
            each = np.arange(len(winners))
            cosines[block] = scores[each, winners] * scale
            if runner_up:
                scores[each, winners] = -np.inf
                seconds[block] = scores.max(axis=1) * scale

        list(self.map(assign, _score_blocks(n_rows, len(centers))))
        return (labels, cosines, seconds) if runner_up else (labels, cosines)

    def sums(self, weight, labels, n_clusters, index=None):
        """Weighted sums of the unit rows of each cluster.

        Parameters
        ----------
        weight : ndarray of shape (N,)
        labels : ndarray of shape (n,), int32
            Clusters of the rows in `index`, or of all rows.

        Returns
        -------
        sums : ndarray of shape (K, D), float64
        """
        if sparse.issparse(self.X):  # D may be large, so that one result is enough
            size, sum_rows = len(labels), _sparse_sums
        else:  # blocks so long that their (K, D) results cost little beside the rows
            size, sum_rows = max(8192, 8 * n_clusters), _dense_sums

        def add(block):
            rows = block if index is None else index[block]
            factors = (weight[rows] * self.scale[rows]).astype(self.dtype, copy=False)
            return sum_rows(_take(self.X, rows), factors, labels[block], n_clusters)

        sums = np.zeros((n_clusters, self.shape[1]))
        for part in self.map(add, _blocks(len(labels), size)):
            sums += part
        return sums

    def _columns(self, centers):
        # Products with a CSR matrix read whole rows of their right-hand side.
        return np.ascontiguousarray(centers.T, dtype=self.dtype)


def _rescaled(X, odd):
    """Return X with the largest entry of each odd row at 1; X if all those are zero."""
    largest = abs(X[odd]).max(axis=1)
    largest = largest.toarray() if sparse.issparse(largest) else largest
    if not largest.any():
        return X
    peaks = np.ones(X.shape[0], dtype=X.dtype)
    peaks[odd] = largest.ravel()
    peaks[peaks == 0] = 1
    if not sparse.issparse(X):
        return X / peaks[:, np.newaxis]
    X = X.copy()
    X.data /= np.repeat(peaks, np.diff(X.indptr))
    return X


def _blocks(n_rows, size):
    return [slice(start, start + size) for start in range(0, n_rows, size)]


def _score_blocks(n_rows, n_clusters):
    return _blocks(n_rows, int(np.clip(_BLOCK_SCORES // n_clusters, 256, 4096)))


def _take(X, rows):
    """Return X[rows], without the copy that slicing a CSR matrix makes."""
    if not (sparse.issparse(X) and isinstance(rows, slice)):
        return X[rows]
    start, stop, _ = rows.indices(X.shape[0])
    indptr = X.indptr[start : stop + 1]
    entries = slice(indptr[0], indptr[-1])
    parts = X.data[entries], X.indices[entries], indptr - indptr[0]
    return sparse.csr_array(parts, shape=(stop - start, X.shape[1]))


def _dense_sums(X, weight, labels, n_clusters):
    """Sum the rows of each cluster, by a one-hot matrix of shape (K, n)."""
    one_per_row = np.arange(len(labels) + 1, dtype=np.int32)
    shape = (n_clusters, len(labels))
    return sparse.csc_array((weight, labels, one_per_row), shape=shape) @ X


def _sparse_sums(X, weight, labels, n_clusters):
    """Sum the rows of each cluster: the matrix's entries, relabelled."""
    lengths = np.diff(X.indptr)
    data = X.data * np.repeat(weight, lengths).astype(np.float64)
    entries = (data, (np.repeat(labels, lengths), X.indices))
    return sparse.coo_array(entries, shape=(n_clusters, X.shape[1])).toarray()


# ------------------------------------------------------------------ equal rows


def distinct_rows(rows, weight, random_state):
    """One representative of each set of equal rows, in an order of its own.

    The order follows from the rows' content, so that what is drawn from it does
    not change when rows are permuted, or repeated instead of weighted.

    Returns
    -------
    index : ndarray of shape (n_distinct,)
        Representatives with positive weight; zero rows have no direction and
        are left out.
    mass : ndarray of shape (n_distinct,)
        Total weight of each set.
    """
    fingerprints = _fingerprints(rows.X, random_state)
    _, index, group = np.unique(fingerprints, return_index=True, return_inverse=True)
    mass = np.bincount(group, weights=weight * rows.nonzero)
    return index[mass > 0], mass[mass > 0]


def _fingerprints(X, random_state):
    """Compute a 64-bit number for each row, which depends on its content alone.

    Equal rows have equal numbers wherever they stand and whether X is dense or
    sparse; different rows have different ones but for one pair in about 1e12.
    """
    n_words = X.dtype.itemsize // 4
    factors = random_state.randint(
        0, 2**64, size=(X.shape[1], n_words), dtype=np.uint64
    )
    if sparse.issparse(X):
        entries = (_words(X.data).reshape(-1, n_words) * factors[X.indices]).sum(axis=1)
        hashes = sparse.csr_array((entries, X.indices, X.indptr), shape=X.shape)
        return hashes @ np.ones(X.shape[1], dtype=np.uint64)
    hashes = [
        _words(X[block]).reshape(-1, factors.size) @ factors.ravel()
        for block in _blocks(X.shape[0], 1024)
    ]
    return np.concatenate(hashes)


def _words(values):
    """Return the bits of floating-point numbers, 32 at a time, zero for zero."""
    words = np.ascontiguousarray(values + 0).view(np.uint32)  # -0.0 + 0 is 0.0
    # Small integers end in zero bits, which multiplication alone cannot fill.
    return (words ^ (words >> np.uint32(15))).astype(np.uint64)
