"""A trace as two CSV files: the jobs, and beside it their stages."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from jetson_dnn_rt.wcet.export_rows import JOB_COLUMNS, STAGE_COLUMNS, iterate_rows
from jetson_dnn_rt.wcet.trace_reader import Trace


def write_csv(traces: Mapping[str, Trace], path: Path) -> list[Path]:
    """Write traces, batch by batch.

    Parameters
    ----------
    traces : mapping of str to Trace
        By their labels.
    path : Path
        Of the jobs; the stages are beside it, ``NAME-stages.csv``.

    Returns
    -------
    list of Path
        Both files.

    Raises
    ------
    OSError
        When one of them cannot be written.
    """
    stages = path.with_name(f"{path.stem}-stages{path.suffix}")
    with path.open("w", newline="") as job_file, stages.open("w", newline="") as stage_file:
        job_writer, stage_writer = csv.writer(job_file), csv.writer(stage_file)
        job_writer.writerow(JOB_COLUMNS)
        stage_writer.writerow(STAGE_COLUMNS)
        for label, trace in traces.items():
            for job_rows, stage_rows in iterate_rows(trace, label):
                job_writer.writerows(job_rows)
                stage_writer.writerows(stage_rows)
    return [path, stages]
