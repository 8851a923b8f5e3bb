"""The text for reports of problems."""

from importlib import metadata

import torch
from shared import raising

import sk_mice
from sk_mice import _show_versions


def test_versions_and_threads(capsys):
    sk_mice.show_versions()
    printed = capsys.readouterr().out
    sections = [line for line in printed.splitlines() if line.endswith(":")]
    assert sections == ["System:", "Libraries:", "Torch:"]
    facts = dict(
        line.split(maxsplit=1) for line in printed.splitlines() if line[:1] == " "
    )
    assert facts["torch"] == metadata.version("torch")
    assert facts["threads"] == str(torch.get_num_threads())


def test_libraries_are_those_of_the_package_and_of_its_extras(monkeypatch):
    needed = [
        "torch>=2.8",
        "pytest-xdist; extra == 'test'",
        "faiss-cpu>=1.13.2; extra == 'neighbors'",
        "sk-mice[app]; extra == 'test'",
    ]
    monkeypatch.setattr(metadata, "requires", lambda name: needed)
    assert _show_versions._libraries() == ["sk-mice", "torch", "faiss-cpu"]


def test_what_is_not_installed_is_none():
    assert _show_versions._version("no-such-library") is None


def test_a_checkout_that_is_not_installed(monkeypatch):
    not_found = raising(metadata.PackageNotFoundError, "sk-mice")
    monkeypatch.setattr(metadata, "requires", not_found)
    assert "torch" in _show_versions._libraries()
