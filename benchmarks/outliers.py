"""How well scores tell inverted digits from others, by the area under the ROC curve.

Half of the digits are clean. One in fifty of the other half is inverted, black for
white. A model is fitted to either half, and both score the second one. Pixels of that
half alone are the comparison.

    python benchmarks/outliers.py
"""

import numpy as np
from _common import RESULTS, common_parser, limit_threads, timed, write_json
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import LocalOutlierFactor

from sk_mice import MiCEClustering
from sk_mice.datasets import load_digits


def halves():
    """Clean images, others with outliers, and which of these are outliers."""
    X, _, _ = load_digits()
    clean, others = X[::2], X[1::2]
    is_outlier = np.arange(len(others)) % 50 == 0
    others = np.where(is_outlier[:, None, None], X.max() - others, others)
    return clean, others, is_outlier


def oddness(mice, fitted_to, X):
    """Four scores of the images X, the higher the odder."""
    nearby = LocalOutlierFactor(n_neighbors=10, novelty=True)
    nearby.fit(mice.transform(fitted_to))
    own = np.arange(len(X)), mice.predict(X)
    return {
        "largest posterior": -mice.predict_proba(X).max(axis=1),
        "agreement": -mice.agreement(X)[own],
        "score_samples": -mice.score_samples(X),
        "LocalOutlierFactor of transform": -nearby.score_samples(mice.transform(X)),
    }


def oddness_of_pixels(X, n_neighbors):
    lof = LocalOutlierFactor(n_neighbors=n_neighbors).fit(X.reshape(len(X), -1))
    return -lof.negative_outlier_factor_


def main(argv=None):
    parser = common_parser(__doc__, data=("digits",))
    parser.set_defaults(epochs=40)
    options = parser.parse_args(argv)
    limit_threads(options.threads)
    clean, others, is_outlier = halves()
    results = {}

    def keep(name, **row):
        results.setdefault(name, []).append(row)
        print(name, row, flush=True)

    for seed in options.seeds:
        for fitted_to, X in {"clean": clean, "others": others}.items():
            mice = MiCEClustering(10, max_epochs=options.epochs, random_state=seed)
            _, seconds = timed(mice.fit, X)
            for name, odd in oddness(mice, X, others).items():
                auc = roc_auc_score(is_outlier, odd)
                keep(f"{name}, {fitted_to}", seed=seed, auc=auc, seconds=seconds)
    for n_neighbors in 10, 50:
        auc = roc_auc_score(is_outlier, oddness_of_pixels(others, n_neighbors))
        keep(f"pixels, {n_neighbors} neighbours", auc=auc)
    path = options.json or RESULTS / "outliers.json"
    write_json(path, __file__, argv, results, data="digits", n=len(others))


if __name__ == "__main__":
    main()
