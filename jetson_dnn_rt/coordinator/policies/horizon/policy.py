# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`horizon`: the least cost that meets every deadline, from tables of remaining plans.

Before anything runs, the plans for the rest of a frame are computed for every task, boundary and
clock configuration (`horizon.frontier`), ordered by what they need and cost (`horizon.outlook`). A
decision then takes three steps.

1. How much time does each frame have? From now to its deadline, less the share of the others:
   concurrent stages slow each other down (`interference`, for as many as are expected at once,
   next releases included); with fewer workers they queue (EDF). Divided by the task's *pressure*
   (`horizon.pressure`): the slow-down that profile, noise and interference do not explain,
   whatever the cause (a co-runner, heat).
2. Which clocks? Those of the least total cost of all frames in flight and soon expected, each with
   the best plan that fits. A change takes effect after its delay; until then work continues at the
   present clocks. A change that gains less than `HYSTERESIS` is not made. A task that stopped
   sending frames is not waited for (`find_windows`). While nothing runs, idle
   power is weighed against the cost of the next frames, which begin at these clocks and can only
   then request others.
3. Which variant? The next stage of the best plan that fits, by bisection; with an
   `accuracy_floor` of the best that also keeps the floor, what was lost so far included. What a
   task lost beyond it, for want of time, its next frames make up for (`horizon.floor`).

After a miss the task's next frames get `CAUTION` less time for each miss in a row, to be safe,
since misses come in bursts (REFERENCE 6).

In mode `balanced` the cost is energy plus lost accuracy, where a frame's whole accuracy is worth
`energy_per_accuracy` frames' energies; `min_energy` gives accuracy above `accuracy_floor` almost
no weight; `max_accuracy` gives energy below `power_cap_w` almost none; `streaming` is as
`max_accuracy`, but results lose accuracy by their age, too (`horizon.freshness`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jetson_dnn_rt.coordinator.cohort import Cohort, Decision, Member
from jetson_dnn_rt.coordinator.policies.horizon.allotment import Allotment, Window, find_windows
from jetson_dnn_rt.coordinator.policies.horizon.floor import SPARE, Menu, build_menus
from jetson_dnn_rt.coordinator.policies.horizon.freshness import find_aging
from jetson_dnn_rt.coordinator.policies.horizon.outlook import (
    DELAY_PARTS,
    LOSS_WEIGHTS,
    Objective,
    Outlook,
    build_outlook,
    expect_others,
    over_cap,
    weigh_energy,
)
from jetson_dnn_rt.coordinator.policies.horizon.pressure import PressureGauge
from jetson_dnn_rt.coordinator.policies.horizon.sheet import Sheet
from jetson_dnn_rt.coordinator.policy import Policy, usable
from jetson_dnn_rt.coordinator.tables.hull import reduce_clocks
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable

HYSTERESIS = 0.005  # share of the cost that a change of clocks must gain
RESPONSE = 0.9
"""Fraction of the time to their deadlines after which the others are expected to be done, before
any has shown it."""
DEVIATIONS = 0.5
"""Standard deviations of concurrent stages that are reserved for the rest of a frame. Since the
responses of the others are learned, 1 misses no less in drawn scenarios (`benchmarks.fronts`,
seeds 0, 1003, 1005, 1009), and takes up to 3 % more energy at an accuracy of 0.9."""
MOST_CLOCKS = 64  # clock configurations from which on a table is reduced to those worth choosing
FIRST_TOLERANCE = 0.03  # tolerance of that reduction; doubled until they are few enough


class Horizon(Policy):
    """The least cost that meets every deadline; see the module."""

    adjusts_clocks = adjusts_variants = True
    energy_per_accuracy = 10.0
    """In mode `balanced`: the worth of a frame's whole accuracy in frames' energies. At 10, a
    hundredth of the accuracy is given up for more than a tenth of the energy."""
    response = RESPONSE
    deviations = DEVIATIONS
    feels_pressure = True  # False: the tables have no error

    def prepare(self) -> None:
        """Compute the look-up tables."""
        tables, settings = self.tables, self.settings
        self.clocks, own = self.clock_table, list(tables)
        tolerance = FIRST_TOLERANCE
        while len(self.clocks) > MOST_CLOCKS and tolerance < 1.0:
            self.clocks, own = reduce_clocks(self.clocks, own, tolerance=tolerance)
            tolerance *= 2.0
        self._own_tables = own
        self._outer, self._inner = _match(self.clock_table, self.clocks, tables)
        count = len(own)
        self._workers = min(self.workers, count)
        most = min(self._workers, len(self.interference))
        self._interference = [
            float(self.interference[min(n, most) - 1]) for n in range(1, count + 1)
        ]
        load = [min(1.0, table.deadline_ns / table.period_ns) for table in own]
        duty = [self.response * share for share in load]
        joules, shared = weigh_energy(duty, self._workers, self._interference)
        loss = LOSS_WEIGHTS.get(settings.mode, self.energy_per_accuracy)
        weights = Objective(joules, shared, loss, loss_allowed=1.0 - settings.accuracy_floor)
        if settings.mode == "streaming":
            aging = find_aging(own, self._workers) / (settings.accuracy_lifetime_ms * 1e6)
            weights = replace(weights, aging_per_ns=aging)
        made: dict[tuple[int, tuple[float, float]], Outlook] = {}
        self._outlooks: list[Outlook] = []
        for index, (table, original) in enumerate(zip(own, tables, strict=True)):
            others = expect_others(index, duty, self._workers, self._interference, self.deviations)
            key = id(original), others
            if key not in made:
                made[key] = build_outlook(
                    table, self.clocks, settings.confidence, weights, *others
                )
            self._outlooks.append(made[key])
        self._allowed = 1.0 - settings.accuracy_floor + SPARE
        menus: dict[int, list[list[Menu]]] = {}
        if settings.accuracy_floor:
            menus = {id(outlook): build_menus(outlook) for outlook in made.values()}
        self._menus = [menus.get(id(outlook)) for outlook in self._outlooks]
        self._sheet = Sheet(self._outlooks, [table.deadline_ns for table in own])
        self._rise_w = self.clocks.idle_w - self.clocks.idle_w.min()
        self._longest_delay_ns = max(
            (domain.delay_ns for domain in self.clocks.space.domains), default=0
        )
        unit_j = sum(outlook.objectives[0].reference_j for outlook in self._outlooks)
        self._forbidden = over_cap(
            self.clocks, own, settings.power_cap_w, self._workers, self._interference, unit_j
        )
        self._gauge = PressureGauge(
            own, self._interference, self._inner, self.response, 1.0 - settings.accuracy_floor
        )
        self._allotment = Allotment(
            self._workers,
            load,
            self._interference,
            [(t.median_ns[0] / t.median_ns[0][::-1].cumsum()[::-1]).tolist() for t in own],
            [outlook.full_ns.tolist() for outlook in self._outlooks],
            self._gauge if self.feels_pressure else None,
        )

    def decide(self, cohort: Cohort, now_ns: int) -> Decision:
        """See the module."""
        members, deciding = cohort.members, cohort.deciding
        memory = self._gauge.learn(cohort)
        inside = deciding >= 0 and members[deciding].stage > 0
        if inside:
            shown = self._gauge.shown(deciding, members[deciding], memory)
            memory = memory._replace(newest=shown)
        present, target = self._inner[cohort.clocks], self._inner[cohort.clocks_target]
        windows = find_windows(members, now_ns, memory.response)
        asked = (deciding,) if inside else range(len(members))
        times_ns, mean = self._allotment.find(members, memory, windows, asked, target, deciding)
        clocks = target
        if not inside:
            clocks = self._choose_clocks(cohort, windows, times_ns, present, target, now_ns)
        variants = [member.variant for member in members]
        if deciding >= 0:
            member, outlook = members[deciding], self._outlooks[deciding]
            time_ns = times_ns[0 if len(times_ns) == 1 else deciding]
            if clocks != present:
                part = self._left(cohort, present, target, now_ns) if clocks == target else -1
                time_ns += outlook.change_ns.item(part, member.stage, present, clocks)
            menus = self._menus[deciding]
            if menus is None:
                ladder = outlook.ladders[member.stage][clocks]
                wanted = ladder.variants[ladder.find(time_ns)]
            else:
                lost = self._gauge.lost(deciding, member, memory) + memory.debt[deciding]
                allowed = self._allowed - lost
                wanted = menus[member.stage][clocks].choose(time_ns, allowed)
            variants[deciding] = _nearest_usable(member, wanted)
            memory = self._gauge.note(memory, cohort, variants[deciding], mean)
        outer = cohort.clocks_target if clocks == target else self._outer[clocks]
        return Decision(tuple(variants), outer, memory)

    def _left(self, cohort: Cohort, present: int, target: int, now_ns: int) -> int:
        """Remaining delay of a change under way, in `DELAY_PARTS`."""
        delay_ns = max(1, self.clocks.delay_ns(present, target))
        left_ns = max(0, cohort.clocks_at_ns - now_ns)
        return min(DELAY_PARTS, -(-left_ns * DELAY_PARTS // delay_ns))

    # -- which clocks --------------------------------------------------------------------------

    def _choose_clocks(
        self,
        cohort: Cohort,
        windows: Sequence[Window],
        times_ns: Sequence[float],
        present: int,
        target: int,
        now_ns: int,
    ) -> int:
        """Clocks of the least total cost of the frames in flight and soon expected.

        A frame that is expected while others run must use the clocks that it finds; where none
        runs, it may request better ones when it begins.
        """
        sheet, members = self._sheet, cohort.members
        ends = [w[1] for w, member in zip(windows, members, strict=True) if member.active]
        soon = max(ends, default=0) + self._longest_delay_ns
        part = 0
        if present != target:
            part = self._left(cohort, present, target, now_ns)
        waited: list[int] = []
        places = []
        for index, (window, member) in enumerate(zip(windows, members, strict=True)):
            time_ns = times_ns[index]
            if member.active:
                place = sheet.place(index, member.stage, time_ns, delayed=True)
                places.append(place)
                if present != target:
                    change_ns = self._outlooks[index].change_ns
                    lost = change_ns.item(part, member.stage, present, target)
                    waited.append(sheet.place_at(index, member.stage, time_ns + lost, target))
            elif not ends or window[0] <= soon:
                boundary = 0 if ends else -1
                place = sheet.place(index, boundary, time_ns, delayed=False)
                places.append(place)
                if present != target:
                    waited.append(place[0] + target)
        cost = sheet.add_up(places, present)
        if waited:
            cost[target] = sheet.total(waited)
        if not ends:
            cost += self._rise_w * (min(window[0] for window in windows) * 1e-9)
        if self._forbidden is not None:
            cost += self._forbidden
        best = int(cost.argmin())
        if cost[target] <= cost[best] * (1.0 + HYSTERESIS):
            return target
        return best


def _match(
    outer: ClockTable, inner: ClockTable, tables: Sequence[TaskTable]
) -> tuple[list[int], list[int]]:
    """Map positions of the reduced table to the full one, and back.

    A configuration that is not in the reduced table (set by another policy) is mapped to the one
    of the nearest speed.
    """
    position = {index: i for i, index in enumerate(outer.indices.tolist())}
    there = [position[index] for index in inner.indices.tolist()]
    slowness = np.zeros(len(outer))
    for table in tables:
        times = (table.median_ns[:, :, None] * table.slowdown).sum(axis=(0, 1))
        slowness += np.log(times / times.min())
    order = np.argsort(slowness[there])
    levels = slowness[there][order]
    right = np.clip(np.searchsorted(levels, slowness), 1, max(1, len(levels) - 1))
    right = np.minimum(right, len(levels) - 1)
    left = np.maximum(right - 1, 0)
    nearer = np.where(slowness - levels[left] <= levels[right] - slowness, left, right)
    back = order[nearer]
    back[there] = np.arange(len(there))
    return there, back.tolist()


def _nearest_usable(member: Member, wanted: int) -> int:
    """The wanted variant if usable, else a faster one, else a slower one."""
    if member.usable[wanted]:
        return wanted
    others = usable(member)
    faster = [variant for variant in others if variant > wanted]
    return faster[0] if faster else others[-1] if others else wanted
