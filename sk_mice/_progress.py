"""How far a fit has come: its restarts, the run that trains, and what the user sees."""

import math
from dataclasses import dataclass, field

import numpy as np
from skorch.callbacks import Callback

from ._bars import tqdm
from ._engine.model import ContrastiveMixture
from ._engine.trainer import Trainer

# Of an epoch of EM to one of MoCo, where none has been timed yet.
USUAL_COST_OF_EM = 2.2
WORDS = {"moco": "MoCo", "em": "EM"}


@dataclass
class Run:
    """One model and how it comes about."""

    model: ContrastiveMixture
    init_labels: np.ndarray | None = None
    history: list[dict] = field(default_factory=list)
    two_stage: bool = False
    labels: np.ndarray | None = None  # that the stage starts from
    stage: int = 0  # how many have come to their end
    state: dict | None = None  # of the trainer, if a stage goes on from a checkpoint
    ready: bool = False  # whether the model can predict, once an epoch is behind it

    def facts(self) -> dict:
        """All but the model."""
        names = ("history", "init_labels", "labels", "stage")
        return {name: getattr(self, name) for name in names}


@dataclass
class Progress:
    """How far the restarts of a fit have come."""

    seeds: list[int]
    partitions: list[np.ndarray] = field(default_factory=list)  # one a whole restart
    best: Run | None = None  # of the whole ones
    elbo: float = -math.inf  # the best one's
    labels: np.ndarray | None = None  # the best one's partition
    stopped_by: BaseException | None = None

    def done(self, run: Run, elbo: float, partition) -> None:
        """Add a restart; the one with the best ELBO is kept, as in a last E-step."""
        self.partitions.append(partition)
        if elbo > self.elbo:
            self.best, self.elbo, self.labels = run, elbo, partition

    def record(self, run: Run | None = None, trainer: Trainer | None = None) -> dict:
        """What a checkpoint keeps: this, and the run that trains."""
        kept = {"seeds": self.seeds, "partitions": self.partitions, "run": None}
        kept |= {"elbo": self.elbo, "labels": self.labels, "best": None}
        if self.best is not None:
            weights = dict(self.best.model.state_dict())
            kept["best"] = self.best.facts() | {"weights": weights}
        if run is not None:
            kept["run"] = run.facts() | {"state": trainer.state()}
        return kept


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
        self._seconds: dict[str, float] = {}  # an epoch of each stage takes
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
        """Count epochs that this process does not train."""
        self._left[stage] -= n_epochs
        self._bar.update(n_epochs)
        self._show()

    def epoch(self, stage: str, seconds: float) -> None:
        """Count an epoch that took so long."""
        self._seconds[stage] = seconds
        self.pass_over(stage, 1)

    def close(self) -> None:
        """Leave the bar as it is."""
        self._bar.close()

    def _show(self):
        words = [self._doing]
        seconds = self._seconds_left()
        if seconds:
            words.append(f"about {tqdm.format_interval(seconds)} of training left")
        self._bar.set_postfix_str(", ".join(words))

    def _seconds_left(self) -> float:
        """Of training; 0 where nothing has been timed yet."""
        known = self._seconds
        usual = {"moco": 0.0, "em": USUAL_COST_OF_EM * known.get("moco", 0.0)}
        return sum(n * known.get(s, usual[s]) for s, n in self._left.items())


class Follow(Callback):
    """Counts the epochs of a stage on the bar, and makes Ctrl-C wait from the first."""

    def __init__(self, bar: FitBar, interrupt, stage: str):
        self.bar = bar
        self.interrupt = interrupt
        self.stage = stage

    def on_epoch_end(self, net, **kwargs):
        self.bar.epoch(self.stage, net.history[-1, "seconds"])
        self.interrupt.waits = True
