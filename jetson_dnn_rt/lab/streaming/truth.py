# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The truth of frames: boxes in COCO's JSON, masks as pictures, or results of `evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath

import cv2
import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.agree.result_files import RESULTS, TaskResults, read_results
from jetson_dnn_rt.lab.streaming.accuracy import METRICS
from jetson_dnn_rt.lab.streaming.coco import CocoLabels, LabelledFrame, read_coco
from jetson_dnn_rt.models.heads.base import Kind
from jetson_dnn_rt.results import Detections, Result, Segmentation

Find = Callable[[str, int, str], Result | None]
"""Finds the truth of a frame by its stream's name, its number there, and a photo's file; None =
it is not labelled."""


class Truth:
    """Truth for the tasks of an evaluation, read from a file or folder.

    `ConfigurationError` when it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._labels: CocoLabels | None = None
        self._results: dict[str, TaskResults] = {}
        self._masks: dict[str, Path] = {}
        if path.suffix == ".json":
            self._labels = read_coco(path)
        elif path.is_dir() and not (path / RESULTS).exists():
            self._masks = {file.stem: file for file in path.glob("*.png")}
            if not self._masks:
                raise ConfigurationError(f"{path} has neither {RESULTS} nor masks (*.png)")
        else:
            self._results = read_results(path)

    def of_task(self, name: str, kind: Kind, labels: Sequence[str]) -> Find | None:
        """Return what finds the truth of a task's frames; None when there is none for it.

        `ConfigurationError` when the labels have no class of the task, or its results are of
        another kind or without their masks.
        """
        if kind not in METRICS:
            return None
        if self._labels is not None:
            if kind != "detection":
                return None
            return _find_in_labels(self._labels, _map_classes(self._labels.names, labels, name))
        if self._masks:
            return _find_in_masks(self._masks) if kind == "segmentation" else None
        if name not in self._results:
            return None
        found = self._results[name]
        if found.kind != kind:
            raise ConfigurationError(
                f"{self._path}: task {name} is {found.kind} there, not {kind}"
            )
        if any(frame.is_there and frame.result is None for frame in found.frames.values()):
            raise ConfigurationError(f"{self._path} has no masks; fix: write it with --masks")
        return _find_in_results(found)


def _map_classes(names: Sequence[str], labels: Sequence[str], task: str) -> list[int]:
    """Map the classes of the truth to those of a network, by name; -1 = it has no such class."""
    known = {label.casefold(): place for place, label in enumerate(labels)}
    places = [known.get(name.casefold(), -1) for name in names]
    if max(places, default=-1) < 0:
        raise ConfigurationError(
            f"task {task} has no class of the truth: {', '.join(labels)}; {', '.join(names)}"
        )
    return places


def _find_in_labels(held: CocoLabels, classes: Sequence[int]) -> Find:
    """Find frames by file where they have one, else by sequence and number."""
    by_file: dict[str, LabelledFrame] = {frame.file: frame for frame in held.frames}
    by_number = {(frame.sequence, frame.number): frame for frame in held.frames}
    one = len({frame.sequence for frame in held.frames}) == 1
    place_of = np.array(classes, np.int64)

    def find(stream: str, number: int, file: str) -> Result | None:
        # A stream is named after its folder and bag and its topic: drives/monday#/image_raw.
        bag = PurePath(stream.rpartition("#")[0]).name
        sequence = held.frames[0].sequence if one else bag
        frame = by_file.get(file) if file else by_number.get((sequence, number))
        if frame is None:
            return None
        kinds = place_of[frame.truth.class_ids]
        seen = kinds >= 0
        return Detections(frame.truth.boxes[seen], frame.truth.scores[seen], kinds[seen])

    return find


def _find_in_results(held: TaskResults) -> Find:
    streams = {stream for stream, _ in held.frames}

    def find(stream: str, number: int, file: str) -> Result | None:
        # A run names no stream, and a copy of the bag has another name.
        key = (next(iter(streams)) if len(streams) == 1 else stream, number)
        frame = held.frames.get(key)
        return frame.result if frame is not None and frame.is_there else None

    return find


def _find_in_masks(masks: Mapping[str, Path]) -> Find:
    """Find the masks of photos, which have the same name up to its ending."""

    def find(stream: str, number: int, file: str) -> Result | None:
        path = masks.get(PurePath(file).stem) if file else None
        return None if path is None else Segmentation(_read_mask(path))

    return find


def _read_mask(path: Path) -> npt.NDArray[np.uint8]:
    mask = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    if mask is None or mask.dtype != np.uint8 or mask.ndim != 2:
        raise ConfigurationError(
            f"{path} is no mask: needed is one channel of 8 bits, the number of each pixel's class"
        )
    return np.asarray(mask, np.uint8)
