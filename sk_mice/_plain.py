"""Parameters and attributes as JSON and tensors, and back; data only, never code."""

import math

import numpy as np
import torch

__all__ = ["NotPlainError", "from_plain", "to_plain"]


class NotPlainError(Exception):
    """A value is neither data nor made of data."""


def to_plain(value, name: str, tensors: dict):
    """A value in JSON; for what JSON has no word, a dict with one key.

    Parameters
    ----------
    value : object
        None, a bool, number, string, device, array, tensor, or a list, tuple or dict of
        such.
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
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {"tensor": name}
    if isinstance(value, list | tuple):
        items = [to_plain(v, f"{name}.{i}", tensors) for i, v in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        items = value.items()
        return {"dict": {k: to_plain(v, f"{name}.{k}", tensors) for k, v in items}}
    if isinstance(value, np.ndarray):
        return _plain_array(value, name, tensors)
    raise NotPlainError(name)


def _plain_array(array, name, tensors):
    if array.dtype.kind in "OU":
        strings = array.tolist()
        if array.ndim != 1 or not all(isinstance(item, str) for item in strings):
            raise NotPlainError(name)
        return {"strings": strings}
    try:
        tensors[name] = torch.tensor(array)
    except TypeError as error:  # dates, say
        raise NotPlainError(name) from error
    return {"array": name}


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
        return tuple(from_plain(item, tensors) for item in content)
    if kind == "tensor":
        return tensors.pop(content)
    if kind == "array":
        return tensors.pop(content).numpy()
    if kind == "strings":
        return np.array([str(item) for item in content], dtype=object)
    return {"float": float, "device": torch.device}[kind](content)
