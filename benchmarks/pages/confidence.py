"""Confidences, and scores of outliers."""

from .files import commit, labelled, read
from .tables import OTHER_PAGE, line_on, line_on_all, over_seeds, seconds, table


def page():
    return [
        "# Confidence and outliers",
        f"{OTHER_PAGE}.",
        *confidences(),
        *outliers(),
    ]


def confidences():
    """How well the posterior and the agreement tell right clusters from wrong ones."""
    files = labelled(
        {
            "confidence_digits_60": "digits, 60 epochs",
            "confidence_fashion_mnist_24": "Fashion-MNIST, 24 epochs",
        }
    )
    rows = []
    for label, kept in files.items():
        for name, runs in kept["results"].items():
            cells = (over_seeds(runs, key) for key in ("auroc", "acc"))
            error = over_seeds(runs, "ece", worst=max)
            rows.append((f"{label}, {name}", error, *cells, len(runs), commit(kept)))
    head = ("**Confidence**", "calibration error", "AUROC", "ACC", "seeds", "commit")
    text = (
        "The expected calibration error is the mean gap between a confidence and the "
        "share of right labels, in ten bins of equal width; the worst error is the "
        "largest. The AUROC, the area under the ROC curve, is the probability that a "
        "sample with a right label has a larger confidence than one with a wrong label."
    )
    return table(head, *rows), line_on_all(files, text)


def outliers():
    """How well each score finds them, by what the model was fitted to."""
    kept = read("outliers")
    cells = {}
    for name, runs in kept["results"].items():
        score, _, fitted_to = name.rpartition(", ")
        if fitted_to not in ("clean", "others"):  # no model: pixels of the others
            score, fitted_to = f"`LocalOutlierFactor` of {name}", "others"
        cells.setdefault(score, {})[fitted_to] = over_seeds(runs, "auc")
    rows = [
        (score, auc.get("clean", ""), auc["others"]) for score, auc in cells.items()
    ]
    fits = kept["results"]["agreement, clean"]
    head = (
        "**Inverted digits among 898**",
        "model of clean images",
        "model of these images",
    )
    text = (
        "The area under the ROC curve. A model is fitted to 899 clean digits, or to "
        f"the images that are scored, in {seconds(fits)} s. Seeds: {len(fits)}; commit "
        f"{commit(kept)}."
    )
    return table(head, *rows), line_on(kept, text)
