"""A folder of images as one array: what is found there, and what is left out."""

import math
import os
import warnings
from heapq import heappop, heappush
from numbers import Integral
from operator import itemgetter

import numpy as np
from joblib import Parallel, delayed
from PIL import ImageColor
from sklearn.utils._param_validation import Interval, StrOptions, validate_params

from ._bars import tqdm
from ._image_decoding import Decoder

LISTED = 20  # of the problems that an error names; a warning names all
LONGEST_SIDE = 4096
MOST_ENTRIES = 10_000_000
WHITE_OF_16_BITS = 65535


@validate_params(
    {
        "path": [str, os.PathLike],
        "image_size": [
            Interval(Integral, 1, LONGEST_SIDE, closed="both"),
            tuple,
            list,
        ],
        "grey": ["boolean"],
        "resize": [StrOptions({"crop", "stretch"})],
        "background": [str],
        "white": [Interval(Integral, 1, None, closed="left")],
        "on_error": [StrOptions({"raise", "warn"})],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    },
    prefer_skip_nested_validation=True,
)
def load_image_folder(
    path,
    image_size,
    *,
    grey=False,
    resize="crop",
    background="white",
    white=WHITE_OF_16_BITS,
    on_error="raise",
    n_jobs=-1,
    verbose=0,
):
    """The images in a folder and in the folders below it, at one size.

    Formats are AVIF, BMP, GIF, JPEG, JPEG 2000, PNG, PPM (also PBM, PGM and PFM), TGA,
    TIFF and WebP, as far as Pillow was built with them; no program is started. Of an
    animation or a stack it is the first frame. An image is turned as its EXIF data say;
    16 bits become 8, other colour spaces RGB, and what is transparent shows
    `background`.

    What all threads of the process decode takes at most 1 GiB together, beside X and
    some megabytes a thread. An image that would take more by itself cannot be read, and
    neither can one of more pixels than ``PIL.Image.MAX_IMAGE_PIXELS``.

    Parameters
    ----------
    path : str or path-like
        Files and folders in it whose names begin with a dot are not looked at, and it
        is an error if there are more than 10,000,000 files and folders. Links are
        followed. A file that several paths lead to is read once, by the path without
        links or, if all have links, by the first; hard links are files of their own, as
        copies are.
    image_size : int or tuple (H, W)
        Height and width in X, each at most 4,096; an int is both.
    grey : bool, default=False
        Whether X has brightness only.
    resize : {"crop", "stretch"}, default="crop"
        "crop" keeps the proportions, and of the image the largest part in its middle
        that has those of `image_size`; "stretch" keeps the whole image.
    background : str, default="white"
        A colour by name or as "#rrggbb".
    white : int, default=65535
        Value of white in grey images of 16 bits, 4095 where a camera has used 12 of
        them; an image with larger ones cannot be read. Floats go from 0 to 1.
    on_error : {"raise", "warn"}, default="raise"
        Whether a file that is no image, or cannot be read as a whole, stops the loading
        or is left out with one warning, which lists all of them. Either comes after
        all files were tried.
    n_jobs : int, default=-1
        Threads, as in joblib; -1 takes all cores.
    verbose : int, default=0
        1 shows a progress bar.

    Returns
    -------
    X : ndarray of shape (N, H, W, 3), or (N, H, W) if `grey`, uint8
        In the order of `files`.
    y : ndarray of shape (N,), int64
        The class of each image: the position in `names` of the folder in `path` that it
        lies in, at any depth; -1 for an image in `path` itself.
    names : list of str
        Names of these folders, sorted; none without an image in X.
    files : ndarray of shape (N,), object
        Path of each image relative to `path`, with "/" between its parts, which it is
        sorted by. As an array, so that ``files[labels == 0]`` lists a cluster.

    Raises
    ------
    FileNotFoundError, NotADirectoryError
        If `path` is no folder.
    ValueError
        If a parameter is invalid, if there is no image, or, with ``on_error="raise"``,
        if there is anything else.

    Warns
    -----
    UserWarning
        With ``on_error="warn"``, if anything was left out: how many, which, and why.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from PIL import Image
    >>> from sk_mice.datasets import load_image_folder
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("cat/1.png", "cat/2.png", "dog/1.png"):
    ...         file = Path(folder, name)
    ...         file.parent.mkdir(exist_ok=True)
    ...         Image.new("RGB", (40, 30), "red").save(file)
    ...     X, y, names, files = load_image_folder(folder, 16)
    >>> X.shape, y, names, files[0]
    ((3, 16, 16, 3), array([0, 0, 1]), ['cat', 'dog'], 'cat/1.png')
    """
    height, width = _height_and_width(image_size)
    decode = Decoder((width, height), grey, resize, _colour(background), white)
    root = os.fspath(path)
    found, problems = _find_files(root)
    X = _empty((len(found), height, width, *(() if grey else (3,))), image_size)

    def load(row):
        return decode.into(X[row], os.path.join(root, *found[row]))

    # Threads, which write into one X, and Pillow decodes without the GIL.
    tasks = Parallel(n_jobs, require="sharedmem", return_as="generator")(
        delayed(load)(row) for row in range(len(found))
    )
    bar = tqdm(tasks, "Images", len(found), unit="", disable=not verbose)
    reasons = list(bar)

    good = [row for row, reason in enumerate(reasons) if reason is None]
    bad = zip(found, reasons, strict=True)
    problems += [(parts, reason) for parts, reason in bad if reason is not None]
    _report(problems, root, on_error)
    if not good:
        raise ValueError(f"`path` must hold images; there are none in {root!r}.")
    files = [found[row] for row in good]
    y, names = _classes(files)
    X = X if len(good) == len(X) else X[good]
    return X, y, names, np.array(["/".join(parts) for parts in files], dtype=object)


def _height_and_width(image_size):
    if isinstance(image_size, Integral):
        return int(image_size), int(image_size)
    valid = len(image_size) == 2 and all(
        isinstance(side, Integral) and 1 <= side <= LONGEST_SIDE for side in image_size
    )
    if not valid:
        raise ValueError(
            f"`image_size` must be an integer from 1 to {LONGEST_SIDE} or a pair "
            f"(H, W) of them; got {image_size!r}."
        )
    return tuple(map(int, image_size))


def _empty(shape, image_size):
    """An array for the images, if this machine has the memory."""
    size = math.prod(shape)
    try:
        if size > _memory():
            raise MemoryError
        return np.empty(shape, np.uint8)
    except MemoryError as error:
        raise ValueError(
            f"`image_size`={image_size!r} and {shape[0]:,} files need {size:,} bytes, "
            "more than this machine has."
        ) from error


def _memory():
    """Bytes of memory, where the system tells; elsewhere it is left to NumPy."""
    try:
        page, pages = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return math.inf
    return page * pages if page > 0 and pages > 0 else math.inf


def _colour(background):
    try:
        return ImageColor.getrgb(background)[:3]
    except ValueError as error:
        raise ValueError(
            f'`background` must be the name of a colour or "#rrggbb"; got '
            f"{background!r}."
        ) from error


def _classes(files):
    folders = [parts[0] if len(parts) > 1 else None for parts in files]
    names = sorted(set(folders) - {None})
    number = {name: k for k, name in enumerate(names)} | {None: -1}
    return np.array([number[folder] for folder in folders], dtype=np.int64), names


def _report(problems, root, on_error):
    """One error, or one warning, for all that are not in X."""
    if not problems:
        return
    shown = sorted(problems)[: LISTED if on_error == "raise" else None]
    lines = [f"  {'/'.join(parts)!r}: {reason}" for parts, reason in shown]
    if len(shown) < len(problems):
        lines.append(f"  and {len(problems) - len(shown)} more")
    listing = "\n".join(lines)
    message = f"{len(problems)} of what is in {root!r} cannot be read as an image"
    if on_error == "raise":
        raise ValueError(f'{message}; on_error="warn" leaves it out.\n{listing}')
    warnings.warn(f"{message} and is left out.\n{listing}", stacklevel=4)


# ------------------------------------------------------------------- what is there


def _find_files(root):
    """Files below `root`, as sorted tuples of parts, and folders that give none, why.

    Sorted by parts, so that a folder's files stay together whatever its name.
    """
    os.scandir(root).close()  # raises if it is no folder
    search = _Search(root)
    while search.pending:
        search.enter(*heappop(search.pending))
    return _each_once(search.files), search.problems


class _Search:
    """Folders entered once each, by the first path; one without links comes first."""

    def __init__(self, root):
        self.root = root
        self.pending = [(False, (), ())]  # a heap: by a link, parts, folders above
        self.entered = set()
        self.files = []  # by a link, parts, what tells the file from others
        self.problems = []
        self.number = 0

    def enter(self, linked, parts, above):
        folder = os.path.join(self.root, *parts)
        try:
            here = _identity(folder)
            if here in above:
                self.problems.append((parts, "links to a folder that it lies in"))
            if here in self.entered:
                return
            self.entered.add(here)
            with os.scandir(folder) as entries:
                for entry in entries:
                    self.see(entry, linked, parts, (*above, here))
        except OSError as error:
            self.problems.append((parts, error.strerror))

    def see(self, entry, linked, parts, above):
        self.number += 1
        if self.number > MOST_ENTRIES:
            raise ValueError(
                f"`path` must hold at most {MOST_ENTRIES:,} files and folders, links "
                f"followed; {self.root!r} holds more."
            )
        if entry.name.startswith("."):
            return
        parts = (*parts, entry.name)
        is_link = os.path.islink(entry.path)
        if os.path.isdir(entry.path):
            heappush(self.pending, (linked or is_link, parts, above))
        elif is_link:
            self.files.append((True, parts, _target(entry.path)))
        else:
            self.files.append((linked, parts, (above[-1], entry.name)))


def _identity(folder):
    """What tells a folder from others, whichever path leads to it."""
    status = os.stat(folder)
    if status.st_ino == 0:  # a file system that numbers nothing
        return os.path.realpath(folder)
    return status.st_dev, status.st_ino


def _target(link):
    """What tells the file that a link leads to from others."""
    folder, name = os.path.split(os.path.realpath(link))
    # Links that lead to nothing are listed one by one.
    return (_identity(folder), name) if os.path.exists(link) else link


def _each_once(files):
    """Sorted paths, of several to one file that without links, or the first."""
    paths = {}
    for _, parts, place in sorted(files, key=itemgetter(0, 1)):
        paths.setdefault(place, parts)
    return sorted(paths.values())
