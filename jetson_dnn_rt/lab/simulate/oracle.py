# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Policy `oracle`: `horizon` with knowledge of every execution time and instant clock changes.

It has the same plans and the same objective, but the time of a plan is that of the actual frame,
noise and co-runners included, in place of a quantile; the clocks may change at every boundary,
without delay; there is no reserve, and while idle the board is at its lowest-power clocks. Only
the number of stages that will run side by side until a deadline is still an estimate, as in
`horizon`, since it depends on later decisions for all tasks.

It exists in the simulator only, as a reference: what better knowledge would bring `horizon`. It is
no bound, and `horizon` does better here and there; what none can do better than is in
`jetson_dnn_rt.lab.simulate.bound`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jetson_dnn_rt.config.nodes import CoordinatorConfig
from jetson_dnn_rt.coordinator.cohort import Cohort, Decision, Member
from jetson_dnn_rt.coordinator.policies.horizon.allotment import find_windows
from jetson_dnn_rt.coordinator.policies.horizon.outlook import IMPOSSIBLE, plan_costs
from jetson_dnn_rt.coordinator.policies.horizon.policy import Horizon
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, Integers, TaskTable
from jetson_dnn_rt.lab.simulate.board import Floats
from jetson_dnn_rt.lab.simulate.world import World

SPARE_NS = 1_000.0  # held back for rounding to whole nanoseconds


class Oracle(Horizon):
    """The policy `oracle`, see the module; `tables` and `interference` have no error."""

    clocks_at_boundaries = True
    response = 1.0  # frames end at their deadlines: no reserve is needed
    deviations = 2.0  # twice the reserve for others, since it has no other reserve
    feels_pressure = False  # the frames' own times are known

    def __init__(
        self,
        clock_table: ClockTable,
        tables: Sequence[TaskTable],
        settings: CoordinatorConfig,
        *,
        workers: int,
        interference: Sequence[float],
        world: World,
    ) -> None:
        super().__init__(clock_table, tables, settings, workers=workers, interference=interference)
        self._world = world
        self._sleep = int(self.clocks.idle_w.argmin())
        self._costs: dict[int, list[tuple[Floats, Floats]]] = {}
        self._stages_ns: dict[int, list[Floats]] = {}
        self._rescue_ns: dict[int, list[Floats]] = {}
        for table, outlook in zip(self._own_tables, self._outlooks, strict=True):
            if id(outlook) in self._costs:
                continue
            self._costs[id(outlook)] = [
                (
                    plan_costs(rest, objective, objective.joules),
                    plan_costs(rest, objective, objective.shared_joules),
                )
                for rest, objective in zip(outlook.rests, outlook.objectives, strict=True)
            ]
            base_ns = table.median_ns[:, :, None] * table.slowdown
            fastest = table.median_ns.argmin(axis=0)
            plans = [rest.plans for rest in outlook.rests]
            self._stages_ns[id(outlook)] = [
                _by_stage(of_rest, base_ns, stage) for stage, of_rest in enumerate(plans)
            ]
            self._rescue_ns[id(outlook)] = [
                _by_stage(_rescued(of_rest, fastest[stage:]), base_ns, stage)
                for stage, of_rest in enumerate(plans)
            ]

    def show(self, world: World) -> None:
        """Use this world of the same scenario from now on."""
        self._world = world

    def decide(self, cohort: Cohort, now_ns: int) -> Decision:
        """Decide with the true times, see the module."""
        members, deciding = cohort.members, cohort.deciding
        variants = tuple(member.variant for member in members)
        active = [index for index, member in enumerate(members) if member.active]
        if not active:
            return Decision(variants, self._outer[self._sleep])
        windows = find_windows(members, now_ns, self._gauge.start.response)
        target = self._inner[cohort.clocks]
        allotted, _ = self._allotment.find(
            members, self._gauge.start, windows, active, target, deciding
        )
        times_ns = dict(zip(active, allotted, strict=True))
        needs = {index: self._need_ns(index, members[index]) for index in active}
        total = np.zeros(len(self.clocks))
        for index in active:
            outlook, stage = self._outlooks[index], members[index].stage
            own, shared = self._costs[id(outlook)][stage]
            time_ns = max(1.0, times_ns[index] - SPARE_NS)
            fits = needs[index] <= time_ns
            if members[index].running_since_ns is not None:
                # Its next stage is running already: its variant is fixed.
                fits &= outlook.rests[stage].plans[:, :1] == members[index].variant
            plan = np.where(fits, own, np.inf).argmin(axis=0)
            columns = np.arange(len(total))
            late = needs[index].min(axis=0)
            unit = IMPOSSIBLE * outlook.objectives[stage].reference_j
            total += np.where(fits.any(axis=0), shared[plan, columns], unit * late / time_ns)
        if self._forbidden is not None:
            total += self._forbidden
        clocks = int(total.argmin())
        if deciding >= 0:
            need = needs[deciding][:, clocks]
            outlook, stage = self._outlooks[deciding], members[deciding].stage
            own = self._costs[id(outlook)][stage][0][:, clocks]
            fits = need <= max(1.0, times_ns[deciding] - SPARE_NS)
            row = int(np.where(fits, own, np.inf).argmin() if fits.any() else need.argmin())
            chosen = list(variants)
            chosen[deciding] = int(outlook.rests[stage].plans[row, 0])
            variants = tuple(chosen)
        return Decision(variants, self._outer[clocks])

    def _need_ns(self, index: int, member: Member) -> Floats:
        """Time that must be left for each plan of the present frame to be started, [P, C].

        Its true time; if others run side by side, at least that of its next stage and the fastest
        rest, with the reserve of `horizon` for them.
        """
        outlook, stage = self._outlooks[index], member.stage
        factors = np.asarray(
            self._world.stage_factors(member.table.task, member.release_ns)[stage:]
        )
        true_ns = np.tensordot(factors, self._stages_ns[id(outlook)][stage], axes=(0, 0))
        if outlook.reserve == 1.0:
            return np.asarray(true_ns)
        rescue_ns = np.tensordot(factors, self._rescue_ns[id(outlook)][stage], axes=(0, 0))
        return np.asarray(np.maximum(true_ns, outlook.reserve * rescue_ns))


def _by_stage(plans: Integers, base_ns: Floats, stage: int) -> Floats:
    """Stage times of each plan, [K - stage, P, C]."""
    return np.stack([base_ns[plans[:, i], stage + i] for i in range(plans.shape[1])])


def _rescued(plans: Integers, fastest: Integers) -> Integers:
    """Plans with all stages after the next one in their fastest variants."""
    rest = np.tile(fastest[1:], (len(plans), 1))
    return np.column_stack([plans[:, :1], rest])
