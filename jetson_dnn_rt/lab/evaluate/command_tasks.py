"""Tasks of a parameter file as an evaluation takes them: without ROS, with the nodes' defaults."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.cli.environment import find_shared_file
from jetson_dnn_rt.cli.parameter_file import PERCEPTION, ParameterFile, read_parameter_file
from jetson_dnn_rt.errors import ConfigurationError

if TYPE_CHECKING:
    from jetson_dnn_rt.lab.evaluate.chunk import TaskSpec
    from jetson_dnn_rt.lab.evaluate.realtime import PlayerSettings
    from jetson_dnn_rt.nodes.coordinator.coordinator_parameters import CoordinatorParameters
    from jetson_dnn_rt.nodes.tasks.task_parameters import TaskNodeParameters

PARAMETERS = "config/perception.param.yaml"

COORDINATOR, STATIC = "coordinator", "static"

_SPEC_FIELDS = ("model", "variants", "variant", "deadline_ms", "expected_frequency")
_REALTIME = "realtime."


@dataclass(frozen=True)
class TaskFile:
    """The tasks that are evaluated, and the executor that they share.

    Attributes
    ----------
    path : Path
        Of the parameter file.
    parameters : dict of str to TaskNodeParameters
        By task, in the order of the file.
    settings : PlayerSettings
        Of `perception`.
    threads : dict of str to int
        Of one inference, by task.
    process_threads : int or str
        `threads` of `perception`.
    coordinator : CoordinatorParameters
        Who decides on variants.
    """

    path: Path
    parameters: dict[str, TaskNodeParameters]
    settings: PlayerSettings
    threads: dict[str, int]
    process_threads: int | str
    coordinator: CoordinatorParameters

    @property
    def wants_trial(self) -> bool:
        """Whether workers and threads are to be tried out; until then one worker has all cores."""
        from jetson_dnn_rt.nodes.tasks.task_parameters import wants_trial

        return wants_trial(self.process_threads, self.parameters.values())

    def with_workers(self, workers: int) -> TaskFile:
        """The same for so many workers, which share the cores."""
        from jetson_dnn_rt.backends.threads import count_cores
        from jetson_dnn_rt.nodes.tasks.task_parameters import count_threads

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
        from jetson_dnn_rt.nodes.tasks.task_parameters import DEFAULT_FREQUENCY_HZ

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
    from jetson_dnn_rt.nodes.process.declaration import read_values
    from jetson_dnn_rt.nodes.tasks.task_parameters import TaskNodeParameters, defaults_of

    path = args.params or find_shared_file(PARAMETERS)
    if path is None:
        raise ConfigurationError(f"{PARAMETERS} of this package is not installed: give --params")
    file = read_parameter_file(path)
    overrides = _collect_overrides(args)
    names = _choose_tasks(file, args.task)
    for name in overrides:
        if name not in (*names, PERCEPTION):
            raise ConfigurationError(f"there is no task {name} here, but {', '.join(names)}")
    settings = _read_settings(file, overrides.get(PERCEPTION, {}))
    process_threads = _read_threads(file, overrides.get(PERCEPTION, {}))
    parameters = {}
    for name in names:
        given = {**file.of_task(name), **overrides.get(name, {})}
        try:
            values = read_values(TaskNodeParameters, given, defaults_of(name))
            order_variants(values.variants, values.variant)
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {name}: {error}") from error
        parameters[name] = values
    read = TaskFile(
        path,
        parameters,
        settings,
        {},
        process_threads,
        _read_coordinator(args, file, overrides.get(PERCEPTION, {})),
    )
    return read.with_workers(1 if read.wants_trial else settings.workers)


def _read_coordinator(
    args: argparse.Namespace, file: ParameterFile, overrides: Mapping[str, Any]
) -> CoordinatorParameters:
    """Of `perception` where it has one; ``--policy`` goes before the file's."""
    from jetson_dnn_rt.nodes.coordinator.coordinator_parameters import CoordinatorParameters
    from jetson_dnn_rt.nodes.process.declaration import read_values

    perception = {**file.of(f"{file.namespace}{PERCEPTION}"), **overrides}
    given = dict(file.of(f"{file.namespace}{COORDINATOR}"))
    there = perception.get("coordinator", True) and given.get("enable", True)
    policy = getattr(args, "policy", None) or (given.get("policy", STATIC) if there else STATIC)
    try:
        return read_values(CoordinatorParameters, {**given, "policy": policy}, {})
    except ConfigurationError as error:
        raise ConfigurationError(f"{file.path}: {COORDINATOR}: {error}") from error


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


def _read_settings(file: ParameterFile, overrides: Mapping[str, Any]) -> PlayerSettings:
    from jetson_dnn_rt.lab.evaluate.realtime import PlayerSettings
    from jetson_dnn_rt.runtime.device_limits import parse_device_limits
    from jetson_dnn_rt.runtime.realtime import RealtimeParameters
    from jetson_dnn_rt.scheduling.queue import DISCIPLINES

    values = {**file.of(f"{file.namespace}{PERCEPTION}"), **overrides}
    workers, discipline = values.get("workers", 1), values.get("discipline", "edf")
    if type(workers) is not int or workers < 1:
        raise ConfigurationError(
            f"{file.path}: workers must be a whole number above 0: {workers!r}"
        )
    if discipline not in DISCIPLINES:
        raise ConfigurationError(
            f"{file.path}: discipline must be one of {', '.join(DISCIPLINES)}: {discipline!r}"
        )
    known = {field.name: field for field in dataclasses.fields(RealtimeParameters)}
    given: dict[str, Any] = {}
    for key, value in values.items():
        name = key.removeprefix(_REALTIME)
        if key.startswith(_REALTIME) and name in known:
            given[name] = _check_realtime(file, name, value, known[name].default)
    try:
        realtime = RealtimeParameters(**given)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{file.path}: {_REALTIME}{error}") from error
    limits = str(values.get("max_inflight", ""))
    try:
        return PlayerSettings(workers, discipline, realtime, parse_device_limits(limits))
    except ConfigurationError as error:
        raise ConfigurationError(f"{file.path}: {error}") from error


def _read_threads(file: ParameterFile, overrides: Mapping[str, Any]) -> int | str:
    from jetson_dnn_rt.nodes.tasks.task_parameters import read_process_threads

    values = {**file.of(f"{file.namespace}{PERCEPTION}"), **overrides}
    try:
        return read_process_threads(values)
    except ConfigurationError as error:
        raise ConfigurationError(f"{file.path}: {PERCEPTION}: {error}") from error


def _check_realtime(file: ParameterFile, name: str, value: Any, default: Any) -> Any:
    if isinstance(default, tuple):
        # ROS cannot tell the type of an empty list: [-1] stands for it.
        if isinstance(value, list) and all(type(core) is int for core in value):
            return tuple(core for core in value if core >= 0)
    elif type(value) is type(default):
        return value
    raise ConfigurationError(f"{file.path}: {_REALTIME}{name} cannot be {value!r}")
