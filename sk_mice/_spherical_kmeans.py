"""Spherical k-means: k-means on directions, by cosine similarity."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from numbers import Integral, Real

import numpy as np
from scipy import sparse
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
    _fit_context,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.extmath import row_norms
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)
from threadpoolctl import ThreadpoolController

# ----------------------------------------------------------------------------
# Rows, a block at a time
# ----------------------------------------------------------------------------

# Scores of one block, in numbers: small enough to stay in the cache of a core
# between the product that writes them and the argmax that reads them.
_BLOCK_SCORES = 2**19
# Below this many multiplications a second thread costs more than it brings.
_PARALLEL_PRODUCTS = 2**23


def _run_serially(function, blocks):
    return [function(block) for block in blocks]


@cache
def _thread_controller():
    return ThreadpoolController()  # looks through all loaded libraries: 10 ms


@contextmanager
def _block_runner(n_products):
    """Yield a map over blocks of rows, on as many threads as BLAS has.

    Each thread gets a BLAS of one thread, so that the argmax and the sums run in
    parallel too, and not the products alone.
    """
    controller = _thread_controller().select(user_api="blas")
    n_threads = max((info["num_threads"] for info in controller.info()), default=1)
    if n_threads == 1 or n_products < _PARALLEL_PRODUCTS:
        yield _run_serially
        return
    with controller.limit(limits=1), ThreadPoolExecutor(n_threads) as pool:
        yield lambda function, blocks: list(pool.map(function, blocks))


def _blocks(n_rows, size):
    return [slice(start, start + size) for start in range(0, n_rows, size)]


class _UnitRows:
    """The rows of X scaled to unit norm, without a scaled copy of X.

    For every row the best centre is the same with and without the scaling, so
    only what leaves these methods is scaled: cosines and sums.

    Parameters
    ----------
    X : {ndarray, CSR matrix} of shape (N, D)
        Rows of any norm. Zero rows have cosine 0 with everything and add nothing.
    run : callable
        The map over blocks that `_block_runner` yields.
    """

    def __init__(self, X, run=_run_serially):
        norms = row_norms(X)
        self.X = X
        self.run = run
        odd = ~np.isfinite(norms) | (norms < np.sqrt(np.finfo(X.dtype).tiny))
        if odd.any():  # a square over- or underflows, or the row is zero
            self.X = _rescaled(X, odd)
            norms = row_norms(self.X)
        self.nonzero = norms > 0
        self.scale = np.zeros(X.shape[0], dtype=X.dtype)  # 1 / norm, or 0
        np.divide(1, norms, out=self.scale, where=self.nonzero, casting="same_kind")

    @property
    def shape(self):
        return self.X.shape

    @property
    def dtype(self):
        return self.X.dtype

    def dense(self, index):
        """Rows as an array of shape (len(index), D)."""
        rows = self.X[index]
        rows = rows.toarray() if sparse.issparse(rows) else rows
        return rows * self.scale[index, np.newaxis]

    def cosines(self, centers):
        """Cosines with all centres, of shape (N, K)."""
        columns = self._columns(centers)
        cosines = np.empty((self.shape[0], columns.shape[1]), dtype=self.dtype)

        def fill(block):
            cosines[block] = _rows(self.X, block) @ columns
            cosines[block] *= self.scale[block, np.newaxis]

        self.run(fill, _blocks(len(cosines), self._block_size(len(centers))))
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
            scores = _rows(self.X, rows) @ columns
            winners = labels[block] = scores.argmax(axis=1)
            each = np.arange(len(winners))
            cosines[block] = scores[each, winners] * scale
            if runner_up:
                scores[each, winners] = -np.inf
                seconds[block] = scores.max(axis=1) * scale

        self.run(assign, _blocks(n_rows, self._block_size(len(centers))))
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
        index = slice(None) if index is None else index
        weight = (weight[index] * self.scale[index]).astype(self.dtype, copy=False)
        if sparse.issparse(self.X):
            return _sparse_sums(self.X[index], weight, labels, n_clusters)
        # Blocks long enough that the (K, D) results cost little beside the rows.
        blocks = _blocks(len(labels), max(8192, 8 * n_clusters))
        rows = None if isinstance(index, slice) else index
        sums = np.zeros((n_clusters, self.shape[1]))

        def add(block):
            X = self.X[block if rows is None else rows[block]]
            return _dense_sums(X, weight[block], labels[block], n_clusters)

        for part in self.run(add, blocks):
            sums += part
        return sums

    def _columns(self, centers):
        # Products with a CSR matrix read whole rows of their right-hand side.
        return np.ascontiguousarray(centers.T, dtype=self.dtype)

    def _block_size(self, n_clusters):
        return int(np.clip(_BLOCK_SCORES // n_clusters, 256, 4096))


def _rows(X, rows):
    """Return X[rows], without the copy that slicing a CSR matrix makes."""
    if not (sparse.issparse(X) and isinstance(rows, slice)):
        return X[rows]
    start, stop, _ = rows.indices(X.shape[0])
    indptr = X.indptr[start : stop + 1]
    entries = slice(indptr[0], indptr[-1])
    parts = X.data[entries], X.indices[entries], indptr - indptr[0]
    return sparse.csr_array(parts, shape=(stop - start, X.shape[1]))


def _rescaled(X, odd):
    """Return a copy of X in which the largest entry of each odd row is 1 (or 0)."""
    rows = abs(X[odd])
    rows = rows.max(axis=1).toarray() if sparse.issparse(rows) else rows.max(axis=1)
    peaks = np.ones(X.shape[0], dtype=X.dtype)
    peaks[odd] = rows.ravel()
    peaks[peaks == 0] = 1
    if not sparse.issparse(X):
        return X / peaks[:, np.newaxis]
    X = X.copy()
    X.data /= np.repeat(peaks, np.diff(X.indptr))
    return X


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


# ----------------------------------------------------------------------------
# Seeding
# ----------------------------------------------------------------------------


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


def _distinct_rows(rows, weight, random_state):
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


def _draw(mass, random_state, size=None):
    """Positions drawn with probability proportional to `mass`."""
    cumulated = np.cumsum(mass)
    drawn = random_state.uniform(size=size) * cumulated[-1]
    # Rounding may carry a number past the end.
    return np.minimum(np.searchsorted(cumulated, drawn, "right"), len(mass) - 1)


def _plus_plus(rows, weight, index, mass, n_clusters, random_state):
    """Greedy k-means++ with 1 - cosine, half the squared distance of unit rows.

    Returns
    -------
    chosen : list of int
        At most `n_clusters` rows; fewer where no further direction exists.
    """
    n_trials = 2 + int(np.log(n_clusters))
    noise = 4 * np.sqrt(rows.shape[1]) * np.finfo(rows.dtype).eps
    chosen = [index[_draw(mass, random_state)]]
    costs = 1 - rows.cosines(rows.dense(chosen))[:, 0]
    while len(chosen) < n_clusters:
        # A cost of the size of rounding errors is that of a seed's own copies.
        potential = mass * np.where(costs[index] > noise, costs[index], 0)
        if not potential.any():
            break
        trials = index[_draw(potential, random_state, size=n_trials)]
        trial_costs = 1 - rows.cosines(rows.dense(trials))
        np.minimum(trial_costs, costs[:, np.newaxis], out=trial_costs)
        best = np.argmin(weight @ trial_costs)
        chosen.append(trials[best])
        costs = trial_costs[:, best].copy()
    return chosen


def _seeds(rows, weight, init, n_clusters, random_state):
    """Draw initial centres, of unit norm and shape (K, D), from the rows."""
    index, mass = _distinct_rows(rows, weight, random_state)
    if len(index) == 0:  # no direction at all: any one will do
        return np.eye(1, rows.shape[1], dtype=rows.dtype).repeat(n_clusters, axis=0)
    if len(index) <= n_clusters:
        chosen = index
    elif init == "random":
        p = mass / mass.sum()
        chosen = index[random_state.choice(len(index), n_clusters, replace=False, p=p)]
    else:
        weight = (weight * rows.nonzero).astype(rows.dtype)
        chosen = _plus_plus(rows, weight, index, mass, n_clusters, random_state)
    return rows.dense(np.resize(chosen, n_clusters))


# ----------------------------------------------------------------------------
# Iterations
# ----------------------------------------------------------------------------


def _angles_between(old, new):
    """Angles between corresponding unit rows, of shape (K,), exact when small."""
    chords = np.linalg.norm(new.astype(np.float64) - old, axis=1)
    return 2 * np.arcsin(np.minimum(chords / 2, 1))


class _Assignment:
    """Nearest centres of all rows, kept up to date while the centres move.

    Angles between unit vectors obey the triangle inequality. So when a centre
    turns by some angle, a row's angle to it changes by at most that much, and a
    row whose own centre is then still nearer than any other can be needs no new
    products [1]_. The bounds cost a second maximum over all products, and pay
    only once the centres have nearly settled: they are tried when few labels
    change, and after a failure not again for twice as many iterations.

    References
    ----------
    .. [1] Schubert, Lang and Feher, "Accelerating Spherical k-Means", SISAP 2021,
       in the form that Hamerly gave to such bounds for k-means (SDM 2010).
    """

    def __init__(self, rows):
        n_rows, n_features = rows.shape
        self.rows = rows
        self.labels = np.full(n_rows, -1, dtype=np.int32)
        self.nearest = self.others = None  # bounds on angles, while they are kept
        self.changed = n_rows  # labels changed by the last update
        self.pause = self.patience = 1
        self.centers = None
        # Rounding of a product of two unit vectors.
        self.margin = 4 * np.sqrt(n_features) * np.finfo(rows.dtype).eps

    def update(self, centers):
        """Return the label of every row; the array is not written to again."""
        active = None if self.nearest is None else self._undecided(centers)
        labels = self.labels.copy()
        if active is None:
            self.pause -= 1
            settled = self.changed < 0.02 * len(labels)
            if self.pause < 0 and settled and len(centers) > 1:
                labels, *cosines = self.rows.nearest(centers, runner_up=True)
                self.nearest, self.others = self._bounds(*cosines)
            else:
                labels, _ = self.rows.nearest(centers)
        else:
            labels[active], *cosines = self.rows.nearest(centers, active, True)
            self.nearest[active], self.others[active] = self._bounds(*cosines)
        self.changed = np.count_nonzero(labels != self.labels)
        self.labels, self.centers = labels, centers
        return labels

    def _bounds(self, cosines, seconds):
        """Upper bound on the nearest angle, lower bound on all others."""
        nearest = np.arccos(np.clip(cosines - self.margin, -1, 1))
        return nearest, np.arccos(np.clip(seconds + self.margin, -1, 1))

    def _undecided(self, centers):
        """Rows that need new products; None if too many to bother."""
        turns = _angles_between(self.centers, centers)
        largest = turns.argmax()
        others = np.full_like(turns, turns[largest])
        others[largest] = np.delete(turns, largest).max(initial=0)
        self.nearest += turns[self.labels]
        self.others -= others[self.labels]
        active = np.flatnonzero(self.nearest >= self.others)
        if 2 * len(active) <= len(self.labels):
            return active
        self.nearest = self.others = None
        self.patience *= 2
        self.pause = self.patience
        return None


def _relocate(rows, weight, labels, cosines, mass):
    """Give every empty cluster the row that is farthest from its own centre.

    Parameters
    ----------
    labels, cosines : ndarray of shape (N,)
        Nearest centre of each row and the cosine with it.
    mass : ndarray of shape (K,)
        Total weight of each cluster, 0 for the empty ones.

    Returns
    -------
    labels : ndarray of shape (N,)
        A copy in which those rows have moved.
    """
    empty = np.flatnonzero(mass == 0)
    costs = np.where((weight > 0) & rows.nonzero, 1 - cosines, 0)
    farthest = np.argsort(-costs, kind="stable")[: len(empty)]
    noise = 4 * np.sqrt(rows.shape[1]) * np.finfo(rows.dtype).eps
    farthest = farthest[costs[farthest] > noise]  # a row at its centre stays
    labels = labels.copy()
    labels[farthest] = empty[: len(farthest)]
    return labels


def _directions(sums, mass, previous):
    """Scale sums to unit norm: the optimal centres for given labels.

    A cluster without weight, or whose rows cancel, has no direction and keeps
    its previous centre, which is as good as any other.
    """
    norms = np.linalg.norm(sums, axis=1)
    clear = norms > np.finfo(previous.dtype).eps * mass
    centers = previous.copy()
    centers[clear] = sums[clear] / norms[clear, np.newaxis]
    return centers


def _updated_sums(rows, weight, sums, old, new):
    """Return the sums for the labels `new`, given those for the labels `old`."""
    n_clusters = len(sums)
    moved = np.flatnonzero(old != new)
    if 4 * len(moved) > len(new):
        return rows.sums(weight, new, n_clusters)
    if len(moved) == 0:
        return sums
    gained = rows.sums(weight, new[moved], n_clusters, moved)
    return sums + gained - rows.sums(weight, old[moved], n_clusters, moved)


def _lloyd(rows, weight, centers, max_iter, tol, verbose):
    """Alternate nearest centres and optimal centres from one start.

    Returns
    -------
    labels : ndarray of shape (N,)
        Nearest centres, to `centers`.
    inertia : float
    centers : ndarray of shape (K, D)
    sums : ndarray of shape (K, D)
        Weighted sums that the centres are the directions of.
    n_iter : int
    """
    n_clusters = len(centers)
    live = weight * rows.nonzero
    sums = np.zeros(centers.shape)
    members = np.full(rows.shape[0], -1, dtype=np.int32)  # whom the sums count where
    assignment = _Assignment(rows)
    for n_iter in range(1, max_iter + 1):
        labels = assignment.update(centers)
        mass = np.bincount(labels, live, minlength=n_clusters)
        if not mass.all():
            _, cosines = rows.nearest(centers)
            labels = _relocate(rows, weight, labels, cosines, mass)
            mass = np.bincount(labels, live, minlength=n_clusters)
        if np.array_equal(labels, members):
            reason = "no label changes"
            break
        sums = _updated_sums(rows, weight, sums, members, labels)
        members = labels
        previous, centers = centers, _directions(sums, mass, centers)
        if verbose:
            inertia = weight.sum() - np.vdot(centers, sums)
            print(f"Iteration {n_iter}, inertia {inertia:.6g}.")
        # As in KMeans, tol is relative to the variance of the (unit) rows.
        mean = sums.sum(axis=0) / max(live.sum(), np.finfo(np.float64).tiny)
        variance = max(1 - mean @ mean, 0) / rows.shape[1]
        if np.square(centers - previous).sum() <= tol * variance:
            reason = "the centres move less than the tolerance"
            break
    else:
        reason = "`max_iter` is reached"
    if verbose:
        print(f"Stopped at iteration {n_iter}: {reason}.")
    # Once more with every product, so that labels are what predict gives.
    labels, cosines = rows.nearest(centers)
    return labels, _inertia(weight, cosines), centers, sums, n_iter


def _inertia(weight, cosines):
    return float(weight @ np.maximum(1 - cosines, 0))


# ----------------------------------------------------------------------------
# The estimator
# ----------------------------------------------------------------------------


class SphericalKMeans(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator
):
    r"""K-means on the unit sphere: rows are compared by the cosine of their angle.

    The length of a row plays no part. Text (TF-IDF) and the embeddings of
    contrastive learning, which live on a sphere, are what it is made for; on the
    embeddings of MoCo it is the second stage of the two-stage baseline of MiCE.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters, K.

    init : {"k-means++", "random"}, callable or array-like of shape \
            (n_clusters, n_features), default="k-means++"
        How the first centres are found:

        - "k-means++": greedy k-means++ [3]_ by cosine distance;
        - "random": `n_clusters` different rows;
        - array-like: these, scaled to unit norm;
        - callable: what ``init(X, n_clusters, random_state=random_state)``
          returns, scaled to unit norm.

        The two strings use `sample_weight`, and draw the same rows whatever the
        order of X and whether a row is repeated or weighted.

    n_init : "auto" or int, default="auto"
        Number of starts; the one with the lowest inertia is kept. "auto" is 10 for
        `init="random"` or a callable and 1 for "k-means++". An array is one start.

    max_iter : int, default=300
        Most iterations of one start.

    tol : float, default=1e-4
        A start ends when the summed squared movement of the centres is at most
        `tol` times the mean variance of the features of the unit rows, or when no
        label changes.

    verbose : int, default=0
        Whether to print the inertia of each iteration.

    random_state : int, RandomState instance or None, default=None
        Determines the seeding; an int makes it reproducible.

    copy_x : bool, default=True
        Accepted so that the parameters are those of
        :class:`sklearn.cluster.KMeans`. X is never written to, with either value,
        and never copied in order to scale it.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        Unit-norm centres.

    labels_ : ndarray of shape (n_samples,)
        Label of each training row, equal to ``predict(X)``.

    inertia_ : float
        Sum over the rows of 1 - cosine with the nearest centre, weighted by
        `sample_weight`.

    n_iter_ : int
        Iterations of the best start.

    n_steps_ : int
        Number of calls of `partial_fit`, once it has been called.

    n_features_in_ : int
        Number of features seen during fit.

    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, where X has string column names.

    See Also
    --------
    sklearn.cluster.KMeans : The same by Euclidean distance.

    Notes
    -----
    With unit rows :math:`\mathbf{v}_n` and weights :math:`w_n` each iteration sets

    .. math::

        \hat z_n = \arg\max_k \mathbf{v}_n^\top \boldsymbol{\mu}_k, \qquad
        \boldsymbol{\mu}_k \propto \sum_{n: \hat z_n = k} w_n \mathbf{v}_n, \qquad
        \|\boldsymbol{\mu}_k\| = 1,

    neither of which can increase the inertia
    :math:`\sum_n w_n (1 - \mathbf{v}_n^\top \boldsymbol{\mu}_{\hat z_n})` [1]_.
    The second is the update of the expert prototypes of MiCE (equation 13), which
    is one iteration of this algorithm on the teacher embeddings under assumptions
    A1 to A4 (Theorem 4 of [2]_).

    A zero row has cosine 0 with every centre and hence cost 1; it gets label 0 and
    moves no centre. An empty cluster takes the row that is farthest from its
    centre. CSR matrices are used as they are; other sparse formats are converted.
    In late iterations, rows whose label cannot change are skipped [4]_.

    Work is spread over as many threads as the BLAS library has
    (``OPENBLAS_NUM_THREADS`` or threadpoolctl set them).

    References
    ----------
    .. [1] Dhillon and Modha, "Concept Decompositions for Large Sparse Text Data
       Using Clustering", Machine Learning 42, 2001.
    .. [2] Tsai, Li and Zhu, "MiCE: Mixture of Contrastive Experts for Unsupervised
       Image Clustering", ICLR 2021.
    .. [3] Arthur and Vassilvitskii, "k-means++: The Advantages of Careful Seeding",
       SODA 2007.
    .. [4] Schubert, Lang and Feher, "Accelerating Spherical k-Means", SISAP 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from sk_mice import SphericalKMeans
    >>> X = np.array([[1, 0], [5, 1], [9, 2], [0, 1], [1, 4], [1, 30]])
    >>> skm = SphericalKMeans(n_clusters=2, random_state=0).fit(X)
    >>> bool(skm.labels_[0] == skm.labels_[1] == skm.labels_[2] != skm.labels_[3])
    True
    >>> np.linalg.norm(skm.cluster_centers_, axis=1)
    array([1., 1.])
    >>> bool(skm.predict([[100, 1]])[0] == skm.labels_[0])
    True
    """

    _parameter_constraints: dict = {
        "n_clusters": [Interval(Integral, 1, None, closed="left")],
        "init": [StrOptions({"k-means++", "random"}), callable, "array-like"],
        "n_init": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
        "copy_x": ["boolean"],
    }

    def __init__(
        self,
        n_clusters=8,
        *,
        init="k-means++",
        n_init="auto",
        max_iter=300,
        tol=1e-4,
        verbose=0,
        random_state=None,
        copy_x=True,
    ):
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.random_state = random_state
        self.copy_x = copy_x

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, sample_weight=None):
        """Cluster the rows of X.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to cluster; their norms do not matter. float32 is computed in
            float32, anything else in float64.

        y : Ignored
            Present for the API's sake.

        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights of the rows; None gives each the weight 1.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If X has fewer rows than clusters, if a weight is negative or all are
            zero, or if the given initial centres have the wrong shape or a zero
            row.

        Warns
        -----
        UserWarning
            If rows are zero; the warning counts them.
        ConvergenceWarning
            If fewer distinct clusters than `n_clusters` were found.

        Examples
        --------
        >>> from sk_mice import SphericalKMeans
        >>> SphericalKMeans(2, random_state=0).fit([[1, 0], [2, 0], [0, 3]]).inertia_
        0.0
        """
        X = self._validate(X, reset=True)
        weight = self._check_weight(sample_weight, X)
        self._check_enough_rows(X)
        random_state = check_random_state(self.random_state)
        with self._unit_rows(X) as rows:
            _warn_of_zero_rows(rows)
            best = None
            for _ in range(self._n_starts()):
                centers = self._first_centers(rows, weight, random_state)
                run = _lloyd(
                    rows, weight, centers, self.max_iter, self.tol, self.verbose
                )
                # Not for a rounding error: the same clusters may come in any order.
                if best is None or run[1] < best[1] * (1 - 1e-6):
                    best = run
        self.labels_, self.inertia_, self.cluster_centers_, self._sums = best[:4]
        self.n_iter_ = best[4]
        self._warn_of_missing_clusters()
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y=None, sample_weight=None):
        """Update the centres with one batch, for data larger than memory.

        The centres are the directions of the weighted sums of all unit rows seen
        so far, each counted in the cluster that was nearest when it came. The
        first call chooses the initial centres from its batch as `fit` does; after
        `fit`, the sums continue from those of the last fit.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The batch; the first one needs at least `n_clusters` rows.

        y : Ignored
            Present for the API's sake.

        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights of the rows; None gives each the weight 1.

        Returns
        -------
        self : object
            The updated estimator. `labels_` and `inertia_` are those of the batch
            under the updated centres.

        Raises
        ------
        ValueError
            As for `fit`.

        Examples
        --------
        >>> import numpy as np
        >>> from sk_mice import SphericalKMeans
        >>> skm = SphericalKMeans(2, random_state=0)
        >>> for batch in np.split(np.eye(2)[[0, 1, 0, 1, 1, 0]], 3):
        ...     skm = skm.partial_fit(batch)
        >>> skm.n_steps_, skm.inertia_
        (3, 0.0)
        """
        first = not hasattr(self, "cluster_centers_")
        X = self._validate(X, reset=first)
        weight = self._check_weight(sample_weight, X)
        with self._unit_rows(X) as rows:
            _warn_of_zero_rows(rows)
            if first:
                self._check_enough_rows(X)
                random_state = check_random_state(self.random_state)
                centers = self._first_centers(rows, weight, random_state)
                self._sums = np.zeros(centers.shape)
            else:
                centers = self.cluster_centers_
            self.cluster_centers_ = self._absorb(rows, weight, centers)
            self.labels_, cosines = rows.nearest(self.cluster_centers_)
        self.inertia_ = _inertia(weight, cosines)
        self.n_steps_ = getattr(self, "n_steps_", 0) + 1
        return self

    def fit_predict(self, X, y=None, sample_weight=None):
        """Cluster the rows of X and return their labels.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to cluster.

        y : Ignored
            Present for the API's sake.

        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights of the rows; None gives each the weight 1.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Label of each row.

        Examples
        --------
        >>> from sk_mice import SphericalKMeans
        >>> labels = SphericalKMeans(2).fit_predict([[1, 0], [2, 0], [0, 3]])
        >>> bool(labels[0] == labels[1] != labels[2])
        True
        """
        return self.fit(X, sample_weight=sample_weight).labels_

    def fit_transform(self, X, y=None, sample_weight=None):
        """Cluster the rows of X and return their cosine distances to the centres.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to cluster.

        y : Ignored
            Present for the API's sake.

        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights of the rows; None gives each the weight 1.

        Returns
        -------
        X_new : ndarray of shape (n_samples, n_clusters)
            1 - cosine.

        Examples
        --------
        >>> from sk_mice import SphericalKMeans
        >>> SphericalKMeans(1).fit_transform([[1, 0], [5, 0]])
        array([[0.],
               [0.]])
        """
        return self.fit(X, sample_weight=sample_weight).transform(X)

    def predict(self, X):
        """Nearest centre of each row.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows of any norm.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Index of the centre with the largest cosine; 0 for a zero row.

        Examples
        --------
        >>> import numpy as np
        >>> from sk_mice import SphericalKMeans
        >>> skm = SphericalKMeans(2, init=np.eye(2)).fit([[1, 0], [0, 1]])
        >>> skm.predict([[3, 1], [1, 9]])
        array([0, 1], dtype=int32)
        """
        check_is_fitted(self)
        with self._unit_rows(self._validate(X)) as rows:
            return rows.nearest(self.cluster_centers_)[0]

    def transform(self, X):
        """Cosine distances to the centres.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows of any norm.

        Returns
        -------
        X_new : ndarray of shape (n_samples, n_clusters)
            1 - cosine, between 0 and 2; 1 for a zero row.

        Examples
        --------
        >>> import numpy as np
        >>> from sk_mice import SphericalKMeans
        >>> skm = SphericalKMeans(2, init=np.eye(2)).fit([[1, 0], [0, 1]])
        >>> skm.transform([[3, 4], [-2, 0]])
        array([[0.4, 0.2],
               [2. , 1. ]])
        """
        check_is_fitted(self)
        with self._unit_rows(self._validate(X)) as rows:
            cosines = rows.cosines(self.cluster_centers_)
        np.subtract(1, cosines, out=cosines)
        return np.clip(cosines, 0, 2, out=cosines)

    def score(self, X, y=None, sample_weight=None):
        """Negative inertia of X: larger is better.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows of any norm.

        y : Ignored
            Present for the API's sake.

        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights of the rows; None gives each the weight 1.

        Returns
        -------
        score : float
            Minus the weighted sum of 1 - cosine with the nearest centre.

        Examples
        --------
        >>> import numpy as np
        >>> from sk_mice import SphericalKMeans
        >>> skm = SphericalKMeans(2, init=np.eye(2)).fit([[1, 0], [0, 1]])
        >>> round(skm.score([[3, 4], [1, 0]]), 6)
        -0.2
        """
        check_is_fitted(self)
        X = self._validate(X)
        weight = self._check_weight(sample_weight, X)
        with self._unit_rows(X) as rows:
            return -_inertia(weight, rows.nearest(self.cluster_centers_)[1])

    def _validate(self, X, reset=False):
        return validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            order="C",
        )

    def _check_weight(self, sample_weight, X):
        if sample_weight is not None and not np.asarray(sample_weight).any():
            raise ValueError(
                "`sample_weight` must have a positive entry; all are zero."
            )
        # float64 also for float32 data: these are summed over all rows.
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
        if weight.min() < 0:
            raise ValueError(
                f"`sample_weight` must not be negative; got {weight.min():g}."
            )
        return weight

    def _check_enough_rows(self, X):
        if X.shape[0] < self.n_clusters:
            raise ValueError(
                "`n_clusters` must be at most the number of rows of X; got "
                f"n_clusters={self.n_clusters} and n_samples={X.shape[0]}."
            )

    @contextmanager
    def _unit_rows(self, X):
        n_values = X.nnz if sparse.issparse(X) else X.size
        with _block_runner(n_values * self.n_clusters) as run:
            yield _UnitRows(X, run)

    def _n_starts(self):
        by_name = isinstance(self.init, str)
        if not (by_name or callable(self.init)):
            return 1  # the same centres would give the same clusters again
        if self.n_init != "auto":
            return self.n_init
        return 1 if by_name and self.init == "k-means++" else 10

    def _first_centers(self, rows, weight, random_state):
        if isinstance(self.init, str):
            return _seeds(rows, weight, self.init, self.n_clusters, random_state)
        centers = self.init
        if callable(centers):
            centers = centers(rows.X, self.n_clusters, random_state=random_state)
        if sparse.issparse(centers):
            centers = centers.toarray()
        centers = check_array(centers, dtype=rows.dtype, input_name="init")
        expected = (self.n_clusters, rows.shape[1])
        if centers.shape != expected:
            raise ValueError(
                f"`init` must give centres of shape {expected} (n_clusters, "
                f"n_features); got {centers.shape}."
            )
        directions = _UnitRows(centers)
        if not directions.nonzero.all():
            raise ValueError(
                "`init` must give centres that are not zero; got zero in row "
                f"{directions.nonzero.argmin()}."
            )
        return directions.dense(np.arange(self.n_clusters))

    def _absorb(self, rows, weight, centers):
        """Add a batch to the sums; return the centres that follow."""
        labels, cosines = rows.nearest(centers)
        live = weight * rows.nonzero
        # A cluster is empty if no batch has brought it a row.
        mass = np.bincount(labels, live, minlength=len(centers))
        mass += np.linalg.norm(self._sums, axis=1)
        if not mass.all():
            labels = _relocate(rows, weight, labels, cosines, mass)
        self._sums += rows.sums(weight, labels, len(centers))
        return _directions(self._sums, mass, centers)

    def _warn_of_missing_clusters(self):
        n_found = len(np.unique(self.labels_))
        if n_found < self.n_clusters:
            warnings.warn(
                f"Number of distinct clusters ({n_found}) found smaller than "
                f"n_clusters ({self.n_clusters}). Possibly due to duplicate "
                "directions in X.",
                ConvergenceWarning,
                stacklevel=4,
            )

    @property
    def _n_features_out(self):
        return self.cluster_centers_.shape[0]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _warn_of_zero_rows(rows):
    n_zero = np.count_nonzero(~rows.nonzero)
    if n_zero:
        warnings.warn(
            f"{n_zero} of {rows.shape[0]} rows of X are zero: they have no direction, "
            "cosine 0 with every centre and cost 1.",
            UserWarning,
            stacklevel=4,
        )
