# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Measure the overhead of the package on a frame: everything but execution and waiting.

Two tasks of the null back end (5 ms each, sleeping), a camera that reads files, 640x480 at 30 Hz;
a process subscribes to the results. Two figures for each job, both less the execution of its
stages and less the time it was ready while the worker ran the other task:

- end to end: from the frame's capture (complete in the camera) to the return of `publish`;
- response: from its release to the end of its last stage, as in the JSON of `run`.

1. composed: camera and tasks in one process, as in the launch file;
2. two processes: the camera in another one, images over DDS with the shipped profile; lost images
   are counted.

The bars apply to the end-to-end figures.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness.options import Options
from benchmarks.harness.processes import Child
from benchmarks.harness.tables import Report, say, say_verdict, tabulate
from benchmarks.harness.tasks import write_frames
from benchmarks.overload.bench import NODES, published_ns, read_stamps_ns
from jetson_dnn_rt.safety.children import python_command
from jetson_dnn_rt.tasks import JobRecord, Outcome, Work
from jetson_dnn_rt.traces.summary import summarize_ms

COMPOSED_BARS_MS = {"p50": 0.5, "p99": 2.0}
TWO_PROCESSES_P50_BAR_MS = 2.5
RATE_HZ = 30.0
MODELS = {"detector": "null:5", "segmenter": "null:5,segmentation"}


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--seconds", 60.0, "of each of the two parts")
    add("--sched-fifo", False, "real-time scheduling class, where granted")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure both parts; `BenchmarkError` when the camera's or the listener's process fails."""
    with tempfile.TemporaryDirectory(prefix="overhead-") as name:
        folder = Path(name)
        source = f"images:{write_frames(folder / 'frames')}"
        with Child(python_command(NODES, "listener", str(folder / "received"))):
            say(f"overhead: composed, {args.seconds:g} s")
            camera: dict[str, object] = {"source": source, "rate": RATE_HZ}
            composed = _measure(args, {"camera": camera}, lambda record, work: record.capture_ns)
            say(f"overhead: two processes, {args.seconds:g} s")
            two = _measure_two_processes(args, source, folder / "stamps")
    overhead_ms = composed["overhead_ms"]
    return {
        "composed": {**composed, "bars_ms": COMPOSED_BARS_MS},
        "two_processes": {**two, "bars_ms": {"p50": TWO_PROCESSES_P50_BAR_MS}, "lost_bar": 0},
        "sched_fifo": args.sched_fifo,
        "passed": all(overhead_ms[key] <= bar for key, bar in COMPOSED_BARS_MS.items())
        and two["overhead_ms"]["p50"] <= TWO_PROCESSES_P50_BAR_MS
        and two["lost"] == 0,
    }


def report(result: Mapping[str, Any]) -> Report:
    """Make a line for each part."""
    parts = ("composed", "two_processes")
    return [
        tabulate(
            ({"part": part, **result[part]} for part in parts),
            "part, jobs, p50 ms=overhead_ms.p50:.3f, p99 ms=overhead_ms.p99:.3f",
            "max ms=overhead_ms.max:.3f",
            (
                "bars ms",
                lambda row: ", ".join(f"{key} <= {bar:g}" for key, bar in row["bars_ms"].items()),
            ),
            "response p50=response_overhead_ms.p50:.3f, p99=response_overhead_ms.p99:.3f, lost",
        ),
        say_verdict(result["passed"]),
    ]


def overhead_ns(record: JobRecord, begin_ns: int, end_ns: int) -> int:
    """Compute the time from `begin_ns` to publication at `end_ns`, less execution and waiting."""
    return end_ns - begin_ns - record.execution_time_ns - record.waiting_ns


def _measure(
    args: argparse.Namespace,
    overrides: dict[str, dict[str, object]],
    find_begin_ns: Callable[[JobRecord, Work], int],
) -> dict[str, Any]:
    """Measure both figures of every met job; the frame was captured at `find_begin_ns`."""
    from jetson_dnn_rt.nodes.process.graph import run_graph

    end_to_end_ns, response_ns = array("q"), array("q")

    def observe(record: JobRecord, work: Work) -> None:
        begin_ns = find_begin_ns(record, work)
        if record.outcome is Outcome.MET:
            end_to_end_ns.append(overhead_ns(record, begin_ns, published_ns(work)))
            response_ns.append(record.overhead_ns)

    given: dict[str, dict[str, object]] = {t: {"model": model} for t, model in MODELS.items()}
    given |= overrides
    given.setdefault("perception", {})["realtime.sched_fifo"] = args.sched_fifo
    run_graph(None, given, frames=None, seconds=args.seconds, observer=observe)
    return {
        "jobs": len(response_ns),
        "overhead_ms": summarize_ms(end_to_end_ns),
        "response_overhead_ms": summarize_ms(response_ns),
    }


def _measure_two_processes(
    args: argparse.Namespace, source: str, stamps_file: Path
) -> dict[str, Any]:
    arrived: set[int] = set()

    def find_begin_ns(record: JobRecord, work: Work) -> int:
        arrived.add(work.frame.stamp_ns)
        # Stamps are in the system clock: no steady clock is shared through a header.
        to_system_ns = time.time_ns() - time.monotonic_ns()
        return work.frame.stamp_ns - to_system_ns

    camera = python_command(NODES, "camera", source, repr(RATE_HZ), str(stamps_file))
    with Child(camera):
        figures = _measure(args, {"perception": {"cameras": [""]}}, find_begin_ns)
    sent = count_sent(read_stamps_ns(stamps_file), arrived)
    return {**figures, "sent": sent, "lost": sent - len(arrived)}


def count_sent(stamps_ns: list[int], arrived: set[int]) -> int:
    """Count the frames that were sent from the first arrival to the last."""
    if not arrived:
        return len(stamps_ns)
    return sum(min(arrived) <= stamp_ns <= max(arrived) for stamp_ns in stamps_ns)
