# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The truth of frames: boxes in COCO's JSON, masks as pictures, or results of `evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath

import cv2
import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.cameras.files import decode_file
from jetson_dnn_rt.errors import ConfigurationError, SourceError
from jetson_dnn_rt.lab.agree.result_files import RESULTS, FrameResult, Key, read_results
from jetson_dnn_rt.lab.streaming.accuracy import METRICS
from jetson_dnn_rt.lab.streaming.coco import LabelledFrame, read_coco
from jetson_dnn_rt.lab.streaming.frame_names import FrameName, match_files, match_numbers
from jetson_dnn_rt.models.heads.base import Kind
from jetson_dnn_rt.models.heads.labels import find_unlabelled
from jetson_dnn_rt.results import Detections, Result, Segmentation

Find = Callable[[str, int], Result | None]
"""Finds the truth of a frame by its stream's name and its number there; None = not labelled."""


class Truth:
    """Truth of some frames for the tasks of an evaluation, read from a file or folder.

    All of it is checked at once. `ConfigurationError` when it cannot be used, or no frame has any.
    """

    def __init__(self, path: Path, frames: Sequence[FrameName]) -> None:
        self.notes: list[str] = []
        """What the user should know: classes that are not asked for."""
        self._path = path
        self._classes: Sequence[str] | None = None
        self._labels: dict[Key, LabelledFrame] = {}
        self._masks: dict[Key, Path] = {}
        self._kinds: dict[str, Kind] = {}
        self._results: dict[str, dict[Key, FrameResult]] = {}
        if path.suffix == ".json":
            first = self._match_boxes(frames)
        elif path.is_dir() and not (path / RESULTS).exists():
            first = self._match_masks(frames)
        else:
            first = self._match_results(frames)
        if not (self._labels or self._masks or any(self._results.values())):
            raise ConfigurationError(
                f"{path}: no frame has a label: the first frame is "
                f"{frames[0] if frames else 'missing'}, the first label {first}; fix: name labels "
                "after the photos, or number them as the frames of a bag, from 0"
            )
        self._seen_in: dict[int, Path] = {}
        """The first mask with each number."""
        for file in self._masks.values():
            for number in np.flatnonzero(np.bincount(_read_mask(file).ravel())).tolist():
                self._seen_in.setdefault(number, file)

    def _match_boxes(self, frames: Sequence[FrameName]) -> str:
        held = read_coco(self._path)
        self._classes = held.names
        files = match_files(frames, [PurePath(label.file) for label in held.frames])
        self._labels = {key: held.frames[place] for key, place in files.items()}
        numbers = {(label.sequence, label.number): label for label in held.frames}
        others = [frame for frame in frames if not frame.file]
        self._labels |= match_numbers(others, numbers, _name_bag)
        first = held.frames[0]
        return first.file or f"{first.number} of {first.sequence or 'a single sequence'}"

    def _match_masks(self, frames: Sequence[FrameName]) -> str:
        masks = sorted(self._path.rglob("*.png"))
        if not masks:
            raise ConfigurationError(
                f"{self._path} has neither {RESULTS} nor masks (*.png); fix: give the folder of "
                "`evaluate --output`, or one of masks with the names of the photos"
            )
        files = match_files(frames, masks, endings=False)
        self._masks = {key: masks[place] for key, place in files.items()}
        return str(masks[0])

    def _match_results(self, frames: Sequence[FrameName]) -> str:
        choose = "evaluate again with one, --variant TASK=NAME"
        tasks = read_results(self._path, choose=choose)
        for name, task in tasks.items():
            there = {key: frame for key, frame in task.frames.items() if frame.is_there}
            self._kinds[name] = task.kind
            self._results[name] = match_numbers(frames, there, str)
        stream, number = next(key for task in tasks.values() for key in task.frames)
        return f"{number} of {stream or 'a run'}"

    def of_tasks(self, tasks: Mapping[str, tuple[Kind, Sequence[str]]]) -> dict[str, Find]:
        """Return what finds the truth of each task's frames, where there is one for it.

        `tasks` are the kind of each and its classes. `ConfigurationError` when there is none for
        any, the labels have no class of a task or one that it lacks in a mask, or its results are
        of another kind or without their masks.
        """
        given = {name: self._of_task(name, kind, labels) for name, (kind, labels) in tasks.items()}
        found = {name: find for name, find in given.items() if find is not None}
        if not found:
            raise ConfigurationError(
                f"{self._path}: there is no truth of any task ({', '.join(tasks)}); fix: give "
                "boxes for detection, masks for segmentation, or results of tasks of these names"
            )
        return found

    def _of_task(self, name: str, kind: Kind, labels: Sequence[str]) -> Find | None:
        if kind not in METRICS:
            return None
        if self._classes is not None:
            if kind != "detection":
                return None
            return _find_in_labels(self._labels, self._map_classes(self._classes, labels, name))
        if self._masks:
            if kind != "segmentation":
                return None
            self._check_numbers(name, labels)
            return _find_in_masks(self._masks)
        if name not in self._results:
            return None
        found = self._results[name]
        if self._kinds[name] != kind:
            raise ConfigurationError(
                f"{self._path}: task {name} is {self._kinds[name]} there, not {kind}; fix: give "
                "results of the same task"
            )
        if any(frame.result is None for frame in found.values()):
            raise ConfigurationError(f"{self._path} has no masks; fix: write it with --masks")
        return lambda stream, number: (
            found[stream, number].result if (stream, number) in found else None
        )

    def _map_classes(self, names: Sequence[str], labels: Sequence[str], task: str) -> list[int]:
        """Map the classes of the truth to those of a network, by name; -1 = it lacks that one."""
        known = {label.casefold(): place for place, label in enumerate(labels)}
        places = [known.get(name.casefold(), -1) for name in names]
        missing = ", ".join(name for name, at in zip(names, places, strict=True) if at < 0)
        if max(places, default=-1) < 0:
            raise ConfigurationError(
                f"task {task} has no class of the truth: {', '.join(labels)}; {missing}; fix: use "
                "the network's names in the labels, or name its classes with the parameter labels"
            )
        if missing:
            self.notes.append(f"{task}: labels of classes that it lacks do not count: {missing}")
        return places

    def _check_numbers(self, task: str, labels: Sequence[str]) -> None:
        """Refuse masks with a number that means nothing, or in which nothing is judged."""
        unjudged = find_unlabelled(labels)
        for number, file in sorted(self._seen_in.items()):
            if labels and number >= len(labels) and number not in unjudged:
                raise ConfigurationError(
                    f"{file} has pixels of class {number}, but task {task} has the classes 0 to "
                    f"{len(labels) - 1}; fix: number the masks by its classes, with 255 where "
                    "nothing is judged"
                )
        if unjudged.issuperset(self._seen_in):
            raise ConfigurationError(
                f"{self._path}: no pixel has a class of task {task}, all are "
                f"{', '.join(map(str, sorted(self._seen_in)))}; fix: number masks by its classes"
            )


def _name_bag(stream: str) -> str:
    return PurePath(stream.rpartition("#")[0]).name


def _find_in_labels(held: Mapping[Key, LabelledFrame], classes: Sequence[int]) -> Find:
    place_of = np.array(classes, np.int64)

    def find(stream: str, number: int) -> Result | None:
        frame = held.get((stream, number))
        if frame is None:
            return None
        kinds = place_of[frame.truth.class_ids]
        seen = kinds >= 0
        return Detections(frame.truth.boxes[seen], frame.truth.scores[seen], kinds[seen])

    return find


def _find_in_masks(masks: Mapping[Key, Path]) -> Find:
    def find(stream: str, number: int) -> Result | None:
        path = masks.get((stream, number))
        return None if path is None else Segmentation(_read_mask(path))

    return find


def _read_mask(path: Path) -> npt.NDArray[np.uint8]:
    try:
        mask = decode_file(path, cv2.IMREAD_UNCHANGED)
    except SourceError as error:
        raise ConfigurationError(f"{path} is no mask: {error}") from error
    if mask is None or mask.dtype != np.uint8 or mask.ndim != 2:
        found = "no picture" if mask is None else f"{mask.dtype}, {mask[0, 0].size} channels"
        raise ConfigurationError(
            f"{path} is no mask ({found}); fix: write one channel of 8 bits, the number of each "
            "pixel's class"
        )
    return np.asarray(mask, np.uint8)
