"""Images as arrays: from a folder, and two small data sets.

Every loader returns ``(X, y, names)``: the images, their classes as integers from 0,
and the names of the classes. `load_image_folder` also returns the names of the files.
The classes are for scores; no estimator needs them.
"""

import gzip
import os
import zlib
from heapq import heappop, heappush
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn import datasets as sklearn_datasets
from sklearn.utils._param_validation import StrOptions, validate_params

from .._constraints import Count
from .._engine.warn import warn_user
from .._progress_bar import tqdm
from .._words import shortened
from ._decoding import LONGEST_SIDE, WHITE, Decoder
from ._file import decode_to_file, files_of
from ._names import is_hidden
from ._paths import unreadable

__all__ = ["load_digits", "load_fashion_mnist", "load_image_folder"]

MOST_ENTRIES = 10_000_000  # files and folders below a folder
# Where Debian's package dataset-fashion-mnist puts its files.
DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
FASHION_MNIST_FILES = (
    *("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    *("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
)
FASHION_MNIST_CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)


@validate_params(
    {
        "path": [str, os.PathLike],
        "image_size": [Count(1, LONGEST_SIDE), tuple, list],
        "gray": ["boolean"],
        "resize": [StrOptions({"crop", "stretch"})],
        "background": [str],
        "white": [Count(1)],
        "on_error": [StrOptions({"raise", "warn"})],
        "out": [str, os.PathLike, None],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    },
    prefer_skip_nested_validation=True,
)
def load_image_folder(
    path,
    image_size,
    *,
    gray=False,
    resize="crop",
    background="white",
    white=WHITE,
    on_error="raise",
    out=None,
    n_jobs: Any = -1,
    verbose=0,
) -> tuple[np.ndarray, np.ndarray, list[str], np.ndarray]:
    """Read the images in a folder and in the folders below it, at one size.

    Formats are AVIF, BMP, GIF, HEIC (with the extra `heif`), JPEG, JPEG 2000, PNG, PPM
    (also PBM, PGM and PFM), TGA, TIFF and WebP, as far as Pillow was built with them.
    No program is started. Of an animation or a stack, the first frame is read. Images
    are rotated as their EXIF data say, 16 bits become 8, other colour spaces become
    RGB, and `background` shows through transparent pixels.

    All threads of the process together decode at most 1 GiB at a time, besides X and
    some megabytes per thread. An image that needs up to 2 GiB is decoded alone. One
    that needs more cannot be read, nor can one with more pixels than
    ``PIL.Image.MAX_IMAGE_PIXELS``.

    Parameters
    ----------
    path : str or path-like
        The folder. Files and folders in it whose names begin with a dot are ignored,
        and so is what Windows, macOS and network drives keep in folders of images, such
        as `Thumbs.db`, `$RECYCLE.BIN` and `@eaDir`. More than 10,000,000 files and
        folders are an error. Links are followed. A file to which several paths lead is
        read once: by the path without links, or by the first path if all have links.
        Hard links count as separate files.
    image_size : int or tuple (H, W)
        Height and width in X, each at most 4,096; an int is both.
    gray : bool, default=False
        Whether to convert the images to grey. X then has shape (N, H, W).
    resize : {"crop", "stretch"}, default="crop"
        "crop" keeps the proportions and crops the centre of the image to those of
        `image_size`; "stretch" keeps the whole image.
    background : str, default="white"
        Colour behind transparent pixels, by name or as "#rrggbb".
    white : int, default=65535
        Value of white in 16-bit grey images, for example 4095 if a camera uses 12 of
        the bits. An image with larger values cannot be read. Nor can a PNG or TIFF file
        with 16-bit colours, unless `white` is 65535. Floats are from 0 to 1. In TIFF
        files that pack 12 bits, white is 4095 unless `white` is less.
    on_error : {"raise", "warn"}, default="raise"
        Whether files that are not images, or cannot be read completely, raise an error,
        or are left out with one warning that lists them. The error or the warning comes
        after all files have been tried.
    out : str or path-like, default=None
        A .npy file for the images, which then need not fit into memory. The same call
        goes on where it was interrupted, and returns at once if the file is complete
        and no image was changed. If images were added or removed, all are read again. A
        second file, whose name ends in ".files", has the names, sizes and times of the
        images. Other files are not replaced.
    n_jobs : int, default=-1
        Number of threads, as in joblib; -1 uses all cores.
    verbose : int, default=0
        1 shows a progress bar.

    Returns
    -------
    X : ndarray of shape (N, H, W, 3), or (N, H, W) if `gray`, uint8
        In the order of `files`. With `out`, a read-only memory map.
    y : ndarray of shape (N,), int64
        The class of each image: the index in `names` of the subfolder of `path` that
        holds it, at any depth; -1 for images in `path` itself.
    names : list of str
        Names of the subfolders with images, sorted.
    files : ndarray of shape (N,), object
        Path of each image relative to `path`, with "/" between its parts, sorted. It
        is an array, so that ``files[labels == 0]`` lists a cluster.

    Raises
    ------
    FileNotFoundError, NotADirectoryError
        If `path` is not a folder.
    ValueError
        If a parameter is invalid, if there is no image, or, with ``on_error="raise"``,
        if a file cannot be read.
    OSError
        If `out` cannot be written, for example because the disk has no room for all
        images, or if it is a file that no earlier call has written.

    Warns
    -----
    UserWarning
        With ``on_error="warn"``, if files are left out: how many, which, and why. If
        most images with 16 bits, grey or in colours, are nearly black. If images with
        transparent pixels are nearly one colour on `background`. If images have
        channels besides colours and transparency, or TIFF files several pages, which
        are not read.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from PIL import Image
    >>> from sk_mice.datasets import load_image_folder
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("cat/1.png", "cat/2.png", "dog/1.png"):
    ...         file = Path(folder, name)
    ...         file.parent.mkdir(exist_ok=True)
    ...         Image.new("RGB", (40, 30), "red").save(file)
    ...     X, y, names, files = load_image_folder(folder, 16)
    ...     file, *_ = load_image_folder(folder, 16, out=Path(folder, "images.npy"))
    ...     kind, same = type(file).__name__, bool((X == file).all())
    ...     del file  # Windows removes no file that is in use
    >>> X.shape, y, names, files[0]
    ((3, 16, 16, 3), array([0, 0, 1]), ['cat', 'dog'], 'cat/1.png')
    >>> kind, same
    ('memmap', True)
    """
    decoder = Decoder(
        image_size, gray=gray, resize=resize, background=background, white=white
    )
    root = os.fspath(path)
    found, problems = find_files(root)
    if out is not None:  # `out` may lie in the folder
        own = files_of(out, root)
        found = [parts for parts in found if parts not in own]

    def decode(X, rows):
        """Fill rows of X; yields for each why it cannot be filled, or None."""

        def load(row):
            return decoder.into(X[row], os.path.join(root, *found[row]))

        # Threads can write into one X, and Pillow decodes without the GIL.
        tasks = Parallel(n_jobs, require="sharedmem", return_as="generator")(
            delayed(load)(row) for row in rows
        )
        n_there = len(found) - len(rows)
        bar = {"initial": n_there, "disable": not verbose}
        yield from tqdm(tasks, "reading images", len(found), unit="", **bar)
        decoder.warn()  # of what it has read: after an interruption, of the rest

    if out is None or not found:
        X = decoder.empty(len(found))
        reasons = list(decode(X, range(len(found))))
    else:
        leave_out = on_error == "warn"
        X, reasons = decode_to_file(
            out, decoder, root, found, decode, leave_out=leave_out
        )

    good = [row for row, reason in enumerate(reasons) if reason is None]
    problems += unreadable(found, reasons)
    raise_or_warn(problems, root, on_error)
    if not good:
        raise ValueError(f"`path` must hold images; there are none in {root!r}.")
    files = [found[row] for row in good]
    names = sorted({parts[0] for parts in files if len(parts) > 1})
    number = {name: k for k, name in enumerate(names)}
    y = np.array([number.get(parts[0], -1) for parts in files], dtype=np.int64)
    if len(good) < len(X):  # a file has only the good ones
        for row, kept in enumerate(good):  # in place: a copy might not fit into memory
            X[row] = X[kept]
        X = X[: len(good)]
    return X, y, names, np.array(["/".join(parts) for parts in files], dtype=object)


def find_files(root):
    """Files below `root`, sorted, and pairs of a folder that gives none and why.

    Paths are tuples of their parts, by which they are sorted, so that the files of a
    folder stay together. Each folder is entered once, by a path without links if there
    is one.
    """
    os.scandir(root).close()  # raises if it is not a folder
    pending = [(False, (), ())]  # a heap: by a link, parts, folders above
    entered, files, problems, number = set(), [], [], 0
    while pending:
        linked, parts, above = heappop(pending)
        folder = os.path.join(root, *parts)
        here = os.path.realpath(folder)
        if here in above:
            problems.append((parts, "links to a folder that it lies in"))
        if here in entered:
            continue
        entered.add(here)
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    number += 1
                    if number > MOST_ENTRIES:
                        raise ValueError(
                            f"`path` must hold at most {MOST_ENTRIES:,} files and "
                            f"folders, links followed; {root!r} holds more."
                        )
                    if is_hidden(entry.name):
                        continue
                    by_link = linked or entry.is_symlink()
                    found = by_link, (*parts, entry.name)
                    if os.path.isdir(entry.path):
                        heappush(pending, (*found, (*above, here)))
                    else:
                        files.append((*found, _place(entry, here)))
        except OSError as error:
            problems.append((parts, error.strerror))
    paths = {}
    for _, parts, place in sorted(files):
        paths.setdefault(place, parts)
    return sorted(paths.values()), problems


def _place(entry, folder):
    """The real folder and name of a file, whichever path leads to it."""
    if not entry.is_symlink():
        return folder, entry.name
    # Links that lead to nothing are listed one by one.
    real = os.path.realpath(entry) if os.path.exists(entry) else entry.path
    return os.path.split(real)


def raise_or_warn(problems, root, on_error):
    """Raise one error, or warn once, for all files and folders that are not in X."""
    if not problems:
        return
    lines = [f"{'/'.join(parts)!r}: {reason}" for parts, reason in sorted(problems)]
    what = f"Files or folders in {root!r} that cannot be read as images"
    if on_error == "raise":
        what += f': {len(lines)}; on_error="warn" leaves them out.'
        raise ValueError("\n  ".join([what, *shortened(lines)]))
    what += f", and are left out: {len(lines)}."
    warn_user("\n  ".join([what, *lines]))  # all of them


def load_digits() -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Load the handwritten digits that come with scikit-learn.

    Returns
    -------
    X : ndarray of shape (1797, 8, 8), float64
        Grey images with values from 0 to 16.
    y : ndarray of shape (1797,), int64
        The digit of each image.
    names : list of str
        "0" to "9".

    Examples
    --------
    >>> from sk_mice.datasets import load_digits
    >>> X, y, names = load_digits()
    >>> X.shape, names[y[0]]
    ((1797, 8, 8), '0')
    """
    digits = sklearn_datasets.load_digits()
    y = digits.target.astype(np.int64)
    return digits.images, y, [str(name) for name in digits.target_names]


def load_fashion_mnist(
    root=None, *, download=False
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Load Fashion-MNIST [1]_: grey images of ten kinds of clothing.

    Training and test images are joined.

    Parameters
    ----------
    root : str or path-like, default=None
        Folder with the four files of the data set (``train-images-idx3-ubyte``,
        ``train-labels-idx1-ubyte``, ``t10k-images-idx3-ubyte``,
        ``t10k-labels-idx1-ubyte``, each with or without ``.gz``), or folder in which
        torchvision keeps them, under ``FashionMNIST/raw``. None looks where Debian's
        package ``dataset-fashion-mnist`` puts them, then in scikit-learn's data home
        (:func:`sklearn.datasets.get_data_home`).
    download : bool, default=False
        Whether torchvision downloads the files (about 30 MB) into `root` or the data
        home if they are missing.

    Returns
    -------
    X : ndarray of shape (70000, 28, 28), uint8
        The 60,000 training images, then the 10,000 test images; 0 is the background.
    y : ndarray of shape (70000,), int64
        Classes from 0 to 9.
    names : list of str
        Names of the classes.

    Raises
    ------
    FileNotFoundError
        If the files are missing and `download` is False.
    ValueError
        If a file is damaged, or images and labels differ in number.

    References
    ----------
    .. [1] Xiao, Rasul and Vollgraf, "Fashion-MNIST: a Novel Image Dataset for
       Benchmarking Machine Learning Algorithms", 2017.

    Examples
    --------
    Not run with the doctests, as the files need not be there:

    >>> from sk_mice.datasets import load_fashion_mnist
    >>> X, y, names = load_fashion_mnist(download=True)  # doctest: +SKIP
    >>> X.shape, names[y[0]]  # doctest: +SKIP
    ((70000, 28, 28), 'Ankle boot')
    """
    home = Path(sklearn_datasets.get_data_home() if root is None else root)
    torchvisions = home / "FashionMNIST" / "raw"
    folders = DEBIAN_FASHION_MNIST if root is None else home, torchvisions
    files = next(filter(None, map(_fashion_mnist_files, folders)), None)
    if files is None and download:
        from torchvision.datasets import FashionMNIST

        FashionMNIST(home, download=True)
        files = _fashion_mnist_files(torchvisions)
    if files is None:
        raise FileNotFoundError(
            f"Fashion-MNIST is neither in {folders[0]} nor in {folders[1]}: one folder "
            f"must hold {', '.join(FASHION_MNIST_FILES)}, each with or without .gz. "
            "Install Debian's package dataset-fashion-mnist, name the folder by "
            "`root`, or let torchvision fetch the files with `download=True`."
        )
    images, labels = ([_read_idx(file) for file in files[k::2]] for k in (0, 1))
    for x, y, file in zip(images, labels, files[1::2], strict=True):
        if len(x) != len(y):
            raise ValueError(
                f"{file} must hold as many labels as there are images; got {len(x)} "
                f"images and {len(y)} labels."
            )
    y = np.concatenate(labels).astype(np.int64)
    return np.concatenate(images), y, list(FASHION_MNIST_CLASSES)


def _fashion_mnist_files(folder):
    """The four files, each plain or packed; None if one is missing."""
    pairs = [(folder / name, folder / f"{name}.gz") for name in FASHION_MNIST_FILES]
    files = [next(filter(Path.is_file, pair), None) for pair in pairs]
    return None if None in files else files


def _read_idx(path):
    """A file of bytes: two zeros, type, number of dimensions, their sizes, values."""
    n_dimensions = 3 if "idx3" in path.name else 1
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        kind, shape = content[:4], np.frombuffer(content[4:], ">u4", n_dimensions)
        if kind != bytes([0, 0, 8, n_dimensions]):
            raise ValueError(f"another type, {kind!r}")
        return np.frombuffer(content[4 + shape.nbytes :], np.uint8).reshape(shape)
    except (EOFError, zlib.error, gzip.BadGzipFile, ValueError) as error:
        raise ValueError(
            f"{path} must be an idx file of 8-bit values as Fashion-MNIST is "
            f"distributed; reading it gave {type(error).__name__}: {error}."
        ) from error
