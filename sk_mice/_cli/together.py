"""``sk-mice fit`` under torchrun: one process does all, the others help it to fit."""

import signal
from collections.abc import Callable
from contextlib import suppress

from .._engine.distributed import Group, open_group


def run_together(work: Callable[[Group], None]) -> None:
    """Run `work` in the first process, while the others take part in its fits.

    Ctrl-C is for the first process, which ends the fit in all.
    """
    group = open_group(True)
    if not group.first:
        _take_part(group)
        return
    try:
        work(group)
    finally:
        with suppress(RuntimeError):  # a process has ended on its own
            group.from_first(lambda: None)
            group.close(failed=False)


def fit_together(group: Group, estimator, X):
    """Fit an estimator to X in all processes of the group."""
    group.from_first(lambda: (estimator, X))
    return estimator.fit(X)


def _take_part(group: Group) -> None:
    """Fit what the first process fits, until it sends None."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        while (task := group.from_first(lambda: None)) is not None:
            estimator, X = task
            estimator.fit(X)
    finally:
        signal.signal(signal.SIGINT, handler)
    group.close(failed=False)
