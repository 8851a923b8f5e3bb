"""Where a fit runs, and in which precision."""

import multiprocessing
import warnings

import numpy as np
import pytest
import torch

from sk_mice._device import resolve_device, resolve_precision
from sk_mice._engine.format import infer_format

CPU = torch.device("cpu")
IMAGES, VECTORS = np.zeros((4, 8, 8)), np.zeros((4, 8))


@pytest.fixture
def machine(monkeypatch):
    """A machine with some GPUs, and one of joblib's worker processes on it."""

    def make(n_gpus, process="MainProcess"):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)
        monkeypatch.setattr(multiprocessing.current_process(), "_name", process)

    return make


def test_auto_takes_a_gpu_if_there_is_one(machine):
    machine(0)
    assert resolve_device("auto") == CPU
    machine(2)
    assert resolve_device("auto") == torch.device("cuda")
    assert resolve_device("cuda:1") == torch.device("cuda", 1)
    assert resolve_device(CPU) == CPU


def test_workers_take_the_gpus_in_turn(machine):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number, index in ((1, 0), (2, 1)):
            machine(2, f"LokyProcess-{number}")
            assert resolve_device("auto") == torch.device("cuda", index)
        machine(0, "LokyProcess-9")
        assert resolve_device("auto") == CPU
        for name in ("ForkServerPoolWorker-2", "ForkPoolWorker-1:2"):
            machine(2, name)
            assert resolve_device("auto") == torch.device("cuda", 1)
    machine(2, "LokyProcess-4")
    with pytest.warns(UserWarning, match="gives process 4 the GPU 1 of 2.*`n_jobs`"):
        assert resolve_device("auto") == torch.device("cuda", 1)
    with pytest.warns(UserWarning, match="gives process 3 the GPU 0.*per-node"):
        assert resolve_device("auto", 2) == torch.device("cuda", 0)


def test_processes_of_a_fit_take_the_gpus_of_their_ranks(machine):
    machine(2)
    for rank in 0, 1:
        assert resolve_device("auto", rank) == torch.device("cuda", rank)
        assert resolve_device("cuda", rank) == torch.device("cuda", rank)
        assert resolve_device("cuda:0", rank) == torch.device("cuda", 0)
        assert resolve_device("cpu", rank) == CPU
    machine(0)
    assert resolve_device("auto", 1) == CPU


def test_devices_that_are_not_there_are_refused(machine):
    machine(1)
    for device, message in (
        ("cuda:1", r'must be available on this machine \(cpu, cuda\); got "cuda:1"'),
        ("cuda:200", 'must be available .* got "cuda:200"'),
        ("abacus", "must name a torch device; got 'abacus'"),
        ("mps", r"must support float64.*\"mps\" does not"),
        ("meta", "must be available"),
    ):
        with pytest.raises(ValueError, match="`device` " + message):
            resolve_device(device)


def test_precision_follows_the_hardware(monkeypatch):
    for has, expected in ((True, torch.bfloat16), (False, None)):
        monkeypatch.setattr("sk_mice._device.cpu_has_bfloat16", lambda has=has: has)
        assert resolve_precision("auto", CPU, infer_format(IMAGES)) == expected
        assert resolve_precision("auto", CPU, infer_format(VECTORS)) is None
    assert resolve_precision("bfloat16", CPU, infer_format(VECTORS)) == torch.bfloat16
    assert resolve_precision("float32", CPU, infer_format(IMAGES)) is None
