"""A fit leaves the cores that others keep busy."""

import pytest
import torch
from shared import recorded, tiny
from sklearn.datasets import load_digits
from skorch.callbacks import Callback

from sk_mice import MiCEClustering, MoCo, NeighborMixture, _busy_cores
from sk_mice._busy_cores import BusyCores, seconds_of_waiting

X = load_digits().images[:32]


class Waiting:
    """A machine on which a share of two threads waits for cores."""

    def __init__(self):
        self.share = 0.98
        self.now = self.waited = 0.0

    def perf_counter(self):
        self.now += 1
        self.waited += self.share
        return self.now

    def seconds_of_waiting(self):
        return self.waited


@pytest.fixture
def waiting(two_threads, monkeypatch):
    machine = Waiting()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(BusyCores, "every", 1.0)
    monkeypatch.setattr(_busy_cores.time, "perf_counter", machine.perf_counter)
    monkeypatch.setattr(_busy_cores, "seconds_of_waiting", machine.seconds_of_waiting)
    return machine


def fit_moco():
    tiny(MoCo).fit(X)


def fit_neighbors():
    NeighborMixture(2, max_epochs=3, random_state=0).fit(X.reshape(32, -1))


@pytest.mark.parametrize("fit", [fit_moco, fit_neighbors])
def test_a_fit_leaves_busy_cores_and_says_so_once(waiting, fit, monkeypatch):
    numbers = recorded(monkeypatch, torch, "set_num_threads", int)
    with pytest.warns(UserWarning, match="1 thread instead of 2") as caught:
        fit()
    assert len(caught) == 1
    assert numbers == [1, 2]


def test_a_number_of_threads_that_the_user_set_stays(waiting, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr(torch, "set_num_threads", None)
    with pytest.warns(UserWarning, match="2 threads.*OMP_NUM_THREADS=1") as caught:
        fit_moco()
    assert len(caught) == 1


def test_the_next_stage_goes_on_with_fewer_threads_until_cores_are_free(
    waiting, monkeypatch
):
    monkeypatch.setattr(BusyCores, "rest", 0.0)
    seen = []

    class Free(Callback):
        def on_train_begin(self, net, **kwargs):
            seen.append(torch.get_num_threads())

        def on_train_end(self, net, **kwargs):
            waiting.share = 0.0
            seen.append(torch.get_num_threads())

    mice = tiny(MiCEClustering, init="two-stage", max_epochs=10, callbacks=[Free()])
    with pytest.warns(UserWarning, match="1 thread instead of 2"):
        mice.fit(X)
    assert seen[:2] == [2, 1]
    assert seen[2] == 1
    assert seen[-1] == torch.get_num_threads() == 2


def test_a_number_that_a_callback_sets_stays(waiting, monkeypatch):
    waiting.share = 0.0
    monkeypatch.setattr(BusyCores, "rest", 0.0)

    class One(Callback):
        def on_train_begin(self, net, **kwargs):
            torch.set_num_threads(1)

        def on_train_end(self, net, **kwargs):
            assert torch.get_num_threads() == 1

    tiny(MoCo, callbacks=[One()], max_epochs=3).fit(X)
    assert torch.get_num_threads() == 2


def test_cores_that_are_free_again_are_used(waiting, monkeypatch):
    monkeypatch.setattr(BusyCores, "rest", 3.0)
    cores, numbers = BusyCores(), []
    with pytest.warns(UserWarning, match="1 thread instead of 2"):
        cores.look()
    waiting.share = 0.0
    for _ in range(4):
        numbers.append(torch.get_num_threads())
        cores.look()
    waiting.share = 0.98
    cores.look()  # without a second warning
    assert [*numbers, torch.get_num_threads()] == [1, 1, 2, 2, 1]


def test_a_fit_on_idle_cores_says_nothing(waiting):
    waiting.share = 0.05
    fit_moco()


def test_one_thread_waits_for_no_other(waiting):
    torch.set_num_threads(1)
    fit_moco()


def test_what_the_system_counts():
    before = seconds_of_waiting()
    assert before >= 0
    sum(range(10_000))
    assert seconds_of_waiting() >= before
