# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A frame goes first, though others have earlier deadlines."""

from __future__ import annotations

from jetson_dnn_rt.scheduling.model import Machine, ModelJob, Plan


def go_first(frames: list[ModelJob], plan: Plan, machine: Machine) -> list[Plan]:
    """Each before all others; or the order of the base policy again."""
    plans: list[Plan] = []
    for frame in frames if len(frames) > 1 else []:
        if frame.key not in plan.first[:1] and frame.key not in plan.skipped:
            plans.append(plan.put_first(frame.key))
    if plan.first:
        plans.append(Plan(plan.narrow, plan.skipped, (), plan.ahead))
    return plans
