"""Figure of histograms: the posterior at the first and last epoch, and the clusters.

The paper's is of CIFAR-10, after epochs 1 and 1,000.

    python benchmarks/paper/posterior.py --scale paper --path data --seeds 0
    python benchmarks/paper/posterior.py --scale cpu-minutes --data digits --seeds 0
"""

import sys

import matplotlib
import numpy as np
from _study import study


def draw(row, path):
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    edges = np.linspace(0, 1, len(row["first"]) + 1)
    for offset, when in ((0.0, "first"), (0.5, "last")):
        width = 0.45 * np.diff(edges)
        left.bar(edges[:-1] + offset * np.diff(edges), row[when], width, align="edge")
    left.legend(["first epoch", "last epoch"])
    left.set(xlabel="posterior", ylabel="share of its values")
    right.bar(range(len(row["sizes"])), row["sizes"])
    right.set(xlabel="cluster", ylabel="images")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, bbox_inches="tight")
    plt.close(figure)


def shares(counts):
    counts = np.asarray(counts)
    return (counts / counts.sum()).tolist()


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    this = study(__doc__, __file__, argv, paper_sets=["cifar10"])
    for task in this.tasks():
        for seed in this.options.seeds:
            model, row = task.row(seed, lambda t=task, s=seed: t.mice(s).fit(t.X))
            row |= {
                "first": shares(model.history_[0]["posterior_counts"]),
                "last": shares(model.history_[-1]["posterior_counts"]),
                "sizes": model.cluster_sizes_.tolist(),
            }
            this.keep(task, "MiCE", row)
            draw(row, this.path("png", task, f"seed{seed}"))


if __name__ == "__main__":
    main()
