# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Layouts of a network's outputs: the interface of every head.

A new head is one file with a tuple ``LAYOUTS``, one line in `jetson_dnn_rt.models.heads.registry`
and one test. `Layout.match` tells it from the others, `Match.make_decoder` turns its outputs into
results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.config.task import MAX_DETECTIONS, TaskConfig
from jetson_dnn_rt.models.input.preprocessing import Geometry, Preprocessing
from jetson_dnn_rt.models.metadata import SILENT, Metadata
from jetson_dnn_rt.results import Result

Kind = Literal["detection", "segmentation", "classification"]
Outputs = Sequence[npt.NDArray[Any]]


@dataclass(slots=True)
class DecoderSettings:
    """Thresholds of a decoder, read for every frame: a node changes them while it runs."""

    confidence: float = TaskConfig.confidence_threshold  # smallest score of a box, in [0, 1]
    nms_iou: float = TaskConfig.nms_iou_threshold  # boxes that overlap more are suppressed
    max_detections: int = TaskConfig.max_detections  # the best of a frame
    class_agnostic: bool = False  # whether boxes of other classes are suppressed too
    thresholds: npt.NDArray[np.float32] | None = None
    """Smallest score by class, [classes], none below `confidence`; infinite = the class is not
    wanted. None = `confidence` for all."""
    top_k: int = 5  # the best classes of a classification, >= 1
    confidence_image: bool = False  # whether a segmentation has the probability of each pixel

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("confidence", "nms_iou") and not 0.0 <= value <= 1.0:
            raise ValueError(f"{name} must be in [0, 1]: {value}")
        if name == "top_k" and value < 1:
            raise ValueError(f"top_k must be >= 1: {value}")
        if name == "max_detections" and not 1 <= value <= MAX_DETECTIONS:
            raise ValueError(f"max_detections must be in [1, {MAX_DETECTIONS}]: {value}")
        object.__setattr__(self, name, value)


Decoder = Callable[[Outputs, Geometry, DecoderSettings], Result]
"""From the outputs of one run to a result that owns its arrays; may keep scratch memory."""

STRIDE_SETS = ((8, 16, 32), (8, 16, 32, 64), (4, 8, 16, 32))


def count_cells(height: int, width: int, strides: Sequence[int]) -> int:
    """Cells of all feature maps of an input."""
    return sum(-(-height // s) * -(-width // s) for s in strides)


@dataclass(frozen=True)
class Inspected:
    """A network whose head is looked for: its outputs for a plain grey picture, and its file."""

    outputs: Outputs
    input_size: tuple[int, int]  # height and width
    names: tuple[str, ...] = ()  # of the outputs; none where the source has no names
    metadata: Metadata = SILENT
    outputs_chosen: bool = False  # whether the user has named the outputs to use

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the outputs."""
        return [output.shape for output in self.outputs]

    def find_strides(self, cells: int) -> tuple[int, ...]:
        """The strides whose feature maps have so many cells together; empty = none."""
        fitting = (s for s in STRIDE_SETS if count_cells(*self.input_size, s) == cells)
        return next(fitting, ())

    def index(self, *names: str) -> int | None:
        """Place of the output with one of these names."""
        return next((i for i, name in enumerate(self.names) if name in names), None)


def describe_cells(strides: Sequence[int]) -> str:
    """``cells of strides 8, 16, 32``."""
    return f"cells of strides {', '.join(map(str, strides))}"


class Match(NamedTuple):
    """A way to read a network's outputs by one layout.

    A head names what it would read as scores and as boxes; `judge` holds them against what such
    values can be, in one place for all heads.
    """

    make_decoder: Callable[[], Decoder]
    classes: int  # 0 where the outputs do not tell
    reason: str  # for the log
    doubt: str = ""  # why it is not taken unless the user or the file asks for it
    fault: str = ""  # why it cannot be right whoever asks
    fix: str = ""  # of the doubt or the fault, where it is another than to set `head`
    scores: npt.NDArray[Any] | None = None  # from 0 to 1, any shape
    pixels: npt.NDArray[Any] | None = None  # boxes in pixels of the input, [N, 4] in any form
    shares: npt.NDArray[Any] | None = None  # boxes from 0 to 1 of the input, [N, 4]

    def judge(self) -> Match:
        """Return the same with the fault of its scores and boxes, where they have one."""
        if self.fault:
            return self
        if self.scores is not None and (fault := check_scores(self.scores)):
            return self._replace(fault=fault)
        if self.pixels is not None and (fault := check_pixels(self.pixels)):
            return self._replace(fault=fault, fix=f"{_IN_PIXELS}, or set head to {OWN_DECODER}")
        if self.shares is not None and (fault := check_shares(self.shares)):
            return self._replace(fault=fault)
        return self


OWN_DECODER = "package.module:Class, a decoder of your own (docs/models.md)"
"""For the ends of messages: what `head` may always be."""

_IN_PIXELS = "export the network with boxes in pixels of its input"


@dataclass(frozen=True)
class Layout:
    """One layout of outputs."""

    name: str
    form: str  # shapes and meaning, for error messages
    match: Callable[[Inspected], Match | None]  # None: the shapes are others
    preprocessing: Callable[[int, int], Preprocessing]  # what such networks are trained with
    kind: Kind = "detection"
    default_classes: int = 0  # where neither outputs nor labels say
    task: str = ""  # its name in the metadata of Ultralytics' exports
    declared: bool = False  # whether `preprocessing` is the user's own word


def check_scores(scores: npt.NDArray[Any]) -> str:
    """Fault of values that are read as scores; empty when all lie in [0, 1]."""
    if not scores.size:
        return ""
    if scores.dtype.kind != "f":  # of a quantized network, without its factor
        return f"its scores would be {scores.dtype}, not numbers from 0 to 1"
    least, most = float(scores.min()), float(scores.max())
    # The margin is for half precision; NaN is not a reason to look for another layout.
    if least < -1e-3 or most > 1.001:
        return f"its scores would be {least:.3g} to {most:.3g}, not 0 to 1"
    return ""


def check_pixels(boxes: npt.NDArray[Any]) -> str:
    """Fault of boxes [N, 4] that are read as pixels; empty when some leave the first pixel."""
    real = _leave_out_padding(boxes)
    # Those of an SSD may reach over the border by some hundredths.
    if real.size and np.isfinite(real).all() and real.min() > -0.5 and real.max() < 1.5:
        return "all its boxes would lie in one pixel: they seem to be written from 0 to 1"
    return ""


def check_shares(boxes: npt.NDArray[Any]) -> str:
    """Fault of boxes [N, 4] that are read as 0 to 1 of the input; empty when they can be."""
    real = _leave_out_padding(boxes)
    if real.size and float(np.abs(real).max()) > _FAR:
        return "its boxes would not lie between 0 and 1: they seem to be written in pixels"
    return ""


_FAR = 3.0
"""Boxes from 0 to 1 reach over the border, but not so far."""


def _leave_out_padding(boxes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Leave out rows of one value, which fill a list: zeros, or -1."""
    rows = boxes.reshape(-1, 4)
    kept: npt.NDArray[Any] = rows[(rows != rows[:, :1]).any(axis=1)]
    return kept
