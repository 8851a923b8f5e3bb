"""Figures of embeddings: first, middle and last epoch, by cluster and by class.

MiCE's are those of the gate, MoCo's those of its head, whose clusters are spherical
k-means'. A cluster has the colour of the class that it is matched with. t-SNE with the
paper's perplexity, of a random choice of the images.

    python benchmarks/paper/embeddings.py --scale paper --path data --seeds 0
    python benchmarks/paper/embeddings.py --scale cpu-minutes --data digits --seeds 0
"""

import math
import sys

import literature
import matplotlib
import numpy as np
from _study import study
from sklearn.manifold import TSNE
from skorch.callbacks import Callback

from sk_mice._engine.inference import Inference
from sk_mice.metrics import clustering_accuracy_score, match_labels


class Snapshots(Callback):
    """What the model infers about the training samples after some of the epochs."""

    def __init__(self, epochs, *wanted):
        self.epochs = epochs
        self.wanted = wanted
        self.taken = {}

    def on_epoch_end(self, net, dataset_train=None, **kwargs):
        epoch = len(net.history)
        if epoch in self.epochs:
            net.module_.eval()
            inference = Inference(net.module_)
            found = inference.over(dataset_train, net.views, *self.wanted)
            self.taken[epoch] = found
            net.module_.train()


def epochs_shown(n_epochs):
    """The first, the one in the middle and the last."""
    return sorted({1, math.ceil(n_epochs / 2), n_epochs})


def mice(task, seed):
    """Embeddings and labels after each epoch that is shown."""
    model = task.mice(seed, checkpoint=None)
    snapshots = Snapshots(epochs_shown(model.max_epochs), "gating", "joint")
    model.set_params(callbacks=[snapshots]).fit(task.X)
    for epoch, (g, joint) in snapshots.taken.items():
        yield epoch, g, joint.argmax(axis=1)


def moco(task, seed):
    model = task.moco(seed, checkpoint=None)
    snapshots = Snapshots(epochs_shown(model.max_epochs), "teacher")
    model.set_params(callbacks=[snapshots]).fit(task.X)
    for epoch, (v,) in snapshots.taken.items():
        yield epoch, v[:, 0], task.kmeans(v[:, 0], seed)


def in_the_plane(embeddings, seed):
    # The paper's perplexity is for thousands of points.
    few = len(embeddings) < 10 * literature.PERPLEXITY
    tsne = TSNE(
        perplexity=len(embeddings) // 10 if few else literature.PERPLEXITY,
        max_iter=250 if len(embeddings) < 100 else 1000,  # 250 are the least
        init="pca",
        random_state=seed,
    )
    return tsne.fit_transform(embeddings)


def draw(panels, classes, path):
    """Rows: each method by cluster, then by class. Columns: epochs."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    n_columns = max(map(len, panels.values()))
    figure, axes = plt.subplots(
        2 * len(panels),
        n_columns,
        figsize=(3 * n_columns, 6 * len(panels)),
        squeeze=False,
    )
    scale = {"cmap": "tab20", "vmin": classes.min(), "vmax": classes.max()}
    for i, (name, columns) in enumerate(panels.items()):
        for j, (epoch, points, labels, acc) in enumerate(columns):
            for by, colors, axis in (
                ("cluster", labels, axes[2 * i, j]),
                ("class", classes, axes[2 * i + 1, j]),
            ):
                axis.scatter(*points.T, c=colors, s=2, linewidths=0, **scale)
                axis.set_title(f"{name}, epoch {epoch} ({100 * acc:.1f}%), by {by}")
                axis.title.set_fontsize(7)
                axis.set(xticks=[], yticks=[])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, bbox_inches="tight")
    plt.close(figure)


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    this = study(__doc__, __file__, argv, paper_sets=["cifar10"])
    for task in this.tasks():
        n_points = min(this.scale.points, len(task.X))
        shown = np.random.RandomState(0).permutation(len(task.X))[:n_points]
        for seed in this.options.seeds:
            panels = {}
            for name, fit in (("MiCE", mice), ("MoCo", moco)):
                panels[name] = []
                for epoch, embeddings, labels in fit(task, seed):
                    acc = clustering_accuracy_score(task.y, labels)
                    this.keep(task, name, {"seed": seed, "epoch": epoch, "acc": acc})
                    points = in_the_plane(embeddings[shown], seed)
                    matched = match_labels(task.y, labels)[shown]
                    panels[name].append((epoch, points, matched, acc))
            draw(panels, task.y[shown], this.path("png", task, f"seed{seed}"))
        if task.name == "cifar10":
            print("the paper: ACC after epochs", literature.EMBEDDINGS)


if __name__ == "__main__":
    main()
