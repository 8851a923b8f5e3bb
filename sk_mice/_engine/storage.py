"""Tensors and Python values in one safetensors file with a checksum.

The values are JSON, in a tensor of bytes. The metadata have one entry, with the kind of
the file, its format version and a SHA-256 of the whole file, which is computed with
zeros in place of the checksum. A file is written completely or not at all.
"""

import hashlib
import json
import os
from contextlib import contextmanager, suppress

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open

from .files import as_path, check_regular, write_atomically
from .warn import first_line

KEY = "sk_mice"
DOCUMENT = "document"  # the tensor with the JSON
# In bytes. As Python objects, JSON takes up to 25 times as much memory. The header of
# 10,000 tensors has about 1,000,000.
LARGEST_HEADER = 4_000_000
LARGEST_DOCUMENT = 250_000_000  # enough for 10,000 epochs of 5,000 clusters
_ZEROS = b"0" * 64
_PLAIN = {bool, int, str, type(None)}  # types that JSON has
# Errors that unexpected content can cause.
UNREADABLE = (
    *(ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError),
    *(ValueError, SafetensorError),
)


# ------------------------------------------------------------------------ the format


def write(path, tensors, document: dict, *, kind: str, version: int) -> None:
    """Write tensors and JSON; ValueError if they could not be read again.

    The tensors are on the CPU, contiguous, and none shares memory with another.
    """
    path = as_path(path)
    head = {"sha256": _ZEROS.decode(), "kind": kind, "version": version}
    with refusing(f"{path!r} cannot be written"):
        text = _to_json(document)
        _check_length("document", len(text), LARGEST_DOCUMENT)
        values = {DOCUMENT: torch.from_numpy(np.frombuffer(text, np.uint8).copy())}
        metadata = {KEY: _to_json(head).decode()}
        content = memoryview(safetensors.torch.save(tensors | values, metadata))
        length = int.from_bytes(content[:8], "little")
        _check_length("header", length, LARGEST_HEADER)
    digest = hashlib.sha256(content).hexdigest().encode()
    # The metadata come first in the header, and the checksum in the metadata.
    header = bytes(content[: 8 + length]).replace(_ZEROS, digest, 1)
    write_atomically(path, (header, content[8 + length :]))


@torch.inference_mode(False)  # tensors made in that mode cannot be trained
def read(path, *, kind: str, version: int):
    """The tensors, each with memory of its own, and the document of a file.

    ValueError with the path and the reason if it is another kind of file, of another
    version, or damaged.
    """
    path = as_path(path)
    check_regular(path, os.stat(path).st_mode)
    with refusing(f"{path!r} cannot be loaded"):
        with open(path, "rb", opener=_open_at_once) as file:
            tensors = _read_tensors(file, path, kind, version)
        text = tensors.pop(DOCUMENT).numpy().data
        _check_length("document", text.nbytes, LARGEST_DOCUMENT)
        return tensors, _from_json(text)


@contextmanager
def refusing(what: str):
    """Turn errors that content can cause into a ValueError: `what`, and the reason."""
    try:
        yield
    except UNREADABLE as error:
        why = str(error)
        if not isinstance(error, ValueError):
            why = f"unexpected content, {type(error).__name__}: {first_line(error)}"
        raise ValueError(f"{what}: {why}") from error


def _to_json(value) -> bytes:
    # Names that are not UTF-8 have surrogates. If they were escaped, two in a row would
    # be read as one character.
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode(errors="surrogatepass")


def _from_json(text):
    decoded = str(text, "utf-8", "surrogatepass")
    return json.loads(decoded, object_pairs_hook=_no_twins)


def _no_twins(pairs):
    """A dict; ValueError if a key comes twice, as readers differ in which they take."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("A key comes twice.")
    return found


def _check_length(what: str, length: int, largest: int) -> None:
    if length > largest:
        raise ValueError(
            f"its {what} must have at most {largest} bytes; it has {length}."
        )


def _open_at_once(path, flags):
    """Open a file that may have become a FIFO, for which `open` would wait."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _read_tensors(file, path, kind, version) -> dict:
    """All tensors of an open file, if they give its checksum."""
    header, size = file.read(8), os.fstat(file.fileno()).st_size
    length = int.from_bytes(header, "little")
    if size < 8 or length > size - 8:
        raise ValueError("it is not a safetensors file, or only the beginning of one.")
    _check_length("header", length, LARGEST_HEADER)
    header += file.read(length)
    # The open file, as the path may by now lead to another one.
    opened = f"/dev/fd/{file.fileno()}"
    tensors = {}
    try:
        with safe_open(opened if os.path.exists(opened) else path, "pt") as content:
            digest = _check_metadata(content.metadata(), kind, version)
            sha = hashlib.sha256(header.replace(digest.encode(), _ZEROS, 1))
            entries = _from_json(header[8:])
            del entries["__metadata__"]
            for name in sorted(entries, key=lambda n: entries[n]["data_offsets"]):
                # Values are read, as a copy of the mapped tensor would take its memory
                # twice. That tensor gets no name here, as the traceback of an error
                # would keep the file mapped. Older versions of safetensors put it on
                # the default device.
                tensor = torch.empty_like(content.get_tensor(name), device="cpu")
                raw = tensor.flatten().view(torch.uint8)
                file.readinto(raw.numpy())  # the tensors fill the rest of the file
                sha.update(raw.numpy())
                if tensor.dtype == torch.bool:  # bytes above 1 are no valid bools
                    tensor = raw.ne(0).view_as(tensor)
                tensors[name] = tensor
    except SafetensorError as error:
        raise ValueError(f"it is damaged: {first_line(error)}.") from error
    if sha.hexdigest() != digest:
        raise ValueError("it is damaged: its content does not match its checksum.")
    return tensors


def _check_metadata(metadata, kind: str, version: int) -> str:
    """The checksum in the metadata; ValueError if they are of another file."""
    try:
        head = _from_json(metadata[KEY].encode())
        found, its_version, digest = head["kind"], head["version"], head["sha256"]
    except UNREADABLE as error:
        raise ValueError(f"it was not written by {KEY}, or is damaged.") from error
    if found != kind:
        raise ValueError(f"it holds a {found!r}, where a {kind!r} is needed.")
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
    return digest


# -------------------------------------------------------------------- Python's values


class NotDataError(Exception):
    """A value is neither data nor made of data."""


def pack(value, name: str, tensors: dict, classes=()):
    """A value as JSON; types that JSON lacks become a dict with their kind as key.

    Arrays and tensors are put into `tensors`, under names that begin with `name`.
    Objects of `classes` (a dict by name) are kept as class and parameters. NotDataError
    for anything else.
    """

    def packed(value, name=name):
        return pack(value, name, tensors, classes)

    def put(tensor):
        place = name
        while place in tensors:
            place += "_"
        tensors[place] = tensor
        return place

    if isinstance(value, np.generic):
        value = value.item()
    kind = type(value).__name__
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if np.isfinite(value) else {"float": str(value)}
        case list() if _PLAIN.issuperset(map(type, value)):
            return value  # a history may have millions of numbers
        case list():
            return [packed(item, f"{name}.{i}") for i, item in enumerate(value)]
        case tuple():
            return {"tuple": packed(list(value))}
        case dict() if all(isinstance(key, str) for key in value):
            return {"dict": {k: packed(v, f"{name}.{k}") for k, v in value.items()}}
        case torch.device():
            return {"device": str(value)}
        case torch.Tensor():
            return {"tensor": put(value.detach().cpu().contiguous().clone())}
        case np.ndarray() if value.dtype.kind in "OU":
            if value.ndim == 1 and all(isinstance(item, str) for item in value):
                return {"strings": value.tolist()}
        case np.ndarray():
            own = value.dtype.newbyteorder("=")  # the only one that torch has
            with suppress(TypeError, ValueError):  # such as dates
                return {"array": put(torch.from_numpy(np.array(value, own, order="C")))}
        case _ if kind in classes and classes[kind] is type(value):
            parameters = packed(value.get_params(deep=False))
            return {"class": kind, "parameters": parameters}
    raise NotDataError(name)


def is_data(value) -> bool:
    """Whether `pack` takes a value."""
    try:
        pack(value, "", {})
    except (NotDataError, RecursionError):
        return False
    return True


def unpack(value, tensors: dict, classes=()):
    """The value that `pack` was given, or an error of UNREADABLE.

    Tensors that are used are taken out of `tensors`.
    """

    def unpacked(value):
        return unpack(value, tensors, classes)

    if isinstance(value, list) and not _PLAIN.issuperset(map(type, value)):
        return [unpacked(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"class", "parameters"}:
        found = classes[value["class"]](**unpacked(value["parameters"]))
        found._validate_params()
        return found
    ((kind, content),) = value.items()
    match kind, content:
        case "float", str():
            return float(content)
        case "device", str():
            return torch.device(content)
        case "tensor", str():
            return tensors.pop(content)
        case "array", str():
            return tensors.pop(content).numpy()
        case "tuple", list():
            return tuple(unpacked(content))
        case "dict", dict():
            return {name: unpacked(item) for name, item in content.items()}
        case "strings", list():
            return np.array([str(item) for item in content], dtype=object)
    raise KeyError(kind)
