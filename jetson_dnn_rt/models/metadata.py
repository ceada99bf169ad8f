# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Metadata of exporters: what a model file says of itself beside its graph.

Ultralytics' exports carry ``author``, ``version``, ``task``, ``names``, ``imgsz``, ``stride``,
``batch``, ``kpt_shape``, ``end2end``, ``args`` and more as texts of Python literals
(ultralytics/engine/exporter.py). Other exporters write other keys, or none.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.heads.labels import names_of_mapping

_MAX_CHARACTERS = 1 << 16  # of one value
_OTHER_NAMES = ("labels", "classes", "class_names", "class_labels", "label_list", "categories")
MAX_SIDE = 8192
"""Longest side of a network's input in pixels."""

TASKS = ("detect", "segment", "pose", "obb", "classify", "semantic")
"""Tasks of Ultralytics' exports."""


@dataclass(frozen=True)
class Metadata:
    """What a model file says of itself; empty or None where it is silent."""

    exporter: str = ""  # ``ultralytics 8.4.1``
    task: str = ""  # as the exporter calls it: ``detect``, ``pose``
    head: str = ""  # class of the head, in late versions: ``Detect``, ``RTDETRDecoder``
    names: tuple[str, ...] | None = None  # of the classes, by index
    likely_names: tuple[str, ...] | None = None  # from another key, if there are as many classes
    image_size: tuple[int, int] | None = None  # height and width
    keypoint_shape: tuple[int, int] | None = None  # keypoints, and values of each: 2 or 3
    end_to_end: bool | None = None  # whether the graph holds its own suppression of overlaps
    batch: int = 0
    values: tuple[tuple[str, str], ...] = ()  # all of it, as written

    @property
    def is_ultralytics(self) -> bool:
        """Whether Ultralytics' exporter wrote it: it always prepares pictures in one way."""
        return self.exporter.startswith("ultralytics")


SILENT = Metadata()
"""Of a file that says nothing."""


def read_metadata(values: Mapping[str, str]) -> Metadata:
    """Read what is understood; a value of another form than the exporter's is as good as none."""
    read = {
        key: _parse(values[key])
        for key in ("names", "imgsz", "kpt_shape", "end2end", "batch", "args")
        if key in values
    }
    arguments = read.get("args")
    end_to_end = read.get("end2end")
    if isinstance(arguments, dict) and arguments.get("nms") is True:
        end_to_end = True
    task = values.get("task", "")
    is_known = task in TASKS and ("names" in values or "stride" in values)
    return Metadata(
        exporter=_find_exporter(values, is_known),
        task=task if is_known else "",
        head=values.get("head", "") if is_known else "",
        names=_names_of(read.get("names")),
        likely_names=_find_likely_names(values),
        image_size=_pair_of(read.get("imgsz")),
        keypoint_shape=_pair_of(read.get("kpt_shape")),
        end_to_end=end_to_end if isinstance(end_to_end, bool) else None,
        batch=batch if isinstance(batch := read.get("batch"), int) and batch > 0 else 0,
        values=tuple(sorted(values.items())),
    )


def _find_exporter(values: Mapping[str, str], is_ultralytics: bool) -> str:
    author = values.get("author", "")
    if is_ultralytics or author.lower() == "ultralytics":
        return f"ultralytics {values.get('version', '')}".strip()
    return author


def _parse(text: str) -> Any:
    """Read a Python literal; None where it is none. ``true`` as in JSON counts."""
    if len(text) > _MAX_CHARACTERS:
        return None
    if text in ("true", "false"):
        return text == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _find_likely_names(values: Mapping[str, str]) -> tuple[str, ...] | None:
    """Names under a usual key, as JSON, as a Python literal or line by line."""
    texts = [values[key] for key in _OTHER_NAMES if key in values]
    for text in texts:
        if names := _names_of(_parse(text)):
            return names
    # A text of one line may be anything: `classes` may be their number.
    lines = [text.strip().splitlines() for text in texts]
    return next((tuple(map(str.strip, some)) for some in lines if len(some) > 1), None)


def _names_of(value: object) -> tuple[str, ...] | None:
    if isinstance(value, (list, tuple)) and value and all(isinstance(name, str) for name in value):
        return tuple(value)
    if not isinstance(value, dict):
        return None
    try:
        # JSON has texts as keys. Python turns no number of thousands of digits into text, or back.
        keys = [int(k) if isinstance(k, str) and k.isdecimal() else k for k in value]
        return names_of_mapping(dict(zip(keys, value.values(), strict=True))) or None
    except (ModelError, ValueError):
        return None


def _pair_of(value: object) -> tuple[int, int] | None:
    if isinstance(value, int) and not isinstance(value, bool):
        value = [value, value]
    if isinstance(value, (list, tuple)) and len(value) == 2:
        first, second = value
        if all(type(side) is int and 0 < side <= MAX_SIDE for side in (first, second)):
            return first, second
    return None
