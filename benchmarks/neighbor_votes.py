"""What neighbours say of a partition: votes among them, and a choice by them.

Features of MoCo are kept in a folder. On them, MiCE's start is compared with the same
after votes, in which a row takes the label that most of its mutual neighbours have, and
with the one of several partitions that neighbours agree with most: by the mutual
information of the labels of pairs of mutual neighbours, or by its share of the labels'
entropy. Pixels are rows as well. Labels are used for scores alone.

    python benchmarks/neighbor_votes.py --data digits --folder features
    python benchmarks/neighbor_votes.py --data fashion-mnist --epochs 24 --unbalanced
    python benchmarks/neighbor_votes.py --data digits --rows pixels
"""

from pathlib import Path

import numpy as np
from _common import (
    N_CLASSES,
    common_parser,
    limit_threads,
    load,
    print_table,
    results_path,
    scores,
    timed,
    unbalanced,
    whitened,
    write_json,
)
from scipy.stats import entropy
from sklearn.metrics import mutual_info_score
from sklearn.preprocessing import normalize

from sk_mice import ClassificationEM, MiCEClustering, MoCo, SphericalKMeans
from sk_mice._engine.neighbors import mutual_neighbors

N_NEIGHBORS = 10
N_PARTITIONS = 5  # to choose from, beside two of k-means
N_INIT = 20  # of k-means
OWN_VOTE = 1.5  # more than one neighbour's, so that ties change nothing


def features(X, seed, options):
    """MoCo's, after the epochs that MiCE's first stage has."""
    if options.rows == "pixels":
        return X.reshape(len(X), -1).astype(np.float32)
    unequal = "unbalanced_" if options.unbalanced else ""
    name = f"{options.data}_{len(X)}_{unequal}{options.epochs}_{seed}.npy"
    path = options.folder / name
    if not path.exists():
        epochs = round(MiCEClustering._init_share * options.epochs)
        moco = MoCo(max_epochs=epochs, random_state=seed).fit(X)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, moco._infer(X, "features")[0])
    return np.load(path)


def vote(labels, table, n_times):
    """Labels after every row has taken, n times, the one of most of its neighbours."""
    rows = np.arange(len(labels))
    for _ in range(n_times):
        votes = np.zeros((len(labels), N_CLASSES))
        np.add.at(votes, (rows[:, None], labels[table]), 1.0)
        votes[rows, labels] += OWN_VOTE
        labels = votes.argmax(axis=1)
    return labels


def information(labels, table):
    """Mutual information of the labels of pairs of mutual neighbours, in nats."""
    pairs = table != np.arange(len(table))[:, None]
    own = np.broadcast_to(labels[:, None], table.shape)
    return mutual_info_score(own[pairs], labels[table][pairs])


def share_of_entropy(labels, table):
    return information(labels, table) / entropy(np.bincount(labels))


def partitions(rows, seed):
    """Labels by name, MiCE's start first."""
    first, *others = [
        ClassificationEM(N_CLASSES, random_state=1000 * seed + i).fit_predict(rows)
        for i in range(N_PARTITIONS)
    ]
    kmeans = SphericalKMeans(N_CLASSES, n_init=N_INIT, random_state=seed)
    others += [kmeans.fit_predict(given) for given in (rows, whitened(rows, N_CLASSES))]
    table, _ = mutual_neighbors(normalize(rows), N_NEIGHBORS)
    yield "MiCE's start", first
    for n_times in (3, 5):
        yield f"after {n_times} votes", vote(first, table, n_times)
    for name, score in (
        ("chosen by mutual information", information),
        ("chosen by its share of the entropy", share_of_entropy),
    ):
        yield name, max((first, *others), key=lambda labels: score(labels, table))


def main(argv=None):
    parser = common_parser(__doc__, data=("digits", "fashion-mnist", "cifar10-jpeg"))
    parser.add_argument("--unbalanced", action="store_true", help="see compare.py")
    parser.add_argument("--rows", choices=["features", "pixels"], default="features")
    parser.add_argument("--folder", type=Path, default=Path("features"))
    options = parser.parse_args(argv)
    limit_threads(options.threads)
    X, y = load(options.data, options.n, options.path)
    if options.unbalanced:
        X, y = unbalanced(X, y)
    kind = options.unbalanced and "unbalanced", options.rows == "pixels" and "pixels"
    path = results_path(options, "neighbor_votes", options.data, len(X), *kind)
    results = {}
    for seed in options.seeds:
        named, seconds = timed(
            lambda *a: dict(partitions(*a)), features(X, seed, options), seed
        )
        for name, labels in named.items():
            row = {"seed": seed, **scores(y, labels), "seconds": seconds}
            results.setdefault(name, []).append(row)
        print(f"seed {seed}", {n: round(r[-1]["nmi"], 4) for n, r in results.items()})
    print_table(results, f"{options.data}, {len(X):,} {options.rows}")
    write_json(path, __file__, argv, results, data=options.data, n=len(X))


if __name__ == "__main__":
    main()
