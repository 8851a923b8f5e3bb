"""The progress of a fit: its restarts, and a file from which the same fit continues."""

import errno
import hashlib
import json
import math
import os
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from skorch.callbacks import Callback

from ._engine.distributed import Group
from ._engine.files import replace
from ._engine.model import ContrastiveMixture
from ._engine.storage import pack, read, refusing, unpack, write
from ._engine.warn import warn_user

_KIND: dict = {"kind": "checkpoint", "version": 5}
LEAST_PAUSE = 20  # between two files, in multiples of what writing one takes


# -------------------------------------------------------------------------- in memory


@dataclass
class Run:
    """One restart: its model and its progress."""

    seed: int
    model: ContrastiveMixture | None = None
    init_labels: np.ndarray | None = None  # from which EM started first
    labels: np.ndarray | None = None  # from which the present stage started
    history: list[dict] = field(default_factory=list)
    stage: int = 0  # number of finished stages
    state: dict | None = None  # of the trainer, if resumed within a stage
    ready: bool = False  # whether the model can predict after an epoch
    interrupted: bool = False  # whether it ended before its last epoch
    n_filled: int = 0  # clusters that were empty after training
    elbo: float = -math.inf  # of the complete run
    partition: np.ndarray | None = None  # labels of the samples by the complete run

    def saved(self) -> dict:
        """What a checkpoint keeps of a run, besides its model and its trainer."""
        left_out = {"model", "state", "ready", "interrupted"}
        return {name: v for name, v in vars(self).items() if name not in left_out}


class Restarts:
    """Iterates over the runs of a fit, each with its own seed, and keeps the best."""

    def __init__(self, seeds: list[int], checkpoint, device: str):
        self.seeds = seeds
        self.checkpoint = checkpoint
        self.device = device  # its type, such as "cpu"
        self.partitions: list[np.ndarray] = []  # labels of each complete run
        self.best: Run | None = None  # the best complete run
        self.stopped_by: BaseException | None = None
        self.resumed: Run | None = None  # the unfinished run of a checkpoint

    def __iter__(self):
        while len(self.partitions) < len(self.seeds) and self.stopped_by is None:
            run, self.resumed = self.resumed, None
            yield run or Run(self.seeds[len(self.partitions)])

    def done(self, run: Run, elbo: float, partition) -> None:
        """Add a complete run; the run with the best ELBO is kept."""
        run.elbo, run.partition = elbo, partition
        self.partitions.append(partition)
        if self.best is None or elbo > self.best.elbo:
            self.best = run

    def save(self, run: Run | None = None, trainer=None) -> None:
        """Write a checkpoint, if the fit has one; `run` is one that still trains."""
        if self.checkpoint is None:
            return
        kept: dict = {"seeds": self.seeds, "partitions": self.partitions}
        kept["device"] = self.device
        if self.best is not None:
            model = self.best.model
            kept["best"] = self.best.saved() | {
                "weights": dict(model.state_dict()),
                "temperatures": [model.tau, model.kappa],
            }
        if run is not None:
            kept["run"] = run.saved() | {"state": trainer.state()}
        self.checkpoint.save(kept)

    def resume(self, saved: dict, build) -> None:
        """Continue from what was saved; `build` makes a model from a seed."""
        self.partitions = saved["partitions"]
        if "best" in saved:
            model = build(self.seeds[0])
            model.load_state_dict(saved["best"].pop("weights"))
            model.tau, model.kappa = saved["best"].pop("temperatures")
            self.best = Run(**saved["best"], model=model.eval())
        if "run" in saved:
            self.resumed = Run(**saved["run"])


# ---------------------------------------------------------------------------- on disk


class Checkpoint:
    """The file with the progress of a fit, and the previous one.

    Equal fits may write to it at the same time, and the file is always complete. Its
    folder is made if needed. Its name is made from the `identity` of the fit.
    """

    def __init__(self, folder, fit: dict[str, str]):
        digest = hashlib.sha256(json.dumps(fit, sort_keys=True).encode()).hexdigest()
        name = f"{fit['class']}-{digest[:20]}"
        self.path = Path(folder) / f"{name}.safetensors"
        self.previous = self.path.with_suffix(".previous.safetensors")
        self.fit = fit
        self.damaged = False  # whether the file is there and cannot be read
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:  # systems have different errors for this
            above = filter(os.path.lexists, self.path.parents)
            if all(map(os.path.isdir, above)):
                raise
            raise NotADirectoryError(
                f"`checkpoint` must be a folder; {os.fspath(folder)!r} lies at or "
                "below a file."
            ) from error

    def check_writable(self) -> None:
        """Raise OSError before the work if no file can be written in the folder."""
        folder = self.path.parent
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            rule = f"`checkpoint` must be a folder for new files: {error.strerror}"
            raise OSError(error.errno, rule, str(folder)) from error

    def load(self) -> dict | None:
        """The latest progress that can be read, or None if there is no file.

        ValueError if there are files, and none can be read.
        """
        problem = None
        for path in (self.path, self.previous):
            try:
                return self._read(path)
            except FileNotFoundError:
                continue
            except ValueError as error:
                problem = error
                self.damaged |= path == self.path
                warn_user(f"Skipped a checkpoint: {error}")
        if problem is not None:
            there = [repr(str(p)) for p in (self.path, self.previous) if p.exists()]
            raise ValueError(
                "No checkpoint of this fit can be read; to start anew, remove "
                f"{' and '.join(there)}."
            ) from problem
        return None

    def _read(self, path) -> dict:
        tensors, document = read(path, **_KIND)
        with refusing(f"{str(path)!r} cannot be read"):
            fit, progress = document["fit"], unpack(document["progress"], tensors)
        names = sorted(fit.keys() | self.fit.keys())
        others = [name for name in names if fit.get(name) != self.fit.get(name)]
        if others:
            raise ValueError(
                f"{str(path)!r} belongs to another fit: its "
                f"`{'`, `'.join(others)}` differ."
            )
        return progress

    def save(self, progress: dict) -> None:
        """Write progress, or raise an OSError that names the file.

        One complete file exists at any time.
        """
        tensors: dict = {}
        document = {"fit": self.fit, "progress": pack(progress, "progress", tensors)}
        if not self.damaged:  # else the previous file is the complete one
            with suppress(FileNotFoundError):  # no file yet, or an equal fit moved it
                replace(self.path, self.previous)
        try:
            write(self.path, tensors, document, **_KIND)
            self.damaged = False
        except ValueError as error:  # a fit keeps its model after an OSError
            raise OSError(errno.EFBIG, str(error), str(self.path)) from error


class SaveProgress(Callback):
    """Writes checkpoints at the ends of epochs, in at most 5% of the time.

    The last epoch of a stage always gets one. An epoch that Ctrl-C cuts short gets
    none, as it is not whole.
    """

    def __init__(self, restarts: Restarts, run: Run, group: Group):
        self.restarts = restarts
        self.run = run
        self.group = group
        self.next_ = 0.0

    def on_epoch_end(self, net, **kwargs):
        self.group.from_first(lambda: self._save(net))

    def _save(self, net):
        start = time.perf_counter()  # other clocks have steps of 16 ms on Windows
        last = len(net.history) == net.max_epochs or net.stop_requested()
        if last or start >= self.next_:
            self.restarts.save(self.run, net)
            end = time.perf_counter()
            self.next_ = end + LEAST_PAUSE * (end - start)
