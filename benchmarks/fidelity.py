# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A recorded run against its replay in the simulator.

The built-in detector and segmenter run stage by stage under the real executor, on frames at a
fixed rate and with deadlines that some frames miss; beside them a load on every core comes and
goes, so that execution times have bursts. The job trace of that run is then a scenario: in the
simulator the same frames arrive at the same times and take recorded times, resampled in blocks,
seed by seed; and once in the recorded order, which tests the engine alone. Each discipline has a
run of its own. With --trace another recording is replayed, such as that of
`jetson-dnn-rt run --output DIR`.

Bars, for every row (discipline, task or all, resampled or in order): the simulator's miss ratio is
within 2 percentage points of the recorded one, and the p99 of its responses within 10 %.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from benchmarks.harness.options import CORES, Options
from benchmarks.harness.processes import BenchmarkError, busy_cores
from benchmarks.harness.tables import Report, say, say_verdict, tabulate
from benchmarks.harness.tasks import (
    configure,
    drain,
    draw_frames,
    find_cost_ns,
    open_session,
    tick,
)
from jetson_dnn_rt.config.process import DISCIPLINES
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.evaluate.simulated import IN_ORDER_MS
from jetson_dnn_rt.lab.simulate.recording import RecordedLaboratory
from jetson_dnn_rt.lab.simulate.scenario import record_scenario
from jetson_dnn_rt.lab.simulate.session import simulate
from jetson_dnn_rt.lab.simulate.tally import Tally
from jetson_dnn_rt.tasks import JobRecord
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.summary import RunSummary, order_statistic
from jetson_dnn_rt.traces.writer import TraceWriter

MISS_BAR = 0.02
P99_BAR = 0.10
TASKS = ("detector", "segmenter")
_SCENES = 8
_WARM_UP_RUNS = 60
_PERIOD = 1.8
"""Time between frames, relative to the usual time of both tasks."""
_DEADLINE = 1.6
"""Deadline relative to the usual time of the task and of those due before it."""


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--seconds", 60.0, "of each recorded run", above=0)
    add("--seeds", 20, "replays", least=1)
    # Under FIFO the detector's deadline is hopeless here: on a quiet machine no frame of it ends.
    add("--disciplines", ["edf"], "one run each", choices=DISCIPLINES)
    add("--stages", 4, "of each network")
    add("--block-ms", 2000.0, "length of the blocks")
    add("--trace", None, "replay this recording instead, with --disciplines once that which it "
        "ran with", kind=Path, metavar="TRACE")  # fmt: skip
    add("--workers", 1, "of that recording")
    add("--keep", None, "keep the recorded traces there", kind=Path, metavar="DIR")
    add("--quick", False, "10 seconds, 5 replays: nothing is judged")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Record, replay and compare; `ConfigurationError` when the recording cannot be used."""
    seconds, seeds = (10.0, 5) if args.quick else (args.seconds, args.seeds)
    if args.trace is not None and len(args.disciplines) > 1:
        raise ConfigurationError("--trace: give --disciplines the one that it was recorded with")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for discipline in args.disciplines:
            path = args.trace
            if path is None:
                path = Path(args.keep or folder, discipline)
                record(path, seconds, args.stages, discipline)
            replay = partial(record_scenario, path, workers=args.workers, discipline=discipline)
            try:
                summary = read_summary(path)
                # One block as long as the recording: times keep their order, and the engine
                # decides again.
                worlds = {
                    "resampled": (replay(block_ms=args.block_ms), seeds),
                    "in order": (replay(block_ms=IN_ORDER_MS), 1),
                }
                for name, (scenario, count) in worlds.items():
                    laboratory = RecordedLaboratory(scenario)
                    tallies = [simulate(laboratory, "static", seed=seed) for seed in range(count)]
                    common = {"discipline": discipline, "replay": name}
                    rows += [{**common, **row} for row in compare(summary, tallies)]
            except (OSError, ValueError) as error:
                raise ConfigurationError(f"--trace {path}: {error}") from error
    return {
        "trace": str(args.trace) if args.trace else "recorded",
        "seconds": None if args.trace else seconds,
        "seeds": seeds,
        "block_ms": args.block_ms,
        "rows": rows,
        "bars": {"miss_difference": MISS_BAR, "p99_difference": P99_BAR},
        "passed": None if args.quick else all(row["passed"] for row in rows),
    }


def record(path: Path, seconds: float, stages: int, discipline: str) -> None:
    """Run both tasks for some seconds, and write the trace of all their jobs."""
    records: list[JobRecord] = []
    scenes = draw_frames(_SCENES)
    tasks = [
        configure(name, f"builtin:{name}", ["full@torch-fp32"], stages=stages,
                  warmup_runs=_WARM_UP_RUNS)
        for name in TASKS
    ]  # fmt: skip
    with open_session(tasks, scenes, discipline=discipline) as session:
        costs_ns = [find_cost_ns(task) for task in session.tasks.values()]
        period_ns = round(_PERIOD * sum(costs_ns))
        for name, before_ns in zip(TASKS, accumulate(costs_ns), strict=True):
            deadline_ns = round(_DEADLINE * before_ns)
            session.activate(name, period_ns=period_ns, deadline_ns=deadline_ns)
        session.observe(lambda job, result: records.append(job))
        session.commit()
        metadata = session.describe_run()
        count = round(seconds * 1e9) // period_ns
        with busy_now_and_then():
            for index, due_ns in tick(session.clock, period_ns, count):
                frame = Frame(scenes[index % len(scenes)].image, "bgr8", due_ns, index)
                session.submit(frame, capture_ns=due_ns)
                if index % max(1, count // 6) == 0:
                    say(f"fidelity: {discipline}: {index} of {count} frames")
            drain(session, 60.0)
    with TraceWriter(path, metadata, replace=True) as writer:
        for job in records:
            writer.write(job, warm_up=False, wait=True)


def read_summary(path: Path) -> RunSummary:
    """Read and count the jobs of a trace."""
    summary = RunSummary()
    for traced in open_trace(path).jobs():
        summary.add(traced.record)
    return summary


def busy_now_and_then() -> AbstractContextManager[object]:
    """Run a load that keeps every core busy for half a second out of four."""
    return busy_cores(CORES, 0.5, 3.5)


def compare(summary: RunSummary, tallies: Sequence[Tally]) -> list[dict[str, Any]]:
    """Compare recorded and simulated miss ratio and p99: a row for each task, and for all."""
    names = list(summary.tasks)
    return [
        {"task": name, **_compare(tasks, summary, tallies)}
        for name, tasks in (("all", names), *((name, [name]) for name in names))
    ]


def _compare(
    tasks: Sequence[str], summary: RunSummary, tallies: Sequence[Tally]
) -> dict[str, Any]:
    recorded = [summary.tasks[task] for task in tasks]
    simulated = [tally.tasks[task] for tally in tallies for task in tasks]
    frames = sum(task.released for task in recorded)
    met = sum(round((task.met_ratio or 0.0) * task.released) for task in recorded)
    miss = 1.0 - met / frames
    simulated_met = sum(task.met for task in simulated)
    simulated_miss = 1.0 - simulated_met / sum(task.released for task in simulated)
    times_ns = [
        sorted(time for task in side for time in task.response_ns)
        for side in (recorded, simulated)
    ]
    if not all(times_ns):
        raise BenchmarkError("no frame of a task ran to its end")
    p99_ns, simulated_p99_ns = (order_statistic(ordered, 0.99) for ordered in times_ns)
    miss_difference = abs(miss - simulated_miss)
    p99_difference = abs(simulated_p99_ns / p99_ns - 1.0)
    return {
        "frames": frames,
        "miss_ratio": miss,
        "simulated_miss_ratio": simulated_miss,
        "miss_difference": miss_difference,
        "p99_ms": p99_ns / 1e6,
        "simulated_p99_ms": simulated_p99_ns / 1e6,
        "p99_difference": p99_difference,
        "passed": miss_difference <= MISS_BAR and p99_difference <= P99_BAR,
    }


def report(result: Mapping[str, Any]) -> Report:
    """Make a table of recorded and simulated misses and p99."""
    return [
        f"{result['trace']}, {result['seeds']} replays in blocks of {result['block_ms']:g} ms",
        tabulate(
            result["rows"],
            "discipline, task, replay, frames, missed=miss_ratio:.2%",
            "simulated=simulated_miss_ratio:.2%, p99 ms=p99_ms:.2f",
            "simulated p99 ms=simulated_p99_ms:.2f, passed",
        ),
        f"bars of every row: {100 * MISS_BAR:.0f} percentage points, {100 * P99_BAR:.0f} % of "
        f"p99: {say_verdict(result['passed'])}",
    ]
