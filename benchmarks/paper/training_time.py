"""Training time of MiCE and MoCo: seconds of an epoch, and hours of the whole.

Times of an epoch are medians; what a fit does besides its epochs is not counted.

    python benchmarks/paper/training_time.py --scale paper --path data --seeds 0
    python benchmarks/paper/training_time.py --scale cpu-minutes --seeds 0
"""

import statistics

import literature
from _study import study


def figures(seed, model):
    seconds = [row["seconds"] for row in model.history_]
    return {
        "seed": seed,
        "epochs": model.n_iter_,
        "epoch_seconds": statistics.median(seconds),
        "hours": sum(seconds) / 3600,
    }


def main(argv=None):
    this = study(__doc__, __file__, argv, paper_sets=["cifar10"])
    for task in this.tasks():
        for seed in this.options.seeds:
            moco, mice = task.moco(seed).fit(task.X), task.mice(seed).fit(task.X)
            this.keep(task, "MoCo", figures(seed, moco))
            this.keep(task, "MiCE", figures(seed, mice))
        mean = {
            name: statistics.mean(row["epoch_seconds"] for row in rows)
            for name, rows in this.results[task.name].items()
        }
        paper = {name: 3600 * hours / 1000 for name, hours in literature.HOURS.items()}
        for whose, seconds in ((task.name, mean), ("the paper, CIFAR-10", paper)):
            moco, mice = seconds["MoCo"], seconds["MiCE"]
            print(
                f"{whose}: an epoch of MoCo {moco:.2f} s, of MiCE {mice:.2f} s, ratio "
                f"{mice / moco:.2f}"
            )


if __name__ == "__main__":
    main()
