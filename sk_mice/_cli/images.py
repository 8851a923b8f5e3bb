"""From a folder to what is clustered: images, or features of their files."""

import hashlib
import os

import numpy as np
from sklearn.pipeline import Pipeline

from ..datasets import find_files, load_image_folder
from .terminal import Progress, count

THUMBNAIL = 64  # pixels a side, of the images on the page where features are clustered


def read_images(folder, parameters: dict, progress: Progress):
    """Images (N, H, W, 3), their names, and the names of what is left out.

    A warning says why something is left out. With a pretrained network, the images are
    thumbnails for the page.
    """
    size = None if parameters["features"] else parameters["image_size"]
    progress.say(f"Reading the images in {str(folder)!r}")
    X, _, _, files = load_image_folder(
        str(folder), size or THUMBNAIL, on_error="warn", verbose=progress.verbose
    )
    found, problems = find_files(os.fspath(folder))
    every = {"/".join(parts) for parts in (*found, *(parts for parts, _ in problems))}
    left_out = sorted(every - set(files))
    left = f", {len(left_out):,} left out" if left_out else ""
    at = f" of {size} x {size} pixels" if size else ""
    progress.say(f"{count(len(files), 'image')}{at}{left}")
    return X, files, left_out


def paths_of(folder, files) -> list[str]:
    """The files that a pretrained network reads itself, at its own size."""
    return [os.path.join(folder, name) for name in files]


def digest(X, files) -> str:
    """What is equal for equal images under the same names."""
    sha = hashlib.sha256(repr((X.shape, list(files))).encode())
    sha.update(np.ascontiguousarray(X).data)
    return sha.hexdigest()


def fitted_network(parameters: dict, folder, files, progress: Progress):
    """The pretrained network of `--features`, which knows the files; None without."""
    name = parameters["features"]
    if name is None:
        return None
    from ..features import PretrainedFeatures

    network = PretrainedFeatures(
        name,
        image_size=parameters["image_size"] or "auto",
        device=parameters["device"],
        verbose=progress.verbose,
    )
    return network.fit(paths_of(folder, files))


class Computed:
    """A fitted network with the features that it has computed of some images.

    The page gets it in place of the network, which would compute them again.
    """

    def __init__(self, network, features):
        self.network = network
        self.features = features

    def fit(self, X, y=None):
        """Do nothing: pipelines ask for this method."""
        return self

    def transform(self, X):
        """Features of the images, which X must be."""
        return self.features

    def get_params(self, deep=True):
        """Parameters of the network."""
        return self.network.get_params(deep)

    def __sklearn_is_fitted__(self):
        """Whether it can transform."""
        return True

    def __sklearn_tags__(self):
        """Those of the network."""
        return self.network.__sklearn_tags__()

    def __repr__(self):
        return repr(self.network)


def for_page(model, features):
    """A model that knows the features of the images of a page."""
    if not isinstance(model, Pipeline):
        return model
    computed = Computed(model[0], features)
    return Pipeline([("features", computed), ("clusters", model[-1])])
