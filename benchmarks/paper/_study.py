"""What the paper's tables and figures share: scales, data, settings and results.

Rows that stand for the paper's start from random weights, whatever the scale; our own
start has rows of its own.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import paper_sets

from sk_mice import SphericalKMeans, recipes
from sk_mice.ablations import PaperMiCE, PaperMoCo
from sk_mice.backbones import ResNet, SmallResNet

# The benchmarks' common module, from whatever folder a script is run.
sys.path.append(str(Path(__file__).parents[1]))

from _common import RESULTS, limit_threads, load, scores, some, spread, write_json

METRICS = ("nmi", "acc", "ari")
RESTARTS = 100  # of k-means on embeddings


@dataclass(frozen=True)
class Source:
    """A data set at one scale: how to load it, and the settings for it."""

    load: Callable  # of the folder or file that the user names
    mice: dict
    moco: dict
    by_default: bool = True  # or only if it is named


@dataclass(frozen=True)
class Scale:
    sources: dict
    seeds: tuple
    n: int | None = None  # images at most, a random choice
    points: int = 10_000  # of a picture


TINY = {"backbone": SmallResNet(4, blocks=(1, 1)), "embedding_dim": 16}
TINY |= {"max_epochs": 3, "batch_size": 32}
# A random start is EM from the first epoch on. With the recipes' networks, queues and
# epochs a fit would take ten minutes (digits) to three quarters of an hour
# (Fashion-MNIST) without bfloat16, with these two to three.
SHORT_DIGITS = {"backbone": SmallResNet(8), "batch_size": 128, "max_epochs": 100}
SHORT = {"backbone": SmallResNet(8, max_pool=True), "queue_size": 2048}
SHORT |= {"max_epochs": 20}
# Not measured: an estimate, from the number of operations, for 30 minutes of one H100.
# Max-pooling makes the network four times as fast. In the appendix it does not lower
# the accuracy (83.6 instead of 83.4).
ON_A_GPU = {"backbone": ResNet(34, max_pool=True), "max_epochs": 250}


def _common_set(name):
    # Whole: how many are kept is the scale's business.
    return lambda path: load(name, np.inf, path)


SCALES = {
    # A fit takes more than a day on the paper's hardware.
    "paper": Scale(
        {
            "cifar10": Source(
                paper_sets.load_cifar10, recipes.CIFAR10, recipes.CIFAR10_MOCO
            ),
            "cifar100-20": Source(
                paper_sets.load_cifar100_20,
                recipes.CIFAR100_20,
                recipes.CIFAR100_20_MOCO,
            ),
            "stl10": Source(paper_sets.load_stl10, recipes.STL10, recipes.STL10_MOCO),
            "imagenet-dog": Source(
                paper_sets.load_imagenet_dog,
                recipes.IMAGENET_DOG,
                recipes.IMAGENET_DOG_MOCO,
            ),
        },
        seeds=(0, 1, 2, 3, 4),
    ),
    # Half an hour a fit: name one row of a table and one seed.
    "gpu-30min": Scale(
        {
            "cifar10-jpeg": Source(
                _common_set("cifar10-jpeg"),
                ON_A_GPU | {"n_clusters": 10},
                ON_A_GPU,
            )
        },
        seeds=(0,),
    ),
    "cpu-minutes": Scale(
        {
            "digits": Source(
                _common_set("digits"),
                recipes.DIGITS_CPU | SHORT_DIGITS,
                recipes.DIGITS_CPU_MOCO | SHORT_DIGITS,
            ),
            "fashion-mnist": Source(
                _common_set("fashion-mnist"),
                recipes.FASHION_MNIST_CPU | SHORT,
                recipes.FASHION_MNIST_CPU_MOCO | SHORT,
            ),
            "cifar10-jpeg": Source(
                _common_set("cifar10-jpeg"),
                SHORT | {"n_clusters": 10},
                SHORT,
                by_default=False,  # its archive has to be given
            ),
        },
        seeds=(0, 1, 2, 3, 4),
        n=10_000,
        points=2000,
    ),
    # Shows that all of it runs, in seconds.
    "smoke": Scale(
        {"digits": Source(_common_set("digits"), TINY | {"n_clusters": 10}, TINY)},
        seeds=(0,),
        n=60,
        points=60,
    ),
}


@dataclass(frozen=True)
class Task:
    """A data set and what is fitted to it."""

    name: str
    X: np.ndarray
    y: np.ndarray
    settings: Source
    common: dict  # parameters for every fit

    def mice(self, seed, **changes) -> PaperMiCE:
        """As the paper has it, but for the changes."""
        given = {**self.settings.mice, "init": "random", **self.common, **changes}
        return PaperMiCE(**given, random_state=seed)

    def moco(self, seed, **changes) -> PaperMoCo:
        given = {**self.settings.moco, **self.common, **changes}
        return PaperMoCo(**given, random_state=seed)

    def kmeans(self, embeddings, seed):
        kmeans = SphericalKMeans(
            self.settings.mice["n_clusters"], n_init=RESTARTS, random_state=seed
        )
        return kmeans.fit_predict(embeddings)

    def two_stage(self, seed):
        """MoCo and its labels by spherical k-means on its embeddings: the baseline."""
        moco = self.moco(seed).fit(self.X)
        moco.labels_ = self.kmeans(moco.transform(self.X), seed)
        return moco

    def row(self, seed, model) -> dict:
        """The row of results of a model; seconds are those of its epochs."""
        row = {"seed": seed, **scores(self.y, model.labels_)}
        # Not those of the call: a checkpoint may have had some of the epochs, or all.
        seconds = sum(entry["seconds"] for entry in model.history_)
        row |= {"epochs": model.n_iter_, "seconds": seconds}
        if hasattr(model, "elbo_"):
            row["elbo"] = model.elbo_
        return row


@dataclass
class Study:
    """One run of a script: its options, its tasks, and its results as they come."""

    script: Path
    argv: list
    options: argparse.Namespace
    scale: Scale
    results: dict = field(default_factory=dict)

    def tasks(self):
        for name in self.options.data:
            source = self.scale.sources[name]
            X, y = source.load(self.options.path)
            X, y = some(X, y, self.options.n or self.scale.n or len(X))
            common = {"checkpoint": self.options.checkpoint}
            common["verbose"] = self.options.verbose
            yield Task(name, X, y, source, common)

    def keep(self, task, name, row) -> None:
        """Add a row; all so far are written, as what follows may take days."""
        self.results.setdefault(task.name, {}).setdefault(name, []).append(row)
        print(f"{task.name}  {name:36} {row}", flush=True)
        figures = {"scale": self.options.scale, "data": task.name, "n": len(task.X)}
        rows = self.results[task.name]
        write_json(self.path("json", task), self.script, self.argv, rows, **figures)

    def path(self, ending, task, *parts) -> Path:
        """A file of results: named after script, scale and data."""
        tag = [self.options.tag] if self.options.tag else []
        name = [self.script.stem, self.options.scale, task.name, *parts, *tag]
        return self.options.out / f"{'_'.join(name).replace('-', '_')}.{ending}"

    def print_table(self, task, paper=None) -> None:
        """Mean, standard deviation and best in percent, and the paper's figures."""
        print(f"\n{task.name}, scale {self.options.scale}")
        head = "".join(f"{name.upper():>8}{'sd':>6}{'best':>7}" for name in METRICS)
        print(f"{'':44}{head}{'seeds':>7}")
        for name, rows in self.results[task.name].items():
            line = f"{name:44}"
            for metric in METRICS:
                values = [100 * row[metric] for row in rows]
                mean = statistics.mean(values)
                line += f"{mean:8.1f}{spread(values):6.1f}{max(values):7.1f}"
            print(f"{line}{len(rows):7}")
        for name, values in (paper or {}).items():
            cells = (values.get(metric) for metric in METRICS)
            line = "".join(f"{'-' if v is None else v:>8}{'':13}" for v in cells)
            print(f"{'the paper: ' + name:44}{line}")
        print(flush=True)


def study(doc, script, argv, *, paper_sets=None) -> Study:
    """Read the options of a script.

    `paper_sets` are those that the paper's table or figure is about.
    """
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--scale", choices=SCALES, required=True)
    parser.add_argument("--data", nargs="+", help="of the scale's sets")
    parser.add_argument("--path", type=Path, help="of the data, where they need one")
    parser.add_argument("--n", type=int, help="images at most, a random choice")
    parser.add_argument("--seeds", type=int, nargs="+")
    parser.add_argument("--rows", nargs="*", default=[], help="parts of their names")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--checkpoint", type=Path, help="folder to go on from")
    parser.add_argument("--verbose", action="store_true", help="show progress bars")
    parser.add_argument("--out", type=Path, default=RESULTS / "paper")
    parser.add_argument("--tag", help="ends the files' names: keeps earlier ones")
    options = parser.parse_args(argv)
    scale = SCALES[options.scale]
    if options.data is None:
        options.data = [k for k, v in scale.sources.items() if v.by_default]
        if options.scale == "paper" and paper_sets:
            options.data = list(paper_sets)
    unknown = set(options.data) - scale.sources.keys()
    if unknown:
        known = ", ".join(scale.sources)
        parser.error(f"--scale {options.scale} has {known}; got {', '.join(unknown)}")
    if options.path is None:
        if "cifar10-jpeg" in options.data:
            parser.error("cifar10-jpeg needs --path, the archive")
        if options.scale == "paper":
            parser.error("--scale paper needs --path, the folder of the data")
    options.seeds = options.seeds or list(scale.seeds)
    limit_threads(options.threads)
    return Study(Path(script), argv, options, scale)


def chosen(rows: dict, parts) -> dict:
    """Those whose names have one of the parts in them; all without any."""
    return {k: v for k, v in rows.items() if any(part in k for part in parts or [""])}


def run_rows(this: Study, rows: dict, paper=None) -> None:
    """Fit every row for every seed; the rows of a seed follow one another.

    Parameters
    ----------
    this : Study
    rows : dict
        Names, and functions of a task and a seed that return a fitted model.
    paper : callable, optional
        The paper's figures for a task, or None.
    """
    rows = chosen(rows, this.options.rows)
    for task in this.tasks():
        for seed in this.options.seeds:
            for name, fit in rows.items():
                this.keep(task, name, task.row(seed, fit(task, seed)))
        this.print_table(task, paper and paper(task))
