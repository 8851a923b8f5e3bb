"""How X is stored, and how it becomes a batch."""

import numpy as np
import pytest
import torch
from shared import samples_of

from sk_mice._engine.format import infer_format
from sk_mice._engine.samples import Samples

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
        ((5, 9, 3), {}, (1, 9, 3)),
        ((5, 63), {}, (63,)),
        ((5, 63), {"image_shape": (9, 7)}, (1, 9, 7)),
        ((5, 189), {"image_shape": (9, 7, 3)}, (3, 9, 7)),
        ((5, 2, 9, 7), {"image_shape": (2, 9, 7)}, (2, 9, 7)),
        ((5, 9, 7, 5), {"image_shape": (9, 7, 5)}, (5, 9, 7)),
        ((5, 8, 9, 9), {"image_shape": (8, 9, 9)}, (8, 9, 9)),
        ((5, 9, 9, 200), {"image_shape": (9, 9, 200)}, (200, 9, 9)),
        ((5, 450), {"image_shape": (9, 5, 10)}, (9, 5, 10)),
        ((5, 200, 3, 3), {"image_shape": (200, 3, 3)}, (200, 3, 3)),
        ((5, 2, 4, 4), {"image_shape": (2, 4, 4)}, (2, 4, 4)),
        ((5, 200, 3, 3), {}, (3, 200, 3)),
        ((5, 9, 3, 8), {"image_shape": (9, 3, 8)}, (8, 9, 3)),
    ],
)
def test_shapes(x_shape, options, shape):
    X = RNG.random(x_shape)
    fmt, batch = as_batch(X, **options)
    assert fmt.shape == shape
    assert batch.shape == (5, *shape)
    assert batch.dtype == torch.float32


@pytest.mark.parametrize("n_channels", [3, 5])
def test_all_layouts_of_one_image_agree(n_channels):
    images = RNG.integers(0, 256, (6, 9, 7, n_channels), dtype=np.uint8)
    planar = images.transpose(0, 3, 1, 2)
    first, last = (
        {"image_shape": (n_channels, 9, 7)},
        {"image_shape": (9, 7, n_channels)},
    )
    _, expected = as_batch(images, **last)
    torch.testing.assert_close(
        expected[0, :, 2, 5] * 255, torch.tensor(images[0, 2, 5]).float()
    )
    for X, options in [
        (planar, first),
        (images.reshape(6, -1), last),
        (planar.reshape(6, -1), first),
    ]:
        assert torch.equal(as_batch(X, **options)[1], expected)


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


def test_a_large_constant_stays_finite():
    X = np.full((3, 1), 5.118216247002567e138)  # its mean is another by rounding
    samples = samples_of(X)
    assert samples[torch.arange(3)].abs().max() < 1e-3
