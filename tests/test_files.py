"""Files that are written whole or not at all, and the paths that they cannot have."""

import errno
import os
import signal
import stat
from functools import partial

import pytest
import torch
from shared import no_space, quoted, raising
from systems import child, forks, needs_links, needs_locks, needs_modes, needs_resource

from sk_mice._engine import files
from sk_mice._engine.files import (
    check_writable,
    move,
    replacement,
    write_atomically,
)
from sk_mice._engine.storage import read, write


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


# ------------------------------------------------------------------------------ paths


def test_paths_that_name_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name in ("", "new/", "new/.", "folder", "folder/", ".", "/"):
        kind = FileNotFoundError if name == "" else IsADirectoryError
        with pytest.raises(kind, match=repr(name)):
            write_atomically(name, [b"content"])
        with pytest.raises(kind, match=f"`out` must be a file that can .*{name!r}"):
            check_writable(name, "`out`")
    for name in ("n" * 256, "vanished/file", "/dev/null"):
        with pytest.raises(OSError, match=name):
            write_atomically(name, [b"content"])
        with pytest.raises(OSError, match=f"`out` must be a file that can.*{name}"):
            check_writable(name, "`out`")
    assert os.listdir(tmp_path) == ["folder"]
    assert os.listdir(tmp_path / "folder") == []


# --------------------------------------------------------------- whole, or not at all


def test_parts_are_joined(path):
    write_atomically(path, [b"one", memoryview(b" two"), b""])
    write_atomically(str(path), iter([b"three"]))
    assert path.read_bytes() == b"three"
    assert os.listdir(path.parent) == ["file"]


def failing():
    yield b"half"
    raise KeyboardInterrupt


def test_an_interruption_leaves_the_earlier_file_and_nothing_else(path):
    path.write_bytes(b"earlier")
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, failing())
    assert path.read_bytes() == b"earlier"
    assert os.listdir(path.parent) == ["file"]


@needs_resource
def test_a_file_that_does_not_fit_is_an_error_with_its_name(path):
    import resource

    path.write_bytes(b"earlier")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match=quoted(path)) as caught:
            write_atomically(path, [bytes(900), bytes(900)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    assert path.read_bytes() == b"earlier"
    assert os.listdir(path.parent) == ["file"]


def test_a_full_disk_is_an_error_with_the_path(path, monkeypatch):
    monkeypatch.setattr(files.os, "fsync", no_space)
    with pytest.raises(OSError, match=f"No space left .*{quoted(path)}"):
        write_atomically(path, [b"new"])
    assert os.listdir(path.parent) == []


def test_content_is_on_the_disk_before_the_name_and_the_name_after(path, monkeypatch):
    steps = []
    fsync, replace = os.fsync, os.replace

    def spy_fsync(handle):
        steps.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def spy_replace(*paths):
        steps.append("name")
        replace(*paths)

    monkeypatch.setattr(files.os, "fsync", spy_fsync)
    monkeypatch.setattr(files.os, "replace", spy_replace)
    write_atomically(path, [b"content"])
    # Windows has no way to write a folder.
    assert steps == ["file", "name"] + ["folder"] * (os.name != "nt")


def test_windows_is_asked_again_while_another_program_has_the_file(path, monkeypatch):
    replace, refusals, pauses = os.replace, [], []

    def refuse(*paths):
        if refusals:
            raise refusals.pop()
        replace(*paths)

    monkeypatch.setattr(files.os, "replace", refuse)
    monkeypatch.setattr(files.time, "sleep", pauses.append)
    if files.fcntl is not None:  # other systems mean it
        refusals += [PermissionError(errno.EACCES, "Access is denied")]
        with pytest.raises(PermissionError):
            write_atomically(path, [b"new"])
        assert not pauses
    monkeypatch.setattr(files, "fcntl", None)
    refusals += 3 * [PermissionError(errno.EACCES, "Access is denied")]
    write_atomically(path, [b"new"])
    assert path.read_bytes() == b"new"
    assert len(pauses) == 3
    refusals += 99 * [PermissionError(errno.EACCES, "Access is denied")]
    with pytest.raises(PermissionError, match=f"denied.*{path.name}"):
        write_atomically(path, [b"newer"])
    assert sum(pauses) < 10
    assert os.listdir(path.parent) == ["file"]


@needs_links
def test_a_link_stays_one(tmp_path):
    (tmp_path / "target").write_bytes(b"earlier")
    (tmp_path / "link").symlink_to("target")
    write_atomically(tmp_path / "link", [b"new"])
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"


def test_the_longest_name(tmp_path):
    path = tmp_path / ("n" * 255)
    write_atomically(path, [b"content"])
    assert path.read_bytes() == b"content"


@pytest.fixture
def umask():
    earlier = os.umask(0o022)
    yield os.umask
    os.umask(earlier)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@needs_modes
def test_the_mode_of_a_file_is_kept(path, umask):
    path.write_bytes(b"earlier")
    for bits in (0o600, 0o640, 0o666, 0o755):
        path.chmod(bits)
        write_atomically(path, [b"new"])
        assert mode(path) == bits


@needs_modes
def test_a_new_file_follows_the_umask(tmp_path, umask):
    for mask, bits in ((0o022, 0o644), (0o077, 0o600)):
        umask(mask)
        write_atomically(tmp_path / str(mask), [b"content"])
        assert mode(tmp_path / str(mask)) == bits


@needs_modes
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


def test_a_read_only_file_stays_for_root_too(path):
    path.write_bytes(b"earlier")
    path.chmod(0o444)
    with pytest.raises(PermissionError, match=f"read-only.*{quoted(path)}"):
        write_atomically(path, [b"new"])
    with pytest.raises(PermissionError, match="`path` must be a file that can"):
        check_writable(path)
    assert path.read_bytes() == b"earlier"
    assert os.listdir(path.parent) == ["file"]


def test_a_file_that_a_spreadsheet_has_open_is_found_before_the_work(path, monkeypatch):
    denied = raising(PermissionError, errno.EACCES, "Permission denied")
    monkeypatch.setattr(files, "fcntl", None)  # as on Windows
    check_writable(path)
    path.write_bytes(b"earlier")
    check_writable(path)
    monkeypatch.setattr(files, "open", denied, raising=False)
    with pytest.raises(PermissionError, match=f"Another program.*{quoted(path)}"):
        check_writable(path)
    assert path.read_bytes() == b"earlier"


def test_a_folder_that_cannot_be_read_takes_files(path, monkeypatch):
    def open_(name, *args):
        if os.path.isdir(name):  # root may read all of them
            raise PermissionError(errno.EACCES, "Permission denied")
        return os_open(name, *args)

    os_open = os.open
    monkeypatch.setattr(files.os, "open", open_)
    write_atomically(path, [b"content"])
    assert path.read_bytes() == b"content"


def test_an_error_of_what_is_written_keeps_its_own_name(path):
    with pytest.raises(FileNotFoundError, match="'other'"), replacement(path):
        os.stat("other")
    assert os.listdir(path.parent) == []


# ------------------------------------------------------------------ several processes


def killed(path):
    """Have a process die while it writes a file."""

    def parts():
        yield b"half"
        os.kill(os.getpid(), signal.SIGKILL)

    process = child(lambda: write_atomically(path, parts()))
    process.join()
    assert process.exitcode == -signal.SIGKILL


def temporaries(folder):
    return [name for name in os.listdir(folder) if name.startswith(".sk_mice-")]


@forks
def test_the_next_write_removes_what_dead_processes_of_this_path_left(tmp_path):
    (tmp_path / "file").write_bytes(b"earlier")
    for name in ("file", "other"):
        killed(tmp_path / name)
    assert (tmp_path / "file").read_bytes() == b"earlier"
    assert len(temporaries(tmp_path)) == 2
    write_atomically(tmp_path / "file", [b"new"])
    assert len(temporaries(tmp_path)) == 1  # of the other path
    write_atomically(tmp_path / "other", [b"new"])
    assert sorted(os.listdir(tmp_path)) == ["file", "other"]


@forks
def test_a_process_that_still_writes_is_not_disturbed(path):
    begun, go_on = os.pipe(), os.pipe()

    def parts():
        yield b"half "
        os.write(begun[1], b"x")
        os.read(go_on[0], 1)
        yield b"whole"

    process = child(lambda: write_atomically(path, parts()))
    os.read(begun[0], 1)
    write_atomically(path, [b"ours"])
    assert path.read_bytes() == b"ours"
    assert len(temporaries(path.parent)) == 1
    os.write(go_on[1], b"x")
    process.join()
    assert process.exitcode == 0
    assert path.read_bytes() == b"half whole"
    assert os.listdir(path.parent) == ["file"]


@forks
@pytest.mark.parametrize("fault", [OSError(errno.ENOLCK, "No locks"), None])
def test_without_locks_only_what_is_old_is_removed(path, monkeypatch, fault):
    def flock(handle, how):
        raise fault

    if fault:
        monkeypatch.setattr(files.fcntl, "flock", flock)
    else:  # as on Windows
        monkeypatch.setattr(files, "fcntl", None)
    killed(path)
    (orphan,) = path.parent.glob(".sk_mice-*")
    write_atomically(path, [b"new"])
    assert orphan.exists()
    os.utime(orphan, (0, 0))
    write_atomically(path, [b"newer"])
    assert os.listdir(path.parent) == ["file"]


@needs_locks
def test_a_temporary_file_that_is_taken_away_before_its_lock_is_made_anew(
    path, monkeypatch
):
    lock, taken = files.lock, []

    def late(file):
        if not taken:
            taken.extend(path.parent.glob(".sk_mice-*"))
            taken[0].unlink()
        return lock(file)

    monkeypatch.setattr(files, "lock", late)
    write_atomically(path, [b"content"])
    assert path.read_bytes() == b"content"
    assert len(taken) == 1


@forks
def test_many_processes_write_and_read_one_path_at_once(path):
    def work(k):
        for _ in range(50):
            write(path, {"a": torch.full((5000,), k)}, {"k": k}, kind="a", version=1)

    write(path, {"a": torch.zeros(5)}, {"k": 0}, kind="a", version=1)
    processes = [child(partial(work, k)) for k in range(1, 5)]
    while any(process.is_alive() for process in processes):
        tensors, document = read(path, kind="a", version=1)
        assert tensors["a"].eq(document["k"]).all()
    assert [process.exitcode for process in processes] == [0] * 4
    assert os.listdir(path.parent) == ["file"]


# ------------------------------------------------------------------------------- moves


@needs_modes
@needs_links
@pytest.mark.parametrize("disks", [1, 2])
def test_a_file_that_is_moved_replaces_the_content_of_another(
    tmp_path, monkeypatch, disks
):
    source, target, link = (tmp_path / name for name in ("new", "old", "link"))
    source.write_bytes(b"new")
    target.write_bytes(b"old")
    target.chmod(0o600)
    link.symlink_to(target)
    rename = os.replace

    def to_another_disk(one, other):
        if os.fspath(one) == os.fspath(source):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(one, other)

    if disks == 2:
        monkeypatch.setattr(os, "replace", to_another_disk)
    move(source, link)
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert not source.exists()
    with pytest.raises(FileNotFoundError, match="link"):
        move(source, link)
    assert target.read_bytes() == b"new"
