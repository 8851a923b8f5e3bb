"""``sk-mice predict`` and ``sk-mice report``: what is done with a result."""

from sklearn.pipeline import Pipeline

from .. import load
from .._engine.files import write_atomically
from .._words import count
from ..inspection._report import check_libraries
from . import naming, results, tables
from .fitting import judged, write_page
from .images import facts_of_features, features_of, read_images
from .terminal import Progress, put, put_bytes, put_json


def predict(folder, photos, names, out, overwrite, quiet, as_json) -> None:
    """Write a table of the clusters of other images, with their names if given."""
    result, run = results.require_result(folder)
    if out is not None:
        results.check_new(out, overwrite)
    if names is not None:
        named = naming.read_naming(names, result, run["parameters"]["clusters"])
    progress = Progress(quiet)
    _, reading, images = _ask(result, run, photos, progress)
    if names is None:
        rows = tables.rows_of(images.files, reading)
    else:
        rows = naming.rows_of(images.files, reading, named)
    table = tables.as_csv(rows)
    if out is not None:
        write_atomically(out, [table])
    if as_json:
        put_json({"images": rows, "left_out": images.left_out})
    elif out is None:
        put_bytes(table)
    else:
        progress.say(f"{str(out)!r} has the clusters of {count(len(rows), 'image')}")


def report(folder, photos, quiet) -> None:
    """Write the page of a result again."""
    result, run = results.require_result(folder)
    check_libraries()
    progress = Progress(quiet)
    with result.held(result.page):
        model, reading, images = _ask(result, run, photos, progress)
        write_page(result, reading, model, images, progress)
    if not quiet:
        put(str(result.page))


def _ask(result, run, photos, progress: Progress):
    """The model of a result, what it says of images, and these."""
    model = load(result.model)
    on_features = isinstance(model, Pipeline)
    grey = not on_features and len(model._format.input_shape) == 2
    images = read_images(photos, run["parameters"], progress, grey=grey)
    clusterer, samples = model, images.X
    if on_features:
        network, clusterer = model.named_steps.values()
        network.set_params(verbose=progress.verbose)
        facts = facts_of_features(network, images, run)
        samples = features_of(network, images, result, facts, progress)
        network.set_params(verbose=0)  # the page shows all parameters
    return model, judged(clusterer, samples, progress), images
