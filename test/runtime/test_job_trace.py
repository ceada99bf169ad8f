# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A process' traces, one after the other: no job is lost between two of them."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: traces need it")

from executor_bench import frame
from traced_jobs import make_record, sequences

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.runtime.job_trace import JobTrace
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.traces.schema import TracedTask, TraceMetadata


@pytest.fixture
def trace(tmp_path, monkeypatch):
    """A trace in which job 1 ends while the first part of it is closed, before the next begins."""
    trace = JobTrace(tmp_path / "traces", "session", lambda time_ns: "")
    trace.begin(TraceMetadata(tasks={"detector": TracedTask()}))
    trace.observe(make_record(0), Work(frame(0)))
    close = trace._close

    def observe_meanwhile(writer, *, convert):
        close(writer, convert=convert)
        trace.observe(make_record(1), Work(frame(1)))

    monkeypatch.setattr(trace, "_close", observe_meanwhile)
    yield trace
    monkeypatch.undo()
    trace.close()


MORE = TraceMetadata(tasks={"detector": TracedTask(), "segmenter": TracedTask()})


def test_a_job_that_ends_between_two_traces_is_in_the_second(trace, tmp_path):
    """With one task more the trace begins anew; each other task lost frames to that."""
    trace.begin(MORE)
    trace.observe(make_record(2), Work(frame(2)))
    assert trace.describe()[0] == ""
    trace.close()
    first, second = sorted((tmp_path / "traces").iterdir(), key=lambda path: sequences(path))
    assert (sequences(first), sequences(second)) == ([0], [1, 2])


def test_where_no_trace_follows_it_is_counted_as_lost(trace, tmp_path, monkeypatch):
    monkeypatch.setattr(trace, "_choose", lambda: tmp_path / "file" / "trace")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="trace_dir"):
        trace.begin(MORE)
    monkeypatch.undo()
    trace.begin(MORE)
    assert trace.describe()[1]["trace_lost"] == 1
