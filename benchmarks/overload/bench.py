# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Compare with the usual rclpy node when there is more work than the machine can do.

Two models on one camera. Their execution times alone on the machine, C1 and C2, are measured
first; the camera then sends 640x480 frames at LOAD / (C1 + C2), from a process of its own over DDS
with the shipped profile. Consumers run one after the other in processes of their own, alternating:
this package's composed graph, the usual rclpy node (overload/nodes.py), this package, ...

Both are judged the same way, by the frame's stamp and the clock right after `publish` returned: a
result is in time when it is published within the deadline of the frame's capture. This package is
configured with that deadline less a margin for the transport, since its own deadlines run from the
frame's arrival. The usual node knows no deadlines: its rounds are judged by all of them.
``sequential`` is this package with one network at a time on all cores, in place of
``threads: auto``.

A consumer that fails ends its round, not the benchmark: the cell says so, and has not passed.

Bars, at every load and deadline: of the frames that it admits (begins because their budget fits;
the usual node begins all that it receives) this package delivers at least 95 % in time, and it
delivers at least as many results in time per second as the usual node (or both deliver at least
98 % of their frames), at a lower age (median and p99).

With ``--peer`` somebody else's detection node is a further side (overload/peer.py). It takes the
detector's place, and the usual node has the segmenter beside it. A second table has the detector
alone of all sides, and the bars hold for it against the peer, too.
"""

from __future__ import annotations

import argparse
import copy
import json
import pickle
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from benchmarks.harness.options import CORES, Options, echo
from benchmarks.harness.processes import BenchmarkError, Child, NotReadyError
from benchmarks.harness.tables import Report, say, say_bars, tabulate
from benchmarks.harness.tasks import configure, find_cost_ns, load_task, write_frames
from benchmarks.harness.timing import take_turns
from benchmarks.overload.peer import DETECTOR, PEER, Peer, add_peer, make_peer, show_peer
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.results import Result, Segmentation
from jetson_dnn_rt.runtime.task import open_model
from jetson_dnn_rt.safety.children import python_command
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.traces.summary import order_statistic

ADMITTED_BAR = 0.95
KEPT_UP_BAR = 0.98
"""Share of the frames that both sides deliver in time where the machine keeps up."""
SIDES = ("ours", "sequential", "naive")
TOPIC = "/image_raw"
MASK_STEP = 4
"""Pixels of masks that are kept: one in so many, across and down."""
SETTLE_S = 1.0
"""Settling time after a consumer is ready: discovery is over, the first frames have passed."""

ALONE_RUNS = 30
DEFAULT_DETECTOR = "torchvision:fasterrcnn_mobilenet_v3_large_320_fpn"
DEFAULT_SEGMENTER = "torchvision:deeplabv3_mobilenet_v3_large"


NODES = "benchmarks.overload.nodes"
"""Module of the child processes; its first argument is a role, see `ROLES` there.

A child prints ``ready`` on stdout when it receives frames, and at SIGTERM writes its log and
exits. Times in logs are in the system clock, in which frames are stamped too: a header carries no
steady time.
"""


@dataclass(frozen=True)
class ConsumerSpec:
    """Specification of a consumer of frames, pickled; one without deadlines ignores them.

    `workers` are stages that this package runs side by side, or those and `threads` as the load
    wants; the usual node has a thread for every callback. `output` is the log, JSON rows of
    `FrameRow`, `results` a pickled list of `PublishedResult`, where wanted. `policy` decides on
    this package's variants, horizon in the mode `mode`. The role ``peer`` runs `peer`.
    """

    tasks: tuple[TaskConfig, ...]
    threads: int
    deadline_ms: float
    output: Path
    workers: int = 1
    follows_load: bool = False
    results: Path | None = None
    policy: str = "static"
    mode: str = "balanced"
    peer: Peer | None = None


class FrameRow(NamedTuple):
    """Outcome of one frame in one task.

    `start_ns` and `published_ns` (when `publish` returned) are None if the frame did not get that
    far; when a peer started is not known. `admitted`: work began because the frame was expected to
    meet its deadline; the usual node admits every frame that it receives. `outcome` is in the
    side's own words.
    """

    task: str
    stamp_ns: int
    start_ns: int | None
    published_ns: int | None
    admitted: bool
    outcome: str


class PublishedResult(NamedTuple):
    """What a task published, and when `publish` returned, in the system clock."""

    task: str
    time_ns: int
    result: Result


def thin_out(result: Result) -> Result:
    """Copy a result, of a mask every fourth pixel in both directions: 19 KB in place of 307."""
    if isinstance(result, Segmentation):
        return Segmentation(result.mask[::MASK_STEP, ::MASK_STEP].copy())
    return copy.deepcopy(result)


class Played(NamedTuple):
    """Round of one side: its log, the first and the last time that count, CPU time in between."""

    rows: list[FrameRow]
    first_ns: int
    last_ns: int
    cpu_s: float = 0.0
    starts: int = 1


@dataclass
class Rounds:
    """Rounds of one side, and why further ones failed."""

    played: list[Played] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def read_sent_ns(path: Path) -> dict[int, int]:
    """Read when each frame was handed on to be published, by its stamp, in the system clock."""
    # A truncated last line is left out.
    lines = path.read_text(encoding="ascii").split("\n")[:-1]
    return {int(stamp): int(sent) for stamp, sent, *_ in map(str.split, lines)}


def published_ns(work: Work) -> int:
    """Time when the result of a job had been published, on the steady clock; for observers."""
    return cast(int, work.scratch["published_ns"])


def describe(
    rounds: Rounds, stamps_ns: Sequence[int], tasks: int, deadline_ns: int
) -> dict[str, Any]:
    """Describe how one side handled the frames of one load that were captured inside a round.

    ``frames`` are those sent, times the number of tasks; a deadline runs from a frame's stamp to
    the publication of its result. Ratios and rates are None if nothing was counted.
    """
    played = rounds.played
    rows = [row for one in played for row in one.rows if one.first_ns <= row[1] <= one.last_ns]
    frames = tasks * sum(one.first_ns <= t <= one.last_ns for one in played for t in stamps_ns)
    seconds = sum(one.last_ns - one.first_ns for one in played) / 1e9
    published = [(row, end - row.stamp_ns) for row in rows if (end := row.published_ns)]
    in_time = [row for row, age_ns in published if age_ns <= deadline_ns]
    started = sum(row.start_ns is not None for row in rows)
    admitted = sum(row.admitted for row in rows)
    met_admitted = sum(row.admitted for row in in_time)
    ages_ms = sorted(age_ns / 1e6 for _, age_ns in published)
    return {
        "seconds": round(seconds, 3),
        "frames": frames,
        "started": started,
        "admitted": admitted,
        "published": len(published),
        "in_time": len(in_time),
        "met_ratio": len(in_time) / frames if frames else None,
        "met_ratio_started": len(in_time) / started if started else None,
        "met_ratio_admitted": met_admitted / admitted if admitted else None,
        "in_time_per_s": len(in_time) / seconds if seconds else None,
        "age_ms": {
            name: order_statistic(ages_ms, share) if ages_ms else None
            for name, share in (("p50", 0.5), ("p99", 0.99))
        },
        "in_time_by_task": dict(Counter(row.task for row in in_time)),
        "outcomes": dict(Counter(row.outcome for row in rows).most_common()),
        "failures": rounds.failures,
        "restarts": sum(one.starts - 1 for one in played),
    }


def describe_detector(
    rounds: Rounds, stamps_ns: Sequence[int], deadline_ns: int
) -> dict[str, Any]:
    """Describe how one side handled the frames of the detector alone, as `describe` does."""
    played = [
        one._replace(rows=[row for row in one.rows if row.task == DETECTOR])
        for one in rounds.played
    ]
    described = describe(Rounds(played, rounds.failures), stamps_ns, 1, deadline_ns)
    cpu_s = sum(one.cpu_s for one in played)
    described["cores"] = cpu_s / described["seconds"] if described["seconds"] else None
    return described


def check_stamps(rounds: Rounds, stamps_ns: Sequence[int]) -> None:
    """Fail a side whose results have stamps that no frame had: ages from them mean nothing."""
    known = set(stamps_ns)
    foreign = sum(
        row.stamp_ns not in known
        for one in rounds.played
        for row in one.rows
        if one.first_ns <= row.stamp_ns <= one.last_ns
    )
    if foreign:
        rounds.failures.append(f"{foreign} results have stamps that no frame had")


def find_roles(side: str, spec: ConsumerSpec) -> dict[str, ConsumerSpec]:
    """Find the processes of a side by their roles: a peer has the usual node beside it."""
    if side != PEER:
        return {"naive" if side == "naive" else "ours": spec}
    others = tuple(task for task in spec.tasks if task.name != DETECTOR)
    beside = replace(spec, tasks=others, output=spec.output.with_name("beside"), results=None)
    return {"naive": beside, PEER: spec}


@contextmanager
def running(side: str, spec: ConsumerSpec) -> Iterator[dict[str, Child]]:
    """Run the processes of a side, by role; their logs are there when the context has ended."""
    with ExitStack() as stack:
        children = {}
        for role, own in find_roles(side, spec).items():
            path = spec.output.with_name(f"{role}.spec")
            path.write_bytes(pickle.dumps(own))
            children[role] = stack.enter_context(Child(python_command(NODES, role, str(path))))
        yield children


def play(side: str, spec: ConsumerSpec, seconds: float, grace_s: float = 0.0) -> Played:
    """Let one side see the camera for a while, and go on for `grace_s` that does not count.

    A side that no frame reaches is started again, once, whichever it is: Fast DDS may lose the
    memory that a process is sent images in while others come and go (docs/troubleshooting.md).
    """
    try:
        return _play_once(side, spec, seconds, grace_s)
    except NotReadyError as error:
        say(f"{side}: {error}; started again")
        return _play_once(side, spec, seconds, grace_s)._replace(starts=2)


def _play_once(side: str, spec: ConsumerSpec, seconds: float, grace_s: float) -> Played:
    def find_cpu_s() -> float:
        # The process that starts a peer only notes its results.
        return sum(child.find_cpu_s(own=role != PEER) for role, child in children.items())

    with running(side, spec) as children:
        time.sleep(SETTLE_S)
        first_ns, before_s = time.time_ns(), find_cpu_s()
        time.sleep(seconds)
        last_ns, cpu_s = time.time_ns(), find_cpu_s() - before_s
        time.sleep(grace_s)
    rows = [FrameRow(*row) for row in json.loads(spec.output.read_text(encoding="utf-8"))]
    return Played(rows, first_ns, last_ns, cpu_s)


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
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
    add("--deadline-factors", [1.25], "relative deadline = F * (C1 + C2)", metavar="F")
    add(
        "--margin-ms",
        4.0,
        "for transport and publication, subtracted from this package's deadline",
    )
    add("--threads", CORES, "of one inference, both sides (default: all cores)")
    add("--fixed", False, "`threads` for this package, too, in place of `threads: auto`")
    add("--workers", 1, "stages that this package runs side by side")
    add("--no-sequential", False, "leave that side out, which halves the time")
    add_peer(add)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure both sides at every load; `BenchmarkError` when camera or listener fail."""
    peer = make_peer(args)
    # Random weights if the source needs any: only time counts here.
    size = tuple(args.segmenter_size) if args.segmenter.startswith("torchvision:") else ()
    variants = [args.variant] if args.variant else []
    tasks = (
        configure(DETECTOR, args.detector, variants, kind="detection"),
        configure("segmenter", args.segmenter, variants, kind="segmentation", input_size=size),
    )
    with tempfile.TemporaryDirectory(prefix="overload-") as name:
        folder = Path(name)
        frames = write_frames(folder / "frames")
        say("overload: models are exported once, so that every process starts quickly")
        exported = tuple(export(task, folder) for task in tasks)
        costs_ms = {task.name: measure_alone(task, args.threads, frames) for task in exported}
        total_ms = sum(costs_ms.values())
        deadlines_ms = {factor: factor * total_ms for factor in args.deadline_factors}
        say(f"overload: alone: {costs_ms}, deadlines {deadlines_ms} ms")
        spec = ConsumerSpec(exported, args.threads, 0.0, folder / "log", args.workers, peer=peer)
        cells = [
            cell
            for load in args.loads
            for cell in _measure_load(load, load * 1e3 / total_ms, spec, deadlines_ms, args)
        ]
    return {
        "models": {"detector": args.detector, "segmenter": args.segmenter},
        **echo(args, "threads workers"),
        "execution_alone_ms": costs_ms,
        **echo(args, "margin_ms rounds"),
        "seconds_per_round": args.seconds,
        "admitted_bar": ADMITTED_BAR,
        "kept_up_bar": KEPT_UP_BAR,
        **({} if peer is None else {PEER: asdict(peer)}),
        "cells": cells,
        "passed": all(cell["passed"] for cell in cells),
    }


def report(result: Mapping[str, Any]) -> Report:
    """Make a line for each load and side."""
    alone = ", ".join(f"{k} {v:.1f} ms" for k, v in result["execution_alone_ms"].items())
    rows = [
        {
            "load": cell["load"],
            "factor": cell["deadline_factor"],
            "side": side,
            "ratio": _ratio(cell[side]["in_time_per_s"], cell["naive"]["in_time_per_s"]),
            "passed": cell["passed"],
            **cell[side],
        }
        for cell in result["cells"]
        for side in SIDES
        if side in cell
    ]

    peer_rows = [
        {"load": cell["load"], "factor": cell["deadline_factor"], "side": side, **figures}
        for cell in result["cells"]
        for side, figures in cell.get(DETECTOR, {}).items()
    ]

    def show_tasks(row: Mapping[str, Any]) -> str | None:
        found = (row["in_time_by_task"].get(task, 0) for task in result["models"])
        if not row["seconds"]:
            return None
        return " + ".join(f"{count / row['seconds']:.1f}" for count in found)

    cell_columns = (
        ("load", lambda row: f"{row['load']:g}x"),
        ("deadline", lambda row: f"{row['factor']:g}x"),
    )
    failures = [
        f"{row['load']:g}x, {row['factor']:g}x, {row['side']}: failed, {failure}"
        for row in [*rows, *(row for row in peer_rows if row["side"] == PEER)]
        for failure in row.get("failures", ())  # earlier results have none
    ]
    failures += [
        f"{row['load']:g}x, {row['factor']:g}x, {row['side']}: started again in "
        f"{row['restarts']} rounds, since no frame reached it"
        for row in rows
        if row.get("restarts")
    ]
    return [
        f"alone: {alone}; deadline: factor x {sum(result['execution_alone_ms'].values()):.1f} ms",
        tabulate(
            rows,
            *cell_columns,
            "side, frames, met=met_ratio:.1%, of admitted=met_ratio_admitted:.1%",
            "of started=met_ratio_started:.1%, in time/s=in_time_per_s:.1f, x naive=ratio:.2f",
            ("by task", show_tasks),
            "p50 age ms=age_ms.p50:.1f, p99 age ms=age_ms.p99:.1f",
            (
                "bars",
                lambda row: ("yes" if row["passed"] else "NO") if row["side"] == "ours" else "",
            ),
        ),
        *show_peer(result, peer_rows, *cell_columns),
        "\n".join(failures),
        say_bars(
            f">= {result['admitted_bar']:.0%} of the admitted met, no fewer in time than the "
            "usual node unless both keep up, results fresher than its, in every cell"
            + ("; the same of the detector alone against the peer" if PEER in result else ""),
            result["passed"],
        ),
    ]


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def export(task: TaskConfig, folder: Path) -> TaskConfig:
    """Export the network as an ONNX file; one that has no ONNX form is used unchanged."""
    scheme = task.model.partition(":")[0]
    if scheme in ("onnx", "null"):
        return task
    path = folder / f"{task.name}.onnx"
    path.write_bytes(open_model(task).onnx_model())
    return replace(task, model=f"onnx:{path}", input_size=())


def measure_alone(config: TaskConfig, threads: int, frames: Path) -> float:
    """Measure the median execution time of a whole job alone, in milliseconds."""
    import cv2

    image = cv2.imread(str(next(iter(sorted(frames.iterdir())))))
    frame = Frame(np.asarray(image, np.uint8), "bgr8", 0, 0)
    with ExitStack() as stack:
        timed = replace(config, warmup_runs=ALONE_RUNS)
        return find_cost_ns(load_task(stack, timed, [frame], threads=threads)) / 1e6


def _measure_load(
    load: float,
    rate_hz: float,
    spec: ConsumerSpec,
    deadlines_ms: Mapping[float, float],
    args: argparse.Namespace,
) -> list[dict[str, Any]]:
    """Measure every side at one load, and judge it by each deadline."""
    folder = spec.output.parent
    ours = ["ours"] if args.no_sequential else ["ours", "sequential"]
    free = ["naive"] if spec.peer is None else ["naive", PEER]  # they know no deadlines
    rounds = {side: Rounds() for side in [*product(free, [0.0]), *product(ours, deadlines_ms)]}
    stamps_file, received_file = folder / "stamps", folder / "received"
    source = f"images:{folder / 'frames'}"
    with (
        Child(python_command(NODES, "camera", source, repr(rate_hz), str(stamps_file))),
        Child(python_command(NODES, "listener", str(received_file))),
    ):
        # The order changes, so that no side always runs on the warmer machine.
        for side, factor in take_turns(rounds, args.rounds, f"overload: load {load:g}"):
            deadline_ms = deadlines_ms.get(factor, max(deadlines_ms.values()))
            own = replace(
                spec,
                deadline_ms=deadline_ms - args.margin_ms,
                follows_load=side == "ours" and not args.fixed,
            )
            try:
                # The last frames get the time until their deadline.
                one = play(side, own, args.seconds, 2 * deadline_ms / 1e3)
            except BenchmarkError as error:
                say(f"overload: {side}: {error}")
                rounds[side, factor].failures.append(str(error))
                continue
            rounds[side, factor].played.append(one)
    stamps_ns = list(read_sent_ns(stamps_file))
    received = json.loads(received_file.read_text(encoding="utf-8"))
    if spec.peer is not None:
        check_stamps(rounds[PEER, 0.0], stamps_ns)
    cells = []
    for factor, deadline_ms in deadlines_ms.items():
        deadline_ns = int(deadline_ms * 1e6)
        of_sides = {side: rounds[side, factor] for side in ours}
        of_sides |= {side: rounds[side, 0.0] for side in free}
        figures = {
            side: describe(one, stamps_ns, len(spec.tasks), deadline_ns)
            for side, one in of_sides.items()
            if side != PEER
        }
        passed = is_better(figures["ours"], figures["naive"])
        if spec.peer is not None:
            alone = {
                side: describe_detector(one, stamps_ns, deadline_ns)
                for side, one in of_sides.items()
            }
            figures[DETECTOR] = alone
            passed = passed and is_better(alone["ours"], alone[PEER])
        cells.append(
            {
                "load": load,
                "deadline_factor": factor,
                "deadline_ms": deadline_ms,
                "rate_hz": rate_hz,
                **figures,
                # Of all sides together, including the time outside the measured windows.
                "listener": {topic: len(stamps) for topic, stamps in received.items()},
                "passed": passed,
            }
        )
    return cells


def is_better(ours: Mapping[str, Any], naive: Mapping[str, Any]) -> bool:
    """Whether the bars hold; they do not where a round failed."""
    if ours["failures"] or naive["failures"]:
        return False
    # Then the camera decides how many there are: a window has a frame more or less.
    kept_up = min(ours["met_ratio"] or 0.0, naive["met_ratio"] or 0.0) >= KEPT_UP_BAR
    ages = [(ours["age_ms"][name], naive["age_ms"][name]) for name in ("p50", "p99")]
    return (
        (ours["met_ratio_admitted"] or 0.0) >= ADMITTED_BAR
        and (kept_up or ours["in_time_per_s"] >= naive["in_time_per_s"])
        and all(other is None or (mine is not None and mine < other) for mine, other in ages)
    )
