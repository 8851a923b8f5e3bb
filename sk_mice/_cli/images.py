"""From a folder to what is clustered: images, or features of their files."""

import hashlib
import os
import sys
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from .._engine.files import errors_name
from .._engine.maps import header
from .._words import count
from ..datasets import find_files, load_image_folder
from ..datasets._decoding import WHITE, Decoder
from ..datasets._paths import NotImagesError, pictures
from ..features import PretrainedFeatures
from ..inspection._thumbnails import side_of_files
from .cores import leave_busy_cores
from .terminal import Progress

# The options on which the features of an image depend.
OF_FEATURES = ("features", "image_size", "resize", "background", "white", "device")
# What to do if images have changed.
AGAIN = "Run the command again."
RESUME = "Once they are there again, --resume goes on; --overwrite begins anew."
THUMBNAIL = 64  # pixels a side, of the images where features are clustered
FEW = 2500  # the largest number of images that are read again, larger, for the page


@dataclass
class Images:
    """The images of a folder."""

    folder: Path
    X: np.ndarray  # (N, H, W, 3), or (N, H, W) if they are grey
    files: np.ndarray  # (N,), their names
    left_out: list[str]  # names of what could not be read
    pixels: dict  # how they were read
    larger: np.ndarray | None = None  # for the page, if features were computed of them

    @cached_property
    def digests(self) -> list[str]:
        """For each image, a hash of it and its name."""
        shas = [
            hashlib.sha256(repr((name, image.shape)).encode() + image.tobytes())
            for name, image in zip(self.files, self.X, strict=True)
        ]
        return [sha.hexdigest()[:32] for sha in shas]

    @property
    def digest(self) -> str:
        """A hash of the images and their names."""
        return hashlib.sha256(repr(self.digests).encode()).hexdigest()

    def paths(self) -> list[str]:
        """The files that a pretrained network reads itself, at its own size."""
        return [os.path.join(self.folder, name) for name in self.files]

    def pictures(self) -> np.ndarray:
        """The images for the page: larger than X if they are few, and the files are."""
        if self.larger is not None:
            return self.larger
        with suppress(ValueError):  # files have gone, or memory has become short
            if side := self._larger_side():
                return pictures(self.paths(), side, **self.pixels)
        return self.X

    def room(self, most: int) -> np.ndarray | None:
        """An array for larger images of at most so many pixels a side, or None."""
        with suppress(ValueError):
            side = self._larger_side()
            if 0 < side <= most:
                return Decoder(side).empty(len(self.files))
        return None

    def _larger_side(self) -> int:
        """Pixels of a side of the images for the page; 0 if X is large enough."""
        side = side_of_files(self.paths()) if len(self.files) <= FEW else 0
        return side if side > self.X.shape[1] else 0


def read_images(folder, parameters: dict, progress: Progress, *, grey=None) -> Images:
    """Read the images of a folder; a warning says why something is left out.

    By default, they are grey if none has a colour, as networks learn less from three
    equal channels. With a pretrained network, they are thumbnails for the page.
    """
    leave_busy_cores(progress)
    size = None if parameters["features"] else parameters["image_size"]
    progress.say(f"Reading the images in {str(folder)!r}")
    # Before the images are read: a file that is added meanwhile is not left out.
    found, problems = find_files(os.fspath(folder))
    X, _, _, files = load_image_folder(
        str(folder),
        size or THUMBNAIL,
        gray=bool(grey),
        **_of_pixels(parameters),
        on_error="warn",
        verbose=progress.verbose,
    )
    if size and grey is None:
        has_colours = any((image != image[..., :1]).any() for image in X)
        if not has_colours:
            X, grey = np.ascontiguousarray(X[..., 0]), True
    every = {"/".join(parts) for parts in (*found, *(parts for parts, _ in problems))}
    left_out = sorted(every - set(files))
    left = f", {len(left_out):,} left out" if left_out else ""
    at = f" of {size} x {size} pixels" if size else ""
    kind = "grey image" if grey else "image"
    progress.say(f"{count(len(files), kind)}{at}{left}")
    return Images(folder, X, files, left_out, _of_pixels(parameters))


def _of_pixels(parameters: dict) -> dict:
    """How pixels are read; runs of earlier versions have fewer options."""
    return {
        "resize": parameters.get("resize") or "crop",
        "background": parameters.get("background") or "white",
        "white": parameters.get("white") or WHITE,
    }


def files_beside(folder, known) -> list[str]:
    """Names of the files of a folder that are not known."""
    found, _ = find_files(os.fspath(folder))
    return [name for name in map("/".join, found) if name not in known]


def facts_of_features(network, images: Images, run: dict) -> dict:
    """What features depend on: images, weights, versions of libraries and options."""
    parameters = run["parameters"]  # of an earlier version, perhaps with fewer options
    return {
        "images": images.digests,
        "size": network.image_size_,
        "weights": network.weights_sha256_,
        "versions": run["versions"],
        **{name: parameters[name] for name in OF_FEATURES if name in parameters},
    }


def features_of(
    network, images: Images, result, facts, progress, into=None, in_fit=False
):
    """Features (N, F) of the files, those of a result or computed by a fitted network.

    `facts` are what the features depend on. New ones are written to `into`, a .npy file
    that grows batch by batch. In a fit, which writes a page, larger images are kept as
    well, if all files are decoded.
    """
    kept, row_of = result.read_features(facts)
    is_new = np.array([digest not in row_of for digest in images.digests])
    rows = [row_of[digest] for digest in images.digests if digest in row_of]
    if rows:
        some = f" of {count(len(rows), 'image')}" if is_new.any() else ""
        progress.say(f"The features{some} are read from {str(result.features)!r}")
    if not is_new.any():
        return kept[rows]
    paths = [path for path, new in zip(images.paths(), is_new, strict=True) if new]
    progress.say(f"Computing the features of {network.network}")
    if in_fit and not rows and not os.path.exists(into):
        images.larger = images.room(network.image_size_)
    with _network_reads(images, RESUME if in_fit else AGAIN):
        if into is None:
            computed = network.transform(paths)
        else:
            computed = _transform_into(into, network, paths, progress, images.larger)
    if not rows:
        return computed
    features = np.empty((len(is_new), computed.shape[1]), computed.dtype)
    features[is_new], features[~is_new] = computed, kept[rows]
    return features


def _transform_into(into, network, paths, progress: Progress, larger=None):
    """Features, written to a .npy file batch by batch; it may have the first rows.

    If it has none, `larger` gets the images.
    """
    n = len(paths)
    start = header((n, network.n_features_out_), np.float32)
    n_bytes = np.dtype(np.float32).itemsize * network.n_features_out_  # of one image
    with errors_name(into), open(into, "a+b") as file:
        n_done, rest = divmod(file.tell() - len(start), n_bytes)
        if n_done == n and not rest:
            return np.load(into)
        # Go on at a whole batch: the last bits of features depend on its size.
        whole = n_done - n_done % network.batch_size_
        file.seek(0)
        n_done = whole if 0 < n_done < n and file.read(len(start)) == start else 0
        file.truncate(len(start) + n_done * n_bytes if n_done else 0)
        if n_done:
            there = count(n_done, "image")
            progress.say(f"The features of {there} are already there")
        with network._computing(paths[n_done:], larger) as (_, batches):
            before = b"" if n_done else start
            for features in batches:
                file.write(before + features.tobytes())
                file.flush()
                before = b""
    return np.load(into)


def fitted_network(parameters: dict, images: Images, progress: Progress):
    """The pretrained network of `--features`, which knows the files; None without."""
    name = parameters["features"]
    if name is None:
        return None
    network = PretrainedFeatures(
        name,
        image_size=parameters["image_size"] or "auto",
        **_of_pixels(parameters),
        device=parameters["device"],
        verbose=progress.verbose,
    )
    with _network_reads(images, AGAIN):
        return network.fit(images.paths())


@contextmanager
def _network_reads(images: Images, if_changed: str):
    """Let a network read image files, and keep what libraries print off stdout.

    A file that can no longer be read has changed since it was read for X.
    """
    try:
        with redirect_stdout(sys.stderr):  # as of a download
            yield
    except NotImagesError as error:
        raise ValueError(
            f"The images in {str(images.folder)!r} have changed since they were read. "
            f"{if_changed} {error}"
        ) from error
