"""A bag played to the executor at its recorded times: what the robot would have done.

The tasks run in a `Session`, as in the nodes: the same engine and workers, batches, slow-downs and
restarts; what is missing is DDS. Messages are read and decoded ahead on a thread of their own, as
a camera driver would.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from jetson_dnn_rt.errors import SourceError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.evaluate.arrivals import Arrivals
from jetson_dnn_rt.lab.evaluate.bags import BagImage, ImageBag
from jetson_dnn_rt.lab.evaluate.chunk import BadMessage
from jetson_dnn_rt.results import Result
from jetson_dnn_rt.runtime.realtime import Setting
from jetson_dnn_rt.runtime.session import Session
from jetson_dnn_rt.runtime.task import StageTimes, Task
from jetson_dnn_rt.scheduling.analysis import Verdict
from jetson_dnn_rt.scheduling.selection import Selector
from jetson_dnn_rt.tasks import JobRecord, Work

READ_AHEAD = 8
"""Decoded frames that wait for their time; each is in memory."""

WARM_UP_FRAMES = 8
OLDEST_NS = 10_000_000_000
"""A stamp that is older than this when its message is logged is of another clock."""

DRAIN_TIMEOUT_S = 60.0

Observer = Callable[[JobRecord, Work], None]


@dataclass(frozen=True)
class Playback:
    """What a replay of one bag came to.

    Attributes
    ----------
    frames : int
        That were released; each ended as one job of every task.
    bad : list of BadMessage
        Messages that were no frames: `frames` + these = messages of the topic.
    behind : int
        Frames that were released more than half a period late, because they were not read in
        time: their deadlines count from their release.
    verdict : Verdict
        Schedulability with the budgets at the end.
    settings : tuple of Setting
        What became of the real-time set-up.
    """

    frames: int
    bad: list[BadMessage]
    behind: int
    verdict: Verdict
    settings: tuple[Setting, ...]


WarmUp = Mapping[str, Mapping[str, StageTimes]]
"""For each task and variant the times of its warm-up."""


def warm_up(bag: ImageBag, tasks: Iterable[Task]) -> WarmUp:
    """Run every variant on the first frames of a bag: the first budgets come from these times.

    Raises
    ------
    SourceError
        When no message is a frame.
    """
    frames = read_first(bag)
    for task in tasks:
        task.warm_up(frames)
    return {task.name: task.warm_up_times_ns for task in tasks}


def play(
    bag: ImageBag,
    session: Session,
    deadlines_ns: Mapping[str, int],
    arrivals: Arrivals,
    observer: Callable[[JobRecord, Work], None],
    *,
    selector: Selector | None = None,
    count: int | None = None,
    first_sequence: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Playback:
    """Release every frame of a bag at its time and run what the deadlines allow.

    Parameters
    ----------
    bag : ImageBag
        One topic of a bag.
    session : Session
        Its tasks are loaded, warmed up and not active; the executor is started anew, so that a
        replay learns nothing from the one before. All tasks see every frame.
    deadlines_ns : mapping of str to int
        By task.
    arrivals : Arrivals
        Time of each message of the bag.
    observer : callable
        Sees every job that ends, on the delivery thread.
    selector : Selector, optional
        Chooses the variants; by default each task runs its first one.
    count : int, optional
        Only the first so many messages.
    first_sequence : int
        Number of the bag's first message among the frames of all replays.
    progress : callable
        Called with frames released and messages to come.

    Raises
    ------
    SourceError
        When a stage still runs long after the last frame.
    """
    clock = session.clock

    def observe(record: JobRecord, work: Work, result: Result | None) -> None:
        observer(record, work)

    with ExitStack() as stack:
        session.stop()
        session.start()
        stack.callback(session.stop)
        executor = session.executor
        for name, deadline_ns in deadlines_ns.items():
            session.activate(name, observe, period_ns=arrivals.period_ns, deadline_ns=deadline_ns)
        if selector is not None:
            executor.set_selector(selector)
        session.commit()
        total = bag.count if count is None else min(count, bag.count)
        messages = stack.enter_context(_read_ahead(bag, total))
        frames, behind = 0, 0
        bad: list[BadMessage] = []
        begin_ns = clock.now_ns() + arrivals.period_ns
        for message in messages:
            if isinstance(message, BadMessage):
                bad.append(message)
                continue
            due_ns = begin_ns + int(arrivals.times_ns[message.index])
            clock.sleep_until_ns(due_ns)
            behind += clock.now_ns() - due_ns > arrivals.period_ns // 2
            frame = replace(message.frame, sequence=first_sequence + message.index)
            session.submit(frame, capture_ns=due_ns - find_age_ns(message))
            frames += 1
            progress(frames, total)
        if not session.wait_idle(DRAIN_TIMEOUT_S):
            raise SourceError(f"a job did not end within {DRAIN_TIMEOUT_S:g} s")
        return Playback(frames, bad, behind, executor.analyse(), executor.realtime.settings)


def find_age_ns(image: BagImage) -> int:
    """How old a frame was when it was logged; 0 where its stamp is of another clock."""
    age_ns = image.log_time_ns - image.frame.stamp_ns
    return age_ns if 0 <= age_ns <= OLDEST_NS else 0


def read_first(bag: ImageBag) -> list[Frame]:
    """The first frames, for the warm-up: their content and size are those of the others."""
    frames: list[Frame] = []
    for message in bag.read(0, bag.count):
        if not isinstance(message, BadMessage):
            frames.append(message.frame)
        if len(frames) == WARM_UP_FRAMES:
            break
    if not frames:
        raise SourceError(f"no message of {bag.topic} is a frame")
    return frames


@contextmanager
def _read_ahead(bag: ImageBag, count: int) -> Iterator[Iterator[BagImage | BadMessage]]:
    """Messages of a bag, read and decoded on a thread of its own."""
    messages: queue.Queue[BagImage | BadMessage | BaseException | None] = queue.Queue(READ_AHEAD)
    stop = threading.Event()

    def put(message: BagImage | BadMessage | BaseException | None) -> bool:
        while not stop.is_set():
            try:
                messages.put(message, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def read() -> None:
        try:
            for message in bag.read(0, count):
                if not put(message):
                    return
            put(None)
        except BaseException as error:
            put(error)

    def take() -> Iterator[BagImage | BadMessage]:
        while (message := messages.get()) is not None:
            if isinstance(message, BaseException):
                raise message
            yield message

    thread = threading.Thread(target=read, name="bag", daemon=True)
    thread.start()
    try:
        yield take()
    finally:
        stop.set()
        thread.join()
