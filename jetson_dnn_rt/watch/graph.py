# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What was seen of a running graph: each task's last minute, the coordinators, the warnings.

Fed by any thread with the texts of messages (`jetson_dnn_rt.watch.subscriber`), read as immutable
views. Nothing in a message is trusted: one with a value that cannot be is dropped and counted, and
whatever is sent, the memory is bounded.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.traces.summary import has_quantile

OUTCOMES = tuple(outcome.value for outcome in Outcome)
"""Names of the outcomes, in the order of their numbers in `FRAME`."""

FINISHED = (OUTCOMES.index(Outcome.MET.value), OUTCOMES.index(Outcome.LATE.value))
"""Numbers of the outcomes with a response time."""

MISSES = tuple(n for n, o in enumerate(Outcome) if o not in (Outcome.MET, Outcome.SUPERSEDED))
"""Numbers of the outcomes that are deadline misses."""

FRAME = np.dtype(
    [
        ("arrival_ns", np.int64),  # of the message, on our steady clock: stamps may be simulated
        ("stamp_ns", np.int64),  # of the frame, 0 = none
        ("response_ms", np.float32),  # NaN = not known
        ("deadline_ms", np.float32),  # NaN = not known
        ("outcome", np.uint8),  # index into `OUTCOMES`
        ("variant", np.uint8),  # index into `TaskView.variants`
    ]
)
"""A frame that ended."""

WINDOW_NS = 60_000_000_000
RATE_WINDOW_NS = 5_000_000_000

STATUS_AGE_NS = 5_000_000_000
"""Statuses come once a second; an older one says nothing about now."""

MOST_TASKS = 64
MOST_FRAMES = 60_000
"""Kept for a task, the newest: a minute at 1000 Hz."""
MOST_VARIANTS = 255
"""Of a task, so that a number of a byte is left for `OTHERS`."""
MOST_STATUSES = 256
LONGEST_TEXT = 500
LARGEST_MS = 1e9

OTHERS = "others"
"""Name under which all variants above `MOST_VARIANTS` are counted together."""

STATUS_KINDS = (
    *("task_status", "processing_time_status", "drift_status"),
    *("camera_status", "process_status", "policy_status"),
    *("name_status", "perception_status"),
)
"""Statuses of this package's nodes on ``/diagnostics``: ``<node>: <kind>``."""

POLICY, TASK = "policy_status", "task_status"

LEVELS = ("OK", "WARN", "ERROR", "STALE")


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task at one moment; figures over the last minute unless they say more, NaN = not known."""

    name: str  # of its node, fully qualified
    present: bool  # it has a publisher now
    age_s: float  # since its last frame
    rate_hz: float  # frames that ended, over the last seconds
    counts: Mapping[str, int]  # by outcome
    totals: Mapping[str, int]  # by outcome, since it was first seen
    p50_ms: float  # of the response time of finished frames, like the next two
    p99_ms: float  # NaN with less than 100 of them: it would be their maximum
    hwm_ms: float  # the longest since it was first seen
    response_ms: float  # of the last finished frame
    deadline_ms: float  # the last
    budget_ms: float  # the last
    variant: str  # the last
    violations: int | None
    """Of its weakly hard limit, since its node was activated; None = it has none, or not known."""
    frames: npt.NDArray[Any]  # of `FRAME`, oldest first, read-only
    variants: tuple[str, ...]  # all that were seen

    @property
    def miss_ratio(self) -> float:
        """Deadline misses by all frames of the last minute; NaN without a frame."""
        frames = sum(self.counts.values())
        misses = sum(self.counts[OUTCOMES[n]] for n in MISSES)
        return misses / frames if frames else math.nan

    def outcomes_per_second(self, now_ns: int) -> npt.NDArray[np.int64]:
        """Frames by second and outcome; the last row is the second that ends `now_ns`."""
        rows = WINDOW_NS // 10**9
        table = np.zeros((rows, len(OUTCOMES)), np.int64)
        ages = (now_ns - self.frames["arrival_ns"]) // 10**9
        inside = (ages >= 0) & (ages < rows)
        np.add.at(table, (rows - 1 - ages[inside], self.frames["outcome"][inside]), 1)
        return table


@dataclass(frozen=True, slots=True)
class StatusView:
    """The latest status of a node, from ``/diagnostics``."""

    name: str  # <node>: <kind>
    level: str  # one of `LEVELS`
    message: str
    age_s: float


@dataclass(frozen=True, slots=True)
class CoordinatorView:
    """A coordinator's last report; empty texts and NaN where it says nothing."""

    name: str
    level: str
    message: str
    age_s: float
    policy: str
    clocks: str
    power_w: float
    decisions_per_s: float
    choices: Mapping[str, str]  # the variant of each task, by the coordinator's name for it


@dataclass(frozen=True, slots=True)
class GraphView:
    """Everything at one moment."""

    at_ns: int  # our steady clock
    tasks: tuple[TaskView, ...]  # by name
    coordinators: tuple[CoordinatorView, ...]  # by name
    warnings: tuple[StatusView, ...]  # statuses that are not OK, by name
    dropped: Mapping[str, int]  # messages that were not used, by reason


class Graph:
    """Tasks, coordinators and warnings that were seen; every method may be called by any thread.

    `now_ns` is the steady clock.
    """

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._tasks: dict[str, _Task] = {}
        self._statuses: dict[str, _Status] = {}
        self._dropped: Counter[str] = Counter()

    def add_frame(self, task: str, values: Mapping[str, str], stamp_ns: int = 0) -> None:
        """Take the timing message of a frame of the node `task`."""
        with self._lock:
            try:
                outcome = values.get("outcome", "")
                if outcome not in OUTCOMES:
                    raise _UnusableError("outcome")
                figures = {key: _read_ms(values, key) for key in _FIGURES}
                variant = _read_name("variant", values.get("variant", ""))
                # Last: a message that cannot be used makes no task.
                found = self._find(task)
                found.add(self._now_ns(), stamp_ns, OUTCOMES.index(outcome), variant, figures)
            except _UnusableError as error:
                self._dropped[str(error)] += 1

    def add_status(self, name: str, level: int, message: str, values: Mapping[str, str]) -> None:
        """Take a status of ``/diagnostics``; those of other packages are passed over."""
        if name.rpartition(": ")[2] not in STATUS_KINDS:
            return
        now_ns = self._now_ns()
        with self._lock:
            try:
                if not 0 <= level < len(LEVELS):
                    raise _UnusableError("level")
                self._forget_statuses(now_ns)
                if name not in self._statuses and len(self._statuses) >= MOST_STATUSES:
                    raise _UnusableError("too many statuses")
                self._statuses[_read_name("name", name)] = _Status(now_ns, level, message, values)
            except _UnusableError as error:
                self._dropped[str(error)] += 1

    def drop(self, reason: str) -> None:
        """Count a message that was not used; reasons are few."""
        with self._lock:
            self._dropped[reason] += 1

    def set_present(self, tasks: Collection[str]) -> set[str]:
        """Say which tasks have a publisher now: new ones are added, others are gone.

        Returns all that are kept, with those that are gone; at most `MOST_TASKS`.
        """
        with self._lock:
            for name, task in self._tasks.items():
                task.present = name in tasks
            for name in sorted(set(tasks) - set(self._tasks)):
                try:
                    self._find(name)
                except _UnusableError as error:
                    self._dropped[str(error)] += 1
            return set(self._tasks)

    def snapshot(self) -> GraphView:
        """Everything as it is now."""
        with self._lock:
            now_ns = self._now_ns()
            self._forget_statuses(now_ns)
            statuses = sorted(self._statuses.items())
            return GraphView(
                at_ns=now_ns,
                tasks=tuple(
                    task.view(name, now_ns, self._statuses.get(f"{name}: {TASK}"))
                    for name, task in sorted(self._tasks.items())
                ),
                coordinators=tuple(
                    status.coordinator(name.rpartition(": ")[0], now_ns)
                    for name, status in statuses if name.endswith(f": {POLICY}")
                ),
                warnings=tuple(
                    StatusView(name, LEVELS[status.level], status.message, status.age_s(now_ns))
                    for name, status in statuses if status.level > 0
                ),
                dropped=dict(self._dropped),
            )  # fmt: skip

    def _find(self, name: str) -> _Task:
        """Find or make a task; for want of room the one that is gone the longest makes it."""
        if (found := self._tasks.get(name)) is not None:
            return found
        if len(self._tasks) >= MOST_TASKS:
            gone = [n for n, task in self._tasks.items() if not task.present]
            if not gone:
                raise _UnusableError("too many tasks")
            del self._tasks[min(gone, key=lambda n: self._tasks[n].last_ns)]
        return self._tasks.setdefault(name, _Task())

    def _forget_statuses(self, now_ns: int) -> None:
        self._statuses = {
            name: s for name, s in self._statuses.items() if now_ns - s.at_ns < STATUS_AGE_NS
        }


_FIGURES = ("response_ms", "deadline_ms", "budget_ms")


class _UnusableError(Exception):
    """A message that is not used; its text is the reason, one of few."""


class _Status:
    def __init__(self, at_ns: int, level: int, message: str, values: Mapping[str, str]) -> None:
        self.at_ns, self.level, self.message = at_ns, level, _clean(message)
        self._values = {_clean(key): _clean(value) for key, value in values.items()}

    def age_s(self, now_ns: int) -> float:
        return (now_ns - self.at_ns) / 1e9

    @property
    def violations(self) -> int | None:
        """Of a task's weakly hard limit; None = it has none, or what was sent is no count."""
        text = self._values.get("met_of_violations", "")
        return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None

    def coordinator(self, name: str, now_ns: int) -> CoordinatorView:
        choices = {
            key.removesuffix(".variant"): value
            for key, value in self._values.items() if key.endswith(".variant")
        }  # fmt: skip
        return CoordinatorView(
            name,
            LEVELS[self.level],
            self.message,
            self.age_s(now_ns),
            policy=self._values.get("policy", ""),
            clocks=self._values.get("clocks", ""),
            power_w=_float(self._values.get("power_w", "")),
            decisions_per_s=_float(self._values.get("decisions_per_s", "")),
            choices=choices,
        )


class _Task:
    """A task's frames, the newest at the end of a buffer that is compacted when it is full."""

    def __init__(self) -> None:
        self.present = True
        self.last_ns = 0
        self._first_ns = 0
        self._frames = np.empty(1024, FRAME)
        self._end = 0
        self._variants: list[str] = []
        self._totals = [0] * len(OUTCOMES)
        self._hwm_ms = self._response_ms = math.nan
        self._deadline_ms = self._budget_ms = math.nan
        self._variant = ""

    def add(
        self, now_ns: int, stamp_ns: int, outcome: int, variant: str, figures: Mapping[str, float]
    ) -> None:
        response_ms, deadline_ms = figures["response_ms"], figures["deadline_ms"]
        number = self._number(variant)
        self._first_ns = self._first_ns or now_ns
        self.last_ns = now_ns
        self._totals[outcome] += 1
        if outcome in FINISHED and not math.isnan(response_ms):
            self._response_ms = response_ms
            self._hwm_ms = max(response_ms, self._hwm_ms)  # the second is returned for NaN
        # Of the last that says so: a frame that was skipped may not.
        if not math.isnan(deadline_ms):
            self._deadline_ms = deadline_ms
        if not math.isnan(figures["budget_ms"]):
            self._budget_ms = figures["budget_ms"]
        self._variant = variant or self._variant
        if self._end == len(self._frames):
            self._make_room(now_ns)
        row = (now_ns, stamp_ns, response_ms, deadline_ms, outcome, number)
        self._frames[self._end] = row
        self._end += 1

    def view(self, name: str, now_ns: int, status: _Status | None) -> TaskView:
        frames = self._frames[self._begin(now_ns) : self._end].copy()
        frames.flags.writeable = False
        finished = np.isin(frames["outcome"], FINISHED)
        times_ms = np.sort(frames["response_ms"][finished & ~np.isnan(frames["response_ms"])])
        counts = np.bincount(frames["outcome"], minlength=len(OUTCOMES)).tolist()
        return TaskView(
            name,
            self.present,
            age_s=(now_ns - self.last_ns) / 1e9 if self.last_ns else math.nan,
            rate_hz=self._rate_hz(frames["arrival_ns"], now_ns),
            counts=dict(zip(OUTCOMES, counts, strict=True)),
            totals=dict(zip(OUTCOMES, self._totals, strict=True)),
            p50_ms=_quantile(times_ms, 0.5),
            p99_ms=_quantile(times_ms, 0.99),
            hwm_ms=self._hwm_ms,
            response_ms=self._response_ms,
            deadline_ms=self._deadline_ms,
            budget_ms=self._budget_ms,
            variant=self._variant,
            violations=None if status is None else status.violations,
            frames=frames,
            variants=tuple(self._variants),
        )

    def _rate_hz(self, arrivals_ns: npt.NDArray[np.int64], now_ns: int) -> float:
        begin_ns = max(now_ns - RATE_WINDOW_NS, self._first_ns)
        if not self._first_ns or begin_ns == now_ns:
            return math.nan
        # Without the frame that the time begins with.
        count = len(arrivals_ns) - int(np.searchsorted(arrivals_ns, begin_ns, side="right"))
        return count * 1e9 / (now_ns - begin_ns)

    def _begin(self, now_ns: int) -> int:
        """Index of the first frame of the window."""
        arrivals_ns = self._frames["arrival_ns"][: self._end]
        begin = int(np.searchsorted(arrivals_ns, now_ns - WINDOW_NS, side="right"))
        return max(begin, self._end - MOST_FRAMES)

    def _make_room(self, now_ns: int) -> None:
        kept = self._frames[self._begin(now_ns) : self._end]
        size = len(self._frames)
        if len(kept) > size * 4 // 5:
            size = min(2 * size, MOST_FRAMES * 5 // 4)
        self._frames = np.empty(size, FRAME)
        self._end = len(kept)
        self._frames[: self._end] = kept

    def _number(self, variant: str) -> int:
        if variant not in self._variants:
            if len(self._variants) >= MOST_VARIANTS:
                variant = OTHERS
            if variant not in self._variants:
                self._variants.append(variant)
        return self._variants.index(variant)


def _read_ms(values: Mapping[str, str], key: str) -> float:
    """Read a duration; NaN where there is none."""
    if key not in values:
        return math.nan
    number = _float(values[key])
    if not 0.0 <= number <= LARGEST_MS:
        raise _UnusableError(key)
    return number


def _read_name(kind: str, text: str) -> str:
    if len(text) > LONGEST_TEXT or not text.isprintable():
        raise _UnusableError(kind)
    return text


def _float(text: str) -> float:
    """Read a number; NaN for what is none, or too long to be one."""
    try:
        return float(text) if len(text) <= 32 else math.nan
    except ValueError:
        return math.nan


def _clean(text: str) -> str:
    """Cut a text, and take what would steer a terminal out of it."""
    return "".join(c if c.isprintable() else " " for c in text[:LONGEST_TEXT])


def _quantile(ordered: npt.NDArray[Any], share: float) -> float:
    """Least value that a share of all does not exceed; NaN of none, or of too few for a tail."""
    if not len(ordered) or (share > 0.5 and not has_quantile(len(ordered), share)):
        return math.nan
    return float(ordered[math.ceil(share * len(ordered)) - 1])
