# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Recorder of `run`: takes every job's record and result, and writes them on its own thread."""

from __future__ import annotations

import json
import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from jetson_dnn_rt.config.process import TRACE_LIMIT_MB
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.heads.result_lines import describe_frame, describe_result
from jetson_dnn_rt.results import Detections, Result
from jetson_dnn_rt.safety.faults import FAULTS, start_thread
from jetson_dnn_rt.tasks import JobRecord, Outcome, Work
from jetson_dnn_rt.traces.room import TraceRoom, check_disk
from jetson_dnn_rt.traces.schema import TraceMetadata
from jetson_dnn_rt.traces.summary import RunSummary
from jetson_dnn_rt.traces.writer import TraceWriter, describe_no_clocks, load_libraries

if TYPE_CHECKING:
    from jetson_dnn_rt.cli.video import RunVideo
    from jetson_dnn_rt.nodes.process.graph import TaskInfo

JOIN_S = 30.0
"""Limit for a disk that does not answer; jobs not written by then are reported missing."""

CHECK_LINES = 1024
"""Result lines between two checks of the free space of the disk."""

QUEUE_LIMIT = 256
"""Jobs that wait for a slow disk before publishing has to wait too: they hold their frames in
memory."""

FRAMES_KEPT = 3
"""Latest frames whose results are collected for the picture; each holds a buffer of the camera."""


@dataclass
class Sight:
    """One frame and the tasks' results for it, by task."""

    frame: Frame
    results: dict[str, Result] = field(default_factory=dict)

    @property
    def rank(self) -> tuple[bool, int]:
        """Suitability for the picture: frames with boxes first, then those of more tasks."""
        boxes = any(len(r) for r in self.results.values() if isinstance(r, Detections))
        return boxes, len(self.results)


class Recorder:
    """Observer of all jobs: statistics, result lines, job trace, video, and a frame to draw.

    At `trace_limit_mb` (0 = no limit) the oldest parts of the trace make room. At the end `lost`
    jobs are not in the trace, `removed` of them because they made room. Result lines have whole
    masks with `masks`.

    OSError: a file cannot be opened. ConfigurationError: a trace is wanted and pyarrow is missing.
    """

    def __init__(
        self,
        results: Path | None = None,
        trace: Path | None = None,
        *,
        masks: bool = False,
        video: RunVideo | None = None,
        keep_sight: bool = False,
        trace_limit_mb: int = TRACE_LIMIT_MB,
    ) -> None:
        self.summary = RunSummary()
        self.best: Sight | None = None
        self.error: Exception | None = None
        self.lost = self.removed = 0
        self._tasks: Mapping[str, TaskInfo] = {}
        self._masks = masks
        self.video = video
        self._keep_sight = keep_sight
        self._recent: deque[Sight] = deque(maxlen=FRAMES_KEPT)
        self._results: TextIO | None = None
        if results is not None:
            results.parent.mkdir(parents=True, exist_ok=True)
            self._results = results.open("w", encoding="utf-8")
        self._lines = 0
        self._folder = trace
        self._room = TraceRoom(trace_limit_mb)
        self._trace: TraceWriter | None = None
        if trace is not None:
            # Errors of either are reported before models are loaded.
            load_libraries()
            trace.mkdir(parents=True, exist_ok=True)
        self._hangs = False
        self._queue: queue.Queue[tuple[JobRecord, Work] | None] = queue.Queue(QUEUE_LIMIT)
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Recorder:
        self._thread = start_thread(self._run, "recorder", wanted=lambda: True)
        return self

    def __exit__(self, *raised: object) -> None:
        self._put(None)
        assert self._thread is not None
        self._thread.join(JOIN_S)
        if self._thread.is_alive():
            self.error = self.error or OSError(f"the disk has not answered for {JOIN_S:g} s")
        elif self.video is not None:
            try:
                self.video.close()
            except OSError as error:
                self.error = self.error or error
        if self._trace is not None:
            self._trace.close()
            self.lost, self.removed = self._trace.lost, self._trace.removed
            self.error = self.error or self._trace.error

    def introduce(
        self,
        tasks: Mapping[str, TaskInfo],
        metadata: TraceMetadata | None = None,
        clocks: Callable[[int], str] = describe_no_clocks,
    ) -> None:
        """Name the tasks, and begin the trace, before their first job.

        `clocks` gives the clock configuration at a steady time in ns, in words. Raises `OSError`
        when the trace's folder cannot be written.
        """
        self._tasks = tasks
        self.summary = RunSummary({name: task.variant for name, task in tasks.items()})
        if self.video is not None:
            self.video.introduce(tasks)
        if self._folder is not None:
            self._trace = TraceWriter(
                self._folder,
                metadata or TraceMetadata(),
                clocks=clocks,
                room=self._room,
                replace=True,
            )

    def observe(self, record: JobRecord, work: Work) -> None:
        """Record a job that ended; called on the executor's delivery thread."""
        if self._trace is not None:
            self._trace.write(record, work.frame.stamp_ns)
        self._put((record, work))

    def _put(self, item: tuple[JobRecord, Work] | None) -> None:
        """Queue a job; a disk that hangs is waited for once, then jobs are lost."""
        try:
            self._queue.put(item, timeout=0.0 if self._hangs else JOIN_S)
            self._hangs = False
        except queue.Full:
            self._hangs = True
            self.error = self.error or OSError(f"the disk has not answered for {JOIN_S:g} s")

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            record, work = item
            try:
                self._record(record, work)
            except Exception as error:
                # The run goes on; the error is reported at its end.
                if not isinstance(error, OSError):
                    FAULTS.note("recorder", error)
                self.error = self.error or error
            del item, record, work
        if self._results is not None:
            try:
                self._results.close()
            except OSError as error:
                self.error = error

    def _record(self, record: JobRecord, work: Work) -> None:
        self.summary.add(record)
        if self._keep_sight:
            self._collect(record, work)
        if self.video is not None and self.error is None:
            self.video.add(record, work)
        if self._results is not None and self.error is None:
            task = self._tasks[record.task]
            line = format_result(record, work, task, masks=self._masks)
            if self._lines % CHECK_LINES == 0:
                check_disk(self._results.fileno())
            self._results.write(line + "\n")
            self._lines += 1

    def _collect(self, record: JobRecord, work: Work) -> None:
        """Keep the latest frame that every task has seen, one with boxes if there is any."""
        if record.outcome is not Outcome.MET or work.result is None:
            return
        sight = next((s for s in self._recent if s.frame is work.frame), None)
        if sight is None:
            sight = Sight(work.frame)
            self._recent.append(sight)
        sight.results[record.task] = work.result
        if self.best is None or sight.rank >= self.best.rank:
            self.best = sight


def format_result(record: JobRecord, work: Work, task: TaskInfo, *, masks: bool = False) -> str:
    """One line of JSON: which frame, how its job ended, what was found.

    A job without a result has the same keys, empty; its outcome tells why.
    """
    line: dict[str, object] = {
        "frame": record.sequence,
        **describe_frame(work.frame),
        "task": record.task,
        "outcome": record.outcome.value,
    }
    line |= describe_result(work.result, task.kind, task.labels, masks=masks)
    return json.dumps(line)
