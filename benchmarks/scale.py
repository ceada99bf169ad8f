# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""1, 2, 4, 8, 16 tasks in one process: the cost of scheduling, and whether it collapses.

cost   null back end with scripted times, sleeping as while a GPU works, and spinning as a network
       on the CPU would. The overhead of the executor per stage, beside execution and waiting: from
       the end of a stage to the beginning of the next on the same worker, if that one was ready
       (lock, boundary, choice, hand-over), with less work than the workers can do and with twice
       as much. Bars: p50 at most 20 us, p99 at most 60 us, and the p50 grows at most with the
       logarithm of the number of tasks.
rules  the same figures under other rules of the executor: disciplines, a bound of the stages in
       flight, batches (a batch takes the time of one frame here). No bar.
nets   real networks, each task with its own. Beyond saturation the sum of the met frames must not
       fall when tasks are added (bar: never more than the tolerance below the most that fewer
       tasks reached), and the gaps between stages keep the bars above. Beside it, in turn: the
       same stages in one queue, first in first out, without deadlines.

Figures are medians over rounds; numbers of tasks and sides take turns. Wall times include other
load of the machine: the processor time of the worker's thread is shown beside them.
"""

from __future__ import annotations

import argparse
import heapq
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness.options import CORES, Options, echo
from benchmarks.harness.processes import BenchmarkError
from benchmarks.harness.queue import FifoQueue
from benchmarks.harness.tables import Report, Table, Verdict, judge_all, say, say_verdict, tabulate
from benchmarks.harness.tasks import (
    add_task,
    configure,
    drain,
    draw_frames,
    find_cost_ns,
    load_task,
    open_session,
    running,
    tick,
)
from benchmarks.harness.timing import frozen_garbage, take_turns
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.runtime.task import Task
from jetson_dnn_rt.tasks import JobRecord, Outcome, Stage, Work

BARS_US = {"p50": 20.0, "p99": 60.0}
KINDS = ("sleep", "spin")
"""How a script spends its time."""

RULES: dict[str, dict[str, Any]] = {
    "edf": {},
    "fifo": {"discipline": "fifo"},
    "priority": {"discipline": "priority"},
    "max_inflight 1": {"max_inflight": {"cpu": 1}},
    "batch": {"batches": True},
}
"""Rules of the executor, and the options of `CostBench` for them."""

SIDES = ("executor", "plain queue")
COLLAPSED = 0.5
"""A side below this share of its best has collapsed."""

VARIANT = "full@null"
SCRIPTS_MS = ("0.8", "1.0", "1.2/0.9", "1.0/0.8/1.1")
"""Inference times of the tasks, in turn; each has 0.2 ms before it and 0.1 ms after it."""

DEADLINE_FACTOR = 8
"""Relative deadline over the mean time of a job: several jobs wait at once beyond saturation."""

GOLDEN = 0.6180339887498949
"""Phases at multiples of it are spread evenly, however many there are."""

_FLAT_US = 2.0
"""Growth over all numbers of tasks that cannot be distinguished from none."""

_CLEARLY = 0.7
"""Largest ratio of the root mean square of the better fit to that of the worse one."""

_SIZE = (48, 64)
_WARM_UP_RUNS = 40
_SCENES = 4


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--tasks", [1, 2, 4, 8, 16], "numbers of tasks, rising", least=1, metavar="N")
    add("--parts", list(PARTS), "default: all", choices=PARTS)
    add("--rounds", 3, "of everything", least=1)
    add("--seconds", 1.5, "of a round of cost", above=0)
    add("--net-seconds", 4.0, "of a round of nets", above=0)
    add("--loads", [0.8, 2.0], "of cost: work per second and worker", above=0, metavar="LOAD")
    add("--scripts", list(KINDS), "of cost: how its time passes; default: both", choices=KINDS)
    add("--workers", 1, "stages side by side", least=1)
    add("--models", ["builtin:detector"], "of nets, the tasks take turns", metavar="MODEL")
    add("--variant", "full@torch-fp32", metavar="NAME")
    add("--threads", CORES, "of one inference (default: all cores)", least=1)
    add("--share", 0.4, "of a worker that one task's frames take", above=0)
    add("--deadline-factor", 1.0, "relative deadline = F periods", above=0, metavar="F")
    add(
        "--tolerance", 0.05,
        "share of the met frames that may go: far beyond saturation every job begins when its "
        "budget only just fits, and the budget is a p99 of each stage", least=0, most=1,
    )  # fmt: skip
    add("--quick", False, "one round of a second: nothing is judged")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure the parts.

    `ConfigurationError` when --tasks do not rise, or the variant cannot run; `BenchmarkError` when
    a job does not end, or a stage fails.
    """
    if sorted(set(args.tasks)) != args.tasks:
        raise ConfigurationError(f"--tasks must rise: {args.tasks}")
    if args.quick:
        args.rounds, args.seconds, args.net_seconds = 1, 1.0, 1.0
    result = echo(args, "tasks rounds workers")
    for name, (measure, _) in PARTS.items():
        if name in args.parts:
            with ExitStack() as stack:
                result[name] = measure(args, stack)
    passed = [result[name]["passed"] for name in ("cost", "nets") if name in result]
    return {**result, "passed": None if args.quick else judge_all(passed)}


# -- cost and rules ------------------------------------------------------------------------------


class Run(NamedTuple):
    """One stage on one worker: start and end in nanoseconds, by wall and thread clock."""

    thread: int
    task: str
    sequence: int
    begin_ns: int
    begin_cpu_ns: int
    end_ns: int
    end_cpu_ns: int


@dataclass
class Costs:
    """Scheduling costs in nanoseconds, one entry per stage.

    A worker that ends a stage while another one is ready begins that one at once: the gap is the
    cost of scheduling, measured around the stages themselves, on the worker's own thread. A worker
    that had to wait for a frame counts separately, with the time to wake it.
    """

    wall_ns: list[int] = field(default_factory=list)
    """From the end of a stage to the beginning of the next on the same worker, if that one was
    ready before the end."""
    cpu_ns: list[int] = field(default_factory=list)
    """The same in processor time of the worker."""
    wake_ns: list[int] = field(default_factory=list)
    """From a stage being ready to its beginning, if a worker waited for it."""
    others_ns: float = 0.0
    """Processor time of the whole process outside the stages, per stage: delivery of frames and
    records, workers, and this benchmark's own."""


def find_costs(runs: Iterable[Run], released_ns: Mapping[tuple[str, int], int]) -> Costs:
    """Sort the times between the stages, which are given in any order.

    `released_ns` has the release of each job, by its task and sequence number.
    """
    costs = Costs()
    on_thread: dict[int, Run] = {}
    of_task: dict[str, int] = {}
    for run in sorted(runs, key=lambda run: run.begin_ns):
        # A task does one thing at a time: it was ready when its last stage was over.
        ready_ns = max(released_ns[run.task, run.sequence], of_task.get(run.task, 0))
        before = on_thread.get(run.thread)
        if before is not None and ready_ns <= before.end_ns:
            costs.wall_ns.append(run.begin_ns - before.end_ns)
            costs.cpu_ns.append(run.begin_cpu_ns - before.end_cpu_ns)
        else:
            costs.wake_ns.append(run.begin_ns - ready_ns)
        on_thread[run.thread] = run
        of_task[run.task] = run.end_ns
    return costs


class CostBench:
    """Executor with several tasks, stopped by `stack`; `rules` are its options.

    With `spin` scripts are busy: a core that slept begins with a low clock and cold caches. With
    `batches` all tasks are one group whose inference runs as batches, each in the time of its
    first frame. `make_executor` makes it, where it is not the usual one.
    """

    def __init__(
        self,
        stack: ExitStack,
        tasks: int,
        *,
        spin: bool = False,
        workers: int = 1,
        batches: bool = False,
        make_executor: Callable[..., Executor] = Executor,
        **rules: Any,
    ) -> None:
        self.outcomes: Counter[Outcome] = Counter()
        self._workers, self._batches = workers, batches
        self._image = np.full((*_SIZE, 3), 114, np.uint8)
        # Not a session: it would run the stages as they are, without the stopwatch around them.
        self._executor = make_executor(workers, **rules)
        self._runs: list[tuple[int, str, int, int, int, int, int]] = []
        self._released_ns: dict[tuple[str, int], int] = {}
        self._sequence = 0
        script = f"null:preprocess=0.2;inference={{}};decode=0.1{',spin' if spin else ''}"
        frame = Frame(self._image, "bgr8", 0, 0)
        self._tasks = []
        for index in range(tasks):
            source = script.format(SCRIPTS_MS[index % len(SCRIPTS_MS)])
            config = configure(
                f"task-{index}", source, [VARIANT], warmup_runs=_WARM_UP_RUNS, priority=index
            )
            self._tasks.append(load_task(stack, config, [frame]))
        self._mean_ns = float(np.mean([find_cost_ns(task) for task in self._tasks]))
        for index, task in enumerate(self._tasks):
            watched = [self._watch(stage, task.name) for stage in task.stages[VARIANT]]
            add_task(
                self._executor, task, self._observe, stages={VARIANT: watched}, precedence=index,
                period_ns=round(tasks * self._mean_ns),
                deadline_ns=round(DEADLINE_FACTOR * self._mean_ns),
                batch_group="all" if batches else "",
            )  # fmt: skip
        inference_ns = [row[1] for task in self._tasks for row in task.warm_up_times_ns[VARIANT]]
        for size in range(2, tasks + 1) if batches else ():
            self._executor.seed_batch_budgets("task-0", VARIANT, "inference", size, inference_ns)
        stack.enter_context(running(self._executor))

    def _watch(self, stage: Stage, task: str) -> Stage:
        take = self._runs.append

        def run(work: Work) -> None:
            begin_ns, begin_cpu_ns = time.monotonic_ns(), time.thread_time_ns()
            stage.run(work)
            end_cpu_ns, end_ns = time.thread_time_ns(), time.monotonic_ns()
            thread, sequence = threading.get_ident(), work.frame.sequence
            # A plain tuple: this is in the gap that is measured.
            take((thread, task, sequence, begin_ns, begin_cpu_ns, end_ns, end_cpu_ns))

        def run_batch(works: Sequence[Work]) -> None:
            run(works[0])
            for work in works[1:]:
                work.scratch.update(works[0].scratch)

        as_batch = run_batch if self._batches and stage.name == "inference" else None
        return replace(stage, run=run, run_batch=as_batch)

    def _observe(self, record: JobRecord, work: Work) -> None:
        self._released_ns[record.task, record.sequence] = record.release_ns
        self.outcomes[record.outcome] += 1

    def play(self, load: float, seconds: float) -> Costs:
        """Release frames for a while; the tasks take turns at even distances.

        `load` is the work per second and worker that arrives, in seconds.
        """
        self._runs.clear()
        self._released_ns.clear()
        clock = self._executor.clock
        step_ns = self._mean_ns / load / self._workers
        process_ns = time.process_time_ns()
        for count, _ in tick(clock, step_ns, max(1, round(seconds * 1e9 / step_ns))):
            frame = Frame(self._image, "bgr8", 0, self._sequence)
            self._sequence += 1
            name = self._tasks[count % len(self._tasks)].name
            self._executor.submit(name, frame, clock.now_ns())
        drain(self._executor)
        process_ns = time.process_time_ns() - process_ns
        runs = [Run(*run) for run in self._runs]
        costs = find_costs(runs, self._released_ns)
        stages_ns = sum(run.end_cpu_ns - run.begin_cpu_ns for run in runs)
        costs.others_ns = (process_ns - stages_ns) / max(1, len(runs))
        return costs


def _measure_cost(args: argparse.Namespace, stack: ExitStack) -> dict[str, Any]:
    benches = {
        (script, count): CostBench(stack, count, spin=script == "spin", workers=args.workers)
        for script, count in product(args.scripts, args.tasks)
    }
    stack.enter_context(frozen_garbage())
    taken: dict[tuple[str, float, int], list[Costs]] = {}
    cases = product(args.scripts, args.loads, args.tasks)
    for script, load, count in take_turns(cases, args.rounds, "scale: cost"):
        costs = benches[script, count].play(load, args.seconds)
        taken.setdefault((script, load, count), []).append(costs)
    parts = []
    for script, load in product(args.scripts, args.loads):
        rows = [{"tasks": n, **summarize_costs(taken[script, load, n])} for n in args.tasks]
        p50 = {row["tasks"]: row["wall_us"]["p50"] for row in rows}
        parts.append({"script": script, "load": load, "rows": rows, "growth": find_growth(p50)})
    within = are_within([row["wall_us"] for part in parts for row in part["rows"]])
    return {
        "deadline_factor": DEADLINE_FACTOR,
        "seconds_per_round": args.seconds,
        "parts": parts,
        "bars_us": BARS_US,
        "passed": judge_all([within, *(part["growth"]["at_most_logarithmic"] for part in parts)]),
    }


def _measure_rules(args: argparse.Namespace, stack: ExitStack) -> dict[str, Any]:
    """Measure all rules in turn, with the middle number of tasks and the most work: no bar."""
    count, load = args.tasks[len(args.tasks) // 2], args.loads[-1]
    benches = {
        name: CostBench(stack, count, workers=args.workers, **options)
        for name, options in RULES.items()
    }
    stack.enter_context(frozen_garbage())
    taken: dict[str, list[Costs]] = {name: [] for name in RULES}
    for name in take_turns(RULES, args.rounds, "scale: rules"):
        taken[name].append(benches[name].play(load, args.seconds))
    rows = [
        {
            "rule": name,
            "met_per_s": benches[name].outcomes[Outcome.MET] / args.rounds / args.seconds,
            **summarize_costs(taken[name]),
        }
        for name in RULES
    ]
    return {"tasks": count, "load": load, "rows": rows}


def summarize_costs(rounds: Sequence[Costs]) -> dict[str, Any]:
    """Compute quantiles of each round and their medians, so that a burst affects one round."""
    return {
        "stages": sum(len(costs.wall_ns) for costs in rounds),
        "wall_us": quantiles_us([costs.wall_ns for costs in rounds]),
        "cpu_us": quantiles_us([costs.cpu_ns for costs in rounds]),
        "wake_us": quantiles_us([costs.wake_ns for costs in rounds]),
        "process_cpu_us": float(np.median([costs.others_ns for costs in rounds])) / 1e3,
    }


def are_within(figures: Sequence[Mapping[str, float | None]]) -> Verdict:
    """Whether all quantiles are within their bars; one without any time is not judged."""
    return judge_all(
        None if (value := one[name]) is None else value <= bar
        for one in figures
        for name, bar in BARS_US.items()
    )


def quantiles_us(rounds: Sequence[list[int]]) -> dict[str, float | None]:
    """Quantiles with a bar, in microseconds, medians over the rounds; None without any time."""
    filled = [times for times in rounds if times]
    if not filled:
        return dict.fromkeys(BARS_US)
    shares = {name: int(name[1:]) for name in BARS_US}
    return {
        name: float(np.median([np.percentile(times, share) for times in filled])) / 1e3
        for name, share in shares.items()
    }


def find_growth(costs_us: Mapping[int, float | None]) -> dict[str, Any]:
    """Find whether a cost grows with the number of tasks as ``a + b log2 n``, or faster.

    Both ``a + b log2 n`` and ``a + b n`` are fitted by least squares. The growth is at most
    logarithmic when it is less than 2 us from the least to the most, or when the straight line
    does not explain the figures clearly better than the logarithm.
    """
    known = {count: cost for count, cost in costs_us.items() if cost is not None}
    counts, costs = np.array(list(known), float), np.array(list(known.values()), float)
    if len(counts) < 3:
        return {"per_doubling_us": None, "at_most_logarithmic": None}
    fits = []
    for x in (np.log2(counts), counts):
        slope, offset = np.polyfit(x, costs, 1)
        fits.append((float(slope), float(np.sqrt(np.mean((offset + slope * x - costs) ** 2)))))
    (per_doubling, log_rms), (_, linear_rms) = fits
    flat = per_doubling * float(np.log2(counts[-1] / counts[0])) < _FLAT_US
    return {
        "per_doubling_us": per_doubling,
        "log_rms_us": log_rms,
        "linear_rms_us": linear_rms,
        "at_most_logarithmic": bool(flat or linear_rms >= _CLEARLY * log_rms),
    }


# -- nets ----------------------------------------------------------------------------------------


class Round(NamedTuple):
    """Outcomes of one side's frames in a round; gaps are the executor's on one worker."""

    frames: int
    met: Counter[str]
    outcomes: Counter[str]
    gaps_ns: list[int]


class NetBench:
    """Tasks with networks, loaded once; the first `count` of them are measured on both sides.

    Every task has a network, buffers and a camera of its own; the cameras are out of step. Each
    task alone takes the same share of a core, so that the work that arrives grows with every task.
    Two sides run the same stages on as many workers: this package's executor, and `FifoQueue`.
    Both are judged alike: a frame is met if its last stage is over within the task's relative
    deadline after its arrival.
    """

    def __init__(self, stack: ExitStack, args: argparse.Namespace) -> None:
        self._workers = args.workers
        self._frames = draw_frames(_SCENES)
        self._sequence = 0
        variants = [args.variant] if args.variant else []
        configs = [
            configure(f"task-{i}", args.models[i % len(args.models)], variants)
            for i in range(args.tasks[-1])
        ]
        self._session = stack.enter_context(
            open_session(configs, self._frames, args.threads, workers=args.workers)
        )
        self._records: list[JobRecord] = []
        self._session.observe(lambda record, result: self._records.append(record))
        self.tasks = list(self._session.tasks.values())
        self.costs_ns = {task.name: find_cost_ns(task) for task in self.tasks}
        self._periods_ns: dict[str, int] = {}
        for one in configs:
            # The same period for all of one network, from the runs of them all.
            alike = [self.costs_ns[other.name] for other in configs if other.model == one.model]
            self._periods_ns[one.name] = round(float(np.median(alike)) / args.share)
        self._deadlines_ns = {
            name: round(args.deadline_factor * period) for name, period in self._periods_ns.items()
        }

    def load_of(self, count: int) -> float:
        """Work per second of the first `count` tasks per worker, in seconds."""
        names = [task.name for task in self.tasks[:count]]
        work = sum(self.costs_ns[name] / self._periods_ns[name] for name in names)
        return work / int(self._workers)

    def play(self, count: int, side: str, seconds: float) -> Round:
        """Play one round of the first `count` tasks on a side."""
        play = self._play_executor if side == SIDES[0] else self._play_queue
        return play(self.tasks[:count], seconds)

    def _play_executor(self, tasks: Sequence[Task], seconds: float) -> Round:
        session = self._session
        self._records.clear()
        for task in tasks:
            session.activate(
                task.name, period_ns=self._periods_ns[task.name],
                deadline_ns=self._deadlines_ns[task.name],
            )  # fmt: skip
        session.commit()
        frames = self._release(tasks, lambda n, f: session.submit(f, [n]), seconds)
        drain(session)
        for task in tasks:
            session.deactivate(task.name)
        records = list(self._records)
        for record in records:
            if record.outcome is Outcome.FAILED:
                raise BenchmarkError(record.reason)
        met = Counter(r.task for r in records if r.outcome is Outcome.MET)
        outcomes = Counter(record.outcome.value for record in records)
        return Round(frames, met, outcomes, _find_gaps_ns(records) if self._workers == 1 else [])

    def _play_queue(self, tasks: Sequence[Task], seconds: float) -> Round:
        stages = {task.name: task.stages[task.default] for task in tasks}
        queue = FifoQueue(self._workers)
        done: list[tuple[str, int, Exception | None]] = []

        def submit(name: str, frame: Frame) -> None:
            work, begin_ns = Work(frame), time.monotonic_ns()
            queue.submit(
                name,
                [partial(stage.run, work) for stage in stages[name]],
                lambda error: done.append((name, time.monotonic_ns() - begin_ns, error)),
            )

        frames = self._release(tasks, submit, seconds)
        queue.stop()
        for _, _, error in done:
            if error is not None:
                raise BenchmarkError(str(error)) from error
        met = Counter(name for name, age_ns, _ in done if age_ns <= self._deadlines_ns[name])
        late, dropped = len(done) - met.total(), frames - len(done)
        return Round(frames, met, Counter(met=met.total(), late=late, dropped=dropped), [])

    def _release(
        self, tasks: Sequence[Task], submit: Callable[[str, Frame], None], seconds: float
    ) -> int:
        """Release the frames of all tasks, each at its own rate; return their number."""
        clock = self._session.clock
        begin_ns, first = clock.now_ns(), self._sequence
        due = [
            (round(self._periods_ns[task.name] * (index * GOLDEN % 1.0)), index)
            for index, task in enumerate(tasks)
        ]
        heapq.heapify(due)
        while due[0][0] < seconds * 1e9:
            offset_ns, index = due[0]
            clock.sleep_until_ns(begin_ns + offset_ns)
            image = self._frames[self._sequence % len(self._frames)].image
            submit(tasks[index].name, Frame(image, "bgr8", 0, self._sequence))
            self._sequence += 1
            heapq.heapreplace(due, (offset_ns + self._periods_ns[tasks[index].name], index))
        clock.sleep_until_ns(begin_ns + round(seconds * 1e9))
        return self._sequence - first


def _find_gaps_ns(records: Sequence[JobRecord]) -> list[int]:
    """Find the gaps between stages on the only worker, if the next one was ready."""
    runs = [
        Run(0, record.task, record.sequence, stage.start_ns, 0, stage.end_ns, 0)
        for record in records
        for stage in record.stages
    ]
    released_ns = {(record.task, record.sequence): record.release_ns for record in records}
    return find_costs(runs, released_ns).wall_ns


def _measure_nets(args: argparse.Namespace, stack: ExitStack) -> dict[str, Any]:
    say(f"scale: nets: {args.tasks[-1]} tasks are loaded")
    bench = NetBench(stack, args)
    stack.enter_context(frozen_garbage())
    rounds: dict[tuple[int, str], list[Round]] = {}
    for count, side in take_turns(product(args.tasks, SIDES), args.rounds, "scale: nets"):
        rounds.setdefault((count, side), []).append(bench.play(count, side, args.net_seconds))

    def describe(played: Sequence[Round]) -> dict[str, Any]:
        """Describe a side; its work is that of the met frames, as a share of the workers' time."""
        frames = sum(one.frames for one in played)
        met = sum((one.met for one in played), Counter())
        outcomes = sum((one.outcomes for one in played), Counter())
        work_ns = sum(count * bench.costs_ns[task] for task, count in met.items())
        rates = [one.met.total() / args.net_seconds for one in played]
        return {
            "frames": frames,
            "met_per_s": float(np.median(rates)),
            "met_per_s_by_round": [round(rate, 2) for rate in rates],
            "met_ratio": met.total() / frames,
            "met_work": work_ns / 1e9 / args.net_seconds / args.rounds / args.workers,
            "outcomes": dict(outcomes.most_common()),
        }

    loads = {count: bench.load_of(count) for count in args.tasks}
    rows: list[dict[str, Any]] = [
        {
            "tasks": count,
            "load": loads[count],
            "gap_us": quantiles_us([one.gaps_ns for one in rounds[count, SIDES[0]]]),
            **{side: describe(rounds[count, side]) for side in SIDES},
        }
        for count in args.tasks
    ]
    steps = {
        side: judge({row["tasks"]: row[side]["met_per_s"] for row in rows}, loads)
        for side in SIDES
    }
    return {
        "models": args.models,
        "variants": sorted({task.default for task in bench.tasks}),
        "threads": args.threads,
        "seconds_per_round": args.net_seconds,
        **echo(args, "share deadline_factor"),
        "alone_ms": {name: cost / 1e6 for name, cost in bench.costs_ns.items()},
        "rows": rows,
        "steps": steps,
        "collapsed": {
            side: any(step["below_best"] > 1.0 - COLLAPSED for step in found)
            for side, found in steps.items()
        },
        "tolerance": args.tolerance,
        "bars_us": BARS_US,
        "passed": judge_nets(rows, steps[SIDES[0]], args.tolerance),
    }


def judge_nets(
    rows: Sequence[Mapping[str, Any]], steps: Sequence[Mapping[str, Any]], tolerance: float
) -> Verdict:
    """Judge the gaps, and the met frames beyond saturation; None if there was none."""
    if not steps:
        return None
    kept = (step["below_best"] <= tolerance for step in steps)
    return judge_all([are_within([row["gap_us"] for row in rows]), *kept])


def judge(met_per_s: Mapping[int, float], loads: Mapping[int, float]) -> list[dict[str, Any]]:
    """Judge the effect of each added task on the met frames, beyond saturation.

    Both arguments are by the number of tasks, loads as work per second and worker. For each number
    with more work than the workers can do, ``change`` is relative to the number before it, and
    ``below_best`` to the best of all smaller numbers.
    """
    rows = []
    for before, after in pairwise(sorted(met_per_s)):
        if loads[after] <= 1.0:
            continue
        best = max(met_per_s[count] for count in met_per_s if count < after)
        met, last = met_per_s[after], met_per_s[before]
        rows.append(
            {
                "tasks": after,
                "load": loads[after],
                "change": met / last - 1.0 if last else 0.0,
                "below_best": 1.0 - met / best if best else 0.0,
            }
        )
    return rows


# -- report --------------------------------------------------------------------------------------


def report(result: Mapping[str, Any]) -> Report:
    """Make a table for each part."""
    parts: list[str | Table] = []
    for name, (_, describe) in PARTS.items():
        parts += describe(result[name]) if name in result else ()
    return parts if result["passed"] is not None else [*parts, say_verdict(None)]


_COSTS = (
    "p50 us=wall_us.p50:.1f, p99 us=wall_us.p99:.1f, "
    "cpu p50=cpu_us.p50:.1f, cpu p99=cpu_us.p99:.1f"
)


def _report_cost(cost: Mapping[str, Any]) -> Report:
    growths = []
    for part in cost["parts"]:
        growth = part["growth"]
        if growth["per_doubling_us"] is None:
            continue
        word = "at most" if growth["at_most_logarithmic"] else "MORE than"
        growths.append(
            f"{part['script']}, load {part['load']:g}: {growth['per_doubling_us']:+.2f} us for "
            f"twice the tasks; rms {growth['log_rms_us']:.2f} us from a logarithm, "
            f"{growth['linear_rms_us']:.2f} from a line: {word} logarithmic"
        )
    bars = cost["bars_us"]
    return [
        "scheduling cost of a stage, edf, null back end",
        tabulate(
            ({**part, **row} for part in cost["parts"] for row in part["rows"]),
            "time=script",
            ("load", lambda row: f"{row['load']:g}x"),
            "tasks, stages",
            _COSTS,
            "wake p50=wake_us.p50:.1f, process us=process_cpu_us:.1f",
        ),
        "\n".join(growths),
        f"bars: p50 <= {bars['p50']:g} us, p99 <= {bars['p99']:g} us: "
        f"{say_verdict(cost['passed'])}",
    ]


def _report_rules(rules: Mapping[str, Any]) -> Report:
    return [
        f"rules, {rules['tasks']} tasks, load {rules['load']:g}, slept through",
        tabulate(rules["rows"], "rule, met/s=met_per_s:.1f", _COSTS),
    ]


def _report_nets(nets: Mapping[str, Any]) -> Report:
    rows = []
    for row, side in product(nets["rows"], SIDES):
        below = {step["tasks"]: step["below_best"] for step in nets["steps"][side]}
        gaps = row["gap_us"] if side == SIDES[0] else {}
        change = f"{-below[row['tasks']]:+.1%}" if row["tasks"] in below else ""
        rows.append({**row, **row[side], "side": side, "gap_us": gaps, "to best": change})
    collapsed = [side for side, word in nets["collapsed"].items() if word]
    return [
        f"{', '.join(nets['models'])} as {', '.join(nets['variants'])}, each task "
        f"{nets['share']:.0%} of a worker, deadline {nets['deadline_factor']:g} periods",
        tabulate(
            rows,
            "tasks, load:.2f, side, met/s=met_per_s:.1f, met=met_ratio:.1%, work=met_work:.1%",
            "to best, gap p50 us=gap_us.p50:.1f, p99=gap_us.p99:.1f",
            ("frames", lambda row: ", ".join(f"{w} {n}" for w, n in row["outcomes"].items())),
        ),
        f"collapsed (below {COLLAPSED:.0%} of its best): {', '.join(collapsed) or 'none'}\n"
        f"bar: beyond saturation never more than {nets['tolerance']:.0%} below the most met "
        f"frames of fewer tasks, gaps as above: {say_verdict(nets['passed'])}",
    ]


PARTS = {
    "cost": (_measure_cost, _report_cost),
    "rules": (_measure_rules, _report_rules),
    "nets": (_measure_nets, _report_nets),
}
"""Functions that measure and report each part."""
