"""Files that are written whole or not at all."""

import errno
import hashlib
import os
import secrets
import stat
import time
from contextlib import suppress

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

__all__ = ["as_path", "check_regular", "write_atomically"]

ABANDONED = 24 * 3600  # seconds: older temporary files are nobody's


def as_path(path) -> str:
    """A path as a string.

    Raises
    ------
    TypeError
        If `path` is neither a string nor path-like; bytes and numbers are refused.
    ValueError
        If it holds a null character.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise TypeError(f"`path` must be a string or path-like; got {path!r}.")
    if "\0" in text:
        raise ValueError(f"`path` must not hold a null character; got {text!r}.")
    return text


def check_regular(mode: int) -> None:
    """Raise OSError unless the mode is that of a regular file."""
    if stat.S_ISDIR(mode):
        raise _error(errno.EISDIR)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "Not a regular file")


def write_atomically(path, parts) -> None:
    """Replace a file by new content, or leave it as it was.

    The content goes to a temporary file in the same folder, and to the disk, before it
    gets its name. A link is followed: what it points to is replaced. The new file has
    the mode of the one that it replaces. Several processes may write one path at once:
    the last one's file stays. Temporary files of this path that a killed process left
    behind are removed.

    Parameters
    ----------
    path : str or path-like
    parts : iterable of bytes-like
        Of the content, in order.

    Raises
    ------
    OSError
        That names `path`: also if it is a folder or no regular file, or if its owner
        may not write to it. No temporary file is left behind.
    """
    path = as_path(path)
    try:
        target = _target(path)
        _replace(target, _earlier(target), parts)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _target(path: str) -> str:
    """The file that a path means, whether it is there or not."""
    if not path:
        raise _error(errno.ENOENT)
    if os.path.basename(path) in ("", ".", ".."):
        raise _error(errno.EISDIR)
    return os.path.realpath(path)


def _earlier(target: str) -> os.stat_result | None:
    """The status of a file that may be replaced; None if there is none."""
    try:
        earlier = os.stat(target)
    except FileNotFoundError:
        return None
    check_regular(earlier.st_mode)
    if not earlier.st_mode & stat.S_IWUSR:  # binds root, too, unlike `os.access`
        raise PermissionError(errno.EACCES, "File is read-only")
    return earlier


def _replace(target: str, earlier, parts) -> None:
    folder, name = os.path.split(target)
    # Of the name only a hash, as it may be as long as the file system takes.
    prefix = f".sk_mice-{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}-"
    _remove_orphans(folder, prefix)
    file, temporary = _open_temporary(os.path.join(folder, prefix), earlier)
    try:
        with file:
            _keep_mode(file.fileno(), temporary, earlier)
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
            if fcntl is None:  # no open file can be renamed there
                file.close()
            os.replace(temporary, target)  # while the lock is held
    except BaseException:  # an interruption, too
        with suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(folder)


def _open_temporary(prefix: str, earlier):
    """A new file, locked for as long as it is open, and its name."""
    # At no time may others read more than they will.
    mode = 0o666 if earlier is None else stat.S_IMODE(earlier.st_mode) & 0o666
    while True:
        temporary = f"{prefix}{secrets.token_hex(8)}.tmp"
        file = open(  # noqa: SIM115  the caller closes it
            temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)
        )
        if _lock(file.fileno()) is not False and os.path.exists(temporary):
            return file, temporary
        file.close()  # another process took it for an orphan before it was locked


def _keep_mode(handle: int, temporary: str, earlier) -> None:
    if earlier is None:
        return
    new = os.fstat(handle)
    owner = (earlier.st_uid, earlier.st_gid)
    with suppress(OSError):  # not every user and file system can
        if hasattr(os, "fchown") and owner != (new.st_uid, new.st_gid):
            os.fchown(handle, *owner)
    with suppress(OSError):
        os.chmod(temporary, stat.S_IMODE(earlier.st_mode) & 0o777)


def _lock(handle: int) -> bool | None:
    """Lock an open file: whether that worked, None where there are no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
    return True


def _remove_orphans(folder: str, prefix: str) -> None:
    """Remove temporary files whose writers are dead: their locks are free."""
    with suppress(OSError), os.scandir(folder) as entries:
        for name in [e.path for e in entries if e.name.startswith(prefix)]:
            with suppress(OSError), open(name, "r+b") as file:
                free = _lock(file.fileno())
                if free is None:
                    free = time.time() - os.path.getmtime(name) > ABANDONED
                if fcntl is None:  # no open file can be removed there
                    file.close()
                if free:
                    os.unlink(name)


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
