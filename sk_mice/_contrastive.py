"""What the estimators that train share: parameters, set-up, training, inference."""

import copy
import math
import os
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from numbers import Integral

import numpy as np
import torch
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from ._bars import tqdm
from ._check_input import check_samples, check_samples_like
from ._checkpoint import Checkpoint, SaveProgress
from ._constraints import LARGEST_COUNT, Count, Number
from ._engine.ambient import OwnDraws, own_settings, spawn_seed
from ._engine.backbones import backbone_name, build_backbone, check_training
from ._engine.inference import Inference
from ._engine.memory import kept_memory
from ._engine.model import ContrastiveMixture
from ._engine.neighbors import Neighbors, find_neighbors
from ._engine.samples import Samples, infer_format
from ._engine.schedule import check_schedule, learning_rate
from ._engine.size import check_size
from ._engine.trainer import Trainer
from ._engine.views import NO_TILT, check_affine, make_views
from ._engine.views.invariances import images_lean, mirror_images_look_alike
from ._identity import identity
from ._interrupt import Interrupt
from ._progress import WORDS, FitBar, Follow, Progress, Run
from ._resolve import (
    check_callbacks,
    check_views,
    draw_seeds,
    resolve_device,
    resolve_precision,
)

# Beyond these, what is computed with them soon leaves the range of float32.
SMALLEST_TEMPERATURE = 1e-3
LARGEST_RATE = 1e6


@dataclass(frozen=True)
class Setup:
    """What a fit works with, made of the parameters and X before training."""

    samples: Samples
    views: object
    neighbors: Neighbors | None
    device: torch.device
    autocast_dtype: torch.dtype | None
    batch_size: int
    queue_size: int
    queue_dtype: torch.dtype
    bar: FitBar
    interrupt: Interrupt
    progress: Progress
    checkpoint: Checkpoint | None

    def __enter__(self):
        """Wait for Ctrl-C."""
        self.interrupt.__enter__()
        return self

    def __exit__(self, *error):
        """Wait no longer, and close the progress bar."""
        self.bar.close()
        self.interrupt.__exit__(*error)


@contextmanager
def unchanged_on_error(estimator):
    """Fit with settings of our own; leave the estimator as it was if that fails."""
    before = vars(estimator).copy()
    try:
        with own_settings():
            yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


# Rotation and shear of views of images that lean, in degrees. Chosen on handwriting.
USUAL_TILT = (10.0, 10.0)
# What leaves the model of the last whole epoch. The last is of checkpoints.
STOPS = (KeyboardInterrupt, FloatingPointError, OSError)


class ContrastiveEstimator(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """Base of the estimators that train a :class:`ContrastiveMixture`."""

    _parameter_constraints: dict = {
        "backbone": "no_validation",  # build_backbone says what fits the samples
        "embedding_dim": [Count(1, LARGEST_COUNT)],
        "tau": [Number(SMALLEST_TEMPERATURE, np.inf, closed="left")],
        "queue_size": [Count(1)],
        "queue_precision": [StrOptions({"auto", "float32", "bfloat16"})],
        "teacher_momentum": [Number(0, 1, closed="left")],
        "augmentation": "no_validation",  # make_views knows the samples
        "n_neighbors": [Count(0)],
        "flip": ["boolean", StrOptions({"auto"})],
        "crop_scale": "no_validation",
        "affine": "no_validation",
        "max_epochs": [Count(1, LARGEST_COUNT)],
        "batch_size": [Count(2)],
        "lr": [Number(0, LARGEST_RATE, closed="right")],
        "weight_decay": [Number(0, LARGEST_RATE, closed="both")],
        "schedule": "no_validation",  # check_schedule takes callables, too
        "warmup": [Number(0, 1, closed="left")],
        "image_shape": [tuple, list, None],
        "layout": [StrOptions({"auto", "channels_last", "channels_first"})],
        "value_range": [StrOptions({"auto"}), tuple, list],
        "device": [str, torch.device],
        "precision": [StrOptions({"auto", "float32", "bfloat16"})],
        "callbacks": [list, tuple, None],
        "checkpoint": [str, os.PathLike, None],
        "checkpoint_every": [Count(1)],
        "warm_start": ["boolean"],
        "verbose": ["verbose"],
        "random_state": [Count(0, 2**32 - 1), np.random.RandomState, None],
    }

    # What decides the model and how X is read, which a warm start takes over.
    _of_the_model = (
        *("backbone", "queue_size", "queue_precision"),
        *("image_shape", "layout", "value_range"),
    )

    # ------------------------------------------------------------- before training

    def _check_fit_X(self, X):
        """Validate X and learn its format; a warm start keeps the one it has."""
        if self._continues:
            return check_samples_like(self, X, self._format)
        X = check_samples(self, X)
        self._format = infer_format(
            X,
            layout=self.layout,
            image_shape=self.image_shape,
            value_range=self.value_range,
        )
        return X

    @property
    def _continues(self) -> bool:
        return self.warm_start and hasattr(self, "_model")

    def _check_continuation(self, n_experts: int) -> None:
        """A warm start keeps the model, and so its shape."""
        asked = (n_experts, self.embedding_dim)
        if self._continues and asked != tuple(self._model.queue.shape[1:]):
            raise ValueError(
                "`n_clusters` and `embedding_dim` must be those of the fitted model, "
                f"{tuple(self._model.queue.shape[1:])}, for a warm start; got {asked}."
            )
        was_fitted_with = getattr(self, "_fitted_with", {})  # unknown in older files
        for name, was in was_fitted_with.items() if self._continues else ():
            if not _is_same(getattr(self, name), was):
                raise ValueError(
                    f"`{name}` must be as in the fit that `warm_start` goes on from, "
                    f"{was!r}; got {getattr(self, name)!r}."
                )

    def _setup(self, X, progress: Progress, checkpoint=None, labels=None) -> Setup:
        check_schedule(self.schedule)
        check_callbacks(self.callbacks)
        device = resolve_device(self.device)
        autocast_dtype = resolve_precision(self.precision, device, self._format)
        queue_dtype = getattr(torch, self.queue_precision, autocast_dtype)
        samples = Samples(X, self._format, device)
        self._decide_geometry(samples)
        views = self._make_views(self.flip_, self.affine_)
        if callable(self.augmentation):
            with OwnDraws(0):
                check_views(views, samples)
        n_epochs = self._n_epochs(labels)
        n_restarts = len(progress.seeds)
        n_epochs = {stage: n * n_restarts for stage, n in n_epochs.items()}
        queue_dtype = queue_dtype or torch.float32
        queue_size = min(self.queue_size, len(X))
        self._check_size(views.out_shape, queue_size, queue_dtype, device)
        return Setup(
            samples=samples,
            views=views,
            neighbors=self._find_neighbors(samples),
            device=device,
            autocast_dtype=autocast_dtype,
            batch_size=min(self.batch_size, len(X)),
            queue_size=queue_size,
            queue_dtype=queue_dtype,
            bar=FitBar(type(self).__name__, n_epochs, shown=bool(self.verbose)),
            interrupt=Interrupt(self._say_stopping),
            progress=progress,
            checkpoint=checkpoint,
        )

    def _say_stopping(self) -> str:
        return (
            f"{type(self).__name__} stops and first makes a model of its whole epochs, "
            "which can take some seconds. Press Ctrl-C again to stop without a model."
        )

    def _check_size(self, shape, queue_size, queue_dtype, device) -> None:
        if self._continues:  # the model is there
            return
        n_experts = getattr(self, "n_clusters", 1)
        shared = getattr(self, "expert_heads", "own") == "shared"
        check_size(
            self.backbone,
            shape,
            n_heads=(1 if shared else n_experts) + hasattr(self, "n_clusters"),  # gate
            queue_shape=(queue_size, n_experts, self.embedding_dim),
            queue_dtype=queue_dtype,
            two_stage=getattr(self, "init", None) == "two-stage",
            device=device,
        )

    def _find_neighbors(self, samples):
        if self.n_neighbors == 0:
            return None
        return find_neighbors(samples, self.n_neighbors)

    def _open_checkpoint(self, X, init_labels):
        """The checkpoint that is asked for, and what it knows of this fit."""
        if self.checkpoint is None:
            return None, None
        model = dict(self._model.state_dict()) if self._continues else None
        fit = identity(self, X=X, init_labels=init_labels, model=model)
        checkpoint = Checkpoint(self.checkpoint, self.checkpoint_every, fit)
        return checkpoint, checkpoint.load()

    def _decide_geometry(self, samples) -> None:
        """Whether views are mirrored, and how far they are turned and sheared."""
        self.flip_, self.affine_ = False, NO_TILT
        if not samples.format.is_image:
            return
        decides_tilt = isinstance(self.affine, str) and self.affine == "auto"
        affine = NO_TILT if decides_tilt else check_affine(self.affine)
        if not isinstance(self.augmentation, str):
            return
        flip = mirror_images_look_alike(samples) if self.flip == "auto" else self.flip
        if decides_tilt and images_lean(samples):
            affine = USUAL_TILT
        self.flip_, self.affine_ = bool(flip), affine

    # Predictions see the plain image.
    def _make_views(self, flip=False, affine=NO_TILT):
        fmt = self._format
        mean, std = fmt.mean, fmt.std
        if not fmt.is_image:  # Samples has standardised them
            mean, std = [0.0] * len(mean), [1.0] * len(std)
        return make_views(
            fmt.shape,
            mean=mean,
            std=std,
            augmentation=self.augmentation,
            flip=flip,
            crop_scale=self.crop_scale,
            affine=affine,
        )

    # -------------------------------------------------------------------- training

    def _fit_restarts(self, X, n_restarts: int, init_labels=None) -> Progress:
        """Run from each seed, or go on where a checkpoint ends; keep the best."""
        checkpoint, saved = self._open_checkpoint(X, init_labels)
        seeds = saved["seeds"] if saved else draw_seeds(self.random_state, n_restarts)
        progress = Progress(seeds)
        run = None
        with (
            self._setup(X, progress, checkpoint, init_labels) as setup,
            kept_memory(setup.device),
        ):
            if saved is not None:
                run = self._take_up(setup, saved, init_labels)
            for seed in seeds[len(progress.partitions) :]:
                run = run or self._begin(setup, seed, init_labels)
                try:
                    self._run(run, setup, seed)
                    progress.done(run, *self._judge(run, setup))
                    if checkpoint is not None:
                        checkpoint.save(progress.record())
                except STOPS as error:
                    progress.stopped_by = error
                    if setup.interrupt.again:
                        raise
                    if progress.best is None:
                        if not (run.ready and run.history):
                            raise
                        progress.done(run, *self._judge(run, setup))
                    break
                run = None
        self._keep(progress.best)
        return progress

    def _take_up(self, setup: Setup, saved: dict, init_labels) -> Run | None:
        """Put what a checkpoint kept into the progress; returns the run of then."""
        progress = setup.progress
        progress.partitions, progress.elbo = saved["partitions"], saved["elbo"]
        progress.labels = saved["labels"]
        if saved["best"] is not None:
            weights = saved["best"].pop("weights")
            seed = progress.seeds[0]  # of weights that are replaced
            progress.best = Run(**vars(self._begin(setup, seed)) | saved["best"])
            progress.best.model.load_state_dict(weights)
            progress.best.model.eval()
            setup.interrupt.waits = True
        n_restarts, run = len(progress.partitions), None
        n_epochs = {s: n * n_restarts for s, n in self._n_epochs(init_labels).items()}
        if saved["run"] is not None:
            seed = progress.seeds[n_restarts]
            run = self._begin(setup, seed, init_labels)
            run = Run(**vars(run) | saved["run"])
            for row in run.history:
                n_epochs[row["stage"]] += 1
        if self.verbose:
            n_all = sum(n_epochs.values()) + len(run.state["history"] if run else ())
            tqdm.write(
                f"{type(self).__name__} goes on after {n_all} epochs, from "
                f"{str(setup.checkpoint.path)!r}."
            )
        for stage, n in n_epochs.items():
            setup.bar.pass_over(stage, n)
        return run

    def _build_moco(self, setup: Setup, seed: int) -> ContrastiveMixture:
        """MiCE under Assumptions A3 to A5: one expert, no gate, no prototypes."""
        return self._build(setup, seed, n_experts=1, omega=None, kappa=math.inf)

    def _build(self, setup: Setup, seed: int, *, n_experts, omega, kappa, **more):
        """A model with fresh weights, a function of the seed; in evaluation mode."""
        with OwnDraws(seed):
            shape = setup.views.out_shape
            backbone = build_backbone(self.backbone, shape, device=setup.device)
            model = ContrastiveMixture(
                backbone,
                shape,
                n_experts=n_experts,
                embedding_dim=self.embedding_dim,
                queue_size=setup.queue_size,
                omega=omega,
                tau=self.tau,
                kappa=kappa,
                queue_dtype=setup.queue_dtype,
                backbone_name=backbone_name(self.backbone, shape, device=setup.device),
                **more,
            )
            if model.backbone_name is None:
                check_training(backbone, shape)
        return model.to(setup.device, memory_format=torch.channels_last).eval()

    def _train(self, run: Run, model, setup, seed, n_epochs, stage, **more) -> None:
        """Train the model in place and add an entry an epoch to the run's history.

        Whatever of `STOPS` comes on the way, the model is that of the last whole epoch.
        """
        seed = spawn_seed(seed, "stage", run.stage)
        trainer = self._make_trainer(model, setup, seed, n_epochs, stage, **more)
        if setup.checkpoint is not None:
            trainer.callbacks.append(
                SaveProgress(setup.checkpoint, partial(setup.progress.record, run))
            )
        setup.bar.say(WORDS[stage])
        if run.state is not None:
            setup.bar.pass_over(stage, len(run.state["history"]))
        try:
            trainer.begin(setup.samples, run.state)
            run.ready = run.ready or model is run.model
            try:
                trainer.train()
            except STOPS:
                trainer.rewind()
                self._note_stage(run, model, trainer, stage)
                raise
        finally:
            model.eval()
        self._note_stage(run, model, trainer, stage)
        setup.bar.pass_over(stage, n_epochs - len(trainer.history))  # EarlyStopping
        run.stage += 1

    def _note_stage(self, run: Run, model, trainer: Trainer, stage: str) -> None:
        run.state = None
        model.round_queue()
        before = sum(row["stage"] == stage for row in run.history)
        for row in trainer.history_rows():
            row["epoch"] += before
            run.history.append({"stage": stage} | row)

    def _make_trainer(
        self, model, setup, seed, n_epochs, stage, lr=None, **more
    ) -> Trainer:
        lr = self.lr if lr is None else lr
        views_seed = spawn_seed(seed, "views")
        order_seed = spawn_seed(seed, "order")
        return Trainer(
            model,
            views=setup.views,
            neighbors=setup.neighbors,
            generator=torch.Generator(setup.device).manual_seed(views_seed),
            order_generator=torch.Generator().manual_seed(order_seed),
            rate=learning_rate(lr, self.schedule, self.warmup),
            weight_decay=self.weight_decay,
            teacher_momentum=self.teacher_momentum,
            autocast_dtype=setup.autocast_dtype,
            n_epochs=n_epochs,
            batch_size=setup.batch_size,
            callbacks=[
                Follow(setup.bar, setup.interrupt, stage),
                *(self.callbacks or ()),
            ],
            stop_requested=lambda: setup.interrupt.came,
            **more,
        )

    def _copy_of_fitted_model(self, setup: Setup):
        """The model that a warm start goes on with, with the temperatures of now."""
        model = copy.deepcopy(self._model).to(setup.device)
        model.tau = self.tau
        return model

    # ------------------------------------------------------------------- inference

    def _infer(self, X, *wanted):
        """Any of what the model can infer about X, see :func:`infer`."""
        check_is_fitted(self)
        with own_settings():
            X = check_samples_like(self, X, self._format)
            samples = Samples(X, self._format, self.device_)
            found = infer(self._model, self._make_views(), samples, *wanted)
        if not all(np.isfinite(values).all() for values in found):
            raise ValueError("X must hold values that the `backbone` can compute with.")
        return found

    def _end(self, stopped_by) -> None:
        """Say what stopped a fit, if anything did; the estimator is fitted."""
        if stopped_by is None:
            return
        if not isinstance(stopped_by, KeyboardInterrupt):
            raise stopped_by
        warnings.warn(
            f"`fit` was interrupted: the model is that of {self.n_iter_} whole epochs.",
            ConvergenceWarning,
            stacklevel=4,  # where `fit` was called
        )

    def _keep(self, run: Run) -> None:
        if not self._continues:
            kept = {name: getattr(self, name) for name in self._of_the_model}
            self._fitted_with = kept
        self._model = run.model
        self.history_ = run.history
        self.n_iter_ = len(run.history)

    @property
    def device_(self) -> torch.device:
        """Where the fitted model is."""
        return self._model.queue.device

    @property
    def backbone_(self):
        """The trained module; can be passed on as another estimator's `backbone`."""
        check_is_fitted(self)
        return self._model.student.backbone

    @property
    def _n_features_out(self):
        return self._model.queue.shape[2]

    def __sklearn_is_fitted__(self):
        """Whether there is a model: an interrupted `fit` leaves attributes, too."""
        return hasattr(self, "_model")

    def __sklearn_tags__(self):
        """Describe the estimator to scikit-learn."""
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def __getstate__(self):
        """Pickle on the CPU, so that a file loads where there is no other device."""
        state = super().__getstate__().copy()
        if "_model" in state and self.device_.type != "cpu":
            state["_model"] = copy.deepcopy(self._model).cpu()
        return state


def _is_same(value, was) -> bool:
    """Whether a parameter is the same, though perhaps a list and no longer a tuple."""
    if isinstance(was, list | tuple) and isinstance(value, list | tuple):
        return list(value) == list(was)
    return value is was or (isinstance(was, str | Integral) and value == was)


def infer(model, views, samples: Samples, *wanted) -> list[np.ndarray]:
    """Run the model, in evaluation mode, over all samples in order.

    Parameters
    ----------
    model : ContrastiveMixture
    views : ImageViews or VectorViews
    samples : Samples
    *wanted : str
        What :class:`Inference` can tell.

    Returns
    -------
    list of ndarray
        What is wanted, for all samples, in float32.
    """
    parts, inference = [], Inference(model)
    for batch in samples.in_order(inference.batch_size(views.out_shape)):
        known = inference(views.plain(batch), *wanted)
        parts.append([value.cpu() for value in known])
    return [torch.cat(columns).numpy() for columns in zip(*parts, strict=True)]


def infer_finite(model, setup: Setup, what: str) -> np.ndarray:
    """One thing of the training samples, or FloatingPointError."""
    (value,) = infer(model, setup.views, setup.samples, what)
    if not np.isfinite(value).all():
        raise FloatingPointError(
            "What the model infers is not finite. Try a lower `lr`, a longer `warmup` "
            "or higher temperatures."
        )
    return value
