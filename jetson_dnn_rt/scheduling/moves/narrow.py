# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Networks of two frames run side by side, each narrow, in place of one after the other."""

from __future__ import annotations

from jetson_dnn_rt.scheduling.model import Machine, ModelJob, Plan


def run_narrow(frames: list[ModelJob], plan: Plan, machine: Machine) -> list[Plan]:
    """Pairs first: one narrow network alone only takes longer. Then all, one more, or one less."""
    able = [frame.key for frame in frames if _can_run_narrow(frame)]
    plans: list[Plan] = []
    if machine.threads < 2:
        return plans
    for place, one in enumerate(able):
        for other in able[place + 1 :]:
            if not (one in plan.narrow and other in plan.narrow):
                pair = plan.narrow | {one, other}
                plans.append(Plan(pair, plan.skipped, plan.first, plan.ahead))
    if len(able) > 2:
        plans.append(Plan(plan.narrow | set(able), plan.skipped, plan.first, plan.ahead))
    for one in able:
        plans.append(Plan(plan.narrow ^ {one}, plan.skipped, plan.first, plan.ahead))
    return plans


def _can_run_narrow(frame: ModelJob) -> bool:
    able = False
    for stage in frame.times.stages[frame.index :]:
        able = able or stage.narrow_ns > stage.wide_ns
    return able and not (frame.mode and frame.in_network)
