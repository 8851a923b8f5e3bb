"""X where it is, and its batches."""

import threading
import time
from itertools import product

import numpy as np
import pytest
import torch
from shared import mapped_as_large, samples_of
from torch.utils.data import TensorDataset

from sk_mice._engine.dataset import DatasetRows
from sk_mice._engine.order import blocks_of
from sk_mice._engine.samples import BATCHES_AHEAD, batches_per_epoch

CPU = torch.device("cpu")
RNG = np.random.default_rng(0)


# -------------------------------------------------------------------------- batches


@pytest.mark.parametrize("n_samples", [2, 5, 256, 257, 1000])
def test_an_epoch_holds_every_sample_once_in_even_batches(n_samples):
    X = np.arange(n_samples * 4, dtype=np.float64).reshape(n_samples, 4)
    samples = samples_of(X)
    sizes, seen = [], []
    for indices in samples.shuffled_indices(256, torch.Generator().manual_seed(0)):
        assert len(samples[indices]) == len(indices)
        sizes.append(len(indices))
        seen += indices.tolist()
    assert sorted(seen) == list(range(n_samples))
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= 256
    assert len(sizes) == -(-n_samples // 256)


def test_no_batch_holds_one_sample():
    for n_samples, batch_size in product(range(2, 30), (2, 3, 4, 7, 100)):
        n = batches_per_epoch(n_samples, batch_size)
        sizes = [len(part) for part in torch.arange(n_samples).tensor_split(n)]
        assert min(sizes) >= 2, (n_samples, batch_size)
        assert max(sizes) <= max(batch_size, 3), (n_samples, batch_size)


def test_read_only_memory_map_stays_where_it_is(tmp_path):
    images = RNG.integers(0, 256, (20, 6, 5), dtype=np.uint8)
    np.save(tmp_path / "X.npy", images)
    X = np.load(tmp_path / "X.npy", mmap_mode="r")
    samples = samples_of(X)
    batch = samples[torch.arange(20)]
    assert samples.X is X
    torch.testing.assert_close(batch[:, 0] * 255, torch.tensor(images).float())
    assert torch.equal(torch.cat(list(samples.in_order(7))), batch)


# --------------------------------------------------------------- larger than memory


@pytest.fixture
def large_file(tmp_path, monkeypatch):
    """A file of 400 rows of 64 bytes, which counts as large."""
    X = RNG.random((400, 8))
    return mapped_as_large(X, tmp_path, monkeypatch, 6400)


def epoch(samples, seed=0):
    return list(samples.shuffled_indices(32, torch.Generator().manual_seed(seed)))


def test_what_is_large(large_file):
    assert samples_of(large_file).is_large
    assert not samples_of(np.array(large_file)).is_large
    assert not samples_of(large_file[:100]).is_large
    dataset = TensorDataset(torch.from_numpy(np.array(large_file)))
    assert samples_of(DatasetRows(dataset)).is_large


def test_small_file_has_the_order_of_memory(large_file):
    file = epoch(samples_of(large_file[:100]))
    for one, other in zip(file, epoch(samples_of(RNG.random((100, 8)))), strict=True):
        assert torch.equal(one, other)


def test_large_file_is_shuffled_in_windows(large_file):
    batches = epoch(samples_of(large_file))
    assert [len(batch) for batch in batches] == [31] * 10 + [30] * 3
    order = torch.cat(batches)
    assert torch.equal(order.sort().values, torch.arange(400))
    assert len(blocks_of(order[:100])) <= 12  # 10 blocks of 10 rows
    again = torch.cat(epoch(samples_of(large_file)))
    assert torch.equal(order, again)


def test_large_file_is_read_a_window_ahead(large_file, monkeypatch):
    asked, name = [], "sk_mice._engine.samples.will_need"
    monkeypatch.setattr(name, lambda X, *rows: asked.append(rows))
    samples, n_asked = samples_of(large_file), []
    for _ in samples.shuffled_indices(50, torch.Generator().manual_seed(0)):
        n_asked.append(sum(stop - start for start, stop in asked))
    # Nothing for the first batch, which may be the only one.
    assert n_asked == [0, 200, 200, 300, 300, 400, 400, 400]
    assert sorted(set().union(*(range(*rows) for rows in asked))) == list(range(400))


def test_batches_for_a_gpu_are_gathered_ahead(large_file, monkeypatch):
    samples, gathered = samples_of(large_file), []

    def gather(indices):
        gathered.append(threading.current_thread())
        if indices[0] == 300:
            raise OSError("the disk is gone")
        return torch.from_numpy(large_file[indices.numpy()])

    monkeypatch.setattr(samples, "_gathered", gather)
    monkeypatch.setattr(samples, "_moved_batch", lambda values: values)
    samples.device = torch.device("cuda")
    batches = samples.in_order(50)
    first = next(batches)
    assert np.array_equal(first, large_file[:50])
    for _ in range(500):  # the thread has not begun, perhaps
        if len(gathered) > 1:
            break
        time.sleep(0.01)
    assert 1 < len(gathered) <= 1 + BATCHES_AHEAD
    assert threading.main_thread() not in gathered
    with pytest.raises(OSError, match="gone"):
        list(batches)
    samples.device = CPU
    assert len(list(samples.in_order(50, slice(100, 230)))) == 3
