"""MiCE: mixture of contrastive experts, as a clusterer."""

import math
import warnings
from itertools import combinations

import numpy as np
import torch
from sklearn.base import ClusterMixin, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted, column_or_1d

from ._constraints import Count, Number
from ._contrastive import (
    SMALLEST_TEMPERATURE,
    STOPS,
    ContrastiveEstimator,
    infer_finite,
    unchanged_on_error,
)
from ._engine import objective
from ._engine.ambient import OwnDraws, spawn_seed
from ._engine.arrays import plain_array
from ._engine.inference import Inference
from ._engine.model import gating_prototypes
from ._partition import partition
from ._progress import Run

SETTLING_STEPS = 30  # of an average that takes in a tenth of every batch
# Share of the epochs of a round in which the model settles at the partition that it
# starts from. After MoCo a tenth is too little for a few hundred samples, whose epochs
# are a few steps: clusters ran empty. Untrained networks released as late lost theirs.
HELD_SHARE = 0.5
HELD_SHARE_UNTRAINED = 0.1
MOST_RESTARTS = 10**6
LATER_RATE = 1 / 3  # of `lr`, for EM after MoCo, whose features a full rate disturbs


class MiCEClustering(ClusterMixin, ContrastiveEstimator):
    r"""Mixture of contrastive experts: clusters images, or vectors, without labels.

    A gating function softly splits the samples among K experts, each expert learns to
    tell its samples apart by contrast, and EM trains everything on one objective, the
    ELBO [1]_. The posterior over the experts is the clustering.

    Parameters
    ----------
    n_clusters : int, default=8
        K, the number of experts and of clusters.
    backbone : str, nn.Module or callable, default="auto"
        The encoder: "mlp", "resnet-small" (for CPUs and small images; "resnet-small-32"
        is twice as wide), "resnet18", "resnet34", "resnet50" ("resnet-small-maxpool",
        "resnet18-maxpool" and so on keep the max-pooling that small images go without),
        a module that maps (B, C, H, W) or (B, F) to features (B, F'), or a factory of
        one. A module's weights are the start; it is copied, never trained itself.
        "auto" takes "mlp" for vectors, "resnet-small" for images on a CPU and
        "resnet18" for images on a GPU.
    embedding_dim : int, default=128
        D, the dimension of all embeddings.
    tau : float, default=1.0
        Temperature of the experts (equation 6), at least 0.001.
    kappa : float, default=1.0
        That of the gating function (equation 4), at least 0.001. ``math.inf`` makes it
        uniform (Assumption A3); `transform` is then untrained.
    gating_prototypes : {"auto", "simplex", "repelled", "uniform"}, default="auto"
        Prototypes of the gate. "simplex" are the centres of Algorithm 2, which need K
        <= D + 1; "repelled" are unit vectors spread by repulsion; "auto" takes the
        former where they exist. "uniform" are drawn at random (Table 3 (c)).
    train_gating_prototypes : bool, default=False
        Whether the gating prototypes, fixed otherwise, follow the gradient as well
        (Table 3 (d)).
    expert_prototypes : str or None, default="both"
        How the prototypes of the experts learn: by the "gradient" of every step, by the
        "analytical" update at each epoch's end (equation 13), or by "both". "passes"
        has the gradient and, in place of equation 13, up to 20 passes over the data in
        which nothing else is trained, until they settle (appendix). None leaves them
        out (Assumption A5).
    expert_heads : {"own", "shared"}, default="own"
        Whether each expert has an output layer of its own, or all share one
        (Assumption A4).
    queue_size : int, default=16384
        V, teacher embeddings kept as negatives; at most N are.
    queue_precision : {"auto", "float32", "bfloat16"}, default="auto"
        Of the queue and the products with it. bfloat16 halves its memory and the time
        of its sum; "auto" takes the precision that the networks train in.
    teacher_momentum : float, default=0.99
        m of the teacher's moving average. The paper's 0.999 averages over 1,000 steps,
        which is longer than a short fit.
    augmentation : {"moco", "simclr"}, callable or None, default="moco"
        How the three random views of a step are made; see the user guide. Vectors get
        Gaussian noise and values of other samples. A callable gets all views of a
        batch, images as (n_views * B, C, H, W) in [0, 1], and a generator.
    n_neighbors : int, default=0
        If not 0, each view of a sample is a view of one of its mutual nearest
        neighbours: of those among its `n_neighbors` nearest in X, by cosine of centred
        values, that have it among theirs. For features of a pretrained network, with
        ``augmentation=None``, and for small images that are alike pixel by pixel.
    flip : bool or "auto", default="auto"
        Whether to mirror images at random, left to right. "auto" does so unless mirror
        images are unlike those of X, as they are of digits, text and whatever else has
        a left and a right. Concerns images only.
    crop_scale : "auto" or tuple (low, high), default="auto"
        Range of a random crop's share of the image's area. "auto" is the paper's
        (0.2, 1), and (0.5, 1) for grey images up to 32 pixels. Concerns images only.
    affine : "auto" or tuple (rotation, shear), default="auto"
        In degrees, at most 180 and at most 45: views are turned, and sheared along
        their rows, by up to that to either side. "auto" is the paper's (0, 0), and
        (10, 10) for grey images up to 32 pixels that lean either way by themselves, as
        handwriting does. Concerns images only.
    init : {"two-stage", "random"}, default="two-stage"
        "random" starts EM from random weights and prototypes, as the paper does.
        "two-stage" first trains as the special case that MoCo is (Theorem 3) and
        starts EM at a partition of its features.
    init_share : float, default=0.9
        Share of `max_epochs` that the first of the two stages takes.
    n_rounds : int, default=2
        Rounds of EM in the second. Each after the first starts at a partition anew, of
        the features that EM has learned so far; the first is the longest.
    n_init : int, default=1
        Restarts from different seeds; the one with the best ELBO is kept.
    max_epochs : int, default=200
        Epochs of one restart, over all its stages. (The paper: 1,000 and more.)
    batch_size : int, default=256
        At most N is used. An epoch's batches are of equal size to within one.
    lr : float, default=0.3
        Peak learning rate of SGD with momentum 0.9. (The paper: 1.0.) After the first
        of two stages EM takes a third of it. (The paper, after pre-training: a tenth.)
    weight_decay : float, default=1e-4
        Of SGD.
    schedule : {"cosine", "step", "constant"}, sequence or callable, default="cosine"
        Course of the learning rate over the first stage, and over each round of EM.
        "step" multiplies it by 0.1 at 48, 64 and 80 percent as the paper does for
        CIFAR, a sequence of shares of the course at those; a callable maps progress
        from 0 to 1 to a factor.
    warmup : float, default=0.05
        Share of each course over which the learning rate rises linearly.
    image_shape : tuple (H, W) or (H, W, C), default=None
        Takes the rows of a two-dimensional X for flattened images.
    layout : {"auto", "channels_last", "channels_first"}, default="auto"
        Where the channels are, in four-dimensional X and in flattened colour images
        ("auto": last in those).
    value_range : "auto" or tuple (low, high), default="auto"
        Values of black and white. "auto" takes the usual range that X fits, or its
        extremes.
    device : str or torch.device, default="auto"
        "auto" takes a CUDA device if there is one.
    precision : {"auto", "float32", "bfloat16"}, default="auto"
        Of the networks while they train; the objective and predictions are computed in
        float32. "auto" takes bfloat16 where the hardware has it; for vectors, only on
        a GPU.
    callbacks : list of skorch callbacks, default=None
        They see the first stage, and each round of EM, as a training run of its own,
        whose history has "train_loss", the negative ELBO. No samples are held out:
        "valid_loss", which `EarlyStopping` monitors, is the same.
    checkpoint : str or path-like, default=None
        A folder for the progress of the fit; files in it are named after parameters
        and data. `fit` with the same parameters and data goes on from there, bit for
        bit as if it had never been cut off, and returns at once if it was done.
    checkpoint_every : int, default=1
        Epochs between two checkpoints.
    warm_start : bool, default=False
        Whether `fit` goes on from the fitted model (teacher, heads, queue and
        prototypes) with EM for another `max_epochs`. What decides the model and how X
        is read must be as before: `n_clusters`, `backbone`, `embedding_dim`,
        `gating_prototypes`, `expert_heads`, `queue_size`, `queue_precision`,
        `image_shape`, `layout` and `value_range`.
    verbose : int, default=0
        1 shows a progress bar over the whole fit.
    random_state : int, RandomState instance or None, default=None
        Decides weights, order and views. An int makes fits repeatable on one machine
        at one number of threads.

    Attributes
    ----------
    labels_ : ndarray of shape (N,)
        Most probable expert of each training sample.
    elbo_ : float
        Mean ELBO of the training samples, in nats; see `score`.
    cluster_sizes_ : ndarray of shape (K,)
        Samples in each cluster.
    stability_ : float
        Mean adjusted Rand index between the partitions of the restarts, if `n_init` >
        1: how far they agree, which can be known without labels.
    init_labels_ : ndarray of shape (N,) or None
        The partition that EM first started from. Pickles and copies leave it out.
    history_ : list of dict
        For every epoch of the best restart: "stage", "epoch" (within the stage),
        "elbo", "confidence" (mean of the largest posterior value), "posterior_counts"
        (of all N K posterior values in ten bins of [0, 1]), "changed" (share of samples
        with another label than in the epoch before, 1 where a stage or a round begins),
        "cluster_sizes", "lr" (at the last step) and "seconds"; with "passes" also
        "prototype_passes".
    n_iter_ : int
        Epochs trained.
    flip_ : bool
        Whether images were mirrored at random.
    affine_ : tuple (rotation, shear)
        By how many degrees views were turned and sheared at most.
    gating_prototypes_ : ndarray of shape (K, D)
        Unit vectors.
    expert_prototypes_ : ndarray of shape (K, D) or None
        Unit vectors; None if `expert_prototypes` was None.
    backbone_ : nn.Module
        The trained encoder; can be another estimator's `backbone`.
    device_ : torch.device
        Where the model is.
    n_features_in_ : int
        Values of one sample.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns, if X has any.

    See Also
    --------
    MoCo : The special case without clusters.
    SphericalKMeans : k-means on unit vectors.

    Notes
    -----
    With the gate :math:`\pi_k(x)` and the experts' :math:`p_k(y|x)`, one E-step is
    :math:`q_k \propto \pi_k p_k`, and the ELBO at that q is
    :math:`\log \sum_k \pi_k p_k`. One M-step is a step of SGD on it; at each epoch's
    end the expert prototypes are replaced by the mean directions of the teacher's
    embeddings in their clusters (equation 13).

    References
    ----------
    .. [1] T. W. Tsai, C. Li, J. Zhu, "MiCE: Mixture of Contrastive Experts for
       Unsupervised Image Clustering", ICLR 2021.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sk_mice import MiCEClustering
    >>> X = load_digits(n_class=3).images
    >>> mice = MiCEClustering(3, flip=False, max_epochs=20, random_state=0).fit(X)
    >>> mice.predict_proba(X[:5]).shape
    (5, 3)
    >>> bool((mice.labels_ == mice.predict(X)).all())
    True
    """

    _parameter_constraints: dict = {
        **ContrastiveEstimator._parameter_constraints,
        "n_clusters": [Count(1)],
        "kappa": [Number(SMALLEST_TEMPERATURE, None, closed="both")],
        "gating_prototypes": [StrOptions({"auto", "simplex", "repelled", "uniform"})],
        "train_gating_prototypes": ["boolean"],
        "expert_prototypes": [
            StrOptions({"both", "analytical", "gradient", "passes"}),
            None,
        ],
        "expert_heads": [StrOptions({"own", "shared"})],
        "init": [StrOptions({"two-stage", "random"})],
        "init_share": [Number(0, 1, closed="neither")],
        "n_rounds": [Count(1)],
        "n_init": [Count(1, MOST_RESTARTS)],
    }
    _of_the_model = (*ContrastiveEstimator._of_the_model, "gating_prototypes")

    def __init__(
        self,
        n_clusters=8,
        *,
        backbone="auto",
        embedding_dim=128,
        tau=1.0,
        kappa=1.0,
        gating_prototypes="auto",
        train_gating_prototypes=False,
        expert_prototypes="both",
        expert_heads="own",
        queue_size=16384,
        queue_precision="auto",
        teacher_momentum=0.99,
        augmentation="moco",
        n_neighbors=0,
        flip="auto",
        crop_scale="auto",
        affine="auto",
        init="two-stage",
        init_share=0.9,
        n_rounds=2,
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
        checkpoint=None,
        checkpoint_every=1,
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
        self.train_gating_prototypes = train_gating_prototypes
        self.expert_prototypes = expert_prototypes
        self.expert_heads = expert_heads
        self.queue_size = queue_size
        self.queue_precision = queue_precision
        self.teacher_momentum = teacher_momentum
        self.augmentation = augmentation
        self.n_neighbors = n_neighbors
        self.flip = flip
        self.crop_scale = crop_scale
        self.affine = affine
        self.init = init
        self.init_share = init_share
        self.n_rounds = n_rounds
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
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
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
        FloatingPointError
            If training diverges; says when, and what to try.
        OSError
            If a checkpoint cannot be read or written; names the file.

        Notes
        -----
        After a FloatingPointError or an OSError the estimator is fitted as at the end
        of the last whole epoch; so it is, with a warning, after an interruption. A fit
        that fails otherwise, or before, leaves the estimator as it was.
        """
        with unchanged_on_error(self):
            progress = self._fit(X, init_labels)
        self._warn_of_empty_clusters()
        self._end(progress.stopped_by)
        return self

    def _fit(self, X, init_labels):
        self._check_continuation(self.n_clusters)
        X = self._check_fit_X(X)
        if self.n_clusters > len(X):
            raise ValueError(
                f"`n_clusters` must be at most n_samples = {len(X)}; got "
                f"{self.n_clusters}."
            )
        if self._continues and init_labels is not None:
            raise ValueError(
                "`init_labels` must be None where `warm_start` goes on from a model."
            )
        init_labels = self._check_init_labels(init_labels, len(X))
        self._check_parts()
        n_restarts = 1 if self._continues else self.n_init
        progress = self._fit_restarts(X, n_restarts, init_labels)
        self.elbo_, self.labels_ = progress.elbo, progress.labels
        self._summarise(progress.partitions)
        return progress

    def _check_init_labels(self, labels, n_samples):
        if labels is None:
            return None
        labels = column_or_1d(plain_array(labels, "`init_labels`"))
        right = len(labels) == n_samples and np.issubdtype(labels.dtype, np.integer)
        if not (right and labels.min() >= 0 and labels.max() < self.n_clusters):
            span = f" from {labels.min()} to {labels.max()}" if right else ""
            raise ValueError(
                f"`init_labels` must be {n_samples} integers from 0 to n_clusters - 1 "
                f"= {self.n_clusters - 1}; got {len(labels)} of {labels.dtype}{span}."
            )
        return labels.astype(np.int64)

    def _check_parts(self):
        """Refuse models without clusters, and parts that a warm start lacks."""
        shared, class_level = self._shared_head, self.expert_prototypes is not None
        if shared and not class_level:
            raise ValueError(
                '`expert_heads` must be "own" if `expert_prototypes` is None, as all '
                "experts are the same otherwise (Assumptions A4 and A5) and nothing "
                'tells clusters apart; got "shared". `MoCo` is that model.'
            )
        if self.train_gating_prototypes and math.isinf(self.kappa):
            raise ValueError(
                "`train_gating_prototypes` must be False if `kappa` is infinite: the "
                "gate is uniform wherever its prototypes are; got True."
            )
        if self._continues:
            was = (self._model.shared_head, self._model.class_level)
            if was != (shared, class_level):
                raise ValueError(
                    "`expert_heads`, and whether `expert_prototypes` is None, must be "
                    "as in the fit that `warm_start` goes on from; got "
                    f"{self.expert_heads!r} and {self.expert_prototypes!r}."
                )

    @property
    def _shared_head(self):
        return self.expert_heads == "shared" and self.n_clusters > 1

    def _begin(self, setup, seed, init_labels=None) -> Run:
        if self._continues:
            run = Run(self._copy_of_fitted_model(setup))
            run.model.kappa = self.kappa
            return run
        omega = gating_prototypes(
            self.gating_prototypes,
            self.n_clusters,
            self.embedding_dim,
            spawn_seed(seed, "gating prototypes"),
        )
        model = self._build(
            setup,
            seed,
            n_experts=self.n_clusters,
            omega=omega,
            kappa=self.kappa,
            class_level=self.expert_prototypes is not None,
            shared_head=self._shared_head,
        )
        two_stage = init_labels is None and self.init == "two-stage"
        return Run(model, init_labels, labels=init_labels, two_stage=two_stage)

    def _n_epochs(self, labels=None) -> dict[str, int]:
        """Epochs of each stage of a restart."""
        n_moco = 0
        if not self._continues and labels is None and self.init == "two-stage":
            n_moco = min(round(self.init_share * self.max_epochs), self.max_epochs - 1)
        return {"moco": n_moco, "em": self.max_epochs - n_moco}

    def _run(self, run, setup, seed) -> None:
        """The stages that `init` asks for, or what is left of them."""
        if self._continues:
            options = self._prototype_options()
            self._train(run, run.model, setup, seed, self.max_epochs, "em", **options)
        elif run.two_stage:
            self._two_stages(run, setup, seed)
        else:
            if run.labels is not None and run.state is None:
                self._settle(run.model, setup, seed)
                features = infer_finite(run.model, setup, "features")
                self._start_at(run.model, setup, run.labels, features)
            self._em(run, setup, seed, self.max_epochs)

    def _judge(self, run, setup):
        """Mean ELBO and hard assignments of the training samples."""
        setup.bar.say("labels of all samples")
        joint = infer_finite(run.model, setup, "joint")
        return _mean_log_evidence(joint), joint.argmax(axis=1)

    def _two_stages(self, run, setup, seed) -> None:
        """MoCo, copied into the model, then rounds of EM from partitions.

        MoCo is the special case A3 to A5 of the model (Theorem 3), so EM goes on from
        it without a break.
        """
        n_epochs = self._n_epochs()
        if run.stage == 0:
            moco, n_moco = self._build_moco(setup, seed), n_epochs["moco"]
            new = {"fill_queue": True}
            try:
                if n_moco:
                    self._train(run, moco, setup, seed, n_moco, "moco", **new)
            except STOPS:
                if run.history and not setup.interrupt.again:
                    self._take_over(run, moco, setup, seed)
                raise
            self._take_over(run, moco, setup, seed)
            run.stage = 1
        rounds = split_rounds(n_epochs["em"], self.n_rounds)
        for i, n_in_round in enumerate(rounds, start=1):
            if i < run.stage:
                continue
            if i > 1 and run.state is None:
                self._start_anew(run, setup, seed)
            self._em(run, setup, seed, n_in_round)

    def _take_over(self, run, moco, setup, seed) -> None:
        """Go on from the first stage's model."""
        run.model.start_from(moco)
        self._start_anew(run, setup, seed)
        run.init_labels = run.labels
        run.ready = True

    def _start_anew(self, run, setup, seed) -> None:
        """Set the model to a partition of the features that it has now."""
        setup.bar.say("clustering of the features")
        features = infer_finite(run.model, setup, "features")
        seed = spawn_seed(seed, "partition", run.stage)
        run.labels = self._partition(features, seed)
        self._start_at(run.model, setup, run.labels, features)

    def _em(self, run, setup, seed, n_epochs) -> None:
        """EM, at first with responsibilities held at labels, if there are any."""
        options = {"fill_queue": not run.history} | self._prototype_options()
        if run.two_stage:
            options["lr"] = LATER_RATE * self.lr
        if run.labels is not None:
            share = HELD_SHARE if run.two_stage else HELD_SHARE_UNTRAINED
            options |= {
                "held_labels": torch.from_numpy(run.labels),
                "held_epochs": math.ceil(share * n_epochs),
            }
        self._train(run, run.model, setup, seed, n_epochs, "em", **options)

    def _prototype_options(self) -> dict:
        return {
            "prototype_update": self.expert_prototypes,
            "train_gating_prototypes": self.train_gating_prototypes,
        }

    def _partition(self, features, seed) -> np.ndarray:
        """Cluster the backbone's features.

        They hold the classes better than the embeddings, whose objective has no use
        for most of what tells classes apart.
        """
        return partition(features, self.n_clusters, seed)

    @torch.no_grad()
    def _settle(self, model, setup, seed):
        """Give an untrained model batch-norm statistics, of random batches."""
        generator = torch.Generator().manual_seed(spawn_seed(seed, "settle"))
        model.train()
        with OwnDraws(spawn_seed(seed, "settle, networks")):
            for _ in range(SETTLING_STEPS):
                batches = setup.samples.shuffled(setup.batch_size, generator)
                x = setup.views.plain(next(batches)[0])
                model.embed(x.expand(model.n_views, *x.shape))
        model.eval()

    def _start_at(self, model, setup, labels, features):
        """Set prototypes and gate to a partition of samples with these features."""
        labels = torch.from_numpy(labels).to(setup.device)
        sums, inference = 0, Inference(model)
        n = inference.batch_size(setup.views.out_shape)
        batches = setup.samples.in_order(n)
        for batch, own in zip(batches, labels.split(n), strict=True):
            (v,) = inference(setup.views.plain(batch), "teacher")
            sums = sums + objective.class_sums(v, own)  # all v would be N x K x D
        features = torch.from_numpy(features).to(setup.device)
        model.set_partition(labels, features, sums)

    def _summarise(self, partitions) -> None:
        """Attributes that follow from all restarts and the best of them."""
        if len(partitions) > 1:
            scores = [adjusted_rand_score(a, b) for a, b in combinations(partitions, 2)]
            self.stability_ = float(np.mean(scores))
        else:
            self.__dict__.pop("stability_", None)
        self.cluster_sizes_ = np.bincount(self.labels_, minlength=self.n_clusters)

    def _warn_of_empty_clusters(self) -> None:
        n_empty = int((self.cluster_sizes_ == 0).sum())
        if n_empty:
            warnings.warn(
                f"{n_empty} of {self.n_clusters} clusters are empty. Try fewer "
                "clusters, more epochs (`max_epochs`), another start (`init`, "
                "`n_init`, `random_state`) or a lower `lr`.",
                ConvergenceWarning,
                stacklevel=4,  # where `fit` was called
            )

    def _keep(self, run: Run) -> None:
        super()._keep(run)
        self.init_labels_ = run.init_labels

    def __getstate__(self):
        """Leave out what grows with N and predicts nothing."""
        state = super().__getstate__()
        state.pop("init_labels_", None)
        return state

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

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            If samples have another shape than in `fit`, or values that are not finite
            or cannot be computed with.

        Warns
        -----
        UserWarning
            If X is at another scale than in `fit`; see the user guide.
        """
        (labels,) = self._infer(X, "label")
        return labels

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

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            If samples have another shape than in `fit`, or values that are not finite
            or cannot be computed with.

        Warns
        -----
        UserWarning
            If X is at another scale than in `fit`; see the user guide.
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

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            If samples have another shape than in `fit`, or values that are not finite
            or cannot be computed with.

        Warns
        -----
        UserWarning
            If X is at another scale than in `fit`; see the user guide.
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

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            If samples have another shape than in `fit`, or values that are not finite
            or cannot be computed with.

        Warns
        -----
        UserWarning
            If X is at another scale than in `fit`; see the user guide.
        """
        (joint,) = self._infer(X, "joint")
        return _mean_log_evidence(joint)

    @property
    def gating_prototypes_(self):
        """Gating prototypes omega, ndarray of shape (K, D), unit norm."""
        check_is_fitted(self)
        return self._model.gating_prototypes.detach().cpu().numpy()

    @property
    def expert_prototypes_(self):
        """Expert prototypes mu, ndarray of shape (K, D), unit norm; None without."""
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
