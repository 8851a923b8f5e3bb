"""The comparison with SCAN (appendix): MiCE, and MiCE from the networks of MiCE.

The second fit has a learning rate of 0.1 and, in two rows, views of other kinds. Of
RandAugment they have torchvision's operations, all of one strength, where SCAN draws
strengths at random.

    python benchmarks/paper/scan.py --scale paper --path data
    python benchmarks/paper/scan.py --scale cpu-minutes --data digits
"""

import copy
from functools import partial

import literature
import torch
from _study import chosen, study
from torchvision.transforms import v2

from sk_mice import recipes


def randaugment(stack, generator, *, crop_scale, flip):
    """A crop, a flip, four operations and a cutout, drawn for every eight images.

    SCAN's code draws them for each image, and has no crop that is resized.
    """
    view = v2.Compose(
        [
            v2.RandomResizedCrop(stack.shape[2:], scale=crop_scale),
            v2.RandomHorizontalFlip(0.5 * flip),
            v2.RandAugment(num_ops=4),
            v2.RandomErasing(p=1, scale=(0.001, 0.25), ratio=(1, 1), value=0.5),
        ]
    )
    return torch.cat([view(images) for images in stack.split(8)])


def with_randaugment(first):
    """Parameters of views that are cropped and mirrored as those of the first fit."""
    views = first.augmentation_
    own = {"crop_scale": views.crop_scale, "flip": views.flip}
    return {"augmentation": partial(randaugment, **own)}


# Parameters of the second fit, from the model of the first. "simclr" has the strength
# of ImageNet, with blur; SCAN's code has half of it for CIFAR-10, without blur.
VIEWS = {
    "MiCE pre-training + MiCE": lambda first: {},
    "MiCE pre-training + MiCE (RA)": with_randaugment,
    "MiCE pre-training + MiCE (SimCLR)": lambda first: {
        "augmentation__colors": "simclr"
    },
}


def finetune(first, X, views):
    model = copy.deepcopy(first)
    return model.set_params(**recipes.FINETUNE, **views(first)).fit(X)


def main(argv=None):
    this = study(__doc__, __file__, argv, paper_sets=["cifar10"])
    views = chosen(VIEWS, this.options.rows)
    for task in this.tasks():
        for seed in this.options.seeds:
            first = task.mice(seed).fit(task.X)
            this.keep(task, "MiCE", task.row(seed, first))
            for name, of_first in views.items():
                second = finetune(first, task.X, of_first)
                this.keep(task, name, task.row(seed, second))
        paper = {name: {"acc": acc} for name, acc in literature.SCAN.items()}
        this.print_table(task, paper if task.name == "cifar10" else None)


if __name__ == "__main__":
    main()
