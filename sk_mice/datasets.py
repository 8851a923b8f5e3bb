"""Images as arrays: a folder of one's own, and two sets to try things on.

Every loader returns ``(X, y, names)``: the images, the class of each from 0 on, and the
classes' names; `load_image_folder` adds the files' names. The classes are for scores;
no estimator needs them.
"""

import gzip
import zlib
from pathlib import Path

import numpy as np
from sklearn import datasets as sklearn_datasets

from ._image_folder import load_image_folder

__all__ = ["load_digits", "load_fashion_mnist", "load_image_folder"]

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
