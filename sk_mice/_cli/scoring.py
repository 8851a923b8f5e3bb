"""``sk-mice score``: clusters beside known classes."""

import numpy as np

from .. import metrics
from .._engine.warn import warn_user
from .._words import count
from . import tables
from .terminal import not_in, put, put_json, visible


def score(clusters, truth, as_json) -> None:
    """Compare a table of clusters with one of classes."""
    found, _ = tables.read_column(clusters, ["cluster"])
    known, _ = tables.read_column(truth, ["class", "label", "cluster"])
    known = tables.as_named(known, found)
    _name_missing(found, clusters, known, truth)
    _name_missing(known, truth, found, clusters)
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


def _name_missing(here: dict, path, there: dict, other) -> None:
    missing = [name for name in here if name not in there]
    if missing:
        warn_user(not_in(missing, path, other) + tables.if_not_utf8(missing))


def _with_value(table: dict, path, what: str) -> dict:
    """The files of a table that have a value, which is not known of all."""
    kept = {name: value for name, value in table.items() if value.strip()}
    n_without = len(table) - len(kept)
    if n_without:
        has, does = ("has", "does") if n_without == 1 else ("have", "do")
        warn_user(
            f"{count(n_without, 'file')} of {str(path)!r} {has} no {what} and {does} "
            "not count",
        )
    return kept


def _matching(y_true, y_pred) -> list[dict]:
    """Each cluster, the class that it is matched with, and how many files agree."""
    matched = metrics.match_labels(y_true, y_pred)
    classes, rows = set(y_true), []
    for cluster in sorted(set(y_pred), key=lambda name: (len(name), name)):
        own = y_pred == cluster
        name = matched[own][0]
        rows.append(
            {
                "cluster": cluster,
                "class": name if name in classes else None,
                "files": int(own.sum()),
                "of_the_class": int((y_true[own] == name).sum()),
            }
        )
    return rows


def _show(n_files: int, scores, matching) -> None:
    put(count(n_files, "file"))
    for name, value, meaning in scores:
        put(f"{name}  {value:.3f}  {meaning}")
    clusters = [visible(row["cluster"]) for row in matching]
    width = max(7, *map(len, clusters))
    put(f"\n{'cluster':>{width}}    files   of its class")
    for row, cluster in zip(matching, clusters, strict=True):
        of = "-" if row["class"] is None else f"{row['of_the_class']:,}"
        name = visible(row["class"] or "")
        put(f"{cluster:>{width}}{row['files']:9,}{of:>15}   {name}")
