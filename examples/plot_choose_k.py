"""
Choosing the number of clusters
===============================

How many clusters are there? ``choose_n_clusters`` compares several numbers by the
stability of the clusters: whether models of two random halves of the samples find the
same ones. It needs no labels, and takes any clusterer, MiCE as well as k-means. This
example uses k-means, whose fits take milliseconds.
"""

# %%
# The chemistry of 178 wines from three growers. Each candidate is fitted to the two
# halves of twenty random splits.

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sk_mice import SphericalKMeans
from sk_mice.model_selection import choose_n_clusters

pipeline = make_pipeline(StandardScaler(), SphericalKMeans())
wine = choose_n_clusters(pipeline, load_wine().data, range(2, 9), random_state=0)
print(wine)

# %%
# Three clusters are found again more often than any other number, and there are three
# growers. The choice is the largest number whose stability is within one standard error
# of the best. Look at the whole curve: this one has a clear top, and falls after it.

# %%
# What stability does not tell is whether there are clusters at all. k-means cuts points
# that fill a square evenly into much the same four quarters each time.

from sklearn.cluster import KMeans

square = np.random.default_rng(0).uniform(size=(500, 2))
evenly = choose_n_clusters(KMeans(n_init=3), square, range(2, 9), random_state=0)
print(evenly)

figure, axes = plt.subplots(1, 2, figsize=(9.6, 4), sharey=True, layout="constrained")
wine.plot(ax=axes[0]).set_title("Wine: three growers")
evenly.plot(ax=axes[1]).set_title("A square without clusters")
axes[1].get_legend().remove()

folder = Path(globals().get("__file__", "")).parent  # a notebook has no file
path = folder / "output" / "choose_k.png"
path.parent.mkdir(exist_ok=True)
figure.savefig(path, dpi=150)
print(f"The picture is in {path}")

# %%
# The number of clusters for MiCE is chosen in the same way. Its fits take longer, so
# use few splits, short fits and, of a large set, a sample:
# ``choose_n_clusters(MiCEClustering(max_epochs=50), X, candidates, n_repeats=3,
# verbose=1)`` shows the time that is left.
