# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""All known heads, and recognising one by the file's metadata, the outputs and the user's word.

Where the shapes are ambiguous:

- A detector of one output has one row per anchor. One anchor per cell of the strides 8, 16, 32
  (and 64) makes ``cells`` rows, three make ``3 * cells``; so ``[1, cells, 5+C]`` is YOLOX and
  ``[1, 3*cells, 5+C]`` YOLOv5, whatever C. Channels first, ``[1, 4+C, cells]``, is YOLOv8/11.
- ``[1, 4+C, cells]`` has also the shape of a pose model's or of oriented boxes. Scores lie between
  0 and 1 and coordinates do not, so one run on a grey picture shows that it is no detector; which
  of the others it is, the metadata or the user must say.
- YOLOX files exist with raw offsets and, exported with ``--decode_in_inference``, with boxes.
  Widths and heights of boxes are exponentials, never < 0; raw ones are their logarithms, and
  among thousands of anchors some are below 0. So one run on a grey picture decides.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field

from jetson_dnn_rt.config.suggestions import suggest
from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.heads.base import OWN_DECODER, Decoder, Inspected, Kind, Layout, Match
from jetson_dnn_rt.models.heads.custom import is_custom, make_layout

_HEADS = ("yolo", "yolo_extras", "end_to_end", "detr", "box_lists", "logits", "class_maps")
"""Modules of this package, in the order in which they are asked."""

LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for head in _HEADS
    for layout in importlib.import_module(f"{__package__}.{head}").LAYOUTS
}


def find_layout(head: str) -> Layout:
    """The layout of a head by its name.

    `ConfigurationError` where it is ``package.module:Class`` and cannot be imported.
    """
    return make_layout(head) if is_custom(head) else LAYOUTS[head]


@dataclass(frozen=True)
class Head:
    """A recognised layout."""

    name: str  # a key of `LAYOUTS`, or ``package.module:Class``
    kind: Kind
    classes: int  # 0 where the outputs do not say (torchvision's detectors)
    reason: str  # how it was recognised, for the log
    make_decoder: Callable[[], Decoder] = field(compare=False, repr=False)


@dataclass(frozen=True)
class _Reading:
    layout: Layout
    match: Match

    @property
    def text(self) -> str:
        """For messages."""
        why = self.match.fault or self.match.doubt
        return f"  {self.layout.name}: {self.match.reason}" + (f"; but {why}" if why else "")


def recognise_head(seen: Inspected, head: str = "auto", kind: Kind | None = None) -> Head:
    """Find the layout of the outputs of one run on a grey picture.

    `head` is ``auto``, a key of `LAYOUTS`, or ``package.module:Class``
    (`jetson_dnn_rt.models.heads.custom`); the outputs must fit it. `kind` is the task the model is
    meant for.

    Raises
    ------
    ModelError
        When no layout fits, or several do, or another than the one asked for, or the file says
        that it is something else, or it is a model of another task.
    """
    if is_custom(head):
        layouts = {head: find_layout(head)}
    elif head != "auto" and head not in LAYOUTS:
        raise ModelError(
            f"head {head!r} is unknown, known are auto, {', '.join(LAYOUTS)}, or "
            f"package.module:Class for a decoder of your own{suggest(head, LAYOUTS)}"
        )
    else:
        layouts = LAYOUTS
    readings = [
        _Reading(layout, match.judge())
        for layout in layouts.values()
        if (match := layout.match(seen)) is not None
    ]
    chosen = _choose(seen, readings, head, kind)
    if kind is not None and chosen.layout.kind != kind:
        raise _refuse_kind(kind, chosen)
    match = chosen.match
    if seen.metadata.end_to_end and chosen.layout.kind == "detection" and match.classes:
        raise ModelError(
            "the file's metadata say that its graph suppresses overlaps (end2end, nms), but "
            f"its outputs are those of every cell ({chosen.layout.name}: {match.reason}): it is "
            "not what it says; export it again"
        )
    names = seen.metadata.names
    if names is not None and match.classes and match.classes != len(names):
        raise ModelError(
            f"the file's metadata names {len(names)} classes, the outputs hold {match.classes} "
            f"({chosen.layout.name}: {match.reason}): it is not what it says; export it again"
        )
    return Head(
        chosen.layout.name, chosen.layout.kind, match.classes, match.reason, match.make_decoder
    )


def _refuse_kind(kind: Kind, found: _Reading) -> ModelError:
    """The error for a task of another kind than what the outputs look like."""
    other = found.layout.kind
    fix = f"set kind to {other}; or, if its outputs only look so, head to {OWN_DECODER}"
    if (kind, other) == ("detection", "segmentation"):
        # The raw grid of a detector has the shape of a mask, and would be published as one.
        fix = (
            "of a detector, export it with the decoding of its boxes in the graph, or set head to "
            f"{OWN_DECODER}; of a network for masks, set kind to segmentation"
        )
    return ModelError(
        f"the task needs a model for {kind}, this one is for {other} ({found.layout.name}: "
        f"{found.match.reason}), as far as its outputs tell; fix: {fix}",
        "kind",
    )


def _choose(
    seen: Inspected, readings: list[_Reading], head: str, kind: Kind | None = None
) -> _Reading:
    """The reading to take of those whose shapes fit."""
    shapes = " and ".join(str(list(shape)) for shape in seen.shapes) or "none"
    about = f"outputs {shapes} of an input of {seen.input_size[0]}x{seen.input_size[1]}"
    task = seen.metadata.task
    if task and not is_custom(head):
        by_task = [reading for reading in readings if reading.layout.task == task]
        asked = [reading for reading in readings if reading.layout.name == head]
        if asked and asked[0] not in by_task:
            raise ModelError(
                f"head {head!r} contradicts the file, whose metadata say task {task!r}; fix: "
                "leave head at auto"
            )
        if readings and not by_task:
            texts = "\n".join(reading.text for reading in readings)
            raise ModelError(
                f"the file's metadata say task {task!r}, but its {about} fit none of its layouts, "
                f"only\n{texts}\nfix: export it again, or set head to package.module:Class"
            )
        readings = by_task
    if head != "auto":
        asked = [reading for reading in readings if reading.layout.name == head]
        if not asked:
            alike = [reading.layout.name for reading in readings if not reading.match.fault]
            text = f"look like {alike[0]!r}" if alike else "fit no known head"
            form = LAYOUTS[head].form if head in LAYOUTS else "other outputs"
            raise ModelError(f"head {head!r} needs {form}, the {about} {text}")
        if asked[0].match.fault:
            fix = f"; fix: {asked[0].match.fix}" if asked[0].match.fix else ""
            raise ModelError(f"head {head!r} cannot be right: {asked[0].match.fault}{fix}")
        return asked[0]
    sound = [reading for reading in readings if not reading.match.fault]
    # The metadata dispel doubts: the file has said which of the readings it is.
    sure = [reading for reading in sound if task or not reading.match.doubt]
    if len(sure) == 1 or (sure and task):
        return sure[0]
    if readings and not sound:
        texts = "\n".join(reading.text for reading in readings)
        fixes = {reading.match.fix for reading in readings if reading.match.fix}
        raise ModelError(
            f"{about} fit no known head; by their shapes alone they could be\n{texts}\nfix: "
            f"{fixes.pop() if len(fixes) == 1 else f'set head to {OWN_DECODER}'}"
        )
    if readings:
        if kind is not None and all(reading.layout.kind != kind for reading in sound):
            raise _refuse_kind(kind, sound[0])
        texts = "\n".join(reading.text for reading in sure or readings)
        names = ", ".join(reading.layout.name for reading in sure or sound)
        fix = f"set head to what it is: {names}"
        if len(sound) == 1 and sound[0].match.fix:
            fix = sound[0].match.fix
        raise ModelError(f"it is not certain how {about} are to be read:\n{texts}\nfix: {fix}")
    raise ModelError(
        f"{about} fit no known head, which `jetson-dnn-rt inspect` lists; fix: set head to "
        f"{OWN_DECODER}"
    )
