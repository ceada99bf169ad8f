# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Times read from traces: grouped as requested, each exactly once."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traced_jobs import METADATA, make_record

from jetson_dnn_rt.lab.wcet.command import count_cut_off
from jetson_dnn_rt.lab.wcet.samples import KEYS, read_samples
from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.traces.clock_log import ClockLog
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.writer import TraceWriter

pytest.importorskip("pyarrow")


def write(folder, records, clocks=None):
    with TraceWriter(folder, METADATA, clocks=(clocks or ClockLog()).at) as writer:
        for record in records:
            writer.write(record, warm_up=record.sequence < 2, wait=True)
    return open_trace(folder)


def test_times_of_finished_jobs(tmp_path):
    records = [make_record(i, stages_ns=(100 + i, 10)) for i in range(6)]
    records.append(make_record(6, outcome=Outcome.ABORTED, stages_ns=(77,)))
    records.append(make_record(7, outcome=Outcome.SKIPPED, stages_ns=()))
    records.append(make_record(8, outcome=Outcome.LATE, stages_ns=(500, 1)))
    (sample,) = read_samples([write(tmp_path, records)])
    assert sample.key == (("task", "detector"), ("variant", "full@null"))
    assert sample.times_ns.tolist() == [112, 113, 114, 115, 501]
    assert sample.warm_up_ns.tolist() == [110, 111]
    assert sample.deadline_ns == 40_000_000
    assert sample.title == "detector, full@null"
    (responses,) = read_samples([open_trace(tmp_path)], times="response")
    finished = [records[i] for i in (2, 3, 4, 5, 8)]
    assert sample.release_ns.tolist() == [record.release_ns for record in finished]
    assert responses.times_ns.tolist() == [record.response_time_ns for record in finished]


def test_traces_follow_each_other(tmp_path):
    first = write(tmp_path / "a", [make_record(i, stages_ns=(i,)) for i in range(2, 5)])
    second = write(tmp_path / "b", [make_record(i, stages_ns=(10 * i,)) for i in range(2, 5)])
    (sample,) = read_samples([first, second])
    assert sample.times_ns.tolist() == [2, 3, 4, 20, 30, 40]
    assert read_samples([write(tmp_path / "empty", [])]) == []
    (sample,) = read_samples([first], by=["clocks"])
    assert sample.title == "detector, clocks not read"


@pytest.mark.parametrize(("by", "times"), [(("task", "colour"), "execution"), ((), "waiting")])
def test_what_is_unknown_is_named(by, times):
    with pytest.raises(ValueError, match=r"colour|waiting"):
        read_samples([], by=by, times=times)


def gather_by_hand(trace, names):
    """The same row by row."""
    found: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for job in trace.jobs():
        record = job.record
        if "stage" in names:
            for stage, clocks in zip(record.stages, job.clocks, strict=True):
                values = {"task": record.task, "variant": stage.variant, "stage": stage.name}
                key = tuple({**values, "clocks": clocks}[name] for name in names)
                found[key].append(stage.execution_time_ns)
        elif record.outcome in (Outcome.MET, Outcome.LATE):
            joined = "+".join(filter(None, dict.fromkeys(job.clocks)))
            values = {"task": record.task, "variant": record.variant, "clocks": joined}
            found[tuple(values[name] for name in names)].append(record.execution_time_ns)
    return found


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["detector", "segmenter"]),
            st.sampled_from(["full@null", "tucker@null"]),
            st.sampled_from(list(Outcome)),
            st.lists(st.integers(1, 1000), max_size=3).map(tuple),
        ),
        max_size=40,
    ),
    st.lists(st.tuples(st.integers(0, 10**9), st.sampled_from(["", "x", "y"])), max_size=6),
    st.sets(st.sampled_from(KEYS)),
)
def test_every_time_is_in_one_sample(tmp_path_factory, jobs, changes, by):
    clocks = ClockLog()
    for time_ns, text in sorted(changes):
        clocks.append(time_ns, text)
    records = [
        make_record(i, task=task, variant=variant, outcome=outcome, stages_ns=stages_ns)
        for i, (task, variant, outcome, stages_ns) in enumerate(jobs, 2)
    ]
    trace = write(tmp_path_factory.mktemp("trace"), records, clocks)
    names = [name for name in KEYS if name == "task" or name in by]
    expected = gather_by_hand(trace, names)
    samples = read_samples([trace], by=tuple(by))
    assert [tuple(value for _, value in s.key) for s in samples] == sorted(expected)
    for sample in samples:
        key = tuple(value for _, value in sample.key)
        assert sample.times_ns.tolist() == expected[key]
        assert sample.times_ns.dtype == np.int64


def batched(record, size):
    """The same job with its network run for several frames."""
    first, *others = record.stages
    return replace(record, stages=(replace(first, name="inference", batch=size), *others))


def test_jobs_that_ran_together_are_campaigns_of_their_own(tmp_path):
    records = [make_record(i, stages_ns=(100 + i, 10)) for i in range(2, 5)]
    records += [batched(make_record(i, stages_ns=(150 + i, 10)), 2) for i in range(5, 7)]
    records.append(batched(make_record(7, stages_ns=(190, 10)), 3))
    narrow = make_record(8, stages_ns=(180, 10))
    first, second = narrow.stages
    records.append(replace(narrow, stages=(replace(first, narrow=True), second)))
    trace = write(tmp_path, records)
    found = {s.key[1][1]: s.times_ns.tolist() for s in read_samples([trace])}
    assert found == {
        "full@null": [112, 113, 114],
        "full@null (batch of 2)": [165, 166],
        "full@null (batch of 3)": [200],
        "full@null (narrow)": [190],
    }
    stages = read_samples([trace], by=("variant", "stage"))
    assert ("variant", "full@null (narrow)") in stages[-1].key
    assert [job.record.batch for job in trace.jobs()] == [1, 1, 1, 2, 2, 3, 1]
    assert [job.record.stages[0].batch for job in trace.jobs()] == [1, 1, 1, 2, 2, 3, 1]
    lost = replace(batched(make_record(8, stages_ns=(150, 1)), 2), outcome=Outcome.ABORTED)
    more = write(tmp_path / "more", [lost])
    counts = {s.subtitle: count_cut_off([more], s, "execution") for s in read_samples([trace])}
    assert counts == {variant: int("of 2" in variant) for variant in found}
