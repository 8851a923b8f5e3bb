"""``sk-mice score``: clusters beside known classes."""

from collections import Counter

import numpy as np

from .. import metrics
from .._engine.warn import warn_user
from .._words import as_shown, count
from . import tables
from .terminal import not_in, put, put_json, visible


def score(clusters, truth, as_json) -> None:
    """Compare a table of clusters with one of classes."""
    found = tables.read_column(clusters, ["name", "cluster"])
    known = tables.read_column(truth, ["class", "label", "name", "cluster"])
    known = tables.as_named(known, found)
    _warn_of_missing(found, clusters, known, truth)
    _warn_of_missing(known, truth, found, clusters)
    found = _with_value(found, clusters, "cluster")
    known = _with_value(known, truth, "class")
    files = [name for name in found if name in known]
    if not files:
        raise ValueError(
            f"{str(clusters)!r} and {str(truth)!r} have no file in common that has a "
            "cluster and a class."
        )
    y_pred = np.array([found[name] for name in files], dtype=object)
    y_true = np.array([known[name] for name in files], dtype=object)
    scores = metrics._scores_in_words(y_true, y_pred)
    matching = _matching(y_true, y_pred)
    if as_json:
        values = {name: value for name, value, _ in scores}
        put_json({"files": len(files), **values, "matching": matching})
    else:
        _show(len(files), scores, matching)


def _warn_of_missing(here: dict, path, there: dict, other) -> None:
    missing = [name for name in here if name not in there]
    if missing:
        others = [name for name in there if name not in here]
        garbled = tables.if_garbled(missing, others)
        warn_user(not_in(missing, path, other) + garbled)


def _with_value(table: dict, path, what: str) -> dict:
    """The files of a table that have a value; warn of the others.

    Spaces around a value are dropped, as a spreadsheet does not show them.
    """
    kept = {name: value.strip() for name, value in table.items() if value.strip()}
    plural = "classes" if what == "class" else f"{what}s"
    spelt = [(value.casefold(), value) for value in sorted({*kept.values()})]
    for _, value, other in tables.conflicts(spelt):
        warn_user(f"{str(path)!r}: {value!r} and {other!r} count as two {plural}")
    n_without = len(table) - len(kept)
    if n_without:
        has, does = ("has", "does") if n_without == 1 else ("have", "do")
        warn_user(
            f"{count(n_without, 'file')} of {str(path)!r} {has} no {what} and {does} "
            "not count",
        )
    return kept


def _matching(y_true, y_pred) -> list[dict]:
    """For each cluster, its most frequent class, and the class that ACC matches."""
    matched = metrics.match_labels(y_true, y_pred)
    rows = []
    for cluster in sorted(set(y_pred), key=lambda name: (len(name), name)):
        own = y_pred == cluster
        rows.append({"cluster": cluster, **_in_cluster(y_true[own], matched[own][0])})
    return rows


def _in_cluster(classes, matched) -> dict:
    counts = Counter(classes)  # 0 of `matched` if the cluster has no class
    most, n_most = counts.most_common(1)[0]
    if counts[matched] == n_most:
        most = matched  # one of several that are equally frequent
    return {
        "class": matched if counts[matched] else None,
        "files": len(classes),
        "of_the_class": counts[matched],
        "matched": counts[matched] > 0,
        "most_frequent_class": most,
        "share": n_most / len(classes),
    }


ONE_TO_ONE = """
ACC matches each class with one cluster, and counts all other files as wrong.
Merge clusters of one class in the report and score the table that it saves,
or see NMI and ARI, which need no matching."""


def _show(n_files: int, scores, matching) -> None:
    put(count(n_files, "file"))
    for name, value, meaning in scores:
        put(f"{name}  {value:.3f}  {meaning}")
    table = [("cluster", "files", "share", "most frequent class", "matched")]
    table += [_in_words(row) for row in matching]
    wide, *_, widest, _ = (max(map(len, column)) for column in zip(*table, strict=True))
    put("")
    for cluster, files, share, most, mark in table:
        put(f"{cluster:>{wide}}{files:>9}{share:>8}   {most:{widest}}   {mark}")
    if not all(row["matched"] for row in matching):
        put(ONE_TO_ONE)


def _in_words(row: dict) -> tuple[str, str, str, str, str]:
    if row["class"] == row["most_frequent_class"]:
        mark = "yes"
    else:
        mark = f"with {visible(row['class'])}" if row["matched"] else "no"
    cluster, most = visible(row["cluster"]), visible(row["most_frequent_class"])
    return cluster, f"{row['files']:,}", f"{as_shown(row['share']):.0%}", most, mark
