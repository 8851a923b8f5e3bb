"""The paper's four data sets, each checked against its Table 2."""

import pickle
from pathlib import Path

import numpy as np
from sklearn.datasets import get_data_home

from ._image_folder import load_image_folder

# Images and clusters of each (Table 2 of the paper).
TABLE_2 = {
    "CIFAR-10": (60_000, 10),
    "CIFAR-100": (60_000, 20),
    "STL-10": (13_000, 10),
    "ImageNet-Dog": (19_500, 15),
}
# The paper names no synsets, and its code leaves this set out. These are the 15 that
# the literature has used since Chang et al. (2017), as they were published with
# Contrastive Clustering (Li et al., AAAI 2021, its file ImageNet-dogs.txt).
IMAGENET_DOG_SYNSETS = {
    "n02085936": "Maltese dog",
    "n02086646": "Blenheim spaniel",
    "n02088238": "basset",
    "n02091467": "Norwegian elkhound",
    "n02097130": "giant schnauzer",
    "n02099601": "golden retriever",
    "n02101388": "Brittany spaniel",
    "n02101556": "clumber",
    "n02102177": "Welsh springer spaniel",
    "n02105056": "groenendael",
    "n02105412": "kelpie",
    "n02105855": "Shetland sheepdog",
    "n02107142": "Doberman",
    "n02110958": "pug",
    "n02112137": "chow",
}
IMAGENET_DOG_SIZE = 96  # Table 2


def load_cifar10(root=None, *, download=False, complete=True):
    """CIFAR-10 [1]_: small colour images of ten things, train and test joined.

    Parameters
    ----------
    root : str or path-like, default=None
        Folder that holds torchvision's ``cifar-10-batches-py``; None is scikit-learn's
        data home (:func:`sklearn.datasets.get_data_home`).
    download : bool, default=False
        Whether torchvision may fetch the files, if they are not there (about 170 MB).
    complete : bool, default=True
        Whether it is an error if images and classes are not as many as the paper has.

    Returns
    -------
    X : ndarray of shape (60000, 32, 32, 3), uint8
        The 50,000 training images, then the 10,000 test images.
    y : ndarray of shape (60000,), int64
        Classes from 0 to 9.
    names : list of str
        Names of the classes.

    Raises
    ------
    FileNotFoundError
        If the files are not there and `download` is False.
    ValueError
        If a file is missing or is not as it was published, or by `complete`.

    References
    ----------
    .. [1] Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.

    Examples
    --------
    Not run with the doctests, as the files need not be there:

    >>> from sk_mice.datasets import load_cifar10
    >>> X, y, names = load_cifar10(download=True)  # doctest: +SKIP
    >>> X.shape, names[y[0]]  # doctest: +SKIP
    ((60000, 32, 32, 3), 'frog')
    """
    from torchvision.datasets import CIFAR10

    parts = [_read(CIFAR10, root, download, train=train) for train in (True, False)]
    X, y = _joined(part.data for part in parts), _joined(p.targets for p in parts)
    return _checked("CIFAR-10", X, y, list(parts[0].classes), complete)


def load_cifar100_20(root=None, *, download=False, complete=True):
    """CIFAR-100 [1]_ with its 20 superclasses, train and test joined.

    Parameters
    ----------
    root : str or path-like, default=None
        Folder that holds torchvision's ``cifar-100-python``; None is scikit-learn's
        data home (:func:`sklearn.datasets.get_data_home`).
    download : bool, default=False
        Whether torchvision may fetch the files, if they are not there (about 170 MB).
    complete : bool, default=True
        Whether it is an error if images and classes are not as many as the paper has.

    Returns
    -------
    X : ndarray of shape (60000, 32, 32, 3), uint8
        The 50,000 training images, then the 10,000 test images.
    y : ndarray of shape (60000,), int64
        Superclasses from 0 to 19.
    names : list of str
        Names of the superclasses.

    Raises
    ------
    FileNotFoundError
        If the files are not there and `download` is False.
    ValueError
        If a file is missing or is not as it was published, or by `complete`.

    References
    ----------
    .. [1] Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.

    Examples
    --------
    Not run with the doctests, as the files need not be there:

    >>> from sk_mice.datasets import load_cifar100_20
    >>> X, y, names = load_cifar100_20(download=True)  # doctest: +SKIP
    >>> X.shape, names[y[0]]  # doctest: +SKIP
    ((60000, 32, 32, 3), 'large_omnivores_and_herbivores')
    """
    from torchvision.datasets import CIFAR100

    parts = [_read(CIFAR100, root, download, train=train) for train in (True, False)]
    # Torchvision gives the fine classes only. It has just checked the files' digests.
    folder = _root(root) / CIFAR100.base_folder
    files = [name for name, _ in CIFAR100.train_list + CIFAR100.test_list]
    X = _joined(part.data for part in parts)
    y = _joined(_unpickled(folder / name)["coarse_labels"] for name in files)
    names = _unpickled(folder / CIFAR100.meta["filename"])["coarse_label_names"]
    return _checked("CIFAR-100", X, y, list(names), complete)


def load_stl10(root=None, *, unlabelled=False, download=False, complete=True):
    """STL-10 [1]_: colour images of ten things, train and test joined.

    Parameters
    ----------
    root : str or path-like, default=None
        Folder that holds torchvision's ``stl10_binary``; None is scikit-learn's data
        home (:func:`sklearn.datasets.get_data_home`).
    unlabelled : bool, default=False
        Whether the 100,000 images without a class follow, which have other things on
        them, too. The paper does without.
    download : bool, default=False
        Whether torchvision may fetch the files, if they are not there (about 2.6 GB).
    complete : bool, default=True
        Whether it is an error if images and classes are not as many as the paper has.

    Returns
    -------
    X : ndarray of shape (13000, 96, 96, 3), or (113000, 96, 96, 3), uint8
        The 5,000 training images, the 8,000 test images, and the unlabelled.
    y : ndarray of shape (13000,), or (113000,), int64
        Classes from 0 to 9; -1 for an image without one.
    names : list of str
        Names of the classes.

    Raises
    ------
    FileNotFoundError
        If the files are not there and `download` is False.
    ValueError
        If a file is missing or is not as it was published, or by `complete`.

    References
    ----------
    .. [1] Coates, Ng and Lee, "An Analysis of Single-Layer Networks in Unsupervised
       Feature Learning", AISTATS 2011.

    Examples
    --------
    Not run with the doctests, as the files need not be there:

    >>> from sk_mice.datasets import load_stl10
    >>> X, y, names = load_stl10(download=True)  # doctest: +SKIP
    >>> X.shape, names[y[0]]  # doctest: +SKIP
    ((13000, 96, 96, 3), 'bird')
    """
    from torchvision.datasets import STL10

    splits = ("train", "test", "unlabeled")[: 2 + unlabelled]
    parts = [_read(STL10, root, download, split=split) for split in splits]
    X = _joined(part.data.transpose(0, 2, 3, 1) for part in parts)
    y = _joined(part.labels.astype(np.int64) for part in parts)
    return _checked("STL-10", X, y, list(parts[0].classes), complete)


def load_imagenet_dog(root, *, resize="stretch", complete=True, n_jobs=-1, verbose=0):
    """ImageNet-Dog [1]_: 15 breeds of dogs from ImageNet's training images.

    Parameters
    ----------
    root : str or path-like
        ImageNet's folder of training images (ILSVRC2012), with one folder for each
        synset, such as ``n02085936``, or the folder that holds it as ``train``.
    resize : {"stretch", "crop"}, default="stretch"
        How the images become squares, see `load_image_folder`. The paper says no more
        than "resized".
    complete : bool, default=True
        Whether it is an error if images and classes are not as many as the paper has.
    n_jobs : int, default=-1
        Threads, as in joblib; -1 takes all cores.
    verbose : int, default=0
        1 shows a progress bar for each class.

    Returns
    -------
    X : ndarray of shape (19500, 96, 96, 3), uint8
        By class, and within one by the files' names.
    y : ndarray of shape (19500,), int64
        Classes from 0 to 14, in the order of the synsets.
    names : list of str
        Names of the breeds.

    Raises
    ------
    FileNotFoundError
        If there is no folder of a synset; with ``complete=False``, of none of them.
    ValueError
        If a file is damaged, or by `complete`.

    References
    ----------
    .. [1] Chang, Wang, Meng, Xiang and Pan, "Deep Adaptive Image Clustering", ICCV
       2017. Their classes by synset were published with Li et al., "Contrastive
       Clustering", AAAI 2021.

    Examples
    --------
    Not run with the doctests, as the files need not be there:

    >>> from sk_mice.datasets import load_imagenet_dog
    >>> X, y, names = load_imagenet_dog("imagenet")  # doctest: +SKIP
    >>> X.shape, names[y[0]]  # doctest: +SKIP
    ((19500, 96, 96, 3), 'Maltese dog')
    """
    root = Path(root)
    root = root / "train" if (root / "train").is_dir() else root
    missing = [name for name in IMAGENET_DOG_SYNSETS if not (root / name).is_dir()]
    if len(missing) == len(IMAGENET_DOG_SYNSETS) or (complete and missing):
        raise FileNotFoundError(
            f"{root} must hold a folder for each of the {len(IMAGENET_DOG_SYNSETS)} "
            f"synsets of ImageNet-Dog; there is none for {', '.join(missing)}."
        )
    options = {"resize": resize, "n_jobs": n_jobs, "verbose": verbose}
    images, labels = [], []
    for label, synset in enumerate(IMAGENET_DOG_SYNSETS):
        if synset not in missing:
            X, *_ = load_image_folder(root / synset, IMAGENET_DOG_SIZE, **options)
            images.append(X)
            labels.append(np.full(len(X), label))
    names = list(IMAGENET_DOG_SYNSETS.values())
    return _checked("ImageNet-Dog", _joined(images), _joined(labels), names, complete)


def _root(root) -> Path:
    return Path(get_data_home() if root is None else root)


def _read(reader, root, download, **which):
    """One part of a data set, by torchvision's reader, which compares digests."""
    folder = _root(root) / reader.base_folder
    try:
        return reader(_root(root), download=download, **which)
    except RuntimeError as error:
        problem = ValueError if folder.is_dir() else FileNotFoundError
        raise problem(
            f"{folder} must hold {reader.__name__} as it was published; name the "
            "folder that this one lies in by `root`, or let torchvision fetch the "
            f"files with `download=True`. It says: {error}"
        ) from error


def _unpickled(path):
    with open(path, "rb") as file:
        return pickle.load(file, encoding="latin1")


def _joined(parts) -> np.ndarray:
    """The parts in one array, in C order: torchvision's images are transposed."""
    parts = [np.asarray(part) for part in parts]
    shape = (sum(map(len, parts)), *parts[0].shape[1:])
    return np.concatenate(parts, out=np.empty(shape, parts[0].dtype))


def _checked(name, X, y, names, complete):
    """What a loader returns, if it is as large as in Table 2."""
    labelled = y[y >= 0]
    found = len(labelled), len(np.unique(labelled))
    if complete and found != TABLE_2[name]:
        (n_images, n_classes), (images, classes) = TABLE_2[name], found
        raise ValueError(
            f"{name} must have {n_images:,} images in {n_classes} classes, as in the "
            f"paper's Table 2; got {images:,} in {classes}. `complete=False` takes "
            "what is there."
        )
    return X, y.astype(np.int64), names
