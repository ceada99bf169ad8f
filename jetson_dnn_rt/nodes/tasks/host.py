"""What the tasks of one process share: executor, image subscriptions, verdict, trace, clocks."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jetson_dnn_rt.backends.threads import count_cores
from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.config.task import AUTO, TaskConfig
from jetson_dnn_rt.errors import ConfigurationError, UnschedulableError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.nodes.coordinator.clock_watch import ClockWatch
from jetson_dnn_rt.nodes.process.parameters import read_parameters
from jetson_dnn_rt.nodes.reports.job_trace import JobTrace, describe_tasks
from jetson_dnn_rt.nodes.tasks.batch_groups import BatchGroups
from jetson_dnn_rt.nodes.tasks.fanout import FrameListener
from jetson_dnn_rt.nodes.tasks.image_input import ImageInput, InputKey
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.runtime.realtime import Realtime
from jetson_dnn_rt.runtime.sharing.core_split import CoreSplit
from jetson_dnn_rt.scheduling.analysis import Verdict
from jetson_dnn_rt.traces.clock_log import ClockLog
from jetson_dnn_rt.traces.metadata import describe_run
from jetson_dnn_rt.traces.room import TraceRoom

if TYPE_CHECKING:
    from rclpy.node import Node

    from jetson_dnn_rt.nodes.cameras.camera import CameraNode
    from jetson_dnn_rt.nodes.coordinator.clock_thread import ClockThread
    from jetson_dnn_rt.nodes.tasks.task_node import TaskNode


class Host:
    """Owns the executor; tasks add themselves to it and ask it for their frames.

    Parameters
    ----------
    node : Node
        Owns the image subscriptions.
    cameras : mapping of str to CameraNode
        Cameras of this process, by name.
    find_clocks : callable
        Returns the owner of the clocks, where it is in this process and configured.
    """

    def __init__(
        self,
        node: Node,
        cameras: Mapping[str, CameraNode] | None = None,
        find_clocks: Callable[[], ClockThread | None] = lambda: None,
    ) -> None:
        self._node, self._find_clocks = node, find_clocks
        self._tasks: dict[str, TaskNode] = {}
        self._trace: JobTrace | None = None
        self._trace_room = TraceRoom()  # of all configurations of this process
        self._clock_watch: ClockWatch | None = None
        self._clock_log = ClockLog()
        self._watch_wanted = False
        self.cameras = dict(cameras or {})
        self.cascading = False
        self.cores = 1
        self.verdict: Verdict | None = None
        self.split = CoreSplit(1, 1)
        self.cohort_slowdown: dict[int, float] = {}
        self.models: dict[str, Model] = {}
        self.batches = BatchGroups()
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

    @property
    def workers(self) -> int:
        """Of the executor."""
        return self.split.workers

    def start(self, parameters: ProcessConfig, threads: int | str = 0) -> None:
        """Start the executor.

        Parameters
        ----------
        parameters : ProcessConfig
            Of the process.
        threads : int or str
            Of one inference of tasks that name no number: a number, 0 = the cores divided by the
            workers, ``auto`` = all cores and one worker until `share_cores` is called.
        """
        workers = 1 if threads == AUTO else parameters.workers
        self._refuse = parameters.on_unschedulable == "refuse"
        executor = Executor(
            workers,
            parameters.discipline,
            parameters,
            max_inflight=parameters.device_limits,
        )
        if parameters.trace_dir:
            self._watch_wanted = True
            self._trace_room.limit_mb = parameters.trace_limit_mb
            self._trace = JobTrace(
                Path(parameters.trace_dir).expanduser(),
                self._node.get_name(),
                self.clocks_at,
                self._trace_room,
            )
            executor.add_observer(self._trace.observe)
        executor.start()
        self._executor = executor
        with executor.realtime.as_worker():
            self.cores = count_cores()
        own = threads if isinstance(threads, int) else 0
        self.split = CoreSplit(workers, own or max(1, self.cores // workers))

    def share_cores(self, split: CoreSplit, models: Mapping[str, Model]) -> None:
        """Take what a trial found best, and the models that it loaded; before the tasks load."""
        self.split, self.models = split, dict(models)
        self.executor.set_workers(split.workers)

    def count_threads(self, values: TaskConfig) -> int:
        """Threads of one inference of a task."""
        return values.fixed_threads or self.split.threads

    def set_slowdown(self, slowdown: dict[int, float]) -> None:
        """Let budgets begin with the slow-down that was measured; before tasks are activated."""
        self.cohort_slowdown = slowdown
        self.executor.set_cohort_slowdown(slowdown)

    def stop(self, timeout_s: float = 1.0, *, quickly: bool = False) -> None:
        """Drop all subscriptions and stop the executor; a host that is not started stays so.

        Parameters
        ----------
        timeout_s : float
            For stages that still run.
        quickly : bool
            The process ends: leave the trace as it is on disk.
        """
        for key in list(self._inputs):
            self._inputs.pop(key).close()
        self.verdict = None
        self.cohort_slowdown, self.models = {}, {}
        if self._executor is not None:
            executor, self._executor = self._executor, None
            if not executor.stop(timeout_s):
                self._node.get_logger().error("a stage hangs: its thread is left behind")
            trace, self._trace = self._trace, None
            if trace is not None:
                trace.close(quickly=quickly)
            watch, self._clock_watch = self._clock_watch, None
            if watch is not None:
                watch.stop(timeout_s)
            self._watch_wanted = False
            if executor.realtime.parameters.gc_freeze:
                # Else the cycles among what was frozen would never be freed.
                gc.unfreeze()
                gc.collect()

    # -- tasks and what is known of them -------------------------------------------------------

    def join(self, task: str, node: TaskNode) -> None:
        """A task becomes active."""
        self._tasks[task] = node

    def leave(self, task: str) -> None:
        """A task is active no more."""
        self._tasks.pop(task, None)

    def want_clocks(self) -> None:
        """Look at the clocks from the next `commit` on, where nobody in this process does."""
        self._watch_wanted = True

    def clocks_at(self, time_ns: int) -> str:
        """Clock configuration that the hardware had at a steady time; empty = not known."""
        return self._find_log().at(time_ns)

    def _find_log(self) -> ClockLog:
        source = self._find_clocks() or self._clock_watch
        if source is not None:
            # Kept: of the last jobs it is asked when its owner has gone already.
            self._clock_log = source.log
        return self._clock_log

    def clocks_set_at(self, time_ns: int) -> str:
        """Clock configuration that this process had set; empty = it sets none."""
        thread = self._find_clocks()
        return "" if thread is None else thread.settings.at(time_ns)

    def describe_trace(self) -> tuple[str, dict[str, object]]:
        """What is wrong with the trace, and values for diagnostics; nothing without a trace."""
        return ("", {}) if self._trace is None else self._trace.describe()

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
        """All tasks are there: say whether they fit, trace them, exempt them from collection.

        Raises
        ------
        UnschedulableError
            When they do not and the configuration refuses that.
        ConfigurationError
            When they are to be traced and the folder cannot be written.
        """
        self.batches.seed(self.executor)
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
        if self._watch_wanted and self._clock_watch is None and self._find_clocks() is None:
            self._clock_watch = ClockWatch()
        self._find_log()
        nodes: dict[str, Node] = {self._node.get_name(): self._node, **self.cameras, **self._tasks}
        if self._trace is not None:
            self._trace.begin(
                describe_run(
                    "nodes",
                    describe_tasks(self._tasks),
                    settings=self.executor.realtime.settings,
                    parameters={
                        "workers": self.workers,
                        **{name: read_parameters(node) for name, node in nodes.items()},
                    },
                )
            )
        for setting in self.executor.realtime.settings:
            if not setting.applied:
                logger.warning(f"{setting.name} is not applied: {setting.detail}")
