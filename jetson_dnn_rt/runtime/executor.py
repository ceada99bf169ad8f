# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The executor: worker threads that run what the scheduling engine decides.

    submit (camera or ROS thread) -> engine -> worker threads -> delivery thread -> observers

Frames are taken and stages are run on different threads; results are handed to observers on a
third one, so that neither publishing nor drawing delays the next stage.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

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
from jetson_dnn_rt.runtime.delivery import Delivery, Observer
from jetson_dnn_rt.runtime.realtime import Realtime
from jetson_dnn_rt.safety.faults import FAULTS, Pulse, safe_text, start_thread
from jetson_dnn_rt.scheduling.analysis import (
    TEST_POINT_LIMIT,
    Estimate,
    TaskDemand,
    Verdict,
    analyse,
)
from jetson_dnn_rt.scheduling.engine import LOST, Engine
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.selection import Selector
from jetson_dnn_rt.scheduling.task_state import Run, TaskState
from jetson_dnn_rt.tasks import Outcome, Stage, TaskParameters, Work, stage_name

logger = logging.getLogger(__name__)

WATCHDOG_THREAD = "rt-watchdog"
WATCH_NS = 500_000_000  # the watchdog checks the threads at least this often
ANSWER_S, FRAME_ANSWER_S = 0.4, 1.0
"""Longest wait for the lock to ask for a snapshot, and to release a frame. The lock is held for
microseconds; this long only by a selector, or a library below it, that does not return. Then
diagnostics must still be made, and the thread that delivers frames must not be lost as well."""
ASK_AGAIN_NS = 1_000_000
"""Pause after which a stage is told again to end; doubled each time, `MOST_DOUBLED` times."""
MOST_DOUBLED = 6
CANCEL_LIMIT_NS = 250_000_000  # a hanging stage that was told to end is given up after this
RECOVERIES = 3  # attempts to make the engine consistent again after it raised

MAX_RESTARTS = 3  # of a task within WINDOW_NS
WINDOW_NS = 600_000_000_000
PAUSES_NS = (0, 1_000_000_000, 10_000_000_000)
"""Before the first, second and third restart within the window: once may be a hiccup."""
RETRY_NS = 60_000_000_000  # between two requested restarts: anybody may request one

MAX_HUNG = 8
"""Threads hanging in stages at which no task is restarted any more: each holds a network."""
MAX_TASK_RETRIED = MAX_HUNG - 2
"""The same for stages of one task and requested restarts: the rest is left to tasks that hang
once."""
MAX_TASK_HUNG = MAX_RESTARTS + 1  # the same for automatic restarts

USAGE_WEIGHT = 1 / 32
"""Weight of a run in the mean times of its stage: about the last second at 30 Hz."""

read_thread_ns = time.thread_time_ns
"""CPU time of the calling thread; a quarter of a microsecond."""

Stages = Mapping[str, Sequence[Stage]]
"""The stages of every variant, by the variant's name."""

StageTable = tuple[Stage | None, ...]
"""One entry per stage of the task; None inside a run of several, where nothing can enter."""


class Restarts:
    """How often a task whose stages hang is restarted; times are on the executor's clock."""

    def __init__(self) -> None:
        self._times_ns: list[int] = []
        self.hangs = 0  # since the last `forgive`
        self.due_ns: int | None = None  # of the next restart
        self._forgiven_ns: int | None = None

    def plan(self, now_ns: int) -> bool:
        """Set `due_ns` after a stage hung; False when it hung too often."""
        self.hangs += 1
        self._times_ns = [t for t in self._times_ns if now_ns - t < WINDOW_NS]
        if len(self._times_ns) >= MAX_RESTARTS:
            self.due_ns = None
            return False
        self.due_ns = now_ns + PAUSES_NS[len(self._times_ns)]
        self._times_ns.append(self.due_ns)
        return True

    def wait_ns(self, now_ns: int) -> int:
        """Time until the next `forgive` is allowed."""
        if self._forgiven_ns is None:
            return 0
        return max(0, self._forgiven_ns + RETRY_NS - now_ns)

    def forgive(self, now_ns: int) -> None:
        """Restart at once on request, and reset the count."""
        self._times_ns = []
        self.hangs = 0
        self.due_ns = self._forgiven_ns = now_ns


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """Counts and state of a task at one moment, for diagnostics."""

    parameters: TaskParameters
    released: int
    outcomes: dict[Outcome, int]
    reasons: dict[str, int]
    budgets_ms: dict[str, tuple[float, ...]]  # by variant, one for each stage
    cancel_ms: dict[str, float]
    """How long a run takes to end when told to, by variant; only of those that can."""
    stage_ms: dict[str, dict[str, tuple[float, float]]]
    """Wall time and CPU time of each stage lately, by variant. The CPU time is that of the thread
    that calls the stage: not of a back end's own threads, nor of a GPU."""
    suspended: str  # why the task does not run; empty = it does
    withdrawn: dict[str, str]  # why a variant does not run any more
    last_failure: str = ""
    hangs: int = 0  # threads that hang in its stages now

    @property
    def met_of(self) -> tuple[int, int]:
        """Frames that met their deadlines, and all frames."""
        return self.outcomes[Outcome.MET], self.released


@dataclass(slots=True, eq=False)
class _Entry:
    """State of a task in the executor."""

    stages: dict[str, StageTable]
    observer: Observer
    restart: Callable[[], Stages] | None
    stage_timeout_ns: int
    urgency: int = 0  # its deadline class, see `Work`
    restarts: Restarts = field(default_factory=Restarts)
    restarting: bool = False  # a thread rebuilds its stages
    trouble: str = ""  # why it is suspended until a retry is requested, with the fix
    leaving: bool = False  # forgotten as soon as its stage has returned
    usage: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    """Aged means of wall and CPU time in ns, by variant and stage."""

    def see_usage(self, variant: str, stage: str, wall_ns: int, cpu_ns: int) -> None:
        """Learn from a stage that ran; half a microsecond."""
        means = self.usage.get((variant, stage))
        if means is None:
            self.usage[variant, stage] = [wall_ns, cpu_ns]
        else:
            means[0] += USAGE_WEIGHT * (wall_ns - means[0])
            means[1] += USAGE_WEIGHT * (cpu_ns - means[1])

    def next_stage(self, job: Job) -> Stage:
        """The stage that the job runs now or next."""
        stage = self.stages[job.variant][job.next_stage]
        assert stage is not None  # the engine enters a variant only where it can be
        return stage


@dataclass(slots=True, eq=False)
class _Worker:
    index: int
    thread: threading.Thread | None = None
    job: Job | None = None  # whose stage it runs, with that of the job's mates
    stage_start_ns: int = 0
    asks: int = 0  # how often its stage was told to end
    asked_ns: int = 0  # when it was first
    ask_ns: int = 0  # time of the next
    hangs: bool = False  # whether that is because it hangs
    abandoned: bool = False
    interrupted: bool = False  # its thread died with a job, which is not recovered yet
    users: tuple[tuple[str, Stage], ...] = ()  # the tasks whose stage it was left behind in
    pulse: Pulse = field(default_factory=Pulse)  # not of its stages: the watchdog times them

    @property
    def tasks(self) -> Collection[str]:
        """The tasks whose stage it is in; the lock is held."""
        if self.job is not None:
            return [self.job.task, *(mate.task for mate in self.job.mates)]
        return [name for name, _ in self.users]


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
        self._engine = Engine(workers, discipline, max_inflight, helpers, cancels_for_urgent)
        self._condition = self.clock.condition()
        self._tasks: dict[str, _Entry] = {}
        self.realtime = Realtime(realtime or RealtimeConfig())
        self._watchdog_condition = self.clock.condition()
        self._workers: list[_Worker] = []
        self._hung: list[_Worker] = []  # left behind in a stage that has not returned
        # Called when the last of these workers has returned from its present stage.
        self._awaited: list[tuple[set[_Worker], Callable[[], None]]] = []
        self._leaving = False  # whether any task waits to be forgotten
        self._watchdog_pulse = Pulse()
        self._asked_in_vain_ns = 0  # on the real clock, when the lock could not be had last
        self.frames_refused = 0  # for that reason, without an outcome
        self._look_ns: int | None = None  # when the watchdog looks next, by its last plan
        self._sooner_ns: int | None = None  # when it must, because of what changed since
        self._observers: list[Observer] = []
        self._delivery = Delivery()
        self._watchdog_thread: threading.Thread | None = None
        self._idle = 0  # workers that wait for a job
        self._wake_ns: int | None = None  # when the last of them wakes by itself
        self._stopping = False
        self._started = False

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the workers; frames submitted before wait for them."""
        if self._started:
            raise RuntimeError("an executor starts once")
        self._started = True
        self.realtime.apply_to_process()
        self._delivery.start()
        for index in range(self._engine.threads):
            self._start_worker(index)
        self._start_watchdog()

    def stop(self, timeout_s: float = 1.0) -> bool:
        """End all jobs, stop the threads and deliver what is left.

        False when a stage that hangs kept a worker from ending; its thread is a daemon.
        """
        with self._condition:
            now_ns = self.clock.now_ns()
            for task in self._tasks:
                with self._recovering():
                    self._engine.flush(task, now_ns, "shutdown")
                self._engine.tasks[task].suspended = "shutdown"
            self._stopping = True
            self._cancel_unwanted()
            self._hand_over()
            self._condition.notify_all()
        self._wake_watchdog()
        if not self._started:
            return True
        threads = [worker.thread for worker in self._workers if not worker.abandoned]
        for thread in (*threads, self._watchdog_thread):
            if thread is not None:
                thread.join(timeout_s)
        with self._condition:
            now_ns = self.clock.now_ns()
            for worker in list(self._workers):
                if (job := worker.job) is not None:
                    self._abandon(worker, job)
                    with self._recovering():
                        self._engine.fail(job, now_ns, "shutdown", blame_variant=False)
            self._hand_over()
        self._delivery.stop(timeout_s)
        return not any(thread is not None and thread.is_alive() for thread in threads)

    def set_workers(self, workers: int, helpers: int = 0) -> None:
        """Set the number of workers; ValueError when there are tasks, or more threads."""
        # The best number is measured with the tasks' networks, which are loaded when the
        # real-time set-up of the process is done already.
        with self._condition:
            before = self._engine.threads
            if self._tasks or workers + helpers < before:
                raise ValueError(
                    f"workers cannot become {workers}: {before}, tasks: {[*self._tasks]}"
                )
            self._engine.set_workers(workers, helpers)
            for index in range(before, self._engine.threads if self._started else before):
                self._start_worker(index)

    # -- tasks ---------------------------------------------------------------------------------

    def add_observer(self, observer: Observer) -> None:
        """Call `observer(record, work)` for every job that ends, on the delivery thread."""
        self._observers.append(observer)

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
        tables = {v: _make_table(parameters, v, stages[v]) for v in parameters.variants}
        with self._condition:
            self._check_returned(parameters.name, tables)
            state = self._engine.add_task(
                parameters, {v: _list_runs(stages[v]) for v in parameters.variants}
            )
            state.set_narrow(narrow_slowdowns)
            for variant, times in (warm_up_times_ns or {}).items():
                self._engine.seed_budgets(parameters.name, variant, times)
            for variant, latencies_ns in (cancel_latencies_ns or {}).items():
                for latency_ns in latencies_ns:
                    state.observe_cancel(variant, latency_ns)
            task = _Entry(tables, observer, restart, stage_timeout_ns)
            self._tasks[parameters.name] = task
            self._rank_deadlines()
        self._wake_watchdog()

    def _check_returned(self, name: str, tables: Mapping[str, Sequence[Stage | None]]) -> None:
        """Check that no stage of an earlier task of this name, nor one of these, still runs."""
        if name in self._tasks and self._tasks[name].leaving:
            raise StillRunningError(
                f"task {name!r} is still being removed: one of its stages has not returned; try "
                "again when it has, or when it was given up as hanging"
            )
        mine = [stage for table in tables.values() for stage in table]
        for worker in self._hung:
            for _, stage in worker.users:
                if any(stage is own for own in mine):
                    raise StillRunningError(
                        f"stage {stage.name} of task {name!r} hangs and has not returned: clean "
                        "up and configure to reload the model, or wait until it returns"
                    )

    def remove_task(self, task: str, reason: str = "deactivated", timeout_s: float = 5.0) -> None:
        """End the task's jobs and remove it.

        Returns when none of its stages runs any more and its last record is delivered. Raises
        `StillRunningError`, a `TimeoutError`, when a stage still runs after `timeout_s`: the task
        is suspended, and forgotten as soon as the stage returns or is given up as hanging.
        """
        with self._condition:
            entry = self._tasks[task]
            entry.leaving = self._leaving = True
            with self._recovering():
                self._engine.flush(task, self.clock.now_ns(), reason)
            self._engine.tasks[task].suspended = reason
            self._cancel_unwanted()
            self._hand_over()
            self._forget_idle()
            if not self._wait_for(lambda: self._tasks.get(task) is not entry, timeout_s):
                raise StillRunningError(
                    f"a stage of task {task!r} still runs after {timeout_s:g} s: the task is "
                    "removed when it returns"
                )
        self._delivery.wait(timeout_s)

    def _forget_idle(self) -> None:
        """Forget the tasks that leave and have no job any more; the lock is held."""
        leaving = [name for name, entry in self._tasks.items() if entry.leaving]
        idle = [name for name in leaving if self._engine.is_idle(name)]
        for name in idle:
            self._hand_over()
            self._engine.remove_task(name)
            del self._tasks[name]
            self._rank_deadlines()
        self._leaving = len(idle) < len(leaving)

    def when_unused(self, task: str, give_back: Callable[[], None]) -> bool:
        """Call `give_back` when no thread runs a stage of the task as it is now.

        That is at once where none does (True), else on a thread of its own. Threads that come to
        run stages of the task later, because it was restarted, are not waited for.
        """
        with self._condition:
            users = {w for w in (*self._workers, *self._hung) if task in w.tasks}
            if users:
                self._awaited.append((users, give_back))
                return False
        give_back()
        return True

    def retry(self, task: str) -> str:
        """Restart a task that was suspended because its stages hung, and reset the count.

        Anybody may ask, so it is done at most once a minute, and not when `MAX_TASK_RETRIED`
        threads hang in the task's stages: all tasks share the number of threads that may hang.
        Returns what happens; empty where the task is not suspended for that. Raises
        `StillRunningError`, with when to try again, when too many threads hang or it was restarted
        just now.
        """
        with self._condition:
            entry = self._tasks[task]
            if not entry.trouble:
                return ""
            if entry.restart is None:
                raise StillRunningError(f"{entry.trouble}; it cannot be restarted by itself")
            now_ns, own, hung = self.clock.now_ns(), self._count_hangs(task), len(self._hung)
            if hung >= MAX_HUNG or own >= MAX_TASK_RETRIED:
                raise StillRunningError(
                    f"{hung} threads hang in stages, {own} of them of task {task}, and each keeps "
                    "a network: try again when one has returned, or restart this process"
                )
            if wait_ns := entry.restarts.wait_ns(now_ns):
                raise StillRunningError(
                    f"task {task} was restarted less than a minute ago: try again in "
                    f"{-(-wait_ns // 1_000_000_000)} s"
                )
            entry.restarts.forgive(now_ns)
            entry.trouble = ""
            self._engine.tasks[task].suspended = "restarting"
        self._wake_watchdog()
        return f"task {task} is being restarted"

    def add_variant(
        self, task: str, variant: str, stages: Sequence[Stage], times_ns: list[tuple[int, ...]]
    ) -> None:
        """Let a task run one more variant while its frames keep coming; see `add_task`."""
        with self._condition:
            parameters = self._engine.tasks[task].parameters
            self._tasks[task].stages[variant] = _make_table(parameters, variant, stages)
            self._engine.tasks[task].add_variant(variant, _list_runs(stages))
            self._engine.seed_budgets(task, variant, times_ns)

    # -- control, while it runs ------------------------------------------------------------------

    def seed_batch_budgets(
        self, task: str, variant: str, stage: str, size: int, times_ns: Sequence[int]
    ) -> None:
        """Let the tasks of a batch group run this stage for `size` frames at once, >= 2.

        `task` is any of the group's; sizes that were not given are not formed. `Stage.run_batch`
        must be there in every task of the group that has the variant. It is called with any of the
        group's works in any order, from any worker, but never twice at once in one group.
        `times_ns` are execution times of such batches from warm-up runs.
        """
        with self._condition:
            table = self._tasks[task].stages[variant]
            names = [part.name if part else "" for part in table]
            if stage not in names:
                raise ValueError(f"variant {variant!r} of task {task!r} has no stage {stage!r}")
            index = names.index(stage)
            self._engine.seed_batch_budgets(task, variant, index, size, times_ns)

    def tasks_of(self, group: str) -> tuple[str, ...]:
        """The tasks of a batch group, in the order in which they were added."""
        with self._condition:
            states = self._engine.tasks.values()
            return tuple(s.parameters.name for s in states if s.parameters.batch_group == group)

    def set_cohort_slowdown(self, slowdown: Mapping[int, float]) -> None:
        """Stretch budgets that are seeded later, from runs of a task alone.

        `slowdown` is by the number of stages side by side; that of the largest cohort counts.
        """
        with self._condition:
            self._engine.cohort_slowdown = dict(slowdown)

    def set_selector(self, selector: Selector) -> None:
        """Let `selector` choose the variants, from the next boundary on."""
        with self._condition:
            self._engine.selector = selector

    @property
    def selector_failure(self) -> str:
        """Why the selector was replaced by a static one; empty as long as it works."""
        return self._engine.selector_failure

    @contextlib.contextmanager
    def exclusively(self) -> Iterator[None]:
        """No boundary passes meanwhile: for changes to a selector that take microseconds."""
        with self._condition:
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
        with self._condition:
            state = self._engine.tasks[task]
            if variant:
                state.set_variant(variant)
            if max_age_ns is not None:
                state.set_max_age(max_age_ns)
            if deadline_ns is not None:
                state.set_deadline(deadline_ns)
                self._rank_deadlines()

    def _rank_deadlines(self) -> None:
        """Find the deadline classes of all tasks; the lock is held."""
        states = self._engine.tasks
        deadlines = {states[name].parameters.deadline_ns for name in self._tasks}
        classes = {deadline: rank for rank, deadline in enumerate(sorted(deadlines, reverse=True))}
        for name, entry in self._tasks.items():
            entry.urgency = classes[states[name].parameters.deadline_ns]

    @contextlib.contextmanager
    def _answering(self, limit_s: float) -> Iterator[None]:
        """Hold the lock; `NotAnsweringError` when it cannot be had in time, who keeps it."""
        # After one wait in vain the next are short: several tasks are asked in a row.
        again = time.monotonic_ns() - self._asked_in_vain_ns < 1_000_000_000
        if not self._condition.acquire(timeout=0.05 if again else limit_s):
            self._asked_in_vain_ns = time.monotonic_ns()
            stuck = (f"{thread}: {where}" for thread, where in FAULTS.stuck_threads.items())
            raise NotAnsweringError(
                "the executor does not answer, since a thread keeps its lock: "
                f"{'; '.join(stuck) or 'for less than a second yet'}"
            )
        try:
            yield
        finally:
            self._condition.release()

    def snapshot(self, task: str) -> TaskSnapshot:
        """Counts and state of a task now; `NotAnsweringError` when they cannot be had."""
        with self._answering(ANSWER_S):
            state, entry = self._engine.tasks[task], self._tasks[task]
            return TaskSnapshot(
                parameters=state.parameters,
                released=state.released,
                outcomes={outcome: state.outcomes[outcome] for outcome in Outcome},
                reasons=dict(state.reasons),
                budgets_ms={
                    variant: tuple(stage.budget_ns / 1e6 for stage in stages)
                    for variant, stages in state.budgets.items()
                },
                cancel_ms={
                    variant: latency_ns / 1e6
                    for variant in state.budgets
                    if (latency_ns := state.cancel_latency_ns(variant)) is not None
                },
                stage_ms=_describe_usage(entry.usage),
                suspended=entry.trouble or state.suspended,
                withdrawn=dict(state.withdrawn),
                last_failure=state.last_failure,
                hangs=self._count_hangs(task),
            )

    def analyse(
        self,
        periods_ns: Mapping[str, int] = MappingProxyType({}),
        most_points: int = TEST_POINT_LIMIT,
    ) -> Verdict:
        """Schedulability of the present tasks with the present budgets, deadlines and variants.

        Periods are those of `periods_ns` by task, else the expected ones; `most_points` as in
        `scheduling.analysis.analyse`. `NotAnsweringError` when a thread keeps the lock.
        """
        with self._answering(ANSWER_S):
            demands = [
                _make_demand(state, periods_ns.get(name, state.parameters.period_ns))
                for name, state in self._engine.tasks.items()
            ]
            workers = self._engine.workers
        return analyse(demands, workers, most_points)

    def count_released(self) -> dict[str, tuple[int, int]]:
        """Frames of each task so far, and the expected time between two of them."""
        with self._answering(ANSWER_S):
            return {
                name: (state.released, state.parameters.period_ns)
                for name, state in self._engine.tasks.items()
            }

    # -- frames --------------------------------------------------------------------------------

    def submit(self, tasks: str | Sequence[str], frame: Frame, capture_ns: int) -> None:
        """Release a job for this frame in each task, at one instant; returns at once.

        With one call per task an idle worker would have taken the first before the second is
        there, and equal deadlines would differ. The frame must not be written to until its jobs
        ended; `capture_ns` is on this executor's clock. `NotAnsweringError` when no job could be
        released.
        """
        names = (tasks,) if isinstance(tasks, str) else tasks
        with self._answering(FRAME_ANSWER_S):
            now_ns = self.clock.now_ns()
            works = [Work(frame, urgency=self._tasks[name].urgency) for name in names]
            waits = False
            for name, work in zip(names, works, strict=True):
                try:
                    job = self._engine.release(name, now_ns, capture_ns, work)
                    waits = waits or not job.ended
                except Exception as error:
                    with contextlib.suppress(Exception):  # it raises anyway, and is noted
                        if not self._engine.has_seen(work):
                            self._engine.reject(name, now_ns, capture_ns, work, LOST)
                    self._recover(error)
                    waits = True  # others may have become ready
            # The caller of a call that raises counts the frame as lost: now it is not.
            with self._recovering():
                if self._engine.cancels_for_urgent:
                    self._cancel_unwanted()
                self._hand_over()
                if waits:
                    self._condition.notify_all()

    def reject(self, task: str, frame: Frame, capture_ns: int, reason: str) -> None:
        """Count a frame that arrived but cannot be used, as ``failed``.

        `NotAnsweringError` when it cannot be; `frames_refused` counts those frames.
        """
        try:
            with self._answering(FRAME_ANSWER_S):
                with self._recovering():
                    self._engine.reject(task, self.clock.now_ns(), capture_ns, Work(frame), reason)
                self._hand_over()
        except NotAnsweringError:
            self.frames_refused += 1
            raise

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no job waits or runs and every record was delivered to the observers."""
        with self._condition:
            tasks = tuple(self._tasks)
            idle = self._wait_for(lambda: all(map(self._engine.is_idle, tasks)), timeout_s)
        return self._delivery.wait(timeout_s) and idle

    def describe(self) -> dict[str, object]:
        """Values for diagnostics: what observers did not get, and what chooses the variants."""
        delivery = self._delivery
        return {
            "pictures_dropped": delivery.dropped_pictures,
            "records_lost": delivery.lost_records,
            "frames_refused": self.frames_refused,
            "selector_failure": self.selector_failure or "none",
        }

    # -- threads -------------------------------------------------------------------------------

    def _spawn(
        self,
        target: Callable[[], None],
        name: str,
        wanted: Callable[[], bool] = lambda: False,
        pulse: Pulse | None = None,
    ) -> threading.Thread:
        """Start a thread; an exception is noted, the work is restarted as long as it is wanted."""
        self.clock.participate()
        try:
            return start_thread(target, name, wanted=wanted, on_end=self.clock.leave, pulse=pulse)
        except BaseException:
            self.clock.leave()
            raise

    def _start_worker(self, index: int) -> None:
        worker = _Worker(index)
        self._workers.append(worker)
        worker.thread = self._spawn(
            lambda: self._work(worker),
            f"rt-worker-{index}",
            lambda: not (worker.abandoned or self._stopping),
            worker.pulse,
        )

    def _start_watchdog(self) -> None:
        self._watchdog_thread = self._spawn(
            self._watch, WATCHDOG_THREAD, lambda: not self._stopping, self._watchdog_pulse
        )

    def _work(self, worker: _Worker) -> None:
        try:
            self.realtime.apply_to_worker()
        except Exception as refused:
            FAULTS.note("real-time set-up of a worker", refused)
        clock, condition, engine = self.clock, self._condition, self._engine
        pulse = worker.pulse
        job: Job | None = None
        error: BaseException | None = None
        start_ns = end_ns = cpu_ns = failures = 0
        ran = ""  # the stage whose CPU time is its frame's alone
        with condition:
            if (worker.job is not None or worker.interrupted) and not worker.abandoned:
                # Restarted: the job that was interrupted would otherwise never end.
                worker.interrupted, worker.job = True, None
                self._recover(RuntimeError("a worker was interrupted between two stages"))
                worker.interrupted = False  # else this is for the next restart
        while True:
            with condition:
                try:
                    if worker.abandoned:
                        self._see_return(worker)
                        return
                    if job is not None:
                        worker.job = None
                        if error is None:
                            if ran:
                                used = job.variant, ran, end_ns - start_ns, cpu_ns
                                self._tasks[job.task].see_usage(*used)
                            engine.boundary(job, clock.now_ns(), start_ns, end_ns)
                        else:
                            if worker.asks and isinstance(error, RunCancelledError):
                                self._see_cancelled(worker, job, start_ns, end_ns)
                            else:
                                self._fail(job, error)
                            error = None
                        if self._leaving or self._awaited:
                            self._see_return(worker)
                    while (job := engine.next(clock.now_ns())) is None and not self._stopping:
                        self._hand_over()
                        self._idle += 1
                        self._wake_ns = engine.ask_again_ns
                        pulse.rest()
                        try:
                            condition.wait_until(engine.ask_again_ns)
                        finally:
                            self._idle -= 1
                            self._wake_ns = None
                        pulse.begin()
                    if job is None:
                        self._hand_over()
                        return
                    # To wake the delivery thread takes longer than all else here. What has no
                    # result waits for the next frame, an idle worker or the watchdog's next look.
                    if engine.has_results:
                        self._hand_over()
                    if self._idle and engine.has_ready:
                        self._wake_another()
                    stage = self._tasks[job.task].next_stage(job)
                    mates = job.mates
                    ran = "" if mates else stage.name
                    worker.stage_start_ns = clock.now_ns()
                    worker.job = job
                    worker.asks = worker.ask_ns = 0
                    worker.hangs = False
                    if job.hopeless_ns and job.hopeless_ns < (self._look_ns or job.hopeless_ns):
                        self._look_at_latest(job.hopeless_ns + 1)
                    failures = 0
                except Exception as raised:
                    # The engine's present step is lost, as one failed frame; the worker goes on.
                    failures += 1
                    job = error = worker.job = None
                    self._recover(raised)
                    if failures > 1:
                        self._pause(worker, min(failures * 10_000_000, 500_000_000))
                    continue
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
                error = raised
            pulse.begin()
            end_ns = clock.now_ns()
            cpu_ns = read_thread_ns() - cpu_ns

    def _wake_another(self) -> None:
        """Let idle workers look, unless they do so in time: the lock is held."""
        # A batch that ended left several, a device has room again, or a frame is to be prepared.
        look_ns = self._engine.look_ns(self.clock.now_ns())
        if look_ns is not None and (self._wake_ns is None or look_ns < self._wake_ns):
            self._condition.notify_all()

    def _pause(self, worker: _Worker, pause_ns: int) -> None:
        """Let a worker wait, whatever others notify meanwhile; the lock is held."""
        end_ns = self.clock.now_ns() + pause_ns
        while self.clock.now_ns() < end_ns and not (self._stopping or worker.abandoned):
            self._condition.wait_until(end_ns)

    def _see_return(self, worker: _Worker) -> None:
        """Note that a hung or awaited worker has returned from its stage; the lock is held."""
        if worker in self._hung:
            self._hung.remove(worker)
            names = ", ".join(sorted(worker.tasks))
            logger.warning("the stage of %s that hung has returned: its thread ends", names)
        worker.users = ()
        for entry in list(self._awaited):
            users, give_back = entry
            users.discard(worker)
            if not users:
                self._awaited.remove(entry)
                self._spawn(give_back, "rt-give-back")
        self._forget_idle()

    def _recover(self, error: Exception) -> None:
        """Bring the engine back to a consistent state after it raised; the lock is held."""
        FAULTS.note("scheduling engine", error)
        for _ in range(RECOVERIES):
            try:
                running = [worker.job for worker in self._workers if worker.job is not None]
                self._engine.recover(running, self.clock.now_ns())
                self._hand_over()
                self._forget_idle()
                self._condition.notify_all()
                return
            except Exception as again:  # it goes on where it was, or finds nothing left to do
                FAULTS.note("recovery of the scheduling engine", again)

    @contextlib.contextmanager
    def _recovering(self) -> Iterator[None]:
        """Context of engine calls whose failure must not stop the caller."""
        try:
            yield
        except Exception as error:
            self._recover(error)

    def _see_cancelled(self, worker: _Worker, job: Job, start_ns: int, end_ns: int) -> None:
        """End the job of a stage that ended because it was told to; the lock is held."""
        now_ns = self.clock.now_ns()
        if not worker.hangs:
            self._engine.cancelled(job, now_ns, start_ns, end_ns, worker.asked_ns)
            return
        stage = self._tasks[job.task].next_stage(job).name
        reason = (
            f"stage {stage} of {job.variant} hangs: ended after {(end_ns - start_ns) / 1e9:g} s"
        )
        logger.error("task %s: %s", job.task, reason)
        if withdrawn := self._engine.fail(job, now_ns, reason, "hangs"):
            logger.error("variant %s of task %s is withdrawn: %s", withdrawn, job.task, reason)

    def _fail(self, job: Job, error: BaseException) -> None:
        # A frame that is not an image is the frame's fault, anything else the variant's. NaN
        # outputs, where several variants ran: from now on each stage is checked.
        bad_frame = isinstance(error, FrameError)
        unclear = isinstance(error, NotANumberError) and error.stage is None
        blame = not (bad_frame or (unclear and len(job.variants) > 1))
        kind = type(error).__name__
        text = safe_text(error)
        reason = text if bad_frame else f"{kind}: {text}"
        if job.mates and blame:
            logger.error(
                "a batch of %d frames (%s, %s) failed and is not formed any more: %s",
                1 + len(job.mates),
                self._tasks[job.task].next_stage(job).name,
                job.variant,
                reason,
            )
        withdrawn = self._engine.fail(job, self.clock.now_ns(), reason, kind, blame_variant=blame)
        if withdrawn:
            logger.error("variant %s of task %s is withdrawn: %s", withdrawn, job.task, reason)

    def _hand_over(self) -> None:
        """Queue the records of the jobs that ended; the lock is held."""
        try:
            endings = self._engine.take_endings()
        except Exception as error:
            FAULTS.note("scheduling engine", error)
            return
        for ending in endings:
            try:
                observers = (self._tasks[ending.job.task].observer, *self._observers)
                self._delivery.put(observers, ending)
            except Exception as error:  # the others are delivered
                self._delivery.unqueued_records += 1
                FAULTS.note("delivery of records", error)

    def _wait_for(self, reached: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until a condition is true; the lock is held."""
        limit_ns = self.clock.now_ns() + int(timeout_s * 1e9)
        step_ns = 1_000_000
        while not reached():
            now_ns = self.clock.now_ns()
            if now_ns >= limit_ns:
                return False
            # Polled: a notification for this rare wait would cost every boundary.
            self._condition.wait_until(min(limit_ns, now_ns + step_ns))
        return True

    # -- watchdog ------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Wake when the first running stage could hang, or becomes hopeless.

        No stage that starts later can hang earlier; one that becomes hopeless earlier wakes it.
        """
        try:
            self.realtime.apply_to_io()  # it has to be in time though all workers are busy
        except Exception as refused:
            FAULTS.note("real-time set-up of the watchdog", refused)
        pulse = self._watchdog_pulse
        while True:
            pulse.begin()
            with self._watchdog_condition:
                self._sooner_ns = None
            with self._condition:
                now_ns = self.clock.now_ns()
                wake_ns = now_ns + WATCH_NS if self._tasks else None
                for name, task in self._tasks.items():
                    wake_ns = min(wake_ns or 0, now_ns + task.stage_timeout_ns)
                    if (due_ns := task.restarts.due_ns) is not None:
                        if due_ns > now_ns:
                            wake_ns = min(wake_ns, due_ns)
                        elif not task.restarting:
                            self._begin_restart(name, task)
                for worker in list(self._workers):
                    if (job := worker.job) is not None:
                        due_ns = self._look_at(worker, job, now_ns)
                        wake_ns = min(wake_ns or due_ns, due_ns)
                self._look_ns = wake_ns
                self._hand_over()
                if self._idle and self._engine.has_ready:
                    self._wake_another()  # whoever released a job may have failed to
                if not self._stopping:
                    self._check_threads()
            if wake_ns is None:
                pulse.rest()
            with self._watchdog_condition:
                if self._stopping:
                    return
                if self._sooner_ns is not None:
                    wake_ns = min(wake_ns or self._sooner_ns, self._sooner_ns)
                self._watchdog_condition.wait_until(wake_ns)
                if self._stopping:
                    return

    def _wake_watchdog(self, time_ns: int = 0) -> None:
        """Let the watchdog look at this time, if not before; without one, at once."""
        with self._watchdog_condition:
            # Noted, too: between its plan and its wait it would miss the notification.
            if self._sooner_ns is None or time_ns < self._sooner_ns:
                self._sooner_ns = time_ns
            self._watchdog_condition.notify_all()

    def _look_at_latest(self, time_ns: int) -> None:
        """Let the watchdog look at this time, if not before; the lock is held."""
        self._look_ns = time_ns
        self._wake_watchdog(time_ns)

    def _look_at(self, worker: _Worker, job: Job, now_ns: int) -> int:
        """End or give up a stage that takes too long; returns when to look again."""
        hung_ns = worker.stage_start_ns + self._stage_timeout_ns(job)
        cancel = None if job.mates else self._tasks[job.task].next_stage(job).cancel
        given_up_ns = hung_ns if cancel is None else hung_ns + CANCEL_LIMIT_NS
        if given_up_ns <= now_ns:
            self._give_up(worker, job, now_ns)
            return now_ns  # for the restart
        if cancel is None:
            return hung_ns
        if hung_ns <= now_ns:
            worker.hangs = True
        elif not (job.cancel_reason or job.yields):
            if not job.hopeless_ns:
                return hung_ns
            if now_ns <= job.hopeless_ns:
                return min(hung_ns, job.hopeless_ns + 1)
        if worker.ask_ns <= now_ns:
            self._ask(worker, cancel, now_ns)
        return min(worker.ask_ns, hung_ns if now_ns < hung_ns else given_up_ns)

    def _ask(self, worker: _Worker, cancel: Callable[[], None], now_ns: int) -> None:
        """Tell a worker's stage to end: it may not have begun yet, hence more than once."""
        if not worker.asks:
            worker.asked_ns = now_ns
        worker.ask_ns = now_ns + (ASK_AGAIN_NS << min(worker.asks, MOST_DOUBLED))
        worker.asks += 1
        try:
            cancel()
        except Exception as error:
            FAULTS.note("cancelling a stage", error)

    def _cancel_unwanted(self) -> None:
        """Tell the running stages of jobs that were flushed, or make room, to end.

        The lock is held.
        """
        now_ns = self.clock.now_ns()
        for worker in list(self._workers):
            job = worker.job
            if job is not None and (job.cancel_reason or (job.yields and not worker.asks)):
                self._look_at_latest(self._look_at(worker, job, now_ns))

    def _check_threads(self) -> None:
        """Replace workers that have died."""
        for worker in list(self._workers):
            if worker.thread is None or not worker.thread.is_alive():
                FAULTS.note_dead(f"rt-worker-{worker.index}", "the thread has ended")
                self._workers.remove(worker)
                if worker.job is not None:
                    worker.job = None
                    self._recover(RuntimeError("a worker has died"))
                self._start_worker(worker.index)

    def check_watchdog(self) -> None:
        """Replace the watchdog if it has died."""
        if not self._started or self._stopping:
            return
        thread = self._watchdog_thread
        if thread is None or not thread.is_alive():
            FAULTS.note_dead(WATCHDOG_THREAD, "the thread has ended")
            self._start_watchdog()

    def _stage_timeout_ns(self, job: Job) -> int:
        """Time-out of the running stage; for a batch, the longest of its members'."""
        return max(self._tasks[member.task].stage_timeout_ns for member in (job, *job.mates))

    def _abandon(self, worker: _Worker, job: Job) -> None:
        """Leave a worker behind in its stage: it ends when that returns."""
        worker.users = tuple(
            (member.task, self._tasks[member.task].next_stage(member))
            for member in (job, *job.mates)
        )
        worker.abandoned, worker.job = True, None
        self._workers.remove(worker)
        self._hung.append(worker)
        # Callers that wait for this worker still do.

    def _give_up(self, worker: _Worker, job: Job, now_ns: int) -> None:
        """The worker's stage hangs: fail its job, replace the worker, restart the task.

        For a batch, the jobs of every member: the hung thread may hold resources of each.
        """
        members = (job, *job.mates)
        stage = self._tasks[job.task].next_stage(job).name
        seconds = self._stage_timeout_ns(job) / 1e9
        reason = f"stage {stage} of {job.variant} hangs: still running after {seconds:g} s"
        self._abandon(worker, job)
        with self._recovering():
            for member in members:
                self._plan_restart(member.task, reason, now_ns)
            if len(members) > 1:
                self._engine.forget_batches(self._engine.tasks[job.task].parameters.batch_group)
            self._engine.fail(job, now_ns, reason, "hangs")
            for member in members:
                self._engine.flush(member.task, now_ns, "restarting")
        self._hand_over()
        self._forget_idle()
        self._start_worker(worker.index)

    def _plan_restart(self, name: str, reason: str, now_ns: int) -> None:
        """Suspend a task whose stage hangs, until it is restarted, by itself or on request."""
        task = self._tasks[name]
        logger.error("task %s: %s", name, reason)
        self._engine.tasks[name].suspended = "restarting"
        if task.leaving:
            return
        own, hung = self._count_hangs(name), len(self._hung)
        if task.restart is None:
            trouble = f"{reason}; the task cannot be restarted by itself"
        elif task.restarts.plan(now_ns) and own < MAX_TASK_HUNG and hung < MAX_HUNG:
            return
        else:
            remedy = f"call {name}/enable with data: true to try again"
            if hung >= MAX_HUNG or own >= MAX_TASK_RETRIED:
                remedy = f"restart this process: {hung} threads hang"
            trouble = (
                f"{reason}; it hung {task.restarts.hangs} times and is restarted at most "
                f"{MAX_RESTARTS} times in {WINDOW_NS // 60_000_000_000} minutes; {own} of its "
                "threads still hang, each with a network: check the device and "
                f"stage_timeout_ms, then {remedy}"
            )
        logger.error("task %s is suspended: %s", name, trouble)
        task.trouble, task.restarts.due_ns = trouble, None
        self._engine.tasks[name].suspended = "hung"

    def _count_hangs(self, task: str) -> int:
        return sum(task in worker.tasks for worker in self._hung)

    def _begin_restart(self, name: str, task: _Entry) -> None:
        task.restarting = True
        try:
            self._spawn(lambda: self._restart(name, task), f"rt-restart-{name}")
        except BaseException:
            task.restarting = False  # it stays due: the next look tries again
            raise
        task.restarts.due_ns = None

    def _restart(self, name: str, task: _Entry) -> None:
        """Make new stages for a task whose old ones may still be in use by a hung thread."""
        assert task.restart is not None
        try:
            stages = task.restart()
            error: BaseException | None = None
        except BaseException as raised:
            logger.exception("task %s could not be restarted", name)
            error = raised
        with self._condition:
            task.restarting = False
            if self._tasks.get(name) is not task or task.leaving or self._stopping:
                return
            if error is None:
                try:
                    parameters = self._engine.tasks[name].parameters
                    task.stages = {v: _make_table(parameters, v, s) for v, s in stages.items()}
                    runs = {variant: _list_runs(s) for variant, s in stages.items()}
                    self._engine.tasks[name].replace_variants(runs)
                except Exception as raised:
                    error = raised
            if error is not None:
                task.trouble = (
                    f"restart failed: {safe_text(error)}; "
                    f"call {name}/enable with data: true to try again"
                )
                self._engine.tasks[name].suspended = "restart failed"
                return
            self._engine.tasks[name].suspended = ""
        logger.warning("task %s was restarted", name)


def _make_table(parameters: TaskParameters, variant: str, stages: Sequence[Stage]) -> StageTable:
    """Lay out the stages of a variant; ValueError when they are not the task's, in order."""
    first, expected = 0, []
    for stage in stages:
        if first + stage.span > len(parameters.stages):
            break
        expected.append(stage_name(parameters.stages, first, stage.span))
        first += stage.span
    names = [stage.name for stage in stages]
    if first != len(parameters.stages) or names != expected:
        raise ValueError(
            f"stages of variant {variant!r} of task {parameters.name!r} are {names}, expected "
            f"runs of {parameters.stages}"
        )
    return tuple(part for stage in stages for part in (stage, *(None,) * (stage.span - 1)))


def _describe_usage(
    usage: Mapping[tuple[str, str], Sequence[float]],
) -> dict[str, dict[str, tuple[float, float]]]:
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for (variant, stage), (wall_ns, cpu_ns) in usage.items():
        found.setdefault(variant, {})[stage] = wall_ns / 1e6, cpu_ns / 1e6
    return found


def _list_runs(stages: Sequence[Stage]) -> list[Run]:
    return [
        Run(stage.span, stage.device, stage.run_batch is not None, stage.cancel is not None)
        for stage in stages
    ]


def _make_demand(state: TaskState, period_ns: int) -> TaskDemand:
    parameters, spans = state.parameters, state.spans[state.parameters.variant]
    stages = state.budgets[parameters.variant]
    index = max(range(len(stages)), key=lambda index: stages[index].budget_ns)
    longest = stages[index]
    estimate = Estimate(
        stage_name(parameters.stages, index, spans[index]),
        longest.budget_ns,
        longest.quantile,
        longest.count,
        longest.largest_ns,
    )
    return TaskDemand(
        name=parameters.name,
        cost_ns=sum(stage.budget_ns for stage in stages),
        longest_stage_ns=longest.budget_ns,
        stages=len(stages),
        deadline_ns=parameters.deadline_ns,
        period_ns=period_ns,
        estimate=estimate if longest.count else None,
    )
