"""Progress of a fit on disk, from which the same fit continues."""

import hashlib
import json
import os
import time
import warnings
from contextlib import suppress
from pathlib import Path

from skorch.callbacks import Callback

from ._engine.storage import pack, read, unpack, write
from ._identity import unlike

_KIND: dict = {"kind": "checkpoint", "version": 3}
LEAST_PAUSE = 20  # between two files, to the time that writing one takes


class Checkpoint:
    """The file with the progress of a fit, and the previous one.

    Equal fits may write to it at the same time. The file is always complete.

    Parameters
    ----------
    folder : str or path-like
        Created if it does not exist.
    fit : dict of str to str
        The :func:`identity` of the fit. It gives the file its name.
    """

    def __init__(self, folder, fit: dict[str, str]):
        digest = hashlib.sha256(json.dumps(fit, sort_keys=True).encode()).hexdigest()
        name = f"{fit['class']}-{digest[:20]}"
        self.path = Path(folder) / f"{name}.safetensors"
        self.previous = self.path.with_suffix(".previous.safetensors")
        self.fit = fit
        os.makedirs(folder, exist_ok=True)

    def load(self) -> dict | None:
        """The latest progress that can be read, or None if there is no file.

        Raises
        ------
        ValueError
            If there are files, and none can be read.
        """
        problem = None
        for path in (self.path, self.previous):
            try:
                return self._read(path)
            except FileNotFoundError:
                continue
            except ValueError as error:
                problem = error
                warnings.warn(f"Passed over a checkpoint: {error}", stacklevel=6)
        if problem is not None:
            raise ValueError(
                f"No checkpoint of this fit can be read; remove {str(self.path)!r} to "
                "start anew."
            ) from problem
        return None

    def _read(self, path) -> dict:
        tensors, document = read(path, **_KIND)
        others = unlike(self.fit, document.get("fit", {}))
        if others:
            raise ValueError(
                f"{str(path)!r} is of another fit: its `{'`, `'.join(others)}` differ."
            )
        return unpack(document["progress"], tensors)

    def save(self, progress: dict) -> None:
        """Write progress. One complete file exists at any time.

        Raises
        ------
        OSError
            If the file cannot be written; names it.
        """
        tensors: dict = {}
        progress = pack(progress, "progress", tensors)
        document = {"fit": self.fit, "progress": progress}
        with suppress(FileNotFoundError):  # there is none, or another fit was quicker
            os.replace(self.path, self.previous)
        write(self.path, tensors, document, **_KIND)


class SaveProgress(Callback):
    """Writes checkpoints at the ends of epochs, in at most 5% of the time.

    The last epoch of a stage, and the one in which Ctrl-C comes, always get one.

    Parameters
    ----------
    restarts : Restarts
    run : Run
        The one that trains.
    """

    def __init__(self, restarts, run):
        self.restarts = restarts
        self.run = run
        self.next_ = 0.0

    def on_epoch_end(self, net, **kwargs):
        start = time.monotonic()
        last = len(net.history) == net.max_epochs or net.stop_requested()
        if last or start >= self.next_:
            self.restarts.save(self.run, net)
            end = time.monotonic()
            self.next_ = end + LEAST_PAUSE * (end - start)
