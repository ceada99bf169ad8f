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
from jetson_dnn_rt.lab.streaming.accuracy import StreamingMetric
from jetson_dnn_rt.lab.streaming.judge import make_metric
from jetson_dnn_rt.lab.streaming.truth import Find, Truth

METRICS = {"detection": "AP", "segmentation": "mIoU"}


class TruthJudge:
    """Judges each result by the truth of its own frame; frames without a label do not count.

    A frame that failed has found nothing. `ConfigurationError` when no task has a truth.
    """

    def __init__(self, truth: Truth, tasks: Iterable[FixedTask]) -> None:
        self._finds: dict[str, Find] = {}
        self._metrics: dict[Key, StreamingMetric] = {}
        self._labels: dict[str, tuple[str, ...]] = {}
        for task in tasks:
            name, labels = task.spec.name, task.labels
            find = truth.of_task(name, task.kind, labels)
            if find is not None:
                self._finds[name], self._labels[name] = find, labels
                for variant in task.spec.config.variants:
                    self._metrics[name, variant] = make_metric(task.kind, labels)
        if not self._finds:
            raise ConfigurationError("--truth: there is no truth of any task")

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
            truth = self._finds[line["task"]](frame.stream, frame.frame, frame.file)
            if truth is None:
                continue
            try:
                metric.add(truth, frame.result)
            except ValueError as error:
                raise ConfigurationError(
                    f"--truth: task {line['task']}, frame {frame.name}: {error}"
                ) from error

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Convert for the summary, by task and variant; None where it is unknown."""
        found: dict[str, dict[str, Any]] = {}
        for (name, variant), metric in self._metrics.items():
            by_class = zip(self._labels[name], metric.by_class(), strict=False)
            found.setdefault(name, {})[variant] = {
                "metric": METRICS[metric.kind],
                "value": metric.to_dict()["value"],
                "frames": metric.instants,
                "failed": metric.unanswered,
                "classes": {label: value for label, value in by_class if value is not None},
            }
        return found
