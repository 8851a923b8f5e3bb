"""The operations of RandAugment, beside torchvision's."""

import numpy as np
import pytest
import torch
from torchvision.transforms.v2 import functional as reference

from sk_mice._engine import randaugment as ra


def seeded():
    return torch.Generator().manual_seed(0)


def pictures(*shape):
    return torch.rand(shape, generator=seeded())


def eight_bits(*shape):
    return torch.randint(0, 256, shape, generator=seeded(), dtype=torch.uint8)


def each(images, strength):
    return torch.full((len(images), 1, 1, 1), strength)


@pytest.mark.parametrize("n_channels", [1, 3])
def test_autocontrast(n_channels):
    images = pictures(4, n_channels, 20, 17)
    images[0, 0] = 0.5  # constant
    images[1] = 0.3 + 0.2 * images[1]
    expected = torch.stack([reference.autocontrast(image) for image in images])
    made = ra.autocontrast(images, each(images, 0.0))
    torch.testing.assert_close(made, expected)


@pytest.mark.parametrize("size", [(16, 16), (32, 32), (40, 25)])
def test_equalize_on_8_bits(size):
    images = eight_bits(5, 3, *size)
    images[1] //= 3
    images[2] = 77
    images[3, 0] = (images[3, 0] > 128) * 200
    expected = torch.stack([reference.equalize(image) for image in images])
    made = ra.equalize(images / 255, each(images, 0.0))
    torch.testing.assert_close(made * 255, expected.float(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("bits", [4.0, 5.7, 7.99])
def test_posterize_on_8_bits(bits):
    images = eight_bits(5, 3, 16, 16)
    expected = reference.posterize(images, int(bits))
    made = ra.posterize(images / 255, each(images, bits))
    torch.testing.assert_close(made * 255, expected.float(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("threshold", [0.0, 0.4, 1.0])
def test_solarize(threshold):
    images = pictures(4, 3, 16, 16)
    expected = reference.solarize(images, threshold)
    assert torch.equal(ra.solarize(images, each(images, threshold)), expected)
    # torchvision refuses thresholds above 1; Pillow inverts nothing there.
    assert torch.equal(ra.solarize(images, each(images, 256 / 255)), images)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (ra.colour, reference.adjust_saturation),
        (ra.contrast, reference.adjust_contrast),
        (ra.brightness, reference.adjust_brightness),
        (ra.sharpness, reference.adjust_sharpness),
    ],
)
@pytest.mark.parametrize("strength", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("n_channels", [1, 3])
def test_blends(operation, expected, strength, n_channels):
    images = pictures(4, n_channels, 16, 19)
    made = operation(images, each(images, strength))
    # torchvision's grey weights have four digits (0.2989), Pillow's and ours three.
    torch.testing.assert_close(made, expected(images, strength), rtol=0, atol=5e-4)


@pytest.mark.parametrize("size", [(32, 32), (24, 37)])
@pytest.mark.parametrize("amount", [-0.0913, 0.0377])
def test_moves(size, amount):
    images = pictures(2, 3, *size)
    height, width = size
    angle = 300 * amount
    slope = float(np.degrees(np.arctan(amount)))
    still = {"angle": 0.0, "translate": [0, 0], "scale": 1.0, "shear": [0.0, 0.0]}
    shift = amount * np.array([width, height])
    expected = {
        "rotate": reference.rotate(images, angle),
        # torchvision moves the content, Pillow's coefficients say where to look.
        "shear_x": reference.affine(
            images, **{**still, "shear": [slope, 0.0]}, center=[0, 0]
        ),
        "shear_y": reference.affine(
            images, **{**still, "shear": [0.0, slope]}, center=[0, 0]
        ),
        "translate_x": reference.affine(
            images, **{**still, "translate": [-shift[0], 0]}
        ),
        "translate_y": reference.affine(
            images, **{**still, "translate": [0, -shift[1]]}
        ),
    }
    for name, there in expected.items():
        amounts = dict.fromkeys(ra.GEOMETRIC_OPERATIONS, torch.zeros(2))
        amounts[name] = torch.full((2,), angle if name == "rotate" else amount)
        made = ra.warp(images, **amounts)
        # The nearest pixel of a position half way between two is a matter of rounding.
        differs = (made != there).float().mean()
        assert differs < 0.01, (name, differs)


def test_still_moves_nothing():
    images = pictures(3, 3, 21, 32)
    still = dict.fromkeys(ra.GEOMETRIC_OPERATIONS, torch.zeros(3))
    torch.testing.assert_close(ra.warp(images, **still), images)


def test_sharpness_leaves_the_border():
    images = pictures(3, 3, 16, 16)
    made = ra.sharpness(images, each(images, 0.05))
    inner = torch.zeros(16, 16, dtype=torch.bool)
    inner[1:-1, 1:-1] = True
    assert torch.equal(made[..., ~inner], images[..., ~inner])
    assert not torch.equal(made[..., inner], images[..., inner])


def test_cutout_covers_squares_up_to_half_the_side():
    images = torch.ones(4000, 1, 24, 24)
    draws = torch.rand(3, 4000, generator=seeded())
    hole = ra.cutout(images, draws, torch.zeros(1, 1, 1)) == 0
    tall, wide = hole.any(3).sum(2)[:, 0], hole.any(2).sum(2)[:, 0]
    assert torch.equal(hole.sum((1, 2, 3)), tall * wide)
    whole = (draws[1] > 0.3) & (draws[1] < 0.7) & (draws[2] > 0.3) & (draws[2] < 0.7)
    assert torch.equal(tall[whole], wide[whole])
    assert set(tall[whole].tolist()) == {0, 2, 4, 6, 8, 10, 12}


def test_rounds_apply_what_was_drawn_to_whom():
    names, low, high = ra._table(3, torch.device("cpu"))
    assert len(names) == 14
    assert "colour" not in ra._table(1, torch.device("cpu"))[0]
    images = pictures(14, 4, 20, 20)
    strength = torch.lerp(low, high, 0.8)
    made = images.clone()
    ra._apply_round(made, names, torch.arange(14), strength)
    for index, name in enumerate(names):
        image, amount = images[index : index + 1], strength[index]
        if name in ra.PIXEL_OPERATIONS:
            expected = ra.PIXEL_OPERATIONS[name][0](image[:, :3], amount)
            expected = torch.cat((expected, image[:, 3:]), 1)
        else:
            moves = dict.fromkeys(ra.GEOMETRIC_OPERATIONS, torch.zeros(1))
            expected = ra.warp(image, **{**moves, name: amount[None]})
        torch.testing.assert_close(made[index : index + 1], expected, msg=name)
