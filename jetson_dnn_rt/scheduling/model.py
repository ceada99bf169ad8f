# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The model of time: the frames on a machine, how long their stages take, and a plan for them.

`jetson_dnn_rt.scheduling.base.pick` says on it what begins next: it dispatches on the robot, and
`play` (`jetson_dnn_rt.scheduling.value`) asks it again and again to see how a plan ends. There is
no second function that could differ.

At one instant stages end first, then frames are released, then decisions are made: all ends are
known to a decision, and a decision never waits for a frame of the same instant.

Where a machine has *helpers*, networks run on the workers, and what comes before and after them on
any thread. A network that has all the cores of its worker (*wide*) runs beside nothing else;
*narrow*, with fewer threads, it leaves the others to a second one, and takes longer. A frame is
prepared when its network is next, or just in time for it: until then a newer one may replace it.

Times are in nanoseconds; each has a variance, from which comes the probability that a frame is in
time: normal, and each stage inherits the variance of the end that let it begin.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import erf, sqrt

IDLE, THREAD, NARROW, WIDE = 0, 1, 2, 3
"""What the running stage of a frame takes: nothing runs, a thread, a thread as a narrow network,
or all the cores of a worker."""

PREPARE, NETWORK, DECODE = 0, 1, 2
"""What a stage is to its frame."""

NEVER = sys.maxsize

LEAST_CHANCE = 0.02
"""A frame with less is dropped; sums of chances are compared in steps of it."""


class StageTimes:
    """One run of a frame's variant, with the times that it takes."""

    def __init__(
        self,
        kind: int,
        wide_ns: int,
        *,
        narrow_ns: int = 0,
        cores: bool = False,
        device: int = -1,
        wide_variance: float = 0.0,
        narrow_variance: float = 0.0,
    ) -> None:
        self.kind = kind
        self.wide_ns = wide_ns
        self.narrow_ns = narrow_ns  # 0: it cannot run narrow
        self.cores = cores  # wide, it has all the cores of its worker
        self.device = device  # place of its limit in `Machine.limits`; -1 = none
        self.wide_variance = wide_variance
        self.narrow_variance = narrow_variance


class Machine:
    """What stages run on."""

    def __init__(self, workers: int = 1, helpers: int = 0, limits: tuple[int, ...] = ()) -> None:
        self.workers = workers  # networks at once, unless they are narrow
        self.helpers = helpers  # more threads for the other stages; 0: any stage on any worker
        self.limits = limits  # most stages at once on each device that has a limit
        self.fifo = False  # stages in the order in which they became ready

    @property
    def threads(self) -> int:
        """Stages at once."""
        return self.workers + self.helpers


class VariantTimes:
    """The stages of a frame in one variant; never changed, so that plays share it."""

    def __init__(self, stages: Sequence[StageTimes]) -> None:
        self.stages = tuple(stages)
        self.network_end = 0  # the first stage after the network
        rest_ns, rest_variance = [0], [0.0]
        for stage in reversed(self.stages):
            rest_ns.append(rest_ns[-1] + stage.wide_ns)
            rest_variance.append(rest_variance[-1] + stage.wide_variance)
        for place, stage in enumerate(self.stages):
            if stage.kind != DECODE:
                self.network_end = place + 1
        rest_ns.reverse()
        rest_variance.reverse()
        self.rest_ns = rest_ns  # from each stage to the end, wide
        self.rest_variance = rest_variance


class ModelJob:
    """A frame of a task in the model; a play changes a copy of it."""

    def __init__(
        self,
        key: int,
        task: int,
        release_ns: int,
        deadline_ns: int,
        times: VariantTimes,
        worth: float = 1.0,
        priority: int = 0,
        precedence: int = 0,
    ) -> None:
        self.key = key  # unique
        self.task = task
        self.release_ns = release_ns
        self.deadline_ns = deadline_ns
        self.times = times
        self.worth = worth
        self.priority = priority  # of its task; the highest goes first
        self.precedence = precedence  # among equal deadlines the least goes first
        self.ready_ns = release_ns
        self.begun = False
        self.ended = False  # done, dropped or replaced
        self.index = 0  # of the stage that runs, or is next
        self.mode = IDLE
        self.end_ns = 0  # planned end of the running stage
        self.variance = 0.0  # of that end

    def copy(self) -> ModelJob:
        """The same frame, for a play."""
        other = ModelJob(
            self.key,
            self.task,
            self.release_ns,
            self.deadline_ns,
            self.times,
            self.worth,
            self.priority,
            self.precedence,
        )
        other.ready_ns, other.begun, other.ended = self.ready_ns, self.begun, self.ended
        other.index, other.mode = self.index, self.mode
        other.end_ns, other.variance = self.end_ns, self.variance
        return other

    @property
    def stage(self) -> StageTimes:
        """The stage that runs, or is next."""
        return self.times.stages[self.index]

    @property
    def rest_ns(self) -> int:
        """Time of that stage and those after it, wide."""
        return self.times.rest_ns[self.index]

    @property
    def then_ns(self) -> int:
        """Time of the stages after that one."""
        return self.times.rest_ns[self.index + 1]

    def begin(self, mode: int, now_ns: int, variance: float) -> None:
        """Its stage begins; `variance` is that of the present time."""
        stage = self.stage
        self.begun, self.mode = True, mode
        if mode == NARROW:
            self.end_ns = now_ns + stage.narrow_ns
            self.variance = variance + stage.narrow_variance
        else:
            self.end_ns = now_ns + stage.wide_ns
            self.variance = variance + stage.wide_variance

    def finish(self, now_ns: int) -> None:
        """Its stage is done."""
        self.index += 1
        self.mode = IDLE
        self.ready_ns = now_ns
        self.ended = self.index == len(self.times.stages)

    @property
    def in_network(self) -> bool:
        """Whether a part of its network runs or is next."""
        return not self.ended and self.stage.kind == NETWORK

    @property
    def claims(self) -> bool:
        """Whether it has begun, and its network is not done."""
        return self.begun and not self.ended and self.index < self.times.network_end


class Plan:
    """What is done differently from the base policy, in terms of frames."""

    def __init__(
        self,
        narrow: frozenset[int] = frozenset(),
        skipped: frozenset[int] = frozenset(),
        first: tuple[int, ...] = (),
        ahead: frozenset[int] = frozenset(),
    ) -> None:
        self.narrow = narrow  # their networks run narrow, side by side
        self.skipped = skipped  # they are dropped
        self.first = first  # they go first, in this order
        self.ahead = ahead  # they are prepared as soon as a thread is free
        self.is_empty = not (narrow or skipped or first or ahead)

    def put_first(self, key: int) -> Plan:
        """The same with a frame before all others."""
        first = (key, *[other for other in self.first if other != key])
        return Plan(self.narrow, self.skipped, first, self.ahead)

    def without(self, live: set[int]) -> Plan:
        """The same for the frames that still live."""
        return Plan(
            self.narrow & live,
            self.skipped & live,
            tuple([key for key in self.first if key in live]),
            self.ahead & live,
        )

    def __repr__(self) -> str:
        words = ("narrow", "skip", "first", "ahead")
        keys = (sorted(self.narrow), sorted(self.skipped), [*self.first], sorted(self.ahead))
        parts = [f"{word} {some}" for word, some in zip(words, keys, strict=True) if some]
        return ", ".join(parts) or "base"


BASE = Plan()
"""The base policy."""


class State:
    """Frames on a machine at one time, the present or one that is played."""

    def __init__(self, machine: Machine, frames: list[ModelJob], now_ns: int) -> None:
        self.machine = machine
        self.frames = frames
        self.now_ns = now_ns
        self.variance = 0.0  # of the present time, in a play
        self.mode = IDLE  # of what `pick` has picked
        self.wake_ns = NEVER  # when to ask `pick` again though no stage ends and no frame comes

    def copy(self) -> State:
        """For a play: a stage that is over its time may end at any moment."""
        frames = []
        for frame in self.frames:
            if not frame.ended:
                frame = frame.copy()
                if frame.mode and frame.end_ns <= self.now_ns:
                    frame.end_ns = self.now_ns + 1
                frames.append(frame)
        return State(self.machine, frames, self.now_ns)


def chance(slack_ns: int, variance: float) -> float:
    """Probability that something with this variance is not later than planned by the slack."""
    if variance <= 0.0:
        return 1.0 if slack_ns >= 0 else 0.0
    return 0.5 * (1.0 + erf(slack_ns / sqrt(2.0 * variance)))


def replace_waiting(state: State) -> None:
    """Frames that are released now take the places of those of their tasks that still wait."""
    for newer in state.frames:
        if newer.release_ns != state.now_ns or newer.begun or newer.ended:
            continue
        for older in state.frames:
            if (
                older.task == newer.task
                and older.release_ns < newer.release_ns
                and not older.begun
            ):
                older.ended = True


def next_event_ns(state: State) -> int:
    """Time of the next planned end or release, or of `wake_ns`."""
    at_ns = state.wake_ns
    for frame in state.frames:
        if frame.mode:
            at_ns = min(at_ns, frame.end_ns)
        elif frame.release_ns > state.now_ns and not frame.ended:
            at_ns = min(at_ns, frame.release_ns)
    return at_ns
