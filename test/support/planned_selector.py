# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A selector with a fixed variant for each stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.selection import StaticSelector
from jetson_dnn_rt.scheduling.task_state import TaskState


class PlannedSelector(StaticSelector):
    """A fixed variant for each stage; a task without a plan keeps its own variant."""

    def __init__(self, plans: Mapping[str, Sequence[str]]) -> None:
        self._plans = {task: tuple(plan) for task, plan in plans.items()}

    def choose(self, state: TaskState, job: Job, now_ns: int) -> str:
        """Return the plan's variant of this stage."""
        plan = self._plans.get(job.task)
        return plan[job.next_stage] if plan else super().choose(state, job, now_ns)
