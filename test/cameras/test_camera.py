# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The camera's thread on a virtual clock: exact times, ends, and sources that break."""

from __future__ import annotations

import numpy as np
import pytest

from jetson_dnn_rt.cameras.camera import FIRST_BACKOFF_NS, Camera, CameraState
from jetson_dnn_rt.cameras.frame_sizes import NAMED
from jetson_dnn_rt.cameras.source import FrameSource
from jetson_dnn_rt.clock import VirtualClock
from jetson_dnn_rt.errors import SourceError
from jetson_dnn_rt.frames import Frame, Image
from jetson_dnn_rt.safety.faults import FAULTS

MS = 1_000_000


class Script(FrameSource):
    """A source that numbers its frames, takes time for each, and breaks where told."""

    height, width, live = 4, 6, False

    count, rate_hz, take_ns, break_at, delay_stamp_ns = 1000, 100.0, 0, -1, None
    key_ns = 0  # time of every thirtieth frame, in place of `take_ns`
    shapes: tuple[tuple[int, int, int], ...] = ()  # of the frames, in turn; empty = one size
    error: BaseException = SourceError("unplugged")

    def __init__(self, clock, **changes):
        self.clock, self.done, self.closed = clock, 0, False
        self.reads_ns: list[int] = []
        vars(self).update(changes)

    def read(self, out):
        self.expect(out)
        self.reads_ns.append(self.clock.now_ns())
        take_ns = self.key_ns if self.key_ns and not self.done % 30 else self.take_ns
        if take_ns:
            self.clock.sleep_until_ns(self.clock.now_ns() + take_ns)
        if self.done == self.break_at:
            self.break_at = -1
            raise self.error
        if self.done == self.count:
            return None
        if self.delay_stamp_ns is not None:
            self.capture_ns = self.clock.now_ns() - self.delay_stamp_ns
        image = out
        if self.shapes and self.shapes[self.done % len(self.shapes)] != out.shape:
            image = np.empty(self.shapes[self.done % len(self.shapes)], np.uint8)
        image[:] = self.done % 256
        self.done += 1
        return image

    def close(self):
        self.closed = True


class Record:
    """Keeps what a camera delivers."""

    def __init__(self):
        self.times_ns: list[int] = []
        self.values: list[int] = []
        self.addresses: list[int] = []
        self.headers: list[tuple[int, int, str]] = []
        self.ends = 0

    def take(self, frame, capture_ns):
        self.headers.append((frame.sequence, frame.stamp_ns, frame.frame_id))
        self.times_ns.append(capture_ns)
        self.values.append(int(frame.image[0, 0, 0]))
        self.addresses.append(frame.device_address)

    def end(self):
        self.ends += 1


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def start(clock):
    cameras: list[Camera] = []

    def make(*sources, deliver=None, **options):
        queue = list(sources)
        record = Record()

        def reopen():
            source = queue.pop(0)
            if isinstance(source, SourceError):
                raise source
            return source

        options = {"clock": clock, "on_end": record.end, **options}
        camera = Camera(reopen, deliver or record.take, **options)
        cameras.append(camera)
        camera.start()
        return camera, record

    yield make
    for camera in cameras:
        camera.stop(timeout_s=0.0)
    clock.run_until(clock.now_ns() + 10_000 * MS)  # lets reads that are under way return
    for camera in cameras:
        camera.close()


@pytest.mark.parametrize(
    ("source", "options", "until_ms", "times_ms", "slipped"),
    [
        # Read ahead: the first is due at 0 but takes 3 ms to read, then the period holds.
        ({"take_ns": 3 * MS}, {}, 45, [3, 13, 23, 33, 43], 0),
        # Too slow: no bursts to catch up. Of the 8 that were due from 25 ms on 4 came.
        ({"take_ns": 25 * MS}, {}, 105, [25, 50, 75, 100], 4),
        ({"take_ns": 25 * MS}, {}, 122, [25, 50, 75, 100], 5),  # and one is overdue
        ({}, {"rate_hz": 50.0}, 65, [0, 20, 40, 60], 0),  # before the native rate
        ({"live": True, "take_ns": 7 * MS, "delay_stamp_ns": 2 * MS}, {}, 22, [5, 12, 19], 0),
        ({"live": True, "take_ns": 21 * MS}, {}, 70, [21, 42, 63], 2),
        ({"live": True, "take_ns": 21 * MS, "rate_hz": 0.0}, {}, 70, [21, 42, 63], None),
        # A device's own rate counts, not the one it was asked for.
        ({"live": True, "take_ns": 10 * MS}, {"rate_hz": 200.0}, 35, [10, 20, 30], 0),
        ({"rate_hz": 8.0}, {}, 10_000, [125 * number for number in range(81)], 0),
    ],
)
def test_when_frames_come(clock, start, source, options, until_ms, times_ms, slipped):
    camera, record = start(Script(clock, **source), **options)
    clock.run_until(until_ms * MS)
    assert record.times_ns == [time * MS for time in times_ms]
    assert record.values == list(range(len(times_ms)))
    assert camera.rate_hz == options.get("rate_hz", source.get("rate_hz", 100.0))
    assert camera.state.slipped == slipped
    assert camera.state.expected == (None if slipped is None else len(times_ms) + slipped)


@pytest.mark.parametrize(
    ("take_ns", "reads_ms"),
    [
        (0, [0, 8.75, 18.75, 28.75]),  # an eighth of a period before it is due
        (MS, [0, 9, 19, 29]),  # in twice the time that it takes
        (3 * MS, [0, 3, 13, 23]),  # it takes too long to wait
    ],
)
def test_files_are_read_just_in_time(clock, start, take_ns, reads_ms):
    """Later than that, and they would be late; earlier, and they would slow down the networks."""
    source = Script(clock, take_ns=take_ns)
    start(source)
    clock.run_until(29 * MS)
    assert [time_ns / MS for time_ns in source.reads_ns] == reads_ms


def test_frames_that_take_longer_now_and_then_are_in_time(clock, start):
    _, record = start(Script(clock, take_ns=MS // 5, key_ns=2 * MS))
    clock.run_until(1203 * MS)
    assert record.times_ns == [(2 + 10 * number) * MS for number in range(121)]


def test_after_a_stop_no_frame_is_due(clock, start):
    camera, _ = start(Script(clock))
    clock.run_until(25 * MS)
    camera.stop(timeout_s=0.0)
    clock.run_until(125 * MS)
    assert (camera.state.frames, camera.state.slipped) == (3, 0)
    camera.start()
    clock.run_until(225 * MS)
    assert camera.state.frames > 10
    assert camera.state.slipped == 0


@pytest.mark.parametrize(
    ("source", "options", "values", "error"),
    [
        ({"count": 3}, {}, [0, 1, 2], ""),
        ({}, {"limit": 2}, [0, 1], ""),
        ({"break_at": 2}, {}, [0, 1], "unplugged"),  # a file ends there
    ],
)
def test_the_end_of_a_stream_is_told_once(clock, start, source, options, values, error):
    camera, record = start(Script(clock, **source), **options)
    clock.run_until(1000 * MS)
    assert (record.values, record.ends) == (values, 1)
    assert camera.state == CameraState(len(values), 0, error, True, slipped=0)


def test_headers_are_written(clock, start):
    _, record = start(Script(clock, count=2), frame_id="front", stamp=lambda time_ns: time_ns + 7)
    clock.run_until(100 * MS)
    assert record.headers == [(0, 7, "front"), (1, 10 * MS + 7, "front")]


def test_frames_lie_in_the_memory_that_a_device_reads(clock, start):
    broken = Script(clock, live=True, take_ns=10 * MS, break_at=4)
    camera, record = start(broken, Script(clock, live=True, take_ns=10 * MS))
    clock.run_until(15 * MS)
    made: list[Image] = []

    def allocate(shape):
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


def test_a_device_that_returns_is_reopened_with_growing_intervals(clock, start):
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
    # Of those due every 10 ms from the first on, three came.
    assert camera.state.expected == (back_ns + 10 * MS - 10 * MS) // (10 * MS) + 1


def test_a_device_may_return_with_another_size(clock, start):
    second = Script(clock, live=True, take_ns=10 * MS)
    second.height = 8
    camera, record = start(Script(clock, live=True, take_ns=10 * MS, break_at=0), second)
    clock.run_until(1000 * MS)
    assert camera.size == (8, 6)
    assert record.values


SHAPES = ((4, 6, 3), (40, 60, 3), (1, 1, 3))


@pytest.mark.parametrize("live", [False, True])
def test_frames_come_in_any_size(clock, start, caplog, live):
    caplog.set_level("INFO")
    given = {"live": live, "take_ns": 10 * MS if live else 0, "shapes": SHAPES}
    shapes: list[tuple[int, ...]] = []
    values: list[set[int]] = []

    def take(frame, capture_ns):
        shapes.append(frame.image.shape)
        values.append(set(frame.image.ravel().tolist()))

    camera, _ = start(Script(clock, count=30, break_at=30, **given), deliver=take)
    clock.run_until(1000 * MS)
    assert shapes == [SHAPES[number % 3] for number in range(30)]
    assert values == [{number} for number in range(30)]
    assert camera.size == (4, 6)  # as announced
    assert camera.sizes.describe() == {"sizes": "6x4, 60x40, 1x1", "size_changes": 29}
    lines = [record.message for record in caplog.records if "another size" in record.message]
    assert lines == [
        "camera: frame 1 has another size, 60x40",
        "camera: frame 2 has another size, 1x1",
    ]
    assert {r.levelname for r in caplog.records if "size" in r.message} == {
        "WARNING" if live else "INFO"
    }
    assert camera._pool.allocated <= 4


def test_many_sizes_do_not_fill_the_log(clock, start, caplog):
    caplog.set_level("INFO")
    shapes = tuple((4 + number, 6, 3) for number in range(50))
    camera, record = start(Script(clock, count=200, shapes=shapes))
    clock.run_until(3000 * MS)
    assert record.values == list(range(200))
    assert camera.sizes.changes == 199
    assert str(camera.sizes.describe()["sizes"]).endswith("6x11 and more")
    lines = [record.message for record in caplog.records if "size" in record.message]
    assert len(lines) == NAMED
    assert lines[-1] == "camera: frames of more than 8 sizes, further ones are counted"


def test_frames_of_any_size_lie_in_the_memory_that_a_device_reads(clock, start):
    camera, record = start(Script(clock, shapes=SHAPES))
    made: list[Image] = []

    def allocate(shape):
        made.append(np.zeros(shape, np.uint8))
        return made[-1], 0x1000 + len(made)

    camera.use_memory(allocate, 3)
    clock.run_until(1000 * MS)
    assert all(record.addresses[1:])
    assert [image.shape for image in made] == [(4, 6, 3)] * 3 + [(40, 60, 3)]


def test_buffers_are_used_again_and_never_while_held(clock, start):
    camera, _ = start(Script(clock))
    held: list[Frame] = []
    camera._deliver = lambda frame, capture_ns: held.append(frame) if len(held) < 6 else None
    clock.run_until(1000 * MS)
    assert [int(f.image[0, 0, 0]) for f in held] == [held[0].sequence + k for k in range(6)]
    # Six held, one being read ahead: the pool has not grown with the hundred frames.
    assert camera._pool.allocated <= 8


def test_a_stopped_camera_goes_on_where_it_stood(clock, start):
    camera, record = start(Script(clock))
    clock.run_until(15 * MS)
    assert camera.stop()
    clock.run_until(100 * MS)
    assert record.values == [0, 1]
    camera.start()
    clock.run_until(105 * MS)
    assert record.values[:2] == [0, 1]
    assert record.values[2:] == [3]  # the frame read ahead was not delivered


def list_faults():
    return [(one.kind, one.count) for one in FAULTS.snapshot()]


def test_an_error_of_a_listener_costs_one_frame(clock, start, caplog):
    """EDGES 0: one exception of a listener ended the camera."""
    frames: list[int] = []

    def take(frame, capture_ns):
        if frame.sequence < 3:
            raise RuntimeError(f"listener broke at frame {frame.sequence}")
        frames.append(frame.sequence)

    camera, _ = start(Script(clock), deliver=take, name="front")
    clock.run_until(45 * MS)
    assert frames == [3, 4]
    assert (camera.state.frames, camera.state.error) == (5, "")
    assert list_faults() == [("front: listener: RuntimeError", 3)]
    assert len(caplog.records) == 1


def test_a_live_source_with_a_fault_is_reopened(clock, start):
    """EDGES 0: an exception that a source does not declare ended the camera."""
    error = ValueError("not what a source raises")
    first = Script(clock, live=True, take_ns=10 * MS, break_at=2, error=error)
    camera, record = start(first, Script(clock, live=True, take_ns=10 * MS))
    clock.run_until(35 * MS)
    assert camera.state.error == "ValueError: not what a source raises"
    clock.run_until(30 * MS + FIRST_BACKOFF_NS + 10 * MS)
    assert first.closed
    assert (len(record.values), camera.state.error, camera.state.reopened) == (3, "", 1)
    assert list_faults() == [("camera: source: ValueError", 1)]


def fail(error):
    def function():
        raise error

    return function


@pytest.mark.parametrize(
    ("source", "options", "fault"),
    [
        # EDGES 0: the thread died, and was neither reported nor replaced.
        ({"break_at": 2, "error": SystemExit("killed")}, {}, "thread camera: SystemExit"),
        # EDGES 0: the camera ended before its first frame.
        (
            {},
            {"on_start": fail(PermissionError("no real-time scheduling"))},
            "camera: start of the thread: PermissionError",
        ),
        ({}, {"on_end": fail(RuntimeError("nobody listens"))}, "thread camera: RuntimeError"),
    ],
)
def test_a_fault_of_the_thread_is_counted_and_the_stream_goes_on(
    clock, start, source, options, fault
):
    camera, record = start(Script(clock, count=5, **source), **options)
    clock.run_until(1000 * MS)
    assert record.values == [0, 1, 2, 3, 4]
    assert camera.state.ended
    assert list_faults() == [(fault, 1)]
    assert not FAULTS.dead_threads
    assert camera.stop()
