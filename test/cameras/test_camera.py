"""The camera's thread on a virtual clock: exact times, ends, and sources that break."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from jetson_dnn_rt.cameras.camera import FIRST_BACKOFF_NS, Camera
from jetson_dnn_rt.cameras.source import FrameSource
from jetson_dnn_rt.clock import VirtualClock
from jetson_dnn_rt.errors import SourceError
from jetson_dnn_rt.frames import Frame, Image
from jetson_dnn_rt.safety.faults import FAULTS

MS = 1_000_000


class Script(FrameSource):
    """A source that numbers its frames, takes time for each, and breaks where told."""

    height, width, live = 4, 6, False

    def __init__(
        self,
        clock: VirtualClock,
        *,
        count: int = 1000,
        rate_hz: float = 100.0,
        take_ns: int = 0,
        live: bool = False,
        break_at: int = -1,
        delay_stamp_ns: int | None = None,
    ) -> None:
        self.clock, self.count, self.rate_hz, self.take_ns = clock, count, rate_hz, take_ns
        self.live, self.break_at, self.delay_stamp_ns = live, break_at, delay_stamp_ns
        self.done = 0
        self.closed = False

    def read(self, out: Image) -> bool:
        self.expect(out)
        if self.take_ns:
            self.clock.sleep_until_ns(self.clock.now_ns() + self.take_ns)
        if self.done == self.break_at:
            raise SourceError("unplugged")
        if self.done == self.count:
            return False
        if self.delay_stamp_ns is not None:
            self.capture_ns = self.clock.now_ns() - self.delay_stamp_ns
        out[:] = self.done % 256
        self.done += 1
        return True

    def close(self) -> None:
        self.closed = True


class Record:
    """Keeps what a camera delivers."""

    def __init__(self) -> None:
        self.times_ns: list[int] = []
        self.values: list[int] = []
        self.addresses: list[int] = []
        self.ends = 0

    def take(self, frame: Frame, capture_ns: int) -> None:
        self.times_ns.append(capture_ns)
        self.values.append(int(frame.image[0, 0, 0]))
        self.addresses.append(frame.device_address)

    def end(self) -> None:
        self.ends += 1


Start = Callable[..., tuple[Camera, Record]]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def start(clock: VirtualClock) -> Iterator[Start]:
    cameras: list[Camera] = []

    def make(*sources: FrameSource | SourceError, **options: object) -> tuple[Camera, Record]:
        queue = list(sources)
        record = Record()

        def reopen() -> FrameSource:
            source = queue.pop(0)
            if isinstance(source, SourceError):
                raise source
            return source

        camera = Camera(
            reopen,
            record.take,
            clock=clock,
            on_end=record.end,
            **options,  # type: ignore[arg-type]
        )
        cameras.append(camera)
        camera.start()
        return camera, record

    yield make
    for camera in cameras:
        camera.stop(timeout_s=0.0)
    clock.run_until(clock.now_ns() + 10_000 * MS)  # lets reads that are under way return
    for camera in cameras:
        camera.close()


def test_frames_are_one_period_apart_however_long_reading_takes(
    clock: VirtualClock, start: Start
) -> None:
    _, record = start(Script(clock, take_ns=3 * MS))
    clock.run_until(45 * MS)
    # Read ahead: the first is due at 0 but takes 3 ms to read, then the period holds.
    assert record.times_ns == [3 * MS, 13 * MS, 23 * MS, 33 * MS, 43 * MS]
    assert record.values == [0, 1, 2, 3, 4]


def test_frames_lie_in_the_memory_that_a_device_reads(clock: VirtualClock, start: Start) -> None:
    broken = Script(clock, live=True, take_ns=10 * MS, break_at=4)
    camera, record = start(broken, Script(clock, live=True, take_ns=10 * MS))
    clock.run_until(15 * MS)
    made: list[Image] = []

    def allocate(shape: tuple[int, ...]) -> tuple[Image, int]:
        made.append(np.zeros(shape, np.uint8))
        return made[-1], 0x1000 + len(made)

    camera.use_memory(allocate, 3)
    clock.run_until(35 * MS)
    # The second was being read when the memory was changed.
    assert [address != 0 for address in record.addresses] == [False, False, True]
    assert [image.shape for image in made] == [(4, 6, 3)] * 3
    clock.run_until(2 * FIRST_BACKOFF_NS)
    assert record.values[:5] == [0, 1, 2, 3, 0]  # reopened
    assert all(record.addresses[2:])


def test_the_period_does_not_drift(clock: VirtualClock, start: Start) -> None:
    _, record = start(Script(clock, rate_hz=30.0))
    clock.run_until(10_000 * MS)
    period = round(1e9 / 30)
    assert record.times_ns == [period * k for k in range(len(record.times_ns))]
    assert len(record.times_ns) == 301


def test_a_source_slower_than_its_rate_makes_no_bursts(clock: VirtualClock, start: Start) -> None:
    _, record = start(Script(clock, take_ns=25 * MS))
    clock.run_until(110 * MS)
    assert record.times_ns == [25 * MS, 50 * MS, 75 * MS, 100 * MS]


def test_rate_asked_for_counts_before_the_native_one(clock: VirtualClock, start: Start) -> None:
    camera, record = start(Script(clock), rate_hz=50.0)
    clock.run_until(65 * MS)
    assert camera.rate_hz == 50.0
    assert record.times_ns == [0, 20 * MS, 40 * MS, 60 * MS]


def test_end_of_the_stream_is_told_once(clock: VirtualClock, start: Start) -> None:
    camera, record = start(Script(clock, count=3))
    clock.run_until(1000 * MS)
    assert record.values == [0, 1, 2]
    assert record.ends == 1
    assert camera.state.ended
    assert camera.state.frames == 3


def test_a_limit_ends_the_stream(clock: VirtualClock, start: Start) -> None:
    camera, record = start(Script(clock), limit=2)
    clock.run_until(1000 * MS)
    assert (len(record.values), record.ends, camera.state.ended) == (2, 1, True)


def test_a_file_that_breaks_ends_with_its_error(clock: VirtualClock, start: Start) -> None:
    camera, record = start(Script(clock, break_at=2))
    clock.run_until(1000 * MS)
    assert record.values == [0, 1]
    assert camera.state.ended
    assert camera.state.error == "unplugged"


def test_a_live_source_sets_pace_and_stamps(clock: VirtualClock, start: Start) -> None:
    _, record = start(Script(clock, live=True, take_ns=7 * MS, delay_stamp_ns=2 * MS))
    clock.run_until(22 * MS)
    assert record.times_ns == [5 * MS, 12 * MS, 19 * MS]


def test_a_device_that_returns_is_reopened_with_growing_intervals(
    clock: VirtualClock, start: Start
) -> None:
    first = Script(clock, live=True, take_ns=10 * MS, break_at=2)
    gone = SourceError("camera /dev/video0 is not there")
    second = Script(clock, live=True, take_ns=10 * MS)
    camera, record = start(first, gone, gone, second)
    clock.run_until(30 * MS)
    assert camera.state.error == "unplugged"
    assert first.closed
    # Lost at 30 ms, tried again 250, 500 and 1000 ms later.
    back_ns = 30 * MS + 7 * FIRST_BACKOFF_NS
    clock.run_until(back_ns - 1)
    assert camera.state.error == "camera /dev/video0 is not there"
    assert len(record.values) == 2
    clock.run_until(back_ns + 10 * MS)
    assert len(record.values) == 3
    assert (camera.state.error, camera.state.reopened) == ("", 1)


def test_a_device_may_return_with_another_size(clock: VirtualClock, start: Start) -> None:
    second = Script(clock, live=True, take_ns=10 * MS)
    second.height = 8
    camera, record = start(Script(clock, live=True, take_ns=10 * MS, break_at=0), second)
    clock.run_until(1000 * MS)
    assert camera.size == (8, 6)
    assert record.values


def test_sequence_and_stamp_are_written(clock: VirtualClock) -> None:
    frames: list[Frame] = []
    camera = Camera(
        lambda: Script(clock, count=3),
        lambda frame, capture_ns: frames.append(frame),
        frame_id="front",
        stamp=lambda capture_ns: capture_ns + 7,
        clock=clock,
    )
    camera.start()
    clock.run_until(100 * MS)
    camera.close()
    assert [f.sequence for f in frames] == [0, 1, 2]
    assert [f.stamp_ns for f in frames] == [7, 10 * MS + 7, 20 * MS + 7]
    assert {f.frame_id for f in frames} == {"front"}


def test_buffers_are_used_again_and_never_while_held(clock: VirtualClock, start: Start) -> None:
    camera, _ = start(Script(clock))
    held: list[Frame] = []
    camera._deliver = lambda frame, capture_ns: held.append(frame) if len(held) < 6 else None
    clock.run_until(1000 * MS)
    assert [int(f.image[0, 0, 0]) for f in held] == [held[0].sequence + k for k in range(6)]
    # Six held, one being read ahead: the pool has not grown with the hundred frames.
    assert camera._pool.allocated <= 8


def test_a_stopped_camera_goes_on_where_it_stood(clock: VirtualClock, start: Start) -> None:
    camera, record = start(Script(clock))
    clock.run_until(15 * MS)
    assert camera.stop()
    clock.run_until(100 * MS)
    assert record.values == [0, 1]
    camera.start()
    clock.run_until(105 * MS)
    assert record.values[:2] == [0, 1]
    assert record.values[2:] == [3]  # the frame read ahead was not delivered


def test_an_error_of_a_listener_costs_one_frame(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """EDGES 0: one exception of a listener ended the camera."""
    frames: list[int] = []

    def take(frame: Frame, capture_ns: int) -> None:
        if frame.sequence < 3:
            raise RuntimeError(f"listener broke at frame {frame.sequence}")
        frames.append(frame.sequence)

    camera = Camera(lambda: Script(clock), take, clock=clock, name="front")
    camera.start()
    clock.run_until(45 * MS)
    camera.close()
    assert frames == [3, 4]
    assert (camera.state.frames, camera.state.error) == (5, "")
    assert [(one.kind, one.count, one.text) for one in FAULTS.snapshot()] == [
        ("front: listener: RuntimeError", 3, "listener broke at frame 2")
    ]
    assert len(caplog.records) == 1


class Unforeseen(Script):
    """A source whose code has a fault."""

    error: BaseException = ValueError("not what a source raises")

    def read(self, out: Image) -> bool:
        if self.done == self.break_at:
            self.break_at = -1
            raise self.error
        return super().read(out)


def test_a_live_source_with_a_fault_is_reopened(clock: VirtualClock, start: Start) -> None:
    """EDGES 0: an exception that a source does not declare ended the camera."""
    first = Unforeseen(clock, live=True, take_ns=10 * MS, break_at=2)
    camera, record = start(first, Script(clock, live=True, take_ns=10 * MS))
    clock.run_until(25 * MS)
    assert camera.state.error == "ValueError: not what a source raises"
    clock.run_until(20 * MS + FIRST_BACKOFF_NS + 10 * MS)
    assert first.closed
    assert (len(record.values), camera.state.error, camera.state.reopened) == (3, "", 1)
    assert [(one.kind, one.count) for one in FAULTS.snapshot()] == [
        ("camera: source: ValueError", 1)
    ]


def test_a_thread_that_is_killed_begins_anew(clock: VirtualClock, start: Start) -> None:
    """EDGES 0: a camera's thread that died was neither reported nor replaced."""
    source = Unforeseen(clock, break_at=2)
    source.error = SystemExit("killed")
    camera, record = start(source)
    clock.run_until(95 * MS)
    assert record.values[:4] == [0, 1, 2, 3]
    assert camera.state.error == ""
    assert [(one.kind, one.count) for one in FAULTS.snapshot()] == [
        ("thread camera: SystemExit", 1)
    ]
    assert not FAULTS.dead_threads


def test_a_fault_at_the_start_of_the_thread_is_counted(clock: VirtualClock, start: Start) -> None:
    """EDGES 0: it ended the camera before its first frame."""

    def refuse() -> None:
        raise PermissionError("no real-time scheduling")

    _, record = start(Script(clock), on_start=refuse)
    clock.run_until(15 * MS)
    assert record.values == [0, 1]
    assert [one.kind for one in FAULTS.snapshot()] == [
        "camera: start of the thread: PermissionError"
    ]


def test_a_fault_at_the_end_of_the_stream_ends_the_thread(
    clock: VirtualClock, start: Start
) -> None:
    ends: list[None] = []

    def end() -> None:
        ends.append(None)
        raise RuntimeError("nobody listens")

    records: list[int] = []
    camera = Camera(
        lambda: Script(clock, count=2),
        lambda frame, capture_ns: records.append(frame.sequence),
        clock=clock,
        on_end=end,
    )
    camera.start()
    clock.run_until(1000 * MS)
    assert camera.stop()
    assert (records, len(ends), camera.state.ended) == ([0, 1], 1, True)
    assert [one.kind for one in FAULTS.snapshot()] == ["thread camera: RuntimeError"]
