"""The threads of BLAS, which are those of the whole process."""

import threading
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

# Held by the thread that sets the limit. A second one would take the limit of the first
# for the user's setting, and restore it.
_limiting = threading.Lock()
_of_this_thread = threading.local()


@contextmanager
def one_blas_thread():
    """Give BLAS one thread; yields over how many threads work may be spread.

    Threads that share a decomposition or a small product wait for each other: if
    another process keeps a core busy, up to fifty times as long as one thread takes.

    The number is the one that BLAS had, also in nested contexts. It is 1 while another
    thread of the process is in this context.
    """
    outer = getattr(_of_this_thread, "n_threads", None)
    if outer is not None:
        yield outer
        return
    if not _limiting.acquire(blocking=False):
        yield 1
        return
    try:
        blas = _controller().select(user_api="blas")
        n_threads = max((info["num_threads"] for info in blas.info()), default=1)
        _of_this_thread.n_threads = n_threads
        with blas.limit(limits=1):
            yield n_threads
    finally:
        _of_this_thread.n_threads = None
        _limiting.release()


@cache
def _controller():
    return ThreadpoolController()  # looks through all loaded libraries: 10 ms
