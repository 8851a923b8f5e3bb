"""
Clustering handwritten digits
=============================

This example clusters 1,797 images of handwritten digits, 8 x 8 pixels each. It compares
three partitions. None of them sees a label.

- k-means clusters the pixels.
- The first stage of MiCE trains a network by contrast, as MoCo does, and clusters the
  features of the network by ``ClassificationEM``. EM starts from this partition.
- MiCE trains the network and the clusters together from there on, by EM.

The second is a part of the third: the comparison shows what EM adds to its own start.
"""

# %%
# Load the images. The digits that they show are used for scores only.

from pathlib import Path
from time import perf_counter

from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from sk_mice import MiCEClustering
from sk_mice.datasets import load_digits
from sk_mice.inspection import (
    ClusterGalleryDisplay,
    EmbeddingDisplay,
    MatchedConfusionDisplay,
    write_report,
)
from sk_mice.metrics import clustering_accuracy_score

X, y, _ = load_digits()

# %%
# Sixty epochs take about half a minute on two cores with bfloat16; the default is 200.
# The first stage takes nine tenths of them.

start = perf_counter()
kmeans = KMeans(10, n_init=20, random_state=0).fit(X.reshape(len(X), -1))
mice = MiCEClustering(10, max_epochs=60, random_state=0, verbose=1).fit(X)
seconds = perf_counter() - start

# %%
# Compare the clusters with the digits. ACC is the accuracy under the best matching of
# clusters with digits, NMI the normalised mutual information, and ARI the adjusted Rand
# index. All three are 1 for perfect clusters.

partitions = {
    "k-means on pixels": kmeans.labels_,
    "first stage of MiCE": mice.init_labels_,
    "MiCE": mice.labels_,
}
lines = [f"{'':20}{'ACC':>7}{'NMI':>7}{'ARI':>7}"]
for name, labels in partitions.items():
    scores = (
        clustering_accuracy_score(y, labels),
        normalized_mutual_info_score(y, labels),
        adjusted_rand_score(y, labels),
    )
    lines.append(f"{name:20}" + "".join(f"{score:7.3f}" for score in scores))
print(*lines, sep="\n")
print(f"Both fits took {seconds:.0f} s.")

# %%
# The default of ``augmentation`` makes random views of a kind that suits the images.
# Handwritten digits are rotated and sheared a little, since they lean to either side.
# They are not mirrored, since mirrored digits are unlike the other images.

print(mice.augmentation_)

# %%
# Each row shows a cluster, its surest images first. The confidence says how often
# random views of an image stay in its cluster. Framed images show a different digit
# from most of the cluster.

gallery = ClusterGalleryDisplay.from_estimator(mice, X, y, n_images=16, cmap="gray_r")
folder = Path(globals().get("__file__", "")).parent  # a notebook has no file
path = folder / "output" / "digits.png"
path.parent.mkdir(exist_ok=True)
gallery.figure_.savefig(path, dpi=150)
print(f"The picture is in {path}")

# %%
# Which digits are confused? The best match of each digit is on the diagonal.

confusion = MatchedConfusionDisplay.from_estimator(mice, X, y)

# %%
# The embeddings of the gate in two dimensions, by digit. MiCE confuses the images that
# lie in the group of another digit.

by_digit = EmbeddingDisplay.from_estimator(mice, X, y, n_points=1000, color_by="class")

# %%
# A page to browse the clusters, in one file that needs no connection: all images of
# each cluster, those that are not sure, a map, and a table to correct and download.

page = path.with_name("digits.html")
write_report(mice, X, page, title="Handwritten digits")
print(f"The report is in {page}")
