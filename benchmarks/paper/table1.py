"""Table 1: MiCE and the two-stage baseline on four data sets, beside the literature.

Our own start stands in a row of its own, as the paper starts at random.

    python benchmarks/paper/table1.py --scale paper --data cifar10 --path data
    python benchmarks/paper/table1.py --scale gpu-30min --path cifar10-jpeg.tar.xz
    python benchmarks/paper/table1.py --scale cpu-minutes
"""

import literature
from _study import run_rows, study

ROWS = {
    "MoCo, spherical k-means": lambda task, seed: task.two_stage(seed),
    "MiCE": lambda task, seed: task.mice(seed).fit(task.X),
    # Not the paper's: it does without any pre-training.
    "MiCE, two-stage start (ours)": lambda task, seed: task.mice(
        seed, init="two-stage"
    ).fit(task.X),
}


def main(argv=None):
    this = study(__doc__, __file__, argv)
    run_rows(this, ROWS, lambda task: literature.TABLE_1.get(task.name))


if __name__ == "__main__":
    main()
