"""What the page says is to be doubted."""

from dataclasses import replace

import numpy as np
from report_page import reading

from sk_mice.inspection import _doubts, _reading


def test_nothing_to_doubt():
    assert _doubts.doubts(reading([0] * 10 + [1] * 10, 1.0, 2)) == []


def test_doubts_are_sentences_about_clusters():
    labels = np.repeat([0, 1, 2, 3, 4], [400, 50, 50, 5, 40])
    confidence = np.where(labels == 2, 0.5, 1.0)
    second = np.select([labels == 1, labels == 4], [4, 1], -1)
    share = np.where(second >= 0, 0.3, 0)
    found = _doubts.doubts(reading(labels, confidence, 6, second, share))
    assert [(doubt.sentence.split(":")[0], doubt.clusters) for doubt in found] == [
        ("Empty", [(5, "", "", None)]),
        ("Small", [(3, "5 images", "", None)]),
        ("Large", [(0, "400 images", "", None)]),
        ("Unsure", [(2, "50%", "", None)]),
        ("Shared members", [(1, "90 images", "between", 4)]),
    ]


def test_noise_may_be_small_unsure_and_of_several_classes():
    labels = np.repeat([0, 1, 2, 3], [30, 4, 4, 30])
    found = reading(labels, 0.5, 4)
    classes = np.arange(68) % 2
    for noise, expected in (None, {0, 1, 2, 3}), (1, {0, 2, 3}):
        found = replace(found, noise=noise)
        chips = {
            d.kind: {c.cluster for c in d.clusters}
            for d in _doubts.doubts(found, codes=classes)
        }
        assert chips["unsure"] == chips["classes"] == expected
        assert chips["small"] == expected & {1, 2}


def test_the_most_doubtful_clusters_come_first():
    labels = np.repeat(np.arange(4), 10)
    confidence = np.repeat([0.6, 0.9, 0.2, 0.5], 10)
    (doubt,) = _doubts.doubts(reading(labels, confidence, 4))
    assert [chip.cluster for chip in doubt.clusters] == [2, 3, 0]
    labels = np.repeat(np.arange(12), [50, 60, *10 * [4]])
    (doubt,) = _doubts.doubts(reading(labels, 1.0, 12))
    assert [chip.cluster for chip in doubt.clusters] == [1, 0]


def test_halves_are_rounded_up_as_on_the_page():
    labels = np.repeat([0, 1], 20)
    shares = np.repeat([0.625, 0.645], 20).astype(np.float32)
    (doubt,) = _doubts.doubts(reading(labels, shares, 2))
    assert [chip.detail for chip in doubt.clusters] == ["63%", "65%"]


def test_a_mean_that_is_shown_as_the_limit_is_not_below_it():
    seven_of_ten = np.full(20, 0.7, np.float32)  # a little less than 0.7 in float64
    labels = np.repeat([0, 1], 10)
    assert _doubts.doubts(reading(labels, seven_of_ten, 2)) == []
    assert _doubts.doubts(reading(labels, 0.696, 2)) == []
    (doubt,) = _doubts.doubts(reading(labels, 0.694, 2))
    assert [chip.detail for chip in doubt.clusters] == ["69%", "69%"]


def test_clusters_that_share_members_are_paired():
    labels, second = np.repeat(np.arange(4), 10), np.full(40, -1)
    second[0:3], second[10:15] = 1, 0  # more of 1 are near 0 than the other way round
    second[20:24] = 3
    second[3] = 2  # one image is not enough
    second[30:33] = 4  # which is empty
    empty, pairs = _doubts.doubts(reading(labels, 1.0, 5, second, 0.2))
    assert empty.kind == "empty"
    assert pairs.clusters == [
        (1, "8 images", "between", 0),
        (2, "4 images", "between", 3),
    ]
    assert pairs.sentence.endswith(
        "at least 20% of the views are in the other cluster."
    )
    assert len(_doubts.doubts(reading(labels, 1.0, 5, second, 0.19))) == 1


def test_a_cluster_of_one_image_has_no_agreement():
    labels = np.repeat([0, 1, 2], [20, 19, 1])
    shares = np.eye(3)[np.minimum(labels, 1)]
    args = shares, shares, np.eye(40)
    found = _reading.from_shares(labels, *args, _reading.OF_NEIGHBORS)
    assert [doubt.clusters for doubt in _doubts.doubts(found)] == [
        [(2, "1 image", "", None)]
    ]
    assert (found.second[-1], found.second_share[-1]) == (1, 1)


def test_a_cluster_of_one_image_is_not_large():
    (doubt,) = _doubts.doubts(reading([0], 1.0, 4))
    assert doubt.kind == "empty"


def test_clusters_of_several_classes_are_doubted():
    labels = np.repeat([0, 1], 10)
    codes = np.array([0] * 7 + [-1] * 3 + [0] * 3 + [1] * 7)
    (doubt,) = _doubts.doubts(reading(labels, 1.0, 2), codes=codes)
    assert doubt.sentence.startswith("Several classes: fewer than 80%")
    assert doubt.clusters == [(1, "70%", "other", None)]
    shown_as_80 = np.repeat([0, 1], [74, 19])
    assert _doubts.doubts(reading(0 * shown_as_80, 1.0, 1), codes=shown_as_80) == []


def test_pairs_that_are_left_out_are_counted():
    pairs = np.array([[0, k] for k in range(1, 121)])
    (few,) = _doubts.doubt_of_duplicates("images", pairs[:100])
    same = "101 images are nearly the same as another one at 16 x 16 pixels"
    assert few.sentence == f"{same}."
    (many,) = _doubts.doubt_of_duplicates("images", pairs)
    assert many.sentence.endswith(
        "at 16 x 16 pixels; the first 100 of 120 pairs found."
    )
    assert few.pairs == many.pairs == pairs[:100].tolist()
