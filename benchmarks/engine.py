# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Cost of the engine alone, per stage and per frame: compiled with mypyc and as Python, in turns.

Tasks with three stages each (0.2, 1.0, 0.1 ms) on a virtual clock, one worker: no thread, no lock
and no network, only what the engine computes. Two figures: ``stage`` is the choice of a job and
the boundary after its stage (`Engine.next`, `Engine.boundary`), ``release`` the admission of a
frame. With a load of 2 half of the frames end before they run. Each side runs in processes of its
own, which take turns.

Both are measured twice: one call after the other, and with `COLD_MIB` of other memory read before
each, as a network does, which leaves nothing of the engine's in the caches.

Passes if a stage costs at most 8 us at p50 and 25 us at p99, compiled, at every number of tasks,
with warm caches.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.harness.options import Options, echo
from benchmarks.harness.processes import BenchmarkError
from benchmarks.harness.tables import Report, Verdict, judge_all, say_verdict, tabulate
from benchmarks.harness.timing import find_quantiles, frozen_garbage, take_turns
from jetson_dnn_rt.compiled import FIX, PURE, find_build
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.safety.children import child_environment, python_command
from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.tasks import TaskParameters, Work

BARS_US = {"p50": 8.0, "p99": 25.0}
SIDES = ("compiled", "python")
STAGES_NS = (200_000, 1_000_000, 100_000)
DEADLINE_FACTOR = 8  # as in `scale`: several jobs wait at once where the load is above 1
FIGURES = ("stage", "release")
COLD_MIB = 8  # more than the second-level cache of a core
_WARM_UP = 500


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--tasks", [1, 2, 4, 8, 16], "numbers of tasks", least=1, metavar="N")
    add("--loads", [0.8, 2.0], "work per second of the worker", above=0, metavar="LOAD")
    add("--stages", 10_000, "of each number of tasks, load and round", least=100)
    add("--rounds", 5, "of everything", least=1)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure; `BenchmarkError` where the scheduling is not compiled."""
    if not find_build().used:
        raise BenchmarkError(f"nothing to compare: {find_build().reason}. Fix: {FIX}")
    spec = json.dumps({"tasks": args.tasks, "loads": args.loads, "stages": args.stages})
    found: dict[tuple[str, bool, float, int], list[dict[str, Any]]] = {}
    for side in take_turns(SIDES, args.rounds, "engine"):
        for row in _measure_in_process(side, spec):
            key = side, row["cold"], row["load"], row["tasks"]
            found.setdefault(key, []).append(row)
    rows: list[dict[str, Any]] = [
        {
            "side": side,
            "cold": cold,
            "load": load,
            "tasks": tasks,
            **{
                figure: {
                    name: float(np.median([row[figure][name] for row in rounds]))
                    for name in BARS_US
                }
                for figure in FIGURES
            },
        }
        for (side, cold, load, tasks), rounds in sorted(found.items())
    ]
    result = {**echo(args, "stages rounds"), "rows": rows, "bars_us": BARS_US}
    return {**result, "passed": rejudge(result)}


def rejudge(result: Mapping[str, Any]) -> Verdict:
    """Judge a result, also one that was written before."""
    return judge_all(
        row["stage"][name] <= bar
        for row in result["rows"]
        if row["side"] == SIDES[0] and not row["cold"]
        for name, bar in BARS_US.items()
    )


def _measure_in_process(side: str, spec: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        python_command(__name__, spec),
        env={**child_environment(), PURE: str(SIDES.index(side))},
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode != 0:
        raise BenchmarkError(f"the engine's process ({side}) ended with {done.returncode}")
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def measure(tasks: int, load: float, stages: int, *, cold: bool) -> dict[str, Any]:
    """Time the engine in this process, in us; `stages` is the number of stages that it runs."""
    other = np.ones(COLD_MIB << 17 if cold else 1)
    engine = Engine()
    names = [f"task_{number}" for number in range(tasks)]
    cost_ns = sum(STAGES_NS)
    for number, name in enumerate(names):
        engine.add_task(
            TaskParameters(
                name=name,
                variant="full",
                variants=("full",),
                stages=("preprocess", "inference", "decode"),
                deadline_ns=DEADLINE_FACTOR * cost_ns,
                period_ns=round(tasks * cost_ns / load),
                precedence=number,
            )
        )
        engine.seed_budgets(name, "full", [STAGES_NS] * 40)
    frame = Frame(np.zeros((4, 4, 3), np.uint8), "bgr8", 0, 0)
    clock = time.perf_counter_ns
    now_ns, due_ns, released = 0, 0, 0
    stage_ns: list[int] = []
    release_ns: list[int] = []
    while len(stage_ns) < _WARM_UP + stages:
        while due_ns <= now_ns:
            work, name = Work(frame), names[released % tasks]
            other.sum()
            begin = clock()
            engine.release(name, now_ns, due_ns, work)
            release_ns.append(clock() - begin)
            due_ns += round(cost_ns / load)
            released += 1
        other.sum()
        begin = clock()
        job = engine.next(now_ns)
        chosen_ns = clock() - begin
        engine.take_endings()
        if job is None:
            now_ns = due_ns
            continue
        start_ns = now_ns
        now_ns += STAGES_NS[job.next_stage]
        other.sum()
        begin = clock()
        engine.boundary(job, now_ns, start_ns, now_ns)
        stage_ns.append(chosen_ns + clock() - begin)
    times = {"stage": stage_ns[_WARM_UP:], "release": release_ns[_WARM_UP // len(STAGES_NS) :]}
    return {
        "tasks": tasks,
        "load": load,
        "cold": cold,
        **{name: find_quantiles(values, " ".join(BARS_US), 1e3) for name, values in times.items()},
    }


def report(result: Mapping[str, Any]) -> Report:
    """Make the table."""
    compiled, python = (
        {(r["cold"], r["load"], r["tasks"]): r for r in result["rows"] if r["side"] == side}
        for side in SIDES
    )
    bars = result["bars_us"]
    return [
        tabulate(
            (
                {
                    **row,
                    "python": python[key],
                    "ratio": row["stage"]["p50"] / python[key]["stage"]["p50"],
                }
                for key, row in compiled.items()
            ),
            ("caches", lambda row: "cold" if row["cold"] else "warm"),
            ("load", lambda row: f"{row['load']:g}x"),
            "tasks, stage p50 us=stage.p50:.1f, p99=stage.p99:.1f",
            "release p50=release.p50:.1f, p99=release.p99:.1f",
            "as Python: stage p50=python.stage.p50:.1f, p99=python.stage.p99:.1f, ratio:.2f",
        ),
        f"bars: p50 <= {bars['p50']:g} us, p99 <= {bars['p99']:g} us a stage, warm: "
        f"{say_verdict(result['passed'])}",
    ]


def main(spec: str) -> None:
    """Measure in this process, and print the rows as JSON."""
    what = json.loads(spec)
    with frozen_garbage():
        rows = [
            measure(tasks, load, what["stages"] // (10 if cold else 1), cold=cold)
            for cold in (False, True)
            for load in what["loads"]
            for tasks in what["tasks"]
        ]
    print(json.dumps(rows))


if __name__ == "__main__":
    main(sys.argv[1])
