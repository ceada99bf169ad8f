# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Pressure: slow-down of the machine relative to the profile, tracked frame by frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jetson_dnn_rt.coordinator.cohort import Cohort, Member
from jetson_dnn_rt.coordinator.tables.tables import TaskTable

FOLLOW = 0.1  # weight of the last frame in the response that is expected of the next one
ATTACK, DECAY = 0.5, 0.05
"""Weight of the last frame in the pressure: after a surprise, and otherwise."""
LEAST_PRESSURE, MOST_PRESSURE = 0.5, 16.0
CAUTION = 0.8
"""Fraction of its time that a task plans with after a miss, to the power of misses in a row."""
MOST_CAUTION = 4
MOST_DEBT = 0.5
"""Accuracy that is made up for at most: that of five frames which lost a tenth too much each."""
LATELY = 0.98  # quantile of the last frames that is planned for where noise does not explain it


class Past(NamedTuple):
    """Interference of a member's frame so far: mean weighted by profiled stage times.

    The running stage's part is separate, so that asking twice at one boundary changes nothing.
    """

    frame: int
    stage: int
    weight: float
    weighted: float
    last_weight: float
    last_interference: float
    mean: float  # interference that was expected for its rest at its last boundary
    shown: float  # `PressureGauge.shown` there
    lost: float  # accuracy that the stages before it lost

    def interference(self, stage: int) -> float:
        """The mean over the stages before this one."""
        weight, weighted = self.weight, self.weighted
        if self.stage < stage:
            weight += self.last_weight
            weighted += self.last_weight * self.last_interference
        return weighted / weight if weight else 1.0


class Memory(NamedTuple):
    """Memory of the policy, by member."""

    frames_done: tuple[int, ...]  # frames that are in `pressure`
    pressure: tuple[float, ...]
    """Observed over profiled execution time, without interference: mean of the last frames."""
    lately: tuple[float, ...]
    """Maximum of that and their quantile `LATELY`, where noise does not explain it."""
    newest: float  # the unexplained part for the frame that last passed a boundary
    past: tuple[Past, ...]  # interference of the frames in flight
    response: tuple[float, ...]
    """Response time over relative deadline: mean of the last frames."""
    debt: tuple[float, ...]
    """Accuracy that frames lost beyond what they may, and later ones did not make up for yet."""


def find_surprise(table: TaskTable) -> list[float]:
    """Factor above which a slow frame is not noise, after 0 to K of its stages.

    The 0.99 quantile of profiled frames in the most accurate variant.
    """
    so_far = table.times_ns[0].cumsum(axis=0) / table.median_ns[0].cumsum()[:, None]
    return [1.0, *np.maximum(1.0, np.quantile(so_far, 0.99, axis=1)).tolist()]


class PressureGauge:
    """Estimates from the cohort how much slower than profiled each member runs.

    It has no state of its own: what it learns is in `Memory`. `interference` is the slow-down with
    1, 2, ... concurrent stages, one for each member; `inner` maps positions in the cohort's clocks
    to those in the tables'. `response` is the fraction of their deadlines that frames are expected
    to take before any has ended, `loss_allowed` the accuracy that a frame may lose.
    """

    def __init__(
        self,
        tables: Sequence[TaskTable],
        interference: Sequence[float],
        inner: Sequence[int],
        response: float,
        loss_allowed: float = 1.0,
    ) -> None:
        count = len(tables)
        nothing = Past(-1, 0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0)
        ones = (1.0,) * count
        self.start = Memory(
            (0,) * count, ones, ones, 0.0, (nothing,) * count, (response,) * count,
            (0.0,) * count,
        )  # fmt: skip
        self._loss_allowed = loss_allowed
        self._interference = interference
        self._inner = inner
        made = {id(table): find_surprise(table) for table in tables}
        self._surprise = [made[id(table)] for table in tables]
        # A frame with all members concurrent, as slow as noise makes it.
        self._worst = [surprise[-1] * interference[-1] for surprise in self._surprise]
        self._profile_ns = [table.median_ns[:, :, None] * table.slowdown for table in tables]
        self._loss: list[list[list[float]]] = [table.loss.tolist() for table in tables]

    def learn(self, cohort: Cohort) -> Memory:
        """Update the memory with how much slower frames were than expected."""
        memory = cohort.memory if isinstance(cohort.memory, Memory) else self.start
        done = tuple([member.frames_done for member in cohort.members])
        if done == memory.frames_done:
            return memory
        pressure, lately, newest = list(memory.pressure), list(memory.lately), memory.newest
        response, debt = list(memory.response), list(memory.debt)
        for index, member in enumerate(cohort.members):
            if member.frames_done == memory.frames_done[index] or not len(member.slowdown):
                continue
            frame = member.last_frame
            if frame is not None:
                taken = frame.response_ns / member.deadline_ns
                response[index] += FOLLOW * ((taken if taken < 1.0 else 1.0) - response[index])
                if frame.met and cohort.memory is memory:  # else another policy chose
                    past = memory.past[index]
                    rest = self._loss[index][member.variant][past.stage :]
                    owed = debt[index] + past.lost + sum(rest) - self._loss_allowed
                    debt[index] = min(MOST_DEBT, max(0.0, owed))
            stages = len(member.table.stages)
            seen = member.slowdown.latest / memory.past[index].interference(stages)
            surprise = self._surprise[index][-1]
            newest = seen / surprise
            surprised = seen > pressure[index] * surprise
            followed = pressure[index] + (ATTACK if surprised else DECAY) * (
                seen - pressure[index]
            )
            pressure[index] = min(MOST_PRESSURE, max(LEAST_PRESSURE, followed))
            high = member.slowdown.quantile(LATELY) / self._worst[index]
            lately[index] = max(pressure[index], high)
        return Memory(
            done, tuple(pressure), tuple(lately), newest, memory.past, tuple(response), tuple(debt)
        )

    def shown(self, index: int, member: Member, memory: Memory) -> float:
        """Slow-down of the frame in flight that interference and noise do not explain."""
        surprise = self._surprise[index][member.stage]
        return member.pace / (memory.past[index].interference(member.stage) * surprise)

    def trust(self, index: int, member: Member, memory: Memory) -> float:
        """Fraction of its time that a frame can count on.

        A cause of slow-down may affect all members (a co-runner, heat), and slow-downs come and
        go: the largest of these counts: this task's last frames, on average and at their 0.98
        quantile; this frame so far; and the last frame at a boundary.
        """
        pressure = memory.lately[index]
        if memory.newest > pressure:
            pressure = memory.newest
        if member.active and member.stage > 0:
            past = memory.past[index]
            # Nothing is new between a member's own boundaries.
            known = past.stage == member.stage and past.frame == member.frames_done
            shown = past.shown if known else self.shown(index, member, memory)
            if shown > pressure:
                pressure = shown
        if member.misses_in_a_row:
            return CAUTION ** min(member.misses_in_a_row, MOST_CAUTION) / pressure
        return 1.0 / pressure

    def lost(self, index: int, member: Member, memory: Memory) -> float:
        """Accuracy that the finished stages of the frame in flight lost."""
        past = memory.past[index]
        if member.stage == 0 or past.frame != member.frames_done:
            return 0.0
        # A run may have covered several stages, all in the variant that ran last.
        return past.lost + sum(self._loss[index][member.variant][past.stage : member.stage])

    def note(self, memory: Memory, cohort: Cohort, variant: int, mean: float) -> Memory:
        """Record the interference of the stage that begins now.

        `mean` is the interference expected for the rest.
        """
        index = cohort.deciding
        member, past = cohort.members[index], memory.past[index]
        beside = sum([other.running_since_ns is not None for other in cohort.members])
        clocks = self._inner[cohort.clocks]
        weight = float(self._profile_ns[index][variant, member.stage, clocks])
        slowed = self._interference[min(beside, len(self._interference) - 1)]
        shown = self.shown(index, member, memory) if member.stage else 0.0
        before, weighted = past.weight, past.weighted
        if member.stage == 0 or past.frame != member.frames_done:
            before = weighted = 0.0
        elif past.stage != member.stage:
            before += past.last_weight
            weighted += past.last_weight * past.last_interference
        lost = self.lost(index, member, memory)
        all_past = list(memory.past)
        all_past[index] = Past(
            member.frames_done, member.stage, before, weighted, weight, slowed, mean, shown, lost
        )
        return Memory(*memory[:4], tuple(all_past), *memory[5:])
