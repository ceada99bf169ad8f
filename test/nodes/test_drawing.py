# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Results in a picture of their frame."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.nodes.tasks import drawing
from jetson_dnn_rt.nodes.tasks.drawing import (
    caption_objects,
    class_color,
    color_objects,
    draw_results,
    mask_color,
)
from jetson_dnn_rt.results import Classification, Detections, Segmentation

GREY = np.full((96, 128, 3), 90, np.uint8)
LABELS = ("road", "sky")
MASK = np.zeros((96, 128), np.uint8)
MASK[:, 64:] = 1
SCORES = np.array([0.9, 0.5], np.float32)
# The second has a class without a name.
BOXES = Detections(
    np.array([[10, 30, 60, 80], [70, 40, 90, 60]], np.float32), SCORES, np.array([1, 7])
)


def beside(**parts):
    return Detections(BOXES.boxes, BOXES.scores, BOXES.class_ids, **parts)


def draw(result, labels=LABELS):
    """The picture, and where it differs from the frame."""
    picture = draw_results(Frame(GREY, "bgr8", 0, 0), [(result, labels)])
    return picture, np.any(picture != GREY, axis=2)


INSTANCES = np.zeros((96, 128), np.uint16)
INSTANCES[35:75, 15:55], INSTANCES[45:55, 75:85] = 1, 2
# A point that is sure, one that is not, one outside the picture, one that is no number.
POINTS = [[20, 40, 0.9], [30, 50, 0.3], [1e12, -4, 1], [np.nan, 40, 1]]
KEYPOINTS = np.array([POINTS, [[80, 50, 1]] * 4], np.float32)
# A square of 30 on its edge: its corners are at 35 +- 21, its sides at 35 +- 15 along the axes.
TURNED = np.array([[35, 55, 30, 30, np.pi / 4], [80, 50, 20, 20, 0]], np.float32)


@pytest.mark.parametrize(
    ("result", "touched", "untouched"),
    [
        (BOXES, [(50, 10), (50, 90)], [(50, 35), (90, 120)]),
        (beside(instance_mask=INSTANCES), [(50, 35), (50, 80)], [(33, 13), (90, 120)]),
        (beside(keypoints=KEYPOINTS), [(40, 20), (50, 80)], [(50, 30), (90, 120)]),
        (beside(rotated=TURNED), [(55, 14), (55, 56), (76, 35)], [(75, 15), (40, 15), (55, 35)]),
        # Of two classes the first is not painted.
        (Segmentation(MASK), [(10, 100)], [(10, 10), (90, 60)]),
        (Classification(np.array([1, 0]), SCORES), [(8, 12)], [(90, 120)]),
        # More classes than labels.
        (Classification(np.array([7, 0]), SCORES), [(8, 12)], [(90, 120)]),
        (Detections.empty(), [], [(50, 10), (50, 35)]),
    ],
)
def test_results_are_drawn_into_a_copy(result, touched, untouched):
    out = np.empty_like(GREY)
    picture = draw_results(Frame(GREY, "bgr8", 0, 0), [(result, LABELS)], out)
    assert picture is out
    changed = np.any(picture != GREY, axis=2)
    assert all(changed[place] for place in touched)
    assert not any(changed[place] for place in untouched)
    assert np.all(GREY == 90)


@pytest.mark.parametrize(
    ("labels", "painted"),
    [
        (("__background__", "cat", "dog"), {1, 2}),
        (("cat", "Background", "dog"), {0, 2}),
        (("cat", "dog", "cow"), {0, 1, 2}),
        (("background", "cat"), {1}),
        (("cat", "background"), {0}),
        (("class_0", "class_1"), {1}),
    ],
)
def test_background_is_not_painted_over_the_picture(labels, painted):
    mask = np.repeat(np.arange(128, dtype=np.uint8)[None] // 43, 96, axis=0) % len(labels)
    _, changed = draw(Segmentation(mask), labels)
    row = changed[5]  # above the legend
    assert {int(mask[5, x]) for x in range(128) if row[x]} == painted
    assert {int(mask[5, x]) for x in range(128) if not row[x]} == {*mask[5].tolist()} - painted


def test_several_masks_have_different_colours():
    upper, lower = np.zeros_like(MASK), np.zeros_like(MASK)
    upper[:30], lower[60:] = 1, 1
    second = Segmentation(lower, name="ll", classes=2)
    both = Segmentation(upper, name="da", classes=2, others=(second,))
    picture, changed = draw(both, ("class_0", "class_1"))
    assert [bool(changed[row, 100]) for row in (5, 45, 90)] == [True, False, True]
    assert picture[5, 100].tolist() != picture[90, 100].tolist()
    alone, _ = draw(Segmentation(upper), ("class_0", "class_1"))
    np.testing.assert_array_equal(alone[:45], picture[:45])


def test_captions_and_colours_follow_tracks():
    tracked = beside(track_ids=np.array([12, -1]))
    assert caption_objects(tracked, LABELS) == ["sky 0.90 #12", "class_7 0.50"]
    assert color_objects(tracked) == [class_color(1), class_color(7)]
    masked = beside(track_ids=np.array([12, -1]), instance_mask=INSTANCES)
    assert color_objects(masked) == [class_color(12), class_color(1)]


def texts_of(result, labels, status="", size=(240, 320)):
    """The texts that were drawn, and their rectangles: left, top, right, bottom."""
    drawn = []
    picture = np.full((*size, 3), 90, np.uint8)
    with pytest.MonkeyPatch.context() as patch:
        rectangles = []

        def note(image, low, high, *style):
            rectangles.append((*low, *high))

        patch.setattr(drawing.cv2, "rectangle", note)
        patch.setattr(drawing.cv2, "putText", lambda image, text, *style: drawn.append(text))
        draw_results(Frame(picture, "bgr8", 0, 0), [(result, labels)], None, status)
    return dict(zip(drawn, rectangles, strict=True))


def test_no_text_covers_another():
    """Of two boxes that are nearly the same, one at the top, and a line of status."""
    places = [[10, 30, 60, 80], [12, 31, 62, 82], [14, 33, 60, 84], [5, 0, 90, 40]]
    scores = np.array([0.9, 0.8, 0.7, 0.6], np.float32)
    found = Detections(np.array(places, np.float32), scores, np.arange(4))
    texts = texts_of(found, ("a", "b", "c", "d"), "detector 3 ms met")
    assert list(texts) == ["detector 3 ms met", "a 0.90", "b 0.80", "c 0.70", "d 0.60"]
    taken = np.zeros((240, 320), int)
    for left, top, right, bottom in texts.values():
        assert 0 <= left < right < 320
        assert 0 <= top < bottom < 240
        taken[top : bottom + 1, left : right + 1] += 1
    assert taken.max() == 1
    assert texts["a 0.90"][3] < 30  # the best one has its place above its box


def test_captions_without_a_place_are_left_out_and_boxes_are_not():
    count = 50
    found = Detections(
        np.tile(np.float32([[10, 30, 60, 80]]), (count, 1)),
        np.linspace(1, 0.51, count, dtype=np.float32),
        np.zeros(count, np.int64),
    )
    texts = texts_of(found, ("car",))
    assert 5 < len(texts) < 15
    assert next(iter(texts)) == "car 1.00"


def test_lines_and_texts_grow_with_the_picture():
    def height(size):
        _, top, _, bottom = texts_of(BOXES, LABELS, "status", size)["status"]
        return bottom - top

    assert 8 < height((240, 320)) < height((720, 1280)) < height((2160, 3840)) / 2


def test_outlines_of_turned_boxes_turn_from_x_to_y():
    found = beside(rotated=np.array([[10, 20, 8, 2, 0], [0, 0, 4, 2, np.pi / 2]], np.float32))
    assert found.outlines[0].tolist() == [[6, 19], [14, 19], [14, 21], [6, 21]]
    # The width, which lay to the right, now points down.
    expected = [[1, -2], [1, 2], [-1, 2], [-1, -2]]
    np.testing.assert_allclose(found.outlines[1], expected, atol=1e-6)
    assert BOXES.outlines[0].tolist() == [[10, 30], [60, 30], [60, 80], [10, 80]]
    assert Detections.empty().outlines.shape == (0, 4, 2)


def test_classes_that_are_often_together_have_colours_that_are_far_apart():
    """Car, truck and the mask of a road were nearly one green."""

    def find_lab(color):
        return cv2.cvtColor(np.float32([[color]]) / 255, cv2.COLOR_BGR2LAB)[0, 0]

    boxes = [class_color(class_id) for class_id in range(10)]
    masks = [mask_color(class_id) for class_id in range(8)]
    labs = np.array([find_lab(color) for color in (*boxes, *masks)])
    apart = np.linalg.norm(labs[:, None] - labs[None], axis=2) + 1e3 * np.eye(len(labs))
    # A difference of 2 can just be seen; that of car and truck was 27.
    assert apart.min() > 30
    assert min(apart[2, 7], apart[3, 8]) > 60


def test_a_mask_beside_boxes_has_other_colours():
    found = Detections(BOXES.boxes, BOXES.scores, np.array([1, 1]))
    _, changed = draw(Segmentation(MASK))
    picture, _ = draw(Segmentation(MASK))
    assert changed[10, 100]
    paint = picture[10, 100].astype(float) - 0.65 * GREY[10, 100]
    assert np.abs(paint / 0.35 - class_color(1)).max() > 80
    assert color_objects(found) == [class_color(1)] * 2
