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
    lets all of them share every operation, which ends when the last of them ends. If
    another process keeps a core busy, they wait for each other most of the time.

    Fewer items (`n_items`) than threads are computed one after the other, as torch
    does it. Otherwise at most one more than there are threads is taken ahead, and the
    function sets what torch keeps for each thread, such as the inference mode.
    """
    n_threads = torch.get_num_threads()
    if n_threads == 1 or n_items < n_threads:
        yield from map(function, items)
        return
    pool = _pool(os.getpid(), n_threads)
    tasks = (pool.submit(function, item) for item in items)
    yield from map(Future.result, begun_ahead(tasks, n_threads))


def begun_ahead(tasks, n: int):
    """Yield each task of an iterator, which begins them, once n more have begun."""
    begun = deque(islice(tasks, n))
    for task in tasks:
        begun.append(task)
        yield begun.popleft()
    yield from begun


@lru_cache(maxsize=1)  # threads end with their pool, when there is another number
def _pool(process: int, n_threads: int) -> ThreadPoolExecutor:
    """Threads that compute with one core each; a fork does not have its parent's."""
    pool, begun = ThreadPoolExecutor(n_threads), Barrier(n_threads + 1)

    def begin():
        torch.get_num_threads()  # a thread's first call sets that of the process
        torch.set_num_threads(1)
        begun.wait()

    try:
        for _ in range(n_threads):
            pool.submit(begin)
        begun.wait()
    finally:
        begun.abort()  # if this thread has been interrupted, they do not wait on
        torch.set_num_threads(n_threads)  # for threads that are none of these
    return pool
