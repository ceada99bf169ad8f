# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What is kept of messages: figures, windows, and nothing of what cannot be."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from jetson_dnn_rt.watch import graph as module
from jetson_dnn_rt.watch.graph import OTHERS, OUTCOMES, Graph

SECOND = 10**9
POLICY = "/coordinator: policy_status"


class Clock:
    def __init__(self):
        self.now_ns = 1000 * SECOND

    def __call__(self):
        return self.now_ns


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def graph(clock):
    return Graph(clock)


def frame(outcome="met", **values):
    values = {"response_ms": 10.0, "deadline_ms": 33.0, "variant": "full@null", **values}
    return {"outcome": outcome, **{key: str(value) for key, value in values.items()}}


def only(graph):
    (task,) = graph.snapshot().tasks
    return task


def test_a_task_s_figures(graph, clock):
    outcomes = ["met"] * 97 + ["late", "late", "skipped"]
    for number, outcome in enumerate(outcomes):
        clock.now_ns += SECOND // 20
        response_ms = 1.0 + number
        graph.add_frame("/detector", frame(outcome, response_ms=response_ms), stamp_ns=number)
    task = only(graph)
    assert task.name == "/detector"
    assert task.present
    assert task.counts == task.totals
    assert {o: n for o, n in task.counts.items() if n} == {"met": 97, "late": 2, "skipped": 1}
    assert task.miss_ratio == pytest.approx(0.03)
    # The skipped frame's response time is none; 99 others have 1 to 99 ms.
    assert (task.p50_ms, task.hwm_ms, task.response_ms) == (50.0, 99.0, 99.0)
    # Of 99 the p99 is the highest under another name; of 100 one lies above it.
    assert math.isnan(task.p99_ms)
    graph.add_frame("/detector", frame(response_ms=100.0), stamp_ns=100)
    task = only(graph)
    assert (task.p99_ms, task.hwm_ms) == (99.0, 100.0)
    assert task.rate_hz == pytest.approx(20.0, rel=0.02)
    assert (task.age_s, task.variant) == (0.0, "full@null")
    assert task.frames["stamp_ns"].tolist() == list(range(101))


def test_what_a_frame_does_not_say_stays(graph):
    graph.add_frame("/a", frame(budget_ms=12.5))
    graph.add_frame("/a", {"outcome": "superseded"})
    task = only(graph)
    assert (task.response_ms, task.deadline_ms, task.budget_ms) == (10.0, 33.0, 12.5)
    assert task.variant == "full@null"
    assert math.isnan(task.frames["response_ms"][1])


def test_the_window_is_a_minute_and_totals_are_not(graph, clock):
    graph.add_frame("/a", frame("late", response_ms=90.0))
    clock.now_ns += 60 * SECOND
    graph.add_frame("/a", frame())
    task = only(graph)
    assert (task.counts["late"], task.counts["met"]) == (0, 1)
    assert (task.totals["late"], task.totals["met"]) == (1, 1)
    assert (task.p50_ms, task.hwm_ms) == (10.0, 90.0)


def test_a_task_that_falls_silent_has_no_rate_and_an_age(graph, clock):
    for _ in range(10):
        graph.add_frame("/a", frame())
        clock.now_ns += SECOND // 10
    clock.now_ns += 5 * SECOND
    task = only(graph)
    assert task.rate_hz == 0.0
    assert task.age_s == pytest.approx(5.1)


def test_misses_by_second(graph, clock):
    graph.add_frame("/a", frame("skipped"))
    clock.now_ns += SECOND // 2
    graph.add_frame("/a", frame("late"))
    clock.now_ns += SECOND
    graph.add_frame("/a", frame("late"))
    table = only(graph).outcomes_per_second(clock.now_ns)
    assert table.shape == (60, len(OUTCOMES))
    late, skipped = OUTCOMES.index("late"), OUTCOMES.index("skipped")
    assert (table[-1, late], table[-2, late], table[-2, skipped]) == (1, 1, 1)
    assert table.sum() == 3


def test_views_do_not_change(graph):
    graph.add_frame("/a", frame())
    before = only(graph)
    graph.add_frame("/a", frame("late"))
    assert len(before.frames) == 1
    with pytest.raises(ValueError, match="read-only"):
        before.frames["outcome"] = 0


HOSTILE = {
    "response_ms": ["nan", "inf", "-1", "1e10", "ten", "", "1" * 10**6, "0x1p3"],
    "deadline_ms": ["-0.1", "NaN", "\x00"],
    "budget_ms": ["-inf", "1,5"],
    "outcome": ["", "MET", "met ", "x" * 10**6, "\x1b[2J"],
    "variant": ["x" * 501, "full\x1b]0;title\x07", "line\nbreak", "\u202egnp"],
}


@pytest.mark.parametrize(("key", "text"), [(k, t) for k, ts in HOSTILE.items() for t in ts])
def test_what_cannot_be_is_dropped_and_counted(key, text, graph):
    graph.add_frame("/a", {**frame(), key: text})
    view = graph.snapshot()
    assert view.tasks == ()
    assert view.dropped == {key: 1}


def test_memory_is_bounded_at_1000_hz(graph, clock):
    for number in range(200_000):
        clock.now_ns += SECOND // 2000
        graph.add_frame("/a", frame("late" if number % 2 else "met"))
    task = only(graph)
    assert len(task.frames) == module.MOST_FRAMES
    assert task.frames["arrival_ns"][-1] == clock.now_ns
    assert np.all(np.diff(task.frames["arrival_ns"]) > 0)
    assert sum(task.totals.values()) == 200_000
    assert len(graph._tasks["/a"]._frames) <= 1.25 * module.MOST_FRAMES


def test_a_slow_task_s_buffer_does_not_grow(graph, clock):
    for _ in range(10_000):
        clock.now_ns += SECOND // 10
        graph.add_frame("/a", frame())
    assert len(only(graph).frames) == 600
    assert len(graph._tasks["/a"]._frames) == 1024


def test_variants_beyond_the_limit_are_counted_together(graph):
    for number in range(300):
        graph.add_frame("/a", frame(variant=f"v{number}"))
    task = only(graph)
    assert len(task.variants) == module.MOST_VARIANTS + 1
    assert [task.variants[n] for n in task.frames["variant"][[0, 254, 255, 299]]] == [
        *("v0", "v254"), OTHERS, OTHERS,
    ]  # fmt: skip
    assert task.variant == "v299"


def test_tasks_beyond_the_limit_take_the_place_of_those_that_are_gone(graph, clock):
    names = [f"/t{number:03}" for number in range(module.MOST_TASKS)]
    for name in names:
        clock.now_ns += 1
        graph.add_frame(name, frame())
    graph.add_frame("/new", frame())
    assert graph.snapshot().dropped == {"too many tasks": 1}
    assert graph.set_present(names[2:]) == set(names)
    assert [t.name for t in graph.snapshot().tasks if not t.present] == names[:2]
    graph.add_frame("/new", frame())
    assert {task.name for task in graph.snapshot().tasks} == {"/new", *names[1:]}


def test_a_task_is_shown_before_its_first_frame_and_after_its_end(graph):
    graph.set_present(["/a"])
    assert (only(graph).present, sum(only(graph).counts.values())) == (True, 0)
    assert math.isnan(only(graph).age_s)
    graph.set_present([])
    assert not only(graph).present
    graph.set_present(["/a"])
    assert only(graph).present


def test_the_coordinator(graph, clock):
    values = {
        "policy": "neuos", "clocks": "gpu 1.3 GHz", "power_w": "nan", "decisions_per_s": "59.9",
        "detector.variant": "full@a", "detector.lag_ms": "1.0", "front/seg.variant": "half@b",
    }  # fmt: skip
    graph.add_status(POLICY, 0, "neuos decides", values)
    clock.now_ns += SECOND
    (one,) = graph.snapshot().coordinators
    assert (one.name, one.level, one.policy, one.clocks) == (
        "/coordinator", "OK", "neuos", "gpu 1.3 GHz",
    )  # fmt: skip
    assert dict(one.choices) == {"detector": "full@a", "front/seg": "half@b"}
    assert math.isnan(one.power_w)
    assert (one.decisions_per_s, one.age_s) == (59.9, 1.0)


def test_warnings_are_of_this_package_and_of_now(graph, clock):
    graph.add_status("/detector: camera_status", 1, "no frame\x1b[31m yet\n", {})
    graph.add_status("/battery: charge", 2, "low", {})
    graph.add_status("/detector: task_status", 0, "OK", {})
    (one,) = graph.snapshot().warnings
    assert (one.name, one.level) == ("/detector: camera_status", "WARN")
    assert one.message == "no frame [31m yet "
    clock.now_ns += module.STATUS_AGE_NS
    assert graph.snapshot().warnings == ()


def test_violations_of_a_limit_are_those_of_the_task_s_status(graph, clock):
    graph.add_frame("/front/detector", frame())
    assert only(graph).violations is None
    for text, count in (("12", 12), ("0", 0), ("-1", None), ("9" * 400, None), ("many", None)):
        graph.add_status("/front/detector: task_status", 0, "", {"met_of_violations": text})
        assert only(graph).violations == count
    graph.add_status("/front/detector: task_status", 0, "", {"met_of_violations": "3"})
    clock.now_ns += module.STATUS_AGE_NS
    assert only(graph).violations is None


@pytest.mark.parametrize(
    ("name", "level", "reason"),
    [(POLICY, 7, "level"), ("\x1b" + POLICY, 0, "name"), ("x" * 10**6 + POLICY, 0, "name")],
)
def test_statuses_that_cannot_be_are_dropped(name, level, reason, graph):
    graph.add_status(name, level, "", {})
    view = graph.snapshot()
    assert (view.coordinators, view.warnings, view.dropped) == ((), (), {reason: 1})


def test_statuses_are_bounded(graph):
    for number in range(module.MOST_STATUSES + 1):
        graph.add_status(f"/n{number}: task_status", 1, "", {})
    view = graph.snapshot()
    assert len(view.warnings) == module.MOST_STATUSES
    assert view.dropped == {"too many statuses": 1}


def test_every_status_that_a_node_publishes_is_shown():
    """But those that are named by a topic, which say what the task's own does."""
    nodes = Path(module.__file__).parents[1] / "nodes"
    texts = [file.read_text("utf-8") for file in nodes.rglob("*.py")]
    names = {name for text in texts for name in re.findall(r'"([a-z]+(?:_[a-z]+)*_status)"', text)}
    assert {"task_status", "name_status", "process_status", "perception_status"} <= names
    assert names - {"image_status", "result_status"} == set(module.STATUS_KINDS)
