# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The node of one task: a model on a stream of frames, every frame with a deadline."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from std_srvs.srv import SetBool

from jetson_dnn_rt.cameras.stamps import STAMP
from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.config.task import TaskConfig, defaults_of
from jetson_dnn_rt.errors import ConfigurationError, StillRunningError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.nodes.process.lifecycle import ManagedNode
from jetson_dnn_rt.nodes.process.qos import make_qos
from jetson_dnn_rt.nodes.reports.arrivals import Arrivals
from jetson_dnn_rt.nodes.reports.diagnostics import (
    ERROR,
    OK,
    WARN,
    DiagnosticsPublisher,
    judge_losses,
    make_status,
    processing_status,
    stream_status,
)
from jetson_dnn_rt.nodes.reports.task_timing import TaskTiming
from jetson_dnn_rt.nodes.reports.timing_reports import TimingReports
from jetson_dnn_rt.nodes.tasks.debug_image import DebugImage
from jetson_dnn_rt.nodes.tasks.frame_timing import FrameTimingTopic
from jetson_dnn_rt.nodes.tasks.image_input import ImageInput, InputKey
from jetson_dnn_rt.nodes.tasks.result_topics import RESULT_TOPICS, LabelTopics
from jetson_dnn_rt.nodes.tasks.session_bridge import SessionBridge
from jetson_dnn_rt.nodes.tasks.task_status import (
    describe_counts,
    describe_variants,
    drift_status,
    explain_limit,
    session_values,
)
from jetson_dnn_rt.platforms.load import LOAD
from jetson_dnn_rt.results import Result
from jetson_dnn_rt.runtime.drift_watch import DriftWatch, load_time_profiles
from jetson_dnn_rt.runtime.session import FINISHED, Session
from jetson_dnn_rt.runtime.task import Task
from jetson_dnn_rt.safety.faults import safe_text
from jetson_dnn_rt.tasks import JobRecord, Work

PUBLISHED_NS = "published_ns"
"""Key in `Work.scratch`: when its result was handed to ROS, on the steady clock."""


class TaskNode(ManagedNode):
    """A lifecycle node that runs one model; alone with a session of its own, or composed.

    `task` is its name in the session, by default the node's; `bridge` that of the composed
    process. Among tasks with equal deadlines the one with the least `precedence` goes first. The
    `primary` one publishes ``label_info`` and ``debug_image`` of its namespace; every task has its
    own below its name. `defaults` are those that differ from `TaskConfig`'s. `observer` sees every
    job that ends, on the delivery thread.
    """

    kind = ""
    """Whose defaults it has, and its own name by default."""

    def __init__(
        self,
        name: str = "",
        *,
        task: str = "",
        bridge: SessionBridge | None = None,
        precedence: int = 0,
        primary: bool = True,
        defaults: dict[str, Any] | None = None,
        observer: Callable[[JobRecord, Work], None] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name or self.kind, **options)
        self.task = task or self.get_name()
        given = {"name": self.task, **defaults_of(self.kind), **(defaults or {})}
        self._declared = self.declare(TaskConfig, defaults=given, on_change=self._apply)
        self._process = self.declare(ProcessConfig) if bridge is None else None
        self.bridge = bridge or SessionBridge(self)
        self._precedence, self._primary, self._observer = precedence, primary, observer
        self._results: Any = None
        self._debug_image: DebugImage | None = None
        self._enabled = True
        self._arrivals = Arrivals()
        self._results_made = Arrivals()
        self.timing = TaskTiming(self.parameters.wcet_exceedance)
        self._reports: TimingReports | None = None
        self._frame_timing: FrameTimingTopic | None = None
        self.published = 0
        self.create_service(SetBool, "~/enable", self._on_enable)
        self._diagnostics = DiagnosticsPublisher(
            self,
            {
                "processing_time_status": self._make_processing_status,
                "camera_status": self._make_camera_status,
                "image_status": self._make_image_status,
                "result_status": self._make_result_status,
                "task_status": self._make_task_status,
                "drift_status": self._make_drift_status,
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
    def input_key(self) -> InputKey:
        """The subscription that the task needs when it has no camera in its process."""
        values = self.parameters
        return InputKey(
            self.resolve_topic_name("image_raw"),
            values.image_transport,
            values.input_qos,
            values.input_qos_depth,
            values.input_qos_deadline_ms,
            values.stamp_clock,
        )

    @property
    def period_ns(self) -> int:
        """Expected time between two frames."""
        # Diagnostics ask for it too, and must not fail because of a missing camera.
        camera = self.bridge.cameras.get(self.parameters.camera)
        return self.parameters.period_ns(0.0 if camera is None else camera.rate_hz)

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
        if self._process is not None:
            self.bridge.start(self._process.value, self.parameters.threads)
        values = self.parameters
        self.timing = self._make_timing(values)
        loaded = self.session.load(
            values, self.frame_size, log=self.get_logger().info, on_device=bool(values.camera)
        )
        if loaded.allocate_frame is not None:
            self.bridge.camera(values.camera).use_memory(self.task, loaded.allocate_frame)
        self._arrivals = Arrivals(self.period_ns, values.tolerance)
        self._results_made = Arrivals(self.period_ns, values.tolerance)
        self.published = 0
        spaces = ("~/", "") if self._primary else ("~/",)
        self._results = RESULT_TOPICS[values.kind](self, values, loaded.model)
        own = dict.fromkeys((f"{space}label_info" for space in spaces), self._results.labels)
        self._labels = LabelTopics(self, {**own, **self._results.mask_labels})
        self._debug_image = DebugImage(
            self,
            [f"{space}debug_image" for space in spaces],
            loaded.model.labels,
            lambda: make_qos(values.debug_image_qos, 1),
        )
        self._reports = TimingReports(
            self, self.timing, lambda: loaded.variant_names, values.debug_topics
        )
        self._frame_timing = FrameTimingTopic(self, self.task, self.timing, self._read_budgets)
        self._labels.publish(values.confidence_threshold)

    def activate(self) -> None:
        """Start the task, then its frames."""
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
        """Stop the frames, end the jobs, remove the task."""
        self.bridge.leave(self.task)
        try:
            self.session.deactivate(self.task)
        except StillRunningError as error:
            # No frame comes any more, so this is not to be undone; `activate` refuses meanwhile.
            self.get_logger().warning(f"deactivated, but {error}")

    def cleanup(self) -> None:
        """Release the model, and stop what still runs."""
        self._stop_publishing()
        self.session.unload(self.task)
        if self._process is not None:
            self.bridge.stop()

    def end(self) -> None:
        """Stop at once."""
        self.bridge.leave(self.task)
        self.session.stop_build(self.task)
        if self._process is not None:
            self.bridge.stop(timeout_s=0.2, quickly=True)
        elif self.session.running:  # the other tasks of the process go on
            with contextlib.suppress(StillRunningError):
                self.session.deactivate(self.task)
            self.session.unload(self.task)
        self._stop_publishing()

    def _stop_publishing(self) -> None:
        threaded = (self._results, self._debug_image)
        self._results = self._debug_image = self._reports = self._frame_timing = None
        for publisher in threaded:
            if publisher is not None:
                # Its thread would keep the node and its DDS participant alive.
                publisher.close()

    # -- frames --------------------------------------------------------------------------------

    def accept(self, frame: Frame, capture_ns: int) -> bool:
        """Note that a frame arrived; called by the camera's or the ROS thread."""
        if self._enabled:
            self._arrivals.observe(time.monotonic_ns(), frame.stamp_ns, capture_ns, frame.doubt)
        return self._enabled

    def on_bad_frame(self, frame: Frame, capture_ns: int, reason: str) -> None:
        """Count a frame that is not an image as failed."""
        if self._enabled:
            self.session.executor.reject(self.task, frame, capture_ns, reason)
            self._arrivals.observe(time.monotonic_ns(), frame.stamp_ns, capture_ns, frame.doubt)

    def _on_record(self, record: JobRecord, work: Work, result: Result | None) -> None:
        """Publish the result of a job that ended, then its timing; on the delivery thread."""
        if result is not None and self._results is not None:
            self._results.publish(result, work.frame)
            self.published += 1
            frame = work.frame
            self._results_made.observe(
                time.monotonic_ns(), frame.stamp_ns, record.capture_ns, frame.doubt
            )
        published_ns = time.monotonic_ns()
        # For observers: they are called after everything below.
        work.scratch[PUBLISHED_NS] = published_ns
        known = work.frame.doubt != STAMP
        now = self.timing.observe(record, published_ns, self._allowed_ms, age_known=known)
        if self._reports is not None:
            self._reports.observe(record, now, record.outcome in FINISHED)
        timing_topic = self._frame_timing
        if timing_topic is not None and timing_topic.wanted:
            timing_topic.publish(record, now, work.frame)
        drawing = self._debug_image
        if result is not None and drawing is not None and drawing.wanted:
            caption = (
                f"{self.task}  {record.variant}  {record.response_time_ns / 1e6:.1f} ms  "
                f"{record.outcome.value}"
            )
            drawing.put(work.frame, result, caption)
        if self._observer is not None:
            self._observer(record, work)

    # -- parameters and services ---------------------------------------------------------------

    def _apply(self, before: TaskConfig, values: TaskConfig) -> None:
        """Bring dynamic parameters into effect, from the next frame on."""
        if self.loaded is None:
            return
        self.session.update(values)
        if values.confidence_threshold != before.confidence_threshold:
            self._labels.publish(values.confidence_threshold)

    def _on_enable(self, request: Any, response: Any) -> Any:
        if self.in_transition:
            response.message = "the node changes its state: ask again when it has done so"
            return response
        if self.state_name == "finalized":
            response.message = "the node is finalized; fix: restart the process"
            return response
        self._enabled = request.data
        response.success = True
        response.message = "frames are taken" if request.data else "frames are ignored"
        if request.data and self.session.is_active(self.task):
            try:
                retried = self.session.executor.supervisor.retry(self.task)
            except StillRunningError as error:
                response.success, retried = False, safe_text(error)
            if retried:
                response.message = retried
        return response

    def _make_timing(self, values: TaskConfig) -> TaskTiming:
        """New statistics, with the profile that they are compared with."""
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
        return processing_status(
            self.timing.snapshot(),
            allowed_ms=self._allowed_ms,
            acceptable_delay_ms=self.parameters.acceptable_delay_ms,
            node_state=self.state_name,
            fault=self.fault,
        )

    def _make_drift_status(self) -> Any:
        drift = self.timing.snapshot().drift
        self.session.note_drift(self.task, any(state.alarm for state in drift.states))
        return drift_status(drift)

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
            if level == OK and (violated := explain_limit(snapshot)):
                level, message = WARN, violated
            if level == OK and (failure := session.selector_failure):
                level, message = WARN, f"selector set aside: {failure}"
            if level == OK and (stale := self._explain_stale()):
                level, message = WARN, stale
        if loaded is not None:
            values |= describe_variants(loaded, session.find_build(self.task))
            values |= session.batches.describe(self.task)
            lost = set(loaded.left_out) - set(loaded.missing)
            if level == OK and lost:
                level, message = WARN, "left out: " + ", ".join(sorted(lost))
            findings = loaded.output_check.findings
            values |= {f"outputs.{cause}": text for cause, text in findings.items()}
            if level == OK and findings:
                level, message = WARN, "; ".join(findings.values())
        timing = self.timing.snapshot()
        for variant, figures in timing.variants.items():
            values |= {f"{variant}.{key}": value for key, value in asdict(figures).items()}
        values |= {"deadline_misses": timing.misses, "deadline_miss_ratio": timing.miss_ratio}
        values |= session_values(session)
        if level == OK and (lack := session.describe_trace()[0]):
            level, message = WARN, lack
        present = session.judge()
        active = level == OK and self.state_name == "active"
        if active and present is not None and present.verdict.schedulable is not True:
            level, message = WARN, str(present)
        if (load := LOAD.look()) is not None:
            values["load"] = str(load)
            if load.is_crowded and self.state_name == "active":
                message += f"; {load}"
        return make_status(level, message, values)

    @property
    def _allowed_ms(self) -> float:
        """Limit of the processing time: its own, else the deadline."""
        values = self.parameters
        return values.allowed_processing_ms or values.deadline_ms or self.period_ns / 1e6

    def _make_camera_status(self) -> Any:
        camera = self.bridge.cameras.get(self.parameters.camera)
        stream = self.bridge.inputs.get(self.input_key)
        error, ended, extra, silence = "", False, {}, None
        source = None if camera is None else camera.camera
        if source is not None:
            error, ended = source.state.error, source.state.ended
        if stream is not None:
            extra = {
                "deadline_events": stream.deadline_events,
                "incompatible_qos": stream.incompatible or "none",
                **stream.stamps.describe(),
                **stream.count_publishers(),
                **stream.describe_delivery(),
                **stream.sizes.describe(),
            }
            silence = stream.explain_silence
            if stream.incompatible and not self._arrivals.snapshot(0).count:
                error = f"{stream.key.topic}: incompatible QoS: {stream.incompatible}"
        return self._describe_input(stream, error=error, ended=ended, extra=extra, silence=silence)

    def _make_image_status(self) -> Any:
        """How the image topic arrives; told by one of the tasks that share a subscription."""
        stream = self.bridge.inputs.get(self.input_key)
        if stream is None or stream.fanout.first != self.task:
            return None
        return self._describe_input(stream, topic=stream.key.topic, silence=stream.explain_silence)

    def _make_result_status(self) -> Any:
        results = self._results
        if results is None:
            return None
        return self._describe_stream(self._results_made, topic=results.topic)

    def _describe_input(self, stream: ImageInput | None, **options: Any) -> Any:
        return self._describe_stream(
            self._arrivals,
            self.parameters.max_age_ns,
            max_age_ms=self.parameters.max_age_ms,
            stamp_fault="" if stream is None else stream.stamps.fault,
            delivery=(OK, "") if stream is None else _judge_delivery(stream),
            **options,
        )

    def _explain_stale(self) -> str:
        """Explain a share of frames skipped for their age above `tolerance`; empty below."""
        arrivals = self._arrivals.snapshot(time.monotonic_ns(), self.parameters.max_age_ns)
        if arrivals.recent_stale <= self.parameters.tolerance * arrivals.recent:
            return ""
        return (
            f"{arrivals.recent_stale} of the last {arrivals.recent} frames were skipped for their "
            "age: camera_status says why"
        )

    def _describe_stream(self, arrivals: Arrivals, max_age_ns: int = 0, **options: Any) -> Any:
        return stream_status(
            arrivals.snapshot(time.monotonic_ns(), max_age_ns),
            expected_hz=1e9 / self.period_ns,
            tolerance=self.parameters.tolerance,
            node_state=self.state_name if self._enabled else "disabled",
            **options,
        )

    def _read_budgets(self) -> dict[str, float]:
        """Present budgets of the variants in ms; empty while it is not active."""
        snapshot = self.snapshot
        return {} if snapshot is None else {v: sum(b) for v, b in snapshot.budgets_ms.items()}

    @property
    def snapshot(self) -> Any:
        """The executor's counts of this task; None while it is not active."""
        return self.session.snapshot(self.task)


def _judge_delivery(stream: ImageInput) -> tuple[bytes, str]:
    """Judge lost images and several publishers of one topic, for `stream_status`."""
    level, text = judge_losses(stream.losses.snapshot(), stream.explain_losses)
    if mixture := stream.explain_mixture():
        level, text = max(level, WARN), f"{mixture}; {text}" if text else mixture
    return level, text


class DetectorNode(TaskNode):
    """A task node whose defaults are those of detection."""

    kind = "detector"


class SegmenterNode(TaskNode):
    """A task node whose defaults are those of segmentation."""

    kind = "segmenter"


class ClassifierNode(TaskNode):
    """A task node whose defaults are those of classification."""

    kind = "classifier"


TASK_NODES: dict[str, type[TaskNode]] = {
    node.kind: node for node in (DetectorNode, SegmenterNode, ClassifierNode)
}
"""Nodes by the name of a task that makes its defaults."""
