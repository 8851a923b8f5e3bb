"""Learning rates from progress."""

import math

import pytest

from sk_mice._engine.schedule import SCHEDULES, check_schedule, learning_rate


def test_cosine_falls_from_the_peak_to_zero():
    rate = learning_rate(0.3, "cosine", warmup=0)
    assert rate(0) == 0.3
    assert rate(0.5) == pytest.approx(0.15)
    assert rate(1) == pytest.approx(0)


def test_step_has_the_papers_milestones():
    rate = learning_rate(1.0, "step", warmup=0)
    epochs = {0: 1, 479: 1, 480: 0.1, 639: 0.1, 640: 0.01, 799: 0.01, 800: 0.001}
    for epoch, expected in epochs.items():
        assert rate(epoch / 1000) == pytest.approx(expected)


def test_given_milestones_and_callables():
    rate = learning_rate(2.0, [0.5, 0.75], warmup=0)
    assert [rate(p) for p in (0.4, 0.6, 0.8)] == pytest.approx([2, 0.2, 0.02])
    assert learning_rate(2.0, math.sqrt, warmup=0)(0.25) == 1.0


@pytest.mark.parametrize("schedule", [*SCHEDULES, [0.5], lambda progress: 1.0])
def test_warmup_rises_and_never_rests_at_zero(schedule):
    check_schedule(schedule)
    rate = learning_rate(1.0, schedule, warmup=0.1)
    rises = [rate(p) for p in (0, 0.03, 0.06, 0.089)]
    assert rises == sorted(rises)
    assert 0 < rises[0] < 0.11
    assert rate(0.2) == learning_rate(1.0, schedule, warmup=0)(0.2)


@pytest.mark.parametrize("schedule", ["linear", 0.5, None, [], [0.5, 1.5], ["a"]])
def test_refusals(schedule):
    with pytest.raises(ValueError, match="`schedule` must be one of"):
        check_schedule(schedule)


@pytest.mark.parametrize(
    "schedule",
    [
        *(lambda progress: -1.0, lambda progress: math.nan, lambda progress: math.inf),
        *(lambda progress: "fast", lambda progress: None, lambda: 1.0),
        lambda progress: 0.5 - progress,  # turns negative on the way
    ],
)
def test_callables_are_tried(schedule):
    with pytest.raises(ValueError, match="`schedule` must map progress from 0 to 1"):
        check_schedule(schedule)


def test_what_a_callable_raises_is_its_own():
    with pytest.raises(ZeroDivisionError):
        check_schedule(lambda progress: 1 / 0)
