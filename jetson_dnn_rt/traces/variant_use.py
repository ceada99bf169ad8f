# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Which variants a task's network ran in, for how long, and from which to which it switched."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from jetson_dnn_rt.tasks import SHARED_STAGES, JobRecord

Switch = tuple[str, str]
"""The variant before and the one after."""


@dataclass(slots=True)
class VariantUse:
    """Execution times of a task's network by variant, and its switches inside and between frames.

    Records are added in the order in which the jobs end. `configured` is the variant that the task
    is configured with, where that is known: a coordinator that begins in another has switched.
    """

    configured: str = ""
    first: str = field(default="", init=False)  # that the network began in; empty = no frame ran
    time_ns: Counter[str] = field(default_factory=Counter, init=False)
    switches: Counter[Switch] = field(default_factory=Counter, init=False)
    _last: str = field(init=False)

    def __post_init__(self) -> None:
        self._last = self.configured

    def add(self, record: JobRecord) -> list[Switch]:
        """Add a job; returns the switches that it is the first to make."""
        first = []
        for stage in record.stages:
            if stage.name in SHARED_STAGES:
                continue
            self.first = self.first or stage.variant
            self.time_ns[stage.variant] += stage.execution_time_ns
            if self._last not in ("", stage.variant):
                switch = self._last, stage.variant
                if switch not in self.switches:
                    first.append(switch)
                self.switches[switch] += 1
            self._last = stage.variant
        return first

    @property
    def time_shares(self) -> dict[str, float]:
        """Share of each variant in the execution time, the largest first."""
        total_ns = sum(self.time_ns.values())
        return {variant: time / total_ns for variant, time in self.time_ns.most_common() if time}
