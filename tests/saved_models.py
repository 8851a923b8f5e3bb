"""Models to save: one of each kind, what they say, and what their files hold."""

import copy
import math
from functools import cache, partial

import numpy as np
import shared
import torch
from sklearn.datasets import load_digits
from torch import nn

from sk_mice import (
    ClassificationEM,
    MoCo,
    NeighborMixture,
    SphericalKMeans,
    _persistence,
)
from sk_mice._engine.storage import read, write
from sk_mice.ablations import PaperMiCE
from sk_mice.augmentation import ImageAugmentation

IMAGES = load_digits(n_class=3).images[:60]
ROWS = IMAGES.reshape(60, -1)
KIND = _persistence._KIND
tiny = partial(shared.tiny, init="random", max_epochs=1)


class Encoder(nn.Module):
    """A user's own, with all that a module may have."""

    def __init__(self, width=4):
        super().__init__()
        self.conv = nn.Conv2d(1, width, 3)
        self.again = self.conv  # shared
        self.norm = nn.BatchNorm2d(width)
        self.register_buffer("scale", torch.full((), 0.5), persistent=False)

    def forward(self, x):
        ramp = torch.linspace(0, 1, x.shape[-1])  # lies where torch thinks right
        return self.norm(self.conv(x * self.scale + ramp)).mean(dim=(2, 3))


FITS = {
    "two stages": lambda: tiny(init="two-stage", max_epochs=2).fit(IMAGES),
    "restarts": lambda: tiny(n_init=2).fit(IMAGES),
    "uniform gate": lambda: tiny(kappa=math.inf).fit(IMAGES),
    "vectors": lambda: tiny(backbone="auto").fit(ROWS),
    "few features": lambda: tiny(backbone="mlp").fit(ROWS[:, 20:25]),
    "flattened": lambda: tiny(image_shape=tuple(np.array([8, 8]))).fit(ROWS),
    "channels": lambda: tiny(image_shape=(16, 2, 2)).fit(ROWS),
    "channels last": lambda: tiny(image_shape=tuple(np.array([4, 4, 4]))).fit(ROWS),
    "auto": lambda: tiny(backbone="auto").fit(IMAGES),
    "parameters of many types": lambda: tiny(
        PaperMiCE,
        tau=np.float32(0.7),
        batch_size=np.int64(9),
        device=torch.device("cpu"),
        augmentation=ImageAugmentation(flip=np.bool_(False), crop_scale=(0.5, 1.0)),
        schedule=[0.5],
    ).fit(IMAGES),
    "labels": lambda: tiny(init=np.arange(60) % 3).fit(IMAGES),
    "a clusterer": lambda: tiny(init=SphericalKMeans(), max_epochs=2).fit(IMAGES),
    "classification EM": lambda: ClassificationEM(3, random_state=0).fit(ROWS),
    "centred": lambda: ClassificationEM(3, center=True, random_state=0).fit(ROWS),
    "neighbours": lambda: NeighborMixture(3, max_epochs=2, random_state=0).fit(ROWS),
    "neighbours, not centred": lambda: NeighborMixture(
        3, center=False, max_epochs=2, random_state=0
    ).fit(ROWS),
    "own backbone": lambda: tiny(backbone=Encoder).fit(IMAGES),
    "moco": lambda: shared.tiny(MoCo).fit(IMAGES),
    "kmeans": lambda: SphericalKMeans(3, random_state=0).fit(ROWS),
    "kmeans, float32": lambda: SphericalKMeans(3).fit(ROWS.astype(np.float32)),
    "kmeans, array": lambda: SphericalKMeans(3, init=ROWS[:3]).fit(ROWS),
    "kmeans, batches": lambda: SphericalKMeans(3).partial_fit(ROWS).partial_fit(ROWS),
}


@cache
def fitted_once(name):
    """A model that no test may change."""
    return FITS[name]()


def fitted(name):
    """A copy to change."""
    return copy.deepcopy(fitted_once(name))


def outputs(model, X):
    names = ("predict", "predict_proba", "transform", "score")
    return {n: getattr(model, n)(X) for n in names if hasattr(model, n)}


def fitting(model):
    """Samples of the values and shape that a model's format has."""
    if isinstance(model, ClassificationEM | NeighborMixture | SphericalKMeans):
        return ROWS
    fmt = model._format
    noise = np.random.default_rng(0).random((20, *fmt.input_shape))
    if fmt.is_image:
        return fmt.low + (fmt.high - fmt.low) * noise
    return np.array(fmt.mean) + np.array(fmt.std) * (noise - 0.5)


def parts_of(path):
    return read(path, **KIND)


def made(path, tensors, document):
    write(path, tensors, document, **KIND)


def changed(document, place, value):
    *way, last = place.split("/")
    part = document
    for step in way:
        part = part[int(step) if step.isdigit() else step]
    part[last] = value
    return document
