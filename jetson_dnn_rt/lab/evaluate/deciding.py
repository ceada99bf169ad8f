"""A coordinator for a replay: it decides at stage boundaries, as beside the nodes."""

from __future__ import annotations

from collections.abc import Sequence

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
from jetson_dnn_rt.lab.evaluate.plan import DEFAULTS, OpenTask
from jetson_dnn_rt.lab.evaluate.realtime import WarmUp
from jetson_dnn_rt.platforms.detect import detect

ALONE = (1.0,)
"""What stages side by side do to each other is learnt as they run."""


def make_coordinator(
    tasks: Sequence[OpenTask],
    warm_up_ns: WarmUp,
    period_ns: int,
    policy: str,
    settings: PolicySettings,
    workers: int,
) -> Coordinator:
    """Make a coordinator for some tasks, at the clocks of this moment, which stay as they are.

    Times and accuracy come from the tasks' library, else the times from their warm-up.

    Parameters
    ----------
    tasks : sequence of OpenTask
        The cohort.
    warm_up_ns : WarmUp
        See `realtime.warm_up`.
    period_ns : int
        Between frames.
    policy, settings : str, PolicySettings
        Who decides, and how.
    workers : int
        Of the executor.

    Raises
    ------
    ConfigurationError
        When there is no such policy, or a task has no variant of known accuracy.
    """
    with detect() as platform:
        clocks = make_clock_table(platform.space, platform.read())
    tables = [_make_table(task, warm_up_ns, period_ns) for task in tasks]
    made = create_policy(policy, clocks, tables, settings, workers=workers, interference=ALONE)
    return Coordinator(clocks, tables, made, workers=workers, interference=ALONE)


def _make_table(task: OpenTask, warm_up_ns: WarmUp, period_ns: int) -> TaskTable:
    spec = task.spec
    values = {**DEFAULTS, **spec.values}
    try:
        profiles = load_profiles(
            {name: pipeline.stages for name, pipeline in task.pipelines.items()},
            warm_up_ns[spec.name],
            library=task.library,
            model=task.model,
            threads=values["threads"],
            stages=values["stages"],
        )
        return make_task_table(
            spec.name,
            task.stage_names,
            profiles,
            deadline_ns=spec.deadline_ns,
            period_ns=period_ns,
        )
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
