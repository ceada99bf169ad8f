# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The coordinator: keeps the cohort's state and asks the policy at every stage boundary.

It is the engine's `Selector`. Everything here runs under the driver's lock, between two stages:
nothing waits, allocates much, or touches the clocks. The wanted clocks go to ``request_clocks``,
whose owner changes them on another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from jetson_dnn_rt.coordinator.cohort import Cohort, Decision, FrameSample, Member, StageSample
from jetson_dnn_rt.coordinator.policy import Policy
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable
from jetson_dnn_rt.safety.faults import FAULTS, safe_text
from jetson_dnn_rt.scheduling.job import Job, lag_ns
from jetson_dnn_rt.scheduling.selection import FAILURES, Gate, StaticSelector
from jetson_dnn_rt.scheduling.task_state import TaskState
from jetson_dnn_rt.tasks import Outcome

RequestClocks = Callable[[int, int], int]
"""Takes a position in the clock table and the time; returns the time it takes effect."""


@dataclass(slots=True)
class _Tracked:
    """The coordinator's own state of a member."""

    position: int
    member: Member
    variants: dict[str, int]
    medians_ns: list[list[int]]
    state: TaskState | None = None
    job: Job | None = None  # the task's present frame
    executed_ns: int = 0  # execution time of the frame in flight
    expected_ns: float = 0.0  # profiled time of the same stages, at the clocks in effect
    scales_seen: dict[int, dict[str, tuple[float, ...]]] = field(default_factory=dict)

    def scales(self, clocks: int) -> dict[str, tuple[float, ...]]:
        """Time scales of the task's variants at a clock configuration."""
        if clocks not in self.scales_seen:
            rows = self.member.table.slowdown[:, :, clocks].tolist()
            self.scales_seen[clocks] = {
                variant: tuple(rows[index]) for variant, index in self.variants.items()
            }
        return self.scales_seen[clocks]

    def keep(self) -> str:
        """Variant without a policy's choice: that of the last run, else the configured one."""
        member = self.member
        return member.table.variants[member.variant if member.stages_done else member.configured]


class Coordinator:
    """Selects variants and clocks for all tasks together.

    A task without a table runs its configured variant. Not thread-safe: the driver's lock is held
    around every call. `workers` stages run concurrently, `interference` is the slow-down with 1,
    2, ... of them. `clocks` is the initial position, by default the fastest; without
    `request_clocks` the clocks are not changed. With a `timer`, which returns nanoseconds,
    `decision_times_ns` holds the time of every decision.
    """

    def __init__(
        self,
        clock_table: ClockTable,
        tables: Sequence[TaskTable],
        policy: Policy,
        *,
        workers: int = 1,
        interference: Sequence[float] = (1.0,),
        clocks: int | None = None,
        request_clocks: RequestClocks | None = None,
        timer: Callable[[], int] | None = None,
    ) -> None:
        present = clock_table.fastest if clocks is None else clocks
        self._tracked: dict[str, _Tracked] = {}
        for position, table in enumerate(tables):
            member = Member(table, table.deadline_ns, 0, (True,) * len(table.variants))
            numbers = {variant: index for index, variant in enumerate(table.variants)}
            medians_ns = table.median_ns.tolist()
            self._tracked[table.task] = _Tracked(position, member, numbers, medians_ns)
        members = [task.member for task in self._tracked.values()]
        if len(members) != len(tables):
            raise ValueError(f"each task has one table: {[table.task for table in tables]}")
        self.cohort = Cohort(clock_table, members, workers, tuple(interference), present, present)
        self.policy = policy
        self.decisions = 0  # number of times the policy was asked
        self.switches = 0  # number of times a frame continued in another variant
        self.failure = ""
        """Why the policy was disabled after raising `FAILURES` times; else empty. Without it the
        tasks stay in the variants that they ran last, at the fastest clocks; so does the frame at
        which it raised before."""
        self._failures = 0
        self._seen_ns = 0  # time of the last call that passed one
        self.decision_times_ns: list[int] = []
        self._request_clocks = request_clocks
        self._timer = timer
        self._static = StaticSelector()

    def set_policy(self, policy: Policy) -> None:
        """Replace the policy; the new one decides from the next boundary on."""
        self.policy, self.cohort.memory = policy, None
        self.failure, self._failures = "", 0
        self._rescale()

    def close(self) -> None:
        """Detach from the tasks: their budgets now apply to the present clocks."""
        for task in self._tracked.values():
            if task.state is not None:
                task.state.set_time_scales(None)

    # -- the engine's questions ----------------------------------------------------------------

    def choose(self, state: TaskState, job: Job, now_ns: int) -> str:
        """Return the policy's variant for the job's next stage."""
        if (task := self._tracked.get(job.task)) is None:
            return self._static.choose(state, job, now_ns)
        self._see(task, state, job, now_ns)
        decision = None
        if not self.failure:
            decision = self._decide(task.position, now_ns, change_clocks=job.start_ns is None)
        if not self.policy.adjusts_variants:
            return self._static.choose(state, job, now_ns)
        if decision is None:
            return task.keep()
        try:
            return task.member.table.variants[decision.variants[task.position]]
        except Exception as error:
            self._set_back(error, now_ns)
        return task.keep()

    def allowed(self, state: TaskState, job: Job) -> Sequence[str]:
        """Return the variants that the policy may still choose; without one, the one variant."""
        task = self._tracked.get(job.task)
        if task is not None:
            self._meet(task, state)
        if task is None or not self.policy.adjusts_variants:
            return self._static.allowed(state, job)
        if self.failure:
            return (task.keep(),)
        variants = task.member.table.variants
        try:
            return [variants[v] for v in self.policy.candidates(self.cohort, task.position)]
        except Exception as error:
            self._set_back(error, self._seen_ns)
        return (task.keep(),)

    def gate(self, state: TaskState, job: Job, now_ns: int) -> Gate:
        """Return the policy's answer; without one a frame may begin."""
        task = self._tracked.get(job.task)
        if task is None or self.failure or not self.policy.gates_frames:
            return Gate.OPEN
        try:
            return self.policy.gate(self.cohort, task.position, now_ns)
        except Exception as error:
            self._set_back(error, now_ns)
        return Gate.OPEN

    # -- what happens --------------------------------------------------------------------------

    def released(self, state: TaskState, job: Job, now_ns: int) -> None:
        """A frame was admitted."""
        if (task := self._tracked.get(job.task)) is None:
            return
        task.member.last_release_ns = now_ns
        self._see(task, state, state.in_flight or job, now_ns)

    def started(self, state: TaskState, job: Job, now_ns: int) -> None:
        """A stage begins."""
        if (task := self._tracked.get(job.task)) is None:
            return
        self._see(task, state, job, now_ns)
        member = task.member
        member.started = True
        if job.path:
            self.switches += job.variant != job.path[-1][0]
        member.running_since_ns = now_ns
        member.variant = task.variants.get(job.variant, member.variant)

    def passed(self, state: TaskState, job: Job, now_ns: int) -> None:
        """A stage has finished."""
        if (task := self._tracked.get(job.task)) is None:
            return
        self._see(task, state, job, now_ns)
        member = task.member
        variant_name, stage = job.path[-1]
        time_ns = job.stages[-1].execution_time_ns
        member.running_since_ns = None
        member.stages_done += 1
        member.stage = job.next_stage
        member.lag_ns = lag_ns(
            member.table.sub_deadlines_ns, job.next_stage, job.stages[-1].end_ns - job.release_ns
        )
        variant = task.variants.get(variant_name)
        if variant is not None:
            scales = task.scales(self.cohort.clocks)[variant_name]
            before_ns = task.expected_ns
            for covered in range(stage, job.next_stage):
                task.expected_ns += task.medians_ns[variant][covered] * scales[covered]
            if job.stages[-1].batch > 1 or job.stages[-1].narrow:
                # Such a time does not tell how fast one frame runs with all cores.
                time_ns = round(task.expected_ns - before_ns)
            else:
                member.last_stage = StageSample(variant, stage, self.cohort.clocks, time_ns)
            task.executed_ns += time_ns
            member.pace = task.executed_ns / task.expected_ns

    def ended(self, state: TaskState, job: Job, outcome: Outcome, now_ns: int) -> None:
        """A frame ended; the policy is asked about the clocks."""
        if (task := self._tracked.get(job.task)) is None:
            return
        self._settle(now_ns)
        member = task.member
        member.misses_in_a_row = state.misses_in_a_row
        if job.start_ns is None:
            # It was never in flight; the task's other frame is unaffected.
            if task.job is job:
                task.job = None
                member.active = False
            return
        member.frames_done += 1
        member.running_since_ns = None
        member.last_frame = FrameSample(
            outcome is Outcome.MET, now_ns - job.release_ns, task.executed_ns
        )
        if task.expected_ns:
            member.slowdown.observe(task.executed_ns / task.expected_ns)
        task.job = None
        if state.waiting is not None:
            self._see(task, state, state.waiting, now_ns)
        else:
            member.active = member.started = False
        if not self.failure:
            self._decide(-1, now_ns, change_clocks=True)

    # -- inside --------------------------------------------------------------------------------

    def _meet(self, task: _Tracked, state: TaskState) -> None:
        """Register the engine's task, which is new when a node is configured again."""
        if task.state is not state:
            task.state = state
            self._scale(task, state)

    def _see(self, task: _Tracked, state: TaskState, job: Job, now_ns: int) -> None:
        """Register a task's present frame, if it is new."""
        self._meet(task, state)
        self._settle(now_ns)
        if task.job is job:
            return
        member = task.member
        task.job = job
        task.executed_ns, task.expected_ns = 0, 0.0
        member.active, member.started = True, job.start_ns is not None
        member.release_ns = job.release_ns
        member.absolute_deadline_ns = job.absolute_deadline_ns
        member.deadline_ns = job.absolute_deadline_ns - job.release_ns
        member.stage = job.next_stage
        member.running_since_ns = None
        member.pace = 1.0
        member.configured = task.variants.get(state.parameters.variant, member.configured)
        member.usable = tuple(
            variant in state.spans and variant not in state.withdrawn for variant in task.variants
        )

    def _settle(self, now_ns: int) -> None:
        """Update the position if requested clocks are in effect by now."""
        self._seen_ns = now_ns
        cohort = self.cohort
        if cohort.clocks != cohort.clocks_target and now_ns >= cohort.clocks_at_ns:
            cohort.clocks = cohort.clocks_target
            self._rescale()

    def _rescale(self) -> None:
        """Pass the time scales of the present and the fastest clocks to the engine."""
        for task in self._tracked.values():
            if task.state is not None:
                self._scale(task, task.state)

    def _scale(self, task: _Tracked, state: TaskState) -> None:
        fastest = None
        if self.policy.adjusts_clocks and not self.failure and self._request_clocks is not None:
            fastest = task.scales(self.policy.fastest_clocks)
        state.set_time_scales(task.scales(self.cohort.clocks), fastest)

    def _decide(self, deciding: int, now_ns: int, *, change_clocks: bool) -> Decision | None:
        """Ask the policy; None when it failed."""
        self._settle(now_ns)
        cohort = self.cohort
        cohort.deciding = deciding
        begin_ns = self._timer() if self._timer else 0
        try:
            decision = self.policy.decide(cohort, now_ns)
        except Exception as error:  # a failing policy must not lose a frame
            self._set_back(error, now_ns)
            return None
        if self._timer:
            self.decision_times_ns.append(self._timer() - begin_ns)
        self.decisions += 1
        cohort.memory = decision.memory
        if self.policy.adjusts_clocks and (change_clocks or self.policy.clocks_at_boundaries):
            self._change_clocks(decision.clocks, now_ns)
        return decision

    def _set_back(self, error: Exception, now_ns: int) -> None:
        """Count an exception of the policy, and disable it at the second."""
        FAULTS.note("coordinator policy", error)
        self._failures += 1
        if self._failures < FAILURES:
            return
        self.failure = f"{type(self.policy).__name__}: {type(error).__name__}: {safe_text(error)}"
        self._rescale()
        if self.policy.adjusts_clocks:
            self._change_clocks(self.cohort.clock_table.fastest, now_ns)

    def _change_clocks(self, target: int, now_ns: int) -> None:
        cohort = self.cohort
        if target != cohort.clocks_target and self._request_clocks is not None:
            cohort.clocks_at_ns = self._request_clocks(target, now_ns)
            cohort.clocks_target = target
            self._settle(now_ns)
