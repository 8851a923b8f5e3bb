"""Memory is kept while a CPU trains, and given back; draws come from generators."""

import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from shared import callback, raising, same_generators
from systems import child, forks

from sk_mice import MoCo
from sk_mice._busy_cores import BusyCores
from sk_mice._engine import ambient
from sk_mice._engine.ambient import OwnDraws, kept_memory

CPU = torch.device("cpu")
SIZE = 64 * 2**20  # of a block, in bytes


@pytest.fixture
def without_settings(monkeypatch):
    """No settings of the environment in which the tests happen to run."""
    monkeypatch.setattr(ambient.os, "environ", {})


@pytest.fixture
def calls(monkeypatch, without_settings):
    """What is asked of the C library, in place of doing it."""
    kept = []

    class Library:
        def mallopt(self, parameter, value):
            kept.append((parameter, value))

        def malloc_trim(self, pad):
            kept.append("trim")

        def gnu_get_libc_version(self):
            raise AssertionError("it is only looked for")

    monkeypatch.setattr(ambient.sys, "platform", "linux")
    monkeypatch.setattr(ambient.ctypes, "CDLL", lambda name: Library())
    return kept


ENTERED = [(ambient.M_MMAP_MAX, 0), (ambient.M_TRIM_THRESHOLD, -1)]
LEFT = [
    (ambient.M_MMAP_MAX, 65536),
    (ambient.M_MMAP_THRESHOLD, 32 * 2**20),
    (ambient.M_TRIM_THRESHOLD, 64 * 2**20),
    "trim",
]


def test_the_outermost_use_decides(calls):
    with kept_memory(CPU):
        with kept_memory(CPU):
            assert calls == ENTERED
        assert calls == ENTERED
    assert calls == ENTERED + LEFT


def test_threads_share_one_decision(calls):
    inside, go_on = threading.Event(), threading.Event()

    def other():
        with kept_memory(CPU):
            inside.set()
            go_on.wait(60)

    thread = threading.Thread(target=other)
    with kept_memory(CPU):
        thread.start()
        assert inside.wait(60)
    assert calls == ENTERED  # the other is still at work
    go_on.set()
    thread.join(60)
    assert calls == ENTERED + LEFT


def test_an_error_gives_memory_back_as_well(calls):
    with pytest.raises(KeyError), kept_memory(CPU):
        raise KeyError
    assert calls == ENTERED + LEFT


def test_a_fit_keeps_memory_and_a_failed_fit_gives_it_back(calls):
    X = np.random.default_rng(0).normal(size=(40, 3))
    options = {"max_epochs": 1, "device": "cpu", "random_state": 0}
    MoCo(**options).fit(X)
    assert calls == ENTERED + LEFT
    calls.clear()
    fails = callback(on_epoch_end=raising(RuntimeError, "in the middle of a fit"))
    with pytest.raises(RuntimeError, match="in the middle of a fit"):
        MoCo(**options, callbacks=[fails]).fit(X)
    assert calls == ENTERED + LEFT


@forks
def test_the_child_of_a_fork_gives_memory_back(calls):
    def work():
        with kept_memory(CPU):
            pass
        sys.exit(calls != ENTERED + LEFT + ENTERED + LEFT)

    with kept_memory(CPU):
        with ambient._lock:  # as of a thread that the child does not have
            process = child(work)
        process.join(60)
    assert process.exitcode == 0
    assert calls == ENTERED + LEFT


@pytest.mark.parametrize(
    ("platform", "environment"),
    [
        ("linux", {"MALLOC_TRIM_THRESHOLD_": "1"}),
        ("linux", {"GLIBC_TUNABLES": "glibc.malloc.top_pad=1"}),
        ("darwin", {}),
        ("win32", {}),
    ],
)
def test_settings_of_the_environment_and_other_systems_are_left_alone(
    calls, monkeypatch, platform, environment
):
    monkeypatch.setattr(ambient.sys, "platform", platform)
    monkeypatch.setattr(ambient.os, "environ", environment)
    with kept_memory(CPU):
        pass
    assert calls == []


def test_other_tunables_are_no_settings_of_memory(calls, monkeypatch):
    monkeypatch.setattr(
        ambient.os, "environ", {"GLIBC_TUNABLES": "glibc.pthread.rseq=1"}
    )
    with kept_memory(CPU):
        pass
    assert calls == ENTERED + LEFT


def test_another_c_library_is_left_alone(monkeypatch, without_settings):
    monkeypatch.setattr(ambient.sys, "platform", "linux")
    monkeypatch.setattr(ambient.ctypes, "CDLL", lambda name: object())
    with kept_memory(CPU):
        pass


def test_a_gpu_does_not_need_it(calls):
    with kept_memory(torch.device("cuda")):
        pass
    assert calls == []


def faults() -> int:
    """Page faults of a block's being used twenty times."""
    import resource  # not on Windows

    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(SIZE, dtype=torch.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident() -> int:
    import resource

    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def use_and_give_back():
    given_back, before = faults(), resident()
    with kept_memory(CPU):
        kept = faults()  # few, as what lies between blocks can be in the way
        assert resident() > before + SIZE / 2
    assert kept < given_back / 2
    assert resident() < before + SIZE / 2


@pytest.mark.skipif(ambient._glibc() is None, reason="memory is not glibc's to keep")
def test_a_freed_block_is_used_again_and_given_back_at_the_end():
    # In a process without the free blocks of other tests.
    done = subprocess.run(
        [sys.executable, __file__], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------------- random draws


def test_tensors_like_others_are_drawn_from_ones_own_generator():
    # Earlier releases of torch have no generator for these.
    x = torch.zeros(40)

    def draws():
        with OwnDraws(3):
            return [
                torch.rand_like(x),
                torch.randn_like(x, dtype=torch.float64),
                torch.randint_like(x, 7),
                torch.randint_like(x, 2, 5),
            ]

    with same_generators():
        first, again = draws(), draws()
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert first[1].dtype == torch.float64
    assert first[0].std() > 0.1
    assert set(first[3].tolist()) == {2, 3, 4}


def test_attention_draws_only_what_it_drops_out():
    x = torch.ones(1, 1, 2, 4)
    attention = torch.nn.functional.scaled_dot_product_attention
    with OwnDraws(0) as draws:
        attention(x, x, x)
    assert not draws._generators
    with OwnDraws(0) as draws:
        attention(x, x, x, dropout_p=0.5)
    assert draws._generators


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize(
    "dropout", [torch.nn.functional.dropout, torch.nn.functional.alpha_dropout]
)
def test_dropout_draws_from_ones_own_generator(dropout, mode):
    x, found = torch.ones(1000, requires_grad=True), []
    for seed in (0, 0, 1):
        with same_generators(), mode(), OwnDraws(seed):
            found.append(dropout(x, 0.3, training=True))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_dropout_is_that_of_torch():
    x = torch.ones(10_000, requires_grad=True)
    with OwnDraws(0):
        left, mask = torch.native_dropout(x, 0.3, True)
        left.sum().backward()
        assert torch.equal(torch.native_dropout(x, 0.3, False)[0], x)
        assert not torch.native_dropout(x, 1.0, True)[0].any()
    assert mask.float().mean() == pytest.approx(0.7, abs=0.02)
    assert torch.allclose(left, mask / 0.7)
    assert torch.allclose(x.grad, mask / 0.7)


def test_a_container_grants_fewer_threads(two_threads, monkeypatch):
    """A fit and predictions take as many as there are cores for, and give them back."""
    seen = []
    note = callback(on_epoch_end=lambda net: seen.append(torch.get_num_threads()))
    moco = MoCo(max_epochs=1, random_state=0, callbacks=[note])
    X = np.random.default_rng(0).random((40, 8, 8))
    monkeypatch.setattr(BusyCores, "every", float("inf"))  # the machine may be busy
    monkeypatch.setattr(ambient, "cpu_count", lambda: 1)
    monkeypatch.setattr(ambient.os, "environ", {})
    one = moco.fit_transform(X)
    with ambient.own_settings():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    monkeypatch.setattr(ambient.os, "environ", {"OMP_NUM_THREADS": "2"})
    moco.fit(X)
    monkeypatch.setattr(ambient.os, "environ", {})
    monkeypatch.setattr(ambient, "cpu_count", lambda: 4)
    moco.fit(X)
    assert seen == [1, 2, 2]
    torch.set_num_threads(1)
    assert np.array_equal(moco.fit_transform(X), one)


if __name__ == "__main__":
    use_and_give_back()
