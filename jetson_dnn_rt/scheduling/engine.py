# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The scheduling engine: a state machine that only decides; it never waits or reads a clock.

Two drivers use it: the executor (threads, steady clock) and the simulator (virtual clock). They
differ only in the source of time and execution, so a rule that was simulated is the rule that
runs.

    release -> [admission] -> waiting -> ready -> next -> [admission] -> stage -> boundary -> ...

The rules (DESIGN 4.2), with two figures for a job's remaining work, both from recent execution
times: its *budget* (a high quantile) and its *usual time* (the median). Both are those of the
fastest variant that the job may still choose.

* Admission, tested at start: does the budget fit into the time to the deadline? Then the job is
  *admitted*, and stays so. If only the usual time fits, it runs on *spare* time: when no admitted
  job wants the worker, which would otherwise idle. If not even that fits: ``skipped``.
* The usual time is also tested at release. There, the time until a worker or the task's own
previous job is done counts (blocking); work that merely waits does not, because it may be skipped
itself.
* At each boundary it is tested again for the remaining stages; if it does not fit: ``aborted``.
  A stage that can be cancelled is not waited for: the driver ends it as soon as the rest after it
  would not fit any more. It may also make room for a more urgent frame, see `preemption`.
* At each boundary, and at the start, a `Selector` chooses the variant of the next stage. It may
  also hold back a job that has not begun, or end it.
* One waiting job per task; the newest wins, the older one is ``superseded``. A task runs one job
  at a time.
* A task that is rejected frame after frame would never learn that the machine is faster again.
  After `PROBE_INTERVAL` - 1 such frames in a row the next one runs as a *probe*; one that could
  not make its deadline on an idle machine by its usual time already after 1, 2, 4, ... If the
  probe is no slower than usual, the budgets restart from it. All probes take a small share: see
  `Probes`.
* Stages of several tasks may run as one batch where every deadline allows it: see `batching`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from math import ceil

from jetson_dnn_rt.scheduling.admission import (
    PROBE_INTERVAL,
    DeviceLimits,
    Probes,
    can_make_it,
    is_admitted,
    is_lucky,
    predecessor_ns,
    select,
    shortest_ns,
)
from jetson_dnn_rt.scheduling.batching import Batcher, BatchGroup
from jetson_dnn_rt.scheduling.job import Ending, Job
from jetson_dnn_rt.scheduling.places import AT_A_BOUNDARY, Places
from jetson_dnn_rt.scheduling.preemption import is_worth_cancelling
from jetson_dnn_rt.scheduling.queue import ReadyQueue, SpareQueue
from jetson_dnn_rt.scheduling.selection import Gate, GuardedSelector, Selector, StaticSelector
from jetson_dnn_rt.scheduling.task_state import TEXT_LENGTH, Run, TaskState, is_in_network
from jetson_dnn_rt.tasks import (
    Admission,
    JobRecord,
    Outcome,
    StageRecord,
    TaskParameters,
    Work,
    stage_name,
)

KEPT_OUT = ("budget", "blocking")
"""Reasons of skipped jobs that would have run with a smaller budget."""

CANCELLED = "cancelled"  # reason of hopeless jobs whose stage was ended before it was done

LOST = "failed: scheduling engine"  # reason of jobs that the engine itself raised at

_TOLD_AT_ONCE = (Outcome.MET, Outcome.LATE, Outcome.FAILED)

MAX_REASONS, OTHER_REASON = 32, "other"
"""Maximum of reasons that are counted separately; further ones are counted together."""


class Engine:
    """Releases, orders, admits, aborts and ends jobs.

    Not thread-safe: the driver holds one lock around every call. Times passed in never decrease.
    `workers` stages may run at once, `max_inflight` (``{"cuda": 2}``) of them on a device; with
    `helpers` that many more, but only `workers` networks, see `places`. For `discipline` see
    `ReadyQueue`, for `cancels_for_urgent` `preemption`.
    """

    def __init__(
        self,
        workers: int = 1,
        discipline: str = "edf",
        max_inflight: Mapping[str, int] | None = None,
        helpers: int = 0,
        cancels_for_urgent: bool = False,
    ) -> None:
        self.cancels_for_urgent = cancels_for_urgent
        self.tasks: dict[str, TaskState] = {}
        self.groups: dict[str, BatchGroup] = {}
        """Batch groups that have at least one task."""
        self.forms_batches = False
        """Whether any group has a batch budget; if none has, the search for batches is skipped."""
        self._slowdown = 1.0  # see `set_cohort_slowdown`
        self.ask_again_ns: int | None = None
        """Time to call `next` again, since a job waits for a mate until then, or is prepared from
        then on; set by `next`."""
        self._guard: GuardedSelector | None = None
        self._selector: Selector = StaticSelector()
        self._given: Selector = self._selector
        self._queue = ReadyQueue(discipline)
        self._spare = SpareQueue()
        self._places = Places(self.tasks, self._queue)
        self._places.narrow.allowed = (max_inflight or {}).get("cpu", 2) > 1
        self._running = self._places.running
        self._devices = DeviceLimits(max_inflight or {})
        self._has_limits = bool(max_inflight)
        self._batcher = Batcher(self.tasks, self._queue, self._running, self._devices, workers)
        self._probes = Probes()
        self._ended: list[Ending] = []
        self.has_results = False
        """Whether a job that ended since the last `take_endings` has a result, or failed."""
        self.set_workers(workers, helpers)

    def set_workers(self, workers: int, helpers: int = 0) -> None:
        """Set how many stages run at once; ValueError below one, or while any is running."""
        if workers < 1 or helpers < 0:
            raise ValueError(f"workers must be >= 1 and helpers >= 0: {workers}, {helpers}")
        if self._running:
            raise ValueError("workers cannot change while stages run")
        self._places.set_workers(workers, helpers)
        self._batcher.workers = workers

    @property
    def workers(self) -> int:
        """Networks at once; without helpers any stages."""
        return self._places.workers

    @property
    def threads(self) -> int:
        """Stages at once, helpers included."""
        return self._places.workers + self._places.helpers

    @property
    def selector(self) -> Selector:
        """Chooses variants; may be replaced at any time. One that raises twice is replaced."""
        return self._given

    @selector.setter
    def selector(self, selector: Selector) -> None:
        self._given = selector
        self._selector = selector
        self._guard = None
        if type(selector) is not StaticSelector:
            self._selector = self._guard = GuardedSelector(selector)

    @property
    def selector_failure(self) -> str:
        """Why the selector was replaced by a static one; empty as long as it works."""
        return "" if self._guard is None else self._guard.failure

    # -- tasks ---------------------------------------------------------------------------------

    def add_task(
        self, parameters: TaskParameters, spans: Mapping[str, Sequence[int | Run]] | None = None
    ) -> TaskState:
        """Add a task; its budgets are empty, hence optimistic, until observed or seeded.

        `spans` has the runs of each variant, or the number of stages of each; by default one each.
        """
        if parameters.name in self.tasks:
            raise ValueError(f"task {parameters.name!r} is there already")
        group = parameters.batch_group
        for other in self.tasks.values() if group else ():
            stages = other.parameters.stages
            if other.parameters.batch_group == group and stages != parameters.stages:
                raise ValueError(
                    f"tasks of batch group {group!r} must have the same stages: {stages}, not "
                    f"{parameters.stages}"
                )
        state = TaskState(parameters)
        for variant in parameters.variants:
            state.set_spans(variant, (spans or {}).get(variant))
        self.tasks[parameters.name] = state
        if group:
            self.groups.setdefault(group, BatchGroup(group))
        return state

    def remove_task(self, task: str) -> None:
        """Remove a task, which must be idle (see `flush`)."""
        if not self.is_idle(task):
            raise ValueError(f"task {task!r} still has jobs: flush it first")
        state = self.tasks.pop(task)
        self._places.forget(state)
        self._probes.forget(task)
        group = state.parameters.batch_group
        if group and not any(s.parameters.batch_group == group for s in self.tasks.values()):
            del self.groups[group]
            self._update_forms_batches()

    def suspend(self, task: str, reason: str) -> None:
        """Skip every frame of a task that is released from now on, with this reason."""
        self.tasks[task].suspended = reason

    def resume(self, task: str) -> None:
        """Accept a task's frames again."""
        self.tasks[task].suspended = ""

    def is_idle(self, task: str) -> bool:
        """Whether no job of the task waits or is in flight."""
        state = self.tasks[task]
        return state.waiting is None and state.in_flight is None

    def set_cohort_slowdown(self, slowdown: Mapping[int, float]) -> None:
        """Stretch budgets that are seeded later, from runs alone on the machine.

        `slowdown` was measured of stages with 1, 2, ... of them concurrent: that of the largest
        cohort counts.
        """
        self._slowdown = slowdown[max(slowdown)] if slowdown else 1.0

    def seed_budgets(self, task: str, variant: str, times_ns: list[tuple[int, ...]]) -> None:
        """Start the budgets of a variant from warm-up runs, one tuple of stage times per run."""
        state, slowdown = self.tasks[task], self._slowdown
        entries = [stage for stage, span in enumerate(state.spans[variant]) if span]
        for index, stage in enumerate(entries):
            state.seed(variant, stage, (ceil(run[index] * slowdown) for run in times_ns))

    def seed_batch_budgets(
        self, task: str, variant: str, stage: int, size: int, times_ns: Sequence[int]
    ) -> None:
        """Start the budget of a batch of `size` >= 2 frames: from now on it may be formed.

        `task` is any of the group's: the budget applies to all of them. `stage` is the one that
        the run begins with, `times_ns` are execution times of such batches, alone on the machine.
        """
        state = self.tasks[task]
        parameters = state.parameters
        if not parameters.batch_group or not state.batches(variant, stage):
            raise ValueError(
                f"stage {stage} of variant {variant!r} of task {task!r} does not run as a batch"
            )
        scaled_ns = [ceil(time_ns * self._slowdown) for time_ns in times_ns]
        group = self.groups[parameters.batch_group]
        group.seed(variant, stage, size, scaled_ns, parameters.budget_quantile)
        self._update_forms_batches()

    def forget_batches(self, group: str) -> None:
        """Form no batches of a group until seeded again; a running one continues."""
        self.groups[group].budgets.clear()
        self._update_forms_batches()

    def _update_forms_batches(self) -> None:
        self.forms_batches = any(group.budgets for group in self.groups.values())
        # A batch waits for frames to be prepared; helpers prepare one when its network is next.
        self._places.set_helping(not self.forms_batches)

    # -- jobs ----------------------------------------------------------------------------------

    def release(self, task: str, now_ns: int, capture_ns: int, work: Work) -> Job:
        """Admit a frame that arrived, or end it at once (the job's `ended` says which)."""
        return self._arrive(self.tasks[task], now_ns, capture_ns, work)

    def reject(self, task: str, now_ns: int, capture_ns: int, work: Work, reason: str) -> None:
        """Count a frame that cannot be used at all as ``failed``."""
        state = self.tasks[task]
        state.last_failure = reason[:TEXT_LENGTH]
        self._arrive(state, now_ns, capture_ns, work, reason)

    def _arrive(
        self, state: TaskState, now_ns: int, capture_ns: int, work: Work, defect: str | None = None
    ) -> Job:
        parameters = state.parameters
        job = Job(
            parameters.name,
            work.frame.sequence,
            capture_ns,
            now_ns,
            now_ns + parameters.deadline_ns,
            work,
            parameters.variant,
        )
        state.released += 1
        job.number = state.released
        try:
            self._places.expect(state, now_ns)
            if defect is not None:
                self._end(job, now_ns, Outcome.FAILED, defect)
            elif reason := self._refusal(state, job, now_ns):
                self._end(job, now_ns, Outcome.SKIPPED, reason)
            else:
                if state.waiting is not None:
                    self._end(state.waiting, now_ns, Outcome.SUPERSEDED)
                state.waiting = job
                self._selector.released(state, job, now_ns)
                if state.in_flight is None:
                    self._make_ready(job, now_ns)
        except Exception:
            self._lose(state, job, now_ns)
            raise
        return job

    @property
    def has_ready(self) -> bool:
        """Whether a job is ready, or may be."""
        return bool(self._queue.entries or self._queue.beside or self._spare.entries)

    def look_ns(self, now_ns: int) -> int | None:
        """Time when one more free thread should call `next`; None = not before a boundary."""
        places = self._places
        if places.is_full or not self.has_ready:
            return None
        if not places.helping or self._queue.beside:
            return now_ns
        job = self._queue.first() or self._spare.first()
        if job is None:
            return None
        if job.held_ns is not None:
            return now_ns  # others behind it may go first
        at_ns = places.time_for(self.tasks[job.task], job, now_ns)
        return None if at_ns == AT_A_BOUNDARY else at_ns

    def next(self, now_ns: int) -> Job | None:
        """Return the job whose stage `next_stage` a free worker should run, with its `mates`.

        None when no ready job may run, or every worker is busy. Jobs that can no longer make their
        deadline end here. A job on spare time is returned only when no admitted one is ready; a
        job whose device is full stays, waits for a mate, or for the time of its preparation: see
        `ask_again_ns`.
        """
        self.ask_again_ns = None
        selector, devices, places = self._selector, self._devices, self._places
        if places.is_full or not self.has_ready:
            return None
        # With a coordinator any boundary may admit a job again, and batches look at all of them.
        put_aside = not self.forms_batches and type(selector) is StaticSelector
        job: Job | None = None
        passed_over: list[Job] = []
        held: list[Job] = []
        on_spare_time: list[Job] = []
        kept_back: list[Job] = []  # by the selector; they are in `passed_over` too
        is_full = False  # no network may begin
        try:
            while job := self._spare.pop_overdue(now_ns) if put_aside else self._spare.pop():
                self._put_back(job)
            while (job := self._queue.pop_beside() if is_full else self._queue.pop()) is not None:
                state = self.tasks[job.task]
                if places.helping:
                    if self._waits_for_newer(state, job, now_ns):
                        passed_over.append(job)
                        continue
                    if not self._has_place(state, job, now_ns):
                        is_full = True
                        passed_over.append(job)
                        continue
                if not self._can_go_on(state, job, now_ns):
                    continue
                if not put_aside and not self._may_begin(state, job, now_ns):
                    if not job.ended:
                        kept_back.append(job)
                        passed_over.append(job)
                    continue
                if self._has_limits and devices.room(state, job, held) < 1:
                    self._hold(job, now_ns)
                    passed_over.append(job)
                elif places.is_beside(state, job) or is_admitted(selector, state, job, now_ns):
                    if not self.forms_batches:
                        break
                    chosen = self._form_batch(job, [*passed_over, *on_spare_time], now_ns)
                    if chosen is not None:
                        job = chosen
                        break
                    self._hold(job, now_ns)
                    passed_over.append(job)
                    # Else another job would be on its device when its mates arrive.
                    devices.keep_place(state, job)
                    held.append(job)
                elif put_aside:
                    self._put_aside(state, job)
                else:
                    on_spare_time.append(job)
            if job is None:
                # On an idle machine what holds the others up is itself on spare time.
                if put_aside and not (is_full and self._running):
                    job = self._take_spare(passed_over, now_ns)
                for other in on_spare_time:
                    if devices.room(self.tasks[other.task], other, held) > 0:
                        job = other
                        break
                if job is None and kept_back and not self._running:
                    job = kept_back[0]  # a selector cannot stop the machine
            for other in (*passed_over, *on_spare_time):
                if job is None or (other is not job and other not in job.mates):
                    self._put_back(other)
            if job is not None:
                self._start(job, now_ns)
        except Exception:
            # Only the current job is lost.
            for other in (*passed_over, *on_spare_time):
                if other is not job and not (other.queued or other.running):
                    self._put_back(other)
            raise
        return job

    def boundary(self, job: Job, now_ns: int, start_ns: int, end_ns: int) -> None:
        """Account for a stage that is done, then end the job or make its next stage ready.

        The same for each of the job's mates. Jobs that ended while their stage ran (failed by the
        watchdog) are ignored. `job` is as returned by `next`; the stage began and ended at
        `start_ns` and `end_ns`, measured around it, both <= `now_ns`.
        """
        if job.ended:
            return
        mates = self._stop_running(job, now_ns)
        if not mates:
            self._pass(job, now_ns, start_ns, end_ns, 1)
            return
        size, error = 1 + len(mates), None
        state, variant, stage = self.tasks[job.task], job.variant, job.next_stage
        time_ns = state.unscaled_ns(end_ns - start_ns, variant, stage)
        self.groups[state.parameters.batch_group].observe(variant, stage, size, time_ns)
        for member in (job, *mates):
            try:
                self._pass(member, now_ns, start_ns, end_ns, size)
            except Exception as raised:
                error = raised
        if error is not None:
            raise error

    def _pass(self, job: Job, now_ns: int, start_ns: int, end_ns: int, batch: int) -> None:
        state = self.tasks[job.task]
        variant, stage = job.variant, job.next_stage
        span = state.spans[variant][stage]
        stages = state.parameters.stages
        name = stages[stage] if span == 1 else stage_name(stages, stage, span)
        narrow = job.work.narrow and is_in_network(state, job) and not state.has_one_core
        job.stages.append(StageRecord(name, variant, start_ns, end_ns, batch, narrow))
        job.path.append((variant, stage))
        if batch == 1:
            self._observe(state, job, end_ns - start_ns)
        job.next_stage += span
        if job.next_stage >= state.network_end:
            self._places.leave(job, now_ns)
        self._selector.passed(state, job, now_ns)
        if job.next_stage == len(stages):
            in_time = now_ns <= job.absolute_deadline_ns
            if state.failures:
                for used in job.variants:
                    state.failures.pop(used, None)
            self._end(job, now_ns, Outcome.MET if in_time else Outcome.LATE)
        elif job.cancel_reason:
            self._end(job, now_ns, Outcome.ABORTED, job.cancel_reason)
        elif not self._is_worth_time(state, job, now_ns):
            self._end_hopeless(job, now_ns)
        else:
            self._make_ready(job, now_ns)

    def _observe(self, state: TaskState, job: Job, time_ns: int) -> None:
        """Learn from the time of the job's next stage, which has just ended."""
        if job.work.narrow and is_in_network(state, job) and not state.has_one_core:
            state.observe_narrow(job.variant, job.next_stage, time_ns)
        else:
            state.observe(job.variant, job.next_stage, time_ns)

    def cancelled(
        self, job: Job, now_ns: int, start_ns: int, end_ns: int, asked_ns: int | None = None
    ) -> None:
        """Account for a stage that was cancelled: the job ends as ``aborted``, or begins it again.

        It begins it again where it made room for another (`Job.yields`), if it still makes its
        deadline. `asked_ns` is when it was first told to end, to learn how long that takes.
        """
        if job.ended:
            return
        yields = job.yields
        self._stop_running(job, now_ns)
        state = self.tasks[job.task]
        job.cancelled_ns += end_ns - start_ns
        if asked_ns is not None:
            state.observe_cancel(job.variant, end_ns - max(asked_ns, start_ns))
        if yields and not job.cancel_reason:
            if can_make_it(self._selector, state, job, now_ns):
                self._make_ready(job, now_ns)
                return
        elif not job.cancel_reason:
            # It would have taken longer, how much is unknown. One nanosecond more would count as a
            # run that fits as soon as there is a little more time, and less than usual as a fast
            # one.
            least_ns = (end_ns - start_ns) * 5 // 4 + 1
            self._observe(state, job, max(least_ns, self._stage_ns(state, job)))
        self._end(job, now_ns, Outcome.ABORTED, job.cancel_reason or CANCELLED)

    def fail(
        self, job: Job, now_ns: int, reason: str, kind: str = "", *, blame_variant: bool = True
    ) -> str:
        """End the job of a stage that raised or hangs as ``failed``, and that job only.

        In a batch (`job` is its leader) every member fails. The batch is blamed then, not the
        variant: it is not formed until it is seeded again. `reason` is any text, for the record;
        the failure is counted as the stage and `kind` (``RuntimeError``, ``hangs``), without a
        kind as its reason. Returns the variant that is withdrawn with this failure, or an empty
        string; see `TaskState.blame`.
        """
        if job.ended:
            return ""
        mates = self._stop_running(job, now_ns) if job.running else ()
        state = self.tasks[job.task]
        reason = reason[:TEXT_LENGTH]
        if kind:
            stages, span = state.parameters.stages, state.spans[job.variant][job.next_stage]
            name = stage_name(stages, job.next_stage, max(1, span))
            kind = f"failed: stage {name} of {job.variant}: {kind}"
        for member in (job, *mates):
            self.tasks[member.task].last_failure = reason
            self._end(member, now_ns, Outcome.FAILED, reason, kind)
        if not blame_variant:
            return ""
        if mates:
            group = self.groups[state.parameters.batch_group]
            group.forget(job.variant, job.next_stage, 1 + len(mates))
            return ""
        return state.blame(job.variant, reason)

    def flush(self, task: str, now_ns: int, reason: str) -> None:
        """End the task's jobs: waiting ones now, a running one at its next boundary."""
        state = self.tasks[task]
        if state.waiting is not None:
            self._end(state.waiting, now_ns, Outcome.SKIPPED, reason)
        if state.in_flight is not None and not state.in_flight.running:
            self._end(state.in_flight, now_ns, Outcome.ABORTED, reason)
        elif state.in_flight is not None:
            state.in_flight.cancel_reason = reason

    def has_seen(self, work: Work) -> bool:
        """Whether a job with this work waits, runs or has just ended."""
        ended = any(ending.job.work is work for ending in self._ended)
        jobs = [job for s in self.tasks.values() for job in (s.waiting, s.in_flight)]
        return ended or any(job is not None and job.work is work for job in jobs)

    def recover(self, running: Collection[Job], now_ns: int) -> None:
        """Make the state consistent again after a call that raised.

        Jobs that the call was handling and did not store anywhere end as ``failed``, so that every
        frame still ends in exactly one outcome; all others stay as they are. `running` are the
        jobs whose stages the driver really runs: the leader of a batch.
        """
        self._places.recount(now_ns, [job for job in running if not job.ended])
        self._devices.recount(self._running)
        for group in self.groups.values():
            group.running = False
        at_work = set(self._running)
        for job in self._running:
            at_work.update(job.mates)
            if job.mates:
                self.groups[self.tasks[job.task].parameters.batch_group].running = True
        for state in self.tasks.values():
            while head := state.in_flight or state.waiting:
                if head in at_work or (head.queued and not head.ended):
                    break
                if not head.ended and not head.place and head.start_ns is None:
                    self._make_ready(head, now_ns)  # its predecessor has ended
                    break
                self._lose(state, head, now_ns)

    def _lose(self, state: TaskState, job: Job, now_ns: int) -> None:
        """End a job at which the engine raised, even if more exceptions follow."""
        job.running, job.mates = False, ()
        if not job.ended:
            with contextlib.suppress(Exception):  # the driver gets the first exception
                self._end(job, now_ns, Outcome.FAILED, LOST)
        if not job.ended:
            self._close(state, job, now_ns, Outcome.FAILED, LOST, "")
        # Else `recover` would come upon it for ever.
        if state.waiting is job:
            state.waiting = None
        if state.in_flight is job:
            state.in_flight = None

    def take_ended(self) -> list[tuple[JobRecord, Work]]:
        """Records of the jobs that ended since the last call, in order of their end."""
        return [(ending.make_record(), ending.work) for ending in self.take_endings()]

    def take_endings(self) -> list[Ending]:
        """Like `take_ended`, for a driver that makes the records elsewhere."""
        if not self._ended:
            return []
        ended, self._ended = self._ended, []
        self.has_results = False
        return ended

    # -- rules ---------------------------------------------------------------------------------

    def _refusal(self, state: TaskState, job: Job, now_ns: int) -> str:
        """Why a job is not admitted at its release; empty when it is."""
        if state.suspended:
            return state.suspended
        parameters = state.parameters
        if parameters.max_age_ns:
            if job.work.frame.doubt:
                return job.work.frame.doubt
            if now_ns - job.capture_ns > parameters.max_age_ns:
                return "stale"
        period_ns = parameters.period_ns
        if state.kept_out >= PROBE_INTERVAL - 1 and self._probes.allow(job, now_ns, period_ns):
            job.admission = Admission.PROBE
            return ""
        behind_ns = predecessor_ns(state, now_ns)
        usual_ns = shortest_ns(self._selector, state, job, 0, state.remaining_usual_ns)
        if usual_ns > parameters.deadline_ns:
            if self._may_try_its_luck(state, job, now_ns + behind_ns):
                return ""
            is_due = state.kept_out >= state.probe_after and state.in_flight is None
            if not (is_due and self._probes.allow(job, now_ns, period_ns)):
                return "budget"
            job.admission = Admission.PROBE
            return ""
        earliest_ns = now_ns + max(self._places.blocking_ns(state, job, now_ns), behind_ns)
        if earliest_ns + usual_ns <= job.absolute_deadline_ns:
            return ""
        return "" if self._cancel_for(state, job, now_ns) else "blocking"

    def _cancel_for(self, state: TaskState, urgent: Job, now_ns: int) -> bool:
        """Let the running stage be cancelled for a job that is too late behind it, if it may."""
        if not self.cancels_for_urgent or len(self._running) != 1 or state.in_flight is not None:
            return False
        if self.workers > 1 or self.forms_batches:
            return False
        if not (self._places.is_full or len(self._places.networks) >= self.workers):
            return False
        if type(self._selector) is not StaticSelector:
            return False
        (running,) = self._running
        if not running.hopeless_ns or running.cancel_reason or running.yields:
            return False
        latency_ns = self.tasks[running.task].cancel_latency_ns(running.variant)
        if latency_ns is None or not is_worth_cancelling(
            self.tasks, self._queue, running, urgent, now_ns, latency_ns
        ):
            return False
        running.yields = True
        running.usual_end_ns = now_ns + latency_ns
        return True

    def _waits_for_newer(self, state: TaskState, job: Job, now_ns: int) -> bool:
        """Whether a ready job had better be replaced by the next frame of its task."""
        if job.start_ns is not None:
            return False
        until_ns = self._places.wait_for_newer(state, job, now_ns)
        if until_ns <= now_ns:
            return False
        self._hold(job, now_ns)
        self._ask_again_at(until_ns)
        return True

    def _has_place(self, state: TaskState, job: Job, now_ns: int) -> bool:
        """Whether a ready job's next stage may run beside those that run."""
        at_ns = self._places.time_for(state, job, now_ns)
        if at_ns <= now_ns:
            return True
        if at_ns < AT_A_BOUNDARY:
            self._ask_again_at(at_ns)
        return False

    def _ask_again_at(self, time_ns: int) -> None:
        before_ns = self.ask_again_ns
        self.ask_again_ns = time_ns if before_ns is None else min(before_ns, time_ns)

    def _may_begin(self, state: TaskState, job: Job, now_ns: int) -> bool:
        """Whether the selector lets a ready job begin, or it has begun; it may end here."""
        if job.start_ns is not None:
            return True
        gate = self._selector.gate(state, job, now_ns)
        if gate is Gate.OPEN or (gate is Gate.CLOSED and job.admission is Admission.PROBE):
            return True
        if gate is Gate.HELD:
            self._hold(job, now_ns)
        else:
            self._end_hopeless(job, now_ns)
        return False

    def _can_go_on(self, state: TaskState, job: Job, now_ns: int) -> bool:
        """Whether a ready job may run; one that is hopeless ends."""
        if not select(self._selector, state, job, now_ns):
            self._end(job, now_ns, Outcome.ABORTED, "withdrawn")
        elif not self._is_worth_time(state, job, now_ns):
            self._end_hopeless(job, now_ns)
        else:
            return True
        return False

    def _is_worth_time(self, state: TaskState, job: Job, now_ns: int) -> bool:
        """Whether a job usually makes it, or may try its luck."""
        if can_make_it(self._selector, state, job, now_ns):
            return True
        return self._may_try_its_luck(state, job, now_ns)

    def _may_try_its_luck(self, state: TaskState, job: Job, now_ns: int) -> bool:
        """Whether a job that is usually too late may make it in time that nobody else wants.

        The next frame of its own task does not count where that is usually too late as well.
        """
        if not is_lucky(self._selector, state, job, now_ns):
            return False
        usual_ns = shortest_ns(self._selector, state, job, 0, state.remaining_usual_ns)
        alike = state if usual_ns > state.parameters.deadline_ns else None
        until_ns = state.network_free_ns(job, now_ns + job.delay_ns, narrow=False)
        return self._places.is_idle_until(until_ns, job, but=alike)

    def _form_batch(self, job: Job, aside: Sequence[Job], now_ns: int) -> Job | None:
        """Return the job to run where this one is next: itself with its mates, or a future mate.

        None where it waits for a mate on another worker.
        """
        group = self.groups.get(self.tasks[job.task].parameters.batch_group)
        if group is None or group.running or job.admission is Admission.PROBE:
            return job
        chosen, until_ns = self._batcher.choose(group, job, now_ns, self._selector, aside)
        if until_ns is not None:
            self.ask_again_ns = max(self.ask_again_ns or 0, until_ns)
            return None
        if chosen is not job:
            chosen.queued = False
            self._put_back(job)
        for mate in job.mates:
            mate.queued = False
        return chosen

    # -- state ---------------------------------------------------------------------------------

    def _start(self, job: Job, now_ns: int) -> None:
        """Start a stage, together with those of the job's mates."""
        state = self.tasks[job.task]
        variant, stage = job.variant, job.next_stage
        if self._places.helping and is_in_network(state, job):
            job.work.narrow = self._places.narrow.begins(state, job, now_ns)
            is_slower = job.work.narrow and not state.has_one_core
            if is_slower and not self._places.narrow.makes_it(state, job, now_ns):
                job.admission = Admission.SPARE
        usual_end_ns = now_ns + self._stage_ns(state, job)
        if self.forms_batches:
            job.due_ns = now_ns + state.budget_ns(variant, stage)
        if self._has_limits:
            self._devices.take(state, job)
        if job.mates:
            group = self.groups[state.parameters.batch_group]
            group.running = True
            known = group.budgets[variant, stage][1 + len(job.mates)].estimator
            usual_end_ns = now_ns + state.scaled_ns(known.median_ns, variant, stage)
            job.due_ns = now_ns + state.scaled_ns(known.budget_ns, variant, stage)
        for member in (job, *job.mates):
            self._begin(member, now_ns, usual_end_ns)
        self._places.start(state, job, now_ns)
        run = state.runs[variant][stage]
        if run is not None and run.cancels and not job.mates:
            self._plan_cancel(state, job, stage + run.span)

    def _stage_ns(self, state: TaskState, job: Job) -> int:
        """Usual time of the job's next stage, as wide as it runs."""
        variant, stage = job.variant, job.next_stage
        if not (job.work.narrow and is_in_network(state, job)):
            return state.usual_ns(variant, stage)
        return state.narrow_ns(variant, stage, stage + state.spans[variant][stage])[1]

    def _plan_cancel(self, state: TaskState, job: Job, then: int) -> None:
        """Find when a job that starts a stage becomes hopeless; `then` is the stage after it."""
        if job.admission is Admission.PROBE:
            return
        rest_ns = 0
        if then < len(state.parameters.stages):
            rest_ns = shortest_ns(self._selector, state, job, then, state.remaining_usual_ns)
            if job.usual_end_ns + rest_ns > job.absolute_deadline_ns:  # it tries its luck
                rest_ns = shortest_ns(self._selector, state, job, then, state.remaining_lucky_ns)
        job.hopeless_ns = job.absolute_deadline_ns - rest_ns
        # Nothing waits for it longer than that.
        latency_ns = state.cancel_latency_ns(job.variant) or 0
        job.usual_end_ns = min(job.usual_end_ns, job.hopeless_ns + latency_ns)

    def _begin(self, job: Job, now_ns: int, usual_end_ns: int) -> None:
        state = self.tasks[job.task]
        if job.start_ns is None:
            if job.admission is Admission.NONE:
                admitted = is_admitted(self._selector, state, job, now_ns)
                job.admission = Admission.BUDGET if admitted else Admission.SPARE
            job.start_ns = now_ns
            state.waiting, state.in_flight = None, job
            state.kept_out = 0
            probes = job.admission is Admission.PROBE
            state.probe_after = min(2 * state.probe_after, PROBE_INTERVAL - 1) if probes else 1
            self._probes.begin(job, now_ns)
        if job.held_ns is None:
            job.waiting_ns += self._places.waited_ns(job, now_ns)
        else:
            job.waiting_ns += now_ns - job.held_ns
            job.held_ns = None
        job.delay_ns = 0
        job.running = True
        job.usual_end_ns = usual_end_ns
        self._selector.started(state, job, now_ns)

    def _make_ready(self, job: Job, now_ns: int) -> None:
        state, places = self.tasks[job.task], self._places
        places.await_place(state, job, now_ns)
        beside = places.is_beside(state, job)
        self._queue.push(job, state.parameters, state.misses_in_a_row, beside=beside)

    def _put_aside(self, state: TaskState, job: Job) -> None:
        """Queue a job for spare time."""
        usual_ns = shortest_ns(
            self._selector, state, job, job.next_stage, state.remaining_usual_ns
        )
        started = job.start_ns is not None
        rank = self._queue.rank(
            job, state.parameters, state.misses_in_a_row, job.ready_ns, started=started
        )
        self._spare.push(job, rank, job.absolute_deadline_ns - usual_ns)

    def _take_spare(self, passed_over: list[Job], now_ns: int) -> Job | None:
        """Take the first job that was put aside and may run; others join `passed_over`."""
        while (job := self._spare.pop()) is not None:
            state = self.tasks[job.task]
            if self._places.helping:
                if self._waits_for_newer(state, job, now_ns):
                    passed_over.append(job)
                    continue
                if not self._has_place(state, job, now_ns):
                    self._put_aside(state, job)
                    return None
            if not self._can_go_on(state, job, now_ns):
                continue
            if not self._has_limits or self._devices.room(state, job) > 0:
                return job
            self._hold(job, now_ns)
            passed_over.append(job)
        return None

    def _hold(self, job: Job, now_ns: int) -> None:
        """Let a job wait for its device from now on, since a worker is available."""
        if job.held_ns is None:
            job.waiting_ns += self._places.waited_ns(job, now_ns)
            job.held_ns = now_ns

    def _put_back(self, job: Job) -> None:
        state = self.tasks[job.task]
        beside = self._places.is_beside(state, job)
        self._queue.put_back(job, state.parameters, state.misses_in_a_row, beside=beside)

    def _stop_running(self, job: Job, now_ns: int) -> tuple[Job, ...]:
        """Free the job's worker; returns the mates that ran with it."""
        self._places.stop(job, now_ns)
        job.running = job.yields = False
        job.hopeless_ns = 0
        if self._has_limits:
            self._devices.give_back(job)
        mates = job.mates
        if mates:
            job.mates = ()
            for mate in mates:
                mate.running = False
            self.groups[self.tasks[job.task].parameters.batch_group].running = False
        return mates

    def _end_hopeless(self, job: Job, now_ns: int) -> None:
        outcome = Outcome.SKIPPED if job.start_ns is None else Outcome.ABORTED
        self._end(job, now_ns, outcome, "budget")

    def _end(
        self, job: Job, now_ns: int, outcome: Outcome, reason: str = "", kind: str = ""
    ) -> None:
        state = self.tasks[job.task]
        was_in_flight = state.in_flight is job
        ending = self._close(state, job, now_ns, outcome, reason, kind)
        if job.admission is Admission.PROBE:
            self._probes.end(job, now_ns, self.workers)
            if outcome in (Outcome.MET, Outcome.LATE):
                state.learn_from_probe(job)
                ending.profile_ns = state.medians_ns(job.path[0][0])
        if was_in_flight and state.waiting is not None:
            # It could not run before its predecessor was done: waiting, not overhead.
            state.waiting.waiting_ns += now_ns - state.waiting.release_ns
            self._make_ready(state.waiting, now_ns)
        self._selector.ended(state, job, outcome, now_ns)

    def _close(
        self, state: TaskState, job: Job, now_ns: int, outcome: Outcome, reason: str, kind: str
    ) -> Ending:
        """Count an ended job, completely or not at all."""
        # Of the variant that the frame began with: a faster one shows as being ahead.
        profile_ns = state.medians_ns(job.path[0][0]) if job.path else ()
        ending = Ending(job, outcome, reason, now_ns, profile_ns)
        key = kind or reason
        if key not in state.reasons and len(state.reasons) >= MAX_REASONS:
            key = OTHER_REASON
        if state.in_flight is job:
            self._places.leave(job, now_ns)
        self._ended.append(ending)
        # From here on nothing raises: the job is neither ended in part nor counted in part.
        job.ended = True
        if state.waiting is job:
            state.waiting = None
        if state.in_flight is job:
            state.in_flight = None
        state.outcomes[outcome] += 1
        state.misses_in_a_row = 0 if outcome is Outcome.MET else state.misses_in_a_row + 1
        if reason:
            state.reasons[key] += 1
            if outcome is Outcome.SKIPPED and reason in KEPT_OUT:
                state.kept_out += 1
        if outcome in _TOLD_AT_ONCE:
            self.has_results = True
        if state.weakly_hard is not None:
            state.see_end(job.number, met=outcome is Outcome.MET)
        return ending
