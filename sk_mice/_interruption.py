"""Ctrl-C where one call does several fits."""

import signal
import threading
from contextlib import contextmanager


class _CtrlC(BaseException):
    """Ends a fit at once, which would keep an unfinished model of KeyboardInterrupt."""


@contextmanager
def ended_by_ctrl_c():
    """Ctrl-C raises KeyboardInterrupt at once, also out of fits that would go on.

    A handler that the user has set, and threads beside the main one, are left alone.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def stop(number, frame):
        raise _CtrlC

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    except _CtrlC:
        raise KeyboardInterrupt from None
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
