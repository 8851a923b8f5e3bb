"""A fit leaves the cores that other processes keep busy."""

import math
import os
import time
from contextlib import suppress
from pathlib import Path

import torch

from ._engine.warn import warn_user
from ._words import count


class BusyCores:
    """Lowers the number of torch's threads if they wait for cores, as Linux counts it.

    The threads share every operation of a step, which ends when the last of them ends.
    After a while, all threads are tried again. A warning says so the first time. If the
    user has set OMP_NUM_THREADS, there is only the warning.

    The caller restores the number of torch's threads at the end.
    """

    every = 10.0  # seconds
    most = 0.3  # threads that wait, on average
    rest = 300.0  # seconds with fewer threads
    all_threads = 0  # of a command that has begun with fewer

    def __init__(self):
        self.n_threads = max(torch.get_num_threads(), self.all_threads)
        has_fewer = torch.get_num_threads() < self.n_threads
        self.lowered = time.perf_counter() if has_fewer else None  # when
        self.warned = False
        self.begin()

    def begin(self) -> None:
        """Begin to count."""
        self.since = time.perf_counter(), seconds_of_waiting()

    def look(self) -> None:
        """Use fewer threads if they waited for much of the last seconds."""
        now, n = time.perf_counter(), torch.get_num_threads()
        began, waited = self.since
        if self.n_threads == 1 or now - began < self.every:
            return
        share = (seconds_of_waiting() - waited) / (now - began)
        if n > 1 and share > self.most:
            self.leave(n, max(1, n - math.ceil(share)), now)
        elif self.lowered is not None and now - self.lowered > self.rest:
            torch.set_num_threads(self.n_threads)
            self.lowered = None
        self.begin()

    def leave(self, n: int, n_free: int, now: float) -> None:
        """Go on with as many threads as there are free cores, and say so once."""
        why = "other processes keep cores busy, or a container grants too few"
        if "OMP_NUM_THREADS" in os.environ:
            message = (
                f"The {n} threads of the fit wait for each other, as {why}. Fewer may "
                "be many times as fast: set the environment variable "
                f"OMP_NUM_THREADS={n_free}."
            )
        else:
            torch.set_num_threads(n_free)
            self.lowered = now
            message = (
                f"The fit goes on with {count(n_free, 'thread')} instead of {n}, which "
                f"wait for each other, as {why}. If a fit must give the same result "
                f"each time, set the environment variable OMP_NUM_THREADS={n_free}."
            )
        if not self.warned:
            self.warned = True
            warn_user(message)


def seconds_of_waiting() -> float:
    """Seconds for which threads of this process were ready, and had no core."""
    nanoseconds = 0
    for file in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(OSError, IndexError):  # a thread that has ended
            nanoseconds += int(file.read_text().split()[1])
    return nanoseconds / 1e9
