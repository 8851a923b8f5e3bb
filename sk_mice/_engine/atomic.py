"""Files that are written whole or not at all."""

import os
import secrets
from contextlib import suppress

__all__ = ["write_atomically"]


def write_atomically(path, parts) -> None:
    """Replace a file by new content, or leave it as it was.

    The content goes to a temporary file in the same folder, and to the disk, before it
    gets its name. A link is followed: what it points to is replaced.

    Parameters
    ----------
    path : str or path-like
    parts : iterable of bytes-like
        Of the content, in order.

    Raises
    ------
    OSError
        That names `path`. No temporary file is left behind.
    """
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    # Short, as the name may be as long as the file system takes; not of `tempfile`,
    # whose files nobody else may read.
    temporary = os.path.join(folder, f".sk_mice-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:  # an interruption, too
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        raise
    _sync_folder(folder)


def _sync_folder(folder):
    """Write the folder, and with it the file's new name, to the disk."""
    if os.name == "nt":  # has no way to
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # not every file system can, and the file is whole
            os.fsync(handle)
    finally:
        os.close(handle)
