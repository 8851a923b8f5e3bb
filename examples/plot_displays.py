"""
Looking at a fit
================

The displays of ``sk_mice.inspection`` take a fitted estimator, as scikit-learn's do.
This example shows what each of them answers, on the images of six digits.
"""

# %%
# Six digits in six clusters, and a few seconds of training.

from pathlib import Path

from sk_mice import MiCEClustering
from sk_mice.datasets import load_digits
from sk_mice.inspection import (
    ClusterGalleryDisplay,
    EmbeddingDisplay,
    MatchedConfusionDisplay,
    PosteriorDisplay,
    TrainingDisplay,
)

X, y, _ = load_digits()
X, y = X[y < 6], y[y < 6]
mice = MiCEClustering(6, max_epochs=40, batch_size=64, random_state=0).fit(X)

# %%
# **Did training go well?** If so, the ELBO rises within a stage, few labels change at
# the end, and no cluster becomes empty. The ELBO falls where the next stage begins,
# since it has another meaning there.

training = TrainingDisplay.from_estimator(mice)

# %%
# **Has the model decided?** The posterior of all images and clusters, at the beginning
# and at the end of EM. For most images, one value is above 0.5 and the others are below
# 0.2. With temperatures of 1, no value comes near 1; an undecided model has 1/6.

posterior = PosteriorDisplay.from_estimator(mice)

# %%
# **What is in the clusters?** Rows are clusters, the surest images first. With classes,
# a frame marks an image that is not of the class of most of the cluster. Without
# classes, leave out ``y``.

gallery = ClusterGalleryDisplay.from_estimator(mice, X, y, n_images=14, cmap="gray_r")

# %%
# **Which clusters lie close?** The embeddings in two dimensions, by t-SNE. Neighbours
# are alike; distances between groups mean little.

embedding = EmbeddingDisplay.from_estimator(mice, X, n_points=800)

# %%
# **Which classes are confused?** After the best matching of clusters with classes.

confusion = MatchedConfusionDisplay.from_estimator(mice, X, y)

# %%
# Each display has its axes and its figure, to change and to save.

confusion.ax_.set_title("Six digits")
folder = Path(globals().get("__file__", "")).parent  # a notebook has no file
(folder / "output").mkdir(exist_ok=True)
shown = {
    "training": training,
    "posterior": posterior,
    "gallery": gallery,
    "embedding": embedding,
    "confusion": confusion,
}
for name, display in shown.items():
    display.figure_.savefig(folder / "output" / f"displays_{name}.png", dpi=150)
print(f"The pictures are in {folder / 'output'}")
