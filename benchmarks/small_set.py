"""1,503 photographs of three classes: networks from scratch, and pretrained features.

They are the first 501 test images of horses, ships and trucks in CIFAR-10 (JPEG).
Seconds include the features, which are the same for every seed and computed once.
Labels are used for scores alone.

    python benchmarks/small_set.py --path cifar10-jpeg.tar.xz
"""

import argparse
from pathlib import Path

import numpy as np
from _common import (
    RESULTS,
    limit_threads,
    load_cifar10_jpeg,
    print_table,
    scores,
    timed,
    write_json,
)
from sklearn.base import clone
from sklearn.cluster import KMeans

from sk_mice import ClassificationEM, MiCEClustering, NeighborMixture, recipes
from sk_mice.features import PretrainedFeatures

N_TEST = 10_000  # images, the last of the archive
CLASSES = 7, 8, 9  # horses, ships and trucks
N_OF_EACH = 501
K = len(CLASSES)
METHODS = {  # what each one clusters, and how
    "k-means": ("pixels", KMeans(K, n_init=10)),
    "MiCE, 50 epochs": ("images", MiCEClustering(K, max_epochs=50)),
    "MiCE, SMALL_SET_CPU": ("images", MiCEClustering(K, **recipes.SMALL_SET_CPU)),
    "features, MiCE, PHOTOS_QUICK": (
        "features",
        MiCEClustering(K, **recipes.PHOTOS_QUICK),
    ),
    "features, MiCE, 200 epochs": (
        "features",
        MiCEClustering(K, n_neighbors=10, augmentation=None, max_epochs=200),
    ),
    "features, NeighborMixture": ("features", NeighborMixture(K)),
    "features, ClassificationEM": ("features", ClassificationEM(K)),
}


def small_set(path):
    X, y = (values[-N_TEST:] for values in load_cifar10_jpeg(path))
    chosen = np.concatenate([np.flatnonzero(y == c)[:N_OF_EACH] for c in CLASSES])
    return X[chosen], y[chosen]


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", type=Path, required=True, help="of the archive")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where to write the results")
    options = parser.parse_args(argv)
    limit_threads(options.threads)
    X, y = small_set(options.path)
    features, of_features = timed(PretrainedFeatures().fit_transform, X)
    inputs = {"images": X, "pixels": X.reshape(len(X), -1), "features": features}
    path, results = options.json or RESULTS / "small_set.json", {}
    for seed in options.seeds:
        for name, (rows, method) in METHODS.items():
            fit = clone(method).set_params(random_state=seed).fit_predict
            labels, seconds = timed(fit, inputs[rows])
            seconds += of_features if rows == "features" else 0
            row = {"seed": seed, **scores(y, labels), "seconds": seconds}
            results.setdefault(name, []).append(row)
            write_json(path, __file__, argv, results, data="cifar10-jpeg", n=len(X))
            print(name, row, flush=True)
    print_table(results, f"{len(X):,} photographs of {K} classes")


if __name__ == "__main__":
    main()
