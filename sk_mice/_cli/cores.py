"""As many threads as there are free cores."""

import os
import time
from pathlib import Path

import torch
from joblib import cpu_count
from threadpoolctl import threadpool_limits

from .._busy_cores import BusyCores
from .._words import count
from .terminal import Progress

SECONDS = 0.3  # for which other processes are watched


def leave_busy_cores(progress: Progress) -> None:
    """Compute with fewer threads, and say so, if not all cores are free.

    Other processes may keep some busy, or a container may grant only a few. Threads
    that share an operation wait for each other: with one more than there are free
    cores, training takes up to fifty times as long.
    """
    n = torch.get_num_threads()
    if n == 1 or "OMP_NUM_THREADS" in os.environ:
        return
    n_free = max(1, round(min(free_cores(), cpu_count())))
    if n_free < n:
        threads = count(n_free, "thread")
        progress.say(
            f"Computing with {threads} instead of {n}, as no more cores are free "
            "(OMP_NUM_THREADS sets another number)"
        )
        BusyCores.all_threads = min(n, cpu_count())  # a long fit tries them later
        torch.set_num_threads(n_free)
        threadpool_limits(n_free)  # of scikit-learn, and of products of matrices


def free_cores() -> float:
    """Cores of this process that are idle; infinite where the system does not say."""
    before = _jiffies()
    if not before:
        return float("inf")
    time.sleep(SECONDS)
    free = [
        (idle - before[core][0]) / (spent - before[core][1])
        for core, (idle, spent) in _jiffies().items()
        if core in before and spent > before[core][1]
    ]
    return sum(free) if free else float("inf")  # some containers show zeros


def _jiffies() -> dict[str, tuple[int, int]]:
    """For each core of this process, the time without work, and all of its time."""
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except OSError:  # no Linux, or not for this user
        return {}
    ours = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    found = {}
    for name, *numbers in map(str.split, lines):
        if name in ours:
            user, nice, system, idle, waiting, *rest = map(int, numbers[:8])
            spent = user + nice + system + idle + waiting + sum(rest)
            found[name] = idle + waiting, spent
    return found
