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
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.protocol import BenchmarkError
from jetson_dnn_rt.cli.text import format_rows
from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.demo.scenes import held_out_seed, random_scene
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.tasks import JobRecord, Outcome, TaskParameters
from jetson_dnn_rt.variants.measuring.timing import measure_stages
from jetson_dnn_rt.variants.running.batching import MAX_SHARE, BatchGroup
from jetson_dnn_rt.variants.running.variant_set import VariantSet

SIDES = ("batches", "one by one")

_SIZE = (480, 640)
_SCENES = 4
_GROUP = "cameras"
_DRAIN_S = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the benchmark."""
    add = parser.add_argument
    add("--model", default="builtin:detector", help="default builtin:detector")
    add(
        "--variants", nargs="+", default=["full@openvino-fp32", "full@onnxruntime-fp32"],
        metavar="NAME", help="default full@openvino-fp32 full@onnxruntime-fp32",
    )  # fmt: skip
    add("--cameras", type=int, default=3, metavar="N", help="default 3")
    add(
        "--loads", type=float, nargs="+", default=[0.8, 1.3, 2.0], metavar="LOAD",
        help="work that arrives, one by one, over what the workers can do (default 0.8 1.3 2)",
    )  # fmt: skip
    add("--workers", type=int, default=1, help="stages side by side (default 1)")
    add(
        "--threads", type=int, default=len(os.sched_getaffinity(0)),
        help="of one inference (default: all cores)",
    )  # fmt: skip
    add(
        "--max-share", type=float, default=MAX_SHARE, metavar="SHARE",
        help="a batch may take this share of its frames' time one by one, else it is not formed "
        f"(default {MAX_SHARE:g}, as in the nodes)",
    )  # fmt: skip
    add("--runs", type=int, default=30, help="measured runs of a size (default 30)")
    add("--rounds", type=int, default=9, help="of the drive (default 9)")
    add("--seconds", type=float, default=1.5, help="of a round of one side (default 1.5)")
    add(
        "--deadline-factor", type=float, default=2.0, metavar="F",
        help="relative deadline = F periods (default 2)",
    )  # fmt: skip
    add(
        "--tolerance", type=float, default=0.03,
        help="of the met frames that are lost to what else the machine does (default 0.03)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> dict[str, object]:
    """Measure every variant.

    Raises
    ------
    ConfigurationError
        When an option is out of range, or a variant cannot run.
    BenchmarkError
        When a job does not end.
    """
    if args.cameras < 2:
        raise ConfigurationError(f"--cameras must be >= 2: {args.cameras}")
    for name in ("workers", "threads", "runs", "rounds"):
        if getattr(args, name) < 1:
            raise ConfigurationError(f"--{name} must be >= 1: {getattr(args, name)}")
    numbers = (*args.loads, args.seconds, args.deadline_factor, args.max_share)
    if not all(0.0 < number < float("inf") for number in numbers):
        raise ConfigurationError(
            "--loads, --seconds, --deadline-factor and --max-share must be above 0, and finite"
        )
    rows = [_measure(args, variant) for variant in args.variants]
    return {
        "model": args.model,
        "cameras": args.cameras,
        "workers": args.workers,
        "threads": args.threads,
        "deadline_factor": args.deadline_factor,
        "max_share": args.max_share,
        "tolerance": args.tolerance,
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
    bench = BatchBench(
        args.model, variant, args.cameras,
        workers=args.workers, threads=args.threads, max_share=args.max_share,
    )  # fmt: skip
    try:
        _say(f"{variant}: sizes")
        sizes = bench.measure_sizes(args.runs)
        tallies = {(load, side): Tally() for load in args.loads for side in SIDES}
        for number in range(args.rounds):
            for load in args.loads:
                for side in SIDES if number % 2 == 0 else reversed(SIDES):
                    bench.play(load, args.deadline_factor, side, args.seconds, tallies[load, side])
            _say(f"{variant}: round {number + 1} of {args.rounds}")
        return {
            "variant": variant,
            "single_ms": bench.cost_ns / 1e6,
            "sizes": sizes,
            "drives": [_judge(load, tallies, args.tolerance) for load in args.loads],
        }
    finally:
        bench.close()


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


class BatchBench:
    """So many cameras with a task each, all of one model in one variant.

    Parameters
    ----------
    model, variant : str
        What runs.
    cameras : int
        How many, >= 2.
    workers, threads : int
        Of the executor, and of one inference.
    max_share : float
        Share of its frames' time that a batch may take.
    """

    def __init__(
        self,
        model: str,
        variant: str,
        cameras: int,
        *,
        workers: int,
        threads: int,
        max_share: float = MAX_SHARE,
    ) -> None:
        self._clock = SteadyClock()
        self._workers = workers
        loaded = load_model(model)
        self._sets: dict[str, VariantSet] = {}
        self._group: BatchGroup | None = None
        self._frames = [
            Frame(random_scene(held_out_seed(index), _SIZE).image, "bgr8", 0, index)
            for index in range(_SCENES)
        ]
        try:
            for index in range(cameras):
                self._sets[f"camera-{index}"] = VariantSet(
                    loaded, [variant], DecoderSettings(), threads=threads,
                    like=next(iter(self._sets.values()), None),
                )  # fmt: skip
            self._group = BatchGroup(
                self._sets, workers=workers, clock=self._clock, max_share=max_share
            )
        except BaseException:
            self.close()
            raise
        self._variant = next(iter(self._sets.values())).default
        self._times_ns: dict[str, list[tuple[int, ...]]] = {}

    @property
    def cost_ns(self) -> float:
        """Median time of a frame alone, of all tasks."""
        totals = [sum(run) for times in self._times_ns.values() for run in times]
        return float(np.median(totals))

    def measure_sizes(self, runs: int) -> list[dict[str, Any]]:
        """Times of the sizes of batches, and of every task's stages."""
        assert self._group is not None
        reports = self._group.prepare(self._frames[0], runs)
        for name, variants in self._sets.items():
            stages = variants.pipelines[self._variant].stages
            self._times_ns[name] = measure_stages(stages, self._frames, runs, self._clock)
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

    def play(
        self, load: float, deadline_factor: float, side: str, seconds: float, tally: Tally
    ) -> None:
        """One round of one side."""
        period_ns = round(len(self._sets) * self.cost_ns / self._workers / load)
        records: list[JobRecord] = []
        executor = Executor(self._workers, "edf")
        for name, variants in self._sets.items():
            pipeline = variants.pipelines[self._variant]
            executor.add_task(
                TaskParameters(
                    name=name,
                    deadline_ns=round(deadline_factor * period_ns),
                    period_ns=period_ns,
                    stages=variants.stage_names,
                    variants=(self._variant,),
                    variant=self._variant,
                    batch_group=_GROUP if side == SIDES[0] else "",
                ),
                {self._variant: pipeline.stages},
                lambda record, work: records.append(record),
                warm_up_times_ns={self._variant: self._times_ns[name]},
            )
        if side == SIDES[0]:
            self._seed(executor)
        executor.start()
        try:
            frames = self._drive(executor, period_ns, seconds)
            if not executor.wait_idle(_DRAIN_S):
                raise BenchmarkError(f"a job still runs {_DRAIN_S:g} s after the last frame")
        finally:
            executor.stop()
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
        assert self._group is not None
        first, variants = next(iter(self._sets.items()))
        names = [stage.name for stage in variants.pipelines[self._variant].stages][1:-1]
        for report in self._group.reports:
            for index, stage in enumerate(names if report.used else ()):
                times_ns = [run[index] for run in report.times_ns]
                executor.seed_batch_budgets(first, self._variant, stage, report.size, times_ns)

    def _drive(self, executor: Executor, period_ns: int, seconds: float) -> int:
        """Submit the frames of all cameras, evenly out of step; how many there were."""
        step_ns = period_ns / len(self._sets)
        names = list(self._sets)
        begin_ns = self._clock.now_ns()
        count = max(1, int(seconds * 1e9 / step_ns))
        for index in range(count):
            due_ns = begin_ns + round(index * step_ns)
            self._clock.sleep_until_ns(due_ns)
            scene = self._frames[index % len(self._frames)]
            frame = Frame(scene.image, scene.encoding, 0, index // len(names))
            executor.submit(names[index % len(names)], frame, self._clock.now_ns())
        return count

    def close(self) -> None:
        """Give the networks back."""
        if self._group is not None:
            self._group.close()
        for variants in self._sets.values():
            variants.close()


def format_table(result: Mapping[str, Any]) -> str:
    """Two tables a variant: sizes, and the drive."""
    lines = [
        f"{result['model']}, {result['cameras']} cameras, {result['workers']} workers x "
        f"{result['threads']} threads, deadline {result['deadline_factor']:g} periods"
    ]
    for row in result["variants"]:
        lines += ["", f"{row['variant']}: {row['single_ms']:.2f} ms a frame alone"]
        sizes = [
            [
                str(size["size"]),
                f"{size['batch_ms']:.2f}",
                f"{size['one_by_one_ms']:.2f}",
                _share(size["batch_ms"], size["one_by_one_ms"]),
                size["refusal"] or f"{size['memory_mb']:.0f} MB",
            ]
            for size in row["sizes"]
        ]
        lines.append(format_rows(["batch of", "ms", "one by one", "", ""], sizes))
        drives = []
        for drive in row["drives"]:
            for side, figures in drive["sides"].items():
                drives.append([
                    f"{drive['load']:g}",
                    side,
                    f"{figures['met_per_s']:.1f}",
                    _share(1.0 + drive["gain"], 1.0) if side == SIDES[0] and drive["gain"] else "",
                    _number(figures["response_p50_ms"]),
                    _number(figures["response_p99_ms"]),
                    f"{figures['in_batches']:.0%}",
                ])  # fmt: skip
        lines.append(
            format_rows(["load", "side", "met/s", "", "p50 ms", "p99 ms", "in batches"], drives)
        )
    lines += ["", f"no fewer frames met with batches: {'yes' if result['passed'] else 'NO'}"]
    return "\n".join(lines)


def _share(value: float, other: float) -> str:
    return f"{value / other - 1.0:+.0%}" if other else ""


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _say(text: str) -> None:
    print(text, file=sys.stderr)
