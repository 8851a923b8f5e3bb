"""
Finding outliers
================

A clusterer puts every image into a cluster, also images that belong to none. Its
confidence is a weak sign of such images: it compares clusters with each other, and an
image that is unlike all others may still be much nearer to one cluster. Where an image
lies among the embeddings of others says more. scikit-learn's ``LocalOutlierFactor``
looks there.
"""

# %%
# The first half of the digits is clean. In the second, new half, one image in fifty is
# inverted, black for white.

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import LocalOutlierFactor

from sk_mice import MiCEClustering
from sk_mice.datasets import load_digits

X, _, _ = load_digits()
X_clean, X_new = X[::2], X[1::2]
is_outlier = np.arange(len(X_new)) % 50 == 0
X_new = np.where(is_outlier[:, None, None], X.max() - X_new, X_new)

# %%
# Four scores say how odd an image is. The first two ask how sure a model is of its
# cluster, the third how well the model tells it apart from others. The last compares
# the density of the clean embeddings around it with that around its neighbours.


def oddness(mice, X_fit):
    nearby = LocalOutlierFactor(n_neighbors=10, novelty=True)
    nearby.fit(mice.transform(X_fit))
    clusters = mice.predict(X_new)
    return {
        "posterior": -mice.predict_proba(X_new).max(axis=1),
        "agreement": -mice.agreement(X_new)[np.arange(len(X_new)), clusters],
        "score_samples": -mice.score_samples(X_new),
        "LocalOutlierFactor": -nearby.score_samples(mice.transform(X_new)),
    }


# %%
# The area under the ROC curve is the probability that an outlier is odder than another
# image; chance is 0.5. A model of clean images finds outliers by its embeddings. A
# model that was fitted to the outliers has learned them, and scores differ from seed to
# seed: inverted digits lie close to each other, and may be easy to tell apart.

settings = {"max_epochs": 40, "random_state": 0}
scores = oddness(MiCEClustering(10, **settings).fit(X_clean), X_clean)
seen = oddness(MiCEClustering(10, **settings).fit(X_new), X_new)
print(f"{'fitted to':20}{'clean':>8}{'new':>8}")
for name in scores:
    clean, new = (roc_auc_score(is_outlier, s[name]) for s in (scores, seen))
    print(f"{name:20}{clean:8.3f}{new:8.3f}")

# %%
# So fit to images that you trust. If there are none, compare the images themselves, or
# their pretrained features. Use more neighbours than there are outliers of one kind,
# since outliers are neighbours of each other.

pixels = X_new.reshape(len(X_new), -1)
for n_neighbors in 10, 50:
    lof = LocalOutlierFactor(n_neighbors).fit(pixels)
    auc = roc_auc_score(is_outlier, -lof.negative_outlier_factor_)
    print(f"pixels of the new images, {n_neighbors} neighbours: {auc:.3f}")

# %%
# The 25 new images that each score finds oddest, by the model of clean images. Frames
# mark the inverted ones.

n_shown = 25
figure, axes = plt.subplots(len(scores), figsize=(9.6, 4), layout="constrained")
for ax, (name, score) in zip(axes, scores.items(), strict=True):
    oddest = np.argsort(-score)[:n_shown]
    ax.imshow(np.hstack([np.pad(X_new[i], 1) for i in oddest]), cmap="gray_r")
    for place in np.flatnonzero(is_outlier[oddest]):
        frame = {"fill": False, "edgecolor": "tab:red", "linewidth": 2}
        ax.add_patch(plt.Rectangle((10 * place - 0.5, -0.5), 10, 10, **frame))
    found = is_outlier[oddest].sum()
    title = f"{name}: {found} of {is_outlier.sum()} outliers"
    ax.set_title(title, loc="left", fontsize=10)
    ax.set_axis_off()

folder = Path(globals().get("__file__", "")).parent  # a notebook has no file
path = folder / "output" / "outliers.png"
path.parent.mkdir(exist_ok=True)
figure.savefig(path, dpi=150)
print(f"The picture is in {path}")
