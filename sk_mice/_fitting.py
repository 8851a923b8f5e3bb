"""Around a fit: plain numbers, and no change if it fails."""

from contextlib import contextmanager
from fractions import Fraction

import numpy as np


@contextmanager
def fitting(estimator):
    """Compute with plain numbers, and undo all that the fit sets if it fails.

    What underflows is zero, whatever NumPy is set to do about it.
    """
    before = vars(estimator).copy()
    try:
        with plain_numbers(estimator), np.errstate(under="ignore"):
            yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


@contextmanager
def plain_numbers(estimator):
    """Have Python's integers and floats as parameters in place of other numbers.

    NumPy's overflow in their own type, and ``y.max() + 1`` may be a uint8. torch knows
    no fractions.
    """
    parameters = estimator.get_params(deep=False)
    given = {
        k: v for k, v in parameters.items() if isinstance(v, np.generic | Fraction)
    }
    vars(estimator).update(
        {k: float(v) if isinstance(v, Fraction) else v.item() for k, v in given.items()}
    )
    try:
        yield
    finally:
        vars(estimator).update(given)
