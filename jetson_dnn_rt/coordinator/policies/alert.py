# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""ALERT: one slow-down for the whole system; chooses what most likely meets the deadline."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from jetson_dnn_rt.config.nodes import CoordinatorConfig
from jetson_dnn_rt.coordinator.cohort import Cohort, Decision, Member
from jetson_dnn_rt.coordinator.policy import Policy, usable
from jetson_dnn_rt.coordinator.tables.hull import new_minima
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable

MEASUREMENT_NOISE = 0.001
LEAST_PROCESS_NOISE = 0.001
FORGETTING = 0.3
FIRST_GAIN = 0.5


class Filter(NamedTuple):
    """Kalman filter of the slow-down xi, the ratio of measured to profiled time."""

    mean: float = 1.0
    variance: float = LEAST_PROCESS_NOISE
    gain: float = FIRST_GAIN  # K of the last step
    process_noise: float = LEAST_PROCESS_NOISE
    """Q of the last step: it follows the innovations, so that a change in the environment opens
    the filter."""

    def observe(self, ratio: float) -> Filter:
        """Update with one more frame."""
        innovation = ratio - self.mean
        noise = FORGETTING * self.process_noise
        noise += (1.0 - FORGETTING) * (self.gain * innovation) ** 2
        noise = max(LEAST_PROCESS_NOISE, noise)
        before = (1.0 - self.gain) * self.variance + noise
        gain = before / (before + MEASUREMENT_NOISE)
        return Filter(self.mean + gain * innovation, before, gain, noise)


class Memory(NamedTuple):
    """ALERT's memory: the filter, the frames it has seen, and the choice for each frame."""

    xi: Filter
    frames_done: tuple[int, ...]
    variants: tuple[int, ...]
    clocks: tuple[int, ...]


class Alert(Policy):
    """Accurate learning for energy and timeliness (Wan et al., USENIX ATC 2020).

    One slow-down xi applies to all networks and clocks; its mean mu and variance sigma^2 come from
    a Kalman filter over all frames. With the profiled time t of a variant at some clocks, ``Pr(xi
    t <= T) = Phi((T / t - mu) / sigma)``; a choice that reaches ``confidence`` is eligible. The
    mode ``min_energy`` takes the least energy of a period subject to ``accuracy_floor``, the
    others the most accurate variant at its clocks of least energy. Clocks above ``power_cap_w``
    are left out. When nothing is eligible, the fastest choice is taken.

    Readings: energy is ``p t + p_idle (period - t)`` at xi = 1; the noise constants are ours, the
    least process noise being small because xi is a ratio to a profile of the same machine. ALERT
    handles one network: here each task chooses at the start of its frame, for the time that its
    frame has left, and the fastest clocks chosen by the frames in flight are set.
    """

    adjusts_clocks = adjusts_variants = True

    def prepare(self) -> None:
        """Make the menus of all tasks."""
        self._quantile = NormalDist().inv_cdf(self.settings.confidence)
        self._saves = self.settings.mode == "min_energy"
        self._menus = [make_menu(self.clock_table, t, self.settings) for t in self.tables]

    def decide(self, cohort: Cohort, now_ns: int) -> Decision:
        """Observe the frames that ended; choose for a frame that starts."""
        members = cohort.members
        memory = cohort.memory
        if not isinstance(memory, Memory):
            memory = Memory(
                Filter(),
                tuple([member.frames_done for member in members]),
                tuple([member.variant for member in members]),
                (cohort.clocks,) * len(members),
            )
        xi, done = memory.xi, memory.frames_done
        for number, member in enumerate(members):
            if member.frames_done != done[number] and len(member.slowdown):
                xi = xi.observe(member.slowdown.latest)
        variants, clocks = list(memory.variants), list(memory.clocks)
        deciding = cohort.deciding
        if deciding >= 0 and not members[deciding].started:
            member = members[deciding]
            slow = max(1e-3, xi.mean + self._quantile * sqrt(xi.variance))
            budget_ns = max(0, member.absolute_deadline_ns - now_ns) / slow
            variants[deciding], clocks[deciding] = self._choose(
                self._menus[deciding], member, budget_ns
            )
        fastest = -1
        for member, wanted in zip(members, clocks, strict=True):
            if member.active and wanted > fastest:
                fastest = wanted
        chosen = tuple(variants)
        memory = Memory(xi, tuple([m.frames_done for m in members]), chosen, tuple(clocks))
        return Decision(chosen, fastest if fastest >= 0 else cohort.clocks_target, memory)

    def candidates(self, cohort: Cohort, member: int) -> Sequence[int]:
        """The choice for the frame; before its start all usable variants."""
        state = cohort.members[member]
        if state.started and state.usable[state.variant]:
            return (state.variant,)
        return usable(state)

    def _choose(self, menu: Sequence[Row], member: Member, budget_ns: float) -> tuple[int, int]:
        """Variant and clocks whose profiled time is within the budget."""
        there = member.usable
        best: tuple[int, int] | None = None
        least = float("inf")
        rescue, shortest = (member.variant, menu[0].clocks[0]), float("inf")
        for row in menu:
            if not there[row.variant]:
                continue
            place = bisect_right(row.times_ns, budget_ns) - 1
            if place >= 0 and row.allowed:
                if not self._saves:
                    return row.variant, row.clocks[place]
                if row.energies[place] < least:
                    best, least = (row.variant, row.clocks[place]), row.energies[place]
            if row.times_ns[0] < shortest:
                rescue, shortest = (row.variant, row.clocks[0]), row.times_ns[0]
        return rescue if best is None else best


class Row(NamedTuple):
    """One variant, with its clocks of least energy by rising time."""

    variant: int
    allowed: bool  # whether it is accurate enough
    times_ns: list[float]  # profiled time of a whole frame
    energies: list[float]  # energy of a period
    clocks: list[int]


def make_menu(clock_table: ClockTable, table: TaskTable, settings: CoordinatorConfig) -> list[Row]:
    """All variants of a task, the most accurate one first."""
    rows = []
    for variant in range(len(table.variants)):
        total, work = table.frame_costs(variant)
        energy = work + clock_table.idle_w * np.maximum(0.0, table.period_ns - total)
        there = np.arange(len(clock_table))
        if settings.power_cap_w > 0.0:
            power = work / total
            capped = there[power <= settings.power_cap_w]
            there = capped if len(capped) else np.array([power.argmin()])
        order = there[np.lexsort((energy[there], total[there]))]
        kept = order[new_minima(energy[order])]
        allowed = table.accuracy(variant) >= settings.accuracy_floor - 1e-9
        times_ns, energies = total[kept].tolist(), energy[kept].tolist()
        rows.append(Row(variant, allowed, times_ns, energies, kept.tolist()))
    return sorted(rows, key=lambda row: -table.accuracy(row.variant))
