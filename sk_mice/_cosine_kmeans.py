"""K-means by cosine: unit rows, first centres, and two steps in turn."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn.utils import check_array
from sklearn.utils.extmath import row_norms

from ._assignment import Assignment
from ._blas import one_blas_thread
from ._check_rows import fitting_floats
from ._engine.arrays import plain_array

# Scores of one block, in numbers: small enough to stay in the cache of a core
# between the product that writes them and the maximum that reads them.
_BLOCK_SCORES = 2**19
_FEWEST_ROWS, _MOST_ROWS = 2**8, 2**14  # in a block
_MOST_COPIED = 2**12  # rows in a block that has to be gathered
# Up to this many clusters, scores of shape (K, n) are faster than scores (n, K).
_FEW_CLUSTERS = 128  # at most 255
# Below this many multiplications, a second thread costs more than it saves.
_PARALLEL_PRODUCTS = 2**23

# ------------------------------------------------------------------------ unit rows


@contextmanager
def unit_rows(X, n_clusters, weight=None):
    """Yield `UnitRows` that work on as many threads as BLAS has; few rows on one.

    Each thread gets a BLAS of one thread, so that the argmax and the sums run in
    parallel too, and not the products alone.
    """
    n_values = X.nnz if sparse.issparse(X) else X.size
    with one_blas_thread() as n_threads:
        if n_values * n_clusters < _PARALLEL_PRODUCTS:
            n_threads = 1
        with ThreadPoolExecutor(n_threads) as pool:
            yield UnitRows(X, weight, pool if n_threads > 1 else None, n_threads)


class UnitRows:
    """The rows of X scaled to unit norm, without a scaled copy of X.

    The centre nearest to a row is the same with and without the scaling, so only what
    leaves these methods is scaled: cosines and sums.

    Parameters
    ----------
    X : {ndarray, CSR matrix} of shape (N, D)
        Rows of any norm. Zero rows have cosine 0 with everything and add nothing.
    weight : ndarray of shape (N,), float64, or None
        Weights of the rows; None gives each the weight 1.
    pool : ThreadPoolExecutor or None
        Works on blocks of rows in parallel; None takes one after the other.
    n_threads : int
        Of the pool.
    """

    def __init__(self, X, weight=None, pool=None, n_threads=1):
        norms = row_norms(X)
        odd = ~np.isfinite(norms) | (norms < np.sqrt(np.finfo(X.dtype).tiny))
        if odd.any():  # a square over- or underflows, or the row is zero
            X = rescaled(X, odd)
            norms = row_norms(X)
        self.X, self.shape, self.dtype = X, X.shape, X.dtype
        self.pool, self.n_threads = pool, n_threads
        self.nonzero = norms > 0
        self.weight = np.ones(len(norms)) if weight is None else weight
        self.mass = self.weight * self.nonzero  # the weight that moves centres
        self._scale = np.zeros(len(norms), dtype=X.dtype)  # 1 / norm, or 0
        np.divide(1, norms, out=self._scale, where=self.nonzero)
        # How far a computed cosine may be off.
        self.rounding = 4 * np.sqrt(X.shape[1]) * np.finfo(X.dtype).eps

    def dense(self, index):
        """Some of the unit rows, as an array of shape (n, D)."""
        rows = self.X[index]
        rows = rows.toarray() if sparse.issparse(rows) else rows
        return rows * self._scale[index, np.newaxis]

    def inertia(self, cosines):
        """Weighted sum of 1 - cosine."""
        return float(self.weight @ np.maximum(1 - cosines, 0))

    def cosines(self, centers, order="C"):
        """Cosines with all centres, of shape (K, N)."""
        columns = self._columns(centers)
        cosines = np.empty((len(centers), self.shape[0]), self.dtype, order)

        def fill(block):
            scores = self._scores(block, columns)
            np.multiply(scores, self._scale[block], out=cosines[:, block])

        list(self._each(fill, len(cosines.T), self._rows_at_once(*cosines.T.shape)))
        return cosines

    def nearest(self, centers, index=None, runner_up=False):
        """Nearest centres of all rows or those in `index`, and the cosines with them.

        With `runner_up`, also the cosines with the second nearest. All have shape (n,).
        """
        columns = self._columns(centers)
        n_rows = self.shape[0] if index is None else len(index)
        labels = np.empty(n_rows, dtype=np.int32)
        cosines = np.empty(n_rows, dtype=self.dtype)
        seconds = np.empty(n_rows if runner_up else 0, dtype=self.dtype)

        def assign(block):
            rows = block if index is None else index[block]
            scale = self._scale[rows]
            scores = self._scores(rows, columns)
            winners, best = _largest_of_columns(scores)
            labels[block], cosines[block] = winners, best * scale
            if runner_up:
                scores[winners, np.arange(len(winners))] = -np.inf
                seconds[block] = scores.max(axis=0) * scale

        most = _MOST_ROWS if index is None else _MOST_COPIED
        size = self._rows_at_once(n_rows, len(centers), most)
        list(self._each(assign, n_rows, size))
        return (labels, cosines, seconds) if runner_up else (labels, cosines)

    def sums(self, labels, n_clusters, index=None, sign=None):
        """Weighted sums (K, D), float64, of all rows or those in `index`, by label.

        `sign`, of shape (n,), is 1 or -1 for each of the rows, by default 1.
        """
        if sparse.issparse(self.X):  # D may be large, so that one result is enough
            size, sum_rows = len(labels), _sparse_sums
        else:  # blocks so long that their (K, D) results cost little beside the rows
            size, sum_rows = max(8192, 8 * n_clusters), class_sums

        heaviest = self.weight.max() or 1.0  # float32 might not hold the weights

        def add(block):
            rows = block if index is None else index[block]
            weight = self.weight[rows] / heaviest
            factors = (weight * self._scale[rows]).astype(self.dtype)
            if sign is not None:
                factors *= sign[block]
            return sum_rows(_take(self.X, rows), labels[block], n_clusters, factors)

        parts = iter(self._each(add, len(labels), size))
        sums = next(parts).astype(np.float64, copy=False)
        for part in parts:
            sums += part
        if heaviest != 1:  # (K, D) may be large
            sums *= heaviest
        return sums

    def _scores(self, rows, columns):
        """Products (K, n) of some rows with centres, which are columns."""
        X = _take(self.X, rows)
        if columns.shape[1] <= _FEW_CLUSTERS and not sparse.issparse(X):
            return columns.T @ X.T
        return (X @ columns).T

    def _each(self, function, n_rows, size):
        """Results of a function for blocks of about so many rows, in order."""
        if self.pool is None or n_rows <= size:
            return map(function, blocks(n_rows, size))
        n_blocks = -(-n_rows // size)
        n_blocks += -n_blocks % self.n_threads  # no thread is left with nothing to do
        return self.pool.map(function, blocks(n_rows, -(-n_rows // n_blocks)))

    def _rows_at_once(self, n_rows, n_clusters, most=_MOST_ROWS):
        """Length of blocks that give each thread one and keep scores in its cache."""
        most = min(most, _BLOCK_SCORES // n_clusters, -(-n_rows // self.n_threads))
        return max(most, _FEWEST_ROWS)

    def _columns(self, centers):
        # Products with a CSR matrix read whole rows of their right-hand side.
        return np.ascontiguousarray(centers.T, dtype=self.dtype)


def rescaled(X, odd):
    """X with the largest entry of each odd row at 1; X itself if all those are zero."""
    largest = abs(X[odd]).max(axis=1)
    largest = largest.toarray() if sparse.issparse(largest) else largest
    if not largest.any():
        return X
    peaks = np.ones(X.shape[0], dtype=X.dtype)
    peaks[odd] = np.where(largest > 0, largest, 1).ravel()
    if not sparse.issparse(X):
        return X / peaks[:, np.newaxis]
    X = X.copy()
    X.data /= np.repeat(peaks, np.diff(X.indptr))
    return X


def blocks(n_rows, size):
    """As scikit-learn's `gen_batches`, which takes 0.1 ms to check its arguments."""
    return [slice(i, min(i + size, n_rows)) for i in range(0, n_rows, size)]


def _take(X, rows):
    """X[rows], without the copy that slicing a CSR matrix makes."""
    if not (sparse.issparse(X) and isinstance(rows, slice)):
        return X[rows]
    indptr = X.indptr[rows.start : rows.stop + 1]
    entries = slice(indptr[0], indptr[-1])
    parts = X.data[entries], X.indices[entries], indptr - indptr[0]
    return sparse.csr_array(parts, shape=(len(indptr) - 1, X.shape[1]))


def _largest_of_columns(scores):
    """Index and value of the largest entry of each column, the first of equal ones."""
    if len(scores) > _FEW_CLUSTERS or not scores.flags.c_contiguous:
        winners = scores.argmax(axis=0)
        return winners, scores[winners, np.arange(len(winners))]
    # The same in steps that work on whole rows.
    best = scores.max(axis=0)
    is_best = (scores == best).view(np.uint8)
    is_best *= np.arange(len(scores), 0, -1, dtype=np.uint8)[:, np.newaxis]
    return len(scores) - is_best.max(axis=0).astype(np.int32), best


def class_sums(X, labels, n_clusters, weight=None):
    """Weighted sums of the rows of each cluster, by a one-hot matrix (K, n)."""
    weight = np.ones(len(X), dtype=X.dtype) if weight is None else weight
    one_per_row = np.arange(len(labels) + 1, dtype=np.int32)
    shape = (n_clusters, len(labels))
    return sparse.csc_array((weight, labels, one_per_row), shape=shape) @ X


def _sparse_sums(X, labels, n_clusters, weight):
    """Weighted sums of the rows of each cluster, of a CSR matrix."""
    lengths = np.diff(X.indptr)
    data = X.data * np.repeat(weight, lengths).astype(np.float64)
    entries = (data, (np.repeat(labels, lengths), X.indices))
    return sparse.coo_array(entries, shape=(n_clusters, X.shape[1])).toarray()


# -------------------------------------------------------------------- first centres


def first_centers(rows, init, n_clusters, random_state):
    """Draw or scale the initial centres, of unit norm and shape (K, D)."""
    if isinstance(init, str):
        return _seeds(rows, init, n_clusters, random_state)
    if callable(init):
        init = init(rows.X, n_clusters, random_state=random_state)
    with fitting_floats("`init`"):
        init = init.toarray() if sparse.issparse(init) else plain_array(init, "`init`")
        centers = check_array(init, dtype=rows.dtype, input_name="init")
    expected = (n_clusters, rows.shape[1])
    if centers.shape != expected:
        raise ValueError(
            f"`init` must give centres of shape {expected} (n_clusters, "
            f"n_features); got {centers.shape}."
        )
    directions = UnitRows(centers)
    if not directions.nonzero.all():
        raise ValueError(
            "`init` must give centres that are not zero; got zero in row "
            f"{directions.nonzero.argmin()}."
        )
    return directions.dense(slice(None))


def _seeds(rows, init, n_clusters, random_state):
    index, mass = distinct_rows(rows, random_state)
    if len(index) == 0:  # no direction at all: any one will do
        return np.eye(1, rows.shape[1], dtype=rows.dtype).repeat(n_clusters, axis=0)
    if len(index) <= n_clusters:
        chosen = index
    elif init == "random":
        p = mass / mass.sum()
        chosen = index[random_state.choice(len(index), n_clusters, replace=False, p=p)]
    else:
        chosen = _plus_plus(rows, index, mass, n_clusters, random_state)
    return rows.dense(np.resize(chosen, n_clusters))


def _plus_plus(rows, index, mass, n_clusters, random_state):
    """Greedy k-means++ with 1 - cosine, half the squared distance of unit rows.

    Returns at most `n_clusters` rows, fewer where no further direction exists.
    """
    n_trials = 2 + int(np.log(n_clusters))
    weight = (rows.mass / rows.mass.max()).astype(rows.dtype)
    chosen = [index[_draw(mass, random_state)]]
    costs = 1 - rows.cosines(rows.dense(chosen))[0]
    while len(chosen) < n_clusters:
        # A cost of the size of rounding errors is that of a seed's own copies.
        potential = mass * np.where(costs[index] > rows.rounding, costs[index], 0)
        if not potential.any():
            break
        trials = index[_draw(potential, random_state, size=n_trials)]
        trial_costs = 1 - rows.cosines(rows.dense(trials))
        np.minimum(trial_costs, costs, out=trial_costs)
        best = np.argmin(trial_costs @ weight)
        chosen.append(trials[best])
        costs = trial_costs[best]
    return chosen


def _draw(mass, random_state, size=None):
    """Positions drawn with probability proportional to `mass`."""
    cumulated = np.cumsum(mass)
    drawn = random_state.uniform(size=size) * cumulated[-1]
    # Rounding may carry a number past the end.
    return np.minimum(np.searchsorted(cumulated, drawn, "right"), len(mass) - 1)


def distinct_rows(rows, random_state):
    """One representative of each set of equal rows, and the total weight of the set.

    Their order follows from the rows' content, so that what is drawn from it does not
    change when rows are permuted, or repeated instead of weighted. Zero rows, which
    have no direction, and sets without weight are left out.
    """
    fingerprints = _fingerprints(rows.X, random_state)
    _, index, group = np.unique(fingerprints, return_index=True, return_inverse=True)
    mass = np.bincount(group, weights=rows.mass)
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
        for block in blocks(X.shape[0], 1024)
    ]
    return np.concatenate(hashes)


def _words(values):
    """The bits of floating-point numbers, 32 at a time, zero for zero."""
    words = np.ascontiguousarray(values + 0).view(np.uint32)  # -0.0 + 0 is 0.0
    # Small integers end in zero bits, which multiplication alone cannot fill.
    return (words ^ (words >> np.uint32(15))).astype(np.uint64)


# ----------------------------------------------------------------------- iterations


class Solution(NamedTuple):
    """The end of a run of k-means."""

    labels: np.ndarray  # (N,), nearest centres
    inertia: float
    centers: np.ndarray  # (K, D)
    sums: np.ndarray  # (K, D), float64: the centres are their directions
    n_iter: int


def lloyd(rows, centers, max_iter=300, tol=1e-4, verbose=0) -> Solution:
    """Alternate nearest centres and optimal centres from one start."""
    n_clusters = len(centers)
    sums = np.zeros(centers.shape)
    # The cluster in which `sums` counts each row; -1: not yet counted.
    members = np.full(rows.shape[0], -1, dtype=np.int32)
    assignment = Assignment(rows)
    for n_iter in range(1, max_iter + 1):
        labels = assignment.update(centers)
        mass = np.bincount(labels, rows.mass, minlength=n_clusters)
        if not mass.all():
            labels = _relocated(rows, labels, rows.nearest(centers)[1], mass)
            mass = np.bincount(labels, rows.mass, minlength=n_clusters)
        if np.array_equal(labels, members):
            reason = "no label changes"
            break
        sums = _updated_sums(rows, sums, members, labels)
        sums[mass == 0] = 0  # exactly: updates leave rounding errors
        members = labels
        previous, centers = centers, _optimal_centers(sums, mass, centers)
        if verbose:
            value = rows.weight.sum() - np.vdot(centers, sums)
            print(f"Iteration {n_iter}, inertia {value:.6g}.")
        # As in KMeans, tol is relative to the variance of the (unit) rows.
        mean = sums.sum(axis=0) / max(rows.mass.sum(), np.finfo(np.float64).tiny)
        variance = max(1 - mean @ mean, 0) / rows.shape[1]
        if np.square(centers - previous).sum() <= tol * variance:
            reason = "the centres move less than the tolerance"
            break
    else:
        reason = "`max_iter` is reached"
    if verbose:
        print(f"Stopped at iteration {n_iter}: {reason}.")
    if assignment.complete and assignment.centers is centers:
        labels, cosines = assignment.labels, assignment.cosines
    else:  # once more with every product, so that labels are what predict gives
        labels, cosines = rows.nearest(centers)
    return Solution(labels, rows.inertia(cosines), centers, sums, n_iter)


def absorb(rows, centers, sums):
    """Add a batch to the sums; return the centres that follow, and the sums."""
    labels, cosines = rows.nearest(centers)
    # A cluster is empty if no batch has brought it a row.
    mass = np.bincount(labels, rows.mass, minlength=len(centers))
    mass += row_norms(sums)
    if not mass.all():
        labels = _relocated(rows, labels, cosines, mass)
    new = rows.sums(labels, len(centers))
    new += sums
    return _optimal_centers(new, mass, centers), new


def _relocated(rows, labels, cosines, mass):
    """A copy of the labels in which the rows farthest from their centres fill clusters.

    `cosines` (N,) are those with the own centre; `mass` (K,) is 0 for empty clusters.
    """
    empty = np.flatnonzero(mass == 0)
    costs = np.where(rows.mass > 0, 1 - cosines, 0)
    farthest = np.argsort(-costs, kind="stable")[: len(empty)]
    farthest = farthest[costs[farthest] > rows.rounding]  # a row at its centre stays
    labels = labels.copy()
    labels[farthest] = empty[: len(farthest)]
    return labels


def _optimal_centers(sums, mass, previous):
    """Scale sums to unit norm: the optimal centres for given labels.

    A cluster without weight, or whose rows cancel, has no direction and keeps
    its previous centre, which is as good as any other.
    """
    norms = row_norms(sums)
    clear = norms > np.finfo(previous.dtype).eps * mass
    norms[~clear] = 1
    centers = (sums / norms[:, np.newaxis]).astype(previous.dtype, copy=False)
    centers[~clear] = previous[~clear]
    return centers


def _updated_sums(rows, sums, old, new):
    """The sums for the labels `new`, given those for the labels `old`."""
    n_clusters = len(sums)
    moved = np.flatnonzero(old != new)
    if 4 * len(moved) > len(new):
        return rows.sums(new, n_clusters)
    sign = np.repeat(np.array([1, -1], dtype=np.int8), len(moved))
    labels, index = np.concatenate([new[moved], old[moved]]), np.tile(moved, 2)
    return sums + rows.sums(labels, n_clusters, index, sign)
