"""Write the pages of results/, and the table in README.md, from the JSON files.

python benchmarks/results_page.py          # write
python benchmarks/results_page.py --check  # exit 1 if they are not up to date
"""

import argparse
import json
import re
import shlex
import statistics
import sys
from itertools import accumulate
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "paper"))

import literature

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
README = ROOT / "README.md"
MARKS = ("<!-- benchmarks/results_page.py -->", "<!-- end -->")

DATA = {
    "digits": "digits",
    "fashion-mnist": "Fashion-MNIST",
    "cifar10-jpeg": "CIFAR-10 (JPEG)",
}
METRICS = {"acc": "ACC", "nmi": "NMI", "ari": "ARI"}
NAMES = METRICS | {"neighbour": "nearest neighbour"}
MICE, BASELINE = "MiCE", "MoCo, k-means on embeddings"
START = "MoCo, MiCE's start"
LABELS = {BASELINE: f"{BASELINE} (the paper's baseline)"}
WHERE_FILES_GO = ("--json", "--out", "--checkpoint", "--folder")  # and a value

COMPARED = (
    "compare_digits",
    "compare_digits_710_unbalanced",
    "compare_digits_1797_vectors",
    "compare_fashion_mnist_10000_24_epochs",
    "compare_fashion_mnist_3850_unbalanced",
    "compare_cifar10_jpeg_10000",
)
ALL_OF_FASHION_MNIST = "compare_fashion_mnist_70000"
OTHER_K = ("compare_digits_1797_k0.5", "compare_digits_1797_k1.5")
NEIGHBORS = {
    "neighbors_digits_vectors": "digits, vectors",
    "neighbors_fashion_mnist_vectors": "Fashion-MNIST, 64 components",
    "neighbors_digits_images": "digits, images, 60 epochs",
}
VOTES = {
    "neighbor_votes_digits_1797_pixels": "digits, pixels",
    "neighbor_votes_digits_1797": "digits",
    "neighbor_votes_digits_710_unbalanced": "unequal digits",
    "neighbor_votes_fashion_mnist_10000_pixels": "Fashion-MNIST, pixels",
    "neighbor_votes_fashion_mnist_10000": "Fashion-MNIST, 10,000 images",
    "neighbor_votes_fashion_mnist_3850_unbalanced": "unequal Fashion-MNIST",
}
SMALL_MAPS = {
    "small_maps_fashion_mnist_24": "Fashion-MNIST",
    "small_maps_cifar10_jpeg_24": "CIFAR-10 (JPEG)",
}
STEPS = {
    "train_step_cpu_resnet-small_10": "`resnet-small`, 28 x 28 grey, B = 256",
    "train_step_cpu_resnet-small_10_float32": "`resnet-small`, 28 x 28 grey, B = 256",
    "train_step_cpu_resnet-small-maxpool_10_float32": (
        "`SmallResNet(max_pool=True)`, 28 x 28 grey, B = 256"
    ),
    "train_step_cpu_resnet18_10": "`resnet18`, 32 x 32 colour, B = 64",
    "train_step_cpu_resnet-small_1000": "`resnet-small`, K = 1,000, B = 256",
    "train_step_cpu_resnet-small_10_own_heads": 'as the first, `expert_heads="own"`',
    "train_step_cpu_resnet-small_10_student_view": "as the first, no view for the gate",
}
ON_A_GPU = "gpu_cifar10_jpeg"
GPU_STEPS = {
    "gpu_step_resnet18": "`resnet18`",
    "gpu_step_resnet18_own_heads": '`resnet18`, `expert_heads="own"`',
    "gpu_step_resnet34_maxpool": "`ResNet(34, max_pool=True)`",
}
WITHOUT_GRAPHS = "whole step, without graphs"
GPU_HOURS = {
    "gpu_hours_moco": "MoCo, spherical k-means",
    "gpu_hours_mice_random": "MiCE from random weights, as in the paper",
    "gpu_hours_mice": "MiCE by default",
}
GPU_SMALL_MAPS = {
    "gpu_small_maps_fashion_mnist": "Fashion-MNIST",
    "gpu_small_maps_cifar10_jpeg": "CIFAR-10 (JPEG)",
}
E_STEPS = {
    "em_e_steps_digits_200": "digits",
    "em_e_steps_fashion_mnist_24": "Fashion-MNIST",
}
HEADS = {
    "em_heads_digits_200": "digits",
    "em_heads_fashion_mnist_24": "Fashion-MNIST",
}
HEADS_OF_UNEQUAL = {
    "em_heads_digits_200_unbalanced": "unequal digits",
    "em_heads_fashion_mnist_24_unbalanced": "unequal Fashion-MNIST",
}
HEADS_AT_RANDOM = {
    "em_heads_digits_60_random": "digits, 60 epochs",
    "em_heads_digits_60_unbalanced_random": "unequal digits, 60 epochs",
    "em_heads_fashion_mnist_24_random": "Fashion-MNIST, 24 epochs",
    "em_heads_fashion_mnist_24_unbalanced_random": "unequal Fashion-MNIST, 24 epochs",
}
HOURS = {
    "hours_cifar10_jpeg_moco": "MoCo, spherical k-means",
    "hours_cifar10_jpeg_mice_random": "MiCE from random weights, as in the paper",
    "hours_cifar10_jpeg_mice": "MiCE by default",
}
CONFIDENCES = {
    "confidence_digits_60": "digits, 60 epochs",
    "confidence_fashion_mnist_24": "Fashion-MNIST, 24 epochs",
}
PREDICTIONS = {
    "predict_cpu": "`resnet-small`, 60,000 images",
    "predict_cpu_maxpool": "`SmallResNet(max_pool=True)`, 60,000 images",
}
PARTS = (  # of the paper: name, script, tag of its files
    ("Table 1", "table1", ""),
    ("Table 3", "table3", ""),
    ("Table 3", "table3", "_passes"),
    ("SCAN", "scan", ""),
)
PAPER_SETS = ("digits", "fashion_mnist", "cifar10_jpeg")
FEATURES = {
    "features_cifar10_jpeg_10000": "CIFAR-10 (JPEG), 10,000 images",
    "features_cifar10_jpeg_10000_efficientnet_lite2_192": "CIFAR-10 (JPEG), 10,000 "
    "images, by EfficientNet-lite2 at 192 pixels",
    "features_cifar10_jpeg_60000": "CIFAR-10 (JPEG), 60,000 images",
    "features_cifar10_jpeg_3935_unbalanced": "CIFAR-10 (JPEG), 3,935 images, the "
    "smallest class a tenth",
    "features_fashion_mnist_10000": "Fashion-MNIST, 10,000 images",
    "features_fashion_mnist_3850_unbalanced": "Fashion-MNIST, 3,850 images, the "
    "smallest class a tenth",
    "features_digits_1797": "Digits, 64 pixels",
    "features_wine_178": "Wine, a table of 13 columns",
    "features_breast_cancer_569": "Breast cancer, a table of 30 columns",
}
CLUSTERERS = {  # methods of benchmarks/features.py, in the order of their tables
    "neighbor-mixture": "`NeighborMixture`",
    "neighbor-mixture-origin": "`NeighborMixture(center=False)`",
    "partition-center": "`ClassificationEM(center=True)`",
    "partition": "`ClassificationEM`",
    "mice": "`MiCEClustering`",
    "mice-neighbors": "`MiCEClustering(n_neighbors=10, augmentation=None)`",
    "mice-without-moco": "the same without a first stage",
    "k-means": "k-means",
    "spherical-k-means": "`SphericalKMeans`",
    "pca-gaussians": "64 components, `GaussianMixture`",
    "pca-hdbscan": "64 components, HDBSCAN",
    "umap-gaussians": "UMAP, `GaussianMixture`",
    "umap-hdbscan": "UMAP, HDBSCAN",
    "temi": "TEMI",
    "turtle": "TURTLE",
}
FINE_TUNING = "fine_tuning_cifar10_jpeg_10000"
FINE_TUNED = {  # rows of benchmarks/fine_tuning.py
    "frozen": "`NeighborMixture` on frozen features, 160 pixels",
    "frozen, small": "the same, 96 pixels",
    "fine-tuned": '`MiCEClustering(freeze="all but last")`, 96 pixels',
    "its first stage": "the partition that its EM starts from",
}
SMALL_SET = "small_set"
OF_SMALL_SET = {  # rows of benchmarks/small_set.py
    "k-means": "k-means on pixels",
    "MiCE, 50 epochs": "`MiCEClustering(max_epochs=50)`",
    "MiCE, SMALL_SET_CPU": "`MiCEClustering(**recipes.SMALL_SET_CPU)`",
    "features, MiCE, PHOTOS_QUICK": (
        "features, `MiCEClustering(**recipes.PHOTOS_QUICK)`"
    ),
    "features, MiCE, 200 epochs": "the same, batches of 256, 200 epochs",
    "features, NeighborMixture": "features, `NeighborMixture`",
    "features, ClassificationEM": "features, `ClassificationEM`",
}
NOT_MEASURED = (
    "The paper's own data sets, networks and 1,000 epochs (`--scale paper`).",
    "All 70,000 images of Fashion-MNIST with MiCE's start alone, and with today's "
    "learning rate of EM.",
    "More than one seed of the comparison with SCAN, of the passes, of the choice of "
    "K, of fits of hours, and of most methods of features that take more than three "
    "minutes.",
    "More than three seeds of fits to Fashion-MNIST and CIFAR-10 (JPEG) in the paper's "
    "tables, and in the experiments with EM and its start.",
    "ClustPy on other images than the digits.",
)


# ------------------------------------------------------------------------ the files


def read(name):
    """A file of results by its name, in either folder."""
    for folder in (RESULTS, RESULTS / "paper"):
        path = folder / f"{name}.json"
        if path.is_file():
            return json.loads(path.read_text(encoding="utf-8"))
    raise FileNotFoundError(f"{RESULTS} must have {name}.json")


def is_there(name):
    return (RESULTS / f"{name}.json").is_file()


def labelled(names):
    """Files by their labels."""
    return {label: read(name) for name, label in names.items()}


def present(names):
    """Files by their labels, without those that are not there."""
    return labelled({name: names[name] for name in names if is_there(name)})


def commit(kept, method=None):
    return kept.get("commits", {}).get(method, kept["commit"])


def command(kept):
    """As it was run, without the options that say where files go."""
    words = iter(shlex.split(kept["command"]))
    shown = []
    for word in words:
        if word in WHERE_FILES_GO:
            next(words, None)
        elif word not in ("--verbose", "--resume"):
            shown.append(word)
    return f"`{shlex.join(shown)}`"


def notes(files):
    """What the files say of themselves, each sentence once, and of which if not all."""
    said = {}
    for label, kept in files.items():
        for sentence in filter(None, re.split(r"(?<=\.) ", kept.get("note", ""))):
            said.setdefault(sentence, []).append(label)
    grouped = {}
    for sentence, labels in said.items():
        where = "" if len(labels) == len(files) else f"{', '.join(labels)}: "
        grouped.setdefault(where, []).append(sentence)
    return " ".join(where + " ".join(texts) for where, texts in grouped.items())


def line(*parts):
    """What stands under a table."""
    return " ".join(filter(None, parts))


# -------------------------------------------------------------------------- figures


def over_seeds(rows, metric, worst=min):
    """Mean, standard deviation and worst, as a cell."""
    if not rows:
        return ""
    values = [row[metric] for row in rows]
    mean = f"{statistics.mean(values):.3f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {statistics.stdev(values):.3f} ({worst(values):.3f})"


def mean(rows, metric):
    return f"{statistics.mean(row[metric] for row in rows):.3f}"


def seconds(rows):
    return f"{statistics.median(row['seconds'] for row in rows):,.0f}"


def wins(rows, others, metric="acc"):
    """On how many seeds the first are above the others, and of how many."""
    ours = {row["seed"]: row[metric] for row in rows}
    theirs = {row["seed"]: row[metric] for row in others}
    both = ours.keys() & theirs.keys()
    return sum(ours[seed] > theirs[seed] for seed in both), len(both)


def table(*rows):
    """Markdown, from rows of cells, the head first."""
    head, *body = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join([head, "|" + " --- |" * len(rows[0]), *body])


def title(kept):
    parts = [DATA[kept["data"]][0].upper() + DATA[kept["data"]][1:]]
    parts.append(f"{kept['n']:,} images")
    if "--unbalanced" in kept["command"]:
        parts.append("the smallest class a tenth of the largest")
    if "--vectors" in kept["command"]:
        parts.append("as vectors")
    return f"**{', '.join(parts)}, {kept['results'][MICE][0]['epochs']} epochs**"


# --------------------------------------------------------------------------- tables


def compared(name):
    """A table of methods at equal time, and a line on it."""
    kept = read(name)
    results = kept["results"]
    rows = [
        (
            LABELS.get(method, method),
            *(over_seeds(runs, metric) for metric in METRICS),
            seconds(runs),
            len(runs),
            commit(kept, method),
        )
        for method, runs in results.items()
    ]
    head = (title(kept), *METRICS.values(), "s", "seeds", "commit")
    acc, n = wins(results[MICE], results[BASELINE])
    nmi, _ = wins(results[MICE], results[BASELINE], "nmi")
    text = f"MiCE is above the paper's baseline on {acc} of {n} seeds by ACC, {nmi} by "
    text += "NMI"
    if START in results:
        acc, _ = wins(results[MICE], results[START])
        text += f", and above its own start on {acc} by ACC"
    return table(head, *rows), line(f"{text}.", notes({"": kept}), command(kept))


def by_set(name, files, *text):
    """A row for each file, with the mean ACC and NMI of each method."""
    kept = list(files.values())
    methods = [m for m in kept[0]["results"] if all(m in k["results"] for k in kept)]
    rows = []
    for label, file in files.items():
        runs = [file["results"][method] for method in methods]
        cells = [f"{mean(rows_, 'acc')}, {mean(rows_, 'nmi')}" for rows_ in runs]
        rows.append((label, *cells, seconds(runs[0]), len(runs[0]), commit(file)))
    shown = table((f"**{name}**", *methods, "s", "seeds", "commit"), *rows)
    return shown, line(*text, notes(files), ", ".join(map(command, kept)))


def other_k():
    files = {f"K = {kept['n_clusters']}": kept for kept in map(read, OTHER_K)}
    text = "ACC and NMI. There are 10 classes, so ACC is at most 0.5 with K = 5."
    return by_set("Digits, 200 epochs, another K", files, text)


def side_by_side(name, files, *text, more=()):
    """Cells of several files in the columns of one table, and a line on them."""
    metrics = ("acc", "nmi", *more)
    head = [f"**{name}**"]
    head += [f"{NAMES[m]}, {label}" for label in files for m in metrics]
    rows = []
    for method in dict.fromkeys(m for kept in files.values() for m in kept["results"]):
        runs = [kept["results"].get(method, []) for kept in files.values()]
        there = [rows_ for rows_ in runs if rows_]
        commits = [
            commit(kept, method) for kept in files.values() if method in kept["results"]
        ]
        rows.append(
            (
                {"none": "no EM: the partition it starts from"}.get(method, method),
                *(over_seeds(rows_, metric) for rows_ in runs for metric in metrics),
                ", ".join(map(seconds, there)),
                ", ".join(str(len(rows_)) for rows_ in there),
                ", ".join(dict.fromkeys(commits)),
            )
        )
    commands = ", ".join(map(command, files.values()))
    shown = table([*head, "s", "seeds", "commit"], *rows)
    return shown, line(*text, notes(files), commands)


def neighbors():
    text = "MiCE without neighbours has noise for augmentation where X holds vectors."
    return side_by_side("Positives from neighbours", labelled(NEIGHBORS), text)


def hours():
    """How far each fit has come after hours of a core, and a figure, if measured."""
    files = present(HOURS)
    if not files:
        return []
    rows = []
    for label, kept in files.items():
        course, end = kept["results"]["course"], kept["results"]["end"]
        spent = list(accumulate(row["seconds"] for row in course))
        cells = []
        for hour in (1, 2, 3):
            there = [
                row for row, s in zip(course, spent, strict=True) if s <= 3600 * hour
            ]
            cells.append(f"{there[-1]['acc']:.3f}, {there[-1]['nmi']:.3f}")
        at_end = three(end)
        if "start of EM" in kept["results"]:
            at_end += f" (start of EM: {three(kept['results']['start of EM'])})"
        cells += [at_end, len(course), f"{spent[-1] / 3600:.1f}", commit(kept)]
        rows.append((label, *cells))
    first = next(iter(files.values()))
    head = (f"**{DATA[first['data']]}, {first['n']:,} images**",)
    head += ("ACC, NMI after 1 h", "after 2 h", "after 3 h")
    head += ("all images at the end, with ARI", "epochs", "hours", "commit")
    text = (
        "Each fit has one core, one seed, and a number of epochs that was set "
        "beforehand to take about three hours. After each epoch, 10,000 of the images "
        "are clustered; the columns of hours have the last of these scores. Hours are "
        "the processor's, without what the scores take. On a machine without bfloat16. "
        "`python benchmarks/hours_figure.py` draws the figure."
    )
    image = "![Accuracy and NMI by hours of a core](hours.png)"
    commands = ", ".join(map(command, files.values()))
    return ["## Hours of a core", image, table(head, *rows), line(text, commands)]


def hours_on_a_gpu():
    """The fits of `hours` once more, by a GPU and with another seed."""
    files = present(GPU_HOURS)
    if not files:
        return []
    rows = [
        (label, three(kept["results"]["end"]), commit(kept))
        for label, kept in files.items()
    ]
    head = ("**Another seed of the hours of a core**", "ACC, NMI and ARI", "commit")
    text = (
        "As many epochs of all 60,000 images, also by `resnet-small`, in bfloat16. The "
        "fits ran at once and took about three minutes."
    )
    commands = ", ".join(map(command, files.values()))
    return table(head, *rows), line(text, notes(files), commands)


def three(found):
    return ", ".join(f"{found[metric]:.3f}" for metric in METRICS)


def steps(files, text):
    """A table of steps of training from files with labels, and a line on it."""
    rows = []
    for name, label in files.items():
        kept = read(name)
        result = kept["results"]
        paper = result["throughput_to_paper"]
        moco = result.get("ratio_to_moco")
        if WITHOUT_GRAPHS in result["seconds"]:
            share = result["seconds"]["whole step"] / result["seconds"][WITHOUT_GRAPHS]
            label += f", {share:.2f} times the step without graphs in the same run"
        rows.append(
            (
                f"{label}, {result['precision']}",
                milliseconds(result["seconds"]["whole step"]),
                f"{result['ratio_to_networks']:.2f}",
                f"{moco:.2f}" if moco else "",
                f"{paper:.2f}" if paper else "",
                f"{result['images_per_second']:,.0f}",
                commit(kept),
            )
        )
    head = ("**A training step**", "time", "time to that of its bare networks")
    head += ("time to a step of MoCo", "throughput to the paper's pseudocode")
    head += ("images a second", "commit")
    if not any(row[4] for row in rows):  # the pseudocode ran beside none of them
        head, *rows = (row[:4] + row[5:] for row in (head, *rows))
    return table(head, *rows), line(text, command(read(next(iter(files)))))


def milliseconds(seconds):
    return f"{1000 * seconds:,.{seconds < 0.05:d}f} ms"


def on_cpu():
    text = "One whole step, 2 threads, V = 4,096, K = 10 where no other is named."
    return steps(STEPS, text)


def in_a_file():
    """How a fit and predictions go if X is in a file, to X in memory."""
    kept = read("memory_map")
    result = kept["results"]
    rows = [
        (
            f"`{what}`",
            f"{result['seconds']['memory'][what]:.1f} s",
            f"{result['seconds']['file'][what]:.1f} s",
            f"{result['throughput_to_memory'][what]:.2f}",
            commit(kept),
        )
        for what in ("fit", "predict")
    ]
    head = ("**X in a file**", "in memory", "in the file", "throughput to memory")
    text = f"{result['bytes'] / 1e9:.1f} GB of float images, in the page cache, one "
    text += "thread. The network is a single layer, so that reading X takes most of "
    text += "the time."
    return table((*head, "commit"), *rows), line(text, command(kept))


def several_processes():
    """What two processes bring, and what to expect of more GPUs."""
    kept = read("distributed")
    result = kept["results"]
    rows = [
        (
            f"efficiency of {name}",
            *(f"{result['efficiency'][by][key]:.2f}" for by in ("clock", "cores")),
            commit(kept),
        )
        for name, key in (
            ("a whole step", "step"),
            ("its bare networks", "networks"),
            ("the step, to that of the networks", "step to networks"),
        )
    ]
    expected = ", ".join(
        f"{row['efficiency']:.2f} for {row['gpus']} ({row['fixed']} fixed)"
        for row in result["expected"]
        if row["gpus"] > 1
    )
    sent = ", ".join(
        f"{n / 1e6:.2f} MB of {name}" for name, n in result["bytes"].items()
    )
    text = "The time of one process, over twice that of two. "
    text += f"A step sends {sent}. By the "
    text += "speeds of GPUs and links that the command states, none of them measured, "
    text += f"the efficiency of GPUs would be {expected}."
    head = ("**Two processes on 2 cores**", "by the clock", "by seconds of the cores")
    return table((*head, "commit"), *rows), line(text, command(kept))


def on_a_gpu():
    """What benchmarks/gpu.py has measured, if it has."""
    if not is_there("gpu_environment"):
        return []
    kept = read("gpu_environment")
    found, versions = kept["results"], kept["versions"]
    said = [kept["machine"]]
    if "memory_gb" in found:
        said.append(f"{found['memory_gb']:.0f} GB of GPU memory")
    said.append(f"CUDA {found['cuda']}, torch {versions['torch']}")
    about = ""
    if is_there("gpu_tests"):
        of_tests = read("gpu_tests")
        counts = of_tests["results"]
        outcomes = [f"{counts[o]} {o}" for o in ("passed", "failed") if counts[o]]
        said.append(f"tests in {counts['seconds']:.0f} s: {', '.join(outcomes)}")
        about = notes({"": of_tests})
    parts = [line(f"{'; '.join(said)}.", about, command(kept))]
    files = {name: label for name, label in GPU_STEPS.items() if is_there(name)}
    if files:
        text = (
            "One whole step, 32 x 32 colour, B = 256, V = 16,384, K = 10, by CUDA "
            "graphs, which the bare networks do without."
        )
        parts += steps(files, text)
    parts += hours_on_a_gpu()
    if is_there(ON_A_GPU):
        parts += compared(ON_A_GPU)
    return parts


def predictions():
    rows = []
    for name, label in PREDICTIONS.items():
        kept = read(name)
        result = kept["results"]
        rows.append(
            (
                label,
                f"{result['seconds']['predict']:.1f} s",
                f"{result['throughput_to_networks']:.2f}",
                f"{result['seconds']['predict_proba']:.1f} s",
                f"{result['predict_proba_to_networks']:.2f}",
                commit(kept),
            )
        )
    share = "throughput to its bare networks"
    head = ("**Prediction**", "`predict`", share, "`predict_proba`", share, "commit")
    files = {name: read(name) for name in PREDICTIONS}
    text = "K = 10, V = 4,096, 2 threads."
    return table(head, *rows), line(text, notes(files), command(files["predict_cpu"]))


def confidences():
    """How well the posterior and the agreement tell right clusters from wrong ones."""
    files = labelled(CONFIDENCES)
    rows = []
    for label, kept in files.items():
        for name, runs in kept["results"].items():
            cells = (over_seeds(runs, key) for key in ("auroc", "acc"))
            error = over_seeds(runs, "ece", worst=max)
            rows.append((f"{label}, {name}", error, *cells, len(runs), commit(kept)))
    head = ("**Confidence**", "calibration error", "AUROC", "ACC", "seeds", "commit")
    text = (
        "The expected calibration error is the mean gap between a confidence and the "
        "share of samples that are right, in ten bins of equal width; its worst is the "
        "largest. The AUROC, the area under the ROC curve, is the probability that a "
        "right sample has a larger confidence than a wrong one."
    )
    return table(head, *rows), line(text, ", ".join(map(command, files.values())))


def outliers():
    """How well each score finds them, by what the model was fitted to."""
    kept = read("outliers")
    cells = {}
    for name, runs in kept["results"].items():
        score, _, fitted_to = name.rpartition(", ")
        if fitted_to not in ("clean", "others"):  # no model: pixels of the others
            score, fitted_to = f"`LocalOutlierFactor` of {name}", "others"
        cells.setdefault(score, {})[fitted_to] = over_seeds(runs, "auc")
    rows = [
        (score, auc.get("clean", ""), auc["others"]) for score, auc in cells.items()
    ]
    fits = kept["results"]["agreement, clean"]
    head = ("**Inverted digits among 898**", "model of clean images", "of these")
    text = "The area under the ROC curve. A model is fitted to 899 clean digits, or to "
    text += f"those that are scored, in {seconds(fits)} s. Seeds: {len(fits)}; commit "
    text += f"{commit(kept)}."
    return table(head, *rows), line(text, command(kept))


def spherical_kmeans():
    kept = read("spherical_kmeans")
    cases = {}
    for result in kept["results"]:
        rows, features = result["shape"]
        case = f"{result['data']}, {rows:,} x {features:,}"
        ratio = f"{result['ratio_to_kmeans']:.2f}"
        if result["ratio_to_faiss"] is not None:
            ratio += f" (faiss {result['ratio_to_faiss']:.2f})"
        cases.setdefault(case, {})[result["n_clusters"]] = ratio
    many = sorted({k for case in cases.values() for k in case})
    rows = [
        (case, *(ratios.get(k, "") for k in many)) for case, ratios in cases.items()
    ]
    head = ("**SphericalKMeans**", *(f"K = {k:,}" for k in many))
    text = "Its time to that of scikit-learn's KMeans (and of faiss), same centres and "
    text += f"iterations, 2 threads; commit {commit(kept)}."
    return table(head, *rows), line(text, command(kept))


# ------------------------------------------------------------------------ the paper


def of_paper(script, data, tag=""):
    name = f"{script}_cpu_minutes_{data}{tag}"
    try:
        return read(name)
    except FileNotFoundError:
        return {"results": {}}


def paper_rows():
    """Rows of Tables 1 and 3 and of the comparison with SCAN: runs by data set."""
    rows = {}
    for part, script, tag in PARTS:
        for data in PAPER_SETS:
            kept = of_paper(script, data, tag)
            for method, runs in kept["results"].items():
                row = rows.setdefault((part, method), {})
                row[data] = (runs, commit(kept, method))
    return rows


def papers_figure(part, method):
    """ACC that the paper prints: CIFAR-10, of Table 3 CIFAR-100's 20 classes."""
    if part == "Table 1":
        name = {"MoCo, spherical k-means": "MoCo(mean)", MICE: "MiCE(mean)"}.get(method)
        return literature.TABLE_1["cifar10"][name]["acc"] if name else None
    return {"Table 3": literature.TABLE_3, "SCAN": literature.SCAN}[part].get(method)


def paper_tables():
    rows = paper_rows()
    shown = []
    for (part, method), sets in rows.items():
        if (part, method) == ("SCAN", MICE):
            continue  # the same fits as above
        there = list(sets.values())
        accs = [over_seeds(sets[d][0] if d in sets else [], "acc") for d in PAPER_SETS]
        nmis = ", ".join(mean(runs, "nmi") for runs, _ in there)
        above = ""
        if part == "Table 3" and method != MICE:
            full = rows[part, MICE]
            counts = [wins(full[d][0], sets[d][0]) for d in sets]
            above = ", ".join(f"{won} of {n}" for won, n in counts)
        figure = papers_figure(part, method)
        shown.append(
            (
                f"{part}: {method}",
                *accs,
                nmis,
                above,
                "" if figure is None else f"{figure / 100:.3f}",
                ", ".join(seconds(runs) for runs, _ in there),
                ", ".join(str(len(runs)) for runs, _ in there),
                ", ".join(name for _, name in there),
            )
        )
    head = ["**Tables 1, 3 and SCAN**"]
    head += [f"ACC, {DATA[d.replace('_', '-')]}" for d in PAPER_SETS]
    head += ["NMI", "seeds with full MiCE above", "the paper's ACC", "s", "seeds"]
    files = {
        f"{part}, {DATA[d.replace('_', '-')]}": of_paper(script, d)
        for part, script, tag in PARTS
        for d in PAPER_SETS
        if not tag
    }
    text = "Cells of several sets are in their order. The paper's ACC: CIFAR-10, of "
    text += "Table 3 CIFAR-100 with 20 classes."
    one = command(files["Table 1, digits"])
    more = f"{one}, and likewise table3.py and scan.py"
    return table([*head, "commit"], *shown), line(text, notes(files), more)


def verdict(pairs):
    """What the seeds of all sets say of a claim that the first are above the others."""
    counts = [wins(ours, others) for ours, others in pairs]
    won, n = sum(won for won, _ in counts), sum(n for _, n in counts)
    word = "yes" if won == n else "no" if 2 * won <= n else "not clearly"
    return word, f"above on {won} of {n} seeds"


def claims():
    """What the paper says, and whether it holds at this scale."""
    rows = paper_rows()
    full = rows["Table 3", MICE]

    def over(ours, *others):
        pairs = [(ours[d][0], sets[d][0]) for sets in others for d in sets]
        return verdict(pairs)

    baseline = rows["Table 1", "MoCo, spherical k-means"]
    yield (
        "Table 1: MiCE from a random start is above the baseline",
        *over(rows["Table 1", MICE], baseline),
    )
    yield (
        "the same with our start, which is not the paper's",
        *over(rows["Table 1", "MiCE, two-stage start (ours)"], baseline),
    )
    for parts in (("(4)",), ("(a)",), ("(b)",), ("(1)", "(2)", "(3)"), ("(c)", "(d)")):
        chosen = [method for method in literature.TABLE_3 if method.startswith(parts)]
        yield (
            f"Table 3: MiCE is above {', '.join(chosen)}",
            *over(full, *(rows["Table 3", method] for method in chosen)),
        )
    second = rows["SCAN", "MiCE pre-training + MiCE"]
    yield "SCAN: a second fit gains", *over(second, rows["SCAN", MICE])
    yield figure_of_embeddings()
    yield figure_of_posterior()
    yield prototypes()
    yield training_time()
    yield passes(rows)
    yield choice_of_k()


def links(script):
    names = {"digits": "digits", "fashion_mnist": "Fashion-MNIST"}
    return ", ".join(
        f"[{label}](paper/{script}_cpu_minutes_{data}_seed0.png)"
        for data, label in names.items()
    )


def figure_of_embeddings():
    gains = []
    for data in PAPER_SETS[:2]:
        rows = of_paper("embeddings", data)["results"][MICE]
        gains.append(", ".join(f"{row['acc']:.3f}" for row in rows))
    rising = all(cell == ", ".join(sorted(cell.split(", "))) for cell in gains)
    return (
        f"Clusters separate during training: figures of {links('embeddings')}",
        "yes" if rising else "no",
        f"ACC after the first, middle and last epoch: {'; '.join(gains)}",
    )


def figure_of_posterior():
    cells = []
    for data in PAPER_SETS[:2]:
        (row,) = of_paper("posterior", data)["results"][MICE]
        cells.append((row["first"][0], row["last"][0]))
    text = "; ".join(f"{first:.0%} to {final:.0%}" for first, final in cells)
    return (
        f"The posterior becomes sharp: figures of {links('posterior')}",
        "yes" if all(first < final for first, final in cells) else "no",
        f"values below 0.1, first to last epoch (at most 90%): {text}",
    )


def prototypes():
    largest = [
        max(row["largest_cosine"] for row in kept["results"][MICE])
        for kept in (of_paper("prototypes", data) for data in PAPER_SETS[:2])
    ]
    met = max(largest) < literature.LARGEST_COSINE
    return (
        "Gating and expert prototypes differ: largest cosine below "
        f"{literature.LARGEST_COSINE}",
        "yes" if met else "not on all sets",
        ", ".join(f"{value:.2f}" for value in largest),
    )


def training_time():
    ratios = []
    for data in PAPER_SETS[:2]:
        results = of_paper("training_time", data)["results"]
        (mice,), (moco,) = results[MICE], results["MoCo"]
        ratios.append(mice["epoch_seconds"] / moco["epoch_seconds"])
    paper = literature.HOURS["MiCE"] / literature.HOURS["MoCo"]
    near = all(abs(ratio / paper - 1) < 0.2 for ratio in ratios)
    return (
        f"An epoch of MiCE costs {paper:.1f} of MoCo",
        "yes" if near else "no",
        ", ".join(f"{ratio:.1f}" for ratio in ratios),
    )


def passes(rows):
    """How much longer a fit takes with up to 20 passes over the prototypes."""
    method = next(method for part, method in rows if "passes" in method)
    full, more = rows["Table 3", MICE], rows["Table 3", method]
    ratios = [
        statistics.median(row["seconds"] for row in more[data][0])
        / statistics.median(row["seconds"] for row in full[data][0])
        for data in more
    ]
    paper = literature.HOURS["passes"] / literature.HOURS["MiCE"]
    return (
        f"More passes over the prototypes cost {paper:.0f} times the time",
        "yes" if all(abs(ratio / paper - 1) < 0.2 for ratio in ratios) else "no",
        ", ".join(f"{ratio:.1f}" for ratio in ratios),
    )


def choice_of_k():
    kept = read("choose_k_digits")
    chosen = {"elbo": [], "stability": []}
    classes = sorted({row["classes"] for row in kept["results"]})
    for n in classes:
        rows = [row for row in kept["results"] if row["classes"] == n]
        for figure, found in chosen.items():
            found.append(max(rows, key=lambda row: row[figure])["K"])
    elbo, stability = (", ".join(map(str, found)) for found in chosen.values())
    return (
        "Not a claim, but future work there: the ELBO chooses K (digits of "
        f"{', '.join(map(str, classes))} classes)",
        "yes" if chosen["elbo"] == classes else "no",
        f"it chooses {elbo}; stability chooses {stability} (commit {commit(kept)})",
    )


# ----------------------------------------------------------------------- whole pages

OTHER_PAGE = (  # begins the second paragraph of each page but the first
    "Written by `python benchmarks/results_page.py`, as [the other results](README.md),"
    " with cells of the same kind: mean ± standard deviation (worst) over the seeds"
)


def page():
    parts = [
        "# Results",
        "Accuracy and time of MiCE, MoCo and other clusterings. [The features of "
        "pretrained networks](features.md), [experiments with EM and its start](em.md)"
        ", [confidence and outliers](confidence.md), [a GPU](gpu.md) and [the paper's "
        "tables and figures](paper.md) have pages of their own.",
        "A cell is the mean ± standard deviation (worst) over the seeds. ACC is the "
        "accuracy under the best matching of clusters with classes, NMI the normalised "
        "mutual information, ARI the adjusted Rand index; labels are used for scores "
        "alone. Seconds (s) are the median of a fit on one thread of a virtual 2-core "
        "AMD EPYC with bfloat16, unless the line below a table says otherwise. Other "
        "processes ran at the same time, so compare seconds only within a table.",
        "`python benchmarks/results_page.py` writes these pages from the JSON files of "
        "this folder. `python benchmarks/reproduce.py` runs every row again, but for "
        "those of a GPU (`benchmarks/gpu.py`). The last column is the commit that was "
        "measured, or, up to c420039, the one that added the row. Older rows had older "
        "code and partly other defaults.",
        "## Clusterings at equal time",
        "MiCE has the default parameters of its commit, apart from `max_epochs`, which "
        "the titles give. Up to commit c420039 each expert had a head of its own. MoCo "
        "trains for as many epochs as fit into the same time, and its features are "
        "clustered in several ways. One of them is how MiCE starts EM, "
        "`ClassificationEM`. UMAP has 20 neighbours and K components, and a mixture of "
        "Gaussians or HDBSCAN on top, whose noise is one more cluster. Where the "
        "smallest class is a tenth of the largest, the classes have the first of their "
        "images, and the sizes fall in equal ratios. CIFAR-10 (JPEG) is CIFAR-10 saved "
        "as JPEG files, in a tar archive of `train/CLASS/NUMBER.jpg` "
        "and `test/CLASS/NUMBER.jpg`. It is not distributed; another archive gives "
        "slightly other figures.",
    ]
    for name in COMPARED:
        parts += compared(name)
    parts += other_k()
    parts += [
        "## All images of Fashion-MNIST",
        "Not quite at equal time: MoCo was measured at another commit than MiCE.",
        *compared(ALL_OF_FASHION_MNIST),
    ]
    parts += hours()
    parts += ["## Speed", *on_cpu(), *predictions(), *in_a_file()]
    parts += [*several_processes(), *spherical_kmeans()]
    parts += ["## Not measured", "\n".join(f"- {said}" for said in NOT_MEASURED)]
    return parts


def em_page():
    of_em = "Seconds are those of EM."
    return [
        "# Experiments with EM and its start",
        f"{OTHER_PAGE}, or the mean ACC and NMI. [Training](../../docs/user_guide/"
        "training.md#what-em-gains) has the conclusions.",
        *by_set(
            "Votes of neighbours, and a choice by them",
            labelled(VOTES),
            "ACC and NMI of partitions of MoCo's features, or of pixels. In a vote, a "
            "row takes the label of most of its ten mutual neighbours. The choices are "
            "among the starts of five seeds and two partitions of k-means, by what the "
            "labels of mutual neighbours tell of each other. Seconds are those of all "
            "columns. Votes help on the digits and harm a little on Fashion-MNIST, so "
            "the start of MiCE has none.",
        ),
        *side_by_side(
            "A first stage with small maps",
            labelled(SMALL_MAPS),
            "The partition that EM would start from, and how often an image's nearest "
            "neighbour has its class, after the same time of MoCo. Small maps: "
            "`SmallResNet(max_pool=True)`. "
            "Fashion-MNIST on a machine without bfloat16.",
            more=("neighbour",),
        ),
        *side_by_side(
            "The same in a longer first stage",
            labelled(GPU_SMALL_MAPS),
            "After 72 epochs of MoCo, or as many as take the same time on a CPU; on an "
            "NVIDIA H200, with several fits at once.",
            more=("neighbour",),
        ),
        *side_by_side(
            "Heads of experts, EM after one first stage",
            labelled(HEADS),
            f"{of_em} On a machine without bfloat16.",
        ),
        *side_by_side(
            "The same on classes of unlike sizes", labelled(HEADS_OF_UNEQUAL), of_em
        ),
        *side_by_side(
            "The same from random weights",
            labelled(HEADS_AT_RANDOM),
            "All epochs are EM's. On a machine without bfloat16.",
        ),
        *side_by_side(
            "E-steps, EM after one first stage",
            labelled(E_STEPS),
            f'{of_em} "held" is the default: q stays at the partition, on the digits '
            'for the first half of each round. "batch, '
            "free\" is the paper's: q is the posterior of one random view. The "
            "others take q once an epoch from the whole model and all plain images, "
            "from four random views, or from the plain images and ten mutual "
            "neighbours; if they are hard, the largest q becomes 1. kappa is 1 where "
            "no other is named.",
        ),
    ]


def confidence_page():
    return [
        "# Confidence and outliers",
        f"{OTHER_PAGE}.",
        *confidences(),
        *outliers(),
    ]


def gpu_page():
    return [
        "# On a GPU",
        f"{OTHER_PAGE}. The defaults train a ResNet-18.",
        *on_a_gpu(),
    ]


def paper_page():
    return [
        "# The paper's tables and figures",
        f"{OTHER_PAGE}.",
        "Everything here is at `cpu-minutes`: 1,797 digits in 1,500 steps, 10,000 "
        "images of the other sets in 800, small networks, random starts. The paper "
        "has CIFAR-10 and a ResNet-34 in 235,000 steps. The second table says "
        "which of the paper's claims hold here: for accuracies yes if a claim holds on "
        "every seed of every set, no if it fails on at least half of them, and not "
        "clearly in between; the other rows name their rule.",
        *paper_tables(),
        table(("**In the paper**", "holds here", ""), *claims()),
    ]


def of_features(name, head, labels):
    """A table of clusterers of the same images or vectors, and the command."""
    kept = read(name)
    rows = []
    for method, label in labels.items():
        runs = kept["results"].get(method)
        if runs:
            cells = (over_seeds(runs, metric) for metric in METRICS)
            took = statistics.median(row["seconds"] for row in runs)
            where = (f"{took:.{took < 10:d}f}", len(runs), commit(kept, method))
            rows.append((label, *cells, *where))
    head = (f"**{head}**", *METRICS.values(), "s", "seeds", "commit")
    return table(head, *rows), line(notes({"": kept}), command(kept))


def features_page():
    parts = [
        "# Clusterings of features",
        f"{OTHER_PAGE}. Each method has its own stopping rule. Seconds (s) are those "
        "of one core for a fit, without the features.",
        "Images are clustered by 1,280 features of EfficientNet-lite0, trained on "
        "ImageNet, at 160 pixels (`PretrainedFeatures`), digits by their pixels, "
        "tables by their standardised columns. Components are principal components, "
        "at most as many as features. TEMI (BMVC 2023) and TURTLE (ICML 2024) are "
        "written anew in `benchmarks/peers.py`, with their authors' settings for "
        "features of CIFAR-10. They take longer than most others, and ran with one "
        "seed on images. They also ran on the digits, whose pixels are not what they "
        "were made for. HDBSCAN of components has no seed. "
        '"Without a first stage" '
        "starts EM at a partition of an untrained network's features, which is no "
        "option of the estimator.",
    ]
    for name, head in FEATURES.items():
        parts += of_features(name, head, CLUSTERERS)
    parts += neighbors()
    parts += [
        "## Fine-tuning",
        "EfficientNet-lite0 sees views of the images, and MiCE trains its last block, "
        "in 6 epochs. Seconds include the features.",
        *of_features(FINE_TUNING, "CIFAR-10 (JPEG), 10,000 images", FINE_TUNED),
        "## A small set",
        "The first 501 test images of horses, ships and trucks in CIFAR-10 (JPEG). "
        "Seconds include the features.",
        *of_features(SMALL_SET, "1,503 photographs", OF_SMALL_SET),
    ]
    return parts


IN_README = {
    "compare_digits": "digits, 1,797 of 8 x 8",
    "compare_digits_710_unbalanced": "710 digits, the smallest class a tenth",
    "compare_fashion_mnist_10000_24_epochs": "Fashion-MNIST, 10,000 images",
    "compare_fashion_mnist_3850_unbalanced": "3,850 of it, the smallest class a tenth",
    "compare_cifar10_jpeg_10000": "CIFAR-10 (JPEG), 10,000 images",
}


def readme_table():
    """Five rows for the README: MiCE, what its start alone reaches, the baseline."""
    rows = []
    for name, label in IN_README.items():
        results = read(name)["results"]
        cells = []
        for method in (MICE, START, BASELINE):
            worst = min(row["acc"] for row in results[method])
            cells.append(f"{mean(results[method], 'acc')} ({worst:.3f})")
        rows.append((label, *cells, len(results[MICE]), seconds(results[MICE])))
    starts = ("MiCE", "its start alone", "MoCo + k-means")
    return table(("data", *starts, "seeds", "seconds of a fit"), *rows)


def readme():
    before, rest = README.read_text(encoding="utf-8").split(MARKS[0])
    _, after = rest.split(MARKS[1])
    return f"{before}{MARKS[0]}\n{readme_table()}\n{MARKS[1]}{after}"


PAGES = {
    "README.md": page,
    "features.md": features_page,
    "em.md": em_page,
    "confidence.md": confidence_page,
    "gpu.md": gpu_page,
    "paper.md": paper_page,
}


def pages():
    """The text of each page, by the name of its file."""
    return {name: "\n\n".join(parts()) + "\n" for name, parts in PAGES.items()}


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args(argv).check
    texts = {RESULTS / name: text for name, text in pages().items()}
    for path, text in (texts | {README: readme()}).items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if check:
            sys.exit(f"{path} must hold the JSON files' figures: run {__file__}")
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
