"""K-means by cosine: first centres, then two steps in turn, on `UnitRows`."""

import numpy as np
from scipy import sparse
from sklearn.utils import check_array

from ._cosine_rows import UnitRows, distinct_rows
from ._engine.arrays import plain_array

# -------------------------------------------------------------- first centres


def first_centers(rows, weight, init, n_clusters, random_state):
    """Draw or scale the initial centres, of unit norm and shape (K, D)."""
    if isinstance(init, str):
        return _seeds(rows, weight, init, n_clusters, random_state)
    if callable(init):
        init = init(rows.X, n_clusters, random_state=random_state)
    init = init.toarray() if sparse.issparse(init) else plain_array(init, "`init`")
    centers = check_array(init, dtype=rows.dtype, input_name="init")
    expected = (n_clusters, rows.shape[1])
    if centers.shape != expected:
        raise ValueError(
            f"`init` must give centres of shape {expected} (n_clusters, "
            f"n_features); got {centers.shape}."
        )
    directions = UnitRows(centers)
    if not directions.nonzero.all():
        raise ValueError(
            "`init` must give centres that are not zero; got zero in row "
            f"{directions.nonzero.argmin()}."
        )
    return directions.dense(slice(None))


def _seeds(rows, weight, init, n_clusters, random_state):
    index, mass = distinct_rows(rows, weight, random_state)
    if len(index) == 0:  # no direction at all: any one will do
        return np.eye(1, rows.shape[1], dtype=rows.dtype).repeat(n_clusters, axis=0)
    if len(index) <= n_clusters:
        chosen = index
    elif init == "random":
        p = mass / mass.sum()
        chosen = index[random_state.choice(len(index), n_clusters, replace=False, p=p)]
    else:
        weight = (weight * rows.nonzero).astype(rows.dtype)
        chosen = _plus_plus(rows, weight, index, mass, n_clusters, random_state)
    return rows.dense(np.resize(chosen, n_clusters))


def _plus_plus(rows, weight, index, mass, n_clusters, random_state):
    """Greedy k-means++ with 1 - cosine, half the squared distance of unit rows.

    Returns
    -------
    chosen : list of int
        At most `n_clusters` rows; fewer where no further direction exists.
    """
    n_trials = 2 + int(np.log(n_clusters))
    chosen = [index[_draw(mass, random_state)]]
    costs = 1 - rows.cosines(rows.dense(chosen))[:, 0]
    while len(chosen) < n_clusters:
        # A cost of the size of rounding errors is that of a seed's own copies.
        potential = mass * np.where(costs[index] > rows.rounding, costs[index], 0)
        if not potential.any():
            break
        trials = index[_draw(potential, random_state, size=n_trials)]
        trial_costs = 1 - rows.cosines(rows.dense(trials))
        np.minimum(trial_costs, costs[:, np.newaxis], out=trial_costs)
        best = np.argmin(weight @ trial_costs)
        chosen.append(trials[best])
        costs = trial_costs[:, best].copy()
    return chosen


def _draw(mass, random_state, size=None):
    """Positions drawn with probability proportional to `mass`."""
    cumulated = np.cumsum(mass)
    drawn = random_state.uniform(size=size) * cumulated[-1]
    # Rounding may carry a number past the end.
    return np.minimum(np.searchsorted(cumulated, drawn, "right"), len(mass) - 1)


# ----------------------------------------------------------------- iterations


def lloyd(rows, weight, centers, max_iter, tol, verbose):
    """Alternate nearest centres and optimal centres from one start.

    Returns
    -------
    labels : ndarray of shape (N,)
        Nearest centres, to `centers`.
    inertia : float
    centers : ndarray of shape (K, D)
    sums : ndarray of shape (K, D)
        Weighted sums that the centres are the directions of.
    n_iter : int
    """
    n_clusters = len(centers)
    live = weight * rows.nonzero
    sums = np.zeros(centers.shape)
    members = np.full(rows.shape[0], -1, dtype=np.int32)  # whom the sums count where
    assignment = Assignment(rows)
    for n_iter in range(1, max_iter + 1):
        labels = assignment.update(centers)
        mass = np.bincount(labels, live, minlength=n_clusters)
        if not mass.all():
            _, cosines = rows.nearest(centers)
            labels = _relocate(rows, weight, labels, cosines, mass)
            mass = np.bincount(labels, live, minlength=n_clusters)
        if np.array_equal(labels, members):
            reason = "no label changes"
            break
        sums = _updated_sums(rows, weight, sums, members, labels)
        members = labels
        previous, centers = centers, _directions(sums, mass, centers)
        if verbose:
            value = weight.sum() - np.vdot(centers, sums)
            print(f"Iteration {n_iter}, inertia {value:.6g}.")
        # As in KMeans, tol is relative to the variance of the (unit) rows.
        mean = sums.sum(axis=0) / max(live.sum(), np.finfo(np.float64).tiny)
        variance = max(1 - mean @ mean, 0) / rows.shape[1]
        if np.square(centers - previous).sum() <= tol * variance:
            reason = "the centres move less than the tolerance"
            break
    else:
        reason = "`max_iter` is reached"
    if verbose:
        print(f"Stopped at iteration {n_iter}: {reason}.")
    # Once more with every product, so that labels are what predict gives.
    labels, cosines = rows.nearest(centers)
    return labels, inertia(weight, cosines), centers, sums, n_iter


def absorb(rows, weight, centers, sums):
    """Add a batch to the sums; return the centres that follow, and the sums."""
    labels, cosines = rows.nearest(centers)
    # A cluster is empty if no batch has brought it a row.
    mass = np.bincount(labels, weight * rows.nonzero, minlength=len(centers))
    mass += np.linalg.norm(sums, axis=1)
    if not mass.all():
        labels = _relocate(rows, weight, labels, cosines, mass)
    sums = sums + rows.sums(weight, labels, len(centers))
    return _directions(sums, mass, centers), sums


def inertia(weight, cosines):
    """Weighted sum of 1 - cosine."""
    return float(weight @ np.maximum(1 - cosines, 0))


def _relocate(rows, weight, labels, cosines, mass):
    """Give every empty cluster the row that is farthest from its own centre.

    Parameters
    ----------
    labels, cosines : ndarray of shape (N,)
        Nearest centre of each row and the cosine with it.
    mass : ndarray of shape (K,)
        Total weight of each cluster, 0 for the empty ones.

    Returns
    -------
    labels : ndarray of shape (N,)
        A copy in which those rows have moved.
    """
    empty = np.flatnonzero(mass == 0)
    costs = np.where((weight > 0) & rows.nonzero, 1 - cosines, 0)
    farthest = np.argsort(-costs, kind="stable")[: len(empty)]
    farthest = farthest[costs[farthest] > rows.rounding]  # a row at its centre stays
    labels = labels.copy()
    labels[farthest] = empty[: len(farthest)]
    return labels


def _directions(sums, mass, previous):
    """Scale sums to unit norm: the optimal centres for given labels.

    A cluster without weight, or whose rows cancel, has no direction and keeps
    its previous centre, which is as good as any other.
    """
    norms = np.linalg.norm(sums, axis=1)
    clear = norms > np.finfo(previous.dtype).eps * mass
    centers = previous.copy()
    centers[clear] = sums[clear] / norms[clear, np.newaxis]
    return centers


def _updated_sums(rows, weight, sums, old, new):
    """Return the sums for the labels `new`, given those for the labels `old`."""
    n_clusters = len(sums)
    moved = np.flatnonzero(old != new)
    if 4 * len(moved) > len(new):
        return rows.sums(weight, new, n_clusters)
    gained = rows.sums(weight, new[moved], n_clusters, moved)
    return sums + gained - rows.sums(weight, old[moved], n_clusters, moved)


class Assignment:
    """Nearest centres of all rows, kept up to date while the centres move.

    Angles between unit vectors obey the triangle inequality. So when a centre
    turns by some angle, a row's angle to it changes by at most that much, and a
    row whose own centre is then still nearer than any other can be needs no new
    products [1]_. The bounds cost a second maximum over all products, and pay
    only once the centres have nearly settled: they are tried when few labels
    change, and after a failure not again for twice as many iterations.

    References
    ----------
    .. [1] Schubert, Lang and Feher, "Accelerating Spherical k-Means", SISAP 2021,
       in the form that Hamerly gave to such bounds for k-means (SDM 2010).
    """

    def __init__(self, rows):
        self.rows = rows
        self.labels = np.full(rows.shape[0], -1, dtype=np.int32)
        self.centers = None
        self.nearest = self.others = None  # bounds on angles, while they are kept
        self.settled = False  # whether the last update changed few labels
        self.pause = self.patience = 1

    def update(self, centers):
        """Return the label of every row; the array is not written to again."""
        active = None if self.nearest is None else self._undecided(centers)
        if active is not None:
            labels = self.labels.copy()
            labels[active], *cosines = self.rows.nearest(centers, active, True)
            self.nearest[active], self.others[active] = self._bounds(*cosines)
        else:
            self.pause -= 1
            if self.pause < 0 and self.settled and len(centers) > 1:
                labels, *cosines = self.rows.nearest(centers, runner_up=True)
                self.nearest, self.others = self._bounds(*cosines)
            else:
                labels, _ = self.rows.nearest(centers)
        n_changed = np.count_nonzero(labels != self.labels)
        self.settled = n_changed < 0.02 * len(labels)
        self.labels, self.centers = labels, centers
        return labels

    def _bounds(self, cosines, seconds):
        """Upper bound on the nearest angle, lower bound on all others."""
        rounding = self.rows.rounding
        nearest = np.arccos(np.clip(cosines - rounding, -1, 1))
        return nearest, np.arccos(np.clip(seconds + rounding, -1, 1))

    def _undecided(self, centers):
        """Rows that need new products; None if too many to bother."""
        turns = _angles_between(self.centers, centers)
        largest = turns.argmax()
        others = np.full_like(turns, turns[largest])
        others[largest] = np.delete(turns, largest).max(initial=0)
        self.nearest += turns[self.labels]
        self.others -= others[self.labels]
        active = np.flatnonzero(self.nearest >= self.others)
        if 2 * len(active) <= len(self.labels):
            return active
        self.nearest = self.others = None
        self.patience *= 2
        self.pause = self.patience
        return None


def _angles_between(old, new):
    """Angles between corresponding unit rows, of shape (K,), exact when small."""
    chords = np.linalg.norm(new.astype(np.float64) - old, axis=1)
    return 2 * np.arcsin(np.minimum(chords / 2, 1))
