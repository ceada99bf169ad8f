# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The executor: worker threads that run what the scheduling engine decides.

    submit (camera or ROS thread) -> engine -> worker threads -> delivery thread -> observers

Frames are taken and stages are run on different threads; results are handed to observers on a
third one, so that neither publishing nor drawing delays the next stage. This is the driver: it
takes a job of the engine, runs its stage, tells the engine. What becomes of stages that do not
return, and of threads that die, is the supervision's (`jetson_dnn_rt.runtime.supervision`).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from jetson_dnn_rt.clock import Clock, SteadyClock
from jetson_dnn_rt.config.process import RealtimeConfig
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import (
    FrameError,
    NotAnsweringError,
    NotANumberError,
    RunCancelledError,
    StillRunningError,
)
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.runtime.delivery import Observer
from jetson_dnn_rt.runtime.realtime import Realtime
from jetson_dnn_rt.runtime.shared_state import SharedState, Worker
from jetson_dnn_rt.runtime.supervision import Supervisor
from jetson_dnn_rt.runtime.task_entry import Stages, TaskEntry, TaskSnapshot, list_runs, make_table
from jetson_dnn_rt.safety.faults import safe_text
from jetson_dnn_rt.scheduling.engine import LOST, Engine
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.selection import Selector
from jetson_dnn_rt.scheduling.task_state import TaskState
from jetson_dnn_rt.tasks import Stage, TaskParameters, Work

logger = logging.getLogger(__name__)

T = TypeVar("T")

ANSWER_S, FRAME_ANSWER_S = 0.4, 1.0
"""Longest wait for the lock to ask for a snapshot, and to release a frame. The lock is held for
microseconds; this long only by a selector, or a library below it, that does not return. Then
diagnostics must still be made, and the thread that delivers frames must not be lost as well."""

read_thread_ns = time.thread_time_ns
"""CPU time of the calling thread; a quarter of a microsecond."""


class Executor:
    """Runs the jobs of all tasks under their deadlines.

    Stages of different tasks run side by side on `workers` threads. `discipline` is one of
    `jetson_dnn_rt.scheduling.queue.DISCIPLINES`; `clock` may be a virtual one in tests.
    `max_inflight` limits how many stages may run at once on a device (``{"cuda": 2}``); others
    have no limit. `helpers` more threads prepare and decode frames while networks run. With
    `cancels_for_urgent` a running stage may make room for a more urgent frame, see
    `jetson_dnn_rt.scheduling.preemption`.
    """

    def __init__(
        self,
        workers: int = 1,
        discipline: str = "edf",
        realtime: RealtimeConfig | None = None,
        clock: Clock | None = None,
        max_inflight: Mapping[str, int] | None = None,
        helpers: int = 0,
        cancels_for_urgent: bool = False,
    ) -> None:
        self.clock: Clock = clock or SteadyClock()
        self.realtime = Realtime(realtime or RealtimeConfig())
        engine = Engine(workers, discipline, max_inflight, helpers, cancels_for_urgent)
        self._shared = SharedState(self.clock, engine)
        self.supervisor = Supervisor(self._shared, self.realtime, self._work)
        self.frames_refused = 0  # since the lock could not be had; without an outcome

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the workers; frames submitted before wait for them."""
        if self._shared.started:
            raise RuntimeError("an executor starts once")
        self._shared.started = True
        self.realtime.apply_to_process()
        self._shared.delivery.start()
        for index in range(self._shared.engine.threads):
            self.supervisor.start_worker(index)
        self.supervisor.start_watchdog()

    def stop(self, timeout_s: float = 1.0) -> bool:
        """End all jobs, stop the threads and deliver what is left.

        False when a stage that hangs kept a worker from ending; its thread is a daemon.
        """
        shared, supervisor = self._shared, self.supervisor
        with shared.condition:
            now_ns = self.clock.now_ns()
            for task in shared.tasks:
                with supervisor.recovering():
                    shared.engine.flush(task, now_ns, "shutdown")
                shared.engine.suspend(task, "shutdown")
            shared.stopping = True
            supervisor.cancel_unwanted()
            shared.hand_over()
            shared.condition.notify_all()
        supervisor.wake()
        if not shared.started:
            return True
        threads = supervisor.join(timeout_s)
        shared.delivery.stop(timeout_s)
        return not any(thread.is_alive() for thread in threads)

    def set_workers(self, workers: int, helpers: int = 0) -> None:
        """Set the number of workers; ValueError when there are tasks, or more threads."""
        # The best number is measured with the tasks' networks, which are loaded when the
        # real-time set-up of the process is done already.
        shared, engine = self._shared, self._shared.engine
        with shared.condition:
            before = engine.threads
            if shared.tasks or workers + helpers < before:
                raise ValueError(
                    f"workers cannot become {workers}: {before}, tasks: {[*shared.tasks]}"
                )
            engine.set_workers(workers, helpers)
            for index in range(before, engine.threads if shared.started else before):
                self.supervisor.start_worker(index)

    # -- tasks ---------------------------------------------------------------------------------

    def add_observer(self, observer: Observer) -> None:
        """Call `observer(record, work)` for every job that ends, on the delivery thread."""
        self._shared.observers.append(observer)

    def add_task(
        self,
        parameters: TaskParameters,
        stages: Stages,
        observer: Observer,
        *,
        warm_up_times_ns: Mapping[str, list[tuple[int, ...]]] | None = None,
        restart: Callable[[], Stages] | None = None,
        stage_timeout_ns: int = int(TaskConfig.stage_timeout_ms * 1e6),
        narrow_slowdowns: Sequence[float] = (),
        cancel_latencies_ns: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """Add a task; it may be added while others run.

        `stages` has for each variant its stages in order; their spans add up to those in
        `parameters`. `observer` is called with the record and the work of every job of this task.
        `warm_up_times_ns` are the first budgets: by variant, run by run the times of its stages.
        `restart` makes new stages after one hung, that is, ran longer than `stage_timeout_ns`;
        without it the task stays suspended then. `narrow_slowdowns` are how many times as long the
        network takes narrow beside others (see `Work.narrow`), run by run; empty = it cannot.
        `cancel_latencies_ns` are how long runs of a variant took to end after they were told to.

        Raises
        ------
        StillRunningError
            When a stage of the task that was removed has not returned, or one of `stages` itself.
        """
        tables = {v: make_table(parameters, v, stages[v]) for v in parameters.variants}
        runs = {variant: list_runs(stages[variant]) for variant in parameters.variants}
        shared, engine = self._shared, self._shared.engine
        with shared.condition:
            self.supervisor.check_returned(parameters.name, tables)
            state = engine.add_task(parameters, runs)
            state.set_narrow(narrow_slowdowns)
            for variant, times in (warm_up_times_ns or {}).items():
                engine.seed_budgets(parameters.name, variant, times)
            for variant, latencies_ns in (cancel_latencies_ns or {}).items():
                for latency_ns in latencies_ns:
                    state.observe_cancel(variant, latency_ns)
            shared.tasks[parameters.name] = TaskEntry(tables, observer, restart, stage_timeout_ns)
            shared.rank_deadlines()
        self.supervisor.wake()

    def remove_task(self, task: str, reason: str = "deactivated", timeout_s: float = 5.0) -> None:
        """End the task's jobs and remove it.

        Returns when none of its stages runs any more and its last record is delivered. Raises
        `StillRunningError`, a `TimeoutError`, when a stage still runs after `timeout_s`: the task
        is suspended, and forgotten as soon as the stage returns or is given up as hanging.
        """
        shared, supervisor = self._shared, self.supervisor
        with shared.condition:
            entry = shared.tasks[task]
            entry.leaving = shared.leaving = True
            with supervisor.recovering():
                shared.engine.flush(task, self.clock.now_ns(), reason)
            shared.engine.suspend(task, reason)
            supervisor.cancel_unwanted()
            shared.hand_over()
            shared.forget_idle()
            if not shared.wait_for(lambda: shared.tasks.get(task) is not entry, timeout_s):
                raise StillRunningError(
                    f"a stage of task {task!r} still runs after {timeout_s:g} s: the task is "
                    "removed when it returns"
                )
        shared.delivery.wait(timeout_s)

    def add_variant(
        self, task: str, variant: str, stages: Sequence[Stage], times_ns: list[tuple[int, ...]]
    ) -> None:
        """Let a task run one more variant while its frames keep coming; see `add_task`."""
        shared, engine = self._shared, self._shared.engine
        with shared.condition:
            table = make_table(engine.tasks[task].parameters, variant, stages)
            shared.tasks[task].stages[variant] = table
            engine.tasks[task].add_variant(variant, list_runs(stages))
            engine.seed_budgets(task, variant, times_ns)

    # -- control, while it runs ----------------------------------------------------------------

    def seed_batch_budgets(
        self, task: str, variant: str, stage: str, size: int, times_ns: Sequence[int]
    ) -> None:
        """Let the tasks of a batch group run this stage for `size` frames at once, >= 2.

        `task` is any of the group's; sizes that were not given are not formed. `Stage.run_batch`
        must be there in every task of the group that has the variant. It is called with any of the
        group's works in any order, from any worker, but never twice at once in one group.
        `times_ns` are execution times of such batches from warm-up runs.
        """
        with self._shared.condition:
            table = self._shared.tasks[task].stages[variant]
            names = [part.name if part else "" for part in table]
            if stage not in names:
                raise ValueError(f"variant {variant!r} of task {task!r} has no stage {stage!r}")
            index = names.index(stage)
            self._shared.engine.seed_batch_budgets(task, variant, index, size, times_ns)

    def set_cohort_slowdown(self, slowdown: Mapping[int, float]) -> None:
        """Stretch budgets that are seeded later, from runs of a task alone.

        `slowdown` is by the number of stages side by side; that of the largest cohort counts.
        """
        with self._shared.condition:
            self._shared.engine.set_cohort_slowdown(slowdown)

    def set_selector(self, selector: Selector) -> None:
        """Let `selector` choose the variants, from the next boundary on."""
        with self._shared.condition:
            self._shared.engine.selector = selector

    @property
    def selector_failure(self) -> str:
        """Why the selector was replaced by a static one; empty as long as it works."""
        return self._shared.engine.selector_failure

    @contextlib.contextmanager
    def exclusively(self) -> Iterator[None]:
        """No boundary passes meanwhile: for changes to a selector that take microseconds."""
        with self._shared.condition:
            yield

    def update(
        self,
        task: str,
        *,
        variant: str = "",
        deadline_ns: int | None = None,
        max_age_ns: int | None = None,
    ) -> None:
        """Change the given settings from the next frame on.

        `deadline_ns` is relative; frames older than `max_age_ns` are stale, 0 = no limit.
        ValueError when the variant is unknown or withdrawn: nothing has been changed then.
        """
        with self._shared.condition:
            state = self._shared.engine.tasks[task]
            if variant:
                state.set_variant(variant)
            if max_age_ns is not None:
                state.set_max_age(max_age_ns)
            if deadline_ns is not None:
                state.set_deadline(deadline_ns)
                self._shared.rank_deadlines()

    def snapshot(self, task: str) -> TaskSnapshot:
        """Counts and state of a task now; `NotAnsweringError` when they cannot be had."""
        with self._shared.answering(ANSWER_S):
            state, entry = self._shared.engine.tasks[task], self._shared.tasks[task]
            return entry.make_snapshot(state, self.supervisor.count_hangs(task))

    def read_tasks(self, read: Callable[[TaskState], T]) -> dict[str, T]:
        """What `read` finds in the engine's state of each task, in the order of their addition.

        `NotAnsweringError` as above.
        """
        with self._shared.answering(ANSWER_S):
            return {name: read(state) for name, state in self._shared.engine.tasks.items()}

    @property
    def workers(self) -> int:
        """Networks that run at once."""
        return self._shared.engine.workers

    @property
    def threads(self) -> int:
        """Stages that run at once, helpers included."""
        return self._shared.engine.threads

    # -- frames --------------------------------------------------------------------------------

    def submit(self, tasks: str | Sequence[str], frame: Frame, capture_ns: int) -> None:
        """Release a job for this frame in each task, at one instant; returns at once.

        With one call per task an idle worker would have taken the first before the second is
        there, and equal deadlines would differ. The frame must not be written to until its jobs
        ended; `capture_ns` is on this executor's clock. `NotAnsweringError` when no job could be
        released. A frame whose predecessor still runs wakes no thread: the worker that ends that
        takes it. So a stage may submit its task's next frame.
        """
        names = (tasks,) if isinstance(tasks, str) else tasks
        shared, engine = self._shared, self._shared.engine
        with shared.answering(FRAME_ANSWER_S):
            now_ns = self.clock.now_ns()
            works = [Work(frame, urgency=shared.tasks[name].urgency) for name in names]
            waits = False
            for name, work in zip(names, works, strict=True):
                try:
                    job = engine.release(name, now_ns, capture_ns, work)
                    waits = waits or not job.ended
                except Exception as error:
                    with contextlib.suppress(Exception):  # it raises anyway, and is noted
                        if not engine.has_seen(work):
                            engine.reject(name, now_ns, capture_ns, work, LOST)
                    self.supervisor.recover(error)
                    waits = True  # others may have become ready
            # The caller of a call that raises counts the frame as lost: now it is not.
            with self.supervisor.recovering():
                if engine.cancels_for_urgent:
                    self.supervisor.cancel_unwanted()
                shared.hand_over()
                if waits and engine.has_ready:
                    shared.condition.notify_all()

    def reject(self, task: str, frame: Frame, capture_ns: int, reason: str) -> None:
        """Count a frame that arrived but cannot be used, as ``failed``.

        `NotAnsweringError` when it cannot be; `frames_refused` counts those frames.
        """
        try:
            with self._shared.answering(FRAME_ANSWER_S):
                shared, now_ns = self._shared, self.clock.now_ns()
                with self.supervisor.recovering():
                    shared.engine.reject(task, now_ns, capture_ns, Work(frame), reason)
                shared.hand_over()
        except NotAnsweringError:
            self.frames_refused += 1
            raise

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no job waits or runs and every record was delivered to the observers."""
        shared = self._shared
        with shared.condition:
            tasks = tuple(shared.tasks)
            idle = shared.wait_for(lambda: all(map(shared.engine.is_idle, tasks)), timeout_s)
        return shared.delivery.wait(timeout_s) and idle

    def describe(self) -> dict[str, object]:
        """Values for diagnostics: what observers did not get, and what chooses the variants."""
        delivery = self._shared.delivery
        return {
            "pictures_dropped": delivery.dropped_pictures,
            "records_lost": delivery.lost_records,
            "frames_refused": self.frames_refused,
            "selector_failure": self.selector_failure or "none",
        }

    # -- workers -------------------------------------------------------------------------------

    def _work(self, worker: Worker) -> None:
        """Run stages until the executor stops or the worker is abandoned; body of its thread."""
        self.supervisor.enter(worker)
        clock, pulse = self.clock, worker.pulse
        while (job := self._advance(worker)) is not None:
            stage, mates = worker.stage, worker.mates
            assert stage is not None
            cpu_ns = read_thread_ns()
            start_ns = clock.now_ns()
            pulse.rest()
            try:
                if mates:
                    assert stage.run_batch is not None  # else the engine forms no batch
                    stage.run_batch([job.work, *(mate.work for mate in mates)])
                else:
                    stage.run(job.work)
            except BaseException as raised:  # even SystemExit would only end this thread
                worker.error = raised
            pulse.begin()
            worker.times_ns = start_ns, clock.now_ns(), read_thread_ns() - cpu_ns
            del job, mates  # their frames are not kept while the worker waits

    def _advance(self, worker: Worker) -> Job | None:
        """Tell the engine what became of the worker's stage, and wait for the next one.

        None when the thread is to end.
        """
        failures = 0
        while True:
            with self._shared.condition:
                try:
                    if worker.abandoned:
                        self.supervisor.see_return(worker)
                        return None
                    if (job := worker.job) is not None:
                        self._account(worker, job)
                        del job
                    return self._take(worker)
                except Exception as raised:
                    # The engine's present step is lost, as one failed frame; the worker goes on.
                    failures += 1
                    worker.job = worker.error = None
                    self.supervisor.recover(raised)
                    if failures > 1:
                        self._pause(worker, min(failures * 10_000_000, 500_000_000))

    def _account(self, worker: Worker, job: Job) -> None:
        """Tell the engine that the worker's stage has ended, and how; the lock is held."""
        shared, mates, error = self._shared, worker.mates, worker.error
        worker.job, worker.mates, worker.error = None, (), None
        start_ns, end_ns, cpu_ns = worker.times_ns
        if error is None:
            if not mates:  # else the CPU time is not its frame's alone
                assert worker.stage is not None
                entry = shared.tasks[job.task]
                entry.see_usage(job.variant, worker.stage.name, end_ns - start_ns, cpu_ns)
            shared.engine.boundary(job, self.clock.now_ns(), start_ns, end_ns)
        elif worker.asks and isinstance(error, RunCancelledError):
            self.supervisor.see_cancelled(worker, job)
        else:
            self._fail(job, error)
        if shared.leaving or self.supervisor.awaited:
            self.supervisor.see_return(worker)

    def _take(self, worker: Worker) -> Job | None:
        """Wait for a job of the engine, which the worker begins; the lock is held.

        None when the executor stops.
        """
        shared, engine, clock = self._shared, self._shared.engine, self.clock
        while (job := engine.next(clock.now_ns())) is None:
            shared.hand_over()
            if shared.stopping:
                return None
            shared.idle += 1
            shared.wake_ns = engine.ask_again_ns
            worker.pulse.rest()
            try:
                shared.condition.wait_until(engine.ask_again_ns)
            finally:
                shared.idle -= 1
                shared.wake_ns = None
            worker.pulse.begin()
        # To wake the delivery thread takes longer than all else here. What has no result waits for
        # the next frame, an idle worker or the watchdog's next look.
        if engine.has_results:
            shared.hand_over()
        if shared.idle and engine.has_ready:
            shared.wake_idle()
        worker.stage, worker.mates = shared.tasks[job.task].next_stage(job), job.mates
        worker.stage_start_ns = clock.now_ns()
        worker.job = job
        worker.asks = worker.ask_ns = 0
        worker.hangs = False
        if job.hopeless_ns:
            self.supervisor.watch(job.hopeless_ns)
        return job

    def _pause(self, worker: Worker, pause_ns: int) -> None:
        """Let a worker wait, whatever others notify meanwhile; the lock is held."""
        shared, end_ns = self._shared, self.clock.now_ns() + pause_ns
        while self.clock.now_ns() < end_ns and not (shared.stopping or worker.abandoned):
            shared.condition.wait_until(end_ns)

    def _fail(self, job: Job, error: BaseException) -> None:
        """End the job of a stage that raised; the lock is held."""
        # A frame that is not an image is the frame's fault, anything else the variant's. NaN
        # outputs, where several variants ran: from now on each stage is checked.
        bad_frame = isinstance(error, FrameError)
        unclear = isinstance(error, NotANumberError) and error.stage is None
        blame = not (bad_frame or (unclear and len(job.variants) > 1))
        kind, text = type(error).__name__, safe_text(error)
        reason = text if bad_frame else f"{kind}: {text}"
        if job.mates and blame:
            logger.error(
                "a batch of %d frames (%s, %s) failed and is not formed any more: %s",
                1 + len(job.mates),
                self._shared.tasks[job.task].next_stage(job).name,
                job.variant,
                reason,
            )
        engine, now_ns = self._shared.engine, self.clock.now_ns()
        if withdrawn := engine.fail(job, now_ns, reason, kind, blame_variant=blame):
            logger.error("variant %s of task %s is withdrawn: %s", withdrawn, job.task, reason)
