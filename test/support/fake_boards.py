# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A board of which everything is known, as a platform, with a clock that runs as its clocks say.

A ``null:`` model on it takes the times of its script, stretched by what the present clocks do to
each stage: a profile of hours takes no time at all, and the truth is known.
"""

from __future__ import annotations

from synthetic_boards import SyntheticBoard

from jetson_dnn_rt.platforms.boards import PowerMode
from jetson_dnn_rt.platforms.clocks import ClockConfiguration, ClockOption, ClockSpace
from jetson_dnn_rt.platforms.platform import Platform, Power

SCRIPT_NS = (1_000_000, 4_000_000, 2_000_000)
MODEL = "null:preprocess=1;inference=4;decode=2"
"""Each stage of it takes another time, by which the clock knows it."""
IDLE_SHARE = 0.4


class FakeBoard(Platform):
    """Writable; `now_ns` and `sleep_until_ns` make it a clock as well.

    `unreachable` maps configurations that it does not give to what it gives instead; `meter` is
    ``energy`` (a counter), ``power`` (readings) or ``none``.
    """

    name = "fake"
    title = "a fake board"

    def __init__(
        self,
        space: ClockSpace,
        *,
        unreachable: dict[int, int] | None = None,
        meter: str = "energy",
    ) -> None:
        self.space = space
        self.writable = True
        self.modes = (
            PowerMode("MAXN"),
            PowerMode(
                "MAXQ", {"gpu": ClockOption(854_000_000), "emc": ClockOption(1_331_000_000)}
            ),
        )
        self.truth = SyntheticBoard(space, stages=3, seed=2)
        self.slowdown = self.truth.times_ns() / self.truth.times_ns()[-1]
        self.power_now = self.truth.power_w()
        self.present = len(space) // 3
        self.applied: list[int] = []
        self.closed = 0
        self._unreachable, self._meter = unreachable or {}, meter
        self._now_ns, self._joules = 0, 0.0
        self._busy = False

    # -- platform ------------------------------------------------------------------------------

    def read(self) -> ClockConfiguration:
        return self.space[self.present]

    def apply(self, index: int) -> ClockConfiguration:
        self.applied.append(index)
        self.present = self._unreachable.get(index, index)
        return self.read()

    def power(self) -> Power:
        if self._meter != "power":
            return Power()
        return Power(float(self.power_now[self.present]) * (1.0 if self._busy else IDLE_SHARE))

    def energy_j(self) -> float | None:
        return self._joules if self._meter == "energy" else None

    def close(self) -> None:
        self.closed += 1

    # -- clock ---------------------------------------------------------------------------------

    def now_ns(self) -> int:
        return self._now_ns

    def sleep_until_ns(self, time_ns: int) -> None:
        length_ns = time_ns - self._now_ns
        self._busy = length_ns in SCRIPT_NS
        watts = self.power_now[self.present]
        if self._busy:
            stage = SCRIPT_NS.index(length_ns)
            length_ns = round(length_ns * self.slowdown[self.present, stage])
        else:
            watts = watts * IDLE_SHARE
        self._joules += watts * length_ns / 1e9
        self._now_ns += length_ns
