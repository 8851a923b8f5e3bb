"""How well two confidences tell right from wrong: the agreement, and the posterior.

A sample is right if its cluster is matched with its class. The area under the ROC curve
(AUROC) says how well a confidence ranks right before wrong; the expected calibration
error (ECE, ten bins of equal width) how far it is from the share that is right. The
best constant, which knows that share, has an AUROC of 0.5 and an ECE of 0. Labels are
used for scores alone.

    python benchmarks/confidence.py --data digits --epochs 60
    python benchmarks/confidence.py --data fashion-mnist --epochs 24
"""

from functools import partial

import numpy as np
from _common import (
    N_CLASSES,
    common_parser,
    limit_threads,
    load,
    results_path,
    scores,
    timed,
    write_json,
)
from sklearn.metrics import roc_auc_score

from sk_mice import MiCEClustering
from sk_mice.metrics import match_labels

N_BINS = 10
N_VIEWS = (5, 10, 20)


def calibration_error(right, confidence) -> float:
    """Mean over the samples of a bin's distance of confidence and share right."""
    bins = np.minimum((confidence * N_BINS).astype(int), N_BINS - 1)
    errors = [
        (bins == b).mean() * abs(right[bins == b].mean() - confidence[bins == b].mean())
        for b in np.unique(bins)
    ]
    return float(sum(errors))


def judge(right, confidence) -> dict:
    return {
        "auroc": float(roc_auc_score(right, confidence)),
        "ece": calibration_error(right, confidence),
        "mean": float(confidence.mean()),
    }


def main(argv=None):
    options = common_parser(__doc__).parse_args(argv)
    limit_threads(options.threads)
    X, y = load(options.data, options.n)
    path = results_path(options, "confidence", options.data, options.epochs)
    results = {}
    for seed in options.seeds:
        mice = MiCEClustering(
            N_CLASSES, max_epochs=options.epochs, random_state=seed
        ).fit(X)
        labels, rows = mice.labels_, np.arange(len(X))
        right = match_labels(y, labels) == y
        posterior = mice.predict_proba(X)
        found = {"posterior": (judge(right, posterior.max(axis=1)), 0.0)}
        for n_views in N_VIEWS:
            shares, seconds = timed(partial(mice.agreement, X, n_views=n_views))
            found[f"agreement, {n_views} views"] = (
                judge(right, shares[rows, labels]),
                seconds,
            )
        for name, (row, seconds) in found.items():
            row |= {"seed": seed, **scores(y, labels), "seconds": seconds}
            results.setdefault(name, []).append(row)
            print(f"seed {seed}  {name:24} {row}", flush=True)
        write_json(path, __file__, argv, results, data=options.data, n=len(X))


if __name__ == "__main__":
    main()
