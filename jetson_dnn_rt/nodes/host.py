"""What the tasks of one process share: the executor, the image subscriptions, the verdict."""

from __future__ import annotations

import gc
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jetson_dnn_rt.errors import ConfigurationError, UnschedulableError
from jetson_dnn_rt.executor.executor import Executor
from jetson_dnn_rt.executor.realtime import Realtime, RealtimeParameters
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.nodes.fanout import FrameListener
from jetson_dnn_rt.nodes.image_input import ImageInput, InputKey
from jetson_dnn_rt.nodes.parameters import parameter
from jetson_dnn_rt.scheduling.analysis import Verdict
from jetson_dnn_rt.scheduling.queue import DISCIPLINES

if TYPE_CHECKING:
    from rclpy.node import Node

    from jetson_dnn_rt.nodes.camera import CameraNode


@dataclass(frozen=True)
class RealtimeItems:
    """Parameters of the real-time set-up of a process."""

    sched_fifo: bool = parameter(
        False, "Run the workers under SCHED_FIFO (needs rights)", name="realtime.sched_fifo"
    )
    priority: int = parameter(
        50,
        "SCHED_FIFO priority of the workers; threads that bring frames get one more",
        name="realtime.priority",
        limits=(1, 98),
    )
    cpu_affinity: tuple[int, ...] = parameter(
        (), "Cores of the workers; [-1] = all", name="realtime.cpu_affinity"
    )
    mlockall: bool = parameter(
        False, "Lock the process's memory (needs rights)", name="realtime.mlockall"
    )
    gc_freeze: bool = parameter(
        True,
        "Exempt what is alive after warm-up from garbage collection",
        name="realtime.gc_freeze",
    )
    mallopt: bool = parameter(
        True, "Keep glibc from giving memory back after every image", name="realtime.mallopt"
    )
    switch_interval_us: int = parameter(
        100,
        "Longest time a thread keeps Python's interpreter lock; 0 = Python's own 5000",
        name="realtime.switch_interval_us",
        unit="us",
        limits=(0, 100_000),
    )

    def __post_init__(self) -> None:
        self.realtime()

    def realtime(self) -> RealtimeParameters:
        """What the executor takes."""
        return RealtimeParameters(
            sched_fifo=self.sched_fifo,
            priority=self.priority,
            cpu_affinity=self.cpu_affinity,
            mlockall=self.mlockall,
            gc_freeze=self.gc_freeze,
            mallopt=self.mallopt,
            switch_interval_us=self.switch_interval_us,
        )


@dataclass(frozen=True)
class HostParameters(RealtimeItems):
    """Parameters of the executor and of its process."""

    workers: int = parameter(
        1, "Worker threads: stages of different tasks that run side by side", limits=(1, 64)
    )
    discipline: str = parameter(
        "edf", "Order of ready stages: earliest deadline first, or first come", choices=DISCIPLINES
    )
    on_unschedulable: str = parameter(
        "warn",
        "When the analysis says that deadlines cannot be kept: go on, or stay inactive",
        choices=("warn", "refuse"),
    )
    autostart: bool = parameter(
        False, "Configure and activate by itself when the process starts", read_only=True
    )


class Host:
    """Owns the executor; tasks add themselves to it and ask it for their frames.

    Parameters
    ----------
    node : Node
        Owns the image subscriptions.
    cameras : mapping of str to CameraNode
        Cameras of this process, by name.
    """

    def __init__(self, node: Node, cameras: Mapping[str, CameraNode] | None = None) -> None:
        self._node = node
        self.cameras = dict(cameras or {})
        self.cascading = False
        self.verdict: Verdict | None = None
        self.workers = 1
        self.build_turn = threading.Lock()
        self._refuse = False
        self._executor: Executor | None = None
        self._inputs: dict[InputKey, ImageInput] = {}

    @property
    def executor(self) -> Executor:
        """The running executor."""
        if self._executor is None:
            raise ConfigurationError("configure the node that owns the executor first")
        return self._executor

    @property
    def running(self) -> bool:
        """Whether the executor runs."""
        return self._executor is not None

    @property
    def realtime(self) -> Realtime | None:
        """The real-time set-up, None before `start`."""
        return None if self._executor is None else self._executor.realtime

    @property
    def inputs(self) -> tuple[ImageInput, ...]:
        """The image subscriptions there are now."""
        return tuple(self._inputs.values())

    def start(self, parameters: HostParameters) -> None:
        """Start the executor."""
        self.workers = parameters.workers
        self._refuse = parameters.on_unschedulable == "refuse"
        executor = Executor(parameters.workers, parameters.discipline, parameters.realtime())
        executor.start()
        self._executor = executor

    def stop(self, timeout_s: float = 1.0) -> None:
        """Drop all subscriptions and stop the executor; a host that is not started stays so."""
        for key in list(self._inputs):
            self._inputs.pop(key).close()
        self.verdict = None
        if self._executor is not None:
            executor, self._executor = self._executor, None
            if not executor.stop(timeout_s):
                self._node.get_logger().error("a stage hangs: its thread is left behind")
            if executor.realtime.parameters.gc_freeze:
                # Else the cycles among what was frozen would never be freed.
                gc.unfreeze()
                gc.collect()

    def connect(self, task: str, listener: FrameListener, camera: str, key: InputKey) -> None:
        """Bring frames to a task: from a camera of this process, else from a topic.

        Parameters
        ----------
        task : str
            Name of the task.
        listener : FrameListener
            The task.
        camera : str
            Name of a camera of this process; empty = take the topic of `key`.
        key : InputKey
            Topic, transport and quality of service.

        Raises
        ------
        ConfigurationError
            When there is no such camera, or another task has the topic with other settings.
        """
        if camera:
            self.camera(camera).fanout.add(task, listener)
            return
        if key not in self._inputs:
            rival = next((k for k in self._inputs if k.topic == key.topic), None)
            if rival is not None:
                raise ConfigurationError(
                    f"task {task}: {key.topic} is subscribed to with {rival}, not {key}: tasks "
                    "on one topic share one subscription, hence its settings"
                )
            self._inputs[key] = ImageInput(self._node, key, self.submit)
            # The calling thread runs the callbacks that bring frames.
            self.executor.realtime.apply_to_io()
        self._inputs[key].fanout.add(task, listener)

    def submit(self, tasks: Sequence[str], frame: Frame, capture_ns: int) -> None:
        """Release a frame in tasks that are connected to its stream."""
        self.executor.submit(tasks, frame, capture_ns)

    def disconnect(self, task: str) -> None:
        """Bring no more frames to a task; a subscription that nobody uses goes."""
        for camera in self.cameras.values():
            camera.fanout.remove(task)
        for key, image_input in list(self._inputs.items()):
            image_input.fanout.remove(task)
            if not image_input.fanout:
                self._inputs.pop(key).close()

    def input_of(self, key: InputKey) -> ImageInput | None:
        """The subscription of a topic, where there is one."""
        return self._inputs.get(key)

    def camera(self, name: str) -> CameraNode:
        """A camera of this process.

        Raises
        ------
        ConfigurationError
            When there is none of that name.
        """
        if name not in self.cameras:
            known = ", ".join(self.cameras) or "none"
            raise ConfigurationError(f"camera {name!r} is not in this process (there: {known})")
        return self.cameras[name]

    def commit(self) -> None:
        """All tasks are there: say whether they fit, and leave them out of garbage collection.

        Raises
        ------
        UnschedulableError
            When they do not and the configuration refuses that.
        """
        verdict = self.verdict = self.executor.analyse()
        logger = self._node.get_logger()
        if verdict.schedulable:
            logger.info(str(verdict))
        elif verdict.schedulable is False and self._refuse:
            raise UnschedulableError(str(verdict))
        else:
            logger.warning(
                f"{verdict}: frames will be skipped; lengthen deadline_ms, lower the rate, or "
                "choose a faster variant or a smaller model"
            )
        self.executor.realtime.freeze()
        for setting in self.executor.realtime.settings:
            if not setting.applied:
                logger.warning(f"{setting.name} is not applied: {setting.detail}")
