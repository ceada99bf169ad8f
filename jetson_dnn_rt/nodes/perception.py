# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""All tasks and cameras in one process: one executor, one thread for ROS, no image over DDS."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.node import Node

from jetson_dnn_rt.config.checked_names import check_names, describe_unknown, is_shared
from jetson_dnn_rt.config.nodes import COORDINATOR, PERCEPTION, PerceptionNodeConfig
from jetson_dnn_rt.config.parameter_file import ParameterFile, read_parameter_files
from jetson_dnn_rt.config.perception import default_camera, refuse_shared_topics
from jetson_dnn_rt.config.result_topics import list_results
from jetson_dnn_rt.config.suggestions import suggest
from jetson_dnn_rt.config.task import AUTO, follows_load
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.nodes.cameras.camera import CameraNode
from jetson_dnn_rt.nodes.coordinator.coordinator_node import CoordinatorNode
from jetson_dnn_rt.nodes.process.arguments import find_params_files, refuse_rules_of_other_nodes
from jetson_dnn_rt.nodes.process.lifecycle import (
    SUCCESS,
    LedNodeError,
    ManagedNode,
    overrides_to_parameters,
)
from jetson_dnn_rt.nodes.reports.diagnostics import (
    ERROR,
    OK,
    WARN,
    DiagnosticsPublisher,
    make_status,
)
from jetson_dnn_rt.nodes.tasks.session_bridge import SessionBridge
from jetson_dnn_rt.nodes.tasks.task_node import TASK_NODES, DetectorNode, TaskNode
from jetson_dnn_rt.nodes.tasks.task_status import session_values
from jetson_dnn_rt.runtime.preloading import preload
from jetson_dnn_rt.tasks import JobRecord, Work

BROKEN = TransitionCallbackReturn.ERROR
"""Of a transition with an unforeseen error."""


class PerceptionNode(ManagedNode):
    """Owns the executor and the image subscriptions, and leads its tasks and cameras.

    Every task and camera is a lifecycle node of its own, with the names it has when it runs
    alone; this node's transitions are handed down to them. `arguments` is a command line whose
    parameters and remappings hold for the children too; `overrides` are parameters of this node
    and of children by their names, above everything else. `frame_limit` is that of every camera.
    `observer` sees every job that ends, on the delivery thread; `on_camera_ended` is called on a
    camera's thread when its stream ends.
    """

    def __init__(
        self,
        name: str = "perception",
        *,
        arguments: Sequence[str] = (),
        overrides: Mapping[str, Mapping[str, Any]] | None = None,
        frame_limit: int | None = None,
        observer: Callable[[JobRecord, Work], None] | None = None,
        on_camera_ended: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> None:
        self.on_tasks_ready: Callable[[], None] = lambda: None
        # The context destroys the node of a constructor that raised, too.
        self.cameras: dict[str, CameraNode] = {}
        self.tasks: dict[str, TaskNode] = {}
        self.coordinator: CoordinatorNode | None = None
        self.parameter_file: ParameterFile | None = None  # what it was started with
        given = {name: dict(values) for name, values in (overrides or {}).items()}
        own = given.pop(name, {})
        super().__init__(name, parameter_overrides=overrides_to_parameters(own), **options)
        self._declared = self.declare(PerceptionNodeConfig)
        _check_names(name, self, own)
        values = self._declared.value
        coordinators = [COORDINATOR] if values.coordinator else []
        unknown = sorted(set(given) - {*values.tasks, *values.cameras, *coordinators})
        if unknown:
            known = (*values.tasks, *values.cameras, *coordinators)
            raise ConfigurationError(
                f"there is no {', '.join(unknown)}: tasks are {', '.join(values.tasks)}, cameras "
                f"{', '.join(values.cameras) or 'none'}{suggest(unknown[0], known)}"
            )
        arguments = filter_arguments(arguments)
        # To reconfigure a child would be to reconfigure the whole.
        inherited = {"lock_configuration": True} if self._locked else {}
        limited = {} if frame_limit is None else {"frame_limit": frame_limit}

        def options_of(child: str) -> dict[str, Any]:
            above = {**given.get(child, {}), **inherited}
            if child in values.cameras:
                above |= limited
            space = posixpath.join(self.get_namespace(), posixpath.dirname(child))
            return {
                "turn": self.turn,
                "namespace": space.rstrip("/") or "/",
                "context": options.get("context"),
                "cli_args": arguments,
                "use_global_arguments": False,
                "parameter_overrides": overrides_to_parameters(above),
            }

        self.cameras = {
            camera: CameraNode(
                posixpath.basename(camera),
                bridge=lambda: self.bridge,
                on_ended=on_camera_ended,
                **options_of(camera),
            )
            for camera in values.cameras
        }
        self.bridge = SessionBridge(
            self, self.cameras, lambda: self.coordinator and self.coordinator.clocks
        )
        for task in values.tasks:
            kind = TASK_NODES.get(posixpath.basename(task), DetectorNode)
            spaces = {posixpath.dirname(other) for other in self.tasks}
            self.tasks[task] = kind(
                posixpath.basename(task),
                task=task,
                bridge=self.bridge,
                defaults={"camera": default_camera(task, values.cameras)},
                precedence=len(self.tasks),
                primary=posixpath.dirname(task) not in spaces,
                observer=observer,
                **options_of(task),
            )
        if values.coordinator:
            self.coordinator = CoordinatorNode(
                COORDINATOR,
                bridge=self.bridge,
                tasks=lambda: self.tasks,
                **options_of(COORDINATOR),
            )
        for child, node in self.named_children.items():
            _check_names(child, node, given.get(child, {}))
        for node in (self, *self.children):
            node.refuse_misspelt()
        self._diagnostics = DiagnosticsPublisher(
            self, {"perception_status": self._make_status}, process=True
        )

    def check_files(self, arguments: Sequence[str]) -> None:
        """Check the names in a command line and its parameter files, see `check_names`.

        ConfigurationError: one is misspelt. rclpy itself drops what matches no node.
        """
        nodes = [self.get_name(), *(node.get_name() for node in self.children)]
        refuse_rules_of_other_nodes(arguments, nodes)
        notes: list[str] = []
        if files := find_params_files(arguments):
            self.parameter_file = file = read_parameter_files(files, self.get_namespace())
            in_file = file.read(PerceptionNodeConfig, PERCEPTION)
            # What `-p tasks:=[...]` leaves out is no mistake in the file.
            given: dict[str, Any] = {}
            for name in ("tasks", "cameras", "coordinator"):
                value = getattr(self._declared.value, name)
                if value != getattr(in_file, name):
                    given[name] = value if isinstance(value, bool) else list(value) or [""]
            notes = check_names(file, {PERCEPTION: given} if given else None)
        for note in notes:
            self.get_logger().warning(note)

    @property
    def named_children(self) -> dict[str, ManagedNode]:
        """Cameras, the coordinator and tasks: in the order in which they stop."""
        return {**self.cameras, **self._coordinators, **self.tasks}

    @property
    def children(self) -> tuple[ManagedNode, ...]:
        """Cameras, the coordinator and tasks, without their names."""
        return tuple(self.named_children.values())

    @property
    def _coordinators(self) -> dict[str, ManagedNode]:
        return {} if self.coordinator is None else {COORDINATOR: self.coordinator}

    def destroy_node(self) -> None:
        """Destroy the children, then this node."""
        for child in self.children:
            child.destroy_node()
        super().destroy_node()

    # -- lifecycle -----------------------------------------------------------------------------

    def configure(self) -> None:
        """Open the cameras, then load the tasks: they are measured on frames of that size."""
        self._check_topics()
        values = self._declared.value
        shares = follows_load(values.threads, (task.parameters for task in self.tasks.values()))
        preload([task.parameters for task in self.tasks.values()])
        self.bridge.start(values, AUTO if shares else values.threads)
        self._lead("configure", "camera ", self.cameras)
        if (times := self.bridge.session.start_times) is not None:
            times.end("cameras")
        if shares:
            self.bridge.session.share_cores(len(self.tasks))
        self._lead("configure", "task ", self.tasks)
        self.bridge.session.prepare(
            {task.task: task.period_ns for task in self.tasks.values()},
            {task.task: task.deadline_ns for task in self.tasks.values()},
        )
        self._lead("configure", "", self._coordinators)

    def _lead(self, verb: str, word: str, nodes: Mapping[str, ManagedNode]) -> None:
        """Configure or activate the children that are due; `word` names their kind in an error."""
        before = {"configure": "unconfigured", "activate": "inactive"}[verb]
        for name, node in nodes.items():
            if node.state_name == "finalized":
                reason = node.fault or "it was shut down; fix: restart the process"
                raise ConfigurationError(f"{word}{name} is finalized: {reason}")
            done = SUCCESS
            if node.state_name == before:
                with node.silenced():  # the error below has its fault
                    done = getattr(node, f"trigger_{verb}")()
            if done != SUCCESS:
                kind = LedNodeError if done == BROKEN else ConfigurationError
                raise kind(f"{self._locate(name, node)}{word}{name}: {node.fault}")

    def _locate(self, name: str, node: ManagedNode) -> str:
        """File and line of the value to blame for a fault; empty where it is not the file's."""
        parameter, file = node.fault_parameter, self.parameter_file
        if file is None or not node.has_parameter(parameter):
            return ""
        value = node.get_parameter(parameter).value
        # rclpy gives lists of numbers as array.array.
        value = value.tolist() if hasattr(value, "tolist") else value
        # An option, or `ros2 param set`, may have replaced it.
        place = file.locate(name, parameter) if file.of_task(name).get(parameter) == value else ""
        return f"{place}: " if place else ""

    def activate(self) -> None:
        """Activate the tasks and the coordinator, judge schedulability, then start the frames."""
        self.bridge.cascading = True
        try:
            self._lead("activate", "task ", self.tasks)
            self._lead("activate", "", self._coordinators)
            self.bridge.commit()
            self.on_tasks_ready()
            # Not before: freezing the garbage takes the time of some frames, which would be lost.
            self.bridge.start_topics()
        finally:
            self.bridge.cascading = False
        self._lead("activate", "camera ", self.cameras)

    def deactivate(self) -> None:
        """Stop the frames, then the tasks."""
        self._take_down("deactivate", "active")

    def cleanup(self) -> None:
        """Clean up the children, then stop the executor."""
        self.deactivate()
        self._take_down("cleanup", "inactive")
        self.bridge.stop()

    def _take_down(self, verb: str, state: str) -> None:
        """Lead the children in a state out of it, all of them whatever becomes of one."""
        due = [child for child in self.children if child.state_name == state]
        broken = [child for child in due if getattr(child, f"trigger_{verb}")() == BROKEN]
        if broken:
            raise LedNodeError("; ".join(f"{node.get_name()}: {node.fault}" for node in broken))

    def end(self) -> None:
        """Stop cameras, executor and tasks at once."""
        for first in (*self.cameras.values(), *self._coordinators.values()):
            first.trigger_shutdown()
        self.bridge.stop(timeout_s=0.2, quickly=True)
        for task in self.tasks.values():
            task.trigger_shutdown()

    def restore_clocks(self) -> None:
        """Restore the clocks, whatever the ROS thread does."""
        if self.coordinator is not None:
            self.coordinator.restore_clocks()

    # -- checks --------------------------------------------------------------------------------

    def _check_topics(self) -> None:
        """Refuse two tasks on one output topic, which would mix their results."""
        refuse_shared_topics(
            {
                name: [node.resolve_topic_name(topic) for topic in list_results(node.parameters)]
                for name, node in self.tasks.items()
            }
        )

    def _make_status(self) -> Any:
        level, message = OK, self.state_name
        if self.fault:
            level, message = ERROR, self.fault
        nodes = {**self.tasks, **self.cameras, **self._coordinators}
        values: dict[str, object] = {name: node.state_name for name, node in nodes.items()}
        values["image_subscriptions"] = (
            ", ".join(key.topic for key in self.bridge.inputs) or "none"
        )
        values |= session_values(self.bridge.session)
        lack, _ = self.bridge.session.describe_trace()
        if level == OK and lack:
            level, message = WARN, lack
        return make_status(level, message, values)


def _check_names(name: str, node: Node, parameters: Mapping[str, Any]) -> None:
    """Refuse a misspelt parameter: rclpy itself silently drops undeclared ones."""
    for parameter_name in parameters:
        if not is_shared(parameter_name) and not node.has_parameter(parameter_name):
            known = node.get_parameters_by_prefix("")
            raise ConfigurationError(f"{name}: {describe_unknown(parameter_name, known)}")


def filter_arguments(arguments: Sequence[str]) -> list[str]:
    """Arguments that hold for children: without the rules for this node's name and namespace.

    ``ros2 launch`` gives them to the process as ``-r __node:=NAME -r __ns:=NAMESPACE``, which
    would rename every node in it.
    """
    names = [
        index
        for index, (option, rule) in enumerate(pairwise(arguments))
        if option in ("-r", "--remap") and rule.startswith(("__node:=", "__name:=", "__ns:="))
    ]
    return [a for i, a in enumerate(arguments) if i not in names and i - 1 not in names]
