"""Figure of histograms: the posterior at the first and last epoch, and the clusters.

The paper's is of CIFAR-10, after epochs 1 and 1,000.

    python benchmarks/paper/posterior.py --scale paper --path data --seeds 0
    python benchmarks/paper/posterior.py --scale cpu-minutes --data digits --seeds 0
"""

from _study import study
from matplotlib import pyplot as plt

from sk_mice.inspection import PosteriorDisplay


def main(argv=None):
    this = study(__doc__, __file__, argv, paper_sets=["cifar10"])
    for task in this.tasks():
        for seed in this.options.seeds:
            model = task.mice(seed).fit(task.X)
            display = PosteriorDisplay.from_estimator(model)
            row = task.row(seed, model) | {
                "first": display.shares[0].tolist(),
                "last": display.shares[-1].tolist(),
                "sizes": model.cluster_sizes_.tolist(),
            }
            this.keep(task, "MiCE", row)
            path = this.path("png", task, f"seed{seed}")
            display.figure_.savefig(path, dpi=150)
            plt.close(display.figure_)


if __name__ == "__main__":
    main()
