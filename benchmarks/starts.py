"""Where EM should start: starts of MiCE against the two-stage baseline, at equal time.

Every case gets the seconds of the default start; since an epoch of MoCo is cheaper
than one of MiCE, their numbers of epochs differ. Cases that differ only in what follows
MoCo have it in common: it is trained once a seed, its seconds count for each of them.
Labels are used for scores alone.

    python benchmarks/starts.py --data digits
    python benchmarks/starts.py --data fashion-mnist --epochs 24
"""

import math
import sys
from copy import deepcopy

import numpy as np
from _common import (
    Budget,
    common_parser,
    limit_threads,
    load,
    print_table,
    scores,
    timed,
    whitened,
    write_json,
)
from skorch.callbacks import Callback

from sk_mice import MiCEClustering, MoCo, SphericalKMeans
from sk_mice._contrastive import infer
from sk_mice.metrics import clustering_accuracy_score

RESTARTS = 100  # of k-means


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


class Start(MiCEClustering):
    """MiCE whose first stage is trained once for all cases that begin with the same."""

    trained = {}  # first stages, by seed and epochs

    def _train(self, run, model, setup, seed, n_epochs, stage, **more):
        if stage != "moco":
            super()._train(run, model, setup, seed, n_epochs, stage, **more)
            return
        self.again = (seed, n_epochs) in self.trained
        if self.again:
            weights, rows = self.trained[seed, n_epochs]
            model.load_state_dict(weights)
            model.eval()
            run.history.extend(rows)
        else:
            super()._train(run, model, setup, seed, n_epochs, stage, **more)
            self.trained[seed, n_epochs] = deepcopy(model.state_dict()), run.history[:]


class EmbeddingStart(Start):
    """k-means on the embeddings, as the baseline has it."""

    def _start_anew(self, run, setup, seed):
        wanted = "teacher", "features"
        v, features = infer(run.model, setup.views, setup.samples, *wanted)
        run.labels = kmeans(v.mean(axis=1), self.n_clusters, seed)
        self._start_at(run.model, setup, run.labels, features)


class FeatureStart(Start):
    """k-means on the features as they are."""

    def _partition(self, features, seed):
        return kmeans(features, self.n_clusters, seed)


class WhitenedStart(Start):
    """k-means on whitened features alone, not refined."""

    def _partition(self, features, seed):
        return kmeans(whitened(features, self.n_clusters), self.n_clusters, seed)


class OneKMeans(Start):
    """The same from one choice of centres, not the best of a hundred."""

    def _partition(self, features, seed):
        rows = whitened(features, self.n_clusters)
        return kmeans(rows, self.n_clusters, seed, n_init=1)


class FullRate(Start):
    """The same learning rate after the switch, not a third of it."""

    def _train(self, *args, lr=None, **more):
        super()._train(*args, **more)


class BrieflyHeld(Start):
    """q held at the partition for a tenth of the epochs of a round, not for half."""

    def _train(self, *args, held_epochs=0, **more):
        n_epochs = args[4]
        held_epochs = min(held_epochs, math.ceil(0.1 * n_epochs))
        super()._train(*args, held_epochs=held_epochs, **more)


def kmeans(rows, n_clusters, seed, n_init=RESTARTS):
    model = SphericalKMeans(n_clusters, n_init=n_init, random_state=seed)
    return model.fit_predict(rows).astype(np.int64)


def mice(cls=Start, **options):
    def fit(X, budget, **common):
        model = cls(**options)
        share = 0.0 if model.init == "random" else model.init_share
        model.set_params(max_epochs=budget.epochs_at(share), **common)
        return model.fit(X)

    return fit


def default(X, budget, **common):
    model = Start(max_epochs=budget.epochs, **common)
    budget.measure(*timed(model.fit, X))
    return model


def baseline(X, budget, n_clusters, **common):
    moco = MoCo(max_epochs=budget.epochs_at(1.0), **common).fit(X)
    moco.labels_ = kmeans(moco.transform(X), n_clusters, common["random_state"])
    return moco


CASES = {
    # First, as the others are given what it spends.
    "MiCE, two-stage (default)": default,
    "baseline: MoCo, k-means on embeddings": baseline,
    "MiCE, random": mice(init="random"),
    "MiCE, random, kappa annealed from 20": mice(
        init="random", callbacks=[Anneal(20.0)]
    ),
    "MiCE, one round of EM": mice(n_rounds=1),
    "MiCE, three rounds": mice(n_rounds=3),
    "MiCE, k-means on embeddings": mice(EmbeddingStart),
    "MiCE, k-means on features as they are": mice(FeatureStart),
    "MiCE, k-means on whitened features": mice(WhitenedStart),
    "MiCE, the same started once": mice(OneKMeans),
    "MiCE, q held for a tenth of a round": mice(BrieflyHeld),
    "MiCE, the full lr after the switch": mice(FullRate),
    "MiCE, 85% of the epochs MoCo": mice(init_share=0.85),
    "MiCE, half of the epochs MoCo": mice(init_share=0.5),
    "MiCE, three quarters": mice(init_share=0.75),
}


def measure(fit, X, y, options):
    model, seconds = timed(lambda: fit(X, **options))
    if getattr(model, "again", False):  # it had the first stage of another case
        rows = [row for row in model.history_ if row["stage"] == "moco"]
        seconds += sum(row["seconds"] for row in rows)
    row = {
        **scores(y, model.labels_),
        "epochs": model.n_iter_,
        "elbo": model.history_[-1]["elbo"],
        "seconds": seconds,
    }
    if getattr(model, "init_labels_", None) is not None:
        row["acc_at_start"] = clustering_accuracy_score(y, model.init_labels_)
    return row


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    parser = common_parser(__doc__)
    parser.add_argument("--cases", nargs="*", default=[], help="parts of their names")
    options = parser.parse_args(argv)
    limit_threads(options.threads)
    X, y = load(options.data, options.n)
    wanted = [
        name
        for name, fit in CASES.items()
        if fit is default or any(part in name for part in options.cases or [""])
    ]
    results = {name: [] for name in wanted}
    for seed in options.seeds:
        budget = Budget(options.epochs)
        for name in wanted:  # interleaved, so that noise of the machine falls on all
            given = {"n_clusters": 10, "random_state": seed, "budget": budget}
            row = measure(CASES[name], X, y, given)
            results[name].append({"seed": seed} | row)
            print(f"seed {seed}  {name:38s} acc {row['acc']:.4f}", row, flush=True)
            print_table(results, f"{options.data}, at equal time")
            if options.json:
                write_json(options.json, __file__, argv, results)


if __name__ == "__main__":
    main()
