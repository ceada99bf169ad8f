# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Heads that have no recording: outputs made by hand; and outputs that can be read in two ways."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.heads.base import DecoderSettings, Inspected, count_cells
from jetson_dnn_rt.models.heads.registry import LAYOUTS, recognise_head
from jetson_dnn_rt.models.input.preprocessing import Geometry, Preprocessing
from jetson_dnn_rt.models.metadata import Metadata, read_metadata
from jetson_dnn_rt.results import Segmentation

SIZE = (128, 160)

CELLS = count_cells(*SIZE, (8, 16, 32))

GEOMETRY = Geometry.of(Preprocessing(*SIZE), 256, 320)  # twice as large

BOXES = np.array([[20, 30, 60, 90], [100, 40, 140, 60], [8, 8, 24, 24]], np.float32)

CLASSES = np.array([2, 0, 1])

SCORES = np.array([0.9, 0.8, 0.5], np.float32)


def zeros(*shapes):
    return [np.zeros(shape, np.float32) for shape in shapes]


def decode(outputs, head="auto", names=(), **settings):
    seen = Inspected(outputs, SIZE, names)
    found = recognise_head(seen, head)
    return found, found.make_decoder()(outputs, GEOMETRY, DecoderSettings(**settings))


def check_boxes(found):
    np.testing.assert_allclose(found.boxes, BOXES * 2, atol=1e-3)
    np.testing.assert_allclose(found.scores, SCORES, rtol=1e-5)
    np.testing.assert_array_equal(found.class_ids, CLASSES)


LISTS = {"boxes": BOXES[None], "scores": SCORES[None], "labels": CLASSES[None]}


@pytest.mark.parametrize("names", [("labels", "boxes", "scores"), ("scores", "labels", "boxes")])
def test_lists_in_any_order(names):
    head, found = decode([LISTS[name] for name in names], names=names)
    assert head.name == "box_lists"
    check_boxes(found)


def test_lists_of_floats_are_told_by_their_names():
    outputs = [BOXES[None], CLASSES[None].astype(np.float32), SCORES[None]]
    head, found = decode(outputs, names=("det_boxes", "det_classes", "det_scores"))
    assert head.name == "box_lists"
    check_boxes(found)


def test_efficient_nms_says_how_many_are_valid():
    padded = {name: np.concatenate([array, array], axis=1) for name, array in LISTS.items()}
    outputs = [
        np.array([[3]], np.int32), padded["boxes"], padded["scores"],
        padded["labels"].astype(np.int32),
    ]  # fmt: skip
    head, found = decode(outputs, names=("num_dets", "det_boxes", "det_scores", "det_classes"))
    assert head.name == "box_lists"
    assert "how many are valid" in head.reason
    check_boxes(found)
    outputs[0][:] = 0
    assert len(decode(outputs)[1]) == 0


def test_ssd_rows_end_with_picture_minus_one():
    rows = np.zeros((1, 1, 5, 7), np.float32)
    sides = np.array([160, 128, 160, 128], np.float32)
    rows[0, 0, :3, 1], rows[0, 0, :3, 2], rows[0, 0, :3, 3:] = CLASSES, SCORES, BOXES / sides
    rows[0, 0, 3] = (-1, 0, 0.99, 0, 0, 1, 1)
    rows[0, 0, 4] = (0, 0, 0.99, 0, 0, 1, 1)  # what is behind the end
    head, found = decode([rows])
    assert head.name == "ssd"
    check_boxes(found)


def make_v5_seg(masks=8):
    """Rows of YOLOv5-seg, and prototypes of which each object takes another."""
    output = np.full((1, 3 * CELLS, 5 + 3 + masks), 0.01, np.float32)
    centres = np.concatenate([(BOXES[:, :2] + BOXES[:, 2:]) / 2, BOXES[:, 2:] - BOXES[:, :2]], 1)
    prototypes = np.full((1, masks, 32, 40), -1.0, np.float32)
    for k, row in enumerate((3, 99, 700)):
        output[0, row, :4], output[0, row, 4] = centres[k], 1.0
        output[0, row, 5 + CLASSES[k]] = SCORES[k]
        output[0, row, 8:] = 0.0
        output[0, row, 8 + k] = 1.0
        prototypes[0, k, :, ::2] = 1.0  # stripes: one column of the prototypes in two
    return [output, prototypes]


def test_yolov5_seg_masks_lie_in_their_boxes():
    head, found = decode(make_v5_seg())
    assert head.name == "yolov5_seg"
    check_boxes(found)
    mask = found.instance_mask
    assert mask.dtype == np.uint16
    assert mask.shape == (256, 320)
    assert set(np.unique(mask)) == {0, 1, 2, 3}
    for k, (x1, y1, x2, y2) in enumerate((BOXES * 2).astype(int)):
        inside = np.zeros(mask.shape, bool)
        inside[y1:y2, x1:x2] = True
        assert not np.any((mask == k + 1) & ~inside)
        share = np.mean(mask[y1:y2, x1:x2] == k + 1)
        assert 0.4 < share < 0.6  # the stripes
        # Even columns of the prototypes are 8 pixels wide here; their centres are in the mask.
        centres = np.arange(0, 320, 16) + 4
        centres = centres[(centres >= x1) & (centres < x2)]
        assert np.all(mask[y1:y2, centres] == k + 1)


def test_the_best_of_two_masks_is_on_top():
    outputs = make_v5_seg()
    outputs[0][0, 99, :4] = outputs[0][0, 3, :4]  # both objects at one place, of two classes
    outputs[1][:] = 1.0
    _, found = decode(outputs)
    x1, y1, x2, y2 = (BOXES[0] * 2).astype(int)
    assert np.all(found.instance_mask[y1:y2, x1:x2] == 1)


def test_no_object_gives_an_empty_mask():
    _, found = decode(make_v5_seg(), confidence=0.95)
    assert len(found) == 0
    assert not found.instance_mask.any()


@pytest.mark.parametrize("plain", [False, True])
def test_one_channel(plain):
    logits = np.random.default_rng(0).standard_normal((1, 1, 32, 40)).astype(np.float32)
    values = 1 / (1 + np.exp(-logits)) if plain else logits
    head, found = decode([values.astype(np.float32)], confidence_image=True)
    assert head.name == "binary_mask"
    assert ("probabilities" in head.reason) is plain
    cells = found.mask[4::8, 4::8]
    np.testing.assert_array_equal(cells, logits[0, 0] > 0)
    sure = 1 / (1 + np.exp(-np.abs(logits[0, 0])))
    np.testing.assert_allclose(found.confidence[4::8, 4::8], 255 * sure, atol=0.6)


@pytest.mark.parametrize("shape", [(1, 32, 40), (1, 1, 32, 40)])
@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.int32])
def test_class_maps(shape, kind):
    values = np.random.default_rng(0).integers(0, 19, shape).astype(kind)
    head, found = decode([values])
    assert (head.name, head.classes) == ("class_map", 0)
    np.testing.assert_array_equal(found.mask[4::8, 4::8], values.reshape(32, 40))
    assert found.confidence is None


def test_classes_last():
    logits = np.random.default_rng(0).standard_normal((1, 32, 40, 7)).astype(np.float32)
    head, found = decode([logits])
    assert (head.name, head.classes) == ("segmentation_last", 7)
    np.testing.assert_array_equal(found.mask[4::8, 4::8], logits[0].argmax(axis=2))


def test_several_masks_have_names():
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((2, 1, 2, 32, 40)).astype(np.float32)
    outputs = [first, second, rng.standard_normal((1, 1, 64, 80)).astype(np.float32)]
    seen = Inspected(outputs, SIZE, ("da", "ll", "edge"), outputs_chosen=True)
    head = recognise_head(seen)
    assert (head.name, head.classes) == ("masks", 2)
    found = head.make_decoder()(outputs, GEOMETRY, DecoderSettings())
    assert isinstance(found, Segmentation)
    assert [mask.name for mask in found.masks] == ["da", "ll", "edge"]
    for mask, logits in zip(found.masks, outputs[:2], strict=False):
        np.testing.assert_array_equal(mask.mask[4::8, 4::8], logits[0].argmax(axis=0))
    np.testing.assert_array_equal(found.others[1].mask[2::4, 2::4], outputs[2][0, 0] > 0)


def make_detr(queries=50, classes=4, last=8.0, others=-3.0):
    logits = np.full((1, queries, classes), others, np.float32)
    logits[..., -1] = last
    boxes = np.full((1, queries, 4), 0.5, np.float32)
    return [logits, boxes]


@pytest.mark.parametrize(
    ("last", "others", "name"), [(8.0, -3.0, "detr"), (-4.0, -2.0, "detr_sigmoid")]
)
def test_a_grey_picture_tells_softmax_from_sigmoid(last, others, name):
    head, _ = decode(make_detr(last=last, others=others), names=("logits", "pred_boxes"))
    assert head.name == name


def test_where_it_does_not_the_user_must():
    outputs = make_detr(last=-1.0, others=-3.0)
    with pytest.raises(ModelError, match=r"set head to what it is: detr, detr_sigmoid"):
        decode(outputs, names=("logits", "pred_boxes"))
    assert decode(outputs, "detr")[0].classes == 3
    assert decode(outputs, "detr_sigmoid")[0].classes == 4


def test_softmax_and_sigmoid_scores():
    logits, boxes = make_detr(classes=3, last=0.0, others=-50.0)
    boxes[0, 7] = (0.25, 0.5, 0.25, 0.5)
    logits[0, 7] = (2.0, -1.0, 0.0)
    _, found = decode([logits, boxes], "detr", confidence=0.5)
    shares = np.exp([2.0, -1.0, 0.0])
    np.testing.assert_allclose(found.scores, [shares[0] / shares.sum()], rtol=1e-5)
    np.testing.assert_allclose(found.boxes, [[40, 64, 120, 192]], atol=1e-3)
    logits[..., 2] = -50.0
    logits[0, 7] = (2.0, 1.0, -3.0)
    _, found = decode([logits, boxes], "detr_sigmoid", confidence=0.5)
    assert found.class_ids.tolist() == [0, 1]  # one query may stand for two
    np.testing.assert_allclose(found.scores, 1 / (1 + np.exp([-2.0, -1.0])), rtol=1e-5)
    assert len(decode([logits, boxes], "detr_sigmoid", confidence=0.0)[1]) == 100
    assert len(decode([logits, boxes], "detr_sigmoid", confidence=1.0)[1]) == 0


def columns_of(rows, scores):
    output = np.full((1, rows, CELLS), 0.02, np.float32)
    output[0, :4] = 50.0
    output[0, 4:] = scores
    return [output]


def test_scores_outside_of_0_and_1_are_no_detector():
    outputs = columns_of(56, 0.01)
    assert decode(outputs)[0].classes == 52
    outputs[0][0, 20] = 140.0  # a coordinate
    with pytest.raises(ModelError) as raised:
        decode(outputs)
    assert "its scores would be 0.01 to 140" in str(raised.value)
    assert "yolov8_pose: " in str(raised.value)
    assert "17 keypoints of 3 values; but no metadata say so" in str(raised.value)
    assert "set head to what it is: yolov8_pose" in str(raised.value)


def test_a_last_row_that_is_everywhere_is_an_angle():
    outputs = columns_of(9, 0.01)
    outputs[0][0, -1] = 0.78
    with pytest.raises(ModelError, match="set head to what it is: yolov8, yolov8_obb"):
        decode(outputs)
    assert decode(outputs, "yolov8")[0].classes == 5
    assert decode(outputs, "yolov8_obb")[0].classes == 4


ULTRALYTICS = {"author": "Ultralytics", "stride": "32", "task": "detect"}


def read(names=3, **values):
    texts = {"names": str({i: f"n{i}" for i in range(names)}), **values}
    return read_metadata({**ULTRALYTICS, **texts})


def test_metadata_that_contradict_the_outputs_are_errors():
    seen = Inspected(columns_of(7, 0.01), SIZE, metadata=read())
    assert recognise_head(seen).classes == 3
    with pytest.raises(ModelError, match="names 2 classes, the outputs hold 3"):
        recognise_head(replace(seen, metadata=read(2)))
    with pytest.raises(ModelError, match="say task 'segment', but its outputs"):
        recognise_head(replace(seen, metadata=read(task="segment")))
    with pytest.raises(ModelError, match="suppresses overlaps"):
        recognise_head(replace(seen, metadata=read(end2end="True")))
    with pytest.raises(ModelError, match="contradicts the file, whose metadata say task 'pose'"):
        recognise_head(replace(seen, metadata=read(task="pose")), "yolov8")
    # Four values do not fit [17, 3].
    pose = read(1, task="pose", kpt_shape="[17, 3]")
    with pytest.raises(ModelError, match="say task 'pose', but its outputs"):
        recognise_head(replace(seen, metadata=pose))


def test_the_number_of_keypoints_decides_the_number_of_classes():
    outputs = columns_of(4 + 2 + 5 * 2, 0.01)
    outputs[0][0, 6:] = 33.0
    seen = Inspected(outputs, SIZE, metadata=read(2, task="pose", kpt_shape="[5, 2]"))
    head = recognise_head(seen)
    assert (head.name, head.classes) == ("yolov8_pose", 2)


def test_rows_of_an_end_to_end_network_or_of_queries():
    rows = np.zeros((1, 300, 6), np.float32)
    rows[0, :, :4] = (10, 10, 50, 60)
    rows[0, :, 4], rows[0, :, 5] = 0.1, np.arange(300) % 5
    assert decode([rows])[0].name == "end_to_end"
    rows[0, :, :4] = (0.5, 0.5, 0.1, 0.2)
    assert decode([rows])[0].name == "rtdetr_rows"
    rows[0, :, 5] = 0.03  # a second score
    assert decode([rows])[0].name == "rtdetr"
    assert decode(zeros((1, 300, 6)))[0].name == "end_to_end"  # nothing was found
    said = Metadata(exporter="ultralytics 8.4.190", task="detect", head="v10Detect")
    rows[0, :, 5] = 1.0
    seen = Inspected([rows], SIZE, metadata=said)
    with pytest.raises(ModelError, match="the file says its head is v10Detect"):
        recognise_head(seen)


def test_a_detector_whose_outputs_look_like_masks_is_told_what_to_do():
    outputs = [np.full((1, 85, 16, 20), 0.5, np.float32)]
    with pytest.raises(ModelError, match=r"head to package.module:Class, a decoder of your own"):
        recognise_head(Inspected(outputs, SIZE), kind="detection")
    with pytest.raises(ModelError, match="cells are large for a mask: they may be a detector's"):
        decode([np.full((1, 85, 8, 10), 0.5, np.float32)])


def make_rows(classes):
    """Rows of YOLOv8, transposed: no objectness, an object of the last class."""
    output = np.full((1, CELLS, 4 + classes), 1e-4, np.float32)
    output[0, :, :4] = (50.0, 60.0, 10.0, 12.0)
    output[0, 17, :4], output[0, 17, -1] = (40, 64, 40, 80), 0.95
    return [output]


def test_transposed_rows_are_not_taken_for_those_of_yolox():
    head, found = decode(make_rows(80))
    assert (head.name, head.classes) == ("yolov8_rows", 80)
    np.testing.assert_allclose(found.boxes, [[40, 48, 120, 208]], atol=1e-3)
    np.testing.assert_allclose(found.scores, [0.95])
    with pytest.raises(ModelError, match=r"what it is: yolox, yolox_decoded, yolov8_rows"):
        decode(make_rows(3))
    assert decode(make_rows(3), "yolov8_rows")[1].class_ids.tolist() == [2]
    seen = Inspected(make_rows(3), SIZE, metadata=read_metadata({"names": "['a', 'b', 'c']"}))
    assert recognise_head(seen).name == "yolov8_rows"
    assert decode(make_rows(81))[0].name == "yolox_decoded"  # 80 classes and an objectness


def test_a_class_column_is_no_score():
    rows = make_rows(2)  # as DeepStream's exports have them: box, score, class
    rows[0][0, :, 5] = np.arange(CELLS) % 3
    with pytest.raises(ModelError, match=r"a class|not 0 to 1"):
        decode(rows)


RNG = np.random.default_rng(0)
CORNERS = np.sort(RNG.uniform(0.05, 0.95, (1, CELLS, 2, 2)), axis=2).reshape(1, CELLS, 4)
"""Corners from 0 to 1 of the input."""

COLUMN = {
    "score": np.full((1, CELLS, 1), 0.4),
    "class": RNG.integers(0, 3, (1, CELLS, 1)),
    "scores": np.full((1, CELLS, 3), 0.01),
    "coefficients": np.ones((1, CELLS, 8)),
    "keypoints": np.full((1, CELLS, 6), 20.0),
    "angle": np.full((1, CELLS, 1), 0.3),
}
PROTOTYPES = np.ones((1, 8, 32, 40), np.float32)


def with_boxes(boxes, *names):
    """Rows of boxes and of further columns."""
    parts = [boxes, *(COLUMN[name][:, : boxes.shape[1]] for name in names)]
    return np.concatenate(parts, axis=2).astype(np.float32)


def make_outputs(head, corners):
    """Outputs of the head with these boxes; where it has centres and sizes, they are these."""
    few = corners[:, :300]
    match head:
        case "yolov5":
            return [np.repeat(with_boxes(corners, "score", "scores"), 3, axis=1)]
        case "yolov8":
            return [with_boxes(corners, "scores").transpose(0, 2, 1)]
        case "yolov8_rows" | "yolox_decoded":
            return [with_boxes(corners, "scores")]
        case "yolov8_seg":
            return [with_boxes(corners, "scores", "coefficients").transpose(0, 2, 1), PROTOTYPES]
        case "yolov8_pose":
            return [with_boxes(corners, "score", "keypoints").transpose(0, 2, 1)]
        case "yolov8_obb":
            return [with_boxes(corners, "scores", "angle").transpose(0, 2, 1)]
        case "end_to_end":
            return [with_boxes(few, "score", "class")]
        case "end_to_end_seg":
            return [with_boxes(few, "score", "class", "coefficients"), PROTOTYPES]
        case "end_to_end_pose":
            return [with_boxes(few, "score", "class", "keypoints")]
        case "end_to_end_obb":
            return [with_boxes(few, "score", "class", "angle")]
        case "boxes_scores":
            return [corners.astype(np.float32), COLUMN["scores"].astype(np.float32)]
        case "box_lists":
            score, number = (COLUMN[name][..., 0] for name in ("score", "class"))
            return [corners.astype(np.float32), number, score.astype(np.float32)]
        case _:  # torchvision
            lists = make_outputs("box_lists", corners)
            parts = {
                "torchvision_seg": [np.ones((CELLS, 1, 128, 160), np.float32)],
                "torchvision_pose": [
                    np.ones((CELLS, 17, 3), np.float32),
                    np.ones((CELLS, 17), np.float32),
                ],
            }
            return [output[0] for output in lists] + parts.get(head, [])


IN_PIXELS = [
    "yolov5", "yolov8", "yolov8_rows", "yolox_decoded", "yolov8_seg", "yolov8_pose", "yolov8_obb",
    "end_to_end", "end_to_end_seg", "end_to_end_pose", "end_to_end_obb", "boxes_scores",
    "box_lists", "torchvision", "torchvision_seg", "torchvision_pose",
]  # fmt: skip


@pytest.mark.parametrize("head", IN_PIXELS)
def test_boxes_from_0_to_1_are_refused_where_pixels_are_meant(head):
    """SSDs of onnx/models and TensorFlow: every object was in the first pixel, silently."""
    outputs = make_outputs(head, CORNERS)
    fault = "all its boxes would lie in one pixel: they seem to be written from 0 to 1"
    with pytest.raises(ModelError) as error:
        decode(outputs, head)
    assert f"head '{head}' cannot be right: {fault}; fix: export the network with" in str(
        error.value
    )
    pixels = make_outputs(head, CORNERS * 100.0)
    assert decode(pixels, head)[0].name == head
    # An SSD's reach over the border, and lists are filled with what is no box.
    over = CORNERS * 1.1 - 0.05
    over[:, ::2] = 0.0
    with pytest.raises(ModelError, match="all its boxes would lie in one pixel"):
        decode(make_outputs(head, over), head)
    assert decode(make_outputs(head, CORNERS * 0.0), head)[0].name == head


def test_every_head_of_boxes_says_where_its_boxes_and_scores_are():
    """A new head gets the checks of plausibility, or names the reason here."""
    others = {"yolox", "yolov5_seg", "ssd", "detr", "detr_sigmoid", "rfdetr", "rtdetr"}
    detectors = {name for name, layout in LAYOUTS.items() if layout.kind == "detection"}
    assert detectors == {*IN_PIXELS, *others, "rtdetr_rows"}


def test_boxes_in_pixels_are_refused_where_0_to_1_is_meant():
    rows = np.zeros((1, 1, 5, 7), np.float32)
    rows[..., 2], rows[..., 3:] = 0.5, (10, 10, 90, 80)
    with pytest.raises(ModelError, match=r"ssd: .* would not lie between 0 and 1: .* in pixels"):
        decode([rows])
    rows[..., 3:] /= 100
    assert decode([rows])[0].name == "ssd"


def make_grids(*sides, channels=30):
    return [RNG.normal(0, 2, (1, channels, *side)).astype(np.float32) for side in sides]


PYRAMID = ((4, 5), (8, 10), (16, 20))


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        (make_grids(*PYRAMID), "maps with cells of 8, 16, 32 pixels are the raw grids of a det"),
        (make_grids((8, 10), channels=3) + make_grids((8, 10), channels=12), "DetectNet_v2"),
        (
            [*(grid for n in (80, 4, 1) for grid in make_grids(*PYRAMID, channels=n))],
            "maps with cells of 8, 16, 32 pixels",
        ),
    ],
)
@pytest.mark.parametrize("chosen", [False, True])
@pytest.mark.parametrize("kind", [None, "detection", "segmentation"])
def test_raw_grids_of_a_detector_are_no_masks(outputs, words, chosen, kind):
    """YOLOv3, DetectNet_v2: the fix that was printed led to masks of 30 classes."""
    seen = Inspected(outputs, SIZE, outputs_chosen=chosen)
    with pytest.raises(ModelError, match=words) as error:
        recognise_head(seen, kind=kind)
    assert "fix: export the detector with the decoding of its boxes in the graph" in str(
        error.value
    )
    assert "set kind" not in str(error.value)
    with pytest.raises(ModelError, match=r"head 'masks' cannot be right: .*; fix: export the det"):
        recognise_head(seen, "masks")


def test_a_task_for_boxes_is_not_told_to_choose_masks():
    outputs = make_grids((32, 40), (32, 40), channels=2)
    with pytest.raises(ModelError) as error:
        recognise_head(Inspected(outputs, SIZE), kind="detection")
    assert "fix: of a detector, export it with the decoding of its boxes" in str(error.value)
    assert "set outputs" not in str(error.value)


def test_coarse_maps_are_either():
    with pytest.raises(ModelError, match="if it is a mask, set head to segmentation; else set h"):
        decode(make_grids((8, 10)))
    with pytest.raises(ModelError, match="if it is a mask, set head to segmentation_last; else"):
        decode([make_grids((8, 10))[0].transpose(0, 2, 3, 1)])


def test_probabilities_are_not_put_through_a_softmax_again():
    shares = np.full((1, 4, 32, 40), 0.01, np.float32)
    shares[:, 2] = 0.97
    head, found = decode([shares], confidence_image=True)
    assert "probabilities" in head.reason
    assert np.unique(found.mask).tolist() == [2]
    assert np.unique(found.confidence).tolist() == [round(0.97 * 255)]


def test_floats_that_are_classes_and_depths():
    classes = np.random.default_rng(0).integers(0, 19, (1, 1, 32, 40)).astype(np.float32)
    head, found = decode([classes])
    assert head.name == "class_map"
    np.testing.assert_array_equal(found.mask[4::8, 4::8], classes[0, 0])
    depth = np.random.default_rng(0).uniform(0.5, 10, (1, 1, 32, 40)).astype(np.float32)
    with pytest.raises(ModelError, match="it may be a depth or a count"):
        decode([depth])


def test_one_cell_is_a_classifier_s():
    assert decode([np.ones((1, 10, 1, 1), np.float32)])[0].name == "classification"


def test_end_to_end_rows_that_are_no_object_may_be_inside_out():
    rows = np.zeros((1, 300, 6), np.float32)
    rows[0, :, :4] = (10, 10, 50, 60)
    rows[0, -5:, 2:4] = (9, 8)
    assert decode([rows])[0].name == "end_to_end"


def test_queries_may_reach_over_the_border():
    logits, boxes = make_detr(last=-4.0, others=-2.0)
    boxes[0, :3] = (-0.02, 0.5, 0.3, 1.2)
    assert decode([logits, boxes], names=("logits", "pred_boxes"))[0].name == "detr_sigmoid"


def test_bytes_of_a_quantized_network_are_no_scores():
    outputs = [np.ones((1, 84, CELLS), np.uint8)]
    with pytest.raises(ModelError, match="its scores would be uint8"):
        decode(outputs)


def test_classes_that_are_not_finite_are_no_object():
    rows = np.zeros((1, 300, 6), np.float32)
    rows[0, :, :4] = (10, 10, 50, 60)
    head, _ = decode([rows])
    rows[0, :3, 4], rows[0, :3, 5] = 0.9, (np.inf, -3.0, 1.0)
    with np.errstate(invalid="ignore"):
        for thresholds in (None, np.full(5, 0.3, np.float32)):
            settings = DecoderSettings(thresholds=thresholds)
            found = head.make_decoder()([rows], GEOMETRY, settings)
            assert found.class_ids.tolist() == [1]
