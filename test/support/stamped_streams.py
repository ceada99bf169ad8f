# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Streams whose true ages and stamps are made independently, judged by stamps and engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from virtual_drive import make_task, make_work

from jetson_dnn_rt.cameras.stamps import StampClock
from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.tasks import Outcome

MS = 1_000_000
S = 1_000_000_000
EPOCH_NS = 1_700_000_000 * S
MAX_AGE_NS = 200 * MS
HZ = 30


@dataclass(frozen=True)
class Arrival:
    """A frame as it arrives; `age_ns` is true, `clock_ns` what the node's clock shows then."""

    at_ns: int
    age_ns: int
    stamp_ns: int
    clock_ns: int


def deliver(
    seconds: float,
    delay_ns: Callable[[int], int] = lambda captured_ns: 10 * MS,
    stamp_ns: Callable[[int], int] = lambda captured_ns: EPOCH_NS + captured_ns,
    clock_ns: Callable[[int], int] = lambda at_ns: EPOCH_NS + at_ns,
    hz: int = HZ,
) -> list[Arrival]:
    """Frames through a queue; times are true and from 0.

    `delay_ns` is what the way takes from a capture on; no frame overtakes another. A jitter of up
    to 5 ms is added.
    """
    found, free_ns = [], 0
    for number in range(int(seconds * hz)):
        captured_ns = number * S // hz
        due_ns = captured_ns + delay_ns(captured_ns) + number * 7 % 6 * MS
        free_ns = at_ns = max(free_ns + 1, due_ns)
        found.append(Arrival(at_ns, at_ns - captured_ns, stamp_ns(captured_ns), clock_ns(at_ns)))
    return found


@dataclass(frozen=True)
class Ends:
    """How the frames of a stream ended: `reasons` has ``met`` and the reasons of skipped ones."""

    reasons: Counter[str]
    met: list[Arrival]

    @property
    def oldest_ns(self) -> int:
        """True age of the oldest frame that was met; 0 without any."""
        return max((frame.age_ns for frame in self.met), default=0)


def judge(
    frames: Iterable[Arrival],
    *,
    synchronised: bool = True,
    simulated: bool = False,
    max_age_ns: int = MAX_AGE_NS,
) -> Ends:
    """Release frames on a virtual clock, where each runs at once and takes a nanosecond."""
    clock_ns = 0
    stamps = StampClock(
        "/image_raw", lambda: clock_ns, synchronised=synchronised, simulated=lambda: simulated
    )
    engine = Engine(1)
    engine.add_task(make_task("a", 30 * MS, max_age_ns=max_age_ns))
    engine.seed_budgets("a", "full@null", [(1,)])
    reasons, met = Counter(), []
    for number, frame in enumerate(frames):
        clock_ns = frame.clock_ns
        captured_ns, doubt = stamps.judge(frame.stamp_ns, frame.at_ns)
        assert captured_ns <= frame.at_ns
        work = make_work(number)
        work.frame.doubt = doubt
        job = engine.release("a", frame.at_ns, captured_ns, work)
        if engine.next(frame.at_ns) is job:
            engine.boundary(job, frame.at_ns + 1, frame.at_ns, frame.at_ns + 1)
        [(record, _)] = engine.take_ended()
        if record.outcome is Outcome.MET:
            met.append(frame)
            reasons["met"] += 1
        else:
            assert record.outcome is Outcome.SKIPPED
            reasons[record.reason] += 1
    return Ends(reasons, met)
