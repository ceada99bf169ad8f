# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""How much time each frame of a cohort has, as if it ran alone."""

from __future__ import annotations

from collections.abc import Sequence

from jetson_dnn_rt.coordinator.cohort import Member
from jetson_dnn_rt.coordinator.policies.horizon.pressure import Memory, PressureGauge

Window = tuple[float, float, float, float]
"""Window in which a member's present or next expected frame may run, in nanoseconds from now: its
begin; its end, the deadline; the expected completion of the present frame (without one, minus
infinity); the expected begin of the one after it (without a present one, its begin)."""

_NEVER = float("-inf")
_ABSENT_NS = 1e9
"""Time until the first frame of a task that has not sent any yet."""


class Allotment:
    """Allots time to the frames of a cohort on `workers`.

    `interference` is the slow-down with 1, 2, ... concurrent stages, one for each member. By
    member: `load` is its relative deadline over its period, `next_share` the share of the next
    stage in the rest of a frame, from each boundary on, and `full_ns` the need of the most
    accurate rest, [K, C]. Without a `gauge` a frame can count on all its time.
    """

    def __init__(
        self,
        workers: int,
        load: list[float],
        interference: list[float],
        next_share: list[list[float]],
        full_ns: list[list[list[float]]],
        gauge: PressureGauge | None,
    ) -> None:
        self._workers = workers
        self._load = load
        self._interference = interference
        self._next_share = next_share
        self._full_ns = full_ns
        self._gauge = gauge

    def find(
        self,
        members: list[Member],
        memory: Memory,
        windows: list[Window],
        asked: Sequence[int],
        clocks: int,
        deciding: int,
    ) -> tuple[list[float], float]:
        """Time of the requested frames, each as if alone; and the deciding one's interference.

        The stages concurrent with a frame in flight were counted at its own last boundary.
        """
        if len(members) > self._workers:
            all_ns = self._queue_up(members, memory, windows, clocks)
            return [all_ns[index] for index in asked], 1.0
        interference = self._interference
        # The share of the time that each member is expected to run.
        duty = [part * share for part, share in zip(memory.response, self._load, strict=True)]
        running = 0
        for member in members:
            if member.running_since_ns is not None:
                running += 1
        most = len(interference) - 1
        times_ns: list[float] = []
        decided = 1.0
        for index in asked:
            member, window = members[index], windows[index]
            if member.active:
                stage = member.stage
                beside = running - (member.running_since_ns is not None)
            else:
                stage = 0
                beside = count_beside(windows, window[0]) - 1
            past = memory.past[index]
            if member.started and index != deciding and past.frame == member.frames_done:
                mean = past.mean
            else:
                others = count_others(index, windows, duty, self._workers)
                mean = interpolate(interference, others)
                if index == deciding:
                    decided = mean
            # The number of stages concurrent with its next one is (nearly) known.
            known = interference[beside if beside < most else most]
            slowed = mean + self._next_share[index][stage] * (known - mean)
            span_ns = window[1] - window[0]
            if span_ns < 1.0:
                span_ns = 1.0
            times_ns.append(span_ns * self._trust(index, member, memory) / slowed)
        return times_ns, decided

    def _queue_up(
        self, members: list[Member], memory: Memory, windows: list[Window], clocks: int
    ) -> list[float]:
        """Time of all frames where there are fewer workers than members.

        Derived from EDF demand: up to each deadline, the most accurate plans of all frames due by
        then should fit; where they do not, all of them are cut by the same factor.
        """
        slowed = self._interference[self._workers - 1]
        order = sorted([(window[1], index) for index, window in enumerate(windows)])
        demand_ns = 0.0
        queue: list[tuple[int, float, float, float]] = []
        for _, index in order:
            member, window = members[index], windows[index]
            trust = self._trust(index, member, memory)
            full_ns = self._full_ns[index][member.stage if member.active else 0][clocks]
            demand_ns += full_ns / trust
            stretch = max(1.0, window[1]) * self._workers / (slowed * demand_ns)
            own_ns = max(1.0, window[1] - window[0]) * trust / slowed
            queue.append((index, full_ns, own_ns, stretch))
        times_ns = [0.0] * len(members)
        least = queue[-1][3] if queue else 1.0
        for index, full_ns, own_ns, stretch in reversed(queue):
            least = min(least, stretch)
            times_ns[index] = min(own_ns, least * full_ns)
        return times_ns

    def _trust(self, index: int, member: Member, memory: Memory) -> float:
        return 1.0 if self._gauge is None else self._gauge.trust(index, member, memory)


def find_windows(members: list[Member], now_ns: int, response: Sequence[float]) -> list[Window]:
    """Window of each member.

    `response` is by member the fraction of the time to its deadline after which a frame is
    expected to be done. A task that is overdue by more than a period is silent, and expected to
    stay so for as long as it has been: no time or clocks are kept for a camera that stopped.
    """
    windows: list[Window] = []
    for index, member in enumerate(members):
        last = member.last_release_ns
        if member.active:
            since = member.running_since_ns
            begin = 0.0 if since is None else float(since - now_ns)
            end = float(member.absolute_deadline_ns - now_ns)
            again = end if last is None else float(last + member.table.period_ns - now_ns)
            windows.append((begin, end, response[index] * end if end > 0.0 else 0.0, again))
        else:
            begin = _ABSENT_NS
            if last is not None:
                period_ns = member.table.period_ns
                begin = float(last + period_ns - now_ns)
                if begin < -period_ns:
                    begin = -begin
                elif begin < 0.0:
                    begin = 0.0
            windows.append((begin, begin + member.deadline_ns, _NEVER, begin))
    return windows


def count_others(index: int, windows: list[Window], duty: list[float], workers: int) -> float:
    """Mean number of other stages expected to run concurrently with a frame over its window.

    Derived, as a fluid model: a present frame of another member counts until its expected
    completion, and its next ones with their share of the time (`duty`) from their expected release
    on. Plain tuples and loops: for less than ten members they are faster than arrays.
    """
    begin, end, _, _ = windows[index]
    span = end - begin
    if span <= 0.0:
        span = 1.0
    busy = own = 0.0
    for other, (_, _, until, again) in enumerate(windows):
        there = until - begin
        if again < end:
            there = (there if there > 0.0 else 0.0) + duty[other] * (
                end - (again if again > begin else begin)
            )
        if there > 0.0:
            if there > span:
                there = span
            busy += there
            if other == index:
                own = there
    others = (busy - own) / span
    return others if others < workers - 1 else workers - 1.0


def count_beside(windows: list[Window], begin: float) -> int:
    """Number of frames present, itself included, when one begins later."""
    count = 0
    for since, end, until, _ in windows:
        if until > begin or since <= begin < end:
            count += 1
    return count


def interpolate(interference: list[float], others: float) -> float:
    """Interference with a mean number of concurrent others; ``interference[0]`` is without any."""
    low = int(others)
    slowed = interference[low]
    if others > low:
        slowed += (others - low) * (interference[low + 1] - slowed)
    return slowed
