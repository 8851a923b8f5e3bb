"""The training loop: a skorch net with a step, two hooks and an epoch's statistics."""

import math
import time
from contextlib import contextmanager, nullcontext
from itertools import chain

import numpy as np
import torch
from skorch import NeuralNet
from skorch.utils import TeeGenerator
from torch import Tensor, nn

from . import objective
from .ambient import OwnDraws, spawn_seed
from .batches import Batch, Batches
from .distributed import ALONE
from .graphs import Replayed
from .optimizers import SGD
from .samples import batches_per_epoch
from .schedule import cosine
from .statistics import EpochStatistics
from .storage import is_data
from .warn import first_line, warn_user

LARGEST_KEPT_QUEUE = 2**28  # bytes; a copy of a larger one takes too much memory
# Names of the loss in the history, for callbacks. They are equal: nothing is held out.
LOSSES = ("train_loss", "valid_loss")


class NegativeELBO(nn.Module):
    """Mean over the batch of the negative ELBO (equations 11 and 12)."""

    def forward(self, joint: Tensor, q: Tensor | None = None) -> Tensor:
        q = q if q is None else q.to(joint.dtype)
        return -objective.elbo(joint, q).mean()


class Trainer(NeuralNet):
    """EM for a :class:`ContrastiveMixture`, one stage of a fit.

    The E-step is the exact normalised posterior of each batch; the M-step is one step
    of SGD on the ELBO, followed by the teacher's average and the queue, and at the
    epoch's end by the update of the expert prototypes (equation 13).

    Parameters
    ----------
    module : ContrastiveMixture
        On its device.
    views : ImageViews or VectorViews
        Makes the random views of a batch.
    generator, order_generator : torch.Generator
        Draw the views, on the device, and the order of the samples, and neighbors, on
        the CPU.
    lr : float
        Peak learning rate.
    n_epochs, batch_size : int
    neighbors : Neighbors or None
        Samples that replace a sample in its views.
    schedule : callable, default=cosine
        Maps the stage's progress in [0, 1] to a factor of `lr`.
    weight_decay : float
    teacher_momentum : float
        m of the teacher's moving average.
    held_labels : Tensor of shape (N,) or None
        Responsibilities (hard) that replace the E-step in the first `held_epochs`; on
        the device.
    held_epochs : int
    fill_queue : bool
        Whether to begin with a queue of the untrained teacher's embeddings.
    autocast_dtype : torch.dtype or None
        Reduced precision of the networks.
    callbacks : list
        skorch callbacks.
    stop_requested : callable, optional
        Called before every batch. If it returns True, training ends by a
        KeyboardInterrupt.
    group : Group, default=ALONE
        The processes that share each batch.
    verbose : int, default=0
        Whether callbacks print, such as skorch's PrintLog.
    """

    may_draw_: bool  # whether views or networks may draw from torch's generator
    replayed_: Replayed | None = None

    def __init__(
        self,
        module,
        *,
        views,
        generator,
        order_generator,
        lr,
        n_epochs,
        batch_size,
        neighbors=None,
        schedule=cosine,
        weight_decay=1e-4,
        teacher_momentum=0.99,
        held_labels=None,
        held_epochs=0,
        fill_queue=False,
        autocast_dtype=None,
        callbacks=(),
        stop_requested=bool,
        group=ALONE,
        verbose=0,
    ):
        self.group = group
        self.views = views
        self.generator = generator
        self.order_generator = order_generator
        self.schedule = schedule
        self.neighbors = neighbors
        self.teacher_momentum = teacher_momentum
        self.held_labels = held_labels
        self.held_epochs = held_epochs
        self.fill_queue = fill_queue
        self.autocast_dtype = autocast_dtype
        self.stop_requested = stop_requested
        super().__init__(
            module,
            criterion=NegativeELBO,
            optimizer=SGD,
            optimizer__momentum=0.9,
            optimizer__weight_decay=weight_decay,
            lr=lr,
            max_epochs=n_epochs,
            batch_size=batch_size,
            callbacks=list(callbacks),
            train_split=None,
            device=None,  # the module is on its device
            verbose=verbose,
        )

    def get_default_callbacks(self):
        return []

    def get_all_learnable_params(self):
        """The parameters for the optimizer: all but the frozen ones."""
        named = super().get_all_learnable_params()
        return ((name, weight) for name, weight in named if weight.requires_grad)

    def get_iterator(self, dataset, training=False):
        return Batches(self, dataset, self.neighbors)

    # ---------------------------------------------------------------- the whole run

    def begin(self, samples, state: dict | None = None):
        """Prepare the first epoch, or the next one after the :meth:`state` of a run.

        Training then gives, bit for bit, what that run would have given.
        """
        self.samples_ = samples
        self.n_steps_ = batches_per_epoch(len(samples), self.batch_size)
        self.initialize()
        if state is not None:
            self._load(state)
        self._mark_epoch()
        self.notify("on_train_begin", X=samples, y=None)
        if state is not None:
            self.statistics_.labels.copy_(state["labels"])
        return self

    def train(self):
        """Train to the last epoch.

        Raises
        ------
        KeyboardInterrupt, FloatingPointError
            From the user, or for an ELBO that is not finite. :meth:`rewind` then
            restores the end of the last complete epoch.
        """
        n_left = self.max_epochs - len(self.history)
        try:
            self.fit_loop(self.samples_, epochs=n_left)
        except KeyboardInterrupt:
            # EarlyStopping ends a run by raising this at an epoch's end.
            if not self.between_epochs_ or self.group.any(self.stop_requested()):
                raise
        finally:
            # Of several processes: the wrapper's hooks would run in later stages, too.
            self.networks_ = self.replayed_ = None
            whole = self.history
            self.notify("on_train_end", X=self.samples_, y=None)
            self.history = whole  # changed by callbacks that load the best weights
        return self

    def run_single_epoch(self, iterator, training, prefix, step_fn, **fit_params):
        # As skorch's, but the loss is read once an epoch, as reading it in every step
        # would wait for the device.
        if iterator is None:
            return
        for batch in iterator:
            self.end_if_requested()
            self.notify("on_batch_begin", batch=batch, training=training)
            step = step_fn(batch, **fit_params)
            self.notify("on_batch_end", batch=batch, training=training, **step)

    def end_if_requested(self) -> None:
        """Raise KeyboardInterrupt if this process or another was told to end."""
        if self.group.any_at_last_step(self.stop_requested()):
            raise KeyboardInterrupt

    def history_rows(self) -> list[dict]:
        """The history as plain dicts, one an epoch, which a file can hold."""
        hidden = {"batches", *LOSSES, *(f"{name}_best" for name in LOSSES)}
        return [
            {k: v for k, v in row.items() if k not in hidden and is_data(v)}
            for row in self.history
        ]

    @property
    def labels_(self) -> np.ndarray:
        """Most probable expert of each sample (N,) in its views, for callbacks.

        At the end of an epoch, of all samples; before, -1 of those to come.
        """
        return self.statistics_.labels.cpu().numpy().copy()

    # -------------------------------------------------------------------- one step

    def train_step(self, batch, **fit_params):
        """One E-step and one M-step; skorch calls it for every batch."""
        self.is_whole_ = False
        self._set_learning_rate()
        loss, joint, v = self._find_gradients(batch)
        named = TeeGenerator(self.module_.named_parameters())
        self.notify("on_grad_computed", named_parameters=named, batch=batch)
        self.optimizer_.step()
        self.after_step(self._of_all(v, batch))
        self.statistics_.add(batch.indices, joint, -loss, v)
        self.step_ += 1
        return {"loss": loss, "y_pred": (joint, v)}

    def _find_gradients(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Loss, log-joint and teacher's embeddings; the weights get their gradients."""
        views, q = self.make_views(batch), self.responsibilities(batch.indices)
        if self.replayed_ is not None:
            try:
                return self.replayed_(views, q)
            except RuntimeError as error:
                self.replayed_ = None
                warn_user(
                    "The fit goes on without CUDA graphs, and so more slowly: "
                    f"{type(error).__name__}: {first_line(error)}"
                )
        return self._learn(views, q, self._weight(batch))

    def _learn(self, views: Tensor, q, weight=1.0) -> tuple[Tensor, Tensor, Tensor]:
        """The passes forward and backward, which CUDA graphs replay."""
        joint, v = self.outputs(self.networks_, views)
        loss = self.criterion_(joint, q)
        self.optimizer_.zero_grad()
        (weight * loss).backward()
        return loss.detach(), joint.detach(), v

    def make_views(self, batch: Batch) -> Tensor:
        """Random views of a batch, one for each network: (n_views, B, *shape)."""
        n_views = self.module_.n_views
        with self._own_draws():
            if self.neighbors is None:
                return self.views(batch.x, n_views, self.generator, batch.part)
            # x has a sample for each view.
            views = self.views(batch.x, 1, self.generator, batch.part)[0]
        return views.unflatten(0, (n_views, -1))

    def outputs(self, network, views: Tensor):
        """What the model, or a method of it, returns for views."""
        with self._own_draws(), self._autocast(views.device), self._draws_of_rank():
            return network(views)

    def _weight(self, batch: Batch) -> float:
        """Weight of this process's mean loss in the mean over the processes."""
        return len(batch.indices) * self.group.size / batch.n_samples

    def _of_all(self, v: Tensor, batch: Batch) -> Tensor:
        """The teacher's embeddings of the whole batch, in the type of the queue."""
        return self.group.gather(v.to(self.module_.queue.dtype), batch.n_samples)

    def responsibilities(self, indices: Tensor) -> Tensor | None:
        """Responsibilities q of a batch (B, K); None is the exact posterior."""
        if len(self.history) > self.held_epochs:
            return None
        return nn.functional.one_hot(self.held_labels[indices], self.module_.n_experts)

    def after_step(self, v: Tensor) -> None:
        """Update the teacher and the queue after a step of SGD."""
        self.module_.update_teacher(self.teacher_momentum)
        self.module_.enqueue(v)

    def _own_draws(self):
        """Have networks and augmentations of the user draw from our generators.

        Those of this package take a generator, and are faster without this context.
        """
        if self.may_draw_:
            return OwnDraws(0, self.order_generator, self.generator)
        return nullcontext()

    def _draws_of_rank(self):
        """Let the networks of each process draw numbers of their own.

        They do not use the generators of the views and the order, which must stay the
        same in all processes, however much each draws.
        """
        if not (self.may_draw_ and self.group.size > 1):
            return nullcontext()
        numbers = len(self.history), self.step_, self.group.rank
        seed = self.order_generator.initial_seed()
        return OwnDraws(spawn_seed(seed, "networks", *numbers))

    @contextmanager
    def _autocast(self, device):
        dtype = self.autocast_dtype
        with torch.autocast(device.type, dtype, enabled=dtype is not None):
            yield
        # An outer autocast would keep the weights of this step in its cache.
        torch.clear_autocast_cache()

    def _set_learning_rate(self):
        done = len(self.history) - 1 + self.step_ / self.n_steps_
        lr = self.lr * self.schedule(done / self.max_epochs)
        for group in self.optimizer_.param_groups:
            group["lr"] = lr

    # ------------------------------------------------------------- around an epoch

    def on_train_begin(self, net, X=None, y=None, **kwargs):
        super().on_train_begin(net, X, y, **kwargs)
        module = self.module_
        self.networks_ = self.group.parallel(module)
        size = (len(X), module.n_experts, module.embedding_dim)
        self.statistics_ = EpochStatistics(*size, module.queue.device)
        if self.held_labels is not None:  # the first epoch counts what changes
            self.statistics_.labels.copy_(self.held_labels)
        self.may_draw_ = not module.is_ours or callable(self.views.augmentation)
        self.masks_ = [] if module.is_ours else self._infinite_buffers()
        if self._can_replay():
            self.replayed_ = Replayed(self._learn, module)
        if self.fill_queue and not self.history:
            self._fill_queue(X)

    def _can_replay(self) -> bool:
        # Code of the user may wait for the device, which no CUDA graph can.
        ours = not self.may_draw_
        return ours and self.module_.queue.is_cuda and self.group.size == 1

    def on_epoch_begin(self, net, dataset_train=None, dataset_valid=None, **kwargs):
        super().on_epoch_begin(net, dataset_train, dataset_valid, **kwargs)
        self.group.barrier()  # callbacks of one process may have taken long
        self.between_epochs_ = False
        self.module_.train()
        if self.replayed_ is not None:
            self.replayed_.forget_if_changed()
        self.statistics_.reset()
        self.step_ = 0
        self.started_ = time.perf_counter()

    def on_epoch_end(self, net, dataset_train=None, dataset_valid=None, **kwargs):
        super().on_epoch_end(net, dataset_train, dataset_valid, **kwargs)
        self.statistics_.combine(self.group)
        self.group.average_buffers(self.module_, but=("queue", "queue_index"))
        figures = self.statistics_.summary()
        figures |= self.update_prototypes(dataset_train)
        if not (math.isfinite(figures["elbo"]) and self._is_finite()):
            raise FloatingPointError(
                "The ELBO or a weight is not finite in epoch "
                f"{len(self.history)} of this stage. Try a lower `lr` or higher "
                "temperatures."
            )
        figures["lr"] = self.optimizer_.param_groups[0]["lr"]
        figures["seconds"] = time.perf_counter() - self.started_
        self._record(self.group.from_first(lambda: figures))
        self._mark_epoch()

    def update_prototypes(self, samples) -> dict:
        """Update the expert prototypes (equation 13); returns figures for history."""
        mu = self.module_.expert_prototypes
        if mu is not None:
            with torch.no_grad():
                mu.copy_(objective.prototype_update(self.statistics_.class_sums, mu))
            self._forget_momentum(mu)
        return {}

    def _forget_momentum(self, parameter):
        """Reset the momentum, which was that of the replaced values."""
        momentum = self.optimizer_.state.get(parameter, {}).get("momentum_buffer")
        if momentum is not None:
            momentum.zero_()

    @torch.no_grad()
    def _fill_queue(self, samples):
        # With a random queue, the loss falls fastest if all samples are embedded alike,
        # and the model does not recover from this.
        self.module_.train()
        n_missing = len(self.module_.queue)
        self.step_ = 0
        for batch in Batches(self, samples, neighbors=None):
            with self._own_draws():
                view = self.views(batch.x, 1, self.generator, batch.part)[0]
            v = self._of_all(self.outputs(self.module_.teach, view), batch)
            self.module_.enqueue(v)
            self.step_ += 1
            n_missing -= len(v)
            if n_missing <= 0:
                return

    def _record(self, figures):
        for name, value in figures.items():
            self.history.record(name, value)
        loss = -figures["elbo"]
        before = self.history[-2::-1]
        bests = (row["train_loss"] for row in before if row["train_loss_best"])
        is_best = loss < next(bests, math.inf)
        for name in LOSSES:
            self.history.record(name, loss)
            self.history.record(f"{name}_best", is_best)

    def _is_finite(self) -> bool:
        # Not the queue, which is large; the ELBO depends on its values.
        skipped = {id(tensor) for tensor in (self.module_.queue, *self.masks_)}
        values = [
            tensor.isfinite().all()
            for tensor in self._tensors()
            if id(tensor) not in skipped and tensor.is_floating_point()
        ]
        return bool(torch.stack(values).all())

    def _infinite_buffers(self) -> list[torch.Tensor]:
        """Buffers that are infinite from the start, such as masks."""
        floats = (b for b in self.module_.buffers() if b.is_floating_point())
        return [buffer for buffer in floats if not buffer.isfinite().all()]

    # ------------------------------------------------------------ stopping, going on

    def state(self) -> dict:
        """Tensors and plain values with which a run goes on after a whole epoch."""
        return {
            "module": dict(self.module_.state_dict()),
            "temperatures": [self.module_.tau, self.module_.kappa],
            "momentum": {
                name: self.optimizer_.state[parameter]["momentum_buffer"]
                for name, parameter in self.module_.named_parameters()
                if "momentum_buffer" in self.optimizer_.state.get(parameter, {})
            },
            "generator": self.generator.get_state(),
            "order_generator": self.order_generator.get_state(),
            "labels": self.statistics_.labels,
            "history": self.history_rows(),
        }

    def _load(self, state):
        self.module_.load_state_dict(state["module"])
        self.module_.tau, self.module_.kappa = state["temperatures"]
        for name, parameter in self.module_.named_parameters():
            if name in state["momentum"]:
                momentum = torch.empty_like(parameter).copy_(state["momentum"][name])
                self.optimizer_.state[parameter]["momentum_buffer"] = momentum
        self.generator.set_state(state["generator"])
        self.order_generator.set_state(state["order_generator"])
        for row in state["history"]:
            self.history.new_epoch()
            self._record(row)

    def _mark_epoch(self):
        """Keep the state at the end of an epoch, for `rewind`."""
        self.between_epochs_ = self.is_whole_ = True
        self.n_whole_epochs_ = len(self.history)
        self.last_epoch_ = [tensor.detach().clone() for tensor in self._tensors()]

    def rewind(self) -> None:
        """Restore model and history of the end of the last complete epoch.

        A queue that is too large for a copy is filled again.
        """
        if not self.is_whole_:
            self._restore()
            if not self._keeps_queue:
                self._fill_queue(self.samples_)
                self._restore()  # filling has changed batch-norm statistics
            self.is_whole_ = True
        del self.history[self.n_whole_epochs_ :]

    @torch.no_grad()
    def _restore(self):
        for tensor, kept in zip(self._tensors(), self.last_epoch_, strict=True):
            tensor.copy_(kept)

    def _tensors(self):
        """All tensors of the model, except a queue that is too large."""
        left_out = None if self._keeps_queue else self.module_.queue
        tensors = chain(self.module_.parameters(), self.module_.buffers())
        return [tensor for tensor in tensors if tensor is not left_out]

    @property
    def _keeps_queue(self) -> bool:
        return self.module_.queue.nbytes <= LARGEST_KEPT_QUEUE
