"""Tables as files: rows of images, and `sk-mice score` of two of them."""

import functools
import json
import os

import numpy as np
import pytest
from report_page import reading

from sk_mice._cli import tables
from sk_mice.inspection._reading import OF_NEIGHBORS, OF_VIEWS

from .calls import HARD, last_line, run, write_table


def test_rows_of_the_table():
    two = reading([0, 1], [0.6124, 1.0], 3, [2, -1], [0.2, 0.0])
    rows = [[*row.values()] for row in tables.rows_of(["a", "b"], two)]
    assert rows == [["a", 0, 0.612, 2, 0.412], ["b", 1, 1.0, None, 1.0]]


def test_numbers_of_the_table_are_written_without_digits_of_rounding():
    share = np.array([0.4, 0.1], dtype=np.float32)
    rows = tables.rows_of(["a", "b"], reading([0, 1], share, 3, [2, -1], share))
    assert [[str(row[k]) for k in ("agreement", "margin")] for row in rows] == [
        ["0.4", "0.0"],
        ["0.1", "0.0"],
    ]


@pytest.mark.parametrize(("meaning", "sure"), [(OF_NEIGHBORS, None), (OF_VIEWS, 1.0)])
def test_a_single_image_has_no_neighbours(meaning, sure):
    alone = reading([2], 1.0, 3, meaning=meaning)
    (row,) = tables.rows_of(["a"], alone)
    assert [*row.values()] == ["a", 2, sure, None, sure]


# -------------------------------------------------------------------------------- score


def clusters_and_truth(folder, rows, pairs, header=("file", "cluster")):
    """A table of clusters and one of classes, as files."""
    clusters = write_table(folder / "clusters.csv", header, rows)
    return clusters, write_table(folder / "truth.csv", ["file", "class"], pairs)


def test_score_joins_by_file_and_names_what_is_missing(tmp_path, capsys):
    rows = [[name, k // 2, 1.0, 1, 1.0] for k, name in enumerate("abcdef")]
    rows += [[HARD[0], 0, 1.0, 1, 1.0]]
    pairs = [[HARD[0], "cat"], ["f", "dog"], ["e", "dog"], ["d", "cat"], ["c", "cat"]]
    pairs += [["b", "cat"], [HARD[2], "cat"]]
    header = ["file", "cluster", "agreement", "second_cluster", "margin"]
    both = clusters_and_truth(tmp_path, rows, pairs, header)
    assert run("score", *both, "--json") == 0
    stdout, stderr = capsys.readouterr()
    facts = json.loads(stdout)
    assert facts["files"] == 6
    assert facts["ACC"] == pytest.approx(4 / 6)
    first, *_, last = facts["matching"]
    assert first["files"] == 2
    assert last == {
        "cluster": "2",
        "class": "dog",
        "files": 2,
        "of_the_class": 2,
        "matched": True,
        "most_frequent_class": "dog",
        "share": 1.0,
    }
    assert sum(row["class"] is None for row in facts["matching"]) == 1
    assert "'a'" in stderr
    assert repr(HARD[2]) in stderr
    assert run("score", *both) == 0
    assert "ACC  0.667" in capsys.readouterr().out


def score_of(tmp_path, capsys, *clusters):
    """The lines of `score` after the scores, and its rows with `--json`.

    Each cluster is a text: a file for each letter, which is its class.
    """
    pairs = [(str(k), letter) for k, word in enumerate(clusters) for letter in word]
    rows = [[f"{i}.png", *pair] for i, pair in enumerate(pairs)]
    path = write_table(tmp_path / "both.csv", ["file", "cluster", "class"], rows)
    assert run("score", path, path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert run("score", path, path, "--json") == 0
    return lines[5:], json.loads(capsys.readouterr().out)["matching"]


def test_score_explains_clusters_without_a_match(tmp_path, capsys):
    shown, rows = score_of(tmp_path, capsys, "aaaab", "aaa", "bb")
    assert shown == [
        "cluster    files   share   most frequent class   matched",
        "      0        5     80%   a                     yes",
        "      1        3    100%   a                     no",
        "      2        2    100%   b                     yes",
        "",
        "ACC matches each class with one cluster, and counts all other files as wrong.",
        "Merge clusters of one class in the report and score the table that it saves,",
        "or see NMI and ARI, which need no matching.",
    ]
    assert max(map(len, shown)) <= 80
    assert [row["matched"] for row in rows] == [True, False, True]
    assert [row["class"] for row in rows] == ["a", None, "b"]
    assert [row["most_frequent_class"] for row in rows] == ["a", "a", "b"]
    assert [row["share"] for row in rows] == [0.8, 1, 1]


def test_score_names_a_match_with_another_class_than_the_most_frequent(
    tmp_path, capsys
):
    shown, rows = score_of(tmp_path, capsys, "aaabb", "aaaa")
    assert shown[1:] == [
        "      0        5     60%   a                     with b",
        "      1        4    100%   a                     yes",
    ]
    assert [row["of_the_class"] for row in rows] == [2, 4]
    # Of classes that are as frequent, the one that is matched.
    shown, _ = score_of(tmp_path, capsys, "ab", "aa")
    assert shown[1:] == [
        "      0        2     50%   b                     yes",
        "      1        2    100%   a                     yes",
    ]


def test_half_a_percent_is_rounded_up_as_on_the_page(tmp_path, capsys):
    (_, line), _ = score_of(tmp_path, capsys, "aaaaabbb")
    assert "63%" in line


def test_a_match_that_no_file_has_is_none(tmp_path, capsys):
    shown, rows = score_of(tmp_path, capsys, "aaa", "aa", "abc")
    assert [line.split()[-1] for line in shown[1:4]] == ["yes", "no", "yes"]
    assert shown[5].startswith("ACC matches each class with one cluster")
    assert (rows[1]["matched"], rows[1]["class"]) == (False, None)


def test_score_leaves_out_rows_without_a_class(tmp_path, capsys):
    rows = [[name, k // 2] for k, name in enumerate("abcdef")]
    classes = ["cat", "cat", "dog", "", "dog", " ", "cat"]
    pairs = [*zip("abcdefg", classes, strict=True)]
    both = clusters_and_truth(tmp_path, [*rows, ["g", ""]], pairs)
    assert run("score", *both, "--json") == 0
    stdout, stderr = capsys.readouterr()
    facts = json.loads(stdout)
    assert facts["files"] == 4
    assert facts["ACC"] == 0.75
    assert stderr.splitlines() == [
        f"sk-mice: warning: 1 file of {str(both[0])!r} has no cluster and does not "
        "count",
        f"sk-mice: warning: 2 files of {str(both[1])!r} have no class and do not count",
    ]
    both = clusters_and_truth(tmp_path, rows, [[name, ""] for name in "abcdef"])
    assert run("score", *both) == 1
    assert "no file in common that has a cluster and a class" in last_line(capsys)


def test_score_takes_names_as_macs_windows_or_spreadsheets_write_them(tmp_path, capsys):
    rows = [["e\u0301", 9], ["\u00fc", 9], ["u\u0308", 10], ["a/b/n", 10]]
    pairs = [["\u00e9", "a"], ["\u00fc", "a"], ["u\u0308", "b"], ["./a\\b\\n", "b"]]
    both = clusters_and_truth(tmp_path, rows, pairs)
    assert run("score", *both, "--json") == 0
    stdout, stderr = capsys.readouterr()
    facts = json.loads(stdout)
    assert (facts["files"], facts["ACC"], stderr) == (4, 1, "")
    assert [row["cluster"] for row in facts["matching"]] == ["9", "10"]  # as numbers


def test_two_spellings_in_a_table_or_a_folder_are_two_files():
    both = {"\u00e9.png": "0", "e\u0301.png": "1"}
    assert tables.as_named(both, ["\u00e9.png"]) == both
    one = {"\u00e9.png": "0"}
    assert tables.as_named(one, [*both]) == one


@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_score_takes_what_spreadsheets_write(tmp_path, start, end):
    rows = [f"{start}file;class", "a;x", '"b;c";y', ";", ""]
    path = tmp_path / "truth.csv"
    path.write_text(end.join(rows), encoding="utf-8", newline="")
    assert tables.read_column(path, ["class"]) == {"a": "x", "b;c": "y"}


def test_spaces_around_a_class_make_no_other_class(tmp_path, capsys):
    rows = [[name, k // 2] for k, name in enumerate("abcd")]
    pairs = [["a", "ship"], ["b", "ship "], ["c", " a horse"], ["d", "a horse"]]
    assert run("score", *clusters_and_truth(tmp_path, rows, pairs), "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["ACC"] == 1
    assert [row["class"] for row in facts["matching"]] == ["ship", "a horse"]


def test_clusters_of_one_name_are_one_as_for_sort(tmp_path, capsys):
    header = ["file", "cluster", "name", "agreement", "original_cluster"]
    rows = [["a", 0, "empty", 1, 0], ["b", 1, "empty", 1, 1], ["c", 2, "fox", 1, 2]]
    pairs = [["a", "none"], ["b", "none"], ["c", "fox"]]
    both = clusters_and_truth(tmp_path, rows, pairs, header)
    assert run("score", *both, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["ACC"] == 1
    assert [row["cluster"] for row in facts["matching"]] == ["fox", "empty"]


def test_a_class_that_is_spelt_in_two_ways_is_named(tmp_path, capsys):
    rows = [["a", 0], ["b", 0], ["c", 1]]
    pairs = [["a", "horse"], ["b", "Horse"], ["c", "ship"]]
    both = clusters_and_truth(tmp_path, rows, pairs)
    assert run("score", *both) == 0
    err = capsys.readouterr().err
    assert f"{str(both[1])!r}: 'Horse' and 'horse' count as two classes" in err
    assert err.count("count as two") == 1


def test_columns_beside_those_that_are_read_may_have_commas_in_their_names(tmp_path):
    path = tmp_path / "truth.csv"
    path.write_text("Area (px, mean);file;class\n7,5;a;x\n", encoding="utf-8")
    assert tables.read_column(path, ["class"]) == {"a": "x"}


def test_score_says_what_to_do_about_names_that_are_not_utf8(tmp_path, capsys):
    rows = [["Käfer", 0], ["a", 1]]
    clusters = write_table(tmp_path / "clusters.csv", ["file", "cluster"], rows)
    truth = tmp_path / "truth.csv"
    truth.write_bytes("file,class\nKäfer,x\na,y\n".encode("cp1252"))
    assert run("score", clusters, truth) == 0
    assert "save it there as CSV UTF-8" in capsys.readouterr().err


def test_score_takes_what_powershell_writes(tmp_path):
    path = tmp_path / "truth.csv"
    path.write_bytes("file,class\r\na,Käfer\r\n".encode("utf-16"))
    assert tables.read_column(path, ["class"]) == {"a": "Käfer"}


def test_score_takes_what_is_not_utf_8_on_windows_too(tmp_path, monkeypatch):
    path = tmp_path / "truth.csv"
    path.write_bytes("file;class\na;Käfer\n".encode("cp1252"))
    strict = functools.partial(bytes.decode, errors="surrogatepass")
    monkeypatch.setattr(os, "fsdecode", strict)
    assert tables.read_column(path, ["class"]) == {"a": "K\udce4fer"}


def test_tables_are_utf_8_whatever_the_encoding_of_the_system(tmp_path, monkeypatch):
    path = tmp_path / "truth.csv"
    path.write_text("file,name\né,Käfer\n", encoding="utf-8-sig")
    for name, change in (("fsdecode", bytes.decode), ("fsencode", str.encode)):
        of_c = functools.partial(change, encoding="ascii", errors="surrogateescape")
        monkeypatch.setattr(os, name, of_c)
    found = tables.read_column(path, ["name"])
    assert [os.fsencode(name) for name in found] == ["é".encode()]
    tables.check_names(path, found.values())


def test_score_shows_what_is_not_printed_as_escapes(tmp_path, capsys):
    path = tmp_path / "clusters.csv"
    write_table(path, ["file", "cluster"], [["a", "x\n\x1b[31m"], ["b", "é"]])
    assert run("score", path, path) == 0
    out = capsys.readouterr().out
    assert r"x\n\x1b[31m        1" in out
    assert "é" in out
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"name,class\na,b\n", "`file`"),
        (b"", "`file`"),
        (b"file,size,kind\na,1,b\n", "`file` and `class`"),
        (b'file\n"a",b\n', "`file` and `class`"),
        (b"file,class\na,b,c\n", "row 2 has 3"),
        (b"file,class\na,b\na,c\n", "'a' twice"),
        (b"file,class\nz,b\n", "no file in common"),
        (b'file,class\n"a,b\n', "truth.csv"),
    ],
)
def test_score_names_the_table_that_is_wrong(tmp_path, capsys, content, words):
    clusters = write_table(tmp_path / "clusters.csv", ["file", "cluster"], [["a", 1]])
    (tmp_path / "truth.csv").write_bytes(content)
    assert run("score", clusters, tmp_path / "truth.csv") == 1
    last = last_line(capsys)
    assert words in last
    assert "truth.csv" in last
