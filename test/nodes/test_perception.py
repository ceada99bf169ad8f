# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The composed process: direct frames, one subscription per topic, one lifecycle for all."""

from __future__ import annotations

import array

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from task_bench import Seen

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.nodes.perception import PerceptionNode, filter_arguments
from jetson_dnn_rt.safety.faults import FAULTS
from jetson_dnn_rt.tasks import Outcome

CAMERA = {"source": "synthetic:64x64", "rate": 50.0}
DETECTOR = {"model": "null:1", "warmup_runs": 2}
SEGMENTER = {"model": "null:1,segmentation", "warmup_runs": 2}


def make(ros, seen=None, **overrides):
    values = {"camera": CAMERA, "detector": DETECTOR, "segmenter": SEGMENTER, **overrides}
    return ros.make(
        PerceptionNode, overrides={k: v for k, v in values.items() if v}, observer=seen
    )


def test_frames_go_to_all_tasks_without_a_copy_and_at_one_instant(ros):
    seen = Seen()
    node = make(ros, seen)
    ready: list[int] = []
    node.on_tasks_ready = lambda: ready.append(node.cameras["camera"].frames)
    assert node.autostart(), node.fault
    seen.wait(10)
    assert ready == [0]  # frames come when all tasks are active
    for name in ("detector", "segmenter"):  # a later frame may end first, superseded
        assert min(record.sequence for record, _ in seen.of(name)) == 0
    assert node.bridge.inputs == {}
    found = {r.sequence: (r, w) for r, w in seen.of("detector")}
    pairs = [(found[r.sequence], (r, w)) for r, w in seen.of("segmenter") if r.sequence in found]
    assert len(pairs) >= 4
    for (detector, work), (segmenter, other) in pairs:
        assert work.frame is other.frame
        assert detector.release_ns == segmenter.release_ns
        assert detector.capture_ns <= detector.release_ns


def test_the_camera_is_published_while_somebody_listens(ros):
    from sensor_msgs.msg import CameraInfo, CompressedImage, Image

    node = make(ros)
    assert node.autostart()
    raw = ros.listen(Image, "image_raw").wait_count(1)[0]
    assert (raw.height, raw.width, raw.encoding) == (64, 64, "bgr8")
    assert raw.header.frame_id == "camera_optical_frame"
    assert np.frombuffer(raw.data, np.uint8).std() > 1.0
    assert ros.listen(CompressedImage, "image_raw/compressed").wait_count(1)[0].data
    info = ros.listen(CameraInfo, "camera_info").wait_count(1)[0]
    assert (info.height, info.width, info.k[0]) == (64, 64, 0.0)


def test_one_subscription_serves_all_tasks(ros):
    from sensor_msgs.msg import Image

    seen = Seen()
    node = make(ros, seen, camera=None, perception={"cameras": [""]})
    # No image comes while the tasks are made ready: it would be lost to what they still do.
    subscribed: list[bool] = []
    node.on_tasks_ready = lambda: subscribed.append(
        any(one.topic_name == "/image_raw" for one in node.subscriptions)
    )
    assert node.autostart(), node.fault
    assert subscribed == [False]
    images = ros.advertise(Image, "image_raw")
    ros.wait(images.get_subscription_count)
    # Until the publisher is known there is a reliable one, too.
    ros.wait(lambda: len(ros.probe.get_subscriptions_info_by_topic("/image_raw")) == 1)
    image = Image(height=8, width=8, encoding="mono8", step=8, data=array.array("B", bytes(64)))
    images.publish(image)
    first, second = seen.wait(2)
    assert {first[0].task, second[0].task} == {"detector", "segmenter"}
    assert first[1].frame is second[1].frame
    # The first to go leaves it to the other, the last one takes it away.
    node.tasks["detector"].trigger_deactivate()
    assert len(node.bridge.inputs) == 1
    node.tasks["segmenter"].trigger_deactivate()
    assert node.bridge.inputs == {}


def test_children_have_their_own_parameters_and_lifecycle(ros):
    node = make(ros)
    assert node.autostart()
    assert ros.set(node.tasks["detector"], deadline_ms=12.0).successful
    assert node.bridge.session.executor.snapshot("detector").parameters.deadline_ns == 12_000_000
    node.tasks["segmenter"].trigger_deactivate()
    assert node.tasks["segmenter"].state_name == "inactive"
    before = node.tasks["detector"].snapshot.released
    ros.wait(lambda: node.tasks["detector"].snapshot.released > before)
    node.tasks["segmenter"].trigger_activate()
    ros.wait(lambda: node.tasks["segmenter"].snapshot.outcomes[Outcome.MET] > 0)


def test_transitions_are_handed_down_and_can_be_repeated(ros):
    node = make(ros)
    for _ in range(2):
        assert node.autostart(), node.fault
        assert {child.state_name for child in node.children} == {"active"}
        ros.wait(lambda: node.tasks["detector"].snapshot.outcomes[Outcome.MET] > 1)
        node.trigger_deactivate()
        assert {child.state_name for child in node.children} == {"inactive"}
        node.trigger_cleanup()
        assert {child.state_name for child in node.children} == {"unconfigured"}


def test_namespaces_make_several_cameras_and_tasks(ros):
    from vision_msgs.msg import Detection2DArray

    node = ros.make(
        PerceptionNode,
        overrides={
            "perception": {
                "tasks": ["detector", "rear/detector"], "cameras": ["camera", "rear/camera"]
            },
            "camera": CAMERA,
            "rear/camera": {**CAMERA, "seed": 2, "frame_id": "rear"},
            "detector": {**DETECTOR, "camera": "camera"},
            "rear/detector": {**DETECTOR, "camera": "rear/camera"},
        },
    )  # fmt: skip
    front = ros.listen(Detection2DArray, "/detections")
    rear = ros.listen(Detection2DArray, "/rear/detections")
    assert node.autostart(), node.fault
    assert front.wait_count(1)[0].header.frame_id == "camera_optical_frame"
    assert rear.wait_count(1)[0].header.frame_id == "rear"
    assert node.tasks["rear/detector"].get_fully_qualified_name() == "/rear/detector"


def test_a_task_that_cannot_configure_leaves_all_unconfigured_and_is_named(ros):
    node = make(ros, segmenter={"model": "onnx:/nowhere.onnx"})
    assert not node.autostart()
    assert node.fault.startswith("task segmenter: ")
    assert "nowhere.onnx" in node.fault
    assert {child.state_name for child in (node, *node.children)} == {"unconfigured"}


@pytest.mark.parametrize("refuse", [True, False])
def test_an_unschedulable_set_is_refused_where_configured_so(ros, refuse):
    slow = {"model": "null:30", "warmup_runs": 2}
    node = make(ros, detector=slow, perception={"on_unschedulable": "refuse"} if refuse else {})
    assert node.autostart() is not refuse
    if refuse:
        assert "NOT schedulable" in node.fault
        assert {child.state_name for child in (node, *node.children)} == {"inactive"}
        assert node.cameras["camera"].frames == 0
    else:
        assert node.bridge.session.verdict.schedulable is False


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ({"perception": {"tasks": ["a", "a"], "cameras": [""]}}, "a appears twice"),
        ({"detektor": {"model": "null:1"}}, "there is no detektor"),
        (
            {"detector": {"modell": "null:1"}},
            "detector: there is no parameter modell; did you mean model",
        ),
        ({"detector": {"threads": "two"}}, "threads"),
        ({"detector": {"deadline_ms": "soon"}}, "deadline_ms must be a number"),
        ({"perception": {"realtime.cpu_affinity": [4096]}}, "cores that do not exist"),
        ({"perception": {"discipline": "rms"}}, "discipline must be one of edf, fifo"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused(ros, overrides, text):
    from rclpy.exceptions import ParameterException

    with pytest.raises((ConfigurationError, ParameterException), match=text):
        ros.make(PerceptionNode, overrides=overrides)


def test_a_fault_of_a_task_is_logged_once(ros, capfd):
    node = make(ros, detector={"model": "onnx:/nowhere.onnx"})
    assert not node.autostart()
    assert "task detector: model file /nowhere.onnx" in node.fault
    said = capfd.readouterr().err
    assert said.count("cannot configure") == said.count("/nowhere.onnx") == 1
    # A transition of its own is its own to report.
    node.tasks["detector"].trigger_configure()
    assert "[detector]: cannot configure: camera 'camera' is not conf" in capfd.readouterr().err


def test_two_tasks_on_one_output_topic_are_refused(ros):
    node = ros.make(PerceptionNode, overrides={"perception": {"tasks": ["one", "two"]}})
    assert not node.autostart()
    assert "both publish /detections; fix: where two does something else, set" in node.fault


def test_an_unknown_camera_is_refused(ros):
    node = make(ros, detector={**DETECTOR, "camera": "front"})
    assert not node.autostart()
    assert "camera 'front' is not in this process (there: camera)" in node.fault


def test_rules_for_the_name_of_the_process_do_not_reach_the_children():
    given = ["--ros-args", "-r", "__node:=x", "--params-file", "f", "-r", "a:=b", "-r", "__ns:=/y"]
    assert filter_arguments(given) == ["--ros-args", "--params-file", "f", "-r", "a:=b"]


def test_names_and_namespace_from_the_command_line(ros):
    import rclpy
    from rclpy.signals import SignalHandlerOptions

    args = ["--ros-args", "-r", "__ns:=/robot", "-p", "workers:=2"]
    context = rclpy.Context()
    rclpy.init(args=args, context=context, signal_handler_options=SignalHandlerOptions.NO)
    node = PerceptionNode(context=context, arguments=args)
    try:
        names = [child.get_fully_qualified_name() for child in (node, *node.children)]
        assert names == [
            "/robot/perception", "/robot/camera", "/robot/coordinator", "/robot/detector",
            "/robot/segmenter",
        ]  # fmt: skip
        assert node.get_parameter("workers").value == 2
    finally:
        node.destroy_node()
        context.try_shutdown()


def test_a_listener_that_fails_takes_no_frame_from_others(ros, monkeypatch):
    """EDGES 0: an exception of one task's listener took the frame from all, and the camera."""
    seen = Seen()
    node = make(ros, seen)
    assert node.autostart(), node.fault
    accept, faults = node.tasks["detector"].accept, iter([KeyError("one"), KeyError("two")])

    def fail_first(frame, capture_ns):
        if (error := next(faults, None)) is not None:
            raise error
        return accept(frame, capture_ns)

    monkeypatch.setattr(node.tasks["detector"], "accept", fail_first)
    ros.wait(lambda: node.tasks["detector"].snapshot.outcomes[Outcome.FAILED] == 2)
    count = len(seen.items)
    seen.wait(count + 10)
    node.trigger_deactivate()
    failed = {r.sequence for r, _ in seen.of("detector") if r.outcome is Outcome.FAILED}
    numbers = {w.frame.sequence for r, w in seen.of("detector") if r.outcome is Outcome.FAILED}
    assert len(failed) == 2
    # The other task had these frames, and each task one job for every frame.
    assert numbers <= {w.frame.sequence for _, w in seen.of("segmenter")}
    for task in node.tasks:
        frames = [w.frame.sequence for _, w in seen.of(task)]
        assert sorted(frames) == list(range(min(frames), max(frames) + 1))
    assert [(one.kind, one.count) for one in FAULTS.snapshot()] == [
        ("task detector: listener: KeyError", 2)
    ]


def test_a_child_that_was_shut_down_does_not_stop_the_end(ros):
    """EDGES 0: `ros2 lifecycle set /camera shutdown` kept the others from being shut down."""
    node = make(ros)
    assert node.autostart(), node.fault
    node.cameras["camera"].trigger_shutdown()
    node.trigger_shutdown()
    assert node.fault == ""
    assert {child.state_name for child in (node, *node.children)} == {"finalized"}
    assert not node.bridge.session.running
