"""Hours of training on photographs: does EM learn what MoCo does not, and from when on?

One fit of all images: MoCo, whose embeddings are clustered by spherical k-means, MiCE
from a random start as in the paper, or MiCE by default. After every epoch, or every
few, the labels of a fixed part of the images are scored. The fit keeps a checkpoint, so
that a run goes on where it was cut off. Labels are used for scores alone.

    python benchmarks/hours.py --path cifar10-jpeg.tar.xz --fit moco --epochs 72
    python benchmarks/hours.py --path cifar10-jpeg.tar.xz --fit mice --epochs 40
                               --backbone resnet18 --seeds 1
"""

from pathlib import Path

import numpy as np
import torch
from _common import (
    N_CLASSES,
    add_backbone,
    backbone,
    common_parser,
    limit_threads,
    load,
    now,
    read_json,
    results_path,
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
    """Scores of a part of the images after every few epochs, and their seconds."""

    def __init__(self, y, every, keep):
        self.y, self.every, self.keep = y, every, keep
        self.seconds = 0.0
        rng = np.random.RandomState(0)
        self.scored = np.sort(rng.permutation(len(y))[:N_SCORED])

    def on_epoch_begin(self, net, **kwargs):
        self.began = now()

    def on_epoch_end(self, net, dataset_train=None, **kwargs):
        self.seconds += now() - self.began
        n_epochs = len(net.history)
        if n_epochs % self.every and n_epochs < net.max_epochs:
            return
        seconds, self.seconds = self.seconds, 0.0
        model = net.module_.eval()
        inference, clustered = Inference(model), model.n_experts > 1
        wanted = "joint" if clustered else "teacher"
        parts = []
        for some in torch.from_numpy(self.scored).split(512):
            (values,) = inference(net.views.plain(dataset_train[some]), wanted)
            parts.append(values.argmax(dim=1) if clustered else values[:, 0])
        model.train()
        labels = torch.cat(parts).cpu().numpy()
        labels = labels if clustered else kmeans(labels)
        at = {
            "stage": "em" if clustered else "moco",
            "epoch": n_epochs,
            "of": net.max_epochs,  # tells rounds of EM apart
        }
        self.keep(at, self.y[self.scored], labels, seconds)


def estimator(name, epochs, **options):
    if name == "moco":
        return MoCo(max_epochs=epochs, **options)
    if name == "mice-random":
        return PaperMiCE(N_CLASSES, init="random", max_epochs=epochs, **options)
    return MiCEClustering(N_CLASSES, max_epochs=epochs, **options)


def case_of(options, seed) -> str:
    """A name of the fit: it says what is not the usual."""
    parts = [options.fit]
    parts += [options.backbone] if options.backbone != "resnet-small" else []
    parts += [f"seed{seed}"] if seed else []
    return "-".join(parts)


def main(argv=None):
    parser = common_parser(__doc__, data=("cifar10-jpeg", "fashion-mnist", "digits"))
    parser.set_defaults(data="cifar10-jpeg", n=60_000, seeds=[0])
    add_backbone(parser)
    parser.add_argument("--fit", choices=("moco", "mice-random", "mice"), required=True)
    parser.add_argument("--every", type=int, default=1, help="epochs between scores")
    parser.add_argument(
        "--folder", type=Path, default=Path("hours"), help="of checkpoints"
    )
    options = parser.parse_args(argv)
    if len(options.seeds) > 1:
        parser.error("--seeds must be one, as a fit takes long")
    limit_threads(options.threads)
    X, y = load(options.data, options.n, options.path)
    (seed,) = options.seeds
    case = case_of(options, seed)
    path = results_path(options, "hours", options.data, case)
    results = read_json(path).get("results", {"course": []})

    def write():
        write_json(path, __file__, argv, results, data=options.data, n=len(X))

    def keep(at, classes, labels, seconds):
        row = {**at, **scores(classes, labels), "seconds": seconds}
        # After an interruption some epochs come again.
        course = [r for r in results["course"] if not at.items() <= r.items()]
        results["course"] = [*course, row]
        write()
        print(row, flush=True)

    model = estimator(
        options.fit,
        options.epochs,
        backbone=backbone(options),
        checkpoint=options.folder / case,
        callbacks=[Course(y, options.every, keep)],
        random_state=seed,
    ).fit(X)
    if options.fit == "moco":
        results["end"] = scores(y, kmeans(model._infer(X, "teacher")[0][:, 0]))
    else:
        results["end"] = scores(y, model.labels_)
        if model.init_labels_ is not None:
            results["start of EM"] = scores(y, model.init_labels_)
    write()
    print(results["end"])


if __name__ == "__main__":
    main()
