"""Whole or not at all, whatever happens in between."""

import errno
import os
import resource
import signal
import stat
import subprocess
import sys

import pytest

from sk_mice._engine import atomic
from sk_mice._engine.atomic import write_atomically


def test_parts_are_joined(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, [b"one", memoryview(b" two"), b""])
    write_atomically(str(path), iter([b"three"]))
    assert path.read_bytes() == b"three"
    assert os.listdir(tmp_path) == ["file"]


def failing():
    yield b"half"
    raise KeyboardInterrupt


def test_an_interruption_leaves_the_earlier_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"earlier")
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, failing())
    assert path.read_bytes() == b"earlier"
    assert os.listdir(tmp_path) == ["file"]


def test_a_process_that_dies_leaves_the_earlier_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"earlier")
    code = (
        "import os, signal\n"
        "from sk_mice._engine.atomic import write_atomically\n"
        "def parts():\n"
        "    yield b'half'\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        f"write_atomically({str(path)!r}, parts())\n"
    )
    done = subprocess.run([sys.executable, "-c", code])
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"earlier"


def test_a_file_that_does_not_fit_is_an_error_with_its_name(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"earlier")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match=str(path)) as caught:
            write_atomically(path, [bytes(900), bytes(900)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    assert path.read_bytes() == b"earlier"
    assert os.listdir(tmp_path) == ["file"]


def test_a_full_disk_is_an_error_with_the_path(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(OSError, match=f"No space left .*{tmp_path / 'file'}"):
        write_atomically(tmp_path / "file", [b"content"])
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_not_there(tmp_path):
    path = tmp_path / "vanished" / "file"
    with pytest.raises(FileNotFoundError, match=str(path)):
        write_atomically(path, [b"content"])


def test_a_folder_in_the_place_of_the_file(tmp_path):
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError, match=str(tmp_path / "file")):
        write_atomically(tmp_path / "file", [b"content"])
    assert os.listdir(tmp_path) == ["file"]


def test_content_is_on_the_disk_before_the_name_and_the_name_after(
    tmp_path, monkeypatch
):
    steps = []
    fsync, replace = os.fsync, os.replace

    def spy_fsync(handle):
        steps.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def spy_replace(*paths):
        steps.append("name")
        replace(*paths)

    monkeypatch.setattr(atomic.os, "fsync", spy_fsync)
    monkeypatch.setattr(atomic.os, "replace", spy_replace)
    write_atomically(tmp_path / "file", [b"content"])
    assert steps == ["file", "name", "folder"]


def test_a_link_stays_one(tmp_path):
    (tmp_path / "target").write_bytes(b"earlier")
    (tmp_path / "link").symlink_to("target")
    write_atomically(tmp_path / "link", [b"new"])
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"


def test_others_may_read_it_as_any_new_file(tmp_path):
    (tmp_path / "usual").write_bytes(b"")
    write_atomically(tmp_path / "file", [b""])
    modes = [(tmp_path / name).stat().st_mode for name in ("usual", "file")]
    assert modes[0] == modes[1]


def test_the_longest_name(tmp_path):
    path = tmp_path / ("n" * 255)
    write_atomically(path, [b"content"])
    assert path.read_bytes() == b"content"
