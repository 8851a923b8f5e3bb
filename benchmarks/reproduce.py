"""Run every row of results/README.md again, one command a row.

Says first what it will run and for how long. What was run with the present code is not
run again, so a run that was cut off goes on with the row that it was at; hours.py and
the scripts of benchmarks/paper go on with the epoch. A row's files are replaced when
its command has ended well. Afterwards benchmarks/results_page.py writes the page.
Without ClustPy and faiss their figures are left out.

    python benchmarks/reproduce.py --list
    python benchmarks/reproduce.py --hours 8 --cifar10-jpeg cifar10-jpeg.tar.xz
    python benchmarks/reproduce.py --only compare_digits 'train_step_*'
"""

import argparse
import hashlib
import json
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
WORK = ROOT / "benchmarks" / ".reproduce"  # git ignores it
ARCHIVE = "cifar10-jpeg.tar.xz"  # stands in commands for the one that is given


@dataclass(frozen=True)
class Row:
    """A file of results, the command that writes it, and how long that takes."""

    file: str  # in results/
    command: str  # without "python"
    minutes: float  # on 2 cores, from the seconds that were recorded

    @property
    def name(self):
        return Path(self.file).stem

    @property
    def goes_on(self):
        """Whether a run that was cut off goes on with its epoch and its file."""
        return self.file.startswith("hours_")


def row(script, name, options, minutes):
    """The row of a file that has the name of the script in its own."""
    command = f"benchmarks/{script}.py {options}".strip()
    return Row(f"{script}_{name}.json", command, minutes)


compare = partial(row, "compare")
em = partial(row, "em")
votes = partial(row, "neighbor_votes")
neighbors = partial(row, "neighbors")
features = partial(row, "features")
step = partial(row, "train_step")


def hours(fit, epochs, seed):
    command = f"benchmarks/hours.py {CIFAR} --fit {fit} --epochs {epochs}"
    name = f"hours_cifar10_jpeg_{fit.replace('-', '_')}"
    if seed:
        command, name = f"{command} --seeds {seed}", f"{name}_seed{seed}"
    return Row(f"{name}.json", command, 210)


def paper(script, data, minutes, options="", tag=""):
    file = f"paper/{script}_cpu_minutes_{data.replace('-', '_')}{tag}.json"
    command = f"benchmarks/paper/{script}.py --scale cpu-minutes --data {data}"
    return Row(file, f"{command} {options}".strip(), minutes)


THREE = "--seeds 0 1 2"
DIGITS, FASHION = "--data digits", "--data fashion-mnist"
FASHION_24 = f"{FASHION} --epochs 24"
WITH_UMAP = "--cases moco umap k-means"
CIFAR = f"--path {ARCHIVE}"
MAX_POOL = "--backbone resnet-small --max-pool"
TWO_HEADS = '--variants "own heads" "shared head"'
PASSES = "--rows passes --tag passes"
CLUSTERERS = (  # those that take minutes come last
    "--methods k-means spherical-k-means pca-gaussians pca-hdbscan umap-gaussians "
    "umap-hdbscan partition partition-center neighbor-mixture neighbor-mixture-origin "
    "mice-neighbors mice-without-moco"
)
OF_UNEQUAL = (
    "--methods k-means pca-gaussians umap-gaussians partition partition-center "
    "neighbor-mixture neighbor-mixture-origin"
)
TABLE = (
    "--methods k-means pca-gaussians partition partition-center neighbor-mixture mice "
    "mice-neighbors"
)
ROWS = (
    compare("digits", DIGITS, 36),
    compare("digits_710_unbalanced", f"{DIGITS} --unbalanced {WITH_UMAP}", 10),
    compare("digits_1797_vectors", f"{DIGITS} --vectors {WITH_UMAP}", 5),
    compare("fashion_mnist_10000_24_epochs", f"{FASHION_24} {WITH_UMAP}", 47),
    compare(
        "fashion_mnist_70000",
        f"{FASHION} --n 70000 --epochs 16 {THREE} --cases moco",
        120,
    ),
    compare(
        "fashion_mnist_3850_unbalanced", f"{FASHION_24} --unbalanced {WITH_UMAP}", 17
    ),
    compare(
        "cifar10_jpeg_10000",
        f"--data cifar10-jpeg --epochs 24 {THREE} {WITH_UMAP} {CIFAR}",
        36,
    ),
    compare("digits_1797_k0.5", f"{DIGITS} --k-factor 0.5 --cases moco", 20),
    compare("digits_1797_k1.5", f"{DIGITS} --k-factor 1.5 --cases moco", 20),
    votes("digits_1797_pixels", f"{DIGITS} --rows pixels", 1),
    votes("digits_1797", DIGITS, 10),
    votes("digits_710_unbalanced", f"{DIGITS} --unbalanced", 5),
    votes("fashion_mnist_10000", FASHION_24, 12),
    votes("fashion_mnist_3850_unbalanced", f"{FASHION_24} --unbalanced", 5),
    votes("fashion_mnist_10000_pixels", f"{FASHION_24} --rows pixels", 2),
    neighbors("digits_vectors", "--epochs 60", 2),
    neighbors("fashion_mnist_vectors", f"{FASHION} --epochs 20 --n-neighbors 5 10", 15),
    neighbors("digits_images", "--images --epochs 60", 17),
    row("choose_k", "digits", THREE, 130),
    step("cpu_resnet-small_10", "", 1),
    step("cpu_resnet-small_10_float32", "--precision float32 --repeats 5", 1),
    step(
        "cpu_resnet-small-maxpool_10_float32",
        f"{MAX_POOL} --precision float32 --repeats 5",
        1,
    ),
    step(
        "cpu_resnet18_10",
        "--backbone resnet18 --image-size 32 --channels 3 --batch-size 64 --repeats 7",
        1,
    ),
    step("cpu_resnet-small_1000", "--n-clusters 1000 --repeats 5", 1),
    step("cpu_resnet-small_10_own_heads", "--heads own --repeats 5", 2),
    step("cpu_resnet-small_10_student_view", "--gate-view student --repeats 5", 1),
    em("heads_digits_200", DIGITS, 60),
    em("heads_fashion_mnist_24", FASHION_24, 100),
    em("heads_digits_200_unbalanced", f"{DIGITS} --unbalanced {TWO_HEADS}", 8),
    em(
        "heads_fashion_mnist_24_unbalanced",
        f"{FASHION} --unbalanced --epochs 24 {TWO_HEADS}",
        14,
    ),
    em(
        "heads_digits_60_random", f"{DIGITS} --start random --epochs 60 {TWO_HEADS}", 30
    ),
    em(
        "heads_digits_60_unbalanced_random",
        f"{DIGITS} --unbalanced --start random --epochs 60 {TWO_HEADS}",
        10,
    ),
    em(
        "heads_fashion_mnist_24_random",
        f"{FASHION} --start random --epochs 24 {TWO_HEADS}",
        110,
    ),
    em(
        "heads_fashion_mnist_24_unbalanced_random",
        f"{FASHION} --unbalanced --start random --epochs 24 {TWO_HEADS}",
        70,
    ),
    row("small_maps", "fashion_mnist_24", f"{FASHION_24} {THREE}", 40),
    row(
        "small_maps",
        "cifar10_jpeg_24",
        f"--data cifar10-jpeg --epochs 24 {THREE} {CIFAR}",
        45,
    ),
    em("e_steps_digits_200", f"{DIGITS} --what e-steps --heads shared", 60),
    em(
        "e_steps_fashion_mnist_24",
        f"{FASHION_24} {THREE} --what e-steps --heads shared",
        90,
    ),
    features(
        "cifar10_jpeg_10000",
        f"--data cifar10-jpeg {CIFAR} --slow-seeds 0 1 2 {CLUSTERERS} temi turtle",
        240,
    ),
    features(
        "cifar10_jpeg_10000_efficientnet_lite2_192",
        f"--data cifar10-jpeg {CIFAR} --network efficientnet-lite2 --image-size 192 "
        "--methods k-means partition-center neighbor-mixture",
        20,
    ),
    row("fine_tuning", "cifar10_jpeg_10000", f"{CIFAR} {THREE}", 20),
    Row("small_set.json", f"benchmarks/small_set.py {CIFAR}", 20),
    features(
        "cifar10_jpeg_60000",
        f"--data cifar10-jpeg --n 60000 {CIFAR} --slow-seeds 0 1 2 --methods "
        "k-means spherical-k-means pca-gaussians pca-hdbscan umap-gaussians "
        "umap-hdbscan partition partition-center neighbor-mixture mice-neighbors temi "
        "turtle",
        590,
    ),
    features(
        "cifar10_jpeg_3935_unbalanced",
        f"--data cifar10-jpeg {CIFAR} --unbalanced {OF_UNEQUAL}",
        5,
    ),
    features(
        "fashion_mnist_10000",
        f"{FASHION} --slow-seeds 0 1 2 {CLUSTERERS} turtle temi",
        170,
    ),
    features(
        "fashion_mnist_3850_unbalanced", f"{FASHION} --unbalanced {OF_UNEQUAL}", 8
    ),
    features("digits_1797", f"{DIGITS} {CLUSTERERS} turtle mice temi", 10),
    features("wine_178", f"--data wine {TABLE}", 1),
    features("breast_cancer_569", f"--data breast-cancer {TABLE}", 2),
    Row("outliers.json", "benchmarks/outliers.py", 3),
    row("confidence", "digits_60", f"{DIGITS} --epochs 60", 5),
    row("confidence", "fashion_mnist_24", FASHION_24, 20),
    *(hours("moco", 72, seed) for seed in (0, 1, 2)),
    *(hours("mice-random", 36, seed) for seed in (0, 1, 2)),
    *(hours("mice", 66, seed) for seed in (0, 1, 2)),
    Row("photographs.json", "benchmarks/photographs.py", 3),
    row("predict", "cpu", "", 10),
    row("predict", "cpu_maxpool", MAX_POOL, 5),
    Row("memory_map.json", "benchmarks/memory_map.py", 10),
    Row("busy.json", "benchmarks/busy.py", 3),
    Row("distributed.json", "benchmarks/distributed.py", 2),
    Row("spherical_kmeans.json", "benchmarks/spherical_kmeans.py", 5),
    Row("same_fits.json", "benchmarks/same_fits.py", 30),
    # These share fits: whichever comes first has the time of them.
    paper("table1", "digits", 21),
    paper("table1", "fashion-mnist", 24),
    paper("table1", "cifar10-jpeg", 29, CIFAR),
    paper("table3", "digits", 87, "--rows MiCE '('"),
    paper("table3", "fashion-mnist", 114, "--rows MiCE '('"),
    paper("table3", "cifar10-jpeg", 24, f"{THREE} --rows MiCE '(4)' '(a)' {CIFAR}"),
    paper("table3", "digits", 90, f"{THREE} {PASSES}", tag="_passes"),
    paper("table3", "fashion-mnist", 81, f"{THREE} {PASSES}", tag="_passes"),
    paper("scan", "digits", 40, THREE),
    paper("scan", "fashion-mnist", 60, THREE),
    paper("embeddings", "digits", 5, "--seeds 0"),
    paper("embeddings", "fashion-mnist", 7, "--seeds 0"),
    paper("posterior", "digits", 3, "--seeds 0"),
    paper("posterior", "fashion-mnist", 4, "--seeds 0"),
    paper("prototypes", "digits", 7, THREE),
    paper("prototypes", "fashion-mnist", 10, THREE),
    paper("training_time", "digits", 21, "--seeds 0"),
    paper("training_time", "fashion-mnist", 29, "--seeds 0"),
)


def code():
    """A hash of all that results depend on."""
    digest = hashlib.sha256()
    for folder in (ROOT / "sk_mice", ROOT / "benchmarks"):
        for path in sorted(folder.rglob("*.py")):
            of_pages = path.parent.name == "pages" or path.name == "results_page.py"
            if not of_pages and path.name != Path(__file__).name:
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


class Progress:
    """Which rows have been run with the present code: a small file in a folder."""

    def __init__(self, folder):
        self.folder = folder
        self.file = folder / "done.json"
        self.code = code()
        kept = json.loads(self.file.read_text()) if self.file.is_file() else {}
        self.done = kept.get("rows", {}) if kept.get("code") == self.code else {}

    def has(self, row):
        return self.done.get(row.name) == row.command

    def add(self, row):
        self.done[row.name] = row.command
        kept = json.dumps({"code": self.code, "rows": self.done}, indent=1)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file.write_text(f"{kept}\n")

    def forget(self, rows):
        for row in rows:
            self.done.pop(row.name, None)

    def output(self, row):
        return (self.checkpoints if row.goes_on else self.folder) / row.name

    @property
    def checkpoints(self):
        # Fits of other code must not go on in these.
        return self.folder / f"checkpoints-{self.code}"


def run(row, progress, results, archive=None):
    """None, or why the row failed. Its files are moved to the results at the end."""
    output = progress.output(row)
    if not row.goes_on:
        shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True, exist_ok=True)
    words = shlex.split(row.command)
    if archive is not None:
        words = [str(archive) if word == ARCHIVE else word for word in words]
    if row.file.startswith("paper/"):
        words += ["--checkpoint", str(progress.checkpoints), "--out", str(output)]
    else:
        words += ["--json", str(output / Path(row.file).name)]
    if row.goes_on:
        words += ["--folder", str(output / "checkpoints")]
    status = subprocess.run([sys.executable, *words], cwd=ROOT).returncode
    if status != 0:
        return f"exit code {status}"
    if not (output / Path(row.file).name).is_file():
        return f"it wrote no {Path(row.file).name}"
    for path in filter(Path.is_file, output.iterdir()):
        target = (results / row.file).parent / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, target)
    shutil.rmtree(output)
    progress.add(row)
    return None


def chosen(rows, patterns, parser):
    for pattern in patterns or []:
        if not any(fnmatch(row.name, pattern) for row in rows):
            parser.error(f"--only must name rows, as --list shows them; got {pattern}")
    return [
        row
        for row in rows
        if not patterns or any(fnmatch(row.name, pattern) for pattern in patterns)
    ]


def planned(rows, progress, minutes, archive):
    """For each row None if it will be run, or why not."""
    left = minutes
    plan = {}
    for row in rows:
        if progress.has(row):
            plan[row] = "done"
        elif ARCHIVE in row.command and archive is None:
            plan[row] = "needs --cifar10-jpeg"
        elif row.minutes > left:
            plan[row] = "no time"
        else:
            plan[row] = None
            left -= row.minutes
    return plan


def duration(minutes):
    return f"{minutes / 60:.1f} h" if minutes >= 90 else f"{minutes:.0f} min"


def show(plan):
    for row, reason in plan.items():
        print(f"{row.name:46} {duration(row.minutes):>8}  {reason or 'to run'}")
        print(f"    python {row.command}")
    to_run = [row for row, reason in plan.items() if reason is None]
    total = duration(sum(row.minutes for row in to_run))
    print(f"{len(to_run)} of {len(plan)} rows to run: about {total} on 2 cores")


def main(argv=None, rows=ROWS, results=RESULTS, work=WORK):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="* stands for any")
    parser.add_argument("--hours", type=float, help="begin no row that would take more")
    parser.add_argument("--list", action="store_true", help="run nothing")
    parser.add_argument("--again", action="store_true", help="rows that are done, too")
    parser.add_argument("--cifar10-jpeg", type=Path, help="the archive of that set")
    options = parser.parse_args(argv)
    progress = Progress(Path(work).resolve())
    rows = chosen(rows, options.only, parser)
    if options.again:
        progress.forget(rows)
    limit = float("inf") if options.hours is None else 60 * options.hours
    archive = options.cifar10_jpeg and options.cifar10_jpeg.resolve()
    plan = planned(rows, progress, limit, archive)
    show(plan)
    if options.list:
        return
    start, failed, left = time.monotonic(), {}, []
    for row in (row for row, reason in plan.items() if reason is None):
        # Those before may have taken longer than expected.
        if (time.monotonic() - start) / 60 + row.minutes > limit:
            left.append(row.name)
            continue
        print(f"\n{row.name}: about {duration(row.minutes)}", flush=True)
        reason = run(row, progress, Path(results), archive)
        if reason:
            failed[row.name] = reason
    if left:
        print(f"\nno time was left for {', '.join(left)}")
    print("\n`python benchmarks/results_page.py` writes the page")
    if failed:
        lines = [f"  {name}: {reason}" for name, reason in failed.items()]
        sys.exit("\n".join(["failed:", *lines]))


if __name__ == "__main__":
    main()
