"""Spherical k-means: k-means on directions, by cosine similarity."""

from typing import Any, Self

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
    _fit_context,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import _check_sample_weight

from ._check_rows import check_rows, fitting_floats
from ._constraints import RANDOM_STATE, Count, Number
from ._cosine_kmeans import absorb, first_centers, lloyd, unit_rows
from ._engine.arrays import plain_array
from ._engine.warn import warn_user
from ._fitting import fitting

HEAVIEST = 1e140  # sample_weight, whose sums are squared


class SphericalKMeans(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator
):
    r"""K-means on the unit sphere: rows are compared by the cosine of their angle.

    The length of a row plays no part. This suits text (TF-IDF) and embeddings, such as
    those of contrastive learning. On the embeddings of `MoCo` it is the second stage of
    the two-stage baseline of the MiCE paper [2]_.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters, K.
    init : {"k-means++", "random"}, callable or array-like, default="k-means++"
        How the first centres are found:

        - "k-means++": greedy k-means++ [3]_ by cosine distance;
        - "random": `n_clusters` different rows;
        - array-like of shape (n_clusters, n_features): these, scaled to unit norm;
        - callable: what ``init(X, n_clusters, random_state=random_state)``
          returns, scaled to unit norm.

        The two strings use `sample_weight`, and draw the same rows whatever the
        order of X and whether a row is repeated or weighted.
    n_init : "auto" or int, default="auto"
        Number of starts; the one with the lowest inertia is kept. "auto" is 10 for
        `init="random"` or a callable and 1 for "k-means++". An array is one start.
    max_iter : int, default=300
        Maximum number of iterations of one start.
    tol : float, default=1e-4
        A start ends when the summed squared movement of the centres is at most
        `tol` times the mean variance of the features of the unit rows, or when no
        label changes.
    verbose : int, default=0
        Whether to print the inertia of each iteration.
    random_state : int, RandomState instance or None, default=None
        Determines the first centres; an int makes the clusters reproducible. The draws
        also depend on the lengths of the rows.
    copy_x : bool, default=True
        Has no effect: X is never written to. It is here because
        :class:`sklearn.cluster.KMeans` has it.

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
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
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
    moves no centre. An empty cluster takes the row that is farthest from its centre. If
    X has fewer directions than clusters, some centres are equal, and rounding may
    decide between them. It may also decide if all rows have nearly one direction, as
    with a large common offset: subtract the mean of such rows first. CSR matrices are
    used as they are; other sparse formats are converted. In late iterations, rows whose
    label cannot change are skipped [4]_.

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

    labels_: np.ndarray  # once `fit` has found them
    _parameter_constraints: dict = {
        "n_clusters": [Count(1)],
        "init": [StrOptions({"k-means++", "random"}), callable, "array-like"],
        "n_init": [StrOptions({"auto"}), Count(1)],
        "max_iter": [Count(1)],
        "tol": [Number(0, None, closed="left")],
        "verbose": ["verbose"],
        "random_state": RANDOM_STATE,
        "copy_x": ["boolean"],
    }

    def __init__(
        self,
        n_clusters=8,
        *,
        init: Any = "k-means++",
        n_init: Any = "auto",
        max_iter=300,
        tol=1e-4,
        verbose=0,
        random_state=None,
        copy_x=True,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.random_state = random_state
        self.copy_x = copy_x

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, sample_weight=None) -> Self:
        """Cluster the rows of X.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to cluster; their norms do not matter. float32 is computed in
            float32, anything else in float64.
        y : Ignored
            Present for API consistency by convention.
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
        """
        with fitting(self):
            X = check_rows(self, X, reset=True, accept_sparse="csr")
            weight = self._check_weight(sample_weight, X)
            random_state = check_random_state(self.random_state)
            best = None
            with unit_rows(X, self.n_clusters, weight) as rows:
                for _ in range(self._n_starts()):
                    centers = first_centers(
                        rows, self.init, self.n_clusters, random_state
                    )
                    run = lloyd(rows, centers, self.max_iter, self.tol, self.verbose)
                    # Not for a rounding error: the same clusters may come in any order.
                    if best is None or run.inertia < best.inertia * (1 - 1e-6):
                        best = run
            self.labels_ = best.labels.astype(np.int64)
            self.inertia_, self.n_iter_ = best.inertia, best.n_iter
            self.cluster_centers_, self._sums = best.centers, best.sums
            self.__dict__.pop("n_steps_", None)  # an earlier `partial_fit` has set it
        _warn_of_zero_rows(rows.nonzero)
        self._warn_of_missing_clusters()
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y=None, sample_weight=None) -> Self:
        """Update the centres with one batch, for data larger than memory.

        The centres are the directions of the weighted sums of all unit rows seen
        so far, each counted in the cluster that was nearest when it came. The
        first call chooses the initial centres from its batch as one run of `fit`
        does; after `fit`, the sums continue from those of the last fit.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The batch; the first one needs at least `n_clusters` rows.
        y : Ignored
            Present for API consistency by convention.
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

        Warns
        -----
        UserWarning
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
        if not first and self.n_clusters != len(self.cluster_centers_):
            raise ValueError(
                f"`n_clusters` must be {len(self.cluster_centers_)}, as before, for "
                f"`partial_fit` to go on; got {self.n_clusters}."
            )
        with fitting(self):
            X = check_rows(self, X, reset=first, accept_sparse="csr")
            weight = self._check_weight(sample_weight, X)
            with unit_rows(X, self.n_clusters, weight) as rows:
                if first:
                    random_state = check_random_state(self.random_state)
                    centers = first_centers(
                        rows, self.init, self.n_clusters, random_state
                    )
                    sums = np.zeros(centers.shape)
                else:
                    centers, sums = self.cluster_centers_, self._sums
                self.cluster_centers_, self._sums = absorb(rows, centers, sums)
                labels, cosines = rows.nearest(self.cluster_centers_)
            self.labels_ = labels.astype(np.int64)
            self.inertia_ = rows.inertia(cosines)
            self.n_steps_ = getattr(self, "n_steps_", 0) + 1
        _warn_of_zero_rows(rows.nonzero)
        return self

    def predict(self, X) -> np.ndarray:
        """Nearest centre of each row.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows of any norm.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Index of the centre with the largest cosine; 0 for a zero row.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError
            If X has a different number of features than in `fit`, or values that are
            not finite.
        """
        X = check_rows(self, X, accept_sparse="csr")
        with unit_rows(X, len(self.cluster_centers_)) as rows:
            return rows.nearest(self.cluster_centers_)[0].astype(np.int64)

    def transform(self, X) -> Any:
        """Cosine distances to the centres.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows of any norm.

        Returns
        -------
        X_new : ndarray of shape (n_samples, n_clusters)
            1 - cosine, between 0 and 2; 1 for a zero row.

        Raises
        ------
        NotFittedError, ValueError
            As in `predict`.

        Examples
        --------
        >>> import numpy as np
        >>> from sk_mice import SphericalKMeans
        >>> skm = SphericalKMeans(2, init=np.eye(2)).fit([[1, 0], [0, 1]])
        >>> skm.transform([[3, 4], [-2, 0]])
        array([[0.4, 0.2],
               [2. , 1. ]])
        """
        X = check_rows(self, X, accept_sparse="csr")
        with unit_rows(X, len(self.cluster_centers_)) as rows:
            cosines = rows.cosines(self.cluster_centers_, order="F").T
        np.subtract(1, cosines, out=cosines)
        return np.clip(cosines, 0, 2, out=cosines)

    def score(self, X, y=None, sample_weight=None) -> float:
        """Negative inertia of X: larger is better.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows of any norm.
        y : Ignored
            Present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights of the rows; None gives each the weight 1.

        Returns
        -------
        score : float
            Minus the weighted sum of 1 - cosine with the nearest centre.

        Raises
        ------
        NotFittedError, ValueError
            As in `predict`, or if weights are negative or all zero.
        """
        X = check_rows(self, X, accept_sparse="csr")
        weight = self._check_weight(sample_weight, X)
        with unit_rows(X, len(self.cluster_centers_), weight) as rows:
            return -rows.inertia(rows.nearest(self.cluster_centers_)[1])

    def _check_weight(self, sample_weight, X):
        with fitting_floats("`sample_weight`"):
            given = plain_array(sample_weight, "`sample_weight`")
            if given is not None:
                values = np.asarray(given)
                if values.dtype.kind not in "buifO":
                    raise ValueError(
                        f"`sample_weight` must hold numbers; got {values.dtype}."
                    )
                if (values == 0).all():
                    raise ValueError(
                        "`sample_weight` must have a positive entry; all are zero."
                    )
            # float64 also for float32 data: these are summed over all rows.
            weight = _check_sample_weight(given, X, dtype=np.float64)
        if weight.min() < 0:
            raise ValueError(
                f"`sample_weight` must not be negative; got {weight.min():g}."
            )
        if not 1 / HEAVIEST <= weight.max() <= HEAVIEST:
            raise ValueError(
                f"The largest `sample_weight` must be from {1 / HEAVIEST:g} to "
                f"{HEAVIEST:g}; got {weight.max():g}."
            )
        return weight

    def _n_starts(self):
        by_name = isinstance(self.init, str)
        if not (by_name or callable(self.init)):
            return 1  # the same centres would give the same clusters again
        if self.n_init != "auto":
            return self.n_init
        return 1 if by_name and self.init == "k-means++" else 10

    def _warn_of_missing_clusters(self):
        n_found = np.count_nonzero(np.bincount(self.labels_))
        if n_found < self.n_clusters:
            warn_user(
                f"Number of distinct clusters ({n_found}) found smaller than "
                f"n_clusters ({self.n_clusters}). Possibly due to duplicate "
                "directions in X.",
                ConvergenceWarning,
            )

    @property
    def _n_features_out(self):
        return len(self.cluster_centers_)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _warn_of_zero_rows(nonzero):
    n_zero = np.count_nonzero(~nonzero)
    if n_zero:
        warn_user(
            f"{n_zero} of {len(nonzero)} rows of X are zero: they have no direction, "
            "cosine 0 with every centre and cost 1."
        )
