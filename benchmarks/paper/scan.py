"""The comparison with SCAN (appendix): MiCE, and MiCE from the networks of MiCE.

The second fit has a learning rate of 0.1 and, in two rows, views of other kinds.

    python benchmarks/paper/scan.py --scale paper --path data
    python benchmarks/paper/scan.py --scale cpu-minutes --data digits
"""

import copy
import sys

import literature
from _study import chosen, study

from sk_mice import recipes

FIRST = "MiCE"
VIEWS = {
    "MiCE pre-training + MiCE": "moco",
    "MiCE pre-training + MiCE (RA)": "randaugment",
    "MiCE pre-training + MiCE (SimCLR)": "simclr",
}


def finetune(model, X, augmentation):
    model = copy.deepcopy(model)
    return model.set_params(**recipes.FINETUNE, augmentation=augmentation).fit(X)


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    this = study(__doc__, __file__, argv, paper_sets=["cifar10"])
    views = chosen(VIEWS, this.options.rows)
    for task in this.tasks():
        for seed in this.options.seeds:
            first, row = task.row(seed, lambda t=task, s=seed: t.mice(s).fit(t.X))
            this.keep(task, FIRST, row)
            for name, kind in views.items():
                _, row = task.row(
                    seed, lambda m=first, t=task, k=kind: finetune(m, t.X, k)
                )
                this.keep(task, name, row)
        paper = {name: {"acc": acc} for name, acc in literature.SCAN.items()}
        this.print_table(task, paper if task.name == "cifar10" else None)


if __name__ == "__main__":
    main()
