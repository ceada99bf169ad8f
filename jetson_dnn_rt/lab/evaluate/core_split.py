"""How the tasks of a replay share the cores, where the parameters leave it to a trial."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from jetson_dnn_rt.clock import Clock, SteadyClock
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.evaluate.chunk import TaskSpec
from jetson_dnn_rt.lab.evaluate.plan import make_config
from jetson_dnn_rt.runtime.sharing import core_split
from jetson_dnn_rt.runtime.sharing.core_split import CoreSplit, TrialTask


def share_cores(
    specs: Sequence[TaskSpec],
    fixed: Mapping[str, int],
    frame: Frame,
    cores: int,
    discipline: str,
    log: Callable[[str], None],
    clock: Clock | None = None,
) -> tuple[CoreSplit, list[TaskSpec]]:
    """Try every split of the cores with the first variants of the tasks.

    Parameters
    ----------
    specs : sequence of TaskSpec
        The tasks.
    fixed : mapping of str to int
        Threads of tasks that name a number; 0 for the others.
    frame : Frame
        That every task is tried with.
    cores, discipline, log, clock
        As in `runtime.sharing.core_split.share_cores`.

    Returns
    -------
    CoreSplit, list of TaskSpec
        The best split, and the tasks with their threads.
    """
    tasks = {
        spec.name: TrialTask(
            dataclasses.replace(make_config(spec), threads=fixed[spec.name]),
            frame,
            spec.period_ns,
            spec.deadline_ns,
        )
        for spec in specs
    }
    split, _ = core_split.share_cores(tasks, cores, discipline, clock or SteadyClock(), log)

    def give_threads(spec: TaskSpec) -> TaskSpec:
        threads = fixed[spec.name] or split.threads
        return dataclasses.replace(spec, values={**spec.values, "threads": threads})

    return split, list(map(give_threads, specs))
