# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Ages of a stream's frames by their stamps. What cannot be true counts against the frame."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

logger = logging.getLogger(__name__)

FROZEN = "frozen"
"""Doubt about a frame whose stamp is that of the frame before."""

STAMP = "stamp"
"""Doubt about a frame whose stamp does not tell its age."""

LATEST_NS = 100_000_000
"""Tolerance for the jitter of synchronised clocks and the steps of a simulated one: stamps further
in the future are distrusted, and larger steps back mean that a clock was set. Smaller ones are
frames out of order."""

OLDEST_NS = 10_000_000_000
"""An older stamp is logged: no usual transport takes so long, so a clock is probably off."""

SETTLE_NS = 1_000_000_000
"""Time in which the offset of an unsynchronised clock is learned."""

DRIFT_PPM = 100
"""How fast the smallest offset may grow; quartz clocks differ by less."""

WINDOW_NS = 2_000_000_000
FALLING_WINDOWS = 8
STEADY_WINDOWS = 4
GAIN_PPM = 1000
"""The stamps gain on the clock once the smallest offset has fallen by more than `GAIN_PPM` in each
of `FALLING_WINDOWS` windows in a row, until it has not in `STEADY_WINDOWS`. Meanwhile a growing
delay would be hidden."""

ZERO_FIX = (
    "the driver has to stamp its images: results have their stamps, so subscribers that take an "
    "age from them see that of 1970"
)


class StampClock:
    """Converts the stamps of a stream to capture times on the steady clock.

    A stamp is in the clock of its source. *Offset* is the node's clock, system or simulated time,
    minus the stamp: the frame's delay plus the difference of the clocks, which cannot be told
    apart.

    * Synchronised: the offset is the age, and a stamp in the future shows by how much the source's
      clock is ahead: ages count from the smallest offset, if that is below 0.
    * Not synchronised: ages count from the smallest offset seen. That is learned anew after stamps
      went back, as the source's clock was set, or a recording started again; a step of the
      system's clock does not matter.

    The smallest offset may grow by `DRIFT_PPM` only, so that a delay is not learned as an offset.
    `name` is that of the stream in the log, where each kind of fault appears once; `now_ns` reads
    the node's clock, `simulated` says whether that follows ``use_sim_time``.
    """

    def __init__(
        self,
        name: str,
        now_ns: Callable[[], int],
        *,
        synchronised: bool = True,
        simulated: Callable[[], bool] = lambda: False,
    ) -> None:
        self._name, self._now_ns, self._simulated = name, now_ns, simulated
        self._synchronised = synchronised
        self._said: set[str] = set()
        self._before: tuple[int, int, int] | None = None  # stamp, clock, arrival
        self._least_ns: int | None = None
        self._settled_ns = 0  # when the offset has been learned
        self._learns_anew = False
        self._gain = _Gain()
        self.distrusted = 0
        self.fault = ""
        """Fault of the last stamp that had one, with the fix."""
        self.offset_ns: int | None = None
        """Node's clock minus the last stamp; None of one that is no time."""

    def judge(self, stamp_ns: int, arrival_ns: int) -> tuple[int, str]:
        """Return the capture time of a frame that arrives now, and the doubt about it.

        The capture time is steady and never after `arrival_ns`; that where the age is not known.
        The doubt is empty, `FROZEN` or `STAMP`.
        """
        if not stamp_ns:
            self.offset_ns = None
            return arrival_ns, self._distrust(STAMP, "are zero or malformed", ZERO_FIX)
        follows_clock = self._synchronised or self._simulated()
        now_ns = self._now_ns() if follows_clock else arrival_ns
        offset_ns = self.offset_ns = now_ns - stamp_ns
        step_ns = elapsed_ns = 1
        if self._before is None:
            self._settled_ns = arrival_ns + SETTLE_NS
        else:
            last_stamp_ns, last_now_ns, last_arrival_ns = self._before
            step_ns, moved_ns = stamp_ns - last_stamp_ns, now_ns - last_now_ns
            elapsed_ns = arrival_ns - last_arrival_ns
            set_anew = self._synchronised and abs(moved_ns - elapsed_ns) > LATEST_NS
            if set_anew or step_ns < -LATEST_NS:
                self._least_ns = None
                self._learn_anew(arrival_ns)
        self._before = (stamp_ns, now_ns, arrival_ns)
        expected_ns = self._expect(offset_ns, elapsed_ns)
        self._least_ns = min(expected_ns, offset_ns)
        gains = self._gain.observe(offset_ns, arrival_ns)
        doubt = self._doubt(step_ns, offset_ns - expected_ns, arrival_ns, gains=gains)
        return arrival_ns - (offset_ns - self._least_ns), doubt

    @property
    def offset_s(self) -> float:
        """`offset_ns` in seconds; NaN where there is none."""
        return math.nan if self.offset_ns is None else self.offset_ns / 1e9

    def describe(self) -> dict[str, object]:
        """Values for diagnostics."""
        return {
            "stamp_clock": "synchronised" if self._synchronised else "unsynchronised",
            "distrusted_stamps": self.distrusted,
            "stamp_offset_ms": "N/A" if self.offset_ns is None else 1e3 * self.offset_s,
            "stamp_fault": self.fault or "none",
        }

    def _expect(self, offset_ns: int, elapsed_ns: int) -> int:
        """Smallest offset that this one is compared with."""
        if self._least_ns is None:
            return 0 if self._synchronised else offset_ns
        grown_ns = self._least_ns + elapsed_ns * DRIFT_PPM // 1_000_000
        return min(0, grown_ns) if self._synchronised else grown_ns

    def _learn_anew(self, arrival_ns: int) -> None:
        self._gain = _Gain()
        self._settled_ns = arrival_ns + SETTLE_NS
        self._learns_anew = not self._synchronised

    def _doubt(self, step_ns: int, beyond_ns: int, arrival_ns: int, *, gains: bool) -> str:
        """Doubt about a frame; `beyond_ns` is its offset from the expected one."""
        assert self.offset_ns is not None
        if not step_ns:
            return self._distrust(
                FROZEN, "repeat", "the source is frozen, or sends its images more than once"
            )
        if step_ns < 0:
            return self._distrust(
                STAMP,
                "go backwards",
                "two publishers on one topic, a recording that starts again, or a clock that was "
                "set back",
            )
        settling = arrival_ns < self._settled_ns
        if settling and self._learns_anew:
            return self._distrust(STAMP, "have a new offset", "it is known in a second")
        if self._synchronised and self.offset_ns < -LATEST_NS:
            return self._distrust(STAMP, "are in the future", self._find_fix())
        if not self._synchronised and beyond_ns < -LATEST_NS and not settling:
            self._learn_anew(arrival_ns)
            return self._distrust(STAMP, "jump ahead", "the source's clock was set")
        if gains:
            return self._distrust(
                STAMP, "gain on this machine's clock", "that clock cannot be used for ages"
            )
        if self._synchronised and self.offset_ns > OLDEST_NS:
            self._say("are old", self._find_fix())
        return ""

    def _find_fix(self) -> str:
        if self._simulated():
            return (
                "use_sim_time is set: /clock and the images have to come from one recording, or "
                "set stamp_clock to unsynchronised"
            )
        return (
            "synchronise the source's clock; of a bag that is played set use_sim_time and play it "
            "with --clock; or set stamp_clock to unsynchronised, if the offset is constant"
        )

    def _distrust(self, doubt: str, what: str, fix: str) -> str:
        self.distrusted += 1
        self._say(what, fix)
        return doubt

    def _say(self, what: str, fix: str) -> None:
        self.fault = f"{what}; {fix}"
        if what in self._said:
            return
        self._said.add(what)
        offset = "" if self.offset_ns is None else f" (clock minus stamp: {self.offset_s:.3f} s)"
        logger.warning(
            "%s: stamps %s%s: where max_age_ms is set, such frames are skipped; %s",
            self._name, what, offset, fix,
        )  # fmt: skip


class _Gain:
    """Detects offsets that fall steadily, which would hide a growing delay."""

    def __init__(self) -> None:
        self._begin_ns: int | None = None
        self._least_ns = self._last_ns = 0
        self._last_begin_ns: int | None = None
        self._falls = self._rests = 0
        self._gains = False

    def observe(self, offset_ns: int, arrival_ns: int) -> bool:
        if self._begin_ns is None:
            self._begin_ns, self._least_ns = arrival_ns, offset_ns
        elif arrival_ns - self._begin_ns >= WINDOW_NS:
            self._end_window()
            self._begin_ns, self._least_ns = arrival_ns, offset_ns
        else:
            self._least_ns = min(self._least_ns, offset_ns)
        return self._gains

    def _end_window(self) -> None:
        begin_ns = self._begin_ns
        assert begin_ns is not None
        if self._last_begin_ns is not None:
            usual_ns = (begin_ns - self._last_begin_ns) * GAIN_PPM // 1_000_000
            falls = self._least_ns < self._last_ns - usual_ns
            self._falls = self._falls + 1 if falls else 0
            self._rests = 0 if falls else self._rests + 1
            if self._falls >= FALLING_WINDOWS:
                self._gains = True
            elif self._rests >= STEADY_WINDOWS:
                self._gains = False
        self._last_begin_ns, self._last_ns = begin_ns, self._least_ns
