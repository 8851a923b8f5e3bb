"""Ctrl-C: a fit keeps a model; a call of several fits, and imports, end at once."""

import signal
import sys
import threading
from contextlib import contextmanager, suppress

STOPPING = (
    "Stopping. First, a model is made of the whole epochs, which takes a few seconds."
    " Press Ctrl-C again to stop without a model."
)


class Interrupt:
    """Ends a fit by a first Ctrl-C before its next batch, with a model of whole epochs.

    As a context manager, it handles the signal in the main thread, the only one that
    gets signals. A handler that the user has set is still called.

    Ctrl-C raises KeyboardInterrupt until the first epoch is complete. From then on,
    `waits` is set: a first Ctrl-C only sets `came`, with a message to the user if
    `is_announced`, and a second one raises.
    """

    def __init__(self, is_announced: bool):
        self.waits = False
        self._is_announced = is_announced
        self._count = 0
        self._handler = None  # the replaced handler, if any

    def __enter__(self):
        handler = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(handler):
            self._handler = handler
            signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *error):
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
            self._handler = None

    @property
    def came(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self._count > 0

    @property
    def again(self) -> bool:
        """Whether it was pressed more than once, so that the fit must end at once."""
        return self._count > 1

    def _on_signal(self, number, frame):
        self._count += 1
        is_python = self._handler is signal.default_int_handler
        if not (is_python and self.waits and self._count == 1):
            self._handler(number, frame)
            return
        if not self._is_announced:
            return
        # The signal came within another print, or has also ended who reads stderr.
        with suppress(RuntimeError, OSError):
            print(f"\n{STOPPING}", file=sys.stderr, flush=True)


class _CtrlC(BaseException):
    """Ends a fit at once; KeyboardInterrupt would have it keep an unfinished model."""


@contextmanager
def ended_by_ctrl_c():
    """Have Ctrl-C raise KeyboardInterrupt also in fits and imports that would go on.

    Nothing is changed if the user has set a handler, or outside of the main thread.
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
    except BaseException:  # an import may have replaced _CtrlC by another error
        if not pressed:
            raise
    finally:
        if signal.getsignal(signal.SIGINT) is stop:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    if pressed:
        raise KeyboardInterrupt from None
