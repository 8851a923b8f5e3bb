"""MiCE and what it is compared with, at equal training time.

MiCE is fitted first, and each other method gets the epochs that fit into the seconds
it took, its own k-means among them; k-means on pixels needs none. MoCo is trained once
for several partitions: k-means on the embeddings, which is the paper's two-stage
baseline, on the backbone's features, on these whitened, the one that MiCE itself starts
from, and UMAP with a mixture of Gaussians. UMAP also runs on the pixels, there with
HDBSCAN, too, and ClustPy's methods, with its own network, each if it is installed.
With --resume, seeds that the file of results holds are not run again. Labels are used
for scores alone.

    python benchmarks/compare.py --data digits
    python benchmarks/compare.py --data fashion-mnist --epochs 50 --seeds 0 1 2
    python benchmarks/compare.py --data digits --unbalanced --k-factor 1.5
    python benchmarks/compare.py --data digits --vectors --cases moco umap
    python benchmarks/compare.py --data cifar10-jpeg --path cifar10-jpeg.tar.xz
"""

import importlib.util
import io
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

import numpy as np
from _common import (
    N_CLASSES,
    Budget,
    common_parser,
    limit_threads,
    load,
    print_table,
    read_json,
    results_path,
    scores,
    timed,
    unbalanced,
    whitened,
    write_json,
)
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.mixture import GaussianMixture

from sk_mice import ClassificationEM, MiCEClustering, MoCo, SphericalKMeans
from sk_mice.metrics import clustering_accuracy_score

RESTARTS = 100  # of k-means
# Epochs of pretraining and clustering, in ClustPy's own proportion: they give the
# seconds of an epoch and those that a fit takes besides.
PROBES = ((2, 3), (8, 12))


@dataclass(frozen=True)
class Task:
    X: np.ndarray
    y: np.ndarray  # for scores alone
    n_clusters: int
    seed: int

    @property
    def pixels(self):
        """Rows with values from 0 to 1."""
        rows = self.X.reshape(len(self.X), -1).astype(np.float32)
        return rows / rows.max()

    def kmeans(self, rows):
        """By spherical k-means with many restarts."""
        kmeans = SphericalKMeans(
            self.n_clusters, n_init=RESTARTS, random_state=self.seed
        )
        return kmeans.fit_predict(rows)


# Each method yields, one or more times, a name, labels, seconds and further figures.


def mice(task, budget):
    model = MiCEClustering(task.n_clusters, random_state=task.seed)
    budget.fit(model, task.X)
    figures = {
        "epochs": model.n_iter_,
        "elbo": model.elbo_,
        "acc_at_start": clustering_accuracy_score(task.y, model.init_labels_),
    }
    yield "MiCE", model.labels_, budget.seconds, figures


def moco(task, budget):
    # What the second stage will take is known from the same one on MiCE's embeddings.
    _, second = timed(on_embeddings, budget.mice, task)
    epochs = max(1, round((budget.seconds - second) / budget.moco_seconds))
    model = MoCo(max_epochs=epochs, random_state=task.seed)
    _, training = timed(model.fit, task.X)
    for name, second_stage in SECOND_STAGES.items():
        if second_stage is umap_on_features and not installed("umap"):
            continue
        labels, seconds = timed(second_stage, model, task)
        yield name, labels, training + seconds, {"epochs": model.n_iter_}


def on_embeddings(model, task):
    (embeddings,) = model._infer(task.X, "teacher")
    return task.kmeans(embeddings[:, 0])


def on_features(model, task):
    (features,) = model._infer(task.X, "features")
    return task.kmeans(features)


def on_whitened_features(model, task):
    (features,) = model._infer(task.X, "features")
    return task.kmeans(whitened(features, task.n_clusters))


def as_mice_starts(model, task):
    (features,) = model._infer(task.X, "features")
    cem = ClassificationEM(task.n_clusters, random_state=task.seed)
    return cem.fit_predict(features)


def umap_map(rows, n_components, seed):
    """UMAP as advised for clustering."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImportWarning)  # it has no TensorFlow
        from umap import UMAP

    with warnings.catch_warnings():
        # A seed makes it use one thread, which it warns of.
        warnings.filterwarnings("ignore", "n_jobs value", UserWarning)
        return UMAP(
            n_neighbors=20, min_dist=0.0, n_components=n_components, random_state=seed
        ).fit_transform(rows)


def gaussians(rows, task):
    mixture = GaussianMixture(task.n_clusters, n_init=5, random_state=task.seed)
    return mixture.fit_predict(rows.astype(np.float64))


def hdbscan(rows, n_clusters):
    """The noise is one more cluster."""
    smallest = max(2, len(rows) // (10 * n_clusters))
    return HDBSCAN(min_cluster_size=smallest, copy=True).fit_predict(rows) + 1


def umap_on_features(model, task):
    (features,) = model._infer(task.X, "features")
    return gaussians(umap_map(features, task.n_clusters, task.seed), task)


def umap_on_pixels(task, budget):
    flat, mapping = timed(umap_map, task.pixels, task.n_clusters, task.seed)
    labels, seconds = timed(gaussians, flat, task)
    yield "UMAP, Gaussians, on pixels", labels, mapping + seconds, {}
    labels, seconds = timed(hdbscan, flat, task.n_clusters)
    yield "UMAP, HDBSCAN, on pixels", labels, mapping + seconds, {}


SECOND_STAGES = {
    "MoCo, k-means on embeddings": on_embeddings,  # the paper's baseline
    "MoCo, k-means on features": on_features,
    "MoCo, k-means on whitened features": on_whitened_features,
    "MoCo, MiCE's start": as_mice_starts,
    "MoCo, UMAP, Gaussians, on features": umap_on_features,
}


def kmeans(task, budget):
    model = KMeans(task.n_clusters, n_init=20, random_state=task.seed)
    labels, seconds = timed(model.fit_predict, task.pixels)
    yield "k-means on pixels", labels, seconds, {}


def clustpy(name):
    cost = {}  # in seconds, measured once

    def fit(task, budget):
        from clustpy import deep

        def model(epochs):
            return getattr(deep, name)(
                task.n_clusters,
                pretrain_epochs=epochs[0],
                clustering_epochs=epochs[1],
                random_state=task.seed,
            )

        X = task.pixels
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            if not cost:
                few, more = (timed(model(probe).fit, X)[1] for probe in PROBES)
                epoch = (more - few) / (sum(PROBES[1]) - sum(PROBES[0]))
                cost["epoch"] = max(epoch, 1e-3)
                cost["besides"] = max(0, few - sum(PROBES[0]) * epoch)
            total = (budget.seconds - cost["besides"]) / cost["epoch"]
            epochs = [max(1, round(share * total)) for share in (0.4, 0.6)]
            fitted, seconds = timed(model(epochs).fit, X)
        yield f"ClustPy's {name}", fitted.labels_, seconds, {"epochs": sum(epochs)}

    return fit


METHODS = {
    "mice": mice,  # first, as the others are given what it spends
    "moco": moco,
    "k-means": kmeans,
    "umap": umap_on_pixels,
    "idec": clustpy("IDEC"),
    "dec": clustpy("DEC"),
    "dcn": clustpy("DCN"),
}
NEEDS = {"umap": "umap", **dict.fromkeys(("idec", "dec", "dcn"), "clustpy")}


def installed(package) -> bool:
    return importlib.util.find_spec(package) is not None


def parse(argv):
    parser = common_parser(__doc__, data=("digits", "fashion-mnist", "cifar10-jpeg"))
    parser.add_argument(
        "--unbalanced", action="store_true", help="classes from 1 to 0.1"
    )
    parser.add_argument("--vectors", action="store_true", help="images as rows")
    parser.add_argument(
        "--k-factor", type=float, default=1.0, help="clusters for each class"
    )
    parser.add_argument(
        "--cases", nargs="*", choices=METHODS, default=list(METHODS), help="beside MiCE"
    )
    parser.add_argument("--resume", action="store_true", help="after an interruption")
    options = parser.parse_args(argv)
    if options.data == "cifar10-jpeg" and options.path is None:
        parser.error("--data cifar10-jpeg needs --path, the archive")
    missing = {name for name, package in NEEDS.items() if not installed(package)}
    options.cases = [name for name in options.cases if name not in missing]
    if missing:
        print("Not installed, and left out:", ", ".join(sorted(missing)))
    return options


def main(argv=None):
    options = parse(argv)
    limit_threads(options.threads)
    X, y = load(options.data, options.n, options.path)
    if options.unbalanced:
        X, y = unbalanced(X, y)
    if options.vectors:
        X = X.reshape(len(X), -1)
    n_clusters = round(options.k_factor * N_CLASSES)
    kind = options.unbalanced and "unbalanced", options.vectors and "vectors"
    factor = options.k_factor != 1 and f"k{options.k_factor:g}"
    path = results_path(options, "compare", options.data, len(X), *kind, factor)
    title = f"{options.data}, {len(X):,} images, {n_clusters} clusters, equal time"
    results = read_json(path).get("results", {}) if options.resume else {}
    known = [row["seed"] for row in results.get("MiCE", [])]
    for seed in [seed for seed in options.seeds if seed not in known]:
        task = Task(X, y, n_clusters, seed)
        budget = Budget(options.epochs)
        # Interleaved by seed, so that noise of the machine falls on all.
        for key, method in METHODS.items():
            if key != "mice" and key not in options.cases:
                continue
            limit_threads(options.threads)  # UMAP changes those of torch
            for name, labels, seconds, figures in method(task, budget):
                row = {"seed": seed, **scores(y, labels), "seconds": seconds, **figures}
                results.setdefault(name, []).append(row)
                print(f"seed {seed}  {name:32} {row}", flush=True)
        print_table(results, title)
        figures = {"data": options.data, "n": len(X), "n_clusters": n_clusters}
        write_json(path, __file__, argv, results, **figures)


if __name__ == "__main__":
    main()
