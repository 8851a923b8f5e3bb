"""Views are random where they should be and exact everywhere else."""

import colorsys

import numpy as np
import pytest
import torch
from shared import same_generators
from torch.nn.functional import affine_grid, grid_sample, interpolate
from torchvision.transforms.v2 import functional as reference

from sk_mice._engine.colours import (
    blur,
    blur_matrix,
    colour_basis,
    colour_map,
    lift,
    luma_weights,
    map_colours,
)
from sk_mice._engine.geometry import crop_boxes, sampling_grid
from sk_mice._engine.views import ImageViews, VectorViews, corrupt
from sk_mice.augmentation import NAMED, ImageAugmentation, resolve_augmentation

LUMA = torch.tensor([0.299, 0.587, 0.114])
TO_CHROMA = torch.tensor([[1, -0.5, -0.5], [0, 0.75**0.5, -(0.75**0.5)]])
SHAPES = ((1, 8, 8), (1, 28, 28), (3, 32, 32), (4, 20, 33), (3, 9, 24))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def pictures(*shape, seed=0):
    return torch.rand(shape, generator=seeded(seed))


def image_views(shape, augmentation="moco", **parameters):
    """Views that are not normalised, so that values can be read."""
    if isinstance(augmentation, str):
        crop_scale = (0.5, 1.0) if shape[0] == 1 else (0.2, 1.0)
        usual = {"flip": True, "crop_scale": crop_scale, "affine": (0, 0)}
        augmentation = ImageAugmentation(colors=augmentation, **(usual | parameters))
    mean, std = [0.0] * shape[0], [1.0] * shape[0]
    return ImageViews(shape, augmentation, mean=mean, std=std)


# What holds for every augmentation of images


@pytest.mark.parametrize("augmentation", [*NAMED, None, lambda x, generator: x * 0.5])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_samples", [1, 7])
def test_views_have_the_promised_form(shape, augmentation, n_samples):
    views = image_views(shape, augmentation=augmentation)
    out_shape = (shape[0], max(shape[1], 16), max(shape[2], 16))
    made = views(pictures(n_samples, *shape), 3, seeded())
    plain = views.plain(pictures(n_samples, *shape))
    assert views.out_shape == out_shape
    assert made.shape == (3, n_samples, *out_shape)
    assert plain.shape == (n_samples, *out_shape)
    for stack in (made.flatten(0, 1), made[:2].flatten(0, 1), plain):
        assert stack.dtype == torch.float32
        assert stack.isfinite().all()
        assert stack.is_contiguous(memory_format=torch.channels_last)
    assert made[:2].flatten(0, 1).data_ptr() == made.data_ptr()
    assert made.min() >= 0
    assert made.max() <= 1 + 1e-6  # weights of a blur sum to one up to rounding


@pytest.mark.parametrize("augmentation", NAMED)
@pytest.mark.parametrize("n_channels", [1, 3])
def test_every_view_of_every_image_has_its_own_draws(augmentation, n_channels):
    shape = (n_channels, 32, 32)
    same = pictures(1, *shape).expand(40, -1, -1, -1)
    made = image_views(shape, augmentation=augmentation)(same, 3, seeded())
    flat = made.flatten(0, 1).flatten(1)
    assert len(torch.unique(flat, dim=0)) == 120


@pytest.mark.parametrize("augmentation", NAMED)
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 8, 8)])
def test_the_generator_is_the_only_source_of_randomness(shape, augmentation):
    views = image_views(shape, augmentation=augmentation)
    batch = pictures(5, *shape)
    given = batch.clone()
    with same_generators():
        first, again, other = (views(batch, 2, seeded(s)) for s in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(batch, given)


@pytest.mark.parametrize("augmentation", NAMED)
@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
def test_constant_images_stay_constant(augmentation, value):
    batch = torch.full((6, 3, 16, 16), value)
    views = image_views((3, 16, 16), augmentation=augmentation)
    views.mean, views.std = torch.full((3, 1, 1), value), torch.ones(3, 1, 1)
    made = views(batch, 2, seeded())
    torch.testing.assert_close(made.amax((3, 4)), made.amin((3, 4)))
    views = ImageViews((3, 16, 16), None, mean=[value] * 3, std=[0.0] * 3)
    assert torch.equal(views.plain(batch), torch.zeros_like(batch))


# Plain samples


@pytest.mark.parametrize("shape", SHAPES)
def test_plain_is_the_resized_and_normalised_sample(shape):
    mean, std = torch.linspace(0.2, 0.5, shape[0]), torch.linspace(0.3, 0.1, shape[0])
    views = ImageViews(shape, None, mean=mean, std=std.tolist())
    batch = pictures(3, *shape)
    size = views.out_shape[1:]
    expected = interpolate(batch, size=size, mode="bilinear", align_corners=False)
    expected = (expected - mean[:, None, None]) / std[:, None, None]
    torch.testing.assert_close(views.plain(batch), expected)
    assert torch.equal(views.plain(batch), views.plain(batch))
    assert torch.equal(
        views(batch, 3, seeded()), views.plain(batch).expand(3, -1, -1, -1, -1)
    )


def test_normalisation_comes_last():
    batch = pictures(5, 3, 16, 16)
    raw = image_views((3, 16, 16))(batch, 2, seeded())
    augmentation = image_views((3, 16, 16)).augmentation
    mean, std = [0.1, 0.2, 0.3], [0.5, 0.0, 2.0]
    views = ImageViews((3, 16, 16), augmentation, mean=mean, std=std)
    expected = torch.tensor([0.1, 0.2, 0.3])[:, None, None]
    expected = (raw - expected) / torch.tensor([0.5, 1.0, 2.0])[:, None, None]
    torch.testing.assert_close(views(batch, 2, seeded()), expected)


# Geometry


def looked_at(batch, *boxes):
    """What a view shows of boxes of images."""
    grid = sampling_grid(*boxes)
    return grid_sample(batch, grid, padding_mode="border", align_corners=False)


@pytest.mark.parametrize("size", [(28, 28), (32, 32), (9, 40), (96, 96)])
def test_the_full_box_is_the_image(size):
    batch = pictures(2, 3, *size)
    full = [torch.full((2,), float(side)) for side in (0, 0, *size)]
    there = looked_at(batch, *full, size, size)
    torch.testing.assert_close(there, batch, rtol=0, atol=5e-6)
    mirrored = torch.tensor([False, True])
    there = looked_at(batch, *full, size, size, mirrored)
    torch.testing.assert_close(there[0], batch[0], rtol=0, atol=5e-6)
    torch.testing.assert_close(there[1], batch[1].flip(-1), rtol=0, atol=5e-6)


def test_the_grid_is_affine_grids():
    size, out = (20, 31), (24, 16)
    top, left, height, width = box = crop_boxes(pictures(4, 50), size, (0.2, 1.0))
    theta = torch.zeros(50, 2, 3)
    theta[:, 0, 0], theta[:, 1, 1] = width / size[1], height / size[0]
    theta[:, 0, 2] = (2 * left + width) / size[1] - 1
    theta[:, 1, 2] = (2 * top + height) / size[0] - 1
    expected = affine_grid(theta, (50, 1, *out), align_corners=False)
    grid = sampling_grid(*box, size, out)
    torch.testing.assert_close(grid, expected, rtol=0, atol=1e-6)
    mirrored = torch.arange(50) % 2 == 0
    grid = sampling_grid(*box, size, out, mirrored)
    torch.testing.assert_close(grid[1::2], expected[1::2], rtol=0, atol=1e-6)
    torch.testing.assert_close(grid[::2], expected[::2].flip(2), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("top", "left", "height", "width"), [(3, 5, 12, 17), (0, 0, 20, 26), (8, 6, 9, 11)]
)
def test_a_crop_is_the_resized_box(top, left, height, width):
    batch = pictures(2, 3, 20, 26)
    box = [torch.full((2,), float(value)) for value in (top, left, height, width)]
    made = looked_at(batch, *box, (20, 26), (32, 40))
    cut = batch[..., top : top + height, left : left + width]
    expected = interpolate(cut, size=(32, 40), mode="bilinear", align_corners=False)
    # Half a pixel inside its border a box sees no more than the cut-out image does.
    rows = slice(*_interior(height, 32))
    columns = slice(*_interior(width, 40))
    torch.testing.assert_close(
        made[..., rows, columns], expected[..., rows, columns], rtol=0, atol=1e-5
    )


def _interior(size_in, size_out):
    centres = (torch.arange(size_out) + 0.5) * size_in / size_out - 0.5
    inside = torch.nonzero((centres >= 0) & (centres <= size_in - 1))
    return inside[0].item(), inside[-1].item() + 1


@pytest.mark.parametrize("size", [(32, 32), (28, 20), (10, 60)])
@pytest.mark.parametrize("scale", [(0.2, 1.0), (0.5, 1.0), (1.0, 1.0)])
def test_crop_boxes_lie_inside_and_have_uniform_area(size, scale):
    draws = torch.rand(4, 20_000, generator=seeded())
    top, left, height, width = crop_boxes(draws, size, scale)
    for start, length, side in ((top, height, size[0]), (left, width, size[1])):
        assert length.min() > 0
        assert start.min() >= -1e-5
        assert (start + length).max() <= side + 1e-4
    share = (height * width / (size[0] * size[1])).sort().values
    torch.testing.assert_close(
        share, torch.linspace(*scale, len(share)), rtol=0, atol=0.02
    )


@pytest.mark.parametrize("size", [(40, 40), (30, 50)])
def test_crops_keep_the_published_aspects_where_they_fit(size):
    draws = torch.rand(4, 20_000, generator=seeded())
    _, _, height, width = crop_boxes(draws, size, (0.1, 0.4))
    aspect = torch.log(width / height).sort().values
    edge = float(np.log(4 / 3))
    expected = torch.linspace(-edge, edge, len(aspect))
    torch.testing.assert_close(aspect, expected, rtol=0, atol=0.02)


def test_crops_lie_anywhere_with_equal_probability():
    draws = torch.rand(4, 20_000, generator=seeded())
    top, left, height, width = crop_boxes(draws, (30, 50), (0.1, 0.4))
    down, right = top / (30 - height), left / (50 - width)
    for place in (down, right):
        expected = torch.linspace(0, 1, len(place))
        torch.testing.assert_close(place.sort().values, expected, rtol=0, atol=0.02)
    parts = torch.stack([draws[0], draws[1], down, right])
    torch.testing.assert_close(parts.corrcoef(), torch.eye(4), rtol=0, atol=0.03)


@pytest.mark.parametrize("augmentation", ["moco", "simclr"])
def test_flip_decides_whether_images_are_mirrored(augmentation):
    ramp = torch.linspace(0.2, 0.8, 24).expand(400, 1, 24, 24)
    half = {}
    for flip in (False, True):
        views = image_views((1, 24, 24), augmentation=augmentation, flip=flip)
        made = views(ramp, 2, seeded())
        half[flip] = made[..., 12:].mean((2, 3, 4)) > made[..., :12].mean((2, 3, 4))
    assert half[False].all()
    assert 0.44 < half[True].float().mean() < 0.56


@pytest.mark.parametrize("side", [8, 32])  # views are not smaller than 16
@pytest.mark.parametrize("colours", ["moco", "simclr", None])
def test_crop_scale_of_one_without_flip_only_recolours(colours, side):
    batch = pictures(6, 4, side, side)
    augmentation = ImageAugmentation(
        colors=colours, flip=False, crop_scale=(1, 1), affine=(0, 0)
    )
    views = image_views((4, side, side), augmentation)
    off = (views(batch, 3, seeded()) - views.plain(batch)).abs().amax((0, 1, 3, 4))
    assert off[3] < 1e-6
    assert (off[:3] > 0.1).all() if colours else (off[:3] < 1e-6).all()


@pytest.mark.parametrize("size", [(20, 31), (28, 28)])
def test_a_tilted_grid_is_affine_grids(size):
    out = (24, 16)
    top, left, height, width = box = crop_boxes(pictures(4, 50), size, (0.2, 1.0))
    tilt = pictures(2, 50, seed=1) * 2 - 1
    mirrored = torch.arange(50) % 2 == 0
    turn = torch.stack((tilt[0].cos(), -tilt[0].sin(), tilt[0].sin(), tilt[0].cos()))
    one, zero = torch.ones(50), torch.zeros(50)
    shear = torch.stack((one, tilt[1].tan(), zero, one))
    half_width = torch.where(mirrored, -width, width) / 2
    half_box = torch.stack((half_width, zero, zero, height / 2))
    turn, shear, half_box = (m.T.view(-1, 2, 2) for m in (turn, shear, half_box))
    pixels = torch.tensor(size[::-1])  # matrices act on (x, y)
    centre = torch.stack((left + width / 2, top + height / 2), dim=1)
    theta = torch.cat((turn @ shear @ half_box, centre[..., None]), dim=2)
    theta = theta / (pixels[:, None] / 2)
    theta[:, :, 2] -= 1
    expected = affine_grid(theta, (50, 1, *out), align_corners=False)
    grid = sampling_grid(*box, size, out, mirrored, tilt)
    torch.testing.assert_close(grid, expected, rtol=0, atol=1e-5)


def test_affine_turns_to_either_side_by_no_more_than_asked():
    # A bright row through the middle: its slope is the angle's tangent.
    batch = torch.zeros(200, 1, 33, 33)
    batch[:, :, 16] = 1.0
    views = image_views(
        (1, 33, 33), flip=False, crop_scale=(1, 1), affine=(20, 0), augmentation="moco"
    )
    made = views(batch, 1, seeded())[0, :, 0]
    rows = made[:, :, [8, 24]].argmax(1).diff(dim=1)[:, 0] / 16
    angles = torch.rad2deg(torch.atan(rows))
    assert 17 < angles.max() < 24  # the rows found are whole
    assert -24 < angles.min() < -17


def test_without_affine_nothing_is_drawn_for_it():
    batch = pictures(3, 3, 32, 32)
    straight, tilted, expected = seeded(), seeded(), seeded()
    image_views((3, 32, 32), affine=(0, 0))(batch, 2, straight)
    image_views((3, 32, 32), affine=(0, 5))(batch, 2, tilted)
    torch.rand(13, 6, generator=expected)
    assert torch.equal(straight.get_state(), expected.get_state())
    torch.rand(2, 6, generator=expected)
    assert torch.equal(tilted.get_state(), expected.get_state())


# Colour


def one_after_another(images, brightness, contrast, saturation, hue, order):
    """Each operation on its own, as its definition has it, without clamping."""
    to_chroma = torch.cat((LUMA[None], TO_CHROMA)).to(images)

    def luma(x):
        return (x * LUMA.to(x)[:, None, None]).sum(1, keepdim=True)

    def turn(x):
        y, a, b = torch.einsum("ij,njhw->nihw", to_chroma, x).unbind(1)
        angle = 2 * torch.pi * hue[:, None, None]
        cos, sin = torch.cos(angle), torch.sin(angle)
        turned = torch.stack((y, cos * a - sin * b, sin * a + cos * b), 1)
        return torch.einsum("ij,njhw->nihw", torch.linalg.inv(to_chroma), turned)

    b, c, s = (x[:, None, None, None] for x in (brightness, contrast, saturation))
    steps = {
        "brightness": lambda x: b * x,
        "contrast": lambda x: c * x + (1 - c) * luma(x).mean((2, 3), keepdim=True),
        "saturation": lambda x: s * x + (1 - s) * luma(x),
        "hue": turn,
    }
    for name in order:
        images = steps[name](images)
    return images


@pytest.mark.parametrize(
    "order",
    [
        ("brightness", "contrast", "saturation", "hue"),
        ("hue", "saturation", "contrast", "brightness"),
        ("contrast", "hue", "brightness", "saturation"),
    ],
)
def test_the_composed_map_is_the_operations_in_any_order(order):
    images = pictures(8, 3, 12, 10).double()
    factors = [0.5 + pictures(8, seed=s).double() for s in (1, 2, 3)]
    hue = pictures(8, seed=4).double() - 0.5
    matrix = colour_map(colour_basis(3), *factors, hue)
    made = lift(map_colours(images, matrix), factors[1], LUMA.double())
    expected = one_after_another(images, *factors, hue, order)
    torch.testing.assert_close(made, expected, rtol=0, atol=1e-6)


def test_several_views_of_one_image_keep_their_own_colours():
    batch = pictures(4, 3, 8, 8)
    matrix = pictures(12, 3, 3, seed=1)
    expected = torch.einsum("nij,njhw->nihw", matrix, batch.repeat_interleave(3, dim=0))
    torch.testing.assert_close(map_colours(batch, matrix), expected)


def test_hue_keeps_luma_and_turns_like_hsv():
    ones, zeros = torch.ones(12), torch.zeros(12)
    hue = torch.linspace(-0.5, 0.5, 12)
    matrix = colour_map(colour_basis(3).float(), ones, ones, ones, hue)
    colours = pictures(12, 3)
    made = torch.einsum("nij,nj->ni", matrix, colours)
    torch.testing.assert_close(made @ LUMA, colours @ LUMA)
    for before, after, turn in zip(colours, made, hue, strict=True):
        start = colorsys.rgb_to_hsv(*before.tolist())[0]
        end = colorsys.rgb_to_hsv(*after.tolist())[0]
        off = (end - start - turn.item() + 0.5) % 1 - 0.5
        assert abs(off) < 0.01  # a circle for HSV's hexagon: 1.1 degrees at each end
    unchanged = colour_map(colour_basis(3).float(), ones, ones, ones, zeros)
    torch.testing.assert_close(unchanged, torch.eye(3).expand(12, 3, 3))


@pytest.mark.parametrize("n_channels", [1, 2, 5])
def test_channels_that_are_no_colours_change_alike(n_channels):
    images = pictures(8, n_channels, 12, 10)
    b, c, s = (0.5 + pictures(8, seed=seed) for seed in (1, 2, 3))
    hue = pictures(8, seed=4) - 0.5
    matrix = colour_map(colour_basis(n_channels).float(), b, c, s, hue)
    made = lift(map_colours(images, matrix), c, luma_weights(n_channels))
    b, c = b[:, None, None, None], c[:, None, None, None]
    expected = b * (c * images + (1 - c) * images.mean((1, 2, 3), keepdim=True))
    torch.testing.assert_close(made, expected)


@pytest.mark.parametrize(
    ("colours", "strengths", "share"),
    [("moco", (0.4, 0.4, 0.4, 0.4), 1.0), ("simclr", (0.8, 0.8, 0.8, 0.2), 0.8)],
)
def test_views_have_the_published_colours(colours, strengths, share):
    # Each factor can be read from an image of two colours with a little chroma.
    pair = torch.tensor([[0.33, 0.35], [0.35, 0.37], [0.38, 0.40]])
    batch = pair.repeat_interleave(8, dim=1)[None, :, :, None].repeat(1500, 1, 1, 16)
    views = image_views((3, 16, 16), colours, flip=False, crop_scale=(1, 1))
    made = views(batch, 2, seeded()).flatten(0, 1)[..., [0, -1], 0]  # (N, 3, 2)
    luma, luma_before = LUMA @ made, LUMA @ pair
    chroma, before = (TO_CHROMA @ made)[:, :, 0], TO_CHROMA @ pair[:, 0]
    brightness = luma.mean(1) / luma_before.mean()
    contrast = luma.diff()[:, 0] / luma_before.diff() / brightness
    saturation = chroma.norm(dim=1) / before.norm() / contrast / brightness
    turn = torch.atan2(chroma[:, 1], chroma[:, 0]) - torch.atan2(before[1], before[0])
    hue = (turn / (2 * torch.pi) + 0.5) % 1 - 0.5

    is_jittered = (brightness - 1).abs() + (contrast - 1).abs() > 1e-4
    is_grey = saturation < 1e-3
    assert is_jittered.float().mean() == pytest.approx(share, abs=0.02)
    assert is_grey[is_jittered].float().mean() == pytest.approx(0.2, abs=0.03)
    factors = torch.stack((brightness - 1, contrast - 1, saturation - 1, hue))
    factors = factors[:, is_jittered & ~is_grey]
    for factor, strength in zip(factors, strengths, strict=True):
        expected = torch.linspace(-strength, strength, len(factor))
        found = factor.sort().values
        torch.testing.assert_close(found, expected, rtol=0, atol=0.1 * strength)
    torch.testing.assert_close(factors.corrcoef(), torch.eye(4), rtol=0, atol=0.06)


# Blur


@pytest.mark.parametrize("n_channels", [1, 3, 4, 5])
def test_blur_keeps_constants_and_the_last_of_four_channels(n_channels):
    sigma = torch.tensor([0.0, 0.1, 0.6, 2.0])
    constant = torch.full((4, n_channels, 17, 24), 0.4)
    torch.testing.assert_close(blur(constant, sigma), constant)
    images = pictures(4, n_channels, 17, 24)
    made = blur(images, sigma)
    assert torch.equal(made[0], images[0])
    n_blurred = 3 if n_channels == 4 else n_channels
    assert torch.equal(made[:, n_blurred:], images[:, n_blurred:])
    torch.testing.assert_close(
        made.mean((2, 3)), images.mean((2, 3)), rtol=0, atol=0.02
    )
    roughness = made[:, :n_blurred].diff(dim=-1).abs().sum((1, 2, 3))
    before = images[:, :n_blurred].diff(dim=-1).abs().sum((1, 2, 3))
    share = roughness / before
    assert (share.diff()[1:] < -0.2).all()


def test_blur_is_a_gaussian_away_from_the_border():
    images = pictures(3, 3, 40, 36)
    sigma = torch.tensor([0.5, 1.0, 1.5])
    made = blur(images, sigma)
    for index, width in enumerate(sigma.tolist()):
        expected = reference.gaussian_blur(images[index], [21, 21], [width, width])
        inner = (slice(None), slice(10, -10), slice(10, -10))
        torch.testing.assert_close(made[index][inner], expected[inner])
    assert blur_matrix(sigma, 9).shape == (3, 9, 9)


def test_half_of_the_simclr_views_are_blurred_by_up_to_two_pixels_of_224():
    # Stripes lose contrast to a blur, the upper and the lower half do not.
    stripes = torch.tensor([-0.02, -0.02, 0.02, 0.02]).repeat(32)
    batch = (0.4 + stripes).repeat(300, 1, 64, 1)
    batch[:, :, 32:] += 0.04
    views = image_views((1, 64, 128), "simclr", flip=False, crop_scale=(1, 1))
    made = views(batch, 2, seeded()).flatten(0, 2)
    inner = made[:, :, 32:96].unflatten(2, (-1, 4)).mean(2)  # (N, 64, 4)
    height = (inner[:, :16, 2:] - inner[:, :16, :2]).mean((1, 2))
    height = height / (inner[:, 48:] - inner[:, :16]).mean((1, 2))
    sigma = torch.linspace(0.1, 2.0, 300) * 64 / 224  # the shorter side decides
    left = (blur_matrix(sigma, 128) @ stripes)[:, 32:96].unflatten(1, (-1, 4)).mean(1)
    expected = (left[:, 2:] - left[:, :2]).mean(1) / 0.04
    expected = torch.cat((expected, torch.ones(300))).sort().values
    torch.testing.assert_close(height.sort().values, expected, rtol=0, atol=0.03)


# Callables


def test_a_callable_gets_the_stack_before_normalisation():
    def augmentation(images, generator):
        seen.append((images.clone(), generator))
        return images.mul_(0.5)  # writing on the stack must not reach the batch

    seen, generator = [], seeded()
    views = ImageViews((1, 8, 12), augmentation, mean=[0.2], std=[0.5])
    batch = pictures(4, 1, 8, 12)
    given = batch.clone()
    made = views(batch, 1, generator)
    assert torch.equal(batch, given)
    assert seen[0][1] is generator
    assert torch.equal(seen[0][0], batch)
    torch.testing.assert_close(made[0], views.plain(batch * 0.5))
    made = views(batch, 3, generator)
    assert seen[1][0].shape == (12, 1, 8, 12)
    torch.testing.assert_close(made[2], views.plain(batch * 0.5))


def test_what_a_callable_returns_is_resized_and_cast():
    views = image_views((3, 20, 20), augmentation=lambda x, g: x[..., :10].double())
    made = views(pictures(2, 3, 20, 20), 2, seeded())
    assert made.shape == (2, 2, 3, 20, 20)
    assert made.dtype == torch.float32


class Darker(ImageAugmentation):
    def __call__(self, stack, generator):
        return stack / 2


def test_a_subclass_that_can_be_called_is_called():
    augmentation = Darker()
    assert resolve_augmentation(augmentation, None) is augmentation
    batch = pictures(2, 1, 16, 16)
    views = image_views((1, 16, 16), augmentation=augmentation)
    torch.testing.assert_close(views(batch, 1, seeded())[0], views.plain(batch / 2))


@pytest.mark.parametrize(
    ("augmentation", "error", "message"),
    [
        (lambda x, g: x.numpy(), TypeError, "floating-point tensor; got ndarray"),
        (lambda x, g: None, TypeError, "floating-point tensor; got NoneType"),
        (lambda x, g: x.byte(), TypeError, "floating-point tensor; got torch.uint8"),
        (lambda x, g: x[:1], ValueError, r"\(4, 1, 16, 16\) on cpu; got \(1, 1, 16"),
        (lambda x, g: x.repeat(1, 3, 1, 1), ValueError, r"got \(4, 3, 16, 16\)"),
        (lambda x, g: x.flatten(1), ValueError, r"got \(4, 256\)"),
    ],
)
def test_bad_callables_are_refused(augmentation, error, message):
    views = image_views((1, 16, 16), augmentation=augmentation)
    with pytest.raises(error, match="`augmentation` must return .*" + message):
        views(pictures(2, 1, 16, 16), 2, seeded())


# Vectors


def test_plain_vectors_stay_as_they_are():
    batch = pictures(9, 3)
    views = VectorViews((3,), None)
    assert torch.equal(views.plain(batch), batch)
    assert views.out_shape == (3,)
    assert torch.equal(views(batch, 2, seeded()), batch.expand(2, -1, -1))


@pytest.mark.parametrize("name", NAMED)
def test_vectors_get_noise_and_values_of_other_samples(name):
    augmentation = NAMED[name][1]
    noise, replaced = augmentation.noise, augmentation.replacement
    batch = 10.0 * torch.arange(200.0)[:, None] + torch.zeros(200, 50)
    views = VectorViews((50,), augmentation)
    with same_generators():
        made = views(batch, 3, seeded())
    assert made.shape == (3, 200, 50)
    assert made.dtype == torch.float32
    assert torch.equal(made, views(batch, 3, seeded()))
    source = (made / 10).round() * 10
    assert abs((source != batch).float().mean() - replaced) < 0.01
    assert abs((made - source).std() - noise) < 0.005
    assert abs((made - source).mean()) < 0.01
    assert set(source.unique().tolist()) <= set(batch[:, 0].tolist())
    assert not torch.equal(made[0], made[1])


def test_replaced_values_keep_their_feature_and_never_come_from_the_sample_itself():
    batch = torch.arange(40.0).view(10, 4)  # value % 4 is the feature
    made = corrupt(batch, 50, 1.0, seeded())
    assert torch.equal(made % 4, torch.arange(4.0).expand(50, 10, 4))
    assert not (made == batch).any()
    assert len(made[:, 0, 0].unique()) == 9
    swapped = batch[:2].flip(0).expand(3, 2, 4)
    assert torch.equal(corrupt(batch[:2], 3, 1.0, seeded()), swapped)
    assert torch.equal(corrupt(batch[:1], 3, 1.0, seeded()), batch[:1].expand(3, 1, 4))


def test_a_callable_for_vectors():
    batch = pictures(5, 4)
    double = VectorViews((4,), lambda x, g: x.mul_(2))
    expected = (2 * batch).expand(3, -1, -1)
    torch.testing.assert_close(double(batch, 3, seeded()), expected)
    wrong = VectorViews((4,), lambda x, g: x.T)
    with pytest.raises(ValueError, match=r"`augmentation` .* \(15, 4\) .* \(4, 15\)"):
        wrong(batch, 3, seeded())
