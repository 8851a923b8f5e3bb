"""Files of tensors and values: whole, unharmed and of the right kind, or refused."""

import builtins
import errno
import json
import math
import multiprocessing
import os
import pickle
import signal
import socket
import stat
import struct
import sys
from functools import partial

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sk_mice
from sk_mice import SphericalKMeans
from sk_mice._engine import storage
from sk_mice._engine.storage import (
    NotDataError,
    pack,
    read,
    unpack,
    write,
    write_atomically,
)

KIND = {"kind": "model", "version": 4}
KMEANS = SphericalKMeans(3, random_state=0).fit(np.random.default_rng(0).random((9, 5)))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "kmeans"
    sk_mice.save(KMEANS, path)
    return path.read_bytes()


def refused(path, content):
    path.write_bytes(content)
    with pytest.raises(ValueError, match="cannot be loaded: ") as caught:
        sk_mice.load(path)
    assert str(path) in str(caught.value)
    return str(caught.value).split("cannot be loaded: ")[1]


def end_of_header(content):
    return 8 + struct.unpack("<Q", content[:8])[0]


def with_header(content, header):
    """The content with another header, whose length is right."""
    return struct.pack("<Q", len(header)) + header + content[end_of_header(content) :]


# Later Pythons warn of threads, of which the children here make no use.
def forks(test):
    test = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")(test)
    return pytest.mark.skipif(
        not hasattr(os, "fork"), reason="this system has no fork"
    )(test)


pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes")


def child(work):
    """A process that does some work and ends."""
    process = multiprocessing.get_context("fork").Process(target=work, daemon=True)
    process.start()
    return process


# -------------------------------------------------------------------- what comes back


@pytest.mark.parametrize("around", [torch.inference_mode, torch.no_grad])
def test_tensors_of_every_type_and_shape_come_back(path, around):
    types = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
    types += [torch.float16, torch.bfloat16, torch.float32, torch.float64]
    tensors = {str(dtype): torch.tensor([[0, 1, 1]]).to(dtype) for dtype in types}
    tensors |= {"scalar": torch.tensor(3.0), "empty": torch.zeros(10**15, 0)}
    with around():
        write(path, tensors, {"a": [1]}, **KIND)
        found, document = read(path, **KIND)
    assert document == {"a": [1]}
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(found[name], tensor)
        assert found[name].dtype == tensor.dtype
        assert not found[name].is_inference()
        assert found[name].untyped_storage().nbytes() == tensor.nbytes


def test_what_was_read_does_not_depend_on_the_file(path):
    write(path, {"a": torch.ones(5000)}, {}, **KIND)
    tensors, _ = read(path, **KIND)
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    assert tensors["a"].eq(1).all()
    os.truncate(path, 0)
    assert tensors["a"].eq(1).all()


def test_a_file_that_is_replaced_while_it_is_read_is_read_to_its_end(path, monkeypatch):
    write(path, {"a": torch.ones(3)}, {"which": "first"}, **KIND)
    opened = storage.safe_open

    def late(*args):
        write(path, {"a": torch.zeros(3)}, {"which": "second"}, **KIND)
        return opened(*args)

    monkeypatch.setattr(storage, "safe_open", late)
    tensors, document = read(path, **KIND)
    assert document == {"which": "first"}
    assert tensors["a"].eq(1).all()


LISTS = [
    [2**63] * 100,
    [1, 2.0] * 100,
    [True, 1] * 100,
    [math.nan, -0.0, math.inf] * 100,
    ["", "a", "\ud83d", "\ude00", "\ud83d\ude00", "😀", "\0", "\n", "%0A", "+"] * 10,
    [[1, 2]] * 100,
    [[1], [1, 2]] * 100,
    [[1.0], [1]] * 100,
    [[[1] * 100]],
    [[]] * 100,
    [None] * 100,
    [{"a": 1}, {"a": 1.5, "b": [2]}] * 100,
    [{"a": 1}, {}] * 100,
    [{}] * 100,
]
VALUES = [
    *(None, True, 0, -(10**30), 1.5, math.nan, -math.inf, "", "é\udcff", [], {}, ()),
    *(torch.device("cpu"), ["a", ("b", {"c": [1.0]})], {"class": 1, "parameters": 2}),
]


def test_values_come_back(path):
    for value in (*LISTS, *VALUES):
        tensors = {"x": torch.zeros(1)}
        both = {"value": value, "tuple": (value, 5), "x": torch.ones(2)}
        packed = pack(both, "x", tensors)
        write(path, tensors, {"packed": packed}, **KIND)
        tensors, document = read(path, **KIND)
        assert repr(unpack(document["packed"], tensors)) == repr(both)
        assert list(tensors) == ["x"]  # whoever put it in has it


def test_numpys_values_come_back():
    for value in (np.float32(0.5), np.int64(3), np.bool_(True), np.str_("a")):
        found = unpack(pack(value, "a", {}), {})
        assert (type(found), found) == (type(value.item()), value)
    for array in (
        *(np.arange(6).reshape(2, 3)[:, ::-1], np.array(1.5, np.float16)),
        *(np.zeros((0, 3)), np.array([True])),
    ):
        tensors = {}
        packed = pack(array, "a", tensors)
        found = unpack(packed, tensors)
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)
    for names in (np.array(["a", "b"]), np.array(["a"] * 99, object)):
        tensors = {}
        packed = pack(names, "a", tensors)
        assert unpack(packed, tensors).tolist() == names.tolist()


def test_what_is_no_data_is_refused():
    dates, objects = np.arange(3).astype("M8[D]"), np.array([1, None])
    for value in (print, object(), dates, objects, {1: 2}, {"a": [print]}, b"a"):
        with pytest.raises(NotDataError):
            pack(value, "a", {})


CLASSES = {"SphericalKMeans": SphericalKMeans}


def test_objects_of_known_classes_come_back():
    kmeans = SphericalKMeans(3, init=np.eye(3), tol=0.5)
    tensors = {}
    packed = pack({"init": [kmeans]}, "a", tensors, CLASSES)
    assert list(tensors) == ["a.init.0.init"]
    assert packed["dict"]["init"][0]["class"] == "SphericalKMeans"
    (found,) = unpack(packed, tensors, CLASSES)["init"]
    assert type(found) is SphericalKMeans
    assert repr(found.get_params()) == repr(kmeans.get_params())

    class Sub(SphericalKMeans):
        pass

    other = type("SphericalKMeans", (SphericalKMeans,), {})
    for value in (Sub(), other(), SphericalKMeans(init=print)):
        with pytest.raises(NotDataError):
            pack(value, "a", {}, CLASSES)
    with pytest.raises(NotDataError):
        pack(kmeans, "a", {})
    with pytest.raises(ValueError, match="'n_clusters' parameter"):
        unpack(pack(SphericalKMeans(-1), "a", {}, CLASSES), {}, CLASSES)


def test_other_documents_have_no_values():
    tensors = {
        "a": torch.zeros(3),
        "b": torch.zeros(1, 1, 1),
        "c": torch.zeros(10**9, 0),
    }
    for document in (
        *({}, {"code": "a"}, {"list": "x"}, {"list": "b"}, {"list": "c"}, {"tuple": 5}),
        *({"dict": []}, {"rows": 5}, {"rows": [{"dict": {"a": [1], "b": [1, 2]}}]}),
        *({"lines": 5}, {"float": "x"}, {"device": "abacus"}, {"strings": "a"}),
        *({"class": "print", "parameters": {}}, {"class": [], "parameters": {}}),
        {"tensor": "a", "array": "b"},
    ):
        with pytest.raises(storage.UNREADABLE):
            unpack(document, dict(tensors), CLASSES)


# ------------------------------------------------------------------------ no other file


def test_truncated_at_500_lengths(path, content):
    for length in np.random.default_rng(0).permutation(len(content))[:500]:
        refused(path, content[:length])


def test_2000_flipped_bytes(path, content):
    rng = np.random.default_rng(0)
    end = end_of_header(content)
    # All of the first bytes, half of the rest in the header and half in the tensors.
    places = [*range(100), *rng.integers(100, end, 950)]
    places += rng.integers(end, len(content), 950).tolist()
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= int(rng.integers(1, 256))
        refused(path, damaged)


def test_bytes_at_the_end_or_the_beginning(path, content):
    for other in (content + b"\0", b"\0" + content, content + content):
        refused(path, other)


def test_every_byte_of_the_header_counts(path, content):
    header = content[8 : end_of_header(content)].rstrip(b" ")
    for other in (
        header + b" ",
        header.replace(b'{"__meta', b'{ "__meta', 1),
        header.replace(b'"shape":', b'"extra":1,"shape":', 1),
        header.replace(b'"shape":[3,5]', b'"shape":[5,3]', 1),
        header.replace(b"attributes._sums", b"attributes.sums_", 1),
    ):
        assert other != header
        assert "checksum" in refused(path, with_header(content, other))
    for other in (
        header[:-1] + b',"__metadata__":{}}',
        header.replace(b'{\\"sha256', b'{\\"class\\":1,\\"sha256'),
        header.replace(b'"dtype":"F64"', b'"dtype":"F64","dtype":"F64"', 1),
        header.replace(b'{"sk_mice":', b'{"more":"","sk_mice":', 1),
    ):
        assert other != header
        assert "is damaged" in refused(path, with_header(content, other))


def test_other_kinds_of_file(path):
    zeros = {"x": torch.zeros(3)}
    for other in (
        b"",
        bytes(8),
        bytes(1000),
        b"\xff" * 1000,
        b"just some text that is long enough",
        pickle.dumps(SphericalKMeans()),
        safetensors.torch.save(zeros),
        *(
            safetensors.torch.save(zeros, {"sk_mice": text})
            for text in ("{}", "[]", "1", "", '{"kind": "model", "version": 3}')
        ),
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 10**8) + b"{}",
        struct.pack("<Q", 40_000) + b"[" * 40_000,
        struct.pack("<Q", 40_000) + b'{"__metadata__":' * 2500,
    ):
        refused(path, other)


def test_a_pickle_is_not_run(path):
    assert "no safetensors file" in refused(path, pickle.dumps(builtins.print))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing"):
        sk_mice.load(tmp_path / "nothing")
    with pytest.raises(IsADirectoryError, match=str(tmp_path)):
        sk_mice.load(tmp_path)


def test_other_versions_and_other_kinds_of_ours(path):
    def reason(**changes):
        write(path, {"x": torch.zeros(1)}, {}, **KIND | changes)
        return refused(path, path.read_bytes())

    for version in (1, 2, 3):
        earlier = f"earlier version of sk_mice, in format version {version}, and this"
        assert earlier in reason(version=version)
    for version in (5, 0, -1, True, "1", None, 4.0, [4]):
        assert f"has format version {version!r}, and this" in reason(version=version)
    assert "no model but a 'checkpoint'" in reason(kind="checkpoint")


def test_headers_that_claim_more_than_the_file_has(path, content):
    for shape, end in (([10**12, 5], 10**12 * 40), ([2**63, 0], 0), ([2**40] * 3, 0)):
        header = json.loads(content[8 : end_of_header(content)])
        entry = header["attributes._sums"]
        entry["shape"], entry["data_offsets"][1] = shape, entry["data_offsets"][0] + end
        refused(path, with_header(content, json.dumps(header).encode()))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["__metadata__", "dtype", "shape", "data_offsets"])
            | st.text(max_size=10),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
KEEP = settings(
    max_examples=150,
    deadline=None,
    # The file is written anew in every example.
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@KEEP
@given(header=st.binary(max_size=200) | JSON.map(lambda v: json.dumps(v).encode()))
@pytest.mark.parametrize("data", [b"", bytes(64)])
def test_any_header(path, header, data):
    refused(path, struct.pack("<Q", len(header)) + header + data)


@KEEP
@given(entry=JSON, name=st.text(max_size=5))
def test_any_entry(path, content, entry, name):
    header = json.loads(content[8 : end_of_header(content)])
    header[name] = entry
    refused(path, with_header(content, json.dumps(header).encode()))


def test_what_could_not_be_read_is_not_written(path, monkeypatch):
    monkeypatch.setattr(storage, "LARGEST_DOCUMENT", 10_000_000)
    for tensors, document in (
        ({}, {"note": "x" * 10_000_000}),
        ({"x" * 5_000_000: torch.zeros(1)}, {}),
        ({}, {"figure": math.nan}),
        ({}, {"figure": 10**5000}),
        ({"x": torch.zeros(1, dtype=torch.complex128)}, {}),
    ):
        with pytest.raises(ValueError, match=f"{path}' cannot be written: "):
            write(path, tensors, document, **KIND)
    assert not path.exists()


# ------------------------------------------------------------------------ what it costs


def rss():
    import resource  # not on Windows

    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def growth(call):
    """Bytes by which the memory of a fresh process grows at most in a call."""
    receive, send = os.pipe()

    def work():
        before = rss()
        call()
        os.write(send, str(rss() - before).encode())

    process = child(work)
    process.join()
    assert process.exitcode == 0
    return int(os.read(receive, 99))


@forks
def test_what_is_too_long_is_not_read(path, content, monkeypatch):
    def fails():
        with pytest.raises(ValueError, match="cannot be loaded"):
            sk_mice.load(path)

    long = b'{"":[' + b"{}," * 1_333_333 + b"{}]}"
    assert len(long) > storage.LARGEST_HEADER
    path.write_bytes(struct.pack("<Q", len(long)) + long)
    assert growth(fails) < 10e6
    for start in (content, b"\xff" * 8):
        path.write_bytes(start)
        os.truncate(path, 2**40)
        assert growth(fails) < 10e6
    longest = b'{"__metadata__":[' + b"{}," * 1_300_000 + b"{}]}"
    path.write_bytes(struct.pack("<Q", len(longest)) + longest)
    assert growth(fails) < 200e6
    write(path, {}, {"content": [{}] * 20_000_000}, **KIND)
    monkeypatch.setattr(storage, "LARGEST_DOCUMENT", 50_000_000)
    assert growth(fails) < 200e6  # nothing is made of the text


@forks
@pytest.mark.slow
def test_a_file_is_read_once(path):
    centers = torch.eye(2, 10_000_000)
    sk_mice.save(KMEANS, path)
    tensors, document = read(path, **KIND)
    document["attributes"]["n_features_in_"] = 10_000_000
    tensors["attributes.cluster_centers_"] = centers
    tensors["attributes._sums"] = centers.clone()
    tensors["attributes.labels_"] %= 2
    write(path, tensors, document, **KIND)
    size = path.stat().st_size
    assert size > 150e6
    del tensors, centers
    assert growth(lambda: sk_mice.load(path)) < 1.5 * size


# ------------------------------------------------------------------------------ paths


def test_only_paths_are_paths():
    for path in (0, 99, True, b"model", None, 1.5, ["file"]):
        for call in (sk_mice.load, lambda path: sk_mice.save(KMEANS, path)):
            with pytest.raises(TypeError, match="`path` must be a string or path-like"):
                call(path)
    os.fstat(0)  # was not taken for a file, and closed
    for call in (sk_mice.load, lambda path: sk_mice.save(KMEANS, path)):
        with pytest.raises(ValueError, match="`path` must not hold a null character"):
            call("a\0b")


@pipes
def test_only_regular_files_are_read_and_replaced(tmp_path):
    fifo, name = tmp_path / "fifo", str(tmp_path / "socket")
    os.mkfifo(fifo)
    (tmp_path / "link").symlink_to("fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        for path in (fifo, tmp_path / "link", name, "/dev/zero", "/dev/null"):
            for call in (sk_mice.load, lambda path: sk_mice.save(KMEANS, path)):
                with pytest.raises(OSError, match=f"Not a regular file.*{path}"):
                    call(path)
    assert fifo.is_fifo()
    assert stat.S_ISSOCK(os.stat(name).st_mode)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with pytest.raises(IsADirectoryError, match=str(tmp_path)):
        sk_mice.save(KMEANS, tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["fifo", "link", "socket"]


@pipes
def test_a_file_that_becomes_a_fifo_is_not_waited_for(path, content, monkeypatch):
    path.write_bytes(content)
    check = storage._check_regular

    def late(name, mode):
        check(name, mode)
        path.unlink()
        os.mkfifo(path)

    monkeypatch.setattr(storage, "_check_regular", late)
    with pytest.raises(ValueError, match="no safetensors file"):
        sk_mice.load(path)


def test_paths_that_name_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name in ("", "new/", "new/.", "folder", "folder/", ".", "/"):
        kind = FileNotFoundError if name == "" else IsADirectoryError
        with pytest.raises(kind, match=repr(name)):
            write_atomically(name, [b"content"])
    for name in ("n" * 256, "vanished/file"):
        with pytest.raises(OSError, match=name):
            write_atomically(name, [b"content"])
    assert os.listdir(tmp_path) == ["folder"]
    assert os.listdir(tmp_path / "folder") == []


# -------------------------------------------------------------- whole, or not at all


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


def test_a_file_that_does_not_fit_is_an_error_with_its_name(path):
    resource = pytest.importorskip("resource", reason="no limits of files here")
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
    assert os.listdir(path.parent) == ["file"]


def test_a_full_disk_is_an_error_with_the_path(path, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(storage.os, "fsync", full)
    with pytest.raises(OSError, match=f"No space left .*{path}"):
        sk_mice.save(KMEANS, path)
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

    monkeypatch.setattr(storage.os, "fsync", spy_fsync)
    monkeypatch.setattr(storage.os, "replace", spy_replace)
    write_atomically(path, [b"content"])
    assert steps == ["file", "name", "folder"]


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


def test_the_mode_of_a_file_is_kept(path, umask):
    path.write_bytes(b"earlier")
    for bits in (0o600, 0o640, 0o666, 0o755):
        path.chmod(bits)
        sk_mice.save(KMEANS, path)
        assert mode(path) == bits
    sk_mice.load(path)


def test_a_new_file_follows_the_umask(tmp_path, umask):
    for mask, bits in ((0o022, 0o644), (0o077, 0o600)):
        umask(mask)
        write_atomically(tmp_path / str(mask), [b"content"])
        assert mode(tmp_path / str(mask)) == bits


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
    with pytest.raises(PermissionError, match=f"read-only.*{path}"):
        sk_mice.save(KMEANS, path)
    assert path.read_bytes() == b"earlier"
    assert os.listdir(path.parent) == ["file"]


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
        monkeypatch.setattr(storage.fcntl, "flock", flock)
    else:  # as on Windows
        monkeypatch.setattr(storage, "fcntl", None)
    killed(path)
    (orphan,) = path.parent.glob(".sk_mice-*")
    write_atomically(path, [b"new"])
    assert orphan.exists()
    os.utime(orphan, (0, 0))
    write_atomically(path, [b"newer"])
    assert os.listdir(path.parent) == ["file"]


def test_a_temporary_file_that_is_taken_away_before_its_lock_is_made_anew(
    path, monkeypatch
):
    lock, taken = storage._lock, []

    def late(file):
        if not taken:
            taken.extend(path.parent.glob(".sk_mice-*"))
            taken[0].unlink()
        return lock(file)

    monkeypatch.setattr(storage, "_lock", late)
    write_atomically(path, [b"content"])
    assert path.read_bytes() == b"content"
    assert len(taken) == 1


@forks
def test_many_processes_write_and_read_one_path_at_once(path):
    def work(k):
        for _ in range(50):
            write(path, {"a": torch.full((5000,), k)}, {"k": k}, **KIND)

    write(path, {"a": torch.zeros(5)}, {"k": 0}, **KIND)
    processes = [child(partial(work, k)) for k in range(1, 5)]
    while any(process.is_alive() for process in processes):
        tensors, document = read(path, **KIND)
        assert tensors["a"].eq(document["k"]).all()
    assert [process.exitcode for process in processes] == [0] * 4
    assert os.listdir(path.parent) == ["file"]
