"""Measure what the package itself adds to a frame: everything but execution and waiting.

Two tasks of the null back end (5 ms each, sleeping) on the synthetic camera, 640x480 at 30 Hz; a
process listens to their results. Overhead of a job = from the frame's capture (complete in the
camera) to the return of `publish`, less the execution of its stages, less the time it was ready
while the worker ran the other task.

1. composed: camera and tasks in one process, as in the launch file;
2. two processes: the camera in another one, images over DDS with the shipped profile; images that
   were sent and did not arrive are counted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jetson_dnn_rt.bench.protocol import Child, read_stamps_ns
from jetson_dnn_rt.cli.text import format_rows
from jetson_dnn_rt.tasks import JobRecord, Outcome, Work
from jetson_dnn_rt.wcet.summary import summarize_ms

COMPOSED_BARS_MS = {"p50": 0.5, "p99": 2.0}
TWO_PROCESSES_P50_BAR_MS = 2.5
SOURCE = "synthetic:640x480"
RATE_HZ = 30.0
MODELS = {"detector": "null:5", "segmenter": "null:5,segmentation"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the benchmark."""
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="of each of the two parts (default 60)"
    )
    parser.add_argument(
        "--sched-fifo", action="store_true", help="real-time scheduling class, where granted"
    )


def run(args: argparse.Namespace) -> dict[str, object]:
    """Measure both parts.

    Raises
    ------
    BenchmarkError
        When the camera's or the listener's process fails.
    """
    with tempfile.TemporaryDirectory(prefix="overhead-") as name:
        folder = Path(name)
        with Child(["-m", "jetson_dnn_rt.bench.listener_node", str(folder / "received")]):
            _say(f"composed, {args.seconds:g} s")
            composed = _measure_composed(args)
            _say(f"two processes, {args.seconds:g} s")
            two = _measure_two_processes(args, folder / "stamps")
    overhead_ms = composed["overhead_ms"]
    return {
        "composed": {**composed, "bars_ms": COMPOSED_BARS_MS},
        "two_processes": {**two, "bars_ms": {"p50": TWO_PROCESSES_P50_BAR_MS}, "lost_bar": 0},
        "sched_fifo": args.sched_fifo,
        "passed": all(overhead_ms[key] <= bar for key, bar in COMPOSED_BARS_MS.items())
        and two["overhead_ms"]["p50"] <= TWO_PROCESSES_P50_BAR_MS
        and two["lost"] == 0,
    }


def format_table(result: dict[str, Any]) -> str:
    """The result for people."""
    rows = []
    for part in ("composed", "two_processes"):
        figures = result[part]
        times = figures["overhead_ms"]
        bars = ", ".join(f"{key} <= {bar:g}" for key, bar in figures["bars_ms"].items())
        row = [part, figures["jobs"], *(f"{times[k]:.3f}" for k in ("p50", "p99", "max")), bars]
        rows.append([*row, figures.get("lost")])
    return format_rows(["part", "jobs", "p50 ms", "p99 ms", "max ms", "bars ms", "lost"], rows)


def overhead_ns(record: JobRecord, begin_ns: int, published_ns: int) -> int:
    """Time from `begin_ns` to the publication that was neither execution nor waiting."""
    return published_ns - begin_ns - record.execution_time_ns - record.waiting_ns


def _measure_composed(args: argparse.Namespace) -> dict[str, Any]:
    times_ns: array[int] = array("q")

    def observe(record: JobRecord, work: Work) -> None:
        # The result was published just before, on this thread.
        if record.outcome is Outcome.MET:
            times_ns.append(overhead_ns(record, record.capture_ns, time.monotonic_ns()))

    camera = {"source": SOURCE, "rate": RATE_HZ}
    _run_session({"camera": camera}, args, observe)
    return {"jobs": len(times_ns), "overhead_ms": summarize_ms(times_ns)}


def _measure_two_processes(args: argparse.Namespace, stamps_file: Path) -> dict[str, Any]:
    times_ns: array[int] = array("q")
    arrived: set[int] = set()

    def observe(record: JobRecord, work: Work) -> None:
        arrived.add(work.frame.stamp_ns)
        if record.outcome is Outcome.MET:
            # Stamps are in the system clock: no steady clock is shared through a header.
            times_ns.append(overhead_ns(record, work.frame.stamp_ns, time.time_ns()))

    camera = ["-m", "jetson_dnn_rt.bench.logged_camera", SOURCE, repr(RATE_HZ), str(stamps_file)]
    with Child(camera):
        _run_session({"perception": {"cameras": [""]}}, args, observe)
    sent = count_sent(read_stamps_ns(stamps_file), arrived)
    return {
        "jobs": len(times_ns),
        "overhead_ms": summarize_ms(times_ns),
        "sent": sent,
        "lost": sent - len(arrived),
    }


def count_sent(stamps_ns: list[int], arrived: set[int]) -> int:
    """Frames that were sent from the first that arrived to the last one."""
    if not arrived:
        return len(stamps_ns)
    return sum(min(arrived) <= stamp_ns <= max(arrived) for stamp_ns in stamps_ns)


def _run_session(
    overrides: dict[str, dict[str, object]],
    args: argparse.Namespace,
    observe: Callable[[JobRecord, Work], None],
) -> None:
    from jetson_dnn_rt.nodes.session import run_session

    given: dict[str, dict[str, object]] = {t: {"model": model} for t, model in MODELS.items()}
    given |= overrides
    given.setdefault("perception", {})["realtime.sched_fifo"] = args.sched_fifo
    run_session(None, given, frames=None, seconds=args.seconds, observer=observe)


def _say(text: str) -> None:
    print(f"overhead: {text}", file=sys.stderr, flush=True)
