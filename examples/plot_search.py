"""
Searching the temperatures
==========================

Two temperatures, ``tau`` and ``kappa``, set how sharply the experts and the gate tell
samples apart. This example searches a grid of nine pairs on the images of five digits.
Each pair is scored on held-out images. The picture shows three scores: the accuracy,
which needs labels, and the silhouette and the ELBO, which need none.
"""

# %%
# Two-fold cross-validation fits a model to one random half of the images and scores it
# on the other, and vice versa. Labels are given to the scorers; no fit uses them.

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import check_scoring
from sklearn.model_selection import GridSearchCV, KFold

from sk_mice import MiCEClustering
from sk_mice.datasets import load_digits
from sk_mice.metrics import SCORERS, silhouette_scorer

X, y, _ = load_digits()
X, y = X[y < 5], y[y < 5]

mice = MiCEClustering(5, max_epochs=20, batch_size=64, random_state=0)
grid = {"tau": [0.3, 0.5, 1.0], "kappa": [0.3, 0.5, 1.0]}

# %%
# ``SCORERS`` holds the scores that need labels: accuracy, NMI and ARI. The silhouette
# of the gating embeddings and the mean ELBO need none. The ELBO is ``mice.score``, the
# default of a search.
#
# A few epochs are enough to compare settings. ``refit`` fits the setting of highest
# accuracy to all images. Two jobs run at a time, each on half of the cores.

search = GridSearchCV(
    mice,
    grid,
    scoring=SCORERS | {"silhouette": silhouette_scorer, "elbo": check_scoring(mice)},
    refit="acc",
    cv=KFold(2, shuffle=True, random_state=0),
    n_jobs=2,
)
search.fit(X, y)
print(f"best accuracy: {search.best_score_:.3f} with {search.best_params_}")

# %%
# The ELBO is the log-probability of telling a sample apart from others. Small
# temperatures raise it whatever the clusters are, so it cannot compare temperatures.
# The silhouette falls where a model splits one digit and merges two, but each model is
# scored in its own embedding space. If some images have labels, prefer the scores that
# use them. A difference counts if it is larger than that between seeds.

titles = {
    "acc": "accuracy\n(with labels)",
    "silhouette": "silhouette\n(without)",
    "elbo": "mean ELBO in nats\n(without; not comparable)",
}
shape = len(grid["kappa"]), len(grid["tau"])  # of the candidates, in their order
figure, axes = plt.subplots(1, 3, figsize=(9.6, 4.2), layout="constrained")
for ax, (name, title) in zip(axes, titles.items(), strict=True):
    scores = search.cv_results_[f"mean_test_{name}"].reshape(shape)
    ax.imshow(scores, cmap="viridis")
    best = np.unravel_index(scores.argmax(), shape)
    for place, score in np.ndenumerate(scores):
        ax.annotate(
            f"{score:.3f}",
            place[::-1],
            ha="center",
            va="center",
            color="black" if score > scores.mean() else "white",
            weight="bold" if place == best else "normal",
        )
    ax.set(title=title, xlabel="tau", xticks=range(shape[1]), yticks=range(shape[0]))
    ax.set_xticklabels(grid["tau"])
    ax.set_yticklabels(grid["kappa"])
axes[0].set_ylabel("kappa")
figure.suptitle("Scores on held-out digits; the best of each is bold")

folder = Path(globals().get("__file__", "")).parent  # a notebook has no file
path = folder / "output" / "search.png"
path.parent.mkdir(exist_ok=True)
figure.savefig(path, dpi=150)
print(f"The picture is in {path}")
