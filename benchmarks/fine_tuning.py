"""MiCE from a pretrained network on, beside a clustering of the network's features.

EfficientNet-lite0, trained on ImageNet, sees the images enlarged. Its features are
computed once and clustered, or MiCE trains the end of the network on random views.
Seconds include the features. Labels are used for scores alone.

    python benchmarks/fine_tuning.py --path cifar10-jpeg.tar.xz --epochs 6 --seeds 0
"""

from _common import (
    N_CLASSES,
    common_parser,
    limit_threads,
    load,
    print_table,
    results_path,
    scores,
    timed,
    write_json,
)

from sk_mice import MiCEClustering, NeighborMixture
from sk_mice.backbones import Pretrained
from sk_mice.features import PretrainedFeatures

NETWORK = "efficientnet-lite0"
LR = 0.03  # a network that has learned takes smaller steps than one from scratch


def frozen(X, seed, size):
    """Labels by the network's features."""
    features = PretrainedFeatures(NETWORK, image_size=size).fit_transform(X)
    return NeighborMixture(N_CLASSES, random_state=seed).fit_predict(features)


def fine_tuned(X, seed, size, epochs, freeze) -> MiCEClustering:
    return MiCEClustering(
        N_CLASSES,
        backbone=Pretrained(NETWORK, image_size=size),
        freeze=freeze,
        lr=LR,
        max_epochs=epochs,
        random_state=seed,
    ).fit(X)


def main(argv=None):
    parser = common_parser(__doc__, data=("cifar10-jpeg", "fashion-mnist", "digits"))
    parser.set_defaults(data="cifar10-jpeg", epochs=6, seeds=[0])
    parser.add_argument(
        "--image-size", type=int, default=96, help="pixels to enlarge views to"
    )
    parser.add_argument("--freeze", default="all but last", help="see MiCEClustering")
    options = parser.parse_args(argv)
    limit_threads(options.threads)
    X, y = load(options.data, options.n, options.path)
    path = results_path(options, "fine_tuning", options.data, len(X))
    results, size = {}, options.image_size

    def keep(name, seed, labels, seconds):
        row = {"seed": seed, **scores(y, labels), "seconds": seconds}
        results.setdefault(name, []).append(row)
        write_json(path, __file__, argv, results, data=options.data, n=len(X))
        print(name, row, flush=True)

    for seed in options.seeds:
        for name, pixels in (("frozen", "auto"), ("frozen, small", size)):
            keep(name, seed, *timed(frozen, X, seed, pixels))
        mice, seconds = timed(fine_tuned, X, seed, size, options.epochs, options.freeze)
        keep("fine-tuned", seed, mice.labels_, seconds)
        keep("its first stage", seed, mice.init_labels_, seconds)
    print_table(results, f"{options.data}, {len(X):,} images")


if __name__ == "__main__":
    main()
