"""Which variant runs the next stage: the question that the engine asks at every boundary.

Who answers is told what happens to the jobs, so that it can keep a picture of all tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from jetson_dnn_rt.safety.faults import FAULTS, safe_text

if TYPE_CHECKING:
    from jetson_dnn_rt.scheduling.job import Job
    from jetson_dnn_rt.scheduling.task_state import TaskState
    from jetson_dnn_rt.tasks import Outcome

logger = logging.getLogger(__name__)

FAILURES = 2
"""A selector that raised so often is replaced."""


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


class GuardedSelector:
    """Asks a selector, and a `StaticSelector` where that raises; for good after `FAILURES` times.

    Whatever a selector does, the engine's calls go on: it is asked in the middle of them.

    Parameters
    ----------
    selector : Selector
        The one to ask.

    Attributes
    ----------
    failure : str
        Why the selector was replaced; empty as long as it is asked.
    """

    def __init__(self, selector: Selector) -> None:
        self._name = type(selector).__name__
        self._static = StaticSelector()
        self._failures = 0
        self.failure = ""
        self._ask(selector)

    def _ask(self, selector: Selector) -> None:
        # Bound once: this is called several times at every boundary.
        self._choose, self._allowed = selector.choose, selector.allowed
        self._released, self._started = selector.released, selector.started
        self._passed, self._ended = selector.passed, selector.ended

    def choose(self, state: TaskState, job: Job, now_ns: int) -> str:
        """The variant for the stage ``job.next_stage``."""
        try:
            return self._choose(state, job, now_ns)
        except Exception as error:
            self._note(error)
        return self._static.choose(state, job, now_ns)

    def allowed(self, state: TaskState, job: Job) -> Sequence[str]:
        """The variants that may yet be chosen for the rest of the job."""
        try:
            return self._allowed(state, job)
        except Exception as error:
            self._note(error)
        return self._static.allowed(state, job)

    def released(self, state: TaskState, job: Job, now_ns: int) -> None:
        """A job was let in; it waits."""
        try:
            self._released(state, job, now_ns)
        except Exception as error:
            self._note(error)

    def started(self, state: TaskState, job: Job, now_ns: int) -> None:
        """A stage of a job begins."""
        try:
            self._started(state, job, now_ns)
        except Exception as error:
            self._note(error)

    def passed(self, state: TaskState, job: Job, now_ns: int) -> None:
        """A stage of a job is done."""
        try:
            self._passed(state, job, now_ns)
        except Exception as error:
            self._note(error)

    def ended(self, state: TaskState, job: Job, outcome: Outcome, now_ns: int) -> None:
        """A job ended."""
        try:
            self._ended(state, job, outcome, now_ns)
        except Exception as error:
            self._note(error)

    def _note(self, error: Exception) -> None:
        FAULTS.note("selector of variants", error)
        self._failures += 1
        if self._failures == FAILURES:
            self.failure = (
                f"{self._name} raised {FAILURES} times, last {type(error).__name__}: "
                f"{safe_text(error)}"
            )
            self._ask(self._static)
            logger.error(
                "%s: it is set aside, and tasks go on in the variants that they are set to",
                self.failure,
            )
