# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Statistics of a run, against figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from traced_jobs import make_record

from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.traces.summary import RunSummary, hide_tails, order_statistic, summarize_ms
from jetson_dnn_rt.traces.variant_use import VariantUse

MS = 1_000_000


def record_of(sequence, response_ms, *, execution_ms=5, waiting_ms=0, **more):
    stages_ns = more.pop("stages_ns", (execution_ms * MS,))
    made = make_record(sequence, stages_ns=stages_ns, deadline_ns=20 * MS, **more)
    completion_ns = made.release_ns + response_ms * MS
    return replace(made, completion_ns=completion_ns, waiting_ns=waiting_ms * MS)


@pytest.mark.parametrize(
    ("count", "hidden"), [(0, "p99 p99.9"), (99, "p99 p99.9"), (100, "p99.9"), (1000, "")]
)
def test_tails_that_are_just_the_maximum_are_hidden(count, hidden):
    times = {"p50": 1.0, "p99": 2.0, "p99.9": 3.0, "max": 3.0}
    expected = {name: None if name in hidden.split() else time for name, time in times.items()}
    assert hide_tails(times, count) == expected


@pytest.mark.parametrize(
    ("quantile", "expected"), [(0.01, 1), (0.5, 50), (0.501, 51), (0.99, 99), (1.0, 100)]
)
def test_order_statistic_is_the_smallest_value_that_covers_the_share(quantile, expected):
    assert order_statistic(range(1, 101), quantile) == expected


@pytest.mark.parametrize(("values", "quantile"), [([], 0.5), ([1], 0.0), ([1], 1.01)])
def test_order_statistic_refuses_what_has_no_answer(values, quantile):
    with pytest.raises(ValueError, match=r"ordered|quantile"):
        order_statistic(values, quantile)


def test_summarize_takes_times_in_any_order_and_nothing_observed_is_not_zero():
    times_ns = [3 * MS, MS, 2 * MS]
    assert summarize_ms(times_ns) == {"p50": 2.0, "p99": 3.0, "max": 3.0}
    assert summarize_ms([]) == {"p50": None, "p99": None, "max": None}


def test_task_of_four_jobs_by_hand():
    summary = RunSummary({"detector": "full@null"})
    summary.add(record_of(0, 10, waiting_ms=3))  # overhead 2
    summary.add(record_of(1, 25, outcome=Outcome.LATE, execution_ms=24, variant="b@null"))
    summary.add(record_of(2, 0, outcome=Outcome.SKIPPED, stages_ns=()))
    summary.add(record_of(3, 7, outcome=Outcome.ABORTED))

    task = summary.to_dict()["detector"]

    assert task == {
        "released": 4,
        "outcomes": {
            **dict.fromkeys(("met", "late", "skipped", "aborted"), 1),
            **dict.fromkeys(("superseded", "failed"), 0),
        },
        "deadline_ms": 20.0,
        "deadlines_ms": [20.0],
        "finished": 2,
        "response_ms": {"p50": 10.0, "p99": 25.0, "max": 25.0},
        "execution_ms": {"p50": 5.0, "p99": 24.0, "max": 24.0},
        "overhead_ms": {"p50": 1.0, "p99": 2.0, "max": 2.0},
        "variants": {"full@null": 2 / 3, "b@null": 1 / 3},
        "configured_variant": "full@null",
        "first_variant": "full@null",
        "time_shares": {"b@null": 24 / 34, "full@null": 10 / 34},
        "switches": {"full@null -> b@null": 1, "b@null -> full@null": 1},
    }
    assert summary.tasks["detector"].met_ratio == 0.25
    assert summary.tasks["detector"].reasons == {"skipped: why": 1, "aborted: why": 1}


def test_switches_inside_and_between_frames_are_those_of_the_network():
    use = VariantUse()

    def add(*variants):
        return use.add(make_record(0, variants=variants, stages_ns=(MS,) * len(variants)))

    assert add("x", "x", "y") == [("x", "y")]
    assert add("x", "y") == [("y", "x")]  # the second is the first to go back
    assert add("y") == []
    assert use.switches == {("x", "y"): 2, ("y", "x"): 1}
    assert use.time_shares == {"x": 3 / 6, "y": 3 / 6}
    # Preprocessing under another name is no switch, and takes no time of a variant.
    record = make_record(0, variants=("z", "y"), stages_ns=(MS, MS))
    first, second = record.stages
    assert use.add(replace(record, stages=(replace(first, name="preprocess"), second))) == []
    assert "z" not in use.time_shares


def test_a_first_frame_in_another_variant_than_the_configured_one_is_a_switch():
    use = VariantUse("x")
    record = make_record(0, variants=("y", "y"), stages_ns=(MS, MS))
    assert use.add(record) == [("x", "y")]
    assert use.add(record) == []
    assert (use.configured, use.first, use.switches) == ("x", "y", {("x", "y"): 1})


def test_a_task_without_frames_is_shown_with_zeros():
    task = RunSummary({"segmenter": "full@null"}).to_dict()["segmenter"]
    assert task["released"] == 0
    assert task["variants"] == {}
    assert (task["configured_variant"], task["first_variant"]) == ("full@null", None)
    assert set(task["outcomes"].values()) == {0}


def test_tasks_are_kept_apart():
    summary = RunSummary()
    summary.add(record_of(0, 10, task="a"))
    summary.add(record_of(0, 10, task="b"))
    summary.add(record_of(1, 10, task="b"))
    assert {name: task.released for name, task in summary.tasks.items()} == {"a": 1, "b": 2}
