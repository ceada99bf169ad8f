# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""All threads of a process at work, in real time, with tasks that need next to nothing.

A camera releases frames of small pictures to an executor; its records go to an observer and to a
trace; a thread reads and sets the clocks of a board of files. A `Scenario` is a set-up that makes
the scheduling take other ways: batches, cancelling, helpers, limits, a selector, overload, stages
that raise and hang. Two tasks, `TASKS`, are never in trouble for long: their frames have to flow.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from cohort_tables import make_clocks
from sysfs_trees import TREES, FakeKernel, write_tree

from jetson_dnn_rt.cameras import camera as camera_module
from jetson_dnn_rt.cameras.camera import Camera
from jetson_dnn_rt.cameras.source import FrameSource, SourceOptions, open_source
from jetson_dnn_rt.config.process import RealtimeConfig
from jetson_dnn_rt.coordinator import clock_thread as clock_module
from jetson_dnn_rt.coordinator.clock_thread import ClockThread, ClockWatch
from jetson_dnn_rt.errors import FrameError, NotAnsweringError, RunCancelledError, SourceError
from jetson_dnn_rt.frames import Frame, Image
from jetson_dnn_rt.nodes.reports.arrivals import Arrivals
from jetson_dnn_rt.nodes.reports.diagnostics import ERROR, process_status, stream_status
from jetson_dnn_rt.platforms.detect import detect
from jetson_dnn_rt.runtime import supervision, task_entry
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.runtime.job_trace import JobTrace
from jetson_dnn_rt.safety import faults as faults_module
from jetson_dnn_rt.safety.faults import FAULTS
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.selection import Gate, StaticSelector
from jetson_dnn_rt.scheduling.task_state import TaskState
from jetson_dnn_rt.tasks import JobRecord, Outcome, Stage, TaskParameters, Work
from jetson_dnn_rt.traces import room as room_module
from jetson_dnn_rt.traces import writer as writer_module
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.room import TraceRoom
from jetson_dnn_rt.traces.schema import TracedTask, TraceMetadata

MS = 1_000_000
RATE_HZ = 50.0
TASKS = ("one", "two")
GUEST = "guest"  # comes and goes
STAGES = ("preprocess", "inference", "decode")
GENEROUS_MS, TIGHT_MS = 2000, 6
STAGE_TIMEOUT_MS = 1000
PLAIN = RealtimeConfig(gc_freeze=False, mallopt=False, switch_interval_us=0)
NUMBERS = re.compile(r"\d+(\.\d+)?")


def hurry(stuck_s: float) -> None:
    """Let the package do in hundredths of a second what it does about once a second.

    After `stuck_s` it names a thread that does not go on.
    """
    faults_module.STUCK_S = stuck_s
    faults_module.note_destructors()  # as the executables do
    supervision.WATCH_NS = 50 * MS
    writer_module.BATCH_SECONDS = writer_module.SYNC_SECONDS = 0.04
    writer_module.CLOSE_S = 2.0
    room_module.PARTS = 16
    clock_module.SAMPLE_S = 0.01
    camera_module.FIRST_BACKOFF_NS, camera_module.LONGEST_BACKOFF_NS = 5 * MS, 20 * MS
    task_entry.PAUSES_NS, task_entry.MAX_RESTARTS = (0,) * 1000, 1000
    supervision.MAX_TASK_HUNG = supervision.MAX_HUNG = 1000


@dataclass(frozen=True)
class Scenario:
    """A set-up; `stir` is called at the rate of the frames, to make something happen at times."""

    name: str
    build: Callable[[Rig], None]
    stir: Callable[[Rig, int], None] = lambda rig, number: None
    workers: int = 2
    helpers: int = 0
    max_inflight: tuple[tuple[str, int], ...] = ()
    cancels: bool = False
    camera: str = "files"  # or "device", or "node" where there is ROS


class Device(FrameSource):
    """A device that stops every now and then."""

    height, width, rate_hz, live = 48, 64, RATE_HZ, True

    def __init__(self) -> None:
        self._left = 60

    def read(self, out: Image) -> Image:
        time.sleep(1.0 / RATE_HZ)
        self._left -= 1
        if not self._left:
            raise SourceError("the device stopped")
        self.capture_ns = time.monotonic_ns()
        return out if self._left % 10 else np.zeros((10, 10, 3), np.uint8)


class Cancellable:
    """A stage that can be told to end."""

    def __init__(self, times_ms: Sequence[float]) -> None:
        self._times_ms, self._told = times_ms, threading.Event()

    def run(self, work: Work) -> None:
        self._told.clear()
        if self._told.wait(self._times_ms[work.frame.sequence % len(self._times_ms)] / 1e3):
            raise RunCancelledError("told to end")

    def cancel(self) -> None:
        self._told.set()


class Fickle(StaticSelector):
    """A selector that changes its mind at every boundary."""

    def choose(self, state: TaskState, job: Job, now_ns: int) -> str:
        variants = state.parameters.variants
        return variants[(job.sequence + job.next_stage) % len(variants)]

    def allowed(self, state: TaskState, job: Job) -> Sequence[str]:
        return state.parameters.variants

    def gate(self, state: TaskState, job: Job, now_ns: int) -> Gate:
        if job.sequence % 13 == 0:
            return Gate.CLOSED
        held = job.sequence % 7 == 0 and now_ns - job.release_ns < MS
        return Gate.HELD if held else Gate.OPEN


class Clocks:
    """A board of files, with the threads that set and read its clocks; outlives rigs."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        write_tree(folder / "tx2", TREES["tx2"])
        self.kernel = FakeKernel(folder / "tx2")
        platform = detect(self.kernel.root, allow_writes=True, files=self.kernel)
        assert platform.writable, platform.reason
        self._paths = list(platform._paths)  # type: ignore[attr-defined]
        self._before = self._settings()
        self.thread = ClockThread(platform, make_clocks(platform.space))
        self.thread.start()
        self.watch = ClockWatch(detect(self.kernel.root, files=self.kernel))

    def _settings(self) -> dict[str, str]:
        # Only what may be set, and without line ends: the guardian is another process, which
        # writes the files without the fake kernel behind them.
        root = self.kernel.root
        return {path: (root / path.lstrip("/")).read_text().strip() for path in self._paths}

    def close(self) -> list[str]:
        """Stop; returns what is not as it was before."""
        for thread in (self.thread, self.watch):
            thread.stop(1.0)
        after = self._settings()
        end_s = time.monotonic() + 5.0
        while not after.items() >= self._before.items() and time.monotonic() < end_s:
            time.sleep(0.02)
            after = self._settings()
        different = [path for path, text in self._before.items() if after.get(path) != text]
        return [f"clocks are not restored: {different}"] if different else []


class Rig:
    """The threads of one scenario, from `start` to `close`."""

    def __init__(self, scenario: Scenario, folder: Path, clocks: Clocks, ros: Any = None) -> None:
        self.scenario, self.clocks = scenario, clocks
        self.executor = Executor(
            scenario.workers,
            realtime=PLAIN,
            max_inflight=dict(scenario.max_inflight),
            helpers=scenario.helpers,
            cancels_for_urgent=scenario.cancels,
        )
        self.names: list[str] = []
        self.counts: dict[str, Counter[int]] = {}
        self.met: Counter[str] = Counter()
        self.sent = 0
        self._gate = threading.Lock()
        self._over = threading.Event()
        self._stirrer = threading.Thread(target=self._stir, name="stirrer")
        self._paused = True
        self._excused = 0
        self._arrivals = Arrivals(int(1e9 / RATE_HZ), 0.5)
        self._folder = folder / f"{scenario.name}-{time.monotonic_ns()}"
        pictures = folder / "pictures"
        if not pictures.is_dir():
            pictures.mkdir(parents=True)
            for number in range(3):
                picture = np.full((48, 64, 3), number, np.uint8)
                cv2.imwrite(os.fspath(pictures / f"{number}.png"), picture)
        self._pictures = f"images:{pictures}"
        self._ros = ros if scenario.camera == "node" else None
        self._node: Any = None
        self.trace = JobTrace(
            self._folder,
            "rig",
            clocks.thread.log.at,
            TraceRoom(0.2),  # type: ignore[arg-type]
        )

    # -- building ------------------------------------------------------------------------------

    def add(
        self,
        name: str,
        *,
        deadline_ms: float = GENEROUS_MS,
        times_ms: Sequence[float] = (0.2,),
        usual_ms: float = 0.2,
        variants: Sequence[str] = ("v",),
        group: str = "",
        fail: Callable[[Work], None] = lambda work: None,
        cancellable: Cancellable | None = None,
        timeout_ms: float = STAGE_TIMEOUT_MS,
        max_age_ms: float = 0.0,
        **options: Any,
    ) -> None:
        """Add a task whose network takes the times in turn, and is expected to take the usual."""

        def run(work: Work) -> None:
            fail(work)
            time.sleep(times_ms[work.frame.sequence % len(times_ms)] / 1e3)

        def run_batch(works: Sequence[Work]) -> None:
            for work in works:
                run(work)

        network = Stage("inference", run, run_batch=run_batch if group else None)
        if cancellable is not None:
            network = Stage("inference", cancellable.run, cancel=cancellable.cancel)
        short = [Stage(stage, lambda work: None) for stage in (STAGES[0], STAGES[2])]
        stages = {v: [short[0], network, short[1]] for v in variants}
        warm_up = [(MS // 20, int(usual_ms * MS), MS // 20)] * 3
        parameters = TaskParameters(
            name, int(deadline_ms * MS), int(1e9 / RATE_HZ), STAGES, tuple(variants), variants[0],
            max_age_ns=int(max_age_ms * MS), batch_group=group,
        )  # fmt: skip
        self.counts.setdefault(name, Counter())
        self.executor.add_task(
            parameters,
            stages,
            self._observe,
            warm_up_times_ns=dict.fromkeys(variants, warm_up),
            restart=lambda: stages,
            stage_timeout_ns=int(timeout_ms * MS),
            **options,
        )
        self.names = [*self.names, name]

    def remove(self, name: str) -> None:
        """Remove a task, as its node does when it is deactivated."""
        with self._gate:
            self.names = [other for other in self.names if other != name]
        self.executor.remove_task(name)
        self.counts.pop(name)

    def _observe(self, record: JobRecord, work: Work) -> None:
        counts = self.counts.get(record.task)
        if counts is not None:
            counts[record.sequence] += 1
        self.met[record.task] += record.outcome is Outcome.MET

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything."""
        self.executor.add_observer(self.trace.observe)
        self.executor.start()
        self.scenario.build(self)
        tasks = {
            name: TracedTask("camera", "null", "", ("v",), STAGES, MS, MS) for name in self.names
        }
        self.trace.begin(TraceMetadata(tasks=tasks))
        assert self.trace._writer is not None
        self.writer = self.trace._writer
        self._paused = False
        self._stirrer.start()
        if self._ros is not None:
            self._start_node()
            return
        make: Callable[[], FrameSource] = Device
        if self.scenario.camera != "device":
            options = SourceOptions(loop=True)
            make = lambda: open_source(self._pictures, options)  # noqa: E731
        self.camera = Camera(make, self.take, rate_hz=RATE_HZ, name="camera rig")
        self.camera.start()

    def _start_node(self) -> None:
        from rclpy.parameter import Parameter
        from sensor_msgs.msg import Image as ImageMessage

        from jetson_dnn_rt.nodes.cameras.camera import CameraNode

        values = {"source": self._pictures, "loop": True, "rate": RATE_HZ}
        self._inbox = self._ros.listen(ImageMessage, "image_raw")
        self._node = self._ros.make(
            CameraNode,
            bridge=lambda: self,
            parameter_overrides=[Parameter(name, value=v) for name, v in values.items()],
        )
        self._node.fanout.add("all", self)
        assert self._node.autostart(), self._node.fault
        self.camera = self._node.camera

    # The part of a process, and of a task's node, that a camera's node uses.
    realtime = None

    def submit(self, tasks: Sequence[str], frame: Frame, capture_ns: int) -> None:
        self.take(frame, capture_ns)

    def accept(self, frame: Frame, capture_ns: int) -> bool:
        return True

    def on_bad_frame(self, frame: Frame, capture_ns: int, reason: str) -> None:
        if not self._paused:
            for name in self.names:
                self.executor.reject(name, frame, capture_ns, reason)

    def take(self, frame: Frame, capture_ns: int) -> None:
        """A frame of the camera, on its thread."""
        self._arrivals.observe(capture_ns, frame.stamp_ns, capture_ns)
        with self._gate:
            if self._paused:
                return
            number = self.sent
            self.sent += 1
            if number % 10 == 9:
                for name in self.names:
                    self.executor.reject(name, frame, capture_ns, "no picture")
            else:
                self.executor.submit(self.names, frame, capture_ns)

    def _stir(self) -> None:
        number = 0
        while not self._over.wait(1.0 / RATE_HZ):
            if not self._paused:
                # It may find what the campaign did to others.
                with contextlib.suppress(Exception):
                    self.scenario.stir(self, number)
                number += 1

    def close(self) -> None:
        """Stop everything."""
        with self._gate:
            self._paused = True
        self._over.set()
        self._stirrer.join()
        if self._node is not None:
            self._close_node()
        else:
            self.camera.close()
        self.executor.stop(2.0)
        self.trace.close()

    def _close_node(self) -> None:
        ros, node = self._ros, self._node
        node.trigger_deactivate()
        node.trigger_cleanup()
        node.trigger_shutdown()
        ros.call(node.destroy_node)
        ros._nodes.remove(node)
        ros.call(lambda: ros.probe.destroy_subscription(self._inbox.subscription))

    def read_trace(self) -> list[str]:
        """What the trace on disk and its writer say differently."""
        found = len(list(open_trace(self.writer.folder).jobs()))
        if found != self.writer.written:
            return [f"the trace has {found} jobs, its writer counted {self.writer.written}"]
        return []

    # -- looking -------------------------------------------------------------------------------

    def progress(self) -> dict[str, int]:
        """Counts that grow as long as every thread does its work."""
        clocks = self.clocks
        counts = {f"met frames of {name}": self.met[name] for name in TASKS}
        counts["frames of the camera"] = self.sent
        counts["jobs in the trace"] = self.writer._stored
        counts["samples of the clocks"] = clocks.thread._last_ns
        counts["looks at the clocks"] = clocks.watch._pulse.since_ns
        counts["looks of the watchdog"] = self.executor.supervisor._pulse.since_ns
        if self._node is not None:
            counts["published pictures"] = len(self._inbox.messages)
        return counts

    def describe(self) -> str:
        """How the frames of each task ended, and why not well."""
        found = []
        for name in self.names:
            shown = self.executor.snapshot(name)
            ends = {outcome.value: count for outcome, count in shown.outcomes.items() if count}
            found.append(f"{name}: {shown.released} released, {ends}, {dict(shown.reasons)}")
        found += [
            f"{fault.kind}: {fault.count}, last: {fault.text}" for fault in FAULTS.snapshot()
        ]
        return "; ".join(found)

    def alarms(self) -> list[str]:
        """What diagnostics say is wrong, as the nodes make them."""
        self.executor.supervisor.check_watchdog()  # as `Session.snapshot` does
        lines = []
        for name in list(self.names):
            try:
                shown = self.executor.snapshot(name)
            except NotAnsweringError as error:
                lines.append(f"{name}: {error}")
                continue
            except KeyError:
                continue  # it was removed in this moment
            lines += [f"{name} suspended: {shown.suspended}"] if shown.suspended else []
            lines += [f"{name} withdrawn: {item}" for item in shown.withdrawn.items()]
            # A dot for each: another hang of the same stage is new.
            lines += [
                f"{name}: {reason}{'.' * count}"
                for reason, count in shown.reasons.items()
                if "hangs" in reason
            ]
            lines += [f"{name} failed: {shown.last_failure}"] if shown.last_failure else []
        status = process_status()
        lines += [f"{one.key}: {one.value}" for one in status.values if "." in one.key]
        fault, _ = self.trace.describe()
        lines += [fault] if fault else []
        lines += [f"clocks: {self.clocks.thread.fault}"] if self.clocks.thread.fault else []
        described = self.executor.describe()
        lines += [f"selector: {described['selector_failure']}"]
        state = self.camera.state
        camera = stream_status(
            self._arrivals.snapshot(time.monotonic_ns()),
            expected_hz=RATE_HZ, tolerance=0.5, node_state="active", error=state.error,
        )  # fmt: skip
        if camera.level == ERROR:
            lines.append(f"camera: {camera.message}")
        return lines

    def account(self) -> list[str]:
        """Let everything come to rest, and see whether the counts add up."""
        with self._gate:
            self._paused = True
        found = []
        try:
            if not self.executor.wait_idle(5.0):
                found.append("the executor does not come to rest")
            # The record that an observer raised at reached the others.
            faults = [f for f in FAULTS.snapshot() if f.kind.startswith("an observer of task")]
            self._excused += sum(fault.count for fault in faults)
            lost = int(str(self.executor.describe()["records_lost"])) + self._excused
            missing = 0
            for name in (name for name in self.names if name != GUEST):
                found += self._account_task(name)
                missing += self.executor.snapshot(name).released - len(self.counts[name])
            if missing > lost:
                found.append(f"{missing} records did not come, {lost} are counted as lost")
            found += self._account_trace()
        finally:
            with self._gate:
                self._paused = False
        return found

    def _account_task(self, name: str) -> list[str]:
        shown, counts = self.executor.snapshot(name), self.counts[name]
        found = []
        ended = sum(shown.outcomes.values())
        if ended != shown.released:
            found.append(f"{name}: {shown.released} frames released, {ended} outcomes")
        twice = [sequence for sequence, count in counts.items() if count > 1]
        if twice:
            found.append(f"{name}: frames {twice[:5]} ended more than once")
        if len(counts) > shown.released:
            found.append(f"{name}: {len(counts)} records of {shown.released} frames")
        return found

    def _account_trace(self) -> list[str]:
        writer, end_s = self.writer, time.monotonic() + 5.0
        while writer.written + writer.lost != writer._taken:
            if time.monotonic() > end_s:
                return [
                    f"trace: {writer._taken} jobs, {writer.written} written, {writer.lost} lost"
                ]
            time.sleep(0.005)
        return []

    @property
    def is_whole(self) -> bool:
        """Whether all threads are there and no task is suspended."""
        workers = self.executor.supervisor.workers
        alive = [w for w in workers if w.thread is not None and w.thread.is_alive()]
        return len(alive) == self.executor._shared.engine.threads and not self.is_suspended

    @property
    def is_suspended(self) -> bool:
        """Whether a task, or the camera, has stopped with an error."""
        suspended = any(self.executor.snapshot(name).suspended for name in TASKS)
        return suspended or (self.camera.state.ended and bool(self.camera.state.error))


def blur(line: str) -> str:
    """A line without its numbers."""
    return NUMBERS.sub("#", line)


# -- scenarios ---------------------------------------------------------------------------------


def build_plain(rig: Rig) -> None:
    for name in TASKS:
        rig.add(name)


def build_crowded(rig: Rig) -> None:
    build_plain(rig)
    rig.add("tight", deadline_ms=TIGHT_MS, times_ms=(1, 1, 1, 4), usual_ms=3)
    rig.add("slow", deadline_ms=4, times_ms=(5, 1, 3), usual_ms=5, max_age_ms=20)
    rig.add("other", deadline_ms=12, times_ms=(1, 6), usual_ms=2)


def build_batches(rig: Rig) -> None:
    for name in TASKS:
        rig.add(name, group="g", times_ms=(0.5,), usual_ms=2)
    rig.add("alone", times_ms=(0.5,))
    rig.executor.seed_batch_budgets("one", "v", "inference", 2, [MS])


def build_cancels(rig: Rig) -> None:
    build_plain(rig)
    rig.add("long", deadline_ms=9, usual_ms=4, cancellable=Cancellable((3, 3, 12, 3)))
    rig.add("urgent", deadline_ms=5, times_ms=(0.5, 1.0), usual_ms=0.5)


def stir_cancels(rig: Rig, number: int) -> None:
    if number % 5 == 4:
        frame = Frame(np.zeros((2, 2, 3), np.uint8), "bgr8", 0, -1 - number)
        rig.executor.submit("urgent", frame, time.monotonic_ns())


def build_helpers(rig: Rig) -> None:
    for name in TASKS:
        rig.add(name, narrow_slowdowns=(1.2, 1.4), times_ms=(1.0,), usual_ms=1.0)
    rig.add("third", narrow_slowdowns=(1.1,), times_ms=(1, 2), usual_ms=1.5, deadline_ms=15)


def build_limits(rig: Rig) -> None:
    for name in TASKS:
        rig.add(name, variants=("v", "w"))
    rig.add("tight", variants=("v", "w"), deadline_ms=TIGHT_MS, times_ms=(1, 3), usual_ms=2)
    rig.executor.set_selector(Fickle())


def build_troubles(rig: Rig) -> None:
    def fail(work: Work) -> None:
        if work.frame.sequence % 5 == 0:
            raise ValueError("a network that fails")
        if work.frame.sequence % 7 == 0:
            raise FrameError("not a picture")

    rig.add("one", fail=fail, variants=("v", "w"))
    rig.add("two")
    _add_guest(rig)


def _add_guest(rig: Rig) -> None:
    def hang(work: Work) -> None:
        if work.frame.sequence % 30 == 29:
            time.sleep(0.08)

    rig.add(GUEST, fail=hang, timeout_ms=40)


def stir_troubles(rig: Rig, number: int) -> None:
    if number % 100 == 50:
        if GUEST in rig.names:
            rig.remove(GUEST)
        _add_guest(rig)


def stir_clocks(rig: Rig, number: int) -> None:
    if number % 10 == 0:
        rig.clocks.thread.request(number // 10 % 3, time.monotonic_ns())


SCENARIOS = (
    Scenario("plain", build_plain, stir_clocks),
    Scenario("node", build_plain, stir_clocks, camera="node"),
    Scenario("crowded", build_crowded, workers=1),
    Scenario("batches", build_batches),
    Scenario("cancels", build_cancels, stir_cancels, workers=1, cancels=True),
    Scenario("helpers", build_helpers, workers=1, helpers=1),
    Scenario("limits", build_limits, max_inflight=(("cpu", 1),)),
    Scenario("troubles", build_troubles, stir_troubles, camera="device"),
)
