"""A folder of images as one array: what is found there, and how each is decoded."""

import os
import stat
import warnings
from contextlib import suppress
from numbers import Integral

import numpy as np
from joblib import Parallel, delayed
from PIL import Image, ImageColor, ImageOps, UnidentifiedImageError
from sklearn.utils._param_validation import Interval, StrOptions, validate_params

from ._bars import tqdm

LISTED = 20  # of the problems that an error names; a warning names all
WHITE_OF_16_BITS = 65535


@validate_params(
    {
        "path": [str, os.PathLike],
        "image_size": [Interval(Integral, 1, None, closed="left"), tuple, list],
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

    Every format that Pillow decodes is read, but for EPS, which would start a program.
    Of an animation or a stack it is the first frame. An image is turned as its EXIF
    data say; 16 bits become 8, other colour spaces RGB, and what is transparent shows
    `background`.

    Parameters
    ----------
    path : str or path-like
        Files and folders in it whose names begin with a dot are not looked at. Links
        are followed.
    image_size : int or tuple (H, W)
        Height and width in X; an int is both.
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
    decode = _Decoder((width, height), grey, resize, _colour(background), white)
    root = os.fspath(path)
    found, problems = _find_files(root)
    X = np.empty((len(found), height, width, *(() if grey else (3,))), np.uint8)

    def load(row):
        return decode.into(X[row], os.path.join(root, *found[row]))

    with warnings.catch_warnings():
        # Pillow warns of metadata, which play no part here; of pixels it raises.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
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
        isinstance(side, Integral) and side >= 1 for side in image_size
    )
    if not valid:
        raise ValueError(
            "`image_size` must be a positive integer or a pair (H, W) of them; got "
            f"{image_size!r}."
        )
    return tuple(map(int, image_size))


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
    files, problems = [], []
    pending = [((), ())]
    while pending:
        parts, above = pending.pop()
        folder = os.path.join(root, *parts)
        try:
            status = os.stat(folder)
            here = status.st_dev, status.st_ino
            with os.scandir(folder) as entries:
                inside = [e for e in entries if not e.name.startswith(".")]
        except OSError as error:
            problems.append((parts, error.strerror))
            continue
        if here in above:
            problems.append((parts, "links to a folder that it lies in"))
            continue
        for entry in inside:
            if os.path.isdir(entry.path):  # `entry.is_dir` raises where links loop
                pending.append(((*parts, entry.name), (*above, here)))
            else:
                files.append((*parts, entry.name))
    return sorted(files), problems


# -------------------------------------------------------------------------- decoding


class _NoImageError(Exception):
    """A file is left out; why, in words that follow its name."""


class _Decoder:
    """How files become the rows of X."""

    def __init__(self, size, grey, resize, background, white):
        Image.init()  # all formats, before threads would do it
        # Ghostscript would run what an EPS file says.
        self.formats = [name for name in Image.ID if name != "EPS"]
        self.size = size
        self.mode = "L" if grey else "RGB"
        self.crop = resize == "crop"
        self.background = background
        self.white = white

    def into(self, row, path):
        """Decode a file into a row; returns why that is impossible, or None."""
        try:
            _check_file(path)
            with open(path, "rb") as file:
                row[:] = self._decode(file)
        except _NoImageError as error:
            return str(error)
        except UnidentifiedImageError:
            return "is no image that Pillow knows"
        except OSError as error:
            return error.strerror or str(error)
        # Damaged files make Pillow's decoders raise anything.
        except Exception as error:
            return f"{type(error).__name__}: {error}".rstrip(": ")
        return None

    def _decode(self, file):
        with Image.open(file, formats=self.formats) as image:
            if 0 in image.size:
                raise _NoImageError("has no pixels")
            # A JPEG file can be decoded at a fraction of its size, which is quicker;
            # twice the size wanted leaves the resampling something to do.
            side = 2 * max(self.size)
            image.draft(None, (side, side))
            image.load()
            # Else the EXIF data are broken, and the image is not.
            with suppress(Exception):
                image = ImageOps.exif_transpose(image)
            image = _eight_bits(image, self.white)
            image = _on_background(image, self.background)
            image = image.convert(self.mode)
            if self.crop:
                return ImageOps.fit(image, self.size)
            return image.resize(self.size)


def _check_file(path):
    if os.path.islink(path) and not os.path.exists(path):
        raise _NoImageError("links to nothing")
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):  # reading a pipe would wait for ever
        raise _NoImageError("is no regular file")
    if status.st_size == 0:
        raise _NoImageError("is empty")


def _eight_bits(image, white):
    """Pillow would clip what exceeds 255 instead of scaling it."""
    if image.mode not in ("I", "F") and not image.mode.startswith("I;"):
        return image
    values = np.asarray(image)
    white = 1 if image.mode == "F" else white
    if not (values.min() >= 0 and values.max() <= white):  # false for NaN
        raise _NoImageError(
            f"has values from {values.min():g} to {values.max():g}, where white is "
            f"{white}"
        )
    return Image.fromarray(np.rint(values / white * 255).astype(np.uint8))


def _on_background(image, colour):
    if not image.has_transparency_data:
        return image
    image = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, colour), image)
