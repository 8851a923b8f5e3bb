"""Whether images may be mirrored and tilted, decided by the images."""

import math

import numpy as np
import pytest
import torch
from shared import half_mirrored, samples_of
from sklearn.datasets import load_digits

from sk_mice._engine.invariances import (
    _sheared,
    _shrunk,
    gain_of_leaning,
    images_lean,
    mirror_images_look_alike,
    share_nearer_as_it_is,
)

DIGITS = load_digits().images.astype(np.float32) / 16


def decide(X):
    return mirror_images_look_alike(samples_of(X))


def share(images):
    return share_nearer_as_it_is(torch.as_tensor(np.ascontiguousarray(images))[:, None])


def test_digits_are_not_mirrored():
    assert share(DIGITS[:500]) > 0.9
    assert not decide(DIGITS)


def test_what_is_as_likely_mirrored_is_mirrored():
    images = half_mirrored(DIGITS)
    assert abs(share(images[:1000]) - 0.5) < 3 * 0.5 / np.sqrt(1000)
    assert decide(images)


def test_the_share_is_that_of_the_definition():
    images = np.random.RandomState(0).rand(40, 5, 7) + np.linspace(0, 1, 7)
    nearer = []
    for i, image in enumerate(images):
        others = np.delete(images, i, axis=0)
        as_it_is = ((others - image) ** 2).sum((1, 2)).min()
        mirrored = ((others - image[:, ::-1]) ** 2).sum((1, 2)).min()
        nearer.append(as_it_is < mirrored)
    assert share(images) == pytest.approx(np.mean(nearer))


@pytest.mark.parametrize("kind", ["symmetrical", "equal", "one column"])
def test_ties_count_as_half(kind):
    images = DIGITS[:50]
    if kind == "symmetrical":
        images = images + images[:, :, ::-1]
    elif kind == "equal":
        images = np.repeat(images[:1], 50, axis=0)
        images = np.r_[images, images[:, :, ::-1]]
    else:
        images = images[:, :, :1]
    assert share(images) == 0.5
    assert decide(images)


@pytest.mark.parametrize("size", [(8, 8), (33, 45), (70, 5)])
def test_a_mirrored_set_is_judged_alike(size):
    X = np.random.RandomState(0).rand(30, *size) + np.linspace(0, 1, size[1])
    assert decide(X) == decide(np.ascontiguousarray(X[:, :, ::-1]))
    # Larger images are averaged, which must favour neither side.
    images = torch.as_tensor(X)[:, None]
    torch.testing.assert_close(_shrunk(images.flip(-1)), _shrunk(images).flip(-1))


def test_large_images_are_judged_as_small_ones():
    assert not decide(np.kron(DIGITS[:200], np.ones((1, 10, 9), dtype=np.float32)))


def test_few_images_have_to_be_all_the_more_alike():
    assert decide(DIGITS[:4])  # four of four prove nothing
    assert not decide(DIGITS[:50])


# Tilting


def gain(images):
    return gain_of_leaning(torch.as_tensor(np.ascontiguousarray(images))[:, None])


def crosses(n=60, size=24):
    """Upright crosses with arms of random widths and lengths."""
    random = np.random.RandomState(0)
    position = abs(np.arange(size) - size / 2)
    length, width = random.uniform(6, 11, (2, n, 1)), random.uniform(1, 4, (2, n, 1))
    along, across = position < length, position < width
    one = along[0][:, :, None] & across[0][:, None]
    other = across[1][:, :, None] & along[1][:, None]
    return (one | other).astype(np.float32)


def leaning(images, degrees):
    """Every image sheared about its middle by an angle of its own."""
    random = np.random.RandomState(0)
    angles = torch.as_tensor(random.uniform(-degrees, degrees, len(images)))
    stack = torch.as_tensor(images)[:, None]
    sheared = [
        _sheared(x[None], math.radians(a)) for x, a in zip(stack, angles, strict=True)
    ]
    return torch.cat(sheared)[:, 0].numpy()


def test_handwriting_leans():
    assert gain(DIGITS[:1000]) > 0.02
    assert images_lean(samples_of(DIGITS))


def test_what_stands_upright_does_not_lean():
    assert gain(crosses()) < 0.01
    assert gain(leaning(crosses(), 20)) > 0.03
    assert gain(leaning(DIGITS[:200], 20)) > 1.2 * gain(DIGITS[:200])


@pytest.mark.parametrize("kind", ["equal", "constant", "one pixel", "two"])
def test_the_gain_of_what_has_no_shape_is_a_share(kind):
    images = {
        "equal": np.repeat(DIGITS[:1], 9, axis=0),
        "constant": np.zeros((9, 8, 8), np.float32),
        "one pixel": DIGITS[:9, 3:4, 3:4],
        "two": DIGITS[:2],
    }[kind]
    assert 0 <= gain(images) < 0.1
    if kind in ("equal", "constant"):
        assert gain(images) == 0
