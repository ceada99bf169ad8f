# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`boundary`: what it measures, not how fast this machine is."""

import threading
from contextlib import ExitStack

import benches
import executor_bench
import pytest
from executor_bench import MS, parameters

from benchmarks import boundary
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.tasks import Outcome


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


def test_the_plain_executor_is_the_package_s_own():
    with ExitStack() as stack:
        bench = boundary.BoundaryBench(stack, 1, "ours", timed=False)
        assert type(bench._executor) is Executor
        assert type(bench._executor._shared.engine) is Engine


@pytest.mark.parametrize(("side", "handed_over"), [("ours", False), ("at once", True)])
def test_when_a_record_without_a_result_is_handed_over(monkeypatch, side, handed_over):
    monkeypatch.setattr(executor_bench, "Executor", boundary.SIDES[side])
    bench = executor_bench.Bench()
    stages = [bench.stage("s0", 12), bench.stage("s1", 20)]
    times_ns = {"v": [(10 * MS, 20 * MS)]}  # of the first stage less than it takes
    task = parameters("long", 100, ("s0", "s1"))
    bench.add_stages(task, {"v": stages}, warm_up_times_ns=times_ns)
    bench.add("short", 15, 5)
    reported = threading.Event()
    bench.executor.add_observer(lambda record, work: reported.set())
    bench.executor.start()
    bench.submit("long", 0)
    bench.run_to(1)
    bench.submit("short", 0)
    bench.run_to(13)
    # It was hopeless at 12 ms, in a boundary after which the worker went on.
    assert bench.executor.snapshot("short").outcomes[Outcome.SKIPPED] == 1
    assert reported.wait(5.0 if handed_over else 0.0) == handed_over
    bench.run_to(60)
    assert bench.finish()[0].task == "short"


@pytest.mark.parametrize(("waited", "counted"), [(False, 1), (True, 0)])
def test_a_worker_that_waited_made_no_gap(waited, counted):
    watch = boundary.Stopwatch()
    watch.begin()
    watch.end()
    watch.waited = waited
    watch.begin()
    assert len(watch.gaps_ns) == counted
