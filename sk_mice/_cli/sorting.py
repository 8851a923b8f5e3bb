"""``sk-mice sort``: images in a folder for each cluster, as copies or links."""

import os
import re
import tempfile
from pathlib import PurePath

from typer import BadParameter

from .._engine.warn import warn_user
from .._words import count, shortened
from ..datasets import find_files
from ..datasets._names import NO_FOLDER
from . import placing, tables
from .results import (
    ResultFolder,
    check_folder,
    check_outside,
    held,
    holds_files,
    lies_in,
    nearest_there,
)
from .terminal import Progress, end_after_ctrl_c, not_in

LONGEST = 255  # bytes of the name of a folder, on most systems


def sort(table, photos, folders: dict, update: bool, quiet: bool) -> None:
    """Sort the images of a table, such as that of a report, into folders."""
    if not folders:
        raise BadParameter("one of them is required", param_hint="--copy-to, --link-to")
    check_folders(folders, photos)
    places = _read_places(table, _numbered(folders) if update else {})
    found, _ = find_files(os.fspath(photos))
    names = ["/".join(parts) for parts in found]
    places = tables.as_named(places, names)
    others = [name for name in names if name not in places]
    progress = Progress(quiet)
    try:
        missing = sort_all(folders, photos, places, progress, update)
    except KeyboardInterrupt:
        end_after_ctrl_c(
            "Stopped before all images were sorted. The same command goes on."
        )
    if len(missing) == len(places):
        raise ValueError(
            f"{str(photos)!r} has none of the files of {str(table)!r}, such as "
            f"{missing[0]!r}{tables.if_garbled(missing, others)}."
        )
    warn_of_missing(missing, photos, others)
    if others:
        progress.say(f"Not sorted: {not_in(others, photos, table)}")
    sorted_into = [places[name] for name in places.keys() - {*missing}]
    images = count(len(sorted_into), "image")
    progress.say(f"{images} in {count(len(set(sorted_into)), 'folder')}")


def _read_places(table, numbered: dict[int, str]) -> dict[str, str]:
    """The files of a table, and the folder of each: the name of its cluster.

    Clusters without names go into the folders of their numbers, where those are there.
    """
    rows, (column, _) = tables.read_columns(
        table, ["name", "cluster"], ["cluster", "name"]
    )
    _refuse_no_rows(table, rows)
    found = {name: folder for name, (folder, _) in rows.items()}
    tables.check_names(table, found.values())
    for name, cluster in found.items():
        is_short = len(os.fsencode(cluster)) <= LONGEST
        is_folder = is_short and not re.search(NO_FOLDER, cluster, re.IGNORECASE)
        if not (_is_inside(name) and is_folder):
            raise ValueError(
                f"{str(table)!r} must have in each row a file below the folder of "
                "images, and a cluster whose name can name a folder: without any of "
                f'<>:"/\\|?*, without a dot or space at its ends, not reserved by '
                f"Windows, such as aux, and of at most {LONGEST} bytes; got "
                f"{name!r} and {cluster!r}."
            )
    spelt = [(cluster.casefold(), cluster) for cluster in found.values()]
    for _, cluster, other in tables.conflicts(spelt):
        raise ValueError(
            f"{str(table)!r} must write the name of a cluster in one way, as some "
            f"systems would make one folder of both; got {cluster!r} and {other!r}."
        )
    named = [(number, name) for name, number in rows.values()]
    for number, name, other in tables.conflicts(named):
        warn_user(
            f"{str(table)!r} has two names for cluster {number}, {name!r} and "
            f"{other!r}. Images are sorted by the names"
        )
        break  # one tells enough
    if column == "cluster" and all(map(str.isdecimal, found.values())):
        return places_of(found, map(int, found.values()), numbered)
    return found


def _refuse_no_rows(table, rows) -> None:
    if not rows:
        raise ValueError(f"{str(table)!r} must have a row for each image to sort.")


def _numbered(folders: dict) -> dict[int, str]:
    """The folders of clusters that are there, by the number that names them."""
    there = [folder for folder in folders.values() if os.path.exists(folder)]
    names = [name for folder in there for name in os.listdir(folder)]
    found = [re.fullmatch("cluster-([0-9]+)", name) for name in names]
    return {int(match[1]): match[0] for match in found if match}


def places_of(files, labels, numbered: dict[int, str]) -> dict[str, str]:
    """The folder of each file: one there by its cluster's number, or a new one."""
    labels = list(labels)
    width = len(str(max([*labels, *numbered], default=0)))
    return {
        name: numbered.get(label, f"cluster-{label:0{width}}")
        for name, label in zip(files, labels, strict=True)
    }


def check_folders(folders: dict, photos) -> None:
    """Refuse folders, by their options, in which nothing can be sorted."""
    for option, folder in folders.items():
        check_outside(folder, photos, option)
        if lies_in(photos, folder):
            raise BadParameter(
                f"{str(folder)!r} must not hold the folder of images, {str(photos)!r}",
                param_hint=option,
            )
        check_folder(folder, option)
    if "--link-to" in folders:
        _check_links(folders["--link-to"])
    if len(folders) < 2:
        return
    copy_to, link_to = folders["--copy-to"], folders["--link-to"]
    if lies_in(copy_to, link_to) or lies_in(link_to, copy_to):
        raise BadParameter(
            f"{str(link_to)!r} must not be the folder of --copy-to, "
            f"{str(copy_to)!r}, and neither may lie in the other",
            param_hint="--link-to",
        )


def check_apart(result: ResultFolder, folders: dict) -> None:
    """Refuse folders, by their options, into which a result would be written."""
    own = *result.files, result.checkpoint
    for option, folder in folders.items():
        if lies_in(result.path, folder) or any(lies_in(folder, path) for path in own):
            raise BadParameter(
                f"{str(folder)!r} must not be the folder of --out, "
                f"{str(result.path)!r}, nor hold it",
                param_hint=option,
            )


def check_empty(folders: dict) -> None:
    """Refuse folders, by their options, in which a file could be overwritten."""
    for option, folder in folders.items():
        if os.path.lexists(folder) and holds_files(folder):
            _refuse_filled(folder, option)


def _check_links(folder) -> None:
    """Refuse a folder in which no link can be made: Windows allows that to few."""
    try:
        with tempfile.TemporaryDirectory(dir=nearest_there(folder)) as place:
            os.symlink("nothing", os.path.join(place, "link"))
    except OSError as error:
        raise BadParameter(
            f"no links can be made in {str(folder)!r}: {error.strerror}; --copy-to "
            "makes copies",
            param_hint="--link-to",
        ) from error


def _refuse_filled(folder, option: str, why: str = ""):
    raise BadParameter(
        f"{str(folder)!r} must be new or empty, so that no file is overwritten{why}",
        param_hint=option,
    )


def _is_inside(name: str) -> bool:
    """Whether a path leads to a file below a folder, and not to another drive."""
    path = PurePath(name)
    is_below = bool(path.name) and not path.anchor and ".." not in path.parts
    return is_below and "\0" not in name  # which no path can hold


def read_clusters(table, n_clusters: int) -> tuple[list[str], list[int]]:
    """The files of a table, and their clusters; ValueError if it is not the fit's."""
    if not os.path.lexists(table):
        raise ValueError(
            f"{str(table)!r} is no longer there; `sk-mice predict` with this file as "
            "--out writes the clusters of these images again."
        )
    labels = {str(k): k for k in range(n_clusters)}
    found = tables.read_column(table, ["cluster"])
    _refuse_no_rows(table, found)
    for name, label in found.items():
        if label not in labels or not _is_inside(name):
            raise ValueError(
                f"{str(table)!r} must be as the fit has written it, with a file below "
                f"the folder of images and a cluster from 0 to {n_clusters - 1} in "
                f"each row; got {name!r} and {label!r}."
            )
    return [*found], [labels[label] for label in found.values()]


def sort_all(
    folders: dict, photos, places: dict, progress: Progress, update=False
) -> list[str]:
    """Sort files into each folder; return those that are no longer among the photos.

    Unless `update`, a folder must hold nothing else than these files.
    """
    missing: dict[str, None] = {}
    for option, folder in folders.items():
        doing = "Linking" if option == "--link-to" else "Copying"
        progress.say(f"{doing} into {str(folder)!r}")
        with held(folder, option):  # two sorts would add to one copy
            if not update:
                _check_made(folder, places, option)
            elif moved := placing.move_made(folder, photos, places, option):
                progress.say(f"Moved to another folder: {count(moved, 'image')}")
            gone = placing.sort_into(folder, photos, places, option, progress.verbose)
        missing |= dict.fromkeys(gone)
    return [*missing]


def warn_of_missing(missing: list[str], photos, others=()) -> None:
    """Name the files that cannot be sorted, if there are any.

    `others` are the files that the table does not have.
    """
    if missing:
        warn_user(
            f"{count(len(missing), 'image')} cannot be sorted, since "
            f"{str(photos)!r} no longer has {'it' if len(missing) == 1 else 'them'}: "
            f"{', '.join(shortened([*map(repr, missing)]))}"
            f"{tables.if_garbled(missing, others)}"
        )


def _check_made(folder, places: dict[str, str], option: str) -> None:
    """Refuse a folder with a file that does not come from sorting these images."""
    for inner in placing.others(folder, places):
        _refuse_filled(
            folder,
            option,
            f"; it holds {inner!r}. `sk-mice sort --update` moves images in it to the "
            "folders of their clusters, and adds new ones",
        )
