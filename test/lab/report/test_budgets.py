# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from campaigns import make_campaign
from hypothesis import given, settings
from hypothesis import strategies as st
from timing_traces import PERIOD_NS, read_made

from jetson_dnn_rt.lab.report.budgets import (
    BOUND,
    HIGHEST,
    P99,
    P999,
    analyse_recording,
    find_least_deadline,
)
from jetson_dnn_rt.scheduling.analysis import TaskDemand, analyse

pytest.importorskip("pyarrow")
MS = 1_000_000


def test_least_deadline_by_hand():
    # Alone 5 ms would do; a stage of 3 ms of a task with a longer deadline may be running.
    other = TaskDemand("other", 9 * MS, 3 * MS, 3, 100 * MS, 100 * MS)
    task = TaskDemand("task", 5 * MS, 5 * MS, 1, 50 * MS, 50 * MS)
    assert find_least_deadline(task, []) == 5 * MS
    assert find_least_deadline(task, [other]) == 8 * MS
    # None helps where more arrives than can be done.
    task = TaskDemand("task", 6 * MS, 6 * MS, 1, 10 * MS, 10 * MS)
    assert find_least_deadline(task, [replace(task, name="other")]) is None


demands = st.builds(
    lambda cost, stages, slack, spare: TaskDemand(
        "t", cost * MS, -(-cost * MS // stages), stages, (cost + slack) * MS, (cost + spare) * MS
    ),
    st.integers(1, 20),
    st.integers(1, 4),
    st.integers(0, 60),
    st.integers(5, 80),
)


@settings(max_examples=40)
@given(demands, st.lists(demands, max_size=2))
def test_the_least_deadline_fits_and_less_does_not(task, others):
    step = 500_000
    least = find_least_deadline(task, others, 1, step)
    if least is None:
        far = replace(task, deadline_ns=64 * task.period_ns)
        assert not analyse([far, *others]).schedulable
        return
    assert analyse([replace(task, deadline_ns=least), *others]).schedulable
    if least - step >= task.cost_ns:
        assert not analyse([replace(task, deadline_ns=least - step), *others]).schedulable


def test_budgets_rise_from_quantiles_to_the_highest(tmp_path):
    recording = read_made(tmp_path, count=1100)
    result = analyse_recording(recording, {})
    assert result.left_out == []
    assert list(result.verdicts) == [P99, P999, HIGHEST]
    for name, needs in result.needs.items():
        times = recording.samples_of(name)[0].times_ns
        assert needs.budgets_ns[P99] <= needs.budgets_ns[P999] <= needs.budgets_ns[HIGHEST]
        assert needs.budgets_ns[HIGHEST] == times.max()
        assert np.mean(times <= needs.budgets_ns[P99]) >= 0.99
        # That of the metadata.
        assert needs.period_ns == PERIOD_NS
    assert result.mean_load == pytest.approx(23 / 33.3, rel=0.05)
    assert not result.together or not result.verdicts[HIGHEST].schedulable


@pytest.mark.parametrize(
    ("count", "verdicts", "left_out"),
    [(107, [HIGHEST], [P99, P999]), (110, [P99, HIGHEST], [P999])],
)
def test_a_quantile_with_no_time_above_it_is_no_budget(tmp_path, count, verdicts, left_out):
    """The first ten of the frames are warm-up."""
    result = analyse_recording(read_made(tmp_path, count=count), {})
    assert list(result.verdicts) == verdicts
    assert result.left_out == left_out
    assert result.count == count - 10
    assert result.least_careful == verdicts[0]
    for needs in result.needs.values():
        assert list(needs.budgets_ns) == list(needs.least_deadline_ns) == verdicts
        assert len(set(needs.budgets_ns.values())) == len(verdicts)


def test_the_bound_is_a_budget_where_every_task_has_one(tmp_path):
    recording = read_made(tmp_path, count=200)
    titles = [recording.samples_of(name)[0].title for name in recording.tasks]
    campaigns = {title: make_campaign(title, upper_ns=60 * MS) for title in titles}
    result = analyse_recording(recording, campaigns)
    assert result.verdicts[BOUND].schedulable is False
    assert all(needs.budgets_ns[BOUND] == 60 * MS for needs in result.needs.values())
    only_one = analyse_recording(recording, {titles[0]: campaigns[titles[0]]})
    assert BOUND not in only_one.verdicts


def test_where_not_all_fit_the_largest_sets_that_do_are_named(tmp_path):
    recording = read_made(tmp_path, count=300, slowdown=1.6)
    result = analyse_recording(recording, {})
    assert result.verdicts[HIGHEST].schedulable is False
    assert [set(choice.variants) for choice in result.together] == [{"detector"}, {"segmenter"}]
    assert all(choice.verdicts[HIGHEST].schedulable for choice in result.together)


def test_what_overloads_one_worker_is_open_for_two(tmp_path):
    recording = read_made(tmp_path, count=300, slowdown=1.3)
    one, two = (analyse_recording(recording, {}, workers) for workers in (1, 2))
    assert two is not None
    assert one.verdicts[HIGHEST].schedulable is False
    # The test for several workers is only sufficient: it does not refute.
    assert two.verdicts[HIGHEST].schedulable is None


def test_each_combination_of_variants_is_judged(tmp_path):
    recording = read_made(tmp_path, count=300, slowdown=1.3, second_variant_from=150)
    result = analyse_recording(recording, {})
    assert len(result.choices) == 4
    fitting = [c.variants for c in result.choices if c.most_careful == HIGHEST]
    assert {"detector": "tucker-0.50@null", "segmenter": "tucker-0.50@null"} in fitting
    assert {"detector": "full@null", "segmenter": "full@null"} not in fitting
    # Too few jobs are no basis.
    assert analyse_recording(read_made(tmp_path / "few", count=20), {}) is None
