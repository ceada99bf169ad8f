# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Cancelling a run that is under way: how soon it ends, and what that is worth under overload.

latency   runs of each network on each back end that can cancel, told to end at a random moment of
          their usual time: from the order to the error. After each, the next run must give the
          same bits as before. Orders that came when the run was over are counted apart.
overload  two networks under the executor, more frames than fit: whole; cancelled as soon as they
          are hopeless; in stages, whose boundaries abort them; both. Sides take turns, round by
          round, on the same frames at the same times. Frames are captured at LOAD / (C1 + C2),
          where C1 and C2 are the times of both alone; the deadline is a multiple of C1 + C2.
          Figures are medians over the rounds: frames in time per second, and the time of a frame
          that ran to its end; both relative to the whole networks in the same round.
urgent    a long network with a loose deadline and a short one with a tight one, which all fit but
          for blocking: without and with `cancel_for_urgent`, and in stages without it. The long
          one takes C1: a frame each 4 C1, deadline 4 C1; the short one C2: each 1.3 C1, 4 C2.

Passes if every run after a cancelled one is right; cancelling delivers at least as many frames in
time as stages do wherever more come than fit, and where all fit a frame takes at most 2 % longer
with it than without; cancelling for urgent frames delivers more of them, and at most 2 % fewer of
the others. Each by the 95 % interval over the rounds.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.backends.bench import MODELS, find_source, load
from benchmarks.harness.intervals import LEAST_ROUNDS, Interval, divide, show_interval
from benchmarks.harness.options import BESIDE, CORES, DATA, VIDEO, YOLOX, Options, echo
from benchmarks.harness.processes import busy_cores
from benchmarks.harness.tables import Report, Verdict, judge_all, say, say_bars, tabulate
from benchmarks.harness.tasks import (
    add_task,
    configure,
    drain,
    draw_frames,
    find_cost_ns,
    load_task,
    running,
    tick,
)
from benchmarks.harness.timing import find_quantiles, frozen_garbage, order, take_turns
from jetson_dnn_rt.backends.base import HostArrays, Runner
from jetson_dnn_rt.backends.registry import create_runner, inspect_backend
from jetson_dnn_rt.errors import JetsonDnnRtError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.runtime.task import Task
from jetson_dnn_rt.runtime.task_entry import Stages
from jetson_dnn_rt.tasks import JobRecord, Outcome
from jetson_dnn_rt.variants.measuring.cancelling import time_cancel
from jetson_dnn_rt.variants.measuring.sample_frames import prepare_inputs

NETWORKS = ("detector", "segmenter", "yolox_nano", "deeplabv3", "resnet50")
BACKENDS = ("onnxruntime", "openvino", "torch")
SIDES = ("whole", "cancelled", "staged", "both")
PARTS = ("latency", "overload", "urgent")
URGENT_SIDES = ("whole", "cancelled", "staged")
VARIANTS = ("full@onnxruntime-fp32", "full@openvino-fp32")
FRAME_BAR, LONG_BAR = 1.02, 0.98
WARM_UP_RUNS = 5
ALONE_RUNS = 30
FRAMES = 16
"""Scenes that both tasks are fed, in turn."""

_MOMENTS = (0.05, 0.85)
"""Range of the moments at which a run is told to end, in shares of its usual time."""


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--parts", list(PARTS), "default: all", choices=PARTS)
    add("--networks", list(NETWORKS), "of latency; default: five", choices=MODELS)
    add("--backends", list(BACKENDS), "of latency; default: all", choices=BACKENDS)
    add("--threads", sorted({1, CORES}), "of latency: of one run", least=1, metavar="N")
    add("--runs", 100, "of latency, cancelled, for each network, back end and N", least=1)
    add("--data", DATA, f"folder with {VIDEO} and {YOLOX} ({BESIDE})", metavar="DIR")
    add("--models", ["yolox_nano", "yolox_nano"], "of overload, two", choices=MODELS)
    add("--urgent-models", ["resnet50", "detector"], "the long and the short", choices=MODELS)
    add("--variants", list(VARIANTS), "of overload and urgent", metavar="NAME")
    add("--busy", [0], "of overload, busy programs beside it", least=0, metavar="N")
    add("--stages", 8, "of overload and urgent, where the networks are cut", least=2)
    add("--loads", [0.5, 1.5, 2.0, 3.0], "of overload", above=0, metavar="LOAD")
    add(
        "--deadline-factors", [1.25], "of overload: deadline = F * (C1 + C2)", above=0, metavar="F"
    )
    add(
        "--inference-threads",
        CORES,
        "of overload and urgent: of one run (default: all cores)",
        least=1,
    )
    add("--rounds", LEAST_ROUNDS, "of overload and urgent, of every side", least=1)
    add("--seconds", 1.0, "of a round", above=0)
    add("--quick", False, "few runs, one short round: nothing is judged")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure the parts; `ModelError` when a run does not end."""
    if args.quick:
        args.runs, args.rounds, args.seconds = 5, 1, 0.5
    result: dict[str, Any] = {}
    if "latency" in args.parts:
        result["latency"] = _measure_latencies(args)
    if "overload" in args.parts:
        result["overload"] = {
            **echo(args, "models stages rounds seconds inference_threads"),
            "cells": _measure_overload(args),
        }
    if "urgent" in args.parts:
        result["urgent"] = _measure_urgent(args)
    return {**result, "passed": None if args.quick else rejudge(result)}


def rejudge(result: Mapping[str, Any]) -> Verdict:
    """Judge a result, also one that was written before; None where no run was cancelled."""
    latencies = [row for row in result.get("latency", ()) if row.get("cancelled")]
    others = [
        *result.get("overload", {}).get("cells", ()),
        *result.get("urgent", {}).get("variants", ()),
    ]
    return judge_all(
        [
            *(row["right"] == row["cancelled"] for row in latencies),
            *(one["passed"] for one in others),
        ]
    )


def report(result: Mapping[str, Any]) -> Report:
    """Make a table of each part."""
    parts: list[Any] = []
    if "latency" in result:
        parts += [
            "latency: from the order to the end of the run, in ms",
            tabulate(
                result["latency"],
                "network, backend, threads, run ms=run_ms:.1f, cancelled, too late=late",
                "p50=latency_ms.p50:.2f, p99=latency_ms.p99:.2f, max=latency_ms.max:.2f",
                "next run right=right, note",
            ),
        ]
    if "overload" in result:
        found = result["overload"]
        for variant in dict.fromkeys(cell["variant"] for cell in found["cells"]):
            cells = [cell for cell in found["cells"] if cell["variant"] == variant]
            costs = [f"{ms:.1f} ms" for ms in cells[0]["alone_ms"]]
            rows = [
                {**cell, "side": side, **cell["sides"][side]} for cell in cells for side in SIDES
            ]
            parts += [
                f"overload: {variant}, {found['inference_threads']} threads; alone: "
                + ", ".join(map(" ".join, zip(found["models"], costs, strict=True))),
                tabulate(
                    rows,
                    "busy",
                    ("load", lambda row: f"{row['load']:g}x"),
                    "deadline ms=deadline_ms:.0f, side, in time/s=in_time_per_s:.1f",
                    "per whole=ratio:.3f, frames ms=frame_ms:.1f, per whole=frame_ratio:.3f",
                    "age p50=age_ms.p50:.1f, p99=age_ms.p99:.1f, wasted=wasted:.1%",
                    ("judged", _show_judged),
                ),
            ]
    if "urgent" in result:
        found = result["urgent"]
        rows = [
            {**row, "side": side, **row["sides"][side]}
            for row in found["variants"]
            for side in URGENT_SIDES
        ]
        parts += [
            f"urgent: {' and '.join(found['models'])}, {found['inference_threads']} threads",
            tabulate(
                rows,
                "variant, side, urgent in time=urgent.met:.1%, long in time=long.met:.1%",
                "long began again=long.again, long ms=long.frame_ms:.1f",
                "lost to cancels=lost:.1%",
                ("more urgent", lambda row: _show_urgent(row, "more_urgent", "+.1%")),
                ("long per whole", lambda row: _show_urgent(row, "long_ratio", ".3f")),
            ),
        ]
    bars = {
        "latency": "the run after a cancel is right",
        "overload": f"as many in time as in stages, frames <= {FRAME_BAR:g} x below saturation",
        "urgent": f"more urgent frames in time, >= {LONG_BAR:g} x of the long ones",
    }
    shown = "; ".join(text for part, text in bars.items() if part in result)
    return [*parts, say_bars(shown, result["passed"])]


def _show_judged(row: Mapping[str, Any]) -> str | None:
    """Format the interval that decides a cell; None for the other sides and older results."""
    if row["side"] != "cancelled" or row.get("judged") is None:
        return None
    what = "in time per staged" if row["load"] > 1.0 else "frame per whole"
    return f"{what} {show_interval(row['judged'], '.3f')}"


def _show_urgent(row: Mapping[str, Any], name: str, style: str) -> str | None:
    return show_interval(row.get(name), style) if row["side"] == "cancelled" else None


# -- latency -------------------------------------------------------------------------------------


def _measure_latencies(args: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for network in args.networks:
        try:
            model, frames, _ = load(network, args.data)
        except JetsonDnnRtError as error:
            rows.append({"network": network, "note": str(error)})
            continue
        (image, *_) = prepare_inputs(model, frames[:1])
        for backend in args.backends:
            for threads in args.threads:
                say(f"cancel: {network} on {backend}, {threads} threads")
                row = {"network": network, "backend": backend, "threads": threads}
                rows.append({**row, **_measure_latency(model, image, backend, threads, args.runs)})
    return rows


def _measure_latency(
    model: Model, image: npt.NDArray[np.float32], backend: str, threads: int, runs: int
) -> dict[str, Any]:
    info = inspect_backend(backend)
    if not info.available:
        return {"note": info.reason}
    with ExitStack() as stack:
        runner = create_runner(model, backend, "fp32", threads=threads)
        stack.callback(runner.close)
        if not runner.can_cancel:
            return {"note": "cannot cancel"}
        return _cancel_runs(runner, image, runs)


def _cancel_runs(runner: Runner, image: npt.NDArray[np.float32], runs: int) -> dict[str, Any]:
    def run_once() -> HostArrays:
        return tuple(np.array(value) for value in runner.to_host(runner.run([image])))

    times_ns = []
    for _ in range(WARM_UP_RUNS):
        begin_ns = time.perf_counter_ns()
        expected = run_once()
        times_ns.append(time.perf_counter_ns() - begin_ns)
    usual_ns = float(np.median(times_ns))
    numbers = random.Random(0)
    latencies_ns: list[int] = []
    late = right = 0
    while len(latencies_ns) < runs and late < 10 * runs:
        pause_ns = numbers.uniform(*_MOMENTS) * usual_ns
        latency_ns = time_cancel(partial(runner.run, [image]), runner.cancel, pause_ns)
        if latency_ns is None:
            late += 1
            continue
        latencies_ns.append(latency_ns)
        right += all(map(np.array_equal, run_once(), expected))
    found: dict[str, Any] = {
        "run_ms": usual_ns / 1e6,
        "cancelled": len(latencies_ns),
        "late": late,
        "right": right,
    }
    if latencies_ns:
        found["latency_ms"] = find_quantiles(latencies_ns, "p50 p99 max", 1e6, 3)
    return found


# -- overload ------------------------------------------------------------------------------------


def _measure_overload(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure every variant with every number of busy programs beside it."""
    frames = draw_frames(FRAMES)
    found = []
    for variant in args.variants:
        with ExitStack() as stack:
            loaded = _load(stack, args.models, variant, args, frames)
            for busy in args.busy:
                with busy_cores(busy):
                    cells = _measure_cells(loaded, frames, args, f"{variant}, {busy} busy")
                found += [{"variant": variant, "busy": busy, **cell} for cell in cells]
    return found


def _load(
    stack: ExitStack,
    models: Sequence[str],
    variant: str,
    args: argparse.Namespace,
    frames: Sequence[Frame],
) -> dict[int, list[Task]]:
    """Load the networks whole and cut, by the number of stages."""
    return {
        stages: [
            load_task(
                stack,
                configure(
                    f"task-{index}",
                    find_source(model, args.data),
                    [variant],
                    stages=stages,
                    warmup_runs=ALONE_RUNS,
                ),
                frames[:4],
                threads=args.inference_threads,
                cancels=True,
            )
            for index, model in enumerate(models)
        ]
        for stages in (1, args.stages)
    }


def _measure_cells(
    loaded: Mapping[int, Sequence[Task]],
    frames: Sequence[Frame],
    args: argparse.Namespace,
    title: str,
) -> Iterator[dict[str, Any]]:
    alone_ms = [find_cost_ns(task) / 1e6 for task in loaded[1]]
    total_ms = sum(alone_ms)
    for factor, load_factor in product(args.deadline_factors, args.loads):
        deadline_ms = factor * total_ms
        play = partial(
            _play, loaded, frames, args, int(deadline_ms * 1e6), total_ms * 1e6 / load_factor
        )
        yield {
            "load": load_factor,
            "deadline_ms": deadline_ms,
            "alone_ms": alone_ms,
            **_compare(play, args.rounds, load_factor, f"{title}, load {load_factor:g}"),
        }


class Round(NamedTuple):
    """What one side delivered in one round."""

    records: list[JobRecord]
    seconds: float

    @property
    def in_time_per_s(self) -> float:
        """Frames in time per second."""
        return sum(record.outcome is Outcome.MET for record in self.records) / self.seconds

    @property
    def frame_ns(self) -> float:
        """Median time of a frame that ran to its end, summed over the tasks; NaN without any."""
        times_ns: dict[str, list[int]] = {record.task: [] for record in self.records}
        for record in self.records:
            if record.outcome in (Outcome.MET, Outcome.LATE):
                times_ns[record.task].append(record.execution_time_ns)
        return sum(float(np.median(times)) if times else math.nan for times in times_ns.values())


def _compare(
    play: Callable[[str], list[JobRecord]], rounds: int, load_factor: float, title: str
) -> dict[str, Any]:
    played: dict[str, list[Round]] = {side: [] for side in SIDES}
    for number in range(rounds):
        for side in order(SIDES, number):
            begin_s = time.monotonic()
            records = play(side)
            played[side].append(Round(records, time.monotonic() - begin_s))
        say(f"cancel: {title}: round {number + 1} of {rounds}")
    sides = {side: _describe(played[side], played["whole"]) for side in SIDES}
    found: dict[str, Any] = {
        "sides": sides,
        "cancelled_per_staged": _find_ratio(
            played["cancelled"], played["staged"], "in_time_per_s"
        ),
    }
    if load_factor > 1.0:
        ratios = _find_ratios(played["cancelled"], played["staged"], "in_time_per_s")
        return {**found, **judge_ratios(ratios, least=1.0)}
    ratios = _find_ratios(played["cancelled"], played["whole"], "frame_ns")
    return {**found, **judge_ratios(ratios, most=FRAME_BAR)}


def judge_ratios(ratios: Sequence[float], **bar: float) -> dict[str, Any]:
    """Judge the rounds that have a ratio; without any the bar is not passed."""
    if not ratios:
        return {"judged": None, "passed": False}
    interval = Interval.of(ratios)
    return {"judged": interval.to_dict(), "passed": interval.judge(**bar)}


def _describe(rounds: Sequence[Round], whole: Sequence[Round]) -> dict[str, Any]:
    """Figures of one side; `wasted` is the share of the work on frames that were not in time."""
    records = [record for one in rounds for record in one.records]
    met = [record for record in records if record.outcome is Outcome.MET]
    work_ns = sum(record.execution_time_ns + record.cancelled_ns for record in records)
    met_ns = sum(record.execution_time_ns for record in met)
    ages_ns = [record.completion_ns - record.capture_ns for record in met]
    return {
        "frames": len(records),
        "in_time_per_s": float(np.median([one.in_time_per_s for one in rounds])),
        "ratio": _find_ratio(rounds, whole, "in_time_per_s"),
        "frame_ms": _find_median([one.frame_ns / 1e6 for one in rounds]),
        "frame_ratio": _find_ratio(rounds, whole, "frame_ns"),
        "age_ms": find_quantiles(ages_ns, "p50 p99", 1e6, 2) if met else None,
        "wasted": 1.0 - met_ns / work_ns if work_ns else None,
        "outcomes": {
            outcome.value: sum(record.outcome is outcome for record in records)
            for outcome in Outcome
        },
    }


def _find_ratio(rounds: Sequence[Round], others: Sequence[Round], figure: str) -> float | None:
    """Median over the rounds of a figure relative to that of another side in the same round."""
    return _find_median(_find_ratios(rounds, others, figure))


def _find_ratios(rounds: Sequence[Round], others: Sequence[Round], figure: str) -> list[float]:
    """Divide a figure of one side by the other's, in each round that has both."""
    pairs = (
        (getattr(one, figure), getattr(other, figure))
        for one, other in zip(rounds, others, strict=True)
    )
    return [divide(*pair) for pair in pairs if not any(map(math.isnan, pair))]


def _find_median(values: Sequence[float]) -> float | None:
    """Median of the rounds in which there was something to measure; None where there was none."""
    known = [value for value in values if not math.isnan(value)]
    return float(np.median(known)) if known else None


def _play(
    loaded: Mapping[int, Sequence[Task]],
    frames: Sequence[Frame],
    args: argparse.Namespace,
    deadline_ns: int,
    period_ns: float,
    side: str,
) -> list[JobRecord]:
    tasks = loaded[args.stages if side in ("staged", "both") else 1]
    times_ns = [(round(period_ns), deadline_ns)] * len(tasks)
    cancels = side in ("cancelled", "both")
    with _recording(Executor(1), tasks, times_ns, cancels=cancels) as (executor, records):
        names = [task.name for task in tasks]
        count = max(1, round(args.seconds * 1e9 / period_ns))
        for index, _ in tick(executor.clock, period_ns, count):
            frame = replace(frames[index % len(frames)], sequence=index)
            executor.submit(names, frame, executor.clock.now_ns())
        drain(executor)
    return records


@contextmanager
def _recording(
    executor: Executor,
    tasks: Sequence[Task],
    times_ns: Sequence[tuple[int, int]],
    *,
    cancels: bool = True,
) -> Iterator[tuple[Executor, list[JobRecord]]]:
    """Run tasks with these periods and deadlines, and record their jobs."""
    records: list[JobRecord] = []
    with frozen_garbage(), running(executor):
        for task, (period_ns, deadline_ns) in zip(tasks, times_ns, strict=True):
            add_task(
                executor,
                task,
                lambda record, work: records.append(record),
                stages=task.stages if cancels else _without_cancel(task.stages),
                deadline_ns=deadline_ns,
                period_ns=period_ns,
            )
        yield executor, records


def _without_cancel(stages: Stages) -> Stages:
    return {
        variant: [replace(stage, cancel=None) for stage in of_variant]
        for variant, of_variant in stages.items()
    }


# -- urgent --------------------------------------------------------------------------------------


def _measure_urgent(args: argparse.Namespace) -> dict[str, Any]:
    frames = draw_frames(FRAMES)
    found = []
    for variant in args.variants:
        with ExitStack() as stack:
            loaded = _load(stack, args.urgent_models, variant, args, frames)
            rounds: dict[str, list[list[JobRecord]]] = {side: [] for side in URGENT_SIDES}
            title = f"cancel: urgent, {variant}"
            for side in take_turns(URGENT_SIDES, args.rounds, title):
                rounds[side].append(_play_urgent(loaded, frames, args, side))
        sides = {
            side: _describe_urgent([record for records in played for record in records])
            for side, played in rounds.items()
        }
        by_round = {side: list(map(_describe_urgent, rounds[side])) for side in URGENT_SIDES}
        found.append({"variant": variant, "sides": sides, **judge_urgent(by_round)})
    return {
        "models": args.urgent_models,
        **echo(args, "stages rounds seconds inference_threads"),
        "variants": found,
    }


def judge_urgent(by_round: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Judge `cancel_for_urgent`: more urgent frames in time, as many frames of the long task."""
    pairs = list(zip(by_round["cancelled"], by_round["whole"], strict=True))
    more = Interval.of(now["urgent"]["met"] - was["urgent"]["met"] for now, was in pairs)
    long = Interval.of(divide(now["long"]["met"], was["long"]["met"]) for now, was in pairs)
    return {
        "more_urgent": more.to_dict(),
        "long_ratio": long.to_dict(),
        # None more is not enough.
        "passed": judge_all([more.judge(least=math.ulp(0.0)), long.judge(least=LONG_BAR)]),
    }


def _play_urgent(
    loaded: Mapping[int, Sequence[Task]],
    frames: Sequence[Frame],
    args: argparse.Namespace,
    side: str,
) -> list[JobRecord]:
    long_ns, short_ns = map(find_cost_ns, loaded[1])
    long_period_ns, short_period_ns = round(4.0 * long_ns), round(1.3 * long_ns)
    times_ns = [(long_period_ns, long_period_ns), (short_period_ns, round(4.0 * short_ns))]
    tasks = loaded[args.stages if side == "staged" else 1]
    given = Executor(1, cancels_for_urgent=side == "cancelled")
    with _recording(given, tasks, times_ns) as (executor, records):
        due = sorted(
            (round(time_ns), task.name)
            for task, (period_ns, _) in zip(tasks, times_ns, strict=True)
            for time_ns in np.arange(0.0, args.seconds * 1e9, period_ns)
        )
        begin_ns = executor.clock.now_ns()
        for index, (time_ns, name) in enumerate(due):
            executor.clock.sleep_until_ns(begin_ns + time_ns)
            frame = replace(frames[index % len(frames)], sequence=index)
            executor.submit(name, frame, executor.clock.now_ns())
        drain(executor)
    return records


def _describe_urgent(records: Sequence[JobRecord]) -> dict[str, Any]:
    """Figures of one side; `lost` is the share of the work that was cancelled."""
    found: dict[str, Any] = {}
    for key, name in (("long", "task-0"), ("urgent", "task-1")):
        mine = [record for record in records if record.task == name]
        met = [record for record in mine if record.outcome is Outcome.MET]
        times_ns = [record.execution_time_ns for record in met]
        found[key] = {
            "frames": len(mine),
            "met": len(met) / len(mine),
            "again": sum(record.cancelled_ns > 0 for record in met),
            "frame_ms": float(np.median(times_ns)) / 1e6 if met else None,
        }
    lost_ns = sum(record.cancelled_ns for record in records)
    work_ns = lost_ns + sum(record.execution_time_ns for record in records)
    return {**found, "lost": lost_ns / work_ns if work_ns else None}
