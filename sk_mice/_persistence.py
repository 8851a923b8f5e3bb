"""Fitted estimators as files without code."""

import os
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from . import augmentation, backbones
from ._base import ContrastiveEstimator
from ._classification_em import ClassificationEM
from ._device import is_here
from ._engine.ambient import OwnDraws, own_settings
from ._engine.files import as_path
from ._engine.format import SampleFormat
from ._engine.inference import Inference
from ._engine.model import ContrastiveMixture
from ._engine.storage import NotDataError, pack, read, refusing, unpack, write
from ._engine.warn import warn_user
from ._fitted_state import (
    ATTRIBUTES,
    check_attributes,
    check_trained,
    expect,
    expect_only,
    names_of_attributes,
)
from ._neighbor_mixture import NeighborMixture
from ._show_versions import LIBRARIES, versions
from ._spherical_kmeans import SphericalKMeans
from .features import PretrainedFeatures

_KIND: dict = {"kind": "model", "version": 5}  # `read` refuses all others
# Classes whose objects may be parameters: a file has their names and parameters.
PARAMETER_CLASSES = {
    cls.__name__: cls
    for cls in (
        *(*backbones.OURS, backbones.Pretrained, *augmentation.AUGMENTATIONS),
        *(ClassificationEM, NeighborMixture, SphericalKMeans),
    )
}
_NAMES_OF_PARTS = {
    "augmentation": [*augmentation.NAMED],
    "backbone": ["auto", *backbones.NAMED],
}
# Attributes of a network that are stored beside its tensors.
_FIGURES = ("tau", "kappa", "class_level", "shared_head", "gate_view")
# Parameters that are not stored: a file must not choose where a fit writes.
_PLACES = ("checkpoint", "out")
# Attributes of PretrainedFeatures that depend on the machine, and are found anew.
_OF_THE_MACHINE = ("_dtype", "_placed", "batch_size_")


def save(model, path) -> None:
    """Write a fitted estimator to a file that holds no code.

    The file is a safetensors file, with JSON for everything that is not a tensor and a
    checksum of the whole file. It is written completely or not at all. An earlier file
    is replaced, and its mode is kept. The parameters `checkpoint` and `out` are not
    stored. For `PretrainedFeatures`, the file has the name of the network and a
    checksum of its weights, but not the weights.

    Parameters
    ----------
    model : estimator
        A fitted MiCEClustering, MoCo, PaperMiCE, PaperMoCo, ClassificationEM,
        NeighborMixture, SphericalKMeans or PretrainedFeatures, or a scikit-learn
        Pipeline of such. It is stored on the CPU. A Pipeline is stored as its steps,
        without its own parameters.
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
        If the file cannot be written. The message names `path`. This includes folders,
        FIFOs, devices, and files that their owner may not write to, even for root. An
        earlier file is kept.

    Warns
    -----
    UserWarning
        If a parameter cannot be stored, because it is a callable, `callbacks`, a
        RandomState, a clusterer of another package, or anything else that is not plain
        data. The file has the default of the parameter instead. Predictions do not
        depend on such parameters. There is no warning for a `backbone` that is a module
        or a callable, because `load` requires it.

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
    left_out: list[str] = []
    with own_settings(), OwnDraws(0):
        parts = [_to_part(step, left_out) for _, step in steps]
    document, tensors = parts[0]
    if type(model) is Pipeline:
        document, tensors = _joined([name for name, _ in steps], parts)
    # For people: `load` does not read them.
    document["versions"] = versions("sk_mice", "python", *LIBRARIES)
    write(path, tensors, document, **_KIND)
    if left_out:  # once the file is written, as warnings may be set to raise
        warn_user(
            f"A file without code cannot hold the {', the '.join(left_out)}: the "
            "loaded model has defaults for such parameters, and no such attributes."
        )


def load(path, backbone=None, *, weights=None) -> Any:
    """Read an estimator that :func:`save` wrote.

    Loading runs no code from the file, so files from anyone can be loaded.

    Parameters
    ----------
    path : str or path-like
        A regular file.
    backbone : nn.Module or callable, default=None
        Required if the `backbone` of the estimator was a module or a callable, as the
        file does not hold its code: a similar module, with any weights, or a factory.
        Names, shapes and types of its tensors are compared with the file. Not needed
        for a `Pretrained` network with a name, whose weights are in the file.
    weights : str or path-like, default=None
        For `PretrainedFeatures`: a file with the weights of its network. If None, the
        weights are read from the file that `PretrainedFeatures` was given, or found by
        the name of the network.

    Returns
    -------
    model : estimator
        The estimator that was saved, on the CPU. `PretrainedFeatures` runs on its
        `device`, or on the CPU if that is a GPU that this machine does not have.

    Raises
    ------
    TypeError
        If `path` is neither a string nor path-like.
    ImportError
        If the package of a pretrained network is missing.
    OSError
        If the file cannot be read, or is a folder, a FIFO, a device or a socket, or if
        the weights of a pretrained network cannot be found.
    ValueError
        If the file is of another kind or format version, truncated or damaged, if its
        content could not come from a fit, or if `backbone` or `weights` do not match
        it. The message names the file and the reason.

    See Also
    --------
    save : Writes the file.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> import sk_mice
    >>> kmeans = sk_mice.SphericalKMeans(2, random_state=0).fit(np.eye(2))
    >>> with TemporaryDirectory() as folder:
    ...     sk_mice.save(kmeans, f"{folder}/kmeans.safetensors")
    ...     sk_mice.load(f"{folder}/kmeans.safetensors")
    SphericalKMeans(n_clusters=2, random_state=0)
    """
    path = as_path(path)
    tensors, document = read(path, **_KIND)
    with refusing(f"{path!r} cannot be loaded"), own_settings(), OwnDraws(0):
        return _restore(document, tensors, backbone, weights)


# --------------------------------------------------------------------------- writing


def _check_class(model, name: str) -> None:
    if type(model) not in ATTRIBUTES:
        *most, last = (cls.__name__ for cls in ATTRIBUTES)
        raise TypeError(
            f"{name} must be a {', '.join(most)} or {last}, or a Pipeline of such; "
            f"got a {type(model).__name__}."
        )
    network = getattr(model, "_fitted_with", {}).get("network")
    if isinstance(network, torch.nn.Module):
        raise TypeError(
            f"`network` of {name} must be a name, as a file without code cannot hold a "
            f"module; got a {type(network).__name__}. Save the other steps only, or "
            "use joblib."
        )


def _to_part(model, left_out) -> tuple[dict, dict]:
    """Document and tensors of a fitted estimator, which is checked."""
    check_is_fitted(model)
    BaseEstimator._validate_params(model)  # the override opens a group of processes
    for value in model.get_params(deep=False).values():
        if isinstance(value, backbones.Backbone):
            value._validate_params()
    tensors: dict = {}
    document = _to_document(model, tensors, left_out)
    with refusing("`model` cannot be saved"):
        check_attributes(model)
        required, _ = names_of_attributes(type(model))
        for name in sorted(required):
            is_data = name in document["attributes"]
            expect(is_data, f"`{name}`", "hold data, and nothing else")
        if isinstance(model, ContrastiveEstimator):
            check_trained(model)
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
    """A model as JSON; puts arrays into `tensors`, and names what it leaves out."""
    parts = _take_apart(model, tensors)
    _, known = names_of_attributes(type(model))
    for name in sorted(parts["attributes"].keys() - known):
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
    """The values of each part of a model, by name; weights are put into `tensors`."""
    parameters = model.get_params(deep=False)
    attributes = {k: v for k, v in vars(model).items() if k not in parameters}
    parameters = {k: v for k, v in parameters.items() if k not in _PLACES}
    init = parameters.get("init")
    if hasattr(init, "__array__") and not isinstance(init, str):  # a pandas Series
        parameters["init"] = np.asarray(init)  # of labels
    fmt = asdict(attributes.pop("_format")) if "_format" in attributes else {}
    parts = {"parameters": _without_module(parameters), "attributes": attributes}
    parts |= {"format": fmt, "network": {}}
    if isinstance(model, PretrainedFeatures):
        own = attributes.pop("_fitted_with")
        if own["weights"] is not None:
            own = own | {"weights": os.fspath(own["weights"])}
        parts["parameters"] |= own
        for name in _OF_THE_MACHINE:
            attributes.pop(name, None)
    if not isinstance(model, ContrastiveEstimator):
        return parts
    attributes["_fitted_with"] = _without_module(attributes["_fitted_with"])
    del attributes["_inference"]  # follows from the model
    if callable(attributes.get("augmentation_")):  # the warning names the parameter
        del attributes["augmentation_"]
    network = attributes.pop("_model")
    backbones.check_state(network)
    for name, value in network.state_dict().items():
        tensors[f"model.{name}"] = value.cpu().contiguous().clone()
    figures = {name: getattr(network, name) for name in _FIGURES}
    parts["network"] = {"backbone": network.description} | figures
    return parts


def _without_module(parameters: dict) -> dict:
    """Parameters without the user's own `backbone`, which `load` asks for."""
    backbone = parameters.get("backbone", "")
    has_name = isinstance(backbone, str) or type(backbone) in PARAMETER_CLASSES.values()
    if not has_name or isinstance(getattr(backbone, "network", ""), torch.nn.Module):
        return parameters | {"backbone": None}
    if isinstance(getattr(backbone, "weights", None), os.PathLike):
        text = os.fspath(backbone.weights)
        return parameters | {"backbone": clone(backbone).set_params(weights=text)}
    return parameters


# --------------------------------------------------------------------------- reading


def _restore(document, tensors, backbone, weights):
    """The estimator of a document and its tensors, which must all be used."""
    is_pipeline = document["class"] == Pipeline.__name__
    documents = document["steps"] if is_pipeline else [document]
    pretrained = [doc["class"] == PretrainedFeatures.__name__ for doc in documents]
    if weights is not None and not any(pretrained):
        raise ValueError("it needs no `weights`; give none to `load`.")
    if backbone is not None and not any(map(_asks_for_backbone, documents)):
        raise ValueError("it needs no `backbone`; give none to `load`.")
    if not is_pipeline:
        return _restore_one(document, tensors, backbone, weights)
    steps = [
        _restore_one(doc, _taken(tensors, f"{i}."), backbone, weights)
        for i, doc in enumerate(documents)
    ]
    expect(not tensors, "tensors", "all be in use")
    names = document["names"]
    right = len({*names}) == len(names) > 0 and all(type(n) is str for n in names)
    expect(right, "names of steps", "be different strings")
    return Pipeline(list(zip(names, steps, strict=True)))


def _taken(tensors, start: str) -> dict:
    """Take out the tensors whose names have a prefix, by their names without it."""
    names = [name for name in tensors if name.startswith(start)]
    return {name.removeprefix(start): tensors.pop(name) for name in names}


def _asks_for_backbone(document) -> bool:
    """Whether `load` needs `backbone`, as the file does not say what it was.

    `document` holds the values of the file, before estimators are made of them.
    """
    network = document["network"]
    if not network:
        return False
    backbone = document["parameters"]["backbone"]
    fitted_with = document["attributes"].get("_fitted_with", {}).get("dict", {})
    fitted = fitted_with.get("backbone", backbone)
    named = isinstance(fitted, dict) and fitted.get("class") == "Pretrained"
    return backbone is None or not (named or network["backbone"])


def _restore_one(document, tensors, backbone, weights):
    cls = {cls.__name__: cls for cls in ATTRIBUTES}[document["class"]]
    state = _taken(tensors, "model.")
    parameters, attributes, fmt, network = (
        {k: unpack(v, tensors, PARAMETER_CLASSES) for k, v in document[part].items()}
        for part in ("parameters", "attributes", "format", "network")
    )
    expect(not tensors, "tensors", "all be in use")
    fitted_with = attributes.get("_fitted_with", {})
    expect_only(parameters, cls().get_params(deep=False), "parameters")
    expect_only(attributes, names_of_attributes(cls)[1], "attributes")
    expect_only(fitted_with, getattr(cls, "_of_the_model", ()), "`_fitted_with`")
    fitted = fitted_with.get("backbone", parameters.get("backbone"))
    if backbone is None and _asks_for_backbone(document):
        raise ValueError(
            "its `backbone` was a module or a callable, which the file does not hold: "
            "pass it to `load` as `backbone`."
        )
    for part in (parameters, fitted_with):
        if part.get("backbone", "") is None:
            part["backbone"] = backbone
    parameters = {k: v for k, v in parameters.items() if k not in _PLACES}
    if cls is PretrainedFeatures and weights is not None:
        parameters["weights"] = weights
    model = cls(**parameters)
    BaseEstimator._validate_params(model)  # the override opens a group of processes
    _check_parts(network, parameters)
    vars(model).update(attributes)
    if fmt:
        model._format = SampleFormat(**fmt)
    check_attributes(model)  # before a network of that size is built
    if cls is PretrainedFeatures:
        _find_network_of(model)
    if issubclass(cls, ContrastiveEstimator):
        shape = model._make_views("cpu").out_shape
        # Needed for the user's own network, and for a pretrained one.
        source = fitted if isinstance(fitted, backbones.Pretrained) else backbone
        model._model = _put_together(state, network, shape, source)
        model._inference = Inference(model._model)
        check_trained(model)
    return model


def _find_network_of(model: PretrainedFeatures) -> None:
    """Find the network and its weights, and compare what it returns.

    It runs on the CPU in place of a GPU that this machine does not have.
    """
    if model.device != "auto":
        device = torch.device(model.device)
        if device.type == "cuda" and not is_here(device):
            model.device = "cpu"
    expect(model._format.is_image, "format", "be that of images")
    model._keep_parameters()
    side = model.image_size_
    same = model._probe((side, side)) == model.n_features_out_
    expect(same, "`n_features_out_`", "be that of the network")


def _check_parts(network, parameters) -> None:
    """Check the names of an augmentation and a backbone, and the kind of network."""
    for name, names in _NAMES_OF_PARTS.items():
        given = parameters.get(name)
        known = not isinstance(given, str) or given in names
        expect(known, f"`{name}`", f"be one of {names}; it is {given!r}")
    known = isinstance(network.get("backbone"), (*backbones.OURS, type(None)))
    expect(known, "network", "have a backbone that is known")


def _put_together(state, figures, shape, backbone) -> ContrastiveMixture:
    """The model with the weights of a state, in evaluation mode.

    Nothing is allocated before all names, shapes and types have been compared.
    """
    queue, omega = state["queue"], state.get("gating_prototypes")
    if queue.ndim != 3 or queue.numel() == 0:
        raise ValueError(f"its queue must hold embeddings; got {_words(queue)}.")
    size, n_heads, dim = queue.shape
    n_experts = n_heads if omega is None or omega.ndim == 0 else len(omega)
    is_half = queue.dtype == torch.bfloat16
    queue_dtype = torch.bfloat16 if is_half else torch.float32  # others are refused
    description = figures.pop("backbone")
    source, n_features, own_format = _source(description, backbone, shape)

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
                description=description,
                own_format=own_format,
                **figures,
            )

    model = build("meta")  # takes no memory
    needed = {key: _words(tensor) for key, tensor in model.state_dict().items()}
    found = {key: _words(tensor) for key, tensor in state.items()}
    for key in sorted(needed.keys() | found.keys()):
        has, needs = (words.get(key, "nothing") for words in (found, needed))
        expect(has == needs, repr(key), f"be {needs}; it is {has}")
    if not model.is_ours:  # a user's module may have more than its state
        model = build("cpu")
    model.load_state_dict(state, assign=model.is_ours)
    return model.placed("cpu")


def _source(description, backbone, shape) -> tuple:
    """What the network is built from, its number of features and its memory format.

    A user's factory is called once here, and not each time a model is built.
    """
    if description is not None:  # a probe would import torch's compiler
        _, n_features = backbones.weight_count(description, shape)
        return description, n_features, None
    if isinstance(backbone, backbones.Pretrained):
        # The network scales images. Sides in a forged file could take all memory.
        shape = shape[0], *(min(side, backbones.LARGEST_SIDE) for side in shape[1:])
        backbone._validate_params()
        network = backbone._build(shape, filled=False)  # the file has the weights
    else:
        resolved = backbones.resolve_backbone(backbone, shape, torch.device("cpu"))
        network = backbones.build_backbone(resolved, shape)
    n_features = backbones.feature_count(network, shape)
    return network, n_features, backbones.own_format(network, shape)


def _words(tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"
