"""
Clustering handwritten digits
=============================

This example clusters 1,797 images of handwritten digits, 8 x 8 pixels each, in three
ways. None of them sees a label.

- k-means clusters the pixels.
- MoCo learns embeddings by contrast, and spherical k-means clusters them. This is the
  two-stage baseline of the MiCE paper.
- MiCE clusters MoCo's features, and then trains embeddings and clusters
  together.
"""

# %%
# Load the images. The digits that they show are used for scores only.

from pathlib import Path
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.pipeline import make_pipeline

from sk_mice import MiCEClustering, MoCo, SphericalKMeans
from sk_mice.datasets import load_digits
from sk_mice.metrics import clustering_accuracy_score, match_labels

X, y, _ = load_digits()
n_clusters = 10

# %%
# MoCo gets the network, the views and the number of epochs of MiCE. MiCE starts from a
# partition that is the best of many restarts; k-means is told to restart, too.

mice = MiCEClustering(n_clusters, random_state=0, verbose=1)
moco = MoCo(max_epochs=mice.max_epochs, random_state=0, verbose=1)
methods = {
    "k-means on pixels": KMeans(n_clusters, n_init=20, random_state=0),
    "MoCo, then k-means": make_pipeline(
        moco, SphericalKMeans(n_clusters, n_init=20, random_state=0)
    ),
    "MiCE": mice,
}

# %%
# Fit each method, and compare its clusters with the digits. ACC is the accuracy under
# the best matching of clusters with digits, NMI the normalised mutual information, and
# ARI the adjusted Rand index. All three are 1 for perfect clusters. The seconds are
# those of the fit.

lines = [f"{'':20}{'ACC':>7}{'NMI':>7}{'ARI':>7}{'seconds':>10}"]
for name, method in methods.items():
    samples = X.reshape(len(X), -1) if name == "k-means on pixels" else X
    start = perf_counter()
    labels = method.fit_predict(samples)
    seconds = perf_counter() - start
    scores = (
        clustering_accuracy_score(y, labels),
        normalized_mutual_info_score(y, labels),
        adjusted_rand_score(y, labels),
    )
    columns = "".join(f"{score:7.3f}" for score in scores)
    lines.append(f"{name:20}{columns}{seconds:10.1f}")
print(*lines, sep="\n")

# %%
# The default of ``augmentation`` makes random views of a kind that suits the images.
# Handwritten digits are rotated and sheared a little, since they lean to either side.
# They are not mirrored, since mirrored digits are unlike the other images.

print(mice.augmentation_)

# %%
# ``predict_proba`` gives the posterior over the clusters. At the default temperatures
# of 1 it is soft: with ten clusters a largest value of 0.4 is high. Its order is
# informative. Each row below shows a cluster, the images of highest confidence first.

n_shown = 16
confidence = mice.predict_proba(X).max(axis=1)
matched = match_labels(y, mice.labels_)

figure, axes = plt.subplots(
    n_clusters, n_shown, figsize=(9.6, 7.4), layout="constrained"
)
figure.suptitle(f"MiCE on {len(X):,} handwritten digits: every cluster's surest images")
n_framed = 0
for digit, row in enumerate(axes):
    members = np.flatnonzero(matched == digit)
    members = members[np.argsort(-confidence[members], kind="stable")]
    if len(members):
        row[0].set_ylabel(
            f"{len(members)} images\nconfidence {confidence[members].mean():.2f}",
            rotation=0,
            ha="right",
            va="center",
        )
    for ax in row:
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    for ax, index in zip(row, members, strict=False):
        ax.imshow(X[index], cmap="gray_r", vmin=0, vmax=16)
        if y[index] != digit:
            ax.spines[:].set(visible=True, color="tab:red", linewidth=2)
            n_framed += 1
figure.supxlabel(
    f"Framed: {n_framed} images of another digit than that of their cluster",
    fontsize=10,
)

folder = Path(globals().get("__file__", "")).parent  # a notebook has no file
path = folder / "output" / "digits.png"
path.parent.mkdir(exist_ok=True)
figure.savefig(path, dpi=150)
print(f"The picture is in {path}")
