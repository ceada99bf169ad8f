# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Coordination on this machine: two networks, and a background load that comes and goes.

A detector and a segmenter look at every frame under the real executor, one worker, each with one
period as its deadline. Processes that keep all cores busy come and go. Policies take turns in
short windows of one run, and in every window the load plays the same script, so that any other
load of the machine affects all of them alike:

static-full     every frame in the variant that accuracy is relative to, full in fp32
static-fast     every frame in the fastest variant
neuos_balanced  NeuOS, which chooses variants by LAG (there are no clocks to set here)
horizon         ours; where power cannot be read there is nothing to balance it with, so by
                default in the mode max_accuracy

Three figures for each: the share of all frames that were met (what is skipped, aborted, late or
superseded is not); the accuracy of the met ones, which is the agreement of the actual result with
the full model's on the same picture (mAP@0.5, mIoU), averaged over frames; and how often per
second a task changed its variant.

Passes when horizon meets at least 99 % of the frames and is more accurate than static-fast.
Variants that the library lacks are built first, once (minutes).
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.options import CORES, Options, echo
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

POLICIES = ("static-full", "static-fast", "neuos_balanced", "horizon")
MET_BAR = 0.99
PHASES = ((2.5, False), (2.5, True), (2.5, False), (1.5, True))
"""Script of the load in one window: seconds, and whether the load is on."""

_KINDS = {"detector": "detection", "segmenter": "segmentation"}
_SCENES = 24
_TIMED_RUNS = 60
_LEAST_AGREEMENT = 0.8  # tucker-0.50 of the built-in detector agrees 0.900: not left to chance
_DRAIN_S = 5.0


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add(
        "--variants", None,
        "of both networks, the first is static-full (default: full and tucker-0.50 on the "
        "fastest back end, in fp32 and, where it can, in bf16)", metavar="A,B,...",
    )  # fmt: skip
    add("--stages", 4, "of each network")
    add(
        "--period-factor", 2.0,
        "period and deadline = F * (both networks in full, one after the other, alone)",
        above=0, metavar="F",
    )  # fmt: skip
    add("--hogs", CORES, "processes of the load (default: one for each core)", least=0)
    add("--mode", "max_accuracy", "of horizon", choices=MODES)
    add("--confidence", 0.999, "of horizon")
    add("--rounds", 6, "windows of each policy", least=1)
    add("--quick", False, "two rounds")
    add(
        "--engine-cache", None, "library of the variants (default ~/.cache/jetson_dnn_rt)",
        kind=Path, metavar="DIR",
    )  # fmt: skip


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
        full_ns = sum(find_cost_ns(subject.task) for subject in subjects.values())
        period_ns = round(args.period_factor * full_ns)
        tables = [subject.table(period_ns) for subject in subjects.values()]
        clocks = make_clock_table(UnknownPlatform().space, ())
        say(f"coordinate: period {period_ns / 1e6:.1f} ms, {args.rounds} rounds")
        contestants = []
        for name in POLICIES:
            contestants.append(_Contestant(name, subjects, tables, clocks, settings))
            stack.enter_context(running(contestants[-1].executor))
        _drive(contestants, frames, period_ns, args)
        for one in contestants:
            if one.coordinator.failure:
                raise BenchmarkError(f"policy of {one.name} failed: {one.coordinator.failure}")
        figures = {one.name: one.figures() for one in contestants}
    horizon, fast = figures["horizon"], figures["static-fast"]
    passed = horizon["met_ratio"] >= MET_BAR and horizon["accuracy"] > fast["accuracy"]
    return {
        "period_ms": round(period_ns / 1e6, 3),
        **echo(args, "stages hogs rounds mode confidence"),
        "seconds_per_policy": round(args.rounds * sum(seconds for seconds, _ in PHASES), 1),
        "variants": {task: subject.describe() for task, subject in subjects.items()},
        "policies": figures,
        "bars": {"met_ratio": MET_BAR, "accuracy": "above static-fast"},
        "passed": passed,
    }


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

    def find_fastest(self) -> str:
        """Find the variant with the least median time."""
        return min((one["p50_ms"], name) for name, one in self.describe().items())[1]


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
    precisions = [p for p in ("fp32", "bf16") if p in inspect_backend(backend).precisions]
    return [f"{d}@{backend}-{p}" for d in ("full", "tucker-0.50") for p in precisions]


# -- the policies ------------------------------------------------------------------------------


class _Contestant:
    """Policy with an executor of its own, which runs in its own windows only."""

    def __init__(
        self,
        name: str,
        subjects: Mapping[str, _Subject],
        tables: Sequence[TaskTable],
        clocks: ClockTable,
        settings: CoordinatorConfig,
    ) -> None:
        self.name, self._subjects = name, subjects
        self._records: list[JobRecord] = []
        # Met jobs by task, picture and path. The same picture in the same variants gives the same
        # result, which is stored once.
        self._met: Counter[tuple[str, int, tuple[str, ...]]] = Counter()
        self._results: dict[tuple[str, int, tuple[str, ...]], Result] = {}
        self.seconds = 0.0
        policy = find_policy(name.partition("-")[0])(
            clocks, tables, settings, workers=1, interference=(1.0,)
        )
        self.coordinator = Coordinator(clocks, tables, policy, timer=time.perf_counter_ns)
        # Not a session: all policies run the same loaded tasks, and keep what they have learned.
        self.executor = Executor(1)
        for precedence, (table, subject) in enumerate(zip(tables, subjects.values(), strict=True)):
            task = subject.task
            add_task(
                self.executor, task, self._observe, precedence=precedence,
                variant=subject.find_fastest() if name == "static-fast" else "",
                period_ns=table.period_ns, deadline_ns=table.deadline_ns,
            )  # fmt: skip
        self.executor.set_selector(self.coordinator)

    def _observe(self, record: JobRecord, work: Work) -> None:
        self._records.append(record)
        if record.outcome is Outcome.MET:
            assert work.result is not None
            key = (record.task, work.frame.sequence, _find_path(record))
            self._met[key] += 1
            self._results.setdefault(key, work.result)

    def find_met_ratio(self, tasks: Collection[str]) -> float:
        """Compute the share of the frames of some tasks that were met."""
        outcomes = [record.outcome for record in self._records if record.task in tasks]
        return outcomes.count(Outcome.MET) / len(outcomes)

    def figures(self) -> dict[str, Any]:
        """Figures that the policy reached."""
        records = self._records
        paths = {
            task: [variant for one in records if one.task == task for variant in _find_path(one)]
            for task in self._subjects
        }
        switches = sum(a != b for path in paths.values() for a, b in pairwise(path))
        accuracies = {task: self._measure_accuracy(task) for task in self._subjects}
        responses_ns = [one.response_time_ns for one in records if one.outcome is Outcome.MET]
        return {
            "frames": len(records),
            "outcomes": dict(Counter(record.outcome.value for record in records)),
            "met_ratio": self.find_met_ratio(self._subjects),
            "met_ratio_by_task": {task: self.find_met_ratio([task]) for task in self._subjects},
            "accuracy": float(np.mean(list(accuracies.values()))),
            "accuracy_by_task": accuracies,
            "switches_per_s": switches / self.seconds,
            "stages_by_variant": dict(Counter(v for path in paths.values() for v in path)),
            "response_ms": find_quantiles(responses_ns, "p50 p99 max", 1e6),
            "decision_us": find_quantiles(self.coordinator.decision_times_ns, "p50 p99", 1e3),
        }

    def _measure_accuracy(self, task: str) -> float:
        """Compute the mean agreement of the met frames with the full model, picture by picture.

        Pictures in which the full model finds nothing say nothing.
        """
        subject = self._subjects[task]
        total, frames = 0.0, 0
        for key, count in self._met.items():
            if key[0] == task:
                full = subject.reference[key[1]]
                value = compare(subject.kind, [full], [self._results[key]], "full").value
                if value is not None:
                    total, frames = total + count * value, frames + count
        return total / max(1, frames)


def _find_path(record: JobRecord) -> tuple[str, ...]:
    """Find the variant of each run of stages."""
    return tuple(stage.variant for stage in record.stages)


# -- the run -----------------------------------------------------------------------------------


def _drive(
    contestants: list[_Contestant], frames: list[Frame], period_ns: int, args: argparse.Namespace
) -> None:
    """Release one frame per period in each window, to both tasks at the same time."""
    contestants[0].executor.realtime.freeze()
    count = round(sum(duration for duration, _ in PHASES) * 1e9) // period_ns
    for number in range(args.rounds):
        for contestant in rotate(contestants, number):
            clock, executor = contestant.executor.clock, contestant.executor
            with busy_phases(args.hogs, PHASES):
                begin_ns = clock.now_ns()
                for index, _ in tick(clock, period_ns, count):
                    frame = frames[index % len(frames)]
                    executor.submit(tuple(_KINDS), frame, clock.now_ns())
                contestant.seconds += (clock.now_ns() - begin_ns) / 1e9
                drain(executor, _DRAIN_S)
        met = ", ".join(f"{one.name} {one.find_met_ratio(_KINDS):.4f}" for one in contestants)
        say(f"coordinate: round {number + 1}: met {met}")


def report(result: Mapping[str, Any]) -> Report:
    """Make a table of the variants and one of the policies."""
    variants = [
        {"task": task, "variant": name, **figures}
        for task, found in result["variants"].items()
        for name, figures in found.items()
    ]
    return [
        f"{result['hogs']} busy processes that come and go; period and deadline "
        f"{result['period_ms']:.1f} ms; {result['seconds_per_policy']:.0f} s for each policy; "
        f"horizon: {result['mode']}, confidence {result['confidence']}",
        tabulate(variants, "task, variant, p50 ms=p50_ms:.2f, p99 ms=p99_ms:.2f, agreement:.3f"),
        tabulate(
            flatten(result["policies"]),
            "policy=name, frames, met=met_ratio:.1%, accuracy:.3f, switches/s=switches_per_s:.1f",
            "p50 ms=response_ms.p50:.1f, p99 ms=response_ms.p99:.1f",
            "decision p99 us=decision_us.p99:.1f",
        ),
        f"bars: horizon meets {100 * MET_BAR:.0f} % and is more accurate than static-fast: "
        f"{say_verdict(result['passed'])}",
    ]
