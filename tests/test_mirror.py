"""Whether images may be mirrored, decided by the images."""

from functools import partial

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from sk_mice import MiCEClustering, MoCo
from sk_mice._engine.mirror import (
    _shrunk,
    could_be_mirrored,
    share_nearer_as_it_is,
)
from sk_mice._engine.samples import Samples, infer_format

CPU = torch.device("cpu")
DIGITS = load_digits().images.astype(np.float32) / 16
TINY = {"backbone": "resnet-small-4", "embedding_dim": 8, "max_epochs": 1}


def decide(X):
    return could_be_mirrored(Samples(X, infer_format(X), CPU))


def share(images):
    return share_nearer_as_it_is(torch.as_tensor(np.ascontiguousarray(images))[:, None])


def half_mirrored(images, seed=0):
    """A set that is as likely to hold an image as its mirror image."""
    mirrored = np.random.RandomState(seed).rand(len(images)) < 0.5
    return np.where(mirrored[:, None, None], images[:, :, ::-1], images)


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


@pytest.mark.parametrize("size", [(8, 8), (33, 45), (70, 3)])
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


@pytest.mark.parametrize("make", [partial(MiCEClustering, 1), MoCo])
def test_fit_says_what_it_decided(make):
    X = DIGITS[:100]
    assert make(**TINY).fit(X).flip_ is False
    assert make(**TINY, flip=True).fit(X).flip_ is True
    assert make(**TINY).fit(half_mirrored(X)).flip_ is True
    assert make(**TINY, flip=np.bool_(False)).fit(half_mirrored(X)).flip_ is False


def test_auto_is_what_it_decides():
    auto, off, on = (
        MoCo(**TINY, flip=flip, random_state=0).fit(DIGITS[:100]).history_[-1]["elbo"]
        for flip in ("auto", False, True)
    )
    assert auto == off != on


def test_flip_is_false_where_nothing_is_mirrored():
    vectors = DIGITS[:100].reshape(100, -1)
    assert MoCo(**TINY | {"backbone": "mlp"}, flip=True).fit(vectors).flip_ is False
    assert MoCo(**TINY, flip=True, augmentation=None).fit(DIGITS[:100]).flip_ is False
