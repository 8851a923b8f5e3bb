"""Parameter constraints: scikit-learn's intervals, without booleans."""

from numbers import Integral, Real

from sklearn.utils._param_validation import Interval

__all__ = ["Count", "Number"]

LARGEST_COUNT = 2**31 - 1


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
        super().__init__(Integral, left, right, closed=closed)

    def is_satisfied_by(self, value):
        """Whether a value satisfies the constraint."""
        return not isinstance(value, bool) and super().is_satisfied_by(value)
