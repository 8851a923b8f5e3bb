"""
Clustering vectors
==================

Images have natural random views: a crop of a cat is a cat. Vectors have none. For them,
a view of a sample can be one of its nearest neighbours, by ``n_neighbors``. This
example clusters the digits as if they were vectors of 64 numbers, and compares k-means,
``ClassificationEM``, MiCE with noise, its default for vectors, and MiCE with
neighbours.
"""

# %%
# The rows of X are vectors unless ``image_shape`` says otherwise. Scale features with
# different units first. The features of the digits are all grey values, so they need no
# scaling.

from pathlib import Path
from time import perf_counter

import matplotlib.pyplot as plt
import sklearn.datasets
from sklearn.cluster import KMeans

from sk_mice import ClassificationEM, MiCEClustering
from sk_mice.inspection import EmbeddingDisplay
from sk_mice.metrics import clustering_accuracy_score

X, y = sklearn.datasets.load_digits(return_X_y=True)
settings = {"max_epochs": 60, "random_state": 0}
clusterers = {
    "k-means": KMeans(10, n_init=20, random_state=0),
    "ClassificationEM": ClassificationEM(10, random_state=0),
    "MiCE, noise": MiCEClustering(10, **settings),
    "MiCE, neighbours": MiCEClustering(
        10, n_neighbors=10, augmentation=None, **settings
    ),
}
accuracies = {}
for name, clusterer in clusterers.items():
    start = perf_counter()
    labels = clusterer.fit_predict(X)
    accuracies[name] = clustering_accuracy_score(y, labels)
    print(f"{name:18}{accuracies[name]:.3f} in {perf_counter() - start:4.1f} s")

# %%
# What the two kinds of views make of the same vectors: the embeddings of the gate, by
# digit. With neighbours as views, digits that look alike lie together.

figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.8), layout="constrained")
for ax, name in zip(axes, ["MiCE, noise", "MiCE, neighbours"], strict=True):
    EmbeddingDisplay.from_estimator(
        clusterers[name], X, y, n_points=800, color_by="class", ax=ax
    )
    ax.set_title(f"{name}: accuracy {accuracies[name]:.2f}")

folder = Path(globals().get("__file__", "")).parent  # a notebook has no file
path = folder / "output" / "vectors.png"
path.parent.mkdir(exist_ok=True)
figure.savefig(path, dpi=150)
print(f"The picture is in {path}")
