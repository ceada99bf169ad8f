# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What a worker does between two stages, part by part, and what waking the delivery costs.

The cost bench of ``scale``: tasks of the null back end that spin, one worker. Sides take turns:

ours      a record is handed over by the worker that ended the job if it has a result or failed;
          others go with the next one, or with the next frame
at once   every record is handed over in the boundary that ended the job

Parts of the time from the end of a stage to the beginning of the next, where that was ready:

lock      of the executor, taken and given back
boundary  `Engine.boundary`: budgets, outcome
choice    `Engine.next`: queues, admission, variant
hand-over of records, which wakes the delivery thread
rest      clock reads, bookkeeping of the worker, the stopwatches

The stopwatches lengthen what they measure, so the whole is shown without them, too: ``plain``,
where ours is the executor as it is. At once makes its call in every boundary, also where no job
ended, which costs that side about 0.2 us. Wall times, of rounds in which other load may run. No
bar: ``scale`` has it.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from benchmarks.harness.options import Options, echo
from benchmarks.harness.tables import Report, tabulate
from benchmarks.harness.timing import find_quantiles, frozen_garbage, take_turns
from benchmarks.scale import CostBench
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.tasks import Stage, Work

PARTS = ("lock", "boundary", "choice", "hand-over")
QUANTILES = "p50 p99"


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--tasks", [1, 4, 16], "numbers of tasks", least=1, metavar="N")
    add("--loads", [0.8, 2.0], "work per second of the worker", above=0, metavar="LOAD")
    add("--seconds", 1.5, "of a round of each side", above=0)
    add("--rounds", 5, "of everything", least=1)


@dataclass
class Stopwatch:
    """Time of each part since the last stage ended, on the worker's thread."""

    parts_ns: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PARTS, 0))
    waited: bool = False
    end_ns: int = 0
    gaps_ns: list[tuple[int, ...]] = field(default_factory=list)
    """Of each gap the whole, then its parts."""

    def around(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, timed where a worker makes it."""
        parts_ns, clock = self.parts_ns, time.monotonic_ns

        def timed(*given: Any) -> Any:
            if not is_worker():
                return call(*given)
            begin_ns = clock()
            try:
                return call(*given)
            finally:
                parts_ns[part] += clock() - begin_ns

        return timed

    def begin(self) -> None:
        """A stage begins."""
        if self.end_ns and not self.waited:
            gap_ns = time.monotonic_ns() - self.end_ns
            self.gaps_ns.append((gap_ns, *self.parts_ns.values()))

    def end(self) -> None:
        """A stage has ended."""
        self.waited = False
        for part in PARTS:
            self.parts_ns[part] = 0
        self.end_ns = time.monotonic_ns()


def is_worker() -> bool:
    """Whether a worker of an executor calls."""
    return threading.current_thread().name.startswith("rt-worker")


class TimedCondition:
    """The executor's lock, with a stopwatch around it."""

    def __init__(self, condition: Any, watch: Stopwatch) -> None:
        self._condition, self._watch = condition, watch
        self._enter = watch.around("lock", condition.__enter__)
        self._exit = watch.around("lock", condition.__exit__)
        self.acquire, self.release = condition.acquire, condition.release  # never of a worker
        self.notify_all = condition.notify_all

    def __enter__(self) -> Any:
        return self._enter()

    def __exit__(self, *raised: object) -> None:
        self._exit(*raised)

    def wait_until(self, time_ns: int | None) -> None:
        """Wait; a worker that did was idle, so what follows is no gap."""
        self._watch.waited = self._watch.waited or is_worker()
        self._condition.wait_until(time_ns)


class TimedEngine:
    """The engine, with stopwatches."""

    def __init__(self, engine: Any, watch: Stopwatch) -> None:
        self._engine = engine
        self.boundary = watch.around("boundary", engine.boundary)
        self.next = watch.around("choice", engine.next)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


class AtOnceExecutor(Executor):
    """An executor whose engine always says that a record with a result waits."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        engine, hand_over = self._shared.engine, self._shared.hand_over
        engine.has_results = True

        def hand_over_at_once() -> None:
            hand_over()  # after which the engine says that none does
            engine.has_results = True

        self._shared.hand_over = hand_over_at_once  # type: ignore[method-assign]


SIDES: dict[str, type[Executor]] = {"ours": Executor, "at once": AtOnceExecutor}


def add_stopwatches(executor: Any, watch: Stopwatch) -> None:
    """Time the parts of an executor that was not started yet; both sides alike."""
    shared = executor._shared
    shared.engine = TimedEngine(shared.engine, watch)
    shared.condition = TimedCondition(shared.condition, watch)
    shared.hand_over = watch.around("hand-over", shared.hand_over)


class BoundaryBench(CostBench):
    """The cost bench of one side, with a stopwatch or without."""

    def __init__(self, stack: ExitStack, tasks: int, side: str, *, timed: bool) -> None:
        self.watch = Stopwatch() if timed else None
        super().__init__(stack, tasks, spin=True, make_executor=partial(self._make, side))

    def _make(self, side: str, workers: int) -> Executor:
        executor = SIDES[side](workers)
        if self.watch is not None:
            add_stopwatches(executor, self.watch)
        return executor

    def _watch(self, stage: Stage, task: str) -> Stage:
        watch = self.watch
        if watch is None:
            return super()._watch(stage, task)
        inner = super()._watch(stage, task)

        def run(work: Work) -> None:
            watch.begin()
            inner.run(work)
            watch.end()

        return replace(inner, run=run)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure both sides, with stopwatches and without, in turns."""
    keys = list(product(SIDES, (False, True), args.tasks))
    plain: dict[tuple[str, float, int], list[dict[str, float]]] = {}
    parts: dict[tuple[str, float, int], list[dict[str, dict[str, float]]]] = {}
    with ExitStack() as stack:
        benches = {
            (side, timed, tasks): BoundaryBench(stack, tasks, side, timed=timed)
            for side, timed, tasks in keys
        }
        stack.enter_context(frozen_garbage())
        cases = [(load, *key) for load, key in product(args.loads, keys)]
        for load, side, timed, tasks in take_turns(cases, args.rounds, "boundary"):
            bench = benches[side, timed, tasks]
            if bench.watch is None:
                gaps_ns = bench.play(load, args.seconds).wall_ns
                if gaps_ns:
                    found = find_quantiles(gaps_ns, QUANTILES, 1e3)
                    plain.setdefault((side, load, tasks), []).append(found)
                continue
            bench.watch.gaps_ns.clear()
            bench.play(load, args.seconds)
            if bench.watch.gaps_ns:
                split = split_gaps(bench.watch.gaps_ns)
                parts.setdefault((side, load, tasks), []).append(split)
    rows = [
        {
            "side": side,
            "load": load,
            "tasks": tasks,
            "plain_us": take_median(plain[side, load, tasks]),
            "parts_us": {
                name: take_median([one[name] for one in parts[side, load, tasks]])
                for name in parts[side, load, tasks][0]
            },
        }
        for load, tasks, side in product(args.loads, args.tasks, SIDES)
        if (side, load, tasks) in plain and (side, load, tasks) in parts
    ]
    return {
        **echo(args, "rounds"),
        "seconds_per_round": args.seconds,
        "rows": rows,
        "passed": None,
    }


def split_gaps(gaps_ns: list[tuple[int, ...]]) -> dict[str, dict[str, float]]:
    """Find quantiles of the whole gap, its parts, and the rest, in us."""
    columns = np.array(gaps_ns, np.float64).T
    whole, split = columns[0], columns[1:]
    named = {"whole": whole, **dict(zip(PARTS, split, strict=True))}
    named["rest"] = whole - split.sum(axis=0)
    return {name: find_quantiles(values, QUANTILES, 1e3) for name, values in named.items()}


def take_median(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Take the median over the rounds of each quantile."""
    return {name: float(np.median([one[name] for one in rounds])) for name in rounds[0]}


def report(result: Mapping[str, Any]) -> Report:
    """Make the table."""
    columns = ", ".join(
        f"{name} p50=parts_us.{name}.p50:.1f, p99=parts_us.{name}.p99:.1f"
        for name in ("whole", *PARTS, "rest")
    )
    return [
        tabulate(
            result["rows"],
            ("load", lambda row: f"{row['load']:g}x"),
            "tasks, side, plain p50 us=plain_us.p50:.1f, p99=plain_us.p99:.1f",
            columns,
        )
    ]
