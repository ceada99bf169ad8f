# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""MLPerf Automotive's own load generator asks, and judges, over ROS.

LoadGen (github.com/mlcommons/mlperf_automotive) issues queries in its scenario ConstantStream, 15
a second. A query is a 640x480 image, published on the camera's topic by a process of its own; it
is answered when the result with the image's stamp arrives there, of every network of the
workload. DDS with the shipped profile is on both ways. LoadGen measures from the time for which
the query was planned, and calls a run VALID if 99.9 % of its queries were answered within a
period, with 99 % confidence.

Networks have random weights, and are not MLPerf's own (SSD-ResNet50, DeepLabv3+ on 8 megapixels):
the figures show the way through the node, and are no result of MLPerf. ``ours`` is this package's
composed graph, whose deadline is the bound less a margin for transport; ``naive`` is the usual
rclpy node of `overload`.

A node that drops a frame gives no answer. LoadGen waits for every answer, so these queries are
answered when it has issued all; they count as late, and their latency means nothing but that.

MLPerf's rules want 100,000 queries and 600 s at least. A run is shortened to `--seconds` unless
`--full` is given; of fewer than 4,603 queries LoadGen cannot call any run VALID.

Sides take turns, round by round. Bars: all runs of ``ours`` are VALID, and its p50 and p99 are not
above those of ``naive`` in any workload, by the 95 % interval of their ratio over at least ten
rounds. Of a shortened run LoadGen's verdict is judged only where a bound was missed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import pickle
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.harness.intervals import LEAST_ROUNDS, compare, show_interval
from benchmarks.harness.options import CORES, Options, echo
from benchmarks.harness.processes import BenchmarkError, Child
from benchmarks.harness.tables import (
    Report,
    Verdict,
    judge_all,
    say,
    say_bars,
    say_shortly,
    tabulate,
)
from benchmarks.harness.tasks import configure, write_frames
from benchmarks.harness.timing import order
from benchmarks.overload.bench import NODES, ConsumerSpec, export
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError
from jetson_dnn_rt.safety.children import python_command

CLIENT = "benchmarks.loadgen.client"
SIDES = ("ours", "naive")
"""Roles in `overload.nodes`."""
GRACE_S = 2.0
"""Time for the last answers, after LoadGen has issued all queries."""
FIX = "install the LoadGen of MLPerf Automotive (github.com/mlcommons/mlperf_automotive)"

SUMMARY, DETAIL, QUERIES = "mlperf_log_summary.txt", "mlperf_log_detail.txt", "queries.json"
"""Files of a run: LoadGen's own two, and the times of each query."""
SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
JUDGED = ("p50", "p99")
_CONSTRAINTS = {
    "Performance constraints satisfied": "bound",
    "Min duration satisfied": "duration",
    "Min queries satisfied": "queries",
    "Early stopping satisfied": "confidence",
}


@dataclass(frozen=True)
class RunSpec:
    """Specification of one run, pickled for the process that issues queries.

    `model` is a name in LoadGen's own configuration; `seconds` shortens the run, 0 does not.
    """

    model: str
    topics: tuple[str, ...]
    frames: Path
    folder: Path
    qps: float
    seconds: float


def load_loadgen() -> ModuleType:
    """Import LoadGen; `BackendUnavailableError` when it, or its scenario, is missing."""
    try:
        loadgen = importlib.import_module("mlperf_loadgen")
    except ImportError as error:
        raise BackendUnavailableError(f"MLPerf's LoadGen is not installed; fix: {FIX}") from error
    if not hasattr(loadgen.TestScenario, "ConstantStream"):
        raise BackendUnavailableError(
            f"this LoadGen, MLPerf Inference's, has no scenario ConstantStream; fix: {FIX}"
        )
    return loadgen


def read_summary(text: str) -> dict[str, Any]:
    """Read LoadGen's verdict, what it does not find satisfied, and its latencies in ms."""
    values = {
        name.strip(): value.strip()
        for name, colon, value in (line.partition(":") for line in text.splitlines())
        if colon
    }
    if "Result is" not in values:
        raise BenchmarkError("LoadGen's summary has no result")

    def find_ms(share: str) -> float:
        return int(values[f"{share} percentile latency (ns)"]) / 1e6

    return {
        "verdict": values["Result is"],
        "unsatisfied": [short for long, short in _CONSTRAINTS.items() if values.get(long) == "NO"],
        "bound_ms": int(values["Target Latency (ns)"]) / 1e6,
        "over_bound": int(values["Samples over target latency"]),
        "latency_ms": {
            "p50": find_ms("50.00"),
            "p99": find_ms("99.00"),
            "p99.9": find_ms("99.90"),
            "max": int(values["Max latency (ns)"]) / 1e6,
        },
    }


def describe(summary: str, queries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Describe a run: LoadGen's summary, and how many queries were never answered, by topic."""
    silent: dict[str, int] = {}
    for query in queries:
        for topic, answered_ns in query["answered_ns"].items():
            silent[topic] = silent.get(topic, 0) + (answered_ns is None)
    unanswered = sum(None in query["answered_ns"].values() for query in queries)
    return {
        "queries": len(queries),
        "unanswered": unanswered,
        "unanswered_by_topic": silent,
        **read_summary(summary),
    }


def judge(runs: Sequence[Mapping[str, Any]], *, shortened: bool) -> bool | None:
    """Whether all runs are VALID; None for shortened ones that kept the bound."""
    if shortened and not any("bound" in run["unsatisfied"] for run in runs):
        return None
    return all(run["verdict"] == "VALID" for run in runs)


def compare_sides(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Hold the latencies of ours against those of the usual node, workload by workload."""
    rows = []
    for workload in dict.fromkeys(run["workload"] for run in runs):
        sides = [
            [run for run in runs if (run["workload"], run["side"]) == (workload, side)]
            for side in SIDES
        ]
        if not all(sides):
            continue
        found = {
            name: compare(*([find_latency(run, name) for run in side] for side in sides))
            for name in JUDGED
        }
        rows.append(
            {
                "workload": workload,
                "rounds": len(sides[0]),
                **{name: interval.to_dict() for name, interval in found.items()},
                "passed": judge_all(interval.judge(most=1.0) for interval in found.values()),
            }
        )
    return rows


def find_latency(run: Mapping[str, Any], name: str) -> float:
    """Find a percentile in ms; infinite beyond the last answer."""
    if run["unanswered"] > (1.0 - SHARES[name]) * run["queries"]:
        return math.inf
    return float(run["latency_ms"][name])


def rejudge(result: Mapping[str, Any]) -> Verdict:
    """Judge a result, also one that was written before, in which no sides were compared."""
    ours = [run for run in result["runs"] if run["side"] == "ours"]
    valid = judge(ours, shortened=result["shortened_to_s"] is not None)
    compared = compare_sides(result["runs"]) if "compared" in result else []
    return judge_all([valid, *(row["passed"] for row in compared)])


def make_workloads(size: tuple[int, int]) -> dict[str, tuple[TaskConfig, ...]]:
    """Make the tasks of each workload; `size` is the height and width that DeepLabv3 gets."""
    ssd = configure("detector", "torchvision:ssdlite320_mobilenet_v3_large", kind="detection")
    deeplab = configure(
        "segmenter",
        "torchvision:deeplabv3_mobilenet_v3_large",
        kind="segmentation",
        input_size=size,
    )
    builtin = (
        configure("detector", "builtin:detector", kind="detection", weights="DEFAULT"),
        configure("segmenter", "builtin:segmenter", kind="segmentation", weights="DEFAULT"),
    )
    return {
        "ssd": (ssd,),
        "deeplabv3": (deeplab,),
        "ssd+deeplabv3": (ssd, deeplab),
        "builtin": builtin,
    }


WORKLOADS = tuple(make_workloads((384, 512)))
TOPIC_OF = {"detection": "detections", "segmentation": "class_mask"}


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--workloads", list(WORKLOADS), choices=WORKLOADS)
    add("--sides", list(SIDES), choices=SIDES)
    add("--qps", 15.0, "queries per second", above=0)
    add("--rounds", LEAST_ROUNDS, "runs of every workload and side", least=1)
    add("--seconds", 60.0, "of each run, which is shortened", above=0)
    add("--full", False, "as long as MLPerf's rules want: almost two hours a run")
    add(
        "--segmenter-size", (384, 512), "height and width for DeepLabv3 (default 384 512)",
        kind=int, nargs=2, metavar="PIXELS",
    )  # fmt: skip
    add("--margin-ms", 4.0, "for transport and publication, of the bound")
    add("--threads", CORES, "of one inference of the usual node (default: all cores)")
    add("--logs", Path("loadgen_logs"), "folder for LoadGen's logs, by workload, side and round")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run every workload on every side; `BackendUnavailableError` without LoadGen."""
    if 1e3 / args.qps <= args.margin_ms:
        raise ConfigurationError(f"--margin-ms leaves nothing of a period at --qps {args.qps:g}")
    load_loadgen()
    workloads = make_workloads(tuple(args.segmenter_size))
    runs = []
    with tempfile.TemporaryDirectory(prefix="loadgen-") as name:
        folder = Path(name)
        frames = write_frames(folder / "frames")
        for workload in args.workloads:
            # An exported file starts quickly, but has lost what the built-in models are fed.
            (folder / workload).mkdir()
            tasks = tuple(
                task if task.model.startswith("builtin:") else export(task, folder / workload)
                for task in workloads[workload]
            )
            for number in range(args.rounds):
                for side in order(args.sides, number):
                    logs = args.logs / f"{workload}_{side}_{number + 1}"
                    figures = _run_side(side, tasks, workload, frames, logs.resolve(), args)
                    row = {"workload": workload, "side": side, "round": number}
                    runs.append({**row, "logs": str(logs), **figures})
                    say(f"loadgen: {workload}, {side}, {number + 1}: {figures['verdict']}")
    result = {
        "loadgen_version": _find_version(),
        **echo(args, "qps margin_ms segmenter_size threads"),
        "shortened_to_s": None if args.full else args.seconds,
        "models": {name: [task.model for task in workloads[name]] for name in args.workloads},
        "runs": runs,
        "compared": compare_sides(runs),
    }
    return {**result, "passed": rejudge(result)}


def _find_version() -> str:
    try:
        return version("mlcommons_loadgen")
    except PackageNotFoundError:  # built in place
        return "unknown"


def _run_side(
    side: str,
    tasks: tuple[TaskConfig, ...],
    workload: str,
    frames: Path,
    logs: Path,
    args: argparse.Namespace,
) -> dict[str, Any]:
    """Run one side under LoadGen, which writes its logs."""
    logs.mkdir(parents=True, exist_ok=True)
    for name in (SUMMARY, DETAIL, QUERIES):
        (logs / name).unlink(missing_ok=True)
    work = frames.parent
    spec = RunSpec(
        # The rates and bounds of both are the same.
        "deeplabv3plus" if workload == "deeplabv3" else "ssd",
        tuple(TOPIC_OF[task.kind] for task in tasks),
        frames,
        logs,
        args.qps,
        0.0 if args.full else args.seconds,
    )
    consumer = ConsumerSpec(
        tasks,
        args.threads,
        1e3 / args.qps - args.margin_ms,
        work / "log",
        follows_load=side == "ours",
    )
    (work / "run").write_bytes(pickle.dumps(spec))
    (work / "spec").write_bytes(pickle.dumps(consumer))
    with ExitStack() as stack:
        # The client goes first: a consumer is ready when it has had a frame.
        client = stack.enter_context(Child(python_command(CLIENT, str(work / "run"))))
        stack.enter_context(Child(python_command(NODES, side, str(work / "spec"))))
        client.wait()
    queries = json.loads((logs / QUERIES).read_text(encoding="utf-8"))
    return describe((logs / SUMMARY).read_text(encoding="utf-8"), queries)


def report(result: Mapping[str, Any]) -> Report:
    """Make a line for each workload and side."""
    seconds = result["shortened_to_s"]
    length = f"shortened to {seconds:g} s: no run of MLPerf's rules" if seconds else "full length"
    title = f"LoadGen {result['loadgen_version']}, ConstantStream, {result['qps']:g} queries/s"
    return [
        f"{title}, {length}",
        tabulate(
            result["runs"],
            "workload, side, round, LoadGen=verdict",
            ("not satisfied", lambda row: ", ".join(row["unsatisfied"]) or "-"),
            "queries, bound ms=bound_ms:.1f, over bound=over_bound, unanswered",
            *((f"{name} ms", partial(_show_latency, name)) for name in SHARES),
        ),
        *_report_compared(result),
    ]


def _report_compared(result: Mapping[str, Any]) -> Report:
    """Report what is judged beside LoadGen's verdict; earlier results have none of it."""
    if "compared" not in result:
        return []
    return [
        "ours relative to the usual node, round by round: median (95 % interval)",
        tabulate(
            result["compared"],
            "workload, rounds",
            *((name, lambda row, name=name: show_interval(row[name])) for name in JUDGED),
            ("bars", lambda row: say_shortly(row["passed"])),
        ),
        say_bars(
            "runs of ours VALID, its p50 and p99 not above the usual node's", result["passed"]
        ),
    ]


def _show_latency(name: str, run: Mapping[str, Any]) -> str:
    """Show a percentile; beyond the last answer there is no time to give."""
    latency_ms = find_latency(run, name)
    return "unanswered" if math.isinf(latency_ms) else f"{latency_ms:.1f}"
