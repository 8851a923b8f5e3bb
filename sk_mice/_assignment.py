"""Nearest centres, without the products that cannot change them."""

import numpy as np


class Assignment:
    """Nearest centres of all rows, kept up to date while the centres move.

    Two kinds of products need not be computed again.

    The first are those with a centre that did not move. If the product of a row with a
    centre that moved is larger than the row's largest product before, no centre that
    stayed can be nearer. Otherwise the row keeps its centre, unless that has moved
    (Kaukoranta, Franti and Nevalainen, "A fast exact GLA based on code vector activity
    detection", IEEE Transactions on Image Processing 2000).

    The second are all products of a row whose own centre is still nearer than any other
    can be. Angles between unit vectors obey the triangle inequality. So when a centre
    turns by some angle, a row's angle to it changes by at most that much (Schubert,
    Lang and Feher, "Accelerating Spherical k-Means", SISAP 2021, in the form of
    Hamerly's bounds for k-means, SDM 2010). The bounds begin with a second maximum over
    all products, and pay only once the centres have nearly settled: they are tried when
    few labels change, and a sample of the rows says that they save more than the first
    way.
    """

    def __init__(self, rows):
        self.rows = rows
        self.labels = np.full(rows.shape[0], -1, dtype=np.int32)
        self.centers = self.cosines = None  # of the last update
        self.complete = False  # whether it computed all products
        self.settled = False  # whether it changed few labels
        self.nearest = self.others = None  # bounds on angles, while they are kept

    def update(self, centers):
        """Return the label of every row; the array is not written to again."""
        turns = None if self.centers is None else _turns(self.centers, centers)
        moved = None if self.cosines is None else np.flatnonzero(turns)
        active = None if self.nearest is None else self._undecided(turns)
        share = 1 if moved is None else len(moved) / len(centers)
        self.complete = False
        if active is not None:
            labels, self.cosines = self.labels.copy(), None
            labels[active], *cosines = self.rows.nearest(centers, active, True)
            self.nearest[active], self.others[active] = self._bounds(*cosines)
        elif self.settled and self._open_share(centers, turns) < min(share, 0.5):
            labels, *cosines = self.rows.nearest(centers, runner_up=True)
            self.nearest, self.others = self._bounds(*cosines)
            self.cosines, self.complete = cosines[0], True
        elif share < 0.75:
            labels, self.cosines = self._against(centers, moved)
        else:
            labels, self.cosines = self.rows.nearest(centers)
            self.complete = True
        n_changed = np.count_nonzero(labels != self.labels)
        self.settled = len(centers) > 1 and n_changed < 0.02 * len(labels)
        self.labels, self.centers = labels, centers
        return labels

    def _against(self, centers, moved):
        """Labels and cosines, from those before and the centres that moved."""
        if not len(moved):
            return self.labels, self.cosines
        nearest, cosines = self.rows.nearest(centers[moved])
        closer = cosines > self.cosines
        labels = np.where(closer, moved[nearest].astype(np.int32), self.labels)
        again = np.flatnonzero(~closer & np.isin(self.labels, moved))
        np.maximum(cosines, self.cosines, out=cosines)
        labels[again], cosines[again] = self.rows.nearest(centers, again)
        return labels, cosines

    def _bounds(self, cosines, seconds):
        """Upper bound on the nearest angle, lower bound on all others."""
        rounding = self.rows.rounding
        nearest = np.arccos(np.clip(cosines - rounding, -1, 1))
        return nearest, np.arccos(np.clip(seconds + rounding, -1, 1))

    def _undecided(self, turns):
        """Rows that need new products; None if too many to bother."""
        self.nearest += turns[self.labels]
        self.others -= _largest_other(turns)[self.labels]
        active = np.flatnonzero(self.nearest >= self.others)
        if 2 * len(active) <= len(self.labels):
            return active
        self.nearest = self.others = None
        return None

    def _open_share(self, centers, turns):
        """Share of rows that bounds would leave undecided after one more such turn."""
        sample = np.arange(0, len(self.labels), 50)
        labels, *cosines = self.rows.nearest(centers, sample, True)
        nearest, others = self._bounds(*cosines)
        return np.mean(
            nearest + turns[labels] >= others - _largest_other(turns)[labels]
        )


def _turns(before, after):
    """Angles (K,) by which centres turned, exact when small; 0 if they did not move."""
    chords = np.linalg.norm(after.astype(np.float64) - before, axis=1)
    return 2 * np.arcsin(np.minimum(chords / 2, 1))


def _largest_other(turns):
    """For each centre the largest turn of the others, (K,)."""
    largest = turns.argmax()
    others = np.full_like(turns, turns[largest])
    others[largest] = np.delete(turns, largest).max(initial=0)
    return others
