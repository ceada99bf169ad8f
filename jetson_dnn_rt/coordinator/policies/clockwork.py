# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Clockwork: one inference at a time, and none that would be late by what was measured."""

from __future__ import annotations

from typing import NamedTuple

from jetson_dnn_rt.coordinator.cohort import Cohort, Decision
from jetson_dnn_rt.coordinator.policy import Policy, configured
from jetson_dnn_rt.scheduling.selection import Gate

WINDOW = 10  # measurements that an estimate comes from
PERCENTILE = 0.99  # of the profile, as long as nothing was measured; of ten it is the largest


class Memory(NamedTuple):
    """Clockwork's memory: what was measured, by member."""

    frames_done: tuple[int, ...]  # frames that are in `ratios`
    ratios: tuple[tuple[float, ...], ...]
    """Measured over profiled time of the last `WINDOW` frames."""


class Clockwork(Policy):
    """Serving DNNs like Clockwork (Gujarati et al., OSDI 2020; the authors' controller infer5).

    One inference is executed at a time, from its first stage to its last. An inference is
    estimated to take the 99th percentile of its last 10 measurements, which is their largest;
    measurements are kept independent of the clocks. Among the frames that wait, the one that has
    to start first goes first: its deadline less its estimate is the least. A frame that could not
    finish in time by its estimate is dropped before any time is spent on it.

    Readings: the estimates are of whole frames in the configured variant, and begin with the
    profile. Where the estimate alone exceeds the deadline, no frame is admitted and only the
    engine's probes measure, so the first of them replaces the window (Clockwork would need ten).
    The engine's own rules stay: one waiting frame for each task, the newest; frames that are
    hopeless by the usual time end, also between two stages.

    Left out: variable batches (the engine forms its own, see `scheduling.batching`); loading and
    evicting weights, since all variants of a task stay loaded; many workers, and the network
    between them and the controller, hence sending actions ahead, their earliest and latest times,
    and the 5 ms by which a response aims to be early (of 100 ms; deadlines here are down to 5 ms).
    """

    gates_frames = True

    def prepare(self) -> None:
        """Compute the profiled time of a frame, by variant and clocks."""
        self._frames_ns = [
            [table.frame_costs(variant)[0] for variant in range(len(table.variants))]
            for table in self.tables
        ]
        self._profiled: list[list[float]] = [
            (table.frame_quantile_ns(PERCENTILE) / table.median_ns.sum(axis=1)).tolist()
            for table in self.tables
        ]

    def decide(self, cohort: Cohort, now_ns: int) -> Decision:
        """Learn from the frames that ended; variants and clocks stay as they are."""
        memory = self._recall(cohort)
        if any(
            member.frames_done != done
            for member, done in zip(cohort.members, memory.frames_done, strict=True)
        ):
            ratios = list(memory.ratios)
            for number, member in enumerate(cohort.members):
                if member.frames_done != memory.frames_done[number] and len(member.slowdown):
                    window = ratios[number]
                    if self._estimate_ns(cohort, number, window) > member.deadline_ns:
                        window = ()
                    ratios[number] = (*window[1 - WINDOW :], member.slowdown.latest)
            memory = Memory(tuple([m.frames_done for m in cohort.members]), tuple(ratios))
        return Decision(configured(cohort), cohort.clocks_target, memory)

    def gate(self, cohort: Cohort, member: int, now_ns: int) -> Gate:
        """Closed when it would be late; held while another runs or has to start before it."""
        ratios = self._recall(cohort).ratios
        start_ns = self._latest_start_ns(cohort, member, ratios)
        if now_ns > start_ns:
            return Gate.CLOSED
        for number, other in enumerate(cohort.members):
            if number == member or not other.active:
                continue
            if other.started:
                return Gate.HELD
            before_ns = self._latest_start_ns(cohort, number, ratios)
            if now_ns <= before_ns and (before_ns, number) < (start_ns, member):
                return Gate.HELD
        return Gate.OPEN

    def _recall(self, cohort: Cohort) -> Memory:
        memory = cohort.memory
        if isinstance(memory, Memory):
            return memory
        return Memory(
            tuple([member.frames_done for member in cohort.members]), ((),) * len(cohort.members)
        )

    def _latest_start_ns(
        self, cohort: Cohort, number: int, ratios: tuple[tuple[float, ...], ...]
    ) -> float:
        """The last time at which a waiting frame could begin."""
        deadline_ns = cohort.members[number].absolute_deadline_ns
        return deadline_ns - self._estimate_ns(cohort, number, ratios[number])

    def _estimate_ns(self, cohort: Cohort, number: int, window: tuple[float, ...]) -> float:
        """Estimated time of a whole frame at the present clocks."""
        variant = cohort.members[number].configured
        ratio = max(window) if window else self._profiled[number][variant]
        return ratio * float(self._frames_ns[number][variant][cohort.clocks])
