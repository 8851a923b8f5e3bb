"""Ctrl-C during a fit: the first ends it in good order, the second at once."""

import signal
import sys
import threading


class Interrupt:
    """Notes Ctrl-C, and lets it wait where there is something to keep.

    As a context manager it takes the place of Python's own handler, in the main thread,
    which alone gets signals. A handler of the user's own goes on as before; its calls
    are noted.

    Parameters
    ----------
    announce : callable
        Called at a first Ctrl-C that waits; returns what to tell the user.

    Attributes
    ----------
    waits : bool
        Whether the first Ctrl-C waits until it is asked for. False at the beginning:
        it raises KeyboardInterrupt, as a second one does at any time.
    """

    def __init__(self, announce):
        self.waits = False
        self._announce = announce
        self._count = 0
        self._handler = None  # the one before, if this one stands in for it

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
        """Whether there was a Ctrl-C."""
        return self._count > 0

    @property
    def again(self) -> bool:
        """Whether there was more than one, so that all work has to end."""
        return self._count > 1

    def _on_signal(self, number, frame):
        self._count += 1
        is_python = self._handler is signal.default_int_handler
        if not (is_python and self.waits and self._count == 1):
            self._handler(number, frame)
            return
        try:
            print(f"\n{self._announce()}", file=sys.stderr, flush=True)
        except RuntimeError:  # the signal came while something else was printed
            return
