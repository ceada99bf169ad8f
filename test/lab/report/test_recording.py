# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from timing_traces import DEADLINES_NS, PERIOD_NS, STAGES, make_jobs, read_made, write_trace_of

from jetson_dnn_rt.lab.report.recording import (
    GAP_NS,
    OUTCOMES,
    expect_bursts,
    find_bursts,
    read_recording,
)
from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.traces.reader import open_trace

pytest.importorskip("pyarrow")


def test_columns_are_those_of_the_jobs(tmp_path):
    jobs = make_jobs(60, bad_from=20, bad_count=10)
    recording = read_made(tmp_path, jobs)
    assert list(recording.tasks) == sorted(DEADLINES_NS)
    for name, task in recording.tasks.items():
        own = [job for job in jobs if job.task == name]
        assert task.release_ns.tolist() == [job.release_ns for job in own]
        assert task.response_ns.tolist() == [job.response_time_ns for job in own]
        assert task.execution_ns.tolist() == [job.execution_time_ns for job in own]
        assert task.waiting_ns.tolist() == [job.waiting_ns for job in own]
        assert [OUTCOMES[code] for code in task.outcome] == [job.outcome for job in own]
        assert task.started.tolist() == [job.start_ns is not None for job in own]
        assert [task.variants[code] for code in task.variant] == [job.variant for job in own]
        assert sum(task.count(outcome) for outcome in Outcome) == len(task) == 60
        assert task.usual_deadline_ns == DEADLINES_NS[name]
        assert abs(task.period_ns - PERIOD_NS) <= 1
        assert int(task.warm_up.sum()) == 10
        skipped = task.count(Outcome.SKIPPED)
        assert task.reasons["skipped: budget"] == skipped
        assert skipped > 0 or name == "detector"


def test_pooled_traces_follow_each_other(tmp_path):
    one = open_trace(write_trace_of(tmp_path / "a", make_jobs(30)))
    two = open_trace(write_trace_of(tmp_path / "b", make_jobs(20, seed=1)))
    alone = read_recording("a", [one])
    both = read_recording("a", [one, two])
    task = both.tasks["detector"]
    assert len(task) == 50
    assert np.all(np.diff(task.release_ns) > 0)
    assert task.release_ns[30] == alone.span_ns + GAP_NS
    assert len(both.samples_of("detector")[0]) == 30 + 20 - 2 * 10


def test_stages_are_in_their_order_and_those_side_by_side_are_counted(tmp_path):
    recording = read_made(tmp_path / "one", count=30)
    names = [dict(stage.key)["stage"] for stage in recording.stages_of("detector")]
    assert names == list(STAGES)
    assert recording.side_by_side == 1
    # Two workers begin at the same releases.
    shifted = [
        job for seed in (0, 1) for job in make_jobs(30, seed=seed) if job.task == "detector"
    ]
    assert read_made(tmp_path / "two", shifted).side_by_side == 2


def test_whole_of_a_task_is_all_of_its_variants(tmp_path):
    jobs = make_jobs(80, second_variant_from=40)
    recording = read_made(tmp_path, jobs)
    parts = recording.samples_of("segmenter")
    whole = recording.whole_of("segmenter")
    assert len(parts) == 2
    assert sorted(whole.times_ns) == sorted(np.concatenate([part.times_ns for part in parts]))
    assert len(whole.warm_up_ns) == 20
    stages = recording.whole_stages_of("segmenter")
    assert [dict(stage.key)["stage"] for stage in stages] == list(STAGES)
    assert sum(int(stage.times_ns.sum()) for stage in stages) == whole.times_ns.sum()


def test_frames_that_ran_together_are_told_apart(tmp_path):
    jobs = make_jobs(60)
    for place, job in enumerate(jobs):
        if job.sequence % 2:
            stages = tuple(replace(stage, batch=2) for stage in job.stages)
            jobs[place] = replace(job, stages=stages)
    recording = read_made(tmp_path, jobs)
    titles = [sample.title for sample in recording.samples_of("detector")]
    assert titles == ["detector, full@null", "detector, full@null (batch of 2)"]
    for sample in recording.samples_of("detector"):
        assert len(sample) == 25
        assert recording.count_cut_off(sample) == 0


def test_aborted_frames_are_missing_in_the_sample_of_their_variant(tmp_path):
    jobs = make_jobs(60, second_variant_from=30)
    for place, job in enumerate(jobs):
        if job.sequence in (5, 20, 25, 50):
            jobs[place] = replace(job, outcome=Outcome.ABORTED)
    recording = read_made(tmp_path, jobs)
    samples = recording.samples_of("detector")
    counts = {sample.title: recording.count_cut_off(sample) for sample in samples}
    # The fifth is warm-up.
    assert counts == {"detector, full@null": 2, "detector, tucker-0.50@null": 1}
    assert recording.count_cut_off(recording.whole_of("detector")) == 3


def find(text, period_ns=10):
    missed = np.array([letter == "x" for letter in text])
    return find_bursts(missed, np.arange(len(text)) * period_ns, period_ns)


def test_lengths_and_the_longest_gap():
    bursts = find("..x.xxx..x")
    assert bursts.lengths.tolist() == [1, 3, 1]
    assert bursts.starts.tolist() == [2, 4, 9]
    assert (bursts.longest, bursts.longest_ns, bursts.longest_start_ns) == (3, 30, 40)
    # Four missed frames have a successor, of which two were missed.
    assert bursts.after_miss == 0.5
    # Misses at the end last a period more.
    assert find(".xx").longest_ns == 20
    nothing = find("....")
    assert (nothing.longest, nothing.longest_ns, len(nothing.lengths)) == (0, 0, 0)
    assert math.isnan(nothing.after_miss)
    # A gap in the frames counts as time without a result.
    missed = np.array([True, False, True, True, False])
    bursts = find_bursts(missed, np.array([0, 90, 100, 110, 120]), 10)
    assert bursts.longest == 2
    assert (bursts.longest_ns, bursts.longest_start_ns) == (90, 0)


@given(st.lists(st.booleans(), min_size=1, max_size=200))
def test_every_miss_is_in_one_burst(values):
    missed = np.array(values)
    bursts = find_bursts(missed, np.arange(len(values)) * 7, 7)
    spans = zip(bursts.starts, bursts.starts + bursts.lengths, strict=True)
    covered = [place for start, end in spans for place in range(start, end)]
    assert covered == np.flatnonzero(missed).tolist()


@pytest.mark.parametrize("ratio", [0.05, 0.3])
def test_expected_bursts_are_those_of_independent_misses(ratio):
    count = 200_000
    missed = np.random.default_rng(0).random(count) < ratio
    lengths = find_bursts(missed, np.arange(count), 1).lengths
    expected = expect_bursts(np.arange(1, 3), count, ratio)
    found = np.bincount(lengths, minlength=4)[1:3]
    assert found == pytest.approx(expected, rel=0.15)
