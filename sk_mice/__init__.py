"""MiCE, mixture of contrastive experts, for scikit-learn.

The public names are loaded when they are first asked for (SPEC 1), so that
``import sk_mice`` is quick: torch comes with the first estimator that trains.
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
        metrics,
        model_selection,
        recipes,
    )
    from ._classification_em import ClassificationEM
    from ._mice import MiCEClustering
    from ._moco import MoCo
    from ._persistence import load, save
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
    "load",
    "metrics",
    "model_selection",
    "recipes",
    "save",
]

# Each class and function, and the module that it is loaded from.
_OBJECTS = {
    "ClassificationEM": "._classification_em",
    "MiCEClustering": "._mice",
    "MoCo": "._moco",
    "SphericalKMeans": "._spherical_kmeans",
    "load": "._persistence",
    "save": "._persistence",
}
_MODULES = (
    *("ablations", "augmentation", "backbones", "datasets"),
    *("metrics", "model_selection", "recipes"),
)


def __getattr__(name):
    if name in _OBJECTS:
        value = getattr(importlib.import_module(_OBJECTS[name], __name__), name)
    elif name in _MODULES:
        value = importlib.import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value  # from now on an attribute like any other
    return value


def __dir__():
    return list(__all__)


# SPEC 1's switch for finding broken imports early.
if os.environ.get("EAGER_IMPORT"):
    for _name in (*_OBJECTS, *_MODULES):
        __getattr__(_name)
