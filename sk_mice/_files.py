"""Fitted estimators as files without code in them."""

import math
import platform
import warnings
from dataclasses import asdict
from numbers import Integral, Real

import numpy as np
import sklearn
import torch
from sklearn.utils._param_validation import validate_parameter_constraints
from sklearn.utils.validation import check_is_fitted

from . import __version__
from ._classification_em import ClassificationEM
from ._engine.ambient import OwnDraws, own_settings
from ._engine.atomic import as_path
from ._engine.container import read_container, write_container
from ._engine.inference import Inference
from ._engine.parts import put_together, take_apart
from ._engine.samples import CHANNELS, LARGEST, SampleFormat
from ._engine.views import check_affine
from ._mice import MiCEClustering
from ._moco import MoCo
from ._plain import NotPlainError, from_plain, to_plain
from ._spherical_kmeans import SphericalKMeans

FORMAT_VERSION = 2  # of 1 lists of any length are JSON
_WITHOUT_NETWORK = (SphericalKMeans, ClassificationEM)
_CLASSES = {cls.__name__: cls for cls in (MiCEClustering, MoCo, *_WITHOUT_NETWORK)}
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
    "means_": np.ndarray,
    "covariance_": np.ndarray,
    "weights_": np.ndarray,
    "mean_": np.ndarray,
    "components_": np.ndarray,
    "_fitted_with": dict,
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
    ClassificationEM: {
        *("n_features_in_", "n_iter_", "labels_", "means_", "covariance_"),
        *("weights_", "mean_", "components_"),
    },
}
_IN_PARTS = ("_model", "_format")
# Parameters that no file has: the next `fit` would write to a folder of its choice.
_LEFT_OUT = {"checkpoint": None}
_WEIGHTS = "model."  # begins the names of the model's tensors
# What a document of another shape raises where it is read.
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError)
_LARGEST_PROBE = 64  # pixels a side
# By how much a unit vector's norm may be off: a queue may be in bfloat16.
_ROUNDING = 0.01


def save(model, path):
    """Write a fitted estimator to a file that holds no code.

    The file is a safetensors file: tensors, and JSON for all else, with a checksum over
    everything. It is written whole or not at all; an earlier file is replaced and its
    mode is kept. The parameter `checkpoint` is not stored.

    Parameters
    ----------
    model : MiCEClustering, MoCo, SphericalKMeans or ClassificationEM
        Fitted. It is stored on the CPU, wherever it is.
    path : str or path-like
        ``.safetensors`` is the usual ending.

    Raises
    ------
    TypeError
        If `model` is anything else, or `path` neither a string nor path-like.
    NotFittedError
        If it is not fitted.
    ValueError
        If one of its parameters is invalid, or it is a model that :func:`load` would
        refuse: something in it is not finite, say.
    OSError
        That names `path`, if the file cannot be written: also if `path` is a folder, a
        FIFO or a device, or a file that its owner may not write to (even for root). An
        earlier file is left as it was.

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
    path = as_path(path)
    name = type(model).__name__
    if _CLASSES.get(name) is not type(model):
        raise TypeError(f"`model` must be a {_one_of(_CLASSES)}; got a {name}.")
    check_is_fitted(model)
    model._validate_params()
    with own_settings(), OwnDraws(0):
        tensors, document, left_out = _to_parts(model)
        try:
            _check_facts(model)
            _check_values(model)
        except (ValueError, *_UNREADABLE) as error:
            raise ValueError(f"`model` cannot be saved: {_reason(error)}") from error
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
        Of a regular file.
    backbone : nn.Module or callable, default=None
        The estimator's own `backbone`, if that was a module or a callable, since no
        file can hold its code: a module like it, whatever its weights, or a factory.
        Names, shapes and types of its tensors are compared with the file.

    Returns
    -------
    MiCEClustering, MoCo, SphericalKMeans or ClassificationEM
        On the CPU.

    Raises
    ------
    TypeError
        If `path` is neither a string nor path-like.
    OSError
        If the file cannot be read, or is a folder, a FIFO, a device or a socket.
    ValueError
        If the file is of another kind, of a later format version, truncated or
        otherwise damaged, if it holds what no fit gives, or if `backbone` does not fit
        it; names the file and the reason.

    See Also
    --------
    save : Has an example.
    """
    path = as_path(path)
    tensors, document = read_container(path, kind="model", version=FORMAT_VERSION)
    try:
        with own_settings(), OwnDraws(0):
            return _restore(document, tensors, backbone)
    except (ValueError, *_UNREADABLE) as error:
        reason = _reason(error)
        raise ValueError(f"{path!r} cannot be loaded: {reason}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, ValueError):
        return str(error)
    first, *_ = str(error).splitlines() or [""]  # torch adds a stack trace
    return f"unexpected content, {type(error).__name__}: {first}"


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


def _to_parts(model):
    """Tensors, a document, and names of what neither can hold."""
    tensors, left_out = {}, []
    document = {
        "class": type(model).__name__,
        "versions": _versions(),
        "parameters": _parameters(model, tensors, left_out),
        "attributes": _attributes(model, tensors, left_out),
        "format": {},
        "network": {},
    }
    if not isinstance(model, _WITHOUT_NETWORK):
        weights, network = take_apart(model._model)
        tensors |= {_WEIGHTS + name: tensor for name, tensor in weights.items()}
        parts = {"format": asdict(model._format), "network": network}
        for part, values in parts.items():
            document[part] = _all_plain(values, part, tensors, left_out)
    return tensors, document, left_out


def _parameters(model, tensors, left_out) -> dict:
    parameters = _without_module(model.get_params(deep=False))
    parameters |= {name: _LEFT_OUT[name] for name in _LEFT_OUT.keys() & parameters}
    return _all_plain(parameters, "parameter", tensors, left_out)


def _attributes(model, tensors, left_out) -> dict:
    elsewhere = {*model.get_params(deep=False), *_IN_PARTS}
    rest = {name: v for name, v in vars(model).items() if name not in elsewhere}
    left_out += [f"attribute `{name}`" for name in rest.keys() - _KEPT.keys()]
    kept = {name: value for name, value in rest.items() if name in _KEPT}
    if "_fitted_with" in kept:
        kept["_fitted_with"] = _without_module(kept["_fitted_with"])
    return _all_plain(kept, "attribute", tensors, left_out)


def _without_module(parameters: dict) -> dict:
    """Parameters without a `backbone` of the user's own, for which `load` asks."""
    if isinstance(parameters.get("backbone", ""), str):
        return parameters
    return parameters | {"backbone": None}


def _all_plain(values, kind, tensors, left_out) -> dict:
    found = {}
    for name, value in values.items():
        own = {}
        try:
            found[name] = to_plain(value, f"{kind}.{name}", own)
            tensors |= own
        except (NotPlainError, RecursionError):
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
    unknown = attributes.keys() - _KEPT.keys()
    _expect(not unknown, "attributes", f"not include {', '.join(sorted(unknown))}")
    _check_given(backbone, network, parameters)
    fitted_with = attributes.get("_fitted_with", {})
    known = set(getattr(cls, "_of_the_model", ()))
    _expect(fitted_with.keys() <= known, "parameters of the fit", "be parameters")
    if fitted_with.get("backbone", "") is None:
        fitted_with["backbone"] = backbone
    parameters |= {name: _LEFT_OUT[name] for name in _LEFT_OUT.keys() & parameters}
    model = cls(**parameters)
    model._validate_params()
    vars(model).update(attributes)
    if cls not in _WITHOUT_NETWORK:
        model._format = SampleFormat(**fmt)
    _check_facts(model)  # before anything is built of the size that they claim
    if cls not in _WITHOUT_NETWORK:
        shape = model._make_views().out_shape
        model._model = put_together(weights, network, shape, backbone=backbone)
    _check_values(model)
    return model


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


# -------------------------------------------------------- what every fitted model is


def _expect(condition, name: str, what: str) -> None:
    if not condition:
        raise ValueError(f"its {name} must {what}.")


def _check_facts(model) -> None:
    """All that a fitted estimator has beside its network."""
    attributes = {name: value for name, value in vars(model).items() if name in _KEPT}
    missing = _REQUIRED[type(model)] - attributes.keys()
    _expect(not missing, "attributes", f"include {', '.join(sorted(missing))}")
    for name, value in attributes.items():
        kind = _KEPT[name]
        fits = isinstance(value, kind) and isinstance(value, bool) == (kind is bool)
        if kind is int:
            fits = fits and 0 <= value < 2**63
        elif kind is float:
            fits = fits and math.isfinite(value)
        _expect(fits, "attributes", f"not include such a `{name}`")
    rows = attributes.get("history_", [])
    _expect(all(type(row) is dict for row in rows), "`history_`", "be a list of dicts")
    check_affine(attributes.get("affine_", (0, 0)))
    output = attributes.get("_sklearn_output_config", {}).items()
    known = {("transform", name) for name in ("default", "pandas", "polars")}
    _expect(set(output) <= known, "output of `transform`", "be of a known kind")
    names = attributes.get("feature_names_in_")
    right = names is None or names.shape == (model.n_features_in_,)
    right = right and (names is None or all(isinstance(name, str) for name in names))
    _expect(right, "`feature_names_in_`", "be one for each feature")
    if not isinstance(model, _WITHOUT_NETWORK):
        _check_format(model._format, model.n_features_in_)


def _check_format(fmt: SampleFormat, n_features: int) -> None:
    shape = fmt.shape
    # First, as a string times a number is a long string.
    sides = [*shape, *fmt.input_shape]
    whole = all(isinstance(side, Integral) for side in sides)
    _expect(whole, "format", "be that of a sample")
    known = len(shape) == 1 or (len(shape) == 3 and shape[0] in CHANNELS)
    same_size = math.prod(shape) == math.prod(fmt.input_shape) == n_features
    known = known and type(fmt.channels_first) is bool and min(sides) > 0
    _expect(known and same_size, "format", "be that of a sample")
    figures = [fmt.low, fmt.high, *fmt.mean, *fmt.std]
    right = len(fmt.mean) == len(fmt.std) == shape[0] and _are_numbers(figures)
    # An image is scaled to [0, 1] before it is standardised.
    largest = 1 + _ROUNDING if fmt.is_image else LARGEST
    right = right and max(map(abs, fmt.mean)) <= largest
    right = right and 0 < min(fmt.std) <= max(fmt.std) <= largest
    right = right and 0 < fmt.high - fmt.low < math.inf
    _expect(right, "format", "have the statistics of each channel or feature")


def _are_numbers(figures) -> bool:
    """Whether all can be floats, and none is NaN or a bool."""
    right = all(isinstance(v, Real) and not isinstance(v, bool) for v in figures)
    return right and not any(math.isnan(float(v)) for v in figures)


def _check_values(model) -> None:
    """Tensors and figures, and what attributes have to do with them."""
    if isinstance(model, SphericalKMeans):
        _check_centers(model)
        return
    if isinstance(model, ClassificationEM):
        _check_gaussians(model)
        return
    _check_network(model._model)
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
    _probe(model)


def _check_centers(model) -> None:
    n_clusters = len(model.cluster_centers_)
    for name in ("cluster_centers_", "_sums"):
        value = getattr(model, name)
        right = value.shape == (n_clusters, model.n_features_in_)
        right = right and value.dtype in (np.float32, np.float64)
        right = right and np.isfinite(value).all()
        _expect(right, f"`{name}`", "be a finite float for each cluster and feature")
    _check_units(torch.from_numpy(model.cluster_centers_), "`cluster_centers_`")
    _check_labels(model.labels_, n_clusters)


def _check_gaussians(model) -> None:
    n_clusters, n_components = len(model.means_), len(model.components_)
    shapes = {
        "means_": (n_clusters, n_components),
        "covariance_": (n_components, n_components),
        "weights_": (n_clusters,),
        "mean_": (model.n_features_in_,),
        "components_": (n_components, model.n_features_in_),
    }
    for name, shape in shapes.items():
        value = getattr(model, name)
        right = value.shape == shape and value.dtype in (np.float32, np.float64)
        right = right and np.isfinite(value).all()
        _expect(right, f"`{name}`", f"be finite floats of shape {shape}")
    covariance = model.covariance_
    right = np.allclose(covariance, covariance.T)
    right = right and np.linalg.eigvalsh(covariance).min() > 0
    _expect(right, "`covariance_`", "be symmetric and positive definite")
    right = min(model.weights_) >= 0 and abs(model.weights_.sum() - 1) <= _ROUNDING
    _expect(right, "`weights_`", "be shares that sum to 1")
    _check_labels(model.labels_, n_clusters)


def _check_labels(labels, n_clusters):
    right = labels.ndim == 1 and labels.dtype.kind == "i" and labels.size > 0
    right = right and labels.min() >= 0 and labels.max() < n_clusters
    _expect(right, "labels", f"be integers from 0 to {n_clusters - 1}")
    return np.bincount(labels, minlength=n_clusters)


def _check_network(network) -> None:
    figures = {"tau": network.tau, "kappa": network.kappa}
    limits = {name: MiCEClustering._parameter_constraints[name] for name in figures}
    validate_parameter_constraints(limits, figures, caller_name="the network")
    _expect(_are_numbers(figures.values()), "temperatures", "be numbers")
    for name, tensor in network.state_dict().items():
        if tensor.is_floating_point() and tensor.numel():
            extremes = torch.stack(torch.aminmax(tensor.detach()))
            _expect(extremes.isfinite().all(), repr(name), "be finite")
            positive = name.endswith("running_var")
            _expect(not positive or extremes[0] >= 0, repr(name), "not be negative")
        if name.endswith("num_batches_tracked"):
            counts = tensor.min() >= 0 and tensor.max() < 2**53
            _expect(counts, repr(name), "be a count")
    index = network.queue_index.item()
    _expect(0 <= index < len(network.queue), "'queue_index'", "lie in the queue")
    for rows in network.queue.split(256):
        _check_units(rows, "queue")
    if network.gating_prototypes is not None:
        _check_units(network.gating_prototypes.detach(), "gating prototypes")


def _check_units(rows, name) -> None:
    norms = torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64)
    # A network whose weights are zero embeds everything at zero.
    right = ((norms - 1).abs() <= _ROUNDING) | (norms == 0)
    _expect(right.all(), name, "hold unit vectors")


def _probe(model) -> None:
    """Infer from black, white and noise, or their like: the result must be finite.

    Finite weights may still be too large. Networks that have names take images of any
    size, so that of the format costs nothing.
    """
    fmt, network = model._format, model._model
    shape = model._make_views().out_shape
    if network.backbone_name is not None and fmt.is_image:
        shape = (shape[0], *(min(side, _LARGEST_PROBE) for side in shape[1:]))
    noise = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    samples = torch.stack([torch.zeros(shape), torch.ones(shape), noise])
    if fmt.is_image:
        mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (fmt.mean, fmt.std))
        samples = (samples - mean) / std
    else:
        samples = 6 * samples - 3  # standard deviations
    wanted = ["joint", "features", "teacher"]
    wanted += ["gating"] * (network.gating_prototypes is not None)
    known = Inference(network)(samples.float().to(model.device_), *wanted)
    finite = all(value.isfinite().all() for value in known)
    _expect(finite, "network", "infer finite values")
