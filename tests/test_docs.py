"""What the documentation names is there, and is as it says."""

import ast
import inspect
import json
import re
import shutil
import statistics
import sys
import warnings
from copy import copy
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from shared import same_generators, short_fits, tiny
from sklearn.exceptions import ConvergenceWarning

import sk_mice
from sk_mice import MiCEClustering
from sk_mice.augmentation import ImageAugmentation

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    path
    for path in (*DOCS.glob("*.md"), *DOCS.glob("user_guide/*.md"))
    if "_build" not in path.parts
)


def text_of(page):
    return (DOCS / page).read_text(encoding="utf-8")


def words_of(page):
    """A page in one line, so that a sentence may be looked for."""
    return " ".join(text_of(page).split())


def python_of(text):
    """The blocks of code of a page."""
    return re.findall(r"```python\n(.*?)```", text, re.S)


def scripts_of(page, heading):
    """The blocks of code of a section of the guide."""
    text = text_of(f"user_guide/{page}.md").split(f"\n## {heading}\n")[1]
    return python_of(text.split("\n## ")[0])


def names_of_functions(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def table_rows(page, heading, number=0):
    """Cells of the rows of a table below a heading, the first by default."""
    section = text_of(page).split(f"# {heading}\n")[1]
    lines = [line.strip() for line in section.split("\n")]
    starts = [i + 1 for i, line in enumerate(lines) if line.startswith("|--")]
    for line in lines[starts[number] :]:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_functions_and_tests_of_the_equations_exist():
    functions = names_of_functions(ROOT / "sk_mice" / "_engine" / "objective.py")
    tests = names_of_functions(ROOT / "tests" / "test_objective.py")
    rows = list(table_rows("mathematics.md", "From the paper to the code and its test"))
    assert len(rows) > 10
    for place, code, checks in rows:
        known = functions
        if elsewhere := re.search(r"`([\w/]+\.py)`", code):
            known = names_of_functions(ROOT / elsewhere[1])
        assert set(re.findall(r"`(\w+)`", code)) <= known, place
        assert set(re.findall(r"`(\w+)`", checks)) <= tests, place


def test_defaults_that_depart_from_the_paper_are_the_defaults():
    parameters = {}
    for cls in (MiCEClustering, ImageAugmentation):
        parameters |= inspect.signature(cls).parameters
    rows = list(table_rows("mathematics.md", "Where we depart from the paper"))
    named = [pair for row in rows for pair in re.findall(r"`(\w+)=([^`]+)`", row[0])]
    assert len(named) > 4
    for name, value in named:
        assert parameters[name].default == ast.literal_eval(value), name


def measured(name):
    """The seeds of each method in a file of results."""
    path = ROOT / f"benchmarks/results/{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))["results"]


def mean(runs, metric, digits=3):
    return f"{statistics.mean(run[metric] for run in runs):.{digits}f}"


def acc_and_nmi(runs):
    return f"{mean(runs, 'acc')}, {mean(runs, 'nmi')}"


def acc_and_worst(runs, digits=3):
    return f"{mean(runs, 'acc', digits)} ({min(run['acc'] for run in runs):.{digits}f})"


def median_seconds(runs):
    return f"{statistics.median(run['seconds'] for run in runs):.0f}"


def test_figures_of_other_tools_are_those_of_the_results():
    results = measured("compare_digits")
    rows = list(table_rows("user_guide/comparison.md", "Scores on the same data"))
    assert len(rows) > 4
    for name, *cells in rows:
        runs = results[name]
        seeds = str(len(runs))
        found = [mean(runs, "acc"), mean(runs, "nmi"), median_seconds(runs), seeds]
        assert cells == found, name


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("digits", "digits"),
        ("Fashion-MNIST, 10,000 images", "fashion_mnist_10000_24_epochs"),
        ("CIFAR-10 (JPEG), 10,000 images", "cifar10_jpeg_10000"),
        ("digits as vectors", "digits_1797_vectors"),
        ("digits, the smallest class a tenth", "digits_710_unbalanced"),
        ("Fashion-MNIST, the smallest class a tenth", "fashion_mnist_3850_unbalanced"),
    ],
)
def test_figures_of_several_data_are_those_of_the_results(label, name):
    shown = {
        row[0]: row[1:]
        for row in table_rows("user_guide/comparison.md", "Scores on the same data", 1)
    }
    results = measured(f"compare_{name}")
    umap = "UMAP, Gaussians, on pixels", "UMAP, HDBSCAN, on pixels"
    runs = [results[method] for method in ("MiCE", "MoCo, MiCE's start", *umap)]
    assert shown[label] == [acc_and_nmi(of) for of in runs]


@pytest.mark.parametrize(
    ("images", "name"),
    [
        ("1,797 digits, 8 x 8", "digits"),
        ("10,000 of Fashion-MNIST, 28 x 28", "fashion_mnist_10000_24_epochs"),
        ("all 70,000 of Fashion-MNIST", "fashion_mnist_70000"),
        ("10,000 photographs of CIFAR-10 (JPEG), 32 x 32", "cifar10_jpeg_10000"),
    ],
)
def test_times_of_training_are_those_of_the_results(images, name):
    rows = table_rows("user_guide/training.md", "How long")
    shown = {images: (time, acc) for time, images, _, acc in rows}
    runs = measured(f"compare_{name}")["MiCE"]
    seconds = statistics.mean(run["seconds"] for run in runs)
    time = f"{seconds / 60:.0f} min" if seconds > 99 else f"{seconds / 10:.0f}0 s"
    assert shown[images] == (time, mean(runs, "acc", 2))


def test_what_em_gains_is_that_of_the_results():
    text = words_of("user_guide/training.md")

    def lead(name):
        """By how much MiCE is ahead of its start, which has all of the time."""
        methods = "MiCE", "MoCo, MiCE's start"
        runs = [measured(name)[method] for method in methods]
        mice, start = (statistics.mean(run["acc"] for run in of) for of in runs)
        return mice - start

    level = "digits", "digits_710_unbalanced", "cifar10_jpeg_10000"
    level += "digits_1797_vectors", "fashion_mnist_10000_24_epochs"
    most = max(abs(lead(f"compare_{name}")) for name in level)
    assert f"the two are within {most:.3f}." in text
    assert f"MiCE is ahead by {lead('compare_fashion_mnist_70000'):.3f} (three" in text
    for words, name in {
        "behind by {:.3f} on Fashion": "compare_fashion_mnist_3850_unbalanced",
        "by {:.3f} on 60,000": "gpu_cifar10_jpeg",
    }.items():
        assert words.format(-lead(name)) in text
    steps = "none", "held", "batch, free"
    rows = list(table_rows("user_guide/training.md", "What EM gains"))
    for method, (_, *cells) in zip(steps, rows, strict=True):
        names = "digits_200", "fashion_mnist_24"
        runs = [measured(f"em_e_steps_{name}")[method] for name in names]
        assert cells == [acc_and_nmi(of) for of in runs], method


def test_e_steps_that_did_not_help_are_those_of_the_results():
    text = text_of("what_did_not_help.md")
    names = {"FM": "fashion_mnist_24", "digits": "digits_200"}
    results = {data: measured(f"em_e_steps_{name}") for data, name in names.items()}

    def others(kappa, kind):
        """Accuracies of the three E-steps of a kind, and of the default."""
        steps = "plain", "four views", "neighbours"
        for data, runs in results.items():
            accs = [
                mean(runs[f"{step}{end}{kappa}"], "acc")
                for end in kind
                for step in steps
            ]
            yield data, accs, mean(runs[f"held{kappa}"], "acc")

    hard = list(others("", [", hard"]))
    for i in range(3):
        figures = (f"{data} {accs[i]} instead of {held}" for data, accs, held in hard)
        assert ", hard: " + ", ".join(figures) in text
    for kappa, kind in (("", [""]), (", kappa 0.2", ["", ", hard"])):
        figures = (
            f"{data} {min(accs)} to {max(accs)} instead of {held}"
            for data, accs, held in others(kappa, kind)
        )
        assert ": " + ", ".join(figures) + "." in text


def test_figures_of_a_small_set_are_those_of_the_results():
    results = measured("small_set")
    reached = mean(results.pop("features, MiCE, 200 epochs"), "acc", 2)
    text = words_of("user_guide/training.md")
    assert f"default batches and 200 epochs reaches {reached}." in text
    rows = list(table_rows("user_guide/training.md", "Small sets"))
    for method, (_, *cells) in zip(results, rows, strict=True):
        runs = results[method]
        assert cells == [acc_and_worst(runs, 2), median_seconds(runs)], method


def test_figures_of_fine_tuning_are_those_of_the_results():
    results = measured("fine_tuning_cifar10_jpeg_10000")
    rows = list(table_rows("user_guide/fine_tuning.md", "What to expect"))
    methods = "frozen", "frozen, small", "fine-tuned"
    for method, (_, _, *cells) in zip(methods, rows, strict=True):
        runs = results[method]
        found = [mean(runs, "acc"), mean(runs, "nmi"), median_seconds(runs)]
        assert cells == found, method


def test_figures_of_neighbours_are_those_of_the_results():
    files = "digits_vectors", "fashion_mnist_vectors", "digits_images"
    rows = list(table_rows("user_guide/views.md", "Nearest neighbours"))
    for name, (_, *cells) in zip(files, rows, strict=True):
        results = measured(f"neighbors_{name}")
        methods = "k-means", "MiCE", "MiCE, n_neighbors=10"
        assert cells == [acc_and_nmi(results[method]) for method in methods], name


def test_figures_of_tables_are_those_of_the_results():
    methods = {
        "k-means": "k-means",
        "`GaussianMixture`": "pca-gaussians",
        "`ClassificationEM`": "partition",
        "`NeighborMixture`": "neighbor-mixture",
        "`MiCEClustering`": "mice",
        "`MiCEClustering(n_neighbors=10, augmentation=None)`": "mice-neighbors",
    }
    rows = list(table_rows("user_guide/partition.md", "For which vectors"))
    assert len(rows) == len(methods)
    for label, *cells in rows:
        results = (measured(f"features_{n}") for n in ("wine_178", "breast_cancer_569"))
        assert cells == [acc_and_worst(of[methods[label]]) for of in results], label


def test_figures_of_confidence_are_those_of_the_results():
    rows = list(table_rows("user_guide/results.md", "How sure the model is"))
    found = []
    for name in "digits_60", "fashion_mnist_24":
        results = measured(f"confidence_{name}")
        for method in "posterior", "agreement, 10 views":
            runs = results[method]
            found.append([mean(runs, "ece", 2), mean(runs, "auroc", 2)])
    assert [cells for _, *cells in rows] == found


def test_figures_of_outliers_are_those_of_the_results():
    scores = {
        "largest value of the posterior": "largest posterior",
        "`agreement`": "agreement",
        "`score_samples`": "score_samples",
        "`LocalOutlierFactor` of `transform`": "LocalOutlierFactor of transform",
    }
    results = measured("outliers")
    text = text_of("user_guide/outliers.md")
    for name, score in scores.items():
        found = []
        for fitted_to in ("clean", "others"):
            aucs = [run["auc"] for run in results[f"{score}, {fitted_to}"]]
            found.append(f"{statistics.mean(aucs):.2f} ({min(aucs):.2f})")
        row = re.search(rf"^\| {re.escape(name)} \| (.*) \|$", text, re.MULTILINE)
        assert row[1].replace("*", "").split(" | ") == found, name


def test_figures_of_features_are_those_of_the_results():
    methods = {
        "`NeighborMixture`": "neighbor-mixture",
        "`NeighborMixture(center=False)`": "neighbor-mixture-origin",
        "`ClassificationEM`": "partition",
        "`ClassificationEM(center=True)`": "partition-center",
        "`MiCEClustering(n_neighbors=10, augmentation=None)`": "mice-neighbors",
        "`KMeans`": "k-means",
        "UMAP, `GaussianMixture`": "umap-gaussians",
        "UMAP, HDBSCAN": "umap-hdbscan",
        "`PCA(64)`, `GaussianMixture`": "pca-gaussians",
        "`PCA(64)`, HDBSCAN": "pca-hdbscan",
        "TEMI": "temi",
        "TURTLE": "turtle",
    }
    rows = list(table_rows("user_guide/photographs.md", "What to expect"))
    assert len(rows) == len(methods)
    for label, *cells in rows:
        found = []
        for data in ("cifar10_jpeg", "fashion_mnist"):
            name = re.sub(", three seeds$", "", label)
            runs = measured(f"features_{data}_10000")[methods[name]]
            accuracy = acc_and_worst(runs) if len(runs) > 1 else mean(runs, "acc")
            found += [accuracy, mean(runs, "nmi")]
        assert cells == found, label


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_files_that_are_named_exist(page):
    for name in re.findall(
        r"`((?:sk_mice|tests|examples|docs)/[\w/.*]+)`", text_of(page)
    ):
        assert list(ROOT.glob(name)), name


def test_the_plan_shows_every_file():
    plan = text_of("architecture.md").split("## The files")[1].split("```")[1]
    shown = set(re.findall(r"\w+\.py", plan))
    there = {path.name for path in (ROOT / "sk_mice").rglob("*.py")}
    assert shown == there


def test_where_a_change_goes_is_there():
    rows = list(table_rows("architecture.md", "Where a change goes"))
    assert len(rows) > 5
    for change, places in rows:
        files = re.findall(r"`(sk_mice/[\w/.]+)`", places)
        code = "".join((ROOT / file).read_text(encoding="utf-8") for file in files)
        names = re.findall(r"`(\w+)`", places)
        assert [name for name in names if name not in code] == [], change


def test_every_public_name_is_in_the_api():
    listed = set(text_of("api.rst").split())
    listed |= set(re.findall(r"``(\w+)``", " ".join(listed)))
    names = [name for name in sk_mice.__all__ if callable(getattr(sk_mice, name))]
    modules = "ablations augmentation backbones datasets features inspection metrics"
    for module in [*modules.split(), "model_selection"]:
        names += getattr(sk_mice, module).__all__
    assert set(names) <= listed


def of_python(found):
    """Whether it is a function or, as found in a class, a class method."""
    return inspect.isfunction(found) or inspect.ismethod(found)


def public_objects():
    """Every public class, function and method, and its name."""
    public = [getattr(sk_mice, name) for name in sk_mice.__all__]
    for module in (sk_mice, *filter(inspect.ismodule, public)):
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isclass(found) or inspect.isfunction(found):
                yield pytest.param(found, id=f"{module.__name__}.{name}")
            if inspect.isclass(found):
                for method, function in inspect.getmembers(found, of_python):
                    ours = function.__module__.startswith("sk_mice")
                    if ours and not method.startswith("_"):
                        name_of_method = f"{module.__name__}.{name}.{method}"
                        yield pytest.param(function, id=name_of_method)


def test_classes_and_functions_have_an_example():
    # That of a class shows its methods.
    classes_and_functions = {
        name.id: name.values[0]
        for name in public_objects()
        if "." not in name.values[0].__qualname__
    }
    assert len(classes_and_functions) > 20
    for name, found in classes_and_functions.items():
        assert "\nExamples\n---" in inspect.getdoc(found), name


def documented_kinds(found):
    """What the docstring says that each parameter is."""
    text = inspect.getdoc(found)
    section = re.search(
        r"^Parameters\n-+\n(.*?)(?=^[A-Z][\w ]+\n---|\Z)", text, re.S | re.M
    )
    lines = re.findall(r"^(\S.*?) : (.*)$", section[1], re.M) if section else ()
    return {name: kind for names, kind in lines for name in names.split(", ")}


@pytest.mark.parametrize("found", list(public_objects()))
def test_documented_defaults_are_the_defaults(found):
    documented = documented_kinds(found)
    for name, parameter in inspect.signature(found).parameters.items():
        if documented.get(name, "Ignored") == "Ignored":
            continue
        said = re.search(r"default=(.+)$", documented[name])
        default = parameter.default
        if default is parameter.empty:
            assert not said, f"`{name}` has no default"
        else:
            assert said, f"the default of `{name}` must be in its docstring"
            assert ast.literal_eval(said[1]) == default, name


@pytest.mark.parametrize("found", list(public_objects()))
def test_type_checkers_are_not_misled(found):
    signature = inspect.signature(found)
    assert signature.return_annotation is not signature.empty
    # Where nothing is said, they take the type of a default for the only one.
    for name, kind in documented_kinds(found).items():
        parameter = signature.parameters.get(name)
        if parameter and parameter.annotation is parameter.empty and " or " in kind:
            assert parameter.default in (None, parameter.empty), name


def code_blocks():
    for page in PAGES:
        for number, block in enumerate(python_of(text_of(page))):
            yield pytest.param(block, id=f"{page.stem}-{number}")


def test_from_a_folder_to_a_table_and_a_page(tmp_path, monkeypatch):
    shades = np.random.default_rng(0).integers(0, 256, (30, 20, 24, 3), np.uint8)
    (tmp_path / "images").mkdir()
    for number, pixels in enumerate(shades):
        Image.fromarray(pixels).save(tmp_path / "images" / f"{number}.png")
    block, *_ = python_of(text_of("user_guide/own_images.md"))
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # empty clusters of noise
        exec(block.replace("n_clusters=10", "n_clusters=3, max_epochs=10"), {})
    rows = Path("clusters.csv").read_text().splitlines()
    assert rows[0] == "file,cluster,agreement"
    assert len(rows) == 31
    assert "29.png" in Path("report.html").read_text(encoding="utf-8")
    assert sk_mice.load("mice.safetensors").labels_.shape == (30,)


def test_crops_of_camera_traps_have_the_names_of_the_photographs(tmp_path, monkeypatch):
    (tmp_path / "photos" / "north").mkdir(parents=True)
    photo = np.zeros((60, 80, 3), np.uint8)
    photo[30:50, 70:] = 200  # an animal at the edge
    images = [{"file": "broken.jpg", "failure": "Failure image access"}]
    for name, category, sure in (("a", "1", 0.9), ("b", "1", 0.1), ("c", "2", 0.9)):
        box = {
            "category": category,
            "conf": sure,
            "bbox": [70 / 80, 0.5, 10 / 80, 1 / 3],
        }
        images.append({"file": f"north/{name}.png", "detections": [box]})
        Image.fromarray(photo).save(tmp_path / "photos" / "north" / f"{name}.png")
    kinds = {"1": "animal", "2": "person"}
    found = {"detection_categories": kinds, "images": images}
    (tmp_path / "boxes.json").write_text(json.dumps(found), encoding="utf-8")
    (script,) = scripts_of("photographs", "Camera traps")
    monkeypatch.chdir(tmp_path)
    exec(script, {})
    assert [path.name for path in Path("crops").rglob("*.*")] == ["a.png"]
    crop = np.asarray(Image.open("crops/north/a.png"))
    np.testing.assert_array_equal(crop, photo[30:50, 60:])


def test_small_copies_of_photographs_are_upright_under_the_same_names(
    tmp_path, monkeypatch, capsys
):
    heif = pytest.importorskip("pillow_heif", reason="the extra heif is missing")
    folder = tmp_path / "photos" / "2019 Überlingen"
    folder.mkdir(parents=True)
    photo = Image.new("RGB", (1200, 600), "red")
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    photo.save(folder / "a 1.JPG", exif=exif)
    heif.from_pillow(photo).save(folder / "b.HEIC")
    (folder / "c.jpg").write_bytes((folder / "a 1.JPG").read_bytes()[:900])
    (folder / "d.MOV").write_bytes(b"")
    (script,) = scripts_of("photographs", "Photographs of phones")
    for known in ("ID", "OPEN", "SAVE", "SAVE_ALL", "EXTENSION", "MIME"):
        monkeypatch.setattr(Image, known, copy(getattr(Image, known)))
    monkeypatch.chdir(tmp_path)
    exec(script, {})
    assert "c.jpg" in capsys.readouterr().out
    small = {}
    for path in Path("small").rglob("*.*"):
        with Image.open(path) as image:
            small[path.name] = image.format, image.size
    assert small == {"a 1.JPG": ("JPEG", (256, 512)), "b.HEIC": ("JPEG", (512, 256))}


@pytest.mark.parametrize("name", ["a.PNG", "2 kx/b.tif"])
def test_micrographs_are_cut_above_the_bar(tmp_path, monkeypatch, name):
    pixels = np.arange(100 * 80, dtype=np.uint16).reshape(100, 80)
    (tmp_path / "sem" / name).parent.mkdir(parents=True)
    Image.fromarray(pixels).save(tmp_path / "sem" / name)
    (script,) = scripts_of("own_images", "Micrographs")
    monkeypatch.chdir(tmp_path)
    exec(script, {})
    cut = np.asarray(Image.open(tmp_path / "cut" / name))
    np.testing.assert_array_equal(cut, pixels[:36])


def test_parts_with_a_defect_are_odd_and_have_their_exit_code(
    tmp_path, monkeypatch, capsys
):
    rng = np.random.default_rng(0)
    part = np.zeros((64, 64))
    part[16:48, 16:48] = 2000
    for folder, n in (("good", 40), ("fine", 1), ("monday", 3), ("empty", 0)):
        (tmp_path / folder).mkdir()
        for number in range(n):
            pixels = (part + rng.uniform(0, 400, part.shape)).astype(np.uint16)
            if (folder, number) == ("monday", 1):
                pixels[20:26] = 4000  # a scratch
            Image.fromarray(pixels).save(tmp_path / folder / f"{number:02}.tif")
    shutil.copy(tmp_path / "good" / "01.tif", tmp_path / "fine" / "00.tif")
    learn, check = scripts_of("outliers", "Defects of parts")
    monkeypatch.chdir(tmp_path)
    exec(learn, {})
    for folder, code in (("monday", 3), ("fine", 0)):
        monkeypatch.setattr(sys, "argv", ["check.py", folder])
        with pytest.raises(SystemExit) as ended:
            exec(check, {})
        assert ended.value.code == code
        header, oddest, *_ = capsys.readouterr().out.splitlines()
        assert header == "file,oddness,odd"
        assert (oddest.split(",")[0], oddest[-2:]) == {
            "monday": ("01.tif", ",1"),
            "fine": ("00.tif", ",0"),
        }[folder]
    monkeypatch.setattr(sys, "argv", ["check.py", "empty"])
    with pytest.raises(ValueError, match="must hold images"):
        exec(check, {})


class Pixels:
    """Stands for a fitted pipeline, and for its steps that make features of files."""

    def __getitem__(self, steps):
        return self

    def transform(self, files):
        return [np.asarray(Image.open(file)).ravel() / 255 for file in files]


def test_a_classifier_learns_from_all_images_of_the_table(tmp_path, monkeypatch):
    table = "file,cluster,name,agreement,original_cluster\n"
    for folder, values in (("photos", [0, 250, 10, 240]), ("new", [20, 230])):
        (tmp_path / folder).mkdir()
        for n, value in enumerate(values):
            image = Image.fromarray(np.full((4, 4), value, np.uint8))
            image.save(tmp_path / folder / f"{n}.png")
            if folder == "photos":
                name = "light" if value > 99 else "dark"
                table += f"{n}.png,0,{name},1,0\n"
    (tmp_path / "clusters.csv").write_text(table, encoding="utf-8")
    monkeypatch.setattr(sk_mice, "load", lambda path: Pixels())
    monkeypatch.chdir(tmp_path)
    script, _ = scripts_of("tutorial", "6. Learning from the moved images")
    exec(script, {})
    found = Path("new.csv").read_text(encoding="utf-8").splitlines()
    assert found == ["file,name", "0.png,dark", "1.png,light"]


@short_fits
def test_randaugment_of_the_guide_follows_random_state():
    block = next(b for b in python_of(text_of("user_guide/views.md")) if "v2" in b)
    names = {"MiCEClustering": MiCEClustering}
    exec(block, names)
    X = np.random.default_rng(0).integers(0, 256, (24, 16, 16, 3), np.uint8)
    mice = tiny(init="random", augmentation=names["randaugment"])
    with same_generators():
        elbos = [mice.set_params(random_state=s).fit(X).elbo_ for s in (0, 0, 1)]
    assert elbos[0] == elbos[1] != elbos[2]


@short_fits
@pytest.mark.parametrize("start", ["random", "two-stage"])
def test_the_gate_of_the_variant_in_the_guide_sees_plain_samples(start):
    names = {}
    exec(*scripts_of("paper", "A variant of your own"), names)
    seen = []

    class Watched(names["PlainGate"]):
        def make_views(self, batch):
            views = super().make_views(batch)
            plain = self.views.plain(batch.x)
            seen.append([bool((view == plain).all()) for view in views])
            return views

    variant = tiny(names["PlainGateMiCE"], init=start)
    variant._trainer_class = Watched
    variant.fit(np.random.default_rng(0).random((24, 16, 16)))
    stages = {"random": [], "two-stage": [[False, False]]}[start]
    assert seen == [*stages, *[[False, False, True]] * (2 - len(stages))]


@pytest.mark.parametrize("block", list(code_blocks()))
def test_code_gives_estimators_parameters_that_they_have(block):
    for node in ast.walk(ast.parse(block)):
        name = getattr(getattr(node, "func", None), "id", None)
        if name in sk_mice.__all__:
            # `**recipe` has no name; tests/test_recipes.py has the recipes.
            given = {word.arg: None for word in node.keywords if word.arg}
            estimator = getattr(sk_mice, name)
            inspect.signature(estimator).bind(*node.args, **given)
