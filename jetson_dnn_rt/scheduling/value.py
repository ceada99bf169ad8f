# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What a plan is worth: it is played to its end on the model of time."""

from __future__ import annotations

from jetson_dnn_rt.scheduling.base import pick
from jetson_dnn_rt.scheduling.model import (
    LEAST_CHANCE,
    NEVER,
    Plan,
    State,
    chance,
    next_event_ns,
    replace_waiting,
)

Value = tuple[int, int]
"""First the worth of the frames that are in time, in steps of `LEAST_CHANCE`; then freshness, the
less time the better. Compared as a tuple: freshness decides only where the worth is equal.

In steps, since chances come from a normal approximation: a difference in its ninth digit must not
outweigh a fresher result.
"""


def play(state: State, plan: Plan) -> Value:
    """Return what comes of a plan if stages take their times and no other frames arrive.

    The sum over its frames of the probability that each is in time, times its worth. Frames that
    ended before are not in it: their part is the same for every plan.
    """
    state = state.copy()
    worth = response_ns = 0.0
    while True:
        while (frame := pick(state, plan)) is not None:
            frame.begin(state.mode, state.now_ns, state.variance)
        at_ns = next_event_ns(state)
        if at_ns == NEVER:
            return round(worth / LEAST_CHANCE), -int(response_ns)
        state.now_ns = at_ns
        variance = 0.0
        has_ended = False
        for frame in state.frames:
            if frame.mode and frame.end_ns <= at_ns:
                variance = max(variance, frame.variance)
                frame.finish(at_ns)
                if frame.ended:
                    has_ended = True
                    likely = chance(frame.deadline_ns - at_ns, frame.variance)
                    worth += likely * frame.worth
                    response_ns += likely * (at_ns - frame.release_ns)
        state.variance = variance
        replace_waiting(state)
        if has_ended:
            state.frames = [frame for frame in state.frames if not frame.ended]
