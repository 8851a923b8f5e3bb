"""Images as arrays: benchmark sets, and a folder of one's own.

Every loader returns ``(X, y, names)``: the images, the class of each from 0 on, and the
classes' names; `load_image_folder` adds the files' names. The classes are for scores;
no estimator needs them.
"""

import gzip
import lzma
import shutil
import tarfile
import zlib
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

import numpy as np
from sklearn import datasets as sklearn_datasets

from ._image_folder import load_image_folder
from ._paper_sets import (
    load_cifar10,
    load_cifar100_20,
    load_imagenet_dog,
    load_stl10,
)

__all__ = [
    "load_cifar10",
    "load_cifar10_jpeg",
    "load_cifar100_20",
    "load_digits",
    "load_fashion_mnist",
    "load_image_folder",
    "load_imagenet_dog",
    "load_stl10",
]

# Where Debian's package dataset-fashion-mnist puts its files.
DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
_IDX_PARTS = ("train", "t10k")  # in the order in which they are joined
_JPEG_PARTS = ("train", "test")
# What gzip and torchvision's reader say of bytes that are not what they should be.
_NO_IDX = (
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    AssertionError,
    KeyError,
    RuntimeError,
    TypeError,
    ValueError,
)


def load_digits():
    """Scikit-learn's handwritten digits, which come with it.

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


def load_fashion_mnist(root=None, *, download=False):
    """Fashion-MNIST: grey images of ten kinds of clothing [1]_, train and test joined.

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
        Whether torchvision may fetch the files, into `root` or the data home, if they
        are not there (about 30 MB).

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
        If the files are not there and `download` is False.
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
    from torchvision.datasets import FashionMNIST

    folders = _fashion_mnist_folders(root)
    folder = next(filter(_holds_idx_files, folders), None)
    if folder is None and download:
        folder = folders[-1]  # torchvision's layout
        FashionMNIST(folder.parents[1], download=True)
    if folder is None:
        raise FileNotFoundError(_not_found(folders))
    X, y = _read_idx_folder(folder)
    return X, y, list(FashionMNIST.classes)


def load_cifar10_jpeg(path):
    """CIFAR-10 [1]_ from an archive of JPEG files, training and test images joined.

    The images of such an archive have been compressed anew: results on them compare
    with one another, and not with those on CIFAR-10's own pixels.

    Parameters
    ----------
    path : str or path-like
        A tar archive, compressed in any way that :mod:`tarfile` reads, with the files
        ``train/CLASS/NUMBER.jpg`` and ``test/CLASS/NUMBER.jpg``. Nothing is unpacked
        to disk.

    Returns
    -------
    X : ndarray of shape (60000, 32, 32, 3), uint8
        The 50,000 training images, then the 10,000 test images, each in the order of
        their classes' names and their numbers.
    y : ndarray of shape (60000,), int64
        Classes from 0 to 9.
    names : list of str
        Names of the classes, in alphabetical order.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is no such archive, is damaged, or its images differ in size.

    References
    ----------
    .. [1] Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.

    Examples
    --------
    Not run with the doctests, as the file need not be there:

    >>> from sk_mice.datasets import load_cifar10_jpeg
    >>> X, y, names = load_cifar10_jpeg("cifar10-jpeg.tar.xz")  # doctest: +SKIP
    >>> X.shape, names[y[0]]  # doctest: +SKIP
    ((60000, 32, 32, 3), 'airplane')
    """
    try:
        with tarfile.open(path) as archive:
            images = {
                place: _decoded(archive.extractfile(member))
                for member in archive
                if (place := _jpeg_place(member))
            }
    except FileNotFoundError:
        raise
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError) as error:
        reason = f"{type(error).__name__}: {error}".rstrip(": ")
        raise ValueError(
            f"{path} must be a tar archive of JPEG files; reading it gave {reason}."
        ) from error
    shapes = {image.shape for image in images.values()}
    if len(shapes) != 1:
        raise ValueError(
            f"{path} must hold images train/CLASS/NUMBER.jpg and test/CLASS/NUMBER.jpg "
            f"of one size; got {len(images)} such images of sizes "
            f"{sorted(shape[:2] for shape in shapes)}."
        )
    places = sorted(images)
    names, y = np.unique([label for _, label, _ in places], return_inverse=True)
    X = np.stack([images[place] for place in places])
    return X, y.astype(np.int64), names.tolist()


def _jpeg_place(member):
    """Part, class and file name of an image in the archive; None for other members."""
    *parents, name = PurePosixPath(member.name).parts
    if member.isfile() and len(parents) == 2 and name.endswith(".jpg"):
        part, label = parents
        if part in _JPEG_PARTS:
            return _JPEG_PARTS.index(part), label, name
    return None


def _decoded(file) -> np.ndarray:
    from PIL import Image

    with Image.open(file) as image:
        return np.asarray(image.convert("RGB"))


def _fashion_mnist_folders(root) -> list[Path]:
    """Folders that may hold the files; the last is the one torchvision downloads to."""
    if root is None:
        home = Path(sklearn_datasets.get_data_home())
        return [DEBIAN_FASHION_MNIST, home / "FashionMNIST" / "raw"]
    root = Path(root)
    return [root, root / "FashionMNIST" / "raw"]


def _not_found(folders) -> str:
    return (
        f"Fashion-MNIST is neither in {folders[0]} nor in {folders[1]}: one folder "
        f"must hold {', '.join(_idx_names())}, each with or without .gz. Install "
        "Debian's package dataset-fashion-mnist, name the folder by `root`, or let "
        "torchvision fetch the files with `download=True`."
    )


# ------------------------------------------------------------------------ idx files


def _idx_names() -> list[str]:
    kinds = ("images-idx3-ubyte", "labels-idx1-ubyte")
    return [f"{part}-{kind}" for part in _IDX_PARTS for kind in kinds]


def _idx_file(folder: Path, name: str) -> Path | None:
    """The unpacked file, the packed one, or None."""
    both = (folder / name, folder / f"{name}.gz")
    return next((path for path in both if path.is_file()), None)


def _holds_idx_files(folder: Path) -> bool:
    return all(_idx_file(folder, name) for name in _idx_names())


def _read_idx_folder(folder: Path):
    """Images and labels of both parts, joined."""
    from torchvision.datasets.mnist import read_image_file, read_label_file

    images, labels = [], []
    for part in _IDX_PARTS:
        x = _read_idx(read_image_file, folder, f"{part}-images-idx3-ubyte")
        y = _read_idx(read_label_file, folder, f"{part}-labels-idx1-ubyte")
        if len(x) != len(y):
            raise ValueError(
                f"The files {part}-* in {folder} must hold as many images as labels; "
                f"got {len(x)} images and {len(y)} labels."
            )
        images.append(x)
        labels.append(y)
    return np.concatenate(images), np.concatenate(labels)


def _read_idx(read, folder: Path, name: str) -> np.ndarray:
    """One idx file, by torchvision's reader, which takes unpacked files only."""
    path = _idx_file(folder, name)
    try:
        if path.suffix != ".gz":
            return read(str(path)).numpy()
        with TemporaryDirectory() as scratch:
            unpacked = Path(scratch) / name
            with gzip.open(path) as source, unpacked.open("wb") as target:
                shutil.copyfileobj(source, target)
            return read(str(unpacked)).numpy()
    except _NO_IDX as error:
        reason = f"{type(error).__name__}: {error}".rstrip(": ")
        raise ValueError(
            f"{path} must be an idx file of 8-bit values as Fashion-MNIST is "
            f"distributed; reading it gave {reason}."
        ) from error
