# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Chooses the plan: rollout over the base policy, fortified (Bertsekas, Tsitsiklis and Wu, 1997).

The plan that is being followed is kept until another one, played to its end on the model, ends
better. So while stages take their times, and no frame comes that the model does not have, the
result is never worse than that of the base policy; after an unexpected frame or time it is, by the
model, not worse than going over to the base policy at that moment.
"""

from __future__ import annotations

from collections.abc import Sequence

from jetson_dnn_rt.scheduling.model import BASE, LEAST_CHANCE, Machine, ModelJob, Plan, State
from jetson_dnn_rt.scheduling.moves.table import MOVES, Move
from jetson_dnn_rt.scheduling.value import play

MOST_PLAYS = 50
"""Plans that a search plays at most."""

NEAR = 4
"""Frames that a search considers: those with the earliest deadlines."""


class Planner:
    """Keeps the plan of one engine."""

    def __init__(self, machine: Machine, moves: Sequence[str] = tuple(MOVES)) -> None:
        self.machine = machine
        self.plan: Plan = BASE
        self._moves: list[Move] = [MOVES[name] for name in moves]
        self.plays = self.searches = 0

    def decide(self, state: State) -> Plan:
        """Return the plan from now on; called after stages ended and frames came."""
        live = [frame for frame in state.frames if not frame.ended]
        if not self.plan.is_empty:
            self.plan = self.plan.without({frame.key for frame in live})
        if self.plan.is_empty and len(live) < 2:
            return self.plan
        most = round(sum([frame.worth for frame in live]) / LEAST_CHANCE)
        value = play(state, self.plan)
        self.plays += 1
        if not self.plan.is_empty:
            base = play(state, BASE)
            self.plays += 1
            if base > value:
                self.plan, value = BASE, base
        if value[0] >= most - 1:
            return self.plan  # it loses nobody: freshness alone takes no cores
        self.searches += 1
        for plan in self._propose(live):
            self.plays += 1
            its_value = play(state, plan)
            if its_value > value:
                self.plan, value = plan, its_value
        return self.plan

    def _propose(self, live: list[ModelJob]) -> list[Plan]:
        frames = [frame for frame in live if frame.index < frame.times.network_end]
        frames.sort(key=_by_deadline)
        del frames[NEAR:]
        plans: list[Plan] = []
        for move in self._moves:
            plans += move(frames, self.plan, self.machine)
        return plans[:MOST_PLAYS]


def _by_deadline(frame: ModelJob) -> tuple[int, int]:
    return (frame.deadline_ns, frame.key)
