"""Warnings that point at the user's line, and the first line of errors."""

import sys
import warnings

# Packages whose frames lie between the user's line and the warning.
BETWEEN = {"sk_mice", "sklearn", "skorch", "joblib", "contextlib"}


def warn_user(message: str, category=UserWarning) -> None:
    """Warn with the user's line as the place, also if scikit-learn called us."""
    frame, level = sys._getframe(), 1
    while frame.f_back and _package(frame) in BETWEEN:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _package(frame) -> str:
    return frame.f_globals.get("__name__", "").split(".")[0]


def first_line(error: BaseException) -> str:
    """What an error says, without the stack trace that torch adds."""
    return next(iter(str(error).strip().splitlines()), "")
