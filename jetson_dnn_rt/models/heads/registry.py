# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""All known heads, and recognising one from the shapes of the outputs and the input's size.

Where the shapes are ambiguous:

- A detector of one output has one row per anchor. One anchor per cell of the strides 8, 16, 32
  (and 64) makes ``cells`` rows, three make ``3 * cells``; so ``[1, cells, 5+C]`` is YOLOX and
  ``[1, 3*cells, 5+C]`` YOLOv5, whatever C. Channels first, ``[1, 4+C, cells]``, is YOLOv8/11.
- YOLOX files exist with raw offsets and, exported with ``--decode_in_inference``, with boxes.
  Widths and heights of boxes are exponentials, always > 0; raw ones are their logarithms, and
  among thousands of anchors some are below 0. So one run on a grey picture decides.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.heads.base import STRIDE_SETS, Grid, Kind, Layout, Outputs, count_cells

_HEADS = ("yolo", "box_lists", "logits")
"""Modules of this package; the first layout that matches wins."""

LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for head in _HEADS
    for layout in importlib.import_module(f"{__package__}.{head}").LAYOUTS
}


@dataclass(frozen=True)
class Head:
    """A recognised layout, a key of `LAYOUTS`."""

    name: str
    classes: int  # 0 where the outputs do not say (torchvision's detectors)
    reason: str  # how it was recognised, for the log

    @property
    def layout(self) -> Layout:
        """The layout by that name."""
        return LAYOUTS[self.name]

    @property
    def kind(self) -> Kind:
        """The task the layout belongs to."""
        return self.layout.kind


def recognise_head(
    outputs: Outputs, input_size: tuple[int, int], head: str = "auto", kind: Kind | None = None
) -> Head:
    """Find the layout of the outputs of one run on a grey picture.

    `head` is ``auto`` or a key of `LAYOUTS` that the outputs must fit; `kind` is the task the
    model is meant for.

    Raises
    ------
    ModelError
        When no layout fits, or another than the one asked for, or one of another task.
    """
    if head != "auto" and head not in LAYOUTS:
        raise ModelError(f"head {head!r} is unknown, known are auto, {', '.join(LAYOUTS)}")
    shapes = " and ".join(str(list(output.shape)) for output in outputs)
    # Old YOLOv5 exports return their three feature maps, of five dimensions, after the boxes.
    if all(output.ndim == 5 for output in outputs[1:]):
        outputs = outputs[:1]
    likely: list[Head] = []
    chosen: Head | None = None
    for strides in STRIDE_SETS:
        text = f"cells of strides {', '.join(map(str, strides))}"
        grid = Grid(count_cells(*input_size, strides), text)
        for layout in LAYOUTS.values():
            if (found := layout.match(outputs, grid)) is None:
                continue
            candidate = Head(layout.name, found.classes, found.reason)
            if found.likely:
                likely.append(candidate)
            if chosen is None and head in (layout.name, "auto" if found.likely else ""):
                chosen = candidate
    if chosen is None and head != "auto":
        alike = f"look like {likely[0].name!r}" if likely else "fit no known head"
        raise ModelError(f"head {head!r} needs {LAYOUTS[head].form}, the outputs {shapes} {alike}")
    if chosen is None:
        known = "\n".join(f"  {layout.name}: {layout.form}" for layout in LAYOUTS.values())
        raise ModelError(
            f"outputs {shapes} of an input of {input_size[0]}x{input_size[1]} fit no known head; "
            f"known are\n{known}"
        )
    if kind is not None and chosen.kind != kind:
        found_kind = f"{chosen.kind} ({chosen.name}: {chosen.reason})"
        raise ModelError(f"the task needs a model for {kind}, this one is for {found_kind}")
    return chosen
