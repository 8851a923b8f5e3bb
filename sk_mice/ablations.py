"""Estimators with the parameters of the paper's ablations and learning rates.

`PaperMiCE` and `PaperMoCo` are `MiCEClustering` and `MoCo` with the parameters that the
paper varies in Table 3 and in the appendix. The paper's recipes (`sk_mice.recipes`) are
for these two.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from sklearn.utils._param_validation import StrOptions
from torch.nn import functional as F

from ._constraints import Count, Number, floats
from ._engine import objective
from ._engine.ambient import spawn_seed
from ._engine.model import gating_prototypes, repelled_directions
from ._engine.optimizers import SGD
from ._engine.schedule import half_cosine, rise
from ._engine.trainer import Trainer
from ._mice import MiCEClustering
from ._moco import MoCo

__all__ = ["PaperMiCE", "PaperMoCo"]

SCHEDULES = {
    "cosine": half_cosine,
    "step": (0.48, 0.64, 0.8),  # appendix: 480, 640 and 800 of 1,000 epochs
    "constant": lambda progress: 1.0,
}
MAX_PASSES = 20  # appendix
# The appendix names two criteria, the norm of the prototypes and the change of the
# objective, without figures.
SETTLED_ROWS = 1e-3  # largest distance that a row, as a unit vector, moves in a pass
SETTLED_LOSS = 1e-4  # change of the loss from pass to pass, in nats


class AblationTrainer(Trainer):
    """A trainer with other updates of the prototypes; see `PaperMiCE`."""

    def __init__(
        self,
        module,
        *,
        prototype_update="both",
        train_gating_prototypes=False,
        **parameters,
    ):
        self.prototype_update = prototype_update
        self.train_gating_prototypes = train_gating_prototypes
        super().__init__(module, **parameters)

    def begin(self, samples, state=None):
        mu, omega = self.module.expert_prototypes, self.module.gating_prototypes
        if mu is not None:
            mu.requires_grad_(self.prototype_update != "analytical")
        if omega is not None:
            omega.requires_grad_(self.train_gating_prototypes)
        return super().begin(samples, state)

    def after_step(self, v):
        super().after_step(v)
        if self.train_gating_prototypes:  # back to unit norm
            with torch.no_grad():
                omega = self.module_.gating_prototypes
                omega.copy_(F.normalize(omega, dim=1))

    def update_prototypes(self, samples):
        mu = self.module_.expert_prototypes
        if mu is None or self.prototype_update == "gradient":
            return {}
        if self.prototype_update != "passes":
            return super().update_prototypes(samples)
        self.module_.eval()  # keeps the batch-norm statistics
        n_passes = self._pass_over_prototypes(samples, mu)
        self.module_.train()
        self._forget_momentum(mu)
        return {"prototype_passes": n_passes}

    def _pass_over_prototypes(self, samples, mu) -> int:
        """SGD on mu alone until mu or the loss settles; returns the number of passes.

        The appendix's "extra end-of-epoch training only on mu with stochastic gradient
        ascent".
        """
        options = ("lr", "momentum", "weight_decay")
        sgd = {name: self.optimizer_.param_groups[0][name] for name in options}
        optimizer = SGD([mu], **sgd)
        previous, n_passes, settled = math.inf, 0, False
        while n_passes < MAX_PASSES and not settled:
            before, losses = _directions(mu), []
            for batch in self.get_iterator(samples, training=True):
                self.end_if_requested()
                loss = self._loss(batch)
                (grad,) = torch.autograd.grad(loss, [mu])
                loss = loss.detach()
                self.group.sum(grad, loss)
                mu.grad = grad
                optimizer.step()
                losses.append(loss)
            mean = torch.stack(losses).mean().item()
            moved = (_directions(mu) - before).norm(dim=1).max().item()
            settled = moved < SETTLED_ROWS or abs(mean - previous) < SETTLED_LOSS
            previous = mean
            n_passes += 1
        mu.grad = None
        return n_passes

    def _loss(self, batch):
        """The share in the mean loss that this process's rows have."""
        with torch.no_grad():
            f, v, g = self.outputs(self.module_.embed, self.make_views(batch))
        joint = self.module_.log_joint(f, v, g)
        loss = self.criterion_(joint, self.responsibilities(batch.indices))
        return self._weight(batch) / self.group.size * loss


def _directions(parameter):
    return F.normalize(parameter.detach(), dim=1)


class _PaperSchedule:
    """The learning rate and the teacher's momentum as parameters of an estimator."""

    _parameter_constraints: dict = {
        "schedule": "no_validation",  # `make_schedule` says what it takes
        "warmup": [Number(0, 1, closed="left")],
        "teacher_momentum": [Number(0, 1, closed="left"), None],
    }

    def _check(self, X):
        X = super()._check(X)
        make_schedule(self.schedule, self.warmup)
        return X

    def _schedule(self, n_samples):
        options = super()._schedule(n_samples)
        options["schedule"] = make_schedule(self.schedule, self.warmup)
        if self.teacher_momentum is not None:
            options["teacher_momentum"] = self.teacher_momentum
        return options


class PaperMoCo(_PaperSchedule, MoCo):  # numpydoc ignore=PR01,PR02
    """`MoCo` with parameters for the paper's learning rate schedules.

    Parameters
    ----------
    schedule : {"cosine", "step", "constant"}, sequence or callable, default="cosine"
        Learning rate schedule. "step" multiplies the rate by 0.1 at 48, 64 and 80
        percent of each stage, as the paper does for CIFAR. A sequence gives other
        shares of a stage. A callable maps progress from 0 to 1 to a factor.
    warmup : float, default=0.05
        Share of each stage over which the learning rate rises linearly.
    teacher_momentum : float or None, default=None
        The momentum m of the teacher's moving average. With None, the average is over a
        hundredth of the steps, at least 100 and at most 1,000. The paper uses 0.999.
    **parameters : dict
        Other parameters of `MoCo`.

    Examples
    --------
    >>> from sk_mice.ablations import PaperMoCo
    >>> PaperMoCo(schedule="step", max_epochs=1000).get_params()["max_epochs"]
    1000
    """

    _parameter_constraints: dict = {
        **MoCo._parameter_constraints,
        **_PaperSchedule._parameter_constraints,
    }

    def __init__(
        self,
        *,
        schedule: Any = "cosine",
        warmup=0.05,
        teacher_momentum=None,
        **parameters,
    ) -> None:
        super().__init__(**parameters)
        self.schedule = schedule
        self.warmup = warmup
        self.teacher_momentum = teacher_momentum


class PaperMiCE(_PaperSchedule, MiCEClustering):  # numpydoc ignore=PR01,PR02
    """`MiCEClustering` with the parameters of the paper's ablations.

    Parameters
    ----------
    n_clusters : int, default=8
        K.
    gating_prototypes : {"auto", "simplex", "repelled", "uniform"}, default="auto"
        Prototypes of the gate. "simplex" gives the centres of Algorithm 2, which exist
        for K <= D + 1. "repelled" gives unit vectors that are spread by repulsion.
        "auto" is "simplex" where it exists and "repelled" otherwise. "uniform" draws
        them at random (Table 3 (c) of [1]_).
    train_gating_prototypes : bool, default=False
        Whether the gradient also updates the gating prototypes, which are fixed
        otherwise (Table 3 (d)).
    expert_prototypes : str or None, default="both"
        How the prototypes of the experts are updated: by the "gradient" in every step,
        by the "analytical" update at the end of each epoch (equation 13), or by "both".
        "passes" replaces equation 13 by up to 20 passes over the data in which only the
        prototypes are trained (appendix); `history_` then has "prototype_passes". None
        leaves the prototypes out (Assumption A5).
    expert_heads : {"own", "shared"}, default="own"
        Whether each expert has its own output layer or all share one (Assumption A4).
    gate_view : {"own", "student"}, default="own"
        Whether the gate sees a random view of its own, or the student's.
    n_rounds : int, default=2
        Rounds of EM after MoCo. Each round after the first starts from a new partition
        of the current features. The first round is the longest.
    schedule : {"cosine", "step", "constant"}, sequence or callable, default="cosine"
        See `PaperMoCo`.
    warmup : float, default=0.05
        See `PaperMoCo`.
    teacher_momentum : float or None, default=None
        See `PaperMoCo`.
    **parameters : dict
        Other parameters of `MiCEClustering`. ``kappa=math.inf`` is Assumption A3.

    See Also
    --------
    sk_mice.recipes : The paper's settings by name.

    References
    ----------
    .. [1] T. W. Tsai, C. Li, J. Zhu, "MiCE: Mixture of Contrastive Experts for
       Unsupervised Image Clustering", ICLR 2021.

    Examples
    --------
    >>> from sk_mice.ablations import PaperMiCE
    >>> mice = PaperMiCE(10, init="random", expert_prototypes=None)
    >>> mice.set_params(expert_heads="own", tau=0.5).tau
    0.5
    """

    _parameter_constraints: dict = {
        **MiCEClustering._parameter_constraints,
        **_PaperSchedule._parameter_constraints,
        "gating_prototypes": [StrOptions({"auto", "simplex", "repelled", "uniform"})],
        "train_gating_prototypes": ["boolean"],
        "expert_prototypes": [
            StrOptions({"both", "analytical", "gradient", "passes"}),
            None,
        ],
        "gate_view": [StrOptions({"own", "student"})],
        "n_rounds": [Count(1)],
    }
    _of_the_model = (*MiCEClustering._of_the_model, "gating_prototypes", "gate_view")
    _trainer_class = AblationTrainer

    def __init__(
        self,
        n_clusters=8,
        *,
        gating_prototypes="auto",
        train_gating_prototypes=False,
        expert_prototypes: Any = "both",
        expert_heads="own",
        gate_view="own",
        n_rounds=2,
        schedule: Any = "cosine",
        warmup=0.05,
        teacher_momentum=None,
        **parameters,
    ) -> None:
        super().__init__(n_clusters, expert_heads=expert_heads, **parameters)
        self.gating_prototypes = gating_prototypes
        self.train_gating_prototypes = train_gating_prototypes
        self.expert_prototypes = expert_prototypes
        self.gate_view = gate_view
        self.n_rounds = n_rounds
        self.schedule = schedule
        self.warmup = warmup
        self.teacher_momentum = teacher_momentum

    def _check(self, X):
        X = super()._check(X)
        class_level = self.expert_prototypes is not None
        if self._shared_head and not class_level:
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
        if self._continues and self._model.class_level != class_level:
            raise ValueError(
                "Whether `expert_prototypes` is None must be as in the fit that "
                f"`warm_start` goes on from; got {self.expert_prototypes!r}."
            )
        return X

    def _model_options(self, seed):
        return super()._model_options(seed) | {
            "class_level": self.expert_prototypes is not None,
            "gate_view": self.gate_view == "own",
        }

    def _gating_prototypes(self, seed):
        size = self.n_clusters, self.embedding_dim
        if self.gating_prototypes == "uniform":
            seed = spawn_seed(seed, "gating prototypes")
            generator = torch.Generator().manual_seed(seed)
            draws = torch.rand(*size, generator=generator, dtype=torch.float32)
            return F.normalize(2 * draws - 1, dim=1)  # a cube, projected onto a sphere
        make = {
            "auto": gating_prototypes,
            "simplex": objective.simplex_centres,
            "repelled": repelled_directions,
        }
        return make[self.gating_prototypes](*size).float()

    @property
    def _n_rounds(self):
        return self.n_rounds

    def _run_stage(self, run, model, task, n_epochs, stage, **options):
        if stage == "em":
            options |= {
                "prototype_update": self.expert_prototypes,
                "train_gating_prototypes": self.train_gating_prototypes,
            }
        super()._run_stage(run, model, task, n_epochs, stage, **options)


# ---------------------------------------------------------------- learning rates


def make_schedule(schedule, warmup: float) -> Callable[[float], float]:
    """Factor of the learning rate as a function of progress in [0, 1].

    `PaperMoCo` says what `schedule` and `warmup` are; ValueError for anything else.
    """
    decay = _decay(schedule)
    return lambda progress: rise(progress, warmup) * decay(progress)


def _decay(schedule):
    meant = SCHEDULES.get(schedule, ()) if isinstance(schedule, str) else schedule
    if callable(meant):
        for percent in range(101):  # what it returns is checked before any work
            _factor(meant, percent / 100)
        return partial(_factor, meant)
    try:
        milestones = floats(meant)
    except (TypeError, ValueError):
        milestones = ()
    if not milestones or not all(0 < m < 1 for m in milestones):
        raise ValueError(
            '`schedule` must be "cosine", "step", "constant", milestones between 0 and '
            f"1 as shares of a stage, or a callable of progress; got {schedule!r}."
        )
    return lambda p: 0.1 ** sum(p >= m for m in milestones)


def _factor(schedule, progress: float) -> float:
    gave: object
    try:
        gave = factor = float(schedule(progress))
        valid = 0 <= factor < math.inf
    except (OverflowError, TypeError, ValueError) as error:
        gave, valid = error, False
    if not valid:
        raise ValueError(
            "`schedule` must map progress from 0 to 1 to factors of 0 and more; at "
            f"{progress:g} it gave {gave}."
        )
    return factor
