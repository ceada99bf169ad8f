"""Drives the engine on virtual time: what the executor does with threads, here without any."""

import heapq
from collections.abc import Callable, Iterable

import numpy as np

from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.tasks import JobRecord, TaskParameters, Work

IMAGE = np.zeros((2, 2, 3), np.uint8)


def make_work(sequence: int = 0) -> Work:
    return Work(Frame(IMAGE, "bgr8", 0, sequence))


def make_task(name: str, deadline: int, period: int | None = None, **changes) -> TaskParameters:
    values = {
        "name": name,
        "deadline_ns": deadline,
        "period_ns": period or deadline,
        "stages": ("only",),
        "variants": ("full@null",),
        "variant": "full@null",
    }
    return TaskParameters(**{**values, **changes})


def drive(
    engine: Engine,
    arrivals: Iterable[tuple[int, str]],
    execution_ns: Callable[[Job], int],
    fails: Callable[[Job], bool] = lambda job: False,
    on_start: Callable[[Job, int], None] = lambda job, now: None,
) -> list[JobRecord]:
    """Run the arrivals (time, task) to the end; the records in the order of their ends."""
    events: list[tuple[int, int, int, object]] = []
    sequences: dict[str, int] = {}
    for order, (time_ns, task) in enumerate(arrivals):
        heapq.heappush(events, (time_ns, 1, order, task))
    order = len(events)
    while events:
        now_ns, kind, _, subject = heapq.heappop(events)
        if kind == 1:
            sequence = sequences[subject] = sequences.get(subject, -1) + 1
            engine.release(subject, now_ns, now_ns, make_work(sequence))
        else:
            job, start_ns = subject
            if fails(job):
                engine.fail(job, now_ns, "made to fail")
            else:
                engine.boundary(job, now_ns, start_ns, now_ns)
        while (job := engine.next(now_ns)) is not None:
            on_start(job, now_ns)
            order += 1
            # Ends are handled before arrivals of the same moment.
            heapq.heappush(events, (now_ns + execution_ns(job), 0, order, (job, now_ns)))
    return [record for record, _ in engine.take_ended()]
