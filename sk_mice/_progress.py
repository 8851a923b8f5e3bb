"""The progress bar of a fit, and Ctrl-C."""

import signal
import sys
import threading

from skorch.callbacks import Callback

from ._bars import tqdm

# Time of an epoch of EM in epochs of MoCo, before one has been timed.
USUAL_COST_OF_EM = 2.2
WORDS = {"moco": "MoCo", "em": "EM"}


class FitBar:
    """A progress bar over the epochs of a fit: the stage in words, and the time left.

    Parameters
    ----------
    name : str
    n_epochs : dict of str to int
        Epochs of each stage, over all restarts.
    shown : bool
    """

    def __init__(self, name: str, n_epochs: dict[str, int], shown: bool):
        self.name = name
        self._left = dict(n_epochs)
        self._seconds: dict[str, float] = {}  # of the last epoch of each stage
        self._doing = ""
        self._bar = tqdm(
            total=sum(n_epochs.values()),
            desc=name,
            disable=not shown,
            bar_format="{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} epochs "
            "[{elapsed}{postfix}]",
        )

    def say(self, doing: str) -> None:
        """Show what is being done, in words."""
        self._doing = doing
        self._show()

    def pass_over(self, stage: str, n_epochs: int) -> None:
        """Count epochs that are not trained now."""
        self._left[stage] -= n_epochs
        self._bar.update(n_epochs)
        self._show()

    def epoch(self, stage: str, seconds: float) -> None:
        """Count an epoch and note its duration."""
        self._seconds[stage] = seconds
        self.pass_over(stage, 1)

    def close(self) -> None:
        """End the bar."""
        self._bar.close()

    def _show(self):
        words = [self._doing]
        seconds = self._seconds_left()
        if seconds:
            words.append(f"about {tqdm.format_interval(seconds)} of training left")
        self._bar.set_postfix_str(", ".join(words))

    def _seconds_left(self) -> float:
        """Seconds of training that are left; 0 before an epoch has been timed."""
        known = self._seconds
        usual = {"moco": 0.0, "em": USUAL_COST_OF_EM * known.get("moco", 0.0)}
        return sum(n * known.get(s, usual[s]) for s, n in self._left.items())


class Follow(Callback):
    """Counts the epochs of a stage; from the first on, Ctrl-C waits for their end."""

    def __init__(self, bar: FitBar, interrupt, stage: str):
        self.bar = bar
        self.interrupt = interrupt
        self.stage = stage

    def on_epoch_end(self, net, **kwargs):
        self.bar.epoch(self.stage, net.history[-1, "seconds"])
        self.interrupt.waits = True


def check_callbacks(callbacks) -> None:
    """Raise TypeError unless each is a skorch callback, or a pair of name and one."""
    for item in callbacks or ():
        named = isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)
        callback = item[1] if named else item
        kind = callback if isinstance(callback, type) else type(callback)
        if not issubclass(kind, Callback):
            raise TypeError(f"`callbacks` must be skorch callbacks; got {item!r}.")


class Interrupt:
    """Delays a first Ctrl-C until the end of an epoch.

    As a context manager it replaces Python's own handler in the main thread, which is
    the only one that gets signals. A handler that the user has set is still called.

    Parameters
    ----------
    announce : callable
        Called at a first Ctrl-C that is delayed; returns a message for the user.

    Attributes
    ----------
    waits : bool
        Whether the first Ctrl-C is delayed. False at the beginning, when Ctrl-C raises
        KeyboardInterrupt. A second Ctrl-C always does.
    """

    def __init__(self, announce):
        self.waits = False
        self._announce = announce
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
        try:
            print(f"\n{self._announce()}", file=sys.stderr, flush=True)
        except RuntimeError:  # the signal came during another print
            return
