"""Compare with the usual rclpy node when there is more work than the machine can do.

Two models on one camera. Their execution times alone on the machine, C1 and C2, are measured
first; the camera then sends 640x480 frames at LOAD / (C1 + C2), from a process of its own over DDS
with the shipped profile. Consumers run one after the other in processes of their own, alternating:
this package's composed graph, the usual rclpy node (benchmarks/naive_node.py), this package, ...

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
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.frame_files import HEIGHT, WIDTH, write_frames
from benchmarks.protocol import (
    Child,
    ConsumerSpec,
    FrameLog,
    FrameRow,
    TaskSpec,
    read_stamps_ns,
)
from jetson_dnn_rt.cli.text import format_rows
from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.safety.children import python_command
from jetson_dnn_rt.traces.summary import order_statistic
from jetson_dnn_rt.variants.measuring.timing import measure_stages

ADMITTED_BAR = 0.95
SIDES = {"ours": "benchmarks.session_node", "naive": "benchmarks.naive_node"}
TOPIC = "/image_raw"
SETTLE_S = 1.0
"""After a consumer is ready: discovery is over and the first frames have passed."""

ALONE_RUNS = 30
DEFAULT_DETECTOR = "torchvision:fasterrcnn_mobilenet_v3_large_320_fpn"
DEFAULT_SEGMENTER = "torchvision:deeplabv3_mobilenet_v3_large"


@dataclass(frozen=True)
class Figures:
    """What one side made of the frames of one load.

    Attributes
    ----------
    seconds : float
        Measured time.
    frames : int
        Frames sent, times the number of tasks.
    started, admitted, published : int
        Of those: work begun, begun in the expectation of making the deadline, result published.
    in_time, admitted_in_time : int
        Published within the deadline, and how many of those were admitted.
    ages_ms : list of float
        Age of every published result at its publication.
    in_time_by_task : Counter
        `in_time` of each task: one of them may have starved.
    outcomes : Counter
        How the frames that the side knows of ended, in its own words.
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
    """Count what became of the frames that were captured inside a window.

    Parameters
    ----------
    rows : iterable of FrameRow
        Of one consumer.
    stamps_ns : iterable of int
        Of every frame that the camera sent.
    tasks : int
        Tasks that should have looked at each of them.
    deadline_ns : int
        From a frame's stamp to the publication of its result.
    window_ns : tuple of int
        First and last stamp that count.
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the benchmark."""
    parser.add_argument("--detector", default=DEFAULT_DETECTOR, metavar="MODEL")
    parser.add_argument("--segmenter", default=DEFAULT_SEGMENTER, metavar="MODEL")
    parser.add_argument(
        "--variant", default="", metavar="NAME", help="of both (default: automatic)"
    )
    parser.add_argument(
        "--segmenter-size", type=int, nargs=2, metavar=("H", "W"), default=(384, 512),
        help="its input, where the model leaves a choice (default 384 512)",
    )  # fmt: skip
    parser.add_argument(
        "--loads", type=float, nargs="+", default=[1.5, 2.0, 3.0], metavar="LOAD",
        help="work per second that arrives, in seconds (default 1.5 2 3)",
    )  # fmt: skip
    parser.add_argument(
        "--rounds", type=int, default=3, help="of both sides, per load (default 3)"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="per round (default 10)")
    parser.add_argument(
        "--deadline-factor", type=float, default=1.25, metavar="F",
        help="relative deadline = F * (C1 + C2) (default 1.25)",
    )  # fmt: skip
    parser.add_argument(
        "--margin-ms", type=float, default=4.0,
        help="for transport and publication, taken off this package's deadline (default 4)",
    )  # fmt: skip
    parser.add_argument(
        "--threads", type=int, default=len(os.sched_getaffinity(0)),
        help="of one inference, both sides (default: all cores)",
    )  # fmt: skip
    parser.add_argument(
        "--workers", type=int, default=1,
        help="stages that this package runs side by side (default 1)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> dict[str, object]:
    """Measure both sides at every load.

    Raises
    ------
    BenchmarkError
        When one of the processes fails.
    ModelError, BackendUnavailableError, ConfigurationError
        When the models cannot be used.
    """
    # Random weights where the source asks for any: only time counts here.
    size = tuple(args.segmenter_size) if args.segmenter.startswith("torchvision:") else None
    tasks: tuple[TaskSpec, ...] = (
        TaskSpec("detector", "detection", args.detector, args.variant),
        TaskSpec("segmenter", "segmentation", args.segmenter, args.variant, input_size=size),
    )
    with tempfile.TemporaryDirectory(prefix="overload-") as name:
        folder = Path(name)
        frames = write_frames(folder / "frames")
        _say("models are exported once, so that every process starts quickly")
        tasks = tuple(_export(task, folder) for task in tasks)
        costs_ms = {task.name: _measure_alone(task, args.threads, frames) for task in tasks}
        total_ms = sum(costs_ms.values())
        deadline_ms = args.deadline_factor * total_ms
        _say(f"alone: {costs_ms}, deadline {deadline_ms:.1f} ms")
        spec = ConsumerSpec(
            tasks,
            TOPIC,
            WIDTH,
            HEIGHT,
            args.threads,
            deadline_ms - args.margin_ms,
            folder / "log",
            args.workers,
        )
        loads = [
            _measure_load(load, load * 1e3 / total_ms, spec, deadline_ms, folder, args)
            for load in args.loads
        ]
    return {
        "models": {"detector": args.detector, "segmenter": args.segmenter},
        "threads": args.threads,
        "workers": args.workers,
        "execution_alone_ms": costs_ms,
        "deadline_ms": deadline_ms,
        "margin_ms": args.margin_ms,
        "rounds": args.rounds,
        "seconds_per_round": args.seconds,
        "admitted_bar": ADMITTED_BAR,
        "loads": loads,
        "passed": all(load["passed"] for load in loads),
    }


def format_table(result: dict[str, Any]) -> str:
    """The result for people."""
    rows = []
    for load in result["loads"]:
        for side in SIDES:
            figures = load[side]
            rows.append(
                [
                    f"{load['load']:g}x",
                    side,
                    figures["frames"],
                    _percent(figures["met_ratio"]),
                    _percent(figures["met_ratio_admitted"]),
                    _percent(figures["met_ratio_started"]),
                    figures["in_time_per_s"],
                    " + ".join(
                        f"{figures['in_time_by_task'].get(task, 0) / figures['seconds']:.1f}"
                        for task in result["models"]
                    ),
                    figures["age_ms"]["p99"],
                    ("yes" if load["passed"] else "NO") if side == "ours" else "",
                ]
            )
    header = [
        "load",
        "side",
        "frames",
        "met %",
        "admitted %",
        "started %",
        "in time/s",
        "by task",
        "p99 age ms",
        "bars",
    ]
    alone = ", ".join(f"{k} {v:.1f} ms" for k, v in result["execution_alone_ms"].items())
    return f"alone: {alone}; deadline {result['deadline_ms']:.1f} ms\n{format_rows(header, rows)}"


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else 100.0 * ratio


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
    rounds: list[tuple[str, list[FrameRow], tuple[int, int]]] = []
    stamps_file, received_file = folder / "stamps", folder / "received"
    camera = python_command("benchmarks.logged_camera", f"images:{folder / 'frames'}")
    with (
        Child([*camera, repr(rate_hz), str(stamps_file)]),
        Child(python_command("benchmarks.listener_node", str(received_file))),
    ):
        for number in range(args.rounds):
            # The order changes, so that neither side always runs on the warmer machine.
            for side in SIDES if number % 2 == 0 else reversed(SIDES):
                with Child(python_command(SIDES[side], spec.to_json())):
                    time.sleep(SETTLE_S)
                    first_ns = time.time_ns()
                    time.sleep(args.seconds)
                    last_ns = time.time_ns()
                    # The last frames get the time that their deadline gives them.
                    time.sleep(2 * deadline_ms / 1e3)
                rounds.append((side, FrameLog.read(spec.output), (first_ns, last_ns)))
                _say(f"load {load:g}, {rate_hz:.1f} Hz, round {number + 1}: {side} done")
    stamps_ns = read_stamps_ns(stamps_file)
    deadline_ns = int(deadline_ms * 1e6)
    figures = {}
    for side in SIDES:
        parts = [
            judge(rows, stamps_ns, len(spec.tasks), deadline_ns, window_ns)
            for name, rows, window_ns in rounds
            if name == side
        ]
        figures[side] = join(parts)
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


def _say(text: str) -> None:
    print(f"overload: {text}", file=sys.stderr, flush=True)
