# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Layouts of a network's outputs: the interface of every head.

A new head is one file with a tuple ``LAYOUTS``, one line in `jetson_dnn_rt.models.heads.registry`
and one test. `Layout.match` tells it from the others, `Layout.make_decoder` turns its outputs into
results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy.typing as npt

from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.models.input.preprocessing import Geometry, Preprocessing
from jetson_dnn_rt.results import Result

Kind = Literal["detection", "segmentation", "classification"]
Outputs = Sequence[npt.NDArray[Any]]


@dataclass(slots=True)
class DecoderSettings:
    """Thresholds of a decoder, read for every frame: a node changes them while it runs."""

    confidence: float = TaskConfig.confidence_threshold  # smallest score of a box, in [0, 1]
    nms_iou: float = TaskConfig.nms_iou_threshold  # boxes that overlap more are suppressed
    max_detections: int = TaskConfig.max_detections  # the best boxes of a frame, >= 1
    top_k: int = 5  # the best classes of a classification, >= 1
    confidence_image: bool = False  # whether a segmentation has the probability of each pixel

    def __setattr__(self, name: str, value: float) -> None:
        if name in ("confidence", "nms_iou") and not 0.0 <= value <= 1.0:
            raise ValueError(f"{name} must be in [0, 1]: {value}")
        if name in ("max_detections", "top_k") and value < 1:
            raise ValueError(f"{name} must be >= 1: {value}")
        object.__setattr__(self, name, value)


Decoder = Callable[[Outputs, Geometry, DecoderSettings], Result]
"""From the outputs of one run to a result that owns its arrays; may keep scratch memory."""


class Match(NamedTuple):
    """A match of outputs with a layout."""

    classes: int  # 0 where the outputs do not tell
    reason: str  # for the log
    likely: bool = True  # False: another layout of the same shapes is meant, unless asked for


STRIDE_SETS = ((8, 16, 32), (8, 16, 32, 64))


class Grid(NamedTuple):
    """The feature maps of an input on one of `STRIDE_SETS`."""

    cells: int
    text: str


def count_cells(height: int, width: int, strides: Sequence[int]) -> int:
    """Cells of all feature maps of an input."""
    return sum(-(-height // s) * -(-width // s) for s in strides)


@dataclass(frozen=True)
class Layout:
    """One layout of outputs."""

    name: str
    form: str  # shapes and meaning, for error messages
    match: Callable[[Outputs, Grid], Match | None]  # outputs without old YOLOv5's feature maps
    make_decoder: Callable[[tuple[int, int]], Decoder]  # from height and width of the input
    preprocessing: Callable[[int, int], Preprocessing]  # what such networks are trained with
    kind: Kind = "detection"
    default_classes: int = 0  # where neither outputs nor labels say
