# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Traces and the disk: a limit, a floor of free space, a disk that is full or hangs."""

from __future__ import annotations

import errno
import gc
import logging
import os
import resource
import signal
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path

import pytest
from small_disk import free_bytes, mount_small_disk
from traced_jobs import METADATA, make_record, sequences

from jetson_dnn_rt.lab.evaluate.campaign import TraceParts
from jetson_dnn_rt.traces import room as trace_room
from jetson_dnn_rt.traces import writer as trace_writer
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.room import FREE_SHARE, TraceRoom
from jetson_dnn_rt.traces.schema import TracedJob, make_batch, make_schema
from jetson_dnn_rt.traces.writer import BATCH_JOBS, TraceWriter

pa = pytest.importorskip("pyarrow")


def used_bytes(folder):
    size = 0
    for file in folder.rglob("jobs-*"):
        with suppress(FileNotFoundError):  # it has become Parquet meanwhile
            size += file.stat().st_size
    return size


def write_all(writer, first, count):
    """Write jobs; wait until they are in the trace or lost, and parts that ended are Parquet."""
    before = writer._stored + writer._failed
    for sequence in range(first, first + count):
        writer.write(make_record(sequence), wait=True)
    while writer._stored + writer._failed < before + count:
        writer._wake.set()
        writer._thread.join(0.005)
    # A part is turned into Parquet after its last batch, before the thread takes the next ones.
    seen_s = time.monotonic()
    while writer._alive_s < seen_s:
        writer._wake.set()
        writer._thread.join(0.001)


def test_at_the_limit_the_oldest_parts_make_room(tmp_path, caplog):
    """EDGES 20: a trace without end takes no more of the disk than its limit."""
    room = TraceRoom(1)
    jobs, most = 60 * BATCH_JOBS, 0
    with TraceWriter(tmp_path, METADATA, room=room) as writer:
        for first in range(0, jobs, BATCH_JOBS):
            write_all(writer, first, BATCH_JOBS)
            most = max(most, used_bytes(tmp_path))
    assert 500_000 < most <= 1_000_000
    assert writer.written + writer.lost == jobs
    assert writer.lost == writer.removed > 0
    assert writer.error is None
    # The newest are there, without a gap.
    assert sequences(tmp_path) == list(range(writer.removed, jobs))
    assert caplog.text.count("the oldest parts make room") == 1
    # Whoever reads it is told.
    caplog.clear()
    metadata = open_trace(tmp_path).metadata
    assert (metadata.lost, metadata.removed) == (writer.lost, writer.removed)
    assert f"{writer.lost} jobs are not in the trace" in caplog.text


def test_the_limit_is_of_all_traces_of_a_run(tmp_path):
    """EDGES 20: a node that is configured again and again has one limit."""
    room = TraceRoom(1)
    writers = []
    for number in range(8):
        folder = tmp_path / f"{number:02d}"
        with TraceWriter(folder, METADATA, room=room) as writer:
            write_all(writer, 0, 10 * BATCH_JOBS)
        writers.append(writer)
        assert used_bytes(tmp_path) <= 1_000_000
    assert not (tmp_path / "00").exists()
    assert (tmp_path / "07").exists()
    assert all(one.written + one.lost == 10 * BATCH_JOBS for one in writers)
    assert (writers[0].written, writers[-1].lost) == (0, 0)
    kept = {f"{n:02d}": one.written for n, one in enumerate(writers) if one.written}
    assert {f.name: len(sequences(f)) for f in sorted(tmp_path.iterdir())} == kept


def test_a_writer_is_not_kept_by_its_parts(tmp_path):
    """A process that is activated again and again has parts of many writers on its disk."""
    room = TraceRoom(1)
    with TraceWriter(tmp_path / "first", METADATA, room=room) as writer:
        write_all(writer, 0, 10 * BATCH_JOBS)
    gone = weakref.ref(writer)
    del writer
    gc.collect()
    assert gone() is None
    # The next one removes them as those of a living writer.
    with TraceWriter(tmp_path / "second", METADATA, room=room) as writer:
        write_all(writer, 0, 60 * BATCH_JOBS)
    assert not (tmp_path / "first").exists()
    assert writer.error is None


def test_who_needs_the_whole_trace_keeps_its_beginning(tmp_path):
    """EDGES 20: profile, evaluate and simulate stop at the limit, and say so."""
    room = TraceRoom(1, ring=False)
    with TraceWriter(tmp_path, METADATA, room=room) as writer:
        write_all(writer, 0, 60 * BATCH_JOBS)
    assert writer.written + writer.lost == 60 * BATCH_JOBS
    assert writer.removed == 0
    assert sequences(tmp_path) == list(range(writer.written))
    assert used_bytes(tmp_path) <= 1_000_000
    assert "trace_limit_mb (1 MB)" in str(writer.error)


def test_an_evaluation_ends_at_the_limit(tmp_path):
    """EDGES 20: what is written without a queue says so at once."""
    schema = make_schema(METADATA)
    batch = make_batch([TracedJob(make_record(i)) for i in range(BATCH_JOBS)], schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(batch)

    def write_for_ever():
        with TraceParts(tmp_path, METADATA, room=TraceRoom(1, ring=False)) as parts:
            while True:
                parts.write(sink.getvalue())

    with pytest.raises(OSError, match="trace_limit_mb"):
        write_for_ever()
    assert 500_000 < used_bytes(tmp_path) <= 1_000_000
    assert len(sequences(tmp_path)) >= 10 * BATCH_JOBS


def test_a_nearly_full_disk_keeps_its_floor(tmp_path):
    """EDGES 20: the traces leave something of the disk free, whatever the limit."""
    size = 4 * 2**20
    with mount_small_disk(tmp_path / "disk", size) as disk:
        folder, filler = disk / "trace", disk / "filler"
        filler.write_bytes(bytes(free_bytes(disk) - 600_000))
        with TraceWriter(folder, METADATA, room=TraceRoom(0), part_bytes=10**9) as writer:
            for first in range(0, 30 * BATCH_JOBS, BATCH_JOBS):
                write_all(writer, first, BATCH_JOBS)
                assert free_bytes(disk) >= FREE_SHARE * size - 8192  # whole pages
            assert 0 < writer.written < 30 * BATCH_JOBS
            assert writer.written + writer.lost == 30 * BATCH_JOBS
            assert "would be free on the disk" in str(writer.error)
            lost = writer.lost
            # It goes on when there is room again.
            filler.unlink()
            write_all(writer, 10**6, BATCH_JOBS)
            assert writer.lost == lost
        assert sequences(folder)[-1] == 10**6 + BATCH_JOBS - 1
        assert len(sequences(folder)) == writer.written


def test_on_a_nearly_full_disk_older_parts_make_room_but_the_rest_stays(tmp_path):
    """EDGES 20: whoever else fills the disk does not get the trace's share."""
    with mount_small_disk(tmp_path / "disk", 8 * 2**20) as disk:
        folder, filler = disk / "trace", disk / "filler"
        with TraceWriter(folder, METADATA, room=TraceRoom(0), part_bytes=200_000) as writer:
            write_all(writer, 0, 60 * BATCH_JOBS)
            before = used_bytes(folder)
            assert writer.removed == 0
            filler.write_bytes(bytes(free_bytes(disk)))
            for first in range(60 * BATCH_JOBS, 120 * BATCH_JOBS, BATCH_JOBS):
                write_all(writer, first, BATCH_JOBS)
                # A part is large as a stream, and small as Parquet; it ends with the batch that
                # makes it too large, so that two have up to 2 * (200,000 and a batch).
                assert before - 450_000 < used_bytes(folder) <= before + 200_000
        assert writer.written + writer.lost == 120 * BATCH_JOBS
        assert writer.removed > 0
        found = sequences(folder)
        assert found[-1] == 120 * BATCH_JOBS - 1
        assert len(found) == writer.written


def test_a_write_without_space_removes_the_oldest_part(tmp_path, monkeypatch):
    """A quota: the disk reports space that this process does not get."""
    monkeypatch.setattr(trace_room, "describe_full_disk", lambda folder, more_bytes: "")
    with mount_small_disk(tmp_path / "disk", 8 * 2**20) as disk:
        folder, filler = disk / "trace", disk / "filler"
        with TraceWriter(folder, METADATA, room=TraceRoom(0), part_bytes=200_000) as writer:
            write_all(writer, 0, 60 * BATCH_JOBS)
            filler.write_bytes(bytes(free_bytes(disk)))
            write_all(writer, 60 * BATCH_JOBS, 60 * BATCH_JOBS)
        assert writer.removed > 0
        assert sequences(folder)[-1] == 120 * BATCH_JOBS - 1


@pytest.fixture
def limit_files():
    """Limits the size of this process' files: EFBIG, without any right; None = as it was."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft if size is None else size, hard))

    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield limit
    limit(None)
    signal.signal(signal.SIGXFSZ, before)


def test_a_file_that_may_not_grow(tmp_path, limit_files):
    """EDGES 20: what the system refuses is lost and counted, what it took can be read."""
    limit_files(200_000)
    with TraceWriter(tmp_path, METADATA) as writer:
        write_all(writer, 0, 20 * BATCH_JOBS)
        assert writer.error.errno == errno.EFBIG
        assert 0 < writer.written < 20 * BATCH_JOBS
        found = sequences(tmp_path)  # with gaps, where a small batch fitted behind a large one
        assert len(found) == writer.written
        assert found == sorted(set(found))
        # It goes on when there is room again.
        limit_files(None)
        write_all(writer, 10**6, BATCH_JOBS)
    assert sequences(tmp_path) == [*found, *range(10**6, 10**6 + BATCH_JOBS)]
    assert writer.written + writer.lost == 21 * BATCH_JOBS


class HungDisk:
    """`os` of a disk that takes nothing while it does not answer."""

    def __init__(self):
        self.answers, self.entered = threading.Event(), threading.Event()
        self.answers.set()

    def __getattr__(self, name):
        return getattr(os, name)

    def write(self, file, data):
        if not self.answers.is_set():
            self.entered.set()
            self.answers.wait()
        return os.write(file, data)


@pytest.fixture
def hung_disk(monkeypatch):
    disk = HungDisk()
    monkeypatch.setattr(trace_writer, "os", disk)
    monkeypatch.setattr(trace_writer, "CLOSE_S", 0.2)
    monkeypatch.setattr(trace_writer, "QUEUE_LIMIT", 1000)
    yield disk
    disk.answers.set()


@pytest.mark.parametrize("convert", [True, False])
def test_a_hung_disk_holds_nobody_up(tmp_path, hung_disk, convert, caplog):
    """EDGES 20: the end of a trace waits for a disk only so long, and memory stays bounded."""
    writer = TraceWriter(tmp_path, METADATA)
    write_all(writer, 0, BATCH_JOBS)
    hung_disk.answers.clear()
    for sequence in range(10_000):
        writer.write(make_record(sequence))
    assert hung_disk.entered.wait(60.0)
    assert len(writer._pending) <= 1000
    writer.close(convert=convert)
    assert writer._thread.is_alive()
    assert (writer.written, writer.lost) == (BATCH_JOBS, 10_000)
    assert "has not answered" in str(writer.error)
    assert "has not answered" in caplog.text
    assert sequences(tmp_path) == list(range(BATCH_JOBS))
    # It answers after all: what is then written is not lost.
    hung_disk.answers.set()
    writer._thread.join(60.0)
    assert not writer._thread.is_alive()
    assert writer.written > BATCH_JOBS
    assert writer.written + writer.lost == BATCH_JOBS + 10_000
    assert len(sequences(tmp_path)) == writer.written


def test_who_can_wait_gives_a_hung_disk_up(tmp_path, hung_disk, monkeypatch):
    """EDGES 20: an evaluation that loses nothing ends all the same."""
    monkeypatch.setattr(trace_writer, "STALL_S", 0.1)
    writer = TraceWriter(tmp_path, METADATA)
    hung_disk.answers.clear()
    for sequence in range(5000):
        writer.write(make_record(sequence), wait=True)
    assert writer.lost >= 5000 - 1000 - BATCH_JOBS
    hung_disk.answers.set()
    writer._thread.join(0.0)
    writer.close()
    writer._thread.join(60.0)
    assert writer.written + writer.lost == 5000


def test_a_part_that_cannot_be_removed_is_said(tmp_path, monkeypatch, caplog):
    room = TraceRoom(1)

    def fail(*given):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(room, "_remove_oldest", fail)
    caplog.set_level(logging.ERROR)
    with TraceWriter(tmp_path, METADATA, room=room) as writer:
        write_all(writer, 0, 40 * BATCH_JOBS)
        assert writer.error.errno == errno.EROFS
    assert writer.written + writer.lost == 40 * BATCH_JOBS
    assert len(sequences(tmp_path)) == writer.written
    assert caplog.text.count("Read-only") == 1


def test_a_part_that_somebody_took_away_is_no_fault(tmp_path):
    with TraceWriter(tmp_path, METADATA, room=TraceRoom(1)) as writer:
        write_all(writer, 0, 20 * BATCH_JOBS)
        for file in tmp_path.glob("*.parquet"):
            file.unlink()
        write_all(writer, 20 * BATCH_JOBS, 30 * BATCH_JOBS)
    assert writer.error is None
    assert sequences(tmp_path)[-1] == 50 * BATCH_JOBS - 1


def test_the_floor_is_the_smaller_of_both(monkeypatch):
    def disk_of(size, free):
        class Os:
            @staticmethod
            def statvfs(place):
                return os.statvfs_result((4096, 4096, size // 4096, 0, free // 4096, *[0] * 5))

        monkeypatch.setattr(trace_room, "os", Os)
        return trace_room.describe_full_disk(Path("/"), 0)

    assert disk_of(10**12, 2**30) == ""
    assert disk_of(10**12, 2**30 - 4096) == "less than 1,073.7 MB would be free on the disk"
    assert disk_of(10**9, 51 * 10**6) == ""
    assert disk_of(10**9, 49 * 10**6) == "less than 50.0 MB would be free on the disk"
