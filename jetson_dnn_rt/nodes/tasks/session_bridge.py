# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The ROS side of a session: image subscriptions, cameras and clocks for the tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jetson_dnn_rt.config.perception import PerceptionConfig
from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.coordinator.clock_thread import ClockThread, ClockWatch
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.nodes.process.parameters import read_parameters
from jetson_dnn_rt.nodes.tasks.image_input import FrameListener, ImageInput, InputKey
from jetson_dnn_rt.runtime.realtime import Realtime
from jetson_dnn_rt.runtime.session import Session
from jetson_dnn_rt.traces.clock_log import ClockLog
from jetson_dnn_rt.traces.metadata import describe_run
from jetson_dnn_rt.traces.room import TraceRoom
from jetson_dnn_rt.traces.schema import SHARING, WARM_UP, TraceMetadata

if TYPE_CHECKING:
    from rclpy.node import Node

    from jetson_dnn_rt.nodes.cameras.camera import CameraNode
    from jetson_dnn_rt.nodes.process.lifecycle import ManagedNode


class SessionBridge:
    """Connects the nodes of a process with their session: frames go in, clocks into its trace.

    `node` owns the image subscriptions, which change on the ROS thread only; `cameras` are those
    of this process, by name. `find_clocks` returns the owner of the clocks, where it is in this
    process and configured.
    """

    def __init__(
        self,
        node: ManagedNode,
        cameras: Mapping[str, CameraNode] | None = None,
        find_clocks: Callable[[], ClockThread | None] = lambda: None,
    ) -> None:
        self._node, self._find_clocks = node, find_clocks
        self._tasks: dict[str, Node] = {}
        self._topics: dict[str, str] = {}  # of active tasks
        self._trace_room = TraceRoom()  # of all configurations of this process
        self._clock_watch: ClockWatch | None = None
        self._clock_log = ClockLog()
        self._watch_wanted = False
        self.inputs: dict[InputKey, ImageInput] = {}  # the image subscriptions there are now
        self.cameras = dict(cameras or {})
        # Whether tasks are activated together, with one `commit` and `start_topics` at the end.
        self.cascading = False
        # A new one at each `start`.
        self.session = Session(PerceptionConfig(()), log=node.get_logger())

    @property
    def realtime(self) -> Realtime | None:
        """The real-time set-up, None before `start`."""
        return self.session.executor.realtime if self.session.running else None

    def start(self, process: ProcessConfig, threads: int | str = 0) -> None:
        """Start a session; `threads` as `PerceptionConfig` has them."""
        config = PerceptionConfig((), process=process, threads=threads)
        session = self.session = Session(config, log=self._node.get_logger())
        session.name, session.trace_room = self._node.get_name(), self._trace_room
        session.clocks_at, session.describe_run = self.clocks_at, self._describe_run
        self._watch_wanted |= bool(process.trace_dir)
        session.start_times, self._node.start_times = self._node.start_times, None
        if session.start_times is not None:
            session.start_times.end("waiting")  # for a life cycle manager, say
        session.start()

    def stop(self, timeout_s: float = 1.0, *, quickly: bool = False) -> None:
        """Drop all subscriptions and stop the session; stages that still run get `timeout_s`.

        With `quickly`, for a process that is ending, the trace stays as it is on disk.
        """
        self._node.call_ros(self._close_inputs)
        self.session.stop(timeout_s, quickly=quickly)
        watch, self._clock_watch = self._clock_watch, None
        if watch is not None:
            watch.stop(timeout_s)
        self._watch_wanted = False

    def _close_inputs(self) -> None:
        for key in list(self.inputs):
            self.inputs.pop(key).close()

    def commit(self) -> None:
        """Judge the active tasks and trace them; see `Session.commit`."""
        if self._watch_wanted and self._clock_watch is None and self._find_clocks() is None:
            self._clock_watch = ClockWatch()
        self._find_log()
        self.session.commit()

    def _describe_run(self) -> TraceMetadata:
        traced = self.session.describe_tasks()
        for name, task in traced.items():
            if not task.camera:
                traced[name] = replace(task, camera=self._topics[name])
        nodes: dict[str, Node] = {self._node.get_name(): self._node, **self.cameras, **self._tasks}
        return describe_run(
            "nodes",
            traced,
            settings=self.session.executor.realtime.settings,
            parameters={
                **{name: read_parameters(node) for name, node in nodes.items()},
                SHARING: self.session.describe_sharing(),
                WARM_UP: self.session.describe_warm_up(),
            },
        )

    # -- clocks --------------------------------------------------------------------------------

    def want_clocks(self) -> None:
        """Watch the clocks from the next `commit` on, unless a part of this process does."""
        self._watch_wanted = True

    def clocks_at(self, time_ns: int) -> str:
        """Clock configuration that the hardware had at a steady time; empty = not known."""
        return self._find_log().at(time_ns)

    def _find_log(self) -> ClockLog:
        source = self._find_clocks() or self._clock_watch
        if source is not None:
            # Kept: the owner may be gone when the clocks of the last jobs are asked for.
            self._clock_log = source.log
        return self._clock_log

    def clocks_set_at(self, time_ns: int) -> str:
        """Clock configuration that this process had set; empty = it sets none."""
        thread = self._find_clocks()
        return "" if thread is None else thread.settings.at(time_ns)

    # -- frames --------------------------------------------------------------------------------

    def connect(self, task: str, listener: FrameListener, camera: str, key: InputKey) -> None:
        """Connect a task to a camera of this process, else to the topic of `key`.

        Of tasks that are activated together, topics are subscribed to by `start_topics`.

        Raises
        ------
        ConfigurationError
            When there is no such camera, or another task has the topic with other settings.
        """
        if camera:
            self.camera(camera).fanout.add(task, listener)
        else:
            self._node.call_ros(lambda: self._subscribe(task, listener, key))

    def _subscribe(self, task: str, listener: FrameListener, key: InputKey) -> None:
        if key not in self.inputs:
            rival = next((k for k in self.inputs if k.topic == key.topic), None)
            if rival is not None:
                raise ConfigurationError(
                    f"task {task}: {key.topic} is subscribed to with {rival}, not {key}: tasks "
                    "on one topic share one subscription, hence its settings"
                )
            self.inputs[key] = ImageInput(self._node, key, self.submit)
        self.inputs[key].fanout.add(task, listener)
        if not self.cascading:
            self._open_inputs()

    def start_topics(self) -> None:
        """Subscribe for tasks that were activated together, once all is ready for their frames."""
        self._node.call_ros(self._open_inputs)

    def _open_inputs(self) -> None:
        for one in self.inputs.values():
            one.open()
        if self.inputs:
            # This thread runs the callbacks that deliver frames.
            self.session.executor.realtime.apply_to_io()

    def join(self, task: str, node: Node, topic: str) -> None:
        """A task became active; its frames come from `topic` unless a camera delivers them."""
        self._tasks[task], self._topics[task] = node, topic

    def leave(self, task: str) -> None:
        """A task is no longer active: stop its frames; an unused subscription is destroyed."""
        self.disconnect(task)
        self._tasks.pop(task, None)

    def submit(self, tasks: Sequence[str], frame: Frame, capture_ns: int) -> None:
        """Release a frame to tasks that are connected to its stream."""
        self.session.submit(frame, tasks, capture_ns=capture_ns)

    def disconnect(self, task: str) -> None:
        """Stop the frames of a task; an unused subscription is destroyed."""
        for camera in self.cameras.values():
            camera.fanout.remove(task)
        self._node.call_ros(lambda: self._unsubscribe(task))

    def _unsubscribe(self, task: str) -> None:
        for key, image_input in list(self.inputs.items()):
            image_input.fanout.remove(task)
            if not image_input.fanout:
                self.inputs.pop(key).close()

    def camera(self, name: str) -> CameraNode:
        """A camera of this process; ConfigurationError when there is none of that name."""
        if name not in self.cameras:
            known = ", ".join(self.cameras) or "none"
            text = f"camera {name!r} is not in this process (there: {known})"
            raise ConfigurationError(text, "camera")
        return self.cameras[name]
