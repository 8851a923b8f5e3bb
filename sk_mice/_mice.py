"""MiCE: mixture of contrastive experts, as a clusterer."""

import warnings
from itertools import combinations
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.base import ClusterMixin, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, column_or_1d

from ._contrastive import ContrastiveEstimator, Run, draw_seeds, infer
from ._engine import objective
from ._engine.model import gating_prototypes
from ._spherical_kmeans import SphericalKMeans


KMEANS_RESTARTS = 20  # of the first stage's partition; they cost next to nothing
HELD_SHARE = 0.1  # of the epochs of EM, in which the gate learns the first partition


class MiCEClustering(ClusterMixin, ContrastiveEstimator):
    """DOC"""

    _parameter_constraints: dict = {
        **ContrastiveEstimator._parameter_constraints,
        "n_clusters": [Interval(Integral, 1, None, closed="left")],
        "kappa": [Interval(Real, 0, None, closed="neither")],
        "gating_prototypes": [StrOptions({"auto", "simplex", "repelled"})],
        "init": [StrOptions({"two-stage", "random"})],
        "init_share": [Interval(Real, 0, 1, closed="neither")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_clusters=8,
        *,
        backbone="auto",
        embedding_dim=128,
        tau=1.0,
        kappa=1.0,
        gating_prototypes="auto",
        queue_size=16384,
        teacher_momentum=0.99,
        augmentation="moco",
        flip=True,
        crop_scale="auto",
        init="two-stage",
        init_share=0.75,
        n_init=1,
        max_epochs=200,
        batch_size=256,
        lr=0.3,
        weight_decay=1e-4,
        schedule="cosine",
        warmup=0.05,
        image_shape=None,
        layout="auto",
        value_range="auto",
        device="auto",
        precision="auto",
        callbacks=None,
        warm_start=False,
        verbose=0,
        random_state=None,
    ):
        self.n_clusters = n_clusters
        self.backbone = backbone
        self.embedding_dim = embedding_dim
        self.tau = tau
        self.kappa = kappa
        self.gating_prototypes = gating_prototypes
        self.queue_size = queue_size
        self.teacher_momentum = teacher_momentum
        self.augmentation = augmentation
        self.flip = flip
        self.crop_scale = crop_scale
        self.init = init
        self.init_share = init_share
        self.n_init = n_init
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.warmup = warmup
        self.image_shape = image_shape
        self.layout = layout
        self.value_range = value_range
        self.device = device
        self.precision = precision
        self.callbacks = callbacks
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    # -------------------------------------------------------------------------- fit

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, *, init_labels=None):
        """Cluster the samples by EM.

        Parameters
        ----------
        X : array-like
            Images of shape (N, H, W), (N, H, W, C) or (N, C, H, W) with C of 1, 3 or
            4, or vectors (N, features), or flattened images if `image_shape` is set;
            finite numbers of any type. N >= 2. A memory map is not copied.
        y : Ignored
            Present for API consistency by convention.
        init_labels : array-like of int, shape (N,), default=None
            A partition, with labels from 0 to `n_clusters` - 1, to start from instead
            of `init`.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If X or a parameter is invalid, before training.
        """
        X = self._check_fit_X(X)
        if self.n_clusters > len(X):
            raise ValueError(
                f"`n_clusters` must be at most n_samples = {len(X)}; got "
                f"{self.n_clusters}."
            )
        init_labels = self._check_init_labels(init_labels, len(X))
        omega = gating_prototypes(
            self.gating_prototypes, self.n_clusters, self.embedding_dim
        )
        seeds = draw_seeds(self.random_state, 1 if self._continues else self.n_init)
        partitions = []
        self.elbo_ = -np.inf
        with self._setup(X, len(seeds) * self.max_epochs) as setup:
            for seed in seeds:
                run = self._run(setup, seed, omega, init_labels)
                (joint,) = infer(run.model, setup.views, setup.samples, "joint")
                partitions.append(joint.argmax(axis=1))
                elbo = _mean_log_evidence(joint)
                if elbo > self.elbo_:  # the best restart is kept, as in a last E-step
                    self._keep(run)
                    self.elbo_, self.labels_ = elbo, partitions[-1]
        self._summarise(partitions)
        return self

    def _check_init_labels(self, labels, n_samples):
        if labels is None:
            return None
        labels = column_or_1d(labels)
        if (
            len(labels) != n_samples
            or not np.issubdtype(labels.dtype, np.integer)
            or labels.min() < 0
            or labels.max() >= self.n_clusters
        ):
            raise ValueError(
                f"`init_labels` must be {n_samples} integers from 0 to n_clusters - 1 = "
                f"{self.n_clusters - 1}; got {len(labels)} of type {labels.dtype} from "
                f"{labels.min()} to {labels.max()}."
            )
        return labels.astype(np.int64)

    def _run(self, setup, seed, omega, init_labels) -> Run:
        """One fit from one seed, in the stages that `init` asks for."""
        if self._continues:
            model = self._copy_of_fitted_model(setup)
            model.kappa = self.kappa
            return Run(model, self._train(model, setup, seed, self.max_epochs, "em"))
        model = self._build(
            setup, seed, n_experts=self.n_clusters, omega=omega, kappa=self.kappa
        )
        history = []
        if init_labels is None and self.init == "two-stage":
            history, init_labels = self._first_stage(setup, seed, model)
        held = {}
        if init_labels is not None:
            self._start_at(model, setup, init_labels)
            held = {
                "held_labels": torch.from_numpy(init_labels),
                "held_epochs": round(HELD_SHARE * (self.max_epochs - len(history))),
            }
        n_epochs = self.max_epochs - len(history)
        history += self._train(model, setup, seed + 1, n_epochs, "em", **held)
        return Run(model, history, init_labels)

    def _first_stage(self, setup, seed, model):
        """MoCo, copied into the model, and a partition of its features.

        MoCo is the special case A3 to A5 of the model (Theorem 3), so EM goes on from
        it without a break. The backbone's features hold the classes better than the
        embeddings, whose objective has no use for most of what tells classes apart.
        """
        n_epochs = round(self.init_share * self.max_epochs)
        n_epochs = min(n_epochs, self.max_epochs - 1)
        moco = self._build_moco(setup, seed)
        history = []
        if n_epochs:
            history = self._train(moco, setup, seed, n_epochs, "moco")
        model.start_from(moco)
        (features,) = infer(moco, setup.views, setup.samples, "features")
        kmeans = SphericalKMeans(
            self.n_clusters, n_init=KMEANS_RESTARTS, random_state=seed
        ).fit(features)
        return history, kmeans.labels_.astype(np.int64)

    def _start_at(self, model, setup, labels):
        """Set the expert prototypes to the partition's mean directions."""
        (v,) = infer(model, setup.views, setup.samples, "teacher")
        sums = torch.zeros(v.shape[1:])  # (K, D)
        own = torch.from_numpy(v[np.arange(len(v)), labels])
        sums.index_add_(0, torch.from_numpy(labels), own)
        mu = model.expert_prototypes
        mu.data.copy_(objective.prototype_update(sums.to(mu.device), mu.data))

    def _summarise(self, partitions) -> None:
        """Attributes that follow from the fit, and the warning for empty clusters."""
        if len(partitions) > 1:
            scores = [adjusted_rand_score(a, b) for a, b in combinations(partitions, 2)]
            self.stability_ = float(np.mean(scores))
        else:
            self.__dict__.pop("stability_", None)
        self.cluster_sizes_ = np.bincount(self.labels_, minlength=self.n_clusters)
        n_empty = int((self.cluster_sizes_ == 0).sum())
        if n_empty:
            warnings.warn(
                f"{n_empty} of {self.n_clusters} clusters are empty. Try fewer "
                "clusters, more epochs (`max_epochs`), another start (`init`, `n_init`, "
                "`random_state`) or a lower `lr`.",
                ConvergenceWarning,
                stacklevel=2,
            )

    def _keep(self, run: Run) -> None:
        super()._keep(run)
        self.init_labels_ = run.init_labels

    # ------------------------------------------------------------------- prediction

    def predict(self, X):
        """Most probable expert of each sample.

        Parameters
        ----------
        X : array-like
            Samples of the shape seen in `fit`.

        Returns
        -------
        ndarray of shape (N,), int
            Cluster labels from 0 to K - 1; equal to `labels_` on the training samples.
        """
        (joint,) = self._infer(X, "joint")
        return joint.argmax(axis=1)

    def predict_proba(self, X):
        """Posterior q(z | x, y) over the experts (equation 10).

        Parameters
        ----------
        X : array-like
            Samples of the shape seen in `fit`.

        Returns
        -------
        ndarray of shape (N, K), float32
            Rows sum to 1.
        """
        (joint,) = self._infer(X, "joint")
        return objective.posterior(torch.from_numpy(joint)).numpy()

    def transform(self, X):
        """Gating embeddings g (equation 4).

        Parameters
        ----------
        X : array-like
            Samples of the shape seen in `fit`.

        Returns
        -------
        ndarray of shape (N, D), float32
            Unit vectors.
        """
        (g,) = self._infer(X, "gating")
        return g

    def score(self, X, y=None):
        """Mean ELBO of the samples, in nats.

        At the exact posterior the ELBO is log p(y | x), the log-probability of telling
        a sample apart from those in the queue. Comparable only between models with the
        same `tau`, `kappa` and queue size: a search that maximises it over the
        temperatures rewards small ones.

        Parameters
        ----------
        X : array-like
            Samples of the shape seen in `fit`.
        y : Ignored
            Present for API consistency by convention.

        Returns
        -------
        float
        """
        (joint,) = self._infer(X, "joint")
        return _mean_log_evidence(joint)

    @property
    def gating_prototypes_(self):
        """Gating prototypes omega, ndarray of shape (K, D), unit norm."""
        check_is_fitted(self)
        return self._model.gating_prototypes.cpu().numpy()

    @property
    def expert_prototypes_(self):
        """Expert prototypes mu, ndarray of shape (K, D), unit norm."""
        check_is_fitted(self)
        return self._model.prototypes().detach().cpu().numpy()


def _mean_log_evidence(joint) -> float:
    evidence = objective.log_evidence(torch.from_numpy(joint))
    return float(evidence.double().mean())

