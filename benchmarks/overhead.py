"""Measure what the package itself adds to a frame: everything but execution and waiting.

Two tasks of the null back end (5 ms each, sleeping), a camera that reads files, 640x480 at 30 Hz;
a process listens to the results. Two figures for each job, both less the execution of its stages
and less the time it was ready while the worker ran the other task:

- end to end: from the frame's capture (complete in the camera) to the return of `publish`;
- response: from its release to the end of its last stage, as in the JSON of `run`.

1. composed: camera and tasks in one process, as in the launch file;
2. two processes: the camera in another one, images over DDS with the shipped profile; images that
   were sent and did not arrive are counted.

The bars are on the end-to-end figures.
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
from benchmarks.overload.log import NODES, published_ns, read_stamps_ns
from jetson_dnn_rt.safety.children import python_command
from jetson_dnn_rt.tasks import JobRecord, Outcome, Work
from jetson_dnn_rt.traces.summary import summarize_ms

COMPOSED_BARS_MS = {"p50": 0.5, "p99": 2.0}
TWO_PROCESSES_P50_BAR_MS = 2.5
RATE_HZ = 30.0
MODELS = {"detector": "null:5", "segmenter": "null:5,segmentation"}


def add_arguments(add: Options) -> None:
    """Options of the benchmark."""
    add("--seconds", 60.0, "of each of the two parts")
    add("--sched-fifo", False, "real-time scheduling class, where granted")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure both parts; `BenchmarkError` when the camera's or the listener's process fails."""
    with tempfile.TemporaryDirectory(prefix="overhead-") as name:
        folder = Path(name)
        source = f"images:{write_frames(folder / 'frames')}"
        with Child(python_command(NODES, "listener", str(folder / "received"))):
            say(f"overhead: composed, {args.seconds:g} s")
            composed = _measure_composed(args, source)
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
    """A line for each part."""
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
    """Time from `begin_ns` to the publication at `end_ns`, less execution and waiting."""
    return end_ns - begin_ns - record.execution_time_ns - record.waiting_ns


class _Times:
    """Both figures of every job that was met."""

    def __init__(self) -> None:
        self.end_to_end_ns: array[int] = array("q")
        self.response_ns: array[int] = array("q")

    def add(self, record: JobRecord, work: Work, begin_ns: int) -> None:
        """Take a job; `begin_ns` is its capture on the steady clock."""
        if record.outcome is Outcome.MET:
            self.end_to_end_ns.append(overhead_ns(record, begin_ns, published_ns(work)))
            self.response_ns.append(record.overhead_ns)

    def to_dict(self) -> dict[str, Any]:
        return {
            "jobs": len(self.response_ns),
            "overhead_ms": summarize_ms(self.end_to_end_ns),
            "response_overhead_ms": summarize_ms(self.response_ns),
        }


def _measure_composed(args: argparse.Namespace, source: str) -> dict[str, Any]:
    times = _Times()

    def observe(record: JobRecord, work: Work) -> None:
        times.add(record, work, record.capture_ns)

    camera = {"source": source, "rate": RATE_HZ}
    _run_graph({"camera": camera}, args, observe)
    return times.to_dict()


def _measure_two_processes(
    args: argparse.Namespace, source: str, stamps_file: Path
) -> dict[str, Any]:
    times = _Times()
    arrived: set[int] = set()

    def observe(record: JobRecord, work: Work) -> None:
        arrived.add(work.frame.stamp_ns)
        # Stamps are in the system clock: no steady clock is shared through a header.
        to_system_ns = time.time_ns() - time.monotonic_ns()
        times.add(record, work, work.frame.stamp_ns - to_system_ns)

    camera = python_command(NODES, "camera", source, repr(RATE_HZ), str(stamps_file))
    with Child(camera):
        _run_graph({"perception": {"cameras": [""]}}, args, observe)
    sent = count_sent(read_stamps_ns(stamps_file), arrived)
    return {**times.to_dict(), "sent": sent, "lost": sent - len(arrived)}


def count_sent(stamps_ns: list[int], arrived: set[int]) -> int:
    """Frames that were sent from the first that arrived to the last one."""
    if not arrived:
        return len(stamps_ns)
    return sum(min(arrived) <= stamp_ns <= max(arrived) for stamp_ns in stamps_ns)


def _run_graph(
    overrides: dict[str, dict[str, object]],
    args: argparse.Namespace,
    observe: Callable[[JobRecord, Work], None],
) -> None:
    from jetson_dnn_rt.nodes.process.graph import run_graph

    given: dict[str, dict[str, object]] = {t: {"model": model} for t, model in MODELS.items()}
    given |= overrides
    given.setdefault("perception", {})["realtime.sched_fifo"] = args.sched_fifo
    run_graph(None, given, frames=None, seconds=args.seconds, observer=observe)
