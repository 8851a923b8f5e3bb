"""Ctrl-C where one call does several fits, or imports what may swallow it."""

import signal
import threading
from contextlib import contextmanager


class _CtrlC(BaseException):
    """Ends a fit at once, which after KeyboardInterrupt keeps an unfinished model."""


@contextmanager
def ended_by_ctrl_c():
    """Ctrl-C raises KeyboardInterrupt, also out of fits and imports that would go on.

    A handler that the user has set, and threads beside the main one, are left alone.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    pressed = []

    def stop(number, frame):
        pressed.append(number)
        raise _CtrlC

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    except BaseException:  # imports may have made another error of it
        if not pressed:
            raise
    finally:
        if signal.getsignal(signal.SIGINT) is stop:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    if pressed:
        raise KeyboardInterrupt from None
