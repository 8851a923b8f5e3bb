"""Progress of a fit on disk, so that a fit that was cut off goes on where it was."""

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
    """A file with the progress of one fit, and the file before it.

    Equal fits may write to it at once: it is whole at any time, whoever writes last.

    Parameters
    ----------
    folder : str or path-like
        Made if it is not there.
    fit : dict of str to str
        The fit's :func:`identity`, after which the file is named.
    """

    def __init__(self, folder, fit: dict[str, str]):
        digest = hashlib.sha256(json.dumps(fit, sort_keys=True).encode()).hexdigest()
        name = f"{fit['class']}-{digest[:20]}"
        self.path = Path(folder) / f"{name}.safetensors"
        self.previous = self.path.with_suffix(".previous.safetensors")
        self.fit = fit
        os.makedirs(folder, exist_ok=True)

    def load(self) -> dict | None:
        """The latest progress that is on disk in one piece, or None.

        Raises
        ------
        ValueError
            If there are files, and none is in one piece.
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
        """Write progress; whatever happens meanwhile, one whole file is there.

        Raises
        ------
        OSError
            That names the file.
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
