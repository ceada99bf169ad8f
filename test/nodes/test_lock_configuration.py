# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`lock_configuration`: what other processes can still change of a node."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rclpy.parameter import Parameter
from task_bench import make_parameters

from jetson_dnn_rt.config.declaration import describe
from jetson_dnn_rt.config.nodes import CoordinatorConfig, CoordinatorProcessConfig
from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.nodes.cameras.camera import CameraConfig, CameraNode, CameraProcessConfig
from jetson_dnn_rt.nodes.coordinator.coordinator_node import CoordinatorNode
from jetson_dnn_rt.nodes.perception import PerceptionNode, PerceptionNodeConfig
from jetson_dnn_rt.nodes.process.graph import run_graph
from jetson_dnn_rt.nodes.tasks.task_node import DetectorNode, SegmenterNode
from jetson_dnn_rt.safety.faults import FAULTS

LOCK = {"lock_configuration": True}
NULL = {"model": "null:1", "warmup_runs": 1, "deadline_ms": 500.0}

NODES: dict[str, tuple[Any, dict[str, Any], tuple[Any, ...]]] = {
    "detector": (DetectorNode, NULL, (TaskConfig, ProcessConfig)),
    "segmenter": (SegmenterNode, {**NULL, "kind": "detection"}, (TaskConfig, ProcessConfig)),
    "camera": (CameraNode, {"source": "synthetic:64x64"}, (CameraConfig, CameraProcessConfig)),
    "coordinator": (
        CoordinatorNode,
        {"tasks": ["detector"]},
        (CoordinatorConfig, CoordinatorProcessConfig),
    ),
    "perception": (
        PerceptionNode,
        {"tasks": [""], "cameras": [""], "coordinator": False},
        (PerceptionNodeConfig,),
    ),
}

RESOURCES = {
    "source", "camera_info_url", "model", "weights", "labels", "variants", "engine_cache",
    "build_frames", "amp_lists", "tvm_rpc", "profile", "camera", "trace_dir", "tables",
    "allow_clock_writes", "threads", "workers", "max_inflight", "realtime.cpu_affinity",
    "tasks", "cameras",
}  # fmt: skip
"""What names a file, folder, device, pipeline or host, or takes the machine's cores."""


def make(ros, name, **values):
    kind, given, _ = NODES[name]
    if name == "perception":
        return ros.make(kind, overrides={"perception": {**given, **LOCK, **values}})
    return ros.make(kind, parameter_overrides=make_parameters({**given, **LOCK, **values}))


def other_value(item, value):
    """A value that the parameter could take, and has not."""
    if item.choices:
        return next(choice for choice in item.choices if choice != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        assert item.limits is not None
        return type(value)(item.limits[0] if value != item.limits[0] else item.limits[1])
    if isinstance(value, str):
        return "gstreamer:filesrc location=/etc/passwd ! fakesink"
    element = {str: "/etc/passwd", int: 1, float: 0.5}[type(next(iter(value)))]
    return [element] * 3


def change_state(ros, name, transition):
    request = ChangeState.Request(transition=Transition(id=transition))
    return bool(ros.request(ChangeState, f"{name}/change_state", request).success)


def test_everything_that_names_a_resource_is_locked():
    """EDGES 22: no parameter that names a file, device, pipeline or thread count is dynamic."""
    items = {i.name: i for _, _, kinds in NODES.values() for kind in kinds for i in describe(kind)}
    assert set(items) >= RESOURCES
    assert not [name for name in RESOURCES if items[name].dynamic]


@pytest.mark.parametrize("name", NODES)
def test_what_is_not_dynamic_keeps_its_value(ros, name):
    """EDGES 22: with lock_configuration no source, model, path or thread count can be changed."""
    node = make(ros, name)
    assert node.is_unconfigured  # where everything could be changed otherwise

    def try_all():
        items = [item for kind in NODES[name][2] for item in describe(kind)]
        for item in items:
            if item.dynamic or item.read_only:
                continue
            before = node.get_parameter(item.name)
            other = Parameter(item.name, value=other_value(item, before.value))
            (result,) = node.set_parameters([other])
            assert not result.successful, item.name
            assert f"{item.name} is locked: lock_configuration is set" in result.reason
            assert node.get_parameter(item.name).value == before.value
            # What is there already may be set again, as `ros2 param load` does.
            assert node.set_parameters([before])[0].successful

    ros.call(try_all)
    assert "use_sim_time is locked" in ros.set(node, use_sim_time=True).reason
    assert not ros.set(node, lock_configuration=False).successful


def test_what_is_dynamic_can_be_changed(ros):
    """EDGES 22: thresholds, deadline, variant and policy stay free, by the services of ROS."""
    detector, coordinator = make(ros, "detector"), make(ros, "coordinator")
    assert detector.autostart(), detector.fault
    assert coordinator.autostart(), coordinator.fault
    for values in (
        {"deadline_ms": 40},
        {"confidence_threshold": 0.5},
        {"late_results": "publish"},
    ):
        assert ros.set_by_service("detector", **values).successful
    variant = detector.loaded.variant_names[0]
    assert ros.set_by_service("detector", variant=variant).successful
    assert detector.parameters.deadline_ms == 40.0
    assert ros.set_by_service("coordinator", enable=False, policy="max_n").successful
    assert not ros.set_by_service("detector", model="onnx:/etc/passwd").successful


@pytest.mark.parametrize("name", NODES)
def test_a_node_is_configured_once(ros, name):
    """EDGES 22: nobody can clean a locked node up; it is deactivated and activated as before."""
    node = make(ros, name)
    assert change_state(ros, name, Transition.TRANSITION_CONFIGURE), node.fault
    assert change_state(ros, name, Transition.TRANSITION_ACTIVATE), node.fault
    assert change_state(ros, name, Transition.TRANSITION_DEACTIVATE)
    assert not change_state(ros, name, Transition.TRANSITION_CLEANUP)
    assert node.state_name == "inactive"
    assert node.fault == ""  # of the one who asked, not of the node
    (fault,) = FAULTS.snapshot()
    assert f"{name}: life cycle" in fault.kind
    assert "lock_configuration is set" in fault.text
    assert change_state(ros, name, Transition.TRANSITION_ACTIVATE)
    assert node.state_name == "active"


def test_a_configuration_that_failed_is_tried_again(ros, tmp_path):
    """EDGES 22: the lock holds from the first configuration that worked."""
    source = tmp_path / "frames"
    node = make(ros, "camera", source=f"images:{source}")
    assert not change_state(ros, "camera", Transition.TRANSITION_CONFIGURE)
    source.mkdir()
    import cv2
    import numpy as np

    cv2.imwrite(str(source / "1.png"), np.zeros((48, 64, 3), np.uint8))
    assert change_state(ros, "camera", Transition.TRANSITION_CONFIGURE), node.fault
    assert not change_state(ros, "camera", Transition.TRANSITION_CLEANUP)


def test_the_lock_of_a_process_is_that_of_all_its_nodes(ros):
    """EDGES 22: a task or camera of a locked process cannot be changed by its own services."""
    node = ros.make(
        PerceptionNode,
        overrides={
            "perception": {"tasks": ["detector"], **LOCK},
            "camera": {"source": "synthetic:64x64"},
            "detector": NULL,
        },
    )
    assert change_state(ros, "perception", Transition.TRANSITION_CONFIGURE), node.fault
    assert not change_state(ros, "camera", Transition.TRANSITION_CLEANUP)
    assert not change_state(ros, "perception", Transition.TRANSITION_CLEANUP)
    for child in node.children:
        assert child.state_name == "inactive"
        assert not ros.set(child, lock_configuration=False).successful
    assert not ros.set_by_service("camera", source="gstreamer:fakesrc").successful
    # The process itself may begin anew.
    assert node.trigger_cleanup()
    assert node.is_unconfigured
    assert node.autostart(), node.fault


def test_a_locked_session_runs_so_many_frames():
    """EDGES 22: `jetson-dnn-rt run --frames` needs no change of a parameter that is locked."""
    report = run_graph(
        None,
        {
            "perception": {"tasks": ["detector"], **LOCK},
            "camera": {"source": "synthetic:64x64", "rate": 50.0},
            "detector": NULL,
        },
        frames=3,
        seconds=None,
        observer=lambda record, work: None,
    )
    assert report.cameras["camera"].frames == 3
