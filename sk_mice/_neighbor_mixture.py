"""A mixture whose experts predict neighbours, for vectors such as a network's."""

import math
from typing import Self

import numpy as np
import torch
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClusterMixin, _fit_context
from sklearn.utils import check_random_state

from ._busy_cores import BusyCores
from ._check_rows import check_rows
from ._classification_em import (
    COMPONENTS_PER_CLUSTER,
    StartingPartition,
    warn_of_empty_clusters,
)
from ._constraints import RANDOM_STATE, SMALLEST_TEMPERATURE, Count, Number
from ._directions import Centered, by_blocks, directions
from ._engine.ambient import OwnDraws, own_settings, spawn_seed
from ._engine.nearest import nearest_neighbors, warn_of_recall
from ._engine.neighbor_gate import LABEL_EPOCHS, NeighborGate, train
from ._fitting import fitting
from ._progress_bar import tqdm


class NeighborMixture(Centered, ClusterMixin, BaseEstimator):
    r"""Mixture of experts that predict neighbours, for feature vectors.

    It clusters the features of a pretrained network, or other vectors whose nearest
    neighbours mostly belong to the same class. As in `MiCEClustering`, a gate with a
    prototype for each cluster assigns vectors to experts. An expert predicts a
    neighbour, and only by the neighbour's cluster.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters, K.
    n_neighbors : int, default=10
        Number of nearest neighbours of a row, one of which is drawn in each epoch; at
        most N - 1 are used. It should be less than the size of the smallest cluster.
    kappa : float, default=0.1
        Temperature of the gate, at least 0.001.
    center : bool, default=True
        Whether directions are those from the mean of the rows, in the space of their
        first principal components (64, or 3 K if that is more), instead of from the
        origin in the space of all features. The features of pretrained networks are
        mostly positive, so that all of them have nearly the same direction from the
        origin. Set it to False for pixels and for MoCo's features, in which zero has a
        meaning, and if one cluster has most of the rows or lies in the middle of the
        others: such a cluster lies at the mean, and has no direction.
    max_epochs : int, default=50
        Epochs of EM, each over all rows. They follow ten epochs in which the gate
        learns the partition that EM starts from.
    random_state : int, RandomState instance or None, default=None
        Determines the partition, the gate's first weights, the order of the rows and
        the neighbours; an int makes the clusters reproducible.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Label of each training row, equal to ``predict(X)``.
    init_labels_ : ndarray of shape (n_samples,)
        Labels of the partition that EM starts from.
    elbo_ : float
        Mean ELBO over the pairs of the last epoch, in nats. It is about log K if
        clusters are of equal size and all neighbours are in the same cluster.
    neighbors_recall_ : float
        Share of the nearest neighbours that the search found.
    n_iter_ : int
        Number of epochs of EM.
    hidden_weights_ : ndarray of shape (n_hidden, n_axes)
        First layer of the gate, before a ReLU; ``hidden_bias_`` is added. Its input is
        the rows, or with `center` ``axes_ @ (row - origin_)``, at unit length.
    hidden_bias_ : ndarray of shape (n_hidden,)
    embedding_weights_ : ndarray of shape (n_embedding, n_hidden)
        Second layer; ``embedding_bias_`` is added. Embeddings are normalised.
    embedding_bias_ : ndarray of shape (n_embedding,)
    gating_prototypes_ : ndarray of shape (n_clusters, n_embedding)
        Vectors of length 1 / kappa. Their products with an embedding are the logits of
        the gate.
    origin_ : ndarray of shape (n_features,)
        Mean of the training rows; only with `center`.
    axes_ : ndarray of shape (n_axes, n_features)
        Principal axes of the training rows; only with `center`, otherwise n_axes is
        n_features. A row is replaced by ``axes_ @ (row - origin_)``.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, where X has string column names.

    See Also
    --------
    ClassificationEM : The partition that EM starts from, in less time.
    sk_mice.features.PretrainedFeatures : Features of images.
    MiCEClustering : Learns from the images themselves; it also clusters vectors.

    Notes
    -----
    Let :math:`\mathbf{y}` be a neighbour of :math:`\mathbf{x}`, :math:`\pi_k` the gate
    and :math:`p_k` the mean of :math:`\pi_k` (in training, a moving average). In place
    of equation 5 of the paper [1]_, expert k predicts

    .. math::

        p(\mathbf{y} \mid \mathbf{x}, k) =
        p(\mathbf{y}) \frac{\pi_k(\mathbf{y})}{p_k}, \qquad
        p(\mathbf{y} \mid \mathbf{x}) =
        p(\mathbf{y}) \sum_k \frac{\pi_k(\mathbf{x}) \pi_k(\mathbf{y})}{p_k}.

    The posterior of a pair is proportional to the terms of the sum, and steps of EM
    raise the mean of the sum's logarithm, which is the ELBO at this posterior. The ELBO
    is largest if the gate is sure of each row, neighbours have the same cluster, and
    clusters are of equal size. TEMI [2]_ trains heads by a form of this objective with
    weights and an exponent. The neighbour's :math:`\pi_k` is that of a teacher, the
    moving average of the gate. The fitted model is the teacher.

    EM starts at a partition by `ClassificationEM`. From random weights it ends in poor
    optima.

    References
    ----------
    .. [1] T. W. Tsai, C. Li and J. Zhu, "MiCE: Mixture of Contrastive Experts for
       Unsupervised Image Clustering", ICLR 2021.
    .. [2] N. Adaloglou, F. Michels, H. Kalisch and M. Kollmann, "Exploring the Limits
       of Deep Image Clustering using Pretrained Models", BMVC 2023.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sk_mice import NeighborMixture
    >>> from sk_mice.metrics import clustering_accuracy_score
    >>> X, y = load_digits(return_X_y=True)
    >>> mixture = NeighborMixture(10, center=False, random_state=0).fit(X)
    >>> bool(clustering_accuracy_score(y, mixture.labels_) > 0.8)
    True
    >>> mixture.predict_proba(X[:5]).shape
    (5, 10)
    """

    labels_: np.ndarray  # once `fit` has found them
    _parameter_constraints: dict = {
        "n_clusters": [Count(1)],
        "n_neighbors": [Count(1)],
        "kappa": [Number(SMALLEST_TEMPERATURE, np.inf, closed="left")],
        "center": ["boolean"],
        "max_epochs": [Count(1)],
        "random_state": RANDOM_STATE,
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_clusters=8,
        *,
        n_neighbors=10,
        kappa=0.1,
        center=True,
        max_epochs=50,
        random_state=None,
        verbose=0,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_neighbors = n_neighbors
        self.kappa = kappa
        self.center = center
        self.max_epochs = max_epochs
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None) -> Self:
        """Cluster the rows of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to cluster; without `center`, their norms do not matter. float32 is
            computed in float32, anything else in float64. The gate is trained in
            float32.
        y : Ignored
            Present for API consistency by convention.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If X has fewer rows than clusters, or values that are not finite.

        Warns
        -----
        ConvergenceWarning
            If clusters are empty.
        UserWarning
            If X has more than 50,000 rows and the search for neighbours is slow or
            finds too few of them.
        """
        with fitting(self):
            X = check_rows(self, X, reset=True)
            seed = check_random_state(self.random_state).randint(2**31 - 1)
            self._fit_axes(X, COMPONENTS_PER_CLUSTER * self.n_clusters, seed)
            rows = self._rows(X)
            self._fit_gate(rows, seed)
            self.labels_ = self._assign(rows)
        warn_of_empty_clusters(self.labels_, self.n_clusters)
        return self

    def predict(self, X) -> np.ndarray:
        """Cluster that the gate gives each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to assign.

        Returns
        -------
        ndarray of shape (n_samples,), int
            Labels from 0 to K - 1.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError
            If X has a different number of features than in `fit`, or values that are
            not finite.
        """
        return self._assign(self._rows(check_rows(self, X)))

    def predict_proba(self, X) -> np.ndarray:
        """The gate: how likely each cluster is for each row.

        Training makes the gate sure of most rows. Its values rank rows, and are not the
        probability of being right.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to assign.

        Returns
        -------
        ndarray of shape (n_samples, n_clusters)
            Each row sums to 1.

        Raises
        ------
        NotFittedError, ValueError
            As in `predict`.
        """
        X = check_rows(self, X)
        logits = self._logits()
        with np.errstate(under="ignore"):
            return by_blocks(
                lambda rows: softmax(logits(rows), axis=1), self._rows(X), X.dtype
            )

    # ------------------------------------------------------------------------- parts

    def _rows(self, X):
        """Directions (N, A) as float32."""
        with np.errstate(under="ignore"):
            return by_blocks(directions, self._centered(X), np.float32)

    def _fit_gate(self, rows, seed):
        partition = StartingPartition(self.n_clusters, random_state=seed)
        self.init_labels_ = partition.fit_predict(rows)
        nearest, recall = nearest_neighbors(rows, self.n_neighbors, seed)
        self.neighbors_recall_ = recall
        warn_of_recall(recall)
        if not nearest.shape[1]:  # a single row
            nearest = np.arange(len(rows))[:, np.newaxis]
        n_epochs = LABEL_EPOCHS + self.max_epochs
        size = math.sqrt(rows.shape[1])  # length of rows whose values are about 1
        with own_settings():
            with OwnDraws(spawn_seed(seed, "gate")):
                gate = NeighborGate(rows.shape[1], self.n_clusters, self.kappa)
            busy = BusyCores()
            with tqdm(
                total=n_epochs, disable=not self.verbose, desc="clustering"
            ) as bar:

                def epoch_done():
                    bar.update()
                    busy.look()

                gate, self.elbo_ = train(
                    gate,
                    torch.from_numpy(rows * size),
                    torch.from_numpy(self.init_labels_),
                    torch.from_numpy(nearest),
                    self.max_epochs,
                    torch.Generator().manual_seed(spawn_seed(seed, "order")),
                    epoch_done,
                )
        arrays = {name: tensor.numpy() for name, tensor in gate.state_dict().items()}
        self.hidden_weights_ = size * arrays["hidden.weight"]
        self.hidden_bias_ = arrays["hidden.bias"]
        self.embedding_weights_ = arrays["output.weight"]
        self.embedding_bias_ = arrays["output.bias"]
        prototypes = arrays["prototypes"].astype(np.float64)
        self.gating_prototypes_ = directions(prototypes) / self.kappa
        self.n_iter_ = self.max_epochs

    def _assign(self, rows):
        logits = self._logits()
        return by_blocks(lambda some: logits(some).argmax(axis=1), rows, np.int64)

    def _logits(self):
        """A function of rows: their logits (B, K), in float64."""
        hidden_weights = self.hidden_weights_.T.astype(np.float64)
        embedding_weights = self.embedding_weights_.T.astype(np.float64)
        prototypes = self.gating_prototypes_.T.astype(np.float64)

        def logits(rows):
            hidden = rows @ hidden_weights + self.hidden_bias_
            np.maximum(hidden, 0, out=hidden)
            embeddings = hidden @ embedding_weights + self.embedding_bias_
            return directions(embeddings) @ prototypes

        return logits
