"""One model on several cameras: batches against the same frames one by one.

sizes  for each size of batch its time and that of its frames one by one on the workers, in turn,
       as the nodes measure it when they start.
drive  all cameras out of step, with as much work as the load says (1 = all that the workers can do
       one by one), EDF. Two sides take turns: batches may be formed, or not. Bar: with batches no
       fewer frames are met than without, in the median of the rounds, but for the tolerance.

Everything takes turns, so that what the machine does besides meets both sides.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.harness.options import Options, echo
from benchmarks.harness.processes import BenchmarkError
from benchmarks.harness.tables import Report, Table, say, tabulate
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
from benchmarks.harness.timing import alternate
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
    """Options of the benchmark."""
    add("--model", "builtin:detector")
    add("--variants", ["full@openvino-fp32", "full@onnxruntime-fp32"], metavar="NAME")
    add("--cameras", 3, least=2, metavar="N")
    add(
        "--loads", [0.8, 1.3, 2.0],
        "work that arrives, one by one, over what the workers can do", above=0, metavar="LOAD",
    )  # fmt: skip
    add("--workers", 1, "stages side by side", least=1)
    add(
        "--threads", len(os.sched_getaffinity(0)), "of one inference (default: all cores)", least=1
    )
    add(
        "--max-share", MAX_SHARE,
        "a batch may take this share of its frames' time one by one, else it is not formed; the "
        "nodes take it too", above=0, metavar="SHARE",
    )  # fmt: skip
    add("--runs", 30, "measured runs of a size", least=1)
    add("--rounds", 9, "of the drive", least=1)
    add("--seconds", 1.5, "of a round of one side", above=0)
    add("--deadline-factor", 2.0, "relative deadline = F periods", above=0, metavar="F")
    add("--tolerance", 0.03, "of the met frames that are lost to what else the machine does")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure every variant."""
    rows = [_measure(args, variant) for variant in args.variants]
    return {
        **echo(args, "model cameras workers threads deadline_factor max_share tolerance"),
        "variants": rows,
        "passed": all(drive["passed"] for row in rows for drive in row["drives"]),
    }


@dataclass
class Tally:
    """What one side made of its frames at one load, over all rounds."""

    frames: int = 0
    met_per_s: list[float] = field(default_factory=list)
    responses_ms: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    batches: Counter[int] = field(default_factory=Counter)

    def to_dict(self) -> dict[str, Any]:
        """For JSON; `in_batches` is the share of the inferences that ran in a batch."""
        runs = self.batches.total()
        return {
            "frames": self.frames,
            "met_per_s": float(np.median(self.met_per_s)),
            "met_per_s_by_round": [round(value, 2) for value in self.met_per_s],
            "response_p50_ms": _percentile(self.responses_ms, 50),
            "response_p99_ms": _percentile(self.responses_ms, 99),
            "in_batches": 1.0 - self.batches[1] / runs if runs else 0.0,
            "outcomes": dict(self.outcomes.most_common()),
        }


def _percentile(values: Sequence[float], share: int) -> float | None:
    return float(np.percentile(values, share)) if values else None


def _measure(args: argparse.Namespace, variant: str) -> dict[str, Any]:
    with ExitStack() as stack:
        bench = _Bench(args, variant, stack)
        say(f"batching: {variant}: sizes")
        sizes = bench.measure_sizes(args.runs)
        tallies = {(load, side): Tally() for load in args.loads for side in SIDES}
        for number in range(args.rounds):
            for load in args.loads:
                for side in alternate(SIDES, number):
                    bench.play(load, side, tallies[load, side])
            say(f"batching: {variant}: round {number + 1} of {args.rounds}")
        return {
            "variant": variant,
            "single_ms": bench.cost_ns / 1e6,
            "sizes": sizes,
            "drives": [_judge(load, tallies, args.tolerance) for load in args.loads],
        }


def _judge(
    load: float, tallies: Mapping[tuple[float, str], Tally], tolerance: float
) -> dict[str, Any]:
    """Compare the sides round by round: machines change their speed meanwhile, by tenths."""
    batched, alone = (tallies[load, side].met_per_s for side in SIDES)
    ratios = [one / other for one, other in zip(batched, alone, strict=True) if other]
    gain = float(np.median(ratios)) - 1.0 if ratios else None
    return {
        "load": load,
        "gain": gain,
        "passed": gain is None or gain >= -tolerance,
        "sides": {side: tallies[load, side].to_dict() for side in SIDES},
    }


class _Bench:
    """So many cameras with a task each, all of one model in one variant."""

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
        # A session forms its groups itself, with a fixed `max_share`, and keeps them.
        self._group = BatchGroup(
            {task.name: task.variants for task in self._tasks},
            workers=args.workers, clock=SteadyClock(), max_share=args.max_share,
        )  # fmt: skip
        stack.callback(self._group.close)
        self._frames = draw_frames(_SCENES)

    @property
    def cost_ns(self) -> float:
        """Median time of a frame alone, in the median over the tasks."""
        return float(np.median([find_cost_ns(task) for task in self._tasks]))

    def measure_sizes(self, runs: int) -> list[dict[str, Any]]:
        """Times of the sizes of batches, and of every task's stages."""
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

    def play(self, load: float, side: str, tally: Tally) -> None:
        """One round of one side."""
        seconds, count = self._args.seconds, len(self._tasks)
        period_ns = round(count * self.cost_ns / self._args.workers / load)
        records: list[JobRecord] = []
        executor = Executor(self._args.workers)
        for task in self._tasks:
            add_task(
                executor, task, lambda record, work: records.append(record),
                period_ns=period_ns,
                deadline_ns=round(self._args.deadline_factor * period_ns),
                batch_group=_GROUP if side == SIDES[0] else "",
            )  # fmt: skip
        if side == SIDES[0]:
            self._seed(executor)
        step_ns = period_ns / count
        frames = max(1, int(seconds * 1e9 / step_ns))
        with running(executor):
            # The cameras are evenly out of step.
            for index, _ in tick(executor.clock, step_ns, frames):
                scene = self._frames[index % len(self._frames)]
                frame = Frame(scene.image, scene.encoding, 0, index // count)
                name = self._tasks[index % count].name
                executor.submit(name, frame, executor.clock.now_ns())
            drain(executor)
        if len(records) != frames:
            raise BenchmarkError(f"{len(records)} of {frames} frames ended")
        tally.frames += frames
        tally.outcomes.update(record.outcome.value for record in records)
        met = [record for record in records if record.outcome is Outcome.MET]
        tally.met_per_s.append(len(met) / seconds)
        tally.responses_ms += [record.response_time_ns / 1e6 for record in met]
        for record in records:
            tally.batches.update(stage.batch for stage in record.stages[1:-1])

    def _seed(self, executor: Executor) -> None:
        task = self._tasks[0]
        names = [stage.name for stage in task.stages[task.default]][1:-1]
        for report in self._group.reports:
            for index, stage in enumerate(names if report.used else ()):
                times_ns = [run[index] for run in report.times_ns]
                executor.seed_batch_budgets(task.name, task.default, stage, report.size, times_ns)


def report(result: Mapping[str, Any]) -> Report:
    """Two tables a variant: sizes, and the drive."""
    parts: list[str | Table] = [
        f"{result['model']}, {result['cameras']} cameras, {result['workers']} workers x "
        f"{result['threads']} threads, deadline {result['deadline_factor']:g} periods"
    ]
    for row in result["variants"]:
        drives = [
            {"load": drive["load"], "side": side, "gain": drive["gain"], **figures}
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
                "load:g, side, met/s=met_per_s:.1f",
                ("gain", _show_gain),
                "p50 ms=response_p50_ms:.1f, p99 ms=response_p99_ms:.1f",
                "in batches=in_batches:.0%",
            ),
        ]
    verdict = "yes" if result["passed"] else "NO"
    return [*parts, f"no fewer frames met with batches: {verdict}"]


def _show_gain(row: Mapping[str, Any]) -> str:
    return f"{row['gain']:+.0%}" if row["side"] == SIDES[0] and row["gain"] else ""
