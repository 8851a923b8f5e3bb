"""The number of clusters without labels: what ELBO, silhouette and stability choose.

For subsets of 3, 5 and 10 classes and a range of K, two models are fitted to the two
halves of the images from different seeds. Each is scored on the other's half: by the
ELBO (`score`), by `silhouette_scorer`, by the models' agreement there, and, to be
compared with, by accuracy and NMI. Silhouette and agreement are what
`choose_n_clusters` measures; the ELBO and the scores by classes need the models
themselves. Beside the ELBO stands what it would be for perfect balanced clusters,
whatever the data.

    python benchmarks/choose_k.py
    python benchmarks/choose_k.py --classes 3 --clusters 2 3 5 --epochs 40 --seeds 0
"""

import statistics

import numpy as np
from _common import (
    common_parser,
    limit_threads,
    load,
    results_path,
    scores,
    timed,
    write_json,
)
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import StratifiedKFold

from sk_mice import MiCEClustering
from sk_mice.metrics import silhouette_scorer

CLUSTERS = (2, 3, 4, 5, 6, 8, 10, 11, 12, 15, 20)
CRITERIA = ("elbo", "silhouette", "stability")
COLUMNS = (*CRITERIA, "acc", "nmi")


def perfect_elbo(n_clusters, tau=1.0, kappa=1.0, queue_size=np.inf):
    """ELBO of perfect balanced clusters, in nats; a function of no data.

    The views of a sample coincide, f = v, and the gate puts it on its prototype, whose
    cosine with all others is -1 / (K - 1). Expert k puts its own cluster on its
    prototype, f_k = mu_k, and all others opposite to it, f_k = -mu_k, where it cannot
    tell them apart: f_k + mu_k = 0, all logits are 0 and p_k = 1 / (V + 1). Its own
    samples have positive logit 2 / tau, as has the queue's share 1 / K of them; the
    others in the queue have -2 / tau. With pi the gate's probability of the right
    expert,

        ELBO = log(pi / (1 + V / K + V (1 - 1 / K) exp(-4 / tau)) + (1 - pi) / (1 + V)).

    For an endless queue ELBO + log V is returned, which depends on K and on the
    temperatures alone.
    """
    K = n_clusters
    others = (K - 1) * np.exp(-1 / max(K - 1, 1) / kappa)
    pi = np.exp(1 / kappa) / (np.exp(1 / kappa) + others)
    share = 1 / K + (1 - 1 / K) * np.exp(-4 / tau)
    if np.isinf(queue_size):
        return np.log(pi / share + 1 - pi)
    return np.log(pi / (1 + queue_size * share) + (1 - pi) / (1 + queue_size))


def best_of_perfect(tau, kappa):
    """K of the largest ELBO of perfect balanced clusters."""
    return max(range(1, 10_000), key=lambda K: perfect_elbo(K, tau, kappa))


def measure(X, y, n_clusters, seed, options):
    """All criteria of models of two halves, each a mean over both."""
    folds = StratifiedKFold(2, shuffle=True, random_state=seed)  # equal in all K
    halves = [half for half, _ in folds.split(y, y)]
    models = [
        MiCEClustering(n_clusters, random_state=2 * seed + i, **options).fit(X[half])
        for i, half in enumerate(halves)
    ]
    rows = []
    for model, other, half in zip(models, models[::-1], halves[::-1], strict=True):
        unseen, labels = X[half], model.predict(X[half])
        rows.append(
            {
                "elbo": model.score(unseen),
                "silhouette": silhouette_scorer(model, unseen),
                "stability": adjusted_rand_score(labels, other.labels_),
                **scores(y[half], labels),
            }
        )
    return {name: statistics.mean(row[name] for row in rows) for name in rows[0]}


def print_table(rows, n_classes, options, queue_size):
    print(f"\n{n_classes} classes, mean over the seeds so far")
    print(f"{'K':>4}{'perfect':>12}" + "".join(f"{name:>12}" for name in COLUMNS))
    means = {}
    for K in options.clusters:
        own = [row for row in rows if (row["classes"], row["K"]) == (n_classes, K)]
        if own:
            means[K] = {c: statistics.mean(row[c] for row in own) for c in COLUMNS}
            perfect = perfect_elbo(K, options.tau, options.kappa, queue_size)
            cells = "".join(f"{means[K][name]:12.4f}" for name in COLUMNS)
            print(f"{K:4}{perfect:12.4f}{cells}")
    for name in COLUMNS:
        best = max(means, key=lambda K: means[K][name])
        print(f"{name} chooses K = {best}")
    print(flush=True)


def parse(argv):
    parser = common_parser(__doc__)
    parser.add_argument("--classes", type=int, nargs="+", default=[3, 5, 10])
    parser.add_argument("--clusters", type=int, nargs="+", default=list(CLUSTERS))
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--tau", type=float, default=1.0)
    parser.add_argument("--kappa", type=float, default=1.0)
    return parser.parse_args(argv)


def main(argv=None):
    options = parse(argv)
    limit_threads(options.threads)
    all_X, all_y = load(options.data, options.n)
    given = {
        "tau": options.tau,
        "kappa": options.kappa,
        "batch_size": options.batch_size,
        "max_epochs": options.epochs,
    }
    path = results_path(options, "choose_k", options.data)
    rows = []
    for n_classes in options.classes:
        X, y = all_X[all_y < n_classes], all_y[all_y < n_classes]
        queue_size = min(len(X) // 2, MiCEClustering().queue_size)
        for seed in options.seeds:
            for K in options.clusters:
                row, seconds = timed(measure, X, y, K, seed, given)
                where = {"classes": n_classes, "K": K, "seed": seed}
                rows.append(where | row | {"seconds": seconds})
                print(rows[-1], flush=True)
            print_table(rows, n_classes, options, queue_size)
            write_json(path, __file__, argv, rows)


if __name__ == "__main__":
    main()
