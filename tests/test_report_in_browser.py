"""The page of clusters in a real browser: what people see, click and download."""

import base64
import csv
import json
import math
import os
import re
import shutil
import sys
import time
from contextlib import suppress
from unicodedata import normalize
from urllib.parse import unquote_to_bytes, urlsplit

import numpy as np
import pytest
import report_page
from report_page import NAMES, data_of, flat
from shared import red_and_blue_files
from sklearn.cluster import DBSCAN
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sk_mice import SphericalKMeans
from sk_mice._engine.format import infer_format
from sk_mice.inspection import _reading, _report, _thumbnails, write_report

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def digits():
    return report_page.digits()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return report_page.write_page(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A headless Chromium, which saves downloads in the folder `downloads`."""
    binary = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for word in ("headless=new", "no-sandbox", "disable-dev-shm-usage"):
        options.add_argument(f"--{word}")
    options.add_argument("--window-size=1200,900")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.chrome.service.Service(driver)
    chromium = webdriver.Chrome(options=options, service=service)
    chromium.downloads = tmp_path_factory.mktemp("downloads")
    chromium.execute_cdp_cmd(
        "Browser.setDownloadBehavior",
        {"behavior": "allow", "downloadPath": str(chromium.downloads)},
    )
    yield chromium
    chromium.quit()


@pytest.fixture
def open_page(browser, page):
    """Open the report anew; at the end, nothing may be in the browser's console."""

    def find(selector):
        return browser.find_elements("css selector", selector)

    def go(view, path=page):
        browser.get("about:blank")
        browser.get(f"{path.as_uri()}#{view}")
        wait(lambda: find("[data-view]"))
        wait(lambda: browser.execute_script("return document.readyState") == "complete")
        return browser, find

    yield go
    # A name that was being typed is saved first, and not by the next test.
    browser.execute_script("document.activeElement?.blur(); localStorage.clear()")
    assert browser.get_log("browser") == []


@pytest.fixture
def open_report(open_page, tmp_path):
    """Write a report of a model and samples, and open it."""

    def go(view, model, X, **options):
        write_report(model, X, tmp_path / "report.html", **options)
        return open_page(view, tmp_path / "report.html")

    return go


def fitted_to(images, n_clusters=1):
    """A pipeline from images to clusters."""
    steps = FunctionTransformer(flat), SphericalKMeans(n_clusters)
    return make_pipeline(*steps).fit(images)


def wait(condition, seconds=20):
    from selenium.common.exceptions import StaleElementReferenceException

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(StaleElementReferenceException):  # the page replaces elements
            found = condition()
            if found:
                return found
        time.sleep(0.05)
    raise AssertionError("what the test waits for did not come")


def ids(browser, gallery):
    """The samples that a gallery shows."""
    script = (
        "return [...document.querySelectorAll(arguments[0])].map((t) => +t.dataset.i)"
    )
    return browser.execute_script(script, f"{gallery} .thumb")


def test_overview_and_galleries(open_page, page):
    data = data_of(page)
    browser, find = open_page("clusters")
    assert "clusters" in find("#headline")[0].text
    assert len(find(".card")) == len(set(data["labels"]))
    find(".card h3 a")[0].click()
    k = int(browser.current_url.rpartition("/")[2])
    members = [i for i in data["order"] if data["labels"][i] == k]
    wait(lambda: ids(browser, "#gallery") == members)
    find("[data-filter=doubtful]")[0].click()
    wait(lambda: ids(browser, "#gallery") == members[::-1])
    find("[data-filter=between]")[0].click()
    between = {i for i in members if data["second_share"][i] > 0}
    wait(lambda: set(ids(browser, "#gallery")) == between)
    find("[data-filter=other]")[0].click()
    wait(lambda: len(find("#gallery .thumb")) < len(members))
    # One sample, its neighbours, and the keys.
    find("[data-filter=certain]")[0].click()
    wait(lambda: ids(browser, "#gallery") == members)
    find("#gallery .thumb")[1].click()
    near = data["nearest"][data["shown"].index(members[1])]
    assert ids(browser, "#nearest") == near
    find("body")[0].send_keys("\ue014")  # the right arrow
    near = data["nearest"][data["shown"].index(members[2])]
    assert ids(browser, "#nearest") == near
    find("#detail-close")[0].send_keys("\ue00c")  # Escape
    assert not find("#detail")[0].is_displayed()


def test_pictures_have_the_pixels_of_the_images(open_page, page, digits):
    _, X, *_ = digits
    first = data_of(page)["thumbs"]["members"][0][0]
    browser, find = open_page("cluster/0")
    (picture,) = find(f'#gallery [data-i="{first}"] .pic')
    (url,) = re.findall(r'url\("(.*)"\)', picture.value_of_css_property("background"))
    pixels = browser.execute_async_script(
        """
        const [url, done] = arguments, image = new Image();
        image.onload = () => {
          const context = document.createElement("canvas").getContext("2d");
          context.drawImage(image, 0, 0);
          done([...context.getImageData(0, 0, 8, 8).data]);
        };
        image.src = url;
        """,
        url,
    )
    grey = np.reshape(pixels, (8, 8, 4))[..., 0]
    np.testing.assert_array_equal(grey, np.round(X[first] / 16 * 255))


def test_names_and_classes_with_markup_run_nothing(open_page):
    _, find = open_page("search/")
    for name in NAMES[:2]:
        find("#search")[0].clear()
        find("#search")[0].send_keys(name)
        wait(lambda: len(find("#found .thumb")) == 1)
        find("#found .thumb")[0].click()
        assert find("#detail-name")[0].text == name
        find("#detail-close")[0].click()
    find("#search")[0].clear()
    find("#search")[0].send_keys("caf\\xe9")
    wait(lambda: len(find("#found .thumb")) == 1)
    find("#search")[0].clear()
    find("#search")[0].send_keys("zell\u00e9")
    wait(lambda: len(find("#found .thumb")) == 1)
    assert not find("img, b, i.more")  # an alert or a log entry fails the test, too


def test_map_opens_the_cluster_of_a_point_and_selects(open_page, page):
    from selenium.webdriver import ActionChains

    data = data_of(page)
    browser, find = open_page("map")
    points = wait(lambda: find("#map-plot .points path"))
    assert len(points) == len(data["map"]["rows"])
    plot = find("#map-plot .draglayer .nsewdrag")[0]
    # All points lie in this rectangle of the plot; offsets count from its centre.
    width, height = plot.size["width"], plot.size["height"]
    corners = [(-1, -1), (1, -1), (1, 1), (-1, 1)]
    corners = [
        (int(x * (width / 2 - 4)), int(y * (height / 2 - 4))) for x, y in corners
    ]
    lasso = ActionChains(browser, 50).move_to_element_with_offset(plot, *corners[0])
    lasso.click_and_hold()
    for corner in corners[1:]:
        lasso.move_to_element_with_offset(plot, *corner)
    lasso.release().perform()
    wait(lambda: find("#selection-note")[0].text == f"{len(points)} images selected")
    find("#selection-clear")[0].click()
    wait(lambda: not find("#selected .thumb"))

    ActionChains(browser).move_to_element(points[7]).perform()
    wait(lambda: find("#hover .pic"))
    ActionChains(browser).click().perform()
    wait(lambda: "#cluster/" in browser.current_url)
    assert int(browser.current_url.rpartition("/")[2]) in {
        data["labels"][i] for i in data["map"]["rows"]
    }
    hovered = find("#hover .pic")[0].get_attribute("aria-label")
    assert hovered.endswith(".png")


def test_keys_select_a_cluster_on_the_map(open_page, page):
    data = data_of(page)
    _, find = open_page("map")
    choice = wait(lambda: find("#map-cluster option") and find("#map-cluster")[0])
    points = wait(lambda: find("#map-plot .points path"))
    choice.send_keys("Cluster 1")
    own = [i for i in data["map"]["rows"] if data["labels"][i] == 1]
    wait(lambda: find("#selection-note")[0].text == f"{len(own)} images selected")
    assert len(find("#selected .thumb")) == len(own)
    dim = [point.value_of_css_property("opacity") < "0.5" for point in points]
    assert dim == [data["labels"][i] != 1 for i in data["map"]["rows"]]
    find("#selection-clear")[0].send_keys("\ue007")  # Enter
    wait(lambda: not find("#selected .thumb"))
    assert choice.get_attribute("value") == ""
    assert points[0].value_of_css_property("opacity") > "0.5"


@pytest.mark.parametrize("width", [1200, 500])
def test_captions_of_the_map_are_apart(open_report, browser, width):
    X = np.random.default_rng(0).normal(size=(300, 8))
    model = SphericalKMeans(60, random_state=0).fit(X)
    browser.set_window_size(width, 900)
    _, find = open_report("map", model, X)
    wait(lambda: find("#map-plot .annotation-text"))
    script = """return [...document.querySelectorAll(arguments[0])].map((node) => {
        const { left, top, right, bottom } = node.getBoundingClientRect();
        return [left, top, right, bottom]; })"""
    boxes = np.array(browser.execute_script(script, "#map-plot .annotation-text"))
    (plot,) = browser.execute_script(script, "#map-plot")
    browser.set_window_size(1200, 900)
    assert len(boxes) == 60
    shared = np.minimum(boxes[:, None, 2:], boxes[:, 2:]) - np.maximum(
        boxes[:, None, :2], boxes[:, :2]
    )
    np.fill_diagonal(shared[..., 0], 0)
    assert not (shared > 1).all(axis=2).any()
    assert (boxes[:, :2] >= plot[:2]).all()
    assert (boxes[:, 2:] <= plot[2:]).all()


def test_only_the_largest_of_many_clusters_have_captions(open_report):
    X = np.random.default_rng(0).normal(size=(1000, 8))
    model = SphericalKMeans(500, n_init=1, random_state=0).fit(X)
    _, find = open_report("map", model, X)
    wait(lambda: find("#map-plot .annotation-text"))
    captions = [node.get_attribute("textContent") for node in find(".annotation-text")]
    sizes = np.bincount(model.labels_)
    assert len(captions) == 300
    assert sizes[[int(k) for k in captions]].min() >= np.sort(sizes)[-300]


def downloaded(browser, find):
    """The rows of the CSV file."""
    for file in browser.downloads.glob("clusters*"):
        file.unlink()
    find("#download")[0].click()
    file = browser.downloads / "clusters.csv"
    wait(file.exists)
    with open(file, encoding="utf-8", errors="surrogateescape", newline="") as text:
        return list(csv.DictReader(text))


def test_merged_and_renamed_clusters_are_in_the_csv(open_page, page, browser):
    data = data_of(page)
    _, find = open_page("cluster/1")
    find("#merge-into option[value='0']")[0].click()
    find("#rename")[0].send_keys("kept")
    find("#merge")[0].click()  # which ends the entry, and renames
    wait(lambda: find("#cluster-title")[0].text == "kept")
    assert browser.current_url.endswith("#cluster/0")
    find("#rename")[0].send_keys("\ue009a\ue000round; or not?\ue007")  # all; Enter
    wait(lambda: find("#cluster-title")[0].text == "round; or not?")
    assert "sort refuses it: a folder" in find("#edits-note")[0].text
    browser.refresh()  # changes survive
    assert find("#cluster-title")[0].text == "round; or not?"
    rows = downloaded(browser, find)
    assert [row["file"] for row in rows] == data["names"]
    lines = (browser.downloads / "clusters.csv").read_bytes()
    assert b',"round; or not?",' in lines  # spreadsheets may part columns there
    for row, k in zip(rows, data["labels"], strict=True):
        assert int(row["original_cluster"]) == k
        assert int(row["cluster"]) == (0 if k == 1 else k)
        name = "round; or not?" if k < 2 else f"Cluster {k}"
        assert row["name"] == name
    for _ in range(3):
        find("#undo")[0].click()
    assert find("#cluster-title")[0].text == "Cluster 0"
    assert not find("#edits")[0].is_displayed()


def test_noise_is_a_cluster_with_a_name(open_report):
    X = np.repeat(np.eye(3), [10, 10, 3], axis=0)
    dbscan = DBSCAN(min_samples=5).fit(X)
    assert sorted(dbscan.labels_)[:4] == [-1, -1, -1, 0]
    browser, find = open_report("cluster/2", dbscan, X)
    assert find("#cluster-title")[0].text == "Noise"
    browser.get(f"{browser.current_url.partition('#')[0]}#clusters")
    headline = "Of 3 clusters, 2 are steady and 1 noise"
    wait(lambda: find("#headline")[0].text == headline)
    browser.get(f"{browser.current_url.partition('#')[0]}#map")
    caption = "#map-plot .annotation-text"
    wait(lambda: {text.text for text in find(caption)} == {"0", "1", "Noise"})
    rows = downloaded(browser, find)
    names = ["Cluster 0"] * 10 + ["Cluster 1"] * 10 + ["Noise"] * 3
    assert [row["name"] for row in rows] == names
    browser.get(f"{browser.current_url.partition('#')[0]}#cluster/2")
    assert opened(browser, find, browser.downloads / "clusters.csv") is None
    assert find("#cluster-title")[0].text == "Noise"
    assert find("#rename")[0].get_attribute("value") == ""


def test_texts_as_names_are_in_short_and_have_room(open_report):
    skm = SphericalKMeans(1, random_state=0).fit(np.eye(9))
    texts = [f"{i}. {'This is a text, and not a name. ' * 9}" for i in range(9)]
    _, find = open_report("clusters", skm, np.eye(9), names=texts)
    (listed,) = find(".card .names")
    parts = listed.text.split(" · ")
    assert len(parts) == 6
    assert all(len(part) == 60 and part.endswith("…") for part in parts)
    find(".card h3 a")[0].click()
    buttons = wait(lambda: find("#gallery .thumb"))
    assert buttons[0].size["width"] > 400


@pytest.fixture(scope="module")
def between(tmp_path_factory):
    """Clusters 0 and 1 share members, all of 2 lies between them, and 3 is empty."""
    labels = np.repeat([0, 1, 2], [30, 30, 3])
    shares = np.eye(4)[labels]
    shares[:6] = [0.6, 0.3, 0.1, 0]
    shares[labels == 2] = [0.3, 0.4, 0.3, 0]
    rows = np.eye(63)
    rows[40:43] = rows[50]
    found = _reading.from_shares(labels, shares, shares, rows, _reading.OF_VIEWS)
    X = np.random.default_rng(0).integers(0, 256, (63, 8, 8), np.uint8)
    X[40:43] = X[50]  # six pairs
    model = SphericalKMeans(3, random_state=0).fit(np.eye(4))
    path = tmp_path_factory.mktemp("between") / "report.html"
    names = [f"a/long\nway/to/{i}.png" for i in range(63)]
    pictures = _thumbnails.Pictures(X, infer_format(X, None))
    rng = np.random.RandomState(0)
    _report.draw_page(found, model, pictures, path, names=names, rng=rng)
    return path


def merge(browser, find, k, into):
    def is_open(cluster):  # which cannot be merged into itself
        choices = [
            option.get_attribute("value") for option in find("#merge-into option")
        ]
        return choices and str(cluster) not in choices

    browser.execute_script("location.hash = arguments[0]", f"#cluster/{k}")
    wait(lambda: is_open(k))
    find(f"#merge-into option[value='{into}']")[0].click()
    find("#merge")[0].click()
    wait(lambda: is_open(into))


def told(find):
    """The chips of clusters that can be seen."""
    chips = find("#doubts-title ~ .doubt .chip[data-kind]")
    return [chip.text for chip in chips if chip.is_displayed()]


def test_doubts_and_agreement_follow_merges(open_page, between):
    browser, find = open_page("clusters", between)
    assert told(find) == [
        *("Cluster 3", "Cluster 2 3 images", "Cluster 2 30%"),
        *("Cluster 0 and Cluster 1 6 images", "Cluster 2 and Cluster 1 3 images"),
    ]
    assert find("#title")[0].text == browser.title == "63 images in 4 clusters"
    merge(browser, find, 3, 2)
    merge(browser, find, 1, 0)
    find("#rename")[0].send_keys("five\ue007")
    wait(lambda: find("#cluster-title")[0].text == "five")
    assert find("#edits-note")[0].text.endswith("to five")
    browser.execute_script("location.hash = '#clusters'")
    wait(lambda: find("#headline")[0].is_displayed())
    assert told(find) == [
        *("Cluster 2 3 images", "Cluster 2 30%", "Cluster 2 and five 3 images"),
    ]
    assert find("#title")[0].text == browser.title == "63 images in 2 clusters"
    assert find("#mean")[0].text == f"{(54 + 6 * 0.9 + 3 * 0.3) / 63:.0%}"
    assert "99% agreement" in find("[data-cluster='0'].card")[0].text
    merge(browser, find, 2, 0)
    browser.execute_script("location.hash = '#clusters'")
    wait(lambda: find("#no-doubts") and find("#headline")[0].is_displayed())
    assert told(find) == []
    assert find("#mean")[0].text == "100%"
    assert {row["agreement"] for row in downloaded(browser, find)} == {"1"}
    for _ in range(4):
        find("#undo")[0].click()
    assert len(told(find)) == 5


def test_names_that_sort_refuses_are_told_at_once(open_page, between):
    _, find = open_page("cluster/0", between)
    for name in ("cats", "Thumbs.DB"):
        find("#rename")[0].send_keys(f"\ue009a\ue000{name}\ue007")  # all; Enter
        wait(lambda name=name: find("#cluster-title")[0].text == name)
    assert "sort refuses it: a folder" in find("#edits-note")[0].text
    find("#undo")[0].click()
    assert find("#edits-note")[0].text == "Renamed: Cluster 0 to cats"
    find("#rename")[0].send_keys("\ue009a\ue000cluster 1\ue007")
    wait(lambda: find("#cluster-title")[0].text == "cluster 1")
    assert "sort refuses it beside Cluster 1)" in find("#edits-note")[0].text


def test_a_cluster_that_was_emptied_shares_no_members(open_page, between):
    browser, find = open_page("clusters", between)
    move = json.dumps([{"move": [*range(30, 60)], "into": 2}])
    key = f"sk_mice:{data_of(between)['key']}"
    browser.execute_script("localStorage.setItem(...arguments)", key, move)
    browser.refresh()
    wait(lambda: find("#edits-note")[0].text.startswith("Moved: 30 images"))
    assert [chip for chip in told(find) if "and Cluster 1" in chip] == []


@pytest.mark.parametrize("kept", ["[", "5", "[null]", '[{"merge": 1, "into": 99}]'])
def test_changes_that_cannot_be_read_count_as_none(open_page, between, kept):
    browser, find = open_page("clusters", between)
    key = f"sk_mice:{data_of(between)['key']}"
    browser.execute_script("localStorage.setItem(...arguments)", key, kept)
    browser.refresh()
    assert len(find("#cards li")) == 4
    assert not find("#edits")[0].is_displayed()


def test_many_clusters_fit_into_the_width(open_report):
    rows = np.eye(1500)
    browser, _ = open_report("clusters", SphericalKMeans(1500).fit(rows), rows)
    page = "document.documentElement"
    width = browser.execute_script(f"return {page}.scrollWidth - {page}.clientWidth")
    assert width == 0


def test_one_and_two_clusters_in_words(open_report):
    rows = np.repeat(np.eye(2), 6, axis=0)
    two = SphericalKMeans(2, random_state=0).fit(rows)
    _, find = open_report("clusters", two, rows)
    assert find("#headline")[0].text == "Both clusters are steady"
    _, find = open_report("clusters", SphericalKMeans(1).fit(rows), rows[:1])
    assert find("#headline")[0].text == "The cluster is of one sample"
    assert find("#title")[0].text == "1 sample in 1 cluster"
    card = find(".card")[0].text.splitlines()
    assert card == ["Cluster 0", "○ one sample", "1 sample", "sample 0"]


@pytest.mark.parametrize(("n_more", "mean"), [(0, "none"), (6, "100%")])
def test_samples_that_are_alone_do_not_count_in_the_mean(
    open_report, tmp_path, n_more, mean
):
    rows = np.repeat(np.eye(3), [1, 1, 1 + n_more], axis=0)
    model = SphericalKMeans(3, random_state=0).fit(rows)
    _, find = open_report("clusters", model, rows)
    assert find("#mean")[0].text == mean
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f'<dd id="mean">{mean}</dd>' in text


def test_pairs_of_images_open_the_images(open_page, between):
    _, find = open_page("clusters", between)
    chips = find("[data-pair]")
    assert [chip.text for chip in chips][:2] == ["40.png, 41.png", "40.png, 42.png"]
    name = "a/long\\nway/to/40.png"
    assert chips[1].get_attribute("title") == f"{name}\n{name.replace('40', '42')}"
    chips[1].click()
    assert find("#detail-name")[0].text == name
    find("body")[0].send_keys("\ue014")  # the right arrow
    assert find("#detail-name")[0].text == name.replace("40", "42")
    previous, following = find("#detail-previous")[0], find("#detail-next")[0]
    assert not following.is_enabled()
    previous.click()
    assert find("#detail-name")[0].text == name
    assert not previous.is_enabled()
    following.send_keys("\ue007")  # Enter
    assert find("#detail-name")[0].text == name.replace("40", "42")


def test_files_of_one_name_are_told_apart_by_their_folders(open_report):
    X = np.random.default_rng(0).integers(0, 256, (20, 8, 8), np.uint8)
    X[10:] = X[:10]
    names = [f"plate {i // 10}/{i % 10}.png" for i in range(20)]
    _, find = open_report("twice", fitted_to(X, 2), X, names=names)
    assert find("[data-pair]")[0].text == "plate 0/0.png, plate 1/0.png"


def test_copies_are_moved_at_once(open_report):
    X = np.random.default_rng(0).integers(0, 256, (23, 8, 8), np.uint8)
    X[10:20], X[20:22] = X[:10], X[0]  # nine pairs, four of one, and one alone
    names = [f"{i}.png" for i in range(23)]
    names[5] = "15 (small).png"
    browser, find = open_report("clusters", fitted_to(X, 2), X, names=names)
    (button,) = find("#copies")

    def shown():
        return [chip.text for chip in find("[data-pair]") if chip.is_displayed()]

    before = shown()
    assert button.text == "Move the 12 copies to a cluster of their own"
    button.click()
    assert find("#edits-note")[0].text == "Moved: 12 images to copies"
    assert not [doubt for doubt in find(".doubt") if "nearly" in doubt.text]
    (card,) = find("[data-cluster='2'].card")
    assert card.text.startswith("copies")
    assert "12 images" in card.text
    moved = {row["file"] for row in downloaded(browser, find) if row["cluster"] == "2"}
    assert moved == {names[i] for i in (5, *range(10, 22)) if i != 15}
    find("#undo")[0].click()
    assert shown() == before
    find("[data-pair='0 10']")[0].click()
    move_to(find, "detail", "2")  # the image that would stay; now the next one does
    find("#detail-close")[0].click()
    assert [text for text in shown() if text.startswith("0.png,")] == []
    assert button.text == "Move the 11 copies to a cluster of their own"


def test_a_picture_opens_its_file(open_page, tmp_path, monkeypatch):
    folder, place = tmp_path / "50 % of #1", tmp_path / "pages?"
    folder.mkdir()
    place.mkdir()
    files = red_and_blue_files(folder)
    odd = b"\xff \xc3\xa9:\\.png" if sys.platform == "linux" else "é ~.png".encode()
    files[0] = files[0].rename(folder / os.fsdecode(odd))
    monkeypatch.chdir(tmp_path)
    rows = np.tile(np.eye(2), (12, 1))
    model = SphericalKMeans(2, random_state=0).fit(rows)
    for images in (files, [file.relative_to(tmp_path) for file in files]):
        write_report(model, rows, place / "report.html", images=images)
        view = f"cluster/{model.labels_[0]}"
        browser, find = open_page(view, place / "report.html")
        wait(lambda find=find: find('.thumb[data-i="0"]'))[0].click()
        (link,) = wait(lambda find=find: find("#detail-picture a"))
        address = link.get_attribute("href")
        path = unquote_to_bytes(urlsplit(address).path)
        assert path == os.fsencode(files[0])
        browser.get(address)
        assert "30×20" in browser.title  # as Chromium calls the page of an image
    write_report(
        model,
        rows,
        place / "report.html",
        images=files,
        names=list("abcdefghijklmnopqrstuvwx"),
    )
    _, find = open_page(view, place / "report.html")
    wait(lambda: find('.thumb[data-i="0"]'))[0].click()
    assert not find("#detail-picture a")


def test_going_back_closes_the_picture_and_fills_the_search(open_page, between):
    browser, find = open_page("clusters", between)
    find("#search")[0].send_keys("to/5")
    wait(lambda: len(find("#found .thumb")) == 11)
    assert find("#found small")[0].text == "5.png"
    find("#found .thumb")[0].click()
    find("#detail-facts a")[0].click()
    wait(lambda: find("#cluster-title")[0].is_displayed())
    wait(lambda: not find("#detail")[0].is_displayed())
    wait(lambda: find("#gallery .thumb"))
    browser.execute_script("document.querySelector('#gallery .thumb').click()")
    wait(lambda: find("#detail")[0].is_displayed())
    browser.back()
    wait(lambda: "#search/" in browser.current_url)
    wait(lambda: not find("#detail")[0].is_displayed())
    assert find("#search")[0].get_attribute("value") == "to/5"
    browser.refresh()
    wait(lambda: len(find("#found .thumb")) == 11)
    assert find("#search")[0].get_attribute("value") == "to/5"


@pytest.mark.parametrize("text", ["%", "50%", "%E9"])
def test_an_address_that_is_not_encoded_is_searched_for(open_page, text):
    _, find = open_page(f"search/{text}")
    assert f"No images with “{text}” in the name" in find("#search-title")[0].text
    assert find("#search-title")[0].aria_role == "heading"
    assert find("#search")[0].get_property("value") == text


def test_the_next_cluster_has_the_same_filter(open_page, between):
    browser, find = open_page("cluster/0/doubtful", between)
    find("#next")[0].click()
    wait(lambda: browser.current_url.endswith("#cluster/1/doubtful"))


def test_previous_does_not_come_to_where_next_was(open_page, between):
    _, find = open_page("cluster/2", between)
    place = find("#next")[0].rect["x"]
    find("#next")[0].click()
    wait(lambda: not find("#next")[0].is_displayed())
    last = find("#previous")[0].rect
    assert last["x"] + last["width"] <= place


def test_what_is_said_to_be_outlined_is(open_report):
    X = np.repeat(np.eye(2), 10, axis=0)
    model = SphericalKMeans(2, random_state=0).fit(X)
    k = model.labels_[0]
    browser, find = open_report(f"cluster/{k}", model, X, y=[*9 * "a", "b", *10 * "c"])
    assert find("#shown-note")[0].text == "10 samples; outlined: not a"
    script = "return getComputedStyle(document.querySelector(arguments[0])).boxShadow"
    assert browser.execute_script(script, "#gallery .thumb:not(.other)") == "none"
    assert browser.execute_script(script, "#gallery .thumb.other") != "none"
    browser.execute_script("location.hash = arguments[0]", f"cluster/{1 - k}")
    wait(lambda: find("#shown-note")[0].text == "10 samples")


def test_what_is_selected_differs_from_what_is_under_the_mouse(open_report):
    X = np.repeat(np.eye(2), 10, axis=0)
    model = SphericalKMeans(2, random_state=0).fit(X)
    for images, marked in (None, ""), (np.zeros((20, 8, 8), np.uint8), " .pic"):
        browser, find = open_report("cluster/0", model, X, images=images)
        find("#pick")[0].click()
        style = "const {outlineColor, outlineStyle} = getComputedStyle(document."
        style += f"querySelector('#gallery .thumb{marked}')); "
        style += "return outlineStyle + outlineColor"
        find("#gallery .thumb")[0].click()
        time.sleep(0.3)  # colours change gradually
        selected = browser.execute_script(style)
        find("#gallery .thumb")[0].click()
        time.sleep(0.3)
        assert selected != browser.execute_script(style)


def test_a_search_writes_thousands_with_a_comma(open_report, monkeypatch):
    images = np.zeros((1200, 2, 2), np.uint8)
    rows = np.tile(np.eye(2), (600, 1))
    monkeypatch.setattr(_report, "MOST_SHOWN", 1100)
    options = {"images": images, "names": ["a.png"] * 1200}
    _, find = open_report("search/a", SphericalKMeans(2).fit(rows), rows, **options)
    title = "1,200 images with “a” in the name, 1,100 of them shown"
    wait(lambda: find("#search-title")[0].text == title)


def test_images_without_a_thumbnail_have_an_empty_one(
    open_page, digits, monkeypatch, tmp_path
):
    mice, X, _, _ = digits
    monkeypatch.setattr(_report, "MOST_SHOWN", 30)
    path = tmp_path / "report.html"
    ends = [f"{80 * 'x'}{i:02}.png" for i in range(90)]
    names = [f"the folder {i}" + "/\\"[i % 2] + end for i, end in enumerate(ends)]
    write_report(mice, X, path, names=names)
    browser, find = open_page("search/folder", path)
    wait(lambda: len(find("#found .thumb")) == len(find("#found .pic")) == 90)
    title = "90 images with “folder” in the name, 30 of them shown"
    assert find("#search-title")[0].text == title
    for node in find("#found .thumb"):
        assert node.text.startswith("xxx")
        assert (
            node.size["width"] >= node.find_element("tag name", "small").size["width"]
        )
    assert len({node.size["height"] for node in find("#found .thumb")}) == 1
    # The end of the name is in sight.
    overhang = """
        const name = document.querySelector("#found bdi").getBoundingClientRect();
        const box = document.querySelector("#found small").getBoundingClientRect();
        return [box.left - name.left, name.right - box.right];
    """
    left, right = browser.execute_script(overhang)
    assert left > 100 > 1 > right
    browser, find = open_page("cluster/0", path)
    data = data_of(path)
    n = sum(data["labels"][i] == 0 for i in data["shown"])
    assert find("#shown-note")[0].text == f"{n} images shown"


@pytest.fixture(scope="module")
def one_cluster(tmp_path_factory):
    """A page of 500 images."""
    X = np.random.default_rng(0).integers(0, 256, (500, 8, 8), np.uint8)
    path = tmp_path_factory.mktemp("one_cluster") / "report.html"
    write_report(fitted_to(X), X, path)
    return path


def test_a_gallery_that_grows_has_no_gaps(open_page, one_cluster):
    browser, _ = open_page("cluster/0", one_cluster)
    places = """
        scrollTo(0, 1e6);
        const boxes = [...document.querySelectorAll("#gallery .thumb")].map(
            (node) => node.getBoundingClientRect());
        return boxes.map((box) => [box.left, box.top]);
    """
    wait(lambda: len(browser.execute_script(places)) == 500)
    lefts, tops = np.array(browser.execute_script(places)).T
    n_columns = len(np.unique(lefts.round()))
    assert len(np.unique(tops.round(1))) == math.ceil(500 / n_columns)


def test_a_cluster_is_printed_as_a_whole(open_page, one_cluster):
    browser, find = open_page("cluster/0", one_cluster)
    wait(lambda: find("#gallery .thumb"))
    count_printed = """
        addEventListener("afterprint", () => {
            window.printed = document.querySelectorAll("#gallery .thumb").length;
        });
    """
    browser.execute_script(count_printed)
    browser.execute_cdp_cmd("Page.printToPDF", {})
    assert wait(lambda: browser.execute_script("return window.printed")) == 500


def test_a_click_that_ends_the_entry_of_a_name_does_what_it_says(open_page, between):
    _, find = open_page("cluster/0", between)
    find("#rename")[0].send_keys("round")
    find("[data-filter=doubtful]")[0].click()
    wait(lambda: find("[data-filter=doubtful][aria-pressed=true]"))
    assert find("#cluster-title")[0].text == "round"
    find("#rename")[0].send_keys(" things")
    find("#gallery .thumb")[3].click()
    assert find("#detail")[0].is_displayed()
    assert find("#cluster-title")[0].text == "round things"
    assert "in round things" in find("#gallery .thumb")[3].get_attribute("title")


def test_samples_are_moved_by_hand(open_page, between):
    action_chains = pytest.importorskip("selenium.webdriver").ActionChains
    browser, find = open_page("cluster/0/doubtful", between)
    rows = ids(browser, "#gallery")
    find("#pick")[0].click()
    thumbs = find("#gallery .thumb")
    thumbs[0].click()
    shift = "\ue008"
    action_chains(browser).key_down(shift).click(thumbs[5]).key_up(shift).perform()
    assert find("#picked-note")[0].text == "6 images selected"
    thumbs[2].click()
    move_to(find, "picked", "4")  # a new cluster
    assert ids(browser, "#gallery") == [rows[2], *rows[6:]]
    assert "25 images · 98% agreement" in find("#cluster-lead")[0].text
    find("#pick")[0].click()
    find("#gallery .thumb")[0].click()
    assert find("#detail-move select")[0].get_attribute("value") == "4"  # once more
    move_to(find, "detail", "2")
    facts = find("#detail-facts")[0].text.split("\n")
    assert facts[:4] == ["Cluster", "Cluster 2", "Agreement", "none: moved by hand"]
    browser.execute_script("location.hash = '#map'")
    wait(lambda: find("#map-plot .annotation-text"))
    find("#map-cluster option[value='3']")[0].click()  # is empty
    assert not find("#selection-move")[0].is_displayed()
    find("#map-cluster option[value='2']")[0].click()
    assert find("#selection-note")[0].text == "4 images selected"
    move_to(find, "selection", "1")
    wait(lambda: find("#edits-note")[0].text == "Moved: 4 images to Cluster 1")
    table = downloaded(browser, find)
    moved = {int(row["file"][len("a/long\nway/to/") : -4]): row for row in table}
    for i in set(rows[:6]) - {rows[2]}:
        assert [*moved[i].values()][1:] == ["4", "Cluster 4", "1", "0"]
    for i in rows[2], 60, 61, 62:
        assert moved[i]["cluster"] == "1"
        assert moved[i]["agreement"] == "1"
    browser.execute_script("location.hash = '#clusters'")
    wait(lambda: find("#headline")[0].is_displayed())
    assert told(find) == ["Cluster 3"]
    assert find("[data-cluster='4'] h3")[0].text == "Cluster 4"
    for _ in range(3):
        find("#undo")[0].click()
    assert not find("#edits")[0].is_displayed()
    assert len(find(".card")) == 4


def move_to(find, form, cluster):
    find(f"#{form}-move option[value='{cluster}']")[0].click()
    find(f"#{form}-move button")[0].click()


def opened(browser, find, path):
    """Open a table in the page; the words of an error, if there is one."""
    before = find("#edits-note")[0].text
    # While a real alert is open, the driver finds nothing in the page.
    browser.execute_script("window.told = null; window.alert = (t) => { told = t; };")
    find("#table")[0].send_keys(str(path))

    def told():
        words = browser.execute_script("return window.told")
        if words is not None:
            return [words]
        return find("#edits-note")[0].text != before and [None]

    return wait(told)[0]


def test_a_downloaded_table_can_be_opened_again(open_page, page, browser, tmp_path):
    data = data_of(page)
    _, find = open_page("clusters")
    edits = [
        {"merge": 1, "into": 0},
        {"rename": 0, "name": 'both; "of", them'},
        {"move": data["order"][:3], "into": 3},
        {"move": [data["order"][4]], "into": 4},
        {"merge": 3, "into": 4},
        {"rename": 4, "name": "zelle\u0301"},
        {"move": [data["labels"].index(0)], "into": 2},
    ]
    store = "localStorage.setItem(`sk_mice:${arguments[0]}`, arguments[1])"
    browser.execute_script(store, data["key"], json.dumps(edits))
    browser.refresh()
    rows = downloaded(browser, find)
    table = tmp_path / "mine.csv"
    table.write_bytes((browser.downloads / "clusters.csv").read_bytes())
    (tmp_path / "first.csv").write_bytes(table.read_bytes())

    # Another browser has no changes. The new cluster gets the first free number.
    browser.execute_script("localStorage.clear()")
    browser.refresh()
    assert downloaded(browser, find) != rows
    assert opened(browser, find, table) is None
    note = find("#edits-note")[0].text
    assert note == f"Opened: mine.csv, with {len(rows)} images of this page"
    again = downloaded(browser, find)
    assert again == [
        row | {"cluster": "3" if row["cluster"] == "4" else row["cluster"]}
        for row in rows
    ]
    browser.refresh()
    assert downloaded(browser, find) == again
    # So does a table that PowerShell has written.
    text = table.read_bytes().decode(errors="replace").replace("\ufffd", "?")
    table.write_bytes(text.encode("utf-16"))
    find("#undo")[0].click()
    assert opened(browser, find, table) is None
    utf16 = downloaded(browser, find)
    same = [row == other for row, other in zip(utf16, again, strict=True)]
    assert same.count(False) <= 1  # the name that is not UTF-8
    find("#undo")[0].click()
    table.write_bytes((tmp_path / "first.csv").read_bytes())
    assert opened(browser, find, table) is None
    # Names of files may be written as a Mac does, as Windows does, or as `find` does.
    nfd = normalize("NFD", text).replace("folder/", "./folder\\")
    assert nfd != text
    table.write_text(nfd, encoding="utf-8", newline="")
    assert opened(browser, find, table) is None
    of_a_mac = downloaded(browser, find)
    same = [row["cluster"] for row in of_a_mac] == [row["cluster"] for row in utf16]
    assert same
    find("#undo")[0].click()
    # Lines may end as on an old Mac.
    table.write_text(text.replace("\r\n", "\r"), encoding="utf-8", newline="")
    assert opened(browser, find, table) is None
    assert downloaded(browser, find) == utf16
    find("#undo")[0].click()
    # A table from a spreadsheet, of a part of the images and of others.
    file, name = (
        text.encode(errors="surrogateescape") for text in ("caf\udce9.png", "é")
    )
    table.write_bytes(
        b'\xef\xbb\xbf"area, mean";file;cluster;name\r\n'
        b"1,5;%b;7;%b\r\n2,5;other.png;1;b" % (file, name)
    )
    assert opened(browser, find, table) is None
    assert find("#edits-note")[0].text.endswith("with 1 image of this page and 1 other")
    changed = downloaded(browser, find)
    table.write_bytes(b"file,cluster\nfolder/005.png,1\nF\xfc.png,1\n")
    assert opened(browser, find, table) is None
    note = find("#edits-note")[0].text
    assert "1 image of this page and 1 other. Some names are not UTF-8" in note
    find("#undo")[0].click()
    changed_name = "zelle\u0301.png".encode().decode("latin-1")  # as Excel may open it
    table.write_text(f"file,cluster\nfolder/005.png,1\n{changed_name},1\n", "utf-8")
    assert opened(browser, find, table) is None
    note = find("#edits-note")[0].text
    assert "and 1 other. If it comes from a spreadsheet, import it" in note
    find("#undo")[0].click()
    for i, row in enumerate(changed):
        is_moved = data["names"][i] == "caf\udce9.png"
        assert row["cluster"] == (
            str(len(find(".card")) - 1) if is_moved else row["original_cluster"]
        )
        assert (row["name"] == "é") == is_moved
    find("#undo")[0].click()
    assert downloaded(browser, find) == again
    find("#undo")[0].click()
    assert not find("#edits")[0].is_displayed()


def test_a_table_of_fewer_images_merges_those_that_it_lacks(open_page, page, tmp_path):
    data = data_of(page)
    browser, find = open_page("clusters")
    table = tmp_path / "mine.csv"

    def write(rows):
        lines = [f"{data['names'][i]},{k},{data['labels'][i]}" for i, k in rows]
        lines = ["file,cluster,original_cluster", *lines]
        table.write_text("\n".join(lines), encoding="utf-8")

    def clusters():
        return [int(row["cluster"]) for row in downloaded(browser, find)]

    plain = [i for i, name in enumerate(data["names"]) if name.startswith("folder/")]
    # Most of the images: cluster 1 was merged into 0.
    write((i, 2 if data["labels"][i] == 2 else 0) for i in plain)
    assert opened(browser, find, table) is None
    assert clusters() == [0 if k == 1 else k for k in data["labels"]]
    # A few of them, as of a selection, are moved; the others stay.
    few = [i for i in plain if data["labels"][i] == 1][:3]
    write((i, 0) for i in few)
    assert opened(browser, find, table) is None
    assert clusters() == [0 if i in few else k for i, k in enumerate(data["labels"])]
    # A cluster that was merged into one that was made by hand.
    write((i, 5 if data["labels"][i] == 1 else data["labels"][i]) for i in plain)
    assert opened(browser, find, table) is None
    assert clusters() == [3 if k == 1 else k for k in data["labels"]]
    rows = downloaded(browser, find)
    sure = [i for i in plain if data["labels"][i] == 1 and rows[i]["agreement"] != "1"]
    before = [i for i in plain if data["labels"][i] == 1 and data["confidence"][i] < 1]
    assert len(before) - 1 <= len(sure) <= len(before)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no column file, or no column cluster"),
        ("name,cluster\na,1\n", "has no column file, or no column cluster"),
        ("file,cluster\nother.png,1\n", "has none of the images of this page"),
        (
            "file,cluster\nfolder/005.png,x\n",
            "has no cluster number for folder/005.png",
        ),
        (
            "file,cluster,name\nfolder/005.png,1,a\nfolder/006.png,1,b\n",
            "has two names for cluster 1: a and b",
        ),
        (
            b"file,cluster,name\nfolder/005.png,1,F\xfc\xdfe\n",
            "has a name of cluster 1, F\ufffd\ufffde. Some names are not UTF-8: a "
            "spreadsheet must save them as CSV UTF-8",
        ),
        ("file,cluster\na,1\na,1\n", "has a twice"),
        ("file,cluster\na,1\nb\rc,1\n", "cannot be read as CSV after its line 3"),
        (
            "file,cluster,original_cluster\nfolder/005.png,1,9\n",
            "is of another fit, whose clusters have other numbers",
        ),
    ],
    ids=[
        "empty",
        "no file",
        "others",
        "no number",
        "two names",
        "cp1252",
        "twice",
        "CR",
        "fit",
    ],
)
def test_a_table_that_cannot_be_opened_says_why(
    open_page, browser, tmp_path, text, why
):
    _, find = open_page("clusters")
    table = tmp_path / "mine.csv"
    table.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert opened(browser, find, table) == f"mine.csv {why}"
    assert not find("#edits")[0].is_displayed()


def test_a_name_is_kept_if_the_page_is_left_while_it_is_typed(open_page, between):
    browser, find = open_page("clusters", between)
    find("[data-cluster='0'] h3 a")[0].click()
    find("#rename")[0].send_keys("round")
    browser.back()
    wait(lambda: find("[data-cluster='0'] h3")[0].text == "round")
    find("[data-cluster='1'] h3 a")[0].click()
    find("#rename")[0].send_keys("dark")
    browser.refresh()
    wait(lambda: find("#cluster-title")[0].text == "dark")


def test_the_focus_is_never_lost(open_page, between):
    enter, right, escape = "\ue007", "\ue014", "\ue00c"
    browser, find = open_page("clusters", between)

    def focused():
        return browser.switch_to.active_element

    find("[data-cluster='2'] h3 a")[0].send_keys(enter)
    wait(lambda: focused() == find("#cluster-title")[0])
    # The address changes before the page does.
    find("[data-filter=between]")[0].send_keys(enter)
    (pressed,) = wait(lambda: find("[data-filter=between][aria-pressed=true]"))
    assert focused() == pressed
    find("#seconds .chip")[0].send_keys(enter)
    (pressed,) = wait(lambda: find("[data-second='1'][aria-pressed=true]"))
    assert focused() == pressed
    find("#gallery .thumb")[0].send_keys(enter)
    find("#detail-close")[0].send_keys(right, escape)
    wait(lambda: focused() == find("#gallery .thumb")[1])
    # If the image was moved, the one after it.
    find("[data-filter=certain]")[0].send_keys(enter)
    wait(lambda: find("[data-filter=certain][aria-pressed=true]"))
    first, second, *_ = ids(browser, "#gallery")
    find("#gallery .thumb")[0].send_keys(enter)
    find("#detail-move option[value='0']")[0].click()
    find("#detail-move button")[0].send_keys(enter)
    find("#detail-close")[0].send_keys(escape)
    wait(lambda: focused() == find(f"#gallery [data-i='{second}']")[0])
    find("#undo")[0].click()
    wait(lambda: ids(browser, "#gallery")[0] == first)
    find("#rename")[0].send_keys("few", enter)
    assert focused() == find("#rename")[0]
    find("#undo")[0].send_keys(enter)
    assert focused() == find("#cluster-title")[0]
    find("#merge-into option[value='0']")[0].click()
    find("#merge")[0].send_keys(enter)
    wait(lambda: browser.current_url.endswith("#cluster/0"))
    assert focused() == find("#cluster-title")[0]
    # Back in the list, at the card.
    find("section:not([hidden]) .back")[0].send_keys(enter)
    wait(lambda: focused() == find("[data-cluster='0'] h3 a")[0])


def test_changes_are_told(open_page, between):
    _, find = open_page("cluster/0", between)
    told = find("[role=status]#told")[0]
    assert told.is_displayed()  # before there is anything to tell
    assert not told.get_attribute("textContent")
    for name in ["round", "dark"]:
        find("#rename")[0].clear()
        find("#rename")[0].send_keys(f"{name}\ue007")
        assert told.get_attribute("textContent") == f"Renamed: Cluster 0 to {name}"
    find("#undo")[0].click()
    assert told.get_attribute("textContent") == "Undone"


def test_changes_that_the_browser_does_not_keep_are_not_lost_silently(open_page):
    browser, find = open_page("cluster/0")
    browser.execute_script(
        "Storage.prototype.setItem = () => { throw new DOMException(); }"
    )

    def may_leave():
        return browser.execute_script(
            "return dispatchEvent(new Event('beforeunload', { cancelable: true }))"
        )

    find("#rename")[0].send_keys("round")  # and is still there
    assert not may_leave()
    assert "does not keep your changes" in find("#edits-note")[0].text
    downloaded(browser, find)
    assert may_leave()
    assert "does not keep" not in find("#edits-note")[0].text
    find("#undo")[0].click()
    assert may_leave()


def test_another_theme_keeps_what_is_selected_and_typed(open_page, between):
    browser, find = open_page("cluster/0", between)
    find("#pick")[0].click()
    wait(lambda: find("#gallery .thumb"))[0].click()
    find("#rename")[0].send_keys("rou")
    browser.execute_script("""
        matchMedia("(prefers-color-scheme: dark)").onchange = (event) => {
          window.scheme = event.matches ? "dark" : "light";
        };""")
    for scheme in ("dark", "light"):  # as on paper, too
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        wait(lambda s=scheme: browser.execute_script("return window.scheme") == s)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert find("#picked-note")[0].text == "1 image selected"
    assert find("#rename")[0].get_attribute("value") == "rou"


@pytest.mark.parametrize("width", [360, 820])
def test_bars_cover_nothing(open_page, width):
    browser, find = open_page("cluster/0")
    size = {"width": width, "height": 400, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    find("#pick")[0].click()
    find("#rename")[0].send_keys(10 * "a/long n" + "\ue007")
    script = """
        scrollTo(0, arguments[0] * document.body.scrollHeight);
        return [".bar", ".picked", "#gallery", ".edits"].map((selector) => {
          const { top, bottom } = document.querySelector(selector)
            .getBoundingClientRect();
          return [top, bottom];
        });"""
    (_, bar), (picked, _), *_ = browser.execute_script(script, 0.5)
    *_, (_, gallery), (edits, _) = browser.execute_script(script, 1)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert bar <= picked + 3
    assert gallery <= edits


def test_doubts_fit_into_a_narrow_window(open_page, between):
    browser, find = open_page("cluster/0", between)
    find("#rename")[0].send_keys(8 * "a long name " + "\ue007")
    size = {"width": 320, "height": 600, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_script("location.hash = '#clusters'")
    wait(lambda: find("#copies")[0].is_displayed())
    page = "document.documentElement"
    width = browser.execute_script(f"return {page}.scrollWidth - {page}.clientWidth")
    button, chip = find("#copies")[0].rect, find("[data-pair]")[-1].rect
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert width == 0
    assert button["y"] >= chip["y"] + chip["height"] + 8


def test_long_names_leave_room_for_what_else_is_told(open_page, between):
    browser, find = open_page("cluster/1", between)
    find("#rename")[0].send_keys(8 * "a long name " + "\ue007")
    script = """
        return [...document.querySelectorAll(arguments[0])].map((chip) => {
          const part = chip.lastElementChild.getBoundingClientRect();
          return part.right <= chip.getBoundingClientRect().right;
        });"""
    browser.execute_script("location.hash = 'clusters'")
    wait(lambda: find("#headline")[0].is_displayed())
    assert all(browser.execute_script(script, ".chip[data-kind]"))
    browser.execute_script("location.hash = 'cluster/0/between'")
    wait(lambda: find("#seconds .chip"))
    assert all(browser.execute_script(script, "#seconds .chip"))
    find("#undo")[0].click()
    browser.execute_script("location.hash = 'map'")
    wait(lambda: find("#map-plot .annotation-text"))
    find("#map-cluster option[value='1']")[0].click()
    select = "document.querySelector('#selection-move select')"
    width = browser.execute_script(f"return {select}.offsetWidth")
    browser.execute_script(f"{select}.style.maxWidth = 'none'")
    assert width == browser.execute_script(f"return {select}.offsetWidth")


def test_two_tabs_keep_the_changes_of_both(open_page, between):
    browser, find = open_page("cluster/0", between)
    first = browser.current_window_handle
    browser.switch_to.new_window("tab")
    open_page("cluster/1", between)
    find("#rename")[0].send_keys("second\ue007")
    browser.switch_to.window(first)
    wait(lambda: find("#edits-note")[0].text == "Renamed: Cluster 1 to second")
    find("#rename")[0].send_keys("first\ue007")
    browser.refresh()
    browser.execute_script("location.hash = '#clusters'")
    names = ["first", "second", "Cluster 2", "Cluster 3"]
    wait(lambda: {node.text for node in find(".card h3")} == set(names))
    for handle in set(browser.window_handles) - {first}:
        browser.switch_to.window(handle)
        browser.close()
    browser.switch_to.window(first)


def test_plots_are_as_wide_as_the_paper(open_page, page):
    browser, find = open_page("map")
    wait(lambda: find("#map-plot .points path"))
    script = """
        const plot = document.querySelector("#map-plot");
        plot.style.width = arguments[0];
        dispatchEvent(new Event(arguments[1]));
        const right = (node) => node.getBoundingClientRect().right;
        const points = [...plot.querySelectorAll(".points path")];
        return [Math.max(...points.map(right)), right(plot)];"""
    on_screen, _ = browser.execute_script(script, "", "afterprint")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    last, edge = browser.execute_script(script, "300px", "beforeprint")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert last <= edge < on_screen
    last, _ = browser.execute_script(script, "", "afterprint")
    assert last == on_screen


def test_print_and_forced_colours_keep_pictures_and_marks(open_report, digits):
    mice, X, *_ = digits
    two_classes = np.arange(len(X)) % 2  # in each cluster
    browser, find = open_report("cluster/1", mice, X, y=two_classes)
    wait(lambda: find("#gallery .thumb"))
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert len(re.findall(rb"/Subtype ?/Image", pdf)) >= len(find("#gallery .thumb"))
    feature = {"name": "forced-colors", "value": "active"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def background(selector):
        return find(selector)[0].value_of_css_property("background-color")

    pressed, other = "#filters [aria-pressed=true]", "#filters [aria-pressed=false]"
    assert background(pressed) != background(other)
    marked = wait(lambda: find("#gallery .thumb.other .pic"))[0]
    assert marked.value_of_css_property("box-shadow") != "none"
    browser.execute_script("location.hash = '#clusters'")
    wait(lambda: find(".meter i"))
    assert background(".meter i") != background(".meter")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.parametrize("shape", [(100, 4), (4, 100)], ids=["tall", "wide"])
def test_pictures_of_an_extreme_shape_can_be_seen_and_clicked_on(open_report, shape):
    X = np.random.default_rng(0).integers(0, 256, (9, *shape), np.uint8)
    _, find = open_report("cluster/0", fitted_to(X), X)
    box = wait(lambda: find("#gallery .thumb"))[0].size
    assert 24 <= box["height"] <= 2 * box["width"] + 1


def test_a_long_name_is_cut_on_the_map(open_page):
    browser, find = open_page("cluster/0")
    find("#rename")[0].send_keys(40 * "long " + "\ue007")
    browser.execute_script("location.hash = '#map'")
    points = wait(lambda: find("#map-plot .points path"))
    lefts = [point.rect["x"] for point in points]
    assert np.ptp(lefts) > find("#map-plot")[0].size["width"] / 4
    captions = [node.text for node in find("#map-plot .annotation-text")]
    assert any(text.startswith("long long") and text[-1] == "…" for text in captions)


def test_training_and_both_themes(open_page):
    browser, find = open_page("training")
    wait(lambda: len(find("#curves .js-plotly-plot .scatterlayer")) >= 2)
    colours = set()
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        colours.add(find("body")[0].value_of_css_property("background-color"))
    assert len(colours) == 2
    wait(lambda: len(find("#curves .js-plotly-plot .scatterlayer")) >= 2)
