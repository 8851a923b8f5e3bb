"""What users pass as X or as labels, as arrays; what would lose values is refused."""

import os
import sys
from collections.abc import Iterator, Mapping

import numpy as np
from scipy.sparse import issparse

from .warn import first_line

# Values that are read at a time: X may be a memory map, and they fit a CPU's caches.
_CHUNK_VALUES = 2**20
PIXELS = ("1", "L", "I", "I;16", "F", "RGB", "RGBA")  # modes whose values are colours
STACK = "np.stack([np.asarray(image) for image in images])"
FOLDER = "`sk_mice.datasets.load_image_folder` reads the images of a folder."


def as_array(X):
    """X in a form that scikit-learn can validate.

    Tensors, lists and images of Pillow's become arrays; anything else, such as a data
    frame, is returned as it is. TypeError or ValueError for paths, masked values,
    dates, images of several sizes and tensors without plain numbers.
    """
    if _is_of(X, "polars", "Series"):
        X = np.asarray(X)
    kind = getattr(getattr(X, "dtype", None), "kind", None)
    if kind in ("O", "U", "S") and X.ndim == 1:
        X = list(X)
    if isinstance(X, list | tuple) and not X:
        raise ValueError("X must hold samples; got an empty list.")
    first = X[0] if isinstance(X, list | tuple) else X
    if isinstance(first, str | os.PathLike):
        got = repr(str(os.fspath(first)))  # without the name of NumPy's type
        raise TypeError(f"X must hold numbers, not paths; got {got}. {FOLDER}")
    if _is_of(X, "PIL.Image", "Image"):
        raise TypeError(
            f"X must hold samples; got one image. np.asarray(image)[None] is an array "
            f"of one sample, {STACK} of several."
        )
    if _is_of(X, "polars", "LazyFrame"):
        raise TypeError("X must hold values; got a LazyFrame. X.collect() has them.")
    if isinstance(X, Mapping | Iterator) and not hasattr(X, "dtype"):
        raise TypeError(
            "X must be an array, a list of arrays, or a dataset of torch; got "
            f"{type(X).__name__}."
        )
    return plain_array(X, "X")


def plain_array(values, name: str):
    """Values as an array, if they are a tensor, a masked array or a list of anything.

    Raises TypeError or ValueError as `as_array` does; the name begins the messages.
    """
    try:
        values = _converted(values, name)
    except (ArithmeticError, RuntimeError) as error:  # torch, or a circle of lists
        raise ValueError(
            f"{name} must be an array of numbers; {first_line(error)}"
        ) from error
    if np.iterable(getattr(values, "dtypes", None)):  # those of a data frame
        _check_columns(values, name)
    else:
        _check_kind(getattr(values, "dtype", None), name)
    return values


def _check_kind(dtype, name: str, where: str = "") -> None:
    kind = getattr(dtype, "kind", None)
    if kind in ("m", "M"):
        raise TypeError(f"{name} must hold numbers, not dates; got {dtype}{where}.")
    if kind == "c":
        raise ValueError(
            f"Complex data not supported: {name} must hold real numbers, such as "
            f"magnitudes; got {dtype}{where}."
        )


def _check_columns(frame, name: str) -> None:
    """Refuse dates, texts and vectors in a data frame, by the names of columns."""
    for column in frame.columns:
        series = frame[column]
        values = np.asarray(series)
        # As an array, dates with a time zone are objects.
        for dtype in (getattr(series, "dtype", None), values.dtype):
            _check_kind(dtype, name, f" in column {column!r}")
        if values.ndim > len(series.shape):
            _refuse_vectors(name, column)
        if values.dtype.kind not in "OUST":
            continue
        for value in values.ravel().tolist():
            try:
                float(value)
            except (TypeError, ValueError):
                if value is None or type(value).__name__ == "NAType":
                    continue  # a missing value has its own error
                if np.ndim(value):
                    _refuse_vectors(name, column)
                raise ValueError(
                    f"{name} must hold numbers; got {value!r} in column {column!r}. "
                    "Leave out columns that are not features."
                ) from None


def _refuse_vectors(name: str, column):
    raise ValueError(
        f"{name} must hold numbers; got vectors in column {column!r}. "
        f"np.stack(frame[{column!r}]) is an array of them."
    )


def stored_once(X):
    """X; if it is sparse, without several entries for one place."""
    if issparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def _converted(values, name):
    if isinstance(values, list | tuple):
        return _from_list(values, name)
    if _is_of(values, "torch", "Tensor"):
        return _from_tensor(values, name)
    if _is_of(values, "PIL.Image", "Image"):
        if values.mode not in PIXELS:
            raise ValueError(
                f"{name} must hold grey or RGB values; got an image of mode "
                f'"{values.mode}". image.convert("RGB") has RGB values.'
            )
        try:
            return np.asarray(values)
        except OSError as error:  # Pillow reads a file when its pixels are asked for
            file = getattr(values, "filename", "")
            message = f"{name} must hold images that can be read; {file!r}: {error}"
            raise ValueError(message) from error
    if isinstance(values, np.ma.MaskedArray):
        n_masked = int(np.ma.getmaskarray(values).sum())
        if n_masked:
            raise ValueError(
                f"{name} must have all its values; got a masked array, and {n_masked} "
                "of them are masked. Leave such samples out, or fill the values in."
            )
        return values.data
    if hasattr(values, "dtype") or hasattr(values, "dtypes"):
        return values
    if hasattr(values, "__array__"):
        return values if hasattr(values, "shape") else np.asarray(values)
    is_sequence = hasattr(values, "__len__") and hasattr(values, "__getitem__")
    if is_sequence and not isinstance(values, Mapping | str | bytes | type):
        return _from_list((values[i] for i in range(len(values))), name)
    return values


def without_names(sample, name: str):
    """A sample, or TypeError if it is a dict, as those of Hugging Face are."""
    if isinstance(sample, Mapping) and not hasattr(sample, "dtype"):
        keys = ", ".join(map(repr, sample))
        raise TypeError(
            f"{name} must hold numbers; got a {type(sample).__name__} of {keys}. Make "
            "a list of one of these, as by [sample['image'] for sample in dataset]."
        )
    return sample


def _is_of(value, module, name):
    """Whether a value is of a class, without importing the module of the class."""
    there = sys.modules.get(module)
    return there is not None and isinstance(value, getattr(there, name))


def _from_list(values, name):
    # Numbers stay as they are. The samples of a dataset come one after the other.
    if not (isinstance(values, list | tuple) and values and np.isscalar(values[0])):
        values = [_converted(without_names(item, name), name) for item in values]
    shapes = [getattr(item, "shape", None) for item in values]
    other = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
    if other is not None:
        if shapes[0] and shapes[other] == shapes[0][:1]:
            what = "These look like samples and their classes: pass the samples alone."
        else:
            what = f"Bring images to one size first: {FOLDER}"
        raise ValueError(
            f"{name} must hold samples of one shape; got {shapes[0]} in sample 0 and "
            f"{shapes[other]} in sample {other}. {what}"
        )
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must hold samples of one shape; {error}") from error


def _from_tensor(tensor, name):
    torch = sys.modules["torch"]
    kinds = {
        "nested": tensor.is_nested,
        "quantized": tensor.is_quantized,
        "meta": tensor.is_meta,
        "sparse": tensor.layout != torch.strided,
    }
    for kind, is_such in kinds.items():
        if is_such:
            raise TypeError(
                f"{name} must be dense and hold plain numbers; got a {kind} tensor."
            )
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    known = (torch.float16, torch.float32, torch.float64)
    if tensor.is_floating_point() and tensor.dtype not in known:
        tensor = tensor.float()  # bfloat16 and the like, which numpy does not have
    return tensor.numpy()


# ------------------------------------------------------------------- values of arrays


def chunks(X):
    """Parts of X, sample by sample, that are small enough to be copied."""
    rows = max(1, _CHUNK_VALUES // max(1, int(np.prod(X.shape[1:]))))
    for start in range(0, len(X), rows):
        yield np.asarray(X[start : start + rows])


def fill(whole, parts) -> None:
    """Fill an array or a tensor with the rows of parts, one after the other."""
    start = 0
    for part in parts:
        whole[start : start + len(part)] = part
        start += len(part)


def extremes(X, *, by_feature: bool):
    """Smallest and largest values of X, (1,), or of its features, (F,), in float64.

    Raises ValueError if a value is NaN or infinite, and says where.
    """
    axis = 0 if by_feature else None
    lows, highs = [], []
    with np.errstate(invalid="ignore", over="ignore"):
        for part in chunks(X):
            lows.append(part.min(axis=axis).astype(np.float64))
            highs.append(part.max(axis=axis).astype(np.float64))
    low, high = np.min(lows, axis=0), np.max(highs, axis=0)
    if not np.isfinite([low, high]).all():
        refuse_infinite(X)
    return np.atleast_1d(low, high)


def refuse_infinite(X) -> None:
    """Raise ValueError if a value is NaN or infinite, and say where."""
    rows = [np.isfinite(part).reshape(len(part), -1).all(axis=1) for part in chunks(X)]
    odd = np.flatnonzero(~np.concatenate(rows))
    if not len(odd):  # only as float64: a long double was larger
        return
    what = "NaN" if np.isnan(X[odd[0]]).any() else "infinity"
    raise ValueError(
        f"Input X contains {what} in sample {odd[0]}; {len(odd)} of {len(X)} samples "
        "have values that are not finite. Leave them out, or fill the values in."
    ) from None
