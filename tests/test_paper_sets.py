"""The paper's data sets; their files are written here in their true formats."""

import hashlib
import pickle

import numpy as np
import pytest
from PIL import Image
from torchvision import datasets as torchvision_datasets

from sk_mice import _paper_sets
from sk_mice.datasets import (
    load_cifar10,
    load_cifar100_20,
    load_imagenet_dog,
    load_stl10,
)

RNG = np.random.default_rng(0)
SYNSETS = list(_paper_sets.IMAGENET_DOG_SYNSETS)


def publish(monkeypatch, reader, folder, files):
    """Write files, and tell torchvision that it is they that were published."""
    folder = folder / reader.base_folder
    folder.mkdir(parents=True, exist_ok=True)
    digests = {}
    for name, content in files.items():
        content = content if isinstance(content, bytes) else pickle.dumps(content)
        (folder / name).write_bytes(content)
        digests[name] = hashlib.md5(content).hexdigest()

    def published(listed):
        return [[name, digests[name]] for name, _ in listed if name in digests]

    monkeypatch.setattr(reader, "train_list", published(reader.train_list))
    monkeypatch.setattr(reader, "test_list", published(reader.test_list))
    if (meta := getattr(reader, "meta", None)) is not None:
        md5 = digests[meta["filename"]]
        monkeypatch.setattr(reader, "meta", meta | {"md5": md5})
    return folder


def cifar_part(size, **labels):
    """Rows as CIFAR has them: 1,024 values each of red, green and blue."""
    rows = RNG.integers(0, 256, (size, 3072)).astype(np.uint8)
    return {"data": rows, **labels}


def images_of(*parts):
    rows = np.concatenate([part["data"] for part in parts])
    return rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


# ---------------------------------------------------------------------------- CIFAR


@pytest.fixture
def cifar10(tmp_path, monkeypatch):
    parts = {
        "data_batch_1": cifar_part(3, labels=[1, 0, 1]),
        "data_batch_2": cifar_part(2, labels=[2, 2]),
        "test_batch": cifar_part(2, labels=[0, 2]),
    }
    meta = {"batches.meta": {"label_names": ["airplane", "automobile", "bird"]}}
    reader = torchvision_datasets.CIFAR10
    publish(monkeypatch, reader, tmp_path, parts | meta)
    return parts


def test_cifar10_is_train_then_test(tmp_path, cifar10):
    X, y, names = load_cifar10(str(tmp_path), complete=False)
    np.testing.assert_array_equal(X, images_of(*cifar10.values()))
    assert y.tolist() == [1, 0, 1, 2, 2, 0, 2]
    assert (X.dtype, y.dtype) == (np.uint8, np.int64)
    assert X.flags.c_contiguous  # torchvision's is not
    assert names == ["airplane", "automobile", "bird"]


def test_root_is_the_data_home_by_default(tmp_path, monkeypatch, cifar10):
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    assert len(load_cifar10(complete=False)[0]) == 7


def test_cifar100_has_its_superclasses(tmp_path, monkeypatch):
    # Fine classes are in the files, too, and in alphabetical order in both.
    parts = {
        "train": cifar_part(3, fine_labels=[7, 99, 3], coarse_labels=[2, 0, 1]),
        "test": cifar_part(2, fine_labels=[4, 4], coarse_labels=[1, 1]),
    }
    names = {"coarse_label_names": ["fish", "flowers", "people"]}
    meta = {"meta": names | {"fine_label_names": list("abc")}}
    reader = torchvision_datasets.CIFAR100
    publish(monkeypatch, reader, tmp_path, parts | meta)
    X, y, names = load_cifar100_20(tmp_path, complete=False)
    np.testing.assert_array_equal(X, images_of(*parts.values()))
    assert y.tolist() == [2, 0, 1, 1, 1]
    assert y.dtype == np.int64
    assert names == ["fish", "flowers", "people"]


# --------------------------------------------------------------------------- STL-10


@pytest.fixture
def stl10(tmp_path, monkeypatch):
    sizes = {"train": 3, "test": 2, "unlabeled": 4}
    # Column by column, one colour after the other.
    images = {
        part: RNG.integers(0, 256, (size, 3, 96, 96)).astype(np.uint8)
        for part, size in sizes.items()
    }
    files = {f"{part}_X.bin": values.tobytes() for part, values in images.items()}
    files["train_y.bin"] = bytes([1, 10, 2])  # from 1 on
    files["test_y.bin"] = bytes([3, 1])
    folder = publish(monkeypatch, torchvision_datasets.STL10, tmp_path, files)
    (folder / "class_names.txt").write_text("airplane\nbird\ncar\n")
    return images


@pytest.mark.parametrize("unlabelled", [False, True])
def test_stl10_is_train_then_test_then_unlabelled(tmp_path, stl10, unlabelled):
    X, y, names = load_stl10(tmp_path, unlabelled=unlabelled, complete=False)
    parts = ["train", "test", "unlabeled"][: 2 + unlabelled]
    stored = np.concatenate([stl10[part] for part in parts])
    np.testing.assert_array_equal(X, stored.transpose(0, 3, 2, 1))
    assert y.tolist() == [0, 9, 1, 2, 0] + 4 * [-1] * unlabelled
    assert (X.dtype, y.dtype) == (np.uint8, np.int64)
    assert X.flags.c_contiguous
    assert names == ["airplane", "bird", "car"]


def test_images_without_a_class_do_not_count(tmp_path, stl10, monkeypatch):
    monkeypatch.setitem(_paper_sets.TABLE_2, "STL-10", (5, 4))
    assert len(load_stl10(tmp_path, unlabelled=True)[0]) == 9


# --------------------------------------------------------------------- ImageNet-Dog


def write_dogs(folder, synsets, size=2):
    for k, synset in enumerate(synsets):
        (folder / synset).mkdir(parents=True)
        for i in range(size):
            color = (10 * k, 200, 100 * i)
            image = Image.new("RGB", (120, 80 + 10 * i), color)
            image.save(folder / synset / f"{synset}_{i}.JPEG", quality=95)


@pytest.mark.parametrize("inside", ["", "train"])
def test_dogs_are_found_by_synset(tmp_path, monkeypatch, inside):
    # Another class of ImageNet is none of them.
    write_dogs(tmp_path / inside, [*SYNSETS, "n01440764"])
    monkeypatch.setitem(_paper_sets.TABLE_2, "ImageNet-Dog", (30, 15))
    X, y, names = load_imagenet_dog(tmp_path, n_jobs=1)
    assert (X.shape, X.dtype, y.dtype) == ((30, 96, 96, 3), np.uint8, np.int64)
    assert y.tolist() == [k for k in range(15) for _ in range(2)]
    colors = [(10 * k, 200, 100 * i) for k in range(15) for i in range(2)]
    np.testing.assert_allclose(X.mean(axis=(1, 2)), colors, atol=3)
    assert (names[0], names[14]) == ("Maltese dog", "chow")
    assert len(set(names)) == 15


def test_missing_dogs_are_named_or_left_out(tmp_path):
    write_dogs(tmp_path, SYNSETS[2:4], size=1)
    with pytest.raises(FileNotFoundError, match=f"none for {', '.join(SYNSETS[:2])}"):
        load_imagenet_dog(tmp_path)
    _, y, names = load_imagenet_dog(tmp_path, complete=False, n_jobs=1)
    assert y.tolist() == [2, 3]
    assert names[y[0]] == "basset"
    with pytest.raises(FileNotFoundError, match="must hold a folder for each of the"):
        load_imagenet_dog(tmp_path / "nowhere", complete=False)


def test_dogs_may_be_cropped(tmp_path):
    (tmp_path / SYNSETS[0]).mkdir()
    image = Image.new("RGB", (300, 96), "black")
    image.paste("white", (102, 0, 198, 96))  # the square in the middle
    image.save(tmp_path / SYNSETS[0] / "1.png")
    options = {"complete": False, "n_jobs": 1}
    assert load_imagenet_dog(tmp_path, resize="crop", **options)[0].min() == 255
    assert load_imagenet_dog(tmp_path, **options)[0].min() == 0


# -------------------------------------------------------------------------- Table 2


def test_table_2_is_the_papers():
    assert _paper_sets.TABLE_2 == {
        "CIFAR-10": (60000, 10),
        "CIFAR-100": (60000, 20),
        "STL-10": (13000, 10),
        "ImageNet-Dog": (19500, 15),
    }
    assert len(SYNSETS) == 15
    assert sorted(SYNSETS) == SYNSETS


def test_less_than_the_paper_has_is_an_error(tmp_path, cifar10):
    message = "CIFAR-10 must have 60,000 images in 10 classes.* got 7 in 3"
    with pytest.raises(ValueError, match=message):
        load_cifar10(tmp_path)


def test_as_many_as_the_paper_has_are_not(tmp_path, cifar10, monkeypatch):
    monkeypatch.setitem(_paper_sets.TABLE_2, "CIFAR-10", (7, 3))
    assert len(load_cifar10(tmp_path)[0]) == 7


@pytest.mark.parametrize("load", [load_cifar10, load_cifar100_20, load_stl10])
def test_missing_files_are_named(tmp_path, load):
    with pytest.raises(FileNotFoundError, match=f"{tmp_path}.* must hold .*download"):
        load(tmp_path)


def test_other_files_than_the_published_are_refused(tmp_path, cifar10):
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(b"other")
    with pytest.raises(ValueError, match="as it was published"):
        load_cifar10(tmp_path, complete=False)


def test_download_is_left_to_torchvision(tmp_path, monkeypatch):
    class Fetching(torchvision_datasets.CIFAR10):
        """Does as torchvision does, without the network."""

        def __init__(self, root, train, download):
            fetched.append((root, train, download))
            self.data = np.zeros((1, 32, 32, 3), np.uint8)
            self.targets, self.classes = [0], ["airplane"]

    fetched = []
    monkeypatch.setattr(torchvision_datasets, "CIFAR10", Fetching)
    load_cifar10(tmp_path, download=True, complete=False)
    assert fetched == [(tmp_path, True, True), (tmp_path, False, True)]
