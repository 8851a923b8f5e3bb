"""MiCE: mixture of contrastive experts, as a clusterer."""

import math
from itertools import combinations
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClusterMixin, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, StrOptions, validate_params
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from ._base import STOPS, ContrastiveEstimator, moco_options
from ._constraints import SMALLEST_TEMPERATURE, Count, Number
from ._empty_clusters import fill_empty_clusters
from ._engine import objective
from ._engine.ambient import OwnDraws, own_settings
from ._engine.model import gating_prototypes
from ._engine.nearest import nearest_neighbors, shares_of_neighbors, warn_of_recall
from ._engine.neighbors import comparable_rows
from ._engine.views import OneRandomView
from ._engine.warn import warn_user
from ._start import checked_labels, start_at_labels, start_at_partition, try_clusterer

MOST_RESTARTS = 10**6
STEADY = 0.01  # largest share of samples that change their cluster at convergence


class MiCEClustering(ClusterMixin, ContrastiveEstimator):
    r"""Mixture of contrastive experts: clusters images, or vectors, without labels.

    A gating function softly splits the samples among K experts, each expert learns to
    tell its samples apart by contrast, and EM trains everything on one objective, the
    ELBO [1]_. The posterior over the experts is the clustering.

    Parameters
    ----------
    n_clusters : int, default=8
        K, the number of experts and of clusters.
    backbone : str, Backbone, nn.Module or callable, default="auto"
        The encoder: "mlp", "resnet-small" (for CPUs and small images), "resnet18",
        "resnet34", "resnet50"; an object of `sk_mice.backbones`, whose parameters a
        search can set; a module that maps (B, C, H, W) or (B, F) to features (B, F'),
        or a factory of one. Training starts from a module's weights, in a copy; the
        module itself does not change. "auto" is "mlp" for vectors, "resnet-small" for
        images on a CPU and "resnet18" for images on a GPU.
        `sk_mice.backbones.Pretrained` is a network with weights, and with the
        preprocessing that belongs to them.
    freeze : int or "all but last", default=None
        Which blocks of the backbone keep their weights and the statistics of their
        batch norms, as in a slice of a list: 3 freezes the first three, -2 all but the
        last two, and "all but last" is -1. None trains everything. Blocks are the
        children of the module that have weights, in the order in which the module
        defines them. If the module has only one such child, its children are the
        blocks. If exactly one child is a `Sequential` or a `ModuleList`, its children
        are blocks in its place; if there are several, each is a block, as are the four
        stages of a ResNet. Normalisation belongs to the block before it. Weights of the
        backbone outside of blocks are frozen, too; heads and prototypes never are.
    embedding_dim : int, default=128
        D, the dimension of all embeddings.
    tau : float, default=1.0
        Temperature of the experts (equation 6), at least 0.001.
    kappa : float, default=1.0
        Temperature of the gating function (equation 4), at least 0.001. ``math.inf``
        makes the gate uniform (Assumption A3); `transform` is then untrained.
    expert_heads : {"shared", "own"}, default="shared"
        Whether all experts share one output layer (Assumption A4), or each has its own,
        as in the paper. With a shared one and `tau` of at least 1/30, a step costs
        little more for 1,000 clusters than for 10.
    queue_size : int, default=16384
        V, the number of teacher embeddings that are kept as negatives, at most N.
    augmentation : str, object, callable or None, default="moco"
        How the three random views of a step are made: "moco", "simclr", or an
        `ImageAugmentation` or `VectorAugmentation` of `sk_mice.augmentation`, whose
        parameters a search can set. None uses the plain samples. A callable gets all
        views of a batch, images as (n_views * B, C, H, W) in [0, 1], and a generator.
    n_neighbors : int, default=0
        If not 0, each view of a sample is a view of one of its mutual nearest
        neighbours. Two samples are mutual neighbours if each is among the `n_neighbors`
        nearest of the other, by the cosine of centred values. Useful for vectors, with
        ``augmentation=None``, and possible for small images that can be compared pixel
        by pixel; for features of a pretrained network, :class:`NeighborMixture` is
        better and faster. Among more than 50,000 samples, an index finds most of the
        neighbours, if faiss is installed.
    init : {"two-stage", "random"}, clusterer or array-like, default="two-stage"
        Where EM starts. "two-stage" first trains as the special case that MoCo is
        (Theorem 3) and starts EM at a partition of its features by `ClassificationEM`.
        A clusterer whose labels go from 0 to K - 1 replaces `ClassificationEM`; it is
        first tried on untrained features. K and a seed from `random_state` replace its
        own `n_clusters` (or `n_components`) and `random_state`. "random" starts from
        random weights and prototypes, as the paper does. An array of N labels from 0 to
        K - 1 is the partition to start from.
    n_init : int, default=1
        Number of restarts from different seeds. The one with the best ELBO is kept.
    max_epochs : int, default=200
        Epochs of one restart, over all its stages. (The paper: 1,000 and more.) In the
        two-stage start, MoCo takes 90% of them.
    batch_size : int, default=256
        Samples in a batch, at most N. The batches of an epoch have equal sizes, to
        within one.
    lr : float, default=0.3
        Peak learning rate of SGD with momentum 0.9. The rate rises over 5% of each
        stage and then falls along half a cosine. After MoCo, EM has a third of it. (The
        paper: 1.0, and after pre-training a tenth.) The default suits short fits.
    weight_decay : float, default=1e-4
        Weight decay of SGD.
    image_shape : tuple (H, W), (H, W, C) or (C, H, W), default=None
        Shape of the images whose rows a two-dimensional X holds. Needed for images with
        a number of channels other than 1, 3 or 4, and if both the second and the last
        size of a four-dimensional X are 1, 3 or 4: the channels are then the last.
    device : str or torch.device, default="auto"
        "auto" uses a CUDA device if there is one; workers of joblib use all of them in
        turn. Apple's "mps" is not supported, because it has no float64.
    precision : {"auto", "float32", "bfloat16"}, default="auto"
        Precision of the networks during training, of the queue, and of products with
        the queue, also in predictions. The rest of the objective and of predictions is
        computed in float32. "auto" is bfloat16 where the hardware supports it; for
        vectors, only on a GPU.
    callbacks : list of skorch callbacks, default=None
        To them, the first stage and each round of EM are separate training runs.
        "train_loss" in the history of a run is the negative ELBO. No samples are held
        out, and "valid_loss", which `EarlyStopping` monitors, has the same values.
        `LRScheduler` and scorings that need a y are refused.
    checkpoint : str or path-like, default=None
        A folder for the progress of the fit. Its files are named after a hash of the
        parameters and the data. `fit` with the same parameters and data continues from
        there; if the fit was complete, it returns at once, or after the search for
        neighbours. The result is the same bit for bit, on a CPU with the same number of
        threads. Files are written after epochs, as often as possible in less than 5% of
        the time.
    distributed : bool, default=True
        Whether the processes of a job of torchrun share the fit, each with a part of
        every batch. They end with the same model. No effect in a single process, nor in
        workers of joblib. With False, each process fits on its own.
    warm_start : bool, default=False
        Whether `fit` continues from the fitted model (student, teacher, heads, queue
        and prototypes) with EM for another `max_epochs`. `init` and `n_init` then have
        no effect, and `history_` begins anew. `n_clusters`, `backbone`,
        `embedding_dim`, `expert_heads`, `queue_size` and `image_shape` must be as
        before; `freeze` need not.
    verbose : int, default=0
        1 shows a progress bar over the whole fit, and lets callbacks print.
    random_state : int, RandomState instance or None, default=None
        Determines weights, the order of samples and views. An int makes fits repeatable
        on one machine with one number of threads.

    Attributes
    ----------
    labels_ : ndarray of shape (N,)
        Most probable expert of each training sample; equal to ``predict(X)``.
    elbo_ : float
        Mean ELBO of the training samples, in nats; see `score`.
    converged_ : bool
        Whether at most 1% of the training samples changed their cluster in the last
        epoch of EM. Random views alone move samples that lie between clusters, so False
        does not mean that the clusters are bad.
    cluster_sizes_ : ndarray of shape (K,)
        Number of training samples in each cluster.
    stability_ : float
        How far the restarts agree, if `n_init` > 1: the mean adjusted Rand index
        between their partitions.
    init_labels_ : ndarray of shape (N,) or None
        The partition from which EM started first; None if it started from random
        weights or, with `warm_start`, from the fitted model.
    history_ : list of dict
        For every epoch of the best restart: "stage", "epoch" (within the stage),
        "elbo", "confidence" (mean of the largest posterior value), "posterior_counts"
        (of all N K posterior values in ten bins of [0, 1]), "changed" (share of samples
        whose label differs from that in the epoch before, or, in the first epoch of a
        round, in the partition from which the round starts; 1 in the first epoch from
        random weights or of a fit that `warm_start` continues), "cluster_sizes", "lr"
        (at the last step) and "seconds". It also has what callbacks record, if a file
        can hold it: numbers, text, arrays, and lists and dicts of them.
    n_iter_ : int
        Epochs trained.
    neighbors_recall_ : float or None
        Share of the `n_neighbors` nearest neighbours that the search found: 1.0 for the
        exact search, otherwise an estimate. None without neighbours.
    augmentation_ : object
        `augmentation` with every "auto" replaced by what was decided.
    gating_prototypes_ : ndarray of shape (K, D)
        Unit vectors.
    expert_prototypes_ : ndarray of shape (K, D)
        Unit vectors.
    backbone_ : nn.Module
        The trained network. It can be another estimator's `backbone`; weights that
        `freeze` has frozen stay frozen.
    device_ : torch.device
        Device of the model.
    n_features_in_ : int
        Number of values of a sample.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns, if X has any.

    See Also
    --------
    MoCo : The special case without clusters.
    ClassificationEM : The partition of features that EM starts from.
    sk_mice.ablations.PaperMiCE : The paper's ablations and learning rates.

    Notes
    -----
    With the gate :math:`\pi_k(x)` and the experts' :math:`p_k(y|x)`, an E-step is
    :math:`q_k \propto \pi_k p_k`. The ELBO at this q is
    :math:`\log \sum_k \pi_k p_k`, and an M-step is a step of SGD on it. At the end of
    each epoch, the expert prototypes become the mean directions of the teacher's
    embeddings in their clusters (equation 13).

    On most of the benchmarks, the partition that the two-stage start gives to EM is as
    good as the clusters after EM. What EM adds is the model: a posterior, and clusters
    of other samples.

    References
    ----------
    .. [1] T. W. Tsai, C. Li, J. Zhu, "MiCE: Mixture of Contrastive Experts for
       Unsupervised Image Clustering", ICLR 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from sk_mice import MiCEClustering
    >>> X = load_digits(n_class=3).images[:200]
    >>> mice = MiCEClustering(3, max_epochs=10, random_state=0).fit(X)
    >>> mice.predict_proba(X[:5]).shape
    (5, 3)
    >>> bool((mice.labels_ == mice.predict(X)).all())
    True
    >>> out = np.empty((200, 3), np.float32)
    >>> mice.predict_proba(X, out=out) is out
    True
    >>> mice.transform(X).shape
    (200, 128)
    >>> agreement = mice.agreement(X)  # the confidence of reports
    >>> agreement[np.arange(200), mice.labels_].shape
    (200,)
    >>> bool(np.isclose(mice.score_samples(X).mean(), mice.score(X)))
    True
    """

    labels_: np.ndarray  # once `fit` has found them
    _parameter_constraints: dict = {
        **ContrastiveEstimator._parameter_constraints,
        "n_clusters": [Count(1)],
        "expert_heads": [StrOptions({"own", "shared"})],
        "kappa": [Number(SMALLEST_TEMPERATURE, None, closed="both")],
        "init": [
            StrOptions({"two-stage", "random"}),
            HasMethods(["fit_predict", "get_params"]),
            "array-like",
        ],
        "n_init": [Count(1, MOST_RESTARTS)],
    }

    _of_the_model = (*ContrastiveEstimator._of_the_model, "expert_heads")
    __metadata_request__predict = {"out": UNUSED}
    __metadata_request__predict_proba = {"out": UNUSED}

    # The stages of a fit. Chosen on digits and 10,000 images of Fashion-MNIST.
    _init_share = 0.9  # of the epochs are MoCo's
    _n_rounds = 2  # of EM; each after the first starts from a new partition
    # Share of the epochs of a round in which q is held at the partition from which the
    # round starts. After MoCo, a tenth is too little for a few hundred samples, whose
    # epochs have a few steps: clusters became empty. From untrained networks, half is
    # too much: clusters became empty, too.
    _held_share = 0.5
    _held_share_untrained = 0.1
    _later_rate = 1 / 3  # of `lr`, for EM after MoCo; the full rate disturbs features

    def __init__(
        self,
        n_clusters=8,
        *,
        backbone: Any = "auto",
        freeze=None,
        embedding_dim=128,
        tau=1.0,
        kappa=1.0,
        expert_heads="shared",
        queue_size=16384,
        augmentation: Any = "moco",
        n_neighbors=0,
        init: Any = "two-stage",
        n_init=1,
        max_epochs=200,
        batch_size=256,
        lr=0.3,
        weight_decay=1e-4,
        image_shape=None,
        device: Any = "auto",
        precision="auto",
        callbacks=None,
        checkpoint=None,
        distributed=True,
        warm_start=False,
        verbose=0,
        random_state=None,
    ) -> None:
        self.n_clusters = n_clusters
        self.backbone = backbone
        self.freeze = freeze
        self.embedding_dim = embedding_dim
        self.tau = tau
        self.kappa = kappa
        self.expert_heads = expert_heads
        self.queue_size = queue_size
        self.augmentation = augmentation
        self.n_neighbors = n_neighbors
        self.init = init
        self.n_init = n_init
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.image_shape = image_shape
        self.device = device
        self.precision = precision
        self.callbacks = callbacks
        self.checkpoint = checkpoint
        self.distributed = distributed
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    # ------------------------------------------------------------------------- fit

    @_fit_context(prefer_skip_nested_validation=False)  # `init` may be any clusterer
    def fit(self, X, y=None) -> Self:
        """Cluster the samples by EM.

        Parameters
        ----------
        X : array-like or torch.utils.data.Dataset
            Images of shape (N, H, W), (N, H, W, C) or (N, C, H, W), or vectors
            (N, features), or flattened images if `image_shape` is set; real and finite,
            of any type. N >= 2. A memory map is read in pieces. Samples of a dataset
            are arrays, tensors or images of one size, or tuples that begin with one.
        y : Ignored
            Present for API consistency by convention.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If X or a parameter is invalid, before training.
        ImportError
            If the package of a pretrained `backbone` is missing.
        FloatingPointError
            If training diverges. The message says when, and what to try.
        OSError
            If a checkpoint cannot be read or written, or the weights of a pretrained
            `backbone` are missing. The message names the file.
        RuntimeError
            If another process of the fit is lost.

        Warns
        -----
        ConvergenceWarning
            If training left clusters empty, or if Ctrl-C ended the fit.
        UserWarning
            If the search for neighbours is slow or finds too few of them.

        Notes
        -----
        After a FloatingPointError in training, an OSError or Ctrl-C, the estimator has
        the model of the last complete epoch. A fit that fails in another way, or before
        the end of the first epoch, does not change the estimator.
        """
        return self._fit(X)

    def _check(self, X):
        X = super()._check(X)
        if self.n_clusters > len(X):
            raise ValueError(
                f"`n_clusters` must be at most n_samples = {len(X)}; got "
                f"{self.n_clusters}."
            )
        if isinstance(self.init, type):
            raise TypeError(
                f"`init` must be a clusterer, not its class; got {self.init!r}."
            )
        if self._start == "labels":
            checked_labels(self.init, len(X), self.n_clusters, "`init`")
        return X

    @property
    def _start(self) -> str:
        """Where EM starts: "model", "labels", "random" or "two-stage"."""
        if self._continues:
            return "model"
        if isinstance(self.init, str):
            return self.init
        return "two-stage" if hasattr(self.init, "fit_predict") else "labels"

    @property
    def _is_two_stage(self) -> bool:
        return self._start == "two-stage"

    def _n_epochs(self) -> dict[str, int]:
        """Epochs of each stage of a restart."""
        n_moco = 0
        if self._is_two_stage:
            share = round(self._init_share * self.max_epochs)
            n_moco = min(share, self.max_epochs - 1)
        return {"moco": n_moco, "em": self.max_epochs - n_moco}

    @property
    def _shared_head(self) -> bool:
        return self.expert_heads == "shared" and self.n_clusters > 1

    def _n_heads(self):
        return 1 if self._shared_head else self.n_clusters, 1  # of experts, of the gate

    def _model_options(self, seed) -> dict:
        return {
            "n_experts": self.n_clusters,
            "omega": self._gating_prototypes(seed),
            "kappa": self.kappa,
            "shared_head": self._shared_head,
        }

    def _gating_prototypes(self, seed):
        return gating_prototypes(self.n_clusters, self.embedding_dim)  # draws nothing

    # ------------------------------------------------------------------- initialise

    def _initialise(self, run, task) -> None:
        """A model, and the partition from which EM starts, if there is one.

        MoCo is the special case A3 to A5 of the model (Theorem 3), so EM can take over
        its networks and its queue.
        """
        super()._initialise(run, task)
        if self._is_two_stage and run.stage == 0:
            self._start_from_moco(run, task)
        elif self._start == "labels" and run.state is None:
            start_at_labels(self.init, run, task)
            run.init_labels = run.labels

    def _start_from_moco(self, run, task) -> None:
        moco = self._build(task, run.seed, **moco_options())
        n_epochs = self._n_epochs()["moco"]
        if not isinstance(self.init, str) and run.state is None:
            try_clusterer(self.init, run, task)
        try:
            if n_epochs:
                self._run_stage(run, moco, task, n_epochs, "moco")
        except STOPS:
            if run.history and not task.interrupt.again:
                self._take_over(run, moco, task)
            raise
        self._take_over(run, moco, task)
        run.stage = 1

    def _take_over(self, run, moco, task) -> None:
        """Continue from the model of the first stage."""
        run.model.start_from(moco)
        start_at_partition(self.init, run, task)
        run.init_labels = run.labels
        run.ready = True

    # ------------------------------------------------------------------------ train

    def _train(self, run, task) -> None:
        """Rounds of EM; each after the first starts from a new partition."""
        n_rounds = self._n_rounds if self._is_two_stage else 1
        rounds = split_rounds(self._n_epochs()["em"], n_rounds)
        for i, n_epochs in enumerate(rounds, start=1):
            if i < run.stage:  # finished before the checkpoint
                continue
            if i > 1 and run.state is None:
                start_at_partition(self.init, run, task)
            self._em(run, task, n_epochs)

    def _em(self, run, task, n_epochs) -> None:
        """EM. If there are labels, q is held at them at first."""
        options, share = {}, self._held_share_untrained
        if self._is_two_stage:
            options["lr"] = self._later_rate * self.lr
            share = self._held_share
        if run.labels is not None:
            options["held_labels"] = torch.from_numpy(run.labels).to(task.device)
            options["held_epochs"] = math.ceil(share * n_epochs)
        self._run_stage(run, run.model, task, n_epochs, "em", **options)

    def _judge(self, run, task) -> None:
        """A last E-step: mean ELBO and hard assignments of the training samples."""
        task.bar.say("labels of all samples")
        joint, run.n_filled = fill_empty_clusters(run.model, task)
        task.restarts.done(run, _mean_log_evidence(joint), joint.argmax(axis=1))

    # ----------------------------------------------------------------------- finish

    def _finish(self, task) -> None:
        super()._finish(task)
        restarts, best = task.restarts, task.restarts.best
        self.elbo_, self.labels_ = best.elbo, best.partition
        self.init_labels_ = best.init_labels
        self.cluster_sizes_ = np.bincount(self.labels_, minlength=self.n_clusters)
        last = self.history_[-1]
        whole = not best.interrupted and last["stage"] == "em"
        self.converged_ = bool(whole and last["changed"] <= STEADY)
        self.__dict__.pop("stability_", None)  # from an earlier fit
        if len(restarts.partitions) > 1:
            pairs = combinations(restarts.partitions, 2)
            scores = [adjusted_rand_score(a, b) for a, b in pairs]
            self.stability_ = float(np.mean(scores))

    def _warn(self, task) -> None:
        if task.group.first:
            self._warn_of_empty_clusters(task.restarts.best.n_filled)
        super()._warn(task)

    def _warn_of_empty_clusters(self, n_filled: int) -> None:
        n_empty = int((self.cluster_sizes_ == 0).sum())
        what = "Empty clusters" if n_empty else "Clusters left empty, moved to samples"
        if n_empty or n_filled:
            warn_user(
                f"{what}: {n_empty or n_filled} of {self.n_clusters}. Try fewer "
                "clusters, more epochs (`max_epochs`), another start (`init`, "
                "`n_init`, `random_state`) or a lower `lr`.",
                ConvergenceWarning,
            )

    # ------------------------------------------------------------------- prediction

    def predict(self, X, *, out=None) -> np.ndarray:
        """Most probable expert of each sample.

        Parameters
        ----------
        X : array-like or torch.utils.data.Dataset
            Samples of the shape seen in `fit`.
        out : ndarray of shape (N,), int64, or path-like, default=None
            Where to write the result, in pieces: an array, which may be a memory map,
            or the path of a .npy file; one that exists is replaced.

        Returns
        -------
        ndarray of shape (N,), int
            Cluster labels from 0 to K - 1; equal to `labels_` on the training samples.
            `out`, or the memory map of its file.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError, OSError
            If samples have a different shape than in `fit`, or values that are not
            finite or too large to compute with, or if the result cannot be written to
            `out`.

        Warns
        -----
        UserWarning
            If X is on a different scale than in `fit`; see the user guide.
        """
        return self._infer_into(out, X, "label")

    def predict_proba(self, X, *, out=None) -> np.ndarray:
        """Posterior q(z | x, y) over the experts (equation 10).

        Parameters
        ----------
        X : array-like or torch.utils.data.Dataset
            Samples of the shape seen in `fit`.
        out : ndarray of shape (N, K), float32, or path-like, default=None
            Where to write the result, in pieces: an array, which may be a memory map,
            or the path of a .npy file; one that exists is replaced.

        Returns
        -------
        ndarray of shape (N, K), float32
            Rows sum to 1. `out`, or the memory map of its file.

        Raises
        ------
        NotFittedError, ValueError, TypeError, OSError
            As in `predict`, and with the same warning.
        """
        return self._infer_into(out, X, "joint", then=objective.posterior)

    def _predict_all(self, X):
        """What `predict`, `predict_proba` and `transform` return, by one pass."""
        joint, g = self._infer(X, "joint", "gating")
        posterior = objective.posterior(torch.from_numpy(joint)).numpy()
        return joint.argmax(axis=1), posterior, g

    def predict_log_proba(self, X) -> np.ndarray:
        """Logarithm of the posterior q(z | x, y).

        Parameters
        ----------
        X : array-like
            Samples of the shape seen in `fit`.

        Returns
        -------
        ndarray of shape (N, K), float32

        Raises
        ------
        NotFittedError, ValueError, TypeError
            As in `predict`, and with the same warning.
        """
        (joint,) = self._infer(X, "joint")
        return torch.from_numpy(joint).log_softmax(dim=1).numpy()

    @validate_params(
        {"n_views": [Count(1)], "random_state": ["random_state"]},
        prefer_skip_nested_validation=True,
    )
    def agreement(self, X, *, n_views=10, random_state: Any = 0) -> np.ndarray:
        """How often views of each sample fall into each cluster.

        This is a confidence that people can read: 1 in a sample's own cluster means
        that all of its views fall there. (The largest posterior of a well clustered
        sample may be less than a half.) It is agreement and not accuracy: a cluster
        that mixes two classes may be stable. `stability_` says how far the restarts of
        a fit agree, which is another question.

        Parameters
        ----------
        X : array-like
            Samples of the shape seen in `fit`.
        n_views : int, default=10
            Number of random views of each image, which are made as in training. For
            vectors, and for images without augmentation, number of nearest neighbours
            in X by cosine of the centred values: at most as many as there are others in
            the cluster, and at least one. Pass many such samples at a time: a few may
            all be near to each other, and a single one agrees with itself.
        random_state : int, RandomState or None, default=0
            Determines the random views, and the index of more than 50,000 vectors.

        Returns
        -------
        ndarray of shape (N, K), float32
            Rows sum to 1. The largest entry need not be at the sample's label.

        Raises
        ------
        NotFittedError, ValueError, TypeError
            As in `predict`, and with the same warning; also if a model of images was
            loaded from a file and its augmentation was a function of your own.
        """
        check_is_fitted(self)
        seed = check_random_state(random_state).randint(2**31 - 1)
        if self._format.is_image and not hasattr(self, "augmentation_"):
            raise ValueError(
                "`agreement` needs the `augmentation` of the fit, a function, which "
                "the file of the model does not hold. Set `augmentation_` to it."
            )
        with own_settings():
            samples = self._checked_samples(X)
            if self._format.is_image and self.augmentation_ is not None:
                return self._shares_of_views(samples, n_views, seed)
            views = self._make_views(self.device_)
            (labels,) = self._inference.over(samples, views, "label")
            self._check_inferred(labels)
            rows = comparable_rows(samples)
            nearest, recall = nearest_neighbors(rows, n_views, seed)
            warn_of_recall(recall)
            return shares_of_neighbors(labels, nearest, self._model.n_experts)

    def _shares_of_views(self, samples, n_views, seed):
        """Shares (N, K) of the clusters that random views fall into."""
        counts = np.zeros((len(samples), self._model.n_experts), np.float32)
        generator = torch.Generator(self.device_).manual_seed(seed)
        views = self._make_views(self.device_, self.augmentation_)
        view = OneRandomView(views, generator)
        draws = OwnDraws(seed, generator)
        for _ in range(n_views):
            with draws:
                (labels,) = self._inference.over(samples, view, "label")
            self._check_inferred(labels)
            counts[np.arange(len(labels)), labels] += 1
        return counts / np.float32(n_views)

    def transform(self, X, *, out=None) -> Any:
        """Gating embeddings g (equation 4).

        Parameters
        ----------
        X : array-like or torch.utils.data.Dataset
            Samples of the shape seen in `fit`.
        out : ndarray of shape (N, D), float32, or path-like, default=None
            Where to write the result, in pieces: an array, which may be a memory map,
            or the path of a .npy file; one that exists is replaced.

        Returns
        -------
        ndarray of shape (N, D), float32
            Unit vectors. `out`, or the memory map of its file; a data frame of them if
            `set_output` asks for one.

        Raises
        ------
        NotFittedError, ValueError, TypeError, OSError
            As in `predict`, and with the same warning.
        """
        return self._infer_into(out, X, "gating")

    def score_samples(self, X) -> np.ndarray:
        """ELBO of each sample at the exact posterior: log p(y | x), in nats.

        Parameters
        ----------
        X : array-like
            Samples of the shape seen in `fit`.

        Returns
        -------
        ndarray of shape (N,), float32
            See `score`.

        Raises
        ------
        NotFittedError, ValueError, TypeError
            As in `predict`, and with the same warning.
        """
        (joint,) = self._infer(X, "joint")
        return objective.log_evidence(torch.from_numpy(joint)).numpy()

    def score(self, X, y=None) -> float:
        """Mean ELBO of the samples, in nats.

        At the exact posterior the ELBO is log p(y | x), the log-probability of telling
        a sample apart from those in the queue. Compare it only between models with the
        same `tau`, `kappa` and queue size. A search that maximises it over temperatures
        chooses small ones.

        Parameters
        ----------
        X : array-like
            Samples of the shape seen in `fit`.
        y : Ignored
            Present for API consistency by convention.

        Returns
        -------
        float

        Raises
        ------
        NotFittedError, ValueError, TypeError
            As in `predict`, and with the same warning.
        """
        (joint,) = self._infer(X, "joint")
        return _mean_log_evidence(joint)

    @property
    def gating_prototypes_(self) -> np.ndarray:
        """Gating prototypes omega, ndarray of shape (K, D), unit norm."""
        check_is_fitted(self)
        return self._model.gating_prototypes.detach().cpu().numpy().copy()

    @property
    def expert_prototypes_(self) -> Any:
        """Expert prototypes mu, ndarray of shape (K, D), unit norm, or None."""
        check_is_fitted(self)
        mu = self._model.prototypes()
        return None if mu is None else mu.detach().cpu().numpy()


def split_rounds(n_epochs: int, n_rounds: int) -> list[int]:
    """Epochs of each round of EM, the first the longest and none empty."""
    n_rounds = min(n_rounds, n_epochs)
    later = max(1, n_epochs // (n_rounds + 2))
    return [n_epochs - (n_rounds - 1) * later] + [later] * (n_rounds - 1)


def _mean_log_evidence(joint) -> float:
    evidence = objective.log_evidence(torch.from_numpy(joint))
    return float(evidence.double().mean())
