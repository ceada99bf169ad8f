# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Job traces of two tasks on one worker, made up: for what reads recordings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from traced_jobs import METADATA, write_parquet_trace

from jetson_dnn_rt.lab.report.recording import Recording, read_recording
from jetson_dnn_rt.tasks import Admission, JobRecord, Outcome, StageRecord
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.schema import TracedTask, TraceMetadata

PERIOD_NS = 33_333_333
DEADLINES_NS = {"detector": 33_000_000, "segmenter": 45_000_000}
STAGES = {"preprocess": 0.1, "inference-1": 0.4, "inference-2": 0.35, "decode": 0.15}
MEANS_NS = {"detector": 9_000_000, "segmenter": 14_000_000}


def make_metadata(interference: str = "none") -> TraceMetadata:
    """As `run` writes it; with what ran beside the tasks, as `profile` does."""
    tasks = {
        name: TracedTask(
            "camera", "null:1", "cd" * 32, ("full@null",), tuple(STAGES), deadline_ns, PERIOD_NS
        )
        for name, deadline_ns in DEADLINES_NS.items()
    }
    return replace(METADATA, tasks=tasks, parameters={"interference": interference, "workers": 1})


def make_jobs(
    count: int,
    *,
    seed: int = 0,
    slowdown: float = 1.0,
    spread: float = 0.12,
    bad_from: int = 0,
    bad_count: int = 0,
    second_variant_from: int | None = None,
) -> list[JobRecord]:
    """Jobs of both tasks by time of release, the detector's first.

    In the spell of `bad_count` frames from `bad_from` on everything takes thrice as long: frames
    are late, then skipped.
    """
    generator = np.random.default_rng(seed)
    jobs: list[JobRecord] = []
    free_ns = 0
    for sequence in range(count):
        release_ns = sequence * PERIOD_NS
        bad = bad_from <= sequence < bad_from + bad_count
        for task, deadline_ns in DEADLINES_NS.items():
            second = second_variant_from is not None and sequence >= second_variant_from
            variant = "tucker-0.50@null" if second else "full@null"
            mean_ns = MEANS_NS[task] * slowdown * (3.0 if bad else 1.0) * (0.6 if second else 1.0)
            total_ns = mean_ns * float(generator.lognormal(0.0, spread))
            skipped = max(free_ns, release_ns) - release_ns > deadline_ns - mean_ns
            start_ns = max(release_ns + 200_000, free_ns)
            at_ns, stages = start_ns, []
            for name, share in {} if skipped else STAGES.items():
                end_ns = at_ns + int(total_ns * share)
                stages.append(StageRecord(name, variant, at_ns, end_ns))
                at_ns = end_ns
            free_ns = max(free_ns, at_ns) if stages else free_ns
            end_ns = at_ns + 100_000 if stages else release_ns
            late = end_ns > release_ns + deadline_ns
            jobs.append(
                JobRecord(
                    task=task,
                    sequence=sequence,
                    variant=variant,
                    outcome=Outcome.SKIPPED if skipped else Outcome.LATE if late else Outcome.MET,
                    reason="budget" if skipped else "",
                    capture_ns=release_ns - 2_000_000,
                    release_ns=release_ns,
                    start_ns=start_ns if stages else None,
                    completion_ns=end_ns,
                    absolute_deadline_ns=release_ns + deadline_ns,
                    waiting_ns=max(0, start_ns - release_ns - 200_000) if stages else 0,
                    lag_ns=0,
                    admission=Admission.BUDGET if stages else Admission.NONE,
                    stages=tuple(stages),
                )
            )
    return jobs


def write_trace_of(folder: Path, jobs: list[JobRecord], interference: str = "none") -> Path:
    """`folder`, with a trace of these jobs in it."""
    write_parquet_trace(folder / "trace", jobs, make_metadata(interference))
    return folder


def read_made(folder: Path, jobs: list[JobRecord] | None = None, **changes: Any) -> Recording:
    """A recording of jobs, by default of made-up ones."""
    jobs = make_jobs(**changes) if jobs is None else jobs
    return read_recording("x", [open_trace(write_trace_of(folder, jobs))])
