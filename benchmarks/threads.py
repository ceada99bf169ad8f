# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Whether `threads: auto` follows the load: it against every fixed split of the cores, in turn.

The tasks' networks are loaded for all cores (1 x N), for each other (k x N/k), and for both
(auto), which chooses a split at every load as at a first start. The real executor plays all of
them in turn at every load, with frames for all tasks at the same time as from one camera. Bar:
auto meets at most 1 % of the frames fewer than any fixed split, by the 95 % interval of the
difference over the rounds.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness.intervals import LEAST_ROUNDS, Interval, show_interval
from benchmarks.harness.options import Options, echo
from benchmarks.harness.tables import Report, Verdict, judge_all, say, say_bars, tabulate
from benchmarks.harness.tasks import (
    configure,
    drain,
    draw_frames,
    find_cost_ns,
    require_variants,
    tick,
)
from benchmarks.harness.timing import take_turns
from jetson_dnn_rt.backends.threads import count_cores
from jetson_dnn_rt.config.perception import PerceptionConfig
from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.runtime.session import Session
from jetson_dnn_rt.runtime.sharing.core_split import CoreSplit, share_cores

AUTO = "auto"
TOLERANCE = 0.01
_WARM_UP_RUNS = 10


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--models", ["builtin:detector", "builtin:segmenter"], "one of each task", metavar="MODEL")
    add("--variant", "", "of all (default: the fastest installed)", metavar="NAME")
    add("--cores", 0, "to be shared (default: all)", least=0)
    add("--deadline-factor", 1.0, "relative deadline = F periods", above=0, metavar="F")
    add(
        "--loads", [0.7, 1.0, 1.5],
        "frames that arrive, relative to those that one worker with all cores can do",
        above=0, metavar="LOAD",
    )  # fmt: skip
    add("--rounds", LEAST_ROUNDS, "of every split and load", least=1)
    add("--seconds", 4.0, "of a round", above=0)


class Side(NamedTuple):
    """A loaded session, and how it shares the cores."""

    name: str
    session: Session


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Load and play; `ConfigurationError` when there is only one split."""
    cores = args.cores or count_cores()
    auto = share_cores(cores, len(args.models))
    if not auto.narrow_threads:
        raise ConfigurationError(
            f"{cores} core(s) and {len(args.models)} task(s) leave one split only: {auto}"
        )
    args.cores = cores
    splits = (CoreSplit(1, auto.threads), CoreSplit(auto.side_by_side, auto.narrow_threads), None)
    (frame,) = draw_frames(1)
    with ExitStack() as stack:
        sides = [_load(stack, args, split, frame) for split in splits]
        costs_ns = [find_cost_ns(task) for task in sides[0].session.tasks.values()]
        base_hz = 1e9 / sum(costs_ns)
        loads = []
        for load in args.loads:
            period_ns = round(1e9 / (base_hz * load))
            deadline_ns = round(args.deadline_factor * period_ns)
            chosen = choose(sides[-1].session, period_ns, deadline_ns)
            shares: dict[str, list[float]] = {side.name: [] for side in sides}
            with ExitStack() as playing:
                for side in sides:
                    activate(side.session, period_ns, deadline_ns)
                    playing.callback(side.session.stop)
                    # Budgets are learned: a disturbance of the warm-up is not a side's fault.
                    play(side.session, frame, period_ns, args.seconds)
                for side in take_turns(sides, args.rounds, f"threads: load {load:g}"):
                    met = play(side.session, frame, period_ns, args.seconds)
                    shares[side.name].append(met)
            found = {"load": load, "period_ms": period_ns / 1e6, "chosen": chosen}
            loads.append({**found, **judge(shares)})
    result = {
        "cores": cores,
        **echo(args, "models rounds"),
        "seconds_per_round": args.seconds,
        "deadline_factor": args.deadline_factor,
        "tolerance": TOLERANCE,
        "loads": loads,
    }
    return {**result, "passed": rejudge(result)}


def rejudge(result: Mapping[str, Any]) -> Verdict:
    """Judge a result, also one that was written before, without intervals."""
    return judge_all(
        judge_rows(load["rows"])
        if "against" in load
        else load["behind_best"] <= result["tolerance"]
        for load in result["loads"]
    )


def _load(
    stack: ExitStack, args: argparse.Namespace, split: CoreSplit | None, frame: Frame
) -> Side:
    """Load all tasks for a split; None = as the load wants."""
    process = ProcessConfig(workers=split.workers if split else 1)
    config = PerceptionConfig((), process=process, threads=split.threads if split else "auto")
    session = stack.enter_context(Session(config))
    session.cores = args.cores
    if split is None:
        session.share_cores(len(args.models))
    for index, source in enumerate(args.models):
        variants = [args.variant] if args.variant else []
        task = configure(f"task-{index}", source, variants, warmup_runs=_WARM_UP_RUNS)
        require_variants(session.load(task, frames=[frame] * _WARM_UP_RUNS))
    if split is not None:
        session.prepare()
    session.stop()  # its workers would share the cores with those of the others
    name = AUTO if split is None else str(split)
    say(f"threads: {name} loaded")
    return Side(name, session)


def choose(session: Session, period_ns: int, deadline_ns: int) -> str:
    """Let the session of auto choose for this load; return the split with what decided."""
    cores = session.cores
    session.share_cores(len(session.tasks))
    session.start()
    session.cores = cores
    session.prepare(
        dict.fromkeys(session.tasks, period_ns), dict.fromkeys(session.tasks, deadline_ns)
    )
    choice = session.split_choice
    session.stop()
    say(f"threads: {choice}")
    return str(choice)


def activate(session: Session, period_ns: int, deadline_ns: int) -> None:
    """Start the session with all its tasks."""
    cores = session.cores
    session.start()
    session.cores = cores
    for name in session.tasks:
        session.activate(name, period_ns=period_ns, deadline_ns=deadline_ns)
    session.commit()


def play(session: Session, frame: Frame, period_ns: int, seconds: float) -> float:
    """Play one frame of each task every period; return the share that the executor meets."""
    before = _count(session)
    count = max(1, int(seconds * 1e9 / period_ns))
    for number, due_ns in tick(session.clock, period_ns, count):
        session.submit(Frame(frame.image, "bgr8", due_ns, number), capture_ns=due_ns)
    drain(session)
    met, released = (now - then for now, then in zip(_count(session), before, strict=True))
    return met / released


def _count(session: Session) -> tuple[int, int]:
    """Frames of all tasks so far that were met, and all of them."""
    counts = [session.executor.snapshot(name).met_and_all for name in session.tasks]
    return sum(met for met, _ in counts), sum(released for _, released in counts)


def judge(shares: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Make the rows of one load, and judge auto against every fixed split, round by round."""
    met = {name: float(np.median(taken)) for name, taken in shares.items()}
    behind = max(share for name, share in met.items() if name != AUTO) - met[AUTO]
    rows = [
        {"split": name, "met": met[name], "met_by_round": [round(value, 4) for value in taken]}
        for name, taken in shares.items()
    ]
    against = {name: one.to_dict() for name, one in _compare(rows).items()}
    return {"rows": rows, "behind_best": behind, "against": against, "passed": judge_rows(rows)}


def judge_rows(rows: Sequence[Mapping[str, Any]]) -> Verdict:
    """Judge one load."""
    return judge_all(one.judge(least=-TOLERANCE) for one in _compare(rows).values())


def _compare(rows: Sequence[Mapping[str, Any]]) -> dict[str, Interval]:
    """What auto meets beyond each fixed split."""
    met = {row["split"]: row["met_by_round"] for row in rows}
    return {
        name: Interval.of(round(mine - its, 4) for mine, its in zip(met[AUTO], taken, strict=True))
        for name, taken in met.items()
        if name != AUTO
    }


def report(result: Mapping[str, Any]) -> Report:
    """Make a line for each load and split."""
    worst = max(load["behind_best"] for load in result["loads"])
    return [
        tabulate(
            ({**load, **row} for load in result["loads"] for row in load["rows"]),
            "load:g, period ms=period_ms:.1f, split, met:.1%",
            ("auto beyond it", _show_against),
        ),
        *(
            f"load {load['load']:g}: auto chose {load['chosen']}"
            for load in result["loads"]
            if "chosen" in load
        ),
        f"{result['cores']} cores, {', '.join(result['models'])}; auto is at most "
        f"{100 * worst:.1f} % of the frames behind the best fixed split",
        say_bars(f"auto at most {result['tolerance']:.0%} behind it", result["passed"]),
    ]


def _show_against(row: Mapping[str, Any]) -> str | None:
    return show_interval(row.get("against", {}).get(row["split"]), "+.1%")
