"""The clusters of a corrected table: which were merged, and what they are called."""

from collections import Counter
from typing import NamedTuple

import numpy as np

from ..inspection._doubts import LIMITS
from ..inspection._reading import Reading, merged
from . import tables
from .results import ResultFolder


class Naming(NamedTuple):
    """The clusters of a result as they were merged and named by hand."""

    into: list[int]  # the cluster of which each of the K is a part
    names: dict[int, str]


def read_naming(table, result: ResultFolder, n_clusters: int) -> Naming:
    """What most images of each cluster are called; ValueError for another table."""
    columns = ["original_cluster"], ["cluster"], ["name"]
    try:
        rows, _ = tables.read_columns(table, *columns)
    except ValueError as error:
        error.add_note("The button Download CSV of the report saves such a table.")
        raise
    own = {str(k): k for k in range(n_clusters)}
    for file, (was, now, _) in rows.items():
        if was not in own or not now.isdecimal():
            raise ValueError(
                f"{str(table)!r} must have in each row a cluster, and an original "
                f"cluster from 0 to {n_clusters - 1}; got {now!r} and {was!r} for "
                f"{file!r}."
            )
    tables.check_names(table, {name for *_, name in rows.values()})
    _check_same({file: was for file, (was, *_) in rows.items()}, table, result)
    parts = Counter((own[was], int(now)) for was, now, _ in rows.values())
    called = Counter((int(now), name) for _, now, name in rows.values())
    into = {k: k for k in own.values()} | _most(parts)
    return Naming([*into.values()], _most(called))


def _most(pairs: Counter) -> dict:
    """For each first of some pairs, the most frequent second."""
    return dict(pair for pair, _ in reversed(pairs.most_common()))


def _check_same(was: dict, table, result: ResultFolder) -> None:
    """Refuse the table of another fit: its clusters have other numbers."""
    if not result.table.exists():
        return
    fitted = tables.read_column(result.table, ["cluster"])
    was = tables.as_named(was, fitted)
    same = [was[file] == cluster for file, cluster in fitted.items() if file in was]
    if same and np.mean(same) < LIMITS["same"]:
        raise ValueError(
            f"{str(table)!r} must be a table of this result, {str(result.path)!r}, "
            f"where {same.count(False):,} of {len(same):,} images have other clusters."
        )


def rows_of(files, reading: Reading, naming: Naming) -> list[dict]:
    """A row for each file, with the name of its cluster."""
    numbers, into = np.unique(naming.into, return_inverse=True)
    number = {None: None, **dict(enumerate(numbers.tolist()))}
    rows = []
    for row in tables.rows_of(files, merged(reading, into)):
        k, second = number[row["cluster"]], number[row["second_cluster"]]
        name = naming.names.get(k) or f"Cluster {k}"
        first = {"file": row["file"], "cluster": k, "name": name}
        rows.append(first | row | {"cluster": k, "second_cluster": second})
    return rows
