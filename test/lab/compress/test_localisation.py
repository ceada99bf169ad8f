"""The error of boxes is relative to their sides, and only where the teacher is sure."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from jetson_dnn_rt.lab.compress.localisation import find_view, measure_boxes
from jetson_dnn_rt.lab.compress.recovery import RecoverySettings, recover
from jetson_dnn_rt.models.graph.tracing import trace
from jetson_dnn_rt.models.heads.registry import LAYOUTS

# Centre and size of two boxes, objectness, two classes.
ROWS = torch.tensor([[[30.0, 40.0, 12.0, 6.0, 0.9, 0.2, 1.0], [9.0, 8.0, 4.0, 4.0, 0.01, 1, 1]]])


def write(head: str, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The same boxes as another head would return them."""
    centres, sizes, scores = rows[..., :2], rows[..., 2:4], rows[..., 4:5] * rows[..., 5:]
    if head == "boxes_scores":
        return torch.cat((centres - sizes / 2, centres + sizes / 2), -1), scores
    if head == "yolox":
        return (torch.cat((centres, sizes.log(), rows[..., 4:]), -1),)
    if head == "yolov8":
        return (torch.cat((centres, sizes, scores), -1).transpose(1, 2),)
    return (rows,)


@pytest.mark.parametrize("head", ["boxes_scores", "yolox", "yolox_decoded", "yolov5", "yolov8"])
def test_every_layout_gives_the_same_error(head: str) -> None:
    view = find_view(head)
    assert view is not None
    found = ROWS.clone()
    found[0, 0, 0] += 4.0  # a third of its side
    found[0, 1, :2] += 100.0  # nobody is sure of this one
    expected = write(head, ROWS)
    corners, confidence = view(expected)
    torch.testing.assert_close(corners[0, 0], torch.tensor([24.0, 37.0, 36.0, 43.0]))
    torch.testing.assert_close(confidence, torch.tensor([[0.9, 0.01]]))
    # Two of four corners are off by a third of the side.
    error = measure_boxes(write(head, found), expected, view)
    assert float(error) == pytest.approx(0.5, rel=1e-4)
    assert float(measure_boxes(expected, expected, view)) == 0.0


def test_heads_without_rows_that_correspond_have_no_view() -> None:
    known = {name for name in LAYOUTS if find_view(name) is not None}
    assert known == {"boxes_scores", "yolox", "yolox_decoded", "yolov5", "yolov8"}
    assert find_view("") is None


def test_nothing_to_be_sure_of_is_no_error() -> None:
    rows = ROWS.clone()
    rows[..., 4] = 0.0
    view = find_view("yolov5")
    assert view is not None
    assert float(measure_boxes((ROWS,), (rows,), view)) == 0.0


class Detector(nn.Module):
    """Boxes about fixed places; the scores come from the brightness."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            self.first = nn.Conv2d(3, 8, 3, 2, 1)
            self.sides = nn.Conv2d(8, 4, 1)
            self.score = nn.Conv2d(8, 2, 1)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.relu(self.first(image))
        distances = self.sides(x).flatten(2).transpose(1, 2).exp() * 8.0
        boxes = torch.cat((100.0 - distances[..., :2], 100.0 + distances[..., 2:]), -1)
        return boxes, self.score(x).flatten(2).transpose(1, 2).sigmoid()


def test_recovery_of_a_detector_looks_at_its_boxes() -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.random((1, 3, 12, 16), np.float32) for _ in range(4)]
    full = trace(Detector())
    losses = {}
    for head in ("", "boxes_scores"):
        reduced = copy.deepcopy(full)
        with torch.no_grad():
            reduced.sides.weight *= 0.8
        settings = RecoverySettings(localisation=0.5)
        report = recover(full, reduced, inputs, steps=5, head=head, settings=settings)
        losses[head] = report.loss_before
        assert report.loss_after < report.loss_before
    view = find_view("boxes_scores")
    assert view is not None
    reduced = copy.deepcopy(full)
    with torch.no_grad():
        reduced.sides.weight *= 0.8
        judges = [torch.from_numpy(image) for image in inputs[-report.held_out :]]
        errors = [float(measure_boxes(reduced(x), full(x), view)) for x in judges]
    expected = losses[""] + 0.5 * sum(errors) / len(errors)
    assert losses["boxes_scores"] == pytest.approx(expected, rel=1e-4)
    assert sum(errors) > 0.0
