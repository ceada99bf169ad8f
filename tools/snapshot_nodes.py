# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Snapshots of the parameters, topics and services of real nodes.

This module depends on the package only through the imports below.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from typing import Any

import rclpy
from rclpy.parameter import Parameter
from rclpy.signals import SignalHandlerOptions

from jetson_dnn_rt.nodes.cameras.camera import CameraNode
from jetson_dnn_rt.nodes.coordinator.coordinator_node import CoordinatorNode
from jetson_dnn_rt.nodes.perception import PerceptionNode
from jetson_dnn_rt.nodes.process.spinner import Spinner
from jetson_dnn_rt.nodes.tasks.task_node import ClassifierNode, DetectorNode, SegmenterNode

TIMEOUT_S = 60.0
OF_LATER_ROS = ("start_type_description_service", "/get_type_description")
"""A parameter and a service that rclpy adds from Jazzy on."""

WITH_FIGURES = "/debug/variants/"
"""Topics that are made, by a timer, when a variant has figures."""

STATES = (
    ("unconfigured", ""),
    ("inactive", "trigger_configure"),
    ("active", "trigger_activate"),
    ("inactive", "trigger_deactivate"),
    ("unconfigured", "trigger_cleanup"),
)
"""States in which interfaces are collected, with the transition that leads there."""

Lines = dict[str, object]

_CAMERA = {"source": "synthetic:64x64", "rate": 50.0}
_PROCESS = {"realtime.gc_freeze": False, "realtime.mallopt": False}
_QUICK = {"warmup_runs": 1, "deadline_ms": 500.0, "engine_cache": "none"}
_DETECTOR = {"model": "null:0.1", **_QUICK}
_SEGMENTER = {"model": "null:0.1,segmentation", **_QUICK}

CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "camera": (CameraNode, {**_CAMERA, **_PROCESS}),
    "camera with deadline": (
        CameraNode,
        {
            **_CAMERA,
            **_PROCESS,
            "output_qos": "SENSOR_DATA",
            "output_qos_depth": 7,
            "output_qos_deadline_ms": 200.0,
        },
    ),
    "detector": (DetectorNode, {**_DETECTOR, **_PROCESS}),
    "detector compressed": (
        DetectorNode,
        {
            **_DETECTOR,
            **_PROCESS,
            "image_transport": "compressed",
            "input_qos": "DEFAULT",
            "input_qos_depth": 3,
            "input_qos_deadline_ms": 250.0,
            "output_qos": "SENSOR_DATA",
            "output_qos_depth": 5,
        },
    ),
    "segmenter": (SegmenterNode, {**_SEGMENTER, **_PROCESS}),
    "classifier": (ClassifierNode, {"model": "null:0.1,classification", **_QUICK, **_PROCESS}),
    "coordinator": (CoordinatorNode, {"tasks": ["detector", "rear/segmenter"]}),
}
"""Nodes that run alone, with their parameters."""

COMPOSED: dict[str, dict[str, dict[str, Any]]] = {
    "perception": {
        "perception": dict(_PROCESS),
        "camera": _CAMERA,
        "detector": _DETECTOR,
        "segmenter": _SEGMENTER,
    },
    "perception on topics": {
        "perception": {
            **_PROCESS,
            "cameras": [""],
            "tasks": ["detector", "rear/detector", "rear/segmenter"],
            "workers": 2,
        },
        "detector": {**_DETECTOR, "image_transport": "compressed"},
        "rear/detector": _DETECTOR,
        "rear/segmenter": _SEGMENTER,
        "coordinator": {"policy": "neuos_balanced"},
    },
}
"""Perception nodes, with their parameters and those of their children."""


class Graph:
    """Context with a spinning thread and one node with its children."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self.context = rclpy.Context()
        rclpy.init(args=[], context=self.context, signal_handler_options=SignalHandlerOptions.NO)
        self.spinner = Spinner(self.context)
        self.spinner.start()

        def begin() -> Any:
            node = make(context=self.context)
            self.spinner.add(node)
            return node

        self.node = self.spinner.call(begin, TIMEOUT_S)

    @property
    def nodes(self) -> list[Any]:
        """The node and its children."""
        return [self.node, *getattr(self.node, "children", ())]

    def close(self) -> None:
        """Close the node and the context."""
        self.node.trigger_shutdown()
        self.spinner.call(self.node.destroy_node, TIMEOUT_S)
        self.spinner.stop(TIMEOUT_S)
        self.spinner.executor.shutdown()
        self.context.try_shutdown()
        del self.node, self.spinner
        gc.collect()


def _open(name: str) -> contextlib.closing[Graph]:
    """Open a node of `CASES` or `COMPOSED`."""

    def make(context: Any) -> Any:
        if name in COMPOSED:
            return PerceptionNode(overrides=COMPOSED[name], context=context)
        kind, values = CASES[name]
        given = [Parameter(key, value=value) for key, value in values.items()]
        return kind(parameter_overrides=given, context=context)

    return contextlib.closing(Graph(make))


# -- parameters ---------------------------------------------------------------------------------


def collect_parameters() -> Lines:
    """Collect the parameters of nodes by default, as ``ros2 param dump`` and ``describe`` do."""
    lines: Lines = {}
    for kind in (
        *(CameraNode, DetectorNode, SegmenterNode, ClassifierNode),
        *(CoordinatorNode, PerceptionNode),
    ):
        way = "composed" if kind is PerceptionNode else "alone"
        with contextlib.closing(Graph(kind)) as graph:
            for node in graph.nodes:
                _describe(lines, f"{node.get_fully_qualified_name()} {way}", node)
    return lines


def _describe(lines: Lines, title: str, node: Any) -> None:
    names = sorted(node.list_parameters([], 0).names)
    for name in names:
        if name in OF_LATER_ROS:
            continue
        held, told = node.get_parameter(name), node.describe_parameter(name)
        value = held.value
        plain = value is None or isinstance(value, (bool, int, float, str))
        entry: dict[str, object] = {
            "default": value if plain else list(value),
            "type": held.type_.name,
            "description": told.description,
        }
        if told.additional_constraints:
            entry["constraints"] = told.additional_constraints
        for one in (*told.integer_range, *told.floating_point_range):
            entry["range"] = [one.from_value, one.to_value, one.step]
        for flag in ("read_only", "dynamic_typing"):
            if getattr(told, flag):
                entry[flag] = True
        lines[f"{title}: {name}"] = entry


# -- topics and services ----------------------------------------------------------------------


def collect_interfaces() -> Lines:
    """Collect topics with types and QoS, and services, of every node, and changes by state."""
    lines: Lines = {}
    for name in (*CASES, *COMPOSED):
        with _open(name) as graph:
            before: Lines = {}
            for place, (state, transition) in enumerate(STATES):
                if transition:
                    getattr(graph.node, transition)()
                if graph.node.state_name != state:
                    raise RuntimeError(f"{name} is not {state}: {graph.node.fault}")
                now = _list(graph)
                title = f"{name}, {place} {state}"
                lines |= {f"{title}: {k}": v for k, v in now.items() if before.get(k) != v}
                lines |= {f"{title}: {k}": "is gone" for k in before if k not in now}
                before = now
    return lines


def _list(graph: Graph) -> Lines:
    """List what the nodes have created themselves; the graph learns of changes only later."""
    lines: Lines = {}
    for node in graph.nodes:
        found: Lines = {}
        for word, ends in (("publishes", node.publishers), ("subscribes", node.subscriptions)):
            for end in list(ends):
                if WITH_FIGURES in end.topic_name:
                    continue
                shown = f"{_type(end.msg_type)}, {_qos(end.qos_profile)}"
                found[f"{word} {end.topic_name}"] = shown
        for word, ends in (("serves", node.services), ("calls", node.clients)):
            for end in list(ends):
                if not end.service_name.endswith(OF_LATER_ROS):
                    found[f"{word} {end.service_name}"] = _type(end.srv_type)
        full = node.get_fully_qualified_name()
        lines |= {f"{full} {key}": value for key, value in found.items()}
    return lines


def _type(kind: Any) -> str:
    """Name a type ``std_msgs/msg/Float64``; its module is ``std_msgs.msg._float64``."""
    package, folder, _ = kind.__module__.split(".", 2)
    return f"{package}/{folder}/{kind.__name__}"


def _qos(profile: Any) -> str:
    words = [f"{profile.history.name} {profile.depth}", profile.reliability.name]
    words.append(profile.durability.name)
    for name in ("deadline", "lifespan"):
        limit_ns = _nanoseconds(getattr(profile, name))
        words += [] if limit_ns is None else [f"{name} {limit_ns} ns"]
    if profile.liveliness.name not in ("SYSTEM_DEFAULT", "AUTOMATIC"):
        words.append(profile.liveliness.name)
    return ", ".join(words)


def _nanoseconds(duration: Any) -> int | None:
    """Convert to nanoseconds; None for no limit, which middlewares write in different ways."""
    value = int(duration.nanoseconds)
    return None if value <= 0 or value >= 2**62 else value
