# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`replay`: deadlines with some pressure, and when two miss ratios agree."""

import numpy as np
import pytest
from traced_jobs import METADATA, make_record

from benchmarks.replay.bench import PRESSURE, choose_deadlines, compare_misses
from jetson_dnn_rt.lab.evaluate.simulated import read_recorded
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.writer import TraceWriter

MS = 1_000_000


def test_deadlines_are_missed_now_and_then(tmp_path):
    """Times that vary by half: the share that misses is found by the simulator."""
    generator = np.random.default_rng(3)
    with TraceWriter(tmp_path, METADATA) as writer:
        for place, factor in enumerate(generator.uniform(1.0, 1.5, 100)):
            stages_ns = (MS, round(8 * MS * factor))
            writer.write(make_record(place, stages_ns=stages_ns), wait=True)
    rate_hz, deadlines_ms, miss_ratio = choose_deadlines(read_recorded([open_trace(tmp_path)]))
    assert 40.0 < rate_hz < 70.0
    assert 9.0 < deadlines_ms["detector"] < 14.0
    low, high = PRESSURE
    assert low < miss_ratio < high


def ratios(detector, segmenter):
    return {
        "miss_ratio": (detector + segmenter) / 2,
        "tasks": {"detector": {"miss_ratio": detector}, "segmenter": {"miss_ratio": segmenter}},
    }


@pytest.mark.parametrize(
    ("live", "simulated", "passed"),
    [
        ((0.10, 0.20), (0.11, 0.19), True),
        ((0.10, 0.20), (0.10, 0.25), False),
        ((0.01, 0.02), (0.01, 0.02), False),  # nothing is missed: nothing is said
        ((0.60, 0.50), (0.60, 0.50), False),
    ],
)
def test_agreement(live, simulated, passed):
    found = compare_misses(ratios(*live), ratios(*simulated))
    assert found["passed"] is passed
    assert set(found["tasks"]) == {"all", "detector", "segmenter"}
