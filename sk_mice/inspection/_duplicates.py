"""Images that are nearly the same, among those whose embeddings are nearest."""

import os
from contextlib import suppress

import numpy as np

SIDE = 16  # pixels of the images that are compared
SAME = 5.0  # largest root mean square of the differences, of 255
# Where images have little contrast, as on a dim plate, so large a difference makes
# another image. The largest is then this share of the standard deviation of the values,
# and at least one level of grey.
SHARE, LEVEL = 0.25, 1.0
RANGES = (0, 1), (0, 255)  # black and white of 8 bits; others have no such level
AT_ONCE = 1024  # pairs that are compared


def near_duplicates(pictures, rows, nearest) -> np.ndarray:
    """Pairs (P, 2) of samples, each from `rows`, whose pixels hardly differ.

    `nearest` has the samples with the nearest embeddings, for each of `rows`, which are
    sorted: the same image twice, or in another size or quality, has nearly the same
    embedding.
    """
    # Half the bits, as there may be many channels; the differences are in float32.
    parts = (part.flatten(2).numpy() for part in pictures.shrunk(rows, (SIDE, SIDE)))
    small = np.concatenate([(255 * part).astype(np.float16) for part in parts])
    contrast = np.sqrt(small.var(axis=2, dtype=np.float32).mean(axis=1))
    level = LEVEL if (pictures.fmt.low, pictures.fmt.high) in RANGES else 0.0
    limits = np.clip(SHARE * contrast, level, SAME)
    places = np.searchsorted(rows, nearest)
    pairs = [np.empty((0, 2), np.int64)]
    for own in np.split(np.arange(len(rows)), range(AT_ONCE, len(rows), AT_ONCE)):
        for other in places[own].T:
            change = small[own].astype(np.float32) - small[other]
            limit = np.minimum(limits[own], limits[other])
            same = np.sqrt((change**2).mean(axis=(1, 2))) <= limit
            pairs.append(np.sort(np.stack([own[same], other[same]], axis=1), axis=1))
    return rows[np.unique(np.concatenate(pairs), axis=0)]


def largest_first(group, names, files) -> list[int]:
    """Samples of a group, by the bytes of their files and the lengths of their names.

    The first one is more likely the original than its copies.
    """

    def place(i):
        n_bytes = 0
        if files is not None:
            with suppress(OSError):  # the file has gone
                n_bytes = os.path.getsize(files[i])
        return -n_bytes, len(names[i]) if names else 0

    return sorted(group, key=place)
