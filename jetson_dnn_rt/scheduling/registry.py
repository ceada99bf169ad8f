"""The tasks of an engine: what they are set to, and what their budgets start from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil

from jetson_dnn_rt.scheduling.batching import BatchGroup
from jetson_dnn_rt.scheduling.runs import Run
from jetson_dnn_rt.scheduling.task_state import TaskState
from jetson_dnn_rt.tasks import TaskParameters


class Registry:
    """The part of the engine that is about tasks, not about jobs.

    Attributes
    ----------
    tasks : dict of str to TaskState
        By name, in the order in which they were added.
    groups : dict of str to BatchGroup
        By name; there as long as one of their tasks is.
    forms_batches : bool
        Whether any of them knows a batch: while none does, nobody looks for one.
    cohort_slowdown : mapping of int to float
        How much longer stages take with 1, 2, ... of them side by side, as measured: budgets that
        are seeded from runs alone are stretched by that of the largest cohort.
    """

    def __init__(self) -> None:
        self.tasks: dict[str, TaskState] = {}
        self.groups: dict[str, BatchGroup] = {}
        self.forms_batches = False
        self.cohort_slowdown: Mapping[int, float] = {}

    def add_task(
        self, parameters: TaskParameters, spans: Mapping[str, Sequence[int | Run]] | None = None
    ) -> TaskState:
        """Add a task; its budgets are empty, hence optimistic, until observed or seeded.

        Parameters
        ----------
        parameters : TaskParameters
            The task.
        spans : mapping of str to sequence of int or Run, optional
            For each variant its runs, or how many stages each of them does; by default one each.
        """
        if parameters.name in self.tasks:
            raise ValueError(f"task {parameters.name!r} is there already")
        group = parameters.batch_group
        for other in self.tasks.values() if group else ():
            stages = other.parameters.stages
            if other.parameters.batch_group == group and stages != parameters.stages:
                raise ValueError(
                    f"tasks of batch group {group!r} have the same stages: {stages}, not "
                    f"{parameters.stages}"
                )
        state = TaskState(parameters)
        for variant in parameters.variants:
            state.set_spans(variant, (spans or {}).get(variant))
        self.tasks[parameters.name] = state
        if group:
            self.groups.setdefault(group, BatchGroup(group))
        return state

    def add_variant(
        self, task: str, variant: str, spans: Sequence[int | Run] | None = None
    ) -> None:
        """Let a task run one more variant, or one that was made anew after its withdrawal."""
        self.tasks[task].add_variant(variant, spans)

    def replace_variants(self, task: str, spans: Mapping[str, Sequence[int | Run]]) -> None:
        """The task's variants were made anew; see `TaskState.replace_variants`."""
        self.tasks[task].replace_variants(spans)

    def remove_task(self, task: str) -> None:
        """Forget a task; it must be idle (see `flush`)."""
        if not self.is_idle(task):
            raise ValueError(f"task {task!r} still has jobs: flush it first")
        group = self.tasks.pop(task).parameters.batch_group
        if group and not any(s.parameters.batch_group == group for s in self.tasks.values()):
            del self.groups[group]
            self._see_batches()

    def is_idle(self, task: str) -> bool:
        """Whether no job of the task waits or is in flight."""
        state = self.tasks[task]
        return state.waiting is None and state.in_flight is None

    def seed_budgets(self, task: str, variant: str, times_ns: list[tuple[int, ...]]) -> None:
        """Start the budgets of a variant from warm-up runs, one tuple of stage times a run."""
        state = self.tasks[task]
        slowdown = self._cohort_slowdown()
        entries = [stage for stage, span in enumerate(state.spans[variant]) if span]
        for index, stage in enumerate(entries):
            state.seed(variant, stage, (ceil(run[index] * slowdown) for run in times_ns))

    def seed_batch_budgets(
        self, task: str, variant: str, stage: int, size: int, times_ns: Sequence[int]
    ) -> None:
        """Start the budget of a batch from warm-up runs: from now on it may be formed.

        Parameters
        ----------
        task : str
            Any of the group's; what is learnt holds for all of them.
        variant : str
            Which variant.
        stage : int
            Index of the task's stage that the run begins with.
        size : int
            Frames in the batch, >= 2.
        times_ns : sequence of int
            Execution times of such batches, alone on the machine; not empty.
        """
        state = self.tasks[task]
        run = state.runs[variant][stage]
        if not state.parameters.batch_group or run is None or not run.batches:
            raise ValueError(
                f"stage {stage} of variant {variant!r} of task {task!r} does not run as a batch"
            )
        slowdown = self._cohort_slowdown()
        self.groups[state.parameters.batch_group].seed(
            variant,
            stage,
            size,
            [ceil(time_ns * slowdown) for time_ns in times_ns],
            state.parameters.budget_quantile,
        )
        self._see_batches()

    def forget_batches(self, group: str) -> None:
        """Form no batch of a group any more, until they are seeded anew; one that runs goes on."""
        self.groups[group].budgets.clear()
        self._see_batches()

    def _see_batches(self) -> None:
        self.forms_batches = any(group.budgets for group in self.groups.values())

    def runs_batch(self, group: str) -> bool:
        """Whether a batch of a group runs."""
        return group in self.groups and self.groups[group].running

    def _cohort_slowdown(self) -> float:
        slowdown = self.cohort_slowdown
        return slowdown[max(slowdown)] if slowdown else 1.0

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
