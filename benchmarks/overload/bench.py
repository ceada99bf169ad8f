# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Compare with the usual rclpy node when there is more work than the machine can do.

Two models on one camera. Their execution times alone on the machine, C1 and C2, are measured anew
at each load of every round; the camera then sends 640x480 frames at LOAD / (C1 + C2), from a
process of its own over DDS with the shipped profile. For each load and deadline, a cell, every
side plays for some seconds in a process of its own, one after the other, in an order that changes:
this package's composed graph, the usual rclpy node (overload/nodes.py), and others, all in every
round.

All are judged the same way, by the frame's stamp and the clock right after `publish` returned: a
result is in time when it is published within the deadline of the frame's capture. This package is
configured with that deadline less a margin for the transport, since its own deadlines run from the
frame's arrival. The usual node knows no deadlines. ``sequential`` is this package with one network
at a time on all cores, in place of ``threads: auto``.

A consumer that fails ends its round, not the benchmark: the cell says so, and has not passed.

Bars, at every load and deadline, each by the 95 % interval of ten or more rounds: of the frames
that it admits (begins because their budget fits; the usual node begins all that it receives) this
package delivers at least 95 % in time, and it delivers at least as large a share of its frames in
time as the usual node (or both deliver at least 98 %), at no higher an age (p50 and p99 of a
round's results).

With ``--against COMMIT`` that commit of this package is a further side (overload/against.py): ours
delivers at least 0.98 times its share in every cell, and no smaller one on average over the cells.

With ``--peer`` somebody else's detection node is a further side (overload/peer.py). It takes the
detector's place, and the usual node has the segmenter beside it. A further table has the detector
alone of all sides, and the bars hold for it against the peer, too.

The defaults take about two hours, ``--no-sequential`` two thirds of that. They can be taken in
parts: ``--rounds 2 --output overload.json``, then again with ``--resume overload.json`` for more
rounds, or for other loads and deadlines; every round is kept.
"""

from __future__ import annotations

import argparse
import copy
import json
import pickle
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from benchmarks.harness.intervals import LEAST_ROUNDS, show_interval
from benchmarks.harness.options import CORES, Options, echo
from benchmarks.harness.parts import PLAYED, add_resume, take_earlier
from benchmarks.harness.processes import BenchmarkError, Child, NotReadyError
from benchmarks.harness.tables import (
    Report,
    Verdict,
    judge_all,
    say,
    say_bars,
    say_shortly,
    tabulate,
)
from benchmarks.harness.tasks import configure, find_cost_ns, load_task, write_frames
from benchmarks.harness.timing import alternate, order
from benchmarks.overload.against import find_against, make_command, prepare
from benchmarks.overload.cells import (
    ADMITTED_BAR,
    AGAINST,
    AGAINST_BAR,
    AGES,
    KEPT_UP_BAR,
    NAIVE,
    OURS,
    SEQUENTIAL,
    SIDES,
    judge_average,
    make_cell,
    name_undecided,
)
from benchmarks.overload.peer import DETECTOR, PEER, Peer, add_peer, make_peer, show_peer
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.results import Result, Segmentation
from jetson_dnn_rt.runtime.task import open_model
from jetson_dnn_rt.safety.children import python_command
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.traces.summary import order_statistic

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
    this package's variants, horizon in the mode `mode`. The role ``peer`` runs `peer`, the role
    ``against`` the package that is in the folder `tree`.
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
    tree: Path | None = None


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
        return {side if side in (NAIVE, AGAINST) else OURS: spec}
    others = tuple(task for task in spec.tasks if task.name != DETECTOR)
    beside = replace(spec, tasks=others, output=spec.output.with_name("beside"), results=None)
    return {NAIVE: beside, PEER: spec}


def _command(role: str, spec: ConsumerSpec) -> list[str]:
    """Write the specification of a role, and make its command."""
    path = spec.output.with_name(f"{role}.spec")
    if role == AGAINST:
        assert spec.tree is not None
        return make_command(spec.tree, spec, path)
    path.write_bytes(pickle.dumps(spec))
    return python_command(NODES, role, str(path))


@contextmanager
def running(side: str, spec: ConsumerSpec) -> Iterator[dict[str, Child]]:
    """Run the processes of a side, by role; their logs are there when the context has ended."""
    with ExitStack() as stack:
        children = {}
        for role, own in find_roles(side, spec).items():
            children[role] = stack.enter_context(Child(_command(role, own)))
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
    add(
        "--loads", [0.5, 1.0, 2.0, 3.0], "work per second that arrives, in seconds", above=0,
        metavar="LOAD",
    )  # fmt: skip
    add(
        "--deadline-factors", [1.1, 1.25, 1.5, 2.0], "relative deadline = F * (C1 + C2)", above=0,
        metavar="F",
    )  # fmt: skip
    add(
        "--rounds", LEAST_ROUNDS, "of all sides at each load and deadline, further ones with "
        f"--resume; fewer than {LEAST_ROUNDS} in all decide nothing", least=1,
    )  # fmt: skip
    add("--seconds", 6.0, "of a side in a round", above=0)
    add(
        "--margin-ms",
        4.0,
        "for transport and publication, subtracted from this package's deadline",
    )
    add("--threads", CORES, "of one inference, both sides (default: all cores)")
    add("--fixed", False, "`threads` for this package, too, in place of `threads: auto`")
    add("--workers", 1, "stages that this package runs side by side")
    add("--no-sequential", False, "leave that side out, which takes a third of the time")
    add("--against", "", "another commit of this package as a further side", metavar="COMMIT")
    add_peer(add)
    add_resume(add)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure all sides in every cell; `BenchmarkError` when camera or listener fail."""
    peer = make_peer(args)
    against = find_against(args.against) if args.against else None
    settings = {
        "models": {"detector": args.detector, "segmenter": args.segmenter},
        **echo(args, "variant segmenter_size threads workers fixed margin_ms"),
        "seconds_per_round": args.seconds,
        "sides": [
            OURS,
            *([] if args.no_sequential else [SEQUENTIAL]),
            NAIVE,
            *([] if against is None else [AGAINST]),
            *([] if peer is None else [PEER]),
        ],
        "admitted_bar": ADMITTED_BAR,
        "kept_up_bar": KEPT_UP_BAR,
        **({} if peer is None else {PEER: asdict(peer)}),
        **({} if against is None else {AGAINST: {"commit": against, "bar": AGAINST_BAR}}),
    }
    played = take_earlier(args.earlier, "overload", settings)
    # Random weights if the source needs any: only time counts here.
    size = tuple(args.segmenter_size) if args.segmenter.startswith("torchvision:") else ()
    variants = [args.variant] if args.variant else []
    tasks = (
        configure(DETECTOR, args.detector, variants, kind="detection"),
        configure("segmenter", args.segmenter, variants, kind="segmentation", input_size=size),
    )
    tree = None if against is None else prepare(against)
    with tempfile.TemporaryDirectory(prefix="overload-") as name:
        folder = Path(name)
        write_frames(folder / "frames")
        say("overload: models are exported once, so that every process starts quickly")
        exported = tuple(export(task, folder) for task in tasks)
        spec = ConsumerSpec(
            exported, args.threads, 0.0, folder / "log", args.workers, peer=peer, tree=tree
        )
        for number in range(args.rounds):
            say(f"overload: round {number + 1} of {args.rounds}")
            for load in alternate(args.loads, number):
                # Anew each time: loads and deadlines of a slow minute are not those of the run.
                costs_ms = {
                    task.name: measure_alone(task, args.threads, folder / "frames")
                    for task in exported
                }
                say(f"overload: load {load:g}; alone: {costs_ms}")
                played += _play_load(load, costs_ms, spec, settings["sides"], played, args)
                args.keep(summarize(settings, played))
    return summarize(settings, played)


def summarize(settings: Mapping[str, Any], played: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Make the result of its rounds."""
    by_cell: dict[tuple[float, float], list[Mapping[str, Any]]] = {}
    for one in played:
        by_cell.setdefault((one["load"], one["deadline_factor"]), []).append(one)
    cells = [make_cell(rounds, DETECTOR, PEER) for _, rounds in sorted(by_cell.items())]
    average, verdict = judge_average(played)
    names = played[0]["costs_ms"]
    return {
        **settings,
        # Of all rounds: each has its own, by which it was played.
        "execution_alone_ms": {
            name: statistics.median(one["costs_ms"][name] for one in played) for name in names
        },
        "rounds": min(cell["rounds"] for cell in cells),
        "cells": cells,
        **({} if average is None else {"against_on_average": average}),
        "passed": judge_all([*(cell["passed"] for cell in cells), verdict]),
        PLAYED: list(played),
    }


def rejudge(result: Mapping[str, Any]) -> Verdict:
    """Judge a result, also one that was written before; the oldest have no rounds to judge."""
    if PLAYED in result:
        passed: Verdict = summarize({}, result[PLAYED])["passed"]
        return passed
    return judge_all(cell["passed"] for cell in result["cells"])


def report(result: Mapping[str, Any]) -> Report:
    """Make a line for each load and side."""
    costs_ms = [sum(one["costs_ms"].values()) for one in result.get(PLAYED, ())]
    alone = ", ".join(f"{k} {v:.1f} ms" for k, v in result["execution_alone_ms"].items())
    if costs_ms:
        alone += f" (together {min(costs_ms):.1f} to {max(costs_ms):.1f} ms, by round)"
    rows = [
        {
            "load": cell["load"],
            "factor": cell["deadline_factor"],
            "side": side,
            "ratio": _ratio(cell[side]["in_time_per_s"], cell[NAIVE]["in_time_per_s"]),
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
            ("bars", lambda row: say_shortly(row["passed"]) if row["side"] == OURS else ""),
        ),
        *_report_compared(result, cell_columns),
        *show_peer(result, peer_rows, *cell_columns),
        "\n".join(failures),
        say_bars(
            f">= {result['admitted_bar']:.0%} of the admitted met, no fewer in time than the "
            "usual node unless both keep up, results fresher than its, in every cell"
            + ("; the same of the detector alone against the peer" if PEER in result else "")
            + (
                f"; >= {result[AGAINST]['bar']:g} x those in time of "
                f"{result[AGAINST]['commit'][:8]} in every cell, no fewer on average"
                if AGAINST in result
                else ""
            ),
            result["passed"],
        ),
    ]


def _report_compared(result: Mapping[str, Any], cell_columns: Sequence[tuple[str, Any]]) -> Report:
    """Report the intervals by which each cell is judged; earlier results have none."""
    rows = [
        {
            "load": cell["load"],
            "factor": cell["deadline_factor"],
            "rounds": cell["rounds"],
            "other": other,
            **found,
        }
        for cell in result["cells"]
        for other, found in cell.get("compared", {}).items()
    ]
    if not rows:
        return []

    def show(name: str) -> tuple[str, Any]:
        style = ".1%" if name == "admitted" else ".2f"
        return name.replace("_", " "), lambda row: show_interval(row.get(name), style)

    average = result.get("against_on_average")
    return [
        "ours relative to another side, round by round: median (95 % interval); admitted: the "
        "share met of ours",
        tabulate(
            rows,
            *cell_columns,
            "rounds, ours against=other",
            *(show(name) for name in ("in_time", *(f"age_{name}" for name in AGES), "admitted")),
            ("bars", lambda row: say_shortly(row["passed"])),
            ("which", name_undecided),
        ),
        f"in time relative to {result[AGAINST]['commit'][:8]}, mean over the cells: "
        f"{show_interval(average, '.3f')}"
        if average
        else "",
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


def _play_load(
    load: float,
    costs_ms: Mapping[str, float],
    spec: ConsumerSpec,
    sides: Sequence[str],
    earlier: Sequence[Mapping[str, Any]],
    args: argparse.Namespace,
) -> list[dict[str, Any]]:
    """Play one round of every side for each deadline at one load."""
    folder, total_ms = spec.output.parent, sum(costs_ms.values())
    rate_hz = load * 1e3 / total_ms
    stamps_file, received_file = folder / "stamps", folder / "received"
    source = f"images:{folder / 'frames'}"
    played: list[tuple[float, int, dict[str, Rounds]]] = []
    with (
        Child(python_command(NODES, "camera", source, repr(rate_hz), str(stamps_file))),
        Child(python_command(NODES, "listener", str(received_file))),
    ):
        for factor in args.deadline_factors:
            number = count_rounds(earlier, load, factor)
            rounds = {}
            for side in order(sides, number):
                deadline_ms = factor * total_ms
                own = replace(
                    spec,
                    # As a user would who knows the camera: `threads: auto` chooses for it.
                    tasks=tuple(replace(one, expected_frequency=rate_hz) for one in spec.tasks),
                    deadline_ms=deadline_ms - args.margin_ms,
                    follows_load=side in (OURS, AGAINST) and not args.fixed,
                )
                rounds[side] = Rounds()
                try:
                    # The last frames get the time until their deadline.
                    one = play(side, own, args.seconds, 2 * deadline_ms / 1e3)
                except BenchmarkError as error:
                    say(f"overload: {side}: {error}")
                    rounds[side].failures.append(str(error))
                    continue
                rounds[side].played.append(one)
            played.append((factor, number, rounds))
            say(f"overload: load {load:g}, deadline {factor:g}: round {number + 1} played")
    stamps_ns = list(read_sent_ns(stamps_file))
    received = json.loads(received_file.read_text(encoding="utf-8"))
    found = []
    for factor, number, rounds in played:
        deadline_ns = int(factor * total_ms * 1e6)
        if PEER in rounds:
            check_stamps(rounds[PEER], stamps_ns)
        alone = {
            side: describe_detector(rounds[side], stamps_ns, deadline_ns)
            for side in sides
            if PEER in rounds
        }
        found.append(
            {
                "load": load,
                "deadline_factor": factor,
                "round": number,
                "costs_ms": dict(costs_ms),
                "rate_hz": rate_hz,
                "deadline_ms": factor * total_ms,
                "sides": {
                    side: describe(rounds[side], stamps_ns, len(spec.tasks), deadline_ns)
                    for side in sides
                    if side != PEER
                },
                **({DETECTOR: alone} if alone else {}),
                # Of all deadlines of this load together.
                "listener": {topic: len(stamps) for topic, stamps in received.items()},
            }
        )
    return found


def count_rounds(played: Sequence[Mapping[str, Any]], load: float, factor: float) -> int:
    """Count the rounds that a cell has."""
    return sum(one["load"] == load and one["deadline_factor"] == factor for one in played)
