"""How augmentations are meant, and what "auto" decides for a set of samples."""

from fractions import Fraction
from functools import wraps

import numpy as np
import pytest
from shared import half_mirrored, samples_of, tiny
from sklearn.base import clone
from sklearn.datasets import load_digits

from sk_mice import MiCEClustering, MoCo
from sk_mice.augmentation import (
    ImageAugmentation,
    VectorAugmentation,
    resolve_augmentation,
)

DIGITS = load_digits().images[:100]
VECTORS = DIGITS.reshape(100, -1)
CLOTHES = (np.arange(24) % 12 < 6) * np.linspace(1, 2, 60)[:, None, None] + DIGITS[
    :60, :1, :1
] * np.ones((24, 24))


def resolved(augmentation, X):
    return resolve_augmentation(augmentation, samples_of(X))


def test_auto_decides_by_the_images():
    handwriting = resolved("moco", DIGITS)
    assert handwriting.get_params() == {
        "colors": "moco",
        "flip": False,
        "crop_scale": (0.5, 1.0),
        "affine": (10.0, 10.0),
    }
    assert resolved("moco", half_mirrored(DIGITS)).flip is True
    assert resolved("simclr", CLOTHES).affine == (0.0, 0.0)
    colour = np.repeat(DIGITS[..., None], 3, axis=-1)
    assert resolved("moco", colour).affine == (0.0, 0.0)


def test_automatic_crop_scale():
    for shape, expected in (
        ((28, 28), (0.5, 1.0)),
        ((32, 32), (0.5, 1.0)),
        ((20, 33), (0.2, 1.0)),
        ((28, 28, 3), (0.2, 1.0)),
    ):
        X = np.random.default_rng(0).random((5, *shape))
        assert resolved("moco", X).crop_scale == expected


def test_what_is_given_is_taken():
    given = ImageAugmentation(
        colors=None, flip=np.bool_(True), crop_scale=[0.3, 1], affine=[5, 0]
    )
    found = resolved(given, DIGITS)
    assert found.get_params() == {
        "colors": None,
        "flip": True,
        "crop_scale": (0.3, 1.0),
        "affine": (5.0, 0.0),
    }
    assert given.affine == [5, 0]
    assert resolved("simclr", VECTORS).get_params() == {
        "noise": 0.2,
        "replacement": 0.4,
    }
    fractions = VectorAugmentation(noise=Fraction(1, 2), replacement=Fraction(1, 4))
    assert resolved(fractions, VECTORS).get_params() == {
        "noise": 0.5,
        "replacement": 0.25,
    }
    assert resolved(None, DIGITS) is None
    assert resolved(divmod, DIGITS) is divmod

    @wraps(abs)
    def wrapper(images, generator):
        return images

    assert resolved(wrapper, DIGITS) is wrapper


@pytest.mark.parametrize("cls", [MiCEClustering, MoCo])
def test_a_fit_says_what_it_decided(cls):
    one_cluster = {"n_clusters": 1} if cls is MiCEClustering else {}
    estimator = tiny(cls, max_epochs=1, **one_cluster).fit(DIGITS)
    assert estimator.augmentation_.flip is False
    assert estimator.augmentation == "moco"
    again = clone(estimator).set_params(augmentation__flip=True).fit(DIGITS)
    assert again.augmentation_.flip is True
    assert again.history_[-1]["elbo"] != estimator.history_[-1]["elbo"]


def test_auto_is_what_it_decides():
    def elbo(**parts):
        augmentation = ImageAugmentation(**parts)
        moco = tiny(MoCo, max_epochs=1, augmentation=augmentation)
        return moco.fit(DIGITS).history_[-1]["elbo"]

    assert elbo() == elbo(flip=False, affine=(10, 10))
    assert elbo() != elbo(affine=(0, 0))
