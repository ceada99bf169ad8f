"""Layouts of a network's outputs, and how to tell them apart.

A head is recognised from the shapes of the outputs and the size of the input. What the shapes
leave open is decided so:

- A detector of one output has one row per anchor. One anchor per cell of the strides 8, 16, 32
  (and 64) makes ``cells`` rows, three make ``3 * cells``; so ``[1, cells, 5+C]`` is YOLOX and
  ``[1, 3*cells, 5+C]`` YOLOv5, whatever C. Channels first, ``[1, 4+C, cells]``, is YOLOv8/11.
- YOLOX files exist with raw offsets and, exported with ``--decode_in_inference``, with boxes.
  Widths and heights of boxes are exponentials, always > 0; raw ones are their logarithms, and
  among thousands of anchors some are below 0. So one run on a grey picture decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import ModelError

Kind = Literal["detection", "segmentation", "classification"]
Outputs = Sequence[npt.NDArray[Any]]

STRIDE_SETS = ((8, 16, 32), (8, 16, 32, 64))

KNOWN_HEADS: dict[str, tuple[Kind, str]] = {
    "yolox": ("detection", "[1, N, 5+C] raw offsets, N = one row per cell of strides 8, 16, 32"),
    "yolox_decoded": ("detection", "[1, N, 5+C] the same with cx, cy, w, h in input pixels"),
    "yolov5": ("detection", "[1, N, 5+C] cx, cy, w, h in input pixels, N = three rows per cell"),
    "yolov8": ("detection", "[1, 4+C, N] cx, cy, w, h in input pixels (YOLOv8, YOLO11)"),
    "torchvision": ("detection", "boxes [N, 4], labels [N] integer, scores [N]"),
    "boxes_scores": ("detection", "boxes [1, N, 4] x1, y1, x2, y2 in input pixels, [1, N, C]"),
    "segmentation": ("segmentation", "logits [1, C, h, w], 2 <= C <= 256, any stride"),
    "classification": ("classification", "logits [1, C], C >= 2"),
}


@dataclass(frozen=True)
class Head:
    """A recognised layout.

    Attributes
    ----------
    name : str
        Key of `KNOWN_HEADS`.
    classes : int
        Number of classes; 0 where the outputs do not say (torchvision's detectors).
    reason : str
        How it was recognised, for the log.
    """

    name: str
    classes: int
    reason: str

    @property
    def kind(self) -> Kind:
        """The task the layout belongs to."""
        return KNOWN_HEADS[self.name][0]


def count_cells(height: int, width: int, strides: Sequence[int]) -> int:
    """Cells of all feature maps of an input."""
    return sum(-(-height // s) * -(-width // s) for s in strides)


def recognise_head(
    outputs: Outputs, input_size: tuple[int, int], head: str = "auto", kind: Kind | None = None
) -> Head:
    """Find the layout of the outputs of one run on a grey picture.

    Parameters
    ----------
    outputs : sequence of ndarray
        As the network returned them.
    input_size : tuple of int
        Height and width of the input.
    head : str
        ``auto``, or a key of `KNOWN_HEADS` that the outputs must fit.
    kind : str or None
        The task the model is meant for; another one's layout is refused.

    Raises
    ------
    ModelError
        When no layout fits, or another than the one asked for.
    """
    if head != "auto" and head not in KNOWN_HEADS:
        raise ModelError(f"head {head!r} is unknown, known are auto, {', '.join(KNOWN_HEADS)}")
    shapes = " and ".join(str(list(output.shape)) for output in outputs)
    candidates = _candidates(outputs, input_size)
    names = [candidate.name for candidate in candidates]
    if head != "auto":
        candidates = [candidate for candidate in candidates if candidate.name == head]
        if not candidates:
            raise ModelError(
                f"head {head!r} needs {KNOWN_HEADS[head][1]}, the outputs {shapes} "
                + (f"look like {names[0]!r}" if names else "fit no known head")
            )
    if not candidates:
        known = "\n".join(f"  {name}: {what}" for name, (_, what) in KNOWN_HEADS.items())
        raise ModelError(
            f"outputs {shapes} of an input of {input_size[0]}x{input_size[1]} fit no known head; "
            f"known are\n{known}"
        )
    chosen = candidates[0]
    if kind is not None and chosen.kind != kind:
        raise ModelError(
            f"the task needs a model for {kind}, this one is for {chosen.kind} "
            f"({chosen.name}: {chosen.reason})"
        )
    return chosen


def _candidates(outputs: Outputs, input_size: tuple[int, int]) -> list[Head]:
    """Layouts that fit, the preferred one first."""
    shapes = [tuple(output.shape) for output in outputs]
    if len(shapes) == 3 and sorted(len(s) for s in shapes) == [1, 1, 2]:
        return _torchvision(outputs)
    if len(shapes) == 2 and all(len(s) == 3 and s[0] == 1 for s in shapes):
        boxes, scores = shapes
        if boxes[2] == 4 and boxes[1] == scores[1]:
            reason = f"{boxes[1]} boxes with {scores[2]} scores each"
            return [Head("boxes_scores", scores[2], reason)]
        return []
    # Old YOLOv5 exports return their three feature maps, of five dimensions, after the boxes.
    if not shapes or not all(len(s) == 5 for s in shapes[1:]):
        return []
    if len(shapes[0]) == 3 and shapes[0][0] == 1:
        return _yolo(outputs[0], input_size)
    if len(shapes[0]) == 4 and shapes[0][0] == 1 and 2 <= shapes[0][1] <= 256:
        _, classes, rows, columns = shapes[0]
        return [Head("segmentation", classes, f"{classes} maps of {rows}x{columns}")]
    if len(shapes[0]) == 2 and shapes[0][0] == 1 and shapes[0][1] >= 2:
        return [Head("classification", shapes[0][1], f"{shapes[0][1]} logits")]
    return []


def _torchvision(outputs: Outputs) -> list[Head]:
    flat = [output for output in outputs if output.ndim == 1]
    integers = [output for output in flat if np.issubdtype(output.dtype, np.integer)]
    boxes = next(output for output in outputs if output.ndim == 2)
    if len(integers) != 1 or boxes.shape[1] != 4:
        return []
    return [Head("torchvision", 0, "boxes, integer labels and scores as lists")]


def _yolo(output: npt.NDArray[Any], input_size: tuple[int, int]) -> list[Head]:
    heads = []
    _, second, third = output.shape
    for strides in STRIDE_SETS:
        cells = count_cells(*input_size, strides)
        cells_text = f"cells of strides {', '.join(map(str, strides))}"
        if second == cells and third > 5:
            raw = bool(np.any(output[0, :, 2:4] <= 0.0))
            name, what = ("yolox", "some") if raw else ("yolox_decoded", "no")
            reason = f"{second} rows = {cells_text}, {what} width or height <= 0"
            heads.append(Head(name, third - 5, reason))
            other = "yolox_decoded" if raw else "yolox"
            heads.append(Head(other, third - 5, "asked for"))
        if second == 3 * cells and third > 5:
            heads.append(Head("yolov5", third - 5, f"{second} rows = 3 x {cells_text}"))
        if third == cells and second > 4:
            heads.append(Head("yolov8", second - 4, f"{third} columns = {cells_text}"))
    return heads
