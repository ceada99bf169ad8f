# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""How many of the messages that are published arrive, as far as the middleware tells."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WINDOW_NS = 10_000_000_000
"""Time over which the rates are taken."""

LOST_SHARE = 0.01
"""Share of the published messages above which a loss is a warning."""

MOST_LOST_SHARE = 0.5
"""Share above which it is an error."""

MOST_PUBLISHERS = 32
"""Publishers whose sequence numbers are remembered: a camera that restarts is a new publisher."""

_NAMELESS = b""
"""The publisher where rclpy does not tell it."""


@dataclass(frozen=True, slots=True)
class LossSnapshot:
    """Messages that arrived and that did not: since the start, and in the last `recent_s`."""

    arrived: int = 0
    lost: int = 0
    recent_arrived: int = 0
    recent_lost: int = 0
    recent_s: float = 0.0

    @property
    def lost_share(self) -> float:
        """Share of the recent messages that did not arrive."""
        return self.recent_lost / max(1, self.recent_arrived + self.recent_lost)

    @property
    def arriving_hz(self) -> float:
        """Rate at which messages arrived lately."""
        return self.recent_arrived / self.recent_s if self.recent_s else 0.0

    @property
    def published_hz(self) -> float:
        """Rate at which messages were published lately."""
        return (self.recent_arrived + self.recent_lost) / self.recent_s if self.recent_s else 0.0


class Losses:
    """Counts messages and gaps. All but `snapshot` is for the ROS thread only.

    Two counters miss different losses, so the larger one is taken. Gaps in a publisher's sequence
    numbers include messages that a full queue dropped, which the middleware does not report, but
    show nothing while no message arrives. The middleware's event "message lost" comes then, too.
    """

    def __init__(self) -> None:
        self._arrived = self._gaps = self._events = 0
        self._last: dict[bytes, int] = {}
        self._marks: deque[tuple[int, int, int]] = deque()

    @property
    def lost(self) -> int:
        """Messages that did not arrive."""
        return max(self._gaps, self._events)

    def observe(self, info: Mapping[str, Any] | None, *, alone: bool = False) -> bool | None:
        """Count a message; returns False for one that is not counted, as its number came before.

        `info` is the message info of rclpy, None where this rclpy has none. Returns None for a
        message that is counted without being told from others: it has no number, or, as in Jazzy,
        not its publisher. `alone` says that there is one publisher and one subscription, so that
        such numbers have gaps as well.
        """
        number = None if info is None else info.get("publication_sequence_number")
        publisher = None if info is None else info.get("publisher_gid")
        if number is None or publisher is None:
            last = self._last.pop(_NAMELESS, None)
            if number is not None and alone:
                if last is not None and number > last:
                    self._gaps += number - last - 1
                self._last[_NAMELESS] = number
            self._arrived += 1
            return None
        key = publisher["data"]
        last = self._last.pop(key, None)
        if last is not None and number <= last:
            self._last[key] = last
            return False
        if last is not None:
            self._gaps += number - last - 1
        elif len(self._last) >= MOST_PUBLISHERS:
            del self._last[next(iter(self._last))]  # silent for longest
        self._last[key] = number
        self._arrived += 1
        return True

    def add_events(self, count: int) -> None:
        """Add losses that the middleware has reported."""
        self._events += count

    def mark(self, now_ns: int) -> None:
        """Take the counts for the rates; called at least once a second."""
        marks = self._marks
        marks.append((now_ns, self._arrived, self.lost))
        while len(marks) > 2 and now_ns - marks[1][0] >= WINDOW_NS:
            marks.popleft()

    def snapshot(self) -> LossSnapshot:
        """Present figures."""
        marks = tuple(self._marks)
        if not marks:
            return LossSnapshot(self._arrived, self.lost)
        (first_ns, arrived, lost), (last_ns, arrived_now, lost_now) = marks[0], marks[-1]
        return LossSnapshot(
            self._arrived,
            self.lost,
            arrived_now - arrived,
            lost_now - lost,
            (last_ns - first_ns) / 1e9,
        )
