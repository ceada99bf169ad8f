# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The state of the cohort: all running tasks and the clocks, in one place.

The coordinator writes it, policies only read it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import ceil
from typing import Any, NamedTuple

from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable

SLOWDOWN_FRAMES = 64


class SlowdownWindow:
    """Ratio of observed to expected execution time over the last frames of one task.

    1.0 = as profiled at the clocks in effect, also before the first frame. It includes everything
    that slows the machine: concurrent stages, a co-runner, a throttling board.
    """

    __slots__ = ("_recent",)

    def __init__(self, frames: int = SLOWDOWN_FRAMES) -> None:
        self._recent: deque[float] = deque(maxlen=frames)

    def __len__(self) -> int:
        return len(self._recent)

    def observe(self, ratio: float) -> None:
        """Add the ratio of one frame."""
        self._recent.append(ratio)

    @property
    def mean(self) -> float:
        """Mean over the window."""
        return sum(self._recent) / len(self._recent) if self._recent else 1.0

    @property
    def latest(self) -> float:
        """Ratio of the last frame."""
        return self._recent[-1] if self._recent else 1.0

    def quantile(self, share: float) -> float:
        """Smallest ratio that covers this share of the window."""
        if not self._recent:
            return 1.0
        # Sorted when a policy asks, not at every frame: few do, and a list that is kept sorted
        # beside the window must be kept equal to it, too.
        return sorted(self._recent)[max(0, ceil(share * len(self._recent)) - 1)]


class StageSample(NamedTuple):
    """A finished stage, for policies that learn."""

    variant: int
    stage: int
    clocks: int  # position in the clock table that was in effect at its end
    time_ns: int  # its execution time


class FrameSample(NamedTuple):
    """A started frame that ended."""

    met: bool
    response_ns: int
    execution_ns: int


@dataclass(slots=True, eq=False)
class Member:
    """A task of the cohort."""

    table: TaskTable
    deadline_ns: int  # its relative deadline now
    configured: int  # variant set by parameter
    usable: tuple[bool, ...]  # whether each variant is loaded and was not withdrawn
    active: bool = False
    """Whether a frame of it waits or is in flight; else `started` to `stage` are undefined."""
    started: bool = False  # whether that frame has begun
    release_ns: int = 0
    absolute_deadline_ns: int = 0
    stage: int = 0  # index of the running or next stage
    running_since_ns: int | None = None
    """Begin of the running stage; None while none of its stages runs."""
    variant: int = 0  # variant last chosen for it
    lag_ns: int = 0
    """LAG at its last boundary (of the previous frame until this one passes its first); negative =
    behind. Measured from boundary to boundary: waiting counts, as in the paper."""
    stages_done: int = 0
    """Total finished stages and frames: tell a policy with a memory that there is news."""
    frames_done: int = 0
    last_stage: StageSample | None = None
    last_frame: FrameSample | None = None
    last_release_ns: int | None = None
    """Release of its newest frame; the next one is expected a period later."""
    misses_in_a_row: int = 0
    """Frames in a row that did not end as ``met``."""
    slowdown: SlowdownWindow = field(default_factory=SlowdownWindow)
    pace: float = 1.0
    """Observed over profiled execution time of the finished stages of the frame in flight."""


@dataclass(slots=True, eq=False)
class Cohort:
    """Everything that a policy may read."""

    clock_table: ClockTable
    members: list[Member]  # the tasks, in a fixed order
    workers: int  # stages that can run concurrently
    interference: tuple[float, ...]
    """``[n - 1]``: slow-down of a stage when n run concurrently; the last one applies to more."""
    clocks: int  # position in effect
    clocks_target: int  # position requested last
    clocks_at_ns: int = 0  # time when that one takes (or took) effect
    deciding: int = -1
    """Member at whose boundary this is; -1 when a frame ended and none follows."""
    memory: Any = None  # ``Decision.memory`` of the last decision; None at first


@dataclass(frozen=True, slots=True)
class Decision:
    """A policy's choice of variants and clocks."""

    variants: tuple[int, ...]
    """Variant of each member's next stage. Only that of ``cohort.deciding`` is used now; the
    others are decided again at their own boundaries."""
    clocks: int  # position in the clock table
    memory: Any = None  # for ``cohort.memory`` at the next decision; frozen
