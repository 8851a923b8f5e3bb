"""How much memory of the system is free."""

import os
from contextlib import suppress
from pathlib import Path

# Limits of a container, in both versions of Linux's control groups.
LIMITS = ("memory.max", "memory/memory.limit_in_bytes")


def available_memory() -> int | None:
    """Bytes that are free, at most the limit of a container; None if unknown."""
    limits = [_figure(Path("/sys/fs/cgroup", name)) for name in LIMITS]
    known = [n for n in (*limits, _of_the_system()) if n is not None]
    return min(known, default=None)


def _of_the_system():
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        return 1024 * (kilobytes["MemAvailable"] + kilobytes["SwapFree"])
    except (OSError, LookupError, ValueError):  # no Linux
        pass
    with suppress(AttributeError, OSError, ValueError):
        pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        if pages > 0 and page > 0:
            return pages * page
    return None


def _figure(path):
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # not there, or "max"
        return None
