"""`--copy-to` and `--link-to`: images in a folder for each cluster."""

import errno
import json
import ntpath
import os
import shutil
from contextlib import suppress
from pathlib import PureWindowsPath
from unittest.mock import patch

import pytest
from systems import needs_links, needs_locks, needs_pipes

from sk_mice import MiCEClustering
from sk_mice._cli import placing, results, sorting

from .calls import (
    FIT,
    HARD,
    NAMES,
    assert_same_result,
    last_line,
    press_ctrl_c,
    refused,
    run,
    run_of,
    table,
    write_table,
)


def write_names(path, rows):
    """A table as the report writes it."""
    return write_table(path, ["file", "cluster", "name"], rows)


@needs_links
def test_a_table_of_the_report_gives_folders_their_names(photos, tmp_path, capsys):
    named = [[NAMES[1], 0, "7"], [HARD[0], 1, "10"], ["gone.png", 2, "é è"]]
    clusters = write_names(tmp_path / "clusters.csv", named)
    copies, links = tmp_path / "copies", tmp_path / "links"
    sort = ["sort", clusters, photos, "--copy-to", copies, "--link-to", links, "-q"]
    assert run(*sort) == 0
    out, err = capsys.readouterr()
    assert not out
    assert err.count("\n") == 1
    assert "1 image cannot be sorted" in err
    assert "'gone.png'" in err
    for folder in (copies, links):
        assert sorted(os.listdir(folder)) == ["10", "7"]
        inner = folder / "7" / NAMES[1]
        assert inner.read_bytes() == (photos / NAMES[1]).read_bytes()
        assert inner.is_symlink() == (folder == links)
    assert run(*sort) == 0  # goes on
    capsys.readouterr()
    write_names(clusters, [[NAMES[1], 1, "Cluster 1"]])
    assert "must be new or empty" in refused(capsys, 2, *sort)
    write_names(clusters, named[:2])  # only numbers, which are names all the same
    assert run("sort", clusters, photos, "--copy-to", tmp_path / "again") == 0
    assert sorted(os.listdir(tmp_path / "again")) == ["10", "7"]


@pytest.mark.parametrize(
    "option", ["--copy-to", pytest.param("--link-to", marks=needs_links)]
)
def test_an_update_moves_images_to_the_folders_of_a_corrected_table(
    photos, fitted, tmp_path, capsys, option
):
    into = tmp_path / "sorted"
    assert run("sort", fitted / "clusters.csv", photos, option, into, "-q") == 0
    rows = table(fitted / "clusters.csv")
    named = [[row["file"], row["cluster"], f"n{row['cluster']}"] for row in rows]
    named[0][1:] = 2, "new"
    corrected = write_names(tmp_path / "clusters.csv", named)
    sort = ["sort", corrected, photos, option, into]
    assert "--update" in refused(capsys, 2, *sort, "-q")
    mine = into / "cluster-0" / "notes.txt"  # stays where it is
    mine.write_text("mine")
    assert run(*sort, "--update") == 0
    _, err = capsys.readouterr()
    assert "Moved to another folder: 20 images\n" in err
    assert err.endswith("\n20 images in 3 folders\n")
    for file, _, name in named:
        assert (into / name / file).read_bytes() == (photos / file).read_bytes()
        assert (into / name / file).is_symlink() == (option == "--link-to")
    files = [path for path in into.rglob("*") if not path.is_dir()]
    assert len(files) == 21
    assert mine.read_text() == "mine"
    assert sorted(os.listdir(into)) == ["cluster-0", "n0", "n1", "new"]  # none is empty
    assert run(*sort, "--update") == 0  # there is nothing left to do
    assert "Moved" not in capsys.readouterr().err


def test_an_update_adds_the_images_of_another_folder(photos, tmp_path, capsys):
    into, more = tmp_path / "sorted", tmp_path / "more"
    named = [[NAMES[1], 0, "a"], [NAMES[2], 0, "a"]]
    first = write_names(tmp_path / "first.csv", named)
    assert run("sort", first, photos, "--copy-to", into, "-q") == 0
    more.mkdir()
    shutil.copy(photos / NAMES[1], more / "added.png")
    shutil.copy(photos / NAMES[2], more / NAMES[1])  # another image of the same name
    new = write_names(tmp_path / "new.csv", [["added.png", 0, "a"], [NAMES[1], 1, "b"]])
    sort = ["sort", new, more, "--copy-to", into]
    assert "--update" in refused(capsys, 2, *sort, "-q")
    assert run(*sort, "--update") == 0
    assert "Moved" not in capsys.readouterr().err
    kept = {os.path.join("a", name): photos / name for name in NAMES[1:3]}
    added = {os.path.join("a", "added.png"): more / "added.png"}
    added[os.path.join("b", NAMES[1])] = more / NAMES[1]
    sources = kept | added
    made = [path for path in into.rglob("*") if not path.is_dir()]
    assert sorted(os.path.relpath(path, into) for path in made) == sorted(sources)
    for inner, source in sources.items():
        assert (into / inner).read_bytes() == source.read_bytes()


@pytest.mark.parametrize(
    ("clusters", "added", "folders"),
    [
        ([3, 10], [3, 4], ["cluster-03", "cluster-04", "cluster-10"]),
        ([3, 9], [3, 10], ["cluster-10", "cluster-3", "cluster-9"]),
    ],
)
def test_an_update_adds_to_the_folders_of_the_same_numbers(
    photos, tmp_path, clusters, added, folders
):
    path, into = tmp_path / "clusters.csv", tmp_path / "sorted"
    for files, numbers in ((NAMES[1:3], clusters), (NAMES[3:5], added)):
        write_table(path, ["file", "cluster"], zip(files, numbers, strict=True))
        assert run("sort", path, photos, "--copy-to", into, "--update") == 0
    assert sorted(os.listdir(into)) == folders


def test_an_update_of_what_was_killed_goes_on(photos, tmp_path):
    into = tmp_path / "sorted"
    clusters = write_names(tmp_path / "clusters.csv", [[NAMES[1], 0, "a"]])
    assert run("sort", clusters, photos, "--copy-to", into) == 0
    os.truncate(into / "a" / NAMES[1], 9)
    write_names(clusters, [[NAMES[1], 1, "b"]])
    assert run("sort", clusters, photos, "--copy-to", into, "--update") == 0
    assert os.listdir(into) == ["b"]
    assert (into / "b" / NAMES[1]).read_bytes() == (photos / NAMES[1]).read_bytes()


def test_a_table_of_a_fit_is_sorted_by_numbers(photos, fitted, tmp_path, capsys):
    into = tmp_path / "sorted"
    assert run("sort", fitted / "clusters.csv", photos, "--copy-to", into) == 0
    assert_sorted(into, fitted, photos)
    assert capsys.readouterr().err.endswith("\n20 images in 2 folders\n")
    named = [[NAMES[1], 0, "here"], ["gone.png", 1, "gone"]]
    clusters = write_names(tmp_path / "clusters.csv", named)
    assert run("sort", clusters, photos, "--copy-to", tmp_path / "again") == 0
    assert capsys.readouterr().err.endswith("\n1 image in 1 folder\n")


@pytest.mark.parametrize(
    "name",
    [
        *("", "a/b", "..", ".a", "a.", "a ", "a:b", "tab\t"),
        *("Aux", "com1.a", "#Recycle", 85 * "鳥" + "a"),
    ],
)
def test_a_cluster_needs_the_name_of_a_folder(photos, tmp_path, capsys, name):
    clusters = write_names(tmp_path / "clusters.csv", [[NAMES[1], 0, name]])
    into = tmp_path / "sorted"
    line = refused(capsys, 1, "sort", clusters, photos, "--copy-to", into)
    assert "whose name can name a folder" in line
    assert repr(name) in line
    assert not into.exists()


def test_names_that_differ_by_capital_letters_are_refused(photos, tmp_path, capsys):
    rows = [[NAMES[1], 0, "cats"], [NAMES[2], 1, "Cats"], [NAMES[3], 2, "console"]]
    clusters = write_names(tmp_path / "clusters.csv", rows)
    into = tmp_path / "sorted"
    line = refused(capsys, 1, "sort", clusters, photos, "--copy-to", into)
    assert "in one way" in line
    assert line.endswith("got 'cats' and 'Cats'.")
    assert not into.exists()


def test_a_number_that_was_changed_without_its_name_is_named(photos, tmp_path, capsys):
    rows = [[NAMES[1], 0, "cats"], [NAMES[2], 0, "dogs"], [NAMES[3], 1, "dogs"]]
    clusters = write_names(tmp_path / "clusters.csv", rows)
    into = tmp_path / "sorted"
    assert run("sort", clusters, photos, "--copy-to", into, "-q") == 0
    warning = capsys.readouterr().err
    assert (
        f"{str(clusters)!r} has two names for cluster 0, 'cats' and 'dogs'" in warning
    )
    assert "by the names" in warning
    assert (into / "dogs" / NAMES[2]).exists()


@pytest.mark.parametrize("file", ["../a.png", "/a.png", "", ".", "a\0.png"])
def test_a_table_to_sort_has_files_below_the_folder(photos, tmp_path, capsys, file):
    clusters = write_names(tmp_path / "clusters.csv", [[file, 0, "a"]])
    line = refused(capsys, 1, "sort", clusters, photos, "--copy-to", tmp_path / "to")
    assert repr(file) in line


@needs_pipes
@needs_links
def test_what_has_no_end_is_not_copied(tmp_path, capsys):
    own = tmp_path / "photos"
    own.mkdir()
    os.mkfifo(own / "pipe.png")
    (own / "zeros.png").symlink_to("/dev/zero")
    for file in ("pipe.png", "zeros.png"):
        clusters = write_names(tmp_path / "clusters.csv", [[file, 0, "a"]])
        into = tmp_path / "sorted"
        line = refused(capsys, 1, "sort", clusters, own, "--copy-to", into, "-q")
        assert line.endswith(f"{file}': Not a regular file")
        assert not into.exists()


def test_a_sort_says_what_it_needs(photos, fitted, tmp_path, capsys):
    of_fit = fitted / "clusters.csv"
    assert "one of them is required" in refused(capsys, 2, "sort", of_fit, photos)
    among = ("--copy-to", photos / "sorted")
    assert "lies in the folder" in refused(capsys, 2, "sort", of_fit, photos, *among)
    around = ("--copy-to", photos.parent, "--update")
    line = refused(capsys, 2, "sort", of_fit, photos, *around)
    assert "must not hold the folder of images" in line
    (tmp_path / "other").mkdir()
    sort = ["sort", of_fit, tmp_path / "other", "-q", "--copy-to", tmp_path / "sorted"]
    line = refused(capsys, 1, *sort)
    assert "has none of the files" in line
    assert f", such as {table(of_fit)[0]['file']!r}." in line
    sort[1] = tmp_path / "none.csv"
    sort[1].write_text("file,cluster,name\n")
    assert "must have a row for each image to sort" in refused(capsys, 1, *sort)


def test_files_may_be_written_as_a_mac_windows_or_find_does(photos, tmp_path, capsys):
    own, into = tmp_path / "photos", tmp_path / "sorted"
    (own / "below").mkdir(parents=True)
    for name in ("below/é.png", "a.png"):
        shutil.copy(photos / NAMES[1], own / name)
    rows = [["below\\e\u0301.png", 0, "here"], ["./a.png", 1, "there"]]
    clusters = write_names(tmp_path / "clusters.csv", rows)
    assert run("sort", clusters, own, "--copy-to", into) == 0
    said = f"Copying into {str(into)!r}\n2 images in 2 folders\n"
    assert capsys.readouterr().err == said
    assert (into / "here" / "below" / "é.png").exists()


@pytest.mark.parametrize(
    ("rows", "code", "words"),
    [
        (f"Fuß.png,a\n{NAMES[1]},b\n", 0, "save it there as CSV UTF-8"),
        ("Fuß.png,a\n", 1, "save it there as CSV UTF-8"),
        (f"{NAMES[1]},Füße\n", 1, "must be UTF-8, which spreadsheets call"),
    ],
    ids=["some", "all", "clusters"],
)
def test_a_table_that_is_not_utf8_says_what_to_do(
    photos, tmp_path, capsys, rows, code, words
):
    table = tmp_path / "clusters.csv"
    table.write_bytes(f"file,name\n{rows}".encode("cp1252"))
    assert run("sort", table, photos, "--copy-to", tmp_path / "sorted") == code
    assert words in capsys.readouterr().err


def test_a_sort_names_the_files_that_the_table_lacks(photos, fitted, tmp_path, capsys):
    table, more = fitted / "clusters.csv", tmp_path / "more"
    shutil.copytree(photos, more)
    (more / ".DS_Store").touch()
    (more / "added.png").touch()
    assert run("sort", table, more, "--copy-to", tmp_path / "sorted") == 0
    *_, line, last = capsys.readouterr().err.splitlines()
    assert line == (
        f"Not sorted: 3 files of {str(more)!r} are not in {str(table)!r}: "
        "'added.png', 'broken.png', 'notes.txt'"
    )
    assert last == "20 images in 2 folders"


@pytest.mark.parametrize("name", ["Fuß.png", "foot.png"])
def test_letters_that_a_spreadsheet_has_changed_are_told(
    photos, tmp_path, capsys, name
):
    own, table = tmp_path / "photos", tmp_path / "clusters.csv"
    own.mkdir()
    for file in (name, "a.png"):
        shutil.copy(photos / NAMES[1], own / file)
    changed = "Fuß.png".encode().decode("cp1252")  # as Excel opens it
    write_names(table, [[changed, 0, "here"], ["a.png", 1, "there"]])
    assert run("sort", table, own, "--copy-to", tmp_path / "sorted", "-q") == 0
    warned = capsys.readouterr().err
    assert "1 image cannot be sorted" in warned
    assert ("import it there as UTF-8" in warned) == (name == "Fuß.png")


@needs_locks
def test_a_sort_leaves_a_folder_alone_into_which_another_one_sorts(
    photos, fitted, tmp_path, capsys
):
    folder = tmp_path / "sorted"
    with results.held(folder, "--copy-to"):
        command = ("sort", fitted / "clusters.csv", photos, "--copy-to", folder, "-q")
        said = refused(capsys, 2, *command)
        assert said.endswith("is in use: another run is writing to it")
        assert not any(folder.iterdir())
    assert not folder.exists()


def test_ctrl_c_in_a_sort_says_how_to_go_on(photos, fitted, tmp_path, capsys):
    sort = ["sort", fitted / "clusters.csv", photos, "--copy-to", tmp_path / "sorted"]
    with patch.object(placing, "_copy", press_ctrl_c):
        assert run(*sort) == 130
    assert "The same command goes on." in capsys.readouterr().err
    assert run(*sort) == 0


@needs_links
def test_files_are_sorted_by_cluster_and_json_is_one_object(photos, tmp_path, capsys):
    out, copies, links = (tmp_path / name for name in ("result", "copies", "links"))
    sort = ("--copy-to", copies, "--link-to", links)
    os.utime(photos / NAMES[1], (1e9, 1e9))
    assert run("fit", photos, *FIT, "--out", out, *sort, "--json", "--quiet") == 0
    (copy,) = copies.rglob(NAMES[1])
    assert copy.stat().st_mtime == 1e9
    for row in table(out / "clusters.csv"):
        inner = os.path.join(f"cluster-{row['cluster']}", row["file"])
        content = (photos / row["file"]).read_bytes()
        assert (copies / inner).read_bytes() == content
        assert not (copies / inner).is_symlink()
        assert (links / inner).read_bytes() == content
        assert (links / inner).is_symlink()
    stdout, stderr = capsys.readouterr()
    facts = json.loads(stdout)
    assert facts["images"] == sum(row["images"] for row in facts["clusters"]) == 20
    assert facts["left_out"] == ["broken.png", "notes.txt"]
    assert facts["table"] == str(out / "clusters.csv")
    assert all(line.startswith(("sk-mice: ", "  ")) for line in stderr.splitlines())


def assert_sorted(into, out, photos):
    rows = table(out / "clusters.csv")
    for row in rows:
        inner = os.path.join(f"cluster-{row['cluster']}", row["file"])
        assert (into / inner).read_bytes() == (photos / row["file"]).read_bytes()
    assert len([path for path in into.rglob("*") if not path.is_dir()]) == len(rows)


def test_images_may_be_sorted_into_the_folder_of_the_result(photos, out):
    command = ["fit", photos, *FIT, "--out", out, "-q", "--copy-to", out / "sorted"]
    assert run(*command) == 0
    assert_sorted(out / "sorted", out, photos)


def test_folders_of_clusters_are_in_the_order_of_their_numbers(photos, tmp_path):
    places = sorting.places_of(NAMES[1:3], [2, 10], {})
    placing.sort_into(tmp_path, photos, places, "--copy-to")
    assert sorted(os.listdir(tmp_path)) == ["cluster-02", "cluster-10"]


@pytest.mark.parametrize(
    "option", ["--copy-to", pytest.param("--link-to", marks=needs_links)]
)
def test_a_sort_that_is_interrupted_goes_on(
    photos, fitted, tmp_path, capsys, option, out
):
    into = tmp_path / "sorted"
    command = ["fit", photos, *FIT, "--out", out, option, into]
    name = "_link" if option == "--link-to" else "_copy"
    place, placed = getattr(placing, name), []

    def interrupted(source, target):
        placed.append(target)
        if len(placed) > 5:
            raise KeyboardInterrupt
        place(source, target)

    with patch.object(placing, name, interrupted):
        assert run(*command) == 130
    stdout, stderr = capsys.readouterr()
    assert "20 images in 2 clusters" in stdout
    assert stderr.splitlines()[-1] == (
        "Stopped before all images were sorted. The same command with --resume goes on."
    )
    assert_same_result(out, fitted)
    assert len([*into.rglob("*.png")]) == 5
    if option == "--copy-to":  # killed within a file, which lost its last bytes
        os.truncate(placed[4], os.path.getsize(placed[4]) - 9)
    assert run(*command, "--resume") == 0
    assert_sorted(into, out, photos)
    assert run(*command, "--resume") == 0  # there is nothing left to do
    assert_sorted(into, out, photos)


@needs_links
def test_a_sort_that_goes_on_overwrites_no_other_file(
    photos, result, resume, tmp_path, capsys
):
    into = tmp_path / "sorted"
    row = table(result / "clusters.csv")[0]
    made = into / f"cluster-{row['cluster']}" / row["file"]
    command = (*resume, "--copy-to", into)
    made.parent.mkdir(parents=True)
    for content in (b"mine", (photos / row["file"]).read_bytes() + b"mine"):
        made.write_bytes(content)
        line = refused(capsys, 1, *command)
        assert repr(str(made)) in line
        assert "move it elsewhere" in line
        assert made.read_bytes() == content
    made.unlink()
    made.symlink_to(photos / row["file"])
    assert repr(str(made)) in refused(capsys, 1, *command)
    made.unlink()
    (into / "mine.txt").touch()
    line = refused(capsys, 2, *command)
    assert "--copy-to" in line
    assert "'mine.txt'" in line
    (into / "mine.txt").unlink()
    assert run(*command) == 0
    assert_sorted(into, result, photos)
    assert run(*resume, "--link-to", into) == 1


@needs_links
def test_a_link_to_the_image_by_another_path_is_as_good(
    photos, result, resume, tmp_path
):
    into = tmp_path / "sorted"
    command = (*resume, "--link-to", into)
    assert run(*command) == 0
    row = table(result / "clusters.csv")[0]
    made = into / f"cluster-{row['cluster']}" / row["file"]
    made.unlink()
    made.symlink_to(os.path.relpath(photos / row["file"], made.parent))
    assert run(*command) == 0
    assert_sorted(into, result, photos)
    made.unlink()
    made.symlink_to(photos / "notes.txt")
    assert run(*command) == 1


def test_files_that_a_system_keeps_in_folders_do_not_count(
    photos, fitted, tmp_path, out
):
    into = tmp_path / "sorted"
    command = ["fit", photos, *FIT, "--out", out, "-q", "--copy-to", into]
    for folder in (out, into):
        folder.mkdir()
        (folder / ".DS_Store").touch()
        (folder / "Thumbs.db").touch()
    assert run(*command) == 0
    assert_same_result(out, fitted)
    assert len([*into.glob("cluster-*/**/*.png")]) == 20
    (into / "cluster-0" / ".DS_Store").touch()
    assert run(*command, "--resume") == 0
    assert (into / "Thumbs.db").exists()


# ------------------------------------------------------------------------------ refused


def test_links_that_cannot_be_made_are_refused_before_the_fit(
    photos, tmp_path, monkeypatch, capsys
):
    def forbid(source, target):
        raise OSError(errno.EPERM, "A required privilege is not held", source)

    monkeypatch.setattr(os, "symlink", forbid)
    links = ["--link-to", tmp_path / "new" / "links"]
    line = refused(capsys, 2, "fit", photos, *FIT, "--out", tmp_path / "out", *links)
    assert "--link-to: no links can be made in " in line
    assert "A required privilege is not held; --copy-to makes copies" in line
    assert not os.listdir(tmp_path)


@needs_links
@pytest.mark.parametrize(
    ("copy_to", "link_to", "option"),
    [
        ("a", "a", "--link-to"),
        ("a", "a/b", "--link-to"),
        ("a/b", "link-to-a", "--link-to"),
        ("out", None, "--copy-to"),
        (None, "out", "--link-to"),
        (None, ".", "--link-to"),
        ("out/checkpoint/a", None, "--copy-to"),
        ("out/features.npy", None, "--copy-to"),
        (None, "out/clusters.csv", "--link-to"),
    ],
)
def test_folders_that_lie_in_each_other_are_refused_before_the_fit(
    photos, tmp_path, capsys, copy_to, link_to, option, out
):
    (tmp_path / "link-to-a").symlink_to(tmp_path / "a")
    sort = []
    if copy_to is not None:
        sort += ["--copy-to", tmp_path / copy_to]
    if link_to is not None:
        sort += ["--link-to", tmp_path / link_to]
    line = refused(capsys, 2, "fit", photos, *FIT, "--out", out, *sort)
    assert f"{option}: " in line
    assert [path.name for path in tmp_path.iterdir()] == ["link-to-a"]


def test_folders_of_windows_are_told_apart():
    with (
        patch.object(os, "path", ntpath),
        patch.object(results, "Path", PureWindowsPath),
    ):
        assert not results.lies_in(r"D:\photos\result", r"C:\photos")
        assert not results.lies_in(r"C:\photos-result", r"C:\photos")
        assert results.lies_in(r"C:\Photos\result", r"C:\photos")
        assert results.lies_in(r"C:\photos", r"C:\photos")


@needs_links
def test_a_folder_with_two_names_is_one(tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    with suppress(FileExistsError):  # on a Mac, and on Windows, it has both names
        (tmp_path / "Photos").symlink_to(tmp_path / "photos")
    monkeypatch.setattr(os.path, "realpath", os.path.abspath)
    assert results.lies_in(tmp_path / "Photos" / "new" / "result", tmp_path / "photos")
    assert not results.lies_in(tmp_path / "result", tmp_path / "photos")


def test_a_drive_that_is_not_there_is_refused(monkeypatch):
    asked = []

    def lexists(path):
        asked.append(path)
        assert len(asked) < 9
        return False

    monkeypatch.setattr(os.path, "lexists", lexists)
    monkeypatch.setattr(os.path, "isdir", lexists)
    with pytest.raises(results.BadParameter, match="is not a folder"):
        results.check_folder("/a/b", "--out")


@pytest.mark.parametrize(
    "row", [b'"a.png",cats', b'"a.png",2', b'"a.png",-1', b'"b/../../x",0', b'"/x",0']
)
def test_a_table_that_was_changed_is_not_sorted(result, resume, tmp_path, capsys, row):
    with open(result / "clusters.csv", "ab") as file:
        file.write(row + b",1.0,1,1.0\n")
    line = refused(capsys, 1, *resume, "--copy-to", tmp_path / "sorted")
    assert "must be as the fit has written it" in line
    assert not (tmp_path / "sorted").exists()


def test_a_table_does_not_leave_the_folder_on_windows(tmp_path, monkeypatch):
    monkeypatch.setattr(sorting, "PurePath", PureWindowsPath)
    for name in (r"..\x", r"a\..\..\x", "C:x", r"C:\x", r"\x", "/x", r"\\host\a\x"):
        path = write_table(tmp_path / "table.csv", ["file", "cluster"], [[name, 0]])
        with pytest.raises(ValueError, match="a file below the folder of images"):
            sorting.read_clusters(path, 2)
    path = write_table(tmp_path / "table.csv", ["file", "cluster"], [["a/b..c", 0]])
    assert sorting.read_clusters(path, 2) == (["a/b..c"], [0])


# ---------------------------------------------------------------------- files that fail


@needs_links
def test_photos_that_are_gone_are_named_and_the_rest_is_sorted(
    photos, tmp_path, monkeypatch, capsys
):
    copied = shutil.copytree(photos, tmp_path / "photos")
    out, copies, links = (tmp_path / name for name in ("result", "copies", "links"))
    fit, gone = MiCEClustering.fit, [HARD[0], NAMES[3]]

    def lose(self, X):
        for name in gone:
            (copied / name).unlink()
        return fit(self, X)

    monkeypatch.setattr(MiCEClustering, "fit", lose)
    command = ["fit", copied, *FIT, "--out", out, "--copy-to", copies]
    assert run(*command, "--link-to", links, "-q") == 0
    warned = last_line(capsys)
    assert warned.startswith("sk-mice: warning: 2 images cannot be sorted")
    assert repr(HARD[0]) in warned
    assert repr(NAMES[3]) in warned
    assert run_of(out)["finished"]
    for folder in (copies, links):
        assert len([*folder.rglob("*.png")]) == 18
    assert run(*command, "--resume", "-q") == 0


def test_a_photo_that_may_not_be_read_is_not_called_gone(
    resume, tmp_path, monkeypatch, capsys
):
    def forbid(source, target):
        raise PermissionError(errno.EACCES, "Permission denied", source)

    monkeypatch.setattr(placing, "_copy", forbid)
    line = refused(capsys, 1, *resume, "--copy-to", tmp_path / "sorted")
    assert "Permission denied" in line


def test_a_full_disk_names_the_file(resume, tmp_path, capsys):
    into = tmp_path / "sorted"

    def full(content, copy):
        copy.write(content.read(9))
        raise OSError(errno.ENOSPC, "No space left on device")

    command = (*resume, "--copy-to", into)
    with patch.object(shutil, "copyfileobj", full):
        line = refused(capsys, 1, *command)
    assert repr(str(into))[:-1] in line
    assert "No space left on device" in line
    assert not [path for path in into.rglob("*") if path.is_file()]
    assert run(*command) == 0


def test_a_drive_that_keeps_no_times_takes_copies(photos, result, resume, tmp_path):
    def refuse(path, *args, **kwargs):
        raise PermissionError(errno.EPERM, "Operation not permitted", path)

    into = tmp_path / "sorted"
    with patch.object(os, "utime", refuse), patch.object(os, "chmod", refuse):
        assert run(*resume, "--copy-to", into) == 0
    assert_sorted(into, result, photos)
