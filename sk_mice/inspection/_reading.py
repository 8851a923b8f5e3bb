"""What a fitted clusterer says of samples, and what there is to doubt about it."""

from dataclasses import dataclass, field
from numbers import Integral
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array, issparse
from scipy.sparse.csgraph import connected_components
from sklearn.base import is_clusterer
from sklearn.utils.validation import check_is_fitted

from .._directions import by_blocks, directions
from .._engine.nearest import nearest_neighbors, shares_of_neighbors
from .._pipelines import first_step, last_step, last_with_input
from .._words import count
from ._duplicates import SIDE

N_NEIGHBORS = 10  # replace the random views of a model that has none
MOST_PAIRS = 100  # pairs of nearly equal images that are named
# Where doubts begin, here and in the script of the page.
LIMITS = {
    "steady": 0.9,  # mean agreement of clusters
    "unsure": 0.7,
    "pure": 0.8,  # share of the most frequent class, where classes are known
    "shared": 0.2,  # least share of the views in a second cluster
    "small": 0.25,  # times an even share of the samples
    "large": 3.0,
    "members": 0.1,  # least share of the smaller of two clusters
    "same": 0.9,  # least share of a corrected table that has the clusters of the fit
}

# What the confidence of a sample is.
OF_VIEWS = "the share of its random views that stay in its cluster"
OF_NEIGHBORS = (
    f"the share of its {N_NEIGHBORS} nearest neighbours, those most like it, that are "
    "in its cluster, or of fewer neighbours in a smaller cluster"
)
GIVEN = "the confidence that was passed to the report"
GIVEN_SHARES = "the share of its views or neighbours, as passed to the report"
UNITS = {OF_VIEWS: "views", GIVEN_SHARES: "views or neighbours"}


@dataclass(frozen=True)
class Reading:
    """What a model says of N samples in K clusters."""

    labels: np.ndarray  # (N,)
    confidence: np.ndarray  # (N,)
    second: np.ndarray  # (N,) the cluster that comes next; -1 is none
    second_share: np.ndarray  # (N,) of the views
    order: np.ndarray  # (N,) the samples, most certain first
    embeddings: np.ndarray  # (N, D) unit rows
    n_clusters: int
    meaning: str  # what the confidence is, in words
    others: coo_array  # (N, K) shares of clusters that are not its own

    @property
    def sizes(self) -> np.ndarray:
        """Samples in each cluster, (K,)."""
        return np.bincount(self.labels, minlength=self.n_clusters)

    @property
    def is_alone(self) -> bool:
        """Whether neighbours were to be counted, and the only sample has none."""
        return len(self.labels) == 1 and self.is_of_neighbors

    @property
    def is_of_neighbors(self) -> bool:
        """Whether samples that are alone in their cluster have no confidence."""
        return self.meaning == OF_NEIGHBORS

    @property
    def mean(self) -> float | None:
        """Mean confidence of the samples that have one; None if none has."""
        known = self.confidence
        if self.is_of_neighbors:
            known = known[self.sizes[self.labels] > 1]
        return float(known.mean()) if len(known) else None

    @property
    def measure(self) -> str:
        """The confidence in a word."""
        return "confidence" if self.meaning == GIVEN else "agreement"

    @property
    def means(self) -> np.ndarray:
        """Mean confidence of each cluster, (K,); 0 if it is empty."""
        sums = np.bincount(self.labels, self.confidence, self.n_clusters)
        return sums / np.maximum(self.sizes, 1)


class Chip(NamedTuple):
    """A cluster to look at, what to say of it, and which of its samples to show."""

    cluster: int
    detail: str
    filter: str = ""
    other: int | None = None  # the second cluster of a pair


@dataclass(frozen=True)
class Doubt:
    """A sentence, and its clusters or pairs of samples.

    The page has a test for each kind, as a doubt may end when clusters are merged.
    """

    kind: str
    sentence: str
    clusters: list[Chip]
    pairs: list[list[int]] = field(default_factory=list)


# ----------------------------------------------------------------------- reading


def check_model(model):
    """The first step and the clusterer of a model, TypeError if there is none."""
    last, _ = last_step(model)
    if not hasattr(last, "__sklearn_tags__") or not is_clusterer(last):
        raise TypeError(
            "`model` must be a fitted clusterer, or a pipeline whose last step is one; "
            f"got {model!r}."
        )
    check_is_fitted(last)
    return first_step(model), last


def is_mixture(clusterer) -> bool:
    """Whether a clusterer is a `MiCEClustering`: asked without importing torch."""
    return hasattr(clusterer, "_predict_all")


def read(model, X, confidence=None, random_state=0) -> Reading:
    """Ask a model for everything that the page shows of the samples."""
    check_model(model)
    last, features = last_with_input(model, X)
    shares = None if confidence is None or confidence.ndim == 1 else confidence
    if is_mixture(last):
        if confidence is None:  # first, as it refuses a model without its augmentation
            shares = last.agreement(features, random_state=random_state)
        labels, posterior, embeddings = last._predict_all(features)
        n_clusters = posterior.shape[1]
    else:
        labels, n_clusters = _labels(last, features)
        posterior = None
        embeddings = features.toarray() if issparse(features) else np.asarray(features)
    embeddings = _unit_rows(embeddings.reshape(len(labels), -1))

    meaning = _meaning(last, confidence)
    if shares is None:
        nearest, _ = nearest_neighbors(embeddings, N_NEIGHBORS)
        shares = shares_of_neighbors(labels, nearest, n_clusters)
    if shares.shape[1] != n_clusters:
        raise ValueError(
            f"`confidence` must have one column for each of {n_clusters} clusters; got "
            f"shape {shares.shape}."
        )
    if posterior is None:
        has_posterior = hasattr(last, "predict_proba")
        posterior = last.predict_proba(features) if has_posterior else shares
    own = confidence if meaning == GIVEN else None
    return from_shares(labels, shares, posterior, embeddings, meaning, own)


def from_shares(labels, shares, posterior, embeddings, meaning, confidence=None):
    """The `Reading` of shares (N, K) in each cluster, or of a given confidence."""
    rows = np.arange(len(labels))
    own = shares[rows, labels] if confidence is None else confidence
    second, second_share = _second(shares, posterior, labels)
    order = np.lexsort((-posterior[rows, labels], -own))
    return Reading(
        labels=labels,
        confidence=own,
        second=second,
        second_share=second_share,
        order=order,
        embeddings=embeddings,
        n_clusters=shares.shape[1],
        meaning=meaning,
        others=_of_others(shares, labels),
    )


def merged(reading: Reading, into) -> Reading:
    """The reading of clusters that are parts of others: k of K is in `into[k]`.

    Shares in clusters that are one now are added, as in the page.
    """
    labels, others, before = into[reading.labels], reading.others, reading.second
    shares, was_second = np.zeros((2, len(labels), into.max() + 1))
    shares[np.arange(len(labels)), labels] = reading.confidence
    np.add.at(shares, (others.row, into[others.col]), others.data)
    rows = np.flatnonzero(before >= 0)
    was_second[rows, into[before[rows]]] = 1  # decides among equals
    shares = np.minimum(shares, 1)
    return from_shares(labels, shares, was_second, reading.embeddings, reading.meaning)


def _unit_rows(rows):
    """Unit rows (N, D), float32; values may lie beyond float32."""
    wide = np.float64 if rows.dtype.itemsize > 4 else np.float32
    return by_blocks(lambda some: directions(some.astype(wide)), rows, np.float32)


def _meaning(clusterer, confidence) -> str:
    """A description of the confidence."""
    if confidence is not None and confidence.ndim == 1:
        return GIVEN
    # Missing only if it was a function of the user's, which a file does not hold.
    has_views = getattr(clusterer, "augmentation_", OF_VIEWS) is not None
    if is_mixture(clusterer) and clusterer._format.is_image and has_views:
        return OF_VIEWS
    return OF_NEIGHBORS if confidence is None else GIVEN_SHARES


def _labels(clusterer, features):
    if hasattr(clusterer, "predict"):
        labels = np.asarray(clusterer.predict(features))
    else:
        labels = np.asarray(clusterer.labels_)
        if len(labels) != len(features):
            raise ValueError(
                f"X must be the {len(labels)} samples of `fit`, as `model` has no "
                f"`predict`; got {len(features)}."
            )
    if labels.min() < 0:
        raise ValueError("`model` must give every sample a cluster; it has label -1.")
    labels = labels.astype(np.int64)
    return labels, max(_n_fitted(clusterer), int(labels.max()) + 1)


def _n_fitted(clusterer) -> int:
    """Clusters of the fit: the parameter may be that of the next one."""
    for name in ("cluster_centers_", "gating_prototypes_", "means_"):
        if hasattr(clusterer, name):
            return len(getattr(clusterer, name))
    parameter = getattr(clusterer, "n_clusters", None)
    return int(parameter) if isinstance(parameter, Integral) else 0


def _second(shares, posterior, labels):
    """The most frequent other cluster (N,), by the posterior among equals."""
    rows, n_clusters = np.arange(len(labels)), shares.shape[1]
    if n_clusters < 2:
        return np.full(len(labels), -1), np.zeros(len(labels))
    rank = shares + 1e-3 * posterior
    rank[rows, labels] = -1
    second = rank.argmax(axis=1)
    found = rank[rows, second] > 0
    return np.where(found, second, -1), np.where(found, shares[rows, second], 0)


def _of_others(shares, labels):
    """Shares (N, K), sparse, without those of a sample's own cluster."""
    found = coo_array(shares)
    kept = found.col != labels[found.row]
    places = found.row[kept], found.col[kept]
    return coo_array((found.data[kept], places), shape=found.shape)


# ------------------------------------------------------------------------- doubts


def doubts(reading: Reading, noun: str = "images", codes=None) -> list[Doubt]:
    """What a reader should look at before trusting the clusters.

    `codes` are classes from 0 on, or -1 where a class is missing.
    """
    found = [
        *_doubts_of_sizes(reading, noun),
        *_doubts_of_confidence(reading),
        *([] if codes is None else _doubts_of_classes(reading, noun, codes)),
        *_doubts_of_pairs(reading, noun),
    ]
    return [doubt for doubt in found if doubt.clusters]


def _doubts_of_sizes(reading, noun):
    one, sizes = noun.removesuffix("s"), reading.sizes
    even = len(reading.labels) / reading.n_clusters
    small = (sizes > 0) & (sizes < LIMITS["small"] * even)
    large = (sizes > LIMITS["large"] * even) & (reading.n_clusters > 1) & (sizes > 1)
    yield Doubt(
        "empty",
        f"Empty: no {noun} were assigned.",
        [Chip(k, "") for k in np.flatnonzero(sizes == 0).tolist()],
    )
    yield Doubt(
        "small",
        f"Small: less than a quarter of an even share of the {noun}.",
        [Chip(k, count(sizes[k], one)) for k in _sorted(small, sizes)],
    )
    yield Doubt(
        "large",
        f"Large: more than three times an even share of the {noun}.",
        [Chip(k, count(sizes[k], one)) for k in _sorted(large, -sizes)],
    )


def _doubts_of_confidence(reading):
    means = reading.means
    least = 2 if reading.is_of_neighbors else 1
    unsure = (reading.sizes >= least) & (means < LIMITS["unsure"])
    yield Doubt(
        "unsure",
        f"Unsure: the mean {reading.measure} is below {LIMITS['unsure']:.0%}.",
        [Chip(k, f"{means[k]:.0%}") for k in _sorted(unsure, means)],
    )


def _doubts_of_classes(reading, noun, codes):
    """Clusters without a class that most samples have."""
    known = codes >= 0
    counts = np.zeros((reading.n_clusters, codes.max() + 1), np.int64)
    np.add.at(counts, (reading.labels[known], codes[known]), 1)
    sizes = counts.sum(axis=1)
    most = counts.max(axis=1) / np.maximum(sizes, 1)
    several = (sizes > 0) & (most < LIMITS["pure"])
    yield Doubt(
        "classes",
        f"Several classes: fewer than {LIMITS['pure']:.0%} of the {noun} are of one "
        "class.",
        [Chip(k, f"{most[k]:.0%}", "other") for k in _sorted(several, most)],
    )


def _doubts_of_pairs(reading, noun):
    """Pairs of clusters, each with how many samples lie between them."""
    shared = (reading.second >= 0) & (reading.second_share >= LIMITS["shared"])
    counts = np.zeros((reading.n_clusters,) * 2, np.int64)
    np.add.at(counts, (reading.labels[shared], reading.second[shared]), 1)
    both, sizes = counts + counts.T, reading.sizes
    smaller = np.minimum.outer(sizes, sizes)
    pairs = np.argwhere(
        np.triu(both >= np.maximum(2, LIMITS["members"] * smaller), 1) & (smaller > 0)
    )
    pairs = sorted(pairs.tolist(), key=lambda pair: -both[tuple(pair)])
    # The cluster with more of the samples first: its gallery is opened.
    pairs = [(a, b) if counts[a, b] >= counts[b, a] else (b, a) for a, b in pairs]
    one, unit = noun.removesuffix("s"), UNITS.get(reading.meaning, "nearest neighbours")
    yield Doubt(
        "pairs",
        f"Shared members: of some {noun}, at least {LIMITS['shared']:.0%} of the "
        f"{unit} are in the other cluster.",
        [Chip(a, count(both[a, b], one), "between", b) for a, b in pairs],
    )


def doubt_of_duplicates(noun, pairs) -> list[Doubt]:
    """A doubt about pairs (P, 2) of nearly equal samples; none without pairs."""
    if not len(pairs):
        return []
    sentence = (
        f"{len(np.unique(pairs)):,} {noun} are nearly the same as another one at "
        f"{SIDE} x {SIDE} pixels"
    )
    if len(pairs) > MOST_PAIRS:
        sentence += f"; the first {MOST_PAIRS} of {len(pairs):,} pairs"
        pairs = _one_of_each_group_first(pairs)
    return [Doubt("duplicates", f"{sentence}.", [], pairs[:MOST_PAIRS].tolist())]


def _one_of_each_group_first(pairs):
    """Pairs (P, 2), so that the first ones are not all of one long series."""
    n = pairs.max() + 1
    graph = coo_array((np.ones(len(pairs), np.int8), pairs.T), shape=(n, n))
    groups = connected_components(graph, directed=False)[1][pairs[:, 0]]
    by_group = np.argsort(groups, kind="stable")
    starts = np.searchsorted(groups[by_group], groups[by_group])
    place = np.empty(len(pairs), np.int64)  # the place of a pair in its group
    place[by_group] = np.arange(len(pairs)) - starts
    return pairs[np.argsort(place, kind="stable")]


def _sorted(mask, by) -> list[int]:
    """Clusters of a mask, those to doubt most first: the page shows these."""
    order = np.argsort(by, kind="stable")
    return order[mask[order]].tolist()
