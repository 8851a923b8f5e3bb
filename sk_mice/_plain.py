"""Parameters and attributes as JSON and tensors, and back; data only, never code."""

import math
from itertools import accumulate, chain, groupby, pairwise

import numpy as np
import torch

__all__ = ["NotPlainError", "from_plain", "to_plain"]

# Lists from this length on lie in tensors, which take less memory than JSON to read.
LONG = 64


class NotPlainError(Exception):
    """A value is neither data nor made of data."""


def to_plain(value, name: str, tensors: dict):
    """A value in JSON; for what JSON has no word, a dict with one key.

    Parameters
    ----------
    value : object
        None, a bool, number, string, device, array, tensor, or a list, tuple or dict of
        such. Of long lists, numbers and strings go to tensors.
    name : str
        Begins the names of the tensors that `value` needs.
    tensors : dict
        Gets the arrays and tensors.

    Raises
    ------
    NotPlainError
        If `value` is anything else.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, torch.Tensor):
        tensor = value.detach().cpu().contiguous().clone()
        return {"tensor": _put(tensor, name, tensors)}
    if isinstance(value, tuple):
        return {"tuple": _plain_list(list(value), name, tensors)}
    if isinstance(value, list):
        return _plain_list(value, name, tensors)
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        items = value.items()
        return {"dict": {k: to_plain(v, f"{name}.{k}", tensors) for k, v in items}}
    if isinstance(value, np.ndarray):
        return _plain_array(value, name, tensors)
    raise NotPlainError(name)


def _put(tensor, name, tensors) -> str:
    """Add a tensor, under a name that no other has; returns the name."""
    while name in tensors:
        name += "_"
    tensors[name] = tensor
    return name


def _plain_list(items, name, tensors):
    if len(items) >= LONG and all(type(item) is dict and item for item in items):
        runs = [list(run) for _, run in groupby(items, _kind_of_row)]
        return {"rows": [to_plain(_columns(run), name, tensors) for run in runs]}
    column = _column(items, name, tensors)
    if column is not None:
        return column
    return [to_plain(v, f"{name}.{i}", tensors) for i, v in enumerate(items)]


def _kind_of_row(row) -> list:
    return [(key, type(value) is list and len(value)) for key, value in row.items()]


def _columns(rows) -> dict:
    return {key: [row[key] for row in rows] for key in rows[0]}


def _column(items, name, tensors):
    """A long list of numbers, of lists of them, or of strings; None of another."""
    leaves, shape = items, [len(items)]
    if items and all(type(row) is list and len(row) == len(items[0]) for row in items):
        leaves = [*chain(*items)]
        shape.append(len(items[0]))
    kinds = set(map(type, leaves))
    if len(leaves) < LONG or len(kinds) > 1:
        return None
    (kind,) = kinds
    if kind is str and len(shape) == 1:
        return {"texts": _plain_texts(leaves, name, tensors)}
    if kind is int and not -(2**63) <= min(leaves) <= max(leaves) < 2**63:
        return None
    if kind not in (int, float):
        return None
    array = np.array(leaves, np.int64 if kind is int else np.float64)
    return {"list": _put(torch.from_numpy(array.reshape(shape)), name, tensors)}


def _plain_texts(texts, name, tensors):
    joined = "".join(texts).encode("utf-8", "surrogatepass")
    lengths = np.array([len(text) for text in texts])
    parts = {"text": np.frombuffer(joined, np.uint8).copy(), "lengths": lengths}
    return [
        _put(torch.from_numpy(part), f"{name}.{which}", tensors)
        for which, part in parts.items()
    ]


def _plain_array(array, name, tensors):
    if array.dtype.kind in "OU":
        strings = array.tolist()
        if array.ndim != 1 or not all(isinstance(item, str) for item in strings):
            raise NotPlainError(name)
        return {"strings": _plain_list(strings, name, tensors)}
    try:
        tensor = torch.tensor(array, device="cpu")
    except TypeError as error:  # dates, say
        raise NotPlainError(name) from error
    return {"array": _put(tensor, name, tensors)}


def from_plain(value, tensors: dict):
    """The value that :func:`to_plain` was given.

    Parameters
    ----------
    value : object
        As it came from JSON.
    tensors : dict
        Each tensor is taken out where it is used.

    Raises
    ------
    ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError
        If `value` is nothing that `to_plain` returns.
    """
    if isinstance(value, list):
        return [from_plain(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "dict":
        return {name: from_plain(item, tensors) for name, item in content.items()}
    if kind == "tuple":
        return tuple(_as_list(content, tensors))
    if kind == "rows":
        return [row for columns in content for row in _rows(columns, tensors)]
    if kind == "list":
        return _numbers(tensors.pop(content), 2)
    if kind == "texts":
        return _texts(*(tensors.pop(part) for part in content))
    if kind == "tensor":
        return tensors.pop(content)
    if kind == "array":
        return tensors.pop(content).numpy()
    if kind == "strings":
        strings = _as_list(content, tensors)
        return np.array([str(item) for item in strings], dtype=object)
    return {"float": float, "device": torch.device}[kind](content)


def _as_list(content, tensors) -> list:
    items = from_plain(content, tensors)
    if not isinstance(items, list):
        raise TypeError(f"A list was expected; got {type(items).__name__}.")
    return items


def _rows(columns, tensors):
    names, values = zip(*from_plain(columns, tensors).items(), strict=True)
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


def _numbers(tensor, most_dimensions: int) -> list:
    # Without numbers a tensor takes no memory, and a list of empty lists much.
    if not 1 <= tensor.ndim <= most_dimensions or tensor.numel() == 0:
        raise ValueError(f"A list of numbers has no shape {tuple(tensor.shape)}.")
    return tensor.tolist()


def _texts(text, lengths) -> list:
    text = text.numpy().tobytes().decode("utf-8", "surrogatepass")
    lengths = _numbers(lengths, 1)
    if min(lengths) < 0 or sum(lengths) != len(text):
        raise ValueError("Strings do not have the lengths that they should.")
    ends = accumulate(lengths, initial=0)
    return [text[start:end] for start, end in pairwise(ends)]
