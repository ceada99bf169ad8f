# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Time of a network inside the node: its arithmetic by hand, and one short run."""

import benches
import pytest

from benchmarks.inside import SIDES, describe


def test_ratios_are_those_of_the_same_round():
    def play(*times_ms):
        return [{"runs": 10, "p50": p50, "p99": p99} for p50, p99 in times_ms]

    rounds = {
        "bare": play((10.0, 20.0), (20.0, 40.0), (10.0, 20.0)),
        "paced": play((10.0, 20.0), (21.0, 40.0), (12.0, 20.0)),
        "node": play((11.0, 20.0), (30.0, 60.0), (11.0, 30.0)),
    }
    found = describe("full@x-fp32", 20.0, rounds)
    assert (found["variant"], found["period_ms"]) == ("full@x-fp32", 20.0)
    assert found["sides"] == {
        "bare": {"runs": 30, "p50_ms": 10.0, "p50_ratio": 1.0, "p99_ms": 20.0, "p99_ratio": 1.0},
        "paced": {"runs": 30, "p50_ms": 12.0, "p50_ratio": 1.05, "p99_ms": 20.0, "p99_ratio": 1.0},
        "node": {"runs": 30, "p50_ms": 11.0, "p50_ratio": 1.1, "p99_ms": 30.0, "p99_ratio": 1.5},
    }
    assert not found["passed"]  # p99
    rounds["node"] = play((11.0, 20.0), (22.0, 44.0), (11.0, 21.0))
    assert describe("full@x-fp32", 20.0, rounds)["passed"]


@pytest.mark.slow
def test_all_sides_run_the_network(shared_data):
    pytest.importorskip("rclpy")
    pytest.importorskip("onnxruntime")
    _, result = benches.run(
        "inside",
        "--variants full@onnxruntime-fp32 --rounds 1 --seconds 0.5 --threads 1",
        f"--data={shared_data}",
    )
    (one,) = result["variants"]
    assert list(one["sides"]) == list(SIDES)
    for figures in one["sides"].values():
        assert figures["runs"] > 0
        assert 0 < figures["p50_ms"] <= figures["p99_ms"]
