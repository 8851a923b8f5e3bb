"""Progress of a fit on disk, so that a fit that was cut off goes on where it was."""

import hashlib
import json
import os
import warnings
from pathlib import Path

import numpy as np
import torch
from skorch.callbacks import Callback
from torch import nn

from ._engine.container import read_container, write_container
from ._plain import NotPlainError, from_plain, to_plain

FORMAT_VERSION = 1
# What can be changed without changing what a fit arrives at. Callbacks have states of
# their own, which nobody but they can tell apart or restore.
_INDIFFERENT = {"callbacks", "checkpoint", "checkpoint_every", "verbose"}
_ROWS = 4096  # of X that are hashed at a time


class Checkpoint:
    """A file with the progress of one fit, and the file before it.

    Parameters
    ----------
    folder : str or path-like
        Made if it is not there.
    every : int
        Epochs between two files. The last epoch of a stage always gets one.
    name : str
        Of the file, without its ending.
    """

    def __init__(self, folder, every: int, name: str):
        self.path = Path(folder) / f"{name}.safetensors"
        self.previous = self.path.with_suffix(".previous.safetensors")
        self.every = every
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
                tensors, document = read_container(
                    path, kind="checkpoint", version=FORMAT_VERSION
                )
                return from_plain(document["progress"], tensors)
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

    def save(self, progress: dict) -> None:
        """Write progress; whatever happens meanwhile, one whole file is there.

        Raises
        ------
        OSError
            That names the file.
        """
        tensors = {}
        document = {"progress": to_plain(progress, "progress", tensors)}
        if self.path.exists():
            os.replace(self.path, self.previous)
        write_container(
            self.path, tensors, document, kind="checkpoint", version=FORMAT_VERSION
        )


class SaveProgress(Callback):
    """Writes a checkpoint at the ends of epochs.

    Parameters
    ----------
    checkpoint : Checkpoint
    progress : callable
        Takes the trainer and returns what to write.
    """

    def __init__(self, checkpoint, progress):
        self.checkpoint = checkpoint
        self.progress = progress

    def on_epoch_end(self, net, **kwargs):
        epoch = len(net.history)
        if epoch % self.checkpoint.every == 0 or epoch == net.max_epochs:
            self.checkpoint.save(self.progress(net))


def fingerprint(estimator, X, *more) -> str:
    """Name of a fit: its class, and a hash of all that decides what it arrives at.

    Parameters
    ----------
    estimator : BaseEstimator
    X : array
    *more : object
        Whatever else the fit is a function of.
    """
    sha = hashlib.sha256()
    parameters = estimator.get_params(deep=False)
    for name in sorted(parameters.keys() - _INDIFFERENT):
        _hash(sha, [name, parameters[name]])
    for value in more:
        _hash(sha, value)
    sha.update(f"{X.shape} {X.dtype.str}".encode())
    for start in range(0, len(X), _ROWS):
        sha.update(np.ascontiguousarray(X[start : start + _ROWS]))
    return f"{type(estimator).__name__}-{sha.hexdigest()[:20]}"


def _hash(sha, value) -> None:
    """Hash data by value, code by name, a module by name and tensors."""
    if isinstance(value, list | tuple):
        for item in value:
            _hash(sha, item)
        return
    tensors = {}
    if isinstance(value, nn.Module):
        plain = [repr(value), type(value).__qualname__]
        tensors = {name: t.cpu() for name, t in value.state_dict().items()}
    elif isinstance(value, np.random.RandomState):
        _hash(sha, list(value.get_state()))
        return
    else:
        try:
            plain = to_plain(value, "", tensors)
        except NotPlainError:  # code
            kind = value if callable(value) else type(value)
            plain = [kind.__module__, getattr(kind, "__qualname__", repr(kind))]
    sha.update(json.dumps(plain, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        sha.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        sha.update(tensor.flatten().view(torch.uint8).numpy())
