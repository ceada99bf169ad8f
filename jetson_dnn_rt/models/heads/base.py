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

from jetson_dnn_rt.config.task import TaskConfig
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
    max_detections: int = TaskConfig.max_detections  # the best boxes of a frame, >= 1
    class_agnostic: bool = False  # whether boxes of other classes are suppressed too
    thresholds: npt.NDArray[np.float32] | None = None
    """Smallest score by class, [classes], none below `confidence`; infinite = the class is not
    wanted. None = `confidence` for all."""
    top_k: int = 5  # the best classes of a classification, >= 1
    confidence_image: bool = False  # whether a segmentation has the probability of each pixel

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("confidence", "nms_iou") and not 0.0 <= value <= 1.0:
            raise ValueError(f"{name} must be in [0, 1]: {value}")
        if name in ("max_detections", "top_k") and value < 1:
            raise ValueError(f"{name} must be >= 1: {value}")
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
    """A way to read a network's outputs by one layout."""

    make_decoder: Callable[[], Decoder]
    classes: int  # 0 where the outputs do not tell
    reason: str  # for the log
    doubt: str = ""  # why it is not taken unless the user or the file asks for it
    fault: str = ""  # why it cannot be right whoever asks
    fix: str = ""  # of the doubt, where it is another than to set `head`


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
    """Fault of values that are read as boxes in pixels; empty when some leave the first pixel."""
    if boxes.any() and np.isfinite(boxes).all() and not check_scores(boxes):
        return "all its boxes would lie in one pixel"
    return ""
