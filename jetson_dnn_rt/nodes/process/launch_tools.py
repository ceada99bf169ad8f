"""Helpers of the launch files, without rclpy: a launch only starts nodes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from ament_index_python.packages import PackageNotFoundError, get_package_prefix

_WORDS = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}


def is_true(text: str) -> bool:
    """Read a yes-or-no launch argument, in any case; `ValueError` for anything else."""
    try:
        return _WORDS[text.lower()]
    except KeyError:
        raise ValueError(f"true or false expected, not {text!r}") from None


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
    try:
        record = is_true(arguments["record"])
    except ValueError as error:
        raise ValueError(f"record: {error}; a bag is recorded with record_bag:=NAME") from error
    given = arguments["trace_dir"] or (f"{home}/jetson_dnn_rt" if record else "")
    return str(Path(given).expanduser()) if given else ""


def make_overrides(
    arguments: Mapping[str, str], tasks: Sequence[str], with_camera: bool
) -> dict[str, Any]:
    """Content of a parameter file with what the arguments of perception.launch.py set.

    It overrides the user's file, which is read before it. With several files rcl gives a node
    the sections that match its name in the order in which their names were first read: a section
    `/**` here would lose to `/**/detector` there. So each node has its own sections, under
    both names that files use for it.
    """
    task = {name: arguments[name] for name in ("image_transport", "engine_cache")}
    nodes: dict[str, dict[str, Any]] = {
        "perception": {"tasks": list(tasks), "cameras": ["camera"] if with_camera else [""]},
        "camera": {"source": arguments["source"]},
        "coordinator": {"policy": arguments["policy"]},
        "detector": {**task, "model": arguments["model"]},
        "segmenter": {**task, "model": arguments["segmenter_model"]},
    }
    owners = ["perception"]  # of an executor, whose jobs are traced together
    if not is_true(arguments["composed"]):
        nodes["coordinator"]["tasks"] = list(tasks)
        owners = list(tasks)
    for owner in owners:
        nodes[owner]["trace_dir"] = find_trace_dir(arguments)
    shared = {name: is_true(arguments[name]) for name in ("use_sim_time", "autostart")}
    space = "/" + arguments["namespace"].strip("/")
    content: dict[str, Any] = {"/**": {"ros__parameters": deepcopy(shared)}}
    for node, values in nodes.items():
        given = {**shared, **{name: value for name, value in values.items() if value != ""}}
        for name in (f"/**/{node}", f"{space.rstrip('/')}/{node}"):
            # Copies: yaml would write the second as an alias, which rcl refuses.
            content[name] = {"ros__parameters": deepcopy(given)}
    return content
