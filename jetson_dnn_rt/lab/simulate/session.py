"""A policy in a scenario: the coordinator on the simulated engine, seed by seed."""

from __future__ import annotations

import gc
import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Protocol

from jetson_dnn_rt.coordinator.coordinator import Coordinator
from jetson_dnn_rt.coordinator.policy import Policy, PolicySettings
from jetson_dnn_rt.coordinator.registry import POLICIES, create_policy
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.simulate.scenario import Scenario
from jetson_dnn_rt.lab.simulate.simulation import SimulatedFrame, Simulation
from jetson_dnn_rt.lab.simulate.tally import Tally
from jetson_dnn_rt.lab.simulate.world import World

ORACLE = "oracle"
ORACLE_CLASS = "jetson_dnn_rt.lab.simulate.oracle:Oracle"

SIMULATED_POLICIES = {
    ORACLE: ORACLE_CLASS,
    "uncoordinated": "jetson_dnn_rt.lab.simulate.uncoordinated:Uncoordinated",
    "clocks_alone": "jetson_dnn_rt.lab.simulate.uncoordinated:ClocksAlone",
    "variants_alone": "jetson_dnn_rt.lab.simulate.uncoordinated:VariantsAlone",
}
"""Policies that exist in the simulator only."""

WARM_UP_RUNS = 32
"""Profiled frames that the first budgets of a task come from, as from warm-up runs."""

Observer = Callable[[SimulatedFrame], None]

WarmUpTimes = Mapping[str, list[tuple[int, ...]]]
"""For each variant, run by run, the times of its stages in ns."""


class Source(Protocol):
    """Where worlds come from: a `Laboratory`, or a recording."""

    scenario: Scenario

    @property
    def clock_table(self) -> ClockTable:
        """The configurations to choose from."""

    @property
    def tables(self) -> list[TaskTable]:
        """What profiling finds."""

    @property
    def true_tables(self) -> list[TaskTable]:
        """The same without error, for the oracle."""

    @property
    def interference(self) -> tuple[float, ...]:
        """As profiled."""

    def world(self, seed: int, frames: int | None = None) -> World:
        """What happens, for one seed."""


def policy_names() -> list[str]:
    """All that can be simulated."""
    return [*POLICIES, *SIMULATED_POLICIES]


def make_policy(source: Source, name: str, settings: PolicySettings, world: World) -> Policy:
    """Make a policy for a scenario; the oracle is shown the world.

    Raises
    ------
    ConfigurationError
        When there is none of that name.
    """
    scenario = source.scenario
    if name == ORACLE:
        module, _, cls = ORACLE_CLASS.partition(":")
        oracle: Policy = getattr(importlib.import_module(module), cls)(
            source.clock_table,
            source.true_tables,
            settings,
            workers=scenario.workers,
            interference=scenario.interference,
            world=world,
        )
        return oracle
    if name in SIMULATED_POLICIES:
        module, _, cls = SIMULATED_POLICIES[name].partition(":")
        made: Policy = getattr(importlib.import_module(module), cls)(
            source.clock_table,
            source.tables,
            settings,
            workers=scenario.workers,
            interference=source.interference,
        )
        return made
    if name not in POLICIES:
        raise ConfigurationError(f"policy must be one of {', '.join(policy_names())}: {name!r}")
    return create_policy(
        name,
        source.clock_table,
        source.tables,
        settings,
        workers=scenario.workers,
        interference=source.interference,
    )


def simulate(
    source: Source,
    policy: str,
    *,
    seed: int = 0,
    frames: int | None = None,
    settings: PolicySettings | None = None,
    observer: Observer | None = None,
    watch: Callable[[Simulation, Coordinator], None] | None = None,
    made: Policy | None = None,
    warm_up_ns: Mapping[str, WarmUpTimes] | None = None,
) -> Tally:
    """Run one seed of a scenario under a policy.

    Parameters
    ----------
    source : Source
        Made of the scenario; use one for all policies and seeds.
    policy : str
        One of `policy_names`.
    seed : int
        >= 0; the same seed is the same world for every policy.
    frames : int, optional
        Of the task with the shortest period; by default the scenario's.
    settings : PolicySettings, optional
        Of the policy.
    observer : callable, optional
        Called with every frame that ends.
    watch : callable, optional
        Called with the simulation and the coordinator before the run.
    made : Policy, optional
        From `make_policy` for this source; policies have no state, so that one does for all seeds.
    warm_up_ns : mapping of str to WarmUpTimes, optional
        By task, where the first budgets came from; by default the first profiled frames.

    Returns
    -------
    Tally
        What it came to.

    Raises
    ------
    ConfigurationError
        When the policy is unknown, or raised.
    """
    world = source.world(seed, frames)
    if made is None:
        made = make_policy(source, policy, settings or PolicySettings(), world)
    tally = Tally()
    observers = [tally.add] if observer is None else [tally.add, observer]

    def observe(frame: SimulatedFrame) -> None:
        for take in observers:
            take(frame)

    simulation = Simulation(world, observe, instant_clocks=policy == ORACLE)
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
    seed_budgets(simulation, tables, warm_up_ns or {})
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
    tally.clock_changes = len(simulation.clock_log) - 1
    tally.switches = coordinator.switches
    return tally


def seed_budgets(
    simulation: Simulation,
    tables: Sequence[TaskTable],
    warm_up_ns: Mapping[str, WarmUpTimes] = MappingProxyType({}),
) -> None:
    """First budgets from profiled frames, as the executor has them from warm-up runs.

    Where the times of those runs are known, they are taken.
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
    """Records are many and hold no cycles: collecting them again and again finds nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
