"""Coordination on this machine: two networks, and a background load that comes and goes.

A detector and a segmenter look at every frame under the real executor, one worker, each with one
period as its deadline. Processes that keep all cores busy come and go. Policies take turns in
short windows of one run, and in every window the load plays the same script, so that whatever
else the machine does meets all of them alike:

static-full     every frame in the variant that accuracy is relative to, full in fp32
static-fast     every frame in the fastest
neuos_balanced  NeuOS, which chooses variants by LAG (there are no clocks to set here)
horizon         ours; where power cannot be read there is nothing to balance it with, so by
                default in the mode max_accuracy

Three figures for each: the share of all frames that were met (what is skipped, aborted, late or
superseded is not); the accuracy of the met ones, which is the agreement of the very result with
the full model's on the same picture (mAP@0.5, mIoU), averaged over frames; and how often per
second a task went from one variant to another.

Passes when horizon meets at least 99 % of the frames and is more accurate than static-fast.
Variants that the library lacks are built first, once (minutes).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cpu_hogs import CpuHogs
from benchmarks.protocol import BenchmarkError
from jetson_dnn_rt.cli.text import format_rows
from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.config.nodes import MODES
from jetson_dnn_rt.coordinator.coordinator import Coordinator
from jetson_dnn_rt.coordinator.policy import PolicySettings
from jetson_dnn_rt.coordinator.registry import create_policy
from jetson_dnn_rt.coordinator.tables.library_tables import (
    load_profiles,
    make_clock_table,
    make_task_table,
)
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable
from jetson_dnn_rt.demo.scenes import held_out_seed, random_scene
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.platforms.platform import FixedPlatform
from jetson_dnn_rt.results import Result
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.tasks import JobRecord, Outcome, TaskParameters, Work
from jetson_dnn_rt.variants.building import BuildSettings, TaskBuilder, TaskPlan
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.measuring.agreement import compare
from jetson_dnn_rt.variants.measuring.timing import measure_stages
from jetson_dnn_rt.variants.running.variant_set import VariantSet, choose_default
from jetson_dnn_rt.variants.spec import VariantSpec

POLICIES = ("static-full", "static-fast", "neuos_balanced", "horizon")
MET_BAR = 0.99
PHASES = ((2.5, False), (2.5, True), (2.5, False), (1.5, True))
"""Of the load in one window: seconds, and whether it is there."""

_KINDS = {"detector": "detection", "segmenter": "segmentation"}
_SCENES, _SIZE = 24, (480, 640)
_TIMED_RUNS = 60
_DRAIN_S = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's arguments."""
    add = parser.add_argument
    add(
        "--variants", metavar="A,B,...",
        help="of both networks, the first is static-full (default: full and tucker-0.50 on the "
        "fastest back end, in fp32 and, where it can, in bf16)",
    )  # fmt: skip
    add("--stages", type=int, default=4, help="of each network (default 4)")
    add(
        "--period-factor", type=float, default=2.0, metavar="F",
        help="period and deadline = F * (both networks in full, one after the other, alone) "
        "(default 2)",
    )  # fmt: skip
    add(
        "--hogs", type=int, default=len(os.sched_getaffinity(0)),
        help="processes of the load (default: one for each core)",
    )  # fmt: skip
    add("--mode", choices=MODES, default="max_accuracy", help="of horizon (default max_accuracy)")
    add("--confidence", type=float, default=0.999, help="of horizon (default 0.999)")
    add("--rounds", type=int, default=6, help="windows of each policy (default 6)")
    add("--quick", action="store_true", help="two rounds")
    add(
        "--engine-cache", type=Path, metavar="DIR",
        help="library of the variants (default ~/.cache/jetson_dnn_rt)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> dict[str, object]:
    """Measure.

    Raises
    ------
    ConfigurationError
        When an argument cannot be used, or fewer than two variants are to be had.
    BenchmarkError
        When a policy failed.
    """
    rounds = 2 if args.quick else args.rounds
    if rounds < 1 or args.hogs < 0 or not args.period_factor > 0.0:
        raise ConfigurationError("--rounds must be >= 1, --hogs >= 0, --period-factor > 0")
    try:
        settings = PolicySettings(confidence=args.confidence, mode=args.mode)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    library = Library(args.engine_cache)
    scenes = [random_scene(held_out_seed(i), _SIZE).image for i in range(_SCENES)]
    frames = [Frame(image, "bgr8", 0, i) for i, image in enumerate(scenes)]
    contestants: dict[str, _Contestant] = {}
    subjects: dict[str, _Subject] = {}
    try:
        for task, kind in _KINDS.items():
            subjects[task] = _load(task, kind, args, library, frames)
        period_ns = round(args.period_factor * sum(s.full_ns for s in subjects.values()))
        tables = [subject.table(period_ns) for subject in subjects.values()]
        clocks = make_clock_table(FixedPlatform().space, ())
        _say(f"period {period_ns / 1e6:.1f} ms, {rounds} rounds of {len(POLICIES)} windows")
        for name in POLICIES:
            contestants[name] = _Contestant(name, subjects, tables, clocks, settings)
        _drive(list(contestants.values()), frames, period_ns, rounds, args.hogs)
        for name, one in contestants.items():
            if one.coordinator.failure:
                raise BenchmarkError(f"policy of {name} failed: {one.coordinator.failure}")
        figures = {name: one.figures() for name, one in contestants.items()}
    finally:
        for one in contestants.values():
            one.executor.stop()
        for subject in subjects.values():
            subject.variants.close()
    horizon, fast = figures["horizon"], figures["static-fast"]
    passed = horizon["met_ratio"] >= MET_BAR and horizon["accuracy"] > fast["accuracy"]
    return {
        "period_ms": round(period_ns / 1e6, 3),
        "stages": args.stages,
        "hogs": args.hogs,
        "rounds": rounds,
        "seconds_per_policy": round(rounds * sum(seconds for seconds, _ in PHASES), 1),
        "mode": args.mode,
        "confidence": args.confidence,
        "variants": {task: subject.describe() for task, subject in subjects.items()},
        "policies": figures,
        "bars": {"met_ratio": MET_BAR, "accuracy": "above static-fast"},
        "passed": passed,
    }


# -- the networks ------------------------------------------------------------------------------


@dataclass(eq=False)
class _Subject:
    """One network in its variants, with its times and the full model's results."""

    task: str
    kind: str
    model: Model
    variants: VariantSet
    settings: DecoderSettings
    profiles: Mapping[str, Any]
    reference: list[Result]

    @property
    def stages(self) -> dict[str, Any]:
        """The stages of each variant."""
        return {name: pipeline.stages for name, pipeline in self.variants.pipelines.items()}

    @property
    def full(self) -> str:
        """The variant that the others are measured against: the first of the list."""
        return next(iter(self.variants.pipelines))

    @property
    def full_ns(self) -> float:
        """Its median time."""
        return float(np.median(self.profiles[self.full].times_ns.sum(axis=1)))

    def table(self, period_ns: int) -> TaskTable:
        """The table for a period, which is the deadline too."""
        return make_task_table(
            self.task,
            self.variants.stage_names,
            self.profiles,
            deadline_ns=period_ns,
            period_ns=period_ns,
        )

    def fastest(self) -> str:
        """The variant with the least median time."""
        table = self.table(1)
        totals_ns = table.times_ns.sum(axis=1)
        return table.variants[int(np.argmin(np.median(totals_ns, axis=1)))]

    def describe(self) -> dict[str, Any]:
        """Times and agreement of each variant, as the table has them."""
        table = self.table(1)
        return {
            name: {
                "p50_ms": round(float(np.median(table.times_ns[v].sum(axis=0))) / 1e6, 3),
                "p99_ms": round(float(np.quantile(table.times_ns[v].sum(axis=0), 0.99)) / 1e6, 3),
                "agreement": round(table.accuracy(v), 4),
                "runs_of_stages": len(self.variants.pipelines[name].stages),
            }
            for v, name in enumerate(table.variants)
        }


def _load(
    task: str, kind: str, args: argparse.Namespace, library: Library, frames: Sequence[Frame]
) -> _Subject:
    model = load_model(f"builtin:{task}", kind=kind)  # type: ignore[arg-type]
    settings = DecoderSettings()
    names = _name_variants(args.variants, model)
    if len(names) < 2:
        raise ConfigurationError(f"--variants must be at least two: {', '.join(names)}")
    specs = tuple(VariantSpec.parse(name) for name in names)
    plan = TaskPlan(task, model, specs, settings, 1, args.stages)
    builder = TaskBuilder(plan, library, BuildSettings(), SteadyClock())
    for spec in builder.list_missing():
        _say(f"{task}: {spec} is built, once")
        builder.build(spec)
    variants = VariantSet(
        model, names, settings, threads=1, stages=args.stages, library=library, finest=True
    )
    for name, why in variants.left_out.items():
        _say(f"{task}: {name} is left out: {why}")
    try:
        if len(variants.pipelines) < 2:
            raise ConfigurationError(f"{task}: two variants are needed: {variants.left_out}")
        stages = {name: pipeline.stages for name, pipeline in variants.pipelines.items()}
        times_ns: dict[str, list[tuple[int, ...]]] = {name: [] for name in stages}
        # In turn, so that what the machine does besides meets all variants.
        for _ in range(max(1, _TIMED_RUNS // len(frames))):
            for name, runs in stages.items():
                times_ns[name] += measure_stages(runs, frames, len(frames), SteadyClock())
        known = load_profiles(
            stages, times_ns, library=library, model=model, threads=1,
            stages=args.stages,
        )  # fmt: skip
        profiles = {
            name: replace(profile, times_ns=np.array(times_ns[name], np.int64))
            for name, profile in known.items()
        }
        subject = _Subject(task, kind, model, variants, settings, profiles, [])
        for frame in frames:
            work = Work(frame)
            variants.pipelines[subject.full].run(work)
            assert work.result is not None
            subject.reference.append(work.result)
    except BaseException:
        variants.close()
        raise
    return subject


def _name_variants(given: str | None, model: Model) -> list[str]:
    from jetson_dnn_rt.backends.registry import inspect_backend

    if given:
        return [str(VariantSpec.parse(name)) for name in given.split(",")]
    backend = choose_default(model).backend
    precisions = [p for p in ("fp32", "bf16") if p in inspect_backend(backend).precisions]
    return [f"{d}@{backend}-{p}" for d in ("full", "tucker-0.50") for p in precisions]


# -- the policies ------------------------------------------------------------------------------


@dataclass
class _Tally:
    """What became of a task's frames under a policy."""

    outcomes: Counter[str] = field(default_factory=Counter)
    responses_ms: list[float] = field(default_factory=list)
    paths: Counter[tuple[int, tuple[str, ...]]] = field(default_factory=Counter)
    """Of met frames: the picture, and the variant of each run of stages."""
    stages: Counter[str] = field(default_factory=Counter)
    switches: int = 0
    last: str = ""


class _Contestant:
    """A policy with an executor of its own, which works in its own windows only."""

    def __init__(
        self,
        name: str,
        subjects: Mapping[str, _Subject],
        tables: Sequence[TaskTable],
        clocks: ClockTable,
        settings: PolicySettings,
    ) -> None:
        self.name, self._subjects = name, subjects
        self._tallies = {task: _Tally() for task in subjects}
        self._results: dict[tuple[str, int, tuple[str, ...]], Result] = {}
        self.seconds = 0.0
        policy = create_policy(
            name.partition("-")[0], clocks, tables, settings, workers=1, interference=(1.0,)
        )
        self.coordinator = Coordinator(clocks, tables, policy, timer=time.perf_counter_ns)
        self.executor = Executor(1)
        for precedence, (table, subject) in enumerate(zip(tables, subjects.values(), strict=True)):
            variant = subject.fastest() if name == "static-fast" else subject.full
            self.executor.add_task(
                TaskParameters(
                    table.task, table.deadline_ns, table.period_ns, table.stages, table.variants,
                    variant, precedence=precedence,
                ),
                {v: subject.stages[v] for v in table.variants},
                self._observe,
                warm_up_times_ns={
                    v: [tuple(map(int, row)) for row in subject.profiles[v].times_ns]
                    for v in table.variants
                },
            )  # fmt: skip
        self.executor.set_selector(self.coordinator)
        self.executor.start()

    def _observe(self, record: JobRecord, work: Work) -> None:
        tally = self._tallies[record.task]
        tally.outcomes[record.outcome.value] += 1
        path = tuple(stage.variant for stage in record.stages)
        for variant in path:
            tally.stages[variant] += 1
            tally.switches += bool(tally.last) and variant != tally.last
            tally.last = variant
        if record.outcome is Outcome.MET:
            assert work.result is not None
            tally.responses_ms.append(record.response_time_ns / 1e6)
            tally.paths[work.frame.sequence, path] += 1
            # The same picture in the same variants gives the same result: one of them is kept.
            self._results.setdefault((record.task, work.frame.sequence, path), work.result)

    def figures(self) -> dict[str, Any]:
        """What it reached."""
        tallies = self._tallies.values()
        outcomes = sum((tally.outcomes for tally in tallies), Counter())
        released = outcomes.total()
        decisions_us = np.array(self.coordinator.decision_times_ns) / 1e3
        accuracies = {task: self._measure_accuracy(task) for task in self._tallies}
        return {
            "frames": released,
            "outcomes": dict(outcomes),
            "met_ratio": outcomes["met"] / released,
            "met_ratio_by_task": {
                task: tally.outcomes["met"] / tally.outcomes.total()
                for task, tally in self._tallies.items()
            },
            "accuracy": float(np.mean(list(accuracies.values()))),
            "accuracy_by_task": accuracies,
            "switches_per_s": sum(tally.switches for tally in tallies) / self.seconds,
            "stages_by_variant": dict(sum((tally.stages for tally in tallies), Counter())),
            "response_ms": {
                key: float(np.quantile(np.concatenate([t.responses_ms for t in tallies]), share))
                for key, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
            },
            "decision_us": {
                key: float(np.quantile(decisions_us, share))
                for key, share in (("p50", 0.5), ("p99", 0.99))
            },
        }

    def _measure_accuracy(self, task: str) -> float:
        """Mean agreement of the met frames with the full model on the same pictures."""
        subject, paths = self._subjects[task], self._tallies[task].paths
        total = 0.0
        for (picture, path), count in paths.items():
            result = self._results[task, picture, path]
            full = subject.reference[picture]
            total += count * compare(subject.kind, [full], [result], "full").value
        return total / max(1, paths.total())


# -- the run -----------------------------------------------------------------------------------


def _drive(
    contestants: list[_Contestant],
    frames: Sequence[Frame],
    period_ns: int,
    rounds: int,
    hogs: int,
) -> None:
    contestants[0].executor.realtime.freeze()
    seconds = sum(duration for duration, _ in PHASES)
    with CpuHogs(hogs) as load:
        for number in range(rounds):
            # Each round begins with another.
            shift = number % len(contestants)
            for contestant in contestants[shift:] + contestants[:shift]:
                load.play(PHASES)
                _show(contestant, frames, period_ns, round(seconds * 1e9))
                load.finish()
            met = {
                one.name: sum(t.outcomes["met"] for t in one._tallies.values())
                / sum(t.outcomes.total() for t in one._tallies.values())
                for one in contestants
            }
            _say(f"round {number + 1}: met " + ", ".join(f"{k} {v:.4f}" for k, v in met.items()))


def _show(
    contestant: _Contestant, frames: Sequence[Frame], period_ns: int, duration_ns: int
) -> None:
    """One window: a frame a period, to both tasks at one instant."""
    clock, executor = contestant.executor.clock, contestant.executor
    begin_ns = clock.now_ns()
    for count in range(duration_ns // period_ns):
        clock.sleep_until_ns(begin_ns + count * period_ns)
        frame = frames[count % len(frames)]
        executor.submit(tuple(_KINDS), frame, clock.now_ns())
    contestant.seconds += (clock.now_ns() - begin_ns) / 1e9
    if not executor.wait_idle(_DRAIN_S):
        raise BenchmarkError(f"a frame did not end in {_DRAIN_S} s")


def format_table(result: dict[str, Any]) -> str:
    """Return the result as a table for people."""
    lines = [
        f"{result['hogs']} busy processes that come and go; period and deadline "
        f"{result['period_ms']:.1f} ms; {result['seconds_per_policy']:.0f} s for each policy; "
        f"horizon: {result['mode']}, confidence {result['confidence']}",
        "",
        format_rows(
            ["task", "variant", "p50 ms", "p99 ms", "agreement"],
            [
                [task, name, figures["p50_ms"], figures["p99_ms"], figures["agreement"]]
                for task, variants in result["variants"].items()
                for name, figures in variants.items()
            ],
        ),
        "",
        format_rows(
            ["policy", "frames", "met %", "accuracy", "switches/s", "p50 ms", "p99 ms", "p99 us"],
            [
                [
                    name,
                    figures["frames"],
                    100.0 * figures["met_ratio"],
                    figures["accuracy"],
                    figures["switches_per_s"],
                    figures["response_ms"]["p50"],
                    figures["response_ms"]["p99"],
                    figures["decision_us"]["p99"],
                ]
                for name, figures in result["policies"].items()
            ],
        ),
        "",
        f"bars: horizon meets {100 * MET_BAR:.0f} % and is more accurate than static-fast: "
        + ("passed" if result["passed"] else "NOT passed"),
    ]
    return "\n".join(lines)


def _say(text: str) -> None:
    print(f"coordinate: {text}", file=sys.stderr, flush=True)
