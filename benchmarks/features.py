"""Clusterers on frozen features, each with its own stopping rule.

The features are the vectors of a file, the pixels of the digits, the standardised
columns of a table, or what a network trained on ImageNet makes of images.
They are computed once and kept in a file. Seconds do not include them.

    python benchmarks/features.py --data cifar10-jpeg --path cifar10-jpeg.tar.xz
    python benchmarks/features.py --data fashion-mnist --methods k-means turtle
    python benchmarks/features.py --data cifar10-jpeg --path cifar10-jpeg.tar.xz
                                  --network efficientnet-lite2 --image-size 192
    python benchmarks/features.py --features features.npz  # of X and y
"""

import re
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from _common import (
    common_parser,
    limit_threads,
    load,
    print_table,
    read_json,
    results_path,
    scores,
    timed,
    unbalanced,
    write_json,
)
from compare import hdbscan, installed, umap_map
from peers import temi, turtle
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import scale

from sk_mice import ClassificationEM, MiCEClustering, NeighborMixture, SphericalKMeans
from sk_mice.features import PretrainedFeatures

NETWORK = "efficientnet-lite0"
N_COMPONENTS = 64
TABLES = {"wine": load_wine, "breast-cancer": load_breast_cancer}
IMAGES = ("fashion-mnist", "cifar10-jpeg")


def extract(images, network, image_size):
    """Features (N, 1280) of images."""
    features = PretrainedFeatures(network, image_size=image_size, verbose=1)
    return features.fit_transform(images)


def network_of(options) -> str:
    """What the name of a file says of the network, if it is not the usual one."""
    if (options.network, options.image_size) == (NETWORK, "auto"):
        return ""
    return f"_{options.network}_{options.image_size}"


def vectors(options):
    """Features and classes, from the file if there is one."""
    path = options.features
    if path is None:
        name = f"features_{options.data}_{options.n}{network_of(options)}.npz"
        path = Path(tempfile.gettempdir(), name)
    if not path.exists():
        if options.data in TABLES:
            X, y = TABLES[options.data](return_X_y=True)
            X = scale(X)
        else:
            X, y = load(options.data, options.n, options.path)
            if options.data in IMAGES:
                X = extract(X, options.network, options.image_size)
            X = X.reshape(len(X), -1)
        np.savez(path, X=X, y=y)
    with np.load(path) as file:
        X, y = file["X"][: options.n].astype(np.float32), file["y"][: options.n]
    return unbalanced(X, y) if options.unbalanced else (X, y)


# ---------------------------------------------------------------------------- methods


def components(X):
    return PCA(min(N_COMPONENTS, *X.shape), random_state=0).fit_transform(X)


def gaussians(X, k, seed):
    mixture = GaussianMixture(k, n_init=5, reg_covar=1e-4, random_state=seed)
    return mixture.fit_predict(X.astype(np.float64))


def partition(X, k, seed, **options):
    return ClassificationEM(k, random_state=seed, **options).fit_predict(X)


def neighbor_mixture(X, k, seed, **options):
    return NeighborMixture(k, random_state=seed, **options).fit_predict(X)


def kmeans(X, k, seed):
    return KMeans(k, n_init=20, random_state=seed).fit_predict(X)


def spherical_kmeans(X, k, seed):
    return SphericalKMeans(k, n_init=20, random_state=seed).fit_predict(X)


class WithoutMoCo(MiCEClustering):
    """EM begins at a partition of what an untrained network makes of the vectors."""

    _init_share = 0.0


def methods(epochs=200):
    """Functions by name, from (X, n_clusters, seed) to labels; epochs are MiCE's."""

    def mice(X, k, seed, cls=MiCEClustering, **options):
        options |= {"max_epochs": epochs, "random_state": seed}
        return cls(k, **options).fit_predict(X)

    def neighbors(X, k, seed, cls=MiCEClustering):
        return mice(X, k, seed, cls, n_neighbors=10, augmentation=None)

    return {
        "k-means": kmeans,
        "spherical-k-means": spherical_kmeans,
        "pca-gaussians": lambda X, k, seed: gaussians(components(X), k, seed),
        "pca-hdbscan": lambda X, k, seed: hdbscan(components(X), k),
        "umap-gaussians": lambda X, k, seed: gaussians(umap_map(X, k, seed), k, seed),
        "umap-hdbscan": lambda X, k, seed: hdbscan(umap_map(X, k, seed), k),
        "partition": partition,
        "partition-center": partial(partition, center=True),
        "neighbor-mixture": neighbor_mixture,
        "neighbor-mixture-origin": partial(neighbor_mixture, center=False),
        "mice": mice,
        "mice-neighbors": neighbors,
        "mice-without-moco": partial(neighbors, cls=WithoutMoCo),
        "temi": temi,
        "turtle": lambda X, k, seed: turtle([X], k, seed),
    }


NAMES = list(methods())
# Methods that take minutes where others take seconds. HDBSCAN takes minutes for 60,000
# rows, and gives the same labels with every seed.
SLOW = {name for name in NAMES if re.search("mice|temi|turtle|pca-hdbscan", name)}


# -------------------------------------------------------------------------------- main


def parse(argv):
    parser = common_parser(__doc__, data=("digits", *TABLES, *IMAGES))
    parser.add_argument(
        "--features", type=Path, help="a .npz file of X and y, written if missing"
    )
    parser.add_argument("--network", default=NETWORK, help="of features of images")
    parser.add_argument(
        "--image-size",
        type=lambda size: size if size == "auto" else int(size),
        default="auto",
        help="pixels that the network sees",
    )
    parser.add_argument("--unbalanced", action="store_true", help="see compare.py")
    parser.add_argument(
        "--methods", nargs="+", choices=NAMES, default=NAMES, metavar="NAME"
    )
    parser.add_argument(
        "--slow-seeds", type=int, nargs="+", help="of methods that take minutes"
    )
    parser.add_argument("--resume", action="store_true", help="after an interruption")
    options = parser.parse_args(argv)
    if not installed("umap"):
        print("umap-learn is not installed: its rows are left out")
        names = [name for name in options.methods if not name.startswith("umap")]
        options.methods = names
    return options


def main(argv=None):
    options = parse(argv)
    limit_threads(options.threads)
    X, y = vectors(options)
    n_clusters = len(np.unique(y))
    unequal = "_unbalanced" if options.unbalanced else ""
    name = f"{options.data}_{len(X)}{unequal}{network_of(options)}"
    path = results_path(options, "features", name)
    results = read_json(path).get("results", {}) if options.resume else {}
    functions = methods(options.epochs)
    for seed in options.seeds:
        for name in options.methods:  # interleaved, as the machine's load changes
            if name in SLOW and seed not in (options.slow_seeds or options.seeds):
                continue
            rows = results.setdefault(name, [])
            if seed in [row["seed"] for row in rows]:
                continue
            limit_threads(options.threads)  # which UMAP changes
            labels, seconds = timed(functions[name], X, n_clusters, seed)
            row = {"seed": seed, **scores(y, labels), "seconds": seconds}
            rows.append(row | {"n_found": len(np.unique(labels))})
            print(f"seed {seed}  {name:20} {rows[-1]}", flush=True)
            figures = {"data": options.data, "n": len(X), "n_features": X.shape[1]}
            write_json(path, __file__, argv, results, **figures)
    print_table(results, f"{options.data}, {X.shape[0]:,} x {X.shape[1]:,} features")


if __name__ == "__main__":
    main()
