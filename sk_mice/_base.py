"""What the estimators that train share: parameters, a fit's steps, predictions."""

import copy
import inspect
import math
import os
import sys
from contextlib import contextmanager
from numbers import Real
from typing import Self

import numpy as np
import torch
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from . import augmentation, backbones
from ._busy_cores import BusyCores
from ._callbacks import EpochProgress, LookForBusyCores, check_callbacks
from ._check_input import (
    check_samples,
    check_samples_like,
    check_shape_like,
    check_values_like,
)
from ._checkpoint import Checkpoint, Restarts, Run, SaveProgress
from ._constraints import (
    LARGEST_COUNT,
    RANDOM_STATE,
    SMALLEST_TEMPERATURE,
    Count,
    Number,
)
from ._device import check_size, is_worker, resolve_device, resolve_precision
from ._engine.ambient import OwnDraws, own_settings, spawn_seed
from ._engine.distributed import Group, open_group
from ._engine.format import SampleFormat, infer_format
from ._engine.inference import Inference
from ._engine.model import ContrastiveMixture
from ._engine.nearest import warn_of_recall
from ._engine.neighbors import find_neighbors
from ._engine.samples import Samples, batches_per_epoch
from ._engine.schedule import cosine, teacher_momentum
from ._engine.trainer import Trainer
from ._engine.views import ImageViews, VectorViews
from ._engine.warn import warn_user
from ._fitting import fitting
from ._freeze import trained_blocks
from ._identity import facts, identity
from ._interruption import Interrupt
from ._output import check_output, filled
from ._progress_bar import WORDS, FitBar, tqdm
from ._short_names import with_objects
from ._task import Task
from ._words import count

# Beyond this, results leave the range of float32.
LARGEST_RATE = 1e6
# Errors after which the model of the last complete epoch is kept. Checkpoints raise
# OSError.
STOPS = (KeyboardInterrupt, FloatingPointError, OSError)


class ContrastiveEstimator(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """Base of the estimators that train a :class:`ContrastiveMixture`.

    A subclass says how many epochs each stage has (`_n_epochs`), how many heads the
    experts and the gate have (`_n_heads`) and with which options a model is built
    (`_model_options`). It trains a run (`_train`), and gives it its labels and its ELBO
    (`_judge`).
    """

    _parameter_constraints: dict = {
        "backbone": "no_validation",  # resolve_backbone says what fits the samples
        "freeze": [
            StrOptions({"all but last"}),
            Count(-backbones.LARGEST_DEPTH, backbones.LARGEST_DEPTH),
            None,
        ],
        "embedding_dim": [Count(1, LARGEST_COUNT)],
        "tau": [Number(SMALLEST_TEMPERATURE, np.inf, closed="left")],
        "queue_size": [Count(1)],
        "augmentation": "no_validation",  # resolve_augmentation knows the samples
        "n_neighbors": [Count(0)],
        "max_epochs": [Count(1, LARGEST_COUNT)],
        "batch_size": [Count(2)],
        "lr": [Number(0, LARGEST_RATE, closed="right")],
        "weight_decay": [Number(0, LARGEST_RATE, closed="both")],
        "image_shape": [tuple, list, None],
        "device": [str, torch.device],
        "precision": [StrOptions({"auto", "float32", "bfloat16"})],
        "callbacks": [list, tuple, None],
        "checkpoint": [str, os.PathLike, None],
        "distributed": ["boolean"],
        "warm_start": ["boolean"],
        "verbose": ["verbose"],
        "random_state": RANDOM_STATE,
    }
    # Parameters that determine the model and how X is read: a warm start keeps them.
    _of_the_model: tuple[str, ...] = ("backbone", "queue_size", "image_shape")
    # `out` says where predictions go; a meta-estimator must not pass it on.
    __metadata_request__transform = {"out": UNUSED}
    _format: SampleFormat  # once `fit` has read X
    # The objects for which the short names of a parameter stand.
    _NAMED = {
        "augmentation": augmentation.NAMED,
        "backbone": {name: (spec,) for name, spec in backbones.NAMED.items()},
    }

    def __init_subclass__(cls, **options):
        """Give `__init__` the signature that scikit-learn reads the parameters from.

        A variant names its own parameters, and passes on the others as `**parameters`.
        """
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__.__signature__ = _whole_signature(cls)

    def set_params(self, **params) -> Self:
        """Set parameters, also those of the object that a short name stands for.

        Parameters
        ----------
        **params : dict
            ``augmentation__flip=False`` turns ``augmentation="moco"`` into the
            `ImageAugmentation` that the name stands for, and sets its `flip`.

        Returns
        -------
        self
        """
        return super().set_params(**with_objects(self, params, self._NAMED))

    # ---------------------------------------------------------------- the whole fit

    def _fit(self, X):
        """The steps of a fit; if one of them fails, the estimator is restored."""
        with fitting(self), own_settings(), self._open_group() as group:
            X = self._check(X)
            task = self._prepare(X, group)
            with task.running():
                for run in task.restarts:
                    with self._kept(run, task):
                        self._initialise(run, task)
                        self._train(run, task)
                        self._judge(run, task)
            self._finish(task)
        self._warn(task)
        return self

    # --------------------------------------------------------------- check, prepare

    @contextmanager
    def _open_group(self):
        group, failed = open_group(self.distributed and not is_worker()), True
        try:
            yield group
            failed = False
        except Exception as error:
            group.refuse(error)
            if isinstance(error, RuntimeError):
                group.explain(error)
            raise
        finally:
            group.close(failed)

    def _validate_params(self):
        """Validate the parameters; all processes of a fit learn of a refusal."""
        try:
            super()._validate_params()
        except ValueError:
            with self._open_group():  # which tells the others
                raise

    @property
    def _continues(self) -> bool:
        return self.warm_start and hasattr(self, "_model")

    @property
    def _is_two_stage(self) -> bool:
        """Whether a second model waits while MoCo trains."""
        return False

    def _check(self, X):
        """X as an array of numbers whose format is known; parameters that fit it."""
        check_callbacks(self.callbacks)
        if self._continues:
            self._check_continuation()
            return check_samples_like(self, X, self._format, least=2)
        X = check_samples(self, X)
        self._format = infer_format(X, self.image_shape)
        if self._format.is_image and backbones.takes_pixels(self.backbone):
            self._format = self._format.unstandardised()
        return X

    def _check_continuation(self) -> None:
        """A warm start keeps the model, and so its shape."""
        model = self._model
        kept = {"n_clusters": model.n_experts, "embedding_dim": model.embedding_dim}
        for name, value in (kept | self._fitted_with).items():
            # MoCo has no `n_clusters`.
            if not _is_same(getattr(self, name, value), value):
                raise ValueError(
                    f"`{name}` must be as in the fit that `warm_start` goes on from, "
                    f"{value!r}; got {getattr(self, name)!r}."
                )

    def _prepare(self, X, group: Group) -> Task:
        """Data on the device, views, sizes and the checkpoint, as a `Task`."""
        device = resolve_device(self.device, group.local_rank)
        autocast_dtype = resolve_precision(self.precision, device, self._format)
        if group.size > 1:
            self._check_alike(X, group, device, autocast_dtype)
        samples = Samples(X, self._format, device)
        self.augmentation_ = self._resolve_augmentation(samples, group)
        views = self._make_views(device, self.augmentation_)
        if callable(self.augmentation_):
            _try(views, samples)
        with OwnDraws(0):
            shape = views.out_shape
            backbone = backbones.resolve_backbone(self.backbone, shape, device)
            self._check_freeze(backbone, shape)
        queue_dtype = autocast_dtype or torch.float32
        queue_size = min(self.queue_size, len(X))
        batch_size = min(self.batch_size, len(X))
        self._check_batches(len(X), batch_size, group)
        if not self._continues:
            self._check_size(backbone, shape, queue_size, queue_dtype, device)
        checkpoint, saved, seeds = self._find_progress(X, group)
        if saved:
            self._check_device(checkpoint, saved, device)
        neighbors = None
        if self.n_neighbors:
            seed = spawn_seed(seeds[0], "neighbors")
            neighbors = find_neighbors(samples, self.n_neighbors, seed, group)
            warn_of_recall(neighbors.recall)
        n_epochs = {stage: n * len(seeds) for stage, n in self._n_epochs().items()}
        task = Task(
            group=group,
            samples=samples,
            views=views,
            neighbors=neighbors,
            backbone=backbone,
            device=device,
            autocast_dtype=autocast_dtype,
            batch_size=batch_size,
            queue_size=queue_size,
            queue_dtype=queue_dtype,
            cores=BusyCores(),
            bar=FitBar(n_epochs, shown=bool(self.verbose) and group.first),
            interrupt=Interrupt(is_announced=group.first),
            restarts=Restarts(seeds, checkpoint, device.type),
        )
        if saved:
            self._resume(task, saved)
        return task

    def _find_progress(self, X, group: Group) -> tuple:
        """The checkpoint and what it holds, or None, and the seeds of the restarts."""
        checkpoint = saved = None
        if self.checkpoint is not None:
            checkpoint = group.from_first(
                lambda: Checkpoint(self.checkpoint, identity(self, **self._given(X)))
            )
            saved = group.from_first(checkpoint.load)
            if not (saved and len(saved["partitions"]) == len(saved["seeds"])):
                group.from_first(checkpoint.check_writable)
        if saved:
            return checkpoint, saved, saved["seeds"]
        rng = check_random_state(self.random_state)
        n_restarts = 1 if self._continues else getattr(self, "n_init", 1)
        seeds = rng.randint(2**31 - 1, size=n_restarts).tolist()
        return checkpoint, saved, group.from_first(lambda: seeds)

    def _check_device(self, checkpoint, saved: dict, device) -> None:
        """Refuse what began on another kind of device and cannot go on here.

        Generators have other states there, and `backbone`="auto" another network.
        """
        began = saved.get("device", device.type)
        chosen = isinstance(self.backbone, str) and self.backbone == "auto"
        bound = "run" in saved or (chosen and self._format.is_image)
        if began != device.type and bound:
            raise ValueError(
                f"The fit in {str(checkpoint.path)!r} was begun on a {began} device "
                f"and cannot continue on a {device.type} device. Fit on a {began} "
                "device, or use another folder as `checkpoint`."
            )

    def _check_size(self, backbone, shape, queue_size, queue_dtype, device) -> None:
        n_heads, n_gates = self._n_heads()
        with OwnDraws(0):
            n_weights, n_features = backbones.weight_count(backbone, shape)
        known = isinstance(backbone, backbones.Backbone)
        vectors = "" if len(shape) == 3 else f" for {shape[0]} features"
        check_size(
            n_weights,
            n_features,
            (repr(backbone) if known else type(backbone).__name__) + vectors,
            n_heads=n_heads + n_gates,
            queue_shape=(queue_size, n_heads, self.embedding_dim),
            queue_dtype=queue_dtype,
            two_stage=self._is_two_stage,
            device=device,
        )

    def _check_freeze(self, backbone, shape) -> None:
        """Refuse a `freeze` that does not fit the network, before the work begins.

        The network of a factory is checked when it is built.
        """
        if self.freeze is None:
            return
        if self._continues:
            backbone = self._model.student.backbone
        elif isinstance(backbone, backbones.Backbone):
            with torch.device("meta"):
                backbone = backbone.build(shape)
        if isinstance(backbone, torch.nn.Module):
            trained_blocks(backbone, self.freeze)

    def _given(self, X) -> dict:
        """What determines a fit, besides the parameters."""
        model = dict(self._model.state_dict()) if self._continues else None
        return {"X": X, "model": model}

    def _check_alike(self, X, group: Group, device, autocast_dtype) -> None:
        """Check that all processes were given the same, and compute alike."""
        known = facts(self, **self._given(X))
        own = {"the device": device.type, "the precision": str(autocast_dtype)}
        group.agree(known | {name: (value, value) for name, value in own.items()})

    def _check_batches(self, n_samples: int, batch_size: int, group: Group) -> None:
        """Check that batch norm has two samples in every process."""
        n_rows = n_samples // batches_per_epoch(n_samples, batch_size)
        if group.size > 1 and n_rows < 2 * group.size:
            raise ValueError(
                "`batch_size` and X must give each process at least two samples of "
                f"each batch; {group.size} processes share batches of {n_rows}."
            )

    def _resolve_augmentation(self, samples, group: Group):
        def resolve():
            return augmentation.resolve_augmentation(self.augmentation, samples)

        # A user's function is the same in all processes, and cannot always be pickled.
        return resolve() if callable(self.augmentation) else group.from_first(resolve)

    def _resume(self, task: Task, saved: dict) -> None:
        """Restore the progress of a checkpoint in a task."""
        restarts = task.restarts
        restarts.resume(saved, lambda seed: self._first_model(task, seed))
        task.interrupt.waits = restarts.best is not None
        n_whole, run = len(restarts.partitions), restarts.resumed
        n_epochs = {stage: n * n_whole for stage, n in self._n_epochs().items()}
        n_of_run = 0
        if run is not None:
            for row in run.history:
                n_epochs[row["stage"]] += 1
            n_of_run = len(run.state["history"])
        if self.verbose and task.group.first and sys.stderr is not None:
            tqdm.write(
                f"{type(self).__name__} goes on after "
                f"{sum(n_epochs.values()) + n_of_run} epochs, from "
                f"{str(restarts.checkpoint.path)!r}.",
                file=sys.stderr,
            )
        for stage, n in n_epochs.items():
            task.bar.advance(stage, n)
        n_trained = len(restarts.best.history) if restarts.best else self.max_epochs
        if n_trained < self.max_epochs and not self.callbacks and task.group.first:
            warn_user(
                f"The fit in {str(restarts.checkpoint.path)!r} was ended by one of its "
                f"`callbacks` after {n_trained} of {self.max_epochs} epochs. To train "
                "for all of them, use another folder as `checkpoint`."
            )

    def _make_views(self, device, augmentation=None):
        """Views with an augmentation; without one plain samples, as predictions see."""
        fmt = self._format
        if not fmt.is_image:
            return VectorViews(fmt.shape, augmentation)
        statistics = {"mean": fmt.mean, "std": fmt.std}
        return ImageViews(fmt.shape, augmentation, **statistics, device=device)

    # -------------------------------------------------------------- initialise, train

    @contextmanager
    def _kept(self, run: Run, task: Task):
        """Save a run at its end; judge one that stops after a complete epoch."""
        restarts = task.restarts
        try:
            yield
            task.group.from_first(restarts.save)
        except STOPS as error:
            restarts.stopped_by = error
            if task.interrupt.again:
                raise
            if restarts.best is None:
                if not (run.ready and run.history):
                    raise
                run.interrupted = True
                self._judge(run, task)

    def _initialise(self, run: Run, task: Task) -> None:
        """The model of a run."""
        run.model = self._first_model(task, run.seed)

    def _first_model(self, task: Task, seed: int) -> ContrastiveMixture:
        """The model with which a run begins: new, or that of the warm start."""
        if not self._continues:
            return self._build(task, seed, **self._model_options(seed))
        model = copy.deepcopy(self._model).to(task.device)
        model.queue = model.queue.to(task.queue_dtype)  # `precision` may have changed
        for name in {"tau", "kappa"} & self.get_params(deep=False).keys():
            setattr(model, name, getattr(self, name))
        model.train_only(trained_blocks(model.student.backbone, self.freeze))
        return model

    def _build(self, task: Task, seed: int, *, n_experts, **options):
        """A model with fresh weights, a function of the seed; in evaluation mode."""
        # Subclasses of the user's may build any other network.
        is_ours = type(task.backbone) in backbones.OURS
        shape = task.views.out_shape
        with OwnDraws(seed):
            network = backbones.build_backbone(task.backbone, shape)
            n_features = backbones.feature_count(network, shape)
            own_format = None
            if not is_ours:
                backbones.check_training(network, shape)
                own_format = backbones.own_format(network, shape)
                if self.checkpoint is not None:
                    backbones.check_state(network)
            model = ContrastiveMixture(
                network,
                n_features,
                n_experts=n_experts,
                embedding_dim=self.embedding_dim,
                queue_size=task.queue_size,
                tau=self.tau,
                queue_dtype=task.queue_dtype,
                description=task.backbone if is_ours else None,
                own_format=own_format,
                **options,
            )
        model.train_only(trained_blocks(network, self.freeze))
        return model.placed(task.device)

    def _run_stage(self, run: Run, model, task, n_epochs, stage, **options) -> None:
        """Train the model in place and add each epoch to the history of the run.

        After an error of `STOPS`, the model is that of the last complete epoch.
        """
        options["fill_queue"] = not (self._continues or run.history)
        trainer = self._make_trainer(run, model, task, n_epochs, stage, **options)
        task.bar.say(WORDS[stage])
        if run.state is not None:
            task.bar.advance(stage, len(run.state["history"]))
        try:
            trainer.begin(task.samples, run.state)
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
        task.bar.advance(stage, n_epochs - len(trainer.history))  # EarlyStopping
        run.stage += 1

    def _note_stage(self, run: Run, model, trainer: Trainer, stage: str) -> None:
        run.state = None
        model.round_queue()
        before = sum(row["stage"] == stage for row in run.history)
        for row in trainer.history_rows():
            row["epoch"] += before
            run.history.append({"stage": stage} | row)

    def _make_trainer(self, run, model, task, n_epochs, stage, lr=None, **options):
        seed = spawn_seed(run.seed, "stage", run.stage)
        views_seed, order_seed = spawn_seed(seed, "views"), spawn_seed(seed, "order")
        progress = EpochProgress(task.bar, task.interrupt, stage)
        callbacks = [progress, *(self.callbacks or ())]
        if task.device.type == "cpu" and task.group.size == 1:
            callbacks.append(LookForBusyCores(task.cores))
        if self.checkpoint is not None:
            callbacks.append(SaveProgress(task.restarts, run, task.group))
        return self._trainer_class(
            model,
            views=task.views,
            neighbors=task.neighbors,
            generator=torch.Generator(task.device).manual_seed(views_seed),
            order_generator=torch.Generator().manual_seed(order_seed),
            lr=self.lr if lr is None else lr,
            weight_decay=self.weight_decay,
            autocast_dtype=task.autocast_dtype,
            n_epochs=n_epochs,
            batch_size=task.batch_size,
            callbacks=callbacks,
            stop_requested=lambda: task.interrupt.came,
            group=task.group,
            verbose=self.verbose if task.group.first else 0,
            **self._schedule(len(task.samples)),
            **options,
        )

    _trainer_class = Trainer

    def _schedule(self, n_samples: int) -> dict:
        """The schedule of the learning rate, and the momentum of the teacher."""
        n_steps = self.max_epochs * batches_per_epoch(n_samples, self.batch_size)
        return {"schedule": cosine, "teacher_momentum": teacher_momentum(n_steps)}

    # ------------------------------------------------------------------------ finish

    def _finish(self, task: Task) -> None:
        """Fitted attributes of the best run."""
        run = task.restarts.best
        if not self._continues:
            self._fitted_with = {
                name: backbones.own_copy(getattr(self, name))
                for name in self._of_the_model
            }
        self._model = run.model
        self._inference = Inference(run.model)
        self.history_ = run.history
        self.n_iter_ = len(run.history)
        self.neighbors_recall_ = task.neighbors and task.neighbors.recall

    def _warn(self, task: Task) -> None:
        """Warn or raise if something ended the fit too early."""
        error = task.restarts.stopped_by
        if error is None:
            return
        if not isinstance(error, KeyboardInterrupt):
            raise error
        if not task.group.first:  # the first process warns
            return
        warn_user(
            "`fit` was interrupted: the model is that of "
            f"{count(self.n_iter_, 'whole epoch')}.",
            ConvergenceWarning,
        )

    # ------------------------------------------------------------------- predictions

    def _infer(self, X, *wanted):
        """Quantities of the samples X; see `Inference`."""
        check_is_fitted(self)
        with own_settings():
            samples = self._checked_samples(X)
            views = self._make_views(self.device_)
            found = self._inference.over(samples, views, *wanted)
        self._check_inferred(*found)
        return found

    def _infer_into(self, out, X, wanted, *, then=None) -> np.ndarray:
        """A quantity of the samples X, batch by batch, or what `then` makes of it.

        Returns `out`, or a new array.
        """
        check_is_fitted(self)
        dtype = np.int64 if wanted == "label" else np.float32
        known = {"label": (), "joint": (self._model.n_experts,)}
        columns = known.get(wanted, (self._n_features_out,))
        with own_settings():
            X = check_shape_like(self, X, self._format)
            shape = (len(X), *columns)
            check_output(out, shape, dtype)
            check_values_like(X, self._format)
            samples = Samples(X, self._format, self.device_)
            views = self._make_views(self.device_)
            batches = self._inference.batches(samples, views, wanted)

            def values():
                for (value,) in batches:
                    value = value.cpu()
                    self._check_inferred(value.numpy())
                    yield value.numpy() if then is None else then(value).numpy()

            return filled(out, shape, dtype, values())

    def _check_inferred(self, *found) -> None:
        # A label is -1 where the values that decide are not finite.
        known = (v >= 0 if v.dtype.kind == "i" else np.isfinite(v) for v in found)
        if not all(values.all() for values in known):
            raise ValueError("X must hold values that the `backbone` can compute with.")

    def _checked_samples(self, X) -> Samples:
        """X as the samples of a prediction."""
        X = check_samples_like(self, X, self._format)
        return Samples(X, self._format, self.device_)

    @property
    def device_(self) -> torch.device:
        """Device of the fitted model."""
        check_is_fitted(self)
        return self._model.queue.device

    @property
    def backbone_(self) -> torch.nn.Module:
        """The trained network; can be another estimator's `backbone`."""
        check_is_fitted(self)
        return self._model.student.backbone

    @property
    def _n_features_out(self):
        return self._model.embedding_dim

    def __sklearn_is_fitted__(self):
        """Whether there is a model. A first fit that fails sets other attributes."""
        return hasattr(self, "_model")

    def __sklearn_tags__(self):
        """Describe the estimator to scikit-learn."""
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def __getstate__(self):
        """Move the model to the CPU, so that pickles load on any machine."""
        state = super().__getstate__().copy()
        state.pop("_inference", None)  # follows from the model
        if "_model" in state and self.device_.type != "cpu":
            state["_model"] = copy.deepcopy(self._model).cpu()
        return state

    def __setstate__(self, state):
        """Prepare the networks for predictions."""
        super().__setstate__(state)
        if "_model" in state:
            with own_settings():
                self._inference = Inference(self._model)


def _whole_signature(cls):
    """Of `__init__`, with the next one's parameters in place of `**parameters`."""
    own = inspect.signature(cls.__init__)
    kept = {n: p for n, p in own.parameters.items() if p.kind is not p.VAR_KEYWORD}
    if len(kept) < len(own.parameters):
        parent = next(base for base in cls.__mro__[1:] if "__init__" in vars(base))
        for name, parameter in inspect.signature(parent.__init__).parameters.items():
            kept.setdefault(name, parameter.replace(kind=parameter.KEYWORD_ONLY))
    return own.replace(parameters=list(kept.values()))


def _is_same(value, was) -> bool:
    """Whether a parameter has the same value; a list may replace a tuple."""
    if isinstance(was, list | tuple) and isinstance(value, list | tuple):
        return list(value) == list(was)
    if isinstance(was, backbones.Backbone) and type(value) is type(was):
        new, old = value.get_params(), was.get_params()
        return all(_is_same(new[name], part) for name, part in old.items())
    plain = str | Real | os.PathLike
    return value is was or (isinstance(was, plain) and value == was)


def _try(views, samples: Samples) -> None:
    """Call a user's augmentation once, to find errors before training."""
    generator = torch.Generator(samples.device).manual_seed(0)
    with OwnDraws(0):
        if not views(samples[torch.arange(2)], 2, generator).isfinite().all():
            raise ValueError("`augmentation` must return finite values.")


def moco_options() -> dict:
    """MiCE under Assumptions A3 to A5: one expert, no gate, no prototypes."""
    return {"n_experts": 1, "omega": None, "kappa": math.inf}
