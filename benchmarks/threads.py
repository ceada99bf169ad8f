# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Every split of the cores, tried and played in turn: whether `threads: auto` chooses the best.

The tasks' networks are loaded for every split (workers x threads) at once. For each load the trial
run at start-up forecasts which frames would be met; then the real executor plays every split, in
turn, with frames for all tasks at the same time as from one camera. Bar: the split that the trial
chooses meets at most 3 % fewer frames than the best that was played.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness.options import Options, echo
from benchmarks.harness.tables import Report, say, tabulate
from benchmarks.harness.tasks import configure, drain, draw_frames, open_session, tick
from benchmarks.harness.timing import take_turns
from jetson_dnn_rt.backends.threads import count_cores
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.runtime.session import Session
from jetson_dnn_rt.runtime.sharing.core_split import (
    CoreSplit,
    SplitFigures,
    choose_split,
    judge_trial,
    list_splits,
    measure_slowdown,
    run_side_by_side,
)
from jetson_dnn_rt.runtime.sharing.forecast import Times, TrialTask
from jetson_dnn_rt.tasks import Outcome

TOLERANCE = 0.03
_WARM_UP_RUNS = 10


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--models", ["builtin:detector", "builtin:segmenter"], "one of each task", metavar="MODEL")
    add("--variant", "", "of all (default: the fastest installed)", metavar="NAME")
    add("--cores", 0, "to be shared (default: all)", least=0)
    add(
        "--loads", [0.7, 1.0, 1.5],
        "frames that arrive, relative to those that one worker with all cores can do",
        above=0, metavar="LOAD",
    )  # fmt: skip
    add("--rounds", 3, "of every split and load", least=1)
    add("--seconds", 4.0, "of a round", above=0)


class Side(NamedTuple):
    """Loaded tasks of one split, with their times in a trial and alone."""

    split: CoreSplit
    session: Session
    trial: Mapping[str, Times]


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Try and play; `ConfigurationError` when there is only one split."""
    cores = args.cores or count_cores()
    splits = list_splits(cores, len(args.models))
    if len(splits) < 2:
        raise ConfigurationError(
            f"{cores} core(s) and {len(args.models)} task(s) leave one split only: {splits[0]}"
        )
    (frame,) = draw_frames(1)
    with ExitStack() as stack:
        sides = [_load(stack, args, split, frame) for split in splits]
        medians = [statistics.median(map(sum, runs)) for runs in sides[0].trial.values()]
        base_hz = 1e9 / sum(medians)
        loads = []
        for load in args.loads:
            period_ns = round(1e9 / (base_hz * load))
            shares: list[list[float]] = [[] for _ in sides]
            pairs = zip(shares, sides, strict=True)
            for taken, side in take_turns(pairs, args.rounds, f"threads: load {load:g}"):
                taken.append(play(side, frame, period_ns, args.seconds))
            figures = [_forecast(side, period_ns, frame) for side in sides]
            judged = judge(figures, shares)
            loads.append({"load": load, "period_ms": period_ns / 1e6, **judged})
    return {
        "cores": cores,
        **echo(args, "models rounds"),
        "seconds_per_round": args.seconds,
        "tolerance": TOLERANCE,
        "loads": loads,
        "passed": all(load["passed"] for load in loads),
    }


def _load(stack: ExitStack, args: argparse.Namespace, split: CoreSplit, frame: Frame) -> Side:
    variants = [args.variant] if args.variant else []
    tasks = [
        configure(f"task-{index}", source, variants, warmup_runs=_WARM_UP_RUNS)
        for index, source in enumerate(args.models)
    ]
    session = stack.enter_context(
        open_session(tasks, [frame], split.threads, workers=split.workers)
    )
    stages = {name: task.stages[task.default] for name, task in session.tasks.items()}
    frames = [frame] * len(tasks)
    trial = run_side_by_side(stages, frames, split.workers, session.clock)
    session.set_slowdown(measure_slowdown(session.tasks, split.workers, session.clock, say))
    session.stop()  # its workers would share the cores with those of the others
    say(f"threads: {split} loaded and tried")
    return Side(split, session, trial)


def _forecast(side: Side, period_ns: int, frame: Frame) -> SplitFigures:
    tasks = [TrialTask(task.config, period_ns, frame) for task in side.session.tasks.values()]
    return judge_trial(side.split, side.trial, tasks, "edf")


def play(side: Side, frame: Frame, period_ns: int, seconds: float) -> float:
    """Play one frame of each task every period; return the share that the executor meets."""
    session = side.session
    session.start()
    for name in session.tasks:
        session.activate(name, period_ns=period_ns, deadline_ns=period_ns)
    session.commit()
    count = max(1, int(seconds * 1e9 / period_ns))
    for number, due_ns in tick(session.clock, period_ns, count):
        session.submit(Frame(frame.image, "bgr8", due_ns, number), capture_ns=due_ns)
    drain(session)
    counts = [session.executor.snapshot(name) for name in session.tasks]
    session.stop()
    released = sum(count.released for count in counts)
    return sum(count.outcomes[Outcome.MET] for count in counts) / released


def judge(figures: Sequence[SplitFigures], shares: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Make the rows of one load, and judge the trial's choice against the best played."""
    played = [float(np.median(taken)) for taken in shares]
    chosen = choose_split(figures)
    behind = max(played) - played[figures.index(chosen)]
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
    return {"rows": rows, "behind_best": behind, "passed": behind <= TOLERANCE}


def report(result: Mapping[str, Any]) -> Report:
    """Make a line for each load and split."""
    worst = max(load["behind_best"] for load in result["loads"])
    verdict = "met" if result["passed"] else "NOT met"
    return [
        tabulate(
            ({**load, **row} for load in result["loads"] for row in load["rows"]),
            "load:g, period ms=period_ms:.1f",
            ("split", lambda row: ("-> " if row["chosen"] else "   ") + row["split"]),
            "forecast met=forecast_met:.1%, met:.1%, frames/s=capacity_hz:.1f",
        ),
        f"{result['cores']} cores, {', '.join(result['models'])}; -> is what threads: auto takes, "
        f"at most {100 * worst:.1f} % of the frames behind the best split (bar "
        f"{100 * result['tolerance']:.0f} %): {verdict}",
    ]
