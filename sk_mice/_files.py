"""Fitted estimators as files without code in them."""

import math
import os
import platform
import warnings
from dataclasses import asdict

import numpy as np
import sklearn
import torch
from sklearn.utils.validation import check_is_fitted

from . import __version__
from ._engine.container import read_container, write_container
from ._engine.parts import put_together, take_apart
from ._engine.samples import CHANNELS, SampleFormat
from ._mice import MiCEClustering
from ._moco import MoCo
from ._plain import NotPlainError, from_plain, to_plain
from ._spherical_kmeans import SphericalKMeans

FORMAT_VERSION = 1
_CLASSES = {cls.__name__: cls for cls in (MiCEClustering, MoCo, SphericalKMeans)}
# Attributes that are kept as they are, and what each must be in a file.
_KEPT = {
    "n_features_in_": int,
    "n_iter_": int,
    "n_steps_": int,
    "flip_": bool,
    "affine_": tuple,
    "elbo_": float,
    "stability_": float,
    "inertia_": float,
    "history_": list,
    "labels_": np.ndarray,
    "init_labels_": (np.ndarray, type(None)),
    "cluster_sizes_": np.ndarray,
    "cluster_centers_": np.ndarray,
    "_sums": np.ndarray,
    "feature_names_in_": np.ndarray,
    "_sklearn_output_config": dict,  # of set_output
}
_REQUIRED = {
    MiCEClustering: {
        *("n_features_in_", "n_iter_", "history_", "elbo_"),
        *("labels_", "cluster_sizes_"),
    },
    MoCo: {"n_features_in_", "n_iter_", "history_"},
    SphericalKMeans: {
        *("n_features_in_", "inertia_", "labels_"),
        *("cluster_centers_", "_sums"),
    },
}
_IN_PARTS = ("_model", "_format")
_WEIGHTS = "model."  # begins the names of the model's tensors
# What a document of another shape raises where it is read.
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError)


def save(model, path):
    """Write a fitted estimator to a file that holds no code.

    The file is a safetensors file: tensors, and JSON for all else, with a checksum over
    everything. It is written whole or not at all; an earlier file is replaced.

    Parameters
    ----------
    model : MiCEClustering, MoCo or SphericalKMeans
        Fitted. It is stored on the CPU, wherever it is.
    path : str or path-like
        ``.safetensors`` is the usual ending.

    Raises
    ------
    TypeError
        If `model` is anything else.
    NotFittedError
        If it is not fitted.
    ValueError
        If one of its parameters is invalid.
    OSError
        That names `path`, if the file cannot be written; an earlier file is left as it
        was.

    Warns
    -----
    UserWarning
        If a parameter cannot be stored, as it is code or a live object (a callable,
        `callbacks`, a RandomState): the file has its default instead. Predictions do
        not depend on these. A `backbone` that is a module or a callable is no such
        case: `load` asks for it.

    See Also
    --------
    load : The way back.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> import sk_mice
    >>> kmeans = sk_mice.SphericalKMeans(2, random_state=0).fit(np.eye(4))
    >>> with TemporaryDirectory() as folder:
    ...     sk_mice.save(kmeans, f"{folder}/kmeans.safetensors")
    ...     again = sk_mice.load(f"{folder}/kmeans.safetensors")
    >>> bool((again.predict(np.eye(4)) == kmeans.labels_).all())
    True
    """
    name = type(model).__name__
    if _CLASSES.get(name) is not type(model):
        raise TypeError(f"`model` must be a {_one_of(_CLASSES)}; got a {name}.")
    check_is_fitted(model)
    model._validate_params()
    tensors, left_out = {}, []
    document = {
        "class": name,
        "versions": _versions(),
        "parameters": _parameters(model, tensors, left_out),
        "attributes": _attributes(model, tensors, left_out),
        "format": {},
        "network": {},
    }
    if name != "SphericalKMeans":
        weights, network = take_apart(model._model)
        tensors |= {_WEIGHTS + name: tensor for name, tensor in weights.items()}
        parts = {"format": asdict(model._format), "network": network}
        for part, values in parts.items():
            document[part] = _all_plain(values, part, tensors, left_out)
    write_container(path, tensors, document, kind="model", version=FORMAT_VERSION)
    if left_out:  # after all is safe, as a warning may be an error
        warnings.warn(
            f"A file without code cannot hold the {', the '.join(left_out)}: the "
            "loaded model has defaults for such parameters, and no such attributes.",
            stacklevel=2,
        )


def load(path, backbone=None):
    """Read an estimator that :func:`save` wrote.

    Loading runs no code from the file and needs no trust in whoever made it.

    Parameters
    ----------
    path : str or path-like
    backbone : nn.Module or callable, default=None
        The estimator's own `backbone`, if that was a module or a callable, since no
        file can hold its code: a module like it, whatever its weights, or a factory.
        Names, shapes and types of its tensors are compared with the file.

    Returns
    -------
    MiCEClustering, MoCo or SphericalKMeans
        On the CPU.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If the file is of another kind, of a later format version, truncated or
        otherwise damaged, or if `backbone` does not fit it; names the file and the
        reason.

    See Also
    --------
    save : Has an example.
    """
    tensors, document = read_container(path, kind="model", version=FORMAT_VERSION)
    try:
        return _restore(document, tensors, backbone)
    except (ValueError, *_UNREADABLE) as error:
        reason = str(error)
        if not isinstance(error, ValueError):
            first, *_ = str(error).splitlines() or [""]  # torch adds a stack trace
            reason = f"unexpected content, {type(error).__name__}: {first}"
        raise ValueError(f"{os.fspath(path)!r} cannot be loaded: {reason}") from error


def _versions():
    """For whoever has to find out what wrote a file; nothing depends on them."""
    return {
        "sk_mice": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scikit-learn": sklearn.__version__,
        "torch": torch.__version__,
    }


def _one_of(names) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}"


# --------------------------------------------------------------------------- writing


def _parameters(model, tensors, left_out) -> dict:
    parameters = model.get_params(deep=False)
    if not isinstance(parameters.get("backbone", ""), str):
        parameters["backbone"] = None  # the user's own: `load` asks for it
    return _all_plain(parameters, "parameter", tensors, left_out)


def _attributes(model, tensors, left_out) -> dict:
    elsewhere = {*model.get_params(deep=False), *_IN_PARTS}
    rest = {name: v for name, v in vars(model).items() if name not in elsewhere}
    left_out += [f"attribute `{name}`" for name in rest.keys() - _KEPT.keys()]
    kept = {name: value for name, value in rest.items() if name in _KEPT}
    return _all_plain(kept, "attribute", tensors, left_out)


def _all_plain(values, kind, tensors, left_out) -> dict:
    found = {}
    for name, value in values.items():
        own = {}
        try:
            found[name] = to_plain(value, f"{kind}.{name}", own)
            tensors |= own
        except NotPlainError:
            left_out.append(f"{kind} `{name}`")
    return found


# --------------------------------------------------------------------------- reading


def _restore(document, tensors, backbone):
    cls = _CLASSES[document["class"]]
    weights = {
        name.removeprefix(_WEIGHTS): tensors.pop(name)
        for name in list(tensors)
        if name.startswith(_WEIGHTS)
    }
    parameters, attributes, fmt, network = (
        {name: from_plain(v, tensors) for name, v in document[part].items()}
        for part in ("parameters", "attributes", "format", "network")
    )
    _expect(not tensors, "tensors", "all be in use")
    unknown = parameters.keys() - cls().get_params()
    _expect(not unknown, "parameters", f"not include {', '.join(sorted(unknown))}")
    _check_attributes(attributes, cls)
    _check_given(backbone, network, parameters)
    model = cls(**parameters)
    model._validate_params()
    vars(model).update(attributes)
    if cls is not SphericalKMeans:
        model._format = _check_format(SampleFormat(**fmt), model.n_features_in_)
        shape = model._make_views().out_shape
        model._model = put_together(weights, network, shape, backbone=backbone)
    _check_together(model)
    return model


def _expect(condition, name: str, what: str) -> None:
    if not condition:
        raise ValueError(f"its {name} must {what}.")


def _check_given(backbone, network, parameters) -> None:
    """The user gives a backbone if, and only if, the file cannot name it."""
    own = bool(network) and None in (network["backbone"], parameters["backbone"])
    if own and backbone is None:
        raise ValueError(
            "its `backbone` was a module or a callable; give such a one to `load`."
        )
    if backbone is not None and not own:
        raise ValueError("it needs no `backbone`; give none to `load`.")
    if own and parameters["backbone"] is None:
        parameters["backbone"] = backbone


def _check_attributes(attributes, cls) -> None:
    missing = _REQUIRED[cls] - attributes.keys()
    _expect(not missing, "attributes", f"include {', '.join(sorted(missing))}")
    for name, value in attributes.items():
        kind = _KEPT.get(name, ())
        fits = isinstance(value, kind) and isinstance(value, bool) == (kind is bool)
        _expect(fits, "attributes", f"not include such a `{name}`")


def _check_format(fmt: SampleFormat, n_features: int) -> SampleFormat:
    shape = fmt.shape
    # First, as a string times a number is a long string.
    sides = [*shape, *fmt.input_shape]
    _expect(all(type(side) is int for side in sides), "format", "be that of a sample")
    known = len(shape) == 1 or (len(shape) == 3 and shape[0] in CHANNELS)
    same_size = math.prod(shape) == math.prod(fmt.input_shape) == n_features
    _expect(known and min(shape) > 0 and same_size, "format", "be that of a sample")
    figures = [fmt.low, fmt.high, *fmt.mean, *fmt.std]
    right = len(fmt.mean) == len(fmt.std) == shape[0]
    right = right and all(map(math.isfinite, figures))
    right = right and min(fmt.std) > 0 and fmt.low < fmt.high
    _expect(right, "format", "have the statistics of each channel or feature")
    return fmt


def _check_together(model) -> None:
    """What the attributes have to do with one another."""
    n_features = model.n_features_in_
    names = getattr(model, "feature_names_in_", None)
    right = names is None or names.shape == (n_features,)
    _expect(right, "`feature_names_in_`", "be one for each feature")
    if isinstance(model, SphericalKMeans):
        n_clusters = len(model.cluster_centers_)
        for name in ("cluster_centers_", "_sums"):
            value = getattr(model, name)
            right = value.shape == (n_clusters, n_features) and value.dtype.kind == "f"
            _expect(right, f"`{name}`", "be a float for each cluster and feature")
        _check_labels(model.labels_, n_clusters)
        return
    mixture = isinstance(model, MiCEClustering)
    n_clusters = model._model.queue.shape[1]
    gated = model._model.gating_prototypes is not None
    right = gated if mixture else n_clusters == 1 and not gated
    _expect(right, "tensors", f"be those of {type(model).__name__}")
    if mixture:
        sizes = _check_labels(model.labels_, n_clusters)
        same = np.array_equal(model.cluster_sizes_, sizes)
        _expect(same, "`cluster_sizes_`", "be those of `labels_`")
        if getattr(model, "init_labels_", None) is not None:  # pickles drop it
            _check_labels(model.init_labels_, n_clusters)


def _check_labels(labels, n_clusters):
    right = labels.ndim == 1 and labels.dtype.kind == "i" and labels.size > 0
    right = right and labels.min() >= 0 and labels.max() < n_clusters
    _expect(right, "labels", f"be integers from 0 to {n_clusters - 1}")
    return np.bincount(labels, minlength=n_clusters)
