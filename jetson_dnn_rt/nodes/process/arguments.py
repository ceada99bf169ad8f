# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Command line of an executable: its help, and refusals of what ROS would silently ignore.

Without rclpy, so that `--help` is quick and starts nothing.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from jetson_dnn_rt.config.checked_names import SHARED_PARAMETERS, declarations_of, list_parameters
from jetson_dnn_rt.config.declaration import Item, describe
from jetson_dnn_rt.config.nodes import COORDINATOR, PERCEPTION
from jetson_dnn_rt.config.process import CommonConfig
from jetson_dnn_rt.config.suggestions import RESEMBLES, find_similar
from jetson_dnn_rt.config.task import defaults_of
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.printable import make_printable

HELP_FLAGS = ("-h", "--help")

_BEGIN, _END = "--ros-args", "--"

_ASSIGNED = re.compile(r"(?P<name>[^:=\s]+):?=(?P<value>.*)", re.DOTALL)
"""An argument such as ``model:=x`` or ``--model=x``."""

_OF_NODE = re.compile(r"([A-Za-z_]\w*):(?!=).*:=")
"""A rule for one node: ``detector:model:=x``, ``detector:image_raw:=/image``."""

_WIDTH = 99


@dataclass(frozen=True)
class Executable:
    """What an executable runs, for its help; `kind` is that of `declarations_of`."""

    name: str
    kind: str
    what: str
    example: str  # behind --ros-args


EXECUTABLES = {
    one.name: one
    for one in (
        Executable(
            "camera", "camera", "One camera: publishes image_raw.", "-p source:=device:/dev/video0"
        ),
        *(
            Executable(
                name,
                "task",
                f"One {kind} task with an executor of its own: takes the images of image_raw.",
                "-p model:=onnx:/models/network.onnx -r image_raw:=/camera/image_raw",
            )
            for name, kind in (
                ("detector", "detection"),
                ("segmenter", "segmentation"),
                ("classifier", "classification"),
            )
        ),
        Executable(
            PERCEPTION,
            PERCEPTION,
            "All tasks and cameras in one process.",
            "--params-file perception.param.yaml -p detector:model:=onnx:/models/network.onnx",
        ),
        Executable(
            COORDINATOR,
            COORDINATOR,
            "The coordinator of tasks in other processes.",
            "-p policy:=horizon -p 'tasks:=[detector, segmenter]'",
        ),
    )
}


def find_params_files(arguments: Sequence[str]) -> list[Path]:
    """Parameter files of a command line, in its order."""
    return [Path(value) for option, value in pairwise(arguments) if option == "--params-file"]


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Whether a command line is a request for help."""
    return any(word in HELP_FLAGS for word in arguments)


def format_help(executable: Executable) -> str:
    """Help of an executable: how it is started, and its parameters with their defaults."""
    start = f"ros2 run jetson_dnn_rt {executable.name}"
    lines = [
        f"usage: {start} [--ros-args [-p NAME:=VALUE] [--params-file FILE] [-r FROM:=TO]",
        "       [-r __ns:=/NAMESPACE] [-r __node:=NAME] [--log-level LEVEL] ...]",
        "",
        executable.what,
        "Without autostart it waits, unconfigured, for a lifecycle manager.",
        "",
        "example:",
        f"  {start} --ros-args -p autostart:=true {executable.example}",
        "",
        f"parameters of the node {executable.name}, with their defaults:",
    ]
    defaults: dict[str, Any] = {}
    if executable.kind == "task":
        defaults = dict(defaults_of(executable.name))
    for declaration in (*declarations_of(executable.kind), CommonConfig):
        for item in describe(declaration):
            lines += _describe(item, defaults.get(item.field, item.default))
    lines += ["", "docs/parameters.md of the package says more."]
    return "\n".join(lines)


def _describe(item: Item, default: Any) -> Iterator[str]:
    text = "true" if default is True else "false" if default is False else default
    if isinstance(default, tuple):
        text = f"[{', '.join(map(str, default))}]"
    yield f"  {item.name}: {text if text != '' else repr('')}"
    more = [item.description]
    if item.choices:
        more.append(f"one of {item.listed_choices}")
    elif item.limits is not None:
        more.append("{:g} to {:g}".format(*item.limits))
    yield from textwrap.wrap(
        "; ".join(more), _WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6
    )


def refuse_non_ros_arguments(executable: Executable, arguments: Sequence[str]) -> None:
    """Raise ConfigurationError for an argument outside ``--ros-args``, which ROS would ignore."""
    inside = False
    known = {*list_parameters(executable.kind), *SHARED_PARAMETERS}
    for word in arguments:
        if word in (_BEGIN, _END):
            inside = word == _BEGIN
        elif not inside:
            raise ConfigurationError(_explain(executable.name, word, known))


def _explain(executable: str, word: str, known: Collection[str]) -> str:
    shown = make_printable(word)
    found = _ASSIGNED.fullmatch(word.lstrip("-"))
    if found is None:
        return (
            f"{executable}: there is no argument {shown}; fix: parameters are given as --ros-args "
            "-p NAME:=VALUE; --help lists them"
        )
    name, value = (make_printable(found[group]) for group in ("name", "value"))
    if name not in known and (name.startswith(("__", "/")) or value.startswith("/")):
        return f"{executable}: ROS would ignore {shown}; fix: --ros-args -r {name}:={value}"
    if name in known or not (meant := find_similar(name, known)):
        return f"{executable}: ROS would ignore {shown}; fix: --ros-args -p {name}:={value}"
    return f"{executable}: ROS would ignore {shown}; did you mean --ros-args -p {meant}:={value}?"


def refuse_rules_of_other_nodes(arguments: Sequence[str], nodes: Collection[str]) -> None:
    """Raise ConfigurationError for a parameter or remapping of a node that is not in the process.

    For instance ``-p detektor:model:=x``; `nodes` are the names of those that are. A remapping
    whose node resembles none of them passes, as a launch file gives each process those of all.
    """
    for option, rule in pairwise(arguments):
        is_parameter = option in ("-p", "--param")
        if not is_parameter and option not in ("-r", "--remap"):
            continue
        found = _OF_NODE.match(rule)
        if found is None or found[1] in nodes:
            continue
        meant = find_similar(found[1], nodes, 0.6 if is_parameter else RESEMBLES)
        if meant or is_parameter:
            hint = f"; did you mean {meant}?" if meant else f", but {', '.join(nodes)}"
            rule = make_printable(rule)
            raise ConfigurationError(f"{option} {rule}: there is no node {found[1]} here{hint}")
