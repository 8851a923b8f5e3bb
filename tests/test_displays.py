"""What the displays draw: images, points, curves, cells, titles."""

import builtins
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from shared import Averages, red_and_blue_files
from sklearn import config_context
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from systems import NOT_THERE

from sk_mice import (
    ClassificationEM,
    MiCEClustering,
    MoCo,
    SphericalKMeans,
    inspection,
)
from sk_mice.datasets import load_digits
from sk_mice.features import PretrainedFeatures
from sk_mice.inspection import (
    ClusterGalleryDisplay,
    EmbeddingDisplay,
    MatchedConfusionDisplay,
    PosteriorDisplay,
    TrainingDisplay,
    write_report,
)
from sk_mice.inspection._drawing import fair_sample
from sk_mice.metrics import clustering_accuracy_score

plt = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")


@pytest.fixture(scope="module")
def blobs():
    """Three well separated blobs of unequal sizes in five dimensions."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [60, 30, 6])
    return 10 * np.eye(3, 5)[y] + rng.normal(size=(len(y), 5)), y


def history(n_moco=4, n_em=6):
    """Rows as `MiCEClustering` has them, of 8 samples and 2 clusters."""
    first = {"stage": "moco", "confidence": 1.0, "changed": 0.0, "cluster_sizes": [8]}
    rows = [first | {"elbo": -5 + 0.1 * i} for i in range(n_moco)]
    for i in range(n_em):
        counts = np.zeros(10, int)
        counts[[4 - i // 2, 5 + i // 2]] = 8  # two clusters, which part
        row = {"stage": "em", "elbo": -4 + 0.1 * i, "confidence": 0.5 + 0.05 * i}
        row |= {"changed": 0.1 / (i + 1), "cluster_sizes": [5 - i // 5, 3 + i // 5]}
        rows.append(row | {"posterior_counts": counts.tolist()})
    return rows


def boxes_of(texts):
    """Left, bottom, right and top of texts in the drawn figure, (n, 4)."""
    texts[0].figure.canvas.draw()
    return np.array([plt.Text.get_window_extent(text).extents for text in texts])


def assert_apart(boxes):
    low, high = boxes[:, None, :2], boxes[None, :, 2:]
    overlap = (low < high).all(axis=2)
    overlap &= overlap.T
    np.fill_diagonal(overlap, False)
    assert not overlap.any(), np.argwhere(overlap)


def assert_within(boxes, frame):
    x0, y0, x1, y1 = frame.extents
    assert (boxes[:, :2] >= [x0 - 1, y0 - 1]).all()
    assert (boxes[:, 2:] <= [x1 + 1, y1 + 1]).all()


# ------------------------------------------------------------------------- gallery


def strips(ax):
    return [np.asarray(image.get_array()) for image in ax.images]


def shown_values(strip, side=4, gap=1):
    """The grey value of each of the constant images of a strip, in 255ths."""
    return strip[gap + side // 2, gap + side // 2 :: side + 2 * gap, 0].tolist()


def constant_images(values):
    return np.full((len(values), 4, 4), np.reshape(values, (-1, 1, 1)), np.uint8)


def test_gallery_shows_the_surest_images_of_each_cluster_first():
    X = constant_images([10, 20, 30, 40, 50, 60])
    display = ClusterGalleryDisplay.from_predictions(
        X,
        [7, 3, 7, 7, 3, 7],
        y_true=["cat", "dog", "dog", "cat", "dog", "cat"],
        confidence=[0.5, 0.4, 0.9, 0.7, 0.6, 0.1],
        n_images=3,
    )
    assert display.ax_.figure is display.figure_
    assert [own.tolist() for own in display.indices] == [[4, 1], [2, 3, 0]]
    assert [shown_values(s) for s in strips(display.ax_)] == [[50, 20], [30, 40, 10]]
    texts = [text.get_text() for text in display.ax_.texts]
    assert texts[0] == "cluster 3: 2 images\nconfidence 0.50\nmostly dog (100%)"
    assert texts[1] == "cluster 7: 4 images\nconfidence 0.55\nmostly cat (75%)"
    # One frame: around image 2, the first of the second row.
    (frame,) = display.ax_.patches
    left, right, bottom, top = display.ax_.images[1].get_extent()
    assert (frame.get_x(), frame.get_y()) == (left, top)
    assert frame.get_width() == pytest.approx((right - left) / 3)
    assert bottom - top == 1
    assert display.ax_.get_title().startswith("2 clusters of 6 images\nframed")


def test_ranks_sort_and_confidences_are_written():
    X = constant_images([10, 20, 30])
    display = ClusterGalleryDisplay.from_predictions(
        X, [0, 0, 0], confidence=[1, 1, 0.4], rank_by=[0.2, 0.3, 0.1]
    )
    assert shown_values(strips(display.ax_)[0]) == [20, 10, 30]
    assert display.ax_.texts[0].get_text() == "cluster 0: 3 images\nconfidence 0.80"
    unranked = ClusterGalleryDisplay.from_predictions(X, [0, 0, 0])
    assert shown_values(strips(unranked.ax_)[0]) == [10, 20, 30]


def test_gallery_compares_images_whose_class_is_known():
    y_true = [None, "cat", "dog", "cat", None]
    display = ClusterGalleryDisplay.from_predictions(
        constant_images(range(5)), [0, 0, 0, 0, 1], y_true=y_true
    )
    assert display.majority == ["cat", None]
    assert display.purity.tolist() == [2 / 3, 0]
    assert display.is_other[0].tolist() == [False, False, True, False]
    assert "mostly" not in display.ax_.texts[1].get_text()


class Sure:
    """Two clusters; the posterior and the agreement rank differently."""

    def predict(self, X):
        return np.array([0, 1, 1])

    def predict_proba(self, X):
        return np.array([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7]])

    def agreement(self, X):
        return np.array([[1, 0], [0.0, 1.0], [0.5, 0.5]])


def test_gallery_of_an_estimator_is_sorted_by_the_posterior_and_says_the_agreement():
    X = constant_images([10, 20, 30])
    display = ClusterGalleryDisplay.from_estimator(Sure(), X)
    assert display.indices[1].tolist() == [2, 1]
    assert display.confidence.tolist() == [1, 0.75]
    mixture = GaussianMixture(2, random_state=0).fit(X.reshape(3, -1) / 1.0)
    display = ClusterGalleryDisplay.from_estimator(
        mixture, X.reshape(3, -1) / 1.0, image_shape=(4, 4)
    )
    assert display.confidence == pytest.approx([1, 1], abs=1e-4)


@pytest.mark.parametrize("shape", [(6, 5, 3), (3, 6, 5), (6, 5, 4), (2, 6, 5), (6, 5)])
def test_gallery_takes_what_a_fit_takes(shape):
    X = np.random.default_rng(0).random((4, *shape))
    display = ClusterGalleryDisplay.from_predictions(X, [0, 0, 1, 1], image_shape=shape)
    assert display.images[0].shape[:3] == (2, 6, 5)
    assert strips(display.ax_)[0].shape == (8, 2 * 7, 4)


def test_gallery_takes_the_shape_of_images_from_the_first_step():
    X = np.random.default_rng(0).random((12, 64))
    moco = MoCo(max_epochs=1, image_shape=(8, 8), random_state=0)
    model = make_pipeline(moco, SphericalKMeans(1)).fit(X)
    for shape in ((64,), (8, 8), (8, 8, 1), (1, 8, 8)):  # those that it predicts
        display = ClusterGalleryDisplay.from_estimator(model, X.reshape(12, *shape))
        assert display.images[0].shape == (10, 8, 8, 1)


@pytest.mark.parametrize("n_clusters", [1, 2])
def test_gallery_refuses_one_image_whatever_it_would_show(n_clusters):
    image, y_pred = np.zeros((40, 40, 3)), np.arange(40) % n_clusters
    with pytest.raises(ValueError, match=r"^X of shape \(40, 40, 3\) looks like one"):
        ClusterGalleryDisplay.from_predictions(image, y_pred)


def test_gallery_refuses_a_side_as_the_shape_of_images():
    X = np.random.default_rng(0).random((4, 9))
    with pytest.raises(ValueError, match=r"`image_shape` must be \(H, W\).*got 3\."):
        ClusterGalleryDisplay.from_predictions(X, [0, 0, 1, 1], image_shape=3)


@pytest.mark.parametrize("dtype", ["float64", "int16", "uint8", "object"])
def test_black_and_white_are_those_of_all_images(dtype):
    X = constant_images([0, 10, 20, 50, 100]).astype(dtype)
    white = 255 if dtype == "uint8" else 100
    for clusters in ([0, 0, 0, 0, 0], [0, 0, 1, 1, 1]):
        display = ClusterGalleryDisplay.from_predictions(
            X, clusters, rank_by=[5, 4, 3, 2, 1], n_images=2
        )
        shown = np.concatenate(display.images)[:2]
        assert shown.max(axis=(1, 2, 3)) == pytest.approx([0, 10 / white])


def test_large_images_are_drawn_small():
    X = np.zeros((2, 300, 200, 3), np.uint8)
    display = ClusterGalleryDisplay.from_predictions(X, [0, 1])
    assert strips(display.ax_)[0].shape == (96 + 2 * 6, 64 + 2 * 6, 4)


@pytest.mark.parametrize("size", [None, (3, 3), (4, 8), (9, 3)])
@pytest.mark.parametrize("name", ["{}", "a class with quite a long name, number {}"])
def test_text_beside_a_gallery_fits(size, name):
    y = np.arange(200) % 10
    y_true = [name.format(k) for k in (y + (np.arange(200) < 20)) % 10]
    ax = size and plt.subplots(figsize=size, layout="constrained")[1]
    display = ClusterGalleryDisplay.from_predictions(
        constant_images(y), y, y_true=y_true, confidence=y / 10, ax=ax
    )
    boxes = boxes_of(display.ax_.texts)
    assert_apart(boxes)
    assert_within(boxes, display.figure_.bbox)
    images = [image.get_window_extent() for image in display.ax_.images]
    assert max(boxes[:, 2]) < min(image.x0 for image in images)
    title = boxes_of([display.ax_.title])
    assert_apart(np.r_[title, boxes])
    assert_within(title, display.figure_.bbox)


@pytest.mark.parametrize("shape", [(4, 200), (200, 5), (8, 8)])
def test_a_gallery_of_images_of_any_shape_has_a_figure_of_usual_size(shape):
    X = np.zeros((20, *shape))
    display = ClusterGalleryDisplay.from_predictions(X, [0] * 20, n_images=10)
    width, height = display.figure_.get_size_inches()
    assert 3 <= width <= 20
    assert height < 2
    left, right, bottom, top = display.ax_.images[0].get_extent()
    assert display.ax_.get_title() == "1 cluster of 20 images"
    n_rows, n_pixels = strips(display.ax_)[0].shape[:2]
    assert (right - left) / (bottom - top) == pytest.approx(n_pixels / n_rows)


# ----------------------------------------------------------------------------- map


def test_map_has_a_point_for_each_sample_and_a_name_for_each_group(blobs):
    X, y = blobs
    display = EmbeddingDisplay.from_predictions(X, y, reducer=PCA(2))
    assert [len(c.get_offsets()) for c in display.ax_.collections] == [60, 30, 6]
    names = {text.get_text(): text.xy for text in display.ax_.texts}
    for k, name in enumerate("012"):
        own = display.points[y == k]
        median = np.median(own, axis=0)
        assert (own == names[name]).all(axis=1).any()
        nearest = np.linalg.norm(own - median, axis=1).min()
        assert np.linalg.norm(names[name] - median) == pytest.approx(nearest)
    assert display.ax_.get_title() == "PCA of 96 samples, by cluster"
    # Grey copies tell groups apart: luminance rises, and markers differ.
    colours = np.array([c.get_facecolor()[0, :3] for c in display.ax_.collections])
    assert (np.diff(colours @ [0.2, 0.7, 0.1]) > 0.1).all()
    paths = [c.get_paths()[0].vertices.tobytes() for c in display.ax_.collections]
    assert len(set(paths)) == 3


def test_the_sample_is_fair_and_repeatable(blobs):
    X, y = blobs
    options = {"reducer": PCA(2), "n_points": 16}
    displays = [
        EmbeddingDisplay.from_predictions(X, y, random_state=seed, **options)
        for seed in (0, 0, 1)
    ]
    for display in displays:
        assert np.bincount(y[display.indices]).tolist() == [10, 5, 1]
        assert len(np.unique(display.indices)) == 16
    first, same, other = (display.indices.tolist() for display in displays)
    assert first == same != other
    # Groups of any size are there, if there is room.
    y = np.repeat([0, 1], [95, 1])
    few = EmbeddingDisplay.from_predictions(X, y, reducer=PCA(2), n_points=3)
    assert 95 in few.indices


@pytest.mark.parametrize(
    ("evenly", "n", "counts"),
    [
        (True, 45, [5, 20, 0, 20]),
        (True, 3, [1, 1, 0, 1]),
        (False, 31, [1, 20, 0, 10]),
        (False, 3, [1, 1, 0, 1]),
    ],
)
def test_fair_sample(evenly, n, counts):
    rng = np.random.RandomState(0)
    codes = np.repeat([0, 1, 3], [5, 100, 50])
    rows = fair_sample(codes, n, rng, evenly=evenly)
    assert np.bincount(codes[rows]).tolist() == counts
    assert len(set(rows.tolist())) == n
    assert len(fair_sample(codes, 2, rng, evenly=evenly)) == 2
    assert fair_sample(codes, 155, rng, evenly=evenly).tolist() == list(range(155))


@pytest.mark.parametrize("size", [None, (3, 3), (8, 4)])
@pytest.mark.parametrize("name", ["{}", "a class with quite a long name, number {}"])
def test_names_on_a_map_do_not_overlap(size, name):
    rng = np.random.default_rng(0)
    n = 60 if name == "{}" else 10
    y = np.arange(600) % n
    X = rng.normal(size=(n, 2)).round()[y] + rng.normal(size=(600, 2)) / 10
    names = np.array([name.format(k) for k in range(n)])[y]
    ax = None if size is None else plt.subplots(figsize=size)[1]
    display = EmbeddingDisplay.from_predictions(X, names, ax=ax)
    assert len(display.ax_.texts) == n
    boxes = boxes_of(display.ax_.texts)
    assert_apart(boxes)
    assert_within(boxes, display.ax_.get_window_extent())
    # A line leads to its place from each name that is not there.
    for text, box in zip(display.ax_.texts, boxes, strict=True):
        place = display.ax_.transData.transform(text.xy)
        is_there = np.allclose(place, box.reshape(2, 2).mean(axis=0), atol=2)
        assert text.arrow_patch.get_visible() != is_there


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_names_of_very_near_or_far_points_are_at_the_same_ones(blobs, scale):
    X, y = blobs[0][:, :2], blobs[1]
    usual, other = (
        EmbeddingDisplay.from_predictions(factor * X, y) for factor in (1, scale)
    )
    for text, expected in zip(other.ax_.texts, usual.ax_.texts, strict=True):
        assert np.divide(text.xy, scale) == pytest.approx(expected.xy)


def test_equal_points_have_a_map():
    display = EmbeddingDisplay.from_predictions(np.ones((3, 2)), [0, 0, 1])
    assert_apart(boxes_of(display.ax_.texts))
    assert display.ax_.get_xlim() == (0, 2)


def test_a_map_has_one_scale(blobs):
    X = blobs[0][:, :2] * [100, 1]
    _, axes = plt.subplots(1, 2, sharex=True, sharey=True)
    for ax in (None, *axes):
        display = EmbeddingDisplay.from_predictions(X, blobs[1], ax=ax)
        display.figure_.canvas.draw()
        to_pixels = display.ax_.transData.transform([[0, 0], [1, 1]])
        assert np.ptp(to_pixels[:, 0]) == pytest.approx(np.ptp(to_pixels[:, 1]))


def test_tsne_is_the_default_and_keeps_blobs_together(blobs):
    X, y = blobs
    display = EmbeddingDisplay.from_predictions(X, y, n_points=60)
    assert display.ax_.get_title() == "t-SNE of 60 of 96 samples, by cluster"
    distances = np.linalg.norm(display.points[:, None] - display.points, axis=2)
    np.fill_diagonal(distances, np.inf)
    assert (display.y_pred[distances.argmin(axis=1)] == display.y_pred).mean() > 0.95
    assert len(EmbeddingDisplay.from_predictions(X[:3], y[:3]).points) == 3


def test_samples_without_a_class_are_grey_on_a_map(blobs):
    X, y = blobs
    classes = np.where(np.arange(len(y)) % 2, y, np.nan)
    display = EmbeddingDisplay.from_predictions(X, y_true=classes, reducer=PCA(2))
    unknown, *known = display.ax_.collections
    assert len(unknown.get_offsets()) == 48
    assert unknown.get_facecolor()[0].tolist() == [0.8, 0.8, 0.8, 1]
    assert len(known) == len(display.ax_.texts) == 3


def test_numbers_of_classes_are_written_alike_if_a_class_is_missing(blobs):
    X, y = blobs
    missing = np.where(np.arange(len(y)) == 5, np.nan, y)
    for classes in (y, missing, missing.astype(np.float32)):
        display = EmbeddingDisplay.from_predictions(X, y_true=classes, reducer=PCA(2))
        assert {text.get_text() for text in display.ax_.texts} == {"0", "1", "2"}
        display = MatchedConfusionDisplay.from_predictions(classes, y)
        names = [text.get_text() for text in display.ax_.get_yticklabels()]
        assert sorted(names) == ["0", "1", "2"]


def test_classes_may_be_a_column_of_a_table(blobs):
    X, y = blobs
    model, table = KMeans(3, n_init=1, random_state=0).fit(X), y[:, None]
    confusion = MatchedConfusionDisplay.from_estimator(model, X, table)
    want = MatchedConfusionDisplay.from_estimator(model, X, y)
    assert np.array_equal(confusion.confusion_matrix, want.confusion_matrix)
    display = EmbeddingDisplay.from_predictions(X, table, reducer=PCA(2))
    assert np.array_equal(display.y_pred, y)


def test_map_of_an_estimator_by_cluster_and_by_class(blobs):
    X, y = blobs
    names = np.array(["ape", "bee", "cat"])[y]
    model = make_pipeline(
        StandardScaler(), PCA(2), KMeans(4, n_init=3, random_state=0)
    ).fit(X)
    display = EmbeddingDisplay.from_estimator(model, X, names)
    assert display.points == pytest.approx(model[:-1].transform(X))  # as it is
    assert len(display.ax_.collections) == 4
    display.plot(color_by="class")
    assert [t.get_text() for t in display.ax_.texts] == ["ape", "bee", "cat"]
    assert display.ax_.get_title() == "Map of 96 samples, by class"


def test_map_of_a_transformer_without_predict_has_classes_alone(blobs):
    X, y = blobs
    pca = PCA(2).fit(X)
    by_class = EmbeddingDisplay.from_estimator(pca, X, y)
    assert "by class" in by_class.ax_.get_title()
    with pytest.raises(ValueError, match="needs clusters or classes"):
        EmbeddingDisplay.from_estimator(pca, X)
    with pytest.raises(ValueError, match=r"one of \['class'\] here; got 'cluster'"):
        by_class.plot(color_by="cluster")


@pytest.mark.parametrize("scale", [1e-200, 1e-25, 1, 1e18, 1e200])
def test_a_map_of_very_small_or_large_values_keeps_blobs_together(blobs, scale):
    X, y = blobs
    X = X / np.abs(X).max()
    points = EmbeddingDisplay.from_predictions(scale * X, y).points
    distances = np.linalg.norm(points[:, None] - points, axis=2)
    same = y[:, None] == y
    assert distances[same].mean() < 0.5 * distances[~same].mean()


def test_a_map_takes_bits_and_small_numbers(blobs):
    X, y = blobs
    for rows in (X > 1, X.astype(np.float16), X.astype(np.int8), csr_array(X > 1)):
        display = EmbeddingDisplay.from_predictions(rows, y, n_points=30)
        assert np.isfinite(display.points).all()
        assert np.ptp(display.points, axis=0).all()


# ------------------------------------------------------------- posterior, training


def test_posterior_of_a_fit_is_that_of_its_first_and_last_epoch_of_em():
    model = SimpleNamespace(history_=history())
    display = PosteriorDisplay.from_estimator(model)
    assert display.names == ["epoch 1 of EM", "epoch 6 of EM"]
    left, right = display.axes_
    first, last = (stairs.get_data().values for stairs in left.patches)
    assert np.flatnonzero(first).tolist() == [4, 5]
    assert np.flatnonzero(last).tolist() == [2, 7]
    assert first.sum() == last.sum() == 1
    assert [bar.get_height() for bar in right.patches] == [4, 4]
    short = SimpleNamespace(history_=history(n_em=1))
    assert PosteriorDisplay.from_estimator(short).names == ["epoch 1 of EM"]


def test_posterior_of_a_chosen_epoch():
    model = SimpleNamespace(history_=history())
    display = PosteriorDisplay.from_estimator(model, epochs=2)
    assert display.names == ["epoch 2 of EM"]
    assert [bar.get_height() for bar in display.axes_[1].patches] == [5, 3]


def test_posterior_of_a_matrix():
    display = PosteriorDisplay.from_predictions([[0.95, 0.05], [0.75, 0.25]])
    assert display.shares[0, [0, 2, 7, 9]].tolist() == [0.25] * 4
    assert display.sizes.tolist() == [2, 0]


def test_training_has_a_curve_for_each_stage():
    fitted = SimpleNamespace(history_=history())
    pipeline = Pipeline([("mice", fitted)])
    display = TrainingDisplay.from_estimator(SimpleNamespace(best_estimator_=pipeline))
    elbo, confidence, changed = display.axes_
    moco, em, border = elbo.lines
    assert moco.get_xdata().tolist() == [1, 2, 3, 4]
    assert em.get_xdata().tolist() == [5, 6, 7, 8, 9, 10]
    assert em.get_ydata()[0] == -4
    assert border.get_xdata() == [4.5, 4.5]
    assert [t.get_text() for t in elbo.get_legend().texts] == [
        "first stage (MoCo)",
        "EM",
    ]
    curve, border = confidence.lines  # the first stage has no clusters
    assert curve.get_ydata()[0] == 0.5
    assert border.get_xdata() == [4.5, 4.5]
    assert changed.lines[0].get_ydata()[0] == 0.1


def test_training_in_one_stage_has_no_border():
    only_em = TrainingDisplay(history=history(n_moco=0)).plot()
    assert [len(ax.lines) for ax in only_em.axes_] == [1, 1, 1]
    (elbo,) = TrainingDisplay(history=history(n_em=0)).plot().axes_
    assert len(elbo.lines) == 1


@pytest.mark.parametrize(("n_moco", "n_em"), [(0, 1), (1, 0), (4, 6), (0, 10)])
def test_epochs_on_an_axis_are_those_of_the_fit(n_moco, n_em):
    display = TrainingDisplay(history=history(n_moco, n_em)).plot()
    display.figure_.canvas.draw()
    for ax in display.axes_:
        assert ax.get_xlim() == (0.5, n_moco + n_em + 0.5)
        ticks = [tick for tick in ax.get_xticks() if 0.5 < tick < n_moco + n_em + 0.5]
        assert ticks
        assert all(tick == int(tick) for tick in ticks)
    for ax in display.axes_[1:]:
        low, high = ax.get_ylim()
        assert low == 0
        assert high == pytest.approx(1.05 * max(ax.lines[0].get_ydata()))


def test_two_fits_fit_into_one_picture():
    long = TrainingDisplay(history=history()).plot()
    short = TrainingDisplay(history=history(1, 1)).plot(long.axes_)
    assert short.axes_[0].get_xlim() == (0.5, 10.5)
    for ax in short.axes_[1:]:
        curves = [line.get_ydata() for line in ax.lines if line.get_marker() == "."]
        highest = max(map(max, curves))
        assert ax.get_ylim()[1] >= highest
    flat = PosteriorDisplay.from_predictions(np.full((10, 10), 0.1))
    both = PosteriorDisplay.from_predictions(np.full((10, 4), 0.25), ax=flat.axes_)
    assert both.axes_[0].get_ylim()[1] >= 1


@pytest.mark.parametrize("n_clusters", [1, 2, 10, 200])
def test_every_number_beside_the_sizes_is_a_cluster(n_clusters):
    posterior = np.eye(n_clusters)[np.arange(200) % n_clusters]
    right = PosteriorDisplay.from_predictions(posterior).axes_[1]
    assert right.get_xlim() == (-0.5, n_clusters - 0.5)
    shown = [tick for tick in right.get_xticks() if -0.5 < tick < n_clusters - 0.5]
    assert shown
    assert set(shown) <= set(range(n_clusters))


# ---------------------------------------------------------------------- confusion


def test_best_match_lies_on_the_diagonal(blobs):
    _, y = blobs
    y_pred = np.array([5, 9, 7])[y]
    y_pred[:6] = 9
    display = MatchedConfusionDisplay.from_predictions(y, y_pred)
    assert display.clusters == [5, 9, 7]
    assert np.diag(display.confusion_matrix).tolist() == [54, 30, 6]
    acc = clustering_accuracy_score(y, y_pred)
    assert display.ax_.get_title().startswith(f"ACC {acc:.3f}: 96 samples")
    cells = {text.get_position(): text.get_text() for text in display.ax_.texts}
    assert cells == {(0, 0): "54", (1, 0): "6", (1, 1): "30", (2, 2): "6"}
    assert np.asarray(display.ax_.images[0].get_array())[0, 1] == 0.1
    # White on the dark cell of nearly all of a class, black on the light one beside it.
    colours = {text.get_position(): text.get_color() for text in display.ax_.texts}
    assert (colours[0, 0], colours[1, 0]) == ("white", "black")


def test_what_has_no_match_comes_last():
    y_true, y_pred = ["b", "b", "a", "a", "a", "c"], [0, 0, 1, 1, 2, 0]
    display = MatchedConfusionDisplay.from_predictions(y_true[:5], y_pred[:5])
    assert (display.classes, display.clusters) == (["a", "b"], [1, 0, 2])
    assert display.confusion_matrix.tolist() == [[2, 0, 1], [0, 2, 0]]
    display = MatchedConfusionDisplay.from_predictions(y_true, np.minimum(y_pred, 1))
    assert display.classes == ["a", "b", "c"]
    assert display.confusion_matrix.tolist() == [[3, 0], [0, 2], [0, 1]]


def test_classes_of_many_clusters_all_have_legible_names():
    y = np.arange(400) % 10
    display = MatchedConfusionDisplay.from_predictions(y, np.arange(400) // 2)
    display.figure_.canvas.draw()
    names = display.ax_.get_yticklabels()
    assert [name.get_text() for name in names] == [str(k) for k in range(10)]
    assert min(name.get_size() for name in names) >= 8
    assert not display.ax_.texts  # counts would not be legible


def test_long_names_of_classes_leave_room_for_the_counts():
    y = np.arange(7000) % 7
    names = [f"class with a very long name, number {k} of the seven" for k in y]
    display = MatchedConfusionDisplay.from_predictions(names, y)
    display.figure_.canvas.draw()
    cell = display.ax_.get_window_extent().width / 7
    for text in display.ax_.texts:
        assert text.get_window_extent().width < cell
    title, figure = display.ax_.title.get_window_extent(), display.figure_.bbox
    assert figure.x0 <= title.x0
    assert title.x1 <= figure.x1


@pytest.mark.parametrize("size", [None, (3, 3), (8, 4)])
def test_counts_fit_their_cells_and_names_each_other(size):
    y = np.repeat(np.arange(10), 20_000)
    names = np.array([f"a class with quite a long name, number {k}" for k in range(10)])
    ax = None if size is None else plt.subplots(figsize=size)[1]
    y_pred = names[np.roll(y, 5000)]
    display = MatchedConfusionDisplay.from_predictions(names[y], y_pred, ax=ax)
    counts = boxes_of(display.ax_.texts)
    assert_apart(counts)
    cell = display.ax_.get_window_extent().width / 10
    assert (counts[:, 2] - counts[:, 0]).max() < cell
    for labels in (display.ax_.get_xticklabels(), display.ax_.get_yticklabels()):
        assert_apart(boxes_of(labels))
        assert labels[-1].get_text().endswith("number 9")
    if size is None:
        assert cell > 30


def test_a_title_counts_one_in_the_singular():
    display = MatchedConfusionDisplay.from_predictions([0, 0], [3, 4])
    title = display.ax_.get_title()
    assert title == "ACC 0.500: 2 samples, 2 clusters, 1 class"
    assert display.ax_.images[0].get_clim() == (0, 0.5)  # to the largest share
    display = MatchedConfusionDisplay.from_predictions([0], [3])
    assert display.ax_.get_title() == "ACC 1.000: 1 sample, 1 cluster, 1 class"


# --------------------------------------------------------------------- all of them


@pytest.fixture
def displays(blobs):
    """Each display, and how many Axes it needs."""
    X, y = blobs
    images = constant_images(y)
    return [
        (ClusterGalleryDisplay.from_predictions(images, y), 1),
        (EmbeddingDisplay.from_predictions(X[:, :2], y), 1),
        (MatchedConfusionDisplay.from_predictions(y, y), 1),
        (PosteriorDisplay.from_predictions(np.eye(3)[y]), 2),
        (TrainingDisplay(history=history()).plot(), 3),
    ]


def test_a_second_plot_goes_into_given_axes(displays):
    named = {name for name in inspection.__all__ if name.endswith("Display")}
    assert {type(display).__name__ for display, _ in displays} == named
    for display, n in displays:
        figure, axes = plt.subplots(1, n)
        before = len(plt.get_fignums())
        assert display.plot(axes) is display
        assert len(plt.get_fignums()) == before
        assert display.figure_ is figure
        drawn = display.axes_ if n > 1 else [display.ax_]
        assert list(drawn) == list(np.atleast_1d(axes))
        assert all(ax.has_data() for ax in drawn)
        figure.canvas.draw()
        for wrong in (figure, [axes] * 4, 3):
            with pytest.raises(ValueError, match=r"`ax` must be .* matplotlib Axes"):
                display.plot(wrong)


def test_names_are_written_as_they_are(blobs):
    X, y = blobs
    names = np.array(["$x_1$", r"a_b^c \alpha", "x\ny"])
    for display in (
        ClusterGalleryDisplay.from_predictions(constant_images(y), names[y]),
        EmbeddingDisplay.from_predictions(X[:, :2], names[y]),
        MatchedConfusionDisplay.from_predictions(names[y], names[y]),
    ):
        ax = display.ax_
        labels = [*ax.get_xticklabels(), *ax.get_yticklabels()] if ax.axison else []
        texts = [text for text in [*ax.texts, *labels] if not text.get_text().isdigit()]
        for name in ("$x_1$", names[1], "x y"):
            own = [text for text in texts if name in text.get_text()]
            assert own
            assert not any(text.get_parse_math() for text in own)
        display.figure_.canvas.draw()  # formulas that are none


@pytest.mark.parametrize(
    "style", ["default", "dark_background", {"axes.facecolor": "none"}]
)
def test_colours_stand_out_from_the_background(blobs, style):
    X, y = blobs

    def luminance(colour):
        return np.dot(plt.matplotlib.colors.to_rgb(colour), [0.2, 0.7, 0.1])

    with plt.style.context(style):
        embedding = EmbeddingDisplay.from_predictions(X[:, :2], y)
        training = TrainingDisplay(history=history()).plot()
        posterior = PosteriorDisplay.from_predictions(np.eye(3)[y])
    colours = [points.get_facecolor()[0, :3] for points in embedding.ax_.collections]
    colours += [line.get_color() for line in training.axes_[0].lines[:2]]
    colours += [bar.get_facecolor()[:3] for bar in posterior.axes_[1].patches]
    paper = luminance(embedding.figure_.get_facecolor())
    assert min(abs(luminance(colour) - paper) for colour in colours) > 0.25
    (text, *_) = embedding.ax_.texts
    (effect,) = text.get_path_effects()
    halo = effect._gc["foreground"]
    assert abs(luminance(halo[:3]) - luminance(text.get_color())) > 0.5


def test_a_hundred_clusters_are_legible():
    rng = np.random.default_rng(0)
    y = np.arange(300) % 100
    y_pred = (7 * y + 3) % 100
    y_pred[:50] = 0
    images = rng.integers(0, 256, (300, 8, 8), np.uint8)
    for display in (
        ClusterGalleryDisplay.from_predictions(images, y_pred, y_true=y),
        EmbeddingDisplay.from_predictions(rng.random((300, 2)), y_pred),
        MatchedConfusionDisplay.from_predictions(y, y_pred),
    ):
        display.figure_.canvas.draw()
        ax = display.ax_
        texts = [*ax.texts, *(ax.get_xticklabels() if ax.axison else [])]
        assert len(texts) == 100
        assert min(text.get_size() for text in texts) >= 4
    PosteriorDisplay.from_predictions(np.eye(100)[y]).figure_.canvas.draw()


def refuses(message, call, *args, error=ValueError, **options):
    """Check that a call is refused, with this in the message, and draws nothing."""
    with pytest.raises(error, match=re.escape(message)):
        call(*args, **options)
    assert not plt.get_fignums()


def test_a_gallery_refuses(blobs):
    X, y = blobs
    images = constant_images(y)
    from_predictions = ClusterGalleryDisplay.from_predictions
    from_estimator = ClusterGalleryDisplay.from_estimator
    refuses("`X` must hold images", from_predictions, X, y)
    refuses("got a sparse matrix of shape (96, 5)", from_predictions, csr_array(X), y)
    refuses("images; got none", from_predictions, images[:0], y[:0])
    kmeans = KMeans(3).fit(images.reshape(len(images), -1))
    refuses("images; got none", from_estimator, kmeans, images[:0])
    each = "must have a value for each"
    of_all = f"`y_pred` {each} of the 96 samples; got shape (5,)"
    refuses(of_all, from_predictions, images, y[:5])
    refuses(f"`confidence` {each}", from_predictions, images, y, confidence=[1.0])
    refuses(f"`y` {each}", from_estimator, Sure(), images, y[:3])
    refuses("'n_images' parameter", from_predictions, images, y, n_images=0)
    # Images are checked before predictions, which a class cannot make.
    refuses("`X` must hold images", from_estimator, Sure, X)
    bare = SimpleNamespace()
    words = "`estimator` must have `predict`"
    refuses(words, from_estimator, bare, images, error=TypeError)


def test_clusters_of_the_fit_are_shown_if_nothing_predicts_them(blobs):
    X, y = blobs
    found = AgglomerativeClustering(3).fit(X)
    on_map = EmbeddingDisplay.from_estimator(found, X)
    assert np.array_equal(on_map.y_pred, found.labels_)
    gallery = ClusterGalleryDisplay.from_estimator(found, X, image_shape=(1, 5))
    assert np.array_equal(gallery.sizes, np.bincount(found.labels_))
    confusion = MatchedConfusionDisplay.from_estimator(make_pipeline(found), X, y)
    assert confusion.confusion_matrix.sum() == 96
    assert EmbeddingDisplay.from_estimator(found, X[:9], y[:9]).y_pred is None
    plt.close("all")
    few = X[:5], y[:5]
    show = MatchedConfusionDisplay.from_estimator
    refuses("`labels_` of the samples in X", show, found, *few, error=TypeError)


def test_a_gallery_refuses_nan_in_an_image_that_is_shown(blobs):
    images, y = constant_images(blobs[1]), blobs[1]
    shown = np.flatnonzero(y == y.max())[0]
    spoilt = np.where((np.arange(96) == shown)[:, None, None], np.nan, images)
    words = f"NaN in sample {shown}; 1 of 96 samples"
    refuses(words, ClusterGalleryDisplay.from_predictions, spoilt, y)


def test_a_map_refuses(blobs):
    X, y = blobs
    from_predictions = EmbeddingDisplay.from_predictions
    refuses("got neither", from_predictions, X)
    refuses("1 feature", from_predictions, X[:, :1], y)
    refuses("96 equal ones", from_predictions, 0 * X, y)
    refuses("(96, 2); got (96, 3)", from_predictions, X, y, reducer=PCA(3))
    refuses("'n_points' parameter", from_predictions, X, y, n_points=1)


def test_a_posterior_refuses(blobs):
    from_estimator = PosteriorDisplay.from_estimator
    words = "must be from 0 to 1; got values from -"
    refuses(words, PosteriorDisplay.from_predictions, blobs[0])
    fitted = SimpleNamespace(history_=history())
    words = "`epochs` must be integers from 1 to 6; got [1, 7]"
    refuses(words, from_estimator, fitted, epochs=[1, 7])
    without_em = SimpleNamespace(history_=history(n_em=0))
    refuses("epochs of EM", from_estimator, without_em)


def test_a_training_needs_a_history_of_a_fit():
    bare, other = SimpleNamespace(), SimpleNamespace(history_=[{"loss": 0.5}])
    refuses("`history_`", PosteriorDisplay.from_estimator, bare, error=TypeError)
    for estimator in (bare, other):
        from_estimator = TrainingDisplay.from_estimator
        refuses("`history_`", from_estimator, estimator, error=TypeError)


def test_a_confusion_refuses_classes_of_other_samples(blobs):
    y = blobs[1]
    words = "inconsistent numbers"
    refuses(words, MatchedConfusionDisplay.from_predictions, y, y[:3])


def test_without_matplotlib_the_extra_is_named(monkeypatch, blobs):
    def refuse(name, *args, _import=builtins.__import__):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return _import(name, *args)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r'pip install "sk-mice\[plot\]"'):
        EmbeddingDisplay.from_predictions(*blobs)


# --------------------------------------------------------------- what X may be, too


def test_data_frames_as_output_change_no_map(blobs):
    X, _ = blobs
    kmeans = KMeans(3, n_init=1, random_state=0).fit(X)
    options = {"n_points": 30, "random_state": 0}
    expected = EmbeddingDisplay.from_estimator(kmeans, X, **options)
    with config_context(transform_output="pandas"):
        display = EmbeddingDisplay.from_estimator(kmeans, X, **options)
    assert np.array_equal(display.points, expected.points)


@pytest.mark.parametrize("kind", [list, np.array, pd.Series])
def test_texts_have_a_map_and_a_report(kind, tmp_path):
    texts = kind(10 * ["a cat", "a cat sat", "a dog", "two dogs ran"])
    model = make_pipeline(TfidfVectorizer(), SphericalKMeans(2, random_state=0))
    model.fit(texts)
    assert EmbeddingDisplay.from_estimator(model, texts).points.shape == (40, 2)
    labels = model.predict(texts)
    matrix = MatchedConfusionDisplay.from_estimator(model, texts, labels)
    assert matrix.confusion_matrix.trace() == 40
    assert write_report(model, texts, tmp_path / "page.html")


def test_sparse_rows_have_a_map_and_a_confusion(blobs):
    X, y = csr_array(np.abs(blobs[0])), blobs[1]
    kmeans = SphericalKMeans(3, random_state=0).fit(X)
    assert EmbeddingDisplay.from_estimator(kmeans, X, y).points.shape == (len(y), 2)
    display = MatchedConfusionDisplay.from_estimator(kmeans, X, y)
    dense = MatchedConfusionDisplay.from_estimator(kmeans, X.toarray(), y)
    assert np.array_equal(display.confusion_matrix, dense.confusion_matrix)


def test_samples_of_a_dataset_are_shown():
    X, y, _ = load_digits()
    X, y = X[:60], y[:60]
    dataset = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(y))
    mice = MiCEClustering(2, max_epochs=8, random_state=0).fit(dataset)
    gallery = ClusterGalleryDisplay.from_estimator(mice, dataset)
    expected = ClusterGalleryDisplay.from_estimator(mice, X)
    for images, others in zip(gallery.images, expected.images, strict=True):
        assert np.array_equal(images, others)
    confusion = MatchedConfusionDisplay.from_estimator(mice, dataset, y)
    assert confusion.confusion_matrix.sum() == 60
    assert EmbeddingDisplay.from_estimator(mice, dataset).n_samples == 60


def test_the_network_of_a_pipeline_sees_each_image_file_once(tmp_path):
    files = red_and_blue_files(tmp_path)
    features = PretrainedFeatures(Averages(), image_size=16)
    mixture = ClassificationEM(2, random_state=0)
    model = make_pipeline(features, mixture).fit(files)
    network, y = model[0]._placed[0].module, np.arange(24) % 2
    for display in (ClusterGalleryDisplay, EmbeddingDisplay, MatchedConfusionDisplay):
        network.n_seen = 0
        drawn = display.from_estimator(model, files, y)
        assert network.n_seen == 24, display
    assert drawn.confusion_matrix.tolist() == [[12, 0], [0, 12]]


def test_a_gallery_of_image_files(tmp_path):
    files, y = red_and_blue_files(tmp_path), np.arange(24) % 2
    for options in ({}, {"image_shape": (9, 9)}):  # which has no effect on files
        gallery = ClusterGalleryDisplay.from_predictions(
            files, y, n_images=3, **options
        )
        for k, images in enumerate(gallery.images):
            assert images.shape == (3, 96, 96, 3)
            assert (images.argmax(axis=3) == 2 * k).all()
    with pytest.raises(ValueError, match=rf"1 of the files cannot.*\n.*{NOT_THERE}"):
        ClusterGalleryDisplay.from_predictions(["none.png"], [0])
