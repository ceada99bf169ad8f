"""`oracle`: what `horizon` would do if it knew every execution time and clocks changed at once.

The same plans and the same objective, but the time of a plan is that of the very frame, noise and
co-runners included, in place of a quantile; the clocks may change at every boundary, without
delay; nothing needs to be held in reserve, and while nothing runs the board is at its most frugal
clocks. What stays an estimate is how many stages will run side by side until a deadline, since
that depends on everybody's later decisions; it is made as `horizon` makes it.

It exists in the simulator only: it is the bound that every table of results is read against.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.coordinator.cohort import Cohort, Decision, Member
from jetson_dnn_rt.coordinator.frontier import Rest
from jetson_dnn_rt.coordinator.ladder import IMPOSSIBLE, plan_costs
from jetson_dnn_rt.coordinator.policies.horizon import Frame, Horizon
from jetson_dnn_rt.coordinator.policy import PolicySettings
from jetson_dnn_rt.coordinator.tables import ClockTable, TaskTable
from jetson_dnn_rt.simulator.world import World

Floats = npt.NDArray[np.float64]

SPARE_NS = 1_000.0
"""Held back for rounding to whole nanoseconds."""


class Oracle(Horizon):
    """See the module.

    Parameters
    ----------
    clock_table, tables, settings, workers, interference
        As for every policy; the tables and the interference without any error.
    world : World
        What happens.
    """

    clocks_at_boundaries = True

    def __init__(
        self,
        clock_table: ClockTable,
        tables: Sequence[TaskTable],
        settings: PolicySettings,
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
        for table, outlook in zip(self._own_tables, self._outlooks, strict=True):
            if id(outlook) in self._costs:
                continue
            objective = outlook.objective
            self._costs[id(outlook)] = [
                (
                    plan_costs(rest, objective, objective.joules),
                    plan_costs(rest, objective, objective.shared_joules),
                )
                for rest in outlook.rests
            ]
            base_ns = table.median_ns[:, :, None] * table.slowdown
            self._stages_ns[id(outlook)] = [
                _by_stage(rest, base_ns, stage) for stage, rest in enumerate(outlook.rests)
            ]

    def decide(self, cohort: Cohort, now_ns: int) -> Decision:
        """See the module."""
        members, deciding = cohort.members, cohort.deciding
        variants = tuple(member.variant for member in members)
        active = [index for index, member in enumerate(members) if member.active]
        if not active:
            return Decision(variants, self._outer[self._sleep])
        memory = self._learn(cohort)
        frames = [Frame(member, now_ns) for member in members]
        target = self._inner[cohort.clocks]
        times_ns, _ = self._allot(members, memory, frames, active, target, now_ns)
        needs = {index: self._need_ns(index, members[index]) for index in active}
        total = np.zeros(len(self.clocks))
        for index in active:
            outlook, stage = self._outlooks[index], members[index].stage
            shared = self._costs[id(outlook)][stage][1]
            own = self._costs[id(outlook)][stage][0]
            time_ns = max(1.0, times_ns[index] - SPARE_NS)
            fits = needs[index] <= time_ns
            plan = np.where(fits, own, np.inf).argmin(axis=0)
            columns = np.arange(len(total))
            late = needs[index].min(axis=0)
            unit = IMPOSSIBLE * outlook.objective.reference_j
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
        return Decision(variants, self._outer[clocks], memory)

    def _need_ns(self, index: int, member: Member) -> Floats:
        """True times of the plans of the present frame, alone, [P, C]."""
        factors = self._world.stage_factors(member.table.task, member.release_ns)
        stages_ns = self._stages_ns[id(self._outlooks[index])][member.stage]
        return np.asarray(
            np.tensordot(np.asarray(factors[member.stage :]), stages_ns, axes=(0, 0))
        )


def _by_stage(rest: Rest, base_ns: Floats, stage: int) -> Floats:
    """Times of each stage of each plan, [K - stage, P, C]."""
    return np.stack([base_ns[rest.plans[:, i], stage + i] for i in range(rest.plans.shape[1])])
