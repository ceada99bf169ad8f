"""Which variant runs the next stage: the question that the engine asks at every boundary.

Who answers is told what happens to the jobs, so that it can keep a picture of all tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from jetson_dnn_rt.scheduling.job import Job
    from jetson_dnn_rt.scheduling.task_state import TaskState
    from jetson_dnn_rt.tasks import Outcome


class Selector(Protocol):
    """Decides quickly: it is asked under the driver's lock.

    A variant that is withdrawn, or that cannot be entered at this stage (it covers the stage
    together with earlier ones), is not run whatever is chosen; see `TaskState.usable`.
    """

    def choose(self, state: TaskState, job: Job, now_ns: int) -> str:
        """The variant for the stage ``job.next_stage``."""

    def allowed(self, state: TaskState, job: Job) -> Sequence[str]:
        """The variants that may yet be chosen for the rest of the job.

        A job is hopeless only when none of them would bring it home in time.
        """

    def released(self, state: TaskState, job: Job, now_ns: int) -> None:
        """A job was let in; it waits."""

    def started(self, state: TaskState, job: Job, now_ns: int) -> None:
        """A stage of a job begins, in ``job.variant``."""

    def passed(self, state: TaskState, job: Job, now_ns: int) -> None:
        """A stage of a job is done, the last of ``job.stages``; called before `ended`."""

    def ended(self, state: TaskState, job: Job, outcome: Outcome, now_ns: int) -> None:
        """A job ended; also one that was never let in."""


class Unconcerned:
    """The part of a `Selector` that does not care what happens to the jobs."""

    def released(self, state: TaskState, job: Job, now_ns: int) -> None:
        """Nothing."""

    def started(self, state: TaskState, job: Job, now_ns: int) -> None:
        """Nothing."""

    def passed(self, state: TaskState, job: Job, now_ns: int) -> None:
        """Nothing."""

    def ended(self, state: TaskState, job: Job, outcome: Outcome, now_ns: int) -> None:
        """Nothing."""


class StaticSelector(Unconcerned):
    """The task's variant for the whole frame."""

    def choose(self, state: TaskState, job: Job, now_ns: int) -> str:
        """What the task is set to at the job's start, afterwards what the job has."""
        return state.parameters.variant if job.start_ns is None else job.variant

    def allowed(self, state: TaskState, job: Job) -> Sequence[str]:
        """That one."""
        return (self.choose(state, job, 0),)


class PlannedSelector(Unconcerned):
    """A fixed variant for each stage.

    Parameters
    ----------
    plans : mapping of str to sequence of str
        For each task one variant a stage; a task without a plan keeps its own variant.
    """

    def __init__(self, plans: Mapping[str, Sequence[str]]) -> None:
        self._plans = {task: tuple(plan) for task, plan in plans.items()}
        self._static = StaticSelector()

    def choose(self, state: TaskState, job: Job, now_ns: int) -> str:
        """What the plan says for this stage."""
        plan = self._plans.get(job.task)
        return plan[job.next_stage] if plan else self._static.choose(state, job, now_ns)

    def allowed(self, state: TaskState, job: Job) -> Sequence[str]:
        """What the plan says for this stage."""
        return (self.choose(state, job, 0),)
