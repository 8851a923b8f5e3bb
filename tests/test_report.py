"""The page of clusters: its data and its markup."""

import base64
import copy
import io
import math
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import report_page
import torch
from PIL import Image
from report_page import data_of, flat
from shared import Averages, red_and_blue_files
from sklearn import config_context
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from systems import NOT_THERE

from sk_mice import MiCEClustering, MoCo, SphericalKMeans, load, save
from sk_mice.datasets import _paths, load_digits
from sk_mice.features import PretrainedFeatures
from sk_mice.inspection import (
    ClusterGalleryDisplay,
    EmbeddingDisplay,
    MatchedConfusionDisplay,
    _doubts,
    _reading,
    _report,
    _thumbnails,
    write_report,
)


@pytest.fixture(scope="module")
def digits():
    return report_page.digits()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return report_page.write_page(tmp_path_factory.mktemp("report"))


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


def test_classes_are_what_scores_take(digits, tmp_path):
    mice, X, y, _ = digits
    dates = np.array(["2026-01-01", "2026-01-02", "2026-01-03"], "M8[D]")
    masked = np.ma.array(y, mask=np.arange(len(X)) % 2 == 0)
    cases = [
        (dates[y % 3], dates.astype(str)),
        (pd.DataFrame({"class": dates.astype(str)[y % 3]}), dates.astype(str)),
        (masked, np.unique(y[1::2]).astype(str)),
    ]
    for classes, names in cases:
        data = data_of(write_report(mice, X, tmp_path / "report.html", y=classes))
        assert data["classes"] == names.tolist()


def assert_red_and_blue(path):
    """The thumbnails of a page are those of red and blue images in turn."""
    thumbs, text = data_of(path)["thumbs"], path.read_text(encoding="utf-8")
    for sheet, members in enumerate(thumbs["members"]):
        pixels = sheet_of(text, sheet)[thumbs["height"] // 2, :: thumbs["width"]]
        for i, pixel in zip(members, pixels, strict=False):
            assert pixel.argmax() == 2 * (i % 2)


def test_pipeline_of_files_takes_names_and_thumbnails_from_them(tmp_path):
    files = red_and_blue_files(tmp_path)
    features = PretrainedFeatures(Averages(), image_size=16)
    model = make_pipeline(features, SphericalKMeans(2, random_state=0)).fit(files)
    path = tmp_path / "report.html"
    write_report(model, files, path)
    data = data_of(path)
    assert data["names"] == [str(file) for file in files]
    assert data["noun"] == "images"
    assert data["labels"] == model.predict(files).tolist()
    assert data["thumbs"]["width"] == data["thumbs"]["height"] == _thumbnails.SMALL
    assert_red_and_blue(path)
    write_report(model, files[:5], path, names=list("abcde"))
    assert data_of(path)["names"] == list("abcde")
    write_report(model, files[:5], path, images=np.zeros((5, 20, 30, 3), np.uint8))
    assert data_of(path)["names"] == list(map(str, files[:5]))


def test_features_of_any_network_have_pictures_of_their_images(tmp_path):
    files = red_and_blue_files(tmp_path)
    features = np.tile(np.eye(2), (12, 1))
    model = SphericalKMeans(2, random_state=0).fit(features)
    path = tmp_path / "report.html"
    for images in (files, np.stack([np.asarray(Image.open(file)) for file in files])):
        write_report(model, features, path, images=images)
        data = data_of(path)
        assert data["noun"] == "images"
        assert (data["names"] is None) == (images is not files)
        assert data["labels"] == model.labels_.tolist()
        assert_red_and_blue(path)


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
    with pytest.raises(ValueError, match=rf"\n  '[^']*gone.png': {NOT_THERE}"):
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
    with pytest.raises(ValueError, match=r"3 of the files cannot.*\n.*0.png.*No such"):
        _thumbnails.pictures_in(list(map(str, files)), np.arange(3))


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
        doubt.sentence for doubt in _doubts.doubts(low)
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


def test_images_without_views_are_compared_with_their_neighbours(digits):
    _, X, _, _ = digits
    options = {"augmentation": None, "max_epochs": 1, "random_state": 0}
    mice = MiCEClustering(3, init=np.arange(len(X)) % 3, **options).fit(X)
    assert _reading.read(mice, X).meaning == _reading.OF_NEIGHBORS


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


def test_a_forged_history_has_no_texts_for_numbers(digits, tmp_path):
    """A model of somebody else may have them, and Plotly makes links of some."""
    mice, X, _, _ = digits
    model = copy.copy(mice)
    link = '<a href="https://example.com">epoch</a>'
    model.history_ = [{"stage": "em", "elbo": link, "seconds": link, "changed": 0.5}]
    data = data_of(write_report(model, X, tmp_path / "report.html"))
    assert data["history"] == [{"stage": "em", "changed": 0.5}]


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


def test_what_a_step_makes_images_of_is_listed_by_name(tmp_path):
    X = np.random.default_rng(0).random((20, 6, 6, 5))
    flat = FunctionTransformer(lambda X: X.reshape(len(X), -1))
    model = make_pipeline(flat, KMeans(2, random_state=0)).fit(X)
    write_report(model, X, tmp_path / "page.html")
    assert "thumbs" not in data_of(tmp_path / "page.html")


def test_one_image_alone(tmp_path):
    """Of which nothing can be said, in the singular."""
    model = SphericalKMeans(4, random_state=0).fit(np.eye(4))
    path = write_report(model, np.eye(4)[:1], tmp_path / "report.html")
    text = Path(path).read_text(encoding="utf-8")
    assert "1 sample in 4 clusters" in text
    assert "even share" not in text
    assert "Large" not in text
    assert '<dd id="mean">none</dd>' in text


def test_reports_of_a_dataset_and_with_data_frames_as_output(digits, page, tmp_path):
    mice, X, y, names = digits
    pairs = torch.from_numpy(X), torch.from_numpy(y)
    dataset = torch.utils.data.TensorDataset(*pairs)
    with config_context(transform_output="pandas"):
        path = write_report(mice, dataset, tmp_path / "report.html", names=names)
    ours, others = data_of(path), data_of(page)
    for name in ("labels", "map", "thumbs"):
        assert ours[name] == others[name]


def test_a_map_is_the_same_with_any_output(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 5))
    model, maps = SphericalKMeans(3, random_state=0).fit(X), []
    for output in ("default", "polars"):
        with config_context(transform_output=output):
            path = write_report(model, X, tmp_path / "report.html")
            maps.append(data_of(path)["map"])
    assert maps[0] == maps[1]


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
    page = data_of(write_report(mice, X, path, names=np.array(names)))
    assert page["key"] == pages[0]["key"]


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
        ({"names": 5}, TypeError, "`names` must be a sequence of names; got 5"),
        ({"names": range(90)}, TypeError, "`names` must hold strings or paths; got 0"),
        ({"images": ["a.png"]}, ValueError, "`images` must have an image for each of"),
        ({"images": np.ones((90, 7))}, ValueError, "`images` must hold paths, or im"),
        ({"images": "a.png"}, TypeError, "`images` must hold paths; got one"),
        ({"images": np.full((90, 8, 8), np.nan)}, ValueError, "`images` contains NaN"),
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
