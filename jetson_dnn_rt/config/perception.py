# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Configuration of all tasks and cameras of one process."""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jetson_dnn_rt.config.checked_names import check_names
from jetson_dnn_rt.config.nodes import (
    COORDINATOR,
    PERCEPTION,
    CameraConfig,
    CoordinatorConfig,
    PerceptionNodeConfig,
)
from jetson_dnn_rt.config.parameter_file import ParameterFile, read_parameter_files
from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.config.suggestions import suggest
from jetson_dnn_rt.config.task import TaskConfig, defaults_of
from jetson_dnn_rt.errors import ConfigurationError

logger = logging.getLogger(__name__)

SHORT_MS = 1.0
"""A shorter deadline was probably meant in seconds."""

Overrides = Mapping[str, Mapping[str, Any]]
"""Values that override those of a file, by node and by their ROS names."""


@dataclass(frozen=True)
class PerceptionConfig:
    """Tasks, cameras, the process that they share, and their coordinator."""

    tasks: Sequence[TaskConfig]  # among equal deadlines the first goes first
    cameras: Sequence[CameraConfig] = ()
    process: ProcessConfig = field(default_factory=ProcessConfig)
    threads: int | str = 0  # of one inference: 0 = cores divided by workers, or "auto"
    coordinator: CoordinatorConfig | None = None


def load_config(*paths: Path | str, namespace: str = "") -> PerceptionConfig:
    """Read ROS parameter files; values of later ones win.

    Raises
    ------
    ConfigurationError
        When a file is missing or damaged, or holds a name or value that cannot be used.
    """
    return read_config(read_parameter_files([Path(path) for path in paths], namespace))


def read_config(
    file: ParameterFile,
    overrides: Overrides | None = None,
    only: Sequence[str] = (),
    **options: Any,
) -> PerceptionConfig:
    """Check the values of the nodes of `perception`.

    Parameters
    ----------
    file : ParameterFile
        Their values.
    overrides : mapping, optional
        Values that override the file's.
    only : sequence of str
        Read only these tasks; empty = all.
    options
        Of `check_names`.

    Raises
    ------
    ConfigurationError
        When a name is misspelt (`check_names`) or a value cannot be used, or a task in `only` or a
        node in `overrides` is not there.
    """
    for note in check_names(file, overrides, **options):
        logger.warning("%s", note)
    given = overrides or {}
    own = file.read(PerceptionNodeConfig, PERCEPTION, given.get(PERCEPTION))
    refuse_unknown_tasks(file, only, own.tasks)
    names = [name for name in own.tasks if not only or name in only]
    if not names:
        raise ConfigurationError(f"{file.path} has no task")
    tasks = [
        read_task(file, name, given.get(name), default_camera(name, own.cameras)) for name in names
    ]
    cameras = [file.read(CameraConfig, name, given.get(name), name=name) for name in own.cameras]
    coordinator = (
        file.read(CoordinatorConfig, COORDINATOR, given.get(COORDINATOR))
        if own.coordinator
        else None
    )
    return PerceptionConfig(tuple(tasks), tuple(cameras), own, own.threads, coordinator)


def read_task(
    file: ParameterFile, name: str, overrides: Mapping[str, Any] | None = None, camera: str = ""
) -> TaskConfig:
    """Check the values of one task; `camera` is the default of its parameter."""
    defaults: dict[str, Any] = {"name": name, "camera": camera, **defaults_of(name)}
    task = file.read(TaskConfig, name, overrides, **defaults)
    if 0.0 < task.deadline_ms < SHORT_MS:
        logger.warning(
            "%s: deadline_ms: %g is %g microseconds; for a deadline of %g s: deadline_ms: %g",
            name, task.deadline_ms, 1e3 * task.deadline_ms, task.deadline_ms,
            1e3 * task.deadline_ms,
        )  # fmt: skip
    return task


def default_camera(task: str, cameras: Sequence[str]) -> str:
    """The camera of a task that names none: the only one in its namespace, or in the process."""
    space = posixpath.dirname(task)
    for near in ([camera for camera in cameras if posixpath.dirname(camera) == space], cameras):
        if len(near) == 1:
            return near[0]
    return ""


def refuse_shared_topics(outputs: Mapping[str, Sequence[str]]) -> None:
    """Refuse two tasks that publish the same topic, by task: their results would be mixed."""
    owners: dict[str, str] = {}
    for task, topic in ((task, topic) for task, topics in outputs.items() for topic in topics):
        owner = owners.setdefault(topic, task)
        if owner != task:
            raise ConfigurationError(
                f"tasks {owner} and {task} both publish {topic}; fix: where {task} does something "
                f"else, set its `kind`; otherwise give one a namespace and name its camera: "
                f"tasks: [{owner}, other/{task}], and in the section of other/{task} `camera: "
                "NAME`, or image_raw remapped (docs/launching.md, two tasks on one camera)"
            )


def refuse_unknown_tasks(file: ParameterFile, wanted: Sequence[str], known: Sequence[str]) -> None:
    """Refuse tasks that are asked for by names that the file has not."""
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        raise ConfigurationError(
            f"there is no task {', '.join(unknown)} in {file.path}, but {', '.join(known)}"
            f"{suggest(unknown[0], known)}"
        )
