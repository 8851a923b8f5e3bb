"""What parameters may be: numbers in intervals, without booleans, and callables."""

import inspect
from numbers import Integral, Real

import numpy as np
from sklearn.utils._param_validation import Interval

LARGEST_COUNT = 2**31 - 1
SMALLEST_TEMPERATURE = 1e-3  # below it, gradients leave the range of float32


class Number(Interval):
    """Real numbers in an interval, without booleans and numbers beyond any float."""

    def __init__(self, left, right, *, closed):
        super().__init__(Real, left, right, closed=closed)

    def is_satisfied_by(self, value):
        """Whether a value satisfies the constraint."""
        if isinstance(value, bool) or not isinstance(value, Real):
            return False
        try:
            return super().is_satisfied_by(float(value))
        except OverflowError:
            return False


class Count(Interval):
    """Integers in an interval, without booleans; by default without an upper end."""

    def __init__(self, left, right=None):
        closed = "left" if right is None else "both"
        if right == left:  # scikit-learn has no interval of one number
            right, closed = right + 1, "left"
        super().__init__(Integral, left, right, closed=closed)

    def is_satisfied_by(self, value):
        """Whether a value satisfies the constraint."""
        return not isinstance(value, bool) and super().is_satisfied_by(value)


RANDOM_STATE = [Count(0, 2**32 - 1), np.random.RandomState, None]


def floats(values) -> tuple[float, ...]:
    """A few numbers as floats.

    Raises TypeError or ValueError unless `values` is a sequence of numbers. Booleans,
    strings, and what a float cannot hold are not numbers here.
    """
    len(values)  # an iterator could be read but once
    odd = bool | np.bool_ | str | bytes
    if isinstance(values, odd) or any(isinstance(value, odd) for value in values):
        raise TypeError("a number is needed.")
    try:
        return tuple(float(value) for value in values)
    except OverflowError as error:
        raise ValueError("a number is too large.") from error


def check_call(function, rule: str, n_arguments: int) -> None:
    """TypeError that begins with a rule, unless a callable takes so many arguments."""
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # of compiled code, nothing is known
        return
    try:
        signature.bind(*range(n_arguments))
    except TypeError as error:
        raise TypeError(f"{rule}; {error}.") from error
