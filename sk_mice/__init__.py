"""MiCE, the mixture of contrastive experts, for scikit-learn.

The public names are imported when they are first used (SPEC 1). ``import sk_mice`` is
therefore fast, and torch is imported with the first estimator that needs it.
"""

from typing import TYPE_CHECKING

from ._lazy import attach

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
    from ._neighbor_mixture import NeighborMixture
    from ._persistence import load, save
    from ._show_versions import show_versions
    from ._spherical_kmeans import SphericalKMeans

__version__ = "0.1.0"
__all__ = [
    "ClassificationEM",
    "MiCEClustering",
    "MoCo",
    "NeighborMixture",
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

if not TYPE_CHECKING:  # checkers would believe every name
    __getattr__, __dir__ = attach(
        __name__,
        {
            "ClassificationEM": "._classification_em",
            "MiCEClustering": "._mice",
            "MoCo": "._moco",
            "NeighborMixture": "._neighbor_mixture",
            "SphericalKMeans": "._spherical_kmeans",
            "load": "._persistence",
            "save": "._persistence",
            "show_versions": "._show_versions",
        },
    )
