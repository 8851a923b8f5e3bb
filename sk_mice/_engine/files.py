"""Paths of files, and files that are written completely or not at all."""

import errno
import hashlib
import os
import secrets
import shutil
import stat
import time
from contextlib import contextmanager, suppress

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

TEMPORARY = ".sk_mice-"  # prefix of the names of temporary files
ABANDONED = 24 * 3600  # seconds after which nobody writes a temporary file any more
PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)  # seconds between tries to replace a file


def as_path(path, name: str = "`path`") -> str:
    """A path as a string; TypeError if it is neither a string nor path-like."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a string or path-like; got {path!r}.")
    if "\0" in text:
        raise ValueError(f"{name} must not hold a null character; got {text!r}.")
    return text


def check_regular(path: str, mode: int) -> None:
    """Raise OSError if the mode of a file is that of a folder, a pipe or a device."""
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "Not a regular file", path)


def check_writable(path, name: str = "`path`") -> str:
    """A path as a string, if a file can be written there; else OSError."""
    path = as_path(path, name)
    try:
        target, earlier = _target(path)
        if not os.access(os.path.dirname(target), os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "Folder is read-only")
        if earlier is not None and fcntl is None:
            _check_free(target)
    except OSError as error:
        rule = f"{name} must be a file that can be written: {error.strerror}"
        raise OSError(error.errno, rule, path) from error
    return path


def _check_free(path: str) -> None:
    """Refuse a file that Windows cannot replace, as a program has it open."""
    try:
        with open(path, "r+b"):
            pass
    except PermissionError as error:
        why = "Another program has it open, or it is read-only"
        raise PermissionError(errno.EACCES, why) from error


def write_atomically(path, parts) -> None:
    """Replace a file by new content, or do not change it and raise OSError.

    See :func:`replacement`.
    """
    with replacement(path) as file, errors_name(path):
        for part in parts:
            file.write(part)


@contextmanager
def replacement(path):
    """An open file that gets the name `path` at the end; after an error, it vanishes.

    It is a temporary file in the same folder, and its content goes to the disk before
    it gets its name. A link is followed: what it points to is replaced. The new file
    has the mode of the one that it replaces. Several processes may write one path at
    once: the last one's file stays. Temporary files of this path that a killed process
    left behind are removed.
    """
    path = as_path(path)
    with errors_name(path):
        target, earlier = _target(path)
        folder, name = os.path.split(target)
        # A hash, as the name itself may already have the greatest length.
        start = f"{TEMPORARY}{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}-"
        _remove_orphans(folder, start)
        file = _open_temporary(os.path.join(folder, start), earlier)
    try:
        if earlier is not None:
            _keep_mode(file, earlier)
        yield file
        with errors_name(path):
            file.flush()
            os.fsync(file.fileno())
            if fcntl is None:  # no open file can be renamed there
                file.close()
            replace(file.name, target)  # while the lock is held
    except BaseException:  # including Ctrl-C
        with suppress(OSError):  # closing writes what is left, which may fail
            file.close()
        with suppress(OSError):
            os.unlink(file.name)
        raise
    file.close()
    _sync_folder(folder)


def replace(source, target) -> None:
    """Give a file the name of another.

    Windows refuses that while either is open. Virus scanners and programs that
    synchronise folders open new files for a moment, so it is tried several times.
    """
    for pause in PAUSES if fcntl is None else ():
        with suppress(PermissionError):
            return os.replace(source, target)
        time.sleep(pause)
    os.replace(source, target)


def move(source, target) -> None:
    """Move a complete file to the place of another, as :func:`replacement` does."""
    with errors_name(target):
        place, earlier = _target(os.fspath(target))
        if earlier is not None:
            with open(source, "rb") as file:
                _keep_mode(file, earlier)
        try:
            replace(source, place)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            with open(source, "rb") as file, replacement(place) as copy:
                shutil.copyfileobj(file, copy)  # from one disk to another
            os.unlink(source)
        _sync_folder(os.path.dirname(place))


@contextmanager
def errors_name(path):
    """Have an OSError name the path that the user gave."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def _target(path: str) -> tuple[str, os.stat_result | None]:
    """Where a path leads, and the status of a file there; OSError if it must stay."""
    if not path:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")
    if os.path.basename(path) in ("", ".", ".."):
        raise IsADirectoryError(errno.EISDIR, "Is a directory")
    target = os.path.realpath(path)
    if not os.path.isdir(os.path.dirname(target)):
        raise FileNotFoundError(errno.ENOENT, "No such folder")
    try:
        earlier = os.stat(target)
    except FileNotFoundError:
        return target, None
    check_regular(target, earlier.st_mode)
    if not earlier.st_mode & stat.S_IWUSR:  # for root, too, unlike `os.access`
        raise PermissionError(errno.EACCES, "File is read-only")
    return target, earlier


def _open_temporary(start: str, earlier):
    """A new file, which is locked until it is closed."""
    # Other users may never read more of the new file than of the earlier one.
    mode = 0o666 if earlier is None else stat.S_IMODE(earlier.st_mode) & 0o666
    while True:
        name = f"{start}{secrets.token_hex(8)}.tmp"
        file = open(  # noqa: SIM115  the caller closes it
            name, "xb", opener=lambda name, flags: os.open(name, flags, mode)
        )
        if lock(file) is not False and os.path.exists(name):
            return file
        file.close()  # another process took it for an orphan before it was locked


def _keep_mode(file, earlier) -> None:
    owner, new = (earlier.st_uid, earlier.st_gid), os.fstat(file.fileno())
    with suppress(OSError):  # not every user and file system can
        if hasattr(os, "fchown") and owner != (new.st_uid, new.st_gid):
            os.fchown(file.fileno(), *owner)
    with suppress(OSError):
        os.chmod(file.name, stat.S_IMODE(earlier.st_mode) & 0o777)


@contextmanager
def locked_folder(path):
    """Hold the lock of a folder, and yield what :func:`lock` returns."""
    if fcntl is None:
        yield None
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        yield lock(handle)
    finally:
        os.close(handle)


def lock(file, *, wait=False) -> bool | None:
    """Try to lock an open file; whether it is locked, or None if there are no locks.

    With `wait`, it waits until no other process holds the lock.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
    return True


def _remove_orphans(folder: str, start: str) -> None:
    """Remove temporary files that are not locked, as their writers have ended."""
    with suppress(OSError), os.scandir(folder) as entries:
        for name in [e.path for e in entries if e.name.startswith(start)]:
            with suppress(OSError), open(name, "r+b") as file:
                free = lock(file)
                if free is None:
                    free = time.time() - os.path.getmtime(name) > ABANDONED
                if fcntl is None:  # no open file can be removed there
                    file.close()
                if free:
                    os.unlink(name)


def _sync_folder(folder: str) -> None:
    """Write the folder, and with it the file's new name, to the disk if possible.

    Windows cannot, nor can some file systems, and a user may write to a folder without
    being allowed to read it. The file is whole in any case.
    """
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
