"""Compare with the usual rclpy node when there is more work than the machine can do.

Two models on one camera. Their execution times alone on the machine, C1 and C2, are measured
first; the camera then sends 640x480 frames at LOAD / (C1 + C2), from a process of its own over DDS
with the shipped profile. Consumers run one after the other in processes of their own, alternating:
this package's composed graph, the usual rclpy node (overload/nodes.py), this package, ...

Both are judged the same way, by the frame's stamp and the clock right after `publish` returned: a
result is in time when it is published within the deadline of the frame's capture. This package is
configured with that deadline less a margin for the transport, since its own deadlines run from the
frame's arrival.

Bars, at every load: of the frames that it admits (begins because their budget fits; the usual node
begins all that it takes) this package delivers at least 95 % in time, and it delivers more results
in time per second than the usual node.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.options import Options, echo
from benchmarks.harness.processes import Child
from benchmarks.harness.tables import Report, say, tabulate
from benchmarks.harness.tasks import SIZE, TaskSpec, write_frames
from benchmarks.harness.timing import alternate
from benchmarks.overload.log import NODES, ConsumerSpec, FrameLog, FrameRow, read_stamps_ns
from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.safety.children import python_command
from jetson_dnn_rt.traces.summary import order_statistic
from jetson_dnn_rt.variants.measuring.timing import measure_stages

ADMITTED_BAR = 0.95
SIDES = ("ours", "naive")
TOPIC = "/image_raw"
SETTLE_S = 1.0
"""After a consumer is ready: discovery is over and the first frames have passed."""

ALONE_RUNS = 30
DEFAULT_DETECTOR = "torchvision:fasterrcnn_mobilenet_v3_large_320_fpn"
DEFAULT_SEGMENTER = "torchvision:deeplabv3_mobilenet_v3_large"


@dataclass(frozen=True)
class Figures:
    """What one side made of the frames of one load.

    `frames` are those sent, times the number of tasks. Of them `started` were begun, `admitted`
    begun in the expectation of making the deadline, `published`, and that `in_time`; by task,
    since one of them may have starved. `ages_ms` is the age of every published result at its
    publication; `outcomes` are in the side's own words.
    """

    seconds: float
    frames: int
    started: int
    admitted: int
    published: int
    in_time: int
    admitted_in_time: int
    ages_ms: list[float]
    in_time_by_task: Counter[str]
    outcomes: Counter[str]

    def to_dict(self) -> dict[str, object]:
        """For JSON; ratios are None where nothing was counted."""
        ages = sorted(self.ages_ms)
        return {
            "seconds": round(self.seconds, 3),
            "frames": self.frames,
            "started": self.started,
            "admitted": self.admitted,
            "published": self.published,
            "in_time": self.in_time,
            "met_ratio": self.in_time / self.frames if self.frames else None,
            "met_ratio_started": self.in_time / self.started if self.started else None,
            "met_ratio_admitted": self.admitted_in_time / self.admitted if self.admitted else None,
            "in_time_per_s": self.in_time / self.seconds,
            "age_ms": {
                "p50": order_statistic(ages, 0.5) if ages else None,
                "p99": order_statistic(ages, 0.99) if ages else None,
            },
            "in_time_by_task": dict(self.in_time_by_task),
            "outcomes": dict(self.outcomes.most_common()),
        }


def judge(
    rows: Iterable[FrameRow],
    stamps_ns: Iterable[int],
    tasks: int,
    deadline_ns: int,
    window_ns: tuple[int, int],
) -> Figures:
    """Count what became of the frames that were captured inside a window, first to last stamp.

    `stamps_ns` are those of every frame that the camera sent, at each of which so many `tasks`
    should have looked; the deadline runs from a frame's stamp to the publication of its result.
    """
    first_ns, last_ns = window_ns
    counted = [row for row in rows if first_ns <= row.stamp_ns <= last_ns]
    published = [
        (row, row.published_ns - row.stamp_ns) for row in counted if row.published_ns is not None
    ]
    in_time = [row for row, age_ns in published if age_ns <= deadline_ns]
    return Figures(
        seconds=(last_ns - first_ns) / 1e9,
        frames=tasks * sum(first_ns <= stamp_ns <= last_ns for stamp_ns in stamps_ns),
        started=sum(row.start_ns is not None for row in counted),
        admitted=sum(row.admitted for row in counted),
        published=len(published),
        in_time=len(in_time),
        admitted_in_time=sum(row.admitted for row in in_time),
        ages_ms=[age_ns / 1e6 for _, age_ns in published],
        in_time_by_task=Counter(row.task for row in in_time),
        outcomes=Counter(row.outcome for row in counted),
    )


def join(parts: Sequence[Figures]) -> Figures:
    """Figures of several rounds of one side as one."""
    return Figures(
        seconds=sum(part.seconds for part in parts),
        frames=sum(part.frames for part in parts),
        started=sum(part.started for part in parts),
        admitted=sum(part.admitted for part in parts),
        published=sum(part.published for part in parts),
        in_time=sum(part.in_time for part in parts),
        admitted_in_time=sum(part.admitted_in_time for part in parts),
        ages_ms=[age_ms for part in parts for age_ms in part.ages_ms],
        in_time_by_task=sum((part.in_time_by_task for part in parts), Counter()),
        outcomes=sum((part.outcomes for part in parts), Counter()),
    )


def add_arguments(add: Options) -> None:
    """Options of the benchmark."""
    add("--detector", DEFAULT_DETECTOR, metavar="MODEL")
    add("--segmenter", DEFAULT_SEGMENTER, metavar="MODEL")
    add("--variant", "", "of both (default: automatic)", metavar="NAME")
    add(
        "--segmenter-size", (384, 512),
        "its height and width, where the model leaves a choice (default 384 512)",
        kind=int, nargs=2, metavar="PIXELS",
    )  # fmt: skip
    add("--loads", [1.5, 2.0, 3.0], "work per second that arrives, in seconds", metavar="LOAD")
    add("--rounds", 3, "of both sides, per load")
    add("--seconds", 10.0, "per round")
    add("--deadline-factor", 1.25, "relative deadline = F * (C1 + C2)", metavar="F")
    add(
        "--margin-ms", 4.0,
        "for transport and publication, subtracted from this package's deadline",
    )  # fmt: skip
    add(
        "--threads",
        len(os.sched_getaffinity(0)),
        "of one inference, both sides (default: all cores)",
    )
    add("--workers", 1, "stages that this package runs side by side")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure both sides at every load; `BenchmarkError` when one of the processes fails."""
    # Random weights where the source asks for any: only time counts here.
    size = tuple(args.segmenter_size) if args.segmenter.startswith("torchvision:") else None
    tasks: tuple[TaskSpec, ...] = (
        TaskSpec("detector", "detection", args.detector, args.variant),
        TaskSpec("segmenter", "segmentation", args.segmenter, args.variant, input_size=size),
    )
    with tempfile.TemporaryDirectory(prefix="overload-") as name:
        folder = Path(name)
        frames = write_frames(folder / "frames")
        say("overload: models are exported once, so that every process starts quickly")
        tasks = tuple(_export(task, folder) for task in tasks)
        costs_ms = {task.name: _measure_alone(task, args.threads, frames) for task in tasks}
        total_ms = sum(costs_ms.values())
        deadline_ms = args.deadline_factor * total_ms
        say(f"overload: alone: {costs_ms}, deadline {deadline_ms:.1f} ms")
        height, width = SIZE
        spec = ConsumerSpec(
            tasks, TOPIC, width, height, args.threads, deadline_ms - args.margin_ms,
            folder / "log", args.workers,
        )  # fmt: skip
        loads = [
            _measure_load(load, load * 1e3 / total_ms, spec, deadline_ms, folder, args)
            for load in args.loads
        ]
    return {
        "models": {"detector": args.detector, "segmenter": args.segmenter},
        **echo(args, "threads workers"),
        "execution_alone_ms": costs_ms,
        "deadline_ms": deadline_ms,
        **echo(args, "margin_ms rounds"),
        "seconds_per_round": args.seconds,
        "admitted_bar": ADMITTED_BAR,
        "loads": loads,
        "passed": all(load["passed"] for load in loads),
    }


def report(result: Mapping[str, Any]) -> Report:
    """A line for each load and side."""
    alone = ", ".join(f"{k} {v:.1f} ms" for k, v in result["execution_alone_ms"].items())
    rows = [
        {"load": load["load"], "side": side, "passed": load["passed"], **load[side]}
        for load in result["loads"]
        for side in SIDES
    ]

    def show_tasks(row: Mapping[str, Any]) -> str:
        found = (row["in_time_by_task"].get(task, 0) for task in result["models"])
        return " + ".join(f"{count / row['seconds']:.1f}" for count in found)

    return [
        f"alone: {alone}; deadline {result['deadline_ms']:.1f} ms",
        tabulate(
            rows,
            ("load", lambda row: f"{row['load']:g}x"),
            "side, frames, met=met_ratio:.1%, of admitted=met_ratio_admitted:.1%",
            "of started=met_ratio_started:.1%, in time/s=in_time_per_s:.1f",
            ("by task", show_tasks),
            "p99 age ms=age_ms.p99:.1f",
            (
                "bars",
                lambda row: ("yes" if row["passed"] else "NO") if row["side"] == "ours" else "",
            ),
        ),
    ]


def _export(task: TaskSpec, folder: Path) -> TaskSpec:
    """The same network as an ONNX file; one that has no ONNX form stays as it is."""
    scheme = task.model.partition(":")[0]
    if scheme in ("onnx", "null"):
        return task
    path = folder / f"{task.name}.onnx"
    path.write_bytes(task.load().onnx_model())
    return replace(task, model=f"onnx:{path}", input_size=None)


def _measure_alone(task: TaskSpec, threads: int, frames: Path) -> float:
    """Median execution time of a whole job in milliseconds, nothing else running."""
    import cv2

    image = cv2.imread(str(next(iter(sorted(frames.iterdir())))))
    frame = Frame(np.asarray(image, np.uint8), "bgr8", 0, 0)
    pipeline = task.build_pipeline(threads)
    try:
        times_ns = measure_stages(pipeline.stages, [frame], ALONE_RUNS, SteadyClock())
    finally:
        pipeline.close()
    return order_statistic(sorted(map(sum, times_ns)), 0.5) / 1e6


def _measure_load(
    load: float,
    rate_hz: float,
    spec: ConsumerSpec,
    deadline_ms: float,
    folder: Path,
    args: argparse.Namespace,
) -> dict[str, Any]:
    deadline_ns = int(deadline_ms * 1e6)
    rounds: list[tuple[str, list[FrameRow], tuple[int, int]]] = []
    stamps_file, received_file = folder / "stamps", folder / "received"
    source = f"images:{folder / 'frames'}"
    with (
        Child(python_command(NODES, "camera", source, repr(rate_hz), str(stamps_file))),
        Child(python_command(NODES, "listener", str(received_file))),
    ):
        for number in range(args.rounds):
            # The order changes, so that neither side always runs on the warmer machine.
            for side in alternate(SIDES, number):
                with Child(python_command(NODES, side, spec.to_json())):
                    time.sleep(SETTLE_S)
                    first_ns = time.time_ns()
                    time.sleep(args.seconds)
                    last_ns = time.time_ns()
                    # The last frames get the time that their deadline gives them.
                    time.sleep(2 * deadline_ms / 1e3)
                rounds.append((side, FrameLog.read(spec.output), (first_ns, last_ns)))
                say(f"overload: load {load:g}, {rate_hz:.1f} Hz, round {number + 1}: {side} done")
    stamps_ns = read_stamps_ns(stamps_file)
    figures = {
        side: join(
            [
                judge(rows, stamps_ns, len(spec.tasks), deadline_ns, window_ns)
                for name, rows, window_ns in rounds
                if name == side
            ]
        )
        for side in SIDES
    }
    received = json.loads(received_file.read_text(encoding="utf-8"))
    ours, naive = figures["ours"], figures["naive"]
    admitted = ours.admitted > 0 and ours.admitted_in_time >= ADMITTED_BAR * ours.admitted
    more = ours.in_time / ours.seconds > naive.in_time / naive.seconds
    return {
        "load": load,
        "rate_hz": rate_hz,
        **{side: figures[side].to_dict() for side in SIDES},
        # Of both sides together, with what lies outside the measured windows.
        "listener": {topic: len(stamps) for topic, stamps in received.items()},
        "passed": admitted and more,
    }
