# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Judges the jobs of a replay: the truth of each frame at its capture, results at their end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.agree.result_files import Key
from jetson_dnn_rt.lab.streaming.accuracy import StreamingMetric, Timed
from jetson_dnn_rt.lab.streaming.truth import Truth
from jetson_dnn_rt.models.heads.base import Kind
from jetson_dnn_rt.models.heads.labels import find_unlabelled
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.tasks import JobRecord, Outcome, Work

UNNAMED_CLASSES = 256
"""Classes of a network whose classes have no names: as many as a mask can hold."""

FIX = "fix: give masks of the frames' size, with the classes of the network"


class JudgedTask(Protocol):
    """What a judge wants to know of a task."""

    name: str
    model: Model


@dataclass(eq=False)
class _Stream:
    """What one task saw and answered in the replay of one stream."""

    captures: dict[Key, int] = field(default_factory=dict)
    """When each frame was taken, in ns."""
    answers: dict[Key, Timed] = field(default_factory=dict)


def make_metric(kind: Kind, labels: Sequence[str]) -> StreamingMetric:
    """Make the metric of a task with these classes."""
    return StreamingMetric(kind, len(labels) or UNNAMED_CLASSES, find_unlabelled(labels))


class StreamingJudge:
    """Streaming accuracy of the tasks whose truth is known.

    A result counts from the completion of its job, if that was in time: a late one is not
    published. `ConfigurationError` as by `Truth.of_tasks`.
    """

    def __init__(self, truth: Truth, tasks: Iterable[JudgedTask]) -> None:
        known = {task.name: (task.model.kind, task.model.labels) for task in tasks}
        self._finds = truth.of_tasks(known)
        self._metrics = {name: make_metric(*known[name]) for name in self._finds}
        # Beside it, each answer by the truth of its own frame, as if it had taken no time.
        self._offline = {name: make_metric(*known[name]) for name in self._finds}
        self._streams: dict[str, _Stream] = defaultdict(_Stream)

    def observing(
        self, stream: str, first: int, observer: Callable[[JobRecord, Work], None]
    ) -> Callable[[JobRecord, Work], None]:
        """Return an observer that passes jobs on, and keeps them until `end_stream`.

        `first` is the number of the stream's first frame.
        """

        def observe(job: JobRecord, work: Work) -> None:
            if job.task in self._finds:
                held, frame = self._streams[job.task], (stream, job.sequence - first)
                held.captures[frame] = job.capture_ns
                if job.outcome is Outcome.MET and work.result is not None:
                    held.answers[frame] = Timed(job.completion_ns, work.result)
            observer(job, work)

        return observe

    def end_stream(self) -> None:
        """Judge what was seen since the last call: one replay of one stream.

        `ConfigurationError` when masks are of another size than those of the truth.
        """
        for name, held in self._streams.items():
            # Masks are read from files here, where the run that is timed has ended.
            found = {frame: self._finds[name](*frame) for frame in held.captures}
            truths = {frame: truth for frame, truth in found.items() if truth is not None}
            instants = [Timed(held.captures[frame], truth) for frame, truth in truths.items()]
            try:
                self._metrics[name].add_stream(instants, list(held.answers.values()))
                for frame, truth in truths.items():
                    if frame in held.answers:
                        self._offline[name].add(truth, held.answers[frame].result)
            except ValueError as error:
                raise ConfigurationError(f"--streaming: task {name}: {error}; {FIX}") from error
        self._streams.clear()

    def to_dict(self) -> dict[str, Any]:
        """Convert for the summary; what `own_frames` and `judged` are says streaming.md."""
        return {
            name: {
                **metric.to_dict(),
                "own_frames": self._offline[name].to_dict()["value"],
                "judged": metric.judged,
            }
            for name, metric in self._metrics.items()
        }
