"""The folder with the results of a fit, and what can be refused before the work."""

import hashlib
import json
import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from typer import BadParameter

from .._engine.files import (
    TEMPORARY,
    check_writable,
    locked_folder,
    move,
    write_atomically,
)
from .._engine.maps import write_rows
from ..datasets._names import is_hidden

PLOT = "choose-k.png"  # the default name of what `sk-mice choose-k` draws


class ResultFolder:
    """The files that ``sk-mice fit`` writes.

    ``run.json`` describes the result in the folder. The facts of a fit under way lie
    beside its checkpoints, and so do the files of a new result until all of them are
    there: an earlier result stays whole until it is replaced. `option` is what the user
    knows the folder as.
    """

    def __init__(self, path, option: str):
        self.path = Path(path)
        self.option = option
        self.table = self.path / "clusters.csv"
        self.model = self.path / "model.safetensors"
        self.page = self.path / "report.html"
        self.run = self.path / "run.json"
        self.features = self.path / "features.npy"
        self.of_features = self.path / "features.json"  # what they were made of
        self.checkpoint = self.path / "checkpoint"
        self.started = self.checkpoint / "run.json"
        self.started_features = self.checkpoint / "features.npy"

    @property
    def files(self) -> tuple[Path, ...]:
        """All that a result may have."""
        features = self.features, self.of_features
        return self.table, self.model, self.page, self.run, *features

    @property
    def names(self) -> dict[str, str]:
        """The files for the user, by what they are."""
        files = {"table": self.table, "model": self.model, "report": self.page}
        return {what: str(path) for what, path in files.items()}

    def read_run(self) -> dict | None:
        """The facts of the fit that has a result; None where there is none."""
        return self._read(self.run)

    def read_started(self) -> dict | None:
        """The facts of a fit that can go on, or else of the fit with a result."""
        return self._read(self.started) or self.read_run()

    def _read(self, path) -> dict | None:
        run = _loaded(path)
        if run is None and path.exists():
            self._refuse(f"holds no run of sk-mice; {str(path)!r} is another program's")
        return run

    def new(self, file: Path) -> Path:
        """Where a file of a new result is until the others are there."""
        return self.checkpoint / ("result.json" if file == self.run else file.name)

    def install(self, run: dict) -> None:
        """Replace the result by the new one, of which all other files are there."""
        _write_facts(self.new(self.run), run)
        self.install_rest()

    def install_rest(self) -> None:
        """Do what is left of :meth:`install` if a command ended within it."""
        if _loaded(self.new(self.run)) is None:
            return
        files = self.table, self.model, self.page, self.run
        self._check_places(files)
        for file in files:
            with suppress(FileNotFoundError):  # it is in its place
                move(self.new(file), file)

    def write_started(self, run: dict) -> None:
        """Replace the facts of the fit that is under way."""
        _write_facts(self.started, run)

    def check_free(self, resume: bool, overwrite: bool) -> None:
        """Refuse a folder with other files, and an earlier result unless it is meant.

        A folder with the plot or the features of `sk-mice choose-k` is free.
        BadParameter before anything is read or written.
        """
        if resume and overwrite:
            raise BadParameter("it contradicts --resume", param_hint="--overwrite")
        if not self.path.exists():
            return
        if not self.path.is_dir():
            self._refuse("is not a folder")
        if self.read_started() is None:
            if self._holds_others() and not self.of_features.exists():
                self._refuse("holds other files; name a new folder")
        elif not resume and not overwrite:
            self._refuse(
                "holds a result; --resume goes on with it, --overwrite replaces it"
            )

    def _holds_others(self) -> bool:
        """Whether there is more than a plot, and what a run killed early leaves."""
        begun = self.checkpoint.is_dir() and all(
            name.startswith(TEMPORARY) for name in os.listdir(self.checkpoint)
        )
        return holds_files(self.path, [PLOT, self.checkpoint.name] if begun else [PLOT])

    def _refuse(self, why: str):
        raise BadParameter(f"{str(self.path)!r} {why}", param_hint=self.option)

    def _check_places(self, files) -> None:
        """Refuse files that cannot be written, and links in place of them.

        Files elsewhere would be changed: whoever made the folder may have set links.
        """
        places = files
        if self.run in files:  # a fit also writes into its checkpoint
            kept = self.checkpoint.iterdir() if self.checkpoint.is_dir() else ()
            places = *files, self.checkpoint, *kept
        for path in places:
            if path.is_symlink():
                self._refuse(
                    f"must not hold the link {str(path)!r}, as what it leads to would "
                    "be changed"
                )
        for file in files:
            check_writable(file, "it")

    @contextmanager
    def held(self, *files):
        """Hold the folder, see :func:`held`, while `files` are written."""
        with held(self.path, self.option):
            self._check_places(files)
            yield

    @property
    def is_whole(self) -> bool:
        """Whether the folder has the result of a fit that went to its end."""
        run = self.read_run()
        return run is not None and run["finished"]

    def begin(self, run: dict) -> None:
        """Make room for a new fit; an earlier result stays as it is."""
        try:
            self.checkpoint.mkdir(exist_ok=True)
            for left in self.checkpoint.iterdir():
                if left != self.started:  # by which a killed run begins again
                    left.unlink()
            self.write_started(run)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Remove what a fit needs to go on."""
        self.started.unlink(missing_ok=True)  # first: alone it is of no use
        shutil.rmtree(self.checkpoint, ignore_errors=True)

    @property
    def has_progress(self) -> bool:
        """Whether there is something to go on with."""
        kept = self.checkpoint.glob("*.safetensors")
        features = self.started_features
        has_features = features.exists() and features.stat().st_size > 0
        return any(kept) or has_features or self.new(self.run).exists()

    def keep_features(self, features, facts: dict) -> None:
        """Keep the features of the fit that ends here."""
        if self.started_features.exists() or self._facts_of_features()[0] != facts:
            write_rows(self.features, features.shape, features.dtype, [features])
            self.describe_features(facts)

    @property
    def has_begun_features(self) -> bool:
        """Whether features of `sk-mice choose-k` are here, and not all of them."""
        facts, sha256 = self._facts_of_features()
        return sha256 is None and {"images", "weights", "versions"} <= facts.keys()

    def begin_features(self, facts: dict) -> bool:
        """Write what the features that this folder will get are made of.

        Returns whether an incomplete set of other features was there, and was dropped.
        """
        drops = self.has_begun_features and self._facts_of_features()[0] != facts
        if drops:
            self.features.unlink(missing_ok=True)
        _write_facts(self.of_features, facts)
        return drops

    def end_features(self) -> None:
        """Remove what is known of features, if there are none yet."""
        if not self.features.exists() or self.features.stat().st_size == 0:
            self.drop_features()

    def drop_features(self) -> None:
        """Remove the features, and what is known of them."""
        self.features.unlink(missing_ok=True)
        self.of_features.unlink(missing_ok=True)

    def describe_features(self, facts: dict) -> None:
        """Write what the features in this folder were made of."""
        facts = facts | {"sha256": _sha256(self.features)}
        _write_facts(self.of_features, facts)

    def read_features(self, facts: dict):
        """The features in this folder, and the row of each image by its digest.

        Returns none if their facts are others than these, except for the images.
        """
        kept, sha256 = self._facts_of_features()
        images = kept.get("images")
        is_same = kept == facts | {"images": images}
        if not sha256 or not is_same or _sha256(self.features) != sha256:
            return None, {}
        features = np.load(self.features)
        if not isinstance(images, list) or len(images) != len(features):  # edited
            return None, {}
        return features, {digest: row for row, digest in enumerate(images)}

    def _facts_of_features(self) -> tuple[dict, str | None]:
        """What features here are made of, and their checksum once all are there."""
        try:
            kept = json.loads(self.of_features.read_bytes())
        except (OSError, ValueError):
            return {}, None
        if not isinstance(kept, dict):  # of another program
            return {}, None
        return kept, kept.pop("sha256", None)


def _write_facts(path, facts: dict) -> None:
    write_atomically(path, [json.dumps(facts, indent=2).encode()])


def _loaded(path) -> dict | None:
    """The facts of a run as ``sk-mice fit`` writes them; None if there are none."""
    try:
        run = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    keys = {"parameters", "max_epochs", "images", "versions", "finished"}
    is_run = (
        isinstance(run, dict)
        and keys <= run.keys()
        and all(isinstance(run[k], dict) for k in ("parameters", "images", "versions"))
        and "sk_mice" in run["versions"]
        and ("results" in run or not run["finished"])
    )
    return run if is_run else None


def _sha256(path) -> str | None:
    """The checksum of a file; None if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def require_result(path) -> tuple[ResultFolder, dict]:
    """A folder with a model, and the facts of its fit."""
    result = ResultFolder(path, "RESULT")
    result.install_rest()
    run = result.read_run()
    if run is None or not result.model.exists():
        result._refuse("holds no model of `sk-mice fit`")
    return result, run


def holds_files(folder, but=()) -> bool:
    """Whether a folder holds more than these, and what its system keeps there."""
    return not all(map(is_hidden, {*os.listdir(folder)} - {*but}))


@contextmanager
def held(folder, option: str):
    """Make a folder, and keep other commands out of it while this one writes there.

    If nothing is in it at the end, it is removed, unless it was there before.
    """
    is_new = not os.path.exists(folder)
    os.makedirs(folder, exist_ok=True)
    try:
        with locked_folder(folder) as is_free:
            if is_free is False:
                raise BadParameter(
                    f"{str(folder)!r} is in use: another run is writing to it",
                    param_hint=option,
                )
            yield
    finally:
        if is_new:
            with suppress(OSError):
                os.rmdir(folder)


def lies_in(inner, outer) -> bool:
    """Whether a path is a folder, or lies in it, links followed."""
    inner, outer = (Path(os.path.realpath(path)) for path in (inner, outer))
    if not os.path.exists(outer):
        return inner.is_relative_to(outer)
    # One folder may have two names: with a capital letter, or mounted at two places.
    there = filter(os.path.exists, (inner, *inner.parents))
    return any(os.path.samefile(path, outer) for path in there)


def check_outside(path, photos, option: str) -> None:
    """Refuse a folder among the images, where it would be read with them."""
    if lies_in(path, photos):
        raise BadParameter(
            f"{str(path)!r} lies in the folder of images, and would be read with them",
            param_hint=option,
        )


def check_new(path, overwrite: bool) -> None:
    """Refuse a file that cannot be written, or that exists unless it is replaced."""
    if path.is_dir():
        raise BadParameter(
            f"{str(path)!r} is a folder; name a file in it", param_hint="--out"
        )
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
    nearest = nearest_there(folder)
    if not os.path.isdir(nearest):
        why = "is not a folder"
    elif not os.access(nearest, os.W_OK | os.X_OK):
        why = "must be writable"
    else:
        return
    raise BadParameter(f"{nearest!r} {why}", param_hint=option)


def nearest_there(folder) -> str:
    """A folder, or else the nearest above it that exists; the root if none does."""
    path = Path(os.path.abspath(folder))
    return str(next(filter(os.path.lexists, (path, *path.parents)), path.anchor))
