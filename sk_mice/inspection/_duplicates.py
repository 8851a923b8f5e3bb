"""Images that are nearly the same, among those whose embeddings are nearest."""

import numpy as np

from ._thumbnails import shrunk

SIDE = 16  # pixels of the images that are compared
SAME = 5.0  # largest root mean square of the differences, of 255
# Of images with little contrast, as on a dim plate, as large a difference is another
# image: a share of the standard deviation, where that is smaller, but a level of grey.
SHARE, LEVEL = 0.25, 1.0
AT_ONCE = 1024  # pairs that are compared


def near_duplicates(X, fmt, rows, nearest) -> np.ndarray:
    """Pairs (P, 2) of samples of X, each from `rows`, whose pixels hardly differ.

    `nearest` has the samples with the nearest embeddings, for each of `rows`: the same
    image twice, or in another size or quality, has nearly the same embedding.
    """
    small = shrunk(X, rows, fmt, (SIDE, SIDE)).reshape(len(rows), -1)
    pixels = small.reshape(len(rows), SIDE**2, -1)
    contrast = np.sqrt(pixels.var(axis=1, dtype=np.float32).mean(axis=1))
    limits = np.clip(SHARE * contrast, LEVEL, SAME)
    place = np.zeros(len(X), np.intp)
    place[rows] = np.arange(len(rows))
    pairs: set = set()
    for column in nearest.T:
        for start in range(0, len(rows), AT_ONCE):
            own = rows[start : start + AT_ONCE]
            other = column[start : start + AT_ONCE]
            change = small[place[own]].astype(np.float32) - small[place[other]]
            limit = np.minimum(limits[place[own]], limits[place[other]])
            same = np.sqrt((change**2).mean(axis=1)) <= limit
            found = np.sort(np.stack([own[same], other[same]], axis=1), axis=1)
            pairs.update(map(tuple, found.tolist()))
    return np.array(sorted(pairs), np.int64).reshape(-1, 2)
