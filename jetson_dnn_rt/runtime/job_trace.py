# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Traces of every job of a process, below ``trace_dir``."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.tasks import JobRecord, Work
from jetson_dnn_rt.traces.room import TraceRoom
from jetson_dnn_rt.traces.schema import TraceMetadata
from jetson_dnn_rt.traces.writer import QUEUE_LIMIT, TraceWriter, load_libraries

logger = logging.getLogger(__name__)

# A disk that takes this long is reported as hanging; the longest step, converting a part to
# Parquet, takes some seconds.
SILENT_S = 30.0


class JobTrace:
    """Writes a trace in `folder` each time that the tasks become active: ``<name>-<date>-<time>``.

    `clocks` gives the clock configuration at a steady time in ns, in words; `room` limits the
    disk space of all traces of the process. Raises `ConfigurationError` when pyarrow is missing.

    A task that comes or changes while others run begins a new trace. To close the old one takes
    seconds, as it is converted: jobs that end meanwhile wait for the new one.
    """

    def __init__(
        self, folder: Path, name: str, clocks: Callable[[int], str], room: TraceRoom | None = None
    ) -> None:
        # Now: later imports are not exempt from garbage collection.
        load_libraries()
        self._folder, self._name, self._clocks = folder, name, clocks
        self._writer: TraceWriter | None = None
        self._room = room or TraceRoom()
        self._missed = 0
        self._lock = threading.Lock()
        # Between two traces; None where jobs do not wait for one.
        self._waiting: list[tuple[JobRecord, int]] | None = None

    def begin(self, metadata: TraceMetadata) -> None:
        """Begin a trace; one of the same tasks that is being written continues.

        ConfigurationError when the folder cannot be written.
        """
        writer = self._writer
        if writer is not None:
            if writer.metadata.tasks == metadata.tasks:
                return
            with self._lock:
                self._writer, self._waiting = None, []
        # One writer at a time: both would use the same room.
        try:
            if writer is not None:
                self._close(writer, convert=True)
            folder = self._choose()
            try:
                new = TraceWriter(folder, metadata, clocks=self._clocks, room=self._room)
            except OSError as error:
                raise ConfigurationError(f"trace_dir {folder}: {error.strerror}") from error
            self._continue(new)
        finally:
            self._continue(None)
        logger.info("tracing into %s", folder)

    def _continue(self, writer: TraceWriter | None) -> None:
        """Write what waits, and what comes; without a writer that is lost."""
        with self._lock:
            waiting, self._waiting = self._waiting or (), None
            if writer is None:
                self._missed += len(waiting)
                return
            for job in waiting:
                writer.write(*job)
            self._writer = writer

    def observe(self, record: JobRecord, work: Work) -> None:
        """Record a job that ended, on the delivery thread; takes about a microsecond."""
        with self._lock:
            if self._writer is not None:
                self._writer.write(record, work.frame.stamp_ns)
            elif self._waiting is not None and len(self._waiting) < QUEUE_LIMIT:
                self._waiting.append((record, work.frame.stamp_ns))
            else:
                self._missed += 1

    def close(self, *, quickly: bool = False) -> None:
        """End the trace; `quickly` leaves it as a stream, for a process that must end at once."""
        writer, self._writer = self._writer, None
        if writer is not None:
            self._close(writer, convert=not quickly)

    def describe(self) -> tuple[str, dict[str, object]]:
        """Fault (empty = none) and values for diagnostics."""
        writer = self._writer
        if writer is None:
            return "", {"trace": "not begun"}
        # Jobs removed at the limit are as configured: nothing is wrong.
        lost = writer.lost - writer.removed + self._missed
        values = {
            "trace": str(writer.folder),
            "trace_jobs": writer.written,
            "trace_lost": lost,
            "trace_removed": writer.removed,
            "trace_limit_mb": self._room.limit_mb,
        }
        if writer.silent_s > SILENT_S:
            return f"trace: the disk has not answered for {writer.silent_s:.0f} s", values
        if writer.error is not None:
            return f"trace: {writer.error}", values
        return (f"trace: {lost} jobs are not in it" if lost else ""), values

    def _close(self, writer: TraceWriter, *, convert: bool) -> None:
        writer.close(convert=convert)
        lost = f", {writer.lost} lost, {writer.removed} of them removed" if writer.lost else ""
        logger.info("trace %s: %d jobs%s", writer.folder, writer.written, lost)

    def _choose(self) -> Path:
        """A folder that does not exist yet, also when two traces begin within a second."""
        stem = f"{self._name}-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
        candidate, number = self._folder / stem, 1
        while candidate.exists():
            number += 1
            candidate = self._folder / f"{stem}-{number}"
        return candidate
