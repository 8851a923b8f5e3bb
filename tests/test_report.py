"""The page of clusters: its data, its markup, and its script in a browser."""

import base64
import copy
import csv
import io
import json
import math
import re
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from shared import Averages, red_and_blue_files
from sklearn import config_context
from sklearn.cluster import AgglomerativeClustering, Birch, KMeans
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from sk_mice import (
    ClassificationEM,
    MiCEClustering,
    MoCo,
    NeighborMixture,
    SphericalKMeans,
    load,
    save,
)
from sk_mice._engine.format import infer_format
from sk_mice.datasets import _paths, load_digits
from sk_mice.features import PretrainedFeatures
from sk_mice.inspection import (
    ClusterGalleryDisplay,
    EmbeddingDisplay,
    MatchedConfusionDisplay,
    _reading,
    _report,
    _thumbnails,
    write_report,
)

EVIL = "<img src=x onerror=alert(1)>.png"
# Markup, the end of a script, a line break, a quote and a comma, a byte that is not
# UTF-8, and an accent of its own.
NAMES = [EVIL, "</script><script>alert(2)</script>", 'a\nb,"c".png', "caf\udce9.png"]
NAMES += ["zelle\u0301.png"]


@pytest.fixture(scope="module")
def digits():
    X, y, _ = load_digits()
    few = y < 3
    X, y = X[few][:90], y[few][:90]
    names = [*NAMES, *(f"folder/{i:03d}.png" for i in range(len(NAMES), len(X)))]
    mice = MiCEClustering(3, max_epochs=8, random_state=0).fit(X)
    return mice, X, y, names


@pytest.fixture(scope="module")
def page(digits, tmp_path_factory):
    """The file of a report with everything in it."""
    mice, X, y, names = digits
    classes = np.array(["<b>zero</b>", "one", "two"])[y]
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(mice, X, path, names=names, y=classes, title="Digits & <i>more</i>")
    return path


def data_of(path):
    text = Path(path).read_text(encoding="utf-8")
    (found,) = re.findall(
        r'<script type="application/json" id="data">(.*)</script>', text
    )
    return json.loads(found)


# -------------------------------------------------------------------- what is written


def test_report_holds_what_the_model_says(digits, page):
    mice, X, _, names = digits
    data = data_of(page)
    shares = mice.agreement(X, random_state=check_seed(0))
    assert data["labels"] == mice.labels_.tolist()
    own = shares[np.arange(len(X)), mice.labels_]
    np.testing.assert_allclose(data["confidence"], own, atol=1e-3)
    assert data["names"] == names
    assert len(data["history"]) == mice.n_iter_
    assert data["map"]["method"] == "t-SNE"
    for near, i in zip(data["nearest"], data["shown"], strict=True):
        assert i not in near
    g = mice.transform(X)
    assert data["nearest"][5][0] == np.argsort(-g @ g[5], kind="stable")[1]


def check_seed(random_state):
    return np.random.RandomState(random_state).randint(2**31 - 1)


def test_report_is_a_function_of_its_arguments_but_for_the_nonce(digits, tmp_path):
    mice, X, _, _ = digits
    texts = []
    for name in ("a.html", "b.html"):
        path = write_report(mice, X[:20], tmp_path / name)
        text = Path(path).read_text(encoding="utf-8")
        nonce = re.search("script-src 'nonce-([^']*)'", text)[1]
        texts.append(text.replace(nonce, ""))
    assert texts[0] == texts[1]


def test_names_and_classes_are_no_markup(page):
    text = page.read_text(encoding="utf-8")
    assert "<img" not in text
    assert "<script>" not in text.replace(_plotly(), "")
    assert "<b>zero" not in text
    assert "Digits &amp; &lt;i&gt;more&lt;/i&gt;" in text


def _plotly():
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def test_scores_are_told_in_words(page):
    text = page.read_text(encoding="utf-8")
    assert "NMI is the normalised mutual information and ARI is the adjusted" in text


def test_page_asks_for_nothing_from_a_network(page):
    text = page.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", text)


def sheet_of(text, sheet, mode="RGB"):
    """The pixels of a picture of thumbnails."""
    (encoded,) = re.findall(f'id="sheet-{sheet}">(.*)</script>', text)
    image = Image.open(io.BytesIO(base64.b64decode(encoded)))
    return np.asarray(image.convert(mode))


def test_thumbnails_are_the_images(digits, page):
    mice, X, _, _ = digits
    data = data_of(page)
    text = page.read_text(encoding="utf-8")
    assert (data["thumbs"]["width"], data["thumbs"]["height"]) == (8, 8)
    for sheet, members in enumerate(data["thumbs"]["members"]):
        assert len(set(mice.labels_[members])) == 1
        image = sheet_of(text, sheet, "L")
        for cell, i in enumerate(members):
            row, column = divmod(cell, data["thumbs"]["columns"])
            found = image[8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
            np.testing.assert_allclose(found, X[i] * 255 / 16, atol=1)


@pytest.mark.parametrize("kind", [">f4", "<u2", "longdouble"])
def test_thumbnails_of_any_type_of_numbers(digits, kind, tmp_path):
    mice, X, _, _ = digits
    path = write_report(mice, X.astype(kind), tmp_path / "report.html")
    assert data_of(path)["labels"] == mice.labels_.tolist()


def test_classes_of_some_samples_are_enough(digits, tmp_path):
    mice, X, y, _ = digits
    known = np.where(np.arange(len(X)) % 2, y, np.nan)
    data = data_of(write_report(mice, X, tmp_path / "report.html", y=known))
    assert data["classes"] == [str(name) for name in np.unique(y[1::2])]
    names = np.array([*data["classes"], "none"])[data["y"]]
    assert names[1::2].tolist() == y[1::2].astype(str).tolist()
    assert set(names[::2]) == {"none"}
    listed = ["a" if i % 2 else math.nan for i in range(len(X))]
    data = data_of(write_report(mice, X, tmp_path / "report.html", y=listed))
    assert data["classes"] == ["a"]
    with pytest.raises(ValueError, match="y must have the class of at least one"):
        write_report(mice, X, tmp_path / "report.html", y=len(X) * [None])


def flat(X):
    return X.reshape(len(X), -1)


def test_pipeline_of_files_takes_names_and_thumbnails_from_them(tmp_path):
    files = red_and_blue_files(tmp_path)
    features = PretrainedFeatures(Averages(), image_size=16)
    model = make_pipeline(features, SphericalKMeans(2, random_state=0)).fit(files)
    path = tmp_path / "report.html"
    write_report(model, files, path)
    data, text = data_of(path), path.read_text(encoding="utf-8")
    assert data["names"] == [str(file) for file in files]
    assert data["noun"] == "images"
    assert data["labels"] == model.predict(files).tolist()
    assert data["thumbs"]["width"] == data["thumbs"]["height"] == _thumbnails.LARGE
    for sheet, members in enumerate(data["thumbs"]["members"]):
        pixels = sheet_of(text, sheet)[_thumbnails.LARGE // 2, :: _thumbnails.LARGE]
        for i, pixel in zip(members, pixels, strict=False):
            assert pixel.argmax() == 2 * (i % 2)
    write_report(model, files[:5], path, names=list("abcde"))
    assert data_of(path)["names"] == list("abcde")


def test_a_search_over_files_shows_what_it_has_chosen(tmp_path, monkeypatch):
    files = np.array(list(map(str, red_and_blue_files(tmp_path))))
    pipeline = make_pipeline(
        PretrainedFeatures(Averages(), image_size=16),
        SphericalKMeans(2, random_state=0),
    )
    grid = {"sphericalkmeans__n_clusters": [2]}
    search = GridSearchCV(pipeline, grid, cv=KFold(2, shuffle=True)).fit(files)
    read, pictures = [], _paths.pictures

    def counted(paths, side):
        read.extend(paths)
        return pictures(paths, side)

    monkeypatch.setattr(_paths, "pictures", counted)
    monkeypatch.setattr(_report, "MOST_SHOWN", 6)
    data = data_of(write_report(search, files, tmp_path / "report.html"))
    assert data["labels"] == search.predict(files).tolist()
    assert read == [str(files[i]) for i in data["shown"]]
    assert len(read) == 6
    for display in (EmbeddingDisplay, MatchedConfusionDisplay):
        display.from_estimator(search, files, np.arange(24) % 2)
    gone = np.append(files, str(tmp_path / "gone.png"))
    with pytest.raises(ValueError, match=r"\n  '[^']*gone.png': No such file"):
        write_report(search, gone, tmp_path / "report.html")
    with pytest.raises(TypeError, match=r"got bytes, b'a.png'. os.fsdecode"):
        write_report(search, [b"a.png"], tmp_path / "report.html")


def test_files_that_are_gone_are_named(digits, tmp_path):
    mice, *_ = digits
    files = [tmp_path / f"{i}.png" for i in range(3)]
    with pytest.raises(TypeError, match="X must hold numbers, not paths"):
        write_report(mice, files, tmp_path / "report.html")
    rows = SphericalKMeans(2).fit(np.eye(4))
    for display in (ClusterGalleryDisplay, EmbeddingDisplay, MatchedConfusionDisplay):
        with pytest.raises(TypeError, match="X must hold numbers, not paths"):
            display.from_estimator(rows, files, [0, 1, 0])
    with pytest.raises(ValueError, match=r"3 of the files in X.*\n.*0.png.*No such"):
        _thumbnails.Thumbnails(list(map(str, files)), np.arange(3))


def test_pipeline_takes_thumbnails_from_the_images_of_its_first_step(digits, tmp_path):
    _, X, _, _ = digits
    X = np.repeat(X[..., None], 3, axis=-1)
    model = make_pipeline(
        FunctionTransformer(flat), SphericalKMeans(3, random_state=0)
    ).fit(X)
    path = write_report(model, X, tmp_path / "report.html")
    data = data_of(path)
    assert data["thumbs"]["width"] == 8
    assert data["labels"] == model.predict(X).tolist()
    assert data["names"] is None
    assert "10 nearest neighbours" in Path(path).read_text(encoding="utf-8")


def test_vectors_have_no_thumbnails(digits, tmp_path):
    _, X, _, _ = digits
    model = SphericalKMeans(3, random_state=0).fit(flat(X))
    data = data_of(write_report(model, flat(X), tmp_path / "report.html"))
    assert "thumbs" not in data
    assert data["noun"] == "samples"
    assert data["history"] == []


@pytest.mark.parametrize("n_samples", [2, 3, 60])
def test_few_samples_of_one_cluster(n_samples, tmp_path):
    X = np.ones((n_samples, 2)) + np.arange(n_samples)[:, None]
    model = SphericalKMeans(1).fit(X)
    data = data_of(write_report(model, X, tmp_path / "report.html"))
    assert np.isfinite(data["map"]["places"]).all()
    assert data["second"] == [-1] * n_samples


def test_given_confidence_is_shown_and_a_vector_is_not_called_agreement(
    digits, tmp_path
):
    mice, X, _, _ = digits
    given = np.linspace(0, 1, len(X))
    data = data_of(write_report(mice, X, tmp_path / "a.html", confidence=given))
    np.testing.assert_allclose(data["confidence"], given, atol=1e-3)
    assert data["measure"] == "confidence"
    assert data["order"][0] == len(X) - 1
    low = _reading.read(mice, X, np.full(len(X), 0.5))
    assert "the mean confidence is below 70%" in " ".join(
        doubt.sentence for doubt in _reading.doubts(low)
    )
    shares = np.full((len(X), 3), 1 / 3)
    data = data_of(write_report(mice, X, tmp_path / "b.html", confidence=shares))
    np.testing.assert_allclose(data["confidence"], 1 / 3, atol=1e-3)
    assert data["measure"] == "agreement"
    vectors = SphericalKMeans(3, random_state=0).fit(flat(X))
    assert _reading.read(vectors, flat(X), shares).meaning == _reading.GIVEN_SHARES


def test_a_loaded_model_without_its_augmentation_needs_a_confidence(digits, tmp_path):
    _, X, _, _ = digits
    options = {
        "augmentation": lambda x, generator: x,
        "max_epochs": 1,
        "random_state": 0,
    }
    mice = MiCEClustering(3, init=np.arange(len(X)) % 3, **options).fit(X)
    shares = mice.agreement(X, n_views=2)
    with pytest.warns(UserWarning, match="cannot hold the parameter `augmentation`"):
        save(mice, tmp_path / "model")
    loaded, file = load(tmp_path / "model"), tmp_path / "report.html"
    with pytest.raises(ValueError, match="Set `augmentation_` to it"):
        write_report(loaded, X, file)
    write_report(loaded, X, file, confidence=shares)
    assert _reading.read(loaded, X, shares).meaning == _reading.OF_VIEWS


class Foreign(KMeans):
    """A clusterer whose names mean something else than those of this package."""

    def fit(self, X, y=None):
        self.history_ = [{"loss": 0.5}]
        return super().fit(X)

    def agreement(self, other):
        raise AssertionError


def test_a_history_of_another_library_is_not_shown(digits, tmp_path):
    _, X, _, _ = digits
    model = Foreign(3, n_init=1, random_state=0).fit(flat(X))
    data = data_of(write_report(model, flat(X), tmp_path / "report.html"))
    assert data["history"] == []


def test_many_samples_are_sampled_evenly(monkeypatch, digits, tmp_path):
    mice, X, _, _ = digits
    monkeypatch.setattr(_report, "MOST_SHOWN", 30)
    monkeypatch.setattr(_report, "MOST_ON_MAP", 20)
    path = write_report(mice, X, tmp_path / "report.html")
    data = data_of(path)
    assert len(data["labels"]) == len(X)
    assert len(data["shown"]) == len(data["nearest"]) <= 30
    assert len(data["map"]["rows"]) <= 20
    assert set(data["map"]["rows"]) <= set(data["shown"])  # whose pictures are there
    words = " ".join(Path(path).read_text(encoding="utf-8").split())
    assert "not whether it is right. 30 of the images are shown" in words


def test_more_clusters_than_points_of_the_map(monkeypatch, tmp_path):
    monkeypatch.setattr(_report, "MOST_SHOWN", 4)
    monkeypatch.setattr(_report, "MOST_ON_MAP", 3)
    model = SphericalKMeans(6, random_state=0).fit(np.eye(6))
    data = data_of(write_report(model, np.eye(6), tmp_path / "report.html"))
    assert len(data["shown"]) == 4
    assert len(data["map"]["rows"]) == 3


def test_sheets_keep_to_their_budget(monkeypatch):
    rng = np.random.RandomState(0)
    X = rng.randint(0, 256, (60, 80, 40, 3), dtype=np.uint8)
    fmt = _thumbnails.image_format(KMeans(), X)
    groups = [np.arange(40), np.arange(40, 60)]
    sizes = []
    for budget in (1e9, 1e5):
        monkeypatch.setattr(_thumbnails, "BUDGET", budget)
        sheets = _thumbnails.draw_sheets(X, fmt, groups, rng)
        assert (sheets.width, sheets.height) == (40, 80)
        sizes.append(sum(map(len, sheets.pictures)))
    assert sizes[1] < 1e5 * 4 / 3 < sizes[0]


@pytest.mark.parametrize("n_channels", [1, 2, 3, 4, 5])
def test_the_first_three_channels_are_drawn(n_channels):
    X = np.random.default_rng(0).integers(0, 256, (2, 6, 6, n_channels), np.uint8)
    fmt = infer_format(X, X.shape[1:])
    pixels = _thumbnails.thumbnails(X, np.arange(len(X)), fmt, (6, 6))
    assert pixels.shape == (2, 6, 6, 1 if n_channels == 1 else 3)
    n_drawn = min(n_channels, 3)
    np.testing.assert_array_equal(pixels[..., :n_drawn], X[..., :n_drawn])
    assert not pixels[..., n_drawn:].any()


def test_what_a_step_makes_images_of_is_listed_by_name(tmp_path):
    X = np.random.default_rng(0).random((20, 6, 6, 5))
    flat = FunctionTransformer(lambda X: X.reshape(len(X), -1))
    model = make_pipeline(flat, KMeans(2, random_state=0)).fit(X)
    write_report(model, X, tmp_path / "page.html")
    assert "thumbs" not in data_of(tmp_path / "page.html")


# ---------------------------------------------------------------------------- doubts


def reading(labels, confidence, n_clusters, second=-1, second_share=0.0):
    n = len(labels)
    return _reading.Reading(
        np.array(labels),
        np.broadcast_to(np.float64(confidence), n),
        np.broadcast_to(second, n),
        np.broadcast_to(second_share, n),
        np.arange(n),
        np.eye(n),
        n_clusters,
        _reading.OF_VIEWS,
    )


def test_nothing_to_doubt():
    assert _reading.doubts(reading([0] * 10 + [1] * 10, 1.0, 2)) == []


def test_doubts_are_sentences_about_clusters():
    labels = np.repeat([0, 1, 2, 3, 4], [400, 50, 50, 5, 40])
    confidence = np.where(labels == 2, 0.5, 1.0)
    second = np.select([labels == 1, labels == 4], [4, 1], -1)
    share = np.where(second >= 0, 0.3, 0)
    found = _reading.doubts(reading(labels, confidence, 6, second, share))
    assert [(doubt.sentence.split(":")[0], doubt.clusters) for doubt in found] == [
        ("Empty", [(5, "", "", None)]),
        ("Small", [(3, "5 images", "", None)]),
        ("Large", [(0, "400 images", "", None)]),
        ("Unsure", [(2, "50%", "", None)]),
        ("Shared members", [(1, "90 images", "between", 4)]),
    ]


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e200])
def test_values_beyond_float32_have_neighbours(scale):
    rng = np.random.default_rng(0)
    X = np.repeat(np.eye(3, 5), 20, axis=0) + 0.01 * rng.random((60, 5))
    kmeans = SphericalKMeans(3, random_state=0).fit(X)
    usual = _reading.read(kmeans, X)
    assert usual.confidence.tolist() == [1.0] * 60
    reading = _reading.read(kmeans, scale * X)
    assert np.allclose(reading.embeddings, usual.embeddings)
    assert np.array_equal(reading.confidence, usual.confidence)


@pytest.mark.parametrize("kind", [bool, np.int8, np.int64, np.float16, object])
def test_any_type_of_vectors_has_directions(kind):
    X = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 1], [-100, 5, 0]]).astype(kind)
    rows = _reading._directions(X)
    assert rows.dtype == np.float32
    expected = X.astype(float)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.allclose(rows, expected, atol=1e-6)


def test_a_cluster_of_one_image_has_no_agreement():
    labels = np.repeat([0, 1, 2], [20, 19, 1])
    shares = np.eye(3)[np.minimum(labels, 1)]
    args = shares, shares, np.eye(40)
    found = _reading.from_shares(labels, *args, _reading.OF_NEIGHBORS)
    assert [doubt.clusters for doubt in _reading.doubts(found)] == [
        [(2, "1 image", "", None)]
    ]
    assert (found.second[-1], found.second_share[-1]) == (1, 1)


def test_one_image_alone(tmp_path):
    """Of which nothing can be said, in the singular."""
    model = SphericalKMeans(4, random_state=0).fit(np.eye(4))
    path = write_report(model, np.eye(4)[:1], tmp_path / "report.html")
    text = Path(path).read_text(encoding="utf-8")
    assert "1 sample in 4 clusters" in text
    assert "even share" not in text
    assert "Large" not in text
    assert '<dd id="mean">none</dd>' in text


def test_the_most_doubtful_clusters_come_first():
    labels = np.repeat(np.arange(4), 10)
    confidence = np.repeat([0.6, 0.9, 0.2, 0.5], 10)
    (doubt,) = _reading.doubts(reading(labels, confidence, 4))
    assert [chip.cluster for chip in doubt.clusters] == [2, 3, 0]


def test_clusters_of_several_classes_are_doubted():
    labels = np.repeat([0, 1], 10)
    codes = np.array([0] * 8 + [-1] * 2 + [0] * 3 + [1] * 7)
    (doubt,) = _reading.doubts(reading(labels, 1.0, 2), codes=codes)
    assert doubt.sentence.startswith("Several classes: fewer than 80%")
    assert doubt.clusters == [(1, "70%", "other", None)]


def test_pairs_that_are_left_out_are_counted():
    pairs = np.array([[0, k] for k in range(1, 121)])
    (few,) = _reading.doubt_of_duplicates("images", pairs[:100])
    assert few.sentence == "101 images are nearly the same as another one."
    (many,) = _reading.doubt_of_duplicates("images", pairs)
    assert many.sentence.endswith("as another one; the first 100 of 120 pairs.")
    assert few.pairs == many.pairs == pairs[:100].tolist()


def test_the_posterior_tells_second_clusters_with_equal_shares_apart():
    shares = np.array([[1.0, 0, 0], [0.6, 0.4, 0]])
    posterior = np.array([[0.5, 0.2, 0.3], [0.5, 0.2, 0.3]])
    second, share = _reading._second(shares, posterior, np.array([0, 0]))
    assert second.tolist() == [2, 1]
    assert share.tolist() == [0, 0.4]


def test_a_sample_that_never_leaves_its_cluster_has_no_second():
    shares = np.array([[0.0, 1.0, 0.0]])
    second, share = _reading._second(shares, shares, np.array([1]))
    assert second.tolist() == [-1]
    assert share.tolist() == [0]


# ---------------------------------------------------------------------------- errors


def test_bad_paths_are_refused_before_the_work(tmp_path):
    with pytest.raises(IsADirectoryError, match="`path` must be a file that can be"):
        write_report(None, None, tmp_path)
    with pytest.raises(FileNotFoundError, match="No such folder"):
        write_report(None, None, tmp_path / "none" / "report.html")
    with pytest.raises(TypeError, match="`path` must be a string or path-like"):
        write_report(None, None, 3)
    file = tmp_path / "report.html"
    file.touch(mode=0o444)
    with pytest.raises(PermissionError, match="File is read-only"):
        write_report(None, None, file)


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        (MiCEClustering(3), NotFittedError, "not fitted"),
        (MoCo(), TypeError, "`model` must be a fitted clusterer"),
        (3, TypeError, "`model` must be a fitted clusterer"),
    ],
)
def test_models_that_are_refused(model, error, words, tmp_path):
    with pytest.raises(error, match=words):
        write_report(model, np.eye(4), tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"names": ["a"]}, ValueError, "`names` must have a name for each of 90"),
        ({"names": "abc"}, TypeError, "`names` must be a sequence"),
        ({"names": range(90)}, TypeError, "`names` must hold strings or paths; got 0"),
        ({"y": [1]}, ValueError, "y must have a class for each of 90 samples; got 1"),
        ({"confidence": [1.0]}, ValueError, r"`confidence` must have shape \(90,\)"),
        ({"confidence": [2.0] * 90}, ValueError, "`confidence` must hold numbers"),
        ({"confidence": [np.nan] * 90}, ValueError, "`confidence` must hold numbers"),
        ({"confidence": np.ones((90, 2))}, ValueError, "one column for each of 3"),
        ({"confidence": np.ones((90, 4))}, ValueError, "one column for each of 3"),
        ({"title": 3}, TypeError, "`title` must be a string; got 3"),
    ],
)
def test_arguments_that_are_refused(digits, arguments, error, words, tmp_path):
    mice, X, _, _ = digits
    with pytest.raises(error, match=words):
        write_report(mice, X, tmp_path / "report.html", **arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("library", ["jinja2", "plotly.offline"])
def test_missing_libraries_are_named_with_the_extra(monkeypatch, library, tmp_path):
    monkeypatch.setitem(sys.modules, library, None)
    _report._packed_plotly.cache_clear()  # as in a new process
    with pytest.raises(ImportError, match=r'pip install "sk-mice\[report\]"'):
        write_report(None, None, tmp_path / "report.html")


def test_changes_are_kept_for_the_same_images_in_the_same_clusters(digits, tmp_path):
    mice, X, y, names = digits
    path, few = tmp_path / "report.html", np.arange(len(X) - 1)
    pages = [
        data_of(write_report(mice, X, path, names=names)),
        data_of(write_report(mice, X, path, names=names, y=y, random_state=1)),
        data_of(write_report(mice, X, path, names=[*names[1:], "other"])),
        data_of(write_report(mice, X[few], path, names=names[:-1])),
    ]
    assert pages[0]["order"] != pages[1]["order"]  # of other random views
    assert pages[0]["key"] == pages[1]["key"]
    assert len({page["key"] for page in pages}) == 3


# ------------------------------------------------------------------ in a real browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A headless Chromium, which saves downloads in the folder `downloads`."""
    binary = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for word in ("headless=new", "no-sandbox", "disable-dev-shm-usage"):
        options.add_argument(f"--{word}")
    options.add_argument("--window-size=1200,900")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.chrome.service.Service(driver)
    chromium = webdriver.Chrome(options=options, service=service)
    chromium.downloads = tmp_path_factory.mktemp("downloads")
    chromium.execute_cdp_cmd(
        "Browser.setDownloadBehavior",
        {"behavior": "allow", "downloadPath": str(chromium.downloads)},
    )
    yield chromium
    chromium.quit()


@pytest.fixture
def open_page(browser, page):
    """Open the report anew; at the end, nothing may be in the browser's console."""

    def find(selector):
        return browser.find_elements("css selector", selector)

    def go(view, path=page):
        browser.get("about:blank")
        browser.get(f"{path.as_uri()}#{view}")
        wait(lambda: find("[data-view]"))
        wait(lambda: browser.execute_script("return document.readyState") == "complete")
        return browser, find

    yield go
    browser.execute_script("localStorage.clear()")
    assert browser.get_log("browser") == []


def wait(condition, seconds=20):
    from selenium.common.exceptions import StaleElementReferenceException

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(StaleElementReferenceException):  # the page replaces elements
            found = condition()
            if found:
                return found
        time.sleep(0.05)
    raise AssertionError("what the test waits for did not come")


def ids(browser, gallery):
    """The samples that a gallery shows."""
    script = (
        "return [...document.querySelectorAll(arguments[0])].map((t) => +t.dataset.i)"
    )
    return browser.execute_script(script, f"{gallery} .thumb")


@pytest.mark.browser
def test_overview_and_galleries(open_page, page):
    data = data_of(page)
    browser, find = open_page("clusters")
    assert "clusters" in find("#headline")[0].text
    assert len(find(".card")) == len(set(data["labels"]))
    find(".card h3 a")[0].click()
    k = int(browser.current_url.rpartition("/")[2])
    members = [i for i in data["order"] if data["labels"][i] == k]
    assert ids(browser, "#gallery") == members
    find("[data-filter=doubtful]")[0].click()
    wait(lambda: ids(browser, "#gallery") == members[::-1])
    find("[data-filter=between]")[0].click()
    between = {i for i in members if data["second_share"][i] > 0}
    wait(lambda: set(ids(browser, "#gallery")) == between)
    find("[data-filter=other]")[0].click()
    wait(lambda: len(find("#gallery .thumb")) < len(members))
    # One sample, its neighbours, and the keys.
    find("[data-filter=certain]")[0].click()
    wait(lambda: ids(browser, "#gallery") == members)
    find("#gallery .thumb")[1].click()
    near = data["nearest"][data["shown"].index(members[1])]
    assert ids(browser, "#nearest") == near
    find("body")[0].send_keys("\ue014")  # the right arrow
    near = data["nearest"][data["shown"].index(members[2])]
    assert ids(browser, "#nearest") == near
    find("#detail-close")[0].send_keys("\ue00c")  # Escape
    assert not find("#detail")[0].is_displayed()


@pytest.mark.browser
def test_names_and_classes_with_markup_run_nothing(open_page):
    _, find = open_page("search/")
    for name in NAMES[:2]:
        find("#search")[0].clear()
        find("#search")[0].send_keys(name)
        wait(lambda: len(find("#found .thumb")) == 1)
        find("#found .thumb")[0].click()
        assert find("#detail-name")[0].text == name
        find("#detail-close")[0].click()
    find("#search")[0].clear()
    find("#search")[0].send_keys("caf\\xe9")
    wait(lambda: len(find("#found .thumb")) == 1)
    find("#search")[0].clear()
    find("#search")[0].send_keys("zell\u00e9")
    wait(lambda: len(find("#found .thumb")) == 1)
    assert not find("img, b, i.more")  # an alert or a log entry fails the test, too


@pytest.mark.browser
def test_map_opens_the_cluster_of_a_point_and_selects(open_page, page):
    from selenium.webdriver import ActionChains

    data = data_of(page)
    browser, find = open_page("map")
    points = wait(lambda: find("#map-plot .points path"))
    assert len(points) == len(data["map"]["rows"])
    plot = find("#map-plot .draglayer .nsewdrag")[0]
    # All points lie in this rectangle of the plot; offsets count from its centre.
    width, height = plot.size["width"], plot.size["height"]
    corners = [(-1, -1), (1, -1), (1, 1), (-1, 1)]
    corners = [
        (int(x * (width / 2 - 4)), int(y * (height / 2 - 4))) for x, y in corners
    ]
    lasso = ActionChains(browser, 50).move_to_element_with_offset(plot, *corners[0])
    lasso.click_and_hold()
    for corner in corners[1:]:
        lasso.move_to_element_with_offset(plot, *corner)
    lasso.release().perform()
    wait(lambda: find("#selection-note")[0].text == f"{len(points)} images selected")
    find("#selection-clear")[0].click()
    wait(lambda: not find("#selected .thumb"))

    ActionChains(browser).move_to_element(points[7]).perform()
    wait(lambda: find("#hover .pic"))
    ActionChains(browser).click().perform()
    wait(lambda: "#cluster/" in browser.current_url)
    assert int(browser.current_url.rpartition("/")[2]) in {
        data["labels"][i] for i in data["map"]["rows"]
    }
    hovered = find("#hover .pic")[0].get_attribute("aria-label")
    assert hovered.endswith(".png")


@pytest.mark.browser
def test_merged_and_renamed_clusters_are_in_the_csv(open_page, page, browser):
    data = data_of(page)
    _, find = open_page("cluster/1")
    find("#merge-into option[value='0']")[0].click()
    find("#rename")[0].send_keys("kept")
    find("#merge")[0].click()  # which ends the entry, and renames
    wait(lambda: browser.current_url.endswith("#cluster/0"))
    assert find("#cluster-title")[0].text == "kept"
    find("#rename")[0].send_keys('\ue009a\ue000round, "or" not\ue007')  # all; Enter
    wait(lambda: find("#cluster-title")[0].text == 'round, "or" not')
    browser.refresh()  # changes survive
    assert find("#cluster-title")[0].text == 'round, "or" not'
    find("#download")[0].click()
    file = browser.downloads / "clusters.csv"
    wait(file.exists)
    with open(file, encoding="utf-8", errors="surrogateescape", newline="") as text:
        rows = list(csv.DictReader(text))
    assert [row["file"] for row in rows] == data["names"]
    for row, k in zip(rows, data["labels"], strict=True):
        assert int(row["original_cluster"]) == k
        assert int(row["cluster"]) == (0 if k == 1 else k)
        name = 'round, "or" not' if k < 2 else f"Cluster {k}"
        assert row["name"] == name
    for _ in range(3):
        find("#undo")[0].click()
    assert find("#cluster-title")[0].text == "Cluster 0"
    assert not find("#edits")[0].is_displayed()


@pytest.fixture(scope="module")
def between(tmp_path_factory):
    """Clusters 0 and 1 share members, all of 2 lies between them, and 3 is empty."""
    labels = np.repeat([0, 1, 2], [30, 30, 3])
    shares = np.eye(4)[labels]
    shares[:6] = [0.6, 0.3, 0.1, 0]
    shares[labels == 2] = [0.3, 0.4, 0.3, 0]
    rows = np.eye(63)
    rows[40:43] = rows[50]
    found = _reading.from_shares(labels, shares, shares, rows, _reading.OF_VIEWS)
    X = np.random.default_rng(0).integers(0, 256, (63, 8, 8), np.uint8)
    X[40:43] = X[50]  # six pairs
    model = SphericalKMeans(3, random_state=0).fit(np.eye(4))
    path = tmp_path_factory.mktemp("between") / "report.html"
    names = [f"a/long\nway/to/{i}.png" for i in range(63)]
    fmt, rng = infer_format(X, None), np.random.RandomState(0)
    _report.draw_page(found, model, X, fmt, path, names=names, rng=rng)
    return path


def merge(browser, find, k, into):
    browser.execute_script("location.hash = arguments[0]", f"#cluster/{k}")
    wait(lambda: find("#cluster-title")[0].is_displayed())
    wait(lambda: browser.current_url.endswith(f"/{k}"))
    find(f"#merge-into option[value='{into}']")[0].click()
    find("#merge")[0].click()
    wait(lambda: browser.current_url.endswith(f"#cluster/{into}"))


def told(find):
    """The chips of clusters that can be seen."""
    chips = find("#doubts-title ~ .doubt .chip[data-kind]")
    return [chip.text for chip in chips if chip.is_displayed()]


@pytest.mark.browser
def test_doubts_and_agreement_follow_merges(open_page, between):
    browser, find = open_page("clusters", between)
    assert told(find) == [
        *("Cluster 3", "Cluster 2 3 images", "Cluster 2 30%"),
        *("Cluster 0 and Cluster 1 6 images", "Cluster 2 and Cluster 1 3 images"),
    ]
    assert find("#title")[0].text == browser.title == "63 images in 4 clusters"
    merge(browser, find, 3, 2)
    merge(browser, find, 1, 0)
    find("#rename")[0].send_keys("five\ue007")
    wait(lambda: find("#cluster-title")[0].text == "five")
    browser.execute_script("location.hash = '#clusters'")
    wait(lambda: find("#headline")[0].is_displayed())
    assert told(find) == [
        *("Cluster 2 3 images", "Cluster 2 30%", "Cluster 2 and five 3 images"),
    ]
    assert find("#title")[0].text == browser.title == "63 images in 2 clusters"
    assert find("#mean")[0].text == f"{(54 + 6 * 0.9 + 3 * 0.3) / 63:.0%}"
    assert "99% agreement" in find("[data-cluster='0'].card")[0].text
    merge(browser, find, 2, 0)
    browser.execute_script("location.hash = '#clusters'")
    wait(lambda: find("#no-doubts") and find("#headline")[0].is_displayed())
    assert told(find) == []
    assert find("#mean")[0].text == "100%"
    for file in browser.downloads.glob("clusters*"):
        file.unlink()
    find("#download")[0].click()
    file = browser.downloads / "clusters.csv"
    wait(file.exists)
    with open(file, encoding="utf-8", newline="") as text:
        assert {row["confidence"] for row in csv.DictReader(text)} == {"1"}
    for _ in range(4):
        find("#undo")[0].click()
    assert len(told(find)) == 5


@pytest.mark.browser
def test_one_and_two_clusters_in_words(open_page, tmp_path):
    path = tmp_path / "report.html"
    rows = np.repeat(np.eye(2), 6, axis=0)
    write_report(SphericalKMeans(2, random_state=0).fit(rows), rows, path)
    _, find = open_page("clusters", path)
    assert find("#headline")[0].text == "Both clusters are steady"
    write_report(SphericalKMeans(1).fit(rows), rows[:1], path)
    _, find = open_page("clusters", path)
    assert find("#headline")[0].text == "The cluster is of one sample"
    assert find("#title")[0].text == "1 sample in 1 cluster"
    card = find(".card")[0].text.splitlines()
    assert card == ["Cluster 0", "○ one sample", "1 sample", "sample 0"]


@pytest.mark.browser
@pytest.mark.parametrize(("n_more", "mean"), [(0, "none"), (6, "100%")])
def test_samples_that_are_alone_do_not_count_in_the_mean(
    open_page, tmp_path, n_more, mean
):
    path = tmp_path / "report.html"
    rows = np.repeat(np.eye(3), [1, 1, 1 + n_more], axis=0)
    write_report(SphericalKMeans(3, random_state=0).fit(rows), rows, path)
    _, find = open_page("clusters", path)
    assert find("#mean")[0].text == mean
    assert f'<dd id="mean">{mean}</dd>' in path.read_text(encoding="utf-8")


@pytest.mark.browser
def test_pairs_of_images_open_the_images(open_page, between):
    _, find = open_page("clusters", between)
    chips = find("[data-pair]")
    assert [chip.text for chip in chips][:2] == ["40.png, 41.png", "40.png, 42.png"]
    name = "a/long\\nway/to/40.png"
    assert chips[1].get_attribute("title") == f"{name}\n{name.replace('40', '42')}"
    chips[1].click()
    assert find("#detail-name")[0].text == name
    find("body")[0].send_keys("\ue014")  # the right arrow
    assert find("#detail-name")[0].text == name.replace("40", "42")


@pytest.mark.browser
def test_files_of_one_name_are_told_apart_by_their_folders(open_page, tmp_path):
    X = np.random.default_rng(0).integers(0, 256, (20, 8, 8), np.uint8)
    X[10:] = X[:10]
    names = [f"plate {i // 10}/{i % 10}.png" for i in range(20)]
    model = make_pipeline(FunctionTransformer(flat), SphericalKMeans(2)).fit(X)
    write_report(model, X, tmp_path / "report.html", names=names)
    _, find = open_page("twice", tmp_path / "report.html")
    assert find("[data-pair]")[0].text == "plate 0/0.png, plate 1/0.png"


@pytest.mark.browser
def test_going_back_closes_the_picture_and_fills_the_search(open_page, between):
    browser, find = open_page("clusters", between)
    find("#search")[0].send_keys("to/5")
    wait(lambda: len(find("#found .thumb")) == 11)
    assert find("#found small")[0].text == "5.png"
    find("#found .thumb")[0].click()
    find("#detail-facts a")[0].click()
    wait(lambda: find("#cluster-title")[0].is_displayed())
    wait(lambda: not find("#detail")[0].is_displayed())
    wait(lambda: find("#gallery .thumb"))
    browser.execute_script("document.querySelector('#gallery .thumb').click()")
    wait(lambda: find("#detail")[0].is_displayed())
    browser.back()
    wait(lambda: "#search/" in browser.current_url)
    wait(lambda: not find("#detail")[0].is_displayed())
    assert find("#search")[0].get_attribute("value") == "to/5"
    browser.refresh()
    wait(lambda: len(find("#found .thumb")) == 11)
    assert find("#search")[0].get_attribute("value") == "to/5"


@pytest.mark.browser
@pytest.mark.parametrize("text", ["%", "50%", "%E9"])
def test_an_address_that_is_not_encoded_is_searched_for(open_page, text):
    _, find = open_page(f"search/{text}")
    assert f"No images with “{text}” in the name" in find("#search-title")[0].text
    assert find("#search-title")[0].aria_role == "heading"
    assert find("#search")[0].get_property("value") == text


@pytest.mark.browser
def test_the_next_cluster_has_the_same_filter(open_page, between):
    browser, find = open_page("cluster/0/doubtful", between)
    find("#next")[0].click()
    wait(lambda: browser.current_url.endswith("#cluster/1/doubtful"))


@pytest.mark.browser
def test_images_without_a_thumbnail_have_an_empty_one(
    open_page, digits, monkeypatch, tmp_path
):
    mice, X, _, _ = digits
    monkeypatch.setattr(_report, "MOST_SHOWN", 30)
    path = tmp_path / "report.html"
    ends = [f"{80 * 'x'}{i:02}.png" for i in range(90)]
    names = [f"the folder {i}" + "/\\"[i % 2] + end for i, end in enumerate(ends)]
    write_report(mice, X, path, names=names)
    browser, find = open_page("search/folder", path)
    wait(lambda: len(find("#found .thumb")) == len(find("#found .pic")) == 90)
    for node in find("#found .thumb"):
        assert node.text.startswith("xxx")
        assert (
            node.size["width"] >= node.find_element("tag name", "small").size["width"]
        )
    assert len({node.size["height"] for node in find("#found .thumb")}) == 1
    # The end of the name is in sight.
    overhang = """
        const name = document.querySelector("#found bdi").getBoundingClientRect();
        const box = document.querySelector("#found small").getBoundingClientRect();
        return [box.left - name.left, name.right - box.right];
    """
    left, right = browser.execute_script(overhang)
    assert left > 100 > 1 > right


@pytest.mark.browser
def test_a_gallery_that_grows_has_no_gaps(open_page, tmp_path):
    X = np.random.default_rng(0).integers(0, 256, (500, 8, 8), np.uint8)
    model = make_pipeline(FunctionTransformer(flat), SphericalKMeans(1)).fit(X)
    write_report(model, X, tmp_path / "report.html")
    browser, _ = open_page("cluster/0", tmp_path / "report.html")
    places = """
        scrollTo(0, 1e6);
        const boxes = [...document.querySelectorAll("#gallery .thumb")].map(
            (node) => node.getBoundingClientRect());
        return boxes.map((box) => [box.left, box.top]);
    """
    wait(lambda: len(browser.execute_script(places)) == 500)
    lefts, tops = np.array(browser.execute_script(places)).T
    n_columns = len(np.unique(lefts.round()))
    assert len(np.unique(tops.round(1))) == math.ceil(500 / n_columns)


@pytest.mark.browser
def test_a_click_that_ends_the_entry_of_a_name_does_what_it_says(open_page, between):
    _, find = open_page("cluster/0", between)
    find("#rename")[0].send_keys("round")
    find("[data-filter=doubtful]")[0].click()
    wait(lambda: find("[data-filter=doubtful][aria-pressed=true]"))
    assert find("#cluster-title")[0].text == "round"
    find("#rename")[0].send_keys(" things")
    find("#gallery .thumb")[3].click()
    assert find("#detail")[0].is_displayed()
    assert find("#cluster-title")[0].text == "round things"
    assert "in round things" in find("#gallery .thumb")[3].get_attribute("title")


@pytest.mark.browser
def test_the_focus_is_never_lost(open_page, between):
    enter, right, escape = "\ue007", "\ue014", "\ue00c"
    browser, find = open_page("clusters", between)

    def focused():
        return browser.switch_to.active_element

    find("[data-cluster='2'] h3 a")[0].send_keys(enter)
    wait(lambda: focused() == find("#cluster-title")[0])
    # The address changes before the page does.
    find("[data-filter=between]")[0].send_keys(enter)
    (pressed,) = wait(lambda: find("[data-filter=between][aria-pressed=true]"))
    assert focused() == pressed
    find("#seconds .chip")[0].send_keys(enter)
    (pressed,) = wait(lambda: find("[data-second='1'][aria-pressed=true]"))
    assert focused() == pressed
    find("#gallery .thumb")[0].send_keys(enter)
    find("#detail-close")[0].send_keys(right, escape)
    wait(lambda: focused() == find("#gallery .thumb")[1])
    find("#rename")[0].send_keys("few", enter)
    assert focused() == find("#rename")[0]
    find("#undo")[0].send_keys(enter)
    assert focused() == find("#cluster-title")[0]
    find("#merge-into option[value='0']")[0].click()
    find("#merge")[0].send_keys(enter)
    wait(lambda: browser.current_url.endswith("#cluster/0"))
    assert focused() == find("#cluster-title")[0]
    # Back in the list, at the card.
    find("section:not([hidden]) .back")[0].send_keys(enter)
    wait(lambda: focused() == find("[data-cluster='0'] h3 a")[0])


@pytest.mark.browser
def test_two_tabs_keep_the_changes_of_both(open_page, between):
    browser, find = open_page("cluster/0", between)
    first = browser.current_window_handle
    browser.switch_to.new_window("tab")
    open_page("cluster/1", between)
    find("#rename")[0].send_keys("second\ue007")
    browser.switch_to.window(first)
    wait(lambda: find("#edits-note")[0].text == "Renamed: Cluster 1 to second")
    find("#rename")[0].send_keys("first\ue007")
    browser.refresh()
    browser.execute_script("location.hash = '#clusters'")
    names = ["first", "second", "Cluster 2", "Cluster 3"]
    wait(lambda: {node.text for node in find(".card h3")} == set(names))
    for handle in set(browser.window_handles) - {first}:
        browser.switch_to.window(handle)
        browser.close()
    browser.switch_to.window(first)


@pytest.mark.browser
def test_print_and_forced_colours_keep_pictures_and_marks(open_page, digits, tmp_path):
    mice, X, *_ = digits
    two_classes = np.arange(len(X)) % 2  # in each cluster
    write_report(mice, X, tmp_path / "report.html", y=two_classes)
    browser, find = open_page("cluster/1", tmp_path / "report.html")
    wait(lambda: find("#gallery .thumb"))
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert len(re.findall(rb"/Subtype ?/Image", pdf)) >= len(find("#gallery .thumb"))
    feature = {"name": "forced-colors", "value": "active"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def background(selector):
        return find(selector)[0].value_of_css_property("background-color")

    pressed, other = "#filters [aria-pressed=true]", "#filters [aria-pressed=false]"
    assert background(pressed) != background(other)
    marked = wait(lambda: find("#gallery .thumb.other .pic"))[0]
    assert marked.value_of_css_property("box-shadow") != "none"
    browser.execute_script("location.hash = '#clusters'")
    wait(lambda: find(".meter i"))
    assert background(".meter i") != background(".meter")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.browser
@pytest.mark.parametrize("shape", [(100, 4), (4, 100)], ids=["tall", "wide"])
def test_pictures_of_an_extreme_shape_can_be_seen_and_clicked_on(
    open_page, tmp_path, shape
):
    X = np.random.default_rng(0).integers(0, 256, (9, *shape), np.uint8)
    model = make_pipeline(FunctionTransformer(flat), SphericalKMeans(1)).fit(X)
    write_report(model, X, tmp_path / "report.html")
    _, find = open_page("cluster/0", tmp_path / "report.html")
    box = wait(lambda: find("#gallery .thumb"))[0].size
    assert 24 <= box["height"] <= 2 * box["width"] + 1


@pytest.mark.browser
def test_a_long_name_is_cut_on_the_map(open_page, page):
    browser, find = open_page("cluster/0")
    find("#rename")[0].send_keys(40 * "long " + "\ue007")
    browser.execute_script("location.hash = '#map'")
    points = wait(lambda: find("#map-plot .points path"))
    lefts = [point.rect["x"] for point in points]
    assert np.ptp(lefts) > find("#map-plot")[0].size["width"] / 4
    captions = [node.text for node in find("#map-plot .annotation-text")]
    assert any(text.startswith("long long") and text[-1] == "…" for text in captions)


@pytest.mark.browser
def test_training_and_both_themes(open_page):
    browser, find = open_page("training")
    wait(lambda: len(find("#curves .js-plotly-plot .scatterlayer")) >= 2)
    colours = set()
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        colours.add(find("body")[0].value_of_css_property("background-color"))
    assert len(colours) == 2
    wait(lambda: len(find("#curves .js-plotly-plot .scatterlayer")) >= 2)


def test_reports_of_a_dataset_and_with_data_frames_as_output(digits, page, tmp_path):
    mice, X, y, names = digits
    pairs = torch.from_numpy(X), torch.from_numpy(y)
    dataset = torch.utils.data.TensorDataset(*pairs)
    with config_context(transform_output="pandas"):
        path = write_report(mice, dataset, tmp_path / "report.html", names=names)
    ours, others = data_of(path), data_of(page)
    for name in ("labels", "map", "thumbs"):
        assert ours[name] == others[name]


def test_a_pipeline_within_a_pipeline(tmp_path):
    X = load_digits()[0][:90].reshape(90, -1)
    inner = make_pipeline(StandardScaler(), SphericalKMeans(3, random_state=0))
    model = make_pipeline(FunctionTransformer(), inner).fit(X)
    path = write_report(model, X, tmp_path / "report.html")
    assert data_of(path)["labels"] == model.predict(X).tolist()


def test_parameters_for_the_next_fit_change_no_report(digits, tmp_path):
    mice, X, *_ = digits
    later = copy.deepcopy(mice).set_params(n_clusters=5)
    path = write_report(later, X, tmp_path / "report.html")
    assert data_of(path)["n_clusters"] == 3


@pytest.mark.parametrize(
    "model",
    [
        ClassificationEM(3, random_state=0),
        NeighborMixture(3, max_epochs=1, random_state=0),
        SphericalKMeans(3, random_state=0),
        KMeans(3, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_next_number_of_clusters_is_not_that_of_vectors(model):
    X = np.repeat(np.eye(3, 5), 10, axis=0) + 0.01 * np.arange(150).reshape(30, 5)
    later = model.fit(X).set_params(n_clusters=5)
    reading = _reading.read(later, X)
    assert reading.n_clusters == 3
    assert (reading.sizes > 0).all()


@pytest.mark.parametrize("n_clusters", [None, AgglomerativeClustering(3)])
def test_a_clusterer_without_a_number_of_clusters_has_a_report(n_clusters):
    X = np.repeat(np.eye(3, 5), 10, axis=0)
    birch = Birch(n_clusters=n_clusters).fit(X)
    assert _reading.read(birch, X).n_clusters == 3
