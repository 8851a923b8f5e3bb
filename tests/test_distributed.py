"""A fit in several processes: the same as in one, whatever happens."""

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import distributed_job as job
import numpy as np
import pytest
import torch
import torch.distributed as dist
from PIL import Image
from shared import callback, short_fits

from sk_mice._engine.distributed import Group, Processes, open_group

fcntl = pytest.importorskip("fcntl", reason="needs the locks and signals of POSIX")

pytestmark = short_fits

SAME_IN_RANKS = ["two_stage", "dropout", "unused_weights", "ctrl_c"]


def torchrun(folder, *cases, n=2, options=()):
    """Run cases in n processes; returns the files that they wrote, by case."""
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *(f"--nproc-per-node={n}", *options, job.__file__, str(folder), *cases),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {
        case: [
            pickle.loads(Path(folder, f"{case}-{rank}").read_bytes())
            for rank in range(n)
        ]
        for case in cases
    }


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """What two processes found, in one job for all tests, also of several workers."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    folder = folder / "two"
    folder.mkdir(exist_ok=True)
    kept = folder / "found"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            write_photos(folder / "photos")
            alike = [case.__name__ for case in job.ALIKE]
            cases = *alike, *SAME_IN_RANKS, "refused", "alone", "stopped", "command"
            kept.write_bytes(pickle.dumps(torchrun(folder, *cases)))
    return pickle.loads(kept.read_bytes()) | {"folder": folder}


def write_photos(folder):
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(20):
        pixels = rng.integers(0, 256, (8, 8, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")


def assert_alike(found, expected, atol=1e-5):
    for name, value in expected["state"].items():
        # The queue of a fitted model is rounded to 16 bits.
        tolerance = 1e-3 if name == "queue" else atol
        other = found["state"][name]
        np.testing.assert_allclose(other, value, rtol=0, atol=tolerance, err_msg=name)
    np.testing.assert_allclose(found["elbo"], expected["elbo"], atol=atol)
    if "labels" in expected:
        np.testing.assert_array_equal(found["labels"], expected["labels"])
        assert found["sizes"] == expected["sizes"]
        assert found["counted"] == expected["counted"]


@pytest.mark.parametrize("case", job.ALIKE, ids=lambda case: case.__name__)
def test_two_processes_equal_one(two, case):
    expected = job.result(case())
    first, second = two[case.__name__]
    assert_alike(first, expected)
    assert first["digest"] == second["digest"]


@pytest.mark.parametrize("case", SAME_IN_RANKS)
def test_all_processes_end_with_the_same_model(two, case):
    first, second = two[case]
    for name in "digest", "n_iter", "elbo", "seconds":
        assert first[name] == second[name]
    if "labels" in first:
        np.testing.assert_array_equal(first["labels"], second["labels"])


def test_ctrl_c_in_one_process_ends_all_after_the_same_epoch(two):
    first, second = two["ctrl_c"]
    assert first["n_iter"] == second["n_iter"] == 3
    assert len(first["said"]) == 1
    assert not second["said"]


def test_a_job_goes_on_in_a_single_process(two):
    assert two["stopped"] == [1, 1] or two["stopped"] == [2, 2]  # with a previous one
    epochs = []
    count = callback(on_epoch_begin=lambda net: epochs.append(len(net.history)))
    estimator = job.kept(two["folder"] / "checkpoint").set_params(callbacks=[count])
    found = job.result(estimator.fit(job.IMAGES))
    assert 0 < len(epochs) < job.N_STEPS // 3
    assert_alike(found, job.result(job.mice(init="random").fit(job.IMAGES)))


WORDS = {
    "X": "X is float64 of shape (110, 8, 8) in rank 0, float64 of shape (109, 8, 8)",
    "values": "X is float64 of shape (110, 8, 8) in all ranks, and yet not the same",
    "lr": "`lr` is 0.1 in rank 0, 1.1 in rank 1; `tau` is 0.5 in rank 0, 1.5 in rank 1",
    "backbone": "`backbone` is SmallResNet(width=4) in rank 0, SmallResNet(width=8)",
    "invalid X": "NaN",
    "invalid lr": "'lr' parameter",
    "small batches": "2 processes share batches of 2",
}


@pytest.mark.parametrize("case", WORDS)
def test_what_differs_is_refused_in_every_process(two, case):
    for said in two["refused"]:
        assert WORDS[case] in said[case]


def test_a_process_names_the_one_that_refuses(two):
    first, second = two["refused"]
    for case in "invalid X", "invalid lr":
        assert first[case].startswith("Rank 1 refuses what `fit` was given:")
        assert "Rank" not in second[case]


def test_a_fit_can_be_kept_to_each_process(two):
    first, second = two["alone"]
    expected = job.result(job.mice(init="random").fit(job.IMAGES))
    assert first["digest"] == expected["digest"]
    assert second["digest"] != first["digest"]


def test_the_command_writes_and_prints_once(two):
    (code, said), other = two["command"]
    assert code == 0
    assert "20 images in 2 clusters (3 epochs" in said
    assert other == (0, "")
    names = {path.name for path in (two["folder"] / "result").iterdir()}
    assert names == {"clusters.csv", "model.safetensors", "report.html", "run.json"}


@pytest.mark.slow
def test_four_processes_equal_one(tmp_path):
    cases = [job.moco, job.random_start, job.vectors]
    torchrun(tmp_path, "stopped", n=2)  # goes on in four
    found = torchrun(tmp_path, *(case.__name__ for case in cases), "resumed", n=4)
    for case, name in zip([*cases, job.random_start], found, strict=True):
        first, *others = found[name]
        expected = (
            job.mice(init="random").fit(job.IMAGES) if name == "resumed" else case()
        )
        assert_alike(first, job.result(expected))
        assert {other["digest"] for other in others} == {first["digest"]}


@pytest.mark.slow
@pytest.mark.parametrize("case", ["killed", "hangs"])
def test_without_one_process_the_others_stop_within_a_minute(tmp_path, case):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    place = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": "3"}
    command = [sys.executable, job.__file__, str(tmp_path), case]
    processes = [
        subprocess.Popen(command, env={**os.environ, **place, "RANK": str(rank)})
        for rank in range(3)
    ]
    try:
        *others, last = processes
        if case == "killed":
            assert last.wait(timeout=300) == -signal.SIGKILL
        else:
            os.waitpid(last.pid, os.WUNTRACED)
        start = time.monotonic()
        for process in others:
            assert process.wait(timeout=80) == 0
        assert time.monotonic() - start < 60
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for rank in range(2):
        said = pickle.loads((tmp_path / f"{case}-{rank}").read_bytes())
        assert f"Rank {rank} of 3 has lost another process" in said


@pytest.mark.slow
def test_torchrun_restarts_a_job_that_goes_on(tmp_path):
    found = torchrun(tmp_path, "killed", options=["--max-restarts=1"])
    expected = job.result(job.mice(init="random").fit(job.IMAGES))
    for one in found["killed"]:
        assert_alike(one, expected)


# ------------------------------------------------------------------------ one process


def test_without_torchrun_there_is_no_group(monkeypatch):
    for name in "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT":
        monkeypatch.delenv(name, raising=False)
    assert type(open_group(True)) is Group
    assert not torch.distributed.is_initialized()


def test_a_job_of_one_process_needs_no_group(monkeypatch):
    for name in "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT":
        monkeypatch.setenv(name, "1")
    assert type(open_group(True)) is Group


@pytest.mark.parametrize("has_nccl", [True, False])
def test_messages_of_gpus_have_a_carrier_where_nccl_is_missing(monkeypatch, has_nccl):
    asked = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: has_nccl)
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "new_group", lambda backend, **_: asked.append(backend))
    Processes(own=False)
    assert asked == ["cpu:gloo,cuda:nccl" if has_nccl else "gloo", "gloo"]


def test_a_single_process_has_all_rows():
    group, x = Group(), torch.arange(5)
    assert torch.equal(x[group.rows(5)], x)
    assert torch.equal(group.gather(x, 5), x)
    assert group.from_first(lambda: 3) == 3
    assert group.first
    assert group.any(True)
    assert not group.any(False)


def test_rows_of_a_batch_are_divided_equally():
    group = Group()
    group.size = 4
    parts = []
    for group.rank in range(4):
        parts.append(torch.arange(10)[group.rows(10)].tolist())
    assert parts == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]
