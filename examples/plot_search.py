"""
Searching the temperatures
==========================

Two temperatures, ``tau`` and ``kappa``, set how sharply the experts and the gate tell
samples apart. This example searches a grid of nine pairs on the images of five digits.
Each pair is scored on held-out images. Heat maps show three scores: the accuracy, which
needs labels, and the silhouette and the ELBO, which need none.
"""

# %%
# Two-fold cross-validation fits a model to one random half of the images and scores it
# on the other, and vice versa. Labels are given to the scorers; no fit uses them. The
# folds must be shuffled: the default folds of clusterers are not, and hold whole
# classes out if the samples are sorted by class.

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import check_scoring
from sklearn.model_selection import GridSearchCV, KFold

from sk_mice import MiCEClustering
from sk_mice.datasets import load_digits
from sk_mice.inspection import MatchedConfusionDisplay
from sk_mice.metrics import SCORERS, silhouette_scorer

X, y, _ = load_digits()
X, y = X[y < 5], y[y < 5]

mice = MiCEClustering(5, max_epochs=15, batch_size=64, random_state=0)
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

names = {"acc": "accuracy", "silhouette": "silhouette", "elbo": "ELBO"}
results = search.cv_results_
figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.7), layout="constrained")
for ax, (name, title) in zip(axes, names.items(), strict=True):
    scores = results[f"mean_test_{name}"].reshape(len(grid["kappa"]), -1)
    ax.imshow(scores, cmap="viridis")
    for (row, column), score in np.ndenumerate(scores):
        dark = score < (scores.min() + scores.max()) / 2
        colour = "white" if dark else "black"
        ax.text(column, row, f"{score:.2f}", ha="center", va="center", color=colour)
    ax.set(xticks=range(len(grid["tau"])), xticklabels=grid["tau"], xlabel="tau")
    ax.set(yticks=range(len(grid["kappa"])), yticklabels=grid["kappa"], ylabel="kappa")
    ax.set_title(title)

folder = Path(globals().get("__file__", "")).parent  # a notebook has no file
path = folder / "output" / "search.png"
path.parent.mkdir(exist_ok=True)
figure.savefig(path, dpi=150)
print(f"The picture is in {path}")

# %%
# The best setting by accuracy, fitted to all images: which digits does it confuse?

confusion = MatchedConfusionDisplay.from_estimator(search.best_estimator_, X, y)
