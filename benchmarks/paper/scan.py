"""The comparison with SCAN (appendix): MiCE, and MiCE from the networks of MiCE.

The second fit has a learning rate of 0.1 and, in two rows, views of other kinds. Of
RandAugment they have torchvision's operations, all of one strength, where SCAN draws
strengths at random.

    python benchmarks/paper/scan.py --scale paper --path data
    python benchmarks/paper/scan.py --scale cpu-minutes --data digits
"""

import copy
import sys

import literature
import torch
from _study import chosen, study
from torchvision.transforms import v2

from sk_mice import recipes

FIRST = "MiCE"


def randaugment(stack, generator):
    """A crop, a flip, four operations and a cutout, drawn for every eight images."""
    view = v2.Compose(
        [
            v2.RandomResizedCrop(stack.shape[2:], scale=(0.2, 1)),
            v2.RandomHorizontalFlip(),
            v2.RandAugment(num_ops=4),
            v2.RandomErasing(p=1, scale=(0.001, 0.25), ratio=(1, 1), value=0.5),
        ]
    )
    return torch.cat([view(images) for images in stack.split(8)])


VIEWS = {
    "MiCE pre-training + MiCE": "moco",
    "MiCE pre-training + MiCE (RA)": randaugment,
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
