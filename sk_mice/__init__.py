"""MiCE, the mixture of contrastive experts, for scikit-learn.

The public names are imported when they are first used (SPEC 1). ``import sk_mice`` is
therefore fast, and torch is imported with the first estimator that needs it.
"""

import importlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import (
        ablations,
        augmentation,
        backbones,
        datasets,
        features,
        inspection,
        metrics,
        model_selection,
        recipes,
    )
    from ._classification_em import ClassificationEM
    from ._mice import MiCEClustering
    from ._moco import MoCo
    from ._persistence import load, save
    from ._show_versions import show_versions
    from ._spherical_kmeans import SphericalKMeans

__version__ = "0.1.0"
__all__ = [
    "ClassificationEM",
    "MiCEClustering",
    "MoCo",
    "SphericalKMeans",
    "__version__",
    "ablations",
    "augmentation",
    "backbones",
    "datasets",
    "features",
    "inspection",
    "load",
    "metrics",
    "model_selection",
    "recipes",
    "save",
    "show_versions",
]

# Each class and function, and its module.
_OBJECTS = {
    "ClassificationEM": "._classification_em",
    "MiCEClustering": "._mice",
    "MoCo": "._moco",
    "SphericalKMeans": "._spherical_kmeans",
    "load": "._persistence",
    "save": "._persistence",
    "show_versions": "._show_versions",
}
_MODULES = (
    *("ablations", "augmentation", "backbones", "datasets", "features"),
    *("inspection", "metrics", "model_selection", "recipes"),
)


def __getattr__(name):
    if name in _OBJECTS:
        value = getattr(importlib.import_module(_OBJECTS[name], __name__), name)
    elif name in _MODULES:
        value = importlib.import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value  # so that this function is not called again
    return value


def __dir__():
    return list(__all__)


# SPEC 1: import everything at once, to find broken imports.
if os.environ.get("EAGER_IMPORT"):
    for _name in (*_OBJECTS, *_MODULES):
        __getattr__(_name)
