"""One file for tensors and a JSON document: safetensors, checked as a whole.

The document is the only entry of the safetensors metadata. In it stand the kind of the
file, its format version and a SHA-256 of the whole file, in which the digits of the
checksum itself count as zeros: so nothing in the file is outside it.
"""

import hashlib
import json
import os
import re

import safetensors.torch
from safetensors import SafetensorError

from .atomic import write_atomically

__all__ = ["read_container", "write_container"]

KEY = "sk_mice"
LARGEST_HEADER = 100_000_000  # bytes, as in safetensors
_UNSIGNED = "0" * 64
# The document is a string in the JSON of the header, so its quotes are escaped; a
# string in the document that looks like this is escaped twice.
_CHECKSUM = re.compile(rb'\\"sha256\\":\\"([0-9a-f]{64})\\"')


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
    """
    head = {"kind": kind, "version": version, "sha256": _UNSIGNED}
    text = json.dumps(head | document, separators=(",", ":"), allow_nan=False)
    content = memoryview(safetensors.torch.save(tensors, {KEY: text}))
    start, end = _CHECKSUM.search(content).span(1)
    digest = hashlib.sha256(content).hexdigest().encode()
    write_atomically(path, (content[:start], digest, content[end:]))


def read_container(path, *, kind: str, version: int):
    """Read a file that :func:`write_container` wrote, if all of it is as written.

    Nothing is allocated that the file does not hold, and no code in it is run.

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
    document : dict

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is another kind of file, of a later version, or damaged; names the file
        and says which.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            header = _read_header(file, size)
            document = _read_document(header, kind, version)
            content = header + file.read()
            _check(content, len(header), document.pop("sha256"))
            tensors = safetensors.torch.load(content)
        except (SafetensorError, *_NO_JSON) as error:
            raise ValueError(
                f"{os.fspath(path)!r} cannot be loaded: {error}"
            ) from error
    return tensors, document


# What the readers of JSON and of tensors raise, if it is not ours.
_NO_JSON = (AttributeError, KeyError, RecursionError, TypeError, ValueError)


def _read_header(file, size: int) -> bytes:
    """The safetensors header with the eight bytes before it, which give its length."""
    prefix = file.read(8)
    length = int.from_bytes(prefix, "little")
    if len(prefix) < 8 or length > min(size - 8, LARGEST_HEADER):
        raise ValueError("it is no safetensors file, or the beginning of one.")
    return prefix + file.read(length)


def _read_document(header: bytes, kind: str, version: int) -> dict:
    try:
        metadata = json.loads(header[8:], object_pairs_hook=_no_twins)["__metadata__"]
        document = json.loads(metadata[KEY], object_pairs_hook=_no_twins)
        found, its_version = document.pop("kind"), document.pop("version")
        document["sha256"].encode()
    except _NO_JSON as error:
        raise ValueError(f"it was not written by {KEY}, or is damaged.") from error
    if found != kind:
        raise ValueError(f"it holds no {kind} but a {found!r}.")
    if type(its_version) is not int or not 1 <= its_version <= version:
        raise ValueError(
            f"it has format version {its_version!r}, and this version of {KEY} reads "
            f"up to {version}."
        )
    return document


def _no_twins(pairs):
    """A dict, if no key comes twice: readers would differ in which one counts."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("A key comes twice.")
    return found


def _check(content: bytes, header_end: int, checksum: str) -> None:
    digest = None
    places = list(_CHECKSUM.finditer(content, 0, header_end))
    if len(places) == 1:
        start, end = places[0].span(1)
        sha = hashlib.sha256()
        for part in (content[:start], _UNSIGNED.encode(), memoryview(content)[end:]):
            sha.update(part)
        digest = sha.hexdigest()
    if digest != checksum:
        raise ValueError("it is damaged: its content does not give its checksum.")
