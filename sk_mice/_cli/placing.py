"""Images as copies or links in folders, where no file is overwritten."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from .._engine.files import check_regular
from .._progress_bar import tqdm
from ..datasets._names import is_hidden

BLOCK = 2**20  # bytes


def sort_into(folder, photos, places: dict, option: str, verbose=0) -> list[str]:
    """Copy or link each file into its folder, with its subfolders.

    A sort that was interrupted goes on: what it has made stays. Returns the files that
    are no longer among the photos.
    """
    place = _link if option == "--link-to" else _copy
    missing = []
    sources = _sources(places)
    for inner, name in tqdm(sources.items(), "sorting", unit="", disable=not verbose):
        source = os.path.join(os.path.realpath(photos), name)
        target = os.path.join(folder, inner)
        try:
            # Copying a pipe or a device may never end.
            check_regular(source, os.stat(source).st_mode)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            place(source, target)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and error.filename == source:
                missing.append(name)
            elif error.filename is None:  # errors of a full disk name no file
                raise OSError(error.errno, error.strerror, target) from error
            else:
                raise
    return missing


def _sources(places: dict[str, str]) -> dict[str, str]:
    """The file that gets each path in a folder."""
    return {
        os.path.normpath(os.path.join(place, name)): name
        for name, place in places.items()
    }


def others(folder, places: dict[str, str]) -> Iterator[str]:
    """The paths of files in a folder that are not the places of any file."""
    sources = _sources(places)
    for at, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not is_hidden(name)]
        links = [name for name in folders if os.path.islink(os.path.join(at, name))]
        for name in names + links:
            inner = os.path.relpath(os.path.join(at, name), folder)
            if inner not in sources and not is_hidden(name):
                yield inner


def move_made(folder, photos, places: dict[str, str], option: str) -> int:
    """Move images that were sorted into the folder of another cluster; count them.

    Other files stay, also those that only have the name of an image.
    """
    is_made = _leads_to if option == "--link-to" else _is_begun
    names = {os.path.normpath(name): name for name in places}
    moved = 0
    for inner in [*others(folder, places)]:  # all are found before one moves
        _, _, rest = inner.partition(os.sep)
        if rest not in names:
            continue
        made, target = Path(folder, inner), Path(folder, places[names[rest]], rest)
        if not os.path.lexists(target) and is_made(made, Path(photos, rest)):
            target.parent.mkdir(parents=True, exist_ok=True)
            made.rename(target)
            moved += 1
            _remove_empty(made.parent, folder)
    return moved


def _remove_empty(folder: Path, top) -> None:
    """Remove folders below another as far as nothing is in them."""
    with suppress(OSError):
        while folder != Path(top):
            folder.rmdir()
            folder = folder.parent


def _link(source, target) -> None:
    if not os.path.lexists(target):
        os.symlink(source, target)
    elif not _leads_to(target, source):
        _refuse_other(target)


def _leads_to(link, source) -> bool:
    # Where both lead is compared, as a link on Windows holds the full path.
    is_same = os.path.realpath(link) == os.path.realpath(source)
    return os.path.islink(link) and is_same


def _copy(source, target) -> None:
    """Copy a file, or what is missing of a copy."""
    size = os.path.getsize(source)  # before a copy of what is gone is begun
    if not os.path.lexists(target):
        Path(target).touch(exist_ok=False)
    elif not _is_begun(target, source):
        _refuse_other(target)
    begun = os.path.getsize(target)
    if begun < size:
        try:
            with open(source, "rb") as content, open(target, "ab") as copy:
                content.seek(begun)
                shutil.copyfileobj(content, copy)
        except BaseException:  # a half image would look like a whole one
            os.unlink(target)
            raise
    with suppress(OSError):  # drives of others, or in a network, may keep no times
        shutil.copystat(source, target)


def _is_begun(copy, source) -> bool:
    """Whether a file is a copy of another, or the beginning of one."""
    if os.path.islink(copy) or not os.path.isfile(copy) or not os.path.isfile(source):
        return False
    with open(copy, "rb") as begun, open(source, "rb") as content:
        while block := begun.read(BLOCK):
            if content.read(len(block)) != block:
                return False
    return True


def _refuse_other(target):
    why = "exists and belongs to another image: move it elsewhere, or name a new folder"
    raise FileExistsError(errno.EEXIST, why, target)
