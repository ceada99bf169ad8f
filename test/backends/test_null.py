# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The null back end on the virtual clock, to the nanosecond."""

from __future__ import annotations

import numpy as np
import pytest
from networks import Classifier, make_model

from jetson_dnn_rt.backends.registry import create_runner
from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.errors import BackendUnavailableError
from jetson_dnn_rt.models.sources.registry import load_model


class CountingClock(SteadyClock):
    """A clock that jumps when it is waited on, and a nanosecond at every look."""

    def __init__(self):
        self.time_ns = 0
        self.slept = 0

    def now_ns(self):
        self.time_ns += 1
        return self.time_ns

    def sleep_until_ns(self, time_ns):
        self.slept += 1
        self.time_ns = max(self.time_ns, time_ns)


def test_times_are_taken_in_turn():
    clock = CountingClock()
    runner = create_runner(load_model("null:10/20/30"), "null", "fp32", threads=1, clock=clock)
    ends = []
    for _ in range(5):
        start_ns = clock.time_ns
        runner.run([])
        ends.append((clock.time_ns - start_ns) // 1_000_000)
    assert ends == [10, 20, 30, 10, 20]


@pytest.mark.parametrize(("threads", "time_ms"), [(1, 15), (2, 10), (3, 10)])
def test_a_network_may_take_another_time_with_fewer_threads(threads, time_ms):
    clock = CountingClock()
    model = load_model("null:inference=10;inference@1=15")
    create_runner(model, "null", "fp32", threads=threads, clock=clock).run([])
    assert clock.time_ns // 1_000_000 == time_ms


def test_spinning_burns_time_without_sleeping():
    clock = CountingClock()
    runner = create_runner(load_model("null:0.01,spin"), "null", "fp32", threads=1, clock=clock)
    runner.run([])
    assert clock.time_ns >= 10_000
    assert clock.slept == 0


@pytest.mark.parametrize(
    ("kind", "shapes"),
    [
        ("detection", [(1, 8, 4), (1, 8, 2)]),
        ("segmentation", [(1, 2, 8, 8)]),
        ("classification", [(1, 2)]),
    ],
)
def test_outputs_are_zeros_of_the_task(kind, shapes):
    runner = create_runner(load_model(f"null:0,{kind}"), "null", "fp32", threads=1)
    outputs = runner.run([])
    assert [output.shape for output in outputs] == shapes
    assert not any(np.any(output) for output in outputs)


def test_null_model_and_null_back_end_belong_together():
    with pytest.raises(BackendUnavailableError, match="null: models only"):
        create_runner(make_model(Classifier(), (8, 8)), "null", "fp32", threads=1)
    for backend in ("torch", "onnxruntime", "openvino"):
        with pytest.raises(BackendUnavailableError, match=r"full@null|back end"):
            create_runner(load_model("null:1"), backend, "fp32", threads=1)
