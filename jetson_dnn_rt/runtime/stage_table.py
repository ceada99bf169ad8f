"""From the stages of a variant to what runs from each of the task's stages on."""

from __future__ import annotations

from collections.abc import Sequence

from jetson_dnn_rt.scheduling.task_state import Run
from jetson_dnn_rt.tasks import Stage, TaskParameters, stage_name

StageTable = tuple[Stage | None, ...]
"""One entry per stage of the task; None inside a run that covers several, where none can enter."""


def make_table(parameters: TaskParameters, variant: str, stages: Sequence[Stage]) -> StageTable:
    """Lay out the stages of a variant.

    Raises
    ------
    ValueError
        When they are not the task's stages, each done once and in order.
    """
    first, expected = 0, []
    for stage in stages:
        if first + stage.span > len(parameters.stages):
            break
        expected.append(stage_name(parameters.stages, first, stage.span))
        first += stage.span
    names = [stage.name for stage in stages]
    if first != len(parameters.stages) or names != expected:
        raise ValueError(
            f"stages of variant {variant!r} of task {parameters.name!r} are {names}, expected "
            f"runs of {parameters.stages}"
        )
    return tuple(part for stage in stages for part in (stage, *(None,) * (stage.span - 1)))


def list_runs(stages: Sequence[Stage]) -> list[Run]:
    """What the engine has to know of the stages of a variant."""
    return [Run(stage.span, stage.device, stage.run_batch is not None) for stage in stages]
