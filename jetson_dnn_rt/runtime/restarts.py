"""How often a task whose stages hang is started anew, and what is said when it is given up."""

from __future__ import annotations

MAX_RESTARTS = 3
"""Of a task within `WINDOW_NS`."""

WINDOW_NS = 600_000_000_000

PAUSES_NS = (0, 1_000_000_000, 10_000_000_000)
"""Before the first, second and third restart within the window: once may be a hiccup."""

MAX_HUNG = 8
"""Threads that hang in stages before nothing is restarted any more: each holds a network."""


RETRY_NS = 60_000_000_000
"""Between two times that somebody has a task started anew: anybody may ask."""

MAX_TASK_RETRIED = MAX_HUNG - 2
"""Threads that hang in one task's stages before nobody can have it started anew: the others are
left to the tasks that hang once."""


class Restarts:
    """The restarts of one task, with times on the executor's clock.

    Attributes
    ----------
    hangs : int
        How often a stage of the task hung since the last `forgive`.
    due_ns : int or None
        When the task is to be started anew; None = not at all.
    """

    def __init__(self) -> None:
        self._times_ns: list[int] = []
        self.hangs = 0
        self.due_ns: int | None = None
        self._forgiven_ns: int | None = None

    def plan(self, now_ns: int) -> bool:
        """A stage hung: set `due_ns`; False when it hung too often."""
        self.hangs += 1
        self._times_ns = [t for t in self._times_ns if now_ns - t < WINDOW_NS]
        if len(self._times_ns) >= MAX_RESTARTS:
            self.due_ns = None
            return False
        self.due_ns = now_ns + PAUSES_NS[len(self._times_ns)]
        self._times_ns.append(self.due_ns)
        return True

    def wait_ns(self, now_ns: int) -> int:
        """How long to wait before the next `forgive`."""
        if self._forgiven_ns is None:
            return 0
        return max(0, self._forgiven_ns + RETRY_NS - now_ns)

    def forgive(self, now_ns: int) -> None:
        """Somebody asked for another try: start anew at once, and count from nothing."""
        self._times_ns = []
        self.hangs = 0
        self.due_ns = self._forgiven_ns = now_ns
