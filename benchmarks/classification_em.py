"""Time ClassificationEM against GaussianMixture and KMeans of scikit-learn.

The features have classes in up to 30 dimensions, noise whose spectrum is a power law, a
random rotation and an offset. All methods run in turn in one process, so that a ratio
meets one load of the machine. GaussianMixture (tied covariance) does a few iterations
from one start: to convergence it would take hours of some sizes.

    python benchmarks/classification_em.py
    python benchmarks/classification_em.py --sizes 10000x1280x10 --json results.json
"""

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
from _common import limit_threads, scores, timed, write_json
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from sk_mice import ClassificationEM

SIZES = ("1797x128x10", "10000x128x10", "10000x1280x10", "4096x128x1000")
CLASS_DIMENSIONS = 30


def make_features(n_samples, n_features, n_classes, seed):
    """Features, float32, and their classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n_samples)
    scales = np.arange(1, n_features + 1) ** -0.75
    X = rng.standard_normal((n_samples, n_features)) * scales
    n = min(CLASS_DIMENSIONS, n_features)
    X[:, :n] += (0.9 * rng.standard_normal((n_classes, n)) * scales[:n])[y]
    rotation, _ = np.linalg.qr(rng.standard_normal((n_features, n_features)))
    offset = 0.3 * rng.random(n_features)
    return (X @ rotation + offset).astype(np.float32), y


def methods(n_clusters, mixture_iterations, seed):
    return {
        "ClassificationEM": ClassificationEM(n_clusters, random_state=seed),
        "GaussianMixture": GaussianMixture(
            n_clusters,
            covariance_type="tied",
            max_iter=mixture_iterations,
            reg_covar=1e-4,
            random_state=seed,
        ),
        "KMeans": KMeans(n_clusters, n_init=10, random_state=seed),
    }


def run_case(size, options):
    n_samples, n_features, n_clusters = size
    X, y = make_features(n_samples, n_features, n_clusters, options.seed)
    row = {"size": list(size)}
    found = methods(n_clusters, options.mixture_iterations, options.seed)
    for name, estimator in found.items():
        # In float32 the mixture's covariance may not be positive definite.
        rows = X.astype(np.float64) if name == "GaussianMixture" else X
        labels, seconds = timed(estimator.fit_predict, rows)
        row[name] = {"seconds": seconds, **scores(y, labels)}
    ours = row["ClassificationEM"]["seconds"]
    for name in ("GaussianMixture", "KMeans"):
        row[f"ratio_to_{name}"] = ours / row[name]["seconds"]
    return row


def print_row(row):
    size = "x".join(map(str, row["size"]))
    line = f"{size:16}"
    for name in ("ClassificationEM", "GaussianMixture", "KMeans"):
        line += f"{row[name]['seconds']:9.2f}{row[name]['acc']:7.3f}"
    ratios = [row["ratio_to_GaussianMixture"], row["ratio_to_KMeans"]]
    print(line + "".join(f"{ratio:9.2f}" for ratio in ratios), flush=True)


def sides(text):
    return tuple(map(int, text.split("x")))


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sizes",
        type=sides,
        nargs="+",
        default=[sides(size) for size in SIZES],
        metavar="NxFxK",
        help="rows x features x clusters",
    )
    parser.add_argument("--mixture-iterations", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to write the results")
    argv = sys.argv[1:] if argv is None else argv
    options = parser.parse_args(argv)
    limit_threads(options.threads)
    print("seconds and accuracy; ratios of seconds")
    names = ("ClassificationEM", "GaussianMixture", "KMeans")
    head = f"{'rows x F x K':16}" + "".join(f"{name:>16}" for name in names)
    print(f"{head} /mixture  /KMeans")
    results = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of the mixture
        for size in options.sizes:
            results.append(run_case(size, options))
            print_row(results[-1])
    if options.json:
        write_json(options.json, __file__, argv, results)


if __name__ == "__main__":
    main()
