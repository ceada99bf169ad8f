"""A coordinator for a replay: it decides at stage boundaries, as beside the nodes."""

from __future__ import annotations

from collections.abc import Mapping

from jetson_dnn_rt.coordinator.coordinator import Coordinator
from jetson_dnn_rt.coordinator.policy import PolicySettings
from jetson_dnn_rt.coordinator.registry import create_policy
from jetson_dnn_rt.coordinator.tables.library_tables import (
    load_profiles,
    make_clock_table,
    make_task_table,
)
from jetson_dnn_rt.coordinator.tables.tables import TaskTable
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.platforms.detect import detect
from jetson_dnn_rt.runtime.session import Session
from jetson_dnn_rt.runtime.task import Task

ALONE = (1.0,)
"""Where nothing was measured, the slow-down side by side is learnt as they run."""


def make_coordinator(
    session: Session,
    deadlines_ns: Mapping[str, int],
    period_ns: int,
    policy: str,
    settings: PolicySettings,
) -> Coordinator:
    """Make a coordinator for some tasks, at the clocks of this moment, which stay as they are.

    Times and accuracy come from the tasks' library, else the times from their warm-up.

    `period_ns` is the time between frames.

    Raises
    ------
    ConfigurationError
        When there is no such policy, or a task has no variant of known accuracy.
    """
    with detect() as platform:
        clocks = make_clock_table(platform.space, platform.read())
    workers = session.split.workers
    interference = tuple(session.cohort_slowdown.values()) or ALONE
    tables = [
        _make_table(session.tasks[name], deadline_ns, period_ns)
        for name, deadline_ns in deadlines_ns.items()
    ]
    made = create_policy(
        policy, clocks, tables, settings, workers=workers, interference=interference
    )
    return Coordinator(clocks, tables, made, workers=workers, interference=interference)


def _make_table(task: Task, deadline_ns: int, period_ns: int) -> TaskTable:
    try:
        profiles = load_profiles(
            task.stages,
            task.warm_up_times_ns,
            library=task.library,
            model=task.model,
            threads=task.threads,
            stages=task.config.stages,
        )
        return make_task_table(
            task.name,
            task.stage_names,
            profiles,
            deadline_ns=deadline_ns,
            period_ns=period_ns,
        )
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
