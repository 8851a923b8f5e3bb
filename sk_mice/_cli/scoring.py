"""``sk-mice score``: clusters beside known classes."""

import numpy as np
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from .. import metrics
from . import tables
from .terminal import Progress, count, put, put_json

LISTED = 20  # of the files that only one table has


def score(clusters, truth, as_json) -> None:
    """Compare a table of clusters with one of classes."""
    found = tables.read_column(clusters, ["cluster"])
    known = tables.read_column(truth, ["class", "label", "cluster"])
    progress = Progress(quiet=False)
    _name_missing(progress, found, clusters, known, truth)
    _name_missing(progress, known, truth, found, clusters)
    files = [name for name in found if name in known]
    if not files:
        raise ValueError(
            f"{str(clusters)!r} and {str(truth)!r} have no file in common."
        )
    y_pred = np.array([found[name] for name in files], dtype=object)
    y_true = np.array([known[name] for name in files], dtype=object)
    facts = {
        "files": len(files),
        "ACC": metrics.clustering_accuracy_score(y_true, y_pred),
        "NMI": float(normalized_mutual_info_score(y_true, y_pred)),
        "ARI": float(adjusted_rand_score(y_true, y_pred)),
        "matching": _matching(y_true, y_pred),
    }
    put_json(facts) if as_json else _show(facts)


def _name_missing(progress, here: dict, path, there: dict, other) -> None:
    missing = [name for name in here if name not in there]
    if missing:
        names = ", ".join(map(repr, missing[:LISTED]))
        more = f" and {len(missing) - LISTED} more" if len(missing) > LISTED else ""
        progress.say(
            f"sk-mice: warning: {count(len(missing), 'file')} of {str(path)!r} "
            f"{'is' if len(missing) == 1 else 'are'} not in {str(other)!r}: "
            f"{names}{more}"
        )


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


def _show(facts: dict) -> None:
    put(f"{count(facts['files'], 'file')}")
    for name, words in {
        "ACC": "accuracy under the best matching of clusters with classes",
        "NMI": "normalised mutual information",
        "ARI": "adjusted Rand index",
    }.items():
        put(f"{name}  {facts[name]:.3f}  {words}")
    width = max(7, *(len(row["cluster"]) for row in facts["matching"]))
    put(f"\n{'cluster':>{width}}    files   of its class")
    for row in facts["matching"]:
        of = "-" if row["class"] is None else f"{row['of_the_class']:,}"
        put(
            f"{row['cluster']:>{width}}{row['files']:9,}{of:>15}   {row['class'] or ''}"
        )
