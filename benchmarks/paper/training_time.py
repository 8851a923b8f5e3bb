"""Training time: seconds of an epoch, and hours of all epochs.

Of MoCo, of MiCE, and of MiCE with the appendix's passes over the expert prototypes,
which take several times as long. Times of an epoch are medians; ratios are of hours, as
the number of passes changes from epoch to epoch. What a fit does besides its epochs is
not counted.

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


FITS = {
    "MoCo": lambda task, seed: task.moco(seed),
    "MiCE": lambda task, seed: task.mice(seed),
    "passes": lambda task, seed: task.mice(seed, expert_prototypes="passes"),
}


def print_ratios(whose, hours):
    parts = ", ".join(f"{name} {value:.3g}" for name, value in hours.items())
    once, more = hours["MiCE"] / hours["MoCo"], hours["passes"] / hours["MiCE"]
    print(f"{whose}: hours of {parts}")
    print(f"  MiCE costs {once:.2f} of MoCo, with passes {more:.1f} of MiCE")


def main(argv=None):
    this = study(__doc__, __file__, argv, paper_sets=["cifar10"])
    for task in this.tasks():
        for seed in this.options.seeds:
            for name, model in FITS.items():
                this.keep(task, name, figures(seed, model(task, seed).fit(task.X)))
        hours = {
            name: statistics.mean(row["hours"] for row in rows)
            for name, rows in this.results[task.name].items()
        }
        print_ratios(task.name, hours)
    print_ratios("the paper, CIFAR-10", literature.HOURS)


if __name__ == "__main__":
    main()
