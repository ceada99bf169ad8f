"""Which jobs would make their deadlines if all at hand ran to their ends in a given order."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.queue import Rank

Step = tuple[int, str]
"""Budget of a run, and its device."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What is left of a job.

    Attributes
    ----------
    job : Job
        Which.
    rank : Rank
        Its place in the order.
    steps : tuple of Step
        The runs that are left of it.
    started : bool
        Whether it is under way.
    available_ns : int
        When it can go on.
    """

    job: Job
    rank: Rank
    steps: tuple[Step, ...]
    started: bool
    available_ns: int

    @property
    def budget_ns(self) -> int:
        """Of all that is left."""
        return sum(time_ns for time_ns, _ in self.steps)


@dataclass(slots=True)
class _Waiting:
    demand: Demand
    left_ns: int
    available_ns: int
    started: bool
    done: int = 0

    def next_step(self) -> Step:
        return self.demand.steps[self.done]

    def rank(self) -> Rank:
        """Among equals one that has started goes first."""
        first, second, fresh, *others = self.demand.rank
        return (first, second, fresh and not self.started, *others)  # type: ignore[return-value]


def jobs_in_time(
    free_ns: Sequence[int],
    demands: Iterable[Demand],
    room: Mapping[str, Sequence[int]] | None = None,
) -> set[Job]:
    """Run the steps of all jobs, the first in order that may run whenever a worker is free.

    One whose budget does not fit any more is ended, whether it has started or not.

    Parameters
    ----------
    free_ns : sequence of int
        When each worker is free, at least one.
    demands : iterable of Demand
        In any order.
    room : mapping of str to sequence of int, optional
        For each device with a limit when each of its places is free.

    Returns
    -------
    set of Job
        Those that are done at their deadlines.
    """
    left = [
        _Waiting(demand, demand.budget_ns, demand.available_ns, demand.started)
        for demand in demands
    ]
    in_time = {w.demand.job for w in left if not w.demand.steps and _is_in_time(w, w.available_ns)}
    left = [waiting for waiting in left if waiting.demand.steps]
    workers = list(free_ns)
    heapq.heapify(workers)
    places = {device: list(times_ns) for device, times_ns in (room or {}).items()}
    for times_ns in places.values():
        heapq.heapify(times_ns)
    while left:
        now_ns = workers[0]
        ready = [w for w in left if w.available_ns <= now_ns and _has_place(w, places, now_ns)]
        if not ready:
            heapq.heapreplace(workers, _next_event_ns(left, places, now_ns))
            continue
        chosen = min(ready, key=_Waiting.rank)
        if not _is_in_time(chosen, now_ns + chosen.left_ns):
            left.remove(chosen)
            continue
        time_ns, device = chosen.next_step()
        end_ns = now_ns + time_ns
        heapq.heapreplace(workers, end_ns)
        if device in places:
            heapq.heapreplace(places[device], end_ns)
        chosen.started, chosen.available_ns = True, end_ns
        chosen.left_ns -= time_ns
        chosen.done += 1
        if chosen.done == len(chosen.demand.steps):
            left.remove(chosen)
            if _is_in_time(chosen, end_ns):
                in_time.add(chosen.demand.job)
    return in_time


def _is_in_time(waiting: _Waiting, end_ns: int) -> bool:
    return end_ns <= waiting.demand.job.absolute_deadline_ns


def _has_place(waiting: _Waiting, places: Mapping[str, list[int]], now_ns: int) -> bool:
    device = waiting.next_step()[1]
    return device not in places or places[device][0] <= now_ns


def _next_event_ns(left: Iterable[_Waiting], places: Mapping[str, list[int]], now_ns: int) -> int:
    """When the first of them may run; later than now."""
    return min(
        max(waiting.available_ns, places.get(waiting.next_step()[1], [now_ns])[0])
        for waiting in left
    )


def one_by_one(free_ns: int, demands: Iterable[Demand]) -> set[Job]:
    """The same on one worker, in whole jobs; but one that has started takes its time.

    There, beside the leader of a batch, those have started that were brought to it: they count on
    the batch, and are not given up for others.
    """
    in_time = set()
    now_ns = free_ns
    for demand in sorted(demands, key=lambda demand: demand.rank):
        now_ns = max(now_ns, demand.available_ns)
        end_ns = now_ns + demand.budget_ns
        fits = end_ns <= demand.job.absolute_deadline_ns
        if fits:
            in_time.add(demand.job)
        if fits or demand.started:
            now_ns = end_ns
    return in_time
