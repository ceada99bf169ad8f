# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""How long a run takes to end when it is told to, on scripted stages."""

import threading

import numpy as np
import pytest

from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.errors import ModelError, RunCancelledError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.tasks import Stage
from jetson_dnn_rt.variants.measuring import cancelling
from jetson_dnn_rt.variants.measuring.cancelling import CANCELS, measure_cancels
from jetson_dnn_rt.variants.measuring.measurement import try_variant

FRAME = Frame(np.zeros((2, 2, 3), np.uint8), "bgr8", 0, 0)
MS = 1_000_000


class Script:
    """Stages of which the longest runs until it is told to end, where it `listens`."""

    def __init__(self):
        self.listens = True
        self.orders = 0
        self.raises = RunCancelledError("told to end")
        self._told = threading.Event()
        self.stages = (
            Stage("preprocess", lambda work: None),
            Stage("inference-1", self.decode, cancel=self._told.set),
            Stage("inference-2", self.infer, cancel=self.cancel),
            Stage("decode", self.decode),
        )

    def infer(self, work):
        if self.listens:
            self._told.wait(60.0)
            self._told.clear()
            raise self.raises

    def cancel(self):
        self.orders += 1
        self._told.set()

    def decode(self, work):
        work.result = "found"

    def close(self):
        pass


@pytest.fixture
def script():
    return Script()


RUNS = [(1, MS, 2 * MS, 9 * MS)]


def test_the_longest_stage_that_can_is_cancelled(script):
    latencies_ns = measure_cancels(script.stages, FRAME, RUNS)
    assert (len(latencies_ns), script.orders) == (CANCELS, CANCELS)
    assert min(latencies_ns) > 0


def test_orders_that_come_too_late_give_no_latency(script):
    script.listens = False
    assert measure_cancels(script.stages, FRAME, RUNS) == []
    assert script.orders == CANCELS


def test_stages_that_cannot_are_not_run(script):
    script.raises = AssertionError()
    fixed = [Stage(stage.name, stage.run) for stage in script.stages]
    assert measure_cancels(fixed, FRAME, RUNS) == []


def test_another_error_of_the_run_is_raised(script):
    script.raises = OSError("the device is gone")
    with pytest.raises(OSError, match="the device is gone"):
        measure_cancels(script.stages, FRAME, RUNS)


def test_a_run_that_does_not_end_is_an_error(script, monkeypatch):
    monkeypatch.setattr(cancelling, "TIMEOUT_S", 0.01)
    deaf = [*script.stages[:2], Stage("inference-2", script.infer, cancel=lambda: None)]
    with pytest.raises(ModelError, match=r"told to end still runs after 0\.01 s"):
        measure_cancels(deaf, FRAME, [RUNS[0][:3]])
    script.stages[1].cancel()


@pytest.mark.parametrize(("listens", "count"), [(True, CANCELS), (False, None)])
def test_it_is_among_the_figures_of_a_variant(script, listens, count, monkeypatch):
    monkeypatch.setattr(
        "jetson_dnn_rt.variants.measuring.measurement.measure_in_turn",
        lambda variants, *options: [RUNS for _ in variants],
    )
    script.listens = False
    calls = iter([False])  # the frame that is run for its result

    def infer(work, plain=script.infer):
        script.listens = next(calls, listens)
        plain(work)

    stages = (*script.stages[:2], Stage("inference-2", infer, cancel=script.cancel))
    script.stages = (*stages, script.stages[3])
    trial = try_variant(lambda: script, [FRAME], runs=1, clock=SteadyClock())
    assert (trial.cancel and trial.cancel.count) == count
