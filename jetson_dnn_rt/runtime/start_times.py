# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""How long a start takes, part by part, up to the first result."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

LEAST_NS = 5_000_000
"""Parts that take less are not told."""


def find_birth_ns() -> int:
    """When this process was started, on the steady clock; Linux tells it to 10 ms."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    born_ns = int(fields[19]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")  # since boot
    return time.monotonic_ns() - (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - born_ns)


class StartTimes:
    """The parts of a start: each begins where the one before ends.

    `begin_ns` is on the clock that `now_ns` reads, by default now.
    """

    def __init__(
        self, begin_ns: int | None = None, now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._now_ns = now_ns
        self._begin_ns = self._last_ns = now_ns() if begin_ns is None else begin_ns
        self._parts_ns: dict[str, int] = {}
        self._details: dict[str, str] = {}

    def end(
        self, part: str, details_ns: Mapping[str, int] | None = None, at_ns: int | None = None
    ) -> None:
        """End a part, now or at a time that has passed; one of the same name is added to it.

        `details_ns` are times within it, by name, for people.
        """
        now_ns = max(self._last_ns, self._now_ns() if at_ns is None else at_ns)
        self._parts_ns[part] = self._parts_ns.get(part, 0) + now_ns - self._last_ns
        self._last_ns = now_ns
        if details_ns:
            self._details[part] = ", ".join(
                f"{name} {time_ns / 1e9:.2f}" for name, time_ns in details_ns.items()
            )

    def __str__(self) -> str:
        parts = (
            f"{part} {time_ns / 1e9:.2f}"
            + (f" ({self._details[part]})" if part in self._details else "")
            for part, time_ns in self._parts_ns.items()
            if time_ns >= LEAST_NS
        )
        seconds = (self._last_ns - self._begin_ns) / 1e9
        return f"first result after {seconds:.2f} s: {', '.join(parts)}"
