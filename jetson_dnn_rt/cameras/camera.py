# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A thread that reads one source at its rate and delivers every frame, without copying it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from queue import SimpleQueue

from jetson_dnn_rt.cameras.frame_sizes import FrameSizes
from jetson_dnn_rt.cameras.source import ENCODING, FrameSource, SourceOptions, open_source
from jetson_dnn_rt.clock import Clock, SteadyClock
from jetson_dnn_rt.errors import SourceError
from jetson_dnn_rt.frames import Allocate, Frame, FramePool, allocate_pageable
from jetson_dnn_rt.safety.faults import FAULTS, Pulse, safe_text, start_thread

logger = logging.getLogger(__name__)

FIRST_BACKOFF_NS = 250_000_000
LONGEST_BACKOFF_NS = 5_000_000_000

Deliver = Callable[[Frame, int], None]
"""Called with a frame and its capture time on the steady clock; must return at once."""


@dataclass(frozen=True, slots=True)
class CameraState:
    """Counts and state of a camera."""

    frames: int
    reopened: int
    error: str  # why it delivers nothing at the moment; empty when it does
    ended: bool  # the stream came to its end, or to the number of frames asked for
    unreadable: int = 0  # pictures of the source that could not be decoded
    slipped: int | None = None
    """Frames that were due and did not come; None where the source's rate is not known."""

    @property
    def expected(self) -> int | None:
        """Frames that were due; None where the source's rate is not known."""
        return None if self.slipped is None else self.frames + self.slipped


class Camera:
    """Reads a source on its own thread.

    A source that is not live is read ahead and its frames are delivered at absolute times, one
    period apart: the period does not drift, and reading does not add to the frame's age. A live
    source sets its own pace. One that stops is reopened with growing intervals. A fault, in a
    listener or in the source's code, costs one frame; the thread continues. Each frame has the
    size in which it comes; `sizes` counts the changes. Frames that were due while the source was
    not read, or delivered none, have slipped: of a live source at the rate that it reports, of
    another at that of its delivery.

    `reopen` opens the source, first here and again after a live one stopped. `rate_hz` is the rate
    of a source that is not live, 0 = its native rate; `limit` ends the stream after that many
    frames. `stamp` makes the stamp of a frame from its capture time. `on_start` and `on_end` are
    called on the camera's thread, at its start (scheduling class) and at the stream's end.
    """

    def __init__(
        self,
        reopen: Callable[[], FrameSource],
        deliver: Deliver,
        *,
        rate_hz: float = 0.0,
        frame_id: str = "",
        limit: int | None = None,
        stamp: Callable[[int], int] = int,
        clock: Clock | None = None,
        on_start: Callable[[], None] = lambda: None,
        on_end: Callable[[], None] = lambda: None,
        name: str = "camera",
    ) -> None:
        self._name = name
        self.sizes = FrameSizes(name)
        self._reopen, self._deliver = reopen, deliver
        self._frame_id, self._limit, self._stamp = frame_id, limit, stamp
        self._clock: Clock = clock or SteadyClock()
        self._on_start, self._on_end = on_start, on_end
        self._source: FrameSource | None = reopen()
        self._asked_rate_hz = rate_hz
        self._allocate: Allocate = allocate_pageable
        self._pool_size = 4
        self._pool = self._make_pool(self._source)
        self._backoff_ns = FIRST_BACKOFF_NS
        self._condition = self._clock.condition()
        self._stopping = False
        self._left_behind = False
        self._thread: threading.Thread | None = None
        self._state = CameraState(0, 0, "", False)
        # Not while it reads or sleeps: frames that do not come are told by their absence.
        self._pulse = Pulse()
        self._due_ns: int | None = None  # when the next frame is due, if frames come
        self._slipped_ns = 0  # by which the due times of frames were put off

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the source's first frame; others may differ."""
        return self._pool_shape[0], self._pool_shape[1]

    @property
    def rate_hz(self) -> float:
        """Rate at which frames are due; 0 where only the device knows."""
        return self._asked_rate_hz or self._native_rate_hz

    @property
    def state(self) -> CameraState:
        """Its counts and state so far, with the frames that are overdue at this moment."""
        state, period_ns = self._state, self._period_ns
        if not period_ns:
            return state
        overdue = self._count_overdue(self._clock.now_ns())
        return replace(state, slipped=self._slipped_ns // period_ns + overdue)

    @property
    def buffers(self) -> tuple[int, int]:
        """Number and bytes of the buffers that its frames are lent from."""
        pool = self._pool
        return pool.allocated, pool.allocated_bytes

    @property
    def _period_ns(self) -> int:
        """Time between two frames; 0 where only the device knows."""
        rate_hz = self._native_rate_hz if self._live else self.rate_hz
        return round(1e9 / rate_hz) if rate_hz else 0

    def _count_overdue(self, now_ns: int) -> int:
        """Whole periods since the next frame was due."""
        due_ns, period_ns = self._due_ns, self._period_ns
        if due_ns is None or not period_ns or self._state.ended:
            return 0
        return max(0, now_ns - due_ns) // period_ns

    def use_memory(self, allocate: Allocate, frames: int) -> None:
        """Put the next frames into other memory; may be called while the camera runs.

        `frames` are allocated now, so that none is while it runs. Frames that are still in use
        keep the memory that they have.
        """
        self._allocate, self._pool_size = allocate, frames
        self._pool = FramePool(self._pool_shape, frames, allocate)

    def start(self) -> None:
        """Start delivering; a stopped camera continues with the next frame of its source."""
        if self._thread is not None:
            raise RuntimeError("the camera runs already")
        self._stopping = False
        self._state = replace(self._state, ended=False)
        self._clock.participate()
        self._thread = start_thread(self._run, self._name, wanted=self._goes_on, pulse=self._pulse)

    def stop(self, timeout_s: float = 2.0) -> bool:
        """Stop delivering; False when the source did not return in time.

        Its thread ends with the process then.
        """
        if self._thread is None:
            return True
        now_ns = self._clock.now_ns()
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        self._thread.join(timeout_s)
        self._slipped_ns += self._count_overdue(now_ns) * self._period_ns
        self._due_ns = None
        ended = not self._thread.is_alive()
        self._left_behind |= not ended
        self._thread = None
        return ended

    def close(self, timeout_s: float = 2.0) -> None:
        """Stop, and close the source unless a thread is still inside it."""
        self.stop(timeout_s)
        if self._source is not None and not self._left_behind:
            self._source.close()
            self._source = None

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        """Deliver until stopped or the stream ends; restarted after a fault (`_goes_on`)."""
        try:
            self._on_start()
        except Exception as error:
            FAULTS.note(f"{self._name}: start of the thread", error)
        try:
            if self._deliver_all():
                self._state = replace(self._state, ended=True)
                self._on_end()
        except BaseException as error:
            self._state = replace(self._state, error=_describe(error))
            raise
        self._clock.leave()

    def _goes_on(self) -> bool:
        """Whether the thread restarts after a fault that ended `_run`."""
        if self._stopping or self._state.ended:
            self._clock.leave()
            return False
        return True

    def _deliver_all(self) -> bool:
        """Deliver until the end of the stream (True) or until stopped (False)."""
        period_ns = round(1e9 / self.rate_hz) if self.rate_hz else 0
        due_ns = self._clock.now_ns() - period_ns  # the first frame counts as late
        self._due_ns = self._clock.now_ns() + self._period_ns
        before_ns: int | None = None  # when the frame before was captured
        longest_ns = 0
        while not self._stopping:
            if self._limit is not None and self._state.frames >= self._limit:
                return True
            source = self._source or self._open_again()
            if source is None:
                continue
            if not source.live and longest_ns < period_ns // 4:
                # Just in time: the networks of the last frame want the cores until then.
                self._sleep_until(due_ns - max(2 * longest_ns, period_ns // 8))
            loan = self._pool.borrow((source.height, source.width, 3))
            begin_ns = self._clock.now_ns()
            self._pulse.rest()
            try:
                image = source.read(loan.buffer)
            except Exception as error:
                self._note(error)
                if not source.live:
                    # A file would be read from its start again: it ends here instead.
                    self._state = replace(self._state, error=_describe(error))
                    logger.error("%s: the stream ends", _describe(error))
                    return True
                self._lose(source, error)
                continue
            self._pulse.begin()
            if source.unreadable != self._state.unreadable:
                self._state = replace(self._state, unreadable=source.unreadable)
            if image is None:
                return True
            if image is not loan.buffer:
                loan = self._pool.borrow(image.shape)
                loan.buffer[:] = image
            # Half of it is remembered for 88 frames: key frames of a video take longer.
            longest_ns = max(longest_ns * 127 // 128, self._clock.now_ns() - begin_ns)
            if not source.live:
                if not self._sleep_until(due_ns):
                    return False
                now_ns = self._clock.now_ns()
                # A late wake-up does not move the times that follow. A frame that could not be
                # read in time does: a burst to catch up would be of no use.
                on_time = now_ns - due_ns < period_ns // 2
                if not on_time and before_ns is not None:
                    self._slipped_ns += now_ns - due_ns
                due_ns = (due_ns if on_time else now_ns) + period_ns
                self._due_ns = due_ns
            stamped_ns = source.capture_ns if source.live else None
            capture_ns = self._clock.now_ns() if stamped_ns is None else stamped_ns
            if source.live and (live_ns := self._period_ns):
                if before_ns is not None:
                    # Rounded: a device's own clock differs from ours, and shutter times vary.
                    periods = (capture_ns - before_ns + live_ns // 2) // live_ns
                    self._slipped_ns += max(0, periods - 1) * live_ns
                self._due_ns = capture_ns + live_ns
            before_ns = capture_ns
            state, stamp_ns = self._state, self._stamp(capture_ns)
            frame = Frame(
                loan.buffer, ENCODING, stamp_ns, state.frames, self._frame_id, loan,
                file=source.file, device_address=loan.device_address, doubt=source.doubt,
            )  # fmt: skip
            self._state = replace(state, frames=state.frames + 1, error="", ended=False)
            self.sizes.observe(frame, logger.warning if source.live else logger.info)
            try:
                self._deliver(frame, capture_ns)
            except Exception as error:
                FAULTS.note(f"{self._name}: listener", error)
            # No reference here may keep the buffer from its pool during the wait for a frame.
            del frame, loan, image
        return False

    def _sleep_until(self, time_ns: int) -> bool:
        """Wait for a time; False when stopped meanwhile."""
        self._pulse.rest()
        with self._condition:
            while not self._stopping and self._clock.now_ns() < time_ns:
                self._condition.wait_until(time_ns)
        self._pulse.begin()
        return not self._stopping

    def _note(self, error: Exception) -> None:
        """Count an error that sources do not raise on purpose."""
        if not isinstance(error, SourceError):
            FAULTS.note(f"{self._name}: source", error)

    def _lose(self, source: FrameSource, error: Exception) -> None:
        """Close a broken source, log that once, and prepare to reopen it."""
        self._source = None
        self._backoff_ns = FIRST_BACKOFF_NS
        self._state = replace(self._state, error=_describe(error))
        logger.error("%s: trying to reopen it", _describe(error))
        try:
            source.close()
        except Exception as failure:
            self._note(failure)

    def _open_again(self) -> FrameSource | None:
        if not self._sleep_until(self._clock.now_ns() + self._backoff_ns):
            return None
        self._backoff_ns = min(2 * self._backoff_ns, LONGEST_BACKOFF_NS)
        try:
            source = self._reopen()
        except Exception as error:
            self._note(error)
            self._state = replace(self._state, error=_describe(error))
            return None
        if (source.height, source.width, 3) != self._pool_shape:
            self._pool = self._make_pool(source)
        self._source = source
        state = self._state
        self._state = replace(state, reopened=state.reopened + 1, error="", ended=False)
        logger.warning("the camera is back after %d frames", state.frames)
        return source

    def _make_pool(self, source: FrameSource) -> FramePool:
        self._pool_shape = (source.height, source.width, 3)
        self._native_rate_hz, self._live = source.rate_hz, source.live
        return FramePool(self._pool_shape, self._pool_size, self._allocate)


def _describe(error: BaseException) -> str:
    """Text of an error, with its type where it was not raised on purpose."""
    text = safe_text(error)
    return text if isinstance(error, SourceError) else f"{type(error).__name__}: {text}"


def open_camera(source: str, *, rate_hz: float = 0.0, limit: int | None = None) -> Iterator[Frame]:
    """Read a source on a thread of its own and yield each frame when it is due.

    Frames queue up where the caller is slower than they come. Their stamps are on the steady
    clock. `source` is a name for `open_source`; `rate_hz` 0 is its own rate; `limit` ends after
    that many frames. SourceError when the source does not exist.
    """
    frames: SimpleQueue[Frame | None] = SimpleQueue()
    camera = Camera(
        lambda: open_source(source, SourceOptions(rate_hz=rate_hz)),
        lambda frame, capture_ns: frames.put(frame),
        rate_hz=rate_hz,
        limit=limit,
        on_end=lambda: frames.put(None),
    )
    camera.start()
    try:
        while (frame := frames.get()) is not None:
            yield frame
    finally:
        camera.close()
