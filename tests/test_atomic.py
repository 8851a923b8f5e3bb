"""Whole or not at all, whatever happens in between."""

import errno
import os
import resource
import signal
import socket
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


# ------------------------------------------------------------------ what is replaced


@pytest.fixture
def umask():
    earlier = os.umask(0o022)
    yield os.umask
    os.umask(earlier)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("bits", [0o600, 0o640, 0o666, 0o755])
def test_the_mode_of_a_file_is_kept(tmp_path, bits, umask):
    path = tmp_path / "file"
    path.write_bytes(b"earlier")
    path.chmod(bits)
    write_atomically(path, [b"new"])
    assert (mode(path), path.read_bytes()) == (bits, b"new")


def test_a_new_file_follows_the_umask(tmp_path, umask):
    umask(0o077)
    write_atomically(tmp_path / "file", [b"content"])
    assert mode(tmp_path / "file") == 0o600


@pytest.mark.parametrize(("mask", "bits"), [(0o022, 0o600), (0o000, 0o640)])
def test_nobody_reads_a_temporary_file_who_may_not_read_the_file(
    tmp_path, umask, mask, bits
):
    umask(mask)
    path, seen = tmp_path / "file", []
    path.touch()
    path.chmod(bits)

    def parts():
        yield b"secret"
        seen.extend(mode(p) for p in tmp_path.glob(".sk_mice-*"))

    write_atomically(path, parts())
    assert seen == [bits]


def test_a_read_only_file_stays_for_root_too(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"earlier")
    path.chmod(0o444)
    with pytest.raises(PermissionError, match=f"read-only.*{path}"):
        write_atomically(path, [b"new"])
    assert path.read_bytes() == b"earlier"
    assert os.listdir(tmp_path) == ["file"]


def test_what_is_no_regular_file_stays(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    (tmp_path / "link").symlink_to("fifo")
    for target in (path, tmp_path / "link", "/dev/null"):
        with pytest.raises(OSError, match=f"Not a regular file.*{target}"):
            write_atomically(target, [b"new"])
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert sorted(os.listdir(tmp_path)) == ["fifo", "link"]


def test_a_socket_stays(tmp_path):
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        with pytest.raises(OSError, match="Not a regular file"):
            write_atomically(path, [b"new"])
    assert stat.S_ISSOCK(path.stat().st_mode)


@pytest.mark.parametrize("name", ["", "new/", "new/.", "folder", "folder/", ".", "/"])
def test_paths_that_name_no_file(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    kind = FileNotFoundError if name == "" else IsADirectoryError
    with pytest.raises(kind, match=repr(name)):
        write_atomically(name, [b"content"])
    assert os.listdir(tmp_path) == ["folder"]
    assert os.listdir(tmp_path / "folder") == []


def test_a_name_that_is_too_long(tmp_path):
    with pytest.raises(OSError, match=r"[Nn]ame too long"):
        write_atomically(tmp_path / ("n" * 256), [b"content"])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("path", [3, True, b"file", None, 1.5, ["file"]])
def test_what_is_no_path(path):
    with pytest.raises(TypeError, match="`path` must be a string or path-like; got"):
        write_atomically(path, [b"content"])


def test_a_null_character_in_a_path():
    with pytest.raises(ValueError, match="`path` must not hold a null character"):
        write_atomically("a\0b", [b"content"])


# ------------------------------------------------------------------------- orphans

DIES = """
import os, signal, sys
from sk_mice._engine.atomic import write_atomically
def parts():
    yield b'half'
    os.kill(os.getpid(), signal.SIGKILL)
write_atomically(sys.argv[1], parts())
"""
WAITS = """
import sys
from sk_mice._engine.atomic import write_atomically
def parts():
    yield b'half '
    print('half', flush=True)
    sys.stdin.readline()
    yield b'whole'
write_atomically(sys.argv[1], parts())
"""


def temporaries(folder):
    return [name for name in os.listdir(folder) if name.startswith(".sk_mice-")]


def test_the_next_write_removes_what_dead_processes_of_this_path_left(tmp_path):
    for name in ("file", "other"):
        subprocess.run([sys.executable, "-c", DIES, str(tmp_path / name)])
    assert len(temporaries(tmp_path)) == 2
    write_atomically(tmp_path / "file", [b"new"])
    assert len(temporaries(tmp_path)) == 1  # of the other path
    write_atomically(tmp_path / "other", [b"new"])
    assert sorted(os.listdir(tmp_path)) == ["file", "other"]


def test_a_process_that_still_writes_is_not_disturbed(tmp_path):
    path = tmp_path / "file"
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "half\n"
    write_atomically(path, [b"ours"])
    assert path.read_bytes() == b"ours"
    assert len(temporaries(tmp_path)) == 1
    process.communicate("go\n")
    assert process.returncode == 0
    assert path.read_bytes() == b"half whole"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("fault", [OSError(errno.ENOLCK, "No locks"), None])
def test_without_locks_only_what_is_old_is_removed(tmp_path, monkeypatch, fault):
    def flock(handle, how):
        raise fault

    if fault:
        monkeypatch.setattr(atomic.fcntl, "flock", flock)
    else:  # as on Windows
        monkeypatch.setattr(atomic, "fcntl", None)
    subprocess.run([sys.executable, "-c", DIES, str(tmp_path / "file")])
    (orphan,) = tmp_path.glob(".sk_mice-*")
    write_atomically(tmp_path / "file", [b"new"])
    assert orphan.exists()
    os.utime(orphan, (0, 0))
    write_atomically(tmp_path / "file", [b"newer"])
    assert os.listdir(tmp_path) == ["file"]


def test_a_temporary_file_that_is_taken_away_before_its_lock_is_made_anew(
    tmp_path, monkeypatch
):
    lock, taken = atomic._lock, []

    def late(handle):
        if not taken:
            taken.extend(tmp_path.glob(".sk_mice-*"))
            taken[0].unlink()
        return lock(handle)

    monkeypatch.setattr(atomic, "_lock", late)
    write_atomically(tmp_path / "file", [b"content"])
    assert (tmp_path / "file").read_bytes() == b"content"
    assert len(taken) == 1


MANY = """
import sys
from sk_mice._engine.atomic import write_atomically
for turn in range(150):
    write_atomically(sys.argv[1], [sys.argv[2].encode() * 10_000] * 5)
"""


def test_many_processes_write_one_path_at_once(tmp_path):
    path = tmp_path / "file"
    processes = [
        subprocess.Popen([sys.executable, "-c", MANY, str(path), letter])
        for letter in "abcd"
    ]
    while any(process.poll() is None for process in processes):
        if path.exists():
            content = path.read_bytes()
            assert len(content) == 50_000
            assert len(set(content)) == 1
    assert [process.wait() for process in processes] == [0] * 4
    assert os.listdir(tmp_path) == ["file"]
