# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A long bag through `jetson-dnn-rt evaluate`: no frame lost, and the simulation predicts the run.

1. The detector on every frame of the bag, twice (sequential). Bars: every frame kept, both
   repetitions identical to the bit, memory flat.
2. The detector on the first frames in one process, and on a Dask cluster of two, of which one is
   killed half-way. Bar: the same results, times of as many runs.
3. Detector and segmenter on some frames while a load on every core comes and goes, for their times
   (sequential); rate and deadlines are chosen so that by the simulator some 15 % of the frames are
   missed.
4. Both in real time at that rate with those deadlines under that load, and the trace of that run
   through the simulator. Bar: the miss ratios of all frames are within 2 percentage points; the
   tasks are shown without bars. If less than 5 or more than 30 % are missed, the comparison is
   meaningless, and fails.

The prediction of step 3 is shown beside it: made from other times, it has no bar.
The bag is --bag, or written from --video first (10,000 frames of 480x270 as JPEG, 0.3 GB).
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fidelity import busy_now_and_then
from benchmarks.harness.options import BESIDE, DATA, VIDEO, Options
from benchmarks.harness.processes import BenchmarkError, make_command, read_answer, run_command
from benchmarks.harness.tables import Report, flatten, say, say_verdict, tabulate
from jetson_dnn_rt.cameras.bags.image_bag import open_image_bag
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.bag import read_frames, write_bag
from jetson_dnn_rt.lab.evaluate.simulated import WhatIf, read_recorded, simulate_recorded
from jetson_dnn_rt.lab.evaluate.streams import name_stream
from jetson_dnn_rt.lab.simulate.recording import RecordedTask
from jetson_dnn_rt.safety.children import child_environment, safe_spawning
from jetson_dnn_rt.traces.reader import open_trace

QUICK = {"frames": 300, "live_frames": 250, "fleet_frames": 300}
CALIBRATION_FRAMES, QUICK_CALIBRATION_FRAMES = 400, 100
FLEET_CHUNK, WORKERS = 50, 2
MISS_BAR = 0.02
PRESSURE = (0.05, 0.30)
"""Miss ratios at which real time and simulation can be distinguished at all."""
MEMORY_BAR_MB = 32.0
"""More than this from the first chunk to the last is growth: 10,000 decoded frames are 3.9 GB."""

TASKS = ("detector", "segmenter")
RUN_LIMIT_S = 1200.0
_TARGET = 0.15
_PERIOD = 1.8
"""Time between frames, relative to the usual time of both tasks."""
_FACTORS = (0.9, 4.0)
"""Deadlines are searched between these multiples of the usual time."""
_STEPS = 12
_SEEDS = 5
_POLL_S = 0.2


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--bag", None, "a bag with images, in place of one made for this", kind=Path)
    add("--video", DATA / VIDEO, f"that the bag is made of ({BESIDE})", metavar="FILE")
    add("--frames", 10_000, "of the bag", least=1)
    add("--live-frames", 2_500, "in real time", least=1)
    add("--fleet-frames", 2_000, "on the Dask cluster", least=1)
    add("--skip-sequential", False, "only real time against simulated")
    add("--keep", None, "keep bag and outputs there", kind=Path, metavar="DIR")
    add("--quick", False, "few frames: nothing is judged")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure.

    `ConfigurationError` when neither the bag nor the video exists; `BenchmarkError` when an
    evaluation fails.
    """
    if args.quick:
        vars(args).update(QUICK)
    frames, live = args.frames, min(args.frames, args.live_frames)
    calibration = QUICK_CALIBRATION_FRAMES if args.quick else CALIBRATION_FRAMES
    with tempfile.TemporaryDirectory(prefix="replay-") as scratch:
        folder = args.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        if args.bag is None and not args.video.is_file():
            raise ConfigurationError(f"{args.video} is not there; fix: give --video or --bag")
        bag = args.bag
        if bag is None:
            say(f"replay: writing a bag of {frames} frames")
            bag = write_bag(folder / "bag", read_frames(args.video, frames, height=270))
        sequential, fleet = None, None
        if not args.skip_sequential:
            sequential = _keep_every_frame(bag, frames, folder)
            fleet = _share(bag, min(frames, args.fleet_frames), folder)
        comparison = _compare(bag, live, min(frames, calibration), folder)
    passed = all(part["passed"] for part in (sequential, fleet, comparison) if part is not None)
    return {
        "bag": (args.bag or args.video).name,
        "sequential": sequential,
        "fleet": fleet,
        "realtime": comparison,
        "bars": {
            "miss_difference": MISS_BAR,
            "pressure": list(PRESSURE),
            "memory_growth_mb": MEMORY_BAR_MB,
        },
        "passed": None if args.quick else passed,
    }


def evaluate(arguments: Sequence[str]) -> dict[str, Any]:
    """Run `jetson-dnn-rt evaluate ... --json` in a process of its own."""
    return run_command("evaluate", *arguments, limit_s=RUN_LIMIT_S, codes=(0, 1))


# -- sequential ----------------------------------------------------------------------------------


def _keep_every_frame(bag: Path, frames: int, folder: Path) -> dict[str, Any]:
    arguments = [str(bag), "--frames", str(frames), "--task", TASKS[0], "--repeat", "2"]
    found = evaluate([*arguments, "--output", str(folder / "sequential")])
    (variant, described), *_ = found["tasks"][TASKS[0]]["variants"].items()
    memory = found["memory_mb"]
    growth_mb = memory["last"] - memory["first"]
    kept = found["frames"]
    return {
        "variant": variant,
        "messages": found["messages"],
        "kept": kept,
        "runs": described["runs"],
        "lost": found["lost"],
        "identical": found["identical"],
        "digest": next(iter(described["digests"].values())),
        "memory_mb": memory,
        "memory_growth_mb": round(growth_mb, 1),
        "execution_ms": described["execution_ms"],
        "seconds": found["seconds"],
        "passed": bool(
            kept == found["messages"] == frames
            and described["runs"] == 2 * frames
            and not described["failed"]
            and found["identical"]
            and growth_mb <= MEMORY_BAR_MB
        ),
    }


def _share(bag: Path, frames: int, folder: Path) -> dict[str, Any]:
    """Evaluate the same frames alone and on a fleet that loses a worker."""
    given = [str(bag), "--frames", str(frames), "--task", TASKS[0], "--chunk", str(FLEET_CHUNK)]
    alone = evaluate([*given, "--output", str(folder / "alone")])
    results = folder / "fleet" / "results.jsonl"
    results.unlink(missing_ok=True)
    shared, killed_at = _evaluate_on_fleet(
        [*given, "--output", str(results.parent)], results, frames
    )
    (one,), (other,) = (found["tasks"][TASKS[0]]["variants"].values() for found in (alone, shared))
    equal = results.read_bytes() == (folder / "alone" / "results.jsonl").read_bytes()
    same = one["digests"] == other["digests"] and equal
    return {
        "frames": frames,
        "workers": WORKERS,
        "killed_after": killed_at,
        "runs": other["runs"],
        "identical": same,
        "seconds": shared["seconds"],
        "passed": same and one["runs"] == other["runs"] == frames,
    }


def _evaluate_on_fleet(
    arguments: Sequence[str], results: Path, lines: int
) -> tuple[dict[str, Any], int]:
    """Run an evaluation on a Dask cluster of two processes; kill one when half is done.

    Returns its answer, and how many of the `lines` of its results were written at that time.

    `ConfigurationError` when Dask is missing; `BenchmarkError` when it fails, or ended before a
    worker could be killed.
    """
    try:
        from distributed import LocalCluster
    except ImportError as error:
        raise ConfigurationError(
            "fleets need Dask, which is not installed: pip install 'jetson_dnn_rt[fleet]'"
        ) from error
    with (
        safe_spawning(),
        LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, processes=True, dashboard_address=":0",
            host="127.0.0.1",
        ) as cluster,
    ):  # fmt: skip
        command = make_command("evaluate", *arguments, "--scheduler", cluster.scheduler_address)
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=child_environment()
        )
        try:
            at = _kill_half_way(child, cluster, results, lines)
            out, _ = child.communicate(timeout=RUN_LIMIT_S)
        finally:
            child.kill()
            child.wait()
    return read_answer(command, child.returncode, out, (0, 1)), at


def _kill_half_way(child: subprocess.Popen[str], cluster: Any, results: Path, lines: int) -> int:
    end_s = time.monotonic() + RUN_LIMIT_S
    while time.monotonic() < end_s and child.poll() is None:
        done = results.read_bytes().count(b"\n") if results.is_file() else 0
        if done >= lines // 2:
            worker = next(iter(cluster.workers.values()))
            os.kill(worker.pid, signal.SIGKILL)
            say(f"replay: killed a worker after {done} of {lines} frames")
            return done
        time.sleep(_POLL_S)
    raise BenchmarkError("the evaluation ended before a worker could be killed")


# -- real time against simulated -----------------------------------------------------------------


def _compare(bag: Path, frames: int, calibration: int, folder: Path) -> dict[str, Any]:
    with busy_now_and_then():
        evaluate([str(bag), "--frames", str(calibration), "--output", str(folder / "times")])
        with open_image_bag(bag) as images:
            stream = name_stream(str(bag.absolute()), images.topic)
            arrivals = {stream: images.log_times_ns}
        recorded = read_recorded([open_trace(folder / "times")], arrivals)
        rate_hz, deadlines_ms, predicted = choose_deadlines(recorded)
        options = ["--mode", "realtime", "--frames", str(frames), "--rate", f"{rate_hz:.3f}"]
        for task, deadline_ms in deadlines_ms.items():
            options += ["--deadline", f"{task}={deadline_ms:.3f}"]
        live = evaluate([str(bag), *options, "--output", str(folder / "realtime")])
    simulated = evaluate([str(folder / "realtime"), "--mode", "simulated"])
    return {
        "frames": frames,
        "rate_hz": rate_hz,
        "deadlines_ms": deadlines_ms,
        "predicted_miss_ratio": predicted,
        "behind": sum(each["behind"] for each in live["bags"]),
        **compare_misses(live, simulated),
    }


def compare_misses(live: Mapping[str, Any], simulated: Mapping[str, Any]) -> dict[str, Any]:
    """Compare the miss ratios of a replay in real time and of its simulation."""
    pairs = {
        name: (task["miss_ratio"], simulated["tasks"][name]["miss_ratio"])
        for name, task in live["tasks"].items()
    }
    pairs["all"] = live["miss_ratio"], simulated["miss_ratio"]
    low, high = PRESSURE
    pressed = low <= live["miss_ratio"] <= high
    tasks = {
        name: {"realtime": one, "simulated": other, "difference": abs(one - other)}
        for name, (one, other) in pairs.items()
    }
    agree = tasks["all"]["difference"] <= MISS_BAR
    return {"tasks": tasks, "pressed": pressed, "passed": pressed and agree}


def choose_deadlines(recorded: Sequence[RecordedTask]) -> tuple[float, dict[str, float], float]:
    """Choose rate in Hz and deadlines in ms at which the simulator misses some 15 % of the frames.

    The third value is the miss ratio that it predicts.
    """
    usual_ns = {task.name: float(task.base_ns[0].sum()) for task in recorded}
    rate_hz = 1e9 / (_PERIOD * sum(usual_ns.values()))
    before_ns = np.cumsum(list(usual_ns.values())).tolist()

    def scale(factor: float) -> dict[str, float]:
        return {name: factor * ns for name, ns in zip(usual_ns, before_ns, strict=True)}

    def miss_ratio(factor: float) -> float:
        deadlines = {name: round(ns) for name, ns in scale(factor).items()}
        what_if = WhatIf(deadlines_ns=deadlines, rate_hz=rate_hz, seeds=_SEEDS, block_ms=500.0)
        tallies = simulate_recorded(recorded, what_if, lambda record: None)
        return float(np.mean([tally.miss_ratio for tally in tallies]))

    low, high = _FACTORS
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if miss_ratio(middle) > _TARGET else (low, middle)
    deadlines_ms = {name: ns / 1e6 for name, ns in scale(high).items()}
    return rate_hz, deadlines_ms, miss_ratio(high)


# -- report --------------------------------------------------------------------------------------


def report(result: Mapping[str, Any]) -> Report:
    """Report the outcomes of the frames, and real time against simulated."""
    lines = []
    if kept := result["sequential"]:
        memory = kept["memory_mb"]
        same = "identical" if kept["identical"] else "DIFFERENT"
        lines += [
            f"sequential, {kept['variant']}: {kept['kept']} of {kept['messages']} frames, "
            f"2 repetitions {same}, {kept['seconds']:.0f} s",
            f"memory {memory['first']:.0f} MB after the first chunk, {memory['last']:.0f} MB "
            f"after the last (bar: +{MEMORY_BAR_MB:.0f})",
        ]
    if fleet := result["fleet"]:
        same = "the same as one process" if fleet["identical"] else "DIFFERENT from one process"
        lines.append(
            f"fleet of {fleet['workers']}, one killed after {fleet['killed_after']} frames: "
            f"{fleet['runs']} of {fleet['frames']} frames, {same}, {fleet['seconds']:.0f} s"
        )
    live = result["realtime"]
    deadlines = ", ".join(f"{task} {ms:.1f} ms" for task, ms in live["deadlines_ms"].items())
    low, high = PRESSURE
    pressed = "" if live["pressed"] else f"misses are not in [{low:.0%}, {high:.0%}]: not judged\n"
    return [
        "\n".join(lines),
        f"{live['frames']} frames at {live['rate_hz']:.1f} Hz, deadlines {deadlines}; "
        f"expected beforehand {100 * live['predicted_miss_ratio']:.1f} % missed",
        tabulate(flatten(live["tasks"]), "task=name, realtime:.2%, simulated:.2%, difference:.2%"),
        f"{pressed}bars: all frames, identical, memory, {100 * MISS_BAR:.0f} points: "
        f"{say_verdict(result['passed'])}",
    ]
