"""One file for tensors and Python values: safetensors, with a checksum over all of it.

The metadata of the safetensors file have one entry, a JSON document. It holds the kind
of the file, its format version and a SHA-256 of the whole file, which is computed with
zeros in place of the checksum. A file is written completely or not at all.
"""

import errno
import hashlib
import json
import os
import secrets
import stat
import time
from contextlib import suppress
from itertools import chain, groupby
from urllib.parse import quote, unquote

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

__all__ = ["UNREADABLE", "NotDataError", "as_path", "pack", "read", "unpack", "write"]

KEY = "sk_mice"
# Bytes. Python's objects for JSON take up to 25 times as much memory. What grows with
# samples, features or epochs lies in tensors; 10,000 tensors need about 1,500,000.
LARGEST_HEADER = 4_000_000
# Lists from this length on lie in tensors, which take less memory than JSON to read.
LONG = 64
ABANDONED = 24 * 3600  # seconds, after which a temporary file has no writer
_ZEROS = b"0" * 64
# Errors that content of another kind can cause.
UNREADABLE = (
    *(ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError),
    *(ValueError, SafetensorError),
)


# ------------------------------------------------------------------------ the format


def write(path, tensors, document, *, kind: str, version: int) -> None:
    """Write a file, completely or not at all.

    Parameters
    ----------
    path : str or path-like
    tensors : dict of str to Tensor
        On the CPU, contiguous, none sharing memory with another.
    document : dict
        Values of JSON, without NaN and infinity.
    kind : str
        The kind of file, such as "model".
    version : int
        The format version of this kind of file.

    Raises
    ------
    OSError
        If the file cannot be written; names `path`.
    ValueError
        If the file could not be read again, because its header is too long or
        safetensors has no such type; names `path`.
    """
    path = as_path(path)
    head = {"sha256": _ZEROS.decode(), "kind": kind, "version": version}
    try:
        text = json.dumps(head | document, separators=(",", ":"), allow_nan=False)
        content = memoryview(safetensors.torch.save(tensors, {KEY: text}))
        end = 8 + _header_length(content[:8])
    except UNREADABLE as error:
        raise ValueError(f"{path!r} cannot be written: {reason(error)}") from error
    digest = hashlib.sha256(content).hexdigest().encode()
    # The metadata come first in the header, and the checksum in the document.
    header = bytes(content[:end]).replace(_ZEROS, digest, 1)
    write_atomically(path, (header, content[end:]))


@torch.inference_mode(False)  # what is made in it cannot be trained
def read(path, *, kind: str, version: int):
    """Read a file that :func:`write` wrote, and check that it is not damaged.

    Parameters
    ----------
    path : str or path-like
    kind : str
        The kind that the file must be.
    version : int
        The format version that it must have.

    Returns
    -------
    tensors : dict of str to Tensor
        On the CPU, each with memory of its own.
    document : dict

    Raises
    ------
    OSError
        If the file cannot be read, or is no regular file.
    ValueError
        If it is another kind of file, of another version, or damaged; names the file
        and says which.
    """
    path = as_path(path)
    _check_regular(path, os.stat(path).st_mode)
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            header, entries, document = _read_header(file)
            _check_kind(document, kind, version)
            return _read_tensors(file, path, header, entries, document), document
    except UNREADABLE as error:
        raise ValueError(f"{path!r} cannot be loaded: {reason(error)}") from error


def reason(error: Exception) -> str:
    """Why something is refused, in a sentence."""
    if isinstance(error, ValueError):
        return str(error)
    first, *_ = str(error).splitlines() or [""]  # torch adds a stack trace
    return f"unexpected content, {type(error).__name__}: {first}"


def _open_at_once(path, flags):
    """Open a file that may have become a FIFO, for which `open` would wait."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _header_length(prefix) -> int:
    length = int.from_bytes(prefix, "little")
    if length > LARGEST_HEADER:
        raise ValueError(
            f"its header must have at most {LARGEST_HEADER} bytes; it has {length}."
        )
    return length


def _read_header(file):
    """The first bytes of a file, the entries of the tensors and the document."""
    prefix, size = file.read(8), os.fstat(file.fileno()).st_size
    if size < 8 or int.from_bytes(prefix, "little") > size - 8:
        raise ValueError("it is no safetensors file, or the beginning of one.")
    header = prefix + file.read(_header_length(prefix))
    try:
        entries = _from_json(header[8:])
        ((key, text),) = entries.pop("__metadata__").items()
        document = _from_json(text.encode())
        if key != KEY or not isinstance(document, dict):
            raise ValueError("There is no document.")
    except UNREADABLE as error:
        raise ValueError(f"it was not written by {KEY}, or is damaged.") from error
    return header, entries, document


def _from_json(content: bytes):
    return json.loads(content.decode(), object_pairs_hook=_no_twins)


def _no_twins(pairs):
    """A dict, if no key comes twice: readers would differ in which one counts."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("A key comes twice.")
    return found


def _check_kind(document: dict, kind: str, version: int) -> None:
    found, its_version = document.pop("kind", None), document.pop("version", None)
    if found != kind:
        raise ValueError(f"it holds no {kind} but a {found!r}.")
    if type(its_version) is int and 1 <= its_version < version:
        raise ValueError(
            f"it was written by an earlier version of {KEY}, in format version "
            f"{its_version}, and this one reads {version}; fit anew."
        )
    if type(its_version) is not int or its_version != version:
        raise ValueError(
            f"it has format version {its_version!r}, and this version of {KEY} reads "
            f"{version}."
        )


def _read_tensors(file, path, header, entries, document) -> dict:
    """All tensors, once they are known to give the checksum."""
    digest = document.pop("sha256")
    sha = hashlib.sha256(header.replace(digest.encode(), _ZEROS, 1))
    tensors = {}
    # Another file may have got the name meanwhile, and no two are to be mixed.
    opened = f"/dev/fd/{file.fileno()}"
    try:
        with safe_open(opened if os.path.exists(opened) else path, "pt") as content:
            for name in sorted(entries, key=lambda n: entries[n]["data_offsets"]):
                # A copy of the mapped tensor would take its memory twice.
                # Older versions of safetensors read onto the caller's default device.
                like = content.get_tensor(name)
                tensor = torch.empty_like(like, device="cpu")
                raw = tensor.flatten().view(torch.uint8)
                file.readinto(raw.numpy())  # the tensors fill the rest of the file
                sha.update(raw.numpy())
                if tensor.dtype == torch.bool:  # a byte of a bool is 0 or 1
                    tensor = raw.ne(0).view_as(tensor)
                tensors[name] = tensor
    except UNREADABLE as error:
        first, *_ = str(error).splitlines() or [""]
        raise ValueError(f"it is damaged: {first}.") from error
    if sha.hexdigest() != digest:
        raise ValueError("it is damaged: its content does not give its checksum.")
    return tensors


# -------------------------------------------------------------------- Python's values


class NotDataError(Exception):
    """A value is neither data nor made of data."""


def pack(value, name: str, tensors: dict, classes=()):
    """Convert a value to JSON; kinds that JSON lacks become a dict with their name.

    Parameters
    ----------
    value : object
        None, a bool, number, string, device, array, tensor, a list, tuple or dict of
        such, or an object of one of the classes. Of long lists, numbers and strings go
        to tensors.
    name : str
        Begins the names of the tensors that `value` needs.
    tensors : dict
        Gets the arrays and tensors.
    classes : dict of str to class
        With `get_params`; of their objects, class and parameters are kept.

    Raises
    ------
    NotDataError
        If `value` is anything else.
    """

    def packed(value, name):
        return pack(value, name, tensors, classes)

    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else {"float": str(value)}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, torch.Tensor):
        copied = value.detach().cpu().contiguous().clone()
        return {"tensor": _put(copied, name, tensors)}
    if isinstance(value, tuple):
        return {"tuple": packed(list(value), name)}
    if isinstance(value, list):
        return _pack_list(value, name, tensors, packed)
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {k: packed(v, f"{name}.{k}") for k, v in value.items()}}
    if isinstance(value, np.ndarray) and value.dtype.kind in "OU":
        if value.ndim == 1 and all(isinstance(item, str) for item in value):
            return {"strings": packed(value.tolist(), name)}
    elif isinstance(value, np.ndarray):
        with suppress(TypeError, ValueError):  # dates, say
            copied = torch.from_numpy(np.array(value, order="C"))
            return {"array": _put(copied, name, tensors)}
    kind = type(value).__name__
    if kind in classes and classes[kind] is type(value):
        parameters = packed(value.get_params(deep=False), name)
        return {"class": kind, "parameters": parameters}
    raise NotDataError(name)


def _put(tensor, name, tensors) -> str:
    """Add a tensor under a name that no other has, and return the name."""
    while name in tensors:
        name += "_"
    tensors[name] = tensor
    return name


def _pack_list(items, name, tensors, packed):
    kinds = {type(item) for item in items}
    if len(items) >= LONG and kinds == {str}:
        lines = "\n".join(quote(text, errors="surrogatepass") for text in items)
        lines = np.frombuffer(lines.encode(), np.uint8).copy()
        return {"lines": _put(torch.from_numpy(lines), name, tensors)}
    if len(items) >= LONG and kinds == {dict} and all(items):
        runs = [list(run) for _, run in groupby(items, _kind_of_row)]
        columns = [{key: [row[key] for row in run] for key in run[0]} for run in runs]
        return {"rows": [packed(run, name) for run in columns]}
    numbers = _numbers([*chain(*items)] if kinds == {list} else items, items)
    if numbers is not None:
        return {"list": _put(torch.from_numpy(numbers), name, tensors)}
    return [packed(item, f"{name}.{i}") for i, item in enumerate(items)]


def _kind_of_row(row) -> list:
    return [(key, type(value) is list and len(value)) for key, value in row.items()]


def _numbers(leaves, items):
    """An array of many numbers of one type, in a list or in lists of one length."""
    kinds = {type(leaf) for leaf in leaves}
    if len(leaves) >= LONG and kinds in ({int}, {float}):
        with suppress(OverflowError, ValueError):
            return np.array(items, np.int64 if kinds == {int} else np.float64)
    return None


def unpack(value, tensors: dict, classes=()):
    """The value that :func:`pack` was given.

    Parameters
    ----------
    value : object
        As it came from JSON.
    tensors : dict
        Each tensor is taken out where it is used.
    classes : dict of str to class
        As for `pack`.

    Raises
    ------
    One of UNREADABLE
        If `value` is nothing that `pack` returns.
    """

    def unpacked(value, kind=object):
        found = unpack(value, tensors, classes)
        if not isinstance(found, kind):
            raise TypeError(f"it must be a {kind.__name__}: {type(found).__name__}")
        return found

    if isinstance(value, list):
        return [unpacked(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"class", "parameters"}:
        found = classes[value["class"]](**unpacked(value["parameters"], dict))
        if hasattr(found, "_parameter_constraints"):
            found._validate_params()
        return found
    ((kind, content),) = value.items()
    if kind == "dict":
        return {name: unpacked(item) for name, item in content.items()}
    if kind == "tuple":
        return tuple(unpacked(content, list))
    if kind == "strings":
        return np.array([str(item) for item in unpacked(content, list)], dtype=object)
    if kind == "rows":
        runs = [unpacked(run, dict) for run in content]
        return [
            dict(zip(columns, row, strict=True))
            for columns in runs
            for row in zip(*columns.values(), strict=True)
        ]
    if kind == "float":
        return float(content)
    if kind == "device":
        return torch.device(content)
    tensor = tensors.pop(content)
    if kind == "lines":
        lines = tensor.numpy().tobytes().decode("ascii").split("\n")
        return [unquote(line, errors="surrogatepass") for line in lines]
    if kind == "list":
        # Without numbers a tensor takes no memory, and a list of empty lists much.
        if not 1 <= tensor.ndim <= 2 or tensor.numel() == 0:
            raise ValueError(f"a list of numbers has no shape {tuple(tensor.shape)}.")
        return tensor.tolist()
    if kind not in ("array", "tensor"):
        raise ValueError(f"no value has the kind {kind!r}.")
    return tensor.numpy() if kind == "array" else tensor


# ------------------------------------------------------------------------------ paths


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


def _check_regular(path: str, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "Not a regular file", path)


# --------------------------------------------------------------- whole, or not at all


def write_atomically(path, parts) -> None:
    """Replace a file by new content, or do not change it.

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
        if not path:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        if os.path.basename(path) in ("", ".", ".."):
            raise IsADirectoryError(errno.EISDIR, "Is a directory")
        target = os.path.realpath(path)
        folder, name = os.path.split(target)
        # A hash of the name, which may have the greatest length that is allowed.
        start = f".sk_mice-{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}-"
        earlier = _replaceable(target)
        _remove_orphans(folder, start)
        _replace(target, earlier, os.path.join(folder, start), parts)
        _sync_folder(folder)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def _replaceable(target: str) -> os.stat_result | None:
    """The status of a file that may be replaced; None if there is none."""
    try:
        earlier = os.stat(target)
    except FileNotFoundError:
        return None
    _check_regular(target, earlier.st_mode)
    if not earlier.st_mode & stat.S_IWUSR:  # binds root, too, unlike `os.access`
        raise PermissionError(errno.EACCES, "File is read-only")
    return earlier


def _replace(target: str, earlier, start: str, parts) -> None:
    file = _open_temporary(start, earlier)
    try:
        with file:
            if earlier is not None:
                _keep_mode(file, earlier)
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
            if fcntl is None:  # no open file can be renamed there
                file.close()
            os.replace(file.name, target)  # while the lock is held
    except BaseException:  # an interruption, too
        with suppress(OSError):
            os.unlink(file.name)
        raise


def _open_temporary(start: str, earlier):
    """A new file that is locked for as long as it is open."""
    # Other users may never read more of the new file than of the earlier one.
    mode = 0o666 if earlier is None else stat.S_IMODE(earlier.st_mode) & 0o666
    while True:
        name = f"{start}{secrets.token_hex(8)}.tmp"
        file = open(  # noqa: SIM115  the caller closes it
            name, "xb", opener=lambda name, flags: os.open(name, flags, mode)
        )
        if _lock(file) is not False and os.path.exists(name):
            return file
        file.close()  # another process took it for an orphan before it was locked


def _keep_mode(file, earlier) -> None:
    owner, new = (earlier.st_uid, earlier.st_gid), os.fstat(file.fileno())
    with suppress(OSError):  # not every user and file system can
        if hasattr(os, "fchown") and owner != (new.st_uid, new.st_gid):
            os.fchown(file.fileno(), *owner)
    with suppress(OSError):
        os.chmod(file.name, stat.S_IMODE(earlier.st_mode) & 0o777)


def _lock(file) -> bool | None:
    """Lock an open file: whether that worked, None where there are no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
    return True


def _remove_orphans(folder: str, start: str) -> None:
    """Remove temporary files whose writers have ended, which frees their locks."""
    with suppress(OSError), os.scandir(folder) as entries:
        for name in [e.path for e in entries if e.name.startswith(start)]:
            with suppress(OSError), open(name, "r+b") as file:
                free = _lock(file)
                if free is None:
                    free = time.time() - os.path.getmtime(name) > ABANDONED
                if fcntl is None:  # no open file can be removed there
                    file.close()
                if free:
                    os.unlink(name)


def _sync_folder(folder: str) -> None:
    """Write the folder, and with it the file's new name, to the disk."""
    if os.name == "nt":  # has no way to
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # not every file system can, and the file is whole
            os.fsync(handle)
    finally:
        os.close(handle)
