# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Which stages may run side by side: networks on the workers, and beside them what helpers do.

While networks run on a device of their own, *helpers* prepare the next frame and decode the last
one. A frame is prepared just in time for its network: until then a newer one may take its place.
Networks still begin in the order of the discipline, so a frame that is being prepared holds up one
behind it in that order where it would miss its deadline otherwise. A network on the CPU has all
the cores of its worker: nothing else begins meanwhile, and it waits for what runs, unless it would
be late then. Where frames ask for more time than there is, networks may run `narrow`.

One that is usually late is not given up where nothing else is expected before its deadline: it
goes on while it makes it with luck. Where more frames come than networks can keep up with, one
that has waited long is left for the next one of its task, if that is due soon.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.narrow import NarrowNetworks
from jetson_dnn_rt.scheduling.queue import Rank, ReadyQueue
from jetson_dnn_rt.scheduling.task_state import (
    TaskState,
    has_all_cores,
    is_first,
    is_in_network,
    network_ns,
)
from jetson_dnn_rt.tasks import Admission

KEPT_UP = 0.9
"""Share of the workers' time that frames may ask for before networks run side by side."""

WORTH = 3
"""A result has to become so many times fresher than the wait for its frame is long."""
LATE_NS = 1_000_000  # a frame is expected so long after its time

AT_A_BOUNDARY = sys.maxsize
"""In place of a time: not before another stage ends."""

THREAD, NETWORK, FRAME = 0, 1, 2
"""What a ready job waits for: any thread, one that may run a network, or its preparation."""


class BusyTime:
    """Time during which all places of a kind were taken."""

    def __init__(self) -> None:
        self.total_ns = 0
        self.since_ns: int | None = None

    def at(self, now_ns: int) -> int:
        """The time up to now."""
        return self.total_ns + (0 if self.since_ns is None else now_ns - self.since_ns)

    def update(self, now_ns: int, full: bool) -> None:
        """Count from now on, or no more."""
        if full:
            if self.since_ns is None:
                self.since_ns = now_ns
        elif self.since_ns is not None:
            self.total_ns += now_ns - self.since_ns
            self.since_ns = None


class Places:
    """Threads of an engine: `workers` networks at once, and `helpers` more for other stages.

    With `helpers` = 0, or while batches are formed, any stage may run on any worker.
    """

    def __init__(self, tasks: dict[str, TaskState], queue: ReadyQueue) -> None:
        self.workers, self.helpers = 1, 0
        self.helping = False
        self.running: dict[Job, None] = {}
        """Jobs whose stages run, one for each busy thread: the leader of a batch."""
        self.tasks, self._queue = tasks, queue
        self.narrow = NarrowNetworks(self)
        self.claims: dict[Job, None] = {}
        """Jobs that have started and still have parts of their networks to run."""
        self.networks: dict[Job, bool] = {}
        """Jobs whose networks run; whether all cores of a worker are at it."""
        self._load = 0.0  # share of the time of one worker that all frames ask for
        self._busy = [BusyTime(), BusyTime(), BusyTime()]

    @property
    def threads(self) -> int:
        """Stages at once."""
        return self.workers + self.helpers if self.helping else self.workers

    def set_workers(self, workers: int, helpers: int) -> None:
        """Set how many run at once; nothing runs."""
        self.workers, self.helpers = workers, helpers
        self.helping = helpers > 0

    def set_helping(self, wanted: bool) -> None:
        """Use the helpers, where there are any, or not."""
        self.helping = wanted and self.helpers > 0

    # -- waiting -------------------------------------------------------------------------------

    def await_place(self, state: TaskState, job: Job, now_ns: int) -> None:
        """Count the waiting time of a job that becomes ready."""
        job.ready_ns = now_ns
        job.waits_for = self._kind(state, job)
        job.saturated_at_ready_ns = self._busy[job.waits_for].at(now_ns)

    def waited_ns(self, job: Job, now_ns: int) -> int:
        """Time since the job is ready in which every place for it was taken."""
        return self._busy[job.waits_for].at(now_ns) - job.saturated_at_ready_ns

    def _kind(self, state: TaskState, job: Job) -> int:
        if not self.helping or self.is_beside(state, job):
            return THREAD
        return FRAME if is_first(state, job) else NETWORK

    def is_beside(self, state: TaskState, job: Job) -> bool:
        """Whether the job's next stage is for a helper at any time: its network is done."""
        return self.helping and job.next_stage >= state.network_end

    # -- frames --------------------------------------------------------------------------------

    def expect(self, state: TaskState, now_ns: int) -> None:
        """A frame of the task is released: expect the next, and count what they ask for."""
        if self.helpers:
            before = state.load
            state.see_release(now_ns)
            self._load += state.load - before

    def forget(self, state: TaskState) -> None:
        """The task is removed."""
        self._load -= state.load

    def wait_for_newer(self, state: TaskState, job: Job, now_ns: int) -> int:
        """Time until which a job that did not start is left for the next frame; 0 = it is not."""
        due_ns = state.next_release_ns
        if not self.wants_more or state.narrow is None or job.admission is Admission.PROBE:
            return 0
        if now_ns > due_ns + LATE_NS or (due_ns - now_ns) * WORTH > now_ns - job.release_ns:
            return 0
        # If it does not come, this one still makes it.
        latest_ns = due_ns + LATE_NS
        return latest_ns if self.narrow.makes_it(state, job, latest_ns) else 0

    def is_idle_until(
        self, time_ns: int, job: Job, mate: Job | None = None, but: TaskState | None = None
    ) -> bool:
        """Whether until then no frame but these, and those of `but`, wants a network.

        As far as is known: False without helpers, and while a task did not see enough frames to
        expect the next.
        """
        if not self.helping:
            return False
        for state in self.tasks.values():
            if state is but:
                continue
            if not state.next_release_ns or state.next_release_ns < time_ns:
                return False
            waiting, other = state.waiting, state.in_flight
            if waiting is not None and waiting is not job and waiting is not mate:
                return False
            if other is None or other is job or other is mate:
                continue
            if other.next_stage < state.network_end:
                return False
        return True

    @property
    def wants_more(self) -> bool:
        """Whether more frames come than networks one after the other can keep up with."""
        return self.helping and self._load > KEPT_UP * self.workers

    # -- decisions -----------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether nothing may start before a stage ends."""
        running = len(self.running)
        if running >= self.threads:
            return True
        return self.helping and running > 0 and sum(self.networks.values()) >= self.workers

    def time_for(self, state: TaskState, job: Job, now_ns: int) -> int:
        """Time from which on a ready job's next stage may run: now, later, or `AT_A_BOUNDARY`.

        Sets the job's `delay_ns`.
        """
        if self.is_full:
            return AT_A_BOUNDARY
        if job.next_stage >= state.network_end:
            return now_ns
        if not is_first(state, job):
            if self._may_begin(state, job, now_ns):
                return now_ns
            # It may when it is late behind what prepares or decodes: see `_is_late_behind`.
            usual_ns = state.remaining_usual_ns(job.variant, job.next_stage)
            late_ns = job.absolute_deadline_ns - usual_ns
            is_kept = len(self.networks) < self.workers and late_ns > now_ns
            return late_ns if is_kept else AT_A_BOUNDARY
        job.delay_ns = 0
        if len(self.claims) < self.workers:
            return now_ns
        if self._fits_beside(state, job, now_ns):
            return now_ns
        rank = self.rank(state, job)
        ends_ns = [
            end_ns for other in self.claims if (end_ns := self._end_ns(other, rank, now_ns))
        ]
        before = len(ends_ns) - self.workers
        if before < 0:
            return now_ns
        if before >= self.workers:
            return AT_A_BOUNDARY
        ends_ns.sort()
        free_ns = ends_ns[before]
        job.delay_ns = max(0, free_ns - now_ns - state.usual_ns(job.variant, 0))
        return max(now_ns, free_ns - state.budget_ns(job.variant, 0))

    def _may_begin(self, state: TaskState, job: Job, now_ns: int) -> bool:
        """Whether the job's network may begin, or go on, now."""
        if len(self.networks) >= self.workers:
            if not self._fits_beside(state, job, now_ns):
                return False
        elif len(self.running) >= self.workers:
            run = state.runs[job.variant][job.next_stage]
            has_cores = run is None or run.device == "cpu"
            if (
                has_cores
                and not self.narrow.begins(state, job, now_ns)
                and not self._is_late_behind(state, job, now_ns)
            ):
                return False
        return not self._must_let_pass(state, job, now_ns)

    def _is_late_behind(self, state: TaskState, job: Job, now_ns: int) -> bool:
        """Whether the job's network would be late behind those that run, and they have time."""
        ends_ns = sorted([other.usual_end_ns for other in self.running])
        end_ns = ends_ns[len(ends_ns) - self.workers]
        usual_ns = state.remaining_usual_ns(job.variant, job.next_stage)
        if max(now_ns + 1, end_ns) + usual_ns <= job.absolute_deadline_ns:
            return False
        for other in self.running:
            rest_ns = self.tasks[other.task].remaining_budget_ns(other.variant, other.next_stage)
            if now_ns + 2 * rest_ns > other.absolute_deadline_ns:  # they share a core with it
                return False
        return True

    def _fits_beside(self, state: TaskState, job: Job, now_ns: int) -> bool:
        """Whether the job's network may run beside the others, once it is prepared."""
        if len(self.claims) - (job in self.claims) >= self.threads:
            return False
        if not self.narrow.joins(state, job, now_ns):
            return False
        for other in self.claims:
            if other in self.networks:
                if not other.work.narrow:
                    return False
            elif other is not job and not self.narrow.joins(self.tasks[other.task], other, now_ns):
                return False
        return True

    def _end_ns(self, other: Job, rank: Rank, now_ns: int) -> int:
        """When another job's network makes room for a job of this rank; 0 = it waits for that."""
        state = self.tasks[other.task]
        in_network = other in self.networks
        goes_first = self.rank(state, other) < rank
        if not (in_network or goes_first):
            return 0
        if not other.running:
            return now_ns + network_ns(state, other, other.next_stage)
        end_ns = max(now_ns, other.usual_end_ns)
        if not goes_first:
            return end_ns  # at the boundary
        span = state.spans[other.variant][other.next_stage]
        return end_ns + network_ns(state, other, other.next_stage + span)

    def _must_let_pass(self, state: TaskState, job: Job, now_ns: int) -> bool:
        """Whether the job's network would make a more urgent frame late that is being prepared."""
        end_ns = now_ns + state.usual_ns(job.variant, job.next_stage)
        rank: Rank | None = None
        for other in self.claims:
            preparing = self.tasks[other.task]
            if other is job or not (other.running and is_first(preparing, other)):
                continue
            rest_ns = preparing.remaining_usual_ns(other.variant, 1)
            if end_ns + rest_ns <= other.absolute_deadline_ns:
                continue
            rank = rank or self.rank(state, job)
            if self.rank(preparing, other) < rank:
                return True
        return False

    @property
    def by_priority(self) -> bool:
        """Whether tasks have priorities over each other."""
        return self._queue.discipline == "priority"

    def rank(self, state: TaskState, job: Job) -> Rank:
        """Sort key of a ready job: see `ReadyQueue.rank`."""
        return self._queue.rank(
            job,
            state.parameters,
            state.misses_in_a_row,
            job.ready_ns,
            started=job.start_ns is not None,
        )

    def blocking_ns(self, state: TaskState, job: Job, now_ns: int) -> int:
        """Expected time until a released job can begin, or its network where it is prepared."""
        if not self.helping or not state.is_prepared:
            running: Iterable[Job] = self.running
            if len(self.running) < self.threads:
                return 0
            ahead_ns = 0
        else:
            running = self.networks
            if len(running) < self.workers or (
                len(running) < self.threads and self.narrow.joins(state, job, now_ns)
            ):
                return 0
            # Beside one that has all cores it is not prepared.
            ahead_ns = 0 if self.is_full else state.usual_ns(job.variant, 0)
        first_ns = min([other.usual_end_ns for other in running])
        return max(0, first_ns - now_ns - ahead_ns)

    # -- state ---------------------------------------------------------------------------------

    def start(self, state: TaskState, job: Job, now_ns: int) -> None:
        """A stage of the job starts."""
        self.running[job] = None
        if self.helpers:
            if job.next_stage < state.network_end:
                self.claims[job] = None
            if is_in_network(state, job):
                self.networks[job] = has_all_cores(state, job)
        self._update(now_ns)

    def stop(self, job: Job, now_ns: int) -> None:
        """The running stage of the job is over, `next_stage` is still it."""
        del self.running[job]
        self.networks.pop(job, None)
        self._update(now_ns)

    def leave(self, job: Job, now_ns: int) -> None:
        """The job's network is done, or the job."""
        if job in self.claims:
            del self.claims[job]
            self._update(now_ns)

    def recount(self, now_ns: int, running: Iterable[Job]) -> None:
        """Reset to these running jobs, and the tasks' jobs in flight."""
        self.running.clear()
        self.running.update((job, None) for job in running)
        self.claims.clear()
        self.networks.clear()
        for state in self.tasks.values() if self.helpers else ():
            head = state.in_flight
            if head is not None and not head.ended and head.next_stage < state.network_end:
                self.claims[head] = None
                if head in self.running and is_in_network(state, head):
                    self.networks[head] = has_all_cores(state, head)
        self._update(now_ns)

    def _update(self, now_ns: int) -> None:
        busy = self._busy
        busy[THREAD].update(now_ns, self.is_full)
        if self.helping:
            busy[NETWORK].update(now_ns, len(self.networks) >= self.workers)
            busy[FRAME].update(now_ns, len(self.claims) >= self.workers)
