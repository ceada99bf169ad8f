# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The composed graph in the calling process, from its start to its end."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.cameras.camera import CameraState
from jetson_dnn_rt.config.parameter_file import read_parameter_file
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.models.heads.base import Kind
from jetson_dnn_rt.nodes.process.context import open_context
from jetson_dnn_rt.nodes.process.running import time_nodes
from jetson_dnn_rt.nodes.process.spinner import Spinner
from jetson_dnn_rt.platforms.load import Load, compare, read_cpu
from jetson_dnn_rt.runtime.realtime import Setting
from jetson_dnn_rt.runtime.task_entry import TaskSnapshot
from jetson_dnn_rt.runtime.verdict_watch import PresentVerdict
from jetson_dnn_rt.scheduling.analysis import Verdict
from jetson_dnn_rt.tasks import JobRecord, Work
from jetson_dnn_rt.traces.schema import SHARING, TracedTask

if TYPE_CHECKING:
    from jetson_dnn_rt.nodes.coordinator.coordinator_node import CoordinatorReport
    from jetson_dnn_rt.nodes.perception import PerceptionNode

Overrides = Mapping[str, Mapping[str, object]]

DRAIN_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class TaskInfo:
    """A task as it starts."""

    traced: TracedTask
    kind: Kind
    labels: tuple[str, ...]
    variant: str  # the one that runs first
    stream: str = ""  # the camera of this process, or the topic, that its frames come from


@dataclass(frozen=True)
class CameraReport:
    """A camera: source, size of its first frame in pixels, rate, what it delivered."""

    name: str
    source: str
    width: int
    height: int
    rate_hz: float
    frames: int  # that were delivered
    expected: int | None  # frames that were due by then; None where the rate is not known
    slipped: int | None  # of these, which did not come
    error: str
    size_changes: int  # frames of another size than the one before
    unreadable: int  # pictures that could not be decoded, which are not among the frames


@dataclass(frozen=True)
class GraphInfo:
    """The graph when everything is active and the first frame is about to come."""

    tasks: dict[str, TaskInfo]
    cameras: dict[str, CameraReport]
    verdict: Verdict
    settings: tuple[Setting, ...]
    parameters: dict[str, dict[str, Any]]  # of every node, as they are now, and `SHARING`
    clocks_at: Callable[[int], str]  # configuration at a steady time in ns, also after the end


@dataclass(frozen=True)
class GraphReport:
    """The graph at its end; every released frame is among the outcomes in `counts`."""

    info: GraphInfo
    cameras: dict[str, CameraReport]
    counts: dict[str, TaskSnapshot]
    coordinator: CoordinatorReport | None  # None: there is none
    left_out: dict[str, dict[str, str]]
    """By task, variants that were asked for and are not there, with the reason."""
    findings: dict[str, dict[str, str]]
    """By task, what is wrong with its outputs, by cause; see `models.output_check`."""
    seconds: float  # from the first frame's release to the last job's end
    present: PresentVerdict
    """At the end: with the budgets that were learned, and the rates that were measured."""
    load: Load | None  # of the machine, while frames came

    @property
    def verdict(self) -> str:
        """The verdict at the end, beside the frames that met their deadlines.

        That of the start is named where it was another.
        """
        counts = self.counts.items()
        text = self.present.verdict.explain({name: one.met_and_all for name, one in counts})
        before = self.info.verdict
        if before.schedulable is not self.present.verdict.schedulable:
            text += f"; at the start, by its warm-up runs: {before}"
        return text


def run_graph(
    params_file: Path | None,
    overrides: Overrides,
    *,
    frames: int | None,
    seconds: float | None,
    observer: Callable[[JobRecord, Work], None],
    on_ready: Callable[[GraphInfo], None] | None = None,
    stop: threading.Event | None = None,
    begin_ns: int | None = None,
) -> GraphReport:
    """Run the nodes of ``perception`` in this process until every frame is accounted for.

    `overrides` are parameters by node above the file's: ``{"camera": {"source": "video:x.mp4"}}``.
    The run ends after `frames` of each camera of this process, after `seconds`, or when `stop` is
    set. `observer` sees every job that ends, on the delivery thread; `on_ready` is called when all
    tasks are active, before the first frame; `begin_ns` is when the start began, by default now.
    ConfigurationError, which names the task and the reason: the graph cannot be configured or
    activated.
    """
    begin_ns = time.monotonic_ns() if begin_ns is None else begin_ns
    from rclpy.exceptions import ParameterException

    from jetson_dnn_rt.nodes.perception import PerceptionNode

    stop, wake = stop or threading.Event(), threading.Event()
    args = ["--ros-args", "--params-file", str(params_file)] if params_file else []
    file = read_parameter_file(params_file) if params_file is not None else None
    try:
        context = open_context(args)
    except Exception as error:
        raise ConfigurationError(f"parameter file {params_file}: {error}") from error
    info: list[GraphInfo] = []

    def announce() -> None:
        info.append(_describe(node))
        if on_ready is not None:
            on_ready(info[0])

    with contextlib.ExitStack() as ended:
        ended.callback(context.try_shutdown)
        try:
            node = PerceptionNode(
                context=context,
                arguments=args,
                overrides=overrides,
                frame_limit=frames,
                observer=observer,
                on_camera_ended=wake.set,
            )
        except ParameterException as error:
            raise ConfigurationError(str(error)) from error
        node.parameter_file = file
        ended.callback(node.destroy_node)
        node.on_tasks_ready = announce
        spinner = ended.enter_context(_spinning(node, context))
        node.bridge.want_clocks()
        node.start_times = time_nodes(begin_ns, node)
        with node.silenced():
            if not node.autostart():
                raise ConfigurationError(node.fault)
        active_ns, before = time.monotonic_ns(), read_cpu()
        _wait(
            node, spinner, None if seconds is None else active_ns + int(seconds * 1e9), stop, wake
        )
        for camera in node.cameras.values():
            if camera.camera is not None:
                camera.camera.stop()
        for task in node.tasks:
            node.bridge.disconnect(task)
        session = node.bridge.session
        executor, tasks = session.executor, session.tasks
        executor.wait_idle(DRAIN_TIMEOUT_S)
        load = compare(before, read_cpu())
        present = session.judge(over=True)
        assert present is not None  # it was judged at the start
        return GraphReport(
            info=info[0],
            cameras={name: _describe_camera(name, one) for name, one in node.cameras.items()},
            counts={task: executor.snapshot(task) for task in node.tasks},
            coordinator=node.coordinator and node.coordinator.describe_run(),
            left_out={name: dict(task.left_out) for name, task in tasks.items()},
            findings={name: task.output_check.conclude() for name, task in tasks.items()},
            seconds=(time.monotonic_ns() - active_ns) / 1e9,
            present=present,
            load=load,
        )


@contextlib.contextmanager
def _spinning(node: PerceptionNode, context: Any) -> Iterator[Spinner]:
    spinner = Spinner(context)
    spinner.add(node)
    spinner.start()
    try:
        yield spinner
    finally:
        if not spinner.ended.is_set():
            node.trigger_shutdown()
        spinner.stop()
        spinner.executor.shutdown()


def _wait(
    node: PerceptionNode,
    spinner: Spinner,
    limit_ns: int | None,
    stop: threading.Event,
    wake: threading.Event,
) -> None:
    """Wait for the end of all cameras, for a time or for `stop`."""
    while not stop.is_set():
        if node.cameras and all(camera.ended.is_set() for camera in node.cameras.values()):
            break
        # Signals only set `stop`, so it is polled.
        left_s = 0.1 if limit_ns is None else min(0.1, (limit_ns - time.monotonic_ns()) * 1e-9)
        if left_s <= 0 or spinner.ended.is_set():
            break
        wake.wait(left_s)
        wake.clear()
    if spinner.error is not None:
        raise RuntimeError(f"the ROS thread ended: {spinner.error!r}") from spinner.error


def _describe(node: PerceptionNode) -> GraphInfo:
    from jetson_dnn_rt.nodes.process.parameters import read_parameters

    session = node.bridge.session
    assert session.verdict is not None
    tasks = {
        name: TaskInfo(
            traced,
            task.model.kind,
            task.model.labels,
            task.default,
            traced.camera or node.tasks[name].input_key.topic,
        )
        for name, traced in session.describe_tasks().items()
        for task in [session.tasks[name]]
    }
    cameras = {name: _describe_camera(name, camera) for name, camera in node.cameras.items()}
    nodes = {node.get_name(): node, **node.named_children}
    parameters = {name: read_parameters(one) for name, one in nodes.items()}
    # The number in use, which a trial may have decided.
    parameters[node.get_name()]["workers"] = session.split.workers
    parameters[SHARING] = session.describe_sharing()
    return GraphInfo(
        tasks,
        cameras,
        session.verdict,
        session.executor.realtime.settings,
        parameters,
        node.bridge.clocks_at,
    )


def _describe_camera(name: str, node: Any) -> CameraReport:
    height, width = node.size or (0, 0)
    camera = node.camera
    state = CameraState(0, 0, "", False) if camera is None else camera.state
    return CameraReport(
        name,
        node.parameters.source,
        width,
        height,
        node.rate_hz,
        state.frames,
        state.expected,
        state.slipped,
        state.error,
        0 if camera is None else camera.sizes.changes,
        state.unreadable,
    )
