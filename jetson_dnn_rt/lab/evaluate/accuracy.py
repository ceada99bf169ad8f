# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Accuracy of every variant on labelled frames, from the lines of results of a sequential run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.agree.result_files import add_line
from jetson_dnn_rt.lab.evaluate.chunk import Key
from jetson_dnn_rt.lab.evaluate.plan import FixedTask
from jetson_dnn_rt.lab.streaming.accuracy import METRICS, StreamingMetric
from jetson_dnn_rt.lab.streaming.judge import FIX, make_metric
from jetson_dnn_rt.lab.streaming.truth import Truth


class TruthJudge:
    """Judges each result by the truth of its own frame; frames without a label do not count.

    A frame that failed has found nothing. `ConfigurationError` as by `Truth.of_tasks`.
    """

    def __init__(self, truth: Truth, tasks: Iterable[FixedTask]) -> None:
        tasks = list(tasks)
        self._labels = {task.spec.name: task.labels for task in tasks}
        self._finds = truth.of_tasks({task.spec.name: (task.kind, task.labels) for task in tasks})
        self._metrics: dict[Key, StreamingMetric] = {
            (task.spec.name, variant): make_metric(task.kind, task.labels)
            for task in tasks
            if task.spec.name in self._finds
            for variant in task.spec.config.variants
        }

    @property
    def needs_masks(self) -> bool:
        """Whether the lines must hold whole masks."""
        return any(metric.kind == "segmentation" for metric in self._metrics.values())

    def add(self, lines: bytes) -> None:
        """Judge `ChunkResult.lines`.

        `ConfigurationError` when a mask is of another size than that of the truth.
        """
        for text in lines.splitlines():
            line = json.loads(text)
            metric = self._metrics.get((line["task"], line["variant"]))
            if metric is None:
                continue
            frame = add_line({}, line)
            truth = self._finds[line["task"]](frame.stream, frame.frame)
            if truth is None:
                continue
            try:
                metric.add(truth, frame.result)
            except ValueError as error:
                raise ConfigurationError(
                    f"--truth: task {line['task']}, frame {frame.name}: {error}; {FIX}"
                ) from error

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Convert for the summary, by task and variant; None where it is unknown."""
        found: dict[str, dict[str, Any]] = {}
        for (name, variant), metric in self._metrics.items():
            by_class = zip(self._labels[name], metric.by_class(), strict=False)
            found.setdefault(name, {})[variant] = {
                "metric": METRICS[metric.kind][1],
                "value": metric.to_dict()["value"],
                "frames": metric.instants,
                "failed": metric.unanswered,
                "judged": metric.judged,
                "classes": {label: value for label, value in by_class if value is not None},
            }
        return found
