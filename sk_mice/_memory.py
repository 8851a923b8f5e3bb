"""How much memory of the system is free."""

import os
import re
from contextlib import suppress
from pathlib import Path

# Where both versions of Linux's control groups have their limits, by what they manage.
GROUPS = Path("/sys/fs/cgroup")
LIMITS = {"": "memory.max", "memory": "memory.limit_in_bytes"}


def available_memory() -> int | None:
    """Bytes that are free, at most the limit of a container or job; None if unknown."""
    known = [n for n in (*_limits(), _of_the_system()) if n is not None]
    return min(known, default=None)


def _limits():
    """Limits of the control group of the process, and of the groups around it."""
    lines = ""
    with suppress(OSError):  # no Linux
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="replace")
    own = re.findall("^[0-9]+:(memory|):/(.*)$", lines, re.MULTILINE)
    for kind, name in [*own, ("", ""), ("memory", "")]:  # a container may hide its name
        for group in (Path(name), *Path(name).parents):
            yield _figure(GROUPS / kind / group / LIMITS[kind])


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
