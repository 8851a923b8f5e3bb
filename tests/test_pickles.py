"""Fitted estimators in files of joblib and pickle, read in another process."""

import copy
import os
import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path

import joblib
import numpy as np
import pytest
import shared
import torch
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import sk_mice
from sk_mice import (
    ClassificationEM,
    MiCEClustering,
    MoCo,
    NeighborMixture,
    SphericalKMeans,
)

pytestmark = shared.short_fits
ROOT = Path(__file__).parents[1]
IMAGES = load_digits(n_class=4).images[:160]
ROWS = IMAGES.reshape(len(IMAGES), -1)
tiny = partial(shared.tiny, n_clusters=4, init="random")
USERS_MODULE = """
import torch

class Mine(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(256, 12), torch.nn.ReLU())
"""
# Reads the files that it is given, with the threads of the process that wrote them.
READER = """
import sys, joblib, numpy as np, torch
folder, n_threads, *names = sys.argv[1:]
torch.set_num_threads(int(n_threads))
X = np.load(f"{folder}/X.npy")
read = {name: joblib.load(f"{folder}/{name}").predict_proba(X) for name in names}
np.savez(f"{folder}/read.npz", **read)
"""


@pytest.fixture(scope="module")
def fitted():
    return tiny(image_shape=(8, 8)).fit(ROWS)


@pytest.fixture(scope="module")
def written_and_read(tmp_path_factory):
    """`predict_proba` by case, in this process and from a file in another one."""
    folder = tmp_path_factory.mktemp("dumps")
    (folder / "users_module.py").write_text(USERS_MODULE)
    sys.path.insert(0, str(folder))
    try:
        from users_module import Mine

        model = tiny(image_shape=(8, 8))
        cases = {
            "model": (model, 0),
            "compressed.gz": (model, 0),
            "pipeline": (make_pipeline(FunctionTransformer(np.sqrt), model), 0),
            "users-class": (tiny(image_shape=(8, 8), backbone=Mine), ("zlib", 3)),
            "users-module": (tiny(image_shape=(8, 8), backbone=Mine()), 0),
            "bfloat16": (tiny(image_shape=(8, 8), precision="bfloat16"), 0),
        }
        np.save(folder / "X", ROWS)
        written = {}
        for name, (estimator, compress) in cases.items():
            estimator.fit(ROWS)
            joblib.dump(estimator, folder / name, compress=compress)
            written[name] = estimator.predict_proba(ROWS)
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("users_module", None)
    n_threads = str(torch.get_num_threads())
    paths = os.pathsep.join([str(ROOT), str(folder)])
    done = subprocess.run(
        [sys.executable, "-c", READER, folder, n_threads, *cases],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return written, np.load(folder / "read.npz")


def test_another_process_predicts_the_same(written_and_read):
    written, read = written_and_read
    for name, expected in written.items():
        np.testing.assert_array_equal(read[name], expected, err_msg=name)


@pytest.mark.parametrize(
    "again",
    [lambda model: pickle.loads(pickle.dumps(model)), copy.deepcopy],
    ids=["pickle", "deepcopy"],
)
def test_what_is_read_is_a_fitted_estimator_like_any(fitted, again):
    read = again(fitted)
    np.testing.assert_array_equal(read.predict(ROWS), fitted.labels_)
    assert read.score(ROWS) == fitted.score(ROWS) == pytest.approx(fitted.elbo_)
    assert read.history_ == fitted.history_
    assert vars(read).keys() == vars(fitted).keys()
    assert repr(read) == repr(fitted)
    for name, value in fitted._model.state_dict().items():
        other = read._model.state_dict()[name]
        assert other.dtype == value.dtype, name
        assert torch.equal(other, value), name


def test_a_fit_goes_on_from_a_file_as_it_would_have_without(fitted):
    models = copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))
    for model in models:
        model.set_params(warm_start=True, max_epochs=1).fit(ROWS)
    np.testing.assert_array_equal(*(model.transform(ROWS) for model in models))
    assert models[1].init_labels_ is None


def size_for_prediction(model):
    """Bytes of every weight and statistic once, of a queue in 16 bits."""
    return sum(
        value.numel() * (2 if name == "queue" else value.element_size())
        for name, value in model._model.state_dict().items()
    )


@pytest.mark.parametrize("cls", [MiCEClustering, MoCo])
def test_a_dump_is_as_large_as_what_prediction_needs(cls):
    # The default network, so that weights, kept twice or with their gradients, would
    # show beside what pickle itself adds: some hundred bytes a tensor.
    model = cls(max_epochs=1, random_state=0).fit(IMAGES)
    needed = size_for_prediction(model)
    assert needed > 2_000_000
    extra = len(pickle.dumps(model)) - needed
    n_tensors = len(model._model.state_dict())
    assert extra < 500 * n_tensors


def test_networks_made_ready_are_in_no_pickle_and_there_after_it():
    mice = tiny().fit(IMAGES)
    assert mice._inference.model is mice._model
    assert "_inference" not in mice.__getstate__()
    for again in (pickle.loads(pickle.dumps(mice)), copy.deepcopy(mice)):
        assert again._inference.model is again._model
        ready = again._inference
        np.testing.assert_array_equal(again.predict(IMAGES), mice.labels_)
        assert again._inference is ready


def test_labels_alone_grow_with_the_samples():
    sizes = [
        len(pickle.dumps(tiny(queue_size=32).fit(IMAGES[:n_samples])))
        for n_samples in (80, 160)
    ]
    # The figures of the history have more digits or fewer.
    assert abs(sizes[1] - sizes[0] - 80 * np.dtype(np.int64).itemsize) < 100


def test_the_baseline_pipeline():
    baseline = make_pipeline(
        shared.tiny(MoCo, max_epochs=1), SphericalKMeans(4, random_state=0)
    ).fit(IMAGES)
    read = pickle.loads(pickle.dumps(baseline))
    np.testing.assert_array_equal(read.predict(IMAGES), baseline.predict(IMAGES))


def test_what_is_mapped_from_a_dump_is_saved_like_any(tmp_path):
    for cls in (ClassificationEM, NeighborMixture, SphericalKMeans):
        joblib.dump(cls(4, random_state=0).fit(ROWS), tmp_path / "dump")
        mapped = joblib.load(tmp_path / "dump", mmap_mode="r")
        sk_mice.save(mapped, tmp_path / "model.safetensors")
        loaded = sk_mice.load(tmp_path / "model.safetensors")
        np.testing.assert_array_equal(loaded.predict(ROWS), mapped.labels_)
