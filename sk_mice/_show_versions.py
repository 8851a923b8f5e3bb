"""What a report of a problem should say about the machine and the libraries."""

import os
import platform
import re
import sys
from importlib import metadata

from . import __version__

# Those on which results depend.
LIBRARIES = ("torch", "numpy", "scikit-learn", "skorch")
DEVELOPMENT = {"test", "docs", "dist", "dev", "browser"}  # extras no user needs


def show_versions() -> None:
    """Print the versions and the settings that a report of a problem should have.

    These are the system, Python, the installed libraries, and what torch computes
    with: threads, devices, and whether the processor has bfloat16.

    See Also
    --------
    sklearn.show_versions : The same for scikit-learn, with its linear algebra.

    Examples
    --------
    >>> import sk_mice
    >>> sk_mice.show_versions()  # doctest: +ELLIPSIS
    <BLANKLINE>
    System:
      python ...
    """
    sections = {
        "System": {
            "python": sys.version.replace("\n", " "),
            "executable": sys.executable,
            "machine": platform.platform(),
            "cores": os.cpu_count(),
        },
        "Libraries": versions(*_libraries()),
        "Torch": _torch(),
    }
    width = max(len(name) for facts in sections.values() for name in facts)
    for title, facts in sections.items():
        print(f"\n{title}:")
        for name, value in facts.items():
            print(f"  {name:{width}}  {value}")


def _libraries():
    """Names of the package, of its dependencies, and of those of its extras."""
    try:
        lines = metadata.requires("sk-mice") or []
    except metadata.PackageNotFoundError:  # a checkout that is not installed
        lines = [*LIBRARIES]
    names = ["sk-mice"]
    for line in lines:
        extra = re.search(r"extra == ['\"](\w+)", line)
        name = re.match(r"[\w.-]+", line)[0]
        if name not in names and not (extra and extra[1] in DEVELOPMENT):
            names.append(name)
    return names


def versions(*names: str) -> dict[str, str | None]:
    """Versions of libraries, of this package and of Python; None if not installed."""
    return {name: _version(name) for name in names}


def _version(name):
    if name.lower() == "python":
        return platform.python_version()
    if name in ("sk_mice", "sk-mice"):
        return __version__  # also of a checkout that is not installed
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _torch():
    import torch

    from ._device import cpu_has_bfloat16

    facts = {
        "threads": torch.get_num_threads(),
        "CPU bfloat16": cpu_has_bfloat16(),
        "CUDA": torch.version.cuda,
    }
    for index in range(torch.cuda.device_count()):
        facts[f"cuda:{index}"] = torch.cuda.get_device_name(index)
    return facts
