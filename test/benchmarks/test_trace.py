# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`trace`: every job is measured both ways, and the differences are those of the rounds."""

from array import array

import benches
import pytest

from benchmarks.trace import P99_BAR_US, Round, compare

pytest.importorskip("pyarrow")


def make_round(first_ns):
    return Round(array("q", range(first_ns, first_ns + 100_000, 1000)), array("q"))


def test_difference_is_that_of_the_usual_pair():
    plain = [make_round(0) for _ in range(9)]
    # One burst of something else does not count.
    traced = [make_round(7_000) for _ in range(8)] + [make_round(900_000)]
    added = compare(plain, traced)["p99"]
    assert added["us"] == 7.0
    assert added["low_us"] <= 7.0 <= added["high_us"]


@pytest.mark.nightly
def test_jobs_with_and_without_a_trace():
    _, result = benches.run("trace", "--rounds 2 --frames 20")
    bar = result["added_us"]["p99"]["us"] <= P99_BAR_US and result["call_us"]["p99"] <= P99_BAR_US
    assert result["passed"] is bar
    assert result["jobs"] > 0
    assert result["writer_cpu_us"] > 0.0
    assert result["bytes_per_job"] > 0.0
    for way in ("plain", "traced"):
        times = result["overhead_us"][way]
        assert 0.0 < times["p50"] <= times["p99"] <= times["p999"] <= times["max"]
    for low_us, high_us in ((-5.0, 19.0), (15.0, 25.0), (21.0, 30.0)):
        result["added_us"]["p99"] |= {"low_us": low_us, "high_us": high_us}
        doubtful = "its interval holds the bar" in benches.show("trace", result)
        assert doubtful == (low_us <= P99_BAR_US < high_us)
