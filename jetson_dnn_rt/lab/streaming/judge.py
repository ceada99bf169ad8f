# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Judges the jobs of a replay: the truth of each frame at its capture, results at their end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.streaming.accuracy import StreamingMetric, Timed
from jetson_dnn_rt.lab.streaming.truth import Find, Truth
from jetson_dnn_rt.models.heads.base import Kind
from jetson_dnn_rt.models.heads.labels import find_unlabelled
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.results import Result
from jetson_dnn_rt.tasks import JobRecord, Outcome, Work

UNNAMED_CLASSES = 256
"""Classes of a network whose classes have no names: as many as a mask can hold."""


class JudgedTask(Protocol):
    """What a judge wants to know of a task."""

    name: str
    model: Model


@dataclass(eq=False)
class _Stream:
    """What one task saw and answered in the replay of one stream."""

    truths: list[Timed] = field(default_factory=list)
    available: list[Timed] = field(default_factory=list)
    own: list[tuple[Result, Result]] = field(default_factory=list)
    """The truth of each frame that was answered, and the answer."""


def make_metric(kind: Kind, labels: Sequence[str]) -> StreamingMetric:
    """Make the metric of a task with these classes."""
    return StreamingMetric(kind, len(labels) or UNNAMED_CLASSES, find_unlabelled(labels))


class StreamingJudge:
    """Streaming accuracy of the tasks whose truth is known.

    A result counts from the completion of its job, if that was in time: a late one is not
    published. `ConfigurationError` when there is no truth for any task.
    """

    def __init__(self, truth: Truth, tasks: Iterable[JudgedTask]) -> None:
        self._finds: dict[str, Find] = {}
        self._metrics: dict[str, StreamingMetric] = {}
        # Beside it, each answer by the truth of its own frame, as if it had taken no time.
        self._offline: dict[str, StreamingMetric] = {}
        for task in tasks:
            kind, labels = task.model.kind, task.model.labels
            find = truth.of_task(task.name, kind, labels)
            if find is not None:
                self._finds[task.name] = find
                self._metrics[task.name] = make_metric(kind, labels)
                self._offline[task.name] = make_metric(kind, labels)
        if not self._finds:
            raise ConfigurationError("--streaming: there is no truth of any task")
        self._streams: dict[str, _Stream] = defaultdict(_Stream)

    def observing(
        self, stream: str, first: int, observer: Callable[[JobRecord, Work], None]
    ) -> Callable[[JobRecord, Work], None]:
        """Return an observer that passes jobs on, and keeps them until `end_stream`.

        `first` is the number of the stream's first frame.
        """

        def observe(job: JobRecord, work: Work) -> None:
            find = self._finds.get(job.task)
            if find is not None:
                self._keep(job, work, find(stream, job.sequence - first, work.frame.file))
            observer(job, work)

        return observe

    def _keep(self, job: JobRecord, work: Work, truth: Result | None) -> None:
        held = self._streams[job.task]
        if truth is not None:
            held.truths.append(Timed(job.capture_ns, truth))
        if job.outcome is Outcome.MET and work.result is not None:
            held.available.append(Timed(job.completion_ns, work.result))
            if truth is not None:
                held.own.append((truth, work.result))

    def end_stream(self) -> None:
        """Judge what was seen since the last call: one replay of one stream.

        `ConfigurationError` when masks are of another size than those of the truth.
        """
        for name, held in self._streams.items():
            try:
                self._metrics[name].add_stream(held.truths, held.available)
                for truth, found in held.own:
                    self._offline[name].add(truth, found)
            except ValueError as error:
                raise ConfigurationError(f"--streaming: task {name}: {error}") from error
        self._streams.clear()

    def to_dict(self) -> dict[str, Any]:
        """Convert for the summary; ``own_frames``: of the answered frames, by their own truth."""
        return {
            name: {**metric.to_dict(), "own_frames": self._offline[name].to_dict()["value"]}
            for name, metric in self._metrics.items()
        }
