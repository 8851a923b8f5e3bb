"""Clusters as people look at them: a page to browse.

The names are imported when they are first used, as the libraries that draw need not be
installed.
"""

import importlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._report import write_report

__all__ = ["write_report"]

# Each class and function, and its module.
_OBJECTS = {
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
