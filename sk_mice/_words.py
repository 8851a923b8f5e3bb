"""Numbers, shares, durations and long lists in words."""

LISTED = 20


def count(n: int, noun: str) -> str:
    """A number with its noun."""
    return f"{n:,} {noun if n == 1 else f'{noun}s'}"


def duration(seconds: float) -> str:
    """A time in words."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def as_shown(shares):
    """Shares in whole percents, so that limits agree with what is read.

    A half is rounded up, as on the page of a report, and also if a sum of float32 is a
    little less.
    """
    return (100 * shares + 0.50005) // 1 / 100


def shortened(items: list[str]) -> list[str]:
    """All items, or the first ones and how many more there are."""
    if len(items) <= LISTED:
        return items
    return [*items[:LISTED], f"and {len(items) - LISTED} more"]
