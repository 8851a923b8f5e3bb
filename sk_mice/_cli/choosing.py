"""``sk-mice choose-k``: how many clusters."""

import io
from contextlib import nullcontext

from typer import BadParameter

from .. import ClassificationEM
from .._engine.files import write_atomically
from .._engine.warn import warn_user
from .._words import count
from ..model_selection import WEAK, choose_n_clusters
from . import results
from .fitting import (
    STEPS,
    check_asked,
    enough_epochs,
    estimator,
    versions_now,
    with_defaults,
)
from .images import facts_of_features, features_of, fitted_network, read_images
from .terminal import Progress, end_after_ctrl_c, put, put_json

EPOCHS = 50
GOES_ON = "The same command goes on."


def choose_k(
    photos, candidates, n_repeats, n_jobs, asked, out, overwrite, quiet, as_json
):
    """Compare numbers of clusters; print a table and a sentence, draw a plot."""
    if out.suffix.lower() != ".png" and not out.is_dir():
        raise BadParameter(
            f"it must name a .png file; got {str(out)!r}", param_hint="--out"
        )
    if out.parent.exists():
        results.check_new(out, overwrite)
    else:
        results.check_folder(out.parent, "--out")
    results.check_outside(out, photos, "--out")
    check_asked(asked, asked)
    import matplotlib

    matplotlib.use("agg")
    asked = with_defaults(asked, epochs=EPOCHS)
    progress = Progress(quiet)
    result = results.ResultFolder(out.parent, "--out")
    keeps = not out.parent.exists() or result.has_begun_features
    features = result.features, result.of_features
    with result.held(*features) if keeps else nullcontext():
        samples = _samples(photos, candidates, asked, result, keeps, progress)
        n_fits = 2 * n_repeats * len(candidates)
        progress.say(f"{count(n_fits, 'fit')}, each to half of the images")
        choice = choose_n_clusters(
            _clusterer(asked),
            samples,
            candidates,
            n_repeats=n_repeats,
            n_jobs=n_jobs,
            random_state=asked["seed"],
            verbose=progress.verbose,
        )
        picture = io.BytesIO()
        choice.plot().figure.savefig(picture, format="png", dpi=150)
        try:
            write_atomically(out, [picture.getvalue()])
        finally:  # the table of so many fits is not lost if the disk is full
            _show(choice, out, as_json)
    if choice.n_repeats < n_repeats:
        end_after_ctrl_c(f"Stopped after {choice.n_repeats} of {n_repeats} splits.")


def _samples(photos, candidates, asked, result, keeps: bool, progress: Progress):
    """The images, or their features, which a new folder keeps."""
    images = read_images(photos, asked, progress)
    most = len(images.files) // 2
    if max(candidates) > most:
        raise BadParameter(
            f"it must be at most half the number of images, {most}; got "
            f"{max(candidates)}",
            param_hint="--to",
        )
    network = fitted_network(asked, images, progress)
    if network is None:
        _warn_of_few_steps(asked["epochs"], most)
        return images.X
    run = {"parameters": asked, "versions": versions_now()}
    facts = facts_of_features(network, images, run)
    if not keeps:
        return features_of(network, images, result, facts, progress)
    if result.begin_features(facts):
        progress.say("The images or options are others: the features begin anew")
    try:
        into = result.features
        samples = features_of(network, images, result, facts, progress, into=into)
        result.describe_features(facts)
    except KeyboardInterrupt:
        end_after_ctrl_c(f"Stopped. {GOES_ON}")
    except Exception as error:
        error.add_note(GOES_ON)
        raise
    finally:
        result.end_features()
    return samples


def _warn_of_few_steps(epochs: int, n_images: int) -> None:
    enough = enough_epochs(n_images)
    if epochs < enough:
        warn_user(
            f"{count(epochs, 'epoch')} of {count(n_images, 'image')} "
            f"{'makes' if epochs == 1 else 'make'} fewer than "
            f"{STEPS:,} steps, and early clusters often follow brightness or position. "
            f"--epochs {enough} takes longer and makes enough."
        )


def _clusterer(asked: dict):
    """What is fitted with each number of clusters: for features the start of a fit."""
    if asked["features"] is None:
        mice = estimator(asked | {"clusters": 2}, Progress(quiet=True))
        return mice.set_params(max_epochs=asked["epochs"])
    return ClassificationEM(2, center=not asked["unequal"], random_state=asked["seed"])


def _show(choice, out, as_json: bool) -> None:
    sentence = in_words(choice)
    if as_json:
        facts = {"clusters": choice.n_clusters, "table": choice.table}
        put_json(facts | {"sentence": sentence, "plot": str(out)})
        return
    put("clusters   stability   silhouette")
    for row in choice.table:
        cells = f"{row['stability_mean']:12.2f}{row['silhouette_mean']:13.2f}"
        put(f"{row['n_clusters']:8}{cells}")
    put(f"\n{sentence}\n{out}")


def in_words(choice) -> str:
    """The choice in a sentence, with what to doubt."""
    rows = {row["n_clusters"]: row["stability_mean"] for row in choice.table}
    k, best = choice.n_clusters, max(rows, key=rows.get)
    words = f"Take {k} clusters, "
    if k == best:
        words += f"which are the most reproducible (stability {rows[k]:.2f})."
    else:
        words += (
            f"the largest number whose stability, {rows[k]:.2f}, is within a standard "
            f"error of the best, {rows[best]:.2f} at {best}."
        )
    if rows[best] < WEAK:
        words += " That is low: no number gives clusters that are found again reliably."
    elif k == max(rows) and len(rows) > 1:
        words += " It is also the largest one tried: raise --to."
    return words
