"""Where EM should start: starts of MiCE against the two-stage baseline, at equal time.

Every case gets the seconds of the default start; since an epoch of MoCo is cheaper
than one of MiCE, their numbers of epochs differ. Labels are used for scores alone.

    python benchmarks/starts.py --data digits
    python benchmarks/starts.py --data fashion-mnist --epochs 50 --seeds 0 1 2
"""

import argparse
import datetime
import json
import platform
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sklearn
import torch
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from skorch.callbacks import Callback

from sk_mice import MiCEClustering, MoCo, SphericalKMeans, datasets
from sk_mice.metrics import clustering_accuracy_score

RESULTS = Path(__file__).parent / "results"


class Anneal(Callback):
    """Lowers kappa geometrically to its value over the first half of the run."""

    def __init__(self, factor):
        self.factor = factor

    def on_train_begin(self, net, **kwargs):
        self.kappa = net.module_.kappa

    def on_batch_begin(self, net, **kwargs):
        progress = (len(net.history) - 1 + net.step_ / net.n_steps_) / net.max_epochs
        left = max(0.0, 1 - progress / 0.5)
        net.module_.kappa = self.kappa * self.factor**left

    def on_train_end(self, net, **kwargs):
        net.module_.kappa = self.kappa


class EmbeddingStart(MiCEClustering):
    """The two-stage start with k-means on the embeddings, as the baseline has it."""

    def _partition(self, moco, setup, seed):
        from sk_mice._contrastive import infer

        (v,) = infer(moco, setup.views, setup.samples, "teacher")
        kmeans = SphericalKMeans(self.n_clusters, n_init=20, random_state=seed)
        return kmeans.fit(v[:, 0])


@dataclass
class Budget:
    """What the default start spent: each case gets as much."""

    epochs: int
    moco_epoch: float = 1.0  # cost of an epoch of MoCo, in epochs of MiCE

    def epochs_at(self, share):
        """Epochs of MiCE that cost as much when `share` of them are MoCo's."""
        default = MiCEClustering().init_share
        cost = self.epochs * (default * self.moco_epoch + 1 - default)
        return max(2, round(cost / (share * self.moco_epoch + 1 - share)))


def mice(cls=MiCEClustering, **options):
    def fit(X, budget, **common):
        model = cls(**options)
        share = 0.0 if model.init == "random" else model.init_share
        model.set_params(max_epochs=budget.epochs_at(share), **common)
        return model.fit(X)

    return fit


def default(X, budget, **common):
    model = MiCEClustering(max_epochs=budget.epochs, **common).fit(X)
    seconds = {
        stage: statistics.median(
            row["seconds"] for row in model.history_ if row["stage"] == stage
        )
        for stage in ("moco", "em")
    }
    budget.moco_epoch = seconds["moco"] / seconds["em"]
    return model


def baseline(what):
    def fit(X, budget, n_clusters, **common):
        moco = MoCo(max_epochs=budget.epochs_at(1.0), **common).fit(X)
        embeddings = moco._infer(X, what)[0].reshape(len(X), -1)
        kmeans = SphericalKMeans(
            n_clusters, n_init=20, random_state=common["random_state"]
        )
        moco.labels_ = kmeans.fit_predict(embeddings)
        return moco

    return fit


CASES = {
    # First, as the others are given what it spends.
    "MiCE, two-stage (default)": default,
    "baseline: MoCo, k-means on embeddings": baseline("teacher"),
    "baseline: MoCo, k-means on features": baseline("features"),
    "MiCE, random": mice(init="random"),
    "MiCE, random, kappa annealed from 20": mice(
        init="random", callbacks=[Anneal(20.0)]
    ),
    "MiCE, two-stage on embeddings": mice(EmbeddingStart),
    "MiCE, two-stage, half": mice(init_share=0.5),
    "MiCE, two-stage, three quarters": mice(init_share=0.75),
}


def load(name, n):
    if name == "digits":
        X, y, _ = datasets.load_digits()
        return X, y, {"flip": False}
    X, y, _ = datasets.load_fashion_mnist()
    first = np.random.RandomState(0).permutation(len(X))[:n]
    return X[first], y[first], {}


def measure(fit, X, y, options):
    start = time.perf_counter()
    model = fit(X, **options)
    seconds = time.perf_counter() - start
    row = {
        "acc": clustering_accuracy_score(y, model.labels_),
        "nmi": normalized_mutual_info_score(y, model.labels_),
        "ari": adjusted_rand_score(y, model.labels_),
        "epochs": model.n_iter_,
        "elbo": model.history_[-1]["elbo"],
        "seconds": seconds,
    }
    if getattr(model, "init_labels_", None) is not None:
        row["acc_at_start"] = clustering_accuracy_score(y, model.init_labels_)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=["digits", "fashion-mnist"], default="digits")
    parser.add_argument("--n", type=int, default=10_000, help="of Fashion-MNIST")
    parser.add_argument("--epochs", type=int, default=200, help="of the default start")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cases", nargs="*", default=[], help="parts of their names")
    parser.add_argument("--json", type=Path, help="where to add the results")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    X, y, common = load(options.data, options.n)
    wanted = [
        name
        for name, fit in CASES.items()
        if fit is default or any(part in name for part in options.cases or [""])
    ]
    results = {name: [] for name in wanted}
    for seed in options.seeds:
        budget = Budget(options.epochs)
        for name in wanted:  # interleaved, so that noise of the machine falls on all
            given = common | {"n_clusters": 10, "random_state": seed, "budget": budget}
            row = measure(CASES[name], X, y, given)
            results[name].append({"seed": seed} | row)
            print(f"seed {seed}  {name:38s} acc {row['acc']:.4f}", row, flush=True)
            report(results, options)


def report(results, options):
    print(f"\n{options.data}: accuracy over seeds, at equal time")
    for name, rows in results.items():
        if rows:
            acc = [row["acc"] for row in rows]
            print(
                f"{name:38s} mean {statistics.mean(acc):.4f}  sd "
                f"{statistics.stdev(acc) if len(acc) > 1 else 0:.4f}  worst "
                f"{min(acc):.4f}  seconds "
                f"{statistics.median(row['seconds'] for row in rows):.0f}"
            )
    if options.json:
        kept = {
            "command": " ".join(["python", *sys.argv]),
            "date": datetime.date.today().isoformat(),
            "machine": f"{platform.processor() or platform.machine()}, "
            f"{options.threads} threads",
            "versions": {"torch": torch.__version__, "sklearn": sklearn.__version__},
            "results": results,
        }
        options.json.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
