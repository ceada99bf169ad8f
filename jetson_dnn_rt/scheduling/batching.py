"""When the stages of several jobs run as one batch.

Tasks that run the same model on several cameras are a *batch group*. Where a job of one is about
to run a stage that batches, those of the others that stand at the same stage in the same variant
may join it. The rules:

* Sizes that nobody measured are not formed; the times of those that run are learnt.
* A batch has to cost less than its members one by one, on the workers that are free for them, by
  their usual times.
* Every deadline has to allow it, by the budgets: the members', and that of every other job that
  would make it if there were no batch. What comes after the batch counts as run one by one: so at
  the next stage there is a plan without batches again that keeps everything, and a batch is formed
  there only if it keeps it too.
* *Gathering*: a job that is there but has not come as far (its preprocessing waits) is brought
  there first, while the leader waits, if a batch with it passes both tests. If its preprocessing
  runs on another worker, the leader waits for that, at most until its budget is over; the worker
  takes something else meanwhile. Nobody waits for frames that are not there.
* Probes and jobs on spare time run alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from jetson_dnn_rt.scheduling.budgets import BudgetEstimator
from jetson_dnn_rt.scheduling.devices import DeviceLimits
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.plan import Demand, Step, jobs_in_time, one_by_one
from jetson_dnn_rt.scheduling.queue import ReadyQueue
from jetson_dnn_rt.scheduling.rules import can_make_it, is_admitted, select, shortest_ns
from jetson_dnn_rt.scheduling.selection import Selector
from jetson_dnn_rt.scheduling.task_state import TaskState
from jetson_dnn_rt.tasks import Admission

REFUSALS = 256
"""After so many refusals in a row a batch's budget starts from its seeds again: what was learnt in
a bad moment would keep it out for ever."""


@dataclass(slots=True, eq=False)
class BatchBudget:
    """Times of the batches of one size of one stage in one variant."""

    estimator: BudgetEstimator
    seeds_ns: tuple[int, ...]
    refusals: int = 0

    def observe(self, execution_time_ns: int) -> None:
        """One ran."""
        self.refusals = 0
        self.estimator.observe(execution_time_ns)

    def refuse(self) -> None:
        """One could have run, and was too slow."""
        self.refusals += 1
        if self.refusals == REFUSALS:
            self.refusals = 0
            self.estimator.reset(self.seeds_ns)


@dataclass(slots=True, eq=False)
class BatchGroup:
    """Tasks whose stages may run as one batch.

    Attributes
    ----------
    name : str
        As in `TaskParameters.batch_group`.
    budgets : dict
        For each variant and stage, for each known size, the times of such batches at the reference
        clocks. What is not in it is not formed.
    running : bool
        Whether a batch of the group runs: there is one at most, since its runner has one set of
        buffers.
    """

    name: str
    budgets: dict[tuple[str, int], dict[int, BatchBudget]] = field(default_factory=dict)
    running: bool = False

    def seed(
        self, variant: str, stage: int, size: int, times_ns: Sequence[int], quantile: float
    ) -> None:
        """Start a budget from measured times; see `Engine.seed_batch_budgets`."""
        if size < 2:
            raise ValueError(f"a batch is of 2 frames at least: {size}")
        if not times_ns:
            raise ValueError("times_ns must hold at least one time")
        budget = BatchBudget(BudgetEstimator(quantile), tuple(times_ns))
        budget.estimator.reset(times_ns)
        self.budgets.setdefault((variant, stage), {})[size] = budget

    def observe(self, variant: str, stage: int, size: int, execution_time_ns: int) -> None:
        """Learn from a batch, at the reference clocks, unless it was forgotten meanwhile."""
        budget = self.budgets.get((variant, stage), {}).get(size)
        if budget is not None:
            budget.observe(execution_time_ns)

    def forget(self, variant: str, stage: int, size: int) -> None:
        """Form no such batch any more, until it is seeded anew."""
        self.budgets.get((variant, stage), {}).pop(size, None)


@dataclass(slots=True)
class Proposal:
    """What to do instead of running a leader alone.

    Attributes
    ----------
    mates : tuple of Job
        Run it with these.
    absent : Job or None
        Run this one first, which becomes its mate then.
    until_ns : int or None
        Let it wait for those that other workers bring, at most until then.
    """

    mates: tuple[Job, ...] = ()
    absent: Job | None = None
    until_ns: int | None = None


class Batcher:
    """Finds the batch for a job that is about to run.

    Parameters
    ----------
    tasks : mapping of str to TaskState
        The engine's.
    queue : ReadyQueue
        The engine's; the leader is not in it.
    running : collection of Job
        The engine's: those whose stages run, one for each busy worker.
    """

    def __init__(
        self, tasks: Mapping[str, TaskState], queue: ReadyQueue, running: Collection[Job]
    ) -> None:
        self._tasks, self._queue, self._running = tasks, queue, running

    def propose(
        self,
        group: BatchGroup,
        leader: Job,
        now_ns: int,
        *,
        selector: Selector,
        aside: Sequence[Job],
        idle: int,
        devices: DeviceLimits,
    ) -> Proposal | None:
        """The batch of an admitted job; None where it runs alone.

        Parameters
        ----------
        group : BatchGroup
            The leader's; none of its batches runs.
        leader : Job
            Next in order.
        now_ns : int
            Now.
        selector : Selector
            Chooses the variants.
        aside : sequence of Job
            That are ready too, and not in the queue at the moment.
        idle : int
            Workers that are, this one included.
        devices : DeviceLimits
            The engine's.
        """
        stage, variant = leader.next_stage, leader.variant
        known = group.budgets.get((variant, stage))
        state = self._tasks[leader.task]
        if not known or not batches(state, variant, stage):
            return None
        free = min(idle, devices.room(state, leader))
        waiting = [*aside, *self._queue.waiting()]
        present: list[Job] = []
        absent: list[Job] = []
        for job in waiting:
            other = self._tasks[job.task]
            if (
                other.parameters.batch_group != group.name
                or job.next_stage > stage
                or not self._may_join(selector, other, job, now_ns)
                or job.variant != variant
                or not batches(other, variant, stage)
            ):
                continue
            if job.next_stage == stage:
                present.append(job)
            elif (
                job.next_stage + other.spans[variant][job.next_stage] == stage
                and devices.room(other, job) > 0
            ):
                absent.append(job)
        coming = [job for job in self._running if self._comes(group, job, variant, stage, now_ns)]
        candidates = [leader, *present, *coming, *absent]
        # The cheapest per frame first, of equals the largest.
        sizes = sorted(
            (size for size in known if size <= len(candidates)),
            key=lambda size: (known[size].estimator.median_ns / size, -size),
        )
        outlook = None
        for size in sizes:
            members, budget = candidates[:size], known[size]
            usual_ns = sum(self._tasks[job.task].usual_ns(variant, stage) for job in members)
            # One by one they would share the workers that nobody else wants.
            side_by_side = max(1, min(size, free - (1 + len(waiting) + len(coming) - size)))
            if (
                state.scaled_ns(budget.estimator.median_ns, variant, stage) * side_by_side
                < usual_ns
            ):
                if outlook is None:
                    outlook = _Outlook(self._tasks, self._queue, selector, now_ns)
                    outlook.see([leader, *waiting], self._running, idle, devices)
                batch_ns = state.scaled_ns(budget.estimator.budget_ns, variant, stage)
                if outlook.allows(members, stage, batch_ns):
                    if size <= 1 + len(present):
                        return Proposal(mates=tuple(members[1:]))
                    awaited = members[1 + len(present) :]
                    if len(awaited) > len(coming):
                        return Proposal(absent=absent[0])
                    return Proposal(until_ns=max(job.due_ns for job in awaited))
            budget.refuse()
        return None

    def _comes(self, group: BatchGroup, job: Job, variant: str, stage: int, now_ns: int) -> bool:
        """Whether what runs now brings a job to the stage, and is not late."""
        state = self._tasks[job.task]
        return (
            state.parameters.batch_group == group.name
            and job.admission is Admission.BUDGET
            and job.variant == variant
            and job.next_stage + state.spans[variant][job.next_stage] == stage
            and job.due_ns > now_ns
            and not job.cancel_reason
            and batches(state, variant, stage)
        )

    @staticmethod
    def _may_join(selector: Selector, state: TaskState, job: Job, now_ns: int) -> bool:
        return (
            job.admission is not Admission.PROBE
            and select(selector, state, job, now_ns)
            and can_make_it(selector, state, job, now_ns)
            and is_admitted(selector, state, job, now_ns)
        )


class _Outlook:
    """Which jobs make it, without a batch and with one, if every stage takes its budget."""

    def __init__(
        self, tasks: Mapping[str, TaskState], queue: ReadyQueue, selector: Selector, now_ns: int
    ) -> None:
        self._tasks, self._queue, self._selector, self._now_ns = tasks, queue, selector, now_ns
        self._free: list[int] = []
        self._places: dict[str, list[int]] = {}
        self._demands: dict[Job, Demand] = {}
        self._in_time: set[Job] | None = None
        self._total_ns = 0
        self._first_deadline_ns = 0

    def see(
        self, ready: Iterable[Job], running: Collection[Job], idle: int, devices: DeviceLimits
    ) -> None:
        """Take note of all jobs."""
        now_ns = self._now_ns
        self._free = [*[now_ns] * idle, *(max(now_ns, leader.due_ns) for leader in running)]
        self._places = devices.places(running, now_ns)
        for job in ready:
            started = job.start_ns is not None
            self._demands[job] = self._demand(job, job.next_stage, now_ns, started=started)
        for leader in running:
            due_ns = max(now_ns, leader.due_ns)
            for job in (leader, *leader.mates):
                stage = job.next_stage + self._tasks[job.task].spans[job.variant][job.next_stage]
                self._demands[job] = self._demand(job, stage, due_ns, started=True)
        self._total_ns = sum(demand.budget_ns for demand in self._demands.values())
        self._first_deadline_ns = min(job.absolute_deadline_ns for job in self._demands)

    def allows(self, members: Sequence[Job], stage: int, batch_ns: int) -> bool:
        """Whether a batch of these keeps every deadline that is kept without it.

        Parameters
        ----------
        members : sequence of Job
            The leader first; those that are not at the stage yet are brought there before.
        stage : int
            Where the batch runs.
        batch_ns : int
            Its budget.
        """
        end_ns = self._now_ns
        for job in members:
            state = self._tasks[job.task]
            if job.running:
                end_ns = max(end_ns, job.due_ns)
            elif job.next_stage < stage:
                end_ns += state.budget_ns(job.variant, job.next_stage)
            # Until the batch begins each of them is judged as one that runs alone.
            batch_ns = max(batch_ns, state.budget_ns(job.variant, stage))
        end_ns += batch_ns
        if max(end_ns, *self._free) + self._total_ns <= self._first_deadline_ns:
            return True  # whatever the order
        if self._in_time is None:
            self._in_time = self._find(self._free, self._places, self._demands)
        demands = dict(self._demands)
        for job in members:
            after = stage + self._tasks[job.task].spans[job.variant][stage]
            demands[job] = self._demand(job, after, end_ns, started=True)
        places = {device: list(times_ns) for device, times_ns in self._places.items()}
        run = self._tasks[members[0].task].runs[members[0].variant][stage]
        if run is not None and run.device in places:
            places[run.device][-1] = end_ns  # the last is one that is free now
        in_time = self._find([end_ns, *self._free[1:]], places, demands)
        return in_time.issuperset(members) and in_time.issuperset(self._in_time)

    @staticmethod
    def _find(
        free_ns: Sequence[int],
        places: Mapping[str, Sequence[int]],
        demands: Mapping[Job, Demand],
    ) -> set[Job]:
        if len(free_ns) == 1:
            return one_by_one(free_ns[0], demands.values())
        return jobs_in_time(free_ns, demands.values(), places)

    def _demand(self, job: Job, stage: int, available_ns: int, *, started: bool) -> Demand:
        state = self._tasks[job.task]
        rank = self._queue.rank(
            job, state.parameters, state.misses_in_a_row, available_ns, started=started
        )
        return Demand(job, rank, self._steps(state, job, stage), started, available_ns)

    def _steps(self, state: TaskState, job: Job, stage: int) -> tuple[Step, ...]:
        """The runs from a stage on, in the fastest variant that the job may yet choose."""
        if stage == len(state.parameters.stages):
            return ()
        if len(self._free) == 1:
            # Only their sum counts there, and this is asked twice for each batch in sight.
            selector, remaining_ns = self._selector, state.remaining_budget_ns
            return ((shortest_ns(selector, state, job, stage, remaining_ns), ""),)
        allowed = [v for v in self._selector.allowed(state, job) if state.usable(v, stage)]
        variant = min(
            allowed or [job.variant], key=lambda name: state.remaining_budget_ns(name, stage)
        )
        steps = []
        for first, run in enumerate(state.runs[variant]):
            if run is not None and first >= stage:
                before_ns, after_ns = (
                    state.remaining_budget_ns(variant, first),
                    state.remaining_budget_ns(variant, first + run.span),
                )
                steps.append((before_ns - after_ns, run.device))
        return tuple(steps)


def batches(state: TaskState, variant: str, stage: int) -> bool:
    """Whether the run that begins with this stage can be done for several frames at once."""
    run = state.runs[variant][stage]
    return run is not None and run.batches
