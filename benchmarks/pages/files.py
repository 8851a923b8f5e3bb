"""The JSON files of results, and what they say of themselves."""

import json
import re
import shlex
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "results"
WHERE_FILES_GO = ("--json", "--out", "--checkpoint", "--folder")  # and a value


def read(name):
    """A file of results by its name, in either folder."""
    for folder in (RESULTS, RESULTS / "paper"):
        path = folder / f"{name}.json"
        if path.is_file():
            return json.loads(path.read_text(encoding="utf-8"))
    raise FileNotFoundError(f"{RESULTS} must have {name}.json")


def labelled(names):
    """Files by their labels."""
    return {label: read(name) for name, label in names.items()}


def of_seeds(name):
    """The file of a fit, and those of the same fit with other seeds."""
    others = sorted(RESULTS.glob(f"{name}_seed*.json"))
    return [read(name), *(read(path.stem) for path in others)]


def commit(kept, method=None):
    return kept.get("commits", {}).get(method, kept["commit"])


def command(kept):
    """As it was run, without the options that say where files go."""
    words = iter(shlex.split(kept["command"]))
    shown = []
    for word in words:
        if word in WHERE_FILES_GO:
            next(words, None)
        elif word not in ("--verbose", "--resume"):
            shown.append(word)
    return f"`{shlex.join(shown)}`"


def notes(files):
    """What the files say of themselves, each sentence once, and of which if not all."""
    said = {}
    for label, kept in files.items():
        for sentence in filter(None, re.split(r"(?<=\.) ", kept.get("note", ""))):
            said.setdefault(sentence, []).append(label)
    grouped = {}
    for sentence, labels in said.items():
        where = "" if len(labels) == len(files) else f"{', '.join(labels)}: "
        grouped.setdefault(where, []).append(sentence)
    return " ".join(where + " ".join(texts) for where, texts in grouped.items())
