# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Output of `profile`: a file of tables, or a folder with everything.

A folder also has a journal, from which the same command continues after a crash. Traces are
written at the end, from the journal, since nothing else may run while frames are timed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.errors import ConfigurationError, ModelError, naming
from jetson_dnn_rt.lab.profile.profiling import ProfiledTask
from jetson_dnn_rt.tasks import JobRecord, StageRecord
from jetson_dnn_rt.traces.clock_log import ClockLog
from jetson_dnn_rt.traces.room import TraceRoom
from jetson_dnn_rt.variants.measuring.timing import TimedRun

if TYPE_CHECKING:
    from jetson_dnn_rt.traces.schema import TraceMetadata

TABLES, REPORT, JOURNAL, TRACE = "tables.json", "profile.json", "progress.jsonl", "trace"
OPERATORS, LAYERS, COLD = "operators", "layers", "cold"
_CLOCK_CHANGES = 1 << 20  # more than the configurations, conditions and cold starts of any profile


@dataclass(frozen=True)
class TracedRun:
    """Timed frame with all the data for its trace."""

    task: ProfiledTask
    variant: str
    stages: Sequence[str]  # one for each two stamps of the run
    clocks: str  # in words
    run: TimedRun

    def record(self, number: int) -> JobRecord:
        """Job record of the frame: released when it began; deadlines are relative to that."""
        stamps_ns, variant = self.run.stamps_ns, self.variant
        stages = zip(self.stages, pairwise(stamps_ns), strict=False)
        return JobRecord.alone(
            self.task.name,
            number,
            variant,
            (stamps_ns[0], stamps_ns[-1], self.task.deadline_ns),
            (StageRecord(name, variant, *times) for name, times in stages),
        )


def open_output(path: Path | None) -> tuple[Path | None, Path | None]:
    """Open the file of tables and the folder that ``--output`` names.

    ``NAME.json`` is a file of tables; anything else is a folder, which is created; None stores
    nothing.
    """
    if path is None:
        return None, None
    if path.suffix == ".json" and not path.is_dir():
        if not path.absolute().parent.is_dir():
            raise ConfigurationError(f"--output {path}: there is no folder for it")
        return path, None
    from jetson_dnn_rt.traces.schema import require_pyarrow

    require_pyarrow()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"--output {path}: {error.strerror}") from error
    return path / TABLES, path


def write_report(folder: Path, report: Mapping[str, Any]) -> None:
    """Write the report in one step; ConfigurationError when it cannot be written."""
    partial = folder / f"{REPORT}.partial"
    with naming(folder / REPORT):
        partial.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        os.replace(partial, folder / REPORT)


def write_trace(
    folder: Path, runs: Iterable[TracedRun], metadata: TraceMetadata, room: TraceRoom
) -> None:
    """Write a trace of runs, in the order of their starts, replacing an earlier one."""
    from jetson_dnn_rt.traces.writer import TraceWriter

    log = ClockLog(entries=_CLOCK_CHANGES)
    with naming(folder):
        writer = TraceWriter(folder, metadata, clocks=log.at, room=room, replace=True)
    with writer:
        for number, traced in enumerate(runs):
            run = traced.run
            log.append(run.stamps_ns[0], traced.clocks)
            writer.write(traced.record(number), run.stamp_ns, run.cold, wait=True)
    if writer.lost or writer.error is not None:
        raise ModelError(f"trace {folder}: {writer.lost} jobs are lost ({writer.error})")
