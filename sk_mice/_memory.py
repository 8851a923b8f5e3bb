"""How much memory of the system is free."""

import os
from pathlib import Path

__all__ = ["available_memory"]

# Limits of a container, in both versions of Linux's control groups.
LIMITS = ("memory.max", "memory/memory.limit_in_bytes")


def available_memory() -> int | None:
    """Bytes that are free, at most the limit of a container; None if unknown."""
    limits = [_figure(Path("/sys/fs/cgroup", name)) for name in LIMITS]
    return min(filter(None, [*limits, _of_the_system()]), default=None)


def _of_the_system():
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        return 1024 * (kilobytes["MemAvailable"] + kilobytes["SwapFree"])
    except (OSError, LookupError, ValueError):  # no Linux
        names = getattr(os, "sysconf_names", ())
        if not {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= set(names):
            return None
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _figure(path):
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # not there, or "max"
        return None
