"""Names of a package that are imported when they are first used (SPEC 1)."""

import importlib
import os
import sys


def attach(package: str, objects: dict[str, str]):
    """Make the `__getattr__` and the `__dir__` of a package.

    `objects` has the module of each class and function, relative to the package; other
    names in `__all__` are modules. If the environment has EAGER_IMPORT, all names are
    imported at once: it finds broken ones.
    """

    def names():
        return list(sys.modules[package].__all__)

    def load(name):
        if name not in objects and name not in names():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = importlib.import_module(objects.get(name, f".{name}"), package)
        except AttributeError as error:  # Python would hide it: "cannot import name"
            raise ImportError(
                f"a module that {package}.{name} needs fails: {error}"
            ) from error
        if name in objects:
            value = getattr(value, name)
        setattr(sys.modules[package], name, value)  # so that it is not loaded again
        return value

    if os.environ.get("EAGER_IMPORT"):
        for name in names():
            if name not in vars(sys.modules[package]):
                load(name)
    return load, names
