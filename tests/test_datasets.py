"""Benchmark sets as arrays; their files are written here in their true formats."""

import gzip
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from sklearn import datasets as sklearn_datasets

from sk_mice import datasets
from sk_mice.datasets import load_digits, load_fashion_mnist

SIZES = {"train": 6, "t10k": 4}


def idx_bytes(array):
    """An array as an idx file: zeros, type 8 (unsigned byte), dimensions, values."""
    header = struct.pack(">BBBB", 0, 0, 8, array.ndim)
    return header + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write(folder, name, content, packed):
    folder.mkdir(parents=True, exist_ok=True)
    if packed:
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    else:
        (folder / name).write_bytes(content)


def write_fashion_mnist(folder, packed=True):
    """A small set in the format of the large one; returns its images and labels."""
    rng = np.random.default_rng(0)
    images, labels = [], []
    for part, size in SIZES.items():
        images.append(rng.integers(0, 256, (size, 28, 28)).astype(np.uint8))
        labels.append(rng.integers(0, 10, size).astype(np.uint8))
        write(folder, f"{part}-images-idx3-ubyte", idx_bytes(images[-1]), packed)
        write(folder, f"{part}-labels-idx1-ubyte", idx_bytes(labels[-1]), packed)
    return np.concatenate(images), np.concatenate(labels)


@pytest.fixture
def data_home(tmp_path, monkeypatch):
    """A machine without Debian's package, and an empty data home."""
    monkeypatch.setattr(datasets, "DEBIAN_FASHION_MNIST", tmp_path / "debian")
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "home"))
    return tmp_path / "home"


# -------------------------------------------------------------------------- digits


def test_digits_are_scikit_learns():
    X, y, names = load_digits()
    original = sklearn_datasets.load_digits()
    np.testing.assert_array_equal(X, original.images)
    np.testing.assert_array_equal(y, original.target)
    assert (X.shape, X.min(), X.max()) == ((1797, 8, 8), 0, 16)
    assert y.dtype == np.int64
    assert names == list("0123456789")


# ------------------------------------------------------------------- Fashion-MNIST


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("inside", ["", "FashionMNIST/raw"])
def test_fashion_mnist_is_read_from_a_folder(tmp_path, packed, inside):
    images, labels = write_fashion_mnist(tmp_path / inside, packed)
    X, y, names = load_fashion_mnist(tmp_path)
    np.testing.assert_array_equal(X, images)
    np.testing.assert_array_equal(y, labels)
    assert (X.dtype, y.dtype) == (np.uint8, np.int64)
    assert len(names) == 10
    assert names[0] == "T-shirt/top"


def test_root_may_be_a_string(tmp_path):
    images, _ = write_fashion_mnist(tmp_path)
    np.testing.assert_array_equal(load_fashion_mnist(str(tmp_path))[0], images)


def test_fashion_mnist_is_found_where_debian_puts_it(data_home):
    images, _ = write_fashion_mnist(datasets.DEBIAN_FASHION_MNIST)
    np.testing.assert_array_equal(load_fashion_mnist()[0], images)
    # What is there is not fetched.
    np.testing.assert_array_equal(load_fashion_mnist(download=True)[0], images)


def test_fashion_mnist_is_found_in_the_data_home(data_home):
    images, _ = write_fashion_mnist(data_home / "FashionMNIST" / "raw")
    np.testing.assert_array_equal(load_fashion_mnist()[0], images)


@pytest.mark.parametrize("given", [True, False])
def test_download_is_left_to_torchvision(data_home, tmp_path, monkeypatch, given):
    import torchvision

    class Fetching(torchvision.datasets.FashionMNIST):
        def __init__(self, root, *, download):
            assert download
            self.written = write_fashion_mnist(Path(root) / "FashionMNIST" / "raw")

    monkeypatch.setattr(torchvision.datasets, "FashionMNIST", Fetching)
    root = tmp_path / "mine" if given else None
    X, *_ = load_fashion_mnist(root, download=True)
    assert len(X) == sum(SIZES.values())
    home = root if given else data_home
    assert (home / "FashionMNIST" / "raw" / "train-images-idx3-ubyte.gz").is_file()


def test_missing_files_are_named(data_home):
    with pytest.raises(FileNotFoundError) as caught:
        load_fashion_mnist()
    for part in (
        str(datasets.DEBIAN_FASHION_MNIST),
        str(data_home / "FashionMNIST" / "raw"),
        "t10k-labels-idx1-ubyte",
        "dataset-fashion-mnist",
        "download=True",
    ):
        assert part in str(caught.value)


def test_a_folder_that_lacks_one_file_is_refused(tmp_path):
    write_fashion_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path))):
        load_fashion_mnist(tmp_path)


IMAGES = idx_bytes(np.zeros((6, 28, 28), np.uint8))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no idx file",
        IMAGES[:100],
        IMAGES + b"more",
        idx_bytes(np.zeros(6, np.uint8)),  # labels where images should be
        struct.pack(">BBBBI", 0, 0, 12, 1, 1) + bytes(4),  # 32-bit integers
    ],
)
@pytest.mark.parametrize("packed", [True, False])
def test_a_damaged_file_is_named(tmp_path, content, packed):
    write_fashion_mnist(tmp_path, packed)
    write(tmp_path, "train-images-idx3-ubyte", content, packed)
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte.* must be an idx"):
        load_fashion_mnist(tmp_path)


@pytest.mark.parametrize("end", [None, -20])
def test_a_damaged_archive_is_named(tmp_path, end):
    write_fashion_mnist(tmp_path)
    path = tmp_path / "t10k-images-idx3-ubyte.gz"
    content = path.read_bytes()[:end] if end else b"not packed"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"{path.name} must be an idx file"):
        load_fashion_mnist(tmp_path)


def test_as_many_images_as_labels(tmp_path):
    write_fashion_mnist(tmp_path)
    labels = idx_bytes(np.zeros(5, np.uint8))
    write(tmp_path, "train-labels-idx1-ubyte", labels, packed=True)
    with pytest.raises(ValueError, match="got 6 images and 5 labels"):
        load_fashion_mnist(tmp_path)


def test_the_whole_of_fashion_mnist():
    if not datasets.DEBIAN_FASHION_MNIST.is_dir():
        pytest.skip("Debian's package dataset-fashion-mnist is not installed")
    X, y, names = load_fashion_mnist(datasets.DEBIAN_FASHION_MNIST)
    assert (X.shape, X.dtype) == ((70000, 28, 28), np.uint8)
    np.testing.assert_array_equal(np.bincount(y), np.full(10, 7000))
    assert names[y[0]] == "Ankle boot"
