# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The camera node: a frame source as a ROS camera, and as a direct source of tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import cv2
from sensor_msgs.msg import CameraInfo, CompressedImage, Image

from jetson_dnn_rt.cameras.camera import Camera
from jetson_dnn_rt.cameras.source import ENCODING, FrameSource, SourceOptions, open_source
from jetson_dnn_rt.config.nodes import CameraConfig, CameraProcessConfig
from jetson_dnn_rt.errors import blaming
from jetson_dnn_rt.frames import Allocate, Frame
from jetson_dnn_rt.nodes.cameras.camera_info import make_camera_info
from jetson_dnn_rt.nodes.process.lifecycle import ManagedNode
from jetson_dnn_rt.nodes.process.qos import OVERRIDABLE, make_qos
from jetson_dnn_rt.nodes.reports.arrivals import Arrivals
from jetson_dnn_rt.nodes.reports.diagnostics import DiagnosticsPublisher, stream_status
from jetson_dnn_rt.nodes.tasks.conversion import ImageWriter, compress_image, fill_header
from jetson_dnn_rt.nodes.tasks.image_input import Fanout
from jetson_dnn_rt.nodes.tasks.mailbox import Mailbox
from jetson_dnn_rt.runtime.realtime import Realtime

PUBLISH_SLOTS = 4
"""Frames that wait to be published; a tenth of a second at 30 Hz."""


class FrameSink(Protocol):
    """Interface of the process that runs a camera's tasks."""

    @property
    def realtime(self) -> Realtime | None:
        """The real-time set-up, None before the executor runs."""

    def submit(self, tasks: Sequence[str], frame: Frame, capture_ns: int) -> None:
        """Release a frame to tasks."""


class CameraNode(ManagedNode):
    """Publishes ``image_raw``, ``image_raw/compressed`` and ``camera_info``.

    In a composed process the tasks get the frames by a direct call on the camera's thread; topics
    are published on another thread, and only while they have subscribers. Without `bridge` the
    camera is alone in its process. `on_ended` is called on the camera's thread at the end of the
    stream.
    """

    def __init__(
        self,
        name: str = "camera",
        *,
        bridge: Callable[[], FrameSink] | None = None,
        on_ended: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        self._declared = self.declare(CameraConfig)
        if bridge is None:
            self._own_realtime = Realtime(self.declare(CameraProcessConfig).value)
            self._own_realtime.apply_to_process()
        self._bridge = bridge
        self._on_ended = on_ended
        self.fanout = Fanout(lambda *frame: bridge().submit(*frame) if bridge else None)
        self.ended = threading.Event()
        self.camera: Camera | None = None  # while configured
        self._device_tasks: set[str] = set()
        self._arrivals = Arrivals()
        self._mailbox: Mailbox[Frame] | None = None
        statuses = {"camera_status": self._make_status}
        if bridge is not None:
            # Where frames come by DDS, those who get them tell how the topic fares.
            statuses["image_status"] = self._make_image_status
        self._diagnostics = DiagnosticsPublisher(self, statuses, process=bridge is None)

    @property
    def parameters(self) -> CameraConfig:
        """The current values."""
        return self._declared.value

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width of the first frame; None while unconfigured."""
        camera = self.camera
        return None if camera is None else camera.size

    @property
    def rate_hz(self) -> float:
        """Rate at which frames are due; 0 = unknown."""
        camera = self.camera
        return 0.0 if camera is None else camera.rate_hz

    @property
    def frames(self) -> int:
        """Frames delivered since it was configured."""
        camera = self.camera
        return 0 if camera is None else camera.state.frames

    def use_memory(self, task: str, allocate: Allocate) -> None:
        """Put the next frames into memory that the device of a task can read."""
        assert self.camera is not None, "the camera is not configured"
        self._device_tasks.add(task)
        # For each task one frame runs and one waits; one more is read and one is next.
        self.camera.use_memory(allocate, 2 * len(self._device_tasks) + 2)

    # -- lifecycle -----------------------------------------------------------------------------

    def configure(self) -> None:
        """Open the source and create the publishers."""
        values = self.parameters
        self.camera = Camera(
            self._open,
            self._deliver,
            rate_hz=values.rate,
            frame_id=values.frame_id,
            limit=values.frame_limit or None,
            stamp=self._stamp_ns,
            on_start=self._enter_thread,
            on_end=self._end_stream,
            name=f"camera {self.get_name()}",
        )
        period_ns = int(1e9 / self._expected_hz) if self._expected_hz else 0
        self._arrivals = Arrivals(period_ns, values.tolerance)
        height, width = self.camera.size
        with blaming("camera_info_url"):
            self._info = make_camera_info(values.camera_info_url, height, width)
        self._other_info = make_camera_info("", height, width)
        image_topic = self.resolve_topic_name("image_raw")
        self._writer = ImageWriter(ENCODING)
        self._images, self._compressed, self._infos = (
            self.create_publisher(
                kind,
                topic,
                # Of its own: rclpy writes overrides into the profile that it is given.
                make_qos(
                    values.output_qos, values.output_qos_depth, values.output_qos_deadline_ms
                ),
                qos_overriding_options=OVERRIDABLE(),
            )
            for kind, topic in (
                (Image, "image_raw"),
                (CompressedImage, f"{image_topic}/compressed"),
                (CameraInfo, "camera_info"),
            )
        )
        self._mailbox = Mailbox("camera-publish", self._publish, slots=PUBLISH_SLOTS)
        self.get_logger().info(f"{values.source}: {width}x{height} pixels at {self.rate_hz:g} Hz")

    def activate(self) -> None:
        """Start delivering frames."""
        assert self.camera is not None
        self.ended.clear()
        self.camera.start()

    def deactivate(self) -> None:
        """Stop delivering frames."""
        if self.camera is not None and not self.camera.stop():
            self.get_logger().error("the source does not return: its thread is left behind")

    def cleanup(self) -> None:
        """Close the source."""
        if self.camera is None:
            return
        self.camera.close()
        self.camera = None
        self._device_tasks.clear()
        self._close_mailbox()

    def end(self) -> None:
        """Stop and close; a source that blocks is left until the process ends."""
        if self.camera is not None:
            self.camera.close(timeout_s=0.2)
        # Its thread would keep the node and its DDS participant alive.
        self._close_mailbox()

    def _close_mailbox(self) -> None:
        if self._mailbox is not None:
            self._mailbox.close(timeout_s=0.2)
            self._mailbox = None

    # -- frames --------------------------------------------------------------------------------

    def _open(self) -> FrameSource:
        values = self.parameters
        options = SourceOptions(values.loop, values.width, values.height, values.rate, values.seed)
        with blaming("source"):
            return open_source(values.source, options)

    def _enter_thread(self) -> None:
        realtime = self._own_realtime if self._bridge is None else self._bridge().realtime
        if realtime is not None:
            realtime.apply_to_io()

    def _stamp_ns(self, capture_ns: int) -> int:
        """The node's clock at the moment of capture."""
        return int(self.get_clock().now().nanoseconds) - (time.monotonic_ns() - capture_ns)

    def _deliver(self, frame: Frame, capture_ns: int) -> None:
        self.fanout.deliver(frame, capture_ns)
        self._arrivals.observe(time.monotonic_ns(), frame.stamp_ns, capture_ns, frame.doubt)
        topics = (self._images, self._compressed, self._infos)
        if not any(publisher.get_subscription_count() for publisher in topics):
            return
        if self.fanout:
            # The tasks of this process must not wait for publishing.
            assert self._mailbox is not None
            self._mailbox.put(frame)
        else:
            self._publish(frame)

    def _end_stream(self) -> None:
        assert self.camera is not None
        self.get_logger().info(f"the stream ended after {self.camera.state.frames} frames")
        self.ended.set()
        self._on_ended()

    # -- topics --------------------------------------------------------------------------------

    def _publish(self, frame: Frame) -> None:
        if self._images.get_subscription_count():
            self._images.publish(self._writer.write(frame.image, frame))
        if self._compressed.get_subscription_count():
            quality = [cv2.IMWRITE_JPEG_QUALITY, self.parameters.jpeg_quality]
            message = compress_image(frame.image, frame, ENCODING, "jpeg", quality)
            self._compressed.publish(message)
        if self._infos.get_subscription_count():
            info = self._info
            if (info.height, info.width) != (frame.height, frame.width):
                # The calibration is for the first size: it would be wrong for this picture.
                info = self._other_info
                info.height, info.width = frame.height, frame.width
            fill_header(info.header, frame)
            self._infos.publish(info)

    def _make_status(self) -> Any:
        extra: dict[str, object] = {"source": self.parameters.source, "frames": self.frames}
        if (camera := self.camera) is not None:
            state = camera.state
            buffers, size = camera.buffers
            extra |= {
                "frames": state.frames,
                "frames_expected": "unknown" if state.expected is None else state.expected,
                "frames_slipped": "unknown" if state.slipped is None else state.slipped,
                "reopened": state.reopened,
                "unreadable": state.unreadable,
                "buffers": buffers,
                "buffers_mb": size / 1e6,
            }
            extra |= camera.sizes.describe()
        return self._describe_stream(extra=extra)

    def _make_image_status(self) -> Any:
        return self._describe_stream(topic=self.resolve_topic_name("image_raw"))

    def _describe_stream(self, **options: Any) -> Any:
        camera = self.camera
        state = None if camera is None else camera.state
        return stream_status(
            self._arrivals.snapshot(time.monotonic_ns()),
            expected_hz=self._expected_hz,
            tolerance=self.parameters.tolerance,
            node_state=self.state_name,
            error=(state.error if state is not None else "") or self.fault,
            ended=state is not None and state.ended,
            **options,
        )

    @property
    def _expected_hz(self) -> float:
        return self.parameters.expected_frequency or self.rate_hz
