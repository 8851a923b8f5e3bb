"""The first and the last step of a Pipeline, also within another, or a search."""

from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline


def chosen(estimator):
    """What a search has chosen and fitted to all samples, or what is frozen.

    Of others, the estimator itself.
    """
    if isinstance(estimator, FrozenEstimator):
        return chosen(estimator.estimator)
    return getattr(estimator, "best_estimator_", estimator)


def first_step(estimator):
    """The first step, or the estimator itself."""
    estimator = chosen(estimator)
    while isinstance(estimator, Pipeline):
        estimator = chosen(estimator[0])
    return estimator


def last_step(estimator) -> tuple:
    """The last step, and what the names of its parameters begin with."""
    prefix, estimator = "", chosen(estimator)
    while isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        prefix, estimator = f"{prefix}{name}__", chosen(last)
    return estimator, prefix


def last_with_input(estimator, X) -> tuple:
    """The last step of a fitted estimator, and what it gets for X."""
    estimator = chosen(estimator)
    while isinstance(estimator, Pipeline):
        if len(estimator) > 1:
            X = estimator[:-1].transform(X)
        estimator = chosen(estimator[-1])
    return estimator, X


def names_of_seeds(estimator) -> list[str]:
    """Names of the parameters that determine random draws, of all steps."""
    return sorted(n for n in estimator.get_params() if n.endswith("random_state"))
