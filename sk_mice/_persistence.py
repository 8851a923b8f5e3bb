"""Fitted estimators as files without code."""

import math
import os
import platform
import warnings
from dataclasses import asdict
from numbers import Integral, Real

import numpy as np
import sklearn
import torch
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils._param_validation import validate_parameter_constraints
from sklearn.utils.validation import check_is_fitted

from . import __version__, augmentation, backbones
from ._base import ContrastiveEstimator
from ._classification_em import ClassificationEM
from ._engine.ambient import OwnDraws, own_settings
from ._engine.data import CHANNELS, LARGEST, SampleFormat
from ._engine.inference import Inference
from ._engine.model import ContrastiveMixture
from ._engine.storage import (
    UNREADABLE,
    NotDataError,
    as_path,
    pack,
    read,
    reason,
    unpack,
    write,
)
from ._mice import MiCEClustering
from ._moco import MoCo
from ._spherical_kmeans import SphericalKMeans
from .ablations import PaperMiCE, PaperMoCo
from .datasets._decoding import LONGEST_SIDE
from .features import PretrainedFeatures

_KIND = {"kind": "model", "version": 4}  # `read` refuses all others
# Classes whose objects may be parameters: a file has their names and parameters.
_BACKBONES = (backbones.MLP, backbones.ResNet, backbones.SmallResNet)
_AUGMENTATIONS = (augmentation.ImageAugmentation, augmentation.VectorAugmentation)
PARAMETER_CLASSES = {
    cls.__name__: cls
    for cls in (
        *(*_BACKBONES, backbones.Pretrained, *_AUGMENTATIONS),
        *(ClassificationEM, SphericalKMeans),
    )
}
_NAMES_OF_PARTS = {
    "augmentation": [*augmentation.NAMED],
    "backbone": ["auto", *backbones.NAMED],
}
# What is kept of a network beside its tensors.
_FIGURES = ("backbone", "tau", "kappa", "class_level", "shared_head", "gate_view")
_LARGEST_PROBE = 64  # pixels a side
# By how much a unit vector's norm may be off: a queue may be in bfloat16.
_ROUNDING = 0.01


# -------------------------------------------------------- what every attribute must be


def _has_shape(value, letters: str, sizes: dict) -> bool:
    """Whether an array has the sizes of these letters, which it may give them first."""
    if not isinstance(value, np.ndarray) or value.ndim != len(letters):
        return False
    pairs = zip(letters, value.shape, strict=True)
    return all(sizes.setdefault(letter, n) == n for letter, n in pairs)


def _are_labels(array, sizes) -> bool:
    whole = array.dtype.kind == "i" and array.size > 0
    return whole and array.min() >= 0 and array.max() < sizes["K"]


def _are_floats(array, sizes=None) -> bool:
    return array.dtype in (np.float32, np.float64) and bool(np.isfinite(array).all())


def _are_units(rows) -> bool:
    dtype = torch.promote_types(rows.dtype, torch.float32)
    norms = torch.linalg.vector_norm(rows, dim=-1, dtype=dtype)
    # A network whose weights are zero embeds everything at zero.
    return bool((((norms - 1).abs() <= _ROUNDING) | ~rows.any(dim=-1)).all())


def _are_shares(array, sizes) -> bool:
    right = _are_floats(array) and array.min() >= 0
    return right and abs(array.sum(dtype=np.float64) - 1) <= _ROUNDING


def _is_positive(matrix, sizes) -> bool:
    if not (_are_floats(matrix) and np.allclose(matrix, matrix.T)):
        return False
    try:
        np.linalg.cholesky(matrix.astype(np.float64))
    except np.linalg.LinAlgError:
        return False
    return True


def _is_output_config(value, sizes) -> bool:
    known = {("transform", name) for name in ("default", "pandas", "polars")}
    return isinstance(value, dict) and set(value.items()) <= known


_COUNT = (None, "be a count", lambda v, _: type(v) is int and 0 <= v < 2**63)
_NUMBER = (
    None,
    "be a finite float",
    lambda v, _: isinstance(v, float) and math.isfinite(v),
)
_LABELS = "be integers from 0 to K - 1"
# In the order of the checks: the shape of an array, what else it must be, and whether
# it is, given the sizes. D is the number of features. Other letters stand for the size
# that the first such array has.
_RULES: dict = {
    "n_features_in_": _COUNT,
    "n_iter_": _COUNT,
    "n_steps_": _COUNT,
    "history_": (
        None,
        "be a list of dicts",
        lambda v, _: type(v) is list and all(type(row) is dict for row in v),
    ),
    "_fitted_with": (None, "be parameters", lambda v, _: isinstance(v, dict)),
    "n_features_out_": _COUNT,
    "image_size_": (
        None,
        f"be from 1 to {LONGEST_SIDE}",
        lambda v, _: type(v) is int and 1 <= v <= LONGEST_SIDE,
    ),
    "weights_sha256_": (None, "be a string", lambda v, _: type(v) is str),
    "_from_files": (None, "be a bool", lambda v, _: type(v) is bool),
    "elbo_": _NUMBER,
    "inertia_": _NUMBER,
    "stability_": _NUMBER,
    "neighbors_recall_": (
        None,
        "be None, or a float from 0 to 1",
        lambda v, _: v is None or (isinstance(v, float) and 0 <= v <= 1),
    ),
    "converged_": (None, "be a bool", lambda v, _: type(v) is bool),
    "augmentation_": (
        None,
        "be an augmentation",
        lambda v, _: v is None or callable(v) or isinstance(v, _AUGMENTATIONS),
    ),
    "cluster_sizes_": ("K", "be those of `labels_`", lambda a, _: a.dtype.kind == "i"),
    "cluster_centers_": (
        "KD",
        "be unit vectors",
        lambda a, _: _are_floats(a) and _are_units(torch.from_numpy(a)),
    ),
    "_sums": ("KD", "be finite floats", _are_floats),
    "means_": ("KC", "be finite floats", _are_floats),
    "covariance_": ("CC", "be symmetric and positive", _is_positive),
    "weights_": ("K", "be shares that sum to 1", _are_shares),
    "origin_": ("D", "be finite floats", _are_floats),
    "axes_": ("AD", "be finite floats", _are_floats),
    # A is the number of features, too, where there are no axes.
    "mean_": ("A", "be finite floats", _are_floats),
    "components_": ("CA", "be finite floats", _are_floats),
    "labels_": ("N", _LABELS, _are_labels),
    "init_labels_": (
        None,
        f"be None, or {_LABELS}, in shape (N)",
        lambda v, s: v is None or (_has_shape(v, "N", s) and _are_labels(v, s)),
    ),
    "feature_names_in_": (
        "D",
        "be one for each feature",
        lambda a, _: all(isinstance(v, str) for v in a),
    ),
    "_sklearn_output_config": (None, "be that of `set_output`", _is_output_config),
}
# Attributes that every fit leaves, and those that some do.
_OF_ALL = "feature_names_in_ _sklearn_output_config"
_OF_MOCO = (
    "n_features_in_ n_iter_ history_ _fitted_with",
    f"{_OF_ALL} augmentation_ neighbors_recall_",
)
_OF_MICE = (
    f"{_OF_MOCO[0]} elbo_ converged_ cluster_sizes_ labels_",
    f"{_OF_MOCO[1]} init_labels_ stability_",
)
_ATTRIBUTES = {
    MiCEClustering: _OF_MICE,
    MoCo: _OF_MOCO,
    PaperMiCE: _OF_MICE,
    PaperMoCo: _OF_MOCO,
    ClassificationEM: (
        "n_features_in_ n_iter_ means_ covariance_ weights_ mean_ components_ labels_",
        f"{_OF_ALL} origin_ axes_",
    ),
    SphericalKMeans: (
        "n_features_in_ cluster_centers_ _sums labels_ inertia_",
        f"{_OF_ALL} n_iter_ n_steps_",
    ),
    PretrainedFeatures: (
        "n_features_out_ image_size_ weights_sha256_ _from_files",
        f"{_OF_ALL} n_features_in_",
    ),
}
# Parameters that are not stored: a file could choose what is written.
_PLACES = ("checkpoint", "out")
# Attributes of features that follow from the rest.
_OF_THE_MACHINE = ("_dtype", "_placed", "batch_size_")


def save(model, path):
    """Write a fitted estimator to a file that holds no code.

    The file is a safetensors file, with JSON for everything that is not a tensor and a
    checksum of the whole file. It is written completely or not at all. An earlier file
    is replaced, and its mode is kept. The parameters `checkpoint` and `out` are not
    stored. Of `PretrainedFeatures`, the name of the network and a checksum of its
    weights are, and not the weights.

    Parameters
    ----------
    model : MiCEClustering, MoCo, ClassificationEM, SphericalKMeans, \
            PretrainedFeatures or Pipeline
        A fitted estimator, which may also be a PaperMiCE or a PaperMoCo, or a
        scikit-learn Pipeline of such. It is stored on the CPU. A Pipeline is stored as
        its steps, without its own parameters.
    path : str or path-like
        ``.safetensors`` is the usual ending.

    Raises
    ------
    TypeError
        If `model` or one of its steps is anything else, or `network` of
        `PretrainedFeatures` a module; or if `path` is neither a string nor path-like.
    NotFittedError
        If it is not fitted.
    ValueError
        If a parameter is invalid, or if :func:`load` would refuse the model, for
        example because a value is not finite.
    OSError
        If the file cannot be written; names `path`. This includes folders, FIFOs,
        devices, and files that their owner may not write to, even for root. An earlier
        file is kept.

    Warns
    -----
    UserWarning
        If a parameter cannot be stored, because it is a callable, `callbacks` or a
        RandomState. The file has its default instead. Predictions do not depend on
        these. There is no warning for a `backbone` that is a module or a callable,
        because `load` requires it.

    See Also
    --------
    load : Reads the file.

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
    steps = model.steps if type(model) is Pipeline else [("", model)]
    for name, step in steps:
        _check_class(step, f"step {name!r} of `model`" if name else "`model`")
    left_out = []
    with own_settings(), OwnDraws(0):
        parts = [_to_part(step, left_out) for _, step in steps]
    document, tensors = parts[0]
    if type(model) is Pipeline:
        document, tensors = _joined([name for name, _ in steps], parts)
    # For whoever has to find out what wrote a file.
    versions = {"sk_mice": __version__, "python": platform.python_version()}
    versions |= {lib.__name__: lib.__version__ for lib in (np, sklearn, torch)}
    document["versions"] = versions
    write(path, tensors, document, **_KIND)
    if left_out:  # after all is safe, as a warning may be an error
        warnings.warn(
            f"A file without code cannot hold the {', the '.join(left_out)}: the "
            "loaded model has defaults for such parameters, and no such attributes.",
            stacklevel=2,
        )


def load(path, backbone=None, *, weights=None):
    """Read an estimator that :func:`save` wrote.

    Loading runs no code from the file, so files from anyone can be loaded.

    Parameters
    ----------
    path : str or path-like
        A regular file.
    backbone : nn.Module or callable, default=None
        Required if the `backbone` of the estimator was a module or a callable, as the
        file does not hold its code: a module like it, with any weights, or a factory.
        Names, shapes and types of its tensors are compared with the file. Not needed
        for a `Pretrained` network with a name, of which the file has the weights.
    weights : str or path-like, default=None
        For `PretrainedFeatures`: a file with the weights of its network. If None, they
        are looked for where `PretrainedFeatures` was given them, or would find them by
        the name of the network.

    Returns
    -------
    MiCEClustering, MoCo, ClassificationEM, SphericalKMeans, PretrainedFeatures or \
            Pipeline
        The estimator, on the CPU.

    Raises
    ------
    TypeError
        If `path` is neither a string nor path-like.
    ImportError
        If the package of a pretrained network is missing.
    OSError
        If the file cannot be read, or is a folder, a FIFO, a device or a socket, or if
        the weights of a pretrained network are not to be had.
    ValueError
        If the file is of another kind or format version, truncated or damaged, if its
        content could not come from a fit, or if `backbone` or `weights` do not match
        it; names the file and the reason.

    See Also
    --------
    save : Writes the file; with an example.
    """
    path = as_path(path)
    tensors, document = read(path, **_KIND)
    try:
        with own_settings(), OwnDraws(0):
            return _restore(document, tensors, backbone, weights)
    except UNREADABLE as error:
        raise ValueError(f"{path!r} cannot be loaded: {reason(error)}") from error


# --------------------------------------------------------------------------- writing


def _check_class(model, name: str) -> None:
    if type(model) not in _ATTRIBUTES:
        *most, last = (cls.__name__ for cls in _ATTRIBUTES)
        raise TypeError(
            f"{name} must be a {', '.join(most)} or {last}, or a Pipeline of such; "
            f"got a {type(model).__name__}."
        )
    if isinstance(getattr(model, "network", None), torch.nn.Module):
        raise TypeError(
            f"`network` of {name} must be a name, as a file without code cannot hold a "
            f"module; got a {type(model.network).__name__}. Save the other steps only, "
            "or use joblib."
        )


def _to_part(model, left_out) -> tuple[dict, dict]:
    """Document and tensors of a fitted estimator, once all of it has been checked."""
    check_is_fitted(model)
    model._validate_params()
    tensors: dict = {}
    document = _to_document(model, tensors, left_out)
    try:
        _check_attributes(model)
        for name in _names(type(model))[0] - document["attributes"].keys():
            _expect(False, f"`{name}`", "hold data, and nothing else")
        if isinstance(model, ContrastiveEstimator):
            _check_trained(model)
    except UNREADABLE as error:
        raise ValueError(f"`model` cannot be saved: {reason(error)}") from error
    return document, tensors


def _joined(names, parts) -> tuple[dict, dict]:
    """Document and tensors of a Pipeline, each tensor named after its step."""
    tensors = {
        f"{i}.{name}": tensor
        for i, (_, own) in enumerate(parts)
        for name, tensor in own.items()
    }
    steps = [document for document, _ in parts]
    return {"class": Pipeline.__name__, "names": names, "steps": steps}, tensors


def _to_document(model, tensors, left_out) -> dict:
    """All of a model but its tensors; names what is no data."""
    parts = _take_apart(model, tensors)
    unknown = parts["attributes"].keys() - set().union(*_names(type(model)))
    for name in sorted(unknown):
        left_out.append(f"attribute `{name}`")
        del parts["attributes"][name]
    document: dict = {"class": type(model).__name__}
    for part, values in parts.items():
        document[part] = {}
        for name, value in values.items():
            own: dict = {}
            try:
                packed = pack(value, f"{part}.{name}", own, PARAMETER_CLASSES)
            except (NotDataError, RecursionError):
                left_out.append(f"{part.removesuffix('s')} `{name}`")
            else:
                document[part][name] = packed
                tensors |= own
    return document


def _take_apart(model, tensors) -> dict[str, dict]:
    """Values by name, of each part of a model; the weights go to the tensors."""
    parameters = model.get_params(deep=False)
    attributes = {k: v for k, v in vars(model).items() if k not in parameters}
    parameters = {k: v for k, v in parameters.items() if k not in _PLACES}
    parts = {"parameters": _without_module(parameters), "attributes": attributes}
    parts |= {"format": {}, "network": {}}
    if isinstance(model, PretrainedFeatures):
        if model.weights is not None:
            parameters["weights"] = os.fspath(model.weights)
        parts["format"] = asdict(attributes.pop("_format"))
        for name in _OF_THE_MACHINE:
            attributes.pop(name, None)
    if not isinstance(model, ContrastiveEstimator):
        return parts
    if "_fitted_with" in attributes:
        attributes["_fitted_with"] = _without_module(attributes["_fitted_with"])
    del attributes["_inference"]  # follows from the model
    if callable(attributes.get("augmentation_")):  # as the parameter, which is said
        del attributes["augmentation_"]
    network = attributes.pop("_model")
    for name, value in network.state_dict().items():
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"`backbone` must keep tensors only; {name!r} is none.")
        tensors[f"model.{name}"] = value.cpu().contiguous().clone()
    parts["format"] = asdict(attributes.pop("_format"))
    parts["network"] = {name: getattr(network, name) for name in _FIGURES}
    return parts


def _names(cls) -> tuple[set, set]:
    required, optional = _ATTRIBUTES[cls]
    return set(required.split()), set(optional.split())


def _without_module(parameters: dict) -> dict:
    """Parameters without a `backbone` of the user's own, for which `load` asks."""
    backbone = parameters.get("backbone", "")
    if isinstance(backbone, backbones.Pretrained):
        return parameters | {"backbone": _as_data(backbone)}
    if isinstance(backbone, (str, *PARAMETER_CLASSES.values())):
        return parameters
    return parameters | {"backbone": None}


def _as_data(backbone: backbones.Pretrained) -> backbones.Pretrained | None:
    """A pretrained network that has a name; None for one that is a module."""
    if isinstance(backbone.network, torch.nn.Module):
        return None
    weights = backbone.weights
    as_text = None if weights is None else os.fspath(weights)
    return clone(backbone).set_params(weights=as_text)


# --------------------------------------------------------------------------- reading


def _restore(document, tensors, backbone, weights):
    """What a document and its tensors say, of which each has to be in use."""
    is_pipeline = document["class"] == Pipeline.__name__
    documents = document["steps"] if is_pipeline else [document]
    pretrained = [doc["class"] == PretrainedFeatures.__name__ for doc in documents]
    if weights is not None and not any(pretrained):
        raise ValueError("it needs no `weights`; give none to `load`.")
    if not is_pipeline:
        return _restore_one(document, tensors, backbone, weights)
    owners = [_asks_for_backbone(doc) for doc in documents]
    steps = []
    for i, doc in enumerate(documents):
        start = f"{i}."
        mine = {k.removeprefix(start): k for k in tensors if k.startswith(start)}
        own = {name: tensors.pop(key) for name, key in mine.items()}
        given = backbone if owners[i] or not any(owners) else None
        steps.append(_restore_one(doc, own, given, weights))
    _expect(not tensors, "tensors", "all be in use")
    names = document["names"]
    right = len({*names}) == len(names) > 0 and all(type(n) is str for n in names)
    _expect(right, "names of steps", "be different strings")
    return Pipeline(list(zip(names, steps, strict=True)))


def _asks_for_backbone(document) -> bool:
    network = document["network"]
    if not network:
        return False
    backbone = document["parameters"]["backbone"]
    named = isinstance(backbone, dict) and backbone.get("class") == "Pretrained"
    return not named and None in (network["backbone"], backbone)


def _restore_one(document, tensors, backbone, weights):
    cls = {cls.__name__: cls for cls in _ATTRIBUTES}[document["class"]]
    state = {
        name.removeprefix("model."): tensors.pop(name)
        for name in list(tensors)
        if name.startswith("model.")
    }
    parameters, attributes, fmt, network = (
        {k: unpack(v, tensors, PARAMETER_CLASSES) for k, v in document[part].items()}
        for part in ("parameters", "attributes", "format", "network")
    )
    _expect(not tensors, "tensors", "all be in use")
    fitted_with = attributes.get("_fitted_with", {})
    _expect_only(parameters, cls().get_params(deep=False), "parameters")
    _expect_only(attributes, set().union(*_names(cls)), "attributes")
    _expect_only(fitted_with, getattr(cls, "_of_the_model", ()), "`_fitted_with`")
    _check_given(backbone, network, parameters)
    if fitted_with.get("backbone", "") is None:
        fitted_with["backbone"] = backbone
    parameters = {k: v for k, v in parameters.items() if k not in _PLACES}
    if cls is PretrainedFeatures and weights is not None:
        parameters["weights"] = weights
    model = cls(**parameters)
    model._validate_params()
    _check_parts(network, parameters)
    vars(model).update(attributes)
    if fmt:
        model._format = SampleFormat(**fmt)
    _check_attributes(model)  # before anything is built of the size that they claim
    if cls is PretrainedFeatures:
        _expect(model._format.is_image, "format", "be that of images")
        side = model.image_size_
        same = model._probe((side, side)) == model.n_features_out_
        _expect(same, "`n_features_out_`", "be that of the network")
    if issubclass(cls, ContrastiveEstimator):
        shape = model._make_views().out_shape
        given = parameters["backbone"] if backbone is None else backbone
        model._model = _put_together(state, network, shape, given)
        model._inference = Inference(model._model)
        _check_trained(model)
    return model


def _check_parts(network, parameters) -> None:
    """Names of augmentations and backbones are known, and so is the network."""
    for name, names in _NAMES_OF_PARTS.items():
        given = parameters.get(name)
        known = not isinstance(given, str) or given in names
        _expect(known, f"`{name}`", f"be one of {names}; it is {given!r}")
    known = isinstance(network.get("backbone"), (*_BACKBONES, type(None)))
    _expect(known, "network", "have a backbone that is known")


def _check_given(backbone, network, parameters) -> None:
    """The user gives a backbone if, and only if, the file cannot name it."""
    named = isinstance(parameters.get("backbone"), backbones.Pretrained)
    own = bool(network) and not named
    own = own and None in (network["backbone"], parameters["backbone"])
    if own and backbone is None:
        raise ValueError(
            "its `backbone` was a module or a callable; give such a one to `load`."
        )
    if backbone is not None and not own:
        raise ValueError("it needs no `backbone`; give none to `load`.")
    if own and parameters["backbone"] is None:
        parameters["backbone"] = backbone


def _put_together(weights, figures, shape, backbone) -> ContrastiveMixture:
    """The model that has these weights, in evaluation mode.

    Nothing is allocated before all names, shapes and types have been compared.
    """
    queue, omega = weights["queue"], weights.get("gating_prototypes")
    if queue.ndim != 3 or queue.numel() == 0:
        raise ValueError(f"its queue must hold embeddings; got {_words(queue)}.")
    size, n_heads, dim = queue.shape
    n_experts = n_heads if omega is None or omega.ndim == 0 else len(omega)
    halved = queue.dtype == torch.bfloat16  # it may be kept in either
    queue_dtype = torch.bfloat16 if halved else torch.float32
    known = figures.pop("backbone")
    # Called once, and outside of `build`: a factory may do more than build.
    source = known
    if known is None:
        if isinstance(backbone, backbones.Pretrained):
            source = backbone.build_empty(shape)  # the file has the weights
        else:
            resolved = backbones.resolve_backbone(backbone, shape, torch.device("cpu"))
            source = backbones.build_backbone(resolved, shape)
        n_features = backbones.feature_count(source, shape)
    else:  # without a probe, for which torch imports its compiler
        _, n_features = backbones.weight_count(known, shape)

    def build(device):
        with torch.device(device):
            network = backbones.build_backbone(source, shape)
            return ContrastiveMixture(
                network,
                n_features,
                n_experts=n_experts,
                embedding_dim=dim,
                queue_size=size,
                omega=omega if omega is None else torch.empty(n_experts, dim),
                queue_dtype=queue_dtype,
                backbone=known,
                **figures,
            )

    model = build("meta")  # has shapes and no memory
    needed = {key: _words(tensor) for key, tensor in model.state_dict().items()}
    found = {key: _words(tensor) for key, tensor in weights.items()}
    for key in sorted(needed.keys() | found.keys()):
        has, needs = (words.get(key, "nothing") for words in (found, needed))
        _expect(has == needs, repr(key), f"be {needs}; it is {has}")
    if known is None:  # may keep more than its state, and share parts of it
        model = build("cpu")
    model.load_state_dict(weights, assign=known is not None)
    return model.to("cpu", memory_format=torch.channels_last).eval()


def _words(tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"


# -------------------------------------------------------- what every fitted model is


def _expect(condition, name: str, what: str) -> None:
    if not condition:
        raise ValueError(f"its {name} must {what}.")


def _expect_only(found, known, name: str) -> None:
    unknown = ", ".join(sorted(set(found) - set(known)))
    _expect(not unknown, name, f"not include {unknown}")


def _check_attributes(model) -> None:
    """All that a fitted estimator has beside its network."""
    required, optional = _names(type(model))
    missing = ", ".join(sorted(required - vars(model).keys()))
    _expect(not missing, "attributes", f"include {missing}")
    sizes = {"D": getattr(model, "n_features_in_", None)}  # which files have not
    has_axes = hasattr(model, "axes_")
    _expect(has_axes == hasattr(model, "origin_"), "`axes_`", "have an `origin_`")
    if not has_axes:
        sizes["A"] = sizes["D"]
    for name, (shape, words, holds) in _RULES.items():
        if name not in vars(model).keys() & (required | optional):
            continue
        value = getattr(model, name)
        if shape is not None:
            words += f", in shape ({', '.join(shape)})"
            _expect(_has_shape(value, shape, sizes), f"`{name}`", words)
        _expect(holds(value, sizes), f"`{name}`", words)
    if hasattr(model, "_format"):
        _check_format(model._format, sizes["D"])


def _check_format(fmt: SampleFormat, n_features: int | None) -> None:
    shape, sides = fmt.shape, [*fmt.shape, *fmt.input_shape]
    # First, as a string times a number is a long string.
    right = all(isinstance(side, Integral) for side in sides) and min(sides) > 0
    right = right and type(fmt.channels_first) is bool
    right = right and math.prod(shape) == math.prod(fmt.input_shape)
    right = right and n_features in (None, math.prod(shape))
    is_sample = len(shape) == 1 or (len(shape) == 3 and shape[0] in CHANNELS)
    _expect(right and is_sample, "format", "be that of a sample")
    right = len(fmt.mean) == len(fmt.std) == shape[0]
    right = right and _are_numbers([fmt.low, fmt.high, *fmt.mean, *fmt.std])
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


def _check_trained(model) -> None:
    """The network, and what attributes have to do with it."""
    network = model._model
    _check_network(network)
    mixture = isinstance(model, MiCEClustering)
    n_clusters = network.n_experts
    gated = network.gating_prototypes is not None
    right = gated if mixture else n_clusters == 1 and not gated
    _expect(right, "tensors", f"be those of {type(model).__name__}")
    if mixture:
        sizes = np.bincount(model.labels_, minlength=n_clusters)
        same = np.array_equal(model.cluster_sizes_, sizes)
        _expect(same, "`cluster_sizes_`", "be those of `labels_`")
    _probe(model)


def _check_network(network) -> None:
    figures = {"tau": network.tau, "kappa": network.kappa}
    limits = {name: MiCEClustering._parameter_constraints[name] for name in figures}
    validate_parameter_constraints(limits, figures, caller_name="the network")
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
    _expect(all(map(_are_units, network.queue.split(256))), "queue", "be unit vectors")
    if network.gating_prototypes is not None:
        right = _are_units(network.gating_prototypes.detach())
        _expect(right, "gating prototypes", "be unit vectors")


def _probe(model) -> None:
    """Infer from black, white and noise, or their like: the result must be finite.

    Finite weights may still be too large. Networks that have names take images of any
    size, so that of the format costs nothing.
    """
    fmt, network = model._format, model._model
    shape = model._make_views().out_shape
    scaled = isinstance(model.backbone, backbones.Pretrained)
    if (network.backbone is not None or scaled) and fmt.is_image:
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
    known = model._inference(samples.float().to(model.device_), *wanted)
    finite = all(value.isfinite().all() for value in known)
    _expect(finite, "network", "infer finite values")
