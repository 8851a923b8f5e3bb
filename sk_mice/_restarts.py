"""The restarts of a fit: how far each has come, and which is the best."""

import math
from dataclasses import dataclass, field

import numpy as np

from ._engine.model import ContrastiveMixture


@dataclass
class Run:
    """One model and how it comes about."""

    seed: int
    model: ContrastiveMixture | None = None
    init_labels: np.ndarray | None = None  # that EM first started from
    labels: np.ndarray | None = None  # that the present stage started from
    history: list[dict] = field(default_factory=list)
    stage: int = 0  # how many have come to their end
    state: dict | None = None  # of the trainer, if a stage goes on from a checkpoint
    ready: bool = False  # whether the model can predict, once an epoch is behind it

    def facts(self) -> dict:
        """All but the model and what belongs to a process."""
        names = ("seed", "init_labels", "labels", "history", "stage")
        return {name: getattr(self, name) for name in names}


class Restarts:
    """Goes through the runs of a fit, each from a seed of its own; keeps the best.

    Parameters
    ----------
    seeds : list of int
    checkpoint : Checkpoint or None

    Attributes
    ----------
    partitions : list of ndarray
        Labels of the samples by each whole run.
    best : Run or None
        Of the whole ones.
    elbo, labels
        The best one's.
    stopped_by : BaseException or None
    """

    def __init__(self, seeds: list[int], checkpoint=None):
        self.seeds = seeds
        self.checkpoint = checkpoint
        self.partitions: list[np.ndarray] = []
        self.best: Run | None = None
        self.elbo = -math.inf
        self.labels: np.ndarray | None = None
        self.stopped_by: BaseException | None = None
        self.taken_up: Run | None = None  # in the middle of which a checkpoint ends

    def __iter__(self):
        while len(self.partitions) < len(self.seeds) and self.stopped_by is None:
            run, self.taken_up = self.taken_up, None
            yield run or Run(self.seeds[len(self.partitions)])

    def done(self, run: Run, elbo: float, partition) -> None:
        """Add a whole run; the one with the best ELBO is kept."""
        self.partitions.append(partition)
        if elbo > self.elbo:
            self.best, self.elbo, self.labels = run, elbo, partition

    def save(self, run: Run | None = None, trainer=None) -> None:
        """Write to the checkpoint, if there is one; also a run that trains."""
        if self.checkpoint is None:
            return
        kept = {"seeds": self.seeds, "partitions": self.partitions, "run": None}
        kept |= {"elbo": self.elbo, "labels": self.labels, "best": None}
        if self.best is not None:
            weights = dict(self.best.model.state_dict())
            kept["best"] = self.best.facts() | {"weights": weights}
        if run is not None:
            kept["run"] = run.facts() | {"state": trainer.state()}
        self.checkpoint.save(kept)

    def take_up(self, saved: dict, build) -> None:
        """Go on from what a checkpoint has kept.

        Parameters
        ----------
        saved : dict
        build : callable
            Makes a model, of whatever weights, from a seed.
        """
        self.partitions, self.elbo = saved["partitions"], saved["elbo"]
        self.labels = saved["labels"]
        if saved["best"] is not None:
            weights = saved["best"].pop("weights")
            self.best = Run(**saved["best"], model=build(self.seeds[0]))
            self.best.model.load_state_dict(weights)
            self.best.model.eval()
        if saved["run"] is not None:
            self.taken_up = Run(**saved["run"])
