"""What a test needs of the system, and processes that are forked."""

import multiprocessing
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sk_mice._engine import files


def _words_of_a_missing_file():
    try:
        os.stat("no such file")
    except OSError as error:
        return error.strerror


NOT_THERE = _words_of_a_missing_file()  # Windows has others


def needs(there, what):
    """Mark a test that needs something of the system."""
    return pytest.mark.skipif(not there, reason=f"needs {what}")


def _links(file):
    os.symlink(file, f"{file}-link")
    return True


def _modes(file):
    os.chmod(file, 0o640)
    return file.stat().st_mode & 0o777 == 0o640


def _replaced(file):
    other = file.with_name("other")
    other.touch()
    with file.open("rb"):
        os.replace(other, file)
    return True


def _works(probe):
    """Whether a probe with a file is true, and no error."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "file")
        file.touch()
        try:
            return probe(file)
        except OSError:
            return False


needs_full_device = needs(os.path.exists("/dev/full"), "/dev/full")
needs_links = needs(_works(_links), "symbolic links, which this user may make")
needs_locks = needs(files.fcntl, "locks of files")
needs_modes = needs(_works(_modes), "modes of files for group and others")
needs_open_files_replaced = needs(_works(_replaced), "open files to be replaced")
needs_pipes = needs(hasattr(os, "mkfifo"), "named pipes")
needs_proc = needs(Path("/proc/self/maps").exists(), "/proc")
needs_clear_refs = needs(
    Path("/proc/self/clear_refs").exists(), "/proc, to measure the memory of a call"
)
needs_resource = needs(find_spec("resource"), "the module resource")


# Later Pythons warn of threads, of which the children here make no use.
def forks(test):
    """Mark a test that needs forks."""
    test = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")(test)
    return needs(hasattr(os, "fork"), "fork")(test)


def child(work):
    """A process that does some work and ends."""
    process = multiprocessing.get_context("fork").Process(target=work, daemon=True)
    process.start()
    return process


def peak_memory(children=False):
    """Bytes that this process, or one that it has started, has had at most."""
    import resource  # not on Windows

    unit = 1 if sys.platform == "darwin" else 1024
    who = resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF
    return unit * resource.getrusage(who).ru_maxrss
