"""Learning rates computed from progress, so that resuming needs no state."""

import math
from collections.abc import Callable

from .arrays import floats

__all__ = ["SCHEDULES", "check_schedule", "learning_rate"]

PAPER_MILESTONES = (0.48, 0.64, 0.8)  # Appendix: 480, 640 and 800 of 1,000 epochs
SCHEDULES = ("cosine", "step", "constant")


def check_schedule(schedule) -> None:
    """Raise ValueError unless `schedule` is a name, milestones or a callable."""
    if callable(schedule):
        _check_factors(schedule)
        return
    if isinstance(schedule, str) and schedule in SCHEDULES:
        return
    if not isinstance(schedule, str):
        try:
            milestones = floats(schedule)
        except (TypeError, ValueError):
            milestones = []
        if milestones and all(0 < m < 1 for m in milestones):
            return
    raise ValueError(
        f"`schedule` must be one of {', '.join(SCHEDULES)}, milestones between 0 and 1 "
        f"as shares of the run, or a callable of progress; got {schedule!r}."
    )


def _check_factors(schedule) -> None:
    try:
        factors = [float(schedule(progress)) for progress in (0.0, 0.5, 1.0)]
        valid = all(0 <= factor < math.inf for factor in factors)
    except (OverflowError, TypeError, ValueError) as error:
        factors, valid = error, False
    if not valid:
        raise ValueError(
            "`schedule` must map progress from 0 to 1 to factors of 0 and more; at 0, "
            f"0.5 and 1 it gave {factors}."
        )


def learning_rate(lr: float, schedule, warmup: float) -> Callable[[float], float]:
    """Learning rate as a function of progress in [0, 1].

    Parameters
    ----------
    lr : float
        Its peak.
    schedule : {"cosine", "step", "constant"}, sequence of float or callable
        "step" multiplies by 0.1 at 48, 64 and 80 percent (Appendix, CIFAR), a sequence
        of milestones at those; a callable maps progress to a factor.
    warmup : float
        Share of the run over which the rate first rises linearly.
    """
    if callable(schedule):
        decay = schedule
    elif schedule == "cosine":

        def decay(progress):
            return 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
    elif schedule == "constant":

        def decay(progress):
            return 1.0
    else:
        milestones = PAPER_MILESTONES if schedule == "step" else tuple(schedule)

        def decay(progress):
            return 0.1 ** sum(progress >= m for m in milestones)

    def rate(progress):
        rise = min(1.0, (progress + 0.1 * warmup) / warmup) if warmup > 0 else 1.0
        return lr * rise * decay(progress)

    return rate
