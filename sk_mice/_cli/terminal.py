"""What a user sees on the terminal: progress, results, Ctrl-C."""

import json
import sys


class Progress:
    """Says on stderr what is being done, unless it is to be quiet."""

    def __init__(self, quiet: bool):
        self.quiet = quiet

    def say(self, text: str) -> None:
        """Print a line."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    @property
    def verbose(self) -> int:
        """1 where progress bars are shown: on a terminal only."""
        return int(not self.quiet and sys.stderr.isatty())


def put(text: str) -> None:
    """Print on stdout, also names of files that its encoding does not have."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


def put_bytes(content: bytes) -> None:
    """Write to stdout as it is."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def put_json(facts: dict) -> None:
    """Print one object, in ASCII."""
    print(json.dumps(facts, allow_nan=False))


def count(n: int, noun: str) -> str:
    """A number with its noun."""
    return f"{n:,} {noun if n == 1 else f'{noun}s'}"


def end_after_ctrl_c(text: str):
    """Say what is left, also where all else is quiet, and end."""
    print(text, file=sys.stderr, flush=True)
    raise SystemExit(130)
