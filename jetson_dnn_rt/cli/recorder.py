"""Takes every job's record and result while the graph runs, and writes them on its own thread."""

from __future__ import annotations

import json
import queue
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import cv2
import numpy as np

from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.results import Classification, Detections, Result, Segmentation
from jetson_dnn_rt.tasks import JobRecord, Outcome, Work
from jetson_dnn_rt.wcet.summary import RunSummary
from jetson_dnn_rt.wcet.trace import format_job

QUEUE_LIMIT = 256
"""Jobs that wait for a slow disk before publishing has to wait too: their frames are in memory."""

FRAMES_KEPT = 3
"""Latest frames whose results are collected for the picture; each holds a buffer of the camera."""

_EMPTY: dict[str, tuple[str, object]] = {
    "detection": ("boxes", []),
    "segmentation": ("class_shares", {}),
    "classification": ("classes", []),
}


@dataclass(frozen=True)
class TaskLabels:
    """What a task looks for (``detection``, ``segmentation``, ...), and its classes' names."""

    kind: str
    labels: Sequence[str]


@dataclass
class Sight:
    """One frame and what the tasks found in it, by task."""

    frame: Frame
    results: dict[str, Result] = field(default_factory=dict)

    @property
    def boxes(self) -> int:
        """Boxes in it."""
        return sum(len(r) for r in self.results.values() if isinstance(r, Detections))


class Recorder:
    """Observer of all jobs: statistics, result lines, job trace, and a frame to draw.

    Parameters
    ----------
    results : Path, optional
        File of result lines.
    trace : Path, optional
        File of job records.
    keep_jobs : bool
        Keep the records for the plot.

    Raises
    ------
    OSError
        When a file cannot be opened.
    """

    def __init__(
        self, results: Path | None = None, trace: Path | None = None, *, keep_jobs: bool = False
    ) -> None:
        self.summary = RunSummary()
        self.jobs: dict[str, list[JobRecord]] = {}
        self.best: Sight | None = None
        self.error: OSError | None = None
        self._labels: Mapping[str, TaskLabels] = {}
        self._keep_jobs = keep_jobs
        self._recent: deque[Sight] = deque(maxlen=FRAMES_KEPT)
        self._results = _open(results)
        self._trace = _open(trace)
        self._queue: queue.Queue[tuple[JobRecord, Work] | None] = queue.Queue(QUEUE_LIMIT)
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    def __enter__(self) -> Recorder:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._queue.put(None)
        self._thread.join()
        for file in (self._results, self._trace):
            if file is not None:
                try:
                    file.close()
                except OSError as failure:
                    self.error = failure

    def introduce(self, labels: Mapping[str, TaskLabels]) -> None:
        """Name the tasks before their first job."""
        self._labels = labels
        self.summary = RunSummary(labels)
        self.jobs = {task: [] for task in labels}

    def observe(self, record: JobRecord, work: Work) -> None:
        """Take a job that ended; called on the executor's delivery thread."""
        self._queue.put((record, work))

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            record, work = item
            self.summary.add(record)
            if self._keep_jobs:
                self.jobs.setdefault(record.task, []).append(record)
                self._collect(record, work)
            if self.error is None:
                try:
                    self._write(record, work)
                except OSError as error:
                    # The run goes on; what became of the file is said at its end.
                    self.error = error
            del item, record, work

    def _write(self, record: JobRecord, work: Work) -> None:
        if self._results is not None:
            line = format_result(record, work, self._labels[record.task])
            self._results.write(line + "\n")
        if self._trace is not None:
            self._trace.write(format_job(record) + "\n")

    def _collect(self, record: JobRecord, work: Work) -> None:
        """Keep the latest frame that every task has seen, one with boxes if there is any."""
        if record.outcome is not Outcome.MET or work.result is None:
            return
        sight = next((s for s in self._recent if s.frame is work.frame), None)
        if sight is None:
            sight = Sight(work.frame)
            self._recent.append(sight)
        sight.results[record.task] = work.result
        best = self.best
        if best is None or _rank(sight) >= _rank(best):
            self.best = sight


def _rank(sight: Sight) -> tuple[bool, int]:
    return sight.boxes > 0, len(sight.results)


def _open(path: Path | None) -> TextIO | None:
    if path is None:
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("w", encoding="utf-8")


def format_result(record: JobRecord, work: Work, task: TaskLabels) -> str:
    """One line of JSON: which frame, how its job ended, what was found.

    A job without a result has the same keys with nothing in them; its outcome says why.
    """
    line: dict[str, object] = {
        "frame": record.sequence,
        "stamp_ns": work.frame.stamp_ns,
        "task": record.task,
        "outcome": record.outcome.value,
    }
    result = work.result
    if isinstance(result, Detections):
        line["boxes"] = _list_boxes(result, task.labels)
    elif isinstance(result, Segmentation):
        line["class_shares"] = _share_classes(result, task.labels)
    elif isinstance(result, Classification):
        line["classes"] = [
            {
                "class_id": str(class_id),
                "label": _name(task.labels, class_id),
                "score": round(score, 5),
            }
            for class_id, score in zip(
                result.class_ids.tolist(), result.scores.tolist(), strict=True
            )
        ]
    else:
        key, nothing = _EMPTY[task.kind]
        line[key] = nothing
    return json.dumps(line)


def _name(labels: Sequence[str], class_id: int) -> str:
    return labels[class_id] if class_id < len(labels) else f"class_{class_id}"


def _list_boxes(result: Detections, labels: Sequence[str]) -> list[dict[str, object]]:
    return [
        {
            "class_id": str(class_id),
            "label": _name(labels, class_id),
            "score": round(score, 5),
            "xyxy": [round(value, 2) for value in corners],
        }
        for class_id, score, corners in zip(
            result.class_ids.tolist(), result.scores.tolist(), result.boxes.tolist(), strict=True
        )
    ]


def _share_classes(result: Segmentation, labels: Sequence[str]) -> dict[str, float]:
    # OpenCV's histogram keeps neither the interpreter's lock nor a copy of the mask.
    mask = np.ascontiguousarray(result.mask)
    counts = cv2.calcHist([mask], [0], None, [256], [0, 256]).ravel().tolist()
    return {
        _name(labels, class_id): round(count / mask.size, 6)
        for class_id, count in enumerate(counts)
        if count
    }
