# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Compare the time of a network inside the node with that of its bare back end.

One network on frames of a video, in three processes in turn, each with this package's set-up of a
process and the same number of threads:

- bare: a runner of the back end and nothing else, one run after the other;
- paced: the same, each run begins a period after the last one began, as frames come;
- node: the composed graph, camera and detector, at that rate: the execution time of the stages of
  the network in the records of its jobs.

The period is such that the runs take `--load` of it. What paced takes longer than bare is due to
caches and cores that cool down between frames, whatever runs the network; the rest is the node's.
Frames that the node did not meet have no time; they are counted.
Bar: p50 and p99 in the node at most 1.1 times those of bare, by the 95 % interval over the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from benchmarks.harness.intervals import LEAST_ROUNDS, Interval, show_interval
from benchmarks.harness.options import BESIDE, CORES, DATA, VIDEO, YOLOX, Options, echo
from benchmarks.harness.processes import BenchmarkError
from benchmarks.harness.tables import Report, Verdict, judge_all, say, say_verdict, tabulate
from benchmarks.harness.tasks import configure
from benchmarks.harness.timing import Times, quantile_ms, take_turns
from jetson_dnn_rt.backends.registry import create_runner
from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.config.process import RealtimeConfig
from jetson_dnn_rt.config.task import NO_CACHE
from jetson_dnn_rt.errors import JetsonDnnRtError
from jetson_dnn_rt.runtime.realtime import Realtime
from jetson_dnn_rt.runtime.task import open_model
from jetson_dnn_rt.safety.children import child_environment, python_command
from jetson_dnn_rt.tasks import SHARED_STAGES, JobRecord, Outcome
from jetson_dnn_rt.variants.measuring.sample_frames import open_frames, prepare_inputs
from jetson_dnn_rt.variants.spec import VariantSpec

BAR = 1.1
SIDES = ("bare", "paced", "node")
SHARES = {"p50": 0.5, "p99": 0.99}
FRAMES = 16
WARM_UP_RUNS = 20
_LIMIT_S = 120.0  # of a process, besides the time that it measures


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--data", DATA, f"folder with {VIDEO} and {YOLOX} ({BESIDE})", metavar="DIR")
    add(
        "--variants", ["full@onnxruntime-fp32", "full@openvino-fp32"], "of the network",
        metavar="NAME",
    )  # fmt: skip
    add("--load", 0.5, "share of a period that the network takes", above=0, most=1)
    add("--threads", CORES, "of one inference (default: all cores)", least=1)
    add("--rounds", LEAST_ROUNDS, "of every variant and side", least=1)
    add("--seconds", 6.0, "of a round", above=0)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure the sides in turn; `BenchmarkError` when one of the processes fails."""
    variants = []
    with tempfile.TemporaryDirectory(prefix="inside-") as name:
        folder = Path(name)
        _write_frames(args.data / VIDEO, folder / "frames")
        for variant in args.variants:
            spec = {
                "variant": variant,
                "model": f"onnx:{args.data / YOLOX}",
                "threads": args.threads,
                "seconds": args.seconds,
                "frames": str(folder / "frames"),
                "output": str(folder / "times"),
            }
            alone, _ = _play("bare", {**spec, "seconds": 1.0})
            period_ms = quantile_ms(alone, 0.5) / args.load
            rounds: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
            for side in take_turns(SIDES, args.rounds, f"inside: {variant}"):
                times, not_met = _play(side, {**spec, "period_ms": period_ms})
                figures = {key: quantile_ms(times, share) for key, share in SHARES.items()}
                rounds[side].append({"runs": len(times), "not_met": not_met, **figures})
            variants.append(describe(variant, period_ms, rounds))
    result = {
        "video": VIDEO,
        "model": YOLOX,
        "bar": BAR,
        **echo(args, "load threads rounds seconds"),
        "variants": variants,
    }
    return {**result, "passed": rejudge(result)}


def rejudge(result: Mapping[str, Any]) -> Verdict:
    """Judge a result, also one that was written before."""
    return judge_all(_is_near(one["sides"]) for one in result["variants"])


def _is_near(sides: Mapping[str, Mapping[str, Any]]) -> Verdict:
    """Whether the node takes about as long as the bare back end."""
    node = sides["node"]
    if "p50_ratios" not in node:  # earlier results have no rounds
        return all(node[f"{key}_ratio"] <= BAR for key in SHARES)
    return judge_all(Interval.of(node[f"{key}_ratios"]).judge(most=BAR) for key in SHARES)


def describe(
    variant: str, period_ms: float, rounds: Mapping[str, list[dict[str, float]]]
) -> dict[str, Any]:
    """Describe the sides of a variant by medians over their rounds."""
    sides: dict[str, dict[str, Any]] = {}
    for side, played in rounds.items():
        sides[side] = {key: sum(one[key] for one in played) for key in ("runs", "not_met")}
        for key in SHARES:
            # Round by round, since the machine is not the same all the time.
            ratios = [a[key] / b[key] for a, b in zip(played, rounds["bare"], strict=True)]
            sides[side] |= {
                f"{key}_ms": statistics.median(one[key] for one in played),
                f"{key}_ratio": statistics.median(ratios),
            }
            if side != "bare":
                sides[side][f"{key}_ratios"] = [round(ratio, 4) for ratio in ratios]
    passed = _is_near(sides)
    return {"variant": variant, "period_ms": period_ms, "sides": sides, "passed": passed}


def report(result: Mapping[str, Any]) -> Report:
    """Make a line for each variant and side."""
    rows = [
        {"side": side, **one, **figures}
        for one in result["variants"]
        for side, figures in one["sides"].items()
    ]
    return [
        f"{result['threads']} threads, the network takes {result['load']:g} of the time",
        tabulate(
            rows,
            "variant, side, runs, not met=not_met, p50 ms=p50_ms:.2f, p99 ms=p99_ms:.2f",
            *((f"{key} x bare", partial(_show_ratio, key)) for key in SHARES),
        ),
        f"bar: node <= {BAR:g} x bare: {say_verdict(result['passed'])}",
    ]


def _show_ratio(key: str, row: Mapping[str, Any]) -> str | None:
    ratios = row.get(f"{key}_ratios")
    return show_interval(Interval.of(ratios).to_dict()) if ratios else f"{row[f'{key}_ratio']:.2f}"


def _write_frames(video: Path, folder: Path) -> None:
    """Write some frames as files that cost a camera next to nothing to read."""
    folder.mkdir()
    for frame in open_frames(f"video:{video}", FRAMES):
        cv2.imwrite(str(folder / f"{frame.sequence:05d}.bmp"), frame.image)


def _play(side: str, spec: Mapping[str, Any]) -> tuple[Times, int]:
    """Run one side in a process of its own: times of its runs, how many frames were not met."""
    command = python_command("benchmarks.inside", side, json.dumps(spec))
    limit_s = _LIMIT_S + spec["seconds"]
    try:
        done = subprocess.run(command, env=child_environment(), stdout=sys.stderr, timeout=limit_s)
    except subprocess.TimeoutExpired as error:
        raise BenchmarkError(f"inside: {side} did not end within {limit_s:g} s") from error
    if done.returncode:
        raise BenchmarkError(f"inside: {side} ended with exit code {done.returncode} (see above)")
    played = json.loads(Path(spec["output"]).read_text(encoding="ascii"))
    return np.array(played["times_ns"], np.int64), played["not_met"]


# -- the processes -------------------------------------------------------------------------------


def play_bare(spec: Mapping[str, Any], period_ns: int) -> list[int]:
    """Run the back end alone, beginning every `period_ns`; 0 = without a pause."""
    realtime, clock = Realtime(RealtimeConfig()), SteadyClock()
    realtime.apply_to_process()
    model = open_model(configure("detector", spec["model"], kind="detection"))
    chosen = VariantSpec.parse(spec["variant"])
    images = prepare_inputs(model, open_frames(f"images:{spec['frames']}", FRAMES))
    runner = create_runner(model, chosen.backend, chosen.precision, threads=spec["threads"])
    buffer = runner.allocate_input()

    def infer(index: int) -> int:
        np.copyto(buffer, images[index % len(images)])
        start_ns = time.perf_counter_ns()
        runner.run([buffer])
        return time.perf_counter_ns() - start_ns

    for index in range(WARM_UP_RUNS):
        infer(index)
    realtime.freeze()
    times_ns: list[int] = []
    begin_ns = due_ns = clock.now_ns()
    while due_ns < begin_ns + spec["seconds"] * 1e9:
        times_ns.append(infer(len(times_ns)))
        due_ns = max(due_ns + period_ns, clock.now_ns())
        if period_ns:
            clock.sleep_until_ns(due_ns)
    runner.close()
    return times_ns


def play_node(spec: Mapping[str, Any]) -> tuple[list[int], int]:
    """Run camera and detector in one process; see `take_times`."""
    from jetson_dnn_rt.nodes.process.graph import run_graph

    records: list[JobRecord] = []
    detector: dict[str, object] = {
        "model": spec["model"],
        "variants": [spec["variant"]],
        "threads": spec["threads"],
        "warmup_runs": WARM_UP_RUNS,
        "deadline_ms": 1e3,
        "engine_cache": NO_CACHE,
    }
    camera = {"source": f"images:{spec['frames']}", "rate": 1e3 / spec["period_ms"]}
    report = run_graph(
        None, {"perception": {"tasks": ["detector"]}, "camera": camera, "detector": detector},
        frames=None, seconds=spec["seconds"],
        observer=lambda record, work: records.append(record),
    )  # fmt: skip
    return take_times(spec["variant"], records, report.left_out["detector"])


def take_times(
    variant: str, records: Sequence[JobRecord], left_out: Mapping[str, str]
) -> tuple[list[int], int]:
    """Take the network's time of each met frame, and how many frames were not met.

    `BenchmarkError` when the variant is among those `left_out`, another one ran, or none was met.
    """
    if left_out:
        raise BenchmarkError("; ".join(left_out.values()))
    if others := {record.variant for record in records} - {variant}:
        raise BenchmarkError(f"frames ran as {', '.join(sorted(others))}, not as {variant}")
    times_ns = [
        sum(one.execution_time_ns for one in record.stages if one.name not in SHARED_STAGES)
        for record in records
        if record.outcome is Outcome.MET
    ]
    if not times_ns:
        reasons = Counter(record.reason or record.outcome.value for record in records)
        why = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        raise BenchmarkError(f"no frame was met: {why or 'none came'}")
    return times_ns, len(records) - len(times_ns)


def main(side: str, text: str) -> int:
    """Measure one side in this process, and write its times; 1 with the reason on stderr."""
    spec = json.loads(text)
    period_ns = round(spec["period_ms"] * 1e6) if side == "paced" else 0
    try:
        times_ns, not_met = play_node(spec) if side == "node" else (play_bare(spec, period_ns), 0)
    except JetsonDnnRtError as error:
        say(f"inside: {side}: {error}")
        return 1
    played = {"times_ns": times_ns, "not_met": not_met}
    Path(spec["output"]).write_text(json.dumps(played), encoding="ascii")
    return 0


if __name__ == "__main__":
    say(f"inside: {sys.argv[1]}")
    sys.exit(main(*sys.argv[1:]))
