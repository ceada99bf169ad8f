# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""NeuOS: its two algorithms, and its three modes.

Bateni & Liu, "NeuOS: A Latency-Predictable Multi-Dimensional Optimization Framework for
DNN-driven Autonomous Systems", USENIX ATC 2020, section 4.2. Times are in nanoseconds; instance i
has the relative deadline D_i and LAG_i (negative = behind).

Algorithm 1 (system level): instance i would take ``P_i = D_i - LAG_i``; it has to become faster by
``sigma_i = P_i / D_i`` (below 1: may become slower). delta_i is the clock configuration whose
SpeedUp relative to the present one is the smallest that covers sigma_i. The candidates are
Delta = {delta_i}.

Algorithm 2 (application level): under delta_c instance i runs
``s_i = SpeedUp_i(delta_c) / SpeedUp_i(delta_now)`` times as fast and still lacks
``a_i = P_i / (s_i D_i) - 1``. Where a_i > 0 its next layer is approximated, by the least row of
the SpeedUp/Accuracy table that gives 1 + a_i.

Derived (REFERENCE 1.3, 1.5): the paper's prose writes P = D + LAG, which contradicts its own sign
of LAG; and the formula of Algorithm 2 was lost.
"""

from __future__ import annotations

from abc import abstractmethod
from array import array
from collections.abc import Sequence
from math import inf, sqrt
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from jetson_dnn_rt.coordinator.cohort import Cohort, Decision, Member
from jetson_dnn_rt.coordinator.policy import Policy, usable
from jetson_dnn_rt.coordinator.tables.hull import new_minima
from jetson_dnn_rt.coordinator.tables.tables import Floats, TaskTable

BUCKETS = 512  # size of the hash from SpeedUp to configuration

_power_up = attrgetter("power_up")


class Candidate(NamedTuple):
    """delta_i: the clock configuration that fits one instance."""

    clocks: int  # delta_i, a position in the clock table
    power_up: float  # PowerUp_i(delta_i), of its next stage
    sigma: float  # sigma_i, the speed-up it needs relative to delta_now
    needed: float  # the same relative to the slowest clocks: ``sigma_i SpeedUp_i(delta_now)``
    lag_ns: int  # LAG_i
    column: int  # column of its next stage in the SpeedUp rows
    member: int  # i, its number in the cohort


class Account(NamedTuple):
    """The debt of one instance: its LAG beyond the frame in flight."""

    frames_done: int  # the member's count when this was written: tells whether there is news
    lag_ns: int  # LAG at the end of its last frame, debt from before included


def power_up(power_w: Floats) -> Floats:
    """Power relative to the slowest configuration, along the last axis; powers when that is 0."""
    base = power_w[..., :1]
    return np.asarray(power_w / np.where(base > 0.0, base, 1.0))


class SpeedUpTable:
    """The look-up of Algorithm 1 for one stage: the nearest SpeedUp that covers what is needed.

    A hash from SpeedUp to the place in the list of configurations by rising SpeedUp, from where
    the nearest one is a step or two away: the time does not grow with their number.
    Configurations that another one beats in both SpeedUp and PowerUp are left out: they could only
    be chosen for being slightly nearer, and every mode prefers the other. `speed_up` and
    `power_up`, float64 [C], are relative to the slowest configuration.
    """

    __slots__ = ("_lowest", "_powers", "_scale", "_speeds", "_starts", "clocks")

    def __init__(self, speed_up: Floats, power_up: Floats) -> None:
        order = np.lexsort((power_up, -speed_up))
        kept = order[new_minima(power_up[order])][::-1]
        speeds = speed_up[kept]
        self.clocks: list[int] = kept.tolist()
        """The configurations that are left, by rising SpeedUp."""
        self._speeds: list[float] = speeds.tolist()
        self._powers: list[float] = power_up[kept].tolist()
        self._lowest = self._speeds[0]
        width = self._speeds[-1] - self._lowest
        self._scale = BUCKETS / width if width > 0.0 else 0.0
        # The bucket of a SpeedUp must be computed exactly as in `cover`.
        buckets = ((speeds - self._lowest) * self._scale).astype(np.int64)
        self._starts: list[int] = np.searchsorted(buckets, np.arange(BUCKETS + 1)).tolist()

    def cover(self, needed: float) -> tuple[int, float]:
        """Return the configuration and its PowerUp; the fastest when none is fast enough."""
        speeds = self._speeds
        if needed <= self._lowest:
            place = 0
        elif needed > speeds[-1]:
            place = len(speeds) - 1
        else:
            place = self._starts[int((needed - self._lowest) * self._scale)]
            while speeds[place] < needed:
                place += 1
        return self.clocks[place], self._powers[place]


class NeuOS(Policy):
    """Algorithms 1 and 2; a mode adds the choice from Delta.

    The tables are per layer, as in the paper, and those of the most accurate variant: clocks are
    judged by what the original layer would gain.

    Readings. An instance of the paper runs continuously, and its LAG is a sum over everything it
    has finished; tasks here wait for their next frame. So they stay in the cohort between frames,
    with their last known LAG: a frame is about to come, and the clocks best for the others may be
    too slow for it. A frame's delay at its end is carried over to the next one, up to a whole
    deadline; a lead is lost in waiting. (A LAG that starts again with each frame lets a slow task
    approximate only late in each of them, and forget it with the next.)

    Clocks are chosen when a frame begins and stay until the next one does; in between only
    variants follow LAG. The paper chooses both at every layer, but a clock takes effect after 5
    to 8 ms (REFERENCE 1), by which time a frame of 10 ms is over and the next one gets the clocks
    that this one needed to catch up. For the same reason delta_now is, for each instance, the
    clocks under which its LAG came about: those of its last layer.
    """

    adjusts_clocks = adjusts_variants = True

    def prepare(self) -> None:
        """Make the look-ups of all stages, once for each table."""
        first_columns: dict[int, int] = {}
        self._lookups: list[SpeedUpTable] = []
        self._rows: list[list[tuple[float, int]]] = []
        speed_ups = []
        for table in self.tables:
            if id(table) in first_columns:
                continue
            first_columns[id(table)] = len(self._lookups)
            speeds = table.slowdown[0, :, :1] / table.slowdown[0]
            powers = power_up(table.power_w[0])
            speed_ups.append(speeds)
            self._lookups += map(SpeedUpTable, speeds, powers)
            self._rows += _accuracy_rows(table, self.settings.confidence)
        self._first_columns = [first_columns[id(table)] for table in self.tables]
        # By configuration: a decision reads contiguous memory for one configuration.
        self._width = len(self._lookups)
        self._speeds = array("d", np.concatenate(speed_ups).T.tobytes())

    @abstractmethod
    def pick(self, delta: Sequence[Candidate], cohort: Cohort) -> int:
        """The configuration of the mode, out of Delta (one or more)."""

    def decide(self, cohort: Cohort, now_ns: int) -> Decision:
        """Algorithm 1 and the mode's choice when a frame begins; Algorithm 2 at each boundary.

        Algorithm 2 runs for the member at whose boundary this is. The others keep what
        they have until their own, when their LAG will be known better.
        """
        members, accounts = cohort.members, self._accounts(cohort)
        clocks, deciding = cohort.clocks_target, cohort.deciding
        variants = [member.variant for member in members]
        if deciding >= 0:
            member = members[deciding]
            if member.started:
                mine = self._examine(deciding, member, accounts[deciding], cohort.clocks)
            else:
                delta = self._find_candidates(cohort, accounts)
                clocks = self.pick(delta, cohort)
                mine = next(candidate for candidate in delta if candidate.member == deciding)
            share = self.share(mine, clocks)
            if share > 0.0:
                variants[deciding] = _row(self._rows[mine.column], member, 1.0 + share)
            else:
                variants[deciding] = most_accurate(member)
        return Decision(tuple(variants), clocks, accounts)

    def clock_candidates(self, cohort: Cohort) -> list[Candidate]:
        """Algorithm 1: Delta, one for each instance; none for a task that never had a frame."""
        return self._find_candidates(cohort, self._accounts(cohort))

    def share(self, candidate: Candidate, clocks: int) -> float:
        """Algorithm 2: the speed-up that an instance still lacks at some clocks, beyond 1.

        ``a = P / (s D) - 1 = sigma SpeedUp(delta_now) / SpeedUp(clocks) - 1``
        """
        return candidate.needed / self._speeds[clocks * self._width + candidate.column] - 1.0

    def approximation(self, delta: Sequence[Candidate], clocks: int, bound: float = inf) -> float:
        """``sum_j max(0, a_j)``: the speed-up that the whole cohort still lacks at some clocks.

        Above `bound` the result is only a lower bound.
        """
        speeds, row = self._speeds, clocks * self._width
        total = 0.0
        for _, _, _, needed, _, column, _ in delta:
            speed = speeds[row + column]
            if needed > speed:
                total += needed / speed - 1.0
                if total > bound:
                    break
        return total

    @staticmethod
    def _accounts(cohort: Cohort) -> tuple[Account, ...]:
        memory = cohort.memory
        return settle(memory if isinstance(memory, tuple) else None, cohort.members)

    def _find_candidates(self, cohort: Cohort, accounts: Sequence[Account]) -> list[Candidate]:
        present, examine = cohort.clocks, self._examine
        return [
            examine(number, member, accounts[number], present)
            for number, member in enumerate(cohort.members)
            if member.active or member.last_frame is not None
        ]

    def _examine(self, number: int, member: Member, account: Account, present: int) -> Candidate:
        """Algorithm 1 for one instance."""
        column = self._first_columns[number]
        lag_ns, deadline_ns = lag_of(member, account), member.deadline_ns
        if member.active and member.stage:
            column += member.stage
        if member.last_stage is not None:
            present = member.last_stage.clocks
        sigma = (deadline_ns - lag_ns) / deadline_ns
        needed = self._speeds[present * self._width + column] * sigma
        clocks, power = self._lookups[column].cover(needed)
        return Candidate(clocks, power, sigma, needed, lag_ns, column, number)


def lag_of(member: Member, account: Account) -> int:
    """LAG of an instance: of its frame in flight and what it owes from before, in ns."""
    if member.active and member.stage:
        return member.lag_ns + min(0, account.lag_ns)
    return account.lag_ns


def settle(accounts: tuple[Account, ...] | None, members: Sequence[Member]) -> tuple[Account, ...]:
    """Accounts of all instances, with the frames that ended since; None: there are none yet."""
    if accounts is None:
        return tuple(
            Account(m.frames_done, 0 if m.active and m.stage else max(-m.deadline_ns, m.lag_ns))
            for m in members
        )
    for account, member in zip(accounts, members, strict=True):
        if account.frames_done != member.frames_done:
            break
    else:
        return accounts
    return tuple(
        account
        if account.frames_done == member.frames_done
        else Account(
            member.frames_done, max(-member.deadline_ns, min(0, account.lag_ns) + member.lag_ns)
        )
        for account, member in zip(accounts, members, strict=True)
    )


def _accuracy_rows(table: TaskTable, confidence: float) -> list[list[tuple[float, int]]]:
    """SpeedUp/Accuracy table of each stage: (speed-up of its worst case, variant) by accuracy."""
    worst_ns = table.quantile_ns(confidence)
    gains = worst_ns[0] / worst_ns
    rows = []
    for stage in range(len(table.stages)):
        by_loss = np.argsort(table.loss[:, stage], kind="stable").tolist()
        rows.append([(float(gains[variant, stage]), variant) for variant in by_loss])
    return rows


def _row(rows: Sequence[tuple[float, int]], member: Member, gain: float) -> int:
    """The most accurate variant with at least this gain, else the one with the largest gain."""
    there = member.usable
    best, most = member.variant, 0.0
    for offered, variant in rows:
        if there[variant]:
            if offered >= gain:
                return variant
            if offered > most:
                best, most = variant, offered
    return best


def most_accurate(member: Member) -> int:
    """The most accurate usable variant of a member."""
    return 0 if member.usable[0] else next(iter(usable(member)), member.variant)


class NeuOSMinEnergy(NeuOS):
    """``argmin over delta_i in Delta of PowerUp_i(delta_i)`` (Bateni & Liu 2020, section 4.3).

    Each candidate is judged by the PowerUp table of its own instance. The others make up for the
    time with approximation.
    """

    def pick(self, delta: Sequence[Candidate], cohort: Cohort) -> int:
        """The candidate of the least PowerUp."""
        return min(delta, key=_power_up).clocks


class NeuOSMaxAccuracy(NeuOS):
    """``argmin over delta in Delta of sum_j max(0, a_j(delta))`` (Bateni & Liu 2020, section 4.3).

    The candidate that requires the least approximation of the cohort. Several may require none; of
    them the one of the least PowerUp is taken. That is a reading: the paper leaves it open.
    """

    def pick(self, delta: Sequence[Candidate], cohort: Cohort) -> int:
        """The candidate that requires the least approximation."""
        powers: dict[int, float] = {}
        for candidate in delta:
            clocks, power = candidate[:2]
            if power < powers.get(clocks, inf):
                powers[clocks] = power
        # Faster clocks require less: with the fastest first, the others soon exceed the bound.
        best = max(powers)
        least = self.approximation(delta, best)
        for clocks, power in powers.items():
            total = self.approximation(delta, clocks, least)
            if total < least or (total == least and power < powers[best]):
                best, least = clocks, total
        return best


class NeuOSBalanced(NeuOS):
    """The statistical approach of NeuOS (Bateni & Liu 2020, section 4.3).

    With the influence set ``I = {(D_i + LAG_i) / D_i}`` and the threshold t = std(I), or the
    designer's, instances fall into three groups by abs(LAG), with bounds at one and two thirds
    of the largest.

    A reading: the rule that selects from the groups was lost. Here, with ``m = abs(mean(I) - 1)``,
    m > 2t takes the group of the largest abs(LAG), t < m <= 2t the middle one and m <= t the one
    of the smallest; inside the group the candidate of the least PowerUp. So a small t leads to
    faster configurations, as the paper says. An empty group is replaced by the next larger one.
    """

    def pick(self, delta: Sequence[Candidate], cohort: Cohort) -> int:
        """The candidate of the least PowerUp in the group that the cohort's state selects."""
        # (D + LAG) / D = 2 - sigma: distances from the mean are those of sigma.
        count = len(delta)
        mean = sum([candidate.sigma for candidate in delta]) / count
        deviation = abs(mean - 1.0)
        threshold = self.settings.threshold
        if threshold == 0.0:
            threshold = sqrt(sum([(c.sigma - mean) ** 2 for c in delta]) / count)
        wanted = 3 if deviation > 2.0 * threshold else 2 if deviation > threshold else 1
        largest = max([abs(candidate.lag_ns) for candidate in delta])
        clocks, least = delta[0].clocks, (4, 0.0)
        for candidate in delta:
            group = group_of(candidate.lag_ns, largest)
            if group >= wanted and (group, candidate.power_up) < least:
                clocks, least = candidate.clocks, (group, candidate.power_up)
        return clocks


def group_of(lag_ns: int, largest_ns: int) -> int:
    """1, 2 or 3: up to a third of the largest abs(LAG), up to two thirds, above."""
    thrice = 3 * abs(lag_ns)
    return 1 if thrice <= largest_ns else 2 if thrice <= 2 * largest_ns else 3
