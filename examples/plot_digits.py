"""
Clustering handwritten digits
=============================

Scikit-learn comes with 1,797 images of handwritten digits, 8 x 8 pixels each. Here they
are clustered in three ways, none of which sees a label: by k-means on the pixels; by
k-means on features that contrast alone has learned, which is the two-stage baseline of
the MiCE paper; and by MiCE, which learns features and clusters together.
"""

# %%
# The images and, for the scores at the end, the digit that each one shows.

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
# MiCE makes random views of an image: crops, and changes of brightness and contrast.
# Mirror images it leaves out by itself: a mirrored digit lies farther from the other
# images than the digit does, which tells without a label that it is none. And by itself
# it turns and shears the views a little, as the digits lean this way and that.
#
# MoCo, the first stage of the baseline, gets the same views, the same network and the
# same number of epochs; only k-means has to be told to restart, as it does inside MiCE.

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
# Fit each, and compare its clusters with the digits. ACC is the share of images in the
# right cluster under the best matching of clusters with digits, NMI the normalised
# mutual information, ARI the adjusted Rand index; 1 is perfect for all three. The
# seconds are those of the fit.

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
# The posterior says how sure the model is of an image's cluster. At temperatures of 1
# it is soft, and where chance is 0.1 a value of 0.4 is high: what counts is the order.
# Each row below is a cluster, its most confident images first.

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
    f"Framed: {n_framed} that show another digit than their cluster is matched with",
    fontsize=10,
)

folder = Path(globals().get("__file__", "")).parent  # a notebook has no file
path = folder / "output" / "digits.png"
path.parent.mkdir(exist_ok=True)
figure.savefig(path, dpi=150)
print(f"The picture is in {path}")
