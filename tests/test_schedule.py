"""The default schedule of the learning rate, and the teacher's momentum."""

import math

import pytest

from sk_mice._engine.schedule import cosine, rise, teacher_momentum


def test_the_default_is_a_rise_over_a_twentieth_and_half_a_cosine():
    for progress, risen in ((0, 0.1), (0.025, 0.55), (0.05, 1), (0.5, 1), (1, 1)):
        falling = 0.5 * (1 + math.cos(math.pi * progress))
        assert cosine(progress) == pytest.approx(risen * falling)
    assert rise(0, 0) == 1


def test_the_teacher_averages_over_a_hundredth_of_the_steps():
    for n_steps, length in ((10, 100), (10_000, 100), (50_000, 500), (10**7, 1000)):
        assert 1 / (1 - teacher_momentum(n_steps)) == pytest.approx(length)
