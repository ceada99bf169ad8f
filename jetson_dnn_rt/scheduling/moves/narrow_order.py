# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Two networks run side by side, and one frame goes first: neither alone ends better."""

from __future__ import annotations

from jetson_dnn_rt.scheduling.model import Machine, ModelJob, Plan
from jetson_dnn_rt.scheduling.moves.narrow import run_narrow


def run_narrow_after(frames: list[ModelJob], plan: Plan, machine: Machine) -> list[Plan]:
    """Each pair of `run_narrow` behind each frame."""
    plans: list[Plan] = []
    for narrower in run_narrow(frames, plan, machine):
        if len(narrower.narrow) < len(plan.narrow) + 2:
            continue
        for frame in frames:
            if frame.key not in plan.first[:1]:
                plans.append(narrower.put_first(frame.key))
    return plans
