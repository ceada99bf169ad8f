"""Agreement on results made by hand, where the value is known."""

from __future__ import annotations

import numpy as np
import pytest

from jetson_dnn_rt.results import Classification, Detections, Segmentation
from jetson_dnn_rt.variants.measuring.agreement import agreement, compare


def boxes(*rows: tuple[float, float, float, float, float, int]) -> Detections:
    array = np.array(rows, np.float32).reshape(-1, 6)
    return Detections(array[:, :4], array[:, 4], array[:, 5].astype(np.int64))


def mask(rows: list[list[int]]) -> Segmentation:
    return Segmentation(np.array(rows, np.uint8))


def classes(*ids: int) -> Classification:
    return Classification(np.array(ids, np.int64), np.full(len(ids), 0.1, np.float32))


CAR = (10, 10, 50, 50, 0.9, 2)
PERSON = (60, 10, 80, 90, 0.8, 0)


def test_the_same_boxes_agree_wholly() -> None:
    full = [boxes(CAR, PERSON), boxes(), boxes(CAR)]
    found = compare("detection", full, full, "full@torch-fp32")
    assert (found.value, found.metric, found.frames, found.evidence, found.reference) == (
        1.0,
        "mAP@0.5",
        3,
        3,
        "full@torch-fp32",
    )


@pytest.mark.parametrize(
    ("found", "value"),
    [
        # One of two classes is missed.
        (boxes(CAR), 0.5),
        # A box of the right place and the wrong class.
        (boxes(CAR, (60, 10, 80, 90, 0.8, 2)), 0.5),
        # Moved by 4 of 40 pixels, IoU 36 / 44; by 20, IoU 20 / 60.
        (boxes((14, 10, 54, 50, 0.9, 2), PERSON), 1.0),
        (boxes((30, 10, 70, 50, 0.9, 2), PERSON), 0.5),
        # A ghost that is surer than the car halves its precision, one that is less sure does not.
        (boxes((100, 100, 120, 120, 0.95, 2), CAR, PERSON), 0.75),
        (boxes((100, 100, 120, 120, 0.1, 2), CAR, PERSON), 1.0),
        (boxes(), 0.0),
    ],
)
def test_boxes_that_differ(found: Detections, value: float) -> None:
    assert agreement("detection", [boxes(CAR, PERSON)], [found]) == pytest.approx(value)


def test_a_box_in_another_frame_is_no_agreement() -> None:
    assert agreement("detection", [boxes(CAR), boxes()], [boxes(), boxes(CAR)]) == 0.0


@pytest.mark.parametrize(("found", "value"), [(boxes(), 1.0), (boxes(CAR), 0.0)])
def test_where_the_full_model_sees_nothing_there_is_no_evidence(
    found: Detections, value: float
) -> None:
    result = compare("detection", [boxes()], [found], "full")
    assert (result.value, result.evidence) == (value, 0)


def test_masks() -> None:
    full = [mask([[0, 0], [1, 2]])]
    same = compare("segmentation", full, full, "full")
    assert (same.value, same.metric, same.evidence) == (1.0, "mIoU", 3)
    # Of class 0 two of three, of class 1 none of one, of class 2 all.
    assert agreement("segmentation", full, [mask([[0, 0], [0, 2]])]) == pytest.approx(5 / 9)
    # A class that the full model does not know counts against the variant.
    assert agreement("segmentation", full, [mask([[0, 7], [1, 2]])]) == pytest.approx(2.5 / 4)


def test_masks_of_all_frames_count_together() -> None:
    full = [mask([[1, 1]]), mask([[1, 0]])]
    variant = [mask([[1, 1]]), mask([[0, 0]])]
    assert agreement("segmentation", full, variant) == pytest.approx((2 / 3 + 1 / 2) / 2)


def test_best_classes() -> None:
    full = [classes(3, 1), classes(5), classes(7), classes()]
    variant = [classes(3, 9), classes(6), classes(), classes()]
    found = compare("classification", full, variant, "full")
    assert (found.value, found.metric, found.evidence) == (0.5, "top-1", 4)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="kind must be one of"):
        agreement("depth", [boxes()], [boxes()])
    with pytest.raises(ValueError, match="at least one: 0, 0"):
        agreement("detection", [], [])
    with pytest.raises(ValueError, match="equally many"):
        agreement("detection", [boxes()], [boxes(), boxes()])
    with pytest.raises(TypeError, match="Detections is expected, not Segmentation"):
        agreement("detection", [boxes()], [mask([[0]])])
    with pytest.raises(ValueError, match="one shape"):
        agreement("segmentation", [mask([[0]])], [mask([[0, 0]])])
