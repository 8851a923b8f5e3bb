"""Figure of what benchmarks/hours.py has kept: scores by core hours.

Each point is an epoch. Fits that have not been measured are left out.

    python benchmarks/hours_figure.py
"""

import json
from itertools import accumulate

from _common import RESULTS
from matplotlib import pyplot as plt
from pages.overview import HOURS

METRICS = {"acc": "accuracy", "nmi": "NMI"}


def figure(folder):
    drawn, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for name, label in HOURS.items():
        path = folder / f"{name}.json"
        if not path.is_file():
            continue
        course = json.loads(path.read_text(encoding="utf-8"))["results"]["course"]
        hours = [s / 3600 for s in accumulate(row["seconds"] for row in course)]
        for ax, metric in zip(axes, METRICS, strict=True):
            ax.plot(hours, [row[metric] for row in course], ".-", label=label)
    for ax, name in zip(axes, METRICS.values(), strict=True):
        ax.set(xlabel="core hours", ylabel=name, xlim=(0, None))
        ax.grid(alpha=0.3)
    axes[0].legend(loc="lower right")
    return drawn


if __name__ == "__main__":
    figure(RESULTS).savefig(RESULTS / "hours.png", dpi=120)
