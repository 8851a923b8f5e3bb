"""Threads that compute one item each, instead of sharing every operation."""

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from itertools import islice
from threading import Barrier

import torch


def in_threads(function, items, n_items: int):
    """Yield `function(item)` for each item, in their order.

    There are as many threads as torch has, and each computes an item of its own. Torch
    would let all threads share every operation, which ends when the last thread ends:
    if another process keeps a core busy, they wait for each other most of the time.

    Fewer items (`n_items`) than threads are computed one after the other, each by all
    threads. Otherwise at most one item more than there are threads is taken ahead. The
    function has to set what torch keeps for each thread, such as the inference mode.
    """
    n_threads = torch.get_num_threads()
    if n_threads == 1 or n_items < n_threads:
        yield from map(function, items)
        return
    pool = _pool(os.getpid(), n_threads)
    tasks = (pool.submit(function, item) for item in items)
    yield from map(Future.result, begun_ahead(tasks, n_threads))


def begun_ahead(tasks, n: int):
    """Yield the tasks of an iterator, each after the next n have been taken from it.

    Taking a task begins it.
    """
    begun = deque(islice(tasks, n))
    for task in tasks:
        begun.append(task)
        yield begun.popleft()
    yield from begun


@lru_cache(maxsize=1)  # for another number of threads, the earlier ones end
def _pool(process: int, n_threads: int) -> ThreadPoolExecutor:
    """Threads with one core each. `process` is its id, as a fork has no threads."""
    pool, begun = ThreadPoolExecutor(n_threads), Barrier(n_threads + 1)

    def begin():
        torch.get_num_threads()  # the first call of a thread sets the process's number
        torch.set_num_threads(1)
        begun.wait()

    try:
        for _ in range(n_threads):
            pool.submit(begin)
        begun.wait()
    finally:
        begun.abort()  # ends their waiting if this thread was interrupted
        torch.set_num_threads(n_threads)  # of this thread, and of other new ones
    return pool
