"""What Windows refuses, for tests on Linux."""

import os
from contextlib import suppress
from pathlib import Path

from sk_mice._engine import files

HANDLES, MAPS = Path("/proc/self/fd"), Path("/proc/self/maps")


def refuse_files_in_use(monkeypatch) -> None:
    """Neither replace nor remove a file that is open or mapped; lock none."""
    replace, unlink = os.replace, os.unlink

    def checked_replace(*paths):
        _check(*paths)
        replace(*paths)

    def checked_unlink(path, **options):
        _check(path)
        unlink(path, **options)

    monkeypatch.setattr(os, "replace", checked_replace)
    monkeypatch.setattr(os, "unlink", checked_unlink)
    monkeypatch.setattr(files, "fcntl", None)


def _check(*paths):
    used = {line.split(maxsplit=5)[-1] for line in MAPS.read_text().splitlines()}
    for handle in os.listdir(HANDLES):
        with suppress(FileNotFoundError):  # that of the folder itself
            used.add(os.readlink(HANDLES / handle))
    for path in map(os.path.realpath, paths):
        if path in used:
            raise PermissionError(13, "The process cannot access the file", path)
