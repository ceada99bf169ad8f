# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Writer of job traces on its own thread, to a folder that stays readable after a crash.

While it is written a part is an Arrow IPC stream, complete up to its last batch whenever the
process dies (a Parquet file would have no footer). A closed part is converted to Parquet.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace as changed
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from jetson_dnn_rt.safety.faults import Pulse, start_thread
from jetson_dnn_rt.safety.utf8_paths import utf8_name
from jetson_dnn_rt.tasks import JobRecord
from jetson_dnn_rt.traces.room import TraceRoom
from jetson_dnn_rt.traces.schema import (
    WARM_UP_JOBS,
    TraceMetadata,
    make_record_batch,
    make_schema,
    require_pyarrow,
)

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

BATCH_JOBS = 256
BATCH_SECONDS = 0.5
"""Jobs, or seconds, after which a batch is written. A ``kill -9`` loses less than a second, as
writing takes a moment more (with 1.0 the kill storm found 1.14 s)."""

SYNC_SECONDS = 5.0
"""Seconds between two calls of fdatasync: the most that a power cut can lose."""

QUEUE_LIMIT = 16384
"""Maximum of jobs waiting for a slow disk: nine minutes of one task, 16 MB."""

CLOSE_S, QUICK_CLOSE_S = 30.0, 0.3
"""Longest wait of `close` for the disk, with and without the conversion; the second fits into the
time that a node has from a signal to its exit."""

STALL_S = 60.0
"""Longest wait of a call of `write` that may wait for the disk."""

ROW_GROUP = 65536
"""Jobs of a Parquet row group, all in memory at once while a stream is converted."""

PART_STEM = "jobs-"
PARTIAL = ".partial"
PART_SUFFIXES = (".arrows", ".parquet", PARTIAL)

_Item = tuple[JobRecord, "int | None", "bool | None"]


def describe_no_clocks(time_ns: int) -> str:
    """Return an empty string: the clocks are unknown."""
    return ""


class _Removed:
    """Counts jobs of removed parts. Not the writer itself: parts on the disk would keep that."""

    jobs = 0

    def add(self, jobs: int) -> None:
        self.jobs += jobs


class TraceWriter:
    """A folder of trace parts, ``jobs-0000.arrows`` while written, ``jobs-0000.parquet`` after.

    `write` costs the caller less than a microsecond: columns are made on the writer's thread. Jobs
    that do not fit into the queue of a slow disk, or could not be written, are counted in `lost`.
    A full disk is not fatal: when there is room again, the trace continues. At the limit of
    `room`, which is for all traces of the process run, the oldest parts make room for new ones.

    Existing parts in the folder are kept, unless `replace` is set, and numbering continues.
    `clocks` returns the clock configuration at a steady time in ns (`ClockLog.at`). `part_bytes`,
    by default that of `room`, is the size at which a part is closed.

    `error` is the last failure.
    ConfigurationError when pyarrow is missing, OSError when the folder cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        metadata: TraceMetadata,
        *,
        clocks: Callable[[int], str] = describe_no_clocks,
        room: TraceRoom | None = None,
        part_bytes: int | None = None,
        replace: bool = False,
    ) -> None:
        load_libraries()
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.metadata = metadata
        self.error: Exception | None = None
        self._schema = make_schema(metadata)
        self._clocks = clocks
        self._room = room or TraceRoom()
        self._removed = _Removed()
        self._part_bytes = part_bytes or self._room.part_bytes
        self._cameras = {name: task.camera for name, task in metadata.tasks.items()}
        self._started: dict[tuple[str, str], int] = {}
        self._pending: deque[_Item] = deque()
        self._wake = threading.Event()
        self._space = threading.Event()
        self._closing = self._closed = self._stalled = False
        self._convert = True
        # Counted by the caller's thread, and by the writer's.
        self._taken = self._refused = 0
        self._stored = self._failed = 0
        self._at_work = 0  # jobs of the batch that is being written
        earlier = list(find_part_files(folder))
        for file in earlier:
            # An unfinished Parquet file is useless: its stream still exists.
            if replace or file.suffix == PARTIAL:
                file.unlink()
        earlier = [] if replace else earlier
        self._number = 1 + max((_number_of(file) for file in earlier), default=-1)
        self._synced_s = self._alive_s = time.monotonic()
        self._part: StreamPart | None = None
        self._part_jobs = 0
        self._begin_part()
        # Restarted after a fault, with the waiting jobs: it ends in any case once closing.
        self._pulse = Pulse()
        self._thread = start_thread(self._run, "trace", wanted=lambda: True, pulse=self._pulse)

    def write(
        self,
        record: JobRecord,
        stamp_ns: int | None = None,
        warm_up: bool | None = None,
        *,
        wait: bool = False,
    ) -> None:
        """Queue a job that ended; returns at once. Called by one thread at a time.

        `stamp_ns` is the frame's time stamp, in the source's clock. By default the first
        `WARM_UP_JOBS` started jobs of a task in a variant are marked as warm-up. With `wait` it
        waits for a full queue, `STALL_S` at most: for callers without deadlines that must not lose
        jobs.
        """
        pending = self._pending
        self._taken += 1
        try:
            if self._closing or (len(pending) >= QUEUE_LIMIT and not (wait and self._wait())):
                self._refused += 1
                return
            pending.append((record, stamp_ns, warm_up))
        except BaseException:
            self._refused += 1  # no memory
            raise
        # Not woken for each job: that would take the interpreter from the workers every time.
        if len(pending) >= BATCH_JOBS and not self._wake.is_set():
            self._wake.set()

    def close(self, *, convert: bool = True) -> None:
        """Write the remaining jobs and close the last part; a second call does nothing.

        It waits for a disk that does not respond for `CLOSE_S`, or `QUICK_CLOSE_S` without
        `convert` (for a process that must exit at once; the streams stay and can be read). Jobs
        not written by then are lost, and the thread is abandoned.
        """
        if self._closed:
            return
        self._convert &= convert
        self._closing = True
        self._wake.set()
        self._thread.join(CLOSE_S if convert else QUICK_CLOSE_S)
        self._closed = True
        if self._thread.is_alive() and self._taken > self._stored + self._failed + self._refused:
            self._note(OSError(f"the disk has not answered for {self.silent_s:.1f} s"))

    @property
    def written(self) -> int:
        """Number of jobs in the trace."""
        return self._stored - self.removed

    @property
    def removed(self) -> int:
        """Number of the lost jobs whose parts made room."""
        return self._removed.jobs

    @property
    def lost(self) -> int:
        """Number of jobs missing from the trace; with `written` and the waiting ones, all jobs."""
        if self._closed:
            return self._taken - self.written
        return self._refused + self._failed + self.removed

    @property
    def silent_s(self) -> float:
        """Seconds since the thread last returned from the disk; normally at most one."""
        return time.monotonic() - self._alive_s

    @property
    def cpu_ns(self) -> int:
        """CPU time of the writer's thread so far; only before `close`."""
        assert self._thread.ident is not None
        return time.clock_gettime_ns(time.pthread_getcpuclockid(self._thread.ident))

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _wait(self) -> bool:
        end_s = time.monotonic() + STALL_S
        while len(self._pending) >= QUEUE_LIMIT and not self._closing:
            if self._stalled or time.monotonic() >= end_s:
                self._stalled = True  # until the thread takes jobs again
                return False
            self._space.clear()
            self._wake.set()
            if len(self._pending) >= QUEUE_LIMIT:
                self._space.wait(BATCH_SECONDS)
        return not self._closing

    # -- the writer's thread -------------------------------------------------------------------

    def _run(self) -> None:
        self._give_up()  # restarted: what was at work is gone
        closing = False
        while not closing:
            # In two steps: one of a second would count as stuck.
            for _ in range(2):
                self._pulse.begin()
                if self._wake.wait(BATCH_SECONDS / 2):
                    break
            self._pulse.begin()
            self._wake.clear()
            self._alive_s = time.monotonic()
            closing = self._closing
            while self._pending:
                items: list[_Item] = []
                while self._pending and self._at_work < BATCH_JOBS:
                    items.append(self._pending.popleft())
                    self._at_work += 1
                self._append(items)
                self._pulse.begin()
                self._alive_s = time.monotonic()
                self._stalled = False
                self._space.set()
            self._sync()
        self._end_part()

    def _append(self, items: list[_Item]) -> None:
        try:
            batch = self._make_batch(items).serialize()
            size = self._part.size if self._part else 0
            self._room.make(self.folder, size, batch.size)
            self._write(batch)
        except BaseException as error:
            # After any error the next batch is tried: the disk may have room by then.
            self._give_up()
            if not isinstance(error, Exception):
                raise
            self._note(error)
            return
        self._part_jobs += self._at_work
        self._stored, self._at_work = self._stored + self._at_work, 0
        if self._part and self._part.size >= self._part_bytes:
            self._end_part()

    def _give_up(self) -> None:
        """The jobs at work are lost."""
        self._failed, self._at_work = self._failed + self._at_work, 0

    def _write(self, batch: pa.Buffer) -> None:
        while True:
            try:
                if self._part is None:
                    self._begin_part()
                assert self._part is not None
                return self._part.append(batch)
            except OSError as error:
                # Less is free than was reported: files take whole blocks, and there are quotas.
                full = error.errno in (errno.ENOSPC, errno.EDQUOT)
                if not full or not self._room.drop_oldest(self.folder, error):
                    raise

    def _make_batch(self, items: list[_Item]) -> pa.RecordBatch:
        records = [record for record, _, _ in items]
        cameras, clocks = self._cameras, self._clocks
        return make_record_batch(
            records,
            self._schema,
            cameras=[cameras.get(record.task, "") for record in records],
            stamps_ns=[stamp_ns for _, stamp_ns, _ in items],
            warm_ups=[self._is_warm_up(record, mark) for record, _, mark in items],
            clocks=[clocks(stage.start_ns) for record in records for stage in record.stages],
        )

    def _is_warm_up(self, record: JobRecord, mark: bool | None) -> bool:
        started = self._started
        key = record.task, record.variant
        count = started.get(key, 0)
        if count <= WARM_UP_JOBS and record.start_ns is not None:
            count = started[key] = count + 1
        return count <= WARM_UP_JOBS if mark is None else mark

    def _begin_part(self) -> None:
        path = self.folder / f"{PART_STEM}{self._number:04d}.arrows"
        self._number += 1  # first: a part that cannot be begun may have left its file
        self._part = StreamPart(path, self._describe())

    def _describe(self) -> pa.Schema:
        """Schema of a part, with the jobs missing so far in its metadata."""
        return make_schema(changed(self.metadata, lost=self.lost, removed=self.removed))

    def _sync(self) -> None:
        now_s = time.monotonic()
        if self._part is not None and now_s - self._synced_s >= SYNC_SECONDS:
            self._synced_s = now_s
            try:
                self._part.sync()
            except OSError as error:
                self._note(error)

    def _end_part(self) -> None:
        part, self._part = self._part, None
        jobs, self._part_jobs = self._part_jobs, 0
        if part is None:
            return
        path = part.path
        try:
            part.close()
            if self._convert:
                path = turn_into_parquet(path, self._describe())
        except Exception as error:
            # Nothing is lost: the stream stays, and is read instead.
            self._note(error)
        try:
            self._room.add(path, partial(self._removed.add, jobs))
        except OSError as error:
            self._note(error)

    def _note(self, error: Exception) -> None:
        if str(error) != str(self.error):
            logger.error("trace %s: %s", self.folder, error)
        self.error = error


def load_libraries() -> None:
    """Load what pyarrow imports on first use, pandas too: half a second that no job should pay.

    A new writer does so; call it earlier to exempt these modules from garbage collection.
    """
    require_pyarrow()
    import pyarrow.parquet  # noqa: F401

    schema = make_schema(TraceMetadata())
    make_record_batch([], schema, cameras=[], stamps_ns=[], warm_ups=[], clocks=[])


def find_part_files(folder: Path) -> Iterator[Path]:
    """Files of a trace in a folder, including unfinished ones."""
    for file in sorted(folder.glob(f"{PART_STEM}*")):
        if file.suffix in PART_SUFFIXES and file.stem[len(PART_STEM) :].isdecimal():
            yield file


def _number_of(file: Path) -> int:
    return int(file.stem[len(PART_STEM) :])


class StreamPart:
    """A new Arrow IPC stream on disk that is complete after every `append`.

    A batch that fails half-way (the disk is full) is truncated again, so that those before and
    after it can be read.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self.size = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            self._write(schema.serialize())
        except BaseException:
            os.close(self._file)
            path.unlink(missing_ok=True)
            raise

    def append(self, batch: pa.Buffer) -> None:
        """Write a serialized batch; OSError when it does not fit, and nothing of it is written."""
        self._write(batch)

    def sync(self) -> None:
        """Flush to the disk, so that a power cut loses nothing."""
        os.fdatasync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _write(self, data: pa.Buffer) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except BaseException:
            os.ftruncate(self._file, self.size)
            os.lseek(self._file, self.size, os.SEEK_SET)
            raise
        self.size += data.size


def turn_into_parquet(path: Path, schema: pa.Schema) -> Path:
    """Convert a closed stream to Parquet with this schema's metadata, then remove the stream.

    Whenever it is interrupted, one of the two is complete. OSError when it cannot be written.
    """
    pa = require_pyarrow()
    from pyarrow import parquet

    target, partial = path.with_suffix(".parquet"), path.with_suffix(".partial")
    try:
        with utf8_name(path) as name, pa.OSFile(name) as source:
            stream = pa.ipc.open_stream(source)
            with utf8_name(partial) as to, parquet.ParquetWriter(to, schema) as writer:
                waiting = []
                rows = 0
                for batch in stream:
                    waiting.append(batch)
                    rows += batch.num_rows
                    if rows >= ROW_GROUP:
                        writer.write_table(pa.Table.from_batches(waiting))
                        waiting, rows = [], 0
                if waiting:
                    writer.write_table(pa.Table.from_batches(waiting))
        partial.replace(target)
    except (OSError, pa.ArrowException):
        partial.unlink(missing_ok=True)
        raise
    path.unlink()
    return target
