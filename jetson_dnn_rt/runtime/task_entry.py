"""What the executor keeps of a task, and what it says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from jetson_dnn_rt.runtime.delivery import Observer
from jetson_dnn_rt.runtime.restarts import Restarts
from jetson_dnn_rt.runtime.stage_table import StageTable
from jetson_dnn_rt.scheduling.analysis import TaskDemand
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.task_state import TaskState
from jetson_dnn_rt.tasks import Outcome, Stage, TaskParameters

Stages = Mapping[str, Sequence[Stage]]
"""The stages of every variant, by the variant's name."""


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """Counts and state of a task at one moment, for diagnostics.

    `budgets_ms` holds one figure per stage for each variant; `suspended` and `withdrawn` are the
    reasons why the task or a variant does not run, empty when all is well. `hangs` says how many
    threads hang in its stages now.
    """

    parameters: TaskParameters
    released: int
    outcomes: dict[Outcome, int]
    reasons: dict[str, int]
    budgets_ms: dict[str, tuple[float, ...]]
    suspended: str
    withdrawn: dict[str, str]
    last_failure: str = ""
    hangs: int = 0


@dataclass(slots=True, eq=False)
class TaskEntry:
    """What the executor keeps of a task; `urgency` is its deadline class, see `Work`.

    `trouble` says, with what to do, why the task is suspended until somebody asks for another
    try; `restarting` whether a thread makes its stages anew; `leaving` whether it is forgotten as
    soon as its stage has returned.
    """

    stages: dict[str, StageTable]
    observer: Observer
    restart: Callable[[], Stages] | None
    stage_timeout_ns: int
    urgency: int = 0
    restarts: Restarts = field(default_factory=Restarts)
    restarting: bool = False
    trouble: str = ""
    leaving: bool = False

    def next_stage(self, job: Job) -> Stage:
        """What the job runs now or next."""
        stage = self.stages[job.variant][job.next_stage]
        assert stage is not None  # the engine enters a variant only where it can be
        return stage


def make_snapshot(state: TaskState, entry: TaskEntry, hangs: int) -> TaskSnapshot:
    """Counts and state of a task now; the executor's lock is held."""
    return TaskSnapshot(
        parameters=state.parameters,
        released=state.released,
        outcomes={outcome: state.outcomes[outcome] for outcome in Outcome},
        reasons=dict(state.reasons),
        budgets_ms={
            variant: tuple(stage.budget_ns / 1e6 for stage in stages)
            for variant, stages in state.budgets.items()
        },
        suspended=entry.trouble or state.suspended,
        withdrawn=dict(state.withdrawn),
        last_failure=state.last_failure,
        hangs=hangs,
    )


def make_demand(state: TaskState) -> TaskDemand:
    """What the schedulability test has to know of a task; the executor's lock is held."""
    parameters = state.parameters
    budgets = [stage.budget_ns for stage in state.budgets[parameters.variant]]
    return TaskDemand(
        name=parameters.name,
        cost_ns=sum(budgets),
        longest_stage_ns=max(budgets),
        stages=len(budgets),
        deadline_ns=parameters.deadline_ns,
        period_ns=parameters.period_ns,
    )
