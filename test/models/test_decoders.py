"""Each head on outputs written by hand for known boxes."""

from __future__ import annotations

import numpy as np
import pytest

from jetson_dnn_rt.models.heads.base import DecoderSettings, count_cells
from jetson_dnn_rt.models.heads.registry import Head
from jetson_dnn_rt.models.input.preprocessing import Geometry, Preprocessing
from jetson_dnn_rt.results import Classification, Detections

SIZE = (128, 160)
# In pixels of the input; the source is twice as large, so nothing is padded.
BOXES = np.array([[20, 30, 60, 90], [100, 40, 140, 60], [8, 8, 24, 24]], np.float32)
CLASSES = np.array([2, 0, 1])
SCORES = np.array([0.9, 0.8, 0.5], np.float32)
GEOMETRY = Geometry.of(Preprocessing(*SIZE), SIZE[0] * 2, SIZE[1] * 2)
N_CLASSES = 3


def to_centers(boxes: np.ndarray) -> np.ndarray:
    return np.concatenate([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]], 1)


def make_rows(rows: int, indices: list[int]) -> np.ndarray:
    """[1, N, 5+C] with objectness 0.95 at `indices`, and low noise elsewhere."""
    output = np.zeros((1, rows, 5 + N_CLASSES), np.float32)
    output[0, :, 4] = 0.01
    for index, box, label, score in zip(indices, to_centers(BOXES), CLASSES, SCORES, strict=True):
        output[0, index, :4] = box
        output[0, index, 4] = 0.95
        output[0, index, 5 + label] = score / 0.95
    return output


def make_yolox_raw() -> list[np.ndarray]:
    output = np.zeros((1, count_cells(*SIZE, (8, 16, 32)), 5 + N_CLASSES), np.float32)
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


def make_boxes_scores() -> list[np.ndarray]:
    boxes = np.zeros((1, 50, 4), np.float32)
    scores = np.full((1, 50, N_CLASSES), 0.02, np.float32)
    for i, index in enumerate((3, 20, 49)):
        boxes[0, index] = BOXES[i]
        scores[0, index, CLASSES[i]] = SCORES[i]
    return [boxes, scores]


def make_yolov8() -> list[np.ndarray]:
    output = np.full((1, 4 + N_CLASSES, count_cells(*SIZE, (8, 16, 32))), 0.02, np.float32)
    for i, index in enumerate((5, 100, 399)):
        output[0, :4, index] = to_centers(BOXES)[i]
        output[0, 4 + CLASSES[i], index] = SCORES[i]
    return [output]


CELLS = count_cells(*SIZE, (8, 16, 32))
OUTPUTS = {
    "yolox": make_yolox_raw(),
    "yolox_decoded": [make_rows(CELLS, [0, 7, CELLS - 1])],
    "yolov5": [make_rows(3 * CELLS, [0, 7, 3 * CELLS - 1])],
    "yolov8": make_yolov8(),
    "torchvision": [BOXES, CLASSES.astype(np.int64), SCORES],
    "boxes_scores": make_boxes_scores(),
}


def decode(
    name: str, outputs: list[np.ndarray], geometry: Geometry = GEOMETRY, **settings: float
) -> Detections:
    decoder = Head(name, N_CLASSES, "").create_decoder(SIZE)
    result = decoder(outputs, geometry, DecoderSettings(**settings))
    assert isinstance(result, Detections)
    return result


@pytest.mark.parametrize("name", OUTPUTS)
def test_known_boxes(name: str) -> None:
    found = decode(name, OUTPUTS[name], confidence=0.3)
    np.testing.assert_allclose(found.boxes, BOXES * 2, atol=1e-3)
    np.testing.assert_allclose(found.scores, SCORES, rtol=1e-5)
    np.testing.assert_array_equal(found.class_ids, CLASSES)
    assert found.boxes.dtype == found.scores.dtype == np.float32
    assert found.class_ids.dtype == np.int64


@pytest.mark.parametrize("name", OUTPUTS)
def test_confidence_cuts(name: str) -> None:
    assert len(decode(name, OUTPUTS[name], confidence=0.7)) == 2
    assert len(decode(name, OUTPUTS[name], confidence=0.95)) == 0


@pytest.mark.parametrize("name", OUTPUTS)
def test_max_detections_keeps_the_best(name: str) -> None:
    found = decode(name, OUTPUTS[name], max_detections=1)
    np.testing.assert_array_equal(found.class_ids, CLASSES[:1])


@pytest.mark.parametrize("name", OUTPUTS)
def test_results_do_not_share_the_runners_memory(name: str) -> None:
    outputs = [output.copy() for output in OUTPUTS[name]]
    found = decode(name, outputs)
    before = found.boxes.copy(), found.scores.copy(), found.class_ids.copy()
    for output in outputs:
        output[...] = 0
    for one, other in zip((found.boxes, found.scores, found.class_ids), before, strict=True):
        np.testing.assert_array_equal(one, other)
        assert not any(np.shares_memory(one, output) for output in outputs)


@pytest.mark.parametrize("name", OUTPUTS)
def test_not_a_number_is_no_object(name: str) -> None:
    outputs = [output.copy() for output in OUTPUTS[name]]
    for output in outputs:
        if np.issubdtype(output.dtype, np.floating):
            output[...] = np.nan
    assert len(decode(name, outputs)) == 0


@pytest.mark.parametrize("name", OUTPUTS)
def test_boxes_without_end_are_dropped(name: str) -> None:
    outputs = [output.copy() for output in OUTPUTS[name]]
    if name == "yolov8":
        outputs[0][0, 2, 5] = np.inf
    elif name == "boxes_scores":
        outputs[0][0, 3, 2] = np.inf
    elif name == "torchvision":
        outputs[0][0, 2] = np.inf
    else:
        best = np.argmax(outputs[0][0, :, 4] * outputs[0][0, :, 5 + 2])
        outputs[0][0, best, 2] = np.inf
    np.testing.assert_array_equal(decode(name, outputs).class_ids, CLASSES[1:])


def test_score_is_objectness_times_class() -> None:
    output = make_rows(3 * CELLS, [0, 7, 9])
    output[0, 0, 4] = 0.5
    found = decode("yolov5", [output], confidence=0.3)
    np.testing.assert_allclose(sorted(found.scores), sorted([0.5 * 0.9 / 0.95, 0.8, 0.5]), 1e-5)


def test_overlaps_of_one_class_go_and_of_two_stay() -> None:
    near = BOXES[:1] + 2
    boxes = np.concatenate([BOXES[:1], near, near])[None].astype(np.float32)
    scores = np.zeros((1, 3, N_CLASSES), np.float32)
    scores[0, 0, 0], scores[0, 1, 0], scores[0, 2, 1] = 0.9, 0.8, 0.7
    found = decode("boxes_scores", [boxes, scores], nms_iou=0.45)
    np.testing.assert_allclose(found.scores, [0.9, 0.7])
    assert len(decode("boxes_scores", [boxes, scores], nms_iou=1.0)) == 3


def test_thousands_of_boxes_are_bounded_and_the_best_survive() -> None:
    rng = np.random.default_rng(0)
    corners = rng.uniform(0, 100, (5000, 2)).astype(np.float32)
    boxes = np.concatenate([corners, corners + 1], 1)[None]
    scores = rng.uniform(0, 0.8, (1, 5000, N_CLASSES)).astype(np.float32)
    scores[0, 4321] = (0.0, 0.99, 0.0)
    found = decode("boxes_scores", [boxes, scores], confidence=0.0, max_detections=10)
    assert len(found) == 10
    assert found.scores[0] == np.float32(0.99)
    assert np.all(np.diff(found.scores) <= 0)


def test_clipped_to_the_source_and_nothing_in_the_padding() -> None:
    geometry = Geometry.of(Preprocessing(*SIZE, "letterbox_topleft"), 64, 160)  # padded below
    boxes = np.array([[[-10, -5, 20, 30], [150, 50, 200, 90], [10, 70, 50, 120]]], np.float32)
    scores = np.full((1, 3, 1), 0.9, np.float32)
    found = decode("boxes_scores", [boxes, scores], geometry)
    np.testing.assert_allclose(found.boxes, [[0, 0, 20, 30], [150, 50, 160, 64]])


def test_letterbox_center_is_undone() -> None:
    geometry = Geometry.of(Preprocessing(*SIZE, "letterbox_center"), 64, 160)  # 32 above, below
    boxes = np.array([[[10, 40, 50, 80]]], np.float32)
    found = decode("boxes_scores", [boxes, np.full((1, 1, 1), 0.9, np.float32)], geometry)
    np.testing.assert_allclose(found.boxes, [[10, 8, 50, 48]])


def test_torchvision_outputs_in_any_order() -> None:
    boxes, labels, scores = OUTPUTS["torchvision"]
    for outputs in ([boxes, scores, labels], [labels, scores, boxes]):
        found = decode("torchvision", outputs)
        np.testing.assert_array_equal(found.class_ids, CLASSES)
        np.testing.assert_allclose(found.scores, SCORES)


def test_classification_is_softmax_best_first() -> None:
    logits = np.array([[1.0, 3.0, 2.0, -50.0, 88.0]], np.float32)
    decoder = Head("classification", 5, "").create_decoder(SIZE)
    result = decoder([logits], GEOMETRY, DecoderSettings(top_k=3))
    assert isinstance(result, Classification)
    np.testing.assert_array_equal(result.class_ids, [4, 1, 2])
    exact = np.exp(logits[0].astype(np.float64))
    np.testing.assert_allclose(result.scores, (exact / exact.sum())[[4, 1, 2]], rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("confidence", 1.01),
        ("confidence", -0.1),
        ("confidence", float("nan")),
        ("nms_iou", 2.0),
        ("max_detections", 0),
        ("top_k", 0),
    ],
)
def test_bad_settings_are_refused_and_change_nothing(name: str, value: float) -> None:
    settings = DecoderSettings()
    before = getattr(settings, name)
    with pytest.raises(ValueError, match=name):
        setattr(settings, name, value)
    assert getattr(settings, name) == before
    with pytest.raises(ValueError, match=name):
        DecoderSettings(**{name: value})


def test_settings_work_while_the_decoder_runs() -> None:
    decoder = Head("yolov8", N_CLASSES, "").create_decoder(SIZE)
    settings = DecoderSettings(confidence=0.3)
    counts = []
    for confidence in (0.3, 0.7, 0.3):
        settings.confidence = confidence
        result = decoder(OUTPUTS["yolov8"], GEOMETRY, settings)
        assert isinstance(result, Detections)
        counts.append(len(result))
    assert counts == [3, 2, 3]
