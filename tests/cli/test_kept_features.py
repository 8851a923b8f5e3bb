"""`--features`: what a fit has computed serves the next one, predictions and pages."""

import json
import shutil
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
from PIL import Image
from shared import recorded

from sk_mice import load
from sk_mice._cli import choosing, results
from sk_mice._cli import images as images_module
from sk_mice._cli.terminal import Progress

from .calls import (
    CHOOSE,
    FILES,
    FIT,
    FIT_FEATURES,
    NAMES,
    NETWORK,
    assert_same_result,
    cut_off,
    press_ctrl_c,
    run,
    run_of,
    table,
)

QUIETLY = ("-q", "--overwrite")
THREE = (*NETWORK, "--clusters", "3")


@pytest.fixture(scope="module")
def fitted(photos, tmp_path_factory):
    out = tmp_path_factory.mktemp("fitted") / "result"
    assert run("fit", photos, *FIT_FEATURES, "--out", out, "-q") == 0
    return out


@pytest.fixture
def computed(monkeypatch):
    """How many images each computation of features had."""
    from sk_mice.features import PretrainedFeatures

    def number(network, X, *_):
        return len(X)

    return recorded(monkeypatch, PretrainedFeatures, "_computing", number)


def test_the_file_has_a_row_for_each_row_of_the_table(photos, fitted):
    names = {path.name for path in fitted.iterdir()}
    assert names == FILES | {"features.npy", "features.json"}
    features = np.load(fitted / "features.npy")
    rows = table(fitted / "clusters.csv")
    network = load(fitted / "model.safetensors")[0]
    paths = [str(photos / row["file"]) for row in rows]
    np.testing.assert_array_equal(features, network.transform(paths))


def test_another_number_of_clusters_computes_no_features(
    photos, result, tmp_path, computed, capsys
):
    fresh = tmp_path / "fresh"
    assert run("fit", photos, *THREE, "--out", fresh, "-q") == 0
    assert computed == [20]
    assert run("fit", photos, *THREE, "--out", result, "--overwrite") == 0
    assert computed == [20]
    said = f"The features are read from {str(result / 'features.npy')!r}"
    assert said in capsys.readouterr().err
    assert_same_result(result, fresh)
    one, two = (run_of(folder)["features"] for folder in (result, fresh))
    assert one == two


def test_choose_k_reads_them_if_its_plot_lies_beside_them(
    photos, result, tmp_path, computed, monkeypatch
):
    given = recorded(monkeypatch, choosing, "choose_n_clusters", lambda _, X, *__: X)
    command = ("choose-k", photos, *CHOOSE, "--out")
    assert run(*command, result / "choose-k.png") == 0
    assert not computed
    assert run(*command, tmp_path / "choose-k.png") == 0
    assert run(*command, result / "other.png", "--white", 4095) == 0
    assert computed == [20, 20]
    np.testing.assert_array_equal(*given[:2])
    assert run("fit", photos, *THREE, "--out", result, *QUIETLY) == 0
    assert (result / "choose-k.png").exists()


def test_a_fit_reads_those_that_choose_k_keeps_in_a_new_folder(
    photos, fitted, tmp_path, computed
):
    from sk_mice.features import PretrainedFeatures

    out = tmp_path / "new" / "result"
    command = ("choose-k", photos, *CHOOSE, "--out", out / "choose-k.png")
    with patch.object(PretrainedFeatures, "_computing", press_ctrl_c):
        assert run(*command) == 130
    assert not out.exists()
    assert run(*command) == 0
    assert computed == [20]
    assert run("fit", photos, *FIT_FEATURES, "--out", out, "-q") == 0
    assert computed == [20]
    assert (out / "choose-k.png").exists()
    assert_same_result(out, fitted)


def test_a_fit_without_features_leaves_those_of_choose_k(photos, out, computed, capsys):
    assert run("choose-k", photos, *CHOOSE, "--out", out / "choose-k.png") == 0
    assert run("fit", photos, *FIT, "--out", out, "--resume") == 0
    assert f"{str(out)!r} holds no run: this is a new fit" in capsys.readouterr().err
    assert (out / "features.npy").exists()
    assert run("fit", photos, *FIT_FEATURES, "--out", out, *QUIETLY) == 0
    assert computed == [20]


def test_choose_k_keeps_nothing_where_something_is(photos, tmp_path):
    out = tmp_path / "choose-k.png"
    assert run("choose-k", photos, *CHOOSE, "--out", out) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["choose-k.png"]


def test_choose_k_passes_over_files_of_other_programs(photos, tmp_path, computed):
    for name in ("features.npy", "features.json"):
        (tmp_path / name).write_text("[]")
    out = tmp_path / "choose-k.png"
    assert run("choose-k", photos, *CHOOSE, "--out", out) == 0
    assert computed == [20]


def test_a_fit_that_was_cut_off_goes_on_with_the_features_of_the_last(
    photos, result, computed
):
    command = ("fit", photos, *THREE, "--out", result, *QUIETLY)
    cut_off(*command, code=130, by=press_ctrl_c)
    assert run("fit", photos, "--out", result, "--resume", "-q") == 0
    assert run_of(result)["parameters"]["clusters"] == 3
    assert not computed
    assert run("report", result, photos, "-q") == 0
    assert not computed


WRITING = pytest.mark.parametrize(
    "function", ["write_rows", "ResultFolder.describe_features"]
)


@WRITING
def test_a_fit_that_ends_while_its_features_are_written_keeps_or_computes_them(
    photos, fitted, out, computed, function
):
    with patch(f"sk_mice._cli.results.{function}", press_ctrl_c):
        assert run("fit", photos, *FIT_FEATURES, "--out", out, "-q") == 130
    assert run("predict", out, photos, "-q") == 0
    assert computed == [20, 20]
    assert run("fit", photos, "--out", out, "--resume", "-q") == 0
    assert computed == [20, 20]
    assert_same_result(out, fitted)


def test_a_result_that_cannot_take_its_place_waits(photos, result, tmp_path):
    move = results.move

    def refuses(source, target):
        if target.name == "report.html":
            raise PermissionError
        move(source, target)

    with patch.object(results, "move", refuses):
        assert run("fit", photos, *THREE, "--out", result, *QUIETLY) == 1
    assert run("predict", result, photos, "-q", "--out", tmp_path / "new.csv") == 0
    assert run_of(result)["parameters"]["clusters"] == 3
    assert run("fit", photos, *THREE, "--out", result, "--resume", "-q") == 0


def damage(result):
    with open(result / "features.npy", "r+b") as file:
        file.seek(1000)
        file.write(b"x")


def shorten(result):
    path = result / "features.npy"
    path.write_bytes(path.read_bytes()[:-1])


def remove(result):
    (result / "features.npy").unlink()


def of_other_weights(result):
    change_facts(result, weights="0")


def of_other_libraries(result):
    change_facts(result, versions={"torch": "0"})


def without_facts(result):
    (result / "features.json").unlink()


def of_other_rows(result):
    facts = json.loads((result / "features.json").read_bytes())
    change_facts(result, images=facts["images"][1:])


def without_images(result):
    change_facts(result, images=None)


def of_unknown_facts(result):
    (result / "features.json").write_text("[]")


def change_facts(result, **changes):
    path = result / "features.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | changes))


@pytest.mark.parametrize(
    "change",
    [
        damage,
        shorten,
        remove,
        of_other_weights,
        of_other_libraries,
        without_facts,
        of_unknown_facts,
        of_other_rows,
        without_images,
    ],
)
def test_features_that_may_be_others_are_computed(
    photos, fitted, result, computed, change
):
    change(result)
    assert run("fit", photos, *FIT_FEATURES, "--out", result, *QUIETLY) == 0
    assert computed == [20]
    assert_same_result(result, fitted)
    assert run("fit", photos, *THREE, "--out", result, *QUIETLY) == 0
    assert computed == [20]


@pytest.mark.parametrize(
    "option",
    [
        *(("--image-size", 64), ("--background", "black")),
        *(("--white", 4095), ("--device", "cpu")),
        ("--resize", "stretch"),
    ],
    ids=str,
)
def test_features_by_other_options_are_computed(photos, result, computed, option):
    assert run("fit", photos, *FIT_FEATURES, *option, "--out", result, *QUIETLY) == 0
    assert computed == [20]


def test_a_result_of_a_version_with_fewer_options_is_used(
    photos, fitted, result, computed, capsysbinary
):
    known, facts = run_of(result), result / "features.json"
    of_features = json.loads(facts.read_bytes())
    for option in ("resize", "background", "white"):
        del known["parameters"][option], of_features[option]
    for option in ("rotate", "unequal"):
        del known["parameters"][option]
    (result / "run.json").write_text(json.dumps(known))
    facts.write_text(json.dumps(of_features))
    assert run("predict", result, photos, "-q") == 0
    assert capsysbinary.readouterr().out == (fitted / "clusters.csv").read_bytes()
    assert run("report", result, photos, "-q") == 0
    assert not computed
    (result / "checkpoint").mkdir()  # of a fit that has just begun
    begun = json.dumps(known | {"finished": False})
    (result / "checkpoint" / "run.json").write_text(begun)
    assert run("fit", photos, "--out", result, "--resume", "-q") == 0
    assert_same_result(result, fitted)


def assert_same_features(one, two):
    kept, fresh = (np.load(out / "features.npy") for out in (one, two))
    np.testing.assert_allclose(kept, fresh, rtol=1e-4, atol=1e-4)
    return kept


def change_photos(folder):
    """Two are new, one of them under an old name, and one is gone."""
    with Image.open(folder / NAMES[1]) as image:
        turned = image.transpose(Image.Transpose.ROTATE_90)
    turned.save(folder / "0.png")
    turned.save(folder / NAMES[1])
    (folder / NAMES[2]).unlink()


def test_only_features_of_new_images_are_computed(
    photos, result, tmp_path, computed, capsys
):
    own = shutil.copytree(photos, tmp_path / "photos")
    assert run("report", result, own, "-q") == 0
    assert not computed
    change_photos(own)
    predict = ("predict", result, own, "--out", tmp_path / "new.csv", *QUIETLY)
    assert run(*predict) == 0
    command = ("fit", own, *THREE, "--overwrite", "--out")
    assert run(*command, result) == 0
    said = f"The features of 18 images are read from {str(result / 'features.npy')!r}"
    assert said in capsys.readouterr().err
    assert run(*command, tmp_path / "fresh") == 0
    assert computed == [2, 2, 20]
    kept = assert_same_features(result, tmp_path / "fresh")
    # Without the new one, there is nothing to compute.
    (own / "0.png").unlink()
    assert run(*command, result) == 0
    assert run(*predict) == 0
    assert computed == [2, 2, 20]
    assert np.array_equal(np.load(result / "features.npy"), kept[1:])


def test_features_at_another_size_are_others():
    """Which one a network takes by itself depends on all images of a folder."""
    images = images_module.Images(None, np.zeros((1, 2, 2)), ["a"], [], {})
    run = {"versions": {}, "parameters": dict.fromkeys(images_module.OF_FEATURES)}
    small, large = (
        SimpleNamespace(image_size_=size, weights_sha256_="0") for size in (160, 224)
    )
    one, other = (
        images_module.facts_of_features(network, images, run)
        for network in (small, large)
    )
    assert one != other


def test_a_part_of_the_features_of_another_number_of_images_is_dropped(tmp_path):
    asked = []

    @contextmanager
    def computing(paths, pictures):
        asked.append(len(paths))
        yield len(paths), (np.full((1, 3), i, np.float32) for i in range(len(paths)))

    network = SimpleNamespace(n_features_out_=3, batch_size_=1, _computing=computing)
    into = tmp_path / "features.npy"
    for n, again in ((4, 4), (4, 2), (5, 5)):
        features = images_module._transform_into(
            into, network, list("abcde")[:n], Progress(quiet=True)
        )
        assert features.shape == (n, 3)
        assert asked.pop() == again
        into.write_bytes(into.read_bytes()[: 2 * 12 - n * 12])  # two rows are left


@WRITING
def test_features_of_new_images_go_on(photos, result, tmp_path, computed, function):
    own = shutil.copytree(photos, tmp_path / "photos")
    change_photos(own)
    command = ("fit", own, *THREE, "--out", result, *QUIETLY)
    cut_off(*command, code=130, by=press_ctrl_c)
    resume = ("fit", own, "--out", result, "--resume", "-q")
    with patch(f"sk_mice._cli.results.{function}", press_ctrl_c):
        assert run(*resume) == 130
    assert computed == [2]
    assert run(*resume) == 0
    # Once the features are others than is written of them, all are computed.
    assert computed == ([2] if function == "write_rows" else [2, 20])
    assert run("fit", own, *THREE, "--out", tmp_path / "fresh", "-q") == 0
    assert_same_features(result, tmp_path / "fresh")


def test_a_fit_without_features_keeps_none(photos, result, computed):
    assert run("fit", photos, *FIT, "--out", result, *QUIETLY) == 0
    assert {path.name for path in result.iterdir()} == FILES
    assert run("predict", result, photos, "-q") == 0
    assert not computed
