"""How far a detector's boxes lie from its teacher's, where the teacher is sure of them.

Squared errors over all cells hardly see this: most cells are background, where any box will do,
and a small box needs more pixels of precision than a large one. Measured on the built-in detector
after 600 steps of recovery at half of the multiply-accumulates: 1.2 points of mAP are lost without
it, 0.9 of them come back with the teacher's boxes and none with its scores; with it 0.8 are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

Tensors = Sequence[torch.Tensor]
View = Callable[[Tensors], tuple[torch.Tensor, torch.Tensor]]
"""From what a network returns to corners [B, N, 4] in any unit and confidences [B, N]."""

_SURE = 0.05
"""Least confidence of a box that counts."""

_HALF_IOU_SHIFT = 1.0 / 3.0
"""A box that is shifted by a third of its side has an IoU of 1/2 with where it was: error 1."""

_LARGEST_LOG = 8.0


def find_view(head: str) -> View | None:
    """How to read the boxes of a head of `models.heads.registry`; None where there is no way.

    Heads that return what is left of suppression have none: their rows do not correspond.
    """
    return _VIEWS.get(head)


def measure_boxes(found: Tensors, expected: Tensors, view: View) -> torch.Tensor:
    """Squared error of the corners relative to the boxes' sides, weighted by confidence.

    Parameters
    ----------
    found, expected : sequence of tensor
        What the two networks return.
    view : callable
        From `find_view`.

    Returns
    -------
    tensor, scalar
        0 where the teacher is sure of no box.
    """
    corners, _ = view(found)
    true, confidence = view(expected)
    weights = torch.where(confidence >= _SURE, confidence, torch.zeros_like(confidence))
    sides = true[..., 2:] - true[..., :2]
    # What is far smaller than the largest box is none that a network means.
    sides = sides.clamp(min=max(1e-6, 1e-3 * float(sides.abs().max()))).repeat(1, 1, 2)
    errors = ((corners - true) / (_HALF_IOU_SHIFT * sides)).square().mean(-1)
    return (weights * errors).sum() / weights.sum().clamp(min=_SURE)


def _view_corners(values: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    return values[0].float(), values[1].float().amax(-1)


def _view_rows(values: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    rows = values[0].float()
    return _to_corners(rows[..., :2], rows[..., 2:4]), rows[..., 4] * rows[..., 5:].amax(-1)


def _view_raw_rows(values: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    """In cells, relative to the cell."""
    rows = values[0].float()
    sizes = rows[..., 2:4].clamp(max=_LARGEST_LOG).exp()
    return _to_corners(rows[..., :2], sizes), rows[..., 4] * rows[..., 5:].amax(-1)


def _view_columns(values: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    rows = values[0].float().transpose(1, 2)
    return _to_corners(rows[..., :2], rows[..., 2:4]), rows[..., 4:].amax(-1)


def _to_corners(centres: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    return torch.cat((centres - 0.5 * sizes, centres + 0.5 * sizes), -1)


_VIEWS: dict[str, View] = {
    "boxes_scores": _view_corners,
    "yolox": _view_raw_rows,
    "yolox_decoded": _view_rows,
    "yolov5": _view_rows,
    "yolov8": _view_columns,
}
