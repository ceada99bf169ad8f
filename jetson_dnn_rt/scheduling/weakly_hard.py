# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Weakly hard limits: at least m of any k consecutive frames of a task are met.

Bernat, Burns and Llamosi, "Weakly hard real-time systems", IEEE Transactions on Computers 50(4),
2001. The distance to failure is that of Hamdaoui and Ramanathan, "A dynamic priority assignment
technique for streams with (m, k)-firm deadlines", the same journal, 44(12), 1995.

Every frame that was released counts, met or not met: a frame that is superseded, stale, not an
image, or that comes while the task is restarted has no result either. Frames that never reach the
engine do not count. They are consecutive in the order of their release; frames before the first
one count as met, so that a window counts as soon as it can no longer hold. The history begins
anew when the task is added again (its node is activated).
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_AHEAD = 1000
"""Frames that may end before an older one does; with more, the older one counts as not met."""

MOST_DOUBLINGS = 3
"""A frame whose task is one miss from its limit is worth eight ordinary ones."""


@dataclass(frozen=True, slots=True)
class WeaklyHardView:
    """A limit at one moment; see `WeaklyHard`."""

    least: int
    frames: int
    distance: int
    violations: int

    def __str__(self) -> str:
        return f"met_of [{self.least}, {self.frames}]"

    def to_dict(self) -> dict[str, int]:
        """The limit and its violations for JSON."""
        return {"least": self.least, "frames": self.frames, "violations": self.violations}


class WeaklyHard:
    """The last outcomes of a task that has a limit: at least `least` of `frames` are met.

    `distance` is the number of further misses in a row after which fewer than `least` of the last
    `frames` were met; 0 = that is so now. `violations` counts the frames at whose end it was 0,
    each of them once: the windows that were violated, by their last frames.
    """

    def __init__(self, least: int, frames: int) -> None:
        if not 1 <= least <= frames:
            raise ValueError(f"least must be in [1, {frames}], the number of frames: {least}")
        self.least = least
        self.frames = frames
        self.violations = 0
        self.distance = frames - least + 1
        self._window = (1 << frames) - 1  # met frames, the last one in the lowest bit
        self._next = 1  # number of the oldest frame that has not ended
        self._ahead = 0  # frames from that one on that have ended: they wait for their turn
        self._met_ahead = 0  # of these, those that were met

    def end(self, number: int, met: bool) -> None:
        """Count a frame that ended: number 1, 2, ... in the order of release."""
        if number < self._next:
            return  # it counted as not met, see `MOST_AHEAD`
        place = 1 << (number - self._next)
        self._ahead |= place
        if met:
            self._met_ahead |= place
        while self._ahead & 1 or self._ahead >> MOST_AHEAD:
            self._enter(self._met_ahead & 1)
            self._next += 1
            self._ahead >>= 1
            self._met_ahead >>= 1

    def view(self) -> WeaklyHardView:
        """The limit as it is now."""
        return WeaklyHardView(self.least, self.frames, self.distance, self.violations)

    def _enter(self, met: int) -> None:
        self._window = (self._window << 1 | met) & ((1 << self.frames) - 1)
        # It holds until the `least`-th last met frame leaves the window.
        rest = self._window
        for _ in range(self.least - 1):
            rest &= rest - 1
        age = (rest & -rest).bit_length()  # from 1 for the last frame; 0 = fewer were met
        self.distance = self.frames - age + 1 if age else 0
        if not age:
            self.violations += 1


def worth(distance: int) -> float:
    """Factor on the worth of a task's next frame: the nearer to its limit, the higher.

    1 as long as more than `MOST_DOUBLINGS` misses in a row are allowed, twice as much for each
    fewer. A limit that is violated counts as one that is a miss away: a task that cannot keep its
    limit does not take the frames of those that can.
    """
    return float(1 << max(0, MOST_DOUBLINGS + 1 - max(1, distance)))
