"""The state of the cohort: all running tasks and the clocks, in one place.

The coordinator writes it, policies only read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from jetson_dnn_rt.coordinator.slowdown import SlowdownWindow
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable


class StageSample(NamedTuple):
    """A stage that ran, as a policy may learn from it."""

    variant: int
    stage: int
    clocks: int
    """Position in the clock table that was in effect at its end."""
    time_ns: int
    """Its execution time."""


class FrameSample(NamedTuple):
    """A frame that ended after it had started."""

    met: bool
    response_ns: int
    execution_ns: int


@dataclass(slots=True, eq=False)
class Member:
    """A task of the cohort.

    Attributes
    ----------
    table : TaskTable
        What was profiled of it.
    deadline_ns : int
        Its relative deadline now.
    configured : int
        The variant that its parameter names; what the policy `static` runs.
    usable : tuple of bool
        For each variant whether it may run: it is loaded and was not withdrawn.
    active : bool
        A frame of it waits or is in flight; without one the next four say nothing.
    started : bool
        That frame has begun.
    release_ns, absolute_deadline_ns : int
        Of that frame.
    stage : int
        The stage that it runs next, or runs now.
    running_since_ns : int or None
        When that stage began; None while none of its stages runs.
    variant : int
        The variant last chosen for it.
    lag_ns : int
        The last known LAG: at its last boundary, which is one of the frame before as long as
        this one has not passed its first; negative = behind. Measured from boundary to boundary:
        waiting counts, as in the paper.
    stages_done, frames_done : int
        How many there ever were; they tell a policy with a memory whether there is news.
    last_stage, last_frame : StageSample, FrameSample or None
        The last of each.
    last_release_ns : int or None
        When its newest frame was released; the next one is expected a period later.
    misses_in_a_row : int
        Frames that ended otherwise than ``met``, since the last one that did.
    slowdown : SlowdownWindow
        Observed over profiled execution time, one ratio a frame.
    pace : float
        The same over the stages of the frame in flight that are done; 1 before its first
        boundary.
    """

    table: TaskTable
    deadline_ns: int
    configured: int
    usable: tuple[bool, ...]
    active: bool = False
    started: bool = False
    release_ns: int = 0
    absolute_deadline_ns: int = 0
    stage: int = 0
    running_since_ns: int | None = None
    variant: int = 0
    lag_ns: int = 0
    stages_done: int = 0
    frames_done: int = 0
    last_stage: StageSample | None = None
    last_frame: FrameSample | None = None
    last_release_ns: int | None = None
    misses_in_a_row: int = 0
    slowdown: SlowdownWindow = field(default_factory=SlowdownWindow)
    pace: float = 1.0


@dataclass(slots=True, eq=False)
class Cohort:
    """Everything a policy may look at.

    Attributes
    ----------
    clock_table : ClockTable
        The configurations to choose from.
    members : list of Member
        The tasks, in a fixed order.
    workers : int
        Stages that can run side by side.
    interference : tuple of float
        ``interference[n - 1]``: how much slower a stage is when n run side by side; the last
        value holds for more.
    clocks : int
        Position that is in effect.
    clocks_target, clocks_at_ns : int
        Position that was asked for last, and when it takes (or took) effect.
    deciding : int
        The member at whose boundary this is; -1 when a frame ended and none takes its place.
    memory : object
        What the policy's last decision carried; None at first.
    """

    clock_table: ClockTable
    members: list[Member]
    workers: int
    interference: tuple[float, ...]
    clocks: int
    clocks_target: int
    clocks_at_ns: int = 0
    deciding: int = -1
    memory: object = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy wants.

    Attributes
    ----------
    variants : tuple of int
        For each member the variant of its next stage. Only that of ``cohort.deciding`` is used
        now; the others are asked again at their own boundaries.
    clocks : int
        Position in the clock table.
    memory : object
        What the policy is to find in ``cohort.memory`` next time; frozen.
    """

    variants: tuple[int, ...]
    clocks: int
    memory: object = None
