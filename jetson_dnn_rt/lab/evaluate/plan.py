# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Tasks of an evaluation: read from a parameter file, loaded, and fixed, so all workers agree.

Some properties of a task are chosen by measuring: the variant if none is named, the number of
stages if it is 0, and how many of them a back end combines in one run. A different choice can give
different bits. `fix_task` makes the choice once and writes it into the task, for every chunk,
worker and repetition.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from jetson_dnn_rt.backends.threads import count_cores
from jetson_dnn_rt.cli.environment import find_shared_file
from jetson_dnn_rt.clock import Clock, SteadyClock
from jetson_dnn_rt.config.checked_names import check_names
from jetson_dnn_rt.config.nodes import (
    COORDINATOR,
    PERCEPTION,
    CoordinatorConfig,
    PerceptionNodeConfig,
)
from jetson_dnn_rt.config.parameter_file import ParameterFile, read_parameter_file
from jetson_dnn_rt.config.perception import read_task, refuse_unknown_tasks
from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.config.task import (
    AUTO,
    DEFAULT_FREQUENCY_HZ,
    TaskConfig,
    count_threads,
    follows_load,
)
from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError
from jetson_dnn_rt.models.heads.base import Kind
from jetson_dnn_rt.runtime.task import BatchKey, Task
from jetson_dnn_rt.traces.schema import SHARING, TracedTask
from jetson_dnn_rt.variants.running.pipeline import Pipeline
from jetson_dnn_rt.variants.spec import VariantSpec, parse_variants

PARAMETERS = "config/perception.param.yaml"

STATIC = "static"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskSpec:
    """Specification of a task for a worker: it can be pickled, and nothing is loaded.

    The first variant of its configuration runs first. `runs` is the number of runs in which each
    variant executes the network; by default it is measured.
    """

    config: TaskConfig
    deadline_ns: int
    period_ns: int
    runs: Mapping[str, int] | None = None

    @property
    def name(self) -> str:
        """Name of the task."""
        return self.config.name


@dataclass(frozen=True)
class FixedTask:
    """Task with variants, stages and runs filled in, and the properties found on loading."""

    spec: TaskSpec
    model_hash: str
    stages: tuple[str, ...]
    left_out: dict[str, str]
    """Variants that were requested but cannot run, and why."""
    kind: Kind
    labels: tuple[str, ...]

    def describe(self, camera: str) -> TracedTask:
        """Describe the task for the metadata of a trace."""
        config = self.spec.config
        return TracedTask(
            camera=camera,
            model=config.model,
            model_hash=self.model_hash,
            variants=config.variants,
            stages=self.stages,
            deadline_ns=self.spec.deadline_ns,
            period_ns=self.spec.period_ns,
        )


class OpenTask(Task):
    """A task with its variants, not warmed up; close it, or use it in a ``with`` statement.

    Parameters
    ----------
    spec : TaskSpec
        Model and variants.
    clock : Clock, optional
        Clock that null models wait on.
    lenient : bool
        Leave out variants that are not available; otherwise that is an error: a chunk without one
        of its variants would be a gap in the result.
    find_like, narrow_threads
        As in `Task`.

    Raises
    ------
    ConfigurationError, ModelError, BackendUnavailableError
        When the model or a variant cannot be used; the text begins with the task's name.
    """

    def __init__(
        self,
        spec: TaskSpec,
        clock: Clock | None = None,
        *,
        lenient: bool = False,
        find_like: Callable[[BatchKey], Task | None] = lambda key: None,
        narrow_threads: int = 0,
    ) -> None:
        self.spec = spec
        try:
            super().__init__(
                spec.config,
                threads=max(1, spec.config.fixed_threads),
                narrow_threads=narrow_threads,
                clock=clock or SteadyClock(),
                find_like=find_like,
                frames=(),
                runs=spec.runs,
            )
        except JetsonDnnRtError as error:
            raise type(error)(f"{spec.name}: {error}") from error
        if self.left_out and not lenient:
            self.close()
            raise ConfigurationError(f"{spec.name}: {next(iter(self.left_out.values()))}")

    @property
    def pipelines(self) -> dict[str, Pipeline]:
        """Pipelines by variant; the first one runs first."""
        return self.variants.pipelines

    def fix(self) -> FixedTask:
        """Return the task with all the choices that were made when it was loaded."""
        config = replace(
            self.spec.config,
            variants=tuple(self.pipelines),
            # The library has the cuts that were chosen for ``auto``.
            stages=AUTO if self.spec.config.stages == AUTO else len(self.stage_names) - 2,
            memory_limit_mb=0.0,
        )
        runs = {name: len(pipeline.segments) for name, pipeline in self.pipelines.items()}
        spec = replace(self.spec, config=config, runs=runs)
        model, stages = self.model, self.stage_names
        labels = tuple(model.labels)
        return FixedTask(spec, model.model_hash, stages, self.left_out, model.kind, labels)

    def __enter__(self) -> OpenTask:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def fix_task(spec: TaskSpec) -> FixedTask:
    """Load a task once and make the choices that all workers must share.

    Raises
    ------
    ConfigurationError, ModelError, BackendUnavailableError
        As in `OpenTask`.
    """
    with OpenTask(spec, lenient=True) as task:
        return task.fix()


# -- The parameter file --------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskFile:
    """The tasks to evaluate, in the order of the file, and the process that they share."""

    path: Path
    tasks: tuple[TaskConfig, ...]
    process: ProcessConfig
    process_threads: int | str
    """`threads` of `perception`."""
    coordinator: CoordinatorConfig

    @property
    def follows_load(self) -> bool:
        """Whether workers and threads follow the load; one worker has all cores then."""
        return follows_load(self.process_threads, self.tasks)

    def with_workers(self, workers: int) -> TaskFile:
        """Return a copy for another number of workers, which share the cores."""
        return replace(self, process=replace(self.process, workers=workers))

    def make_specs(self, period_ns: int) -> list[TaskSpec]:
        """Make the tasks for a stream with a time between frames; 0 = unknown."""
        usual_ns = period_ns or int(1e9 / DEFAULT_FREQUENCY_HZ)
        specs = []
        for task in self.tasks:
            own_ns = int(1e9 / task.expected_frequency) if task.expected_frequency else usual_ns
            config = replace(
                task,
                variants=order_variants(task.variants, task.variant),
                variant="",
                threads=count_threads(
                    task, self.process_threads, count_cores(), self.process.workers
                ),
            )
            specs.append(TaskSpec(config, task.deadline_ns(own_ns), own_ns))
        return specs

    def to_dict(self) -> dict[str, Any]:
        """Convert for the metadata of a trace."""
        tasks = {task.name: asdict(task) for task in self.tasks}
        for values in tasks.values():
            del values["name"]
        process = {"workers": self.process.workers, "discipline": self.process.discipline}
        # One after the other nothing runs narrow: there are no `NARROW_SLOWDOWNS`.
        sharing = {
            "workers": self.process.workers,
            "helpers": self.process.helpers,
            "threads": self.process_threads,
        }
        return {
            "params": str(self.path),
            **process,
            "policy": self.coordinator.policy,
            "perception": {"tasks": list(tasks), **process},
            **tasks,
            SHARING: sharing,
        }


def order_variants(variants: Sequence[str], first: str) -> tuple[str, ...]:
    """Complete the names of variants; the one that runs first is listed first."""
    names = [str(VariantSpec.parse(name)) for name in (first, *variants) if name]
    return tuple(dict.fromkeys(names))


def read_task_file(args: argparse.Namespace) -> TaskFile:
    """Read ``--params`` with the changes of ``--task``, ``--variant``, ``--deadline``, ``--set``.

    Raises
    ------
    ConfigurationError
        When the file, a task or a value cannot be used.
    """
    path = args.params or find_shared_file(PARAMETERS)
    if path is None:
        raise ConfigurationError(f"{PARAMETERS} of this package is not installed: give --params")
    file = read_parameter_file(path)
    overrides = _collect_overrides(args)
    names = _choose_tasks(file, args.task)
    for note in check_names(file, overrides):
        logger.warning("%s", note)
    for name in overrides:
        if name not in (*names, PERCEPTION):
            raise ConfigurationError(
                f"{name} is not evaluated: only {PERCEPTION}, {', '.join(names)}"
            )
    process = file.read(PerceptionNodeConfig, PERCEPTION, overrides.get(PERCEPTION))
    try:
        _ = process.device_limits
    except ConfigurationError as error:
        text = file.explain(PERCEPTION, error, overrides.get(PERCEPTION, ()))
        raise ConfigurationError(text) from error
    tasks = tuple(read_task(file, name, overrides.get(name)) for name in names)
    for task in tasks:
        try:
            parse_variants(task)
        except ConfigurationError as error:
            text = file.explain(task.name, error, overrides.get(task.name, ()))
            raise ConfigurationError(text) from error
    # ``--policy`` overrides the file's, which applies only where a coordinator is enabled.
    given = file.read(CoordinatorConfig, COORDINATOR)
    there = process.coordinator and given.enable
    policy = getattr(args, "policy", None) or (given.policy if there else STATIC)
    read = TaskFile(
        path,
        tasks,
        # A replay reports what would not fit, and writes its own trace.
        replace(process, on_unschedulable="warn"),
        process.threads,
        file.read(CoordinatorConfig, COORDINATOR, {"policy": policy}),
    )
    return read.with_workers(1) if read.follows_load else read


def _choose_tasks(file: ParameterFile, wanted: Sequence[str]) -> list[str]:
    refuse_unknown_tasks(file, wanted, file.tasks)
    names = [name for name in file.tasks if not wanted or name in wanted]
    if not names:
        raise ConfigurationError(f"{file.path} has no task")
    return names


def _collect_overrides(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    overrides: dict[str, dict[str, Any]] = {}
    for task, deadline_ms in args.deadline:
        overrides.setdefault(task, {})["deadline_ms"] = deadline_ms
    for task, variant in args.variant:
        values = overrides.setdefault(task, {"variant": ""})
        values["variants"] = [*values.get("variants", []), variant]
        values["variant"] = values["variants"][0]
    for task, parameter, value in args.set:
        overrides.setdefault(task, {})[parameter] = value
    return overrides
