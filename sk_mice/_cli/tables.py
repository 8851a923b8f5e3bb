"""Tables of files and their clusters, as CSV that keeps every name.

The bytes of a name are those of the file system, even if they are not UTF-8.
"""

import codecs
import csv
import io
import os
import re
from collections.abc import Iterator
from posixpath import normpath
from unicodedata import normalize


def rows_of(files, reading) -> list[dict]:
    """A row for each file: its cluster, how sure that is, and the next cluster."""
    agreement = reading.confidence.astype(float).round(3)
    second_share = reading.second_share.astype(float).round(3)
    columns = {
        "file": files,
        "cluster": reading.labels.tolist(),
        "agreement": agreement.tolist(),
        "second_cluster": [None if k < 0 else k for k in reading.second.tolist()],
        "margin": (agreement - second_share).round(3).tolist(),
    }
    if len(files) == 1 and reading.is_of_neighbors:  # it has no neighbours to count
        columns |= {key: [None] for key in ("agreement", "second_cluster", "margin")}
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def as_csv(rows: list[dict]) -> bytes:
    """A table with a header. Strings are quoted, so any character may be in a name."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(
        text, [*rows[0]], quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n"
    )
    writer.writeheader()
    writer.writerows(rows)
    return os.fsencode(text.getvalue())


def _decoded(content: bytes) -> str:
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16", errors="replace")  # as > writes in PowerShell
    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        return os.fsdecode(content)
    except UnicodeDecodeError:  # on Windows, where names are not bytes
        return content.decode(errors="surrogateescape")


def read_column(path, names) -> dict[str, str]:
    """The column of a table that has one of these names, by file."""
    found, _ = read_columns(path, names)
    return {file: value for file, (value,) in found.items()}


def read_columns(path, *wanted) -> tuple[dict[str, list[str]], list[str]]:
    """Columns of a table, by file, each with one of several names, and their names.

    A table of two columns may call its second one as it likes. Semicolons may separate
    columns, as they do where a comma is the decimal point.
    """
    with open(path, "rb") as file:
        text = _decoded(file.read())
    lines = io.StringIO(text, newline="")
    try:
        rows = list(csv.reader(lines, delimiter=_delimiter(text), strict=True))
    except csv.Error as error:
        raise ValueError(f"{str(path)!r} must be a CSV file: {error}.") from error
    header = rows[0] if rows else []
    columns = [_column(path, header, names) for names in wanted]
    at_file, *at_values = map(header.index, ["file", *columns])
    found: dict[str, list[str]] = {}
    for number, row in enumerate(rows[1:], start=2):
        if not any(row):  # a spreadsheet leaves commas where a row was emptied
            continue
        if len(row) != len(header):
            raise ValueError(
                f"{str(path)!r} must have {len(header)} columns in each row; row "
                f"{number} has {len(row)}."
            )
        if row[at_file] in found:
            raise ValueError(f"{str(path)!r} has {row[at_file]!r} twice.")
        found[row[at_file]] = [row[at] for at in at_values]
    return found, columns


def _delimiter(text: str) -> str:
    """The delimiter with which the first line has a column `file`."""
    first = re.split("[\r\n]", text, maxsplit=1)[0]
    header = next(csv.reader([first], delimiter=";"), [])
    return ";" if "file" in header and len(header) > 1 else ","


def as_named(table: dict, names) -> dict:
    """The table, with its files named as in `names` where only the spelling differs.

    A Mac may write é as e and an accent, which a spreadsheet does not, paths of Windows
    have backslashes, and those of `find` begin with ``./``.
    """
    written = {_plain(name): name for name in names}
    known, named = {*names}, {}
    for name, value in table.items():
        there = written.get(_plain(name), name)
        named[name if name in known or there in table else there] = value
    return named


def _plain(name: str) -> str:
    return normpath(normalize("NFC", name).replace("\\", "/"))


def conflicts(pairs) -> Iterator[tuple[str, str, str]]:
    """Keys that come with different values: each with its first value and another."""
    first: dict[str, str] = {}
    for key, value in pairs:
        if first.setdefault(key, value) != value:
            yield key, first[key], value


def check_names(path, names) -> None:
    """Refuse names of clusters that are not UTF-8."""
    for name in names:
        if not is_utf8(name):
            raise ValueError(
                f"{str(path)!r} must be UTF-8, which spreadsheets call CSV UTF-8; got "
                f"the name {name!r}."
            )


def is_utf8(text: str) -> bool:
    """Whether a text of a table was UTF-8, whatever the encoding of the system."""
    try:
        os.fsencode(text).decode()
    except UnicodeError:
        return False
    return True


def if_garbled(names, others) -> str:
    """A sentence on what to do if letters may make the difference.

    `names` of a table have no file or row, and `others` are not in the table: a program
    that takes UTF-8 for another encoding changes all letters but those of ASCII.
    """
    if all(map(str.isascii, names)) or all(map(str.isascii, others)):
        return ""
    return (
        ". If the table comes from a spreadsheet, import it there as UTF-8, and save "
        "it there as CSV UTF-8"
    )


def _column(path, header: list[str], names) -> str:
    """The first of some names that a header has."""
    known = [name for name in names if name in header]
    if len(header) == 2 and not known:
        known = [name for name in header if name != "file"]
    if "file" not in header or not known:
        raise ValueError(
            f"{str(path)!r} must begin with a line that names its columns, `file` and "
            f"{' or '.join(f'`{name}`' for name in names)}; got {header!r}."
        )
    return known[0]
