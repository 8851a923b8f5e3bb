"""A fit that fails leaves the estimator as it was."""

from contextlib import contextmanager

__all__ = ["all_or_nothing"]


@contextmanager
def all_or_nothing(estimator):
    """Restore the attributes of an estimator if an error leaves the block."""
    before = vars(estimator).copy()
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
