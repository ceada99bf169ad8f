"""What others ask of an executor and change in it while it runs, each under its lock."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.runtime.task_entry import TaskEntry, TaskSnapshot, make_demand, make_snapshot
from jetson_dnn_rt.scheduling.analysis import Verdict, analyse
from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.scheduling.selection import Selector


class Control:
    """The part of the executor that needs neither its threads nor frames.

    Parameters
    ----------
    engine : Engine
        Decides.
    clock : Clock
        The executor's.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self.clock = clock
        self._engine = engine
        self._condition = clock.condition()
        self._tasks: dict[str, TaskEntry] = {}

    def seed_batch_budgets(
        self, task: str, variant: str, stage: str, size: int, times_ns: Sequence[int]
    ) -> None:
        """Let the tasks of a batch group run this stage for `size` frames at once.

        Parameters
        ----------
        task : str
            Any of the group's; what is learnt holds for all of them.
        variant, stage : str
            Their names; the stage's `Stage.run_batch` must be there in every task of the group
            that has the variant. It is called with any of the group's works in any order, from any
            worker, but never twice at once in one group.
        size : int
            Frames in the batch, >= 2. Sizes that were not given are not formed.
        times_ns : sequence of int
            Execution times of such batches from warm-up runs; not empty.
        """
        with self._condition:
            table = self._tasks[task].stages[variant]
            names = [part.name if part else "" for part in table]
            if stage not in names:
                raise ValueError(f"variant {variant!r} of task {task!r} has no stage {stage!r}")
            index = names.index(stage)
            self._engine.seed_batch_budgets(task, variant, index, size, times_ns)

    def forget_batches(self, group: str, timeout_s: float = 5.0) -> None:
        """Form no batch of a group any more, until they are seeded anew.

        Returns when none runs: what runs them may be closed then.

        Raises
        ------
        TimeoutError
            When one still runs after `timeout_s`.
        """
        with self._condition:
            if group not in self._engine.groups:
                return
            self._engine.forget_batches(group)
            if not self._wait_for(lambda: not self._engine.runs_batch(group), timeout_s):
                raise TimeoutError(f"a batch of group {group!r} still runs after {timeout_s} s")

    def tasks_of(self, group: str) -> tuple[str, ...]:
        """The tasks of a batch group, in the order in which they were added."""
        with self._condition:
            states = self._engine.tasks.values()
            return tuple(s.parameters.name for s in states if s.parameters.batch_group == group)

    def set_cohort_slowdown(self, slowdown: Mapping[int, float]) -> None:
        """How much longer stages take with 1, 2, ... of them side by side, as measured.

        Budgets that are seeded from now on, from runs alone, are stretched by that of the largest
        cohort in it.
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

    def set_variant(self, task: str, variant: str) -> None:
        """Choose the variant from the next frame on; ValueError when unknown or withdrawn."""
        with self._condition:
            self._engine.set_variant(task, variant)

    def set_deadline(self, task: str, deadline_ns: int) -> None:
        """Change the relative deadline from the next frame on."""
        with self._condition:
            self._engine.set_deadline(task, deadline_ns)
            self._rank_deadlines()

    def _rank_deadlines(self) -> None:
        """Find the deadline classes of all tasks; the lock is held."""
        states = self._engine.tasks
        deadlines = {states[name].parameters.deadline_ns for name in self._tasks}
        classes = {deadline: rank for rank, deadline in enumerate(sorted(deadlines, reverse=True))}
        for name, entry in self._tasks.items():
            entry.urgency = classes[states[name].parameters.deadline_ns]

    def set_max_age(self, task: str, max_age_ns: int) -> None:
        """Change the age that makes a frame stale, from the next frame on; 0 = no limit."""
        with self._condition:
            self._engine.set_max_age(task, max_age_ns)

    def snapshot(self, task: str) -> TaskSnapshot:
        """Counts and state of a task now."""
        with self._condition:
            hangs = self._count_hangs(task)
            return make_snapshot(self._engine.tasks[task], self._tasks[task], hangs)

    def _count_hangs(self, task: str) -> int:
        """Threads that hang in stages of a task; the lock is held."""
        return 0

    def analyse(self) -> Verdict:
        """Schedulability of the present tasks with the present budgets and variants."""
        with self._condition:
            demands = [make_demand(state) for state in self._engine.tasks.values()]
            workers = self._engine.workers
        return analyse(demands, workers)

    def _wait_for(self, reached: Callable[[], bool], timeout_s: float) -> bool:
        limit_ns = self.clock.now_ns() + int(timeout_s * 1e9)
        step_ns = 1_000_000
        while not reached():
            now_ns = self.clock.now_ns()
            if now_ns >= limit_ns:
                return False
            # Polled: a notification for this rare wait would cost every boundary.
            self._condition.wait_until(min(limit_ns, now_ns + step_ns))
        return True
