"""Experiments with EM and its start."""

from .tables import OTHER_PAGE, by_set, side_by_side


def page():
    of_em = "Seconds are those of EM."
    return [
        "# Experiments with EM and its start",
        f"{OTHER_PAGE}, or the mean ACC and NMI. [Training](../../docs/user_guide/"
        "training.md#what-em-gains) has the conclusions, and explains q.",
        *by_set(
            "Votes of neighbours, and a choice by them",
            {
                "neighbor_votes_digits_1797_pixels": "digits, pixels",
                "neighbor_votes_digits_1797": "digits",
                "neighbor_votes_digits_710_unbalanced": "unequal digits",
                "neighbor_votes_fashion_mnist_10000_pixels": "Fashion-MNIST, pixels",
                "neighbor_votes_fashion_mnist_10000": "Fashion-MNIST, 10,000 images",
                "neighbor_votes_fashion_mnist_3850_unbalanced": "unequal Fashion-MNIST",
            },
            "ACC and NMI of partitions of MoCo's features, or of pixels. In a vote, a "
            "row takes the label of most of its ten mutual neighbours. The choices are "
            "among the starts of five seeds and two partitions of k-means, and take "
            "the partition in which the labels of mutual neighbours say the most about "
            "each other. Seconds are those of all columns together. Votes help on the "
            "digits and do a little harm on Fashion-MNIST, so the start of MiCE does "
            "not use them.",
        ),
        *side_by_side(
            "A first stage with small maps",
            {
                "small_maps_fashion_mnist_24": "Fashion-MNIST",
                "small_maps_cifar10_jpeg_24": "CIFAR-10 (JPEG)",
            },
            "The partition that EM would start from, and how often an image and its "
            "nearest neighbour have the same class, after MoCo has trained for the "
            "same time. Small maps: `SmallResNet(max_pool=True)`.",
            more=("neighbour",),
        ),
        *side_by_side(
            "The same in a longer first stage",
            {
                "gpu_small_maps_fashion_mnist": "Fashion-MNIST",
                "gpu_small_maps_cifar10_jpeg": "CIFAR-10 (JPEG)",
            },
            "After 72 epochs of MoCo, or as many as take the same time on a CPU; on an "
            "NVIDIA H200, with several fits at once.",
            more=("neighbour",),
        ),
        *side_by_side(
            "Heads of experts, EM after one first stage",
            {
                "em_heads_digits_200": "digits",
                "em_heads_fashion_mnist_24": "Fashion-MNIST",
            },
            of_em,
        ),
        *side_by_side(
            "The same on classes of very different sizes",
            {
                "em_heads_digits_200_unbalanced": "unequal digits",
                "em_heads_fashion_mnist_24_unbalanced": "unequal Fashion-MNIST",
            },
            of_em,
        ),
        *side_by_side(
            "The same from random weights",
            {
                "em_heads_digits_60_random": "digits, 60 epochs",
                "em_heads_digits_60_unbalanced_random": "unequal digits, 60 epochs",
                "em_heads_fashion_mnist_24_random": "Fashion-MNIST, 24 epochs",
                "em_heads_fashion_mnist_24_unbalanced_random": "unequal Fashion-MNIST, "
                "24 epochs",
            },
            "All epochs are epochs of EM.",
        ),
        *side_by_side(
            "E-steps, EM after one first stage",
            {
                "em_e_steps_digits_200": "digits",
                "em_e_steps_fashion_mnist_24": "Fashion-MNIST",
            },
            f'{of_em} "held" is the default: q stays at the partition, on the digits '
            "for the first half of each round, and on Fashion-MNIST in both epochs of "
            'EM. "batch, free" is the paper\'s: q is the posterior of one random view. '
            "The others compute q once an epoch by the whole model, from all plain "
            "images, from four random views, or from the plain images and ten mutual "
            'neighbours; in the "hard" ones, the largest q becomes 1. kappa is 1 where '
            "no other value is given.",
        ),
    ]
