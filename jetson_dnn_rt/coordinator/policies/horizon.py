"""`horizon`: the least cost that keeps every deadline, looked up in what the rest may yet cost.

Before anything runs, the plans for the rest of a frame are worked out for every task, boundary and
clock configuration (`jetson_dnn_rt.coordinator.frontier`), ordered by what they need and cost
(`jetson_dnn_rt.coordinator.ladder`). A decision then has three steps.

1. How much time does each frame have? From now to its deadline, less what the others take: side by
   side they slow each other down (`interference`, for as many as are expected at once, next
   releases included); one after the other they queue (EDF). Divided by the task's *pressure*: how
   much slower its last frames were than expected, whatever the reason (a co-runner, heat). It
   follows a slow-down that noise does not explain at once, and trusts again slowly.
2. Which clocks? Those of the least total cost of all frames in flight and soon expected, of which
   each takes the best plan that fits. A change takes effect after its delay, and until then work
   goes on at the present clocks. A change that gains less than `HYSTERESIS` is not made. While
   nothing runs, the power of waiting is weighed against what the next frames cost that begin at
   these clocks and can only then ask for others.
3. Which variant? The next stage of the best plan that fits, by bisection.

After a miss the task's next frames get `CAUTION` less time for each in a row: first the safe side,
since misses come in bursts (REFERENCE 6).

Cost, in mode `balanced`, is energy plus lost accuracy, where `energy_per_accuracy` says how many
frames' energies all the accuracy of a frame is worth; `min_energy` weighs accuracy next to
nothing, above `accuracy_floor`; `max_accuracy` energy next to nothing, below `power_cap_w`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jetson_dnn_rt.coordinator.cohort import Cohort, Decision, Member
from jetson_dnn_rt.coordinator.hull import reduce_clocks
from jetson_dnn_rt.coordinator.outlook import (
    DELAY_PARTS,
    Outlook,
    Sheet,
    build_outlook,
    expect_others,
    over_cap,
    weigh_energy,
)
from jetson_dnn_rt.coordinator.policy import PolicySettings, usable
from jetson_dnn_rt.coordinator.tables import ClockTable, TaskTable

HYSTERESIS = 0.02
"""Share of the cost that a change of clocks must gain."""
CAUTION = 0.8
"""Share of its time that a task plans with after a miss, to the power of misses in a row."""
MOST_CAUTION = 4
RESPONSE = 0.9
"""Share of the time to their deadlines after which the others are expected to be done."""
DEVIATIONS = 1.0
"""Standard deviations of others side by side that are held in reserve for the way home. At 2 the
cohorts of 8 take a tenth more energy and miss no less; at 0.5 they miss 0.2 to 0.3 %."""
ATTACK, DECAY = 0.5, 0.05
"""How much of the last frame goes into the pressure: after a surprise, and otherwise."""
LEAST_PRESSURE, MOST_PRESSURE = 0.5, 16.0
MOST_CLOCKS = 128
"""Clock configurations from which on a table is reduced to its hull."""


class Past(NamedTuple):
    """How much interference a frame of a member has met.

    The mean over its stages, each weighed by its profiled time; what the stage that runs now adds
    is kept apart, so that asking twice at one boundary changes nothing.
    """

    frame: int
    stage: int
    weight: float
    weighted: float
    last_weight: float
    last_interference: float

    def interference(self, stage: int) -> float:
        """The mean over the stages before this one."""
        weight, weighted = self.weight, self.weighted
        if self.stage < stage:
            weight += self.last_weight
            weighted += self.last_weight * self.last_interference
        return weighted / weight if weight else 1.0


class Memory(NamedTuple):
    """What the policy remembers, by member.

    Attributes
    ----------
    frames_done : tuple of int
        Frames that are in `pressure`.
    pressure : tuple of float
        Observed over profiled execution time, interference taken out.
    newest : float
        The same of the frame that last passed a boundary, as far as it is not noise.
    past : tuple of Past
        Of the frames in flight.
    """

    frames_done: tuple[int, ...]
    pressure: tuple[float, ...]
    newest: float
    past: tuple[Past, ...]


class Frame:
    """When the frame of a member may run: the present one, or the next one expected.

    Attributes
    ----------
    begin, end : int
        From when to when; the end is its deadline.
    until : float
        When the present one is expected to be done; 0 without one.
    again : int
        When the one after it is expected; without a present one, the same as `begin`.
    """

    __slots__ = ("again", "begin", "end", "until")

    def __init__(self, member: Member, now_ns: int, response: float) -> None:
        last = member.last_release_ns
        if member.active:
            since = member.running_since_ns
            self.begin = now_ns if since is None else since
            self.end = member.absolute_deadline_ns
            self.until = now_ns + response * max(0, self.end - now_ns)
            self.again = self.end if last is None else last + member.table.period_ns
        else:
            self.begin = now_ns if last is None else max(now_ns, last + member.table.period_ns)
            self.end = self.begin + member.deadline_ns
            self.until = 0.0
            self.again = self.begin


class Horizon:
    """See the module.

    Parameters
    ----------
    clock_table, tables, settings, workers, interference
        As for every policy (`jetson_dnn_rt.coordinator.policy.Policy`).
    """

    adjusts_clocks = True
    clocks_at_boundaries = False
    adjusts_variants = True
    response = RESPONSE
    deviations = DEVIATIONS

    def __init__(
        self,
        clock_table: ClockTable,
        tables: Sequence[TaskTable],
        settings: PolicySettings,
        *,
        workers: int,
        interference: Sequence[float],
    ) -> None:
        self.fastest_clocks = clock_table.fastest
        self.clocks, own = clock_table, list(tables)
        if len(clock_table) > MOST_CLOCKS:
            self.clocks, own = reduce_clocks(clock_table, tables)
        self._own_tables = own
        self._outer, self._inner = _match(clock_table, self.clocks, tables)
        count = len(own)
        self._workers = min(workers, count)
        self._interference = [
            float(interference[min(n, self._workers, len(interference)) - 1])
            for n in range(1, count + 1)
        ]
        self._duty = [
            min(1.0, self.response * table.deadline_ns / table.period_ns) for table in own
        ]
        joules, shared = weigh_energy(self._duty, self._workers, self._interference)
        made: dict[tuple[int, tuple[float, float]], Outlook] = {}
        self._outlooks: list[Outlook] = []
        for index, (table, original) in enumerate(zip(own, tables, strict=True)):
            others = expect_others(
                index, self._duty, self._workers, self._interference, self.deviations
            )
            key = id(original), others
            if key not in made:
                made[key] = build_outlook(table, self.clocks, settings, joules, shared, *others)
            self._outlooks.append(made[key])
        self._sheet = Sheet(self._outlooks, [table.deadline_ns for table in own])
        self._rise_w = self.clocks.idle_w - self.clocks.idle_w.min()
        self._longest_delay_ns = max(
            (domain.delay_ns for domain in self.clocks.space.domains), default=0
        )
        unit_j = sum(outlook.objective.reference_j for outlook in self._outlooks)
        self._forbidden = over_cap(
            self.clocks, own, settings.power_cap_w, self._workers, self._interference, unit_j
        )
        nothing = Past(0, 0, 0.0, 0.0, 0.0, 1.0)
        self._start = Memory((0,) * count, (1.0,) * count, 0.0, (nothing,) * count)
        # A frame with everybody side by side, as slow as noise makes it.
        self._worst_usual = [
            outlook.surprise[-1] * self._interference[-1] for outlook in self._outlooks
        ]
        # Of the rest of a frame from each boundary on: the share of its next stage.
        self._next_share = [
            (t.median_ns[0] / t.median_ns[0][::-1].cumsum()[::-1]).tolist() for t in own
        ]
        self._profile_ns = [(t.median_ns[:, :, None] * t.slowdown) for t in own]

    def candidates(self, cohort: Cohort, member: int) -> Sequence[int]:
        """All that may run: a frame in trouble goes on in the fastest."""
        return usable(cohort.members[member])

    def decide(self, cohort: Cohort, now_ns: int) -> Decision:
        """See the module."""
        members, deciding = cohort.members, cohort.deciding
        memory = self._learn(cohort)
        if deciding >= 0 and members[deciding].stage > 0:
            memory = memory._replace(newest=self._shown(deciding, members[deciding], memory))
        present, target = self._inner[cohort.clocks], self._inner[cohort.clocks_target]
        frames = [Frame(member, now_ns, self.response) for member in members]
        inside = deciding >= 0 and members[deciding].stage > 0
        asked = (deciding,) if inside else range(len(members))
        times_ns = self._allot(members, memory, frames, asked, target, now_ns)
        clocks = target
        if not inside:
            clocks = self._choose_clocks(cohort, frames, times_ns, present, target, now_ns)
        variants = [member.variant for member in members]
        if deciding >= 0:
            member, outlook = members[deciding], self._outlooks[deciding]
            time_ns = times_ns[deciding]
            if clocks != present:
                part = self._left(cohort, present, target, now_ns) if clocks == target else -1
                time_ns += float(outlook.change_ns[part, member.stage, present, clocks])
            ladder = outlook.ladders[member.stage][clocks]
            variants[deciding] = _nearest_usable(member, ladder.variants[ladder.find(time_ns)])
            memory = self._note(memory, cohort, present, variants[deciding])
        outer = cohort.clocks_target if clocks == target else self._outer[clocks]
        return Decision(tuple(variants), outer, memory)

    def _left(self, cohort: Cohort, present: int, target: int, now_ns: int) -> int:
        """How much of the delay of a change under way is left, in `DELAY_PARTS`."""
        delay_ns = max(1, self.clocks.delay_ns(present, target))
        left_ns = max(0, cohort.clocks_at_ns - now_ns)
        return min(DELAY_PARTS, -(-left_ns * DELAY_PARTS // delay_ns))

    # -- how slow the machine is ---------------------------------------------------------------

    def _learn(self, cohort: Cohort) -> Memory:
        """Follow how much slower frames were than expected."""
        memory = cohort.memory if isinstance(cohort.memory, Memory) else self._start
        done = tuple([member.frames_done for member in cohort.members])
        if done == memory.frames_done:
            return memory
        pressure, newest = list(memory.pressure), memory.newest
        for index, member in enumerate(cohort.members):
            if member.frames_done == memory.frames_done[index] or not len(member.slowdown):
                continue
            stages = len(member.table.stages)
            seen = member.slowdown.latest / memory.past[index].interference(stages)
            surprise = self._outlooks[index].surprise[-1]
            newest = seen / surprise
            surprised = seen > pressure[index] * surprise
            followed = pressure[index] + (ATTACK if surprised else DECAY) * (
                seen - pressure[index]
            )
            pressure[index] = min(MOST_PRESSURE, max(LEAST_PRESSURE, followed))
        return Memory(done, tuple(pressure), newest, memory.past)

    def _shown(self, index: int, member: Member, memory: Memory) -> float:
        """How much slower the frame in flight is so far than interference and noise explain."""
        surprise = self._outlooks[index].surprise[member.stage]
        return member.pace / (memory.past[index].interference(member.stage) * surprise)

    def _trust(self, index: int, member: Member, memory: Memory) -> float:
        """Share of its time that a frame can count on.

        What slows one may slow all (a co-runner, heat), and slow-downs come and go: counted is the
        most of what this task's frames took lately, on average and at their 0.98 quantile, what
        this frame has shown so far, and what the last frame at a boundary has shown.
        """
        pressure = max(
            memory.pressure[index],
            memory.newest,
            member.slowdown.quantile(0.98) / self._worst_usual[index],
        )
        if member.active and member.stage > 0:
            pressure = max(pressure, self._shown(index, member, memory))
        if member.misses_in_a_row:
            return CAUTION ** min(member.misses_in_a_row, MOST_CAUTION) / pressure
        return 1.0 / pressure

    def _note(self, memory: Memory, cohort: Cohort, clocks: int, variant: int) -> Memory:
        """Remember how many run beside the stage that begins now."""
        index = cohort.deciding
        member, past = cohort.members[index], memory.past[index]
        beside = sum([other.running_since_ns is not None for other in cohort.members])
        weight = float(self._profile_ns[index][variant, member.stage, clocks])
        slowed = self._interference[min(beside, len(self._interference) - 1)]
        if member.stage == 0 or past.frame != member.frames_done:
            past = Past(member.frames_done, member.stage, 0.0, 0.0, weight, slowed)
        elif past.stage == member.stage:
            past = past._replace(last_weight=weight, last_interference=slowed)
        else:
            past = Past(
                past.frame,
                member.stage,
                past.weight + past.last_weight,
                past.weighted + past.last_weight * past.last_interference,
                weight,
                slowed,
            )
        others = memory.past
        return memory._replace(past=(*others[:index], past, *others[index + 1 :]))

    # -- how much time each frame has ----------------------------------------------------------

    def _allot(
        self,
        members: Sequence[Member],
        memory: Memory,
        frames: Sequence[Frame],
        asked: Sequence[int],
        clocks: int,
        now_ns: int,
    ) -> dict[int, float]:
        """Time of each member asked for, as if its frame were alone."""
        if len(members) > self._workers:
            return self._queue_up(members, memory, frames, clocks, now_ns)
        times_ns = {}
        running = sum([member.running_since_ns is not None for member in members])
        for index in asked:
            frame, member = frames[index], members[index]
            window = max(1, frame.end - frame.begin)
            stage = member.stage if member.active else 0
            slowed = self._slowed(index, frame.begin, frame.end, frames)
            if member.active:
                beside = running - (member.running_since_ns is not None)
            else:
                beside = sum(
                    [
                        other.until > frame.begin or other.begin <= frame.begin < other.end
                        for other in frames
                    ]
                )
                beside -= 1
            # How many run beside its next stage is known, or nearly so.
            known = self._interference[min(beside, len(self._interference) - 1)]
            slowed += self._next_share[index][stage] * (known - slowed)
            times_ns[index] = window * self._trust(index, member, memory) / slowed
        return times_ns

    def _slowed(self, index: int, begin: int, end: int, frames: Sequence[Frame]) -> float:
        """Interference with as many as will be at it on average until the deadline."""
        window = max(1, end - begin)
        busy = 0.0
        for other, (frame, duty) in enumerate(zip(frames, self._duty, strict=True)):
            if other != index:
                there = frame.until - begin
                there = 0.0 if there < 0.0 else there
                later = end - (frame.again if frame.again > begin else begin)
                if later > 0:
                    there += later * duty
                busy += there if there < window else window
        whole, part = divmod(busy / window, 1.0)
        low = int(whole)
        slowed = self._interference[low]
        if part:
            slowed += part * (self._interference[low + 1] - slowed)
        return slowed

    def _queue_up(
        self,
        members: Sequence[Member],
        memory: Memory,
        frames: Sequence[Frame],
        clocks: int,
        now_ns: int,
    ) -> dict[int, float]:
        """The same where there are fewer workers than members.

        Derived from EDF demand: up to each deadline, the most accurate plans of all frames due by
        then should fit; where they do not, all of them are cut by the same factor.
        """
        slowed = self._interference[self._workers - 1]
        order = sorted(range(len(members)), key=lambda index: frames[index].end)
        demand_ns = 0.0
        queue: list[tuple[int, float, float, float]] = []
        for index in order:
            member, frame = members[index], frames[index]
            trust = self._trust(index, member, memory)
            stage = member.stage if member.active else 0
            full_ns = float(self._outlooks[index].full_ns[stage, clocks])
            demand_ns += full_ns / trust
            stretch = max(1, frame.end - now_ns) * self._workers / (slowed * demand_ns)
            own_ns = max(1, frame.end - frame.begin) * trust / slowed
            queue.append((index, full_ns, own_ns, stretch))
        times_ns = {}
        least = float("inf")
        for index, full_ns, own_ns, stretch in reversed(queue):
            least = min(least, stretch)
            times_ns[index] = min(own_ns, least * full_ns)
        return times_ns

    # -- which clocks --------------------------------------------------------------------------

    def _choose_clocks(
        self,
        cohort: Cohort,
        frames: Sequence[Frame],
        times_ns: dict[int, float],
        present: int,
        target: int,
        now_ns: int,
    ) -> int:
        """Clocks of the least total cost of the frames in flight and soon expected."""
        sheet, members = self._sheet, cohort.members
        ends = [frame.end for frame, member in zip(frames, members, strict=True) if member.active]
        soon = max(ends, default=0) + self._longest_delay_ns
        here, later = [], []
        for index, (frame, member) in enumerate(zip(frames, members, strict=True)):
            if member.active:
                here.append(sheet.place(index, member.stage, times_ns[index]))
            elif not ends or frame.begin <= soon:
                later.append(sheet.place(index, 0 if ends else -1, times_ns[index]))
        cost = sheet.add_up(here, present) if here else np.zeros(len(self.clocks))
        if here and present != target:
            cost[target] = self._cost_of_target(cohort, here, times_ns, present, target, now_ns)
        if later:
            cost += sheet.add_up(later, None)
        if not ends:
            cost += self._rise_w * ((min(frame.begin for frame in frames) - now_ns) * 1e-9)
        if self._forbidden is not None:
            cost += self._forbidden
        best = int(cost.argmin())
        if cost[target] <= cost[best] * (1.0 + HYSTERESIS):
            return target
        return best

    def _cost_of_target(
        self,
        cohort: Cohort,
        places: Sequence[tuple[int, int, int]],
        times_ns: dict[int, float],
        present: int,
        target: int,
        now_ns: int,
    ) -> float:
        """Cost of the frames in flight if a change under way is waited for."""
        part = self._left(cohort, present, target, now_ns)
        active = [index for index, member in enumerate(cohort.members) if member.active]
        cost = 0.0
        for index, place in zip(active, places, strict=True):
            stage = cohort.members[index].stage
            lost_ns = float(self._outlooks[index].change_ns[part, stage, present, target])
            cost += self._sheet.cost(place, target, times_ns[index] + lost_ns, index)
        return cost


def _match(
    outer: ClockTable, inner: ClockTable, tables: Sequence[TaskTable]
) -> tuple[list[int], list[int]]:
    """For each configuration of the reduced table its position outside, and the way back.

    What is not in the reduced table (another policy has set it) counts as the one whose speed is
    the nearest.
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
    """The variant, or a faster one, or else a slower one that may run."""
    if member.usable[wanted]:
        return wanted
    others = usable(member)
    faster = [variant for variant in others if variant > wanted]
    return faster[0] if faster else others[-1] if others else wanted
