# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What the launch files start, from their arguments and the parameter file.

Without rclpy: a launch only starts nodes.
"""

from __future__ import annotations

import atexit
import os
import posixpath
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from ament_index_python.packages import PackageNotFoundError, get_package_prefix

from jetson_dnn_rt.config.checked_names import check_names
from jetson_dnn_rt.config.nodes import (
    COORDINATOR,
    PERCEPTION,
    CameraConfig,
    CoordinatorConfig,
    PerceptionNodeConfig,
)
from jetson_dnn_rt.config.parameter_file import ParameterFile, matches, read_parameter_files
from jetson_dnn_rt.config.perception import default_camera, read_task, refuse_shared_topics
from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.config.result_topics import list_companions, list_results
from jetson_dnn_rt.config.suggestions import RESEMBLES, find_similar, suggest
from jetson_dnn_rt.config.task import TaskConfig, defaults_of
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.printable import make_printable

NONE = "none"
"""Value of the argument `cameras` for cameras that run elsewhere."""

EXECUTABLES = {
    "detection": "detector",
    "segmentation": "segmenter",
    "classification": "classifier",
}
"""Executable whose defaults a task has, by their kind."""

MODELS = {
    "detection": "model",
    "segmentation": "segmenter_model",
    "classification": "classifier_model",
}
"""Argument with the model of the tasks of a kind."""

_WORDS = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}


SWITCHES = ("autostart", "composed", "respawn", "build_only", "plot", "record")
"""Arguments of perception.launch.py that are true or false."""


def is_true(text: str) -> bool:
    """Read a yes-or-no launch argument, in any case; `ValueError` for anything else."""
    try:
        return _WORDS[text.lower()]
    except KeyError:
        raise ValueError(f"true or false expected, not {text!r}") from None


def read_switches(arguments: Mapping[str, str]) -> dict[str, str]:
    """Read the `SWITCHES`, as ``true`` or ``false``; `ValueError` names one that is neither."""
    read = {}
    for name in SWITCHES:
        try:
            read[name] = str(is_true(arguments[name])).lower()
        except ValueError as error:
            hint = "; a bag is recorded with record_bag:=NAME" if name == "record" else ""
            raise ValueError(f"{name}: {error}{hint}") from error
    return read


def check_arguments(
    file: str, known: Iterable[str], given: Mapping[str, str], command: Sequence[str]
) -> list[str]:
    """Check the names of launch arguments: `ros2 launch` itself ignores undeclared ones.

    Parameters
    ----------
    file : str
        Name of the launch file.
    known : iterable of str
        Its arguments.
    given : mapping
        All launch configurations. Where another file includes this one, its own are among them.
    command : sequence of str
        Command line of the launch.

    Returns
    -------
    list of str
        What should be said of names that may be the including file's.

    Raises
    ------
    ValueError
        When the command line is for this file and has a name that it does not know.
    """
    names = set(known)
    is_first = any(posixpath.basename(word) == file for word in command)
    typed = {word.partition(":=")[0] for word in command if ":=" in word} if is_first else set()
    notes = []
    for name in sorted({*given} - names):
        text = f"{file} has no argument {make_printable(name)}"
        if name in typed:
            hint = suggest(name, names) or "; --show-args lists those that there are"
            raise ValueError(f"{text}{hint}")
        if meant := find_similar(name, names, RESEMBLES):
            notes.append(f"{text}: it is ignored; did you mean {meant}?")
    return notes


def has_package(name: str) -> bool:
    """Whether the ROS package `name` is installed in this workspace or below it."""
    try:
        get_package_prefix(name)
    except PackageNotFoundError:
        return False
    return True


def find_trace_dir(arguments: Mapping[str, str]) -> str:
    """Folder of the job traces; empty = as in the parameter file."""
    home = os.environ.get("ROS_HOME") or "~/.ros"
    record = is_true(arguments["record"])
    given = arguments["trace_dir"] or (f"{home}/jetson_dnn_rt" if record else "")
    return str(Path(given).expanduser()) if given else ""


def find_params_file(text: str, shipped: Path) -> Path:
    """A parameter file by its path, or by its name among the `shipped` ones."""
    path = Path(text).expanduser()
    if path.is_file() or path.is_absolute():
        return path
    if (shipped / path).is_file():
        return shipped / path
    raise ConfigurationError(f"params_file: {text} is neither in {Path.cwd()} nor in {shipped}")


@dataclass(frozen=True)
class Process:
    """A process; `node` is its only one, ``rear/detector``, empty for that with all nodes."""

    executable: str
    node: str = ""
    remappings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Graph:
    """What a launch starts; `overrides` are parameters by node that go before those of `file`.

    `notes` are what the user should know about the names in `file`.
    """

    file: ParameterFile
    tasks: Mapping[str, TaskConfig]
    cameras: tuple[str, ...]
    overrides: Mapping[str, Mapping[str, Any]]
    processes: Sequence[Process]
    notes: Sequence[str] = ()

    @property
    def outputs(self) -> dict[str, list[str]]:
        """Full names of the main topics of each task: one, or of several masks one each."""
        return self._resolve(list_results)

    @property
    def companions(self) -> dict[str, list[str]]:
        """Full names of the topics that complete the results of each task."""
        return self._resolve(list_companions)

    def _resolve(self, topics: Callable[[TaskConfig], Iterable[str]]) -> dict[str, list[str]]:
        return {
            name: [
                posixpath.join(self.file.namespace, posixpath.dirname(name), topic)
                for topic in topics(task)
            ]
            for name, task in self.tasks.items()
        }

    @property
    def sections(self) -> dict[str, Any]:
        """`overrides` as the content of a parameter file that is read after `file`.

        rcl applies to a node all sections that match its name, in the order in which their names
        were first read: a value here would lose to any section behind that of the same name there.
        So none has a name that is in the user's file.
        """
        taken = {section.pattern for section in self.file.sections}
        content: dict[str, Any] = {}
        for node, values in self.overrides.items():
            name = f"{self.file.namespace}{node}"
            while name in taken:
                name = f"/**{name}"  # matches the same node
            content[name] = {"ros__parameters": dict(values)}
        return content

    @property
    def picture_sizes(self) -> list[tuple[int, int]]:
        """Width and height of the pictures of cameras and tasks, as far as they are configured."""
        cameras = [
            self.file.read(CameraConfig, name, self.overrides.get(name)) for name in self.cameras
        ]
        sizes = [(one.width, one.height) for one in cameras]
        tasks = [task for task in self.tasks.values() if not task.camera]
        return sizes + [(task.image_width, task.image_height) for task in tasks]

    def write_overrides(self) -> str:
        """Write `sections` into a file, which lives as long as this process; returns its path."""
        # Processes that start again read it again, so it cannot go earlier.
        with tempfile.NamedTemporaryFile(
            "w", prefix="jetson_dnn_rt_", suffix=".yaml", delete=False
        ) as file:
            atexit.register(partial(Path(file.name).unlink, missing_ok=True))
            yaml.safe_dump(self.sections, file)
        return file.name


def read_graph(arguments: Mapping[str, str], shipped: Path, above: str = "") -> Graph:
    """Read what to start: from the parameter file, and from the arguments that are given.

    Parameters
    ----------
    arguments : mapping
        Those of perception.launch.py; an empty one leaves it to the parameter file.
    shipped : path
        Folder of the package's parameter files.
    above : str
        Namespace of the launch file that includes this one.

    Raises
    ------
    ConfigurationError
        When the file is missing, or a value of it cannot be used.
    ValueError
        When an argument cannot be used.
    """
    path = find_params_file(arguments["params_file"], shipped)
    file = read_parameter_files([path], posixpath.join("/", above, arguments["namespace"]))
    _check_namespace(file)
    names = _read_names(file, arguments)
    notes = check_names(file, {PERCEPTION: names})
    own = file.read(PerceptionNodeConfig, PERCEPTION, names)
    detached = names.get("cameras") == [""]
    shared: dict[str, Any] = {"autostart": is_true(arguments["autostart"])}
    if arguments["use_sim_time"]:
        shared["use_sim_time"] = is_true(arguments["use_sim_time"])
    tasks, overrides = {}, {name: dict(shared) for name in (PERCEPTION, *own.cameras, *own.tasks)}
    overrides[PERCEPTION] |= names
    for name in own.cameras:
        overrides[name] |= _given(source=arguments["source"])
    for name in own.tasks:
        tasks[name] = task = read_task(file, name, camera=default_camera(name, own.cameras))
        overrides[name] |= _given(
            model=arguments[MODELS[task.kind]],
            image_transport=arguments["image_transport"],
            engine_cache=arguments["engine_cache"],
        )
        if detached:
            overrides[name]["camera"] = ""
    policy = _given(policy=arguments["policy"])
    if own.coordinator:
        overrides[COORDINATOR] = {**shared, **policy}
    trace_dir = find_trace_dir(arguments)
    given = _given(image_raw=arguments["input_image_topic"])
    if is_true(arguments["composed"]):
        overrides[PERCEPTION] |= _given(trace_dir=trace_dir)
        composed = Process("perception", remappings=tuple(given.items()))
        return Graph(file, tasks, own.cameras, overrides, [composed], notes)
    processes = [Process("camera", name) for name in own.cameras]
    for name, task in tasks.items():
        remappings = given or _find_image(name, "" if detached else task.camera, file, own.cameras)
        processes.append(_separate(name, tasks, remappings))
        # Elsewhere a camera is a topic.
        overrides[name]["camera"] = ""
        folder = trace_dir or file.read(ProcessConfig, name).trace_dir
        # A folder for each namespace: nodes have the same names in all of them.
        overrides[name] |= _given(trace_dir=folder and str(Path(folder, posixpath.dirname(name))))
    if own.coordinator and file.read(CoordinatorConfig, COORDINATOR, policy).policy != "static":
        processes.append(Process("coordinator", COORDINATOR))
        overrides[COORDINATOR]["tasks"] = list(tasks)
    graph = Graph(file, tasks, own.cameras, overrides, processes, notes)
    refuse_shared_topics(graph.outputs)
    return graph


def split(text: str) -> list[str]:
    """Names with commas between."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _check_namespace(file: ParameterFile) -> None:
    """Refuse a file for another namespace, which ROS would ignore without a word."""
    patterns = [
        one.pattern for one in file.sections if posixpath.basename(one.pattern) == PERCEPTION
    ]
    full_name = f"{file.namespace}{PERCEPTION}"
    if patterns and not any(matches(pattern, full_name) for pattern in patterns):
        raise ConfigurationError(
            f"parameter file {file.path} is for {', '.join(patterns)}, but the node here is "
            f"{full_name}; fix: another namespace:=, or /**/{PERCEPTION} in the file"
        )


def _given(**values: str) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}


def _read_names(file: ParameterFile, arguments: Mapping[str, str]) -> dict[str, Any]:
    """Parameters `tasks` and `cameras` as far as the arguments say them; [""] = no camera."""
    topic, cameras = arguments["input_image_topic"], arguments["cameras"]
    if topic and cameras not in ("", NONE):
        raise ValueError("cameras and input_image_topic are given: images come from one of them")
    names: dict[str, Any] = {}
    if arguments["tasks"]:
        names["tasks"] = split(arguments["tasks"])
        if NONE in names["tasks"]:
            raise ValueError("tasks: none is no task; fix: name those to start, or leave it out")
    if topic or cameras == NONE:
        names["cameras"] = [""]
    elif cameras:
        # Two cameras of one namespace would share their topics.
        names["cameras"] = [name if "/" in name else f"{name}/camera" for name in split(cameras)]
        spaces = [posixpath.dirname(name) for name in names["cameras"]]
        names["tasks"] = [
            placed
            for name in file.read(PerceptionNodeConfig, PERCEPTION, names).tasks
            for placed in ([name] if "/" in name else [f"{space}/{name}" for space in spaces])
        ]
    return names


def _find_image(
    task: str, camera: str, file: ParameterFile, cameras: Sequence[str]
) -> dict[str, str]:
    """Remapping of a task in a process of its own to the topic of its camera."""
    if camera and camera not in cameras:
        known = ", ".join(cameras) or "none"
        error = ConfigurationError(f"there is no camera {camera!r}, but {known}", "camera")
        raise ConfigurationError(file.explain(task, error))
    if not camera or posixpath.dirname(camera) == posixpath.dirname(task):
        return {}
    return {"image_raw": posixpath.join(file.namespace, posixpath.dirname(camera), "image_raw")}


def _separate(name: str, tasks: Iterable[str], remappings: Mapping[str, str]) -> Process:
    space, base = posixpath.split(name)
    # In one process, too, these belong to the first task of a namespace.
    own = name == next(other for other in tasks if posixpath.dirname(other) == space)
    second = {} if own else {topic: f"{base}/{topic}" for topic in ("label_info", "debug_image")}
    executable = EXECUTABLES[defaults_of(name)["kind"]]
    return Process(executable, name, tuple({**remappings, **second}.items()))
