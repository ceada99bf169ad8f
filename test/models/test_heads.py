"""How a layout is told from the shapes of the outputs."""

from __future__ import annotations

import numpy as np
import pytest

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.heads.registry import LAYOUTS, recognise_head


def zeros(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [np.zeros(shape, np.float32) for shape in shapes]


def yolox(rows: int, raw: bool) -> list[np.ndarray]:
    output = np.full((1, rows, 85), 3.0, np.float32)
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
        (
            zeros((1, 25200, 85), (1, 3, 80, 80, 85), (1, 3, 40, 40, 85), (1, 3, 20, 20, 85)),
            (640, 640),
            "yolov5",
            80,
        ),
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
def test_recognised(
    outputs: list[np.ndarray], size: tuple[int, int], name: str, classes: int
) -> None:
    head = recognise_head(outputs, size)
    assert (head.name, head.classes) == (name, classes)
    assert head.reason
    assert recognise_head(outputs, size, name, LAYOUTS[name].kind).name == name


def test_raw_or_decoded_can_be_settled_by_name() -> None:
    outputs = yolox(3549, raw=True)
    assert recognise_head(outputs, (416, 416), "yolox_decoded").name == "yolox_decoded"


@pytest.mark.parametrize(
    "outputs",
    [
        zeros((1, 300, 6)),
        zeros((1, 84, 8401)),
        zeros((2, 84, 8400)),
        zeros((1, 1, 640, 640)),
        zeros((1, 257, 64, 64)),
        zeros((1, 84, 8400), (1, 32, 160, 160)),
        zeros((7, 4), (7,), (7,)),  # no integer labels
        zeros((1, 10, 4), (1, 11, 3)),
        zeros((1,)),
        [],
    ],
)
def test_unknown_lists_the_known(outputs: list[np.ndarray]) -> None:
    with pytest.raises(ModelError, match="fit no known head") as raised:
        recognise_head(outputs, (640, 640))
    for name, layout in LAYOUTS.items():
        assert name in str(raised.value)
        assert layout.form in str(raised.value)


def test_wrong_task_is_named() -> None:
    with pytest.raises(ModelError, match="model for detection, this one is for classification"):
        recognise_head(zeros((1, 1000)), (224, 224), kind="detection")


def test_head_that_does_not_fit_is_named() -> None:
    with pytest.raises(ModelError, match=r"'yolov8' needs .*look like 'yolov5'"):
        recognise_head(zeros((1, 25200, 85)), (640, 640), "yolov8")
    with pytest.raises(ModelError, match="'yolo' is unknown, known are auto, yolox"):
        recognise_head(zeros((1, 25200, 85)), (640, 640), "yolo")
