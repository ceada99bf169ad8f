"""Writer of job traces, on a thread of its own: a folder that a crash leaves readable.

While it is written a part is an Arrow IPC stream, complete up to its last batch whenever the
process dies (a Parquet file would have no footer). When a part is closed it is converted to
Parquet.
"""

from __future__ import annotations

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

from jetson_dnn_rt.safety.faults import start_thread
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
BATCH_SECONDS = 1.0
"""A batch is written when so many jobs wait, or after so long: what a ``kill -9`` can lose."""

SYNC_SECONDS = 5.0
"""Between two calls of fdatasync: what a power cut can lose."""

QUEUE_LIMIT = 16384
"""Jobs that wait for a slow disk: nine minutes of one task, 16 MB."""

CLOSE_S, QUICK_CLOSE_S = 30.0, 0.3
"""Longest wait of `close` for the disk, with and without the conversion; the second fits into what
a node has from a signal to its end."""

STALL_S = 60.0
"""Longest wait of a call of `write` that may wait for the disk."""

ROW_GROUP = 65536
"""Jobs of a Parquet row group: what is in memory at once while a stream is turned into one."""

PART_STEM = "jobs-"
PARTIAL = ".partial"
PART_SUFFIXES = (".arrows", ".parquet", PARTIAL)

_Item = tuple[JobRecord, "int | None", "bool | None"]


def describe_no_clocks(time_ns: int) -> str:
    """The clocks are unknown."""
    return ""


class TraceWriter:
    """A folder of trace parts, ``jobs-0000.arrows`` while written, ``jobs-0000.parquet`` after.

    `write` costs the caller less than a microsecond: columns are made on the writer's thread. Jobs
    that do not fit into the queue of a slow disk, or could not be written, are counted in `lost`.
    A full disk ends nothing: when there is room again, the trace goes on. At the limit of `room`,
    which is for all traces of the process run, the oldest parts make room for new ones.

    Parts that are in the folder already are kept, unless `replace` says otherwise, and the numbers
    go on. `clocks` gives the clock configuration at a steady time in ns (`ClockLog.at`).
    `part_bytes`, by default that of `room`, is the size at which a part is closed.

    `removed` counts those lost jobs whose parts made room; `error` is the last failure.
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
        self.removed = 0
        self.error: Exception | None = None
        self._schema = make_schema(metadata)
        self._clocks = clocks
        self._room = room or TraceRoom()
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
        earlier = list(find_part_files(folder))
        for file in earlier:
            # Half-made Parquet is of no use: its stream is there.
            if replace or file.suffix == PARTIAL:
                file.unlink()
        earlier = [] if replace else earlier
        self._number = 1 + max((_number_of(file) for file in earlier), default=-1)
        self._synced_s = self._alive_s = time.monotonic()
        self._part: StreamPart | None = None
        self._part_jobs = 0
        self._begin_part()
        # Begun anew after a fault, with what waits: it ends in any case once it is closing.
        self._thread = start_thread(self._run, "trace", wanted=lambda: True)

    def write(
        self,
        record: JobRecord,
        stamp_ns: int | None = None,
        warm_up: bool | None = None,
        *,
        wait: bool = False,
    ) -> None:
        """Take a job that ended; returns at once. Called by one thread at a time.

        `stamp_ns` is that of the frame, in the source's clock. By default the first `WARM_UP_JOBS`
        started jobs of a task in a variant are marked as warm-up. With `wait` a full queue is
        waited for, `STALL_S` at most: for callers without deadlines that must lose nothing.
        """
        pending = self._pending
        self._taken += 1
        if self._closing or (len(pending) >= QUEUE_LIMIT and not (wait and self._wait())):
            self._refused += 1
            return
        pending.append((record, stamp_ns, warm_up))
        # Not woken for each: that would take the interpreter from the workers at every job.
        if len(pending) >= BATCH_JOBS and not self._wake.is_set():
            self._wake.set()

    def close(self, *, convert: bool = True) -> None:
        """Write what is left and end the last part; a second call does nothing.

        A disk that does not answer is waited for `CLOSE_S`, or `QUICK_CLOSE_S` without `convert`
        (for a process that has to be gone at once; the streams stay and can be read). What it has
        not taken by then is lost, and the thread is left behind.
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
        """Jobs that are in the trace."""
        return self._stored - self.removed

    @property
    def lost(self) -> int:
        """Jobs that are not in the trace; with `written` and those that wait, all there were."""
        if self._closed:
            return self._taken - self.written
        return self._refused + self._failed + self.removed

    @property
    def silent_s(self) -> float:
        """Seconds since the thread last came back from the disk; it does so every second."""
        return time.monotonic() - self._alive_s

    @property
    def cpu_ns(self) -> int:
        """Processor time of the writer's thread up to now; before `close` only."""
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
                self._stalled = True  # until the thread takes something again
                return False
            self._space.clear()
            self._wake.set()
            if len(self._pending) >= QUEUE_LIMIT:
                self._space.wait(BATCH_SECONDS)
        return not self._closing

    # -- the writer's thread -------------------------------------------------------------------

    def _run(self) -> None:
        closing = False
        while not closing:
            self._wake.wait(BATCH_SECONDS)
            self._wake.clear()
            self._alive_s = time.monotonic()
            closing = self._closing
            while self._pending:
                count = min(BATCH_JOBS, len(self._pending))
                self._append([self._pending.popleft() for _ in range(count)])
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
            if self._part is None:
                self._begin_part()
            assert self._part is not None
            self._part.append(batch)
        except BaseException as error:
            # Whatever it is, the next batch is tried again: the disk may have room by then.
            self._failed += len(items)
            if not isinstance(error, Exception):
                raise
            self._note(error)
            return
        self._stored += len(items)
        self._part_jobs += len(items)
        if self._part.size >= self._part_bytes:
            self._end_part()

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
        self._part = StreamPart(path, self._describe())
        self._number += 1

    def _describe(self) -> pa.Schema:
        """The schema of a part, whose metadata say what is missing up to now."""
        return make_schema(changed(self.metadata, lost=self.lost, removed=self.removed))

    def _forget(self, jobs: int) -> None:
        self.removed += jobs

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
            # Nothing is lost: the stream stays, and is read in its place.
            self._note(error)
        try:
            self._room.add(path, partial(self._forget, jobs))
        except OSError as error:
            self._note(error)

    def _note(self, error: Exception) -> None:
        if str(error) != str(self.error):
            logger.error("trace %s: %s", self.folder, error)
        self.error = error


def load_libraries() -> None:
    """Load what pyarrow loads on first use, pandas too: half a second that no job should pay.

    A new writer does it; call it earlier to have it exempted from garbage collection.
    """
    require_pyarrow()
    import pyarrow.parquet  # noqa: F401

    schema = make_schema(TraceMetadata())
    make_record_batch([], schema, cameras=[], stamps_ns=[], warm_ups=[], clocks=[])


def find_part_files(folder: Path) -> Iterator[Path]:
    """Files of a trace in a folder, half-made ones too; nothing else."""
    for file in sorted(folder.glob(f"{PART_STEM}*")):
        if file.suffix in PART_SUFFIXES and file.stem[len(PART_STEM) :].isdecimal():
            yield file


def _number_of(file: Path) -> int:
    return int(file.stem[len(PART_STEM) :])


class StreamPart:
    """A new Arrow IPC stream on disk that is whole after every `append`.

    A batch that fails half-way (the disk is full) is cut off again, so that those before and after
    it can be read.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self.size = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            self._write(schema.serialize())
        except OSError:
            os.close(self._file)
            path.unlink(missing_ok=True)
            raise

    def append(self, batch: pa.Buffer) -> None:
        """Write a serialized batch; OSError when it does not fit: nothing of it is there then."""
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
        except OSError:
            os.ftruncate(self._file, self.size)
            os.lseek(self._file, self.size, os.SEEK_SET)
            raise
        self.size += data.size


def turn_into_parquet(path: Path, schema: pa.Schema) -> Path:
    """Convert a closed stream to Parquet with this schema's metadata, then remove the stream.

    Whenever it breaks off, one of the two is whole. OSError when it cannot be written.
    """
    pa = require_pyarrow()
    from pyarrow import parquet

    target, partial = path.with_suffix(".parquet"), path.with_suffix(".partial")
    try:
        with pa.OSFile(os.fspath(path)) as source:
            stream = pa.ipc.open_stream(source)
            with parquet.ParquetWriter(os.fspath(partial), schema) as writer:
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
