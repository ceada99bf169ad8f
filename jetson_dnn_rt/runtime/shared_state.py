# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""State of an executor, which its driver and its supervision share under one lock."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.errors import NotAnsweringError
from jetson_dnn_rt.runtime.delivery import Delivery, Observer
from jetson_dnn_rt.runtime.task_entry import TaskEntry
from jetson_dnn_rt.safety.faults import FAULTS, Pulse
from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.tasks import Stage


@dataclass(slots=True, eq=False)
class Worker:
    """A thread that runs stages, and the stage that it is in."""

    index: int
    thread: threading.Thread | None = None
    job: Job | None = None  # whose stage it runs, with that of the job's mates
    stage: Stage | None = None  # the last that it began, and the mates that it began it with
    mates: tuple[Job, ...] = ()
    stage_start_ns: int = 0
    times_ns: tuple[int, int, int] = (0, 0, 0)
    """Begin, end and CPU time of the last stage, measured around it."""
    error: BaseException | None = None  # that it raised
    asks: int = 0  # how often its stage was told to end
    asked_ns: int = 0  # when it was first
    ask_ns: int = 0  # time of the next
    hangs: bool = False  # whether that is because it hangs
    abandoned: bool = False
    interrupted: bool = False  # its thread died with a job, which is not recovered yet
    users: tuple[tuple[str, Stage], ...] = ()  # the tasks whose stage it was left behind in
    pulse: Pulse = field(default_factory=Pulse)  # not of its stages: the watchdog times them

    @property
    def tasks(self) -> Collection[str]:
        """The tasks whose stage it is in; the lock is held."""
        if self.job is not None:
            return [self.job.task, *(mate.task for mate in self.job.mates)]
        return [name for name, _ in self.users]


class SharedState:
    """The engine, the tasks and the threads that wait.

    `condition` is the lock: held around every call but `answering`, which takes it.
    """

    def __init__(self, clock: Clock, engine: Engine) -> None:
        self.clock = clock
        self.condition = clock.condition()
        self.engine = engine
        self.tasks: dict[str, TaskEntry] = {}
        self.observers: list[Observer] = []
        self.delivery = Delivery()
        self.leaving = False  # whether any task waits to be forgotten
        self.started = self.stopping = False
        self.idle = 0  # workers that wait for a job
        self.wake_ns: int | None = None  # when the last of them wakes by itself
        self.asked_in_vain_ns = 0  # on the real clock, when the lock could not be had last

    @contextlib.contextmanager
    def answering(self, limit_s: float) -> Iterator[None]:
        """Hold the lock; `NotAnsweringError` when it cannot be had in time, who keeps it."""
        # After one wait in vain the next are short: several tasks are asked in a row.
        again = time.monotonic_ns() - self.asked_in_vain_ns < 1_000_000_000
        if not self.condition.acquire(timeout=0.05 if again else limit_s):
            self.asked_in_vain_ns = time.monotonic_ns()
            stuck = (f"{thread}: {where}" for thread, where in FAULTS.stuck_threads.items())
            raise NotAnsweringError(
                "the executor does not answer, since a thread keeps its lock: "
                f"{'; '.join(stuck) or 'for less than a second yet'}"
            )
        try:
            yield
        finally:
            self.condition.release()

    def wait_for(self, reached: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until a condition is true."""
        limit_ns = self.clock.now_ns() + int(timeout_s * 1e9)
        step_ns = 1_000_000
        while not reached():
            now_ns = self.clock.now_ns()
            if now_ns >= limit_ns:
                return False
            # Polled: a notification for this rare wait would cost every boundary.
            self.condition.wait_until(min(limit_ns, now_ns + step_ns))
        return True

    def hand_over(self) -> None:
        """Queue the records of the jobs that ended."""
        try:
            endings = self.engine.take_endings()
        except Exception as error:
            FAULTS.note("scheduling engine", error)
            return
        for ending in endings:
            try:
                observers = (self.tasks[ending.job.task].observer, *self.observers)
                self.delivery.put(observers, ending)
            except Exception as error:  # the others are delivered
                self.delivery.unqueued_records += 1
                FAULTS.note("delivery of records", error)

    def wake_idle(self) -> None:
        """Let idle workers look, unless they do so in time."""
        # A batch that ended left several, a device has room again, or a frame is to be prepared.
        look_ns = self.engine.look_ns(self.clock.now_ns())
        if look_ns is not None and (self.wake_ns is None or look_ns < self.wake_ns):
            self.condition.notify_all()

    def forget_idle(self) -> None:
        """Forget the tasks that leave and have no job any more."""
        leaving = [name for name, entry in self.tasks.items() if entry.leaving]
        idle = [name for name in leaving if self.engine.is_idle(name)]
        for name in idle:
            self.hand_over()
            self.engine.remove_task(name)
            del self.tasks[name]
            self.rank_deadlines()
        self.leaving = len(idle) < len(leaving)

    def stage_timeout_ns(self, job: Job) -> int:
        """Time-out of a job's running stage; for a batch, the longest of its members'."""
        return max(self.tasks[member.task].stage_timeout_ns for member in (job, *job.mates))

    def rank_deadlines(self) -> None:
        """Find the deadline classes of all tasks."""
        states = self.engine.tasks
        deadlines = {states[name].parameters.deadline_ns for name in self.tasks}
        classes = {deadline: rank for rank, deadline in enumerate(sorted(deadlines, reverse=True))}
        for name, entry in self.tasks.items():
            entry.urgency = classes[states[name].parameters.deadline_ns]
