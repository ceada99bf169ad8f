# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A frame is given up for the sake of others."""

from __future__ import annotations

from jetson_dnn_rt.scheduling.model import Machine, ModelJob, Plan


def skip(frames: list[ModelJob], plan: Plan, machine: Machine) -> list[Plan]:
    """Skip one more of several, or one less."""
    plans: list[Plan] = []
    for frame in frames:
        if not frame.mode and (len(frames) > 1 or frame.key in plan.skipped):
            plans.append(Plan(plan.narrow, plan.skipped ^ {frame.key}, plan.first, plan.ahead))
    return plans
