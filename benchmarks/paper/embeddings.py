"""Figures of embeddings: first, middle and last epoch, by cluster and by class.

MiCE's are those of the gate, MoCo's those of its head, whose clusters are spherical
k-means'. A cluster has the colour of the class that it is matched with. t-SNE with the
paper's perplexity, of a random choice of the images.

    python benchmarks/paper/embeddings.py --scale paper --path data --seeds 0
    python benchmarks/paper/embeddings.py --scale cpu-minutes --data digits --seeds 0
"""

import math

import literature
from _study import study
from matplotlib import pyplot as plt
from sklearn.manifold import TSNE
from skorch.callbacks import Callback

from sk_mice._engine.inference import Inference
from sk_mice.inspection import EmbeddingDisplay
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


def tsne(n_points, seed):
    # The paper's perplexity is for thousands of points.
    few = n_points < 10 * literature.PERPLEXITY
    perplexity = n_points // 10 if few else literature.PERPLEXITY
    return TSNE(perplexity=perplexity, init="pca", random_state=seed)


def draw(axes, title, **options):
    """By cluster above, by class below."""
    display = EmbeddingDisplay.from_predictions(**options, ax=axes[0])
    display.plot(axes[1], color_by="class")
    for ax, by in zip(axes, ("cluster", "class"), strict=True):
        ax.set_title(f"{title}, by {by}", size=8)


def main(argv=None):
    this = study(__doc__, __file__, argv, paper_sets=["cifar10"])
    for task in this.tasks():
        n_points = min(this.scale.points, len(task.X))
        for seed in this.options.seeds:
            figure, axes = plt.subplots(4, 3, figsize=(12, 16), layout="constrained")
            for i, (name, fit) in enumerate((("MiCE", mice), ("MoCo", moco))):
                for j, (epoch, embeddings, labels) in enumerate(fit(task, seed)):
                    acc = clustering_accuracy_score(task.y, labels)
                    this.keep(task, name, {"seed": seed, "epoch": epoch, "acc": acc})
                    draw(
                        axes[2 * i : 2 * i + 2, j],
                        f"{name}, epoch {epoch} ({100 * acc:.1f}%)",
                        X=embeddings,
                        y_pred=match_labels(task.y, labels),
                        y_true=task.y,
                        n_points=n_points,
                        reducer=tsne(n_points, seed),
                        random_state=0,
                    )
            figure.savefig(this.path("png", task, f"seed{seed}"), dpi=150)
            plt.close(figure)
        if task.name == "cifar10":
            print("the paper: ACC after epochs", literature.EMBEDDINGS)


if __name__ == "__main__":
    main()
