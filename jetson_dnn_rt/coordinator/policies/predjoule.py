# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""PredJoule: every process picks clocks for itself, layer by layer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jetson_dnn_rt.coordinator.cohort import Cohort, Decision, Member
from jetson_dnn_rt.coordinator.policy import Policy, configured
from jetson_dnn_rt.coordinator.tables.tables import TaskTable

CONFIGURATIONS = 11_760
"""Configurations of the board that the original's steps are meant for; scaled elsewhere."""
FREE_GAIN = 3.0  # up to this U a faster configuration costs nothing more
LEVELS = 64
"""Levels of speed in the history, in steps of 1 / `LEVELS_PER_UNIT` of the sub-deadline's."""
LEVELS_PER_UNIT = 16


class Process(NamedTuple):
    """Memory of one process."""

    place: float
    """Its index: the configuration that it wants, with a fraction towards the next one."""
    slack_ns: int  # sum of m - d over the layers of the frame; positive = behind
    stages_done: int  # the member's count when this was written: tells whether there is news
    history: tuple[tuple[int, ...], ...]
    """Configuration that ran each layer at a speed level, [K][LEVELS]; -1 = none."""


class PredJoule(Policy):
    """Greedy DVFS per process (Bateni, Zhou, Zhu & Liu, RTSS 2018).

    Derived, from what is known of the authors' later artifact (REFERENCE 2). For each layer
    ``U = max over configurations of (E / Emax) / (T / Tmax)``. At the end of a layer
    ``slack += m - d`` with the sub-deadline d; the next layer, of sub-deadline d, has to keep
    ``need = d / (d + slack)`` of its time. A configuration that once ran it at that speed is used
    again; else the index goes up by 100 / U when behind, down by 10 / U when ahead and U > 3, and
    up by 100 / U when ahead and U <= 3.

    Readings: the steps are for 11,760 configurations and scale with their number; the slack is
    that of the frame; the process at whose boundary this is sets the board's clocks for all: the
    greediness that paper 004 shows in its section 3.3.
    """

    adjusts_clocks = clocks_at_boundaries = True

    def prepare(self) -> None:
        """Compute the steps of all layers."""
        self._last = self.clock_table.fastest
        scale = len(self.clock_table) / CONFIGURATIONS
        self._sub_deadlines = [table.sub_deadlines_ns for table in self.tables]
        self._ahead: list[list[float]] = []
        self._behind: list[list[float]] = []
        for table in self.tables:
            gains = usefulness(table)
            up = [100.0 / gain * scale for gain in gains]
            down = [-10.0 / gain * scale for gain in gains]
            free = [gain <= FREE_GAIN for gain in gains]
            self._behind.append(up)
            self._ahead.append(
                [fast if f else slow for fast, slow, f in zip(up, down, free, strict=True)]
            )
        self._unknown = [((-1,) * LEVELS,) * len(table.stages) for table in self.tables]

    def decide(self, cohort: Cohort, now_ns: int) -> Decision:
        """Update every process with its finished layers; the deciding one sets the clocks."""
        memory = cohort.memory
        members = cohort.members
        if isinstance(memory, tuple):
            processes = [
                process
                if process.stages_done == member.stages_done
                else self._learn(number, process, member)
                for number, (process, member) in enumerate(zip(memory, members, strict=True))
            ]
        else:
            processes = [
                Process(float(cohort.clocks), 0, member.stages_done, unknown)
                for member, unknown in zip(members, self._unknown, strict=True)
            ]
        deciding = cohort.deciding
        clocks = round(processes[deciding].place) if deciding >= 0 else cohort.clocks_target
        return Decision(configured(cohort), clocks, tuple(processes))

    def _learn(self, number: int, process: Process, member: Member) -> Process:
        sample = member.last_stage
        if sample is None:
            return process._replace(stages_done=member.stages_done)
        stage, time_ns = sample.stage, sample.time_ns
        sub_deadlines = self._sub_deadlines[number]
        deadline_ns = sub_deadlines[stage]
        slack_ns = time_ns - deadline_ns + (process.slack_ns if stage else 0)
        history = process.history
        level = LEVELS_PER_UNIT * deadline_ns // time_ns if time_ns else LEVELS
        if level < LEVELS:
            seen = history[stage]
            seen = (*seen[:level], sample.clocks, *seen[level + 1 :])
            history = (*history[:stage], seen, *history[stage + 1 :])
        following = (stage + 1) % len(sub_deadlines)
        place = self._step(number, process.place, slack_ns, following, history[following])
        return Process(place, slack_ns, member.stages_done, history)

    def _step(
        self, number: int, place: float, slack_ns: int, stage: int, history: tuple[int, ...]
    ) -> float:
        """The index for the next layer."""
        deadline_ns = max(1, self._sub_deadlines[number][stage])
        level = -(-LEVELS_PER_UNIT * (deadline_ns + slack_ns) // deadline_ns)
        if 0 < level < LEVELS and history[level] >= 0:
            return float(history[level])
        step = (self._behind if slack_ns > 0 else self._ahead)[number][stage]
        return min(max(place + step, 0.0), self._last)


def usefulness(table: TaskTable) -> list[float]:
    """U of each layer of the most accurate variant, [K]: measured, or from the table.

    ``(E / Emax) / (T / Tmax)`` is the power times Tmax / Emax, so the largest power decides.
    """
    if table.usefulness:
        return list(table.usefulness)
    power = table.power_w[0]
    slowdown = table.slowdown[0]
    energy = power * slowdown
    gains = power.max(axis=1) * slowdown.max(axis=1) / np.maximum(energy.max(axis=1), 1e-300)
    gains[gains <= 0.0] = 1.0  # the power is unknown
    result: list[float] = gains.tolist()
    return result
