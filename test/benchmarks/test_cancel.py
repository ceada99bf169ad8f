# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The benchmark of cancelling, in its short form, and how it counts."""

from dataclasses import replace

import pytest
from traced_jobs import make_record

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from benchmarks import cancel
from benchmarks.harness.main import load, parse
from benchmarks.harness.tables import UNDECIDED
from jetson_dnn_rt.tasks import Outcome


def run(*arguments):
    args = parse(load("cancel"), ["--quick", *arguments], "cancel")
    result = cancel.run(args)
    assert cancel.report(result)
    return result


def test_a_run_that_follows_a_cancelled_one_is_right():
    options = ("--networks", "detector", "--backends", "onnxruntime", "torch", "--threads", "2")
    result = run("--parts", "latency", *options)
    here, cannot = result["latency"]
    assert here["cancelled"] == here["right"] == 5
    assert 0.0 < here["latency_ms"]["p50"] <= here["latency_ms"]["max"]
    assert cannot["note"] == "cannot cancel"


def test_only_the_sides_that_may_cancel_do():
    models = ("--models", "detector", "detector", "--stages", "2")
    variant = ("--variants", "full@onnxruntime-fp32")
    result = run("--parts", "overload", "--loads", "3", *models, *variant)
    (cell,) = result["overload"]["cells"]
    assert set(cell["sides"]) == set(cancel.SIDES)
    for side in cell["sides"].values():
        assert sum(side["outcomes"].values()) == side["frames"] > 0
    assert result["passed"] is None


def test_only_one_side_may_cancel_for_urgent_frames():
    models = ("--urgent-models", "segmenter", "detector", "--stages", "2")
    result = run("--parts", "urgent", "--variants", "full@onnxruntime-fp32", *models)
    (row,) = result["urgent"]["variants"]
    for side in cancel.URGENT_SIDES:
        found = row["sides"][side]
        assert found["urgent"]["frames"] > found["long"]["frames"] > 0
    assert row["sides"]["whole"]["long"]["again"] == row["sides"]["staged"]["long"]["again"] == 0


def test_what_a_cancelled_frame_took_is_wasted():
    met = make_record(0, stages_ns=(30,))
    aborted = replace(make_record(1, stages_ns=(), outcome=Outcome.ABORTED), cancelled_ns=10)
    rounds = [cancel.Round([met, aborted], seconds=2.0)]
    found = cancel._describe(rounds, rounds)
    assert (found["frames"], found["in_time_per_s"], found["wasted"]) == (2, 0.5, 0.25)


def test_ratios_are_those_of_one_round():
    def play(counts, stage_ns):
        return [
            cancel.Round([make_record(i, stages_ns=(stage_ns,)) for i in range(count)], 1.0)
            for count in counts
        ]

    whole, other = play((10, 20, 40), 100), play((20, 20, 20), 150)
    assert cancel._find_ratio(other, whole, "in_time_per_s") == 1.0
    assert cancel._find_ratio(other, whole, "frame_ns") == 1.5


def test_a_round_without_the_figure_has_no_ratio():
    aborted = make_record(1, stages_ns=(), outcome=Outcome.ABORTED)
    one = [cancel.Round([make_record(0, stages_ns=(30,))], 1.0), cancel.Round([aborted], 1.0)]
    assert cancel._find_ratios(one, one, "frame_ns") == [1.0]
    assert cancel._find_ratios(one, one, "in_time_per_s") == [1.0, 1.0]


@pytest.mark.parametrize(
    ("ratios", "bar", "passed"),
    [
        ([1.0] * 10, {"least": 1.0}, True),
        ([0.99] * 10, {"least": 1.0}, False),
        ([0.99] * 2 + [1.1] * 8, {"least": 1.0}, UNDECIDED),
        ([1.02] * 10, {"most": cancel.FRAME_BAR}, True),
        ([1.0] * 6, {"least": 1.0}, UNDECIDED),
        ([], {"least": 1.0}, False),
    ],
)
def test_cells_are_judged_by_their_rounds(ratios, bar, passed):
    assert cancel.judge_ratios(ratios, **bar)["passed"] == passed


@pytest.mark.parametrize(
    ("urgent", "long", "passed"),
    [
        (0.7, 0.9, True),
        (0.6, 0.9, False),  # none more
        (0.7, 0.8, False),
        (0.5, 0.9, False),
    ],
)
def test_urgent_frames_are_judged_by_their_rounds(urgent, long, passed):
    def repeat(urgent, long):
        return [{"urgent": {"met": urgent}, "long": {"met": long}}] * 10

    rounds = {"whole": repeat(0.6, 0.9), "cancelled": repeat(urgent, long)}
    assert cancel.judge_urgent(rounds)["passed"] is passed
    few = {side: played[:9] for side, played in rounds.items()}
    assert cancel.judge_urgent(few)["passed"] == UNDECIDED


def test_nothing_is_judged_where_no_run_was_cancelled():
    cancelled = {"cancelled": 5, "right": 5}
    assert cancel.rejudge({"latency": [cancelled, {"note": "cannot cancel"}]}) is True
    assert cancel.rejudge({"latency": [cancelled, {"cancelled": 5, "right": 4}]}) is False
    assert cancel.rejudge({"latency": [{"cancelled": 0, "right": 0, "late": 50}]}) is None
    cells = {"overload": {"cells": [{"passed": True}, {"passed": False}]}}
    assert cancel.rejudge(cells) is False
