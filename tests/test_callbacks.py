import pytest
import torch
from shared import tiny
from sklearn.datasets import load_digits

from sk_mice import MoCo, NeighborMixture
from sk_mice._busy_cores import BusyCores, seconds_of_waiting

X = load_digits().images[:32]


@pytest.fixture
def waiting(two_threads, monkeypatch):
    """A machine on which a share of one of two threads waits for cores."""
    monkeypatch.setattr(BusyCores, "every", 1.0)

    def set_share(share):
        clock = iter(range(100_000))
        waited = {"seconds": 0.0}

        def seconds():
            return waited["seconds"]

        def now():
            waited["seconds"] += share
            return float(next(clock))

        monkeypatch.setattr("sk_mice._busy_cores.time.perf_counter", now)
        monkeypatch.setattr("sk_mice._busy_cores.seconds_of_waiting", seconds)

    return set_share


def fit_moco():
    tiny(MoCo).fit(X)


def fit_neighbors():
    NeighborMixture(2, max_epochs=3, random_state=0).fit(X.reshape(32, -1))


@pytest.mark.parametrize("fit", [fit_moco, fit_neighbors])
def test_a_fit_on_busy_cores_says_once_that_its_threads_wait(waiting, fit):
    waiting(0.98)
    with pytest.warns(UserWarning, match="2 threads.*OMP_NUM_THREADS=1,") as caught:
        fit()
    assert len(caught) == 1


def test_a_fit_on_idle_cores_says_nothing(waiting):
    waiting(0.05)
    tiny(MoCo).fit(X)


def test_one_thread_waits_for_no_other(waiting):
    waiting(0.98)
    torch.set_num_threads(1)
    tiny(MoCo).fit(X)


def test_what_the_system_counts():
    before = seconds_of_waiting()
    assert before >= 0
    sum(range(10_000))
    assert seconds_of_waiting() >= before
