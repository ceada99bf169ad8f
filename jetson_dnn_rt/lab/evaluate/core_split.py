"""How the tasks of a replay share the cores, where the parameters leave it to a trial."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from jetson_dnn_rt.clock import Clock, SteadyClock
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.evaluate.chunk import TaskSpec
from jetson_dnn_rt.lab.evaluate.plan import DEFAULTS, OpenTask
from jetson_dnn_rt.runtime.sharing.core_split import CoreSplit
from jetson_dnn_rt.runtime.sharing.forecast import ForecastTask
from jetson_dnn_rt.runtime.sharing.split_trial import find_split
from jetson_dnn_rt.tasks import Stage


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
    cores : int
        To be shared.
    discipline : str
        Of the executor's queue.
    log : callable
        Takes what was chosen and the figures of all splits.
    clock : Clock, optional
        Steady clock of this machine.

    Returns
    -------
    CoreSplit, list of TaskSpec
        The best split, and the tasks with their threads.

    Raises
    ------
    ConfigurationError, ModelError, BackendUnavailableError
        As those of `OpenTask`.
    """
    clock = clock or SteadyClock()

    def give_threads(spec: TaskSpec, split: CoreSplit) -> TaskSpec:
        threads = fixed[spec.name] or split.threads
        return dataclasses.replace(spec, values={**spec.values, "threads": threads})

    @contextmanager
    def load(split: CoreSplit) -> Iterator[Mapping[str, tuple[Stage, ...]]]:
        with ExitStack() as stack:
            stages = {}
            for spec in specs:
                only = dataclasses.replace(give_threads(spec, split), variants=spec.variants[:1])
                task = stack.enter_context(OpenTask(only, clock, lenient=True))
                stages[spec.name] = next(iter(task.pipelines.values())).stages
            yield stages

    tasks = [
        ForecastTask(
            spec.name,
            spec.period_ns,
            spec.deadline_ns,
            (),
            {**DEFAULTS, **spec.values}["budget_quantile"],
        )
        for spec in specs
    ]
    split = find_split(cores, load, [frame] * len(specs), tasks, discipline, clock, log)
    return split, [give_threads(spec, split) for spec in specs]
