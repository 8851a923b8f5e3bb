"""The folder with the results of a fit, and the images sorted by cluster."""

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

from typer import BadParameter

from .._engine.files import check_writable, write_atomically


class ResultFolder:
    """The files that ``sk-mice fit`` writes."""

    def __init__(self, path):
        self.path = Path(path)
        self.table = self.path / "clusters.csv"
        self.model = self.path / "model.safetensors"
        self.page = self.path / "report.html"
        self.run = self.path / "run.json"
        self.checkpoint = self.path / "checkpoint"
        self.features = self.checkpoint / "features.npy"

    def read_run(self) -> dict | None:
        """What is known of the fit; None where there is none."""
        try:
            return json.loads(self.run.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ValueError(f"{str(self.run)!r} is damaged: {error}.") from error

    def write_run(self, run: dict) -> None:
        """Replace what is known of the fit."""
        write_atomically(self.run, [json.dumps(run, indent=2).encode()])

    def check_free(self, resume: bool, overwrite: bool) -> None:
        """Refuse a folder with other files, and an earlier result unless it is meant.

        BadParameter before anything is read or written.
        """
        if resume and overwrite:
            raise BadParameter("it contradicts --resume", param_hint="--overwrite")
        if not self.path.exists():
            return
        if not self.path.is_dir():
            self._refuse("is not a folder")
        if not self.run.exists():
            if any(self.path.iterdir()):
                self._refuse("holds other files; name a new folder")
        elif not resume and not overwrite:
            self._refuse(
                "holds a result; --resume goes on with it, --overwrite replaces it"
            )

    def _refuse(self, why: str):
        raise BadParameter(f"{str(self.path)!r} {why}", param_hint="--out")

    def clear(self) -> None:
        """Make the folder, without the files of an earlier fit."""
        self.path.mkdir(parents=True, exist_ok=True)
        for path in (self.run, self.table, self.model, self.page):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.checkpoint, ignore_errors=True)

    @property
    def has_progress(self) -> bool:
        """Whether there is something to go on with."""
        kept = self.checkpoint.glob("*.safetensors")
        return self.table.exists() or self.features.exists() or any(kept)

    def remove(self) -> None:
        """Remove its files, and the folder if nothing else is in it."""
        self.clear()
        with suppress(OSError):
            self.path.rmdir()


def require_result(path) -> tuple[ResultFolder, dict]:
    """A folder with a model, and what is known of its fit."""
    result = ResultFolder(path)
    run = result.read_run()
    if run is None or not result.model.exists():
        raise BadParameter(
            f"{str(path)!r} holds no model of `sk-mice fit`", param_hint="RESULT"
        )
    return result, run


def check_outside(path, photos, option: str) -> None:
    """Refuse a folder among the images, where it would be read with them."""
    inner, outer = (os.path.realpath(p) for p in (path, photos))
    if os.path.commonpath([inner, outer]) == outer:
        raise BadParameter(
            f"{str(path)!r} lies in the folder of images, and would be read with them",
            param_hint=option,
        )


def check_new(path, overwrite: bool) -> None:
    """Refuse a file that cannot be written, or that exists unless it is replaced."""
    if path is None:
        return
    if not overwrite and os.path.lexists(path):
        raise BadParameter(
            f"{str(path)!r} exists; --overwrite replaces it", param_hint="--out"
        )
    try:
        check_writable(path, "it")
    except OSError as error:
        raise BadParameter(
            f"{error.strerror}; got {str(path)!r}", param_hint="--out"
        ) from error


def check_folder(folder, option: str) -> None:
    """Refuse a folder that cannot be made, or in which nothing can be written."""
    nearest = os.path.abspath(folder)
    while not os.path.lexists(nearest):
        nearest = os.path.dirname(nearest)
    if not os.path.isdir(nearest):
        why = "is not a folder"
    elif not os.access(nearest, os.W_OK | os.X_OK):
        why = "must be writable"
    else:
        return
    raise BadParameter(f"{nearest!r} {why}", param_hint=option)


def check_empty(folder, option: str) -> None:
    """Refuse a folder in which a file could be overwritten."""
    if folder is None or not os.path.lexists(folder):
        return
    if not os.path.isdir(folder) or os.listdir(folder):
        raise BadParameter(
            f"{str(folder)!r} must be new or empty, so that no file is overwritten",
            param_hint=option,
        )


def sort_into(folder, photos, files, labels, link: bool) -> None:
    """Copy or link each file into a folder of its cluster, with its subfolders."""
    width = len(str(max(labels)))
    for name, label in zip(files, labels, strict=True):
        source = os.path.join(os.path.realpath(photos), name)
        target = os.path.join(folder, f"cluster-{label:0{width}}", name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if link:
            os.symlink(source, target)  # fails if there is a file
            continue
        with open(source, "rb") as content, open(target, "xb") as copy:
            shutil.copyfileobj(content, copy)
        shutil.copystat(source, target)
