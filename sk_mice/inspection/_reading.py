"""What a fitted clusterer says of samples."""

from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np
from scipy.sparse import coo_array, issparse
from sklearn.base import is_clusterer
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.utils.validation import _num_samples, check_is_fitted

from .._directions import by_blocks, directions
from .._engine.nearest import nearest_neighbors, shares_of_neighbors
from .._pipelines import last_step, last_with_input
from ._drawing import clusters_of

N_NEIGHBORS = 10  # replace the random views of a model that has none
N_NEAREST = 12  # of each sample, in a page
# What the confidence of a sample is.
OF_VIEWS = (
    "the share of its random views, which are copies with random changes, that stay in "
    "its cluster"
)
OF_NEIGHBORS = (
    f"the share of its {N_NEIGHBORS} nearest neighbours, those most like it, that are "
    "in its cluster, or of fewer neighbours in a smaller cluster"
)
GIVEN = "the confidence that was passed to the report"
GIVEN_SHARES = "the share of its views or neighbours, as passed to the report"
# Which samples are nearest.
BY_COSINE = "with the largest cosine of their embeddings"
BY_DISTANCE = "with the smallest distance between their embeddings"


@dataclass(frozen=True)
class Reading:
    """What a model says of N samples in K clusters."""

    labels: np.ndarray  # (N,)
    confidence: np.ndarray  # (N,)
    second: np.ndarray  # (N,) the cluster that comes next; -1 is none
    second_share: np.ndarray  # (N,) of the views
    order: np.ndarray  # (N,) the samples, most certain first
    embeddings: np.ndarray  # (N, D) rows; what is alike is near
    n_clusters: int
    meaning: str  # what the confidence is, in words
    others: coo_array  # (N, K) shares of clusters that are not its own
    nearest: np.ndarray | None = None  # (N, M) nearest others, if they were searched
    noise: int | None = None  # the cluster of samples that the model leaves out
    nearness: str = BY_COSINE  # which samples are nearest, in words

    @property
    def sizes(self) -> np.ndarray:
        """Samples in each cluster, (K,)."""
        return np.bincount(self.labels, minlength=self.n_clusters)

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


def check_model(model) -> None:
    """Refuse a model whose last step is not a fitted clusterer."""
    last, _ = last_step(model)
    # For scikit-learn, its mixtures are density estimators.
    is_mixture_of_normals = isinstance(last, GaussianMixture | BayesianGaussianMixture)
    has_tags = hasattr(last, "__sklearn_tags__")
    if not is_mixture_of_normals and not (has_tags and is_clusterer(last)):
        raise TypeError(
            "`model` must be a fitted clusterer, or a pipeline whose last step is one; "
            f"got {model!r}."
        )
    check_is_fitted(last)


def is_mice(clusterer) -> bool:
    """Whether a clusterer is a `MiCEClustering`: asked without importing torch."""
    return hasattr(clusterer, "_predict_all")


def read(model, X, confidence=None, random_state=0) -> Reading:
    """Ask a model for everything that the page shows of the samples."""
    last, features = last_with_input(model, X)
    shares = None if confidence is None or confidence.ndim == 1 else confidence
    if is_mice(last):
        if confidence is None:  # before the rest, as it may refuse the model
            shares = last.agreement(features, random_state=random_state)
        labels, posterior, embeddings = last._predict_all(features)
        n_clusters, noise = posterior.shape[1], None
    else:
        labels, n_clusters, noise = _labels(last, features)
        posterior = None
        embeddings = features.toarray() if issparse(features) else np.asarray(features)
    embeddings = embeddings.reshape(len(labels), -1)
    nearness = BY_COSINE if _compares_directions(last) else BY_DISTANCE
    embeddings = (_unit_rows if nearness == BY_COSINE else _in_range)(embeddings)

    meaning, nearest = _meaning(last, confidence), None
    if shares is None:
        nearest, _ = nearest_neighbors(embeddings, N_NEAREST)
        shares = shares_of_neighbors(labels, nearest[:, :N_NEIGHBORS], n_clusters)
    if shares.shape[1] != n_clusters:
        raise ValueError(
            f"`confidence` must have one column for each of {n_clusters} clusters; got "
            f"shape {shares.shape}."
        )
    if posterior is None:
        has_posterior = noise is None and hasattr(last, "predict_proba")
        posterior = last.predict_proba(features) if has_posterior else shares
    own = confidence if meaning == GIVEN else None
    reading = from_shares(labels, shares, posterior, embeddings, meaning, own)
    return replace(reading, nearest=nearest, noise=noise, nearness=nearness)


def from_shares(labels, shares, posterior, embeddings, meaning, confidence=None):
    """The `Reading` of shares (N, K) in each cluster, or of a given confidence."""
    rows = np.arange(len(labels))
    own = shares[rows, labels] if confidence is None else confidence
    second, second_share = _second(shares, posterior, labels)
    order = np.lexsort((-posterior[rows, labels], -own))
    others = shares.copy()
    others[rows, labels] = 0
    return Reading(
        labels=labels,
        confidence=own,
        second=second,
        second_share=second_share,
        order=order,
        embeddings=embeddings,
        n_clusters=shares.shape[1],
        meaning=meaning,
        others=coo_array(others),
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


def _in_range(rows):
    """Rows (N, D), float32, whose distances are in proportion to those of `rows`."""
    low = rows.min(axis=0).astype(np.float64)
    spread = (rows.max(axis=0) - low).max() or 1
    return by_blocks(lambda some: (some - low) / spread, rows, np.float32)


def _compares_directions(clusterer) -> bool:
    """Whether a clusterer compares directions of rows, as all of this package do."""
    is_ours = any(
        kind.__module__.startswith("sk_mice.") for kind in type(clusterer).mro()
    )
    return is_ours or getattr(clusterer, "metric", None) == "cosine"


def _meaning(clusterer, confidence) -> str:
    """A description of the confidence."""
    if confidence is not None and confidence.ndim == 1:
        return GIVEN
    # A saved model has none if it was a function of the user's.
    has_views = getattr(clusterer, "augmentation_", OF_VIEWS) is not None
    if is_mice(clusterer) and clusterer._format.is_image and has_views:
        return OF_VIEWS
    return OF_NEIGHBORS if confidence is None else GIVEN_SHARES


def _labels(clusterer, features):
    """Labels, the number of clusters, and which of them is noise: the last, if any."""
    labels = clusters_of(clusterer, features, needed=False)
    if labels is None:
        raise ValueError(
            f"X must be the {len(clusterer.labels_)} samples of `fit`, as `model` has "
            f"no `predict`; got {_num_samples(features)}."
        )
    labels = np.asarray(labels).astype(np.int64)
    n_clusters = max(_n_fitted(clusterer), int(labels.max()) + 1)
    if labels.min() >= 0:
        return labels, n_clusters, None
    return np.where(labels < 0, n_clusters, labels), n_clusters + 1, n_clusters


def _n_fitted(clusterer) -> int:
    """Clusters of the fit: the parameter may be that of the next one."""
    for name in ("cluster_centers_", "gating_prototypes_", "means_"):
        if hasattr(clusterer, name):
            return getattr(clusterer, name).shape[0]  # they may be sparse
    parameter = getattr(clusterer, "n_clusters", None)
    return int(parameter) if isinstance(parameter, Integral) else 0


def _second(shares, posterior, labels):
    """The most frequent other cluster (N,), by the posterior among equals."""
    rows = np.arange(len(labels))
    rank = shares + 1e-3 * posterior
    rank[rows, labels] = -1
    second = rank.argmax(axis=1)
    found = rank[rows, second] > 0
    return np.where(found, second, -1), np.where(found, shares[rows, second], 0)
