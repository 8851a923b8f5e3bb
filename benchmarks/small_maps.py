"""Whether the first stage learns faster if it sees small maps first.

MoCo trains for the same seconds on maps of the full size, on small ones (max-pooling in
the stem), and on small ones for the first half of the time. Where the pooling ends, all
weights are kept. The scores are those of the features: how often an image's nearest
neighbour has its class, and NMI and accuracy of the partition that EM would start from.
Results are written after every fit, and fits that they hold are not repeated. Labels
are used for scores alone.

    python benchmarks/small_maps.py --data fashion-mnist --epochs 24 --seeds 0 1 2
    python benchmarks/small_maps.py --data cifar10-jpeg --path cifar10-jpeg.tar.xz
                                    --epochs 96 --seeds 0 1 2
"""

import statistics

import numpy as np
from _common import (
    N_CLASSES,
    EpochSeconds,
    common_parser,
    limit_threads,
    load,
    print_table,
    read_json,
    results_path,
    scores,
    timed,
    write_json,
)
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize
from skorch.callbacks import Callback
from torch import nn

from sk_mice import ClassificationEM, MoCo
from sk_mice.backbones import SmallResNet

PROBE = 3  # epochs, for the seconds of one
# The share of the time, not of the epochs, that goes to small maps.
SHARES = {"full maps": 0.0, "small maps, then full ones": 0.5, "small maps": 1.0}


class FullMapsFrom(Callback):
    """Takes the max-pooling out of the stem when an epoch begins."""

    def __init__(self, epoch):
        self.epoch = epoch

    def on_epoch_begin(self, net, **kwargs):
        if len(net.history) == self.epoch + 1:  # the row of this epoch is there
            for side in (net.module_.student, net.module_.teacher):
                layers = side.backbone.layers
                (pool,) = (i for i, m in enumerate(layers) if type(m) is nn.MaxPool2d)
                layers[pool] = nn.Identity()


def first_stage(X, seed, n_epochs, *callbacks, max_pool) -> MoCo:
    return MoCo(
        backbone=SmallResNet(max_pool=max_pool),
        max_epochs=n_epochs,
        callbacks=list(callbacks),
        random_state=seed,
    ).fit(X)


def seconds_of_an_epoch(X, seed, max_pool) -> float:
    epochs = EpochSeconds()
    first_stage(X, seed, PROBE, epochs, max_pool=max_pool)
    return statistics.median(epochs.seconds)


def fit(X, seed, share, epochs, ratio) -> MoCo:
    """A fit in the time of so many epochs on full maps.

    Parameters
    ----------
    share : float
        Of the time, for small maps.
    ratio : float
        Time of an epoch on full maps to that on small ones.
    """
    n_small, n_full = round(share * epochs * ratio), round((1 - share) * epochs)
    if not n_small:
        return first_stage(X, seed, n_full, max_pool=False)
    then = [FullMapsFrom(n_small)] if n_full else []
    return first_stage(X, seed, n_small + n_full, *then, max_pool=True)


def judge(model, X, y, seed) -> dict:
    (features,) = model._infer(X, "features")
    rows = normalize(features)
    nearest = NearestNeighbors(n_neighbors=2).fit(rows).kneighbors(rows)[1]
    labels = ClassificationEM(N_CLASSES, random_state=seed).fit_predict(features)
    other = np.where(nearest[:, 0] == np.arange(len(y)), nearest[:, 1], nearest[:, 0])
    return scores(y, labels) | {"neighbour": float((y[other] == y).mean())}


def main(argv=None):
    parser = common_parser(__doc__, data=("digits", "fashion-mnist", "cifar10-jpeg"))
    parser.add_argument(
        "--cases", nargs="+", choices=SHARES, default=list(SHARES), metavar="NAME"
    )
    parser.add_argument(
        "--ratio", type=float, help="of the times of an epoch; measured if left out"
    )
    options = parser.parse_args(argv)
    limit_threads(options.threads)
    X, y = load(options.data, options.n, options.path)
    path = results_path(options, "small_maps", options.data, options.epochs)
    kept = read_json(path)
    results, ratio = kept.get("results", {}), options.ratio or kept.get("ratio")
    if ratio is None:
        full, small = (seconds_of_an_epoch(X, 0, pooled) for pooled in (False, True))
        ratio = full / small
    for seed in options.seeds:
        for name in options.cases:
            rows = results.setdefault(name, [])
            if seed in [row["seed"] for row in rows]:
                continue
            model, seconds = timed(fit, X, seed, SHARES[name], options.epochs, ratio)
            row = {"seed": seed, **judge(model, X, y, seed), "seconds": seconds}
            rows.append(row | {"epochs": model.n_iter_})
            print(f"seed {seed}  {name:28} {rows[-1]}", flush=True)
            more = {"data": options.data, "n": len(X), "ratio": ratio}
            write_json(path, __file__, argv, results, **more)
    print_table(results, f"{options.data}, {len(X):,} images, {options.epochs} epochs")


if __name__ == "__main__":
    main()
