"""The executor: worker threads that run what the scheduling engine decides.

    submit (camera or ROS thread) -> engine -> worker threads -> delivery thread -> observers

Frames are taken and stages are run on different threads; results are handed to observers on a
third one, so that neither publishing nor drawing delays the next stage.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jetson_dnn_rt.clock import Clock, SteadyClock
from jetson_dnn_rt.errors import FrameError, NotANumberError
from jetson_dnn_rt.executor.control import Control
from jetson_dnn_rt.executor.delivery import Delivery, Observer
from jetson_dnn_rt.executor.realtime import Realtime, RealtimeParameters
from jetson_dnn_rt.executor.stage_table import list_runs, make_table
from jetson_dnn_rt.executor.task_entry import (
    Stages,
    TaskEntry,
    TaskSnapshot,
)
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.tasks import Stage, TaskParameters, Work

__all__ = ["DEFAULT_STAGE_TIMEOUT_NS", "Executor", "Stages", "TaskSnapshot"]

logger = logging.getLogger(__name__)

DEFAULT_STAGE_TIMEOUT_NS = 2_000_000_000


@dataclass(slots=True, eq=False)
class _Worker:
    index: int
    thread: threading.Thread | None = None
    job: Job | None = None
    """Whose stage it runs, with that of the job's mates."""
    stage_start_ns: int = 0
    abandoned: bool = False


class Executor(Control):
    """Runs the jobs of all tasks under their deadlines.

    Parameters
    ----------
    workers : int
        Worker threads; stages of different tasks run side by side on them.
    discipline : str
        One of `jetson_dnn_rt.scheduling.queue.DISCIPLINES`.
    realtime : RealtimeParameters
        Real-time set-up of the process and the workers.
    clock : Clock
        The steady clock, or a virtual one in tests.
    max_inflight : mapping of str to int, optional
        How many stages may run at once on a device (``{"cuda": 2}``); no limit for others.
    """

    def __init__(
        self,
        workers: int = 1,
        discipline: str = "edf",
        realtime: RealtimeParameters | None = None,
        clock: Clock | None = None,
        max_inflight: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(Engine(workers, discipline, max_inflight), clock or SteadyClock())
        self.realtime = Realtime(realtime or RealtimeParameters())
        self._watchdog_condition = self.clock.condition()
        self._workers: list[_Worker] = []
        self._observers: list[Observer] = []
        self._delivery = Delivery()
        self._watchdog_thread: threading.Thread | None = None
        self._idle = 0
        """Workers that wait for a job."""
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
        for index in range(self._engine.workers):
            self._start_worker(index)
        self._watchdog_thread = self._spawn(self._watch, "rt-watchdog")

    def stop(self, timeout_s: float = 1.0) -> bool:
        """End all jobs, stop the threads and deliver what is left.

        Returns
        -------
        bool
            False when a stage that hangs kept a worker from ending; its thread is a daemon.
        """
        with self._condition:
            now_ns = self.clock.now_ns()
            for task in self._tasks:
                self._engine.flush(task, now_ns, "shutdown")
                self._engine.suspend(task, "shutdown")
            self._stopping = True
            self._hand_over()
            self._condition.notify_all()
        with self._watchdog_condition:
            self._watchdog_condition.notify_all()
        if not self._started:
            return True
        threads = [worker.thread for worker in self._workers if not worker.abandoned]
        for thread in (*threads, self._watchdog_thread):
            if thread is not None:
                thread.join(timeout_s)
        with self._condition:
            now_ns = self.clock.now_ns()
            for worker in self._workers:
                if worker.job is not None:
                    self._engine.fail(worker.job, now_ns, "shutdown", blame_variant=False)
                    worker.abandoned = True
            self._hand_over()
        self._delivery.stop(timeout_s)
        return not any(thread is not None and thread.is_alive() for thread in threads)

    def set_workers(self, count: int) -> None:
        """Have so many workers from now on, before the first task comes.

        How many are of use is measured with the tasks' networks, which are loaded when the
        real-time set-up of the process is done already.

        Raises
        ------
        ValueError
            When there are tasks, or more workers already.
        """
        with self._condition:
            before = self._engine.workers
            if self._tasks or count < before:
                raise ValueError(
                    f"workers cannot become {count}: {before}, tasks: {[*self._tasks]}"
                )
            self._engine.workers = count
            for index in range(before, count if self._started else before):
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
        stage_timeout_ns: int = DEFAULT_STAGE_TIMEOUT_NS,
    ) -> None:
        """Add a task; it may be added while others run.

        Parameters
        ----------
        parameters : TaskParameters
            Name, deadline, variants, names of the stages.
        stages : mapping of str to sequence of Stage
            For each variant its stages in order; their spans add up to those in `parameters`.
        observer : callable
            Called with the record and the work of every job of this task.
        warm_up_times_ns : mapping, optional
            For each variant the stage times of its warm-up runs: the first budgets.
        restart : callable, optional
            Makes new stages after one hung; without it the task stays suspended then.
        stage_timeout_ns : int
            A stage that runs longer than this hangs.
        """
        tables = {v: make_table(parameters, v, stages[v]) for v in parameters.variants}
        with self._condition:
            self._engine.add_task(
                parameters, {v: list_runs(stages[v]) for v in parameters.variants}
            )
            for variant, times in (warm_up_times_ns or {}).items():
                self._engine.seed_budgets(parameters.name, variant, times)
            task = TaskEntry(tables, observer, restart, stage_timeout_ns)
            self._tasks[parameters.name] = task
            self._rank_deadlines()
        with self._watchdog_condition:
            self._watchdog_condition.notify_all()

    def remove_task(self, task: str, reason: str = "deactivated", timeout_s: float = 5.0) -> None:
        """End the task's jobs and forget it.

        Returns when none of its stages runs any more and its last record is delivered.

        Raises
        ------
        TimeoutError
            When a stage still runs after `timeout_s`; the task stays, suspended.
        """
        with self._condition:
            self._engine.flush(task, self.clock.now_ns(), reason)
            self._engine.suspend(task, reason)
            self._hand_over()
            if not self._wait_idle((task,), timeout_s):
                raise TimeoutError(f"a stage of task {task!r} still runs after {timeout_s} s")
            self._engine.remove_task(task)
            del self._tasks[task]
            self._rank_deadlines()
        self._delivery.wait(timeout_s)

    def add_variant(
        self, task: str, variant: str, stages: Sequence[Stage], times_ns: list[tuple[int, ...]]
    ) -> None:
        """Let a task run one more variant, warmed up, while its frames keep coming.

        Parameters
        ----------
        task, variant : str
            Names of both.
        stages : sequence of Stage
            In order; their spans add up to the task's stages.
        times_ns : list of tuple of int
            Stage times of the warm-up runs: the first budgets.
        """
        with self._condition:
            parameters = self._engine.tasks[task].parameters
            self._tasks[task].stages[variant] = make_table(parameters, variant, stages)
            self._engine.add_variant(task, variant, list_runs(stages))
            self._engine.seed_budgets(task, variant, times_ns)

    # -- frames --------------------------------------------------------------------------------

    def submit(self, tasks: str | Sequence[str], frame: Frame, capture_ns: int) -> None:
        """Release a job for this frame in each task, at one instant; returns at once.

        Tasks that share a camera are released together: with one call per task an idle worker
        would have taken the first before the second is there, and equal deadlines would differ.

        Parameters
        ----------
        tasks : str or sequence of str
            Which task, or tasks.
        frame : Frame
            The input; must not be written to until the job ended.
        capture_ns : int
            When it was captured, on this executor's clock.
        """
        names = (tasks,) if isinstance(tasks, str) else tasks
        with self._condition:
            now_ns = self.clock.now_ns()
            works = [Work(frame, urgency=self._tasks[name].urgency) for name in names]
            jobs = [
                self._engine.release(name, now_ns, capture_ns, work)
                for name, work in zip(names, works, strict=True)
            ]
            self._hand_over()
            if not all(job.ended for job in jobs):
                self._condition.notify_all()

    def reject(self, task: str, frame: Frame, capture_ns: int, reason: str) -> None:
        """Count a frame that arrived but cannot be used, as ``failed``."""
        with self._condition:
            self._engine.reject(task, self.clock.now_ns(), capture_ns, Work(frame), reason)
            self._hand_over()

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no job waits or runs and every record was delivered to the observers."""
        with self._condition:
            idle = self._wait_idle(tuple(self._tasks), timeout_s)
        return self._delivery.wait(timeout_s) and idle

    # -- threads -------------------------------------------------------------------------------

    def _spawn(self, target: Callable[[], None], name: str) -> threading.Thread:
        def run() -> None:
            try:
                target()
            finally:
                self.clock.leave()

        self.clock.participate()
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def _start_worker(self, index: int) -> None:
        worker = _Worker(index)
        self._workers.append(worker)
        worker.thread = self._spawn(lambda: self._work(worker), f"rt-worker-{index}")

    def _work(self, worker: _Worker) -> None:
        self.realtime.apply_to_worker()
        clock, condition, engine = self.clock, self._condition, self._engine
        job: Job | None = None
        error: Exception | None = None
        start_ns = end_ns = 0
        while True:
            with condition:
                if worker.abandoned:
                    return
                if job is not None:
                    worker.job = None
                    if error is None:
                        engine.boundary(job, clock.now_ns(), start_ns, end_ns)
                    else:
                        self._fail(job, error)
                        error = None
                while (job := engine.next(clock.now_ns())) is None and not self._stopping:
                    self._hand_over()
                    self._idle += 1
                    condition.wait_until(engine.ask_again_ns)
                    self._idle -= 1
                self._hand_over()
                if job is None:
                    return
                if self._idle and engine.has_ready:
                    # A batch that ended left several, or a device has room again.
                    condition.notify_all()
                stage = self._tasks[job.task].next_stage(job)
                mates = job.mates
                worker.stage_start_ns = clock.now_ns()
                worker.job = job
            start_ns = clock.now_ns()
            try:
                if mates:
                    assert stage.run_batch is not None  # else the engine forms no batch
                    stage.run_batch([job.work, *(mate.work for mate in mates)])
                else:
                    stage.run(job.work)
            except Exception as raised:
                error = raised
            end_ns = clock.now_ns()

    def _fail(self, job: Job, error: Exception) -> None:
        # A frame that is no image is the frame's fault, anything else the variant's. Outputs that
        # are no numbers, where several variants ran: from now on each stage is looked at.
        bad_frame = isinstance(error, FrameError)
        unclear = isinstance(error, NotANumberError) and error.stage is None
        blame = not (bad_frame or (unclear and len(job.variants) > 1))
        reason = str(error) if bad_frame else f"{type(error).__name__}: {error}"
        if job.mates and blame:
            logger.error(
                "a batch of %d frames (%s, %s) failed and is not formed any more: %s",
                1 + len(job.mates),
                self._tasks[job.task].next_stage(job).name,
                job.variant,
                reason,
            )
        withdrawn = self._engine.fail(job, self.clock.now_ns(), reason, blame_variant=blame)
        if withdrawn:
            logger.error("variant %s of task %s is withdrawn: %s", withdrawn, job.task, reason)

    def _hand_over(self) -> None:
        """Queue the records of the jobs that ended; the lock is held."""
        for ending in self._engine.take_endings():
            observers = (self._tasks[ending.job.task].observer, *self._observers)
            self._delivery.put(observers, ending)

    def _wait_idle(self, tasks: tuple[str, ...], timeout_s: float) -> bool:
        """Wait, with the lock held, until these tasks have no job."""
        return self._wait_for(lambda: all(map(self._engine.is_idle, tasks)), timeout_s)

    # -- watchdog ------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Wake when the first running stage could hang; none started later is due earlier."""
        while True:
            with self._condition:
                now_ns = self.clock.now_ns()
                wake_ns = min(
                    (now_ns + task.stage_timeout_ns for task in self._tasks.values()), default=None
                )
                for worker in [worker for worker in self._workers if worker.job is not None]:
                    assert worker.job is not None
                    timeout_ns = self._stage_timeout_ns(worker.job)
                    if worker.stage_start_ns + timeout_ns <= now_ns:
                        self._give_up(worker, worker.job, now_ns)
                    else:
                        assert wake_ns is not None
                        wake_ns = min(wake_ns, worker.stage_start_ns + timeout_ns)
            with self._watchdog_condition:
                if self._stopping:
                    return
                self._watchdog_condition.wait_until(wake_ns)
                if self._stopping:
                    return

    def _stage_timeout_ns(self, job: Job) -> int:
        """Of a batch the longest of its members'."""
        return max(self._tasks[member.task].stage_timeout_ns for member in (job, *job.mates))

    def _give_up(self, worker: _Worker, job: Job, now_ns: int) -> None:
        """The worker's stage hangs: fail its job, replace the worker, restart the task.

        Of a batch those of every member: the thread that hangs may hold what belongs to each.
        """
        members = (job, *job.mates)
        stage = self._tasks[job.task].next_stage(job).name
        seconds = self._stage_timeout_ns(job) / 1e9
        reason = f"stage {stage} of {job.variant} hangs: still running after {seconds:g} s"
        worker.abandoned, worker.job = True, None
        for member in members:
            logger.error("task %s: %s", member.task, reason)
            self._engine.suspend(member.task, "restarting")
        if job.mates:
            self._engine.forget_batches(self._engine.tasks[job.task].parameters.batch_group)
        self._engine.fail(job, now_ns, reason)
        for member in members:
            self._engine.flush(member.task, now_ns, "restarting")
        self._hand_over()
        self._workers.remove(worker)
        self._start_worker(worker.index)
        for member in members:
            self._spawn_restart(member.task)

    def _spawn_restart(self, name: str) -> None:
        task = self._tasks[name]
        self._spawn(lambda: self._restart(name, task), f"rt-restart-{name}")

    def _restart(self, name: str, task: TaskEntry) -> None:
        """Make new stages for a task whose old ones may still be in use by a hung thread."""
        if task.restart is None:
            with self._condition:
                self._engine.suspend(name, "hung")
            return
        try:
            stages = task.restart()
        except Exception as error:
            logger.exception("task %s could not be restarted", name)
            with self._condition:
                if self._tasks.get(name) is task:
                    self._engine.suspend(name, f"restart failed: {error}")
            return
        with self._condition:
            if self._tasks.get(name) is task and not self._stopping:
                parameters = self._engine.tasks[name].parameters
                task.stages = {v: make_table(parameters, v, runs) for v, runs in stages.items()}
                self._engine.replace_variants(
                    name, {variant: list_runs(runs) for variant, runs in stages.items()}
                )
                self._engine.resume(name)
                logger.warning("task %s was restarted", name)
