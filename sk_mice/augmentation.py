"""Augmentations: how the random views of a training step are made.

The `augmentation` of an estimator is an object of this module, whose parameters a
search can set as in ``augmentation__flip``, or a name, None (plain samples) or a
callable.
"""

import math
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import StrOptions

from ._constraints import Number, check_call, floats
from ._engine.invariances import images_lean, mirror_images_look_alike

__all__ = ["ImageAugmentation", "VectorAugmentation"]

# Rotation and shear of views of images that lean, in degrees. Chosen on handwriting.
USUAL_TILT = (10.0, 10.0)


class ImageAugmentation(BaseEstimator):
    """Random views of images: crops, mirror images, tilts and colours.

    Parameters
    ----------
    colors : {"moco", "simclr"} or None, default="moco"
        "moco" changes brightness, contrast, saturation and hue of every view and makes
        a fifth of the views grey. "simclr" makes larger changes, except of the hue, and
        blurs half of the views. None does not change colours. The last of four channels
        keeps its values. Channels that are neither grey nor red, green and blue all
        change alike, in brightness and contrast only.
    flip : bool or "auto", default="auto"
        Whether to mirror images at random, left to right. "auto" mirrors them unless
        mirror images look unlike the images of X, as for digits and text.
    crop_scale : "auto" or tuple (low, high), default="auto"
        Range of the area of random crops, as a share of the image. "auto" is the
        paper's (0.2, 1), and (0.5, 1) for grey images up to 32 pixels.
    affine : "auto" or tuple (rotation, shear), default="auto"
        Largest angles in degrees, at most 180 and 45. Views are rotated, and sheared
        along their rows, to either side. "auto" is the paper's (0, 0), and (10, 10) for
        grey images up to 32 pixels that lean, such as handwriting.

    References
    ----------
    He et al., "Momentum contrast for unsupervised visual representation learning",
    CVPR 2020. Chen et al., "A simple framework for contrastive learning of visual
    representations", ICML 2020.

    Examples
    --------
    >>> from sk_mice import MiCEClustering
    >>> from sk_mice.augmentation import ImageAugmentation
    >>> mice = MiCEClustering(10, augmentation=ImageAugmentation(flip=False))
    >>> mice.set_params(augmentation__crop_scale=(0.3, 1)).augmentation
    ImageAugmentation(crop_scale=(0.3, 1), flip=False)
    """

    _parameter_constraints: dict = {
        "colors": [StrOptions({"moco", "simclr"}), None],
        "flip": ["boolean", StrOptions({"auto"})],
        "crop_scale": "no_validation",  # checked in `_decided`
        "affine": "no_validation",
    }

    def __init__(
        self,
        *,
        colors: Any = "moco",
        flip: Any = "auto",
        crop_scale: Any = "auto",
        affine: Any = "auto",
    ) -> None:
        self.colors = colors
        self.flip = flip
        self.crop_scale = crop_scale
        self.affine = affine

    def _decided(self, samples):
        """A copy in which every "auto" is replaced by what suits the samples."""
        self._validate_params()
        fmt = samples.format
        if not fmt.is_image:
            raise ValueError(
                "`augmentation` must be VectorAugmentation, a name, a callable or None "
                f"for vectors; got {self}. If they are flattened images, set "
                "`image_shape`."
            )
        # Scans of characters are grey and small.
        small = fmt.shape[0] == 1 and max(fmt.shape[1:]) <= 32
        flip, crop_scale, affine = self.flip, self.crop_scale, self.affine
        if _is_auto(crop_scale):
            crop_scale = (0.5, 1.0) if small else (0.2, 1.0)
        low, high = _pair(crop_scale)
        if not 0 < low <= high <= 1:
            raise ValueError(
                "`crop_scale` must be 'auto' or (low, high) with 0 < low <= high <= 1; "
                f"got {crop_scale!r}."
            )
        if _is_auto(affine):
            affine = USUAL_TILT if small and images_lean(samples) else (0.0, 0.0)
        rotation, shear = _pair(affine)
        if not (0 <= rotation <= 180 and 0 <= shear <= 45):
            raise ValueError(
                "`affine` must be 'auto' or (rotation, shear) in degrees, from 0 to "
                f"180 and from 0 to 45; got {affine!r}."
            )
        if _is_auto(flip):
            flip = mirror_images_look_alike(samples)
        return ImageAugmentation(
            colors=self.colors,
            flip=bool(flip),
            crop_scale=(low, high),
            affine=(rotation, shear),
        )


class VectorAugmentation(BaseEstimator):
    """Random views of vectors: noise, and values of other samples.

    Parameters
    ----------
    noise : float, default=0.1
        Standard deviation of Gaussian noise, relative to that of each feature.
    replacement : float, default=0.2
        Share of the values that are replaced by the same feature of another sample of
        the batch, as in SCARF.

    References
    ----------
    Bahri et al., "SCARF: self-supervised contrastive learning using random feature
    corruption", ICLR 2022.

    Examples
    --------
    >>> from sk_mice.augmentation import VectorAugmentation
    >>> VectorAugmentation(noise=0.5)
    VectorAugmentation(noise=0.5)
    """

    _parameter_constraints: dict = {
        "noise": [Number(0, 1e6, closed="both")],
        "replacement": [Number(0, 1, closed="both")],
    }

    def __init__(self, *, noise=0.1, replacement=0.2) -> None:
        self.noise = noise
        self.replacement = replacement

    def _decided(self, samples):
        """A copy with plain numbers, if the samples are vectors."""
        self._validate_params()
        if samples.format.is_image:
            raise ValueError(
                "`augmentation` must be ImageAugmentation, a name, a callable or None "
                f"for images; got {self}."
            )
        noise, replacement = float(self.noise), float(self.replacement)
        return VectorAugmentation(noise=noise, replacement=replacement)


AUGMENTATIONS = ImageAugmentation, VectorAugmentation  # all that a file may hold
NAMED = {
    "moco": (ImageAugmentation(), VectorAugmentation()),
    "simclr": (
        ImageAugmentation(colors="simclr"),
        VectorAugmentation(noise=0.2, replacement=0.4),
    ),
}


def resolve_augmentation(augmentation, samples):
    """An estimator's `augmentation` as an object without "auto", a callable or None.

    Raises ValueError or TypeError if it is anything else, or is not for such samples.
    """
    if isinstance(augmentation, str) and augmentation in NAMED:
        augmentation = NAMED[augmentation][0 if samples.format.is_image else 1]
    if augmentation is None:
        return None
    if callable(augmentation) and not isinstance(augmentation, type):
        rule = "`augmentation` must be called as augmentation(images, generator)"
        check_call(augmentation, rule, 2)
        return augmentation
    if isinstance(augmentation, AUGMENTATIONS):
        return augmentation._decided(samples)
    error = ValueError if isinstance(augmentation, str) else TypeError
    raise error(
        f"`augmentation` must be {', '.join(map(repr, NAMED))}, an object of "
        f"`sk_mice.augmentation`, a callable or None; got {augmentation!r}."
    )


def _is_auto(value) -> bool:
    return isinstance(value, str) and value == "auto"


def _pair(values) -> tuple[float, float]:
    """Two floats, which are NaN if the values are anything else."""
    try:
        first, second = floats(values)
    except (TypeError, ValueError):
        return math.nan, math.nan
    return first, second
