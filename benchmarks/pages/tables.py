"""Cells, tables and the lines under them, as several pages have them."""

import statistics

from .files import command, commit, labelled, notes, read

OTHER_PAGE = (  # begins the second paragraph of each page but the first
    "Written by `python benchmarks/results_page.py`, like [the other results]"
    "(README.md). A cell is the mean ± standard deviation (worst) over the seeds"
)
DATA = {
    "digits": "digits",
    "fashion-mnist": "Fashion-MNIST",
    "cifar10-jpeg": "CIFAR-10 (JPEG)",
}
METRICS = {"acc": "ACC", "nmi": "NMI", "ari": "ARI"}
NAMES = METRICS | {"neighbour": "nearest neighbour"}
MICE, BASELINE = "MiCE", "MoCo, k-means on embeddings"
START = "MoCo, MiCE's start"


def over_seeds(rows, metric, worst=min):
    """Mean, standard deviation and worst, as a cell."""
    if not rows:
        return ""
    values = [row[metric] for row in rows]
    mean = f"{statistics.mean(values):.3f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {statistics.stdev(values):.3f} ({worst(values):.3f})"


def mean(rows, metric):
    return f"{statistics.mean(row[metric] for row in rows):.3f}"


def three(found):
    """ACC, NMI and ARI, as a cell."""
    return ", ".join(f"{found[metric]:.3f}" for metric in METRICS)


def seconds(rows):
    """The median of the runs that were timed: those beside other work are not."""
    return f"{statistics.median(r['seconds'] for r in rows if 'seconds' in r):,.0f}"


def wins(rows, others, metric="acc"):
    """On how many seeds the first are above the others, and of how many."""
    ours = {row["seed"]: row[metric] for row in rows}
    theirs = {row["seed"]: row[metric] for row in others}
    both = ours.keys() & theirs.keys()
    return sum(ours[seed] > theirs[seed] for seed in both), len(both)


def table(*rows):
    """Markdown, from rows of cells, the head first."""
    head, *body = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join([head, "|" + " --- |" * len(rows[0]), *body])


def line(*parts):
    """What stands under a table."""
    return " ".join(filter(None, parts))


def line_on(kept, text=""):
    """A text, what a file says of itself, and its command."""
    return line_on_all({"": kept}, text)


def line_on_all(files, text):
    """The same of several files, by their labels."""
    return line(text, notes(files), ", ".join(map(command, files.values())))


def title(kept):
    parts = [DATA[kept["data"]][0].upper() + DATA[kept["data"]][1:]]
    parts.append(f"{kept['n']:,} images")
    if "--unbalanced" in kept["command"]:
        parts.append("the smallest class a tenth of the largest")
    if "--vectors" in kept["command"]:
        parts.append("as vectors")
    return f"{', '.join(parts)}, {kept['results'][MICE][0]['epochs']} epochs"


def methods(head, kept, labels, seconds=seconds):
    """A table with a row for each method of a file, by its label."""
    rows = [
        (
            label,
            *(over_seeds(runs, metric) for metric in METRICS),
            seconds(runs),
            len(runs),
            commit(kept, method),
        )
        for method, label in labels.items()
        if (runs := kept["results"].get(method))
    ]
    head = (f"**{head}**", *METRICS.values(), "s", "seeds", "commit")
    return table(head, *rows)


def compared(name):
    """A table of methods at equal time, and a line on it."""
    kept = read(name)
    results = kept["results"]
    labels = {method: method for method in results}
    labels[BASELINE] = f"{BASELINE} (the paper's baseline)"
    acc, n = wins(results[MICE], results[BASELINE])
    nmi, _ = wins(results[MICE], results[BASELINE], "nmi")
    text = f"MiCE is above the paper's baseline on {acc} of {n} seeds by ACC, {nmi} by "
    text += "NMI"
    if START in results:
        acc, _ = wins(results[MICE], results[START])
        text += f", and above its own start on {acc} by ACC"
    return methods(title(kept), kept, labels), line_on(kept, f"{text}.")


def by_set(name, labels, text):
    """A row for each file, with the mean ACC and NMI of each method, and a line."""
    files = labelled(labels)
    first, *others = (kept["results"] for kept in files.values())
    common = [method for method in first if all(method in other for other in others)]
    rows = []
    for label, kept in files.items():
        of_methods = [kept["results"][method] for method in common]
        cells = [f"{mean(runs, 'acc')}, {mean(runs, 'nmi')}" for runs in of_methods]
        runs = of_methods[0]
        rows.append((label, *cells, seconds(runs), len(runs), commit(kept)))
    head = (f"**{name}**", *common, "s", "seeds", "commit")
    return table(head, *rows), line_on_all(files, text)


def side_by_side(name, labels, text, more=()):
    """Cells of several files in the columns of one table, and a line on them."""
    files = labelled(labels)
    metrics = ("acc", "nmi", *more)
    head = [f"**{name}**"]
    head += [f"{NAMES[m]}, {label}" for label in files for m in metrics]
    rows = []
    for method in dict.fromkeys(m for kept in files.values() for m in kept["results"]):
        runs = [kept["results"].get(method, []) for kept in files.values()]
        there = [some for some in runs if some]
        commits = [
            commit(kept, method) for kept in files.values() if method in kept["results"]
        ]
        rows.append(
            (
                {"none": "no EM: the partition it starts from"}.get(method, method),
                *(over_seeds(some, metric) for some in runs for metric in metrics),
                ", ".join(map(seconds, there)),
                ", ".join(str(len(some)) for some in there),
                ", ".join(dict.fromkeys(commits)),
            )
        )
    return table([*head, "s", "seeds", "commit"], *rows), line_on_all(files, text)
