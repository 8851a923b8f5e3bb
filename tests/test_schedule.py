"""The default schedule of the learning rate, and the teacher's momentum."""

import pytest

from sk_mice._engine.schedule import cosine, rise, teacher_momentum


def test_the_cosine_rises_never_rests_at_zero_and_falls_to_zero():
    rises = [cosine(p) for p in (0, 0.01, 0.03, 0.049)]
    assert rises == sorted(rises)
    assert 0 < rises[0] < 0.11
    assert rise(0.049, 0.05) < rise(0.05, 0.05) == 1
    assert cosine(0.5) == pytest.approx(0.5)
    assert cosine(1) == pytest.approx(0)


def test_the_teacher_averages_over_a_hundredth_of_the_steps():
    for n_steps, length in ((10, 100), (10_000, 100), (50_000, 500), (10**7, 1000)):
        assert 1 / (1 - teacher_momentum(n_steps)) == pytest.approx(length)
