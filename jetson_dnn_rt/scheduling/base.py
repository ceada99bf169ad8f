# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The base policy, and the dispatcher: they are one function, `pick`.

With the empty plan it is the base policy: earliest deadline first (or another discipline) at the
boundaries of stages, one waiting frame per task; a frame is dropped once its usual time does not
fit any more. It always gets on: nothing that is ready waits for something that may not come.

A `Plan` changes that for the frames that it names.
"""

from __future__ import annotations

from jetson_dnn_rt.scheduling.model import (
    DECODE,
    IDLE,
    LEAST_CHANCE,
    NARROW,
    NETWORK,
    NEVER,
    PREPARE,
    THREAD,
    WIDE,
    ModelJob,
    Plan,
    State,
    chance,
)


def goes_before(one: ModelJob, other: ModelJob, plan: Plan, *, fifo: bool) -> bool:
    """Whether one of two ready frames goes first: by the plan, else by the discipline."""
    if plan.first:
        its_place, other_place = find_place(one, plan), find_place(other, plan)
        if its_place != other_place:
            return its_place < other_place
    if fifo:
        if one.ready_ns != other.ready_ns:
            return one.ready_ns < other.ready_ns
        return one.key < other.key
    if one.priority != other.priority:
        return one.priority > other.priority
    if one.deadline_ns != other.deadline_ns:
        return one.deadline_ns < other.deadline_ns
    if one.begun != other.begun:
        return one.begun  # to interrupt it would gain nothing
    if one.precedence != other.precedence:
        return one.precedence < other.precedence
    return one.task < other.task


def find_place(frame: ModelJob, plan: Plan) -> int:
    """Place in the plan's order; `NEVER` where the plan says nothing of it."""
    for place, key in enumerate(plan.first):
        if key == frame.key:
            return place
    return NEVER


def is_hopeless(frame: ModelJob, now_ns: int, variance: float, *, alone: bool) -> bool:
    """Whether a frame that does not run will usually be late, even if it begins now.

    One that is alone may try its luck, if it has any.
    """
    slack_ns = frame.deadline_ns - now_ns - frame.rest_ns
    if slack_ns >= 0:
        return False
    if not alone:
        return True
    return chance(slack_ns, variance + frame.times.rest_variance[frame.index]) < LEAST_CHANCE


def pick(state: State, plan: Plan) -> ModelJob | None:
    """Return the frame whose stage begins now; `state.mode` says how.

    None where nothing begins before the next end or release, or `state.wake_ns`. Frames that the
    plan skips, and those that are hopeless, end here.
    """
    machine, now_ns = state.machine, state.now_ns
    state.wake_ns = NEVER
    running: list[ModelJob] = []
    wide = networks = 0
    in_use = [0] * len(machine.limits)
    for frame in state.frames:
        if frame.mode:
            running.append(frame)
            stage = frame.stage
            wide += frame.mode == WIDE
            networks += stage.kind == NETWORK
            if stage.device >= 0:
                in_use[stage.device] += 1
    if len(running) >= machine.threads:
        return None
    if machine.helpers and wide >= machine.workers:
        return None
    ready = _find_ready(state, plan)
    held, until_ns = _find_held(state, plan) if plan.first else (NEVER, 0)
    if not machine.helpers:
        for frame in ready:
            stage = frame.stage
            if now_ns + stage.wide_ns > until_ns and find_place(frame, plan) > held:
                continue
            if stage.device < 0 or in_use[stage.device] < machine.limits[stage.device]:
                state.mode = WIDE if stage.cores else THREAD
                return frame
        return None
    is_blocked = False
    for frame in ready:
        stage = frame.stage
        if stage.device >= 0 and in_use[stage.device] >= machine.limits[stage.device]:
            is_blocked = is_blocked or stage.kind == NETWORK
            continue
        if stage.kind == DECODE:
            state.mode = THREAD
            return frame
        if is_blocked and not (stage.kind == PREPARE and frame.key in plan.ahead):
            continue
        if stage.kind == PREPARE:
            if _may_prepare(state, plan, frame):
                state.mode = THREAD
                return frame
        elif now_ns + stage.wide_ns <= until_ns or find_place(frame, plan) <= held:
            mode = _network_mode(state, plan, frame, running, networks)
            if mode:
                state.mode = mode
                return frame
        is_blocked = True
    return None


def _find_ready(state: State, plan: Plan) -> list[ModelJob]:
    """Frames that could go on, in order; those that are not to end."""
    busy: set[int] = set()
    live = 0
    for frame in state.frames:
        if frame.begun and not frame.ended:
            busy.add(frame.task)
        if not frame.ended and frame.release_ns <= state.now_ns:
            live += 1
    ready: list[ModelJob] = []
    fifo = state.machine.fifo
    for frame in state.frames:
        if frame.mode or frame.ended or frame.release_ns > state.now_ns:
            continue
        if not frame.begun and frame.task in busy:
            continue
        if frame.key in plan.skipped or is_hopeless(
            frame, state.now_ns, state.variance, alone=live == 1
        ):
            frame.ended = True
            continue
        place = len(ready)
        while place and goes_before(frame, ready[place - 1], plan, fifo=fifo):
            place -= 1
        ready.insert(place, frame)
    return ready


def _find_held(state: State, plan: Plan) -> tuple[int, int]:
    """Place in the plan's order behind which networks wait, unless they are done by a time.

    That is of the first frame that is still to come, or is being prepared.
    """
    for place, key in enumerate(plan.first):
        for frame in state.frames:
            if frame.key == key and not frame.ended:
                if frame.release_ns > state.now_ns:
                    return place, frame.release_ns
                if frame.mode and frame.stage.kind == PREPARE:
                    return place, 0
    return NEVER, 0


def _may_prepare(state: State, plan: Plan, frame: ModelJob) -> bool:
    """Whether a frame is prepared now; else `state.wake_ns` may say when."""
    machine = state.machine
    claims = []
    for other in state.frames:
        # One that is prepared and less urgent does not count: it waits for this one.
        if other.claims and (
            (other.mode and other.in_network) or goes_before(other, frame, plan, fifo=machine.fifo)
        ):
            claims.append(other)
    if len(claims) < machine.workers or frame.key in plan.ahead:
        return True
    if len(claims) < machine.threads:
        if frame.key in plan.narrow and plan.narrow.issuperset([other.key for other in claims]):
            return True
        place = find_place(frame, plan)
        if place < min([find_place(other, plan) for other in claims]):
            return True
    if len(claims) > machine.workers:
        return False
    free_ns = NEVER
    for other in claims:
        if not (other.mode and other.in_network):
            return False
        network_ns = other.then_ns - other.times.rest_ns[other.times.network_end]
        free_ns = min(free_ns, other.end_ns + network_ns)
    at_ns = free_ns - frame.stage.wide_ns  # just in time for its network
    if at_ns <= state.now_ns:
        return True
    state.wake_ns = min(state.wake_ns, at_ns)
    return False


def _network_mode(
    state: State, plan: Plan, frame: ModelJob, running: list[ModelJob], networks: int
) -> int:
    """How a frame's network begins now; `IDLE` = it waits."""
    machine, stage = state.machine, frame.stage
    if stage.narrow_ns and (frame.key in plan.narrow or stage.narrow_ns == stage.wide_ns):
        return NARROW
    if networks >= machine.workers:
        return IDLE
    if not stage.cores:
        return IDLE if _must_let_pass(state, plan, frame, running) else THREAD
    for other in running:
        if other.mode == NARROW:
            return IDLE
    if len(running) < machine.workers:
        return WIDE
    if not is_late_behind(state, frame, running):
        return IDLE
    return IDLE if _must_let_pass(state, plan, frame, running) else WIDE


def is_late_behind(state: State, frame: ModelJob, running: list[ModelJob]) -> bool:
    """Whether a wide network would be late behind the other stages, which have time to share."""
    now_ns = state.now_ns
    ends_ns = sorted([other.end_ns for other in running])
    end_ns = max(now_ns + 1, ends_ns[len(ends_ns) - state.machine.workers])
    if end_ns + frame.rest_ns <= frame.deadline_ns:
        return False
    in_time = True
    for other in running:
        in_time = in_time and now_ns + 2 * other.rest_ns <= other.deadline_ns
    return in_time


def _must_let_pass(state: State, plan: Plan, frame: ModelJob, running: list[ModelJob]) -> bool:
    """Whether the network would make a more urgent frame late that is being prepared."""
    end_ns = state.now_ns + frame.stage.wide_ns
    for other in running:
        if other.stage.kind != PREPARE:
            continue
        if end_ns + other.then_ns > other.deadline_ns and (
            goes_before(other, frame, plan, fifo=state.machine.fifo)
        ):
            return True
    return False
