"""Files of arrays: their paths, their places on the disk."""

import mmap

import numpy as np
import pytest

from sk_mice._engine import maps


@pytest.fixture
def X(tmp_path):
    np.save(tmp_path / "X.npy", np.arange(3_000_000.0).reshape(1000, -1))
    return np.load(tmp_path / "X.npy", mmap_mode="r")


def test_a_map_is_told_from_memory(X):
    for seen in (X, np.asarray(X), X[3:], X.reshape(-1), np.asarray(X).T):
        assert isinstance(maps.mapped_file(seen), mmap.mmap)
    assert maps.mapped_file(np.array(X)) is None
    assert maps.mapped_file(np.zeros(3)[:2]) is None
    assert maps.mapped_file([1]) is None


@pytest.mark.skipif(not hasattr(mmap, "MADV_WILLNEED"), reason="takes no hints")
def test_the_pages_of_rows_are_asked_for(X, monkeypatch):
    asked = []

    class File(mmap.mmap):
        def madvise(self, *args):
            asked.append(args)
            super().madvise(*args)

    with open(X.filename, "rb") as opened:
        file = File(opened.fileno(), 0, access=mmap.ACCESS_READ)
    rows = np.frombuffer(file, np.float64, offset=128).reshape(1000, -1)
    monkeypatch.setattr(maps, "mapped_file", lambda X: file)
    maps.will_need(rows, 10, 12)
    ((option, start, length),) = asked
    first, last = 128 + 10 * 24_000, 128 + 12 * 24_000
    assert option == mmap.MADV_WILLNEED
    assert start % mmap.PAGESIZE == 0
    assert first - mmap.PAGESIZE < start <= first
    assert start + length == last
    del rows


def test_hints_are_for_maps_alone(X):
    maps.will_need(X, 0, 10)
    maps.will_need(np.zeros((3, 4)), 0, 2)
    maps.will_need(X[:, ::2], 0, 2)
