# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A task with several variants in a real executor, and the same stages without it."""

from __future__ import annotations

import numpy as np

from jetson_dnn_rt.config.process import RealtimeConfig
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.tasks import JobRecord, Outcome, TaskParameters, Work
from jetson_dnn_rt.variants.running.frame_processor import OUTPUTS
from jetson_dnn_rt.variants.running.variant_set import VariantSet

PLAIN = RealtimeConfig(gc_freeze=False, mallopt=False, switch_interval_us=0)
DEADLINE_NS = 20_000_000_000


class SwitchedTask:
    """An executor with the task `a` on a `VariantSet`, which it closes; the first variant runs."""

    def __init__(self, variants: VariantSet, size: tuple[int, int]) -> None:
        self.variants, self.size = variants, size
        self.executor = Executor(1, "edf", PLAIN)
        self.ended: list[tuple[JobRecord, Work]] = []
        stages = {name: pipeline.stages for name, pipeline in variants.pipelines.items()}
        names = tuple(stages)
        self.executor.add_task(
            TaskParameters("a", DEADLINE_NS, DEADLINE_NS, variants.stage_names, names, names[0]),
            stages,
            lambda record, work: self.ended.append((record, work)),
        )
        self.executor.start()

    def make_frame(self, seed: int) -> Frame:
        image = np.random.default_rng(seed).integers(0, 256, (*self.size, 3), np.uint8)
        return Frame(image, "bgr8", 0, seed)

    def run(self, seed: int) -> tuple[JobRecord, np.ndarray | None]:
        """Record and logits of a frame; None unless it was met."""
        self.executor.submit("a", self.make_frame(seed), self.executor.clock.now_ns())
        assert self.executor.wait_idle(60.0)
        record, work = self.ended[-1]
        if record.outcome is not Outcome.MET:
            return record, None
        (logits,) = work.scratch[OUTPUTS]
        return record, logits.copy()

    def run_alone(self, plan: tuple[str, ...], seed: int) -> np.ndarray:
        """Logits of the same stages called one after the other, without executor and engine."""
        work = Work(self.make_frame(seed))
        for index, name in enumerate(plan):
            self.variants.pipelines[name].stages[index].run(work)
        (logits,) = work.scratch[OUTPUTS]
        return logits.copy()

    def close(self) -> None:
        self.executor.stop(5.0)
        self.variants.close()
