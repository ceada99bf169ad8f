# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Batches: stages of several jobs that run at once.

Tasks that run the same model on several cameras are a *batch group*. When a job of one is about to
run a stage that can be batched, jobs of the others at the same stage in the same variant may join
it. The rules:

* Only sizes that were measured are formed; the times of those that run are learnt.
* A batch has to cost less than its members one by one, on the workers that are free for them, by
  their usual times.
* It must keep every deadline, by the budgets: the members', and that of every other job that would
make it without a batch. Stages after the batch count as run one by one: so at the next stage there
is again a plan without batches that keeps every deadline, and a batch is formed there only if it
keeps them too.
* *Gathering*: a released job that is not at the stage yet (its preprocessing waits) is brought
there first, while the leader waits, if a batch with it passes both tests. If its preprocessing
runs on another worker, the leader waits for that, at most until its budget is over; the leader's
worker does other work meanwhile. No job waits for frames that have not arrived.
* Probes and jobs on spare time run alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jetson_dnn_rt.scheduling.admission import (
    DeviceLimits,
    can_make_it,
    is_admitted,
    select,
    shortest_ns,
)
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.queue import Rank, ReadyQueue
from jetson_dnn_rt.scheduling.selection import Selector
from jetson_dnn_rt.scheduling.task_state import BudgetEstimator, TaskState
from jetson_dnn_rt.tasks import Admission

REFUSALS = 256
"""After this many refusals in a row a batch's budget restarts from its seeds: otherwise times
learnt in a bad moment would rule it out for ever."""

Step = tuple[int, str]  # budget of a run, and its device


@dataclass(slots=True, eq=False)
class BatchBudget:
    """Times of the batches of one size of one stage in one variant."""

    estimator: BudgetEstimator
    seeds_ns: tuple[int, ...]
    refusals: int = 0

    def refuse(self) -> None:
        """Count a batch that was possible but too slow."""
        self.refusals += 1
        if self.refusals == REFUSALS:
            self.refusals = 0
            self.estimator.reset(self.seeds_ns)


@dataclass(slots=True, eq=False)
class BatchGroup:
    """Tasks whose stages may run as one batch."""

    name: str  # as in `TaskParameters.batch_group`
    budgets: dict[tuple[str, int], dict[int, BatchBudget]] = field(default_factory=dict)
    """Times of the known batches at the reference clocks, by variant and stage, then by size; only
    these are formed."""
    running: bool = False
    """Whether a batch of the group is running: at most one can, since its runner has one set of
    buffers."""

    def seed(
        self, variant: str, stage: int, size: int, times_ns: Sequence[int], quantile: float
    ) -> None:
        """Start a budget from measured times; see `Engine.seed_batch_budgets`."""
        if size < 2:
            raise ValueError(f"a batch has at least 2 frames: {size}")
        if not times_ns:
            raise ValueError("times_ns must hold at least one time")
        budget = BatchBudget(BudgetEstimator(quantile), tuple(times_ns))
        budget.estimator.reset(times_ns)
        self.budgets.setdefault((variant, stage), {})[size] = budget

    def observe(self, variant: str, stage: int, size: int, execution_time_ns: int) -> None:
        """Learn from a batch, at the reference clocks, unless it was forgotten meanwhile."""
        budget = self.budgets.get((variant, stage), {}).get(size)
        if budget is not None:
            budget.refusals = 0
            budget.estimator.observe(execution_time_ns)

    def forget(self, variant: str, stage: int, size: int) -> None:
        """Stop forming such batches until they are seeded again."""
        self.budgets.get((variant, stage), {}).pop(size, None)


class Batcher:
    """Finds the batch for a job that is about to run; shares the engine's state.

    `running` are the jobs whose stages run, one for each busy worker: the leader of a batch.
    """

    def __init__(
        self,
        tasks: Mapping[str, TaskState],
        queue: ReadyQueue,
        running: Collection[Job],
        devices: DeviceLimits,
        workers: int,
    ) -> None:
        self.tasks, self.queue, self.running = tasks, queue, running
        self.devices, self.workers = devices, workers

    def choose(
        self, group: BatchGroup, leader: Job, now_ns: int, selector: Selector, aside: Sequence[Job]
    ) -> tuple[Job, int | None]:
        """Return the job to run in place of an admitted job, next in order; and how long to wait.

        The leader, with its `mates` set where it leads a batch; or a job that will become its
        mate; or none, with a time: until then at most the leader waits for jobs on other workers.
        No batch of its group runs. `aside` are jobs that are also ready but not in the queue at
        the moment; neither is the leader.
        """
        stage, variant = leader.next_stage, leader.variant
        known = group.budgets.get((variant, stage))
        state = self.tasks[leader.task]
        if not known or not state.batches(variant, stage):
            return leader, None
        idle = self.workers - len(self.running)
        free = min(idle, self.devices.room(state, leader))
        waiting = [*aside, *self.queue.waiting()]
        present: list[Job] = []
        absent: list[Job] = []
        for job in waiting:
            other = self.tasks[job.task]
            if (
                other.parameters.batch_group != group.name
                or job.next_stage > stage
                or not _may_join(selector, other, job, now_ns)
                or job.variant != variant
                or not other.batches(variant, stage)
            ):
                continue
            if job.next_stage == stage:
                present.append(job)
            elif (
                job.next_stage + other.spans[variant][job.next_stage] == stage
                and self.devices.room(other, job) > 0
            ):
                absent.append(job)
        coming = [job for job in self.running if self._comes(group, job, variant, stage, now_ns)]
        candidates = [leader, *present, *coming, *absent]
        # Cheapest per frame first; of equals the largest.
        sizes = sorted(
            (size for size in known if size <= len(candidates)),
            key=lambda size: (known[size].estimator.median_ns / size, -size),
        )
        outlook = None
        for size in sizes:
            members, budget = candidates[:size], known[size]
            usual_ns = sum(self.tasks[job.task].usual_ns(variant, stage) for job in members)
            # One by one they would share the workers that no other job wants.
            side_by_side = max(1, min(size, free - (1 + len(waiting) + len(coming) - size)))
            median_ns = state.scaled_ns(budget.estimator.median_ns, variant, stage)
            if median_ns * side_by_side < usual_ns:
                if outlook is None:
                    outlook = _Outlook(self, selector, now_ns, [leader, *waiting])
                batch_ns = state.scaled_ns(budget.estimator.budget_ns, variant, stage)
                if outlook.allows(members, stage, batch_ns):
                    if size <= 1 + len(present):
                        leader.mates = tuple(members[1:])
                        return leader, None
                    awaited = members[1 + len(present) :]
                    if len(awaited) > len(coming):
                        return absent[0], None
                    return leader, max(job.due_ns for job in awaited)
            budget.refuse()
        return leader, None

    def _comes(self, group: BatchGroup, job: Job, variant: str, stage: int, now_ns: int) -> bool:
        """Whether a job's running stage leads to the stage, and is not late."""
        state = self.tasks[job.task]
        return (
            state.parameters.batch_group == group.name
            and job.admission is Admission.BUDGET
            and job.variant == variant
            and job.next_stage + state.spans[variant][job.next_stage] == stage
            and job.due_ns > now_ns
            and not job.cancel_reason
            and state.batches(variant, stage)
        )


def _may_join(selector: Selector, state: TaskState, job: Job, now_ns: int) -> bool:
    return (
        job.admission is not Admission.PROBE
        and select(selector, state, job, now_ns)
        and can_make_it(selector, state, job, now_ns)
        and is_admitted(selector, state, job, now_ns)
    )


# -- which deadlines a batch keeps -----------------------------------------------------------


@dataclass(slots=True, eq=False)
class Demand:
    """Remaining work of a job."""

    job: Job
    rank: Rank
    steps: tuple[Step, ...]  # its remaining runs
    started: bool
    available_ns: int  # earliest time that it can continue
    done: int = 0  # steps that `jobs_in_time` has run

    @property
    def budget_ns(self) -> int:
        """Budget of the remaining steps."""
        return sum(time_ns for time_ns, _ in self.steps[self.done :])

    def fits(self, now_ns: int) -> bool:
        """Whether it can make its deadline from now on."""
        return now_ns + self.budget_ns <= self.job.absolute_deadline_ns

    def rank_now(self) -> Rank:
        """Its rank; among equals a started job goes first."""
        first, second, fresh, *others = self.rank
        return (first, second, fresh and not self.started, *others)  # type: ignore[return-value]


class _Outlook:
    """Jobs that meet their deadlines with and without a batch, if every stage takes its budget."""

    def __init__(
        self, batcher: Batcher, selector: Selector, now_ns: int, ready: Iterable[Job]
    ) -> None:
        self._tasks, self._queue = batcher.tasks, batcher.queue
        self._selector, self._now_ns = selector, now_ns
        running = batcher.running
        self._free = [now_ns] * (batcher.workers - len(running))
        self._free += [max(now_ns, leader.due_ns) for leader in running]
        self._places = batcher.devices.places(running, now_ns)
        self._demands: dict[Job, Demand] = {}
        self._in_time: set[Job] | None = None
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
        """Whether a batch at this stage meets every deadline that is met without it.

        The leader is the first member; those that are not at the stage yet are brought there
        first. `batch_ns` is the budget of the batch.
        """
        end_ns = self._now_ns
        for job in members:
            state = self._tasks[job.task]
            if job.running:
                end_ns = max(end_ns, job.due_ns)
            elif job.next_stage < stage:
                end_ns += state.budget_ns(job.variant, job.next_stage)
            # Until the batch starts each of them is treated as running alone.
            batch_ns = max(batch_ns, state.budget_ns(job.variant, stage))
        end_ns += batch_ns
        if max(end_ns, *self._free) + self._total_ns <= self._first_deadline_ns:
            return True  # whatever the order
        if self._in_time is None:
            self._in_time = _find_in_time(self._free, self._places, self._demands)
        demands = dict(self._demands)
        for job in members:
            after = stage + self._tasks[job.task].spans[job.variant][stage]
            demands[job] = self._demand(job, after, end_ns, started=True)
        places = {device: list(times_ns) for device, times_ns in self._places.items()}
        run = self._tasks[members[0].task].runs[members[0].variant][stage]
        if run is not None and run.device in places:
            places[run.device][-1] = end_ns  # the last is one that is free now
        in_time = _find_in_time([end_ns, *self._free[1:]], places, demands)
        return in_time.issuperset(members) and in_time.issuperset(self._in_time)

    def _demand(self, job: Job, stage: int, available_ns: int, *, started: bool) -> Demand:
        state = self._tasks[job.task]
        rank = self._queue.rank(
            job, state.parameters, state.misses_in_a_row, available_ns, started=started
        )
        return Demand(job, rank, self._steps(state, job, stage), started, available_ns)

    def _steps(self, state: TaskState, job: Job, stage: int) -> tuple[Step, ...]:
        """The runs from a stage on, in the fastest variant that the job may still choose."""
        if stage == len(state.parameters.stages):
            return ()
        remaining_ns = state.remaining_budget_ns
        if len(self._free) == 1:
            # Only their sum counts there, and this is called twice for each possible batch.
            return ((shortest_ns(self._selector, state, job, stage, remaining_ns), ""),)
        allowed = [v for v in self._selector.allowed(state, job) if state.usable(v, stage)]
        variant = min(allowed or [job.variant], key=lambda name: remaining_ns(name, stage))
        return tuple(
            (remaining_ns(variant, first) - remaining_ns(variant, first + run.span), run.device)
            for first, run in enumerate(state.runs[variant])
            if run is not None and first >= stage
        )


def _find_in_time(
    free_ns: Sequence[int], places: Mapping[str, Sequence[int]], demands: Mapping[Job, Demand]
) -> set[Job]:
    if len(free_ns) == 1:
        return one_by_one(free_ns[0], demands.values())
    return jobs_in_time(free_ns, demands.values(), places)


def jobs_in_time(
    free_ns: Sequence[int],
    demands: Collection[Demand],
    room: Mapping[str, Sequence[int]] | None = None,
) -> set[Job]:
    """Return the jobs that meet their deadlines if all of them run to completion in order.

    Whenever a worker is free it runs the next step of the first job that may run. A job whose
    budget no longer fits is dropped, started or not.

    `free_ns` is the time when each worker is free, `room` for each device with a limit the time
    when each of its places is.
    """
    in_time = {d.job for d in demands if not d.steps and d.fits(d.available_ns)}
    left = [replace(demand) for demand in demands if demand.steps]
    workers = list(free_ns)
    heapq.heapify(workers)
    places = {device: list(times_ns) for device, times_ns in (room or {}).items()}
    for times_ns in places.values():
        heapq.heapify(times_ns)

    def ready_ns(demand: Demand) -> int:
        """Earliest time that it and its device allow."""
        device = demand.steps[demand.done][1]
        return max(demand.available_ns, places.get(device, (0,))[0])

    while left:
        now_ns = workers[0]
        ready = [demand for demand in left if ready_ns(demand) <= now_ns]
        if not ready:
            heapq.heapreplace(workers, min(map(ready_ns, left)))
            continue
        chosen = min(ready, key=Demand.rank_now)
        if not chosen.fits(now_ns):
            left.remove(chosen)
            continue
        time_ns, device = chosen.steps[chosen.done]
        end_ns = now_ns + time_ns
        heapq.heapreplace(workers, end_ns)
        if device in places:
            heapq.heapreplace(places[device], end_ns)
        chosen.started, chosen.available_ns = True, end_ns
        chosen.done += 1
        if chosen.done == len(chosen.steps):
            left.remove(chosen)
            in_time.add(chosen.job)  # it fitted before each of its steps
    return in_time


def one_by_one(free_ns: int, demands: Iterable[Demand]) -> set[Job]:
    """Like `jobs_in_time` on one worker, in whole jobs; but started jobs are not dropped.

    The jobs besides the leader that were brought to the batch have started: they depend on it, and
    are not dropped for others.
    """
    in_time = set()
    now_ns = free_ns
    for demand in sorted(demands, key=lambda demand: demand.rank):
        now_ns = max(now_ns, demand.available_ns)
        fits = demand.fits(now_ns)
        if fits:
            in_time.add(demand.job)
        if fits or demand.started:
            now_ns += demand.budget_ns
    return in_time
