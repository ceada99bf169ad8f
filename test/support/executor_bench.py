# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""An executor on virtual time whose tasks sleep for scripted times."""

import numpy as np

from jetson_dnn_rt.clock import VirtualClock
from jetson_dnn_rt.config.process import RealtimeConfig
from jetson_dnn_rt.errors import RunCancelledError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.tasks import Stage, TaskParameters

MS = 1_000_000
HANG_NS = 10**15
IMAGE = np.zeros((2, 2, 3), np.uint8)
PLAIN = RealtimeConfig(gc_freeze=False, mallopt=False, switch_interval_us=0)


def frame(sequence):
    return Frame(IMAGE, "bgr8", 0, sequence)


def parameters(name, deadline_ms, stages=("only",), variants=("v",)):
    return TaskParameters(
        name, deadline_ms * MS, deadline_ms * MS, tuple(stages), tuple(variants), variants[0]
    )


class CancellableRun:
    """A fake of a network's run: takes `run_ms`; told to end, it still takes `latency_ms`."""

    def __init__(self, clock, run_ms, latency_ms=0.0):
        self._clock, self._condition = clock, clock.condition()
        self._run_ns, self._latency_ns = int(run_ms * MS), int(latency_ms * MS)
        self._asked = False
        self.asks = []  # times, in milliseconds

    def run(self, work):
        end_ns = self._clock.now_ns() + self._run_ns
        with self._condition:
            self._asked = False  # an order from before the run is lost
            while self._clock.now_ns() < end_ns and not self._asked:
                self._condition.wait_until(end_ns)
        if self._asked:
            self._clock.sleep_until_ns(self._clock.now_ns() + self._latency_ns)
            raise RunCancelledError("the run was cancelled")

    def cancel(self):
        self.asks.append(self._clock.now_ns() / MS)
        with self._condition:
            self._asked = True
            self._condition.notify_all()


class Bench:
    """An executor on virtual time with tasks whose stages sleep for scripted times."""

    def __init__(self, workers=1, discipline="edf", max_inflight=None, **options):
        self.clock = VirtualClock()
        self.executor = Executor(workers, discipline, PLAIN, self.clock, max_inflight, **options)
        self.records = []

    def stage(self, name, milliseconds):
        return Stage(
            name, lambda work: self.clock.sleep_until_ns(self.clock.now_ns() + milliseconds * MS)
        )

    def add_cancellable(self, name, deadline_ms, usual_ms, run, decode_ms=1, **options):
        """A task of a stage that can be cancelled, then one that cannot."""
        stages = [Stage("inference", run.run, cancel=run.cancel), self.stage("decode", decode_ms)]
        options["warm_up_times_ns"] = {"v": [(usual_ms * MS, decode_ms * MS)]}
        names = [stage.name for stage in stages]
        self.add_stages(parameters(name, deadline_ms, names), {"v": stages}, **options)

    def add(self, name, deadline_ms, *stage_ms, **options):
        names = [f"s{i}" for i in range(len(stage_ms))]
        stages = [self.stage(n, ms) for n, ms in zip(names, stage_ms, strict=True)]
        options["warm_up_times_ns"] = {"v": [tuple(ms * MS for ms in stage_ms)]}
        self.add_stages(parameters(name, deadline_ms, names), {"v": stages}, **options)

    def add_stages(self, task, stages, **options):
        """A task of stages that do not just sleep; `stages` by variant, or a function for one."""
        if callable(stages):
            stages = {"v": [Stage("only", stages)]}
        self.executor.add_task(
            task, stages, lambda record, work: self.records.append(record), **options
        )

    def submit(self, task, sequence):
        self.executor.submit(task, frame(sequence), self.clock.now_ns())
        self.clock.settle()

    def run_to(self, milliseconds):
        self.clock.run_until(int(milliseconds * MS))

    def hang(self, work):
        """A stage that comes back when everything is over."""
        self.clock.sleep_until_ns(HANG_NS)

    def finish(self):
        assert self.executor.stop(5.0)
        self.clock.run_until(HANG_NS)
        return self.records
