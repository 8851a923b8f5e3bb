"""MoCo: the encoder of the two-stage baseline."""

import numpy as np
from sklearn.base import _fit_context

from ._contrastive import ContrastiveEstimator, unchanged_on_error
from ._progress import Run


class MoCo(ContrastiveEstimator):
    """Momentum contrast: unit-norm embeddings of images or vectors, without labels.

    The same engine as :class:`MiCEClustering` under Assumptions A3 to A5: one expert,
    no gate, no prototypes. Its objective is then InfoNCE (Theorem 3 of [1]_).
    ``make_pipeline(MoCo(), SphericalKMeans(10))`` is the paper's two-stage baseline.

    Parameters
    ----------
    backbone : str, nn.Module or callable, default="auto"
        See :class:`MiCEClustering`, also for the parameters that follow.
    embedding_dim : int, default=128
        D.
    tau : float, default=1.0
        Temperature of the softmax over positive and negatives.
    queue_size : int, default=16384
    queue_precision : {"auto", "float32", "bfloat16"}, default="auto"
    teacher_momentum : float, default=0.99
    augmentation : {"moco", "simclr"}, callable or None, default="moco"
    n_neighbors : int, default=0
    flip : bool or "auto", default="auto"
    crop_scale : "auto" or tuple (low, high), default="auto"
    affine : "auto" or tuple (rotation, shear), default="auto"
    max_epochs : int, default=100
    batch_size : int, default=256
    lr : float, default=0.3
    weight_decay : float, default=1e-4
    schedule : str, sequence of float or callable, default="cosine"
    warmup : float, default=0.05
    image_shape : tuple, default=None
    layout : {"auto", "channels_last", "channels_first"}, default="auto"
    value_range : "auto" or tuple (low, high), default="auto"
    device : str or torch.device, default="auto"
    precision : {"auto", "float32", "bfloat16"}, default="auto"
    callbacks : list of skorch callbacks, default=None
    checkpoint : str or path-like, default=None
    checkpoint_every : int, default=1
    warm_start : bool, default=False
    verbose : int, default=0
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    backbone_ : nn.Module
        The trained encoder, a start for ``MiCEClustering(backbone=...)``.
    history_ : list of dict
        Figures of every epoch, see :class:`MiCEClustering`.
    n_iter_ : int
        Epochs trained.
    flip_ : bool
        Whether images were mirrored at random.
    affine_ : tuple (rotation, shear)
        By how many degrees views were turned and sheared at most.
    device_ : torch.device
        Where the model is.
    n_features_in_ : int
        Values of one sample.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns, if X has any.

    See Also
    --------
    MiCEClustering : The mixture that this is a special case of.
    SphericalKMeans : The second stage of the baseline.

    References
    ----------
    .. [1] T. W. Tsai, C. Li, J. Zhu, "MiCE: Mixture of Contrastive Experts for
       Unsupervised Image Clustering", ICLR 2021.
    .. [2] K. He, H. Fan, Y. Wu, S. Xie, R. Girshick, "Momentum Contrast for
       Unsupervised Visual Representation Learning", CVPR 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sk_mice import MoCo
    >>> X = load_digits().images[:200]
    >>> moco = MoCo(max_epochs=2, flip=False, random_state=0).fit(X)
    >>> moco.transform(X).shape
    (200, 128)
    """

    def __init__(
        self,
        *,
        backbone="auto",
        embedding_dim=128,
        tau=1.0,
        queue_size=16384,
        queue_precision="auto",
        teacher_momentum=0.99,
        augmentation="moco",
        n_neighbors=0,
        flip="auto",
        crop_scale="auto",
        affine="auto",
        max_epochs=100,
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
        self.backbone = backbone
        self.embedding_dim = embedding_dim
        self.tau = tau
        self.queue_size = queue_size
        self.queue_precision = queue_precision
        self.teacher_momentum = teacher_momentum
        self.augmentation = augmentation
        self.n_neighbors = n_neighbors
        self.flip = flip
        self.crop_scale = crop_scale
        self.affine = affine
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

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Learn the encoder.

        Parameters
        ----------
        X : array-like
            Images or vectors, see :meth:`MiCEClustering.fit`.
        y : Ignored
            Present for API consistency by convention.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError, FloatingPointError, OSError
            As :meth:`MiCEClustering.fit`.
        """
        with unchanged_on_error(self):
            self._check_continuation(n_experts=1)
            progress = self._fit_restarts(self._check_fit_X(X), 1)
        self._end(progress.stopped_by)
        return self

    def _begin(self, setup, seed, init_labels=None) -> Run:
        if self._continues:
            return Run(self._copy_of_fitted_model(setup))
        return Run(self._build_moco(setup, seed))

    def _n_epochs(self, labels=None) -> dict[str, int]:
        return {"moco": self.max_epochs}

    def _run(self, run, setup, seed) -> None:
        new = {"fill_queue": not self._continues}
        self._train(run, run.model, setup, seed, self.max_epochs, "moco", **new)

    def _judge(self, run, setup):
        return 0.0, None  # there is one run only

    def transform(self, X):
        """Embed samples with the teacher.

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
        (v,) = self._infer(X, "teacher")
        return v[:, 0]

    def score(self, X, y=None):
        """Mean log p(y | x) of the samples among the queue: the negative InfoNCE loss.

        Comparable only between models with the same `tau` and queue size.

        Parameters
        ----------
        X : array-like
            Samples of the shape seen in `fit`.
        y : Ignored
            Present for API consistency by convention.

        Returns
        -------
        float
            In nats.

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
        return float(joint.mean(dtype=np.float64))
