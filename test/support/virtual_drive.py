# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

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
    begin_ns: int | None = None,
    latency_ns: int = 0,
    wake_ns: int = 0,
    overhead_ns: int = 0,
) -> list[JobRecord]:
    """Run the arrivals (time, task) to the end; the records in the order of their ends.

    With `begin_ns` workers look for work then, whether a frame comes or not: what was released
    before is there. A stage that makes room for a more urgent frame ends `latency_ns` later. An
    idle worker looks for work `wake_ns` after a release and begins at once; after the end of a
    stage, and where the engine asked for it, it begins `overhead_ns` later.
    """
    running: dict[Job, int] = {}  # since when
    events: list[tuple[int, int, int, object]] = []
    sequences: dict[str, int] = {}
    for order, (time_ns, task) in enumerate(arrivals):
        heapq.heappush(events, (time_ns, 1, order, task))
    if begin_ns is not None:
        heapq.heappush(events, (begin_ns, 2, 0, None))
    order = len(events)
    while events:
        now_ns, kind, _, subject = heapq.heappop(events)
        if kind == 1:
            sequence = sequences[subject] = sequences.get(subject, -1) + 1
            engine.release(subject, now_ns, now_ns, make_work(sequence))
            for job, start_ns in running.items():
                if job.yields:
                    order += 1
                    told = (job, start_ns, now_ns)
                    heapq.heappush(events, (now_ns + latency_ns, 0, order, told))
            if wake_ns and len(running) < engine.threads:
                order += 1
                heapq.heappush(events, (now_ns + wake_ns, 2, order, "awake"))
                continue
        elif kind == 0:
            job, start_ns, asked_ns = subject
            if running.get(job) != start_ns:
                continue  # it ended otherwise
            del running[job]
            if asked_ns is not None:
                engine.cancelled(job, now_ns, start_ns, now_ns, asked_ns)
            elif fails(job):
                engine.fail(job, now_ns, "made to fail")
            else:
                engine.boundary(job, now_ns, start_ns, now_ns)
        start_ns = now_ns + (0 if kind == 2 and subject == "awake" else overhead_ns)
        while (job := engine.next(now_ns)) is not None:
            on_start(job, now_ns)
            running[job] = start_ns
            order += 1
            # Ends are handled before arrivals of the same moment.
            heapq.heappush(events, (start_ns + execution_ns(job), 0, order, (job, start_ns, None)))
        if engine.ask_again_ns is not None:
            order += 1
            heapq.heappush(events, (engine.ask_again_ns, 2, order, None))
    return [record for record, _ in engine.take_ended()]
