"""The learning rate over a stage of training, and the teacher's momentum.

Schedules are functions of the stage's progress from 0 to 1, so that resuming needs no
state. What they return is a factor of the peak learning rate.
"""

import math


def cosine(progress: float) -> float:
    """The default schedule: a rise over 5% of the steps, and half a cosine."""
    return rise(progress, 0.05) * half_cosine(progress)


def rise(progress: float, warmup: float) -> float:
    """A linear rise over a share of the stage, from 0.1, as nothing trains at 0."""
    return min(1.0, 0.1 + 0.9 * progress / warmup) if warmup > 0 else 1.0


def half_cosine(progress: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * progress))


def teacher_momentum(n_steps: int) -> float:
    """Momentum m of the teacher's moving average, for a fit of so many steps.

    It averages over a hundredth of the steps, at least over 100 and at most over 1,000.
    The latter is the paper's 0.999, for its fits of 228,000 steps and more, and longer
    than a short fit.
    """
    return 1 - 1 / min(max(n_steps / 100, 100), 1000)
