"""Datasets of torch as X."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from PIL import Image
from shared import short_fits, tiny
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from sk_mice import ClassificationEM, MoCo, NeighborMixture, SphericalKMeans
from sk_mice._engine.dataset import DatasetRows, from_dataset
from sk_mice.metrics import silhouette_scorer
from sk_mice.model_selection import stability


class Items(Dataset):
    """A dataset of what is in a list."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


X = np.random.default_rng(0).random((40, 8, 8), np.float32)
OPTIONS = {"max_epochs": 1, "batch_size": 16, "lr": 1e-3, "random_state": 0}
MICE = tiny(n_clusters=2, init=np.arange(40) % 2, **OPTIONS)


@pytest.fixture(scope="module")
def mice():
    return clone(MICE).fit(X)


@pytest.mark.parametrize(
    "items",
    [
        list(X),
        list(torch.from_numpy(X)),
        [(x, 3) for x in X],
        [[torch.from_numpy(x), "label"] for x in X],
        X,
    ],
    ids=["arrays", "tensors", "tuples", "lists", "one array"],
)
def test_rows_are_the_samples(items):
    rows = DatasetRows(Items(items))
    assert (rows.shape, rows.dtype, rows.ndim) == (X.shape, X.dtype, 3)
    assert (rows.size, rows.nbytes, len(rows)) == (X.size, X.nbytes, 40)
    few = (slice(3, 9), slice(None, None, -7), np.array([5, 0, 39]), [1], 7, -1)
    for some in (*few, [-2, 3], np.arange(40) % 3 == 0, slice(None), ([4, 2], ...)):
        assert np.array_equal(rows[some], X[some])
    for outside in (40, [3, 40], -41, np.ones(39, dtype=bool)):
        with pytest.raises(IndexError):
            rows[outside]


@short_fits
@pytest.mark.parametrize(
    "dataset",
    [
        TensorDataset(torch.from_numpy(X)),
        TensorDataset(torch.from_numpy(X), torch.arange(40)),
        TensorDataset(torch.from_numpy(X), torch.zeros(40, 3)),
        Items([[Image.fromarray(np.uint8(255 * x)), "label"] for x in X]),
        Items([(x, [[1, 2], [3]]) for x in X]),
    ],
    ids=["tensors alone", "labels", "shares", "images and words", "lists"],
)
def test_a_dataset_is_searched(dataset):
    folds = KFold(2, shuffle=True, random_state=0)
    mice = clone(MICE).set_params(init="random")
    search = GridSearchCV(mice, {"tau": [1.0]}, cv=folds, refit=False)
    found = search.fit(dataset).cv_results_["mean_test_score"]
    rows = np.stack([dataset[i][0] for i in range(40)])
    expected = search.fit(rows).cv_results_["mean_test_score"]
    np.testing.assert_array_equal(found, expected)


@short_fits
def test_halves_of_a_dataset_are_compared():
    mice = clone(MICE).set_params(init="random")
    found, plain = (
        stability(mice, given, n_repeats=2, random_state=0)
        for given in (TensorDataset(torch.from_numpy(X)), X)
    )
    np.testing.assert_array_equal(found, plain)


def test_images_of_pillow_are_samples():
    images = [Image.new("RGB", (5, 4), colour) for colour in ("red", "blue")]
    rows = DatasetRows(Items(images))
    assert rows.shape == (2, 4, 5, 3)
    assert rows[0][0, 0].tolist() == [255, 0, 0]


def test_damaged_images_of_pillow_are_named(tmp_path):
    path = tmp_path / "damaged.png"
    Image.effect_noise((64, 64), 50).save(path)
    path.write_bytes(path.read_bytes()[:-1000])
    for kind in (list, Items):
        with Image.open(path) as image, pytest.raises(ValueError, match="damaged"):
            MoCo(max_epochs=1).fit(kind([image, image]))


def test_fit_is_that_of_the_array(mice):
    dataset = TensorDataset(torch.from_numpy(X), torch.arange(40))
    other = clone(MICE).fit(dataset)
    assert other.n_features_in_ == 64
    for name in ("predict", "predict_proba", "transform", "score_samples"):
        expected = getattr(mice, name)(X)
        assert np.array_equal(getattr(mice, name)(dataset), expected)
        assert np.array_equal(getattr(other, name)(X), expected)


def test_moco_and_vectors():
    rows = X.reshape(40, 64)
    moco = MoCo(**OPTIONS).fit(Items(rows))
    assert np.array_equal(moco.transform(Items(rows)), moco.transform(rows))
    with pytest.raises(ValueError, match=r"samples of shape \(64,\).*got \(63,\)"):
        moco.transform(Items(rows[:, 1:]))


@pytest.mark.parametrize(
    "estimator",
    [
        SphericalKMeans(2, random_state=0),
        ClassificationEM(2, random_state=0),
        NeighborMixture(2, max_epochs=1, random_state=0),
    ],
)
def test_clusterers_of_vectors_take_datasets(estimator):
    rows = X.reshape(40, -1)
    tensors = torch.from_numpy(rows)
    expected = clone(estimator).fit(rows)
    silhouette = silhouette_scorer(expected, rows)
    # Embeddings in a column of a data frame.
    columns = pd.Series([*rows], index=range(7, 47)), pl.Series([*rows])
    pairs = TensorDataset(tensors, torch.arange(40))
    for dataset in TensorDataset(tensors), pairs, *columns:
        labels = estimator.fit(dataset).predict(dataset)
        assert labels.tolist() == expected.labels_.tolist()
        assert silhouette_scorer(estimator, dataset) == silhouette
    with pytest.raises(TypeError, match="got a DataLoader"):
        estimator.fit(DataLoader(pairs))


def test_checkpoint_tells_datasets_apart_by_their_values(tmp_path):
    moco = MoCo(checkpoint=tmp_path, **OPTIONS)
    n_files = []
    for values in (X, X + 1, X.copy()):
        moco.fit(Items(values))
        n_files.append(len(list(tmp_path.iterdir())))
    assert n_files[0] < n_files[1] == n_files[2]


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([X[0], X[1], X[2, :4]], r"\(8, 8\) and float32 in sample 0, \(4, 8\)"),
        ([X[0], X[1], X[2, :4]], r"in sample 2\."),
        ([X[0], X[1].astype(float)], "float64 in sample 1"),
        ([(), X[1]], "Sample 0 of X must begin with its values"),
        ([3.0, 4.0], r"of shape \(\) in sample 0"),
        ([np.array(["a"])] * 3, "images or vectors of numbers"),
        ([X[0]], "at least 2 samples; got 1"),
        ([], "length 0"),
        ([X[0], np.full((8, 8), np.nan, np.float32)], "NaN in sample 1"),
    ],
)
def test_other_samples_are_refused_by_their_index(items, words):
    with pytest.raises(ValueError, match=words):
        MoCo(max_epochs=1).fit(Items(items))


def test_of_samples_with_names_the_names_are_said():
    class Table:  # as a dataset of Hugging Face
        shape = (40, 2)

        def __len__(self):
            return 40

        def __getitem__(self, i):
            assert i == 0  # the others are not read
            return {"image": X[i], "label": 3}

    for table in (Table(), [Table()[0]], Items([Table()[0]])):
        for estimator in (MoCo(), NeighborMixture(2)):
            with pytest.raises(TypeError, match=r"a dict of 'image', 'label'\. Make a"):
                estimator.fit(table)


def test_a_stream_has_no_samples_by_index():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(X)

    with pytest.raises(TypeError, match="by index; got Stream"):
        MoCo(max_epochs=1).fit(Stream())


def test_other_shapes_are_refused_at_prediction(mice):
    with pytest.raises(ValueError, match=r"samples of shape \(8, 8\).*got \(6, 6\)"):
        mice.predict(Items(X[:, :6, :6]))


def test_arrays_are_no_datasets():
    assert from_dataset(X) is X


def test_a_loader_is_not_a_dataset():
    loader = DataLoader(TensorDataset(torch.rand(20, 6)), batch_size=4)
    with pytest.raises(TypeError, match=r"got a DataLoader\. Pass its `dataset`"):
        MoCo(max_epochs=1).fit(loader)
