# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Results of a run, read from the lines that `run --results` and `evaluate --output` write."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jetson_dnn_rt.cameras.encoded_pictures import BadImageError, decode_picture
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.models.heads.base import Kind
from jetson_dnn_rt.models.heads.result_lines import THUMBNAIL_SIDE
from jetson_dnn_rt.results import Classification, Detections, Result, Segmentation
from jetson_dnn_rt.safety.records import DAMAGE
from jetson_dnn_rt.tasks import Outcome

RESULTS = "results.jsonl"
"""File of a folder that `evaluate --output` has written."""

Key = tuple[str, int]
"""A frame: the stream, empty in a run, and the number in it."""

CHOOSE = "choose with --variants ('' for the file of a run)"
"""What `agree` offers for a file of several variants."""

WITH_RESULT = (Outcome.MET, Outcome.LATE)

HIGHEST_CLASS = 65_535
"""Memory is needed for each class."""

_KINDS: dict[str, Kind] = {
    "boxes": "detection",
    "class_shares": "segmentation",
    "classes": "classification",
}
"""Kind of task by the key that its lines have."""


@dataclass(frozen=True, eq=False)
class FrameResult:
    """What a task found in a frame."""

    frame: int  # number in its stream
    outcome: Outcome
    result: Result | None  # None: it has none, or is a mask that is not in the file
    stream: str = ""  # of a bag; a run names none
    file: str = ""  # of a photo
    stamp_ns: int | None = None
    size: tuple[int, int] = (0, 0)  # width and height in pixels
    thumbnail: bytes = b""  # grey levels of its parts; empty in lines that others wrote

    @property
    def name(self) -> str:
        """Name for people."""
        return self.file or str(self.frame)

    @property
    def is_there(self) -> bool:
        """Whether its job came to a result."""
        return self.outcome in WITH_RESULT


@dataclass(eq=False)
class TaskResults:
    """The results of one task in one variant or, of a run, in those that it ran."""

    kind: Kind
    frames: dict[Key, FrameResult] = field(default_factory=dict)
    labels: dict[str, dict[int, str]] = field(default_factory=dict)
    """Of the classes that occur, by the name of the mask, which is empty where there is one."""


def read_results(path: Path, variant: str = "", choose: str = CHOOSE) -> dict[str, TaskResults]:
    """Read a file, or ``results.jsonl`` of a folder: by task.

    `variant` chooses one where a frame has a line for each; `choose` tells the user how to.
    ConfigurationError when the file cannot be read, holds something else, or several variants.
    """
    file = path / RESULTS if path.is_dir() else path
    tasks: dict[str, TaskResults] = {}
    variants: set[str] = set()
    number = 0
    try:
        with file.open(encoding="utf-8-sig") as lines:
            for text in lines:
                number += 1
                line = json.loads(text)
                ran = line.get("variant", "")
                variants.add(ran)
                if not variant or ran == variant:
                    add_line(tasks, line)
    except OSError as error:
        fix = "give the file of `run --results` or the folder of `evaluate --output`"
        raise ConfigurationError(f"cannot read {file}: {error.strerror}; {fix}") from error
    except _SeveralResultsError as several:
        named = ", ".join(sorted(variants))
        fix = f"by variant ({named}): {choose}"
        if variant or len(variants) == 1:
            fix = "of one variant: write them without --repeat"
        raise ConfigurationError(f"{file} has several results of {several}, {fix}") from None
    except (*DAMAGE, BadImageError) as error:
        raise ConfigurationError(
            f"{file}, line {number}: no result of `run --results` or `evaluate` "
            f"({type(error).__name__}: {error})"
        ) from error
    if not tasks:
        what = f"no result of variant {variant}" if variant else "no result"
        known = ", ".join(sorted(filter(None, variants)))
        raise ConfigurationError(f"{file} holds {what}" + (f", but of {known}" if known else ""))
    return tasks


class _SeveralResultsError(Exception):
    """A frame has several results: of several variants, or repetitions."""


def add_line(tasks: dict[str, TaskResults], line: dict[str, Any]) -> FrameResult:
    """Add the result of a frame to those of its task, and return it."""
    kind = next(kind for key, kind in (*_KINDS.items(), ("", None)) if key in line or not key)
    if kind is None:
        raise KeyError("boxes, class_shares or classes")
    task = tasks.setdefault(line["task"], TaskResults(kind))
    # `evaluate` names what has no result as failed.
    outcome = Outcome(line.get("outcome", "failed" if "failed" in line else "met"))
    frame, file = int(line["frame"]), str(line.get("file", ""))
    stream = str(line.get("stream", ""))
    if (stream, frame) in task.frames:
        raise _SeveralResultsError(f"frame {frame} of {line['task']}")
    result: Result | None = None
    if outcome in WITH_RESULT:
        if kind == "segmentation":
            result = _read_masks(line.get("mask_png"))
            for mask in result.masks if result is not None else ():
                shares = line["class_shares"]
                names = _name_classes(mask, shares[mask.name] if mask.name else shares)
                task.labels.setdefault(mask.name, {}).update(names)
        else:
            found = line["boxes" if kind == "detection" else "classes"]
            names = {int(one["class_id"]): str(one["label"]) for one in found}
            task.labels.setdefault("", {}).update(names)
            result = _read_objects(found, kind)
    stamp_ns = int(line["stamp_ns"]) if "stamp_ns" in line else None
    size = int(line.get("width", 0)), int(line.get("height", 0))
    thumbnail = base64.b64decode(line.get("thumbnail", ""), validate=True)
    if thumbnail and len(thumbnail) != THUMBNAIL_SIDE**2:
        raise ValueError(f"thumbnail must have {THUMBNAIL_SIDE**2} bytes: {len(thumbnail)}")
    found_there = FrameResult(frame, outcome, result, stream, file, stamp_ns, size, thumbnail)
    task.frames[stream, frame] = found_there
    return found_there


def _read_objects(found: list[dict[str, Any]], kind: Kind) -> Result:
    class_ids = np.array([int(one["class_id"]) for one in found], np.int64)
    if len(found) and not 0 <= class_ids.min() <= class_ids.max() <= HIGHEST_CLASS:
        raise ValueError(f"class_id must be 0 to {HIGHEST_CLASS}")
    scores = np.array([one["score"] for one in found], np.float32)
    if kind == "classification":
        return Classification(class_ids, scores)
    boxes = np.array([one["xyxy"] for one in found], np.float32).reshape(-1, 4)
    return Detections(boxes, scores, class_ids)


def _read_masks(pictures: str | dict[str, str] | None) -> Segmentation | None:
    if pictures is None:
        return None
    named = pictures if isinstance(pictures, dict) else {"": pictures}
    masks = []
    for name, text in named.items():
        data = np.frombuffer(base64.b64decode(text, validate=True), np.uint8)
        # A mask is grey: its channels are alike.
        mask = np.ascontiguousarray(decode_picture(data)[..., 0])
        masks.append(Segmentation(mask, name=name))
    first, *others = masks
    first.others = tuple(others)
    return first


def _name_classes(mask: Segmentation, shares: Mapping[str, Any]) -> dict[int, str]:
    """Name the classes in a mask: its shares are in the order of their numbers."""
    numbers = np.flatnonzero(np.bincount(mask.mask.ravel())).tolist()
    # Two classes of one name share a key, so that which number is whose is not known.
    return dict(zip(numbers, shares, strict=True)) if len(numbers) == len(shares) else {}
