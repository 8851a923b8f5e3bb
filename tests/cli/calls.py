"""The command line, called; what is left in the folder of a result; Ctrl-C."""

import csv
import json
import signal
import sys
from unittest.mock import patch

import numpy as np
from PIL import Image
from safetensors.torch import load_file
from shared import callback, raising

from sk_mice._cli import fitting, tables
from sk_mice.cli import main

draw_page = fitting.draw_page
NAMES = [f"{k:02}.png" for k in range(17)]
# A line break, quotes and a comma, and a byte that is no UTF-8, as far as names may.
HARD = ["two\nlines.png", 'a "quoted", b.png', "caf\udce9.png"]
if sys.platform == "darwin":
    HARD[2] = "café.png"
if sys.platform == "win32":
    HARD = ["two  lines.png", "a 'quoted', b.png", "café.png"]
FILES = {"clusters.csv", "model.safetensors", "report.html", "run.json"}
FIT = ("--clusters", "2", "--epochs", "2", "--image-size", "8")
NETWORK = ("--features", "efficientnet-lite0", "--image-size", 32)
FIT_FEATURES = (*NETWORK, "--clusters", "2")
CHOOSE = (*NETWORK, "--to", 2, "--repeats", 2)


def run(*arguments):
    return main([*map(str, arguments)])


def refused(capsys, code, *arguments):
    """The one line on stderr with which a command ends."""
    assert run(*arguments) == code
    out, err = capsys.readouterr()
    assert not out
    (line,) = err.splitlines()
    assert line.startswith("sk-mice: error: ")
    return line


def last_line(capsys):
    """The last line on stderr."""
    return capsys.readouterr().err.splitlines()[-1]


def run_of(folder):
    """What a result says of its fit."""
    return json.loads((folder / "run.json").read_text())


def table(path):
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    return list(csv.DictReader(text.splitlines(keepends=True)))


def assert_same_result(one, two):
    assert (one / "clusters.csv").read_bytes() == (two / "clusters.csv").read_bytes()
    one, two = (load_file(folder / "model.safetensors") for folder in (one, two))
    assert one.keys() == two.keys()
    del one["document"], two["document"]  # the history has the seconds of epochs
    assert [name for name in one if not one[name].equal(two[name])] == []


def assert_same_files(one, two):
    for name in FILES:
        assert (one / name).read_bytes() == (two / name).read_bytes(), name


def write_table(path, header, rows):
    rows = [dict(zip(header, row, strict=True)) for row in rows]
    path.write_bytes(tables.as_csv(rows))
    return path


def write_image(path, rng):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(path, "PNG")


press_ctrl_c = raising(KeyboardInterrupt)


def cut_off(*command, code=1, by=lambda *args: 1 / 0):
    """Run a fit that ends once it has a model, before images are judged."""
    with patch.object(fitting, "judged", by):
        assert run(*command) == code


def interrupted(*args, estimator=fitting.estimator):
    """The estimator of a fit, which Ctrl-C ends after its first epoch."""
    press = callback(on_epoch_end=lambda net: signal.raise_signal(signal.SIGINT))
    return estimator(*args).set_params(callbacks=[press])
