# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Runs the model of time against true times, on a virtual clock; and the best that there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from jetson_dnn_rt.scheduling import base
from jetson_dnn_rt.scheduling.base import pick
from jetson_dnn_rt.scheduling.model import (
    BASE,
    LEAST_CHANCE,
    NARROW,
    NETWORK,
    NEVER,
    THREAD,
    WIDE,
    Machine,
    ModelJob,
    Plan,
    State,
    next_event_ns,
    replace_waiting,
)
from jetson_dnn_rt.scheduling.value import Value

Truth = Callable[[ModelJob, int], int]
"""The time that the frame's stage really takes, of the model's time for it."""


class Policy(Protocol):
    """Chooses a plan at each decision."""

    def decide(self, state: State) -> Plan: ...


@dataclass
class Course:
    """What became of the frames, and what began when."""

    met: int
    worth: float
    response_ns: int
    log: list[tuple[int, int, int, int]]  # time, frame, stage and mode of each begin

    @property
    def value(self) -> Value:
        """As a play counts it."""
        return round(self.worth / LEAST_CHANCE), -self.response_ns


class FixedPlan:
    """Follows one plan, the base policy by default."""

    def __init__(self, plan: Plan = BASE) -> None:
        self.plan = plan

    def decide(self, state: State) -> Plan:
        return self.plan


def run_world(
    policy: Policy,
    machine: Machine,
    frames: Sequence[ModelJob],
    *,
    known: bool = True,
    truth: Truth | None = None,
    expect: Callable[[State], list[ModelJob]] | None = None,
    decided: Callable[[State, Plan, Course], None] | None = None,
) -> Course:
    """Run the frames, sorted by their releases, to the end.

    With `known` the policy sees all of them from the beginning. `expect` gives it frames that may
    come, at each decision; `decided` is told of each.
    """
    future = [frame.copy() for frame in frames]
    state = State(machine, [], 0)
    if known:
        state.frames, future = future, []
    course = Course(0, 0.0, 0, [])
    really: dict[int, int] = {}
    while True:
        own = state.frames
        if expect is not None:
            state.frames = [*own, *expect(state)]
        plan = policy.decide(state)
        if decided is not None:
            decided(state, plan, course)
        while (frame := pick(state, plan)) is not None:
            course.log.append((state.now_ns, frame.key, frame.index, state.mode))
            frame.begin(state.mode, state.now_ns, 0.0)
            planned_ns = frame.end_ns - state.now_ns
            time_ns = planned_ns if truth is None else truth(frame, planned_ns)
            really[frame.key] = state.now_ns + time_ns
        at_ns = state.wake_ns
        for frame in state.frames:
            if frame.mode:
                at_ns = min(at_ns, really[frame.key])
            elif frame.release_ns > state.now_ns and not frame.ended:
                at_ns = min(at_ns, frame.release_ns)
        if future:
            at_ns = min(at_ns, future[0].release_ns)
        state.frames = own
        if at_ns == NEVER:
            return course
        state.now_ns = at_ns
        for frame in state.frames:
            if frame.mode and really[frame.key] <= at_ns:
                frame.finish(at_ns)
                if frame.ended and at_ns <= frame.deadline_ns:
                    course.met += 1
                    course.worth += frame.worth
                    course.response_ns += at_ns - frame.release_ns
        while future and future[0].release_ns <= at_ns:
            state.frames.append(future.pop(0))
        replace_waiting(state)
        state.frames = [frame for frame in state.frames if not frame.ended]


def can_meet(machine: Machine, frames: Sequence[ModelJob], at_least: int) -> bool:
    """Whether any schedule that begins stages at events only meets so many frames: exhaustive.

    For one worker. The newest frame need not replace one that waits.
    """
    seen: set[tuple[object, ...]] = set()

    def search(state: State, met: int) -> bool:
        live = [frame for frame in state.frames if not frame.ended]
        now_ns = state.now_ns

        def fits(frame: ModelJob) -> bool:
            if frame.mode:
                return frame.end_ns + frame.then_ns <= frame.deadline_ns
            begin_ns = max(now_ns, frame.release_ns)
            return begin_ns + frame.rest_ns <= frame.deadline_ns

        able = [frame for frame in live if fits(frame)]
        if met >= at_least:
            return True
        if met + len(able) < at_least:
            return False
        live = [frame for frame in live if frame.mode or frame in able]
        key = (now_ns, met, *((f.key, f.index, f.mode, f.end_ns, f.begun) for f in live))
        if key in seen:
            return False
        seen.add(key)
        running = [frame for frame in live if frame.mode]
        busy = {frame.task for frame in live if frame.begun}
        if len(running) < machine.threads and not any(f.mode == WIDE for f in running):
            for place, frame in enumerate(live):
                if frame.mode or frame.release_ns > now_ns:
                    continue
                if not frame.begun and frame.task in busy:
                    continue
                for mode in _modes(state, frame, running):
                    frames = [other.copy() for other in live]
                    frames[place].begin(mode, now_ns, 0.0)
                    if search(State(machine, frames, now_ns), met):
                        return True
        state = State(machine, [frame.copy() for frame in live], now_ns)
        at_ns = next_event_ns(state)
        if at_ns == NEVER:
            return False
        state.now_ns = at_ns
        for frame in state.frames:
            if frame.mode and frame.end_ns <= at_ns:
                frame.finish(at_ns)
                if frame.ended and at_ns <= frame.deadline_ns:
                    met += 1
        return search(state, met)

    return search(State(machine, [frame.copy() for frame in frames], 0), 0)


def _modes(state: State, frame: ModelJob, running: list[ModelJob]) -> list[int]:
    stage = frame.stage
    if stage.kind != NETWORK:
        return [THREAD]
    modes = [NARROW] if stage.narrow_ns and state.machine.helpers else []
    beside_network = any(other.in_network for other in running)
    if not beside_network and (not running or base.is_late_behind(state, frame, running)):
        modes.append(WIDE)
    return modes
