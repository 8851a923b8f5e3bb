"""How far a fit has come: its restarts, and the run of now."""

import math
from dataclasses import dataclass, field

import numpy as np

from ._engine.model import ContrastiveMixture
from ._engine.trainer import Trainer


@dataclass
class Run:
    """One model and how it comes about."""

    model: ContrastiveMixture
    init_labels: np.ndarray | None = None
    history: list[dict] = field(default_factory=list)
    two_stage: bool = False
    labels: np.ndarray | None = None  # that the stage of now starts from
    stage: int = 0  # how many have come to their end
    state: dict | None = None  # of the trainer, if a stage goes on from a checkpoint

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
        """What a checkpoint keeps: this, and the run of now after a whole epoch."""
        kept = {"seeds": self.seeds, "partitions": self.partitions, "run": None}
        kept |= {"elbo": self.elbo, "labels": self.labels, "best": None}
        if self.best is not None:
            weights = dict(self.best.model.state_dict())
            kept["best"] = self.best.facts() | {"weights": weights}
        if run is not None:
            kept["run"] = run.facts() | {"state": trainer.state()}
        return kept
