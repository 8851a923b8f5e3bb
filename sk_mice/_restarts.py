"""The restarts of a fit: the progress of each, and the best of them."""

import math
from dataclasses import dataclass, field

import numpy as np

from ._engine.model import ContrastiveMixture


@dataclass
class Run:
    """One restart: its model and its progress."""

    seed: int
    model: ContrastiveMixture | None = None
    init_labels: np.ndarray | None = None  # from which EM started first
    labels: np.ndarray | None = None  # from which the present stage started
    history: list[dict] = field(default_factory=list)
    stage: int = 0  # number of finished stages
    state: dict | None = None  # of the trainer, if a checkpoint ends within a stage
    ready: bool = False  # whether the model can predict after an epoch

    def facts(self) -> dict:
        """What a checkpoint keeps of a run, without its model."""
        names = ("seed", "init_labels", "labels", "history", "stage")
        return {name: getattr(self, name) for name in names}


class Restarts:
    """Iterates over the runs of a fit, each with its own seed, and keeps the best.

    Parameters
    ----------
    seeds : list of int
    checkpoint : Checkpoint or None

    Attributes
    ----------
    partitions : list of ndarray
        Labels of the samples by each complete run.
    best : Run or None
        The best of the complete runs.
    elbo, labels
        Those of the best run.
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
        self.taken_up: Run | None = None  # the run within which a checkpoint ends

    def __iter__(self):
        while len(self.partitions) < len(self.seeds) and self.stopped_by is None:
            run, self.taken_up = self.taken_up, None
            yield run or Run(self.seeds[len(self.partitions)])

    def done(self, run: Run, elbo: float, partition) -> None:
        """Add a complete run; the run with the best ELBO is kept."""
        self.partitions.append(partition)
        if elbo > self.elbo:
            self.best, self.elbo, self.labels = run, elbo, partition

    def save(self, run: Run | None = None, trainer=None) -> None:
        """Write a checkpoint, if the fit has one, also of a run that still trains."""
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
        """Continue from the progress that a checkpoint holds.

        Parameters
        ----------
        saved : dict
        build : callable
            Makes a model from a seed. Its weights are replaced.
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
