"""Clusters as people look at them: displays, and a page to browse.

Displays follow scikit-learn's conventions: each has ``from_estimator``, most have
``from_predictions``, and ``plot(ax=None)`` draws once more. As in scikit-learn, `y` and
`y_true` are classes, which may be numbers or names, and `y_pred` are clusters. The
names are imported when they are first used (SPEC 1), and the libraries that draw with
them.
"""

from typing import TYPE_CHECKING

from .._lazy import attach

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

if not TYPE_CHECKING:  # checkers would believe every name
    __getattr__, __dir__ = attach(
        __name__,
        {
            "ClusterGalleryDisplay": "._gallery",
            "EmbeddingDisplay": "._embedding",
            "MatchedConfusionDisplay": "._confusion",
            "PosteriorDisplay": "._training",
            "TrainingDisplay": "._training",
            "write_report": "._report",
        },
    )
