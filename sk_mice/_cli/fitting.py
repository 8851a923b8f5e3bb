"""``sk-mice fit``: from a folder to clusters."""

import math
import re
import time
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline
from typer import BadParameter

from .. import MiCEClustering, NeighborMixture, save
from .._device import resolve_device
from .._engine.files import write_atomically
from .._engine.samples import batches_per_epoch
from .._engine.warn import warn_user
from .._interruption import ended_by_ctrl_c
from .._pretrained import find_network
from .._show_versions import LIBRARIES, versions
from .._words import as_shown, count, duration
from ..augmentation import ImageAugmentation
from ..datasets._decoding import colour
from ..inspection._reading import read
from ..inspection._report import OF_IMAGES, check_libraries, draw_page, from_page
from ..inspection._thumbnails import pictures_of
from . import results, sorting, tables
from .images import (
    Images,
    facts_of_features,
    features_of,
    files_beside,
    fitted_network,
    read_images,
)
from .terminal import Progress, end_after_ctrl_c, not_in, put, put_json
from .together import fit_together, run_together

# Defaults of the options of a new fit.
DEFAULTS: dict = {"image_size": 32, "epochs": 200, "seed": 0, "device": "auto"}
STEPS = 1000  # the default number of epochs makes at least as many
# The short fit that measures the time of an epoch for --minutes: it has two batches an
# epoch, and at least one epoch of EM.
PROBE_SAMPLES, PROBE_EPOCHS = 512, 3
# What --rotate stands for.
ANY_ANGLE = ImageAugmentation(flip=True, affine=(180, 0))


@dataclass(frozen=True)
class Request:
    """The arguments of ``sk-mice fit``."""

    photos: Path
    out: Path
    asked: dict  # parameters; None is what was not given
    resume: bool
    overwrite: bool
    sort_into: dict[str, Path]  # the folders of --copy-to and --link-to, if given
    quiet: bool
    as_json: bool
    start: float  # when the command began, by the monotonic clock

    @cached_property
    def result(self) -> results.ResultFolder:
        """The folder of the result."""
        return results.ResultFolder(self.out, "--out")

    @cached_property
    def progress(self) -> Progress:
        """What is said on the way."""
        return Progress(self.quiet)


def fit(request: Request) -> None:
    """Cluster the images of a folder and write the results.

    After Ctrl-C the results are those of the epochs so far, unless the folder has those
    of a whole fit, and SystemExit is raised. The processes of torchrun share the
    training.
    """
    run_together(lambda group: _fit(request, group))


def _fit(request: Request, group) -> None:
    result = request.result
    result.install_rest()
    run = _check(request)
    with result.held(*result.files):
        if run is not None and run["finished"]:
            _sort_again(request, run)
        else:
            _fit_and_write(request, run, group)


def _fit_and_write(request: Request, run: dict | None, group) -> None:
    """Begin a fit, or go on with `run`, and write the result."""
    result, progress = request.result, request.progress
    goes_on = run is not None
    run, images, network = _begin(request, run)
    try:
        samples, features = images.X, None
        if network is not None:
            facts = facts_of_features(network, images, run)
            into = result.started_features
            samples = features_of(
                network, images, result, facts, progress, into, in_fit=True
            )
            features = samples, facts
        clusterer = _train(request, run, samples, group)
        whole = network is not None or clusterer.n_iter_ == run["max_epochs"]
        run["finished"] = whole
        if not whole and result.is_whole:
            _end_early(request, run, clusterer, " The earlier result stays.")
        reading = judged(clusterer, samples, progress)
        run["results"] = _facts(reading, clusterer, run, images)
        run["results"]["resumed"] = goes_on
        model = clusterer
        if network is not None:
            network.set_params(verbose=0)
            model = Pipeline([("features", network), ("clusters", clusterer)])
        _write(request, run, model, features, reading, images)
    except KeyboardInterrupt:
        end_after_ctrl_c(f"Stopped. {_advice(request)}")
    except Exception as error:
        if result.has_progress:
            error.add_note(_advice(request))
        else:  # so that the next try is not refused
            result.end()
        raise
    if not whole:
        _show(request, run)
        _end_early(request, run, clusterer)
    _end(request, run, images.files, clusterer.labels_.tolist())


def _begin(request: Request, run: dict | None) -> tuple:
    """The facts of a run that goes on or is new, its images and its network, if any."""
    progress = request.progress
    parameters = run["parameters"] if run else with_defaults(request.asked)
    images = read_images(request.photos, parameters, progress)
    _check_images(parameters, images, run)
    network = fitted_network(parameters, images, progress)
    _check_weights(network, run)
    if run is None:
        if parameters["epochs"] is not None and request.asked["epochs"] is None:
            enough = enough_epochs(len(images.files))
            parameters["epochs"] = max(DEFAULTS["epochs"], enough)
        if request.resume:
            progress.say(f"{str(request.out)!r} holds no run: this is a new fit")
        run = _new_run(parameters, images)
        if network is not None:
            run["features"] = {
                "weights": network.weights_sha256_,
                "image_size": network.image_size_,
            }
        request.result.begin(run)
    return run, images, network


def _sort_again(request: Request, run: dict) -> None:
    """What --resume does after a complete fit."""
    parameters, progress = run["parameters"], request.progress
    # Some images may be gone, and the others can still be sorted. Those of another
    # folder must be the same.
    if run["images"]["folder"] != str(request.photos.resolve()):
        images = read_images(request.photos, parameters, progress)
        _check_images(parameters, images, run)
    progress.say(f"The fit in {str(request.out)!r} is complete")
    files, labels = sorting.read_clusters(request.result.table, parameters["clusters"])
    _warn_of_missing_files(request.result)
    _warn_of_new_images(request, run, files)
    _end(request, run, files, labels)


def _warn_of_missing_files(result: results.ResultFolder) -> None:
    """Name what somebody has removed from a complete result."""
    gone = [
        repr(str(path)) for path in (result.model, result.page) if not path.exists()
    ]
    if gone:
        again = "`sk-mice report` writes it again"
        warn_user(
            f"{' and '.join(gone)} {'is' if len(gone) == 1 else 'are'} no longer "
            f"there. {again if result.model.exists() else '--overwrite begins anew'}."
        )


def _warn_of_new_images(request: Request, run: dict, files) -> None:
    """Name what has come to the folder of images since a complete fit."""
    new = files_beside(request.photos, {*files, *run["results"]["left_out"]})
    if new:
        warn_user(
            f"{not_in(new, request.photos, request.result.table)}. `sk-mice predict` "
            "finds the clusters of new images, `sk-mice report` writes the page again "
            "with them, and --overwrite clusters all images anew."
        )


def _end(request: Request, run: dict, files, labels) -> None:
    """Sort the images and show the complete result."""
    request.result.end()
    try:
        try:
            places = sorting.places_of(files, labels, {})
            missing = sorting.sort_all(
                request.sort_into, request.photos, places, request.progress
            )
            sorting.warn_of_missing(missing, request.photos)
        finally:
            _show(request, run)
    except KeyboardInterrupt:
        end_after_ctrl_c(f"Stopped before all images were sorted. {_advice(request)}")


def _end_early(request: Request, run: dict, clusterer, more: str = "") -> NoReturn:
    epochs = f"{clusterer.n_iter_} of {count(run['max_epochs'], 'epoch')}"
    end_after_ctrl_c(f"Stopped after {epochs}.{more} {_advice(request)}")


def _advice(request: Request) -> str:
    instead = " in place of --overwrite" if request.overwrite else ""
    return f"The same command with --resume{instead} goes on."


# ------------------------------------------------------------------------ before a fit


def _check(request: Request) -> dict | None:
    """Refuse wrong arguments before images are read; return the run to go on with."""
    asked, result = request.asked, request.result
    check_libraries()
    result.check_free(request.resume, request.overwrite)
    results.check_outside(request.out, request.photos, "--out")
    results.check_folder(request.out, "--out")
    sorting.check_apart(result, request.sort_into)
    sorting.check_folders(request.sort_into, request.photos)
    run = result.read_started() if request.resume else None
    check_asked(asked, run["parameters"] if run else asked)
    if asked["epochs"] is not None and asked["minutes"] is not None:
        raise BadParameter("it contradicts --epochs", param_hint="--minutes")
    if run is not None:
        _check_same(asked, run["parameters"], request.out)
    elif asked["clusters"] is None:
        why = "no number is given"
        if request.resume:
            why += f", and {str(request.out)!r} holds no run to go on with"
        raise BadParameter(why, param_hint="--clusters")
    if run is None or not run["finished"]:  # a finished run may have sorted some
        sorting.check_empty(request.sort_into)
    return run


def _check_same(asked: dict, was: dict, out) -> None:
    """Refuse options that are not those of the run that goes on."""
    for name, value in asked.items():
        before = was.get(name)
        if value is not None and value != before:
            option = f"--{name.replace('_', '-')}"
            before = "not given" if before is None else before
            raise BadParameter(
                f"it was {before} in the run in {str(out)!r} that --resume goes on "
                f"with; got {value}",
                param_hint=option,
            )


def check_asked(asked: dict, parameters: dict) -> None:
    """Refuse what is missing, such as a device, and options that contradict each other.

    `parameters` are those of the run that goes on, or what is asked.
    """
    with _wrong("--device"):
        resolve_device(asked["device"] or "auto")
    if asked["background"] is not None:
        with _wrong("--background"):
            colour(asked["background"])
    if asked["features"] is not None:
        with _wrong("--features"):
            find_network(asked["features"], None)
    if asked["unequal"] and parameters["features"] is None:
        raise BadParameter("it needs --features", param_hint="--unequal")
    for name in ("epochs", "minutes", "rotate"):
        if asked["features"] is not None and asked[name] is not None:
            raise BadParameter(
                "it contradicts --features, with which no network is trained",
                param_hint=f"--{name}",
            )


@contextmanager
def _wrong(option: str):
    """Turn a ValueError about a parameter into an error about the option."""
    try:
        yield
    except ValueError as error:
        said = re.sub("^`[a-z]+`", "it", str(error))
        raise BadParameter(said, param_hint=option) from error


def with_defaults(asked: dict, **others) -> dict:
    """The options, with defaults for what is not given; `others` replace defaults."""
    defaults = DEFAULTS | others
    if asked["features"] is not None:
        defaults["image_size"] = None  # the network's own
    if asked["minutes"] is not None or asked["features"] is not None:
        defaults["epochs"] = None
    given = {name: value for name, value in asked.items() if value is not None}
    return dict.fromkeys(asked) | defaults | given


def enough_epochs(n_images: int) -> int:
    """How many epochs make `STEPS` steps."""
    return math.ceil(STEPS / batches_per_epoch(n_images, MiCEClustering().batch_size))


def _check_images(parameters: dict, images: Images, run) -> None:
    n = len(images.files)
    if parameters["clusters"] > n:
        raise BadParameter(
            f"it must be at most the number of images, {n}; got "
            f"{parameters['clusters']}",
            param_hint="--clusters",
        )
    if run is not None and run["images"]["digest"] != images.digest:
        raise BadParameter(
            f"these images ({n:,}) are not those of the run that --resume goes on with "
            f"({run['images']['count']:,}), or have changed; --overwrite begins anew",
            param_hint="PHOTOS",
        )


def _check_weights(network, run) -> None:
    """Refuse to add features of other weights to those of a run that goes on."""
    if network is None or run is None:
        return
    if run["features"]["weights"] != network.weights_sha256_:
        raise BadParameter(
            f"the weights of {network.network} are not those of the run that --resume "
            "goes on with; --overwrite begins anew",
            param_hint="--features",
        )


# --------------------------------------------------------------------------- the model


def _new_run(parameters: dict, images: Images) -> dict:
    return {
        "parameters": parameters,
        "max_epochs": parameters["epochs"],
        "images": {
            "folder": str(images.folder.resolve()),
            "count": len(images.files),
            "digest": images.digest,
        },
        "versions": versions_now(),
        "finished": False,
    }


def versions_now() -> dict[str, str]:
    """The versions on which results depend."""
    return versions("sk_mice", "python", *LIBRARIES, *OF_IMAGES)


def estimator(parameters: dict, progress: Progress):
    """The clusterer that the options describe: of features, or of images."""
    n_clusters, seed = parameters["clusters"], parameters["seed"]
    if parameters["features"] is not None:
        return NeighborMixture(
            n_clusters,
            center=not parameters.get("unequal"),
            random_state=seed,
            verbose=progress.verbose,
        )
    return MiCEClustering(
        n_clusters,
        augmentation=ANY_ANGLE if parameters.get("rotate") else "moco",
        device=parameters["device"],
        random_state=seed,
        verbose=progress.verbose,
    )


def _train(request: Request, run: dict, samples, group):
    """The fitted clusterer; the number of its epochs is kept before it trains."""
    parameters, progress = run["parameters"], request.progress
    clusterer = estimator(parameters, progress)
    if parameters["features"] is not None:
        progress.say("Clustering the features")
        return clusterer.fit(samples).set_params(verbose=0)
    mice = clusterer.set_params(checkpoint=request.result.checkpoint)
    if run["max_epochs"] is None:
        left = 60 * parameters["minutes"] - (time.monotonic() - request.start)
        n_epochs = epochs_within(mice, samples, left, group)
        run["max_epochs"] = max(1, n_epochs)
        request.result.write_started(run)
        minutes = f"{parameters['minutes']:g} min"
        if n_epochs:
            fit_into = "fits" if n_epochs == 1 else "fit"
            progress.say(f"{count(n_epochs, 'epoch')} {fit_into} into {minutes}")
        else:
            progress.say(f"An epoch takes more than {minutes}: training one epoch")
    progress.say("Learning features, then clustering (Ctrl-C stops)")
    mice.set_params(max_epochs=run["max_epochs"])
    fitted = fit_together(group, mice, samples)
    # The page shows all parameters. It may be given to others, and the checkpoint is
    # removed at the end.
    return fitted.set_params(checkpoint=None, verbose=0)


def epochs_within(mice: MiCEClustering, X, seconds: float, group) -> int:
    """How many epochs fit into a time, by a short fit to some of the samples.

    The time includes that of the short fit, and what a fit does besides its epochs.
    """
    n_probed = max(PROBE_SAMPLES, 2 * mice.n_clusters)
    part = X[:: math.ceil(len(X) / n_probed)]
    scale = len(X) / len(part)
    probe = clone(mice).set_params(max_epochs=PROBE_EPOCHS, checkpoint=None, verbose=0)
    start = time.monotonic()
    with ended_by_ctrl_c(), warnings.catch_warnings():
        # Clusters after so few epochs tell nothing about those of the fit.
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit_together(group, probe, part)
        probe.agreement(part)
    took = time.monotonic() - start
    # Of the last epoch of each stage, as the first one also warms up.
    last = {row["stage"]: row["seconds"] for row in probe.history_}
    beside = took - sum(row["seconds"] for row in probe.history_)
    share = {"moco": mice._init_share, "em": 1 - mice._init_share}
    an_epoch = scale * sum(share[stage] * last[stage] for stage in share)
    return max(0, int((seconds - took - scale * beside) / an_epoch))


# ----------------------------------------------------------------------- after the fit


def _write(request: Request, run, model, features, reading, images: Images) -> None:
    """Write the files of a result; `features` are the features and their facts."""
    result = request.result
    replaces = result.read_run() is not None
    page = result.new(result.page)
    write_page(result, reading, model, images, request.progress, into=page)
    rows = tables.rows_of(images.files, reading)
    write_atomically(result.new(result.table), [tables.as_csv(rows)])
    save(model, result.new(result.model))
    run["results"]["seconds"] = round(time.monotonic() - request.start, 1)
    result.install(run)
    if features is not None:
        result.keep_features(*features)
    elif replaces:  # else they are of `sk-mice choose-k`, and a next fit can use them
        result.drop_features()


def judged(clusterer, samples, progress: Progress):
    """The `Reading` of the samples: their clusters, and how sure they are."""
    progress.say("Measuring how certain each image is")
    return read(clusterer, samples)


def write_page(
    result, reading, model, images: Images, progress: Progress, into=None
) -> None:
    """Write the page of what a model has said of these images.

    `into` is where it waits for the other files of a new result.
    """
    progress.say("Writing the page")
    draw_page(
        reading,
        model,
        pictures_of(None, images.pictures()),
        into or result.page,
        names=list(images.files),
        files=images.paths(),
        folder=from_page(result.page, images.folder),
        rng=np.random.RandomState(0),
    )


def _facts(reading, clusterer, run: dict, images: Images) -> dict:
    pairs = zip(reading.sizes.tolist(), reading.means.tolist(), strict=True)
    return {
        "images": len(reading.labels),
        "left_out": images.left_out,
        "clusters": [
            {"cluster": k, "images": n, "agreement": round(mean, 6) if n else None}
            for k, (n, mean) in enumerate(pairs)
        ],
        "epochs": run["max_epochs"] and clusterer.n_iter_,
        "max_epochs": run["max_epochs"],
        "complete": run["finished"],
        # Others give other results.
        "device": str(resolve_device(run["parameters"]["device"])),
        "threads": torch.get_num_threads(),
    }


def _show(request: Request, run: dict) -> None:
    facts = run["results"] | request.result.names  # the folder may have moved
    if request.as_json:
        put_json(facts)
        return
    if request.quiet:
        return
    took = duration(facts["seconds"])
    if facts["epochs"] is not None:
        took = f"{count(facts['epochs'], 'epoch')}, {took}"
    if facts.get("resumed"):
        took += " since --resume"
    put(
        f"\n{count(facts['images'], 'image')} in {len(facts['clusters'])} clusters "
        f"({took})\n\ncluster   images   agreement"
    )
    for row in facts["clusters"]:
        mean = row["agreement"]
        agreement = "" if mean is None else f"{as_shown(mean):.2f}"
        put(f"{row['cluster']:7}{row['images']:9,}{agreement:>12}")
    put(
        f"\n{facts['report']}  (open it in a browser)\n{facts['table']}\n"
        f"{facts['model']}"
    )
