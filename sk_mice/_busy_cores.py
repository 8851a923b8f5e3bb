"""Whether the threads of a fit wait for cores that other processes keep busy."""

import math
import time
from contextlib import suppress
from pathlib import Path

import torch

from ._engine.warn import warn_user


class BusyCores:
    """Warns once if the threads of torch wait for busy cores, where Linux counts it.

    They share every operation of a step, which ends when the last of them ends.
    """

    every = 10.0  # seconds
    most = 0.3  # of a thread that waits, on average

    def __init__(self):
        self.warned = torch.get_num_threads() == 1
        self.begin()

    def begin(self) -> None:
        """Begin to count."""
        self.since = time.perf_counter(), seconds_of_waiting()

    def look(self) -> None:
        """Warn if threads have waited for much of the last seconds."""
        began, waited = self.since
        seconds = time.perf_counter() - began
        if self.warned or seconds < self.every:
            return
        share = (seconds_of_waiting() - waited) / seconds
        self.begin()
        if share > self.most:
            self.warned = True
            n = torch.get_num_threads()
            free = max(1, n - math.ceil(share))
            warn_user(
                f"The {n} threads of the fit wait for each other, as other processes "
                "keep cores busy, or a container grants too few. Fewer threads may be "
                "many times as fast: set the environment variable "
                f"OMP_NUM_THREADS={free}, or call torch.set_num_threads({free})."
            )


def seconds_of_waiting() -> float:
    """Seconds for which threads of this process were ready, and had no core."""
    nanoseconds = 0
    for file in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(OSError, IndexError):  # a thread that has ended
            nanoseconds += int(file.read_text().split()[1])
    return nanoseconds / 1e9
