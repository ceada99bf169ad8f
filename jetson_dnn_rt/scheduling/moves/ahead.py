# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A frame is prepared while the network of another runs, earlier than just in time."""

from __future__ import annotations

from jetson_dnn_rt.scheduling.model import PREPARE, Machine, ModelJob, Plan


def prepare_ahead(frames: list[ModelJob], plan: Plan, machine: Machine) -> list[Plan]:
    """Prepare one more ahead, or one less."""
    plans: list[Plan] = []
    if not machine.helpers or len(frames) < 2:
        return plans
    for frame in frames:
        if not frame.mode and not frame.begun and frame.stage.kind == PREPARE:
            plans.append(Plan(plan.narrow, plan.skipped, plan.first, plan.ahead ^ {frame.key}))
    return plans
