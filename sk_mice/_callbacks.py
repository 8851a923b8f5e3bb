"""The callbacks of every fit, those of the user, and Ctrl-C."""

import signal
import sys
import threading
from contextlib import suppress

from skorch.callbacks import BatchScoring, Callback, EpochScoring, LRScheduler

from ._progress_bar import FitBar


class EpochProgress(Callback):
    """Counts the epochs of a stage; after the first, Ctrl-C keeps a model."""

    def __init__(self, bar: FitBar, interrupt, stage: str):
        self.bar = bar
        self.interrupt = interrupt
        self.stage = stage

    def on_epoch_end(self, net, **kwargs):
        self.bar.epoch(self.stage, net.history[-1, "seconds"])
        self.interrupt.waits = True


def check_callbacks(callbacks) -> None:
    """Raise TypeError unless each is a skorch callback, or a pair of name and one.

    ValueError for one that could have no effect, or would fail after an epoch.
    """
    for item in callbacks or ():
        named = isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)
        callback = item[1] if named else item
        kind = callback if isinstance(callback, type) else type(callback)
        if not issubclass(kind, Callback):
            raise TypeError(f"`callbacks` must be skorch callbacks; got {item!r}.")
        if issubclass(kind, LRScheduler):
            raise ValueError(
                "`callbacks` must not hold an LRScheduler: every step sets the rate by "
                "`lr` and the schedule of the fit."
            )
        if _cannot_score(kind, callback):
            raise ValueError(
                f"`callbacks` must not hold {kind.__name__} as it is: it needs samples "
                "held out, or a y. EpochScoring(function, on_train=True, "
                "use_caching=False) calls function(net, X, y=None) after each epoch."
            )


def _cannot_score(kind, callback) -> bool:
    """Whether it scores as those of skorch that need a y, or samples held out."""
    if kind.on_batch_end is BatchScoring.on_batch_end:
        return True
    if kind.on_epoch_end is not EpochScoring.on_epoch_end:
        return False
    needs_batches = getattr(callback, "use_caching", True)
    on_train = getattr(callback, "on_train", False)
    function = getattr(callback, "scoring", None)
    return needs_batches or not on_train or not callable(function)


class Interrupt:
    """Ends a fit by a first Ctrl-C before its next batch, with a model of whole epochs.

    As a context manager it replaces Python's own handler in the main thread, which is
    the only one that gets signals. A handler that the user has set is still called.

    `waits` says whether the first Ctrl-C only sets `came`: not before the first epoch
    is whole, when it raises KeyboardInterrupt, as a second one always does. `message`
    is for the user, if it waits; None says nothing.
    """

    def __init__(self, message: str | None):
        self.waits = False
        self._message = message
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
        if self._message is None:
            return
        # The signal came during another print, or has ended the reader of stderr, too.
        with suppress(RuntimeError, OSError):
            print(f"\n{self._message}", file=sys.stderr, flush=True)
