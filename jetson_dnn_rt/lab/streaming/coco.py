# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Labelled frames in COCO's JSON, also of streams as in Argoverse-HD.

Of streams each image names its sequence, ``sid``, and its number there, ``fid``; without them the
images are one sequence in the order of their ids.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.results import Detections
from jetson_dnn_rt.safety.records import DAMAGE

NEEDED = ("images", "annotations", "categories")


@dataclass(frozen=True, eq=False)
class LabelledFrame:
    """A frame and its true boxes, whose `class_ids` are places in `CocoLabels.names`."""

    sequence: str  # empty where the file knows no sequences
    number: int  # in its sequence
    file: str  # may have folders; empty where the file knows no names
    truth: Detections


@dataclass(frozen=True, eq=False)
class CocoLabels:
    """The classes and the frames of a file, in the order of their ids."""

    names: tuple[str, ...]
    frames: tuple[LabelledFrame, ...]


def read_coco(path: Path) -> CocoLabels:
    """Read a file.

    `ConfigurationError` when it cannot be read, holds something else, or labels crowds: a box that
    stands for many objects cannot be missed or found.
    """
    try:
        held = json.loads(path.read_text(encoding="utf-8-sig"))
        if not isinstance(held, dict) or not all(held.get(key) for key in NEEDED):
            raise ValueError(f"not an object that holds {', '.join(NEEDED)}")
        return _convert(held)
    except OSError as error:
        raise ConfigurationError(
            f"cannot read {path}: {error.strerror}; fix: give a file of boxes in COCO's JSON"
        ) from error
    except DAMAGE as error:
        raise ConfigurationError(
            f"{path} is no COCO file of boxes ({type(error).__name__}: {error}); fix: give one as "
            "an exporter for object detection writes it"
        ) from error


def _convert(held: dict[str, Any]) -> CocoLabels:
    places = {int(one["id"]): place for place, one in enumerate(held["categories"])}
    names = tuple(str(one["name"]) for one in held["categories"])
    labels: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for label in held["annotations"]:
        if label.get("iscrowd"):
            raise ValueError(f"annotation {label['id']} is a crowd; fix: leave crowds out")
        labels[int(label["image_id"])].append(label)
    sequences = held.get("sequences", [])
    counts: dict[str, int] = defaultdict(int)
    frames = []
    for image in sorted(held["images"], key=lambda one: int(one["id"])):
        sequence = str(sequences[image["sid"]]) if "sid" in image else ""
        number = int(image.get("fid", counts[sequence]))
        counts[sequence] += 1
        file = str(image.get("file_name") or image.get("name") or "")
        found = labels[int(image["id"])]
        sides = np.array([label["bbox"] for label in found], np.float32).reshape(-1, 4)
        boxes = np.concatenate([sides[:, :2], sides[:, :2] + sides[:, 2:]], axis=1)
        kinds = np.array([places[int(label["category_id"])] for label in found], np.int64)
        truth = Detections(boxes, np.ones(len(found), np.float32), kinds)
        frames.append(LabelledFrame(sequence, number, file, truth))
    return CocoLabels(names, tuple(frames))
