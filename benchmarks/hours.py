"""Hours of training on photographs: does EM learn what MoCo does not, and from when on?

Fits of all images: MoCo, whose embeddings are clustered by spherical k-means, MiCE from
a random start as in the paper, and MiCE by default. After each epoch, the labels of a
fixed part of the images are scored. Each fit keeps a checkpoint, so that a run goes on
where it was cut off. Labels are used for scores alone.

    python benchmarks/hours.py --path cifar10-jpeg.tar.xz --epochs 30 --fits moco mice
"""

import sys
from pathlib import Path

import numpy as np
import torch
from _common import (
    N_CLASSES,
    RESULTS,
    common_parser,
    limit_threads,
    load,
    read_json,
    scores,
    write_json,
)
from skorch.callbacks import Callback

from sk_mice import MiCEClustering, MoCo, SphericalKMeans
from sk_mice._engine.inference import Inference
from sk_mice.ablations import PaperMiCE

N_SCORED = 10_000
N_INIT = 20  # of k-means


def kmeans(embeddings):
    return SphericalKMeans(N_CLASSES, n_init=N_INIT, random_state=0).fit_predict(
        embeddings
    )


class Course(Callback):
    """Scores of a part of the images after each epoch, kept in a file."""

    def __init__(self, name, y, keep):
        self.name, self.y, self.keep = name, y, keep
        rng = np.random.RandomState(0)
        self.scored = np.sort(rng.permutation(len(y))[:N_SCORED])

    def on_epoch_end(self, net, dataset_train=None, **kwargs):
        model = net.module_.eval()
        inference, clustered = Inference(model), model.n_experts > 1
        wanted = "joint" if clustered else "teacher"
        parts = []
        for some in torch.from_numpy(self.scored).split(512):
            (values,) = inference(net.views.plain(dataset_train[some]), wanted)
            parts.append(values.argmax(dim=1) if clustered else values[:, 0])
        model.train()
        labels = torch.cat(parts).numpy()
        labels = labels if clustered else kmeans(labels)
        row = net.history[-1]
        self.keep(
            self.name,
            {
                "stage": "em" if clustered else "moco",
                "epoch": len(net.history),
                **scores(self.y[self.scored], labels),
                "seconds": row["seconds"],
            },
        )


def fits(name, epochs, folder, course):
    options = {"checkpoint": folder, "callbacks": [course], "random_state": 0}
    if name == "moco":
        return MoCo(max_epochs=epochs, **options)
    if name == "mice-random":
        return PaperMiCE(N_CLASSES, init="random", max_epochs=epochs, **options)
    return MiCEClustering(N_CLASSES, max_epochs=epochs, **options)


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    names = ("moco", "mice-random", "mice")
    parser = common_parser(__doc__, data=("cifar10-jpeg", "fashion-mnist", "digits"))
    parser.set_defaults(data="cifar10-jpeg", n=60_000)
    parser.add_argument("--path", type=Path, help="of the data, where it needs one")
    parser.add_argument("--fits", choices=names, nargs="+", default=names)
    parser.add_argument("--folder", type=Path, default=Path("hours"))
    options = parser.parse_args(argv)
    limit_threads(options.threads)
    X, y = load(options.data, options.n, options.path)
    path = options.json or RESULTS / f"hours_{options.data}.json".replace("-", "_")
    results = read_json(path).get("results", {})

    def keep(name, row):
        # After an interruption some epochs come again.
        new = row["stage"], row["epoch"]
        rows = [r for r in results.get(name, []) if (r["stage"], r["epoch"]) != new]
        results[name] = [*rows, row]
        write_json(path, __file__, argv, results, data=options.data, n=len(X))
        print(name, row, flush=True)

    for name in options.fits:
        folder = options.folder / name
        model = fits(name, options.epochs, folder, Course(name, y, keep)).fit(X)
        if name == "moco":
            labels = kmeans(model._infer(X, "teacher")[0][:, 0])
        else:
            labels = model.labels_
            if model.init_labels_ is not None:
                start = scores(y, model.init_labels_)
                keep(name, {"stage": "start of EM", "epoch": 0} | start)
        seconds = sum(row["seconds"] for row in model.history_)
        keep(
            name, {"stage": "end", "epoch": 0, **scores(y, labels), "seconds": seconds}
        )


if __name__ == "__main__":
    main()
