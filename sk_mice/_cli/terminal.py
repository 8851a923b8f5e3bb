"""What a user sees on the terminal: progress, results, Ctrl-C."""

import errno
import io
import json
import sys
from contextlib import contextmanager, suppress
from typing import NoReturn

from .._words import count, shortened

SECONDS_BETWEEN_LINES = 60  # of progress, in a log


class Messages:
    """Standard error that drops what it cannot write, so that the work goes on.

    The stream may be None or closed, a log on a full disk, or a ``2>&1 | tee`` that
    Ctrl-C has ended. If it is no terminal, progress bars are lines, one a minute.
    """

    def __init__(self, stream):
        self._stream = stream or io.StringIO()
        on_terminal = self._stream.isatty()
        self.seconds_between_lines = None if on_terminal else SECONDS_BETWEEN_LINES

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def write(self, text):
        """Write a text, or drop it."""
        with suppress(OSError):
            return self._stream.write(text)

    def flush(self):
        """Write what is held back, or keep it."""
        with suppress(OSError):
            self._stream.flush()


class Progress:
    """Messages on stderr on what is being done; none with --quiet."""

    def __init__(self, quiet: bool):
        self.quiet = quiet

    def say(self, text: str) -> None:
        """Print a line."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    @property
    def verbose(self) -> int:
        """1 where progress bars are shown."""
        return int(not self.quiet)


@contextmanager
def _stdout():
    """Standard output; OSError that says so if it cannot be written."""
    if sys.stdout is None:
        raise OSError("The output cannot be written: it is closed.")
    try:
        yield sys.stdout
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads any more, which is not an error
        raise
    except OSError as error:
        # What Windows may say of a pipe that nobody reads.
        if sys.platform == "win32" and error.errno == errno.EINVAL:
            raise BrokenPipeError from error
        raise OSError(f"The output cannot be written: {error.strerror}.") from error


def put(text: str) -> None:
    """Print on stdout, also names of files that its encoding does not have."""
    with _stdout() as stdout:
        encoding = stdout.encoding or "utf-8"
        print(text.encode(encoding, "backslashreplace").decode(encoding), file=stdout)


def put_bytes(content: bytes) -> None:
    """Write to stdout as it is."""
    with _stdout() as stdout:
        stdout.flush()
        stdout.buffer.write(content)


def put_json(facts: dict) -> None:
    """Print one object, in ASCII."""
    put(json.dumps(facts, allow_nan=False))


def not_in(names: list[str], here, there) -> str:
    """Which files of one folder or table another one lacks, in words."""
    are = "is" if len(names) == 1 else "are"
    return (
        f"{count(len(names), 'file')} of {str(here)!r} {are} not in {str(there)!r}: "
        f"{', '.join(shortened([*map(repr, names)]))}"
    )


def visible(text: str) -> str:
    """A text in which characters that cannot be printed are escapes."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def end_after_ctrl_c(text: str) -> NoReturn:
    """Say what is left, even with --quiet, and end with the code of Ctrl-C."""
    print(text, file=sys.stderr, flush=True)
    raise SystemExit(130)
