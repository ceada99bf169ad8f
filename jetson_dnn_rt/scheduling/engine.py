"""The scheduling engine: a state machine that decides, and never waits, runs or reads a clock.

Two drivers use it: the executor (threads, steady clock) and the simulator (virtual clock). They
differ only in who supplies the time and the execution, so a rule that was simulated is the rule
that runs.

    release -> [admission] -> waiting -> ready -> next -> [admission] -> stage -> boundary -> ...

The rules (DESIGN 4.2), with two figures for the work that a job still has before it, both from
recent execution times: its *budget* (a high quantile) and its *usual time* (the median).

* Admission, asked at start: does the budget fit into the time to the deadline? Then the job is
  *admitted*, and stays so. If only the usual time fits, it runs on *spare* time: when no admitted
  job wants the worker, which would otherwise idle. If not even that: ``skipped``, no cycle wasted.
  Both are those of the fastest variant that the job may yet choose.
* The last question is asked at release already. There, the time until a worker or the task's own
  previous job is done counts (blocking); work that merely waits does not, because it may be
  skipped itself.
* At each boundary the last question again, about the remaining stages: no: ``aborted``.
* At each boundary, and at the start, a `Selector` says which variant runs the next stage. A job is
  hopeless when none of the variants that it may yet choose would do.
* One waiting job per task; the newest wins, the older one is ``superseded``. A task runs one job
  at a time.
* A task that is kept out frame after frame would never learn that the machine got faster again.
  After `PROBE_INTERVAL` - 1 such frames in a row the next one is run all the same, as a *probe*,
  and the budgets start anew from what it took.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.queue import ReadyQueue
from jetson_dnn_rt.scheduling.selection import Selector, StaticSelector
from jetson_dnn_rt.scheduling.task_state import TaskState
from jetson_dnn_rt.tasks import (
    Admission,
    JobRecord,
    Outcome,
    StageRecord,
    TaskParameters,
    Work,
    stage_name,
)

RemainingTime = Callable[[str, int], int]
"""From a variant and a stage to the time from there to the end."""

PROBE_INTERVAL = 30
"""Every so many frames in a row that the budget keeps out, one is run as a probe."""

KEPT_OUT = ("budget", "blocking")
"""Reasons of skipped jobs that a smaller budget would have let run."""

WITHDRAW_AFTER = 2
"""Jobs in a row that a variant may fail before it is withdrawn."""


class Engine:
    """Releases, orders, admits, aborts and ends jobs.

    Not thread-safe: the driver holds one lock around every call. Times passed in never go back.

    Parameters
    ----------
    workers : int
        How many stages may run at once.
    discipline : str
        ``edf`` or ``fifo``, see `ReadyQueue`.

    Attributes
    ----------
    selector : Selector
        Chooses variants; may be exchanged at any time.
    """

    def __init__(self, workers: int = 1, discipline: str = "edf") -> None:
        if workers < 1:
            raise ValueError(f"workers must be >= 1: {workers}")
        self.workers = workers
        self.tasks: dict[str, TaskState] = {}
        self.selector: Selector = StaticSelector()
        self._queue = ReadyQueue(discipline)
        self._running: dict[Job, int] = {}
        self._saturated_ns = 0
        self._saturated_since: int | None = None
        self._ended: list[tuple[JobRecord, Work]] = []

    # -- tasks ---------------------------------------------------------------------------------

    def add_task(
        self, parameters: TaskParameters, spans: Mapping[str, Sequence[int]] | None = None
    ) -> TaskState:
        """Add a task; its budgets are empty, hence optimistic, until observed or seeded.

        Parameters
        ----------
        parameters : TaskParameters
            The task.
        spans : mapping of str to sequence of int, optional
            For each variant how many stages each of its runs does; by default one each.
        """
        if parameters.name in self.tasks:
            raise ValueError(f"task {parameters.name!r} is there already")
        state = TaskState(parameters)
        for variant in parameters.variants:
            state.set_spans(variant, (spans or {}).get(variant))
        self.tasks[parameters.name] = state
        return state

    def add_variant(self, task: str, variant: str, spans: Sequence[int] | None = None) -> None:
        """Let a task run one more variant, or one that was made anew after its withdrawal."""
        self.tasks[task].add_variant(variant, spans)

    def replace_variants(self, task: str, spans: Mapping[str, Sequence[int]]) -> None:
        """The task's variants were made anew; see `TaskState.replace_variants`."""
        self.tasks[task].replace_variants(spans)

    def remove_task(self, task: str) -> None:
        """Forget a task; it must be idle (see `flush`)."""
        if not self.is_idle(task):
            raise ValueError(f"task {task!r} still has jobs: flush it first")
        del self.tasks[task]

    def is_idle(self, task: str) -> bool:
        """Whether no job of the task waits or is in flight."""
        state = self.tasks[task]
        return state.waiting is None and state.in_flight is None

    def seed_budgets(self, task: str, variant: str, times_ns: list[tuple[int, ...]]) -> None:
        """Start the budgets of a variant from warm-up runs, one tuple of stage times a run."""
        state = self.tasks[task]
        entries = [stage for stage, span in enumerate(state.spans[variant]) if span]
        for index, stage in enumerate(entries):
            state.budgets[variant][stage].reset(run[index] for run in times_ns)

    def set_variant(self, task: str, variant: str) -> None:
        """Choose the variant of the jobs that start from now on.

        Raises
        ------
        ValueError
            When the variant is unknown or was withdrawn.
        """
        state = self.tasks[task]
        if variant in state.withdrawn:
            raise ValueError(
                f"variant {variant!r} of task {task!r} was withdrawn: {state.withdrawn[variant]}"
            )
        state.parameters = replace(state.parameters, variant=variant)

    def set_deadline(self, task: str, deadline_ns: int) -> None:
        """Change the relative deadline of the jobs released from now on."""
        state = self.tasks[task]
        state.parameters = replace(state.parameters, deadline_ns=deadline_ns)

    def set_max_age(self, task: str, max_age_ns: int) -> None:
        """Change the age from which on a frame is stale at release; 0 = no limit."""
        state = self.tasks[task]
        state.parameters = replace(state.parameters, max_age_ns=max_age_ns)

    def suspend(self, task: str, reason: str) -> None:
        """Skip whatever is released from now on, for this reason."""
        self.tasks[task].suspended = reason

    def resume(self, task: str) -> None:
        """Take frames again after `suspend`."""
        self.tasks[task].suspended = ""

    # -- jobs ----------------------------------------------------------------------------------

    def release(self, task: str, now_ns: int, capture_ns: int, work: Work) -> Job:
        """A frame arrived: admit it, or end it at once (the job's `ended` says which)."""
        state = self.tasks[task]
        parameters = state.parameters
        state.released += 1
        job = Job(
            task=task,
            sequence=work.frame.sequence,
            capture_ns=capture_ns,
            release_ns=now_ns,
            absolute_deadline_ns=now_ns + parameters.deadline_ns,
            work=work,
            variant=parameters.variant,
        )
        reason = self._refusal(state, job, now_ns)
        if reason:
            self._end(job, now_ns, Outcome.SKIPPED, reason)
            return job
        if state.waiting is not None:
            self._end(state.waiting, now_ns, Outcome.SUPERSEDED)
        state.waiting = job
        self.selector.released(state, job, now_ns)
        if state.in_flight is None:
            self._make_ready(job, now_ns)
        return job

    def reject(self, task: str, now_ns: int, capture_ns: int, work: Work, reason: str) -> None:
        """A frame arrived that cannot be used at all: it counts, as ``failed``."""
        state = self.tasks[task]
        state.released += 1
        deadline_ns = now_ns + state.parameters.deadline_ns
        variant = state.parameters.variant
        job = Job(task, work.frame.sequence, capture_ns, now_ns, deadline_ns, work, variant)
        self._end(job, now_ns, Outcome.FAILED, reason)

    def next(self, now_ns: int) -> Job | None:
        """For a free worker: the job whose stage `next_stage` it shall run.

        None when nothing is ready or every worker is busy.

        Jobs that cannot make their deadline any more end here, as skipped or aborted. A job on
        spare time is returned only when no admitted one is ready.
        """
        if len(self._running) == self.workers:
            return None
        on_spare_time: list[Job] = []
        while (job := self._queue.pop()) is not None:
            state = self.tasks[job.task]
            if not self._select(state, job, now_ns):
                self._end(job, now_ns, Outcome.ABORTED, "withdrawn")
            elif not self._can_make_it(state, job, now_ns):
                self._end_hopeless(job, now_ns)
            elif self._is_admitted(state, job, now_ns):
                break
            else:
                on_spare_time.append(job)
        if job is None and on_spare_time:
            job = on_spare_time.pop(0)
        for other in on_spare_time:
            self._push(other)
        if job is not None:
            self._start(job, now_ns)
        return job

    def boundary(self, job: Job, now_ns: int, start_ns: int, end_ns: int) -> None:
        """A stage is done: account for it, then end the job or make its next stage ready.

        Nothing happens for a job that ended while its stage ran (the watchdog gave it up).

        Parameters
        ----------
        job : Job
            As returned by `next`.
        now_ns : int
            The time of this call.
        start_ns, end_ns : int
            When the stage began and ended, measured around it; both <= `now_ns`.
        """
        if job.ended:
            return
        self._stop_running(job, now_ns)
        state = self.tasks[job.task]
        span = state.spans[job.variant][job.next_stage]
        name = stage_name(state.parameters.stages, job.next_stage, span)
        job.stages.append(StageRecord(name, job.variant, start_ns, end_ns))
        job.path.append((job.variant, job.next_stage))
        state.observe(job.variant, job.next_stage, end_ns - start_ns)
        job.next_stage += span
        self.selector.passed(state, job, now_ns)
        if job.next_stage == len(state.parameters.stages):
            in_time = now_ns <= job.absolute_deadline_ns
            for variant in job.variants:
                state.failures[variant] = 0
            self._end(job, now_ns, Outcome.MET if in_time else Outcome.LATE)
        elif job.cancel_reason:
            self._end(job, now_ns, Outcome.ABORTED, job.cancel_reason)
        elif not self._can_make_it(state, job, now_ns):
            self._end_hopeless(job, now_ns)
        else:
            self._make_ready(job, now_ns)

    def fail(self, job: Job, now_ns: int, reason: str, *, blame_variant: bool = True) -> str:
        """A stage raised or hangs: its job ends as ``failed``, and that job only.

        Returns
        -------
        str
            The variant that is withdrawn with this failure, or an empty string. The last variant
            of a task is never withdrawn: it is all the task has.
        """
        if job.ended:
            return ""
        if job.running:
            self._stop_running(job, now_ns)
        state = self.tasks[job.task]
        self._end(job, now_ns, Outcome.FAILED, reason)
        if not blame_variant:
            return ""
        state.failures[job.variant] += 1
        if state.failures[job.variant] < WITHDRAW_AFTER or job.variant in state.withdrawn:
            return ""
        others = [v for v in state.parameters.variants if v not in (job.variant, *state.withdrawn)]
        if not others:
            return ""
        state.withdrawn[job.variant] = reason
        if state.parameters.variant == job.variant:
            state.parameters = replace(state.parameters, variant=others[0])
        return job.variant

    def flush(self, task: str, now_ns: int, reason: str) -> None:
        """End the task's jobs: those that wait now, a running one at its next boundary."""
        state = self.tasks[task]
        if state.waiting is not None:
            self._end(state.waiting, now_ns, Outcome.SKIPPED, reason)
        if state.in_flight is not None and not state.in_flight.running:
            self._end(state.in_flight, now_ns, Outcome.ABORTED, reason)
        elif state.in_flight is not None:
            state.in_flight.cancel_reason = reason

    def take_ended(self) -> list[tuple[JobRecord, Work]]:
        """Records of the jobs that ended since the last call, in order of their end."""
        ended, self._ended = self._ended, []
        return ended

    # -- rules ---------------------------------------------------------------------------------

    def _refusal(self, state: TaskState, job: Job, now_ns: int) -> str:
        """Why a job is not admitted at its release; empty when it is."""
        if state.suspended:
            return state.suspended
        parameters = state.parameters
        if parameters.max_age_ns and now_ns - job.capture_ns > parameters.max_age_ns:
            return "stale"
        if state.kept_out == PROBE_INTERVAL - 1:
            job.admission = Admission.PROBE
            return ""
        usual_ns = self._shortest_ns(state, job, state.remaining_usual_ns)
        if usual_ns > parameters.deadline_ns:
            return "budget"
        earliest_ns = now_ns + max(self._blocking_ns(now_ns), self._predecessor_ns(state, now_ns))
        return "blocking" if earliest_ns + usual_ns > job.absolute_deadline_ns else ""

    def _blocking_ns(self, now_ns: int) -> int:
        """Time until the first worker is free, as usual."""
        if len(self._running) < self.workers:
            return 0
        return max(0, min(self._running.values()) - now_ns)

    def _predecessor_ns(self, state: TaskState, now_ns: int) -> int:
        """Time until the task's job in flight is done, as usual, if nothing preempts it."""
        job = state.in_flight
        if job is None:
            return 0
        if not job.running:
            return state.remaining_usual_ns(job.variant, job.next_stage)
        rest_ns = state.remaining_usual_ns(job.variant, job.next_stage + 1)
        return max(0, self._running[job] - now_ns) + rest_ns

    def _select(self, state: TaskState, job: Job, now_ns: int) -> bool:
        """Choose the variant of the next stage; False when none can go on from here."""
        chosen = self.selector.choose(state, job, now_ns)
        for variant in (chosen, job.variant, state.parameters.variant, *state.parameters.variants):
            if state.usable(variant, job.next_stage):
                job.variant = variant
                return True
        return False

    def _shortest_ns(self, state: TaskState, job: Job, remaining_ns: RemainingTime) -> int:
        """What is left of a job, in the fastest variant that it may yet choose."""
        stage = job.next_stage
        times_ns = [
            remaining_ns(variant, stage)
            for variant in self.selector.allowed(state, job)
            if state.usable(variant, stage)
        ]
        return min(times_ns) if times_ns else remaining_ns(job.variant, stage)

    def _can_make_it(self, state: TaskState, job: Job, now_ns: int) -> bool:
        """Whether it will more likely than not be done in time; a probe may try all the same."""
        if job.admission is Admission.PROBE:
            return True
        usual_ns = self._shortest_ns(state, job, state.remaining_usual_ns)
        return now_ns + usual_ns <= job.absolute_deadline_ns

    def _is_admitted(self, state: TaskState, job: Job, now_ns: int) -> bool:
        """Whether its budget fits, or did at its start; a probe is admitted whatever it is."""
        if job.admission in (Admission.BUDGET, Admission.PROBE):
            return True
        budget_ns = self._shortest_ns(state, job, state.remaining_budget_ns)
        return now_ns + budget_ns <= job.absolute_deadline_ns

    # -- state ---------------------------------------------------------------------------------

    def _start(self, job: Job, now_ns: int) -> None:
        """Let a stage run, the job's first or next one."""
        state = self.tasks[job.task]
        if job.start_ns is None:
            if job.admission is Admission.NONE:
                admitted = self._is_admitted(state, job, now_ns)
                job.admission = Admission.BUDGET if admitted else Admission.SPARE
            job.start_ns = now_ns
            state.waiting, state.in_flight = None, job
            state.kept_out = 0
        job.waiting_ns += self._saturated_at(now_ns) - job.saturated_at_ready_ns
        job.running = True
        self._running[job] = now_ns + state.usual_ns(job.variant, job.next_stage)
        if len(self._running) == self.workers:
            self._saturated_since = now_ns
        self.selector.started(state, job, now_ns)

    def _make_ready(self, job: Job, now_ns: int) -> None:
        job.ready_ns = now_ns
        job.saturated_at_ready_ns = self._saturated_at(now_ns)
        self._push(job)

    def _push(self, job: Job) -> None:
        state = self.tasks[job.task]
        self._queue.push(job, state.misses_in_a_row, state.parameters.precedence)

    def _saturated_at(self, now_ns: int) -> int:
        """Time up to now during which every worker was busy."""
        since_ns = self._saturated_since
        return self._saturated_ns + (0 if since_ns is None else now_ns - since_ns)

    def _stop_running(self, job: Job, now_ns: int) -> None:
        self._saturated_ns = self._saturated_at(now_ns)
        self._saturated_since = None
        del self._running[job]
        job.running = False

    def _end_hopeless(self, job: Job, now_ns: int) -> None:
        outcome = Outcome.SKIPPED if job.start_ns is None else Outcome.ABORTED
        self._end(job, now_ns, outcome, "budget")

    def _end(self, job: Job, now_ns: int, outcome: Outcome, reason: str = "") -> None:
        state = self.tasks[job.task]
        job.ended = True
        state.outcomes[outcome] += 1
        state.misses_in_a_row = 0 if outcome is Outcome.MET else state.misses_in_a_row + 1
        if reason:
            state.reasons[reason] += 1
        if outcome is Outcome.SKIPPED and reason in KEPT_OUT:
            state.kept_out += 1
        if job.admission is Admission.PROBE and outcome in (Outcome.MET, Outcome.LATE):
            for (variant, index), stage in zip(job.path, job.stages, strict=True):
                state.forget(variant, index)
                state.observe(variant, index, stage.execution_time_ns)
        if state.waiting is job:
            state.waiting = None
        if state.in_flight is job:
            state.in_flight = None
            if state.waiting is not None:
                # It could not run before its predecessor was done: waiting, not overhead.
                state.waiting.waiting_ns += now_ns - state.waiting.release_ns
                self._make_ready(state.waiting, now_ns)
        record = JobRecord(
            task=job.task,
            sequence=job.sequence,
            variant="+".join(job.variants),
            outcome=outcome,
            reason=reason,
            capture_ns=job.capture_ns,
            release_ns=job.release_ns,
            start_ns=job.start_ns,
            completion_ns=now_ns,
            absolute_deadline_ns=job.absolute_deadline_ns,
            waiting_ns=job.waiting_ns,
            lag_ns=state.lag_ns(job),
            # A probe that was superseded did not start.
            admission=Admission.NONE if job.start_ns is None else job.admission,
            stages=tuple(job.stages),
        )
        self._ended.append((record, job.work))
        self.selector.ended(state, job, outcome, now_ns)
