"""The state of the cohort: all running tasks and the clocks, in one place.

The coordinator writes it, policies only read it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable

SLOWDOWN_FRAMES = 64


class SlowdownWindow:
    """Observed over expected execution time of the last frames of one task.

    1.0 = as profiled at the clocks that were in effect; so are all figures before the first frame.
    Whatever else slows the machine shows here: other stages running side by side, a co-runner, a
    throttling board.
    """

    __slots__ = ("_recent", "_sorted", "_sum")

    def __init__(self, frames: int = SLOWDOWN_FRAMES) -> None:
        self._recent: deque[float] = deque(maxlen=frames)
        self._sorted: list[float] = []
        self._sum = 0.0

    def __len__(self) -> int:
        return len(self._sorted)

    def observe(self, ratio: float) -> None:
        """Take the ratio of one frame."""
        if len(self._recent) == self._recent.maxlen:
            oldest = self._recent[0]
            del self._sorted[bisect_left(self._sorted, oldest)]
            self._sum -= oldest
        self._recent.append(ratio)
        insort(self._sorted, ratio)
        self._sum += ratio

    @property
    def mean(self) -> float:
        """Mean over the window."""
        return self._sum / len(self._sorted) if self._sorted else 1.0

    @property
    def latest(self) -> float:
        """Ratio of the last frame."""
        return self._recent[-1] if self._recent else 1.0

    def quantile(self, share: float) -> float:
        """Smallest ratio that covers this share of the window."""
        if not self._sorted:
            return 1.0
        return self._sorted[max(0, ceil(share * len(self._sorted)) - 1)]


class StageSample(NamedTuple):
    """A stage that ran, as a policy may learn from it."""

    variant: int
    stage: int
    clocks: int  # position in the clock table that was in effect at its end
    time_ns: int  # its execution time


class FrameSample(NamedTuple):
    """A frame that ended after it had started."""

    met: bool
    response_ns: int
    execution_ns: int


@dataclass(slots=True, eq=False)
class Member:
    """A task of the cohort."""

    table: TaskTable
    deadline_ns: int  # its relative deadline now
    configured: int  # the variant that its parameter names
    usable: tuple[bool, ...]  # whether each variant is loaded and was not withdrawn
    active: bool = False
    """A frame of it waits or is in flight; without one `started` to `stage` mean nothing."""
    started: bool = False  # that frame has begun
    release_ns: int = 0
    absolute_deadline_ns: int = 0
    stage: int = 0  # the stage that it runs next, or runs now
    running_since_ns: int | None = None
    """Begin of the running stage; None while none of its stages runs."""
    variant: int = 0  # the variant last chosen for it
    lag_ns: int = 0
    """LAG at its last boundary, which is one of the frame before until this one passed its first;
    negative = behind. Measured from boundary to boundary: waiting counts, as in the paper."""
    stages_done: int = 0
    """Stages, and frames, that there ever were: tell a policy with a memory that there is news."""
    frames_done: int = 0
    last_stage: StageSample | None = None
    last_frame: FrameSample | None = None
    last_release_ns: int | None = None
    """Release of its newest frame; the next one is expected a period later."""
    misses_in_a_row: int = 0
    """Frames that ended otherwise than ``met``, since the last one that did."""
    slowdown: SlowdownWindow = field(default_factory=SlowdownWindow)
    pace: float = 1.0
    """Observed over profiled execution time of the finished stages of the frame in flight."""


@dataclass(slots=True, eq=False)
class Cohort:
    """Everything a policy may look at."""

    clock_table: ClockTable
    members: list[Member]  # the tasks, in a fixed order
    workers: int  # stages that can run side by side
    interference: tuple[float, ...]
    """``[n - 1]``: slow-down of a stage when n run side by side; the last one holds for more."""
    clocks: int  # position that is in effect
    clocks_target: int  # position that was asked for last
    clocks_at_ns: int = 0  # when that one takes (or took) effect
    deciding: int = -1
    """The member at whose boundary this is; -1 when a frame ended and none takes its place."""
    memory: object = None  # ``Decision.memory`` of the last decision; None at first


@dataclass(frozen=True, slots=True)
class Decision:
    """A policy's choice of variants and clocks."""

    variants: tuple[int, ...]
    """Variant of each member's next stage. Only that of ``cohort.deciding`` is used now;
    the others are asked again at their own boundaries."""
    clocks: int  # position in the clock table
    memory: object = None  # for ``cohort.memory`` at the next decision; frozen
