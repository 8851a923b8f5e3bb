"""What every fitted estimator must be, also one that comes from a file."""

import copy
import math
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.utils._param_validation import validate_parameter_constraints

from . import backbones
from ._classification_em import ClassificationEM
from ._engine.format import LARGEST, SampleFormat
from ._mice import MiCEClustering
from ._moco import MoCo
from ._neighbor_mixture import NeighborMixture
from ._spherical_kmeans import SphericalKMeans
from .ablations import PaperMiCE, PaperMoCo
from .augmentation import AUGMENTATIONS
from .datasets._decoding import LONGEST_SIDE
from .features import PretrainedFeatures

_LARGEST_PROBE = 64  # pixels a side
# By how much the norm of a unit vector may differ from 1, as in bfloat16.
_ROUNDING = 0.01


# -------------------------------------------------------- what every attribute must be


def _has_shape(value, letters: str, sizes: dict) -> bool:
    """Whether an array has this shape. A letter without a size takes the array's."""
    if not isinstance(value, np.ndarray) or value.ndim != len(letters):
        return False
    if 0 in value.shape:
        return False
    pairs = zip(letters, value.shape, strict=True)
    return all(sizes.setdefault(letter, n) == n for letter, n in pairs)


def _are_labels(array, sizes) -> bool:
    return array.dtype.kind == "i" and array.min() >= 0 and array.max() < sizes["K"]


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
_BOOL = (None, "be a bool", lambda v, _: type(v) is bool)
_FLOATS = ("be finite floats", _are_floats)
_LABELS = "be integers from 0 to K - 1"
# The rules of the attributes, in the order of the checks: the shape of an array, the
# rule in words, and a function that tells whether it holds, given the sizes by letter.
# D is the number of features. The first array whose shape has another letter gives its
# size.
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
    "_from_files": _BOOL,
    "elbo_": _NUMBER,
    "inertia_": _NUMBER,
    "stability_": _NUMBER,
    "neighbors_recall_": (
        None,
        "be None, or a float from 0 to 1",
        lambda v, _: v is None or (isinstance(v, float) and 0 <= v <= 1),
    ),
    "converged_": _BOOL,
    "augmentation_": (
        None,
        "be an augmentation",
        lambda v, _: v is None or callable(v) or isinstance(v, AUGMENTATIONS),
    ),
    "cluster_sizes_": ("K", "be those of `labels_`", lambda a, _: a.dtype.kind == "i"),
    "cluster_centers_": (
        "KD",
        "be unit vectors",
        # A copy, as an array that is mapped may be read-only.
        lambda a, _: _are_floats(a) and _are_units(torch.tensor(a)),
    ),
    "_sums": ("KD", *_FLOATS),
    "means_": ("KC", *_FLOATS),
    "covariance_": ("CC", "be symmetric and positive", _is_positive),
    "weights_": ("K", "be shares that sum to 1", _are_shares),
    "origin_": ("D", *_FLOATS),
    "axes_": ("AD", *_FLOATS),
    # Without axes, A is the number of features as well.
    "mean_": ("A", *_FLOATS),
    "components_": ("CA", *_FLOATS),
    "hidden_weights_": ("HA", *_FLOATS),
    "hidden_bias_": ("H", *_FLOATS),
    "embedding_weights_": ("EH", *_FLOATS),
    "embedding_bias_": ("E", *_FLOATS),
    "gating_prototypes_": ("KE", *_FLOATS),
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
# Attributes that every fit sets, and those that some fits set, by class.
_OPTIONAL = "feature_names_in_ _sklearn_output_config"
_OF_MOCO = (
    "n_features_in_ n_iter_ history_ _fitted_with",
    f"{_OPTIONAL} augmentation_ neighbors_recall_",
)
_OF_MICE = (
    f"{_OF_MOCO[0]} elbo_ converged_ cluster_sizes_ labels_",
    f"{_OF_MOCO[1]} init_labels_ stability_",
)
ATTRIBUTES = {
    MiCEClustering: _OF_MICE,
    MoCo: _OF_MOCO,
    PaperMiCE: _OF_MICE,
    PaperMoCo: _OF_MOCO,
    ClassificationEM: (
        "n_features_in_ n_iter_ means_ covariance_ weights_ mean_ components_ labels_",
        f"{_OPTIONAL} origin_ axes_",
    ),
    NeighborMixture: (
        "n_features_in_ n_iter_ elbo_ neighbors_recall_ hidden_weights_ hidden_bias_ "
        "embedding_weights_ embedding_bias_ gating_prototypes_ labels_ init_labels_",
        f"{_OPTIONAL} origin_ axes_",
    ),
    SphericalKMeans: (
        "n_features_in_ cluster_centers_ _sums labels_ inertia_",
        f"{_OPTIONAL} n_iter_ n_steps_",
    ),
    PretrainedFeatures: (
        "n_features_out_ image_size_ weights_sha256_ _from_files",
        f"{_OPTIONAL} n_features_in_",
    ),
}


def names_of_attributes(cls) -> tuple[set, set]:
    """Names of the attributes that every fit sets, and of all that a fit may set."""
    required, optional = (set(names.split()) for names in ATTRIBUTES[cls])
    return required, required | optional


# -------------------------------------------------------- what every fitted model is


def expect(condition, name: str, what: str) -> None:
    if not condition:
        raise ValueError(f"its {name} must {what}.")


def expect_only(found, known, name: str) -> None:
    unknown = ", ".join(sorted(set(found) - set(known)))
    expect(not unknown, name, f"not include {unknown}")


def check_attributes(model) -> None:
    """Check the attributes of a fitted estimator, without its network."""
    required, known = names_of_attributes(type(model))
    missing = ", ".join(sorted(required - vars(model).keys()))
    expect(not missing, "attributes", f"include {missing}")
    sizes = {"D": getattr(model, "n_features_in_", None)}  # none if X held paths
    has_axes = hasattr(model, "axes_")
    expect(has_axes == hasattr(model, "origin_"), "`axes_`", "have an `origin_`")
    if not has_axes:
        sizes["A"] = sizes["D"]
    for name, (shape, words, holds) in _RULES.items():
        if name not in vars(model).keys() & known:
            continue
        value = getattr(model, name)
        if shape is not None:
            words += f", in shape ({', '.join(shape)})"
            expect(_has_shape(value, shape, sizes), f"`{name}`", words)
        expect(holds(value, sizes), f"`{name}`", words)
    if hasattr(model, "_format"):
        _check_format(model._format, sizes["D"])
    if isinstance(model, ClassificationEM | NeighborMixture):
        _probe_vectors(model)


def _check_format(fmt: SampleFormat, n_features: int | None) -> None:
    shape, sides = fmt.shape, [*fmt.shape, *fmt.input_shape]
    is_of_sample = (
        # First, as a forged file may have strings, whose products would be huge.
        all(isinstance(side, Integral) for side in sides)
        and min(sides) > 0
        and type(fmt.channels_first) is bool
        and math.prod(shape) == math.prod(fmt.input_shape)
        and n_features in (None, math.prod(shape))
        and len(shape) in (1, 3)
    )
    expect(is_of_sample, "format", "be that of a sample")
    # An image is scaled to [0, 1] before it is standardised.
    largest = 1 + _ROUNDING if fmt.is_image else LARGEST
    has_statistics = (
        len(fmt.mean) == len(fmt.std) == shape[0]
        and _are_numbers([fmt.low, fmt.high, *fmt.mean, *fmt.std])
        and max(map(abs, fmt.mean)) <= largest
        and 0 < min(fmt.std) <= max(fmt.std) <= largest
        and 0 < fmt.high - fmt.low < math.inf
    )
    expect(has_statistics, "format", "have the statistics of each channel or feature")
    seen, n_seen = (*fmt.seen_low, *fmt.seen_high), 1 if fmt.is_image else shape[0]
    has_extremes = len(fmt.seen_low) == len(fmt.seen_high) == n_seen and all(
        type(v) is float and math.isfinite(v) for v in seen
    )
    expect(has_extremes or not seen, "format", "have the extremes of X, if any")


def _are_numbers(figures) -> bool:
    """Whether all can be floats, and none is NaN or a bool."""
    right = all(isinstance(v, Real) and not isinstance(v, bool) for v in figures)
    return right and not any(math.isnan(float(v)) for v in figures)


def check_trained(model) -> None:
    """Check the network, and the attributes that depend on it."""
    network = model._model
    _check_network(network)
    mixture = isinstance(model, MiCEClustering)
    n_clusters = network.n_experts
    gated = network.gating_prototypes is not None
    right = gated if mixture else n_clusters == 1 and not gated
    expect(right, "tensors", f"be those of {type(model).__name__}")
    if mixture:
        sizes = np.bincount(model.labels_, minlength=n_clusters)
        same = np.array_equal(model.cluster_sizes_, sizes)
        expect(same, "`cluster_sizes_`", "be those of `labels_`")
    _probe(model)


def _check_network(network) -> None:
    figures = {"tau": network.tau, "kappa": network.kappa}
    limits = {name: MiCEClustering._parameter_constraints[name] for name in figures}
    validate_parameter_constraints(limits, figures, caller_name="the network")
    masks = set()  # buffers of the user's network may be infinite
    if not network.is_ours:
        masks = {name for name, _ in network.named_buffers() if ".backbone." in name}
    for name, tensor in network.state_dict().items():
        if tensor.is_floating_point() and tensor.numel():
            extremes = torch.stack(torch.aminmax(tensor.detach()))
            valid = ~extremes.isnan() if name in masks else extremes.isfinite()
            expect(valid.all(), repr(name), "be finite")
            positive = name.endswith("running_var")
            expect(not positive or extremes[0] >= 0, repr(name), "not be negative")
        if name.endswith("num_batches_tracked"):
            counts = tensor.min() >= 0 and tensor.max() < 2**53
            expect(counts, repr(name), "be a count")
    index = network.queue_index.item()
    expect(0 <= index < len(network.queue), "'queue_index'", "lie in the queue")
    expect(all(map(_are_units, network.queue.split(256))), "queue", "be unit vectors")
    if network.gating_prototypes is not None:
        right = _are_units(network.gating_prototypes.detach())
        expect(right, "gating prototypes", "be unit vectors")


def _probe_vectors(model) -> None:
    """Assign zeros, ones and noise: finite attributes may still be too large."""
    noise = np.random.default_rng(0).standard_normal(model.n_features_in_)
    rows = np.stack([np.zeros_like(noise), np.ones_like(noise), noise])
    model = copy.copy(model)
    vars(model).pop("feature_names_in_", None)  # `rows` has none
    with np.errstate(all="ignore"):
        finite = np.isfinite(model.predict_proba(rows)).all()
    expect(finite, "attributes", "give finite probabilities")


def _probe(model) -> None:
    """Infer from black, white and noise, or their like: the result must be finite.

    Finite weights may still be too large. Networks that have names take images of any
    size, so that of the format costs nothing.
    """
    fmt, network = model._format, model._model
    shape = model._make_views("cpu").out_shape
    scaled = isinstance(model.backbone, backbones.Pretrained)
    if (network.is_ours or scaled) and fmt.is_image:
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
    expect(finite, "network", "infer finite values")
