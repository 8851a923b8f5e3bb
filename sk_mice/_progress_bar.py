"""Progress bars, which leave no thread behind and never end the work."""

import math
import sys
import time
import warnings
from contextlib import suppress

from tqdm import TqdmWarning
from tqdm.std import TqdmDefaultWriteLock

with warnings.catch_warnings():  # in a notebook without ipywidgets, bars are text
    warnings.filterwarnings("ignore", "IProgress not found", TqdmWarning)
    from tqdm import auto

# Time of an epoch of EM in epochs of MoCo, before one has been timed.
USUAL_COST_OF_EM = 2.2
WORDS = {"moco": "learning features", "em": "clustering"}


def seconds_between_lines() -> float | None:
    """Seconds between lines of progress in a log; None on a terminal."""
    return getattr(sys.stderr, "seconds_between_lines", None)


class tqdm(auto.tqdm):
    """tqdm without its monitor thread, which would outlive the bar.

    The work goes on if the bar cannot be shown, as when Ctrl-C has ended ``| tee``, or
    in a program without a terminal, such as one with windows, which has no stderr.
    A log gets the bar as lines, at most one in `seconds_between_lines`, and none of
    work that takes less.
    """

    monitor_interval = 0

    def __init__(self, *args, **kwargs):
        self._between = seconds_between_lines()
        if sys.stderr is None:
            kwargs["disable"] = True
        if self._between is not None:
            kwargs |= {"mininterval": self._between, "miniters": 1}
            self.last_print_t = time.time()  # which the first display needs
        super().__init__(*args, **kwargs)

    def display(self, *args, **kwargs):
        """Show the bar, if that can be done."""
        with suppress(OSError):
            if self._between is None:
                return super().display(*args, **kwargs)
            if time.time() >= self.last_print_t + self._between:
                self.last_print_t = time.time()
                print(self, file=self.fp, flush=True)

    def clear(self, *args, **kwargs):
        """Make room for another text; lines of a log stay."""
        if self._between is None:
            super().clear(*args, **kwargs)

    def close(self):
        """Leave the bar, or remove it; a log gets no last line."""
        if self._between is not None:
            self.delay = math.inf
        with suppress(OSError):
            super().close()


# The lock between threads. tqdm's default is a lock between processes, too, and settles
# how the program starts processes: it could no longer choose.
tqdm.set_lock(TqdmDefaultWriteLock.th_lock)


class FitBar:
    """A progress bar over the epochs of a fit: the stage in words, and the time left.

    `n_epochs` has the epochs of each stage, over all restarts.
    """

    def __init__(self, n_epochs: dict[str, int], shown: bool):
        self._left = dict(n_epochs)
        self._seconds: dict[str, float] = {}  # of the last epoch of each stage
        self._bar = tqdm(
            total=sum(n_epochs.values()),
            disable=not shown,
            bar_format="{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} epochs "
            "[{elapsed}{postfix}]",
        )

    def say(self, doing: str) -> None:
        """Show what is being done, in words."""
        self._bar.set_description_str(doing)

    def advance(self, stage: str, n_epochs: int) -> None:
        """Count epochs, also those that are not trained now, and show the time left."""
        self._left[stage] -= n_epochs
        known = self._seconds
        usual = {"moco": 0.0, "em": USUAL_COST_OF_EM * known.get("moco", 0.0)}
        left = sum(n * known.get(s, usual[s]) for s, n in self._left.items())
        words = f"about {tqdm.format_interval(left)} of training left" if left else ""
        self._bar.set_postfix_str(words, refresh=False)  # none before the first epoch
        self._bar.update(n_epochs)
        self._bar.refresh()

    def epoch(self, stage: str, seconds: float) -> None:
        """Count an epoch and note its duration."""
        self._seconds[stage] = seconds
        self.advance(stage, 1)

    def close(self) -> None:
        """End the bar."""
        self._bar.close()
