"""Mutual nearest neighbours, one of which replaces a sample in each view.

Two samples are mutual neighbours if each is among the nearest of the other. A sample
that is far from all others has none, while it always has nearest neighbours (Gowda and
Krishna, Agglomerative clustering using the concept of mutual nearest neighbourhood,
Pattern Recognition 1978).
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.preprocessing import normalize
from torch import Tensor

from .arrays import fill
from .distributed import ALONE, Group
from .nearest import nearest_neighbors
from .samples import Samples, to_device

_BATCH = 1024  # samples read at a time
# Of X that may be larger than memory, and the samples from which they are computed.
N_COMPONENTS, N_OF_COMPONENTS = 64, 2000


@dataclass(frozen=True)
class Neighbors:
    """For each sample the samples that can replace it."""

    table: Tensor  # (N, M), int64: indices of samples, where the samples are
    recall: float = 1.0  # share of the nearest neighbours that the search found

    def draw(
        self,
        indices: Tensor,
        n_views: int,
        generator: torch.Generator,
        rows: slice = slice(None),
    ) -> Tensor:
        """Replacements of samples (B,) for each view, (n_views * B,), view by view.

        All are indices, where the samples are; the generator is on the CPU. With
        `rows`, only those of the batch are replaced, by the same draws.
        """
        size = (n_views, len(indices))
        columns = torch.randint(self.table.shape[1], size, generator=generator)
        columns = to_device(columns[:, rows], self.table.device)
        return self.table[indices[rows], columns].flatten()


def find_neighbors(
    samples: Samples, n_neighbors: int, seed: int = 0, group: Group = ALONE
) -> Neighbors:
    """Find each sample's mutual neighbours, by cosine of centred values.

    Values are compared at the scale of X, images pixel by pixel. This needs a copy of
    all samples in float32; see :func:`comparable_rows` for X larger than memory. The
    first process of the group searches; see :func:`mutual_neighbors`.
    """
    table, recall = group.from_first(
        lambda: mutual_neighbors(comparable_rows(samples), n_neighbors, seed)
    )
    return Neighbors(torch.from_numpy(table).to(samples.place), recall)


def comparable_rows(samples: Samples) -> np.ndarray:
    """Unit rows (N, F) of the samples' centred values, at the scale of X.

    If X may be larger than memory, they are of at most 64 principal components.
    """
    n_values = math.prod(samples.format.shape)
    components = None
    if samples.is_large and n_values > N_COMPONENTS:
        components = _principal_components(samples)
        n_values = components.shape[1]
    rows = np.empty((len(samples), n_values), np.float32)
    parts = _scaled(samples)
    fill(rows, parts if components is None else (part @ components for part in parts))
    if samples.format.is_image:
        rows -= rows.mean(axis=0, dtype=np.float64)
    return normalize(rows, copy=False)


def _scaled(samples: Samples, some=slice(None)):
    """The values (B, F) of samples, batch by batch."""
    std = None
    if not samples.format.is_image:
        # Undo the standardisation, which enlarges features that hardly vary.
        std = np.asarray(samples.format.std)
        std = (std / std.max()).astype(np.float32)
    for batch in samples.in_order(_BATCH, some):
        part = batch.flatten(1).cpu().numpy()
        yield part if std is None else part * std


def _principal_components(samples: Samples) -> np.ndarray:
    """At most 64 principal components, (F, M), of a random choice of the samples."""
    generator = torch.Generator().manual_seed(0)
    some = torch.randperm(len(samples), generator=generator)[:N_OF_COMPONENTS]
    known = np.concatenate([*_scaled(samples, some.sort().values)])
    n_components = min(N_COMPONENTS, len(known))
    pca = PCA(n_components, svd_solver="randomized", random_state=0, copy=False)
    return pca.fit(known).components_.T


def mutual_neighbors(
    rows: np.ndarray, n_neighbors: int, seed: int = 0
) -> tuple[np.ndarray, float]:
    """Each row's mutual nearest neighbours, and the recall.

    The parameters, M and the recall are those of :func:`nearest_neighbors`. The table
    (N, M) has the mutual neighbours of each row, nearest first, repeated until there
    are M; a row without any has itself.
    """
    nearest, recall = nearest_neighbors(rows, n_neighbors, seed)
    n, own = len(rows), np.arange(len(rows))[:, None]
    pairs = (own * n + np.sort(nearest, axis=1)).ravel()  # sorted
    turned = nearest * n + own
    places = np.searchsorted(pairs, turned)
    mutual = pairs[np.minimum(places, len(pairs) - 1)] == turned
    mutual &= nearest != own  # which stands where the index found too few
    first = np.argsort(~mutual, axis=1, kind="stable")  # mutual ones first, in order
    nearest = np.take_along_axis(nearest, first, axis=1)
    counts = mutual.sum(axis=1, keepdims=True)
    nearest = np.where(counts > 0, nearest, own)
    repeated = np.arange(nearest.shape[1]) % np.maximum(counts, 1)
    return np.take_along_axis(nearest, repeated, axis=1), recall
