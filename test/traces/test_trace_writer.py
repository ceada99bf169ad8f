# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The trace writer: what is written is read, whatever happens to the disk."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest
from thread_kills import kill_thread
from traced_jobs import METADATA, make_record, sequences, write_parquet_trace

from jetson_dnn_rt.safety.faults import FAULTS
from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.traces import writer as trace_writer
from jetson_dnn_rt.traces.clock_log import ClockLog
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.schema import WARM_UP_JOBS, TracedJob
from jetson_dnn_rt.traces.writer import TraceWriter

pytest.importorskip("pyarrow")


def test_what_is_written_is_read(tmp_path):
    clocks = ClockLog("slow")
    clocks.append(make_record(3).stages[1].start_ns, "fast")
    records = [
        make_record(0),
        make_record(1, outcome=Outcome.SKIPPED, stages_ns=()),
        make_record(2, outcome=Outcome.ABORTED, stages_ns=(5,)),
        make_record(3, variant="x+y", variants=("x", "y")),
    ]
    with TraceWriter(tmp_path / "t", METADATA, clocks=clocks.at) as writer:
        writer.write(records[0], stamp_ns=17)
        writer.write(records[1])
        writer.write(records[2], warm_up=False)
        writer.write(records[3])
    assert (writer.written, writer.lost, writer.error) == (4, 0, None)
    assert [file.name for file in (tmp_path / "t").iterdir()] == ["jobs-0000.parquet"]
    trace = open_trace(tmp_path / "t")
    assert trace.metadata == METADATA
    assert list(trace.jobs()) == [
        TracedJob(records[0], "camera", 17, True, ("slow", "slow")),
        TracedJob(records[1], "camera", None, True, ()),
        TracedJob(records[2], "camera", None, False, ("slow",)),
        TracedJob(records[3], "camera", None, True, ("slow", "fast")),
    ]
    writer.close()  # a second time does nothing


def test_first_started_jobs_of_a_task_in_a_variant_are_warm_up(tmp_path):
    records = [make_record(i) for i in range(WARM_UP_JOBS + 2)]
    records += [make_record(i, variant="other") for i in range(2)]
    trace = open_trace(write_parquet_trace(tmp_path, records))
    marks = [job.warm_up for job in trace.jobs()]
    assert marks == [True] * WARM_UP_JOBS + [False] * 2 + [True] * 2


def test_parts_follow_each_other(tmp_path):
    records = [make_record(i) for i in range(700)]
    with TraceWriter(tmp_path, METADATA, part_bytes=30_000) as writer:
        for record in records:
            writer.write(record, wait=True)
    parts = sorted(file.name for file in tmp_path.iterdir())
    assert len(parts) > 1
    assert parts == [f"jobs-{number:04d}.parquet" for number in range(len(parts))]
    assert [job.record for job in open_trace(tmp_path).jobs()] == records


def test_numbers_go_on_or_begin_anew(tmp_path):
    write_parquet_trace(tmp_path, [make_record(0)])
    (tmp_path / "jobs-0007.partial").write_bytes(b"half")
    (tmp_path / "jobs-notes.txt").write_text("of the user")
    write_parquet_trace(tmp_path, [make_record(1)])
    assert {file.name for file in tmp_path.iterdir()} == {
        *("jobs-0000.parquet", "jobs-0008.parquet", "jobs-notes.txt")
    }
    assert sequences(tmp_path) == [0, 1]
    with TraceWriter(tmp_path, METADATA, replace=True) as writer:
        writer.write(make_record(2))
    assert sequences(tmp_path) == [2]
    assert (tmp_path / "jobs-notes.txt").is_file()


def test_a_stream_that_is_left_as_it_is(tmp_path):
    writer = TraceWriter(tmp_path, METADATA)
    writer.write(make_record(0))
    writer.close(convert=False)
    assert [file.name for file in tmp_path.iterdir()] == ["jobs-0000.arrows"]
    assert sequences(tmp_path) == [0]


def test_jobs_are_readable_while_it_runs(tmp_path):
    with TraceWriter(tmp_path, METADATA) as writer:
        for i in range(trace_writer.BATCH_JOBS):  # so many wake the writer
            writer.write(make_record(i))
        writer._thread.join(0)
        while writer.written < trace_writer.BATCH_JOBS:
            writer._thread.join(0.01)
        jobs = sequences(tmp_path)
    assert jobs == list(range(trace_writer.BATCH_JOBS))


def test_a_full_queue_loses_and_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_writer, "QUEUE_LIMIT", 4)
    hold = threading.Event()

    def clocks(time_ns):
        hold.wait()
        return ""

    with TraceWriter(tmp_path, METADATA, clocks=clocks) as writer:
        writer._wake.set()
        for i in range(10):
            writer.write(make_record(i))
        assert writer.lost >= 10 - 4 - 4  # the writer may have taken up to four before it held
        lost = writer.lost
        hold.set()
    assert writer.lost == lost
    assert writer.written == 10 - lost == sum(1 for _ in open_trace(tmp_path).jobs())


def test_who_can_wait_loses_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_writer, "QUEUE_LIMIT", 8)
    records = [make_record(i) for i in range(300)]
    write_parquet_trace(tmp_path, records)
    assert [job.record for job in open_trace(tmp_path).jobs()] == records


def test_after_the_end_nothing_is_taken(tmp_path):
    writer = TraceWriter(tmp_path, METADATA)
    writer.close()
    writer.write(make_record(0))
    writer.write(make_record(1), wait=True)
    assert (writer.written, writer.lost) == (0, 2)


def wait_for(writer, jobs):
    while writer.written + writer.lost < jobs:
        writer._thread.join(0.01)


def test_without_room_for_parquet_the_stream_stays(tmp_path, monkeypatch, caplog):
    def fail(path, schema):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(trace_writer, "turn_into_parquet", fail)
    write_parquet_trace(tmp_path, [make_record(0)])
    assert [file.name for file in tmp_path.iterdir()] == ["jobs-0000.arrows"]
    assert sequences(tmp_path) == [0]
    assert "No space left" in caplog.text


def test_what_cannot_be_a_row_costs_its_batch_only(tmp_path):
    with TraceWriter(tmp_path, METADATA) as writer:
        writer.write(make_record(2**63))
        writer._wake.set()
        wait_for(writer, 1)
        writer.write(make_record(1))
    assert (writer.written, writer.lost) == (1, 1)
    assert sequences(tmp_path) == [1]


def test_a_folder_that_cannot_be_written():
    with pytest.raises(OSError, match="/proc/no"):
        TraceWriter(Path("/proc/no/such"), METADATA)


def test_a_killed_thread_goes_on_with_what_waits(tmp_path):
    """EDGES 0: the writer's thread that died took the trace with it, and said nothing."""
    begun, killed = threading.Event(), threading.Event()

    def clocks(time_ns):
        if not begun.is_set():
            begun.set()
            assert killed.wait(60.0)
        return ""

    with TraceWriter(tmp_path, METADATA, clocks=clocks) as writer:
        writer.write(make_record(0))
        writer._wake.set()
        assert begun.wait(60.0)
        kill_thread("trace", wait=False)  # when it goes on
        killed.set()
        for i in range(1, 10):
            writer.write(make_record(i))
    assert [one.kind for one in FAULTS.snapshot()] == ["thread trace: KilledError"]
    # The batch in the thread's hands is lost, and counted; what waited is not.
    assert (writer.written, writer.lost) == (9, 1)
    assert sequences(tmp_path) == list(range(1, 10))


def test_a_part_that_could_not_be_begun_does_not_end_the_trace(tmp_path, monkeypatch):
    """Campaign of faults: its file was left, and every later part had its name."""
    writer = TraceWriter(tmp_path / "t", METADATA, part_bytes=1)  # a part for each batch
    write, failures = trace_writer.StreamPart._write, [MemoryError("no memory")]

    def fail(part, data):
        if failures and not part.size:
            raise failures.pop()
        write(part, data)

    monkeypatch.setattr(trace_writer.StreamPart, "_write", fail)
    for sequence in range(4):
        writer.write(make_record(sequence))
        wait_for(writer, sequence + 1)
    writer.close()
    assert not failures
    assert (writer.written, writer.lost) == (3, 1)
    assert len(list(open_trace(tmp_path / "t").jobs())) == 3
    assert len(list((tmp_path / "t").iterdir())) == 3


def test_jobs_that_a_fault_takes_along_are_counted(tmp_path, monkeypatch):
    """Campaign of faults: the thread went on, and its batch was neither written nor lost."""
    with TraceWriter(tmp_path / "t", METADATA) as writer:
        append, failures = writer._append, [RuntimeError("once")]

        def fail(items):
            if failures:
                raise failures.pop()
            append(items)

        monkeypatch.setattr(writer, "_append", fail)
        writer.write(make_record(0))
        wait_for(writer, 1)
        writer.write(make_record(1))
    assert (writer.written, writer.lost) == (1, 1)
    [fault] = FAULTS.snapshot()
    assert fault.kind == "thread trace: RuntimeError"
