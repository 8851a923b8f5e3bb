"""Curves of a fit, and histograms of the posterior during it."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils import check_array

from .._constraints import Count
from .._engine.arrays import plain_array
from .._pipelines import last_step
from ._drawing import panels, pyplot, shades

N_BINS = 10  # `history_` has as many for the posterior
INTEGERS = {"integer": True, "min_n_ticks": 1}  # on an axis
FEW = 50  # epochs, up to which each has a point on its curve
LINES = ("-", "--", ":")  # the last moment is solid
STAGES = {"moco": "first stage (MoCo)", "em": "EM"}


@dataclass(kw_only=True, eq=False, repr=False)
class PosteriorDisplay:
    """Histogram of the posterior and sizes of the clusters, as in the paper's figure 3.

    Create it with `from_estimator` or `from_predictions`.

    Parameters
    ----------
    shares : ndarray of shape (n, 10)
        For each of n moments, the shares of all N K values of the posterior in ten bins
        of [0, 1].
    names : list of n str
        Names of the moments.
    sizes : ndarray of shape (K,)
        Number of samples in each cluster at the last of these moments.

    Attributes
    ----------
    axes_ : ndarray of 2 matplotlib Axes
    figure_ : matplotlib Figure

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.mixture import GaussianMixture
    >>> from sk_mice.inspection import PosteriorDisplay
    >>> X = load_iris().data
    >>> posterior = GaussianMixture(3, random_state=0).fit(X).predict_proba(X)
    >>> display = PosteriorDisplay.from_predictions(posterior)
    >>> display.shares[0, [0, -1]].round(2)
    array([0.66, 0.33])
    """

    shares: np.ndarray
    names: list
    sizes: np.ndarray

    @classmethod
    def from_estimator(
        cls, estimator, *, epochs=None, ax=None, cmap: Any = "viridis"
    ) -> Self:
        """Show the posterior after some epochs of a fit, under random views.

        Parameters
        ----------
        estimator : MiCEClustering
            Fitted, also as the last step of a Pipeline. Its ``history_`` has the
            posterior of each epoch of EM.
        epochs : int or sequence of int, default=None
            Epochs of EM, from 1 on; the first and the last if None.
        ax : sequence of 2 matplotlib Axes, default=None
            Where to draw; a new figure if None.
        cmap : str or Colormap, default="viridis"
            Colours of the moments; see `EmbeddingDisplay`.

        Returns
        -------
        PosteriorDisplay

        Raises
        ------
        TypeError, ValueError
            If there is no history with a posterior, or no such epoch.
        """
        pyplot()  # raises ImportError before any work
        rows = [row for row in _history_of(estimator) if row["stage"] == "em"]
        if not rows:
            raise ValueError("`estimator` must have had epochs of EM; got none.")
        if epochs is None:
            epochs = 1, len(rows)
        epochs = sorted({*epochs} if np.iterable(epochs) else {epochs})
        is_epoch = Count(1, len(rows)).is_satisfied_by
        if not epochs or not all(map(is_epoch, epochs)):
            raise ValueError(
                f"`epochs` must be integers from 1 to {len(rows)}; got {epochs}."
            )
        counts = np.array([rows[epoch - 1]["posterior_counts"] for epoch in epochs])
        display = cls(
            shares=counts / counts.sum(axis=1, keepdims=True),
            names=[f"epoch {epoch} of EM" for epoch in epochs],
            sizes=np.asarray(rows[epochs[-1] - 1]["cluster_sizes"]),
        )
        return display.plot(ax, cmap=cmap)

    @classmethod
    def from_predictions(
        cls, posterior, *, name="posterior", ax=None, cmap: Any = "viridis"
    ) -> Self:
        """Show a given posterior.

        Parameters
        ----------
        posterior : array-like of shape (N, K)
            As `predict_proba` gives it.
        name : str, default="posterior"
            Name of the posterior in the plot.
        ax, cmap
            As in `from_estimator`.

        Returns
        -------
        PosteriorDisplay

        Raises
        ------
        ValueError
            If the posterior has another shape, or values outside of [0, 1].
        """
        pyplot()  # raises ImportError before any work
        posterior = check_array(plain_array(posterior, "posterior"))
        low, high = posterior.min(), posterior.max()
        if low < 0 or high > 1:
            raise ValueError(
                f"`posterior` must be from 0 to 1; got values from {low:g} to {high:g}."
            )
        counts, _ = np.histogram(posterior, N_BINS, (0, 1))
        sizes = np.bincount(posterior.argmax(axis=1), minlength=posterior.shape[1])
        display = cls(shares=counts[None] / counts.sum(), names=[name], sizes=sizes)
        return display.plot(ax, cmap=cmap)

    def plot(self, ax=None, *, cmap: Any = "viridis") -> Self:
        """Draw both histograms.

        Parameters
        ----------
        ax : sequence of 2 matplotlib Axes, default=None
            Where to draw; a new figure if None.
        cmap : str or Colormap, default="viridis"
            Colours of the moments.

        Returns
        -------
        self
        """
        self.figure_, self.axes_ = panels(ax, 2, (8, 3.2), ncols=2)
        left, right = self.axes_
        edges = np.linspace(0, 1, N_BINS + 1)
        colours = shades(left, len(self.names), cmap)[::-1]  # the last is strongest
        n = len(self.names)
        for i in range(n):
            style = {"color": colours[i], "linestyle": LINES[(n - 1 - i) % len(LINES)]}
            left.stairs(
                self.shares[i], edges, label=self.names[i], linewidth=2, **style
            )
        left.set(xlabel="value of the posterior", ylabel="share of all values")
        left.set_xlim(0, 1)
        left.set_ylim(0, auto=None)
        left.legend()
        right.bar(range(len(self.sizes)), self.sizes, color=colours[-1])
        when = f", {self.names[-1]}" if n > 1 else ""
        right.set(xlabel="cluster", ylabel=f"samples{when}")
        right.set_xlim(-0.5, len(self.sizes) - 0.5)
        right.xaxis.get_major_locator().set_params(**INTEGERS)
        return self


@dataclass(kw_only=True, eq=False, repr=False)
class TrainingDisplay:
    """ELBO, confidence and changed labels, epoch by epoch, with the stages of a fit.

    Confidence and changed labels begin with EM, because the first stage has no
    clusters; for `MoCo` there is only the ELBO. Create it with `from_estimator`.

    Parameters
    ----------
    history : list of dict
        A row for each epoch, as in the ``history_`` of `MiCEClustering`.

    Attributes
    ----------
    axes_ : ndarray of 3 matplotlib Axes, of 1 without EM
    figure_ : matplotlib Figure

    See Also
    --------
    PosteriorDisplay : The whole posterior after some of the epochs.

    Notes
    -----
    The ELBOs of two stages cannot be compared, and their lines are not joined. While EM
    is held at a partition, the ELBO is a looser bound, and it jumps when EM is no
    longer held there.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sk_mice import MiCEClustering
    >>> from sk_mice.inspection import TrainingDisplay
    >>> X = load_digits(n_class=3).data[:200]
    >>> mice = MiCEClustering(3, max_epochs=10, random_state=0).fit(X)
    >>> display = TrainingDisplay.from_estimator(mice)
    >>> [ax.get_ylabel() for ax in display.axes_]
    ['ELBO (nats)', 'confidence', 'changed labels']
    """

    history: list

    @classmethod
    def from_estimator(cls, estimator, *, ax=None, cmap: Any = "viridis") -> Self:
        """Show the training of an estimator.

        Parameters
        ----------
        estimator : MiCEClustering or MoCo
            Fitted, also as the last step of a Pipeline.
        ax : sequence of 3 matplotlib Axes, of 1 without EM, default=None
            Where to draw; a new figure if None.
        cmap : str or Colormap, default="viridis"
            Colours of the stages; see `EmbeddingDisplay`.

        Returns
        -------
        TrainingDisplay

        Raises
        ------
        TypeError
            If the estimator has no history.
        """
        pyplot()  # raises ImportError before any work
        return cls(history=_history_of(estimator)).plot(ax, cmap=cmap)

    def plot(self, ax=None, *, cmap: Any = "viridis") -> Self:
        """Draw a curve in each panel.

        Parameters
        ----------
        ax : sequence of 3 matplotlib Axes, of 1 without EM, default=None
            Where to draw; a new figure if None.
        cmap : str or Colormap, default="viridis"
            Colours of the stages.

        Returns
        -------
        self
        """
        stages = list(dict.fromkeys(row["stage"] for row in self.history))
        names = {"elbo": "ELBO (nats)"}
        if "em" in stages:
            names |= {"confidence": "confidence", "changed": "changed labels"}
        size = (7, 0.8 + 1.7 * len(names))
        options = {"nrows": len(names), "sharex": True}
        self.figure_, self.axes_ = panels(ax, len(names), size, **options)
        em, moco, _ = shades(self.axes_[0], 3, cmap)
        colours = {"em": em, "moco": moco}
        for ax, (key, label) in zip(self.axes_, names.items(), strict=True):
            for stage in stages:
                if key == "elbo" or stage == "em":
                    epochs, values = self._curve(stage, key)
                    style = {"color": colours[stage], "label": STAGES[stage]}
                    style["marker"] = "." if len(values) < FEW else ""
                    ax.plot(epochs, values, **style)
            if len(stages) > 1:
                _, values = self._curve(stages[0], key)
                ax.axvline(len(values) + 0.5, color="0.4", linestyle="--", linewidth=1)
            ax.set_ylabel(label)
            ax.grid(alpha=0.3)
            last = max(len(self.history), ax.dataLim.x1)  # a longer fit may be there
            ax.set_xlim(0.5, last + 0.5, auto=None)
            ax.xaxis.get_major_locator().set_params(**INTEGERS)
            if key != "elbo":
                ax.set_ylim(0, 1.05 * ax.dataLim.y1 or None, auto=None)
        self.axes_[0].legend()
        self.axes_[-1].set_xlabel("epoch")
        return self

    def _curve(self, stage, key):
        """Epochs of the whole fit and values of one stage."""
        rows = enumerate(self.history, start=1)
        pairs = [(epoch, row[key]) for epoch, row in rows if row["stage"] == stage]
        return zip(*pairs, strict=True)


def _history_of(estimator):
    """The history of a fitted estimator, or of the last step of a Pipeline.

    Raises TypeError if it has none.
    """
    last, _ = last_step(estimator)
    history = getattr(last, "history_", None)
    is_ours = isinstance(history, list) and all(
        isinstance(row, dict) and {"stage", "elbo"} <= row.keys() for row in history
    )
    if not is_ours:
        raise TypeError(
            "`estimator` must be a fitted MiCEClustering or MoCo, with `history_`; got "
            f"{estimator!r}."
        )
    return history
