# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""One model on several cameras: batches against the same frames one by one.

sizes  for each size of batch its time and that of its frames one by one on the workers, in turn,
       as the nodes measure it when they start.
drive  all cameras out of step, with the work of the load (1 = all that the workers can do one by
       one), EDF. Two sides take turns: with and without batches. Bar: with batches no fewer frames
       are met than without, in the median of the rounds, within the tolerance; not judged where no
       batch was formed.

Both sides run in turn, so that other load of the machine affects both.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from typing import Any

import numpy as np

from benchmarks.harness.options import CORES, Options, echo
from benchmarks.harness.processes import BenchmarkError
from benchmarks.harness.tables import Report, Table, Verdict, judge_all, say, say_bars, tabulate
from benchmarks.harness.tasks import (
    add_task,
    configure,
    drain,
    draw_frames,
    find_cost_ns,
    load_task,
    require_variants,
    running,
    tick,
)
from benchmarks.harness.timing import take_turns
from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.runtime.task import Task
from jetson_dnn_rt.tasks import JobRecord, Outcome
from jetson_dnn_rt.variants.running.batching import MAX_SHARE, BatchGroup

SIDES = ("batches", "one by one")
_SCENES = 4
_GROUP = "cameras"


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--model", "builtin:detector")
    add("--variants", ["full@openvino-fp32", "full@onnxruntime-fp32"], metavar="NAME")
    add("--cameras", 3, least=2, metavar="N")
    add(
        "--loads", [0.8, 1.3, 2.0],
        "work that arrives, one by one, over what the workers can do", above=0, metavar="LOAD",
    )  # fmt: skip
    add("--workers", 1, "stages side by side", least=1)
    add("--threads", CORES, "of one inference (default: all cores)", least=1)
    add(
        "--max-share", MAX_SHARE,
        "a batch may take this share of its frames' time one by one, else it is not formed; the "
        "nodes take it too", above=0, metavar="SHARE",
    )  # fmt: skip
    add("--runs", 30, "measured runs of a size", least=1)
    add("--rounds", 9, "of the drive", least=1)
    add("--seconds", 1.5, "of a round of one side", above=0)
    add("--deadline-factor", 2.0, "relative deadline = F periods", above=0, metavar="F")
    add("--tolerance", 0.03, "share of the met frames that other load may cost")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure every variant."""
    rows = [_measure(args, variant) for variant in args.variants]
    return {
        **echo(args, "model cameras workers threads deadline_factor max_share tolerance"),
        "variants": rows,
        "passed": judge_all(drive["passed"] for row in rows for drive in row["drives"]),
    }


def rejudge(result: Mapping[str, Any]) -> Verdict:
    """Judge a result that was written before."""
    return judge_all(
        judge(drive["load"], drive["sides"], result["tolerance"])["passed"]
        for row in result["variants"]
        for drive in row["drives"]
    )


def _measure(args: argparse.Namespace, variant: str) -> dict[str, Any]:
    with ExitStack() as stack:
        bench = _Bench(args, variant, stack)
        say(f"batching: {variant}: sizes")
        sizes = bench.measure_sizes(args.runs)
        rounds: dict[tuple[float, str], list[list[JobRecord]]] = {}
        sides = product(args.loads, SIDES)
        for load, side in take_turns(sides, args.rounds, f"batching: {variant}"):
            rounds.setdefault((load, side), []).append(bench.play(load, side))
        return {
            "variant": variant,
            "single_ms": bench.cost_ns / 1e6,
            "sizes": sizes,
            "drives": [
                judge(
                    load,
                    {side: describe(rounds[load, side], args.seconds) for side in SIDES},
                    args.tolerance,
                )
                for load in args.loads
            ],
        }


def describe(rounds: Sequence[Sequence[JobRecord]], seconds: float) -> dict[str, Any]:
    """Describe the frames of one side at one load, round by round.

    `in_batches` is the share of the inferences that ran in a batch.
    """
    records = [record for one in rounds for record in one]
    met = [[record for record in one if record.outcome is Outcome.MET] for one in rounds]
    met_per_s = [len(one) / seconds for one in met]
    responses_ms = [record.response_time_ns / 1e6 for one in met for record in one]
    batches = [stage.batch for record in records for stage in record.stages[1:-1]]
    outcomes = Counter(record.outcome.value for record in records)
    p50, p99 = np.percentile(responses_ms, (50, 99)).tolist() if responses_ms else (None, None)
    return {
        "frames": len(records),
        "met_per_s": float(np.median(met_per_s)),
        "met_per_s_by_round": [round(value, 2) for value in met_per_s],
        "response_p50_ms": p50,
        "response_p99_ms": p99,
        "in_batches": 1.0 - batches.count(1) / len(batches) if batches else 0.0,
        "outcomes": dict(outcomes.most_common()),
    }


def judge(load: float, sides: Mapping[str, Mapping[str, Any]], tolerance: float) -> dict[str, Any]:
    """Compare the sides round by round: the speed of a machine changes by tens of percent.

    Where no batch was formed, both sides did the same: nothing is judged.
    """
    batched, alone = (sides[side]["met_per_s_by_round"] for side in SIDES)
    ratios = [one / other for one, other in zip(batched, alone, strict=True) if other]
    gain = float(np.median(ratios)) - 1.0 if ratios else None
    formed = sides[SIDES[0]]["in_batches"] > 0.0
    passed = gain >= -tolerance if formed and gain is not None else None
    return {"load": load, "gain": gain, "passed": passed, "sides": sides}


class _Bench:
    """Cameras with a task each, all of one model in one variant."""

    def __init__(self, args: argparse.Namespace, variant: str, stack: ExitStack) -> None:
        self._args = args
        self._tasks: list[Task] = []
        for index in range(args.cameras):
            first = self._tasks[0] if self._tasks else None
            config = configure(
                f"camera-{index}", args.model, [variant], weights="DEFAULT", batch="auto",
                warmup_runs=args.runs,
            )  # fmt: skip
            task = load_task(
                stack, config, threads=args.threads, find_like=lambda key, first=first: first,
                model=first and first.model,
            )  # fmt: skip
            self._tasks.append(require_variants(task))
        # A session forms its own groups, with a fixed `max_share`, and keeps them.
        self._group = BatchGroup(
            {task.name: task.variants for task in self._tasks},
            workers=args.workers, clock=SteadyClock(), max_share=args.max_share,
        )  # fmt: skip
        stack.callback(self._group.close)
        self._frames = draw_frames(_SCENES)

    @property
    def cost_ns(self) -> float:
        """Compute the median time of a frame alone, as the median over the tasks."""
        return float(np.median([find_cost_ns(task) for task in self._tasks]))

    def measure_sizes(self, runs: int) -> list[dict[str, Any]]:
        """Measure the sizes of batches, and every task's stages."""
        reports = self._group.prepare(self._frames[0], runs)
        for task in self._tasks:
            task.warm_up(self._frames)
        return [
            {
                "size": report.size,
                "batch_ms": report.batch_ns / 1e6,
                "one_by_one_ms": report.single_ns / 1e6,
                "memory_mb": report.memory_bytes / 1e6,
                "refusal": report.refusal,
            }
            for report in reports
        ]

    def play(self, load: float, side: str) -> list[JobRecord]:
        """Play one round of one side."""
        count, batches = len(self._tasks), side == SIDES[0]
        period_ns = round(count * self.cost_ns / self._args.workers / load)
        records: list[JobRecord] = []
        executor = Executor(self._args.workers)
        for task in self._tasks:
            add_task(
                executor, task, lambda record, work: records.append(record),
                period_ns=period_ns,
                deadline_ns=round(self._args.deadline_factor * period_ns),
                batch_group=_GROUP if batches else "",
            )  # fmt: skip
        first = self._tasks[0]
        names = [stage.name for stage in first.stages[first.default]][1:-1]
        for report, (index, stage) in product(self._group.reports, enumerate(names)):
            if batches and report.used:
                times_ns = [run[index] for run in report.times_ns]
                executor.seed_batch_budgets(
                    first.name, first.default, stage, report.size, times_ns
                )
        step_ns = period_ns / count
        frames = max(1, int(self._args.seconds * 1e9 / step_ns))
        with running(executor):
            # The cameras are out of step, at even distances.
            for index, _ in tick(executor.clock, step_ns, frames):
                scene = self._frames[index % len(self._frames)]
                frame = Frame(scene.image, scene.encoding, 0, index // count)
                name = self._tasks[index % count].name
                executor.submit(name, frame, executor.clock.now_ns())
            drain(executor)
        if len(records) != frames:
            raise BenchmarkError(f"{len(records)} of {frames} frames ended")
        return records


def report(result: Mapping[str, Any]) -> Report:
    """Make two tables per variant: sizes, and the drive."""
    parts: list[str | Table] = [
        f"{result['model']}, {result['cameras']} cameras, {result['workers']} workers x "
        f"{result['threads']} threads, deadline {result['deadline_factor']:g} periods"
    ]
    for row in result["variants"]:
        drives = [
            {
                "load": drive["load"],
                "side": side,
                "change": f"{drive['gain']:+.0%}" if side == SIDES[0] and drive["gain"] else "",
                **figures,
            }
            for drive in row["drives"]
            for side, figures in drive["sides"].items()
        ]
        parts += [
            f"{row['variant']}: {row['single_ms']:.2f} ms a frame alone",
            tabulate(
                row["sizes"],
                "batch of=size, ms=batch_ms:.2f, one by one=one_by_one_ms:.2f",
                ("change", lambda one: f"{one['batch_ms'] / one['one_by_one_ms'] - 1.0:+.0%}"),
                ("", lambda one: one["refusal"] or f"{one['memory_mb']:.0f} MB"),
            ),
            tabulate(
                drives,
                "load:g, side, met/s=met_per_s:.1f, gain=change",
                "p50 ms=response_p50_ms:.1f, p99 ms=response_p99_ms:.1f",
                "in batches=in_batches:.0%",
            ),
        ]
    bars = f"at most {result['tolerance']:.0%} fewer frames met where batches were formed"
    return [*parts, say_bars(bars, result["passed"])]
