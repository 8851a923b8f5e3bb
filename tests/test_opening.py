"""Formats of images that are read, and none that starts a program."""

import os
import struct
import subprocess
from functools import partial

import pytest
from image_files import NO_IMAGE, encoded, left_out, load_one, tiff, write
from shared import recorded
from systems import child, forks

from sk_mice.datasets import _opening, load_image_folder

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 16 12\n%%EndComments\nshowpage\n"
DOS_EPS = b"\xc5\xd0\xd3\xc6" + struct.pack("<II", 30, len(EPS)) + bytes(18) + EPS


def iptc(payload):
    """An IPTC record that holds an image of any format."""

    def field(group, number, data):
        return struct.pack(">BBBH", 0x1C, group, number, len(data)) + data

    fields = {20: b"\0\x10", 30: b"\0\x0c", 60: b"\x01\0", 120: b"\x05"}
    header = b"".join(field(3, number, data) for number, data in fields.items())
    return header + field(8, 10, payload) + bytes(5)


def icns(payload):
    block = b"ic07" + struct.pack(">I", len(payload) + 8) + payload
    return b"icns" + struct.pack(">I", len(block) + 8) + block


def ico(payload):
    directory = struct.pack("<BBBBHHII", 16, 12, 0, 0, 1, 32, len(payload), 22)
    return struct.pack("<HHH", 0, 1, 1) + directory + payload


def in_tiff(payload):
    """A TIFF file whose one strip, compressed as JPEG, is something else."""
    entries = [(256, 16), (257, 12), (258, 8), (259, 7), (262, 1), (273, 4096)]
    return tiff([*entries, (277, 1), (278, 12), (279, len(payload))], payload)


@pytest.fixture
def started(tmp_path_factory, monkeypatch):
    """Programs that were started, and those that a `gs` on the PATH has noted."""
    folder = tmp_path_factory.mktemp("bin")
    for name in ("gs", "djpeg", "gswin64c"):
        program = folder / name
        program.write_text(f"#!/bin/sh\necho {name} >> {folder}/started\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    names = recorded(monkeypatch, subprocess, "Popen", lambda command, *_: command)
    monkeypatch.setattr(os, "system", names.append)
    # Pillow has looked for Ghostscript before; now it would find it.
    eps = pytest.importorskip("PIL.EpsImagePlugin")
    monkeypatch.setattr(eps, "gs_binary", None)
    return lambda: names + [p.name for p in folder.glob("started")]


@pytest.mark.filterwarnings("ignore:Files or folders in:UserWarning")
def test_no_image_starts_a_program(tmp_path, started):
    containers = [iptc, icns, ico, in_tiff]
    found = [EPS, DOS_EPS, encoded(format="PDF"), b"%!PS"]
    for _ in range(2):  # inside each other
        found += [contain(payload) for contain in containers for payload in found]
    write(tmp_path, {f"{k}.png": content for k, content in enumerate(found)})
    write(tmp_path, {"good.png": encoded()})
    *_, files = load_image_folder(tmp_path, 4, on_error="warn")
    assert files.tolist() == ["good.png"]
    assert started() == []


def test_postscript_is_listed_and_no_program_started(tmp_path, started):
    for content in (EPS, DOS_EPS, iptc(EPS), iptc(iptc(EPS))):
        write(tmp_path, {"x.png": content})
        assert left_out(tmp_path, "x.png") == [NO_IMAGE]
    assert started() == []


@pytest.mark.parametrize("format", [*_opening.FORMATS, "MPO"])
def test_formats_that_are_read(tmp_path, format):
    try:
        content = encoded(format=format)
    except (KeyError, OSError):
        pytest.skip("this Pillow was built without it")
    assert load_one(tmp_path, content).shape == (12, 16, 3)


@pytest.mark.filterwarnings("ignore:IM image format:DeprecationWarning")
def test_other_formats_are_listed(tmp_path):
    others = ["DDS", "ICO", "IM", "PCX", "PDF", "SGI"]
    write(tmp_path, {name: encoded(format=name) for name in others})
    reasons = left_out(tmp_path, *others)
    assert set(reasons) == {NO_IMAGE}


def test_a_file_that_cannot_be_closed_leaves_large_headers_to_others(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(_opening, "SMALL_HEADER", 0)
    write(tmp_path, {"x.png": encoded()})
    file = _opening.File(tmp_path / "x.png")
    file.read(16)
    os.close(file.fileno())  # as if its drive were lost
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.close()
    assert not _opening.LARGE_HEADER.locked()


@forks
def test_the_child_of_a_fork_reads_large_headers_while_the_parent_does(
    tmp_path, monkeypatch
):
    def read(path):
        with _opening.File(path) as file:
            file.read(16)

    monkeypatch.setattr(_opening, "SMALL_HEADER", 0)
    write(tmp_path, {"x.png": encoded()})
    with _opening.File(tmp_path / "x.png") as file:
        file.read(16)
        process = child(partial(read, tmp_path / "x.png"))
        process.join(30)
    assert process.exitcode == 0
