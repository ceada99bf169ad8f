# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Heads: recognised by shapes, decoded from outputs written by hand, masks pixel by pixel."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_dnn_rt.config.declaration import describe
from jetson_dnn_rt.config.task import MAX_DETECTIONS, TaskConfig
from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.heads.base import DecoderSettings, Inspected, count_cells
from jetson_dnn_rt.models.heads.boxes import finish
from jetson_dnn_rt.models.heads.logits import MaskDecoder
from jetson_dnn_rt.models.heads.registry import LAYOUTS, recognise_head
from jetson_dnn_rt.models.input.preprocessing import Geometry, Preprocessing
from jetson_dnn_rt.results import Classification, Detections


def zeros(*shapes):
    return [np.zeros(shape, np.float32) for shape in shapes]


def yolox(rows, raw):
    output = np.full((1, rows, 85), 0.3, np.float32)
    output[..., :4] = 20.0
    if raw:
        output[0, 17, 2] = -0.4
    return [output]


LISTS = [np.zeros((7, 4), np.float32), np.zeros(7, np.int64), np.zeros(7, np.float32)]


@pytest.mark.parametrize(
    ("outputs", "size", "name", "classes"),
    [
        (yolox(3549, True), (416, 416), "yolox", 80),
        (yolox(3549, False), (416, 416), "yolox_decoded", 80),
        (yolox(8400, True), (640, 640), "yolox", 80),
        (zeros((1, 25200, 85)), (640, 640), "yolov5", 80),
        (zeros((1, 25200, 6)), (640, 640), "yolov5", 1),
        (zeros((1, 10647, 85)), (416, 416), "yolov5", 80),
        (zeros((1, 102000, 85)), (1280, 1280), "yolov5", 80),  # four strides
        (zeros((1, 25200, 85), (1, 3, 80, 80, 85), (1, 3, 40, 40, 85)), (640, 640), "yolov5", 80),
        (zeros((1, 84, 8400)), (640, 640), "yolov8", 80),
        (zeros((1, 5, 5040)), (384, 640), "yolov8", 1),
        (LISTS, (320, 320), "torchvision", 0),
        ([LISTS[0], LISTS[2], LISTS[1]], (320, 320), "torchvision", 0),
        (zeros((1, 1200, 4), (1, 1200, 5)), (240, 320), "boxes_scores", 5),
        (zeros((1, 8, 120, 160)), (240, 320), "segmentation", 8),
        (zeros((1, 21, 65, 65)), (520, 520), "segmentation", 21),
        (zeros((1, 1000)), (224, 224), "classification", 1000),
    ],
)
def test_recognised(outputs, size, name, classes):
    head = recognise_head(Inspected(outputs, size))
    assert (head.name, head.classes) == (name, classes)
    assert head.reason
    assert recognise_head(Inspected(outputs, size), name, LAYOUTS[name].kind).name == name


UNKNOWN = (
    zeros((1, 84, 8401)), zeros((2, 84, 8400)), zeros((1, 257, 64, 64)), zeros((1, 2, 64, 16)),
    zeros((7, 4), (7,), (7,)),  # no integer labels
    zeros((1, 10, 4), (1, 11, 3)), zeros((1,)), [],
)  # fmt: skip


@pytest.mark.parametrize("outputs", UNKNOWN)
def test_unknown_outputs_are_named_in_one_line(outputs):
    with pytest.raises(ModelError, match=r"fit no known head, which .*inspect.* lists") as raised:
        recognise_head(Inspected(outputs, (640, 640)))
    assert "fix: set head to package.module:Class" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_head_or_a_task_can_be_asked_for():
    outputs = yolox(3549, raw=True)
    assert recognise_head(Inspected(outputs, (416, 416)), "yolox_decoded").name == "yolox_decoded"
    rows = Inspected(zeros((1, 25200, 85)), (640, 640))
    with pytest.raises(ModelError, match=r"'yolov8' needs .*look like 'yolov5'"):
        recognise_head(rows, "yolov8")
    with pytest.raises(ModelError, match="'yolo' is unknown, known are auto, yolox"):
        recognise_head(rows, "yolo")
    with pytest.raises(ModelError, match="model for classification, this one is for detection"):
        recognise_head(rows, kind="classification")


SIZE = (128, 160)

# In pixels of the input; the source is twice as large, so nothing is padded.
BOXES = np.array([[20, 30, 60, 90], [100, 40, 140, 60], [8, 8, 24, 24]], np.float32)

CLASSES = np.array([2, 0, 1])

SCORES = np.array([0.9, 0.8, 0.5], np.float32)

GEOMETRY = Geometry.of(Preprocessing(*SIZE), SIZE[0] * 2, SIZE[1] * 2)

N_CLASSES = 3

CELLS = count_cells(*SIZE, (8, 16, 32))


def to_centers(boxes):
    return np.concatenate([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]], 1)


def make_rows(rows, indices, objectness=0.95):
    """[1, N, 4+C], or 5+C with an objectness, at `indices`, and low noise elsewhere."""
    first = 4 if objectness is None else 5
    output = np.full((1, rows, first + N_CLASSES), 0.01, np.float32)
    for index, box, label, score in zip(indices, to_centers(BOXES), CLASSES, SCORES, strict=True):
        output[0, index, :first] = (*box, objectness or 0)[:first]
        output[0, index, first + label] = score / (objectness or 1.0)
    return output


def make_yolox_raw():
    output = np.zeros((1, CELLS, 5 + N_CLASSES), np.float32)
    levels = [(8, 0), (16, 16 * 20), (32, 16 * 20 + 8 * 10)]
    for i, box in enumerate(to_centers(BOXES)):
        stride, start = levels[i % 3]
        column, row = int(box[0] // stride), int(box[1] // stride)
        index = start + row * (SIZE[1] // stride) + column
        output[0, index, :2] = box[:2] / stride - (column, row)
        output[0, index, 2:4] = np.log(box[2:] / stride)
        output[0, index, 4] = 0.95
        output[0, index, 5 + CLASSES[i]] = SCORES[i] / 0.95
    return [output]


COLUMNS = make_rows(CELLS, [5, 100, 399], None)

LISTED = COLUMNS[:, :, :4] @ [[1, 0, 1, 0], [0, 1, 0, 1], [-0.5, 0, 0.5, 0], [0, -0.5, 0, 0.5]]

OUTPUTS = {
    "yolox": make_yolox_raw(),
    "yolox_decoded": [make_rows(CELLS, [0, 7, CELLS - 1])],
    "yolov5": [make_rows(3 * CELLS, [0, 7, 3 * CELLS - 1])],
    "yolov8": [COLUMNS.transpose(0, 2, 1)],
    "torchvision": [BOXES, CLASSES.astype(np.int64), SCORES],
    "boxes_scores": [LISTED.astype(np.float32), COLUMNS[:, :, 4:]],
}


def decode(name, outputs, geometry=GEOMETRY, **settings):
    decoder = recognise_head(Inspected(outputs, SIZE), name).make_decoder()
    result = decoder(outputs, geometry, DecoderSettings(**settings))
    assert isinstance(result, Detections)
    return result


@pytest.mark.parametrize("name", OUTPUTS)
def test_known_boxes(name):
    outputs = [output.copy() for output in OUTPUTS[name]]
    found = decode(name, outputs, confidence=0.3)
    for output in outputs:
        output[...] = 0  # the runner's memory, which the next frame overwrites
    np.testing.assert_allclose(found.boxes, BOXES * 2, atol=1e-3)
    np.testing.assert_allclose(found.scores, SCORES, rtol=1e-5)
    np.testing.assert_array_equal(found.class_ids, CLASSES)
    assert found.boxes.dtype == found.scores.dtype == np.float32
    assert found.class_ids.dtype == np.int64
    assert len(decode(name, OUTPUTS[name], confidence=0.7)) == 2
    assert len(decode(name, OUTPUTS[name], confidence=0.95)) == 0
    assert decode(name, OUTPUTS[name], max_detections=1).class_ids.tolist() == [CLASSES[0]]


BEST_BOX = {"yolov8": (0, 2, 5), "boxes_scores": (0, 5, 2), "torchvision": (0, 2)}


@pytest.mark.parametrize("name", OUTPUTS)
def test_what_is_not_finite_is_no_object(name):
    outputs = [output.copy() for output in OUTPUTS[name]]
    best = np.argmax(outputs[0][0, :, 4] * outputs[0][0, :, 7]) if name not in BEST_BOX else 0
    outputs[0][BEST_BOX.get(name, (0, best, 2))] = np.inf
    np.testing.assert_array_equal(decode(name, outputs).class_ids, CLASSES[1:])
    for output in outputs:
        if np.issubdtype(output.dtype, np.floating):
            output[...] = np.nan
    assert len(decode(name, outputs)) == 0


def test_torchvision_outputs_in_any_order():
    boxes, labels, scores = OUTPUTS["torchvision"]
    for outputs in ([boxes, scores, labels], [labels, scores, boxes]):
        found = decode("torchvision", outputs)
        np.testing.assert_array_equal(found.class_ids, CLASSES)
        np.testing.assert_allclose(found.scores, SCORES)


def test_score_is_objectness_times_class():
    output = make_rows(3 * CELLS, [0, 7, 9])
    output[0, 0, 4] = 0.5
    found = decode("yolov5", [output], confidence=0.3)
    np.testing.assert_allclose(sorted(found.scores), sorted([0.5 * 0.9 / 0.95, 0.8, 0.5]), 1e-5)


def test_overlaps_of_one_class_go_and_of_two_stay():
    near = BOXES[:1] + 2
    boxes = np.concatenate([BOXES[:1], near, near])[None].astype(np.float32)
    scores = np.zeros((1, 3, N_CLASSES), np.float32)
    scores[0, 0, 0], scores[0, 1, 0], scores[0, 2, 1] = 0.9, 0.8, 0.7
    found = decode("boxes_scores", [boxes, scores], nms_iou=0.45)
    np.testing.assert_allclose(found.scores, [0.9, 0.7])
    assert len(decode("boxes_scores", [boxes, scores], nms_iou=1.0)) == 3


def test_thousands_of_boxes_are_bounded_and_the_best_survive():
    rng = np.random.default_rng(0)
    corners = rng.uniform(0, 100, (5000, 2)).astype(np.float32)
    boxes = np.concatenate([corners, corners + 1], 1)[None]
    scores = rng.uniform(0, 0.8, (1, 5000, N_CLASSES)).astype(np.float32)
    scores[0, 4321] = (0.0, 0.99, 0.0)
    found = decode("boxes_scores", [boxes, scores], confidence=0.0, max_detections=10)
    assert len(found) == 10
    assert found.scores[0] == np.float32(0.99)
    assert np.all(np.diff(found.scores) <= 0)


def test_as_many_boxes_come_as_the_largest_max_detections_says():
    """Of 10,000, which the documentation allowed, 1000 came."""
    (item,) = (one for one in describe(TaskConfig) if one.name == "max_detections")
    assert item.limits == (1, MAX_DETECTIONS)
    rows = np.zeros((1, 3000, 4), np.float32)
    rows[0, :, 0] = 3.0 * (np.arange(3000) % 60)
    rows[0, :, 1] = 2.0 * (np.arange(3000) // 60)
    rows[0, :, 2:] = rows[0, :, :2] + 1.0
    scores = np.full((1, 3000, 1), 0.5, np.float32)
    settings = DecoderSettings(max_detections=MAX_DETECTIONS)
    geometry = Geometry(100, 180, 100, 180, 0, 0)
    found = finish(rows[0], scores[0, :, 0], np.zeros(3000, np.int64), geometry, settings)
    assert len(found) == MAX_DETECTIONS


@pytest.mark.parametrize(
    ("mode", "boxes", "expected"),
    [  # 32 rows of padding below, or 16 above and below; nothing is found in it
        (
            "letterbox_topleft",
            [[-10, -5, 20, 30], [150, 50, 200, 90], [10, 70, 50, 120]],
            [[0, 0, 20, 30], [150, 50, 160, 64]],
        ),
        ("letterbox_center", [[10, 40, 50, 80]], [[10, 8, 50, 48]]),
    ],
)
def test_boxes_are_clipped_to_the_source(mode, boxes, expected):
    geometry = Geometry.of(Preprocessing(*SIZE, mode), 64, 160)
    scores = np.full((1, len(boxes), 1), 0.9, np.float32)
    found = decode("boxes_scores", [np.array([boxes], np.float32), scores], geometry)
    np.testing.assert_allclose(found.boxes, expected)


def test_classification_is_softmax_best_first():
    logits = np.array([[1.0, 3.0, 2.0, -50.0, 88.0]], np.float32)
    decoder = recognise_head(Inspected([logits], SIZE), "classification").make_decoder()
    result = decoder([logits], GEOMETRY, DecoderSettings(top_k=3))
    assert isinstance(result, Classification)
    np.testing.assert_array_equal(result.class_ids, [4, 1, 2])
    exact = np.exp(logits[0].astype(np.float64))
    np.testing.assert_allclose(result.scores, (exact / exact.sum())[[4, 1, 2]], rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("confidence", 1.01),
        ("confidence", np.nan),
        ("nms_iou", -0.1),
        ("max_detections", 0),
        ("max_detections", MAX_DETECTIONS + 1),
        ("top_k", 0),
    ],
)
def test_bad_settings_are_refused_and_change_nothing(name, value):
    settings = DecoderSettings()
    before = getattr(settings, name)
    with pytest.raises(ValueError, match=name):
        setattr(settings, name, value)
    assert getattr(settings, name) == before
    with pytest.raises(ValueError, match=name):
        DecoderSettings(**{name: value})


def decode_mask(logits, geometry, size):
    return MaskDecoder(size)([logits], geometry, DecoderSettings()).mask


def decode_plainly(logits, geometry, size):
    return decode_plainly_values(logits[0].argmax(axis=0), geometry, size)


def decode_plainly_values(classes, geometry, size):
    mask = np.zeros((geometry.source_height, geometry.source_width), np.uint8)
    scale_y = Fraction(geometry.resized_height, geometry.source_height)
    scale_x = Fraction(geometry.resized_width, geometry.source_width)
    for y in range(mask.shape[0]):
        row = ((y + Fraction(1, 2)) * scale_y + geometry.offset_y) * classes.shape[0] / size[0]
        for x in range(mask.shape[1]):
            column = (x + Fraction(1, 2)) * scale_x + geometry.offset_x
            mask[y, x] = classes[int(row), int(column * classes.shape[1] / size[1])]
    return mask


@given(
    mode=st.sampled_from(["letterbox_topleft", "letterbox_center", "stretch"]),
    size=st.tuples(st.integers(16, 80), st.integers(16, 80)),
    stride=st.sampled_from([1, 2, 4, 8]),
    source=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    classes=st.integers(2, 9),
    seed=st.integers(0, 100),
)
def test_every_pixel_takes_the_cell_under_its_centre(mode, size, stride, source, classes, seed):
    cells = tuple(-(-side // stride) for side in size)
    logits = np.random.default_rng(seed).standard_normal((1, classes, *cells), np.float32)
    geometry = Geometry.of(Preprocessing(*size, mode), *source)
    mask = decode_mask(logits, geometry, size)
    assert mask.dtype == np.uint8
    np.testing.assert_array_equal(mask, decode_plainly(logits, geometry, size))


def test_mask_owns_its_memory_and_follows_the_source_size():
    decoder = MaskDecoder((32, 32))
    logits = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    first = Geometry.of(Preprocessing(32, 32), 40, 50)
    mask = decoder([logits], first, DecoderSettings()).mask
    before = mask.copy()
    second = Geometry.of(Preprocessing(32, 32), 70, 20)
    assert decoder([-logits], second, DecoderSettings()).mask.shape == (70, 20)
    decoder([-logits], first, DecoderSettings())
    np.testing.assert_array_equal(mask, before)


def test_confidence_is_the_probability_of_the_class_of_each_pixel():
    logits = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    logits[0, 1, 0, 0] = 200.0  # no overflow, and certain
    geometry = Geometry.of(Preprocessing(32, 32), 40, 50)
    decoder = MaskDecoder((32, 32))
    assert decoder([logits], geometry, DecoderSettings()).confidence is None
    found = decoder([logits], geometry, DecoderSettings(confidence_image=True))
    shares = np.exp(logits[0].astype(np.float64) - logits[0].max(axis=0))
    best = 255.0 * shares.max(axis=0) / shares.sum(axis=0)
    assert found.confidence.dtype == np.uint8
    assert found.confidence.shape == found.mask.shape == (40, 50)
    assert found.confidence[0, 0] == 255
    np.testing.assert_array_equal(
        found.confidence, decode_plainly_values(np.rint(best).astype(np.uint8), geometry, (32, 32))
    )


@pytest.mark.parametrize("classes", [2, 256])
def test_the_last_class_and_the_first_of_equal_ones(classes):
    logits = np.zeros((1, classes, 16, 16), np.float32)
    geometry = Geometry.of(Preprocessing(16, 16), 16, 16)
    assert np.all(decode_mask(logits, geometry, (16, 16)) == 0)
    logits[0, classes - 1] = 1.0
    assert np.all(decode_mask(logits, geometry, (16, 16)) == classes - 1)
