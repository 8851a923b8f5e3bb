"""The commands and options of ``sk-mice``, for typer.

A command returns a function that does the work, so that typer handles none of its
errors.
"""

import os
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from .. import __version__

# "\b" keeps the lines of an example.
EXAMPLES = """\b
Examples:
  sk-mice fit photos/ --clusters 10 --out result/ --features efficientnet-lite0
  sk-mice predict result/ new-photos/ --out new.csv
  sk-mice COMMAND --help

File names are written to tables unchanged, even if they hold line breaks or bytes that
are not UTF-8, and are quoted where CSV needs it (in Python: open(path,
encoding="utf-8", errors="surrogateescape", newline="")). In messages such characters
are shown as escapes.

Exit codes: 0 all went well, 1 the work failed, 2 wrong arguments, 130 Ctrl-C, 141
nobody reads the output any more.
"""
FIT = """\b
Examples:
  sk-mice fit photos/ --clusters 10 --out result/ --features efficientnet-lite0
  sk-mice fit scans/ --clusters 10 --out result/   (letters)
  sk-mice fit cells/ --clusters 10 --out result/ --rotate
  sk-mice fit scans/ --clusters 10 --out result/ --minutes 5
  sk-mice fit scans/ --clusters 10 --out result/ --copy-to sorted/
  sk-mice fit photos/ --out result/ --resume     (after Ctrl-C or a crash)

The folder of the result gets clusters.csv, model.safetensors, report.html and run.json;
with --features also features.npy and features.json. A fit with another number of
clusters (--overwrite), predict and report read the features from there if the images
are the same.

Agreement is the share of ten random views of an image that fall into its cluster. With
--features, it is the share of its 10 nearest neighbours that are in its cluster; a
cluster of fewer than eleven images has fewer neighbours to count. Margin is the
agreement minus the share of views or neighbours in the second cluster.
"""
PREDICT = """\b
Examples:
  sk-mice predict result/ new-photos/ --out new.csv
  sk-mice predict result/ new-photos/ | head
  sk-mice predict result/ new-photos/ --out new.csv --names clusters.csv

After a fit with --features, the agreement counts neighbours among the new images alone,
and means little for a few images.
"""
REPORT = """\b
Example:
  sk-mice report result/ photos/

The page replaces the earlier one. Images that were added to the folder are in the
clusters of the fit. "Open corrected CSV" on the page brings back the changes of a table
that an earlier page has saved.
"""
SORT = """\b
Examples:
  sk-mice sort clusters.csv photos/ --copy-to sorted/
  sk-mice sort corrected.csv photos/ --copy-to sorted/ --update
  sk-mice sort new.csv new-photos/ --copy-to sorted/ --update

The report's table gives the folders the names of the clusters. Subfolders of the images
are kept below the folder of a cluster. After Ctrl-C, the same command goes on.
"""
SCORE = """\b
Example:
  sk-mice score result/clusters.csv truth.csv

The first line of truth.csv names its columns: file, and class (or label). Files are
matched by name. Files that only one table has do not count, and a message names them;
nor do rows without a class. If truth.csv is the table of another fit, the scores say
how far the two fits agree.
"""
CHOOSE_K = """\b
Examples:
  sk-mice choose-k photos/ --from 2 --to 12
  sk-mice choose-k photos/ --to 20 --features efficientnet-lite0
  sk-mice choose-k photos/ --features efficientnet-lite0 --out result/choose-k.png

For each repeat, the images are split into two random halves, and each number of
clusters is fitted to both. Stability says how far the clusters of the two fits agree: 1
if they are the same, 0 if they agree only by chance. The choice depends on it alone.
The silhouette, from -1 to 1, says how dense the clusters are and how far apart.
"""

app = typer.Typer(
    name="sk-mice",
    help="Cluster images without labels.",
    epilog=EXAMPLES,
    rich_markup_mode=None,  # plain text, which pipes and screen readers take
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"sk-mice {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
):
    os.getcwd()  # where it is gone, torch's MKL ends the process as it is imported


# ------------------------------------------------------- arguments of several commands

_FOLDER = {"exists": True, "file_okay": False}
_TABLE = {"exists": True, "dir_okay": False}
Photos = Annotated[
    Path,
    typer.Argument(
        **_FOLDER,
        metavar="PHOTOS",
        help="Folder of images, which may be in subfolders.",
    ),
]
Result = Annotated[
    Path,
    typer.Argument(
        **_FOLDER, metavar="RESULT", help="Folder that `sk-mice fit` has written."
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print nothing but warnings and errors.")
]
# Of commands whose result is what they print.
QuietButTable = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", help="Print nothing but the table, warnings and errors."
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print the results as one JSON object.")
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="DEVICE",
        help="cpu, cuda, or cuda:0 and so on. [default: the GPU, if any]",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=2**32 - 1,
        metavar="N",
        help="Seed of the random numbers. [default: 0]",
    ),
]


Size = Annotated[
    int | None,
    typer.Option(
        min=8,
        max=4096,  # LONGEST_SIDE of `datasets`, which takes long to import
        metavar="PIXELS",
        help="Side of the images, which become squares. [default: 32; with --features, "
        "that of the network, such as 224 for ordinary photographs and 160 for small "
        "ones]",
    ),
]
Resize = Annotated[
    Literal["crop", "stretch"] | None,
    typer.Option(
        help="How images become squares: crop loses the ends of the longer side, "
        "stretch keeps all of the image. [default: crop]",
    ),
]
Background = Annotated[
    str | None,
    typer.Option(
        metavar="COLOUR",
        help="Colour behind transparent pixels, such as black. [default: white]",
    ),
]
White = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=2**16 - 1,
        metavar="VALUE",
        help="Value of white in 16-bit grey images, such as 4095 if they use only 12 "
        "of the bits. [default: 65535]",
    ),
]
Features = Annotated[
    str | None,
    typer.Option(
        metavar="NETWORK",
        help="For photographs: cluster the features of this pretrained network, such "
        "as efficientnet-lite0 or resnet50, instead of training a network.",
    ),
]
Unequal = Annotated[
    bool | None,
    typer.Option(
        "--unequal",
        help="With --features, if some kinds of images are many times as frequent as "
        "others.",
    ),
]
Rotate = Annotated[
    bool | None,
    typer.Option(
        "--rotate",
        help="For images without an upper side, such as cells: their random views "
        "are turned by any angle and mirrored. Not with --features.",
    ),
]
_EPOCHS = {"min": 1, "max": 1_000_000, "metavar": "N"}
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace what an earlier run wrote.")
]
CopyTo = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Copy the images here, into a folder for each cluster."
    ),
]
LinkTo = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Link the images here, into a folder for each cluster."
    ),
]


# The options that decide a fit.
OF_A_FIT = (
    *("features", "unequal", "rotate", "image_size", "resize", "background", "white"),
    *("epochs", "seed", "device", "clusters", "minutes"),
)


def _asked(arguments: dict) -> dict:
    """Options of a fit among the arguments of a command; None if not given."""
    return {name: arguments[name] for name in OF_A_FIT}


def _given(copy_to, link_to) -> dict:
    """The folders to sort images into, by their options."""
    folders = {"--copy-to": copy_to, "--link-to": link_to}
    return {option: path for option, path in folders.items() if path}


# ---------------------------------------------------------------------- the commands


@app.command(epilog=FIT)
def fit(
    photos: Photos,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="New folder for the result.")
    ],
    clusters: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="K",
            help="Number of clusters. Required, unless --resume goes on with a run.",
        ),
    ] = None,
    features: Features = None,
    unequal: Unequal = None,
    rotate: Rotate = None,
    image_size: Size = None,
    resize: Resize = None,
    background: Background = None,
    white: White = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            **_EPOCHS,
            help="Passes over all images. [default: 200, or for few images as many as "
            "make 1,000 steps of at most 256 images; none with --features]",
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            max=1_000_000,
            metavar="M",
            help="Train for as many epochs as fit into this time, instead of --epochs.",
        ),
    ] = None,
    seed: Seed = None,
    device: Device = None,
    copy_to: CopyTo = None,
    link_to: LinkTo = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with the run in the folder of the result, if there is one. "
            "Its options need not be given again, except for --copy-to and "
            "--link-to.",
        ),
    ] = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: Json = False,
):
    """Cluster the images of a folder."""
    start = time.monotonic()  # before torch is imported, which takes seconds
    from . import fitting

    request = fitting.Request(
        photos=photos,
        out=out,
        asked=_asked(locals()),
        resume=resume,
        overwrite=overwrite,
        sort_into=_given(copy_to, link_to),
        quiet=quiet,
        as_json=as_json,
        start=start,
    )
    return partial(fitting.fit, request)


@app.command(epilog=PREDICT)
def predict(
    result: Result,
    photos: Photos,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File for the table. [default: stdout]"),
    ] = None,
    names: Annotated[
        Path | None,
        typer.Option(
            **_TABLE,
            metavar="CLUSTERS.CSV",
            help="Table saved by the report, whose names and merges of clusters count.",
        ),
    ] = None,
    overwrite: Overwrite = False,
    quiet: QuietButTable = False,
    as_json: Json = False,
):
    """Assign other images to the clusters of a result."""
    from . import using

    return partial(
        using.predict,
        result,
        photos,
        names,
        out=out,
        overwrite=overwrite,
        quiet=quiet,
        as_json=as_json,
    )


@app.command(epilog=REPORT)
def report(result: Result, photos: Photos, quiet: Quiet = False):
    """Write the report of a result again, for the images of a folder."""
    from . import using

    return partial(using.report, result, photos, quiet)


@app.command(epilog=SORT)
def sort(
    clusters: Annotated[
        Path,
        typer.Argument(
            **_TABLE,
            metavar="CLUSTERS.CSV",
            help="Table saved by the report, or written by `fit` or `predict`.",
        ),
    ],
    photos: Photos,
    copy_to: CopyTo = None,
    link_to: LinkTo = None,
    update: Annotated[
        bool,
        typer.Option(
            "--update",
            help="The folder already has images: move those of the table to the folder "
            "of their cluster, add new ones, and keep all others.",
        ),
    ] = False,
    quiet: Quiet = False,
):
    """Sort images into a folder for each cluster of a table."""
    from . import sorting

    folders = _given(copy_to, link_to)
    return partial(sorting.sort, clusters, photos, folders, update, quiet)


@app.command(epilog=SCORE)
def score(
    clusters: Annotated[
        Path, typer.Argument(**_TABLE, metavar="CLUSTERS.CSV", help="Table of a fit.")
    ],
    truth: Annotated[
        Path,
        typer.Argument(**_TABLE, metavar="TRUTH.CSV", help="Table of known classes."),
    ],
    as_json: Json = False,
):
    """Compare clusters with known classes."""
    from . import scoring

    return partial(scoring.score, clusters, truth, as_json)


@app.command(epilog=CHOOSE_K)
def choose_k(
    photos: Photos,
    least: Annotated[
        int, typer.Option("--from", min=2, metavar="K", help="Smallest number.")
    ] = 2,
    most: Annotated[
        int, typer.Option("--to", min=2, metavar="K", help="Largest number.")
    ] = 10,
    repeats: Annotated[
        int, typer.Option(min=2, metavar="N", help="Number of random splits.")
    ] = 3,
    epochs: Annotated[
        int | None,
        typer.Option(
            **_EPOCHS,
            help="Passes over the images in each fit. [default: 50, none with "
            "--features]",
        ),
    ] = None,
    features: Features = None,
    unequal: Unequal = None,
    rotate: Rotate = None,
    image_size: Size = None,
    resize: Resize = None,
    background: Background = None,
    white: White = None,
    seed: Seed = None,
    device: Device = None,
    jobs: Annotated[
        int,
        typer.Option(
            metavar="N", help="Number of processes; -1 means one on each core."
        ),
    ] = 1,
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="PNG file for the plot. Its folder also keeps features: they are read "
            "there if the images are the same, and written if the folder is new.",
        ),
    ] = Path("choose-k.png"),
    overwrite: Overwrite = False,
    quiet: QuietButTable = False,
    as_json: Json = False,
):
    """Compare numbers of clusters."""
    from . import choosing

    if most < least:
        raise typer.BadParameter(
            f"it must be at least --from, {least}; got {most}", param_hint="--to"
        )
    if jobs < 1 and jobs != -1:
        raise typer.BadParameter(
            f"it must be at least 1, or -1; got {jobs}", param_hint="--jobs"
        )
    return partial(
        choosing.choose_k,
        photos,
        candidates=range(least, most + 1),
        n_repeats=repeats,
        n_jobs=jobs,
        # It tries several numbers of clusters, by fits of the same length.
        asked=_asked(locals() | {"clusters": None, "minutes": None}),
        out=out,
        overwrite=overwrite,
        quiet=quiet,
        as_json=as_json,
    )
