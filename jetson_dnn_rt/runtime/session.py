# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The tasks of one process: from their configuration to the results of their frames.

    with Session(load_config("perception.param.yaml")) as session:
        session.observe(lambda record, result: print(record.task, record.outcome, result))
        session.submit(frame)

A session loads the tasks, measures how they share the cores, runs them on an `Executor` and tells
observers. Nodes, evaluation and examples differ only in where frames come from and where results
go. What the ``with`` statement does at once can be done step by step: `start`, `share_cores`,
`load` for each task, `prepare`, `activate` for each task, `commit`; tasks may come and go later.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from jetson_dnn_rt.backends.threads import count_cores
from jetson_dnn_rt.clock import Clock, SteadyClock
from jetson_dnn_rt.config.perception import PerceptionConfig
from jetson_dnn_rt.config.task import TaskConfig, follows_load
from jetson_dnn_rt.errors import ConfigurationError, StillRunningError, UnschedulableError, blaming
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.results import Result
from jetson_dnn_rt.runtime.building.background_build import JOIN_TIMEOUT_S, BackgroundBuild, Log
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.runtime.job_trace import JobTrace
from jetson_dnn_rt.runtime.realtime import trim_memory
from jetson_dnn_rt.runtime.sharing import core_split
from jetson_dnn_rt.runtime.sharing.batch_groups import BatchGroups
from jetson_dnn_rt.runtime.sharing.core_split import CoreSplit
from jetson_dnn_rt.runtime.sharing.split_choice import SplitChoice
from jetson_dnn_rt.runtime.sharing.split_chooser import SplitChooser
from jetson_dnn_rt.runtime.sharing.split_watch import SplitWatch
from jetson_dnn_rt.runtime.start_times import StartTimes
from jetson_dnn_rt.runtime.task import StageTimes, Task, make_settings
from jetson_dnn_rt.runtime.task_entry import Stages, TaskSnapshot
from jetson_dnn_rt.runtime.verdict_watch import PresentVerdict, VerdictWatch, judge_tasks
from jetson_dnn_rt.safety.stuck_log import start_stuck_log
from jetson_dnn_rt.scheduling.analysis import Verdict
from jetson_dnn_rt.tasks import JobRecord, Outcome, Stage, Work
from jetson_dnn_rt.traces.metadata import describe_run
from jetson_dnn_rt.traces.room import TraceRoom
from jetson_dnn_rt.traces.schema import (
    NARROW_SLOWDOWNS,
    SHARING,
    WARM_UP,
    TracedTask,
    TraceMetadata,
)
from jetson_dnn_rt.traces.variant_use import VariantUse

FINISHED = (Outcome.MET, Outcome.LATE)

Observer = Callable[[JobRecord, Result | None], None]
"""Called with a job that ended and its result; None where there is none that may be used."""

TaskObserver = Callable[[JobRecord, Work, Result | None], None]
"""The same for the jobs of one task, with the work: the frame and the data of its stages."""


class Session:
    """Tasks that share the cores and the devices of a process.

    The ``with`` statement loads and activates the tasks of `config`, too. `clock` may be a virtual
    one; without `log` Python's log is used.
    """

    def __init__(
        self, config: PerceptionConfig, *, clock: Clock | None = None, log: Log | None = None
    ) -> None:
        self.config = config
        self.clock: Clock = clock or SteadyClock()
        self.tasks: dict[str, Task] = {}  # those that are loaded
        self.batches = BatchGroups(self.tasks)
        self.cores = 1  # that the workers may use
        self.split = CoreSplit(1, 1)  # workers, and the threads of tasks that name no number
        # How much longer stages take with 1, 2, ... of them side by side; empty = not measured.
        self.cohort_slowdown: dict[int, float] = {}
        # Whether the tasks fit, as the last `commit` found; `judge` says how it is now.
        self.verdict: Verdict | None = None
        self._verdict_watch = VerdictWatch()
        self.trace: JobTrace | None = None  # takes every job, where there is a `trace_dir`
        # Of the trace; nodes replace them before `start`. `clocks_at` gives the clock
        # configuration at a steady time in ns.
        self.name = "session"
        self.trace_room = TraceRoom()
        self.clocks_at: Callable[[int], str] = lambda time_ns: ""
        self.describe_run: Callable[[], TraceMetadata] = self._describe_run
        # Until the first result, which is logged with them; nodes replace them before `start`.
        self.start_times: StartTimes | None = None
        self._log: Log = log or logging.getLogger(__name__)
        self._executor: Executor | None = None
        self._observers: list[Observer] = []
        self._helpers = 0
        self._narrow_slowdowns: dict[str, list[float]] = {}
        # With ``threads: auto`` what networks are loaded for, and which split was chosen.
        self._planned: CoreSplit | None = None
        self._chosen: tuple[CoreSplit, int] | None = None  # with the helpers
        self._split_watch: SplitWatch | None = None
        # Held while a task changes between active and not: builds add variants on their threads.
        self._lock = threading.RLock()
        self._active: set[str] = set()
        self._variant_use: dict[str, VariantUse] = {}
        self._builds: dict[str, BackgroundBuild] = {}
        self._build_turn = threading.Lock()

    # -- life ----------------------------------------------------------------------------------

    def __enter__(self) -> Session:
        try:
            self.start()
            if self.config.tasks:
                self._open_tasks()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _open_tasks(self) -> None:
        config = self.config
        rates = {camera.name: camera.rate for camera in config.cameras}
        periods = {task.name: task.period_ns(rates.get(task.camera, 0.0)) for task in config.tasks}
        if follows_load(config.threads, config.tasks):
            self.share_cores(len(config.tasks))
        for task in config.tasks:
            self.load(task)
        self.prepare(periods)
        for task in config.tasks:
            self.activate(task.name, period_ns=periods[task.name])
        self.commit()
        for task in config.tasks:
            self.start_build(task.name)

    def start(self) -> None:
        """Start the executor.

        With ``threads: auto`` one worker with all cores, until `prepare` has chosen.
        """
        start_stuck_log()
        self.start_times = self.start_times or StartTimes(now_ns=self.clock.now_ns)
        process, threads = self.config.process, self.config.threads
        workers = 1 if follows_load(threads, self.config.tasks) else process.workers
        self._helpers = process.helpers
        executor = Executor(
            workers,
            process.discipline,
            process,
            self.clock,
            process.device_limits,
            process.helpers,
            process.cancel_for_urgent,
        )
        for observer in self._observers:
            executor.add_observer(partial(self._tell, observer))
        if process.trace_dir:
            self.trace_room.limit_mb = process.trace_limit_mb
            folder = Path(process.trace_dir).expanduser()
            self.trace = JobTrace(folder, self.name, self.clocks_at, self.trace_room)
            executor.add_observer(self.trace.observe)
        executor.set_cohort_slowdown(self.cohort_slowdown)
        executor.start()
        self._executor = executor
        with executor.realtime.as_worker():
            self.cores = count_cores()
        own = threads if isinstance(threads, int) else 0
        self.split = CoreSplit(workers, own or max(1, self.cores // workers))
        if self._chosen is not None:  # before the executor was stopped
            self._take_split(*self._chosen)

    def stop(self, timeout_s: float = 1.0, *, quickly: bool = False) -> None:
        """Stop the executor; loaded tasks stay, and it may be started again.

        Stages that still run after `timeout_s` are left behind with their threads. With `quickly`,
        for a process that is ending, the trace stays as it is on disk.
        """
        with self._lock:
            self._active.clear()
            executor, self._executor = self._executor, None
        self.verdict, self._verdict_watch = None, VerdictWatch()
        if executor is None:
            return
        if not executor.stop(timeout_s):
            self._log.error("a stage hangs: its thread is left behind")
        trace, self.trace = self.trace, None
        if trace is not None:
            trace.close(quickly=quickly)
        if executor.realtime.config.gc_freeze:
            # Else the cycles among what was frozen would never be freed.
            gc.unfreeze()
            gc.collect()

    def close(self) -> None:
        """End all jobs, release the models, stop the executor.

        A model in use by a stage that hangs is released when that returns.
        """
        for name in list(self.tasks):
            with contextlib.suppress(StillRunningError):
                self.deactivate(name)
            self.unload(name)
        self.stop()

    @property
    def running(self) -> bool:
        """Whether the executor runs."""
        return self._executor is not None

    @property
    def executor(self) -> Executor:
        """The running executor; ConfigurationError before `start`."""
        if self._executor is None:
            raise ConfigurationError(
                "the session is not started; fix: start it, or configure the node that owns it"
            )
        return self._executor

    @property
    def selector_failure(self) -> str:
        """Why the executor replaced the selector; empty while it uses it, or does not run."""
        executor = self._executor
        return "" if executor is None else executor.selector_failure

    # -- loading -------------------------------------------------------------------------------

    def share_cores(self, tasks: int) -> None:
        """Load networks so that `prepare` can choose how tasks share the cores.

        To be called before the first of so many is loaded.
        """
        process = self.config.process
        if process.workers != 1:
            self._log.warning(
                f"workers: {process.workers} is ignored: threads: auto decides on them"
            )
        self.split = self._planned = core_split.share_cores(self.cores, tasks)
        self._chosen = None

    def _take_split(self, split: CoreSplit, helpers: int) -> None:
        """Run with a split; no task is active."""
        self.split, self._helpers = split, helpers
        self._chosen = (split, helpers)
        self.executor.set_workers(split.workers, helpers)

    def count_threads(self, config: TaskConfig) -> int:
        """Threads of one inference of a task."""
        return config.fixed_threads or self.split.threads

    def load(
        self,
        config: TaskConfig,
        size: tuple[int, int] | None = None,
        *,
        log: Callable[[str], object] | None = None,
        frames: Sequence[Frame] | None = None,
        on_device: bool = False,
    ) -> Task:
        """Load a task and warm it up; the arguments and errors are those of `Task`."""
        realtime = self.executor.realtime
        # Threads that a back end starts in here get the workers' scheduling. This one has it, too,
        # unless there are workers that it would delay.
        with realtime.in_background() if self._active else realtime.as_worker():
            task = Task(
                config,
                size,
                threads=self.count_threads(config),
                narrow_threads=0 if config.fixed_threads else self.split.narrow_threads,
                clock=self.clock,
                log=log or self._log.info,
                find_like=self.batches.find_like,
                frames=frames,
                on_device=on_device,
                cancels=self.config.process.cancel_for_urgent,
            )
        self.adopt(task)
        trim_memory()
        self._end_part(task.name, task.load_times_ns)
        return task

    def _end_part(self, part: str, details_ns: dict[str, int] | None = None) -> None:
        if self.start_times is not None:  # else the start is over
            self.start_times.end(part, details_ns)

    def adopt(self, task: Task) -> None:
        """Adopt a loaded task; it is closed if `variant` is not one of its variants."""
        try:
            with blaming("variant"):
                task.choose_variant(task.config.variant)
        except ConfigurationError:
            task.close()
            raise
        self.tasks[task.name] = task

    def prepare(
        self,
        periods_ns: Mapping[str, int] | None = None,
        deadlines_ns: Mapping[str, int] | None = None,
    ) -> None:
        """Choose how the loaded tasks share the cores, measure how they slow each other down.

        Forms batch groups, too. None of the tasks may be active. Periods and relative deadlines
        are by default those of the tasks' configurations.
        """
        log = self._log.info
        with self.executor.realtime.as_worker():
            if self._planned is not None:
                self._choose_split(self._planned, periods_ns or {}, deadlines_ns or {})
            workers = self.split.workers
            self.set_slowdown(core_split.measure_slowdown(self.tasks, workers, self.clock, log))
            self.batches.form(workers, self.clock, log)
        self._end_part("sharing")

    def _choose_split(
        self, planned: CoreSplit, given_ns: Mapping[str, int], deadlines_ns: Mapping[str, int]
    ) -> None:
        log = self._log.info
        for task in self.tasks.values():
            task.run_narrow(False)
        times = core_split.measure_narrow(self.tasks, planned, self.clock, log)
        chooser = SplitChooser(self.tasks, planned, times, self.config.process, self.clock, log)
        periods_ns = {
            name: given_ns.get(name) or task.config.period_ns()
            for name, task in self.tasks.items()
        }
        choice = chooser.choose(
            periods_ns,
            {
                name: deadlines_ns.get(name) or task.config.deadline_ns(periods_ns[name])
                for name, task in self.tasks.items()
            },
        )
        split = choice.split
        self._narrow_slowdowns = times.of_split(split)
        self._split_watch = chooser.make_watch(choice, self._log.warning)
        self._take_split(split, chooser.helpers[split])
        for task in self.tasks.values():
            task.run_narrow(split.workers > 1)

    def set_slowdown(self, slowdown: dict[int, float]) -> None:
        """Start budgets from a measured slow-down; before tasks are activated."""
        self.cohort_slowdown = slowdown
        self.executor.set_cohort_slowdown(slowdown)

    def unload(self, name: str) -> None:
        """Close a task as soon as none of its stages runs; it must not be active."""
        self.stop_build(name, JOIN_TIMEOUT_S)
        if name not in self.tasks:
            return
        groups = self.batches.leave(name)
        task = self.tasks.pop(name)

        def close() -> None:
            task.close()
            for group in groups:
                group.close()
            trim_memory()

        if self._executor is None:
            close()
        elif not self._executor.supervisor.when_unused(name, close):
            self._log.error("a stage has not returned: its model is released when it does")

    # -- running -------------------------------------------------------------------------------

    def activate(
        self,
        name: str,
        observer: TaskObserver | None = None,
        *,
        period_ns: int = 0,
        deadline_ns: int = 0,
        precedence: int | None = None,
    ) -> None:
        """Let a loaded task run; `commit` follows when the last one is active.

        `observer` sees its jobs on the delivery thread, before those of `observe`. Period and
        relative deadline are by default those of its configuration. Among equal deadlines the
        least `precedence` goes first, by default in the order of loading.
        """
        task = self.tasks[name]
        period_ns = period_ns or task.config.period_ns()
        with self._lock:
            names = task.variant_names  # there may be one more in a moment
            task.start_tracking(period_ns)
            self._variant_use.setdefault(name, VariantUse(task.default))
            self.executor.add_task(
                task.config.for_engine(
                    task.stage_names,
                    names,
                    task.default,
                    period_ns=period_ns,
                    deadline_ns=deadline_ns or task.config.deadline_ns(period_ns),
                    precedence=[*self.tasks].index(name) if precedence is None else precedence,
                    batch_group=self.batches.find_group(name),
                ),
                task.stages,
                partial(self._tell_task, observer),
                warm_up_times_ns={name: task.warm_up_times_ns[name] for name in names},
                restart=partial(self._restart, task),
                stage_timeout_ns=int(task.config.stage_timeout_ms * 1e6),
                narrow_slowdowns=self._narrow_slowdowns.get(name, ()),
                cancel_latencies_ns=task.cancel_latencies_ns,
            )
            self._active.add(name)

    def commit(self) -> Verdict:
        """Judge whether the active tasks fit, exempt them from garbage collection, trace them.

        Raises `UnschedulableError` when they do not fit and the configuration refuses that, and
        `ConfigurationError` when the folder of the trace cannot be written.
        """
        executor = self.executor
        self.batches.seed(executor)
        verdict = self.verdict = judge_tasks(executor)
        cannot_be_kept = verdict.schedulable is False or verdict.broken_limits
        if verdict.schedulable:
            self._log.info(str(verdict))
        elif cannot_be_kept and self.config.process.on_unschedulable == "refuse":
            raise UnschedulableError(str(verdict))
        else:
            self._log.warning(
                f"{verdict}. Frames that would not make it by these budgets are skipped: "
                f"{verdict.advice}"
            )
        executor.realtime.freeze()
        for setting in executor.realtime.settings:
            if not setting.applied:
                self._log.warning(f"{setting.name} is not applied: {setting.detail}")
        if self.trace is not None:
            self.trace.begin(self.describe_run())
        self._end_part("activation")
        return verdict

    def judge(self, *, over: bool = False) -> PresentVerdict | None:
        """Whether the active tasks fit now; None before `commit`. Any thread may ask.

        It is computed once a second at most. `over` as in `VerdictWatch.judge`.
        """
        executor = self._executor
        if executor is None or self.verdict is None:
            return None
        return self._verdict_watch.judge(executor, self.clock.now_ns(), over=over)

    @property
    def split_choice(self) -> SplitChoice | None:
        """What decided on the split of the cores; None where nothing was to be chosen."""
        return None if self._split_watch is None else self._split_watch.choice

    def review_split(self) -> str:
        """What has changed since the split was chosen, and what to do; empty where it stands."""
        watch, present = self._split_watch, self.judge()
        if watch is None or present is None:
            return ""
        snapshots = {name: self.snapshot(name) for name in tuple(self.tasks)}
        return watch.review(
            present, {name: one.parameters.deadline_ns for name, one in snapshots.items() if one}
        )

    def note_drift(self, task: str, drifts: bool) -> None:
        """Take note whether a task's times no longer match its profile."""
        if self._split_watch is not None:
            self._split_watch.note_drift(task, drifts)

    def describe_trace(self) -> tuple[str, dict[str, object]]:
        """Fault of the trace, and values for diagnostics; empty without a trace."""
        trace = self.trace
        return ("", {}) if trace is None else trace.describe()

    def describe_tasks(self) -> dict[str, TracedTask]:
        """The active tasks, for the metadata of a trace."""
        found = {}
        for name in filter(self.is_active, self.tasks):
            task, parameters = self.tasks[name], self.executor.snapshot(name).parameters
            found[name] = TracedTask(
                camera=task.config.camera,
                model=task.config.model,
                model_hash=task.model.model_hash,
                variants=task.variant_names,
                stages=task.stage_names,
                deadline_ns=parameters.deadline_ns,
                period_ns=parameters.period_ns,
            )
        return found

    def _describe_run(self) -> TraceMetadata:
        values = {name: asdict(task.config) for name, task in self.tasks.items()}
        return describe_run(
            "session",
            self.describe_tasks(),
            settings=self.executor.realtime.settings,
            parameters={
                **values,
                SHARING: self.describe_sharing(),
                WARM_UP: self.describe_warm_up(),
            },
        )

    def describe_sharing(self) -> dict[str, object]:
        """How the tasks share the cores: `SHARING` of a trace."""
        return {
            "workers": self.split.workers,
            "helpers": self._helpers,
            "threads": self.config.threads,
            NARROW_SLOWDOWNS: self._narrow_slowdowns,
        }

    def describe_warm_up(self) -> dict[str, dict[str, list[tuple[int, ...]]]]:
        """Times that the first budgets come from, by task and variant: `WARM_UP` of a trace."""
        return {name: dict(task.warm_up_times_ns) for name, task in self.tasks.items()}

    def deactivate(self, name: str) -> None:
        """End a task's jobs; it stays loaded. StillRunningError as `Executor.remove_task`."""
        with self._lock:
            if name not in self._active:
                return
            self._active.remove(name)
            task = self.tasks[name]
        # May wait for a stage: other tasks must be free to change meanwhile.
        try:
            self.executor.remove_task(name)
        finally:
            task.stop_tracking()

    def snapshot(self, name: str) -> TaskSnapshot | None:
        """Counts and state of a task now; None while it is not active. Any thread may ask."""
        executor = self._executor
        if executor is None or name not in self._active:
            return None
        executor.supervisor.check_watchdog()
        try:
            return executor.snapshot(name)
        except KeyError:  # it was removed in this moment
            return None

    def is_active(self, name: str) -> bool:
        """Whether a task runs."""
        return name in self._active

    def update(self, config: TaskConfig) -> None:
        """Bring changed dynamic values of a loaded task into effect from its next frame on.

        ConfigurationError when `variant` cannot run, or a class is not one of the model's; nothing
        has been changed then.
        """
        with self._lock:
            task = self.tasks[config.name]
            settings = make_settings(config, task.model)
            switched = config.variant != task.config.variant
            variant = task.resolve_variant(config.variant) if switched else ""
            if config.name in self._active:
                period_ns = self.executor.snapshot(config.name).parameters.period_ns
                try:
                    self.executor.update(
                        config.name,
                        variant=variant,
                        deadline_ns=config.deadline_ns(period_ns),
                        max_age_ns=config.max_age_ns,
                    )
                except ValueError as error:  # the variant is withdrawn
                    raise ConfigurationError(str(error)) from error
            task.use(config, settings)

    def _restart(self, task: Task) -> Stages:
        """Replace a task's stages after one hung; called on a thread of the executor."""
        executor = self.executor
        with executor.realtime.as_worker():
            return task.rebuild(partial(executor.supervisor.when_unused, task.name))

    # -- frames and results --------------------------------------------------------------------

    def submit(
        self,
        frame: Frame,
        tasks: Sequence[str] = (),
        *,
        camera: str = "",
        capture_ns: int | None = None,
    ) -> None:
        """Release a frame in several tasks at one instant; returns at once.

        By default these are all active tasks of `camera`, or all there are. The frame must not be
        written to until its jobs ended. `capture_ns` is on the session's clock, by default now.
        """
        names = tasks or [
            name
            for name in tuple(self.tasks)
            if name in self._active and camera in ("", self.tasks[name].config.camera)
        ]
        self.executor.submit(
            names, frame, self.clock.now_ns() if capture_ns is None else capture_ns
        )

    def observe(self, observer: Observer) -> None:
        """Call `observer(record, result)` for every job that ends, on the delivery thread.

        The result is None where there is none, and where it came after the deadline and
        `late_results` of the task says ``drop``: a late result is not valid.
        """
        self._observers.append(observer)
        if self._executor is not None:
            self._executor.add_observer(partial(self._tell, observer))

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until every frame is accounted for and every observer was told."""
        return self.executor.wait_idle(timeout_s)

    def _tell(self, observer: Observer, record: JobRecord, work: Work) -> None:
        observer(record, self._find_valid_result(record, work))

    def _tell_task(self, observer: TaskObserver | None, record: JobRecord, work: Work) -> None:
        result = self._find_valid_result(record, work)
        if observer is not None:
            observer(record, work, result)
        if result is not None and self.start_times is not None:
            times, self.start_times = self.start_times, None
            times.end("first frame", at_ns=record.release_ns)
            times.end(f"{record.task}'s result")
            self._log.info(str(times))
        self._log_firsts(record)

    def _log_firsts(self, record: JobRecord) -> None:
        """Log the first switch between two variants, and what is wrong with the outputs."""
        for before, after in self._variant_use[record.task].add(record):
            self._log.info(
                f"task {record.task}: {before} -> {after} in frame {record.sequence}; further "
                "switches between these two are only counted"
            )
        task = self.tasks.get(record.task)
        for text in () if task is None else task.output_check.take_news():
            where = f"frame {record.sequence}, {record.variant}"
            self._log.warning(f"task {record.task}, {where}: {text}")

    def _find_valid_result(self, record: JobRecord, work: Work) -> Result | None:
        if record.outcome is Outcome.MET:
            return work.result
        task = self.tasks.get(record.task)
        wanted = task is not None and task.config.late_results == "publish"
        return work.result if wanted and record.outcome is Outcome.LATE else None

    # -- variants that are built meanwhile -----------------------------------------------------

    def start_build(self, name: str, log: Log | None = None) -> None:
        """Build the variants that an active task lacks; call it when all tasks are warmed up."""
        task = self.tasks[name]
        if name in self._builds or not task.missing or not task.config.build_missing:
            return
        log = log or self._log
        build = self._builds[name] = BackgroundBuild(
            task,
            self._build_turn,
            self.executor.realtime,
            log,
            partial(self._take_built, task, log),
        )
        build.start()

    def find_build(self, name: str) -> BackgroundBuild | None:
        """The build of a task that has not ended yet."""
        build = self._builds.get(name)
        return None if build is None or build.over else build

    def stop_build(self, name: str, timeout_s: float = 0.0) -> None:
        """End the build of a task at once, and wait `timeout_s` for its thread."""
        build = self._builds.pop(name, None)
        if build is not None and not build.stop(timeout_s) and timeout_s:
            self._log.error("a variant that is being loaded hangs: it is left behind")

    def _take_built(self, task: Task, log: Log, name: str) -> bool:
        """Let a task run a variant that has become ready; False when that has to wait."""
        with self._lock:
            if task.name in self._active and not task.hand_over(
                name, partial(self._add_variant, task, log, name)
            ):
                return False
        log.info(f"variant {name} is ready")
        return True

    def _add_variant(
        self, task: Task, log: Log, name: str, stages: Sequence[Stage], times_ns: StageTimes
    ) -> None:
        self.executor.add_variant(task.name, name, stages, times_ns)
        if task.default == name:
            self.executor.update(task.name, variant=name)
            log.info(f"variant {name} runs from the next frame on")
