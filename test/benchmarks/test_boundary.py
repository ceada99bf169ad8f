# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`boundary`: what it measures, not how fast this machine is."""

import benches
import pytest

from benchmarks import boundary


def test_the_parts_of_every_gap_add_up_to_the_whole():
    gaps_ns = [(100_000, 10_000, 20_000, 30_000, 15_000)] * 3
    split = boundary.split_gaps(gaps_ns)
    assert list(split) == ["whole", *boundary.PARTS, "rest"]
    assert split["whole"]["p50"] == 100.0
    assert sum(split[name]["p50"] for name in (*boundary.PARTS, "rest")) == 100.0


def test_both_sides_run_and_are_split():
    _, result = benches.run("boundary", "--tasks 2 --loads 2 --seconds 0.3 --rounds 1")
    assert [row["side"] for row in result["rows"]] == list(boundary.SIDES)
    for row in result["rows"]:
        parts = row["parts_us"]
        assert list(parts) == ["whole", *boundary.PARTS, "rest"]
        assert all(0.0 <= part["p50"] <= part["p99"] for part in parts.values())
        # The stopwatches are inside what they measure.
        assert all(parts[name]["p50"] > 0.0 for name in ("lock", "boundary", "choice", "rest"))
    table = benches.show("boundary", result)
    assert all(f"{part} p50" in table for part in boundary.PARTS)


@pytest.mark.parametrize(("waited", "counted"), [(False, 1), (True, 0)])
def test_a_worker_that_waited_made_no_gap(waited, counted):
    watch = boundary.Stopwatch()
    watch.begin()
    watch.end()
    watch.waited = waited
    watch.begin()
    assert len(watch.gaps_ns) == counted
