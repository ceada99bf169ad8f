# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""LoadGen: queries and verdicts by hand, and one short run with the real one where it is."""

import sys
import threading
from types import SimpleNamespace

import benches
import pytest

from benchmarks.harness import main as harness
from benchmarks.harness.tables import UNDECIDED, say_verdict
from benchmarks.loadgen.bench import compare_sides, describe, judge, read_summary, rejudge
from benchmarks.loadgen.queries import Queries

SUMMARY = """\
================================================
MLPerf Results Summary
================================================
SUT name : PySUT
Scenario : ConstantStream
Mode     : PerformanceOnly
Target Latency (ns)   : 66666666
99.9th percentile latency (ns) : 70000000
Percentage of queries under target latency   : 99.5%
Result is : INVALID
  Performance constraints satisfied : NO
  Min duration satisfied : Yes
  Min queries satisfied : Yes
  Early stopping satisfied: NO
Recommendations:
 * Reduce target QPS to improve latency.
Early Stopping Result:
 * Run unsuccessful.
 * Processed 300 queries.

================================================
Additional Stats
================================================
Scheduled samples            : 299
Samples over target latency  : 2
Min latency (ns)                : 20000000
Max latency (ns)                : 71000000
Mean latency (ns)               : 25500000
50.00 percentile latency (ns)   : 25000000
99.00 percentile latency (ns)   : 60500000
99.90 percentile latency (ns)   : 70000000
"""


def test_a_summary_of_loadgen_is_read():
    assert read_summary(SUMMARY) == {
        "verdict": "INVALID",
        "unsatisfied": ["bound", "confidence"],
        "bound_ms": 66.666666,
        "over_bound": 2,
        "latency_ms": {"p50": 25.0, "p99": 60.5, "p99.9": 70.0, "max": 71.0},
    }


def test_a_query_is_complete_when_every_topic_has_answered():
    complete = []
    queries = Queries(["boxes", "mask"], complete.append)
    queries.answer("boxes", 5, 50)  # of the warm-up
    queries.issue(10, 1)
    queries.issue(20, 2)
    queries.answer("boxes", 10, 15)
    queries.answer("boxes", 20, 25)
    queries.answer("mask", 20, 26)
    assert complete == [2]
    queries.answer("mask", 10, 30)
    queries.answer("mask", 10, 31)  # twice
    assert complete == [2, 1]
    queries.give_up(0.0)
    assert complete == [2, 1]


def test_a_query_without_an_answer_is_completed_at_the_end_and_counted():
    complete = []
    queries = Queries(["boxes", "mask"], complete.append)
    for stamp_ns in (10, 20, 30):
        queries.issue(stamp_ns, stamp_ns)
    queries.answer("boxes", 10, 11)
    queries.answer("mask", 10, 12)
    queries.answer("boxes", 20, 21)
    queries.give_up(0.0)
    assert complete == [10, 20, 30]
    queries.answer("mask", 20, 99)  # too late
    assert complete == [10, 20, 30]
    figures = describe(SUMMARY, queries.rows())
    assert (figures["queries"], figures["unanswered"]) == (3, 2)
    assert figures["unanswered_by_topic"] == {"boxes": 1, "mask": 2}


def test_the_end_waits_for_answers_under_way():
    complete = []
    queries = Queries(["boxes"], complete.append)
    queries.issue(10, 1)
    waiting = threading.Thread(target=queries.give_up, args=(60.0,))
    waiting.start()
    queries.answer("boxes", 10, 11)
    waiting.join()
    assert complete == [1]
    assert queries.rows() == [{"stamp_ns": 10, "answered_ns": {"boxes": 11}}]


def test_a_shortened_run_passes_nothing_but_may_fail():
    valid = {"verdict": "VALID", "unsatisfied": []}
    short = {"verdict": "INVALID", "unsatisfied": ["confidence"]}
    late = {"verdict": "INVALID", "unsatisfied": ["bound", "confidence"]}
    assert judge([valid, valid], shortened=False) is True
    assert judge([valid, short], shortened=False) is False
    assert judge([valid, short], shortened=True) is None
    assert judge([valid, late], shortened=True) is False


def run_of(side, p50, p99=60.0, *, number=0, unanswered=0, verdict="VALID"):
    return {
        "workload": "builtin", "side": side, "round": number, "queries": 300,
        "unanswered": unanswered, "verdict": verdict, "unsatisfied": [],
        "latency_ms": {"p50": p50, "p99": p99, "p99.9": 70.0},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("ours", "naive", "rounds", "passed"),
    [
        ({"p50": 25.0}, {"p50": 26.0}, 10, True),
        ({"p50": 27.0}, {"p50": 26.0}, 10, False),
        ({"p50": 25.0, "p99": 61.0}, {"p50": 26.0}, 10, False),
        ({"p50": 25.0, "unanswered": 5}, {"p50": 26.0}, 10, False),  # of its p99
        ({"p50": 25.0}, {"p50": 26.0, "unanswered": 5}, 10, True),
        ({"p50": 25.0}, {"p50": 26.0}, 9, UNDECIDED),
        ({"p50": 25.0, "verdict": "INVALID"}, {"p50": 26.0}, 10, False),
    ],
)
def test_latencies_are_held_against_the_usual_nodes(ours, naive, rounds, passed):
    runs = [
        run_of(side, number=number, **values)
        for number in range(rounds)
        for side, values in (("ours", ours), ("naive", naive))
    ]
    result = {"runs": runs, "shortened_to_s": None, "compared": compare_sides(runs)}
    assert rejudge(result) == passed
    shown = benches.show(
        "loadgen", {**result, "loadgen_version": "5", "qps": 15.0, "passed": passed}
    )
    assert shown.endswith(f"not above the usual node's: {say_verdict(passed)}")


def test_earlier_results_and_single_sides_are_judged_by_loadgen_alone():
    runs = [run_of("ours", 30.0), run_of("naive", 20.0)]
    assert rejudge({"runs": runs, "shortened_to_s": None}) is True
    assert rejudge({"runs": runs, "shortened_to_s": 60.0}) is None
    assert compare_sides(runs[:1]) == []


def test_a_percentile_beyond_the_last_answer_is_not_shown():
    run = {"workload": "ssd", "side": "ours", "queries": 300, **read_summary(SUMMARY)}
    result = {"loadgen_version": "5", "qps": 15.0, "shortened_to_s": 20.0}
    for unanswered, shown in {0: "25.0 60.5 70.0", 2: "25.0 60.5 unanswered"}.items():
        runs = [{**run, "unanswered": unanswered}]
        text = benches.show("loadgen", {**result, "runs": runs})
        assert text.splitlines()[-1].split()[-3:] == shown.split()


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (None, "LoadGen is not installed"),
        # A fake, of MLPerf Inference's LoadGen as on PyPI.
        (SimpleNamespace(TestScenario=SimpleNamespace(Server=1)), "no scenario ConstantStream"),
    ],
)
def test_without_loadgen_the_fix_is_named(module, text, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mlperf_loadgen", module)
    assert harness.main(["loadgen"]) == 1
    error = capsys.readouterr().err
    assert text in error
    assert "fix: install the LoadGen of MLPerf Automotive" in error


@pytest.mark.slow
def test_a_short_run_with_the_real_loadgen(tmp_path):
    pytest.importorskip("mlperf_loadgen", reason="MLPerf's LoadGen is not installed")
    pytest.importorskip("rclpy")
    pytest.importorskip("vision_msgs.msg")
    _, result = benches.run(
        "loadgen",
        "--workloads builtin --sides ours --seconds 2 --qps 5 --rounds 1",
        "--logs", str(tmp_path),
    )  # fmt: skip
    (run,) = result["runs"]
    assert run["verdict"] in ("VALID", "INVALID")
    assert run["bound_ms"] == 200.0
    assert 8 <= run["queries"] <= 12
    assert (tmp_path / "builtin_ours_1" / "mlperf_log_detail.txt").stat().st_size > 0
    assert "shortened to 2 s" in benches.show("loadgen", result)
