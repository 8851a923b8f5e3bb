"""Clusters as people look at them: displays, and a page to browse.

Displays follow scikit-learn's conventions: each has ``from_estimator``, most have
``from_predictions``, and ``plot(ax=None)`` draws once more. As in scikit-learn, `y` and
`y_true` are classes, which may be numbers or names, and `y_pred` are clusters. The
names are imported when they are first used (SPEC 1), and the libraries that draw with
them.
"""

import importlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._confusion import MatchedConfusionDisplay
    from ._embedding import EmbeddingDisplay
    from ._gallery import ClusterGalleryDisplay
    from ._report import write_report
    from ._training import PosteriorDisplay, TrainingDisplay

__all__ = [
    "ClusterGalleryDisplay",
    "EmbeddingDisplay",
    "MatchedConfusionDisplay",
    "PosteriorDisplay",
    "TrainingDisplay",
    "write_report",
]

# Each class and function, and its module.
_OBJECTS = {
    "ClusterGalleryDisplay": "._gallery",
    "EmbeddingDisplay": "._embedding",
    "MatchedConfusionDisplay": "._confusion",
    "PosteriorDisplay": "._training",
    "TrainingDisplay": "._training",
    "write_report": "._report",
}


def __getattr__(name):
    if name not in _OBJECTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_OBJECTS[name], __name__), name)
    globals()[name] = value  # so that this function is not called again
    return value


def __dir__():
    return list(__all__)


# SPEC 1: import everything at once, to find broken imports.
if os.environ.get("EAGER_IMPORT"):
    for _name in _OBJECTS:
        __getattr__(_name)
