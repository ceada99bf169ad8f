# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Simulation of a policy in a scenario: the coordinator on the simulated engine, seed by seed."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from jetson_dnn_rt.config.nodes import POLICIES, CoordinatorConfig
from jetson_dnn_rt.config.process import TRACE_LIMIT_MB
from jetson_dnn_rt.coordinator.coordinator import Coordinator
from jetson_dnn_rt.coordinator.policy import Policy, find_policy
from jetson_dnn_rt.coordinator.tables.tables import TaskTable
from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError
from jetson_dnn_rt.lab.simulate.laboratory import Laboratory
from jetson_dnn_rt.lab.simulate.oracle import Oracle
from jetson_dnn_rt.lab.simulate.recording import RecordedLaboratory, WarmUpTimes
from jetson_dnn_rt.lab.simulate.scenario import Scenario
from jetson_dnn_rt.lab.simulate.simulation import Observer, SimulatedFrame, Simulation
from jetson_dnn_rt.lab.simulate.tally import Tally
from jetson_dnn_rt.lab.simulate.uncoordinated import ClocksAlone, Uncoordinated, VariantsAlone
from jetson_dnn_rt.lab.simulate.world import World
from jetson_dnn_rt.platforms.machine import describe_machine
from jetson_dnn_rt.traces.clock_log import ClockLog
from jetson_dnn_rt.traces.room import TraceRoom
from jetson_dnn_rt.traces.schema import SHARING, TracedTask, TraceMetadata

ORACLE = "oracle"

SIMULATED_POLICIES = {
    "uncoordinated": Uncoordinated,
    "clocks_alone": ClocksAlone,
    "variants_alone": VariantsAlone,
}
"""Policies that exist in the simulator only, besides the oracle."""

WARM_UP_RUNS = 32
"""Profiled frames that the first budgets of a task come from, as from warm-up runs."""

SOURCE = "simulate"
_TRACED_SEED = 0
# Far more than a run has: the trace is written more slowly than simulated.
_CLOCK_CHANGES = 1 << 22

Source = Laboratory | RecordedLaboratory
"""Source of worlds."""


def make_source(scenario: Scenario) -> Source:
    """Build the source of a scenario's worlds: its models, or its recording."""
    return Laboratory(scenario) if scenario.recording is None else RecordedLaboratory(scenario)


def policy_names() -> list[str]:
    """Names of all policies that can be simulated."""
    return [*POLICIES, ORACLE, *SIMULATED_POLICIES]


def make_policy(source: Source, name: str, settings: CoordinatorConfig, world: World) -> Policy:
    """Build a policy for a scenario; only the oracle sees the world."""
    scenario = source.scenario
    if name == ORACLE:
        return Oracle(
            source.clock_table,
            source.true_tables,
            settings,
            workers=scenario.workers,
            interference=scenario.interference,
            world=world,
        )
    table, tables, interference = source.clock_table, source.tables, source.interference
    _check_policy(name)
    cls = SIMULATED_POLICIES.get(name) or find_policy(name)
    return cls(table, tables, settings, workers=scenario.workers, interference=interference)


def _check_policy(name: str) -> None:
    if name not in policy_names():
        raise ConfigurationError(f"policy must be one of {', '.join(policy_names())}: {name!r}")


def simulate(
    source: Source,
    policy: str,
    *,
    seed: int = 0,
    frames: int | None = None,
    settings: CoordinatorConfig | None = None,
    observer: Observer | None = None,
    watch: Callable[[Simulation, Coordinator], None] | None = None,
    made: Policy | None = None,
    world: World | None = None,
    clocks: int | None = None,
) -> Tally:
    """Run one seed >= 0 of a scenario under a policy; a seed is the same world for every policy.

    Use one `source` for all policies and seeds. `frames` are those of the task with the shortest
    period, by default the scenario's. `observer` gets every frame that ends, `watch` the
    simulation and the coordinator before the run. `made` is from `make_policy` for this source:
    policies are stateless, so one serves all seeds. `world` is a world of this source, in place of
    that of the seed. `clocks` is the position at first, by default the fastest.
    `ConfigurationError` if the policy is unknown, or raised.
    """
    if world is None:
        world = source.world(seed, frames)
    if made is None:
        made = make_policy(source, policy, settings or CoordinatorConfig(), world)
    tally = Tally()

    def observe(frame: SimulatedFrame) -> None:
        tally.add(frame)
        if observer is not None:
            observer(frame)

    simulation = Simulation(world, observe, clocks=clocks, instant_clocks=policy == ORACLE)
    tables = source.true_tables if policy == ORACLE else source.tables
    coordinator = Coordinator(
        source.clock_table,
        tables,
        made,
        workers=world.workers,
        interference=source.interference,
        clocks=simulation.clocks,
        request_clocks=simulation.request_clocks,
        timer=time.perf_counter_ns,
    )
    simulation.engine.selector = coordinator
    seed_budgets(simulation, tables, source.warm_up_ns)
    if watch is not None:
        watch(simulation, coordinator)
    with _without_garbage_collection():
        begin_s = time.perf_counter()
        simulation.run()
        tally.wall_s = time.perf_counter() - begin_s
    if coordinator.failure:
        raise ConfigurationError(f"policy {policy} failed: {coordinator.failure}")
    tally.energy_j = simulation.energy_j
    tally.decision_ns.extend(coordinator.decision_times_ns)
    tally.switches = coordinator.switches
    return tally


def seed_budgets(
    simulation: Simulation,
    tables: Sequence[TaskTable],
    warm_up_ns: Mapping[str, WarmUpTimes] = MappingProxyType({}),
) -> None:
    """Seed the budgets from profiled frames, as the executor does from warm-up runs.

    If the times of those runs are known, they are used instead.
    """
    for table in tables:
        spans = simulation.engine.tasks[table.task].spans
        known = warm_up_ns.get(table.task, {})
        for index, variant in enumerate(table.variants):
            if variant in known:
                simulation.engine.seed_budgets(table.task, variant, known[variant])
                continue
            rows = table.times_ns[index, :, :WARM_UP_RUNS].T.tolist()
            entries = [stage for stage, span in enumerate(spans[variant]) if span]
            times = [
                tuple(sum(row[stage : stage + spans[variant][stage]]) for stage in entries)
                for row in rows
            ]
            simulation.engine.seed_budgets(table.task, variant, times)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Disable garbage collection: the many records have no cycles, so it would find nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def simulate_traced(
    source: Source, policy: str, frames: int | None, folder: Path, limit_mb: int = TRACE_LIMIT_MB
) -> Tally:
    """Run the first seed of a scenario and write its job trace, with the schema of a real one.

    An earlier trace in the folder is replaced; a `limit_mb` of 0 is no limit. `ConfigurationError`
    if the folder cannot be written, pyarrow is missing, or from `simulate`; `JetsonDnnRtError` if
    the trace is incomplete.
    """
    from jetson_dnn_rt.traces.writer import TraceWriter

    _check_policy(policy)  # before an earlier trace is replaced
    log, room = ClockLog(entries=_CLOCK_CHANGES), TraceRoom(limit_mb, ring=False)
    metadata = _describe(source, policy)
    try:
        writer = TraceWriter(folder, metadata, clocks=log.at, room=room, replace=True)
    except OSError as error:
        raise ConfigurationError(f"cannot write {folder}: {error.strerror}") from error
    begun: list[Simulation] = []
    logged = 0

    def keep(frame: SimulatedFrame) -> None:
        nonlocal logged
        for time_ns, position in begun[0].clock_log[logged:]:
            log.append(time_ns, source.clock_table.describe(position))
            logged += 1
        writer.write(frame.record, warm_up=False, wait=True)

    with writer:
        tally = simulate(
            source, policy, seed=_TRACED_SEED, frames=frames, observer=keep,
            watch=lambda simulation, _: begun.append(simulation),
        )  # fmt: skip
    if writer.lost or writer.error:
        raise JetsonDnnRtError(f"the trace lacks {writer.lost} jobs: {writer.error}")
    return tally


def _describe(source: Source, policy: str) -> TraceMetadata:
    """Metadata of a simulated run: the board that is modelled, the machine that computed it."""
    scenario = source.scenario
    fastest = source.clock_table.describe(source.clock_table.fastest)
    return TraceMetadata(
        machine=describe_machine(),
        platform={
            "name": "simulated",
            "title": f"{scenario.board.space} (model)",
            "clocks": fastest,
            "configuration": fastest,
            "power_mode": "",
            "writable": True,
            "reason": "",
            "notes": [],
        },
        tasks={
            table.task: TracedTask(
                variants=table.variants,
                stages=table.stages,
                deadline_ns=table.deadline_ns,
                period_ns=table.period_ns,
            )
            for table in source.tables
        },
        parameters={
            "simulate": {
                "scenario": scenario.name,
                "policy": policy,
                "seed": _TRACED_SEED,
                "workers": scenario.workers,
                "discipline": scenario.discipline,
                "helpers": scenario.helpers,
            },
            SHARING: {"workers": scenario.workers, "helpers": scenario.helpers},
        },
        source=SOURCE,
    )
