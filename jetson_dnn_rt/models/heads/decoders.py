"""From a network's outputs to a result in pixels of the source image.

Rows are filtered by score before anything else is computed, so the cost follows the number of
objects, not of anchors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.heads.kinds import STRIDE_SETS, Head, Outputs, count_cells
from jetson_dnn_rt.models.heads.masks import MaskDecoder
from jetson_dnn_rt.models.heads.nms import nms
from jetson_dnn_rt.models.sources.settings import DecoderSettings
from jetson_dnn_rt.results import Classification, Detections, Result

if TYPE_CHECKING:  # it imports OpenCV, which a network alone does not need
    from jetson_dnn_rt.models.input.preprocessing import Geometry

Floats = npt.NDArray[np.float32]

# Suppression compares every pair: a threshold near 0 must not make a frame take a second.
_MAX_CANDIDATES = 1000
Decoder = Callable[[Outputs, "Geometry", DecoderSettings], Result]


def create_decoder(head: Head, input_size: tuple[int, int]) -> Decoder:
    """Make the decoder of a head.

    A decoder is called with the outputs of one run, the geometry of its frame and the settings
    of the moment; what it returns owns its arrays. It keeps scratch memory: one per pipeline.
    """
    if head.name in ("yolox", "yolox_decoded"):
        return YoloxDecoder(input_size, raw=head.name == "yolox")
    if head.name == "segmentation":
        return MaskDecoder(input_size)
    simple: dict[str, Decoder] = {
        "yolov5": decode_yolov5,
        "yolov8": decode_yolov8,
        "torchvision": decode_torchvision,
        "boxes_scores": decode_boxes_scores,
        "classification": decode_classification,
    }
    return simple[head.name]


class YoloxDecoder:
    """YOLOX: ``cx, cy, w, h, objectness, C class scores`` per cell.

    Parameters
    ----------
    input_size : tuple of int
        Height and width of the input.
    raw : bool
        Centres are offsets in cells and sizes logarithms (the usual export), else pixels.
    """

    def __init__(self, input_size: tuple[int, int], raw: bool = True) -> None:
        self._input_size = input_size
        self._raw = raw
        self._cells: Floats | None = None

    def __call__(
        self, outputs: Outputs, geometry: Geometry, settings: DecoderSettings
    ) -> Detections:
        """Decode ``[1, N, 5+C]``."""
        rows = cast(Floats, outputs[0][0])
        kept, class_ids, scores = _filter_objectness(rows, settings.confidence)
        boxes = rows[kept, :4].astype(np.float32)
        if self._raw:
            cells = self._cells if self._cells is not None else self._make_cells(len(rows))
            cell = cells[kept]
            boxes[:, :2] = (boxes[:, :2] + cell[:, :2]) * cell[:, 2:]
            with np.errstate(over="ignore"):  # what is not finite is dropped in the end
                boxes[:, 2:] = np.exp(boxes[:, 2:]) * cell[:, 2:]
        return _finish(_corners(boxes), scores, class_ids, geometry, settings)

    def _make_cells(self, count: int) -> Floats:
        """Column, row and stride of every cell, in the order of the outputs, [N, 3]."""
        for strides in STRIDE_SETS:
            if count_cells(*self._input_size, strides) == count:
                break
        else:
            raise ModelError(f"{count} rows do not fit an input of {self._input_size}")
        levels = []
        for stride in strides:
            height, width = (-(-side // stride) for side in self._input_size)
            y, x = np.mgrid[:height, :width]
            levels.append(np.stack([x.ravel(), y.ravel(), np.full(x.size, stride)], axis=1))
        self._cells = np.concatenate(levels).astype(np.float32)
        return self._cells


def decode_yolov5(outputs: Outputs, geometry: Geometry, settings: DecoderSettings) -> Detections:
    """``[1, N, 5+C]``: centre and size in input pixels, objectness, class scores."""
    rows = cast(Floats, outputs[0][0])
    kept, class_ids, scores = _filter_objectness(rows, settings.confidence)
    boxes = _corners(rows[kept, :4].astype(np.float32))
    return _finish(boxes, scores, class_ids, geometry, settings)


def decode_yolov8(outputs: Outputs, geometry: Geometry, settings: DecoderSettings) -> Detections:
    """``[1, 4+C, N]``: centre and size in input pixels, class scores."""
    columns = cast(Floats, outputs[0][0])
    best = columns[4:].max(axis=0)
    kept = np.flatnonzero(best >= settings.confidence)
    class_ids = columns[4:, kept].argmax(axis=0)
    boxes = _corners(np.ascontiguousarray(columns[:4, kept].T, dtype=np.float32))
    return _finish(boxes, best[kept], class_ids, geometry, settings)


def decode_boxes_scores(
    outputs: Outputs, geometry: Geometry, settings: DecoderSettings
) -> Detections:
    """Boxes ``[1, N, 4]`` as corners in input pixels and scores ``[1, N, C]`` in [0, 1]."""
    boxes, scores = cast(Floats, outputs[0][0]), cast(Floats, outputs[1][0])
    best = scores.max(axis=1)
    kept = np.flatnonzero(best >= settings.confidence)
    return _finish(
        boxes[kept].astype(np.float32), best[kept], scores[kept].argmax(axis=1), geometry, settings
    )


def decode_torchvision(
    outputs: Outputs, geometry: Geometry, settings: DecoderSettings
) -> Detections:
    """Boxes ``[N, 4]`` in input pixels, integer labels ``[N]``, scores ``[N]``, in any order.

    The network has already removed overlapping boxes by its own threshold; `nms_iou` can only
    remove more.
    """
    boxes = next(output for output in outputs if output.ndim == 2)
    labels = next(o for o in outputs if o.ndim == 1 and np.issubdtype(o.dtype, np.integer))
    scores = next(o for o in outputs if o.ndim == 1 and np.issubdtype(o.dtype, np.floating))
    kept = np.flatnonzero(scores >= settings.confidence)
    return _finish(boxes[kept].astype(np.float32), scores[kept], labels[kept], geometry, settings)


def decode_classification(
    outputs: Outputs, geometry: Geometry, settings: DecoderSettings
) -> Classification:
    """Logits ``[1, C]``."""
    logits = outputs[0][0].astype(np.float32)
    probabilities = np.exp(logits - logits.max())
    probabilities /= probabilities.sum()
    best = np.argsort(-probabilities, kind="stable")[: settings.top_k]
    return Classification(best.astype(np.int64), probabilities[best])


def _filter_objectness(
    rows: Floats, confidence: float
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Floats]:
    """Rows whose objectness times best class score reaches `confidence`.

    A class score is at most 1, so objectness alone rules out nearly all rows at once.
    """
    kept = np.flatnonzero(rows[:, 4] >= confidence)
    classes = rows[kept, 5:]
    class_ids = classes.argmax(axis=1)
    scores = rows[kept, 4] * classes[np.arange(len(kept)), class_ids]
    sure = scores >= confidence
    return kept[sure], class_ids[sure], scores[sure]


def _corners(boxes: Floats) -> Floats:
    """Centre and size to corners, in place."""
    with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is dropped in the end
        boxes[:, 2:] *= 0.5
        boxes[:, :2] -= boxes[:, 2:]
        boxes[:, 2:] = boxes[:, :2] + 2.0 * boxes[:, 2:]
    return boxes


def _finish(
    boxes: Floats,
    scores: npt.NDArray[np.floating],
    class_ids: npt.NDArray[np.integer],
    geometry: Geometry,
    settings: DecoderSettings,
) -> Detections:
    """Drop what is not finite, suppress overlaps, map to the source image and clip."""
    if not len(scores):
        return Detections.empty()
    finite = np.isfinite(boxes).all(axis=1)
    if not finite.all():
        boxes, scores, class_ids = boxes[finite], scores[finite], class_ids[finite]
    scores = scores.astype(np.float32)
    if len(scores) > _MAX_CANDIDATES:
        best = np.argpartition(-scores, _MAX_CANDIDATES)[:_MAX_CANDIDATES]
        boxes, scores, class_ids = boxes[best], scores[best], class_ids[best]
    ids = class_ids.astype(np.int64)
    kept = nms(boxes, scores, ids, settings.nms_iou, settings.max_detections)
    boxes = geometry.to_source(boxes[kept])
    # A box in the padding has no area once clipped: it shows nothing of the image.
    inside = (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
    return Detections(boxes[inside], scores[kept][inside], ids[kept][inside])
