"""Images that are nearly the same, among those whose embeddings are nearest."""

import numpy as np

from ._thumbnails import shrunk

SIDE = 16  # pixels of the images that are compared
SAME = 5.0  # largest root mean square of the differences, of 255
# Where images have little contrast, as on a dim plate, so large a difference makes
# another image. The largest is then this share of the standard deviation of the values,
# and at least one level of grey.
SHARE, LEVEL = 0.25, 1.0
RANGES = (0, 1), (0, 255)  # black and white of 8 bits; others have no such level
AT_ONCE = 1024  # pairs that are compared


def near_duplicates(X, fmt, rows, nearest) -> np.ndarray:
    """Pairs (P, 2) of samples of X, each from `rows`, whose pixels hardly differ.

    `nearest` has the samples with the nearest embeddings, for each of `rows`: the same
    image twice, or in another size or quality, has nearly the same embedding.
    """
    # Half the bits, as there may be many channels; the differences are in float32.
    parts = (part.flatten(2).numpy() for part in shrunk(X, rows, fmt, (SIDE, SIDE)))
    small = np.concatenate([(255 * part).astype(np.float16) for part in parts])
    contrast = np.sqrt(small.var(axis=2, dtype=np.float32).mean(axis=1))
    level = LEVEL if (fmt.low, fmt.high) in RANGES else 0.0
    limits = np.clip(SHARE * contrast, level, SAME)
    place = np.zeros(len(X), np.intp)
    place[rows] = np.arange(len(rows))
    pairs: set = set()
    for column in nearest.T:
        for start in range(0, len(rows), AT_ONCE):
            own = rows[start : start + AT_ONCE]
            other = column[start : start + AT_ONCE]
            change = small[place[own]].astype(np.float32) - small[place[other]]
            limit = np.minimum(limits[place[own]], limits[place[other]])
            same = np.sqrt((change**2).mean(axis=(1, 2))) <= limit
            found = np.sort(np.stack([own[same], other[same]], axis=1), axis=1)
            pairs.update(map(tuple, found.tolist()))
    return np.array(sorted(pairs), np.int64).reshape(-1, 2)
