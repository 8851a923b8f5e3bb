"""The benchmarks run, here for two epochs on a few images."""

import argparse
import contextlib
import functools
import importlib
import importlib.util
import io
import json
import sys
import tarfile
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from shared import recorded, short_fits
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, make_blobs
from systems import needs_clear_refs, needs_resource

from sk_mice import MiCEClustering, NeighborMixture, datasets
from sk_mice._engine import objective
from sk_mice.backbones import NAMED, ResNet, SmallResNet
from sk_mice.metrics import clustering_accuracy_score

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SCORES = {"acc", "nmi", "ari"}

pytestmark = short_fits


@pytest.fixture
def benchmark(monkeypatch):
    """Imports a benchmark, with few epochs, and with the threads of the tests."""
    monkeypatch.syspath_prepend(BENCHMARKS)

    def load(name):
        if name == "distributed":  # as a package of Dask is named
            path = BENCHMARKS / "distributed.py"
            spec = importlib.util.spec_from_file_location(name, path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(name)
        monkeypatch.setattr(module, "limit_threads", lambda n: None, raising=False)
        short = functools.partial(NeighborMixture, max_epochs=2)
        monkeypatch.setattr(module, "NeighborMixture", short, raising=False)
        return module

    return load


@pytest.fixture
def quick(monkeypatch):
    """The network of images is smaller."""
    monkeypatch.setitem(NAMED, "resnet-small", SmallResNet(4, blocks=(1, 1)))


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def written(module, path, *argv):
    """What a benchmark writes into a file."""
    module.main([*map(str, argv), "--json", str(path)])
    return read(path)


def run(module, path, *argv):
    """What a benchmark of fits writes after two epochs."""
    return written(module, path, *argv, "--epochs", "2")


@pytest.mark.usefixtures("quick")
def test_compare(benchmark, tmp_path, capsys, monkeypatch):
    compare = benchmark("compare")
    monkeypatch.setattr(compare, "RESTARTS", 2)
    monkeypatch.setattr(compare, "installed", lambda name: False)  # UMAP
    kept = run(
        compare,
        tmp_path / "digits.json",
        *("--data", "digits", "--n", "60", "--seeds", "0", "1"),
        *("--cases", "moco", "k-means"),
    )
    names = [
        "MiCE",
        "MoCo, k-means on embeddings",
        "MoCo, k-means on features",
        "MoCo, k-means on whitened features",
        "MoCo, MiCE's start",
        "k-means on pixels",
    ]
    assert list(kept["results"]) == names
    for rows in kept["results"].values():
        assert [row["seed"] for row in rows] == [0, 1]
        for row in rows:
            assert row.keys() >= SCORES
            assert row["seconds"] > 0
    assert kept["n"] == 60
    assert kept["versions"].keys() >= {"python", "torch", "scikit-learn"}
    assert kept["machine"]
    assert kept["commit"]
    # The folder of the results is this machine's own.
    assert kept["command"].endswith("--epochs 2 --json digits.json")
    last_table = capsys.readouterr().out.split("equal time")[-1]
    assert all(name in last_table for name in names)


def write_archive(path, n_train, n_test):
    """Images of three plain colours, in no order."""
    with tarfile.open(path, "w:xz") as archive:
        for part, size in (("test", n_test), ("train", n_train)):
            for color in ("red", "green", "blue"):
                for number in reversed(range(size)):
                    image = io.BytesIO()
                    Image.new("RGB", (32, 32), color).save(image, "JPEG")
                    member = tarfile.TarInfo(f"{part}/{color}/{number:04}.jpg")
                    member.size = image.tell()
                    image.seek(0)
                    archive.addfile(member, image)
    return path


def test_cifar_is_read_from_an_archive(benchmark, tmp_path):
    archive = write_archive(tmp_path / "cifar", 2, 1)
    benchmark("compare")
    from _common import load_cifar10_jpeg

    X, y = load_cifar10_jpeg(archive)
    assert y.tolist() == [0, 0, 1, 1, 2, 2, 0, 1, 2]  # blue, green, red
    colors = np.array([(0, 0, 255), (0, 128, 0), (255, 0, 0)])
    np.testing.assert_allclose(X.mean(axis=(1, 2)), colors[y], atol=3)


@pytest.mark.usefixtures("quick")
def test_compare_on_cifar_with_clustpy(benchmark, tmp_path, monkeypatch):
    fits = []

    class Stub(KMeans):
        """Takes ClustPy's parameters, and notes them."""

        def __init__(self, n_clusters, *, random_state, **epochs):
            super().__init__(n_clusters, random_state=random_state)
            fits.append(epochs)

    clustpy = types.ModuleType("clustpy")
    clustpy.deep = types.SimpleNamespace(DCN=Stub)
    clustpy.__spec__ = importlib.machinery.ModuleSpec("clustpy", None)
    monkeypatch.setitem(sys.modules, "clustpy", clustpy)
    compare = benchmark("compare")
    archive = write_archive(tmp_path / "cifar.tar.xz", 9, 2)
    kept = run(
        compare,
        tmp_path / "cifar.json",
        *("--data", "cifar10-jpeg", "--path", archive, "--seeds", "0"),
        *("--k-factor", "0.5", "--cases", "dcn"),
    )
    assert list(kept["results"]) == ["MiCE", "ClustPy's DCN"]
    assert (kept["n"], kept["n_clusters"]) == (33, 5)
    assert str(tmp_path) not in kept["command"]
    assert len(fits) == 3  # two probes
    assert fits[-1].keys() == {"pretrain_epochs", "clustering_epochs"}


@pytest.mark.usefixtures("quick")
def test_compare_on_vectors_with_umap_goes_on(benchmark, tmp_path, monkeypatch):
    class Map:
        def __init__(self, *, n_neighbors, min_dist, n_components, random_state):
            self.size, self.rng = n_components, np.random.default_rng(random_state)

        def fit_transform(self, rows):
            return self.rng.normal(size=(len(rows), self.size)).astype(np.float32)

    umap = types.ModuleType("umap")
    umap.UMAP = Map
    umap.__spec__ = importlib.machinery.ModuleSpec("umap", None)
    monkeypatch.setitem(sys.modules, "umap", umap)
    compare = benchmark("compare")
    monkeypatch.setattr(compare, "RESTARTS", 2)
    options = ["--n", "60", "--vectors", "--resume", "--cases", "moco", "umap"]
    first = run(compare, tmp_path / "rows.json", *options, "--seeds", "0")
    assert list(first["results"])[-3:] == [
        "MoCo, UMAP, Gaussians, on features",
        "UMAP, Gaussians, on pixels",
        "UMAP, HDBSCAN, on pixels",
    ]
    kept = run(compare, tmp_path / "rows.json", *options, "--seeds", "0", "1")
    for name, rows in kept["results"].items():
        assert rows[:1] == first["results"][name]
        assert [row["seed"] for row in rows] == [0, 1]


def test_small_maps(benchmark, tmp_path, monkeypatch):
    small_maps = benchmark("small_maps")

    class Net(SmallResNet):
        def __init__(self, width=4, *, blocks=(1, 1), max_pool=False):
            super().__init__(width, blocks=blocks, max_pool=max_pool)

    monkeypatch.setattr(small_maps, "SmallResNet", Net)
    made = recorded(monkeypatch, small_maps, "judge", lambda model, *_: model)
    options = tmp_path / "maps.json", "--n", "60", "--seeds", "0"
    kept = run(small_maps, *options)
    assert run(small_maps, *options)["results"] == kept["results"]
    assert list(kept["results"]) == list(small_maps.SHARES)
    pooled = [
        any(isinstance(m, torch.nn.MaxPool2d) for m in model.backbone_.modules())
        for model in made
    ]
    assert pooled == [False, False, True]  # where the small maps come first, at the end


@pytest.mark.usefixtures("quick")
def test_confidence(benchmark, tmp_path):
    confidence = benchmark("confidence")
    options = "--n", "60", "--seeds", "0"
    results = run(confidence, tmp_path / "confidence.json", *options)["results"]
    views = [f"agreement, {n} views" for n in confidence.N_VIEWS]
    assert list(results) == ["posterior", *views]
    for (row,) in results.values():
        assert 0 <= row["auroc"] <= 1
        assert 0 <= row["ece"] <= 1
    right = np.array([True, True, False, False])
    assert confidence.calibration_error(right, np.full(4, 0.5)) == 0
    assert confidence.calibration_error(right, np.ones(4)) == 0.5


@pytest.mark.parametrize(
    ("fit", "stages"),
    [
        ("moco", ["moco", "moco"]),
        ("mice-random", ["em", "em"]),
        ("mice", ["moco", "em"]),
    ],
)
@pytest.mark.usefixtures("quick")
def test_hours(benchmark, tmp_path, fit, stages):
    kept = run(
        benchmark("hours"),
        tmp_path / "hours.json",
        *("--data", "digits", "--n", "60", "--fit", fit, "--folder", tmp_path / "kept"),
    )["results"]
    assert [row["stage"] for row in kept["course"]] == stages
    assert all(row["seconds"] > 0 for row in kept["course"])
    assert ("start of EM" in kept) == (fit == "mice")
    assert 0 < kept["end"]["acc"] <= 1


def test_figure_of_hours(benchmark, tmp_path):
    course = [{"acc": 0.2, "nmi": 0.1, "seconds": 900}] * 2
    text = json.dumps({"results": {"course": course}})
    (tmp_path / "hours_cifar10_jpeg_mice.json").write_text(text, encoding="utf-8")
    drawn = benchmark("hours_figure").figure(tmp_path)
    for ax, value in zip(drawn.axes, (0.2, 0.1), strict=True):
        (line,) = ax.lines
        np.testing.assert_allclose(line.get_xydata(), [(0.25, value), (0.5, value)])


def test_unbalanced_classes(benchmark):
    y = load_digits().target
    X = np.arange(len(y))
    kept, labels = benchmark("compare").unbalanced(X, y)
    np.testing.assert_array_equal(y[kept], labels)
    sizes = np.bincount(labels)
    assert sizes[0] == np.bincount(y).min()
    assert sizes[-1] == round(0.1 * sizes[0])
    np.testing.assert_allclose(sizes[1:] / sizes[:-1], 0.1 ** (1 / 9), rtol=0.05)


@pytest.mark.parametrize("init", ["two-stage", "random"])
def test_budget_is_what_mice_spent(benchmark, init):
    benchmark("compare")
    from _common import Budget

    X = np.random.default_rng(0).random((64, 8, 8))
    budget = Budget(4)
    budget.fit(MiCEClustering(2, init=init, random_state=0), X)
    assert budget.mice.n_iter_ == 4
    # Of four epochs, three of MoCo at most.
    assert 0 < 2 * budget.moco_seconds < budget.seconds


def test_options_describe_a_backbone(benchmark):
    benchmark("compare")
    from _common import add_backbone, backbone

    parser = argparse.ArgumentParser()
    add_backbone(parser)

    def described(*argv):
        return repr(backbone(parser.parse_args(argv)))

    assert described() == repr(SmallResNet())
    of_small = ("--width", "4", "--max-pool")
    assert described(*of_small) == repr(SmallResNet(4, max_pool=True))
    of_large = ("--backbone", "resnet34", "--max-pool")
    assert described(*of_large) == repr(ResNet(34, max_pool=True))
    assert not NAMED["resnet34"].max_pool
    with pytest.raises(ValueError, match="'width' for estimator ResNet"):
        described("--backbone", "resnet18", "--width", "4")


DISTRIBUTED = ("--width", "4", "--batch-size", "16", "--image-size", "16")


def distributed(module, path, *options):
    found = written(module, path, *DISTRIBUTED, "--steps", "1", *options)
    assert found["stated"]["link"] > found["stated"]["network"]
    return found["results"]


@pytest.mark.usefixtures("quick")
def test_distributed(benchmark, tmp_path, capsys):
    module, path = benchmark("distributed"), tmp_path / "one.json"
    results = distributed(module, path, "--processes", "1", "--repeats", "2")
    assert results["efficiency"]["clock"].keys() == {
        *("step", "networks", "step to networks")
    }
    for row in results["seconds"].values():
        assert min(row.values()) > 0
    # The queue has 16 bits for each of 128 values, or 32.
    assert results["bytes"]["embeddings"] in (16 * 128 * 2, 16 * 128 * 4)
    each = [
        row["efficiency"]
        for row in results["expected"]
        if row["fixed"] == "batch of each GPU"
    ]
    assert each == sorted(each, reverse=True)
    assert each[0] == 1
    assert results["ends"]["batch of all"] <= 8  # two images in each part
    assert "efficiency, step" in capsys.readouterr().out


@pytest.mark.slow
def test_distributed_in_two_processes(benchmark, tmp_path):
    path = tmp_path / "two.json"
    results = distributed(benchmark("distributed"), path, "--repeats", "2")
    # Each process has half of the work, and no more than all of it.
    shared, whole = (
        results["seconds"][f"networks, {n}"]["cores"] for n in ("shared", "one process")
    )
    assert whole < 2 * shared < 4 * whole


@needs_resource
def test_train_step(benchmark, tmp_path, monkeypatch):
    module = benchmark("train_step")
    monkeypatch.setitem(module.LARGE, "cpu", 256)
    sizes = ("--batch-size", "16", "--image-size", "16", "--queue-size", "64")
    few = (*sizes, "--n-clusters", "3", "--repeats", "1")
    step = functools.partial(written, module, tmp_path / "step.json", *few)
    kept = step("--heads", "shared", "--gate-view", "student")["results"]
    assert "paper's pseudocode" not in kept["seconds"]
    kept = step("--heads", "own")["results"]
    assert set(kept["seconds"]) > {"whole step", "networks", "paper's pseudocode"}
    assert kept["ratio_to_networks"] > 0
    assert kept["ratio_to_moco"] > 0
    assert kept["network_flops"] > 0
    assert kept["ceiling_flops_per_second"] > 0
    with pytest.raises(SystemExit, match=r"above 0\.001"):
        step("--max-ratio", "0.001")


@pytest.fixture
def gpu(benchmark, tmp_path, monkeypatch):
    """The command for a GPU, on a few images; the folder of its files is `gpu.OUT`."""
    compare, train_step, gpu = map(benchmark, ("compare", "train_step", "gpu"))
    monkeypatch.setattr(compare, "RESTARTS", 2)
    monkeypatch.setattr(gpu, "RESTARTS", 2)
    monkeypatch.setitem(train_step.LARGE, "cpu", 256)
    monkeypatch.setattr(compare, "SECOND_STAGES", dict(compare.SECOND_STAGES))
    monkeypatch.setattr(gpu, "code", lambda: "this one")
    monkeypatch.setattr(gpu, "TESTS", ("tests/test_project.py",))
    monkeypatch.setattr(gpu, "OUT", tmp_path / "results", raising=False)
    options = ["--device", "cpu", "--tiny", "--out", str(gpu.OUT)]
    gpu.tiny = lambda *more: gpu.main([*options, *map(str, more)])
    return gpu


@pytest.mark.usefixtures("quick")
@needs_resource
def test_gpu_goes_on_where_it_was_cut_off(gpu, capsys, monkeypatch):
    run = []
    monkeypatch.setattr(
        gpu,
        "run_apart",
        lambda stage, options: run.append(stage.name) or gpu.run_here(stage, options),
    )
    gpu.tiny("--stage", "environment")  # one alone is run in this process
    gpu.tiny("--stage", "cifar10_1")
    assert not run
    gpu.tiny()
    names = [stage.name for stage in gpu.STAGES]
    assert run == [name for name in names if name not in ("environment", "cifar10_1")]
    assert {path.name for path in gpu.OUT.iterdir()} == {s.file for s in gpu.STAGES}
    capsys.readouterr()
    gpu.tiny()
    assert capsys.readouterr().out.count("done") == len(names)
    assert len(run) == len(names) - 2
    n_passed = read(gpu.OUT / "gpu_tests.json")["results"]["passed"]
    assert n_passed > 0
    kept = read(gpu.OUT / "gpu_cifar10_jpeg.json")
    assert [row["seed"] for row in kept["results"]["MiCE"]] == [1, 0]
    monkeypatch.setattr(importlib.import_module("pages.files"), "RESULTS", gpu.OUT)
    page = "\n".join(importlib.import_module("pages.gpu").page())
    assert f"{n_passed} passed" in page
    for part in ("MoCo, MiCE's start", "Another seed"):
        assert part in page
    monkeypatch.setattr(gpu, "code", lambda: "another one")
    gpu.tiny("--list")
    assert capsys.readouterr().out.count("to run") == len(names)


def test_gpu_begins_no_stage_without_time_and_names_what_fails(gpu, monkeypatch):
    with pytest.raises(SystemExit, match=r"tests: no time is left of 0\.1 minutes"):
        gpu.tiny("--minutes", "0.1")
    ran = []

    def process(words, timeout):
        ran.append(words[-1])
        return types.SimpleNamespace(returncode=int(words[-1] == "tests"))

    monkeypatch.setattr(gpu.subprocess, "run", process)
    with pytest.raises(SystemExit, match=r"^not done:\n  tests: exit code 1$"):
        gpu.tiny("--minutes", 100)
    assert ran == [stage.name for stage in gpu.STAGES]


def test_gpu_needs_one(gpu, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        gpu.main([])
    assert "got cuda, which torch does not see" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        gpu.main(["--device", "cpu", "--tiny"])
    assert "--tiny needs --out" in capsys.readouterr().err
    gpu.main(["--list"])
    n_of_photographs = len(gpu.SEEDS) + len(gpu.HOURS) + 1
    assert capsys.readouterr().out.count("needs --path") == n_of_photographs


def test_epochs_on_a_gpu_take_the_minutes_they_are_given(gpu):
    options = gpu.parse(["--device", "cpu", "--out", str(gpu.OUT)])
    with pytest.raises(SystemExit, match="must come after the stage step_resnet18"):
        gpu.n_epochs(options, 60_000)
    times = {"whole step of MoCo": 0.02, "whole step": 0.04}
    kept = {"results": {"seconds": times}} | gpu.place()
    gpu.OUT.mkdir()
    (gpu.OUT / "gpu_step_resnet18.json").write_text(json.dumps(kept))
    # 234 steps of 22 ms in the mean: 35 epochs are three minutes.
    assert gpu.n_epochs(options, 60_000) == 35


@needs_clear_refs
def test_predict(benchmark, tmp_path):
    kept = run(
        benchmark("predict"),
        tmp_path / "predict.json",
        *("--n", "300", "--image-size", "16", "--queue-size", "64"),
        *("--width", "4", "--repeats", "1"),
    )["results"]
    assert set(kept["seconds"]) == {"predict", "predict_proba", "networks"}
    assert kept["throughput_to_networks"] > 0
    assert kept["memory_bytes"] >= 0


@pytest.mark.usefixtures("quick")
def test_em(benchmark, tmp_path):
    em, options = benchmark("em"), ("--n", "60", "--seeds", "0")
    options = (*options, "--folder", tmp_path)
    kept = run(em, tmp_path / "heads.json", *options)["results"]
    assert set(kept) == {"none", *em.HEADS}
    assert [path.name for path in tmp_path.glob("*.pt")] == ["digits_2_0.pt"]
    names = ("held", "four views", "neighbours, hard, kappa 0.2")
    options = (*options, "--what", "e-steps", "--heads", "shared", "--variants", *names)
    steps = run(em, tmp_path / "steps.json", *options)["results"]
    assert set(steps) == {"none", *names}
    assert steps["none"] == kept["none"]  # from the same first stage
    again = run(em, tmp_path / "steps.json", *options)["results"]
    assert again == steps  # nothing is fitted twice


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("more", [(), ("--images",)])
def test_neighbors(benchmark, tmp_path, more):
    kept = run(
        benchmark("neighbors"),
        tmp_path / "neighbors.json",
        *("--n", "60", "--n-neighbors", "2", "5", "--seeds", "0", *more),
    )
    names = ["MiCE", "MiCE, n_neighbors=2", "MiCE, n_neighbors=5", "k-means"]
    assert list(kept["results"]) == names
    for rows in kept["results"].values():
        assert [row["seed"] for row in rows] == [0]
        assert all(row.keys() >= SCORES for row in rows)


@needs_resource
def test_neighbors_scale(benchmark, tmp_path):
    module, path = benchmark("neighbors_scale"), tmp_path / "scale.json"
    (row,) = written(module, path, "--n", "300")["results"]["search"]
    assert row["recall"] == 1.0
    assert row["peak_memory"] >= row["peak_memory_before"] > 0


# -------------------------------------------------------------------- earlier commits


def test_same_fits_compares_the_commits_that_results_name(
    benchmark, tmp_path, monkeypatch, capsys
):
    module, path = benchmark("same_fits"), tmp_path / "same.json"
    results = tmp_path / "results"
    results.mkdir()
    kept = {"commit": "aaaaaaa", "commits": {"MiCE": "bbbbbbb"}}
    kept["note"] = "Seed 0: commit ccccccc."
    (results / "compare.json").write_text(json.dumps(kept), encoding="utf-8")
    monkeypatch.setattr(importlib.import_module("_common"), "RESULTS", results)
    monkeypatch.setattr(module, "checked_out", contextlib.nullcontext)
    present = {"MiCE": {"labels": "1", "transform": "2"}, "MoCo": {"transform": "3"}}
    found = {
        module.ROOT: present,
        "aaaaaaa": present,
        "bbbbbbb": {"MiCE": {"labels": "1", "transform": "0"}, "MoCo": None},
        "ccccccc": {"MiCE": {"transform": "2"}, "MoCo": {"transform": "3"}},
    }
    monkeypatch.setattr(module, "digests_at", found.get)
    assert written(module, path)["results"] == {
        "aaaaaaa": {"MiCE": {"labels": 1, "transform": 1}, "MoCo": {"transform": 1}},
        "bbbbbbb": {"MiCE": {"labels": 1, "transform": 0}, "MoCo": {}},
        "ccccccc": {"MiCE": {"labels": 0, "transform": 1}, "MoCo": {"transform": 1}},
    }
    assert "aaaaaaa the same\n" in capsys.readouterr().out
    found["aaaaaaa"] = found["bbbbbbb"]  # is not compared again
    assert len(written(module, path, "--commits", "aaaaaaa")["results"]) == 3
    assert not capsys.readouterr().out


def test_same_fits_has_the_bits_of_each_fit(benchmark, monkeypatch):
    module = benchmark("same_fits")
    fits = module.fits()
    kept = {name: fits[name] for name in ("MiCE on vectors", "spherical k-means")}
    monkeypatch.setattr(
        module, "fits", lambda: kept | {"missing": ("sk_mice.No", [], {})}
    )
    found = module.digests()
    assert found["missing"] is None
    assert found["MiCE on vectors"].keys() == {"labels", "predict_proba", "transform"}
    assert found["spherical k-means"].keys() == {"labels", "transform"}
    assert module.digests() == found
    _, X, _ = kept["spherical k-means"]
    X[0] += 1
    assert module.digests()["spherical k-means"] != found["spherical k-means"]


# -------------------------------------------------------------------- frozen features


def test_features_goes_on(benchmark, tmp_path, monkeypatch):
    features, peers = benchmark("features"), importlib.import_module("peers")
    temi = functools.partial(peers.temi, n_heads=2, n_epochs=1)
    monkeypatch.setattr(features, "temi", temi)
    turtle = functools.partial(peers.turtle, n_steps=2)
    monkeypatch.setattr(features, "turtle", turtle)

    def flat(X, n_components, seed):
        return X[:, 16 : 16 + n_components]

    monkeypatch.setattr(features, "umap_map", flat)
    monkeypatch.setattr(features, "installed", lambda package: True)
    path, file = tmp_path / "results.json", tmp_path / "features.npz"
    options = ("--n", "80", "--features", file, "--resume")
    run(features, path, *options, "--seeds", "0", "--methods", "k-means")
    assert np.load(file)["X"].shape == (80, 64)
    kept = run(features, path, *options, "--seeds", "0")
    assert list(kept["results"]) == features.NAMES
    for rows in kept["results"].values():
        assert [row["seed"] for row in rows] == [0]
        assert all(row.keys() >= SCORES | {"seconds", "n_found"} for row in rows)


def test_images_become_features_once(benchmark, tmp_path, monkeypatch):
    features = benchmark("features")
    made = []

    def extract(images, *of_network):
        made.append(of_network)
        return images.mean(axis=(1, 2))

    monkeypatch.setattr(features, "extract", extract)
    argv = ["--data", "cifar10-jpeg", "--n", "20", "--methods", "k-means"]
    argv += ["--features", str(tmp_path / "kept.npz")]
    path = write_archive(tmp_path / "cifar.tar.xz", 9, 2)
    options = features.parse([*argv, "--path", str(path)])
    X, _ = features.vectors(options)
    assert X.shape == (20, 3)
    path.unlink()
    np.testing.assert_array_equal(features.vectors(options)[0], X)
    assert made == [("efficientnet-lite0", "auto")]


def test_features_of_another_network_have_files_of_their_own(benchmark):
    features = benchmark("features")
    another = ["--network", "efficientnet-lite2", "--image-size", "192"]
    options = features.parse([*another, "--data", "cifar10-jpeg"])
    assert (options.network, options.image_size) == ("efficientnet-lite2", 192)
    assert features.network_of(options) == "_efficientnet-lite2_192"
    assert features.network_of(features.parse([])) == ""


def test_fine_tuning(benchmark, tmp_path):
    options = "--data", "digits", "--n", "40", "--image-size", "32"
    kept = run(benchmark("fine_tuning"), tmp_path / "tuned.json", *options)["results"]
    assert list(kept) == ["frozen", "frozen, small", "fine-tuned", "its first stage"]


@pytest.mark.usefixtures("quick")
def test_small_set(benchmark, tmp_path, monkeypatch):
    small_set = benchmark("small_set")
    monkeypatch.setattr(small_set, "N_TEST", 36)
    monkeypatch.setattr(small_set, "CLASSES", (0, 1, 2))
    for name, (rows, method) in small_set.METHODS.items():
        if hasattr(method, "max_epochs"):
            quick = clone(method).set_params(max_epochs=2)
            monkeypatch.setitem(small_set.METHODS, name, (rows, quick))
    archive = write_archive(tmp_path / "cifar.tar.xz", 1, 12)
    options = ("--path", archive, "--seeds", "0", "1")
    kept = written(small_set, tmp_path / "set.json", *options)
    assert kept["n"] == 36
    assert list(kept["results"]) == list(small_set.METHODS)
    assert {len(rows) for rows in kept["results"].values()} == {2}


@pytest.mark.usefixtures("quick")
def test_outliers(benchmark, tmp_path, monkeypatch):
    outliers, options = benchmark("outliers"), ("--seeds", "0", "1")
    few = datasets.load_digits()[0][:120]
    monkeypatch.setattr(outliers, "load_digits", lambda: (few, None, None))
    kept = run(outliers, tmp_path / "outliers.json", *options)["results"]
    assert len(kept) == 4 * 2 + 2
    assert {len(rows) for name, rows in kept.items() if "pixels" not in name} == {2}
    assert all(0 <= row["auc"] <= 1 for rows in kept.values() for row in rows)


@pytest.mark.parametrize("name", ["temi", "turtle"])
def test_peers_find_clusters_that_are_apart(benchmark, name):
    benchmark("features")
    peers = importlib.import_module("peers")
    X, y = make_blobs(300, 8, centers=3, cluster_std=0.5, random_state=0)
    X /= 10
    if name == "temi":
        short = {"n_epochs": 20, "batch_size": 64, "lr": 1e-3, "momentum": 0.9}
        labels = peers.temi(X, 3, 0, n_heads=2, **short)
    else:
        labels = peers.turtle([X, X[:, :4]], 3, 0, n_steps=100, lr=0.1)
    assert clustering_accuracy_score(y, labels) > 0.95


# ----------------------------------------------------------------- the choice of K


@pytest.mark.parametrize("tau", [0.5, 1.0])
@pytest.mark.parametrize("kappa", [0.5, 1.0])
def test_elbo_of_perfect_clusters_is_that_of_the_objective(benchmark, tau, kappa):
    K, D, V = 4, 6, 20
    z, others = torch.arange(V) % K, torch.arange(K)
    omega = objective.simplex_centres(K, D)
    mu = torch.nn.functional.normalize(torch.randn(K, D, dtype=torch.float64), dim=1)
    own = (z[:, None] == others).unsqueeze(-1)  # (V, K, 1)
    v = torch.where(own, mu, -mu)
    joint = objective.log_joint(
        objective.gating_log_prob(omega[z], omega, kappa),
        objective.expert_log_prob(v, v, mu, v, tau),
    )
    expected = benchmark("choose_k").perfect_elbo(K, tau, kappa, V)
    np.testing.assert_allclose(objective.log_evidence(joint), expected)


def test_elbo_of_perfect_clusters_chooses_k_by_the_temperatures(benchmark):
    choose_k = benchmark("choose_k")
    assert choose_k.best_of_perfect(tau=1.0, kappa=1.0) == 11
    assert choose_k.best_of_perfect(tau=0.5, kappa=1.0) > 11
    many = [
        choose_k.perfect_elbo(K, queue_size=1e9) + np.log(1e9) for K in range(1, 30)
    ]
    assert np.argmax(many) + 1 == 11
    assert many[10] == pytest.approx(choose_k.perfect_elbo(11))


@pytest.mark.usefixtures("quick")
def test_choose_k(benchmark, tmp_path, capsys):
    kept = run(
        benchmark("choose_k"),
        tmp_path / "k.json",
        *("--n", "200", "--classes", "3", "--clusters", "2", "3", "--seeds", "0"),
    )
    rows = kept["results"]
    assert [(row["classes"], row["K"]) for row in rows] == [(3, 2), (3, 3)]
    for row in rows:
        assert row.keys() >= SCORES | {"elbo", "silhouette", "stability"}
    assert "stability chooses K =" in capsys.readouterr().out


@pytest.mark.usefixtures("quick")
def test_neighbor_votes(benchmark, tmp_path):
    votes = benchmark("neighbor_votes")
    options = ("--data", "digits", "--n", "120", "--seeds", "0", "--unbalanced")
    folder = tmp_path / "features"
    kept = run(votes, tmp_path / "v.json", *options, "--folder", folder)
    assert len(list(folder.iterdir())) == 1
    assert len(kept["results"]) == 5
    # The second of two groups of neighbours has one label that is wrong.
    table = np.array([[1, 2], [0, 2], [0, 1], [4, 5], [3, 5], [3, 4]])
    labels = np.array([0, 0, 0, 1, 1, 0])
    np.testing.assert_array_equal(votes.vote(labels, table, 1), [0, 0, 0, 1, 1, 1])
    assert votes.information(labels, table) < votes.information(
        votes.vote(labels, table, 1), table
    )


def test_photographs(benchmark, tmp_path, monkeypatch, capsys):
    module, path = benchmark("photographs"), tmp_path / "photographs.json"
    monkeypatch.setattr(module, "SIZES", ((32, 32), (64, 48)))
    kept = written(module, path, "--n", "3", "--repeats", "1")["results"]
    assert list(kept) == ["32 x 32", "64 x 48"]
    for result in kept.values():
        assert set(result["seconds"]) == {"features", "network as it is", "decoding"}
    assert "time_to_network" in capsys.readouterr().out


def test_busy(benchmark, tmp_path, capsys):
    few = ("--n", "4", "--threads", "1", "--repeats", "1")
    kept = written(benchmark("busy"), tmp_path / "busy.json", *few)["results"]
    assert list(kept["seconds"]) == list(kept["busy_to_idle"])
    assert all(set(s) == {"idle", "busy"} for s in kept["seconds"].values())
    assert "busy_to_idle" in capsys.readouterr().out


def test_memory_map(benchmark, tmp_path, capsys):
    few = ("--n", "40", "--image-size", "16", "--repeats", "1")
    kept = written(benchmark("memory_map"), tmp_path / "map.json", *few)["results"]
    assert set(kept["seconds"]) == {"memory", "file"}
    assert set(kept["throughput_to_memory"]) == {"fit", "predict"}
    assert "throughput_to_memory" in capsys.readouterr().out
