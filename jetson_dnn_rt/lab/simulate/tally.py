# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Results of simulated runs: misses with their confidence, accuracy, energy, responses."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jetson_dnn_rt.lab.simulate.simulation import SimulatedFrame
from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.traces.summary import order_statistic, summarize_ms

Z95 = 1.959963984540054  # quantile of the normal distribution for 95 %, two-sided

T95 = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip
"""The same of Student's t with 1, 2, ... degrees of freedom; beyond them see `student`."""

_COMPLETED = (Outcome.MET, Outcome.LATE)


@dataclass(slots=True)
class TaskTally:
    """Counts of one task."""

    released: int = 0
    met: int = 0
    accuracy_sum: float = 0.0
    energy_j: float = 0.0  # while its stages ran, divided among the stages side by side
    # Sequence of each frame and whether it was met, in the order of completion.
    outcomes: list[tuple[int, bool]] = field(default_factory=list)
    response_ns: array[int] = field(default_factory=lambda: array("q"))

    def add(self, frame: SimulatedFrame) -> None:
        """Count a frame."""
        record = frame.record
        met = record.outcome is Outcome.MET
        self.outcomes.append((record.sequence, met))
        self.released += 1
        self.energy_j += frame.energy_j
        if met:
            self.met += 1
            self.accuracy_sum += frame.accuracy
        if record.outcome in _COMPLETED:
            self.response_ns.append(record.response_time_ns)

    @property
    def max_burst(self) -> int:
        """Most frames in a row, in the order of the camera, that were not met."""
        longest = burst = 0
        for _, met in sorted(self.outcomes):
            burst = 0 if met else burst + 1
            longest = max(longest, burst)
        return longest


@dataclass(slots=True)
class Tally:
    """Counts of one run; `merge` combines several runs of one seed."""

    tasks: dict[str, TaskTally] = field(default_factory=dict)
    energy_j: float = 0.0  # of the board over the whole run, idle time included
    decision_ns: array[int] = field(default_factory=lambda: array("q"))  # real, of the policy
    wall_s: float = 0.0  # real time of the simulation
    switches: int = 0  # how often a frame continued in another variant

    def add(self, frame: SimulatedFrame) -> None:
        """Count a frame."""
        task = self.tasks.get(frame.record.task)
        if task is None:
            task = self.tasks[frame.record.task] = TaskTally()
        task.add(frame)

    def merge(self, other: Tally, prefix: str = "") -> None:
        """Add a run of other tasks; a name that both have gets the prefix."""
        for name, task in other.tasks.items():
            if name in self.tasks and prefix + name in self.tasks:
                raise ValueError(f"task {prefix + name!r} is counted already")
            self.tasks[prefix + name if name in self.tasks else name] = task
        self.energy_j += other.energy_j
        self.decision_ns.extend(other.decision_ns)
        self.wall_s += other.wall_s
        self.switches += other.switches

    @property
    def released(self) -> int:
        """Frames that arrived."""
        return sum(task.released for task in self.tasks.values())

    @property
    def met(self) -> int:
        """Frames with a result in time."""
        return sum(task.met for task in self.tasks.values())

    @property
    def miss_ratio(self) -> float:
        """Share of the frames that were not met: late, skipped, aborted or superseded."""
        return 1.0 - self.met / self.released if self.released else 0.0

    @property
    def accuracy(self) -> float | None:
        """Mean accuracy of the frames that were met; None without any."""
        total = sum(task.accuracy_sum for task in self.tasks.values())
        return total / self.met if self.met else None

    def response_ms(self, share: float) -> float:
        """Response time that a share of all frames keeps: those without a result never end."""
        times = sorted(time for task in self.tasks.values() for time in task.response_ns)
        rank = math.ceil(share * self.released)
        return times[rank - 1] / 1e6 if 0 < rank <= len(times) else math.inf


def summarize(tallies: Sequence[Tally]) -> dict[str, Any]:
    """Make the JSON of ``jetson-dnn-rt simulate`` from one tally per seed.

    Ratios, accuracy and responses are those of all frames together; ``energy_j`` is the mean of
    the seeds, ``max_burst`` the most frames in a row that one task missed in any of them.
    """
    if not tallies:
        raise ValueError("tallies must hold at least one")
    whole = Tally()
    for seed, tally in enumerate(tallies):
        whole.merge(tally, f"{seed}/")
    released, met, tasks = whole.released, whole.met, whole.tasks.values()
    decisions = sorted(whole.decision_ns)
    return {
        "miss_ratio": whole.miss_ratio if released else None,
        "miss_ratio_ci95": miss_ratio_ci95(tallies),
        "max_burst": max((task.max_burst for task in tasks), default=0),
        "accuracy": whole.accuracy,
        "energy_j": whole.energy_j / len(tallies),
        "energy_per_met_frame_j": whole.energy_j / met if met else None,
        "response_ms": summarize_ms(time for task in tasks for time in task.response_ns),
        "decision_us": {
            name: order_statistic(decisions, share) / 1e3 if decisions else None
            for name, share in (("p50", 0.50), ("p99", 0.99))
        },
        "frames_per_s": released / whole.wall_s if whole.wall_s else None,
    }


def miss_ratio_ci95(tallies: Sequence[Tally]) -> tuple[float, float] | None:
    """95 % confidence interval of the miss ratio; None without a frame.

    With several seeds: Student's t over the seeds, since the misses of one seed are correlated.
    With one seed, or if all agree: Wilson's score interval, which treats frames as independent
    (Wilson, JASA 1927).
    """
    released = sum(tally.released for tally in tallies)
    if not released:
        return None
    ratios = [tally.miss_ratio for tally in tallies if tally.released]
    mean = sum(ratios) / len(ratios)
    spread = sum((ratio - mean) ** 2 for ratio in ratios)
    if len(ratios) == 1 or spread == 0.0:
        return wilson(released - sum(tally.met for tally in tallies), released)
    error = math.sqrt(spread / (len(ratios) - 1) / len(ratios))
    half = student(len(ratios) - 1) * error
    return max(0.0, mean - half), min(1.0, mean + half)


def student(degrees: int) -> float:
    """Quantile of Student's t for 95 %, two-sided.

    From the table, beyond it by the first terms of its expansion around the normal quantile
    (Abramowitz & Stegun 26.7.5).
    """
    if degrees <= len(T95):
        return T95[degrees - 1]
    return Z95 + (Z95**3 + Z95) / (4 * degrees)


def wilson(count: int, total: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's score interval of a share."""
    share = count / total
    scale = 1.0 + z * z / total
    centre = (share + z * z / (2 * total)) / scale
    half = z / scale * math.sqrt(share * (1.0 - share) / total + z * z / (4 * total * total))
    low = max(0.0, centre - half) if count else 0.0
    high = min(1.0, centre + half) if count < total else 1.0
    return low, high
