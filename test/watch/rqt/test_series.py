# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What the plots show, without Qt: every value, in its place, and no more than can be drawn."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from jetson_dnn_rt.watch.graph import OUTCOMES, Graph
from jetson_dnn_rt.watch.rqt import series

S = 10**9
MET, LATE = OUTCOMES.index("met"), OUTCOMES.index("late")
POLICY = "/coordinator: policy_status"


class Clock:
    def __init__(self, at_s):
        self.ns = round(at_s * S)

    def __call__(self):
        return self.ns


@pytest.fixture
def clock():
    return Clock(100.25)


@pytest.fixture
def graph(clock):
    return Graph(clock)


def add(graph, clock, at_s, outcome="met", response="10", deadline="33", variant="full@a"):
    clock.ns = round(at_s * S)
    values = {"response_ms": response, "deadline_ms": deadline}
    known = {key: value for key, value in values.items() if value}
    graph.add_frame("/detector", {"outcome": outcome, "variant": variant, **known})


def look(graph, clock, at_s):
    clock.ns = round(at_s * S)
    view = graph.snapshot()
    return view, view.tasks[0]


def test_points_of_an_outcome_are_those_of_its_frames(graph, clock):
    add(graph, clock, 100.0, "late", "40")
    add(graph, clock, 101.0, "met", "20")
    add(graph, clock, 102.0, "late", "")
    view, task = look(graph, clock, 110.0)
    times_s, values = series.find_points(task, LATE, view.at_ns)
    np.testing.assert_allclose(times_s, [-10, -8])
    assert values.tolist() == [40, 0]
    assert series.find_points(task, MET, view.at_ns)[1].tolist() == [20]
    assert not len(series.find_points(task, OUTCOMES.index("failed"), view.at_ns)[0])


def test_many_points_are_thinned_and_keep_every_peak(graph, clock):
    for n in range(10_000):
        add(graph, clock, 100 + n / 1000, response="99" if n % 1000 == 777 else "1")
    view, task = look(graph, clock, 110.0)
    times_s, values = series.find_points(task, MET, view.at_ns)
    assert len(times_s) == len(values) == series.MOST_POINTS
    assert (values == 99).sum() == 10
    assert (np.diff(times_s) > 0).all()


def test_a_deadline_is_drawn_by_the_ends_of_its_runs(graph, clock):
    for at_s, deadline in ((100, "33"), (101, "33"), (102, ""), (103, "33"), (104, "50")):
        add(graph, clock, at_s, deadline=deadline)
    view, task = look(graph, clock, 110.0)
    times_s, values = series.find_deadline(task, view.at_ns)
    np.testing.assert_allclose(times_s, [-10, -7, -6])
    assert values.tolist() == [33, 33, 50]


def test_variants_follow_each_other_without_gaps(graph, clock):
    for at_s, variant in ((100, "full@a"), (101, "full@a"), (103, "tucker@a"), (105, "full@a")):
        add(graph, clock, at_s, variant=variant)
    view, task = look(graph, clock, 110.0)
    assert series.find_variants(task, view.at_ns) == [
        (-10.0, -7.0, "full@a"),
        (-7.0, -5.0, "tucker@a"),
        (-5.0, -5.0, "full@a"),
    ]


def test_variants_that_change_all_the_time_are_few_spans(graph, clock):
    for n in range(1000):
        add(graph, clock, 100 + n / 1000, variant=f"v{n % 2}")
    view, task = look(graph, clock, 101.0)
    spans = series.find_variants(task, view.at_ns)
    assert len(spans) == series.MOST_SPANS
    assert spans[-1][2] == "v1"


def test_a_task_without_frames_draws_nothing(graph, clock):
    graph.set_present({"/detector"})
    view, task = look(graph, clock, 110.0)
    assert series.find_variants(task, view.at_ns) == []
    assert not len(series.find_deadline(task, view.at_ns)[0])
    assert series.count_outcomes([task], view.at_ns)[1].sum() == 0


def test_outcomes_are_counted_in_whole_seconds_that_move_with_the_points(graph, clock):
    for at_s in (100.1, 100.9, 101.1):
        add(graph, clock, at_s, "late")
    for now_s in (102.2, 102.7):
        view, task = look(graph, clock, now_s)
        ends_s, table = series.count_outcomes([task, task], view.at_ns)
        at = {round(end + now_s): count for end, count in zip(ends_s, table[:, LATE], strict=True)}
        assert {second: count for second, count in at.items() if count} == {101: 4, 102: 2}
        assert ends_s[-1] == pytest.approx(103 - now_s)


def report(graph, clock, at_s, clocks, name=POLICY):
    clock.ns = round(at_s * S)
    graph.add_status(name, 0, "decides", {"clocks": clocks})
    return graph.snapshot()


def test_clocks_are_steps_that_hold_until_the_next_report(graph, clock):
    history = series.ClockHistory()
    first, second = "cpu 2201 MHz x4 (0xf0), gpu 1300.5 MHz", "cpu off, gpu 624 MHz"
    for at_s, text in ((100, first), (101, second)):
        view = report(graph, clock, at_s, text)
        history.add(view)
        history.add(view)  # seen twice, it is one report
    curves = history.curves(102 * S)
    assert sorted(curves) == ["/coordinator cpu", "/coordinator gpu"]
    times_s, values = curves["/coordinator gpu"]
    np.testing.assert_allclose(times_s, [-2, -1, -1])
    assert values.tolist() == [1300.5, 1300.5, 624]
    assert curves["/coordinator cpu"][1].tolist() == [2201, 2201, 0]


def test_clocks_are_forgotten_after_a_minute_and_fixed_ones_have_no_curve(graph, clock):
    history = series.ClockHistory()
    history.add(report(graph, clock, 100, "gpu 624 MHz"))
    history.add(report(graph, clock, 150, "unknown clocks"))
    assert list(history.curves(150 * S)) == ["/coordinator gpu"]
    history.add(report(graph, clock, 161, "unknown clocks"))
    assert history.curves(161 * S) == {}


def test_a_hostile_coordinator_makes_few_curves(graph, clock):
    history = series.ClockHistory()
    text = ", ".join(f"d{n} {'9' * 6} MHz" for n in range(1000)) + ", gpu 1.2.3 MHz"
    history.add(report(graph, clock, 100, text))
    history.add(report(graph, clock, 101, "gpu 1.2.3 MHz, . . MHz"))
    assert len(history.curves(101 * S)) == series.MOST_CLOCKS


def test_the_csv_has_every_frame(graph, clock, tmp_path):
    for n in range(3000):
        add(graph, clock, 100 + n / 1000)
    add(graph, clock, 104.0, "skipped", "", "", "")
    view, task = look(graph, clock, 105.0)
    series.write_csv(tmp_path / "a.csv", [task], view.at_ns)
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 3001
    first = {"task": "/detector", "time_s": "-5.000000", "stamp_ns": "0", "outcome": "met"}
    assert rows[0] == {
        **first,
        "response_ms": "10.000",
        "deadline_ms": "33.000",
        "variant": "full@a",
    }
    assert (rows[-1]["outcome"], rows[-1]["response_ms"], rows[-1]["variant"]) == (
        "skipped",
        "",
        "",
    )
