"""Numbers, durations and long lists in words."""

import pytest

from sk_mice._words import LISTED, count, duration, shortened


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min"), (9000, "2.5 h")],
)
def test_durations(seconds, words):
    assert duration(seconds) == words


def test_numbers_have_their_nouns():
    assert [count(n, "image") for n in (0, 1, 2000)] == [
        *("0 images", "1 image", "2,000 images"),
    ]


def test_long_lists_are_shortened():
    few = ["a"] * LISTED
    assert shortened(few) == few
    assert shortened([*few, "b", "c"]) == [*few, "and 2 more"]
