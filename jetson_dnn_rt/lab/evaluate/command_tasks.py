"""Tasks of a parameter file as an evaluation takes them: without ROS, with the nodes' defaults."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.cli.environment import find_shared_file
from jetson_dnn_rt.config.nodes import (
    COORDINATOR,
    PERCEPTION,
    CoordinatorConfig,
    PerceptionNodeConfig,
)
from jetson_dnn_rt.config.parameter_file import ParameterFile, read_parameter_file
from jetson_dnn_rt.config.perception import read_task
from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.config.task import (
    DEFAULT_FREQUENCY_HZ,
    TaskConfig,
    count_threads,
    wants_trial,
)
from jetson_dnn_rt.errors import ConfigurationError

if TYPE_CHECKING:
    from jetson_dnn_rt.lab.evaluate.chunk import TaskSpec
PARAMETERS = "config/perception.param.yaml"

STATIC = "static"

_SPEC_FIELDS = ("name", "model", "variants", "variant", "deadline_ms", "expected_frequency")


@dataclass(frozen=True)
class TaskFile:
    """The tasks that are evaluated, and the executor that they share.

    Attributes
    ----------
    path : Path
        Of the parameter file.
    parameters : dict of str to TaskConfig
        By task, in the order of the file.
    settings : ProcessConfig
        Of `perception`.
    threads : dict of str to int
        Of one inference, by task.
    process_threads : int or str
        `threads` of `perception`.
    coordinator : CoordinatorConfig
        Who decides on variants.
    """

    path: Path
    parameters: dict[str, TaskConfig]
    settings: ProcessConfig
    threads: dict[str, int]
    process_threads: int | str
    coordinator: CoordinatorConfig

    @property
    def wants_trial(self) -> bool:
        """Whether workers and threads are to be tried out; until then one worker has all cores."""
        return wants_trial(self.process_threads, self.parameters.values())

    def with_workers(self, workers: int) -> TaskFile:
        """The same for so many workers, which share the cores."""
        from jetson_dnn_rt.backends.threads import count_cores

        cores = count_cores()
        threads = {
            name: count_threads(values, self.process_threads, cores, workers)
            for name, values in self.parameters.items()
        }
        settings = dataclasses.replace(self.settings, workers=workers)
        return dataclasses.replace(self, settings=settings, threads=threads)

    def make_specs(self, period_ns: int) -> list[TaskSpec]:
        """The tasks for a stream.

        Parameters
        ----------
        period_ns : int
            Between its frames; 0 = not known.
        """
        usual_ns = period_ns or int(1e9 / DEFAULT_FREQUENCY_HZ)
        return [self._make_spec(name, usual_ns) for name in self.parameters]

    def _make_spec(self, name: str, usual_ns: int) -> TaskSpec:
        from jetson_dnn_rt.lab.evaluate.chunk import TaskSpec

        given = self.parameters[name]
        period_ns = int(1e9 / given.expected_frequency) if given.expected_frequency else usual_ns
        values = {
            field.name: getattr(given, field.name)
            for field in dataclasses.fields(given)
            if field.name not in _SPEC_FIELDS and not field.name.startswith("preprocess_")
        }
        values |= {"preprocessing": given.preprocessing(), "threads": self.threads[name]}
        return TaskSpec(
            name=name,
            model=given.model,
            variants=order_variants(given.variants, given.variant),
            deadline_ns=int(given.deadline_ms * 1e6) or period_ns,
            period_ns=period_ns,
            values=values,
        )

    def to_dict(self) -> dict[str, Any]:
        """For the metadata of a trace."""
        tasks = {name: dataclasses.asdict(values) for name, values in self.parameters.items()}
        for values in tasks.values():
            del values["name"]
        return {
            "params": str(self.path),
            "workers": self.settings.workers,
            "discipline": self.settings.discipline,
            "policy": self.coordinator.policy,
            "perception": {
                "tasks": list(tasks),
                "workers": self.settings.workers,
                "discipline": self.settings.discipline,
            },
            **tasks,
        }


def order_variants(variants: Sequence[str], first: str) -> tuple[str, ...]:
    """Full names of variants, the one that runs first in front."""
    from jetson_dnn_rt.variants.spec import VariantSpec

    names = [str(VariantSpec.parse(name)) for name in (first, *variants) if name]
    return tuple(dict.fromkeys(names))


def read_task_file(args: argparse.Namespace) -> TaskFile:
    """Read ``--params`` with what ``--task``, ``--variant``, ``--deadline`` and ``--set`` say.

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
    for name in overrides:
        if name not in (*names, PERCEPTION):
            raise ConfigurationError(f"there is no task {name} here, but {', '.join(names)}")
    process = file.read(PerceptionNodeConfig, PERCEPTION, overrides.get(PERCEPTION))
    try:
        _ = process.device_limits
    except ConfigurationError as error:
        raise ConfigurationError(f"{file.path}: {PERCEPTION}: {error}") from error
    # A replay reports what would not fit, and writes its own trace.
    process = dataclasses.replace(process, on_unschedulable="warn")
    parameters = {}
    for name in names:
        values = read_task(file, name, overrides.get(name))
        try:
            order_variants(values.variants, values.variant)
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {name}: {error}") from error
        parameters[name] = values
    read = TaskFile(
        path,
        parameters,
        process,
        {},
        process.threads,
        _read_coordinator(args, file, overrides.get(PERCEPTION, {})),
    )
    return read.with_workers(1 if read.wants_trial else process.workers)


def _read_coordinator(
    args: argparse.Namespace, file: ParameterFile, overrides: Mapping[str, Any]
) -> CoordinatorConfig:
    """Of `perception` where it has one; ``--policy`` goes before the file's."""
    perception = {**file.of(f"{file.namespace}{PERCEPTION}"), **overrides}
    given = dict(file.of(f"{file.namespace}{COORDINATOR}"))
    there = perception.get("coordinator", True) and given.get("enable", True)
    policy = getattr(args, "policy", None) or (given.get("policy", STATIC) if there else STATIC)
    return file.read(CoordinatorConfig, COORDINATOR, {"policy": policy})


def _choose_tasks(file: ParameterFile, wanted: Sequence[str]) -> list[str]:
    unknown = sorted(set(wanted) - set(file.tasks))
    if unknown:
        raise ConfigurationError(
            f"there is no task {', '.join(unknown)} in {file.path}, but {', '.join(file.tasks)}"
        )
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
