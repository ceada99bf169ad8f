# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Supervision of an executor: its threads, stages that hang or are told to end, restarts.

The driver (`jetson_dnn_rt.runtime.executor`) runs stages on `Worker` threads and says what it has
seen; the supervisor says what to do about a stage that does not return, a thread that died, or an
engine that raised. Its watchdog is the only one who looks by itself.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping

from jetson_dnn_rt.errors import StillRunningError
from jetson_dnn_rt.runtime.realtime import Realtime
from jetson_dnn_rt.runtime.shared_state import SharedState, Worker
from jetson_dnn_rt.runtime.task_entry import (
    MAX_RESTARTS,
    WINDOW_NS,
    StageTable,
    TaskEntry,
    list_runs,
    make_table,
)
from jetson_dnn_rt.safety.faults import FAULTS, Pulse, safe_text, start_thread
from jetson_dnn_rt.scheduling.job import Job

logger = logging.getLogger(__name__)

WATCHDOG_THREAD = "rt-watchdog"
WATCH_NS = 500_000_000  # the watchdog checks the threads at least this often
ASK_AGAIN_NS = 1_000_000
"""Pause after which a stage is told again to end; doubled each time, `MOST_DOUBLED` times."""
MOST_DOUBLED = 6
CANCEL_LIMIT_NS = 250_000_000  # a hanging stage that was told to end is given up after this
RECOVERIES = 3  # attempts to make the engine consistent again after it raised

MAX_HUNG = 8
"""Threads hanging in stages at which no task is restarted any more: each holds a network."""
MAX_TASK_RETRIED = MAX_HUNG - 2
"""The same for stages of one task and requested restarts: the rest is left to tasks that hang
once."""
MAX_TASK_HUNG = MAX_RESTARTS + 1  # the same for automatic restarts


class Supervisor:
    """Keeps the threads of an executor alive and its tasks going.

    `work` is what a worker does until the executor stops or the worker is abandoned. Methods
    whose docstring does not say otherwise are called with the lock of `shared` held.
    """

    def __init__(
        self, shared: SharedState, realtime: Realtime, work: Callable[[Worker], None]
    ) -> None:
        self._shared, self._realtime, self._run = shared, realtime, work
        self.workers: list[Worker] = []
        self._hung: list[Worker] = []  # left behind in a stage that has not returned
        # Called when the last of these workers has returned from its present stage.
        self.awaited: list[tuple[set[Worker], Callable[[], None]]] = []
        self._condition = shared.clock.condition()  # of the watchdog
        self._pulse = Pulse()
        self._watchdog: threading.Thread | None = None
        self._look_ns: int | None = None  # when the watchdog looks next, by its last plan
        self._sooner_ns: int | None = None  # when it must, because of what changed since

    # -- threads -------------------------------------------------------------------------------

    def start_worker(self, index: int) -> None:
        """Start a worker; without the lock where nobody else knows the executor yet."""
        worker = Worker(index)
        self.workers.append(worker)
        worker.thread = self._spawn(
            lambda: self._run(worker),
            f"rt-worker-{index}",
            lambda: not (worker.abandoned or self._shared.stopping),
            worker.pulse,
        )

    def start_watchdog(self) -> None:
        """Start the watchdog; without the lock."""
        self._watchdog = self._spawn(
            self._watch, WATCHDOG_THREAD, lambda: not self._shared.stopping, self._pulse
        )

    def check_watchdog(self) -> None:
        """Replace the watchdog if it has died; without the lock."""
        thread = self._watchdog
        if not self._shared.started or self._shared.stopping:
            return
        if thread is None or not thread.is_alive():
            FAULTS.note_dead(WATCHDOG_THREAD, "the thread has ended")
            self.start_watchdog()

    def _spawn(
        self,
        target: Callable[[], None],
        name: str,
        wanted: Callable[[], bool] = lambda: False,
        pulse: Pulse | None = None,
    ) -> threading.Thread:
        """Start a thread; an exception is noted, the work is restarted as long as it is wanted."""
        clock = self._shared.clock
        clock.participate()
        try:
            return start_thread(target, name, wanted=wanted, on_end=clock.leave, pulse=pulse)
        except BaseException:
            clock.leave()
            raise

    def enter(self, worker: Worker) -> None:
        """Set the calling thread up as this worker; without the lock."""
        try:
            self._realtime.apply_to_worker()
        except Exception as refused:
            FAULTS.note("real-time set-up of a worker", refused)
        with self._shared.condition:
            if (worker.job is not None or worker.interrupted) and not worker.abandoned:
                # Restarted: the job that was interrupted would otherwise never end.
                worker.interrupted, worker.job, worker.error = True, None, None
                self.recover(RuntimeError("a worker was interrupted between two stages"))
                worker.interrupted = False  # else this is for the next restart

    def join(self, timeout_s: float) -> list[threading.Thread]:
        """Wait for the threads, and fail the jobs of those that hang; without the lock.

        Each is waited for so long. Returns the threads of the workers.
        """
        threads = [w.thread for w in self.workers if w.thread is not None and not w.abandoned]
        for thread in (*threads, *filter(None, (self._watchdog,))):
            thread.join(timeout_s)
        with self._shared.condition:
            now_ns = self._shared.clock.now_ns()
            for worker in list(self.workers):
                if (job := worker.job) is not None:
                    self._abandon(worker, job)
                    with self.recovering():
                        self._shared.engine.fail(job, now_ns, "shutdown", blame_variant=False)
            self._shared.hand_over()
        return threads

    def _check_threads(self) -> None:
        """Replace workers that have died."""
        for worker in list(self.workers):
            if worker.thread is None or not worker.thread.is_alive():
                FAULTS.note_dead(f"rt-worker-{worker.index}", "the thread has ended")
                self.workers.remove(worker)
                if worker.job is not None:
                    worker.job = None
                    self.recover(RuntimeError("a worker has died"))
                self.start_worker(worker.index)

    # -- an engine that raised -----------------------------------------------------------------

    def recover(self, error: Exception) -> None:
        """Bring the engine back to a consistent state after it raised."""
        shared = self._shared
        FAULTS.note("scheduling engine", error)
        for _ in range(RECOVERIES):
            try:
                running = [worker.job for worker in self.workers if worker.job is not None]
                shared.engine.recover(running, shared.clock.now_ns())
                shared.hand_over()
                shared.forget_idle()
                shared.condition.notify_all()
                return
            except Exception as again:  # it goes on where it was, or finds nothing left to do
                FAULTS.note("recovery of the scheduling engine", again)

    @contextlib.contextmanager
    def recovering(self) -> Iterator[None]:
        """Context of engine calls whose failure must not stop the caller."""
        try:
            yield
        except Exception as error:
            self.recover(error)

    # -- stages that return --------------------------------------------------------------------

    def see_return(self, worker: Worker) -> None:
        """Note that a hung or awaited worker has returned from its stage."""
        if worker in self._hung:
            self._hung.remove(worker)
            names = ", ".join(sorted(worker.tasks))
            logger.warning("the stage of %s that hung has returned: its thread ends", names)
        worker.users = ()
        for entry in list(self.awaited):
            users, give_back = entry
            users.discard(worker)
            if not users:
                self.awaited.remove(entry)
                self._spawn(give_back, "rt-give-back")
        self._shared.forget_idle()

    def see_cancelled(self, worker: Worker, job: Job) -> None:
        """End the job of a stage that ended because it was told to."""
        shared, (start_ns, end_ns, _) = self._shared, worker.times_ns
        now_ns = shared.clock.now_ns()
        if not worker.hangs:
            shared.engine.cancelled(job, now_ns, start_ns, end_ns, worker.asked_ns)
            return
        stage = shared.tasks[job.task].next_stage(job).name
        reason = (
            f"stage {stage} of {job.variant} hangs: ended after {(end_ns - start_ns) / 1e9:g} s"
        )
        logger.error("task %s: %s", job.task, reason)
        if withdrawn := shared.engine.fail(job, now_ns, reason, "hangs"):
            logger.error("variant %s of task %s is withdrawn: %s", withdrawn, job.task, reason)

    def when_unused(self, task: str, give_back: Callable[[], None]) -> bool:
        """Call `give_back` when no thread runs a stage of the task as it is now; without the lock.

        That is at once where none does (True), else on a thread of its own. Threads that come to
        run stages of the task later, because it was restarted, are not waited for.
        """
        with self._shared.condition:
            users = {w for w in (*self.workers, *self._hung) if task in w.tasks}
            if users:
                self.awaited.append((users, give_back))
                return False
        give_back()
        return True

    def check_returned(self, name: str, tables: Mapping[str, StageTable]) -> None:
        """Check that no stage of an earlier task of this name, nor one of these, still runs."""
        tasks = self._shared.tasks
        if name in tasks and tasks[name].leaving:
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

    # -- watchdog ------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Wake when the first running stage could hang, or becomes hopeless.

        No stage that starts later can hang earlier; one that becomes hopeless earlier wakes it.
        """
        try:
            self._realtime.apply_to_io()  # it has to be in time though all workers are busy
        except Exception as refused:
            FAULTS.note("real-time set-up of the watchdog", refused)
        shared, pulse = self._shared, self._pulse
        while True:
            pulse.begin()
            with self._condition:
                self._sooner_ns = None
            with shared.condition:
                self._look_ns = wake_ns = self._look(shared.clock.now_ns())
                shared.hand_over()
                if shared.idle and shared.engine.has_ready:
                    shared.wake_idle()  # whoever released a job may have failed to
                if not shared.stopping:
                    self._check_threads()
            if wake_ns is None:
                pulse.rest()
            with self._condition:
                if shared.stopping:
                    return
                if self._sooner_ns is not None:
                    wake_ns = min(wake_ns or self._sooner_ns, self._sooner_ns)
                self._condition.wait_until(wake_ns)
                if shared.stopping:
                    return

    def _look(self, now_ns: int) -> int | None:
        """Look at every task and worker; returns when to look again, None = never by itself."""
        wake_ns = now_ns + WATCH_NS if self._shared.tasks else None
        for name, task in self._shared.tasks.items():
            wake_ns = min(wake_ns or 0, now_ns + task.stage_timeout_ns)
            if (due_ns := task.restarts.due_ns) is not None:
                if due_ns > now_ns:
                    wake_ns = min(wake_ns, due_ns)
                elif not task.restarting:
                    self._begin_restart(name, task)
        for worker in list(self.workers):
            if (job := worker.job) is not None:
                due_ns = self._look_at(worker, job, now_ns)
                wake_ns = min(wake_ns or due_ns, due_ns)
        return wake_ns

    def wake(self, time_ns: int = 0) -> None:
        """Let the watchdog look at this time, if not before; without one, at once.

        With the lock or without it.
        """
        with self._condition:
            # Noted, too: between its plan and its wait it would miss the notification.
            if self._sooner_ns is None or time_ns < self._sooner_ns:
                self._sooner_ns = time_ns
            self._condition.notify_all()

    def watch(self, hopeless_ns: int) -> None:
        """Look at the running stages when one that has just begun becomes hopeless."""
        if self._look_ns is not None and hopeless_ns < self._look_ns:
            self._look_at_latest(hopeless_ns + 1)

    def _look_at_latest(self, time_ns: int) -> None:
        """Let the watchdog look at this time, if not before."""
        self._look_ns = time_ns
        self.wake(time_ns)

    def _look_at(self, worker: Worker, job: Job, now_ns: int) -> int:
        """End or give up a stage that takes too long; returns when to look again."""
        hung_ns = worker.stage_start_ns + self._shared.stage_timeout_ns(job)
        cancel = None if job.mates else self._shared.tasks[job.task].next_stage(job).cancel
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

    def _ask(self, worker: Worker, cancel: Callable[[], None], now_ns: int) -> None:
        """Tell a worker's stage to end: it may not have begun yet, hence more than once."""
        if not worker.asks:
            worker.asked_ns = now_ns
        worker.ask_ns = now_ns + (ASK_AGAIN_NS << min(worker.asks, MOST_DOUBLED))
        worker.asks += 1
        try:
            cancel()
        except Exception as error:
            FAULTS.note("cancelling a stage", error)

    def cancel_unwanted(self) -> None:
        """Tell the running stages of jobs that were flushed, or make room, to end."""
        now_ns = self._shared.clock.now_ns()
        for worker in list(self.workers):
            job = worker.job
            if job is not None and (job.cancel_reason or (job.yields and not worker.asks)):
                self._look_at_latest(self._look_at(worker, job, now_ns))

    # -- stages that hang, and restarts --------------------------------------------------------

    def _abandon(self, worker: Worker, job: Job) -> None:
        """Leave a worker behind in its stage: it ends when that returns."""
        worker.users = tuple(
            (member.task, self._shared.tasks[member.task].next_stage(member))
            for member in (job, *job.mates)
        )
        worker.abandoned, worker.job = True, None
        self.workers.remove(worker)
        self._hung.append(worker)
        # Callers that wait for this worker still do.

    def _give_up(self, worker: Worker, job: Job, now_ns: int) -> None:
        """The worker's stage hangs: fail its job, replace the worker, restart the task.

        For a batch, the jobs of every member: the hung thread may hold resources of each.
        """
        shared, engine, members = self._shared, self._shared.engine, (job, *job.mates)
        stage = shared.tasks[job.task].next_stage(job).name
        seconds = self._shared.stage_timeout_ns(job) / 1e9
        reason = f"stage {stage} of {job.variant} hangs: still running after {seconds:g} s"
        self._abandon(worker, job)
        with self.recovering():
            for member in members:
                self._plan_restart(member.task, reason, now_ns)
            if len(members) > 1:
                engine.forget_batches(engine.tasks[job.task].parameters.batch_group)
            engine.fail(job, now_ns, reason, "hangs")
            for member in members:
                engine.flush(member.task, now_ns, "restarting")
        shared.hand_over()
        shared.forget_idle()
        self.start_worker(worker.index)

    def _plan_restart(self, name: str, reason: str, now_ns: int) -> None:
        """Suspend a task whose stage hangs, until it is restarted, by itself or on request."""
        engine, task = self._shared.engine, self._shared.tasks[name]
        logger.error("task %s: %s", name, reason)
        engine.suspend(name, "restarting")
        if task.leaving:
            return
        own, hung = self.count_hangs(name), len(self._hung)
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
        engine.suspend(name, "hung")

    def count_hangs(self, task: str) -> int:
        """Threads that hang in stages of a task."""
        return sum(task in worker.tasks for worker in self._hung)

    def retry(self, task: str) -> str:
        """Restart a task that was suspended because its stages hung, and reset the count.

        Anybody may ask, without the lock, so it is done at most once a minute, and not when
        `MAX_TASK_RETRIED` threads hang in the task's stages: all tasks share the number of threads
        that may hang. Returns what happens; empty where the task is not suspended for that. Raises
        `StillRunningError`, with when to try again, when too many threads hang or it was restarted
        just now.
        """
        with self._shared.condition:
            entry = self._shared.tasks[task]
            if not entry.trouble:
                return ""
            if entry.restart is None:
                raise StillRunningError(f"{entry.trouble}; it cannot be restarted by itself")
            now_ns, own = self._shared.clock.now_ns(), self.count_hangs(task)
            hung = len(self._hung)
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
            self._shared.engine.suspend(task, "restarting")
        self.wake()
        return f"task {task} is being restarted"

    def _begin_restart(self, name: str, task: TaskEntry) -> None:
        task.restarting = True
        try:
            self._spawn(lambda: self._restart(name, task), f"rt-restart-{name}")
        except BaseException:
            task.restarting = False  # it stays due: the next look tries again
            raise
        task.restarts.due_ns = None

    def _restart(self, name: str, task: TaskEntry) -> None:
        """Make new stages for a task whose old ones may still be in use by a hung thread."""
        assert task.restart is not None
        try:
            stages = task.restart()
            error: BaseException | None = None
        except BaseException as raised:
            logger.exception("task %s could not be restarted", name)
            error = raised
        with self._shared.condition:
            task.restarting = False
            if self._shared.tasks.get(name) is not task or task.leaving or self._shared.stopping:
                return
            engine, state = self._shared.engine, self._shared.engine.tasks[name]
            if error is None:
                try:
                    parameters = state.parameters
                    task.stages = {v: make_table(parameters, v, s) for v, s in stages.items()}
                    state.replace_variants({v: list_runs(s) for v, s in stages.items()})
                except Exception as raised:
                    error = raised
            if error is not None:
                task.trouble = (
                    f"restart failed: {safe_text(error)}; "
                    f"call {name}/enable with data: true to try again"
                )
                engine.suspend(name, "restart failed")
                return
            engine.resume(name)
        logger.warning("task %s was restarted", name)
