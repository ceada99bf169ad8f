# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""POET: a control loop keeps the frame rate; a convex hull gives the cheapest clocks for it."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from jetson_dnn_rt.coordinator.cohort import Cohort, Decision, Member
from jetson_dnn_rt.coordinator.policy import Policy, configured
from jetson_dnn_rt.coordinator.tables.hull import lower_hull
from jetson_dnn_rt.coordinator.tables.tables import Floats, TaskTable

PROCESS_NOISE = 1e-5
MEASUREMENT_NOISE = 0.01
FIRST_BASE_SPEED = 0.2
FIRST_VARIANCE = 1.0
PERIOD = 20
"""Frames between two actions of the controller: the heartbeat window, a choice of the user."""
GOAL = 1.0
"""Goal in frames per deadline: frames that take their whole deadline."""


class Controller(NamedTuple):
    """POET's memory of one task."""

    base_speed: float  # estimate of the Kalman filter: rate at speed-up 1, in frames per deadline
    variance: float
    speed_up: float  # u, relative to the slowest configuration
    slower: int  # the pair of configurations
    faster: int
    slower_frames: int  # frames of a period that run in the slower one; they come first
    first_frame: int  # the member's count of frames at the start of the period
    frames_done: int  # that count when this was written
    seen: int = 0  # frames observed in this period
    deadlines: float = 0.0  # sum of their response times, in deadlines


class Poet(Policy):
    """Performance with optimal energy (Imes, Kim, Maggio & Hoffmann, RTAS 2015).

    A Kalman filter estimates the base speed, a deadbeat controller the speed-up u that brings the
    rate to the goal, and a pair of configurations around u is mixed frame by frame so that the
    period costs the least. The original goes through all pairs of configurations, O(n^2): 138
    million for TX2. Here the pair are the neighbours of u on the lower convex hull of (1/s, c/s),
    with the same cost and O(log n); otherwise the comparison would be between search methods.

    Readings: a frame's rate is 1 over its response time, so that the camera's rate does not hide
    how long it took; for an aborted frame, the response time is projected from its sub-deadlines.
    Where running slower costs more energy, the cheapest configuration is the slowest of the hull.
    Each task has a loop of its own, which sets the board's clocks at its frames' start.
    """

    adjusts_clocks = True

    def prepare(self) -> None:
        """Find the configurations that are worth mixing, for each task."""
        self._hulls = [SpeedHull(*speeds_and_costs(table)) for table in self.tables]

    def decide(self, cohort: Cohort, now_ns: int) -> Decision:
        """Observe the frames that ended; at a frame's start set the clocks for its task."""
        memory = cohort.memory
        members = cohort.members
        if isinstance(memory, tuple):
            controllers = [
                controller
                if controller.frames_done == member.frames_done
                else observe(controller, member, hull)
                for controller, member, hull in zip(memory, members, self._hulls, strict=True)
            ]
        else:
            controllers = [
                begin(cohort.clocks, hull, member.frames_done)
                for member, hull in zip(members, self._hulls, strict=True)
            ]
        clocks = cohort.clocks_target
        if cohort.deciding >= 0:
            mine = controllers[cohort.deciding]
            position = mine.frames_done - mine.first_frame
            clocks = mine.slower if position < mine.slower_frames else mine.faster
        return Decision(configured(cohort), clocks, tuple(controllers))


class SpeedHull:
    """The configurations worth mixing, by rising speed.

    `speeds` and `costs`, float64 [C], are s and c: speed and power relative to the slowest one.
    """

    def __init__(self, speeds: Floats, costs: Floats) -> None:
        kept = lower_hull(1.0 / speeds, costs / speeds)[::-1]
        self.all_speeds = speeds
        self.clocks: list[int] = kept.tolist()
        self.speeds: list[float] = speeds[kept].tolist()
        self.fastest = self.speeds[-1]

    def mix(self, speed_up: float) -> tuple[int, int, float]:
        """Slower and faster configuration, and the share of frames in the slower one."""
        speeds, clocks = self.speeds, self.clocks
        above = bisect_left(speeds, speed_up)
        if above == 0:
            return clocks[0], clocks[0], 0.0
        if above == len(speeds):
            return clocks[-1], clocks[-1], 0.0
        share = slower_share(speeds[above - 1], speeds[above], speed_up)
        return clocks[above - 1], clocks[above], share


def speeds_and_costs(table: TaskTable) -> tuple[Floats, Floats]:
    """s and c of the whole network, its most accurate variant, at each configuration, [C]."""
    total, energy = table.frame_costs(0)
    power = energy / total
    return total[0] / total, power / (power[0] if power[0] > 0.0 else 1.0)


def estimate_base_speed(
    base_speed: float, variance: float, speed_up: float, rate: float
) -> tuple[float, float]:
    """One step of the Kalman filter of ``rate = speed_up * base_speed``; returns the new pair."""
    before = variance + PROCESS_NOISE
    gain = before * speed_up / (speed_up * before * speed_up + MEASUREMENT_NOISE)
    return base_speed + gain * (rate - speed_up * base_speed), (1.0 - gain * speed_up) * before


def next_speed_up(speed_up: float, base_speed: float, rate: float, fastest: float) -> float:
    """The controller: ``u = clip(u + (goal - rate) / base_speed, 1, fastest)``."""
    return min(max(speed_up + (GOAL - rate) / base_speed, 1.0), fastest)


def slower_share(slower: float, faster: float, speed_up: float) -> float:
    """Share x of frames in the slower one: ``1 / u = x / s_lo + (1 - x) / s_hi``."""
    return (faster * slower - speed_up * slower) / (faster * speed_up - speed_up * slower)


def begin(clocks: int, hull: SpeedHull, frames_done: int) -> Controller:
    """Start at the present clocks, as POET does."""
    speed_up = max(1.0, float(hull.all_speeds[clocks]))
    return Controller(
        FIRST_BASE_SPEED, FIRST_VARIANCE, speed_up, clocks, clocks, 0, frames_done, frames_done
    )


def observe(controller: Controller, member: Member, hull: SpeedHull) -> Controller:
    """Observe a frame that ended; act when the period is over."""
    seen, deadlines = controller.seen, controller.deadlines
    if member.last_frame is not None:
        seen += 1
        deadlines += response_in_deadlines(member)
    now = member.frames_done
    if now - controller.first_frame < PERIOD or not seen:
        return controller._replace(frames_done=now, seen=seen, deadlines=deadlines)
    rate = seen / deadlines
    base_speed, variance = estimate_base_speed(
        controller.base_speed, controller.variance, controller.speed_up, rate
    )
    speed_up = next_speed_up(controller.speed_up, base_speed, rate, hull.fastest)
    slower, faster, share = hull.mix(speed_up)
    return Controller(
        base_speed, variance, speed_up, slower, faster, int(share * PERIOD), now, now
    )


def response_in_deadlines(member: Member) -> float:
    """Response time of the last frame over the deadline; projected if it was aborted."""
    frame, stage = member.last_frame, member.last_stage
    assert frame is not None
    share = max(1, frame.response_ns) / member.deadline_ns
    if frame.met or stage is None:
        return share
    sub_deadlines = member.table.sub_deadlines_ns
    passed = sum(sub_deadlines[: stage.stage + 1])
    return share * sum(sub_deadlines) / max(1, passed)
