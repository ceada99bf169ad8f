# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The camera node alone: topics, calibration, a device that stops and returns."""

from __future__ import annotations

import time

import cv2
import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from ros_graph import TIMEOUT_S
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from task_bench import wait_for_value
from thread_kills import kill_thread

from jetson_dnn_rt.cameras.source import FrameSource
from jetson_dnn_rt.errors import ConfigurationError, SourceError
from jetson_dnn_rt.nodes.cameras import camera as camera_module
from jetson_dnn_rt.nodes.cameras.camera import CameraNode
from jetson_dnn_rt.nodes.cameras.camera_info import make_camera_info
from jetson_dnn_rt.safety.faults import FAULTS

CALIBRATION = """
image_width: 64
image_height: 64
camera_name: front
camera_matrix: {rows: 3, cols: 3, data: [50, 0, 32, 0, 51, 31, 0, 0, 1]}
distortion_model: plumb_bob
distortion_coefficients: {rows: 1, cols: 5, data: [0.1, -0.2, 0, 0, 0]}
rectification_matrix: {rows: 3, cols: 3, data: [1, 0, 0, 0, 1, 0, 0, 0, 1]}
projection_matrix: {rows: 3, cols: 4, data: [50, 0, 32, 0, 0, 51, 31, 0, 0, 0, 1, 0]}
"""


def make(ros, **values):
    from rclpy.parameter import Parameter

    given = {"source": "synthetic:64x64", "rate": 50.0, **values}
    overrides = [Parameter(name, value=value) for name, value in given.items()]
    return ros.make(CameraNode, parameter_overrides=overrides)


def level_of(inbox, level):
    """Wait until the camera's status has a level; return its message."""

    def find(messages):
        statuses = [s for m in messages for s in m.status if s.name == "/camera: camera_status"]
        return next((s for s in reversed(statuses) if s.level == level), None)

    return inbox.wait(find, f"level {level!r}").message


def test_images_and_calibration_carry_one_header(ros, tmp_path):
    file = tmp_path / "front.yaml"
    file.write_text(CALIBRATION)
    node = make(ros, camera_info_url=f"file://{file}", frame_id="front")
    images, infos = ros.listen(Image, "image_raw"), ros.listen(CameraInfo, "camera_info")
    before_ns = ros.probe.get_clock().now().nanoseconds
    assert node.autostart(), node.fault
    image = images.wait_count(3)[-1]
    info = infos.wait(lambda found: [m for m in found if m.header == image.header])[0]
    assert list(info.k) == [50, 0, 32, 0, 51, 31, 0, 0, 1]
    assert list(info.d) == [0.1, -0.2, 0, 0, 0]
    assert image.header.frame_id == "front"
    stamp_ns = image.header.stamp.sec * 10**9 + image.header.stamp.nanosec
    assert before_ns < stamp_ns < ros.probe.get_clock().now().nanoseconds


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "cannot be read"),
        ("[1, 2]", "holds no calibration"),
        ("a: [1", "cannot be read"),
        ("image_width: 32\nimage_height: 64", "is for 32x64 pixels"),
        ("image_width: 64\nimage_height: 64", "lacks 'camera_matrix'"),
        (CALIBRATION.replace("31, 0, 0, 1]}", "31]}", 1), "camera_matrix needs 9 values"),
        (CALIBRATION.replace("51", ".nan", 1), "camera_matrix needs finite numbers"),
        (CALIBRATION.replace("51", "1" + 400 * "0", 1), "camera_matrix needs finite numbers"),
        (CALIBRATION.replace("-0.2", "-.inf", 1), "distortion_coefficients needs finite numbers"),
    ],
)
def test_a_calibration_that_cannot_be_used_is_said(tmp_path, text, reason):
    file = tmp_path / "c.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigurationError, match=reason):
        make_camera_info(str(file), 64, 64)


def test_frames_of_any_size_are_published_with_what_is_known_of_them(ros, tmp_path):
    """The calibration goes with the size that it is for; the others say that they have none."""
    for index, (height, width) in enumerate([(64, 64), (30, 50), (1, 1), (48, 64)]):
        picture = np.full((height, width, 3), 10 * (index + 1), np.uint8)
        cv2.imwrite(str(tmp_path / f"{index}.png"), picture)
    (tmp_path / "9.png").write_bytes(b"no picture")
    file = tmp_path / "front.yaml"
    file.write_text(CALIBRATION)
    node = make(ros, source=f"images:{tmp_path}", camera_info_url=str(file), loop=True)
    images, infos = ros.listen(Image, "image_raw"), ros.listen(CameraInfo, "camera_info")
    jpegs = ros.listen(CompressedImage, "image_raw/compressed")
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    assert node.autostart(), node.fault
    assert node.size == (64, 64)
    for count in (8, 40):
        for image in images.wait_count(count)[-8:]:
            size = image.height, image.width
            level = 10 * (1 + [(64, 64), (30, 50), (1, 1), (48, 64)].index(size))
            assert image.step == 3 * image.width
            assert bytes(image.data) == bytes([level]) * (image.step * image.height)
            header = image.header
            info = infos.wait(lambda found, h=header: [m for m in found if m.header == h])[0]
            assert (info.height, info.width) == size
            assert list(info.k[:2]) == ([50.0, 0.0] if size == (64, 64) else [0.0, 0.0])
    for jpeg in jpegs.wait_count(8)[-4:]:
        assert cv2.imdecode(np.frombuffer(jpeg.data, np.uint8), cv2.IMREAD_COLOR) is not None

    def find(messages):
        statuses = [s for m in messages for s in m.status if s.name == "/camera: camera_status"]
        values = {one.key: one.value for s in statuses[-1:] for one in s.values}
        return values if int(values.get("unreadable", 0)) > 1 else None

    values = inbox.wait(find, "files that are no pictures in the status")
    assert values["sizes"] == "64x64, 50x30, 1x1, 64x48"
    frames, slipped = int(values["frames"]), int(values["frames_slipped"])
    assert int(values["frames_expected"]) == frames + slipped
    assert int(values["size_changes"]) > 4
    assert int(values["buffers"]) >= 4
    assert float(values["buffers_mb"]) > 0.0
    assert not FAULTS.snapshot()


class Device(FrameSource):
    """A device that can be unplugged."""

    width = height = 64
    rate_hz, live = 0.0, True
    plugged_in = True

    def __init__(self):
        if not Device.plugged_in:
            raise SourceError("camera /dev/video0 is not there")

    def read(self, out):
        time.sleep(0.005)
        if not Device.plugged_in:
            raise SourceError("camera /dev/video0 stopped delivering frames")
        out[:] = 1
        self.capture_ns = time.monotonic_ns()
        return out


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(camera_module, "open_source", lambda name, options: Device())
    yield Device
    Device.plugged_in = True


def test_a_device_that_stops_and_returns(ros, device):
    node = make(ros, rate=0.0)
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    assert node.autostart(), node.fault
    ros.wait(lambda: node.frames > 3)
    device.plugged_in = False
    assert "/dev/video0" in level_of(inbox, b"\x02")
    inbox.clear()
    device.plugged_in = True
    before = node.frames
    ros.wait(lambda: node.frames > before, "frames after the return")
    level_of(inbox, b"\x00")
    assert node.camera.state.reopened == 1


def test_a_device_that_is_missing_can_be_configured_later(ros, device):
    device.plugged_in = False
    node = make(ros)
    assert not node.autostart()
    assert node.fault == "camera /dev/video0 is not there"
    device.plugged_in = True
    assert node.autostart()


def test_the_end_of_a_stream_is_no_fault(ros):
    node = make(ros, frame_limit=3)
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    assert node.autostart()
    assert node.ended.wait(TIMEOUT_S)
    assert node.frames == 3
    inbox.wait(lambda found: [
        s for m in found for s in m.status if s.message == "the stream has ended"
    ])  # fmt: skip


def test_a_killed_thread_is_named_and_frames_come_again(ros):
    """EDGES 0: a camera's thread that died was not said and not replaced."""
    diagnostics = ros.listen(DiagnosticArray, "/diagnostics")
    images = ros.listen(Image, "image_raw")
    node = make(ros)
    assert node.autostart(), node.fault
    images.wait_count(3)
    kill_thread("camera camera")
    kind = "fault.thread camera camera: KilledError"
    found = wait_for_value(diagnostics, "/camera: process_status", kind, "1, last: ")
    assert "camera camera" in found[""]
    images.clear()
    images.wait_count(3)
    level_of(diagnostics, DiagnosticStatus.OK)


def test_a_frame_that_cannot_be_published_costs_only_itself(ros, monkeypatch):
    """EDGES 0: one exception while publishing ended the camera."""
    images = ros.listen(Image, "image_raw")
    node = make(ros)
    faults = iter([RuntimeError("once"), RuntimeError("twice")])
    publish = node._publish

    def fail_first(frame):
        if (error := next(faults, None)) is not None:
            raise error
        publish(frame)

    monkeypatch.setattr(node, "_publish", fail_first)
    assert node.autostart(), node.fault
    images.wait_count(3)
    assert [(one.kind, one.count) for one in FAULTS.snapshot()] == [
        ("camera camera: listener: RuntimeError", 2)
    ]
