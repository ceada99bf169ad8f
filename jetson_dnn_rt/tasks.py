# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The words of the scheduling engine: task, stage, job, outcome, record.

All times are integers in nanoseconds on one steady clock (`jetson_dnn_rt.clock`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.results import Result


class Outcome(str, enum.Enum):
    """End of a frame; every frame that arrives ends in exactly one of these."""

    MET = "met"
    LATE = "late"
    SKIPPED = "skipped"
    ABORTED = "aborted"
    SUPERSEDED = "superseded"
    FAILED = "failed"


class Admission(str, enum.Enum):
    """Why a job was allowed to start."""

    NONE = "none"  # it never started
    BUDGET = "budget"  # its budget fitted into the time to its deadline: it is expected to make it
    SPARE = "spare"
    """Its budget did not fit, its usual time did, and no admitted job wanted the worker."""
    PROBE = "probe"  # its budget has kept the task out for long: it ran to measure anew


@dataclass(slots=True, eq=False)
class Work:
    """Data that the stages of one job hand to each other."""

    frame: Frame  # the input; read only
    result: Result | None = None  # set by the last stage
    copied_bytes: int = 0
    """Pixels and tensors that were copied for this frame, from the message on; the bytes that a
    conversion writes into the input buffer count, since they must be written in any case."""
    urgency: int = 0
    """Deadline class of its task: 0 has the longest relative deadline of the process, and each
    shorter one is a class more. A GPU prefers the stages of the higher."""
    narrow: bool = False
    """Whether its network runs with the threads for several side by side, where it can."""
    scratch: dict[str, object] = field(default_factory=dict)
    """Data that one stage leaves for the next (the letterbox geometry, the raw outputs)."""


SHARED_STAGES = ("preprocess", "decode")
"""Stages that are the same in every variant: the first and the last one, around the network."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A run of consecutive work that is not preempted."""

    name: str  # unique inside its variant
    run: Callable[[Work], None]
    """Does the work; never called from two threads at once for one task."""
    span: int = 1  # number of the task's stages it covers: a back end may do several in one run
    device: str = "cpu"
    """``cpu``, ``cuda``, ``dla0``, ... The engine bounds how many run there at once."""
    cancel: Callable[[], None] | None = None
    """Lets `run`, which another thread is in, raise `RunCancelledError` soon; see
    `jetson_dnn_rt.backends.base.Runner.cancel`. None where a run always takes its whole time."""
    run_batch: Callable[[Sequence[Work]], None] | None = None
    """Does the work for frames of several tasks of one batch group at once; the first is the frame
    of the task whose stage this is. None where each runs by itself."""


@dataclass(frozen=True, slots=True)
class StageRecord:
    """One executed stage, or run of stages (``inference-1..4``)."""

    name: str
    variant: str
    start_ns: int
    end_ns: int
    batch: int = 1  # frames that it ran for at once; its times are those of them all
    narrow: bool = False  # see `Work`

    @property
    def execution_time_ns(self) -> int:
        """Time from the stage's start to its end."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One frame's way through one task, written when the job ends."""

    task: str
    sequence: int  # the frame's number in its stream
    variant: str
    """The variant the job ran, or would have run; where stages ran in different ones, their names
    in the order of their first use, joined by ``+``."""
    outcome: Outcome
    reason: str  # a word for skipped, aborted and failed jobs, else empty
    capture_ns: int  # when the sensor took the frame
    release_ns: int  # when the job could first run
    start_ns: int | None  # when its first stage started; None where none did
    completion_ns: int  # when it ended, whatever the outcome
    absolute_deadline_ns: int  # release plus the task's relative deadline at that moment
    waiting_ns: int
    """Time it was ready while every worker was busy with other jobs, or its device was full."""
    lag_ns: int
    """NeuOS' LAG at the end: sub-deadlines minus measured times of the stages that ran; negative =
    behind (Bateni & Liu 2020)."""
    admission: Admission
    stages: tuple[StageRecord, ...]  # the stages that ran
    copied_bytes: int = 0  # see `Work`
    cancelled_ns: int = 0  # time of stages that were cancelled, which are not in `stages`; else 0

    @classmethod
    def alone(
        cls,
        task: str,
        sequence: int,
        variant: str,
        times_ns: tuple[int, int, int],
        stages: Iterable[StageRecord],
        reason: str = "",
        copied_bytes: int = 0,
    ) -> JobRecord:
        """Record a frame that ran outside an engine: no waiting, no admission test.

        `times_ns` are begin, end and relative deadline; it counts as captured and released when
        it began. With a `reason` it failed.
        """
        begin_ns, end_ns, deadline_ns = times_ns
        lag_ns = begin_ns + deadline_ns - end_ns
        outcome = Outcome.MET if lag_ns >= 0 else Outcome.LATE
        return cls(
            task,
            sequence,
            variant,
            Outcome.FAILED if reason else outcome,
            reason,
            capture_ns=begin_ns,
            release_ns=begin_ns,
            start_ns=begin_ns,
            completion_ns=end_ns,
            absolute_deadline_ns=begin_ns + deadline_ns,
            waiting_ns=0,
            lag_ns=lag_ns,
            admission=Admission.BUDGET,
            stages=tuple(stages),
            copied_bytes=copied_bytes,
        )

    @property
    def execution_time_ns(self) -> int:
        """Sum over its stages; waiting is not in it."""
        return sum(stage.end_ns - stage.start_ns for stage in self.stages)

    @property
    def batch(self) -> int:
        """Frames in the largest batch that one of its stages ran in; 1 = it ran alone."""
        return max((stage.batch for stage in self.stages), default=1)

    @property
    def narrow(self) -> bool:
        """Whether its network, or a part of it, ran narrow: see `Work`."""
        return any(stage.narrow for stage in self.stages)

    @property
    def response_time_ns(self) -> int:
        """Completion minus release."""
        return self.completion_ns - self.release_ns

    @property
    def lateness_ns(self) -> int:
        """Completion minus absolute deadline; negative = early."""
        return self.completion_ns - self.absolute_deadline_ns

    @property
    def overhead_ns(self) -> int:
        """Response time that is neither execution nor waiting for other jobs."""
        busy_ns = self.execution_time_ns + self.cancelled_ns + self.waiting_ns
        return self.response_time_ns - busy_ns


@dataclass(frozen=True, slots=True)
class TaskParameters:
    """Settings of a task in the engine."""

    name: str  # unique in the engine
    deadline_ns: int  # relative deadline, from release
    period_ns: int  # expected time between frames; for the schedulability verdict and probes
    stages: tuple[str, ...]
    """Names of the stages, the same for every variant; between any two of them a job can be
    aborted, preempted or switched to another variant."""
    variants: tuple[str, ...]  # names of the variants that may run
    variant: str  # the one that runs now
    # A frame that is older at its release, or of whose age there is doubt, is skipped; 0 = none.
    max_age_ns: int = 0
    budget_quantile: float = 0.99
    """Quantile of the observed stage times that serves as budget, in (0, 1]."""
    precedence: int = 0  # among equal deadlines the task with the least goes first
    priority: int = 0  # under the discipline ``priority`` the task with the highest goes first
    batch_group: str = ""
    """Tasks of one group run the same model: their stages may run as one batch. Empty = alone."""
    met_of: tuple[int, ...] = ()
    """Weakly hard limit (m, k): at least m of any k consecutive frames are met; () = none."""

    def __post_init__(self) -> None:
        for key in ("deadline_ns", "period_ns"):
            if getattr(self, key) <= 0:
                raise ValueError(f"{key} of task {self.name!r} must be > 0: {getattr(self, key)}")
        if self.max_age_ns < 0:
            raise ValueError(f"max_age_ns of task {self.name!r} must be >= 0: {self.max_age_ns}")
        if not self.stages or not self.variants:
            raise ValueError(f"task {self.name!r} needs at least one stage and one variant")
        if self.variant not in self.variants:
            raise ValueError(
                f"variant of task {self.name!r} must be one of {list(self.variants)}: "
                f"{self.variant!r}"
            )
        if not 0.0 < self.budget_quantile <= 1.0:
            raise ValueError(
                f"budget_quantile of task {self.name!r} must be in (0, 1]: {self.budget_quantile}"
            )
        if self.met_of and not (len(self.met_of) == 2 and 1 <= self.met_of[0] <= self.met_of[1]):
            raise ValueError(
                f"met_of of task {self.name!r} must be (m, k) with 1 <= m <= k: {self.met_of}"
            )


def stage_name(stages: Sequence[str], first: int, span: int) -> str:
    """Name of a run of stages: ``inference-2``, or ``inference-1..4`` for several."""
    if span == 1:
        return stages[first]
    return f"{stages[first]}..{stages[first + span - 1].rpartition('-')[2]}"
