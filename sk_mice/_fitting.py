"""Around a fit: plain numbers as parameters, and no change if it fails."""

from contextlib import contextmanager

import numpy as np

__all__ = ["fitting", "plain_numbers"]


@contextmanager
def fitting(estimator):
    """Compute with plain numbers, and undo all that the fit sets if it fails."""
    before = vars(estimator).copy()
    try:
        with plain_numbers(estimator):
            yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


@contextmanager
def plain_numbers(estimator):
    """Have Python's numbers as parameters in place of NumPy's.

    NumPy's overflow in their own type, and ``y.max() + 1`` may be a uint8.
    """
    parameters = estimator.get_params(deep=False)
    given = {k: v for k, v in parameters.items() if isinstance(v, np.generic)}
    vars(estimator).update({name: value.item() for name, value in given.items()})
    try:
        yield
    finally:
        vars(estimator).update(given)
