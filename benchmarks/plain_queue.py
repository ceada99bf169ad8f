"""Worker threads and one queue of stages, first in first out, without deadlines.

What a job queue does by itself (the queue of paper 001): every frame that was taken is run to its
end, however old it is. Frames that come meanwhile wait in a queue per task, as deep as ROS's
default; when that is full the oldest is dropped.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jetson_dnn_rt.clock import Clock, SteadyClock
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.tasks import Stage, Work

DEPTH = 10
"""``KeepLast(10)`` is the history of ROS 2's default profile."""


class Done(NamedTuple):
    """A frame that went through its task."""

    task: str
    released_ns: int
    completed_ns: int


@dataclass(slots=True, eq=False)
class _Item:
    task: str
    work: Work
    released_ns: int
    next_stage: int = 0


class PlainQueue:
    """The same tasks as an executor's, run in the order in which their stages become ready.

    Parameters
    ----------
    stages : mapping of str to sequence of Stage
        Of each task; a task runs one frame at a time, since its stages share their buffers.
    workers : int
        Worker threads.
    depth : int
        Frames of a task that wait at most.
    clock : Clock, optional
        Steady clock.
    """

    def __init__(
        self,
        stages: Mapping[str, Sequence[Stage]],
        workers: int = 1,
        depth: int = DEPTH,
        clock: Clock | None = None,
    ) -> None:
        self.done: list[Done] = []
        self.errors: list[Exception] = []
        self._clock = clock or SteadyClock()
        self._stages = stages
        self._backlogs: dict[str, deque[_Item]] = {task: deque(maxlen=depth) for task in stages}
        self._busy: set[str] = set()
        self._ready: deque[_Item] = deque()
        self._condition = threading.Condition()
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._work, name=f"plain-{i}", daemon=True)
            for i in range(workers)
        ]

    def start(self) -> None:
        """Start the workers."""
        for thread in self._threads:
            thread.start()

    def submit(self, task: str, frame: Frame) -> None:
        """Take a frame."""
        with self._condition:
            item = _Item(task, Work(frame), self._clock.now_ns())
            self._backlogs[task].append(item)
            if task not in self._busy:
                self._take_next(task)
                self._condition.notify()

    def stop(self) -> None:
        """End the workers; frames that are not done yet never will be."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        for thread in self._threads:
            thread.join()

    def _take_next(self, task: str) -> None:
        self._busy.discard(task)
        if self._backlogs[task]:
            self._busy.add(task)
            self._ready.append(self._backlogs[task].popleft())

    def _work(self) -> None:
        while True:
            with self._condition:
                while not self._ready and not self._stopping:
                    self._condition.wait()
                if self._stopping:
                    return
                item = self._ready.popleft()
            try:
                self._stages[item.task][item.next_stage].run(item.work)
            except Exception as error:
                self.errors.append(error)
                item.next_stage = len(self._stages[item.task])
            item.next_stage += 1
            with self._condition:
                if item.next_stage < len(self._stages[item.task]):
                    self._ready.append(item)
                    continue
                if item.next_stage == len(self._stages[item.task]):
                    self.done.append(Done(item.task, item.released_ns, self._clock.now_ns()))
                self._take_next(item.task)
