"""Threads of BLAS, which fits take and give back."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from shared import recorded

from sk_mice import ClassificationEM, NeighborMixture, _blas
from sk_mice._blas import one_blas_thread
from sk_mice._cosine_kmeans import unit_rows


class Blas:
    """As its controller sees it."""

    n_threads = 2

    def select(self, **kwargs):
        return self

    def info(self):
        return [{"num_threads": 2}]

    @contextmanager
    def limit(self, limits):
        before, self.n_threads = self.n_threads, limits
        yield
        self.n_threads = before


@pytest.fixture
def blas(monkeypatch):
    blas = Blas()
    monkeypatch.setattr(_blas, "_controller", lambda: blas)
    return blas


def test_fits_at_once_leave_the_threads_of_blas_as_they_are(blas):
    X = np.ones((20_000, 64))
    first, second = unit_rows(X, 8), unit_rows(X, 8)
    with ThreadPoolExecutor(1) as other:
        assert first.__enter__().n_threads == 2
        assert other.submit(second.__enter__).result().n_threads == 1
        assert blas.n_threads == 1
        first.__exit__(None, None, None)
        other.submit(second.__exit__, None, None, None).result()
    assert blas.n_threads == 2


def test_few_rows_take_one_thread_and_a_fit_around_takes_none_away(blas):
    X = np.ones((20_000, 64))
    with one_blas_thread(), unit_rows(X, 8) as many, unit_rows(X[:200], 8) as few:
        assert (many.n_threads, few.n_threads, blas.n_threads) == (2, 1, 1)
    assert blas.n_threads == 2


@pytest.mark.parametrize("estimator", [ClassificationEM(3), NeighborMixture(3)])
def test_decompositions_take_one_thread(blas, monkeypatch, estimator):
    """They would wait for cores that are busy."""
    seen = recorded(monkeypatch, np.linalg, "eigh", lambda *_: blas.n_threads)
    X = np.random.default_rng(0).standard_normal((200, 16))
    estimator.fit(X)
    assert set(seen) == {1}
    assert blas.n_threads == 2
