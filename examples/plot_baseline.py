"""
MiCE beside the two-stage baseline
==================================

The paper compares MiCE with MoCo, followed by k-means on its embeddings. Here both have
the same number of epochs, on the images of five digits, and three seeds each.
"""

# %%
# The baseline is a pipeline of two estimators. A third partition comes for free: MiCE
# trains as MoCo first, and starts EM from a partition of its features,
# ``init_labels_``.

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.pipeline import make_pipeline

from sk_mice import MiCEClustering, MoCo, SphericalKMeans
from sk_mice.datasets import load_digits
from sk_mice.metrics import clustering_accuracy_score

X, y, _ = load_digits()
X, y = X[y < 5], y[y < 5]
settings = {"max_epochs": 20, "batch_size": 64}
accuracies = {"MoCo, k-means": [], "MiCE's start": [], "MiCE": []}
for seed in range(3):
    baseline = make_pipeline(
        MoCo(random_state=seed, **settings), SphericalKMeans(5, random_state=seed)
    )
    mice = MiCEClustering(5, random_state=seed, **settings).fit(X)
    partitions = baseline.fit_predict(X), mice.init_labels_, mice.labels_
    for name, labels in zip(accuracies, partitions, strict=True):
        accuracies[name].append(clustering_accuracy_score(y, labels))

# %%
# A dot is a seed, a line the mean. Three seeds say little: look at how far the dots of
# one method lie apart before comparing two. The results page has more seeds and data.

figure, ax = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
for row, (name, values) in enumerate(accuracies.items()):
    ax.plot(values, [row] * len(values), "o", color="C0", alpha=0.6, markersize=9)
    ax.plot([np.mean(values)] * 2, [row - 0.25, row + 0.25], color="C1", linewidth=3)
    print(f"{name:15}{np.mean(values):.3f} {np.round(values, 3)}")
ax.set(yticks=range(len(accuracies)), yticklabels=accuracies, xlabel="accuracy")
ax.invert_yaxis()
ax.grid(axis="x", alpha=0.3)

folder = Path(globals().get("__file__", "")).parent  # a notebook has no file
path = folder / "output" / "baseline.png"
path.parent.mkdir(exist_ok=True)
figure.savefig(path, dpi=150)
print(f"The picture is in {path}")
