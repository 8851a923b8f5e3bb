"""Clusterings of features, fine-tuning, and a small set."""

import statistics

from .files import commit, read
from .tables import OTHER_PAGE, line_on, methods, side_by_side, table

FEATURES = {
    "features_cifar10_jpeg_10000": "CIFAR-10 (JPEG), 10,000 images",
    "features_cifar10_jpeg_10000_efficientnet_lite2_192": "CIFAR-10 (JPEG), 10,000 "
    "images, by EfficientNet-lite2 at 192 pixels",
    "features_cifar10_jpeg_60000": "CIFAR-10 (JPEG), 60,000 images",
    "features_cifar10_jpeg_3935_unbalanced": "CIFAR-10 (JPEG), 3,935 images, the "
    "smallest class a tenth",
    "features_fashion_mnist_10000": "Fashion-MNIST, 10,000 images",
    "features_fashion_mnist_3850_unbalanced": "Fashion-MNIST, 3,850 images, the "
    "smallest class a tenth",
    "features_digits_1797": "Digits, 64 pixels",
    "features_wine_178": "Wine, a table of 13 columns",
    "features_breast_cancer_569": "Breast cancer, a table of 30 columns",
}
CLUSTERERS = {  # methods of benchmarks/features.py, in the order of their tables
    "neighbor-mixture": "`NeighborMixture`",
    "neighbor-mixture-origin": "`NeighborMixture(center=False)`",
    "partition-center": "`ClassificationEM(center=True)`",
    "partition": "`ClassificationEM`",
    "mice": "`MiCEClustering`",
    "mice-neighbors": "`MiCEClustering(n_neighbors=10, augmentation=None)`",
    "mice-without-moco": "the same without a first stage",
    "k-means": "k-means",
    "spherical-k-means": "`SphericalKMeans`",
    "pca-gaussians": "64 components, `GaussianMixture`",
    "pca-hdbscan": "64 components, HDBSCAN",
    "umap-gaussians": "UMAP, `GaussianMixture`",
    "umap-hdbscan": "UMAP, HDBSCAN",
    "temi": "TEMI",
    "turtle": "TURTLE",
}
FINE_TUNED = {  # rows of benchmarks/fine_tuning.py
    "frozen": "`NeighborMixture` on frozen features, 160 pixels",
    "frozen, small": "the same, 96 pixels",
    "fine-tuned": '`MiCEClustering(freeze="all but last")`, 96 pixels',
    "its first stage": "the partition that its EM starts from",
}
OF_SMALL_SET = {  # rows of benchmarks/small_set.py
    "k-means": "k-means on pixels",
    "MiCE, 50 epochs": "`MiCEClustering(max_epochs=50)`",
    "MiCE, SMALL_SET_CPU": "`MiCEClustering(**recipes.SMALL_SET_CPU)`",
    "features, MiCE, PHOTOS_QUICK": (
        "features, `MiCEClustering(**recipes.PHOTOS_QUICK)`"
    ),
    "features, MiCE, 200 epochs": "the same, batches of 256, 200 epochs",
    "features, NeighborMixture": "features, `NeighborMixture`",
    "features, ClassificationEM": "features, `ClassificationEM`",
}


def page():
    parts = [
        "# Clusterings of features",
        f"{OTHER_PAGE}. Each method has its own stopping rule. Seconds (s) are those "
        "of a fit on one core, without the features.",
        "Images are clustered by 1,280 features of EfficientNet-lite0, trained on "
        "ImageNet, at 160 pixels (`PretrainedFeatures`), digits by their pixels, and "
        "tables by their standardised columns. Components are principal components, "
        "at most as many as features. TEMI (BMVC 2023) and TURTLE (ICML 2024) are "
        "reimplemented in `benchmarks/peers.py`, with their authors' settings for "
        "features of CIFAR-10. They take longer than most others, and have fewer "
        "seeds on images. They also ran on the digits, though they were not made for "
        "pixels. HDBSCAN on components does not depend on a seed. "
        '"Without a first stage" '
        "starts EM at a partition of an untrained network's features, which the "
        "estimator does not offer.",
    ]
    for name, head in FEATURES.items():
        parts += of_features(name, head, CLUSTERERS)
    parts += [
        *side_by_side(
            "Neighbours as views",
            {
                "neighbors_digits_vectors": "digits, vectors",
                "neighbors_fashion_mnist_vectors": "Fashion-MNIST, 64 components",
                "neighbors_digits_images": "digits, images, 60 epochs",
            },
            "Where X holds vectors, MiCE without neighbours has noise as augmentation.",
        ),
        "## Fine-tuning",
        "EfficientNet-lite0 sees views of the images, and MiCE trains its last block, "
        "in 6 epochs. Seconds include the features.",
        *of_features(
            "fine_tuning_cifar10_jpeg_10000",
            "CIFAR-10 (JPEG), 10,000 images",
            FINE_TUNED,
        ),
        "## A small set",
        "The first 501 test images of horses, ships and trucks in CIFAR-10 (JPEG). "
        "Seconds include the features.",
        *of_features("small_set", "1,503 photographs", OF_SMALL_SET),
        "## Computing the features",
        *time_of_features(),
    ]
    return parts


def of_features(name, head, labels):
    """A table of clusterers of the same images or vectors, and the command."""
    kept = read(name)
    return methods(head, kept, labels, seconds), line_on(kept)


def time_of_features():
    """What a photograph takes, beside the network as its package has it."""
    kept = read("photographs")
    rows = []
    for size, result in kept["results"].items():
        names = ("features", "network as it is", "decoding")
        took = [f"{1000 * result['seconds'][name]:.1f} ms" for name in names]
        ratio = f"{result['time_to_network']:.2f}"
        rows.append((size, result["image_size"], *took, ratio, commit(kept)))
    head = ("**A photograph of**", "size in the network", "its features")
    head += ("the network as it is", "decoding", "features to the network", "commit")
    text = (
        "EfficientNet-lite0, one thread. Features include the decoding. The network as "
        "it is has separate layers for batch norm, and copies maps to pad them."
    )
    return table(head, *rows), line_on(kept, text)


def seconds(runs):
    """Short ones with a decimal."""
    took = statistics.median(row["seconds"] for row in runs)
    return f"{took:.{took < 10:d}f}"
