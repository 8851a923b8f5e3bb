"""From a folder to what is clustered: images, or features of their files."""

import hashlib
import os
import sys
from contextlib import contextmanager, redirect_stdout

import numpy as np

from .._engine.files import naming
from .._engine.maps import header
from .._words import count
from ..datasets import find_files, load_image_folder
from ..datasets._decoding import WHITE
from ..datasets._paths import NotImagesError
from .terminal import Progress

# What decides the features of an image, beside the weights and the versions.
OF_FEATURES = ("features", "image_size", "white", "device")
AGAIN = "Run the command again."
GO_ON = "Once they are there again, --resume goes on; --overwrite begins anew."
THUMBNAIL = 64  # pixels a side, of the images on the page where features are clustered


def read_images(folder, parameters: dict, progress: Progress, *, grey=None):
    """Images, their names, and the names of what is left out.

    The images have the shape (N, H, W, 3), or (N, H, W) if they are grey; by default
    if none has a colour, as networks learn less from three equal channels. A warning
    says why something is left out. With a pretrained network, the images are thumbnails
    for the page.
    """
    size = None if parameters["features"] else parameters["image_size"]
    progress.say(f"Reading the images in {str(folder)!r}")
    # First: a file that comes while the images are read has not been left out.
    found, problems = find_files(os.fspath(folder))
    X, _, _, files = load_image_folder(
        str(folder),
        size or THUMBNAIL,
        grey=bool(grey),
        white=parameters["white"] or WHITE,
        on_error="warn",
        verbose=progress.verbose,
    )
    if size and grey is None and not any(map(_has_colours, X)):
        X, grey = np.ascontiguousarray(X[..., 0]), True
    every = {"/".join(parts) for parts in (*found, *(parts for parts, _ in problems))}
    left_out = sorted(every - set(files))
    left = f", {len(left_out):,} left out" if left_out else ""
    at = f" of {size} x {size} pixels" if size else ""
    kind = "grey image" if grey else "image"
    progress.say(f"{count(len(files), kind)}{at}{left}")
    return X, files, left_out


def files_beside(folder, known) -> list[str]:
    """Names of the files of a folder that are not known."""
    found, _ = find_files(os.fspath(folder))
    return [name for name in map("/".join, found) if name not in known]


def _has_colours(image) -> bool:
    red = image[..., :1]
    return bool((image != red).any())


def paths_of(folder, files) -> list[str]:
    """The files that a pretrained network reads itself, at its own size."""
    return [os.path.join(folder, name) for name in files]


def features_of(network, folder, files, result, facts, progress: Progress):
    """Features (N, F) of the files, by a fitted network, or those kept in a result."""
    kept = kept_features(result, facts, progress)
    if kept is not None:
        return kept
    progress.say(f"Computing the features of {network.network}")
    with _printed_on_stderr(), _as_they_were(folder, AGAIN):
        return network.transform(paths_of(folder, files))


def features_in_file(network, folder, files, path, progress: Progress):
    """Features, written to a .npy file batch by batch; rows it has are not computed."""
    start = header((len(files), network.n_features_out_), np.float32)
    n_bytes = np.dtype(np.float32).itemsize * network.n_features_out_  # of one image
    with naming(path), open(path, "ab") as file:
        n_done, rest = divmod(file.tell() - len(start), n_bytes)
        if n_done == len(files) and not rest:
            return np.load(path)
        # The last bits depend on the size of a batch.
        whole = n_done - n_done % network.batch_size_
        n_done = whole if 0 < n_done < len(files) else 0
        file.truncate(len(start) + n_done * n_bytes if n_done else 0)
        progress.say(f"Computing the features of {network.network}")
        if n_done:
            progress.say(f"Those of {count(n_done, 'image')} are there")
        with (
            _printed_on_stderr(),
            _as_they_were(folder, GO_ON),
            network._computing(paths_of(folder, files[n_done:])) as (_, batches),
        ):
            before = b"" if n_done else start
            for features in batches:
                file.write(before + features.tobytes())
                file.flush()
                before = b""
    return np.load(path)


def facts_of_features(network, images: str, run: dict) -> dict:
    """What decides features: images, by their digest, weights, options and versions."""
    return {
        "images": images,
        "weights": network.weights_sha256_,
        "versions": run["versions"],
        **{name: run["parameters"][name] for name in OF_FEATURES},
    }


def kept_features(result, facts: dict, progress: Progress):
    """The features in a result, if they were made of this; None otherwise."""
    features = result.read_features(facts)
    if features is not None:
        progress.say(f"The features are those in {str(result.features)!r}")
    return features


def digest(X, files) -> str:
    """A hash of the images and their names."""
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
        white=parameters["white"] or WHITE,
        device=parameters["device"],
        verbose=progress.verbose,
    )
    with _printed_on_stderr(), _as_they_were(folder, AGAIN):
        return network.fit(paths_of(folder, files))


@contextmanager
def _as_they_were(folder, what_to_do):
    """Say of images that could be read at first, and not again, that they changed."""
    try:
        yield
    except NotImagesError as error:
        what = f"The images in {str(folder)!r} have changed since they were read."
        raise ValueError(f"{what} {what_to_do} {error}") from error


def _printed_on_stderr():
    """Leaves stdout to the results: libraries print what they download."""
    return redirect_stdout(sys.stderr)
