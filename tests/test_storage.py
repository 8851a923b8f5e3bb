"""Files of tensors and values: whole, unharmed and of the right kind, or refused."""

import json
import math
import os
import pickle
import socket
import stat
import struct
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import shared
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shared import KEEP, json_values, quoted
from systems import (
    child,
    forks,
    needs_links,
    needs_open_files_replaced,
    needs_pipes,
    needs_proc,
    peak_memory,
)
from windows import refuse_files_in_use

import sk_mice
from sk_mice import SphericalKMeans
from sk_mice._engine import storage
from sk_mice._engine.storage import NotDataError, pack, read, unpack, write

KIND = {"kind": "model", "version": 5}
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
    return shared.refused(path)


def end_of_header(content):
    return 8 + struct.unpack("<Q", content[:8])[0]


def with_header(content, header):
    """The content with another header, whose length is right."""
    return struct.pack("<Q", len(header)) + header + content[end_of_header(content) :]


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


@needs_open_files_replaced
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


@needs_proc
def test_a_damaged_file_is_not_in_use_while_its_error_is_kept(path, monkeypatch):
    write(path, {"a": torch.ones(3)}, {}, **KIND)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"!")
    with pytest.raises(ValueError, match="damaged") as caught:
        read(path, **KIND)
    refuse_files_in_use(monkeypatch)
    write(path, {"a": torch.ones(3)}, {}, **KIND)
    assert path.read_bytes() == content
    assert caught.tb is not None


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
        np.arange(6, dtype=np.dtype(np.int32).newbyteorder("S")),
    ):
        tensors = {}
        packed = pack(array, "a", tensors)
        found = unpack(packed, tensors)
        assert found.dtype == array.dtype.newbyteorder("=")
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
    padded = content[8 : end_of_header(content)]
    header = padded.rstrip(b" ")
    for other in (
        padded + b" ",
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


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing"):
        sk_mice.load(tmp_path / "nothing")
    with pytest.raises(IsADirectoryError, match=quoted(tmp_path)):
        sk_mice.load(tmp_path)


def test_other_versions_and_other_kinds_of_ours(path):
    def reason(**changes):
        write(path, {"x": torch.zeros(1)}, {}, **KIND | changes)
        return refused(path, path.read_bytes())

    for version in (1, 2, 3, 4):
        earlier = f"earlier version of sk_mice, in format version {version}, and this"
        assert earlier in reason(version=version)
    for version in (6, 0, -1, True, "1", None, 5.0, [5]):
        assert f"has format version {version!r}, and this" in reason(version=version)
    assert "holds a 'checkpoint', where a 'model'" in reason(kind="checkpoint")


def test_headers_that_claim_more_than_the_file_has(path, content):
    for shape, end in (([10**12, 5], 10**12 * 40), ([2**63, 0], 0), ([2**40] * 3, 0)):
        header = json.loads(content[8 : end_of_header(content)])
        entry = header["attributes._sums"]
        entry["shape"], entry["data_offsets"][1] = shape, entry["data_offsets"][0] + end
        refused(path, with_header(content, json.dumps(header).encode()))


JSON = json_values(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    ["__metadata__", "dtype", "shape", "data_offsets"],
)


@settings(KEEP, max_examples=150)
@given(header=st.binary(max_size=200) | JSON.map(lambda v: json.dumps(v).encode()))
@pytest.mark.parametrize("data", [b"", bytes(64)])
def test_any_header(path, header, data):
    refused(path, struct.pack("<Q", len(header)) + header + data)


@settings(KEEP, max_examples=150)
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
        with pytest.raises(ValueError, match=f"{quoted(path)} cannot be written: "):
            write(path, tensors, document, **KIND)
    assert not path.exists()


# ------------------------------------------------------------------------ what it costs


def growth(call):
    """Bytes by which the memory of a fresh process grows at most in a call."""
    receive, send = os.pipe()

    def work():
        before = peak_memory()
        call()
        os.write(send, str(peak_memory() - before).encode())

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


@needs_pipes
@needs_links
def test_only_regular_files_are_read_and_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the path of a socket may have 100 characters
    fifo, name = Path("fifo"), "socket"
    os.mkfifo(fifo)
    Path("link").symlink_to("fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        for path in (fifo, "link", name, "/dev/zero", "/dev/null"):
            for call in (sk_mice.load, lambda path: sk_mice.save(KMEANS, path)):
                with pytest.raises(OSError, match=f"Not a regular file.*{path}"):
                    call(path)
    assert fifo.is_fifo()
    assert stat.S_ISSOCK(os.stat(name).st_mode)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with pytest.raises(IsADirectoryError, match=quoted(tmp_path)):
        sk_mice.save(KMEANS, tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["fifo", "link", "socket"]


@needs_pipes
def test_a_file_that_becomes_a_fifo_is_not_waited_for(path, content, monkeypatch):
    path.write_bytes(content)
    check = storage.check_regular

    def late(name, mode):
        check(name, mode)
        path.unlink()
        os.mkfifo(path)

    monkeypatch.setattr(storage, "check_regular", late)
    with pytest.raises(ValueError, match="not a safetensors file"):
        sk_mice.load(path)
