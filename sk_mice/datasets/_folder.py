"""What a folder holds: which files, each once, their classes, and what is left out."""

import os
import warnings
from heapq import heappop, heappush

import numpy as np

LISTED = 20  # of the problems that an error names; a warning names all
MOST_ENTRIES = 10_000_000


def find_files(root):
    """Files below `root`, as sorted tuples of parts, and folders that give none, why.

    Sorted by parts, so that a folder's files stay together whatever its name. Folders
    are entered once each, and paths without links come first.
    """
    os.scandir(root).close()  # raises if it is no folder
    pending = [(False, (), ())]  # a heap: by a link, parts, folders above
    entered, files, problems, number = set(), [], [], 0
    while pending:
        linked, parts, above = heappop(pending)
        folder = os.path.join(root, *parts)
        here = os.path.realpath(folder)
        if here in above:
            problems.append((parts, "links to a folder that it lies in"))
        if here in entered:
            continue
        entered.add(here)
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    number += 1
                    if number > MOST_ENTRIES:
                        raise ValueError(
                            f"`path` must hold at most {MOST_ENTRIES:,} files and "
                            f"folders, links followed; {root!r} holds more."
                        )
                    if entry.name.startswith("."):
                        continue
                    by_link = linked or entry.is_symlink()
                    found = by_link, (*parts, entry.name)
                    if os.path.isdir(entry.path):
                        heappush(pending, (*found, (*above, here)))
                    else:
                        files.append((*found, _place(entry, here)))
        except OSError as error:
            problems.append((parts, error.strerror))
    paths = {}
    for _, parts, place in sorted(files):
        paths.setdefault(place, parts)
    return sorted(paths.values()), problems


def _place(entry, folder):
    """What tells a file from others, whichever path leads to it."""
    if not entry.is_symlink():
        return folder, entry.name
    # Links that lead to nothing are listed one by one.
    real = os.path.realpath(entry) if os.path.exists(entry) else entry.path
    return os.path.split(real)


def classes_of(files):
    """The folder that each file lies in as a number, and the folders' names."""
    folders = [parts[0] if len(parts) > 1 else None for parts in files]
    names = sorted(set(folders) - {None})
    number = {name: k for k, name in enumerate(names)} | {None: -1}
    return np.array([number[folder] for folder in folders], dtype=np.int64), names


def report(problems, root, on_error):
    """One error, or one warning, for all that are not in X."""
    if not problems:
        return
    shown = sorted(problems)[: LISTED if on_error == "raise" else None]
    lines = [f"  {'/'.join(parts)!r}: {reason}" for parts, reason in shown]
    if len(shown) < len(problems):
        lines.append(f"  and {len(problems) - len(shown)} more")
    listing = "\n".join(lines)
    message = f"{len(problems)} of what is in {root!r} cannot be read as an image"
    if on_error == "raise":
        raise ValueError(f'{message}; on_error="warn" leaves it out.\n{listing}')
    warnings.warn(f"{message} and is left out.\n{listing}", stacklevel=4)
