"""The node of one task: a model on a stream of frames, every frame with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from std_srvs.srv import SetBool

from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.config.task import DEFAULT_FREQUENCY_HZ, TaskConfig, defaults_of
from jetson_dnn_rt.errors import ConfigurationError, StillRunningError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.nodes.process.lifecycle import ManagedNode
from jetson_dnn_rt.nodes.process.parameters import ParameterSet
from jetson_dnn_rt.nodes.process.qos import make_qos
from jetson_dnn_rt.nodes.reports.diagnostics import (
    ERROR,
    OK,
    WARN,
    DiagnosticsPublisher,
    ProcessingLimits,
    camera_status,
    make_status,
    processing_status,
)
from jetson_dnn_rt.nodes.reports.timing_reports import TimingReports
from jetson_dnn_rt.nodes.tasks.debug_image import DebugImage, DebugItem
from jetson_dnn_rt.nodes.tasks.image_input import InputKey
from jetson_dnn_rt.nodes.tasks.result_topics import LabelTopics, ResultTopics, make_result_topics
from jetson_dnn_rt.nodes.tasks.session_bridge import SessionBridge
from jetson_dnn_rt.nodes.tasks.streams import Arrivals
from jetson_dnn_rt.nodes.tasks.task_status import (
    describe_counts,
    describe_variants,
    drift_status,
    session_values,
)
from jetson_dnn_rt.nodes.tasks.task_timing import TaskTiming
from jetson_dnn_rt.results import Result
from jetson_dnn_rt.runtime.drift_watch import DriftWatch, load_time_profiles
from jetson_dnn_rt.runtime.session import FINISHED, Session
from jetson_dnn_rt.runtime.task import Task
from jetson_dnn_rt.safety.faults import safe_text
from jetson_dnn_rt.tasks import JobRecord, Work

PUBLISHED_NS = "published_ns"
"""Key in a work's scratch: when its result had been handed to ROS, on the steady clock."""


class TaskNode(ManagedNode):
    """A lifecycle node that runs one model; alone with a session of its own, or composed.

    `task` is its name in the session, by default the node's; `bridge` that of the composed
    process. Among tasks with equal deadlines the one with the least `precedence` goes first. The
    `primary` one publishes ``label_info`` and ``debug_image`` of its namespace; every task has its
    own below its name. `defaults` are those that differ from `TaskConfig`'s. `observer` sees every
    job that ends, on the delivery thread.
    """

    def __init__(
        self,
        name: str,
        *,
        task: str = "",
        bridge: SessionBridge | None = None,
        precedence: int = 0,
        primary: bool = True,
        defaults: dict[str, Any] | None = None,
        observer: Callable[[JobRecord, Work], None] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        self.task = task or name
        self._declared = ParameterSet(
            self,
            TaskConfig,
            defaults={"name": self.task, **(defaults or {})},
            is_fixed=lambda: not self.is_unconfigured,
            on_change=self._apply,
        )
        self._process_parameters: ParameterSet[ProcessConfig] | None = None
        if bridge is None:
            self._process_parameters = ParameterSet(
                self, ProcessConfig, is_fixed=lambda: not self.is_unconfigured
            )
        self.bridge = bridge or SessionBridge(self)
        self._precedence, self._primary, self._observer = precedence, primary, observer
        self._results: ResultTopics | None = None
        self._closables: list[Any] = []
        self._enabled = True
        self._arrivals = Arrivals()
        self.timing = TaskTiming(self.parameters.wcet_exceedance)
        self._reports: TimingReports | None = None
        self.published = 0
        self.create_service(SetBool, "~/enable", self._on_enable)
        self._diagnostics = DiagnosticsPublisher(
            self,
            {
                "processing_time_status": self._make_processing_status,
                "camera_status": self._make_camera_status,
                "task_status": self._make_task_status,
                "drift_status": lambda: drift_status(
                    self.get_name(), self.timing.snapshot().drift
                ),
            },
            process=bridge is None,
        )

    @property
    def parameters(self) -> TaskConfig:
        """The present values."""
        return self._declared.value

    @property
    def session(self) -> Session:
        """The session that the task runs in."""
        return self.bridge.session

    @property
    def loaded(self) -> Task | None:
        """Model and variants; None while unconfigured."""
        return self.session.tasks.get(self.task)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes; empty while unconfigured."""
        loaded = self.loaded
        return () if loaded is None else loaded.model.labels

    @property
    def input_key(self) -> InputKey:
        """The subscription that the task needs when it has no camera in its process."""
        values = self.parameters
        return InputKey(
            self.resolve_topic_name("image_raw"),
            values.image_transport,
            values.input_qos,
            values.input_qos_depth,
            values.input_qos_deadline_ms,
        )

    @property
    def frequency_hz(self) -> float:
        """Rate at which frames are expected."""
        values = self.parameters
        rate_hz = values.expected_frequency
        # Asked by diagnostics too, where a camera that is not there is no reason to fail.
        if not rate_hz and values.camera in self.bridge.cameras:
            rate_hz = self.bridge.cameras[values.camera].rate_hz
        return rate_hz or DEFAULT_FREQUENCY_HZ

    @property
    def period_ns(self) -> int:
        """Expected time between two frames."""
        return int(1e9 / self.frequency_hz)

    @property
    def frame_size(self) -> tuple[int, int]:
        """Height and width of the frames that will come, as far as they are known.

        ConfigurationError when its camera is not in the process, or not configured.
        """
        values = self.parameters
        if not values.camera:
            return values.image_height, values.image_width
        size = self.bridge.camera(values.camera).size
        if size is None:
            raise ConfigurationError(f"camera {values.camera!r} is not configured")
        return size

    @property
    def deadline_ns(self) -> int:
        """Relative deadline."""
        return self.parameters.deadline_ns(self.period_ns)

    # -- lifecycle -----------------------------------------------------------------------------

    def configure(self) -> None:
        """Load the model, build and measure every variant, make the publishers."""
        if self._process_parameters is not None:
            self.bridge.start(self._process_parameters.value, self.parameters.threads)
        values = self.parameters
        self.timing = self._make_timing(values)
        logger = self.get_logger()

        def log(text: str) -> None:
            logger.info(text)
            # Their timer waits for this thread meanwhile.
            self._diagnostics.publish()

        self._diagnostics.publish()
        loaded = self.session.load(values, self.frame_size, log=log, on_device=bool(values.camera))
        if loaded.allocate_frame is not None:
            self.bridge.camera(values.camera).use_memory(self.task, loaded.allocate_frame)
        self._arrivals = Arrivals()
        self.published = 0
        qos = make_qos(values.output_qos, values.output_qos_depth)
        self._results = make_result_topics(values.kind, self, qos)
        shared = self._primary
        self._labels = LabelTopics(self, ["~/label_info"] + ["label_info"] * shared)
        self._debug_image = DebugImage(
            self, ["~/debug_image"] + ["debug_image"] * shared, self.labels
        )
        self._reports = TimingReports(
            self, self.timing, lambda: () if self.loaded is None else self.loaded.variant_names
        )
        self._closables = [self._results, self._labels, self._debug_image, self._reports]
        self._labels.publish(self.labels, values.confidence_threshold)

    def activate(self) -> None:
        """Let the task run, then let its frames come."""
        self.session.activate(
            self.task,
            self._on_record,
            period_ns=self.period_ns,
            deadline_ns=self.deadline_ns,
            precedence=self._precedence,
        )
        self.bridge.join(self.task, self, self.input_key.topic)
        if not self.bridge.cascading:
            self.bridge.commit()
        self.bridge.connect(self.task, self, self.parameters.camera, self.input_key)
        self.session.start_build(self.task, self.get_logger())

    def deactivate(self) -> None:
        """Stop the frames, end the jobs, forget the task."""
        self.bridge.leave(self.task)
        self.session.deactivate(self.task)

    def cleanup(self) -> None:
        """Give model and publishers back."""
        self._close_topics()
        self.session.unload(self.task)
        if self._process_parameters is not None:
            self.bridge.stop()

    def end(self) -> None:
        """Stop at once."""
        self.bridge.disconnect(self.task)
        self.session.stop_build(self.task)
        if self._process_parameters is not None:
            self.bridge.stop(timeout_s=0.2, quickly=True)
        # With their threads, which would keep the node and its DDS participant alive.
        self._close_topics()

    def _close_topics(self) -> None:
        while self._closables:
            self._closables.pop().close()
        self._results = self._reports = None

    # -- frames --------------------------------------------------------------------------------

    def accept(self, frame: Frame, capture_ns: int) -> bool:
        """Note that a frame arrived; called by the camera's or the ROS thread."""
        if self._enabled:
            self._arrivals.observe(time.monotonic_ns(), frame.stamp_ns, capture_ns)
        return self._enabled

    def on_bad_frame(self, frame: Frame, capture_ns: int, reason: str) -> None:
        """Count a frame that is no image, as failed."""
        if self._enabled:
            self.session.executor.reject(self.task, frame, capture_ns, reason)
            self._arrivals.observe(time.monotonic_ns(), frame.stamp_ns, capture_ns)

    def _on_record(self, record: JobRecord, work: Work, result: Result | None) -> None:
        """Publish the result of a job that ended, then its timing; on the delivery thread."""
        if result is not None and self._results is not None:
            self._results.publish(result, work.frame)
            self.published += 1
        published_ns = time.monotonic_ns()
        # For observers: they are called after everything below.
        work.scratch[PUBLISHED_NS] = published_ns
        now = self.timing.observe(record, published_ns, self._limits.allowed_ms)
        if self._reports is not None:
            self._reports.observe(record, now, record.outcome in FINISHED)
        if result is not None and self._debug_image.wanted:
            caption = (
                f"{self.task}  {record.variant}  {record.response_time_ns / 1e6:.1f} ms  "
                f"{record.outcome.value}"
            )
            self._debug_image.put(DebugItem(work.frame, result, caption))
        if self._observer is not None:
            self._observer(record, work)

    # -- parameters and services ---------------------------------------------------------------

    def _apply(self, before: TaskConfig, values: TaskConfig) -> None:
        """Bring dynamic parameters into effect, from the next frame on."""
        if self.loaded is None:
            return
        self.session.update(values)
        if values.confidence_threshold != before.confidence_threshold:
            self._labels.publish(self.labels, values.confidence_threshold)

    def _on_enable(self, request: Any, response: Any) -> Any:
        self._enabled = request.data
        response.success = True
        response.message = "frames are taken" if request.data else "frames are ignored"
        if request.data and self.session.is_active(self.task):
            try:
                retried = self.session.executor.retry(self.task)
            except StillRunningError as error:
                response.success, retried = False, safe_text(error)
            if retried:
                response.message = retried
        return response

    def _make_timing(self, values: TaskConfig) -> TaskTiming:
        """Statistics from nothing, and the profile that they are compared with."""
        bridge, profiles = self.bridge, load_time_profiles(values.profile, self.task)
        if not profiles.source:
            drift = DriftWatch(profiles, bridge.clocks_set_at)
        else:
            if profiles.by_clocks:
                bridge.want_clocks()
            drift = DriftWatch(
                profiles, lambda ns: bridge.clocks_set_at(ns) or bridge.clocks_at(ns)
            )
        return TaskTiming(values.wcet_exceedance, values.statistics_half_life, drift)

    # -- diagnostics ---------------------------------------------------------------------------

    def _make_processing_status(self) -> Any:
        timing = self.timing.snapshot()
        return processing_status(
            self.get_name(),
            self._limits,
            node_state=self.state_name,
            fault=self.fault,
            processing_ms=timing.processing_ms,
            inference_ms=timing.inference_ms,
            output_latency_ms=timing.output_latency_ms,
            consecutive_delay_ms=timing.consecutive_delay_ms,
        )

    def _make_task_status(self) -> Any:
        values: dict[str, object] = {
            "state": self.state_name,
            "model": self.parameters.model,
            "kind": self.parameters.kind,
        }
        level, message = OK, self.state_name
        if self.fault:
            level, message = ERROR, self.fault
        session, loaded, snapshot = self.session, self.loaded, self.snapshot
        if snapshot is not None:
            values |= describe_counts(snapshot, self.published)
            if snapshot.suspended:
                level, message = ERROR, f"suspended: {snapshot.suspended}"
            elif snapshot.withdrawn:
                level, message = WARN, "withdrawn: " + ", ".join(snapshot.withdrawn)
            if level == OK and (failure := session.executor.selector_failure):
                level, message = WARN, f"selector set aside: {failure}"
        if loaded is not None:
            values |= describe_variants(loaded, session.find_build(self.task))
            values |= session.batches.describe(self.task)
            lost = set(loaded.left_out) - set(loaded.missing)
            if level == OK and lost:
                level, message = WARN, "left out: " + ", ".join(sorted(lost))
        timing = self.timing.snapshot()
        for variant, figures in timing.variants.items():
            values |= {f"{variant}.{key}": value for key, value in asdict(figures).items()}
        values |= {"deadline_misses": timing.misses, "deadline_miss_ratio": timing.miss_ratio}
        values |= session_values(self.session)
        if level == OK and (lack := self.session.describe_trace()[0]):
            level, message = WARN, lack
        verdict = session.verdict
        active = level == OK and self.state_name == "active"
        if active and verdict is not None and verdict.schedulable is not True:
            level, message = WARN, str(verdict)
        return make_status(f"{self.get_name()}: task_status", level, message, values)

    @property
    def _limits(self) -> ProcessingLimits:
        """Of the processing time: its own, else the deadline."""
        values = self.parameters
        allowed_ms = values.allowed_processing_ms or values.deadline_ms or self.period_ns / 1e6
        return ProcessingLimits(allowed_ms, values.acceptable_delay_ms)

    def _make_camera_status(self) -> Any:
        values = self.parameters
        camera = self.bridge.cameras.get(values.camera)
        stream = self.bridge.inputs.get(self.input_key)
        error, ended, extra = "", False, {}
        if camera is not None and camera.camera is not None:
            error, ended = camera.camera.state.error, camera.camera.state.ended
        if stream is not None:
            extra = {
                "deadline_events": stream.deadline_events,
                "distrusted_stamps": stream.distrusted_stamps,
                "incompatible_qos": stream.incompatible or "none",
            }
            if stream.incompatible and not self._arrivals.snapshot(time.monotonic_ns()).count:
                error = f"{stream.key.topic}: incompatible QoS: {stream.incompatible}"
        return camera_status(
            self.get_name(),
            self._arrivals.snapshot(time.monotonic_ns()),
            expected_hz=self.frequency_hz,
            tolerance=values.tolerance,
            node_state=self.state_name if self._enabled else "disabled",
            error=error,
            ended=ended,
            extra=extra,
        )

    @property
    def snapshot(self) -> Any:
        """The executor's counts of this task; None while it is not active."""
        if not self.session.is_active(self.task):
            return None
        self.session.executor.check_watchdog()
        return self.session.executor.snapshot(self.task)


class DetectorNode(TaskNode):
    """A task node whose defaults are those of detection."""

    def __init__(self, name: str = "detector", **options: Any) -> None:
        kind = defaults_of("detector")
        super().__init__(name, defaults={**kind, **options.pop("defaults", {})}, **options)


class SegmenterNode(TaskNode):
    """A task node whose defaults are those of segmentation."""

    def __init__(self, name: str = "segmenter", **options: Any) -> None:
        kind = defaults_of("segmenter")
        super().__init__(name, defaults={**kind, **options.pop("defaults", {})}, **options)
