"""The callbacks of every fit, and what a user's may be."""

from skorch.callbacks import BatchScoring, Callback, EpochScoring, LRScheduler

from ._busy_cores import BusyCores
from ._interruption import Interrupt
from ._progress_bar import FitBar


class EpochProgress(Callback):
    """Counts the epochs of a stage; after the first, Ctrl-C keeps a model."""

    def __init__(self, bar: FitBar, interrupt: Interrupt, stage: str):
        self.bar = bar
        self.interrupt = interrupt
        self.stage = stage

    def on_epoch_end(self, net, **kwargs):
        self.bar.epoch(self.stage, net.history[-1, "seconds"])
        self.interrupt.waits = True


class LookForBusyCores(Callback):
    """Leaves busy cores alone, over all stages of a fit."""

    def __init__(self, cores: BusyCores):
        self.cores = cores

    def on_train_begin(self, net, **kwargs):
        self.cores.begin()

    def on_batch_end(self, net, **kwargs):
        self.cores.look()


def check_callbacks(callbacks) -> None:
    """Raise TypeError unless each is a skorch callback, or a pair (name, callback).

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
    """Whether it is a scoring of skorch that needs a y, or held-out samples."""
    if kind.on_batch_end is BatchScoring.on_batch_end:
        return True
    if kind.on_epoch_end is not EpochScoring.on_epoch_end:
        return False
    needs_batches = getattr(callback, "use_caching", True)
    on_train = getattr(callback, "on_train", False)
    function = getattr(callback, "scoring", None)
    return needs_batches or not on_train or not callable(function)
