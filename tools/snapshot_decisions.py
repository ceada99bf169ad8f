# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Snapshots of the decisions of the engine, the executor and the simulator in seeded runs.

Integers and names only. This module depends on the package only through the imports below.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from jetson_dnn_rt.config.nodes import CoordinatorConfig
from jetson_dnn_rt.config.process import DISCIPLINES
from jetson_dnn_rt.lab.simulate.scenario import open_scenario, scenario_names
from jetson_dnn_rt.lab.simulate.session import make_source, policy_names, simulate
from jetson_dnn_rt.lab.simulate.simulation import SimulatedFrame
from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.selection import StaticSelector
from jetson_dnn_rt.scheduling.task_state import Run, TaskState
from jetson_dnn_rt.tasks import JobRecord, Outcome, Stage

ENGINE_RUNS = 600
EXECUTOR_RUNS = 40
FRAMES, FEW_FRAMES = 40, 16
"""Frames of the fast task in each simulated run."""
SHOWN = (432, 425, 538)
"""Runs of the engine whose log is stored as text: with batches, with a selector, without."""
FEW_POLICIES = ("static", "horizon", "neuos_balanced")
FEW_SCENARIOS = (
    *("feedback_loop", "greedy_imbalance", "tx2_alexnet", "tx2_co_runner", "tx2_cohort4"),
    *("tx2_cohort16", "tx2_load_step", "tx2_thermal", "xavier_thermal", "xavier_vgg16"),
)
EVERY_POLICY_IN = ("tx2_load_step", "greedy_imbalance")
MS = 1_000_000

Lines = dict[str, object]


# Modules of the tests; type checkers do not find them.
def _drive(*args: Any, **options: Any) -> list[JobRecord]:
    records: list[JobRecord] = import_module("virtual_drive").drive(*args, **options)
    return records


def _make_task(*args: Any, **options: Any) -> Any:
    return import_module("virtual_drive").make_task(*args, **options)


# -- the engine alone ------------------------------------------------------------------------


class _Rotating(StaticSelector):
    """Selector of another variant at each stage, if it may be entered there; raises on request."""

    def __init__(self, raises_at: int) -> None:
        self._raises_at, self._asked = raises_at, 0

    def choose(self, state: TaskState, job: Job, now_ns: int) -> str:
        self._asked += 1
        if self._raises_at and self._asked % self._raises_at == 0:
            raise RuntimeError("made to raise")
        variants = state.parameters.variants
        return variants[(job.sequence + job.next_stage) % len(variants)]

    def allowed(self, state: TaskState, job: Job) -> Sequence[str]:
        return state.parameters.variants


def _run_engine(seed: int) -> tuple[list[str], list[JobRecord]]:
    """Run the engine; return its log and records, which the seed determines."""
    draw = random.Random(seed)
    pick = draw.randrange
    batches = seed % 3 == 0
    devices = ("cpu", "cuda", "dla0")
    limits = {} if pick(2) else {"cuda": 1 + pick(2), "dla0": 1}
    engine = Engine(1 + pick(3), DISCIPLINES[pick(3)], limits)
    if pick(4) == 0:
        engine.set_cohort_slowdown({2: 1.25, 3: 1.5})
    names = [f"t{index}" for index in range(1 + pick(4))]
    alike = 1 + pick(4)
    tight = 20 + pick(120)
    for index, name in enumerate(names):
        count = alike if batches else 1 + pick(4)
        stages = tuple(f"inference-{place + 1}" for place in range(count))
        variants = ("v", "w", "x")[: 1 + pick(3)] if not batches else ("v", "w")
        quantile = (0.5, 0.9, 0.99, 1.0)[pick(4)]
        task = _make_task(
            name,
            tight + pick(80),
            30 + pick(60),
            stages=stages,
            variants=variants,
            variant=variants[0],
            priority=pick(3) - 1,
            precedence=index,
            max_age_ns=0 if pick(3) else 5 + pick(60),
            budget_quantile=quantile,
            batch_group="g" if batches else "",
        )
        device = [devices[pick(3)] for _ in stages]
        layouts = {}
        for variant in variants:
            one = [Run(device=where, batches=batches) for where in device]
            if not batches and count > 1 and pick(3) == 0:
                one = [Run(2, device[0]), *one[2:]]
            layouts[variant] = one
        engine.add_task(task, layouts)
        for place, variant in enumerate(variants):
            if pick(8):
                runs = [
                    tuple(1 + pick(20 // (place + 1)) for _ in layouts[variant])
                    for _ in range(1 + pick(6))
                ]
                engine.seed_budgets(name, variant, runs)
        if batches and index == 0:
            for stage in range(count):
                for size in (2, 3, 4):
                    engine.seed_batch_budgets(name, "v", stage, size, [6 + size + pick(12)] * 2)
    if seed % 4 == 1:
        engine.selector = _Rotating(raises_at=17 if seed % 8 == 5 else 0)
    arrivals = sorted(
        (frame * (25 + pick(3)) + pick(12), name)
        for name in names
        for frame in range(12 + pick(20))
    )
    times = [1 + pick(30) for _ in range(37)]
    failing = {pick(30) for _ in range(pick(4))}
    log: list[str] = []

    def take_time(job: Job) -> int:
        return times[(job.sequence * 5 + job.next_stage * 3 + len(job.task)) % len(times)]

    def act(job: Job, now: int) -> None:
        mates = [[mate.task, mate.sequence] for mate in job.mates]
        log.append(
            f"{now} start {job.task} {job.sequence} stage {job.next_stage} {job.variant} "
            f"{job.admission.value} mates {json.dumps(mates)}"
        )
        name = names[pick(len(names))]
        what = pick(60)
        state = engine.tasks[name]
        if what == 0:
            engine.flush(name, now, "deactivated")
        elif what == 1:
            engine.suspend(name, "restarting")
        elif what in (2, 3, 4):
            engine.resume(name)
        elif what == 5:
            engine.tasks[name].set_deadline(15 + pick(150))
        elif what == 6:
            engine.tasks[name].set_max_age(pick(40))
        elif what == 7:
            usable = [one for one in state.parameters.variants if one not in state.withdrawn]
            engine.tasks[name].set_variant(usable[pick(len(usable))])
        elif what == 8:
            work = import_module("virtual_drive").make_work(1000 + len(log))
            engine.reject(name, now, now, work, "encoding yuv16 is not known")
        else:
            return
        log.append(f"{now} action {what} {name}")

    records = _drive(engine, arrivals, take_time, lambda job: job.sequence in failing, act)
    for name in names:
        state = engine.tasks[name]
        counts = {outcome.value: count for outcome, count in state.outcomes.items()}
        log.append(f"end {name} {state.released} {sorted(counts.items())}")
        log.append(f"end {name} withdrawn {sorted(state.withdrawn)}")
    log.append(f"end selector {engine.selector_failure}")
    return log, records


def _format_record(record: JobRecord) -> str:
    stages = [[s.name, s.variant, s.start_ns, s.end_ns, s.batch] for s in record.stages]
    return json.dumps(
        [
            *(record.task, record.sequence, record.variant, record.outcome.value, record.reason),
            *(record.admission.value, record.capture_ns, record.release_ns, record.start_ns),
            *(record.completion_ns, record.absolute_deadline_ns, record.waiting_ns),
            *(record.lag_ns, record.copied_bytes, record.batch, stages),
        ]
    )


def _summarize(records: Iterable[JobRecord], log: Iterable[str] = ()) -> str:
    records = list(records)
    digest = hashlib.sha256()
    for line in (*log, *map(_format_record, records)):
        digest.update(line.encode() + b"\n")
    counts = Counter(record.outcome for record in records)
    shown = " ".join(f"{one.value}={counts[one]}" for one in Outcome if counts[one])
    reasons = Counter(record.reason for record in records if record.reason)
    why = ", ".join(f"{name}={count}" for name, count in sorted(reasons.items()))
    return f"{digest.hexdigest()} {shown} ({why})"


def collect_engine() -> Lines:
    """Collect runs of the engine by seed; some as text."""
    lines: Lines = {}
    for seed in range(ENGINE_RUNS):
        log, records = _run_engine(seed)
        lines[f"engine {seed:03d}"] = _summarize(records, log)
        if seed in SHOWN:
            shown = [*log, *map(_format_record, records)]
            for number, line in enumerate(shown):
                lines[f"engine {seed:03d} log {number:04d}"] = line
    return lines


# -- the executor on the virtual clock --------------------------------------------------------


def _run_executor(seed: int) -> list[JobRecord]:
    draw = random.Random(1000 + seed)
    pick = draw.randrange
    bench = import_module("executor_bench")
    one = bench.Bench(workers=1, discipline=DISCIPLINES[pick(3)])
    names = [f"t{index}" for index in range(1 + pick(3))]
    for name in names:
        one.add(name, 8 + pick(40), *(1 + pick(8) for _ in range(1 + pick(3))))
    failing = {pick(10) for _ in range(pick(3))}

    def fail(work: Any) -> None:
        if work.frame.sequence in failing:
            raise RuntimeError("no memory left")

    one.executor.add_task(
        bench.parameters("faulty", 30 + pick(20), variants=("v", "w")),
        {"v": [Stage("only", fail)], "w": [one.stage("only", 2)]},
        lambda record, work: one.records.append(record),
    )
    if pick(3) == 0:
        one.executor.add_task(
            bench.parameters("hanging", 300),
            {"v": [Stage("only", one.hang)]},
            lambda record, work: one.records.append(record),
            restart=lambda: {"v": [one.stage("only", 3)]},
            stage_timeout_ns=50 * MS,
        )
        names.append("hanging")
    names.append("faulty")
    one.executor.start()
    now = 0
    for sequence in range(12):
        for name in names:
            if pick(5):
                one.submit(name, sequence)
                now += pick(4)
                one.run_to(now)
        now += 5 + pick(25)
        one.run_to(now)
    # Long enough to detect a hang.
    one.run_to(now + 1000)
    records: list[JobRecord] = one.finish()
    return sorted(records, key=lambda r: (r.completion_ns, r.task, r.sequence))


def collect_executor() -> Lines:
    """Collect runs of the executor by seed."""
    return {f"executor {s:03d}": _summarize(_run_executor(s)) for s in range(EXECUTOR_RUNS)}


# -- policies in the scenarios ------------------------------------------------------------------


def fingerprint() -> str:
    """Fingerprint of numpy's rounding: processors' vector units may differ in the last place.

    It does not depend on the package. If it differs, simulated decisions may differ.
    """
    drawn = np.random.default_rng(0)
    sample = drawn.lognormal(0.0, 0.5, 4096)
    matrix = sample[:1024].reshape(32, 32)
    parts = (sample, np.exp(-sample), np.log(sample), sample**1.7, matrix @ matrix, matrix.sum(0))
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()[:16]


def collect_simulated() -> Lines:
    """Collect some scenarios under some policies, two under every policy; few frames."""
    lines: Lines = {"fingerprint": fingerprint()}
    for name in FEW_SCENARIOS:
        policies = policy_names() if name in EVERY_POLICY_IN else FEW_POLICIES
        lines |= _simulate_all(name, policies, (0,), FEW_FRAMES)
    return lines


def collect_scenarios() -> Lines:
    """Collect every scenario under every policy, two seeds, and `horizon` with other settings."""
    lines: Lines = {"fingerprint": fingerprint()}
    for name in scenario_names():
        lines |= _simulate_all(name, policy_names(), (0, 1), FRAMES)
        for mode in ("min_energy", "max_accuracy"):
            settings = CoordinatorConfig(mode=mode, accuracy_floor=0.5, power_cap_w=8.0)
            shown = f"{name} horizon {mode}"
            lines[shown] = _simulate(_open(name), "horizon", 0, FRAMES, settings)
    return lines


def _open(name: str) -> Any:
    return make_source(open_scenario(name))


def _simulate_all(name: str, policies: Iterable[str], seeds: Iterable[int], frames: int) -> Lines:
    source = _open(name)
    return {
        f"{name} {policy} seed {seed}": _simulate(source, policy, seed, frames)
        for policy in policies
        for seed in seeds
    }


def _simulate(
    source: Any, policy: str, seed: int, count: int, settings: CoordinatorConfig | None = None
) -> str:
    frames: list[SimulatedFrame] = []
    tally = simulate(
        source, policy, seed=seed, frames=count, settings=settings, observer=frames.append
    )
    extra = f"switches={tally.switches}"
    return f"{_summarize(frame.record for frame in frames)} {extra}"
