"""How the tasks of a process share its cores: as the parameters say, or as a trial finds best."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import JetsonDnnRtError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.nodes.tasks.loading import load_task_model
from jetson_dnn_rt.runtime.sharing.core_split import CoreSplit
from jetson_dnn_rt.runtime.sharing.forecast import ForecastTask
from jetson_dnn_rt.runtime.sharing.split_trial import find_slowdown, find_split
from jetson_dnn_rt.runtime.task import open_library
from jetson_dnn_rt.tasks import Stage
from jetson_dnn_rt.variants.running.variant_set import VariantSet

if TYPE_CHECKING:
    from jetson_dnn_rt.nodes.tasks.loading import LoadedTask

Log = Callable[[str], None]


@dataclass(frozen=True)
class TrialTask:
    """A task before it is loaded.

    Attributes
    ----------
    values : TaskConfig
        Its parameters.
    size : tuple of int
        Height and width of the frames that will come.
    period_ns, deadline_ns : int
        Between two frames, and from release to deadline.
    """

    values: TaskConfig
    size: tuple[int, int]
    period_ns: int
    deadline_ns: int

    def make_frame(self) -> Frame:
        """A frame as the warm-up takes it."""
        return Frame(np.full((*self.size, 3), 114, np.uint8), "bgr8", 0, 0)


def share_cores(
    tasks: Mapping[str, TrialTask], cores: int, discipline: str, clock: Clock, log: Log
) -> tuple[CoreSplit, dict[str, Model]]:
    """Try every split of the cores with the default variants of the tasks.

    Parameters
    ----------
    tasks : mapping of str to TrialTask
        By name; tasks with a number of threads of their own are tried with it.
    cores : int
        To be shared.
    discipline : str
        Of the executor's queue.
    clock : Clock
        Steady clock of this machine.
    log : callable
        Takes what was chosen and the figures of all splits.

    Returns
    -------
    CoreSplit, dict of str to Model
        The best, and the tasks' models as far as they were loaded for it.

    Raises
    ------
    ConfigurationError, ModelError, BackendUnavailableError
        When a task cannot be loaded; the text begins with its name.
    """
    models: dict[str, Model] = {}

    @contextmanager
    def load(split: CoreSplit) -> Iterator[Mapping[str, tuple[Stage, ...]]]:
        with ExitStack() as stack:
            stages = {}
            for name, task in tasks.items():
                with _naming(name):
                    if name not in models:
                        models[name] = load_task_model(task.values)
                    variants = _load_default(task.values, models[name], split, clock)
                stack.callback(variants.close)
                stages[name] = variants.pipelines[variants.default].stages
            yield stages

    forecast_tasks = [
        ForecastTask(name, task.period_ns, task.deadline_ns, (), task.values.budget_quantile)
        for name, task in tasks.items()
    ]
    frames = [task.make_frame() for task in tasks.values()]
    return find_split(cores, load, frames, forecast_tasks, discipline, clock, log), models


def measure_slowdown(
    loaded: Mapping[str, LoadedTask], workers: int, clock: Clock, log: Log
) -> dict[int, float]:
    """How much longer a frame takes with 1, 2, ... workers at it, for the tasks as they start.

    Tasks of the null back end are left out: their script says how long they take.

    Parameters
    ----------
    loaded : mapping of str to LoadedTask
        The tasks of the process by name; none of them may be running.
    workers : int
        Of the executor.
    clock : Clock
        Steady clock of this machine.
    log : callable
        Takes what was found.

    Returns
    -------
    dict of int to float
        By the number side by side, 1 to the smaller of `workers` and the tasks; empty where
        nothing was measured.
    """
    real = {name: task for name, task in loaded.items() if not task.is_scripted}
    most = min(workers, len(real))
    if most < 2:
        return {}
    begin_ns = clock.now_ns()
    stages = {name: task.stages[task.default] for name, task in real.items()}
    frames = [task.frame for task in real.values()]
    slowdown = find_slowdown(stages, frames, most, clock)
    figures = ", ".join(f"{count}: {factor:.2f}" for count, factor in slowdown.items())
    log(
        f"slow-down by the number of stages side by side: {figures} (measured in "
        f"{(clock.now_ns() - begin_ns) / 1e9:.1f} s)"
    )
    return slowdown


def _load_default(values: TaskConfig, model: Model, split: CoreSplit, clock: Clock) -> VariantSet:
    name = values.variant or next(iter(values.variants), "")
    return VariantSet(
        model,
        [name] if name else [],
        DecoderSettings(),
        threads=values.fixed_threads or split.threads,
        clock=clock,
        stages=values.stages,
        library=open_library(values.engine_cache),
        # An engine that is not there yet is no reason to wait for it here.
        build=False,
        keep_refused=True,
        finest=values.finest_stages,
        amp_lists=values.amp_lists,
    )


@contextmanager
def _naming(task: str) -> Iterator[None]:
    try:
        yield
    except JetsonDnnRtError as error:
        raise type(error)(f"task {task}: {error}") from error
