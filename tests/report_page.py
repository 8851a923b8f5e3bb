"""For the tests of reports: readings, and pages of digits with names hard to show."""

import json
import re
from functools import cache
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array

from sk_mice import MiCEClustering
from sk_mice.datasets import load_digits
from sk_mice.inspection import write_report
from sk_mice.inspection._reading import OF_VIEWS, Reading

EVIL = "<img src=x onerror=alert(1)>.png"
# Markup, the end of a script, a line break, a quote and a comma, a byte that is not
# UTF-8, and an accent of its own.
NAMES = [EVIL, "</script><script>alert(2)</script>", 'a\nb,"c".png', "caf\udce9.png"]
NAMES += ["zelle\u0301.png"]


@cache
def digits():
    """A fitted model, its images, their classes and names."""
    X, y, _ = load_digits()
    few = y < 3
    X, y = X[few][:90], y[few][:90]
    names = [*NAMES, *(f"folder/{i:03d}.png" for i in range(len(NAMES), len(X)))]
    mice = MiCEClustering(3, max_epochs=8, random_state=0).fit(X)
    return mice, X, y, names


def reading(
    labels, confidence, n_clusters, second=-1, second_share=0.0, meaning=OF_VIEWS
):
    """What a clusterer says of samples, which are sorted from the last to the first."""
    n = len(labels)
    return Reading(
        np.array(labels),
        np.broadcast_to(confidence, n),
        np.broadcast_to(second, n),
        np.broadcast_to(second_share, n),
        np.arange(n)[::-1],
        np.eye(n),
        n_clusters,
        meaning,
        coo_array((n, n_clusters)),
    )


def write_page(folder):
    """The file of a report with everything in it."""
    mice, X, y, names = digits()
    classes = np.array(["<b>zero</b>", "one", "two"])[y]
    path, title = folder / "report.html", "Digits & <i>more</i>"
    write_report(mice, X, path, names=names, y=classes, title=title)
    return path


def data_of(path):
    """What the script of a page reads."""
    text = Path(path).read_text(encoding="utf-8")
    (found,) = re.findall(
        r'<script type="application/json" id="data">(.*)</script>', text
    )
    return json.loads(found)


def flat(X):
    return X.reshape(len(X), -1)
