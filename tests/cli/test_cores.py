"""Threads beside other processes."""

import os

import pytest
import torch
from shared import raising

from sk_mice._busy_cores import BusyCores
from sk_mice._cli import cores
from sk_mice._cli.terminal import Progress

from .calls import FIT, run, run_of


@pytest.fixture
def limits(two_threads, monkeypatch):
    """Those that the other libraries get."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    found = []
    monkeypatch.setattr(cores, "threadpool_limits", found.append)
    monkeypatch.setattr(cores, "cpu_count", lambda: 2)
    monkeypatch.setattr(BusyCores, "all_threads", 0)
    return found


@pytest.mark.parametrize(("free", "threads"), [(0.0, 1), (1.2, 1), (1.9, 2), (4.0, 2)])
def test_there_are_no_more_threads_than_free_cores(
    limits, monkeypatch, capsys, free, threads
):
    monkeypatch.setattr(cores, "free_cores", lambda: free)
    cores.leave_busy_cores(Progress(quiet=False))
    assert torch.get_num_threads() == threads
    said = "Computing with 1 thread instead of 2" in capsys.readouterr().err
    assert said == (threads == 1)
    assert limits == ([1] if said else [])


def test_a_number_that_is_set_stays(limits, monkeypatch):
    monkeypatch.setattr(cores, "free_cores", lambda: 0.0)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    cores.leave_busy_cores(Progress(quiet=False))
    assert torch.get_num_threads() == 2


def test_fit_leaves_busy_cores(limits, monkeypatch, photos, out, capsys):
    monkeypatch.setattr(cores, "free_cores", lambda: 1.0)
    assert run("fit", photos, *FIT, "--out", out) == 0
    assert run_of(out)["results"]["threads"] == 1
    assert "as no more cores are free" in capsys.readouterr().err
    # A long fit tries all of them again.
    monkeypatch.setattr(BusyCores, "every", 0.0)
    monkeypatch.setattr(BusyCores, "rest", 0.0)
    monkeypatch.setattr(BusyCores, "most", 9.0)
    busy = BusyCores()
    busy.look()
    assert torch.get_num_threads() == 2


def test_what_the_system_counts_may_be_closed_to_the_user(monkeypatch):
    monkeypatch.setattr(cores.Path, "read_text", raising(PermissionError))
    assert cores.free_cores() == float("inf")


def test_free_cores():
    assert cores.free_cores() >= 0
    if hasattr(os, "sched_getaffinity"):
        assert cores.free_cores() <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize("said", [{}, {"cpu0": (0, 0)}])
def test_all_threads_compute_where_the_system_does_not_say(limits, monkeypatch, said):
    monkeypatch.setattr(cores, "_jiffies", lambda: said)
    cores.leave_busy_cores(Progress(quiet=False))
    assert torch.get_num_threads() == 2


def test_there_are_no_more_threads_than_a_container_grants(limits, monkeypatch):
    monkeypatch.setattr(cores, "free_cores", lambda: 2.0)
    monkeypatch.setattr(cores, "cpu_count", lambda: 1)
    cores.leave_busy_cores(Progress(quiet=False))
    assert torch.get_num_threads() == 1
