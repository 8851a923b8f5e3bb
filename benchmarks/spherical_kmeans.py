"""Time SphericalKMeans against scikit-learn's KMeans and faiss.

Same data (unit rows, float32), same initial centres, same number of iterations, one
start. The programs take turns, so that whatever else the machine does falls on all
of them, and a ratio is the median of the ratios within the turns.

The data are a mixture of K directions with noise, in which late iterations can skip
rows ("mixture"); directions drawn from the whole sphere, in which they can skip next
to nothing ("sphere"); and a sparse matrix with entries of random columns ("sparse").

"objective" is the largest relative difference of our final objective from that of a
plain loop over the textbook's two steps, and from that of faiss. KMeans has another
objective, even on unit rows: its centres may lie inside the sphere.

    python benchmarks/spherical_kmeans.py            # print the table
    python benchmarks/spherical_kmeans.py --json     # and keep it

faiss is compared with where faiss-cpu is installed.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from _common import RESULTS, write_json
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

from sk_mice import SphericalKMeans

try:
    import faiss
except ImportError:
    faiss = None

# (data, N, D, K, compare with faiss, the most that SphericalKMeans / KMeans may be)
CASES = [
    ("mixture", 60_000, 128, 10, False, 1.0),
    ("mixture", 60_000, 128, 100, True, 1.0),
    ("mixture", 60_000, 128, 1000, True, 1.0),
    ("mixture", 500_000, 128, 100, False, 1.0),
    ("sphere", 60_000, 128, 10, False, 1.0),
    ("sphere", 60_000, 128, 100, True, 1.0),
    ("sphere", 60_000, 128, 1000, True, 1.0),
    ("sphere", 500_000, 128, 100, False, 1.0),
    ("sparse", 50_000, 20_000, 10, False, 1.1),
    ("sparse", 50_000, 20_000, 100, False, 1.1),
]


def make_data(kind, n_samples, n_features, n_clusters, rng):
    """Unit rows of shape (N, D), float32, and K of them as initial centres."""
    if kind == "sparse":
        shape = (n_samples, n_features)
        X = sparse.random_array(
            shape, density=0.005, format="csr", dtype=np.float32, rng=rng
        )
    else:
        X = rng.standard_normal((n_samples, n_features), dtype=np.float32)
    if kind == "mixture":
        directions = normalize(rng.standard_normal((n_clusters, n_features)))
        # As long as the noise: neighbouring clusters overlap.
        X /= np.sqrt(n_features)
        X += directions[rng.integers(n_clusters, size=n_samples)].astype(np.float32)
    X = normalize(X, copy=False)
    centers = X[rng.choice(n_samples, n_clusters, replace=False)]
    return X, centers.toarray() if sparse.issparse(centers) else centers


def plain_objective(X, centers, n_iter):
    """Inertia after `n_iter` iterations of the textbook's two steps."""
    for _ in range(n_iter):
        labels = (X @ centers.T).argmax(axis=1)
        members = sparse.csr_array(np.eye(len(centers), dtype=X.dtype))[labels]
        sums = members.T @ X
        sums = sums.toarray() if sparse.issparse(sums) else sums
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        centers = np.where(norms > 0, sums / np.maximum(norms, 1e-30), centers)
    cosines = (X @ centers.T).max(axis=1)
    return (1 - cosines).sum(dtype=np.float64)


def run_estimator(cls, X, centers, n_iter):
    model = cls(len(centers), init=centers, n_init=1, max_iter=n_iter, tol=0)
    start = time.perf_counter()
    model.fit(X)
    return time.perf_counter() - start, model


def run_faiss(X, centers, n_iter):
    model = faiss.Kmeans(
        X.shape[1],
        len(centers),
        niter=n_iter,
        spherical=True,
        min_points_per_centroid=1,
        max_points_per_centroid=len(X),  # by default it looks at a sample
    )
    start = time.perf_counter()
    model.train(X, init_centroids=centers)
    seconds = time.perf_counter() - start
    cosines = (X @ model.centroids.T).max(axis=1)
    return seconds, (1 - cosines).sum(dtype=np.float64)


def run_case(case, n_iter, n_turns, seed):
    kind, n_samples, n_features, n_clusters, with_faiss, target = case
    rng = np.random.default_rng(seed)
    X, centers = make_data(kind, n_samples, n_features, n_clusters, rng)
    expected = [plain_objective(X, centers, n_iter)]
    seconds = {"SphericalKMeans": [], "KMeans": [], "faiss": []}
    for turn in range(n_turns):
        for cls in (SphericalKMeans, KMeans)[:: 1 if turn % 2 else -1]:
            elapsed, model = run_estimator(cls, X, centers, n_iter)
            seconds[cls.__name__].append(elapsed)
            if cls is SphericalKMeans:
                ours = model
            else:
                kmeans_n_iter = model.n_iter_
        if with_faiss and faiss:
            elapsed, objective = run_faiss(X, centers, n_iter)
            seconds["faiss"].append(elapsed)
            expected.append(objective)
    difference = max(abs(ours.inertia_ / value - 1) for value in expected)
    return {
        "data": kind,
        "shape": [n_samples, n_features],
        "n_clusters": n_clusters,
        "n_iter": [int(ours.n_iter_), int(kmeans_n_iter)],
        "seconds": {name: _median(times) for name, times in seconds.items()},
        "ratio_to_kmeans": _ratio(seconds, "KMeans"),
        "target": target,
        "ratio_to_faiss": _ratio(seconds, "faiss"),
        "objective_difference": float(difference),
    }


def _median(values):
    return float(np.median(values)) if values else None


def _ratio(seconds, other):
    pairs = zip(seconds["SphericalKMeans"], seconds[other], strict=False)
    return _median([ours / theirs for ours, theirs in pairs])


HEADER = (
    f"{'data':8} {'N x D':>14} {'K':>5} {'iterations':>10} {'ours':>7} {'KMeans':>7} "
    f"{'faiss':>7} {'/KMeans':>8} {'target':>6} {'/faiss':>7} {'objective':>9}"
)


def format_row(result):
    def number(value, width, digits=3):
        return f"{'-':>{width}}" if value is None else f"{value:{width}.{digits}f}"

    shape = "{} x {}".format(*result["shape"])
    iterations = "{} / {}".format(*result["n_iter"])
    seconds = " ".join(number(value, 7) for value in result["seconds"].values())
    return (
        f"{result['data']:8} {shape:>14} {result['n_clusters']:>5} {iterations:>10} "
        f"{seconds} {number(result['ratio_to_kmeans'], 8)} "
        f"{number(result['target'], 6, 1)} {number(result['ratio_to_faiss'], 7)} "
        f"{result['objective_difference']:9.0e}"
    )


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=["mixture", "sphere", "sparse"])
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--json",
        type=Path,
        nargs="?",
        const=RESULTS / "spherical_kmeans.json",
        metavar="PATH",
    )
    args = parser.parse_args(argv)

    print(HEADER)
    results = []
    with threadpool_limits(args.threads):
        for case in CASES:
            if args.data and case[0] not in args.data:
                continue
            results.append(run_case(case, args.iterations, args.turns, args.seed))
            print(format_row(results[-1]), flush=True)
    if args.json:
        write_json(args.json, __file__, argv, results, threads=args.threads)


if __name__ == "__main__":
    main()
