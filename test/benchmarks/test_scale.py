# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`scale`: what lies between stages is sorted out, and the verdicts are those of figures."""

import math

import benches
import pytest

from benchmarks import scale
from benchmarks.scale import SIDES, Run, find_costs, judge


def make_run(thread, task, sequence, begin_ns, end_ns):
    # Of what lies between two runs a tenth is processor time.
    return Run(thread, task, sequence, begin_ns, begin_ns // 10, end_ns, end_ns // 10)


def test_gap_counts_where_the_next_stage_was_ready():
    runs = [
        make_run(1, "a", 0, 1_000, 2_000),
        make_run(1, "a", 0, 2_020, 3_000),  # its own next stage
        make_run(1, "b", 1, 3_050, 4_000),  # another task's, which waited
        make_run(1, "a", 2, 9_070, 9_500),  # released while the worker had nothing to do
    ]
    costs = find_costs(runs, {("a", 0): 900, ("b", 1): 1_500, ("a", 2): 9_000})
    assert (costs.wall_ns, costs.cpu_ns) == ([20, 50], [2, 5])
    assert costs.wake_ns == [100, 70]


def test_stage_is_not_ready_before_the_other_worker_ends_its_task():
    runs = [
        make_run(1, "a", 0, 0, 100),
        make_run(2, "b", 0, 0, 500),
        make_run(1, "b", 0, 530, 600),  # the first worker waited for the second one's stage
        make_run(2, "a", 0, 510, 700),  # ready since 100
    ]
    costs = find_costs(runs[::-1], {("a", 0): 0, ("b", 0): 0})
    assert costs.wall_ns == [10]
    assert costs.wake_ns == [0, 0, 30]


COUNTS = (1, 2, 4, 8, 16)


@pytest.mark.parametrize(
    ("name", "cost_us", "expected"),
    [
        ("flat", lambda n: 20.0 + 0.1 * n, True),
        ("logarithm", lambda n: 10.0 + 3.0 * math.log2(n), True),
        ("noise", lambda n: {1: 72.0, 2: 71.0, 4: 78.0, 8: 73.0, 16: 84.0}[n], True),
        ("line", lambda n: 10.0 + 1.0 * n, False),
        ("square", lambda n: 10.0 + 0.1 * n * n, False),
    ],
)
def test_growth_is_classified(name, cost_us, expected):
    growth = scale.find_growth({n: cost_us(n) for n in COUNTS})
    assert growth["at_most_logarithmic"] is expected, name
    assert scale.find_growth({1: cost_us(1), 4: None})["per_doubling_us"] is None  # too few
    if name == "logarithm":
        assert growth["per_doubling_us"] == pytest.approx(3.0)


def test_steps_begin_beyond_saturation():
    met = {1: 10.0, 2: 20.0, 4: 25.0, 8: 24.0, 16: 10.0}
    steps = judge(met, {n: 0.4 * n for n in met})
    assert [step["tasks"] for step in steps] == [4, 8, 16]
    assert [step["below_best"] for step in steps] == pytest.approx([-0.25, 0.04, 0.6])
    assert [step["change"] for step in steps] == pytest.approx([0.25, -0.04, -14 / 24])


@pytest.fixture(scope="module")
def result():
    options = "--tasks 1 3 --rounds 1 --seconds 0.2 --net-seconds 0.4 --loads 2"
    return benches.run("scale", options, "--models null:2 --variant full@null")[1]


def test_rules_are_measured_in_turn(result):
    rules = result["rules"]
    assert (rules["tasks"], rules["load"]) == (3, 2.0)
    assert [row["rule"] for row in rules["rows"]] == list(scale.RULES)
    assert min(row["stages"] for row in rules["rows"]) > 0
    assert "max_inflight 1" in benches.show("scale", result)


def test_cost_has_a_row_for_each_number_of_tasks(result):
    parts = result["cost"]["parts"]
    assert [part["script"] for part in parts] == ["sleep", "spin"]
    assert [[row["tasks"] for row in part["rows"]] for part in parts] == [[1, 3], [1, 3]]
    for row in (row for part in parts for row in part["rows"]):
        assert row["stages"] > 0
        assert 0.0 < row["cpu_us"]["p50"] <= row["cpu_us"]["p99"]
        assert row["wall_us"]["p50"] <= row["wall_us"]["p99"]


def test_both_sides_get_the_same_frames(result):
    for row in result["nets"]["rows"]:
        ours, plain = (row[side] for side in SIDES)
        assert ours["frames"] == plain["frames"] == sum(ours["outcomes"].values())
        assert sum(plain["outcomes"].values()) == plain["frames"]
        assert 0.0 < row["gap_us"]["p50"] <= row["gap_us"]["p99"]


def test_bars_apply_to_every_figure():
    good, late = {"p50": 20.0, "p99": 59.0}, {"p50": 10.0, "p99": 61.0}
    assert scale.are_within([good, {"p50": None, "p99": None}])
    assert not scale.are_within([good, late])
    assert scale.are_within([{"p50": None, "p99": None}]) is None
    assert scale.quantiles_us([[], [10_000] * 99 + [90_000], [20_000]]) == pytest.approx(
        {"p50": 15.0, "p99": (10.0 + 0.01 * 80.0 + 20.0) / 2}, abs=0.5
    )


def test_nothing_is_judged_without_saturation_or_times():
    rows = [{"gap_us": {"p50": 20.0, "p99": 59.0}}]
    kept, fallen = {"below_best": 0.05}, {"below_best": 0.06}
    assert scale.judge_nets(rows, [], 0.05) is None
    assert scale.judge_nets(rows, [kept], 0.05) is True
    assert scale.judge_nets(rows, [kept, fallen], 0.05) is False
    assert scale.find_growth({1: 10.0, 2: 90.0})["at_most_logarithmic"] is None
