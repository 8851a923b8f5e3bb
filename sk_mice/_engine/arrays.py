"""What users hand in, as arrays and figures; nothing is lost in silence."""

import os
import sys

import numpy as np

__all__ = ["as_array", "check_finite", "chunks", "extremes", "floats", "plain_array"]

_CHUNK_VALUES = 1 << 24  # values read at a time, as X may be a memory map
PIXELS = ("1", "L", "I", "I;16", "F", "RGB", "RGBA")  # modes whose values are colours
STACK = "np.stack([np.asarray(image) for image in images])"
FOLDER = "`sk_mice.datasets.load_image_folder` reads the images of a folder."


def as_array(X):
    """X as scikit-learn can judge it.

    Tensors, Pillow's images and lists become arrays; what else there is, such as a
    data frame, is returned as it is.

    Raises
    ------
    TypeError, ValueError
        If X holds paths, masked values, dates, or images of several sizes, or is a
        tensor without plain numbers.
    """
    if _kind(X) in ("O", "U", "S") and X.ndim == 1:
        X = list(X)
    first = X[0] if isinstance(X, list | tuple) and X else X
    if isinstance(first, str | os.PathLike):
        got = repr(os.fspath(first))
        raise TypeError(f"X must hold numbers, not paths; got {got}. {FOLDER}")
    if _is_image(X):
        raise TypeError(
            f"X must hold samples; got one image. np.asarray(image)[None] is an array "
            f"of one sample, {STACK} of several."
        )
    return plain_array(X, "X")


def plain_array(values, name: str):
    """Values as an array, if they are a tensor, a masked array or a list of anything.

    Parameters
    ----------
    values : object
    name : str
        Begins the messages.

    Raises
    ------
    TypeError, ValueError
        See `as_array`.
    """
    try:
        values = _converted(values, name)
    except (ArithmeticError, RuntimeError) as error:  # of torch, or a circle of lists
        first, *_ = str(error).splitlines() or [""]
        raise ValueError(f"{name} must be an array of numbers; {first}") from error
    columns = getattr(values, "dtypes", None)  # of a data frame
    for dtype in columns if np.iterable(columns) else [getattr(values, "dtype", None)]:
        if getattr(dtype, "kind", None) in ("m", "M"):
            raise TypeError(f"{name} must hold numbers, not dates; got {dtype}.")
    return values


def _kind(values):
    return getattr(getattr(values, "dtype", None), "kind", None)


def _converted(values, name):
    if isinstance(values, list | tuple):
        return _from_list(values, name)
    if _is_tensor(values):
        return _from_tensor(values, name)
    if _is_image(values):
        return _from_image(values, name)
    if isinstance(values, np.ma.MaskedArray):
        return _from_masked(values, name)
    return values


def _from_list(values, name):
    # The numbers of a row need no look at each.
    if len(values) and not np.isscalar(values[0]):
        values = [_converted(item, name) for item in values]
    shapes = [getattr(item, "shape", None) for item in values]
    other = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
    if other is not None:
        raise ValueError(
            f"{name} must hold samples of one shape; got {shapes[0]} in sample 0 and "
            f"{shapes[other]} in sample {other}. Bring images to one size before: "
            f"{FOLDER}"
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


def _from_image(image, name):
    if image.mode not in PIXELS:
        raise ValueError(
            f'{name} must hold grey or RGB values; got an image of mode "{image.mode}".'
            ' image.convert("RGB") is one of RGB.'
        )
    return np.asarray(image)


def _from_masked(values, name):
    n_masked = int(np.ma.getmaskarray(values).sum())
    if n_masked:
        raise ValueError(
            f"{name} must have all its values; got a masked array, and {n_masked} of "
            "them are masked. Leave such samples out, or fill the values in."
        )
    return values.data


def _is_tensor(value):
    return _is_of(value, "torch", "Tensor")


def _is_image(value):
    return _is_of(value, "PIL.Image", "Image")


def _is_of(value, module, name):
    """Whether a value is of a class of a module that need not have been imported."""
    return module in sys.modules and isinstance(
        value, getattr(sys.modules[module], name)
    )


# ------------------------------------------------------------------- values of arrays


def chunks(X):
    """Parts of X, sample by sample, that are small enough to be copied."""
    rows = max(1, _CHUNK_VALUES // max(1, int(np.prod(X.shape[1:]))))
    for start in range(0, len(X), rows):
        yield np.asarray(X[start : start + rows])


def extremes(X, axis=None):
    """Smallest and largest values of X, or of its columns, as float64 arrays."""
    lows, highs = [], []
    with np.errstate(invalid="ignore", over="ignore"):
        for part in chunks(X):
            lows.append(part.min(axis=axis).astype(np.float64))
            highs.append(part.max(axis=axis).astype(np.float64))
    return np.min(lows, axis=0), np.max(highs, axis=0)


def check_finite(X) -> None:
    """Raise ValueError if a value is NaN or infinite, and say where."""
    if X.dtype.kind != "f" or X.size == 0 or all(_finite(part) for part in chunks(X)):
        return
    rows = [np.isfinite(part).reshape(len(part), -1).all(axis=1) for part in chunks(X)]
    odd = np.flatnonzero(~np.concatenate(rows))
    what = "NaN" if np.isnan(X[odd[0]]).any() else "infinity"
    raise ValueError(
        f"Input X contains {what} in sample {odd[0]}; {len(odd)} of {len(X)} samples "
        "have values that are not finite. Leave them out, or fill the values in."
    )


def _finite(part):
    with np.errstate(invalid="ignore"):
        return np.isfinite(part.min()) and np.isfinite(part.max())


# ---------------------------------------------------------------------------- figures


def floats(values) -> tuple[float, ...]:
    """A few numbers as floats.

    Raises
    ------
    TypeError, ValueError
        If `values` is no sequence, or anything in it no number: booleans and strings
        are none, and neither is what a float cannot hold.
    """
    len(values)  # an iterator could be read but once
    odd = bool | np.bool_ | str | bytes
    if isinstance(values, odd) or any(isinstance(value, odd) for value in values):
        raise TypeError("a number is needed.")
    try:
        return tuple(float(value) for value in values)
    except OverflowError as error:
        raise ValueError("a number is too large.") from error
