# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Coordination on this machine: is it needed? Two networks, under loads that come and go.

A detector and a segmenter look at every frame under the real executor, one worker, each with one
period as its deadline. Under each load the contestants take turns in short windows of one run, and
in every window the load plays the same script, so that any other load of the machine affects all
of them alike:

static VARIANT  every frame of both networks in this variant, for every variant there is
neuos_balanced, alert, d3
                after their papers (see docs/coordinator.md); there are no clocks to set here
horizon         ours; where power cannot be read there is nothing to balance it with, so by
                default in the mode max_accuracy

Loads: `quiet`, nothing beside it, and `roomy`, busy processes that come and go, at a period of
--period-factor times both networks in the first variant; there some static choice should do.
`steps` and `bursts`, where none is right: at a period of --tight-factor times both networks in the
cheapest variant that loses next to no accuracy, busy processes come for seconds, or for a third of
a second at a time. Alone, a smaller variant gives accuracy away; beside them the accurate one is
late.

Figures: the share of all frames that were met (what is skipped, aborted, late or superseded is
not); the accuracy of the met ones, which is the agreement of the actual result with the full
model's on the same picture (mAP@0.5, mIoU), averaged over frames; their product, the *value*: mean
accuracy of all frames when a miss counts 0; and how often per second a task changed its variant.

For each load the report compares the best policy with the best static choice, chosen with
hindsight on the same windows, window by window, with Student's 95 % interval. A coordinator is
needed where the whole interval is above 0 and the gain at least 0.01, and not needed where the
whole interval is below 0.01; else more rounds are.

Passes when the value of horizon is at most 0.01 below that of the best static choice under every
load. Variants that the library lacks are built first, once (minutes).
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.harness.options import CORES, Options, add_library, echo
from benchmarks.harness.processes import BenchmarkError, busy_phases
from benchmarks.harness.tables import Report, flatten, say, say_verdict, tabulate
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
from benchmarks.harness.timing import find_quantiles, rotate
from jetson_dnn_rt.backends.registry import inspect_backend
from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.config.declaration import read_values
from jetson_dnn_rt.config.nodes import MODES, CoordinatorConfig
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.coordinator.coordinator import Coordinator
from jetson_dnn_rt.coordinator.policy import find_policy
from jetson_dnn_rt.coordinator.tables.library_tables import (
    load_profiles,
    make_clock_table,
    make_task_table,
)
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.simulate.tally import student
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.platforms.platform import UnknownPlatform
from jetson_dnn_rt.results import Result
from jetson_dnn_rt.runtime.building.builder import BuildSettings, TaskBuilder, TaskPlan
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.runtime.task import Task, open_model
from jetson_dnn_rt.tasks import JobRecord, Outcome, Work
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.measuring.agreement import compare
from jetson_dnn_rt.variants.measuring.timing import measure_in_turn
from jetson_dnn_rt.variants.running.variant_set import choose_default
from jetson_dnn_rt.variants.spec import VariantSpec


@dataclass(frozen=True)
class Load:
    """What else the machine does in one window, and how much time there is."""

    text: str
    is_tight: bool  # whether the period is --tight-factor times the cheapest accurate variant
    phases: tuple[tuple[float, bool], ...]  # seconds, and whether the busy processes run


_COME_AND_GO = ((2.5, False), (2.5, True), (2.5, False), (1.5, True))
LOADS = {
    "quiet": Load("nothing beside it", False, ((9.0, False),)),
    "roomy": Load("busy processes that come and go, much time", False, _COME_AND_GO),
    "steps": Load("busy processes that come and go, little time", True, _COME_AND_GO),
    "bursts": Load(
        "busy processes for a third of a second at a time, little time",
        True,
        ((0.6, False), (0.3, True)) * 10,
    ),
}

OURS, STATIC = "horizon", "static"
POLICIES = ("neuos_balanced", "alert", "d3", OURS)
MET_BAR = 0.99
LEAST_GAIN = 0.01
"""Least difference between two values that counts."""

_KINDS = {"detector": "detection", "segmenter": "segmentation"}
_SCENES = 24
_TIMED_RUNS = 60
_LEAST_AGREEMENT = 0.8  # tucker-0.50 of the built-in detector agrees 0.900: not left to chance
_NEARLY_FULL = 0.01  # agreement that an accurate variant may lose
_DRAIN_S = 5.0


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add(
        "--variants", None,
        "of both networks, accuracy is relative to the first (default: full and tucker-0.50 on "
        "the fastest back end, in all of its precisions)", metavar="A,B,...",
    )  # fmt: skip
    add("--loads", list(LOADS), "default: all", choices=LOADS)
    add("--stages", 4, "of each network")
    add(
        "--period-factor", 2.0,
        "period and deadline = F * (both networks in the first variant, in turn, alone)",
        above=0, metavar="F",
    )  # fmt: skip
    add(
        "--tight-factor", 1.4, "the same under steps and bursts, of the cheapest accurate variant",
        above=0, metavar="F",
    )  # fmt: skip
    add("--hogs", CORES, "busy processes (default: one for each core)", least=0)
    add("--mode", "max_accuracy", "of the policies that have one", choices=MODES)
    add("--confidence", 0.999, "of the policies that have one")
    add("--rounds", 6, "windows of each contestant under each load", least=1)
    add("--quick", False, "two rounds")
    add_library(add)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure.

    `ConfigurationError` when an argument cannot be used, or fewer than two variants load;
    `BenchmarkError` when a policy failed.
    """
    if args.quick:
        args.rounds = 2
    settings = read_values(CoordinatorConfig, {"confidence": args.confidence, "mode": args.mode})
    library = Library(args.engine_cache)
    frames = draw_frames(_SCENES)
    with ExitStack() as stack:
        subjects = {name: _load(stack, name, args, library, frames) for name in _KINDS}
        periods_ns = {
            False: args.period_factor * sum(find_cost_ns(one.task) for one in subjects.values()),
            True: args.tight_factor * sum(one.find_accurate_ns() for one in subjects.values()),
        }
        loads = {}
        for name in args.loads:
            period_ns = round(periods_ns[LOADS[name].is_tight])
            say(f"coordinate: {name}: period {period_ns / 1e6:.1f} ms, {args.rounds} rounds")
            loads[name] = _measure(LOADS[name], subjects, period_ns, settings, frames, args)
    passed = all(load["ours_over_static"]["gain"] >= -LEAST_GAIN for load in loads.values())
    return {
        **echo(args, "stages hogs rounds mode confidence period_factor tight_factor"),
        "variants": {task: subject.describe() for task, subject in subjects.items()},
        "loads": loads,
        "bars": {"horizon_over_best_static": -LEAST_GAIN},
        "passed": passed,
    }


def _measure(
    load: Load,
    subjects: Mapping[str, _Subject],
    period_ns: int,
    settings: CoordinatorConfig,
    frames: list[Frame],
    args: argparse.Namespace,
) -> dict[str, Any]:
    """Measure all contestants under one load, and compare them."""
    tables = [subject.table(period_ns) for subject in subjects.values()]
    clocks = make_clock_table(UnknownPlatform().space, ())
    shared = [
        variant
        for variant in tables[0].variants
        if all(variant in table.variants for table in tables)
    ]
    with ExitStack() as stack:
        contestants = []
        for policy, variant in (*((STATIC, one) for one in shared), *((p, "") for p in POLICIES)):
            one = _Contestant(policy, variant, subjects, tables, clocks, settings)
            contestants.append(one)
            stack.enter_context(running(one.executor))
        _drive(contestants, load, frames, period_ns, args)
    for one in contestants:
        if one.coordinator.failure:
            raise BenchmarkError(f"policy of {one.name} failed: {one.coordinator.failure}")
    figures = {one.name: one.figures() for one in contestants}
    return {
        "text": load.text,
        "period_ms": round(period_ns / 1e6, 3),
        "seconds_per_contestant": round(args.rounds * sum(s for s, _ in load.phases), 1),
        "contestants": figures,
        **judge(figures),
    }


def judge(contestants: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Compare the best policy, and ours, with the best static choice.

    A static choice is *right* when it meets `MET_BAR` of the frames and nobody is more accurate by
    `LEAST_GAIN`.
    """
    static = {name: one for name, one in contestants.items() if one["is_static"]}
    policies = {name: one for name, one in contestants.items() if not one["is_static"]}
    best_static = max(static, key=lambda name: float(static[name]["value"]))
    best_policy = max(policies, key=lambda name: float(policies[name]["value"]))
    highest = max(one["accuracy"] for one in contestants.values())
    reference = static[best_static]["values"]
    gain = compare_values(policies[best_policy]["values"], reference)
    return {
        "best_static": best_static,
        "best_policy": best_policy,
        "right_static": [
            name
            for name, one in static.items()
            if one["met_ratio"] >= MET_BAR and one["accuracy"] >= highest - LEAST_GAIN
        ],
        "policy_over_static": gain,
        "ours_over_static": compare_values(policies[OURS]["values"], reference),
        "needed": _is_needed(gain),
    }


def _is_needed(gain: Mapping[str, Any]) -> bool | None:
    """Whether the gain counts and is no chance; False if it cannot count, None if unknown."""
    if gain["interval"] is None:
        return None
    low, high = gain["interval"]
    if gain["gain"] >= LEAST_GAIN and low > 0.0:
        return True
    return False if high < LEAST_GAIN else None


def compare_values(values: Sequence[float], others: Sequence[float]) -> dict[str, Any]:
    """Mean gain window by window, with Student's 95 % interval; None of a single window."""
    gains = np.subtract(values, others)
    gain, count = float(gains.mean()), len(gains)
    if count < 2:
        return {"gain": gain, "interval": None}
    half = student(count - 1) * float(gains.std(ddof=1)) / math.sqrt(count)
    return {"gain": gain, "interval": [gain - half, gain + half]}


# -- the networks ------------------------------------------------------------------------------


@dataclass(eq=False)
class _Subject:
    """Network in its variants, with its times and the full model's results.

    The first variant is the reference for the others.
    """

    kind: str
    task: Task
    profiles: Mapping[str, Any]
    reference: list[Result]

    def table(self, period_ns: int) -> TaskTable:
        """Make the table for a period, which is the deadline too."""
        return make_task_table(
            self.task.name,
            self.task.stage_names,
            self.profiles,
            deadline_ns=period_ns,
            period_ns=period_ns,
        )

    def describe(self) -> dict[str, Any]:
        """Describe the times and agreement of each variant, as in the table."""
        table = self.table(1)
        totals_ns = table.times_ns.sum(axis=1)
        return {
            name: {
                "p50_ms": round(float(np.median(totals_ns[v])) / 1e6, 3),
                "p99_ms": round(float(np.quantile(totals_ns[v], 0.99)) / 1e6, 3),
                "agreement": round(table.accuracy(v), 4),
                "runs_of_stages": len(self.task.stages[name]),
            }
            for v, name in enumerate(table.variants)
        }

    def find_accurate_ns(self) -> float:
        """Find the least median time of a variant that loses next to no accuracy."""
        variants = self.describe().values()
        least = max(one["agreement"] for one in variants) - _NEARLY_FULL
        return 1e6 * min(float(one["p50_ms"]) for one in variants if one["agreement"] >= least)


def _load(
    stack: ExitStack, name: str, args: argparse.Namespace, library: Library, frames: list[Frame]
) -> _Subject:
    config = configure(
        name, f"builtin:{name}", weights="DEFAULT", engine_cache=str(args.engine_cache or ""),
        stages=args.stages, finest_stages=True, least_agreement=_LEAST_AGREEMENT,
    )  # fmt: skip
    model = open_model(config)
    names = name_variants(args.variants, model)
    if len(names) < 2:
        raise ConfigurationError(f"--variants must be at least two: {', '.join(names)}")
    config = replace(config, variants=tuple(names))
    build_missing(config, model, library)
    task = load_task(stack, config, model=model)
    for variant, why in task.left_out.items():
        say(f"coordinate: {name}: {variant} is left out: {why}")
    if len(task.variant_names) < 2:
        raise ConfigurationError(f"{name}: two variants are needed: {task.left_out}")
    # In turn, so that other load of the machine affects all variants.
    measured = measure_in_turn([*task.stages.values()], frames, _TIMED_RUNS, SteadyClock())
    times_ns = task.warm_up_times_ns = dict(zip(task.stages, measured, strict=True))
    known = load_profiles(
        task.stages, times_ns, library=library, model=model, threads=1, stages=args.stages,
        least=_LEAST_AGREEMENT,
    )  # fmt: skip
    profiles = {
        variant: replace(profile, times_ns=np.array(times_ns[variant], np.int64))
        for variant, profile in known.items()
    }
    subject = _Subject(_KINDS[name], task, profiles, [])
    for frame in frames:
        work = Work(frame)
        task.variants.pipelines[task.default].run(work)
        assert work.result is not None
        subject.reference.append(work.result)
    return subject


def build_missing(config: TaskConfig, model: Model, library: Library, threads: int = 1) -> None:
    """Build and measure the variants of a task that the library lacks, once."""
    plan = TaskPlan(config, model, threads)
    builder = TaskBuilder(plan, library, BuildSettings(), SteadyClock())
    for spec in builder.list_missing():
        say(f"{config.name}: {spec} is built, once")
        builder.build(spec)


def name_variants(given: str | None, model: Model) -> list[str]:
    """Name the given variants, or full and tucker-0.50 on the fastest back end."""
    if given:
        return [str(VariantSpec.parse(name)) for name in given.split(",")]
    backend = choose_default(model).backend
    precisions = inspect_backend(backend).precisions
    return [f"{d}@{backend}-{p}" for d in ("full", "tucker-0.50") for p in precisions]


# -- the policies ------------------------------------------------------------------------------


@dataclass(eq=False)
class _Window:
    """What one contestant did in one window."""

    records: list[JobRecord] = field(default_factory=list)
    # Met jobs by task, picture and path. The same picture in the same variants gives the same
    # result.
    met: Counter[tuple[str, int, tuple[str, ...]]] = field(default_factory=Counter)


class _Contestant:
    """Policy, or one variant, with an executor of its own, which runs in its own windows only."""

    def __init__(
        self,
        policy: str,
        variant: str,
        subjects: Mapping[str, _Subject],
        tables: Sequence[TaskTable],
        clocks: ClockTable,
        settings: CoordinatorConfig,
    ) -> None:
        self.name, self._subjects = f"{policy} {variant}".strip(), subjects
        self._is_static = bool(variant)
        self._windows: list[_Window] = []
        self._agreements: dict[tuple[str, int, tuple[str, ...]], float | None] = {}
        self._results: dict[tuple[str, int, tuple[str, ...]], Result] = {}
        self.seconds = 0.0
        made = find_policy(policy)(clocks, tables, settings, workers=1, interference=(1.0,))
        self.coordinator = Coordinator(clocks, tables, made, timer=time.perf_counter_ns)
        # Not a session: all of them run the same loaded tasks, and keep what they have learned.
        self.executor = Executor(1)
        for precedence, (table, subject) in enumerate(zip(tables, subjects.values(), strict=True)):
            add_task(
                self.executor, subject.task, self._observe, precedence=precedence, variant=variant,
                period_ns=table.period_ns, deadline_ns=table.deadline_ns,
            )  # fmt: skip
        self.executor.set_selector(self.coordinator)

    def begin_window(self) -> None:
        """Count what ends from now on as another window."""
        self._windows.append(_Window())

    def _observe(self, record: JobRecord, work: Work) -> None:
        window = self._windows[-1]
        window.records.append(record)
        if record.outcome is Outcome.MET:
            assert work.result is not None
            key = (record.task, work.frame.sequence, _find_path(record))
            window.met[key] += 1
            self._results.setdefault(key, work.result)

    def find_met_ratio(self, tasks: Collection[str]) -> float:
        """Compute the share of the frames of some tasks that were met."""
        return _find_met_ratio([one for w in self._windows for one in w.records], tasks)

    def figures(self) -> dict[str, Any]:
        """Figures that the contestant reached."""
        records = [one for window in self._windows for one in window.records]
        paths = {
            task: [variant for one in records if one.task == task for variant in _find_path(one)]
            for task in self._subjects
        }
        switches = sum(a != b for path in paths.values() for a, b in pairwise(path))
        met: Counter[tuple[str, int, tuple[str, ...]]] = Counter()
        for window in self._windows:
            met += window.met
        accuracies = {task: self._measure_accuracy(task, met) for task in self._subjects}
        responses_ns = [one.response_time_ns for one in records if one.outcome is Outcome.MET]
        values = [self._find_value(window) for window in self._windows]
        return {
            "is_static": self._is_static,
            "frames": len(records),
            "outcomes": dict(Counter(record.outcome.value for record in records)),
            "met_ratio": self.find_met_ratio(self._subjects),
            "met_ratio_by_task": {task: self.find_met_ratio([task]) for task in self._subjects},
            "accuracy": float(np.mean(list(accuracies.values()))),
            "accuracy_by_task": accuracies,
            "value": float(np.mean(values)),
            "values": values,
            "switches_per_s": switches / self.seconds,
            "stages_by_variant": dict(Counter(v for path in paths.values() for v in path)),
            "response_ms": find_quantiles(responses_ns or [0], "p50 p99 max", 1e6),
            "decision_us": find_quantiles(self.coordinator.decision_times_ns, "p50 p99", 1e3),
        }

    def _find_value(self, window: _Window) -> float:
        """Compute the mean accuracy of all frames of a window, a miss counting 0."""
        return float(
            np.mean(
                [
                    _find_met_ratio(window.records, [task])
                    * self._measure_accuracy(task, window.met)
                    for task in self._subjects
                ]
            )
        )

    def _measure_accuracy(
        self, task: str, met: Mapping[tuple[str, int, tuple[str, ...]], int]
    ) -> float:
        """Compute the mean agreement of met frames with the full model, picture by picture.

        Pictures in which the full model finds nothing say nothing.
        """
        total, frames = 0.0, 0
        for key, count in met.items():
            if key[0] == task and (value := self._find_agreement(key)) is not None:
                total, frames = total + count * value, frames + count
        return total / max(1, frames)

    def _find_agreement(self, key: tuple[str, int, tuple[str, ...]]) -> float | None:
        if key not in self._agreements:
            subject = self._subjects[key[0]]
            full = subject.reference[key[1]]
            self._agreements[key] = compare(
                subject.kind, [full], [self._results[key]], "full"
            ).value
        return self._agreements[key]


def _find_met_ratio(records: Sequence[JobRecord], tasks: Collection[str]) -> float:
    outcomes = [record.outcome for record in records if record.task in tasks]
    return outcomes.count(Outcome.MET) / len(outcomes)


def _find_path(record: JobRecord) -> tuple[str, ...]:
    """Find the variant of each run of stages."""
    return tuple(stage.variant for stage in record.stages)


# -- the run -----------------------------------------------------------------------------------


def _drive(
    contestants: list[_Contestant],
    load: Load,
    frames: list[Frame],
    period_ns: int,
    args: argparse.Namespace,
) -> None:
    """Release one frame per period in each window, to both tasks at the same time."""
    contestants[0].executor.realtime.freeze()
    count = round(sum(duration for duration, _ in load.phases) * 1e9) // period_ns
    for number in range(args.rounds):
        for contestant in rotate(contestants, number):
            clock, executor = contestant.executor.clock, contestant.executor
            contestant.begin_window()
            with busy_phases(args.hogs, load.phases):
                begin_ns = clock.now_ns()
                for index, _ in tick(clock, period_ns, count):
                    frame = frames[index % len(frames)]
                    executor.submit(tuple(_KINDS), frame, clock.now_ns())
                contestant.seconds += (clock.now_ns() - begin_ns) / 1e9
                drain(executor, _DRAIN_S)
        met = ", ".join(f"{one.name} {one.find_met_ratio(_KINDS):.4f}" for one in contestants)
        say(f"coordinate: round {number + 1}: met {met}")


def report(result: Mapping[str, Any]) -> Report:
    """Make a table of the variants, one of each load, and say where a coordinator is needed."""
    variants = [
        {"task": task, "variant": name, **figures}
        for task, found in result["variants"].items()
        for name, figures in found.items()
    ]
    parts: list[Any] = [
        f"{result['hogs']} busy processes where the load has any; {result['rounds']} windows of "
        f"each contestant under each load; mode {result['mode']}, confidence "
        f"{result['confidence']}",
        tabulate(variants, "task, variant, p50 ms=p50_ms:.2f, p99 ms=p99_ms:.2f, agreement:.3f"),
    ]
    for name, load in result["loads"].items():
        parts += [
            f"{name}: {load['text']}; period and deadline {load['period_ms']:.1f} ms",
            tabulate(
                flatten(load["contestants"]),
                "contestant=name, frames, met=met_ratio:.1%, accuracy:.3f, value:.3f",
                "switches/s=switches_per_s:.1f, p50 ms=response_ms.p50:.1f",
                "p99 ms=response_ms.p99:.1f, decision p99 us=decision_us.p99:.1f",
            ),
            _say_need(name, load),
        ]
    parts.append(
        f"bar: horizon's value is at most {LEAST_GAIN} below the best static choice's under every "
        f"load: {say_verdict(result['passed'])}"
    )
    return parts


def _say_need(name: str, load: Mapping[str, Any]) -> str:
    """Say whether a coordinator is needed under a load, in one sentence, and by how much."""
    need = {
        True: "a coordinator is needed",
        False: "no coordinator is needed",
        None: "these windows do not tell whether a coordinator is needed",
    }[load["needed"]]
    right = ", ".join(load["right_static"]) or "none"
    return (
        f"{name}: {need}. Best static choice: {load['best_static']}; best policy: "
        f"{load['best_policy']}, {_say_gain(load['policy_over_static'])}; horizon "
        f"{_say_gain(load['ours_over_static'])}. Static choices that meet "
        f"{MET_BAR:.0%} of the frames and lose no accuracy to anybody: {right}."
    )


def _say_gain(gain: Mapping[str, Any]) -> str:
    text = f"{gain['gain']:+.3f}"
    if gain["interval"] is None:
        return text
    low, high = gain["interval"]
    return f"{text} ({low:+.3f} to {high:+.3f})"
