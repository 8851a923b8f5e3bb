"""How much memory of the system is free, and in a job or a container."""

import os
from pathlib import Path

import pytest

from sk_mice import _memory


@pytest.mark.parametrize(
    ("answer", "bytes_"), [(-1, None), (OSError, None), (AttributeError, None), (7, 49)]
)
def test_a_system_that_does_not_tell_its_memory(monkeypatch, answer, bytes_):
    def sysconf(name):
        if isinstance(answer, int):
            return answer
        raise answer

    monkeypatch.setattr(Path, "read_text", lambda self, **options: "")
    monkeypatch.setattr(os, "sysconf", sysconf, raising=False)
    assert _memory.available_memory() == bytes_


@pytest.mark.parametrize(
    ("group", "limit"),
    [
        ("0::/jobs/job_7/step_0", "jobs/job_7/memory.max"),  # of a batch system
        ("4:memory:/jobs/job_7", "memory/jobs/job_7/memory.limit_in_bytes"),
        ("0::/../../hidden", "memory.max"),  # within a container
        ("4:memory:/docker/hidden", "memory/memory.limit_in_bytes"),
    ],
)
def test_the_limit_of_a_job_and_of_a_container_counts(monkeypatch, group, limit):
    files = {"/proc/self/cgroup": group, f"/sys/fs/cgroup/{limit}": "1000"}
    files["/proc/meminfo"] = "MemAvailable: 8 kB\nSwapFree: 0 kB"

    def read_text(path, **options):
        if str(path) not in files:
            raise FileNotFoundError
        return files[str(path)]

    monkeypatch.setattr(Path, "read_text", read_text)
    assert _memory.available_memory() == 1000


def test_no_free_memory_is_none_at_all(monkeypatch):
    files = {"meminfo": "MemAvailable: 0 kB\nSwapFree: 0 kB", "memory.max": "max"}
    monkeypatch.setattr(Path, "read_text", lambda self, **_: files.get(self.name, "9"))
    assert _memory.available_memory() == 0
