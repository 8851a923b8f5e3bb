"""Digests of all that decides a fit: equal only if X, parameters and code are equal.

Data are compared by value, code by what it does and refers to, and objects by class and
state, as pickle would write them. Digests are the same in every process. Each is that
of a kind, a text and the digests of parts, with their lengths, so that two different
values never give the same bytes.
"""

import copyreg
import dis
import hashlib
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from types import CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator

from ._engine.arrays import chunks
from ._engine.dataset import DatasetRows
from ._show_versions import LIBRARIES, versions

# Parameters that do not change the result. `callbacks` may change it, but their states
# can neither be compared nor restored.
_INDIFFERENT = {"callbacks", "checkpoint", "distributed", "verbose"}
# Parameters that may differ between the processes of a fit.
_OF_A_PROCESS = {"callbacks", "device", "verbose"}
LONGEST_SHOWN = 60
_NO_STATE = (
    *("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__"),
    *("__annotations__", "__firstlineno__", "__static_attributes__", "_abc_impl"),
    *("__annotate_func__", "__annotations_cache__"),  # those of Python 3.14
    "__slotnames__",  # added when the first object is pickled
)
# Names of folders of installed packages. Debian has dist-packages, and the modules of a
# cluster put either of them on PYTHONPATH.
_OF_INSTALLED = {"site-packages", "dist-packages"}
_OF_CODE = (
    *("co_code", "co_consts", "co_names", "co_varnames", "co_freevars", "co_cellvars"),
    *("co_flags", "co_argcount", "co_posonlyargcount", "co_kwonlyargcount"),
)


def identity(estimator, **inputs) -> dict[str, str]:
    """The class of an estimator, and digests of all else that decides its fit, by name.

    These are its parameters, what `fit` was given, and the code of a user's own
    subclass. ValueError if one of them cannot be compared with another.
    """
    parts = _all_parameters(estimator)
    parts = {name: parts[name] for name in parts.keys() - _INDIFFERENT} | inputs
    if not _is_of_library(type(estimator)):
        parts["code"] = type(estimator)
    digests = {"class": type(estimator).__name__}
    for name in sorted(parts):
        try:
            digests[name] = _Digests()(parts[name]).hex()
        except Exception as error:  # whatever a user's object raises when it is read
            raise ValueError(
                f"`{name}` must be comparable with that of other fits for a "
                f"`checkpoint`, and it is not: {error}. Give data, functions or "
                "objects that can be pickled, or fit without `checkpoint`."
            ) from error
    return digests


def _all_parameters(estimator) -> dict:
    """Parameters, with those of our class that a subclass sets in its `__init__`."""
    classes = [cls for cls in type(estimator).__mro__ if issubclass(cls, BaseEstimator)]
    ours: Any = next(filter(_is_of_library, classes))
    fixed = {name: getattr(estimator, name) for name in ours._get_param_names()}
    return fixed | estimator.get_params(deep=False)


def facts(estimator, **inputs) -> dict[str, tuple[str, str]]:
    """What the processes of a fit must have in common, by name.

    Each name has what is compared, and a few words to show. Only types are compared of
    objects that have no digest.
    """
    parts = estimator.get_params(deep=False)
    given = {f"`{name}`": parts[name] for name in parts.keys() - _OF_A_PROCESS} | inputs
    found = {name: (_digest_or_type(v), _shown(v)) for name, v in given.items()}
    for name, number in versions(*LIBRARIES, "python", "sk-mice").items():
        found[f"the version of {name}"] = number, number
    return found


def _digest_or_type(value) -> str:
    try:
        return _Digests()(value).hex()
    except Exception:  # whatever a user's object raises when it is read
        return f"{type(value).__module__}.{type(value).__qualname__}"


def _shown(value) -> str:
    """A value in a few words."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    words = " ".join(repr(value).split())
    return words if len(words) <= LONGEST_SHOWN else type(value).__name__


class _Digests:
    """Computes digests of values and of the values in them."""

    def __init__(self):
        self._known = {}  # by id: the value, to keep it alive, and its digest
        self._open = {}  # by id: the depth of a value whose digest is being computed

    def __call__(self, value) -> bytes:
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | int | str | bytes):
            return _joined(type(value).__name__, repr(value))
        if isinstance(value, float):
            return _joined("float", value.hex())
        if id(value) in self._known:
            return self._known[id(value)][1]
        if id(value) in self._open:  # it refers to itself
            return _joined("above", str(self._open[id(value)]))
        self._open[id(value)] = len(self._open)
        digest = self._of_parts(value)
        del self._open[id(value)]
        self._known[id(value)] = value, digest
        return digest

    def _of_parts(self, value) -> bytes:
        if isinstance(value, np.ndarray | DatasetRows) and value.dtype != object:
            return _of_array(value)
        if isinstance(value, torch.Tensor) and value.layout == torch.strided:
            return _of_tensor(value)
        if isinstance(value, torch.device | torch.dtype | ModuleType):
            name = getattr(value, "__name__", value)
            return _joined(type(value).__name__, str(name))
        if type(value) in (list, tuple):
            return _joined(type(value).__name__, "", *map(self, value))
        if isinstance(value, set | frozenset):
            return _joined("set", "", *sorted(map(self, value)))
        if type(value) in (dict, MappingProxyType):
            entries = [self(key) + self(item) for key, item in value.items()]
            return _joined("dict", "", *sorted(entries))
        if isinstance(value, CodeType):
            return _joined("code", "", *(self(getattr(value, n)) for n in _OF_CODE))
        if isinstance(value, FunctionType | type):
            return self._of_definition(value)
        if isinstance(value, staticmethod | classmethod):
            return _joined(type(value).__name__, "", self(value.__func__))
        if isinstance(value, property):
            return self([value.fget, value.fset, value.fdel])
        if isinstance(value, cached_property):  # has a lock in Python 3.11
            return self(["cached_property", value.func])
        return self._of_object(value)

    def _of_definition(self, value) -> bytes:
        name = f"{value.__module__}.{value.__qualname__}"
        if _is_of_library(value):
            return _joined("name", name)
        if isinstance(value, type):
            members = {k: v for k, v in vars(value).items() if k not in _NO_STATE}
            return _joined("class", name, self(value.__bases__), self(members))
        code = _without_docstring(value)
        known = value.__globals__
        names = sorted(_names_in(code) & known.keys())
        used = {name: known[name] for name in names}
        cells = [_content(cell) for cell in value.__closure__ or ()]
        parts = code, value.__defaults__, value.__kwdefaults__, cells, used
        return _joined("function", name, *map(self, parts))

    def _of_object(self, value) -> bytes:
        reduce = copyreg.dispatch_table.get(type(value))
        reduced = reduce(value) if reduce else value.__reduce_ex__(4)
        if isinstance(reduced, str):  # the name of a global
            module = getattr(value, "__module__", type(value).__module__)
            wrapped = getattr(value, "__wrapped__", None)  # as functools.cache sets it
            inner = [] if wrapped is None else [self(wrapped)]
            return _joined("name", f"{module}.{reduced}", *inner)
        parts = [list(p) if isinstance(p, Iterator) else p for p in reduced]
        return _joined("object", "", *map(self, parts))


def _joined(kind: str, text: str, *parts: bytes) -> bytes:
    """The digest of a kind, a text and digests of parts, each of one length."""
    encoded = text.encode("utf-8", "surrogatepass")
    sha = hashlib.sha256(f"{kind} {len(encoded)} {len(parts)} ".encode())
    sha.update(encoded)
    for part in parts:
        sha.update(part)
    return sha.digest()


def _of_array(array: np.ndarray | DatasetRows) -> bytes:
    sha = hashlib.sha256()
    for some in chunks(array if array.ndim else array[None]):
        if some.dtype.kind == "f" and some.dtype.itemsize > 8:
            some = some.astype(np.float64)  # some of the 16 bytes are padding
        sha.update(np.ascontiguousarray(some).data)
    return _joined("array", f"{array.shape} {array.dtype.str}", sha.digest())


def _of_tensor(tensor: torch.Tensor) -> bytes:
    content = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
    kind = f"{tuple(tensor.shape)} {tensor.dtype} {tensor.requires_grad}"
    return _joined("tensor", kind, _of_array(content.numpy()))


def _without_docstring(function) -> CodeType:
    """The code of a function without its docstring, unless the code uses that."""
    code = function.__code__
    doc, *others = code.co_consts or (None,)
    steps = dis.get_instructions(code)
    is_used = any(step.opcode in dis.hasconst and step.arg == 0 for step in steps)
    if doc is None or doc != function.__doc__ or is_used:
        return code
    return code.replace(co_consts=("", *others))


def _names_in(code: CodeType) -> set[str]:
    """Global names that code may refer to, including that of inner functions."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names_in(constant)
    return names


def _content(cell):
    try:
        return cell.cell_contents
    except ValueError:  # a variable that has no value yet
        return "empty cell"


def _is_of_library(value) -> bool:
    """Whether a function or class is of an installed package, and not edited by users.

    Its name then stands for its code.
    """
    if "<" in value.__qualname__:  # a lambda, or local to a function
        return False
    if value.__module__ == "__main__":  # in a worker, its file is that of a library
        return False
    if value.__module__.split(".")[0] == __name__.split(".")[0]:
        return True  # ours, also if it is not installed
    module = sys.modules.get(value.__module__)
    file = getattr(module, "__file__", None)
    if file is None:
        return module is not None  # built into Python
    path = Path(file)
    if not _OF_INSTALLED.isdisjoint(path.parts):
        return True
    return any(path.is_relative_to(folder) for folder in _standard_library())


@cache
def _standard_library():
    paths = sysconfig.get_paths()
    return {paths[name] for name in ("stdlib", "platstdlib")}
