# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Video of a run: every frame that the tasks saw, with what each of them found in that frame.

Below the picture a line for each task says how its job ended. A frame without a result has none
drawn: a result of an earlier frame would show objects where they are no longer.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, TypeVar, cast

import cv2
import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.cameras.bgr import copy_as_bgr
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame, FramePool, Image, Loan
from jetson_dnn_rt.nodes.tasks.drawing import Color, draw_lines, draw_results
from jetson_dnn_rt.nodes.tasks.mailbox import Mailbox
from jetson_dnn_rt.results import Classification, Detections, Result, Segmentation
from jetson_dnn_rt.safety.utf8_paths import utf8_name
from jetson_dnn_rt.tasks import JobRecord, Outcome, Work
from jetson_dnn_rt.traces.room import describe_full_disk

if TYPE_CHECKING:
    from jetson_dnn_rt.nodes.process.graph import TaskInfo

CODECS = {".mp4": "mp4v", ".avi": "MJPG"}
"""What every build of OpenCV with FFmpeg encodes, by the name's ending."""

LONGEST, LEAST = 640, 320
"""Longer side of the picture in pixels: larger costs the tasks more, smaller has no room for the
line of a task."""

SLOTS = 12
"""Frames that wait for the encoder; beyond it the oldest are left out of the video."""

PENDING = 8
"""Frames that wait for the last of their jobs to end."""

NICE = 10
"""The encoder gets what the tasks leave. Not less: a thread that holds the interpreter's lock and
does not get to run lets the camera's thread wait. On a busy machine (two cores, load 4) 0 and 19
missed 7 deadlines of 839 each, 10 missed 1, no video 5 of 838."""

CHECK_FRAMES = 256
"""Frames between two checks of the free space of the disk."""

PROBE_BYTES = 1 << 16
"""Written once, to see whether the disk takes anything."""

RATE_HZ = 10.0
"""Where neither the camera nor the tasks know a rate."""

DRAIN_S = 10.0

_ENDED_WELL: Color = (255, 255, 255)
_ENDED_OTHERWISE: Color = (0, 159, 230)

Number = TypeVar("Number", bound="np.integer[Any]")

Size = tuple[int, int]
"""Width and height in pixels."""


@dataclass(frozen=True)
class VideoCount:
    """A video: frames in it, and frames left out because the encoder could not keep up.

    Those that could not be drawn, which is logged as a fault, are left out, too.
    """

    file: Path
    frames: int
    left_out: int


@dataclass(eq=False)
class _Shot:
    """A small copy of a frame and how its jobs ended, by task."""

    loan: Loan
    size: Size  # of the frame within the loan's buffer
    factor: float  # by which it is smaller than the camera's; 0 = it was no picture
    jobs: dict[str, tuple[JobRecord, Result | None]] = field(default_factory=dict)


class RunVideo:
    """Videos of a run: one for each stream of frames, `path` with the stream's name if several.

    `add` makes a small copy of each frame and returns; a thread of low priority draws and encodes.

    ConfigurationError: the ending is none of `CODECS`, or the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        check_video(path)
        self._videos: dict[str, _StreamVideo] = {}  # by task

    def introduce(self, tasks: Mapping[str, TaskInfo]) -> None:
        """Name the tasks before their first job."""
        streams: dict[str, dict[str, TaskInfo]] = {}
        for name, task in tasks.items():
            streams.setdefault(task.stream, {})[name] = task
        for stream, members in streams.items():
            path = self._path
            if len(streams) > 1:
                suffix = stream.strip("/").replace("/", "_")
                path = path.with_name(f"{path.stem}_{suffix}{path.suffix}")
            self._videos |= dict.fromkeys(members, _StreamVideo(path, members))

    def add(self, record: JobRecord, work: Work) -> None:
        """Add a job that ended; OSError when the videos cannot be written any further."""
        self._videos[record.task].add(record, work)

    def close(self) -> None:
        """Encode what waits, and complete the files; OSError when one is incomplete."""
        for video in set(self._videos.values()):
            video.close()

    @property
    def counts(self) -> list[VideoCount]:
        """The videos that were written; one of a stream without a frame was not."""
        videos = dict.fromkeys(self._videos.values())
        return [video.count for video in videos if video.count.frames]


class _StreamVideo:
    def __init__(self, path: Path, tasks: Mapping[str, TaskInfo]) -> None:
        self._path, self._tasks = path, tasks
        periods_ns = [task.traced.period_ns for task in tasks.values() if task.traced.period_ns]
        # FFmpeg's mpeg4 knows no rate with more digits.
        self._rate_hz = round(1e9 / min(periods_ns), 2) if periods_ns else RATE_HZ
        self._pool: FramePool | None = None  # of the video's size, which the first frame decides
        self._pending: dict[tuple[int, int], _Shot] = {}
        self._writer: cv2.VideoWriter | None = None
        self._frames = self._failed = 0
        self._error: OSError | None = None
        self._mailbox: Mailbox[_Shot] = Mailbox("video", self._write, slots=SLOTS, nice=NICE)

    @property
    def count(self) -> VideoCount:
        return VideoCount(self._path, self._frames, self._mailbox.dropped + self._failed)

    def add(self, record: JobRecord, work: Work) -> None:
        if self._error is not None:
            raise self._error
        key = work.frame.stamp_ns, work.frame.sequence
        shot = self._pending.get(key)
        if shot is None:
            shot = self._pending[key] = self._shrink(work.frame)
        shot.jobs[record.task] = record, work.result
        while self._pending:
            first = next(iter(self._pending))
            whole = len(self._pending[first].jobs) == len(self._tasks)
            if not whole and len(self._pending) <= PENDING:
                break
            self._mailbox.put(self._pending.pop(first))

    def close(self) -> None:
        for shot in self._pending.values():
            self._mailbox.put(shot)
        self._pending.clear()
        self._mailbox.close(DRAIN_S, finish=True)
        if self._writer is not None:
            self._writer.release()
        if self._error is not None:
            raise self._error
        if self._writer is not None and count_frames(self._path) < self._frames:
            # OpenCV reports nothing.
            raise OSError(f"{self._path} is incomplete: the disk did not take all of it")

    def _shrink(self, frame: Frame) -> _Shot:
        """Make a copy that fits into the video; black where the frame is no picture."""
        try:
            image = frame.image if frame.encoding == "bgr8" else copy_as_bgr(frame)
            height, width = image.shape[:2]
            if self._pool is None:
                canvas = _choose_size(width, height)
                self._pool = FramePool((canvas[1], canvas[0], 3), SLOTS)
            loan = self._pool.borrow()
            most_high, most_wide = loan.buffer.shape[:2]
            factor = min(most_wide / width, most_high / height)
            size = max(1, round(width * factor)), max(1, round(height * factor))
            small = cv2.resize(image, size)
        except (cv2.error, KeyError, ValueError, IndexError, ZeroDivisionError):
            # Its line says why it failed.
            pool = self._pool or FramePool((LONGEST * 9 // 16, LONGEST, 3), SLOTS)
            self._pool, loan = pool, pool.borrow()
            loan.buffer[:] = 0
            return _Shot(loan, (LEAST, 16), 0.0)
        if small.shape != loan.buffer.shape:
            loan.buffer[:] = 0
        loan.buffer[: size[1], : size[0]] = small
        return _Shot(loan, size, factor)

    # -- on the thread of the mailbox ------------------------------------------------------------

    def _write(self, shot: _Shot) -> None:
        if self._error is not None:
            return
        self._failed += 1  # unless it comes to its end
        if self._frames % CHECK_FRAMES == 0 and (lack := describe_full_disk(self._path.parent)):
            self._error = OSError(f"{self._path}: {lack}")
            return
        whole = self._draw(shot)
        if self._writer is None:
            self._writer = _open_writer(self._path, self._rate_hz, whole.shape[1::-1])
            if not self._writer.isOpened():
                self._error = OSError(f"{self._path} cannot be written any more")
                return
        self._writer.write(whole)
        self._frames += 1
        self._failed -= 1

    def _draw(self, shot: _Shot) -> Image:
        width, height = shot.size
        picture = shot.loan.buffer[:height, :width]
        results = [
            (_scale(result, shot.factor, shot.size), self._tasks[task].labels)
            for task, (_, result) in shot.jobs.items()
            if result is not None and shot.factor
        ]
        draw_results(Frame(picture, "bgr8", 0, 0), results, picture)
        lines = [_describe_job(task, *shot.jobs.get(task, ())) for task in self._tasks]
        status = draw_lines(lines, shot.loan.buffer.shape[1])
        return np.concatenate([shot.loan.buffer, status])


def count_frames(path: Path) -> int:
    """Number of frames in a finished video, by its index; 0 when it cannot be read."""
    with utf8_name(path) as name:
        capture = cv2.VideoCapture(name)
    try:
        return max(0, int(capture.get(cv2.CAP_PROP_FRAME_COUNT))) if capture.isOpened() else 0
    finally:
        capture.release()


def check_video(path: Path) -> None:
    """Try whether a video can be written; ConfigurationError with what to do."""
    if path.suffix not in CODECS:
        raise ConfigurationError(f"{path}: a video's name ends in {' or '.join(CODECS)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The encoder does not say that a disk is full. Not into a video that may be there.
        with TemporaryFile(dir=path.parent) as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
        path.open("ab").close()
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror}") from error
    writer = _open_writer(path, RATE_HZ, (LEAST, LEAST))
    opened = writer.isOpened()
    writer.release()
    path.unlink(missing_ok=True)
    if not opened:
        codec = CODECS[path.suffix]
        raise ConfigurationError(
            f"this OpenCV cannot encode {path.name} ({codec}): install one with FFmpeg, such as "
            "opencv-python-headless of PyPI, give --video FILE with another ending "
            f"({', '.join(CODECS)}), or do without: --video none"
        )


def _open_writer(path: Path, rate_hz: float, size: Size) -> cv2.VideoWriter:
    codec = cv2.VideoWriter.fourcc(*CODECS[path.suffix])
    with utf8_name(path) as name:
        return cv2.VideoWriter(name, codec, rate_hz, size)


def _choose_size(width: int, height: int) -> Size:
    """Size of the video: even, as its encoders want it."""
    longest = max(width, height)
    factor = LONGEST / longest if longest > LONGEST else max(1.0, LEAST / width)
    wide, high = (max(16, round(side * factor / 2) * 2) for side in (width, height))
    return max(LEAST, wide), min(high, 2 * LONGEST)


def _scale(result: Result, factor: float, size: Size) -> Result:
    """The result in a picture of another size."""
    if isinstance(result, Classification):
        return result
    if isinstance(result, Segmentation):
        masks = [replace(one, mask=_resize(one.mask, size), others=()) for one in result.masks]
        return replace(masks[0], others=tuple(masks[1:]))
    scaled = replace(result, boxes=result.boxes * factor)
    if result.rotated is not None:
        scaled.rotated = result.rotated * np.array([factor] * 4 + [1], np.float32)
    if result.keypoints is not None:
        scaled.keypoints = result.keypoints * np.array([factor, factor, 1], np.float32)
    if result.instance_mask is not None:
        scaled.instance_mask = _resize(result.instance_mask, size)
    return scaled


def _resize(mask: npt.NDArray[Number], size: Size) -> npt.NDArray[Number]:
    return cast("npt.NDArray[Number]", cv2.resize(mask, size, interpolation=cv2.INTER_NEAREST))


def _describe_job(
    task: str, record: JobRecord | None = None, result: Result | None = None
) -> tuple[str, Color]:
    """Line of a task, and its colour."""
    if record is None:
        return f"{task}: did not get this frame", _ENDED_OTHERWISE
    text = f"{task}: {record.outcome.value}"
    if record.outcome in (Outcome.MET, Outcome.LATE):
        text += f"  {record.response_time_ns / 1e6:.1f} ms  {record.variant}"
        if isinstance(result, Detections):
            text += f"  {len(result)} objects"
    else:
        text += f" ({record.reason}): no result" if record.reason else ": no result"
    met = record.outcome is Outcome.MET
    return text, _ENDED_WELL if met else _ENDED_OTHERWISE
