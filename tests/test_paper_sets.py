"""The paper's data sets; their files are written here in their true formats."""

import hashlib
import importlib
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

RNG = np.random.default_rng(0)


@pytest.fixture
def sets(monkeypatch):
    folder = Path(__file__).parents[1] / "benchmarks" / "paper"
    monkeypatch.syspath_prepend(folder)
    return importlib.import_module("paper_sets")


def publish(monkeypatch, reader, root, files):
    """Write files, and tell torchvision that it is they that were published."""
    folder = root / reader.base_folder
    folder.mkdir()
    digests = {}
    for name, content in files.items():
        content = content if isinstance(content, bytes) else pickle.dumps(content)
        (folder / name).write_bytes(content)
        digests[name] = hashlib.md5(content).hexdigest()
    for parts in ("train_list", "test_list"):
        names = [name for name, _ in getattr(reader, parts) if name in digests]
        monkeypatch.setattr(reader, parts, [(name, digests[name]) for name in names])
    if hasattr(reader, "meta"):
        md5 = digests[reader.meta["filename"]]
        monkeypatch.setattr(reader, "meta", reader.meta | {"md5": md5})
    return folder


def cifar_part(size, **labels):
    """Rows as CIFAR has them: 1,024 values each of red, green and blue."""
    return {"data": RNG.integers(0, 256, (size, 3072)).astype(np.uint8), **labels}


def images_of(*parts):
    rows = np.concatenate([part["data"] for part in parts])
    return rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def test_cifar10_is_train_then_test(tmp_path, monkeypatch, sets):
    parts = {
        "data_batch_1": cifar_part(3, labels=[1, 0, 1]),
        "data_batch_2": cifar_part(2, labels=[2, 2]),
        "test_batch": cifar_part(2, labels=[0, 2]),
    }
    meta = {"batches.meta": {"label_names": ["airplane", "automobile", "bird"]}}
    publish(monkeypatch, sets.CIFAR10, tmp_path, parts | meta)
    with pytest.raises(ValueError, match=r"have 60,000 images in 10 .* got 7 in 3"):
        sets.load_cifar10(tmp_path)
    monkeypatch.setitem(sets.TABLE_2, "CIFAR-10", (7, 3))
    X, y = sets.load_cifar10(tmp_path)
    np.testing.assert_array_equal(X, images_of(*parts.values()))
    assert y.tolist() == [1, 0, 1, 2, 2, 0, 2]
    assert X.flags.c_contiguous


def test_cifar100_has_its_superclasses(tmp_path, monkeypatch, sets):
    parts = {
        "train": cifar_part(3, fine_labels=[7, 99, 3], coarse_labels=[2, 0, 1]),
        "test": cifar_part(2, fine_labels=[4, 4], coarse_labels=[1, 1]),
    }
    meta = {"meta": {"fine_label_names": list("abc")}}
    publish(monkeypatch, sets.CIFAR100, tmp_path, parts | meta)
    monkeypatch.setitem(sets.TABLE_2, "CIFAR-100", (5, 3))
    X, y = sets.load_cifar100_20(tmp_path)
    np.testing.assert_array_equal(X, images_of(*parts.values()))
    assert y.tolist() == [2, 0, 1, 1, 1]


def test_stl10_is_train_then_test(tmp_path, monkeypatch, sets):
    # Column by column, one colour after the other; classes from 1 on.
    images = RNG.integers(0, 256, (5, 3, 96, 96)).astype(np.uint8)
    files = {"train_X.bin": images[:3].tobytes(), "train_y.bin": bytes([1, 10, 2])}
    files |= {"test_X.bin": images[3:].tobytes(), "test_y.bin": bytes([3, 1])}
    folder = publish(monkeypatch, sets.STL10, tmp_path, files)
    (folder / "class_names.txt").write_text("airplane\nbird\ncar\n")
    monkeypatch.setitem(sets.TABLE_2, "STL-10", (5, 4))
    X, y = sets.load_stl10(tmp_path)
    np.testing.assert_array_equal(X, images.transpose(0, 1, 3, 2))
    assert (y.tolist(), y.dtype) == ([0, 9, 1, 2, 0], np.int64)


def test_dogs_are_found_by_synset(tmp_path, monkeypatch, sets):
    synsets = sets.IMAGENET_DOG_SYNSETS
    # Another class of ImageNet is none of them.
    for k, synset in enumerate([*synsets, "n01440764"]):
        (tmp_path / synset).mkdir()
        for i in range(2):
            image = Image.new("RGB", (120, 80 + 10 * i), (10 * k, 200, 100 * i))
            image.save(tmp_path / synset / f"{synset}_{i}.JPEG", quality=95)
    monkeypatch.setitem(sets.TABLE_2, "ImageNet-Dog", (30, 15))
    X, y = sets.load_imagenet_dog(tmp_path)
    assert X.shape == (30, 96, 96, 3)
    assert y.tolist() == [k for k in range(15) for _ in range(2)]
    colors = [(10 * k, 200, 100 * i) for k in range(15) for i in range(2)]
    np.testing.assert_allclose(X.mean(axis=(1, 2)), colors, atol=3)
    with pytest.raises(FileNotFoundError, match=f"must hold the folders {synsets[0]}"):
        sets.load_imagenet_dog(tmp_path / "nowhere")


def test_table_2_is_the_papers(sets):
    assert sets.TABLE_2 == {
        "CIFAR-10": (60000, 10),
        "CIFAR-100": (60000, 20),
        "STL-10": (13000, 10),
        "ImageNet-Dog": (19500, 15),
    }
    assert len(set(sets.IMAGENET_DOG_SYNSETS)) == 15
