"""What the benchmarks share: data, scores, equal time, tables and files of results."""

import argparse
import datetime
import json
import platform
import shlex
import statistics
import sys
import tarfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from _commit import commit
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.preprocessing import normalize
from skorch.callbacks import Callback
from threadpoolctl import threadpool_limits

from sk_mice import MiCEClustering, _show_versions, backbones, datasets
from sk_mice.metrics import clustering_accuracy_score

RESULTS = Path(__file__).parent / "results"
N_CLASSES = 10  # of every data set here
SMALLEST_CLASS = 0.1  # beside the largest, with --unbalanced
VERSIONS = (
    *("torch", "scikit-learn", "skorch", "numpy", "scipy"),
    *("umap-learn", "clustpy", "faiss-cpu"),
)


# ---------------------------------------------------------------------------- options


def common_parser(doc, *, data=("digits", "fashion-mnist")):
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--data", choices=data, default="digits")
    parser.add_argument(
        "--n", type=int, default=10_000, help="images at most, a random choice"
    )
    parser.add_argument("--epochs", type=int, default=200, help="of MiCE")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where to write the results")
    if "cifar10-jpeg" in data:
        parser.add_argument("--path", type=Path, help="of the data, where it needs one")
    return parser


def add_backbone(parser) -> None:
    """Options of the network, which `backbone` reads."""
    names = list(backbones.NAMED)
    parser.add_argument("--backbone", choices=names, default="resnet-small")
    parser.add_argument("--width", type=int, help="of mlp and resnet-small")
    parser.add_argument(
        "--max-pool", action="store_true", help="of residual networks, in the stem"
    )


def backbone(options) -> backbones.Backbone:
    """The network that the options describe."""
    described = clone(backbones.NAMED[options.backbone])
    if options.width is not None:
        described.set_params(width=options.width)
    if options.max_pool:
        described.set_params(max_pool=True)
    return described


def limit_threads(n: int) -> None:
    """Of torch, and of the libraries under NumPy and scikit-learn."""
    torch.set_num_threads(n)
    threadpool_limits(n)


# ------------------------------------------------------------------------------- data


def load(name, n, path=None):
    """Images and their classes."""
    if name == "digits":
        X, y, _ = datasets.load_digits()
    elif name == "fashion-mnist":
        X, y, _ = datasets.load_fashion_mnist(path)
    else:
        X, y = load_cifar10_jpeg(path)
    return some(X, y, n)


def some(X, y, n):
    """At most n of the images, a random choice, with their classes."""
    if n >= len(X):
        return X, y
    chosen = np.random.RandomState(0).permutation(len(X))[:n]
    return X[chosen], y[chosen]


def load_cifar10_jpeg(path):
    """CIFAR-10 from a tar archive of files `train/CLASS/NUMBER.jpg` and `test/...`.

    The images of such an archive have been compressed anew: results on them compare
    with one another, and not with those on CIFAR-10's own pixels.
    """
    with TemporaryDirectory() as folder, tarfile.open(path) as archive:
        # Which the first releases of Python 3.11 do not have.
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(folder, **safely)
        parts = [
            datasets.load_image_folder(Path(folder, part), 32)[:2]
            for part in ("train", "test")
        ]
    X, y = map(np.concatenate, zip(*parts, strict=True))
    return X, y


def unbalanced(X, y):
    """Leave of the classes, cut to one size, shares from 1 to 0.1 in equal ratios."""
    n_classes = y.max() + 1
    largest = np.bincount(y).min()
    shares = SMALLEST_CLASS ** (np.arange(n_classes) / (n_classes - 1))
    kept = np.concatenate(
        [
            np.flatnonzero(y == label)[: round(share * largest)]
            for label, share in enumerate(shares)
        ]
    )
    kept.sort()
    return X[kept], y[kept]


def scores(y, labels) -> dict:
    return {
        "acc": clustering_accuracy_score(y, labels),
        "nmi": normalized_mutual_info_score(y, labels),
        "ari": adjusted_rand_score(y, labels),
    }


def peak_memory(device=None) -> int:
    """Largest memory so far, in bytes: of a CUDA device, or resident of the process."""
    if device is not None and device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource  # not on Windows

    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def whitened(features, n_clusters: int) -> np.ndarray:
    """Principal components of the rows' directions, whitened."""
    rows = PCA(0.99, whiten=True).fit_transform(normalize(features))
    return rows[:, : 3 * n_clusters]


# ------------------------------------------------------------------------- equal time


def seconds_of():
    """What counts seconds: of a core, if one thread works, else of a clock.

    Those of a core leave out what other processes of the machine do meanwhile.
    """
    alone = torch.get_num_threads() == 1 and not torch.cuda.is_available()
    return time.process_time if alone else time.perf_counter


def now() -> float:
    return seconds_of()()


def timed(function, *args):
    """What the function returns, and the seconds that it takes."""
    now = seconds_of()  # the first import of UMAP changes the threads of torch
    start = now()
    value = function(*args)
    return value, now() - start


class EpochSeconds(Callback):
    """Seconds of each epoch of a fit, in `seconds`."""

    def __init__(self):
        self.seconds = []

    def on_epoch_begin(self, net, **kwargs):
        self.begun = now()

    def on_epoch_end(self, net, **kwargs):
        self.seconds.append(now() - self.begun)


@dataclass
class Budget:
    """What a fit of MiCE spent: every other method gets as much.

    An epoch of MoCo is cheaper than one of EM. Its seconds are measured in the fit
    itself, as the machine is then as busy.
    """

    epochs: int  # of MiCE
    mice: MiCEClustering | None = field(default=None, init=False)  # as it was fitted
    seconds: float = field(default=0.0, init=False)
    moco_seconds: float = field(default=1.0, init=False)  # of an epoch

    def fit(self, mice: MiCEClustering, X) -> None:
        epochs = EpochSeconds()
        mice.set_params(max_epochs=self.epochs, callbacks=[epochs])
        self.mice, self.seconds = timed(mice.fit, X)
        rows = list(zip(epochs.seconds, mice.history_, strict=True))
        of_moco = [seconds for seconds, row in rows if row["stage"] == "moco"]
        self.moco_seconds = statistics.median(of_moco or epochs.seconds)


# ---------------------------------------------------------------------------- results


def spread(values) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def print_table(results: dict, title: str) -> None:
    """Mean, standard deviation and worst over seeds; median seconds of a fit."""
    names = ("acc", "nmi", "ari")
    print(f"\n{title}")
    head = "".join(f"{name.upper():>9}{'sd':>7}{'worst':>8}" for name in names)
    print(f"{'':38}{head}{'seconds':>9}{'seeds':>7}")
    for method, rows in results.items():
        if rows:
            line = f"{method:38}"
            for name in names:
                values = [row[name] for row in rows]
                mean = statistics.mean(values)
                line += f"{mean:9.4f}{spread(values):7.4f}{min(values):8.4f}"
            seconds = statistics.median(row["seconds"] for row in rows)
            print(f"{line}{seconds:9.1f}{len(rows):7}")
    print(flush=True)


def results_path(options, *parts) -> Path:
    """The file that the options name, or one with these parts, if any, in its name."""
    name = "_".join(str(part) for part in parts if part).replace("-", "_")
    return options.json or RESULTS / f"{name}.json"


def read_json(path: Path) -> dict:
    """What `write_json` has written to a file; empty if there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def report(path: Path | None, script: str, argv, results: dict) -> None:
    """Print results, and write them to a file if one is named."""
    for name, value in results.items():
        print(f"{name:24s} {value}")
    if path:
        write_json(path, script, argv, results)


def write_json(path: Path, script: str, argv, results: dict, **more) -> None:
    """Results with all that is needed to read and to repeat them.

    `argv` are the arguments of the script; those of the process if None.
    """
    argv = sys.argv[1:] if argv is None else argv
    # Files that are named lie elsewhere on another machine.
    words = [Path(word).name if Path(word).is_absolute() else word for word in argv]
    script = Path(script).resolve().relative_to(Path(__file__).resolve().parents[1])
    kept = {
        "command": shlex.join(["python", script.as_posix(), *words]),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "commit": commit(),
        "machine": machine(),
        "versions": versions(),
        **more,
        "results": results,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def machine() -> str:
    parts = [processor(), f"{torch.get_num_threads()} threads"]
    if torch.cuda.is_available():
        parts.append(torch.cuda.get_device_name())
    return ", ".join(parts)


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    models = {line.split(":")[1].strip() for line in lines if "model name" in line}
    return ", ".join(sorted(models)) or platform.processor() or platform.machine()


def versions() -> dict:
    found = _show_versions.versions("python", "sk-mice", *VERSIONS)
    # What is not there was not used either.
    return {name: number for name, number in found.items() if number is not None}
