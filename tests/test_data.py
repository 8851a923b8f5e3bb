"""X as it lies on the device."""

import threading
import time
from itertools import product

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from sk_mice._engine import data
from sk_mice._engine.data import Samples, batches_per_epoch, infer_format
from sk_mice._engine.dataset import DatasetRows
from sk_mice._engine.order import blocks_of

CPU = torch.device("cpu")
RNG = np.random.default_rng(0)


def as_batch(X, **options):
    fmt = infer_format(X, **options)
    return fmt, Samples(X, fmt, CPU)[torch.arange(len(X))]


# --------------------------------------------------------------------------- layout


@pytest.mark.parametrize(
    ("x_shape", "options", "shape"),
    [
        ((5, 9, 7), {}, (1, 9, 7)),
        ((5, 9, 7, 1), {}, (1, 9, 7)),
        ((5, 9, 7, 3), {}, (3, 9, 7)),
        ((5, 9, 7, 4), {}, (4, 9, 7)),
        ((5, 3, 9, 7), {}, (3, 9, 7)),
        ((5, 4, 9, 7), {}, (4, 9, 7)),
        ((5, 3, 9, 3), {"image_shape": (3, 9, 3)}, (3, 3, 9)),
        ((5, 9, 7), {"image_shape": (9, 7)}, (1, 9, 7)),
        ((5, 3, 9, 7), {"image_shape": (3, 9, 7)}, (3, 9, 7)),
        ((5, 189), {"image_shape": [3, 9, 7]}, (3, 9, 7)),
        ((5, 3, 3), {}, (1, 3, 3)),
        ((5, 63), {}, (63,)),
        ((5, 63), {"image_shape": (9, 7)}, (1, 9, 7)),
        ((5, 189), {"image_shape": (9, 7, 3)}, (3, 9, 7)),
    ],
)
def test_shapes(x_shape, options, shape):
    X = RNG.random(x_shape)
    fmt, batch = as_batch(X, **options)
    assert fmt.shape == shape
    assert batch.shape == (5, *shape)
    assert batch.dtype == torch.float32


def test_all_layouts_of_one_image_agree():
    images = RNG.integers(0, 256, (6, 9, 7, 3), dtype=np.uint8)
    planar = images.transpose(0, 3, 1, 2)
    _, expected = as_batch(images)
    torch.testing.assert_close(
        expected[0, :, 2, 5] * 255, torch.tensor(images[0, 2, 5]).float()
    )
    for X, options in [
        (planar, {}),
        (images.reshape(6, -1), {"image_shape": (9, 7, 3)}),
        (planar.reshape(6, -1), {"image_shape": (3, 9, 7)}),
    ]:
        assert torch.equal(as_batch(X, **options)[1], expected)


@pytest.mark.parametrize(
    ("x_shape", "options", "message"),
    [
        ((5, 3, 9, 3), {}, r"can be read as .* Set `image_shape`=\(3, 9, 3\)"),
        ((5, 2, 9, 7), {}, r"must have 1, 3 or 4 channels.*\(5, 2, 9, 7\)"),
        ((5, 9, 7, 3), {"image_shape": (3, 9, 7)}, r"needs X of shape \(5, 3, 9, 7\)"),
        ((5,), {}, r"X must have shape"),
        ((5, 1, 2, 3, 4), {}, r"X must have shape .*got \(5, 1, 2, 3, 4\)"),
        (
            (5, 62),
            {"image_shape": (9, 7)},
            r"`image_shape`=\(9, 7\) .*rows of 63",
        ),
        (
            (5, 126),
            {"image_shape": (9, 7, 2)},
            r"`image_shape` must be .*C of 1, 3 or 4",
        ),
        ((5, 9), {"image_shape": (9,)}, r"`image_shape` must be \(H, W\)"),
        ((5, 9), {"image_shape": (3, -3)}, r"`image_shape` must be \(H, W\)"),
        ((5, 9, 7), {"image_shape": (7, 9)}, r"got X of shape \(5, 9, 7\)"),
        ((5, 9, 0), {}, r"X must hold samples with values"),
    ],
)
def test_shapes_that_fit_nothing(x_shape, options, message):
    with pytest.raises(ValueError, match=message):
        infer_format(np.zeros(x_shape), **options)


# ---------------------------------------------------------------------- value range


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([0, 200], np.uint8), (0, 255)),
        (np.array([False, True]), (0, 1)),
        (np.array([0, 0.9]), (0, 1)),
        (np.array([0.0, 254.0]), (0, 255)),
        (np.array([0.0, 16.0]), (0, 16)),
        (np.array([-1.0, 1.0]), (-1, 1)),
        (np.array([0, 4095], np.uint16), (0, 4095)),
        (np.array([3.0, 3.0]), (3, 6)),
        (np.array([0.0, 0.0]), (0, 1)),
    ],
)
def test_value_range_is_learned(values, expected):
    fmt = infer_format(np.tile(values, (4, 3, 1)))
    assert (fmt.low, fmt.high) == expected


@pytest.mark.parametrize(
    "dtype",
    [
        "uint8",
        "int8",
        "int64",
        "uint16",
        "float16",
        "float32",
        "float64",
        ">f4",
        "bool",
    ],
)
def test_any_type_of_number(dtype):
    X = RNG.integers(0, 2, (4, 5, 5)).astype(dtype)
    fmt, batch = as_batch(X)
    expected = (X.astype(float) - fmt.low) / (fmt.high - fmt.low)
    torch.testing.assert_close(batch[:, 0], torch.tensor(expected).float())


@pytest.mark.parametrize("scale", [1e-30, 1e30, 1e100])
@pytest.mark.parametrize("shape", [(6, 5, 5), (6, 5)])
def test_extreme_scales_stay_finite(scale, shape):
    _, batch = as_batch(RNG.standard_normal(shape) * scale)
    assert torch.isfinite(batch).all()
    assert batch.std() > 0.1


def test_values_too_large_to_square_are_refused():
    with pytest.raises(ValueError, match=r"up to 1e\+140 in size"):
        infer_format(np.full((4, 5), 1e200))


# ----------------------------------------------------------------------- statistics


def test_statistics_of_images_are_per_channel_over_all_chunks(monkeypatch):
    X = RNG.integers(0, 256, (50, 6, 5, 3), dtype=np.uint8)
    monkeypatch.setattr("sk_mice._engine.arrays._CHUNK_VALUES", 7 * 6 * 5 * 3)
    fmt = infer_format(X)
    np.testing.assert_allclose(fmt.mean, (X / 255).mean((0, 1, 2)), rtol=1e-6)
    np.testing.assert_allclose(fmt.std, (X / 255).std((0, 1, 2)), rtol=1e-6)


def test_vectors_are_standardised():
    X = RNG.random((50, 4)) * [1, 10, 1e6, 0] + [0, 5, 1e9, 7]
    _, batch = as_batch(X)
    torch.testing.assert_close(batch.mean(0), torch.zeros(4), atol=1e-5, rtol=0)
    expected = torch.tensor([1.0, 1.0, 1.0, 0.0])  # a constant stays constant
    torch.testing.assert_close(batch.std(0, correction=0), expected, atol=1e-4, rtol=0)


# -------------------------------------------------------------------------- batches


@pytest.mark.parametrize("n_samples", [2, 5, 256, 257, 1000])
def test_an_epoch_holds_every_sample_once_in_even_batches(n_samples):
    X = np.arange(n_samples * 4, dtype=np.float64).reshape(n_samples, 4)
    samples = Samples(X, infer_format(X), CPU)
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


def test_order_follows_the_generator():
    X = np.zeros((100, 4))
    samples = Samples(X, infer_format(X), CPU)

    def order(seed):
        generator = torch.Generator().manual_seed(seed)
        return torch.cat(tuple(samples.shuffled_indices(32, generator)))

    assert torch.equal(order(0), order(0))
    assert not torch.equal(order(0), order(1))


def test_read_only_memory_map_stays_where_it_is(tmp_path):
    images = RNG.integers(0, 256, (20, 6, 5), dtype=np.uint8)
    np.save(tmp_path / "X.npy", images)
    X = np.load(tmp_path / "X.npy", mmap_mode="r")
    fmt, batch = as_batch(X)
    samples = Samples(X, fmt, CPU)
    assert samples.X is X
    torch.testing.assert_close(batch[:, 0] * 255, torch.tensor(images).float())
    assert torch.equal(torch.cat(list(samples.in_order(7))), batch)


def test_a_large_constant_stays_finite():
    X = np.full((3, 1), 5.118216247002567e138)  # its mean is another by rounding
    samples = Samples(X, infer_format(X), torch.device("cpu"))
    assert samples[torch.arange(3)].abs().max() < 1e-3


# --------------------------------------------------------------- larger than memory


@pytest.fixture
def large_file(tmp_path, monkeypatch):
    """A file of 400 rows of 64 bytes, which counts as large."""
    X = RNG.random((400, 8))
    np.save(tmp_path / "X.npy", X)
    monkeypatch.setattr(data, "WINDOW", 6400)
    monkeypatch.setattr(data, "BLOCK", 640)
    return np.load(tmp_path / "X.npy", mmap_mode="r")


def made(X):
    return Samples(X, infer_format(X), CPU)


def epoch(samples, seed=0):
    return list(samples.shuffled_indices(32, torch.Generator().manual_seed(seed)))


def test_what_is_large(large_file):
    assert made(large_file).is_large
    assert not made(np.array(large_file)).is_large
    assert not made(large_file[:100]).is_large
    dataset = TensorDataset(torch.from_numpy(np.array(large_file)))
    assert made(DatasetRows(dataset)).is_large


def test_small_file_has_the_order_of_memory(large_file):
    file = epoch(made(large_file[:100]))
    for one, other in zip(file, epoch(made(RNG.random((100, 8)))), strict=True):
        assert torch.equal(one, other)


def test_large_file_is_shuffled_in_windows(large_file):
    batches = epoch(made(large_file))
    assert [len(batch) for batch in batches] == [31] * 10 + [30] * 3
    order = torch.cat(batches)
    assert torch.equal(order.sort().values, torch.arange(400))
    assert len(blocks_of(order[:100])) <= 12  # 10 blocks of 10 rows
    again = torch.cat(epoch(made(large_file)))
    assert torch.equal(order, again)


def test_large_file_is_read_a_window_ahead(large_file, monkeypatch):
    asked = []
    monkeypatch.setattr(data, "will_need", lambda X, *rows: asked.append(rows))
    samples, n_asked = made(large_file), []
    for _ in samples.shuffled_indices(50, torch.Generator().manual_seed(0)):
        n_asked.append(sum(stop - start for start, stop in asked))
    # Nothing for the first batch, which may be the only one.
    assert n_asked == [0, 200, 200, 300, 300, 400, 400, 400]
    assert sorted(set().union(*(range(*rows) for rows in asked))) == list(range(400))


def test_batches_for_a_gpu_are_gathered_ahead(large_file, monkeypatch):
    samples, gathered = made(large_file), []

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
    assert 1 < len(gathered) <= 1 + data.BATCHES_AHEAD
    assert threading.main_thread() not in gathered
    with pytest.raises(OSError, match="gone"):
        list(batches)
    samples.device = CPU
    assert len(list(samples.in_order(50, slice(100, 230)))) == 3
