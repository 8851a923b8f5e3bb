"""One file for tensors and a JSON document: safetensors, checked as a whole.

The document is the only entry of the safetensors metadata. In it stand the kind of the
file, its format version and a SHA-256 of the whole file, in which the digits of the
checksum itself count as zeros: so nothing in the file is outside it.
"""

import hashlib
import json
import math
import os
import re

import safetensors.torch
import torch

from .atomic import as_path, check_regular, write_atomically

__all__ = ["read_container", "write_container"]

KEY = "sk_mice"
# Bytes. Python's objects for JSON take up to 25 times as much memory. What grows with
# samples, features or epochs lies in tensors; 10,000 tensors need about 1,500,000.
LARGEST_HEADER = 4_000_000
_TYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "U16": torch.uint16,
    "U32": torch.uint32,
    "U64": torch.uint64,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
}
_UNSIGNED = "0" * 64
# The document is a string in the JSON of the header, so its quotes are escaped; a
# string in the document that looks like this is escaped twice.
_CHECKSUM = re.compile(rb'\\"sha256\\":\\"([0-9a-f]{64})\\"')
# What content of another kind raises where it is read.
_NO_JSON = (AttributeError, LookupError, RecursionError, TypeError, ValueError)


def write_container(path, tensors, document, *, kind: str, version: int) -> None:
    """Write a file, whole or not at all.

    Parameters
    ----------
    path : str or path-like
    tensors : dict of str to Tensor
        On the CPU, contiguous, none sharing memory with another.
    document : dict
        What JSON can hold; no NaN and no infinity.
    kind : str
        What the file is, in a word.
    version : int
        Of what `kind` means by tensors and document.

    Raises
    ------
    OSError
        That names `path`.
    ValueError
        That names `path`, if the file could not be read again: its header is too long,
        say, or a tensor is of a type that has no name in it.
    """
    path = as_path(path)
    head = {"kind": kind, "version": version, "sha256": _UNSIGNED}
    try:
        for name, tensor in tensors.items():
            if tensor.dtype not in _TYPES.values():
                raise ValueError(f"its {name!r} is of type {tensor.dtype}.")
        text = json.dumps(head | document, separators=(",", ":"), allow_nan=False)
        content = memoryview(safetensors.torch.save(tensors, {KEY: text}))
        header = _take_header(content[:8], len(content), lambda n: content[8 : 8 + n])
        start, end = _parse(header, len(content))[2]
    except ValueError as error:
        raise ValueError(f"{path!r} cannot be written: {error}") from error
    digest = hashlib.sha256(content).hexdigest().encode()
    write_atomically(path, (content[:start], digest, content[end:]))


def read_container(path, *, kind: str, version: int):
    """Read a file that :func:`write_container` wrote, if all of it is as written.

    Nothing is read before the size of the file is what its header accounts for, and
    no code in it is run.

    Parameters
    ----------
    path : str or path-like
    kind : str
        What the file has to be.
    version : int
        The latest that can be read.

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
        If it is another kind of file, of a later version, or damaged; names the file
        and says which.
    """
    path = as_path(path)
    with _open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            header = _take_header(file.read(8), size, file.read)
            document, layout, place = _parse(header, size)
            _check_kind(document, kind, version)
            tensors, digest = _read_tensors(file, layout, _unsigned(header, place))
            if digest != document.pop("sha256", None):
                raise ValueError(
                    "it is damaged: its content does not give its checksum."
                )
        except ValueError as error:
            raise ValueError(f"{path!r} cannot be loaded: {error}") from error
    return tensors, document


def _open_regular(path: str):
    """Open a file, if it is one: a FIFO would wait, and devices may do anything."""

    def opener(path, flags):  # it may become a FIFO in between
        return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))

    try:
        check_regular(os.stat(path).st_mode)
        file = open(path, "rb", opener=opener)  # noqa: SIM115  the caller closes it
        try:
            check_regular(os.fstat(file.fileno()).st_mode)
        except OSError:
            file.close()
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    return file


def _take_header(prefix, size: int, read) -> bytes:
    """The safetensors header with the eight bytes before it, which give its length."""
    length = int.from_bytes(prefix, "little")
    if len(prefix) < 8 or length > size - 8:
        raise ValueError("it is no safetensors file, or the beginning of one.")
    if length > LARGEST_HEADER:
        raise ValueError(
            f"its header must have at most {LARGEST_HEADER} bytes; it has {length}."
        )
    return bytes(prefix) + read(length)


def _parse(header: bytes, size: int):
    """The document, the layout of the tensors and the place of the checksum."""
    try:
        entries = _from_json(header[8:])
        metadata = entries.pop("__metadata__")
        document = _from_json(metadata.pop(KEY).encode())
        ((start, end),) = (found.span(1) for found in _CHECKSUM.finditer(header))
        if metadata or not isinstance(document, dict):
            raise ValueError("There is more than a document, or none.")
        layout, end_of_all = _layout(entries)
    except _NO_JSON as error:
        raise ValueError(f"it was not written by {KEY}, or is damaged.") from error
    if end_of_all != size - len(header):
        raise ValueError(
            "it is damaged: its size must be what its header accounts for, "
            f"{len(header) + end_of_all} bytes; it is {size}."
        )
    return document, layout, (start, end)


def _from_json(content: bytes):
    return json.loads(
        content.decode(), object_pairs_hook=_no_twins, parse_constant=_no_constant
    )


def _no_twins(pairs):
    """A dict, if no key comes twice: readers would differ in which one counts."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("A key comes twice.")
    return found


def _no_constant(name):
    raise ValueError(f"JSON has no {name}.")


def _layout(entries: dict):
    """Name, type, shape and bytes of each tensor in the file's order, and their end."""
    layout, end = [], 0
    for name, entry in sorted(entries.items(), key=lambda e: e[1]["data_offsets"]):
        dtype, shape, span = (entry[k] for k in ("dtype", "shape", "data_offsets"))
        dtype = _TYPES[dtype]
        whole = all(type(n) is int and 0 <= n < 2**63 for n in (*shape, *span))
        if not whole or len(shape) > 64 or span[0] != end:
            raise ValueError(f"{name!r} has no place in the file.")
        start, end = span
        if end - start != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{name!r} does not fill its place.")
        layout.append((name, dtype, shape, end - start))
    return layout, end


def _check_kind(document: dict, kind: str, version: int) -> None:
    found, its_version = document.pop("kind", None), document.pop("version", None)
    if found != kind:
        raise ValueError(f"it holds no {kind} but a {found!r}.")
    if type(its_version) is not int or not 1 <= its_version <= version:
        raise ValueError(
            f"it has format version {its_version!r}, and this version of {KEY} reads "
            f"up to {version}."
        )


def _unsigned(header: bytes, place):
    """A running checksum, so far of the header."""
    start, end = place
    return hashlib.sha256(header[:start] + _UNSIGNED.encode() + header[end:])


@torch.inference_mode(False)  # what is made in it cannot be trained
def _read_tensors(file, layout, sha):
    """Each tensor, read once and to where it stays, and the checksum of all."""
    tensors = {}
    for name, dtype, shape, n_bytes in layout:
        try:
            raw = torch.empty(n_bytes, dtype=torch.uint8, device="cpu")
            view = raw.numpy()
            if file.readinto(view) != n_bytes:
                raise ValueError("it is damaged: it ends too early.")
            sha.update(view)
            if dtype == torch.bool:
                raw = raw != 0  # a byte of a bool is 0 or 1
            tensors[name] = raw.view(dtype).reshape(shape)
        except RuntimeError as error:
            raise ValueError(
                f"its {name!r} of {n_bytes} bytes and shape {shape} cannot be read."
            ) from error
    return tensors, sha.hexdigest()
