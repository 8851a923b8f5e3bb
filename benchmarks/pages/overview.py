"""The first page: clusterings at equal time, fits of hours, speed."""

from itertools import accumulate

from .files import command, commit, labelled, of_seeds, read
from .speed import speed
from .tables import DATA, METRICS, by_set, compared, line_on_all, over_seeds, table

HOURS = {
    "hours_cifar10_jpeg_moco": "MoCo, spherical k-means",
    "hours_cifar10_jpeg_mice_random": "MiCE from random weights, as in the paper",
    "hours_cifar10_jpeg_mice": "MiCE by default",
}
NOT_MEASURED = (
    "The paper's own data sets, networks and 1,000 epochs (`--scale paper`).",
    "More than three seeds for the E-steps on Fashion-MNIST, for small maps, and for "
    "the cosines of the paper's prototypes.",
    "ClustPy on images other than the digits.",
)


def hours():
    """How far each fit has come after hours on one core, and a figure."""
    files = labelled(HOURS)
    rows = []
    for label, kept in files.items():
        course = kept["results"]["course"]
        spent = list(accumulate(row["seconds"] for row in course))
        cells = []
        for hour in (1, 2, 3):
            there = [
                row for row, s in zip(course, spent, strict=True) if s <= 3600 * hour
            ]
            cells.append(f"{there[-1]['acc']:.3f}, {there[-1]['nmi']:.3f}")
        cells += [len(course), f"{spent[-1] / 3600:.1f}", commit(kept)]
        rows.append((label, *cells))
    first = next(iter(files.values()))
    head = (f"**{DATA[first['data']]}, {first['n']:,} images**",)
    head += ("ACC, NMI after 1 h", "after 2 h", "after 3 h")
    head += ("epochs", "hours", "commit")
    text = (
        "Each fit has one core and a number of epochs that was set "
        "beforehand to take about three hours. After each epoch, 10,000 of the images "
        "are clustered; a column for hours has the last score up to then. Hours are "
        "processor time without that for the scores, on a machine without bfloat16. "
        "`python benchmarks/hours_figure.py` draws the figure. The second table also "
        "has other seeds (`--seeds 1` or `--seeds 2`), on a machine with bfloat16, "
        "where they take about an hour. The start is the partition from which EM "
        "starts, after nine tenths of the epochs."
    )
    image = "![Accuracy and NMI by core hours](hours.png)"
    tables = table(head, *rows), after_hours()
    return ["## Core hours", image, *tables, line_on_all(files, text)]


def after_hours():
    """A table of the scores of all images after the last epoch, over the seeds."""
    rows = []
    for name, label in HOURS.items():
        seeds = of_seeds(name)
        commits = ", ".join(dict.fromkeys(map(commit, seeds)))
        found = [kept["results"] for kept in seeds]
        for when, title in (("end", label), ("start of EM", f"{label}: its start")):
            if when in found[0]:
                ends = [results[when] for results in found]
                cells = [over_seeds(ends, metric) for metric in METRICS]
                rows.append((title, *cells, len(ends), commits))
    head = ("**All images, after the last epoch**", *METRICS.values())
    return table((*head, "seeds", "commits"), *rows)


def same_fits():
    """What the fits of earlier commits have in common with the present ones."""
    kept = read("same_fits")
    others = {}
    for name, fits in kept["results"].items():
        for fit, outputs in fits.items():
            if not outputs or min(outputs.values()) < 1:
                how = ", with the same labels" if outputs.get("labels") == 1 else ""
                others.setdefault(fit + how, []).append(name)
    n_fits = len(next(iter(kept["results"].values())))
    text = (
        "Rows of older commits hold for the present code, too: short fits of "
        f"{n_fits} kinds on a CPU give the same bits at commit {commit(kept)} as at "
        f"each of the {len(kept['results'])} commits of these pages"
    )
    if others:
        named = (f"{fit} ({', '.join(at)})" for fit, at in others.items())
        text += f", except for {'; '.join(named)}"
    return f"{text}. {command(kept)}"


def page():
    parts = [
        "# Results",
        "Accuracy and time of MiCE, MoCo and other clusterings. [The features of "
        "pretrained networks](features.md), [experiments with EM and its start](em.md)"
        ", [confidence and outliers](confidence.md), [a GPU](gpu.md) and [the paper's "
        "tables and figures](paper.md) have pages of their own.",
        "A cell is the mean ± standard deviation (worst) over the seeds. ACC is the "
        "accuracy under the best matching of clusters with classes, NMI the normalised "
        "mutual information, ARI the adjusted Rand index; labels are used for scores "
        "alone. Seconds (s) are the median of a fit on one thread of a virtual 2-core "
        "AMD EPYC with bfloat16, unless the line below a table says otherwise. Other "
        "processes ran at the same time, so compare seconds only within a table.",
        "`python benchmarks/results_page.py` writes these pages from the JSON files of "
        "this folder. `python benchmarks/reproduce.py` runs every row again, except "
        "for those of a GPU (`benchmarks/gpu.py`). The last column is the commit that "
        f"was measured. {same_fits()}",
        "## Clusterings at equal time",
        "MiCE has the default parameters of its commit, apart from `max_epochs`, which "
        "the titles give. MoCo trains for as many epochs as fit into the same time, "
        "and its features are clustered in several ways. "
        '"MiCE\'s start" is the one with which MiCE starts '
        "EM: `ClassificationEM`. UMAP has 20 neighbours and K components, and a "
        "mixture of Gaussians or HDBSCAN clusters its map; the noise of HDBSCAN is one "
        "more cluster. Where the smallest class is a tenth of the largest, only the "
        "first images of each class are kept, and the sizes of the classes form a "
        "geometric sequence. CIFAR-10 (JPEG) is "
        "CIFAR-10 saved as JPEG files, in a tar archive of `train/CLASS/NUMBER.jpg` "
        "and `test/CLASS/NUMBER.jpg`. The archive is not distributed; another one "
        "gives slightly other figures.",
    ]
    for name in (
        "compare_digits",
        "compare_digits_710_unbalanced",
        "compare_digits_1797_vectors",
        "compare_fashion_mnist_10000_24_epochs",
        "compare_fashion_mnist_3850_unbalanced",
        "compare_cifar10_jpeg_10000",
    ):
        parts += compared(name)
    parts += by_set(
        "Digits, 200 epochs, another K",
        {"compare_digits_1797_k0.5": "K = 5", "compare_digits_1797_k1.5": "K = 15"},
        "ACC and NMI. There are 10 classes, so ACC is at most 0.5 with K = 5.",
    )
    parts += [
        "## All images of Fashion-MNIST",
        *compared("compare_fashion_mnist_70000"),
    ]
    parts += [*hours(), *speed()]
    parts += ["## Not measured", "\n".join(f"- {said}" for said in NOT_MEASURED)]
    return parts
