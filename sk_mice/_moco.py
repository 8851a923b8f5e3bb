"""MoCo: the encoder of the two-stage baseline."""

from typing import Any, Self

import numpy as np
from sklearn.base import _fit_context

from ._base import ContrastiveEstimator, moco_options


class MoCo(ContrastiveEstimator):
    """Momentum contrast: unit-norm embeddings of images or vectors, without labels.

    The model of :class:`MiCEClustering` under Assumptions A3 to A5: one expert, no gate
    and no prototypes. The objective is then InfoNCE (Theorem 3 of [1]_), as in [2]_.
    ``make_pipeline(MoCo(), SphericalKMeans(10))`` is the paper's two-stage baseline.

    Parameters
    ----------
    backbone : str, Backbone, nn.Module or callable, default="auto"
        See :class:`MiCEClustering`, which also describes all parameters that have no
        description here.
    freeze : int or "all but last", default=None
    embedding_dim : int, default=128
        D, the dimension of the embeddings.
    tau : float, default=1.0
        Temperature of the softmax over positive and negatives, at least 0.001.
    queue_size : int, default=16384
    augmentation : str, object, callable or None, default="moco"
    n_neighbors : int, default=0
    max_epochs : int, default=100
    batch_size : int, default=256
    lr : float, default=0.3
    weight_decay : float, default=1e-4
    image_shape : tuple, default=None
    device : str or torch.device, default="auto"
    precision : {"auto", "float32", "bfloat16"}, default="auto"
    callbacks : list of skorch callbacks, default=None
    checkpoint : str or path-like, default=None
    distributed : bool, default=True
    warm_start : bool, default=False
    verbose : int, default=0
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    backbone_ : nn.Module
        The trained network. It can be the `backbone` of a :class:`MiCEClustering`;
        weights that `freeze` has frozen stay frozen.
    history_ : list of dict
        Figures for every epoch; see :class:`MiCEClustering`.
    n_iter_ : int
        Epochs trained.
    neighbors_recall_ : float or None
        See :class:`MiCEClustering`.
    augmentation_ : object
        `augmentation` with every "auto" replaced by what was decided.
    device_ : torch.device
        Device of the model.
    n_features_in_ : int
        Number of values of a sample.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns, if X has any.

    See Also
    --------
    MiCEClustering : The mixture of which this is a special case.
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
    >>> moco = MoCo(max_epochs=2, random_state=0).fit(X)
    >>> moco.transform(X).shape
    (200, 128)
    """

    def __init__(
        self,
        *,
        backbone: Any = "auto",
        freeze=None,
        embedding_dim=128,
        tau=1.0,
        queue_size=16384,
        augmentation: Any = "moco",
        n_neighbors=0,
        max_epochs=100,
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
        self.backbone = backbone
        self.freeze = freeze
        self.embedding_dim = embedding_dim
        self.tau = tau
        self.queue_size = queue_size
        self.augmentation = augmentation
        self.n_neighbors = n_neighbors
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

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None) -> Self:
        """Learn the encoder.

        Parameters
        ----------
        X : array-like or torch.utils.data.Dataset
            Images or vectors, see :meth:`MiCEClustering.fit`.
        y : Ignored
            Present for API consistency by convention.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError, ImportError, FloatingPointError, OSError, RuntimeError
            As :meth:`MiCEClustering.fit`.

        Warns
        -----
        ConvergenceWarning
            If Ctrl-C ended the fit.
        UserWarning
            As :meth:`MiCEClustering.fit`.
        """
        return self._fit(X)

    def _n_epochs(self) -> dict[str, int]:
        return {"moco": self.max_epochs}

    def _n_heads(self):
        return 1, 0  # of the experts, of the gate

    def _model_options(self, seed) -> dict:
        return moco_options()

    def _train(self, run, task) -> None:
        self._run_stage(run, run.model, task, self.max_epochs, "moco")

    def _judge(self, run, task) -> None:
        task.restarts.done(run, 0.0, None)  # there is one run only

    def transform(self, X, *, out=None) -> Any:
        """Embed samples with the teacher.

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
        return self._infer_into(out, X, "teacher", then=lambda v: v[:, 0])

    def score(self, X, y=None) -> float:
        """Mean log p(y | x) of the samples: the negative InfoNCE loss on the queue.

        Compare it only between models with the same `tau` and queue size.

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
        NotFittedError, ValueError, TypeError
            As in `transform`, and with the same warning.
        """
        (joint,) = self._infer(X, "joint")
        return float(joint.mean(dtype=np.float64))
