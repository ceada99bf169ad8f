"""The output of `profile`: a file of tables, or a folder with everything.

A folder also keeps a journal, from which the same command continues after a crash. Traces are
written at the end, from the journal: while frames are timed nothing else runs.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.config.process import TRACE_LIMIT_MB
from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.lab.profile.journal import FileJournal, Journal, read_settings
from jetson_dnn_rt.tasks import Admission, JobRecord, Outcome, StageRecord
from jetson_dnn_rt.traces.clock_log import ClockLog
from jetson_dnn_rt.traces.room import TraceRoom
from jetson_dnn_rt.variants.measuring.timing import TimedRun

if TYPE_CHECKING:
    from jetson_dnn_rt.traces.schema import TraceMetadata

TABLES, REPORT, JOURNAL, TRACE = "tables.json", "profile.json", "progress.jsonl", "trace"
OPERATORS, LAYERS, COLD = "operators", "layers", "cold"
_CLOCK_CHANGES = 1 << 20  # more than a profile has configurations, conditions and cold starts

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TracedRun:
    """A timed frame with everything that its trace holds."""

    task: str
    variant: str
    stages: tuple[str, ...]  # one for each two stamps of the run
    deadline_ns: int  # relative
    clocks: str  # in words
    run: TimedRun


class ProfileTarget:
    """The argument of ``--output``.

    ``NAME.json`` is a file of tables; anything else a folder, which is created; None keeps
    nothing. The limit is that of all traces; 0 = no limit.
    """

    def __init__(self, path: Path | None, trace_limit_mb: int = TRACE_LIMIT_MB) -> None:
        self.folder: Path | None = None
        self.tables = path
        self._room = TraceRoom(trace_limit_mb, ring=False)
        if path is None:
            return
        if path.suffix == ".json" and not path.is_dir():
            if not path.absolute().parent.is_dir():
                raise ConfigurationError(f"--output {path}: there is no folder for it")
            return
        from jetson_dnn_rt.traces.schema import require_pyarrow

        require_pyarrow()
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"--output {path}: {error.strerror}") from error
        self.folder = path
        self.tables = path / TABLES

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of an earlier start; empty before the first."""
        return (self.folder and read_settings(self.folder / JOURNAL)) or {}

    def open_journal(self, settings: Mapping[str, Any]) -> Journal:
        """The journal of the folder, or one in memory; `ConfigurationError` for other settings."""
        if self.folder is None:
            return Journal()
        journal = FileJournal(self.folder / JOURNAL, settings)
        if journal.resumed:
            logger.info(
                "%s: %d pieces are measured already, continuing", self.folder, journal.resumed
            )
        return journal

    def log_how_to_continue(self, kind: object, error: object, traceback: object) -> None:
        """Log it if the profile was interrupted; for `ExitStack.push`."""
        if error is not None and self.folder is not None:
            logger.info("measurements are kept in %s: the same command continues", self.folder)

    def operator_file(self, task: str, variant: str) -> Path | None:
        """File for the Chrome trace of a variant's operators."""
        if self.folder is None:
            return None
        (self.folder / OPERATORS).mkdir(exist_ok=True)
        return self.folder / OPERATORS / f"{task}-{variant}.json"

    def write_report(self, report: Mapping[str, Any]) -> None:
        """Write the report in one step."""
        if self.folder is not None:
            partial = self.folder / f"{REPORT}.partial"
            partial.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
            os.replace(partial, self.folder / REPORT)

    def write_trace(
        self, name: str, runs: Iterable[TracedRun], metadata: TraceMetadata
    ) -> Path | None:
        """Write a trace of runs, in the order of their starts, replacing an earlier one.

        `name` is a folder in the target; empty = the target itself.
        """
        if self.folder is None:
            return None
        from jetson_dnn_rt.traces.writer import TraceWriter

        folder = self.folder / name / TRACE
        clocks = ClockLog(entries=_CLOCK_CHANGES)
        with TraceWriter(
            folder, metadata, clocks=clocks.at, room=self._room, replace=True
        ) as writer:
            for number, run in enumerate(runs):
                clocks.append(run.run.stamps_ns[0], run.clocks)
                writer.write(_make_record(run, number), run.run.stamp_ns, run.run.cold, wait=True)
        if writer.lost or writer.error is not None:
            raise ModelError(f"trace {folder}: {writer.lost} jobs are lost ({writer.error})")
        return folder


def _make_record(traced: TracedRun, number: int) -> JobRecord:
    stamps_ns, task = traced.run.stamps_ns, traced.task
    begin_ns, end_ns = stamps_ns[0], stamps_ns[-1]
    deadline_ns = begin_ns + traced.deadline_ns
    stages = zip(traced.stages, stamps_ns, stamps_ns[1:], strict=False)
    return JobRecord(
        task=task,
        sequence=number,
        variant=traced.variant,
        outcome=Outcome.MET if end_ns <= deadline_ns else Outcome.LATE,
        reason="",
        capture_ns=begin_ns,
        release_ns=begin_ns,
        start_ns=begin_ns,
        completion_ns=end_ns,
        absolute_deadline_ns=deadline_ns,
        waiting_ns=0,
        lag_ns=0,
        admission=Admission.BUDGET,
        stages=tuple(StageRecord(n, traced.variant, a, b) for n, a, b in stages),
    )
