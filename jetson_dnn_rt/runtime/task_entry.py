# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A task as the executor has it: its stages, their mean times, its restarts, its snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from jetson_dnn_rt.runtime.delivery import Observer
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.task_state import Run, TaskState
from jetson_dnn_rt.scheduling.weakly_hard import WeaklyHardView
from jetson_dnn_rt.tasks import Outcome, Stage, TaskParameters, stage_name

MAX_RESTARTS = 3  # of a task within WINDOW_NS
WINDOW_NS = 600_000_000_000
PAUSES_NS = (0, 1_000_000_000, 10_000_000_000)
"""Before the first, second and third restart within the window: once may be a hiccup."""
RETRY_NS = 60_000_000_000  # between two requested restarts: anybody may request one

USAGE_WEIGHT = 1 / 32
"""Weight of a run in the mean times of its stage: about the last second at 30 Hz."""

Stages = Mapping[str, Sequence[Stage]]
"""The stages of every variant, by the variant's name."""

StageTable = tuple[Stage | None, ...]
"""One entry per stage of the task; None inside a run of several, where nothing can enter."""


class Restarts:
    """How often a task whose stages hang is restarted; times are on the executor's clock."""

    def __init__(self) -> None:
        self._times_ns: list[int] = []
        self.hangs = 0  # since the last `forgive`
        self.due_ns: int | None = None  # of the next restart
        self._forgiven_ns: int | None = None

    def plan(self, now_ns: int) -> bool:
        """Set `due_ns` after a stage hung; False when it hung too often."""
        self.hangs += 1
        self._times_ns = [t for t in self._times_ns if now_ns - t < WINDOW_NS]
        if len(self._times_ns) >= MAX_RESTARTS:
            self.due_ns = None
            return False
        self.due_ns = now_ns + PAUSES_NS[len(self._times_ns)]
        self._times_ns.append(self.due_ns)
        return True

    def wait_ns(self, now_ns: int) -> int:
        """Time until the next `forgive` is allowed."""
        if self._forgiven_ns is None:
            return 0
        return max(0, self._forgiven_ns + RETRY_NS - now_ns)

    def forgive(self, now_ns: int) -> None:
        """Restart at once on request, and reset the count."""
        self._times_ns = []
        self.hangs = 0
        self.due_ns = self._forgiven_ns = now_ns


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """Counts and state of a task at one moment, for diagnostics."""

    parameters: TaskParameters
    released: int
    outcomes: dict[Outcome, int]
    reasons: dict[str, int]
    budgets_ms: dict[str, tuple[float, ...]]  # by variant, one for each stage
    cancel_ms: dict[str, float]
    """How long a run takes to end when told to, by variant; only of those that can."""
    stage_ms: dict[str, dict[str, tuple[float, float]]]
    """Wall time and CPU time of each stage lately, by variant. The CPU time is that of the thread
    that calls the stage: not of a back end's own threads, nor of a GPU."""
    suspended: str  # why the task does not run; empty = it does
    withdrawn: dict[str, str]  # why a variant does not run any more
    last_failure: str = ""
    hangs: int = 0  # threads that hang in its stages now
    limit: WeaklyHardView | None = None  # None: it has no weakly hard limit

    @property
    def met_and_all(self) -> tuple[int, int]:
        """Frames that met their deadlines, and all frames."""
        return self.outcomes[Outcome.MET], self.released


@dataclass(slots=True, eq=False)
class TaskEntry:
    """State of a task in the executor; changed under its lock."""

    stages: dict[str, StageTable]
    observer: Observer
    restart: Callable[[], Stages] | None
    stage_timeout_ns: int
    urgency: int = 0  # its deadline class, see `Work`
    restarts: Restarts = field(default_factory=Restarts)
    restarting: bool = False  # a thread rebuilds its stages
    trouble: str = ""  # why it is suspended until a retry is requested, with the fix
    leaving: bool = False  # forgotten as soon as its stage has returned
    usage: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    """Aged means of wall and CPU time in ns, by variant and stage."""

    def see_usage(self, variant: str, stage: str, wall_ns: int, cpu_ns: int) -> None:
        """Learn from a stage that ran; half a microsecond."""
        means = self.usage.get((variant, stage))
        if means is None:
            self.usage[variant, stage] = [wall_ns, cpu_ns]
        else:
            means[0] += USAGE_WEIGHT * (wall_ns - means[0])
            means[1] += USAGE_WEIGHT * (cpu_ns - means[1])

    def next_stage(self, job: Job) -> Stage:
        """The stage that the job runs now or next."""
        stage = self.stages[job.variant][job.next_stage]
        assert stage is not None  # the engine enters a variant only where it can be
        return stage

    def make_snapshot(self, state: TaskState, hangs: int) -> TaskSnapshot:
        """Counts and state now, with the engine's state and the threads that hang in stages."""
        stage_ms: dict[str, dict[str, tuple[float, float]]] = {}
        for (variant, stage), (wall_ns, cpu_ns) in self.usage.items():
            stage_ms.setdefault(variant, {})[stage] = wall_ns / 1e6, cpu_ns / 1e6
        return TaskSnapshot(
            parameters=state.parameters,
            released=state.released,
            outcomes={outcome: state.outcomes[outcome] for outcome in Outcome},
            reasons=dict(state.reasons),
            budgets_ms={
                variant: tuple(stage.budget_ns / 1e6 for stage in stages)
                for variant, stages in state.budgets.items()
            },
            cancel_ms={
                variant: latency_ns / 1e6
                for variant in state.budgets
                if (latency_ns := state.cancel_latency_ns(variant)) is not None
            },
            stage_ms=stage_ms,
            suspended=self.trouble or state.suspended,
            withdrawn=dict(state.withdrawn),
            last_failure=state.last_failure,
            hangs=hangs,
            limit=None if (limit := state.weakly_hard) is None else limit.view(),
        )


def make_table(parameters: TaskParameters, variant: str, stages: Sequence[Stage]) -> StageTable:
    """Lay out the stages of a variant; ValueError when they are not the task's, in order."""
    first, expected = 0, []
    for stage in stages:
        if first + stage.span > len(parameters.stages):
            break
        expected.append(stage_name(parameters.stages, first, stage.span))
        first += stage.span
    names = [stage.name for stage in stages]
    if first != len(parameters.stages) or names != expected:
        raise ValueError(
            f"stages of variant {variant!r} of task {parameters.name!r} are {names}, expected "
            f"runs of {parameters.stages}"
        )
    return tuple(part for stage in stages for part in (stage, *(None,) * (stage.span - 1)))


def list_runs(stages: Sequence[Stage]) -> list[Run]:
    """The engine's view of stages."""
    return [
        Run(stage.span, stage.device, stage.run_batch is not None, stage.cancel is not None)
        for stage in stages
    ]
