"""Every split of the cores, tried and then played in turn: whether `threads: auto` takes the best.

The tasks' networks are loaded for every split (workers x threads) at once. For each load the trial
of the start-up forecasts which frames would be met; then the real executor plays every split, the
splits in turn, with frames for all tasks at one instant as from one camera. Bar: the split that
the trial takes keeps at most 3 % of the frames less than the best that was played.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.protocol import BenchmarkError
from jetson_dnn_rt.backends.threads import count_cores
from jetson_dnn_rt.cli.text import format_rows
from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.demo.scenes import held_out_seed, random_scene
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.runtime.sharing.core_split import (
    CoreSplit,
    SplitFigures,
    Times,
    choose_split,
    find_capacity_hz,
    find_slowdown,
    judge_trial,
    list_splits,
    run_side_by_side,
)
from jetson_dnn_rt.runtime.sharing.forecast import ForecastTask
from jetson_dnn_rt.tasks import Outcome, Stage, TaskParameters
from jetson_dnn_rt.variants.measuring.timing import measure_stages
from jetson_dnn_rt.variants.running.variant_set import VariantSet, choose_default

TOLERANCE = 0.03

_SIZE = (480, 640)
_WARM_UP_RUNS = 10
_DRAIN_S = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the benchmark."""
    add = parser.add_argument
    add(
        "--models", nargs="+", default=["builtin:detector", "builtin:segmenter"], metavar="MODEL",
        help="one of each task (default builtin:detector builtin:segmenter)",
    )  # fmt: skip
    add("--variant", default="", metavar="NAME", help="of all (default: the fastest installed)")
    add("--cores", type=int, default=0, help="to be shared (default: all)")
    add(
        "--loads", type=float, nargs="+", default=[0.7, 1.0, 1.5], metavar="LOAD",
        help="frames that come over those that one worker with all cores can do "
        "(default 0.7 1 1.5)",
    )  # fmt: skip
    add("--rounds", type=int, default=3, help="of every split and load (default 3)")
    add("--seconds", type=float, default=4.0, help="of a round (default 4)")


@dataclass(frozen=True)
class Side:
    """The tasks of one split, loaded, with their times in a trial and alone."""

    split: CoreSplit
    stages: Mapping[str, Sequence[Stage]]
    trial: Mapping[str, Times]
    alone: Mapping[str, Times]
    slowdown: Mapping[int, float]


def run(args: argparse.Namespace) -> dict[str, object]:
    """Try and play.

    Raises
    ------
    ConfigurationError
        When an option is out of range, there is one split only, or the variant cannot run.
    BenchmarkError
        When a job does not end.
    """
    _check(args)
    cores = args.cores or count_cores()
    splits = list_splits(cores, len(args.models))
    if len(splits) < 2:
        raise ConfigurationError(
            f"{cores} core(s) and {len(args.models)} task(s) leave one split only: {splits[0]}"
        )
    scene = random_scene(held_out_seed(0), _SIZE).image
    frame = Frame(scene, "bgr8", 0, 0)
    with ExitStack() as stack:
        sides = [_load(stack, args, split, frame) for split in splits]
        base_hz = find_capacity_hz(sides[0].trial, 1) / len(args.models)
        loads = []
        for load in args.loads:
            period_ns = round(1e9 / (base_hz * load))
            loads.append(_measure_load(args, sides, frame, load, period_ns))
            _say(f"load {load:g} done")
    passed = all(load["passed"] for load in loads)
    return {
        "cores": cores,
        "models": args.models,
        "rounds": args.rounds,
        "seconds_per_round": args.seconds,
        "tolerance": TOLERANCE,
        "loads": loads,
        "passed": passed,
    }


def _check(args: argparse.Namespace) -> None:
    if args.cores < 0 or args.rounds < 1:
        raise ConfigurationError("--cores must be >= 0, --rounds >= 1")
    if args.seconds <= 0.0 or min(args.loads) <= 0.0:
        raise ConfigurationError("--seconds and --loads must be above 0")


def _load(stack: ExitStack, args: argparse.Namespace, split: CoreSplit, frame: Frame) -> Side:
    clock = SteadyClock()
    stages: dict[str, Sequence[Stage]] = {}
    for index, source in enumerate(args.models):
        model = load_model(source, weights="none")
        name = args.variant or str(choose_default(model))
        variants = VariantSet(model, [name], DecoderSettings(), threads=split.threads)
        stack.callback(variants.close)
        if name not in variants.pipelines:
            raise ConfigurationError(f"--variant {name}: {variants.left_out[name]}")
        stages[f"task-{index}"] = variants.pipelines[name].stages
    frames = [frame] * len(stages)
    side = Side(
        split,
        stages,
        run_side_by_side(stages, frames, split.workers, clock),
        {
            name: measure_stages(runs, [frame], _WARM_UP_RUNS, clock)
            for name, runs in stages.items()
        },
        find_slowdown(stages, frames, split.workers, clock),
    )
    _say(f"{split} loaded and tried")
    return side


def _measure_load(
    args: argparse.Namespace, sides: Sequence[Side], frame: Frame, load: float, period_ns: int
) -> dict[str, Any]:
    figures = [
        judge_trial(
            side.split,
            side.trial,
            [ForecastTask(name, period_ns, period_ns, ()) for name in side.stages],
            "edf",
        )
        for side in sides
    ]
    shares: list[list[float]] = [[] for _ in sides]
    for number in range(args.rounds):
        turn = list(zip(shares, sides, strict=True))
        for taken, side in turn[:: -1 if number % 2 else 1]:
            taken.append(play(side, frame, period_ns, args.seconds))
    return {"load": load, "period_ms": period_ns / 1e6, **judge(figures, shares)}


def play(side: Side, frame: Frame, period_ns: int, seconds: float) -> float:
    """Share of the frames that the executor meets, one of each task every period.

    Raises
    ------
    BenchmarkError
        When a job does not end.
    """
    executor = Executor(side.split.workers)
    executor.set_cohort_slowdown(side.slowdown)
    for precedence, (name, stages) in enumerate(side.stages.items()):
        executor.add_task(
            TaskParameters(
                name,
                period_ns,
                period_ns,
                tuple(stage.name for stage in stages),
                ("measured",),
                "measured",
                precedence=precedence,
            ),
            {"measured": stages},
            lambda record, work: None,
            warm_up_times_ns={"measured": list(side.alone[name])},
        )
    clock, names = executor.clock, tuple(side.stages)
    executor.start()
    try:
        begin_ns = clock.now_ns()
        for number in range(max(1, int(seconds * 1e9 / period_ns))):
            due_ns = begin_ns + number * period_ns
            clock.sleep_until_ns(due_ns)
            executor.submit(names, Frame(frame.image, "bgr8", due_ns, number), due_ns)
        if not executor.wait_idle(_DRAIN_S):
            raise BenchmarkError(f"a job did not end within {_DRAIN_S:g} s")
        counts = [executor.snapshot(name) for name in names]
    finally:
        executor.stop()
    released = sum(count.released for count in counts)
    return sum(count.outcomes[Outcome.MET] for count in counts) / released


def judge(figures: Sequence[SplitFigures], shares: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The rows of one load, and whether what the trial takes is as good as the best played."""
    played = [float(np.median(taken)) for taken in shares]
    chosen = choose_split(figures)
    mine = played[figures.index(chosen)]
    rows = [
        {
            "split": str(one.split),
            "chosen": one is chosen,
            "forecast_met": one.forecast.met_share,
            "met": share,
            "met_by_round": [round(value, 4) for value in taken],
            "capacity_hz": one.capacity_hz,
            "frame_ms": one.frame_ms,
        }
        for one, share, taken in zip(figures, played, shares, strict=True)
    ]
    return {
        "rows": rows,
        "behind_best": max(played) - mine,
        "passed": max(played) - mine <= TOLERANCE,
    }


def format_table(result: Mapping[str, Any]) -> str:
    """A line for each load and split."""
    rows = [
        [
            f"{load['load']:g}",
            f"{load['period_ms']:.1f}",
            ("-> " if row["chosen"] else "   ") + row["split"],
            f"{100 * row['forecast_met']:.1f}",
            f"{100 * row['met']:.1f}",
            f"{row['capacity_hz']:.1f}",
        ]
        for load in result["loads"]
        for row in load["rows"]
    ]
    header = ["load", "period ms", "   split", "forecast met %", "met %", "frames/s"]
    worst = max(load["behind_best"] for load in result["loads"])
    verdict = "met" if result["passed"] else "NOT met"
    return (
        f"{format_rows(header, rows)}\n"
        f"{result['cores']} cores, {', '.join(result['models'])}; -> is what threads: auto takes, "
        f"at most {100 * worst:.1f} % of the frames behind the best split (bar "
        f"{100 * result['tolerance']:.0f} %): {verdict}"
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
