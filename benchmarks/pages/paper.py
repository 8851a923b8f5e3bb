"""The paper's tables and figures, and which of its claims hold here."""

import sys
from pathlib import Path

from .files import command, commit, notes, read
from .tables import DATA, MICE, OTHER_PAGE, line, mean, over_seeds, seconds, table, wins

sys.path.append(str(Path(__file__).parents[1] / "paper"))

import literature

PARTS = (  # of the paper: name, script, tag of its files
    ("Table 1", "table1", ""),
    ("Table 3", "table3", ""),
    ("Table 3", "table3", "_passes"),
    ("SCAN", "scan", ""),
)
# As names of files have them.
SETS = {data.replace("-", "_"): label for data, label in DATA.items()}
DRAWN = ("digits", "fashion_mnist")


def page():
    return [
        "# The paper's tables and figures",
        f"{OTHER_PAGE}.",
        "Everything here is at `cpu-minutes`: 1,797 digits in 1,500 steps, 10,000 "
        "images of the other sets in 800, small networks, random starts. The paper "
        "has CIFAR-10 and a ResNet-34 in 235,000 steps. The second table says "
        "which of the paper's claims hold here: for accuracies yes if a claim holds on "
        "every seed of every set, no if it fails on at least half of them, and not "
        "clearly in between. The other rows state their own rule.",
        *tables(),
        table(("**In the paper**", "holds here", ""), *claims()),
    ]


def of_paper(script, data, tag=""):
    name = f"{script}_cpu_minutes_{data}{tag}"
    try:
        return read(name)
    except FileNotFoundError:
        return {"results": {}}


def all_rows():
    """Rows of Tables 1 and 3 and of the comparison with SCAN: runs by data set."""
    rows = {}
    for part, script, tag in PARTS:
        for data in SETS:
            kept = of_paper(script, data, tag)
            for method, runs in kept["results"].items():
                row = rows.setdefault((part, method), {})
                row[data] = (runs, commit(kept, method))
    return rows


def papers_figure(part, method):
    """ACC that the paper prints: CIFAR-10, of Table 3 CIFAR-100's 20 classes."""
    if part == "Table 1":
        name = {"MoCo, spherical k-means": "MoCo(mean)", MICE: "MiCE(mean)"}.get(method)
        return literature.TABLE_1["cifar10"][name]["acc"] if name else None
    return {"Table 3": literature.TABLE_3, "SCAN": literature.SCAN}[part].get(method)


def tables():
    rows = all_rows()
    shown = []
    for (part, method), sets in rows.items():
        if (part, method) == ("SCAN", MICE):
            continue  # the same fits as above
        there = list(sets.values())
        accs = [over_seeds(sets[d][0] if d in sets else [], "acc") for d in SETS]
        nmis = ", ".join(mean(runs, "nmi") for runs, _ in there)
        above = ""
        if part == "Table 3" and method != MICE:
            full = rows[part, MICE]
            counts = [wins(full[d][0], sets[d][0]) for d in sets]
            above = ", ".join(f"{won} of {n}" for won, n in counts)
        figure = papers_figure(part, method)
        shown.append(
            (
                f"{part}: {method}",
                *accs,
                nmis,
                above,
                "" if figure is None else f"{figure / 100:.3f}",
                ", ".join(seconds(runs) for runs, _ in there),
                ", ".join(str(len(runs)) for runs, _ in there),
                ", ".join(name for _, name in there),
            )
        )
    head = ["**Tables 1, 3 and SCAN**"]
    head += [f"ACC, {label}" for label in SETS.values()]
    head += ["NMI", "seeds with full MiCE above", "the paper's ACC", "s", "seeds"]
    files = {
        f"{part}{tag.replace('_', ' ')}, {label}": of_paper(script, data, tag)
        for part, script, tag in PARTS
        for data, label in SETS.items()
    }
    text = (
        "A cell with several values has one for each set, in the order of the columns. "
        "The paper's ACC is on CIFAR-10, and in Table 3 on CIFAR-100 with 20 classes."
    )
    more = f"{command(files['Table 1, digits'])}, and likewise table3.py and scan.py"
    return table([*head, "commit"], *shown), line(text, notes(files), more)


def verdict(pairs):
    """What the seeds of all sets say of a claim that the first are above the others."""
    counts = [wins(ours, others) for ours, others in pairs]
    won, n = sum(won for won, _ in counts), sum(n for _, n in counts)
    word = "yes" if won == n else "no" if 2 * won <= n else "not clearly"
    return word, f"above on {won} of {n} seeds"


def claims():
    """What the paper says, and whether it holds at this scale."""
    rows = all_rows()
    full = rows["Table 3", MICE]

    def over(ours, *others):
        pairs = [(ours[d][0], sets[d][0]) for sets in others for d in sets]
        return verdict(pairs)

    baseline = rows["Table 1", "MoCo, spherical k-means"]
    yield (
        "Table 1: MiCE from a random start is above the baseline",
        *over(rows["Table 1", MICE], baseline),
    )
    yield (
        "the same with our start, which is not the paper's",
        *over(rows["Table 1", "MiCE, two-stage start (ours)"], baseline),
    )
    for parts in (("(4)",), ("(a)",), ("(b)",), ("(1)", "(2)", "(3)"), ("(c)", "(d)")):
        chosen = [method for method in literature.TABLE_3 if method.startswith(parts)]
        yield (
            f"Table 3: MiCE is above {', '.join(chosen)}",
            *over(full, *(rows["Table 3", method] for method in chosen)),
        )
    second = rows["SCAN", "MiCE pre-training + MiCE"]
    yield "SCAN: a second fit gains", *over(second, rows["SCAN", MICE])
    yield figure_of_embeddings()
    yield figure_of_posterior()
    yield prototypes()
    yield times("MiCE costs {:.1f} times the time of MoCo", "MiCE", "MoCo")
    yield times(
        "More passes over the prototypes cost {:.0f} times the time", "passes", "MiCE"
    )
    yield choice_of_k()


def of_drawn(script):
    """Results of a script, for each set that has figures."""
    return [of_paper(script, data)["results"] for data in DRAWN]


def links(script):
    return ", ".join(
        f"[{SETS[data]}](paper/{script}_cpu_minutes_{data}_seed0.png)" for data in DRAWN
    )


def figure_of_embeddings():
    gains = [
        [row["acc"] for row in results[MICE]] for results in of_drawn("embeddings")
    ]
    text = "; ".join(", ".join(f"{acc:.3f}" for acc in accs) for accs in gains)
    return (
        f"Clusters separate during training: figures of {links('embeddings')}",
        "yes" if all(accs == sorted(accs) for accs in gains) else "no",
        f"ACC after the first, middle and last epoch: {text}",
    )


def figure_of_posterior():
    rows = [row for results in of_drawn("posterior") for row in results[MICE]]
    shares = [(row["first"][0], row["last"][0]) for row in rows]
    text = "; ".join(f"{first:.0%} to {last:.0%}" for first, last in shares)
    return (
        f"The posterior becomes sharp: figures of {links('posterior')}",
        "yes" if all(first < last for first, last in shares) else "no",
        f"values below 0.1, first to last epoch (at most 90%): {text}",
    )


def prototypes():
    largest = [
        max(row["largest_cosine"] for row in results[MICE])
        for results in of_drawn("prototypes")
    ]
    met = max(largest) < literature.LARGEST_COSINE
    return (
        "Gating and expert prototypes differ: largest cosine below "
        f"{literature.LARGEST_COSINE}",
        "yes" if met else "not on all sets",
        ", ".join(f"{value:.2f}" for value in largest),
    )


def times(claim, longer, shorter):
    """How many times as long the epochs of a fit take as another's: 20% are near."""
    files = {SETS[data]: of_paper("training_time", data) for data in DRAWN}
    ratios = [
        kept["results"][longer][0]["hours"] / kept["results"][shorter][0]["hours"]
        for kept in files.values()
    ]
    paper = literature.HOURS[longer] / literature.HOURS[shorter]
    close = all(abs(ratio / paper - 1) < 0.2 for ratio in ratios)
    text = f"{', '.join(f'{ratio:.1f}' for ratio in ratios)}. {notes(files)}".strip()
    return claim.format(paper), "yes" if close else "no", text


def choice_of_k():
    kept = read("choose_k_digits")
    rows = kept["results"]
    classes, numbers, seeds = (
        sorted({row[name] for row in rows}) for name in ("classes", "K", "seed")
    )

    def chosen(figure):
        """The K of the largest mean over the seeds, for each number of classes."""
        by_fit = {(row["classes"], row["K"], row["seed"]): row[figure] for row in rows}
        return [
            max(numbers, key=lambda k: sum(by_fit[n, k, seed] for seed in seeds))
            for n in classes
        ]

    elbo = chosen("elbo")
    texts = [", ".join(map(str, ks)) for ks in (classes, elbo, chosen("stability"))]
    return (
        "Not a claim, but future work in the paper: the ELBO chooses K (digits of "
        f"{texts[0]} classes)",
        "yes" if elbo == classes else "no",
        f"it chooses {texts[1]}; stability chooses {texts[2]} (commit {commit(kept)}). "
        f"{kept.get('note', '')}".strip(),
    )
