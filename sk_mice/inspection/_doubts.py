"""What to look at before trusting clusters."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from .._words import as_shown, count
from ._drawing import places_in_groups
from ._duplicates import SIDE
from ._reading import GIVEN_SHARES, OF_VIEWS, Reading

MOST_PAIRS = 100  # pairs of nearly equal images that are named
MOST_COPIES = 10  # of one image: more are a series, such as parts of one kind
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

OF_NO_NOISE = {"small", "unsure", "classes"}  # doubts that would say nothing of noise
UNITS = {OF_VIEWS: "views", GIVEN_SHARES: "views or neighbours"}


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
    `groups` are the samples that pairs connect, also those that are not named.
    """

    kind: str
    sentence: str
    clusters: list[Chip]
    pairs: list[list[int]] = field(default_factory=list)
    groups: list[list[int]] = field(default_factory=list)


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
    if reading.noise is not None:
        found = [_without(reading.noise, doubt) for doubt in found]
    return [doubt for doubt in found if doubt.clusters]


def _without(noise, doubt):
    """The doubt without the cluster of noise, if noise is expected to be such."""
    if doubt.kind not in OF_NO_NOISE:
        return doubt
    return replace(doubt, clusters=[c for c in doubt.clusters if c.cluster != noise])


def _doubts_of_sizes(reading, noun):
    one, sizes = noun.removesuffix("s"), reading.sizes
    even = len(reading.labels) / reading.n_clusters
    small = (sizes > 0) & (sizes < LIMITS["small"] * even)
    large = (sizes > LIMITS["large"] * even) & (sizes > 1)
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
    means = as_shown(reading.means)
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
    most = as_shown(counts.max(axis=1) / np.maximum(sizes, 1))
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


def doubt_of_duplicates(noun, pairs, n_shown=None) -> list[Doubt]:
    """A doubt about pairs (P, 2) of nearly equal samples; none without pairs.

    `n_shown` is how many were compared, if these are not all.
    """
    if not len(pairs):
        return []
    members = np.unique(pairs)
    of = noun if n_shown is None else f"of the {n_shown:,} {noun} shown"
    sentence = (
        f"{len(members):,} {of} are nearly the same as another one at "
        f"{SIDE} x {SIDE} pixels"
    )
    group = _connected(pairs)
    if len(pairs) > MOST_PAIRS:
        sentence += f"; the first {MOST_PAIRS} of {len(pairs):,} pairs found"
        # One pair of each group first, so that they are not all of one long series.
        places = places_in_groups(group[pairs[:, 0]])
        pairs = pairs[np.argsort(places, kind="stable")]
    members = members[np.argsort(group[members], kind="stable")]
    ends = np.flatnonzero(np.diff(group[members])) + 1
    groups = [rows.tolist() for rows in np.split(members, ends)]
    groups = [rows for rows in groups if len(rows) <= MOST_COPIES]
    named = pairs[:MOST_PAIRS].tolist()
    return [Doubt("duplicates", f"{sentence}.", [], named, groups)]


def _connected(pairs):
    """The group of each sample: those that pairs (P, 2) connect have the same one."""
    n = pairs.max() + 1
    graph = coo_array((np.ones(len(pairs), np.int8), pairs.T), shape=(n, n))
    return connected_components(graph, directed=False)[1]


def _sorted(mask, by) -> list[int]:
    """Clusters of a mask, those to doubt most first: the page shows these."""
    order = np.argsort(by, kind="stable")
    return order[mask[order]].tolist()
